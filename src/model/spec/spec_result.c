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
    T_INPUTS,
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
    [T_INPUTS] = "inputs",
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

/* True for "out/model": relative, and every part a real name. */
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

static int read_path(stk_spec_reader *r, const stk_json *node, const char *label, void *into)
{
    stk_result_output *output = into;
    const char *path = stk_json_text(node);
    if (path == NULL || *path == '\0' || node->n > 4000) {
        return stk_spec_wrong(r, node, label, "a path of at most 4000 bytes");
    }
    if (!is_inside(path)) {
        return stk_spec_fail(r, node,
                             "output '%s': path '%.120s' must be relative to the task's directory "
                             "and stay inside it, like out/%s",
                             output->name, path, output->name);
    }
    output->path = path;
    return 0;
}

static int read_digest(stk_spec_reader *r, const stk_json *node, const char *key, void *ret_digest)
{
    const char *text = stk_json_text(node);
    if (text == NULL || node->n != 64 || strspn(text, "0123456789abcdef") != 64) {
        return stk_spec_wrong(r, node, key, "64 lower-case hex digits");
    }
    *(const char **)ret_digest = text;
    return 0;
}

static int read_value(stk_spec_reader *r, const stk_json *node, const char *label, void *ret_json)
{
    (void)label;
    return stk_spec_read_json(r, node, ret_json);
}

static int read_object(stk_spec_reader *r, const stk_json *node, const char *key,
                       const char **ret_json)
{
    STK_TRY(stk_spec_read_map(r, node, key));
    return stk_spec_read_json(r, node, ret_json);
}

static const stk_spec_field output_fields[] = {
    {.label = "path", .read = read_path},
    {.label = "value", .at = offsetof(stk_result_output, value), .read = read_value},
    {.label = "format", .kind = STK_SPEC_TEXT, .at = offsetof(stk_result_output, format)},
    {.label = "type", .kind = STK_SPEC_TEXT, .at = offsetof(stk_result_output, type)},
    {.label = "meta", .kind = STK_SPEC_OBJECT, .at = offsetof(stk_result_output, meta)},
    {.label = "preview", .kind = STK_SPEC_OBJECT, .at = offsetof(stk_result_output, preview)},
    {.label = "digest", .at = offsetof(stk_result_output, digest), .read = read_digest},
    {.label = "artifact", .at = offsetof(stk_result_output, artifact), .read = read_digest},
    {.label = "size",
     .kind = STK_SPEC_INT,
     .at = offsetof(stk_result_output, size),
     .max = INT64_MAX}};

static int read_output(stk_spec_reader *r, const stk_json *map, stk_result_output *output)
{
    output->size = -1;
    STK_TRY(stk_spec_read_fields(r, map, output->name, output_fields, STK_SPEC_N(output_fields),
                                 output));
    if (stk_json_is_kind(stk_json_get(map, "value"), STK_JSON_NULL)) {
        output->value = "null"; /* null is a value */
    }
    int n = (output->path != NULL) + (output->value != NULL) + (output->artifact != NULL);
    if (n != 1) {
        return stk_spec_fail(r, map,
                             "output '%s' needs exactly one of 'path', 'value' and 'artifact'",
                             output->name);
    }
    return 0;
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
    STK_TRY(stk_spec_read_texts(r, list, "dropped", &result->dropped, &result->n_dropped));
    for (uint32_t i = 0; i < result->n_dropped; i++) {
        STK_TRY(check_name(r, &list->items[i], result->dropped[i]));
    }
    return 0;
}

static int read_items(stk_spec_reader *r, const stk_json *map, const char *label, void *ret_items)
{
    stk_result_output *items = stk_arena_alloc(r->arena, sizeof *items);
    STK_TRY(stk_spec_if_null(r, items));
    items->name = label;
    STK_TRY(read_output(r, map, items));
    if (items->artifact != NULL) {
        return stk_spec_fail(r, map, "'next.items' needs 'path' or 'value'");
    }
    *(const stk_result_output **)ret_items = items;
    return 0;
}

