/* Maintenance: verifies everything, and removes what nothing kept refers to.
 *
 * References are found by reading: every word of 64 hexadecimal digits counts in the events, cache
 * entries, references, names and specs that are kept. That can only keep too much. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/text.h"
#include "store/store_digest.h"
#include "store/store_private.h"
#include "sys/dir.h"
#include "sys/faults.h"
#include "sys/file.h"

typedef struct item {
    const char *digest;
    int64_t size;
    bool has_row;
    bool has_file;
    bool is_absent; /* only the origin has it */
    bool kept;
} item;

/* Everything that gc may remove: rows and files. */
typedef struct catalogue {
    stk_arena *arena;
    stk_map index; /* digest → index in `items` */
    item *items;
    size_t n;
    uint32_t cap;
} catalogue;

static void catalogue_done(catalogue *c)
{
    stk_map_done(&c->index);
    stk_arena_free(c->arena);
    free(c->items);
}
#define CATALOGUE_AUTO __attribute__((cleanup(catalogue_done))) catalogue

/* The entry of a digest, made if needed; NULL when out of memory. */
static item *entry(catalogue *c, const char *digest)
{
    uint64_t at;
    if (stk_map_getn(&c->index, digest, STK_DIGEST_HEX, &at)) {
        return &c->items[at];
    }
    const char *key = stk_arena_dupn(c->arena, digest, STK_DIGEST_HEX);
    if (key == NULL || stk_array_reserve(&c->items, &c->cap, c->n + 1, sizeof *c->items) < 0 ||
        stk_map_put(&c->index, key, c->n) < 0) {
        return NULL;
    }
    c->items[c->n] = (item){.digest = key};
    return &c->items[c->n++];
}

/* Calls `each` for every row of a query. */
static int for_rows(stk_store *store, const char *sql, int (*each)(void *arg, sqlite3_stmt *row),
                    void *arg, stk_err *err)
{
    sqlite3_stmt *stmt = NULL;
    int code = 0;
    int rc = sqlite3_prepare_v2(store->db, sql, -1, &stmt, NULL);
    while (code == 0 && (rc == SQLITE_OK || rc == SQLITE_ROW)) {
        rc = sqlite3_step(stmt);
        if (rc == SQLITE_ROW) {
            code = each(arg, stmt);
        } else {
            break;
        }
    }
    if (code != 0) {
        code = stk_err_nomem(err); /* the only way `each` fails */
    } else if (rc != SQLITE_DONE) {
        code = stk_store_sql_err(store, rc, err, "reading everything");
    }
    (void)sqlite3_finalize(stmt);
    return code;
}

static int see_row(void *arg, sqlite3_stmt *row)
{
    const char *digest = (const char *)sqlite3_column_text(row, 0);
    if (digest == NULL || !stk_store_is_digest(digest, strlen(digest))) {
        return 0; /* verify reports it */
    }
    item *it = entry(arg, digest);
    if (it == NULL) {
        return -1;
    }
    it->has_row = true;
    it->size = sqlite3_column_int64(row, 1);
    it->is_absent = sqlite3_column_int(row, 2) != 0;
    return 0;
}

static int list_rows(stk_store *store, catalogue *c, stk_err *err)
{
    return for_rows(store, "SELECT digest, size, boot = '" STK_STORE_ELSEWHERE "' FROM artifacts",
                    see_row, c, err);
}

/* If something is unreadable, its references are unknown, so gc ends before it removes anything. */
static int cant_read(stk_err *err)
{
    int code = stk_err_context(err, "nothing is removed");
    stk_err_hint(err, "make it readable, then try again");
    return code;
}

