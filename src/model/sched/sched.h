/* sched: (state, event) → state, and state → actions. Which task may start now, and what follows
 * from what happened?
 *
 * Pure: no clock (times are arguments), no files, no randomness but its own seeded generator. The
 * caller folds an event with stk_sched_fold, asks stk_sched_next for actions, commits the events
 * that these imply (TASK_STARTED, TASK_SKIPPED …) and folds them before asking again. Folding the
 * durable events of a run from the start gives the state to resume from. Asking twice without
 * folding gives the same actions.
 *
 * Tasks are numbered from 0 in the order they were added; the graph may grow at any time
 * (stk_sched_add). Nothing recurses; every operation is O(1) amortised in tasks and edges, but for
 * the scan over distinct requests.
 *
 * Devices. A task asks for alternatives (any_of), in order of preference; stk_pack_choose places
 * the first that fits on what is left by this run's tasks, by others (STK_SE_OUTSIDE) and by those
 * who have waited long. START names the devices, TASK_STARTED takes them, all at once: no task ever
 * holds some while it waits for more, so nothing can deadlock.
 *
 * Elsewhere. A task that runs on other machines takes none of this one's CPUs, memory and devices,
 * but a worker and a place among the jobs that its engine may have at once (max_away).
 *
 * Nobody starves. Work that doesn't fit is passed over by later work (backfill). Once it was passed
 * over STK_SCHED_PATIENCE times it reserves CPUs, memory and concrete devices, those that the
 * fewest tasks hold, and what became ready later leaves these alone. A reservation stays as it is
 * until its task has started. So of all ready tasks the one that has been ready longest waits, at
 * most, for what runs now on its devices: those tasks end, nothing new comes there but what became
 * ready before it, and that is nothing. Then the next one is the one that has been ready longest.
 * Two limits to this: who needs a device that is held outside of the run reserves nothing by
 * itself, since nobody here can bring it about; its engine claims devices from the others once it
 * has waited long (stk_sched_claim, STK_SE_CLAIMED), and what is claimed is reserved. And who lost
 * the race for its devices STK_SCHED_BUSY_TRIES times lets the others have a turn.
 */
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
    stk_pack_host host;   /* copied; of its devices total_mib, numa and taken (never given out) */
    uint32_t max_workers; /* tasks running at once, whatever they ask for; 0: no limit */
    uint32_t max_away[STK_SCHED_PLACES]; /* and of these in each place elsewhere; 0: no limit */
    stk_mode mode;
    uint64_t seed; /* of the retry jitter */
} stk_sched_config;

typedef struct stk_sched_task {
    /* 0: here; else it runs in place number place - 1 elsewhere, and takes nothing of this machine:
     * it asks for no CPUs and no devices here; its memory is another machine's, which matters for
     * on_oom alone. */
    uint32_t place;
    int64_t cpu_milli;
    int64_t memory_bytes;
    const stk_pack_ask *asks; /* devices: alternatives, the best first; copied */
    uint32_t n_asks;          /* 0: none; at most STK_LIMIT_ASKS */
    uint32_t max_retries;
    int64_t delay_ms;
    double backoff;
    double jitter;
    /* After it ran out of memory the next attempt asks for this much more (a factor; 0: it
     * doesn't), so often, on a budget of its own. What has no amount (memory 0, whole devices)
     * can't grow. */
    double oom_memory, oom_share;
    uint32_t oom_retries;
    bool lookup;   /* ask the cache before it may start */
    bool fallback; /* in place of a final failure it gets one more attempt, which knows that it is
                      that */
} stk_sched_task;

/* What the next attempt gets more of. */
typedef enum { STK_GROWS_NOTHING, STK_GROWS_MEMORY, STK_GROWS_SHARE } stk_grows;

#define STK_SCHED_ALL INT32_MAX     /* as an amount of MiB: a device as a whole */
#define STK_SCHED_NO_ASK UINT32_MAX /* as i_ask: none */

/* What is folded. Fields not named for a kind are ignored. Durable kinds are in tbl/events.def. */
enum {
    STK_SE_MISSED = STK_EV_N, /* task: the cache had nothing (not durable) */
    STK_SE_BUSY,    /* task: its devices were not free after all; not before at_ms (not durable) */
    STK_SE_OUTSIDE, /* device: others hold `mib` of it, until further notice (not durable) */
    STK_SE_GROWN,   /* task: before this state began an attempt of it ran out of memory: `grows` (a
                       run   that is taken up; not durable) */
    STK_SE_CLAIMED, /* task, which is ready: others keep `devices` free for it, so do we, whatever
                       others still hold there; no devices: no more (not durable) */
    STK_SE_GONE     /* device: out of the pool for the rest of the run; who can do without it starts
                       elsewhere, nobody else ever will (not durable) */
};

