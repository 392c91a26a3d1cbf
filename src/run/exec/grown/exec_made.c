/* The results of a finished task, read from its result file or from an event: the outputs of each
 * rank and, if the graph grows, the deleted names and what comes next. */
#include "run/exec/grown/exec_made.h"

#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/grown/exec_grow.h"
#include "sys/file.h"

/* --- reading an artifact --- */

int stk_exec_read_json(stk_exec *x, const exec_artifact *a, stk_arena *arena, stk_json *ret_json,
                       stk_err *err)
{
    static const stk_json_limits limits = {STK_LIMIT_RESULT_BYTES, STK_LIMIT_RESULT_NODES,
                                           STK_LIMIT_DEPTH};
    const char *path = NULL;
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    stk_err why = {0};
    int rc = stk_store_artifact(x->config.store, a->ref.digest, x->scratch, &path, NULL, err);
    if (rc < 0) {
        return stk_err_context(err, "output '%s'", a->name);
    }
    rc = stk_file_read(path, STK_LIMIT_RESULT_BYTES, &text, &len, &why);
    if (rc >= 0) {
        rc = stk_json_parse(text, len, NULL, &limits, arena, ret_json, &why);
    }
    if (rc == STK_E_NOMEM) {
        return stk_err_nomem(err);
    }
    if (rc < 0) {
        return stk_err_set(err, STK_E_USAGE, "output '%s' is not JSON: %s", a->name, why.text);
    }
    return 0;
}

/* --- from a result file --- */

static exec_artifact *new_artifact(stk_exec *x, const char *name)
{
    exec_artifact *a = stk_arena_alloc(x->arena, sizeof *a);
    if (a != NULL) {
        a->name = stk_arena_dup(x->arena, name);
    }
    return a == NULL || a->name == NULL ? NULL : a;
}

/* Makes a part with room for all outputs of the attempt. */
static int new_part(stk_exec *x, const exec_ending *e, exec_part *ret, stk_err *err)
{
    size_t most = e->step->n_outputs;
    *ret = (exec_part){.n_artifacts = 0};
    if (e->has_result) {
        most += e->result.n_outputs;
        ret->dropped = e->result.dropped;
        ret->n_dropped = e->result.n_dropped;
    }
    ret->artifacts = stk_arena_array(x->scratch, most + 1, sizeof *ret->artifacts);
    return stk_err_if_null(ret->artifacts, err);
}

/* Adds one output: an artifact that a parent has under that name, or a new one. */
static int add_output(stk_exec *x, const exec_ending *e, const stk_result_output *r,
                      const stk_output *declared, exec_part *part, stk_err *err)
{
    const char *name = r != NULL ? r->name : declared->name;
    exec_artifact *a;
    if (x->graph.grow != NULL && r != NULL && r->artifact != NULL) {
        a = stk_exec_scope_inherited(x, e->task, name, r->artifact);
        if (a == NULL) {
            return stk_err_set(err, STK_E_PROTOCOL,
                               "output '%s' names artifact %.12s…, which none of its inputs has "
                               "under that name",
                               name, r->artifact);
        }
    } else {
        a = new_artifact(x, name);
        STK_TRY(stk_err_if_null(a, err));
        STK_TRY(stk_exec_publish(x, e, r, declared, &a->ref, err));
    }
    part->artifacts[part->n_artifacts++] = a;
    return 0;
}

/* Whether a rank of a command must have the declared output: rank 0 always, the others only if they
 * wrote it. */
static bool is_owed(stk_exec *x, const exec_ending *e, uint32_t rank, const char *name)
{
    if (rank == 0) {
        return true;
    }
    const char *path = stk_arena_printf(x->scratch, "%s/out/%s", e->dir, name);
    return path != NULL && stk_file_exists(path);
}

/* Adds the declared outputs first, then the other ones that the task saved (save_artifact). */
static int make_part(stk_exec *x, const exec_ending *e, uint32_t rank, exec_part *ret, stk_err *err)
{
    const stk_step *step = e->step;
    STK_TRY(new_part(x, e, ret, err));
    for (uint32_t i = 0; i < step->n_outputs; i++) {
        const char *name = step->outputs[i].name;
        const stk_result_output *r = stk_exec_find_result(e, name);
        if (r == NULL && step->python != NULL) {
            return stk_err_set(err, STK_E_NOT_FOUND, "output '%s' is not in the task's result",
                               name);
        }
        if (r != NULL || is_owed(x, e, rank, name)) {
            STK_TRY(add_output(x, e, r, &step->outputs[i], ret, err));
        }
    }
    for (uint32_t i = 0; e->has_result && i < e->result.n_outputs; i++) {
        if (!stk_exec_declares(step, e->result.outputs[i].name)) {
            STK_TRY(add_output(x, e, &e->result.outputs[i], NULL, ret, err));
        }
    }
    return 0;
}

