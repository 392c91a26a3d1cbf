#include "show/prints.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "show/prints_line.h"
#include "show/show_private.h"
#include "sys/file.h"

enum {
    CHUNK = 64 << 10,
    AT_ONCE = 1 << 20, /* bytes read in one turn */
    LOOK_MS = 80,
    BUSY_MS = 2, /* until the next turn while there is more to read or the writer is busy */
    OUT = 0,
    ERR = 1
};

static const char *const names[] = {[OUT] = "stdout", [ERR] = "stderr"};

/* One log of a running attempt. */
typedef struct stream {
    int fd;     /* -1: not open yet */
    off_t at;   /* bytes printed so far */
    off_t seen; /* its size when there was nothing more to print; -1: there is more */
    stk_line_stack stack;
    char bar[STK_LINE_BAR];
} stream;

typedef struct attempt {
    uint32_t task, number;
    int64_t pid;      /* 0: unknown, or on another machine */
    bool is_known;    /* has a process */
    bool is_away;     /* on another machine: its final logs replace those that arrive meanwhile */
    bool is_shared;   /* another task was running too: its lines have a prefix */
    bool is_over;     /* has ended; kept until all its lines are printed */
    bool is_final;    /* `is_over` and `is_away`: its final logs were opened */
    bool is_replaced; /* and lines of the earlier ones were printed */
    stk_buf end;      /* the sentence about its end, or empty */
    bool end_is_error;
    stk_line_set printed; /* while `is_away` */
    stream streams[2];
} attempt;

struct stk_prints {
    stk_prints_config config;
    const stk_view *view;
    stk_writer *writer;
    attempt *items;
    uint32_t n, cap;
    uint32_t n_running; /* not over */
    stk_buf out[2];
    int64_t looked_ms;
    size_t room;        /* bytes that may still be read in this turn */
    stk_line_bars bars; /* of the gang that was asked for last */
};

stk_prints *stk_prints_new(const stk_prints_config *config, const stk_view *view,
                           stk_writer *writer)
{
    stk_prints *p = calloc(1, sizeof *p);
    if (p != NULL) {
        p->config = *config;
        p->view = view;
        p->writer = writer;
        p->out[OUT] = p->out[ERR] = STK_BUF_INIT(1u << 30);
    }
    return p;
}

static void close_attempt(attempt *a)
{
    for (int k = 0; k < 2; k++) {
        stk_file_close(&a->streams[k].fd);
    }
    stk_buf_done(&a->end);
    stk_line_set_free(&a->printed);
}

void stk_prints_free(stk_prints *p)
{
    if (p == NULL) {
        return;
    }
    for (uint32_t i = 0; i < p->n; i++) {
        close_attempt(&p->items[i]);
    }
    free(p->items);
    stk_buf_done(&p->out[OUT]);
    stk_buf_done(&p->out[ERR]);
    free(p);
}

bool stk_prints_has_lines(const stk_prints *p)
{
    return p->out[OUT].len + p->out[ERR].len > 0;
}

void stk_prints_put(stk_prints *p)
{
    for (int k = 0; k < 2; k++) {
        stk_buf *out = &p->out[k];
        bool to_stdout = k == OUT && !p->config.to_stderr;
        stk_writer_put(p->writer, to_stdout ? STDOUT_FILENO : STDERR_FILENO, out->data, out->len);
        if (out->failed) { /* out of memory: the lost lines stand in the logs */
            stk_buf_done(out);
            *out = STK_BUF_INIT(1u << 30);
        }
        stk_buf_clear(out);
    }
}

bool stk_prints_is_behind(const stk_prints *p)
{
    return p->n > p->n_running;
}

static attempt *find_attempt(stk_prints *p, uint32_t task)
{
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->items[i].task == task && !p->items[i].is_over) {
            return &p->items[i];
        }
    }
    return NULL;
}

/* --- lines --- */

/* The stream on which lines of stream `k` appear. */
static int target(const stk_prints *p, int k)
{
    return p->config.to_stderr ? ERR : k;
}

