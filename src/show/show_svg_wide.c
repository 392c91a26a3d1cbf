/* When tasks ran, with alike ones in one row. */
#include <stdlib.h>
#include <sys/param.h>

#include "show/show_private.h"
#include "show/show_svg.h"
#include "show/show_text.h"

enum {
    WIDTH = 1060,
    LABEL = 170,
    ROW = 34,    /* height of a group's row */
    BAND = 24,   /* of its band at the maximum */
    SINGLE = 24, /* of a row with one task */
    AXIS = 26,
    BUCKETS = 280,
    MAX_ROWS = 60,
    MAX_MARKS = 100 /* failures marked per row */
};

/* The average number of a row's tasks that ran in each bucket of time. */
typedef struct band {
    double part[BUCKETS + 2];   /* share of tasks that began or ended in it */
    int32_t whole[BUCKETS + 2]; /* tasks that ran throughout it; add_task stores the changes */
    double highest;
    uint32_t at_once; /* the most tasks at one moment */
} band;

/* A task begins (by 1) or ends (by -1). */
typedef struct change {
    int64_t ms;
    uint32_t row;
    int32_t by;
} change;

/* A group, or one task. */
typedef struct row {
    const stk_alike_group *group; /* NULL: one task */
    uint32_t task;                /* the first that ran */
    band band;
} row;

typedef struct rows {
    row *items;
    uint32_t n;
    uint32_t *of; /* by task; UINT32_MAX: it didn't run */
} rows;

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

/* The rows in the order in which their first tasks started. */
static int find_rows(const stk_view *view, const stk_alike *alike, rows *ret, stk_arena *arena,
                     stk_err *err)
{
    uint32_t n = stk_view_n_tasks(view), n_changes = 0;
    change *starts = stk_arena_array(arena, (size_t)n + 1, sizeof *starts);
    uint32_t *row_of_group = stk_arena_array(arena, (size_t)alike->n + 1, sizeof *row_of_group);
    ret->of = stk_arena_array(arena, (size_t)n + 1, sizeof *ret->of);
    ret->items = stk_arena_array(arena, MAX_ROWS, sizeof *ret->items);
    if (starts == NULL || row_of_group == NULL || ret->of == NULL || ret->items == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < n; i++) {
        ret->of[i] = UINT32_MAX;
        if (stk_view_get_task(view, i)->started_ms > 0) {
            starts[n_changes++] = (change){stk_view_get_task(view, i)->started_ms, i, 0};
        }
    }
    qsort(starts, n_changes, sizeof *starts, by_time);
    for (uint32_t k = 0; k < n_changes; k++) {
        uint32_t i = starts[k].row, g = alike->of[i];
        bool is_known = g != UINT32_MAX && row_of_group[g] > 0;
        if (!is_known && ret->n == MAX_ROWS) {
            if (!stk_view_grows(view)) {
                return STK_E_LIMIT;
            }
            continue; /* the first rows of a growing run */
        }
        if (!is_known) {
            ret->items[ret->n++].task = i;
        }
        if (!is_known && g != UINT32_MAX) {
            ret->items[ret->n - 1].group = &alike->groups[g];
            row_of_group[g] = ret->n;
        }
        ret->of[i] = g == UINT32_MAX ? ret->n - 1 : row_of_group[g] - 1;
    }
    return 0;
}

