/* The card's table of steps, with alike ones as one row and their distribution. */
#include <sys/param.h>

#include "base/text.h"
#include "base/units.h"
#include "show/show_alike.h"
#include "show/show_html_private.h"
#include "show/show_text.h"

enum { BIN_W = 6, BIN_H = 26 };

static const char head[] =
    "<div class=\"scroll\"><table "
    "class=\"steps\"><thead><tr><th>step</th><th>status</th><th>time</th>"
    "<th>asked</th><th>granted</th><th>used</th><td></td></tr></thead><tbody>\n";

typedef const char *(*format_fn)(double amount, char *buf, size_t size);

static const char *format_seconds(double s, char *buf, size_t size)
{
    return stk_units_format_duration((int64_t)(s * 1000 + 0.5), buf, size);
}

static const char *format_bytes(double bytes, char *buf, size_t size)
{
    return stk_units_format_memory((int64_t)(bytes + 0.5), buf, size);
}

/* A histogram: the part of failed tasks at the bottom of each bar. */
static void put_histogram(const stk_alike_spread *s, const char *what, format_fn format,
                          stk_buf *out)
{
    char from[32], to[32];
    uint32_t most = 1;
    for (int i = 0; i < STK_ALIKE_BINS; i++) {
        most = MAX(s->bins[i], most);
    }
    stk_buf_printf(out,
                   "<svg class=\"spread\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
                   "role=\"img\" aria-label=\"how %s spreads\">",
                   STK_ALIKE_BINS * BIN_W, BIN_H, STK_ALIKE_BINS * BIN_W, BIN_H, what);
    for (int i = 0; i < STK_ALIKE_BINS; i++) {
        double width = (s->max - s->min) / STK_ALIKE_BINS;
        double h = (double)s->bins[i] / most * (BIN_H - 1), bad = 0;
        if (s->bins[i] == 0) {
            continue;
        }
        bad = h * s->failed[i] / s->bins[i];
        stk_buf_printf(out, "<g><title>%u: %s to %s</title>", s->bins[i],
                       format(s->min + i * width, from, sizeof from),
                       format(s->min + (i + 1) * width, to, sizeof to));
        stk_buf_printf(out, "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\"/>", i * BIN_W,
                       BIN_H - h, BIN_W - 1, h - bad);
        if (bad > 0) {
            stk_buf_printf(out,
                           "<rect class=\"bad\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\"/>",
                           i * BIN_W, BIN_H - bad, BIN_W - 1, bad);
        }
        stk_buf_text(out, "</g>");
    }
    stk_buf_printf(out, "<line class=\"base\" x1=\"0\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/></svg>",
                   BIN_H, STK_ALIKE_BINS * BIN_W, BIN_H);
}

static void put_spread(const stk_alike_spread *s, const char *what, format_fn format, stk_buf *out)
{
    char min[32], median[32], max[32];
    if (s->n == 0) {
        return;
    }
    put_histogram(s, what, format, out);
    stk_buf_printf(out,
                   "<span class=\"three\">%s / <b>%s</b> / %s</span><span class=\"dim three\">min "
                   "/ median / max</span>",
                   format(s->min, min, sizeof min), format(s->median, median, sizeof median),
                   format(s->max, max, sizeof max));
}

static bool ask_the_same(const page *p, const stk_alike_group *g)
{
    const stk_resources *a = &stk_view_get_task(p->view, g->first)->step->settings->resources;
    for (uint32_t i = 0; i < g->sum.n; i++) {
        const stk_resources *b =
            &stk_view_get_task(p->view, g->tasks[i])->step->settings->resources;
        if (a != b && (a->cpu_milli != b->cpu_milli || a->memory_bytes != b->memory_bytes ||
                       a->n_any_of + b->n_any_of > 0 || a->base.gpu_count != b->base.gpu_count ||
                       a->base.gpu_memory_bytes != b->base.gpu_memory_bytes ||
                       !stk_text_same(a->base.gpu_class, b->base.gpu_class) ||
                       !stk_text_same(a->base.gpu_vendor, b->base.gpu_vendor))) {
            return false;
        }
    }
    return true;
}

static void put_asked(const page *p, const stk_alike_group *g, const stk_view_details *first)
{
    STK_BUF_AUTO text = STK_BUF_INIT(256);
    if (!ask_the_same(p, g)) {
        stk_html_cell(p->out, "dim", "not all the same");
        return;
    }
    stk_text_amounts(&text, &first->asked, true);
    stk_html_cell(p->out, NULL, text.data);
}

