/* Runs tasks as processes of this machine. One thread, one epoll for the descriptors of processes
 * and servers; the caller's wait (wait_ms) serves the timers. */
#include "host/backend/backend_local.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/param.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/text.h"
#include "host/backend/backend_local_logs.h"
#include "host/backend/backend_local_server.h"
#include "sys/clock.h"
#include "sys/file.h"

enum { N_EVENTS = 64, CLOSE_MS = 3000, SERVER_MS = 60000 };

int64_t stk_local_now_ms(void)
{
    return stk_clock_mono_ms(&stk_clock_real);
}

void stk_local_due(local_backend *b, int64_t at_ms)
{
    b->due_ms = MIN(at_ms, b->due_ms);
}

int stk_local_watch_fd(local_backend *b, int fd, uint32_t events, void *data, bool known)
{
    struct epoll_event event = {.events = events, .data = {.ptr = data}};
    return epoll_ctl(b->epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event);
}

/* Closing the descriptor isn't enough: a child between fork and exec has a copy, and as long as a
 * copy exists, epoll reports the descriptor, with a pointer to freed memory. */
void stk_local_unwatch_fd(local_backend *b, int *fd)
{
    if (*fd >= 0) {
        (void)epoll_ctl(b->epoll, EPOLL_CTL_DEL, *fd, NULL);
        stk_file_close(fd);
    }
}

/* --- reports --- */

static int grow_reports(local_reports *q, size_t n)
{
    if (q->first + q->n + n > q->cap && q->first > 0) {
        memmove(q->items, q->items + q->first, q->n * sizeof *q->items);
        q->first = 0;
    }
    if (q->n + n > q->cap) {
        size_t cap = (q->n + n) * 2;
        stk_report *items = realloc(q->items, cap * sizeof *items);
        if (items == NULL) {
            return STK_E_NOMEM;
        }
        q->items = items;
        q->cap = cap;
    }
    return 0;
}

int stk_local_reserve(local_backend *b)
{
    return grow_reports(&b->reports, b->n_tasks + 1);
}

stk_report *stk_local_report(local_backend *b, const local_task *task, stk_report_kind kind)
{
    local_reports *q = &b->reports;
    size_t wanted = 1;
    if (kind != STK_REPORT_ENDED) {
        wanted += b->n_tasks; /* keep room for their end reports */
    }
    if (grow_reports(q, wanted) < 0) {
        return NULL;
    }
    stk_report *r = &q->items[q->first + q->n++];
    *r = (stk_report){.kind = kind,
                      .id = task->id,
                      .attempt = task->attempt,
                      .pid = -1,
                      .time_ms = stk_clock_wall_ms(&stk_clock_real)};
    return r;
}

void stk_local_note(local_backend *b, const local_task *task, const char *fmt, ...)
{
    stk_report *r = stk_local_report(b, task, STK_REPORT_NOTE);
    if (r != NULL) {
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(r->text, sizeof r->text, fmt, ap);
        va_end(ap);
    }
}

static bool take_report(local_backend *b, stk_report *ret)
{
    local_reports *q = &b->reports;
    if (q->n == 0) {
        return false;
    }
    *ret = q->items[q->first++];
    q->n--;
    if (q->n == 0) {
        q->first = 0;
    }
    return true;
}

/* --- operations --- */

static local_task *find_task(local_backend *b, uint32_t id)
{
    for (uint32_t i = 0; i < b->n_tasks; i++) {
        if (b->tasks[i]->id == id) {
            return b->tasks[i];
        }
    }
    return NULL;
}

static int start_python(local_backend *b, local_task *t, const stk_job *job, stk_err *err)
{
    if (!job->spawn) {
        return stk_local_server_submit(b, t, job, err);
    }
    const char *main = b->main_file == NULL ? NULL : "--main";
    /* For a hook, the environment names it. */
    const char *python = stk_text_or(job->interpreter, b->python);
    const char *argv[] = {python, "-m", "stoker._worker", t->dir, main, b->main_file, NULL};
    return stk_local_task_exec(b, t, job, argv, err);
}

/* Forgets a task that could not be started. */
static void unmake(local_backend *b, local_task *t)
{
    for (uint32_t i = 0; i < b->n_tasks; i++) {
        if (b->tasks[i] == t) {
            b->tasks[i] = b->tasks[--b->n_tasks];
        }
    }
    stk_guard_remove(b->guard, t->slot);
    stk_local_task_free(b, t);
}

