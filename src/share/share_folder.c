/* A folder that several machines share. Everything appears by rename or link, which even NFS does
 * at once, so that nobody needs a lock. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "share/share_private.h"
#include "store/store_digest.h"
#include "sys/dir.h"
#include "sys/file.h"

enum { LEFTOVER_S = 7 * 86400 };

/* At the top of the folder, and no object. */
static bool is_ours(const char *name)
{
    return strcmp(name, ".tmp") == 0 || strcmp(name, ".gitignore") == 0 ||
           strcmp(name, ".stokerignore") == 0;
}

static bool syncs(void)
{
    const char *sync = getenv("STOKER_SYNC");
    return sync == NULL || strcmp(sync, "0") != 0;
}

static int failed(const char *what, const char *path, stk_err *err)
{
    int sys = errno;
    return stk_err_sys(err, sys == ENOENT ? STK_E_NOT_FOUND : STK_E_SYS, sys, "can't %s '%s'", what,
                       path);
}

/* What a link in it names is nobody's object: a file that only we can read, a folder that isn't for
 * anybody's words. Kernels before 5.6 can't say. */
int stk_share_check_inside(const stk_share *share, const char *key, stk_err *err)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_BENEATH};
    STK_FD_AUTO root = open(share->folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    STK_FD_AUTO fd = root < 0 ? -1 : (int)syscall(SYS_openat2, root, key, &how, sizeof how);
    return root < 0 || fd >= 0 || errno != EXDEV
               ? 0
               : stk_err_set(err, STK_E_STORE, "'%s' in store '%s' is behind a link out of it", key,
                             share->url);
}

/* An empty folder in the place of one that we have seen something in: what was mounted there isn't
 * any more, and what we would write into it nobody would find. */
static int check_mounted(const stk_share *share, stk_err *err)
{
    STK_DIR_AUTO dir = {0};
    bool is_empty = share->seen && stk_dir_read_if(share->folder, &dir, NULL) == 0 && dir.n == 0;
    return is_empty
               ? stk_err_set(err, STK_E_ENV, "store '%s' is empty now; is it mounted?", share->url)
               : 0;
}

