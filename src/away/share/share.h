/* share: objects and artifacts where several machines reach them. A folder that they share (NFS,
 * Lustre, one machine's own), or S3 (AWS's, or anything that speaks it: AWS_ENDPOINT_URL).
 *
 * A key is text with '/' in it, as a path below the store's URL: at most 900 bytes, no empty, "."
 * or ".." part, no control character; parts of at most 255 bytes; not below ".tmp", and neither
 * ".gitignore" nor ".stokerignore" (a folder's own). One that couldn't be made (NULL) is
 * STK_E_NOMEM. An object is there whole or not at all, whoever writes, and survives a power cut
 * once put has returned. Artifacts: docs/formats/shared-stores.md.
 *
 * Every function may be called by several threads at once. Failures that pass by themselves
 * (throttling, cut connections, expired credentials, a clock that is wrong) are retried within;
 * an error is one sentence with what is known: STK_E_NOT_FOUND, STK_E_BUSY (see put), STK_E_ENV
 * (out of reach, refused), STK_E_FULL (no room: how much was needed, how much is free),
 * STK_E_LIMIT, STK_E_STORE (content isn't what its digest says).
 */
#ifndef STK_SHARE_H
#define STK_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "store/store.h"

typedef struct stk_share stk_share;

enum { STK_SHARE_KEY_MAX = 900 };

/* "s3://bucket/prefix", "file:///abs" or "/abs". Nothing is asked or made yet. STK_E_USAGE. */
int stk_share_open(const char *url, stk_share **ret, stk_err *err);
void stk_share_close(stk_share *share); /* NULL is fine */
static inline void stk_share_close_auto(stk_share **share)
{
    stk_share_close(*share);
}
#define STK_SHARE_AUTO __attribute__((cleanup(stk_share_close_auto))) stk_share *
/* Ends what is under way and all that is asked from now on (STK_E_CANCELLED), within the time of
 * one write to a disk; from any thread, and from a signal handler. What was being summed, copied or
 * sent has no name in the share then. */
void stk_share_cancel(stk_share *share);
/* From now on S3 is asked twice at most and given up after 2 s without a word: for a caller that
 * can't wait and can do without the answer. Before it is used by several threads. */
void stk_share_hurry(stk_share *share);
const char *stk_share_url(const stk_share *share);
const char *stk_share_folder(const stk_share *share); /* where it is a folder, else NULL */
/* For how long it is worth while to ask again after such a failure: 15 minutes, or
 * STOKER_SHARE_WAIT seconds. */
int64_t stk_share_patience_ms(void);
/* Might it pass: out of reach, full? What is refused doesn't (no right, read-only, credentials that
 * never were any, no such bucket): its errors have EACCES, EPERM or EROFS as `sys`. */
bool stk_share_may_pass(const stk_err *err);
/* Is it the store that is at fault: it can't be asked, or hasn't got what ought to be there? */
bool stk_share_is_at_fault(int code);
/* Can it be written, listed, read, deleted? One sentence if not: no such bucket, no credentials,
 * expired, denied, a wrong clock. */
int stk_share_check(stk_share *share, stk_err *err);

/* `only_new`: STK_E_BUSY when there is one already (of two at once exactly one succeeds; the other
 * finds the first one's content). */
int stk_share_put(stk_share *share, const char *key, const void *data, size_t n, bool only_new,
                  stk_err *err);
int stk_share_put_file(stk_share *share, const char *key, const char *path, stk_err *err);
/* Appended to `ret`, up to its limit (0: 64 MiB): more is STK_E_LIMIT. */
int stk_share_get(stk_share *share, const char *key, stk_buf *ret, stk_err *err);
/* From an offset on, for what grows: appends at most what `ret` takes, nothing when there is no
 * more. */
int stk_share_get_range(stk_share *share, const char *key, int64_t from, stk_buf *ret,
                        stk_err *err);
/* Into the file `path`, which is there whole or not at all. */
int stk_share_get_file(stk_share *share, const char *key, const char *path, stk_err *err);
/* Keys that begin with `prefix` (NULL: all) and stand behind `after` (NULL: from the first), in
 * bytes' order. Ends when `each` returns other than 0, and returns that. */
int stk_share_list(stk_share *share, const char *prefix, const char *after,
                   int (*each)(void *arg, const char *key, int64_t size, int64_t mtime_ms),
                   void *arg, stk_err *err);
int stk_share_delete(stk_share *share, const char *key, stk_err *err); /* absent is fine */
/* Everything below a key. Who is interrupted leaves some of it. */
int stk_share_delete_all(stk_share *share, const char *below, stk_err *err);
/* A URL by which anybody may get it for `seconds`, appended. STK_E_USAGE: a folder has none. */
int stk_share_link(stk_share *share, const char *key, int64_t seconds, stk_buf *ret, stk_err *err);

/* --- artifacts, by digest; `store` is the calling thread's --- */

int stk_share_has(stk_share *share, const char *digest, bool *ret, stk_err *err);
/* Nothing when it is there. Goes on where one that was interrupted has stopped. */
int stk_share_push(stk_share *share, stk_store *store, const char *digest, stk_err *err);
/* Verified before it is in the store; nothing when that has it. Goes on where one that was
 * interrupted has stopped. */
int stk_share_pull(stk_share *share, stk_store *store, const char *digest, stk_err *err);

/* --- the same of what is no artifact: it lies below a key of its own, and can be removed --- */

/* A file or folder, and its digest: it mustn't change meanwhile (STK_E_STORE: it did). */
int stk_share_push_path(stk_share *share, const char *under, const char *path, const char *digest,
                        stk_err *err);
/* Into the folder `stage`, where nothing else is; verified. *ret_path: where, malloc'd. */
int stk_share_pull_path(stk_share *share, const char *under, const char *digest, const char *stage,
                        char **ret_path, stk_err *err);

#endif
