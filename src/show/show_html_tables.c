/* The tables of a run's card: steps, artifacts, parameters, and the run's origin. */
#include <sys/param.h>

#include "base/text.h"
#include "base/units.h"
#include "show/show_html_private.h"
#include "show/show_text.h"

void stk_html_took(const page *p, const stk_view_task *task)
{
    int64_t ms = stk_show_took_ms(task->started_ms, task->ended_ms, p->now_ms);
    stk_html_seconds(p->out, (double)ms / 1000);
}

static void amounts(stk_buf *out, const stk_view_amounts *a)
{
    STK_BUF_AUTO text = STK_BUF_INIT(256);
    stk_text_amounts(&text, a, true);
    stk_html_cell(out, NULL, text.data);
}

/* What the step used, with a bar if it was granted a memory limit. */
static void used_cell(stk_buf *out, const stk_view_details *d)
{
    STK_BUF_AUTO text = STK_BUF_INIT(256);
    stk_text_amounts(&text, &d->used, true);
    stk_html_put(out, "<td>%s", text.data);
    if (d->granted.memory_bytes > 0 && d->used.memory_bytes >= 0) {
        double part = (double)d->used.memory_bytes / (double)d->granted.memory_bytes * 100;
        const char *class = part > 95 ? "full" : "ok";
        stk_buf_printf(out,
                       "<span class=\"meter\" title=\"memory: %.0f %% of what was granted\">"
                       "<i class=\"%s\" style=\"width:%.0f%%\"></i></span>",
                       part, class, MIN(part, 100));
    }
    stk_buf_text(out, "</td>");
}

int stk_html_step_row(const page *p, uint32_t i_task)
{
    const stk_view_task *task = stk_view_get_task(p->view, i_task);
    stk_buf *out = p->out;
    stk_view_details d;
    STK_TRY(stk_html_details(p, i_task, &d));
    stk_buf_text(out, "<tr><td><b>");
    stk_html_task_link(p, i_task, stk_view_who(p->view, i_task, p->arena));
    stk_buf_text(out, "</b>");
    if (task->step != NULL && task->step->source != NULL) {
        stk_html_put(out, "<br/><code class=\"dim\">%s</code>", task->step->source);
    }
    stk_buf_text(out, "</td><td>");
    stk_html_status(out, stk_view_status(p->view, task, true));
    stk_buf_text(out, "</td><td class=\"num\">");
    if (task->started_ms > 0) {
        stk_html_took(p, task);
        if (task->attempt > 1) {
            stk_buf_printf(out, "<br/><span class=\"dim\">attempt %u</span>", task->attempt);
        }
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
        stk_html_put(out, "<td class=\"dim\">%s", stk_text_or(about.data, ""));
        stk_html_log_links(p, i_task, &d);
        stk_buf_text(out, "</td>");
    } else {
        const char *about = d.error_text;
        if (d.cached_from != NULL) {
            about = stk_arena_printf(p->arena, "from run %s", d.cached_from);
        }
        stk_buf_text(out, "<td></td><td></td><td></td>");
        stk_html_cell(out, "dim", about);
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

void stk_html_artifacts_open(stk_buf *out, const char *heading)
{
    stk_html_panel_open(out, heading);
    stk_buf_text(out,
                 "<div class=\"scroll\"><table "
                 "class=\"artifacts\"><thead><tr><th>artifact</th><th>value</th><th>type</th>"
                 "<th class=\"num\">size</th><th class=\"num\">digest</th></tr></thead><tbody>\n");
}

void stk_html_artifacts_close(stk_buf *out)
{
    stk_buf_text(out, "</tbody></table></div></section>\n");
}

static void type_cell(stk_buf *out, const stk_view_ref *ref)
{
    const char *type = stk_text_or(ref->type, stk_text_or(ref->format, ""));
    if (strncmp(type, "builtins.", 9) == 0) {
        type += 9;
    }
    stk_html_put(out, "<td>%s", type);
    if (ref->format != NULL && strcmp(ref->format, type) != 0 && strcmp(ref->format, "json") != 0) {
        stk_html_put(out, " <span class=\"dim\">%s</span>", ref->format);
    }
    stk_buf_text(out, "</td>");
}

void stk_html_artifact_row(const page *p, const char *step, const stk_view_ref *ref,
                           const char *about)
{
    stk_buf *out = p->out;
    stk_buf_text(out, "<tr><td><b>");
    stk_html_artifact_link(p, step, ref);
    stk_buf_text(out, "</b>");
    if (ref->artifact_name != NULL) {
        stk_html_put(out, "<br/><span class=\"dim\">%s", ref->artifact_name);
        if (ref->artifact_version != NULL) {
            stk_html_put(out, " · version %s", ref->artifact_version);
        }
        stk_buf_text(out, "</span>");
    }
    stk_buf_text(out, "</td>");
    stk_html_value(out, ref, about);
    type_cell(out, ref);
    stk_html_cell_size(out, ref->size);
    stk_html_put(out, "<td class=\"num\"><code title=\"%s\">", ref->digest);
    stk_buf_printf(out, "%.12s</code></td></tr>\n", stk_text_or(ref->digest, ""));
    stk_html_preview(p, out, ref);
}

int stk_html_artifact_served(const stk_view_ref *ref, const char *store, stk_buf *out, stk_err *err)
{
    size_t room = MAX_PREVIEWS_BYTES;
    const stk_view_run run = {.store = store};
    const page p = {.run = &run, .served = true, .preview_room = &room, .out = out, .err = err};
    stk_html_artifacts_open(out, "Artifacts");
    stk_html_artifact_row(&p, NULL, ref, NULL);
    stk_html_artifacts_close(out);
    return 0;
}

int stk_html_artifacts(const page *p)
{
    uint32_t n = 0;
    if (stk_view_grows(p->view)) {
        return stk_html_grown_artifacts(p);
    }
    for (uint32_t i = 0; i < stk_view_n_tasks(p->view) && n <= MAX_ARTIFACTS; i++) {
        const stk_view_task *task = stk_view_get_task(p->view, i);
        stk_view_details d;
        if (task->end_data == NULL || (task->step != NULL && task->step->n_outputs == 0)) {
            continue; /* reading every payload would be slow in a large run */
        }
        STK_TRY(stk_html_details(p, i, &d));
        for (uint32_t k = 0; k < d.n_outputs; k++) {
            if (n++ == 0) {
                stk_html_artifacts_open(p->out, "Artifacts");
            }
            if (n <= MAX_ARTIFACTS) {
                stk_html_artifact_row(p, task->name, &d.outputs[k], NULL);
            }
        }
    }
    if (n > MAX_ARTIFACTS) {
        stk_html_put(p->out,
                     "<tr><td colspan=\"5\" class=\"dim\">and more: <code>stoker artifact list "
                     "%s</code></td></tr>",
                     p->run->id);
    }
    if (n > 0) {
        stk_html_artifacts_close(p->out);
    }
    return 0;
}

static void pair(stk_buf *out, const char *prefix, const char *key, const char *value)
{
    if (value != NULL && *value != '\0') {
        stk_html_put(out, "<tr><td>%s%s</td><td>%s</td></tr>\n", prefix, key, value);
    }
}

void stk_html_pairs(const page *p, stk_buf *out, const char *prefix, const char *json)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *object = stk_json_read(scratch, json);
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
    }
}

