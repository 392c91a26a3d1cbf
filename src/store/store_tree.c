/* Walks and copies a file or folder that a task has left. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/failpoint.h"
#include "base/text.h"
#include "base/turn.h"
#include "store/store_digest.h"
#include "sys/dir.h"
#include "sys/faults.h"
#include "sys/file.h"

void stk_tree_done(stk_tree *tree)
{
    free(tree->files);
    stk_arena_free(tree->arena);
    *tree = (stk_tree){0};
}

static int add_entry(stk_tree *tree, const char *path, const struct stat *st, stk_err *err)
{
    if (tree->n == STK_TREE_FILES) {
        return stk_err_set(err, STK_E_LIMIT,
                           "'%s' has more than %d files; pack them into one, for example with tar",
                           tree->root, (int)STK_TREE_FILES);
    }
    if (stk_array_reserve(&tree->files, &tree->cap, tree->n + 1, sizeof *tree->files) < 0) {
        return stk_err_nomem(err);
    }
    stk_tree_file *f = &tree->files[tree->n];
    *f = (stk_tree_file){.path = stk_arena_dup(tree->arena, path), .is_dir = S_ISDIR(st->st_mode)};
    STK_TRY(stk_err_if_null(f->path, err));
    stk_stamp_of(st, &f->stamp);
    if (!f->is_dir) {
        f->size = st->st_size;
        if (st->st_size > STK_TREE_BYTES - tree->size) {
            return stk_err_set(err, STK_E_LIMIT,
                               "'%s' is larger than %lld TiB, the limit of an artifact", tree->root,
                               STK_TREE_BYTES >> 40);
        }
        tree->size += st->st_size;
    }
    tree->n++;
    return 0;
}

static const char *kind_of(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFLNK:
        return "a symbolic link";
    case S_IFIFO:
        return "a named pipe";
    case S_IFSOCK:
        return "a socket";
    default:
        return "a device";
    }
}

static int refuse_entry(const stk_tree *tree, const char *path, const char *what, stk_err *err)
{
    stk_err_set(err, STK_E_USAGE,
                "'%s%s%s' is %s, but an artifact can hold only plain files and folders", tree->root,
                stk_text_when(path[0], "/"), path, what);
    stk_err_hint(err, "copy what it points to (`cp -rL`) instead");
    return STK_E_USAGE;
}

static int failed(const stk_tree *tree, const char *path, const char *what, stk_err *err)
{
    int code = stk_file_code(errno);
    return stk_err_sys(err, code, errno, "can't %s '%s%s%s'", what, tree->root,
                       stk_text_when(path[0], "/"), path);
}

static int see_file(stk_tree *tree, int at, const char *name, const char *path, struct stat *st,
                    bool lock_down, stk_err *err)
{
    if (!S_ISREG(st->st_mode)) {
        return refuse_entry(tree, path, kind_of(st->st_mode), err);
    }
    if (strchr(path, '\n') != NULL) {
        return refuse_entry(tree, path, "a name with a line break", err);
    }
    bool foreign = st->st_nlink > 1 || (st->st_uid != geteuid() && geteuid() != 0);
    if (foreign) {
        tree->foreign = true;
    } else if (lock_down) {
        mode_t mode = stk_file_mode(st->st_mode, 0555);
        bool is_shut = (st->st_mode & 0277) == 0; /* read-only and private: stays so */
        if (is_shut) {
            mode &= 0500;
        }
        if ((st->st_mode & 07777) != mode &&
            (fchmodat(at, name, mode, 0) < 0 || fstatat(at, name, st, AT_SYMLINK_NOFOLLOW) < 0)) {
            return failed(tree, path, "make read-only", err);
        }
    }
    return add_entry(tree, path, st, err);
}

static int walk_tree(stk_tree *tree, int fd, const char *prefix, int depth, bool lock_down,
                     stk_err *err);

static int see_folder(stk_tree *tree, int at, const char *name, const char *path,
                      const struct stat *st, int depth, bool lock_down, stk_err *err)
{
    if (depth >= STK_TREE_DEPTH) {
        return stk_err_set(err, STK_E_LIMIT, "'%s' has folders nested more than %d deep",
                           tree->root, (int)STK_TREE_DEPTH);
    }
    if (lock_down && (st->st_mode & 0500) != 0500) {
        (void)fchmodat(at, name, 0755, 0);
    }
    STK_FD_AUTO fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return failed(tree, path, "open", err);
    }
    int rc = add_entry(tree, path, st, err);
    size_t i_own = tree->n - 1;
    if (rc == 0) {
        rc = walk_tree(tree, fd, path, depth + 1, lock_down, err);
    }
    if (rc == 0 && lock_down && st->st_uid == geteuid()) {
        struct stat locked;
        if (fchmod(fd, 0555) < 0 || fstat(fd, &locked) < 0) {
            return failed(tree, path, "make read-only", err);
        }
        stk_stamp_of(&locked, &tree->files[i_own].stamp);
    }
    return rc;
}

