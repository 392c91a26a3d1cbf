/* exec: actions → backend calls; what happens comes back as events; every event is committed before
 * it is acted on.
 *
 * One stk_exec drives one run from start (or from where it stopped) to its end, on the thread that
 * calls it. It owns the scheduler's state, which is the fold of the run's durable events; the store
 * has them first. A second engine on the same run is kept out by the run's lock, which the caller
 * holds.
 */
#ifndef STK_EXEC_H
#define STK_EXEC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "host/accel/accel.h"
#include "host/backend/backend.h"
#include "image/stack/stack.h"
#include "model/plan/plan.h"
#include "model/sched/sched.h"
#include "store/store.h"
#include "sys/clock.h"

typedef struct stk_exec stk_exec;

/* What the steps in containers share; arrays are by step. */
typedef struct stk_exec_containers {
    const stk_place *places;
    const char *const *images; /* "sha256:…" of those in a container */
    const char *const *pins;   /* "registry/repository@sha256:…" where one has it, else NULL */
    const char *const *python_paths; /* PYTHONPATH of the image itself, or NULL */
    const char *socket;              /* of the container engine */
    const char *owner;               /* "uid:gid" inside for whom files outside are the user's */
    bool limits_memory;              /* the engine can */
    const char *root;                /* the project's folder … */
    const char *code;                /* … and its files as laid out for this run; NULL: none */
    const char *front;               /* the Python front's package; NULL: no Python steps */
    const char *bin;                 /* our program with its libraries, or NULL: nobody needs it */
    const char *main_file;           /* the user's Python file, or NULL */
} stk_exec_containers;

/* What the steps on other machines share; arrays are by step. Which steps these are, and where, the
 * plan's requests say: place k is backend k of the mux. */
typedef struct stk_exec_elsewhere {
    const stk_place *places;
    const char *const *images;       /* as their engines are to name them */
    const char *const *python_paths; /* PYTHONPATH of the image itself, or NULL; may be NULL */
    const char *carry_at;            /* our folder inside: carry_at/bin/stoker, carry_at/python */
    const char *root;                /* the project's folder … */
    bool has_code;                   /* … which is inside, from the code package */
    const char *main_file;           /* the user's Python file, or NULL */
    /* Where artifacts are that only those machines' store has (as of stk_store_set_origin), for
     * threads other than the engine's, several at once; and ends all that is under way. NULL: the
     * engine's own thread asks its store's origin. */
    stk_store_fetch fetch;
    void (*fetch_cancel)(void *arg);
    void *fetch_arg;
} stk_exec_elsewhere;

typedef struct stk_exec_config {
    stk_store *store;
    stk_backend *backend; /* exec's own from stk_exec_open on, also when that fails */
    stk_accel *accel;     /* or NULL: no devices */
    const stk_clock *clock;
    const stk_plan *plan; /* borrowed, and its spec */
    const stk_capacity *capacity;
    const stk_exec_containers *containers; /* borrowed; NULL: no step is in a container here */
    const stk_exec_elsewhere *elsewhere;   /* borrowed; NULL: no step runs on other machines */
    const char *stack;                     /* that was asked for, or NULL: none */
    const char *run;  /* id; its folder and lock exist, its row comes with our first commit */
    const char *name; /* of the run, or NULL: the id */
    bool resumed;     /* the run has events already */
    /* With `resumed`: it is only to be ended. What runs on other machines still is stopped
     * (`at_once`: without its grace time), nothing of the user's is begun. */
    bool cancelled, at_once;
    /* Of a graph that grows: the run (or what names it) whose finished tasks are taken over, but
     * for those of the step `clone_until`; NULL: none, all. clone_only: and no more is done, the
     * run ends as interrupted. */
    const char *clone_of, *clone_until;
    bool clone_only;
    bool use_cache;
    stk_policy policy;
    stk_mode mode;
    uint32_t max_workers;
    int64_t
        idle_read_ms; /* artifacts not read for so long are, where nothing is to be done; 0: none */
    int signal_fd;    /* signalfd of SIGINT/SIGTERM/SIGHUP/SIGUSR1, or -1: the first cancels, the
                         second ends at once */
    int hangup_fd;    /* cancels when its other end closes, or -1 */
    /* Called after the event is durable. May be NULL. */
    void (*on_event)(void *arg, const stk_event_row *row);
    /* Called when an attempt's process is known, after its TASK_STARTED. May be NULL. */
    void (*on_started)(void *arg, uint32_t task, int64_t pid);
    /* Called for each signal from signal_fd: how many there were. May be NULL. */
    void (*on_signal)(void *arg, uint32_t n);
    /* Called now and then; returns milliseconds until it wants to be called again (-1: with the
     * next event). May be NULL. */
    int64_t (*on_tick)(void *arg, int64_t now_ms);
    /* Whether the run is still this engine's to run; asked before anything is done. An error ends
     * the loop, and nothing more of the run is touched. May be NULL. */
    int (*check)(void *arg, stk_err *err);
    void *arg;
} stk_exec_config;

