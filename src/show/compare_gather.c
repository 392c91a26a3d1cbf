/* What happened in a run, as rows: its steps, why they ran, their code, what they read and made,
 * what they asked for, got and used, and where they ran. */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "show/code.h"
#include "show/compare_private.h"
#include "show/show_devices.h"
#include "show/show_private.h"

enum { TASKS_MAX = 200, SHORT = 12, VALUE_MAX = 120, SOURCE_MAX = 1 << 18 };

/* A task whose rows are being added. `what` of its rows follows the task's label. */
typedef struct gathering {
    stk_compare *c;
    uint32_t run;
    const stk_view *view;
    stk_arena *scratch;
    const stk_json *code; /* stk_code_read */
    const char *label;
    stk_err *err;
} gathering;

static const char *row_name(const gathering *g, const char *what)
{
    return stk_arena_printf(g->scratch, "%s: %s", g->label, what);
}

static int put_fact(const gathering *g, stk_compare_part_id part, const char *what,
                    const char *text)
{
    STK_BUF_AUTO json = STK_BUF_INIT(1u << 20);
    if (text == NULL || *text == '\0') {
        return 0;
    }
    const char *name = row_name(g, what);
    stk_buf_json(&json, text);
    return name == NULL ? STK_E_NOMEM : stk_compare_set(g->c, part, name, g->run, text, json.data);
}

static int put_amount(const gathering *g, const char *what, double amount, const char *text)
{
    const char *name = row_name(g, what);
    if (amount < 0) {
        return 0;
    }
    return name == NULL
               ? STK_E_NOMEM
               : stk_compare_set_number(g->c, STK_PART_RESOURCES, name, g->run, amount, text);
}

static int put_bytes(const gathering *g, const char *what, int64_t bytes)
{
    char text[32];
    return put_amount(g, what, (double)bytes, stk_units_format_memory(bytes, text, sizeof text));
}

static int put_seconds(const gathering *g, const char *what, double s)
{
    char text[32];
    return put_amount(g, what, s,
                      stk_units_format_duration((int64_t)(s * 1000), text, sizeof text));
}

/* --- steps --- */

static int put_step_state(const gathering *g, const char *status, int64_t ms, uint32_t n_extra,
                          uint32_t n_tasks)
{
    char took[32] = "";
    const char *text = status;
    stk_compare_cell *cell = stk_compare_at(g->c, STK_PART_STEPS, g->label, g->run);
    if (cell == NULL) {
        return STK_E_NOMEM;
    }
    if (ms > 0) {
        text = stk_units_format_duration(ms, took, sizeof took);
        cell->number = (double)ms / 1000;
        cell->is_number = true;
    }
    if (n_extra > 0) {
        text = stk_arena_printf(g->c->arena, "%s, %u retr%s", text, n_extra,
                                n_extra == 1 ? "y" : "ies");
    }
    if (n_tasks > 1) {
        text = stk_arena_printf(g->c->arena, "%s, %u tasks", text, n_tasks);
    }
    cell->text = stk_arena_dup(g->c->arena, text);
    cell->status = status;
    STK_BUF_AUTO json = STK_BUF_INIT(4096);
    stk_json_open(&json, NULL, '{');
    stk_json_put_text(&json, "status", status);
    if (ms > 0) {
        stk_json_put_real(&json, "seconds", cell->number);
    }
    stk_json_put_whole(&json, "retries", n_extra);
    stk_json_close(&json, '}');
    cell->json = stk_arena_dup(g->c->arena, json.data);
    return cell->text == NULL || cell->json == NULL ? STK_E_NOMEM : 0;
}

static int put_task_state(const gathering *g, const stk_view_task *task, const stk_view_details *d)
{
    const char *why = d->miss;
    int64_t ms = stk_show_took_ms(task->started_ms, task->ended_ms, g->c->ask->now_ms);
    uint32_t extra = task->attempt > 1 ? task->attempt - 1 : 0;
    if (d->cached_from != NULL) {
        why = stk_arena_printf(g->scratch, "it didn't: its result is of run %s", d->cached_from);
    } else if (task->state == STK_TASK_SKIPPED) {
        why = stk_arena_printf(g->scratch, "it didn't: %s", stk_text_or(d->error_text, "skipped"));
    }
    STK_TRY(put_step_state(g, stk_view_status(g->view, task, true), ms, extra, 1));
    STK_TRY(stk_compare_set(g->c, STK_PART_WHY, g->label, g->run, why, NULL));
    if (d->error_text != NULL && task->state == STK_TASK_FAILED) {
        return put_fact(g, STK_PART_STEPS, "failure",
                        stk_arena_printf(g->scratch, "%s [%s]", d->error_text,
                                         stk_text_or(d->error_class, "?")));
    }
    return 0;
}

