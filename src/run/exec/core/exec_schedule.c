/* Makes the scheduler of a run: for its engine, and, from the record, for readers that ask about
 * its state. */
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/map.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/grown/exec_made.h"

stk_sched_task stk_exec_sched_task(const stk_plan *plan, uint32_t i_step, const stk_request *r)
{
    const stk_settings *s = stk_spec_step(stk_plan_spec(plan), i_step)->settings;
    return (stk_sched_task){.place = r->place,
                            .cpu_milli = r->place > 0 ? 0 : r->cpu_milli,
                            .any_cpu = !r->limit_cpu,
                            .memory_bytes = r->memory_bytes,
                            .asks = r->asks,
                            .n_asks = r->n_asks,
                            .max_retries = s->retry.max_retries,
                            .delay_ms = s->retry.delay_ms,
                            .backoff = s->retry.backoff,
                            .jitter = s->retry.jitter,
                            .oom_memory = s->on_oom.memory,
                            .oom_share = s->on_oom.gpu_memory,
                            .oom_retries = s->on_oom.max_retries,
                            .lookup = true,
                            .fallback = stk_spec_step(stk_plan_spec(plan), i_step)->fallback};
}

static int add_tasks(stk_sched *sched, const stk_plan *plan, stk_err *err)
{
    const stk_spec *spec = stk_plan_spec(plan);
    uint32_t n = stk_spec_grows(spec) ? 0 : stk_spec_n_steps(spec);
    for (uint32_t i = 0; i < n; i++) {
        stk_sched_task task = stk_exec_sched_task(plan, i, stk_plan_request(plan, i));
        uint32_t n_needs = 0;
        const uint32_t *needs = stk_plan_needs(plan, i, &n_needs);
        STK_TRY(stk_sched_add(sched, &task, needs, n_needs, NULL, err));
    }
    return 0;
}

int stk_exec_schedule(const stk_plan *plan, const stk_capacity *capacity, stk_mode mode,
                      uint32_t max_workers, bool in_order, const char *run, stk_sched **ret_sched,
                      stk_err *err)
{
    stk_pack_device devices[STK_LIMIT_DEVICES];
    stk_plan_pack_devices(capacity, devices);
    stk_sched_config config = {.cpu_milli = capacity->cpu_milli,
                               .memory_bytes = capacity->memory_bytes,
                               .host = {devices, capacity->n_devices, capacity->links},
                               .max_workers = max_workers,
                               .by_number = in_order,
                               .mode = mode,
                               .seed = stk_hash_bytes(run, strlen(run), 0)};
    for (uint32_t i = 0; i < capacity->n_places; i++) {
        config.max_away[i] = capacity->places[i].max_jobs;
    }
    stk_sched *sched = stk_sched_new(&config);
    STK_TRY(stk_err_if_null(sched, err));
    int rc = add_tasks(sched, plan, err);
    if (rc < 0) {
        stk_sched_free(sched);
        return rc;
    }
    *ret_sched = sched;
    return 0;
}

/* --- from the record --- */

stk_grows stk_exec_grows(const stk_json *data)
{
    const stk_json *word = stk_json_get(data, "grows");
    if (stk_json_is(word, "memory")) {
        return STK_GROWS_MEMORY;
    }
    return stk_json_is(word, "gpu_memory") ? STK_GROWS_SHARE : STK_GROWS_NOTHING;
}

int stk_exec_fold(stk_sched *sched, int kind, uint32_t task, stk_err *err)
{
    return stk_sched_fold(sched, &(stk_sched_event){.kind = kind, .task = task}, err);
}

int stk_exec_fold_begun(stk_sched *sched, uint32_t task, stk_err *err)
{
    stk_sched_event started = {
        .kind = STK_EV_TASK_STARTED, .task = task, .attempt = 1, .i_ask = STK_SCHED_NO_ASK};
    STK_TRY(stk_exec_fold(sched, STK_SE_MISSED, task, err));
    return stk_sched_fold(sched, &started, err);
}

/* A task's state in the log. */
typedef struct refold_task {
    bool is_done;
    bool is_running;                       /* a remote attempt runs without its engine, too */
    uint32_t n_grown[STK_GROWS_SHARE + 1]; /* attempts that got more of this */
    stk_grow_adding added;                 /* where the graph grows */
} refold_task;

typedef struct refold {
    stk_sched *sched;
    const stk_plan *plan;
    const stk_capacity *capacity;
    const stk_accel *accel;
    const char *run;
    bool grows;
    stk_arena *arena;
    refold_task *tasks;
    uint32_t n_tasks, cap_tasks;
    stk_policy policy;
    stk_mode mode;
    uint32_t max_workers;
    bool in_order;
    stk_err *err;
} refold;

