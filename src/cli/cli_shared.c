#include "cli/cli_shared.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "away/remote/remote_log.h"
#include "run/run_shared.h"
#include "store/view/view.h"
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

/* A view reports a run without an end as running only while its lock is held. Nobody here knows how
 * the run goes on, so hold the lock of such a mirrored run; it ends with this process. */
static void hold_unended(stk_store *store, const char *run)
{
    STK_VIEW_AUTO view = NULL;
    stk_err ignored = {0};
    int fd = -1;
    if (stk_view_load(store, run, &view, &ignored) == 0 && stk_view_get_run(view)->ended_ms <= 0) {
        (void)stk_store_lock_run(store, run, &fd, &ignored);
    }
}

static int open_mirror(const char *url, stk_store **ret, stk_err *err)
{
    STK_TEXT_AUTO own = NULL;
    STK_TEXT_AUTO path = NULL;
    char hex[STK_DIGEST_HEX + 1];
    STK_TRY(stk_store_find(".", STK_STORE_CREATE, &own, err));
    stk_digest_of(url, strlen(url), hex);
    if (!stk_file_exists(own)) { /* the mirror's folder would otherwise make it look like a store */
        STK_STORE_AUTO store = NULL;
        STK_TRY(stk_store_open(own, STK_STORE_CREATE, &store, err));
    }
    if (asprintf(&path, "%s/shared/%.16s", own, hex) < 0) {
        path = NULL;
        return stk_err_nomem(err);
    }
    return stk_store_open(path, STK_STORE_CREATE, ret, err);
}

static int bring_one(const char *url, const char *text, bool with_files, stk_store *store,
                     stk_err *err)
{
    char run[40];
    STK_TEXT_AUTO name = strndup(text, strcspn(text, "/"));
    STK_TRY(stk_err_if_null(name, err));
    STK_TRY(stk_remote_log_fetch(url, name, store, false, run, err));
    if (with_files) {
        STK_TRY(stk_remote_log_fetch_files(url, run, store, err));
    }
    hold_unended(store, run);
    return 0;
}

static int bring_newest(const char *url, uint32_t limit, stk_store *store, stk_arena *arena,
                        stk_err *err)
{
    stk_remote_run *runs = NULL;
    uint32_t n = 0;
    STK_TRY(stk_remote_log_runs(url, arena, &runs, &n, err));
    for (uint32_t i = n > limit ? n - limit : 0; i < n; i++) {
        int rc = bring_one(url, runs[i].id, false, store, err);
        if (stk_remote_log_is_damage(rc)) { /* the mirrors of the other runs are intact */
            char text[1400];
            (void)fprintf(stderr, "stoker: leaving out run %s: %s\n", runs[i].id,
                          stk_err_format(err, text, (int)sizeof text));
        } else if (rc != STK_E_NOT_FOUND) { /* else the run is just beginning */
            STK_TRY(rc);
        }
    }
    return 0;
}

int stk_cli_shared_store(const stk_cli *cli, const char *text, bool with_files, uint32_t limit,
                         stk_store **ret_store, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *stack = stk_cli_value(cli, "stack"), *url = NULL;
    if (stack == NULL) {
        return stk_cli_store(STK_STORE_READONLY, ret_store, err);
    }
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_run_shared_url(stack, arena, &url, err));
    if (url == NULL) {
        stk_err_set(err, STK_E_USAGE, "stack '%s' shares no store with other machines", stack);
        stk_err_hint(err, "without --stack the runs of this machine are shown");
        return err->code;
    }
    STK_TRY(open_mirror(url, ret_store, err));
    if (text == NULL) {
        return bring_newest(url, limit, *ret_store, arena, err);
    }
    return bring_one(url, text, with_files, *ret_store, err);
}
