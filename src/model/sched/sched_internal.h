/* Functions that the files of this room share; sched_state.h has the state. */
#ifndef STK_SCHED_INTERNAL_H
#define STK_SCHED_INTERNAL_H

#include "model/sched/sched_state.h"

static inline stk_sched_kind *stk_sched_kind_at(const stk_sched *sched, uint32_t i)
{
    return (stk_sched_kind *)sched->kinds.items + i;
}

static inline const stk_sched_policy *stk_sched_policy_of(const stk_sched *sched, uint32_t task)
{
    return (const stk_sched_policy *)sched->policies.items + sched->nodes[task].retry;
}

/* True if no further task will start. */
static inline bool stk_sched_is_stopping(const stk_sched *sched)
{
    return sched->is_cancelling ||
           (sched->config.mode != STK_MODE_CONTINUE && sched->n[STK_TASK_FAILED] > 0);
}

static inline void stk_sched_free_now(const stk_sched *sched, int64_t ret_free[DIM_N])
{
    for (int d = 0; d < DIM_N; d++) { /* used[DIM_AWAY_MEMORY] stays 0 */
        ret_free[d] = sched->cap[d] - sched->used[d];
    }
}

/* True if at least `reserve` remains of every dimension that `ask` uses. */
static inline bool stk_sched_fits(const int64_t ask[DIM_N], const int64_t free[DIM_N],
                                  const int64_t reserve[DIM_N])
{
    for (int d = 0; d < DIM_RATIONED; d++) {
        if (ask[d] > 0 && (ask[d] > free[d] || free[d] - ask[d] < reserve[d])) {
            return false;
        }
    }
    return true;
}

static inline bool stk_sched_is_starved(const stk_sched *sched, const stk_sched_kind *kind)
{
    return kind->is_claimed || sched->n_starts - kind->n_starts >= STK_SCHED_PATIENCE;
}

static inline const stk_sched_wish *stk_sched_wish_of(const stk_sched *sched,
                                                      const stk_sched_kind *kind)
{
    if (kind->wish == STK_SCHED_NIL) {
        return NULL;
    }
    return (const stk_sched_wish *)sched->wishes.items + kind->wish;
}

/* The memory dimension that on_oom can increase: this machine's, or another's. */
static inline int stk_sched_memory_dim(const int64_t ask[DIM_N])
{
    return ask[DIM_AWAY_MEMORY] > 0 ? DIM_AWAY_MEMORY : DIM_MEMORY;
}

/* True if its place already runs as many jobs as it may, so that reserving anything here would not
 * help. */
static inline bool stk_sched_is_place_full(const int64_t ask[DIM_N], const int64_t free[DIM_N])
{
    bool is_full = false;
    for (int d = DIM_PLACE; d < DIM_RATIONED; d++) {
        is_full = is_full || ask[d] > free[d];
    }
    return is_full;
}

/* The reason to report when a dimension is short. */
static inline int stk_sched_why_of(int dim)
{
    switch (dim) {
    case DIM_CPU:
        return STK_WHY_CPU;
    case DIM_MEMORY:
        return STK_WHY_MEMORY;
    case DIM_WORKERS:
        return STK_WHY_WORKERS;
    default:
        return STK_WHY_PLACE;
    }
}

/* sched_graph.c */
/* The number of the kind with this request (asks as in `wish`; NULL: no devices). Makes room for it
 * in every list of kinds. NIL: out of memory. */
uint32_t stk_sched_intern(stk_sched *sched, const int64_t ask[DIM_N], const stk_sched_wish *wish);
void stk_sched_move(stk_sched *sched, uint32_t task, stk_task_state to);
void stk_sched_doom_dependents(stk_sched *sched, uint32_t task, uint32_t cause);
/* sched_devices.c */
int stk_sched_devices_init(stk_sched *sched);
void stk_sched_devices_done(stk_sched *sched);
void stk_sched_wish_of_task(const stk_sched_task *task, stk_sched_wish *ret_wish);
/* True if the wish could be met on `host` with all devices free that are not gone. */
bool stk_sched_is_placeable(const stk_sched *sched, const stk_pack_device *host,
                            const stk_sched_wish *wish);
/* True if the event of a start names devices that `task` asked for and that this run hasn't taken.
 */
bool stk_sched_may_take(const stk_sched *sched, const stk_sched_event *event);
int stk_sched_grants_reserve(stk_sched *sched);
void stk_sched_take(stk_sched *sched, const stk_sched_event *event);
void stk_sched_give_back(stk_sched *sched, uint32_t grant);
void stk_sched_set_outside(stk_sched *sched, uint32_t device, int32_t mib);
void stk_sched_set_gone(stk_sched *sched, uint32_t device);
void stk_sched_set_claimed(stk_sched *sched, uint32_t task, const stk_devset *devices);
/* Sets the view to what is free now; the functions below use and change it. */
void stk_sched_look(const stk_sched *sched);
bool stk_sched_place(const stk_sched *sched, const stk_sched_wish *wish, uint32_t *ret_i_ask,
                     stk_devset *ret_devices);
void stk_sched_view_take(const stk_sched *sched, const stk_pack_ask *ask,
                         const stk_devset *devices);
void stk_sched_view_close(const stk_sched *sched, const stk_devset *devices);
/* Gives the starved `kind` a reservation if it has none; false: none is possible. */
bool stk_sched_reserve_devices(const stk_sched *sched, stk_sched_kind *kind);

/* sched_retry.c */
int stk_sched_failures_reserve(stk_sched *sched);
void stk_sched_count_failure(stk_sched *sched, uint32_t task, stk_failure failure, bool saved);
/* The task's kind after growing; NIL: it can't grow, or out of memory. */
uint32_t stk_sched_grown_kind(stk_sched *sched, uint32_t task, stk_grows grows);
/* Marks the next attempt of a failed task as its fallback. */
void stk_sched_set_fallback(stk_sched *sched, uint32_t task);
/* Charges the last failure to on_oom. */
void stk_sched_count_grown(stk_sched *sched, uint32_t task);
uint64_t stk_sched_digest_failures(const stk_sched *sched, uint32_t task, uint64_t hash);

/* sched_fold.c */
bool stk_sched_timer_is_stale(const stk_sched *sched, const stk_sched_timer *timer);
void stk_sched_timer_drop(stk_sched *sched); /* drops the earliest timer */

#endif
