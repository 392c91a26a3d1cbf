/* Starting a program: vfork + exec with everything set in the child, so that a big engine pays
 * nothing for its size. */
#ifndef STK_SYS_SPAWN_H
#define STK_SYS_SPAWN_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/err.h"

/* Programs that are started side by side: each a fork, none waits for the exec of the one before,
 * which on a busy machine takes a turn of the CPU's. For callers with little memory. */
typedef struct stk_spawn_batch {
    int from, to; /* a pipe: what failed; at its end all have become their programs */
} stk_spawn_batch;

typedef struct stk_spawn {
    const char *const
        *argv; /* NULL-terminated; argv[0] is searched in the PATH of `env` unless it has a slash */
    const char *const *env;             /* NULL-terminated "K=V" */
    const char *cwd;                    /* or NULL */
    int stdin_fd, stdout_fd, stderr_fd; /* -1: /dev/null */
    const int *keep_fds;                /* stay open in the child under the same numbers */
    uint32_t n_keep_fds;
    const char *const *cgroup_procs; /* files that "0" is written to */
    uint32_t n_cgroup_procs;
    const cpu_set_t *cpus;        /* or NULL */
    const struct rlimit *n_files; /* RLIMIT_NOFILE, or NULL: ours */
    const stk_spawn_batch *batch; /* one of these: what fails after the fork is told at its end */
    const char *const *readonly;  /* mounted read-only for it and its children: what, and on what,
                                     in turn; NULL-terminated, or NULL. For who may mount */
    bool die_with_parent;         /* PR_SET_PDEATHSIG SIGKILL */
    bool new_session;             /* setsid */
    bool no_new_privs;
} stk_spawn;

/* Descriptors that we were handed, and that a program we become would have: all but CLOEXEC ones
 * and 0 to 2. Returns how many were written. */
uint32_t stk_sys_inherited(int *ret_fds, uint32_t n_max);

/* ret_pidfd may be NULL. A failed exec is reported here (STK_E_SYS with the program's name), not as
 * an exit status. */
int stk_sys_spawn(const stk_spawn *spawn, pid_t *ret_pid, int *ret_pidfd, stk_err *err);
int stk_sys_spawn_begin(stk_spawn_batch *ret_batch, stk_err *err);
/* Waits for every exec; the first failure, in the words of `spawn`, which is like them all. */
int stk_sys_spawn_end(stk_spawn_batch *batch, const stk_spawn *spawn, stk_err *err);

#endif
