/* What tells a reader that it must read again. */
#include <sqlite3.h>

#include "store/store_private.h"

/* The whole number that a query returns first; `otherwise` if there is none. */
static int64_t ask_number(stk_store *store, const char *sql, int64_t from, int64_t to,
                          int64_t otherwise)
{
    sqlite3_stmt *stmt = NULL;
    int64_t number = otherwise;
    if (sqlite3_prepare_v2(store->db, sql, -1, &stmt, NULL) == SQLITE_OK) {
        (void)sqlite3_bind_int64(stmt, 1, from);
        (void)sqlite3_bind_int64(stmt, 2, to);
        if (sqlite3_step(stmt) == SQLITE_ROW) {
            number = sqlite3_column_int64(stmt, 0);
        }
    }
    (void)sqlite3_finalize(stmt);
    return number;
}

int64_t stk_store_changes(stk_store *store)
{
    return ask_number(store, "PRAGMA data_version", 0, 0, -1);
}

void stk_store_release_memory(stk_store *store)
{
    (void)sqlite3_db_release_memory(store->db);
}

int64_t stk_store_last_event(stk_store *store, const char *run)
{
    int64_t row = 0;
    if (stk_store_run_row(store, run, &row, NULL) < 0) {
        return 0;
    }
    int64_t base = row << 32;
    int64_t last = ask_number(store, "SELECT max(id) FROM events WHERE id BETWEEN ?1 AND ?2", base,
                              base + UINT32_MAX, base);
    return last > base ? last - base : 0;
}
