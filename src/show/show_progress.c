#include "show/show_progress.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/param.h>

#include "base/text.h"
#include "base/units.h"
#include "show/show_private.h"
#include "show/show_text.h"
#include "sys/file.h"

enum {
    DRAW_MS = 100, /* after an event */
    IDLE_MS = 200, /* only clocks have moved */
    MANY = 200,    /* tasks: above, cached and skipped ones are only counted */
    FAILURES = 20, /* of a wide step that are told one by one */
    NAME = 28,
    BAR = 24
};

struct stk_progress {
    stk_progress_config config;
    stk_style style;
    const stk_view *view;
    uint32_t *running; /* tasks with a live line, in the order they started */
    uint32_t n_running;
    uint32_t cap_running;
    stk_buf pending; /* plain lines to be written */
    stk_buf frame;
    int *widths; /* columns of the live lines that are on the screen now */
    int n_widths;
    int cap_widths;
    int rows;
    int64_t drawn_ms;
    uint32_t cached_unsaid;
    uint32_t *n_said; /* of each step of a growing run: tasks whose lines, or line, were said */
    bool dirty;
};

stk_progress *stk_progress_new(const stk_progress_config *config, const stk_view *view)
{
    stk_progress *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return NULL;
    }
    p->config = *config;
    p->view = view;
    p->style = (stk_style){.colour = config->colour, .utf8 = config->utf8, .columns = 100};
    p->pending = STK_BUF_INIT(64u << 20);
    p->frame = STK_BUF_INIT(64u << 20);
    p->drawn_ms = -1;
    p->n_said = calloc((size_t)stk_spec_n_steps(stk_view_spec(view)) + 1, sizeof *p->n_said);
    if (p->n_said == NULL) {
        free(p);
        return NULL;
    }
    return p;
}

static bool is_big(const stk_progress *p)
{
    return !stk_view_grows(p->view) && stk_view_n_tasks(p->view) > MANY;
}

/* A step of a growing run with so many tasks that it is told as one. */
static bool is_wide(const stk_progress *p, const stk_view_task *task)
{
    return stk_view_grows(p->view) && stk_view_is_wide(p->view, task->i_step);
}

static void add_running(stk_progress *p, uint32_t task)
{
    for (uint32_t i = 0; i < p->n_running; i++) {
        if (p->running[i] == task) {
            return; /* its next attempt */
        }
    }
    if (p->n_running == p->cap_running) {
        uint32_t cap = p->cap_running < 16 ? 16 : p->cap_running * 2;
        uint32_t *running = realloc(p->running, cap * sizeof *running);
        if (running == NULL) {
            return; /* a line less */
        }
        p->running = running;
        p->cap_running = cap;
    }
    p->running[p->n_running++] = task;
}

static void drop_running(stk_progress *p, uint32_t task)
{
    for (uint32_t i = 0; i < p->n_running; i++) {
        if (p->running[i] == task) {
            memmove(p->running + i, p->running + i + 1,
                    (p->n_running - i - 1) * sizeof *p->running);
            p->n_running--;
            return;
        }
    }
}

/* --- plain lines --- */

/* "✓ train            done     3.10 s", or "done train 3.10 s" when piped. */
static void plain_line(stk_progress *p, const char *status, const char *word, const char *name,
                       const char *more)
{
    stk_buf *out = &p->pending;
    if (p->config.tty) {
        stk_ink ink;
        const char *mark = stk_text_mark(status, p->style.utf8, &ink);
        stk_text_ink(out, &p->style, ink, mark);
        stk_buf_char(out, ' ');
        stk_text_fit(out, name, NAME, true, p->style.utf8);
        stk_buf_char(out, ' ');
    } else {
        stk_buf_printf(out, "%-9s ", word);
        stk_text_safe(out, name, "");
        stk_buf_char(out, ' ');
    }
    stk_text_safe(out, more, "    ");
    while (out->len > 0 && out->data[out->len - 1] == ' ') {
        out->len--;
    }
    stk_buf_char(out, '\n');
}

