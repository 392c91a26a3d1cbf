/* Resumes a run: folds the committed events, and finds out about attempts that were running when
 * the engine died. */
#include "run/exec/core/exec_resume.h"

#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>

#include "base/json.h"
#include "host/runner/runner.h"
#include "run/exec/core/exec_event.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/core/exec_sum.h"
#include "run/exec/grown/exec_made.h"
#include "run/exec/place/exec_place.h"

enum { KILL_TIMEOUT_MS = 10000 };

typedef struct history {
    stk_exec *x;
    exec_past *tasks;
    uint32_t n_tasks, cap_tasks;
    stk_map notes; /* texts of the recorded notes */
    stk_err *err;
} history;

static void keep_note(history *h, const char *note)
{
    char *own = stk_arena_dup(h->x->arena, note);
    if (own != NULL) {
        (void)stk_map_put(&h->notes, own, 1);
    }
}

/* The host may have changed: emits notes of the plan that aren't on record. */
static int emit_new_notes(stk_exec *x, const stk_map *known, stk_err *err)
{
    for (uint32_t i = 0; i < stk_plan_n_notes(x->config.plan); i++) {
        const char *note = stk_plan_note(x->config.plan, i);
        if (!stk_map_get(known, note, NULL)) {
            STK_TRY(stk_exec_emit_note(x, note, err));
        }
    }
    return 0;
}

/* Takes added tasks of a graph that grows. */
static int take_grown(history *h, const stk_event_row *row, const stk_json *data)
{
    STK_TRY(stk_exec_regrow_row(h->x, row, data, h->err));
    uint32_t cap = h->x->cap_tasks;
    if (h->x->n_tasks > h->cap_tasks) {
        exec_past *bigger = reallocarray(h->tasks, (size_t)cap + 1, sizeof *bigger);
        STK_TRY(stk_err_if_null(bigger, h->err));
        memset(bigger + h->cap_tasks, 0, (cap - h->cap_tasks) * sizeof *bigger);
        h->tasks = bigger;
        h->cap_tasks = cap;
    }
    h->n_tasks = h->x->n_tasks;
    return 0;
}

static void fold_created(history *h, const stk_json *data)
{
    const stk_json *notes = stk_json_get(data, "notes");
    for (uint32_t i = 0; i < stk_json_n_items(notes); i++) {
        keep_note(h, stk_json_text(stk_json_item(notes, i)));
    }
    if (stk_json_is_true(stk_json_get(data, "no_cache"))) {
        h->x->config.use_cache = false;
    }
}

static void fold_success(history *h, exec_past *p, const stk_event_row *row, const stk_json *data)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const char *json = row->data;
    if (h->x->graph.grow == NULL) {
        json = stk_json_dump_in(stk_json_get(data, "outputs"), scratch);
    }
    free(p->json);
    p->json = strdup(json != NULL ? json : "{}");
    p->ran = row->kind == STK_EV_TASK_SUCCEEDED;
    p->running = false;
}

static int fold_row(void *arg, const stk_event_row *row)
{
    history *h = arg;
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *data = stk_json_read(scratch, row->data);
    if (row->data != NULL && !stk_json_is_map(data)) {
        /* only this event has the results of the task, so the run can't continue without it */
        stk_err_set(h->err, STK_E_STORE,
                    "run %s can't be resumed: event %lld (%s) of its record is damaged",
                    h->x->config.run, (long long)row->seq, stk_event_word(row->kind));
        stk_err_hint(h->err, "'stoker run' starts a new run and reuses finished steps; 'stoker "
                             "store verify' lists what is damaged");
        return STK_E_STORE;
    }
    if (h->x->graph.grow != NULL) {
        STK_TRY(take_grown(h, row, data));
    }
    if (row->kind == STK_EV_RUN_CREATED) {
        fold_created(h, data);
    } else if (row->kind == STK_EV_NOTE) {
        keep_note(h, stk_json_get_text(data, "text"));
    }
    if (row->task >= h->n_tasks) {
        return 0;
    }
    exec_past *p = &h->tasks[row->task];
    p->attempt = MAX(row->attempt, p->attempt);
    switch (row->kind) {
    case STK_EV_TASK_STARTED:
        p->running = true;
        p->started_ms = row->time_ms;
        p->stack =
            stk_arena_dup(h->x->arena, stk_json_get_text(stk_json_get(data, "granted"), "stack"));
        break;
    case STK_EV_TASK_CACHED:
    case STK_EV_TASK_SUCCEEDED:
        fold_success(h, p, row, data);
        break;
    case STK_EV_TASK_FAILED:
    case STK_EV_TASK_CANCELLED:
        p->running = false;
        break;
    case STK_EV_TASK_RETRYING:
        p->n_grown[stk_exec_grows(data)]++;
        break;
    default:
        break;
    }
    return 0;
}

/* Ends all processes of an attempt that may still live. */
static int end_attempt(stk_exec *x, uint32_t task, const exec_past *p, stk_err *err)
{
    const char *dir = stk_exec_dir(x, task, p->attempt, x->scratch);
    STK_TRY(stk_err_if_null(dir, err));
    if (stk_runner_attempt_is_live(dir) &&
        stk_runner_attempt_kill(dir, x->config.run, KILL_TIMEOUT_MS) < 0) {
        return stk_err_set(err, STK_E_BUSY,
                           "%s: its earlier attempt still runs and could not be ended; end "
                           "it by hand (see %s)",
                           stk_exec_who(x, task, x->scratch), dir);
    }
    return 0;
}

/* Takes the good result of an attempt whose end the engine couldn't commit, instead of running the
 * task twice. It ended when it had written that. */
