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
 */
#ifndef STK_SCHED_H
#define STK_SCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/event.h"

typedef struct stk_sched stk_sched;

typedef struct stk_sched_config {
    int64_t cpu_milli;
    int64_t memory_bytes;
    uint32_t n_devices;
    uint32_t max_workers; /* tasks running at once, whatever they ask for; 0: no limit */
    stk_mode mode;
    uint64_t seed;         /* of the retry jitter */
    uint32_t free_retries; /* attempts a task gets back when the failure isn't charged (lost,
                              resources) */
} stk_sched_config;

typedef struct stk_sched_task {
    int64_t cpu_milli;
    int64_t memory_bytes;
    uint32_t n_devices;
    uint64_t device_kind; /* requests for different ones don't share a BUSY answer; 0: any device */
    uint32_t max_retries;
    int64_t delay_ms;
    double backoff;
    double jitter;
    bool lookup; /* ask the cache before it may start */
} stk_sched_task;

/* What is folded. Fields not named for a kind are ignored. Durable kinds are in tbl/events.def. */
enum {
    STK_SE_MISSED = STK_EV_N, /* task: the cache had nothing (not durable) */
    STK_SE_BUSY /* task: its devices were not free after all; not before at_ms (not durable) */
};

typedef struct stk_sched_event {
    int kind; /* stk_event_kind or STK_SE_… */
    uint32_t task;
    uint32_t attempt;    /* TASK_STARTED … */
    stk_failure failure; /* TASK_FAILED */
    bool is_final;       /* TASK_FAILED: no retry follows */
    int64_t at_ms;       /* TASK_RETRYING, BUSY: not before; RUN_CANCELLING: now */
} stk_sched_event;

typedef enum {
    STK_ACT_LOOKUP, /* ask the cache for `task`; answer TASK_CACHED or MISSED */
    STK_ACT_START, /* start `task`, attempt number `attempt`; answer TASK_STARTED at once (resources
                      are taken by folding it) */
    STK_ACT_STOP,  /* end the running `task` (fail_fast, cancel); idempotent: repeated until it is
                      final */
    STK_ACT_SKIP,  /* commit TASK_SKIPPED for `task` because of task `cause` */
    STK_ACT_CANCEL, /* commit TASK_CANCELLED for `task` (it never started) */
    STK_ACT_END     /* commit RUN_ENDED with `status`; nothing is left to do */
} stk_action_kind;

typedef struct stk_action {
    stk_action_kind kind;
    uint32_t task;
    uint32_t attempt;
    uint32_t cause;
    int status; /* END: 0 succeeded, 1 failed, 2 cancelled */
} stk_action;

typedef struct stk_sched_counts {
    uint64_t n[STK_TASK_N]; /* tasks by state */
    uint64_t n_tasks;
    int64_t cpu_used;
    int64_t memory_used;
    uint32_t devices_used;
    uint32_t running;
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

/* What follows a failure of the running `task` (ask before folding TASK_FAILED): true and the wait
 * when another attempt is due (commit TASK_FAILED not final, then TASK_RETRYING), false when it is
 * final. Consults budgets and mode; draws jitter (a factor within 1 ± jitter) from (seed, task,
 * attempt), so it can be repeated. Failures that aren't charged cost a retry only after
 * free_retries of them. */
bool stk_sched_retry(const stk_sched *sched, uint32_t task, stk_failure failure,
                     int64_t *ret_delay_ms);

stk_task_state stk_sched_state(const stk_sched *sched, uint32_t task);
uint32_t stk_sched_attempt(const stk_sched *sched,
                           uint32_t task); /* the current or last one; 0: none yet */
bool stk_sched_is_last_attempt(const stk_sched *sched, uint32_t task);
bool stk_sched_is_cancelling(const stk_sched *sched);
void stk_sched_count(const stk_sched *sched, stk_sched_counts *ret_counts);
/* Why a task that isn't running waits: a needed task, or CPUs / memory / devices and a running task
 * that holds them. */
typedef struct stk_sched_why {
    enum {
        STK_WHY_NONE,
        STK_WHY_NEEDS,
        STK_WHY_CPU,
        STK_WHY_MEMORY,
        STK_WHY_DEVICES,
        STK_WHY_WORKERS,
        STK_WHY_BACKOFF
    } what;
    uint32_t other; /* task that is waited for, or UINT32_MAX */
} stk_sched_why;
stk_sched_why stk_sched_explain(const stk_sched *sched, uint32_t task);

/* A hash of everything that the durable events determine (not of the order of waiting tasks, of
 * MISSED and BUSY answers, of due backoffs). Folding a run's events from the start gives the same
 * digest as the state that they were committed from. */
uint64_t stk_sched_digest(const stk_sched *sched);

#endif