static void failed_line(stk_progress *p, const stk_view_task *task, const stk_event_row *row,
                        const char *took)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *data = stk_json_read(scratch, row->data);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *text = stk_json_get_text(data, "text");
    bool is_final = task->state == STK_TASK_FAILED;
    STK_BUF_AUTO more = STK_BUF_INIT(1u << 16);
    stk_buf_printf(&more, "failed%s: %s (%s)", is_final ? "" : ", will be tried again",
                   stk_text_or(text, "?"), took);
    /* On a terminal the name has a column: there the label alone, in the line's words the rest. */
    const char *name =
        p->config.tty || arena == NULL ? task->label : stk_view_who(p->view, row->task, arena);
    const char *what = stk_text_or(more.data, "failed");
    if (is_final) {
        plain_line(p, "failed", "failed", name, what);
    } else {
        plain_line(p, "retrying", "retry", name, what);
    }
}

/* --- wide steps: a line when they begin, a line when all of their tasks are over --- */

static const char *wide_name(const stk_progress *p, uint32_t i_step, stk_buf *out)
{
    char count[32];
    stk_buf_printf(out, "%s %s%s", stk_spec_step(stk_view_spec(p->view), i_step)->name,
                   p->style.utf8 ? "×" : "x",
                   stk_text_count(stk_view_get_step(p->view, i_step)->n, count, sizeof count));
    return stk_text_or(out->data, "");
}

static void wide_started(stk_progress *p, uint32_t i_step)
{
    STK_BUF_AUTO name = STK_BUF_INIT(4096);
    if (p->n_said[i_step] == 0 && !p->config.tty) {
        plain_line(p, "running", "start", wide_name(p, i_step, &name), "");
    }
    p->n_said[i_step] = MAX(p->n_said[i_step], 1);
}

/* Said once for so many tasks: a loop that ends one at a time says nothing each time. */
static void wide_ended(stk_progress *p, uint32_t i_step)
{
    const stk_view_step *step = stk_view_get_step(p->view, i_step);
    STK_BUF_AUTO name = STK_BUF_INIT(4096);
    STK_BUF_AUTO more = STK_BUF_INIT(4096);
    char took[32];
    if (stk_show_n_final(step) < step->n || step->n < p->n_said[i_step] + MANY / 10) {
        return;
    }
    int64_t ms = step->started_ms > 0 && step->ended_ms > step->started_ms
                     ? step->ended_ms - step->started_ms
                     : 0;
    stk_buf_printf(&more, "%s, ", stk_units_format_duration(ms, took, sizeof took));
    stk_show_counts(step, &more);
    const char *status = stk_state_word(stk_view_worst(step));
    plain_line(p, status, strcmp(status, "succeeded") == 0 ? "done" : status,
               wide_name(p, i_step, &name), stk_text_or(more.data, ""));
    p->n_said[i_step] = step->n;
}

static void wide_event(stk_progress *p, const stk_view_task *task, const stk_event_row *row,
                       const char *took)
{
    const stk_view_step *step = stk_view_get_step(p->view, task->i_step);
    if (row->kind == STK_EV_TASK_STARTED) {
        wide_started(p, task->i_step);
    } else if (row->kind == STK_EV_TASK_FAILED &&
               step->by_state[STK_TASK_FAILED] + step->n_extra <= FAILURES) {
        failed_line(p, task, row, took);
    }
    if (stk_state_is_final(task->state)) {
        drop_running(p, row->task); /* where the step grew wide while it ran */
        wide_ended(p, task->i_step);
    }
}

static void task_event(stk_progress *p, const stk_event_row *row)
{
    const stk_view_task *task = stk_view_get_task(p->view, row->task);
    const char *name = task->label;
    char took[32];
    int64_t ms = task->started_ms > 0 && task->ended_ms > task->started_ms
                     ? task->ended_ms - task->started_ms
                     : 0;
    stk_units_format_duration(ms, took, sizeof took);
    if (is_wide(p, task)) {
        wide_event(p, task, row, took);
        return;
    }
    switch (row->kind) {
    case STK_EV_TASK_STARTED:
        if (!p->config.tty && !is_big(p)) {
            plain_line(p, "running", "start", name, "");
        }
        if (p->config.tty) {
            add_running(p, row->task);
        }
        return;
    case STK_EV_TASK_RETRYING:
        return;
    case STK_EV_TASK_FAILED:
        failed_line(p, task, row, took);
        if (task->state != STK_TASK_FAILED) {
            return;
        }
        break;
    case STK_EV_TASK_SUCCEEDED:
        plain_line(p, "succeeded", "done", name, took);
        break;
    case STK_EV_TASK_CACHED:
        p->cached_unsaid += is_big(p);
        if (!is_big(p)) {
            plain_line(p, "cached", "cached", name, p->config.tty ? "cached" : "");
        }
        break;
    case STK_EV_TASK_CANCELLED:
        if (task->started_ms > 0) {
            plain_line(p, "cancelled", "cancelled", name, p->config.tty ? "cancelled" : "");
        }
        break;
    default: /* skipped ones are explained by the summary */
        break;
    }
    drop_running(p, row->task);
}

