/* Cache keys: everything that may affect a step's outputs, as named parts, so that a miss can be
 * explained by the parts that differ. In doubt, a key must miss. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/map.h"
#include "base/text.h"
#include "model/plan/plan_private.h"

enum { SHORT = 256 }; /* stores longer values as digests */

typedef struct key_writer {
    const stk_plan *plan;
    stk_arena *arena;
    stk_err *err;
    stk_key *key;
    uint32_t cap;
} key_writer;

static int add_part(key_writer *w, const char *name, const char *value)
{
    if (name == NULL || value == NULL) {
        return stk_err_nomem(w->err);
    }
    if (strlen(value) > SHORT) {
        char hex[STK_DIGEST_HEX + 1];
        stk_digest_of(value, strlen(value), hex);
        value = stk_arena_printf(w->arena, "sha256:%s", hex);
        STK_TRY(stk_err_if_null(value, w->err));
    }
    w->key->parts[w->key->n_parts++] = (stk_key_part){name, value};
    return 0;
}

static int add_of_kind(key_writer *w, const char *kind, const char *name, const char *value)
{
    return add_part(w, stk_arena_printf(w->arena, "%s:%s", kind, name), value);
}

/* The working folder of a command, relative to the spec's folder. */
static const char *relative(const char *folder, const char *cwd)
{
    size_t n = strlen(folder);
    if (strncmp(cwd, folder, n) == 0 && (cwd[n] == '/' || cwd[n] == '\0')) {
        cwd += n;
        cwd += strspn(cwd, "/");
        return *cwd == '\0' ? "." : cwd;
    }
    return cwd;
}

/* A text from the origin; NULL: the front didn't write it. */
static const char *of_origin(const key_writer *w, const char *key)
{
    static const stk_json_limits limits = {STK_LIMIT_SPEC_BYTES, STK_LIMIT_YAML_NODES,
                                           STK_LIMIT_DEPTH};
    const char *origin = stk_spec_origin(w->plan->spec);
    stk_json root;
    if (origin == NULL || strstr(origin, key) == NULL ||
        stk_json_parse(origin, strlen(origin), NULL, &limits, w->arena, &root, NULL) < 0) {
        return NULL;
    }
    return stk_json_text(stk_json_get(&root, key));
}

/* The module of the run's file is `__main__` if the file is run, but has a name if one of its
 * pipelines is called (`stoker run file.py:name`). The steps are the same, so they share one cache.
 */
static const char *function_of(const key_writer *w, const stk_step *step)
{
    const char *colon = strchr(step->python, ':');
    const char *file = of_origin(w, "file");
    if (colon == NULL || file == NULL) {
        return step->python;
    }
    const char *slash = strrchr(file, '/');
    const char *stem = slash == NULL ? file : slash + 1;
    size_t n = (size_t)(colon - step->python);
    if (strncmp(stem, step->python, n) == 0 && strcmp(stem + n, ".py") == 0) {
        return stk_arena_printf(w->arena, "__main__%s", colon);
    }
    return step->python;
}

static int add_command(key_writer *w, const stk_step *step)
{
    if (step->python != NULL) {
        const char *function = function_of(w, step);
        return add_part(w, "command", stk_arena_printf(w->arena, "python %s", function));
    }
    STK_BUF_AUTO text = STK_BUF_INIT(SIZE_MAX / 2);
    stk_json_put_texts(&text, NULL, step->argv);
    STK_TRY(add_part(w, "command", stk_buf_keep(&text, w->arena)));
    /* A command sees its step's name ($STOKER_STEP), so two steps with the same text differ. */
    STK_TRY(add_part(w, "step", step->name));
    return add_part(w, "cwd", relative(stk_spec_folder(w->plan->spec), step->cwd));
}

