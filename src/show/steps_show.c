/* A step over its runs, as text, JSON and HTML. */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "show/show_html_private.h"
#include "show/show_svg_plot.h"
#include "show/steps.h"

enum { NEWEST = 15, ROWS_OF_STEP = 100, STEP_CELL = 24, NUMBER_CELL = 11, POINTS_OF_STEP = 500 };

static const char *const quantity_words[STK_STEPS_N] = {"time", "memory at most", "CPUs busy",
                                                        "device memory at most", "devices busy"};
static const char *const quantity_keys[STK_STEPS_N] = {"seconds", "peak_memory_bytes", "cpus",
                                                       "device_memory_bytes", "busy_percent"};

static const char *quantity_text(int quantity, double value, char *buf, size_t size)
{
    if (value < 0) {
        return "";
    }
    if (quantity == STK_STEPS_SECONDS) {
        return stk_units_format_duration((int64_t)(value * 1000), buf, size);
    }
    if (quantity == STK_STEPS_MEMORY || quantity == STK_STEPS_DEVICE_MEMORY) {
        return stk_units_format_memory((int64_t)value, buf, size);
    }
    (void)snprintf(buf, size, quantity == STK_STEPS_CPUS ? "%.2f" : "%.0f %%", value);
    return buf;
}

/* --- what to ask for --- */

/* "3.1GB", as resources take it. */
static void put_memory_setting(int64_t bytes, stk_buf *out)
{
    if (bytes >= 1000000000) {
        stk_buf_printf(out, "%.4gGB", (double)bytes / 1e9);
    } else {
        stk_buf_printf(out, "%.4gMB", (double)bytes / 1e6);
    }
}

typedef struct advice {
    bool python;
    stk_buf *out;
    uint32_t n;
} advice;

static void begin_setting(advice *a, const char *key)
{
    stk_buf_text(a->out, stk_text_when(a->n++ > 0, ", "));
    stk_buf_printf(a->out, "%s%s", key, stk_text_noun(a->python, "=", ": "));
}

static void put_memory_of(advice *a, const char *key, int64_t bytes)
{
    if (bytes > 0) {
        begin_setting(a, key);
        stk_buf_text(a->out, stk_text_when(a->python, "\""));
        put_memory_setting(bytes, a->out);
        stk_buf_text(a->out, stk_text_when(a->python, "\""));
    }
}

void stk_steps_advice(const stk_steps_group *g, bool python, stk_buf *out)
{
    STK_BUF_AUTO inside = STK_BUF_INIT(4096);
    advice a = {python, &inside, 0};
    if (g->cpus > 0) {
        begin_setting(&a, "cpu_count");
        stk_buf_printf(&inside, "%g", g->cpus);
    }
    put_memory_of(&a, "memory", g->memory_bytes);
    if (g->n_devices > 0) {
        begin_setting(&a, "gpu_count");
        stk_buf_printf(&inside, "%lld", (long long)g->n_devices);
        put_memory_of(&a, "gpu_memory", g->device_memory_bytes);
    }
    if (a.n > 0 && python) {
        stk_buf_printf(out, "ResourceSettings(%s)", inside.data);
    } else if (a.n > 0) {
        stk_buf_printf(out, "resources: {%s}", inside.data);
    }
}

/* "20 tasks: 17 succeeded, 2 failed, 1 cached, 3 retries, 2 out of memory" */
static void put_counts_of(const stk_steps_group *g, stk_buf *out)
{
    const struct {
        uint32_t n;
        const char *word;
    } counts[] = {{g->n_succeeded, "succeeded"},
                  {g->n_failed, "failed"},
                  {g->n_cached, "cached"},
                  {g->n_retries, "retried"},
                  {g->n_out_of_memory, "out of memory"}};
    stk_buf_printf(out, "%u task%s", g->n, stk_text_plural(g->n));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (counts[i].n > 0) {
            stk_buf_printf(out, ", %u %s", counts[i].n, counts[i].word);
        }
    }
}

/* --- text --- */

