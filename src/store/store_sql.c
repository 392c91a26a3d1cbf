/* The database: opening, settings, migrations, and messages for SQLite's error codes. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/text.h"
#include "store/store_private.h"
#include "sys/file.h"

enum { APPLICATION_ID = 0x53744b72 }; /* "StKr": distinguishes our file from other SQLite files */

static const char *const sql_text[] = {
#define X(name, sql) sql,
#include "store/store_sql.def"
#undef X
};

/* The schema's history: entry i migrates version i to i + 1; version 0 is an empty file. Never edit
 * a released entry: add another, and its test. */
static const char *const migrations[] = {
    "CREATE TABLE runs(id INTEGER PRIMARY KEY, run TEXT NOT NULL UNIQUE, name TEXT NOT NULL,"
    " pipeline TEXT NOT NULL, status TEXT NOT NULL, created_ms INTEGER NOT NULL,"
    " ended_ms INTEGER NOT NULL);"
    "CREATE INDEX runs_name ON runs(name);"
    "CREATE TABLE events(id INTEGER PRIMARY KEY, time_ms INTEGER NOT NULL, kind TEXT NOT NULL,"
    " task INTEGER, attempt INTEGER NOT NULL, data TEXT);"
    "CREATE TABLE refs(id INTEGER PRIMARY KEY, digest TEXT NOT NULL, task INTEGER NOT NULL,"
    " output TEXT);"
    "CREATE TABLE cache(id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, pipeline TEXT NOT NULL,"
    " step TEXT NOT NULL, run TEXT NOT NULL, task INTEGER NOT NULL, created_ms INTEGER NOT NULL,"
    " outputs TEXT, metadata TEXT, parts TEXT, seen TEXT);"
    "CREATE INDEX cache_step ON cache(pipeline, step);"
    "CREATE TABLE named(id INTEGER PRIMARY KEY, name TEXT NOT NULL, version TEXT NOT NULL,"
    " digest TEXT NOT NULL, run TEXT, step TEXT, output TEXT, ref TEXT,"
    " created_ms INTEGER NOT NULL, UNIQUE(name, version));"
    "CREATE INDEX named_run ON named(run);"
    "CREATE TABLE artifacts(digest TEXT PRIMARY KEY, size INTEGER NOT NULL,"
    " is_dir INTEGER NOT NULL, synced INTEGER NOT NULL, boot TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX artifacts_unsynced ON artifacts(boot) WHERE synced = 0;",
    /* The run's tags after its events, for listing runs. */
    "ALTER TABLE runs ADD COLUMN tags TEXT;"
    "UPDATE runs SET tags = (SELECT CASE WHEN json_valid(data) THEN json_extract(data, '$.tags') "
    "END"
    " FROM events WHERE events.id = (runs.id << 32) + 1);",
    /* The file system's stamp of an artifact when its content was last known (stk_stamp; NULL:
     * unknown), and when a check last read the content. */
    "ALTER TABLE artifacts ADD COLUMN stamp TEXT;"
    "ALTER TABLE artifacts ADD COLUMN verified_ms INTEGER NOT NULL DEFAULT 0;",
    /* What a dialect keeps beside runs: models, tags, secrets (store_record.c). */
    "CREATE TABLE records(id INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL,"
    " body TEXT NOT NULL, revision INTEGER NOT NULL, created_ms INTEGER NOT NULL,"
    " updated_ms INTEGER NOT NULL, UNIQUE(kind, name));",
};
_Static_assert(sizeof migrations / sizeof migrations[0] == STK_STORE_FORMAT,
               "one migration a version");

/* SQLite can't open a file of its own, and reports the errno of another call. */
static bool is_used_up(const char *path)
{
    struct statvfs fs;
    return statvfs(path, &fs) == 0 &&
           ((fs.f_files > 0 && fs.f_favail == 0) || (fs.f_blocks > 0 && fs.f_bavail == 0));
}

