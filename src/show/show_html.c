#include "show/show_html.h"

#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/map.h"
#include "base/text.h"
#include "base/units.h"
#include "show/cost.h"
#include "show/show_css.h"
#include "show/show_devices.h"
#include "show/show_html_private.h"
#include "show/show_svg.h"
#include "show/show_text.h"
#include "sys/file.h"

int stk_html_details(const page *p, uint32_t i_task, stk_view_details *ret)
{
    stk_arena_reset(p->arena);
    return stk_show_details(p->view, i_task, p->arena, ret, p->err);
}

/* --- head --- */

static uint32_t first_failed(const page *p)
{
    uint32_t first = UINT32_MAX;
    for (uint32_t i = 0; i < stk_view_n_tasks(p->view); i++) {
        const stk_view_task *task = stk_view_get_task(p->view, i);
        if (task->state == STK_TASK_FAILED &&
            (first == UINT32_MAX || task->ended_ms < stk_view_get_task(p->view, first)->ended_ms)) {
            first = i;
        }
    }
    return first;
}

/* Steps that are done, or those that succeeded where not all that are done did. */
static const char *count_done(const page *p, bool *ret_all_good, char *text, size_t size)
{
    uint32_t n_good = p->run->n[STK_TASK_SUCCEEDED] + p->run->n[STK_TASK_CACHED];
    *ret_all_good = n_good == p->totals.n_done;
    return stk_text_count(n_good, text, size);
}

/* One sentence about the run's result. */
static int verdict(const page *p)
{
    const stk_view_run *run = p->run;
    stk_buf *out = p->out;
    char a[32], b[32];
    uint32_t failed = first_failed(p);
    stk_buf_text(out, "<p class=\"verdict\">");
    if (failed != UINT32_MAX) {
        stk_view_details d;
        STK_TRY(stk_html_details(p, failed, &d));
        stk_html_put(out, "Step <b>%s</b> failed: %s", stk_view_who(p->view, failed, p->arena),
                     stk_text_or(d.error_text, "?"));
        if (run->n[STK_TASK_FAILED] > 1) {
            stk_buf_printf(out, "; %u more failed", run->n[STK_TASK_FAILED] - 1);
        }
        if (run->n[STK_TASK_SKIPPED] > 0) {
            stk_buf_printf(out, "; %s could not run",
                           stk_text_count(run->n[STK_TASK_SKIPPED], a, 32));
        }
    } else if (strcmp(run->status, "succeeded") == 0) {
        bool all = run->n[STK_TASK_CACHED] == p->totals.n_tasks;
        const char *n_done = "All";
        if (!all) {
            n_done = stk_text_count(p->totals.n_done, a, sizeof a);
        }
        stk_buf_printf(out, "%s of %s %ss succeeded in ", n_done,
                       stk_text_count(p->totals.n_tasks, b, sizeof b), stk_show_noun(p->view));
        stk_html_seconds(out, p->totals.wall_s);
        if (all) {
            stk_buf_text(out, ", every one from the cache");
        } else if (run->n[STK_TASK_CACHED] > 0) {
            stk_buf_printf(out, ", %s of them from the cache",
                           stk_text_count(run->n[STK_TASK_CACHED], a, sizeof a));
        }
    } else {
        bool is_good = true;
        const char *n_done = count_done(p, &is_good, a, sizeof a);
        stk_buf_printf(out, "%s of %s %ss %s", n_done,
                       stk_text_count(p->totals.n_tasks, b, sizeof b), stk_show_noun(p->view),
                       stk_text_noun(is_good, "are done", "succeeded"));
        if (run->error != NULL) {
            stk_html_put(out, "; %s", run->error);
        }
    }
    stk_buf_text(out, ".</p>\n");
    return 0;
}