/* What a writer that died has left: nobody writes for a week. */
static void sweep(stk_share *share)
{
    STK_TEXT_AUTO tmp = stk_file_join(share->folder, ".tmp");
    STK_DIR_AUTO dir = {0};
    int rc = tmp == NULL ? STK_E_NOMEM : stk_dir_read(tmp, &dir, NULL);
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

/* A name that nobody else has, on the store's own file system. malloc'd. */
static int temporary(stk_share *share, char **ret, stk_err *err)
{
    uint64_t random[2] = {0};
    STK_TEXT_AUTO tmp = stk_file_join(share->folder, ".tmp");
    int rc = tmp == NULL ? stk_share_no_memory(share, err) : 0;
    if (rc == 0 && !stk_file_exists(tmp)) {
        rc = check_mounted(share, err);
        rc = rc < 0 ? rc : stk_file_mkdirs(tmp, 0777, err);
    }
    if (rc == 0 && !share->swept) {
        share->swept = share->seen = true;
        keep_out(share);
        sweep(share);
    }
    (void)!getrandom(random, sizeof random, 0);
    if (rc == 0 && asprintf(ret, "%s/%016llx%016llx", tmp, (unsigned long long)random[0],
                            (unsigned long long)random[1]) < 0) {
        *ret = NULL;
        rc = stk_share_no_memory(share, err);
    }
    return rc;
}

static int sync_parent(const char *path)
{
    STK_TEXT_AUTO folder = strdup(path);
    if (folder == NULL) {
        return -1;
    }
    *strrchr(folder, '/') = '\0';
    STK_FD_AUTO fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -1 : fsync(fd);
}

/* `from` gets the name `to`, which must not be there yet. 0 or errno. */
static int link_new(const char *from, const char *to)
{
    struct stat st;
    if (link(from, to) == 0) {
        return 0;
    }
    int sys = errno;
    if (sys == EEXIST && stat(from, &st) == 0 && st.st_nlink == 2) {
        return 0; /* NFS: it was our own, the answer got lost and the question was repeated */
    }
    if (sys == EPERM || sys == EOPNOTSUPP || sys == ENOSYS || sys == EMLINK) { /* no hard links */
        return renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0 ? 0 : errno;
    }
    return sys;
}

static int give_name(const char *tmp, const char *path, bool only_new)
{
    return only_new ? link_new(tmp, path) : rename(tmp, path) == 0 ? 0 : errno;
}

/* Gives what was written its name; `tmp` is gone in any case. */
static int publish(stk_share *share, const char *tmp, const char *key, bool only_new, bool sync,
                   stk_err *err)
{
    STK_TEXT_AUTO path = stk_file_join(share->folder, key);
    STK_TEXT_AUTO folder = path == NULL ? NULL : strdup(path);
    int rc =
        folder == NULL ? stk_share_no_memory(share, err) : stk_share_check_inside(share, key, err);
    int sys = rc < 0 ? 0 : give_name(tmp, path, only_new);
    if (sys == ENOENT && stk_file_exists(tmp)) { /* else it was unmounted just now */
        *strrchr(folder, '/') = '\0';
        rc = stk_file_mkdirs(folder, 0777, err);
        sys = rc < 0 ? 0 : give_name(tmp, path, only_new);
    }
    if (rc == 0) {
        rc = sys == 0        ? 0
             : sys == EEXIST ? stk_share_taken(share, key, err)
                             : stk_err_sys(err, STK_E_SYS, sys, "can't write '%s'", path);
    }
    if (rc == 0 && sync && sync_parent(path) < 0) {
        rc = failed("sync the folder of", path, err);
    }
    (void)unlink(tmp);
    return rc;
}

static int put(stk_share *share, const char *key, const void *data, size_t n, bool only_new,
               stk_err *err)
{
    STK_TEXT_AUTO tmp = NULL;
    int rc = temporary(share, &tmp, err);
    if (rc < 0) {
        return rc;
    }
    STK_FD_AUTO fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 || stk_file_write_all(fd, data, n) < 0 || (syncs() && fdatasync(fd) < 0)) {
        rc = failed("write", tmp, err);
        (void)unlink(tmp);
        return rc;
    }
    return publish(share, tmp, key, only_new, syncs(), err);
}

static int sync_file(const char *path, stk_err *err)
{
    STK_FD_AUTO fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 || fdatasync(fd) < 0 ? failed("sync", path, err) : 0;
}

static int put_file(stk_share *share, const char *key, const char *path, const char *digest,
                    stk_err *err)
{
    STK_TEXT_AUTO tmp = NULL;
    STK_TREE_AUTO tree = {0};
    struct stat st;
    if (stat(path, &st) < 0) {
        return failed("read", path, err);
    }
    if (!S_ISREG(st.st_mode)) {
        return stk_err_set(err, STK_E_USAGE, "'%s' is no file", path);
    }
    int rc = stk_tree_walk(path, false, &tree, err);
    rc = rc < 0 ? rc : temporary(share, &tmp, err);
    rc = rc < 0 ? rc : stk_tree_copy(&tree, tmp, err);
    if (rc == 0 && digest != NULL && chmod(tmp, st.st_mode & 0111 ? 0555 : 0444) < 0) {
        rc = failed("make read-only", tmp, err);
    }
    if (rc == 0 && digest == NULL && syncs()) {
        rc = sync_file(tmp, err);
    }
    if (rc == 0) {
        return publish(share, tmp, key, false, digest == NULL && syncs(), err);
    }
    if (tmp != NULL) {
        (void)unlink(tmp);
    }
    return rc;
}

static int open_object(stk_share *share, const char *key, int *ret_fd, struct stat *ret_st,
                       stk_err *err)
{
    STK_TEXT_AUTO path = stk_file_join(share->folder, key);
    if (path == NULL) {
        return stk_share_no_memory(share, err);
    }
    int rc = stk_share_check_inside(share, key, err);
    if (rc < 0) {
        return rc;
    }
    STK_FD_AUTO fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        return stk_share_absent(share, key, err);
    }
    if (fd < 0 || fstat(fd, ret_st) < 0) {
        return failed("read", path, err);
    }
    if (!S_ISREG(ret_st->st_mode)) {
        return stk_share_absent(share, key, err);
    }
    share->seen = true;
    *ret_fd = fd;
    fd = -1;
    return 0;
}

