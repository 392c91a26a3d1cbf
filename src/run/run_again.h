/* Restores from a run's record how it began, to resume or inspect it. */
#ifndef STK_RUN_AGAIN_H
#define STK_RUN_AGAIN_H

#include "run/run.h"

/* Sets the spec's parameters to the run's values. STK_E_USAGE: the record has none. */
int stk_run_same_params(stk_spec *spec, const stk_view *view, stk_err *err);
/* Checks that the steps are the same as in the run and, unless `use_new_code`, their code. */
int stk_run_same_steps(const char *run, const stk_spec *old, const stk_spec *now, bool use_new_code,
                       stk_err *err);
/* Sets the run's stack, unless the options name one, and its simulated machine. In `arena`. */
void stk_run_same_place(const stk_view *view, stk_run_options *options, stk_arena *arena);
/* If the run's engine was just killed, its guard is still ending its tasks: waits until the guard
 * releases the run, for at most 5 seconds. */
void stk_run_await_end(stk_store *store, const char *run);
/* Finds the steps of the spec that have their result in this run (NULL: all do), for
 * stk_plan_new_rest. In `arena`. */
int stk_run_settled(const stk_spec *spec, const stk_view *view, stk_arena *arena,
                    const bool **ret_settled, stk_err *err);

#endif