int stk_store_sql_err(stk_store *store, int rc, stk_err *err, const char *doing)
{
    const char *path = store->path;
    const char *text = store->db == NULL ? sqlite3_errstr(rc) : sqlite3_errmsg(store->db);
    int primary = rc & 0xff;
    /* SQLite keeps the errno of its last I/O, however long ago that was. */
    bool is_io = primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN || primary == SQLITE_FULL;
    int sys = 0;
    if (store->db != NULL && is_io) {
        sys = sqlite3_system_errno(store->db);
    }
    if (primary == SQLITE_CANTOPEN && is_used_up(path)) {
        sys = ENOSPC;
    }
    int code = STK_E_STORE;
    if (primary == SQLITE_FULL || sys == ENOSPC || sys == EDQUOT) {
        code = stk_err_set(err, STK_E_FULL, "store '%s': %s: no %s left on its file system", path,
                           doing, sys == EDQUOT ? "disk quota" : "space");
        stk_err_hint(err, "free some (`df -h`, and `df -i` for inodes; `stoker store gc` removes "
                          "old runs); `stoker resume` continues a run that had started");
    } else if (sys == EFBIG) {
        stk_err_set(err, code, "store '%s': %s: a file would exceed the limit on its size", path,
                    doing);
        stk_err_hint(err, "raise the limit on a file's size (ulimit -f), then `stoker resume`");
    } else if (primary == SQLITE_NOMEM) {
        code = stk_err_set(err, STK_E_NOMEM, "store '%s': %s: out of memory", path, doing);
    } else if (primary == SQLITE_BUSY || primary == SQLITE_LOCKED) {
        code =
            stk_err_set(err, STK_E_BUSY, "store '%s': %s: another process kept it locked for %d s",
                        path, doing, STK_STORE_BUSY_MS / 1000);
        stk_err_hint(err, "try again, or give this run a store of its own with STOKER_STORE");
    } else if (primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB) {
        stk_err_set(err, code, "store '%s' is damaged: store.db: %s (while %s)", path, text, doing);
        stk_err_hint(err, "restore store.db from a backup, or move the store folder away");
    } else {
        char cause[160] = "";
        if (sys != 0) {
            (void)snprintf(cause, sizeof cause, ": %s", strerror(sys));
        }
        stk_err_set(err, code, "store '%s': %s: %s%s", path, doing, text, cause);
        if (primary == SQLITE_READONLY || primary == SQLITE_CANTOPEN || primary == SQLITE_PERM) {
            stk_err_hint(err, "make it accessible, or use another store with STOKER_STORE");
        }
    }
    if (err != NULL) {
        err->sys = sys;
    }
    return code;
}

int stk_store_sql_check(stk_store *store, int rc, stk_err *err, const char *doing)
{
    bool is_good = rc == SQLITE_OK || rc == SQLITE_DONE || rc == SQLITE_ROW;
    if (!is_good) {
        return stk_store_sql_err(store, rc, err, doing);
    }
    return 0;
}

static int prepare(stk_store *store, int from, int to, stk_err *err)
{
    for (int i = from; i < to; i++) {
        int rc = sqlite3_prepare_v3(store->db, sql_text[i], -1, SQLITE_PREPARE_PERSISTENT,
                                    &store->stmts[i], NULL);
        if (rc != SQLITE_OK) {
            return stk_store_sql_err(store, rc, err, "preparing statements");
        }
    }
    return 0;
}

int stk_store_step(stk_store *store, sqlite3_stmt *stmt, stk_err *err, const char *doing)
{
    int rc = sqlite3_step(stmt);
    int code = stk_store_sql_check(store, rc, err, doing);
    (void)sqlite3_reset(stmt);
    return code;
}

int stk_store_exec(stk_store *store, const char *sql, stk_err *err)
{
    int rc = sqlite3_exec(store->db, sql, NULL, NULL, NULL);
    return stk_store_sql_check(store, rc, err, "writing");
}

void stk_store_read_begin(stk_store *store)
{
    if (!store->reading && store->in_use && sqlite3_get_autocommit(store->db)) {
        /* A failure only costs speed: each look-up then opens its own transaction. */
        store->reading = stk_store_step(store, store->stmts[STK_SQL_READ], NULL, "reading") == 0;
    }
}

