#include "show/show_html.h"

#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/map.h"
#include "base/text.h"
#include "base/units.h"
#include "show/show_css.h"
#include "show/show_devices.h"
#include "show/show_html_private.h"
#include "show/show_svg.h"
#include "show/show_text.h"
#include "sys/file.h"

int stk_html_details(const page *p, uint32_t i_task, stk_view_details *ret)
{
    stk_arena_reset(p->arena);
    return stk_view_get_details(p->view, i_task, p->arena, ret, p->err);
}

void stk_html_user(stk_buf *out, const char *text)
{
    STK_BUF_AUTO safe = STK_BUF_INIT(MAX_CARD_BYTES);
    stk_text_safe(&safe, text, "");
    stk_buf_html(out, stk_text_or(safe.data, ""));
}

void stk_html_cell_open(stk_buf *out, const char *class)
{
    if (class != NULL) {
        stk_buf_printf(out, "<td class=\"%s\">", class);
    } else {
        stk_buf_text(out, "<td>");
    }
}

void stk_html_cell(stk_buf *out, const char *class, const char *text)
{
    stk_html_cell_open(out, class);
    stk_html_user(out, stk_text_or(text, ""));
    stk_buf_text(out, "</td>");
}

void stk_html_seconds(stk_buf *out, double s)
{
    char text[32];
    stk_buf_text(out, stk_units_format_duration((int64_t)(s * 1000), text, sizeof text));
}

void stk_html_status(stk_buf *out, const char *status)
{
    stk_ink ink;
    stk_buf_printf(out, "<span class=\"status s-%s\">%s %s</span>", status,
                   stk_text_mark(status, true, &ink), status);
}

/* --- head --- */

/* "steps", of a growing run "tasks". */
static const char *steps_word(const page *p)
{
    return stk_view_grows(p->view) ? "tasks" : "steps";
}

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

/* One sentence that says how it went. */
static int verdict(const page *p)
{
    const stk_view_run *run = p->run;
    stk_buf *out = p->out;
    char a[32], b[32];
    uint32_t failed = first_failed(p);
    stk_buf_text(out, "<p class=\"verdict\">");
    if (failed != UINT32_MAX) {
        stk_view_details d;
        int rc = stk_html_details(p, failed, &d);
        if (rc < 0) {
            return rc;
        }
        stk_buf_text(out, "Step <b>");
        stk_html_user(out, stk_view_who(p->view, failed, p->arena));
        stk_buf_text(out, "</b> failed: ");
        stk_html_user(out, stk_text_or(d.error_text, "?"));
        if (run->n[STK_TASK_FAILED] > 1) {
            stk_buf_printf(out, "; %u more failed", run->n[STK_TASK_FAILED] - 1);
        }
        if (run->n[STK_TASK_SKIPPED] > 0) {
            stk_buf_printf(out, "; %s could not run",
                           stk_text_count(run->n[STK_TASK_SKIPPED], a, 32));
        }
    } else if (strcmp(run->status, "succeeded") == 0) {
        bool all = run->n[STK_TASK_CACHED] == p->totals.n_tasks;
        stk_buf_printf(out, "%s of %s %s succeeded in ",
                       all ? "All" : stk_text_count(p->totals.n_done, a, sizeof a),
                       stk_text_count(p->totals.n_tasks, b, sizeof b), steps_word(p));
        stk_html_seconds(out, p->totals.wall_s);
        if (all) {
            stk_buf_text(out, ", every one from the cache");
        } else if (run->n[STK_TASK_CACHED] > 0) {
            stk_buf_printf(out, ", %s of them from the cache",
                           stk_text_count(run->n[STK_TASK_CACHED], a, sizeof a));
        }
    } else {
        stk_buf_printf(out, "%s of %s %s are done", stk_text_count(p->totals.n_done, a, sizeof a),
                       stk_text_count(p->totals.n_tasks, b, sizeof b), steps_word(p));
        if (run->error != NULL) {
            stk_buf_text(out, "; ");
            stk_html_user(out, run->error);
        }
    }
    stk_buf_text(out, ".</p>\n");
    return 0;
}

