/* A comparison as panels of a page, and as a page of its own. */
#include <math.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "base/units.h"
#include "show/compare_private.h"
#include "show/lines.h"
#include "show/show_css.h"
#include "show/show_html_private.h"
#include "show/show_svg_plot.h"

enum { LINES_SHOWN = 200, PLOTS = 24, VALUES = 24, DIFFS = 11 };

typedef struct sheet_of_runs {
    const stk_compare *c;
    stk_arena *arena;
    stk_buf *out;
    stk_err *err;
} sheet_of_runs;

static bool is_many(const stk_compare *c)
{
    return c->ask->n > STK_COMPARE_DETAILS;
}

/* Of many runs the best ones have a colour each. */
static uint32_t ink_of(const stk_compare *c, uint32_t i_run)
{
    return stk_plot_ink(is_many(c) ? c->rank[i_run] : i_run);
}

static void put_key(stk_buf *out, uint32_t ink)
{
    if (ink < STK_PLOT_INKS) {
        stk_buf_printf(out, "<span class=\"key r%u\"></span>", ink);
    } else {
        stk_buf_text(out, "<span class=\"key\"></span>");
    }
}

static void put_run_name(const sheet_of_runs *s, uint32_t i_run)
{
    const char *id = s->c->ask->runs[i_run].row->id;
    put_key(s->out, ink_of(s->c, i_run));
    if (s->c->ask->run_url != NULL) {
        stk_html_put(s->out, "<a href=\"%s%s\"><code>%s</code></a>", s->c->ask->run_url, id, id);
    } else {
        stk_html_put(s->out, "<code>%s</code>", id);
    }
    if (i_run == s->c->best) {
        stk_buf_text(s->out, "<span class=\"badge\">best</span>");
    }
}

/* --- tables with a column a run --- */

static double most_of(const stk_compare *c, const stk_compare_part *part)
{
    double most = 0;
    for (uint32_t i = 0; i < part->n; i++) {
        for (uint32_t k = 0; k < c->ask->n; k++) {
            most = MAX(most, part->rows[i].cells[k].number);
        }
    }
    return most;
}

static void put_value_cell(const sheet_of_runs *s, const stk_compare_cell *cell, bool is_best,
                           double most)
{
    stk_buf *out = s->out;
    if (cell->text == NULL) {
        stk_buf_text(out, "<td class=\"dim\">–</td>");
        return;
    }
    stk_buf_printf(out, "<td class=\"wrap%s\">", stk_text_when(is_best, " best"));
    if (cell->status != NULL) {
        stk_html_status(out, cell->status);
        if (strcmp(cell->text, cell->status) != 0) {
            stk_html_put(out, " · %s", cell->text);
        }
        if (most > 0 && cell->is_number) {
            stk_buf_printf(out, "<span class=\"meter\"><i style=\"width:%.0f%%\"></i></span>",
                           cell->number / most * 100);
        }
    } else {
        stk_html_put(out, "%s", cell->text);
    }
    if (cell->has_spread && cell->min < cell->max) {
        stk_buf_printf(out, "<br/><span class=\"dim\">%.4g to %.4g</span>", cell->min, cell->max);
    }
    stk_buf_text(out, "</td>");
}

static void put_value_row(const sheet_of_runs *s, const stk_compare_row *row, double most)
{
    char change[32];
    const stk_compare *c = s->c;
    bool marks = c->best != UINT32_MAX && row == stk_compare_metric(c);
    stk_html_put(s->out, "<tr class=\"%s\"><td>%s</td>",
                 stk_text_noun(row->differs, "differs", "same"), row->name);
    for (uint32_t k = 0; k < c->ask->n; k++) {
        put_value_cell(s, &row->cells[k], marks && k == c->best, most);
    }
    if (c->ask->n == 2) {
        const char *text =
            stk_compare_change(&row->cells[0], &row->cells[1], change, sizeof change);
        stk_html_cell(s->out, "change", text);
    }
    stk_buf_text(s->out, "</tr>\n");
}

static void put_part_head(const sheet_of_runs *s)
{
    stk_buf_text(s->out, "<div class=\"scroll\"><table class=\"runs side\"><thead><tr><td></td>");
    for (uint32_t i = 0; i < s->c->ask->n; i++) {
        stk_buf_text(s->out, "<th>");
        put_run_name(s, i);
        stk_buf_text(s->out, "</th>");
    }
    stk_buf_text(s->out, s->c->ask->n == 2 ? "<th>change</th>" : "");
    stk_buf_text(s->out, "</tr></thead><tbody>\n");
}

