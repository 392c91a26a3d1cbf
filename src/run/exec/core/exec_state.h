/* The engine's state: tasks, the run, and the parts that single files own. */
#ifndef STK_EXEC_STATE_H
#define STK_EXEC_STATE_H

#include "run/exec/core/exec_cache.h"
#include "run/exec/exec.h"
#include "run/exec/grown/exec_grown.h"

/* Resources of a running attempt. */
typedef struct exec_slot {
    stk_lease lease;
    stk_devset devices; /* of the lease, also after the backend took it over */
    int64_t pid;        /* leader of the attempt's session; 0: unknown */
    uint32_t cpus[STK_LIMIT_CPUS_PINNED];
    uint32_t n_cpus;
    struct exec_slot *next_free;
} exec_slot;

typedef struct exec_task {
    uint32_t i_step;
    uint32_t attempt_base; /* number of attempts under earlier engines */
    exec_ref *outputs;     /* one per declared output of the step, or NULL */
    const char *inputs;    /* JSON {name: digest} of artifact inputs, or NULL */
    const char *key;       /* cache key (hex) after the look-up, or NULL */
    const char *parts;     /* JSON of the key's parts */
    const char *miss;
    int64_t started_ms;
    exec_slot *slot;
    const char *hook_error; /* error text for its failure hooks, or NULL */
    int8_t hook;            /* stk_hook_when of the running hook job, or -1 */
    bool end_by_task;       /* the task called its on_end hook itself */
    bool hook_started;      /* this attempt's on_start job has run */
    bool stopped;           /* it was stopped after its admission */
    bool owes_hooks; /* it succeeded under an earlier engine, which may not have run all hooks */
    stk_checkpoints checkpoints; /* those at the attempt's begin */
    bool attach; /* its launch attaches to an attempt elsewhere of an earlier engine */
    int32_t xid; /* reported by the driver for one of this attempt's devices; 0: none */
    const char *xid_text, *xid_device; /* the driver's text and the device's uuid, or NULL */
    bool looks_at_inputs;     /* it has ended, and its inputs are being checked for changes */
    struct exec_aside *aside; /* its next action, which waits for threads; or NULL */
} exec_task;

enum { EXEC_HOOK_BIT = 0x80000000u }; /* in a job id: a hook of the task */

/* Events and rows that are folded but not committed. */
typedef struct exec_pending {
    stk_event_row *events;
    uint32_t n_events, cap_events;
    stk_cache_row *cache;
    uint32_t n_cache, cap_cache;
    stk_ref_row *refs;
    uint32_t n_refs, cap_refs;
    uint32_t *launches; /* tasks that start after the next flush */
    uint32_t n_launches, cap_launches;
} exec_pending;

/* The claim of the task that has waited longest for devices of other runs; times are monotonic. */
typedef struct exec_claim {
    bool is_waiting; /* a task waits */
    bool is_made;    /* it claims `devices` */
    uint32_t task;
    int64_t since_ms;
    int64_t change_ms; /* when to make the claim, or to check it again */
    int64_t for_ms;    /* its most duration if it keeps a device idle */
    stk_devset devices;
} exec_claim;

/* Devices of other runs, and devices that left the pool (exec_devices.c, exec_trouble.c). */
typedef struct exec_outside {
    int64_t look_ms;     /* next check of the devices of others, monotonic */
    int64_t look_for_ms; /* time from that to the next one */
    bool is_any_outside; /* others hold devices */
    exec_claim claim;
    uint32_t n_leases; /* attempts that hold devices */
    stk_devset gone;   /* devices that broke here or that other runs found broken */
} exec_outside;

/* Tasks on other machines: their number and the first one. */
typedef struct exec_left_tasks {
    uint32_t n, first;
} exec_left_tasks;

typedef struct exec_left {
    exec_left_tasks running;  /* continue without this engine */
    exec_left_tasks unborn;   /* had no job and get none */
    exec_left_tasks attached; /* continued without an earlier engine */
} exec_left;

struct stk_exec {
    stk_exec_config config;
    const stk_spec *spec;
    stk_sched *sched; /* uses the monotonic clock; events have the wall clock's time */
    exec_task *tasks;
    uint32_t n_tasks, cap_tasks;
    exec_graph graph;
    bool is_held;       /* the events that follow are one transaction: no flush in between */
    bool is_waiting;    /* clone_only: a task would start now */
    stk_arena *arena;   /* the run */
    stk_arena *tick;    /* text of pending events; stk_exec_flush resets it */
    stk_arena *scratch; /* one start, one result */
    exec_lookup lookup;
    exec_pending pending;
    exec_slot *free_slots;
    uint32_t *cpu_ids;
    uint32_t *cpu_load; /* number of tasks pinned to each CPU */
    uint32_t n_cpus;
    char *folder;     /* runs/<run> */
    uint32_t n_hooks; /* hook jobs that have not ended */
    uint32_t n_signals;
    bool hung_up;
    bool is_interrupted; /* the first signal was an interruption */
    exec_left left;
    struct exec_sum *sum;
    struct exec_idle *idle; /* or NULL */
    uint8_t mounts;         /* whether a step can have its own mounts (exec_input.c) */
    bool no_clones;         /* the store's file system can't share blocks between files */
    bool noted_busy;
    bool *noted_less; /* by step: a note says that a gang got less than its ranks ask for */
    exec_outside outside;
    bool ended;
    stk_run_status status;
    char *error; /* sentence of the first final failure */
};

#endif
