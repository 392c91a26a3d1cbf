/* run_tell: the other tools that hear of a run. */
#ifndef STK_RUN_TELL_H
#define STK_RUN_TELL_H

#include "run/observe/observe.h"
#include "run/run_plan.h"

/* Opens what stoker.yaml and the environment name; *ret NULL: nothing. */
int stk_run_tell(const stk_run_plan *p, const stk_run_options *options, const stk_run_calls *calls,
                 const char *run, const stk_view *view, stk_observe **ret, stk_err *err);

#endif
