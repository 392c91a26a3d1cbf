/* The clock of a run: its engines record the boot clock when they begin, so the run's times
 * continue on it even if the wall clock changes. */
#include <sqlite3.h>
#include <string.h>

#include "base/json.h"
#include "store/store.h"
#include "store/store_private.h"

/* The anchor of the last engine in this boot; false if unknown. */
static bool anchor_of(const char *data, int64_t time_ms, stk_clock_anchor *ret)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *doc = stk_json_read(scratch, data);
    const char *boot = stk_json_get_text(doc, "boot");
    const stk_json *at = stk_json_get(doc, "boot_ms");
    bool known = boot != NULL && *boot != '\0' && strcmp(boot, stk_clock_boot_id()) == 0 &&
                 stk_json_is_kind(at, STK_JSON_INT);
    if (known) {
        *ret = (stk_clock_anchor){.wall_ms = time_ms, .boot_ms = stk_json_whole(at, 0)};
    }
    return known;
}

int stk_store_run_clock(stk_store *store, const char *run, stk_clock_anchor *ret, stk_err *err)
{
    static const char *const queries[] = {
        "SELECT time_ms, data FROM events WHERE id > ?1 AND id <= ?2 AND kind = 'run_started'"
        " ORDER BY id DESC LIMIT 1",
        "SELECT time_ms, NULL FROM events WHERE id > ?1 AND id <= ?2 ORDER BY id DESC LIMIT 1"};
    stk_clock_anchor anchor = stk_clock_anchor_now();
    int64_t base = 0;
    int code = stk_store_run_row(store, run, &base, err);
    base <<= 32;
    for (int i = 0; i < 2 && code == 0; i++) {
        sqlite3_stmt *stmt = NULL;
        int rc = sqlite3_prepare_v2(store->db, queries[i], -1, &stmt, NULL);
        (void)sqlite3_bind_int64(stmt, 1, base);
        (void)sqlite3_bind_int64(stmt, 2, base + UINT32_MAX);
        if (rc == SQLITE_OK) {
            rc = sqlite3_step(stmt);
        }
        if (rc == SQLITE_ROW) {
            int64_t time_ms = sqlite3_column_int64(stmt, 0);
            bool known =
                i == 0 && anchor_of((const char *)sqlite3_column_text(stmt, 1), time_ms, &anchor);
            if (!known && stk_clock_anchored_ms(&anchor) < time_ms) { /* never backwards */
                anchor = (stk_clock_anchor){.wall_ms = time_ms, .boot_ms = stk_clock_boot_ms()};
            }
        } else if (rc != SQLITE_DONE) {
            code = stk_store_sql_err(store, rc, err, "reading a run's clock");
        }
        (void)sqlite3_finalize(stmt);
    }
    if (code == 0) {
        *ret = anchor;
    }
    return code;
}
