/* package: which of a project's files are its code, and what is their digest?
 *
 * Left out: what git ignores (.gitignore at every level, .git/info/exclude), what .stokerignore
 * names, .git, the store, sockets and devices. Links are kept as links where they stay inside, else
 * followed. Deterministic: sorted names, modes 0644/0755, no times.
 */
#ifndef STK_PACKAGE_H
#define STK_PACKAGE_H

#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "store/store.h"

/* The project's folder: the nearest one above `folder` with .git, stoker.yaml or pyproject.toml,
 * else `folder` itself. */
const char *stk_package_root(const char *folder, stk_arena *arena);
/* Packs `root` into the store as a folder. STK_E_FULL over `max_bytes` (0: 100 MB): the sentence
 * names the largest files and .stokerignore. */
int stk_package_add(stk_store *store, const char *root, int64_t max_bytes, stk_artifact *ret,
                    stk_err *err);

#endif