static void flow_prefix(const stk_prints *p, uint32_t task, int64_t pid, stk_buf *out)
{
    stk_buf_printf(out, "[%s/%s", stk_view_get_run(p->view)->id,
                   stk_view_get_task(p->view, task)->label);
    if (pid > 0) {
        stk_buf_printf(out, " (pid %lld)", (long long)pid);
    }
    stk_buf_text(out, "] ");
}

/* "train[2] │ ", in the step's colour. */
static void step_prefix(const stk_prints *p, const attempt *a, int k, int64_t rank, stk_buf *out)
{
    static const char *const colours[] = {"36", "35", "34", "33", "32", "96", "95", "94"};
    const stk_view_task *task = stk_view_get_task(p->view, a->task);
    bool colour = p->config.streams[target(p, k)].colour;
    if (colour) {
        size_t n = sizeof colours / sizeof *colours;
        stk_buf_printf(out, "\033[%sm", colours[task->i_step % n]);
    }
    stk_buf_text(out, task->title);
    if (rank >= 0) {
        stk_buf_printf(out, "[%lld]", (long long)rank);
    }
    stk_buf_text(out, p->config.utf8 ? " │ " : " | ");
    if (colour) {
        stk_buf_text(out, "\033[0m");
    }
}

static bool is_gang(const stk_prints *p, const attempt *a)
{
    const stk_view_task *task = stk_view_get_task(p->view, a->task);
    return task->ranks > 0 || task->step->settings->gang.ranks != 0 ||
           task->step->settings->gang.nodes > 1;
}

static void put_line(stk_prints *p, const attempt *a, int k, const char *text, size_t len)
{
    stk_buf *out = &p->out[k];
    int64_t rank = -1;
    text = stk_line_last_state(text, &len);
    if (p->config.flow) {
        flow_prefix(p, a->task, a->pid, out);
    } else {
        if (is_gang(p, a)) {
            rank = stk_line_rank(&text, &len);
        }
        if (a->is_shared || rank >= 0) {
            step_prefix(p, a, k, rank, out);
        }
    }
    stk_line_put(out, text, len, p->config.streams[target(p, k)].tty,
                 !p->config.streams[target(p, k)].colour);
    stk_buf_char(out, '\n');
}

static void put_lines(stk_prints *p, attempt *a, int k, const char *data, size_t len)
{
    stk_line_stack *stack = &a->streams[k].stack;
    bool as_is = !p->config.flow && !a->is_shared && !p->config.streams[target(p, k)].tty &&
                 !a->is_away && !is_gang(p, a) && memchr(data, '\r', len) == NULL &&
                 (k == OUT || !stk_line_has_stack(*stack, data, len));
    if (as_is) {
        stk_buf_add(&p->out[k], data, len);
        return;
    }
    while (len > 0) {
        const char *end = memchr(data, '\n', len);
        size_t n = end == NULL ? len : (size_t)(end - data);
        bool is_known = a->is_replaced && stk_line_set_take(&a->printed, data, n);
        if (!is_known && !stk_line_is_ours(stack, data, n)) {
            put_line(p, a, k, data, n);
        }
        if (a->is_away && !a->is_replaced) {
            stk_line_set_add(&a->printed, data, n);
        }
        n += end != NULL;
        data += n;
        len -= n;
    }
}

/* Keeps the state of an unfinished line. Skips what the program has drawn over. */
static void keep_bar(stream *s, const char *data, size_t len)
{
    const char *text = stk_line_last_state(data, &len);
    s->at += text - data;
    stk_line_bar(text, len, s->bar);
}

/* --- logs --- */

static void put_folder(const stk_prints *p, const attempt *a, stk_buf *path)
{
    const stk_view_run *run = stk_view_get_run(p->view);
    const stk_view_task *task = stk_view_get_task(p->view, a->task);
    stk_buf_printf(path, "%s/runs/%s/%s/%u/%u", run->store, run->id, task->name, task->id,
                   a->number);
}