static int head(const page *p)
{
    stk_buf *out = p->out;
    char text[64];
    if (!p->served) {
        stk_html_open(out, "img-src data:; ");
        stk_html_put(out, "%s %s</title>\n<style>\n", p->run->pipeline, p->run->status);
        stk_buf_text(out, stk_show_css);
        stk_buf_text(out, stk_show_alike_css);
        stk_buf_text(out, stk_show_parts_css);
        stk_buf_text(out, stk_show_lanes_css);
        stk_buf_text(out, "</style></head>\n<body><main>\n");
    }
    stk_html_title(out, p->run->pipeline, p->run->status);
    int rc = verdict(p);
    stk_html_put(out, "<div class=\"meta\">run <code>%s</code>", p->run->id);
    if (strcmp(p->run->name, p->run->id) != 0) {
        stk_html_put(out, " (%s)", p->run->name);
    }
    if (p->run->created_ms > 0) {
        stk_buf_printf(out, " · %s", stk_text_time(p->run->created_ms, false, text, sizeof text));
    }
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *host = stk_json_read(scratch, p->run->host);
    if (stk_json_get_text(host, "name") != NULL) {
        stk_html_put(out, " · on %s", stk_json_get_text(host, "name"));
    }
    if (p->run->simulated) {
        stk_buf_text(out, " · devices are simulated");
    }
    stk_html_before_link(p);
    stk_buf_text(out, "</div></header>\n");
    return rc;
}

static int tiles(const page *p)
{
    char a[32], b[64];
    const stk_view_totals *t = &p->totals;
    stk_buf_text(p->out, "<div class=\"tiles\">\n");
    stk_html_tile_seconds(p->out, t->wall_s, "wall time");
    bool is_good = true;
    const char *n_done = count_done(p, &is_good, a, sizeof a);
    (void)snprintf(b, sizeof b, "%s / %s", n_done, stk_text_count(t->n_tasks, (char[32]){0}, 32));
    (void)snprintf(a, sizeof a, "%ss %s", stk_show_noun(p->view),
                   stk_text_noun(is_good, "done", "succeeded"));
    stk_html_tile(p->out, b, a);
    stk_html_tile_count(p->out, p->run->n[STK_TASK_CACHED], "cache hits");
    if (t->saved_s > 0) {
        stk_html_tile_seconds(p->out, t->saved_s, "saved by the cache");
    }
    if (t->cpu_s > 0) {
        stk_html_tile_seconds(p->out, t->cpu_s, "CPU time");
    }
    stk_html_tile_bytes(p->out, t->peak_bytes, "peak memory");
    if (t->most_devices > 0) {
        (void)snprintf(b, sizeof b, "%s%s%s", stk_text_when(p->run->simulated, "simulated "),
                       t->most_noun, stk_text_plural((uint64_t)t->most_devices));
        stk_html_tile_count(p->out, (uint64_t)t->most_devices, b);
    }
    stk_html_tile_seconds(p->out, t->gpu_held_s, "devices held");
    stk_html_tile_seconds(p->out, t->gpu_busy_s, "devices busy");
    if (t->energy_j >= 0) {
        stk_html_tile(p->out, stk_text_energy(t->energy_j, a, sizeof a), "energy of devices");
    }
    if (stk_cost_say(p->view, p->now_ms, b, sizeof b) != NULL) {
        stk_html_tile(p->out, b, "cost");
    }
    if (p->run->n_attempts_extra > 0) {
        stk_html_tile_count(p->out, p->run->n_attempts_extra, "retries");
    }
    stk_buf_text(p->out, "</div>\n");
    return 0;
}

static int notes(const page *p)
{
    for (uint32_t i = 0; i < p->run->n_notes; i++) {
        stk_html_note(p->out, NULL, p->run->notes[i]);
    }
    /* A warning that several tasks of a step share appears once. */
    STK_MAP_AUTO seen = {0};
    STK_ARENA_AUTO keep = stk_arena_new(0);
    uint32_t n = MIN(stk_view_n_tasks(p->view), MAX_ROWS);
    STK_TRY(stk_err_if_null(keep, p->err));
    for (uint32_t i = 0; i < n; i++) {
        const stk_view_task *task = stk_view_get_task(p->view, i);
        stk_view_details d;
        STK_TRY(stk_html_details(p, i, &d));
        for (uint32_t k = 0; k < d.n_warnings; k++) {
            const char *key = stk_arena_printf(keep, "%s\n%s", task->name, d.warnings[k]);
            if (key != NULL && !stk_map_get(&seen, key, NULL) && stk_map_put(&seen, key, 1) == 0) {
                stk_html_note(p->out, task->title, d.warnings[k]);
            }
        }
    }
    return 0;
}

