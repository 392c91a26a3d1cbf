/* Private to share: the functions of a kind of store. */
#ifndef STK_SHARE_PRIVATE_H
#define STK_SHARE_PRIVATE_H

#include <stdatomic.h>
#include <sys/stat.h>

#include "away/share/share.h"
#include "base/digest.h"

/* Limits of parallel transfers: parts of a file, files of a folder (each may have parts). */
enum { SHARE_GET_MAX = 64 << 20, SHARE_PARTS = 4, SHARE_FILES = 8, SHARE_THREADS_MAX = 8 };

typedef int stk_share_each(void *arg, const char *key, int64_t size, int64_t mtime_ms);
typedef int stk_share_each_folder(void *arg, const char *name);

/* As in share.h. The caller has checked the keys and set a limit on each buffer. */
typedef struct stk_share_ops {
    int (*put)(stk_share *share, const char *key, const void *data, size_t n, bool only_new,
               stk_err *err);
    /* `digest`: the file's; NULL: unknown content. With a digest the store may continue an
     * interrupted transfer, and the data need not be safe from a power cut before `sync`. */
    int (*put_file)(stk_share *share, const char *key, const char *path, const char *digest,
                    stk_err *err);
    int (*get)(stk_share *share, const char *key, int64_t from, bool whole, stk_buf *ret,
               stk_err *err);
    /* Writes `path`. With a digest, the file may hold the beginning of an earlier try, and the
     * result matches the digest. `size`: -1: unknown. */
    int (*get_file)(stk_share *share, const char *key, const char *path, const char *digest,
                    int64_t size, stk_err *err);
    int (*look)(stk_share *share, const char *key, int64_t *ret_size, stk_err *err);
    int (*list)(stk_share *share, const char *prefix, const char *after, stk_share_each *each,
                void *arg, stk_err *err);
    /* NULL: found by jumping from one folder's first object to the next folder's. */
    int (*list_folders)(stk_share *share, const char *prefix, stk_share_each_folder *each,
                        void *arg, stk_err *err);
    int (*remove)(stk_share *share, const char *key, stk_err *err);
    /* Everything below a key, and its folders; NULL: objects are removed one by one. */
    int (*remove_all)(stk_share *share, const char *below, stk_err *err);
    int (*sync)(stk_share *share, stk_err *err); /* NULL: nothing to do */
    /* NULL: the store has no such URLs. */
    int (*link)(stk_share *share, const char *key, int64_t seconds, stk_buf *ret, stk_err *err);
    void (*close)(stk_share *share); /* NULL: nothing to do */
    /* Putting a file with a digest up to this size costs no more than asking whether it is there.
     */
    int64_t small;
} stk_share_ops;

struct stk_share {
    const stk_share_ops *ops;
    char *url;
    char *folder;              /* path of a shared folder; NULL: S3 or ssh */
    struct stk_s3 *s3;         /* NULL: no bucket */
    struct stk_share_ssh *ssh; /* NULL: no host of ssh */
    int cancel_fd;             /* readable once cancelled */
    atomic_bool cancelled;     /* the same, for loops that sum or copy */
    bool hurries;              /* stk_share_hurry */
    _Atomic bool swept;        /* the folder's leftovers have been removed */
    _Atomic bool seen;         /* the folder has had an entry */
};

int stk_share_open_folder(const char *path, stk_share *share, stk_err *err);
/* Opens (O_PATH) the folder of a key in a shared folder; *ret_last: the key's last part. `make`:
 * creates missing folders. -1 with errno: ELOOP if a link is on the way. */
int stk_share_parent(const stk_share *share, const char *key, bool make, const char **ret_last);
/* Opens the key's file. -1 with errno: ENOENT if it isn't a regular file, ELOOP as above. */
int stk_share_open_object(const stk_share *share, const char *key, struct stat *ret_st);
/* Sets the STK_E_STORE error for a link on the way. */
int stk_share_behind_link(const stk_share *share, const char *key, stk_err *err);
bool stk_share_syncs(void); /* STOKER_SYNC isn't 0 */
/* "can't `what` 'path'", by errno. */
int stk_share_failed(const char *what, const char *path, stk_err *err);
/* The error of an object, by its errno; 0: none. */
int stk_share_object_failed(const stk_share *share, const char *key, const char *what, int sys,
                            stk_err *err);

