/* Starts ranks through a fork server (docs/formats/server-protocol.md): they are forks of a process
 * that has everything imported. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/param.h>
#include <sys/socket.h>

#include "base/json.h"
#include "base/text.h"
#include "host/launch/launch_private.h"
#include "host/launch/launch_ranks.h"
#include "sys/file.h"

enum { SEND_MS = 10000 };

int stk_launch_server_open(stk_gang *g, stk_err *err)
{
    g->wire.fd = g->config->server_fd;
    if (g->wire.fd < 0) {
        return 0;
    }
    if (fcntl(g->wire.fd, F_SETFD, FD_CLOEXEC) < 0 ||
        stk_launch_watch(g, g->wire.fd, EPOLLIN, LAUNCH_EV_SERVER, 0) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "fork server on descriptor %d", g->wire.fd);
    }
    return 0;
}

/* The server ends when it sees the end of the socket. */
void stk_launch_server_close(stk_gang *g)
{
    if (g->wire.fd >= 0) {
        stk_launch_unwatch(g, g->wire.fd);
    }
    stk_file_close(&g->wire.fd);
    stk_wire_done(&g->wire);
}

/* --- messages to the server --- */

static int send_all(stk_gang *g, const stk_buf *message, const int fds[2], stk_err *err)
{
    int all[2 + LINE_FDS] = {fds[0], fds[1]};
    uint32_t n_fds = g->line.from < 0 ? 2 : 2 + LINE_FDS;
    memcpy(all + 2, g->line.fds, sizeof g->line.fds);
    int64_t end = stk_launch_now_ms() + SEND_MS;
    for (size_t sent = 0; sent < message->len;) {
        ssize_t n = stk_wire_send(g->wire.fd, message, sent, all, n_fds);
        if (n < 0 && errno != EAGAIN && errno != ETOOMANYREFS) {
            return stk_err_sys(err, STK_E_SYS, errno, "asking the fork server for a rank");
        }
        sent += (size_t)MAX(n, 0);
        struct pollfd p = {.fd = g->wire.fd, .events = POLLOUT};
        if (n < 0 && (poll(&p, 1, 20) < 0 || stk_launch_now_ms() > end)) {
            return stk_err_set(err, STK_E_PROTOCOL, "the fork server accepts no message");
        }
    }
    return 0;
}

int stk_launch_server_start(stk_gang *g, launch_env *env, const cpu_set_t *cpus, uint32_t rank,
                            stk_err *err)
{
    STK_BUF_AUTO message = STK_BUF_INIT(STK_LIMIT_MESSAGE_BYTES);
    uint32_t numbers[CPU_SETSIZE], n_cpus = 0;
    for (uint32_t i = 0; cpus != NULL && i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, cpus)) {
            numbers[n_cpus++] = i;
        }
    }
    static const char *const secret[] = {"STOKER_GANG_KEY", "STOKER_GANG_NODE", "STOKER_GANG_RDZV",
                                         "STOKER_GANG_LEASH", NULL};
    LAUNCH_PAIR_AUTO theirs = {{-1, -1}};
    STK_TRY(stk_launch_streams_open(g, rank, theirs.fds, err));
    STK_TRY(stk_launch_env_rank(g, env, rank, err));
    const char *next = env->all[env->n_ours]; /* the server inherits the rest */
    env->all[env->n_ours] = NULL;
    stk_server_spawn spawn = {.id = g->restart * STK_LAUNCH_MAX_RANKS + rank,
                              .dir = g->config->dir,
                              .env = env->ours,
                              .unset = secret,
                              .cpus = numbers,
                              .n_cpus = n_cpus,
                              .threads = n_cpus};
    int rc = stk_server_spawn_message(&spawn, &message, err);
    env->all[env->n_ours] = next;
    STK_TRY(rc);
    STK_TRY(send_all(g, &message, theirs.fds, err));
    g->ranks[rank].state = RANK_STARTING;
    g->ranks[rank].by_server = true;
    g->n_live++;
    return 0;
}

static void fail_start(stk_gang *g, uint32_t rank, const char *why)
{
    (void)snprintf(g->ranks[rank].why, sizeof g->ranks[rank].why, "%.400s",
                   stk_text_or(why, "it could not be started"));
    stk_launch_ended(g, rank, -1);
}

