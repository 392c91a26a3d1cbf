/* Artifacts: adding them, finding them, and detecting damaged ones. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/text.h"
#include "store/store_digest.h"
#include "store/store_private.h"
#include "sys/clock.h"
#include "sys/dir.h"
#include "sys/faults.h"
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
    return stk_file_printf("%s/artifacts/%.2s/%s", store->path, digest, digest + 2);
}

/* --- our folder below tmp/ --- */

enum { STAGE_NAME = 16 };

/* True for names of our stage folders, so that other folders are left alone. */
static bool is_stage_name(const char *name)
{
    return strlen(name) == STAGE_NAME && strspn(name, "0123456789abcdef") == STAGE_NAME;
}

static int make_stage(stk_store *store, stk_err *err)
{
    unsigned char r[STAGE_NAME / 2];
    char name[STAGE_NAME + 1];
    char lock[STAGE_NAME + 8];
    if (getrandom(r, sizeof r, 0) != (ssize_t)sizeof r) {
        return stk_err_sys(err, STK_E_SYS, errno, "can't name a folder in '%s/tmp'", store->path);
    }
    for (size_t i = 0; i < sizeof r; i++) {
        (void)snprintf(name + 2 * i, 3, "%02x", r[i]);
    }
    /* The sweeper takes this lock exclusively, so it never sees a half-made folder. */
    STK_TRY(stk_store_use_begin(store, err));
    STK_TEXT_AUTO stage = stk_file_printf("%s/tmp/%s", store->path, name);
    STK_TRY(stk_err_if_null(stage, err));
    int sys = stk_errno_if(mkdirat(store->tmp_fd, name, 0700) < 0);
    if (sys == 0) {
        (void)snprintf(lock, sizeof lock, "%s/lock", name);
        store->stage_fd = stk_file_open_below(store->tmp_fd, lock, O_RDWR | O_CREAT, 0600);
        if (store->stage_fd < 0) {
            sys = errno;
        } else {
            sys = stk_store_lock(store->stage_fd, F_WRLCK, 0, 0, false);
        }
    }
    if (sys != 0) {
        stk_file_close(&store->stage_fd);
        (void)stk_file_remove_tree_at(store->tmp_fd, name, NULL);
        return stk_err_sys(err, STK_E_SYS, sys, "can't make folder '%s'", stage);
    }
    store->stage = stage;
    stage = NULL;
    return 0;
}

int stk_store_stage_path(stk_store *store, char **ret_path, stk_err *err)
{
    if (store->stage == NULL) {
        STK_TRY(make_stage(store, err));
    }
    *ret_path = stk_file_printf("%s/%u", store->stage, store->n_staged++);
    return stk_err_if_null(*ret_path, err);
}

void stk_store_stage_close(stk_store *store)
{
    if (store->stage != NULL) {
        (void)stk_file_remove_tree_at(store->tmp_fd, strrchr(store->stage, '/') + 1, NULL);
        stk_file_close(&store->stage_fd);
        free(store->stage);
        store->stage = NULL;
    }
}