static const stk_spec_field next_fields[] = {
    {.label = "next.steps", .kind = STK_SPEC_TEXTS, .at = offsetof(stk_result, next_steps)},
    {.label = "next.n", .kind = STK_SPEC_INT, .at = offsetof(stk_result, next_n), .max = INT32_MAX},
    {.label = "next.items", .at = offsetof(stk_result, next_items), .read = read_items}};

static int read_outputs(stk_spec_reader *r, const stk_json *map, stk_result *result)
{
    STK_TRY(stk_spec_read_map(r, map, "outputs"));
    if (map->n > STK_LIMIT_OUTPUTS) {
        return stk_spec_fail_code(r, STK_E_LIMIT, map, "%u outputs; %d is the limit",
                                  (unsigned)map->n, STK_LIMIT_OUTPUTS);
    }
    stk_result_output *outputs = stk_arena_array(r->arena, map->n, sizeof *outputs);
    STK_TRY(stk_spec_if_null(r, outputs));
    for (uint32_t i = 0; i < map->n; i++) {
        outputs[i].name = stk_json_key(map, i)->text;
        STK_TRY(check_name(r, stk_json_key(map, i), outputs[i].name));
        STK_TRY(read_output(r, stk_json_value(map, i), &outputs[i]));
    }
    result->outputs = outputs;
    result->n_outputs = map->n;
    return 0;
}

static const stk_spec_field name_fields[] = {
    {.label = "name", .kind = STK_SPEC_TEXT, .at = offsetof(stk_result_output, artifact_name)},
    {.label = "version",
     .kind = STK_SPEC_TEXT,
     .at = offsetof(stk_result_output, artifact_version)}};

/* Reads output_metadata, output_tags and output_names, by output. Each named output must exist,
 * unless the task failed: then it had no time to keep them. */
static int read_about_outputs(stk_spec_reader *r, int key, const stk_json *map, stk_map *index,
                              bool ok, stk_result_output *outputs)
{
    stk_result_output nowhere;
    STK_TRY(stk_spec_read_map(r, map, top_keys[key]));
    for (uint32_t i = 0; i < map->n; i++) {
        const stk_json *name = stk_json_key(map, i);
        const stk_json *value = stk_json_value(map, i);
        uint64_t at;
        bool known = stk_map_get(index, name->text, &at);
        if (!known && ok) {
            return stk_spec_fail(r, name, "'%s' names '%.80s', which isn't an output",
                                 top_keys[key], name->text);
        }
        stk_result_output *output = known ? &outputs[at] : &nowhere;
        if (value->kind == STK_JSON_NULL) {
            continue;
        }
        if (key == T_OUTPUT_METADATA) {
            STK_TRY(read_object(r, value, top_keys[key], &output->metadata));
        } else if (key == T_OUTPUT_TAGS) {
            STK_TRY(stk_spec_read_texts(r, value, top_keys[key], &output->tags, &output->n_tags));
        } else {
            STK_TRY(stk_spec_read_fields(r, value, top_keys[key], name_fields,
                                         STK_SPEC_N(name_fields), output));
        }
    }
    return 0;
}

static int read_all_about_outputs(stk_spec_reader *r, const stk_json *const nodes[T_N],
                                  stk_result *result)
{
    STK_MAP_AUTO index = {0};
    for (uint32_t i = 0; i < result->n_outputs; i++) {
        if (stk_map_put(&index, result->outputs[i].name, i) < 0) {
            return stk_spec_no_memory(r);
        }
    }
    for (int key = T_OUTPUT_METADATA; key <= T_OUTPUT_NAMES; key++) {
        if (nodes[key] != NULL) {
            /* read_outputs made these, so they are writable; const is for the readers of the
             * result. */
            STK_TRY(read_about_outputs(r, key, nodes[key], &index, result->ok,
                                       (stk_result_output *)(uintptr_t)result->outputs));
        }
    }
    return 0;
}

/* --- the rest --- */

