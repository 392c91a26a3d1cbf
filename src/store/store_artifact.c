/* Artifacts: taking them in, finding them, and not believing torn ones. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "store/store_digest.h"
#include "store/store_private.h"
#include "sys/dir.h"
#include "sys/file.h"

bool stk_store_is_digest(const char *text, size_t len)
{
    if (len != STK_DIGEST_HEX) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f'))) {
            return false;
        }
    }
    return true;
}

char *stk_store_artifact_path(const stk_store *store, const char *digest)
{
    char *path = NULL;
    return asprintf(&path, "%s/artifacts/%.2s/%s", store->path, digest, digest + 2) < 0 ? NULL
                                                                                        : path;
}

static int no_memory(const stk_store *store, stk_err *err)
{
    return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "store '%s'", store->path);
}

/* --- our folder below tmp/ --- */

static int make_stage(stk_store *store, stk_err *err)
{
    unsigned char r[8];
    char name[2 * sizeof r + 1];
    if (getrandom(r, sizeof r, 0) != (ssize_t)sizeof r) {
        return stk_err_sys(err, STK_E_SYS, errno, "can't name a folder in '%s/tmp'", store->path);
    }
    for (size_t i = 0; i < sizeof r; i++) {
        (void)snprintf(name + 2 * i, 3, "%02x", r[i]);
    }
    /* The sweeper holds the other side of this lock, so it never sees the folder half made. */
    int rc = stk_store_use_begin(store, err);
    if (rc != 0) {
        return rc;
    }
    STK_TEXT_AUTO tmp = stk_file_join(store->path, "tmp");
    char *stage = tmp == NULL ? NULL : stk_file_join(tmp, name);
    STK_TEXT_AUTO lock = stage == NULL ? NULL : stk_file_join(stage, "lock");
    if (lock == NULL) {
        free(stage);
        return no_memory(store, err);
    }
    int sys = mkdir(stage, 0700) < 0 ? errno : 0;
    if (sys == 0) {
        store->stage_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        sys = store->stage_fd < 0 ? errno : stk_store_lock(store->stage_fd, F_WRLCK, 0, 0, false);
    }
    if (sys != 0) {
        stk_file_close(&store->stage_fd);
        (void)stk_file_remove_tree(stage, NULL);
        rc = stk_err_sys(err, STK_E_SYS, sys, "can't make folder '%s'", stage);
        free(stage);
        return rc;
    }
    store->stage = stage;
    return 0;
}

int stk_store_stage_path(stk_store *store, char **ret_path, stk_err *err)
{
    int rc = store->stage == NULL ? make_stage(store, err) : 0;
    if (rc == 0 && asprintf(ret_path, "%s/%u", store->stage, store->n_staged++) < 0) {
        *ret_path = NULL;
        rc = no_memory(store, err);
    }
    return rc;
}

void stk_store_stage_close(stk_store *store)
{
    if (store->stage != NULL) {
        (void)stk_file_remove_tree(store->stage, NULL);
        stk_file_close(&store->stage_fd);
        free(store->stage);
        store->stage = NULL;
    }
}

void stk_store_stage_sweep(stk_store *store)
{
    STK_TEXT_AUTO tmp = stk_file_join(store->path, "tmp");
    STK_DIR_AUTO dir = {0};
    if (tmp == NULL || stk_dir_read(tmp, &dir, NULL) < 0) {
        return; /* the next one who opens it sweeps */
    }
    for (uint32_t i = 0; i < dir.n; i++) {
        const char *name = dir.items[i].name;
        STK_TEXT_AUTO path = name[0] == '.' ? NULL : stk_file_join(tmp, name);
        STK_TEXT_AUTO lock = path == NULL ? NULL : stk_file_join(path, "lock");
        STK_FD_AUTO fd = lock == NULL ? -1 : open(lock, O_RDWR | O_CLOEXEC);
        if (lock != NULL && (fd < 0 || !stk_store_is_locked(fd))) {
            (void)stk_file_remove_tree(path, NULL); /* what can't be removed is no harm */
        }
    }
}

/* --- what we know of a digest --- */

typedef enum { ABSENT, UNSURE, GOOD } state;

enum { KNOWN_GOOD = 1, KNOWN_DIR = 2, KNOWN_ABSENT = 4, KNOWN_BITS = 3 };