/* Lists the entries of artifacts/NAME; none if there is no such folder. */
static int list_part(stk_store *store, catalogue *c, const char *name, stk_err *err)
{
    char digest[3 + 256];
    char shown[64];
    STK_DIR_AUTO dir = {0};
    (void)snprintf(shown, sizeof shown, "artifacts/%s", name);
    STK_FD_AUTO fd =
        openat(store->artifacts_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        return 0;
    }
    if (fd < 0) {
        stk_err_sys(err, STK_E_SYS, errno, "can't read folder '%s/%s'", store->path, shown);
        return cant_read(err);
    }
    if (stk_dir_read_fd(fd, shown, &dir, err) < 0) {
        return cant_read(err);
    }
    for (uint32_t i = 0; i < dir.n; i++) {
        struct stat st;
        (void)snprintf(digest, sizeof digest, "%s%s", name, dir.items[i].name);
        if (!stk_store_is_digest(digest, strlen(digest))) {
            continue;
        }
        item *it = entry(c, digest);
        STK_TRY(stk_err_if_null(it, err));
        it->has_file = true;
        if (!it->has_row && fstatat(dir.fd, dir.items[i].name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            it->size = S_ISDIR(st.st_mode) ? 0 : st.st_size;
        }
    }
    return 0;
}

static int list_files(stk_store *store, catalogue *c, stk_err *err)
{
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < 256; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "%02x", i);
        rc = list_part(store, c, name, err);
    }
    return rc;
}

/* --- what is kept --- */

static void keep_words(catalogue *c, const char *text)
{
    while (text != NULL && *text != '\0') {
        size_t n = strspn(text, "0123456789abcdef");
        uint64_t at;
        if (n == STK_DIGEST_HEX && stk_map_getn(&c->index, text, n, &at)) {
            c->items[at].kept = true;
        }
        text += n;
        text += strcspn(text, "0123456789abcdef");
    }
}

static int keep_row(void *arg, sqlite3_stmt *row)
{
    for (int i = 0; i < sqlite3_column_count(row); i++) {
        const char *text = (const char *)sqlite3_column_text(row, i);
        if (text == NULL && sqlite3_column_type(row, i) != SQLITE_NULL) {
            return -1;
        }
        keep_words(arg, text);
    }
    return 0;
}

typedef struct spec_reader {
    stk_store *store;
    catalogue *c;
    stk_err *err;
    int rc; /* the error of a failed callback */
} spec_reader;

static int keep_spec(void *arg, sqlite3_stmt *row)
{
    spec_reader *r = arg;
    const char *run = (const char *)sqlite3_column_text(row, 0);
    STK_TEXT_AUTO data = NULL;
    size_t len = 0;
    if (run == NULL) {
        return -1;
    }
    int sys = STK_FAILPOINT_ERR("store.gc.spec");
    int rc;
    if (sys != 0) {
        rc = stk_err_sys(r->err, STK_E_SYS, sys, "can't read the document of run %s", run);
    } else {
        rc = stk_store_read_spec(r->store, run, &data, &len, r->err);
    }
    /* A missing spec names nothing, and such a run can't be resumed anyway. An unreadable spec may
     * name anything. */
    if (rc < 0 && rc != STK_E_NOT_FOUND) {
        r->rc = stk_err_context(r->err, "nothing is removed");
        return -1;
    }
    for (size_t at = 0; at < len; at += strlen(data + at) + 1) { /* also after a zero byte */
        keep_words(r->c, data + at);
    }
    return 0;
}

static int mark(stk_store *store, catalogue *c, stk_err *err)
{
    static const char *const queries[] = {
        "SELECT data FROM events WHERE data IS NOT NULL",
        "SELECT outputs, metadata FROM cache",
        "SELECT digest FROM refs",
        "SELECT digest, ref FROM named",
    };
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++) {
        STK_TRY(for_rows(store, queries[i], keep_row, c, err));
    }
    spec_reader r = {.store = store, .c = c, .err = err};
    stk_err other; /* the error that for_rows reports for a failed callback */
    int rc = for_rows(store, "SELECT run FROM runs", keep_spec, &r, &other);
    STK_TRY(r.rc);
    if (rc < 0 && err != NULL) {
        *err = other;
    }
    return rc;
}

/* --- runs --- */

typedef struct chooser {
    stk_store *store;
    const stk_gc *gc;
    int64_t now_ms;
    stk_arena *arena;
    stk_map n_kept; /* pipeline → number of runs kept so far */
    struct doomed {
        int64_t row;
        const char *run;
    } * doomed;
    size_t n;
    uint32_t cap;
    stk_err *err;
    int rc; /* the error of a failed callback, in `err` */
} chooser;

static int doom(chooser *ch, int64_t row, const char *run)
{
    const struct doomed one = {row, stk_arena_dup(ch->arena, run)};
    if (one.run == NULL || stk_array_reserve(&ch->doomed, &ch->cap, ch->n + 1, sizeof one) < 0) {
        return -1;
    }
    ch->doomed[ch->n++] = one;
    return 0;
}

