/* The timeline of a run: when each step ran. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "base/units.h"
#include "show/show_private.h"
#include "show/show_svg.h"
#include "show/show_text.h"

enum {
    WIDTH = 1060,
    LABEL = 170,
    COLUMN = 8, /* of a row's name, about */
    ROW = 24,
    AXIS = 26,
    MAX_ROWS = 60,   /* with more, the bars share lanes without names */
    MAX_BARS = 2000, /* with more, only the longest ones */
    MAX_LANES = 48,
    LANE = 10
};

/* --- axis --- */

/* A round distance that gives at most eight ticks. */
static double tick_step(double span_s)
{
    static const double rounds[] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05,  0.1,   0.2,   0.5,
                                    1,     2,     5,     10,   15,   30,    60,    120,   300,
                                    600,   900,   1800,  3600, 7200, 14400, 21600, 43200, 86400};
    size_t n = sizeof rounds / sizeof *rounds;
    for (size_t i = 0; i < n; i++) {
        if (span_s / rounds[i] <= 8) {
            return rounds[i];
        }
    }
    return ceil(span_s / 8 / 86400) * 86400;
}

static const char *tick_text(double s, double step, char *buf, size_t size)
{
    int h = (int)(s / 3600), m = (int)(s / 60) % 60;
    if (s == 0) {
        (void)snprintf(buf, size, "0");
    } else if (step < 1) {
        (void)snprintf(buf, size, "%.*f s", 1 + (step < 0.1) + (step < 0.01), s);
    } else if (s < 60) {
        (void)snprintf(buf, size, "%.0f s", s);
    } else if (s < 3600) {
        (void)snprintf(buf, size, step < 60 ? "%d:%02d min" : "%d min", m, (int)s % 60);
    } else {
        (void)snprintf(buf, size, step < 3600 ? "%d:%02d h" : "%d h", h, m);
    }
    return buf;
}

double stk_svg_x_of(const stk_svg_span *s, int64_t ms)
{
    double t = (double)(ms - s->from_ms) / 1000 / s->seconds;
    return s->left + MAX(0, MIN(t, 1)) * s->width;
}

void stk_svg_axis(const stk_svg_span *s, double height, stk_buf *out)
{
    double step = tick_step(s->seconds);
    char text[32];
    for (int i = 0; i * step <= s->seconds * 1.0001 && i < 20; i++) {
        double x = s->left + i * step / s->seconds * s->width;
        stk_buf_printf(out,
                       "<line class=\"grid\" x1=\"%.1f\" y1=\"0\" x2=\"%.1f\" y2=\"%.1f\"/>"
                       "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                       x, x, height, x, height + 16, tick_text(i * step, step, text, sizeof text));
    }
}

void stk_svg_row_label(const char *text, double x, double y, stk_buf *out)
{
    STK_BUF_AUTO label = STK_BUF_INIT(1024);
    stk_text_fit(&label, text, (int)(x / COLUMN), false, true);
    stk_buf_printf(out, "<text class=\"row\" x=\"%g\" y=\"%g\">", x, y);
    stk_buf_html(out, stk_text_or(label.data, ""));
    stk_buf_text(out, "</text>");
}

/* --- timeline --- */

typedef struct bar {
    uint32_t task;
    int64_t from_ms, to_ms;
} bar;

static int by_task(const bar *x, const bar *y)
{
    return (x->task > y->task) - (x->task < y->task);
}

static int by_length(const void *a, const void *b)
{
    const bar *x = a, *y = b;
    int64_t lx = x->to_ms - x->from_ms, ly = y->to_ms - y->from_ms;
    return lx == ly ? by_task(x, y) : (lx < ly) - (lx > ly);
}

static int by_start(const void *a, const void *b)
{
    const bar *x = a, *y = b;
    int by = (x->from_ms > y->from_ms) - (x->from_ms < y->from_ms);
    return by == 0 ? by_task(x, y) : by;
}

/* The attempts before the last one, joined to it by a line. Returns where the first begins. */
static double draw_earlier(const stk_svg_span *s, const stk_view_task *task, double y, double h,
                           stk_buf *out)
{
    double x = stk_svg_x_of(s, task->started_ms), x0 = x;
    char text[32];
    if (task->first_ms < task->started_ms) {
        x0 = stk_svg_x_of(s, task->first_ms);
        stk_buf_printf(out,
                       "<line class=\"earlier\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>",
                       x0, y + h / 2, x, y + h / 2);
    }
    for (const stk_view_attempt *one = task->earlier; one != NULL; one = one->before) {
        double from = stk_svg_x_of(s, one->started_ms), w = stk_svg_x_of(s, one->ended_ms) - from;
        stk_buf_printf(out,
                       "<rect class=\"bar was s-retrying\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                       "height=\"%.1f\" rx=\"2\"><title>",
                       from, y, MAX(w, 2), h);
        stk_buf_html(out, task->title);
        stk_buf_printf(
            out, ", attempt %u: %s</title></rect>", one->number,
            stk_units_format_duration(one->ended_ms - one->started_ms, text, sizeof text));
    }
    return x0;
}

static void draw_bar(const stk_view *view, const stk_svg_span *s, const bar *b, double y, double h,
                     stk_buf *out)
{
    const stk_view_task *task = stk_view_get_task(view, b->task);
    char text[32];
    double x = stk_svg_x_of(s, b->from_ms), w = stk_svg_x_of(s, b->to_ms) - x;
    w = MAX(w, 2);
    double x0 = draw_earlier(s, task, y, h, out);
    stk_buf_printf(out,
                   "<rect class=\"bar s-%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                   "height=\"%.1f\" rx=\"%.1f\"><title>",
                   stk_state_word(task->state), x, y, w, h, h > 8 ? 4.0 : 2.0);
    stk_buf_html(out, task->title);
    stk_buf_printf(out, ": %s, %s</title></rect>", stk_state_word(task->state),
                   stk_units_format_duration(b->to_ms - b->from_ms, text, sizeof text));
    if (h > LANE) {
        bool right = x + w > s->left + s->width - 70; /* no room for the text behind the bar */
        bool inside = right && w > 70;
        const char *where = "";
        double at = x + w + 6;
        if (inside) {
            where = " in";
            at = x + w - 6;
        } else if (right) {
            where = " end";
            at = x0 - 6;
        }
        stk_buf_printf(out, "<text class=\"took%s\" x=\"%.1f\" y=\"%.1f\">%s</text>", where, at,
                       y + h / 2 + 4, text);
    }
    stk_buf_char(out, '\n');
}

void stk_svg_bar(const stk_view *view, const stk_svg_span *s, uint32_t i_task, int64_t now_ms,
                 double y, double h, stk_buf *out)
{
    const stk_view_task *task = stk_view_get_task(view, i_task);
    int64_t ms = stk_show_took_ms(task->started_ms, task->ended_ms, now_ms);
    const bar b = {i_task, task->started_ms, task->started_ms + ms};
    draw_bar(view, s, &b, y, h, out);
}

static void draw_rows(const stk_view *view, const stk_svg_span *s, const bar *bars, uint32_t n,
                      stk_buf *out)
{
    for (uint32_t i = 0; i < n; i++) {
        stk_svg_row_label(stk_view_get_task(view, bars[i].task)->title, LABEL - 10,
                          i * (double)ROW + 16, out);
        draw_bar(view, s, &bars[i], (double)i * ROW + 5, ROW - 10, out);
    }
}

/* Puts each bar into the first free lane. Returns the number of lanes. */
static uint32_t pack_lanes(const stk_svg_span *s, const bar *bars, uint32_t n, uint32_t *lane)
{
    double busy_to[MAX_LANES];
    uint32_t n_lanes = 0;
    for (uint32_t i = 0; i < n; i++) {
        double x = stk_svg_x_of(s, bars[i].from_ms), end = stk_svg_x_of(s, bars[i].to_ms);
        uint32_t k = 0;
        while (k < n_lanes && busy_to[k] > x + 0.01) {
            k++;
        }
        if (k >= MAX_LANES) {
            k = MAX_LANES - 1;
        }
        n_lanes = MAX(k + 1, n_lanes);
        busy_to[k] = MAX(end, x + 2);
        lane[i] = k;
    }
    return n_lanes;
}

static uint32_t find_bars(const stk_view *view, int64_t now_ms, bar *bars)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < stk_view_n_tasks(view); i++) {
        const stk_view_task *task = stk_view_get_task(view, i);
        int64_t ms = stk_show_took_ms(task->started_ms, task->ended_ms, now_ms);
        if (task->started_ms > 0) {
            bars[n++] = (bar){i, task->started_ms, task->started_ms + ms};
        }
    }
    if (n > MAX_BARS) {
        qsort(bars, n, sizeof *bars, by_length);
        n = MAX_BARS;
    }
    qsort(bars, n, sizeof *bars, by_start);
    return n;
}

