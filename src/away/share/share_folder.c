/* A folder that several machines share. Everything appears by rename or link, which even NFS does
 * at once, so that nobody needs a lock. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "away/share/share_private.h"
#include "base/text.h"
#include "store/store_digest.h"
#include "sys/dir.h"
#include "sys/faults.h"
#include "sys/file.h"

enum { LEFTOVER_S = 7 * 86400 };

/* At the top of the folder, and no object. */
static bool is_of_folder(const char *name)
{
    return strcmp(name, ".tmp") == 0 || strcmp(name, ".gitignore") == 0 ||
           strcmp(name, ".stokerignore") == 0;
}

static bool syncs(void)
{
    const char *sync = getenv("STOKER_SYNC");
    return sync == NULL || strcmp(sync, "0") != 0;
}

static int set_failed(const char *what, const char *path, stk_err *err)
{
    int sys = errno;
    return stk_err_sys(err, sys == ENOENT ? STK_E_NOT_FOUND : STK_E_SYS, sys, "can't %s '%s'", what,
                       path);
}

static bool is_missing(int sys)
{
    return sys == ENOENT || sys == ENOTDIR;
}

/* The error of an object, by its errno; 0: none. */
static int object_failed(const stk_share *share, const char *key, const char *what, int sys,
                         stk_err *err)
{
    if (sys == 0) {
        return 0;
    }
    if (sys == EEXIST) {
        return stk_share_taken(share, key, err);
    }
    if (sys == ELOOP) {
        return stk_share_behind_link(share, key, err);
    }
    return stk_err_sys(err, STK_E_SYS, sys, "can't %s '%s/%s'", what, share->folder, key);
}

/* An empty folder in the place of one that we have seen something in: what was mounted there isn't
 * any more, and what we would write into it nobody would find. */
static int check_mounted(const stk_share *share, stk_err *err)
{
    STK_DIR_AUTO dir = {0};
    bool is_empty = share->seen && stk_dir_read_if(share->folder, &dir, NULL) == 0 && dir.n == 0;
    if (is_empty) {
        return stk_err_set(err, STK_E_ENV, "store '%s' is empty now; is it mounted?", share->url);
    }
    return 0;
}

