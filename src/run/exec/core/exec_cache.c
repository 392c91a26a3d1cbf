/* Looks up a step in the cache: the digests of its inputs make the key, the key finds an entry, and
 * the entry must still hold. In doubt it is a miss. */
#include "run/exec/core/exec_cache.h"

#include <errno.h>
#include <string.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "run/exec/core/exec_event.h"
#include "run/exec/core/exec_reads.h"
#include "run/exec/core/exec_sum.h"
#include "sys/file.h"

void stk_exec_lookup_init(exec_lookup *lookup, stk_store *store, const stk_plan *plan,
                          stk_arena *arena)
{
    *lookup = (exec_lookup){.store = store, .plan = plan, .arena = arena};
}

void stk_exec_lookup_done(exec_lookup *lookup)
{
    stk_map_done(&lookup->files);
    stk_map_done(&lookup->seen);
    stk_map_done(&lookup->origins);
}

/* *ret_comes: a thread is hashing the file, `hex` has no digest yet, and the caller's action is put
 * aside. */
static int sum_file(exec_lookup *lookup, const char *path, char hex[STK_DIGEST_HEX + 1],
                    bool *ret_comes, stk_err *err)
{
    int64_t size = 0;
    stk_store_work *work = NULL;
    if (lookup->sum == NULL ||
        !stk_exec_sum_is_long(lookup->sum, lookup->store, EXEC_SUM_FILE, path, NULL)) {
        return stk_store_digest_path(path, hex, &size, err);
    }
    STK_TRY(stk_exec_sum_ask(lookup->sum, lookup->store, EXEC_SUM_FILE, path, NULL, &work, err));
    *ret_comes = work == NULL;
    if (*ret_comes) {
        stk_digest_of("", 0, hex);
    } else {
        stk_store_work_summed(work, hex, &size);
    }
    return 0;
}

static const char *known_digest(const stk_map *digests, const char *path)
{
    uint64_t known = 0;
    return stk_map_get(digests, path, &known) ? (const char *)(uintptr_t)known : NULL;
}

/* NULL: no memory. */
static const char *keep_digest(stk_map *digests, stk_arena *arena, const char *path,
                               const char *hex)
{
    char *key = stk_arena_dup(arena, path), *digest = stk_arena_dup(arena, hex);
    bool is_kept =
        key != NULL && digest != NULL && stk_map_put(digests, key, (uintptr_t)digest) == 0;
    return is_kept ? digest : NULL;
}

/* Digest of a file outside the store, read once a run. NULL when it can't be read. */
const char *stk_exec_file_digest(exec_lookup *lookup, const char *path, stk_err *err)
{
    const char *digest = known_digest(&lookup->files, path);
    char hex[STK_DIGEST_HEX + 1];
    stk_err why = {0};
    bool comes = false;
    if (digest != NULL) {
        return digest;
    }
    if (sum_file(lookup, path, hex, &comes, &why) < 0) {
        if (why.sys == ENOENT || why.sys == ENOTDIR) {
            stk_err_set(err, STK_E_NOT_FOUND,
                        "there is no file '%s'; make it before the run, or correct its path (a "
                        "relative one counts from the folder of the pipeline's document)",
                        path);
        } else if (err != NULL) {
            *err = why;
        }
        return NULL;
    }
    if (comes) {
        return stk_arena_dup(lookup->arena, hex);
    }
    digest = keep_digest(&lookup->files, lookup->arena, path, hex);
    (void)stk_err_if_null(digest, err);
    return digest;
}

const char *stk_exec_absolute(const stk_spec *spec, const char *path, stk_arena *arena)
{
    if (path[0] == '/') {
        return path;
    }
    return stk_arena_printf(arena, "%s/%s", stk_spec_folder(spec), path);
}

const char *stk_exec_literal(const stk_spec *spec, const stk_input *in)
{
    if (in->kind == STK_INPUT_PARAM) {
        return stk_text_or(stk_spec_param(spec, in->i_param)->value, "null");
    }
    return in->kind == STK_INPUT_VALUE ? in->text : NULL;
}

static const char *digest_at(exec_lookup *lookup, const char *path, stk_err *err)
{
    const char *at = stk_exec_absolute(stk_plan_spec(lookup->plan), path, lookup->arena);
    if (at == NULL) {
        stk_err_nomem(err);
        return NULL;
    }
    return stk_exec_file_digest(lookup, at, err);
}