/* Up to the title's text; `more`: what the Content-Security-Policy allows besides our own style. */
void stk_html_open(stk_buf *out, const char *more)
{
    stk_buf_printf(out,
                   "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
                   "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                   "%sstyle-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\"/>\n"
                   "<meta name=\"referrer\" content=\"no-referrer\"/>\n"
                   "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>\n"
                   "<meta name=\"generator\" content=\"stoker " STK_VERSION "\"/>\n<title>",
                   more);
}

static int head(const page *p)
{
    stk_buf *out = p->out;
    char text[64];
    stk_ink ink;
    stk_html_open(out, "");
    stk_html_user(out, p->run->pipeline);
    stk_buf_printf(out,
                   " %s</title>\n<style>\n%s</style></head>\n<body><main>\n<header>"
                   "<div class=\"title\"><h1>",
                   p->run->status, stk_show_css);
    stk_html_user(out, p->run->pipeline);
    stk_buf_printf(out, "</h1><span class=\"pill s-%s\">%s %s</span></div>\n", p->run->status,
                   stk_text_mark(p->run->status, true, &ink), p->run->status);
    int rc = verdict(p);
    stk_buf_text(out, "<div class=\"meta\">run <code>");
    stk_html_user(out, p->run->id);
    stk_buf_text(out, "</code>");
    if (strcmp(p->run->name, p->run->id) != 0) {
        stk_buf_text(out, " (");
        stk_html_user(out, p->run->name);
        stk_buf_char(out, ')');
    }
    if (p->run->created_ms > 0) {
        stk_buf_printf(out, " · %s", stk_text_time(p->run->created_ms, false, text, sizeof text));
    }
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *host = stk_json_read(scratch, p->run->host);
    if (stk_json_get_text(host, "name") != NULL) {
        stk_buf_text(out, " · on ");
        stk_html_user(out, stk_json_get_text(host, "name"));
    }
    stk_buf_text(out, "</div></header>\n");
    return rc;
}

void stk_html_tile(stk_buf *out, const char *value, const char *what)
{
    stk_buf_text(out, "<div class=\"tile\"><b>");
    stk_html_user(out, value);
    stk_buf_printf(out, "</b><span>%s</span></div>\n", what);
}

static int tiles(const page *p)
{
    char a[32], b[64];
    const stk_view_totals *t = &p->totals;
    stk_buf_text(p->out, "<div class=\"tiles\">\n");
    stk_html_tile(p->out, stk_units_format_duration((int64_t)(t->wall_s * 1000), a, sizeof a),
                  "wall time");
    (void)snprintf(b, sizeof b, "%s / %s", stk_text_count(t->n_done, a, sizeof a),
                   stk_text_count(t->n_tasks, (char[32]){0}, 32));
    stk_html_tile(p->out, b, stk_view_grows(p->view) ? "tasks done" : "steps done");
    stk_html_tile(p->out, stk_text_count(p->run->n[STK_TASK_CACHED], a, sizeof a), "cache hits");
    if (t->saved_s > 0) {
        stk_html_tile(p->out, stk_units_format_duration((int64_t)(t->saved_s * 1000), a, sizeof a),
                      "saved by the cache");
    }
    stk_html_tile(p->out, stk_units_format_duration((int64_t)(t->cpu_s * 1000), a, sizeof a),
                  "CPU time");
    if (t->peak_bytes >= 0) {
        stk_html_tile(p->out, stk_units_format_memory(t->peak_bytes, a, sizeof a), "peak memory");
    }
    if (t->most_devices > 0) {
        (void)snprintf(b, sizeof b, "%s%s", t->most_noun,
                       stk_text_plural((uint64_t)t->most_devices));
        stk_html_tile(p->out, stk_text_count((uint64_t)t->most_devices, a, sizeof a), b);
    }
    if (t->gpu_held_s >= 0) {
        stk_html_tile(p->out,
                      stk_units_format_duration((int64_t)(t->gpu_held_s * 1000), a, sizeof a),
                      "devices held");
    }
    if (t->gpu_busy_s >= 0) {
        stk_html_tile(p->out,
                      stk_units_format_duration((int64_t)(t->gpu_busy_s * 1000), a, sizeof a),
                      "devices busy");
    }
    if (t->energy_j >= 0) {
        stk_html_tile(p->out, stk_text_energy(t->energy_j, a, sizeof a), "energy of devices");
    }
    if (p->run->n_attempts_extra > 0) {
        stk_html_tile(p->out, stk_text_count(p->run->n_attempts_extra, a, sizeof a), "retries");
    }
    stk_buf_text(p->out, "</div>\n");
    return 0;
}

