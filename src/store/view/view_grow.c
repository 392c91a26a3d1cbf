/* Growing runs (docs/decisions/0009): tasks as they are added, the foreach frames that they are in,
 * the artifacts that they see. */
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "store/view/view_private.h"

enum {
    WIDE = 20,       /* tasks of a step: above, they are told together */
    MAX_VALUE = 1024 /* bytes of a ref's value: a list of 10,000 items is in the scope of each of
                        their tasks */
};

/* --- folding --- */

int stk_view_grow_tasks(stk_view *view, uint32_t n, stk_err *err)
{
    if (n > view->cap_tasks) {
        uint32_t cap = view->cap_tasks < 64 ? 64 : view->cap_tasks * 2;
        cap = MAX(cap, n);
        stk_view_task *tasks = realloc(view->tasks, (size_t)cap * sizeof *tasks);
        if (tasks == NULL) {
            return stk_err_nomem(err);
        }
        view->tasks = tasks;
        view->cap_tasks = cap;
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

static int read_parents(stk_view *view, const stk_event_row *row, const json_t *deps,
                        stk_view_task *ret, stk_err *err)
{
    uint32_t n = (uint32_t)json_array_size(deps);
    uint32_t *parents = n > 0 ? stk_arena_array(view->arena, n, sizeof *parents) : NULL;
    if (n > 0 && parents == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(deps, i);
        json_int_t number = json_is_integer(one) ? json_integer_value(one) : -1;
        if (number < 0 || number >= row->task) {
            return bad_row(view, row, "after one that isn't there", err);
        }
        parents[i] = (uint32_t)number;
    }
    ret->parents = parents;
    ret->n_parents = n;
    return 0;
}

int stk_view_fold_added(stk_view *view, const stk_event_row *row, const json_t *data, stk_err *err)
{
    if (row->task < view->n_tasks) {
        return 0; /* said again */
    }
    const char *name = stk_doc_text(data, "step");
    int64_t i_step = name != NULL ? stk_spec_find(view->spec, name) : -1;
    int64_t n = stk_doc_integer(data, "n", 1);
    int64_t split = stk_doc_integer(data, "split", -1);
    int64_t branch = stk_doc_integer(data, "branch", 0);
    if (!view->grows || row->task != view->n_tasks) {
        return bad_row(view, row, "out of turn", err);
    }
    if (i_step < 0 || split >= row->task || branch < 0 || n < 1 ||
        n > STK_LIMIT_TASKS - (int64_t)view->n_tasks || branch > STK_LIMIT_TASKS) {
        return bad_row(view, row, "of a step or a frame that isn't there", err);
    }
    stk_view_task model = {.name = stk_spec_step(view->spec, (uint32_t)i_step)->name,
                           .step = stk_spec_step(view->spec, (uint32_t)i_step),
                           .i_step = (uint32_t)i_step,
                           .split = split < 0 ? UINT32_MAX : (uint32_t)split,
                           .ranks = (uint32_t)stk_doc_integer(data, "ranks", 0)};
    int rc = read_parents(view, row, json_object_get(data, "deps"), &model, err);
    rc = rc < 0 ? rc : stk_view_grow_tasks(view, view->n_tasks + (uint32_t)n, err);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        stk_view_task *task = &view->tasks[view->n_tasks];
        *task = model;
        task->id = view->n_tasks + 1;
        task->branch = (uint32_t)branch + i;
        task->label = stk_arena_printf(view->arena, "%s/%u", model.name, task->id);
        if (task->label == NULL) {
            return stk_err_nomem(err);
        }
        stk_view_step *step = &view->steps[i_step];
        if (step->n == 0) {
            step->first = view->n_tasks;
        }
        step->n++;
        step->by_state[STK_TASK_WAITING]++;
        view->run.n[STK_TASK_WAITING]++;
        view->n_tasks++;
    }
    if (rc == 0 && split >= 0) {
        uint32_t width = (uint32_t)(branch + n);
        stk_view_task *opener = &view->tasks[split];
        opener->width = MAX(width, opener->width);
    }
    return rc;
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
    /* A split is added before its branches, so this ends. */
    for (uint32_t s = view->tasks[i_task].split; s != UINT32_MAX; s = view->tasks[s].split) {
        n += is_foreach(view, s);
    }
    stk_view_frame *frames = stk_arena_array(arena, (size_t)n + 1, sizeof *frames);
    if (frames == NULL) {
        return stk_err_nomem(err);
    }
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
        return task->label;
    }
    STK_BUF_AUTO text = STK_BUF_INIT(1u << 16);
    stk_buf_printf(&text, "%s (", task->label);
    for (uint32_t i = 0; i < n; i++) {
        stk_buf_printf(&text, "%sitem %u of %s", i > 0 ? ", " : "", frames[i].index,
                       view->tasks[frames[i].task].name);
    }
    stk_buf_char(&text, ')');
    const char *own = text.failed ? NULL : stk_arena_dup(arena, text.data);
    return stk_text_or(own, task->label);
}

/* --- scope --- */

