/* Runs: making, locking, naming, listing. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/limits.h"
#include "base/text.h"
#include "store/store_private.h"
#include "sys/file.h"

enum { N_CANDIDATES = 5 };

static char *run_path(const stk_store *store, const char *run, const char *name)
{
    STK_TEXT_AUTO folder = stk_file_printf("%s/runs/%s", store->path, run);
    if (folder == NULL) {
        return NULL;
    }
    return stk_file_join_any(folder, stk_text_or(name, ""));
}

/* An id becomes a folder name, so only well-formed ids are allowed. */
bool stk_store_is_run_id(const char *run)
{
    size_t n = strlen(run);
    return n > 0 && n < 40 && strspn(run, "0123456789abcdef-") == n;
}

static int not_found(const stk_store *store, const char *run, stk_err *err)
{
    stk_err_set(err, STK_E_NOT_FOUND, "no run '%s' in store '%s'", run, store->path);
    stk_err_hint(err, "`stoker runs` lists them");
    return STK_E_NOT_FOUND;
}

/* Date and time, then the millisecond (10 bits) and 14 random bits: ids sort by their start. */
static int make_id(int64_t now_ms, char *id, size_t size)
{
    uint16_t r;
    struct tm tm;
    time_t t = (time_t)(now_ms / 1000);
    if (gmtime_r(&t, &tm) == NULL || getrandom(&r, sizeof r, 0) != (ssize_t)sizeof r) {
        return errno;
    }
    uint32_t last = (uint32_t)(now_ms % 1000) << 14 | (r & 0x3fffu);
    (void)snprintf(id, size, "%04d%02d%02d-%02d%02d%02d-%06x", (tm.tm_year + 1900) % 10000,
                   tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, last & 0xffffffu);
    return 0;
}

static int make_run_folder(stk_store *store, int64_t now_ms, char *id, size_t size, char **ret_path,
                           stk_err *err)
{
    for (;;) {
        int sys = make_id(now_ms, id, size);
        STK_TEXT_AUTO path = NULL;
        if (sys == 0) {
            path = run_path(store, id, NULL);
        }
        if (sys == 0 && path == NULL) {
            return stk_err_nomem(err);
        }
        if (sys == 0 && mkdirat(store->runs_fd, id, 0777) < 0) {
            sys = errno;
        }
        if (sys == EEXIST) {
            continue; /* exists: try the next of 14 random bits per millisecond */
        }
        if (sys == 0) {
            sys = STK_FAILPOINT_ERR("store.run.folder");
        }
        if (sys != 0) {
            return stk_err_sys(err, STK_E_SYS, sys, "can't make a run in store '%s'", store->path);
        }
        *ret_path = path;
        path = NULL;
        return 0;
    }
}

/* Opens a file in a run's folder, without following a link or waiting for the other end of a pipe.
 */
static int open_of_run(const stk_store *store, const char *run, const char *name, int flags,
                       mode_t mode)
{
    STK_TEXT_AUTO path = NULL;
    if (!stk_store_is_run_id(run) || asprintf(&path, "%s/%s", run, name) < 0) {
        path = NULL;
        errno = ENOENT;
        return -1;
    }
    return stk_file_open_below(store->runs_fd, path, flags | O_NONBLOCK | O_NOCTTY, mode);
}

int stk_store_read_spec(stk_store *store, const char *run, char **ret_text, size_t *ret_len,
                        stk_err *err)
{
    STK_TEXT_AUTO path = run_path(store, run, "spec.json");
    STK_TRY(stk_err_if_null(path, err));
    STK_FD_AUTO fd = open_of_run(store, run, "spec.json", O_RDONLY, 0);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0) {
        return stk_err_sys(err, stk_file_code(errno), errno, "can't open '%s'", path);
    }
    if (!S_ISREG(st.st_mode)) {
        return stk_err_set(err, STK_E_STORE, "'%s' isn't a regular file", path);
    }
    return stk_file_read_fd(fd, path, STK_LIMIT_SPEC_BYTES, ret_text, ret_len, err);
}

