/* Inside the log: how far a store knows it, and one batch of it. */
#ifndef STK_REMOTE_LOG_PRIVATE_H
#define STK_REMOTE_LOG_PRIVATE_H

#include "away/remote/remote_log.h"
#include "away/share/share.h"
#include "base/buf.h"
#include "base/json.h"

enum { REMOTE_OWNER = 32, REMOTE_BATCH_BYTES = 256 << 20 };

/* runs/<run>/share.json of the store. */
typedef struct remote_mark {
    int64_t n;                    /* the last batch that is known here; -1: none */
    int64_t seq;                  /* the last event here that the share has */
    int64_t epoch;                /* of that batch */
    char owner[REMOTE_OWNER + 1]; /* the engine here that wrote last, "" none did */
} remote_mark;

/* Absent: nothing is known. */
int stk_remote_mark_read(stk_store *store, const char *run, remote_mark *ret, stk_err *err);
int stk_remote_mark_write(stk_store *store, const char *run, const remote_mark *mark, stk_err *err);

void stk_remote_log_key(const char *run, int64_t n, char ret[200]);
/* Batches behind `mark` that our own engine wrote before it died are known here already: the mark
 * moves over them. False: the next one is somebody else's, or there is none. */
int stk_remote_log_skip_own(stk_share *share, stk_store *store, const char *run, remote_mark *mark,
                            stk_err *err);
/* The first line of a batch. */
typedef struct remote_batch {
    int64_t epoch;
    const char *owner, *host, *user;
} remote_batch;
/* STK_E_NOT_FOUND: there is no batch n (yet). Its lines are in `arena`. */
int stk_remote_batch_read(stk_share *share, const char *run, int64_t n, stk_arena *arena,
                          remote_batch *ret, const char **ret_lines, stk_err *err);
/* A line of a batch: an event, and the cache entry that it speaks of. */
int stk_remote_batch_put_event(stk_buf *buf, stk_store *store, const stk_event_row *row,
                               stk_err *err);

#endif
