/* Private to the control-group files. */
#ifndef STK_SYS_CGROUP_PRIVATE_H
#define STK_SYS_CGROUP_PRIVATE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sys/cgroup.h"

/* v1: one folder per controller. v2: only the first. */
enum { STK_CG_MEMORY, STK_CG_CPU, STK_CG_DEVICES, STK_CG_N_TREES };

/* Processes of a group move into this child when the group is to have others below it: in v2, only
 * groups without members pass controllers down. */
#define STK_CG_LEAF "stoker-leaf"

struct stk_cgroups {
    stk_cgroup_kind kind;
    char parents[STK_CG_N_TREES][PATH_MAX]; /* "…/stoker-<run>"; "" if unused */
    char name[300];                         /* "stoker-<run>" */
    char base[PATH_MAX];      /* V2: the parent of parents[0]; a scope has none until it is made */
    char gathering[PATH_MAX]; /* the group for processes without limits; "" if there can be none */
    const char *gathering_tree; /* its name in /proc/PID/cgroup */
    bool leaf;                  /* V2: processes in `base` must first move to its leaf */
    char bus[PATH_MAX];         /* scope: the address of the manager to ask */
    bool made;
    bool broken; /* making the parents failed: don't retry for every task */
    stk_err why;
    char text[640];
};

/* cgroup_file.c: reads and writes the files in a group's folder, and ends groups */
int stk_cgroup_file_read(const char *dir, const char *file, char *buf, size_t size);
int stk_cgroup_file_write(const char *dir, const char *file, const char *text);
int64_t stk_cgroup_file_number(const char *dir,
                               const char *file); /* -1: no such file or no number */
/* The value after "key " in a file of "key value" lines, -1 if absent. */
int64_t stk_cgroup_file_field(const char *dir, const char *file, const char *key);
bool stk_cgroup_file_lists(const char *dir, const char *file, const char *word);
bool stk_cgroup_file_writable(const char *dir, const char *file);
void stk_cgroup_pause_ms(long ms);
/* SIGKILL to all processes in a group and in the groups below it (a run inside a step makes some).
 */
void stk_cgroup_end_members(const char *dir);
/* The same, and removes the groups. */
void stk_cgroup_end_tree(const char *dir);
/* Removes a group without processes; waits a moment for the last one to exit. */
void stk_cgroup_remove_dir(const char *dir);

/* cgroup_probe.c: finds the kind and the place. Each fills the struct, or explains in `why`. */
bool stk_cgroup_probe_v1(stk_cgroups *g, char *why, size_t why_size);
bool stk_cgroup_probe_v2(stk_cgroups *g, char *why, size_t why_size);

/* cgroup_gather.c */
void stk_cgroup_probe_gathering(stk_cgroups *g);

/* cgroup_scope.c: makes the folders of our parent groups */
int stk_cgroup_make_parents(stk_cgroups *g, stk_err *err);

#endif
