#include "show/echo.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "show/show_private.h"
#include "sys/file.h"

enum { CHUNK = 65536, LOOK_MS = 50, OUT = 0, ERR = 1 };

static const struct {
    int fd;
    const char *name;
} streams[] = {[OUT] = {STDOUT_FILENO, "stdout"}, [ERR] = {STDERR_FILENO, "stderr"}};

/* A running attempt. */
typedef struct echoed {
    uint32_t task, attempt;
    int64_t pid; /* 0: unknown */
    int fds[2];  /* its logs; -1: not open yet */
    off_t at[2]; /* bytes echoed so far: always whole lines */
} echoed;

struct stk_echo {
    const stk_view *view;
    echoed *items;
    uint32_t n, cap;
    stk_buf out[2];
    int64_t looked_ms;
    bool is_deaf[2]; /* writing to this stream has failed */
};

stk_echo *stk_echo_new(const stk_view *view)
{
    stk_echo *echo = calloc(1, sizeof *echo);
    if (echo != NULL) {
        echo->view = view;
        echo->out[OUT] = echo->out[ERR] = STK_BUF_INIT(1u << 30);
    }
    return echo;
}

static void close_logs(echoed *e)
{
    for (int k = 0; k < 2; k++) {
        if (e->fds[k] >= 0) {
            close(e->fds[k]);
        }
    }
}

void stk_echo_free(stk_echo *echo)
{
    if (echo == NULL) {
        return;
    }
    for (uint32_t i = 0; i < echo->n; i++) {
        close_logs(&echo->items[i]);
    }
    free(echo->items);
    stk_buf_done(&echo->out[OUT]);
    stk_buf_done(&echo->out[ERR]);
    free(echo);
}

static void flush(stk_echo *echo)
{
    for (int k = 0; k < 2; k++) {
        stk_buf *out = &echo->out[k];
        if (out->len > 0 && !echo->is_deaf[k]) {
            echo->is_deaf[k] = stk_file_write_all(streams[k].fd, out->data, out->len) < 0;
        }
        if (out->failed) { /* out of memory: the lost lines can't be restored */
            stk_buf_done(out);
            *out = STK_BUF_INIT(1u << 30);
        }
        stk_buf_clear(out);
    }
}

static void prefix(const stk_echo *echo, uint32_t task, int64_t pid, stk_buf *out)
{
    stk_buf_printf(out, "[%s/%s", stk_view_get_run(echo->view)->id,
                   stk_view_get_task(echo->view, task)->label);
    if (pid > 0) {
        stk_buf_printf(out, " (pid %lld)", (long long)pid);
    }
    stk_buf_text(out, "] ");
}

/* --- logs --- */

static void open_log(const stk_echo *echo, echoed *e, int k)
{
    const stk_view_run *run = stk_view_get_run(echo->view);
    const stk_view_task *task = stk_view_get_task(echo->view, e->task);
    STK_BUF_AUTO path = STK_BUF_INIT(1u << 16);
    stk_buf_printf(&path, "%s/runs/%s/%s/%u/%u/%s.log", run->store, run->id, task->name, task->id,
                   e->attempt, streams[k].name);
    if (!path.failed) {
        e->fds[k] = stk_file_open_regular(path.data, O_RDONLY, 0);
    }
}

static void put_lines(stk_echo *echo, const echoed *e, int k, const char *data, size_t len)
{
    stk_buf *out = &echo->out[k];
    while (len > 0) {
        const char *end = memchr(data, '\n', len);
        size_t n = (size_t)((end == NULL ? data + len : end) - data);
        prefix(echo, e->task, e->pid, out);
        stk_buf_add(out, data, n);
        stk_buf_char(out, '\n');
        n += end != NULL;
        data += n;
        len -= n;
    }
}

/* Copies whole lines. Copies an unfinished line only if it fills a chunk or the task has ended. */
static void copy_log(stk_echo *echo, echoed *e, int k, bool at_end)
{
    struct stat st;
    if (e->fds[k] < 0) {
        open_log(echo, e, k);
    }
    if (e->fds[k] < 0 || fstat(e->fds[k], &st) < 0) {
        return;
    }
    char data[CHUNK];
    while (e->at[k] < st.st_size || at_end) {
        ssize_t n = pread(e->fds[k], data, sizeof data, e->at[k]);
        if (n <= 0) {
            return;
        }
        const char *last = memrchr(data, '\n', (size_t)n);
        size_t whole = (size_t)n;
        if (last != NULL) {
            whole = (size_t)(last - data) + 1;
        } else if (!at_end && n < CHUNK) {
            return;
        }
        put_lines(echo, e, k, data, whole);
        e->at[k] += (off_t)whole;
        if (echo->out[k].len > 16 * CHUNK) {
            flush(echo);
        }
    }
}

/* --- tasks --- */

