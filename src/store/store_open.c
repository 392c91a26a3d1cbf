/* Finds, opens, closes and describes a store. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/text.h"
#include "store/store_private.h"
#include "sys/clock.h"
#include "sys/faults.h"
#include "sys/file.h"
#include "sys/old.h"
#include "sys/trust.h"

enum { RESERVE_BYTES = 64 << 10 }; /* each */
static const char *const reserve[] = {"reserve/0", "reserve/1", "reserve/2", "reserve/3"};

static const struct {
    unsigned long magic;
    const char *name;
    bool is_network;
} file_systems[] = {
#define X(magic, name, is_network) {magic, name, is_network},
#include "tbl/filesystems.def"
#undef X
};

/* A path that the user gives may be a link; a folder found by searching may not. */
static char *named_folder(const char *path)
{
    struct stat st;
    bool is_link = lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
    char *real = NULL;
    if (is_link) {
        real = realpath(path, NULL);
    }
    return real != NULL ? real : stk_file_absolute(path);
}

static int not_found(const char *folder, const char *beyond, stk_err *err)
{
    STK_TEXT_AUTO root = NULL;
    STK_TRY(stk_project_root(folder, &root, err));
    if (strcmp(root, folder) == 0) {
        stk_err_set(err, STK_E_NOT_FOUND, "no store (.stoker) in '%s'", folder);
    } else {
        stk_err_set(
            err, STK_E_NOT_FOUND,
            "no store (.stoker) in '%s' or in a folder above it, up to the project's folder '%s'",
            folder, root);
    }
    if (beyond != NULL) {
        stk_err_hint(err, "'%s' belongs to another project; to use it, set STOKER_STORE to it",
                     beyond);
    } else {
        stk_err_hint(err, "run a pipeline first, or set STOKER_STORE to an existing store");
    }
    return STK_E_NOT_FOUND;
}

char *stk_store_beyond(const char *cwd)
{
    const char *env = getenv("STOKER_STORE");
    STK_TEXT_AUTO path = NULL;
    char *beyond = NULL;
    if ((env != NULL && env[0] != '\0') ||
        stk_project_find(cwd, ".stoker", &path, &beyond, NULL) < 0) {
        return NULL;
    }
    return beyond;
}

int stk_store_find(const char *cwd, int flags, char **ret_path, stk_err *err)
{
    const char *env = getenv("STOKER_STORE");
    STK_TEXT_AUTO full = stk_file_absolute(cwd);
    char *path = NULL;
    if (full == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, errno, "can't find the store of '%s'", cwd);
    }
    if (env != NULL && env[0] != '\0') {
        if (strstr(env, "://") != NULL) {
            return stk_err_set(err, STK_E_USAGE,
                               "STOKER_STORE is '%s', but a store must be a folder of this "
                               "machine; set it to a path",
                               env);
        }
        STK_TEXT_AUTO joined = stk_file_below(full, env);
        path = joined == NULL ? NULL : named_folder(joined);
    } else {
        STK_TEXT_AUTO beyond = NULL;
        STK_TRY(stk_project_find(full, ".stoker", &path, &beyond, err));
        if (path == NULL && !(flags & STK_STORE_CREATE)) {
            return not_found(full, beyond, err);
        }
        if (path == NULL) {
            path = stk_file_join(full, ".stoker");
        }
    }
    if (path == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "can't find the store of '%s'", cwd);
    }
    *ret_path = path;
    return 0;
}

static const struct {
    const char *name;
    size_t fd; /* offset of its descriptor in the store */
} parts[] = {{"artifacts", offsetof(stk_store, artifacts_fd)},
             {"runs", offsetof(stk_store, runs_fd)},
             {"tmp", offsetof(stk_store, tmp_fd)}};

static int *part_fd(stk_store *store, size_t i)
{
    return (int *)(void *)((char *)store + parts[i].fd);
}

