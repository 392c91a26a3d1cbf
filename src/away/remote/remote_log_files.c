/* The files of ended attempts in a share: logs, results, cards, metrics. */
#include <stdio.h>

#include "away/remote/remote_log.h"
#include "away/remote/remote_private.h"
#include "sys/file.h"

#define FETCHED ".fetched" /* in an attempt's folder: its files are here */

bool stk_remote_log_has_attempt(const char *dir)
{
    STK_TEXT_AUTO path = stk_file_join(dir, FETCHED);
    return path != NULL && stk_file_exists(path);
}

static int mark_fetched(const char *dir, stk_err *err)
{
    STK_TEXT_AUTO path = stk_file_join(dir, FETCHED);
    STK_TRY(stk_err_if_null(path, err));
    STK_TRY(stk_file_mkdirs(dir, 0755, err)); /* an attempt may have left no file */
    return stk_file_write(path, "", 0, 0644, err);
}

int stk_remote_log_fetch_attempt(stk_share *share, const char *key, const char *dir, uint32_t nodes,
                                 int64_t most, bool *ret_left, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    char end[STK_SHARE_KEY_MAX + 32];
    uint32_t last = 0;
    *ret_left = false;
    STK_TRY(stk_err_if_null(arena, err));
    for (uint32_t node = 1; node < nodes; node++) {
        (void)snprintf(end, sizeof end, "%s/end-%u.json", key, node);
        int rc = stk_remote_fetch_end(share, end, dir, most, arena, NULL, ret_left, err);
        if (rc == 0) {
            last = node;
        }
        STK_TRY(stk_err_but(rc, STK_E_NOT_FOUND)); /* a lost node has none */
        stk_arena_reset(arena);
    }
    (void)snprintf(end, sizeof end, "%s/end.json", key);
    STK_TRY(stk_remote_fetch_end(share, end, dir, most, arena, NULL, ret_left, err));
    if (last > 0) {
        STK_TRY(stk_remote_add_nodes(dir, last, err));
    }
    if (*ret_left) {
        return 0;
    }
    return mark_fetched(dir, err);
}
