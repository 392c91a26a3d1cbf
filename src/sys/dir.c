#include "sys/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/failpoint.h"
#include "sys/file.h"

/* True for kernel file systems. Tests don't make reads there fail, because they happen all the
 * time. */
static bool is_kernels(const char *name)
{
    return strncmp(name, "/proc", 5) == 0 || strncmp(name, "/sys", 4) == 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const stk_dir_entry *)a)->name, ((const stk_dir_entry *)b)->name);
}

static bool add_entry(stk_dir *dir, const struct dirent *e, uint32_t *cap)
{
    char *name = strdup(e->d_name);
    if (name == NULL || stk_array_reserve(&dir->items, cap, dir->n + 1ul, sizeof *dir->items) < 0) {
        free(name);
        return false;
    }
    stk_dir_entry *items = (stk_dir_entry *)(uintptr_t)dir->items;
    items[dir->n++] = (stk_dir_entry){.name = name, .type = e->d_type};
    return true;
}

/* Reads all entries; returns 0 or an errno. */
static int read_all(stk_dir *dir, const char *name)
{
    uint32_t cap = 0;
    const struct dirent *e;
    while ((errno = 0, e = readdir(dir->stream)) != NULL) {
        bool is_self =
            e->d_name[0] == '.' && (e->d_name[1] == '\0' || strcmp(e->d_name, "..") == 0);
        if (!is_self && !add_entry(dir, e, &cap)) {
            return ENOMEM;
        }
    }
    int sys = errno;
    if (sys != 0 || is_kernels(name)) {
        return sys;
    }
    return STK_FAILPOINT_ERR("sys.dir.read");
}

static int take_stream(DIR *stream, int sys, const char *name, stk_dir *ret, stk_err *err)
{
    *ret = (stk_dir){.stream = stream, .fd = stream == NULL ? -1 : dirfd(stream)};
    if (stream != NULL) {
        sys = read_all(ret, name);
    }
    if (sys != 0) {
        stk_dir_done(ret);
        int code = stk_err_sys(err, stk_file_code(sys), sys, "can't read folder '%s'", name);
        errno = sys;
        return code;
    }
    if (ret->n > 1) {
        qsort((void *)(uintptr_t)ret->items, ret->n, sizeof *ret->items, compare_names);
    }
    return 0;
}

int stk_dir_read(const char *path, stk_dir *ret, stk_err *err)
{
    int sys = 0;
    if (!is_kernels(path)) {
        sys = STK_FAILPOINT_ERR("sys.dir.open");
    }
    DIR *stream = sys != 0 ? NULL : opendir(path);
    return take_stream(stream, sys != 0 ? sys : errno, path, ret, err);
}

int stk_dir_read_if(const char *path, stk_dir *ret, stk_err *err)
{
    int rc = stk_dir_read(path, ret, err);
    return stk_err_but(rc, STK_E_NOT_FOUND);
}

int stk_dir_read_fd(int fd, const char *name, stk_dir *ret, stk_err *err)
{
    int sys = STK_FAILPOINT_ERR("sys.dir.open");
    int own = -1;
    if (sys == 0) {
        own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    }
    DIR *stream = own < 0 ? NULL : fdopendir(own);
    if (sys == 0) {
        sys = errno;
    }
    if (stream == NULL && own >= 0) {
        (void)close(own);
    }
    if (stream != NULL) {
        rewinddir(stream); /* the duplicate shares the position of an earlier pass */
    }
    return take_stream(stream, sys, name, ret, err);
}

bool stk_dir_is_folder(const stk_dir *dir, const stk_dir_entry *entry)
{
    struct stat st;
    return entry->type == DT_DIR ||
           (entry->type == DT_UNKNOWN &&
            fstatat(dir->fd, entry->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode));
}

/* --- all that is below one --- */

enum { DEPTH = 256 };

typedef struct walker {
    stk_dir_visit *visit;
    void *arg;
    stk_err *err;
    size_t n_root;
    char path[PATH_MAX];
} walker;

static int walk(walker *w, int fd, size_t len, int depth);

static int walk_one(walker *w, const stk_dir *dir, const char *name, size_t len, int depth)
{
    struct stat st;
    size_t n = strlen(name);
    if (len + n + 2 > sizeof w->path || depth >= DEPTH) {
        return stk_err_set(w->err, STK_E_LIMIT, "'%s' has folders nested too deep", w->path);
    }
    if (fstatat(dir->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno != ENOENT) {
            return stk_err_sys(w->err, STK_E_SYS, errno, "reading '%s/%s'", w->path, name);
        }
        return 0;
    }
    w->path[len] = '/';
    memcpy(w->path + len + 1, name, n + 1);
    stk_dir_seen seen = {
        .path = w->path, .below = w->path + w->n_root + 1, .name = w->path + len + 1, .st = &st};
    int rc = w->visit(w->arg, &seen, w->err);
    if (rc == 0 && S_ISDIR(st.st_mode)) {
        int fd = openat(dir->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0) {
            rc = walk(w, fd, len + 1 + n, depth + 1);
            (void)close(fd);
        } else if (errno != ENOENT) {
            rc = stk_err_sys(w->err, STK_E_SYS, errno, "can't read folder '%s'", w->path);
        }
    }
    w->path[len] = '\0';
    STK_TRY(rc);
    return 0;
}

static int walk(walker *w, int fd, size_t len, int depth)
{
    STK_DIR_AUTO dir = {0};
    int rc = stk_dir_read_fd(fd, w->path, &dir, w->err);
    for (uint32_t i = 0; rc == 0 && i < dir.n; i++) {
        rc = walk_one(w, &dir, dir.items[i].name, len, depth);
    }
    return rc;
}

int stk_dir_walk(const char *root, stk_dir_visit *visit, void *arg, stk_err *err)
{
    walker w = {.visit = visit, .arg = arg, .err = err, .n_root = strlen(root)};
    if (w.n_root >= sizeof w.path) {
        return stk_err_set(err, STK_E_LIMIT, "'%.60s…' is too long a path", root);
    }
    memcpy(w.path, root, w.n_root + 1);
    int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc;
    if (fd < 0) {
        rc = stk_err_sys(err, stk_file_code(errno), errno, "can't read folder '%s'", root);
    } else {
        rc = walk(&w, fd, w.n_root, 0);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return rc;
}

void stk_dir_done(stk_dir *dir)
{
    for (uint32_t i = 0; i < dir->n; i++) {
        free((void *)(uintptr_t)dir->items[i].name);
    }
    free((void *)(uintptr_t)dir->items);
    if (dir->stream != NULL) {
        (void)closedir(dir->stream);
    }
    *dir = (stk_dir){0};
}
