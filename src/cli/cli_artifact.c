/* stoker artifact: list, get, path, add, rm. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/units.h"
#include "cli/cli_read.h"
#include "run/run_elsewhere.h"
#include "store/store_digest.h"
#include "sys/clock.h"
#include "sys/file.h"

/* An artifact with what is known about it. */
typedef struct found {
    const char *step; /* or NULL */
    stk_view_ref ref;
} found;

static bool is_digest(const char *text)
{
    return strlen(text) == STK_DIGEST_HEX && strspn(text, "0123456789abcdef") == STK_DIGEST_HEX;
}

static stk_view_ref ref_of_named(const stk_named_row *row, stk_arena *arena)
{
    json_t *ref = row->ref ? json_loads(row->ref, JSON_ALLOW_NUL, NULL) : NULL;
    const json_t *size = json_object_get(ref, "size");
    const char *meta = json_dumps(json_object_get(ref, "meta"), JSON_COMPACT | JSON_ENCODE_ANY);
    const char *logged = json_dumps(json_object_get(ref, "metadata"), JSON_COMPACT);
    stk_view_ref out = {
        .name = row->output,
        .digest = row->digest,
        .format = stk_arena_dup(arena, json_string_value(json_object_get(ref, "format"))),
        .type = stk_arena_dup(arena, json_string_value(json_object_get(ref, "type"))),
        .meta = stk_arena_dup(arena, meta),
        .metadata = stk_arena_dup(arena, logged),
        .artifact_name = row->name,
        .artifact_version = row->version,
        .size = json_is_integer(size) ? json_integer_value(size) : -1};
    free((void *)(uintptr_t)meta);
    free((void *)(uintptr_t)logged);
    json_decref(ref);
    return out;
}

/* STEP/ID of a growing run, or STEP where it has one task: what the task sees counts. */
static int find_in_scope(const stk_view *view, const char *step, const char *output,
                         stk_arena *arena, found *ret, stk_err *err)
{
    uint32_t i_task = 0;
    int64_t i_step = stk_spec_find(stk_view_spec(view), step);
    const char *id = stk_view_get_run(view)->id;
    stk_view_scope scope;
    if (i_step >= 0) {
        const stk_view_step *tasks = stk_view_get_step(view, (uint32_t)i_step);
        if (tasks->n != 1) {
            return stk_err_set(err, STK_E_USAGE,
                               "step '%s' of run %s has %u tasks; name one: RUN/STEP/ID.NAME", step,
                               id, tasks->n);
        }
        i_task = tasks->first;
    } else if (!stk_view_find(view, step, &i_task)) {
        return stk_err_set(err, STK_E_NOT_FOUND, "run %s has no task '%s'", id, step);
    }
    int rc = stk_view_get_scope(view, i_task, 0, arena, &scope, err);
    for (uint32_t i = 0; rc == 0 && i < scope.n; i++) {
        const stk_view_artifact *one = &scope.items[i];
        if (output != NULL ? strcmp(one->name, output) == 0 : scope.n == 1) {
            json_t *ref = json_loads(one->ref, JSON_ALLOW_NUL, NULL);
            const char *digest = json_string_value(json_object_get(ref, "digest"));
            stk_named_row row = {.output = stk_arena_dup(arena, one->name),
                                 .digest = stk_arena_dup(arena, digest),
                                 .ref = one->ref};
            json_decref(ref);
            ret->step = step;
            ret->ref = ref_of_named(&row, arena);
            return 0;
        }
    }
    STK_TRY(rc);
    return stk_err_set(err, STK_E_NOT_FOUND,
                       "task '%s' of run %s has no artifact '%s' (yet); 'stoker show "
                       "%s/%s' lists what it has",
                       step, id, output != NULL ? output : "", id, step);
}