static int adopt(stk_exec *x, uint32_t task, const exec_past *p, stk_err *err)
{
    struct stat st;
    const char *path = stk_exec_file_in_dir(x, task, x->tasks[task].attempt_base, "result.json");
    STK_TRY(stk_err_if_null(path, err));
    if (stk_exec_step(x, task)->python == NULL || stat(path, &st) < 0) {
        return 0;
    }
    int64_t ended_ms = (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
    x->tasks[task].attempt_base--; /* the scheduler's first attempt is that one */
    STK_TRY(stk_exec_fold_begun(x->sched, task, err));
    stk_outcome outcome = {.ok = true,
                           .exit_status = 0,
                           .wall_ms = MAX(ended_ms - p->started_ms, 0),
                           .cpu_us = -1,
                           .peak_memory_bytes = -1,
                           .read_bytes = -1,
                           .write_bytes = -1};
    return stk_exec_settle(x, task, &outcome, err);
}

/* Restores the last, grown request. */
static int fold_growth(stk_exec *x, uint32_t task, const exec_past *p, stk_err *err)
{
    for (int grows = STK_GROWS_MEMORY; grows <= STK_GROWS_SHARE; grows++) {
        stk_sched_event event = {.kind = STK_SE_GROWN, .task = task, .grows = (stk_grows)grows};
        for (uint32_t i = 0; i < p->n_grown[grows]; i++) {
            STK_TRY(stk_sched_fold(x->sched, &event, err));
        }
    }
    return 0;
}

static int replay_running(stk_exec *x, uint32_t task, const exec_past *p, stk_err *err)
{
    bool is_away = stk_exec_is_away(x, task);
    STK_TRY(stk_exec_check_place(x, task, p->stack, err));
    if (!is_away ||
        p->stack == NULL) { /* an attempt that ran here ends, and starts again elsewhere */
        STK_TRY(end_attempt(x, task, p, err));
    }
    if (stk_sched_state(x->sched, task) != STK_TASK_LOOKUP) {
        return 0;
    }
    if (!is_away) {
        return adopt(x, task, p, err);
    }
    if (p->stack == NULL) {
        return 0;
    }
    return stk_exec_attach(x, task, err);
}

int stk_exec_replay_unfinished(stk_exec *x, uint32_t task, const exec_past *p, stk_err *err)
{
    int rc = fold_growth(x, task, p, err);
    if (rc == 0 && p->running) {
        rc = replay_running(x, task, p, err);
    }
    stk_arena_reset(x->scratch);
    return rc;
}

int stk_exec_replay_again(stk_exec *x, uint32_t task, stk_err *err)
{
    const char *refusal = stk_plan_request(x->config.plan, x->tasks[task].i_step)->refusal;
    if (refusal == NULL) {
        return 0;
    }
    return stk_err_set(err, STK_E_RESOURCES,
                       "%s; it had finished, but its result is missing from the store", refusal);
}

static int replay_task(stk_exec *x, uint32_t task, exec_past *p, stk_err *err)
{
    x->tasks[task].attempt_base = p->attempt;
    if (p->json == NULL) {
        return stk_exec_replay_unfinished(x, task, p, err);
    }
    int rc = stk_exec_parse_outputs(&x->lookup, stk_exec_step(x, task), p->json, true,
                                    &x->tasks[task].outputs, err);
    if (rc == STK_E_NOT_FOUND) { /* an artifact is incomplete or missing */
        return stk_exec_replay_again(x, task, err);
    }
    if (rc < 0 || stk_sched_state(x->sched, task) != STK_TASK_LOOKUP) {
        return rc;
    }
    x->tasks[task].owes_hooks = p->ran;
    return stk_exec_fold(x->sched, STK_EV_TASK_CACHED, task, err);
}

/* Runs steps again whose artifacts have changed. After a signal it doesn't check: the users of the
 * artifacts do. */
static int look_at_artifacts(history *h)
{
    bool all = true;
    for (uint32_t i = 0; i < h->n_tasks; i++) {
        if (h->tasks[i].json != NULL) {
            STK_TRY(stk_exec_sum_ask_all(h->x, h->tasks[i].json, h->err));
        }
    }
    STK_TRY(stk_exec_sum_wait(h->x, &all, h->err));
    h->x->lookup.sum = NULL; /* folding the log needs the answer now */
    h->x->lookup.trusts = !all;
    return 0;
}

static int replay_history(history *h)
{
    stk_exec *x = h->x;
    const uint32_t *order = stk_plan_order(x->config.plan);
    STK_TRY(stk_store_events(x->config.store, x->config.run, 0, fold_row, h, h->err));
    STK_TRY(look_at_artifacts(h));
    STK_TRY(emit_new_notes(x, &h->notes, h->err));
    if (x->graph.grow != NULL) {
        STK_TRY(stk_exec_regrow(x, h->tasks, h->err));
    }
    for (uint32_t i = 0; i < x->n_tasks && x->graph.grow == NULL; i++) {
        STK_TRY(replay_task(x, order[i], &h->tasks[order[i]], h->err));
    }
    if (x->config.cancelled) {
        return 0;
    }
    return stk_exec_note_attached(x, h->err);
}

int stk_exec_replay(stk_exec *x, stk_err *err)
{
    history h = {.x = x,
                 .tasks = calloc((size_t)x->n_tasks + 1, sizeof *h.tasks),
                 .n_tasks = x->n_tasks,
                 .cap_tasks = x->n_tasks,
                 .err = err};
    STK_TRY(stk_err_if_null(h.tasks, err));
    int rc = replay_history(&h);
    x->lookup.sum = x->sum;
    x->lookup.trusts = false;
    for (uint32_t i = 0; i < h.n_tasks; i++) {
        free(h.tasks[i].json);
    }
    free(h.tasks);
    stk_map_done(&h.notes);
    STK_TRY(rc);
    return stk_exec_note_damage(x, err);
}
