/* The protocol between the engine and a fork server: docs/formats/server-protocol.md. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "host/backend/backend_local_server.h"
#include "sys/file.h"

enum { RETRY_MS = 20 };

/* --- messages to the server --- */

static int make_message(local_task *t, const stk_job *j, stk_err *err)
{
    stk_server_spawn spawn = {.id = t->serial,
                              .dir = j->dir,
                              .step = j->step,
                              .env = j->env,
                              .unset = j->unset,
                              .cgroup_procs = (const char *const *)t->group.procs,
                              .n_cgroup_procs = t->group.n,
                              .cpus = j->cpus,
                              .n_cpus = j->n_cpus,
                              .threads = j->threads,
                              .cwd = j->cwd,
                              .hook = j->hook,
                              .hook_error = j->hook_error};
    return stk_server_spawn_message(&spawn, &t->message, err);
}

static void want_out(local_backend *b, local_server *s, bool on)
{
    if (s->wants_out != on) {
        s->wants_out = on;
        uint32_t out = on ? EPOLLOUT : 0u;
        (void)stk_local_watch_fd(b, s->wire.fd, EPOLLIN | out, s, true);
    }
}

static local_task *next_queued(local_backend *b, const local_server *s)
{
    local_task *first = NULL;
    for (uint32_t i = 0; i < b->n_tasks; i++) {
        local_task *t = b->tasks[i];
        if (t->server == s && t->state == LOCAL_QUEUED &&
            (first == NULL || t->serial - first->serial > UINT32_MAX / 2)) {
            first = t;
        }
    }
    return first;
}

static void flush(local_backend *b, local_server *s)
{
    local_task *t;
    while (s->hello && (t = next_queued(b, s)) != NULL) {
        ssize_t n = stk_wire_send(s->wire.fd, &t->message, t->n_sent, t->fds, t->n_fds);
        if (n < 0) {
            if (errno == ETOOMANYREFS) { /* too many descriptors in flight: retry soon */
                stk_local_due(b, stk_local_now_ms() + RETRY_MS);
            }
            want_out(b, s, errno == EAGAIN || errno == ETOOMANYREFS);
            return; /* other errors show up as end of file */
        }
        t->n_sent += (size_t)n;
        if (t->n_sent < t->message.len) {
            want_out(b, s, true);
            return;
        }
        t->state = LOCAL_SENT;
        t->start_ms = stk_local_now_ms(); /* counts for its timeout until the real start */
        stk_local_due(b, t->start_ms + b->server_ms);
        if (t->timeout_ms > 0) {
            stk_local_due(b, t->start_ms + t->timeout_ms);
        }
    }
    want_out(b, s, false);
}

int stk_local_server_submit(local_backend *b, local_task *task, const stk_job *job, stk_err *err)
{
    if (job != NULL) {
        STK_TRY(make_message(task, job, err));
    }
    if (b->given == NULL && b->clean == NULL) {
        STK_TRY(stk_local_server_start_clean(b, err));
    }
    task->server = b->given != NULL ? b->given : b->clean;
    flush(b, task->server);
    return 0;
}

/* --- messages from the server --- */

static void on_hello(local_backend *b, local_server *s, const stk_json *m)
{
    int64_t pid = 0;
    siginfo_t info;
    s->hello = true;
    if (stk_json_int(stk_json_get(m, "pid"), &pid) && pid > 1 && pid <= INT_MAX && !s->ours &&
        waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0) {
        s->child = (pid_t)pid; /* the front forked it, then became this process */
    }
    flush(b, s);
}

static void on_started(local_backend *b, local_server *s, local_task *t, const stk_json *m)
{
    STK_FD_AUTO pidfd = stk_wire_claim(&s->wire);
    int64_t pid = 0;
    stk_err err = {0};
    if (t == NULL || t->state != LOCAL_SENT || !stk_json_int(stk_json_get(m, "pid"), &pid) ||
        pid <= 1 || pid > INT_MAX) {
        return; /* it failed before this message arrived */
    }
    int fd = pidfd;
    pidfd = -1;
    if (stk_local_task_started(b, t, (pid_t)pid, fd, &err) < 0) {
        (void)kill((pid_t)pid, SIGKILL);
        t->pid = (pid_t)pid;
        stk_local_task_not_started(b, t, STK_FAIL_START, err.text);
    } else if (t->kill_ms >= 0) {
        t->kill_ms = stk_local_now_ms(); /* stopped while it was being started */
        stk_local_due(b, t->kill_ms);
    }
}

