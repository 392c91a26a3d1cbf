/* Private to package: ignore rules, and the list of files. */
#ifndef STK_PACKAGE_PRIVATE_H
#define STK_PACKAGE_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/map.h"

#define STK_PACKAGE_MANIFEST ".stoker-package"

/* --- package_ignore.c: git's grammar --- */

typedef struct ignore_rule {
    const char *pattern; /* without '!', leading and trailing '/' */
    bool negated;
    bool folders_only;
    bool anchored; /* has a '/' before its last byte, so it is relative to its file's folder */
} ignore_rule;

typedef struct ignore_list {
    const char *base; /* absolute folder */
    ignore_rule *rules;
    uint32_t n;
    struct ignore_list *above; /* the list with lower priority, such as that of the folder above */
} ignore_list;

/* Reads `<folder>/<name>`; *ret is `above` if there is no such file. */
int stk_ignore_read(const char *folder, const char *name, ignore_list *above, stk_arena *arena,
                    ignore_list **ret, stk_err *err);
/* 1 ignored, 0 included again by a '!', -1 no rule matches. `path`: absolute. */
int stk_ignore_ask(const ignore_list *list, const char *path, bool is_folder);
/* True if a '!' names the path: its last part begins with no wildcard. */
bool stk_ignore_names(const ignore_list *list, const char *path, bool is_folder);
/* git's wildmatch with WM_PATHNAME: '*' and '?' stop at '/', "**" between slashes doesn't. */
bool stk_ignore_match(const char *pattern, const char *text);
/* The paths in a repository's index (versions 2 to 4), absolute, and their folders; none if the
 * index can't be read. */
int stk_ignore_tracked(const char *top, stk_arena *arena, stk_map *ret, stk_err *err);

/* --- package_walk.c --- */

typedef struct package_file {
    const char *path; /* relative to the root */
    const char *link; /* target if kept as a link, or NULL */
    struct stat st;   /* of the file that `path` stands for */
    bool is_shut;     /* readable only for its owner */
    char digest[65];
} package_file;

typedef struct package_list {
    const char *root;
    const char *store;       /* absolute path, left out */
    const char *const *only; /* relative paths, NULL-terminated; NULL: all files */
    const char **left_out;   /* private paths that were left out, folders with a final '/' */
    uint32_t n_left_out, cap_left_out;
    package_file *files;
    uint32_t n, cap;
    int64_t bytes;
} package_list;

/* Lists the files in byte order of their paths. */
int stk_package_walk(package_list *list, stk_arena *arena, stk_err *err);

#endif