static int not_a_folder(const char *path, int sys, stk_err *err)
{
    if (sys != ELOOP && sys != ENOTDIR) {
        return stk_err_sys(err, STK_E_SYS, sys, "can't open store '%s'", path);
    }
    stk_err_set(err, STK_E_STORE, "store: '%s' is a link or a file, not a folder", path);
    stk_err_hint(err, "set STOKER_STORE to a folder");
    return STK_E_STORE;
}

/* Checks that a part of the store which we are about to use is ours. */
static int check_part(stk_store *store, int fd, const char *name, stk_err *err)
{
    struct stat st;
    bool is_open = fstat(store->dir_fd, &st) < 0 || (st.st_mode & 0077) != 0;
    STK_TEXT_AUTO path = stk_file_join(store->path, name);
    if (path == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "store '%s'", store->path);
    }
    if (is_open && !(store->flags & STK_STORE_OWN)) {
        return stk_trust_fd(fd, path, err);
    }
    return 0;
}

/* Checks the database's files, because SQLite opens them by name. */
static int check_files(stk_store *store, stk_err *err)
{
    static const char *const names[] = {"store.db", "store.db-wal", "store.db-shm",
                                        "store.db-journal", "lock"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct stat st;
        STK_FD_AUTO fd = openat(store->dir_fd, names[i], O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && fstat(fd, &st) == 0 && !S_ISREG(st.st_mode)) {
            return stk_err_set(err, STK_E_STORE, "store: '%s/%s' isn't a regular file", store->path,
                               names[i]);
        }
        if (fd >= 0) {
            STK_TRY(check_part(store, fd, names[i], err));
        }
    }
    return 0;
}

static int open_sections(stk_store *store, stk_err *err)
{
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        int *fd = part_fd(store, i);
        if (!(store->flags & STK_STORE_READONLY) &&
            mkdirat(store->dir_fd, parts[i].name, 0777) < 0 && errno != EEXIST) {
            return stk_err_sys(err, STK_E_SYS, errno, "can't make folder '%s/%s'", store->path,
                               parts[i].name);
        }
        *fd = openat(store->dir_fd, parts[i].name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (*fd < 0 && (errno != ENOENT || !(store->flags & STK_STORE_READONLY))) {
            int sys = errno;
            STK_TEXT_AUTO path = stk_file_join(store->path, parts[i].name);
            return not_a_folder(stk_text_or(path, store->path), sys, err);
        }
        if (*fd >= 0) {
            STK_TRY(check_part(store, *fd, parts[i].name, err));
        }
    }
    STK_TEXT_AUTO ignore = stk_file_join(store->path, ".gitignore");
    if (ignore != NULL && !(store->flags & STK_STORE_READONLY) &&
        faccessat(store->dir_fd, ".gitignore", F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
        return stk_file_write_atomic(ignore, "*\n", 2, 0644,
                                     err); /* keeps git from adding the store */
    }
    return check_files(store, err);
}

/* Makes the store's folder if it doesn't exist (*ret_made). */
static int make_own_folder(stk_store *store, bool *ret_made, stk_err *err)
{
    STK_TEXT_AUTO above = strdup(store->path);
    if (above == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "store '%s'", store->path);
    }
    *strrchr(above, '/') = '\0'; /* has a '/': the path is absolute */
    if (above[0] != '\0') {
        STK_TRY(stk_file_mkdirs(above, 0777, err));
    }
    *ret_made = mkdir(store->path, 0777) == 0;
    if (!*ret_made && errno != EEXIST) {
        return stk_err_sys(err, STK_E_SYS, errno, "can't make folder '%s'", store->path);
    }
    return 0;
}