void stk_store_read_end(stk_store *store)
{
    if (store->reading) {
        store->reading = false;
        (void)stk_store_step(store, store->stmts[STK_SQL_COMMIT], NULL, "reading");
    }
}

/* If the database file has been deleted, what we write to it is lost. */
static int check_there(const stk_store *store, stk_err *err)
{
    struct stat st;
    if (store->lock_fd < 0 || fstat(store->lock_fd, &st) < 0 || st.st_nlink > 0) {
        return 0;
    }
    (void)stk_err_set(err, STK_E_STORE,
                      "the store %s was removed while it was in use, with the record of its runs "
                      "and all artifacts",
                      store->path);
    stk_err_hint(err, "a step or another program removed it; run the pipeline again");
    return STK_E_STORE;
}

int stk_store_begin(stk_store *store, stk_err *err)
{
    STK_TRY(check_there(store, err));
    stk_store_read_end(store);
    return stk_store_step(store, store->stmts[STK_SQL_BEGIN], err, "beginning a transaction");
}

int stk_store_end(stk_store *store, int rc, stk_err *err)
{
    if (rc == 0) {
        rc = stk_store_step(store, store->stmts[STK_SQL_COMMIT], err, "committing");
    }
    if (!sqlite3_get_autocommit(store->db)) { /* after some errors SQLite has already rolled back */
        (void)sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    }
    return rc;
}

const char *stk_store_column(sqlite3_stmt *stmt, int i, stk_arena *arena)
{
    const char *text = (const char *)sqlite3_column_text(stmt, i);
    if (text == NULL) {
        return NULL;
    }
    return stk_arena_dupn(arena, text, (size_t)sqlite3_column_bytes(stmt, i));
}

/* While another process creates the store, or closes it as its last user, SQLite returns "busy" at
 * once, without calling the busy handler. */
static int step_patiently(sqlite3_stmt *stmt)
{
    int rc = sqlite3_step(stmt);
    for (int waited_ms = 0; (rc & 0xff) == SQLITE_BUSY && waited_ms < STK_STORE_BUSY_MS;
         waited_ms += 5) {
        (void)sqlite3_reset(stmt);
        (void)sqlite3_sleep(5);
        rc = sqlite3_step(stmt);
    }
    return rc;
}

/* Writes a pragma's result to buf as text. */
static int pragma(stk_store *store, const char *sql, char *buf, size_t size, stk_err *err)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(store->db, sql, -1, &stmt, NULL);
    if (rc == SQLITE_OK) {
        rc = step_patiently(stmt);
    }
    int code = stk_store_sql_check(store, rc, err, "reading its settings");
    buf[0] = '\0';
    if (rc == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(stmt, 0);
        (void)snprintf(buf, size, "%s", stk_text_or(text, ""));
    }
    (void)sqlite3_finalize(stmt);
    return code;
}

static int read_version(stk_store *store, int n_known, int *ret_version, stk_err *err)
{
    char text[32];
    char id[32];
    STK_TRY(pragma(store, "PRAGMA user_version", text, sizeof text, err));
    STK_TRY(pragma(store, "PRAGMA application_id", id, sizeof id, err));
    int version = atoi(text);
    if (version != 0 && atoi(id) != APPLICATION_ID) {
        return stk_err_set(err, STK_E_STORE, "'%s/store.db' is a database of another program",
                           store->path);
    }
    if (version > n_known) {
        stk_err_set(
            err, STK_E_VERSION,
            "store %s was written by a newer Stoker (its format is %d, this Stoker's is %d)",
            store->path, version, n_known);
        stk_err_hint(err, "upgrade Stoker or use another store with STOKER_STORE");
        return STK_E_VERSION;
    }
    *ret_version = version;
    return 0;
}

static int take_steps(stk_store *store, const char *const *steps, int from, int to, stk_err *err)
{
    char sql[96];
    for (int i = from; i < to; i++) {
        STK_TRY(stk_store_exec(store, steps[i], err));
    }
    if (from > 0) {
        STK_FAILPOINT("store.migrate.mid");
    }
    (void)snprintf(sql, sizeof sql, "PRAGMA application_id = %d; PRAGMA user_version = %d",
                   APPLICATION_ID, to);
    return stk_store_exec(store, sql, err);
}