/* The caller holds the use lock, so that gc can't remove the folder meanwhile. */
static int lock_folder(stk_store *store, const char *run, int flags, int *ret_fd, stk_err *err)
{
    char holder[96];
    STK_TEXT_AUTO path = run_path(store, run, "lock");
    STK_TRY(stk_err_if_null(path, err));
    STK_FD_AUTO fd = open_of_run(store, run, "lock", O_RDWR | flags, 0666);
    if (fd < 0) {
        if (errno == ENOENT) {
            return not_found(store, run, err);
        }
        return stk_err_sys(err, STK_E_SYS, errno, "can't lock '%s'", path);
    }
    int sys = stk_store_lock(fd, F_WRLCK, 0, 0, false);
    if (sys == EAGAIN) {
        stk_store_read_holder(fd, holder, sizeof holder);
        stk_err_set(err, STK_E_BUSY, "run %s is already running in %s", run, holder);
        stk_err_hint(err, "`stoker logs -f %s` follows it, `stoker cancel %s` ends it", run, run);
        return STK_E_BUSY;
    }
    if (sys == 0) {
        sys = stk_store_write_holder(fd);
    }
    if (sys != 0) {
        return stk_store_no_lock(stk_err_sys(err, STK_E_SYS, sys, "can't lock '%s'", path), err);
    }
    *ret_fd = fd;
    fd = -1;
    return 0;
}

static int keep_unborn(stk_store *store, const char *run, const char *name, const char *pipeline,
                       int64_t created_ms, stk_err *err)
{
    stk_store_drop_unborn(store);
    struct stk_store_unborn *u = &store->unborn;
    u->name = strdup(stk_text_or(name, run));
    u->pipeline = strdup(pipeline);
    u->created_ms = created_ms;
    if (u->name == NULL || u->pipeline == NULL) {
        stk_store_born(store);
        return stk_err_nomem(err);
    }
    (void)snprintf(u->run, sizeof u->run, "%s", run);
    return 0;
}