/* What a writer that died has left: nobody writes for a week. */
static void remove_leftovers(stk_share *share, int tmp)
{
    STK_DIR_AUTO dir = {0};
    int rc = stk_dir_read_fd(tmp, share->folder, &dir, NULL);
    for (uint32_t i = 0; rc == 0 && i < dir.n; i++) {
        const char *name = dir.items[i].name;
        struct stat st;
        if (name[0] != '.' && fstatat(dir.fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            st.st_mtime < time(NULL) - LEFTOVER_S) {
            (void)unlinkat(dir.fd, name, 0);
        }
    }
}

/* In a project's folder it is no code: neither git nor a code package is to have it. */
static void keep_out(stk_share *share)
{
    static const char *const names[] = {".gitignore", ".stokerignore"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        STK_TEXT_AUTO path = stk_file_join(share->folder, names[i]);
        if (path != NULL && !stk_file_exists(path)) {
            (void)stk_file_write(path, "*\n", 2, 0644, NULL);
        }
    }
}

/* Something that is being written, on the store's own file system: a name that nobody else has. */
typedef struct temporary {
    int dir;
    char name[40];
} temporary;

static void temporary_done(temporary *t)
{
    if (t->dir >= 0 && t->name[0] != '\0') {
        (void)unlinkat(t->dir, t->name, 0);
    }
    stk_file_close(&t->dir);
}
#define TEMPORARY_AUTO __attribute__((cleanup(temporary_done))) temporary

/* -1 with errno: ELOOP where it is no folder, though the share is one. */
static int open_tmp(const stk_share *share)
{
    STK_FD_AUTO root = open(share->folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) {
        return -1;
    }
    int fd = openat(root, ".tmp", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOTDIR) {
        errno = ELOOP;
    }
    return fd;
}

static int make_tmp(stk_share *share, int *ret_dir, stk_err *err)
{
    STK_TEXT_AUTO tmp = stk_file_join(share->folder, ".tmp");
    if (tmp == NULL) {
        return stk_share_no_memory(share, err);
    }
    STK_TRY(check_mounted(share, err));
    STK_TRY(stk_file_mkdirs(tmp, 0777, err));
    *ret_dir = open_tmp(share);
    if (*ret_dir >= 0) {
        return 0;
    }
    return set_failed("open", tmp, err);
}

static int new_temporary(stk_share *share, temporary *ret, stk_err *err)
{
    uint64_t random[2] = {0};
    ret->dir = open_tmp(share);
    if (ret->dir < 0 && errno == ENOENT) {
        STK_TRY(make_tmp(share, &ret->dir, err));
    } else if (ret->dir < 0 && errno == ELOOP) {
        return stk_share_behind_link(share, ".tmp", err);
    } else if (ret->dir < 0) {
        return set_failed("open the folder for temporary files in", share->folder, err);
    }
    if (!share->swept) {
        share->swept = share->seen = true;
        keep_out(share);
        remove_leftovers(share, ret->dir);
    }
    (void)!getrandom(random, sizeof random, 0);
    (void)snprintf(ret->name, sizeof ret->name, "%016llx%016llx", (unsigned long long)random[0],
                   (unsigned long long)random[1]);
    return 0;
}

/* What was written gets the name `to` in folder `at`, which must not be there yet. 0 or errno. */
static int link_new(const temporary *t, int at, const char *to)
{
    struct stat st;
    if (linkat(t->dir, t->name, at, to, 0) == 0) {
        return 0;
    }
    int sys = errno;
    if (sys == EEXIST && fstatat(t->dir, t->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        st.st_nlink == 2) {
        return 0; /* NFS: it was our own, the answer got lost and the question was repeated */
    }
    if (sys == EPERM || sys == EOPNOTSUPP || sys == ENOSYS || sys == EMLINK) { /* no hard links */
        return renameat2(t->dir, t->name, at, to, RENAME_NOREPLACE) == 0 ? 0 : errno;
    }
    return sys;
}

static int sync_folder(int at)
{
    STK_FD_AUTO fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    return fsync(fd);
}

/* Gives what was written its name. */
static int publish(stk_share *share, const temporary *t, const char *key, bool only_new, bool sync,
                   stk_err *err)
{
    const char *last;
    STK_FD_AUTO at = stk_share_parent(share, key, true, &last);
    int sys = 0;
    if (at < 0) {
        sys = errno;
    } else if (only_new) {
        sys = link_new(t, at, last);
    } else if (renameat(t->dir, t->name, at, last) < 0) {
        sys = errno;
    }
    if (sys == 0 && sync && sync_folder(at) < 0) {
        return set_failed("sync the folder of", key, err);
    }
    return object_failed(share, key, "write", sys, err);
}

static int put_in_folder(stk_share *share, const char *key, const void *data, size_t n,
                         bool only_new, stk_err *err)
{
    TEMPORARY_AUTO t = {.dir = -1};
    STK_TRY(new_temporary(share, &t, err));
    STK_FD_AUTO fd = openat(t.dir, t.name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 || stk_file_write_all(fd, data, n) < 0 || (syncs() && fdatasync(fd) < 0)) {
        return set_failed("write", key, err);
    }
    return publish(share, &t, key, only_new, syncs(), err);
}

static int copy_in(stk_share *share, const char *key, const char *path, const char *digest,
                   stk_err *err)
{
    TEMPORARY_AUTO t = {.dir = -1};
    STK_TREE_AUTO tree = {0};
    struct stat st;
    char to[96];
    if (stat(path, &st) < 0) {
        return set_failed("read", path, err);
    }
    if (!S_ISREG(st.st_mode)) {
        return stk_err_set(err, STK_E_USAGE, "'%s' isn't a file", path);
    }
    STK_TRY(stk_tree_walk_until(path, false, &share->cancelled, &tree, err));
    STK_TRY(new_temporary(share, &t, err));
    (void)snprintf(to, sizeof to, "/proc/self/fd/%d/%s", t.dir,
                   t.name); /* the folder that is open */
    STK_TRY(stk_tree_copy(&tree, to, err));
    STK_FD_AUTO fd = openat(t.dir, t.name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return set_failed("write", key, err);
    }
    if (digest != NULL && fchmod(fd, st.st_mode & 0111 ? 0555 : 0444) < 0) {
        return set_failed("make read-only", key, err);
    }
    if (digest == NULL && syncs() && fdatasync(fd) < 0) {
        return set_failed("sync", key, err);
    }
    return publish(share, &t, key, false, digest == NULL && syncs(), err);
}

static int open_object(stk_share *share, const char *key, int *ret_fd, struct stat *ret_st,
                       stk_err *err)
{
    *ret_fd = stk_share_open_object(share, key, ret_st);
    int sys = stk_errno_if(*ret_fd < 0);
    share->seen = share->seen || sys == 0;
    if (is_missing(sys)) {
        return stk_share_absent(share, key, err);
    }
    return object_failed(share, key, "read", sys, err);
}

static int get_from_folder(stk_share *share, const char *key, int64_t from, bool whole,
                           stk_buf *ret, stk_err *err)
{
    STK_FD_AUTO fd = -1;
    struct stat st;
    char part[65536];
    STK_TRY(open_object(share, key, &fd, &st, err));
    size_t room = ret->max - ret->len;
    if (whole && st.st_size > (int64_t)room) {
        return stk_err_set(err, STK_E_LIMIT, "'%s' in store '%s' has more than %zu bytes", key,
                           share->url, room);
    }
    while (room > 0) {
        ssize_t n = pread(fd, part, MIN(room, sizeof part), from);
        if (n == 0) {
            break;
        }
        if (n < 0 && errno != EINTR) {
            return set_failed("read", key, err);
        }
        if (n > 0 && stk_buf_add(ret, part, (size_t)n) < 0) {
            return stk_share_no_memory(share, err);
        }
        from += MAX(n, 0);
        room -= (size_t)MAX(n, 0);
    }
    return 0;
}

static int copy_out(stk_share *share, const char *key, const char *path, const char *digest,
                    int64_t size, stk_err *err)
{
    (void)size;
    STK_FD_AUTO fd = -1;
    struct stat st;
    STK_TRY(open_object(share, key, &fd, &st, err));
    STK_FD_AUTO to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    /* Of the open file: whoever replaces it meanwhile makes another one. */
    int sys = to < 0 ? errno : stk_tree_copy_data(fd, to, st.st_size, &share->cancelled);
    if (sys == ECANCELED) {
        return stk_share_cancelled(share, err);
    }
    if (sys != 0) {
        return stk_err_sys(err, STK_E_SYS, sys, "can't write '%s'", path);
    }
    if (digest == NULL) {
        return 0;
    }
    return stk_share_verify(share, path, key, digest, err);
}

static int stat_object(stk_share *share, const char *key, int64_t *ret_size, stk_err *err)
{
    struct stat st;
    const char *last;
    STK_FD_AUTO at = stk_share_parent(share, key, false, &last);
    int sys = at >= 0 && fstatat(at, last, &st, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : errno;
    if (sys == 0 && S_ISLNK(st.st_mode)) {
        sys = ELOOP;
    }
    if (sys == 0 && S_ISREG(st.st_mode)) {
        *ret_size = st.st_size;
        return 0;
    }
    if (sys == 0 || is_missing(sys)) {
        return stk_share_absent(share, key, err);
    }
    return object_failed(share, key, "read", sys, err);
}

/* A link itself goes, whatever it names. */
static int remove_object(stk_share *share, const char *key, stk_err *err)
{
    const char *last;
    STK_FD_AUTO at = stk_share_parent(share, key, false, &last);
    int sys = at >= 0 && unlinkat(at, last, 0) == 0 ? 0 : errno;
    if (is_missing(sys) || sys == EISDIR) {
        return 0;
    }
    return object_failed(share, key, "remove", sys, err);
}

static int sync_all(stk_share *share, stk_err *err)
{
    if (!syncs()) {
        return 0;
    }
    STK_FD_AUTO fd = open(share->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || syncfs(fd) < 0 ? set_failed("sync", share->folder, err) : 0;
}

/* --- listing --- */

typedef struct listing {
    stk_share *share;
    const char *prefix;
    const char *after;
    stk_share_each *each;
    void *arg;
    stk_err *err;
} listing;

/* A folder's names, folders with a '/' behind: keys' order, since '/' is part of them. */
typedef struct name {
    char *key;
    int64_t size, mtime_ms;
} name;

typedef struct names {
    name *at;
    uint32_t n, cap;
} names;

static void names_done(names *list)
{
    for (size_t i = 0; i < list->n; i++) {
        free(list->at[i].key);
    }
    free(list->at);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const name *)a)->key, ((const name *)b)->key);
}

static bool begins_with(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Can a key that begins with `stem` be one that is asked for? */
static bool matters(const listing *l, const char *stem)
{
    bool fits = begins_with(stem, l->prefix) || begins_with(l->prefix, stem);
    return fits && (strcmp(stem, l->after) > 0 || begins_with(l->after, stem));
}

static bool is_asked_for(const listing *l, const char *key, bool is_dir)
{
    return is_dir ? matters(l, key) : strcmp(key, l->after) > 0 && begins_with(key, l->prefix);
}

/* Links aren't followed: they may lead round and round, or out. */
static int add_names(const listing *l, const stk_dir *dir, const char *stem, names *list)
{
    for (uint32_t i = 0; i < dir->n; i++) {
        const char *last = dir->items[i].name;
        struct stat st = {0};
        STK_TEXT_AUTO key = NULL;
        if (stem[0] == '\0' && is_of_folder(last)) {
            continue;
        }
        bool is_dir = stk_dir_is_folder(dir, &dir->items[i]);
        if (asprintf(&key, "%s%s%s", stem, last, stk_text_when(is_dir, "/")) < 0) {
            key = NULL;
            return stk_share_no_memory(l->share, l->err);
        }
        if (!is_asked_for(l, key, is_dir)) {
            continue;
        }
        if (!is_dir && fstatat(dir->fd, last, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno != ENOENT) {
            return set_failed("read", key, l->err);
        }
        if (!is_dir && !S_ISREG(st.st_mode)) {
            continue; /* or just removed */
        }
        if (stk_array_reserve(&list->at, &list->cap, (uint64_t)list->n + 1, sizeof *list->at) < 0) {
            return stk_share_no_memory(l->share, l->err);
        }
        list->at[list->n++] =
            (name){.key = key,
                   .size = st.st_size,
                   .mtime_ms = (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000};
        key = NULL;
    }
    return 0;
}

/* The folder's names, and nothing of it stays open: a deep tree takes no descriptor a level. */
static int read_names(const listing *l, const char *stem, names *list)
{
    const char *last;
    STK_DIR_AUTO dir = {0};
    STK_FD_AUTO at = stk_share_parent(l->share, stem, false, &last);
    STK_FD_AUTO fd = at < 0 ? -1 : openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) { /* gone, or replaced by a link */
        if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP) {
            return set_failed("list", stem, l->err);
        }
        return 0;
    }
    STK_TRY(stk_dir_read_fd(fd, *stem != '\0' ? stem : l->share->folder, &dir, l->err));
    return add_names(l, &dir, stem, list);
}

/* `stem` is "" or ends in '/'. */
static int list_below(const listing *l, const char *stem, int depth)
{
    __attribute__((cleanup(names_done))) names list = {0};
    int rc = read_names(l, stem, &list);
    if (list.n > 1) {
        qsort(list.at, list.n, sizeof *list.at, by_key);
    }
    for (size_t i = 0; rc == 0 && i < list.n; i++) {
        const name *one = &list.at[i];
        if (one->key[strlen(one->key) - 1] != '/') {
            rc = l->each(l->arg, one->key, one->size, one->mtime_ms);
        } else if (depth < STK_SHARE_KEY_MAX / 2) {
            rc = list_below(l, one->key, depth + 1);
        }
    }
    return rc;
}

static int list_folder(stk_share *share, const char *prefix, const char *after,
                       stk_share_each *each, void *arg, stk_err *err)
{
    listing l = {
        .share = share, .prefix = prefix, .after = after, .each = each, .arg = arg, .err = err};
    return list_below(&l, "", 0);
}

static const stk_share_ops folder_ops = {.put = put_in_folder,
                                         .put_file = copy_in,
                                         .get = get_from_folder,
                                         .get_file = copy_out,
                                         .look = stat_object,
                                         .list = list_folder,
                                         .remove = remove_object,
                                         .sync = sync_all};

int stk_share_open_folder(const char *path, stk_share *share, stk_err *err)
{
    share->folder = stk_file_absolute(path);
    share->ops = &folder_ops;
    if (share->folder == NULL) {
        return stk_share_no_memory(share, err);
    }
    return 0;
}
