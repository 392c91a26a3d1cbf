/* Opens a run: its resources, and the events that record how it began. */
#include <stdlib.h>
#include <unistd.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "run/exec/core/exec_event.h"
#include "run/exec/core/exec_hook.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/core/exec_start.h"
#include "run/exec/core/exec_sum.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/grown/exec_made.h"
#include "sys/proc.h"

static void add_host(stk_buf *buf, const stk_exec_config *config)
{
    char name[256] = "";
    (void)gethostname(name, sizeof name - 1);
    stk_json_open(buf, "host", '{');
    stk_json_put_text(buf, "name", name);
    stk_json_put_real(buf, "cpus", (double)config->capacity->cpu_milli / 1000);
    stk_json_put_whole(buf, "memory_bytes", config->capacity->memory_bytes);
    stk_json_open(buf, "devices", '[');
    for (uint32_t i = 0; i < config->capacity->n_devices; i++) {
        const stk_capacity_device *d = &config->capacity->devices[i];
        if (d->usable) {
            stk_json_put_text(buf, NULL, stk_text_or(d->model, d->noun));
        }
    }
    stk_json_close(buf, ']');
    if (config->accel != NULL && stk_accel_is_simulated(config->accel)) {
        /* later commands about the run use that machine */
        stk_json_put_text(buf, "accel", getenv("STOKER_ACCEL"));
    }
    if (config->stack != NULL) { /* `stoker resume` uses the same places */
        stk_json_put_text(buf, "stack", config->stack);
    }
    stk_json_close(buf, '}');
}

static int emit_created(stk_exec *x, stk_err *err)
{
    const stk_exec_config *c = &x->config;
    const stk_settings *settings = stk_spec_settings(x->spec);
    STK_BUF_AUTO buf = STK_BUF_INIT(STK_LIMIT_SPEC_BYTES);
    char digest[STK_DIGEST_HEX + 1];
    size_t len = 0;
    const char *text = stk_spec_text(x->spec, &len);
    stk_digest_of(text, len, digest);
    stk_json_open(&buf, NULL, '{');
    stk_json_put_text(&buf, "name", stk_text_or(c->name, c->run));
    stk_json_put_text(&buf, "pipeline", stk_spec_name(x->spec));
    stk_json_put_text(&buf, "spec", digest);
    stk_json_put_text(&buf, "mode", stk_mode_word(c->mode));
    stk_json_put_text(&buf, "policy", c->policy == STK_POLICY_STRICT ? "strict" : "fit");
    stk_json_put_whole(&buf, "max_workers", c->max_workers);
    if (c->in_order) {
        stk_json_put_bool(&buf, "in_order", true);
    }
    stk_json_open(&buf, "parameters", '{');
    for (uint32_t i = 0; i < stk_spec_n_params(x->spec); i++) {
        const stk_param *p = stk_spec_param(x->spec, i);
        stk_json_put_raw(&buf, p->name, p->value);
    }
    stk_json_close(&buf, '}');
    if (!c->use_cache) { /* for `stoker resume` */
        stk_json_put_bool(&buf, "no_cache", true);
    }
    stk_json_put_n_texts(&buf, "tags", settings->tags, settings->n_tags);
    stk_json_put_raw(&buf, "origin", stk_text_or(stk_spec_origin(x->spec), "{}"));
    add_host(&buf, c);
    stk_json_open(&buf, "notes", '[');
    for (uint32_t i = 0; i < stk_plan_n_notes(c->plan); i++) {
        stk_json_put_text(&buf, NULL, stk_plan_note(c->plan, i));
    }
    stk_json_close(&buf, ']');
    stk_exec_put_clone(x->graph.clone, &buf);
    stk_json_close(&buf, '}');
    return stk_exec_emit_plain(x, STK_EV_RUN_CREATED, &buf, err);
}

static int emit_started(stk_exec *x, stk_err *err)
{
    const stk_accel *accel = x->config.accel;
    STK_BUF_AUTO buf = STK_BUF_INIT(1 << 20);
    char code[STK_DIGEST_HEX + 1];
    STK_TRY(stk_exec_keep_code(x, code, err));
    stk_json_open(&buf, NULL, '{');
    stk_json_put_whole(&buf, "pid", getpid());
    stk_json_put_text(&buf, "boot", stk_clock_boot_id());
    stk_json_put_whole(&buf, "boot_ms", stk_clock_boot_ms());
    stk_json_put_bool(&buf, "resumed", x->config.resumed);
    if (*code != '\0') {
        stk_json_put_text(&buf, "code", code);
    }
    stk_json_open(&buf, "devices", '[');
    for (uint32_t i = 0; accel != NULL && i < stk_accel_n_devices(accel); i++) {
        const stk_device *d = stk_accel_device(accel, i);
        if (d->usable && d->uuid != NULL) {
            stk_json_put_text(&buf, NULL, d->uuid);
        }
    }
    stk_json_close(&buf, ']');
    stk_json_close(&buf, '}');
    return stk_exec_emit_plain(x, STK_EV_RUN_STARTED, &buf, err);
}

