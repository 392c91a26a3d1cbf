/* The simulator: the scheduler, the fake backend and an event log in memory, driven by a seed.
 *
 * A world is drawn from the seed: a machine, a graph, what every attempt of every task will do,
 * when the engine is killed, when the user cancels. The engine's part is played by sim_engine.c;
 * sim_model.c keeps its own record of what was committed, by other means than the scheduler, and
 * checks its rules after each event. The first broken rule ends the run.
 */
#ifndef STK_SIM_H
#define STK_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "host/backend/backend.h"
#include "model/sched/sched.h"

enum { SIM_TASKS_MAX = 2048, SIM_NEEDS_MAX = 8, SIM_ACTIONS_MAX = 48 };

typedef struct sim_task {
    stk_sched_task ask;
    stk_pack_ask devices; /* what ask.asks points to; one alternative, whole devices, any */
    uint32_t needs[SIM_NEEDS_MAX];
    uint32_t n_needs;
    /* the model's record */
    stk_task_state state; /* WAITING until started or final; RUNNING; final ones */
    uint32_t attempt, n_failed[STK_FAIL_N];
    int64_t not_before_ms;
    bool is_fallback;      /* its fallback attempt has begun */
    uint64_t ready_at;     /* the step in which the scheduler first called it ready; 0: not ready */
    uint64_t ready_starts; /* starts before that */
    bool has_job;          /* the backend runs it */
} sim_task;

typedef struct sim_kind { /* tasks that ask for the same */
    uint32_t n_passed;    /* later tasks that started meanwhile and took what it waits for */
    int64_t busy_until_ms;
} sim_kind;

typedef struct sim_entry {
    bool is_add;
    uint32_t task;
    stk_sched_event event;
} sim_entry;

typedef struct sim {
    uint64_t seed;
    uint64_t random; /* state of the generator */
    bool is_verbose;
    bool is_broken;
    char why[512];

    stk_sched_config config;
    sim_task *tasks;
    uint32_t n_tasks;
    uint32_t n_grow; /* tasks that may still be added while it runs */
    uint32_t kill_one_in, cancel_one_in, fail_percent, cached_percent, busy_percent;

    stk_sched *sched;
    stk_backend *backend;
    int64_t now_ms;
    uint64_t step, n_starts;
    uint32_t n_kills;
    bool is_killed, is_cancelling, is_ended;
    sim_entry *log;
    uint32_t n_log, cap_log;
    sim_kind kinds[SIM_TASKS_MAX]; /* by the first task that asks for it */
} sim;

/* sim_world.c */
uint64_t sim_hash(uint64_t seed, uint64_t a, uint64_t b);
uint32_t sim_below(sim *s, uint32_t n); /* uniform in 0 … n-1 */
bool sim_one_in(sim *s, uint32_t n);    /* n 0: never */
void sim_draw_world(sim *s, uint32_t n_tasks);
void sim_draw_task(sim *s, uint32_t task); /* its needs among those before it */
stk_fake_fate sim_fate(void *arg, const stk_job *job);
uint32_t sim_n_devices(const sim_task *task);
bool sim_is_cached(const sim *s, uint32_t task);

/* sim_model.c */
void sim_broken(sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sim_say(const sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool sim_is_stopping(const sim *s);
uint32_t sim_kind_of(const sim *s, uint32_t task);
void sim_check_event(sim *s, const stk_sched_event *event); /* before it is folded */
void sim_record(sim *s, const stk_sched_event *event);      /* and after */
void sim_check_state(sim *s);
void sim_check_actions(sim *s, const stk_action *actions, uint32_t n, bool is_all);
void sim_check_end(sim *s, int status);

/* sim_engine.c */
void sim_commit(sim *s, const stk_sched_event *event);
stk_sched *sim_refold(sim *s);
void sim_run(sim *s);

#endif
