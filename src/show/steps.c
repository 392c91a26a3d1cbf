#include "show/steps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/map.h"
#include "base/text.h"
#include "base/units.h"
#include "show/show_private.h"

enum { NEAR_MAX = 1000 };

typedef struct steps_reader {
    stk_arena *arena;
    const char *step;
    stk_steps_group *groups;
    uint32_t n, cap;
    stk_map by_name;
    const char *seen[NEAR_MAX]; /* names of steps, for a hint */
    uint32_t n_seen;
} steps_reader;

/* The group of the step; NULL: no memory. */
static stk_steps_group *group_of(steps_reader *r, const char *pipeline, const char *step)
{
    uint64_t i = r->n;
    const char *key = stk_arena_printf(r->arena, "%s\n%s", pipeline, step);
    if (key == NULL) {
        return NULL;
    }
    if (stk_map_get(&r->by_name, key, &i)) {
        return &r->groups[i];
    }
    stk_steps_group *groups = stk_arena_grow(r->arena, r->groups, r->n, sizeof *groups, &r->cap);
    if (groups == NULL || stk_map_put(&r->by_name, key, i) < 0) {
        return NULL;
    }
    r->groups = groups;
    groups[r->n] = (stk_steps_group){.pipeline = stk_arena_dup(r->arena, pipeline),
                                     .step = stk_arena_dup(r->arena, step)};
    return &groups[r->n++];
}

static void count_task(stk_steps_group *g, const stk_view_task *task, const stk_view_details *d)
{
    g->n_succeeded += task->state == STK_TASK_SUCCEEDED;
    g->n_cached += task->state == STK_TASK_CACHED;
    g->n_failed += task->state == STK_TASK_FAILED;
    g->n_retries += task->attempt > 1 ? task->attempt - 1 : 0;
    bool oom = stk_text_same(d->error_class, "host_oom") ||
               stk_text_same(d->error_class, "device_oom") ||
               stk_text_same(d->error_class, "gpu_share");
    g->n_out_of_memory += oom;
}

static void read_use(const stk_view_task *task, const stk_view_details *d, int64_t now_ms,
                     stk_steps_task *ret)
{
    int64_t ms = stk_show_took_ms(task->started_ms, task->ended_ms, now_ms), memory = -1;
    for (int i = 0; i < STK_STEPS_N; i++) {
        ret->used[i] = -1;
    }
    for (uint32_t i = 0; i < d->n_devices; i++) {
        memory = MAX(memory, d->devices[i].peak_memory_bytes);
    }
    ret->n_devices_used = d->n_devices_used;
    if (task->started_ms == 0) {
        return;
    }
    ret->used[STK_STEPS_SECONDS] = (double)ms / 1000;
    ret->used[STK_STEPS_MEMORY] = (double)d->used.memory_bytes;
    ret->used[STK_STEPS_CPUS] = d->used.cpus;
    ret->used[STK_STEPS_DEVICE_MEMORY] = (double)memory;
    if (d->used.gpu_held_s > 0 && d->used.gpu_busy_s >= 0) {
        ret->used[STK_STEPS_BUSY] = d->used.gpu_busy_s / d->used.gpu_held_s * 100;
    }
}

static int add_task_of_step(steps_reader *r, const stk_view *view, const stk_run_row *row,
                            uint32_t i_task)
{
    const stk_view_task *task = stk_view_get_task(view, i_task);
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    stk_view_details d;
    stk_steps_group *g = group_of(r, row->pipeline, task->name);
    stk_steps_task *tasks = NULL;
    if (g != NULL) {
        tasks = stk_arena_grow(r->arena, g->tasks, g->n, sizeof *tasks, &g->cap);
    }
    if (tasks == NULL) {
        return STK_E_NOMEM;
    }
    g->tasks = tasks;
    STK_TRY(stk_show_details(view, i_task, scratch, &d, NULL));
    stk_steps_task *one = &tasks[g->n++];
    *one = (stk_steps_task){
        .run = stk_arena_dup(r->arena, row->id),
        .label = stk_arena_dup(r->arena, task->title),
        .status = stk_arena_dup(r->arena, stk_view_status(view, task, true)),
        .error_class = stk_arena_dup(r->arena, d.error_class),
        .started_ms = task->started_ms,
        .attempts = task->attempt,
    };
    read_use(task, &d, row->now_ms, one);
    count_task(g, task, &d);
    return 0;
}