const char *stk_prints_bar(stk_prints *p, uint32_t task, uint32_t i)
{
    attempt *a = find_attempt(p, task);
    if (a == NULL) {
        return NULL;
    }
    if (a->is_away || !is_gang(p, a)) {
        const char *bar = a->streams[ERR].bar;
        if (bar[0] == '\0') {
            bar = a->streams[OUT].bar;
        }
        return i == 0 ? bar : NULL;
    }
    if (i == 0) {
        STK_BUF_AUTO path = STK_BUF_INIT(1u << 16);
        put_folder(p, a, &path);
        stk_line_read_bars(stk_text_or(path.data, ""), &p->bars);
    }
    return i < p->bars.n ? p->bars.lines[i] : NULL;
}

/* Opens the log once it has content: most tasks write nothing. Returns whether it opened a file
 * that it hadn't open before. */
static bool open_log(const stk_prints *p, attempt *a, int k)
{
    stream *s = &a->streams[k];
    struct stat here, opened;
    STK_BUF_AUTO path = STK_BUF_INIT(1u << 16);
    put_folder(p, a, &path);
    stk_buf_printf(&path, "/%s.log", names[k]);
    if (path.failed || stat(path.data, &here) < 0 || here.st_size == 0 ||
        (s->fd >= 0 && fstat(s->fd, &opened) == 0 && opened.st_ino == here.st_ino)) {
        return false;
    }
    stk_file_close(&s->fd);
    s->fd = stk_file_open_regular(path.data, O_RDONLY, 0);
    s->at = 0;
    return s->fd >= 0;
}

/* Prints whole lines. Prints an unfinished line only if it fills a chunk or the task has ended. */
static void read_log(stk_prints *p, attempt *a, int k)
{
    stream *s = &a->streams[k];
    struct stat st;
    if (s->fd < 0) {
        (void)open_log(p, a, k);
    }
    if (s->fd < 0 || fstat(s->fd, &st) < 0 || (st.st_size == s->seen && !a->is_over)) {
        return;
    }
    char data[CHUNK];
    s->seen = -1;
    while (p->room > 0) {
        off_t next = lseek(s->fd, s->at, SEEK_DATA); /* a log may have a hole of terabytes */
        s->at = MAX(next, s->at);
        if (next < 0 && errno == ENXIO) {
            s->at = MAX(s->at, st.st_size);
        }
        ssize_t n = pread(s->fd, data, sizeof data, s->at);
        if (n <= 0) {
            s->seen = s->at;
            return;
        }
        const char *last = memrchr(data, '\n', (size_t)n);
        size_t whole = (size_t)n;
        if (last != NULL) {
            whole = (size_t)(last - data) + 1;
        } else if (!a->is_over && n < CHUNK) {
            s->seen = s->at + n;
            keep_bar(s, data, (size_t)n);
            return;
        }
        put_lines(p, a, k, data, whole);
        if (last == NULL && n < CHUNK && p->out[k].len > 0 &&
            p->out[k].data[p->out[k].len - 1] != '\n') {
            stk_buf_char(&p->out[k], '\n');
        }
        s->bar[0] = '\0';
        s->at += (off_t)whole;
        p->room -= MIN(p->room, whole);
    }
}

/* Prints what the attempt has written. Returns whether all of it is printed. */
static bool read_logs(stk_prints *p, attempt *a)
{
    p->room = AT_ONCE;
    if (a->is_over && a->is_away && !a->is_final) {
        bool is_new = open_log(p, a, OUT);
        is_new = open_log(p, a, ERR) || is_new;
        a->is_replaced = is_new && a->printed.n > 0;
        a->is_final = true;
    }
    read_log(p, a, OUT);
    if (!a->is_away || a->is_over) { /* there stdout.log has both until the end */
        read_log(p, a, ERR);
    }
    return p->room > 0;
}

/* --- tasks --- */

