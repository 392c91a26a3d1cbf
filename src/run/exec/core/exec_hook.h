/* Hooks of steps that the engine runs. */
#ifndef STK_EXEC_HOOK_H
#define STK_EXEC_HOOK_H

#include "run/exec/core/exec_end.h"

extern const char *const stk_exec_hook_names[]; /* by stk_hook_when */

/* A Python task calls its own Python hooks; any other on_start hook is a job before the attempt. */
bool stk_exec_has_start_job(const stk_step *step);
/* Starts hook number `when` of a task that doesn't run it itself; *ret_any false: it has none, it
 * ended under an earlier engine, or it can't be started, which is a note. */
int stk_exec_launch_hook(stk_exec *x, uint32_t task, stk_hook_when when, bool *ret_any,
                         stk_err *err);
/* After the end of a task: those that it did not run itself. `error` NULL: it succeeded. */
int stk_exec_run_hooks(stk_exec *x, uint32_t task, const stk_result *result, const char *error,
                       stk_err *err);
/* Of tasks that succeeded under an earlier engine: those that it did not see end. */
int stk_exec_catch_up(stk_exec *x, uint32_t task, stk_err *err);
int stk_exec_hook_ended(stk_exec *x, const stk_report *report, stk_err *err);

#endif