/* RUN/STEP.OUTPUT (or RUN/STEP when it has one output). */
static int find_in_run(stk_store *store, const char *text, stk_arena *arena, found *ret,
                       stk_err *err)
{
    char *run = stk_arena_dup(arena, text);
    char *step = strchr(run, '/');
    *step++ = '\0';
    char *output = strchr(step, '.');
    if (output != NULL) {
        *output++ = '\0';
    }
    char id[40];
    stk_view *view = NULL;
    stk_view_details d;
    uint32_t i_task = 0;
    int rc = stk_store_resolve_run(store, run, id, err);
    rc = rc < 0 ? rc : stk_view_load(store, id, &view, err);
    if (rc == 0 && stk_view_grows(view)) {
        rc = find_in_scope(view, step, output, arena, ret, err);
        stk_view_free(view);
        return rc;
    }
    if (rc == 0 && !stk_view_find(view, step, &i_task)) {
        rc = stk_err_set(err, STK_E_NOT_FOUND, "run %s has no step '%s'", id, step);
    }
    rc = rc < 0 ? rc : stk_view_get_details(view, i_task, arena, &d, err);
    stk_view_free(view);
    if (rc < 0) {
        return rc;
    }
    ret->step = step;
    for (uint32_t i = 0; i < d.n_outputs; i++) {
        if (output != NULL ? strcmp(d.outputs[i].name, output) == 0 : d.n_outputs == 1) {
            ret->ref = d.outputs[i];
            return 0;
        }
    }
    return output != NULL
               ? stk_err_set(err, STK_E_NOT_FOUND, "step '%s' of run %s has no output '%s' (yet)",
                             step, id, output)
               : stk_err_set(err, STK_E_USAGE,
                             "step '%s' of run %s has %u outputs; name one: "
                             "RUN/STEP.OUTPUT",
                             step, id, d.n_outputs);
}

/* A digest, RUN/STEP.OUTPUT, or NAME[:VERSION]. */
static int find_artifact(stk_store *store, const char *text, stk_arena *arena, found *ret,
                         stk_err *err)
{
    if (is_digest(text)) {
        ret->ref = (stk_view_ref){.digest = text, .size = -1};
        return 0;
    }
    if (strchr(text, '/') != NULL) {
        return find_in_run(store, text, arena, ret, err);
    }
    char *name = stk_arena_dup(arena, text);
    char *version = strrchr(name, ':');
    if (version != NULL) {
        *version++ = '\0';
    }
    stk_named_row *rows = NULL;
    uint32_t n = 0;
    int rc = stk_store_list_named(store, name, version, 1, arena, &rows, &n, err);
    if (rc < 0) {
        return rc;
    }
    if (n == 0) {
        stk_err_set(err, STK_E_NOT_FOUND, "no artifact is named '%s'", text);
        stk_err_hint(err, "name one as RUN/STEP.OUTPUT, NAME[:VERSION] or by its digest");
        return err->code;
    }
    ret->step = rows[0].step;
    ret->ref = ref_of_named(&rows[0], arena);
    return 0;
}

static void put_json(stk_buf *out, const found *f, const char *path, int64_t size)
{
    const struct {
        const char *key, *text;
    } texts[] = {{"digest", f->ref.digest},
                 {"path", path},
                 {"step", f->step},
                 {"output", f->ref.name},
                 {"format", f->ref.format},
                 {"type", f->ref.type},
                 {"name", f->ref.artifact_name},
                 {"version", f->ref.artifact_version}};
    stk_buf_char(out, '{');
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        stk_buf_printf(out, "%s\"%s\":", i > 0 ? "," : "", texts[i].key);
        if (texts[i].text != NULL) {
            stk_buf_json(out, texts[i].text);
        } else {
            stk_buf_text(out, "null");
        }
    }
    stk_buf_printf(out, ",\"size\":%lld,\"meta\":%s,\"metadata\":%s}", (long long)size,
                   f->ref.meta ? f->ref.meta : "{}", f->ref.metadata ? f->ref.metadata : "{}");
}

static int copy_out(const char *path, const char *target, stk_err *err)
{
    STK_TREE_AUTO tree = {0};
    if (stk_file_exists(target)) {
        return stk_err_set(err, STK_E_USAGE,
                           "'%s' is there already; remove it or name another file", target);
    }
    STK_TRY(stk_tree_walk(path, false, &tree, err));
    return stk_tree_copy(&tree, target, err);
}

/* What a step elsewhere made may be in the share alone. */
static int bring(stk_store *store, const char *digest, stk_arena *arena, const char **ret_path,
                 int64_t *ret_size, stk_err *err)
{
    stk_err why = {0};
    int rc = stk_store_artifact(store, digest, arena, ret_path, ret_size, err);
    if (rc != STK_E_NOT_FOUND) {
        return rc;
    }
    int fetched = stk_run_share_fetch(stk_store_path(store), digest, &why);
    if (fetched == 0) {
        return stk_store_artifact(store, digest, arena, ret_path, ret_size, err);
    }
    if (why.code != 0) {
        *err = why;
    }
    return why.code != 0 ? fetched : rc;
}

