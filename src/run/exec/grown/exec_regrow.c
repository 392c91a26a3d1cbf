/* Taking up a run whose graph grows: the log's tasks again, with what each of them saw and made. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/core/exec_resume.h"
#include "run/exec/core/exec_state.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/grown/exec_grown.h"
#include "run/exec/grown/exec_said.h"

/* --- the log, in its order --- */

static int take_added(stk_exec *x, const stk_event_row *row, const stk_json *data, stk_err *err)
{
    const char *name = stk_json_get_text(data, "step");
    const stk_json *deps = stk_json_get(data, "deps"), *split = stk_json_get(data, "split");
    int64_t step = name == NULL ? -1 : stk_spec_find(x->spec, name);
    uint32_t n = (uint32_t)stk_json_n_items(deps);
    uint32_t *parents = stk_arena_array(x->arena, (size_t)n + 1, sizeof *parents);
    STK_TRY(stk_err_if_null(parents, err));
    for (uint32_t i = 0; i < n; i++) {
        parents[i] = (uint32_t)stk_json_whole(stk_json_item(deps, i), 0);
    }
    if (step < 0) {
        return stk_err_set(err, STK_E_STORE,
                           "the run has tasks of step '%s', which the document doesn't have",
                           stk_text_or(name, ""));
    }
    stk_grow_adding adding = {.first = row->task,
                              .n = (uint32_t)stk_json_get_whole(data, "n", 0),
                              .i_step = (uint32_t)step,
                              .parents = parents,
                              .n_parents = n,
                              .split = split == NULL ? STK_GROW_NONE
                                                     : (uint32_t)stk_json_whole(split, 0),
                              .branch = (uint32_t)stk_json_get_whole(data, "branch", 0),
                              .ranks = (uint32_t)stk_json_get_whole(data, "ranks", 0)};
    return stk_exec_grow_tasks(x, &adding, err);
}

/* What follows stands in the log, too: here the graph only learns that it has been asked. */
static int take_done(stk_exec *x, uint32_t task, const stk_json *data, stk_err *err)
{
    exec_grown *g = &x->graph.grown[task];
    stk_grow_adding *adding = NULL;
    uint32_t n = 0;
    if (g->has_followed) { /* it ran again */
        return 0;
    }
    int rc = stk_exec_next_load(x->spec, x->tasks[task].i_step, stk_json_get(data, "next"),
                                x->arena, &g->next, err);
    rc = rc < 0 ? rc : stk_grow_done(x->graph.grow, task, &g->next, x->scratch, &adding, &n, err);
    if (rc < 0) {
        (void)stk_err_context(err, "step '%s' said otherwise what comes next",
                              stk_exec_step(x, task)->name);
        stk_err_hint(err,
                     "start a new run: the document goes on otherwise than when this one began");
    }
    g->has_followed = rc == 0;
    return rc;
}

/* What was to be cloned still is; that run may be gone meanwhile. */
static int take_created(stk_exec *x, const stk_json *data, stk_err *err)
{
    const stk_json *clone = stk_json_get(data, "clone");
    const char *run = stk_json_get_text(clone, "run");
    stk_err why = {0};
    int rc = run == NULL || x->graph.clone != NULL
                 ? 0
                 : stk_exec_clone_open(x, run, stk_json_get_text(clone, "until"), &why);
    if (rc == STK_E_NOMEM) {
        *err = why;
        return rc;
    }
    return 0;
}

int stk_exec_regrow_row(stk_exec *x, const stk_event_row *row, stk_err *err)
{
    bool is_done = row->kind == STK_EV_TASK_SUCCEEDED || row->kind == STK_EV_TASK_CACHED;
    if (!is_done && row->kind != STK_EV_TASK_ADDED && row->kind != STK_EV_RUN_CREATED) {
        return 0;
    }
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *data = stk_json_read(scratch, row->data);
    int rc = row->kind == STK_EV_RUN_CREATED     ? take_created(x, data, err)
             : row->kind == STK_EV_TASK_ADDED    ? take_added(x, row, data, err)
             : is_done && row->task < x->n_tasks ? take_done(x, row->task, data, err)
                                                 : 0;
    stk_arena_reset(x->scratch);
    return rc;
}

/* --- all tasks --- */

/* Parents that are to run again come first. */
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
    exec_said said;
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *data = stk_json_read(scratch, past->said);
    const stk_json *from = stk_json_get(data, "from_task");
    int rc = stk_exec_said_load(x, task, data, &said, err);
    if (rc == STK_E_NOT_FOUND) { /* an artifact was torn or removed */
        return stk_exec_replay_again(x, task, err);
    }
    rc = rc < 0 ? rc : stk_exec_scope_end(x, task, &said, err);
    x->tasks[task].owes_hooks = rc >= 0 && past->ran;
    x->graph.grown[task].refusal = NULL; /* whether it could run here is no matter any more */
    if (rc >= 0 && x->graph.clone != NULL && from != NULL) {
        x->graph.grown[task].origin = (uint32_t)stk_json_whole(from, 0);
        x->graph.grown[task].is_clone = true;
    }
    STK_TRY(rc);
    return stk_sched_fold(x->sched, &(stk_sched_event){.kind = STK_EV_TASK_CACHED, .task = task},
                          err);
}

int stk_exec_regrow(stk_exec *x, exec_past *pasts, stk_err *err)
{
    uint32_t n = x->n_tasks;
    int rc = 0;
    if (n == 0) { /* not even the first was committed */
        return stk_exec_grow_begin(x, err);
    }
    for (uint32_t i = 0; i < n && rc >= 0; i++) {
        x->tasks[i].attempt_base = pasts[i].attempt;
        rc = schedule(x, i, err);
        if (rc >= 0 && pasts[i].done && stk_sched_state(x->sched, i) == STK_TASK_LOOKUP) {
            rc = replay_done(x, i, &pasts[i], err);
        }
        stk_arena_reset(x->scratch);
    }
    for (uint32_t i = 0; i < n && rc >= 0; i++) { /* these may bring new tasks */
        if (stk_sched_state(x->sched, i) != STK_TASK_CACHED) {
            rc = stk_exec_replay_unfinished(x, i, &pasts[i], err);
        }
    }
    return rc;
}