void stk_steps_table(const stk_steps_group *groups, uint32_t n, const stk_style *style,
                     stk_buf *out)
{
    static const char *const heads[] = {"tasks", "failed", "median", "95 %", "memory", "busy"};
    char text[64];
    stk_buf_text(out, "  ");
    stk_text_cell(out, style, "step", STEP_CELL);
    stk_text_cell(out, style, "pipeline", STEP_CELL - 8);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        stk_text_cell(out, style, heads[i], NUMBER_CELL - 2);
    }
    stk_text_end_line(out);
    for (uint32_t i = 0; i < n; i++) {
        const stk_steps_group *g = &groups[i];
        const stk_steps_spread *s = g->spreads;
        stk_buf_text(out, "  ");
        stk_text_cell(out, style, g->step, STEP_CELL);
        stk_text_cell(out, style, g->pipeline, STEP_CELL - 8);
        stk_text_cell(out, style, stk_text_count(g->n, text, sizeof text), NUMBER_CELL - 2);
        stk_text_cell(out, style, stk_text_count(g->n_failed, text, sizeof text), NUMBER_CELL - 2);
        const struct {
            int quantity;
            double value;
        } cells[] = {{STK_STEPS_SECONDS, s[STK_STEPS_SECONDS].median},
                     {STK_STEPS_SECONDS, s[STK_STEPS_SECONDS].p95},
                     {STK_STEPS_MEMORY, s[STK_STEPS_MEMORY].p95},
                     {STK_STEPS_BUSY, s[STK_STEPS_BUSY].median}};
        for (size_t k = 0; k < sizeof cells / sizeof *cells; k++) {
            double value = s[cells[k].quantity].n > 0 ? cells[k].value : -1;
            stk_text_cell(out, style, quantity_text(cells[k].quantity, value, text, sizeof text),
                          NUMBER_CELL - 2);
        }
        stk_text_end_line(out);
    }
}

static void put_spreads(const stk_steps_group *g, const stk_style *style, stk_buf *out)
{
    char text[64];
    stk_buf_text(out, "  ");
    stk_text_cell(out, style, "", STEP_CELL);
    static const char *const heads[] = {"tasks", "median", "95 %", "most"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        stk_text_cell(out, style, heads[i], NUMBER_CELL);
    }
    stk_text_end_line(out);
    for (int i = 0; i < STK_STEPS_N; i++) {
        const stk_steps_spread *s = &g->spreads[i];
        const double values[] = {s->median, s->p95, s->most};
        if (s->n == 0) {
            continue;
        }
        stk_buf_text(out, "  ");
        stk_text_cell(out, style, quantity_words[i], STEP_CELL);
        stk_text_cell(out, style, stk_text_count(s->n, text, sizeof text), NUMBER_CELL);
        for (size_t k = 0; k < 3; k++) {
            stk_text_cell(out, style, quantity_text(i, values[k], text, sizeof text), NUMBER_CELL);
        }
        stk_text_end_line(out);
    }
}

static void put_task_line(const stk_steps_task *t, const stk_style *style, stk_buf *out)
{
    stk_ink ink;
    char text[64];
    const char *mark = stk_text_mark(t->status, style->utf8, &ink);
    stk_text_ink(out, style, ink, mark);
    stk_buf_char(out, ' ');
    stk_text_cell(out, style, t->run, STEP_CELL);
    for (int i = 0; i < STK_STEPS_N; i++) {
        stk_text_cell(out, style, quantity_text(i, t->used[i], text, sizeof text), NUMBER_CELL);
    }
    stk_buf_text(out, stk_text_or(t->error_class, ""));
    stk_text_end_line(out);
}

void stk_steps_text(const stk_steps_group *g, const stk_style *style, stk_buf *out)
{
    STK_BUF_AUTO yaml = STK_BUF_INIT(4096);
    STK_BUF_AUTO python = STK_BUF_INIT(4096);
    stk_text_ink(out, style, STK_INK_BOLD, "step ");
    stk_text_safe(out, g->step, "");
    stk_buf_text(out, " of pipeline ");
    stk_text_safe(out, g->pipeline, "");
    stk_buf_text(out, ": ");
    put_counts_of(g, out);
    stk_buf_char(out, '\n');
    put_spreads(g, style, out);
    stk_text_ink(out, style, STK_INK_BOLD, "newest tasks");
    stk_buf_text(out, ": time, memory, CPUs, device memory, devices busy\n");
    for (uint32_t i = 0; i < MIN(g->n, NEWEST); i++) {
        put_task_line(&g->tasks[i], style, out);
    }
    stk_steps_advice(g, false, &yaml);
    stk_steps_advice(g, true, &python);
    if (yaml.len > 0) {
        stk_text_ink(out, style, STK_INK_BOLD, "ask for");
        stk_buf_printf(out, " (the 95th percentile plus 15 %%)\n  %s\n  %s\n", yaml.data,
                       python.data);
    }
}

/* --- JSON --- */

