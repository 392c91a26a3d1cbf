/* stoker artifact: list, get, path, add, mv, rm. */
#include "cli/cli_artifact.h"

#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/cli_read.h"
#include "run/run_elsewhere.h"
#include "show/artifact.h"
#include "store/store_digest.h"
#include "sys/clock.h"
#include "sys/file.h"

static int copy_out(const char *path, const char *target, stk_err *err)
{
    STK_TREE_AUTO tree = {0};
    if (stk_file_exists(target)) {
        return stk_err_set(err, STK_E_USAGE, "'%s' already exists; remove it or name another file",
                           target);
    }
    STK_TRY(stk_tree_walk(path, false, &tree, err));
    return stk_tree_copy(&tree, target, err);
}

static int run_get(const stk_cli *cli, stk_store *store, stk_arena *arena, stk_buf *out,
                   stk_err *err)
{
    const char *text = stk_cli_arg(cli, 1), *target = stk_cli_value(cli, "copy-to");
    const char *path = NULL;
    stk_view_found found = {0};
    int64_t size = 0;
    STK_TRY(stk_view_find_artifact(store, text, arena, &found, err));
    if (found.ref.digest == NULL) {
        return stk_err_set(err, STK_E_NOT_FOUND, "artifact '%s' has no content", text);
    }
    STK_TRY(stk_run_share_artifact(store, found.ref.digest, arena, &path, &size, err));
    if (target != NULL) {
        STK_TRY(copy_out(path, target, err));
    }
    if (stk_cli_json(cli)) {
        stk_show_artifact_json(&found, path, size, out);
    } else {
        stk_buf_text(out, stk_text_or(target, path));
    }
    return 0;
}

/* With a run: all its outputs; else every named artifact. */
static int run_list(const stk_cli *cli, stk_store *store, stk_arena *arena, stk_buf *out,
                    stk_err *err)
{
    return stk_show_artifacts(store, stk_cli_arg(cli, 1), stk_cli_json(cli), arena, out, err);
}

/* Removes a name. Its content stays as long as a run or the cache refers to it. */
static int run_rm(const stk_cli *cli, stk_store *store, stk_arena *arena, stk_buf *out,
                  stk_err *err)
{
    char *name = stk_arena_dup(arena, stk_cli_arg(cli, 1));
    STK_TRY(stk_err_if_null(name, err));
    char *version = strrchr(name, ':');
    if (version != NULL) {
        *version++ = '\0';
    }
    stk_named_row *rows = NULL;
    uint32_t n = 0;
    STK_TRY(stk_store_list_named(store, name, version, 10000, arena, &rows, &n, err));
    if (n > 1 && version == NULL && !stk_cli_flag(cli, "all")) {
        return stk_err_set(err, STK_E_USAGE,
                           "artifact '%s' has %u versions (the latest is %s): name one as "
                           "%s:VERSION, or give --all",
                           name, n, rows[0].version, name);
    }
    STK_TRY(stk_store_remove_named(store, name, version, &n, err));
    if (stk_cli_json(cli)) {
        stk_json_open(out, NULL, '{');
        stk_json_put_whole(out, "removed", n);
        stk_json_close(out, '}');
    } else {
        stk_buf_printf(out,
                       "removed %u version%s of '%s'; `stoker store gc` frees what nothing else "
                       "refers to\n",
                       n, stk_text_plural(n), name);
    }
    return 0;
}

static const stk_option options[] = {
    {"copy-to", 0, "FILE", "get: copy the artifact to FILE, which must not exist"},
    {"format", 0, "F", "add: its format (json, npy, parquet, …)"},
    {"type", 0, "T", "add: its type, as the Python front names it"},
    {"meta", 0, "JSON", "add: a JSON object to store with it"},
    {"name", 0, "NAME", "add: give it a name"},
    {"version", 0, "V", "add: with --name, the version (default: the next number)"},
    {"of", 0, "RUN/STEP", "add: with --name, the step that made it"},
    {"all", 0, NULL, "rm: every version of the name"},
    {NULL}};