/* INTERRUPTED: SIGTERM came from elsewhere than `stoker cancel`: this machine's time is up, not
 * somebody's interest in the run. */
typedef enum {
    STK_RUN_SUCCEEDED,
    STK_RUN_FAILED,
    STK_RUN_CANCELLED,
    STK_RUN_INTERRUPTED
} stk_run_status;

enum { STK_EXEC_CANCEL = 0x73746f70 /* the value that `stoker cancel` sends with its SIGTERM */ };

/* Commits RUN_CREATED (or folds what is there) and RUN_STARTED, in one transaction with the row of
 * a run that is new. When resuming, attempts that still live are ended first, and a finished one
 * whose end was not committed any more is taken as it is. Errors: those of the store; nothing was
 * started then. */
int stk_exec_open(const stk_exec_config *config, stk_exec **ret_exec, stk_err *err);
/* Until the run has ended; the backend is closed before that is on record. An error means the
 * engine can't go on (disk full, store gone): running tasks were ended, the run can be resumed. */
int stk_exec_loop(stk_exec *exec, stk_run_status *ret_status, stk_err *err);
void stk_exec_close(stk_exec *exec);

/* Live usage of a running task (progress lines). */
bool stk_exec_usage(stk_exec *exec, uint32_t task, int64_t *ret_memory_bytes, double *ret_cpus);
/* The sentence of the first final failure, or NULL. */
const char *stk_exec_error(const stk_exec *exec);

/* Would this step be served by the cache now? For `stoker plan`: the outputs of steps that hit are
 * known to those after them. ret_miss: the reason, or NULL when it hits. Steps must be asked in
 * plan order. */
typedef struct stk_forecast stk_forecast;
int stk_forecast_new(stk_store *store, const stk_plan *plan, stk_forecast **ret_forecast,
                     stk_err *err);
int stk_forecast_step(stk_forecast *forecast, uint32_t i_step, bool *ret_hit, const char **ret_miss,
                      stk_err *err);
void stk_forecast_free(stk_forecast *forecast);

/* What this host can give (CPUs, memory, devices), for stk_plan_new. Text lives in `arena`. */
int stk_exec_capacity(stk_accel *accel, stk_arena *arena, stk_capacity *ret_capacity, stk_err *err);
/* The scheduler of a run before its first event: every step is the task of its number; no tasks
 * where the graph grows. */
int stk_exec_schedule(const stk_plan *plan, const stk_capacity *capacity, stk_mode mode,
                      uint32_t max_workers, const char *run, stk_sched **ret_sched, stk_err *err);
/* The same after what is on record of a run, for who only reads: what waits for what (see
 * stk_sched_explain)? Devices that it holds are found by their uuid in `accel`. */
int stk_exec_refold(stk_store *store, const char *run, const stk_plan *plan,
                    const stk_capacity *capacity, const stk_accel *accel, stk_sched **ret_sched,
                    stk_err *err);
/* Folds what others than this run hold now. *ret_any (may be NULL): they hold something; *ret_new:
 * other than before. */
int stk_exec_fold_outside(stk_accel *accel, stk_sched *sched, bool *ret_any, bool *ret_new,
                          stk_err *err);
/* "GPU 0 by run … step … (user ann, pid 5)", several joined by "; ": who has these. In `arena`. */
const char *stk_exec_holders(stk_accel *accel, const stk_devset *devices, stk_arena *arena);

#endif