int stk_store_migrate(stk_store *store, const char *const *steps, int n_steps, stk_err *err)
{
    int version = 0;
    int rc = read_version(store, n_steps, &version, err);
    if (rc != 0 || version == n_steps) {
        return rc;
    }
    if (version == 0 && (store->flags & STK_STORE_READONLY)) {
        /* its creator died before the first transaction */
        stk_err_set(err, STK_E_NOT_FOUND, "store %s is empty: no pipeline has run here yet",
                    store->path);
        return STK_E_NOT_FOUND;
    }
    if (store->flags & STK_STORE_READONLY) {
        stk_err_set(err, STK_E_STORE, "store %s has the older format %d (this Stoker's is %d)",
                    store->path, version, n_steps);
        stk_err_hint(err, "the next `stoker run` there migrates it");
        return STK_E_STORE;
    }
    STK_TRY(stk_store_begin(store, err));
    rc = stk_store_end(store, take_steps(store, steps, version, n_steps, err), err);
    if (rc != 0) {
        (void)stk_err_context(err, "migrating it from format %d to %d", version, n_steps);
    }
    return rc;
}

bool stk_store_has_runs(const stk_store *store)
{
    struct stat st;
    STK_TEXT_AUTO runs = stk_file_join(store->path, "runs");
    return runs != NULL && stat(runs, &st) == 0 &&
           st.st_nlink > 2; /* a folder's link count includes its subfolders (not on btrfs, where
                               the check is weaker) */
}

/* To SQLite a file of 0 bytes, or a missing one, is a new database. Beside run folders it is a lost
 * one, and gc would take everything in the store for garbage. An agent makes its own anew. */
static int refuse_lost(stk_store *store, const char *db_path, stk_err *err)
{
    struct stat st;
    bool is_there = stat(db_path, &st) == 0;
    bool is_lost = is_there ? st.st_size == 0 : errno == ENOENT;
    if (!is_lost || (store->flags & STK_STORE_OWN) || !stk_store_has_runs(store)) {
        return 0;
    }
    stk_err_set(err, STK_E_STORE, "store '%s' is damaged: store.db %s, but there are runs",
                store->path, is_there ? "is empty" : "isn't there");
    stk_err_hint(err, "restore store.db from a backup, or move the store's folder away (to start "
                      "with an empty record, only its runs/)");
    return STK_E_STORE;
}

static int open_as(stk_store *store, const char *db_path, int flags, const char *mode, stk_err *err)
{
    char text[16];
    char sql[48];
    (void)sqlite3_close(store->db);
    store->db = NULL;
    int rc = sqlite3_open_v2(db_path, &store->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK) {
        return stk_store_sql_err(store, rc, err, "opening");
    }
    (void)snprintf(sql, sizeof sql, "PRAGMA locking_mode = %s", mode);
    STK_TRY(stk_store_exec(store, sql, err));
    return pragma(store, "PRAGMA user_version", text, sizeof text, err);
}

/* To read a WAL database read-only, SQLite needs its -shm file, or nobody writing ("immutable"). On
 * a full file system, where it can't make that file, it keeps it in memory if it is alone. A writer
 * killed in its transaction leaves a state that only a writer can roll back: we do that, and change
 * nothing else. */