static int by_name(const void *a, const void *b)
{
    const stk_view_artifact *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static bool is_dropped(const json_t *dropped, const char *name)
{
    for (size_t i = 0; i < json_array_size(dropped); i++) {
        const char *one = json_string_value(json_array_get(dropped, i));
        if (one != NULL && strcmp(one, name) == 0) {
            return true;
        }
    }
    return false;
}

static stk_view_artifact artifact_of(const char *name, const json_t *ref, uint32_t i_task,
                                     stk_arena *arena)
{
    stk_view_artifact own = {.name = stk_arena_dup(arena, name),
                             .ref = stk_doc_dup(arena, ref),
                             .digest = stk_arena_dup(arena, stk_doc_text(ref, "digest")),
                             .task = i_task};
    if (own.ref != NULL && strlen(own.ref) > MAX_VALUE && json_object_get(ref, "value") != NULL) {
        STK_DOC_AUTO less = json_copy((json_t *)(uintptr_t)ref);
        (void)json_object_del(less, "value");
        own.ref = less != NULL ? stk_doc_dup(arena, less) : NULL;
    }
    return own;
}

/* `said` (outputs, dropped) over what was there before. Both lists are sorted: one walk. */
static int lay_over(const stk_view_scope *before, const json_t *said, uint32_t i_task,
                    stk_arena *arena, stk_view_scope *ret, stk_err *err)
{
    const json_t *outputs = json_object_get(said, "outputs");
    const json_t *dropped = json_object_get(said, "dropped");
    uint32_t n_own = (uint32_t)json_object_size(outputs), n = 0;
    if (n_own == 0 && json_array_size(dropped) == 0) {
        *ret = *before;
        return 0;
    }
    stk_view_artifact *own = stk_arena_array(arena, (size_t)n_own + 1, sizeof *own);
    stk_view_artifact *all = stk_arena_array(arena, (size_t)before->n + n_own + 1, sizeof *all);
    if (own == NULL || all == NULL) {
        return stk_err_nomem(err);
    }
    const char *name;
    json_t *ref;
    json_object_foreach((json_t *)(uintptr_t)outputs, name, ref)
    {
        own[n] = artifact_of(name, ref, i_task, arena);
        if (own[n].name == NULL || own[n].ref == NULL) {
            return stk_err_nomem(err);
        }
        n++;
    }
    qsort(own, n_own, sizeof *own, by_name);
    n = 0;
    for (uint32_t i = 0, k = 0; i < before->n || k < n_own;) {
        int order = i == before->n ? 1
                    : k == n_own   ? -1
                                   : strcmp(before->items[i].name, own[k].name);
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

/* What `rank` of a task said at its end; a new reference, or NULL: nothing (yet). */
static json_t *said_by(const stk_view *view, uint32_t i_task, uint32_t rank)
{
    const stk_view_task *task = &view->tasks[i_task];
    bool done = task->state == STK_TASK_SUCCEEDED || task->state == STK_TASK_CACHED ||
                task->state == STK_TASK_FAILED;
    json_t *end = done ? stk_doc_read(task->end_data) : NULL;
    if (rank == 0) {
        return end;
    }
    json_t *said = json_incref(json_array_get(json_object_get(end, "ranks"), rank - 1));
    json_decref(end);
    return said;
}

static uint32_t heir_of(const stk_view *view, uint32_t i_task)
{
    const stk_view_task *task = &view->tasks[i_task];
    return task->step->is_join || task->n_parents == 0 ? UINT32_MAX : task->parents[0];
}

/* The scope of a task that is a parent, so it is over: kept. Its ancestors' first, from the first
 * that isn't known on. */
static int keep_scope(const stk_view *view, uint32_t i_task, const stk_view_scope **ret,
                      stk_err *err)
{
    struct stk_view_memo *memo = view->memo;
    if (memo->n_scopes < view->n_tasks) {
        const stk_view_scope **scopes =
            realloc(memo->scopes, view->cap_tasks * sizeof(const stk_view_scope *));
        if (scopes == NULL) {
            return stk_err_nomem(err);
        }
        memset(scopes + memo->n_scopes, 0,
               (view->cap_tasks - memo->n_scopes) * sizeof(const stk_view_scope *));
        memo->scopes = scopes;
        memo->n_scopes = view->cap_tasks;
    }
    static const stk_view_scope nothing = {NULL, 0};
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    uint32_t *chain = NULL, n = 0, cap = 0;
    for (uint32_t t = i_task; t != UINT32_MAX && memo->scopes[t] == NULL; t = heir_of(view, t)) {
        chain = scratch ? stk_arena_grow(scratch, chain, n, sizeof *chain, &cap) : NULL;
        if (chain == NULL) {
            return stk_err_nomem(err);
        }
        chain[n++] = t;
    }
    while (n > 0) {
        uint32_t t = chain[--n], heir = heir_of(view, t);
        STK_DOC_AUTO said = said_by(view, t, 0);
        stk_view_scope *scope = stk_arena_array(view->arena, 1, sizeof *scope);
        int rc = scope == NULL ? stk_err_nomem(err)
                               : lay_over(heir == UINT32_MAX ? &nothing : memo->scopes[heir], said,
                                          t, view->arena, scope, err);
        if (rc < 0) {
            return rc;
        }
        memo->scopes[t] = scope;
    }
    *ret = memo->scopes[i_task];
    return 0;
}

int stk_view_get_scope(const stk_view *view, uint32_t i_task, uint32_t rank, stk_arena *arena,
                       stk_view_scope *ret_scope, stk_err *err)
{
    static const stk_view_scope nothing = {NULL, 0};
    const stk_view_scope *before = &nothing;
    uint32_t heir = heir_of(view, i_task);
    if (heir != UINT32_MAX) {
        STK_TRY(keep_scope(view, heir, &before, err));
    }
    STK_DOC_AUTO said = said_by(view, i_task, rank);
    return lay_over(before, said, i_task, arena, ret_scope, err);
}
