/* sched: (state, event) → state, and state → actions. Decides which tasks may start now, and what
 * follows from each event.
 *
 * Pure: no clock (times are arguments), no files, no randomness but a seeded generator. The caller
 * folds an event with stk_sched_fold, gets actions from stk_sched_next, commits the events that
 * these imply (TASK_STARTED, TASK_SKIPPED …) and folds them before calling again. Folding the
 * durable events of a run from the start gives the state to resume from. Calling stk_sched_next
 * twice without folding returns the same actions.
 *
 * Tasks are numbered from 0 in the order they were added; the graph may grow at any time
 * (stk_sched_add). Nothing recurses; every operation is O(1) amortised in tasks and edges, except
 * for the scan over distinct requests.
 *
 * Devices. A task asks for alternatives (any_of), in order of preference. stk_pack_choose places
 * the first that fits on the devices left by this run's tasks, by other runs (STK_SE_OUTSIDE) and
 * by reservations. START names the devices, and TASK_STARTED takes them all at once: no task holds
 * some while it waits for more, so there is no deadlock.
 *
 * Elsewhere. A task that runs on other machines takes none of this machine's CPUs, memory or
 * devices, but it takes a worker and one of the jobs that its engine may run at once (max_away).
 *
 * Nobody starves. Later work may overtake work that doesn't fit (backfill). A task that was
 * overtaken STK_SCHED_PATIENCE times reserves CPUs, memory and concrete devices: those that the
 * fewest tasks hold. Tasks that became ready later leave these alone, and the reservation stays
 * until its task has started. So the task that has been ready longest waits, at most, for the tasks
 * that run now on its devices: those end, and nothing new starts there, because only earlier ready
 * tasks could, and there are none. Then the same holds for the next task. There are two limits. A
 * task that needs a device held outside of the run reserves nothing, because this run cannot free
 * it; its engine claims devices from the other runs after a long wait (stk_sched_claim,
 * STK_SE_CLAIMED), and claimed devices are reserved. And a task that lost the race for its devices
 * STK_SCHED_BUSY_TRIES times lets the others have a turn. */
#ifndef STK_SCHED_H
#define STK_SCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/event.h"
#include "model/pack/pack.h"

typedef struct stk_sched stk_sched;

enum { STK_SCHED_PLACES = 4 }; /* elsewhere, at most */

typedef struct stk_sched_config {
    int64_t cpu_milli;
    int64_t memory_bytes;
    stk_pack_host
        host; /* copied; uses total_mib, numa and taken (never given out) of its devices */
    uint32_t max_workers; /* most tasks running at once, whatever they ask for; 0: no limit */
    /* Of the ready tasks the one with the lowest number is next. Only with one worker: a task may
     * then be overtaken without end. */
    bool by_number;
    uint32_t max_away[STK_SCHED_PLACES]; /* most of these in each place elsewhere; 0: no limit */
    stk_mode mode;
    uint64_t seed; /* for the retry jitter */
} stk_sched_config;

typedef struct stk_sched_task {
    /* 0: here. Else the task runs in place number place - 1 elsewhere and takes nothing of this
     * machine: it asks for no CPUs and no devices here. Its memory is another machine's, and
     * matters only for on_oom. */
    uint32_t place;
    int64_t cpu_milli;
    bool any_cpu; /* it asked for no CPUs: cpu_milli counts only without max_workers */
    int64_t memory_bytes;
    const stk_pack_ask *asks; /* alternative device requests, best first; copied */
    uint32_t n_asks;          /* 0: none; at most STK_LIMIT_ASKS */
    uint32_t max_retries;
    int64_t delay_ms;
    double backoff;
    double jitter;
    /* After running out of memory, the next attempt asks for this many times as much (0: no
     * growth), at most this many times; these attempts have their own budget. A request without an
     * amount (memory 0, whole devices) can't grow. */
    double oom_memory, oom_share;
    uint32_t oom_retries;
    bool lookup;   /* ask the cache before it may start */
    bool fallback; /* gets one more attempt, marked as such, instead of a final failure */
} stk_sched_task;

/* The part of the request that the next attempt increases. */
typedef enum { STK_GROWS_NOTHING, STK_GROWS_MEMORY, STK_GROWS_SHARE } stk_grows;

#define STK_SCHED_ALL INT32_MAX     /* as an amount of MiB: the whole device */
#define STK_SCHED_NO_ASK UINT32_MAX /* as i_ask: no devices */

/* Events. An event uses only the fields named for its kind. tbl/events.def lists the durable kinds.
 */
enum {
    STK_SE_MISSED = STK_EV_N, /* task: not in the cache (not durable) */
    STK_SE_BUSY,    /* task: its devices turned out to be busy; not before at_ms (not durable) */
    STK_SE_OUTSIDE, /* device: others hold `mib` of it until further notice (not durable) */
    STK_SE_GROWN,   /* task: an attempt ran out of memory before this state began: `grows` (for a
                       resumed run; not durable) */
    STK_SE_CLAIMED, /* task, which is ready: other runs keep `devices` free for it, and so does this
                       one, whatever others still hold there; no devices: the claim ends (not
                       durable) */
    STK_SE_GONE     /* device: out of the pool for the rest of the run. Tasks that can do without it
                       start elsewhere, the others never start (not durable) */
};

