/* What is looked at between a pipeline and its plan, by `run`, `plan` and `why`: devices,
 * frameworks, what earlier runs needed. */
#ifndef STK_RUN_CHECK_H
#define STK_RUN_CHECK_H

#include "host/preflight/preflight.h"
#include "image/stack/stack.h"
#include "run/run.h"

/* Before the plan, where steps ask for devices: what isn't fit is taken out of the list; the
 * findings (with an arena) are kept. */
int stk_run_check_devices(const stk_spec *spec, stk_accel *accel, stk_findings *findings,
                          stk_err *err);
/* After it, where steps get some: what `devices` says and what speaks against the frameworks become
 * notes of the plan; a framework that can't use the devices of a step that uses it is
 * STK_E_RESOURCES. Steps that `places` has in containers have frameworks of their own. */
int stk_run_check_steps(const stk_spec *spec, const stk_run_options *options,
                        const stk_place *places, stk_accel *accel, const stk_findings *devices,
                        stk_plan *plan, stk_err *err);
/* STOKER_ALLOW_CPU_BUILD is on, in the step's environment or ours. */
bool stk_run_allows_cpu_build(const stk_step *step);
/* What earlier runs of each step needed of a device's memory, for stk_plan_new; NULL where no step
 * says gpu_memory, or no store is there yet. Lives in `arena`. */
int stk_run_gpu_peaks(const stk_spec *spec, stk_arena *arena, const int64_t **ret_peaks,
                      stk_err *err);

#endif