typedef struct stk_sched_event {
    int kind; /* stk_event_kind or STK_SE_… */
    uint32_t task;
    uint32_t attempt;    /* TASK_STARTED … */
    stk_failure failure; /* TASK_FAILED */
    bool is_final;       /* TASK_FAILED: no retry follows */
    bool saved;          /* TASK_FAILED: it left a newer checkpoint than it began with */
    int64_t at_ms;       /* TASK_RETRYING, BUSY: not before; RUN_CANCELLING: now */
    stk_grows grows;     /* TASK_RETRYING */
    bool is_fallback;    /* TASK_RETRYING */
    uint32_t device;     /* OUTSIDE, GONE */
    int32_t mib;         /* OUTSIDE; STK_SCHED_ALL: nothing is left */
    uint32_t i_ask; /* TASK_STARTED: the alternative; STK_SCHED_NO_ASK: it holds no devices (taken
                       up after its end) */
    stk_devset devices; /* TASK_STARTED, CLAIMED */
} stk_sched_event;

typedef enum {
    STK_ACT_LOOKUP, /* ask the cache for `task`; answer TASK_CACHED or MISSED */
    STK_ACT_START, /* start `task`, attempt number `attempt`; answer TASK_STARTED at once (resources
                      are taken by folding it) */
    STK_ACT_STOP,  /* end the running `task` (fail_fast, cancel); idempotent: repeated until it is
                      final */
    STK_ACT_SKIP,  /* commit TASK_SKIPPED for `task` because of task `cause` */
    STK_ACT_CANCEL, /* commit TASK_CANCELLED for `task` (it never started) */
    STK_ACT_FAIL,   /* commit TASK_FAILED (resources, final) for `task`: all devices that it could
                       have are gone */
    STK_ACT_END     /* commit RUN_ENDED with `status`; nothing is left to do */
} stk_action_kind;

typedef struct stk_action {
    stk_action_kind kind;
    uint32_t task;
    uint32_t attempt;
    uint32_t cause;
    int status;         /* END: 0 succeeded, 1 failed, 2 cancelled */
    uint32_t i_ask;     /* START: the alternative that `devices` answers; or STK_SCHED_NO_ASK */
    stk_devset devices; /* START */
} stk_action;

typedef struct stk_sched_counts {
    uint64_t n[STK_TASK_N]; /* tasks by state */
    uint64_t n_tasks;
    int64_t cpu_used;
    int64_t memory_used;
    uint32_t devices_used; /* of which this run holds something */
    uint32_t running;
    uint32_t n_wanting; /* kinds of ready tasks that ask for devices */
} stk_sched_counts;

stk_sched *stk_sched_new(const stk_sched_config *config); /* NULL: out of memory */
void stk_sched_free(stk_sched *sched);

/* Adds a task that waits for n_needs existing tasks; those already final count at once. A task
 * whose request can never fit is STK_E_RESOURCES. ret_task gets its number. */
int stk_sched_add(stk_sched *sched, const stk_sched_task *task, const uint32_t *needs,
                  uint32_t n_needs, uint32_t *ret_task, stk_err *err);

/* STK_E_PROTOCOL for an event that is impossible in the task's state (nothing changes then);
 * STK_E_NOMEM likewise. Kinds that say nothing about tasks (NOTE, TASK_ADDED …) are fine;
 * RUN_STARTED takes back RUN_ENDED. A non-zero `attempt` of TASK_SUCCEEDED, TASK_FAILED must be the
 * running one. Without TASK_RETRYING, a task that failed but not finally is due at once. When the
 * run is being cancelled, or a task failed under STOP or FAIL_FAST, what hasn't started gets
 * CANCEL; what depends on a failed task gets SKIP in every mode. */
int stk_sched_fold(stk_sched *sched, const stk_sched_event *event, stk_err *err);

/* Up to n_max actions that are due at now_ms; *ret_n of them are written. ret_wake_ms: when to ask
 * again at the latest (retry backoff, busy devices), or -1. An action whose effects aren't folded
 * is given again; STOP until the task is final, so a caller doesn't loop until there are none.
 * n_max of 2 × max_workers lets every STOP through at once, whatever else is due. Cheap when
 * nothing was folded or added since a call that gave none.
 *
 * Order of starts: first ready, first started; of those that became ready together the lower
 * number. What doesn't fit now is passed over by later, smaller work, but not for ever: once
 * STK_SCHED_PATIENCE tasks started while a request was the first of its kind, nothing that would
 * delay it starts until it did. (Should its devices stay busy in other runs for
 * STK_SCHED_BUSY_TRIES answers, the others get another round.) */
enum { STK_SCHED_PATIENCE = 64, STK_SCHED_BUSY_TRIES = 16 };
int stk_sched_next(stk_sched *sched, int64_t now_ms, stk_action *actions, uint32_t n_max,
                   uint32_t *ret_n, int64_t *ret_wake_ms);

