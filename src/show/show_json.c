#include "show/show_json.h"

#include "base/json.h"
#include "base/text.h"
#include "show/show_private.h"

void stk_show_raw(stk_buf *out, const char *key, const char *json, const char *otherwise)
{
    stk_json_put_key(out, key);
    stk_buf_text(out, stk_text_or(json, otherwise));
}

/* The device request except for its count. */
static void put_alternative(stk_buf *out, const stk_alternative *a)
{
    if (a->gpu_memory_bytes > 0) {
        stk_json_put_int(out, "gpu_memory_bytes", a->gpu_memory_bytes);
    } else if (a->gpu_memory_bytes == STK_GPU_MEMORY_AUTO) {
        stk_json_put_text(out, "gpu_memory", "auto");
    }
    if (a->gpu_class != NULL) {
        stk_json_put_text(out, "gpu_class", a->gpu_class);
    }
    if (a->gpu_vendor != NULL) {
        stk_json_put_text(out, "gpu_vendor", a->gpu_vendor);
    }
}

static void put_alternatives(stk_buf *out, const stk_resources *r)
{
    put_alternative(out, &r->base);
    if (r->n_any_of == 0) {
        return;
    }
    stk_json_open(out, "any_of", '[');
    for (uint32_t i = 0; i < r->n_any_of; i++) {
        stk_json_open(out, NULL, '{');
        if (r->any_of[i].gpu_count > 0) {
            stk_json_put_int(out, "gpu_count", r->any_of[i].gpu_count);
        }
        put_alternative(out, &r->any_of[i]);
        stk_json_close(out, '}');
    }
    stk_json_close(out, ']');
}

void stk_show_asked(stk_buf *out, const stk_view_amounts *asked, const stk_step *step)
{
    stk_json_open(out, "asked", '{');
    stk_show_put_amount(out, "cpu_count", asked->cpus);
    if (asked->n_devices >= 0) {
        stk_json_put_int(out, "gpu_count", asked->n_devices);
    }
    if (asked->memory_bytes >= 0) {
        stk_json_put_int(out, "memory_bytes", asked->memory_bytes);
    }
    if (step != NULL && step->settings != NULL) {
        put_alternatives(out, &step->settings->resources);
    }
    stk_json_close(out, '}');
}

/* "from" of an input as the spec writes it: a text, or an array for a list. The spec limits
 * depth. */
static void put_from(const stk_view *view, stk_buf *out, const stk_input *input)
{
    if (input->kind == STK_INPUT_OUTPUT) {
        const stk_step *step = stk_spec_step(stk_view_spec(view), input->step);
        STK_BUF_AUTO from = STK_BUF_INIT(4096);
        stk_buf_printf(&from, "%s.%s", step->name, step->outputs[input->output].name);
        stk_buf_json(out, stk_text_or(from.data, ""));
    } else if (input->kind == STK_INPUT_LIST) {
        stk_buf_char(out, '[');
        for (uint32_t i = 0; i < input->n_items; i++) {
            stk_json_put_key(out, NULL);
            put_from(view, out, &input->items[i]);
        }
        stk_buf_char(out, ']');
    } else {
        stk_buf_text(out, "null");
    }
}

static void put_inputs(const stk_view *view, stk_buf *out, const stk_view_details *d)
{
    stk_json_open(out, "inputs", '{');
    for (uint32_t i = 0; i < d->n_inputs; i++) {
        const stk_view_input *in = &d->inputs[i];
        stk_json_open(out, in->input->name, '{');
        switch (in->input->kind) {
        case STK_INPUT_PARAM:
            stk_json_put_text(out, "param", in->input->text);
            stk_show_raw(out, "value", in->value, "null");
            break;
        case STK_INPUT_VALUE:
            stk_show_raw(out, "value", in->value, "null");
            break;
        case STK_INPUT_FILE:
            stk_json_put_text(out, "file", in->input->text);
            stk_json_put_text(out, "digest", in->digest);
            break;
        default:
            stk_json_put_key(out, "from");
            put_from(view, out, in->input);
            stk_json_put_text(out, "digest", in->digest);
        }
        stk_buf_char(out, '}');
    }
    stk_buf_char(out, '}');
}

static void put_outputs(const stk_view *view, stk_buf *out, const stk_view_details *d,
                        stk_arena *arena)
{
    stk_json_open(out, "outputs", '{');
    for (uint32_t i = 0; i < d->n_outputs; i++) {
        const stk_view_ref *ref = &d->outputs[i];
        stk_json_open(out, ref->name, '{');
        stk_json_put_text(out, "digest", ref->digest);
        stk_json_put_text(
            out, "path", stk_view_artifact_path(arena, stk_view_get_run(view)->store, ref->digest));
        stk_json_put_int(out, "size", ref->size);
        stk_json_put_text(out, "format", ref->format);
        stk_json_put_text(out, "type", ref->type);
        stk_show_raw(out, "meta", ref->meta, "{}");
        stk_show_raw(out, "metadata", ref->metadata, "{}");
        stk_show_raw(out, "tags", ref->tags, "[]");
        stk_json_put_text(out, "name", ref->artifact_name);
        stk_json_put_text(out, "version", ref->artifact_version);
        if (ref->value != NULL) {
            stk_show_raw(out, "value", ref->value, "null");
        }
        stk_buf_char(out, '}');
    }
    stk_buf_char(out, '}');
}

