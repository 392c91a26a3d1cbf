/* What the files of control groups share, and nobody else sees. */
#ifndef STK_SYS_CGROUP_PRIVATE_H
#define STK_SYS_CGROUP_PRIVATE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sys/cgroup.h"

/* v1: one folder a controller. v2: only the first. */
enum { STK_CG_MEMORY, STK_CG_CPU, STK_CG_DEVICES, STK_CG_N_TREES };

/* The group that the processes of a group move into when that one is to have others below it: in v2
 * only groups without members hand controllers down. */
#define STK_CG_LEAF "stoker-leaf"

struct stk_cgroups {
    stk_cgroup_kind kind;
    char parents[STK_CG_N_TREES][PATH_MAX]; /* "…/stoker-<run>", "" where we have none */
    char name[300];                         /* "stoker-<run>" */
    char base[PATH_MAX]; /* V2: the group that parents[0] is in; a scope has none before it is made
                          */
    char gathering[PATH_MAX];   /* of what has no limits; "" where that can't be had */
    const char *gathering_tree; /* its name in /proc/PID/cgroup */
    bool leaf;                  /* V2: what is in `base` must move to its leaf first */
    char bus[PATH_MAX];         /* scope: the address of the manager to ask */
    bool made;
    bool broken; /* making the parents failed: don't try for every task */
    stk_err why;
    char text[640];
};

/* cgroup_file.c: the small files in a group's folder, and its end */
int stk_cgroup_file_read(const char *dir, const char *file, char *buf, size_t size);
int stk_cgroup_file_write(const char *dir, const char *file, const char *text);
int64_t stk_cgroup_file_number(const char *dir, const char *file); /* -1: there is none */
/* The value after "key " in a file of "key value" lines, -1 if absent. */
int64_t stk_cgroup_file_field(const char *dir, const char *file, const char *key);
bool stk_cgroup_file_lists(const char *dir, const char *file, const char *word);
bool stk_cgroup_file_writable(const char *dir, const char *file);
void stk_cgroup_pause_ms(long ms);
/* SIGKILL to all processes in a group and in those below it (a run inside a step makes some). */
void stk_cgroup_end_members(const char *dir);
/* That, and the groups go too. */
void stk_cgroup_end_tree(const char *dir);
/* A group without processes; waits a moment for its last one to be gone. */
void stk_cgroup_remove_dir(const char *dir);

/* cgroup_probe.c: which kind, and where. They fill the struct, or say why not. */
bool stk_cgroup_probe_v1(stk_cgroups *g, char *why, size_t why_size);
bool stk_cgroup_probe_v2(stk_cgroups *g, char *why, size_t why_size);

/* cgroup_gather.c */
void stk_cgroup_probe_gathering(stk_cgroups *g);

/* cgroup_scope.c: the real folders of our parent groups */
int stk_cgroup_make_parents(stk_cgroups *g, stk_err *err);

#endif
