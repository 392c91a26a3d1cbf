/* The scheduler's state, private to the room.
 *
 * A task is one 64-byte node in exactly one list, chosen by its state. Only stk_sched_move changes
 * state and list, and with them the counters and resources. A task's edges are adjacent: the needs
 * of task t are edges[t.first_need … first_need of t+1). Each edge is also a link in the ring of
 * all edges to the same needed task, in the order they were added. Ready tasks queue by distinct
 * request (`kind`), so that if one doesn't fit, all like it are passed over at once. Data that few
 * tasks have (held devices, failures) lies beside the nodes. */
#ifndef STK_SCHED_STATE_H
#define STK_SCHED_STATE_H

#include <stddef.h>

#include "model/sched/sched.h"

#define STK_SCHED_NIL UINT32_MAX

/* Rationed amounts. Last, the memory of a task elsewhere, which belongs to other machines and is
 * not counted here. An `ask` has one amount for each. */
enum {
    DIM_CPU,
    DIM_MEMORY,
    DIM_WORKERS,
    DIM_PLACE, /* one for each place */
    DIM_RATIONED = DIM_PLACE + STK_SCHED_PLACES,
    DIM_AWAY_MEMORY = DIM_RATIONED,
    DIM_N
};

typedef struct stk_sched_node {
    union {
        uint64_t seq;   /* READY: position in the order of becoming ready */
        uint32_t grant; /* RUNNING: index of its devices, or NIL */
    };
    int64_t at_ms; /* earliest start after the last TASK_RETRYING; 0: none since it started */
    uint32_t prev, next;
    uint32_t attempt;
    uint32_t failures; /* index of its failure record, or NIL: never failed */
    uint32_t n_open;   /* needs that haven't succeeded */
    uint32_t first_need;
    uint32_t last_dependent; /* edge; its `next` is the first dependent */
    uint32_t kind;
    uint32_t retry;
    uint32_t cause; /* the failed task that keeps this one from running */
    uint8_t state;
    bool lookup;
} stk_sched_node;

_Static_assert(sizeof(stk_sched_node) == 64, "a task is one cache line");

typedef struct stk_sched_edge {
    uint32_t need;
    uint32_t task;
    uint32_t next; /* edge: the next one with the same `need` */
} stk_sched_edge;

typedef struct stk_sched_list {
    uint32_t first, last;
} stk_sched_list;

/* A distinct request for devices. */
typedef struct stk_sched_wish {
    stk_pack_ask
        asks[STK_LIMIT_ASKS]; /* the key, with the next field; unused entries and padding are 0 */
    uint64_t n_asks;
    bool is_lost; /* devices are gone, and no alternative can be met any more */
} stk_sched_wish;

/* Devices that a running task holds. */
typedef struct stk_sched_grant {
    stk_devset devices;
    int32_t share_mib;  /* of each device; 0: whole devices */
    uint32_t next_free; /* next in the free list */
} stk_sched_grant;

typedef struct stk_sched_device {
    int32_t own_mib; /* shares of running tasks */
    uint32_t n_holders;
    bool is_whole;       /* held by one task as a whole */
    int32_t outside_mib; /* held by others */
} stk_sched_device;

/* Scratch: what can be placed right now. */
typedef struct stk_sched_view {
    stk_pack_device *devices; /* free memory, less what this call already gives away */
    stk_pack_device *guess;   /* free memory in a what-if question */
    uint32_t *n_holders;
    stk_devset closed; /* reserved by earlier tasks */
} stk_sched_view;

/* The failures of a task, by the budget they were charged to. */
typedef struct stk_sched_failures {
    uint32_t n[STK_FAIL_N]; /* by class, without those charged to on_oom */
    uint32_t n_grown;       /* charged to on_oom */
    uint32_t n_saved;       /* free ones: preempted or out of time, but with progress */
    uint32_t last;          /* class of the last failure */
    uint32_t is_fallback; /* the next attempt is the fallback; an integer, because the digest reads
                             all bytes */
} stk_sched_failures;

/* A distinct request, and the ready tasks that made it. */
typedef struct stk_sched_kind {
    int64_t ask[DIM_N];   /* the key, with the next field */
    uint64_t wish;        /* index, or NIL: no devices */
    stk_sched_list ready; /* in order of seq */
    uint64_t
        n_starts; /* the scheduler's count of starts when the present first task became first */
    int64_t not_before_ms; /* earliest start after a BUSY reply */
    uint32_t busy_tries;
    uint32_t i_live;   /* index in `live`, while `ready` isn't empty */
    bool has_reserved; /* reserves `reserved` for the first of `ready` */
    bool is_claimed;   /* … also against other runs */
    stk_devset reserved;
} stk_sched_kind;

typedef struct stk_sched_policy {
    int64_t delay_ms;
    double backoff;
    double jitter;
    double oom_memory, oom_share;
    uint32_t max_retries, oom_retries;
    uint64_t fallback; /* a boolean, this wide to leave no padding, since policies are compared by
                          bytes */
} stk_sched_policy;

/* Interned items, compared by their first key_bytes. */
typedef struct stk_sched_pool {
    void *items;
    uint32_t *slots; /* item + 1; 0: empty */
    size_t item_bytes, key_bytes;
    uint32_t n, cap, n_slots;
} stk_sched_pool;

typedef struct stk_sched_timer {
    int64_t at_ms;
    uint32_t task; /* stale unless this task is in BACKOFF with the same at_ms */
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
    int64_t least[DIM_N]; /* the smallest request seen in each dimension: with less free, nothing
                             can start */
    stk_sched_node *nodes;
    uint32_t n_nodes, cap_nodes;
    stk_sched_edge *edges;
    uint32_t n_edges, cap_edges;
    stk_pack_device *host;     /* config.host.devices without devices that are gone */
    stk_sched_device *devices; /* config.host.n of them; `host` too */
    stk_sched_view *view;      /* */
    bool is_any_gone;          /* */
    stk_sched_grant *grants;   /* */
    uint32_t n_grants, cap_grants, free_grants; /* free_grants: the first free one, or NIL */
    stk_sched_failures *failures;               /* */
    uint32_t n_failures, cap_failures;          /* */
    stk_sched_pool wishes;                      /* stk_sched_wish */
    stk_sched_pool kinds;                       /* stk_sched_kind */
    stk_sched_pool policies;                    /* stk_sched_policy */
    uint32_t *live;                             /* kinds with ready tasks; room for all kinds */
    stk_sched_candidate *candidates;            /* scratch of stk_sched_next; room for all kinds */
    uint32_t n_live, cap_live;                  /* cap_live: of both arrays */
    stk_sched_timer *timers;                    /* heap */
    uint32_t n_timers, cap_timers;              /* */
    stk_sched_list lists[STK_TASK_BACKOFF + 1]; /* by state, but for ready tasks */
    stk_sched_list doomed;                      /* WAITING with a cause */
    uint64_t n[STK_TASK_N];
    uint64_t n_final;
    uint64_t seq;
    uint64_t n_starts;
    int64_t wake_ms;
    bool is_idle; /* the last stk_sched_next returned nothing, and nothing changed since */
    bool is_cancelling;
    bool is_ended;
};

#endif