static int start_task(local_backend *b, stk_job *job, local_task **ret_task, stk_err *err)
{
    if (find_task(b, job->id) != NULL) {
        return stk_err_set(err, STK_E_BUG, "step '%s': its task %u runs already", job->step,
                           job->id);
    }
    STK_TRY(stk_local_task_new(b, job, ret_task, err));
    local_task *t = *ret_task;
    STK_TRY(stk_local_task_prepare(b, t, job, err));
    STK_TRY(stk_guard_expect(b->guard, t->fds + 1, t->hook ? 0 : 2, &t->slot, err));
    if (job->argv != NULL) {
        return stk_local_task_exec(b, t, job, job->argv, err);
    }
    return start_python(b, t, job, err);
}

static int op_start(stk_backend *self, stk_job *job, stk_err *err)
{
    local_backend *b = (local_backend *)self;
    local_task *t = NULL;
    STK_FAILPOINT("backend.start.before");
    int rc = start_task(b, job, &t, err);
    if (rc < 0) {
        if (t != NULL) {
            unmake(b, t);
        }
        stk_lease_drop(&job->lease);
        return rc;
    }
    STK_FAILPOINT("backend.start.after");
    return 0;
}

static void op_stop(stk_backend *self, uint32_t id, int64_t grace_ms, stk_failure why)
{
    local_backend *b = (local_backend *)self;
    local_task *t = find_task(b, id);
    if (t != NULL) {
        stk_local_task_stop(b, t, grace_ms, why);
    }
}

static void run_timers(local_backend *b)
{
    int64_t now = stk_local_now_ms();
    if (now < b->due_ms) {
        return;
    }
    b->due_ms = INT64_MAX;
    for (uint32_t i = b->n_tasks; i-- > 0;) { /* backwards: the last task fills a gap */
        stk_local_task_timers(b, b->tasks[i], now);
    }
    stk_local_look_outside(b, now);
}

static void forget_done(local_backend *b)
{
    for (uint32_t i = 0; i < b->n_done; i++) {
        stk_local_task_free(b, b->done[i]);
    }
    b->n_done = 0;
}

/* Handles all events so far. Frees ended tasks only after that, because epoll may have returned
 * pointers to them. */
static void turn(local_backend *b)
{
    struct epoll_event events[N_EVENTS];
    int n = epoll_wait(b->epoll, events, N_EVENTS, 0);
    for (int i = 0; i < n; i++) {
        local_ev *what = events[i].data.ptr;
        if (*what == LOCAL_EV_SERVER) {
            stk_local_server_event(b, events[i].data.ptr, events[i].events);
        } else if (*what == LOCAL_EV_SCRIBE) {
            stk_local_logs_event(b, ((local_scribe *)events[i].data.ptr)->task);
        } else if (((local_task *)events[i].data.ptr)->state == LOCAL_RUNNING) {
            stk_local_task_reap(b, events[i].data.ptr);
        }
    }
    run_timers(b);
    stk_guard_renew(b->guard);
    if (b->n_done > 0) {
        stk_local_end_orphans(b, false);
        forget_done(b);
    }
}

static bool op_next(stk_backend *self, stk_report *ret_report)
{
    local_backend *b = (local_backend *)self;
    if (b->reports.n == 0) {
        turn(b);
    }
    return take_report(b, ret_report);
}

static int op_fd(const stk_backend *self)
{
    return ((const local_backend *)self)->epoll;
}

static int64_t op_wait_ms(const stk_backend *self)
{
    const local_backend *b = (const local_backend *)self;
    if (b->reports.n > 0 || b->n_done > 0) {
        return 0;
    }
    if (b->due_ms == INT64_MAX) {
        return -1;
    }
    int64_t left = b->due_ms - stk_local_now_ms();
    return MAX(left, 0);
}

static bool op_usage(stk_backend *self, uint32_t id, int64_t *ret_memory_bytes, double *ret_cpus)
{
    const local_task *t = find_task((local_backend *)self, id);
    if (t == NULL || t->watch.rss_bytes < 0) {
        return false;
    }
    *ret_memory_bytes = t->watch.rss_bytes;
    *ret_cpus = MAX(t->watch.cpus, 0);
    return true;
}

