/* The gang's life cycle: ranks start together and end together, and all may start again. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/param.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "host/launch/launch.h"
#include "host/launch/launch_gang.h"
#include "host/launch/launch_private.h"
#include "host/launch/launch_ranks.h"
#include "host/launch/launch_told.h"
#include "sys/clock.h"
#include "sys/file.h"
#include "sys/proc.h"

enum { LEFTOVER_MS = 200, FLUSH_MS = 3000 };

/* --- an attempt --- */

static int wait_for_all(stk_gang *g, stk_err *err)
{
    while (g->n_live > 0) {
        STK_TRY(stk_launch_turn(g, -1, err));
    }
    return 0;
}

/* After this no process of the attempt runs: also kills what ranks left in their sessions. */
static void clean_up(stk_gang *g)
{
    pid_t sessions[STK_LAUNCH_MAX_RANKS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        launch_rank *r = &g->ranks[i];
        bool reaped = r->by_server && r->state == RANK_ENDED; /* its pid may be reused */
        if (r->pid > 0 && !reaped) {
            (void)kill(-r->pid, SIGKILL);
            sessions[n++] = r->pid;
        }
    }
    if (g->ending != END_NOT) { /* kills processes that changed their group */
        (void)stk_proc_kill_sessions(sessions, n, NULL, LEFTOVER_MS);
    }
    for (uint32_t i = 0; i < g->n; i++) {
        launch_rank *r = &g->ranks[i];
        if (r->state == RANK_NONE) {
            continue;
        }
        if (r->state == RANK_RUNNING) { /* the start of another one failed */
            (void)kill(r->pid, SIGKILL);
        }
        while (!r->by_server && waitpid(r->pid, &r->status, 0) < 0 && errno == EINTR) {
        }
        r->state = RANK_ENDED;
        if (g->guard != NULL) {
            stk_guard_remove(g->guard, r->slot);
        }
        stk_file_close(&r->pidfd);
    }
    for (uint32_t i = 0; i < g->n; i++) {
        stk_launch_streams_drain(g, i);
    }
    stk_launch_view_flush(g, FLUSH_MS);
    g->n_live = 0;
}

static void reset_ranks(stk_gang *g)
{
    for (uint32_t i = 0; i < g->n; i++) {
        launch_rank *r = &g->ranks[i];
        r->state = RANK_NONE;
        r->was_ended = r->failed = false;
        r->status = r->pidfd = -1;
        r->start_ms = r->end_ms = r->died_us = -1;
        r->pid = 0;
        r->born_us = 0;
        r->fell = r->came = 0;
        r->silent = r->silent_in = false;
        r->slot = UINT32_MAX;
        r->by_server = false;
        r->why[0] = r->error[0] = '\0';
        r->n_tail = 0;
        r->tail[0] = '\0';
        r->pulse = (launch_pulse){.issued = -1};
        r->streams[0].fd = r->streams[0].log = r->streams[1].fd = r->streams[1].log = -1;
    }
}

/* Removes the results of an earlier attempt. */
static void forget_results(stk_gang *g)
{
    char path[PATH_MAX];
    stk_launch_errors_forget(g);
    for (uint32_t i = 0; i < g->n; i++) {
        if (g->config->is_python && g->config->dir != NULL) {
            (void)unlink(stk_launch_path(g, i, "result.json", path));
            stk_launch_pulse_forget(g, i);
        }
        stk_launch_line_forget_why(g, i);
    }
}

/* Starts the guardian after the ranks, so that it doesn't delay them. Meanwhile the ranks die with
 * us anyway, and they need longer than this to create processes that outlive them. */
static int guard_ranks(stk_gang *g, stk_err *err)
{
    if (g->guard == NULL) {
        STK_TRY(stk_guard_open(NULL, &g->guard, err));
    }
    for (uint32_t i = 0; i < g->n; i++) {
        launch_rank *r = &g->ranks[i];
        if (r->state == RANK_RUNNING && r->slot == UINT32_MAX) {
            STK_TRY(stk_guard_add(g->guard, r->pid, &r->slot, err));
        }
    }
    return 0;
}

