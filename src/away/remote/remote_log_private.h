/* Shared by remote_log*.c: how far a store knows the log, and one batch of the log. */
#ifndef STK_REMOTE_LOG_PRIVATE_H
#define STK_REMOTE_LOG_PRIVATE_H

#include "away/remote/remote_log.h"
#include "away/share/share.h"
#include "base/buf.h"
#include "base/json.h"

enum { REMOTE_OWNER = 32, REMOTE_BATCH_BYTES = 256 << 20 };

/* runs/<run>/share.json of the store. */
typedef struct remote_mark {
    int64_t n;                    /* last batch that this store knows; -1: none */
    int64_t seq;                  /* last event here that the share has */
    int64_t epoch;                /* of that batch */
    char owner[REMOTE_OWNER + 1]; /* the last engine here that wrote; "": none */
} remote_mark;

/* A missing file means that the store knows nothing. */
int stk_remote_mark_read(stk_store *store, const char *run, remote_mark *ret, stk_err *err);
int stk_remote_mark_write(stk_store *store, const char *run, const remote_mark *mark, stk_err *err);

void stk_remote_log_key(const char *run, int64_t n, char ret[200]);
/* Moves the mark over batches that our own engine wrote before it died, because this store knows
 * their events. Returns false if the next batch is another engine's, or there is none. */
int stk_remote_log_skip_own(stk_share *share, stk_store *store, const char *run, remote_mark *mark,
                            stk_err *err);
/* The first line of a batch. */
typedef struct remote_batch {
    int64_t epoch;
    const char *owner, *host, *user;
} remote_batch;
/* Reads batch n; its lines are in `arena`. STK_E_NOT_FOUND: there is none (yet). */
int stk_remote_batch_read(stk_share *share, const char *run, int64_t n, stk_arena *arena,
                          remote_batch *ret, const char **ret_lines, stk_err *err);
/* Adds a line to a batch: an event and its cache entry. */
int stk_remote_batch_put_event(stk_buf *buf, stk_store *store, const stk_event_row *row,
                               stk_err *err);

#endif