static void put_spread_json(const char *key, const stk_steps_spread *s, stk_buf *out)
{
    if (s->n > 0) {
        stk_json_open(out, key, '{');
        stk_json_put_whole(out, "n", s->n);
        stk_json_put_real(out, "median", s->median);
        stk_json_put_real(out, "p95", s->p95);
        stk_json_put_real(out, "max", s->most);
        stk_json_close(out, '}');
    }
}

static void put_task_json(const stk_steps_task *t, stk_buf *out)
{
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "run", t->run);
    stk_json_put_text(out, "task", t->label);
    stk_json_put_text(out, "status", t->status);
    stk_json_put_text(out, "class", t->error_class);
    stk_json_put_whole(out, "started_ms", t->started_ms);
    stk_json_put_whole(out, "attempts", t->attempts);
    for (int i = 0; i < STK_STEPS_N; i++) {
        stk_json_put_real(out, quantity_keys[i], t->used[i]);
    }
    stk_json_close(out, '}');
}

static void put_group_json(const stk_steps_group *g, stk_buf *out)
{
    STK_BUF_AUTO yaml = STK_BUF_INIT(4096);
    STK_BUF_AUTO python = STK_BUF_INIT(4096);
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "step", g->step);
    stk_json_put_text(out, "pipeline", g->pipeline);
    stk_json_put_whole(out, "n", g->n);
    stk_json_put_whole(out, "succeeded", g->n_succeeded);
    stk_json_put_whole(out, "cached", g->n_cached);
    stk_json_put_whole(out, "failed", g->n_failed);
    stk_json_put_whole(out, "retries", g->n_retries);
    stk_json_put_whole(out, "out_of_memory", g->n_out_of_memory);
    stk_json_open(out, "used", '{');
    for (int i = 0; i < STK_STEPS_N; i++) {
        put_spread_json(quantity_keys[i], &g->spreads[i], out);
    }
    stk_json_close(out, '}');
    stk_steps_advice(g, false, &yaml);
    stk_steps_advice(g, true, &python);
    stk_json_open(out, "ask", '{');
    stk_json_put_real(out, "cpu_count", g->cpus);
    stk_json_put_int(out, "memory_bytes", g->memory_bytes);
    stk_json_put_int(out, "gpu_count", g->n_devices);
    stk_json_put_int(out, "gpu_memory_bytes", g->device_memory_bytes);
    stk_json_put_text(out, "yaml", yaml.data);
    stk_json_put_text(out, "python", python.data);
    stk_json_close(out, '}');
    stk_json_open(out, "tasks", '[');
    for (uint32_t i = 0; i < g->n; i++) {
        put_task_json(&g->tasks[i], out);
    }
    stk_json_close(out, ']');
    stk_json_close(out, '}');
}

int stk_steps_json(const stk_steps_group *groups, uint32_t n, stk_buf *out, stk_err *err)
{
    stk_json_open(out, NULL, '[');
    for (uint32_t i = 0; i < n; i++) {
        put_group_json(&groups[i], out);
    }
    stk_json_close(out, ']');
    return stk_show_check(out, err);
}

/* --- HTML --- */

static const double quantity_units[STK_STEPS_N] = {1, 1e9, 1, 1e9, 1};
static const char *const quantity_titles[STK_STEPS_N] = {"time in seconds", "memory at most in GB",
                                                         "CPUs busy", "device memory at most in GB",
                                                         "devices busy in percent"};

/* Over the tasks, oldest first. */
static int put_quantity_plot(const stk_steps_group *g, int quantity, stk_arena *arena, stk_buf *out,
                             stk_err *err)
{
    uint32_t n = MIN(g->n, POINTS_OF_STEP), known = 0;
    stk_metric_point *points = stk_arena_array(arena, (size_t)n + 1, sizeof *points);
    STK_TRY(stk_err_if_null(points, err));
    for (uint32_t i = n; i-- > 0;) {
        double value = g->tasks[i].used[quantity];
        if (value >= 0) {
            points[known] = (stk_metric_point){known + 1, -1, value / quantity_units[quantity]};
            known++;
        }
    }
    const stk_plot_line line = {g->step, points, known, 0, false};
    if (known > 1) {
        const stk_plot_words words = {quantity_titles[quantity], "task", true};
        stk_svg_lines(&words, &line, 1, out);
    }
    return 0;
}