/* Prepares what ranks need to start: their line to us, the other nodes, a port. */
static int prepare_attempt(stk_gang *g, stk_err *err)
{
    STK_TRY(stk_launch_line_open(g, err));
    if (g->nodes != NULL) {
        return stk_launch_nodes_meet(g, err);
    }
    return stk_launch_port(g->config->port, &g->port, err);
}

static int run_ranks(stk_gang *g, stk_err *err)
{
    int rc = stk_launch_start(g, err);
    if (g->schedstat < 0) {
        g->schedstat = open("/proc/self/schedstat", O_RDONLY | O_CLOEXEC);
    }
    if (rc == 0) {
        rc = guard_ranks(g, err);
    }
    stk_launch_hang_begin(g);
    if (rc == 0) {
        rc = wait_for_all(g, err);
    }
    stk_launch_hang_end(g);
    return rc;
}

static bool says_why(const stk_gang *g, uint32_t i)
{
    size_t len = 0, n_last = 0;
    const char *last = NULL;
    return stk_launch_has_result(g, i) ||
           stk_launch_traceback(g->ranks[i].tail, &len, &last, &n_last) != NULL;
}

/* A rank may have told that it failed, but been ended before it could say why. It counts as ended
 * then, and the cause is the first one that said it: the rank whose end ended the others has. */
static void choose_first(stk_gang *g)
{
    int32_t cause = -1;
    for (uint32_t i = 0; i < g->n && g->ending == END_FAILED; i++) {
        launch_rank *r = &g->ranks[i];
        if (r->failed && r->was_ended && !says_why(g, i)) {
            r->failed = false;
            g->n_others++;
        }
        /* one that didn't tell, number 0, comes last */
        if (r->failed && (cause < 0 || r->fell - 1 < g->ranks[cause].fell - 1)) {
            cause = (int32_t)i;
        }
    }
    if (cause >= 0 && g->first >= 0 && (uint32_t)g->first < g->n && !g->ranks[g->first].failed) {
        g->first = cause;
    }
}

/* Returns 0 even if the gang failed: see g->ending. */
static int run_attempt(stk_gang *g, stk_err *err)
{
    stk_arena_reset(g->arena);
    g->ending = END_NOT;
    g->first = -1;
    g->n_others = 0;
    g->preempted = false;
    g->noticed_us = g->silent_us = -1;
    g->awake_us = stk_launch_now_us();
    g->kill_ms = -1;
    g->text[0] = '\0';
    g->world = g->n;
    g->n_before = 0;
    g->hang.due_ms = INT64_MAX;
    reset_ranks(g);
    int rc = prepare_attempt(g, err);
    forget_results(g);
    if (rc == 0 && g->ending == END_NOT) {
        rc = run_ranks(g, err);
    }
    if (rc < 0 && g->ending == END_NOT) {
        g->ending = END_FAILED;
    }
    clean_up(g);
    choose_first(g);
    stk_launch_errors_read(g);
    stk_launch_unwatch(g, g->batch.from);
    stk_file_close(&g->batch.from);
    stk_launch_port_close(&g->port);
    stk_launch_line_close(g);
    if (g->nodes != NULL && rc == 0) {
        stk_launch_nodes_finish(g, err);
    }
    stk_launch_blame(g);
    stk_launch_remember(g);
    return rc;
}

/* The number of ranks of the next attempt: drops ranks that failed by themselves, if the user
 * allows fewer. */
static uint32_t ranks_again(const stk_gang *g)
{
    uint32_t failed = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        failed += g->ranks[i].failed;
    }
    uint32_t min = g->config->min_ranks;
    if (min == 0 || min > g->n) {
        min = g->n;
    }
    return MAX(g->n - failed, min);
}