static int know(stk_store *store, const char *digest, int64_t size, uint64_t flags, stk_err *err)
{
    uint64_t old;
    const char *key = digest;
    if (!stk_map_get(&store->known, digest, &old)) {
        key = stk_arena_dupn(store->arena, digest, STK_DIGEST_HEX);
    }
    if (key == NULL || stk_map_put(&store->known, key, (uint64_t)size << KNOWN_BITS | flags) != 0) {
        return no_memory(store, err);
    }
    return 0;
}

static int remember(stk_store *store, const char *digest, int64_t size, bool is_dir, stk_err *err)
{
    return know(store, digest, size, KNOWN_GOOD | (is_dir ? KNOWN_DIR : 0), err);
}

/* The row of a digest: *ret_found with SQLite's columns told apart. */
typedef struct row {
    int64_t size;
    bool is_dir, is_trusted, is_absent;
} row;

static int read_row(stk_store *store, const char *digest, row *ret, bool *ret_found, stk_err *err)
{
    stk_store_read_begin(store);
    sqlite3_stmt *stmt = store->stmts[STK_SQL_ART_GET];
    (void)sqlite3_bind_text(stmt, 1, digest, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(stmt, 2, store->boot, -1, SQLITE_STATIC);
    int rc = sqlite3_step(stmt);
    *ret_found = rc == SQLITE_ROW;
    if (rc == SQLITE_ROW) {
        *ret = (row){.size = sqlite3_column_int64(stmt, 0),
                     .is_dir = sqlite3_column_int(stmt, 1) != 0,
                     .is_trusted = sqlite3_column_int(stmt, 2) != 0,
                     .is_absent = sqlite3_column_int(stmt, 3) != 0};
    }
    int code = rc == SQLITE_ROW || rc == SQLITE_DONE
                   ? 0
                   : stk_store_sql_err(store, rc, err, "looking for an artifact");
    (void)sqlite3_reset(stmt);
    return code;
}

/* GOOD: a row that we can believe and a file of its size. UNSURE: something is there, which may be
 * torn: no row, or an unsynced one of an earlier boot. */
static int look_up(stk_store *store, const char *digest, const char *path, state *ret,
                   int64_t *ret_size, bool *ret_is_dir, stk_err *err)
{
    struct stat st;
    uint64_t known;
    if (lstat(path, &st) < 0) {
        *ret = ABSENT;
        return errno == ENOENT || errno == ENOTDIR
                   ? 0
                   : stk_err_sys(err, STK_E_SYS, errno, "can't read artifact '%s'", path);
    }
    bool is_dir = S_ISDIR(st.st_mode);
    bool trusted = false;
    int64_t size = st.st_size;
    if (stk_map_get(&store->known, digest, &known) && (known & KNOWN_GOOD)) {
        trusted = true;
        size = (int64_t)(known >> KNOWN_BITS);
        is_dir = (known & KNOWN_DIR) != 0;
    } else {
        row r;
        bool found;
        int rc = read_row(store, digest, &r, &found, err);
        if (rc != 0) {
            return rc;
        }
        trusted = found && r.is_trusted;
        size = found && !r.is_absent ? r.size : size;
        is_dir = found && !r.is_absent ? r.is_dir : is_dir;
    }
    bool fits = is_dir == S_ISDIR(st.st_mode) && (is_dir || size == st.st_size);
    *ret = trusted && fits ? GOOD : UNSURE;
    *ret_size = size;
    *ret_is_dir = is_dir;
    return 0;
}

static int write_row(stk_store *store, const stk_store_pending *p, stk_err *err)
{
    sqlite3_stmt *stmt = store->stmts[STK_SQL_ART_ADD];
    (void)sqlite3_bind_text(stmt, 1, p->digest, STK_DIGEST_HEX, SQLITE_STATIC);
    (void)sqlite3_bind_int64(stmt, 2, p->size);
    (void)sqlite3_bind_int(stmt, 3, p->is_dir);
    const char *boot = p->is_absent ? STK_STORE_ELSEWHERE : store->boot;
    (void)sqlite3_bind_text(stmt, 4, boot, -1, SQLITE_STATIC);
    return stk_store_step(store, stmt, err, "noting an artifact");
}

int stk_store_flush_pending(stk_store *store, stk_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < store->n_pending; i++) {
        rc = write_row(store, &store->pending[i], err);
    }
    return rc;
}