static int fill(const stk_view *view, const stk_svg_span *s, int64_t now_ms, const rows *r,
                stk_arena *arena)
{
    change *changes =
        stk_arena_array(arena, 2 * (size_t)stk_view_n_tasks(view) + 1, sizeof *changes);
    uint32_t n = 0;
    for (uint32_t i = 0; changes != NULL && i < stk_view_n_tasks(view); i++) {
        const stk_view_task *task = stk_view_get_task(view, i);
        uint32_t k = r->of[i];
        if (k != UINT32_MAX) {
            int64_t end = end_of(task, now_ms);
            add_task(s, task->started_ms, end, &r->items[k].band);
            changes[n++] = (change){task->started_ms, k, 1};
            changes[n++] = (change){MAX(end, task->started_ms + 1), k, -1};
        }
    }
    if (changes == NULL) {
        return -1;
    }
    qsort(changes, n, sizeof *changes, by_time);
    uint32_t running[MAX_ROWS] = {0};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = changes[i].row;
        running[k] += (uint32_t)changes[i].by;
        r->items[k].band.at_once = MAX(running[k], r->items[k].band.at_once);
    }
    for (uint32_t k = 0; k < r->n; k++) {
        band *b = &r->items[k].band;
        for (int i = 0, whole = 0; i < BUCKETS; i++) {
            whole += b->whole[i];
            b->part[i] += whole;
            b->highest = MAX(b->part[i], b->highest);
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

/* A group has its failed tasks first. */
static void draw_failures(const stk_view *view, const stk_alike_group *group, const stk_svg_span *s,
                          double top, stk_buf *out)
{
    uint32_t n = group->sum.by_state[STK_TASK_FAILED];
    for (uint32_t i = 0; i < n && i < MAX_MARKS; i++) {
        const stk_view_task *task = stk_view_get_task(view, group->tasks[i]);
        stk_buf_printf(out,
                       "<circle class=\"bar s-failed\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\">"
                       "<title>",
                       stk_svg_x_of(s, task->ended_ms), top + 2);
        stk_buf_html(out, task->title);
        stk_buf_text(out, " failed</title></circle>");
    }
}

static void draw_group(const stk_view *view, const row *r, const stk_svg_span *s, double top,
                       stk_buf *out)
{
    const stk_view_step *sum = &r->group->sum;
    char a[32], c[32];
    stk_svg_row_label(r->group->name, LABEL - 10, top + 12, out);
    stk_buf_printf(out, "<text class=\"row sub\" x=\"%d\" y=\"%.1f\">×%s, %s at once</text>",
                   LABEL - 10, top + 25, stk_text_count(sum->n, a, sizeof a),
                   stk_text_count(r->band.at_once, c, sizeof c));
    /* Failed tasks have marks of their own, so the band keeps the colour of the others. */
    stk_task_state state = stk_view_worst(sum);
    if (state == STK_TASK_FAILED && sum->by_state[STK_TASK_FAILED] < sum->n) {
        state = STK_TASK_SUCCEEDED;
    }
    draw_band(s, &r->band, stk_state_word(state), top, out);
    draw_failures(view, r->group, s, top, out);
    stk_buf_char(out, '\n');
}

static double height_of(const row *r)
{
    return r->group != NULL ? ROW : SINGLE;
}

int stk_svg_wide_timeline(const stk_view *view, const stk_alike *alike, int64_t now_ms,
                          stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    rows r = {0};
    int64_t from = INT64_MAX, to = 0;
    double height = 4, top = 5;
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(find_rows(view, alike, &r, arena, err));
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
    to = MAX(to, from + 1);
    stk_svg_span s = {from, (double)(to - from) / 1000, LABEL, WIDTH - LABEL - 24};
    if (fill(view, &s, now_ms, &r, arena) < 0) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory for the timeline");
    }
    for (uint32_t k = 0; k < r.n; k++) {
        height += height_of(&r.items[k]);
    }
    stk_buf_printf(out,
                   "<svg class=\"timeline\" viewBox=\"0 0 %d %.0f\" role=\"img\" "
                   "aria-label=\"when the tasks of each step ran\">\n",
                   WIDTH, height + AXIS);
    stk_svg_axis(&s, height, out);
    for (uint32_t k = 0; k < r.n; k++) {
        const row *one = &r.items[k];
        if (one->group != NULL) {
            draw_group(view, one, &s, top, out);
        } else {
            stk_svg_row_label(stk_view_get_task(view, one->task)->title, LABEL - 10, top + 11, out);
            stk_svg_bar(view, &s, one->task, now_ms, top, SINGLE - 10, out);
        }
        top += height_of(one);
    }
    stk_buf_text(out, "</svg>\n");
    return 0;
}
