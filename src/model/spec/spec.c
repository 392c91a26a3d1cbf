#include "model/spec/spec.h"

#include <string.h>

#include "base/text.h"
#include "base/units.h"
#include "base/yaml.h"
#include "model/spec/spec_read.h"

enum { FORMAT_VERSION = 1 };

static const stk_json_limits spec_limits = {STK_LIMIT_SPEC_BYTES, STK_LIMIT_YAML_NODES,
                                            STK_LIMIT_DEPTH};

enum { T_STOKER, T_NAME, T_DESCRIPTION, T_PARAMETERS, T_MODE, T_ORIGIN, T_STEPS, T_N };
static const char *const top_keys[T_N] = {[T_STOKER] = "stoker",
                                          [T_NAME] = "name",
                                          [T_DESCRIPTION] = "description",
                                          [T_PARAMETERS] = "parameters",
                                          [T_MODE] = "mode",
                                          [T_ORIGIN] = "origin",
                                          [T_STEPS] = "steps"};

/* --- the document's own keys --- */

/* Runs first, so that a document of a later format isn't checked against this one's keys. */
static int check_version(stk_spec_reader *r, const stk_json *root)
{
    const stk_json *version = stk_json_get(root, "stoker");
    int64_t number;
    if (root->kind != STK_JSON_MAP) {
        return stk_spec_fail(r, root, "a pipeline must be a mapping, not %s",
                             stk_json_kind_words(root->kind));
    }
    if (version == NULL) {
        return stk_spec_fail(r, root, "the version of the format is missing: add 'stoker: 1'");
    }
    if (!stk_json_int(version, &number) || number < 1) {
        return stk_spec_wrong(r, version, "stoker", "1, the version of this format");
    }
    if (number > FORMAT_VERSION) {
        return stk_spec_fail_code(
            r, STK_E_VERSION, version,
            "the document has format %lld, but this Stoker reads formats up to %d; upgrade Stoker",
            (long long)number, FORMAT_VERSION);
    }
    return 0;
}

static int unknown_key(stk_spec_reader *r, const stk_json *key)
{
    const char *names[T_N + 32];
    const char *const *settings;
    size_t n_settings = stk_spec_setting_names(&settings);
    memcpy(names, top_keys, sizeof top_keys);
    memcpy(names + T_N, settings, n_settings * sizeof *names);
    stk_spec_fail(r, key, "unknown key '%.80s'", key->text);
    stk_spec_did_you_mean(r, key->text, names, T_N + n_settings);
    return STK_E_SPEC;
}

static int read_name(stk_spec_reader *r, const stk_json *node)
{
    const char *name = stk_json_text(node);
    if (name == NULL || !stk_units_is_name(name, true)) {
        return stk_spec_wrong(
            r, node, "name",
            "a name of at most 128 letters, digits and _ . - that doesn't begin with . or -");
    }
    r->spec->name = name;
    return 0;
}

static int read_mode(stk_spec_reader *r, const stk_json *node)
{
    const char *word = stk_json_text(node);
    int mode = word == NULL ? -1 : stk_mode_of(word);
    if (mode < 0) {
        return stk_spec_wrong(r, node, "mode", "continue_on_failure, stop_on_failure or fail_fast");
    }
    r->spec->mode = (stk_mode)mode;
    return 0;
}

static int check_origin(stk_spec_reader *r, const stk_json *map)
{
    static const char *const keys[] = {"file", "argv",  "cwd",    "python",
                                       "code", "files", "commit", "dirty"};
    static const char *const lists[] = {
        [1] = "origin.argv", [5] = "origin.files", [7] = "origin.dirty"};
    int rc = stk_spec_read_map(r, map, "origin");
    for (uint32_t i = 0; rc == 0 && i < map->n; i++) {
        const stk_json *value = stk_json_value(map, i);
        const char *text;
        int key = stk_spec_key(r, stk_json_key(map, i), keys, 8, "origin");
        if (key < 0) {
            return key;
        }
        if (value->kind == STK_JSON_NULL) {
            continue;
        }
        const char *name = lists[key];
        if (name != NULL) {
            if (value->kind != STK_JSON_LIST) {
                return stk_spec_wrong(r, value, name, "a list of strings");
            }
            for (uint32_t j = 0; rc == 0 && j < value->n; j++) {
                rc = stk_spec_read_text(r, &value->items[j], name, &text);
            }
            continue;
        }
        rc = stk_spec_read_text(r, value, keys[key], &text);
        if (rc == 0 && key == 2 && *text != '/') {
            rc = stk_spec_wrong(r, value, "origin.cwd", "an absolute path");
        }
    }
    return rc;
}

/* --- the folder that relative paths refer to --- */

static int find_folder(stk_spec_reader *r, const stk_json *origin)
{
    const stk_spec_place *at = r->place;
    const char *cwd = stk_json_get_text(origin, "cwd");
    const char *folder = stk_text_or(at->folder, "/");
    if (cwd == NULL && (!stk_json_is_utf8(folder, strlen(folder)) ||
                        (at->path != NULL && !stk_json_is_utf8(at->path, strlen(at->path))))) {
        stk_err_set(r->err, STK_E_USAGE,
                    "the path of '%s' isn't valid UTF-8, so the run can't be recorded",
                    stk_text_or(at->path, folder));
        stk_err_hint(r->err, "rename the file or the folder");
        return STK_E_USAGE;
    }
    r->spec->folder = stk_arena_dup(r->arena, stk_text_or(cwd, folder));
    return stk_spec_if_null(r, r->spec->folder);
}

