/* The gang's life: ranks start together, the first failure ends all, and all may start again. */
#include "host/launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/param.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "host/launch/launch_gang.h"
#include "host/launch/launch_private.h"
#include "host/launch/launch_ranks.h"
#include "host/launch/launch_told.h"
#include "host/runner/runner.h"
#include "sys/clock.h"
#include "sys/file.h"

enum { EVENTS = 64, LEFTOVER_MS = 200, FLUSH_MS = 3000, LAUNCH_AGAIN = 75 /* EX_TEMPFAIL */ };

int64_t stk_launch_now_ms(void)
{
    return stk_clock_mono_ms(&stk_clock_real);
}

int64_t stk_launch_now_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int stk_launch_watch(stk_gang *g, int fd, uint32_t events, launch_event kind, uint32_t i)
{
    struct epoll_event e = {.events = events, .data.u64 = (uint64_t)kind << 32 | i};
    return epoll_ctl(g->epoll, EPOLL_CTL_ADD, fd, &e);
}

uint32_t stk_launch_number(const stk_gang *g, uint32_t rank)
{
    return rank == g->config->ranks ? stk_launch_nodes_first(g) : g->n_before + rank;
}

void stk_launch_unwatch(stk_gang *g, int fd)
{
    (void)epoll_ctl(g->epoll, EPOLL_CTL_DEL, fd, NULL);
}

void stk_launch_say(stk_gang *g, const char *fmt, ...)
{
    char text[1400];
    int n = snprintf(text, sizeof text, "stoker launch: ");
    va_list args;
    va_start(args, fmt);
    int more = vsnprintf(text + n, sizeof text - (size_t)n, fmt, args);
    va_end(args);
    n += MAX(more, 0);
    stk_launch_view_line(g, text, MIN((size_t)n, sizeof text - 1));
}

/* It has ended by itself, and we haven't looked yet. */
static bool is_dead(const launch_rank *r)
{
    struct pollfd p = {.fd = r->pidfd, .events = POLLIN};
    return r->pidfd >= 0 && poll(&p, 1, 0) == 1;
}

void stk_launch_signal(stk_gang *g, int number)
{
    for (uint32_t i = 0; i < g->n; i++) {
        launch_rank *r = &g->ranks[i];
        if (r->state != RANK_RUNNING || (g->ending == END_FAILED && is_dead(r))) {
            continue; /* one that is starting is ended as soon as it runs */
        }
        r->was_ended = true;
        if (kill(-r->pid, number) < 0) { /* it has made no session of its own yet */
            (void)kill(r->pid, number);
        }
        (void)kill(-r->pid, SIGCONT);
    }
}

/* --- what happens --- */

/* The first rank to end has saved and wants to be run again by who preempted it: the engine, a
 * batch system, not us at the same place. */
static bool is_preempted(const stk_gang *g)
{
    if (g->ending != END_FAILED || g->first < 0) {
        return false;
    }
    int status = g->ranks[g->first].status;
    return status >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == LAUNCH_AGAIN;
}

bool stk_launch_has_result(const stk_gang *g, uint32_t rank)
{
    char path[PATH_MAX];
    if (!g->config->is_python || g->config->dir == NULL) {
        return true;
    }
    return access(stk_launch_path(g, rank, "result.json", path), F_OK) == 0;
}

const char *stk_launch_path(const stk_gang *g, uint32_t rank, const char *name, char ret[PATH_MAX])
{
    (void)snprintf(ret, PATH_MAX, "%s/rank-%u/%s", g->config->dir, stk_launch_number(g, rank),
                   name);
    return ret;
}

void stk_launch_end_all(stk_gang *g, end_cause cause, int number)
{
    g->ending = cause;
    g->n_others = g->n_live;
    for (uint32_t i = 0; i < g->n; i++) { /* at once, not because of the first */
        launch_rank *r = &g->ranks[i];
        r->failed = r->failed || r->fell > 0;
        g->n_others -= r->state == RANK_RUNNING && (r->fell > 0 || is_dead(r));
    }
    g->preempted = g->preempted || cause == END_SIGNAL || is_preempted(g);
    if (!g->preempted) {
        stk_launch_line_tell_why(g);
    }
    int64_t grace = g->config->grace_ms;
    if (cause == END_SIGNAL && g->config->notice_ms > grace) {
        grace = g->config->notice_ms;
    }
    if (g->number == SIGUSR2) {
        grace = 0; /* memory is short */
    }
    g->kill_ms = stk_launch_now_ms() + grace;
    stk_launch_signal(g, grace > 0 ? number : SIGKILL);
    stk_launch_nodes_tell(g);
}