/* A file that is being written, below .tmp. */
typedef struct stk_share_temporary {
    int dir;
    char name[40];
    bool stays; /* its name is not to be removed */
} stk_share_temporary;

/* Opens .tmp, and makes it if it's missing. */
int stk_share_open_tmp(stk_share *share, int *ret_dir, stk_err *err);
/* A name that nobody else has. */
int stk_share_new_temporary(stk_share *share, stk_share_temporary *ret, stk_err *err);
void stk_share_temporary_done(stk_share_temporary *t);
#define STK_SHARE_TEMPORARY_AUTO                                                                   \
    __attribute__((cleanup(stk_share_temporary_done))) stk_share_temporary
/* Gives what was written the name of its key. `only_new`: STK_E_BUSY if there is one; it then keeps
 * its own name, too. */
int stk_share_publish(stk_share *share, const stk_share_temporary *t, const char *key,
                      bool only_new, bool sync, stk_err *err);
/* Opens an object's file. */
int stk_share_open_read(stk_share *share, const char *key, int *ret_fd, struct stat *ret_st,
                        stk_err *err);
/* Is it a name that a file below .tmp may have? */
bool stk_share_is_temporary(const char *name);
int stk_share_open_ssh(const char *where, stk_share *share, stk_err *err); /* host/path */
int stk_share_open_s3(const char *where, stk_share *share, stk_err *err);  /* bucket/prefix */

/* --- the list of a folder's files --- */

#define SHARE_TREE_HEAD "stoker-tree-1\n"

typedef struct stk_share_tree_file {
    const char *digest, *path; /* point into the text */
    int64_t size;
} stk_share_tree_file;

typedef struct stk_share_tree {
    stk_share_tree_file *files;
    char **rest; /* "+x PATH": executable; "+d PATH": a folder without files */
    uint64_t n, n_rest;
} stk_share_tree;

/* Cuts `text` (ends in '\0') into lines; it must live as long as the tree. Every path stays below
 * the folder. STK_E_STORE: the text isn't the list of `digest`, or not one that we would write. */
int stk_share_tree_read(char *text, size_t len, const char *digest, stk_share_tree *ret,
                        stk_err *err);
void stk_share_tree_done(stk_share_tree *tree);
#define STK_SHARE_TREE_AUTO __attribute__((cleanup(stk_share_tree_done))) stk_share_tree

/* Calls job(arg, 0 … n - 1), `at_once` of them in parallel; stops at the first error and returns
 * it. */
int stk_share_parallel(uint32_t at_once, uint64_t n,
                       int (*job)(void *arg, uint64_t i, stk_err *err), void *arg, stk_err *err);
/* ops->put_file; if the file doesn't fit, the error says how much room it needs. */
int stk_share_send_file(stk_share *share, const char *key, const char *path, const char *digest,
                        stk_err *err);
/* What every request checks first. */
int stk_share_check_key(const stk_share *share, const char *key, stk_err *err);
/* `rc`; if it is STK_E_FULL, the error says what needs how much room, and how much there is. */
int stk_share_name_full(const stk_share *share, const char *key, int64_t n, int rc, stk_err *err);
int stk_share_no_memory(const stk_share *share, stk_err *err);
/* STK_E_STORE, "'name' was changed", unless `hex` is the digest. */
int stk_share_check_digest(const char *name, const char *hex, const char *digest, stk_err *err);
/* The same for a local file. */
int stk_share_verify(const stk_share *share, const char *path, const char *key, const char *digest,
                     stk_err *err);
/* The digest of a local file or folder. STK_E_CANCELLED as soon as the share is cancelled. */
int stk_share_sum(const stk_share *share, const char *path, char ret_hex[STK_DIGEST_HEX + 1],
                  stk_err *err);
int stk_share_absent(const stk_share *share, const char *key, stk_err *err); /* NOT_FOUND */
bool stk_share_is_cancelled(const stk_share *share);
int stk_share_cancelled(const stk_share *share, stk_err *err);              /* CANCELLED */
int stk_share_taken(const stk_share *share, const char *key, stk_err *err); /* BUSY */

#endif
