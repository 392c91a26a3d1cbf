/* Taking a run up again: the fold of what was committed, and the truth about attempts that were
 * running when the engine died. */
#include "run/exec/core/exec_resume.h"

#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/text.h"
#include "host/runner/runner.h"
#include "run/exec/core/exec_cache.h"
#include "run/exec/core/exec_end.h"
#include "run/exec/core/exec_event.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/core/exec_state.h"
#include "run/exec/core/exec_sum.h"
#include "run/exec/grown/exec_said.h"
#include "run/exec/place/exec_place.h"
#include "sys/file.h"

enum { KILL_TIMEOUT_MS = 10000 };

typedef struct history {
    stk_exec *x;
    exec_past *tasks;
    uint32_t n_tasks, cap_tasks;
    stk_map notes; /* what was said */
    stk_err *err;
} history;

static void keep_notes(stk_exec *x, stk_map *said, const char *data)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *doc = stk_json_read(scratch, data);
    const stk_json *notes = stk_json_get(doc, "notes");
    for (uint32_t i = 0; i <= stk_json_n_items(notes); i++) { /* the last: the event's own */
        const char *note = i < stk_json_n_items(notes) ? stk_json_text(&notes->items[i])
                                                       : stk_json_get_text(doc, "text");
        char *own = stk_arena_dup(x->arena, note);
        if (own != NULL) {
            (void)stk_map_put(said, own, 1);
        }
    }
}

static bool began_without_cache(const char *data)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *doc = stk_json_read(scratch, data);
    bool without = stk_json_is_true(stk_json_get(doc, "no_cache"));
    return without;
}

/* The host may have changed since: what the plan says of it now, and didn't say before. */
static int emit_new_notes(stk_exec *x, const stk_map *said, stk_err *err)
{
    for (uint32_t i = 0; i < stk_plan_n_notes(x->config.plan); i++) {
        const char *note = stk_plan_note(x->config.plan, i);
        if (!stk_map_get(said, note, NULL)) {
            STK_TRY(stk_exec_emit_note(x, note, err));
        }
    }
    return 0;
}

static char *outputs_of(const char *data)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *doc = stk_json_read(scratch, data);
    const stk_json *outputs = stk_json_get(doc, "outputs");
    const char *text = outputs == NULL ? "{}" : stk_json_dump_in(outputs, scratch);
    return text == NULL ? NULL : strdup(text);
}

/* Where an attempt was started, if not here. */
static char *stack_of(const char *data)
{
    if (data == NULL || strstr(data, "\"stack\"") == NULL) {
        return NULL;
    }
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *doc = stk_json_read(scratch, data);
    const char *stack = stk_json_get_text(stk_json_get(doc, "granted"), "stack");
    char *copy = stack == NULL ? NULL : strdup(stack);
    return copy;
}

/* A graph that grows: the tasks so far. */
static int take_grown(history *h, const stk_event_row *row)
{
    int rc = stk_exec_regrow_row(h->x, row, h->err);
    if (rc < 0 || h->x->n_tasks <= h->cap_tasks) {
        h->n_tasks = h->x->n_tasks;
        return rc;
    }
    uint32_t cap = h->x->cap_tasks;
    exec_past *bigger = reallocarray(h->tasks, (size_t)cap + 1, sizeof *bigger);
    if (bigger == NULL) {
        return stk_err_nomem(h->err);
    }
    memset(bigger + h->cap_tasks, 0, (cap - h->cap_tasks) * sizeof *bigger);
    h->tasks = bigger;
    h->cap_tasks = cap;
    h->n_tasks = h->x->n_tasks;
    return 0;
}

/* What a finished task left is known by its event alone: without it the run can't go on. */
static int check_row(const history *h, const stk_event_row *row)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *doc = stk_json_read(scratch, row->data);
    bool is_good = row->data == NULL || stk_json_is_map(doc);
    if (is_good) {
        return 0;
    }
    stk_err_set(h->err, STK_E_STORE,
                "run %s can't be taken up: event %lld (%s) of its record is damaged",
                h->x->config.run, (long long)row->seq, stk_event_word(row->kind));
    stk_err_hint(h->err, "'stoker run' begins anew and reuses what finished; 'stoker store verify' "
                         "tells what is damaged");
    return STK_E_STORE;
}