/* The rank's pidfd and its server's word may come in either order, also in one turn. */
static void note_death(const stk_gang *g, launch_rank *r)
{
    if (r->died_us < 0 && g->late_us >= 0) {
        int64_t since_us = g->awake_us - g->late_us;
        r->died_us = MAX(since_us, r->born_us);
    }
}

void stk_launch_ended(stk_gang *g, uint32_t rank, int status)
{
    launch_rank *r = &g->ranks[rank];
    note_death(g, r);
    stk_launch_line_read(g); /* what it, or another one, said before */
    r->state = RANK_ENDED;
    r->status = status;
    r->end_ms = stk_clock_anchored_ms(&g->clock);
    g->n_live--;
    stk_launch_line_ended(g);
    if (!r->was_ended && (r->status != 0 || !stk_launch_has_result(g, rank))) {
        r->failed = true;
        if (g->ending == END_NOT) {
            g->first = stk_launch_line_first(g);
            if (g->first < 0) {
                g->first = (int32_t)rank;
            }
            g->noticed_us = -1;
            if (r->died_us >= 0) {
                g->noticed_us = stk_launch_now_us() - r->died_us;
            }
            stk_launch_end_all(g, END_FAILED, SIGTERM);
        }
    }
}

/* The zombie stays until the attempt is over: as long as it does, its number is nobody else's, and
 * what it left behind can be ended by it. */
