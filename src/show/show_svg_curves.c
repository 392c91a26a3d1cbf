/* A step's usage over time, as curves. */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "base/units.h"
#include "show/show_svg.h"

enum {
    CURVE_W = 336,
    CURVE_H = 128,
    PLOT_L = 8,
    PLOT_R = 8,
    PLOT_T = 30,
    PLOT_B = 20,
    POINTS = 240
};

/* One curve. Values below 0 are unknown and leave a gap. */
typedef struct svg_curve {
    const char *title; /* "memory" */
    const double *t_s; /* seconds since the start, rising */
    const double *value;
    uint32_t n;
    double limit;     /* drawn as a dashed line; < 0: none */
    double axis;      /* the axis reaches at least this value; 0: the highest one */
    bool keep_zero;   /* draw it even if it is 0 throughout */
    bool is_bytes;    /* labels in GB; else plain numbers with `unit` */
    const char *unit; /* " CPU", " %" */
    const char *ink;  /* CSS class: "mem" "cpu" "gpu" */
} svg_curve;

static const char *value_text(const svg_curve *c, double value, char *buf, size_t size)
{
    if (c->is_bytes) {
        return stk_units_format_memory((int64_t)value, buf, size);
    }
    int digits = value > 0 && value < 10;
    (void)snprintf(buf, size, "%.*f%s", digits, value, c->unit);
    return buf;
}

static void curve_path(const svg_curve *c, double t_max, double v_max, stk_buf *out)
{
    double w = CURVE_W - PLOT_L - PLOT_R, h = CURVE_H - PLOT_T - PLOT_B;
    STK_BUF_AUTO line = STK_BUF_INIT(1u << 20);
    STK_BUF_AUTO area = STK_BUF_INIT(1u << 20);
    double last = 0;
    bool drawing = false;
    for (uint32_t i = 0; i <= c->n; i++) {
        bool known = i < c->n && c->value[i] >= 0;
        if (known) {
            double x = PLOT_L + c->t_s[i] / t_max * w;
            double y = PLOT_T + h - c->value[i] / v_max * h;
            if (!drawing) {
                stk_buf_printf(&area, "M%.1f %d", x, CURVE_H - PLOT_B);
            }
            stk_buf_printf(&line, "%c%.1f %.1f", drawing ? 'L' : 'M', x, y);
            stk_buf_printf(&area, "L%.1f %.1f", x, y);
            last = x;
        } else if (drawing) {
            stk_buf_printf(&area, "L%.1f %dZ", last, CURVE_H - PLOT_B);
        }
        drawing = known;
    }
    stk_buf_printf(out, "<path class=\"area %s\" d=\"%s\"/><path class=\"line %s\" d=\"%s\"/>",
                   c->ink, stk_text_or(area.data, ""), c->ink, stk_text_or(line.data, ""));
}

static void draw_curve(const svg_curve *c, stk_buf *out)
{
    double top = 0, t_max = 0;
    char text[64];
    bool is_known = false;
    for (uint32_t i = 0; i < c->n; i++) {
        t_max = c->t_s[i];
        top = MAX(c->value[i], top);
        is_known = is_known || c->value[i] >= 0;
    }
    if (!is_known || t_max <= 0 || (top <= 0 && !c->keep_zero)) {
        return;
    }
    /* A limit far above the usage would flatten the curve: then only the title names it. */
    bool limit_fits = c->limit > 0 && c->limit <= 2.5 * top;
    double end = MAX(c->axis, top);
    if (limit_fits) {
        end = MAX(c->limit, end);
    }
    double v_max = (end > 0 ? end : 1) * 1.06;
    double h = CURVE_H - PLOT_T - PLOT_B;
    stk_buf_printf(out, "<svg class=\"curve\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"",
                   CURVE_W, CURVE_H);
    stk_buf_html(out, c->title);
    stk_buf_printf(out, "\"><text class=\"what\" x=\"%d\" y=\"14\">", PLOT_L);
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

/* The points of a curve: samples merged into at most POINTS buckets. `pick` below reads one number
 * of a sample. */
typedef struct series {
    double *t_s, *value;
    uint32_t n;
} series;

static series new_series(stk_arena *arena)
{
    return (series){stk_arena_array(arena, POINTS + 1, sizeof(double)),
                    stk_arena_array(arena, POINTS + 1, sizeof(double)), 0};
}

/* The highest value of each bucket, so that short peaks stay visible. */
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

/* Busy CPUs: the slope of the CPU time in each bucket. */
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
    return sample->devices[i_device].power_mw / 1000.0;
}

static double pick_temperature(const stk_sample *sample, uint32_t i_device)
{
    return sample->devices[i_device].temperature_c;
}

static double pick_clock(const stk_sample *sample, uint32_t i_device)
{
    return sample->devices[i_device].sm_mhz;
}

static double sum_known(int64_t a, int64_t b)
{
    if (a < 0 || b < 0) {
        return -1;
    }
    return (double)a + (double)b;
}

