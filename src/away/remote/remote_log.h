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

#include "base/arena.h"
#include "base/err.h"
#include "store/store.h"

typedef struct stk_remote_log stk_remote_log;

typedef struct stk_remote_log_config {
    stk_store *store; /* the log's thread opens it anew */
    const char *share_url, *run, *pipeline;
    const char *name;  /* of the run, or NULL */
    const char *stack; /* or NULL */
} stk_remote_log_config;

/* The log of a run that this store has, or is about to have; nobody is told yet. `config` stays as
 * it is until it begins. */
int stk_remote_log_open(const stk_remote_log_config *config, stk_remote_log **ret, stk_err *err);
/* A run of this store, new or old, goes on here: the log says so, with all that it lacks. An old
 * one's log is to be brought here before (stk_remote_log_fetch). STK_E_BUSY: another engine was
 * quicker. Also on failure the log stays open. */
int stk_remote_log_begin(stk_remote_log *log, stk_err *err);
/* Events up to this one are on record: never waits. What other processes put on record of the run
 * (tags) goes along; without news it is looked for every 10 seconds. */
void stk_remote_log_told(stk_remote_log *log, int64_t seq);
/* Waits until everything that was told of before is in the share, at most for most_ms: what is done
 * to a job after that is done by the one engine that the run has. STK_E_BUSY: not yet, or not any
 * more (as below); STK_E_ENV, STK_E_FULL: it can't be put there. Any thread. */
int stk_remote_log_wait(stk_remote_log *log, int64_t most_ms, stk_err *err);
/* STK_E_BUSY, with a sentence: the run was taken over by somebody; whoever asks stops, and touches
 * nothing more of it. */
int stk_remote_log_check(stk_remote_log *log, stk_err *err);
/* Waits until all is there, at most timeout_ms, of a share that fails a moment only, and frees;
 * NULL is fine. Of one that hasn't begun nothing is there. STK_E_ENV: the log lacks something. */
int stk_remote_log_close(stk_remote_log *log, int64_t timeout_ms, stk_err *err);

/* Is the run in a share, as far as this store knows? */
bool stk_remote_log_is_shared(stk_store *store, const char *run);
/* May something be added here to a run without an engine here (a tag, metadata)? STK_E_BUSY, with a
 * sentence: another machine's engine has it. */
int stk_remote_log_may_add(stk_store *store, const char *run, stk_err *err);
/* And to its log, what was added. Nothing where an engine here has the run, as that does it, and
 * where the run is in no share. *ret_told (or NULL): it was told of something. STK_E_BUSY: another
 * machine has gone on with it. */
int stk_remote_log_publish(const stk_remote_log_config *config, bool *ret_told, stk_err *err);

typedef struct stk_remote_run {
    const char *id, *name, *pipeline;
    const char *host, *user, *stack; /* who ran it last */
    int64_t created_ms, epoch;
} stk_remote_run;

/* Of an error: what is there is no run's record (garbled, cut, of another version). */
bool stk_remote_log_is_damage(int code);
/* The runs of a share, oldest first; one whose run.json can't be read has only its id. */
int stk_remote_log_runs(const char *share_url, stk_arena *arena, stk_remote_run **ret,
                        uint32_t *ret_n, stk_err *err);
/* What the share knows of a run and this store doesn't: its spec, its events, its artifacts (as
 * absent ones). `run`: an id, its unique beginning, a name or "latest"; ret_id gets the id.
 * STK_E_NOT_FOUND; STK_E_BUSY: here are events that the share hasn't, and there are others in their
 * place. */
int stk_remote_log_fetch(const char *share_url, const char *run, stk_store *store, bool with_cache,
                         char ret_id[40], stk_err *err);
/* Of such a run the files of all attempts that have ended: logs, results, cards. */
int stk_remote_log_fetch_files(const char *share_url, const char *run, stk_store *store,
                               stk_err *err);

#endif