/* --- code --- */

static bool is_digest(const char *text)
{
    size_t n = strlen(text);
    return n >= 32 && strspn(text, "0123456789abcdef") == n;
}

static int put_code(const gathering *g, const stk_step *step)
{
    for (uint32_t i = 0; i < step->n_code; i++) {
        const stk_pair *part = &step->code[i];
        if (strcmp(part->key, "python") == 0) {
            STK_TRY(
                stk_compare_set(g->c, STK_PART_ENVIRONMENT, "Python", g->run, part->value, NULL));
        } else if (is_digest(part->value)) {
            const char *cut = stk_arena_printf(g->scratch, "%.*s", SHORT, part->value);
            STK_TRY(put_fact(g, STK_PART_CODE, part->key, cut));
        } else {
            const char *name = stk_arena_printf(g->scratch, "package %s", part->key);
            STK_TRY(stk_compare_set(g->c, STK_PART_ENVIRONMENT, stk_text_or(name, part->key),
                                    g->run, part->value, NULL));
        }
    }
    if (step->source != NULL) {
        STK_TRY(put_fact(g, STK_PART_CODE, "source", step->source));
    }
    return 0;
}

static int put_source(const gathering *g, const char *name, const char *text)
{
    stk_compare *c = g->c;
    uint64_t i = c->n_sources;
    if (text == NULL || strlen(text) > SOURCE_MAX) {
        return 0;
    }
    if (!stk_map_get(&c->source_by_name, name, &i)) {
        stk_compare_source *all =
            stk_arena_grow(c->arena, c->sources, c->n_sources, sizeof *all, &c->cap_sources);
        const char *own = stk_arena_dup(c->arena, name);
        if (all == NULL || own == NULL) {
            return STK_E_NOMEM;
        }
        c->sources = all;
        all[i] = (stk_compare_source){
            own, (const char **)stk_arena_array(c->arena, c->ask->n, sizeof(char *))};
        if (all[i].texts == NULL || stk_map_put(&c->source_by_name, own, i) < 0) {
            return STK_E_NOMEM;
        }
        c->n_sources++;
    }
    c->sources[i].texts[g->run] = stk_arena_dup(c->arena, text);
    return 0;
}

/* The command, or the code that the record has of a Python step: each module is a source of its
 * own, which steps share. */
static int put_text_of_step(const gathering *g, const stk_step *step)
{
    STK_BUF_AUTO words = STK_BUF_INIT(SOURCE_MAX);
    stk_code_command(step, &words);
    if (words.len > 0) {
        return put_source(g, g->label, words.data);
    }
    uint32_t n = stk_code_n(g->code, step->name);
    for (uint32_t i = 0; i < n; i++) {
        stk_code_part part = stk_code_get(g->code, step->name, i);
        if (!part.is_module) {
            stk_buf_text(&words, stk_text_when(words.len > 0, "\n"));
            stk_buf_text(&words, part.text);
        }
    }
    if (words.len > 0) {
        STK_TRY(put_source(g, g->label, words.data));
    }
    for (uint32_t i = 0; i < n; i++) {
        stk_code_part part = stk_code_get(g->code, step->name, i);
        if (part.is_module) {
            STK_TRY(put_source(g, part.name, part.text));
        }
    }
    return 0;
}

/* --- inputs and outputs --- */

static const char *cut_value(const gathering *g, const char *json)
{
    STK_BUF_AUTO cut = STK_BUF_INIT(4096);
    const stk_json *value = stk_json_read(g->scratch, json);
    stk_text_fit(&cut, stk_text_or(stk_json_text(value), json), VALUE_MAX, false, true);
    return stk_arena_dup(g->scratch, cut.data);
}

static int put_inputs(const gathering *g, const stk_view_details *d)
{
    for (uint32_t i = 0; i < d->n_inputs; i++) {
        const stk_view_input *in = &d->inputs[i];
        const char *name = stk_arena_printf(g->scratch, "%s.%s", g->label, in->input->name);
        const char *text = NULL, *json = in->value;
        STK_BUF_AUTO quoted = STK_BUF_INIT(4096);
        if (in->value != NULL) {
            text = cut_value(g, in->value);
        } else if (in->digest != NULL) {
            text = stk_arena_printf(g->scratch, "%.*s (%s)", SHORT, in->digest, in->from);
            stk_buf_json(&quoted, in->digest);
            json = quoted.data;
        }
        if (name == NULL || stk_compare_set(g->c, STK_PART_INPUTS, name, g->run, text, json) < 0) {
            return STK_E_NOMEM;
        }
    }
    return 0;
}