static int make_rank(stk_exec *x, const exec_ending *whole, uint32_t rank, exec_part *ret,
                     stk_err *err)
{
    exec_ending e;
    int rc = stk_exec_read_rank(x, whole, rank, &e, err);
    if (rc == 0 && e.step->python != NULL && !e.has_result) {
        rc = stk_err_set(err, STK_E_NOT_FOUND, "it left no result");
    }
    if (rc == 0) {
        rc = make_part(x, &e, rank, ret, err);
    }
    if (rc >= 0) {
        return 0;
    }
    return stk_err_context(err, "rank %u", rank);
}

/* --- what comes next, by the value of an output --- */

static const exec_artifact *find_made(const exec_part *part, const char *name)
{
    for (uint32_t i = 0; i < part->n_artifacts; i++) {
        if (strcmp(part->artifacts[i]->name, name) == 0) {
            return part->artifacts[i];
        }
    }
    return NULL;
}

static const exec_artifact *find_on(const stk_exec *x, uint32_t task, const exec_part *part,
                                    const char *name)
{
    const exec_artifact *made = find_made(part, name);
    return made != NULL ? made : stk_exec_scope_find(stk_exec_scope_base(x, task), name);
}

static int choose(stk_exec *x, const stk_step *step, const stk_json *value, stk_grow_next *next,
                  stk_err *err)
{
    uint32_t *chosen = stk_arena_alloc(x->scratch, sizeof *chosen);
    const char *text =
        value->kind == STK_JSON_TEXT ? stk_json_text(value) : stk_json_dump_in(value, x->scratch);
    uint32_t i_step = (uint32_t)stk_spec_find(x->spec, step->name);
    if (chosen == NULL || text == NULL) {
        return stk_err_nomem(err);
    }
    int64_t at = stk_grow_case(x->spec, i_step, text);
    if (at < 0) {
        return stk_grow_refuse_case(x->spec, i_step, text, err);
    }
    *chosen = step->next[at];
    *next = (stk_grow_next){.steps = chosen, .n_steps = 1};
    return 0;
}

static int ranks_of(const stk_json *value, const stk_step *step, stk_grow_next *next, stk_err *err)
{
    int64_t n = 0;
    if (!stk_json_int(value, &n) || n < 1 || n > UINT32_MAX - 1) {
        return stk_err_set(err, STK_E_USAGE,
                           "output '%s' sets the number of ranks after '%s': it must be a whole "
                           "number of at least 1",
                           step->on, step->name);
    }
    next->n = (uint32_t)n;
    return 0;
}

static int next_by_output(stk_exec *x, uint32_t task, const exec_part *part, stk_grow_next *next,
                          stk_err *err)
{
    const stk_step *step = stk_exec_step(x, task);
    *next = (stk_grow_next){.steps = step->next, .n_steps = step->n_next, .n = step->num_parallel};
    bool asks = step->grows == STK_NEXT_FOREACH || step->grows == STK_NEXT_SWITCH ||
                (step->grows == STK_NEXT_PARALLEL && step->num_parallel == 0);
    if (!asks) {
        return 0;
    }
    if (step->on == NULL) {
        return stk_err_set(err, STK_E_USAGE, "it doesn't give the number of ranks that come next");
    }
    const exec_artifact *on = find_on(x, task, part, step->on);
    stk_json value;
    if (on == NULL) {
        return stk_err_set(err, STK_E_USAGE,
                           "its output '%s' decides what comes next, but it is missing", step->on);
    }
    STK_TRY(stk_exec_read_json(x, on, x->scratch, &value, err));
    if (step->grows == STK_NEXT_SWITCH) {
        return choose(x, step, &value, next, err);
    }
    if (step->grows == STK_NEXT_PARALLEL) {
        return ranks_of(&value, step, next, err);
    }
    next->n = value.n;
    if (value.kind == STK_JSON_LIST) {
        return 0;
    }
    return stk_err_set(err, STK_E_USAGE, "output '%s' is %s; foreach needs a JSON list", step->on,
                       stk_json_kind_words((stk_json_kind)value.kind));
}

static int next_by_result(stk_exec *x, const exec_ending *e, exec_made *made, stk_err *err)
{
    const stk_result *r = &e->result;
    const uint32_t *steps = NULL;
    bool has_n = r->next_n >= 0 && r->next_n < UINT32_MAX;
    uint32_t n = has_n ? (uint32_t)r->next_n : e->step->num_parallel;
    STK_TRY(stk_grow_read_next(x->spec, x->tasks[e->task].i_step, r->next_steps, r->n_next_steps,
                               x->scratch, &steps, err));
    if (!has_n && e->step->grows == STK_NEXT_FOREACH) {
        stk_grow_next by_list;
        STK_TRY(next_by_output(x, e->task, &made->parts[0], &by_list, err));
        n = by_list.n;
    }
    made->next = (stk_grow_next){steps, r->n_next_steps, n};
    return 0;
}

