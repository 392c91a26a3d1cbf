/* `stoker plan` of a document that grows (docs/decisions/0009): where a step's tasks come from. */
#ifndef STK_CLI_PLAN_GROW_H
#define STK_CLI_PLAN_GROW_H

#include <stdint.h>

#include "base/buf.h"
#include "model/spec/spec.h"

/* "one for each item of 'todo' of start", "joins a, b". */
void stk_cli_plan_way(const stk_spec *spec, uint32_t i_step, stk_buf *out);
/* `"join":…,"from":[{"step","grows","on","n"}…],` */
void stk_cli_plan_way_json(const stk_spec *spec, uint32_t i_step, stk_buf *out);
/* The most ranks that a document's num_parallel gives a task of the step; 1 where none does. */
uint32_t stk_cli_plan_ranks(const stk_spec *spec, uint32_t i_step);

#endif