/* What follows a failure of the running `task` (ask before folding TASK_FAILED): true when another
 * attempt is due (commit TASK_FAILED not final, then TASK_RETRYING with `grows`), false when it is
 * final. Consults budgets and mode; draws jitter (a factor within 1 ± jitter) from (seed, task,
 * attempt), so it can be repeated. Who pays for an attempt, in this order: on_oom, where the next
 * one gets more; nobody, where it was preempted or ran out of time and `saved` a newer checkpoint
 * than it began with (it got further; STK_LIMIT_PREEMPTIONS times); the class's own budget
 * (tbl/failures.def); max_retries. Where nobody pays, a task with a `fallback` gets that: one more
 * attempt, at once (commit TASK_RETRYING with `is_fallback`). Its failure is final, but for one
 * that its class's own budget pays for: that is the fallback once more. */
typedef struct stk_sched_retrying {
    int64_t delay_ms;
    stk_grows grows;
    int64_t amount;   /* MEMORY: bytes; SHARE: MiB of each device, of the first alternative */
    bool is_too_much; /* it is final since `amount` is more than there is */
    bool is_fallback; /* then nothing grows */
} stk_sched_retrying;
bool stk_sched_retry(const stk_sched *sched, uint32_t task, stk_failure failure, bool saved,
                     stk_sched_retrying *ret_retrying);
/* The same of a failure that every attempt would meet: only the fallback may follow. */
bool stk_sched_last_resort(const stk_sched *sched, uint32_t task, stk_sched_retrying *ret_retrying);

stk_task_state stk_sched_state(const stk_sched *sched, uint32_t task);
uint32_t stk_sched_attempt(const stk_sched *sched,
                           uint32_t task); /* the current or last one; 0: none yet */
/* The current attempt (or the one that is due) is the one in place of a final failure. */
bool stk_sched_is_fallback(const stk_sched *sched, uint32_t task);
bool stk_sched_is_last_attempt(const stk_sched *sched, uint32_t task);
bool stk_sched_is_cancelling(const stk_sched *sched);
void stk_sched_count(const stk_sched *sched, stk_sched_counts *ret_counts);

/* What `task` asks for now: as it was added, or more after running out of memory. The asks belong
 * to the scheduler, until the next stk_sched_add or fold. */
typedef struct stk_sched_asking {
    int64_t memory_bytes;
    const stk_pack_ask *asks;
    uint32_t n_asks;
} stk_sched_asking;
stk_sched_asking stk_sched_asks(const stk_sched *sched, uint32_t task);
/* MiB of a device that this run's tasks hold; STK_SCHED_ALL: all of it. */
int32_t stk_sched_held(const stk_sched *sched, uint32_t device);
/* MiB of it that others hold, as last folded. */
int32_t stk_sched_outside(const stk_sched *sched, uint32_t device);
/* Of the ready tasks that only wait for devices, and would not but for others than this run, the
 * one that has been ready longest, of the first of each kind; or UINT32_MAX. */
uint32_t stk_sched_waiter(const stk_sched *sched);
/* The devices that a ready task should be given, whoever holds them now: those that have the least
 * to give back, none of `avoid` if that is possible. False: there are none (gone). */
bool stk_sched_claim(const stk_sched *sched, uint32_t task, const stk_devset *avoid,
                     stk_devset *ret_devices);
/* A running task that holds (some of) a device, or UINT32_MAX. */
uint32_t stk_sched_holder(const stk_sched *sched, uint32_t device);

/* Why a task that isn't running waits: a needed task, or CPUs / memory / devices / a place and a
 * running task that holds them. */
typedef struct stk_sched_why {
    enum {
        STK_WHY_NONE,
        STK_WHY_NEEDS,
        STK_WHY_CPU,
        STK_WHY_MEMORY,
        STK_WHY_DEVICES,
        STK_WHY_WORKERS,
        STK_WHY_PLACE, /* as many jobs as there may be are elsewhere at once */
        STK_WHY_BACKOFF
    } what;
    uint32_t other;           /* task that is waited for, or UINT32_MAX */
    bool is_queue;            /* `other` doesn't run: it has waited longer and is first */
    stk_devset held, outside; /* DEVICES: those it could have but for tasks of this run, for others
                               */
} stk_sched_why;
stk_sched_why stk_sched_explain(const stk_sched *sched, uint32_t task);

/* A hash of everything that the durable events determine (not of the order of waiting tasks, of
 * MISSED, BUSY and OUTSIDE answers, of due backoffs). Folding a run's events from the start gives
 * the same digest as the state that they were committed from. */
uint64_t stk_sched_digest(const stk_sched *sched);

#endif
