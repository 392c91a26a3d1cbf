#include "show/show_text.h"

#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "base/units.h"
#include "show/cost.h"
#include "show/show_devices.h"
#include "show/show_text_private.h"

/* --- verdict --- */

static void verdict(const line_ctx *c, const stk_view_totals *totals)
{
    const stk_view_run *run = stk_view_get_run(c->view);
    STK_BUF_AUTO left = STK_BUF_INIT(4096);
    char text[64];
    bool live = stk_view_is_live(c->view);
    stk_buf_printf(&left, "%s %s", run->pipeline, live ? "is running" : run->status);
    stk_buf_printf(&left, "%s%s %s%s", dot(c->style),
                   stk_text_count(totals->n_tasks, text, sizeof text), stk_show_noun(c->view),
                   stk_text_plural(totals->n_tasks));
    if (run->n[STK_TASK_CACHED] == totals->n_tasks && totals->n_tasks > 0) {
        stk_buf_text(&left, ", all cached");
    } else if (run->n[STK_TASK_CACHED] > 0) {
        stk_buf_printf(&left, ", %s cached",
                       stk_text_count(run->n[STK_TASK_CACHED], text, sizeof text));
    }
    if (run->n[STK_TASK_FAILED] > 0) {
        stk_buf_printf(&left, ", %s failed",
                       stk_text_count(run->n[STK_TASK_FAILED], text, sizeof text));
    }
    stk_buf_printf(&left, "%s%s", dot(c->style),
                   stk_units_format_duration((int64_t)(totals->wall_s * 1000), text, sizeof text));
    stk_text_put_mark(c, run->status);
    stk_buf_char(c->out, ' ');
    int used = 2 + stk_text_width(left.data);
    stk_text_ink(c->out, c->style, STK_INK_BOLD, left.data);
    STK_BUF_AUTO right = STK_BUF_INIT(4096);
    stk_buf_printf(&right, "run %s", run->id);
    int gap = c->style->columns - used - (int)right.len;
    stk_buf_printf(c->out, "%*s", MAX(gap, 2), "");
    stk_text_ink(c->out, c->style, STK_INK_DIM, right.data);
    stk_buf_char(c->out, '\n');
}

/* --- notes, totals, artifacts --- */

void stk_text_put_label(const line_ctx *c, const char *word)
{
    STK_BUF_AUTO text = STK_BUF_INIT(64);
    stk_buf_printf(&text, "  %-*s", LABEL, word);
    stk_text_ink(c->out, c->style, STK_INK_DIM, text.data);
}

/* Adds words separated by commas; a new line begins below the first word. */
typedef struct wrap {
    const line_ctx *c;
    int at;
    uint32_t n;
} wrap;

static void wrap_word(wrap *w, const char *word)
{
    int width = stk_text_width(word);
    if (w->n > 0) {
        stk_buf_char(w->c->out, ',');
        if (w->at + 2 + width > w->c->style->columns) {
            stk_buf_printf(w->c->out, "\n%*s", 2 + LABEL, "");
            w->at = 2 + LABEL;
        } else {
            stk_buf_char(w->c->out, ' ');
            w->at += 2;
        }
    }
    stk_text_safe(w->c->out, word, "");
    w->at += width;
    w->n++;
}

static void end_words(const wrap *w)
{
    if (w->n > 0) {
        stk_buf_char(w->c->out, '\n');
    }
}

static const char *scalar_text(stk_arena *arena, const stk_json *value)
{
    if (stk_json_is_kind(value, STK_JSON_REAL)) {
        return stk_arena_printf(arena, "%.6g", stk_json_number(value, 0));
    }
    if (stk_json_is_kind(value, STK_JSON_TEXT)) {
        return stk_arena_dup(arena, stk_json_text(value));
    }
    return stk_json_dump_in(value, arena);
}