void stk_show_put_texts(stk_buf *out, const char *key, const char *const *texts, uint32_t n)
{
    stk_json_open(out, key, '[');
    for (uint32_t i = 0; i < n; i++) {
        stk_json_put_text(out, NULL, texts[i]);
    }
    stk_json_close(out, ']');
}

void stk_show_error(stk_buf *out, const stk_view_task *task, const stk_view_details *d,
                    stk_arena *arena)
{
    if (d->error_class == NULL || task->state == STK_TASK_RUNNING) {
        stk_show_raw(out, "error", NULL, "null");
        return;
    }
    static const char *const verbs[STK_TASK_N] = {
        [STK_TASK_SKIPPED] = "was skipped", [STK_TASK_CANCELLED] = "was cancelled"};
    const char *verb = stk_text_or(verbs[task->state], "failed");
    const char *tries = "";
    if (task->state == STK_TASK_FAILED && task->attempt > 1) {
        tries = stk_arena_printf(arena, " after %u attempts", task->attempt);
    }
    stk_json_open(out, "error", '{');
    stk_json_put_text(out, "class", d->error_class);
    stk_json_put_text(
        out, "text",
        stk_arena_printf(arena, "step '%s' %s%s: %s", task->label, verb, tries, d->error_text));
    stk_json_put_text(out, "cause", d->error_text);
    stk_json_put_text(out, "traceback", d->traceback);
    stk_json_put_text(out, "where", d->where);
    if (d->rank >= 0) {
        stk_json_put_int(out, "rank", d->rank);
    }
    if (d->noticed_us >= 0) {
        stk_json_put_int(out, "noticed_us", d->noticed_us);
    }
    stk_buf_char(out, '}');
}

int stk_show_task_members(const stk_view *view, uint32_t i_task, stk_arena *arena, stk_buf *out,
                          stk_err *err)
{
    const stk_view_task *task = stk_view_get_task(view, i_task);
    stk_view_details d;
    STK_TRY(stk_show_details(view, i_task, arena, &d, err));
    stk_json_put_text(out, "title", task->title);
    stk_json_put_text(out, "status", stk_view_status(view, task, false));
    stk_json_put_bool(out, "cached", task->state == STK_TASK_CACHED);
    stk_json_put_text(out, "cached_from", d.cached_from);
    stk_json_put_int(out, "attempts", task->attempt);
    stk_json_put_int(out, "started_ms", task->first_ms ? task->first_ms : task->ended_ms);
    stk_json_put_int(out, "ended_ms", task->ended_ms);
    stk_show_asked(out, &d.asked, task->step);
    stk_show_raw(out, "granted", d.granted_json, "{}");
    stk_show_raw(out, "used", d.used_json, "{}");
    put_inputs(view, out, &d);
    put_outputs(view, out, &d, arena);
    stk_show_raw(out, "metadata", d.metadata, "{}");
    stk_json_put_text(out, "miss", d.miss);
    stk_show_error(out, task, &d, arena);
    stk_show_put_texts(out, "warnings", d.warnings, d.n_warnings);
    stk_json_open(out, "logs", '{');
    stk_json_put_text(out, "stdout", d.stdout_path);
    stk_json_put_text(out, "stderr", d.stderr_path);
    stk_buf_char(out, '}');
    if (d.n_checkpoints > 0) {
        stk_json_open(out, "checkpoints", '{');
        stk_json_put_int(out, "n", d.n_checkpoints);
        stk_json_put_int(out, "size", d.checkpoint_bytes);
        stk_json_put_text(out, "path", d.checkpoints_path);
        stk_buf_char(out, '}');
    }
    stk_json_put_text(out, "source", task->step ? task->step->source : NULL);
    stk_json_put_text(out, "dir", d.dir);
    return 0;
}

static int put_task(const stk_view *view, uint32_t i_task, stk_arena *arena, stk_buf *out,
                    stk_err *err)
{
    stk_buf_char(out, '{');
    STK_TRY(stk_show_task_members(view, i_task, arena, out, err));
    stk_buf_char(out, '}');
    return 0;
}

int stk_show_check(const stk_buf *out, stk_err *err)
{
    if (out->failed) {
        return stk_err_set(err, STK_E_LIMIT, "the answer is larger than %zu bytes", out->max);
    }
    return 0;
}