static void end_tasks(local_backend *b)
{
    for (uint32_t i = b->n_tasks; i-- > 0;) {
        stk_local_task_stop(b, b->tasks[i], 0, STK_FAIL_CANCELLED);
    }
    for (int64_t end = stk_local_now_ms() + CLOSE_MS; b->n_tasks > 0 && stk_local_now_ms() < end;) {
        struct epoll_event event;
        (void)epoll_wait(b->epoll, &event, 1, 10); /* only waits; turn() fetches the events */
        turn(b);
        b->reports.n = 0; /* the caller won't call next() again */
        b->reports.first = 0;
    }
}

static void op_close(stk_backend *self)
{
    local_backend *b = (local_backend *)self;
    if (b == NULL) {
        return;
    }
    if (b->guard != NULL) {
        end_tasks(b);
        stk_local_server_close(b, b->given);
        stk_local_server_close(b, b->clean);
        b->given = b->clean = NULL;
        while (b->n_tasks > 0) {
            unmake(b, b->tasks[0]); /* a task that can't die, or whose server doesn't answer */
        }
        stk_local_end_orphans(b, true);
        forget_done(b);
        stk_guard_close(b->guard);
    }
    stk_cgroups_close(b->groups);
    stk_file_close(&b->epoll);
    free(b->tasks);
    free(b->done);
    free(b->known);
    free(b->env);
    free(b->reports.items);
    free(b->run);
    free(b->python);
    free(b->main_file);
    free(b);
}

static const stk_backend_ops local_ops = {.name = "local",
                                          .start = op_start,
                                          .stop = op_stop,
                                          .next = op_next,
                                          .fd = op_fd,
                                          .wait_ms = op_wait_ms,
                                          .close = op_close,
                                          .usage = op_usage};

/* --- open --- */

/* Ended children must stay reapable even if our parent ignored SIGCHLD. As a subreaper we inherit
 * our tasks' orphans. */
static void adopt_children(void)
{
    struct sigaction now;
    if (sigaction(SIGCHLD, NULL, &now) == 0 &&
        (now.sa_handler == SIG_IGN || (now.sa_flags & SA_NOCLDWAIT) != 0)) {
        (void)sigaction(SIGCHLD, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    }
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

/* Each running task needs a few descriptors, and the usual soft limit of 1024 exists only for
 * programs that use select. */
static void allow_descriptors(local_backend *b)
{
    (void)getrlimit(RLIMIT_NOFILE, &b->n_files);
    struct rlimit more = {.rlim_cur = b->n_files.rlim_max, .rlim_max = b->n_files.rlim_max};
    (void)setrlimit(RLIMIT_NOFILE, &more);
}

static int open_parts(local_backend *b, const stk_local_config *config, stk_err *err)
{
    b->run = strdup(config->run);
    b->python = strdup(stk_text_or(config->python, "python3"));
    if (config->main_file != NULL) {
        b->main_file = strdup(config->main_file);
    }
    if (b->run == NULL || b->python == NULL ||
        (config->main_file != NULL && b->main_file == NULL)) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "local backend");
    }
    adopt_children();
    allow_descriptors(b);
    /* This removes what a dead engine of this run left behind, before we create anything: a
     * guardian could mistake what we create for leftovers. */
    b->groups = stk_cgroups_open(config->run);
    b->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (b->groups == NULL || b->epoll < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "local backend");
    }
    return stk_guard_open(config->run, &b->guard, err);
}

int stk_backend_local_open(const stk_local_config *config, stk_backend **ret_backend, stk_err *err)
{
    local_backend *b = calloc(1, sizeof *b);
    if (b == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "local backend");
    }
    *b = (local_backend){.base = {.ops = &local_ops},
                         .accel = config->accel,
                         .clock = config->clock,
                         .sample_ms = config->sample_ms,
                         .server_ms = SERVER_MS,
                         .policy = config->policy,
                         .outside_ms = INT64_MAX,
                         .epoll = -1,
                         .due_ms = INT64_MAX};
    if (config->server_ms > 0) {
        b->server_ms = config->server_ms;
    }
    int rc = open_parts(b, config, err);
    int server_fd = config->server_fd;
    if (rc == 0 && server_fd >= 0) {
        rc = stk_local_server_new(b, server_fd, &b->given, err);
        server_fd = -1;
    }
    if (rc < 0) {
        stk_file_close(&server_fd);
        op_close(&b->base);
        return rc;
    }
    *ret_backend = &b->base;
    return 0;
}

const char *stk_backend_local_describe(stk_backend *backend)
{
    return stk_cgroups_describe(((local_backend *)backend)->groups);
}
