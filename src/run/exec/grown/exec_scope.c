/* The artifacts that a task of a graph that grows sees (docs/decisions/0009): its parent's, and
 * what it made itself; and how task.json tells of them. */
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/text.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/core/exec_state.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/grown/exec_grown.h"
#include "run/exec/grown/exec_said.h"
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
        }
        if (order >= 0) {
            high = middle;
        }
    }
    return NULL;
}

/* Inputs are the parents, one by one, and of a parent that is a gang its ranks. */
bool stk_exec_scope_parent(const stk_exec *x, uint32_t task, uint32_t i, uint32_t *ret_task,
                           const exec_scope **ret_scope, uint32_t *ret_rank)
{
    stk_grow_task t = stk_grow_get(x->graph.grow, task);
    if (t.n_parents == 1) { /* the only case in which one is a gang: its join, or what isn't one */
        const exec_grown *g = &x->graph.grown[t.parents[0]];
        *ret_task = t.parents[0];
        *ret_rank = i;
        *ret_scope = i < g->n_scopes ? &g->scopes[i] : NULL;
        return i < g->n_scopes;
    }
    if (i >= t.n_parents) {
        return false;
    }
    const exec_grown *g = &x->graph.grown[t.parents[i]];
    *ret_task = t.parents[i];
    *ret_rank = 0;
    *ret_scope = g->n_scopes > 0 ? &g->scopes[0] : NULL;
    return g->n_scopes > 0;
}

exec_artifact *stk_exec_scope_inherited(const stk_exec *x, uint32_t task, const char *name,
                                        const char *digest)
{
    uint32_t parent, rank;
    const exec_scope *scope;
    for (uint32_t i = 0; stk_exec_scope_parent(x, task, i, &parent, &scope, &rank); i++) {
        const exec_artifact *a = stk_exec_scope_find(scope, name);
        if (a != NULL && strcmp(a->ref.digest, digest) == 0) {
            return (exec_artifact *)(uintptr_t)a; /* ours; the const is for who only looks */
        }
    }
    return NULL;
}

static int by_name(const void *a, const void *b)
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

/* What was there, what was made over it, without what was dropped of it. */
static int merge(stk_exec *x, const exec_scope *base, const exec_part *part, exec_scope *ret,
                 stk_err *err)
{
    if (part->n_made == 0 && part->n_dropped == 0) {
        *ret = *base; /* shared: thousands of branches may add nothing */
        return 0;
    }
    exec_artifact **items =
        stk_arena_array(x->arena, (size_t)base->n + part->n_made + 1, sizeof *items);
    exec_artifact **made = stk_arena_array(x->scratch, (size_t)part->n_made + 1, sizeof *made);
    if (items == NULL || made == NULL) {
        return stk_err_nomem(err);
    }
    if (part->n_made > 0) {
        memcpy(made, part->made, part->n_made * sizeof *made);
        qsort(made, part->n_made, sizeof *made, by_name);
    }
    uint32_t n = 0, i = 0, k = 0;
    while (i < base->n || k < part->n_made) {
        int order = i == base->n        ? 1
                    : k == part->n_made ? -1
                                        : strcmp(base->items[i]->name, made[k]->name);
        if (order >= 0) {
            items[n++] = made[k++];
        } else if (!is_dropped(part, base->items[i]->name)) {
            items[n++] = base->items[i];
        }
        i += order <= 0;
    }
    *ret = (exec_scope){items, n};
    return 0;
}

int stk_exec_scope_end(stk_exec *x, uint32_t task, const exec_said *said, stk_err *err)
{
    static const exec_scope nothing;
    const exec_scope *base = &nothing;
    uint32_t parent, rank;
    exec_grown *g = &x->graph.grown[task];
    exec_scope *scopes = stk_arena_array(x->arena, said->n_parts, sizeof *scopes);
    uint32_t *steps = stk_arena_array(x->arena, (size_t)said->next.n_steps + 1, sizeof *steps);
    if (scopes == NULL || steps == NULL) {
        return stk_err_nomem(err);
    }
    if (!stk_exec_step(x, task)->is_join &&
        !stk_exec_scope_parent(x, task, 0, &parent, &base, &rank)) {
        base = &nothing;
    }
    int rc = 0;
    for (uint32_t i = 0; i < said->n_parts && rc == 0; i++) {
        rc = merge(x, base, &said->parts[i], &scopes[i], err);
    }
    if (rc == 0) {
        if (said->next.n_steps > 0) {
            memcpy(steps, said->next.steps, said->next.n_steps * sizeof *steps);
        }
        g->next = (stk_grow_next){steps, said->next.n_steps, said->next.n};
        g->scopes = scopes;
        g->n_scopes = said->n_parts;
        g->items = said->items;
    }
    return rc;
}

/* --- inputs --- */

