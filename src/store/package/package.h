/* package: selects the files of a project that are its code, and computes their digest.
 *
 * Left out: files that git ignores (.gitignore at every level up to the repository's top,
 * .git/info/exclude; tracked files are never ignored), files that .stokerignore names (the same
 * grammar; it overrides git, so `!name` includes what git ignores), .git, .stoker and the store,
 * virtual environments and __pycache__, sockets and devices. Links that stay inside are kept as
 * links, others are followed. Deterministic: sorted names, modes 0644/0755 and 0600/0700, no times.
 *
 * Left out and reported: private files (sys/private.h). The mode of a file that git tracks doesn't
 * make it private. A line `!name` of .stokerignore whose last part begins with no wildcard includes
 * a file, or a folder with everything in it.
 *
 * An artifact holds plain files only. So a separate file in it (`.stoker-package`) lists the
 * executable files, the files only for their owner, and the links; stk_package_view reads it. */
#ifndef STK_PACKAGE_H
#define STK_PACKAGE_H

#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "store/store.h"

/* The project's folder: the nearest folder, at `folder` or above it, with .git, stoker.yaml or
 * pyproject.toml; else `folder` itself. */
const char *stk_package_root(const char *folder, stk_arena *arena);
/* Packs `root` into the store as a folder. STK_E_LIMIT over `max_bytes` (0: 100 MB); the message
 * names the largest files and .stokerignore. Later calls read only changed files. `ret_note` (in
 * `arena`): one sentence on the private files that were left out, or NULL. */
int stk_package_add(stk_store *store, const char *root, int64_t max_bytes, stk_arena *arena,
                    stk_artifact *ret, const char **ret_note, stk_err *err);
/* The same of these files below `root` alone (NULL-terminated, relative; NULL: all). */
int stk_package_add_only(stk_store *store, const char *root, const char *const *only,
                         int64_t max_bytes, stk_arena *arena, stk_artifact *ret,
                         const char **ret_note, stk_err *err);
/* The private files that stk_package_add would leave out, in a sentence as its `ret_note`. Reads
 * names, modes, and content only if the name doesn't decide; writes nothing. `store`: the folder of
 * the store. */
int stk_package_private(const char *store, const char *root, const char *const *only,
                        stk_arena *arena, const char **ret_note, stk_err *err);
/* Lays a package out in `folder` (must not exist) as it was packed, by hard links if possible, for
 * mounting read-only. Files only for their owner are only for us. */
int stk_package_view(stk_store *store, const char *digest, const char *folder, stk_err *err);

#endif