/* Makes the stored text, which must mean the same wherever it is read again. So it names its
 * folder, and its file if it was one. */
static int make_text(stk_spec_reader *r, const stk_json *root)
{
    /* A handwritten document has neither "file" nor "cwd" in its origin; a stored one has both. */
    const stk_json *given = stk_json_get(root, "origin");
    bool by_hand = stk_json_get_text(given, "file") == NULL &&
                   stk_json_get_text(given, "cwd") == NULL && r->place->file != NULL;
    stk_json from[4] = {stk_json_of_text("cwd"), stk_json_of_text(r->spec->folder),
                        stk_json_of_text("file"),
                        stk_json_of_text(stk_text_or(r->place->file, ""))};
    stk_json origin[2] = {stk_json_of_text("origin"),
                          {.items = from, .n = 1u + by_hand, .kind = STK_JSON_MAP}};
    stk_json own = {.items = origin, .n = 1, .kind = STK_JSON_MAP};
    stk_json whole;
    STK_BUF_AUTO text = STK_BUF_INIT(STK_LIMIT_SPEC_BYTES);
    STK_TRY(stk_spec_merge(r, root, &own, &whole));
    stk_json_dump(&whole, &text);
    if (text.failed) {
        return stk_spec_fail_code(
            r, STK_E_LIMIT, NULL,
            "the document, with its aliases expanded, has more than %u bytes as JSON",
            STK_LIMIT_SPEC_BYTES);
    }
    r->spec->text = stk_arena_dupn(r->arena, text.data, text.len);
    r->spec->text_len = text.len;
    if (r->spec->text == NULL) {
        return stk_spec_no_memory(r);
    }
    return stk_spec_read_json(r, stk_json_get(&whole, "origin"), &r->spec->origin);
}

/* --- all of it --- */

static int read_root(stk_spec_reader *r, const stk_json *root)
{
    const stk_json *nodes[T_N] = {0};
    STK_TRY(check_version(r, root));
    for (uint32_t i = 0; i < root->n; i++) {
        int key = stk_spec_find_key(stk_json_key(root, i), top_keys, T_N);
        if (key < 0 && !stk_spec_is_setting(stk_json_key(root, i))) {
            return unknown_key(r, stk_json_key(root, i));
        }
        if (key >= 0 && stk_json_value(root, i)->kind != STK_JSON_NULL) {
            nodes[key] = stk_json_value(root, i);
        }
    }
    if (nodes[T_NAME] == NULL || nodes[T_STEPS] == NULL) {
        return stk_spec_fail(r, root, "'%s' is missing", nodes[T_NAME] == NULL ? "name" : "steps");
    }
    stk_spec *spec = r->spec;
    stk_spec_base defaults;
    stk_spec_base *base = stk_arena_alloc(r->arena, sizeof *base);
    spec->base = base;
    stk_spec_default_settings(&defaults);
    STK_TRY(stk_spec_if_null(r, base));
    STK_TRY(read_name(r, nodes[T_NAME]));
    if (nodes[T_ORIGIN] != NULL) {
        STK_TRY(check_origin(r, nodes[T_ORIGIN]));
    }
    /* Makes the text first, because this refuses aliases that expand to more than a document may
     * hold. */
    STK_TRY(find_folder(r, nodes[T_ORIGIN]));
    STK_TRY(make_text(r, root));
    if (nodes[T_DESCRIPTION] != NULL) {
        STK_TRY(stk_spec_read_text(r, nodes[T_DESCRIPTION], "description", &spec->description));
    }
    if (nodes[T_PARAMETERS] != NULL) {
        STK_TRY(stk_spec_read_params(r, nodes[T_PARAMETERS]));
    }
    if (nodes[T_MODE] != NULL) {
        STK_TRY(read_mode(r, nodes[T_MODE]));
    }
    STK_TRY(stk_spec_read_settings(r, &defaults, root, base));
    STK_TRY(stk_spec_read_steps(r, nodes[T_STEPS]));
    if (spec->grows && nodes[T_MODE] == NULL) {
        spec->mode = STK_MODE_STOP; /* without a branch, its join is impossible */
    }
    return 0;
}

int stk_spec_parse(const char *text, size_t len, const stk_spec_place *place, stk_spec **ret_spec,
                   stk_err *err)
{
    stk_arena *arena = stk_arena_new(0);
    stk_spec *spec = stk_arena_alloc(arena, sizeof *spec);
    stk_spec_titles *titles = stk_spec_new_titles(arena);
    if (spec == NULL || titles == NULL) {
        stk_arena_free(arena);
        return stk_err_set(err, STK_E_NOMEM, "out of memory while reading the pipeline");
    }
    spec->arena = arena;
    spec->titles = titles;
    spec->path = stk_arena_dup(arena, place->path);
    stk_spec_reader r = {
        .arena = arena, .path = place->path, .place = place, .err = err, .spec = spec};
    stk_json root;
    int rc = stk_yaml_or_json_parse(text, len, place->path, &spec_limits, arena, &root, err);
    if (rc == 0) {
        rc = read_root(&r, &root);
    }
    if (rc < 0) {
        stk_spec_free(spec);
        return rc;
    }
    *ret_spec = spec;
    return 0;
}

