/* Resumes a run whose graph grows: restores the log's tasks with their inputs and results. */

#include "base/text.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/grown/exec_made.h"

/* --- rows of the log, in order --- */

static int add_again(stk_exec *x, const stk_event_row *row, const stk_json *data, stk_err *err)
{
    stk_grow_adding adding;
    STK_TRY(stk_exec_load_added(x->spec, row, data, x->arena, &adding, err));
    if (adding.i_step == STK_GROW_NONE) {
        return stk_err_set(err, STK_E_STORE,
                           "the run has tasks of step '%s', which the document doesn't have",
                           stk_text_or(stk_json_get_text(data, "step"), ""));
    }
    return stk_exec_grow_tasks(x, &adding, err);
}

/* Tells the graph that the task is done. The log has the tasks that follow as rows of their own, so
 * what stk_grow_done returns is not added. */
static int take_done(stk_exec *x, uint32_t task, const stk_json *data, stk_err *err)
{
    exec_grown *g = &x->graph.grown[task];
    stk_grow_adding *adding = NULL;
    uint32_t n = 0;
    if (g->has_followed) { /* the task ran a second time */
        return 0;
    }
    int rc = stk_exec_next_load(x->spec, x->tasks[task].i_step, stk_json_get(data, "next"),
                                x->arena, &g->next, err);
    if (rc >= 0) {
        rc = stk_grow_done(x->graph.grow, task, &g->next, x->scratch, &adding, &n, err);
    }
    if (rc < 0) {
        (void)stk_err_context(err, "step '%s' chose other next steps in the run's record",
                              stk_exec_step(x, task)->name);
        stk_err_hint(err, "start a new run: the document has changed since this one began");
    }
    g->has_followed = rc == 0;
    return rc;
}

/* Opens the cloned run again. If that run was removed, the remaining tasks run. */
static int take_created(stk_exec *x, const stk_json *data, stk_err *err)
{
    const stk_json *clone = stk_json_get(data, "clone");
    const char *run = stk_json_get_text(clone, "run");
    stk_err why = {0};
    if (run != NULL && x->graph.clone == NULL &&
        stk_exec_clone_open(x, run, stk_json_get_text(clone, "until"), &why) == STK_E_NOMEM) {
        return stk_err_nomem(err);
    }
    return 0;
}

static int fold_grown(stk_exec *x, const stk_event_row *row, const stk_json *data, stk_err *err)
{
    switch (row->kind) {
    case STK_EV_RUN_CREATED:
        return take_created(x, data, err);
    case STK_EV_TASK_ADDED:
        return add_again(x, row, data, err);
    case STK_EV_TASK_SUCCEEDED:
    case STK_EV_TASK_CACHED:
        if (row->task < x->n_tasks) {
            return take_done(x, row->task, data, err);
        }
        return 0;
    default:
        return 0;
    }
}

int stk_exec_regrow_row(stk_exec *x, const stk_event_row *row, const stk_json *data, stk_err *err)
{
    int rc = fold_grown(x, row, data, err);
    stk_arena_reset(x->scratch);
    return rc;
}

/* --- all tasks --- */

/* Schedules the task after those parents that must run again. */
static int schedule(stk_exec *x, uint32_t task, stk_err *err)
{
    stk_grow_task t = stk_grow_get(x->graph.grow, task);
    uint32_t n = 0;
    uint32_t *needs = stk_arena_array(x->scratch, (size_t)t.n_parents + 1, sizeof *needs);
    STK_TRY(stk_err_if_null(needs, err));
    for (uint32_t i = 0; i < t.n_parents; i++) {
        if (stk_sched_state(x->sched, t.parents[i]) != STK_TASK_CACHED) {
            needs[n++] = t.parents[i];
        }
    }
    return stk_exec_grow_schedule(x, task, needs, n, err);
}

static int replay_done(stk_exec *x, uint32_t task, const exec_past *past, stk_err *err)
{
    exec_made made;
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *data = stk_json_read(scratch, past->json);
    const stk_json *from = stk_json_get(data, "from_task");
    int rc = stk_exec_load_made(x, task, data, &made, err);
    if (rc == STK_E_NOT_FOUND) { /* an artifact is damaged or missing */
        return stk_exec_replay_again(x, task, err);
    }
    STK_TRY(rc);
    STK_TRY(stk_exec_scope_end(x, task, &made, err));
    x->tasks[task].owes_hooks = past->ran;
    x->graph.grown[task].refusal = NULL; /* the task is done, so it needs nothing of this machine */
    if (x->graph.clone != NULL && from != NULL) {
        x->graph.grown[task].origin = (uint32_t)stk_json_whole(from, 0);
        x->graph.grown[task].is_clone = true;
    }
    return stk_exec_fold(x->sched, STK_EV_TASK_CACHED, task, err);
}

int stk_exec_regrow(stk_exec *x, exec_past *pasts, stk_err *err)
{
    uint32_t n = x->n_tasks;
    int rc = 0;
    if (n == 0) { /* not even the first task was committed */
        return stk_exec_grow_begin(x, err);
    }
    for (uint32_t i = 0; i < n && rc >= 0; i++) {
        x->tasks[i].attempt_base = pasts[i].attempt;
        rc = schedule(x, i, err);
        if (rc >= 0 && pasts[i].json != NULL && stk_sched_state(x->sched, i) == STK_TASK_LOOKUP) {
            rc = replay_done(x, i, &pasts[i], err);
        }
        stk_arena_reset(x->scratch);
    }
    for (uint32_t i = 0; i < n && rc >= 0; i++) { /* may add new tasks */
        if (stk_sched_state(x->sched, i) != STK_TASK_CACHED) {
            rc = stk_exec_replay_unfinished(x, i, &pasts[i], err);
        }
    }
    return rc;
}