static int fold_row(void *arg, const stk_event_row *row)
{
    history *h = arg;
    STK_TRY(check_row(h, row));
    if (h->x->graph.grow != NULL) {
        STK_TRY(take_grown(h, row));
    }
    if (row->kind == STK_EV_RUN_CREATED || row->kind == STK_EV_NOTE) {
        keep_notes(h->x, &h->notes, row->data);
        if (row->kind == STK_EV_RUN_CREATED && began_without_cache(row->data)) {
            h->x->config.use_cache = false;
        }
        return 0;
    }
    if (row->task >= h->n_tasks) {
        return 0;
    }
    exec_past *p = &h->tasks[row->task];
    p->attempt = MAX(row->attempt, p->attempt);
    switch (row->kind) {
    case STK_EV_TASK_STARTED:
        p->running = true;
        free(p->stack);
        p->stack = stack_of(row->data);
        break;
    case STK_EV_TASK_CACHED:
    case STK_EV_TASK_SUCCEEDED:
        free(p->said);
        p->said =
            h->x->graph.grow == NULL ? outputs_of(row->data) : strdup(stk_text_or(row->data, "{}"));
        p->done = p->said != NULL;
        p->ran = row->kind == STK_EV_TASK_SUCCEEDED;
        p->running = false;
        break;
    case STK_EV_TASK_FAILED:
    case STK_EV_TASK_CANCELLED:
        p->running = false;
        break;
    case STK_EV_TASK_RETRYING:
        p->n_grown[stk_exec_grows(row->data)]++;
        break;
    default:
        break;
    }
    return 0;
}

/* Ends what may still live of an attempt; after this nothing of it runs. */
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

/* An attempt that left a good result before the engine could commit its end: taken as it is, not
 * run twice. */
static int adopt(stk_exec *x, uint32_t task, bool *ret_adopted, stk_err *err)
{
    const char *dir = stk_exec_dir(x, task, x->tasks[task].attempt_base, x->scratch);
    const char *path = dir == NULL ? NULL : stk_arena_printf(x->scratch, "%s/result.json", dir);
    STK_TRY(stk_err_if_null(path, err));
    *ret_adopted = stk_exec_step(x, task)->python != NULL && stk_file_exists(path);
    if (!*ret_adopted) {
        return 0;
    }
    x->tasks[task].attempt_base--; /* the scheduler's first attempt is that one */
    stk_sched_event started = {
        .kind = STK_EV_TASK_STARTED, .task = task, .attempt = 1, .i_ask = STK_SCHED_NO_ASK};
    STK_TRY(stk_sched_fold(x->sched, &(stk_sched_event){.kind = STK_SE_MISSED, .task = task}, err));
    STK_TRY(stk_sched_fold(x->sched, &started, err));
    stk_outcome outcome = {.ok = true,
                           .exit_status = 0,
                           .cpu_us = -1,
                           .peak_memory_bytes = -1,
                           .read_bytes = -1,
                           .write_bytes = -1};
    return stk_exec_settle(x, task, &outcome, err);
}

/* One task of the log: finished ones are folded as finished, an unfinished attempt is closed. In
 * topological order. */
/* What it asked for in the end it asks for again. */
static int grow(stk_exec *x, uint32_t task, const exec_past *p, stk_err *err)
{
    int rc = 0;
    for (int grows = STK_GROWS_MEMORY; grows <= STK_GROWS_SHARE; grows++) {
        for (uint32_t i = 0; i < p->n_grown[grows] && rc == 0; i++) {
            rc = stk_sched_fold(
                x->sched,
                &(stk_sched_event){.kind = STK_SE_GROWN, .task = task, .grows = (stk_grows)grows},
                err);
        }
    }
    return rc;
}