static bool is_ignored(const stk_cache_policy *cache, const char *name)
{
    for (uint32_t i = 0; i < cache->n_ignore_inputs; i++) {
        if (strcmp(cache->ignore_inputs[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static int add_input(key_writer *w, const stk_step *step, uint32_t i, const char *digest)
{
    const stk_input *input = &step->inputs[i];
    if (is_ignored(&step->settings->cache, input->name)) {
        return 0;
    }
    if (input->kind == STK_INPUT_VALUE || input->kind == STK_INPUT_PARAM) {
        const char *value = input->text;
        if (input->kind == STK_INPUT_PARAM) {
            value = stk_spec_param(w->plan->spec, input->i_param)->value;
        }
        if (value == NULL) {
            return stk_err_set(w->err, STK_E_USAGE, "step '%s': parameter '%s' has no value yet",
                               step->name, input->text);
        }
        return add_of_kind(w, "param", input->name, value);
    }
    if (digest == NULL && input->kind == STK_INPUT_ARTIFACT) {
        digest = input->text;
    }
    if (digest == NULL) {
        return stk_err_set(w->err, STK_E_BUG, "step '%s': input '%s' has no digest yet", step->name,
                           input->name);
    }
    return add_of_kind(w, "input", input->name, digest);
}

static int compare_pairs(const void *a, const void *b)
{
    return strcmp(((const stk_pair *)a)->key, ((const stk_pair *)b)->key);
}

/* Sorts variables by name, because their order has no meaning. */
static int add_environment(key_writer *w, const stk_settings *s)
{
    if (s->n_env == 0) {
        return 0;
    }
    stk_pair *sorted = stk_arena_array(w->arena, s->n_env, sizeof *sorted);
    STK_TRY(stk_err_if_null(sorted, w->err));
    memcpy(sorted, s->env, s->n_env * sizeof *sorted);
    qsort(sorted, s->n_env, sizeof *sorted, compare_pairs);
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < s->n_env; i++) {
        char hex[STK_DIGEST_HEX + 1];
        stk_digest_of(sorted[i].value, strlen(sorted[i].value), hex);
        rc = add_of_kind(w, "env", sorted[i].key, stk_arena_printf(w->arena, "sha256:%s", hex));
    }
    return rc;
}

static int compare_outputs(const void *a, const void *b)
{
    return strcmp(((const stk_output *)a)->name, ((const stk_output *)b)->name);
}

static int add_outputs(key_writer *w, const stk_step *step)
{
    STK_BUF_AUTO text = STK_BUF_INIT(SIZE_MAX / 2);
    stk_output *sorted = stk_arena_array(w->arena, step->n_outputs, sizeof *sorted);
    STK_TRY(stk_err_if_null(sorted, w->err));
    if (step->n_outputs > 0) {
        memcpy(sorted, step->outputs, step->n_outputs * sizeof *sorted);
        qsort(sorted, step->n_outputs, sizeof *sorted, compare_outputs);
    }
    for (uint32_t i = 0; i < step->n_outputs; i++) {
        stk_buf_separate(&text, " ");
        stk_buf_text(&text, sorted[i].name);
        if (sorted[i].type != NULL) {
            stk_buf_char(&text, '=');
            stk_buf_json(&text, sorted[i].type);
        }
    }
    if (!text.failed && text.data == NULL) {
        return add_part(w, "outputs", "");
    }
    return add_part(w, "outputs", stk_buf_keep(&text, w->arena));
}

/* The Python that runs a step's functions: only the front knows it, and writes it into the origin.
 */
static int add_runtime(key_writer *w, const stk_step *step)
{
    if (step->python == NULL) {
        return 0;
    }
    const char *python = of_origin(w, "python");
    if (python == NULL) {
        return 0;
    }
    return add_part(w, "runtime", python);
}

/* Hashes names and values with their lengths, so that different lists of parts can't collide. */
static void hash_parts(stk_key *key)
{
    static const char prefix[] = "stoker-key-1\n";
    unsigned char digest[STK_DIGEST_BYTES];
    stk_sha256 sha;
    stk_sha256_init(&sha);
    stk_sha256_add(&sha, prefix, sizeof prefix - 1);
    for (uint32_t i = 0; i < key->n_parts; i++) {
        const char *both[2] = {key->parts[i].name, key->parts[i].value};
        for (int j = 0; j < 2; j++) {
            uint64_t n = strlen(both[j]);
            unsigned char len[8];
            for (int k = 0; k < 8; k++) {
                len[k] = (unsigned char)(n >> (8 * k));
            }
            stk_sha256_add(&sha, len, sizeof len);
            stk_sha256_add(&sha, both[j], n);
        }
    }
    stk_sha256_done(&sha, digest);
    stk_digest_hex(digest, key->hex);
}

/* The possible successors: a stored result names the ones it chose, which must still exist. */
static int add_next(key_writer *w, const stk_step *step)
{
    static const char *const kinds[] = {[STK_NEXT_ALL] = "all",
                                        [STK_NEXT_FOREACH] = "foreach",
                                        [STK_NEXT_PARALLEL] = "num_parallel",
                                        [STK_NEXT_SWITCH] = "switch"};
    if (step->grows == STK_NEXT_NONE) {
        return 0;
    }
    STK_BUF_AUTO text = STK_BUF_INIT(SIZE_MAX / 2);
    stk_buf_text(&text, kinds[step->grows]);
    if (step->on != NULL) {
        stk_buf_printf(&text, " %s", step->on);
    }
    if (step->num_parallel > 0) {
        stk_buf_printf(&text, " %u", step->num_parallel);
    }
    for (uint32_t i = 0; i < step->n_next; i++) {
        stk_buf_char(&text, ' ');
        if (step->cases != NULL) {
            stk_buf_json(&text, step->cases[i]);
            stk_buf_char(&text, ':');
        }
        stk_buf_text(&text, stk_spec_step(w->plan->spec, step->next[i])->name);
    }
    return add_part(w, "next", stk_buf_keep(&text, w->arena));
}

static int add_seen(key_writer *w, const stk_pair *seen, uint32_t n_seen)
{
    stk_pair *sorted = stk_arena_array(w->arena, (size_t)n_seen + 1, sizeof *sorted);
    STK_TRY(stk_err_if_null(sorted, w->err));
    if (n_seen > 0) {
        memcpy(sorted, seen, n_seen * sizeof *sorted);
        qsort(sorted, n_seen, sizeof *sorted, compare_pairs);
    }
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < n_seen; i++) {
        rc = add_part(w, sorted[i].key, sorted[i].value);
    }
    return rc;
}

int stk_plan_key(const stk_plan *plan, uint32_t i_step, const char *const *input_digests,
                 const char *const *file_digests, struct stk_arena *arena, stk_key *ret_key,
                 stk_err *err)
{
    return stk_plan_key_seeing(plan, i_step, input_digests, file_digests, NULL, 0, arena, ret_key,
                               err);
}

int stk_plan_key_seeing(const stk_plan *plan, uint32_t i_step, const char *const *input_digests,
                        const char *const *file_digests, const stk_pair *seen, uint32_t n_seen,
                        struct stk_arena *arena, stk_key *ret_key, stk_err *err)
{
    const stk_step *step = stk_spec_step(plan->spec, i_step);
    const stk_settings *s = step->settings;
    stk_key key = {0};
    size_t most = 10 + (size_t)n_seen + step->n_code + step->n_inputs + s->cache.n_files + s->n_env;
    key_writer w = {.plan = plan, .arena = arena, .err = err, .key = &key};
    key.parts = stk_arena_array(arena, most, sizeof *key.parts);
    STK_TRY(stk_err_if_null(key.parts, err));
    STK_TRY(add_command(&w, step));
    for (uint32_t i = 0; i < step->n_code; i++) {
        STK_TRY(add_of_kind(&w, "code", step->code[i].key, step->code[i].value));
    }
    for (uint32_t i = 0; i < step->n_inputs; i++) {
        STK_TRY(add_input(&w, step, i, input_digests == NULL ? NULL : input_digests[i]));
    }
    for (uint32_t i = 0; i < s->cache.n_files; i++) {
        STK_TRY(add_of_kind(&w, "file", s->cache.files[i], file_digests[i]));
    }
    STK_TRY(add_environment(&w, s));
    STK_TRY(add_outputs(&w, step));
    const char *image = plan->images == NULL ? NULL : plan->images[i_step];
    if (image != NULL || s->docker != NULL) {
        STK_TRY(add_part(&w, "image", stk_text_or(image, s->docker)));
    }
    if (image != NULL && plan->hows[i_step] != NULL) {
        STK_TRY(add_part(&w, "container", plan->hows[i_step]));
    }
    if (s->cache.salt != NULL) {
        STK_TRY(add_part(&w, "salt", s->cache.salt));
    }
    if (s->gang.ranks != 0) { /* gangs: number of processes, and what each sees */
        const char *ranks = "gpus";
        if (s->gang.ranks != STK_GANG_GPUS) {
            ranks = stk_arena_printf(arena, "%lld", (long long)s->gang.ranks);
        }
        STK_TRY(add_part(&w, "ranks", ranks));
    }
    if (s->gang.nodes > 1) {
        STK_TRY(add_part(&w, "nodes", stk_arena_printf(arena, "%lld", (long long)s->gang.nodes)));
    }
    if (image == NULL) {
        STK_TRY(add_runtime(&w, step));
    }
    STK_TRY(add_next(&w, step));
    STK_TRY(add_seen(&w, seen, n_seen));
    hash_parts(&key);
    *ret_key = key;
    return 0;
}

void stk_plan_list_digest(const char *const *digests, uint32_t n, char ret_hex[STK_DIGEST_HEX + 1])
{
    static const char prefix[] = "stoker-list-1\n";
    unsigned char digest[STK_DIGEST_BYTES];
    stk_sha256 sha;
    stk_sha256_init(&sha);
    stk_sha256_add(&sha, prefix, sizeof prefix - 1);
    for (uint32_t i = 0; i < n; i++) {
        stk_sha256_add(&sha, digests[i], strlen(digests[i]));
        stk_sha256_add(&sha, "\n", 1);
    }
    stk_sha256_done(&sha, digest);
    stk_digest_hex(digest, ret_hex);
}

const char *stk_plan_key_json(const stk_key *key, struct stk_arena *arena)
{
    STK_BUF_AUTO text = STK_BUF_INIT(SIZE_MAX / 2);
    stk_json_open(&text, NULL, '{');
    for (uint32_t i = 0; i < key->n_parts; i++) {
        stk_json_put_text(&text, key->parts[i].name, key->parts[i].value);
    }
    stk_json_close(&text, '}');
    return stk_buf_keep(&text, arena);
}

/* --- why a key missed --- */

/* Writes one difference as a clause. `before` or `now` is NULL if the part is new or gone. */
static void say_change(stk_buf *buf, const char *name, const char *before, const char *now)
{
    size_t n = strcspn(name, ":");
    const char *own = name + n + (name[n] == ':');
    const char *verb = "changed";
    if (before == NULL) {
        verb = "is new";
    } else if (now == NULL) {
        verb = "is gone";
    }
    bool shown = before != NULL && now != NULL && strncmp(before, "sha256:", 7) != 0 &&
                 strncmp(now, "sha256:", 7) != 0;
    static const char python[] = "python ";
    size_t skip = sizeof python - 1;
    if (shown && strcmp(name, "command") == 0 && strncmp(before, python, skip) == 0 &&
        strncmp(now, python, skip) == 0) {
        stk_buf_printf(buf, "function changed from %.60s to %.60s", before + skip, now + skip);
        return;
    }
    static const struct {
        const char *kind, *subject;
        bool quoted, values;
    } table[] = {{"command", "command", false, false},
                 {"step", "name of the step", false, true},
                 {"cwd", "working directory", false, true},
                 {"code", "code of ", true, false},
                 {"param", "parameter ", false, true},
                 {"input", "input ", true, false},
                 {"file", "file ", true, false},
                 {"env", "environment variable ", false, false},
                 {"outputs", "list of outputs", false, false},
                 {"image", "image", false, false},
                 {"container", "configuration of its container", false, false},
                 {"salt", "cache salt", false, false},
                 {"ranks", "number of ranks", false, true},
                 {"next", "list of next steps", false, false},
                 {"artifact", "artifact ", true, false},
                 {"item", "item of the foreach", false, false},
                 {"index", "position in the foreach", false, true},
                 {"joined", "set of branches that it joins", false, false},
                 {"runtime", "Python", false, true}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strlen(table[i].kind) == n && strncmp(table[i].kind, name, n) == 0) {
            const char *quote = stk_text_when(table[i].quoted, "'");
            stk_buf_printf(buf, "%s%s%.100s%s %s", table[i].subject, quote, own, quote, verb);
            if (shown && table[i].values) {
                stk_buf_printf(buf, " from %.60s to %.60s", before, now);
            }
            return;
        }
    }
    stk_buf_printf(buf, "%.100s %s", name, verb);
}

enum { TOLD = 3 }; /* differences that are spelled out */

const char *stk_plan_miss(const stk_key *key, const char *parts_json, struct stk_arena *arena)
{
    static const stk_json_limits limits = {STK_LIMIT_SPEC_BYTES, STK_LIMIT_YAML_NODES,
                                           STK_LIMIT_DEPTH};
    STK_BUF_AUTO text = STK_BUF_INIT(4096);
    STK_MAP_AUTO now = {0};
    STK_MAP_AUTO then = {0};
    stk_json old;
    uint32_t n = 0;
    if (parts_json == NULL) {
        return "never ran before";
    }
    if (stk_json_parse(parts_json, strlen(parts_json), NULL, &limits, arena, &old, NULL) < 0 ||
        old.kind != STK_JSON_MAP) {
        return "its stored cache key can't be read";
    }
    bool ok = true;
    for (uint32_t i = 0; ok && i < old.n; i++) {
        const char *value = stk_json_text(stk_json_value(&old, i));
        ok = stk_map_put(&then, stk_json_key(&old, i)->text, (uintptr_t)value) == 0;
    }
    for (uint32_t i = 0; ok && i < key->n_parts; i++) {
        uint64_t at = 0;
        const stk_key_part *part = &key->parts[i];
        ok = stk_map_put(&now, part->name, 1) == 0;
        (void)stk_map_get(&then, part->name, &at);
        const char *before = (const char *)(uintptr_t)at;
        if ((before == NULL || strcmp(before, part->value) != 0) && n++ < TOLD) {
            stk_buf_separate(&text, ", ");
            say_change(&text, part->name, before, part->value);
        }
    }
    for (uint32_t i = 0; ok && i < old.n; i++) {
        const char *name = stk_json_key(&old, i)->text;
        if (!stk_map_get(&now, name, NULL) && n++ < TOLD) {
            stk_buf_separate(&text, ", ");
            say_change(&text, name, "", NULL);
        }
    }
    if (n > TOLD) {
        stk_buf_printf(&text, " and %u more changes", n - TOLD);
    }
    if (!ok || text.failed) {
        return NULL;
    }
    if (n == 0) {
        return "its stored result has expired or was removed";
    }
    return stk_arena_dup(arena, text.data);
}