static int open_readonly(stk_store *store, const char *db_path, stk_err *err)
{
    stk_err first;
    int code = open_as(store, db_path, SQLITE_OPEN_READONLY, "NORMAL", &first);
    if (code == 0 || (code == STK_E_FULL &&
                      open_as(store, db_path, SQLITE_OPEN_READWRITE, "EXCLUSIVE", NULL) == 0)) {
        return 0;
    }
    if ((sqlite3_errcode(store->db) & 0xff) == SQLITE_READONLY &&
        open_as(store, db_path, SQLITE_OPEN_READWRITE, "NORMAL", NULL) == 0 &&
        open_as(store, db_path, SQLITE_OPEN_READONLY, "NORMAL", NULL) == 0) {
        return 0;
    }
    int rc;
    struct stat st;
    STK_TEXT_AUTO wal = NULL;
    STK_TEXT_AUTO uri = NULL;
    if (asprintf(&wal, "%s-wal", db_path) < 0 ||
        asprintf(&uri, "file:%s?immutable=1", db_path) < 0) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "store '%s'", store->path);
    }
    bool has_wal = stat(wal, &st) == 0 && st.st_size > 0;
    if (faccessat(store->dir_fd, ".", W_OK, AT_EACCESS) == 0 || strpbrk(db_path, "?#%") != NULL ||
        stat(db_path, &st) < 0) {
        *(err == NULL ? &first : err) = first;
        return code;
    }
    if (has_wal) {
        stk_err_set(err, STK_E_STORE,
                    "store '%s' has changes in store.db-wal that can't be read without write "
                    "access to its folder",
                    store->path);
        stk_err_hint(err, "copy the store, or open it once with write access");
        return STK_E_STORE;
    }
    (void)sqlite3_close(store->db);
    rc = sqlite3_open_v2(uri, &store->db,
                         SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, NULL);
    return stk_store_sql_check(store, rc, err, "opening");
}

static int open_writable(stk_store *store, const char *db_path, stk_err *err)
{
    int rc =
        sqlite3_open_v2(db_path, &store->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK) {
        return stk_store_sql_err(store, rc, err, "opening store.db");
    }
    (void)sqlite3_busy_timeout(store->db, STK_STORE_BUSY_MS);
    if (sqlite3_db_readonly(store->db, "main") ==
        1) { /* SQLite falls back to read-only by itself */
        stk_err_set(err, STK_E_STORE, "store '%s' can't be written", store->path);
        stk_err_hint(err, "check its owner and mode, or use another store with STOKER_STORE");
        return STK_E_STORE;
    }
    char sql[48];
    char got[sizeof store->journal];
    (void)snprintf(sql, sizeof sql, "PRAGMA journal_mode = %s", store->journal);
    STK_TRY(pragma(store, sql, got, sizeof got, err));
    (void)snprintf(store->journal, sizeof store->journal, "%s", got);
    /* WAL: a commit is one write without a sync; stk_store_sync and checkpoints sync. A rollback
     * journal without syncs can lose the database in a power cut, so it syncs every commit. */
    const char *set = strcmp(got, "wal") == 0
                          ? "PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 8192;"
                            "PRAGMA journal_size_limit = 67108864;"
                          : "PRAGMA synchronous = FULL;";
    return stk_store_exec(store, set, err);
}

int stk_store_sql_open(stk_store *store, stk_err *err)
{
    STK_TEXT_AUTO db_path = stk_file_join(store->path, "store.db");
    if (db_path == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "store '%s'", store->path);
    }
    bool readonly = store->flags & STK_STORE_READONLY;
    STK_TRY(refuse_lost(store, db_path, err));
    if (readonly) {
        STK_TRY(open_readonly(store, db_path, err));
    } else {
        STK_TRY(open_writable(store, db_path, err));
    }
    (void)sqlite3_extended_result_codes(store->db, 1);
    (void)sqlite3_busy_timeout(store->db, STK_STORE_BUSY_MS);
    STK_TRY(stk_store_exec(store, "PRAGMA cache_size = -32768; PRAGMA temp_store = MEMORY", err));
    if (readonly) {
        STK_TRY(pragma(store, "PRAGMA journal_mode", store->journal, sizeof store->journal, err));
    }
    STK_TRY(prepare(store, 0, STK_SQL_COMMIT + 1, err)); /* the other statements need the tables */
    STK_TRY(stk_store_migrate(store, migrations, STK_STORE_FORMAT, err));
    return prepare(store, STK_SQL_COMMIT + 1, STK_SQL_N, err);
}

void stk_store_sql_close(stk_store *store)
{
    for (int i = 0; i < STK_SQL_N; i++) {
        (void)sqlite3_finalize(store->stmts[i]);
        store->stmts[i] = NULL;
    }
    (void)sqlite3_close(store->db);
    store->db = NULL;
}
