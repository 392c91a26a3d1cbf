/* Copying a tree of files. */
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/file.h"

enum { COPY_BYTES = 1 << 20 };

static int copy_file(const char *from, const char *to, mode_t mode, stk_err *err)
{
    STK_FD_AUTO in = open(from, O_RDONLY | O_CLOEXEC);
    STK_FD_AUTO out = in < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    ssize_t n = out < 0 ? -1 : 1;
    while (n > 0) {
        n = copy_file_range(in, NULL, out, NULL, COPY_BYTES, 0);
        if (n < 0 && (errno == EXDEV || errno == EINVAL || errno == ENOSYS)) {
            STK_TEXT_AUTO data = malloc(COPY_BYTES);
            n = data == NULL ? -1 : read(in, data, COPY_BYTES);
            n = n > 0 && stk_file_write_all(out, data, (size_t)n) < 0 ? -1 : n;
        }
    }
    return n < 0 ? stk_err_sys(err, STK_E_SYS, errno, "copying %s to %s", from, to) : 0;
}

int stk_file_copy_tree(const char *from, const char *to, stk_err *err)
{
    char *const paths[] = {(char *)(uintptr_t)from, NULL};
    FTS *tree = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    size_t n = strlen(from);
    int rc = tree == NULL ? stk_err_sys(err, STK_E_SYS, errno, "reading %s", from) : 0;
    for (FTSENT *e; rc == 0 && (errno = 0, e = fts_read(tree)) != NULL;) {
        char path[PATH_MAX];
        (void)snprintf(path, sizeof path, "%s%s", to, e->fts_path + n);
        if (e->fts_info == FTS_D && strcmp(e->fts_name, "__pycache__") == 0) {
            (void)fts_set(tree, e, FTS_SKIP);
        } else if (e->fts_info == FTS_D) {
            rc = mkdir(path, 0755) == 0 ? 0 : stk_err_sys(err, STK_E_SYS, errno, "making %s", path);
        } else if (e->fts_info == FTS_F) {
            rc = copy_file(e->fts_path, path, e->fts_statp->st_mode | 0200, err);
        } else if (e->fts_info == FTS_ERR || e->fts_info == FTS_DNR || e->fts_info == FTS_NS) {
            rc = stk_err_sys(err, STK_E_SYS, e->fts_errno, "reading %s", e->fts_path);
        }
    }
    if (tree != NULL) {
        (void)fts_close(tree);
    }
    return rc;
}