static int notes(const page *p)
{
    for (uint32_t i = 0; i < p->run->n_notes; i++) {
        stk_buf_text(p->out, "<div class=\"note\">");
        stk_html_user(p->out, p->run->notes[i]);
        stk_buf_text(p->out, "</div>\n");
    }
    /* What many tasks of a step say is said once. */
    stk_map said = {0};
    STK_ARENA_AUTO keep = stk_arena_new(0);
    uint32_t n = MIN(stk_view_n_tasks(p->view), MAX_ROWS);
    int rc = keep == NULL ? stk_err_set(p->err, STK_E_NOMEM, "out of memory for the card") : 0;
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        const stk_view_task *task = stk_view_get_task(p->view, i);
        stk_view_details d = {.n_warnings = 0};
        rc = stk_html_details(p, i, &d);
        for (uint32_t k = 0; rc == 0 && k < d.n_warnings; k++) {
            const char *key = stk_arena_printf(keep, "%s\n%s", task->name, d.warnings[k]);
            if (key == NULL || stk_map_get(&said, key, NULL) || stk_map_put(&said, key, 1) < 0) {
                continue;
            }
            stk_buf_text(p->out, "<div class=\"note\">step ");
            stk_html_user(p->out, task->label);
            stk_buf_text(p->out, ": ");
            stk_html_user(p->out, d.warnings[k]);
            stk_buf_text(p->out, "</div>\n");
        }
    }
    stk_map_done(&said);
    return rc;
}

/* --- failures --- */

int stk_html_failure(const page *p, uint32_t i_task)
{
    const stk_view_task *task = stk_view_get_task(p->view, i_task);
    stk_buf *out = p->out;
    stk_view_details d;
    int rc = stk_html_details(p, i_task, &d);
    if (rc < 0) {
        return rc;
    }
    stk_buf_text(out, "<section class=\"panel failure\"><h3>");
    stk_html_user(out, stk_view_who(p->view, i_task, p->arena));
    stk_buf_text(out, "</h3><p><span class=\"class\">");
    stk_html_user(out, stk_text_or(d.error_class, "failed"));
    stk_buf_text(out, "</span> · ");
    stk_html_user(out, stk_text_or(d.error_text, "?"));
    if (task->attempt > 1) {
        stk_buf_printf(out, " · after %u attempts", task->attempt);
    }
    if (d.where != NULL) {
        stk_buf_text(out, " · <code>");
        stk_html_user(out, d.where);
        stk_buf_text(out, "</code>");
    }
    stk_buf_text(out, "</p>\n");
    STK_BUF_AUTO tail = STK_BUF_INIT(1u << 20);
    if (d.traceback == NULL && d.stderr_path != NULL) {
        stk_text_tail(&tail, d.stderr_path, TAIL_LINES);
    }
    const char *text = stk_text_or(d.traceback, tail.data);
    if (text != NULL && *text != '\0') {
        stk_buf_text(out, "<pre>");
        stk_html_user(out, text);
        stk_buf_text(out, "</pre>\n");
    }
    if (d.stderr_path != NULL) {
        stk_buf_text(out, "<div class=\"meta\">all of it: <code>");
        stk_html_user(out, d.stderr_path);
        stk_buf_text(out, "</code></div>");
    }
    stk_buf_text(out, "</section>\n");
    return 0;
}

