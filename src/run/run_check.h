/* Checks between a pipeline and its plan, for `run`, `plan` and `why`: devices, frameworks, and the
 * peaks of earlier runs. */
#ifndef STK_RUN_CHECK_H
#define STK_RUN_CHECK_H

#include "host/preflight/preflight.h"
#include "image/stack/stack.h"
#include "run/run.h"

/* Call it before planning, if steps ask for devices. Removes unfit devices from the list and keeps
 * the findings (with an arena). */
int stk_run_check_devices(const stk_spec *spec, stk_accel *accel, stk_findings *findings,
                          stk_err *err);
/* Call it after planning, if steps get devices. Findings about `devices` and frameworks become
 * notes of the plan. STK_E_RESOURCES: a framework that a step uses can't use the step's devices.
 * Steps in containers (`places`) have frameworks of their own. */
int stk_run_check_steps(const stk_spec *spec, const stk_run_options *options,
                        const stk_place *places, stk_accel *accel, const stk_findings *devices,
                        stk_plan *plan, stk_err *err);
/* STOKER_ALLOW_CPU_BUILD is on, in the step's environment or ours. */
bool stk_run_allows_cpu_build(const stk_step *step);
/* The device memory that earlier runs of each step used at most, for stk_plan_new. NULL if no step
 * gives gpu_memory, or there is no store yet. In `arena`. */
int stk_run_gpu_peaks(const stk_spec *spec, stk_arena *arena, const int64_t **ret_peaks,
                      stk_err *err);
/* STOKER_IDLE_READ: time after which idle reading checks an artifact again; 0 turns it off. */
int64_t stk_run_idle_read_ms(void);

#endif
