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

/* At the top of the folder, and no object. */
static bool is_of_folder(const char *name)
{
    return strcmp(name, ".tmp") == 0 || strcmp(name, ".gitignore") == 0 ||
           strcmp(name, ".stokerignore") == 0;
}

static bool is_missing(int sys)
{
    return sys == ENOENT || sys == ENOTDIR;
}

static int put_in_folder(stk_share *share, const char *key, const void *data, size_t n,
                         bool only_new, stk_err *err)
{
    STK_SHARE_TEMPORARY_AUTO t = {.dir = -1};
    STK_TRY(stk_share_new_temporary(share, &t, err));
    STK_FD_AUTO fd = openat(t.dir, t.name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 || stk_file_write_all(fd, data, n) < 0 || (stk_share_syncs() && fdatasync(fd) < 0)) {
        return stk_share_failed("write", key, err);
    }
    return stk_share_publish(share, &t, key, only_new, stk_share_syncs(), err);
}

static int copy_in(stk_share *share, const char *key, const char *path, const char *digest,
                   stk_err *err)
{
    STK_SHARE_TEMPORARY_AUTO t = {.dir = -1};
    STK_TREE_AUTO tree = {0};
    struct stat st;
    char to[96];
    if (stat(path, &st) < 0) {
        return stk_share_failed("read", path, err);
    }
    if (!S_ISREG(st.st_mode)) {
        return stk_err_set(err, STK_E_USAGE, "'%s' isn't a file", path);
    }
    STK_TRY(stk_tree_walk_until(path, false, &share->cancelled, &tree, err));
    STK_TRY(stk_share_new_temporary(share, &t, err));
    (void)snprintf(to, sizeof to, "/proc/self/fd/%d/%s", t.dir,
                   t.name); /* the folder that is open */
    STK_TRY(stk_tree_copy(&tree, to, err));
    STK_FD_AUTO fd = openat(t.dir, t.name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return stk_share_failed("write", key, err);
    }
    if (digest != NULL && fchmod(fd, st.st_mode & 0111 ? 0555 : 0444) < 0) {
        return stk_share_failed("make read-only", key, err);
    }
    if (digest == NULL && stk_share_syncs() && fdatasync(fd) < 0) {
        return stk_share_failed("sync", key, err);
    }
    return stk_share_publish(share, &t, key, false, digest == NULL && stk_share_syncs(), err);
}

int stk_share_open_read(stk_share *share, const char *key, int *ret_fd, struct stat *ret_st,
                        stk_err *err)
{
    *ret_fd = stk_share_open_object(share, key, ret_st);
    int sys = stk_errno_if(*ret_fd < 0);
    share->seen = share->seen || sys == 0;
    if (is_missing(sys)) {
        return stk_share_absent(share, key, err);
    }
    return stk_share_object_failed(share, key, "read", sys, err);
}

static int get_from_folder(stk_share *share, const char *key, int64_t from, bool whole,
                           stk_buf *ret, stk_err *err)
{
    STK_FD_AUTO fd = -1;
    struct stat st;
    char part[65536];
    STK_TRY(stk_share_open_read(share, key, &fd, &st, err));
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
            return stk_share_failed("read", key, err);
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
    STK_TRY(stk_share_open_read(share, key, &fd, &st, err));
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
    return stk_share_object_failed(share, key, "read", sys, err);
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
    return stk_share_object_failed(share, key, "remove", sys, err);
}

static int sync_all(stk_share *share, stk_err *err)
{
    if (!stk_share_syncs()) {
        return 0;
    }
    STK_FD_AUTO fd = open(share->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || syncfs(fd) < 0 ? stk_share_failed("sync", share->folder, err) : 0;
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
            return stk_share_failed("read", key, l->err);
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
            return stk_share_failed("list", stem, l->err);
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

static int list_folders(stk_share *share, const char *prefix, stk_share_each_folder *each,
                        void *arg, stk_err *err)
{
    listing l = {.share = share, .prefix = prefix, .after = "", .err = err};
    __attribute__((cleanup(names_done))) names list = {0};
    int rc = read_names(&l, prefix, &list);
    if (list.n > 1) {
        qsort(list.at, list.n, sizeof *list.at, by_key);
    }
    for (size_t i = 0; rc == 0 && i < list.n; i++) {
        char *folder = list.at[i].key + strlen(prefix);
        size_t n = strlen(folder);
        if (n > 0 && folder[n - 1] == '/') {
            folder[n - 1] = '\0';
            rc = each(arg, folder);
        }
    }
    return rc;
}

static const stk_share_ops folder_ops = {.put = put_in_folder,
                                         .put_file = copy_in,
                                         .get = get_from_folder,
                                         .get_file = copy_out,
                                         .look = stat_object,
                                         .list = list_folder,
                                         .list_folders = list_folders,
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
