/* What a task of a graph that grows said when it was done: what it made and deleted, rank by rank,
 * and what comes next. Of its result, or of an event. */
#include "run/exec/grown/exec_said.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "run/exec/core/exec_cache.h"
#include "run/exec/core/exec_end.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/core/exec_state.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/grown/exec_grown.h"
#include "sys/file.h"

/* --- reading an artifact --- */

int stk_exec_read_json(stk_exec *x, const exec_artifact *a, stk_arena *arena, stk_json *ret_json,
                       stk_err *err)
{
    static const stk_json_limits limits = {STK_LIMIT_RESULT_BYTES, STK_LIMIT_RESULT_NODES,
                                           STK_LIMIT_DEPTH};
    const char *path = NULL;
    int64_t size = 0;
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    stk_err why = {0};
    int rc = stk_store_artifact(x->config.store, a->ref.digest, x->scratch, &path, &size, err);
    if (rc < 0) {
        return stk_err_context(err, "output '%s'", a->name);
    }
    rc = stk_file_read(path, STK_LIMIT_RESULT_BYTES, &text, &len, &why);
    rc = rc < 0 ? rc : stk_json_parse(text, len, NULL, &limits, arena, ret_json, &why);
    return rc == 0 ? 0
           : rc == STK_E_NOMEM
               ? stk_err_nomem(err)
               : stk_err_set(err, STK_E_USAGE, "output '%s' is no JSON: %s", a->name, why.text);
}

/* --- of a result --- */

static exec_artifact *new_artifact(stk_exec *x, const char *name)
{
    exec_artifact *a = stk_arena_alloc(x->arena, sizeof *a);
    if (a != NULL) {
        a->name = stk_arena_dup(x->arena, name);
    }
    return a == NULL || a->name == NULL ? NULL : a;
}

/* One output: one that a parent has, or a new one. */
static int make(stk_exec *x, const exec_ending *e, const stk_result_output *r,
                const stk_output *declared, exec_artifact **ret, stk_err *err)
{
    const char *name = r != NULL ? r->name : declared->name;
    if (r != NULL && r->artifact != NULL) {
        *ret = stk_exec_scope_inherited(x, e->task, name, r->artifact);
        if (*ret != NULL) {
            return 0;
        }
        return stk_err_set(err, STK_E_PROTOCOL,
                           "output '%s' names artifact %.12s…, which none of its inputs has under "
                           "that name",
                           name, r->artifact);
    }
    *ret = new_artifact(x, name);
    STK_TRY(stk_err_if_null(*ret, err));
    return stk_exec_publish(x, e, r, declared, &(*ret)->ref, err);
}

/* Of the ranks of a command the first one owes what is declared, the others what they wrote. */
static bool is_owed(stk_exec *x, const exec_ending *e, uint32_t rank, const char *name)
{
    if (rank == 0) {
        return true;
    }
    const char *path = stk_arena_printf(x->scratch, "%s/out/%s", e->dir, name);
    return path != NULL && stk_file_exists(path);
}

static int make_part(stk_exec *x, const exec_ending *e, uint32_t rank, exec_part *ret, stk_err *err)
{
    const stk_step *step = e->step;
    uint32_t n_most = step->n_outputs + (e->has_result ? e->result.n_outputs : 0);
    exec_part part = {.made = stk_arena_array(x->scratch, (size_t)n_most + 1, sizeof *part.made)};
    int rc = part.made == NULL ? stk_err_nomem(err) : 0;
    for (uint32_t i = 0; i < step->n_outputs && rc == 0; i++) {
        const char *name = step->outputs[i].name;
        const stk_result_output *r = stk_exec_find_result(e, name);
        if (r == NULL && step->python != NULL) {
            return stk_err_set(err, STK_E_NOT_FOUND, "output '%s' is not in the task's result",
                               name);
        }
        if (r != NULL || is_owed(x, e, rank, name)) {
            rc = make(x, e, r, &step->outputs[i], &part.made[part.n_made++], err);
        }
    }
    for (uint32_t i = 0; e->has_result && i < e->result.n_outputs && rc == 0; i++) {
        if (!stk_exec_declares(step, e->result.outputs[i].name)) {
            rc = make(x, e, &e->result.outputs[i], NULL, &part.made[part.n_made++], err);
        }
    }
    if (e->has_result) {
        part.dropped = e->result.dropped;
        part.n_dropped = e->result.n_dropped;
    }
    *ret = part;
    return rc;
}