/* True for the stage folder of a dead process: it has our kind of name, and its lock is free. */
static bool is_left(const stk_store *store, const char *name)
{
    if (!is_stage_name(name)) {
        return false;
    }
    STK_FD_AUTO folder = openat(store->tmp_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    STK_FD_AUTO lock = -1;
    if (folder >= 0) {
        lock = stk_file_open_below(folder, "lock", O_RDWR | O_NONBLOCK, 0);
    }
    if (folder < 0 || (lock < 0 && errno != ENOENT)) {
        return false; /* a link, or unreadable */
    }
    return lock < 0 || !stk_store_is_locked(lock);
}

void stk_store_stage_sweep(stk_store *store)
{
    STK_DIR_AUTO dir = {0};
    if (stk_dir_read_fd(store->tmp_fd, "tmp", &dir, NULL) < 0) {
        return; /* the next process that opens the store sweeps */
    }
    for (uint32_t i = 0; i < dir.n; i++) {
        if (is_left(store, dir.items[i].name)) { /* leftovers do no harm */
            (void)stk_file_remove_tree_at(store->tmp_fd, dir.items[i].name, NULL);
        }
    }
}

/* --- what we know of a digest --- */

typedef enum { ABSENT, UNSURE, GOOD } state;

enum { FRESH_MS = 2000 /* a folder walked this recently isn't walked again */ };

static int64_t now_ms(void)
{
    return stk_clock_mono_ms(&stk_clock_real);
}

static int know(stk_store *store, const char *digest, const stk_store_known *known, stk_err *err)
{
    uint64_t old;
    stk_store_known *entry = NULL;
    if (stk_map_get(&store->known, digest, &old)) {
        entry = (stk_store_known *)(uintptr_t)old;
    } else {
        const char *key = stk_arena_dupn(store->arena, digest, STK_DIGEST_HEX);
        entry = stk_arena_alloc(store->arena, sizeof *entry);
        if (key == NULL || entry == NULL ||
            stk_map_put(&store->known, key, (uint64_t)(uintptr_t)entry) != 0) {
            return stk_err_nomem(err);
        }
    }
    *entry = *known;
    return 0;
}

static const stk_store_known *known_of(const stk_store *store, const char *digest)
{
    uint64_t known;
    if (!stk_map_get(&store->known, digest, &known)) {
        return NULL;
    }
    return (const stk_store_known *)(uintptr_t)known;
}

void stk_store_forget(stk_store *store, const char *digest)
{
    uint64_t known;
    if (stk_map_get(&store->known, digest, &known)) {
        *(stk_store_known *)(uintptr_t)known = (stk_store_known){.size = 0};
    }
}

/* The row of a digest, from SQLite's columns. */
typedef struct row {
    bool is_trusted;
    stk_store_known known;
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
        const char *stamp = (const char *)sqlite3_column_text(stmt, 4);
        *ret = (row){.is_trusted = sqlite3_column_int(stmt, 2) != 0,
                     .known = {.size = sqlite3_column_int64(stmt, 0),
                               .is_dir = sqlite3_column_int(stmt, 1) != 0,
                               .is_absent = sqlite3_column_int(stmt, 3) != 0}};
        (void)snprintf(ret->known.stamp, sizeof ret->known.stamp, "%s", stk_text_or(stamp, ""));
    }
    int code = stk_store_sql_check(store, rc, err, "looking for an artifact");
    (void)sqlite3_reset(stmt);
    return code;
}

/* Reads what is known of a digest. is_good is false if it is from an earlier boot and unsynced, or
 * unknown. */
static int recall(stk_store *store, const char *digest, stk_store_known *ret, stk_err *err)
{
    const stk_store_known *known = known_of(store, digest);
    row r = {0};
    bool found = false;
    if (known != NULL && known->is_good) {
        *ret = *known;
        return 0;
    }
    int rc = read_row(store, digest, &r, &found, err);
    *ret = r.known;
    ret->is_good = rc == 0 && found && r.is_trusted && !r.known.is_absent;
    return rc;
}

/* True if the content is still what was stored. Checks a folder by a walk if `by_walk`; else it
 * counts only if it was walked a moment ago. */
static bool is_unchanged(const char *path, const struct stat *st, const stk_store_known *k,
                         bool by_walk)
{
    char stamp[STK_STAMP_TEXT];
    STK_TREE_AUTO tree = {0};
    if (k->is_dir != S_ISDIR(st->st_mode)) {
        return false;
    }
    if (k->is_dir && k->looked_ms > 0 && now_ms() - k->looked_ms < FRESH_MS) {
        return true;
    }
    if (k->is_dir) {
        return by_walk && stk_tree_walk(path, false, &tree, NULL) == 0 &&
               stk_tree_stamp(&tree, stamp, NULL) == 0 && strcmp(stamp, k->stamp) == 0;
    }
    stk_stamp own;
    stk_stamp_of(st, &own);
    stk_stamp_format(&own, stamp);
    return strcmp(stamp, k->stamp) == 0;
}