static int read_seen(stk_spec_reader *r, const stk_json *map, stk_result *result)
{
    STK_TRY(read_object(r, map, "seen", &result->seen_json));
    stk_pair *seen = stk_arena_array(r->arena, map->n, sizeof *seen);
    STK_TRY(stk_spec_if_null(r, seen));
    for (uint32_t i = 0; i < map->n; i++) {
        const stk_json *value = stk_json_value(map, i);
        seen[i].key = stk_json_key(map, i)->text;
        seen[i].value = "";
        if (seen[i].key[0] == '@' && stk_json_text(value) != NULL) { /* exec_reads.h reads it */
            seen[i].value = stk_json_text(value);
        } else if (value->kind != STK_JSON_TEXT || value->n > 0) {
            STK_TRY(read_digest(r, value, "digest", &seen[i].value));
        }
    }
    result->seen = seen;
    result->n_seen = map->n;
    return 0;
}

/* Reads text for people. A NUL byte becomes U+FFFD instead of an error, which would hide the
 * failure that the text describes. */
static int read_words(stk_spec_reader *r, const stk_json *node, const char *key, void *into)
{
    const char **ret_text = into;
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
        return stk_spec_wrong(r, list, "warnings", "a list of strings");
    }
    const char **warnings = stk_arena_array(r->arena, list->n, sizeof *warnings);
    STK_TRY(stk_spec_if_null(r, warnings));
    for (uint32_t i = 0; i < list->n; i++) {
        STK_TRY(read_words(r, &list->items[i], "warnings", &warnings[i]));
    }
    result->warnings = warnings;
    result->n_warnings = list->n;
    return 0;
}

static int read_class(stk_spec_reader *r, const stk_json *node, const char *label, void *ret_class)
{
    static const stk_failure allowed[] = {
        STK_FAIL_EXCEPTION,  STK_FAIL_IMPORT,    STK_FAIL_SERIALIZE, STK_FAIL_LOAD,
        STK_FAIL_DEVICE_OOM, STK_FAIL_RESOURCES, STK_FAIL_USAGE,     STK_FAIL_EXIT,
        STK_FAIL_SIGNAL,     STK_FAIL_HANG,      STK_FAIL_START,     STK_FAIL_PREEMPTED,
        STK_FAIL_LOST,       STK_FAIL_STORE};
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
        if (stk_json_is(node, stk_failure_word(allowed[i]))) {
            *(stk_failure *)ret_class = allowed[i];
            return 0;
        }
    }
    return stk_spec_wrong(r, node, label,
                          "exception, import, serialize, load, device_oom, resources, usage or "
                          "preempted, or for a gang exit, signal, hang, lost, store or start");
}

static const stk_spec_field error_fields[] = {
    {.label = "error.class", .at = offsetof(stk_result_error, class), .read = read_class},
    {.label = "type", .at = offsetof(stk_result_error, type), .read = read_words},
    {.label = "message", .at = offsetof(stk_result_error, message), .read = read_words},
    {.label = "raw", .at = offsetof(stk_result_error, raw), .read = read_words},
    {.label = "traceback", .at = offsetof(stk_result_error, traceback), .read = read_words},
    {.label = "where", .at = offsetof(stk_result_error, where), .read = read_words},
    {.label = "module", .at = offsetof(stk_result_error, module), .read = read_words},
    {.label = "output", .at = offsetof(stk_result_error, output), .read = read_words}};

/* --- the accelerator --- */

static int read_peaks(stk_spec_reader *r, const stk_json *list, const char *label, void *into)
{
    stk_result_framework *framework = into;
    if (list->kind != STK_JSON_LIST) {
        return stk_spec_wrong(r, list, label, "a list of whole numbers");
    }
    int64_t *peaks = stk_arena_array(r->arena, list->n, sizeof *peaks);
    STK_TRY(stk_spec_if_null(r, peaks));
    for (uint32_t i = 0; i < list->n; i++) {
        peaks[i] = -1;
        if (list->items[i].kind != STK_JSON_NULL) {
            STK_TRY(stk_spec_read_int(r, &list->items[i], label, 0, INT64_MAX, &peaks[i]));
        }
    }
    framework->peak_bytes = peaks;
    framework->n_peak_bytes = list->n;
    return 0;
}

