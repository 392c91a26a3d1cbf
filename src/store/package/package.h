/* package: which of a project's files are its code, and what is their digest?
 *
 * Left out: what git ignores (.gitignore at every level up to the repository's top,
 * .git/info/exclude; files that git tracks are never ignored), what .stokerignore names (the same
 * grammar; it has the last word, so `!name` brings back what git ignores), .git, .stoker and the
 * store, virtual environments and __pycache__, sockets and devices. Links that stay inside are kept
 * as links, others are followed. Deterministic: sorted names, modes 0644/0755 and 0600/0700, no
 * times.
 *
 * Left out and told of: what is private (sys/private.h). A file that git tracks isn't private by
 * its mode; a line `!name` of .stokerignore whose last part begins with no wildcard takes a file
 * along, or a folder with all that is in it.
 *
 * An artifact holds plain files only, so what is executable, what is only for its owner and which
 * links there are stands in a file of its own in it (`.stoker-package`), which stk_package_view
 * reads.
 */
#ifndef STK_PACKAGE_H
#define STK_PACKAGE_H

#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "store/store.h"

/* The project's folder: the nearest one at or above `folder` with .git, stoker.yaml or
 * pyproject.toml, else `folder` itself. */
const char *stk_package_root(const char *folder, stk_arena *arena);
/* Packs `root` into the store as a folder. STK_E_LIMIT over `max_bytes` (0: 100 MB): the sentence
 * names the largest files and .stokerignore. A second time only changed files are read. `ret_note`
 * (in `arena`): one sentence on what was left out as private, or NULL. */
int stk_package_add(stk_store *store, const char *root, int64_t max_bytes, stk_arena *arena,
                    stk_artifact *ret, const char **ret_note, stk_err *err);
/* What stk_package_add would leave out as private, as its `ret_note`. Nothing is read but names,
 * modes and what names leave open, nothing is written. `store`: the folder of the store. */
int stk_package_private(const char *store, const char *root, stk_arena *arena,
                        const char **ret_note, stk_err *err);
/* Lays a package out in `folder` (must not exist) as it was packed, by hard links where possible:
 * for mounting read-only. What is only for its owner is only for us. */
int stk_package_view(stk_store *store, const char *digest, const char *folder, stk_err *err);

#endif
