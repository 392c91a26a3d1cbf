#include "model/spec/spec_result.h"

#include <string.h>

#include "base/units.h"
#include "model/spec/spec_read.h"

enum { FORMAT_VERSION = 1 };

static const stk_json_limits result_limits = {STK_LIMIT_RESULT_BYTES, STK_LIMIT_RESULT_NODES,
                                              STK_LIMIT_DEPTH};

enum {
    T_STOKER,
    T_STATUS,
    T_OUTPUTS,
    T_DROPPED,
    T_NEXT,
    T_METADATA,
    T_OUTPUT_METADATA,
    T_OUTPUT_TAGS,
    T_OUTPUT_NAMES,
    T_SEEN,
    T_WARNINGS,
    T_HOOKS_RUN,
    T_CARDS,
    T_ACCELERATOR,
    T_ERROR,
    T_N
};
static const char *const top_keys[T_N] = {
    [T_STOKER] = "stoker",
    [T_STATUS] = "status",
    [T_OUTPUTS] = "outputs",
    [T_DROPPED] = "dropped",
    [T_NEXT] = "next",
    [T_METADATA] = "metadata",
    [T_OUTPUT_METADATA] = "output_metadata",
    [T_OUTPUT_TAGS] = "output_tags",
    [T_OUTPUT_NAMES] = "output_names",
    [T_SEEN] = "seen",
    [T_WARNINGS] = "warnings",
    [T_HOOKS_RUN] = "hooks_run",
    [T_CARDS] = "cards",
    [T_ACCELERATOR] = "accelerator",
    [T_ERROR] = "error",
};

/* --- outputs --- */

/* "out/model": relative, and every part a real name. */
static bool is_inside(const char *path)
{
    while (*path != '\0') {
        size_t n = strcspn(path, "/");
        if (n == 0 || (n == 1 && path[0] == '.') || (n == 2 && path[0] == '.' && path[1] == '.')) {
            return false;
        }
        path += n;
        if (*path == '/' && *++path == '\0') {
            return false;
        }
    }
    return true;
}

static int read_path(stk_spec_reader *r, const stk_json *node, const char *output,
                     const char **ret_path)
{
    const char *path = stk_json_text(node);
    if (path == NULL || *path == '\0' || node->n > 4000) {
        return stk_spec_wrong(r, node, "path", "a path of at most 4000 bytes");
    }
    if (!is_inside(path)) {
        return stk_spec_fail(r, node,
                             "output '%s': path '%.120s' must be relative to the task's directory "
                             "and stay in it: out/%s",
                             output, path, output);
    }
    *ret_path = path;
    return 0;
}

static int read_digest(stk_spec_reader *r, const stk_json *node, const char *key,
                       const char **ret_digest)
{
    const char *text = stk_json_text(node);
    if (text == NULL || node->n != 64 || strspn(text, "0123456789abcdef") != 64) {
        return stk_spec_wrong(r, node, key, "64 lower-case hex digits");
    }
    *ret_digest = text;
    return 0;
}

static int read_object(stk_spec_reader *r, const stk_json *node, const char *key,
                       const char **ret_json)
{
    STK_TRY(stk_spec_read_map(r, node, key));
    return stk_spec_read_json(r, node, ret_json);
}

static int read_output(stk_spec_reader *r, const stk_json *map, stk_result_output *output)
{
    static const char *const keys[] = {"path", "value",  "format",   "type",
                                       "meta", "digest", "artifact", "size"};
    int rc = stk_spec_read_map(r, map, output->name);
    output->size = -1;
    for (uint32_t i = 0; rc == 0 && i < map->n; i++) {
        const stk_json *value = stk_json_value(map, i);
        int key = stk_spec_key(r, stk_json_key(map, i), keys, 8, output->name);
        if (key < 0) {
            return key;
        }
        if (key == 1) {
            rc = stk_spec_read_json(r, value, &output->value);
        } else if (value->kind == STK_JSON_NULL) {
            continue;
        } else if (key == 0) {
            rc = read_path(r, value, output->name, &output->path);
        } else if (key == 2) {
            rc = stk_spec_read_text(r, value, "format", &output->format);
        } else if (key == 3) {
            rc = stk_spec_read_text(r, value, "type", &output->type);
        } else if (key == 4) {
            rc = read_object(r, value, "meta", &output->meta);
        } else if (key == 7) {
            rc = stk_spec_read_int(r, value, "size", 0, INT64_MAX, &output->size);
        } else {
            rc = read_digest(r, value, keys[key], key == 5 ? &output->digest : &output->artifact);
        }
    }
    int n = (output->path != NULL) + (output->value != NULL) + (output->artifact != NULL);
    if (rc == 0 && n != 1) {
        return stk_spec_fail(r, map,
                             "output '%s' needs exactly one of 'path', 'value' and 'artifact'",
                             output->name);
    }
    return rc;
}

