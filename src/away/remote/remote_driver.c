/* The driver's thread: commands to it and reports from it. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "away/remote/remote_private.h"
#include "sys/file.h"

enum { TURN_MS = 30000 };

/* --- reports --- */

/* Does the launcher's "[RANK] " begin the line? It tells the node as well. */
static bool has_rank(const char *line, size_t n)
{
    size_t i = 1;
    while (i < n && line[i] >= '0' && line[i] <= '9') {
        i++;
    }
    return i > 1 && i + 1 < n && line[0] == '[' && line[i] == ']' && line[i + 1] == ' ';
}

void stk_remote_add_log(const char *path, uint32_t nodes, bool *mid_lines,
                        const stk_remote_report *r)
{
    STK_FD_AUTO fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
        return;
    }
    if (nodes == 1) {
        (void)stk_file_write_all(fd, r->data, r->n);
        return;
    }
    STK_BUF_AUTO text = STK_BUF_INIT(r->n * 24 + 64);
    bool *mid_line = &mid_lines[r->node];
    for (size_t at = 0, n; at < r->n; at += n) {
        const char *end = memchr(r->data + at, '\n', r->n - at);
        n = end == NULL ? r->n - at : (size_t)(end - (r->data + at)) + 1;
        if (!*mid_line && !has_rank(r->data + at, n)) {
            stk_buf_printf(&text, "[node %u] ", r->node);
        }
        stk_buf_add(&text, r->data + at, n);
        *mid_line = end == NULL;
    }
    (void)stk_file_write_all(fd, text.data, text.len);
}

static void add_log(remote_task *t, const stk_remote_report *r)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/stdout.log", t->order.dir);
    if (t->log_bytes < REMOTE_LOG_BYTES && r->node < t->job.nodes) {
        t->log_bytes += (int64_t)r->n;
        stk_remote_add_log(path, t->job.nodes, t->mid_line, r);
    }
}

static void waits(remote_backend *b, remote_task *t, const char *why)
{
    if (why[0] != '\0' && strncmp(why, t->reason, sizeof t->reason - 1) != 0) {
        stk_remote_tell_wait(b, t, "waits: ", why);
    }
}

static void take_report(void *arg, const stk_remote_report *r)
{
    remote_backend *b = arg;
    pthread_mutex_lock(&b->lock);
    remote_task *t = stk_remote_find(b, r->id);
    if (t == NULL || t->job.attempt != r->attempt || t->phase != REMOTE_WITH_DRIVER) {
        pthread_mutex_unlock(&b->lock);
        return;
    }
    switch (r->state) {
    case STK_REMOTE_QUEUED:
        waits(b, t, r->text);
        break;
    case STK_REMOTE_RUNNING:
        if (!t->is_running) {
            t->is_running = true;
            stk_remote_tell_started(b, t);
            stk_remote_tell_no_wait(b, t);
        } else if (t->reason[0] != '\0') {
            stk_remote_tell_no_wait(b, t);
        }
        break;
    case STK_REMOTE_LOG: /* the driver has the task, so no other thread uses its log's state */
        pthread_mutex_unlock(&b->lock);
        add_log(t, r);
        return;
    case STK_REMOTE_NOTE:
        stk_remote_tell_note(b, t, r->text);
        break;
    case STK_REMOTE_ENDED:
    case STK_REMOTE_FAILED:
        t->end = *r;
        t->end.data = NULL;
        t->n_tries = 0;
        t->trouble_ms = 0;
        stk_remote_queue(b, t, REMOTE_COLLECTING, 0);
        if (t->stop_wanted) {
            stk_remote_stop_within(b, REMOTE_STOP_MS);
        }
        break;
    }
    pthread_mutex_unlock(&b->lock);
}

/* --- commands --- */

static void report_refusal(remote_backend *b, remote_task *t, const stk_err *why)
{
    stk_remote_report r = {.state = STK_REMOTE_FAILED,
                           .id = t->job.id,
                           .attempt = t->job.attempt,
                           .exit_status = -1,
                           .is_hopeless = true,
                           .failure = STK_FAIL_START};
    (void)stk_err_format(why, r.text, (int)sizeof r.text);
    take_report(b, &r);
}

static void obey(remote_backend *b, const remote_command *c)
{
    stk_driver *d = b->driver;
    stk_err err = {0};
    if (c->verb == REMOTE_SUBMIT && d->ops->submit(d, &c->task->job, &err) < 0) {
        report_refusal(b, c->task, &err);
    } else if (c->verb == REMOTE_STOP) {
        d->ops->stop(d, c->id, c->grace_ms, c->why);
    } else if (c->verb == REMOTE_FORGET) {
        d->ops->forget(d, c->id);
        pthread_mutex_lock(&b->lock);
        stk_remote_drop(c->task);
        pthread_mutex_unlock(&b->lock);
    }
}

/* Fails all present and future jobs of the driver by this error. */
static void give_up(remote_backend *b, const stk_err *why)
{
    pthread_mutex_lock(&b->lock);
    b->broken = *why;
    for (uint32_t i = 0; i < b->n_slots; i++) {
        for (remote_task *t = b->table[i]; t != NULL; t = t->same_slot) {
            if (t->phase == REMOTE_WITH_DRIVER) {
                t->end = (stk_remote_report){.state = STK_REMOTE_FAILED,
                                             .exit_status = -1,
                                             .is_hopeless = true,
                                             .failure = STK_FAIL_START};
                (void)stk_err_format(why, t->end.text, (int)sizeof t->end.text);
                stk_remote_queue(b, t, REMOTE_COLLECTING, 0);
            }
        }
    }
    pthread_mutex_unlock(&b->lock);
}

/* Returns a copy, because the same command may come again meanwhile. */
static bool next_command(remote_backend *b, remote_command *ret)
{
    remote_command *c = b->commands;
    if (c != NULL) {
        *ret = *c;
        c->is_queued = false;
        b->commands = c->next;
        if (b->commands == NULL) {
            b->commands_end = &b->commands;
        }
    }
    return c != NULL;
}

void *stk_remote_drive(void *backend)
{
    remote_backend *b = backend;
    stk_err err = {0};
    b->driver->say = take_report;
    b->driver->say_arg = b;
    for (int rc = 0;;) {
        uint64_t count;
        (void)!read(b->wake_fd, &count, sizeof count);
        pthread_mutex_lock(&b->lock);
        for (remote_command c; next_command(b, &c);) {
            pthread_mutex_unlock(&b->lock);
            obey(b, &c);
            pthread_mutex_lock(&b->lock);
        }
        bool closing = b->is_closing;
        pthread_mutex_unlock(&b->lock);
        if (closing) {
            return NULL;
        }
        if (rc == 0) {
            rc = b->driver->ops->turn(b->driver, b->wake_fd, TURN_MS, &err);
            if (rc < 0) {
                give_up(b, &err);
            }
        } else { /* waits for commands only */
            struct pollfd fd = {.fd = b->wake_fd, .events = POLLIN};
            (void)poll(&fd, 1, TURN_MS);
        }
    }
}
