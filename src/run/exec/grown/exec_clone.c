/* A new run takes over the finished tasks of another run (docs/decisions/0009). A task is done as
 * soon as it is added if all its inputs were taken over and its counterpart in the other run
 * succeeded. Nothing is copied: both runs use the artifacts in the store. */

#include "run/exec/grown/exec_made.h"

/* A task of the other run. */
typedef struct old_task {
    stk_grow_adding who; /* `branch`: of this task; i_step STK_GROW_NONE: not in our document */
    const char *data;    /* data of its success event, JSON; NULL: it did not succeed */
} old_task;

typedef struct exec_clone {
    const char *run, *until;
    uint32_t i_until; /* the step of `until`; STK_GROW_NONE: none */
    const stk_spec *spec;
    stk_arena *arena;
    old_task *tasks;
    uint32_t n_tasks, cap_tasks;
    stk_map index; /* clone_key → task number in the other run */
} exec_clone;

static const char *clone_key(stk_arena *arena, uint32_t i_step, uint32_t n_parents, uint32_t first,
                             uint32_t branch)
{
    if (n_parents == 0) {
        return stk_arena_printf(arena, "%u", i_step);
    }
    return stk_arena_printf(arena, "%u/%u/%u", i_step, first, branch);
}

static int keep_added(exec_clone *c, const stk_event_row *row)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    stk_grow_adding a;
    STK_TRY(
        stk_exec_load_added(c->spec, row, stk_json_read(scratch, row->data), c->arena, &a, NULL));
    for (uint32_t i = 0; i < a.n && row->task == c->n_tasks - i; i++) {
        c->tasks = stk_arena_grow(c->arena, c->tasks, c->n_tasks, sizeof *c->tasks, &c->cap_tasks);
        const char *key = clone_key(c->arena, a.i_step, a.n_parents, a.parents[0], a.branch);
        if (c->tasks == NULL || key == NULL || stk_map_put(&c->index, key, c->n_tasks) < 0) {
            return STK_E_NOMEM;
        }
        c->tasks[c->n_tasks++] = (old_task){.who = a};
        a.branch++;
    }
    return 0;
}

static int keep_row(void *arg, const stk_event_row *row)
{
    exec_clone *c = arg;
    if (row->kind == STK_EV_TASK_ADDED) {
        return keep_added(c, row);
    }
    if ((row->kind == STK_EV_TASK_SUCCEEDED || row->kind == STK_EV_TASK_CACHED) &&
        row->task < c->n_tasks) {
        c->tasks[row->task].data = stk_arena_dup(c->arena, row->data);
        return stk_err_if_null(c->tasks[row->task].data, NULL);
    }
    return 0;
}

static int read_origin(stk_exec *x, exec_clone *c, const char *run, stk_err *err)
{
    char id[40];
    STK_TRY(stk_store_resolve_run(x->config.store, run, id, err));
    c->run = stk_arena_dup(c->arena, id);
    STK_TRY(stk_err_if_null(c->run, err));
    int rc = stk_store_events(x->config.store, id, 0, keep_row, c, err);
    if (rc == STK_E_NOMEM) {
        return stk_err_nomem(err);
    }
    STK_TRY(rc);
    if (c->n_tasks > 0) {
        return 0;
    }
    return stk_err_set(err, STK_E_USAGE,
                       "run %s has a fixed graph, so there is nothing to clone; finished steps of "
                       "such a run are reused from the cache",
                       id);
}

int stk_exec_clone_open(stk_exec *x, const char *run, const char *until, stk_err *err)
{
    int64_t i_until = until == NULL ? -1 : stk_spec_find(x->spec, until);
    if (until != NULL && i_until < 0) {
        return stk_err_set(err, STK_E_USAGE, "--clone-until '%s': there is no such step", until);
    }
    stk_arena *arena = stk_arena_new(0);
    exec_clone *c = stk_arena_alloc(arena, sizeof *c);
    if (c == NULL) {
        stk_arena_free(arena);
        return stk_err_nomem(err);
    }
    *c = (exec_clone){.arena = arena, .spec = x->spec};
    c->i_until = i_until < 0 ? STK_GROW_NONE : (uint32_t)i_until;
    c->until = stk_arena_dup(arena, until);
    int rc = read_origin(x, c, run, err);
    if (rc < 0) {
        stk_exec_clone_close(c);
        return rc;
    }
    x->graph.clone = c;
    return 0;
}

void stk_exec_clone_close(exec_clone *c)
{
    if (c != NULL) {
        stk_map_done(&c->index);
        stk_arena_free(c->arena);
    }
}

const char *stk_exec_clone_run(const exec_clone *c)
{
    return c == NULL ? NULL : c->run;
}

void stk_exec_put_clone(const exec_clone *c, stk_buf *buf)
{
    if (c != NULL) {
        stk_json_open(buf, "clone", '{');
        stk_json_put_text(buf, "run", c->run);
        stk_json_put_text(buf, "until", c->until);
        stk_json_close(buf, '}');
    }
}

/* The task of the other run with the same step, counterpart parents, branch and ranks.
 * STK_GROW_NONE: there is none, or a parent is no clone. */
static uint32_t counterpart(const stk_exec *x, uint32_t task)
{
    const exec_clone *c = x->graph.clone;
    stk_grow_task t = stk_grow_get(x->graph.grow, task);
    uint64_t at = 0;
    for (uint32_t i = 0; i < t.n_parents; i++) {
        if (!x->graph.grown[t.parents[i]].is_clone) {
            return STK_GROW_NONE;
        }
    }
    uint32_t first = t.n_parents == 0 ? 0 : x->graph.grown[t.parents[0]].origin;
    uint32_t branch = t.split == STK_GROW_NONE ? 0 : t.branch;
    const char *key = clone_key(x->scratch, t.i_step, t.n_parents, first, branch);
    if (key == NULL || !stk_map_get(&c->index, key, &at)) {
        return STK_GROW_NONE;
    }
    const stk_grow_adding *old = &c->tasks[at].who;
    bool same = old->n_parents == t.n_parents && old->ranks == t.ranks;
    for (uint32_t i = 0; i < t.n_parents && same; i++) {
        same = old->parents[i] == x->graph.grown[t.parents[i]].origin;
    }
    return same ? (uint32_t)at : STK_GROW_NONE;
}

int stk_exec_clone_find(stk_exec *x, uint32_t task, exec_taken *ret_taken, stk_err *err)
{
    const exec_clone *c = x->graph.clone;
    stk_err why = {0};
    uint32_t at = counterpart(x, task);
    if (at == STK_GROW_NONE || c->tasks[at].data == NULL || x->tasks[task].i_step == c->i_until) {
        return 0;
    }
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *data = stk_json_read(scratch, c->tasks[at].data);
    bool is_good = false;
    STK_TRY(stk_exec_load_taken(x, task, data, &ret_taken->made, &is_good, &why, err));
    ret_taken->metadata = stk_json_dump_in(stk_json_get(data, "metadata"), x->scratch);
    ret_taken->from_run = is_good ? c->run : NULL; /* NULL: the task runs */
    ret_taken->from_task = at;
    x->graph.grown[task].origin = at;
    x->graph.grown[task].is_clone = is_good;
    return 0;
}