int stk_svg_timeline(const stk_view *view, int64_t now_ms, stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    size_t room = (size_t)stk_view_n_tasks(view) + 1;
    STK_TRY(stk_err_if_null(arena, err));
    bar *bars = stk_arena_array(arena, room, sizeof *bars);
    uint32_t *lane = stk_arena_array(arena, room, sizeof *lane);
    if (bars == NULL || lane == NULL) {
        return stk_err_nomem(err);
    }
    uint32_t n = find_bars(view, now_ms, bars);
    if (n == 0) {
        return 0;
    }
    stk_alike alike;
    bool many_grown = stk_view_grows(view) && n > MAX_ROWS;
    STK_TRY(stk_alike_find(view, many_grown ? 2 : STK_ALIKE_MIN, arena, &alike, err));
    if (alike.n > 0 || many_grown) {
        int rc = stk_svg_wide_timeline(view, &alike, now_ms, out, err);
        if (rc != STK_E_LIMIT) {
            return rc;
        }
    }
    int64_t started_ms = stk_view_get_run(view)->started_ms, from = bars[0].from_ms;
    if (started_ms > 0) {
        from = MIN(from, started_ms);
    }
    int64_t to = from + 1;
    for (uint32_t i = 0; i < n; i++) {
        to = MAX(bars[i].to_ms, to);
    }
    bool rows = n <= MAX_ROWS;
    double left = rows ? LABEL : 8, height = n * (double)ROW + 4;
    stk_svg_span s = {from, (double)(to - from) / 1000, left, WIDTH - left - 24};
    if (!rows) {
        height = pack_lanes(&s, bars, n, lane) * (double)LANE + 4;
    }
    stk_buf_printf(out,
                   "<svg class=\"timeline\" viewBox=\"0 0 %d %.0f\" role=\"img\" "
                   "aria-label=\"when each step ran\">\n",
                   WIDTH, height + AXIS);
    stk_svg_axis(&s, height, out);
    if (rows) {
        draw_rows(view, &s, bars, n, out);
    } else {
        for (uint32_t i = 0; i < n; i++) {
            draw_bar(view, &s, &bars[i], lane[i] * (double)LANE + 2, LANE - 3, out);
        }
    }
    stk_buf_text(out, "</svg>\n");
    return 0;
}
