/* run_standing: rebuilds a run's scheduler from its record, on this host. `stoker why` asks it what
 * a step waits for. */
#ifndef STK_RUN_STANDING_H
#define STK_RUN_STANDING_H

#include "model/sched/sched.h"
#include "run/run_containers.h"
#include "run/run_elsewhere.h"

typedef struct stk_run_standing {
    stk_accel *accel;
    stk_capacity capacity;
    stk_run_containers containers; /* the places of its steps, as far as they are known */
    stk_run_elsewhere elsewhere;
    stk_plan *plan;
    stk_sched *sched;
} stk_run_standing;

/* Zero-initialise; close it also after an error. */
int stk_run_standing_open(stk_store *store, const stk_view *view, stk_arena *arena,
                          stk_run_standing *ret, stk_err *err);
void stk_run_standing_close(stk_run_standing *s);
#define STK_RUN_STANDING_AUTO __attribute__((cleanup(stk_run_standing_close))) stk_run_standing
/* True unless the record names another host. */
bool stk_run_is_of_this_host(const stk_view_run *run, stk_arena *arena);

#endif
