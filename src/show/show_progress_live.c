/* The live lines below the others: what runs now, and the run's progress. */
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/text.h"
#include "base/units.h"
#include "show/eta.h"
#include "show/show_private.h"
#include "show/show_progress_private.h"

enum { BAR = 24 };

static void measure(stk_progress *p)
{
    struct winsize size = {0};
    int fd = fileno(p->config.out);
    if (p->config.columns > 0) {
        p->style.columns = p->config.columns;
    } else if (ioctl(fd < 0 ? STDERR_FILENO : fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        p->style.columns = MAX(size.ws_col, 20);
    } else {
        p->style.columns = 80;
    }
    p->rows = 24;
    if (p->config.rows > 0) {
        p->rows = p->config.rows;
    } else if (size.ws_row > 0) {
        p->rows = size.ws_row;
    }
}

/* Moves the cursor up to the first live line. Lines drawn on a wider terminal may have wrapped
 * since, so count the rows that they take at the current width. */
static void rewind_frame(stk_progress *p)
{
    int up = 0;
    for (int i = 0; i < p->n_widths; i++) {
        up += MAX(1, (p->widths[i] + p->style.columns - 1) / p->style.columns);
    }
    if (up > 0) {
        stk_buf_printf(&p->frame, "\r\033[%dA", up);
    }
    p->n_widths = 0;
}

/* Adds a live line: cuts it to the terminal, clears the rest of the row and records its width. */
static void live_line(stk_progress *p, stk_ink ink, const char *text)
{
    STK_BUF_AUTO cut = STK_BUF_INIT(1u << 16);
    stk_text_fit(&cut, text, p->style.columns - 1, false, p->style.utf8);
    stk_text_ink(&p->frame, &p->style, ink, stk_text_or(cut.data, ""));
    stk_buf_text(&p->frame, "\033[K\n");
    if (p->n_widths == p->cap_widths) {
        int cap = MAX(16, p->cap_widths * 2);
        int *widths = realloc(p->widths, (size_t)cap * sizeof *widths);
        if (widths == NULL) {
            return;
        }
        p->widths = widths;
        p->cap_widths = cap;
    }
    p->widths[p->n_widths++] = stk_text_width(stk_text_or(cut.data, ""));
}

static int name_columns(const stk_progress *p)
{
    return p->style.columns >= 70 ? STK_PROGRESS_NAME : p->style.columns / 3;
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
    stk_text_fit(&line, task->title, name_columns(p), true, p->style.utf8);
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

/* "    epoch 3:  45%|████▌     | 450/1000" below the task's line, one for each rank; at most
 * `room`. Returns how many there are. */
static uint32_t task_bars(stk_progress *p, uint32_t i_task, uint32_t room)
{
    uint32_t n = 0;
    while (p->config.bar != NULL && n < room) {
        const char *bar = p->config.bar(p->config.bar_arg, i_task, n);
        if (stk_text_or(bar, "")[0] == '\0') {
            break;
        }
        STK_BUF_AUTO line = STK_BUF_INIT(1u << 16);
        stk_buf_printf(&line, "    %s", bar);
        live_line(p, STK_INK_DIM, line.data);
        n++;
    }
    return n;
}

/* "▶ work ×1,000        12.3 s  123 done, 8 running, 2 failed" */
static void wide_line(stk_progress *p, uint32_t i_step, int64_t now_ms)
{
    const stk_view_step *step = stk_view_get_step(p->view, i_step);
    STK_BUF_AUTO line = STK_BUF_INIT(1u << 16);
    STK_BUF_AUTO name = STK_BUF_INIT(4096);
    char text[32];
    stk_ink ink;
    int64_t ms = MAX(now_ms - step->started_ms, 0);
    stk_buf_printf(&line, "%s ", stk_text_mark("running", p->style.utf8, &ink));
    stk_text_fit(&line, stk_progress_wide_name(p, i_step, &name), name_columns(p), true,
                 p->style.utf8);
    stk_buf_printf(&line, " %9s", stk_units_format_duration(ms, text, sizeof text));
    stk_buf_printf(&line, "  %s done", stk_text_count(stk_show_n_final(step), text, sizeof text));
    stk_buf_printf(&line, ", %u running", step->by_state[STK_TASK_RUNNING]);
    if (step->by_state[STK_TASK_FAILED] > 0) {
        stk_buf_printf(&line, ", %u failed", step->by_state[STK_TASK_FAILED]);
    }
    live_line(p, STK_INK_PLAIN, line.data);
}

/* Adds the lines of wide steps that run, at most `room`. Returns how many there are. */
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
        if (stk_state_is_final(state)) {
            done += run->n[state];
        }
    }
    int width = p->style.columns >= 60 ? BAR : p->style.columns / 3;
    int full = n > 0 ? (int)((uint64_t)done * (uint64_t)width / n) : 0;
    STK_BUF_AUTO line = STK_BUF_INIT(1u << 16);
    for (int i = 0; i < width; i++) {
        static const char *const marks[2][2] = {{"-", "#"}, {"╌", "━"}};
        stk_buf_text(&line, marks[p->style.utf8][i < full]);
    }
    char a[32], b[32];
    /* In a growing run, counts the tasks known so far. */
    stk_buf_printf(&line, "  %s/%s %ss", stk_text_count(done, a, sizeof a),
                   stk_text_count(n, b, sizeof b), stk_show_noun(p->view));
    if (run->n[STK_TASK_RUNNING] > 0) {
        stk_buf_printf(&line, ", %u running", run->n[STK_TASK_RUNNING]);
    }
    if (run->n[STK_TASK_FAILED] > 0) {
        stk_buf_printf(&line, ", %u failed", run->n[STK_TASK_FAILED]);
    }
    int64_t start = run->started_ms != 0 ? run->started_ms : run->created_ms;
    if (start > 0 && now_ms >= start) {
        stk_buf_printf(&line, "  %s", stk_units_format_duration(now_ms - start, a, sizeof a));
    }
    int64_t left_ms = stk_eta_left_ms(p->config.eta, now_ms);
    if (left_ms >= 0) {
        stk_buf_printf(&line, ", %s", stk_eta_text(left_ms, a, sizeof a));
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

void stk_progress_erase_live(stk_progress *p)
{
    if (p->n_widths > 0) {
        stk_buf_clear(&p->frame);
        rewind_frame(p);
        stk_buf_text(&p->frame, "\033[J");
        put_out(p, &p->frame);
    }
}

void stk_progress_draw(stk_progress *p, bool live, int64_t now_ms)
{
    measure(p);
    stk_progress_add_cached(p);
    stk_buf_clear(&p->frame);
    bool had = p->n_widths > 0;
    rewind_frame(p);
    if (had && p->pending.len > 0) {
        stk_buf_text(&p->frame, "\033[J"); /* plain lines may be shorter than live ones */
    }
    stk_buf_add(&p->frame, p->pending.data, p->pending.len);
    stk_buf_clear(&p->pending);
    if (live) {
        uint32_t room = (uint32_t)MAX(1, MIN(p->rows - 3, 16));
        room -= wide_lines(p, room - 1, now_ms);
        uint32_t n = p->n_running;
        if (n > room) {
            n = room - 1;
        }
        room -= n; /* for bars */
        for (uint32_t i = 0; i < n; i++) {
            task_line(p, p->running[i], now_ms);
            room -= task_bars(p, p->running[i], room);
        }
        if (n < p->n_running) {
            char text[64];
            (void)snprintf(text, sizeof text, "  and %u more running", p->n_running - n);
            live_line(p, STK_INK_DIM, text);
        }
        bar_line(p, now_ms);
    }
    if (had) {
        stk_buf_text(&p->frame, "\033[J"); /* there may be fewer live lines than before */
    }
    put_out(p, &p->frame);
    p->drawn_ms = now_ms;
    p->dirty = false;
}