/* The digest of one input, or NULL with `err` set; literals and parameters have none. */
static const char *input_digest(exec_lookup *lookup, const stk_input *in, exec_outputs_fn outputs,
                                void *arg, stk_err *err);

const char *stk_exec_input_digest(exec_lookup *lookup, const stk_input *in, stk_err *err)
{
    return input_digest(lookup, in, NULL, NULL, err);
}

static const char *list_digest(exec_lookup *lookup, const stk_input *in, exec_outputs_fn outputs,
                               void *arg, stk_err *err)
{
    const char **digests = stk_arena_array(lookup->arena, in->n_items, sizeof *digests);
    char hex[STK_DIGEST_HEX + 1];
    for (uint32_t i = 0; digests != NULL && i < in->n_items; i++) {
        const char *text = stk_exec_literal(stk_plan_spec(lookup->plan), &in->items[i]);
        if (text != NULL) {
            stk_digest_of(text, strlen(text), hex);
            digests[i] = stk_arena_dup(lookup->arena, hex);
        } else {
            digests[i] = input_digest(lookup, &in->items[i], outputs, arg, err);
        }
        if (digests[i] == NULL) {
            return NULL;
        }
    }
    if (digests == NULL) {
        return NULL;
    }
    stk_plan_list_digest(digests, in->n_items, hex);
    return stk_arena_dup(lookup->arena, hex);
}

static const char *input_digest(exec_lookup *lookup, const stk_input *in, exec_outputs_fn outputs,
                                void *arg, stk_err *err)
{
    switch (in->kind) {
    case STK_INPUT_OUTPUT: {
        const exec_ref *refs = outputs(arg, in->step);
        const char *digest = refs == NULL ? NULL : refs[in->output].digest;
        if (digest == NULL) {
            stk_err_set(err, STK_E_BUG, "an output that it needs is unknown");
        }
        return digest;
    }
    case STK_INPUT_FILE:
        return digest_at(lookup, in->text, err);
    case STK_INPUT_ARTIFACT:
        return in->text;
    case STK_INPUT_LIST:
        return list_digest(lookup, in, outputs, arg, err);
    default:
        return NULL;
    }
}

const char *stk_exec_inputs_json(exec_lookup *lookup, const stk_step *step,
                                 const char *const *digests)
{
    STK_BUF_AUTO buf = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES);
    stk_json_open(&buf, NULL, '{');
    size_t n_empty = buf.len;
    for (uint32_t i = 0; i < step->n_inputs; i++) {
        if (digests[i] != NULL) {
            stk_json_put_text(&buf, step->inputs[i].name, digests[i]);
        }
    }
    if (buf.len == n_empty) {
        return NULL;
    }
    stk_json_close(&buf, '}');
    return stk_buf_keep(&buf, lookup->arena);
}

int stk_exec_lookup_artifact(exec_lookup *lookup, const char *digest, stk_err *err)
{
    const char *path;
    bool comes = false;
    stk_err why = {0};
    int rc = 0;
    if (!lookup->trusts) {
        rc = stk_exec_sum_artifact(lookup->sum, lookup->store, digest, &comes, &why);
    }
    if (rc == 0 && !comes && !(lookup->trusts && stk_store_needs_sum(lookup->store, digest))) {
        rc = stk_store_locate(lookup->store, digest, lookup->arena, &path, NULL, &why);
    }
    if (rc == STK_E_STORE) {
        lookup->damage = stk_arena_dup(lookup->arena, why.text);
    }
    if (rc < 0) {
        *err = why;
    }
    return rc;
}

int stk_exec_note_damage(stk_exec *x, stk_err *err)
{
    const char *text = x->lookup.damage;
    x->lookup.damage = NULL;
    if (text == NULL) {
        return 0;
    }
    return stk_exec_emit_note(x, text, err);
}

/* Reads one ref object of an outputs document. */
static bool take_ref(exec_lookup *lookup, const stk_json *ref, bool check, exec_ref *ret_ref)
{
    const char *digest = stk_json_get_text(ref, "digest");
    if (digest == NULL) {
        return false;
    }
    stk_err ignored;
    if (check && stk_exec_lookup_artifact(lookup, digest, &ignored) < 0) {
        return false;
    }
    ret_ref->digest = stk_arena_dup(lookup->arena, digest);
    ret_ref->json = stk_json_dump_in(ref, lookup->arena);
    return ret_ref->digest != NULL && ret_ref->json != NULL;
}