/* The first to fail comes first: it is the cause to look at. */
static int failures(const page *p)
{
    uint32_t first = first_failed(p), n = 1;
    int rc = first != UINT32_MAX ? stk_html_failure(p, first) : 0;
    for (uint32_t i = 0; rc == 0 && first != UINT32_MAX && i < stk_view_n_tasks(p->view); i++) {
        if (i != first && stk_view_get_task(p->view, i)->state == STK_TASK_FAILED &&
            n++ < MAX_FAILURES) {
            rc = stk_html_failure(p, i);
        }
    }
    if (n > MAX_FAILURES) {
        stk_buf_printf(p->out,
                       "<p class=\"dim\">%u more %s failed; <code>stoker show %s "
                       "--json</code> lists all.</p>\n",
                       n - MAX_FAILURES, steps_word(p), p->run->id);
    }
    return rc;
}

/* --- pictures --- */

static int pictures(const page *p)
{
    bool collapsed = false;
    STK_BUF_AUTO svg = STK_BUF_INIT(MAX_CARD_BYTES);
    int rc = stk_svg_graph(p->view, p->now_ms, &svg, &collapsed, p->err);
    if (rc == 0 && svg.len > 0) {
        stk_buf_text(p->out, "<section class=\"panel\"><h2>Graph</h2><div class=\"scroll tall\">");
        stk_buf_add(p->out, svg.data, svg.len);
        stk_buf_text(p->out, "</div>");
        if (collapsed) {
            char text[32];
            stk_buf_printf(
                p->out,
                "<div class=\"meta\">%s steps; similar ones are drawn as one box."
                "</div>",
                stk_text_count(stk_spec_n_steps(stk_view_spec(p->view)), text, sizeof text));
        }
        stk_buf_text(p->out, "</section>\n");
    }
    if (rc < 0 && rc != STK_E_LIMIT) {
        return rc;
    }
    stk_buf_clear(&svg);
    rc = stk_svg_timeline(p->view, p->now_ms, &svg, p->err);
    if (rc == 0 && svg.len > 0) {
        stk_buf_text(p->out, "<section class=\"panel\"><h2>Timeline</h2><div class=\"scroll\">");
        stk_buf_add(p->out, svg.data, svg.len);
        stk_buf_text(p->out, "</div></section>\n");
    }
    return rc;
}

int stk_html_curves(const page *p, uint32_t i_task, uint32_t *n_shown)
{
    const stk_view_task *task = stk_view_get_task(p->view, i_task);
    stk_view_details d;
    stk_samples samples = {0};
    int rc = stk_html_details(p, i_task, &d);
    if (rc < 0 || d.dir == NULL) {
        return rc;
    }
    const char *path = stk_arena_printf(p->arena, "%s/samples.bin", d.dir);
    STK_BUF_AUTO svg = STK_BUF_INIT(MAX_CARD_BYTES);
    STK_BUF_AUTO table = STK_BUF_INIT(MAX_CARD_BYTES);
    const stk_gpu_profile *profile = task->step != NULL ? &task->step->settings->gpu_profile : NULL;
    bool profiled = profile != NULL && profile->enabled;
    /* Samples that can't be read cost their curves, not the card. */
    if (stk_samples_load(path, p->arena, &samples, NULL) < 0) {
        samples = (stk_samples){0};
    }
    if (profiled && !profile->with_card) {
        samples.n_devices = 0; /* the step asked to leave its devices' curves out */
    }
    if (stk_svg_samples(&samples, &d, p->arena, &svg, p->err) < 0) {
        stk_buf_clear(&svg);
    }
    stk_html_devices(&d, &samples, profiled && profile->with_card, &table);
    if (svg.len == 0 && table.len == 0) {
        return 0;
    }
    if ((*n_shown)++ == 0) {
        stk_buf_text(p->out, "<section class=\"panel\"><h2>Used over time</h2>\n");
    }
    stk_buf_text(p->out, "<p class=\"curve-name\">");
    stk_html_user(p->out, stk_view_who(p->view, i_task, p->arena));
    stk_buf_text(p->out, "</p>");
    stk_buf_add(p->out, table.data, table.len);
    stk_buf_text(p->out, "<div class=\"curves\">");
    stk_buf_add(p->out, svg.data, svg.len);
    stk_buf_text(p->out, "</div>\n");
    return 0;
}

