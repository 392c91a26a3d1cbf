/* Content on disk: lists a file or folder, computes its digest (docs/formats/task-directory.md),
 * and copies it. Refuses links and anything else but plain files and folders. */
#ifndef STK_STORE_DIGEST_H
#define STK_STORE_DIGEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "base/digest.h"
#include "base/err.h"

#define STK_DIGEST_CHUNK (16ll << 20)
#define STK_TREE_BYTES (1ll << 50) /* in all files, including holes */
enum { STK_TREE_DEPTH = 200, STK_TREE_FILES = 20 * 1000 * 1000 };

/* A file's metadata; changes with every write. */
typedef struct stk_stamp {
    uint64_t ino;
    int64_t size;
    int64_t mtime_ns, ctime_ns;
} stk_stamp;

typedef struct stk_tree_file {
    const char *path; /* relative; "" when the tree is one file */
    int64_t size;
    stk_stamp stamp; /* taken before its content is read */
    uint64_t first_chunk;
    bool is_dir;
} stk_tree_file;

typedef struct stk_tree {
    const char *root; /* borrowed */
    stk_arena *arena;
    stk_tree_file *files; /* sorted by path, including folders */
    size_t n;
    uint32_t cap;
    uint64_t n_chunks;
    int64_t size; /* bytes in all files */
    bool is_dir;
    bool foreign;            /* has files that belong to another user or have hard links */
    const atomic_bool *stop; /* borrowed, or NULL: once it is set, long work on this tree fails with
                                STK_E_CANCELLED */
    bool is_cold;            /* reads content from the disk, not from the page cache */
    bool is_calm;            /* … slowly, by one thread */
} stk_tree;

/* `lock_down`: makes files, and the folders below the root, read-only during the walk (except
 * foreign files). STK_E_NOT_FOUND, STK_E_USAGE for a link or a device, STK_E_LIMIT. */
int stk_tree_walk(const char *path, bool lock_down, stk_tree *ret, stk_err *err);
/* The same until `stop` (or NULL) is set; the tree keeps `stop`. */
int stk_tree_walk_until(const char *path, bool lock_down, const atomic_bool *stop, stk_tree *ret,
                        stk_err *err);
void stk_tree_done(stk_tree *tree);
/* Uses several threads. STK_E_STORE if a file changed since the walk. Does not read holes. */
int stk_tree_digest(const stk_tree *tree, char ret_hex[STK_DIGEST_HEX + 1], stk_err *err);
/* Copies into `to`, which must not exist; shares blocks if the file system can, and keeps holes. On
 * failure a partial copy stays. */
int stk_tree_copy(const stk_tree *tree, const char *to, stk_err *err);
/* Digest of a file or folder; STK_E_CANCELLED once `stop` (or NULL) is set. */
int stk_tree_digest_until(const char *path, const atomic_bool *stop,
                          char ret_hex[STK_DIGEST_HEX + 1], stk_err *err);
/* Copies bytes [0, size) of one open file to another in the same way. Returns 0 or errno
 * (ECANCELED: `stop`, which may be NULL, was set; ESTALE: the file shrank). */
int stk_tree_copy_data(int in, int out, int64_t size, const atomic_bool *stop);
/* A stamp as text. For a folder it covers everything inside, but not the folder itself, whose stamp
 * a move changes. */
enum { STK_STAMP_TEXT = 96 };
void stk_stamp_format(const stk_stamp *stamp, char ret[STK_STAMP_TEXT]);
void stk_stamp_of(const struct stat *st, stk_stamp *ret);
int stk_tree_stamp(const stk_tree *tree, char ret[STK_STAMP_TEXT], stk_err *err);
/* Removes the walked files as far as possible; stops once the tree's `stop` is set. */
void stk_tree_remove(const stk_tree *tree);
static inline bool stk_tree_is_stopped(const stk_tree *tree)
{
    return tree->stop != NULL && atomic_load_explicit(tree->stop, memory_order_relaxed);
}
/* Sets and returns STK_E_CANCELLED, for a tree whose `stop` was set. */
int stk_tree_stopped(const stk_tree *tree, stk_err *err);
/* The file digest of bytes in memory. */
void stk_tree_digest_bytes(const void *data, size_t len, char ret_hex[STK_DIGEST_HEX + 1]);

#define STK_TREE_AUTO __attribute__((cleanup(stk_tree_done))) stk_tree

#endif