static void put_part_panel(const sheet_of_runs *s, const stk_compare_part *part)
{
    uint32_t shown = stk_compare_n_shown(s->c, part);
    double most = 0;
    if (shown == 0 && part != &s->c->parts[STK_PART_PARAMETERS]) {
        return;
    }
    if (part == &s->c->parts[STK_PART_STEPS]) {
        most = most_of(s->c, part);
    }
    stk_html_panel_open(s->out, part->title);
    if (shown > 0) {
        put_part_head(s);
        for (uint32_t i = 0; i < part->n; i++) {
            if (stk_compare_shows(s->c, &part->rows[i])) {
                put_value_row(s, &part->rows[i], most);
            }
        }
        stk_buf_text(s->out, "</tbody></table></div>\n");
    }
    if (part->n > shown) {
        stk_buf_printf(s->out, "<p class=\"meta\">%u more %s the same in all runs.</p>",
                       part->n - shown, stk_text_noun(part->n - shown, "is", "are"));
    } else if (part->n == 0) {
        stk_buf_text(s->out, "<p class=\"meta\">These runs have none.</p>");
    }
    stk_html_panel_close(s->out);
}

/* --- a row a run --- */

static bool is_column(const stk_compare *c, const stk_compare_row *row)
{
    return row->differs || c->ask->all;
}

static void put_columns(const sheet_of_runs *s, uint32_t i_run)
{
    static const stk_compare_part_id parts[] = {STK_PART_PARAMETERS, STK_PART_METRICS};
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
        const stk_compare_part *part = &s->c->parts[parts[p]];
        uint32_t n = 0;
        for (uint32_t i = 0; i < part->n && n < VALUES; i++) {
            const stk_compare_row *row = &part->rows[i];
            if (!is_column(s->c, row)) {
                continue;
            }
            n++;
            if (i_run == UINT32_MAX) {
                stk_html_put(s->out, "<th>%s</th>", row->name);
            } else {
                stk_html_cell(s->out, NULL, row->cells[i_run].text);
            }
        }
    }
}

static void put_run_row(const sheet_of_runs *s, uint32_t i_run)
{
    const stk_run_row *row = s->c->ask->runs[i_run].row;
    const stk_compare_part *part = &s->c->parts[STK_PART_RUN];
    uint64_t i = 0;
    stk_buf_printf(s->out, "<tr%s><td>", stk_text_when(i_run == s->c->best, " class=\"best\""));
    put_run_name(s, i_run);
    stk_buf_text(s->out, "</td><td>");
    stk_html_status(s->out, row->status);
    stk_buf_text(s->out, "</td>");
    put_columns(s, i_run);
    bool timed = stk_map_get(&part->by_name, "time", &i);
    stk_html_cell(s->out, NULL, timed ? part->rows[i].cells[i_run].text : "");
    stk_buf_text(s->out, "</tr>\n");
}

static void put_runs_table(const sheet_of_runs *s)
{
    uint32_t shown = MIN(s->c->ask->n, LINES_SHOWN);
    stk_html_panel_open(s->out, "Runs");
    stk_buf_text(s->out, "<div class=\"scroll tall\"><table class=\"runs\"><thead><tr><th>run</th>"
                         "<th>status</th>");
    put_columns(s, UINT32_MAX);
    stk_buf_text(s->out, "<th>time</th></tr></thead><tbody>\n");
    for (uint32_t i = 0; i < shown; i++) {
        put_run_row(s, s->c->order[i]);
    }
    stk_buf_text(s->out, "</tbody></table></div>\n");
    if (shown < s->c->ask->n) {
        stk_buf_printf(s->out, "<p class=\"meta\">and %u more runs</p>", s->c->ask->n - shown);
    }
    stk_html_panel_close(s->out);
}

/* --- pictures of a sweep --- */

