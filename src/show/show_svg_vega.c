/* Vega-Lite: rows on scales as SVG, in the inks of the card. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <time.h>

#include "base/text.h"
#include "show/show_text.h"
#include "show/show_vega.h"

enum {
    WIDE = 720,
    NARROW = 400,
    HEIGHT = 260,
    BAND = 26,
    LEGEND_ROW = 20,
    INKS = 10,
    MAX_TITLED = 2000
};
enum { GLYPH_10 = 68 /* tenths of a unit that a character of a label is wide */ };

/* Where the picture's parts are. */
typedef struct frame {
    const vega_chart *chart;
    stk_buf *out;
    double all; /* the picture's width */
    double left, top, width, height;
    bool slanted; /* labels of x */
} frame;

static double text_width(const char *text)
{
    return stk_text_width(text) * GLYPH_10 / 10.0;
}

static void put_text(const frame *f, double x, double y, const char *class, const char *text,
                     int columns)
{
    STK_BUF_AUTO cut = STK_BUF_INIT(4096);
    stk_text_fit(&cut, text, columns, false, true);
    stk_buf_printf(f->out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
    stk_html_user(f->out, stk_text_or(cut.data, ""));
    stk_buf_text(f->out, "</text>");
}

/* --- scales --- */

/* 0 … 1 along the axis; of a band its middle. */
static double part_of(const vega_scale *s, double v)
{
    if (s->kind == SCALE_BAND) {
        return (v + 0.5) / s->n;
    }
    if (s->log) {
        return (log10(v) - log10(s->min)) / (log10(s->max) - log10(s->min));
    }
    return (v - s->min) / (s->max - s->min);
}

static double clamp(double v)
{
    return v < 0 ? 0 : MIN(v, 1);
}

static double x_of(const frame *f, double v)
{
    return f->left + clamp(part_of(&f->chart->scales[VEGA_X], v)) * f->width;
}

static double y_of(const frame *f, double v)
{
    const vega_scale *s = &f->chart->scales[VEGA_Y];
    double part = clamp(part_of(s, v));
    return f->top + (s->kind == SCALE_BAND ? part : 1 - part) * f->height;
}

/* A number for people: 1,234 · 0.25 · 1.2e-7. */
static const char *number(double v, char *text, size_t size)
{
    if (fabs(v) >= 1000 && fabs(v) < 1e12 && v == floor(v)) {
        text[0] = '-';
        stk_text_count((uint64_t)fabs(v), text + (v < 0), size - 1);
    } else {
        (void)snprintf(text, size, "%.6g", fabs(v) < 1e-12 ? 0.0 : v);
    }
    return text;
}

static const char *moment(double v, double extent, char *text, size_t size)
{
    time_t seconds = (time_t)v;
    struct tm tm;
    double days = extent / 86400;
    static const char *const forms[] = {"%H:%M", "%d %b", "%b %Y", "%Y"};
    const char *form = forms[(days > 4) + (days > 200) + (days > 1500)];
    if (gmtime_r(&seconds, &tm) == NULL || strftime(text, size, form, &tm) == 0) {
        (void)snprintf(text, size, "?");
    }
    return text;
}

static const char *label_of(const vega_scale *s, double v, char *text, size_t size)
{
    if (s->kind == SCALE_BAND) {
        return s->names[(uint32_t)v];
    }
    return s->kind == SCALE_TIME ? moment(v, s->max - s->min, text, size) : number(v, text, size);
}

/* The tick after `v`; the first: NAN. */
static double next_tick(const vega_scale *s, double v, int n)
{
    double extent = s->max - s->min;
    if (s->kind == SCALE_BAND) {
        return isnan(v) ? 0 : v + 1;
    }
    if (s->log) {
        double step = fmax(1, ceil(log10(s->max / s->min) / n));
        return isnan(v) ? s->min : v * pow(10, step);
    }
    double step = stk_vega_step(extent, n);
    if (s->kind == SCALE_TIME) { /* whole days, hours … */
        static const double steps[] = {1,     60,     300,    900,     3600,    10800,   21600,
                                       86400, 172800, 604800, 1209600, 2629800, 7889400, 31557600};
        size_t i = 0;
        while (i + 1 < sizeof steps / sizeof *steps && extent / steps[i] > n) {
            i++;
        }
        step = steps[i] * fmax(1, ceil(extent / steps[i] / n));
    }
    if (isnan(v)) {
        return ceil(s->min / step - 1e-9) * step;
    }
    return v + step > v ? v + step : INFINITY; /* beside 1e300 a step is nothing */
}

static bool is_over(const vega_scale *s, double v)
{
    return s->kind == SCALE_BAND ? v >= s->n : v > s->max + (s->max - s->min) * 1e-9;
}

/* --- axes --- */

static double widest(const vega_scale *s)
{
    char text[64];
    double most = 0;
    for (double v = next_tick(s, NAN, 6); s->kind != SCALE_NONE && !is_over(s, v);
         v = next_tick(s, v, 6)) {
        most = fmax(most, text_width(label_of(s, v, text, sizeof text)));
    }
    return most;
}

static void x_axis(const frame *f)
{
    const vega_scale *s = &f->chart->scales[VEGA_X];
    char text[64];
    double bottom = f->top + f->height, every = 1;
    stk_buf_printf(f->out, "<path class=\"axis\" d=\"M%.1f %.1fh%.1f\"/>", f->left, bottom,
                   f->width);
    if (s->kind == SCALE_BAND) { /* of many bands some have a label */
        every = ceil(s->n * 15.0 / f->width);
    }
    for (double v = s->kind == SCALE_NONE ? INFINITY : next_tick(s, NAN, 8); !is_over(s, v);
         v = next_tick(s, v, 8)) {
        double x = x_of(f, v);
        if (s->kind == SCALE_BAND && fmod(v, every) != 0) {
            continue;
        }
        if (s->kind != SCALE_BAND) {
            stk_buf_printf(f->out, "<path class=\"grid\" d=\"M%.1f %.1fv%.1f\"/>", x, f->top,
                           f->height);
        }
        const char *label = label_of(s, v, text, sizeof text);
        if (f->slanted) {
            stk_buf_printf(f->out, "<g transform=\"translate(%.1f %.1f) rotate(-40)\">", x + 4,
                           bottom + 14);
            put_text(f, 0, 0, "label end", label, 16);
            stk_buf_text(f->out, "</g>");
        } else {
            put_text(f, x, bottom + 17, "label mid", label, 60);
        }
    }
}

static void y_axis(const frame *f)
{
    const vega_scale *s = &f->chart->scales[VEGA_Y];
    char text[64];
    double every = s->kind == SCALE_BAND ? ceil(s->n * 13.0 / f->height) : 1;
    for (double v = s->kind == SCALE_NONE ? INFINITY : next_tick(s, NAN, 6); !is_over(s, v);
         v = next_tick(s, v, 6)) {
        double y = y_of(f, v);
        if (s->kind == SCALE_BAND && fmod(v, every) != 0) {
            continue;
        }
        if (s->kind != SCALE_BAND) {
            stk_buf_printf(f->out, "<path class=\"grid\" d=\"M%.1f %.1fh%.1f\"/>", f->left, y,
                           f->width);
        }
        put_text(f, f->left - 8, y + 4, "label end", label_of(s, v, text, sizeof text),
                 (int)(f->all * 0.35 / 6.8));
    }
    if (s->kind == SCALE_BAND) {
        stk_buf_printf(f->out, "<path class=\"axis\" d=\"M%.1f %.1fv%.1f\"/>", f->left, f->top,
                       f->height);
    }
}

/* --- colours --- */

/* Categories have inks; of numbers the first ink is the stronger the larger they are. */
static void ink(const frame *f, const vega_layer *layer, const vega_row *row, const char *what)
{
    const vega_scale *s = &f->chart->scales[VEGA_COLOR];
    if (!layer->has[VEGA_COLOR]) {
        stk_buf_printf(f->out, " style=\"%s:var(--k0)\"", what);
    } else if (s->kind == SCALE_BAND) {
        stk_buf_printf(f->out, " style=\"%s:var(--k%d)\"", what, (int)row->at[VEGA_COLOR] % INKS);
    } else {
        double least = what[0] == 's' ? 0.35 : 0.2;
        stk_buf_printf(f->out, " style=\"%s:var(--k0);opacity:%.2f\"", what,
                       least + (1 - least) * clamp(part_of(s, row->at[VEGA_COLOR])));
    }
}

static double legend(const frame *f, double y)
{
    const vega_scale *s = &f->chart->scales[VEGA_COLOR];
    char text[64];
    double x = f->left;
    if (s->kind == SCALE_NONE || (s->kind == SCALE_BAND && s->n < 1)) {
        return y;
    }
    if (s->title[0] != '\0' && !s->untitled) {
        put_text(f, x, y + 11, "label", s->title, 24);
        x += fmin(text_width(s->title), 24 * 6.8) + 14;
    }
    if (s->kind != SCALE_BAND) {
        put_text(f, x, y + 11, "label", label_of(s, s->min, text, sizeof text), 20);
        x += text_width(label_of(s, s->min, text, sizeof text)) + 6;
        for (int i = 0; i < 6; i++) {
            stk_buf_printf(f->out,
                           "<rect x=\"%.1f\" y=\"%.1f\" width=\"18\" height=\"11\" "
                           "style=\"fill:var(--k0);opacity:%.2f\"/>",
                           x + i * 18, y + 1, 0.2 + 0.8 * i / 5);
        }
        put_text(f, x + 6 * 18 + 6, y + 11, "label", label_of(s, s->max, text, sizeof text), 20);
        return y + LEGEND_ROW;
    }
    for (uint32_t i = 0; i < s->n && i < 60; i++) {
        double wide = fmin(text_width(s->names[i]), 24 * 6.8) + 34;
        if (x + wide > f->all && x > f->left) {
            x = f->left;
            y += LEGEND_ROW;
        }
        stk_buf_printf(f->out,
                       "<rect x=\"%.1f\" y=\"%.1f\" width=\"11\" height=\"11\" rx=\"2\" "
                       "style=\"fill:var(--k%u)\"/>",
                       x, y + 1, i % INKS);
        put_text(f, x + 16, y + 11, "label", s->names[i], 24);
        x += wide;
    }
    return y + LEGEND_ROW;
}

/* --- marks --- */

/* "x: 3, y: 4" where the pointer rests. */
static void tip(const frame *f, const vega_layer *layer, const vega_row *row)
{
    char text[64];
    if (layer->n > MAX_TITLED) {
        return;
    }
    stk_buf_text(f->out, "<title>");
    for (int ch = 0, n = 0; ch < VEGA_N; ch++) {
        const vega_scale *s = &f->chart->scales[ch];
        if (layer->has[ch]) {
            bool stacked = layer->stacks && ch == layer->along;
            stk_buf_text(f->out, n++ > 0 ? ", " : "");
            stk_html_user(f->out, s->title);
            stk_buf_text(f->out, ": ");
            double v = stacked ? row->at[ch] - row->from : row->at[ch];
            stk_html_user(f->out, label_of(s, v, text, sizeof text));
        }
    }
    stk_buf_text(f->out, "</title>");
}

/* Where a bar or cell begins and ends on an axis. */
static void span(const frame *f, const vega_layer *layer, const vega_row *row, int ch,
                 double *ret_from, double *ret_to)
{
    const vega_scale *s = &f->chart->scales[ch];
    double (*at)(const frame *, double) = ch == VEGA_X ? x_of : y_of;
    double size = ch == VEGA_X ? f->width : f->height, from, to;
    bool solid = layer->mark == MARK_BAR || layer->mark == MARK_AREA;
    if (!layer->has[ch]) {
        from = ch == VEGA_X ? f->left : f->top;
        to = from + size;
    } else if (s->kind == SCALE_BAND) {
        double gap = layer->mark == MARK_RECT ? 0.02 : 0.1, wide = size / s->n;
        from = at(f, row->at[ch]) - wide * (0.5 - gap);
        to = from + wide * (1 - 2 * gap);
    } else if (solid && ch == layer->along) {
        from = at(f, s->log ? s->min : row->from);
        to = at(f, row->at[ch]);
    } else if (row->end[ch] != row->at[ch]) {
        double a = at(f, row->at[ch]), b = at(f, row->end[ch]);
        from = fmin(a, b) + 0.5;
        to = fmax(a, b) - 0.5;
    } else { /* a thin one */
        double wide = fmax(1.5, fmin(14, size / (layer->n + 1.0) * 0.8));
        from = at(f, row->at[ch]) - wide / 2;
        to = from + wide;
    }
    *ret_from = fmin(from, to);
    *ret_to = fmax(from, to);
}

static void boxes(const frame *f, const vega_layer *layer)
{
    for (uint32_t i = 0; i < layer->n; i++) {
        double x, x_end, y, y_end;
        span(f, layer, &layer->rows[i], VEGA_X, &x, &x_end);
        span(f, layer, &layer->rows[i], VEGA_Y, &y, &y_end);
        stk_buf_printf(f->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"", x, y,
                       fmax(x_end - x, 0.1), fmax(y_end - y, 0.1));
        ink(f, layer, &layer->rows[i], "fill");
        stk_buf_char(f->out, '>');
        tip(f, layer, &layer->rows[i]);
        stk_buf_text(f->out, "</rect>");
    }
}

static double middle(const frame *f, const vega_layer *layer, const vega_row *row, int ch)
{
    if (!layer->has[ch]) {
        return ch == VEGA_X ? f->left + f->width / 2 : f->top + f->height / 2;
    }
    return ch == VEGA_X ? x_of(f, row->at[ch]) : y_of(f, row->at[ch]);
}

static void dots(const frame *f, const vega_layer *layer, double radius, bool hollow)
{
    for (uint32_t i = 0; i < layer->n; i++) {
        const vega_row *row = &layer->rows[i];
        stk_buf_printf(f->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"%s",
                       middle(f, layer, row, VEGA_X), middle(f, layer, row, VEGA_Y), radius,
                       hollow ? " fill=\"none\" stroke-width=\"1.8\"" : "");
        ink(f, layer, row, hollow ? "stroke" : "fill");
        stk_buf_char(f->out, '>');
        tip(f, layer, row);
        stk_buf_text(f->out, "</circle>");
    }
}

static void strokes(const frame *f, const vega_layer *layer)
{
    for (uint32_t i = 0; i < layer->n; i++) {
        const vega_row *row = &layer->rows[i];
        double x = middle(f, layer, row, VEGA_X), y = middle(f, layer, row, VEGA_Y);
        bool rule = layer->mark == MARK_RULE;
        if (rule && layer->has[VEGA_X] && !layer->has[VEGA_Y]) {
            stk_buf_printf(f->out, "<path d=\"M%.1f %.1fv%.1f\"", x, f->top, f->height);
        } else if (rule && !layer->has[VEGA_X]) {
            stk_buf_printf(f->out, "<path d=\"M%.1f %.1fh%.1f\"", f->left, y, f->width);
        } else if (layer->along == VEGA_X) {
            stk_buf_printf(f->out, "<path d=\"M%.1f %.1fv14\"", x, y - 7);
        } else {
            stk_buf_printf(f->out, "<path d=\"M%.1f %.1fh14\"", x - 7, y);
        }
        stk_buf_text(f->out, " stroke-width=\"1.6\"");
        ink(f, layer, row, "stroke");
        stk_buf_char(f->out, '>');
        tip(f, layer, row);
        stk_buf_text(f->out, "</path>");
    }
}

/* The points of one colour, in the order of their places. */
static void curve(const frame *f, const vega_layer *layer, double colour)
{
    bool area = layer->mark == MARK_AREA;
    const vega_scale *along = &f->chart->scales[layer->along];
    const vega_row *some = NULL;
    uint32_t n = 0;
    stk_buf_text(f->out, "<path d=\"");
    for (uint32_t i = 0; i < layer->n; i++) {
        const vega_row *row = &layer->rows[i];
        if (!layer->has[VEGA_COLOR] || row->at[VEGA_COLOR] == colour) {
            some = row;
            stk_buf_printf(f->out, "%c%.1f %.1f", n++ == 0 ? 'M' : 'L',
                           middle(f, layer, row, VEGA_X), middle(f, layer, row, VEGA_Y));
        }
    }
    for (uint32_t i = layer->n; area && i-- > 0;) {
        vega_row row = layer->rows[i];
        if (!layer->has[VEGA_COLOR] || row.at[VEGA_COLOR] == colour) {
            row.at[layer->along] = along->log ? along->min : row.from;
            stk_buf_printf(f->out, "L%.1f %.1f", middle(f, layer, &row, VEGA_X),
                           middle(f, layer, &row, VEGA_Y));
        }
    }
    stk_buf_text(f->out, area ? "Z\" fill-opacity=\".7\""
                              : "\" fill=\"none\" stroke-width=\"2\" stroke-linejoin=\"round\"");
    if (some != NULL) {
        ink(f, layer, some, area ? "fill" : "stroke");
    }
    stk_buf_text(f->out, "/>");
}

static void curves(const frame *f, const vega_layer *layer)
{
    const vega_scale *s = &f->chart->scales[VEGA_COLOR];
    bool many = layer->has[VEGA_COLOR] && s->kind == SCALE_BAND;
    for (uint32_t i = 0; many && i < s->n; i++) {
        curve(f, layer, i);
    }
    if (!many) {
        vega_layer plain = *layer;
        plain.has[VEGA_COLOR] = false;
        curve(f, &plain, 0);
    }
    if (layer->dots) {
        dots(f, layer, 3, false);
    }
}

/* --- the picture --- */

static void place(frame *f)
{
    const vega_scale *x = &f->chart->scales[VEGA_X], *y = &f->chart->scales[VEGA_Y];
    f->left = y->kind == SCALE_NONE ? 16 : fmin(f->all * 0.35, fmax(28, widest(y))) + 14;
    f->width = f->all - f->left - 20;
    f->height = f->all < WIDE ? f->all * 0.42 : HEIGHT;
    if (y->kind == SCALE_BAND) {
        f->height = fmin(900, fmax(60, y->n * (double)BAND));
    } else if (y->kind == SCALE_NONE) {
        f->height = 60;
    }
    f->slanted = x->kind == SCALE_BAND && widest(x) + 8 > f->width / x->n;
}

static bool named(const vega_scale *s)
{
    return s->kind != SCALE_NONE && s->title[0] != '\0' && !s->untitled;
}

void stk_vega_draw(const vega_chart *chart, bool narrow, stk_buf *out)
{
    STK_BUF_AUTO body = STK_BUF_INIT(MAX_CARD_BYTES);
    frame f = {.chart = chart, .out = &body, .all = narrow ? NARROW : WIDE, .top = 4};
    const vega_scale *x = &chart->scales[VEGA_X], *y = &chart->scales[VEGA_Y];
    place(&f);
    if (chart->title[0] != '\0') {
        put_text(&f, f.left, f.top + 14, "head", chart->title, (int)((f.all - f.left) / 7.8));
        f.top += 28;
    }
    f.top = legend(&f, f.top);
    if (named(y)) {
        put_text(&f, 4, f.top + 12, "label", y->title, 60);
        f.top += 22;
    }
    f.top += 4;
    double below = x->kind != SCALE_NONE ? 24 : 8;
    if (f.slanted) {
        below = fmin(16 * 6.8, widest(x)) * 0.66 + 26;
    }
    x_axis(&f);
    y_axis(&f);
    for (uint32_t i = 0; i < chart->n_layers; i++) {
        const vega_layer *layer = &chart->layers[i];
        switch (layer->mark) {
        case MARK_BAR:
        case MARK_RECT:
            boxes(&f, layer);
            break;
        case MARK_LINE:
        case MARK_AREA:
            curves(&f, layer);
            break;
        case MARK_POINT:
        case MARK_CIRCLE:
            dots(&f, layer, 3.6, layer->mark == MARK_POINT);
            break;
        default:
            strokes(&f, layer);
        }
    }
    if (named(x)) {
        below += 18;
        put_text(&f, f.left + f.width / 2, f.top + f.height + below - 4, "label mid", x->title, 80);
    }
    stk_buf_printf(out, "<svg class=\"chart\" viewBox=\"0 0 %.0f %.0f\" role=\"img\"%s>", f.all,
                   f.top + f.height + below + 4, narrow ? " width=\"400\"" : "");
    stk_buf_add(out, body.data, body.len);
    stk_buf_text(out, "</svg>");
}