void stk_html_pairs_panel(stk_buf *out, const char *heading, const stk_buf *rows)
{
    stk_html_panel(out, heading, "<table class=\"pairs\"><tbody>\n", rows, "</tbody></table>");
}

int stk_html_facts(const page *p)
{
    stk_buf *out = p->out;
    STK_BUF_AUTO rows = STK_BUF_INIT(MAX_CARD_BYTES);
    stk_buf_text(out, "<div class=\"two\">");
    stk_html_pairs(p, &rows, "", p->run->parameters);
    stk_html_pairs_panel(out, "Parameters", &rows);
    stk_buf_clear(&rows);
    uint32_t n = MIN(stk_view_n_tasks(p->view), MAX_ROWS);
    for (uint32_t i = 0; i < n; i++) {
        const stk_view_task *task = stk_view_get_task(p->view, i);
        stk_view_details d;
        STK_TRY(stk_html_details(p, i, &d));
        if (d.metadata != NULL) {
            stk_html_pairs(p, &rows, stk_arena_printf(p->arena, "%s.", task->label), d.metadata);
        }
    }
    stk_html_pairs_panel(out, "Metadata", &rows);
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
        stk_buf_separate(&text, ", ");
        if (k - i > 1) {
            stk_buf_printf(&text, "%zu × ", k - i);
        }
        stk_buf_text(&text, stk_text_or(stk_json_text(model), "unknown device"));
    }
    return stk_arena_dup(arena, stk_text_or(text.data, "no accelerators"));
}

void stk_html_origin(const page *p)
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
                   "</footer>\n",
                   STK_VERSION, run->id);
    stk_buf_text(out, stk_text_when(!p->served, "</main></body></html>\n"));
}