static int read_truth(stk_spec_reader *r, const stk_json *node, const char *label, void *ret_truth)
{
    bool truth = false;
    STK_TRY(stk_spec_read_bool(r, node, label, &truth));
    *(int *)ret_truth = truth;
    return 0;
}

static int read_device_list(stk_spec_reader *r, const stk_json *node, const char *label,
                            void *ret_n)
{
    int64_t n = -1;
    STK_TRY(stk_spec_read_int(r, node, label, 0, INT32_MAX, &n));
    *(int32_t *)ret_n = (int32_t)n;
    return 0;
}

static const stk_spec_field framework_fields[] = {
    {.label = "name", .at = offsetof(stk_result_framework, name), .read = read_words},
    {.label = "version", .at = offsetof(stk_result_framework, version), .read = read_words},
    {.label = "build", .at = offsetof(stk_result_framework, build), .read = read_words},
    {.label = "reason", .at = offsetof(stk_result_framework, reason), .read = read_words},
    {.label = "available", .at = offsetof(stk_result_framework, available), .read = read_truth},
    {.label = "initialized", .at = offsetof(stk_result_framework, initialized), .read = read_truth},
    {.label = "device_count",
     .at = offsetof(stk_result_framework, device_count),
     .read = read_device_list},
    {.label = "peak_bytes", .read = read_peaks}};

static int read_frameworks(stk_spec_reader *r, const stk_json *list, const char *label, void *into)
{
    stk_result *result = into;
    if (list->kind != STK_JSON_LIST) {
        return stk_spec_wrong(r, list, label, "a list of mappings");
    }
    stk_result_framework *all = stk_arena_array(r->arena, list->n, sizeof *all);
    STK_TRY(stk_spec_if_null(r, all));
    for (uint32_t i = 0; i < list->n; i++) {
        all[i] = (stk_result_framework){.available = -1, .initialized = -1, .device_count = -1};
        STK_TRY(stk_spec_read_fields(r, &list->items[i], label, framework_fields,
                                     STK_SPEC_N(framework_fields), &all[i]));
        if (all[i].name == NULL) {
            return stk_spec_fail(r, &list->items[i], "%s: 'name' is missing", label);
        }
    }
    result->frameworks = all;
    result->n_frameworks = list->n;
    return 0;
}

static int read_masks(stk_spec_reader *r, const stk_json *map, const char *label, void *ret_changed)
{
    STK_TRY(stk_spec_read_map(r, map, label));
    for (uint32_t i = 0; i < map->n; i++) {
        const stk_json *value = stk_json_value(map, i);
        if (value->kind != STK_JSON_TEXT && value->kind != STK_JSON_NULL) {
            return stk_spec_wrong(r, value, label, "a mapping of strings");
        }
    }
    *(bool *)ret_changed = map->n > 0;
    return 0;
}

static const stk_spec_field accelerator_fields[] = {
    {.label = "accelerator.frameworks", .read = read_frameworks},
    {.label = "accelerator.masks", .at = offsetof(stk_result, mask_changed), .read = read_masks}};