/* Many tasks as one row; `g->tasks[0]` failed if any did. */
static int group_row(const page *p, const stk_alike_group *g)
{
    stk_buf *out = p->out;
    stk_view_details d;
    stk_alike_use use;
    char text[64];
    STK_BUF_AUTO counts = STK_BUF_INIT(4096);
    const stk_view_task *task = stk_view_get_task(p->view, g->tasks[0]);
    STK_TRY(stk_alike_measure(p->view, g, &use, p->err));
    STK_TRY(stk_html_details(p, g->tasks[0], &d));
    stk_html_put(out, "<tr class=\"alike\"><td><b>%s</b> <span class=\"dim\">× %s</span>", g->name,
                 stk_text_count(g->sum.n, text, sizeof text));
    if (task->step->source != NULL) {
        stk_html_put(out, "<br/><code class=\"dim\">%s</code>", task->step->source);
    }
    stk_buf_text(out, "</td><td>");
    stk_html_status(out, stk_state_word(stk_view_worst(&g->sum)));
    stk_show_counts(&g->sum, &counts);
    stk_html_put(out, "<br/><span class=\"dim\">%s</span></td><td>", stk_text_or(counts.data, ""));
    put_spread(&use.seconds, "time", format_seconds, out);
    stk_buf_text(out, "</td>");
    put_asked(p, g, &d);
    stk_buf_text(out, "<td></td><td>");
    put_spread(&use.memory, "memory", format_bytes, out);
    if (use.cpu_s >= 0) {
        stk_html_seconds(out, use.cpu_s);
        stk_buf_text(out, " of CPU time");
    }
    stk_buf_text(out, "</td>");
    stk_html_cell(out, "dim", task->state == STK_TASK_FAILED ? d.error_text : "");
    stk_buf_text(out, "</tr>\n");
    return 0;
}

static void unreached_row(const page *p, const char *name)
{
    stk_html_put(p->out,
                 "<tr><td class=\"dim\">%s</td><td class=\"dim\">not reached</td><td></td><td></td>"
                 "<td></td><td></td><td></td></tr>\n",
                 name);
}

/* The tasks of a group, folded. *room: how many rows the card still takes. */
static int group_list(const page *p, const stk_alike_group *g, uint32_t *room)
{
    uint32_t shown = MIN(g->sum.n, *room);
    char text[32];
    *room -= shown;
    stk_html_put(p->out, "<details class=\"alike\"><summary>%ss of <b>%s</b></summary>",
                 stk_show_noun(p->view), g->name);
    stk_buf_text(p->out, head);
    for (uint32_t i = 0; i < shown; i++) {
        STK_TRY(stk_html_step_row(p, g->tasks[i]));
    }
    stk_buf_text(p->out, "</tbody></table></div>");
    if (stk_view_grows(p->view) && g->sum.n > shown) {
        stk_html_put(p->out, "<p class=\"meta\">and %s more: <code>stoker show %s/%s</code></p>",
                     stk_text_count(g->sum.n - shown, text, sizeof text), p->run->id, g->name);
    } else {
        stk_html_more(p, g->sum.n, shown, "steps");
    }
    stk_buf_text(p->out, "</details>\n");
    return 0;
}

/* A task's own row, or that of its group where the group's first task stands. */
static int task_or_group(const page *p, const stk_alike *alike, uint32_t i_task, uint32_t *n_rows,
                         uint32_t *n_left_out)
{
    uint32_t g = alike->of[i_task];
    if (g != UINT32_MAX && alike->groups[g].first != i_task) {
        return 0;
    }
    if (*n_rows == MAX_ROWS) {
        (*n_left_out)++;
        return 0;
    }
    (*n_rows)++;
    return g == UINT32_MAX ? stk_html_step_row(p, i_task) : group_row(p, &alike->groups[g]);
}

int stk_html_steps(const page *p)
{
    STK_ARENA_AUTO keep = stk_arena_new(0);
    stk_alike alike;
    bool grows = stk_view_grows(p->view);
    uint32_t n = grows ? stk_spec_n_steps(stk_view_spec(p->view)) : stk_view_n_tasks(p->view);
    uint32_t n_rows = 0, n_left_out = 0, room = MAX_ROWS;
    STK_TRY(stk_err_if_null(keep, p->err));
    STK_TRY(stk_alike_find(p->view, grows ? 2 : STK_ALIKE_MIN, keep, &alike, p->err));
    if (stk_view_n_tasks(p->view) == 0) {
        return 0;
    }
    stk_html_panel_open(p->out, "Steps: asked, granted, used");
    stk_buf_text(p->out, head);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t i_task = i;
        if (grows) {
            i_task = stk_view_get_step(p->view, i)->first;
        }
        if (i_task == UINT32_MAX) {
            unreached_row(p, stk_spec_step(stk_view_spec(p->view), i)->name);
        } else {
            STK_TRY(task_or_group(p, &alike, i_task, &n_rows, &n_left_out));
        }
    }
    stk_buf_text(p->out, "</tbody></table></div>");
    stk_html_more(p, n_left_out, 0, "steps");
    for (uint32_t g = 0; g < alike.n && room > 0; g++) {
        STK_TRY(group_list(p, &alike.groups[g], &room));
    }
    stk_html_panel_close(p->out);
    return 0;
}
