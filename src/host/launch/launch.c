/* The events of a running gang: the first failure ends all ranks. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/param.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host/launch/launch_gang.h"
#include "host/launch/launch_private.h"
#include "host/launch/launch_ranks.h"
#include "host/launch/launch_told.h"
#include "sys/clock.h"
#include "sys/proc.h"

enum { EVENTS = 64, LAUNCH_AGAIN = 75 /* EX_TEMPFAIL */ };

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

/* Whether the rank has ended by itself, but we haven't handled that yet. */
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
            continue; /* a starting rank is ended as soon as it runs */
        }
        r->was_ended = true;
        if (kill(-r->pid, number) < 0) { /* it has no process group yet */
            (void)kill(r->pid, number);
        }
        (void)kill(-r->pid, SIGCONT);
    }
}

/* --- events --- */

/* Whether the first rank to end was preempted: it has saved its state, and the engine or batch
 * system that preempted it shall run it again, not we on the same machine. */
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
    for (uint32_t i = 0; i < g->n; i++) { /* ended together with the first */
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
    if (g->number == SIGUSR2 && g->config->is_task) {
        grace = 0; /* memory is short */
    }
    g->kill_ms = stk_launch_now_ms() + grace;
    stk_launch_signal(g, grace > 0 ? number : SIGKILL);
    stk_launch_nodes_tell(g);
}

/* The rank's pidfd and its server's message may arrive in either order, even in one turn. */
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
    stk_launch_line_read(g); /* records that ranks sent before this death */
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

/* The zombie stays until the attempt is over: until then its pid can't be reused, so we can kill
 * what it left behind by its group. */
static void on_exit_event(stk_gang *g, uint32_t rank)
{
    launch_rank *r = &g->ranks[rank];
    siginfo_t info = {0};
    note_death(g, r);
    if (r->by_server) { /* the server will report how it ended */
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

/* The engine signals that the step exceeds its memory limit: like the kernel, we end the largest
 * rank.
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
        if (g->number != 0) { /* the second signal: end at once */
            g->hurry = true;
            stk_launch_signal(g, SIGKILL);
            continue;
        }
        g->number = number;
        if (number == SIGUSR2 && g->config->is_task && g->ending == END_NOT) {
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
    case LAUNCH_EV_START: /* handled before */
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
    if (due < 0 || due > g->live.due_ms) {
        due = g->live.due_ms;
    }
    if (due < 0 || due == INT64_MAX) {
        return -1;
    }
    return (int)MIN(MAX(due - now, 0), 60000);
}

static void on_time(stk_gang *g)
{
    int64_t now = stk_launch_now_ms();
    stk_launch_live_tick(g, now);
    if (g->ending != END_NOT && g->kill_ms >= 0 && now >= g->kill_ms) {
        g->kill_ms = INT64_MAX;
        stk_launch_signal(g, SIGKILL);
        stk_launch_server_give_up(g);
    } else if (g->ending == END_NOT && now >= g->hang.due_ms && stk_launch_hang_look(g, now)) {
        g->noticed_us = g->hang.still_ms * 1000;
        stk_launch_end_all(g, END_HANG, SIGTERM);
    }
}

/* How long we have waited for a CPU while ready to run; -1 unknown. */
static int64_t run_delay_us(const stk_gang *g)
{
    char text[96];
    long long ran = 0;
    long long waited = 0;
    ssize_t n = pread(g->schedstat, text, sizeof text - 1, 0);
    text[MAX(n, 0)] = '\0';
    return sscanf(text, "%lld %lld", &ran, &waited) == 2 && ran > 0 ? waited / 1000 : -1;
}

/* Calls epoll_wait and bounds the age of its events: they may have waited while we were busy, and
 * while we waited for a CPU after the wake-up. */
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
    for (int i = 0; i < n; i++) { /* start errors before the deaths that they explain */
        if (events[i].data.u64 >> 32 == LAUNCH_EV_START && stk_launch_start_finish(g, err) < 0) {
            return err->code;
        }
    }
    for (int pass = 0; pass < 2; pass++) { /* deaths first: there may be much output */
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