static int cant_tell(const char *run, int sys, stk_err *err)
{
    return stk_err_sys(err, STK_E_SYS, sys,
                       "nothing is removed: can't tell whether run %s is still running", run);
}

/* Rows come newest first: id, run, pipeline, time of the last sign of life. */
static int choose(void *arg, sqlite3_stmt *row)
{
    chooser *ch = arg;
    const char *run = (const char *)sqlite3_column_text(row, 1);
    const char *pipeline = (const char *)sqlite3_column_text(row, 2);
    uint64_t n = 0;
    if (run == NULL || pipeline == NULL) {
        return -1;
    }
    (void)stk_map_get(&ch->n_kept, pipeline, &n);
    bool is_kept =
        n < ch->gc->keep_runs || sqlite3_column_int64(row, 3) > ch->now_ms - ch->gc->keep_ms;
    int sys = 0;
    if (!is_kept) {
        sys = stk_store_run_look(ch->store, run, &is_kept);
    }
    if (sys != 0) {
        ch->rc = cant_tell(run, sys, ch->err);
        return -1;
    }
    if (is_kept) {
        const char *key = stk_arena_dup(ch->arena, pipeline);
        if (key == NULL || stk_map_put(&ch->n_kept, key, n + 1) < 0) {
            return -1;
        }
        return 0;
    }
    return doom(ch, sqlite3_column_int64(row, 0), run);
}

/* Chooses exactly the named runs, whatever their age. */
static int choose_named(chooser *ch, stk_err *err)
{
    for (uint32_t i = 0; i < ch->gc->n_only; i++) {
        const char *run = ch->gc->only[i];
        int64_t row = 0;
        bool again = false;
        for (size_t k = 0; k < ch->n; k++) {
            again = again || strcmp(ch->doomed[k].run, run) == 0;
        }
        STK_TRY(stk_store_run_row(ch->store, run, &row, err));
        bool is_live = false;
        int sys = stk_store_run_look(ch->store, run, &is_live);
        if (sys != 0) {
            return cant_tell(run, sys, err);
        }
        if (is_live) {
            return stk_err_set(err, STK_E_BUSY, "run %s is still running; cancel it first", run);
        }
        if (!again && doom(ch, row, run) < 0) {
            return stk_err_nomem(err);
        }
    }
    return 0;
}

static int choose_runs(chooser *ch, stk_err *err)
{
    if (ch->gc->n_only > 0) {
        return choose_named(ch, err);
    }
    stk_err other;
    ch->err = err;
    int rc =
        for_rows(ch->store,
                 "SELECT id, run, pipeline, coalesce(nullif(ended_ms, 0),"
                 " (SELECT time_ms FROM events WHERE events.id BETWEEN runs.id << 32"
                 "  AND (runs.id << 32) + 4294967295 ORDER BY events.id DESC LIMIT 1), created_ms)"
                 " FROM runs ORDER BY id DESC",
                 choose, ch, &other);
    STK_TRY(ch->rc);
    if (rc < 0 && err != NULL) {
        *err = other;
    }
    return rc;
}

static int delete_runs(chooser *ch, stk_err *err)
{
    char sql[256];
    for (size_t i = 0; i < ch->n; i++) {
        long long first = (long long)ch->doomed[i].row << 32;
        (void)snprintf(sql, sizeof sql,
                       "DELETE FROM events WHERE id BETWEEN %lld AND %lld;"
                       "DELETE FROM refs WHERE id BETWEEN %lld AND %lld;"
                       "DELETE FROM runs WHERE id = %lld",
                       first, first + UINT32_MAX, first, first + UINT32_MAX,
                       (long long)ch->doomed[i].row);
        STK_TRY(stk_store_exec(ch->store, sql, err));
    }
    /* Keeps an entry that a kept run used, whichever run made it. */
    if (ch->n == 0) {
        return 0;
    }
    return stk_store_exec(ch->store,
                          "DELETE FROM cache WHERE run NOT IN (SELECT run FROM runs)"
                          " AND key NOT IN (SELECT json_extract(data, '$.key') FROM events"
                          " WHERE kind = 'task_cached' AND json_valid(data)"
                          " AND json_extract(data, '$.key') IS NOT NULL)",
                          err);
}

