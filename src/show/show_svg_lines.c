/* A metric of several runs over time, in one frame. */
#include <math.h>
#include <stdio.h>
#include <sys/param.h>

#include "base/text.h"
#include "show/show_svg_plot.h"
#include "show/show_text.h"

enum {
    LINES_W = 512,
    LINES_H = 220,
    LINES_L = 56,
    LINES_R = 12,
    LINES_T = 30,
    LINES_B = 26,
    LINE_TICKS = 4
};

typedef struct frame {
    bool by_step;
    double from, to, low, high;
} frame;

static double line_position(const frame *f, const stk_plot_line *line, uint32_t i)
{
    return f->by_step ? (double)line->points[i].step : (double)i;
}

static double between(double value, double from, double to)
{
    return to > from ? (value - from) / (to - from) : 0.5;
}

static double line_x(const frame *f, double position)
{
    return LINES_L + between(position, f->from, f->to) * (LINES_W - LINES_L - LINES_R);
}

static double line_y(const frame *f, double value)
{
    return LINES_H - LINES_B - between(value, f->low, f->high) * (LINES_H - LINES_T - LINES_B);
}

/* False: there is no finite value. */
static bool find_frame(const stk_plot_line *lines, uint32_t n, frame *ret)
{
    *ret = (frame){true, INFINITY, -INFINITY, INFINITY, -INFINITY};
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < lines[i].n; k++) {
            ret->by_step = ret->by_step && lines[i].points[k].step >= 0;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < lines[i].n; k++) {
            double at = line_position(ret, &lines[i], k), value = lines[i].points[k].value;
            ret->from = MIN(ret->from, at);
            ret->to = MAX(ret->to, at);
            if (isfinite(value)) {
                ret->low = MIN(ret->low, value);
                ret->high = MAX(ret->high, value);
            }
        }
    }
    return ret->low <= ret->high;
}

static void put_lines_frame(const stk_plot_words *words, const frame *f, stk_buf *out)
{
    STK_BUF_AUTO cut = STK_BUF_INIT(4096);
    stk_text_fit(&cut, words->title, 60, false, true);
    stk_buf_printf(out,
                   "<svg class=\"plot lines\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"",
                   LINES_W, LINES_H);
    stk_buf_html(out, stk_text_or(cut.data, ""));
    stk_buf_text(out, "\"><text class=\"what\" x=\"8\" y=\"16\">");
    stk_buf_html(out, stk_text_or(cut.data, ""));
    stk_buf_text(out, "</text>");
    int ticks = f->high > f->low ? LINE_TICKS : 1;
    for (int i = 0; i < ticks; i++) {
        double value = f->low + (f->high - f->low) * i / MAX(ticks - 1, 1), y = line_y(f, value);
        stk_buf_printf(out,
                       "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/><text "
                       "class=\"tick end\" x=\"%d\" y=\"%.1f\">%.3g</text>",
                       LINES_L, y, LINES_W - LINES_R, y, LINES_L - 6, y + 4, value);
    }
    stk_buf_printf(out, "<text class=\"tick start\" x=\"%d\" y=\"%d\">%s %.0f</text>", LINES_L,
                   LINES_H - 6, stk_text_noun(f->by_step, words->position, "value"), f->from);
    if (f->to > f->from) {
        stk_buf_printf(out, "<text class=\"tick end\" x=\"%d\" y=\"%d\">%.0f</text>",
                       LINES_W - LINES_R, LINES_H - 6, f->to);
    }
    stk_buf_char(out, '\n');
}

/* With gaps where values aren't finite. */
static void put_one_line(const frame *f, const stk_plot_line *line, stk_buf *out)
{
    bool drawing = false;
    if (line->ink < STK_PLOT_INKS) {
        stk_buf_printf(out, "<path class=\"run r%u%s\" d=\"", line->ink,
                       stk_text_when(line->is_best, " best"));
    } else {
        stk_buf_printf(out, "<path class=\"run%s\" d=\"", stk_text_when(line->is_best, " best"));
    }
    for (uint32_t i = 0; i < line->n; i++) {
        double value = line->points[i].value;
        if (isfinite(value)) {
            stk_buf_char(out, "ML"[drawing]);
            stk_buf_printf(out, "%.1f %.1f", line_x(f, line_position(f, line, i)),
                           line_y(f, value));
        }
        drawing = isfinite(value);
    }
    stk_buf_text(out, "\"><title>");
    stk_buf_html(out, line->name);
    stk_buf_text(out, "</title></path>\n");
}

void stk_svg_lines(const stk_plot_words *words, const stk_plot_line *lines, uint32_t n,
                   stk_buf *out)
{
    frame f;
    if (!find_frame(lines, n, &f)) {
        return;
    }
    if (words->from_zero) {
        f.low = MIN(f.low, 0);
    }
    put_lines_frame(words, &f, out);
    for (int best = 0; best < 2; best++) { /* the best one on top */
        for (uint32_t i = 0; i < n; i++) {
            if (lines[i].is_best == (best == 1)) {
                put_one_line(&f, &lines[i], out);
            }
        }
    }
    stk_buf_text(out, "</svg>\n");
}