static int check_name(stk_spec_reader *r, const stk_json *node, const char *name)
{
    if (!stk_units_is_name(name, true)) {
        return stk_spec_fail(r, node, "output '%.80s': a name is made of letters, digits and _ . -",
                             name);
    }
    return 0;
}

static int read_dropped(stk_spec_reader *r, const stk_json *list, stk_result *result)
{
    int rc = stk_spec_read_texts(r, list, "dropped", &result->dropped, &result->n_dropped);
    for (uint32_t i = 0; rc == 0 && i < result->n_dropped; i++) {
        rc = check_name(r, &list->items[i], result->dropped[i]);
    }
    return rc;
}

static int read_items(stk_spec_reader *r, const stk_json *map, stk_result *result)
{
    stk_result_output *items = stk_arena_alloc(r->arena, sizeof *items);
    if (items == NULL) {
        return stk_spec_no_memory(r);
    }
    items->name = "next.items";
    int rc = read_output(r, map, items);
    if (rc == 0 && items->artifact != NULL) {
        return stk_spec_fail(r, map, "'next.items' needs 'path' or 'value'");
    }
    result->next_items = items;
    return rc;
}

static int read_next(stk_spec_reader *r, const stk_json *map, stk_result *result)
{
    static const char *const keys[] = {"steps", "n", "items"};
    int rc = stk_spec_read_map(r, map, "next");
    for (uint32_t i = 0; rc == 0 && i < map->n; i++) {
        const stk_json *value = stk_json_value(map, i);
        int key = stk_spec_key(r, stk_json_key(map, i), keys, 3, "next");
        if (key < 0) {
            return key;
        }
        if (value->kind == STK_JSON_NULL) {
            continue;
        }
        if (key == 0) {
            rc = stk_spec_read_texts(r, value, "next.steps", &result->next_steps,
                                     &result->n_next_steps);
        } else if (key == 1) {
            rc = stk_spec_read_int(r, value, "next.n", 0, INT32_MAX, &result->next_n);
        } else {
            rc = read_items(r, value, result);
        }
    }
    return rc;
}

static int read_outputs(stk_spec_reader *r, const stk_json *map, stk_result *result)
{
    int rc = stk_spec_read_map(r, map, "outputs");
    if (rc < 0) {
        return rc;
    }
    if (map->n > STK_LIMIT_OUTPUTS) {
        return stk_spec_fail_code(r, STK_E_LIMIT, map, "%u outputs; %d is the most",
                                  (unsigned)map->n, STK_LIMIT_OUTPUTS);
    }
    stk_result_output *outputs = stk_arena_array(r->arena, map->n, sizeof *outputs);
    if (outputs == NULL) {
        return stk_spec_no_memory(r);
    }
    for (uint32_t i = 0; rc == 0 && i < map->n; i++) {
        outputs[i].name = stk_json_key(map, i)->text;
        rc = check_name(r, stk_json_key(map, i), outputs[i].name);
        if (rc == 0) {
            rc = read_output(r, stk_json_value(map, i), &outputs[i]);
        }
    }
    result->outputs = outputs;
    result->n_outputs = map->n;
    return rc;
}