static int get(stk_share *share, const char *key, int64_t from, bool whole, stk_buf *ret,
               stk_err *err)
{
    STK_FD_AUTO fd = -1;
    struct stat st;
    char part[65536];
    int rc = open_object(share, key, &fd, &st, err);
    size_t room = ret->max - ret->len;
    if (rc == 0 && whole && st.st_size > (int64_t)room) {
        rc = stk_err_set(err, STK_E_LIMIT, "'%s' in store '%s' has more than %zu bytes", key,
                         share->url, room);
    }
    while (rc == 0 && room > 0) {
        ssize_t n = pread(fd, part, room < sizeof part ? room : sizeof part, from);
        if (n < 0 && errno != EINTR) {
            return failed("read", key, err);
        }
        if (n == 0) {
            break;
        }
        if (n > 0 && stk_buf_add(ret, part, (size_t)n) < 0) {
            return stk_share_no_memory(share, err);
        }
        from += n > 0 ? n : 0;
        room -= n > 0 ? (size_t)n : 0;
    }
    return rc;
}

/* All that the open file has: whoever replaces it meanwhile makes another file. 0 or errno. */
static int copy_open(int from, int to)
{
    char part[65536];
    bool in_kernel = ioctl(to, FICLONE, from) != 0;
    ssize_t n = in_kernel ? 1 : 0;
    while (in_kernel && n > 0) {
        n = copy_file_range(from, NULL, to, NULL, 1 << 30, 0);
        if (n < 0 && errno != EINTR) {
            break; /* not between these: on by hand, from where it stopped */
        }
        n = n < 0 ? 1 : n;
    }
    while (n != 0) {
        n = read(from, part, sizeof part);
        if ((n < 0 && errno != EINTR) || (n > 0 && stk_file_write_all(to, part, (size_t)n) < 0)) {
            return errno;
        }
    }
    return 0;
}

static int get_file(stk_share *share, const char *key, const char *path, const char *digest,
                    int64_t size, stk_err *err)
{
    (void)size;
    STK_FD_AUTO fd = -1;
    struct stat st;
    int rc = open_object(share, key, &fd, &st, err);
    if (rc < 0) {
        return rc;
    }
    STK_FD_AUTO to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int sys = to < 0 ? errno : copy_open(fd, to);
    if (sys != 0) {
        return stk_err_sys(err, STK_E_SYS, sys, "can't write '%s'", path);
    }
    return digest == NULL ? 0 : stk_share_verify(path, key, digest, err);
}

static int look(stk_share *share, const char *key, int64_t *ret_size, stk_err *err)
{
    struct stat st;
    STK_TEXT_AUTO path = stk_file_join(share->folder, key);
    if (path == NULL) {
        return stk_share_no_memory(share, err);
    }
    if (stat(path, &st) < 0 && errno != ENOENT && errno != ENOTDIR) {
        return failed("read", path, err);
    } else if (stat(path, &st) < 0 || !S_ISREG(st.st_mode)) {
        return stk_share_absent(share, key, err);
    }
    *ret_size = st.st_size;
    return 0;
}

static int remove_object(stk_share *share, const char *key, stk_err *err)
{
    STK_TEXT_AUTO path = stk_file_join(share->folder, key);
    int rc =
        path == NULL ? stk_share_no_memory(share, err) : stk_share_check_inside(share, key, err);
    if (rc < 0) {
        return rc;
    }
    return unlink(path) == 0 || errno == ENOENT || errno == ENOTDIR || errno == EISDIR
               ? 0
               : failed("remove", path, err);
}

