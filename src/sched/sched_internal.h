/* sched, seen from inside: how the state is kept.
 *
 * A task is one 64-byte node in exactly one list, chosen by its state (stk_sched_move is the only
 * thing that changes either, and the counters and resources with them). Its edges lie together: the
 * needs of task t are edges[t.first_need … first_need of t+1). Each edge is also a link in the ring
 * of those who depend on the same task, in the order they were added. Ready tasks queue by distinct
 * request (`kind`), so that one that doesn't fit is passed over with all of its like at once.
 */
#ifndef STK_SCHED_INTERNAL_H
#define STK_SCHED_INTERNAL_H

#include "sched/sched.h"

#define STK_SCHED_NIL UINT32_MAX

/* What is rationed. An `ask` has one amount of each. */
enum { DIM_CPU, DIM_MEMORY, DIM_DEVICES, DIM_WORKERS, DIM_N };

typedef struct stk_sched_node {
    uint64_t seq;  /* place in the order of becoming ready */
    int64_t at_ms; /* not before, of the last TASK_RETRYING; 0: none since it started */
    uint32_t prev, next;
    uint32_t attempt;
    uint32_t n_charged; /* failures by who pays for them */
    uint32_t n_free;
    uint32_t n_open; /* needs that haven't succeeded */
    uint32_t first_need;
    uint32_t last_dependent; /* edge; its `next` is the first one */
    uint32_t kind;
    uint32_t retry;
    uint32_t cause; /* the failed task because of which this one can't run */
    uint8_t state;
    bool lookup;
} stk_sched_node;

_Static_assert(sizeof(stk_sched_node) == 64, "a task is one cache line");

typedef struct stk_sched_edge {
    uint32_t need;
    uint32_t task;
    uint32_t next; /* edge: the next one that needs `need` */
} stk_sched_edge;

typedef struct stk_sched_list {
    uint32_t first, last;
} stk_sched_list;

/* A distinct request and the ready tasks that made it. */
typedef struct stk_sched_kind {
    int64_t ask[DIM_N]; /* the key, with the next */
    uint64_t device_kind;
    stk_sched_list ready;  /* in order of seq */
    uint64_t n_starts;     /* the schedule's count when the first one became first */
    int64_t not_before_ms; /* BUSY was answered */
    uint32_t busy_tries;
    uint32_t i_live; /* index in `live`, while `ready` isn't empty */
} stk_sched_kind;

typedef struct stk_sched_policy {
    int64_t delay_ms;
    double backoff;
    double jitter;
    uint64_t max_retries;
} stk_sched_policy;

/* Items that are told apart by their first key_bytes, each kept once. */
typedef struct stk_sched_pool {
    void *items;
    uint32_t *slots; /* item + 1; 0: empty */
    size_t item_bytes, key_bytes;
    uint32_t n, cap, n_slots;
} stk_sched_pool;

typedef struct stk_sched_timer {
    int64_t at_ms;
    uint32_t task; /* stale unless it is in BACKOFF with the same at_ms */
} stk_sched_timer;

typedef struct stk_sched_candidate {
    uint64_t seq;
    uint32_t kind;
    uint32_t task;
    bool is_starved;
    bool is_busy;
} stk_sched_candidate;

struct stk_sched {
    stk_sched_config config;
    int64_t cap[DIM_N];
    int64_t used[DIM_N];
    int64_t least[DIM_N]; /* of each, over all asks so far: when less is free, nothing can start */
    stk_sched_node *nodes;
    uint32_t n_nodes, cap_nodes;
    stk_sched_edge *edges;
    uint32_t n_edges, cap_edges;
    stk_sched_pool kinds;                       /* stk_sched_kind */
    stk_sched_pool policies;                    /* stk_sched_policy */
    uint32_t *live;                             /* kinds with ready tasks; as many slots as kinds */
    stk_sched_candidate *candidates;            /* scratch of stk_sched_next; likewise */
    uint32_t n_live, cap_live;                  /* cap_live: of both */
    stk_sched_timer *timers;                    /* heap */
    uint32_t n_timers, cap_timers;              /* */
    stk_sched_list lists[STK_TASK_BACKOFF + 1]; /* by state, but for ready tasks */
    stk_sched_list doomed;                      /* WAITING with a cause */
    uint64_t n[STK_TASK_N];
    uint64_t n_final;
    uint64_t seq;
    uint64_t n_starts;
    int64_t wake_ms;
    bool is_idle; /* the last stk_sched_next gave nothing, and nothing changed since */
    bool is_cancelling;
    bool is_ended;
};

static inline stk_sched_kind *stk_sched_kind_at(const stk_sched *sched, uint32_t i)
{
    return (stk_sched_kind *)sched->kinds.items + i;
}

static inline const stk_sched_policy *stk_sched_policy_of(const stk_sched *sched, uint32_t task)
{
    return (const stk_sched_policy *)sched->policies.items + sched->nodes[task].retry;
}

/* Nothing that hasn't started will. */
static inline bool stk_sched_is_stopping(const stk_sched *sched)
{
    return sched->is_cancelling ||
           (sched->config.mode != STK_MODE_CONTINUE && sched->n[STK_TASK_FAILED] > 0);
}

/* True when `ask` leaves at least `reserve` of everything that it takes some of. */
static inline bool stk_sched_fits(const int64_t ask[DIM_N], const int64_t free[DIM_N],
                                  const int64_t reserve[DIM_N])
{
    for (int d = 0; d < DIM_N; d++) {
        if (ask[d] > 0 && (ask[d] > free[d] || free[d] - ask[d] < reserve[d])) {
            return false;
        }
    }
    return true;
}

static inline bool stk_sched_is_starved(const stk_sched *sched, const stk_sched_kind *kind)
{
    return sched->n_starts - kind->n_starts >= STK_SCHED_PATIENCE;
}

/* sched_graph.c */
void stk_sched_move(stk_sched *sched, uint32_t task, stk_task_state to);
void stk_sched_doom_dependents(stk_sched *sched, uint32_t task, uint32_t cause);
/* sched_fold.c */
bool stk_sched_timer_is_stale(const stk_sched *sched, const stk_sched_timer *timer);
void stk_sched_timer_drop(stk_sched *sched); /* the first one */

#endif
