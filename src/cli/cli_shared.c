#include "cli/cli_shared.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "away/remote/remote_log.h"
#include "image/stack/stack.h"
#include "store/view/view.h"
#include "sys/file.h"

int stk_cli_shared_url(const char *stack, stk_arena *arena, const char **ret_url, stk_err *err)
{
    stk_stack found;
    int rc = stk_stack_find(".", stack, arena, &found, err);
    *ret_url = rc < 0 ? NULL : found.store;
    return rc;
}

/* --- to be taken up --- */

/* The stack that is on record with a run's creation, or NULL. */
static const char *stack_of(stk_store *store, const char *run, stk_arena *arena)
{
    stk_view *view = NULL;
    stk_err ignored = {0};
    const char *stack = NULL;
    if (stk_view_load(store, run, &view, &ignored) == 0) {
        const char *host = stk_view_get_run(view)->host;
        json_t *doc = host == NULL ? NULL : json_loads(host, 0, NULL);
        const char *name = json_string_value(json_object_get(doc, "stack"));
        stack = stk_arena_dup(arena, name);
        json_decref(doc);
    }
    stk_view_free(view);
    return stack;
}

int stk_cli_shared_bring(stk_store *store, const char *stack, const char *text, char ret_run[40],
                         stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *url = NULL;
    stk_err why = {0};
    if (arena == NULL) {
        return stk_err_nomem(err);
    }
    int here = stk_store_resolve_run(store, text, ret_run, &why);
    if (here == 0 && stk_store_run_is_live(store, ret_run)) {
        return 0;
    }
    if (stack == NULL && here == 0) {
        stack = stack_of(store, ret_run, arena);
    }
    int rc = stack == NULL ? 0 : stk_cli_shared_url(stack, arena, &url, err);
    if (rc < 0 || url == NULL) {
        if (rc >= 0) {
            *err = why;
        }
        STK_TRY(rc);
        return here;
    }
    rc = stk_remote_log_bring(url, here == 0 ? ret_run : text, store, true, ret_run, err);
    if (rc != STK_E_NOT_FOUND) {
        return rc;
    }
    *err = here < 0 ? *err : (stk_err){0}; /* it was begun before there was a share */
    return here < 0 ? rc : 0;
}

/* --- to be added to --- */

int stk_cli_shared_may_add(stk_store *store, const char *run, stk_err *err)
{
    char id[40];
    stk_err ignored = {0};
    if (!stk_remote_log_is_shared(store, run) || stk_store_run_is_live(store, run)) {
        return 0;
    }
    /* A share that can't be asked now is spoken of when it should be told. */
    (void)stk_cli_shared_bring(store, NULL, run, id, &ignored);
    return stk_remote_log_may_add(store, run, err);
}

int stk_cli_shared_publish(stk_store *store, const char *stack, const char *run, bool *ret_told,
                           stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *url = NULL;
    *ret_told = false;
    if (arena == NULL || !stk_remote_log_is_shared(store, run)) {
        return arena == NULL ? stk_err_nomem(err) : 0;
    }
    stack = stack != NULL ? stack : stack_of(store, run, arena);
    int rc = stack == NULL ? 0 : stk_cli_shared_url(stack, arena, &url, err);
    if (rc == 0 && url == NULL) {
        rc = stk_err_set(err, STK_E_NOT_FOUND, "the stack that it was run by shares no store now");
    }
    stk_remote_log_config config = {.store = store, .share_url = url, .run = run};
    STK_TRY(rc);
    return stk_remote_log_publish(&config, ret_told, err);
}

void stk_cli_shared_added(stk_store *store, const char *run)
{
    stk_err err = {0};
    bool is_told = false;
    if (stk_cli_shared_publish(store, NULL, run, &is_told, &err) < 0) {
        fprintf(stderr, "stoker: only this machine has what was added to run %s: %s\n", run,
                err.text);
    }
}

/* --- to be read --- */

/* One whose log has no end is told as running: as far as anybody here knows. Which is what a lock
 * says; it goes with this process. */
static void hold_unended(stk_store *store, const char *run)
{
    stk_view *view = NULL;
    stk_err ignored = {0};
    int fd = -1;
    if (stk_view_load(store, run, &view, &ignored) == 0 && stk_view_get_run(view)->ended_ms <= 0) {
        (void)stk_store_lock_run(store, run, &fd, &ignored);
    }
    stk_view_free(view);
}

static int open_mirror(const char *url, stk_store **ret, stk_err *err)
{
    STK_TEXT_AUTO own = NULL;
    STK_TEXT_AUTO path = NULL;
    char hex[STK_DIGEST_HEX + 1];
    int rc = stk_store_find(".", STK_STORE_CREATE, &own, err);
    stk_digest_of(url, strlen(url), hex);
    if (rc == 0 && !stk_file_exists(own)) { /* a folder of that name is a store */
        stk_store *store = NULL;
        rc = stk_store_open(own, STK_STORE_CREATE, &store, err);
        stk_store_close(store);
    }
    if (rc == 0 && asprintf(&path, "%s/shared/%.16s", own, hex) < 0) {
        path = NULL;
        rc = stk_err_nomem(err);
    }
    STK_TRY(rc);
    return stk_store_open(path, STK_STORE_CREATE, ret, err);
}

static int bring_one(const char *url, const char *text, bool with_files, stk_store *store,
                     stk_err *err)
{
    char run[40];
    STK_TEXT_AUTO name = strndup(text, strcspn(text, "/"));
    int rc =
        name == NULL ? stk_err_nomem(err) : stk_remote_log_bring(url, name, store, false, run, err);
    rc = rc < 0 || !with_files ? rc : stk_remote_log_bring_files(url, run, store, err);
    if (rc == 0) {
        hold_unended(store, run);
    }
    return rc;
}

static int bring_newest(const char *url, uint32_t limit, stk_store *store, stk_arena *arena,
                        stk_err *err)
{
    stk_remote_run *runs = NULL;
    uint32_t n = 0;
    int rc = stk_remote_log_runs(url, arena, &runs, &n, err);
    for (uint32_t i = n > limit ? n - limit : 0; rc == 0 && i < n; i++) {
        rc = bring_one(url, runs[i].id, false, store, err);
        if (stk_remote_log_is_damage(rc)) { /* the others are as they were */
            char text[1400];
            (void)fprintf(stderr, "stoker: run %s is left out: %s\n", runs[i].id,
                          stk_err_format(err, text, (int)sizeof text));
            rc = 0;
        }
        rc = rc == STK_E_NOT_FOUND ? 0 : rc; /* it is just beginning */
    }
    return rc;
}

int stk_cli_shared_store(const stk_cli *cli, const char *text, bool with_files, uint32_t limit,
                         stk_store **ret_store)
{
    stk_err err = {0};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *url = NULL;
    const char *stack = stk_cli_value(cli, "stack");
    int rc = arena == NULL ? stk_err_nomem(&err) : stk_cli_shared_url(stack, arena, &url, &err);
    if (rc == 0 && url == NULL) {
        rc =
            stk_err_set(&err, STK_E_USAGE, "stack '%s' shares no store with other machines", stack);
        stk_err_hint(&err, "without --stack the runs of this machine are shown");
    }
    rc = rc < 0 ? rc : open_mirror(url, ret_store, &err);
    rc = rc < 0         ? rc
         : text == NULL ? bring_newest(url, limit, *ret_store, arena, &err)
                        : bring_one(url, text, with_files, *ret_store, &err);
    return rc < 0 ? stk_cli_fail(cli, &err) : 0;
}