/* Publishes the items in the form that can be read one by one. No scope contains this artifact, so
 * no task sees its name. */
static int make_items(stk_exec *x, const exec_ending *e, exec_made *made, stk_err *err)
{
    if (!e->has_result || e->result.next_items == NULL) {
        return 0;
    }
    made->items = new_artifact(x, "next.items");
    STK_TRY(stk_err_if_null(made->items, err));
    return stk_exec_publish(x, e, e->result.next_items, NULL, &made->items->ref, err);
}

static int new_parts(stk_exec *x, uint32_t n, exec_made *ret, stk_err *err)
{
    *ret = (exec_made){.parts = stk_arena_array(x->scratch, n, sizeof *ret->parts), .n_parts = n};
    return stk_err_if_null(ret->parts, err);
}

int stk_exec_make(stk_exec *x, const exec_ending *e, exec_made *ret_made, stk_failure *ret_class,
                  stk_err *err)
{
    *ret_class = STK_FAIL_OUTPUT;
    STK_TRY(new_parts(x, MAX(stk_exec_ranks(x, e->task), 1), ret_made, err));
    STK_TRY(make_part(x, e, 0, &ret_made->parts[0], err));
    for (uint32_t i = 1; i < ret_made->n_parts; i++) {
        STK_TRY(make_rank(x, e, i, &ret_made->parts[i], err));
    }
    if (x->graph.grow == NULL) {
        return 0;
    }
    STK_TRY(make_items(x, e, ret_made, err));
    *ret_class = STK_FAIL_USAGE;
    if (e->has_result && e->result.n_next_steps > 0) {
        STK_TRY(next_by_result(x, e, ret_made, err));
    } else {
        STK_TRY(next_by_output(x, e->task, &ret_made->parts[0], &ret_made->next, err));
    }
    return stk_exec_follow_check(x, e->task, &ret_made->next, err);
}

/* --- written as JSON --- */

void stk_exec_put_outputs(stk_buf *buf, const char *key, const exec_part *part)
{
    stk_json_open(buf, key, '{');
    for (uint32_t i = 0; i < part->n_artifacts; i++) {
        stk_json_put_raw(buf, part->artifacts[i]->name, part->artifacts[i]->ref.json);
    }
    stk_json_close(buf, '}');
}

static void put_part(stk_buf *buf, const exec_part *part)
{
    stk_exec_put_outputs(buf, "outputs", part);
    if (part->n_dropped > 0) {
        stk_json_put_n_texts(buf, "dropped", part->dropped, part->n_dropped);
    }
}

static void put_ranks(stk_buf *buf, const exec_made *made)
{
    if (made->n_parts > 1) {
        stk_json_open(buf, "ranks", '[');
        for (uint32_t i = 1; i < made->n_parts; i++) {
            stk_json_open(buf, NULL, '{');
            put_part(buf, &made->parts[i]);
            stk_json_close(buf, '}');
        }
        stk_json_close(buf, ']');
    }
}

void stk_exec_put_made(const stk_exec *x, const exec_made *made, stk_buf *buf)
{
    if (x->graph.grow == NULL) {
        stk_exec_put_outputs(buf, "outputs", &made->parts[0]);
        return;
    }
    put_part(buf, &made->parts[0]);
    stk_json_open(buf, "next", '{');
    stk_json_open(buf, "steps", '[');
    for (uint32_t i = 0; i < made->next.n_steps; i++) {
        stk_json_put_text(buf, NULL, stk_spec_step(x->spec, made->next.steps[i])->name);
    }
    stk_json_close(buf, ']');
    stk_json_put_whole(buf, "n", made->next.n);
    if (made->items != NULL) {
        stk_json_put_raw(buf, "items", made->items->ref.json);
    }
    stk_json_close(buf, '}');
    put_ranks(buf, made);
}

/* --- from an attempt that failed --- */

/* Leaves out what can't be published: the attempt's failure is reported already, and no task
 * follows it. */
static void make_what_is_left(stk_exec *x, const exec_ending *e, exec_part *ret)
{
    stk_err ignored = {0};
    uint32_t n = e->has_result ? e->result.n_outputs : 0;
    if (new_part(x, e, ret, &ignored) < 0) {
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t n_refs = x->pending.n_refs;
        if (add_output(x, e, &e->result.outputs[i], NULL, ret, &ignored) < 0) {
            x->pending.n_refs = n_refs;
        }
    }
}

