/* Copies a tree of files. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/dir.h"
#include "sys/file.h"

enum { COPY_BYTES = 1 << 20 };

static int copy_file(const char *from, const char *to, mode_t mode, stk_err *err)
{
    STK_FD_AUTO in = open(from, O_RDONLY | O_CLOEXEC);
    STK_FD_AUTO out = -1;
    if (in >= 0) {
        out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    }
    ssize_t n = out < 0 ? -1 : 1;
    while (n > 0) {
        n = copy_file_range(in, NULL, out, NULL, COPY_BYTES, 0);
        if (n < 0 && (errno == EXDEV || errno == EINVAL || errno == ENOSYS)) {
            STK_TEXT_AUTO data = malloc(COPY_BYTES);
            if (data == NULL) {
                n = -1;
            } else {
                n = read(in, data, COPY_BYTES);
            }
            if (n > 0 && stk_file_write_all(out, data, (size_t)n) < 0) {
                n = -1;
            }
        }
    }
    if (n < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "copying %s to %s", from, to);
    }
    return 0;
}

static int make_folder(const char *path, stk_err *err)
{
    if (mkdir(path, 0755) != 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "making %s", path);
    }
    return 0;
}

static int copy_one(void *arg, const stk_dir_seen *e, stk_err *err)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", (const char *)arg, e->below);
    if (S_ISDIR(e->st->st_mode)) {
        if (strcmp(e->name, "__pycache__") == 0) {
            return STK_DIR_SKIP;
        }
        return make_folder(path, err);
    }
    if (S_ISREG(e->st->st_mode)) {
        return copy_file(e->path, path, e->st->st_mode | 0200, err);
    }
    return 0;
}

int stk_file_copy_tree(const char *from, const char *to, stk_err *err)
{
    struct stat st;
    if (lstat(from, &st) < 0) {
        return stk_err_sys(err, stk_file_code(errno), errno, "reading %s", from);
    }
    if (S_ISREG(st.st_mode)) {
        return copy_file(from, to, st.st_mode | 0200, err);
    }
    STK_TRY(make_folder(to, err));
    return stk_dir_walk(from, copy_one, (void *)(uintptr_t)to, err);
}