/* Most steps of a large run were over before they were measured once: those cost one look. */
static bool has_curves(const page *p, const stk_view_task *task)
{
    const char *dir = task->attempt == 0 ? NULL : stk_view_dir(p->view, task, p->arena);
    const char *path = dir == NULL ? NULL : stk_arena_printf(p->arena, "%s/samples.bin", dir);
    bool profiled = task->step != NULL && task->step->settings->gpu_profile.enabled;
    return path != NULL && (profiled || stk_view_has_devices(task) || access(path, F_OK) == 0);
}

static int curves(const page *p)
{
    uint32_t n_shown = 0;
    for (uint32_t i = 0; i < stk_view_n_tasks(p->view) && n_shown < MAX_CURVES; i++) {
        const stk_view_task *task = stk_view_get_task(p->view, i);
        /* Of a wide step its first tasks stand for all. */
        if (stk_view_grows(p->view) && stk_view_is_wide(p->view, task->i_step) &&
            i >= stk_view_get_step(p->view, task->i_step)->first + MAX_WIDE) {
            continue;
        }
        if (has_curves(p, task)) {
            int rc = stk_html_curves(p, i, &n_shown);
            if (rc < 0) {
                return rc;
            }
        }
    }
    stk_buf_text(p->out, n_shown > 0 ? "</section>\n" : "");
    return 0;
}

/* --- tables --- */

static void amounts(stk_buf *out, const stk_view_amounts *a)
{
    STK_BUF_AUTO text = STK_BUF_INIT(256);
    stk_text_amounts(&text, a, true);
    stk_html_cell(out, NULL, text.data);
}

/* What was used, with a bar for memory where a limit was granted. */
static void used_cell(stk_buf *out, const stk_view_details *d)
{
    STK_BUF_AUTO text = STK_BUF_INIT(256);
    stk_text_amounts(&text, &d->used, true);
    stk_html_cell_open(out, NULL);
    stk_html_user(out, text.data);
    if (d->granted.memory_bytes > 0 && d->used.memory_bytes >= 0) {
        double part = (double)d->used.memory_bytes / (double)d->granted.memory_bytes * 100;
        stk_buf_printf(out,
                       "<span class=\"meter\" title=\"memory: %.0f %% of what was granted\">"
                       "<i class=\"%s\" style=\"width:%.0f%%\"></i></span>",
                       part, part > 95 ? "full" : "ok", MIN(part, 100));
    }
    stk_buf_text(out, "</td>");
}

int stk_html_step_row(const page *p, uint32_t i_task)
{
    const stk_view_task *task = stk_view_get_task(p->view, i_task);
    stk_buf *out = p->out;
    stk_view_details d;
    int rc = stk_html_details(p, i_task, &d);
    if (rc < 0) {
        return rc;
    }
    stk_buf_text(out, "<tr>");
    stk_html_cell_open(out, NULL);
    stk_buf_text(out, "<b>");
    stk_html_user(out, task->label);
    stk_buf_text(out, "</b>");
    if (task->step != NULL && task->step->source != NULL) {
        stk_buf_text(out, "<br/><code class=\"dim\">");
        stk_html_user(out, task->step->source);
        stk_buf_text(out, "</code>");
    }
    stk_buf_text(out, "</td><td>");
    stk_html_status(out, stk_view_status(p->view, task, true));
    stk_buf_text(out, "</td>");
    stk_html_cell_open(out, "num");
    if (task->started_ms > 0) {
        int64_t end = task->ended_ms ? task->ended_ms : p->now_ms;
        stk_html_seconds(out, (double)(end - task->started_ms) / 1000);
        if (task->attempt > 1) {
            stk_buf_printf(out, "<br/><span class=\"dim\">attempt %u</span>", task->attempt);
        }
    } else {
        stk_buf_text(out, "–");
    }
    stk_buf_text(out, "</td>");
    if (task->started_ms > 0) {
        amounts(out, &d.asked);
        amounts(out, &d.granted);
        used_cell(out, &d);
        STK_BUF_AUTO about = STK_BUF_INIT(1u << 20);
        if (d.miss != NULL) {
            stk_buf_printf(&about, "ran: %s", d.miss);
        }
        if (d.image != NULL) {
            stk_buf_separate(&about, "; ");
            stk_buf_printf(&about, "in %s", d.image);
        }
        stk_html_cell(out, "dim", stk_text_or(about.data, ""));
    } else {
        stk_buf_text(out, "<td></td><td></td><td></td>");
        stk_html_cell(out, "dim",
                      d.cached_from ? stk_arena_printf(p->arena, "from run %s", d.cached_from)
                                    : d.error_text);
    }
    stk_buf_text(out, "</tr>\n");
    return 0;
}