static int to_axis(const sheet_of_runs *s, const stk_compare_row *row, stk_plot_axis *ret)
{
    uint32_t n = s->c->ask->n;
    const char **texts = stk_arena_array(s->arena, n, sizeof *texts);
    double *numbers = stk_arena_array(s->arena, n, sizeof *numbers);
    bool all_numbers = true;
    if (texts == NULL || numbers == NULL) {
        return stk_err_nomem(s->err);
    }
    for (uint32_t i = 0; i < n; i++) {
        const stk_compare_cell *cell = &row->cells[i];
        texts[i] = cell->text;
        numbers[i] = cell->number;
        all_numbers = all_numbers && (cell->is_number || cell->text == NULL);
    }
    *ret = (stk_plot_axis){row->name, texts, numbers, n};
    if (!all_numbers) {
        ret->numbers = NULL;
    }
    return 0;
}

static int to_plot_runs(const sheet_of_runs *s, stk_plot_runs *ret)
{
    uint32_t n = s->c->ask->n;
    const char **names = stk_arena_array(s->arena, n, sizeof *names);
    double *parts = stk_arena_array(s->arena, n, sizeof *parts);
    if (names == NULL || parts == NULL) {
        return stk_err_nomem(s->err);
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t run = s->c->order[i];
        names[run] = s->c->ask->runs[run].row->id;
        parts[run] = s->c->best == UINT32_MAX ? -1 : (double)i / MAX(n - 1, 1);
    }
    *ret = (stk_plot_runs){names, parts, s->c->best};
    return 0;
}

static int put_parallel(const sheet_of_runs *s, const stk_plot_axis *axes, uint32_t n,
                        const stk_plot_runs *runs)
{
    stk_html_panel_open(s->out, "Parameters and metric of each run");
    stk_buf_text(s->out, "<div class=\"scroll\">");
    STK_TRY(stk_svg_parallel(axes, n, runs, s->arena, s->out, s->err));
    stk_buf_text(s->out, "</div>");
    if (s->c->best != UINT32_MAX) {
        stk_buf_text(s->out, "<p class=\"meta\">From blue (better) to orange (worse); the best "
                             "run is green.</p>");
    }
    stk_html_panel_close(s->out);
    return 0;
}

/* Each parameter that differs against the metric. */
static int put_sweep(const sheet_of_runs *s)
{
    const stk_compare_row *metric = stk_compare_metric(s->c);
    const stk_compare_part *part = &s->c->parts[STK_PART_PARAMETERS];
    stk_plot_axis axes[PLOTS + 1], y;
    stk_plot_runs runs;
    uint32_t n = 0;
    if (metric == NULL || s->c->ask->n < 4) {
        return 0;
    }
    for (uint32_t i = 0; i < part->n && n < PLOTS; i++) {
        if (part->rows[i].differs) {
            STK_TRY(to_axis(s, &part->rows[i], &axes[n++]));
        }
    }
    STK_TRY(to_axis(s, metric, &y));
    STK_TRY(to_plot_runs(s, &runs));
    if (n == 0) {
        return 0;
    }
    if (n > 1) {
        stk_plot_axis after = axes[MIN(n, STK_PLOT_AXES - 1)];
        axes[MIN(n, STK_PLOT_AXES - 1)] = y;
        STK_TRY(put_parallel(s, axes, MIN(n, STK_PLOT_AXES - 1) + 1, &runs));
        axes[MIN(n, STK_PLOT_AXES - 1)] = after;
    }
    stk_html_put(s->out,
                 "<section class=\"panel\"><h2>Each parameter against %s</h2><div "
                 "class=\"plots\">\n",
                 metric->name);
    for (uint32_t i = 0; i < n; i++) {
        STK_TRY(stk_svg_scatter(&axes[i], &y, &runs, s->arena, s->out, s->err));
    }
    stk_buf_text(s->out, "</div></section>\n");
    return 0;
}

/* --- metrics over time --- */

static void put_curves_of(const sheet_of_runs *s, uint32_t i_row, stk_buf *out)
{
    const stk_compare *c = s->c;
    stk_plot_line lines[STK_COMPARE_CURVES];
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_curves && n < STK_COMPARE_CURVES; i++) {
        const stk_compare_curve *one = &c->curves[i];
        if (one->row == i_row) {
            lines[n++] = (stk_plot_line){c->ask->runs[one->run].row->id, one->points, one->n,
                                         ink_of(c, one->run), one->run == c->best};
        }
    }
    if (n > 0) {
        const stk_plot_words words = {c->parts[STK_PART_METRICS].rows[i_row].name, "step", false};
        stk_svg_lines(&words, lines, n, out);
    }
}

