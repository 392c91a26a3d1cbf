/* A run that is on record, to be taken up or looked at as it was begun. */
#ifndef STK_RUN_AGAIN_H
#define STK_RUN_AGAIN_H

#include "run/run.h"

/* Gives the spec the values that the run was begun with. STK_E_USAGE: none are on record. */
int stk_run_same_params(stk_spec *spec, const stk_view *view, stk_err *err);
/* Is what is to go on what began? Steps are the same, and (unless `use_new_code`) their code is. */
int stk_run_same_steps(const char *run, const stk_spec *old, const stk_spec *now, bool use_new_code,
                       stk_err *err);
/* Its stack, unless the options name one, and the machine that it simulates. In `arena`. */
void stk_run_same_place(const stk_view *view, stk_run_options *options, stk_arena *arena);
/* Of a run whose engine was killed a moment ago: until its guard, which ends its tasks, has let go
 * of it; for 5 seconds at most. */
void stk_run_await_end(stk_store *store, const char *run);
/* Which steps of the spec have their result in this run (NULL: all), for stk_plan_new_rest: in
 * `arena`. */
int stk_run_settled(const stk_spec *spec, const stk_view *view, stk_arena *arena,
                    const bool **ret_settled, stk_err *err);

#endif