typedef struct stk_sched_event {
    int kind; /* stk_event_kind or STK_SE_… */
    uint32_t task;
    uint32_t attempt;    /* TASK_STARTED … */
    stk_failure failure; /* TASK_FAILED */
    bool is_final;       /* TASK_FAILED: no retry follows */
    bool saved;          /* TASK_FAILED: it left a newer checkpoint than it started with */
    int64_t at_ms;       /* TASK_RETRYING, BUSY: earliest start; RUN_CANCELLING: now */
    stk_grows grows;     /* TASK_RETRYING */
    bool is_fallback;    /* TASK_RETRYING */
    uint32_t device;     /* OUTSIDE, GONE */
    int32_t mib;         /* OUTSIDE; STK_SCHED_ALL: others hold all of it */
    uint32_t i_ask; /* TASK_STARTED: index of the alternative; STK_SCHED_NO_ASK: holds no devices
                       (its end was recovered) */
    stk_devset devices; /* TASK_STARTED, CLAIMED */
} stk_sched_event;

typedef enum {
    STK_ACT_LOOKUP, /* look up `task` in the cache; reply with TASK_CACHED or MISSED */
    STK_ACT_START,  /* start `task`, attempt number `attempt`; reply with TASK_STARTED at once
                       (folding it takes the resources) */
    STK_ACT_STOP, /* end the running `task` (fail_fast, cancel); idempotent: repeated until the task
                     is final */
    STK_ACT_SKIP, /* commit TASK_SKIPPED for `task` because of the failed task `cause` */
    STK_ACT_CANCEL, /* commit TASK_CANCELLED for `task` (it never started) */
    STK_ACT_FAIL, /* commit TASK_FAILED (resources, final) for `task`: all devices that it could use
                     are gone */
    STK_ACT_END   /* commit RUN_ENDED with `status`; nothing is left to do */
} stk_action_kind;

typedef struct stk_action {
    stk_action_kind kind;
    uint32_t task;
    uint32_t attempt;
    uint32_t cause;
    int status;         /* END: 0 succeeded, 1 failed, 2 cancelled */
    uint32_t i_ask;     /* START: the alternative that `devices` satisfies; or STK_SCHED_NO_ASK */
    stk_devset devices; /* START */
} stk_action;

typedef struct stk_sched_counts {
    uint64_t n[STK_TASK_N]; /* tasks by state */
    uint64_t n_tasks;
    int64_t cpu_used;
    int64_t memory_used;
    uint32_t devices_used; /* devices of which this run holds a part */
    uint32_t running;
    uint32_t n_wanting; /* distinct requests for devices among ready tasks */
} stk_sched_counts;

stk_sched *stk_sched_new(const stk_sched_config *config); /* NULL: out of memory */
void stk_sched_free(stk_sched *sched);

/* Adds a task that waits for n_needs existing tasks; those already final count at once.
 * STK_E_RESOURCES: the request can never fit. *ret_task is its number. */
int stk_sched_add(stk_sched *sched, const stk_sched_task *task, const uint32_t *needs,
                  uint32_t n_needs, uint32_t *ret_task, stk_err *err);

/* Applies an event. Returns STK_E_PROTOCOL for an event that is impossible in the task's state, or
 * STK_E_NOMEM; nothing changes then. Ignores kinds that do not concern tasks (NOTE, TASK_ADDED …);
 * RUN_STARTED revokes RUN_ENDED. A non-zero `attempt` of TASK_SUCCEEDED or TASK_FAILED must be the
 * running one. Without TASK_RETRYING, a task that failed but not finally is due at once. When the
 * run is being cancelled, or a task failed under STOP or FAIL_FAST, tasks that haven't started get
 * CANCEL; tasks that depend on a failed task get SKIP in every mode. */
int stk_sched_fold(stk_sched *sched, const stk_sched_event *event, stk_err *err);

/* Returns up to n_max actions that are due at now_ms; *ret_n are written. ret_wake_ms: the latest
 * time to call again (retry backoff, busy devices), or -1. Actions repeat until their effects are
 * folded, STOP until the task is final, so don't loop until there are none. With n_max of 2 ×
 * max_workers, every STOP gets through at once, whatever else is due. Cheap if nothing was folded
 * or added since a call that returned none.
 *
 * Tasks start in the order in which they became ready (by_number: in that of their numbers);
 * ties go to the lower number. Later, smaller
 * work may overtake work that doesn't fit, but not for ever: once STK_SCHED_PATIENCE tasks have
 * started while a request was the first of its kind, nothing that would delay it starts until it
 * has started. (If its devices stay busy in other runs for STK_SCHED_BUSY_TRIES replies, the others
 * get another round.) */
