/* The scheduler of a run: for the engine that drives it, and, folded anew from what is on record,
 * for those who want to know how things stand. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/text.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/core/exec_resume.h"
#include "run/exec/grown/exec_grow.h"

stk_sched_task stk_exec_sched_task(const stk_plan *plan, uint32_t i_step, const stk_request *r)
{
    const stk_settings *s = stk_spec_step(stk_plan_spec(plan), i_step)->settings;
    return (stk_sched_task){.place = r->place,
                            .cpu_milli = r->place > 0 ? 0 : r->cpu_milli,
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
        int rc = stk_sched_add(sched, &task, needs, n_needs, NULL, err);
        STK_TRY(rc);
    }
    return 0;
}

int stk_exec_schedule(const stk_plan *plan, const stk_capacity *capacity, stk_mode mode,
                      uint32_t max_workers, const char *run, stk_sched **ret_sched, stk_err *err)
{
    stk_pack_device devices[STK_LIMIT_DEVICES];
    stk_plan_pack_devices(capacity, devices);
    stk_sched_config config = {.cpu_milli = capacity->cpu_milli,
                               .memory_bytes = capacity->memory_bytes,
                               .host = {devices, capacity->n_devices, capacity->links},
                               .max_workers = max_workers,
                               .mode = mode,
                               .seed = stk_hash_bytes(run, strlen(run), 0)};
    for (uint32_t i = 0; i < capacity->n_places; i++) {
        config.max_away[i] = capacity->places[i].max_jobs;
    }
    stk_sched *sched = stk_sched_new(&config);
    int rc = sched == NULL ? stk_err_nomem(err) : add_tasks(sched, plan, err);
    if (rc < 0) {
        stk_sched_free(sched);
        return rc;
    }
    *ret_sched = sched;
    return 0;
}

/* --- from the record --- */

stk_grows stk_exec_grows(const char *data)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *doc = stk_json_read(scratch, data);
    const char *word = stk_json_get_text(doc, "grows");
    stk_grows grows = word == NULL                      ? STK_GROWS_NOTHING
                      : strcmp(word, "memory") == 0     ? STK_GROWS_MEMORY
                      : strcmp(word, "gpu_memory") == 0 ? STK_GROWS_SHARE
                                                        : STK_GROWS_NOTHING;
    return grows;
}

/* A task of a graph that grows. */
typedef struct refold_task {
    uint32_t i_step, ranks;
    const uint32_t *parents;
    uint32_t n_parents;
} refold_task;

typedef struct refold {
    stk_sched *sched;
    const stk_plan *plan;
    const stk_capacity *capacity;
    const stk_accel *accel;
    const char *run;
    bool grows;
    stk_arena *arena;
    refold_task *added; /* where it grows: by task */
    uint32_t n_tasks, cap_tasks;
    stk_policy policy;
    bool *is_done;    /* by task */
    bool *is_running; /* by task; elsewhere it does whatever becomes of its engine */
    uint32_t (*n_grown)[STK_GROWS_SHARE + 1]; /* by task and what grew */
    stk_mode mode;
    uint32_t max_workers;
    stk_err *err;
} refold;

/* It waits for parents that are not done, which is only so where an engine made these again. */
static int add_grown(refold *r, uint32_t task)
{
    const refold_task *t = &r->added[task];
    stk_request request;
    stk_err why = {0};
    uint32_t n = 0;
    uint32_t *needs = stk_arena_array(r->arena, (size_t)t->n_parents + 1, sizeof *needs);
    if (needs == NULL) {
        return stk_err_nomem(r->err);
    }
    for (uint32_t i = 0; i < t->n_parents; i++) {
        stk_task_state state = stk_sched_state(r->sched, t->parents[i]);
        if (state != STK_TASK_CACHED && state != STK_TASK_SUCCEEDED) {
            needs[n++] = t->parents[i];
        }
    }
    STK_TRY(stk_exec_grow_add(r->sched, r->plan, r->capacity, r->policy, t->i_step, t->ranks, needs,
                              n, &request, &why, r->err));
    return 0;
}

static int reserve_tasks(refold *r, uint64_t n)
{
    if (n <= r->cap_tasks) {
        return 0;
    }
    if (n < (uint64_t)r->cap_tasks * 2) {
        n = (uint64_t)r->cap_tasks * 2;
    }
    bool *is_done = reallocarray(r->is_done, n, sizeof *is_done);
    r->is_done = is_done != NULL ? is_done : r->is_done;
    bool *is_running = reallocarray(r->is_running, n, sizeof *is_running);
    r->is_running = is_running != NULL ? is_running : r->is_running;
    void *n_grown = reallocarray(r->n_grown, n, sizeof *r->n_grown);
    r->n_grown = n_grown != NULL ? n_grown : r->n_grown;
    refold_task *added = reallocarray(r->added, n, sizeof *added);
    r->added = added != NULL ? added : r->added;
    if (is_done == NULL || is_running == NULL || n_grown == NULL || added == NULL) {
        return stk_err_nomem(r->err);
    }
    memset(r->is_done + r->cap_tasks, 0, (n - r->cap_tasks) * sizeof *is_done);
    memset(r->is_running + r->cap_tasks, 0, (n - r->cap_tasks) * sizeof *is_running);
    memset(r->n_grown + r->cap_tasks, 0, (n - r->cap_tasks) * sizeof *r->n_grown);
    r->cap_tasks = (uint32_t)n;
    return 0;
}