static int add_pending(stk_store *store, const stk_artifact *a, bool is_absent, stk_err *err)
{
    if (store->n_pending == store->cap_pending) {
        size_t cap = store->cap_pending == 0 ? 16 : store->cap_pending * 2;
        stk_store_pending *more = reallocarray(store->pending, cap, sizeof *more);
        if (more == NULL) {
            return no_memory(store, err);
        }
        store->pending = more;
        store->cap_pending = cap;
    }
    stk_store_pending *p = &store->pending[store->n_pending];
    memcpy(p->digest, a->digest, sizeof p->digest);
    p->size = a->size;
    p->is_dir = a->is_dir;
    p->is_absent = is_absent;
    int rc = is_absent
                 ? know(store, a->digest, a->size, KNOWN_ABSENT | (a->is_dir ? KNOWN_DIR : 0), err)
                 : remember(store, a->digest, a->size, a->is_dir, err);
    store->n_pending += rc == 0;
    return rc;
}

/* --- taking in --- */

/* Moves what is at `path` (never believed) out of the way, into our stage. */
static int push_aside(stk_store *store, const char *path, stk_err *err)
{
    STK_TEXT_AUTO aside = NULL;
    int rc = stk_store_stage_path(store, &aside, err);
    if (rc != 0) {
        return rc;
    }
    (void)chmod(path, 0700); /* moving a folder writes its ".." */
    if (rename(path, aside) < 0 && errno != ENOENT) {
        return stk_err_sys(err, STK_E_SYS, errno, "can't replace artifact '%s'", path);
    }
    return stk_file_remove_tree(aside, err);
}

/* Moves `src` to its place by rename, so that it is there whole or not at all. */
static int move_in(stk_store *store, const char *src, const char *path, bool is_dir, stk_err *err)
{
    for (int tries = 0;; tries++) {
        if (rename(src, path) == 0) {
            break;
        }
        int sys = errno;
        int rc = 0;
        if (sys == ENOENT && tries < 2) {
            STK_TEXT_AUTO folder = strdup(path);
            if (folder == NULL) {
                return no_memory(store, err);
            }
            *strrchr(folder, '/') = '\0';
            rc = stk_file_mkdirs(folder, 0777, err);
        } else if ((sys == ENOTEMPTY || sys == EEXIST || sys == EISDIR || sys == ENOTDIR) &&
                   tries < 3) {
            rc = push_aside(store, path, err);
        } else {
            return stk_err_sys(err, STK_E_SYS, sys, "can't move '%s' to '%s'", src, path);
        }
        if (rc != 0) {
            return rc;
        }
    }
    if (is_dir && chmod(path, 0555) < 0) { /* only now: a read-only folder can't be moved */
        return stk_err_sys(err, STK_E_SYS, errno, "can't make '%s' read-only", path);
    }
    return 0;
}

/* The last part of every add: `src`, ours and on our file system, becomes the artifact `a`. */
static int take_in(stk_store *store, const char *src, const stk_artifact *a, const char *path,
                   stk_err *err)
{
    int sys = STK_FAILPOINT_ERR("store.add.hashed");
    int rc = sys != 0 ? stk_err_sys(err, STK_E_SYS, sys, "can't add '%s' to the store", src)
                      : move_in(store, src, path, a->is_dir, err);
    if (rc == 0) {
        STK_FAILPOINT("store.add.renamed");
        rc = add_pending(store, a, false, err);
    }
    return rc;
}

bool stk_store_is_beside(const stk_store *store, const char *path)
{
    struct stat a;
    struct stat b;
    return lstat(path, &a) == 0 && fstat(store->dir_fd, &b) == 0 && a.st_dev == b.st_dev;
}

int stk_store_place(stk_store *store, const stk_tree *tree, stk_artifact *a, bool *ret_was_there,
                    stk_err *err)
{
    STK_TEXT_AUTO path = stk_store_artifact_path(store, a->digest);
    state st = ABSENT;
    int64_t size;
    bool is_dir;
    a->size = tree->size;
    a->is_dir = tree->is_dir;
    if (path == NULL) {
        return no_memory(store, err);
    }
    int rc = stk_store_use_begin(store, err);
    rc = rc < 0 ? rc : look_up(store, a->digest, path, &st, &size, &is_dir, err);
    *ret_was_there = rc == 0 && st == GOOD;
    if (rc < 0 || *ret_was_there) {
        return rc < 0 ? rc : remember(store, a->digest, tree->size, tree->is_dir, err);
    }
    return take_in(store, tree->root, a, path, err);
}