static int open_folder(stk_store *store, stk_err *err)
{
    bool is_made = false;
    bool writes = !(store->flags & STK_STORE_READONLY);
    if (store->flags & STK_STORE_CREATE && writes) {
        STK_TRY(make_own_folder(store, &is_made, err));
    }
    store->dir_fd = open(store->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (store->dir_fd < 0) {
        int sys = errno;
        if ((sys == EACCES || sys == EPERM) && !(store->flags & STK_STORE_OWN) &&
            stk_trust_path(store->path, err) == STK_E_UNTRUSTED) {
            return STK_E_UNTRUSTED; /* this error is clearer */
        }
        if (sys != ENOENT) {
            return not_a_folder(store->path, sys, err);
        }
        stk_err_sys(err, STK_E_NOT_FOUND, sys, "can't open store '%s'", store->path);
        stk_err_hint(err, "run a pipeline first, or set STOKER_STORE to an existing store");
        return STK_E_NOT_FOUND;
    }
    if (is_made) {
        stk_trust_make_own(store->dir_fd);
    }
    if (!(store->flags & STK_STORE_OWN)) {
        STK_TRY(stk_trust_fd(store->dir_fd, store->path, err));
    }
    struct statfs fs;
    bool is_network = false;
    (void)snprintf(store->fs, sizeof store->fs, "unknown");
    if (fstatfs(store->dir_fd, &fs) == 0) {
        unsigned long magic = (unsigned long)fs.f_type & 0xFFFFFFFFul;
        (void)snprintf(store->fs, sizeof store->fs, "type 0x%lx", magic);
        for (size_t i = 0; i < sizeof file_systems / sizeof file_systems[0]; i++) {
            if (file_systems[i].magic == magic) {
                (void)snprintf(store->fs, sizeof store->fs, "%s", file_systems[i].name);
                is_network = file_systems[i].is_network;
            }
        }
    }
    const char *forced =
        getenv("STOKER_JOURNAL"); /* wal | delete: override for file systems that we don't know */
    const char *journal = is_network ? "delete" : "wal";
    if (forced != NULL && (strcmp(forced, "wal") == 0 || strcmp(forced, "delete") == 0)) {
        journal = forced;
    }
    (void)snprintf(store->journal, sizeof store->journal, "%s", journal);
    return 0;
}

/* Files that hold blocks and inodes back: on a full file system, a caller that removes runs gives
 * them up, which makes room for the record of the removal. The store works without them, too. */
static void make_reserve(const stk_store *store)
{
    bool is_new = mkdirat(store->dir_fd, "reserve", 0700) == 0;
    for (size_t i = 0; is_new && i < sizeof reserve / sizeof *reserve; i++) {
        STK_FD_AUTO fd =
            openat(store->dir_fd, reserve[i], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 || fallocate(fd, 0, 0, RESERVE_BYTES) < 0) {
            return;
        }
    }
}

static void give_up_reserve(const stk_store *store)
{
    for (size_t i = 0; i < sizeof reserve / sizeof *reserve; i++) {
        (void)unlinkat(store->dir_fd, reserve[i], 0);
    }
    (void)unlinkat(store->dir_fd, "reserve", AT_REMOVEDIR);
}

/* Only a caller that creates stores creates the database. One that reads or cleans up leaves a
 * folder without a database as it is: an engine may be about to create it, or was killed before it
 * could. */
static int find_database(stk_store *store, stk_err *err)
{
    bool is_there =
        faccessat(store->dir_fd, "store.db", F_OK, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT;
    if (is_there || (store->flags & (STK_STORE_CREATE | STK_STORE_READONLY)) == STK_STORE_CREATE ||
        stk_store_has_runs(store)) {
        return 0;
    }
    stk_err_set(err, STK_E_NOT_FOUND, "store '%s' has no runs: its store.db isn't there",
                store->path);
    stk_err_hint(err, "run a pipeline first, or set STOKER_STORE to an existing store");
    return STK_E_NOT_FOUND;
}

static int open_lock(stk_store *store, stk_err *err)
{
    store->lock_fd = openat(store->dir_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    int sys = store->lock_fd < 0 ? errno : stk_store_lock(store->lock_fd, F_WRLCK, 1, 1, true);
    if (sys == 0) {
        return 0;
    }
    return stk_err_sys(err, STK_E_STORE, sys, "store '%s' can't be written: '%s/lock'", store->path,
                       store->path);
}

static int open_all(stk_store *store, stk_err *err)
{
    STK_TRY(open_folder(store, err));
    STK_TRY(find_database(store, err));
    STK_TRY(open_sections(store, err));
    if (store->flags & STK_STORE_FREES) {
        give_up_reserve(store);
        store->is_reserve_given_up = true;
    }
    if (!(store->flags & STK_STORE_READONLY)) {
        STK_TRY(open_lock(store, err));
    }
    STK_TRY(stk_store_sql_open(store, err));
    if ((store->flags & (STK_STORE_CREATE | STK_STORE_OWN)) == STK_STORE_CREATE) {
        make_reserve(store);
    }
    return 0;
}

int stk_store_open(const char *path, int flags, stk_store **ret_store, stk_err *err)
{
    stk_store *store = calloc(1, sizeof *store);
    if (store == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "store '%s'", path);
    }
    store->flags = flags;
    store->dir_fd = store->lock_fd = store->stage_fd = -1;
    store->artifacts_fd = store->runs_fd = store->tmp_fd = -1;
    store->path = stk_file_absolute(path);
    store->arena = stk_arena_new(0);
    (void)snprintf(store->boot, sizeof store->boot, "%s", stk_clock_boot_id());
    int rc;
    if (store->path == NULL || store->arena == NULL) {
        rc = stk_err_sys(err, STK_E_NOMEM, ENOMEM, "store '%s'", path);
    } else {
        rc = open_all(store, err);
    }
    if (store->lock_fd >= 0) {
        (void)stk_store_lock(store->lock_fd, F_UNLCK, 1, 1, false);
    }
    if (rc != 0) {
        stk_store_close(store);
        if (err != NULL && err->hint[0] == '\0' && (err->sys == EROFS || err->sys == EACCES)) {
            stk_err_hint(err, "make it writable, or use another store with STOKER_STORE");
        }
        return rc;
    }
    *ret_store = store;
    return 0;
}

void stk_store_close(stk_store *store)
{
    if (store == NULL) {
        return;
    }
    if (store->n_pending > 0 && stk_store_begin(store, NULL) == 0) {
        /* Rows that fail here: their files are adopted when they are met, or collected by gc. */
        (void)stk_store_end(store, stk_store_flush_pending(store, NULL), NULL);
    }
    stk_store_drop_unborn(store);
    stk_store_stage_close(store);
    stk_store_use_end(store);
    stk_store_sql_close(store);
    if (store->is_reserve_given_up) {
        make_reserve(store);
    }
    stk_file_close(&store->lock_fd);
    stk_file_close(&store->tmp_fd);
    stk_file_close(&store->runs_fd);
    stk_file_close(&store->artifacts_fd);
    stk_file_close(&store->dir_fd);
    stk_map_done(&store->known);
    stk_arena_free(store->arena);
    free(store->pending);
    free(store->path);
    free(store);
}

const char *stk_store_path(const stk_store *store)
{
    return store->path;
}

int stk_store_writable(const stk_store *store, stk_err *err)
{
    if (store->flags & STK_STORE_READONLY) {
        return stk_err_set(err, STK_E_STORE, "store '%s' is open for reading only", store->path);
    }
    return 0;
}

static bool sync_is_off(void)
{
    const char *env = getenv("STOKER_SYNC");
    return env != NULL && strcmp(env, "0") == 0;
}

const char *stk_store_describe(stk_store *store, stk_arena *arena)
{
    const char *journal = "rollback journal (safe on network file systems, slower)";
    if (strcmp(store->journal, "wal") == 0) {
        journal = "write-ahead log";
    }
    const char *synced = sync_is_off() ? "never (STOKER_SYNC=0)" : "at the end of a run";
    const char *text = stk_arena_printf(
        arena, "%s: format %d, SQLite %s with a %s on %s; artifacts are synced %s", store->path,
        STK_STORE_FORMAT, sqlite3_libversion(), journal, store->fs, synced);
    return stk_text_or(text, "");
}

static int mark_synced(stk_store *store, const char *const *digests, size_t n, stk_err *err)
{
    sqlite3_stmt *stmt = store->stmts[STK_SQL_ART_SYNCED];
    if (n == 0) {
        return 0;
    }
    STK_TRY(stk_store_begin(store, err));
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        (void)sqlite3_bind_text(stmt, 1, digests[i], -1, SQLITE_STATIC);
        rc = stk_store_step(store, stmt, err, "marking artifacts as synced");
    }
    return stk_store_end(store, rc, err);
}

/* Lists the digests of this boot's unsynced rows. Only they may be marked, because other processes
 * may add more during the sync. */
static int list_unsynced(stk_store *store, stk_arena *arena, const char ***ret, uint32_t *ret_n,
                         stk_err *err)
{
    uint32_t cap = 0;
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(
        store->db, "SELECT digest FROM artifacts WHERE synced = 0 AND boot = ?1", -1, &stmt, NULL);
    (void)sqlite3_bind_text(stmt, 1, store->boot, -1, SQLITE_STATIC);
    while (rc == SQLITE_OK || rc == SQLITE_ROW) {
        rc = sqlite3_step(stmt);
        if (rc != SQLITE_ROW) {
            break;
        }
        const char *digest = stk_store_column(stmt, 0, arena);
        const char **more = stk_arena_grow(arena, *ret, *ret_n, sizeof *more, &cap);
        if (digest == NULL || more == NULL) {
            rc = SQLITE_NOMEM;
            break;
        }
        more[(*ret_n)++] = digest;
        *ret = more;
    }
    int code = stk_store_sql_check(store, rc, err, "listing artifacts");
    (void)sqlite3_finalize(stmt);
    return code;
}

/* syncfs can't be interrupted, so a child process calls it; on a stop we leave the child waiting
 * there. */
static int sync_files(const stk_store *store, int stop_fd, bool *ret_done, stk_err *err)
{
    int status = 0;
    pid_t pid = -1;
    if (stop_fd >= 0) {
        pid = fork();
    }
    if (pid == 0) { /* the child must not hold our locks and pipes */
        unsigned fd = (unsigned)store->dir_fd;
        stk_sys_close_range(fd + 1, ~0u, false);
        if (fd > 0) {
            stk_sys_close_range(0, fd - 1, false);
        }
        _exit(syncfs(store->dir_fd) < 0 ? errno & 0xff : 0);
    }
    STK_FD_AUTO end = -1;
    if (pid >= 0) {
        end = stk_sys_pidfd(pid);
    }
    struct pollfd fds[2] = {{.fd = end, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
    int sys = 0;
    if (pid < 0) {
        sys = syncfs(store->dir_fd) < 0 ? errno : 0;
    } else {
        while (end >= 0 && fds[0].revents == 0 && fds[1].revents == 0) {
            (void)poll(fds, 2, -1);
        }
        *ret_done = end < 0 || fds[0].revents != 0;
        if (!*ret_done) {
            return 0;
        }
        (void)waitpid(pid, &status, 0);
        sys = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
    }
    *ret_done = true;
    if (sys != 0) {
        return stk_err_sys(err, STK_E_SYS, sys, "store '%s' can't be synced", store->path);
    }
    return 0;
}

int stk_store_sync(stk_store *store, stk_err *err)
{
    return stk_store_sync_until(store, -1, err);
}

int stk_store_sync_until(stk_store *store, int stop_fd, stk_err *err)
{
    if (sync_is_off() || (store->flags & STK_STORE_READONLY)) {
        return 0;
    }
    const char **digests = NULL;
    uint32_t n = 0;
    bool is_done = false;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    if (arena == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "store '%s'", store->path);
    }
    STK_TRY(stk_store_write_pending(store, err));
    STK_TRY(list_unsynced(store, arena, &digests, &n, err));
    STK_TRY(sync_files(store, stop_fd, &is_done, err));
    if (!is_done) {
        return 0;
    }
    STK_FAILPOINT("store.sync.mid");
    return mark_synced(store, digests, n, err);
}
