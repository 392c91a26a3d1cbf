/* Growing runs (docs/decisions/0009): the tasks added so far, their foreach frames, and the
 * artifacts that they see. */
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "store/view/view_private.h"

enum {
    WIDE = 20,       /* with more tasks, a step is shown as a whole */
    MAX_VALUE = 1024 /* bytes of a ref's value: a list of 10,000 items is in the scope of each of
                        their tasks */
};

/* --- folding --- */

int stk_view_grow_tasks(stk_view *view, uint32_t n, stk_err *err)
{
    if (stk_array_reserve(&view->tasks, &view->cap_tasks, n, sizeof *view->tasks) < 0) {
        return stk_err_nomem(err);
    }
    return 0;
}

void stk_view_set_state(stk_view *view, stk_view_task *task, stk_task_state state)
{
    stk_view_step *step = &view->steps[task->i_step];
    view->run.n[task->state]--;
    step->by_state[task->state]--;
    view->run.n[state]++;
    step->by_state[state]++;
    task->state = state;
}

static int bad_row(const stk_view *view, const stk_event_row *row, const char *what, stk_err *err)
{
    return stk_err_set(err, STK_E_STORE, "run %s: task %u was added %s", view->run.id, row->task,
                       what);
}

static int read_parents(stk_view *view, const stk_event_row *row, const stk_json *deps,
                        stk_view_task *ret, stk_err *err)
{
    uint32_t n = (uint32_t)stk_json_n_items(deps);
    uint32_t *parents = n > 0 ? stk_arena_array(view->arena, n, sizeof *parents) : NULL;
    if (n > 0 && parents == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < n; i++) {
        const stk_json *one = stk_json_item(deps, i);
        int64_t number = stk_json_is_kind(one, STK_JSON_INT) ? stk_json_whole(one, 0) : -1;
        if (number < 0 || number >= row->task) {
            return bad_row(view, row, "after a task that doesn't exist", err);
        }
        parents[i] = (uint32_t)number;
    }
    ret->parents = parents;
    ret->n_parents = n;
    return 0;
}

int stk_view_fold_added(stk_view *view, const stk_event_row *row, const stk_json *data,
                        stk_err *err)
{
    if (row->task < view->n_tasks) {
        return 0; /* repeated */
    }
    const char *name = stk_json_get_text(data, "step");
    int64_t i_step = name != NULL ? stk_spec_find(view->spec, name) : -1;
    int64_t n = stk_json_get_whole(data, "n", 1);
    int64_t split = stk_json_get_whole(data, "split", -1);
    int64_t branch = stk_json_get_whole(data, "branch", 0);
    if (!view->grows || row->task != view->n_tasks) {
        return bad_row(view, row, "out of order", err);
    }
    if (i_step < 0 || split >= row->task || branch < 0 || n < 1 ||
        n > STK_LIMIT_TASKS - (int64_t)view->n_tasks || branch > STK_LIMIT_TASKS) {
        return bad_row(view, row, "with a step or split that doesn't exist", err);
    }
    stk_view_task model = {.name = stk_spec_step(view->spec, (uint32_t)i_step)->name,
                           .step = stk_spec_step(view->spec, (uint32_t)i_step),
                           .i_step = (uint32_t)i_step,
                           .split = split < 0 ? UINT32_MAX : (uint32_t)split,
                           .ranks = (uint32_t)stk_json_get_whole(data, "ranks", 0)};
    STK_TRY(read_parents(view, row, stk_json_get(data, "deps"), &model, err));
    STK_TRY(stk_view_grow_tasks(view, view->n_tasks + (uint32_t)n, err));
    for (uint32_t i = 0; i < n; i++) {
        stk_view_task *task = &view->tasks[view->n_tasks];
        *task = model;
        task->id = view->n_tasks + 1;
        task->branch = (uint32_t)branch + i;
        task->label = stk_arena_printf(view->arena, "%s/%u", model.name, task->id);
        STK_TRY(stk_err_if_null(task->label, err));
        task->title = task->label;
        stk_view_step *step = &view->steps[i_step];
        if (step->n == 0) {
            step->first = view->n_tasks;
        }
        step->n++;
        step->by_state[STK_TASK_WAITING]++;
        view->run.n[STK_TASK_WAITING]++;
        view->n_tasks++;
    }
    if (split >= 0) {
        uint32_t width = (uint32_t)(branch + n);
        stk_view_task *opener = &view->tasks[split];
        opener->width = MAX(width, opener->width);
    }
    return 0;
}

/* --- steps --- */

stk_task_state stk_view_worst(const stk_view_step *step)
{
    static const stk_task_state order[] = {STK_TASK_FAILED,    STK_TASK_RUNNING, STK_TASK_BACKOFF,
                                           STK_TASK_CANCELLED, STK_TASK_SKIPPED, STK_TASK_WAITING,
                                           STK_TASK_SUCCEEDED, STK_TASK_CACHED};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        if (step->by_state[order[i]] > 0) {
            return order[i];
        }
    }
    return STK_TASK_WAITING;
}

