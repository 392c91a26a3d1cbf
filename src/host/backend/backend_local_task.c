/* Starts, watches and stops a task on this machine. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/param.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/grow.h"
#include "base/limits.h"
#include "base/text.h"
#include "host/backend/backend_local.h"
#include "host/backend/backend_local_logs.h"
#include "host/backend/backend_local_server.h"
#include "sys/proc.h"
#include "sys/spawn.h"

enum {
    GANG_MS = 2000,
    SERVER_MS = 5000, /* how long a server may take to report a task's end */
    ANSWER_MS = 2000, /* how long a server may take to start a task that we want to end */
};

/* --- start --- */

static int add_task(local_backend *b, local_task *task)
{
    uint32_t n = b->n_tasks + b->n_done, cap = b->cap_tasks;
    local_task **tasks = stk_grow(b->tasks, n, sizeof *tasks, &cap);
    if (tasks == NULL) {
        return STK_E_NOMEM;
    }
    b->tasks = tasks;
    local_task **done = stk_grow(b->done, n, sizeof *done, &b->cap_tasks);
    if (done == NULL) {
        return STK_E_NOMEM;
    }
    b->done = done; /* same length: ending a task must not allocate */
    b->tasks[b->n_tasks++] = task;
    return 0;
}

int stk_local_task_new(local_backend *b, const stk_job *job, local_task **ret_task, stk_err *err)
{
    local_task *t = calloc(1, sizeof *t);
    char *dir = strdup(job->dir);
    if (t == NULL || dir == NULL || stk_local_reserve(b) < 0 || add_task(b, t) < 0) {
        free(t);
        free(dir);
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "step '%s'", job->step);
    }
    *t = (local_task){.ev = LOCAL_EV_TASK,
                      .state = LOCAL_QUEUED,
                      .id = job->id,
                      .attempt = job->attempt,
                      .serial = b->next_serial++,
                      .hook = job->hook != NULL,
                      .gang = job->gang,
                      .contained = job->contained,
                      .dir = dir,
                      .message = STK_BUF_INIT(STK_LIMIT_MESSAGE_BYTES),
                      .pidfd = -1,
                      .slot = LOCAL_NO_SLOT,
                      .timeout_ms = job->timeout_ms,
                      .grace_ms = job->grace_ms,
                      .notice_ms = job->notice_ms,
                      .memory_bytes = job->memory_bytes,
                      .used_bytes = -1,
                      .term_ms = -1,
                      .kill_ms = -1,
                      .gone_ms = -1,
                      .watch = {.fd = -1}};
    t->logs = (local_scribe){.ev = LOCAL_EV_SCRIBE, .task = t};
    *ret_task = t;
    return 0;
}

/* Limits the task by a control group if possible, else by the watchdog, and notes that once. */
static void make_group(local_backend *b, local_task *t, const stk_job *job, const stk_lease *given)
{
    stk_err why = {0};
    dev_t closed[STK_LIMIT_DEVICES];
    stk_cgroup_limits limits = {
        .memory_bytes = job->memory_bytes, .cpu_milli = job->cpu_milli, .one_by_one = job->gang};
    if (stk_cgroups_can_close(b->groups)) {
        limits.closed = closed;
        limits.n_closed = stk_local_closed_nodes(b, given, closed, STK_LIMIT_DEVICES);
    }
    bool none = stk_cgroups_kind(b->groups) == STK_CGROUP_NONE;
    if ((job->memory_bytes <= 0 && job->cpu_milli <= 0 && limits.n_closed == 0) || none) {
        return;
    }
    char name[64];
    const char *instead = "CPU is limited by affinity only";
    (void)snprintf(name, sizeof name, "%u-%u%s", job->id, job->attempt,
                   stk_text_when(t->hook, "-hook"));
    if (job->memory_bytes > 0) {
        instead = "memory is watched, not limited";
    } else if (limits.n_closed > 0) {
        instead = "accelerators are hidden by variables only";
    }
    if (stk_cgroup_new(b->groups, name, &limits, &t->group, &why) < 0 && !b->noted_watchdog) {
        b->noted_watchdog = true;
        stk_local_note(b, t, "%s: %s", instead, why.text);
    }
}

/* The watchdog's memory limit; 0: none, or another mechanism enforces it. */
static int64_t watched_bytes(const local_task *task, const stk_job *job)
{
    bool limited = job->contained ? !job->unlimited : task->group.n > 0;
    return limited ? 0 : job->memory_bytes;
}

