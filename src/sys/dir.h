/* Reads all entries of a folder, or fails. A plain loop over readdir mistakes a failure for the
 * end, and entries it didn't see for absent ones, so no other file has one (tools/lint_rooms.py).
 */
#ifndef STK_SYS_DIR_H
#define STK_SYS_DIR_H

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"

typedef struct stk_dir_entry {
    const char *name;
    unsigned char type; /* DT_REG, DT_DIR …; DT_UNKNOWN: the file system doesn't report it */
} stk_dir_entry;

typedef struct stk_dir {
    const stk_dir_entry *items; /* sorted by name, without "." and ".."; empty after an error */
    uint32_t n;
    int fd; /* the folder itself, for fstatat() and the like, until stk_dir_done() */
    void *stream;
} stk_dir;

/* STK_E_NOT_FOUND: no such folder. Sets errno on failure. */
__attribute__((warn_unused_result)) int stk_dir_read(const char *path, stk_dir *ret, stk_err *err);
/* The same for an open folder, which stays open. `name` is for messages. */
__attribute__((warn_unused_result)) int stk_dir_read_fd(int fd, const char *name, stk_dir *ret,
                                                        stk_err *err);
/* The same; a folder that doesn't exist counts as empty. */
__attribute__((warn_unused_result)) int stk_dir_read_if(const char *path, stk_dir *ret,
                                                        stk_err *err);
/* True for a folder, false for a link to one. Asks the file system only if the type is unknown. */
bool stk_dir_is_folder(const stk_dir *dir, const stk_dir_entry *entry);
/* --- everything below a folder --- */

typedef struct stk_dir_seen {
    const char *path;  /* "<root>/a/b" */
    const char *below; /* "a/b" */
    const char *name;  /* "b" */
    const struct stat *st;
} stk_dir_seen;

enum { STK_DIR_SKIP = 1 }; /* don't visit what is below this folder */

/* Visits everything below `root` in order of name, a folder before its contents. Doesn't follow
 * links; skips what vanishes meanwhile. A negative result of `visit` stops the walk and is
 * returned. */
typedef int stk_dir_visit(void *arg, const stk_dir_seen *seen, stk_err *err);
__attribute__((warn_unused_result)) int stk_dir_walk(const char *root, stk_dir_visit *visit,
                                                     void *arg, stk_err *err);

void stk_dir_done(stk_dir *dir); /* {0} is fine */
#define STK_DIR_AUTO __attribute__((cleanup(stk_dir_done))) stk_dir

#endif