int stk_store_bear_run(stk_store *store, int64_t *ret_row, stk_err *err)
{
    sqlite3_stmt *stmt = store->stmts[STK_SQL_RUN_ADD];
    (void)sqlite3_bind_text(stmt, 1, store->unborn.run, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(stmt, 2, store->unborn.name, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(stmt, 3, store->unborn.pipeline, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(stmt, 4, store->unborn.created_ms);
    int rc = stk_store_step(store, stmt, err, "adding a run");
    if (rc == 0) {
        *ret_row = sqlite3_last_insert_rowid(store->db);
    } else {
        *ret_row = 0;
    }
    return rc;
}

void stk_store_born(stk_store *store)
{
    free(store->unborn.name);
    free(store->unborn.pipeline);
    store->unborn = (struct stk_store_unborn){0};
}

void stk_store_drop_unborn(stk_store *store)
{
    if (store->unborn.run[0] != '\0') {
        (void)stk_file_remove_tree_at(store->runs_fd, store->unborn.run, NULL);
    }
    stk_store_born(store);
}

/* Removes what dead processes left, unless another process is in the middle of something. */
static void sweep(stk_store *store)
{
    if (!store->in_use && stk_store_lock(store->lock_fd, F_WRLCK, 0, 1, false) == 0) {
        stk_store_stage_sweep(store);
        stk_store_gc_end(store);
    }
}

/* Fills the folder of a new run: its lock and its document. */
static int fill_folder(stk_store *store, const char *id, const char *spec_json, size_t spec_len,
                       int *ret_fd, stk_err *err)
{
    STK_TEXT_AUTO spec = run_path(store, id, "spec.json");
    STK_TRY(stk_err_if_null(spec, err));
    STK_TRY(lock_folder(store, id, O_CREAT, ret_fd, err));
    return stk_file_write(spec, spec_json, spec_len, 0644, err);
}

int stk_store_new_run(stk_store *store, const char *name, const char *pipeline,
                      const char *spec_json, size_t spec_len, int64_t now_ms, char ret_id[40],
                      int *ret_lock_fd, stk_err *err)
{
    char id[40];
    STK_TEXT_AUTO folder = NULL;
    STK_FD_AUTO fd = -1;
    STK_TRY(stk_store_writable(store, err));
    sweep(store);
    bool had_use = store->in_use;
    STK_TRY(stk_store_use_begin(store, err));
    int rc = make_run_folder(store, now_ms, id, sizeof id, &folder, err);
    if (rc == 0) {
        rc = fill_folder(store, id, spec_json, spec_len, &fd, err);
    }
    if (rc == 0) {
        rc = keep_unborn(store, id, name, pipeline, now_ms, err);
    }
    if (!had_use) {
        stk_store_use_end(store);
    }
    if (rc != 0) {
        if (folder != NULL) {
            (void)stk_file_remove_tree_at(store->runs_fd, id, NULL);
        }
        return rc;
    }
    STK_FAILPOINT("store.run.made");
    memcpy(ret_id, id, sizeof id);
    *ret_lock_fd = fd;
    fd = -1;
    return 0;
}

static int run_row(stk_store *store, const char *run, int64_t *ret_row, stk_err *err)
{
    sqlite3_stmt *stmt = store->stmts[STK_SQL_RUN_ROW];
    (void)sqlite3_bind_text(stmt, 1, run, -1, SQLITE_STATIC);
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW && ret_row != NULL) {
        *ret_row = sqlite3_column_int64(stmt, 0);
    }
    int code = stk_store_sql_check(store, rc, err, "looking for a run");
    if (rc == SQLITE_DONE) {
        code = not_found(store, run, err);
    }
    (void)sqlite3_reset(stmt);
    return code;
}

int stk_store_run_row(stk_store *store, const char *run, int64_t *ret_row, stk_err *err)
{
    if (stk_store_is_run_id(run)) {
        return run_row(store, run, ret_row, err);
    }
    return not_found(store, run, err);
}

bool stk_store_has_run(stk_store *store, const char *run)
{
    return stk_store_run_row(store, run, NULL, NULL) == 0;
}

int stk_store_bring_run(stk_store *store, const char *id, const char *name, const char *pipeline,
                        const char *spec_json, size_t spec_len, int64_t created_ms, bool *ret_new,
                        stk_err *err)
{
    int64_t row = 0;
    *ret_new = false;
    if (!stk_store_is_run_id(id)) {
        return stk_err_set(err, STK_E_PROTOCOL, "'%.60s' isn't a valid run id", id);
    }
    int rc = stk_store_run_row(store, id, &row, err);
    if (rc != STK_E_NOT_FOUND) {
        return rc;
    }
    STK_TEXT_AUTO folder = run_path(store, id, NULL);
    STK_TEXT_AUTO spec = run_path(store, id, "spec.json");
    STK_TEXT_AUTO lock = run_path(store, id, "lock");
    STK_TRY(stk_store_writable(store, err));
    if (folder == NULL || spec == NULL || lock == NULL) {
        return stk_err_nomem(err);
    }
    STK_TRY(stk_store_use_begin(store, err)); /* gc leaves the folder alone until the commit */
    STK_TRY(stk_file_mkdirs(folder, 0777, err));
    STK_TRY(stk_file_write_atomic(spec, spec_json, spec_len, 0644, err));
    STK_TRY(stk_file_write(lock, "", 0, 0666, err));
    STK_TRY(keep_unborn(store, id, name, pipeline, created_ms, err));
    *ret_new = true;
    return 0;
}

int stk_store_lock_run(stk_store *store, const char *run, int *ret_lock_fd, stk_err *err)
{
    int rc = stk_store_writable(store, err);
    if (rc != 0) {
        return rc;
    }
    bool had_use = store->in_use;
    rc = stk_store_use_begin(store, err);
    if (rc == 0) {
        rc = stk_store_run_row(store, run, NULL, err);
    }
    if (rc == 0) {
        /* O_CREAT: a power cut may have removed the lock file, but not the row. */
        rc = lock_folder(store, run, O_CREAT, ret_lock_fd, err);
    }
    if (!had_use) {
        stk_store_use_end(store);
    }
    return rc;
}

int stk_store_run_look(stk_store *store, const char *run, bool *ret_live)
{
    int sys = STK_FAILPOINT_ERR("store.run.look");
    STK_FD_AUTO fd = -1;
    if (sys == 0) {
        fd = open_of_run(store, run, "lock", O_RDONLY, 0);
    }
    *ret_live = fd >= 0 && stk_store_is_locked(fd);
    if (fd >= 0 || sys != 0) {
        return sys;
    }
    return errno == ENOENT ? 0 : errno;
}

static bool has_ended(stk_store *store, const char *run)
{
    sqlite3_stmt *stmt = NULL;
    bool is_there = false;
    if (sqlite3_prepare_v2(store->db, "SELECT 1 FROM runs WHERE run = ?1 AND ended_ms > 0", -1,
                           &stmt, NULL) == SQLITE_OK) {
        (void)sqlite3_bind_text(stmt, 1, run, -1, SQLITE_STATIC);
        is_there = sqlite3_step(stmt) == SQLITE_ROW;
    }
    (void)sqlite3_finalize(stmt);
    return is_there;
}

bool stk_store_run_is_live(stk_store *store, const char *run)
{
    bool is_live = false;
    if (store->flags & STK_STORE_MIRROR) {
        return !has_ended(store, run);
    }
    return stk_store_run_look(store, run, &is_live) != 0 || is_live;
}

bool stk_store_run_is_ending(stk_store *store, const char *run)
{
    STK_FD_AUTO fd = open_of_run(store, run, "lock", O_RDONLY, 0);
    return fd >= 0 && stk_store_is_locked(fd) && stk_store_holder_is_gone(fd);
}

const char *stk_store_run_folder(stk_store *store, const char *run, stk_arena *arena)
{
    return stk_arena_printf(arena, "%s/runs/%s", store->path, run);
}

int stk_store_load_spec(stk_store *store, const char *run, stk_arena *arena, const char **ret_json,
                        size_t *ret_len, stk_err *err)
{
    STK_TEXT_AUTO data = NULL;
    int rc = stk_store_run_row(store, run, NULL, err);
    if (rc == 0) {
        rc = stk_store_read_spec(store, run, &data, ret_len, err);
    }
    if (rc == 0) {
        const char *copy = stk_arena_dupn(arena, data, *ret_len);
        STK_TRY(stk_err_if_null(copy, err));
        *ret_json = copy;
    }
    return rc;
}

/* --- naming --- */

/* One query of resolve_run: returns up to N_CANDIDATES ids, their number, or a negative code. */
static int candidates(stk_store *store, const char *sql, const char *text,
                      char ret[N_CANDIDATES][40], stk_err *err)
{
    sqlite3_stmt *stmt = NULL;
    int n = 0;
    int rc = sqlite3_prepare_v2(store->db, sql, -1, &stmt, NULL);
    if (rc == SQLITE_OK) {
        (void)sqlite3_bind_text(stmt, 1, text, -1, SQLITE_STATIC);
        while ((rc = sqlite3_step(stmt)) == SQLITE_ROW && n < N_CANDIDATES) {
            const unsigned char *id = sqlite3_column_text(stmt, 0);
            (void)snprintf(ret[n++], sizeof ret[0], "%s", stk_text_or((const char *)id, ""));
        }
    }
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
        n = stk_store_sql_err(store, rc, err, "looking for a run");
    }
    (void)sqlite3_finalize(stmt);
    return n;
}

static int ambiguous(const char *text, char found[N_CANDIDATES][40], int n, stk_err *err)
{
    char third[48] = "";
    if (n > 2) {
        (void)snprintf(third, sizeof third, ", %s", found[2]);
    }
    stk_err_set(err, STK_E_USAGE, "'%s' is the beginning of several runs' ids: %s, %s%s%s", text,
                found[0], found[1], third, stk_text_when(n > 3, ", …"));
    stk_err_hint(err, "give more characters of the id");
    return STK_E_USAGE;
}

int stk_store_resolve_run(stk_store *store, const char *text, char ret_id[40], stk_err *err)
{
    static const char *const queries[] = {
        "SELECT run FROM runs WHERE run = ?1",
        "SELECT run FROM runs WHERE name = ?1 ORDER BY id DESC LIMIT 1",
        /* 'g' sorts after ids, which are hexadecimal digits and dashes */
        "SELECT run FROM runs WHERE run >= ?1 AND run < ?1 || 'g' ORDER BY run LIMIT 4",
    };
    char found[N_CANDIDATES][40];
    int n = 0;
    if (strcmp(text, "latest") == 0) {
        n = candidates(store, "SELECT run FROM runs ORDER BY id DESC LIMIT 1", "", found, err);
        if (n == 0) {
            stk_err_set(err, STK_E_NOT_FOUND, "store '%s' has no runs yet", store->path);
            return STK_E_NOT_FOUND;
        }
    }
    for (size_t i = 0; n == 0 && i < 3 && text[0] != '\0'; i++) {
        n = candidates(store, queries[i], text, found, err);
    }
    if (n < 0) {
        return n;
    }
    if (n == 0) {
        return not_found(store, text, err);
    }
    if (n > 1) {
        return ambiguous(text, found, n, err);
    }
    memcpy(ret_id, found[0], sizeof found[0]);
    return 0;
}

/* --- listing --- */

static const char *status_of(stk_store *store, const char *run, const char *status)
{
    static const char *const words[] = {"succeeded", "failed", "cancelled", "interrupted"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(status, words[i]) == 0) {
            return words[i];
        }
    }
    return stk_store_run_is_live(store, run) ? "running" : "interrupted";
}

