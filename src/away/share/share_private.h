/* Inside the share room: what a kind of store must do. */
#ifndef STK_SHARE_PRIVATE_H
#define STK_SHARE_PRIVATE_H

#include <stdatomic.h>
#include <sys/stat.h>

#include "away/share/share.h"
#include "base/digest.h"

/* At once: parts of a file, files of a folder (each of which may have parts). */
enum { SHARE_GET_MAX = 64 << 20, SHARE_PARTS = 4, SHARE_FILES = 8, SHARE_THREADS_MAX = 8 };

typedef int stk_share_each(void *arg, const char *key, int64_t size, int64_t mtime_ms);

/* As in share.h; keys are checked, buffers have a limit. */
typedef struct stk_share_ops {
    int (*put)(stk_share *share, const char *key, const void *data, size_t n, bool only_new,
               stk_err *err);
    /* `digest`: the file's, or NULL: content of any kind. With one an interrupted transfer may be
     * continued, and what arrived need not be safe from a power cut before `sync`. */
    int (*put_file)(stk_share *share, const char *key, const char *path, const char *digest,
                    stk_err *err);
    int (*get)(stk_share *share, const char *key, int64_t from, bool whole, stk_buf *ret,
               stk_err *err);
    /* Into `path`, which may hold the beginning of an earlier try when there is a digest; what is
     * there in the end fits it. `size`: as far as known, else -1. */
    int (*get_file)(stk_share *share, const char *key, const char *path, const char *digest,
                    int64_t size, stk_err *err);
    int (*look)(stk_share *share, const char *key, int64_t *ret_size, stk_err *err);
    int (*list)(stk_share *share, const char *prefix, const char *after, stk_share_each *each,
                void *arg, stk_err *err);
    int (*remove)(stk_share *share, const char *key, stk_err *err);
    int (*sync)(stk_share *share, stk_err *err); /* NULL: nothing to do */
    /* NULL: there are no such URLs. */
    int (*link)(stk_share *share, const char *key, int64_t seconds, stk_buf *ret, stk_err *err);
    void (*close)(stk_share *share); /* NULL: nothing to do */
} stk_share_ops;

struct stk_share {
    const stk_share_ops *ops;
    char *url;
    char *folder;          /* a folder's path, or NULL */
    struct stk_s3 *s3;     /* S3, or NULL */
    int cancel_fd;         /* readable once cancelled */
    atomic_bool cancelled; /* the same, for what is summed and copied */
    bool hurries;          /* stk_share_hurry */
    _Atomic bool swept;    /* the folder's leftovers were looked at */
    _Atomic bool seen;     /* the folder had something in it */
};

int stk_share_open_folder(const char *path, stk_share *share, stk_err *err);
/* The open folder (O_PATH) that a key of a shared folder lies in, and the key's last part. `make`:
 * with those that are missing. -1 with errno: ELOOP where a link is on the way. */
int stk_share_parent(const stk_share *share, const char *key, bool make, const char **ret_last);
/* The file itself, as it was opened; -1 with errno: ENOENT where it is no file, ELOOP as above. */
int stk_share_open_object(const stk_share *share, const char *key, struct stat *ret_st);
/* STK_E_STORE, for that. */
int stk_share_behind_link(const stk_share *share, const char *key, stk_err *err);
int stk_share_open_s3(const char *where, stk_share *share, stk_err *err); /* bucket/prefix */

/* --- the list of a folder's files --- */

#define SHARE_TREE_HEAD "stoker-tree-1\n"

typedef struct stk_share_tree_file {
    const char *digest, *path; /* of the text */
    int64_t size;
} stk_share_tree_file;

typedef struct stk_share_tree {
    stk_share_tree_file *files;
    char **rest; /* "+x PATH": executable; "+d PATH": a folder without files */
    uint64_t n, n_rest;
} stk_share_tree;

/* `text` (ends in '\0') is cut into lines, and lives as long as the tree. Every path stays below
 * the folder. STK_E_STORE: it isn't the list of `digest`, or no folder's that we make. */
int stk_share_tree_read(char *text, size_t len, const char *digest, stk_share_tree *ret,
                        stk_err *err);
void stk_share_tree_done(stk_share_tree *tree);
#define STK_SHARE_TREE_AUTO __attribute__((cleanup(stk_share_tree_done))) stk_share_tree

/* Calls job(arg, 0 … n - 1), `at_once` of them; stops at the first error, which is returned. */
int stk_share_parallel(uint32_t at_once, uint64_t n,
                       int (*job)(void *arg, uint64_t i, stk_err *err), void *arg, stk_err *err);
/* ops->put_file; one that doesn't fit is told with what it needs. */
int stk_share_send_file(stk_share *share, const char *key, const char *path, const char *digest,
                        stk_err *err);
int stk_share_no_memory(const stk_share *share, stk_err *err);
/* STK_E_STORE, "'name' was changed", unless `hex` is the digest. */
int stk_share_check_digest(const char *name, const char *hex, const char *digest, stk_err *err);
/* The same of a file here. */
int stk_share_verify(const stk_share *share, const char *path, const char *key, const char *digest,
                     stk_err *err);
/* The digest of a file or folder here. STK_E_CANCELLED as soon as the share is. */
int stk_share_sum(const stk_share *share, const char *path, char ret_hex[STK_DIGEST_HEX + 1],
                  stk_err *err);
int stk_share_absent(const stk_share *share, const char *key, stk_err *err); /* NOT_FOUND */
bool stk_share_is_cancelled(const stk_share *share);
int stk_share_cancelled(const stk_share *share, stk_err *err);              /* CANCELLED */
int stk_share_taken(const stk_share *share, const char *key, stk_err *err); /* BUSY */

#endif