void stk_html_more(const page *p, uint32_t n, uint32_t shown, const char *what)
{
    char text[32];
    if (n > shown) {
        stk_buf_printf(p->out, "<p class=\"meta\">and %s more %s</p>",
                       stk_text_count(n - shown, text, sizeof text), what);
    }
}

static int steps(const page *p)
{
    uint32_t n = stk_view_n_tasks(p->view), shown = MIN(n, MAX_ROWS);
    if (n == 0) {
        return 0;
    }
    bool grows = stk_view_grows(p->view);
    stk_buf_text(p->out, "<section class=\"panel\"><h2>Steps: asked, granted, used</h2><div "
                         "class=\"scroll\"><table><thead><tr><th>step</th><th>status</th><th>time"
                         "</th><th>asked</th><th>granted</th><th>used</th><th></th></tr></thead>"
                         "<tbody>\n");
    int rc = grows ? stk_html_grown_steps(p) : 0;
    for (uint32_t i = 0; rc == 0 && !grows && i < shown; i++) {
        rc = stk_html_step_row(p, i);
    }
    if (rc < 0) {
        return rc;
    }
    if (!grows) {
        stk_buf_text(p->out, "</tbody></table></div>");
        stk_html_more(p, n, shown, "steps");
    }
    stk_buf_text(p->out, "</section>\n");
    return 0;
}

void stk_html_artifact_row(stk_buf *out, const char *step, const stk_view_ref *ref)
{
    char size[32];
    stk_buf_text(out, "<tr><td><b>");
    stk_html_user(out, step);
    stk_buf_char(out, '.');
    stk_html_user(out, ref->name);
    stk_buf_text(out, "</b>");
    if (ref->artifact_name != NULL) {
        stk_buf_text(out, "<br/><span class=\"dim\">");
        stk_html_user(out, ref->artifact_name);
        stk_buf_text(out, ref->artifact_version ? " · version " : "");
        stk_html_user(out, stk_text_or(ref->artifact_version, ""));
        stk_buf_text(out, "</span>");
    }
    stk_buf_text(out, "</td>");
    stk_html_cell(out, NULL, ref->type);
    stk_html_cell(out, NULL, ref->format);
    stk_html_cell(out, "num",
                  ref->size >= 0 ? stk_units_format_memory(ref->size, size, sizeof size) : "");
    stk_buf_printf(out, "<td class=\"num\"><code title=\"");
    stk_html_user(out, stk_text_or(ref->digest, ""));
    stk_buf_printf(out, "\">%.12s</code></td></tr>\n", stk_text_or(ref->digest, ""));
}