static void note_line(stk_progress *p, const char *text)
{
    if (text != NULL && !p->config.quiet) {
        stk_text_ink(&p->pending, &p->style, STK_INK_WARN, p->config.tty ? "!" : "note");
        stk_buf_text(&p->pending, p->config.tty ? " " : "      ");
        stk_text_safe(&p->pending, text, "  ");
        stk_buf_char(&p->pending, '\n');
        p->dirty = true;
    }
}

static void say_cached(stk_progress *p)
{
    char count[32];
    if (p->cached_unsaid > 0) {
        stk_ink ink;
        stk_text_ink(&p->pending, &p->style, STK_INK_GOOD,
                     p->config.tty ? stk_text_mark("cached", p->style.utf8, &ink) : "cached   ");
        stk_buf_printf(&p->pending, " %s steps%s\n",
                       stk_text_count(p->cached_unsaid, count, sizeof count),
                       p->config.tty ? " cached" : "");
        p->cached_unsaid = 0;
    }
}

void stk_progress_event(stk_progress *p, const stk_event_row *row)
{
    if (p->config.quiet) {
        return;
    }
    p->dirty = true;
    switch (row->kind) {
    case STK_EV_TASK_STARTED:
    case STK_EV_TASK_SUCCEEDED:
    case STK_EV_TASK_FAILED:
    case STK_EV_TASK_RETRYING:
    case STK_EV_TASK_CACHED:
    case STK_EV_TASK_SKIPPED:
    case STK_EV_TASK_CANCELLED:
        if (row->task < stk_view_n_tasks(p->view)) {
            task_event(p, row);
        }
        break;
    case STK_EV_NOTE: {
        STK_ARENA_AUTO scratch = stk_arena_new(0);
        const stk_json *data = stk_json_read(scratch, row->data);
        note_line(p, stk_json_get_text(data, "text"));
        break;
    }
    case STK_EV_RUN_CREATED: {
        const stk_view_run *run = stk_view_get_run(p->view);
        for (uint32_t i = 0; i < run->n_notes; i++) {
            note_line(p, run->notes[i]);
        }
        break;
    }
    default:
        break;
    }
}

void stk_progress_note(stk_progress *p, const char *text)
{
    note_line(p, text);
}

/* --- live lines --- */

