/* The content cache of a graph that grows, for steps that turn it on. A task can read its whole
 * scope, its item and the item's index, so all of these are in the key. A cache entry also has the
 * tasks that came next. */
#include <string.h>

#include "base/limits.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/grown/exec_made.h"

/* --- what a task can read --- */

static const char *digest_of(stk_exec *x, const char *text, size_t len)
{
    char hex[STK_DIGEST_HEX + 1];
    stk_digest_of(text, len, hex);
    return stk_arena_dup(x->lookup.arena, hex);
}

static const char *scope_digest(stk_exec *x, const exec_scope *scope)
{
    STK_BUF_AUTO buf = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES);
    stk_buf_text(&buf, "stoker-scope-1\n");
    for (uint32_t i = 0; i < scope->n; i++) {
        stk_buf_printf(&buf, "%s %s\n", scope->items[i]->ref.digest, scope->items[i]->name);
    }
    if (buf.failed) {
        return NULL;
    }
    return digest_of(x, buf.data, buf.len);
}

/* The digest of a join's scopes, in the order of its inputs. */
static const char *joined_digest(stk_exec *x, uint32_t task)
{
    const char **digests = NULL;
    uint32_t n = 0, cap = 0, parent, rank;
    const exec_scope *scope;
    char hex[STK_DIGEST_HEX + 1];
    for (; stk_exec_scope_parent(x, task, n, &parent, &scope, &rank); n++) {
        digests = stk_arena_grow(x->scratch, digests, n, sizeof *digests, &cap);
        if (digests == NULL || (digests[n] = scope_digest(x, scope)) == NULL) {
            return NULL;
        }
    }
    stk_plan_list_digest(digests, n, hex);
    return stk_arena_dup(x->lookup.arena, hex);
}

typedef struct seen {
    stk_pair *pairs;
    uint32_t n;
    bool failed;
} seen;

static void see(seen *s, const char *key, const char *value)
{
    s->failed = s->failed || key == NULL || value == NULL;
    s->pairs[s->n++] = (stk_pair){key, value};
}

/* Adds the item and its index. If the items are no JSON, the key has only the index: the artifact
 * with all items is in it anyway. */
static int see_item(stk_exec *x, uint32_t task, seen *s, stk_err *err)
{
    const char *item = NULL;
    uint32_t index = UINT32_MAX;
    stk_err why = {0};
    int rc = stk_exec_scope_item(x, task, &item, &index, &why);
    if (rc == STK_E_NOMEM) {
        *err = why;
        return rc;
    }
    if (rc == 0) {
        see(s, "item", digest_of(x, item, strlen(item)));
    }
    if (index != UINT32_MAX) {
        see(s, "index", stk_arena_printf(x->lookup.arena, "%u", index));
    }
    return 0;
}

static int see_scope(stk_exec *x, uint32_t task, seen *s, stk_err *err)
{
    enum { OTHERS = 4 };
    stk_arena *arena = x->lookup.arena;
    const exec_scope *scope = stk_exec_scope_base(x, task);
    uint32_t ranks = stk_exec_ranks(x, task);
    s->pairs = stk_arena_array(arena, (size_t)scope->n + OTHERS, sizeof *s->pairs);
    STK_TRY(stk_err_if_null(s->pairs, err));
    for (uint32_t i = 0; i < scope->n; i++) {
        see(s, stk_arena_printf(arena, "artifact:%s", scope->items[i]->name),
            scope->items[i]->ref.digest);
    }
    if (stk_exec_step(x, task)->is_join) {
        see(s, "joined", joined_digest(x, task));
    }
    if (ranks > 0) {
        see(s, "ranks", stk_arena_printf(arena, "%u", ranks));
    }
    STK_TRY(see_item(x, task, s, err));
    if (!s->failed) {
        return 0;
    }
    return stk_err_nomem(err);
}

/* --- the inputs that the step declares --- */

static const char *digest_seen(stk_exec *x, uint32_t task, const stk_input *in, stk_err *err)
{
    const exec_artifact **found = NULL;
    const char *item = NULL;
    uint32_t n = 0;
    char hex[STK_DIGEST_HEX + 1];
    if (in->kind == STK_INPUT_ITEM) {
        int rc = stk_exec_scope_item(x, task, &item, &n, err);
        if (rc < 0) {
            return NULL;
        }
        return digest_of(x, item, strlen(item));
    }
    if (in->kind != STK_INPUT_OUTPUT) {
        return stk_exec_input_digest(&x->lookup, in, err);
    }
    if (stk_exec_scope_from(x, task, in, &found, &n, err) < 0) {
        return NULL;
    }
    if (!stk_exec_step(x, task)->is_join) {
        return found[0]->ref.digest;
    }
    const char **digests = stk_arena_array(x->scratch, n, sizeof *digests);
    if (digests == NULL) {
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        digests[i] = found[i]->ref.digest;
    }
    stk_plan_list_digest(digests, n, hex);
    return stk_arena_dup(x->lookup.arena, hex);
}