/* --- failures --- */

int stk_html_failure(const page *p, uint32_t i_task)
{
    const stk_view_task *task = stk_view_get_task(p->view, i_task);
    stk_buf *out = p->out;
    stk_view_details d;
    STK_TRY(stk_html_details(p, i_task, &d));
    stk_html_put(
        out, "<section class=\"panel failure\"><h3>%s</h3><p><span class=\"class\">%s</span> · %s",
        stk_view_who(p->view, i_task, p->arena), stk_text_or(d.error_class, "failed"),
        stk_text_or(d.error_text, "?"));
    if (task->attempt > 1) {
        stk_buf_printf(out, " · after %u attempts", task->attempt);
    }
    if (d.where != NULL) {
        stk_html_put(out, " · <code>%s</code>", d.where);
    }
    stk_buf_text(out, "</p>\n");
    STK_BUF_AUTO tail = STK_BUF_INIT(1u << 20);
    if (d.traceback == NULL && d.stderr_path != NULL) {
        stk_text_tail(&tail, d.stderr_path, TAIL_LINES);
    }
    const char *text = stk_text_if_any(stk_text_or(d.traceback, tail.data));
    if (text != NULL) {
        stk_html_put(out, "<pre>%s</pre>\n", text);
    }
    if (d.stderr_path != NULL) {
        stk_html_put(out, "<div class=\"meta\">all of it: <code>%s</code>", d.stderr_path);
        stk_html_log_links(p, i_task, &d);
        stk_buf_text(out, "</div>");
    }
    stk_buf_text(out, "</section>\n");
    return 0;
}

/* The task that failed first comes first: it is most likely the cause. */
static int failures(const page *p)
{
    uint32_t first = first_failed(p), n = 1;
    if (first == UINT32_MAX) {
        return 0;
    }
    STK_TRY(stk_html_failure(p, first));
    for (uint32_t i = 0; i < stk_view_n_tasks(p->view); i++) {
        if (i != first && stk_view_get_task(p->view, i)->state == STK_TASK_FAILED &&
            n++ < MAX_FAILURES) {
            STK_TRY(stk_html_failure(p, i));
        }
    }
    if (n > MAX_FAILURES) {
        stk_buf_printf(p->out,
                       "<p class=\"dim\">%u more %ss failed; <code>stoker show %s "
                       "--json</code> lists all.</p>\n",
                       n - MAX_FAILURES, stk_show_noun(p->view), p->run->id);
    }
    return 0;
}

/* --- pictures --- */

static int pictures(const page *p)
{
    bool collapsed = false;
    char text[32];
    STK_BUF_AUTO svg = STK_BUF_INIT(MAX_CARD_BYTES);
    STK_BUF_AUTO below = STK_BUF_INIT(1024);
    int rc = stk_svg_graph(p->view, p->now_ms, &svg, &collapsed, p->err);
    if (rc != STK_E_LIMIT) {
        STK_TRY(rc);
        stk_buf_text(&below, "</div>");
        if (collapsed) {
            uint32_t n = stk_spec_n_steps(stk_view_spec(p->view));
            stk_buf_printf(&below,
                           "<div class=\"meta\">%s steps; similar ones are drawn as one box.</div>",
                           stk_text_count(n, text, sizeof text));
        }
        stk_html_panel(p->out, "Graph", "<div class=\"scroll\">", &svg, below.data);
    }
    return stk_html_timelines(p);
}

static bool is_profiled(const stk_view_task *task)
{
    return task->step != NULL && task->step->settings->gpu_profile.enabled;
}