/* STK_E_NOT_FOUND: an output of the step is not in the document, or (check) no longer in the store.
 */
int stk_exec_parse_outputs(exec_lookup *lookup, const stk_step *step, const char *json, bool check,
                           exec_ref **ret_outputs, stk_err *err)
{
    exec_ref *refs = stk_arena_array(lookup->arena, step->n_outputs + 1, sizeof *refs);
    STK_TRY(stk_err_if_null(refs, err));
    if (step->n_outputs == 0 && strcmp(json, "{}") == 0) {
        *ret_outputs = refs;
        return 0;
    }
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *doc = stk_json_read(scratch, json);
    if (doc == NULL) {
        return stk_err_set(err, STK_E_STORE, "step '%s': its stored outputs can't be read",
                           step->name);
    }
    for (uint32_t i = 0; i < step->n_outputs; i++) {
        const stk_json *ref = stk_json_get(doc, step->outputs[i].name);
        if (!take_ref(lookup, ref, check, &refs[i])) {
            return stk_err_set(err, STK_E_NOT_FOUND, "its stored output '%s' is missing",
                               step->outputs[i].name);
        }
    }
    *ret_outputs = refs;
    return 0;
}

/* The plain SHA-256 of a source file, as the worker computes it for loaded files; NULL: unreadable.
 */
static const char *source_digest(exec_lookup *lookup, const char *path)
{
    const char *digest = known_digest(&lookup->seen, path);
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    char hex[STK_DIGEST_HEX + 1];
    if (digest != NULL || stk_file_read(path, STK_LIMIT_RESULT_BYTES, &text, &len, NULL) < 0) {
        return digest;
    }
    stk_digest_of(text, len, hex);
    return keep_digest(&lookup->seen, lookup->arena, path, hex);
}

/* True if the file still exists with this content ("": any content). */
static bool is_file_same(exec_lookup *lookup, const char *path, const char *was)
{
    if (was == NULL) {
        return false;
    }
    if (*was == '\0') {
        return stk_file_exists(path);
    }
    const char *is = source_digest(lookup, path);
    return is != NULL && strcmp(is, was) == 0;
}

/* Checks what the step loaded and read. Returns NULL, or what changed. */
static const char *changed_reads(exec_lookup *lookup, const char *seen, bool track)
{
    if (seen == NULL || strcmp(seen, "{}") == 0) {
        return NULL;
    }
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *doc = stk_json_read(scratch, seen);
    if (doc == NULL) {
        return "the record of what it read is damaged";
    }
    for (uint32_t i = 0; i < stk_json_n_members(doc); i++) {
        const char *path = stk_json_key(doc, i)->text;
        const char *value = stk_json_text(stk_json_value(doc, i)), *change = NULL;
        if (stk_exec_reads_check(lookup, path, value, track, &change)) {
            if (change != NULL) {
                return change;
            }
        } else if (!is_file_same(lookup, path, value)) {
            return stk_arena_printf(lookup->arena, "%s, which it loaded, has changed", path);
        }
    }
    return NULL;
}

/* Returns NULL if the entry still holds, else why not. */
static const char *stale(exec_lookup *lookup, const stk_step *step, exec_found *found,
                         int64_t now_ms)
{
    int64_t expires = step->settings->cache.expires_ms;
    if (expires > 0 && now_ms - found->row.created_ms >= expires) {
        return "its stored result has expired";
    }
    stk_track track = step->settings->cache.track;
    const char *change = changed_reads(lookup, found->row.seen, track != STK_TRACK_OFF);
    if (change != NULL) {
        return change;
    }
    const char *unseen = stk_exec_reads_unseen(found->row.seen, lookup->arena);
    if (unseen != NULL && track == STK_TRACK_STRICT) {
        return stk_arena_printf(lookup->arena, "its stored result has reads that can't be seen: %s",
                                unseen);
    }
    stk_err err = {0};
    if (!stk_spec_grows(stk_plan_spec(lookup->plan)) &&
        stk_exec_parse_outputs(lookup, step, found->row.outputs, true, &found->outputs, &err) < 0) {
        return stk_arena_dup(lookup->arena, err.text);
    }
    return NULL;
}

