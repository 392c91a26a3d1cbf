/* run_plan: forecasts a run without starting it, for `stoker plan`. */
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
    stk_findings devices; /* problems of the devices */
    stk_run_containers containers;
    stk_run_elsewhere elsewhere;
    stk_plan *plan;
    const int64_t *peaks;
    stk_policy policy;
    uint32_t n_own_notes; /* the plan's own notes; those about the host follow */
    stk_store *store;
    stk_forecast *forecast; /* NULL: no store yet, so no hits */
    /* Results of stk_run_plan_forecast. */
    bool *hits;           /* by step: the cache has its result */
    const char **misses;  /* by step: why not; NULL: a growing run finds that out later */
    const char **reads;   /* by step that is a hit: "data.csv, $LR", what it read; or NULL */
    const char **origins; /* by step that is a hit: that its result was made on the CPU; or NULL */
    uint32_t n_hits;
    const char **notes; /* about the steps that would run, and the host */
    uint32_t n_notes;
} stk_run_plan;

/* For a plan with a spec and an arena: finds places, devices, and the peaks of earlier runs. */
int stk_run_plan_prepare(stk_run_plan *p, const stk_run_options *options, stk_err *err);
/* Finds places and devices, and plans. Pulls, builds and starts nothing. The caller closes *ret,
 * also after an error. */
int stk_run_plan_open(const stk_spec *spec, const stk_run_options *options, stk_run_plan *ret,
                      stk_err *err);
/* Finds what would come from the cache, and the notes. */
int stk_run_plan_forecast(stk_run_plan *p, stk_err *err);
void stk_run_plan_close(stk_run_plan *p);
#define STK_RUN_PLAN_AUTO __attribute__((cleanup(stk_run_plan_close))) stk_run_plan

/* The most ranks that the document's num_parallel gives a task of the step; 1 without it. */
uint32_t stk_run_plan_ranks(const stk_spec *spec, uint32_t i_step);

#endif
