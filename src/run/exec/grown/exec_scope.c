/* Scopes: the artifacts that a task of a graph that grows can read (docs/decisions/0009), its
 * parent's and those that it made itself; and how task.json lists them. */
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/grown/exec_made.h"
#include "run/exec/place/exec_place.h"

/* --- scopes --- */

const exec_artifact *stk_exec_scope_find(const exec_scope *scope, const char *name)
{
    uint32_t low = 0, high = scope->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = strcmp(scope->items[middle]->name, name);
        if (order == 0) {
            return scope->items[middle];
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

/* A task's inputs are its parents, in order. A parent that is a gang counts once for each rank. */
bool stk_exec_scope_parent(const stk_exec *x, uint32_t task, uint32_t i, uint32_t *ret_task,
                           const exec_scope **ret_scope, uint32_t *ret_rank)
{
    stk_grow_task t = stk_grow_get(x->graph.grow, task);
    uint32_t rank = t.n_parents == 1 ? i : 0; /* if there are several parents, none is a gang */
    uint32_t at = i - rank;
    if (at >= t.n_parents || rank >= x->graph.grown[t.parents[at]].n_scopes) {
        return false;
    }
    *ret_task = t.parents[at];
    *ret_rank = rank;
    *ret_scope = &x->graph.grown[t.parents[at]].scopes[rank];
    return true;
}

const exec_scope *stk_exec_scope_base(const stk_exec *x, uint32_t task)
{
    static const exec_scope nothing;
    const exec_scope *scope;
    uint32_t parent, rank;
    if (!stk_exec_step(x, task)->is_join &&
        stk_exec_scope_parent(x, task, 0, &parent, &scope, &rank)) {
        return scope;
    }
    return &nothing;
}

exec_artifact *stk_exec_scope_inherited(const stk_exec *x, uint32_t task, const char *name,
                                        const char *digest)
{
    uint32_t parent, rank;
    const exec_scope *scope;
    for (uint32_t i = 0; stk_exec_scope_parent(x, task, i, &parent, &scope, &rank); i++) {
        const exec_artifact *a = stk_exec_scope_find(scope, name);
        if (a != NULL && strcmp(a->ref.digest, digest) == 0) {
            return (exec_artifact *)(uintptr_t)a; /* this file owns it; const is for readers */
        }
    }
    for (uint32_t k = 0; k < x->graph.grown[task].n_left; k++) { /* a fallback takes these over */
        const exec_artifact *a = stk_exec_scope_find(&x->graph.grown[task].left[k], name);
        if (a != NULL && strcmp(a->ref.digest, digest) == 0) {
            return (exec_artifact *)(uintptr_t)a;
        }
    }
    return NULL;
}

static int compare_artifacts(const void *a, const void *b)
{
    return strcmp((*(exec_artifact *const *)a)->name, (*(exec_artifact *const *)b)->name);
}

static bool is_dropped(const exec_part *part, const char *name)
{
    for (uint32_t i = 0; i < part->n_dropped; i++) {
        if (strcmp(part->dropped[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* Makes the scope after a task: `base` without the dropped names, with the artifacts of `part`
 * added or replaced. */
static int merge(stk_exec *x, const exec_scope *base, const exec_part *part, exec_scope *ret,
                 stk_err *err)
{
    if (part->n_artifacts == 0 && part->n_dropped == 0) {
        *ret = *base; /* shared: thousands of branches may add nothing */
        return 0;
    }
    exec_artifact **items =
        stk_arena_array(x->arena, (size_t)base->n + part->n_artifacts + 1, sizeof *items);
    exec_artifact **made = stk_arena_array(x->scratch, (size_t)part->n_artifacts + 1, sizeof *made);
    if (items == NULL || made == NULL) {
        return stk_err_nomem(err);
    }
    if (part->n_artifacts > 0) {
        memcpy(made, part->artifacts, part->n_artifacts * sizeof *made);
        qsort(made, part->n_artifacts, sizeof *made, compare_artifacts);
    }
    uint32_t n = 0, k = 0;
    for (uint32_t i = 0; i < base->n; i++) {
        int order = -1;
        while (k < part->n_artifacts && (order = strcmp(made[k]->name, base->items[i]->name)) < 0) {
            items[n++] = made[k++];
        }
        bool is_replaced = k < part->n_artifacts && order == 0;
        if (!is_replaced && !is_dropped(part, base->items[i]->name)) {
            items[n++] = base->items[i];
        }
    }
    while (k < part->n_artifacts) {
        items[n++] = made[k++];
    }
    *ret = (exec_scope){items, n};
    return 0;
}

int stk_exec_scope_end(stk_exec *x, uint32_t task, const exec_made *made, stk_err *err)
{
    exec_grown *g = &x->graph.grown[task];
    const stk_grow_next *next = &made->next;
    const exec_scope *base = stk_exec_scope_base(x, task);
    exec_scope *scopes = stk_arena_array(x->arena, made->n_parts, sizeof *scopes);
    uint32_t *steps = stk_arena_array(x->arena, (size_t)next->n_steps + 1, sizeof *steps);
    if (scopes == NULL || steps == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < made->n_parts; i++) {
        STK_TRY(merge(x, base, &made->parts[i], &scopes[i], err));
    }
    if (next->n_steps > 0) {
        memcpy(steps, next->steps, next->n_steps * sizeof *steps);
    }
    g->next = (stk_grow_next){steps, next->n_steps, next->n};
    g->scopes = scopes;
    g->n_scopes = made->n_parts;
    g->items = made->items;
    return 0;
}

int stk_exec_scope_leave(stk_exec *x, uint32_t task, const exec_made *made, stk_err *err)
{
    static const exec_scope nothing;
    exec_grown *g = &x->graph.grown[task];
    exec_scope *left = stk_arena_array(x->arena, made->n_parts, sizeof *left);
    STK_TRY(stk_err_if_null(left, err));
    for (uint32_t i = 0; i < made->n_parts; i++) {
        STK_TRY(merge(x, &nothing, &made->parts[i], &left[i], err));
    }
    g->left = left;
    g->n_left = made->n_parts;
    return 0;
}

/* --- inputs --- */

int stk_exec_scope_from(stk_exec *x, uint32_t task, const stk_input *in,
                        const exec_artifact ***ret_found, uint32_t *ret_n, stk_err *err)
{
    const stk_step *from = stk_spec_step(x->spec, in->step);
    const char *name = from->outputs[in->output].name;
    uint32_t parent, rank, n = 0, cap = 0;
    const exec_scope *scope;
    const exec_artifact **found = NULL;
    bool is_join = stk_exec_step(x, task)->is_join;
    for (uint32_t i = 0; stk_exec_scope_parent(x, task, i, &parent, &scope, &rank); i++) {
        if (is_join && x->tasks[parent].i_step != in->step) {
            /* a join names the branch to read; elsewhere the artifact may come through other steps
             * (a loop, a case) */
            continue;
        }
        const exec_artifact *a = stk_exec_scope_find(scope, name);
        if (a != NULL) {
            found = stk_arena_grow(x->scratch, found, n, sizeof *found, &cap);
            STK_TRY(stk_err_if_null(found, err));
            found[n++] = a;
        }
    }
    *ret_found = found;
    *ret_n = n;
    if (n > 0) {
        return 0;
    }
    return stk_err_set(err, STK_E_NOT_FOUND, "step '%s' has no output '%s' for it", from->name,
                       name);
}

/* --- foreach --- */

typedef struct frame {
    uint32_t split, index;
} frame;

/* The open frames around a task, innermost first, in x->scratch. */
static int frames_of(const stk_exec *x, uint32_t task, frame **ret_frames, uint32_t *ret_n,
                     stk_err *err)
{
    frame *frames = NULL;
    uint32_t n = 0, cap = 0;
    for (stk_grow_task t = stk_grow_get(x->graph.grow, task); t.split != STK_GROW_NONE;
         t = stk_grow_get(x->graph.grow, t.split)) {
        frames = stk_arena_grow(x->scratch, frames, n, sizeof *frames, &cap);
        STK_TRY(stk_err_if_null(frames, err));
        frames[n++] = (frame){t.split, t.branch};
    }
    *ret_frames = frames;
    *ret_n = n;
    return 0;
}

/* The artifact with the list that the split's foreach goes over, or NULL. */
static const exec_artifact *find_list(const stk_exec *x, uint32_t split)
{
    const char *on = stk_exec_step(x, split)->on;
    const exec_grown *g = &x->graph.grown[split];
    if (on == NULL || g->n_scopes == 0) {
        return NULL;
    }
    return stk_exec_scope_find(&g->scopes[0], on);
}

/* Reads the items into x->graph.items as a JSON list. It stays there for the tasks of the same
 * split that start next. */
static int open_items(stk_exec *x, uint32_t split, stk_err *err)
{
    const exec_artifact *list = find_list(x, split);
    if (x->graph.items.arena != NULL && x->graph.items.split == split) {
        return 0;
    }
    if (x->graph.items.arena == NULL) {
        x->graph.items.arena = stk_arena_new(0);
    }
    STK_TRY(stk_err_if_null(x->graph.items.arena, err));
    stk_arena_reset(x->graph.items.arena);
    x->graph.items.split = STK_GROW_NONE;
    if (list == NULL) {
        return stk_err_set(err, STK_E_NOT_FOUND, "the items of step '%s' are missing",
                           stk_exec_step(x, split)->name);
    }
    int rc = stk_exec_read_json(x, list, x->graph.items.arena, &x->graph.items.list, err);
    if (rc == 0 && x->graph.items.list.kind != STK_JSON_LIST) {
        rc = stk_err_set(err, STK_E_USAGE, "'%s' of step '%s' is %s, not a JSON list", list->name,
                         stk_exec_step(x, split)->name,
                         stk_json_kind_words((stk_json_kind)x->graph.items.list.kind));
    }
    x->graph.items.split = rc == 0 ? split : STK_GROW_NONE;
    return rc;
}

int stk_exec_scope_item(stk_exec *x, uint32_t task, const char **ret_json, uint32_t *ret_index,
                        stk_err *err)
{
    frame *frames = NULL;
    uint32_t n = 0, i = 0;
    const stk_json *list = &x->graph.items.list;
    STK_TRY(frames_of(x, task, &frames, &n, err));
    while (i < n && stk_exec_step(x, frames[i].split)->grows != STK_NEXT_FOREACH) {
        i++;
    }
    if (i == n) {
        return stk_err_set(err, STK_E_NOT_FOUND, "it is in no foreach");
    }
    *ret_index = frames[i].index;
    STK_TRY(open_items(x, frames[i].split, err));
    if (frames[i].index >= list->n) {
        return stk_err_set(err, STK_E_NOT_FOUND, "its foreach has %u items, so there is no item %u",
                           list->n, frames[i].index);
    }
    *ret_json = stk_json_dump_in(&list->items[frames[i].index], x->scratch);
    return stk_err_if_null(*ret_json, err);
}

/* --- task.json --- */

typedef struct flow_writer {
    stk_exec *x;
    stk_buf *refs, *out; /* the items of "refs"; the members that follow */
    uint32_t document, n_refs;
    bool is_away;
    stk_err *err;
} flow_writer;

/* Gives the artifact its number in "refs" and adds it there, unless it has one in this document. */
static int number_artifact(flow_writer *w, exec_artifact *a)
{
    if (a->document != w->document) {
        const char *path = NULL;
        if (stk_exec_artifact(w->x, w->is_away, a->ref.digest, w->x->scratch, &path, NULL, w->err) <
            0) {
            return stk_err_context(w->err, "'%s'", a->name);
        }
        stk_json_put_raw(w->refs, NULL, a->ref.json);
        a->document = w->document;
        a->number = w->n_refs++;
    }
    return 0;
}

static int put_scope(flow_writer *w, const char *key, const exec_scope *scope)
{
    stk_json_open(w->out, key, '{');
    for (uint32_t i = 0; i < scope->n; i++) {
        STK_TRY(number_artifact(w, scope->items[i]));
        stk_json_put_whole(w->out, scope->items[i]->name, scope->items[i]->number);
    }
    stk_json_close(w->out, '}');
    return 0;
}

static int put_parent(flow_writer *w, uint32_t task, uint32_t rank, const exec_scope *scope)
{
    stk_json_open(w->out, NULL, '{');
    stk_json_put_text(w->out, "step", stk_exec_step(w->x, task)->name);
    stk_json_put_whole(w->out, "task", stk_exec_id(w->x, task));
    stk_json_put_whole(w->out, "rank", rank);
    STK_TRY(put_scope(w, "scope", scope));
    stk_json_close(w->out, '}');
    return 0;
}

/* What the failed attempt made, by rank, for the fallback. */
static int put_left(flow_writer *w, const exec_grown *g)
{
    stk_json_open(w->out, "left", '[');
    for (uint32_t i = 0; g->fallback != NULL && i < g->n_left; i++) {
        STK_TRY(put_scope(w, NULL, &g->left[i]));
    }
    stk_json_close(w->out, ']');
    return 0;
}

static void put_ref(stk_buf *out, const char *key, const exec_artifact *a)
{
    stk_json_put_raw(out, key, a == NULL ? NULL : a->ref.json);
}

static void put_frame(flow_writer *w, const frame *f)
{
    const stk_step *step = stk_exec_step(w->x, f->split);
    const exec_grown *g = &w->x->graph.grown[f->split];
    if (step->grows != STK_NEXT_FOREACH && step->grows != STK_NEXT_PARALLEL) {
        return;
    }
    stk_json_open(w->out, NULL, '{');
    stk_json_put_text(w->out, "step", step->name);
    stk_json_put_whole(w->out, "task", stk_exec_id(w->x, f->split));
    if (step->grows == STK_NEXT_PARALLEL) {
        stk_json_put_whole(w->out, "n", g->next.n);
        stk_json_put_bool(w->out, "parallel", true);
    } else {
        stk_json_put_whole(w->out, "index", f->index);
        stk_json_put_whole(w->out, "n", stk_grow_get(w->x->graph.grow, f->split).width);
        put_ref(w->out, "items", g->items);
        put_ref(w->out, "list", find_list(w->x, f->split));
    }
    stk_json_close(w->out, '}');
}

static int put_frames(flow_writer *w, uint32_t task)
{
    frame *frames = NULL;
    uint32_t n = 0;
    STK_TRY(frames_of(w->x, task, &frames, &n, w->err));
    stk_json_open(w->out, "foreach", '[');
    while (n-- > 0) {
        put_frame(w, &frames[n]);
    }
    stk_json_close(w->out, ']');
    return 0;
}

static void put_next(flow_writer *w, const stk_step *step)
{
    static const char *const words[] = {NULL, "all", "foreach", "parallel", "switch"};
    stk_json_put_bool(w->out, "join", step->is_join);
    stk_json_open(w->out, "next", '[');
    for (uint32_t i = 0; i < step->n_next; i++) {
        stk_json_put_text(w->out, NULL, stk_spec_step(w->x->spec, step->next[i])->name);
    }
    stk_json_close(w->out, ']');
    stk_json_put_text(w->out, "grows", words[step->grows]);
    stk_json_put_text(w->out, "on", step->on);
    stk_json_open(w->out, "cases", '{');
    for (uint32_t i = 0; step->cases != NULL && i < step->n_next; i++) {
        stk_json_put_text(w->out, step->cases[i], stk_spec_step(w->x->spec, step->next[i])->name);
    }
    stk_json_close(w->out, '}');
    stk_json_put_whole(w->out, "num_parallel", step->num_parallel);
}

int stk_exec_put_scope(stk_exec *x, uint32_t task, stk_buf *buf, stk_err *err)
{
    STK_BUF_AUTO refs = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES);
    STK_BUF_AUTO out = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES);
    flow_writer w = {.x = x,
                     .refs = &refs,
                     .out = &out,
                     .document = ++x->graph.n_documents,
                     .is_away = stk_exec_is_away(x, task),
                     .err = err};
    uint32_t parent, rank;
    const exec_scope *scope;
    stk_json_open(&refs, "refs", '[');
    stk_json_open(&out, "parents", '[');
    for (uint32_t i = 0; stk_exec_scope_parent(x, task, i, &parent, &scope, &rank); i++) {
        STK_TRY(put_parent(&w, parent, rank, scope));
    }
    stk_json_close(&out, ']');
    STK_TRY(put_left(&w, &x->graph.grown[task]));
    stk_json_close(&refs, ']');
    STK_TRY(put_frames(&w, task));
    put_next(&w, stk_exec_step(x, task));
    stk_json_open(buf, "flow", '{');
    stk_buf_add(buf, refs.data, refs.len);
    stk_buf_char(buf, ',');
    stk_buf_add(buf, out.data, out.len);
    stk_json_put_whole(buf, "ranks", stk_exec_ranks(x, task));
    stk_json_put_text(buf, "origin_run", stk_exec_clone_run(x->graph.clone));
    stk_json_put_whole(buf, "max_splits", x->graph.max_splits);
    stk_json_put_raw(buf, "fallback", x->graph.grown[task].fallback);
    stk_json_close(buf, '}');
    if (!buf->failed && !refs.failed && !out.failed) {
        return 0;
    }
    if (refs.len + out.len <= STK_LIMIT_RESULT_BYTES / 2) {
        return stk_err_nomem(err);
    }
    return stk_err_set(err, STK_E_LIMIT,
                       "its inputs have more artifacts than fit into a task.json (%u MiB): drop "
                       "artifacts before the join, or join in stages",
                       STK_LIMIT_RESULT_BYTES >> 20);
}