static int put_outputs(const gathering *g, const stk_view_details *d)
{
    char size[32];
    for (uint32_t i = 0; i < d->n_outputs; i++) {
        const stk_view_ref *ref = &d->outputs[i];
        STK_BUF_AUTO json = STK_BUF_INIT(4096);
        const char *name = stk_arena_printf(g->scratch, "%s.%s", g->label, ref->name);
        const char *text = NULL;
        if (ref->value != NULL) {
            text = cut_value(g, ref->value);
        } else if (ref->digest != NULL && ref->size >= 0) {
            text = stk_arena_printf(g->scratch, "%.*s, %s", SHORT, ref->digest,
                                    stk_units_format_memory(ref->size, size, sizeof size));
        }
        stk_json_open(&json, NULL, '{');
        stk_json_put_text(&json, "digest", ref->digest);
        stk_json_put_int(&json, "size", ref->size);
        stk_json_close(&json, '}');
        if (name == NULL ||
            stk_compare_set(g->c, STK_PART_OUTPUTS, name, g->run, text, json.data) < 0) {
            return STK_E_NOMEM;
        }
    }
    return 0;
}

/* --- resources --- */

static int put_amounts(const gathering *g, const char *what, const stk_view_amounts *a)
{
    STK_BUF_AUTO text = STK_BUF_INIT(256);
    stk_text_amounts(&text, a, true);
    if (text.data == NULL || strcmp(text.data, stk_text_dash(true)) == 0) {
        return 0;
    }
    return put_fact(g, STK_PART_RESOURCES, what, text.data);
}

static int put_devices(const gathering *g, const stk_view_details *d)
{
    int64_t memory = -1;
    char text[32];
    STK_BUF_AUTO models = STK_BUF_INIT(4096);
    for (uint32_t i = 0; i < d->n_devices; i++) {
        memory = MAX(memory, d->devices[i].peak_memory_bytes);
        stk_buf_separate(&models, ", ");
        stk_buf_text(&models, stk_text_or(d->devices[i].model, "unknown device"));
    }
    STK_TRY(put_fact(g, STK_PART_RESOURCES, "devices", models.data));
    STK_TRY(put_seconds(g, "devices held", d->used.gpu_held_s));
    STK_TRY(put_seconds(g, "devices busy", d->used.gpu_busy_s));
    STK_TRY(put_bytes(g, "device memory at most", memory));
    if (d->used.energy_j >= 0) {
        return put_amount(g, "energy", d->used.energy_j,
                          stk_text_energy(d->used.energy_j, text, sizeof text));
    }
    return 0;
}

static int put_resources(const gathering *g, const stk_view_details *d)
{
    STK_TRY(put_amounts(g, "asked", &d->asked));
    STK_TRY(put_amounts(g, "granted", &d->granted));
    STK_TRY(put_seconds(g, "CPU time", d->used.cpu_s));
    STK_TRY(put_bytes(g, "memory at most", d->used.memory_bytes));
    STK_TRY(put_bytes(g, "read", d->used.read_bytes));
    STK_TRY(put_bytes(g, "written", d->used.write_bytes));
    return put_devices(g, d);
}

/* --- environment --- */

/* The variables' values may be private: only whether they differ is shown. */
static int put_step_variables(const gathering *g, const stk_step *step)
{
    for (uint32_t i = 0; i < step->settings->n_env; i++) {
        const stk_pair *one = &step->settings->env[i];
        const char *name = row_name(g, stk_arena_printf(g->scratch, "$%s", one->key));
        if (name == NULL ||
            stk_compare_set(g->c, STK_PART_ENVIRONMENT, name, g->run, one->value, NULL) < 0) {
            return STK_E_NOMEM;
        }
        stk_compare_at(g->c, STK_PART_ENVIRONMENT, name, g->run)->is_private = true;
    }
    return 0;
}

static int put_member(const gathering *g, const char *name, const stk_json *value)
{
    const char *json = value == NULL ? NULL : stk_json_dump_in(value, g->scratch);
    const char *text = stk_json_is_kind(value, STK_JSON_TEXT) ? stk_json_text(value) : json;
    return stk_compare_set(g->c, STK_PART_ENVIRONMENT, name, g->run, text, json);
}