static void on_rank_started(stk_gang *g, uint32_t rank, const stk_json *m)
{
    launch_rank *r = &g->ranks[rank];
    stk_err err = {0};
    STK_FD_AUTO claimed = stk_wire_claim(&g->wire);
    int64_t pid = stk_json_get_whole(m, "pid", -1);
    if (pid <= 1 || pid > INT_MAX || r->state != RANK_STARTING) {
        fail_start(g, rank, "");
        return;
    }
    int pidfd = claimed;
    claimed = -1; /* now owned by the rank, also on an error */
    if (stk_launch_started(g, rank, (pid_t)pid, pidfd, &err) < 0) {
        fail_start(g, rank, err.text);
    } else if (g->ending != END_NOT) { /* another rank has failed since we requested this one */
        r->was_ended = true;
        (void)kill(r->pid, SIGKILL);
    }
}

/* The server can't fork safely: starts this rank, and all ranks of a restart, as fresh
 * interpreters. */
static void on_unfit(stk_gang *g, uint32_t rank, const stk_json *m)
{
    const char *why = stk_json_get_text(m, "why");
    stk_err err = {0};
    if (g->config->argv == NULL || g->config->argv[0] == NULL || g->ending != END_NOT) {
        fail_start(g, rank, why);
        return;
    }
    if (!g->unfit) {
        stk_launch_say(g, "ranks run in fresh interpreters: %s",
                       stk_text_or(why, "this process can't be forked safely"));
    }
    g->unfit = true;
    stk_launch_streams_drain(g, rank);
    g->ranks[rank].by_server = false;
    g->ranks[rank].state = RANK_NONE;
    g->n_live--;
    if (stk_launch_start_rank(g, rank, &err) < 0) {
        g->ranks[rank].state = RANK_STARTING;
        g->ranks[rank].by_server = true;
        g->n_live++;
        fail_start(g, rank, err.text);
    }
}

static void on_message(stk_gang *g, const char *data, size_t len)
{
    static const stk_json_limits limits = {STK_LIMIT_MESSAGE_BYTES, 1000000, 16};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_json m;
    if (arena == NULL || stk_json_parse(data, len, "message", &limits, arena, &m, NULL) < 0) {
        return;
    }
    const stk_json *op = stk_json_get(&m, "op");
    int64_t id = stk_json_get_whole(&m, "id", -1);
    bool ours =
        id >= 0 && id / STK_LAUNCH_MAX_RANKS == g->restart && id % STK_LAUNCH_MAX_RANKS < g->n;
    uint32_t rank = ours ? (uint32_t)(id % STK_LAUNCH_MAX_RANKS) : 0;
    bool live = ours &&
                (g->ranks[rank].state == RANK_STARTING || g->ranks[rank].state == RANK_RUNNING) &&
                g->ranks[rank].by_server;
    if (!live) { /* "hello", or about a rank of an earlier attempt */
        STK_FD_AUTO fd = stk_json_is(op, "started") ? stk_wire_claim(&g->wire) : -1;
        return;
    }
    if (stk_json_is(op, "started")) {
        on_rank_started(g, rank, &m);
    } else if (stk_json_is(op, "ended")) {
        stk_launch_unwatch(g, g->ranks[rank].pidfd);
        stk_launch_ended(g, rank, (int)stk_json_get_whole(&m, "status", -1));
    } else if (stk_json_is(op, "failed")) {
        fail_start(g, rank, stk_json_get_text(&m, "error"));
    } else if (stk_json_is(op, "unfit")) {
        on_unfit(g, rank, &m);
    } else if (stk_json_is(op, "note")) {
        const char *text = stk_json_text(stk_json_get(&m, "text"));
        stk_launch_say(g, "rank %u: %s", stk_launch_number(g, rank), stk_text_or(text, ""));
    }
}

/* The server has died. Its children die with it (PDEATHSIG), and their status is lost. */
static void on_gone(stk_gang *g)
{
    stk_launch_server_close(g);
    for (uint32_t i = 0; i < g->n; i++) {
        launch_rank *r = &g->ranks[i];
        if (r->by_server && (r->state == RANK_STARTING || r->state == RANK_RUNNING)) {
            if (r->state == RANK_RUNNING) {
                (void)kill(-r->pid, SIGKILL);
            }
            fail_start(g, i, "its fork server ended, and the rank with it");
        }
    }
}

void stk_launch_server_read(stk_gang *g)
{
    for (;;) {
        ssize_t n = stk_wire_read(&g->wire);
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        const char *data;
        size_t len;
        int rc = 0;
        while (n > 0 && (rc = stk_wire_next(&g->wire, &data, &len)) > 0) {
            on_message(g, data, len);
        }
        if (n <= 0 || rc < 0) {
            on_gone(g);
            return;
        }
    }
}

void stk_launch_server_give_up(stk_gang *g)
{
    bool waits = false;
    for (uint32_t i = 0; i < g->n; i++) {
        waits = waits || g->ranks[i].state == RANK_STARTING;
    }
    if (waits && g->wire.fd >= 0) {
        on_gone(g);
    }
}
