/* What steps measured over time, as curves on cards. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "show/metrics.h"
#include "show/show_html_private.h"

enum { WIDTH = 336, HEIGHT = 128, SIDE = 8, TOP = 30, BOTTOM = 20, POINTS = 300, OF_TASK = 60 };

/* The x axis: the metric's own steps, else the order of its values. */
typedef struct plot {
    const stk_metric *metric;
    const stk_metric_point *points; /* thinned */
    uint32_t n;
    bool by_step;
    double from, to; /* of the axis */
    double low, high;
} plot;

static double position(const plot *p, uint32_t i)
{
    return p->by_step ? (double)p->points[i].step : (double)i;
}

/* Where `value` is between two others; in the middle if they are equal. */
static double part_of(double value, double from, double to)
{
    if (to > from) {
        return (value - from) / (to - from);
    }
    return 0.5;
}

static double x_of(const plot *p, uint32_t i)
{
    return SIDE + part_of(position(p, i), p->from, p->to) * (WIDTH - 2 * SIDE);
}

static double y_of(const plot *p, double value)
{
    return HEIGHT - BOTTOM - part_of(value, p->low, p->high) * (HEIGHT - TOP - BOTTOM);
}

/* The line has gaps where values aren't finite; a mark at the axis tells each of them. */
static void put_curve_line(const plot *p, stk_buf *out)
{
    bool drawing = false;
    stk_buf_text(out, "<path class=\"line cpu\" d=\"");
    for (uint32_t i = 0; i < p->n; i++) {
        double value = p->points[i].value;
        if (isfinite(value)) {
            stk_buf_char(out, "ML"[drawing]);
            stk_buf_printf(out, "%.1f %.1f", x_of(p, i), y_of(p, value));
        }
        drawing = isfinite(value);
    }
    stk_buf_text(out, "\"/>");
    for (uint32_t i = 0; i < p->n; i++) {
        if (!isfinite(p->points[i].value)) {
            stk_buf_printf(out, "<path class=\"odd\" d=\"M%.1f %dv-6\"><title>%g</title></path>",
                           x_of(p, i), HEIGHT - BOTTOM, p->points[i].value);
        }
    }
    if (p->n == 1 && isfinite(p->points[0].value)) {
        stk_buf_printf(out, "<circle class=\"tip\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>", x_of(p, 0),
                       y_of(p, p->points[0].value));
    }
}

static void put_plot(const plot *p, stk_buf *out)
{
    static const char *const words[] = {"value", "step"};
    const stk_metric *m = p->metric;
    char name[300];
    (void)snprintf(name, sizeof name, "%s", m->name);
    if (m->rank > 0) {
        (void)snprintf(name, sizeof name, "%s, rank %u", m->name, m->rank);
    }
    stk_buf_printf(out, "<svg class=\"curve\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"",
                   WIDTH, HEIGHT);
    stk_html_user(out, name);
    stk_buf_printf(out, "\"><text class=\"what\" x=\"%d\" y=\"14\">", SIDE);
    stk_html_user(out, name);
    stk_buf_printf(out, "</text><text class=\"peak\" x=\"%d\" y=\"14\">last %.4g", WIDTH - SIDE,
                   m->last);
    if (isfinite(m->min) && m->n > 1) {
        stk_buf_printf(out, ", from %.4g to %.4g", m->min, m->max);
    }
    stk_buf_printf(out, "</text><line class=\"base\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>",
                   SIDE, HEIGHT - BOTTOM, WIDTH - SIDE, HEIGHT - BOTTOM);
    put_curve_line(p, out);
    stk_buf_printf(out, "<text class=\"tick start\" x=\"%d\" y=\"%d\">%s %.0f</text>", SIDE,
                   HEIGHT - 5, words[p->by_step], p->from);
    if (p->to > p->from) {
        stk_buf_printf(out, "<text class=\"tick end\" x=\"%d\" y=\"%d\">%.0f</text>", WIDTH - SIDE,
                       HEIGHT - 5, p->to);
    }
    stk_buf_text(out, "</svg>\n");
}

static void draw_metric(const stk_metric *m, stk_buf *out)
{
    stk_metric_point points[POINTS];
    plot p = {.metric = m, .points = points, .n = stk_metric_thin(m, POINTS, points)};
    if (p.n == 0) {
        return;
    }
    p.by_step = true;
    for (uint32_t i = 0; i < p.n; i++) {
        p.by_step = p.by_step && points[i].step >= 0;
    }
    p.from = position(&p, 0);
    p.to = p.from;
    for (uint32_t i = 1; i < p.n; i++) {
        p.from = MIN(p.from, position(&p, i));
        p.to = MAX(p.to, position(&p, i));
    }
    if (!isnan(m->min)) {
        p.low = m->min;
        p.high = m->max;
    }
    put_plot(&p, out);
}

int stk_html_metrics(const page *p, uint32_t i_task, uint32_t *n_shown)
{
    STK_METRICS_AUTO metrics = NULL;
    STK_TRY(stk_metrics_new(&metrics, p->err));
    if (stk_metrics_of_task(p->store, p->view, i_task, metrics, p->err) < 0) {
        return 0; /* the card is written without them */
    }
    uint32_t n = MIN(stk_metrics_n(metrics), OF_TASK);
    if (n == 0) {
        return 0;
    }
    if ((*n_shown)++ == 0) {
        stk_html_panel_open(p->out, "Metrics over time");
    }
    stk_html_put(p->out, "<p class=\"curve-name\">%s</p>", stk_view_who(p->view, i_task, p->arena));
    stk_buf_text(p->out, "<div class=\"curves\">");
    for (uint32_t i = 0; i < n; i++) {
        const stk_metric one = stk_metrics_get(metrics, i);
        draw_metric(&one, p->out);
    }
    stk_buf_text(p->out, "</div>\n");
    stk_html_more(p, stk_metrics_n(metrics), n, "metrics");
    return 0;
}

int stk_html_all_metrics(const page *p)
{
    uint32_t n_shown = 0, n = MIN(stk_view_n_tasks(p->view), MAX_ROWS);
    for (uint32_t i = 0; i < n && n_shown < MAX_CURVES; i++) {
        if (stk_view_get_task(p->view, i)->state !=
            STK_TASK_CACHED) { /* theirs are in other runs */
            STK_TRY(stk_html_metrics(p, i, &n_shown));
        }
    }
    if (n_shown > 0) {
        stk_html_panel_close(p->out);
    }
    return 0;
}
