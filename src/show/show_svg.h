/* show_svg: the pictures of a card. Each function adds one complete <svg> element; colours come
 * from the classes of show_css.c, all text is escaped. */
#ifndef STK_SHOW_SVG_H
#define STK_SHOW_SVG_H

#include "base/buf.h"
#include "host/runner/runner_samples.h"
#include "store/view/view.h"

/* The graph of the run, at most 200 nodes: a larger one is drawn with similar steps (same layer,
 * same name but for digits) as one node, then with whole layers as one. ret_collapsed: it was. */
int stk_svg_graph(const stk_view *view, int64_t now_ms, stk_buf *out, bool *ret_collapsed,
                  stk_err *err);
/* When each step ran: a row a step, or packed lanes when there are many. Nothing when none ran. */
int stk_svg_timeline(const stk_view *view, int64_t now_ms, stk_buf *out, stk_err *err);

/* The same of a growing run with many tasks: a row a step, as high as tasks ran at once, with marks
 * where some failed. */
int stk_svg_wide_timeline(const stk_view *view, int64_t now_ms, stk_buf *out, stk_err *err);

/* A stretch of time, drawn from `left` on. */
typedef struct stk_svg_span {
    int64_t from_ms;
    double seconds;
    double left; /* x of from_ms */
    double width;
} stk_svg_span;
double stk_svg_x_of(const stk_svg_span *s, int64_t ms);
void stk_svg_axis(const stk_svg_span *s, double height, stk_buf *out);
/* What a row is called, left of it. */
void stk_svg_row_label(const char *text, double x, double y, stk_buf *out);

/* All curves that the samples have: memory, CPUs, each device's memory and business. */
int stk_svg_samples(const stk_samples *samples, const stk_view_details *details, stk_arena *arena,
                    stk_buf *out, stk_err *err);

#endif