static void put_spread_rows(const stk_steps_group *g, stk_buf *out)
{
    char text[64];
    stk_html_panel_open(out, "Used by tasks that succeeded");
    stk_buf_text(out, "<div class=\"scroll\"><table class=\"runs\"><thead><tr><td></td><th>tasks"
                      "</th><th>median</th><th>95 %</th><th>most</th></tr></thead><tbody>\n");
    for (int i = 0; i < STK_STEPS_N; i++) {
        const stk_steps_spread *s = &g->spreads[i];
        const double values[] = {s->median, s->p95, s->most};
        if (s->n == 0) {
            continue;
        }
        stk_buf_text(out, "<tr>");
        stk_html_cell(out, NULL, quantity_words[i]);
        stk_html_cell(out, NULL, stk_text_count(s->n, text, sizeof text));
        for (size_t k = 0; k < 3; k++) {
            stk_html_cell(out, NULL, quantity_text(i, values[k], text, sizeof text));
        }
        stk_buf_text(out, "</tr>\n");
    }
    stk_buf_text(out, "</tbody></table></div>");
    stk_html_panel_close(out);
}

static void put_task_row(const stk_steps_task *t, const char *run_url, stk_buf *out)
{
    char text[64];
    stk_buf_text(out, "<tr><td>");
    if (run_url != NULL) {
        stk_html_put(out, "<a href=\"%s%s\"><code>%s</code></a>", run_url, t->run, t->run);
    } else {
        stk_html_put(out, "<code>%s</code>", t->run);
    }
    stk_html_put(out, " <span class=\"dim\">%s</span></td><td>", t->label);
    stk_html_status(out, t->status);
    stk_html_put(out, " <span class=\"dim\">%s</span></td>", t->error_class);
    for (int i = 0; i < STK_STEPS_N; i++) {
        stk_html_cell(out, NULL, quantity_text(i, t->used[i], text, sizeof text));
    }
    stk_buf_text(out, "</tr>\n");
}

static void put_task_rows(const stk_steps_group *g, const char *run_url, stk_buf *out)
{
    uint32_t shown = MIN(g->n, ROWS_OF_STEP);
    stk_html_panel_open(out, "Tasks, newest first");
    stk_buf_text(out, "<div class=\"scroll tall\"><table class=\"runs\"><thead><tr><th>run</th>"
                      "<th>status</th>");
    for (int i = 0; i < STK_STEPS_N; i++) {
        stk_html_put(out, "<th>%s</th>", quantity_words[i]);
    }
    stk_buf_text(out, "</tr></thead><tbody>\n");
    for (uint32_t i = 0; i < shown; i++) {
        put_task_row(&g->tasks[i], run_url, out);
    }
    stk_buf_text(out, "</tbody></table></div>");
    if (g->n > shown) {
        stk_buf_printf(out, "<p class=\"meta\">and %u more tasks</p>", g->n - shown);
    }
    stk_html_panel_close(out);
}

int stk_steps_html(const stk_steps_group *g, const char *run_url, stk_arena *arena, stk_buf *out,
                   stk_err *err)
{
    STK_BUF_AUTO plots = STK_BUF_INIT(MAX_CARD_BYTES);
    STK_BUF_AUTO yaml = STK_BUF_INIT(4096);
    STK_BUF_AUTO python = STK_BUF_INIT(4096);
    stk_html_put(out, "<h2 class=\"step\">%s <span class=\"dim\">of pipeline %s: ", g->step,
                 g->pipeline);
    put_counts_of(g, out);
    stk_buf_text(out, "</span></h2>\n");
    put_spread_rows(g, out);
    stk_steps_advice(g, false, &yaml);
    stk_steps_advice(g, true, &python);
    if (yaml.len > 0) {
        stk_html_put(out,
                     "<section class=\"panel\"><h2>What to ask for</h2><pre class=\"copy\">%s</pre>"
                     "<pre class=\"copy\">%s</pre><p class=\"meta\">The 95th percentile plus 15 "
                     "percent.</p></section>\n",
                     yaml.data, python.data);
    }
    for (int i = 0; i < STK_STEPS_N; i++) {
        STK_TRY(put_quantity_plot(g, i, arena, &plots, err));
    }
    stk_html_panel(out, "Over its runs, oldest first", "<div class=\"plots\">\n", &plots, "</div>");
    put_task_rows(g, run_url, out);
    return stk_show_check(out, err);
}

int stk_steps_page(const stk_steps_group *groups, uint32_t n, stk_arena *arena, stk_buf *out,
                   stk_err *err)
{
    stk_html_page_open(out, "Steps over their runs");
    stk_buf_text(out, "</header>\n");
    for (uint32_t i = 0; i < n; i++) {
        STK_TRY(stk_steps_html(&groups[i], NULL, arena, out, err));
    }
    stk_html_page_close(out);
    return stk_show_check(out, err);
}