/* Uses a duplicate of fd. The depth is bounded, and with it recursion and descriptors. */
static int walk_tree(stk_tree *tree, int fd, const char *prefix, int depth, bool lock_down,
                     stk_err *err)
{
    STK_DIR_AUTO dir = {0};
    if (stk_dir_read_fd(fd, prefix, &dir, NULL) < 0) {
        return failed(tree, prefix, "read", err);
    }
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < dir.n; i++) {
        const char *name = dir.items[i].name;
        struct stat st;
        STK_TURN(STK_TURN_FILE);
        if (stk_tree_is_stopped(tree)) {
            rc = stk_tree_stopped(tree, err);
            break;
        }
        STK_TEXT_AUTO path = stk_file_join_any(prefix, name);
        if (path == NULL) {
            rc = stk_err_nomem(err);
        } else if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            rc = failed(tree, path, "read", err);
        } else if (S_ISDIR(st.st_mode)) {
            rc = see_folder(tree, fd, name, path, &st, depth, lock_down, err);
        } else {
            rc = see_file(tree, fd, name, path, &st, lock_down, err);
        }
    }
    return rc;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const stk_tree_file *)a)->path, ((const stk_tree_file *)b)->path);
}

int stk_tree_stopped(const stk_tree *tree, stk_err *err)
{
    return stk_err_set(err, STK_E_CANCELLED, "reading '%s' was cancelled", tree->root);
}

int stk_tree_walk(const char *path, bool lock_down, stk_tree *ret, stk_err *err)
{
    return stk_tree_walk_until(path, lock_down, NULL, ret, err);
}

int stk_tree_walk_until(const char *path, bool lock_down, const atomic_bool *stop, stk_tree *ret,
                        stk_err *err)
{
    STK_TREE_AUTO tree = {.root = path, .arena = stk_arena_new(0), .stop = stop};
    struct stat st;
    STK_TRY(stk_err_if_null(tree.arena, err));
    if (lstat(path, &st) < 0) {
        return failed(&tree, "", "read", err);
    }
    tree.is_dir = S_ISDIR(st.st_mode);
    int rc;
    if (!tree.is_dir) {
        rc = see_file(&tree, AT_FDCWD, path, "", &st, lock_down, err);
    } else {
        STK_FD_AUTO fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) {
            rc = failed(&tree, "", "open", err);
        } else {
            rc = walk_tree(&tree, fd, "", 0, lock_down, err);
        }
        tree.foreign |= st.st_uid != geteuid() && geteuid() != 0;
    }
    if (rc != 0) {
        return rc;
    }
    if (tree.n > 1) {
        qsort(tree.files, tree.n, sizeof *tree.files, by_path);
    }
    for (size_t i = 0; i < tree.n; i++) {
        stk_tree_file *f = &tree.files[i];
        f->first_chunk = tree.n_chunks;
        if (!f->is_dir) { /* an empty file has one empty chunk */
            int64_t n = (f->size + STK_DIGEST_CHUNK - 1) / STK_DIGEST_CHUNK;
            tree.n_chunks += (uint64_t)MAX(n, 1);
        }
    }
    *ret = tree;
    tree = (stk_tree){0};
    return 0;
}

/* --- stamps --- */

void stk_stamp_of(const struct stat *st, stk_stamp *ret)
{
    *ret = (stk_stamp){.ino = st->st_ino,
                       .size = S_ISDIR(st->st_mode) ? 0 : st->st_size,
                       .mtime_ns = st->st_mtim.tv_sec * 1000000000ll + st->st_mtim.tv_nsec,
                       .ctime_ns = st->st_ctim.tv_sec * 1000000000ll + st->st_ctim.tv_nsec};
}

void stk_stamp_format(const stk_stamp *s, char ret[STK_STAMP_TEXT])
{
    (void)snprintf(ret, STK_STAMP_TEXT, "%llu %lld %lld %lld", (unsigned long long)s->ino,
                   (long long)s->size, (long long)s->mtime_ns, (long long)s->ctime_ns);
}

int stk_tree_stamp(const stk_tree *tree, char ret[STK_STAMP_TEXT], stk_err *err)
{
    char one[STK_STAMP_TEXT];
    STK_BUF_AUTO text = STK_BUF_INIT(SIZE_MAX / 2);
    if (!tree->is_dir) {
        stk_stamp_format(&tree->files[0].stamp, ret);
        return 0;
    }
    for (size_t i = 0; i < tree->n; i++) {
        stk_stamp_format(&tree->files[i].stamp, one);
        stk_buf_printf(&text, "%s %s\n", one, tree->files[i].path);
    }
    if (text.failed) {
        return stk_err_nomem(err);
    }
    stk_digest_of(stk_text_or(text.data, ""), text.len, ret);
    return 0;
}

/* --- copies --- */

static bool is_set(const atomic_bool *stop)
{
    return stop != NULL && atomic_load_explicit(stop, memory_order_relaxed);
}

