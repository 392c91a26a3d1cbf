/* When the tasks of a growing run ran, by step. */
#include <stdlib.h>
#include <sys/param.h>

#include "show/show_private.h"
#include "show/show_svg.h"
#include "show/show_text.h"

enum {
    WIDTH = 1060,
    LABEL = 170,
    ROW = 34,
    BAND = 24, /* height of a row's band at its maximum */
    AXIS = 26,
    BUCKETS = 280,
    MAX_STEPS = 60,
    MAX_MARKS = 100 /* failures marked per step */
};

/* The average number of tasks of one step that ran in each bucket of time. */
typedef struct band {
    double part[BUCKETS + 2];   /* share of tasks that began or ended in it */
    int32_t whole[BUCKETS + 2]; /* tasks that ran throughout it; add_task stores the changes */
    double highest;
    uint32_t at_once; /* the most tasks at one moment */
} band;

/* A task begins (by 1) or ends (by -1). */
typedef struct change {
    int64_t ms;
    uint32_t step;
    int32_t by;
} change;

static int by_time(const void *a, const void *b)
{
    const change *x = a, *y = b;
    int by = (x->ms > y->ms) - (x->ms < y->ms);
    return by == 0 ? x->by - y->by : by; /* ends come first */
}

static int64_t end_of(const stk_view_task *task, int64_t now_ms)
{
    return task->started_ms + stk_show_took_ms(task->started_ms, task->ended_ms, now_ms);
}

static double place_of(const stk_svg_span *s, int64_t ms)
{
    return (stk_svg_x_of(s, ms) - s->left) / s->width * BUCKETS;
}

static void add_task(const stk_svg_span *s, int64_t from_ms, int64_t to_ms, band *b)
{
    double from = place_of(s, from_ms), to = place_of(s, to_ms);
    to = MAX(to, from + 0.05); /* wide enough to be visible */
    int i = (int)from, k = (int)to;
    if (i == k) {
        b->part[i] += to - from;
        return;
    }
    b->part[i] += i + 1 - from;
    b->part[k] += to - k;
    b->whole[i + 1]++;
    b->whole[k]--;
}

static int fill(const stk_view *view, const stk_svg_span *s, int64_t now_ms, band *bands,
                stk_arena *arena)
{
    change *changes =
        stk_arena_array(arena, 2 * (size_t)stk_view_n_tasks(view) + 1, sizeof *changes);
    uint32_t n = 0;
    for (uint32_t i = 0; changes != NULL && i < stk_view_n_tasks(view); i++) {
        const stk_view_task *task = stk_view_get_task(view, i);
        if (task->started_ms > 0 && task->i_step < MAX_STEPS) {
            int64_t end = end_of(task, now_ms);
            add_task(s, task->started_ms, end, &bands[task->i_step]);
            changes[n++] = (change){task->started_ms, task->i_step, 1};
            changes[n++] = (change){MAX(end, task->started_ms + 1), task->i_step, -1};
        }
    }
    if (changes == NULL) {
        return -1;
    }
    qsort(changes, n, sizeof *changes, by_time);
    uint32_t running[MAX_STEPS] = {0};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = changes[i].step;
        running[k] += (uint32_t)changes[i].by;
        bands[k].at_once = MAX(running[k], bands[k].at_once);
    }
    for (uint32_t k = 0; k < MAX_STEPS; k++) {
        for (int i = 0, whole = 0; i < BUCKETS; i++) {
            whole += bands[k].whole[i];
            bands[k].part[i] += whole;
            bands[k].highest = MAX(bands[k].part[i], bands[k].highest);
        }
    }
    return 0;
}

static void draw_band(const stk_svg_span *s, const band *b, const char *status, double top,
                      stk_buf *out)
{
    double base = top + BAND, step = s->width / BUCKETS;
    stk_buf_printf(out, "<path class=\"bar s-%s\" d=\"", status);
    for (int i = 0; i < BUCKETS; i++) {
        if (b->part[i] <= 0) {
            continue;
        }
        stk_buf_printf(out, "M%.1f %.1f", s->left + i * step, base);
        for (; i < BUCKETS && b->part[i] > 0; i++) {
            stk_buf_printf(out, "V%.1fH%.1f", base - b->part[i] / b->highest * BAND,
                           s->left + (i + 1) * step);
        }
        stk_buf_printf(out, "V%.1fz", base);
    }
    stk_buf_text(out, "\"/>");
}

