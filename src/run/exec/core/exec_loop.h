/* What a task is called, and what is asked of its number. */
#ifndef STK_EXEC_LOOP_H
#define STK_EXEC_LOOP_H

#include "run/exec/core/exec_state.h"

uint32_t stk_exec_attempt(const stk_exec *x,
                          uint32_t task); /* durable number of the current attempt */
const stk_step *stk_exec_step(const stk_exec *x, uint32_t task);
/* Absolute attempt directory, in `arena`. */
const char *stk_exec_dir(const stk_exec *x, uint32_t task, uint32_t attempt, stk_arena *arena);
/* A file in it, in x->scratch; NULL: out of memory. */
const char *stk_exec_file_in_dir(stk_exec *x, uint32_t task, uint32_t attempt, const char *name);
/* Its key, parts and inputs, without asking whether the cache has it. */
int stk_exec_key_of(stk_exec *x, uint32_t task, stk_err *err);

/* The run is to end, for this reason; called again: without grace. */
int stk_exec_cancel(stk_exec *x, const char *why, stk_err *err);
/* What the run holds on this host is given back before its end is on record: a run that says that
 * it has ended leaves no control group, no server and no guardian, whoever kills the engine next.
 */
void stk_exec_close_backend(stk_exec *x);

/* <task> of its directory: 0 of a static step. */
uint32_t stk_exec_id(const stk_exec *x, uint32_t task);
/* "step 'train'", of a graph that grows with the task: in `arena`; NULL: out of memory. */
const char *stk_exec_who(const stk_exec *x, uint32_t task, stk_arena *arena);

/* The values of its secrets, NULL-terminated, or NULL where it has none. */
const char *const *stk_exec_hidden(const stk_settings *settings, stk_arena *arena);
/* Text of a step that is shown (errors, warnings, notes): its secrets are stars. NULL for NULL, and
 * when out of memory. */
const char *stk_exec_hide(const stk_settings *settings, const char *text, stk_arena *arena);
/* In the cards that an attempt, or a rank of it, left in `dir`. */
void stk_exec_hide_in_cards(const stk_settings *settings, const char *dir, stk_arena *arena);

stk_sched_task stk_exec_sched_task(const stk_plan *plan, uint32_t i_step,
                                   const stk_request *request);
/* What TASK_RETRYING says in its data that the next attempt gets more of. */
stk_grows stk_exec_grows(const stk_json *data);
/* Folds an event of which the scheduler learns no more than the task. */
int stk_exec_fold(stk_sched *sched, int kind, uint32_t task, stk_err *err);
/* An attempt that an earlier engine began is the scheduler's first. */
int stk_exec_fold_begun(stk_sched *sched, uint32_t task, stk_err *err);

#endif
