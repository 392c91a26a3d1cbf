/* plan: what a run would do (run/run_plan.h), for people and programs. */
#ifndef STK_SHOW_PLAN_H
#define STK_SHOW_PLAN_H

#include "run/run_plan.h"

void stk_show_plan_text(const stk_run_plan *p, stk_buf *out);
/* One line, as docs/formats/engine-command-line.md describes it. */
void stk_show_plan_json(const stk_run_plan *p, stk_buf *out);

/* --- shared by text and JSON --- */

/* Returns true and the devices that the step would get if it ran alone. Returns false if the
 * devices are real, not simulated, or if none of the step's asks fits. */
bool stk_show_plan_devices(const stk_run_plan *p, const stk_request *r, stk_devset *ret_devices);
/* Where the tasks of a growing document come from: "one for each item of 'todo' of start", "joins
 * a, b". */
void stk_show_plan_way(const stk_spec *spec, uint32_t i_step, stk_buf *out);

#endif