static double pick_pcie(const stk_sample *sample, uint32_t i_device)
{
    const stk_sample_device *d = &sample->devices[i_device];
    return sum_known(d->pcie_tx_bytes_s, d->pcie_rx_bytes_s);
}

static double pick_nvlink(const stk_sample *sample, uint32_t i_device)
{
    const stk_sample_device *d = &sample->devices[i_device];
    return sum_known(d->nvlink_tx_bytes, d->nvlink_rx_bytes);
}

static double pick_disk(const stk_sample *sample, uint32_t i_device)
{
    (void)i_device;
    return sum_known(sample->read_bytes, sample->write_bytes);
}

/* A counter as a rate: its growth per second in each bucket. */
static series rate(const stk_samples *s, double (*pick)(const stk_sample *, uint32_t),
                   uint32_t i_device, stk_arena *arena)
{
    series out = new_series(arena);
    uint32_t stride = (s->n + POINTS - 1) / POINTS;
    for (uint32_t i = stride; out.value != NULL && i < s->n; i += stride) {
        const stk_sample *from = &s->samples[i - stride], *to = &s->samples[i];
        double before = pick(from, i_device), after = pick(to, i_device);
        double took = (double)(to->time_ms - from->time_ms) / 1000;
        bool known = before >= 0 && after >= before && took > 0;
        out.t_s[out.n] = (double)to->time_ms / 1000;
        out.value[out.n++] = known ? (after - before) / took : -1;
    }
    return out;
}

/* The curves of a device. One without any known value is left out. */
static const struct {
    const char *title;
    series (*make)(const stk_samples *, double (*)(const stk_sample *, uint32_t), uint32_t,
                   stk_arena *);
    double (*pick)(const stk_sample *, uint32_t);
    double axis;
    bool is_bytes, keep_zero;
    const char *unit;
} device_curves[] = {
    {"memory", highest, pick_device_memory, 0, true, true, ""},
    {"busy", highest, pick_busy, 100, false, true, " %"},
    {"power", highest, pick_power, 0, false, false, " W"},
    {"temperature", highest, pick_temperature, 0, false, false, " °C"},
    {"clock", highest, pick_clock, 0, false, false, " MHz"},
    {"PCIe per second", highest, pick_pcie, 0, true, false, ""},
    {"NVLink per second", rate, pick_nvlink, 0, true, false, ""},
};

static int draw_series(svg_curve curve, series s, stk_buf *out, stk_err *err)
{
    STK_TRY(stk_err_if_null(s.value, err));
    curve.t_s = s.t_s;
    curve.value = s.value;
    curve.n = s.n;
    draw_curve(&curve, out);
    return 0;
}

static int draw_device(const stk_samples *samples, const stk_view_details *details, uint32_t i,
                       stk_arena *arena, stk_buf *out, stk_err *err)
{
    const char *noun = "GPU";
    int64_t index = i;
    double share = -1;
    if (i < details->n_devices) {
        const stk_view_device *d = &details->devices[i];
        noun = stk_text_or(d->noun, noun);
        index = d->index >= 0 ? d->index : index;
        share = d->share_bytes > 0 ? (double)d->share_bytes : share;
    }
    stk_buf_text(out, "<i></i>"); /* each device begins a new line */
    for (size_t k = 0; k < sizeof device_curves / sizeof *device_curves; k++) {
        svg_curve curve = {.title = stk_arena_printf(arena, "%s %lld %s", noun, (long long)index,
                                                     device_curves[k].title),
                           .limit = -1,
                           .axis = device_curves[k].axis,
                           .keep_zero = device_curves[k].keep_zero,
                           .is_bytes = device_curves[k].is_bytes,
                           .unit = device_curves[k].unit,
                           .ink = "gpu"};
        if (device_curves[k].pick == pick_device_memory) {
            curve.limit = share;
        }
        series s = device_curves[k].make(samples, device_curves[k].pick, i, arena);
        STK_TRY(draw_series(curve, s, out, err));
    }
    return 0;
}

int stk_svg_samples(const stk_samples *samples, const stk_view_details *details, stk_arena *arena,
                    stk_buf *out, stk_err *err)
{
    if (samples->n < 2) {
        return 0;
    }
    svg_curve memory = {.title = "memory",
                        .limit = (double)details->granted.memory_bytes,
                        .is_bytes = true,
                        .unit = "",
                        .ink = "mem"};
    svg_curve cpu = {.title = "CPU", .limit = details->asked.cpus, .unit = " CPU", .ink = "cpu"};
    svg_curve disk = {
        .title = "disk per second", .limit = -1, .is_bytes = true, .unit = "", .ink = "mem"};
    STK_TRY(draw_series(memory, highest(samples, pick_rss, 0, arena), out, err));
    STK_TRY(draw_series(cpu, slope(samples, arena), out, err));
    STK_TRY(draw_series(disk, rate(samples, pick_disk, 0, arena), out, err));
    for (uint32_t i = 0; i < samples->n_devices; i++) {
        STK_TRY(draw_device(samples, details, i, arena, out, err));
    }
    return 0;
}