/* --- files --- */

/* Moves an entry of a folder of ours into our stage, which others don't use; closing the stage
 * removes it later. Moves a link itself, not its target. */
static int set_aside(stk_store *store, int at, const char *name, stk_err *err)
{
    STK_TEXT_AUTO aside = NULL;
    char proc[40];
    STK_TRY(stk_store_stage_path(store, &aside, err));
    STK_FD_AUTO fd = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) {
        (void)snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
        (void)chmod(proc, 0700); /* moving a folder writes its ".." */
    }
    if (renameat(at, name, AT_FDCWD, aside) < 0 && errno != ENOENT) {
        return stk_err_sys(err, STK_E_SYS, errno, "can't remove '%s' of store '%s'", name,
                           store->path);
    }
    return 0;
}

/* True for exactly the names that make_id makes; other folders are somebody else's. */
static bool is_made_here(const char *name)
{
    static const char form[] = "dddddddd-dddddd-xxxxxx";
    if (strlen(name) != sizeof form - 1) {
        return false;
    }
    for (size_t i = 0; form[i] != '\0'; i++) {
        const char *fine = "-";
        if (form[i] == 'd') {
            fine = "0123456789";
        } else if (form[i] == 'x') {
            fine = "0123456789abcdef";
        }
        if (strchr(fine, name[i]) == NULL) {
            return false;
        }
    }
    return true;
}

/* Removes a folder in runs/ without a row and with a free lock: of a run that was removed here, or
 * never began. */
static int remove_run_folder(stk_store *store, const chooser *ch, const char *run, stk_err *err)
{
    int64_t row;
    bool is_ours = is_made_here(run);
    for (size_t i = 0; i < ch->n && !is_ours; i++) {
        is_ours = strcmp(ch->doomed[i].run, run) == 0;
    }
    bool is_live = false;
    if (!is_ours || stk_store_run_look(store, run, &is_live) != 0 || is_live) {
        return 0; /* unknown: leave it for the next gc */
    }
    int rc = stk_store_run_row(store, run, &row, err);
    if (rc == STK_E_NOT_FOUND) {
        rc = set_aside(store, store->runs_fd, run, err);
        STK_FAILPOINT("store.gc.mid");
    }
    return rc;
}

static int remove_run_folders(stk_store *store, const chooser *ch, stk_err *err)
{
    STK_DIR_AUTO dir = {0};
    int rc = stk_dir_read_fd(store->runs_fd, "runs", &dir, err);
    for (uint32_t i = 0; rc == 0 && i < dir.n; i++) {
        if (stk_dir_is_folder(&dir, &dir.items[i])) {
            rc = remove_run_folder(store, ch, dir.items[i].name, err);
        }
    }
    return rc;
}

static int count_bytes(void *arg, const stk_dir_seen *seen, stk_err *err)
{
    uint64_t *bytes = arg;
    (void)err;
    *bytes += S_ISREG(seen->st->st_mode) ? (uint64_t)seen->st->st_size : 0;
    return 0;
}

/* What the folders of the chosen runs hold, as far as they can be read: logs, checkpoints, cards.
 */
static uint64_t run_bytes(const chooser *ch)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < ch->n; i++) {
        const char *folder = stk_store_run_folder(ch->store, ch->doomed[i].run, ch->arena);
        uint64_t n = 0;
        if (folder != NULL && stk_dir_walk(folder, count_bytes, &n, NULL) == 0) {
            bytes += n;
        }
    }
    return bytes;
}

static int remove_files(stk_store *store, const catalogue *c, stk_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < c->n; i++) {
        if (!c->items[i].kept && c->items[i].has_file) {
            char part[3] = {c->items[i].digest[0], c->items[i].digest[1], '\0'};
            STK_FD_AUTO folder =
                openat(store->artifacts_fd, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (folder >= 0) {
                rc = set_aside(store, folder, c->items[i].digest + 2, err);
            }
            STK_FAILPOINT("store.gc.mid");
        }
    }
    return rc;
}

