/* remote_log: a run's record where other machines can read it, and take it over
 * (docs/formats/shared-stores.md, "Runs").
 *
 * What the engine commits is put to runs/<run>/log/<n> by a thread, in order, the artifacts that it
 * names before it: what is there is a true prefix. A number is made only once, so of two engines
 * exactly one goes on; the other one finds its next number taken, and stops. How far this store
 * knows the log stands in runs/<run>/share.json beside the run's folder.
 */
#ifndef STK_REMOTE_LOG_H
#define STK_REMOTE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "away/share/share.h"
#include "base/arena.h"
#include "base/err.h"
#include "store/store.h"

typedef struct stk_remote_log stk_remote_log;

typedef struct stk_remote_log_config {
    stk_store *store; /* the log's thread opens its own handle */
    const char *share_url, *run, *pipeline;
    const char *name;  /* of the run, or NULL */
    const char *stack; /* or NULL */
} stk_remote_log_config;

/* Opens the log of a run that this store has or will have; writes nothing yet. `config` must not
 * change before stk_remote_log_begin. */
int stk_remote_log_open(const stk_remote_log_config *config, stk_remote_log **ret, stk_err *err);
/* Announces that a new or old run of this store continues here, and writes the events that the log
 * lacks. For an old run call stk_remote_log_fetch before. STK_E_BUSY: another engine was quicker.
 * The log stays open also on failure. */
int stk_remote_log_begin(stk_remote_log *log, stk_err *err);
/* Tells the log that events up to this one are on record; never waits. Events of other processes
 * (tags) go along; without news the log checks for them every 10 seconds. */
void stk_remote_log_told(stk_remote_log *log, int64_t seq);
/* Waits until the share has all announced events, at most most_ms. After that only this engine acts
 * on the run's jobs. STK_E_BUSY: not yet, or another engine took over (as below); STK_E_ENV,
 * STK_E_FULL: the share can't take them. Any thread may call it. */
int stk_remote_log_wait(stk_remote_log *log, int64_t most_ms, stk_err *err);
/* STK_E_BUSY, with a sentence: another engine took over the run; the caller stops and leaves the
 * run as it is. */
int stk_remote_log_check(stk_remote_log *log, stk_err *err);
/* Waits until the share has all events, at most timeout_ms (a failing share gets only a moment),
 * and frees the log; NULL is fine. Writes nothing of a log that hasn't begun. STK_E_ENV: the share
 * lacks events. */
int stk_remote_log_close(stk_remote_log *log, int64_t timeout_ms, stk_err *err);

/* True if, by this store's record, the run is in a share. */
bool stk_remote_log_is_shared(stk_store *store, const char *run);
/* Checks that a tag or metadata may be added here to a run that has no engine here. STK_E_BUSY,
 * with a sentence: another machine's engine has the run. */
int stk_remote_log_may_add(stk_store *store, const char *run, stk_err *err);
/* Names who continues a run instead of this store's engine, by the newest batch of the log: "USER
 * on HOST"; "": nobody, or the run is in no share. Reads only. */
int stk_remote_log_taker(const char *share_url, stk_store *store, const char *run, char ret[300],
                         stk_err *err);
/* Adds that to the run's log in the share. Does nothing if an engine here has the run, which does
 * it itself, or if the run is in no share. *ret_told (or NULL): there was something to add.
 * STK_E_BUSY: another machine has continued the run. */
int stk_remote_log_publish(const stk_remote_log_config *config, bool *ret_told, stk_err *err);

typedef struct stk_remote_run {
    const char *id, *name, *pipeline;
    const char *host, *user, *stack; /* of its last engine */
    int64_t created_ms, epoch;
} stk_remote_run;

/* True for errors of one run alone, others may be intact: a record that is garbled, cut, or of
 * another version, or files of it that can't be read or kept. */
bool stk_remote_log_is_damage(const stk_err *err);
/* Lists the runs of a share, oldest first. A run with an unreadable run.json has only its id. */
int stk_remote_log_runs(const char *share_url, stk_arena *arena, stk_remote_run **ret,
                        uint32_t *ret_n, stk_err *err);
/* Fetches what this store lacks of a run in the share: spec, events, artifacts (as absent ones).
 * `run`: an id, its unique beginning, a name or "latest"; ret_id gets the id. STK_E_NOT_FOUND: no
 * such run. STK_E_BUSY: store and share have different events in the same place. */
int stk_remote_log_fetch(const char *share_url, const char *run, stk_store *store, bool with_cache,
                         char ret_id[40], stk_err *err);
/* The same by parts, for who follows a share. What its run.json says of a run; STK_E_NOT_FOUND: it
 * has none (yet). */
int stk_remote_run_read(stk_share *share, const char *id, stk_arena *arena, stk_remote_run *ret,
                        stk_err *err);
/* Finds a run by its id, the id's unique beginning, its name or "latest", as stk_remote_log_fetch.
 */
int stk_remote_run_find(stk_share *share, const char *text, stk_arena *arena, stk_remote_run *ret,
                        stk_err *err);
/* As stk_remote_log_fetch, of this run; of one that the store has, only the id counts. Without
 * `checks_gap` a quiet run costs one request, but a missing batch looks like the log's end. */
int stk_remote_log_fetch_known(stk_share *share, const stk_remote_run *run, stk_store *store,
                               bool with_cache, bool checks_gap, stk_err *err);

/* Fetches the files of an ended attempt ("runs/<run>/<step>/<task>/<attempt>") of so many nodes to
 * `dir`: logs, results, cards. A file that is larger than `most` (of metrics: STK_LIVE_BYTES) is
 * left; *ret_left: there is one. STK_E_NOT_FOUND: the share has no end of it. */
bool stk_remote_log_has_attempt(const char *dir); /* all of its files were fetched */
int stk_remote_log_fetch_attempt(stk_share *share, const char *key, const char *dir, uint32_t nodes,
                                 int64_t most, bool *ret_left, stk_err *err);

#endif
