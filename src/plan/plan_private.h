/* plan: what its files share. */
#ifndef STK_PLAN_PRIVATE_H
#define STK_PLAN_PRIVATE_H

#include "base/arena.h"
#include "plan/plan.h"

struct stk_plan {
    stk_arena *arena;
    const stk_spec *spec;
    uint32_t n_steps;
    stk_request *requests;
    /* needs of step i: needs[needs_start[i]] … needs[needs_start[i + 1]]; feeds likewise */
    uint32_t *needs_start, *needs;
    uint32_t *feeds_start, *feeds;
    uint32_t *order;
    const char **notes;
    uint32_t n_notes;
};

/* plan_graph.c: needs, feeds and order; a cycle is STK_E_SPEC. */
int stk_plan_build_graph(stk_plan *plan, stk_err *err);
/* plan_request.c: requests and notes. */
int stk_plan_build_requests(stk_plan *plan, const stk_capacity *capacity, stk_policy policy,
                            stk_err *err);
int stk_plan_no_memory(stk_err *err);

#endif
