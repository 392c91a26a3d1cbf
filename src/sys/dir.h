/* What is in a folder: all of it, or an error. A loop over readdir takes a failure for the end,
 * and what it didn't see for what isn't there, so nobody else has one (tools/lint_rooms.py). */
#ifndef STK_SYS_DIR_H
#define STK_SYS_DIR_H

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"

typedef struct stk_dir_entry {
    const char *name;
    unsigned char type; /* DT_REG, DT_DIR …; DT_UNKNOWN: its file system doesn't say */
} stk_dir_entry;

typedef struct stk_dir {
    const stk_dir_entry *items; /* by name, without "." and ".."; none after an error */
    uint32_t n;
    int fd; /* the folder itself, for fstatat() and the like, until stk_dir_done() */
    void *stream;
} stk_dir;

/* STK_E_NOT_FOUND: there is no such folder. errno is what went wrong. */
__attribute__((warn_unused_result)) int stk_dir_read(const char *path, stk_dir *ret, stk_err *err);
/* The same of an open folder, which stays open. `name` is for messages. */
__attribute__((warn_unused_result)) int stk_dir_read_fd(int fd, const char *name, stk_dir *ret,
                                                        stk_err *err);
/* A folder that may not be there: none then. */
__attribute__((warn_unused_result)) int stk_dir_read_if(const char *path, stk_dir *ret,
                                                        stk_err *err);
/* A folder, not a link to one, without asking for more than its type where that is known. */
bool stk_dir_is_folder(const stk_dir *dir, const stk_dir_entry *entry);
/* --- all that is below one --- */

typedef struct stk_dir_seen {
    const char *path;  /* "<root>/a/b" */
    const char *below; /* "a/b" */
    const char *name;  /* "b" */
    const struct stat *st;
} stk_dir_seen;

enum { STK_DIR_SKIP = 1 }; /* what is below this folder isn't visited */

/* Visits whatever is below `root`, a folder before what is in it, by name. Links aren't followed;
 * what vanishes meanwhile is passed over. The first negative answer ends it. */
typedef int stk_dir_visit(void *arg, const stk_dir_seen *seen, stk_err *err);
__attribute__((warn_unused_result)) int stk_dir_walk(const char *root, stk_dir_visit *visit,
                                                     void *arg, stk_err *err);

void stk_dir_done(stk_dir *dir); /* one of {0} is fine */
#define STK_DIR_AUTO __attribute__((cleanup(stk_dir_done))) stk_dir

#endif