/* Adds the metadata that fit into a line: numbers, texts, booleans. */
static void metadata_words(wrap *w, const char *prefix, const char *metadata, stk_arena *arena)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *json = stk_json_read(scratch, metadata);
    for (uint32_t k = 0; k < stk_json_n_members(json); k++) {
        const char *key = stk_json_key(json, k)->text;
        const stk_json *value = stk_json_value(json, k);
        if (stk_json_is_map(value) || stk_json_is_list(value) ||
            stk_json_is_kind(value, STK_JSON_NULL)) {
            continue;
        }
        const char *text = scalar_text(arena, value);
        if (text != NULL && strlen(text) <= 60) {
            if (w->n == 0) {
                stk_text_put_label(w->c, "metadata");
            }
            wrap_word(w, stk_arena_printf(arena, "%s%s %s", prefix, key, text));
        }
    }
}

static int results(const line_ctx *c)
{
    uint32_t n = stk_view_n_tasks(c->view), n_more = 0;
    wrap artifacts = {c, 2 + LABEL, 0}, metadata = {c, 2 + LABEL, 0};
    STK_BUF_AUTO later = STK_BUF_INIT(1u << 20);
    line_ctx below = *c;
    below.out = &later;
    metadata.c = &below;
    for (uint32_t i = 0; (n <= MANY || stk_view_grows(c->view)) && i < n; i++) {
        const stk_view_task *task = stk_view_get_task(c->view, i);
        stk_view_details d;
        if (stk_view_get_step(c->view, task->i_step)->n > 1) {
            continue; /* these are many: 'stoker show RUN/STEP/ID' lists their artifacts */
        }
        STK_TRY(stk_show_details(c->view, i, c->arena, &d, c->err));
        uint32_t k = 0;
        for (; k < d.n_outputs && artifacts.n < NAMED; k++) {
            const stk_view_ref *ref = &d.outputs[k];
            if (artifacts.n == 0) {
                stk_text_put_label(c, "artifacts");
            }
            STK_BUF_AUTO word = STK_BUF_INIT(1u << 16);
            stk_buf_printf(&word, "%s.%s", task->label, ref->name);
            if (ref->artifact_name != NULL) {
                stk_buf_printf(&word, " (%s", ref->artifact_name);
                if (ref->artifact_version != NULL) {
                    stk_buf_printf(&word, " v%s", ref->artifact_version);
                }
                stk_buf_char(&word, ')');
            }
            wrap_word(&artifacts, word.data);
        }
        n_more += d.n_outputs - k;
        metadata_words(&metadata, stk_arena_printf(c->arena, "%s.", task->label), d.metadata,
                       c->arena);
        stk_arena_reset(c->arena);
    }
    if (n_more > 0) {
        stk_buf_printf(c->out, " and %u more", n_more);
    }
    end_words(&artifacts);
    if (metadata.n > 0) {
        stk_buf_add(c->out, later.data, later.len);
        stk_buf_char(c->out, '\n');
    }
    return 0;
}

static void totals_line(const line_ctx *c, const stk_view_totals *t)
{
    char text[64];
    stk_text_put_label(c, "totals");
    if (t->cpu_s > 0) {
        stk_units_format_duration((int64_t)(t->cpu_s * 1000), text, sizeof text);
        stk_buf_printf(c->out, "%s of CPU time", text);
    } else {
        stk_buf_text(c->out, "no CPU time");
    }
    if (t->gpu_held_s >= 0) {
        stk_buf_text(c->out, dot(c->style));
        stk_text_gpu_time(t, c->out);
    }
    if (stk_cost_say(c->view, c->now_ms, text, sizeof text) != NULL) {
        stk_buf_printf(c->out, "%scost %s", dot(c->style), text);
    }
    const stk_view_run *run = stk_view_get_run(c->view);
    if (run->n[STK_TASK_CACHED] > 0) {
        stk_buf_printf(c->out, "%s%s cache hit%s", dot(c->style),
                       stk_text_count(run->n[STK_TASK_CACHED], text, sizeof text),
                       stk_text_plural(run->n[STK_TASK_CACHED]));
        if (t->saved_s > 0) {
            stk_buf_printf(
                c->out, " saved %s",
                stk_units_format_duration((int64_t)(t->saved_s * 1000), text, sizeof text));
        }
    }
    if (run->n_attempts_extra > 0) {
        stk_buf_printf(c->out, "%s%u %s", dot(c->style), run->n_attempts_extra,
                       stk_text_noun(run->n_attempts_extra, "retry", "retries"));
    }
    if (run->n_resumed > 0) {
        stk_buf_printf(c->out, "%sresumed %u time%s", dot(c->style), run->n_resumed,
                       stk_text_plural(run->n_resumed));
    }
    stk_buf_char(c->out, '\n');
}