/* An option's help begins with the word that it belongs to. With another word it is an error. */
static int check_options(const stk_cli *cli, const char *word, stk_err *err)
{
    for (const stk_option *o = options; o->name != NULL; o++) {
        size_t n = strcspn(o->help, ":");
        if (stk_cli_flag(cli, o->name) && (strncmp(o->help, word, n) != 0 || word[n] != '\0')) {
            return stk_cli_usage(cli, err, "--%s is for 'artifact %.*s', not for '%s'", o->name,
                                 (int)n, o->help, word);
        }
    }
    static const char *const of_name[] = {"version", "of"};
    for (size_t i = 0; i < 2 && stk_cli_value(cli, "name") == NULL; i++) {
        if (stk_cli_value(cli, of_name[i]) != NULL) {
            return stk_cli_usage(cli, err, "--%s %s needs --name NAME as well", of_name[i],
                                 stk_cli_value(cli, of_name[i]));
        }
    }
    return 0;
}

/* 'get' may have to record a digest or set a damaged artifact aside, if the store is writable. */
static bool can_write_store(void)
{
    STK_TEXT_AUTO path = NULL;
    STK_TEXT_AUTO db = NULL;
    if (stk_store_find(".", STK_STORE_READONLY, &path, NULL) == 0) {
        db = stk_file_join(path, "store.db");
    }
    return db != NULL && access(path, W_OK) == 0 && access(db, W_OK) == 0;
}

static int run_artifact(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    static const struct {
        const char *word, *noun, *more; /* what the word takes, for messages; NULL: maybe a run */
        int n_args, flags;
        int (*run)(const stk_cli *cli, stk_store *store, stk_arena *arena, stk_buf *out,
                   stk_err *err);
    } words[] = {{"list", NULL, NULL, 0, STK_STORE_READONLY, run_list},
                 {"get", "artifact", "ARTIFACT", 2, STK_STORE_READONLY, run_get},
                 {"path", "artifact", "ARTIFACT", 2, STK_STORE_READONLY, run_get},
                 {"add", "file", "FILE", 2, STK_STORE_CREATE, stk_cli_artifact_add},
                 {"mv", "name and another", "NAME NEW-NAME", 3, 0, stk_cli_artifact_mv},
                 {"rm", "artifact", "NAME:VERSION", 2, STK_STORE_FREES, run_rm}};
    enum { N_WORDS = sizeof words / sizeof words[0] };
    const char *word = stk_cli_arg(cli, 0);
    STK_STORE_AUTO store = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    size_t i = 0;
    if (word == NULL) {
        return stk_cli_usage(cli, err, "an action is missing: list, get, path, add, mv or rm");
    }
    while (i < N_WORDS && strcmp(words[i].word, word) != 0) {
        i++;
    }
    if (i == N_WORDS) {
        return stk_cli_usage(cli, err, "unknown action '%s': it is list, get, path, add, mv or rm",
                             word);
    }
    STK_TRY(check_options(cli, word, err));
    if (words[i].noun != NULL && stk_cli_n_args(cli) != words[i].n_args) {
        return stk_err_set(err, STK_E_USAGE, "name one %s: stoker artifact %s %s", words[i].noun,
                           word, words[i].more);
    }
    STK_TRY(stk_err_if_null(arena, err));
    bool writes = words[i].run == run_get && can_write_store();
    STK_TRY(stk_cli_store(writes ? 0 : words[i].flags, &store, err));
    return words[i].run(cli, store, arena, out, err);
}

const stk_command stk_cmd_artifact = {
    .name = "artifact",
    .summary = "list, fetch and add artifacts",
    .usage = "list [RUN] | get ARTIFACT [--copy-to FILE] | path ARTIFACT | add FILE [options] | "
             "mv NAME NEW-NAME | rm NAME[:VERSION]",
    .text = "ARTIFACT is RUN/STEP.OUTPUT, NAME[:VERSION] or a digest. 'get' and 'path' print the "
            "artifact's path in the store (read it, never change it). 'add' copies a file or "
            "folder into the store and prints its digest, path and size as JSON. 'mv' gives all "
            "versions of a name another one. 'rm' "
            "removes a name; `stoker store gc` removes the content once no run refers to it.",
    .options = options,
    .max_args = -1,
    .run = run_artifact};