static int read_steps_of_run(steps_reader *r, stk_store *store, const stk_run_row *row)
{
    STK_VIEW_AUTO view = NULL;
    int rc = stk_view_load(store, row->id, &view, NULL);
    if (rc < 0) {
        return rc == STK_E_NOMEM ? rc : 0; /* it has gone meanwhile, or is damaged */
    }
    for (uint32_t i = 0; i < stk_view_n_tasks(view); i++) {
        const stk_view_task *task = stk_view_get_task(view, i);
        bool is_it = r->step == NULL || strcmp(task->name, r->step) == 0;
        if (!is_it && r->n_seen < NEAR_MAX) {
            r->seen[r->n_seen++] = stk_arena_dup(r->arena, task->name);
        }
        if (is_it) {
            STK_TRY(add_task_of_step(r, view, row, i));
        }
    }
    return 0;
}

/* --- percentiles --- */

static int by_use(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The smallest value that at least `part` of them don't exceed. */
static double percentile(const double *sorted, uint32_t n, double part)
{
    double i = ceil(part * n) - 1;
    return sorted[(uint32_t)MAX(i, 0)];
}

static stk_steps_spread spread_of(const stk_steps_group *g, int quantity, double *values)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        double value = g->tasks[i].used[quantity];
        if (value >= 0 && strcmp(g->tasks[i].status, "succeeded") == 0) {
            values[n++] = value;
        }
    }
    if (n == 0) {
        return (stk_steps_spread){0};
    }
    qsort(values, n, sizeof *values, by_use);
    return (stk_steps_spread){n, percentile(values, n, 0.5), percentile(values, n, 0.95),
                              values[n - 1]};
}

/* Rounded up to two digits. */
static double round_up(double value)
{
    double unit = pow(10, floor(log10(MAX(value, 1))) - 1);
    return ceil(value / unit - 1e-9) * unit;
}

static int64_t bytes_to_ask(const stk_steps_spread *spread)
{
    enum { LEAST = 64000000 };
    double bytes = spread->p95 * 1.15;
    return spread->n > 0 ? (int64_t)llround(round_up(MAX(bytes, LEAST))) : -1;
}

static int measure_group(stk_steps_group *g, stk_arena *arena)
{
    double *values = stk_arena_array(arena, (size_t)g->n + 1, sizeof *values);
    if (values == NULL) {
        return STK_E_NOMEM;
    }
    for (int i = 0; i < STK_STEPS_N; i++) {
        g->spreads[i] = spread_of(g, i, values);
    }
    const stk_steps_spread *cpus = &g->spreads[STK_STEPS_CPUS];
    g->cpus = cpus->n > 0 ? MAX(ceil(cpus->p95 * 1.15 * 2) / 2, 0.5) : -1;
    g->memory_bytes = bytes_to_ask(&g->spreads[STK_STEPS_MEMORY]);
    g->device_memory_bytes = bytes_to_ask(&g->spreads[STK_STEPS_DEVICE_MEMORY]);
    g->n_devices = -1;
    for (uint32_t i = 0; i < g->n; i++) {
        g->n_devices = MAX(g->n_devices, g->tasks[i].n_devices_used);
    }
    return 0;
}

static int no_such_step_name(const steps_reader *r, const char *pipeline, stk_err *err)
{
    const char *near = stk_units_nearest(r->step, r->seen, r->n_seen);
    stk_err_set(err, STK_E_NOT_FOUND, "no run%s%s has a step '%s'",
                stk_text_when(pipeline != NULL, " of pipeline "), stk_text_or(pipeline, ""),
                r->step);
    if (near != NULL) {
        stk_err_hint(err, "did you mean '%s'?", near);
    } else {
        stk_err_hint(err, "'stoker steps' lists them");
    }
    return err->code;
}

int stk_steps_read(stk_store *store, const char *pipeline, const char *step, uint32_t most,
                   stk_arena *arena, stk_steps_group **ret, uint32_t *ret_n, stk_err *err)
{
    stk_run_row *rows = NULL;
    uint32_t n = 0;
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    steps_reader r = {.arena = arena, .step = step};
    STK_TRY(stk_err_if_null(scratch, err));
    STK_TRY(stk_store_list_runs(store, pipeline, NULL, most, scratch, &rows, &n, err));
    int rc = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        rc = read_steps_of_run(&r, store, &rows[i]);
    }
    for (uint32_t i = 0; i < r.n && rc == 0; i++) {
        rc = measure_group(&r.groups[i], arena);
    }
    stk_map_done(&r.by_name);
    if (rc < 0) {
        return stk_err_nomem(err);
    }
    if (r.n == 0 && step != NULL) {
        return no_such_step_name(&r, pipeline, err);
    }
    *ret = r.groups;
    *ret_n = r.n;
    return 0;
}