static void on_ended(local_backend *b, local_task *t, const stk_json *m)
{
    int64_t user = stk_json_get_whole(m, "utime_us", -1);
    int64_t sys = stk_json_get_whole(m, "stime_us", -1);
    int64_t rss_kb = stk_json_get_whole(m, "maxrss_kb", -1), cpu_us = -1, rss = -1;
    if (user >= 0 && sys >= 0) {
        cpu_us = user + sys;
    }
    if (rss_kb >= 0) {
        rss = rss_kb * 1024;
    }
    if (t->state == LOCAL_RUNNING) {
        stk_local_task_ended(b, t, (int)stk_json_get_whole(m, "status", -1), cpu_us, rss);
    }
}

static void on_failed(local_backend *b, local_task *t, const stk_json *m)
{
    const char *text = stk_json_get_text(m, "error");
    (void)snprintf(t->failed, sizeof t->failed, "its process could not be set up: %.400s",
                   stk_text_or(text, "no reason given"));
    if (t->state == LOCAL_SENT) {
        stk_local_task_not_started(b, t, STK_FAIL_START, t->failed);
    }
}

/* The front's server can't fork safely: the task goes to a clean server, which accepts every
 * task. */
static void on_unfit(local_backend *b, local_server *s, local_task *t, const stk_json *m)
{
    const char *why = stk_json_get_text(m, "why");
    stk_err err = {0};
    char text[1200];
    if (t->state != LOCAL_SENT) {
        return;
    }
    if (!b->noted_unfit) {
        b->noted_unfit = true;
        stk_local_note(b, t, "Python steps run in a fresh interpreter: %s",
                       stk_text_or(why, "this process can't be forked safely"));
    }
    if (s->ours) {
        stk_local_task_not_started(b, t, STK_FAIL_START,
                                   stk_text_or(why, "its fork server refused it"));
        return;
    }
    if (b->clean == NULL && stk_local_server_start_clean(b, &err) < 0) {
        stk_local_task_not_started(b, t, STK_FAIL_START, stk_err_format(&err, text, sizeof text));
        return;
    }
    t->state = LOCAL_QUEUED;
    t->n_sent = 0;
    t->server = b->clean;
    flush(b, b->clean);
}

static local_task *task_of(local_backend *b, const local_server *s, const stk_json *m)
{
    int64_t id = stk_json_get_whole(m, "id", -1);
    for (uint32_t i = 0; i < b->n_tasks; i++) {
        if (b->tasks[i]->server == s && b->tasks[i]->serial == id) {
            return b->tasks[i];
        }
    }
    return NULL;
}

/* Handles one message; returns NULL, or what is wrong with it. */
static const char *on_message(local_backend *b, local_server *s, const char *data, size_t len)
{
    static const stk_json_limits limits = {STK_LIMIT_MESSAGE_BYTES, 1000000, 16};
    stk_json m;
    stk_arena_reset(s->arena);
    if (stk_json_parse(data, len, "message", &limits, s->arena, &m, NULL) < 0) {
        return " after a message that is not JSON";
    }
    const stk_json *op = stk_json_get(&m, "op");
    if (op == NULL) {
        return " after a message without \"op\"";
    }
    local_task *t = task_of(b, s, &m);
    if (stk_json_is(op, "hello")) {
        if (stk_json_get_whole(&m, "version", STK_SERVER_PROTOCOL) > STK_SERVER_PROTOCOL) {
            return ": it is newer than this engine; use the stoker that belongs to it";
        }
        on_hello(b, s, &m);
    } else if (stk_json_is(op, "started")) {
        on_started(b, s, t, &m);
    } else if (t == NULL) {
        return NULL; /* about a task that no longer exists */
    } else if (stk_json_is(op, "ended")) {
        on_ended(b, t, &m);
    } else if (stk_json_is(op, "failed")) {
        on_failed(b, t, &m);
    } else if (stk_json_is(op, "unfit")) {
        on_unfit(b, s, t, &m);
    } else if (stk_json_is(op, "note")) {
        stk_local_note(b, t, "%s", stk_text_or(stk_json_get_text(&m, "text"), ""));
    }
    return NULL;
}

static const char *take_messages(local_backend *b, local_server *s)
{
    const char *wrong = NULL;
    const char *data;
    size_t len;
    int rc = 0;
    while (wrong == NULL && (rc = stk_wire_next(&s->wire, &data, &len)) > 0) {
        wrong = on_message(b, s, data, len);
    }
    return rc < 0 ? " after a message that is too long" : wrong;
}

void stk_local_server_event(local_backend *b, local_server *server, uint32_t events)
{
    if ((events & EPOLLOUT) != 0) {
        flush(b, server);
    }
    for (;;) {
        ssize_t n = stk_wire_read(&server->wire);
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        const char *wrong = "";
        if (n > 0) {
            wrong = take_messages(b, server);
        }
        if (wrong != NULL) {
            stk_local_server_died(b, server, wrong);
            return;
        }
    }
}