/* It waits for unfinished parents, which exist only if an engine runs these again. */
static int add_grown(refold *r, uint32_t task)
{
    const stk_grow_adding *a = &r->tasks[task].added;
    stk_request request;
    stk_err why = {0};
    uint32_t n = 0;
    uint32_t *needs = stk_arena_array(r->arena, (size_t)a->n_parents + 1, sizeof *needs);
    STK_TRY(stk_err_if_null(needs, r->err));
    for (uint32_t i = 0; i < a->n_parents; i++) {
        stk_task_state state = stk_sched_state(r->sched, a->parents[i]);
        if (state != STK_TASK_CACHED && state != STK_TASK_SUCCEEDED) {
            needs[n++] = a->parents[i];
        }
    }
    STK_TRY(stk_exec_grow_add(r->sched, r->plan, r->capacity, r->policy, a->i_step, a->ranks, needs,
                              n, &request, &why, r->err));
    return 0;
}

static int reserve_tasks(refold *r, uint64_t n)
{
    if (n <= r->cap_tasks) {
        return 0;
    }
    n = MAX(n, (uint64_t)r->cap_tasks * 2);
    refold_task *tasks = reallocarray(r->tasks, n, sizeof *tasks);
    STK_TRY(stk_err_if_null(tasks, r->err));
    memset(tasks + r->cap_tasks, 0, (n - r->cap_tasks) * sizeof *tasks);
    r->tasks = tasks;
    r->cap_tasks = (uint32_t)n;
    return 0;
}

/* Leaves out what doesn't fit here; the rest still holds. */
static int fold_added(refold *r, const stk_event_row *row, const stk_json *data)
{
    stk_grow_adding a;
    STK_TRY(stk_exec_load_added(stk_plan_spec(r->plan), row, data, r->arena, &a, r->err));
    if (a.i_step == STK_GROW_NONE || row->task != r->n_tasks || a.n < 1 || a.n > STK_LIMIT_TASKS) {
        return 0;
    }
    for (uint32_t i = 0; i < a.n_parents; i++) {
        if (a.parents[i] >= r->n_tasks) {
            return stk_err_set(r->err, STK_E_STORE, "task %u follows task %u, which comes after it",
                               row->task, a.parents[i]);
        }
    }
    STK_TRY(reserve_tasks(r, r->n_tasks + (uint64_t)a.n));
    for (uint32_t i = 0; i < a.n; i++) {
        r->tasks[r->n_tasks++].added = a;
        if (r->sched != NULL) {
            STK_TRY(add_grown(r, r->n_tasks - 1));
        }
    }
    return 0;
}

/* Attaches the task to its remote attempt. */
static int attach_task(refold *r, uint32_t task)
{
    uint32_t i_step = r->grows ? r->tasks[task].added.i_step : task;
    if (!r->tasks[task].is_running || stk_plan_request(r->plan, i_step)->place == 0 ||
        stk_sched_state(r->sched, task) != STK_TASK_LOOKUP) {
        return 0;
    }
    return stk_exec_fold_begun(r->sched, task, r->err);
}

/* An engine resumed the run: begins with the finished tasks, as stk_exec_replay does. */
static int begin_again(refold *r)
{
    stk_sched_free(r->sched);
    r->sched = NULL;
    STK_TRY(stk_exec_schedule(r->plan, r->capacity, r->mode, r->max_workers, r->in_order, r->run,
                              &r->sched, r->err));
    for (uint32_t i = 0; i < r->n_tasks; i++) {
        const refold_task *t = &r->tasks[i];
        if (r->grows) {
            STK_TRY(add_grown(r, i));
        }
        if (t->is_done && stk_sched_state(r->sched, i) == STK_TASK_LOOKUP) {
            STK_TRY(stk_exec_fold(r->sched, STK_EV_TASK_CACHED, i, r->err));
        }
        for (int k = STK_GROWS_MEMORY; k <= STK_GROWS_SHARE && !t->is_done; k++) {
            for (uint32_t n_left = t->n_grown[k]; n_left > 0; n_left--) {
                stk_sched_event grown = {.kind = STK_SE_GROWN, .task = i, .grows = (stk_grows)k};
                (void)stk_sched_fold(r->sched, &grown, NULL);
            }
        }
        STK_TRY(attach_task(r, i));
    }
    return 0;
}

static void read_created(refold *r, const stk_json *data)
{
    const char *mode = stk_json_get_text(data, "mode");
    int known = mode == NULL ? -1 : stk_mode_of(mode);
    r->mode = known < 0 ? STK_MODE_CONTINUE : (stk_mode)known;
    bool is_strict = stk_json_is(stk_json_get(data, "policy"), "strict");
    r->policy = is_strict ? STK_POLICY_STRICT : STK_POLICY_FIT;
    r->max_workers = (uint32_t)stk_json_get_whole(data, "max_workers", 0);
    r->in_order = stk_json_is_true(stk_json_get(data, "in_order"));
}