/* What can't be placed is left out: the rest is still true. */
static int fold_added(refold *r, const stk_event_row *row, const stk_json *data)
{
    const char *name = stk_json_get_text(data, "step");
    const stk_json *deps = stk_json_get(data, "deps");
    int64_t step = name == NULL ? -1 : stk_spec_find(stk_plan_spec(r->plan), name);
    int64_t n = stk_json_get_whole(data, "n", 0);
    if (step < 0 || row->task != r->n_tasks || n < 1 || n > STK_LIMIT_TASKS) {
        return 0;
    }
    refold_task task = {.i_step = (uint32_t)step,
                        .ranks = (uint32_t)stk_json_get_whole(data, "ranks", 0),
                        .n_parents = (uint32_t)stk_json_n_items(deps)};
    uint32_t *parents = stk_arena_array(r->arena, (size_t)task.n_parents + 1, sizeof *parents);
    int rc = parents == NULL ? stk_err_nomem(r->err) : reserve_tasks(r, r->n_tasks + (uint64_t)n);
    for (uint32_t i = 0; i < task.n_parents && rc == 0; i++) {
        parents[i] = (uint32_t)stk_json_whole(stk_json_item(deps, i), 0);
        rc = parents[i] < r->n_tasks
                 ? 0
                 : stk_err_set(r->err, STK_E_STORE, "task %u follows task %u, which comes after it",
                               row->task, parents[i]);
    }
    task.parents = parents;
    for (int64_t i = 0; i < n && rc == 0; i++) {
        r->added[r->n_tasks++] = task;
        rc = r->sched == NULL ? 0 : add_grown(r, r->n_tasks - 1);
    }
    return rc;
}

/* It attaches to what runs elsewhere. */
static int attach(refold *r, uint32_t task)
{
    uint32_t i_step = r->grows ? r->added[task].i_step : task;
    stk_sched_event missed = {.kind = STK_SE_MISSED, .task = task};
    stk_sched_event started = {
        .kind = STK_EV_TASK_STARTED, .task = task, .attempt = 1, .i_ask = STK_SCHED_NO_ASK};
    if (!r->is_running[task] || stk_plan_request(r->plan, i_step)->place == 0 ||
        stk_sched_state(r->sched, task) != STK_TASK_LOOKUP) {
        return 0;
    }
    STK_TRY(stk_sched_fold(r->sched, &missed, r->err));
    return stk_sched_fold(r->sched, &started, r->err);
}

/* An engine takes the run up: it begins with what is done, as stk_exec_replay does. */
static int begin(refold *r)
{
    stk_sched_free(r->sched);
    r->sched = NULL;
    int rc =
        stk_exec_schedule(r->plan, r->capacity, r->mode, r->max_workers, r->run, &r->sched, r->err);
    for (uint32_t i = 0; i < r->n_tasks && rc >= 0; i++) {
        rc = r->grows ? add_grown(r, i) : 0;
        STK_TRY(rc);
        if (r->is_done[i] && stk_sched_state(r->sched, i) == STK_TASK_LOOKUP) {
            stk_sched_event cached = {.kind = STK_EV_TASK_CACHED, .task = i};
            rc = stk_sched_fold(r->sched, &cached, r->err);
        }
        for (int k = STK_GROWS_MEMORY; k <= STK_GROWS_SHARE && !r->is_done[i]; k++) {
            for (uint32_t n_left = r->n_grown[i][k]; n_left > 0; n_left--) {
                stk_sched_event grown = {.kind = STK_SE_GROWN, .task = i, .grows = (stk_grows)k};
                (void)stk_sched_fold(r->sched, &grown, NULL);
            }
        }
        rc = attach(r, i);
    }
    return rc;
}

static void read_created(refold *r, const stk_json *data)
{
    const char *mode = stk_json_get_text(data, "mode");
    int known = mode == NULL ? -1 : stk_mode_of(mode);
    r->mode = known < 0 ? STK_MODE_CONTINUE : (stk_mode)known;
    const char *policy = stk_json_get_text(data, "policy");
    r->policy =
        policy != NULL && strcmp(policy, "strict") == 0 ? STK_POLICY_STRICT : STK_POLICY_FIT;
    r->max_workers = (uint32_t)stk_json_get_whole(data, "max_workers", 0);
}

