/* The scheduler of a run: for the engine that drives it, and, folded anew from what is on record,
 * for those who want to know how things stand. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "exec/exec_private.h"

stk_sched_task stk_exec_sched_task(const stk_plan *plan, uint32_t i_step, const stk_request *r)
{
    const stk_settings *s = stk_spec_step(stk_plan_spec(plan), i_step)->settings;
    return (stk_sched_task){.cpu_milli = r->cpu_milli,
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
                            .lookup = true};
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
        if (rc < 0) {
            return rc;
        }
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
    stk_sched *sched = stk_sched_new(&config);
    int rc = sched == NULL ? stk_exec_nomem(err) : add_tasks(sched, plan, err);
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
    json_t *doc = data == NULL ? NULL : json_loads(data, 0, NULL);
    const char *word = json_string_value(json_object_get(doc, "grows"));
    stk_grows grows = word == NULL                      ? STK_GROWS_NOTHING
                      : strcmp(word, "memory") == 0     ? STK_GROWS_MEMORY
                      : strcmp(word, "gpu_memory") == 0 ? STK_GROWS_SHARE
                                                        : STK_GROWS_NOTHING;
    json_decref(doc);
    return grows;
}

typedef struct refold {
    stk_sched *sched;
    const stk_plan *plan;
    const stk_capacity *capacity;
    const stk_accel *accel;
    const char *run;
    bool *is_done;                            /* by task */
    uint32_t (*n_grown)[STK_GROWS_SHARE + 1]; /* by task and what grew */
    stk_mode mode;
    uint32_t max_workers;
    stk_err *err;
} refold;

/* An engine takes the run up: it begins with what is done, as stk_exec_replay does. */
static int begin(refold *r)
{
    stk_sched_free(r->sched);
    r->sched = NULL;
    int rc =
        stk_exec_schedule(r->plan, r->capacity, r->mode, r->max_workers, r->run, &r->sched, r->err);
    uint32_t n = stk_spec_n_steps(stk_plan_spec(r->plan));
    for (uint32_t i = 0; i < n && rc >= 0; i++) {
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
    }
    return rc;
}

static void read_created(refold *r, const json_t *data)
{
    const char *mode = json_string_value(json_object_get(data, "mode"));
    int known = mode == NULL ? -1 : stk_mode_of(mode);
    r->mode = known < 0 ? STK_MODE_CONTINUE : (stk_mode)known;
    r->max_workers = (uint32_t)json_integer_value(json_object_get(data, "max_workers"));
}

static void read_started(const refold *r, const json_t *data, stk_sched_event *event)
{
    const json_t *ask = json_object_get(data, "ask");
    const json_t *list = json_object_get(json_object_get(data, "granted"), "devices");
    size_t i;
    json_t *one;
    event->i_ask = json_is_integer(ask) ? (uint32_t)json_integer_value(ask) : STK_SCHED_NO_ASK;
    json_array_foreach(list, i, one)
    {
        const char *uuid = json_string_value(json_object_get(one, "uuid"));
        for (uint32_t k = 0; uuid != NULL && k < stk_accel_n_devices(r->accel); k++) {
            const char *known = stk_accel_device(r->accel, k)->uuid;
            if (event->i_ask != STK_SCHED_NO_ASK && known != NULL && strcmp(known, uuid) == 0) {
                stk_devset_add(&event->devices, k);
            }
        }
    }
}

static void read_task(const refold *r, const stk_event_row *row, const json_t *data,
                      stk_sched_event *event)
{
    const char *word = json_string_value(json_object_get(data, "class"));
    int class = word == NULL ? -1 : stk_failure_of(word);
    event->failure = class < 0 ? STK_FAIL_LOST : (stk_failure) class;
    event->is_final = json_is_true(json_object_get(data, "final"));
    event->saved = json_is_true(json_object_get(data, "saved"));
    event->at_ms = json_integer_value(json_object_get(data, "at_ms"));
    event->grows = row->kind == STK_EV_TASK_RETRYING ? stk_exec_grows(row->data) : 0;
    if (row->kind == STK_EV_TASK_STARTED) {
        event->attempt = stk_sched_attempt(r->sched, row->task) + 1;
        read_started(r, data, event);
    }
}

/* What this reader can't place (another host's devices, an older Stoker's record) is left out: the
 * rest is still true. */
static void fold_task(refold *r, const stk_event_row *row, const json_t *data)
{
    stk_sched_event event = {.kind = (int)row->kind, .task = row->task};
    read_task(r, row, data, &event);
    bool is_done = row->kind == STK_EV_TASK_SUCCEEDED || row->kind == STK_EV_TASK_CACHED;
    r->is_done[row->task] = r->is_done[row->task] || is_done;
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
    json_t *data = row->data == NULL ? NULL : json_loads(row->data, 0, NULL);
    int rc = 0;
    if (row->kind == STK_EV_RUN_CREATED) {
        read_created(r, data);
    } else if (row->kind == STK_EV_RUN_STARTED) {
        rc = begin(r);
    } else if (r->sched != NULL && row->task < stk_spec_n_steps(stk_plan_spec(r->plan))) {
        fold_task(r, row, data);
    } else if (r->sched != NULL && row->kind == STK_EV_RUN_CANCELLING) {
        rc = stk_sched_fold(r->sched, &(stk_sched_event){.kind = STK_EV_RUN_CANCELLING}, r->err);
    }
    json_decref(data);
    return rc;
}

int stk_exec_refold(stk_store *store, const char *run, const stk_plan *plan,
                    const stk_capacity *capacity, const stk_accel *accel, stk_sched **ret_sched,
                    stk_err *err)
{
    uint32_t n = stk_spec_n_steps(stk_plan_spec(plan));
    refold r = {.plan = plan, .capacity = capacity, .accel = accel, .run = run, .err = err};
    r.is_done = calloc((size_t)n + 1, sizeof *r.is_done);
    r.n_grown = calloc((size_t)n + 1, sizeof *r.n_grown);
    int rc = r.is_done == NULL || r.n_grown == NULL
                 ? stk_exec_nomem(err)
                 : stk_store_events(store, run, 0, fold_row, &r, err);
    rc = rc >= 0 && r.sched == NULL ? begin(&r) : rc; /* it has just been made */
    for (uint32_t i = 0; i < n && rc >= 0; i++) {
        if (stk_sched_state(r.sched, i) == STK_TASK_LOOKUP) { /* asked, and not found */
            stk_sched_event missed = {.kind = STK_SE_MISSED, .task = i};
            rc = stk_sched_fold(r.sched, &missed, err);
        }
    }
    free(r.is_done);
    free(r.n_grown);
    if (rc < 0) {
        stk_sched_free(r.sched);
        return rc;
    }
    *ret_sched = r.sched;
    return 0;
}
