/* Parameters and metrics of many runs: scatters and parallel coordinates. */
#include "show/show_svg_plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "show/show_text.h"

enum {
    TICKS_MAX = 6,
    WORDS_MAX = 12,
    LABEL_WIDTH = 14,
    SCATTER_W = 336,
    SCATTER_H = 230,
    SCATTER_L = 58,
    SCATTER_R = 14,
    SCATTER_T = 32,
    SCATTER_B = 44,
    PARALLEL_W = 1060,
    PARALLEL_H = 330,
    PARALLEL_SIDE = 80,
    PARALLEL_T = 46,
    PARALLEL_B = 20
};

/* Where the values of an axis are: `at` of a run between 0 and 1, < 0: the run has none. */
typedef struct scale {
    double *at;
    double tick_at[WORDS_MAX];
    const char *tick_text[WORDS_MAX];
    uint32_t n_ticks;
} scale;

/* --- words --- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int scale_words(const stk_plot_axis *axis, stk_arena *arena, scale *ret)
{
    const char **words = stk_arena_array(arena, (size_t)axis->n + 1, sizeof *words);
    uint32_t n = 0, kept = 0;
    if (words == NULL) {
        return STK_E_NOMEM;
    }
    for (uint32_t i = 0; i < axis->n; i++) {
        if (axis->texts[i] != NULL) {
            words[n++] = axis->texts[i];
        }
    }
    qsort(words, n, sizeof *words, by_text);
    for (uint32_t i = 0; i < n; i++) {
        if (kept == 0 || strcmp(words[kept - 1], words[i]) != 0) {
            words[kept++] = words[i];
        }
    }
    for (uint32_t i = 0; i < axis->n; i++) {
        for (uint32_t k = 0; k < kept && axis->texts[i] != NULL; k++) {
            if (strcmp(words[k], axis->texts[i]) == 0) {
                ret->at[i] = (k + 0.5) / kept;
            }
        }
    }
    for (uint32_t k = 0; k < kept && kept <= WORDS_MAX; k++) {
        ret->tick_at[k] = (k + 0.5) / kept;
        ret->tick_text[k] = words[k];
        ret->n_ticks = kept;
    }
    return 0;
}

/* --- numbers --- */

static int by_number(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double part_between(double value, double low, double high, bool is_log)
{
    if (high <= low) {
        return 0.5;
    }
    if (is_log) {
        return log(value / low) / log(high / low);
    }
    return (value - low) / (high - low);
}

static int add_number_tick(scale *s, double at, double value, stk_arena *arena)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%.4g", value);
    s->tick_at[s->n_ticks] = at;
    s->tick_text[s->n_ticks] = stk_arena_dup(arena, text);
    return s->tick_text[s->n_ticks++] == NULL ? STK_E_NOMEM : 0;
}

/* A tick at each value if there are few, else at equal distances. */
static int add_number_ticks(scale *s, const double *values, uint32_t n, bool is_log,
                            stk_arena *arena)
{
    double low = values[0], high = values[n - 1];
    if (n <= TICKS_MAX) {
        for (uint32_t i = 0; i < n; i++) {
            double at = part_between(values[i], low, high, is_log);
            bool crowded = s->n_ticks > 0 && at - s->tick_at[s->n_ticks - 1] < 0.09;
            if (!crowded) {
                STK_TRY(add_number_tick(s, at, values[i], arena));
            }
        }
        return 0;
    }
    for (int i = 0; i < 4; i++) {
        double at = i / 3.0, value = low + at * (high - low);
        if (is_log) {
            value = low * pow(high / low, at);
        }
        STK_TRY(add_number_tick(s, at, value, arena));
    }
    return 0;
}

static int scale_numbers(const stk_plot_axis *axis, stk_arena *arena, scale *ret)
{
    double *values = stk_arena_array(arena, (size_t)axis->n + 1, sizeof *values);
    uint32_t n = 0, kept = 0;
    if (values == NULL) {
        return STK_E_NOMEM;
    }
    for (uint32_t i = 0; i < axis->n; i++) {
        if (axis->texts[i] != NULL && isfinite(axis->numbers[i])) {
            values[n++] = axis->numbers[i];
        }
    }
    qsort(values, n, sizeof *values, by_number);
    for (uint32_t i = 0; i < n; i++) {
        if (kept == 0 || values[kept - 1] < values[i]) {
            values[kept++] = values[i];
        }
    }
    if (kept == 0) {
        return 0;
    }
    double low = values[0], high = values[kept - 1];
    bool is_log = low > 0 && high / low >= 30;
    for (uint32_t i = 0; i < axis->n; i++) {
        if (axis->texts[i] != NULL && isfinite(axis->numbers[i])) {
            ret->at[i] = part_between(axis->numbers[i], low, high, is_log);
        }
    }
    return add_number_ticks(ret, values, kept, is_log, arena);
}