static int run_get(stk_cli *cli, stk_store *store, stk_arena *arena, stk_buf *out, stk_err *err)
{
    const char *text = stk_cli_arg(cli, 1);
    if (text == NULL || stk_cli_n_args(cli) > 2) {
        return stk_err_set(err, STK_E_USAGE, "which artifact? stoker artifact %s ARTIFACT",
                           stk_cli_arg(cli, 0));
    }
    found f = {0};
    const char *path = NULL;
    int64_t size = 0;
    int rc = find_artifact(store, text, arena, &f, err);
    if (rc == 0 && f.ref.digest == NULL) {
        rc = stk_err_set(err, STK_E_NOT_FOUND, "artifact '%s' has no content", text);
    }
    rc = rc < 0 ? rc : bring(store, f.ref.digest, arena, &path, &size, err);
    if (rc < 0) {
        return rc;
    }
    const char *target = stk_cli_value(cli, "copy-to");
    if (target != NULL && (rc = copy_out(path, target, err)) < 0) {
        return rc;
    }
    if (stk_cli_json(cli)) {
        put_json(out, &f, path, size);
        stk_buf_char(out, '\n');
    } else {
        stk_buf_printf(out, "%s\n", target ? target : path);
    }
    return 0;
}

static void list_line(const stk_cli *cli, stk_buf *out, const found *f, bool first)
{
    char size[32];
    if (stk_cli_json(cli)) {
        stk_buf_text(out, first ? "[" : ",\n ");
        put_json(out, f, NULL, f->ref.size);
        return;
    }
    STK_BUF_AUTO line = STK_BUF_INIT(1u << 16);
    if (f->ref.artifact_name != NULL) {
        stk_buf_printf(&line, "%s:%s", f->ref.artifact_name,
                       f->ref.artifact_version ? f->ref.artifact_version : "");
    } else {
        stk_buf_printf(&line, "%s.%s", f->step ? f->step : "", f->ref.name ? f->ref.name : "");
    }
    stk_text_fit(out, line.data, 36, true, true);
    stk_buf_printf(out, "  %9s  ",
                   f->ref.size >= 0 ? stk_units_format_memory(f->ref.size, size, sizeof size) : "");
    const char *type = f->ref.type && *f->ref.type ? f->ref.type : f->ref.format;
    stk_text_fit(out, type ? type : "", 28, true, true);
    stk_buf_printf(out, "  %.16s\n", f->ref.digest ? f->ref.digest : "");
}

/* Of a run: all its outputs; else every named artifact. */
static int run_list(stk_cli *cli, stk_store *store, stk_arena *arena, stk_buf *out, stk_err *err)
{
    uint32_t n_lines = 0;
    if (stk_cli_n_args(cli) > 1) {
        char id[40];
        stk_view *view = NULL;
        int rc = stk_store_resolve_run(store, stk_cli_arg(cli, 1), id, err);
        rc = rc < 0 ? rc : stk_view_load(store, id, &view, err);
        for (uint32_t i = 0; rc == 0 && i < stk_view_n_tasks(view); i++) {
            stk_view_details d;
            rc = stk_view_get_details(view, i, arena, &d, err);
            for (uint32_t k = 0; rc == 0 && k < d.n_outputs; k++) {
                found f = {stk_arena_dup(arena, stk_view_get_task(view, i)->label), d.outputs[k]};
                list_line(cli, out, &f, n_lines++ == 0);
            }
            stk_arena_reset(arena);
        }
        stk_view_free(view);
        if (rc < 0) {
            return rc;
        }
    } else {
        stk_named_row *rows = NULL;
        uint32_t n = 0;
        int rc = stk_store_list_named(store, NULL, NULL, 10000, arena, &rows, &n, err);
        if (rc < 0) {
            return rc;
        }
        for (uint32_t i = 0; i < n; i++) {
            found f = {rows[i].step, ref_of_named(&rows[i], arena)};
            list_line(cli, out, &f, n_lines++ == 0);
        }
    }
    if (stk_cli_json(cli)) {
        stk_buf_text(out, n_lines == 0 ? "[]\n" : "]\n");
    } else if (n_lines == 0) {
        stk_buf_text(out, stk_cli_n_args(cli) > 1
                              ? "this run has no artifacts\n"
                              : "no named artifacts; 'stoker artifact list RUN' lists a run's\n");
    }
    return 0;
}