int stk_local_task_prepare(local_backend *b, local_task *task, stk_job *job, stk_err *err)
{
    STK_TRY(stk_local_logs_open(task, job->hidden, err));
    STK_TRY(stk_local_logs_watch(b, task, err));
    for (uint32_t i = 0; i < job->lease.n_fds; i++) {
        task->fds[task->n_fds++] = job->lease.fds[i];
    }
    stk_lease given = job->lease;
    job->lease.n = job->lease.n_fds = 0; /* now owned by the task */
    if (!job->contained) {               /* otherwise the container has the limits */
        make_group(b, task, job, &given);
    }
    stk_watch_config watch = {.dir = task->dir,
                              .period_ms = b->sample_ms,
                              .write_at_once = job->reads_samples,
                              .memory_bytes = watched_bytes(task, job),
                              .accel = b->accel,
                              .clock = b->clock,
                              .lease = &given};
    if (job->sample_ms > 0) {
        watch.period_ms = job->sample_ms;
    }
    return stk_watch_init(&task->watch, &watch, err);
}

static bool names_one(const char *entry, const char *const *list)
{
    size_t n = strcspn(entry, "=");
    for (; list != NULL && *list != NULL; list++) {
        if (strncmp(entry, *list, n) == 0 && ((*list)[n] == '=' || (*list)[n] == '\0')) {
            return true;
        }
    }
    return false;
}

static int put_entry(local_backend *b, uint32_t n, const char *entry)
{
    const char **env = stk_grow(b->env, n, sizeof *env, &b->cap_env);
    if (env == NULL) {
        return STK_E_NOMEM;
    }
    b->env = env;
    env[n] = entry;
    return 0;
}

/* The engine's environment without `unset`, overridden by the job's. Also sets the numerical
 * libraries' thread counts to the granted CPUs, unless the job sets them. */
static int make_env(local_backend *b, const stk_job *job)
{
    static const char *const threads[] = {
#define X(name) name,
#include "tbl/threads.def"
#undef X
    };
    const char *ours[sizeof threads / sizeof *threads + 1] = {NULL};
    uint32_t n = 0, n_ours = 0;
    for (size_t i = 0; job->threads > 0 && i < sizeof threads / sizeof *threads; i++) {
        if (!names_one(threads[i], job->env)) {
            (void)snprintf(b->thread_env[n_ours], sizeof b->thread_env[n_ours], "%s=%u", threads[i],
                           job->threads);
            ours[n_ours] = b->thread_env[n_ours];
            n_ours++;
        }
    }
    for (char **e = environ; *e != NULL; e++) {
        if (!names_one(*e, job->env) && !names_one(*e, job->unset) && !names_one(*e, ours)) {
            STK_TRY(put_entry(b, n++, *e));
        }
    }
    for (uint32_t i = 0; i < n_ours; i++) {
        STK_TRY(put_entry(b, n++, ours[i]));
    }
    for (const char *const *e = job->env; e != NULL && *e != NULL; e++) {
        STK_TRY(put_entry(b, n++, *e));
    }
    return put_entry(b, n, NULL);
}

int stk_local_task_exec(local_backend *b, local_task *task, const stk_job *job,
                        const char *const *argv, stk_err *err)
{
    if (make_env(b, job) < 0) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "step '%s'", job->step);
    }
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    for (uint32_t i = 0; i < job->n_cpus; i++) {
        if (job->cpus[i] < CPU_SETSIZE) {
            CPU_SET(job->cpus[i], &cpus);
        }
    }
    stk_spawn spawn = {.argv = argv,
                       .env = b->env,
                       .cwd = job->cwd,
                       .stdin_fd = -1,
                       .stdout_fd = task->fds[0],
                       .stderr_fd = task->fds[1],
                       .keep_fds = task->fds + 2,
                       .n_keep_fds = task->n_fds - 2,
                       .cgroup_procs = (const char *const *)task->group.procs,
                       .n_cgroup_procs = task->group.n,
                       .n_files = &b->n_files,
                       .readonly = job->readonly,
                       .die_with_parent = true,
                       .new_session = true,
                       .no_new_privs = true};
    if (CPU_COUNT(&cpus) > 0) {
        spawn.cpus = &cpus;
    }
    pid_t pid;
    int pidfd = -1;
    STK_TRY(stk_sys_spawn(&spawn, &pid, &pidfd, err));
    task->direct = true;
    return stk_local_task_started(b, task, pid, pidfd, err);
}

