/* share: objects and artifacts that several machines reach: in a folder (NFS, Lustre, or local), in
 * S3 (AWS's, or a compatible service: AWS_ENDPOINT_URL), or in a folder of a host that ssh reaches
 * (away/link).
 *
 * A key is text with '/' in it, like a path below the store's URL: at most 900 bytes, no empty, "."
 * or ".." part, no control character; parts of at most 255 bytes. It isn't below ".tmp", nor is it
 * ".gitignore" or ".stokerignore", which belong to the folder. A NULL key (it couldn't be
 * allocated) is STK_E_NOMEM. Readers see an object whole or not at all, and it survives a power cut
 * once put has returned. Artifacts: docs/formats/shared-stores.md.
 *
 * All functions are thread-safe. They retry failures that may pass (throttling, cut connections,
 * expired credentials, a wrong clock). An error is one sentence with the known facts:
 * STK_E_NOT_FOUND, STK_E_BUSY (see put), STK_E_ENV (out of reach, refused), STK_E_FULL (no room:
 * how much was needed, how much is free), STK_E_LIMIT, STK_E_STORE (the content doesn't match its
 * digest). */
#ifndef STK_SHARE_H
#define STK_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "away/link/link.h"
#include "base/buf.h"
#include "base/err.h"
#include "store/store.h"

typedef struct stk_share stk_share;

enum { STK_SHARE_KEY_MAX = 900 };

/* "s3://bucket/prefix", "file:///abs", "/abs", "ssh://[user@]host[:port]/abs" or
 * "ssh://[user@]host[:port]/~/below-the-home-there". Makes no request and creates nothing.
 * STK_E_USAGE. */
int stk_share_open(const char *url, stk_share **ret, stk_err *err);
void stk_share_close(stk_share *share); /* NULL is fine */
static inline void stk_share_close_auto(stk_share **share)
{
    stk_share_close(*share);
}
#define STK_SHARE_AUTO __attribute__((cleanup(stk_share_close_auto))) stk_share *
/* Ends running and later calls with STK_E_CANCELLED, within the time of one write to a disk. Any
 * thread and signal handlers may call it. Unfinished objects have no name in the share. */
void stk_share_cancel(stk_share *share);
/* Limits S3 requests to two tries of 2 s of silence, requests to a host to 5 s: for a caller that
 * can't wait and can do without the answer. Call it before threads share the handle. */
void stk_share_hurry(stk_share *share);
const char *stk_share_url(const stk_share *share);
const char *stk_share_folder(const stk_share *share); /* the folder's path; NULL: none here */
/* How long to retry after a failure that may pass: 15 minutes, or STOKER_SHARE_WAIT seconds. */
int64_t stk_share_patience_ms(void);
/* May this error pass: out of reach, full? Refusals don't (no permission, read-only, invalid
 * credentials, no such bucket or host): their `sys` is EACCES, EPERM, EROFS, ENXIO or ENOEXEC. */
bool stk_share_may_pass(const stk_err *err);
/* Is the store at fault: unreachable, or without an object that it should have? */
bool stk_share_is_at_fault(int code);
/* Checks that the store can be written, listed, read and deleted from. Else the error says why: no
 * such bucket, no credentials, expired, denied, a wrong clock. */
int stk_share_check(stk_share *share, stk_err *err);

/* `only_new`: STK_E_BUSY if the object exists. Of two concurrent calls exactly one succeeds; the
 * other can read the winner's content. */
int stk_share_put(stk_share *share, const char *key, const void *data, size_t n, bool only_new,
                  stk_err *err);
int stk_share_put_file(stk_share *share, const char *key, const char *path, stk_err *err);
/* Appends the object to `ret`, up to its limit (0: 64 MiB); a larger one is STK_E_LIMIT. */
int stk_share_get(stk_share *share, const char *key, stk_buf *ret, stk_err *err);
/* Reads from an offset, for objects that grow: appends at most what `ret` takes, and nothing at the
 * end. */
int stk_share_get_range(stk_share *share, const char *key, int64_t from, stk_buf *ret,
                        stk_err *err);
/* Writes the file `path` whole or not at all. */
int stk_share_get_file(stk_share *share, const char *key, const char *path, stk_err *err);
/* Lists keys that begin with `prefix` (NULL: all) and sort after `after` (NULL: from the first), in
 * byte order. Stops if `each` returns non-zero, and returns that. */
int stk_share_list(stk_share *share, const char *prefix, const char *after,
                   int (*each)(void *arg, const char *key, int64_t size, int64_t mtime_ms),
                   void *arg, stk_err *err);
/* Lists the folders directly below `prefix`, which ends in '/', in byte order: `each` gets their
 * names. What lies deeper costs nothing, or (over ssh) one request a folder. */
int stk_share_list_folders(stk_share *share, const char *prefix,
                           int (*each)(void *arg, const char *name), void *arg, stk_err *err);
int stk_share_delete(stk_share *share, const char *key, stk_err *err); /* absent is fine */
/* Deletes all objects below a key. An interrupted call leaves some of them. */
int stk_share_delete_all(stk_share *share, const char *below, stk_err *err);
/* Appends a URL that gives anyone read access for `seconds`. STK_E_USAGE: folders have no such
 * URLs. */
int stk_share_link(stk_share *share, const char *key, int64_t seconds, stk_buf *ret, stk_err *err);

/* Answers requests on objects of any bucket and key, some at a time: `text` has one in each line,
 * as JSON; `out` gets as many lines, in the same order (docs/formats/engine-command-line.md).
 * Failures of single requests are in their answers. STK_E_USAGE: a line isn't a request. */
int stk_share_answer(const char *text, size_t n, stk_buf *out, stk_err *err);

/* --- artifacts, by digest; `store` belongs to the calling thread --- */

int stk_share_has(stk_share *share, const char *digest, bool *ret, stk_err *err);
/* The size of an artifact that is a file; -1: the share has no such file. */
int stk_share_size(stk_share *share, const char *digest, int64_t *ret_size, stk_err *err);
/* Does nothing if the share has it. Continues an interrupted push. */
int stk_share_push(stk_share *share, stk_store *store, const char *digest, stk_err *err);
/* Verifies the artifact before it adds it to the store; does nothing if the store has it. Continues
 * an interrupted pull. */
int stk_share_pull(stk_share *share, stk_store *store, const char *digest, stk_err *err);

/* --- the same for content that isn't an artifact: it has a key of its own and can be removed
 * --- */

/* Pushes a file or folder with this digest, which must not change meanwhile (STK_E_STORE: it
 * did). */
int stk_share_push_path(stk_share *share, const char *under, const char *path, const char *digest,
                        stk_err *err);
/* Pulls into the empty folder `stage` and verifies. *ret_path: the result's path, malloc'd. */
int stk_share_pull_path(stk_share *share, const char *under, const char *digest, const char *stage,
                        char **ret_path, stk_err *err);

/* --- the far end of ssh:// stores, for stk_link_serve --- */

extern const stk_link_op stk_share_far_ops[];

#endif