/* Test hook: waits here until the test releases the copy or removal, or `stop` is set. */
static void wait_while_held(const char *point, const atomic_bool *stop)
{
    while (STK_FAILPOINT_IS_HELD(point) && !is_set(stop)) {
        (void)usleep(1000);
    }
}

/* Copies bytes [from, to) of `in` to the same position in `out`. Returns 0 or errno. */
static int copy_range(int in, int out, off_t from, off_t to, const atomic_bool *stop)
{
    enum { AT_ONCE = 32 << 20 }; /* checks for a stop after this many bytes */
    bool in_kernel = true;
    char buf[65536];
    while (from < to) {
        ssize_t n;
        if (is_set(stop)) {
            return ECANCELED;
        }
        if (in_kernel) {
            off_t a = from;
            off_t b = from;
            size_t want = (size_t)MIN(to - from, AT_ONCE);
            n = copy_file_range(in, &a, out, &b, want, 0);
            if (n < 0 && (errno == EXDEV || errno == EINVAL || errno == ENOSYS ||
                          errno == EOPNOTSUPP || errno == EPERM)) {
                in_kernel = false;
                continue;
            }
        } else {
            size_t want = MIN((size_t)(to - from), sizeof buf);
            n = pread(in, buf, want, from);
            if (n > 0) {
                n = pwrite(out, buf, (size_t)n, from);
            }
        }
        if (n < 0 && errno != EINTR) {
            return errno;
        }
        if (n == 0) {
            return ESTALE; /* the file shrank since the walk */
        }
        from += MAX(n, 0);
        STK_TURN(MAX(n, 0));
    }
    return 0;
}

int stk_tree_copy_data(int in, int out, int64_t size, const atomic_bool *stop)
{
    if (ioctl(out, FICLONE, in) == 0) {
        return 0;
    }
    int sys = 0;
    for (off_t at = 0; sys == 0 && at < size;) {
        off_t from = lseek(in, at, SEEK_DATA);
        if (from < 0 && errno == ENXIO) {
            break; /* a hole up to the end */
        }
        off_t to = size;
        if (from < 0) {
            from = at;
        } else if ((to = lseek(in, from, SEEK_HOLE)) < 0 || to > size) {
            to = size;
        }
        sys = STK_FAILPOINT_ERR("store.copy.mid");
        wait_while_held("store.copy.mid", stop);
        if (sys == 0) {
            sys = copy_range(in, out, from, to, stop);
        }
        at = to;
    }
    if (sys == 0 && ftruncate(out, size) < 0) {
        return errno;
    }
    return sys;
}

int stk_tree_copy(const stk_tree *tree, const char *to, stk_err *err)
{
    if (tree->is_dir && mkdir(to, 0755) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "can't make folder '%s'", to);
    }
    for (size_t i = 0; i < tree->n; i++) {
        const stk_tree_file *f = &tree->files[i];
        STK_TEXT_AUTO src = stk_file_join_any(tree->root, f->path);
        STK_TEXT_AUTO dst = stk_file_join_any(to, f->path);
        if (src == NULL || dst == NULL) {
            return stk_err_nomem(err);
        }
        if (f->is_dir) { /* sorted: a folder comes before its contents */
            if (mkdir(dst, 0755) < 0) {
                return stk_err_sys(err, STK_E_SYS, errno, "can't make folder '%s'", dst);
            }
            continue;
        }
        STK_FD_AUTO in = open(src, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        struct stat st;
        if (in < 0 || fstat(in, &st) < 0) {
            return failed(tree, f->path, "open", err);
        }
        STK_FD_AUTO out =
            open(dst, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, stk_file_mode(st.st_mode, 0755));
        int sys = out < 0 ? errno : stk_tree_copy_data(in, out, f->size, tree->stop);
        if (sys == ECANCELED) {
            return stk_tree_stopped(tree, err);
        }
        if (sys != 0) {
            return stk_err_sys(err, sys == ESTALE ? STK_E_STORE : STK_E_SYS, sys,
                               "can't copy '%s' to '%s'", src, dst);
        }
    }
    return 0;
}

void stk_tree_remove(const stk_tree *tree)
{
    STK_FD_AUTO root = -1;
    if (tree->is_dir) {
        root = open(tree->root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    if (!tree->is_dir) {
        (void)unlink(tree->root);
        return;
    }
    (void)(root < 0 || fchmod(root, 0755) < 0);
    for (size_t i = 0; i < tree->n;
         i++) { /* from the top down, because folders below are unreachable otherwise */
        if (tree->files[i].is_dir) {
            (void)fchmodat(root, tree->files[i].path, 0755, 0);
        }
    }
    for (size_t i = tree->n; i-- > 0 && !stk_tree_is_stopped(tree);) {
        STK_TURN(STK_TURN_FILE);
        STK_FAILPOINT("store.remove.mid");
        wait_while_held("store.remove.mid", tree->stop);
        (void)unlinkat(root, tree->files[i].path, tree->files[i].is_dir ? AT_REMOVEDIR : 0);
    }
    (void)rmdir(tree->root);
}
