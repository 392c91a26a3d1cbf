/* Names, paths and secrets of a task, and the run's cancellation. */
#ifndef STK_EXEC_LOOP_H
#define STK_EXEC_LOOP_H

#include "run/exec/core/exec_state.h"

uint32_t stk_exec_attempt(const stk_exec *x,
                          uint32_t task); /* durable number of the current attempt */
const stk_step *stk_exec_step(const stk_exec *x, uint32_t task);
/* Absolute attempt directory, in `arena`. */
const char *stk_exec_dir(const stk_exec *x, uint32_t task, uint32_t attempt, stk_arena *arena);
/* The path of a file in the attempt directory, in x->scratch; NULL: out of memory. */
const char *stk_exec_file_in_dir(stk_exec *x, uint32_t task, uint32_t attempt, const char *name);
/* Sets the task's cache key, its parts and inputs, without a look-up. */
int stk_exec_key_of(stk_exec *x, uint32_t task, stk_err *err);

/* Ends the run for this reason; a second call ends it without grace time. */
int stk_exec_cancel(stk_exec *x, const char *why, stk_err *err);
/* Releases what the run holds on this host, before it records its end: an ended run then leaves no
 * control group, server or guardian, even if the engine is killed next. */
void stk_exec_close_backend(stk_exec *x);

/* The <task> of its directory; 0 for a static step. */
uint32_t stk_exec_id(const stk_exec *x, uint32_t task);
/* "step 'train'", in a graph that grows with the task; in `arena`; NULL: out of memory. */
const char *stk_exec_who(const stk_exec *x, uint32_t task, stk_arena *arena);

/* The values of its secrets, NULL-terminated; NULL: it has none. */
const char *const *stk_exec_hidden(const stk_settings *settings, stk_arena *arena);
/* Puts the document of the steps' code into the store, with stars for the values of their secrets;
 * "" if the run has none. */
int stk_exec_keep_code(stk_exec *x, char ret_digest[STK_DIGEST_HEX + 1], stk_err *err);
/* Replaces the step's secrets by stars in a text that people see (errors, warnings, notes). Returns
 * NULL for NULL, or when out of memory. */
const char *stk_exec_hide(const stk_settings *settings, const char *text, stk_arena *arena);
/* The same in the cards that an attempt, or a rank of it, left in `dir`. */
void stk_exec_hide_in_cards(const stk_settings *settings, const char *dir, stk_arena *arena);

stk_sched_task stk_exec_sched_task(const stk_plan *plan, uint32_t i_step,
                                   const stk_request *request);
/* Reads from TASK_RETRYING's data what the next attempt gets more of. */
stk_grows stk_exec_grows(const stk_json *data);
/* Folds an event of which the scheduler needs only the task. */
int stk_exec_fold(stk_sched *sched, int kind, uint32_t task, stk_err *err);
/* Folds the start of an attempt of an earlier engine as the scheduler's first attempt. */
int stk_exec_fold_begun(stk_sched *sched, uint32_t task, stk_err *err);

#endif