/* The flow's limit, which the Python front adds to the document's settings. */
static int64_t max_splits_of(const stk_spec *spec)
{
    enum { DEFAULT_SPLITS = 100 };
    int64_t n = DEFAULT_SPLITS;
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *doc = stk_json_read(scratch, stk_spec_settings(spec)->extra);
    (void)stk_json_int(stk_json_get(doc, "max_splits"), &n);
    return n;
}

static int init_tasks(stk_exec *x, stk_err *err)
{
    x->tasks = calloc((size_t)stk_spec_n_steps(x->spec) + 1, sizeof *x->tasks);
    STK_TRY(stk_err_if_null(x->tasks, err));
    for (; x->n_tasks < stk_spec_n_steps(x->spec); x->n_tasks++) {
        x->tasks[x->n_tasks] = (exec_task){.i_step = x->n_tasks, .hook = -1};
    }
    return 0;
}

static int init_exec(stk_exec *x, stk_err *err)
{
    const stk_exec_config *c = &x->config;
    x->arena = stk_arena_new(0);
    x->tick = stk_arena_new(0);
    x->scratch = stk_arena_new(0);
    if (x->arena == NULL || x->tick == NULL || x->scratch == NULL) {
        return stk_err_nomem(err);
    }
    x->folder = stk_arena_dup(x->arena, stk_store_run_folder(c->store, c->run, x->arena));
    x->graph.max_splits = max_splits_of(x->spec);
    x->n_cpus = stk_proc_n_cpus();
    x->cpu_ids = stk_arena_array(x->arena, 4096, sizeof *x->cpu_ids);
    x->cpu_load = stk_arena_array(x->arena, 4096, sizeof *x->cpu_load);
    if (x->folder == NULL || x->cpu_ids == NULL || x->cpu_load == NULL) {
        return stk_err_nomem(err);
    }
    x->n_cpus = stk_proc_cpus(x->cpu_ids, 4096);
    STK_TRY(stk_exec_sum_open(c->elsewhere, stk_store_path(c->store), &x->sum, err));
    if (stk_spec_grows(x->spec)) {
        STK_TRY(stk_grow_new(x->spec, &x->graph.grow, err));
    } else {
        STK_TRY(init_tasks(x, err));
    }
    stk_exec_lookup_init(&x->lookup, c->store, c->plan, x->arena);
    x->lookup.sum = x->sum;
    return stk_exec_schedule(c->plan, c->capacity, c->mode, c->max_workers, c->in_order, c->run,
                             &x->sched, err);
}

/* Folds or commits the events before the loop's first turn. */
static int open_run(stk_exec *x, stk_err *err)
{
    const stk_exec_config *config = &x->config;
    STK_TRY(init_exec(x, err));
    if (config->clone_of != NULL) {
        STK_TRY(stk_exec_clone_open(x, config->clone_of, config->clone_until, err));
    }
    if (!config->resumed) {
        STK_TRY(emit_created(x, err));
    }
    if (!config->resumed && x->graph.grow != NULL) {
        STK_TRY(stk_exec_grow_begin(x, err));
    }
    STK_TRY(emit_started(x, err));
    if (config->resumed) {
        STK_TRY(stk_exec_replay(x, err));
    }
    if (config->cancelled) {
        STK_TRY(stk_exec_cancel(x, "'stoker cancel', after its engine's end", err));
        x->n_signals += config->at_once;
    }
    STK_TRY(stk_exec_flush(x, err));
    for (uint32_t i = 0; i < x->n_tasks && !config->cancelled; i++) {
        if (x->tasks[i].owes_hooks) {
            STK_TRY(stk_exec_catch_up(x, i, err));
        }
        stk_arena_reset(x->scratch);
    }
    return 0;
}

int stk_exec_open(const stk_exec_config *config, stk_exec **ret_exec, stk_err *err)
{
    stk_exec *x = calloc(1, sizeof *x);
    if (x == NULL) {
        config->backend->ops->close(config->backend);
        return stk_err_nomem(err);
    }
    x->config = *config;
    x->spec = stk_plan_spec(config->plan);
    int rc = open_run(x, err);
    if (rc < 0) {
        stk_exec_close(x);
        return rc;
    }
    *ret_exec = x;
    return 0;
}

void stk_exec_close(stk_exec *x)
{
    if (x == NULL) {
        return;
    }
    stk_exec_close_backend(x);
    stk_exec_idle_close(x->idle);
    stk_exec_sum_close(x->sum);
    for (uint32_t i = 0; i < x->n_tasks && x->tasks != NULL; i++) {
        if (x->tasks[i].slot != NULL) {
            stk_exec_release(x, i);
        }
    }
    while (x->free_slots != NULL) {
        exec_slot *next = x->free_slots->next_free;
        free(x->free_slots);
        x->free_slots = next;
    }
    stk_exec_lookup_done(&x->lookup);
    stk_exec_clone_close(x->graph.clone);
    stk_arena_free(x->graph.items.arena);
    stk_grow_free(x->graph.grow);
    free(x->graph.grown);
    stk_sched_free(x->sched);
    stk_arena_free(x->arena);
    stk_arena_free(x->tick);
    stk_arena_free(x->scratch);
    free(x->tasks);
    free(x->pending.events);
    free(x->pending.cache);
    free(x->pending.refs);
    free(x->pending.launches);
    free(x);
}
