#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "base/units.h"
#include "show/show_private.h"
#include "show/show_progress_private.h"
#include "show/show_text.h"
#include "sys/file.h"

enum {
    DRAW_MS = 100, /* between drawings after an event */
    IDLE_MS = 200, /* between drawings when only the clocks move */
    MANY = 200,    /* in runs with more tasks, cached and skipped ones are only counted */
    FAILURES = 20  /* that a wide step lists */
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
    p->n_reported =
        calloc((size_t)stk_spec_n_steps(stk_view_spec(view)) + 1, sizeof *p->n_reported);
    if (p->n_reported == NULL) {
        free(p);
        return NULL;
    }
    return p;
}

static bool is_big(const stk_progress *p)
{
    return !stk_view_grows(p->view) && stk_view_n_tasks(p->view) > MANY;
}

/* True if the step, of a growing run, has so many tasks that they share its lines. */
static bool is_wide(const stk_progress *p, const stk_view_task *task)
{
    return stk_view_grows(p->view) && stk_view_is_wide(p->view, task->i_step);
}

static void add_running(stk_progress *p, uint32_t task)
{
    for (uint32_t i = 0; i < p->n_running; i++) {
        if (p->running[i] == task) {
            return; /* it has a line from an earlier attempt */
        }
    }
    if (p->n_running == p->cap_running) {
        uint32_t cap = MAX(16, p->cap_running * 2);
        uint32_t *running = realloc(p->running, cap * sizeof *running);
        if (running == NULL) {
            return; /* out of memory: this task has no live line */
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

/* "✓ train            done     3.10 s" on a terminal, "done train 3.10 s" in a pipe. */
static void plain_line(stk_progress *p, const char *status, const char *word, const char *name,
                       const char *more)
{
    stk_buf *out = &p->pending;
    if (p->config.tty) {
        stk_ink ink;
        const char *mark = stk_text_mark(status, p->style.utf8, &ink);
        stk_text_ink(out, &p->style, ink, mark);
        stk_buf_char(out, ' ');
        stk_text_fit(out, name, STK_PROGRESS_NAME, true, p->style.utf8);
        stk_buf_char(out, ' ');
    } else {
        stk_buf_printf(out, "%-9s ", word);
        stk_text_safe(out, name, "");
        stk_buf_char(out, ' ');
    }
    stk_text_safe(out, more, "    ");
    stk_text_end_line(out);
}

/* `word`, or nothing in a pipe, where the line has begun with it. */
static const char *on_terminal(const stk_progress *p, const char *word)
{
    return p->config.tty ? word : "";
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
    /* On a terminal the name column has room for the label only; in a pipe the name says more. */
    const char *name = task->title;
    if (!p->config.tty && arena != NULL) {
        name = stk_view_who(p->view, row->task, arena);
    }
    if (is_final) {
        stk_buf_printf(&more, "failed: %s (%s)", stk_text_or(text, "?"), took);
        plain_line(p, "failed", "failed", name, stk_text_or(more.data, "failed"));
    } else {
        stk_buf_printf(&more, "failed, will be tried again: %s (%s)", stk_text_or(text, "?"), took);
        plain_line(p, "retrying", "retry", name, stk_text_or(more.data, "failed"));
    }
}

/* --- wide steps: a line when they begin, a line when all of their tasks are over --- */

const char *stk_progress_wide_name(const stk_progress *p, uint32_t i_step, stk_buf *out)
{
    char count[32];
    stk_buf_printf(out, "%s %s%s", stk_spec_step(stk_view_spec(p->view), i_step)->name,
                   stk_text_times(p->style.utf8),
                   stk_text_count(stk_view_get_step(p->view, i_step)->n, count, sizeof count));
    return stk_text_or(out->data, "");
}

static void wide_started(stk_progress *p, uint32_t i_step)
{
    STK_BUF_AUTO name = STK_BUF_INIT(4096);
    if (p->n_reported[i_step] == 0 && !p->config.tty) {
        plain_line(p, "running", "start", stk_progress_wide_name(p, i_step, &name), "");
    }
    p->n_reported[i_step] = MAX(p->n_reported[i_step], 1);
}

/* Waits until MANY / 10 more tasks have ended since the last line: in a loop that adds tasks one at
 * a time, every task would add a line. */
static void wide_ended(stk_progress *p, uint32_t i_step)
{
    const stk_view_step *step = stk_view_get_step(p->view, i_step);
    STK_BUF_AUTO name = STK_BUF_INIT(4096);
    STK_BUF_AUTO more = STK_BUF_INIT(4096);
    char took[32];
    if (stk_show_n_final(step) < step->n || step->n < p->n_reported[i_step] + MANY / 10) {
        return;
    }
    int64_t ms = stk_show_took_ms(step->started_ms, step->ended_ms, 0);
    stk_buf_printf(&more, "%s, ", stk_units_format_duration(ms, took, sizeof took));
    stk_show_counts(step, &more);
    const char *status = stk_state_word(stk_view_worst(step));
    const char *word = strcmp(status, "succeeded") == 0 ? "done" : status;
    plain_line(p, status, word, stk_progress_wide_name(p, i_step, &name),
               stk_text_or(more.data, ""));
    p->n_reported[i_step] = step->n;
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
        drop_running(p, row->task); /* it has a live line if the step wasn't wide when it started */
        wide_ended(p, task->i_step);
    }
}

static void task_event(stk_progress *p, const stk_event_row *row)
{
    const stk_view_task *task = stk_view_get_task(p->view, row->task);
    const char *name = task->title;
    char took[32];
    int64_t ms = stk_show_took_ms(task->started_ms, task->ended_ms, 0);
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
        p->cached_unreported += is_big(p);
        if (!is_big(p)) {
            plain_line(p, "cached", "cached", name, on_terminal(p, "cached"));
        }
        break;
    case STK_EV_TASK_CANCELLED:
        if (task->started_ms > 0) {
            plain_line(p, "cancelled", "cancelled", name, on_terminal(p, "cancelled"));
        }
        break;
    default: /* the summary lists skipped ones */
        break;
    }
    drop_running(p, row->task);
}

static void note_line(stk_progress *p, const char *text)
{
    if (text != NULL && !p->config.quiet) {
        const char *mark = p->config.tty ? "!" : "note";
        stk_text_ink(&p->pending, &p->style, STK_INK_WARN, mark);
        stk_buf_text(&p->pending, p->config.tty ? " " : "      ");
        stk_text_safe(&p->pending, text, "  ");
        stk_buf_char(&p->pending, '\n');
        p->dirty = true;
    }
}

/* Many jobs wait for the same. */
static bool was_said(stk_progress *p, const stk_json *data)
{
    const char *text = stk_json_get_text(data, "text");
    if (text == NULL || stk_json_get(data, "waits") == NULL) {
        return false;
    }
    if (p->wait != NULL && strcmp(p->wait, text) == 0) {
        return true;
    }
    free(p->wait);
    p->wait = strdup(text); /* NULL: it is said again */
    return false;
}

void stk_progress_add_cached(stk_progress *p)
{
    char count[32];
    if (p->cached_unreported > 0) {
        stk_ink ink;
        const char *mark = "cached   ";
        if (p->config.tty) {
            mark = stk_text_mark("cached", p->style.utf8, &ink);
        }
        stk_text_ink(&p->pending, &p->style, STK_INK_GOOD, mark);
        stk_buf_printf(&p->pending, " %s steps%s\n",
                       stk_text_count(p->cached_unreported, count, sizeof count),
                       on_terminal(p, " cached"));
        p->cached_unreported = 0;
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
        if (!was_said(p, data)) {
            note_line(p, stk_json_get_text(data, "text"));
        }
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

int64_t stk_progress_tick(stk_progress *p, int64_t now_ms)
{
    if (p->config.quiet) {
        return -1;
    }
    if (p->drawn_ms < 0) {
        p->drawn_ms = now_ms; /* draw first after 0.1 s: a short run doesn't flicker */
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
    stk_progress_draw(p, live, now_ms);
    return runs ? IDLE_MS : -1;
}

void stk_progress_erase(stk_progress *p)
{
    if (!p->config.quiet) {
        stk_progress_erase_live(p);
    }
}

void stk_progress_redraw(stk_progress *p, int64_t now_ms)
{
    if (!p->config.quiet && p->drawn_ms >= 0) {
        stk_progress_draw(p, p->config.tty, now_ms);
    }
}

void stk_progress_clear(stk_progress *p)
{
    if (!p->config.quiet) {
        stk_progress_draw(p, false, p->drawn_ms);
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
    free(p->n_reported);
    free(p->widths);
    free(p->wait);
    free(p);
}