static void measure(stk_progress *p)
{
    struct winsize size = {0};
    if (p->config.columns > 0) {
        p->style.columns = p->config.columns;
    } else if (ioctl(fileno(p->config.out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        p->style.columns = MAX(size.ws_col, 20);
    } else {
        p->style.columns = 80;
    }
    p->rows = size.ws_row > 0 ? size.ws_row : 24;
    if (p->config.rows > 0) {
        p->rows = p->config.rows;
    }
}

/* The cursor goes up to the first live line. Lines drawn on a wider terminal have wrapped since:
 * they take as many rows as they need now. */
static void rewind_frame(stk_progress *p)
{
    int up = 0;
    for (int i = 0; i < p->n_widths; i++) {
        int w = p->widths[i];
        up += w <= p->style.columns ? 1 : (w + p->style.columns - 1) / p->style.columns;
    }
    if (up > 0) {
        stk_buf_printf(&p->frame, "\r\033[%dA", up);
    }
    p->n_widths = 0;
}

/* Ends a live line: cut to the terminal, rest of the row wiped, its width remembered. */
static void live_line(stk_progress *p, stk_ink ink, const char *text)
{
    STK_BUF_AUTO cut = STK_BUF_INIT(1u << 16);
    stk_text_fit(&cut, text, p->style.columns - 1, false, p->style.utf8);
    stk_text_ink(&p->frame, &p->style, ink, stk_text_or(cut.data, ""));
    stk_buf_text(&p->frame, "\033[K\n");
    if (p->n_widths == p->cap_widths) {
        int cap = p->cap_widths < 16 ? 16 : p->cap_widths * 2;
        int *widths = realloc(p->widths, (size_t)cap * sizeof *widths);
        if (widths == NULL) {
            return;
        }
        p->widths = widths;
        p->cap_widths = cap;
    }
    p->widths[p->n_widths++] = stk_text_width(stk_text_or(cut.data, ""));
}

static void task_line(stk_progress *p, uint32_t i_task, int64_t now_ms)
{
    const stk_view_task *task = stk_view_get_task(p->view, i_task);
    STK_BUF_AUTO line = STK_BUF_INIT(1u << 16);
    char text[32];
    int64_t memory = 0;
    double cpus = 0;
    stk_ink ink;
    const char *status = stk_state_word(task->state);
    stk_buf_printf(&line, "%s ", stk_text_mark(status, p->style.utf8, &ink));
    int name = p->style.columns >= 70 ? NAME : p->style.columns / 3;
    stk_text_fit(&line, task->label, name, true, p->style.utf8);
    if (task->state == STK_TASK_BACKOFF) {
        int64_t left = MAX(task->retry_at_ms - now_ms, 0);
        stk_buf_printf(&line, " next try in %s",
                       stk_units_format_duration(left, text, sizeof text));
    } else {
        int64_t ms = MAX(now_ms - task->started_ms, 0);
        stk_buf_printf(&line, " %9s", stk_units_format_duration(ms, text, sizeof text));
        if (p->config.usage != NULL &&
            p->config.usage(p->config.usage_arg, i_task, &memory, &cpus)) {
            stk_buf_printf(&line, " %9s %5.1f CPU",
                           stk_units_format_memory(memory, text, sizeof text), cpus);
        }
        if (task->attempt > 1) {
            stk_buf_printf(&line, "  attempt %u", task->attempt);
        }
    }
    live_line(p, STK_INK_PLAIN, line.data);
}

/* "▶ work ×1,000        12.3 s  123 done, 8 running, 2 failed" */
static void wide_line(stk_progress *p, uint32_t i_step, int64_t now_ms)
{
    const stk_view_step *step = stk_view_get_step(p->view, i_step);
    STK_BUF_AUTO line = STK_BUF_INIT(1u << 16);
    STK_BUF_AUTO name = STK_BUF_INIT(4096);
    char text[32];
    stk_ink ink;
    int width = p->style.columns >= 70 ? NAME : p->style.columns / 3;
    int64_t ms = MAX(now_ms - step->started_ms, 0);
    stk_buf_printf(&line, "%s ", stk_text_mark("running", p->style.utf8, &ink));
    stk_text_fit(&line, wide_name(p, i_step, &name), width, true, p->style.utf8);
    stk_buf_printf(&line, " %9s", stk_units_format_duration(ms, text, sizeof text));
    stk_buf_printf(&line, "  %s done", stk_text_count(stk_show_n_final(step), text, sizeof text));
    stk_buf_printf(&line, ", %u running", step->by_state[STK_TASK_RUNNING]);
    if (step->by_state[STK_TASK_FAILED] > 0) {
        stk_buf_printf(&line, ", %u failed", step->by_state[STK_TASK_FAILED]);
    }
    live_line(p, STK_INK_PLAIN, line.data);
}

/* Lines of the steps that run wide; at most `room`. */
static uint32_t wide_lines(stk_progress *p, uint32_t room, int64_t now_ms)
{
    uint32_t n = 0, n_steps = stk_spec_n_steps(stk_view_spec(p->view));
    for (uint32_t i = 0; stk_view_grows(p->view) && i < n_steps && n < room; i++) {
        if (stk_view_is_wide(p->view, i) &&
            stk_view_get_step(p->view, i)->by_state[STK_TASK_RUNNING] > 0) {
            wide_line(p, i, now_ms);
            n++;
        }
    }
    return n;
}

/* "━━━━━━━━╌╌╌╌  4/6 steps, 2 running, 1 failed  12.3 s" */
static void bar_line(stk_progress *p, int64_t now_ms)
{
    const stk_view_run *run = stk_view_get_run(p->view);
    uint32_t n = stk_view_n_tasks(p->view), done = 0;
    for (int state = 0; state < STK_TASK_N; state++) {
        done += stk_state_is_final(state) ? run->n[state] : 0;
    }
    int width = p->style.columns >= 60 ? BAR : p->style.columns / 3;
    int full = n > 0 ? (int)((uint64_t)done * (uint64_t)width / n) : 0;
    STK_BUF_AUTO line = STK_BUF_INIT(1u << 16);
    for (int i = 0; i < width; i++) {
        static const char *const marks[2][2] = {{"-", "#"}, {"╌", "━"}};
        stk_buf_text(&line, marks[p->style.utf8][i < full]);
    }
    char a[32], b[32];
    /* Of a growing run: of those that are known by now. */
    stk_buf_printf(&line, "  %s/%s %s", stk_text_count(done, a, sizeof a),
                   stk_text_count(n, b, sizeof b), stk_view_grows(p->view) ? "tasks" : "steps");
    if (run->n[STK_TASK_RUNNING] > 0) {
        stk_buf_printf(&line, ", %u running", run->n[STK_TASK_RUNNING]);
    }
    if (run->n[STK_TASK_FAILED] > 0) {
        stk_buf_printf(&line, ", %u failed", run->n[STK_TASK_FAILED]);
    }
    int64_t start = run->started_ms ? run->started_ms : run->created_ms;
    if (start > 0 && now_ms >= start) {
        stk_buf_printf(&line, "  %s", stk_units_format_duration(now_ms - start, a, sizeof a));
    }
    live_line(p, run->n[STK_TASK_FAILED] > 0 ? STK_INK_BAD : STK_INK_GOOD, line.data);
}

static void put_out(stk_progress *p, const stk_buf *text)
{
    if (text->len > 0) {
        (void)fwrite(text->data, 1, text->len, p->config.out);
        (void)fflush(p->config.out);
    }
}

/* What is above the live lines, then the live lines, in one write. */
static void draw(stk_progress *p, bool live, int64_t now_ms)
{
    measure(p);
    say_cached(p);
    stk_buf_clear(&p->frame);
    bool had = p->n_widths > 0;
    rewind_frame(p);
    if (had && p->pending.len > 0) {
        stk_buf_text(&p->frame, "\033[J"); /* plain lines may be shorter than what they cover */
    }
    stk_buf_add(&p->frame, p->pending.data, p->pending.len);
    stk_buf_clear(&p->pending);
    if (live) {
        uint32_t room = p->rows > 4 ? (uint32_t)p->rows - 3 : 1;
        room = MIN(room, 16);
        room -= wide_lines(p, room - 1, now_ms);
        uint32_t n = p->n_running > room ? room - 1 : p->n_running;
        for (uint32_t i = 0; i < n; i++) {
            task_line(p, p->running[i], now_ms);
        }
        if (n < p->n_running) {
            char text[64];
            (void)snprintf(text, sizeof text, "  and %u more running", p->n_running - n);
            live_line(p, STK_INK_DIM, text);
        }
        bar_line(p, now_ms);
    }
    if (had) {
        stk_buf_text(&p->frame, "\033[J"); /* fewer live lines than before */
    }
    put_out(p, &p->frame);
    p->drawn_ms = now_ms;
    p->dirty = false;
}

int64_t stk_progress_tick(stk_progress *p, int64_t now_ms)
{
    if (p->config.quiet) {
        return -1;
    }
    if (p->drawn_ms < 0) {
        p->drawn_ms = now_ms; /* a run that is over in a tenth of a second doesn't flash */
    }
    bool live = p->config.tty;
    bool runs = live && (p->n_running > 0 || stk_view_get_run(p->view)->n[STK_TASK_RUNNING] > 0);
    if (!p->dirty && !runs) {
        return -1;
    }
    int64_t due = p->drawn_ms + (p->dirty ? DRAW_MS : IDLE_MS);
    if (now_ms < due && now_ms >= p->drawn_ms) {
        return due - now_ms;
    }
    draw(p, live, now_ms);
    return runs ? IDLE_MS : -1;
}

void stk_progress_clear(stk_progress *p)
{
    if (!p->config.quiet) {
        draw(p, false, p->drawn_ms);
        p->dirty = true;
    }
}

void stk_progress_done(stk_progress *p)
{
    if (p == NULL) {
        return;
    }
    stk_progress_clear(p);
    stk_buf_done(&p->pending);
    stk_buf_done(&p->frame);
    free(p->running);
    free(p->n_said);
    free(p->widths);
    free(p);
}