static void draw_failures(const stk_view *view, uint32_t i_step, const stk_svg_span *s, double top,
                          stk_buf *out)
{
    uint32_t left = stk_view_get_step(view, i_step)->by_state[STK_TASK_FAILED];
    left = MIN(left, MAX_MARKS);
    for (uint32_t i = 0; left > 0 && i < stk_view_n_tasks(view); i++) {
        const stk_view_task *task = stk_view_get_task(view, i);
        if (task->i_step == i_step && task->state == STK_TASK_FAILED) {
            stk_buf_printf(out,
                           "<circle class=\"bar s-failed\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\">"
                           "<title>%s failed</title></circle>",
                           stk_svg_x_of(s, task->ended_ms), top + 2, task->label);
            left--;
        }
    }
}

static void draw_step(const stk_view *view, uint32_t i_step, const band *b, const stk_svg_span *s,
                      double top, stk_buf *out)
{
    const stk_view_step *step = stk_view_get_step(view, i_step);
    char a[32], c[32];
    stk_svg_row_label(stk_spec_step(stk_view_spec(view), i_step)->name, LABEL - 10, top + 12, out);
    if (step->n > 1) {
        stk_buf_printf(out, "<text class=\"row sub\" x=\"%d\" y=\"%.1f\">×%s, %s at once</text>",
                       LABEL - 10, top + 25, stk_text_count(step->n, a, sizeof a),
                       stk_text_count(b->at_once, c, sizeof c));
    }
    /* Failed tasks have marks of their own, so the band keeps the colour of the others. */
    stk_task_state state = stk_view_worst(step);
    if (state == STK_TASK_FAILED && step->by_state[STK_TASK_FAILED] < step->n) {
        state = STK_TASK_SUCCEEDED;
    }
    draw_band(s, b, stk_state_word(state), top, out);
    draw_failures(view, i_step, s, top, out);
    stk_buf_char(out, '\n');
}

int stk_svg_wide_timeline(const stk_view *view, int64_t now_ms, stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_TRY(stk_err_if_null(arena, err));
    band *bands = stk_arena_array(arena, MAX_STEPS, sizeof *bands);
    int64_t from = INT64_MAX, to = 0;
    uint32_t n_rows = 0, n_steps = stk_spec_n_steps(stk_view_spec(view));
    if (bands == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory for the timeline");
    }
    for (uint32_t i = 0; i < stk_view_n_tasks(view); i++) {
        const stk_view_task *task = stk_view_get_task(view, i);
        if (task->started_ms > 0) {
            from = MIN(task->started_ms, from);
            to = MAX(end_of(task, now_ms), to);
        }
    }
    if (from == INT64_MAX) {
        return 0;
    }
    if (to <= from) {
        to = from + 1;
    }
    stk_svg_span s = {from, (double)(to - from) / 1000, LABEL, WIDTH - LABEL - 24};
    if (fill(view, &s, now_ms, bands, arena) < 0) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory for the timeline");
    }
    for (uint32_t k = 0; k < n_steps && k < MAX_STEPS; k++) {
        n_rows += bands[k].at_once > 0;
    }
    double height = n_rows * (double)ROW + 4;
    stk_buf_printf(out,
                   "<svg class=\"timeline\" viewBox=\"0 0 %d %.0f\" role=\"img\" "
                   "aria-label=\"when the tasks of each step ran\">\n",
                   WIDTH, height + AXIS);
    stk_svg_axis(&s, height, out);
    for (uint32_t k = 0, row = 0; k < n_steps && k < MAX_STEPS; k++) {
        if (bands[k].at_once > 0) {
            draw_step(view, k, &bands[k], &s, (double)ROW * row++ + 5, out);
        }
    }
    stk_buf_text(out, "</svg>\n");
    return 0;
}