static void begin_attempt(stk_prints *p, const stk_event_row *row)
{
    if (stk_array_reserve(&p->items, &p->cap, p->n + 1, sizeof *p->items) < 0) {
        return; /* its lines stay in its log */
    }
    attempt *a = &p->items[p->n++];
    *a = (attempt){.task = row->task, .number = row->attempt, .end = STK_BUF_INIT(1u << 16)};
    a->streams[OUT] = a->streams[ERR] = (stream){.fd = -1};
    p->n_running++;
    for (uint32_t i = 0; p->n_running > 1 && i < p->n; i++) {
        p->items[i].is_shared = true;
    }
}

void stk_prints_started(stk_prints *p, uint32_t task, int64_t pid)
{
    attempt *a = find_attempt(p, task);
    if (a == NULL || a->is_known) {
        return;
    }
    a->pid = pid;
    a->is_known = true;
    a->is_away = pid <= 0;
    if (!p->config.flow) {
        return;
    }
    flow_prefix(p, task, pid, &p->out[OUT]);
    stk_buf_text(&p->out[OUT], "Started");
    if (a->number > 1) {
        stk_buf_printf(&p->out[OUT], ", attempt %u", a->number);
    }
    stk_buf_text(&p->out[OUT], ".\n");
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

/* Adds one sentence: how the task ended, and why. */
static void say_end(const stk_prints *p, const stk_event_row *row, int64_t pid, stk_buf *out)
{
    const stk_view_task *task = stk_view_get_task(p->view, row->task);
    char took[32];
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    stk_units_format_duration(stk_show_took_ms(task->started_ms, task->ended_ms, 0), took,
                              sizeof took);
    flow_prefix(p, row->task, pid, out);
    if (row->kind == STK_EV_TASK_SUCCEEDED) {
        stk_buf_printf(out, "Finished successfully after %s.\n", took);
    } else if (row->kind == STK_EV_TASK_CACHED) {
        say_cached(stk_json_read(scratch, row->data), out, task);
    } else if (row->kind == STK_EV_TASK_FAILED) {
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

static void end_attempt(stk_prints *p, const stk_event_row *row)
{
    attempt *a = find_attempt(p, row->task);
    int k = row->kind == STK_EV_TASK_FAILED ? ERR : OUT;
    if (a == NULL) {
        if (p->config.flow) {
            say_end(p, row, 0, &p->out[k]);
        }
        return;
    }
    a->is_over = true;
    a->end_is_error = k == ERR;
    p->n_running--;
    if (p->config.flow) {
        say_end(p, row, a->pid, &a->end);
    }
}

void stk_prints_event(stk_prints *p, const stk_event_row *row)
{
    switch (row->kind) {
    case STK_EV_TASK_STARTED:
        begin_attempt(p, row);
        break;
    case STK_EV_TASK_SUCCEEDED:
    case STK_EV_TASK_CACHED:
    case STK_EV_TASK_FAILED:
    case STK_EV_TASK_SKIPPED:
    case STK_EV_TASK_CANCELLED:
        end_attempt(p, row);
        break;
    default:
        break;
    }
}

/* Reads all logs. Drops attempts that are over and printed. Returns whether there is more to
 * read. */
static bool read_all(stk_prints *p)
{
    bool more = false;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        attempt *a = &p->items[i];
        bool is_done = (a->is_known || a->is_over) ? read_logs(p, a) : true;
        more = more || !is_done;
        if (!a->is_over || !is_done) {
            p->items[kept++] = *a;
            continue;
        }
        stk_buf_add(&p->out[a->end_is_error ? ERR : OUT], stk_text_or(a->end.data, ""), a->end.len);
        close_attempt(a);
    }
    p->n = kept;
    return more;
}

int64_t stk_prints_tick(stk_prints *p, int64_t now_ms)
{
    int64_t since = now_ms - p->looked_ms;
    if (stk_writer_is_busy(p->writer)) {
        return BUSY_MS;
    }
    if (since < 0 || since >= LOOK_MS || stk_prints_is_behind(p)) {
        p->looked_ms = now_ms;
        since = 0;
        if (read_all(p)) {
            p->looked_ms = 0;
            return BUSY_MS;
        }
    }
    return p->n == 0 ? -1 : LOOK_MS - since;
}