int stk_store_add_bytes(stk_store *store, const void *data, size_t len, stk_artifact *ret,
                        stk_err *err)
{
    state st = ABSENT;
    int64_t size;
    bool is_dir;
    STK_TEXT_AUTO tmp = NULL;
    stk_tree_digest_bytes(data, len, ret->digest);
    ret->size = (int64_t)len;
    ret->is_dir = false;
    STK_TEXT_AUTO path = stk_store_artifact_path(store, ret->digest);
    int rc = path == NULL ? no_memory(store, err) : stk_store_writable(store, err);
    if (rc == 0) {
        rc = stk_store_use_begin(store, err);
    }
    if (rc == 0) {
        rc = look_up(store, ret->digest, path, &st, &size, &is_dir, err);
    }
    if (rc != 0 || st == GOOD) {
        return rc != 0 ? rc : remember(store, ret->digest, size, is_dir, err);
    }
    rc = stk_store_stage_path(store, &tmp, err);
    if (rc == 0) {
        rc = stk_file_write(tmp, data, len, 0444, err);
    }
    if (rc == 0) {
        rc = take_in(store, tmp, ret, path, err);
    }
    if (rc != 0 && tmp != NULL) {
        (void)unlink(tmp);
    }
    return rc;
}

/* --- finding --- */

int stk_store_remove_artifact(stk_store *store, const char *digest, stk_err *err)
{
    STK_TEXT_AUTO path = stk_store_artifact_path(store, digest);
    int rc = path == NULL ? no_memory(store, err) : stk_store_writable(store, err);
    if (rc == 0) {
        rc = push_aside(store, path, err);
    }
    if (rc != 0) {
        return rc;
    }
    stk_store_read_end(store);
    sqlite3_stmt *stmt = store->stmts[STK_SQL_ART_DEL];
    (void)sqlite3_bind_text(stmt, 1, digest, -1, SQLITE_STATIC);
    return stk_store_step(store, stmt, err, "forgetting an artifact");
}

/* Sums what may be torn. Fitting content is believed from now on: after a reboot it was read from
 * the disk. */
static int check(stk_store *store, const char *digest, const char *path, int64_t *ret_size,
                 bool *ret_is_dir, stk_err *err)
{
    char hex[STK_DIGEST_HEX + 1];
    STK_TREE_AUTO tree = {0};
    stk_err why;
    int rc = stk_tree_walk(path, false, &tree, &why);
    if (rc == 0) {
        rc = stk_tree_digest(&tree, hex, &why);
    }
    if (rc == STK_E_NOMEM || rc == STK_E_SYS) {
        if (err != NULL) {
            *err = why;
        }
        return rc;
    }
    bool writable = !(store->flags & STK_STORE_READONLY);
    if (rc == 0 && strcmp(hex, digest) == 0) {
        *ret_size = tree.size;
        *ret_is_dir = tree.is_dir;
        stk_artifact a = {.size = tree.size, .is_dir = tree.is_dir};
        memcpy(a.digest, digest, sizeof a.digest);
        return writable ? add_pending(store, &a, false, err)
                        : remember(store, digest, tree.size, tree.is_dir, err);
    }
    if (writable) {
        (void)stk_store_remove_artifact(store, digest, NULL); /* the error below says it all */
    }
    stk_err_set(err, STK_E_STORE, "artifact %.12s was torn by a crash of the machine%s", digest,
                writable ? " and is removed" : "");
    stk_err_hint(err, "the step that made it has to run again");
    return STK_E_STORE;
}

/* A row without bytes, committed or about to be. */
static int is_absent(stk_store *store, const char *digest, bool *ret_absent, int64_t *ret_size,
                     stk_err *err)
{
    uint64_t known;
    row r = {0};
    bool found = false;
    if (stk_map_get(&store->known, digest, &known) && (known & KNOWN_ABSENT)) {
        *ret_absent = true;
        *ret_size = (int64_t)(known >> KNOWN_BITS);
        return 0;
    }
    int rc = read_row(store, digest, &r, &found, err);
    *ret_absent = rc == 0 && found && r.is_absent;
    *ret_size = r.size;
    if (*ret_absent && store->has != NULL) { /* of another day: is it there still? */
        rc = store->has(store->fetch_arg, digest, ret_absent, err);
        *ret_absent = rc == 0 && *ret_absent;
    }
    return rc == 0 && *ret_absent
               ? know(store, digest, r.size, KNOWN_ABSENT | (r.is_dir ? KNOWN_DIR : 0), err)
               : rc;
}

