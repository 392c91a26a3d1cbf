/* fit: what of this host a request gets. The plan knows what is possible at all, leases what is
 * free now: for programs that run one step on a host without its run's scheduler. */
#ifndef STK_FIT_H
#define STK_FIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/devset.h"
#include "base/err.h"
#include "host/accel/accel.h"
#include "model/plan/plan.h"

/* This host's CPUs, memory and devices, for stk_plan_new. `where` names it in messages. Text lives
 * in `arena`. */
int stk_fit_capacity(stk_accel *accel, const char *where, stk_arena *arena, stk_capacity *ret,
                     stk_err *err);
/* The holders of these devices: "GPU 0 by run … step … (user ann, pid 5)", joined by "; ". In
 * `arena`. */
const char *stk_fit_holders(stk_accel *accel, const stk_devset *devices, stk_arena *arena);

/* A request that this host can hold. It borrows the capacity. */
typedef struct stk_fit {
    stk_spec *spec;
    stk_plan *plan;
    const stk_capacity *capacity;
    const stk_request *request;
} stk_fit;

/* `resources`: a step's, as a document has them (a JSON object). STK_E_RESOURCES: this host can
 * never hold them, and the text says what is the most. */
int stk_fit_make(const stk_capacity *capacity, const char *resources, stk_fit *ret, stk_err *err);
void stk_fit_done(stk_fit *fit);
#define STK_FIT_AUTO __attribute__((cleanup(stk_fit_done))) stk_fit

typedef struct stk_fit_now {
    bool is_free;        /* the devices that it asks for are free; true if it asks for none */
    uint32_t n_free;     /* devices of this host that are wholly free */
    stk_devset chosen;   /* if is_free */
    stk_devset wanted;   /* all that would do */
    int64_t share_bytes; /* of each chosen device; 0: whole */
} stk_fit_now;

int stk_fit_look(stk_accel *accel, const stk_fit *fit, stk_fit_now *ret, stk_err *err);
/* Leases devices for it. STK_E_BUSY: not enough are free, and the text names the holders. */
int stk_fit_lease(stk_accel *accel, const stk_fit *fit, const char *label, stk_lease *ret,
                  stk_err *err);

#endif