static bool try_again(stk_gang *g)
{
    if (g->nodes != NULL && g->me > 0) { /* the leader decides */
        uint32_t again = ranks_again(g);
        stk_launch_devices_leave_out(g, again);
        g->n = again;
        g->restart++;
        return stk_launch_nodes_verdict(g);
    }
    bool failed = (g->ending == END_FAILED && !g->preempted) || g->ending == END_HANG;
    bool changed = g->ending != END_NOT && stk_launch_nodes_changed(g);
    if (g->number != 0 ||
        !(changed || (failed && g->restart - g->n_changes < g->config->max_restarts))) {
        return false;
    }
    uint32_t n = changed ? g->n : ranks_again(g);
    stk_launch_devices_leave_out(g, n);
    g->restart++;
    g->n_changes += changed;
    if (changed) {
        stk_launch_say(g, "%s; all ranks start again", g->text);
    } else {
        stk_launch_say(g, "%s; restart %u of %u with %u rank%s%s", g->text,
                       g->restart - g->n_changes, g->config->max_restarts, n, stk_text_plural(n),
                       stk_text_when(g->nodes != NULL, " on this node"));
    }
    g->n = n;
    if (g->nodes != NULL) {
        stk_launch_nodes_again(g);
    }
    return true;
}

/* --- the whole run --- */

static void find_inherited(stk_gang *g)
{
    if (g->config->server_fd >= 0) { /* only for us */
        (void)fcntl(g->config->server_fd, F_SETFD, FD_CLOEXEC);
    }
    g->n_inherited = stk_sys_inherited(g->inherited, LAUNCH_INHERITED);
}

/* Ignored signals (nohup, a background job) stay ignored. */
static int open_signals(stk_gang *g, sigset_t *ret_before, stk_err *err)
{
    static const int usual[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, 0};
    const int *numbers = g->config->signals == NULL ? usual : g->config->signals;
    sigset_t set;
    sigemptyset(&set);
    for (; *numbers != 0; numbers++) {
        struct sigaction was;
        if (sigaction(*numbers, NULL, &was) == 0 && was.sa_handler != SIG_IGN) {
            sigaddset(&set, *numbers);
        }
    }
    if (g->config->is_task) {
        sigaddset(&set, SIGUSR2);
    }
    (void)sigprocmask(SIG_BLOCK, &set, ret_before);
    (void)signal(SIGPIPE, SIG_IGN);
    g->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (g->signals < 0 || stk_launch_watch(g, g->signals, EPOLLIN, LAUNCH_EV_SIGNAL, 0) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "cannot watch for signals");
    }
    return 0;
}

/* A rank needs five files: the usual limit of 1024 is enough for 200 ranks only. */
static void raise_n_files(stk_gang *g)
{
    (void)getrlimit(RLIMIT_NOFILE, &g->n_files);
    struct rlimit more = {.rlim_cur = g->n_files.rlim_max, .rlim_max = g->n_files.rlim_max};
    (void)setrlimit(RLIMIT_NOFILE, &more);
}

static int open_gang(stk_gang *g, sigset_t *ret_before, stk_err *err)
{
    find_inherited(g);
    raise_n_files(g);
    g->arena = stk_arena_new(0);
    g->ranks = calloc(g->config->ranks + 1, sizeof *g->ranks);
    g->past = STK_BUF_INIT(64 << 20);
    g->stacks = STK_BUF_INIT(16 << 20);
    stk_launch_devices_begin(g);
    if (g->arena == NULL || g->ranks == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "%u ranks", g->config->ranks);
    }
    g->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (g->epoll < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "cannot wait for events");
    }
    if (g->config->dir != NULL) {
        STK_TRY(stk_file_mkdirs(g->config->dir, 0755, err));
    }
    STK_TRY(stk_launch_errors_open(g, err));
    STK_TRY(open_signals(g, ret_before, err));
    STK_TRY(stk_launch_view_open(g, err));
    STK_TRY(stk_launch_server_open(g, err));
    if (g->config->nodes < 2) {
        return 0;
    }
    return stk_launch_nodes_open(g, err);
}

static void close_gang(stk_gang *g, const sigset_t *before)
{
    stk_launch_nodes_free(g);
    stk_launch_errors_close(g);
    stk_guard_close(g->guard);
    stk_launch_server_close(g);
    stk_launch_view_flush(g, FLUSH_MS);
    stk_launch_view_close(g);
    stk_file_close(&g->schedstat);
    stk_file_close(&g->signals);
    stk_file_close(&g->epoll);
    (void)sigprocmask(SIG_SETMASK, before, NULL);
    stk_buf_done(&g->past);
    stk_buf_done(&g->stacks);
    stk_arena_free(g->arena);
    free(g->ranks);
}