static int read_names(stk_spec_reader *r, const stk_json *map, stk_result_output *output)
{
    static const char *const keys[] = {"name", "version"};
    int rc = stk_spec_read_map(r, map, "output_names");
    for (uint32_t i = 0; rc == 0 && i < map->n; i++) {
        const stk_json *value = stk_json_value(map, i);
        int key = stk_spec_key(r, stk_json_key(map, i), keys, 2, "output_names");
        if (key < 0) {
            return key;
        }
        if (value->kind != STK_JSON_NULL) {
            rc = stk_spec_read_text(r, value, keys[key],
                                    key == 0 ? &output->artifact_name : &output->artifact_version);
        }
    }
    return rc;
}

/* output_metadata, output_tags and output_names: by output, each of which must be there, unless the
 * task failed: it had no time to keep them. */
static int read_about_outputs(stk_spec_reader *r, int key, const stk_json *map, stk_map *index,
                              bool ok, stk_result_output *outputs)
{
    stk_result_output nowhere;
    int rc = stk_spec_read_map(r, map, top_keys[key]);
    for (uint32_t i = 0; rc == 0 && i < map->n; i++) {
        const stk_json *name = stk_json_key(map, i);
        const stk_json *value = stk_json_value(map, i);
        uint64_t at;
        bool known = stk_map_get(index, name->text, &at);
        if (!known && ok) {
            return stk_spec_fail(r, name, "'%s' names '%.80s', which is none of the outputs",
                                 top_keys[key], name->text);
        }
        stk_result_output *output = known ? &outputs[at] : &nowhere;
        if (value->kind == STK_JSON_NULL) {
            continue;
        }
        if (key == T_OUTPUT_METADATA) {
            rc = read_object(r, value, top_keys[key], &output->metadata);
        } else if (key == T_OUTPUT_TAGS) {
            rc = stk_spec_read_texts(r, value, top_keys[key], &output->tags, &output->n_tags);
        } else {
            rc = read_names(r, value, output);
        }
    }
    return rc;
}

static int read_all_about_outputs(stk_spec_reader *r, const stk_json *const nodes[T_N],
                                  stk_result *result)
{
    stk_map index = {0};
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < result->n_outputs; i++) {
        rc = stk_map_put(&index, result->outputs[i].name, i) < 0 ? stk_spec_no_memory(r) : 0;
    }
    for (int key = T_OUTPUT_METADATA; rc == 0 && key <= T_OUTPUT_NAMES; key++) {
        if (nodes[key] != NULL) {
            /* Ours, from read_outputs; const is for the readers of the result. */
            rc = read_about_outputs(r, key, nodes[key], &index, result->ok,
                                    (stk_result_output *)(uintptr_t)result->outputs);
        }
    }
    stk_map_done(&index);
    return rc;
}

/* --- the rest --- */

static int read_seen(stk_spec_reader *r, const stk_json *map, stk_result *result)
{
    int rc = read_object(r, map, "seen", &result->seen_json);
    stk_pair *seen = NULL;
    if (rc >= 0) {
        seen = stk_arena_array(r->arena, map->n, sizeof *seen);
    }
    if (rc == 0 && seen == NULL) {
        return stk_spec_no_memory(r);
    }
    for (uint32_t i = 0; rc == 0 && i < map->n; i++) {
        const stk_json *value = stk_json_value(map, i);
        seen[i].key = stk_json_key(map, i)->text;
        seen[i].value = "";
        if (value->kind != STK_JSON_TEXT || value->n > 0) {
            rc = read_digest(r, value, "digest", &seen[i].value);
        }
    }
    result->seen = seen;
    result->n_seen = map->n;
    return rc;
}

/* Words that people will read, whatever is in them: a NUL byte becomes U+FFFD, as refusing it would
 * hide the error that the text is about. */
static int read_words(stk_spec_reader *r, const stk_json *node, const char *key,
                      const char **ret_text)
{
    STK_BUF_AUTO clean = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES * 3ul);
    if (node->kind != STK_JSON_TEXT || stk_json_text(node) != NULL) {
        return stk_spec_read_text(r, node, key, ret_text);
    }
    for (uint32_t i = 0; i < node->n; i++) {
        if (node->text[i] == '\0') {
            stk_buf_text(&clean, "\xEF\xBF\xBD");
        } else {
            stk_buf_char(&clean, node->text[i]);
        }
    }
    *ret_text = stk_buf_keep(&clean, r->arena);
    return stk_spec_if_null(r, *ret_text);
}