static int check_version(stk_spec_reader *r, const stk_json *root)
{
    const stk_json *version = stk_json_get(root, "stoker");
    int64_t number;
    if (root->kind != STK_JSON_MAP) {
        return stk_spec_fail(r, root, "a result must be a mapping, not %s",
                             stk_json_kind_words(root->kind));
    }
    if (version == NULL) {
        return stk_spec_fail(r, root, "the version of the format is missing: add \"stoker\": 1");
    }
    if (!stk_json_int(version, &number) || number < 1) {
        return stk_spec_wrong(r, version, "stoker", "1, the version of this format");
    }
    if (number > FORMAT_VERSION) {
        return stk_spec_fail_code(
            r, STK_E_VERSION, version,
            "the result has format %lld, but this Stoker reads format %d; upgrade Stoker",
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

static int read_inputs(stk_spec_reader *r, const stk_json *map, stk_result *result)
{
    STK_TRY(read_object(r, map, "inputs", &result->inputs));
    if (map->n > STK_LIMIT_OUTPUTS) {
        return stk_spec_fail_code(r, STK_E_LIMIT, map, "%u inputs; %d is the limit",
                                  (unsigned)map->n, STK_LIMIT_OUTPUTS);
    }
    for (uint32_t i = 0; i < map->n; i++) {
        const char *digest = NULL;
        STK_TRY(read_digest(r, stk_json_value(map, i), "digest", &digest));
    }
    return 0;
}

/* Reads all keys that don't depend on the outputs. */
static int read_rest(stk_spec_reader *r, const stk_json *const nodes[T_N], stk_result *result)
{
    if (nodes[T_METADATA] != NULL) {
        STK_TRY(read_object(r, nodes[T_METADATA], "metadata", &result->metadata));
    }
    if (nodes[T_INPUTS] != NULL) {
        STK_TRY(read_inputs(r, nodes[T_INPUTS], result));
    }
    if (nodes[T_SEEN] != NULL) {
        STK_TRY(read_seen(r, nodes[T_SEEN], result));
    }
    if (nodes[T_WARNINGS] != NULL) {
        STK_TRY(read_warnings(r, nodes[T_WARNINGS], result));
    }
    if (nodes[T_HOOKS_RUN] != NULL) {
        STK_TRY(stk_spec_read_texts(r, nodes[T_HOOKS_RUN], "hooks_run", &result->hooks_run,
                                    &result->n_hooks_run));
    }
    if (nodes[T_CARDS] != NULL) {
        if (nodes[T_CARDS]->kind != STK_JSON_LIST) {
            return stk_spec_wrong(r, nodes[T_CARDS], "cards", "a list");
        }
        STK_TRY(stk_spec_read_json(r, nodes[T_CARDS], &result->cards));
    }
    if (nodes[T_ACCELERATOR] != NULL) {
        STK_TRY(stk_spec_read_fields(r, nodes[T_ACCELERATOR], "accelerator", accelerator_fields,
                                     STK_SPEC_N(accelerator_fields), result));
    }
    if (nodes[T_ERROR] != NULL) {
        result->has_error = true;
        STK_TRY(stk_spec_read_fields(r, nodes[T_ERROR], "error", error_fields,
                                     STK_SPEC_N(error_fields), &result->error));
    }
    return 0;
}

int stk_result_parse(const char *text, size_t len, const char *path, stk_arena *arena,
                     stk_result *ret_result, stk_err *err)
{
    stk_spec_reader r = {.arena = arena, .path = path, .err = err};
    const stk_json *nodes[T_N] = {0};
    stk_result result = {.next_n = -1, .error = {.class = STK_FAIL_EXCEPTION}};
    stk_json root;
    STK_TRY(stk_json_parse(text, len, path, &result_limits, arena, &root, err));
    STK_TRY(check_version(&r, &root));
    for (uint32_t i = 0; i < root.n; i++) {
        int key = stk_spec_key(&r, stk_json_key(&root, i), top_keys, T_N, NULL);
        STK_TRY(key);
        if (stk_json_value(&root, i)->kind != STK_JSON_NULL) {
            nodes[key] = stk_json_value(&root, i);
        }
    }
    STK_TRY(read_status(&r, &root, nodes[T_STATUS], &result.ok));
    if (nodes[T_OUTPUTS] != NULL) {
        STK_TRY(read_outputs(&r, nodes[T_OUTPUTS], &result));
    }
    if (nodes[T_DROPPED] != NULL) {
        STK_TRY(read_dropped(&r, nodes[T_DROPPED], &result));
    }
    if (nodes[T_NEXT] != NULL) {
        STK_TRY(stk_spec_read_fields(&r, nodes[T_NEXT], "next", next_fields,
                                     STK_SPEC_N(next_fields), &result));
    }
    STK_TRY(read_all_about_outputs(&r, nodes, &result));
    STK_TRY(read_rest(&r, nodes, &result));
    if (!result.ok) {
        result.has_error = true;
        if (result.error.message == NULL) {
            result.error.message = "the task failed without a message";
        }
    } else if (result.has_error && result.error.message == NULL) {
        result.error.message = "";
    }
    *ret_result = result;
    return 0;
}
