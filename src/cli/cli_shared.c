#include "cli/cli_shared.h"

#include <stdio.h>
#include <string.h>

#include "away/mirror/mirror.h"
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

static void say_left_out(const char *run, const stk_err *why)
{
    char text[1400];
    (void)fprintf(stderr, "stoker: leaving out run %s: %s\n", run,
                  stk_err_format(why, text, (int)sizeof text));
}

static int open_mirror(const char *url, const char *text, stk_mirror_depth depth, uint32_t limit,
                       stk_store **ret, stk_err *err)
{
    STK_MIRROR_AUTO mirror = NULL;
    char run[40];
    STK_TRY(stk_mirror_open(url, &mirror, err));
    if (text == NULL) {
        STK_TRY(stk_mirror_bring_newest(mirror, limit, depth, say_left_out, err));
    } else {
        STK_TEXT_AUTO name = strndup(text, strcspn(text, "/"));
        STK_TRY(stk_err_if_null(name, err));
        STK_TRY(stk_mirror_bring(mirror, name, depth, run, err));
    }
    return stk_store_open(stk_mirror_path(mirror), STK_STORE_MIRROR, ret, err);
}

int stk_cli_shared_url(const stk_cli *cli, stk_arena *arena, const char **ret, stk_err *err)
{
    const char *stack = stk_cli_value(cli, "stack");
    *ret = stk_cli_value(cli, "store");
    if (stack == NULL || *ret != NULL) {
        return stack == NULL ? 0 : stk_cli_usage(cli, err, "only one of --stack and --store");
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
    const char *store = stk_cli_value(cli, "store");
    return stk_cli_value(cli, "stack") != NULL || (store != NULL && stk_mirror_is_share(store));
}

int stk_cli_shared_store(const stk_cli *cli, const char *text, stk_mirror_depth depth,
                         uint32_t limit, stk_store **ret_store, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *url = NULL;
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_cli_shared_url(cli, arena, &url, err));
    if (url == NULL) {
        return stk_cli_store(STK_STORE_READONLY, ret_store, err);
    }
    if (!stk_cli_shared_is(cli)) {
        return stk_store_open(url, STK_STORE_READONLY, ret_store, err);
    }
    return open_mirror(url, text, depth, limit, ret_store, err);
}
