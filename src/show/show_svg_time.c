/* Pictures over time: the timeline of a run, the curves of a step. */
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
    ROW = 24,
    AXIS = 26,
    MAX_ROWS = 60,   /* above: packed lanes without names */
    MAX_BARS = 2000, /* above: the longest ones */
    MAX_LANES = 48,
    LANE = 10
};

/* --- axis --- */

/* A round step that gives at most eight ticks. */
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
    t = t < 0 ? 0 : MIN(t, 1);
    return s->left + t * s->width;
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

/* --- timeline --- */

typedef struct bar {
    uint32_t task;
    int64_t from_ms, to_ms;
} bar;

static int by_length(const void *a, const void *b)
{
    const bar *x = a, *y = b;
    int64_t lx = x->to_ms - x->from_ms, ly = y->to_ms - y->from_ms;
    return lx != ly ? (lx < ly) - (lx > ly) : (x->task > y->task) - (x->task < y->task);
}

static int by_start(const void *a, const void *b)
{
    const bar *x = a, *y = b;
    return x->from_ms != y->from_ms ? (x->from_ms > y->from_ms) - (x->from_ms < y->from_ms)
                                    : (x->task > y->task) - (x->task < y->task);
}

static void draw_bar(const stk_view *view, const stk_svg_span *s, const bar *b, double y, double h,
                     stk_buf *out)
{
    const stk_view_task *task = stk_view_get_task(view, b->task);
    char text[32];
    double x = stk_svg_x_of(s, b->from_ms), w = stk_svg_x_of(s, b->to_ms) - x;
    w = MAX(w, 2);
    double x0 = x;
    if (task->first_ms < task->started_ms) { /* earlier attempts */
        x0 = stk_svg_x_of(s, task->first_ms);
        stk_buf_printf(out,
                       "<line class=\"earlier\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>",
                       x0, y + h / 2, x, y + h / 2);
    }
    stk_buf_printf(out,
                   "<rect class=\"bar s-%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                   "height=\"%.1f\" rx=\"%.1f\"><title>",
                   stk_state_word(task->state), x, y, w, h, h > 8 ? 4.0 : 2.0);
    stk_buf_html(out, task->label);
    stk_buf_printf(out, ": %s, %s</title></rect>", stk_state_word(task->state),
                   stk_units_format_duration(b->to_ms - b->from_ms, text, sizeof text));
    if (h > LANE) {
        bool right = x + w > s->left + s->width - 70; /* no room behind the bar */
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

static void draw_rows(const stk_view *view, const stk_svg_span *s, const bar *bars, uint32_t n,
                      stk_buf *out)
{
    for (uint32_t i = 0; i < n; i++) {
        STK_BUF_AUTO label = STK_BUF_INIT(1024);
        stk_text_fit(&label, stk_view_get_task(view, bars[i].task)->label, 24, false, true);
        stk_buf_printf(out, "<text class=\"row\" x=\"%d\" y=\"%d\">", LABEL - 10,
                       (int)i * ROW + 16);
        stk_buf_html(out, stk_text_or(label.data, ""));
        stk_buf_text(out, "</text>");
        draw_bar(view, s, &bars[i], (double)i * ROW + 5, ROW - 10, out);
    }
}

/* Each bar in the first lane that is free; returns how many lanes there are. */
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
        int64_t end = task->ended_ms ? task->ended_ms : now_ms;
        if (task->started_ms > 0) {
            bars[n++] = (bar){i, task->started_ms, MAX(end, task->started_ms)};
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
    uint32_t n_tasks = stk_view_n_tasks(view);
    bar *bars = arena ? stk_arena_array(arena, (size_t)n_tasks + 1, sizeof *bars) : NULL;
    uint32_t *lane = arena ? stk_arena_array(arena, (size_t)n_tasks + 1, sizeof *lane) : NULL;
    if (bars == NULL || lane == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory for the timeline");
    }
    uint32_t n = find_bars(view, now_ms, bars);
    if (n == 0) {
        return 0;
    }
    if (stk_view_grows(view) && n > MAX_ROWS) {
        return stk_svg_wide_timeline(view, now_ms, out, err);
    }
    const stk_view_run *run = stk_view_get_run(view);
    int64_t from = run->started_ms > 0 && run->started_ms < bars[0].from_ms ? run->started_ms
                                                                            : bars[0].from_ms;
    int64_t to = from + 1;
    for (uint32_t i = 0; i < n; i++) {
        to = MAX(bars[i].to_ms, to);
    }
    bool rows = n <= MAX_ROWS;
    double left = rows ? LABEL : 8;
    stk_svg_span s = {from, (double)(to - from) / 1000, left, WIDTH - left - 24};
    uint32_t n_lanes = rows ? n : pack_lanes(&s, bars, n, lane);
    double height = n_lanes * (double)(rows ? ROW : LANE) + 4;
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

/* --- curves --- */

enum {
    CURVE_W = 336,
    CURVE_H = 128,
    PLOT_L = 8,
    PLOT_R = 8,
    PLOT_T = 30,
    PLOT_B = 20,
    POINTS = 240
};

static const char *value_text(const stk_svg_curve *c, double value, char *buf, size_t size)
{
    if (c->is_bytes) {
        return stk_units_format_memory((int64_t)value, buf, size);
    }
    (void)snprintf(buf, size, value >= 10 || value <= 0 ? "%.0f%s" : "%.1f%s", value, c->unit);
    return buf;
}

static void curve_path(const stk_svg_curve *c, double t_max, double v_max, stk_buf *out)
{
    double w = CURVE_W - PLOT_L - PLOT_R, h = CURVE_H - PLOT_T - PLOT_B;
    STK_BUF_AUTO line = STK_BUF_INIT(1u << 20);
    STK_BUF_AUTO area = STK_BUF_INIT(1u << 20);
    double first = -1, last = 0;
    for (uint32_t i = 0; i <= c->n; i++) {
        bool known = i < c->n && c->value[i] >= 0;
        if (known) {
            double x = PLOT_L + c->t_s[i] / t_max * w;
            double y = PLOT_T + h - c->value[i] / v_max * h;
            if (first < 0) {
                stk_buf_printf(&area, "M%.1f %d", x, CURVE_H - PLOT_B);
            }
            stk_buf_printf(&line, "%c%.1f %.1f", first < 0 ? 'M' : 'L', x, y);
            stk_buf_printf(&area, "L%.1f %.1f", x, y);
            if (first < 0) {
                first = x;
            }
            last = x;
        } else if (first >= 0) {
            stk_buf_printf(&area, "L%.1f %dZ", last, CURVE_H - PLOT_B);
            first = -1;
        }
    }
    stk_buf_printf(out, "<path class=\"area %s\" d=\"%s\"/><path class=\"line %s\" d=\"%s\"/>",
                   c->ink, stk_text_or(area.data, ""), c->ink, stk_text_or(line.data, ""));
}

void stk_svg_curve_draw(const stk_svg_curve *c, stk_buf *out)
{
    double top = 0, t_max = c->n > 0 ? c->t_s[c->n - 1] : 0;
    char text[64];
    bool is_known = false;
    for (uint32_t i = 0; i < c->n; i++) {
        top = MAX(c->value[i], top);
        is_known = is_known || c->value[i] >= 0;
    }
    if (!is_known || t_max <= 0 || (top <= 0 && !c->keep_zero)) {
        return;
    }
    /* A limit far above what was used would press the curve flat: then only the words name it. */
    bool limit_fits = c->limit > 0 && c->limit <= 2.5 * top;
    double end = top > 0 ? top : 1;
    if (c->axis > top) {
        end = c->axis;
    }
    double v_max = (limit_fits && c->limit > end ? c->limit : end) * 1.06;
    double h = CURVE_H - PLOT_T - PLOT_B;
    stk_buf_printf(out,
                   "<svg class=\"curve\" viewBox=\"0 0 %d %d\" role=\"img\"><text class=\"what\" "
                   "x=\"%d\" y=\"14\">",
                   CURVE_W, CURVE_H, PLOT_L);
    stk_buf_html(out, c->title);
    stk_buf_printf(out, "</text><text class=\"peak\" x=\"%d\" y=\"14\">peak %s", CURVE_W - PLOT_R,
                   value_text(c, top, text, sizeof text));
    if (c->limit > 0) {
        stk_buf_printf(out, " of %s", value_text(c, c->limit, text, sizeof text));
    }
    stk_buf_printf(out, "</text><line class=\"base\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>",
                   PLOT_L, CURVE_H - PLOT_B, CURVE_W - PLOT_R, CURVE_H - PLOT_B);
    if (limit_fits) {
        double y = PLOT_T + h - c->limit / v_max * h;
        stk_buf_printf(out, "<line class=\"limit\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>",
                       PLOT_L, y, CURVE_W - PLOT_R, y);
    }
    curve_path(c, t_max, v_max, out);
    stk_buf_printf(out,
                   "<text class=\"tick start\" x=\"%d\" y=\"%d\">0</text><text class=\"tick end\" "
                   "x=\"%d\" y=\"%d\">%s</text></svg>\n",
                   PLOT_L, CURVE_H - 5, CURVE_W - PLOT_R, CURVE_H - 5,
                   stk_units_format_duration((int64_t)(t_max * 1000), text, sizeof text));
}

/* At most POINTS buckets of samples; `pick` reads one number of a sample. */
typedef struct series {
    double *t_s, *value;
    uint32_t n;
} series;

static series new_series(stk_arena *arena)
{
    return (series){stk_arena_array(arena, POINTS + 1, sizeof(double)),
                    stk_arena_array(arena, POINTS + 1, sizeof(double)), 0};
}

/* The highest value of each bucket: a short peak must not get lost. */
static series highest(const stk_samples *s, double (*pick)(const stk_sample *, uint32_t),
                      uint32_t i_device, stk_arena *arena)
{
    series out = new_series(arena);
    uint32_t stride = (s->n + POINTS - 1) / POINTS;
    for (uint32_t i = 0; out.value != NULL && i < s->n; i += stride) {
        double top = -1;
        for (uint32_t k = i; k < s->n && k < i + stride; k++) {
            double value = pick(&s->samples[k], i_device);
            top = MAX(value, top);
        }
        out.t_s[out.n] = (double)s->samples[i].time_ms / 1000;
        out.value[out.n++] = top;
    }
    return out;
}

/* CPUs busy: the slope of CPU time over each bucket. */
static series slope(const stk_samples *s, stk_arena *arena)
{
    series out = new_series(arena);
    uint32_t stride = (s->n + POINTS - 1) / POINTS;
    int64_t t0 = 0, cpu0 = 0;
    for (uint32_t i = stride - 1; out.value != NULL && i < s->n; i += stride) {
        const stk_sample *at = &s->samples[i];
        if (at->time_ms <= t0 || at->cpu_us < cpu0) {
            continue;
        }
        out.t_s[out.n] = (double)at->time_ms / 1000;
        out.value[out.n++] = (double)(at->cpu_us - cpu0) / 1000 / (double)(at->time_ms - t0);
        t0 = at->time_ms;
        cpu0 = at->cpu_us;
    }
    return out;
}

static double pick_rss(const stk_sample *sample, uint32_t i_device)
{
    (void)i_device;
    return (double)sample->rss_bytes;
}

static double pick_device_memory(const stk_sample *sample, uint32_t i_device)
{
    return (double)sample->devices[i_device].memory_bytes;
}

static double pick_busy(const stk_sample *sample, uint32_t i_device)
{
    return sample->devices[i_device].busy_percent;
}

static double pick_power(const stk_sample *sample, uint32_t i_device)
{
    int32_t mw = sample->devices[i_device].power_mw;
    return mw < 0 ? -1 : mw / 1000.0;
}

static double pick_temperature(const stk_sample *sample, uint32_t i_device)
{
    return sample->devices[i_device].temperature_c;
}

static double pick_clock(const stk_sample *sample, uint32_t i_device)
{
    return sample->devices[i_device].sm_mhz;
}

static double pick_pcie(const stk_sample *sample, uint32_t i_device)
{
    const stk_sample_device *d = &sample->devices[i_device];
    return d->pcie_tx_bytes_s < 0 || d->pcie_rx_bytes_s < 0
               ? -1
               : (double)d->pcie_tx_bytes_s + (double)d->pcie_rx_bytes_s;
}

static double pick_nvlink(const stk_sample *sample, uint32_t i_device)
{
    const stk_sample_device *d = &sample->devices[i_device];
    return d->nvlink_tx_bytes < 0 || d->nvlink_rx_bytes < 0
               ? -1
               : (double)d->nvlink_tx_bytes + (double)d->nvlink_rx_bytes;
}

static double pick_disk(const stk_sample *sample, uint32_t i_device)
{
    (void)i_device;
    return sample->read_bytes < 0 || sample->write_bytes < 0
               ? -1
               : (double)sample->read_bytes + (double)sample->write_bytes;
}

/* A counter as a rate: its growth over each bucket, per second. */
static series rate(const stk_samples *s, double (*pick)(const stk_sample *, uint32_t),
                   uint32_t i_device, stk_arena *arena)
{
    series out = new_series(arena);
    uint32_t stride = (s->n + POINTS - 1) / POINTS;
    for (uint32_t i = stride; out.value != NULL && i < s->n; i += stride) {
        const stk_sample *from = &s->samples[i - stride], *to = &s->samples[i];
        double before = pick(from, i_device), after = pick(to, i_device);
        double took = (double)(to->time_ms - from->time_ms) / 1000;
        out.t_s[out.n] = (double)to->time_ms / 1000;
        out.value[out.n++] =
            before < 0 || after < before || took <= 0 ? -1 : (after - before) / took;
    }
    return out;
}

/* What there is to draw of a device; what is unknown throughout draws nothing. */
static const struct {
    const char *title;
    double (*pick)(const stk_sample *, uint32_t);
    double axis;
    bool is_bytes, is_counter, keep_zero;
    const char *unit;
} device_curves[] = {
    {"memory", pick_device_memory, 0, true, false, true, ""},
    {"busy", pick_busy, 100, false, false, true, " %"},
    {"power", pick_power, 0, false, false, false, " W"},
    {"temperature", pick_temperature, 0, false, false, false, " °C"},
    {"clock", pick_clock, 0, false, false, false, " MHz"},
    {"PCIe per second", pick_pcie, 0, true, false, false, ""},
    {"NVLink per second", pick_nvlink, 0, true, true, false, ""},
};

static int draw_series(const stk_svg_curve *like, const series *s, stk_buf *out, stk_err *err)
{
    if (s->value == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory for the curves");
    }
    stk_svg_curve curve = *like;
    curve.t_s = s->t_s;
    curve.value = s->value;
    curve.n = s->n;
    stk_svg_curve_draw(&curve, out);
    return 0;
}

static int draw_device(const stk_samples *samples, const stk_view_details *details, uint32_t i,
                       stk_arena *arena, stk_buf *out, stk_err *err)
{
    int rc = 0;
    const stk_view_device *d = i < details->n_devices ? &details->devices[i] : NULL;
    int64_t index = d != NULL && d->index >= 0 ? d->index : (int64_t)i;
    const char *noun = stk_text_or(d != NULL ? d->noun : NULL, "GPU");
    double share = d != NULL && d->share_bytes > 0 ? (double)d->share_bytes : -1;
    stk_buf_text(out, "<i></i>"); /* a device begins a line */
    for (size_t k = 0; rc == 0 && k < sizeof device_curves / sizeof *device_curves; k++) {
        series s = device_curves[k].is_counter ? rate(samples, device_curves[k].pick, i, arena)
                                               : highest(samples, device_curves[k].pick, i, arena);
        stk_svg_curve curve = {.title = stk_arena_printf(arena, "%s %lld %s", noun,
                                                         (long long)index, device_curves[k].title),
                               .limit = k == 0 ? share : -1,
                               .axis = device_curves[k].axis,
                               .keep_zero = device_curves[k].keep_zero,
                               .is_bytes = device_curves[k].is_bytes,
                               .unit = device_curves[k].unit,
                               .ink = "gpu"};
        rc = draw_series(&curve, &s, out, err);
    }
    return rc;
}

int stk_svg_samples(const stk_samples *samples, const stk_view_details *details, stk_arena *arena,
                    stk_buf *out, stk_err *err)
{
    if (samples->n < 2) {
        return 0;
    }
    series memory = highest(samples, pick_rss, 0, arena), cpus = slope(samples, arena);
    series disk = rate(samples, pick_disk, 0, arena);
    stk_svg_curve curve = {.title = "memory",
                           .limit = (double)details->granted.memory_bytes,
                           .is_bytes = true,
                           .unit = "",
                           .ink = "mem"};
    int rc = draw_series(&curve, &memory, out, err);
    curve =
        (stk_svg_curve){.title = "CPU", .limit = details->asked.cpus, .unit = " CPU", .ink = "cpu"};
    rc = rc < 0 ? rc : draw_series(&curve, &cpus, out, err);
    curve = (stk_svg_curve){
        .title = "disk per second", .limit = -1, .is_bytes = true, .unit = "", .ink = "mem"};
    rc = rc < 0 ? rc : draw_series(&curve, &disk, out, err);
    for (uint32_t i = 0; rc == 0 && i < samples->n_devices; i++) {
        rc = draw_device(samples, details, i, arena, out, err);
    }
    return rc;
}
