/* plan: what a run would do (run/run_plan.h), for people and programs. */
#ifndef STK_SHOW_PLAN_H
#define STK_SHOW_PLAN_H

#include "run/run_plan.h"

void stk_show_plan_text(const stk_run_plan *p, stk_buf *out);
/* As docs/formats/engine-command-line.md says; one line. */
void stk_show_plan_json(const stk_run_plan *p, stk_buf *out);

/* --- what both need --- */

/* On a simulated machine: the devices that a step would get if it ran alone, those of the first ask
 * that fits. */
bool stk_show_plan_devices(const stk_run_plan *p, const stk_request *r, stk_devset *ret_devices);
/* "one for each item of 'todo' of start", "joins a, b": where a growing document's tasks come
 * from. */
void stk_show_plan_way(const stk_spec *spec, uint32_t i_step, stk_buf *out);

#endif