static int artifacts(const page *p)
{
    uint32_t n = 0;
    if (stk_view_grows(p->view)) {
        return stk_html_grown_artifacts(p);
    }
    for (uint32_t i = 0; i < stk_view_n_tasks(p->view) && n <= MAX_ARTIFACTS; i++) {
        const stk_view_task *task = stk_view_get_task(p->view, i);
        stk_view_details d;
        if (task->end_data == NULL || (task->step != NULL && task->step->n_outputs == 0)) {
            continue; /* in a large run, reading every payload would be felt */
        }
        int rc = stk_html_details(p, i, &d);
        if (rc < 0) {
            return rc;
        }
        for (uint32_t k = 0; k < d.n_outputs; k++) {
            if (n++ == 0) {
                stk_buf_text(p->out, "<section class=\"panel\"><h2>Artifacts</h2><div "
                                     "class=\"scroll\"><table><thead><tr><th>artifact</th><th>type"
                                     "</th><th>format</th><th>size</th><th>digest</th></tr></thead>"
                                     "<tbody>\n");
            }
            if (n <= MAX_ARTIFACTS) {
                stk_html_artifact_row(p->out, task->name, &d.outputs[k]);
            }
        }
    }
    if (n > 0) {
        stk_buf_text(p->out, "</tbody></table></div>");
        if (n > MAX_ARTIFACTS) {
            stk_buf_printf(p->out,
                           "<p class=\"meta\">and more: <code>stoker artifact list %s</code>"
                           "</p>",
                           p->run->id);
        }
        stk_buf_text(p->out, "</section>\n");
    }
    return 0;
}

static void pair(stk_buf *out, const char *prefix, const char *key, const char *value)
{
    if (value != NULL && *value != '\0') {
        stk_buf_text(out, "<tr><td>");
        stk_html_user(out, prefix);
        stk_html_user(out, key);
        stk_buf_text(out, "</td><td>");
        stk_html_user(out, value);
        stk_buf_text(out, "</td></tr>\n");
    }
}

/* The members of an object, long values cut. */
uint32_t stk_html_pairs(const page *p, stk_buf *out, const char *prefix, const char *json)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *object = stk_json_read(scratch, json);
    uint32_t n = 0;
    for (uint32_t k = 0; k < stk_json_n_members(object); k++) {
        const char *key = stk_json_key(object, k)->text;
        const stk_json *value = stk_json_value(object, k);
        const char *text = stk_json_text(value);
        if (stk_json_is_kind(value, STK_JSON_REAL)) {
            text = stk_arena_printf(p->arena, "%.6g", stk_json_number(value, 0));
        } else if (text == NULL) {
            text = stk_json_dump_in(value, p->arena);
        }
        STK_BUF_AUTO cut = STK_BUF_INIT(1u << 16);
        stk_text_fit(&cut, stk_text_or(text, ""), 400, false, true);
        pair(out, prefix, key, cut.data);
        n++;
    }
    return n;
}

static int facts(const page *p)
{
    stk_buf *out = p->out;
    STK_BUF_AUTO rows = STK_BUF_INIT(MAX_CARD_BYTES);
    stk_buf_text(out, "<div class=\"two\">");
    if (stk_html_pairs(p, &rows, "", p->run->parameters) > 0) {
        stk_buf_text(out, "<section class=\"panel\"><h2>Parameters</h2><table class=\"pairs\">"
                          "<tbody>\n");
        stk_buf_add(out, rows.data, rows.len);
        stk_buf_text(out, "</tbody></table></section>\n");
    }
    stk_buf_clear(&rows);
    uint32_t n = MIN(stk_view_n_tasks(p->view), MAX_ROWS);
    for (uint32_t i = 0; i < n; i++) {
        const stk_view_task *task = stk_view_get_task(p->view, i);
        stk_view_details d;
        int rc = stk_html_details(p, i, &d);
        if (rc < 0) {
            return rc;
        }
        if (d.metadata != NULL) {
            stk_html_pairs(p, &rows, stk_arena_printf(p->arena, "%s.", task->label), d.metadata);
        }
    }
    if (rows.len > 0) {
        stk_buf_text(out, "<section class=\"panel\"><h2>Metadata</h2><table class=\"pairs\"><tbody>"
                          "\n");
        stk_buf_add(out, rows.data, rows.len);
        stk_buf_text(out, "</tbody></table></section>\n");
    }
    stk_buf_text(out, "</div>\n");
    return 0;
}