static void on_exit_event(stk_gang *g, uint32_t rank)
{
    launch_rank *r = &g->ranks[rank];
    siginfo_t info = {0};
    note_death(g, r);
    if (r->by_server) { /* which tells how it ended */
        stk_launch_unwatch(g, r->pidfd);
        return;
    }
    if (r->state != RANK_RUNNING ||
        waitid(P_PID, (id_t)r->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0) {
        return;
    }
    stk_launch_unwatch(g, r->pidfd);
    bool exited = info.si_code == CLD_EXITED;
    stk_launch_ended(g, rank, exited ? info.si_status << 8 : info.si_status & 0x7f);
}

/* The engine says that the step is past its memory limit: as the kernel does, we end the largest.
 */
static void end_largest(stk_gang *g)
{
    stk_proc_usage usages[STK_LAUNCH_MAX_RANKS];
    pid_t pids[STK_LAUNCH_MAX_RANKS];
    int32_t largest = -1;
    for (uint32_t i = 0; i < g->n; i++) {
        pids[i] = g->ranks[i].state == RANK_RUNNING ? g->ranks[i].pid : -1;
        usages[i] = (stk_proc_usage){.rss_bytes = -1};
    }
    (void)stk_proc_sessions(pids, g->n, usages);
    for (uint32_t i = 0; i < g->n; i++) {
        if (pids[i] > 0 && (largest < 0 || usages[i].rss_bytes > usages[largest].rss_bytes)) {
            largest = (int32_t)i;
        }
    }
    if (largest < 0) {
        stk_launch_end_all(g, END_SIGNAL, SIGKILL);
    } else if (kill(-pids[largest], SIGKILL) < 0) {
        (void)kill(pids[largest], SIGKILL);
    }
}

static void on_gang_signal(stk_gang *g)
{
    struct signalfd_siginfo info;
    while (read(g->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        int number = (int)info.ssi_signo;
        if (g->number != 0) { /* again: at once */
            g->hurry = true;
            stk_launch_signal(g, SIGKILL);
            continue;
        }
        g->number = number;
        if (number == SIGUSR2 && g->ending == END_NOT) {
            end_largest(g);
        } else if (g->ending == END_NOT) {
            stk_launch_end_all(g, END_SIGNAL, number);
        }
    }
}

static void on_gang_event(stk_gang *g, const struct epoll_event *e)
{
    uint32_t i = (uint32_t)e->data.u64;
    switch ((launch_event)(e->data.u64 >> 32)) {
    case LAUNCH_EV_SIGNAL:
        on_gang_signal(g);
        break;
    case LAUNCH_EV_START: /* was looked at first */
        break;
    case LAUNCH_EV_EXIT:
        on_exit_event(g, i);
        break;
    case LAUNCH_EV_READ:
        stk_launch_stream_read(g, i);
        break;
    case LAUNCH_EV_WRITE:
        stk_launch_sink_write(g, i);
        break;
    case LAUNCH_EV_SERVER:
        stk_launch_server_read(g);
        break;
    case LAUNCH_EV_LINE:
        stk_launch_line_read(g);
        break;
    case LAUNCH_EV_LISTEN:
    case LAUNCH_EV_PEER:
    case LAUNCH_EV_HOST:
    case LAUNCH_EV_LEASH:
        stk_launch_nodes_event(g, (launch_event)(e->data.u64 >> 32), i);
        break;
    }
}

static int timeout_of(const stk_gang *g, int64_t now)
{
    int64_t due = g->ending == END_NOT ? g->hang.due_ms : g->kill_ms;
    if (due < 0 || due == INT64_MAX) {
        return -1;
    }
    return (int)MIN(MAX(due - now, 0), 60000);
}

static void on_time(stk_gang *g)
{
    int64_t now = stk_launch_now_ms();
    if (g->ending != END_NOT && g->kill_ms >= 0 && now >= g->kill_ms) {
        g->kill_ms = INT64_MAX;
        stk_launch_signal(g, SIGKILL);
        stk_launch_server_give_up(g);
    } else if (g->ending == END_NOT && now >= g->hang.due_ms && stk_launch_hang_look(g, now)) {
        g->noticed_us = g->hang.still_ms * 1000;
        stk_launch_end_all(g, END_HANG, SIGTERM);
    }
}

/* How long we were ready to run, and others ran; -1 unknown. */
static int64_t run_delay_us(const stk_gang *g)
{
    char text[96];
    long long ran = 0;
    long long waited = 0;
    ssize_t n = pread(g->schedstat, text, sizeof text - 1, 0);
    text[MAX(n, 0)] = '\0';
    return sscanf(text, "%lld %lld", &ran, &waited) == 2 && ran > 0 ? waited / 1000 : -1;
}

/* epoll_wait; and how long ago what it tells of happened, at most: since the last one we were busy,
 * and when it woke us we had to wait for a CPU. */
static int wait_for_events(stk_gang *g, struct epoll_event *events, int timeout)
{
    int64_t before = run_delay_us(g);
    int64_t asleep = stk_launch_now_us();
    int n = epoll_wait(g->epoll, events, EVENTS, timeout);
    int sys = errno;
    int64_t after = run_delay_us(g);
    int64_t awake = stk_launch_now_us();
    int64_t delay = MIN(after - before, awake - asleep);
    g->late_us = -1;
    if (before >= 0 && after >= 0) {
        g->late_us = asleep - g->awake_us + delay;
    }
    g->awake_us = awake;
    errno = sys;
    return n;
}

int stk_launch_turn(stk_gang *g, int64_t until_ms, stk_err *err)
{
    struct epoll_event events[EVENTS];
    int64_t now = stk_launch_now_ms();
    int timeout = timeout_of(g, now);
    if (until_ms >= 0 && (timeout < 0 || until_ms - now < timeout)) {
        timeout = (int)MIN(MAX(until_ms - now, 0), INT_MAX);
    }
    int n = wait_for_events(g, events, timeout);
    if (n < 0 && errno != EINTR) {
        return stk_err_sys(err, STK_E_SYS, errno, "waiting for %u ranks", g->n_live);
    }
    for (int i = 0; i < n; i++) { /* before the death that it explains */
        if (events[i].data.u64 >> 32 == LAUNCH_EV_START && stk_launch_start_finish(g, err) < 0) {
            return err->code;
        }
    }
    for (int pass = 0; pass < 2; pass++) { /* deaths first: output can be a flood */
        for (int i = 0; i < n; i++) {
            uint64_t kind = events[i].data.u64 >> 32;
            bool dead = kind == LAUNCH_EV_EXIT || kind == LAUNCH_EV_SERVER;
            if (dead == (pass == 0)) {
                on_gang_event(g, &events[i]);
            }
        }
    }
    on_time(g);
    return 0;
}

static int wait_for_all(stk_gang *g, stk_err *err)
{
    while (g->n_live > 0) {
        STK_TRY(stk_launch_turn(g, -1, err));
    }
    return 0;
}

/* --- an attempt --- */

/* Nothing of the attempt's runs after this: whatever ranks left in their sessions ends too. */
static void clean_up(stk_gang *g)
{
    pid_t sessions[STK_LAUNCH_MAX_RANKS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        launch_rank *r = &g->ranks[i];
        bool reaped = r->by_server && r->state == RANK_ENDED; /* its number may be another's */
        if (r->pid > 0 && !reaped) {
            (void)kill(-r->pid, SIGKILL);
            sessions[n++] = r->pid;
        }
    }
    if (g->ending != END_NOT) { /* those that made a group of their own */
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
        r->why[0] = '\0';
        r->n_tail = 0;
        r->tail[0] = '\0';
        r->pulse = (launch_pulse){.issued = -1};
        r->streams[0].fd = r->streams[0].log = r->streams[1].fd = r->streams[1].log = -1;
    }
}

/* An earlier attempt's. */
static void forget_results(stk_gang *g)
{
    char path[PATH_MAX];
    for (uint32_t i = 0; i < g->n; i++) {
        if (g->config->is_python && g->config->dir != NULL) {
            (void)unlink(stk_launch_path(g, i, "result.json", path));
            stk_launch_pulse_forget(g, i);
        }
        stk_launch_line_forget_why(g, i);
    }
}

/* Only now: ranks die with us by themselves, and what they may leave takes longer to come about
 * than this, while everything before their start makes them late. */
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

/* All that is needed before ranks start: their line to us, the other nodes, a port. */
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

/* 0 also when the gang failed: g->ending says so. */
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

/* What the next attempt starts with: ranks that failed by themselves are left out where the user
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
    if (g->nodes != NULL && g->config->node > 0) { /* the leader decides */
        uint32_t again = ranks_again(g);
        stk_launch_devices_leave_out(g, again);
        g->n = again;
        g->restart++;
        return stk_launch_nodes_verdict(g);
    }
    bool failed = (g->ending == END_FAILED && !g->preempted) || g->ending == END_HANG;
    if (!failed || g->number != 0 || g->restart >= g->config->max_restarts) {
        return false;
    }
    uint32_t n = ranks_again(g);
    stk_launch_devices_leave_out(g, n);
    g->restart++;
    stk_launch_say(g, "%s; restart %u of %u with %u rank%s%s", g->text, g->restart,
                   g->config->max_restarts, n, stk_text_plural(n),
                   g->nodes != NULL ? " on this node" : "");
    g->n = n;
    if (g->nodes != NULL) {
        stk_launch_nodes_again(g);
    }
    return true;
}