void stk_exec_put_left(stk_exec *x, const exec_ending *e, stk_buf *buf)
{
    exec_made made;
    stk_err ignored = {0};
    bool is_gang = stk_exec_gang(x, e->task).ranks != 0;
    if (new_parts(x, MAX(stk_exec_ranks(x, e->task), 1), &made, &ignored) < 0) {
        buf->failed = true;
        return;
    }
    for (uint32_t i = 0; i < made.n_parts; i++) {
        exec_ending of_rank = *e;
        /* the launcher's result is that of one rank: read the result of each rank instead */
        if (is_gang && stk_exec_read_rank(x, e, i, &of_rank, &ignored) < 0) {
            continue;
        }
        if (i == 0) {
            of_rank.dir = e->dir; /* rank 0 writes the task's outputs */
        }
        make_what_is_left(x, &of_rank, &made.parts[i]);
    }
    put_part(buf, &made.parts[0]);
    put_ranks(buf, &made);
    if (stk_exec_step(x, e->task)->fallback &&
        stk_exec_scope_leave(x, e->task, &made, &ignored) < 0) {
        buf->failed = true;
    }
}

/* --- read from an event --- */

/* Makes an artifact from a ref of an event. STK_E_NOT_FOUND: the store lacks it. */
static int load_artifact(stk_exec *x, uint32_t task, const char *name, const stk_json *ref,
                         exec_artifact **ret, stk_err *err)
{
    const char *digest = stk_json_get_text(ref, "digest");
    stk_err ignored;
    if (digest == NULL || stk_exec_lookup_artifact(&x->lookup, digest, &ignored) < 0) {
        return stk_err_set(err, STK_E_NOT_FOUND, "its stored output '%s' is missing", name);
    }
    if (!stk_exec_step(x, task)->is_join) {
        *ret = stk_exec_scope_inherited(x, task, name, digest);
        if (*ret != NULL) {
            return 0;
        }
    }
    exec_artifact *a = new_artifact(x, name);
    STK_TRY(stk_err_if_null(a, err));
    a->ref.digest = stk_arena_dup(x->arena, digest);
    a->ref.json = stk_json_dump_in(ref, x->arena);
    *ret = a;
    STK_TRY(stk_err_if_null(a->ref.digest, err));
    return stk_err_if_null(a->ref.json, err);
}

static int load_part(stk_exec *x, uint32_t task, const stk_json *data, exec_part *ret, stk_err *err)
{
    const stk_json *outputs = stk_json_get(data, "outputs");
    const stk_json *dropped = stk_json_get(data, "dropped");
    uint32_t n = stk_json_n_members(outputs), n_dropped = stk_json_n_items(dropped);
    const char **names = stk_arena_array(x->scratch, (size_t)n_dropped + 1, sizeof *names);
    *ret = (exec_part){.artifacts = stk_arena_array(x->scratch, n + 1, sizeof *ret->artifacts),
                       .dropped = names,
                       .n_dropped = n_dropped};
    if (ret->artifacts == NULL || names == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < n_dropped; i++) {
        const char *name = stk_json_text(stk_json_item(dropped, i));
        names[i] = stk_arena_dup(x->scratch, stk_text_or(name, ""));
        STK_TRY(stk_err_if_null(names[i], err));
    }
    for (; ret->n_artifacts < n; ret->n_artifacts++) {
        uint32_t i = ret->n_artifacts;
        STK_TRY(load_artifact(x, task, stk_json_key(outputs, i)->text, stk_json_value(outputs, i),
                              &ret->artifacts[i], err));
    }
    return 0;
}

int stk_exec_load_made(stk_exec *x, uint32_t task, const stk_json *data, exec_made *ret_made,
                       stk_err *err)
{
    const stk_json *ranks = stk_json_get(data, "ranks");
    const stk_json *next = stk_json_get(data, "next");
    const stk_json *items = stk_json_get(next, "items");
    STK_TRY(new_parts(x, stk_json_n_items(ranks) + 1, ret_made, err));
    STK_TRY(load_part(x, task, data, &ret_made->parts[0], err));
    for (uint32_t i = 1; i < ret_made->n_parts; i++) {
        STK_TRY(load_part(x, task, stk_json_item(ranks, i - 1), &ret_made->parts[i], err));
    }
    STK_TRY(
        stk_exec_next_load(x->spec, x->tasks[task].i_step, next, x->scratch, &ret_made->next, err));
    if (items != NULL) {
        STK_TRY(load_artifact(x, task, "next.items", items, &ret_made->items, err));
    }
    return 0;
}
