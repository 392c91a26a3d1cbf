/* Another run's finished tasks, taken over by a new one: each task whose inputs were taken over,
 * and whose counterpart there succeeded, is done as soon as it is added (docs/decisions/0009).
 * Nothing is copied: artifacts are in the store. */
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "run/exec/core/exec_state.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/grown/exec_grown.h"
#include "run/exec/grown/exec_said.h"

/* A task of that run. */
typedef struct old_task {
    uint32_t i_step; /* in our document; STK_GROW_NONE: it has none of that name */
    uint32_t *parents;
    uint32_t n_parents;
    uint32_t branch, ranks;
    const char *data; /* of its success, JSON; NULL: it had none */
} old_task;

typedef struct exec_clone {
    const char *run, *until;
    uint32_t i_until; /* STK_GROW_NONE: none */
    const stk_spec *spec;
    stk_arena *arena;
    old_task *tasks;
    uint32_t n_tasks, cap_tasks;
    stk_map index; /* who they are, by key_of → number */
} exec_clone;

static const char *key_of(stk_arena *arena, uint32_t i_step, uint32_t n_parents, uint32_t first,
                          uint32_t branch)
{
    return n_parents == 0 ? stk_arena_printf(arena, "%u", i_step)
                          : stk_arena_printf(arena, "%u/%u/%u", i_step, first, branch);
}

static uint32_t number_of(const stk_json *data, const char *key)
{
    return (uint32_t)stk_json_get_whole(data, key, 0);
}

static int take_added(exec_clone *c, const stk_event_row *row, const stk_json *data)
{
    const char *name = stk_json_get_text(data, "step");
    const stk_json *deps = stk_json_get(data, "deps");
    int64_t step = name == NULL ? -1 : stk_spec_find(c->spec, name);
    old_task task = {.i_step = step < 0 ? STK_GROW_NONE : (uint32_t)step,
                     .n_parents = (uint32_t)stk_json_n_items(deps),
                     .branch = number_of(data, "branch"),
                     .ranks = number_of(data, "ranks")};
    task.parents = stk_arena_array(c->arena, (size_t)task.n_parents + 1, sizeof *task.parents);
    if (task.parents == NULL) {
        return STK_E_NOMEM;
    }
    for (uint32_t i = 0; i < task.n_parents; i++) {
        task.parents[i] = (uint32_t)stk_json_whole(stk_json_item(deps, i), 0);
    }
    uint32_t n = number_of(data, "n");
    for (uint32_t i = 0; i < n && row->task == c->n_tasks - i; i++) {
        c->tasks = stk_arena_grow(c->arena, c->tasks, c->n_tasks, sizeof *c->tasks, &c->cap_tasks);
        const char *key =
            key_of(c->arena, task.i_step, task.n_parents, task.parents[0], task.branch);
        if (c->tasks == NULL || key == NULL || stk_map_put(&c->index, key, c->n_tasks) < 0) {
            return STK_E_NOMEM;
        }
        c->tasks[c->n_tasks++] = task;
        task.branch++;
    }
    return 0;
}

static int take_row(void *arg, const stk_event_row *row)
{
    exec_clone *c = arg;
    int rc = 0;
    if (row->kind == STK_EV_TASK_ADDED) {
        STK_ARENA_AUTO scratch = stk_arena_new(0);
        const stk_json *data = stk_json_read(scratch, row->data);
        rc = take_added(c, row, data);
    } else if ((row->kind == STK_EV_TASK_SUCCEEDED || row->kind == STK_EV_TASK_CACHED) &&
               row->task < c->n_tasks) {
        c->tasks[row->task].data = stk_arena_dup(c->arena, row->data);
        rc = c->tasks[row->task].data == NULL ? STK_E_NOMEM : 0;
    }
    return rc;
}

static int read_origin(stk_exec *x, exec_clone *c, const char *run, stk_err *err)
{
    char id[40];
    STK_TRY(stk_store_resolve_run(x->config.store, run, id, err));
    c->run = stk_arena_dup(c->arena, id);
    int rc =
        c->run == NULL ? STK_E_NOMEM : stk_store_events(x->config.store, id, 0, take_row, c, err);
    if (rc == STK_E_NOMEM) {
        return stk_err_nomem(err);
    }
    return rc < 0 || c->n_tasks > 0
               ? rc
               : stk_err_set(
                     err, STK_E_USAGE,
                     "run %s is of a pipeline whose graph doesn't grow: there is nothing in "
                     "it to clone; finished steps of such a run are reused from the cache",
                     id);
}

int stk_exec_clone_open(stk_exec *x, const char *run, const char *until, stk_err *err)
{
    int64_t i_until = until == NULL ? -1 : stk_spec_find(x->spec, until);
    stk_arena *arena = stk_arena_new(0);
    exec_clone *c = arena == NULL ? NULL : stk_arena_alloc(arena, sizeof *c);
    if (c == NULL) {
        stk_arena_free(arena);
        return stk_err_nomem(err);
    }
    *c = (exec_clone){.arena = arena, .spec = x->spec};
    c->i_until = i_until < 0 ? STK_GROW_NONE : (uint32_t)i_until;
    c->until = stk_arena_dup(arena, until);
    int rc = until != NULL && i_until < 0
                 ? stk_err_set(err, STK_E_USAGE, "--clone-until '%s': there is no such step", until)
                 : read_origin(x, c, run, err);
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

void stk_exec_clone_json(const exec_clone *c, stk_buf *buf)
{
    if (c == NULL) {
        return;
    }
    stk_buf_text(buf, ",\"clone\":{\"run\":");
    stk_buf_json(buf, c->run);
    stk_buf_text(buf, ",\"until\":");
    if (c->until != NULL) {
        stk_buf_json(buf, c->until);
    } else {
        stk_buf_text(buf, "null");
    }
    stk_buf_char(buf, '}');
}

/* Its counterpart: of the same step, of the same parents, the same branch. */
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
    const char *key = key_of(x->scratch, t.i_step, t.n_parents, first, branch);
    if (key == NULL || !stk_map_get(&c->index, key, &at)) {
        return STK_GROW_NONE;
    }
    const old_task *old = &c->tasks[at];
    bool same = old->n_parents == t.n_parents && old->ranks == t.ranks;
    for (uint32_t i = 0; i < t.n_parents && same; i++) {
        same = old->parents[i] == x->graph.grown[t.parents[i]].origin;
    }
    return same ? (uint32_t)at : STK_GROW_NONE;
}

int stk_exec_clone_find(stk_exec *x, uint32_t task, bool *ret_found, exec_said *ret_said,
                        const char **ret_metadata, stk_err *err)
{
    const exec_clone *c = x->graph.clone;
    stk_err why = {0};
    uint32_t at = counterpart(x, task);
    *ret_found = false;
    if (at == STK_GROW_NONE || c->tasks[at].data == NULL || x->tasks[task].i_step == c->i_until) {
        return 0;
    }
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *data = stk_json_read(scratch, c->tasks[at].data);
    const stk_json *metadata = stk_json_get(data, "metadata");
    int rc = stk_exec_said_load(x, task, data, ret_said, &why);
    rc = rc < 0 ? rc : stk_exec_follow_check(x, task, &ret_said->next, &why);
    *ret_metadata = stk_json_dump_in(metadata, x->scratch);
    if (rc == STK_E_NOMEM || rc == STK_E_FULL) {
        *err = why;
        return rc;
    }
    *ret_found =
        rc == 0; /* else its artifacts are gone, or the document goes on otherwise: it runs */
    x->graph.grown[task].origin = at;
    x->graph.grown[task].is_clone = rc == 0;
    return 0;
}