static int scale_axis(const stk_plot_axis *axis, stk_arena *arena, scale *ret)
{
    *ret = (scale){.at = stk_arena_array(arena, (size_t)axis->n + 1, sizeof(double))};
    if (ret->at == NULL) {
        return STK_E_NOMEM;
    }
    for (uint32_t i = 0; i < axis->n; i++) {
        ret->at[i] = -1;
    }
    return axis->numbers != NULL ? scale_numbers(axis, arena, ret) : scale_words(axis, arena, ret);
}

/* --- pieces --- */

static void put_fitted(stk_buf *out, const char *text, int width)
{
    STK_BUF_AUTO cut = STK_BUF_INIT(4096);
    stk_text_fit(&cut, text, width, false, true);
    stk_buf_html(out, stk_text_or(cut.data, ""));
}

/* The colour between best and worst. */
static void put_blend(stk_buf *out, const char *property, double part)
{
    if (part >= 0) {
        stk_buf_printf(out, " style=\"%s:color-mix(in srgb,var(--cached) %.0f%%,var(--k1))\"",
                       property, (1 - part) * 100);
    }
}

static void put_run_title(stk_buf *out, const char *name, const char *x, const char *y)
{
    stk_buf_text(out, "<title>");
    stk_buf_html(out, name);
    if (x != NULL) {
        stk_buf_text(out, ": ");
        stk_buf_html(out, x);
        stk_buf_text(out, ", ");
        stk_buf_html(out, stk_text_or(y, ""));
    }
    stk_buf_text(out, "</title>");
}

/* --- scatter --- */

static double scatter_x(double at)
{
    return SCATTER_L + 8 + at * (SCATTER_W - SCATTER_L - SCATTER_R - 16);
}

static double scatter_y(double at)
{
    return SCATTER_H - SCATTER_B - 6 - at * (SCATTER_H - SCATTER_T - SCATTER_B - 12);
}

static void put_scatter_frame(const stk_plot_axis *x, const stk_plot_axis *y, const scale *sx,
                              const scale *sy, stk_buf *out)
{
    stk_buf_printf(out,
                   "<svg class=\"plot scatter\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"",
                   SCATTER_W, SCATTER_H);
    put_fitted(out, x->title, 40);
    stk_buf_text(out, " against ");
    put_fitted(out, y->title, 40);
    stk_buf_text(out, "\"><text class=\"what\" x=\"8\" y=\"16\">");
    put_fitted(out, y->title, 40);
    stk_buf_text(out, "</text>");
    for (uint32_t i = 0; i < sy->n_ticks; i++) {
        double at = scatter_y(sy->tick_at[i]);
        stk_buf_printf(out,
                       "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/><text "
                       "class=\"tick end\" x=\"%d\" y=\"%.1f\">",
                       SCATTER_L, at, SCATTER_W - SCATTER_R, at, SCATTER_L - 6, at + 4);
        put_fitted(out, sy->tick_text[i], 8);
        stk_buf_text(out, "</text>");
    }
    double room = (SCATTER_W - SCATTER_L) / 6.6 / MAX(sx->n_ticks, 1);
    for (uint32_t i = 0; i < sx->n_ticks; i++) {
        double at = scatter_x(sx->tick_at[i]);
        bool last = i + 1 == sx->n_ticks && sx->tick_at[i] > 0.95;
        stk_buf_printf(out, "<text class=\"tick%s\" x=\"%.1f\" y=\"%d\">",
                       stk_text_when(last, " end"), last ? at + 8 : at, SCATTER_H - SCATTER_B + 16);
        put_fitted(out, sx->tick_text[i], MAX((int)room, 3));
        stk_buf_text(out, "</text>");
    }
    stk_buf_printf(out,
                   "<line class=\"base\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/><text "
                   "class=\"what mid\" x=\"%d\" y=\"%d\">",
                   SCATTER_L, SCATTER_H - SCATTER_B, SCATTER_W - SCATTER_R, SCATTER_H - SCATTER_B,
                   (SCATTER_L + SCATTER_W) / 2, SCATTER_H - 8);
    put_fitted(out, x->title, 36);
    stk_buf_text(out, "</text>\n");
}

static void put_dot(const stk_plot_runs *runs, uint32_t i, double x, double y, const char *x_text,
                    const char *y_text, stk_buf *out)
{
    if (i == runs->best) {
        stk_buf_printf(out, "<circle class=\"ring\" cx=\"%.1f\" cy=\"%.1f\" r=\"8\"/>", x, y);
    }
    stk_buf_printf(out, "<circle class=\"dot%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"",
                   stk_text_when(i == runs->best, " best"), x, y);
    if (i != runs->best) {
        put_blend(out, "fill", runs->parts[i]);
    }
    stk_buf_char(out, '>');
    put_run_title(out, runs->names[i], x_text, y_text);
    stk_buf_text(out, "</circle>\n");
}