int stk_show_json_task(const stk_view *view, uint32_t i_task, stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(put_task(view, i_task, arena, out, err));
    stk_buf_char(out, '\n');
    return stk_show_check(out, err);
}

void stk_show_put_amount(stk_buf *out, const char *key, double amount)
{
    if (amount >= 0) {
        stk_json_put_key(out, key);
        stk_buf_printf(out, "%.10g", amount);
    }
}

/* Totals over all steps. */
static int put_totals(const stk_view *view, stk_buf *out, stk_err *err)
{
    stk_view_totals t;
    STK_TRY(stk_show_total(view, NULL, 0, &t, err));
    stk_json_open(out, "used", '{');
    stk_show_put_amount(out, "cpu_s", t.cpu_s);
    stk_show_put_amount(out, "gpu_held_s", t.gpu_held_s);
    stk_show_put_amount(out, "gpu_busy_s", t.gpu_busy_s);
    stk_show_put_amount(out, "energy_j", t.energy_j);
    stk_json_close(out, '}');
    return 0;
}

int stk_show_json_run(const stk_view *view, stk_buf *out, stk_err *err)
{
    const stk_view_run *run = stk_view_get_run(view);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_TRY(stk_err_if_null(arena, err));
    stk_buf_char(out, '{');
    stk_json_put_text(out, "run", run->id);
    stk_json_put_text(out, "name", run->name);
    stk_json_put_text(out, "pipeline", run->pipeline);
    stk_json_put_text(out, "status", run->status);
    stk_json_put_text(out, "error", run->error);
    if (run->taker != NULL) {
        stk_json_put_text(out, "taken_over_by", run->taker);
    }
    stk_json_put_text(out, "store", run->store);
    stk_json_put_int(out, "created_ms", run->created_ms);
    stk_json_put_int(out, "started_ms", run->started_ms);
    stk_json_put_int(out, "ended_ms", run->ended_ms);
    stk_json_put_text(out, "mode", run->mode);
    stk_json_put_text(out, "policy", run->policy);
    stk_show_raw(out, "parameters", run->parameters, "{}");
    stk_show_raw(out, "tags", run->tags, "[]");
    stk_show_raw(out, "metadata", run->metadata, "{}");
    if (stk_view_grows(view)) {
        stk_show_raw(out, "grows", "true", NULL);
    }
    stk_json_put_text(out, "spec_digest", run->spec_digest);
    stk_show_raw(out, "origin", run->origin, "{}");
    stk_show_raw(out, "host", run->host, "{}");
    stk_show_put_texts(out, "notes", run->notes, run->n_notes);
    STK_TRY(put_totals(view, out, err));
    stk_json_open(out, "steps", '{');
    if (stk_view_grows(view)) {
        STK_TRY(stk_show_put_grown(view, out, err)); /* closes "steps" */
    } else {
        for (uint32_t i = 0; i < stk_view_n_tasks(view); i++) {
            stk_arena_reset(arena);
            stk_json_put_key(out, stk_view_get_task(view, i)->name);
            STK_TRY(put_task(view, i, arena, out, err));
        }
        stk_json_close(out, '}');
    }
    stk_buf_text(out, "}\n");
    return stk_show_check(out, err);
}

static void put_values(const stk_run_values *run, bool parameters, stk_buf *out)
{
    stk_json_open(out, parameters ? "parameters" : "metrics", '{');
    for (uint32_t i = 0; i < run->n; i++) {
        if (run->items[i].is_parameter == parameters) {
            stk_show_raw(out, run->items[i].name, run->items[i].json, "null");
        }
    }
    stk_json_close(out, '}');
}

int stk_show_json_runs(const stk_run_values *runs, uint32_t n, const char *currency,
                       bool with_values, stk_buf *out, stk_err *err)
{
    stk_buf_char(out, '[');
    for (uint32_t i = 0; i < n; i++) {
        const stk_run_row *row = runs[i].row;
        if (i > 0) {
            stk_buf_text(out, ",\n ");
        }
        stk_buf_char(out, '{');
        stk_json_put_text(out, "run", row->id);
        stk_json_put_text(out, "name", row->name);
        stk_json_put_text(out, "pipeline", row->pipeline);
        stk_json_put_text(out, "status", row->status);
        stk_json_put_int(out, "created_ms", row->created_ms);
        stk_json_put_int(out, "ended_ms", row->ended_ms);
        stk_show_raw(out, "tags", row->tags, "[]");
        if (runs[i].cost >= 0) {
            stk_show_put_amount(out, "cost", runs[i].cost);
            stk_json_put_known_text(out, "currency", stk_text_if_any(currency));
        }
        if (with_values) {
            put_values(&runs[i], true, out);
            put_values(&runs[i], false, out);
        }
        stk_buf_char(out, '}');
    }
    stk_buf_text(out, "]\n");
    return stk_show_check(out, err);
}