static int read_warnings(stk_spec_reader *r, const stk_json *list, stk_result *result)
{
    if (list->kind != STK_JSON_LIST) {
        return stk_spec_wrong(r, list, "warnings", "a list of texts");
    }
    const char **warnings = stk_arena_array(r->arena, list->n, sizeof *warnings);
    int rc = stk_spec_if_null(r, warnings);
    for (uint32_t i = 0; rc == 0 && i < list->n; i++) {
        rc = read_words(r, &list->items[i], "warnings", &warnings[i]);
    }
    result->warnings = warnings;
    result->n_warnings = list->n;
    return rc;
}

static int read_class(stk_spec_reader *r, const stk_json *node, stk_failure *ret_class)
{
    static const stk_failure allowed[] = {
        STK_FAIL_EXCEPTION,  STK_FAIL_IMPORT,    STK_FAIL_SERIALIZE, STK_FAIL_LOAD,
        STK_FAIL_DEVICE_OOM, STK_FAIL_RESOURCES, STK_FAIL_USAGE,     STK_FAIL_EXIT,
        STK_FAIL_SIGNAL,     STK_FAIL_HANG,      STK_FAIL_START,     STK_FAIL_PREEMPTED,
        STK_FAIL_LOST,       STK_FAIL_STORE};
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
        if (stk_json_is(node, stk_failure_word(allowed[i]))) {
            *ret_class = allowed[i];
            return 0;
        }
    }
    return stk_spec_wrong(r, node, "error.class",
                          "exception, import, serialize, load, device_oom, resources, usage, "
                          "preempted, or a "
                          "gang's exit, signal, hang, lost, store or start");
}

static int read_error(stk_spec_reader *r, const stk_json *map, stk_result_error *error)
{
    static const char *const keys[] = {"class", "type",   "message", "traceback",
                                       "where", "module", "output"};
    const char **texts[] = {NULL,          &error->type,   &error->message, &error->traceback,
                            &error->where, &error->module, &error->output};
    int rc = stk_spec_read_map(r, map, "error");
    for (uint32_t i = 0; rc == 0 && i < map->n; i++) {
        const stk_json *value = stk_json_value(map, i);
        int key = stk_spec_key(r, stk_json_key(map, i), keys, 7, "error");
        if (key < 0) {
            return key;
        }
        if (value->kind != STK_JSON_NULL) {
            if (key == 0) {
                rc = read_class(r, value, &error->class);
            } else {
                rc = read_words(r, value, keys[key], texts[key]);
            }
        }
    }
    return rc;
}

/* --- the accelerator --- */

static int read_peaks(stk_spec_reader *r, const stk_json *list, stk_result_framework *framework)
{
    if (list->kind != STK_JSON_LIST) {
        return stk_spec_wrong(r, list, "peak_bytes", "a list of whole numbers");
    }
    int64_t *peaks = stk_arena_array(r->arena, list->n, sizeof *peaks);
    int rc = stk_spec_if_null(r, peaks);
    for (uint32_t i = 0; rc == 0 && i < list->n; i++) {
        peaks[i] = -1;
        if (list->items[i].kind != STK_JSON_NULL) {
            rc = stk_spec_read_int(r, &list->items[i], "peak_bytes", 0, INT64_MAX, &peaks[i]);
        }
    }
    framework->peak_bytes = peaks;
    framework->n_peak_bytes = list->n;
    return rc;
}

static int read_truth(stk_spec_reader *r, const stk_json *node, const char *key, int *ret_truth)
{
    bool truth = false;
    int rc = stk_spec_read_bool(r, node, key, &truth);
    *ret_truth = rc == 0 ? truth : -1;
    return rc;
}

