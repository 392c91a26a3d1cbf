/* trust: decides whether a file or folder may affect what we run.
 *
 * A folder or file is ours if all of this holds: its owner is this user, root or, for root, the
 * user of SUDO_UID; not everybody may write it; its group may write it only if that group is the
 * user's own; and no folder above it lets everybody replace it (a sticky folder doesn't). What
 * isn't ours has no effect, unless it lies in a folder that the user named with `stoker trust`. A
 * named folder is identified by path, owner, file system and inode, so that nobody can put another
 * in its place. Everything in it is trusted except what everybody may write.
 * The names are in $XDG_CONFIG_HOME/stoker/trusted (~/.config if that isn't set). */
#ifndef STK_SYS_TRUST_H
#define STK_SYS_TRUST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"

/* True for this user, root, and for root also the user that sudo serves. */
bool stk_trust_owner(uid_t uid);
/* Checks that `fd`, open at this path (O_PATH is enough), is ours. Returns 0, or STK_E_UNTRUSTED
 * with the owner and the remedy. */
int stk_trust_fd(int fd, const char *path, stk_err *err);
/* The same for `path`, following links; STK_E_NOT_FOUND: nothing is there. */
int stk_trust_path(const char *path, stk_err *err);
/* Sets a folder that we have just made to mode 0700 if the umask lets others write it: files made
 * in it would get the same permissions. */
void stk_trust_make_own(int fd);
/* Opens a file for reading that others may have put there: a regular file that is ours, following
 * links. Returns -1 and fills `err`; STK_E_NOT_FOUND: there is none. */
int stk_trust_open(const char *path, stk_err *err);
/* Reads such a file whole, as stk_file_read does. */
int stk_trust_read(const char *path, size_t max, char **ret_data, size_t *ret_len, stk_err *err);

/* Path of a file of this user's configuration, $XDG_CONFIG_HOME/stoker/NAME; malloc'd. */
char *stk_trust_config(const char *name);

typedef struct stk_trusted {
    char *path; /* malloc'd */
    uint64_t file_system, inode;
    uid_t owner;
    bool is_current; /* the folder at `path` is still the one that was named */
} stk_trusted;

/* The named folders, malloc'd; NULL and 0 if there are none. */
int stk_trust_list(stk_trusted **ret, size_t *ret_n, stk_err *err);
void stk_trust_free(stk_trusted *list, size_t n);
/* Names a folder, or removes its name (*ret_was: it was named). *ret_path: its real path, malloc'd.
 * STK_E_UNTRUSTED: everybody may write it. */
int stk_trust_add(const char *folder, char **ret_path, stk_err *err);
int stk_trust_remove(const char *folder, char **ret_path, bool *ret_was, stk_err *err);

/* --- projects --- */

/* The root of the search for a project's files: the nearest folder, at `folder` or above it, that
 * is ours and has stoker.yaml, .git or pyproject.toml; else `folder` itself. malloc'd, absolute. */
int stk_project_root(const char *folder, char **ret_root, stk_err *err);
/* Finds `name` in the nearest folder from `folder` up to the root: malloc'd, or NULL if there is
 * none.
 * *ret_beyond (if not NULL): the nearest one above the root, which is not used; malloc'd or NULL.
 */
int stk_project_find(const char *folder, const char *name, char **ret_path, char **ret_beyond,
                     stk_err *err);

#endif
