#include "run/run_shared.h"

#include <stdio.h>

#include "away/remote/remote_log.h"
#include "base/json.h"
#include "image/stack/stack.h"
#include "store/view/view.h"

int stk_run_shared_url(const char *stack, stk_arena *arena, const char **ret_url, stk_err *err)
{
    stk_stack found;
    *ret_url = NULL;
    STK_TRY(stk_stack_find(".", stack, arena, &found, err));
    *ret_url = found.store;
    return 0;
}

int stk_run_shared_newest(const char *stack, char ret_run[40], stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_SHARE_AUTO share = NULL;
    stk_remote_run found;
    const char *url = NULL;
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_run_shared_url(stack, arena, &url, err));
    if (url == NULL) {
        return stk_err_set(err, STK_E_NOT_FOUND, "stack '%s' shares no store", stack);
    }
    STK_TRY(stk_share_open(url, &share, err));
    STK_TRY(stk_remote_run_find(share, "latest", arena, &found, err));
    (void)snprintf(ret_run, 40, "%s", found.id);
    return 0;
}

/* The stack in the record of the run's creation, or NULL. */
static const char *stack_of(stk_store *store, const char *run, stk_arena *arena)
{
    STK_VIEW_AUTO view = NULL;
    stk_err ignored = {0};
    if (stk_view_load(store, run, &view, &ignored) < 0) {
        return NULL;
    }
    return stk_json_get_text(stk_json_read(arena, stk_view_get_run(view)->host), "stack");
}

int stk_run_shared_bring(stk_store *store, const char *stack, const char *text, char ret_run[40],
                         stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *url = NULL;
    stk_err why = {0};
    STK_TRY(stk_err_if_null(arena, err));
    int here = stk_store_resolve_run(store, text, ret_run, &why);
    if (here == 0 && stk_store_run_is_live(store, ret_run)) {
        return 0;
    }
    if (stack == NULL && here == 0) {
        stack = stack_of(store, ret_run, arena);
    }
    if (stack != NULL) {
        STK_TRY(stk_run_shared_url(stack, arena, &url, err));
    }
    if (url == NULL) {
        *err = why;
        return here;
    }
    int rc = stk_remote_log_fetch(url, here == 0 ? ret_run : text, store, true, ret_run, err);
    if (rc == STK_E_NOT_FOUND && here == 0) { /* it began before there was a share */
        *err = (stk_err){0};
        return 0;
    }
    return rc;
}

void stk_run_shared_taker(stk_store *store, const char *run, char ret_who[300], char ret_stack[64])
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *stack = NULL, *url = NULL;
    stk_err ignored = {0};
    ret_who[0] = ret_stack[0] = '\0';
    if (arena == NULL || !stk_remote_log_is_shared(store, run) ||
        (stack = stack_of(store, run, arena)) == NULL ||
        stk_run_shared_url(stack, arena, &url, &ignored) < 0 || url == NULL ||
        stk_remote_log_taker(url, store, run, ret_who, &ignored) < 0) {
        return;
    }
    (void)snprintf(ret_stack, 64, "%s", stack);
}

int stk_run_shared_may_add(stk_store *store, const char *run, stk_err *err)
{
    char id[40];
    stk_err ignored = {0};
    if (!stk_remote_log_is_shared(store, run) || stk_store_run_is_live(store, run)) {
        return 0;
    }
    /* If the share can't be reached now, the later writing to it reports that. */
    (void)stk_run_shared_bring(store, NULL, run, id, &ignored);
    return stk_remote_log_may_add(store, run, err);
}

int stk_run_shared_publish(stk_store *store, const char *stack, const char *run, bool *ret_told,
                           stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *url = NULL;
    *ret_told = false;
    if (!stk_remote_log_is_shared(store, run)) {
        return 0;
    }
    STK_TRY(stk_err_if_null(arena, err));
    if (stack == NULL) {
        stack = stack_of(store, run, arena);
    }
    if (stack != NULL) {
        STK_TRY(stk_run_shared_url(stack, arena, &url, err));
    }
    if (url == NULL) {
        return stk_err_set(err, STK_E_NOT_FOUND,
                           "the stack of the run doesn't share a store (any more)");
    }
    const stk_remote_log_config config = {.store = store, .share_url = url, .run = run};
    return stk_remote_log_publish(&config, ret_told, err);
}