static void read_started(const refold *r, const stk_json *data, stk_sched_event *event)
{
    const stk_json *ask = stk_json_get(data, "ask");
    const stk_json *list = stk_json_get(stk_json_get(data, "granted"), "devices");
    event->i_ask =
        stk_json_is_kind(ask, STK_JSON_INT) ? (uint32_t)stk_json_whole(ask, 0) : STK_SCHED_NO_ASK;
    for (uint32_t i = 0; i < stk_json_n_items(list); i++) {
        const stk_json *one = stk_json_item(list, i);
        const char *uuid = stk_json_get_text(one, "uuid");
        for (uint32_t k = 0; uuid != NULL && k < stk_accel_n_devices(r->accel); k++) {
            const char *known = stk_accel_device(r->accel, k)->uuid;
            if (event->i_ask != STK_SCHED_NO_ASK && known != NULL && strcmp(known, uuid) == 0) {
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
    event->grows = row->kind == STK_EV_TASK_RETRYING ? stk_exec_grows(row->data) : 0;
    if (row->kind == STK_EV_TASK_STARTED) {
        event->attempt = stk_sched_attempt(r->sched, row->task) + 1;
        read_started(r, data, event);
    }
}

/* What this reader can't place (another host's devices, an older Stoker's record) is left out: the
 * rest is still true. */
static void fold_task(refold *r, const stk_event_row *row, const stk_json *data)
{
    stk_sched_event event = {.kind = (int)row->kind, .task = row->task};
    read_task(r, row, data, &event);
    bool is_done = row->kind == STK_EV_TASK_SUCCEEDED || row->kind == STK_EV_TASK_CACHED;
    r->is_done[row->task] = r->is_done[row->task] || is_done;
    r->is_running[row->task] = row->kind == STK_EV_TASK_STARTED ||
                               (r->is_running[row->task] && (row->kind < STK_EV_TASK_CACHED ||
                                                             row->kind > STK_EV_TASK_CANCELLED));
    r->n_grown[row->task][event.grows]++;
    if (stk_sched_fold(r->sched, &event, NULL) == 0) {
        return;
    }
    if (is_done) { /* an attempt that was taken as it is */
        event.kind = STK_EV_TASK_CACHED;
    } else if (row->kind == STK_EV_TASK_STARTED) {
        event.i_ask = STK_SCHED_NO_ASK;
        event.devices = (stk_devset){0};
    }
    (void)stk_sched_fold(r->sched, &event, NULL);
}

static int fold_row(void *arg, const stk_event_row *row)
{
    refold *r = arg;
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *data = stk_json_read(scratch, row->data);
    int rc = 0;
    if (row->kind == STK_EV_RUN_CREATED) {
        read_created(r, data);
    } else if (row->kind == STK_EV_RUN_STARTED) {
        rc = begin(r);
    } else if (row->kind == STK_EV_TASK_ADDED) {
        rc = r->grows ? fold_added(r, row, data) : 0;
    } else if (r->sched != NULL && row->task < r->n_tasks) {
        fold_task(r, row, data);
    } else if (r->sched != NULL && row->kind == STK_EV_RUN_CANCELLING) {
        rc = stk_sched_fold(r->sched, &(stk_sched_event){.kind = STK_EV_RUN_CANCELLING}, r->err);
    }
    return rc;
}

int stk_exec_refold(stk_store *store, const char *run, const stk_plan *plan,
                    const stk_capacity *capacity, const stk_accel *accel, stk_sched **ret_sched,
                    stk_err *err)
{
    const stk_spec *spec = stk_plan_spec(plan);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    refold r = {.plan = plan, .capacity = capacity, .accel = accel, .run = run, .err = err};
    r.arena = arena;
    r.grows = stk_spec_grows(spec);
    int rc = arena == NULL ? stk_err_nomem(err) : reserve_tasks(&r, stk_spec_n_steps(spec) + 1ul);
    r.n_tasks = r.grows ? 0 : stk_spec_n_steps(spec);
    rc = rc < 0 ? rc : stk_store_events(store, run, 0, fold_row, &r, err);
    rc = rc >= 0 && r.sched == NULL ? begin(&r) : rc; /* it has just been made */
    for (uint32_t i = 0; i < r.n_tasks && rc >= 0; i++) {
        if (stk_sched_state(r.sched, i) == STK_TASK_LOOKUP) { /* asked, and not found */
            stk_sched_event missed = {.kind = STK_SE_MISSED, .task = i};
            rc = stk_sched_fold(r.sched, &missed, err);
        }
    }
    free(r.added);
    free(r.is_done);
    free(r.is_running);
    free(r.n_grown);
    if (rc < 0) {
        stk_sched_free(r.sched);
        return rc;
    }
    *ret_sched = r.sched;
    return 0;
}