static int delete_artifact_rows(stk_store *store, const catalogue *c, stk_gc *gc, stk_err *err)
{
    sqlite3_stmt *stmt = store->stmts[STK_SQL_ART_DEL];
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < c->n; i++) {
        const item *it = &c->items[i];
        if (it->kept) {
            continue;
        }
        gc->artifacts_removed++;
        if (it->has_file) {
            gc->bytes_freed += (uint64_t)it->size;
        }
        if (it->has_row) {
            (void)sqlite3_bind_text(stmt, 1, it->digest, STK_DIGEST_HEX, SQLITE_STATIC);
            rc = stk_store_step(store, stmt, err, "removing artifacts");
        }
    }
    return rc;
}

static int change_rows(chooser *ch, catalogue *c, stk_gc *gc, stk_err *err)
{
    stk_store *store = ch->store;
    STK_TRY(choose_runs(ch, err));
    STK_TRY(delete_runs(ch, err));
    STK_TRY(list_rows(store, c, err));
    STK_TRY(list_files(store, c, err));
    STK_TRY(mark(store, c, err));
    gc->runs_removed = ch->n;
    return delete_artifact_rows(store, c, gc, err);
}

/* Does all database changes in one transaction; a dry run rolls it back. */
static int gc_rows(chooser *ch, catalogue *c, stk_gc *gc, stk_err *err)
{
    stk_store *store = ch->store;
    STK_TRY(stk_store_begin(store, err));
    int rc = change_rows(ch, c, gc, err);
    if (rc == 0 && gc->dry_run) {
        return stk_store_exec(store, "ROLLBACK", err);
    }
    return stk_store_end(store, rc, err);
}

static void chooser_done(chooser *ch)
{
    stk_map_done(&ch->n_kept);
    stk_arena_free(ch->arena);
    free(ch->doomed);
}

/* Returns free pages to the file system when they are most of the file. Only tidying, so it may
 * fail (no space for the new copy, another process reading). */
static void shrink(stk_store *store)
{
    sqlite3_stmt *stmt = NULL;
    bool mostly_free = false;
    if (sqlite3_prepare_v2(store->db,
                           "SELECT freelist_count * 2 > page_count AND page_count > 256"
                           " FROM pragma_freelist_count, pragma_page_count",
                           -1, &stmt, NULL) == SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW) {
        mostly_free = sqlite3_column_int(stmt, 0) != 0;
    }
    (void)sqlite3_finalize(stmt);
    if (mostly_free) {
        (void)sqlite3_exec(store->db, "VACUUM", NULL, NULL, NULL);
    }
}

int stk_store_gc(stk_store *store, stk_gc *gc, int64_t now_ms, stk_err *err)
{
    CATALOGUE_AUTO c = {.arena = stk_arena_new(0)};
    __attribute__((cleanup(chooser_done)))
    chooser ch = {.store = store, .gc = gc, .now_ms = now_ms, .arena = stk_arena_new(0)};
    gc->runs_removed = gc->artifacts_removed = gc->bytes_freed = 0;
    STK_TRY(stk_store_writable(store, err));
    if (c.arena == NULL || ch.arena == NULL) {
        return stk_err_nomem(err);
    }
    if (store->n_pending > 0) {
        return stk_err_set(err, STK_E_BUSY, "store '%s': this process is storing artifacts",
                           store->path);
    }
    /* Makes our stage first, because that takes the shared side of the lock. */
    STK_TEXT_AUTO unused = NULL;
    if (!gc->dry_run) {
        STK_TRY(stk_store_stage_path(store, &unused, err));
    }
    STK_TRY(stk_store_gc_begin(store, err));
    int rc = gc_rows(&ch, &c, gc, err);
    if (rc == 0) {
        gc->bytes_freed += run_bytes(&ch);
    }
    if (rc == 0 && !gc->dry_run) {
        store->run[0] = '\0'; /* this run may have been removed */
        STK_FAILPOINT("store.gc.rows");
        rc = remove_files(store, &c, err);
        if (rc == 0) {
            rc = remove_run_folders(store, &ch, err);
        }
        stk_store_stage_sweep(store);
    }
    stk_store_gc_end(store);
    if (!gc->dry_run) {
        stk_map_done(&store->known);
        store->known = (stk_map){0};
        stk_store_stage_close(store); /* removes the files here, where nobody waits */
        shrink(store);
    }
    return rc;
}

/* --- verify --- */