/* *ret_miss: why the task has no key, because an input can't be read. The task's start will report
 * the error. */
static int make_key(stk_exec *x, uint32_t task, stk_key *ret_key, const char **ret_miss,
                    stk_err *err)
{
    const stk_step *step = stk_exec_step(x, task);
    stk_arena *arena = x->lookup.arena;
    uint32_t n_files = step->settings->cache.n_files;
    const char **digests = stk_arena_array(arena, (size_t)step->n_inputs + 1, sizeof *digests);
    const char **files = stk_arena_array(arena, (size_t)n_files + 1, sizeof *files);
    seen s = {0};
    stk_err why = {0};
    if (digests == NULL || files == NULL) {
        return stk_err_nomem(err);
    }
    STK_TRY(see_scope(x, task, &s, err));
    for (uint32_t i = 0; i < step->n_inputs && why.code == 0; i++) {
        const stk_input *in = &step->inputs[i];
        if (stk_exec_literal(x->spec, in) == NULL) {
            digests[i] = digest_seen(x, task, in, &why);
        }
    }
    if (why.code == 0) {
        (void)stk_exec_lookup_files(&x->lookup, step, files, &why);
    }
    if (why.code == STK_E_NOMEM) {
        return stk_err_nomem(err);
    }
    if (why.code != 0) {
        *ret_miss = stk_arena_dup(arena, why.text);
        return stk_err_if_null(*ret_miss, err);
    }
    x->tasks[task].inputs = stk_exec_inputs_json(&x->lookup, step, digests);
    return stk_plan_key_seeing(x->config.plan, x->tasks[task].i_step, digests, files, s.pairs, s.n,
                               arena, ret_key, err);
}

int stk_exec_load_taken(stk_exec *x, uint32_t task, const stk_json *data, exec_made *ret_made,
                        bool *ret_is_good, stk_err *why, stk_err *err)
{
    int rc = stk_exec_load_made(x, task, data, ret_made, why);
    if (rc >= 0) {
        rc = stk_exec_follow_check(x, task, &ret_made->next, why);
    }
    *ret_is_good = rc >= 0;
    if (rc == STK_E_NOMEM || rc == STK_E_FULL) {
        *err = *why;
        return rc;
    }
    return 0;
}

int stk_exec_lookup_taken(stk_exec *x, uint32_t task, exec_taken *ret_taken, stk_err *err)
{
    exec_task *t = &x->tasks[task];
    const stk_cache_policy *cache = &stk_exec_step(x, task)->settings->cache;
    exec_found entry = {.verdict = EXEC_MISS};
    stk_key key = {.n_parts = 0};
    stk_err why = {0};
    bool is_good = false;
    if (!cache->enabled || !cache->is_asked) {
        return 0;
    }
    t->miss = NULL;
    STK_TRY(make_key(x, task, &key, &t->miss, err));
    if (t->miss != NULL) {
        return 0;
    }
    int rc = stk_exec_lookup_key(&x->lookup, t->i_step, &key, x->config.use_cache,
                                 stk_clock_wall_ms(x->config.clock), &entry, err);
    t->key = entry.key;
    t->parts = entry.parts;
    t->miss = entry.miss;
    if (rc < 0 || entry.verdict == EXEC_MISS) {
        return rc;
    }
    /* for a new cache entry, if the task must run after all */
    t->parts = stk_plan_key_json(&key, x->lookup.arena);
    STK_TRY(stk_err_if_null(t->parts, err));
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    STK_TRY(stk_exec_load_taken(x, task, stk_json_read(scratch, entry.row.outputs),
                                &ret_taken->made, &is_good, &why, err));
    if (!is_good) {
        t->miss = stk_arena_dup(x->lookup.arena, why.text);
        return 0;
    }
    ret_taken->key = entry.key;
    ret_taken->from_run = entry.row.run;
    ret_taken->from_task = entry.row.task;
    ret_taken->metadata = entry.row.metadata;
    return 0;
}
