/* Starts ranks: by vfork and exec, or through a fork server. Each rank has a session and dies with
 * the launcher. */
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "host/launch/launch_private.h"
#include "host/launch/launch_ranks.h"
#include "sys/clock.h"
#include "sys/file.h"

enum { FILES_A_RANK = 5 }; /* pipes, logs, a process descriptor */

int stk_launch_started(stk_gang *g, uint32_t rank, pid_t pid, int pidfd, stk_err *err)
{
    launch_rank *r = &g->ranks[rank];
    g->n_live += r->state == RANK_NONE; /* STARTING counts already */
    r->state = RANK_RUNNING;
    r->pid = pid;
    r->pidfd = pidfd;
    r->status = -1;
    r->start_ms = stk_clock_anchored_ms(&g->clock);
    r->end_ms = -1;
    if (g->guard != NULL) {
        STK_TRY(stk_guard_add(g->guard, pid, &r->slot, err));
    }
    bool told = r->by_server && pidfd < 0;
    if (!told && stk_launch_watch(g, pidfd, EPOLLIN, LAUNCH_EV_EXIT, rank) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "watching rank %u", rank);
    }
    return 0;
}

int stk_launch_start_rank(stk_gang *g, uint32_t rank, stk_err *err)
{
    LAUNCH_PAIR_AUTO theirs = {{-1, -1}};
    pid_t pid = 0;
    int pidfd = -1;
    STK_TRY(stk_launch_streams_open(g, rank, theirs.fds, err));
    STK_TRY(stk_launch_env_rank(g, &g->env, rank, err));
    stk_spawn spawn = {.argv = g->config->argv,
                       .env = g->env.all,
                       .stdin_fd = -1,
                       .stdout_fd = theirs.fds[0],
                       .stderr_fd = theirs.fds[1],
                       .n_files = &g->n_files,
                       .keep_fds = g->inherited,
                       .n_keep_fds = g->n_inherited,
                       .die_with_parent = true,
                       .new_session = true};
    if (g->line.from >= 0) {
        spawn.n_keep_fds += LINE_FDS;
    }
    if (g->batch.to >= 0) {
        spawn.batch = &g->batch;
    }
    if (g->cpus != NULL) {
        spawn.cpus = &g->cpus[rank];
    }
    g->ranks[rank].born_us = stk_launch_now_us();
    STK_TRY(stk_sys_spawn(&spawn, &pid, &pidfd, err));
    return stk_launch_started(g, rank, pid, pidfd, err);
}

int stk_launch_start(stk_gang *g, stk_err *err)
{
    cpu_set_t *cpus = stk_arena_array(g->arena, g->n, sizeof *cpus);
    if (cpus == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "starting %u ranks", g->n);
    }
    g->cpus = NULL;
    if (!g->config->no_bind && stk_launch_cpus(g, cpus)) {
        g->cpus = cpus;
    }
    int rc = stk_launch_env_new(g, &g->env, err);
    bool fork = g->wire.fd >= 0 && !g->unfit;
    if (rc == 0 && !fork && g->n > 1) {
        rc = stk_sys_spawn_begin(&g->batch, err);
    }
    for (uint32_t rank = 0; rank < g->n && rc == 0; rank++) {
        if (fork) {
            const cpu_set_t *own = g->cpus == NULL ? NULL : &g->cpus[rank];
            rc = stk_launch_server_start(g, &g->env, own, rank, err);
        } else {
            rc = stk_launch_start_rank(g, rank, err);
        }
    }
    stk_file_close(&g->batch.to); /* errors arrive as an event; we don't wait here */
    if (rc == 0 && g->batch.from >= 0 &&
        stk_launch_watch(g, g->batch.from, EPOLLIN, LAUNCH_EV_START, 0) < 0) {
        rc = stk_err_sys(err, STK_E_SYS, errno, "watching %u ranks start", g->n);
    }
    if (rc < 0 && err != NULL && err->sys == EMFILE) {
        stk_err_hint(err, "%u ranks need about %u open files; raise the hard limit (ulimit -Hn)",
                     g->n, g->n * FILES_A_RANK + 16);
    }
    return rc;
}

int stk_launch_start_finish(stk_gang *g, stk_err *err)
{
    stk_spawn like = {.argv = g->config->argv, .env = g->env.all};
    stk_launch_unwatch(g, g->batch.from);
    return stk_sys_spawn_end(&g->batch, &like, err);
}
