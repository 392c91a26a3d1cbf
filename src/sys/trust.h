/* trust: may what lies at a place decide what runs as us?
 *
 * A folder or file is ours when its owner is this user, root or, for root, the user of SUDO_UID,
 * when not everybody may write it, when its group may write it only where that group is the user's
 * own, and when no folder above it lets everybody put another one in its place (a sticky one
 * doesn't). What isn't ours decides nothing, unless it lies in a folder that the user named by
 * `stoker trust`: such a folder is known by its path, owner, file system and inode, so that nobody
 * can put another in its place, and all in it is trusted but what everybody may write.
 * The names are in $XDG_CONFIG_HOME/stoker/trusted (~/.config where that isn't set).
 */
#ifndef STK_SYS_TRUST_H
#define STK_SYS_TRUST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"

/* This user, root, or for root the user that sudo serves. */
bool stk_trust_owner(uid_t uid);
/* Is `fd`, open (O_PATH does) and of this path, ours? 0, or STK_E_UNTRUSTED with whose it is and
 * the way out. */
int stk_trust_fd(int fd, const char *path, stk_err *err);
/* The same of what is at `path`, links followed; STK_E_NOT_FOUND: nothing is. */
int stk_trust_path(const char *path, stk_err *err);
/* Makes a folder that we have just made nobody else's, where the umask lets others write it who
 * aren't us: what is made in it gets the same rights. */
void stk_trust_make_own(int fd);
/* Opens a file that others may have put there to be read: a regular one that is ours, links
 * followed. -1 after `err`; STK_E_NOT_FOUND: there is none. */
int stk_trust_open(const char *path, stk_err *err);
/* Reads it whole, as stk_file_read. */
int stk_trust_read(const char *path, size_t max, char **ret_data, size_t *ret_len, stk_err *err);

typedef struct stk_trusted {
    char *path; /* malloc'd */
    uint64_t file_system, inode;
    uid_t owner;
    bool is_current; /* the folder at `path` is still the one that was named */
} stk_trusted;

/* What was named, malloc'd; none: NULL and 0. */
int stk_trust_list(stk_trusted **ret, size_t *ret_n, stk_err *err);
void stk_trust_free(stk_trusted *list, size_t n);
/* Names a folder, or takes a name back (*ret_was: it was named); *ret_path its real path, malloc'd.
 * STK_E_UNTRUSTED: everybody may write it. */
int stk_trust_add(const char *folder, char **ret_path, stk_err *err);
int stk_trust_remove(const char *folder, char **ret_path, bool *ret_was, stk_err *err);

/* --- projects --- */

/* The folder up to which a project's files are looked for from `folder` on: the nearest one at or
 * above it that is ours and has stoker.yaml, .git or pyproject.toml; without one `folder` itself.
 * malloc'd, absolute. */
int stk_project_root(const char *folder, char **ret_root, stk_err *err);
/* `name` in the nearest folder from `folder` up to the root: malloc'd, or NULL: there is none.
 * *ret_beyond (if not NULL): the nearest one above the root, which is not used; malloc'd or NULL.
 */
int stk_project_find(const char *folder, const char *name, char **ret_path, char **ret_beyond,
                     stk_err *err);

#endif