/* --- the whole --- */

static void find_inherited(stk_gang *g)
{
    if (g->config->server_fd >= 0) { /* ours alone */
        (void)fcntl(g->config->server_fd, F_SETFD, FD_CLOEXEC);
    }
    g->n_inherited = stk_sys_inherited(g->inherited, LAUNCH_INHERITED);
}

/* What is ignored (nohup, a background job) stays so. */
static int open_signals(stk_gang *g, sigset_t *ret_before, stk_err *err)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction was;
        if (sigaction(numbers[i], NULL, &was) == 0 && was.sa_handler != SIG_IGN) {
            sigaddset(&set, numbers[i]);
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

/* Five files a rank: a shell's usual 1024 are for 200 ranks. */
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
    STK_TRY(open_signals(g, ret_before, err));
    STK_TRY(stk_launch_view_open(g, err));
    STK_TRY(stk_launch_server_open(g, err));
    return g->config->nodes < 2 ? 0 : stk_launch_nodes_open(g, err);
}

static void close_gang(stk_gang *g, const sigset_t *before)
{
    stk_launch_nodes_free(g);
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
        return; /* each saved what it had */
    }
    int status = -1;
    (void)snprintf(end->text, sizeof end->text, "%s", g->text);
    if (g->first >= 0) {
        status = g->ranks[g->first].status;
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
    if (g->config->node > 0) {
        return 0; /* the leader knows of all */
    }
    if (g->config->dir != NULL) {
        char path[PATH_MAX];
        (void)snprintf(path, sizeof path, "%s/gang.json", g->config->dir);
        STK_TRY(stk_file_write_atomic(path, text.data, text.len, 0644, err));
    }
    return g->config->is_task ? stk_launch_result(g, end, err) : 0;
}

int stk_launch_run(const stk_launch_config *config, stk_buf *summary, stk_launch_end *ret_end,
                   stk_err *err)
{
    stk_gang g = {.config = config,
                  .n = config->ranks,
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
        stk_launch_nodes_close(&g, ret_end);
        rc = write_files(&g, ret_end, summary, err);
    } else {
        (void)snprintf(never.text, sizeof never.text, "%s",
                       stk_err_format(err, text, (int)sizeof text));
        stk_launch_nodes_close(&g, &never);
        if (config->is_task && config->node == 0) { /* the step's error, not our exit status */
            g.first = -1;
            (void)stk_launch_result(&g, &never, NULL);
        }
    }
    close_gang(&g, &before);
    return rc;
}