enum { STK_SCHED_PATIENCE = 64, STK_SCHED_BUSY_TRIES = 16 };
int stk_sched_next(stk_sched *sched, int64_t now_ms, stk_action *actions, uint32_t n_max,
                   uint32_t *ret_n, int64_t *ret_wake_ms);

/* Decides what follows a failure of the running `task`; call before folding TASK_FAILED. True:
 * another attempt is due (commit TASK_FAILED not final, then TASK_RETRYING with `grows`). False:
 * the failure is final. Considers budgets and mode. The jitter (a factor within 1 ± jitter) depends
 * only on (seed, task, attempt), so the result is repeatable.
 *
 * An attempt is charged to the first of these that applies: on_oom, if the next attempt gets more;
 * nothing, if it was preempted or ran out of time and `saved` a newer checkpoint than it started
 * with, so that it made progress (STK_LIMIT_PREEMPTIONS times); the class's own budget
 * (tbl/failures.def); max_retries. If none applies, a task with a `fallback` gets one more attempt,
 * at once (commit TASK_RETRYING with `is_fallback`). The fallback's failure is final, unless its
 * class's own budget pays: then the fallback runs again. */
typedef struct stk_sched_retrying {
    int64_t delay_ms;
    stk_grows grows;
    int64_t amount;   /* MEMORY: bytes; SHARE: MiB of each device of the first alternative */
    bool is_too_much; /* final, because `amount` exceeds what there is */
    bool is_fallback; /* if set, nothing grows */
} stk_sched_retrying;
bool stk_sched_retry(const stk_sched *sched, uint32_t task, stk_failure failure, bool saved,
                     stk_sched_retrying *ret_retrying);
/* The same for a failure that every attempt would have: only the fallback may follow. */
bool stk_sched_last_resort(const stk_sched *sched, uint32_t task, stk_sched_retrying *ret_retrying);

stk_task_state stk_sched_state(const stk_sched *sched, uint32_t task);
uint32_t stk_sched_attempt(const stk_sched *sched,
                           uint32_t task); /* the current or last attempt; 0: none yet */
/* True if the current attempt (or the one that is due) is the fallback. */
bool stk_sched_is_fallback(const stk_sched *sched, uint32_t task);
bool stk_sched_is_last_attempt(const stk_sched *sched, uint32_t task);
bool stk_sched_is_cancelling(const stk_sched *sched);
void stk_sched_count(const stk_sched *sched, stk_sched_counts *ret_counts);

/* The current request of `task`: as added, or larger after running out of memory. The scheduler
 * owns `asks`; valid until the next stk_sched_add or fold. */
typedef struct stk_sched_asking {
    int64_t memory_bytes;
    const stk_pack_ask *asks;
    uint32_t n_asks;
} stk_sched_asking;
stk_sched_asking stk_sched_asks(const stk_sched *sched, uint32_t task);
/* MiB of a device that this run's tasks hold; STK_SCHED_ALL: the whole device. */
int32_t stk_sched_held(const stk_sched *sched, uint32_t device);
/* MiB of a device that others hold, as last folded. */
int32_t stk_sched_outside(const stk_sched *sched, uint32_t device);
/* Among the ready tasks that wait only because other runs hold devices, the one that has been ready
 * longest (only the first of each kind counts); or UINT32_MAX. */
uint32_t stk_sched_waiter(const stk_sched *sched);
/* Chooses the devices that a ready task should claim, whoever holds them now: those with the least
 * to give back, and none of `avoid` if possible. False: there are none (gone). */
bool stk_sched_claim(const stk_sched *sched, uint32_t task, const stk_devset *avoid,
                     stk_devset *ret_devices);
/* A running task that holds a part of the device, or UINT32_MAX. */
uint32_t stk_sched_holder(const stk_sched *sched, uint32_t device);

/* Why a task doesn't run: it needs another task, or lacks CPUs, memory, devices or a place, which a
 * running task holds. */
typedef struct stk_sched_why {
    enum {
        STK_WHY_NONE,
        STK_WHY_NEEDS,
        STK_WHY_CPU,
        STK_WHY_MEMORY,
        STK_WHY_DEVICES,
        STK_WHY_WORKERS,
        STK_WHY_PLACE, /* the place runs as many jobs as it may */
        STK_WHY_BACKOFF
    } what;
    uint32_t other; /* the task that it waits for, or UINT32_MAX */
    bool is_queue;  /* `other` isn't running either: it has waited longer and goes first */
    stk_devset held,
        outside; /* DEVICES: the suitable ones that tasks of this run, or others, hold */
} stk_sched_why;
stk_sched_why stk_sched_explain(const stk_sched *sched, uint32_t task);

/* A hash of everything that the durable events determine. It excludes the order of waiting tasks,
 * replies MISSED, BUSY and OUTSIDE, and due backoffs. Folding a run's events from the start gives
 * the same digest as the state they were committed from. */
uint64_t stk_sched_digest(const stk_sched *sched);

#endif