static int read_framework(stk_spec_reader *r, const stk_json *map, stk_result_framework *ret)
{
    enum { NAME, VERSION, BUILD, REASON, AVAILABLE, INITIALIZED, DEVICE_COUNT, PEAK_BYTES, N };
    static const char *const keys[N] = {[NAME] = "name",
                                        [VERSION] = "version",
                                        [BUILD] = "build",
                                        [REASON] = "reason",
                                        [AVAILABLE] = "available",
                                        [INITIALIZED] = "initialized",
                                        [DEVICE_COUNT] = "device_count",
                                        [PEAK_BYTES] = "peak_bytes"};
    *ret = (stk_result_framework){.available = -1, .initialized = -1, .device_count = -1};
    const char **texts[] = {&ret->name, &ret->version, &ret->build, &ret->reason};
    int rc = stk_spec_read_map(r, map, "accelerator.frameworks");
    for (uint32_t i = 0; rc == 0 && i < map->n; i++) {
        const stk_json *value = stk_json_value(map, i);
        int key = stk_spec_key(r, stk_json_key(map, i), keys, N, "accelerator.frameworks");
        if (key < 0) {
            return key;
        }
        if (value->kind == STK_JSON_NULL) {
            continue;
        }
        int64_t n = -1;
        if (key <= REASON) {
            rc = read_words(r, value, keys[key], texts[key]);
        } else if (key == AVAILABLE || key == INITIALIZED) {
            rc = read_truth(r, value, keys[key],
                            key == AVAILABLE ? &ret->available : &ret->initialized);
        } else if (key == DEVICE_COUNT) {
            rc = stk_spec_read_int(r, value, keys[key], 0, INT32_MAX, &n);
            ret->device_count = (int32_t)n;
        } else {
            rc = read_peaks(r, value, ret);
        }
    }
    if (rc == 0 && ret->name == NULL) {
        return stk_spec_fail(r, map, "accelerator.frameworks: 'name' is missing");
    }
    return rc;
}

static int read_frameworks(stk_spec_reader *r, const stk_json *list, stk_result *result)
{
    if (list->kind != STK_JSON_LIST) {
        return stk_spec_wrong(r, list, "accelerator.frameworks", "a list of mappings");
    }
    stk_result_framework *all = stk_arena_array(r->arena, list->n, sizeof *all);
    int rc = stk_spec_if_null(r, all);
    for (uint32_t i = 0; rc == 0 && i < list->n; i++) {
        rc = read_framework(r, &list->items[i], &all[i]);
    }
    result->frameworks = all;
    result->n_frameworks = list->n;
    return rc;
}

static int read_masks(stk_spec_reader *r, const stk_json *map, bool *ret_changed)
{
    int rc = stk_spec_read_map(r, map, "accelerator.masks");
    for (uint32_t i = 0; rc == 0 && i < map->n; i++) {
        const stk_json *value = stk_json_value(map, i);
        if (value->kind != STK_JSON_TEXT && value->kind != STK_JSON_NULL) {
            rc = stk_spec_wrong(r, value, "accelerator.masks", "a mapping of texts");
        }
    }
    *ret_changed = rc == 0 && map->n > 0;
    return rc;
}

static int read_accelerator(stk_spec_reader *r, const stk_json *map, stk_result *result)
{
    static const char *const keys[] = {"frameworks", "masks"};
    int rc = stk_spec_read_map(r, map, "accelerator");
    for (uint32_t i = 0; rc == 0 && i < map->n; i++) {
        const stk_json *value = stk_json_value(map, i);
        int key = stk_spec_key(r, stk_json_key(map, i), keys, 2, "accelerator");
        if (key < 0) {
            return key;
        }
        if (value->kind != STK_JSON_NULL) {
            if (key == 0) {
                rc = read_frameworks(r, value, result);
            } else {
                rc = read_masks(r, value, &result->mask_changed);
            }
        }
    }
    return rc;
}

static int check_version(stk_spec_reader *r, const stk_json *root)
{
    const stk_json *version = stk_json_get(root, "stoker");
    int64_t number;
    if (root->kind != STK_JSON_MAP) {
        return stk_spec_fail(r, root, "a result is a mapping, not %s",
                             stk_json_kind_words(root->kind));
    }
    if (version == NULL) {
        return stk_spec_fail(r, root, "\"stoker\": 1 is missing, the version of this format");
    }
    if (!stk_json_int(version, &number) || number < 1) {
        return stk_spec_wrong(r, version, "stoker", "1, the version of this format");
    }
    if (number > FORMAT_VERSION) {
        return stk_spec_fail_code(
            r, STK_E_VERSION, version,
            "the result is of format %lld; this Stoker reads format %d; upgrade "
            "Stoker",
            (long long)number, FORMAT_VERSION);
    }
    return 0;
}

