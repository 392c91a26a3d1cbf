/* show_svg_plot: pictures of several runs in one. Each function adds one complete <svg> element,
 * with the classes of show_css_plot.c. All text is escaped. */
#ifndef STK_SHOW_SVG_PLOT_H
#define STK_SHOW_SVG_PLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "store/metrics/metrics.h"

/* Colours of runs: the first STK_PLOT_INKS have one each, further ones share the last. */
enum { STK_PLOT_INKS = 8 };
static inline uint32_t stk_plot_ink(uint32_t i_run)
{
    return i_run < STK_PLOT_INKS ? i_run : STK_PLOT_INKS;
}

/* A metric of one run over time. */
typedef struct stk_plot_line {
    const char *name; /* of the run */
    const stk_metric_point *points;
    uint32_t n;
    uint32_t ink;
    bool is_best;
} stk_plot_line;

/* All in one frame, by step if every point has one, else by order. `position`: the word for a step;
 * from_zero: the y axis begins at 0. Nothing without a finite value. */
typedef struct stk_plot_words {
    const char *title, *position;
    bool from_zero;
} stk_plot_words;
void stk_svg_lines(const stk_plot_words *words, const stk_plot_line *lines, uint32_t n,
                   stk_buf *out);

/* A quantity over the runs, as an axis. */
typedef struct stk_plot_axis {
    const char *title;
    const char *const *texts; /* one a run; NULL: it has none */
    const double *numbers;    /* NULL: words, in their order */
    uint32_t n;               /* runs */
} stk_plot_axis;

/* How runs are drawn. `part` of a run is 0 for the best and 1 for the worst, < 0: unknown. */
typedef struct stk_plot_runs {
    const char *const *names;
    const double *parts;
    uint32_t best; /* UINT32_MAX: none */
} stk_plot_runs;

/* One point a run that has both. */
int stk_svg_scatter(const stk_plot_axis *x, const stk_plot_axis *y, const stk_plot_runs *runs,
                    stk_arena *arena, stk_buf *out, stk_err *err);
/* One line a run over all axes that it has. At most STK_PLOT_AXES axes are drawn. */
enum { STK_PLOT_AXES = 9 };
int stk_svg_parallel(const stk_plot_axis *axes, uint32_t n_axes, const stk_plot_runs *runs,
                     stk_arena *arena, stk_buf *out, stk_err *err);

#endif