int stk_text_summary(const stk_view *view, stk_store *store, const char *card, int64_t now_ms,
                     const stk_style *style, stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    line_ctx c = {view, style, arena, now_ms, out, err};
    stk_view_totals totals;
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_show_total(view, store, now_ms, &totals, err));
    verdict(&c, &totals);
    STK_TRY(stk_text_steps(&c));
    stk_text_many(&c);
    STK_TRY(stk_text_notes(c.view, c.style, MANY, c.out, c.err));
    STK_TRY(stk_text_put_failures(&c));
    stk_buf_char(out, '\n');
    totals_line(&c, &totals);
    STK_TRY(results(&c));
    if (card != NULL) {
        stk_text_put_label(&c, "card");
        stk_buf_printf(out, "%s\n", stk_text_path(style, card));
    }
    stk_text_put_next(&c, store);
    return stk_buf_check(out, err);
}

/* --- one task --- */

static void field(const line_ctx *c, const char *word, const char *text)
{
    if (text != NULL) {
        stk_text_put_label(c, word);
        stk_text_safe(c->out, text, "             ");
        stk_buf_char(c->out, '\n');
    }
}

static void amounts_field(const line_ctx *c, const char *word, const stk_view_amounts *amounts)
{
    stk_text_put_label(c, word);
    stk_text_amounts(c->out, amounts, c->style->utf8);
    stk_buf_char(c->out, '\n');
}

static void devices_field(const line_ctx *c, const stk_view_details *d)
{
    if (d->n_devices > 0) {
        stk_text_put_label(c, "devices");
        stk_text_devices(d, c->style, 2 + LABEL, c->out);
        field(c, "verdict", d->verdict);
    }
}

/* Several lines share one label, before the first. */
static void label_first(const line_ctx *c, const char *word, uint32_t i)
{
    stk_text_put_label(c, i == 0 ? word : "");
}

static void task_ports(const line_ctx *c, const stk_view_details *d)
{
    for (uint32_t i = 0; i < d->n_inputs; i++) {
        const stk_view_input *in = &d->inputs[i];
        const char *what = stk_text_or(in->value, stk_text_or(in->digest, ""));
        label_first(c, "inputs", i);
        STK_BUF_AUTO line = STK_BUF_INIT(1u << 16);
        stk_buf_printf(&line, "%s from %s  %.64s", in->input->name, in->from, what);
        stk_text_fit(c->out, line.data, c->style->columns - 2 - LABEL, false, c->style->utf8);
        stk_buf_char(c->out, '\n');
    }
    for (uint32_t i = 0; i < d->n_outputs; i++) {
        const stk_view_ref *ref = &d->outputs[i];
        label_first(c, "outputs", i);
        char size[32] = "";
        if (ref->size >= 0) {
            stk_units_format_memory(ref->size, size, sizeof size);
        }
        STK_BUF_AUTO line = STK_BUF_INIT(1u << 16);
        stk_buf_printf(&line, "%s  %s %s %s", ref->name, stk_text_or(ref->type, ""),
                       stk_text_or(ref->format, ""), size);
        stk_text_safe(c->out, line.data, "");
        stk_buf_printf(c->out, "\n%*s%s\n", 4 + LABEL, "", stk_text_or(ref->digest, ""));
    }
}

