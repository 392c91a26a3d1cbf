/* Starts a program by vfork + exec. The child sets everything up itself, so the cost doesn't grow
 * with the engine's memory. */
#ifndef STK_SYS_SPAWN_H
#define STK_SYS_SPAWN_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/err.h"

/* Starts programs side by side: each is a fork that does not wait for the previous exec, which on a
 * busy machine takes a turn of the CPU. For callers with little memory. */
typedef struct stk_spawn_batch {
    int from, to; /* a pipe for failures; it ends when all have become their programs */
} stk_spawn_batch;

typedef struct stk_spawn {
    const char *const
        *argv; /* NULL-terminated; argv[0] without a slash is searched in the PATH of `env` */
    const char *const *env;             /* NULL-terminated "K=V" */
    const char *cwd;                    /* or NULL */
    int stdin_fd, stdout_fd, stderr_fd; /* -1: /dev/null */
    const int *keep_fds;                /* stay open in the child under the same numbers */
    uint32_t n_keep_fds;
    const char *const *cgroup_procs; /* files that "0" is written to */
    uint32_t n_cgroup_procs;
    const cpu_set_t *cpus;        /* or NULL */
    const struct rlimit *n_files; /* RLIMIT_NOFILE; NULL: inherit ours */
    const stk_spawn_batch *batch; /* if set, stk_sys_spawn_end reports failures after the fork */
    const char *const
        *readonly;        /* mounted read-only for it and its children: source and target in turn,
                             NULL-terminated, or NULL. The caller must be allowed to mount */
    bool die_with_parent; /* PR_SET_PDEATHSIG SIGKILL */
    bool new_session;     /* setsid */
    bool new_group;       /* setpgid: the terminal's signals don't reach it */
    bool no_new_privs;
} stk_spawn;

/* Descriptors that we inherited and would pass on by exec: all without CLOEXEC except 0 to 2.
 * Returns how many were written. */
uint32_t stk_sys_inherited(int *ret_fds, uint32_t n_max);

/* ret_pidfd may be NULL. Reports a failed exec here (STK_E_SYS with the program's name), not as an
 * exit status. */
int stk_sys_spawn(const stk_spawn *spawn, pid_t *ret_pid, int *ret_pidfd, stk_err *err);
int stk_sys_spawn_begin(stk_spawn_batch *ret_batch, stk_err *err);
/* Waits for every exec. Reports the first failure in terms of `spawn`, which stands for all of
 * them. */
int stk_sys_spawn_end(stk_spawn_batch *batch, const stk_spawn *spawn, stk_err *err);

#endif