int stk_exec_lookup_files(exec_lookup *lookup, const stk_step *step, const char **files,
                          stk_err *err)
{
    const stk_cache_policy *cache = &step->settings->cache;
    for (uint32_t i = 0; i < cache->n_files; i++) {
        files[i] = digest_at(lookup, cache->files[i], err);
        if (files[i] == NULL) {
            return stk_err_context(err, "cache file '%s'", cache->files[i]);
        }
    }
    return 0;
}

static int collect(exec_lookup *lookup, const stk_step *step, exec_outputs_fn outputs, void *arg,
                   const char **digests, const char **files, stk_err *err)
{
    for (uint32_t i = 0; i < step->n_inputs; i++) {
        const stk_input *in = &step->inputs[i];
        if (stk_exec_literal(stk_plan_spec(lookup->plan), in) != NULL) {
            continue;
        }
        digests[i] = input_digest(lookup, in, outputs, arg, err);
        if (digests[i] == NULL) {
            return stk_err_context(err, "input '%s'", in->name);
        }
    }
    return stk_exec_lookup_files(lookup, step, files, err);
}

int stk_exec_lookup_step(exec_lookup *lookup, uint32_t i_step, exec_outputs_fn outputs, void *arg,
                         bool use_cache, int64_t now_ms, exec_found *ret_found, stk_err *err)
{
    const stk_step *step = stk_spec_step(stk_plan_spec(lookup->plan), i_step);
    const stk_cache_policy *cache = &step->settings->cache;
    *ret_found = (exec_found){.verdict = EXEC_MISS};
    const char **digests = stk_arena_array(lookup->arena, step->n_inputs + 1, sizeof *digests);
    const char **files = stk_arena_array(lookup->arena, cache->n_files + 1, sizeof *files);
    if (digests == NULL || files == NULL) {
        return stk_err_nomem(err);
    }
    int rc = collect(lookup, step, outputs, arg, digests, files, err);
    if (rc < 0 && rc != STK_E_NOMEM && rc != STK_E_BUG) {
        /* An unreadable file means no key. If the step needs the file, its start reports the error.
         */
        char text[1200];
        const char *why = stk_err_format(err, text, (int)sizeof text);
        ret_found->miss = stk_arena_dup(lookup->arena, why);
        return stk_err_if_null(ret_found->miss, err);
    }
    if (rc < 0) {
        return stk_err_context(err, "step '%s'", step->name);
    }
    ret_found->inputs = stk_exec_inputs_json(lookup, step, digests);
    if (!cache->enabled) {
        ret_found->miss = "caching is off for this step";
        return 0;
    }
    stk_key key;
    STK_TRY(stk_plan_key(lookup->plan, i_step, digests, files, lookup->arena, &key, err));
    return stk_exec_lookup_key(lookup, i_step, &key, use_cache, now_ms, ret_found, err);
}

int stk_exec_lookup_key(exec_lookup *lookup, uint32_t i_step, const stk_key *key, bool use_cache,
                        int64_t now_ms, exec_found *ret_found, stk_err *err)
{
    const stk_step *step = stk_spec_step(stk_plan_spec(lookup->plan), i_step);
    ret_found->key = stk_arena_dup(lookup->arena, key->hex);
    STK_TRY(stk_err_if_null(ret_found->key, err));
    stk_err ignored = {0};
    if (!use_cache || !step->settings->cache.reuse) {
        ret_found->miss =
            use_cache ? "caching is off for this step" : "caching is off for this run";
    } else if (stk_store_cache_get(lookup->store, ret_found->key, lookup->arena, &ret_found->row,
                                   &ignored) == 0) {
        ret_found->miss = stale(lookup, step, ret_found, now_ms);
        if (ret_found->miss == NULL) {
            ret_found->verdict = EXEC_HIT;
            return 0;
        }
    } else {
        const char *last = stk_store_cache_last_parts(
            lookup->store, stk_spec_name(stk_plan_spec(lookup->plan)), step->name, lookup->arena);
        ret_found->miss = stk_plan_miss(key, last, lookup->arena);
    }
    ret_found->parts = stk_plan_key_json(key, lookup->arena);
    return stk_err_if_null(ret_found->parts, err);
}