static void say_end(const stk_gang *g, stk_launch_end *end)
{
    *end = (stk_launch_end){0};
    if (g->ending == END_NOT) {
        return;
    }
    if (g->ending == END_SIGNAL && stk_launch_nodes_clean(g)) {
        return; /* each rank has saved its state */
    }
    int status = -1;
    (void)snprintf(end->text, sizeof end->text, "%s", g->text);
    if (g->first >= 0) {
        const launch_rank *r = &g->ranks[g->first];
        bool fell = r->was_ended && r->failed; /* by itself, and was ended while it said why */
        status = fell ? W_EXITCODE(1, 0) : r->status;
    }
    end->failure = STK_FAIL_START;
    end->exit_status = 1;
    if (g->ending == END_SIGNAL) {
        end->failure = STK_FAIL_SIGNAL;
        end->exit_status = 128 + g->number;
    } else if (g->ending == END_HANG) {
        end->failure = STK_FAIL_HANG;
    } else if (g->ending == END_LOST) {
        end->failure = STK_FAIL_LOST;
    } else if (status >= 0 && WIFEXITED(status)) {
        end->failure = STK_FAIL_EXIT;
        end->exit_status = MAX(WEXITSTATUS(status), 1);
    } else if (status >= 0) {
        end->failure = STK_FAIL_SIGNAL;
        end->exit_status = 128 + WTERMSIG(status);
    }
}

static int write_files(const stk_gang *g, const stk_launch_end *end, stk_buf *summary, stk_err *err)
{
    STK_BUF_AUTO text = STK_BUF_INIT(64 << 20);
    stk_launch_summary(g, end, &text);
    if (text.failed) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "gang.json");
    }
    if (summary != NULL) {
        (void)stk_buf_add(summary, text.data, text.len);
    }
    if (g->me > 0) {
        return 0; /* the leader writes the summary of all nodes */
    }
    if (g->config->dir != NULL) {
        char path[PATH_MAX];
        (void)snprintf(path, sizeof path, "%s/gang.json", g->config->dir);
        STK_TRY(stk_file_write_atomic(path, text.data, text.len, 0644, err));
    }
    if (!g->config->is_task) {
        return 0;
    }
    return stk_launch_result(g, end, err);
}

int stk_launch_run(const stk_launch_config *config, stk_buf *summary, stk_launch_end *ret_end,
                   stk_err *err)
{
    stk_gang g = {.config = config,
                  .n = config->ranks,
                  .me = config->node,
                  .epoll = -1,
                  .signals = -1,
                  .schedstat = -1,
                  .port = {.fd = -1, .claim = -1},
                  .wire = {.fd = -1},
                  .batch = {.from = -1, .to = -1},
                  .line = LAUNCH_LINE_NONE,
                  .first = -1,
                  .clock = stk_clock_anchor_now()};
    sigset_t before;
    (void)sigprocmask(SIG_SETMASK, NULL, &before);
    int rc = open_gang(&g, &before, err);
    while (rc == 0) {
        rc = run_attempt(&g, err);
        if (rc < 0 || !try_again(&g)) {
            break;
        }
    }
    char text[1000];
    stk_launch_end never = {.exit_status = 1, .failure = STK_FAIL_START};
    if (rc == 0) {
        say_end(&g, ret_end);
        stk_launch_errors_tell(&g, ret_end);
        stk_launch_nodes_close(&g, ret_end);
        rc = write_files(&g, ret_end, summary, err);
    } else {
        (void)snprintf(never.text, sizeof never.text, "%s",
                       stk_err_format(err, text, (int)sizeof text));
        stk_launch_nodes_close(&g, &never);
        if (config->is_task && g.me == 0) { /* the step's error, not our exit status */
            g.first = -1;
            (void)stk_launch_result(&g, &never, NULL);
        }
    }
    close_gang(&g, &before);
    return rc;
}
