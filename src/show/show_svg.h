/* show_svg: the pictures of a card. Each function adds one complete <svg> element. The classes of
 * show_css.c give the colours. All text is escaped. */
#ifndef STK_SHOW_SVG_H
#define STK_SHOW_SVG_H

#include "base/buf.h"
#include "host/runner/runner_samples.h"
#include "show/show_alike.h"
#include "store/view/view.h"

/* The graph of the run with at most 200 nodes. Alike steps of one layer are one node, from
 * STK_ALIKE_MIN on; in a larger graph all those whose names differ only in digits; if that isn't
 * enough, whole layers.
 * *ret_collapsed: steps were merged. */
int stk_svg_graph(const stk_view *view, int64_t now_ms, stk_buf *out, bool *ret_collapsed,
                  stk_err *err);
/* When each step ran: one row per step or group of alike ones, or packed lanes if there are many.
 * Nothing if none ran. */
int stk_svg_timeline(const stk_view *view, int64_t now_ms, stk_buf *out, stk_err *err);

/* The same with a row for each group, whose height follows the number of its running tasks, with
 * marks where tasks failed. STK_E_LIMIT: too many rows. */
int stk_svg_wide_timeline(const stk_view *view, const stk_alike *alike, int64_t now_ms,
                          stk_buf *out, stk_err *err);

/* What each device and the CPUs did: a lane each, with the tasks that held it, how busy it was, and
 * marks where an attempt ran out of memory, was preempted or was tried again. Nothing without a
 * device or a sample. */
int stk_svg_lanes(const stk_view *view, int64_t now_ms, stk_buf *out, stk_err *err);

/* A stretch of time on the x axis, which begins at `left`. */
typedef struct stk_svg_span {
    int64_t from_ms;
    double seconds;
    double left; /* x of from_ms */
    double width;
} stk_svg_span;
double stk_svg_x_of(const stk_svg_span *s, int64_t ms);
void stk_svg_axis(const stk_svg_span *s, double height, stk_buf *out);
/* When a task ran, with how long beside it if `h` leaves room. */
void stk_svg_bar(const stk_view *view, const stk_svg_span *s, uint32_t i_task, int64_t now_ms,
                 double y, double h, stk_buf *out);
/* The name of a row, left of it. */
void stk_svg_row_label(const char *text, double x, double y, stk_buf *out);

/* All curves for which there are samples: memory, CPUs, disk, and the state of each device. */
int stk_svg_samples(const stk_samples *samples, const stk_view_details *details, stk_arena *arena,
                    stk_buf *out, stk_err *err);

#endif