int stk_html_curves(const page *p, uint32_t i_task, uint32_t *n_shown)
{
    const stk_view_task *task = stk_view_get_task(p->view, i_task);
    stk_view_details d;
    stk_samples samples = {0};
    STK_TRY(stk_html_details(p, i_task, &d));
    if (d.dir == NULL) {
        return 0;
    }
    const char *path = stk_arena_printf(p->arena, "%s/samples.bin", d.dir);
    STK_BUF_AUTO svg = STK_BUF_INIT(MAX_CARD_BYTES);
    STK_BUF_AUTO table = STK_BUF_INIT(MAX_CARD_BYTES);
    bool profiled = is_profiled(task);
    bool with_card = profiled && task->step->settings->gpu_profile.with_card;
    /* Without readable samples the card has no curves, but is still written. */
    if (stk_samples_load(path, p->arena, &samples, NULL) < 0) {
        samples = (stk_samples){0};
    }
    if (profiled && !with_card) {
        samples.n_devices = 0; /* the step's @gpu_profile leaves these curves out */
    }
    if (stk_svg_samples(&samples, &d, p->arena, &svg, p->err) < 0) {
        stk_buf_clear(&svg);
    }
    stk_html_devices(&d, &samples, with_card, &table);
    if (svg.len == 0 && table.len == 0) {
        return 0;
    }
    if ((*n_shown)++ == 0) {
        stk_html_panel_open(p->out, "Used over time");
    }
    stk_html_put(p->out, "<p class=\"curve-name\">%s</p>", stk_view_who(p->view, i_task, p->arena));
    stk_buf_add(p->out, table.data, table.len);
    stk_buf_text(p->out, "<div class=\"curves\">");
    stk_buf_add(p->out, svg.data, svg.len);
    stk_buf_text(p->out, "</div>\n");
    return 0;
}

/* Most steps of a large run end before their first sample. For them, checking that the file exists
 * is enough. */
static bool has_curves(const page *p, const stk_view_task *task)
{
    const char *dir = NULL;
    if (task->attempt > 0) {
        dir = stk_view_dir(p->view, task, p->arena);
    }
    if (dir == NULL || is_profiled(task) || stk_view_has_devices(task)) {
        return dir != NULL;
    }
    const char *path = stk_arena_printf(p->arena, "%s/samples.bin", dir);
    return path != NULL && access(path, F_OK) == 0;
}

static int curves(const page *p)
{
    uint32_t n_shown = 0;
    for (uint32_t i = 0; i < stk_view_n_tasks(p->view) && n_shown < MAX_CURVES; i++) {
        const stk_view_task *task = stk_view_get_task(p->view, i);
        /* The first tasks of a wide step stand for all of them. */
        if (stk_view_grows(p->view) && stk_view_is_wide(p->view, task->i_step) &&
            i >= stk_view_get_step(p->view, task->i_step)->first + MAX_WIDE) {
            continue;
        }
        if (has_curves(p, task)) {
            STK_TRY(stk_html_curves(p, i, &n_shown));
        }
    }
    if (n_shown > 0) {
        stk_html_panel_close(p->out);
    }
    return 0;
}

static int write_run_page(const stk_view *view, stk_store *store, int64_t now_ms, page *how)
{
    stk_buf *out = how->out;
    stk_err *err = how->err;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    size_t preview_room = MAX_PREVIEWS_BYTES;
    page p = {.view = view,
              .preview_room = &preview_room,
              .store = store,
              .linked = how->linked,
              .served = how->served,
              .run = stk_view_get_run(view),
              .now_ms = now_ms,
              .arena = arena,
              .out = out,
              .err = err};
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_show_total(view, store, now_ms, &p.totals, err));
    int (*const parts[])(const page *) = {head,
                                          tiles,
                                          notes,
                                          failures,
                                          pictures,
                                          stk_html_steps,
                                          stk_html_artifacts,
                                          stk_html_all_metrics,
                                          curves,
                                          stk_html_facts};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        STK_TRY(parts[i](&p));
    }
    stk_html_origin(&p);
    if (out->failed) {
        return stk_err_set(err, STK_E_LIMIT, "the card of run %s is larger than %zu bytes",
                           p.run->id, out->max);
    }
    return 0;
}

int stk_html_card(const stk_view *view, stk_store *store, int64_t now_ms, bool linked, stk_buf *out,
                  stk_err *err)
{
    page how = {.linked = linked, .out = out, .err = err};
    return write_run_page(view, store, now_ms, &how);
}

int stk_html_run_served(const stk_view *view, stk_store *store, int64_t now_ms, stk_buf *out,
                        stk_err *err)
{
    page how = {.served = true, .out = out, .err = err};
    return write_run_page(view, store, now_ms, &how);
}