int stk_exec_replay_unfinished(stk_exec *x, uint32_t task, const exec_past *p, stk_err *err)
{
    bool adopted = false;
    int rc = grow(x, task, p, err);
    rc = rc == 0 && p->running ? stk_exec_check_place(x, task, p->stack, err) : rc;
    if (rc == 0 && p->running && stk_exec_is_away(x, task)) {
        bool was_here = p->stack == NULL; /* it ends, and begins anew there */
        rc = was_here ? end_attempt(x, task, p, err) : 0;
        if (rc == 0 && !was_here && stk_sched_state(x->sched, task) == STK_TASK_LOOKUP) {
            rc = stk_exec_attach(x, task, err);
        }
        stk_arena_reset(x->scratch);
        return rc;
    }
    rc = rc == 0 && p->running ? end_attempt(x, task, p, err) : rc;
    if (rc == 0 && p->running && stk_sched_state(x->sched, task) == STK_TASK_LOOKUP) {
        rc = adopt(x, task, &adopted, err);
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
                       "%s; it had finished, but its result is gone from the store", refusal);
}

static int replay_task(stk_exec *x, uint32_t task, exec_past *p, stk_err *err)
{
    x->tasks[task].attempt_base = p->attempt;
    if (!p->done) {
        return stk_exec_replay_unfinished(x, task, p, err);
    }
    int rc = stk_exec_parse_outputs(&x->lookup, stk_exec_step(x, task), p->said, true,
                                    &x->tasks[task].outputs, err);
    if (rc == STK_E_NOT_FOUND) { /* an artifact was torn or removed */
        return stk_exec_replay_again(x, task, err);
    }
    bool ready = stk_sched_state(x->sched, task) == STK_TASK_LOOKUP;
    x->tasks[task].owes_hooks = rc >= 0 && ready && p->ran;
    if (rc < 0 || !ready) {
        return rc;
    }
    return stk_sched_fold(x->sched, &(stk_sched_event){.kind = STK_EV_TASK_CACHED, .task = task},
                          err);
}

/* What is not what was stored any more is made again. Where a signal wants the engine, whoever uses
 * them looks. */
static int look_at_artifacts(history *h)
{
    bool all = true;
    int rc = 0;
    for (uint32_t i = 0; i < h->n_tasks && rc == 0; i++) {
        const char *said = h->tasks[i].said;
        rc = said == NULL ? 0 : stk_exec_sum_ask_all(h->x, said, h->err);
    }
    rc = rc < 0 ? rc : stk_exec_sum_wait(h->x, &all, h->err);
    h->x->lookup.sum = NULL; /* what the log says is folded now */
    h->x->lookup.trusts = !all;
    return rc;
}

int stk_exec_replay(stk_exec *x, stk_err *err)
{
    history h = {.x = x,
                 .tasks = calloc((size_t)x->n_tasks + 1, sizeof *h.tasks),
                 .n_tasks = x->n_tasks,
                 .cap_tasks = x->n_tasks,
                 .err = err};
    if (h.tasks == NULL) {
        free(h.tasks);
        return stk_err_nomem(err);
    }
    int rc = stk_store_events(x->config.store, x->config.run, 0, fold_row, &h, err);
    rc = rc < 0 ? rc : look_at_artifacts(&h);
    rc = rc < 0 ? rc : emit_new_notes(x, &h.notes, err);
    rc = rc < 0 || x->graph.grow == NULL ? rc : stk_exec_regrow(x, h.tasks, err);
    const uint32_t *order = stk_plan_order(x->config.plan);
    for (uint32_t i = 0; i < x->n_tasks && rc >= 0 && x->graph.grow == NULL; i++) {
        rc = replay_task(x, order[i], &h.tasks[order[i]], err);
    }
    rc = rc < 0 || x->config.cancelled ? rc : stk_exec_note_attached(x, err);
    x->lookup.sum = x->sum;
    x->lookup.trusts = false;
    rc = rc < 0 ? rc : stk_exec_note_damage(x, err);
    for (uint32_t i = 0; i < h.n_tasks; i++) {
        free(h.tasks[i].said);
        free(h.tasks[i].stack);
    }
    free(h.tasks);
    stk_map_done(&h.notes);
    STK_TRY(rc);
    return 0;
}