static int put_environment(const gathering *g)
{
    const stk_view_run *run = stk_view_get_run(g->view);
    const stk_json *origin = stk_json_read(g->scratch, run->origin);
    const stk_json *host = stk_json_read(g->scratch, run->host);
    char text[32];
    static const struct {
        const char *key, *name;
    } said[] = {{"python", "interpreter"}, {"cwd", "folder"}, {"argv", "arguments"}};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        STK_TRY(put_member(g, said[i].name, stk_json_get(origin, said[i].key)));
    }
    STK_TRY(put_member(g, "host", stk_json_get(host, "name")));
    STK_TRY(put_member(g, "CPUs of the host", stk_json_get(host, "cpus")));
    int64_t memory = stk_json_get_whole(host, "memory_bytes", -1);
    if (memory > 0) {
        STK_TRY(stk_compare_set_number(g->c, STK_PART_ENVIRONMENT, "memory of the host", g->run,
                                       (double)memory,
                                       stk_units_format_memory(memory, text, sizeof text)));
    }
    if (stk_json_n_items(stk_json_get(host, "devices")) > 0) {
        STK_TRY(put_member(g, "devices of the host", stk_json_get(host, "devices")));
    }
    STK_TRY(stk_compare_set(g->c, STK_PART_ENVIRONMENT, "policy", g->run, run->policy, NULL));
    STK_TRY(stk_compare_set(g->c, STK_PART_ENVIRONMENT, "mode", g->run, run->mode, NULL));
    STK_TRY(put_member(g, "commit", stk_json_get(origin, "commit")));
    if (stk_json_n_items(stk_json_get(origin, "dirty")) > 0) {
        STK_TRY(put_member(g, "not committed", stk_json_get(origin, "dirty")));
    }
    const char *file = stk_json_get_text(origin, "file");
    const char *digest = stk_json_get_text(origin, "code");
    STK_TRY(stk_compare_set(g->c, STK_PART_CODE, "file", g->run, file, NULL));
    if (digest != NULL) {
        digest = stk_arena_printf(g->scratch, "%.*s", SHORT, digest);
    }
    STK_TRY(stk_compare_set(g->c, STK_PART_CODE, "all steps", g->run, digest, NULL));
    return stk_compare_set(
        g->c, STK_PART_CODE, "document", g->run,
        stk_arena_printf(g->scratch, "%.*s", SHORT, stk_text_or(run->spec_digest, "")), NULL);
}

/* --- all of a run --- */

static int gather_task(gathering *g, uint32_t i_task)
{
    const stk_view_task *task = stk_view_get_task(g->view, i_task);
    stk_view_details d;
    g->label = task->name; /* the step has one task; in a growing run labels have a number */
    STK_TRY(stk_show_details(g->view, i_task, g->scratch, &d, g->err));
    STK_TRY(put_task_state(g, task, &d));
    if (task->step != NULL) {
        STK_TRY(put_code(g, task->step));
        STK_TRY(put_text_of_step(g, task->step));
        STK_TRY(put_step_variables(g, task->step));
    }
    STK_TRY(put_fact(g, STK_PART_ENVIRONMENT, "image", d.image));
    STK_TRY(put_inputs(g, &d));
    STK_TRY(put_outputs(g, &d));
    return put_resources(g, &d);
}

/* A step of several tasks of a growing run, as one row. */
static int gather_wide_step(gathering *g, uint32_t i_step)
{
    const stk_view_step *step = stk_view_get_step(g->view, i_step);
    int64_t ms = stk_show_took_ms(step->started_ms, step->ended_ms, g->c->ask->now_ms);
    const stk_step *spec_step = stk_spec_step(stk_view_spec(g->view), i_step);
    g->label = spec_step->name;
    STK_TRY(put_text_of_step(g, spec_step));
    return put_step_state(g, stk_state_word(stk_view_worst(step)), ms, step->n_extra, step->n);
}

int stk_compare_gather(stk_compare *c, uint32_t i_run, stk_err *err)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    gathering g = {
        .c = c, .run = i_run, .view = c->ask->views[i_run], .scratch = scratch, .err = err};
    STK_TRY(stk_err_if_null(scratch, err));
    g.code = stk_code_read(g.view, c->arena);
    int rc = put_environment(&g);
    uint32_t n = MIN(stk_view_n_tasks(g.view), TASKS_MAX);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        uint32_t i_step = stk_view_get_task(g.view, i)->i_step;
        const stk_view_step *step = stk_view_get_step(g.view, i_step);
        stk_arena_reset(scratch);
        if (step->n == 1) {
            rc = gather_task(&g, i);
        } else if (step->first == i) {
            rc = gather_wide_step(&g, i_step);
        }
    }
    if (rc == STK_E_NOMEM) {
        return stk_err_nomem(err);
    }
    return rc;
}
