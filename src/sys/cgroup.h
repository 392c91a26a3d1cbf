/* Limits by control groups: which kind this host lets us use, one group a task, what it used and
 * whether it died of it. */
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

/* Probes once a run: v2 in a group that is delegated to us, else in a scope that systemd gives us
 * (the user's manager, for root the system's), else beside our own group where that is ours to
 * write; else v1, else NONE (the caller uses the watchdog). A group with limits is only left for
 * one below the same limits. Never an error: `describe` says what was found and why. `run` names
 * the parent group; leftovers of that name are removed. STOKER_CGROUP=none|v1|v2 forces one. Real
 * directories are only made with the first group; then the processes of a delegated group move into
 * a group `stoker-leaf` below it, where they stay. */
stk_cgroups *stk_cgroups_open(const char *run);
stk_cgroups *stk_cgroups_find(const char *run); /* the same, and removes nothing */
void stk_cgroups_close(stk_cgroups *groups);    /* removes our parent group */
/* A group for what has no limits: it costs nothing where no service manager has to be asked. */
bool stk_cgroups_can_gather(const stk_cgroups *groups); /* NULL: false */
/* Moves all descendants of `engine` into it, but for those in its own session (its helpers), those
 * in a group of the run already, and `others`. For another process than the engine: to join a group
 * may take milliseconds. True: some were moved, which may have forked meanwhile. */
bool stk_cgroups_gather(const stk_cgroups *groups, pid_t engine, const pid_t *others,
                        uint32_t n_others);
stk_cgroup_kind stk_cgroups_kind(const stk_cgroups *groups);
const char *stk_cgroups_describe(const stk_cgroups *groups); /* a sentence for doctor */

/* The folder of the group that this process is in: of a v1 controller ("memory"), or of the v2 tree
 * (""). `ret_mount_len`: bytes of it that are the mount point. STK_E_NOT_FOUND: no such tree. */
int stk_cgroup_find(const char *controller, char *ret_dir, size_t size, size_t *ret_mount_len);
/* The same of another process; STK_E_NOT_FOUND too where its group can't be seen from here. */
int stk_cgroup_of(pid_t pid, const char *controller, char *ret_dir, size_t size);

typedef struct stk_cgroup {
    char *paths[4]; /* group folders (v1: one a controller) */
    char *procs[4]; /* the files to write "0" into, NULL-terminated by n */
    uint32_t n;
} stk_cgroup;

typedef struct stk_cgroup_limits {
    int64_t memory_bytes; /* 0: no limit. Swap is limited too where the kernel counts it */
    int64_t cpu_milli;    /* 0: no limit */
    const dev_t *closed; /* character devices that can't be opened in it, where can_close says so */
    uint32_t n_closed;
    bool one_by_one; /* out of memory the kernel ends one process of it, not all */
} stk_cgroup_limits;

int stk_cgroup_new(stk_cgroups *groups, const char *name, const stk_cgroup_limits *limits,
                   stk_cgroup *ret, stk_err *err);
/* Devices can be closed to a group: by v1's controller `devices`, ours to write, or on v2 by a BPF
 * program, which takes root. */
bool stk_cgroups_can_close(const stk_cgroups *groups);
bool stk_cgroup_oom(const stk_cgroups *groups,
                    const stk_cgroup *group); /* the kernel killed for memory in it */
int64_t stk_cgroup_peak(const stk_cgroups *groups, const stk_cgroup *group); /* bytes, -1 unknown */
int64_t stk_cgroup_memory(const stk_cgroups *groups,
                          const stk_cgroup *group); /* bytes now, -1 unknown */
int64_t stk_cgroup_cpu_us(const stk_cgroups *groups, const stk_cgroup *group); /* -1 unknown */
void stk_cgroup_kill(const stk_cgroups *groups,
                     const stk_cgroup *group); /* every process in it, until none is left */
void stk_cgroup_remove(stk_cgroups *groups, stk_cgroup *group);

#endif
