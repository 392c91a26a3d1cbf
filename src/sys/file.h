/* Files: whole reads, atomic writes, folders. Every descriptor is CLOEXEC. Errors name the path. */
#ifndef STK_SYS_FILE_H
#define STK_SYS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* Reads a whole file, NUL-terminated, malloc'd. More than max bytes: STK_E_LIMIT; ENOENT:
 * STK_E_NOT_FOUND; not a regular file (any kind is allowed below /dev and /proc): STK_E_USAGE,
 * without waiting on a pipe. */
int stk_file_read(const char *path, size_t max, char **ret_data, size_t *ret_len, stk_err *err);
/* The same for files that a task may have written: with O_NOFOLLOW, and only a regular file owned
 * by us or root. */
int stk_file_read_untrusted(const char *path, size_t max, char **ret_data, size_t *ret_len,
                            stk_err *err);
/* Opens a regular file in a place where others may put or replace files: never follows a link,
 * never waits for the other end of a pipe. `flags` as for open(2); CLOEXEC is added. */
int stk_file_open_regular(const char *path, int flags, mode_t mode); /* -1 with errno */
/* Opens the relative `path` below the folder `at`: no part may be a link or lead out of the folder
 * (ELOOP, EXDEV). CLOEXEC is added. -1 with errno. */
extern bool stk_file_open_by_parts; /* for tests: walk by parts, as on kernels without openat2 */
int stk_file_open_below(int at, const char *path, int flags, mode_t mode);
int stk_file_read_fd(int fd, const char *name, size_t max, char **ret_data, size_t *ret_len,
                     stk_err *err);
/* Writes under a temporary name beside `path`, then renames. */
int stk_file_write_atomic(const char *path, const void *data, size_t len, mode_t mode,
                          stk_err *err);
/* Plain create and write (for files in a folder that isn't visible yet). */
int stk_file_write(const char *path, const void *data, size_t len, mode_t mode, stk_err *err);
int stk_file_write_all(int fd, const void *data, size_t len);     /* 0 or -1 with errno */
int stk_file_mkdirs(const char *path, mode_t mode, stk_err *err); /* like mkdir -p */
int stk_file_remove_tree(
    const char *path,
    stk_err *err); /* absent is fine; never follows links; removes read-only folders too */
/* The same for an entry of the open folder `at`. */
int stk_file_remove_tree_at(int at, const char *name, stk_err *err);
/* Copies a file or a folder to `to`, which must not exist; the copy is writable for its owner.
 * Skips links, other non-files and __pycache__. */
int stk_file_copy_tree(const char *from, const char *to, stk_err *err);
bool stk_file_exists(const char *path);
char *stk_file_join(const char *a, const char *b); /* malloc'd "a/b" */
char *stk_file_join_any(const char *a,
                        const char *b); /* the same; if one is "", a copy of the other */
/* "folder/path", or a copy of an absolute `path`. `folder` NULL: the current one. */
char *stk_file_below(const char *folder, const char *path);
/* malloc'd path of a folder of ours in the user's cache ($XDG_CACHE_HOME or ~/.cache), which need
 * not exist; NULL: the user has none. */
char *stk_file_cache(const char *name);
/* The same of what lasts ($XDG_STATE_HOME or ~/.local/state). */
char *stk_file_state(const char *name);
char *stk_file_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* malloc'd */
/* `mode` with execute permission only if `like` has it: 0755 or 0644, say. */
static inline mode_t stk_file_mode(mode_t like, mode_t mode)
{
    return (like & 0111) != 0 ? mode : mode & ~(mode_t)0111;
}
/* STK_E_NOT_FOUND for ENOENT and ENOTDIR, else STK_E_SYS. */
int stk_file_code(int sys);
char *stk_file_absolute(
    const char *path); /* malloc'd, against the cwd; need not exist; "." and ".." folded */
/* Retries EINTR; closes and returns quietly for fd < 0. */
void stk_file_close(int *fd);
#define STK_FD_AUTO __attribute__((cleanup(stk_file_close))) int

static inline void stk_file_free(char **p)
{
    extern void free(void *);
    free(*p);
}
#define STK_TEXT_AUTO __attribute__((cleanup(stk_file_free))) char *

#endif