int stk_store_list_runs(stk_store *store, const char *pipeline, const char *tags, uint32_t limit,
                        stk_arena *arena, stk_run_row **ret_rows, uint32_t *ret_n, stk_err *err)
{
    sqlite3_stmt *stmt = NULL;
    uint32_t n = 0;
    uint32_t cap = 0;
    stk_run_row *rows = NULL;
    STK_TEXT_AUTO query = stk_file_printf(
        "SELECT run, name, pipeline, status, created_ms, ended_ms, tags"
        " FROM runs WHERE (?1 IS NULL OR pipeline = ?1)"
        " AND NOT EXISTS (SELECT 1 FROM json_each(?3) wanted WHERE"
        " wanted.value NOT IN (SELECT value FROM json_each(coalesce(runs.tags, '[]'))))"
        " ORDER BY %s DESC LIMIT ?2",
        /* a mirror's rows are in the order in which they were brought */
        (store->flags & STK_STORE_MIRROR) != 0 ? "run" : "id");
    STK_TRY(stk_err_if_null(query, err));
    int rc = sqlite3_prepare_v2(store->db, query, -1, &stmt, NULL);
    if (rc == SQLITE_OK) {
        (void)sqlite3_bind_text(stmt, 1, pipeline, -1, SQLITE_STATIC);
        (void)sqlite3_bind_int64(stmt, 2, limit);
        (void)sqlite3_bind_text(stmt, 3, tags, -1, SQLITE_STATIC);
        while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
            rows = stk_arena_grow(arena, rows, n, sizeof *rows, &cap);
            if (rows == NULL) {
                rc = SQLITE_NOMEM;
                break;
            }
            stk_run_row *r = &rows[n];
            r->id = stk_store_column(stmt, 0, arena);
            r->name = stk_store_column(stmt, 1, arena);
            r->pipeline = stk_store_column(stmt, 2, arena);
            const char *status = (const char *)sqlite3_column_text(stmt, 3);
            r->created_ms = sqlite3_column_int64(stmt, 4);
            r->ended_ms = sqlite3_column_int64(stmt, 5);
            r->tags = stk_store_column(stmt, 6, arena);
            if (r->id == NULL || r->name == NULL || r->pipeline == NULL || status == NULL) {
                rc = SQLITE_NOMEM;
                break;
            }
            r->status = status_of(store, r->id, status);
            r->now_ms = 0;
            stk_clock_anchor clock;
            if (strcmp(r->status, "running") == 0 &&
                stk_store_run_clock(store, r->id, &clock, NULL) == 0) {
                r->now_ms = stk_clock_anchored_ms(&clock);
            }
            n++;
        }
    }
    int code = stk_store_sql_check(store, rc, err, "listing runs");
    (void)sqlite3_finalize(stmt);
    if (code == 0) {
        *ret_rows = rows;
        *ret_n = n;
    }
    return code;
}

/* --- attempts --- */

int stk_store_make_attempt(const char *dir, stk_err *err)
{
    if (mkdir(dir, 0755) == 0 || errno == EEXIST) {
        return 0;
    }
    STK_TEXT_AUTO of_task = strdup(dir);
    STK_TEXT_AUTO of_step = NULL;
    char *slash = NULL;
    if (of_task != NULL) {
        slash = strrchr(of_task, '/');
    }
    if (slash != NULL) {
        *slash = '\0';
        of_step = strdup(of_task);
        if (of_step == NULL) {
            slash = NULL;
        } else {
            slash = strrchr(of_step, '/');
        }
    }
    if (slash == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "no memory for the name of '%s'", dir);
    }
    *slash = '\0';
    int rc = stk_file_mkdirs(of_step, 0755, err);
    if (rc == 0 && mkdir(of_task, 0700) < 0 && errno != EEXIST) {
        rc = stk_err_sys(err, STK_E_SYS, errno, "can't make folder '%s'", of_task);
    }
    STK_TRY(rc);
    return stk_file_mkdirs(dir, 0755, err);
}