/* STK_E_NOT_FOUND: it isn't here, and the origin doesn't have it either. */
static int fetch(stk_store *store, const char *digest, const char *path, state *ret,
                 int64_t *ret_size, bool *ret_is_dir, stk_err *err)
{
    stk_err why = {0};
    int rc = STK_E_NOT_FOUND;
    if (store->fetch != NULL && !store->is_fetching && !(store->flags & STK_STORE_READONLY)) {
        store->is_fetching = true;
        rc = store->fetch(store->fetch_arg, store, digest, &why);
        store->is_fetching = false;
    }
    if (rc != 0 && rc != STK_E_NOT_FOUND) {
        if (err != NULL) {
            *err = why;
        }
        return rc;
    }
    rc = rc == 0 ? look_up(store, digest, path, ret, ret_size, ret_is_dir, err) : rc;
    if (rc == STK_E_NOT_FOUND || (rc == 0 && *ret == ABSENT)) {
        return stk_err_set(err, STK_E_NOT_FOUND, "artifact %.12s is not in store '%s'%s", digest,
                           store->path,
                           store->fetch != NULL ? ", nor in the share that belongs to it" : "");
    }
    return rc;
}

static int find(stk_store *store, const char *digest, bool bytes, stk_arena *arena,
                const char **ret_path, int64_t *ret_size, stk_err *err)
{
    state st = ABSENT;
    int64_t size = 0;
    bool is_dir = false, absent = false;
    if (!stk_store_is_digest(digest, strlen(digest))) {
        return stk_err_set(err, STK_E_USAGE, "'%.80s' is not an artifact's digest", digest);
    }
    const char *path =
        stk_arena_printf(arena, "%s/artifacts/%.2s/%s", store->path, digest, digest + 2);
    if (path == NULL) {
        return no_memory(store, err);
    }
    int rc = look_up(store, digest, path, &st, &size, &is_dir, err);
    if (rc == 0 && st == ABSENT && !bytes && store->fetch != NULL) {
        rc = is_absent(store, digest, &absent, &size, err);
    }
    if (rc == 0 && st == ABSENT && !absent) {
        rc = fetch(store, digest, path, &st, &size, &is_dir, err);
    }
    if (rc == 0 && st == UNSURE) {
        rc = check(store, digest, path, &size, &is_dir, err);
    } else if (rc == 0 && st == GOOD) {
        rc = remember(store, digest, size, is_dir, err);
    }
    if (rc == 0) {
        *ret_path = path;
        if (ret_size != NULL) {
            *ret_size = size;
        }
    }
    return rc;
}

int stk_store_artifact(stk_store *store, const char *digest, stk_arena *arena,
                       const char **ret_path, int64_t *ret_size, stk_err *err)
{
    return find(store, digest, true, arena, ret_path, ret_size, err);
}

int stk_store_locate(stk_store *store, const char *digest, stk_arena *arena, const char **ret_path,
                     int64_t *ret_size, stk_err *err)
{
    return find(store, digest, false, arena, ret_path, ret_size, err);
}

void stk_store_set_origin(stk_store *store, stk_store_fetch fetch_fn, void *arg)
{
    store->fetch = fetch_fn;
    store->fetch_arg = arg;
}

void stk_store_set_origin_has(stk_store *store, stk_store_has has)
{
    store->has = has;
}

int stk_store_add_absent(stk_store *store, const char *digest, int64_t size, bool is_dir,
                         stk_err *err)
{
    stk_artifact a = {.size = size, .is_dir = is_dir};
    state st = ABSENT;
    bool absent = false;
    int64_t there_size;
    if (!stk_store_is_digest(digest, strlen(digest)) || size < 0) {
        return stk_err_set(err, STK_E_PROTOCOL, "'%.80s', of %lld bytes, is no artifact", digest,
                           (long long)size);
    }
    memcpy(a.digest, digest, sizeof a.digest);
    STK_TEXT_AUTO path = stk_store_artifact_path(store, digest);
    int rc = path == NULL ? no_memory(store, err) : stk_store_writable(store, err);
    rc = rc != 0 ? rc : stk_store_use_begin(store, err);
    rc = rc != 0 ? rc : look_up(store, digest, path, &st, &there_size, &is_dir, err);
    rc = rc != 0 || st != ABSENT ? rc : is_absent(store, digest, &absent, &there_size, err);
    return rc != 0 || st != ABSENT || absent ? rc : add_pending(store, &a, true, err);
}