/* GOOD: known, and has the stamp it was stored with. UNSURE: something is there that must be summed
 * before use. */
static int look_up(stk_store *store, const char *digest, const char *path, bool by_walk, state *ret,
                   stk_store_known *ret_known, stk_err *err)
{
    struct stat st;
    *ret_known = (stk_store_known){.size = 0};
    if (lstat(path, &st) < 0) {
        *ret = ABSENT;
        if (errno != ENOENT && errno != ENOTDIR) {
            return stk_err_sys(err, STK_E_SYS, errno, "can't read artifact '%s'", path);
        }
        return 0;
    }
    int rc = recall(store, digest, ret_known, err);
    bool is_good = rc == 0 && ret_known->is_good && is_unchanged(path, &st, ret_known, by_walk);
    *ret = is_good ? GOOD : UNSURE;
    if (is_good && ret_known->is_dir && by_walk) {
        ret_known->looked_ms = now_ms();
    }
    return rc;
}

static int write_row(stk_store *store, const stk_store_pending *p, stk_err *err)
{
    sqlite3_stmt *stmt = store->stmts[STK_SQL_ART_ADD];
    const stk_store_known *k = &p->known;
    (void)sqlite3_bind_text(stmt, 1, p->digest, STK_DIGEST_HEX, SQLITE_STATIC);
    (void)sqlite3_bind_int64(stmt, 2, k->size);
    (void)sqlite3_bind_int(stmt, 3, k->is_dir);
    const char *boot = k->is_absent ? STK_STORE_ELSEWHERE : store->boot;
    (void)sqlite3_bind_text(stmt, 4, boot, -1, SQLITE_STATIC);
    if (k->stamp[0] != '\0') {
        (void)sqlite3_bind_text(stmt, 5, k->stamp, -1, SQLITE_STATIC);
    } else {
        (void)sqlite3_bind_null(stmt, 5);
    }
    (void)sqlite3_bind_int64(stmt, 6, k->is_absent ? 0 : stk_clock_wall_ms(&stk_clock_real));
    return stk_store_step(store, stmt, err, "recording an artifact");
}

int stk_store_flush_pending(stk_store *store, stk_err *err)
{
    for (size_t i = 0; i < store->n_pending; i++) {
        STK_TRY(write_row(store, &store->pending[i], err));
    }
    return 0;
}

int stk_store_write_pending(stk_store *store, stk_err *err)
{
    if (store->n_pending > 0) {
        STK_TRY(stk_store_begin(store, err));
        STK_TRY(stk_store_end(store, stk_store_flush_pending(store, err), err));
        store->n_pending = 0;
    }
    return 0;
}

static int add_pending(stk_store *store, const char *digest, const stk_store_known *known,
                       stk_err *err)
{
    if (stk_array_reserve(&store->pending, &store->cap_pending, store->n_pending + 1,
                          sizeof *store->pending) < 0) {
        return stk_err_nomem(err);
    }
    stk_store_pending *p = &store->pending[store->n_pending];
    memcpy(p->digest, digest, sizeof p->digest);
    p->known = *known;
    STK_TRY(know(store, digest, known, err));
    store->n_pending++;
    return 0;
}

/* --- taking in --- */

/* Moves an untrusted entry at `path` out of the way, into our stage. */
static int push_aside(stk_store *store, const char *path, stk_err *err)
{
    STK_TEXT_AUTO aside = NULL;
    STK_TRY(stk_store_stage_path(store, &aside, err));
    (void)chmod(path, 0700); /* moving a folder writes its ".." */
    if (rename(path, aside) < 0 && errno != ENOENT) {
        return stk_err_sys(err, STK_E_SYS, errno, "can't replace artifact '%s'", path);
    }
    return stk_file_remove_tree(aside, err);
}