/* The artifacts that a task inherits, each with the task that made it. */
static int scope_lines(const line_ctx *c, uint32_t i_task)
{
    stk_view_scope scope;
    int rc = stk_view_get_scope(c->view, i_task, 0, c->arena, &scope, c->err);
    wrap words = {c, 2 + LABEL, 0};
    for (uint32_t i = 0; rc == 0 && i < scope.n && words.n < NAMED; i++) {
        const stk_view_artifact *one = &scope.items[i];
        if (one->task != i_task) {
            if (words.n == 0) {
                stk_text_put_label(c, "inherits");
            }
            wrap_word(&words, stk_arena_printf(c->arena, "%s (%s)", one->name,
                                               stk_view_get_task(c->view, one->task)->title));
        }
    }
    end_words(&words);
    return rc;
}

/* The tasks that a task of a growing run follows. */
static void after_field(const line_ctx *c, const stk_view_task *task)
{
    STK_BUF_AUTO names = STK_BUF_INIT(1u << 16);
    for (uint32_t i = 0; i < task->n_parents && i < NAMES; i++) {
        stk_buf_separate(&names, ", ");
        stk_buf_text(&names, stk_view_get_task(c->view, task->parents[i])->title);
    }
    if (task->n_parents > NAMES) {
        stk_buf_printf(&names, " and %u more", task->n_parents - NAMES);
    }
    field(c, "after", names.data);
}

int stk_text_task(const stk_view *view, uint32_t i_task, int64_t now_ms, const stk_style *style,
                  stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    line_ctx c = {view, style, arena, now_ms, out, err};
    const stk_view_task *task = stk_view_get_task(view, i_task);
    stk_view_details d;
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_show_details(view, i_task, arena, &d, err));
    const char *status = stk_view_status(view, task, true);
    char text[64];
    stk_text_put_mark(&c, status);
    stk_buf_char(out, ' ');
    const char *who = stk_view_who(view, i_task, arena);
    if (strcmp(task->title, task->label) != 0) {
        who = stk_arena_printf(arena, "%s (%s)", who, task->label);
    }
    stk_text_ink(out, style, STK_INK_BOLD, stk_arena_printf(arena, "%s %s", who, status));
    if (task->started_ms > 0) {
        stk_buf_printf(out, "%s%s", dot(style), stk_text_took(&c, task, arena));
    }
    stk_buf_char(out, '\n');
    field(&c, "run", stk_view_get_run(view)->id);
    if (task->step != NULL) {
        field(&c, "about", task->step->description);
        field(&c, "source", task->step->source);
    }
    if (d.cached_from != NULL && d.from_task >= 0) {
        field(&c, "cached",
              stk_arena_printf(arena, "from %s/%s/%lld", d.cached_from, task->name,
                               (long long)d.from_task + 1));
    } else if (d.cached_from != NULL) {
        field(&c, "cached", stk_arena_printf(arena, "from run %s", d.cached_from));
    }
    after_field(&c, task);
    field(&c, "not cached", d.miss);
    if (task->started_ms > 0) {
        field(&c, "started", stk_text_time(task->started_ms, false, text, sizeof text));
        stk_text_put_label(&c, "asked");
        stk_text_amounts(out, &d.asked, style->utf8);
        if (task->step != NULL) {
            stk_text_alternatives(&task->step->settings->resources, style->utf8, out);
        }
        stk_buf_char(out, '\n');
        amounts_field(&c, "granted", &d.granted);
        field(&c, "image", d.image);
        amounts_field(&c, "used", &d.used);
        devices_field(&c, &d);
    }
    task_ports(&c, &d);
    if (stk_view_grows(view)) {
        STK_TRY(scope_lines(&c, i_task));
    }
    wrap words = {&c, 2 + LABEL, 0};
    metadata_words(&words, "", d.metadata, arena);
    end_words(&words);
    field(&c, "checkpoints", stk_show_checkpoints(&d, arena));
    if (d.dir != NULL) {
        field(&c, "directory", stk_text_path(style, d.dir));
    }
    for (uint32_t i = 0; i < d.n_warnings; i++) {
        stk_text_note(d.warnings[i], c.style, c.out);
    }
    if (task->state == STK_TASK_FAILED) {
        return stk_text_put_failure(&c, i_task);
    }
    field(&c, "because", d.error_text);
    return 0;
}