static int add_named(stk_cli *cli, stk_store *store, const stk_artifact *artifact, const char *meta,
                     stk_err *err)
{
    const char *name = stk_cli_value(cli, "name");
    const char *format = stk_cli_value(cli, "format"), *type = stk_cli_value(cli, "type");
    if (!stk_units_is_name(name, true)) {
        return stk_err_set(err, STK_E_USAGE, "--name '%s' is not a name: letters, digits, _ . -",
                           name);
    }
    STK_BUF_AUTO ref = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES);
    stk_buf_printf(&ref, "{\"digest\":\"%s\",\"size\":%lld,\"format\":", artifact->digest,
                   (long long)artifact->size);
    stk_buf_json(&ref, format ? format : artifact->is_dir ? "dir" : "file");
    stk_buf_text(&ref, ",\"type\":");
    stk_buf_json(&ref, type ? type : "");
    stk_buf_printf(&ref, ",\"meta\":%s}", meta ? meta : "{}");
    stk_named_row row = {.name = name,
                         .version = stk_cli_value(cli, "version"),
                         .digest = artifact->digest,
                         .ref = ref.data,
                         .created_ms = stk_clock_wall_ms(&stk_clock_real)};
    return stk_store_add_named(store, &row, err);
}

static int run_add(stk_cli *cli, stk_store *store, stk_arena *arena, stk_buf *out, stk_err *err)
{
    const char *file = stk_cli_arg(cli, 1), *meta = stk_cli_value(cli, "meta");
    if (file == NULL || stk_cli_n_args(cli) > 2) {
        return stk_err_set(err, STK_E_USAGE, "which file? stoker artifact add FILE");
    }
    json_error_t wrong;
    json_t *json = meta ? json_loads(meta, JSON_ALLOW_NUL, &wrong) : NULL;
    bool is_object = json_is_object(json);
    json_decref(json);
    if (meta != NULL && !is_object) {
        return stk_err_set(err, STK_E_USAGE, "--meta is not a JSON object: %s",
                           json ? "it is another value" : wrong.text);
    }
    stk_artifact artifact;
    const char *path = NULL;
    int64_t size = 0;
    int rc = stk_store_copy_path(store, file, &artifact, err);
    rc = rc < 0 ? rc : stk_store_artifact(store, artifact.digest, arena, &path, &size, err);
    if (rc == 0 && stk_cli_value(cli, "name") != NULL) {
        rc = add_named(cli, store, &artifact, meta, err);
    }
    if (rc == 0) {
        stk_buf_printf(out, "{\"digest\":\"%s\",\"path\":", artifact.digest);
        stk_buf_json(out, path);
        stk_buf_printf(out, ",\"size\":%lld}\n", (long long)artifact.size);
    }
    return rc;
}

/* A name is taken off; what it stood for stays as long as a run or the cache has it. */
static int run_rm(stk_cli *cli, stk_store *store, stk_arena *arena, stk_buf *out, stk_err *err)
{
    const char *text = stk_cli_arg(cli, 1);
    if (text == NULL || stk_cli_n_args(cli) > 2) {
        return stk_err_set(err, STK_E_USAGE, "which artifact? stoker artifact rm NAME:VERSION");
    }
    char *name = stk_arena_dup(arena, text);
    char *version = strrchr(name, ':');
    if (version != NULL) {
        *version++ = '\0';
    }
    stk_named_row *rows = NULL;
    uint32_t n = 0;
    int rc = stk_store_list_named(store, name, version, 10000, arena, &rows, &n, err);
    if (rc == 0 && n > 1 && version == NULL && !stk_cli_flag(cli, "all")) {
        return stk_err_set(err, STK_E_USAGE,
                           "artifact '%s' has %u versions (the latest is %s): name one as "
                           "%s:VERSION, or give --all",
                           name, n, rows[0].version, name);
    }
    rc = rc < 0 ? rc : stk_store_remove_named(store, name, version, &n, err);
    if (rc == 0 && stk_cli_json(cli)) {
        stk_buf_printf(out, "{\"removed\":%u}\n", n);
    } else if (rc == 0) {
        stk_buf_printf(out,
                       "removed %u version%s of '%s'; `stoker store gc` frees what nothing else "
                       "refers to\n",
                       n, n == 1 ? "" : "s", name);
    }
    return rc;
}

