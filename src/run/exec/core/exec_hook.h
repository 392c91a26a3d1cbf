/* Hooks of steps that the engine runs. */
#ifndef STK_EXEC_HOOK_H
#define STK_EXEC_HOOK_H

#include "run/exec/core/exec_end.h"

extern const char *const stk_exec_hook_names[]; /* indexed by stk_hook_when */

/* True if the on_start hook is a job before the attempt; a Python task calls its Python hooks
 * itself. */
bool stk_exec_has_start_job(const stk_step *step);
/* Starts hook `when` of a task that doesn't run the hook itself. *ret_any false: there is none, it
 * ended under an earlier engine, or it can't start, which is a note. */
int stk_exec_launch_hook(stk_exec *x, uint32_t task, stk_hook_when when, bool *ret_any,
                         stk_err *err);
/* After a task's end: runs the hooks that the task didn't run itself. `error` NULL: it succeeded.
 */
int stk_exec_run_hooks(stk_exec *x, uint32_t task, const stk_result *result, const char *error,
                       stk_err *err);
/* Runs hooks of a task that succeeded under an earlier engine, if that saw no end of them. */
int stk_exec_catch_up(stk_exec *x, uint32_t task, stk_err *err);
int stk_exec_hook_ended(stk_exec *x, const stk_report *report, stk_err *err);

#endif