int stk_local_task_started(local_backend *b, local_task *task, pid_t pid, int pidfd, stk_err *err)
{
    int64_t now = stk_local_now_ms();
    task->state = LOCAL_RUNNING;
    task->pid = pid;
    task->pidfd = pidfd;
    task->start_ms = now;
    stk_guard_begun(b->guard, task->slot, pid);
    if (task->direct && stk_local_watch_fd(b, pidfd, EPOLLIN, task, false) < 0) {
        int rc = stk_err_sys(err, STK_E_SYS, errno, "watching process %d", (int)pid);
        (void)kill(pid, SIGKILL); /* the caller frees the task, so no process of it may survive */
        (void)stk_proc_kill_session(pid, NULL, LOCAL_LEFTOVER_MS);
        (void)waitpid(pid, NULL, 0); /* reap last: until then the pid can't be reused */
        return rc;
    }
    stk_local_task_close_fds(task);
    stk_buf_done(&task->message);
    stk_watch_start(&task->watch, pid, now);
    stk_local_look_outside_soon(b, now);
    if (task->hook) {
        task->watch.due_ms = INT64_MAX;
    }
    stk_local_due(b, task->watch.due_ms);
    if (task->timeout_ms > 0) {
        stk_local_due(b, now + task->timeout_ms - task->notice_ms);
    }
    stk_report *r = stk_local_report(b, task, STK_REPORT_STARTED);
    if (r != NULL) {
        r->pid = pid;
    }
    return 0;
}

/* --- stop --- */

static void send_signal(local_backend *b, local_task *t, int number)
{
    if (!t->direct && stk_local_task_has_ended(t)) {
        return; /* the fork server kills its leftovers and reaps it: the pid may be reused */
    }
    if (kill(-t->pid, number) == 0) {
        (void)kill(-t->pid, SIGCONT); /* a stopped task would not see it */
        return;
    }
    (void)kill(t->pid, number);
    if (number == SIGTERM) { /* a forked child without its own session yet ignores SIGTERM */
        t->term_ms = stk_local_now_ms() + LOCAL_TERM_AGAIN_MS;
        stk_local_due(b, t->term_ms);
    }
}

void stk_local_task_stop(local_backend *b, local_task *task, int64_t grace_ms, stk_failure why)
{
    if (task->state == LOCAL_DONE || task->state == LOCAL_WRITING) {
        return;
    }
    if (task->state == LOCAL_QUEUED && task->n_sent == 0) {
        task->server = NULL; /* removes it from the server's queue; it wasn't sent */
        stk_local_task_not_started(b, task, why, NULL);
        return;
    }
    if (task->stopped_for == STK_FAIL_NONE) {
        if (task->state == LOCAL_RUNNING && stk_local_task_has_ended(task)) {
            return; /* it ended by itself: report that end */
        }
        task->stopped_for = why;
        stk_watch_look(&task->watch);
    }
    int64_t at = stk_local_now_ms() + MAX(grace_ms, 0);
    bool first = task->kill_ms < 0;
    if (first || at < task->kill_ms) {
        task->kill_ms = at;
    }
    stk_local_due(b, task->kill_ms);
    if (task->state != LOCAL_RUNNING) {
        return; /* we end it as soon as it has started */
    }
    if (grace_ms <= 0) {
        send_signal(b, task, SIGKILL);
    } else if (first) {
        send_signal(b, task, SIGTERM);
    }
}

/* --- timers --- */

/* True: the task is over, and no one reported how. */
static bool look_if_gone(local_backend *b, local_task *task, int64_t now_ms)
{
    if (task->direct && task->gone_ms >= 0) {
        stk_local_task_reap(b, task);
        stk_local_due(b, now_ms + LOCAL_TERM_AGAIN_MS);
    } else if (!task->direct && stk_local_task_has_ended(task)) {
        if (task->gone_ms < 0) {
            task->gone_ms = now_ms; /* its server should report it soon */
        } else if (now_ms - task->gone_ms > SERVER_MS) {
            task->lost_server = true;
            stk_local_task_ended(b, task, -1, -1, -1);
        }
    }
    return task->state == LOCAL_DONE;
}

/* A server that hangs replies neither "started" nor anything else: we end its pending task by
 * killing the server. */