static const stk_option options[] = {
    {"copy-to", 0, "FILE", "get: copy the artifact to FILE, which must not exist", false},
    {"format", 0, "F", "add: its format (json, npy, parquet, …)", false},
    {"type", 0, "T", "add: its type, as the Python front names it", false},
    {"meta", 0, "JSON", "add: an object that is kept with it", false},
    {"name", 0, "NAME", "add: give it a name", false},
    {"version", 0, "V", "add: with --name, the version (default: the next number)", false},
    {"all", 0, NULL, "rm: every version of the name", false},
    {NULL}};

/* Each option's text begins with the word that it belongs to; with another it would mean nothing.
 */
static int check_options(const stk_cli *cli, const char *word)
{
    for (const stk_option *o = options; o->name != NULL; o++) {
        bool given =
            o->arg == NULL ? stk_cli_flag(cli, o->name) : stk_cli_value(cli, o->name) != NULL;
        size_t n = strcspn(o->help, ":");
        if (given && (strncmp(o->help, word, n) != 0 || word[n] != '\0')) {
            return stk_cli_usage(cli, "--%s is for 'artifact %.*s', not for '%s'", o->name, (int)n,
                                 o->help, word);
        }
    }
    if (stk_cli_value(cli, "version") != NULL && stk_cli_value(cli, "name") == NULL) {
        return stk_cli_usage(cli, "--version %s is of a name: give --name NAME too",
                             stk_cli_value(cli, "version"));
    }
    return 0;
}

/* What had to be summed before it is given out is on record then, and what is damaged set aside. */
static bool can_write_store(void)
{
    STK_TEXT_AUTO path = NULL;
    STK_TEXT_AUTO db = NULL;
    if (stk_store_find(".", STK_STORE_READONLY, &path, NULL) == 0) {
        db = stk_file_join(path, "store.db");
    }
    return db != NULL && access(path, W_OK) == 0 && access(db, W_OK) == 0;
}

static int run_artifact(stk_cli *cli)
{
    static const struct {
        const char *word;
        int flags;
        int (*run)(stk_cli *cli, stk_store *store, stk_arena *arena, stk_buf *out, stk_err *err);
    } words[] = {{"list", STK_STORE_READONLY, run_list},
                 {"get", STK_STORE_READONLY, run_get},
                 {"path", STK_STORE_READONLY, run_get},
                 {"add", STK_STORE_CREATE, run_add},
                 {"rm", 0, run_rm}};
    enum { N_WORDS = sizeof words / sizeof words[0] };
    const char *word = stk_cli_arg(cli, 0);
    size_t i = 0;
    while (word != NULL && i < N_WORDS && strcmp(words[i].word, word) != 0) {
        i++;
    }
    if (word == NULL || i == N_WORDS) {
        return word == NULL
                   ? stk_cli_usage(cli, "what with artifacts? list, get, path, add or rm")
                   : stk_cli_usage(cli, "'%s' is not one of list, get, path, add, rm", word);
    }
    STK_CLI_READ_AUTO read = {0};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 30);
    stk_err err = {0};
    int status = check_options(cli, word);
    int flags = words[i].run == run_get && can_write_store() ? 0 : words[i].flags;
    if (status == 0) {
        status = stk_cli_store(cli, flags, &read.store);
    }
    if (status != 0) {
        return status;
    }
    int rc = arena == NULL ? stk_err_nomem(&err) : words[i].run(cli, read.store, arena, &out, &err);
    return stk_cli_answer(cli, rc, &out, &err);
}

const stk_command stk_cmd_artifact = {
    .name = "artifact",
    .summary = "list, fetch and add artifacts",
    .usage = "list [RUN] | get ARTIFACT [--copy-to FILE] | path ARTIFACT | add FILE [options] | "
             "rm NAME[:VERSION]",
    .text = "ARTIFACT is RUN/STEP.OUTPUT, NAME[:VERSION] or a digest. 'get' and 'path' print where "
            "the artifact lies in the store (read it, never change it). 'add' copies a file or "
            "folder into the store and prints its digest, path and size as JSON. 'rm' takes a name "
            "off; the content goes with `stoker store gc` once no run refers to it.",
    .options = options,
    .run = run_artifact};