/* Moves `src` to its place by rename, so that it appears there whole or not at all. */
static int move_in(stk_store *store, const char *src, const char *path, bool is_dir, stk_err *err)
{
    const char *name = strrchr(path, '/') + 1;
    char part[3] = {name[-3], name[-2], '\0'}; /* artifacts/ab/cd… */
    STK_FD_AUTO folder = -1;
    for (int tries = 0;; tries++) {
        if (folder < 0) { /* never through a link */
            folder =
                openat(store->artifacts_fd, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        }
        if (folder >= 0 && renameat(AT_FDCWD, src, folder, name) == 0) {
            break;
        }
        int sys = errno;
        if (folder < 0 && sys == ENOENT && tries < 2) {
            if (mkdirat(store->artifacts_fd, part, 0777) != 0 && errno != EEXIST) {
                return stk_err_sys(err, STK_E_SYS, errno, "can't make the folder of '%s'", path);
            }
        } else if (sys == ENOENT && tries < 2) {
            stk_file_close(&folder); /* another process removed it while it was empty */
        } else if ((sys == ENOTEMPTY || sys == EEXIST || sys == EISDIR || sys == ENOTDIR) &&
                   tries < 3) {
            STK_TRY(push_aside(store, path, err));
        } else {
            return stk_err_sys(err, STK_E_SYS, sys, "can't move '%s' to '%s'", src, path);
        }
    }
    if (is_dir && fchmodat(folder, name, 0555, 0) <
                      0) { /* only now, because a read-only folder can't be moved */
        return stk_err_sys(err, STK_E_SYS, errno, "can't make '%s' read-only", path);
    }
    return 0;
}

/* The stamp of a file after a move, which changes the stamp but not the content. */
static int stamp_moved(const char *path, const stk_tree *tree, char ret[STK_STAMP_TEXT],
                       stk_err *err)
{
    struct stat st;
    stk_stamp now;
    const stk_stamp *then = &tree->files[0].stamp;
    if (lstat(path, &st) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "can't read artifact '%s'", path);
    }
    stk_stamp_of(&st, &now);
    if (now.ino != then->ino) { /* another process has just put the same content there */
        ret[0] = '\0';
        return 0;
    }
    stk_stamp_format(&now, ret);
    if (now.size != then->size || now.mtime_ns != then->mtime_ns) {
        return stk_err_set(err, STK_E_STORE,
                           "'%s' was written to while it was being stored; a step's outputs must "
                           "be finished when it ends",
                           tree->root);
    }
    return 0;
}

/* The last part of every add: `tree`, which is ours and on our file system, becomes the artifact
 * `a`. */
static int take_in(stk_store *store, const stk_tree *tree, const stk_artifact *a, const char *path,
                   stk_err *err)
{
    stk_store_known known = {.is_good = true, .size = a->size, .is_dir = a->is_dir};
    int sys = STK_FAILPOINT_ERR("store.add.hashed");
    if (sys != 0) {
        return stk_err_sys(err, STK_E_SYS, sys, "can't add '%s' to the store", tree->root);
    }
    STK_TRY(move_in(store, tree->root, path, a->is_dir, err));
    STK_FAILPOINT("store.add.renamed");
    known.looked_ms = now_ms();
    int rc;
    if (a->is_dir) {
        rc = stk_tree_stamp(tree, known.stamp, err);
    } else {
        rc = stamp_moved(path, tree, known.stamp, err);
    }
    if (rc < 0) {
        (void)push_aside(store, path, NULL);
        return rc;
    }
    return add_pending(store, a->digest, &known, err);
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
    stk_store_known known;
    a->size = tree->size;
    a->is_dir = tree->is_dir;
    *ret_was_there = false;
    STK_TRY(stk_err_if_null(path, err));
    STK_TRY(stk_store_use_begin(store, err));
    STK_TRY(look_up(store, a->digest, path, true, &st, &known, err));
    *ret_was_there = st == GOOD;
    if (*ret_was_there) {
        return know(store, a->digest, &known, err);
    }
    return take_in(store, tree, a, path, err);
}