static void look_if_answered(local_backend *b, local_task *task, int64_t now_ms)
{
    if (task->timeout_ms > 0 && task->stopped_for == STK_FAIL_NONE && task->state == LOCAL_SENT) {
        int64_t at = task->start_ms + task->timeout_ms;
        if (now_ms >= at) {
            stk_local_task_stop(b, task, 0, STK_FAIL_TIMEOUT);
        } else {
            stk_local_due(b, at);
        }
    }
    if (task->state == LOCAL_SENT && now_ms >= task->start_ms + b->server_ms) {
        stk_local_server_kill(task->server); /* its running tasks live on; this one is retried */
        return;
    }
    if (task->kill_ms >= 0 && now_ms >= task->kill_ms + ANSWER_MS) {
        stk_local_server_kill(task->server);
    } else if (task->kill_ms >= 0) {
        stk_local_due(b, task->kill_ms + ANSWER_MS);
    }
}

/* Signals the launcher, which knows its ranks: it ends the largest first, then the others, and
 * reports that. If the launcher hangs, we kill them all. */
static void stop_ranks(local_backend *b, local_task *task)
{
    if (stk_local_task_has_ended(task) || kill(task->pid, SIGUSR2) < 0) {
        return;
    }
    task->stopped_for = STK_FAIL_HOST_OOM;
    task->kill_ms = stk_local_now_ms() + GANG_MS;
    stk_local_due(b, task->kill_ms);
    stk_watch_look(&task->watch);
}

/* Samples early if the due time is close: one wake-up serves several tasks. */
static void sample(local_backend *b, local_task *task, int64_t now_ms)
{
    int64_t period_ms = task->watch.config.period_ms;
    int64_t soon_ms = period_ms > 0 ? MIN(period_ms / 10, 10) : 10;
    if (now_ms + soon_ms < task->watch.due_ms) {
        return;
    }
    stk_local_contained_look(task);
    stk_failure why = stk_watch_sample(&task->watch, now_ms);
    if (why != STK_FAIL_NONE && task->stopped_for == STK_FAIL_NONE) {
        if (why == STK_FAIL_HOST_OOM) {
            task->used_bytes = task->watch.over_bytes;
        }
        if (why == STK_FAIL_HOST_OOM && task->gang) {
            stop_ranks(b, task);
        } else {
            stk_local_task_stop(b, task, 0, why);
        }
    }
}

/* A task that was warned before the timeout gets no more grace. */
static void look_at_limit(local_backend *b, local_task *task, int64_t now_ms)
{
    if (task->timeout_ms <= 0 || task->stopped_for != STK_FAIL_NONE) {
        return;
    }
    int64_t limit = task->start_ms + task->timeout_ms;
    if (now_ms >= limit) {
        stk_local_task_stop(b, task, task->noticed ? 0 : task->grace_ms, STK_FAIL_TIMEOUT);
        stk_local_due(b, now_ms + LOCAL_TERM_AGAIN_MS);
    } else if (task->notice_ms > 0 && !task->noticed && now_ms >= limit - task->notice_ms) {
        task->noticed = true;
        send_signal(b, task, SIGTERM);
        stk_local_due(b, limit);
    } else {
        stk_local_due(b, task->noticed ? limit : limit - task->notice_ms);
    }
}

void stk_local_task_timers(local_backend *b, local_task *task, int64_t now_ms)
{
    if (task->state == LOCAL_WRITING) {
        stk_local_logs_timers(b, task, now_ms);
        return;
    }
    if (task->state != LOCAL_RUNNING) {
        if (task->server != NULL && task->n_sent > 0) {
            look_if_answered(b, task, now_ms);
        }
        return;
    }
    if (look_if_gone(b, task, now_ms)) {
        return;
    }
    look_at_limit(b, task, now_ms);
    if (task->term_ms >= 0 && now_ms >= task->term_ms) {
        task->term_ms = -1;
        send_signal(b, task, SIGTERM);
    }
    if (task->kill_ms >= 0 && now_ms >= task->kill_ms) {
        send_signal(b, task, SIGKILL);
        task->kill_ms = now_ms + 1000; /* repeat, in case the task is in an unkillable state */
    }
    if (task->kill_ms >= 0) {
        stk_local_due(b, task->kill_ms);
    }
    sample(b, task, now_ms);
    stk_local_due(b, task->watch.due_ms);
}