static int read_status(stk_spec_reader *r, const stk_json *root, const stk_json *node, bool *ret_ok)
{
    if (node == NULL) {
        return stk_spec_fail(r, root, "'status' is missing: ok or failed");
    }
    *ret_ok = stk_json_is(node, "ok");
    if (!*ret_ok && !stk_json_is(node, "failed")) {
        return stk_spec_wrong(r, node, "status", "ok or failed");
    }
    return 0;
}

static int read_rest(stk_spec_reader *r, const stk_json *const nodes[T_N], stk_result *result)
{
    int rc = 0;
    if (nodes[T_METADATA] != NULL) {
        rc = read_object(r, nodes[T_METADATA], "metadata", &result->metadata);
    }
    if (rc == 0 && nodes[T_SEEN] != NULL) {
        rc = read_seen(r, nodes[T_SEEN], result);
    }
    if (rc == 0 && nodes[T_WARNINGS] != NULL) {
        rc = read_warnings(r, nodes[T_WARNINGS], result);
    }
    if (rc == 0 && nodes[T_HOOKS_RUN] != NULL) {
        rc = stk_spec_read_texts(r, nodes[T_HOOKS_RUN], "hooks_run", &result->hooks_run,
                                 &result->n_hooks_run);
    }
    if (rc == 0 && nodes[T_CARDS] != NULL) {
        if (nodes[T_CARDS]->kind == STK_JSON_LIST) {
            rc = stk_spec_read_json(r, nodes[T_CARDS], &result->cards);
        } else {
            rc = stk_spec_wrong(r, nodes[T_CARDS], "cards", "a list");
        }
    }
    if (rc == 0 && nodes[T_ACCELERATOR] != NULL) {
        rc = read_accelerator(r, nodes[T_ACCELERATOR], result);
    }
    if (rc == 0 && nodes[T_ERROR] != NULL) {
        result->has_error = true;
        rc = read_error(r, nodes[T_ERROR], &result->error);
    }
    return rc;
}

int stk_result_parse(const char *text, size_t len, const char *path, stk_arena *arena,
                     stk_result *ret_result, stk_err *err)
{
    stk_spec_reader r = {.arena = arena, .path = path, .err = err};
    const stk_json *nodes[T_N] = {0};
    stk_result result = {.next_n = -1, .error = {.class = STK_FAIL_EXCEPTION}};
    stk_json root;
    int rc = stk_json_parse(text, len, path, &result_limits, arena, &root, err);
    if (rc == 0) {
        rc = check_version(&r, &root);
    }
    for (uint32_t i = 0; rc == 0 && i < root.n; i++) {
        int key = stk_spec_key(&r, stk_json_key(&root, i), top_keys, T_N, NULL);
        if (key < 0) {
            return key;
        }
        if (stk_json_value(&root, i)->kind != STK_JSON_NULL) {
            nodes[key] = stk_json_value(&root, i);
        }
    }
    STK_TRY(rc);
    rc = read_status(&r, &root, nodes[T_STATUS], &result.ok);
    if (rc == 0 && nodes[T_OUTPUTS] != NULL) {
        rc = read_outputs(&r, nodes[T_OUTPUTS], &result);
    }
    if (rc == 0 && nodes[T_DROPPED] != NULL) {
        rc = read_dropped(&r, nodes[T_DROPPED], &result);
    }
    if (rc == 0 && nodes[T_NEXT] != NULL) {
        rc = read_next(&r, nodes[T_NEXT], &result);
    }
    STK_TRY(rc);
    STK_TRY(read_all_about_outputs(&r, nodes, &result));
    STK_TRY(read_rest(&r, nodes, &result));
    if (!result.ok) {
        result.has_error = true;
        if (result.error.message == NULL) {
            result.error.message = "the task says it failed and not why";
        }
    } else if (result.has_error && result.error.message == NULL) {
        result.error.message = "";
    }
    *ret_result = result;
    return 0;
}