int stk_svg_scatter(const stk_plot_axis *x, const stk_plot_axis *y, const stk_plot_runs *runs,
                    stk_arena *arena, stk_buf *out, stk_err *err)
{
    scale sx, sy;
    if (scale_axis(x, arena, &sx) < 0 || scale_axis(y, arena, &sy) < 0) {
        return stk_err_nomem(err);
    }
    put_scatter_frame(x, y, &sx, &sy, out);
    for (int best = 0; best < 2; best++) { /* the best one on top */
        for (uint32_t i = 0; i < x->n; i++) {
            if (sx.at[i] >= 0 && sy.at[i] >= 0 && (i == runs->best) == (best == 1)) {
                put_dot(runs, i, scatter_x(sx.at[i]), scatter_y(sy.at[i]), x->texts[i], y->texts[i],
                        out);
            }
        }
    }
    stk_buf_text(out, "</svg>\n");
    return 0;
}

/* --- parallel coordinates --- */

static double axis_x(uint32_t i, uint32_t n)
{
    return PARALLEL_SIDE + i * (PARALLEL_W - 2.0 * PARALLEL_SIDE) / MAX(n - 1, 1);
}

static double axis_y(double at)
{
    return PARALLEL_H - PARALLEL_B - at * (PARALLEL_H - PARALLEL_T - PARALLEL_B);
}

static void put_thread(const scale *scales, uint32_t n_axes, const stk_plot_runs *runs, uint32_t i,
                       stk_buf *out)
{
    bool drawing = false;
    stk_buf_printf(out, "<path class=\"thread%s\"", stk_text_when(i == runs->best, " best"));
    if (i != runs->best) {
        put_blend(out, "stroke", runs->parts[i]);
    }
    stk_buf_text(out, " d=\"");
    for (uint32_t k = 0; k < n_axes; k++) {
        if (scales[k].at[i] >= 0) {
            double x = axis_x(k, n_axes), y = axis_y(scales[k].at[i]), before = 0;
            before = axis_x(k > 0 ? k - 1 : 0, n_axes);
            if (!drawing || scales[k - 1].at[i] < 0) {
                stk_buf_printf(out, "M%.1f %.1f", x, y);
            } else {
                double middle = (before + x) / 2;
                stk_buf_printf(out, "C%.1f %.1f %.1f %.1f %.1f %.1f", middle,
                               axis_y(scales[k - 1].at[i]), middle, y, x, y);
            }
            drawing = true;
        }
    }
    stk_buf_text(out, "\">");
    put_run_title(out, runs->names[i], NULL, NULL);
    stk_buf_text(out, "</path>\n");
}

/* Drawn above the threads, so that the numbers stay readable. */
static void put_axis(const stk_plot_axis *axis, const scale *s, uint32_t i, uint32_t n,
                     stk_buf *out)
{
    double x = axis_x(i, n);
    bool last = i + 1 == n;
    stk_buf_printf(out,
                   "<line class=\"axis\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/><text "
                   "class=\"what mid\" x=\"%.1f\" y=\"%d\">",
                   x, PARALLEL_T - 6, x, PARALLEL_H - PARALLEL_B + 6, x, 18 + 14 * (int)(i % 2));
    put_fitted(out, axis->title, n > 5 ? 22 : 30);
    stk_buf_text(out, "</text>");
    for (uint32_t k = 0; k < s->n_ticks; k++) {
        stk_buf_printf(out, "<text class=\"tick halo %s\" x=\"%.1f\" y=\"%.1f\">",
                       stk_text_noun(last, "start", "end"), last ? x + 7 : x - 7,
                       axis_y(s->tick_at[k]) + 4);
        put_fitted(out, s->tick_text[k], 11);
        stk_buf_text(out, "</text>");
    }
    stk_buf_char(out, '\n');
}

int stk_svg_parallel(const stk_plot_axis *axes, uint32_t n_axes, const stk_plot_runs *runs,
                     stk_arena *arena, stk_buf *out, stk_err *err)
{
    scale scales[STK_PLOT_AXES];
    n_axes = MIN(n_axes, STK_PLOT_AXES);
    for (uint32_t i = 0; i < n_axes; i++) {
        if (scale_axis(&axes[i], arena, &scales[i]) < 0) {
            return stk_err_nomem(err);
        }
    }
    stk_buf_printf(out,
                   "<svg class=\"parallel\" viewBox=\"0 0 %d %d\" role=\"img\" "
                   "aria-label=\"parameters and metric of each run\">\n",
                   PARALLEL_W, PARALLEL_H);
    for (uint32_t i = 0; i < axes[0].n; i++) {
        if (i != runs->best) {
            put_thread(scales, n_axes, runs, i, out);
        }
    }
    if (runs->best != UINT32_MAX) {
        put_thread(scales, n_axes, runs, runs->best, out);
    }
    for (uint32_t i = 0; i < n_axes; i++) {
        put_axis(&axes[i], &scales[i], i, n_axes, out);
    }
    stk_buf_text(out, "</svg>\n");
    return 0;
}