typedef struct digest_list {
    stk_arena *arena;
    const char **items;
    uint32_t n, max;
} digest_list;

static int put_digest(void *arg, sqlite3_stmt *row)
{
    digest_list *list = arg;
    const char *digest = stk_store_column(row, 0, list->arena);
    if (digest == NULL) {
        return STK_E_NOMEM;
    }
    if (list->n < list->max) {
        list->items[list->n++] = digest;
    }
    return 0;
}

int stk_store_list_unverified(stk_store *store, int64_t before_ms, uint32_t limit, stk_arena *arena,
                              const char ***ret_digests, uint32_t *ret_n, stk_err *err)
{
    char sql[256];
    digest_list list = {.arena = arena, .max = limit};
    list.items = stk_arena_array(arena, limit, sizeof *list.items);
    STK_TRY(stk_err_if_null(list.items, err));
    (void)snprintf(sql, sizeof sql,
                   "SELECT digest FROM artifacts WHERE verified_ms <= %lld"
                   " AND boot <> '" STK_STORE_ELSEWHERE "' ORDER BY verified_ms LIMIT %u",
                   (long long)before_ms, limit);
    int rc = for_rows(store, sql, put_digest, &list, err);
    *ret_digests = list.items;
    *ret_n = list.n;
    return rc;
}

typedef struct bad_list {
    void (*bad)(void *arg, const char *digest, const char *what);
    void *arg;
} bad_list;

static int tell_database(void *arg, sqlite3_stmt *row)
{
    const bad_list *b = arg;
    const char *text = (const char *)sqlite3_column_text(row, 0);
    if (text != NULL && strcmp(text, "ok") != 0) {
        b->bad(b->arg, "store.db", text);
    }
    return 0;
}

/* Checks an artifact from the disk, not from the page cache. Returns NULL if it is good, else a
 * sentence in `buf`. */
static const char *check_one(stk_store *store, const char *path, const char *digest,
                             int64_t *ret_size, char *buf, size_t size)
{
    char hex[STK_DIGEST_HEX + 1];
    stk_err why;
    STK_TREE_AUTO tree = {0};
    int rc = stk_tree_walk(path, false, &tree, &why);
    tree.is_cold = true;
    if (rc == 0) {
        rc = stk_tree_digest(&tree, hex, &why);
    }
    *ret_size = tree.size;
    if (rc == STK_E_NOT_FOUND) {
        (void)snprintf(buf, size, "missing");
    } else if (rc != 0) {
        (void)snprintf(buf, size, "unreadable: %s", why.text);
    } else if (strcmp(hex, digest) != 0) {
        (void)snprintf(buf, size, "changed: the digest of its content is %.12s…", hex);
    } else {
        (void)stk_store_believe(store, digest, &tree,
                                NULL); /* a failure only means that it is read again sooner */
        return NULL;
    }
    return buf;
}

int stk_store_verify(stk_store *store, void (*bad)(void *arg, const char *digest, const char *what),
                     void *arg, uint64_t *ret_checked, uint64_t *ret_bytes, stk_err *err)
{
    CATALOGUE_AUTO c = {.arena = stk_arena_new(0)};
    bad_list b = {bad, arg};
    uint64_t n = 0;
    uint64_t bytes = 0;
    STK_TRY(stk_err_if_null(c.arena, err));
    uint64_t n_events = 0;
    STK_TRY(for_rows(store, "PRAGMA quick_check(20)", tell_database, &b, err));
    STK_TRY(stk_store_verify_events(store, bad, arg, &n_events, err));
    STK_TRY(list_rows(store, &c, err));
    for (size_t i = 0; i < c.n; i++) {
        char what[900];
        int64_t size = 0;
        STK_TEXT_AUTO path = stk_store_artifact_path(store, c.items[i].digest);
        STK_TRY(stk_err_if_null(path, err));
        if (c.items[i].is_absent && !stk_file_exists(path)) {
            continue;
        }
        if (check_one(store, path, c.items[i].digest, &size, what, sizeof what) != NULL) {
            bad(arg, c.items[i].digest, what);
        }
        n++;
        bytes += (uint64_t)size;
    }
    STK_TRY(stk_store_write_pending(store, err));
    *ret_checked = n;
    *ret_bytes = bytes;
    return 0;
}