void stk_spec_free(stk_spec *spec)
{
    if (spec != NULL) {
        stk_map_done(&spec->step_index);
        stk_spec_free_titles(spec);
        stk_arena_free(spec->arena);
    }
}

/* Writes "/steps/train":7 for every member and item under `node`. The depth limit of documents
 * bounds the recursion. */
static void dump_lines(const stk_json *node, stk_buf *pointer, stk_buf *out)
{
    bool map = stk_json_is_map(node);
    size_t len = pointer->len;
    for (uint32_t i = 0; i < stk_json_n_items(node) + stk_json_n_members(node); i++) {
        const stk_json *child = map ? stk_json_value(node, i) : &node->items[i];
        const stk_json *named = map ? stk_json_key(node, i) : child;
        stk_buf_char(pointer, '/');
        if (!map) {
            stk_buf_printf(pointer, "%u", i);
        }
        for (const char *c = named->text; map && *c != '\0'; c++) {
            if (*c == '~' || *c == '/') {
                stk_buf_text(pointer, *c == '~' ? "~0" : "~1"); /* RFC 6901 */
            } else {
                stk_buf_char(pointer, *c);
            }
        }
        if (pointer->failed) {
            return;
        }
        stk_json_put_whole(out, pointer->data, named->line);
        dump_lines(child, pointer, out);
        pointer->len = len;
        pointer->data[len] = '\0';
    }
}

static int convert(const char *text, size_t len, const char *path, bool lines, char **ret_json,
                   stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_json root;
    if (arena == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory while reading the document");
    }
    STK_TRY(stk_yaml_or_json_parse(text, len, path, &spec_limits, arena, &root, err));
    /* Expands aliases, so the text can grow far beyond the document. */
    STK_BUF_AUTO json = STK_BUF_INIT(STK_LIMIT_SPEC_BYTES);
    STK_BUF_AUTO pointer = STK_BUF_INIT(STK_LIMIT_SPEC_BYTES);
    if (lines) {
        stk_json_open(&json, NULL, '{');
        stk_json_put(&json, "document", &root);
        stk_json_open(&json, "lines", '{');
        dump_lines(&root, &pointer, &json);
        stk_buf_text(&json, "}}");
    } else {
        stk_json_dump(&root, &json);
    }
    if (json.failed || pointer.failed) {
        stk_err_set(err, STK_E_LIMIT,
                    "the document, with its aliases expanded, has more than %u bytes as JSON",
                    STK_LIMIT_SPEC_BYTES);
        stk_err_at(err, path, 0);
        return STK_E_LIMIT;
    }
    *ret_json = json.data;
    json.data = NULL;
    return 0;
}

int stk_spec_convert(const char *text, size_t len, const char *path, char **ret_json, stk_err *err)
{
    return convert(text, len, path, false, ret_json, err);
}

int stk_spec_convert_lines(const char *text, size_t len, const char *path, char **ret_json,
                           stk_err *err)
{
    return convert(text, len, path, true, ret_json, err);
}

/* --- reading it --- */

const char *stk_spec_name(const stk_spec *spec)
{
    return spec->name;
}

const char *stk_spec_path(const stk_spec *spec)
{
    return spec->path;
}

const char *stk_spec_description(const stk_spec *spec)
{
    return spec->description;
}

const char *stk_spec_folder(const stk_spec *spec)
{
    return spec->folder;
}

stk_mode stk_spec_mode(const stk_spec *spec)
{
    return spec->mode;
}

const stk_settings *stk_spec_settings(const stk_spec *spec)
{
    return &spec->base->s;
}

const char *stk_spec_origin(const stk_spec *spec)
{
    return spec->origin;
}

const char *stk_spec_text(const stk_spec *spec, size_t *ret_len)
{
    if (ret_len != NULL) {
        *ret_len = spec->text_len;
    }
    return spec->text;
}

bool stk_spec_grows(const stk_spec *spec)
{
    return spec->grows;
}

uint32_t stk_spec_n_steps(const stk_spec *spec)
{
    return spec->n_steps;
}

const stk_step *stk_spec_step(const stk_spec *spec, uint32_t i_step)
{
    return &spec->steps[i_step];
}

int64_t stk_spec_find(const stk_spec *spec, const char *step_name)
{
    uint64_t i;
    if (!stk_map_get(&spec->step_index, step_name, &i)) {
        return -1;
    }
    return (int64_t)i;
}

uint32_t stk_spec_n_params(const stk_spec *spec)
{
    return spec->n_params;
}

const stk_param *stk_spec_param(const stk_spec *spec, uint32_t i_param)
{
    return &spec->params[i_param];
}