int stk_store_add_bytes(stk_store *store, const void *data, size_t len, stk_artifact *ret,
                        stk_err *err)
{
    state st = ABSENT;
    stk_store_known known;
    STK_TEXT_AUTO tmp = NULL;
    STK_TREE_AUTO tree = {0};
    stk_tree_digest_bytes(data, len, ret->digest);
    ret->size = (int64_t)len;
    ret->is_dir = false;
    STK_TEXT_AUTO path = stk_store_artifact_path(store, ret->digest);
    STK_TRY(stk_err_if_null(path, err));
    STK_TRY(stk_store_writable(store, err));
    STK_TRY(stk_store_use_begin(store, err));
    STK_TRY(look_up(store, ret->digest, path, true, &st, &known, err));
    if (st == GOOD) {
        return know(store, ret->digest, &known, err);
    }
    STK_TRY(stk_store_stage_path(store, &tmp, err));
    int rc = stk_file_write(tmp, data, len, 0444, err);
    if (rc == 0) {
        rc = stk_tree_walk(tmp, true, &tree, err);
    }
    if (rc == 0) {
        rc = take_in(store, &tree, ret, path, err);
    }
    if (rc != 0) {
        (void)unlink(tmp);
    }
    return rc;
}

/* --- what is damaged --- */

static int forget_row(stk_store *store, const char *digest, stk_err *err)
{
    stk_store_forget(store, digest);
    stk_store_read_end(store);
    sqlite3_stmt *stmt = store->stmts[STK_SQL_ART_DEL];
    (void)sqlite3_bind_text(stmt, 1, digest, -1, SQLITE_STATIC);
    return stk_store_step(store, stmt, err, "forgetting an artifact");
}

/* Moves it to quarantine/DIGEST, or DIGEST.2 … if that exists. */
static int quarantine(stk_store *store, const char *digest, const char *path, char **ret_where,
                      stk_err *err)
{
    enum { MOST = 1000 };
    STK_TEXT_AUTO folder = stk_file_join(store->path, "quarantine");
    STK_TRY(stk_err_if_null(folder, err));
    STK_TRY(stk_file_mkdirs(folder, 0700, err));
    struct stat st;
    bool is_dir = lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
    for (int i = 1; i <= MOST; i++) {
        STK_TEXT_AUTO where = NULL;
        if (asprintf(&where, i == 1 ? "%s/%s" : "%s/%s.%d", folder, digest, i) < 0) {
            where = NULL;
            return stk_err_nomem(err);
        }
        if (is_dir) {
            (void)chmod(path, 0700); /* moving a folder writes its ".." */
        }
        int failed = renameat2(AT_FDCWD, path, AT_FDCWD, where, RENAME_NOREPLACE);
        if (failed < 0 && errno == EINVAL && !stk_file_exists(where)) {
            failed = rename(path, where); /* this file system lacks the flag */
        }
        if (failed == 0 || errno == ENOENT) {
            *ret_where = where;
            where = NULL;
            return 0;
        }
        if (errno != EEXIST && errno != ENOTEMPTY && errno != EINVAL) {
            return stk_err_sys(err, STK_E_SYS, errno, "can't set '%s' aside", path);
        }
    }
    return stk_err_set(err, STK_E_STORE, "'%s' is full; empty it", folder);
}

int stk_store_set_aside(stk_store *store, const char *digest, char **ret_where, stk_err *err)
{
    STK_TEXT_AUTO path = stk_store_artifact_path(store, digest);
    STK_TRY(stk_err_if_null(path, err));
    STK_TRY(stk_store_writable(store, err));
    STK_TRY(quarantine(store, digest, path, ret_where, err));
    return forget_row(store, digest, err);
}