static int absent(const stk_exec *x, const stk_input *in, stk_err *err)
{
    const stk_step *from = stk_spec_step(x->spec, in->step);
    return stk_err_set(err, STK_E_NOT_FOUND, "step '%s' left no '%s' for it", from->name,
                       from->outputs[in->output].name);
}

int stk_exec_scope_from(stk_exec *x, uint32_t task, const stk_input *in,
                        const exec_artifact ***ret_found, uint32_t *ret_n, stk_err *err)
{
    const char *name = stk_spec_step(x->spec, in->step)->outputs[in->output].name;
    uint32_t parent, rank, n = 0, cap = 0;
    const exec_scope *scope;
    const exec_artifact **found = NULL;
    bool is_join = stk_exec_step(x, task)->is_join;
    for (uint32_t i = 0; stk_exec_scope_parent(x, task, i, &parent, &scope, &rank); i++) {
        /* by another way (a loop, a case) the artifact comes down to a task just the same */
        bool is_meant = !is_join || x->tasks[parent].i_step == in->step;
        const exec_artifact *a = is_meant ? stk_exec_scope_find(scope, name) : NULL;
        const exec_artifact **more =
            a == NULL ? found : stk_arena_grow(x->scratch, found, n, sizeof *found, &cap);
        if (a != NULL && more == NULL) {
            return stk_err_nomem(err);
        }
        found = more;
        if (a != NULL) {
            found[n++] = a;
        }
    }
    *ret_found = found;
    *ret_n = n;
    return n == 0 ? absent(x, in, err) : 0;
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

/* What the split's foreach goes over. */
static const exec_artifact *list_of(const stk_exec *x, uint32_t split)
{
    const char *on = stk_exec_step(x, split)->on;
    const exec_grown *g = &x->graph.grown[split];
    return on == NULL || g->n_scopes == 0 ? NULL : stk_exec_scope_find(&g->scopes[0], on);
}

/* The items as a JSON list, which stays for those of its tasks that start next. */
static int open_items(stk_exec *x, uint32_t split, stk_err *err)
{
    const exec_artifact *list = list_of(x, split);
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
        return stk_err_set(err, STK_E_NOT_FOUND, "the items of step '%s' are gone",
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
    uint32_t n = 0;
    int rc = frames_of(x, task, &frames, &n, err);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        if (stk_exec_step(x, frames[i].split)->grows != STK_NEXT_FOREACH) {
            continue;
        }
        *ret_index = frames[i].index;
        rc = open_items(x, frames[i].split, err);
        if (rc == 0 && frames[i].index >= x->graph.items.list.n) {
            rc = stk_err_set(err, STK_E_NOT_FOUND, "its foreach has %u items, none of number %u",
                             x->graph.items.list.n, frames[i].index);
        }
        if (rc == 0) {
            *ret_json = stk_json_dump_in(&x->graph.items.list.items[frames[i].index], x->scratch);
        }
        STK_TRY(rc);
        return stk_err_if_null(*ret_json, err);
    }
    STK_TRY(rc);
    return stk_err_set(err, STK_E_NOT_FOUND, "it is in no foreach");
}

/* --- task.json --- */

typedef struct writer {
    stk_exec *x;
    stk_buf *refs, *out;
    uint32_t document, n_refs;
    bool is_away;
    int rc;
    stk_err *err;
} writer;

/* The artifact's number in refs, where it is put the first time. */
static uint32_t number(writer *w, exec_artifact *a)
{
    if (a->document != w->document) {
        const char *path = NULL;
        int64_t size = 0;
        w->rc = w->rc < 0 ? w->rc
                          : stk_exec_artifact(w->x, w->is_away, a->ref.digest, w->x->scratch, &path,
                                              &size, w->err);
        if (w->rc < 0) {
            (void)stk_err_context(w->err, "'%s'", a->name);
            return 0;
        }
        stk_buf_text(w->refs, w->n_refs > 0 ? "," : "");
        stk_buf_text(w->refs, a->ref.json);
        a->document = w->document;
        a->number = w->n_refs++;
    }
    return a->number;
}

static void put_parent(writer *w, uint32_t task, uint32_t rank, const exec_scope *scope)
{
    stk_buf_printf(w->out, "{\"step\":\"%s\",\"task\":%u,\"rank\":%u,\"scope\":{",
                   stk_exec_step(w->x, task)->name, stk_exec_id(w->x, task), rank);
    for (uint32_t i = 0; i < scope->n && w->rc == 0; i++) {
        stk_buf_text(w->out, i > 0 ? "," : "");
        stk_buf_json(w->out, scope->items[i]->name);
        stk_buf_printf(w->out, ":%u", number(w, scope->items[i]));
    }
    stk_buf_text(w->out, "}}");
}

static void put_ref(writer *w, const char *key, const exec_artifact *a)
{
    stk_buf_printf(w->out, ",\"%s\":", key);
    stk_buf_text(w->out, a == NULL ? "null" : a->ref.json);
}

static int put_frames(writer *w, uint32_t task)
{
    frame *frames = NULL;
    uint32_t n = 0;
    int rc = frames_of(w->x, task, &frames, &n, w->err);
    const char *comma = "";
    stk_buf_text(w->out, "],\"foreach\":[");
    while (n-- > 0 && rc == 0) {
        uint32_t split = frames[n].split;
        const stk_step *step = stk_exec_step(w->x, split);
        uint32_t width = stk_grow_get(w->x->graph.grow, split).width;
        if (step->grows != STK_NEXT_FOREACH && step->grows != STK_NEXT_PARALLEL) {
            continue;
        }
        stk_buf_printf(w->out, "%s{\"step\":\"%s\",\"task\":%u", comma, step->name,
                       stk_exec_id(w->x, split));
        comma = ",";
        if (step->grows == STK_NEXT_PARALLEL) {
            stk_buf_printf(w->out, ",\"n\":%u,\"parallel\":true}", w->x->graph.grown[split].next.n);
            continue;
        }
        stk_buf_printf(w->out, ",\"index\":%u,\"n\":%u", frames[n].index, width);
        put_ref(w, "items", w->x->graph.grown[split].items);
        put_ref(w, "list", list_of(w->x, split));
        stk_buf_char(w->out, '}');
    }
    return rc;
}

static void put_next(writer *w, const stk_step *step)
{
    static const char *const words[] = {"null", "\"all\"", "\"foreach\"", "\"parallel\"",
                                        "\"switch\""};
    stk_buf_printf(w->out, "],\"join\":%s,\"next\":[", step->is_join ? "true" : "false");
    for (uint32_t i = 0; i < step->n_next; i++) {
        stk_buf_printf(w->out, i > 0 ? ",\"%s\"" : "\"%s\"",
                       stk_spec_step(w->x->spec, step->next[i])->name);
    }
    stk_buf_printf(w->out, "],\"grows\":%s,\"on\":", words[step->grows]);
    if (step->on != NULL) {
        stk_buf_json(w->out, step->on);
    } else {
        stk_buf_text(w->out, "null");
    }
    stk_buf_text(w->out, ",\"cases\":{");
    for (uint32_t i = 0; step->cases != NULL && i < step->n_next; i++) {
        stk_buf_text(w->out, i > 0 ? "," : "");
        stk_buf_json(w->out, step->cases[i]);
        stk_buf_printf(w->out, ":\"%s\"", stk_spec_step(w->x->spec, step->next[i])->name);
    }
    stk_buf_printf(w->out, "},\"num_parallel\":%u", step->num_parallel);
}

int stk_exec_scope_json(stk_exec *x, uint32_t task, stk_buf *buf, stk_err *err)
{
    STK_BUF_AUTO refs = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES);
    STK_BUF_AUTO out = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES);
    writer w = {.x = x,
                .refs = &refs,
                .out = &out,
                .document = ++x->graph.n_documents,
                .is_away = stk_exec_is_away(x, task),
                .err = err};
    uint32_t parent, rank;
    const exec_scope *scope;
    for (uint32_t i = 0; stk_exec_scope_parent(x, task, i, &parent, &scope, &rank) && w.rc == 0;
         i++) {
        stk_buf_text(&out, i > 0 ? "," : "");
        put_parent(&w, parent, rank, scope);
    }
    int rc = w.rc < 0 ? w.rc : put_frames(&w, task);
    STK_TRY(rc);
    put_next(&w, stk_exec_step(x, task));
    const char *origin = stk_exec_clone_run(x->graph.clone);
    const char *fallback = x->graph.grown[task].fallback;
    stk_buf_text(buf, ",\"flow\":{\"refs\":[");
    stk_buf_add(buf, refs.len > 0 ? refs.data : "", refs.len);
    stk_buf_text(buf, "],\"parents\":[");
    stk_buf_add(buf, out.data, out.len);
    stk_buf_printf(buf, ",\"ranks\":%u,\"origin_run\":", stk_exec_ranks(x, task));
    if (origin != NULL) {
        stk_buf_json(buf, origin);
    } else {
        stk_buf_text(buf, "null");
    }
    stk_buf_printf(buf, ",\"max_splits\":%lld,\"fallback\":", (long long)x->graph.max_splits);
    stk_buf_text(buf, stk_text_or(fallback, "null"));
    stk_buf_char(buf, '}');
    if (buf->failed || refs.failed || out.failed) {
        bool is_full = refs.len + out.len > STK_LIMIT_RESULT_BYTES / 2;
        return !is_full ? stk_err_nomem(err)
                        : stk_err_set(err, STK_E_LIMIT,
                                      "what its inputs have is more than a task.json can tell of "
                                      "(%u MiB): drop artifacts before the join, or join in stages",
                                      STK_LIMIT_RESULT_BYTES >> 20);
    }
    return 0;
}
