/* The engine's state: one task, the run, and the parts of it that files own. */
#ifndef STK_EXEC_STATE_H
#define STK_EXEC_STATE_H

#include "run/exec/core/exec_cache.h"
#include "run/exec/exec.h"
#include "run/exec/grown/exec_grown.h"

/* What a running attempt holds. */
typedef struct exec_slot {
    stk_lease lease;
    stk_devset devices; /* those of the lease, also once the backend has it */
    int64_t pid;        /* leads the attempt's session; 0: not told */
    uint32_t cpus[STK_LIMIT_CPUS_PINNED];
    uint32_t n_cpus;
    struct exec_slot *next_free;
} exec_slot;

typedef struct exec_task {
    uint32_t i_step;
    uint32_t attempt_base; /* attempts of earlier engines on this run */
    exec_ref *outputs;     /* one per declared output of the step, or NULL */
    const char *inputs;    /* JSON {name: digest} of artifact inputs, or NULL */
    const char *key;       /* cache key (hex) once looked up, or NULL */
    const char *parts;     /* JSON of the key's parts */
    const char *miss;
    int64_t started_ms;
    exec_slot *slot;
    const char *hook_error; /* what its failure hooks are told, or NULL */
    int8_t hook;            /* stk_hook_when of the hook job that runs now, or -1 */
    bool end_by_task;       /* it called its on_end hook itself */
    bool hook_started;      /* this attempt's on_start job has been run */
    bool stopped;           /* to be ended since it was admitted */
    bool owes_hooks; /* it succeeded under an earlier engine, which may not have run them all */
    stk_checkpoints checkpoints; /* that were there when this attempt began */
    bool attach; /* its launch is of an attempt that an earlier engine started elsewhere */
    int32_t xid; /* of this attempt: the driver reported it for a device of its; 0: none */
    const char *xid_text, *xid_device; /* the driver's words, the device's uuid; or NULL */
    bool looks_at_inputs; /* it has ended, and what it may have done to them is being found out */
    struct exec_aside *aside; /* what is to be done with it waits for threads; or NULL */
} exec_task;

enum { EXEC_HOOK_BIT = 0x80000000u }; /* in a job id: not the task but a hook of it */

/* Events and rows that are folded and not committed yet. */
typedef struct exec_pending {
    stk_event_row *events;
    uint32_t n_events, cap_events;
    stk_cache_row *cache;
    uint32_t n_cache, cap_cache;
    stk_ref_row *refs;
    uint32_t n_refs, cap_refs;
    uint32_t *launches; /* tasks to be started after the next flush */
    uint32_t n_launches, cap_launches;
} exec_pending;

/* The task of the run that has waited longest for what other runs hold; times are monotonic. */
typedef struct exec_claim {
    bool is_waiting; /* there is one */
    bool is_made;    /* and it claims `devices` */
    uint32_t task;
    int64_t since_ms;
    int64_t change_ms; /* when the claim is made, or looked at again */
    int64_t for_ms;    /* how long it lasts at most, where it keeps something idle */
    stk_devset devices;
} exec_claim;

/* What other runs hold, and devices that are gone (exec_devices.c, exec_trouble.c). */
typedef struct exec_outside {
    int64_t look_ms;     /* when to look again what others hold, monotonic */
    int64_t look_for_ms; /* and how long after that */
    bool is_any_outside; /* they do */
    exec_claim claim;
    uint32_t n_leases; /* attempts that hold devices */
    stk_devset gone;   /* devices that broke, or were found broken by other runs */
} exec_outside;

/* Tasks on other machines: how many, and the first. */
typedef struct exec_left_tasks {
    uint32_t n, first;
} exec_left_tasks;

typedef struct exec_left {
    exec_left_tasks running;  /* go on without this engine */
    exec_left_tasks unborn;   /* had no job yet, and get none */
    exec_left_tasks attached; /* went on without an earlier engine */
} exec_left;

struct stk_exec {
    stk_exec_config config;
    const stk_spec *spec;
    stk_sched *sched; /* its times are the monotonic clock's; events tell the wall's */
    exec_task *tasks;
    uint32_t n_tasks, cap_tasks;
    exec_graph graph;
    bool is_held;       /* what is emitted now is one transaction: no flush in between */
    bool is_waiting;    /* clone_only: something would start now */
    stk_arena *arena;   /* the run */
    stk_arena *tick;    /* pending events' text; reset by stk_exec_flush */
    stk_arena *scratch; /* one start, one result */
    exec_lookup lookup;
    exec_pending pending;
    exec_slot *free_slots;
    uint32_t *cpu_ids;
    uint32_t *cpu_load; /* tasks pinned to each */
    uint32_t n_cpus;
    char *folder;     /* runs/<run> */
    uint32_t n_hooks; /* hook jobs that have not ended */
    uint32_t n_signals;
    bool hung_up;
    bool is_interrupted; /* by the first of these signals */
    exec_left left;
    struct exec_sum *sum;
    struct exec_idle *idle; /* or NULL */
    uint8_t mounts;         /* may a step have mounts of its own? exec_input.c */
    bool no_clones;         /* the store's file system shares no blocks between files */
    bool noted_busy;
    bool *noted_less; /* by step: a gang of it got less than its ranks ask for, and that is told */
    exec_outside outside;
    bool ended;
    stk_run_status status;
    char *error; /* first final failure, a sentence */
};

#endif