static echoed *find_echoed(stk_echo *echo, uint32_t task)
{
    for (uint32_t i = 0; i < echo->n; i++) {
        if (echo->items[i].task == task) {
            return &echo->items[i];
        }
    }
    return NULL;
}

static void begin_echo(stk_echo *echo, const stk_event_row *row)
{
    if (echo->n == echo->cap) {
        uint32_t cap = MAX(16, echo->cap * 2);
        echoed *items = realloc(echo->items, cap * sizeof *items);
        if (items == NULL) {
            return; /* its lines stay in its log */
        }
        echo->items = items;
        echo->cap = cap;
    }
    echo->items[echo->n++] = (echoed){.task = row->task, .attempt = row->attempt, .fds = {-1, -1}};
}

void stk_echo_started(stk_echo *echo, uint32_t task, int64_t pid)
{
    echoed *e = find_echoed(echo, task);
    if (e == NULL || e->pid != 0) {
        return;
    }
    e->pid = pid;
    prefix(echo, task, pid, &echo->out[OUT]);
    stk_buf_text(&echo->out[OUT], "Started");
    if (e->attempt > 1) {
        stk_buf_printf(&echo->out[OUT], ", attempt %u", e->attempt);
    }
    stk_buf_text(&echo->out[OUT], ".\n");
}

static void say_cached(const stk_json *data, stk_buf *out, const stk_view_task *task)
{
    const char *run = stk_json_get_text(data, "from_run");
    const stk_json *clone = stk_json_get(data, "from_task");
    if (stk_json_is_kind(clone, STK_JSON_INT)) {
        stk_buf_printf(out, "Cloned from %s/%s/%lld.\n", stk_text_or(run, "?"), task->name,
                       (long long)stk_json_whole(clone, 0) + 1);
    } else {
        stk_buf_printf(out, "Not run: its result comes from run %s.\n", stk_text_or(run, "?"));
    }
}

/* One sentence: how the task ended, and why. */
static void say_end(stk_echo *echo, const stk_event_row *row, int64_t pid)
{
    const stk_view_task *task = stk_view_get_task(echo->view, row->task);
    bool failed = row->kind == STK_EV_TASK_FAILED;
    stk_buf *out = &echo->out[failed ? ERR : OUT];
    char took[32];
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    stk_units_format_duration(stk_show_took_ms(task->started_ms, task->ended_ms, 0), took,
                              sizeof took);
    prefix(echo, row->task, pid, out);
    if (row->kind == STK_EV_TASK_SUCCEEDED) {
        stk_buf_printf(out, "Finished successfully after %s.\n", took);
    } else if (row->kind == STK_EV_TASK_CACHED) {
        say_cached(stk_json_read(scratch, row->data), out, task);
    } else if (failed) {
        const char *why = stk_json_get_text(stk_json_read(scratch, row->data), "text");
        stk_buf_printf(out, "Failed after %s: %s", took, stk_text_or(why, "?"));
        if (task->state != STK_TASK_FAILED) {
            stk_buf_text(out, "; it will be tried again");
        }
        stk_buf_text(out, ".\n");
    } else if (row->kind == STK_EV_TASK_SKIPPED) {
        stk_buf_text(out, "Skipped.\n");
    } else {
        stk_buf_text(out, "Cancelled.\n");
    }
}

static void end_echo(stk_echo *echo, const stk_event_row *row)
{
    echoed *e = find_echoed(echo, row->task);
    int64_t pid = 0;
    if (e != NULL) {
        pid = e->pid;
        copy_log(echo, e, OUT, true);
        copy_log(echo, e, ERR, true);
        flush(echo); /* both streams come before the sentence about the end */
        close_logs(e);
        *e = echo->items[--echo->n];
    }
    say_end(echo, row, pid);
}

void stk_echo_event(stk_echo *echo, const stk_event_row *row)
{
    switch (row->kind) {
    case STK_EV_TASK_STARTED:
        begin_echo(echo, row);
        break;
    case STK_EV_TASK_SUCCEEDED:
    case STK_EV_TASK_CACHED:
    case STK_EV_TASK_FAILED:
    case STK_EV_TASK_SKIPPED:
    case STK_EV_TASK_CANCELLED:
        end_echo(echo, row);
        break;
    default:
        break;
    }
}

int64_t stk_echo_tick(stk_echo *echo, int64_t now_ms)
{
    int64_t since = now_ms - echo->looked_ms;
    bool due = since < 0 || since >= LOOK_MS;
    for (uint32_t i = 0; due && i < echo->n; i++) {
        echoed *e = &echo->items[i];
        if (e->pid != 0) {
            copy_log(echo, e, OUT, false);
            copy_log(echo, e, ERR, false);
        }
    }
    if (due) {
        echo->looked_ms = now_ms;
        since = 0;
    }
    flush(echo);
    if (echo->n == 0) {
        return -1;
    }
    return LOOK_MS - since;
}
