#include "cli/cli_shared.h"

#include <stdio.h>
#include <string.h>

#include "away/mirror/mirror.h"
#include "base/text.h"
#include "cli/cli_stores.h"
#include "run/run_shared.h"
#include "sys/file.h"

void stk_cli_shared_added(stk_store *store, const char *run)
{
    stk_err err = {0};
    bool is_published = false;
    if (stk_run_shared_publish(store, NULL, run, &is_published, &err) < 0) {
        fprintf(stderr, "stoker: only this machine has what was added to run %s: %s\n", run,
                err.text);
    }
}

static void say_line(const char *line)
{
    (void)fprintf(stderr, "stoker: %s\n", line);
}

static int bring(const stk_cli *cli, stk_mirror *mirror, const char *text, stk_mirror_depth depth,
                 stk_err *err)
{
    char run[40];
    STK_TEXT_AUTO name = strndup(text, strcspn(text, "/"));
    const char *place = stk_text_or(stk_cli_value(cli, "store"), stk_mirror_url(mirror));
    STK_TRY(stk_err_if_null(name, err));
    int rc = stk_mirror_bring(mirror, name, depth, run, err);
    if (rc == STK_E_NOT_FOUND) {
        return stk_err_set(err, rc, "no run '%s' in %s", name, place);
    }
    return rc;
}

static int open_mirror(const stk_cli *cli, const char *url, const char *const *runs,
                       stk_mirror_depth depth, uint32_t limit, stk_store **ret, stk_err *err)
{
    STK_MIRROR_AUTO mirror = NULL;
    STK_TRY(stk_mirror_open(url, &mirror, err));
    stk_mirror_set_note(mirror, say_line);
    if (runs == NULL) {
        STK_TRY(stk_mirror_bring_newest(mirror, limit, depth, err));
    }
    for (; runs != NULL && *runs != NULL; runs++) {
        STK_TRY(bring(cli, mirror, *runs, depth, err));
    }
    return stk_store_open(stk_mirror_path(mirror), STK_STORE_MIRROR, ret, err);
}

/* The folder that --store names; NULL: a URL of what isn't one here. */
static const char *path_in(const char *named)
{
    static const char before[] = "file://";
    if (strncmp(named, before, sizeof before - 1) == 0) {
        return named + sizeof before - 1;
    }
    return strstr(named, "://") == NULL ? named : NULL;
}

/* *ret: its URL; NULL: it is the folder of a store that isn't shared. */
static int find_named(const char *named, stk_arena *arena, const char **ret, stk_err *err)
{
    const char *folder = path_in(named);
    STK_TEXT_AUTO path = folder == NULL ? NULL : stk_file_absolute(folder);
    const char *store = path == NULL ? NULL : stk_cli_stores_path(arena, path);
    STK_TEXT_AUTO db = store == NULL ? NULL : stk_file_join(store, "store.db");
    *ret = NULL;
    if (folder == NULL || (path != NULL && stk_mirror_is_share(path))) {
        *ret = stk_arena_dup(arena, stk_text_or(path, named));
        return stk_err_if_null(*ret, err);
    }
    if (db != NULL && stk_file_exists(db)) {
        return 0;
    }
    return stk_err_set(err, STK_E_NOT_FOUND,
                       "'%s' is neither a store nor a folder that machines "
                       "share",
                       named);
}

int stk_cli_shared_url(const stk_cli *cli, stk_arena *arena, const char **ret, stk_err *err)
{
    const char *stack = stk_cli_value(cli, "stack"), *named = stk_cli_value(cli, "store");
    *ret = NULL;
    if (stack != NULL && named != NULL) {
        return stk_cli_usage(cli, err, "only one of --stack and --store");
    }
    if (named != NULL) {
        return find_named(named, arena, ret, err);
    }
    if (stack == NULL) {
        return 0;
    }
    STK_TRY(stk_run_shared_url(stack, arena, ret, err));
    if (*ret == NULL) {
        stk_err_set(err, STK_E_USAGE, "stack '%s' shares no store with other machines", stack);
        stk_err_hint(err, "without --stack the runs of this machine are shown");
        return err->code;
    }
    return 0;
}

bool stk_cli_shared_is(const stk_cli *cli)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *url = NULL;
    stk_err why = {0};
    return arena != NULL && stk_cli_shared_url(cli, arena, &url, &why) == 0 && url != NULL;
}

int stk_cli_shared_store(const stk_cli *cli, const char *const *runs, stk_mirror_depth depth,
                         uint32_t limit, stk_store **ret_store, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *url = NULL, *named = stk_cli_value(cli, "store");
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_cli_shared_url(cli, arena, &url, err));
    if (url != NULL) {
        return open_mirror(cli, url, runs, depth, limit, ret_store, err);
    }
    if (named != NULL) {
        const char *path = stk_cli_stores_path(arena, path_in(named));
        STK_TRY(stk_err_if_null(path, err));
        return stk_store_open(path, STK_STORE_READONLY, ret_store, err);
    }
    return stk_cli_store(STK_STORE_READONLY, ret_store, err);
}

void stk_cli_shared_put_place(const stk_cli *cli, const stk_store *store, stk_buf *out)
{
    const char *stack = stk_cli_value(cli, "stack");
    if (stack != NULL) {
        stk_buf_printf(out, "the store of stack '%s'", stack);
    } else {
        stk_buf_text(out, stk_text_or(stk_cli_value(cli, "store"), stk_store_path(store)));
    }
}
