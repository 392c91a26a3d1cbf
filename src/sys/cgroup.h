/* Limits by control groups: probes which kind this host allows, makes one group per task, and
 * reports a group's use and out-of-memory kills. */
#ifndef STK_SYS_CGROUP_H
#define STK_SYS_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/err.h"

typedef enum { STK_CGROUP_NONE, STK_CGROUP_V1, STK_CGROUP_V2, STK_CGROUP_V2_SCOPE } stk_cgroup_kind;

typedef struct stk_cgroups stk_cgroups;

/* Probes once per run, in this order: v2 in a group delegated to us; v2 in a scope from systemd
 * (the user's manager; for root, the system's); v2 beside our own group if we may write there; v1;
 * NONE (the caller then uses the watchdog). We leave a group with limits only for one below the
 * same limits. Never fails: `describe` reports the result and the reason. `run` names the parent
 * group; leftovers of that name are removed. STOKER_CGROUP=none|v1|v2 forces one kind. The first
 * group makes the real folders; the processes of a delegated group then move into a group
 * `stoker-leaf` below it and stay there. */
stk_cgroups *stk_cgroups_open(const char *run);
stk_cgroups *stk_cgroups_find(const char *run); /* the same, but removes nothing */
void stk_cgroups_close(stk_cgroups *groups);    /* removes our parent group */
/* True if a group for processes without limits can be had without asking a service manager. */
bool stk_cgroups_can_gather(const stk_cgroups *groups); /* NULL: false */
/* Moves all descendants of `engine` into that group, except those in the engine's session (its
 * helpers), those already in a group of the run, and `others`. Call it from another process than
 * the engine, because joining a group may take milliseconds. Returns true if some were moved; they
 * may have forked meanwhile. */
bool stk_cgroups_gather(const stk_cgroups *groups, pid_t engine, const pid_t *others,
                        uint32_t n_others);
stk_cgroup_kind stk_cgroups_kind(const stk_cgroups *groups);
const char *stk_cgroups_describe(const stk_cgroups *groups); /* a sentence for doctor */

/* The folder of this process's group: of a v1 controller ("memory"), or of the v2 tree ("").
 * `ret_mount_len`: length of the mount point within it. STK_E_NOT_FOUND: no such tree. */
int stk_cgroup_find(const char *controller, char *ret_dir, size_t size, size_t *ret_mount_len);
/* The same for another process; STK_E_NOT_FOUND also if its group can't be seen from here. */
int stk_cgroup_of(pid_t pid, const char *controller, char *ret_dir, size_t size);

typedef struct stk_cgroup {
    char *paths[4]; /* group folders (v1: one per controller) */
    char *procs[4]; /* the n files to write "0" into */
    uint32_t n;
} stk_cgroup;

typedef struct stk_cgroup_limits {
    int64_t memory_bytes; /* 0: no limit. Limits swap too if the kernel counts it */
    int64_t cpu_milli;    /* 0: no limit */
    const dev_t *closed;  /* character devices that the group can't open, if can_close is true */
    uint32_t n_closed;
    bool
        one_by_one; /* when out of memory, the kernel ends one process instead of the whole group */
} stk_cgroup_limits;

int stk_cgroup_new(stk_cgroups *groups, const char *name, const stk_cgroup_limits *limits,
                   stk_cgroup *ret, stk_err *err);
/* True if we can close devices to a group: by a writable v1 controller `devices`, or on v2 by a BPF
 * program, which needs root. */
bool stk_cgroups_can_close(const stk_cgroups *groups);
bool stk_cgroup_oom(const stk_cgroups *groups,
                    const stk_cgroup *group); /* the kernel killed a process of it for memory */
int64_t stk_cgroup_peak(const stk_cgroups *groups, const stk_cgroup *group); /* bytes, -1 unknown */
int64_t stk_cgroup_memory(const stk_cgroups *groups,
                          const stk_cgroup *group); /* bytes now, -1 unknown */
int64_t stk_cgroup_cpu_us(const stk_cgroups *groups, const stk_cgroup *group); /* -1 unknown */
void stk_cgroup_kill(const stk_cgroups *groups,
                     const stk_cgroup *group); /* kills every process in it until none is left */
void stk_cgroup_remove(stk_cgroups *groups, stk_cgroup *group);

#endif