int stk_store_refuse_damaged(stk_store *store, const char *digest, const char *is, stk_err *err)
{
    STK_TEXT_AUTO where = NULL;
    stk_store_known known;
    bool was_known = recall(store, digest, &known, NULL) == 0 && known.is_good;
    bool writable = !(store->flags & STK_STORE_READONLY);
    const char *why =
        was_known ? "was changed after it was stored" : "was damaged by a crash of the machine";
    if (writable && stk_store_set_aside(store, digest, &where, NULL) == 0) {
        stk_err_set(
            err, STK_E_STORE,
            "artifact %.12s %s (the digest of its content is %.12s); it is set aside as '%s'",
            digest, why, is, where);
    } else {
        stk_err_set(err, STK_E_STORE, "artifact %.12s %s (the digest of its content is %.12s)",
                    digest, why, is);
    }
    stk_err_hint(err, "`stoker resume`, or the next run, makes it again");
    return STK_E_STORE;
}

int stk_store_believe(stk_store *store, const char *digest, const stk_tree *tree, stk_err *err)
{
    stk_store_known known = {
        .is_good = true, .size = tree->size, .is_dir = tree->is_dir, .looked_ms = now_ms()};
    STK_TRY(stk_tree_stamp(tree, known.stamp, err));
    if (store->flags & STK_STORE_READONLY) {
        return know(store, digest, &known, err);
    }
    return add_pending(store, digest, &known, err);
}

/* --- finding --- */

/* Sums content that may have changed. If it matches, it counts as good from now on: after a reboot
 * the sum read it from the disk. */
static int sum_again(stk_store *store, const char *digest, stk_store_known *ret_known, stk_err *err)
{
    stk_store_work *work = NULL;
    int rc = stk_store_work_check(store, digest, &work, err);
    if (rc == 0) {
        rc = stk_store_work_run(work, err);
    }
    if (rc == 0) {
        rc = stk_store_work_checked(store, work, err);
    }
    stk_store_work_free(work);
    if (rc == 0) {
        *ret_known = *known_of(store, digest);
    }
    return rc;
}

bool stk_store_needs_sum(stk_store *store, const char *digest)
{
    enum { AT_ONCE_BYTES = 1 << 20 };
    state st = ABSENT;
    stk_store_known known;
    struct stat now;
    STK_TEXT_AUTO path = NULL;
    if (stk_store_is_digest(digest, strlen(digest))) {
        path = stk_store_artifact_path(store, digest);
    }
    return path != NULL && look_up(store, digest, path, false, &st, &known, NULL) == 0 &&
           st == UNSURE && lstat(path, &now) == 0 &&
           (S_ISDIR(now.st_mode) || now.st_size > AT_ONCE_BYTES);
}

void stk_store_look_again(stk_store *store, const char *digest)
{
    uint64_t known;
    if (stk_map_get(&store->known, digest, &known)) {
        ((stk_store_known *)(uintptr_t)known)->looked_ms = 0;
    }
}

bool stk_store_recall(stk_store *store, const char *digest, char ret_stamp[STK_STAMP_TEXT])
{
    stk_store_known known = {.size = 0};
    bool is_good = recall(store, digest, &known, NULL) == 0 && known.is_good;
    memcpy(ret_stamp, known.stamp, STK_STAMP_TEXT);
    return is_good;
}