static void read_started(const refold *r, const stk_json *data, stk_sched_event *event)
{
    const stk_json *ask = stk_json_get(data, "ask");
    const stk_json *list = stk_json_get(stk_json_get(data, "granted"), "devices");
    event->i_ask = STK_SCHED_NO_ASK;
    if (!stk_json_is_kind(ask, STK_JSON_INT)) {
        return;
    }
    event->i_ask = (uint32_t)stk_json_whole(ask, 0);
    for (uint32_t i = 0; i < stk_json_n_items(list); i++) {
        const char *uuid = stk_json_get_text(stk_json_item(list, i), "uuid");
        for (uint32_t k = 0; uuid != NULL && k < stk_accel_n_devices(r->accel); k++) {
            const char *known = stk_accel_device(r->accel, k)->uuid;
            if (known != NULL && strcmp(known, uuid) == 0) {
                stk_devset_add(&event->devices, k);
            }
        }
    }
}

static void read_task(const refold *r, const stk_event_row *row, const stk_json *data,
                      stk_sched_event *event)
{
    const char *word = stk_json_get_text(data, "class");
    int class = word == NULL ? -1 : stk_failure_of(word);
    event->failure = class < 0 ? STK_FAIL_LOST : (stk_failure) class;
    event->is_final = stk_json_is_true(stk_json_get(data, "final"));
    event->saved = stk_json_is_true(stk_json_get(data, "saved"));
    event->at_ms = stk_json_get_whole(data, "at_ms", 0);
    event->is_fallback = stk_json_is_true(stk_json_get(data, "fallback"));
    if (row->kind == STK_EV_TASK_RETRYING) {
        event->grows = stk_exec_grows(data);
    }
    if (row->kind == STK_EV_TASK_STARTED) {
        event->attempt = stk_sched_attempt(r->sched, row->task) + 1;
        read_started(r, data, event);
    }
}

/* Leaves out what this reader can't use (another host's devices, an older Stoker's record); the
 * rest still holds. */
static void fold_task(refold *r, const stk_event_row *row, const stk_json *data)
{
    refold_task *t = &r->tasks[row->task];
    stk_sched_event event = {.kind = (int)row->kind, .task = row->task};
    read_task(r, row, data, &event);
    bool is_done = row->kind == STK_EV_TASK_SUCCEEDED || row->kind == STK_EV_TASK_CACHED;
    bool has_ended = row->kind >= STK_EV_TASK_CACHED && row->kind <= STK_EV_TASK_CANCELLED;
    t->is_done = t->is_done || is_done;
    t->is_running = row->kind == STK_EV_TASK_STARTED || (t->is_running && !has_ended);
    t->n_grown[event.grows]++;
    if (stk_sched_fold(r->sched, &event, NULL) == 0) {
        return;
    }
    if (is_done) { /* an attempt whose result was taken */
        event.kind = STK_EV_TASK_CACHED;
    } else if (row->kind == STK_EV_TASK_STARTED) {
        event.i_ask = STK_SCHED_NO_ASK;
        event.devices = (stk_devset){0};
    }
    (void)stk_sched_fold(r->sched, &event, NULL);
}

static int refold_row(void *arg, const stk_event_row *row)
{
    refold *r = arg;
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *data = stk_json_read(scratch, row->data);
    switch (row->kind) {
    case STK_EV_RUN_CREATED:
        read_created(r, data);
        return 0;
    case STK_EV_RUN_STARTED:
        return begin_again(r);
    case STK_EV_TASK_ADDED:
        if (r->grows) {
            return fold_added(r, row, data);
        }
        return 0;
    case STK_EV_RUN_CANCELLING:
        if (r->sched != NULL) {
            return stk_exec_fold(r->sched, STK_EV_RUN_CANCELLING, 0, r->err);
        }
        return 0;
    default:
        if (r->sched != NULL && row->task < r->n_tasks) {
            fold_task(r, row, data);
        }
        return 0;
    }
}

static int refold_all(refold *r, stk_store *store)
{
    uint32_t n_steps = stk_spec_n_steps(stk_plan_spec(r->plan));
    r->n_tasks = r->grows ? 0 : n_steps;
    STK_TRY(reserve_tasks(r, n_steps + 1ul));
    STK_TRY(stk_store_events(store, r->run, 0, refold_row, r, r->err));
    if (r->sched == NULL) { /* the run has just been created */
        STK_TRY(begin_again(r));
    }
    for (uint32_t i = 0; i < r->n_tasks; i++) {
        if (stk_sched_state(r->sched, i) == STK_TASK_LOOKUP) { /* looked up without success */
            STK_TRY(stk_exec_fold(r->sched, STK_SE_MISSED, i, r->err));
        }
    }
    return 0;
}

int stk_exec_refold(stk_store *store, const char *run, const stk_plan *plan,
                    const stk_capacity *capacity, const stk_accel *accel, stk_sched **ret_sched,
                    stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_TRY(stk_err_if_null(arena, err));
    refold r = {.plan = plan,
                .capacity = capacity,
                .accel = accel,
                .run = run,
                .grows = stk_spec_grows(stk_plan_spec(plan)),
                .arena = arena,
                .err = err};
    int rc = refold_all(&r, store);
    free(r.tasks);
    if (rc < 0) {
        stk_sched_free(r.sched);
        return rc;
    }
    *ret_sched = r.sched;
    return 0;
}