/* "2 × NVIDIA H100 80GB HBM3, NVIDIA T4" of a list of models. */
static const char *devices_of(const stk_json *models, stk_arena *arena)
{
    STK_BUF_AUTO text = STK_BUF_INIT(1u << 16);
    size_t n = stk_json_n_items(models);
    for (size_t i = 0, k; i < n; i = k) {
        const stk_json *model = stk_json_item(models, i);
        for (k = i + 1; k < n && stk_json_equal(model, stk_json_item(models, k));) {
            k++;
        }
        stk_buf_text(&text, i > 0 ? ", " : "");
        if (k - i > 1) {
            stk_buf_printf(&text, "%zu × ", k - i);
        }
        stk_buf_text(&text, stk_json_is_kind(model, STK_JSON_TEXT) ? stk_json_text(model)
                                                                   : "unknown device");
    }
    return text.data != NULL ? stk_arena_dup(arena, text.data) : "no accelerators";
}

static void origin(const page *p)
{
    const stk_view_run *run = p->run;
    stk_buf *out = p->out;
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *host = stk_json_read(scratch, run->host);
    char text[64];
    stk_buf_text(out, "<section class=\"panel\"><h2>Origin</h2><table class=\"pairs\"><tbody>\n");
    stk_arena_reset(p->arena);
    stk_html_pairs(p, out, "", run->origin);
    pair(out, "", "spec", run->spec_digest);
    pair(out, "", "mode", run->mode);
    pair(out, "", "policy", run->policy);
    pair(out, "", "store", run->store);
    int64_t cpus = stk_json_get_whole(host, "cpus", -1);
    int64_t memory = stk_json_get_whole(host, "memory_bytes", -1);
    if (cpus > 0 && memory > 0) {
        pair(out, "", "machine",
             stk_arena_printf(p->arena, "%lld CPUs, %s, %s", (long long)cpus,
                              stk_units_format_memory(memory, text, sizeof text),
                              devices_of(stk_json_get(host, "devices"), p->arena)));
    }
    if (run->n_resumed > 0) {
        pair(out, "", "resumed", stk_arena_printf(p->arena, "%u times", run->n_resumed));
    }
    stk_buf_printf(out,
                   "</tbody></table></section>\n<footer>stoker %s · <code>stoker show %s</code>"
                   "</footer>\n</main></body></html>\n",
                   STK_VERSION, run->id);
}

int stk_html_card(const stk_view *view, stk_store *store, int64_t now_ms, stk_buf *out,
                  stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    page p = {.view = view,
              .run = stk_view_get_run(view),
              .now_ms = now_ms,
              .arena = arena,
              .out = out,
              .err = err};
    if (arena == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory for the card");
    }
    int rc = stk_view_total(view, store, now_ms, &p.totals, err);
    int (*const parts[])(const page *) = {head,  tiles,  notes,     failures, pictures,
                                          steps, curves, artifacts, facts};
    for (size_t i = 0; rc == 0 && i < sizeof parts / sizeof *parts; i++) {
        rc = parts[i](&p);
    }
    if (rc < 0) {
        return rc;
    }
    origin(&p);
    return out->failed
               ? stk_err_set(err, STK_E_LIMIT, "the card of run %s is larger than %zu bytes",
                             p.run->id, out->max)
               : 0;
}

int stk_html_write_card(const stk_view *view, stk_store *store, int64_t now_ms, char **ret_path,
                        stk_err *err)
{
    const stk_view_run *run = stk_view_get_run(view);
    STK_BUF_AUTO html = STK_BUF_INIT(MAX_CARD_BYTES);
    STK_BUF_AUTO path = STK_BUF_INIT(8192);
    int rc = stk_html_card(view, store, now_ms, &html, err);
    if (rc < 0) {
        return rc;
    }
    if (run->store == NULL ||
        stk_buf_printf(&path, "%s/runs/%s/card.html", run->store, run->id) < 0) {
        return stk_err_set(err, STK_E_USAGE, "run %s has no folder for its card", run->id);
    }
    rc = stk_file_write_atomic(path.data, html.data, html.len, 0644, err);
    if (rc == 0) {
        *ret_path = path.data;
        path.data = NULL; /* the caller's now */
    }
    return rc;
}