/* True for a row without bytes, committed or about to be. */
static int is_absent(stk_store *store, const char *digest, bool *ret_absent, int64_t *ret_size,
                     stk_err *err)
{
    const stk_store_known *known = known_of(store, digest);
    row r = {0};
    bool found = false;
    if (known != NULL && known->is_absent) {
        *ret_absent = true;
        *ret_size = known->size;
        return 0;
    }
    int rc = read_row(store, digest, &r, &found, err);
    *ret_absent = rc == 0 && found && r.known.is_absent;
    *ret_size = r.known.size;
    if (*ret_absent &&
        store->has != NULL) { /* noted on another day: ask whether the origin still has it */
        rc = store->has(store->fetch_arg, digest, ret_absent, err);
        *ret_absent = rc == 0 && *ret_absent;
    }
    if (rc == 0 && *ret_absent) {
        return know(store, digest, &r.known, err);
    }
    return rc;
}

/* STK_E_NOT_FOUND: neither the store nor the origin has it. */
static int fetch(stk_store *store, const char *digest, const char *path, state *ret,
                 stk_store_known *ret_known, stk_err *err)
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
    if (rc == 0) {
        rc = look_up(store, digest, path, true, ret, ret_known, err);
    }
    if (rc == STK_E_NOT_FOUND || (rc == 0 && *ret == ABSENT)) {
        return stk_err_set(err, STK_E_NOT_FOUND, "artifact %.12s is not in store '%s'%s", digest,
                           store->path, stk_text_when(store->fetch != NULL, ", nor in its share"));
    }
    return rc;
}

static int find_artifact(stk_store *store, const char *digest, bool bytes, stk_arena *arena,
                         const char **ret_path, int64_t *ret_size, stk_err *err)
{
    state st = ABSENT;
    stk_store_known known;
    bool absent = false;
    if (!stk_store_is_digest(digest, strlen(digest))) {
        return stk_err_set(err, STK_E_USAGE, "'%.80s' isn't a valid digest of an artifact", digest);
    }
    const char *path =
        stk_arena_printf(arena, "%s/artifacts/%.2s/%s", store->path, digest, digest + 2);
    STK_TRY(stk_err_if_null(path, err));
    STK_TRY(look_up(store, digest, path, true, &st, &known, err));
    if (st == ABSENT && !bytes && store->fetch != NULL) {
        STK_TRY(is_absent(store, digest, &absent, &known.size, err));
    }
    if (st == ABSENT && !absent) {
        STK_TRY(fetch(store, digest, path, &st, &known, err));
    }
    if (st == UNSURE) {
        STK_TRY(sum_again(store, digest, &known, err));
    } else if (st == GOOD) {
        STK_TRY(know(store, digest, &known, err));
    }
    *ret_path = path;
    if (ret_size != NULL) {
        *ret_size = known.size;
    }
    return 0;
}

int stk_store_artifact(stk_store *store, const char *digest, stk_arena *arena,
                       const char **ret_path, int64_t *ret_size, stk_err *err)
{
    return find_artifact(store, digest, true, arena, ret_path, ret_size, err);
}

int stk_store_locate(stk_store *store, const char *digest, stk_arena *arena, const char **ret_path,
                     int64_t *ret_size, stk_err *err)
{
    return find_artifact(store, digest, false, arena, ret_path, ret_size, err);
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
    stk_store_known known, absent_one = {.size = size, .is_dir = is_dir, .is_absent = true};
    state st = ABSENT;
    bool absent = false;
    int64_t there_size;
    if (!stk_store_is_digest(digest, strlen(digest)) || size < 0) {
        return stk_err_set(err, STK_E_PROTOCOL, "'%.80s' with %lld bytes isn't a valid artifact",
                           digest, (long long)size);
    }
    STK_TEXT_AUTO path = stk_store_artifact_path(store, digest);
    STK_TRY(stk_err_if_null(path, err));
    STK_TRY(stk_store_writable(store, err));
    STK_TRY(stk_store_use_begin(store, err));
    STK_TRY(look_up(store, digest, path, false, &st, &known, err));
    if (st == ABSENT) {
        STK_TRY(is_absent(store, digest, &absent, &there_size, err));
    }
    if (st != ABSENT || absent) {
        return 0;
    }
    return add_pending(store, digest, &absent_one, err);
}
