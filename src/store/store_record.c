/* Records: named JSON objects that a dialect keeps beside its runs. */
#include "base/text.h"
#include "store/store_private.h"

static int prepare_record(stk_store *store, const char *sql, sqlite3_stmt **ret_stmt, stk_err *err)
{
    int rc = sqlite3_prepare_v2(store->db, sql, -1, ret_stmt, NULL);
    return stk_store_sql_check(store, rc, err, "reading records");
}

static void bind_key(sqlite3_stmt *stmt, const char *kind, const char *name)
{
    (void)sqlite3_bind_text(stmt, 1, kind, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(stmt, 2, name, -1, SQLITE_STATIC);
}

int stk_store_list_records(stk_store *store, const char *kind, const char *name, stk_arena *arena,
                           stk_record **ret_records, uint32_t *ret_n, stk_err *err)
{
    static const char sql[] = "SELECT kind, name, body, revision, created_ms, updated_ms"
                              " FROM records WHERE kind = ?1 AND (?2 IS NULL OR name = ?2)"
                              " ORDER BY id";
    sqlite3_stmt *stmt = NULL;
    stk_record *found = NULL;
    uint32_t n = 0;
    uint32_t cap = 0;
    int rc;
    STK_TRY(prepare_record(store, sql, &stmt, err));
    bind_key(stmt, kind, name);
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        found = stk_arena_grow(arena, found, n, sizeof *found, &cap);
        if (found == NULL) {
            rc = SQLITE_NOMEM;
            break;
        }
        found[n] = (stk_record){.kind = stk_store_column(stmt, 0, arena),
                                .name = stk_store_column(stmt, 1, arena),
                                .body = stk_store_column(stmt, 2, arena),
                                .revision = sqlite3_column_int64(stmt, 3),
                                .created_ms = sqlite3_column_int64(stmt, 4),
                                .updated_ms = sqlite3_column_int64(stmt, 5)};
        if (found[n].kind == NULL || found[n].name == NULL || found[n].body == NULL) {
            rc = SQLITE_NOMEM;
            break;
        }
        n++;
    }
    int code = stk_store_sql_check(store, rc, err, "listing records");
    (void)sqlite3_finalize(stmt);
    STK_TRY(code);
    *ret_records = found;
    *ret_n = n;
    return 0;
}

/* Runs `sql`, which changes at most one record, in a transaction. *ret_n: rows changed; *ret_value:
 * what it returns, if that is not NULL. Finalizes the statement. */
static int change_record(stk_store *store, sqlite3_stmt *stmt, uint32_t *ret_n, int64_t *ret_value,
                         stk_err *err)
{
    *ret_n = 0;
    int rc = stk_store_begin(store, err);
    if (rc < 0) {
        (void)sqlite3_finalize(stmt);
        return rc;
    }
    int code;
    while ((code = sqlite3_step(stmt)) == SQLITE_ROW) {
        if (ret_value != NULL) {
            *ret_value = sqlite3_column_int64(stmt, 0);
        }
        ++*ret_n;
    }
    rc = stk_store_sql_check(store, code, err, "changing a record");
    (void)sqlite3_finalize(stmt);
    return stk_store_end(store, rc, err);
}

int stk_store_put_record(stk_store *store, const stk_record *record, int64_t expected,
                         int64_t *ret_revision, stk_err *err)
{
    /* The conflict's WHERE is false for NEW: no record has revision 0. */
    static const char create[] =
        "INSERT INTO records(kind, name, body, revision, created_ms, updated_ms)"
        " VALUES(?1, ?2, ?3, 1, ?5, ?5) ON CONFLICT(kind, name) DO UPDATE SET body = ?3,"
        " revision = revision + 1, updated_ms = ?5 WHERE ?4 < 0 OR revision = ?4"
        " RETURNING revision";
    static const char update[] =
        "UPDATE records SET body = ?3, revision = revision + 1, updated_ms = ?5"
        " WHERE kind = ?1 AND name = ?2 AND revision = ?4 RETURNING revision";
    sqlite3_stmt *stmt = NULL;
    uint32_t n = 0;
    STK_TRY(stk_store_writable(store, err));
    STK_TRY(prepare_record(store, expected > 0 ? update : create, &stmt, err));
    bind_key(stmt, record->kind, record->name);
    (void)sqlite3_bind_text(stmt, 3, record->body, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(stmt, 4, expected);
    (void)sqlite3_bind_int64(stmt, 5, record->updated_ms);
    STK_TRY(change_record(store, stmt, &n, ret_revision, err));
    if (n > 0) {
        return 0;
    }
    if (expected == STK_RECORD_NEW) {
        return stk_err_set(err, STK_E_BUSY, "%s '%s' exists already", record->kind, record->name);
    }
    return stk_err_set(err, STK_E_BUSY,
                       "%s '%s' was changed or removed by another process at the same time; read "
                       "it again",
                       record->kind, record->name);
}

int stk_store_remove_record(stk_store *store, const char *kind, const char *name, stk_err *err)
{
    sqlite3_stmt *stmt = NULL;
    uint32_t n = 0;
    STK_TRY(stk_store_writable(store, err));
    STK_TRY(prepare_record(store, "DELETE FROM records WHERE kind = ?1 AND name = ?2 RETURNING id",
                           &stmt, err));
    bind_key(stmt, kind, name);
    STK_TRY(change_record(store, stmt, &n, NULL, err));
    if (n == 0) {
        return stk_err_set(err, STK_E_NOT_FOUND, "there is no %s '%s'", kind, name);
    }
    return 0;
}
