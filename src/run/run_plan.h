/* run_plan: what a run would do, without the run. `stoker plan`. */
#ifndef STK_RUN_PLAN_H
#define STK_RUN_PLAN_H

#include "host/preflight/preflight.h"
#include "run/run_containers.h"
#include "run/run_elsewhere.h"

typedef struct stk_run_plan {
    const stk_spec *spec; /* the caller's */
    stk_arena *arena;
    stk_accel *accel;
    stk_capacity capacity;
    stk_findings devices; /* what speaks against them */
    stk_run_containers containers;
    stk_run_elsewhere elsewhere;
    stk_plan *plan;
    const int64_t *peaks;
    stk_policy policy;
    uint32_t n_own_notes; /* the plan's own notes; those about the host follow */
    stk_store *store;
    stk_forecast *forecast; /* NULL: no store yet, nothing can hit */
    /* Of stk_run_plan_forecast. */
    bool *hits;          /* by step: it comes from the cache */
    const char **misses; /* by step: why it doesn't; NULL: a growing run finds that out */
    uint32_t n_hits;
    const char **notes; /* about the steps that would run, and the host */
    uint32_t n_notes;
} stk_run_plan;

/* Of one that has a spec and an arena: places, devices, and what earlier runs needed of them. */
int stk_run_plan_prepare(stk_run_plan *p, const stk_run_options *options, stk_err *err);
/* Finds places and devices and plans; nothing is pulled, built or started. *ret must be closed,
 * also after an error. */
int stk_run_plan_open(const stk_spec *spec, const stk_run_options *options, stk_run_plan *ret,
                      stk_err *err);
/* What would come from the cache, and the notes. */
int stk_run_plan_forecast(stk_run_plan *p, stk_err *err);
void stk_run_plan_close(stk_run_plan *p);
#define STK_RUN_PLAN_AUTO __attribute__((cleanup(stk_run_plan_close))) stk_run_plan

/* The most ranks that a document's num_parallel gives a task of the step; 1 where none does. */
uint32_t stk_run_plan_ranks(const stk_spec *spec, uint32_t i_step);

#endif
