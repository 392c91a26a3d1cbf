/* Threads for slow work on files: digests, copies, removals, and reading old artifacts when idle.
 */
#ifndef STK_EXEC_SUM_H
#define STK_EXEC_SUM_H

#include "run/exec/core/exec_state.h"

typedef struct exec_sum exec_sum;
typedef struct exec_idle exec_idle;
typedef struct exec_aside exec_aside;

typedef enum { EXEC_ASIDE_LOOKUP, EXEC_ASIDE_LAUNCH, EXEC_ASIDE_END } exec_aside_kind;
/* Kinds of work: move an output to the store, copy a file to it, only hash a file. */
typedef enum {
    EXEC_SUM_OUTPUT = 'o',
    EXEC_SUM_COPY = 'c',
    EXEC_SUM_FILE = 'f',
    EXEC_SUM_CHECK = 'a', /* check an artifact that is here */
    EXEC_SUM_FETCH = 'g', /* fetch an artifact that only the share has */
    EXEC_SUM_REMOVE = 'r'
} exec_sum_kind;
/* `from` (or NULL) fetches artifacts into the store at `store_path`. */
int stk_exec_sum_open(const stk_exec_elsewhere *from, const char *store_path, exec_sum **ret,
                      stk_err *err);
void stk_exec_sum_close(exec_sum *sum); /* NULL is fine; stops running work */
/* Begins a new turn of the loop, after it checked signals. */
void stk_exec_sum_turn(exec_sum *sum);
/* True if the work is for a thread: a large file, a folder, or too much work for this turn.
 * `known`: its digest, or NULL. */
bool stk_exec_sum_is_long(exec_sum *sum, const stk_store *store, exec_sum_kind what,
                          const char *path, const char *known);
/* Asks for work. *ret_work NULL: a thread is doing it, and the caller puts its action aside. An
 * error is the work's own. */
int stk_exec_sum_ask(exec_sum *sum, stk_store *store, exec_sum_kind what, const char *path,
                     const char *known, stk_store_work **ret_work, stk_err *err);
/* Call it at the end of a look-up, a launch or an end, with its *ret_rc. Returns true if the action
 * asked for work that isn't done yet: then the action is repeated later, and its result doesn't
 * count. Otherwise releases the work that the action asked for before; an end still uses it and
 * drops it itself. *ret_rc: STK_E_NOMEM. */
bool stk_exec_sum_aside(stk_exec *x, uint32_t task, exec_aside_kind kind,
                        const stk_outcome *outcome, int *ret_rc, stk_err *err);
bool stk_exec_sum_waits(const stk_exec *x, uint32_t task);
/* Drops the waiting action, and stops work that only this action needs. Returns false if no action
 * waited. */
bool stk_exec_sum_drop(stk_exec *x, uint32_t task, exec_aside_kind *ret_kind);
/* stk_store_add_path for an output; a thread has hashed a large one before. */
int stk_exec_sum_take(stk_exec *x, const char *path, const char *known, stk_artifact *ret,
                      stk_err *err);
/* Call it before using an artifact: checks its digest if necessary. *ret_comes: a thread is doing
 * it. STK_E_STORE: the artifact is damaged, and in quarantine. `sum` NULL: checks at once. */
int stk_exec_sum_artifact(exec_sum *sum, stk_store *store, const char *digest, bool *ret_comes,
                          stk_err *err);
/* Fetches an artifact that may be only in the share. *ret_comes: a thread is doing it. An error:
 * the fetch failed. */
int stk_exec_sum_fetch(exec_sum *sum, const char *digest, bool *ret_comes, stk_err *err);
/* stk_exec_sum_artifact for all digests in a JSON text; then waits for all requested work. A signal
 * ends the waiting, and *ret_all is false. */
int stk_exec_sum_ask_all(stk_exec *x, const char *json, stk_err *err);
int stk_exec_sum_wait(stk_exec *x, bool *ret_all, stk_err *err);
/* Removes a file or folder in a thread. */
void stk_exec_sum_remove(stk_exec *x, const char *path);
int stk_exec_sum_fd(const exec_sum *sum); /* readable: call the next */
int stk_exec_summed(stk_exec *x, stk_err *err);
/* Waits until all removals are done, or until a signal. */
void stk_exec_sum_finish(stk_exec *x);

/* Call it when the engine is idle: reads artifacts that weren't read for long. *wake_ms: as in
 * stk_sched_next. */
int stk_exec_idle(stk_exec *x, int64_t *wake_ms, stk_err *err);
void stk_exec_idle_close(struct exec_idle *idle); /* NULL is fine */
/* Wakes the loop so that it calls stk_exec_idle. */
void stk_exec_sum_wake(exec_sum *sum);

#endif