bool stk_view_is_wide(const stk_view *view, uint32_t i_step)
{
    return view->steps[i_step].n > WIDE;
}

/* --- frames --- */
static bool is_foreach(const stk_view *view, uint32_t i_task)
{
    return view->tasks[i_task].step->grows == STK_NEXT_FOREACH;
}

int stk_view_foreach(const stk_view *view, uint32_t i_task, stk_arena *arena,
                     stk_view_frame **ret_frames, uint32_t *ret_n, stk_err *err)
{
    uint32_t n = 0;
    /* A split is added before its branches, so the loop ends. */
    for (uint32_t s = view->tasks[i_task].split; s != UINT32_MAX; s = view->tasks[s].split) {
        n += is_foreach(view, s);
    }
    stk_view_frame *frames = stk_arena_array(arena, (size_t)n + 1, sizeof *frames);
    STK_TRY(stk_err_if_null(frames, err));
    *ret_n = n;
    *ret_frames = frames;
    const stk_view_task *task = &view->tasks[i_task];
    for (; task->split != UINT32_MAX; task = &view->tasks[task->split]) {
        if (is_foreach(view, task->split)) {
            frames[--n] =
                (stk_view_frame){task->split, task->branch, view->tasks[task->split].width};
        }
    }
    return 0;
}

const char *stk_view_who(const stk_view *view, uint32_t i_task, stk_arena *arena)
{
    const stk_view_task *task = &view->tasks[i_task];
    stk_view_frame *frames;
    uint32_t n = 0;
    if (stk_view_foreach(view, i_task, arena, &frames, &n, NULL) < 0 || n == 0) {
        return task->title;
    }
    STK_BUF_AUTO text = STK_BUF_INIT(1u << 16);
    stk_buf_printf(&text, "%s (", task->title);
    for (uint32_t i = 0; i < n; i++) {
        stk_buf_printf(&text, "%sitem %u of %s", stk_text_when(i > 0, ", "), frames[i].index,
                       view->tasks[frames[i].task].name);
    }
    stk_buf_char(&text, ')');
    const char *own = stk_buf_keep(&text, arena);
    return stk_text_or(own, task->title);
}

/* --- scope --- */