static int sync_all(stk_share *share, stk_err *err)
{
    if (!syncs()) {
        return 0;
    }
    STK_FD_AUTO fd = open(share->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || syncfs(fd) < 0 ? failed("sync", share->folder, err) : 0;
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
typedef struct names {
    char **at;
    size_t n;
    size_t cap;
} names;

static void names_done(names *list)
{
    for (size_t i = 0; i < list->n; i++) {
        free(list->at[i]);
    }
    free(list->at);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Can a key that begins with `stem` be one that is asked for? */
static bool matters(const listing *l, const char *stem)
{
    bool fits = begins(stem, l->prefix) || begins(l->prefix, stem);
    return fits && (strcmp(stem, l->after) > 0 || begins(l->after, stem));
}

/* Links aren't followed: they may lead round and round. */
static int add_names(const listing *l, const stk_dir *dir, const char *stem, names *list)
{
    for (uint32_t i = 0; i < dir->n; i++) {
        const char *name = dir->items[i].name;
        STK_TEXT_AUTO key = NULL;
        if (stem[0] == '\0' && is_ours(name)) {
            continue;
        }
        bool is_dir = stk_dir_is_folder(dir, &dir->items[i]);
        if (asprintf(&key, "%s%s%s", stem, name, is_dir ? "/" : "") < 0) {
            key = NULL;
            return stk_share_no_memory(l->share, l->err);
        }
        if (!matters(l, key)) {
            continue;
        }
        if (list->n == list->cap) {
            size_t cap = list->cap == 0 ? 64 : list->cap * 2;
            char **more = reallocarray(list->at, cap, sizeof *more);
            if (more == NULL) {
                return stk_share_no_memory(l->share, l->err);
            }
            list->at = more;
            list->cap = cap;
        }
        list->at[list->n++] = key;
        key = NULL;
    }
    return 0;
}

static int list_below(const listing *l, const char *stem, int depth);

static int list_one(const listing *l, const char *key, int depth)
{
    struct stat st;
    size_t n = strlen(key);
    if (n > 0 && key[n - 1] == '/') {
        return depth >= STK_SHARE_KEY_MAX / 2 ? 0 : list_below(l, key, depth + 1);
    }
    STK_TEXT_AUTO path = stk_file_join(l->share->folder, key);
    if (path == NULL) {
        return stk_share_no_memory(l->share, l->err);
    }
    if (strcmp(key, l->after) <= 0 || !begins(key, l->prefix) || stat(path, &st) < 0 ||
        !S_ISREG(st.st_mode)) {
        return 0; /* or just removed */
    }
    return l->each(l->arg, key, st.st_size,
                   (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000);
}

/* `stem` is "" or ends in '/'. */
static int list_below(const listing *l, const char *stem, int depth)
{
    __attribute__((cleanup(names_done))) names list = {0};
    STK_TEXT_AUTO path = stk_file_join(l->share->folder, stem);
    if (path == NULL) {
        return stk_share_no_memory(l->share, l->err);
    }
    STK_DIR_AUTO dir = {0};
    int rc = stk_dir_read_if(path, &dir, l->err);
    rc = rc < 0 ? rc : add_names(l, &dir, stem, &list);
    stk_dir_done(&dir); /* or a deep tree takes a descriptor a level */
    if (list.n > 1) {
        qsort(list.at, list.n, sizeof *list.at, by_text);
    }
    for (size_t i = 0; rc == 0 && i < list.n; i++) {
        rc = list_one(l, list.at[i], depth);
    }
    return rc;
}

static int list(stk_share *share, const char *prefix, const char *after, stk_share_each *each,
                void *arg, stk_err *err)
{
    listing l = {
        .share = share, .prefix = prefix, .after = after, .each = each, .arg = arg, .err = err};
    return list_below(&l, "", 0);
}

static void close_folder(stk_share *share)
{
    (void)share;
}

static const stk_share_ops folder_ops = {.put = put,
                                         .put_file = put_file,
                                         .get = get,
                                         .get_file = get_file,
                                         .look = look,
                                         .list = list,
                                         .remove = remove_object,
                                         .sync = sync_all,
                                         .close = close_folder};

int stk_share_open_folder(const char *path, stk_share *share, stk_err *err)
{
    share->folder = stk_file_absolute(path);
    share->ops = &folder_ops;
    return share->folder == NULL ? stk_share_no_memory(share, err) : 0;
}