static void put_curves(const sheet_of_runs *s)
{
    STK_BUF_AUTO plots = STK_BUF_INIT(MAX_CARD_BYTES);
    uint32_t n_metrics = s->c->parts[STK_PART_METRICS].n;
    for (uint32_t i = 0; i < MIN(n_metrics, VALUES); i++) {
        put_curves_of(s, i, &plots);
    }
    stk_html_panel(s->out, "Metrics over time", "<div class=\"plots\">\n", &plots, "</div>");
}

/* --- sources --- */

static void put_source_line(void *arg, char sign, const char *text, size_t n)
{
    static const char classes[][5] = {[' '] = "", ['-'] = "del", ['+'] = "add", ['@'] = "hunk"};
    stk_buf *out = arg;
    STK_BUF_AUTO line = STK_BUF_INIT(1u << 20);
    stk_buf_char(&line, sign);
    stk_buf_add(&line, text, n);
    stk_buf_printf(out, "<span class=\"%s\">", classes[(unsigned char)sign]);
    stk_html_user(out, stk_text_or(line.data, ""));
    stk_buf_text(out, "</span>");
}

static int put_diffs(const sheet_of_runs *s)
{
    const stk_compare *c = s->c;
    STK_BUF_AUTO diffs = STK_BUF_INIT(MAX_CARD_BYTES);
    for (uint32_t i = 0; i < c->n_sources; i++) {
        const char *const *texts = c->sources[i].texts;
        for (uint32_t k = 1; k < MIN(c->ask->n, DIFFS); k++) {
            const char *as = NULL;
            if (!stk_compare_tells(c, i, k, &as)) {
                continue;
            }
            stk_html_put(&diffs,
                         "<p class=\"curve-name\">%s <span class=\"dim\">%s to %s%s%s</span></p>",
                         c->sources[i].name, c->ask->runs[0].row->id, c->ask->runs[k].row->id,
                         stk_text_when(as != NULL, ": as of "), stk_text_or(as, ""));
            if (as != NULL) {
                continue;
            }
            stk_buf_text(&diffs, "<pre class=\"diff\">");
            STK_TRY(stk_lines_diff(texts[0], texts[k], put_source_line, &diffs, s->err));
            stk_buf_text(&diffs, "</pre>\n");
        }
    }
    stk_html_panel(s->out, "Changes of the code", "", &diffs, "");
    return 0;
}

/* --- all --- */

int stk_compare_html(const stk_compare *c, stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    sheet_of_runs s = {c, arena, out, err};
    STK_TRY(stk_err_if_null(arena, err));
    if (is_many(c)) {
        STK_TRY(put_sweep(&s));
        put_curves(&s);
        put_runs_table(&s);
    } else {
        put_part_panel(&s, &c->parts[STK_PART_RUN]);
        put_part_panel(&s, &c->parts[STK_PART_PARAMETERS]);
        put_part_panel(&s, &c->parts[STK_PART_METRICS]);
        STK_TRY(put_sweep(&s));
        put_curves(&s);
        for (int p = STK_PART_STEPS; p < STK_PART_N; p++) {
            put_part_panel(&s, &c->parts[p]);
        }
        STK_TRY(put_diffs(&s));
    }
    return stk_show_check(out, err);
}

void stk_compare_verdict(const stk_compare *c, stk_buf *out)
{
    const stk_compare_row *row = stk_compare_metric(c);
    if (c->best == UINT32_MAX) {
        return;
    }
    stk_html_put(out, "<p class=\"verdict\">Best is <code>%s</code>: %s %s, the %s.</p>\n",
                 c->ask->runs[c->best].row->id, row->name, row->cells[c->best].text,
                 stk_text_noun(row->less_is_better, "least", "greatest"));
}

int stk_compare_page(const stk_compare *c, stk_buf *out, stk_err *err)
{
    stk_html_page_open(out, stk_arena_printf(c->arena, "%u runs compared", c->ask->n));
    stk_compare_verdict(c, out);
    stk_html_put(out, "<div class=\"meta\">%s</div></header>\n", stk_store_path(c->ask->store));
    STK_TRY(stk_compare_html(c, out, err));
    stk_html_page_close(out);
    return stk_show_check(out, err);
}