static int make_rank(stk_exec *x, const exec_ending *first, uint32_t rank, exec_part *ret,
                     stk_err *err)
{
    exec_ending e = *first;
    e.has_result = false;
    e.dir = stk_arena_printf(x->scratch, "%s/rank-%u", first->dir, rank);
    STK_TRY(stk_err_if_null(e.dir, err));
    int rc = stk_exec_read_result(x, &e, err);
    if (rc == 0 && e.step->python != NULL && !e.has_result) {
        rc = stk_err_set(err, STK_E_NOT_FOUND, "it left no result");
    }
    rc = rc < 0 ? rc : make_part(x, &e, rank, ret, err);
    return rc < 0 ? stk_err_context(err, "rank %u", rank) : rc;
}

/* --- what comes next, where only outputs say it --- */

static const exec_artifact *find_made(const exec_part *part, const char *name)
{
    for (uint32_t i = 0; i < part->n_made; i++) {
        if (strcmp(part->made[i]->name, name) == 0) {
            return part->made[i];
        }
    }
    return NULL;
}

static const exec_artifact *find_on(const stk_exec *x, uint32_t task, const exec_part *part,
                                    const char *name)
{
    uint32_t parent, rank;
    const exec_scope *scope;
    const exec_artifact *made = find_made(part, name);
    bool inherits = made == NULL && !stk_exec_step(x, task)->is_join &&
                    stk_exec_scope_parent(x, task, 0, &parent, &scope, &rank);
    return inherits ? stk_exec_scope_find(scope, name) : made;
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
                           "output '%s' says how many ranks '%s' has: it must be a whole number "
                           "of at least 1",
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
    const exec_artifact *on = step->on == NULL ? NULL : find_on(x, task, part, step->on);
    stk_json value;
    if (on == NULL) {
        return stk_err_set(err, STK_E_USAGE,
                           step->on == NULL ? "it doesn't say how many ranks come next"
                                            : "what comes next is for its output '%s' to say, and "
                                              "there is none",
                           step->on);
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
    return stk_err_set(err, STK_E_USAGE,
                       "output '%s' is %s; foreach goes over the items of a JSON list", step->on,
                       stk_json_kind_words((stk_json_kind)value.kind));
}

static int next_by_result(stk_exec *x, const exec_ending *e, exec_said *said, stk_err *err)
{
    const stk_result *r = &e->result;
    const uint32_t *steps = NULL;
    int rc = stk_grow_read_next(x->spec, x->tasks[e->task].i_step, r->next_steps, r->n_next_steps,
                                x->scratch, &steps, err);
    STK_TRY(rc);
    bool has_n = r->next_n >= 0 && r->next_n < UINT32_MAX;
    said->next = (stk_grow_next){steps, r->n_next_steps,
                                 has_n ? (uint32_t)r->next_n : e->step->num_parallel};
    if (!has_n && e->step->grows == STK_NEXT_FOREACH) {
        stk_grow_next by_list;
        rc = next_by_output(x, e->task, &said->parts[0], &by_list, err);
        said->next.n = rc < 0 ? 0 : by_list.n;
        return rc;
    }
    return 0;
}

/* What can be read one by one is an artifact like any other, under no name that the task could see.
 */
static int make_items(stk_exec *x, const exec_ending *e, exec_said *said, stk_err *err)
{
    if (!e->has_result || e->result.next_items == NULL) {
        return 0;
    }
    said->items = new_artifact(x, "next.items");
    STK_TRY(stk_err_if_null(said->items, err));
    return stk_exec_publish(x, e, e->result.next_items, NULL, &said->items->ref, err);
}

int stk_exec_say(stk_exec *x, const exec_ending *e, exec_said *ret_said, stk_failure *ret_class,
                 stk_err *err)
{
    uint32_t ranks = stk_exec_ranks(x, e->task);
    exec_said said = {.n_parts = MAX(ranks, 1)};
    said.parts = stk_arena_array(x->scratch, said.n_parts, sizeof *said.parts);
    *ret_class = STK_FAIL_OUTPUT;
    int rc = said.parts == NULL ? stk_err_nomem(err) : make_part(x, e, 0, &said.parts[0], err);
    for (uint32_t i = 1; i < said.n_parts && rc == 0; i++) {
        rc = make_rank(x, e, i, &said.parts[i], err);
    }
    rc = rc < 0 ? rc : make_items(x, e, &said, err);
    STK_TRY(rc);
    *ret_class = STK_FAIL_USAGE;
    rc = e->has_result && e->result.n_next_steps > 0
             ? next_by_result(x, e, &said, err)
             : next_by_output(x, e->task, &said.parts[0], &said.next, err);
    rc = rc < 0 ? rc : stk_exec_follow_check(x, e->task, &said.next, err);
    *ret_said = said;
    return rc;
}

/* --- as JSON --- */

static void put_made(const exec_part *part, stk_buf *buf)
{
    stk_buf_char(buf, '{');
    for (uint32_t i = 0; i < part->n_made; i++) {
        stk_buf_text(buf, i > 0 ? "," : "");
        stk_buf_json(buf, part->made[i]->name);
        stk_buf_char(buf, ':');
        stk_buf_text(buf, part->made[i]->ref.json);
    }
    stk_buf_char(buf, '}');
}

static void put_dropped(const exec_part *part, stk_buf *buf)
{
    if (part->n_dropped == 0) {
        return;
    }
    stk_buf_text(buf, ",\"dropped\":[");
    for (uint32_t i = 0; i < part->n_dropped; i++) {
        stk_json_put_text(buf, NULL, part->dropped[i]);
    }
    stk_json_close(buf, ']');
}

void stk_exec_said_json(const stk_exec *x, const exec_said *said, stk_buf *outputs, stk_buf *more)
{
    put_made(&said->parts[0], outputs);
    put_dropped(&said->parts[0], more);
    stk_buf_text(more, ",\"next\":{");
    stk_json_open(more, "steps", '[');
    for (uint32_t i = 0; i < said->next.n_steps; i++) {
        stk_json_put_text(more, NULL, stk_spec_step(x->spec, said->next.steps[i])->name);
    }
    stk_json_close(more, ']');
    stk_json_put_whole(more, "n", said->next.n);
    if (said->items != NULL) {
        stk_json_put_raw(more, "items", said->items->ref.json);
    }
    stk_json_close(more, '}');
    for (uint32_t i = 1; i < said->n_parts; i++) {
        stk_buf_text(more, i > 1 ? ",{\"outputs\":" : ",\"ranks\":[{\"outputs\":");
        put_made(&said->parts[i], more);
        put_dropped(&said->parts[i], more);
        stk_buf_text(more, i + 1 == said->n_parts ? "}]" : "}");
    }
}

/* --- of an attempt that failed --- */

/* What can't be published is left out: its failure has been told, and nothing goes on from here. */
static exec_part left_by(stk_exec *x, const exec_ending *e)
{
    stk_err ignored = {0};
    uint32_t n = e->has_result ? e->result.n_outputs : 0;
    exec_part part = {.made = stk_arena_array(x->scratch, (size_t)n + 1, sizeof *part.made)};
    for (uint32_t i = 0; i < n && part.made != NULL; i++) {
        uint32_t n_refs = x->pending.n_refs;
        if (make(x, e, &e->result.outputs[i], NULL, &part.made[part.n_made], &ignored) == 0) {
            part.n_made++;
        } else {
            x->pending.n_refs = n_refs;
        }
    }
    if (e->has_result) {
        part.dropped = e->result.dropped;
        part.n_dropped = e->result.n_dropped;
    }
    return part;
}

/* The launcher's result is the word of one of its ranks: they are asked themselves. */
static exec_part left_by_rank(stk_exec *x, const exec_ending *whole, uint32_t rank)
{
    exec_ending e = *whole;
    stk_err ignored = {0};
    e.has_result = false;
    e.dir = stk_arena_printf(x->scratch, "%s/rank-%u", whole->dir, rank);
    if (e.dir == NULL || stk_exec_read_result(x, &e, &ignored) < 0) {
        return (exec_part){0};
    }
    e.dir = rank == 0 ? whole->dir : e.dir; /* its outputs are the task's */
    return left_by(x, &e);
}

void stk_exec_said_left(stk_exec *x, const exec_ending *e, stk_buf *buf)
{
    uint32_t n = stk_exec_ranks(x, e->task);
    bool is_gang = stk_exec_gang(x, e->task).ranks != 0;
    for (uint32_t i = 0; i < MAX(n, 1); i++) {
        exec_part part = is_gang ? left_by_rank(x, e, i) : left_by(x, e);
        stk_buf_text(buf, i == 0   ? ",\"outputs\":"
                          : i == 1 ? ",\"ranks\":[{\"outputs\":"
                                   : "},{\"outputs\":");
        put_made(&part, buf);
        put_dropped(&part, buf);
    }
    stk_buf_text(buf, n > 1 ? "}]" : "");
}

/* --- and back --- */

/* A ref of an event → an artifact that is in the store. */
static int take(stk_exec *x, uint32_t task, const char *name, const stk_json *ref,
                exec_artifact **ret, stk_err *err)
{
    const char *digest = stk_json_get_text(ref, "digest");
    stk_err ignored;
    if (digest == NULL || stk_exec_lookup_artifact(&x->lookup, digest, &ignored) < 0) {
        return stk_err_set(err, STK_E_NOT_FOUND, "its stored output '%s' is gone", name);
    }
    *ret = stk_exec_step(x, task)->is_join ? NULL : stk_exec_scope_inherited(x, task, name, digest);
    if (*ret != NULL) {
        return 0;
    }
    *ret = new_artifact(x, name);
    if (*ret != NULL) {
        (*ret)->ref.digest = stk_arena_dup(x->arena, digest);
        (*ret)->ref.json = stk_json_dump_in(ref, x->arena);
    }
    return *ret == NULL || (*ret)->ref.digest == NULL || (*ret)->ref.json == NULL
               ? stk_err_nomem(err)
               : 0;
}

static int take_part(stk_exec *x, uint32_t task, const stk_json *data, exec_part *ret, stk_err *err)
{
    const stk_json *outputs = stk_json_get(data, "outputs");
    const stk_json *dropped = stk_json_get(data, "dropped");
    exec_part part = {.n_dropped = (uint32_t)stk_json_n_items(dropped)};
    part.made = stk_arena_array(x->scratch, stk_json_n_members(outputs) + 1, sizeof *part.made);
    const char **names = stk_arena_array(x->scratch, (size_t)part.n_dropped + 1, sizeof *names);
    if (part.made == NULL || names == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < part.n_dropped; i++) {
        const char *name = stk_json_text(stk_json_item(dropped, i));
        names[i] = stk_arena_dup(x->scratch, stk_text_or(name, ""));
        STK_TRY(stk_err_if_null(names[i], err));
    }
    part.dropped = names;
    int rc = 0;
    for (uint32_t k = 0; k < stk_json_n_members(outputs); k++) {
        const char *name = stk_json_key(outputs, k)->text;
        const stk_json *ref = stk_json_value(outputs, k);
        rc = rc < 0 ? rc : take(x, task, name, ref, &part.made[part.n_made++], err);
    }
    *ret = part;
    return rc;
}

int stk_exec_said_load(stk_exec *x, uint32_t task, const stk_json *data, exec_said *ret_said,
                       stk_err *err)
{
    const stk_json *ranks = stk_json_get(data, "ranks");
    const stk_json *next = stk_json_get(data, "next");
    const stk_json *items = stk_json_get(next, "items");
    exec_said said = {.n_parts = (uint32_t)stk_json_n_items(ranks) + 1};
    said.parts = stk_arena_array(x->scratch, said.n_parts, sizeof *said.parts);
    int rc = said.parts == NULL ? stk_err_nomem(err) : take_part(x, task, data, said.parts, err);
    for (uint32_t i = 1; i < said.n_parts && rc == 0; i++) {
        rc = take_part(x, task, stk_json_item(ranks, i - 1), &said.parts[i], err);
    }
    rc = rc < 0 ? rc
                : stk_exec_next_load(x->spec, x->tasks[task].i_step, next, x->scratch, &said.next,
                                     err);
    if (rc == 0 && items != NULL) {
        rc = take(x, task, "next.items", items, &said.items, err);
    }
    *ret_said = said;
    return rc;
}