static int compare_own(const void *a, const void *b)
{
    const stk_view_artifact *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static bool is_dropped(const stk_json *dropped, const char *name)
{
    for (size_t i = 0; i < stk_json_n_items(dropped); i++) {
        const char *one = stk_json_text(stk_json_item(dropped, i));
        if (one != NULL && strcmp(one, name) == 0) {
            return true;
        }
    }
    return false;
}

static stk_view_artifact artifact_of(const char *name, const stk_json *ref, uint32_t i_task,
                                     stk_arena *arena)
{
    stk_view_artifact own = {.name = stk_arena_dup(arena, name),
                             .ref = stk_json_dump_in(ref, arena),
                             .digest = stk_arena_dup(arena, stk_json_get_text(ref, "digest")),
                             .task = i_task};
    if (own.ref != NULL && strlen(own.ref) > MAX_VALUE && stk_json_get(ref, "value") != NULL) {
        stk_json less = *ref;
        own.ref = stk_json_remove(arena, &less, "value") ? stk_json_dump_in(&less, arena) : NULL;
    }
    return own;
}

/* Merges `said` (outputs, dropped) over the earlier scope. Both lists are sorted, so one pass is
 * enough. */
static int lay_over(const stk_view_scope *before, const stk_json *said, uint32_t i_task,
                    stk_arena *arena, stk_view_scope *ret, stk_err *err)
{
    const stk_json *outputs = stk_json_get(said, "outputs");
    const stk_json *dropped = stk_json_get(said, "dropped");
    uint32_t n_own = (uint32_t)stk_json_n_members(outputs), n = 0;
    if (n_own == 0 && stk_json_n_items(dropped) == 0) {
        *ret = *before;
        return 0;
    }
    stk_view_artifact *own = stk_arena_array(arena, (size_t)n_own + 1, sizeof *own);
    stk_view_artifact *all = stk_arena_array(arena, (size_t)before->n + n_own + 1, sizeof *all);
    if (own == NULL || all == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t k = 0; k < stk_json_n_members(outputs); k++) {
        const char *name = stk_json_key(outputs, k)->text;
        const stk_json *ref = stk_json_value(outputs, k);
        own[n] = artifact_of(name, ref, i_task, arena);
        if (own[n].name == NULL || own[n].ref == NULL) {
            return stk_err_nomem(err);
        }
        n++;
    }
    qsort(own, n_own, sizeof *own, compare_own);
    n = 0;
    for (uint32_t i = 0, k = 0; i < before->n || k < n_own;) {
        int order = i == before->n;
        if (i < before->n && k < n_own) {
            order = strcmp(before->items[i].name, own[k].name);
        } else if (i < before->n) {
            order = -1;
        }
        if (order >= 0) {
            all[n++] = own[k++];
            i += order == 0;
        } else if (!is_dropped(dropped, before->items[i].name)) {
            all[n++] = before->items[i++];
        } else {
            i++;
        }
    }
    *ret = (stk_view_scope){all, n};
    return 0;
}

/* A rank's part of an attempt's report; NULL: it has none. */
static const stk_json *of_rank(const stk_json *end, uint32_t rank)
{
    return rank == 0 ? end : stk_json_item(stk_json_get(end, "ranks"), rank - 1);
}

/* What `rank` of a task reported at its end; NULL: nothing (yet). */
static const stk_json *said_by(const stk_view *view, uint32_t i_task, uint32_t rank,
                               stk_arena *scratch)
{
    const stk_view_task *task = &view->tasks[i_task];
    bool done = task->state == STK_TASK_SUCCEEDED || task->state == STK_TASK_CACHED ||
                task->state == STK_TASK_FAILED;
    const stk_json *end = done ? stk_json_read(scratch, task->end_data) : NULL;
    return of_rank(end, rank);
}

static uint32_t heir_of(const stk_view *view, uint32_t i_task)
{
    const stk_view_task *task = &view->tasks[i_task];
    return task->step->is_join || task->n_parents == 0 ? UINT32_MAX : task->parents[0];
}

/* Caches the scope of a task that is a parent, and so has ended. Computes its ancestors' scopes
 * first, from the oldest unknown one on. */
static int keep_scope(const stk_view *view, uint32_t i_task, const stk_view_scope **ret,
                      stk_err *err)
{
    struct stk_view_memo *memo = view->memo;
    if (memo->n_scopes < view->n_tasks) {
        const stk_view_scope **scopes =
            realloc(memo->scopes, view->cap_tasks * sizeof(const stk_view_scope *));
        STK_TRY(stk_err_if_null(scopes, err));
        memset(scopes + memo->n_scopes, 0,
               (view->cap_tasks - memo->n_scopes) * sizeof(const stk_view_scope *));
        memo->scopes = scopes;
        memo->n_scopes = view->cap_tasks;
    }
    static const stk_view_scope nothing = {NULL, 0};
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    uint32_t *chain = NULL, n = 0, cap = 0;
    for (uint32_t t = i_task; t != UINT32_MAX && memo->scopes[t] == NULL; t = heir_of(view, t)) {
        if (scratch) {
            chain = stk_arena_grow(scratch, chain, n, sizeof *chain, &cap);
        } else {
            chain = NULL;
        }
        STK_TRY(stk_err_if_null(chain, err));
        chain[n++] = t;
    }
    while (n > 0) {
        uint32_t t = chain[--n], heir = heir_of(view, t);
        STK_ARENA_AUTO own = stk_arena_new(0);
        const stk_json *said = said_by(view, t, 0, own);
        stk_view_scope *scope = stk_arena_array(view->arena, 1, sizeof *scope);
        STK_TRY(stk_err_if_null(scope, err));
        const stk_view_scope *over = heir == UINT32_MAX ? &nothing : memo->scopes[heir];
        STK_TRY(lay_over(over, said, t, view->arena, scope, err));
        memo->scopes[t] = scope;
    }
    *ret = memo->scopes[i_task];
    return 0;
}

static int scope_with(const stk_view *view, uint32_t i_task, const stk_json *said, stk_arena *arena,
                      stk_view_scope *ret, stk_err *err)
{
    static const stk_view_scope nothing = {NULL, 0};
    const stk_view_scope *before = &nothing;
    uint32_t heir = heir_of(view, i_task);
    if (heir != UINT32_MAX) {
        STK_TRY(keep_scope(view, heir, &before, err));
    }
    return lay_over(before, said, i_task, arena, ret, err);
}

int stk_view_get_scope(const stk_view *view, uint32_t i_task, uint32_t rank, stk_arena *arena,
                       stk_view_scope *ret_scope, stk_err *err)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *said = said_by(view, i_task, rank, scratch);
    return scope_with(view, i_task, said, arena, ret_scope, err);
}

int stk_view_attempt_scope(const stk_view *view, uint32_t i_task, uint32_t rank,
                           const stk_view_attempt *attempt, stk_arena *arena,
                           stk_view_scope *ret_scope, stk_err *err)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *said = of_rank(stk_json_read(scratch, attempt->end_data), rank);
    return scope_with(view, i_task, said, arena, ret_scope, err);
}
