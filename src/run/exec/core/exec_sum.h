/* What threads do with files: sums, copies, removals, reading what nobody has read for long. */
#ifndef STK_EXEC_SUM_H
#define STK_EXEC_SUM_H

#include "run/exec/core/exec_state.h"

typedef struct exec_sum exec_sum;
typedef struct exec_idle exec_idle;
typedef struct exec_aside exec_aside;

typedef enum { EXEC_ASIDE_LOOKUP, EXEC_ASIDE_LAUNCH, EXEC_ASIDE_END } exec_aside_kind;
/* An output that is taken into the store, a file that is copied into it, one that is only summed.
 */
typedef enum {
    EXEC_SUM_OUTPUT = 'o',
    EXEC_SUM_COPY = 'c',
    EXEC_SUM_FILE = 'f',
    EXEC_SUM_CHECK = 'a', /* an artifact that is here, by its digest */
    EXEC_SUM_FETCH = 'g', /* one that only the share has */
    EXEC_SUM_REMOVE = 'r'
} exec_sum_kind;
/* `from` (NULL: none) has the artifacts that are fetched into the store at `store_path`. */
int stk_exec_sum_open(const stk_exec_elsewhere *from, const char *store_path, exec_sum **ret,
                      stk_err *err);
void stk_exec_sum_close(exec_sum *sum); /* NULL is fine; ends what is under way */
/* Signals were looked at. */
void stk_exec_sum_turn(exec_sum *sum);
/* Is it for a thread: large, a folder, or one too many of this turn? `known`: its digest, or NULL.
 */
bool stk_exec_sum_is_long(exec_sum *sum, const stk_store *store, exec_sum_kind what,
                          const char *path, const char *known);
/* *ret_work NULL: it is on its way, and what asks is to be put aside. An error: that of its run. */
int stk_exec_sum_ask(exec_sum *sum, stk_store *store, exec_sum_kind what, const char *path,
                     const char *known, stk_store_work **ret_work, stk_err *err);
/* At the end of a look-up, a launch or an end (its *ret_rc so far): has it asked for something that
 * isn't there yet? Then it is done anew later, nothing of it counts. Else what it asked for before
 * is let go of; an end still takes it, and drops it itself. *ret_rc: STK_E_NOMEM. */
bool stk_exec_sum_aside(stk_exec *x, uint32_t task, exec_aside_kind kind,
                        const stk_outcome *outcome, int *ret_rc, stk_err *err);
bool stk_exec_sum_waits(const stk_exec *x, uint32_t task);
/* It is not to be done any more; what is done for it alone ends. False: nothing waited. */
bool stk_exec_sum_drop(stk_exec *x, uint32_t task, exec_aside_kind *ret_kind);
/* stk_store_add_path of an output, which was summed before if that takes long. */
int stk_exec_sum_take(stk_exec *x, const char *path, const char *known, stk_artifact *ret,
                      stk_err *err);
/* Before an artifact is used: does it have to be summed? *ret_comes: that is on its way.
 * STK_E_STORE: it is damaged, and in quarantine. `sum` may be NULL: it is, when it is used. */
int stk_exec_sum_artifact(exec_sum *sum, stk_store *store, const char *digest, bool *ret_comes,
                          stk_err *err);
/* Of an artifact that may be in the share only: *ret_comes: it is on its way. An error: it couldn't
 * be fetched. */
int stk_exec_sum_fetch(exec_sum *sum, const char *digest, bool *ret_comes, stk_err *err);
/* The same as of stk_exec_sum_artifact for all digests that a text of JSON names; then all that was
 * asked for is waited for. A signal ends the waiting, and *ret_all is false. */
int stk_exec_sum_ask_all(stk_exec *x, const char *json, stk_err *err);
int stk_exec_sum_wait(stk_exec *x, bool *ret_all, stk_err *err);
/* Removes it by and by. */
void stk_exec_sum_remove(stk_exec *x, const char *path);
int stk_exec_sum_fd(const exec_sum *sum); /* readable: call the next */
int stk_exec_summed(stk_exec *x, stk_err *err);
/* Waits until all is removed; not once a signal has come, or comes. */
void stk_exec_sum_finish(stk_exec *x);

/* Where nothing else is to be done: reads what was not read for long. *wake_ms as of
 * stk_sched_next. */
int stk_exec_idle(stk_exec *x, int64_t *wake_ms, stk_err *err);
void stk_exec_idle_close(struct exec_idle *idle); /* NULL is fine */
/* The loop is to call stk_exec_idle. */
void stk_exec_sum_wake(exec_sum *sum);

#endif
