/* exec: turns the scheduler's actions into backend calls, and their outcomes into events. It
 * commits every event before it acts on it.
 *
 * One stk_exec drives one run from its start, or from where it stopped, to its end, on the thread
 * that calls it. It owns the scheduler's state, which is the fold of the run's durable events. The
 * caller holds the run's lock, which keeps a second engine out.
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

/* Shared by the steps in containers; arrays are by step. */
typedef struct stk_exec_containers {
    const stk_place *places;
    const char *const *images; /* "sha256:…" of a step in a container */
    const char *const *pins; /* "registry/repository@sha256:…" if a registry has it, else NULL */
    const char *const *python_paths; /* PYTHONPATH of the image itself, or NULL */
    const char *socket;              /* of the container engine */
    const char *owner;               /* "uid:gid" inside that owns the user's files outside */
    bool limits_memory;              /* the container engine can */
    const char *root;                /* the project's folder … */
    const char *code;                /* … and its unpacked files for this run; NULL: none */
    bool by_file;          /* in a user's home folder: the files are mounted, not the folder */
    const char *front;     /* the Python front's package; NULL: no Python steps */
    const char *bin;       /* our program with its libraries; NULL: no step needs it */
    const char *main_file; /* the user's Python file, or NULL */
} stk_exec_containers;

/* Shared by the steps on other machines; arrays are by step. The plan's requests have the steps'
 * places; place k is backend k of the mux. */
typedef struct stk_exec_elsewhere {
    const stk_place *places;
    const char *const *images;       /* as the remote engines name them */
    const char *const *python_paths; /* PYTHONPATH of the image itself, or NULL; may be NULL */
    const char *carry_at;            /* our folder inside: carry_at/bin/stoker, carry_at/python */
    const char *root;                /* the project's folder … */
    bool has_code;                   /* … whose files come from the code package */
    const char *main_file;           /* the user's Python file, or NULL */
    /* Fetches artifacts that only those machines' store has (as for stk_store_set_origin). Other
     * threads than the engine's call it, several at once. Also ends all fetches under way. NULL:
     * the engine's own thread asks its store's origin. */
    stk_store_fetch fetch;
    void (*fetch_cancel)(void *arg);
    void *fetch_arg;
} stk_exec_elsewhere;

typedef struct stk_exec_config {
    stk_store *store;
    stk_backend *backend; /* stk_exec_open takes it over, also on failure */
    stk_accel *accel;     /* or NULL: no devices */
    const stk_clock *clock;
    const stk_plan *plan; /* borrowed, and its spec */
    const stk_capacity *capacity;
    const stk_exec_containers *containers; /* borrowed; NULL: no step is in a container here */
    const stk_exec_elsewhere *elsewhere;   /* borrowed; NULL: no step runs on other machines */
    const char *stack;                     /* the requested one, or NULL */
    const char *front; /* the Python front's package, which records what programs read; or NULL */
    const char *run;   /* id; its folder and lock exist, our first commit adds its row */
    const char *name;  /* of the run; NULL: its id */
    /* A document of the steps' code (docs/formats/code.md), kept in the store without the values
     * of secrets; -1: none. stk_exec_open takes it over. */
    int code_fd;
    bool resumed; /* the run has events already */
    /* With `resumed`: only ends the run. Stops what still runs on other machines (`at_once`:
     * without grace time), and starts no code of the user's. */
    bool cancelled, at_once;
    /* For a graph that grows: takes over the finished tasks of this run (an id or a name), except
     * those of the step `clone_until`; NULL: no run, all steps. clone_only: the run then ends as
     * interrupted. */
    const char *clone_of, *clone_until;
    bool clone_only;
    bool use_cache;
    stk_policy policy;
    stk_mode mode;
    uint32_t max_workers;
    bool in_order; /* one task at a time, the lowest number first; max_workers is 1 */
    int64_t
        idle_read_ms; /* an idle engine reads artifacts that weren't read for so long; 0: none */
    int signal_fd;    /* signalfd of SIGINT/SIGTERM/SIGHUP/SIGUSR1, or -1: the first cancels, the
                         second ends at once */
    int hangup_fd;    /* cancels when its other end closes, or -1 */
    /* Called after the event is durable. May be NULL. */
    void (*on_event)(void *arg, const stk_event_row *row);
    /* Called when an attempt's process is known, after its TASK_STARTED. May be NULL. */
    void (*on_started)(void *arg, uint32_t task, int64_t pid);
    /* Called for each signal from signal_fd with the number so far. May be NULL. */
    void (*on_signal)(void *arg, uint32_t n);
    /* Called now and then; returns milliseconds until its next call (-1: with the next event). May
     * be NULL. */
    int64_t (*on_tick)(void *arg, int64_t now_ms);
    /* Checks that this engine still owns the run; called before every action. An error ends the
     * loop, and the engine leaves the run as it is. May be NULL. */
    int (*check)(void *arg, stk_err *err);
    void *arg;
} stk_exec_config;

/* INTERRUPTED: SIGTERM didn't come from `stoker cancel`. The machine is wanted back; nobody
 * cancelled the run. */
typedef enum {
    STK_RUN_SUCCEEDED,
    STK_RUN_FAILED,
    STK_RUN_CANCELLED,
    STK_RUN_INTERRUPTED
} stk_run_status;

enum { STK_EXEC_CANCEL = 0x73746f70 /* the value that `stoker cancel` sends with its SIGTERM */ };

/* Commits RUN_CREATED (or folds the old events) and RUN_STARTED, in one transaction with the row of
 * a new run. A resumed run first ends the attempts that still live, and takes the result of an
 * attempt that ended without a committed end. Errors: those of the store; nothing was started then.
 */
int stk_exec_open(const stk_exec_config *config, stk_exec **ret_exec, stk_err *err);
/* Drives the run to its end, and closes the backend before it records the end. On an error (full
 * disk, missing store) the engine can't continue; it has ended the running tasks, and the run can
 * be resumed. */
int stk_exec_loop(stk_exec *exec, stk_run_status *ret_status, stk_err *err);
void stk_exec_close(stk_exec *exec);

/* Live usage of a running task (progress lines). */
bool stk_exec_usage(stk_exec *exec, uint32_t task, int64_t *ret_memory_bytes, double *ret_cpus);
/* The sentence of the first final failure, or NULL. */
const char *stk_exec_error(const stk_exec *exec);

/* For `stoker plan`: finds whether the cache would serve a step now. Later steps know the outputs
 * of earlier hits, so the caller asks in plan order. ret_miss: why not; of a hit, what its step
 * read besides its inputs, or NULL. ret_note: what a user should know of a hit, or NULL. */
typedef struct stk_forecast stk_forecast;
int stk_forecast_new(stk_store *store, const stk_plan *plan, stk_forecast **ret_forecast,
                     stk_err *err);
int stk_forecast_step(stk_forecast *forecast, uint32_t i_step, bool *ret_hit, const char **ret_miss,
                      const char **ret_note, stk_err *err);
void stk_forecast_free(stk_forecast *forecast);

/* Makes the scheduler of a run before its first event: each step is the task of its number. A graph
 * that grows has no tasks yet. `in_order`: as in the configuration. */
int stk_exec_schedule(const stk_plan *plan, const stk_capacity *capacity, stk_mode mode,
                      uint32_t max_workers, bool in_order, const char *run, stk_sched **ret_sched,
                      stk_err *err);
/* Rebuilds the scheduler from a run's record, for readers that ask what a task waits for
 * (stk_sched_explain). Finds the run's devices by their uuid in `accel`. */
int stk_exec_refold(stk_store *store, const char *run, const stk_plan *plan,
                    const stk_capacity *capacity, const stk_accel *accel, stk_sched **ret_sched,
                    stk_err *err);
/* Folds the devices that others hold now. *ret_any (may be NULL): they hold some; *ret_new: not the
 * same as before. */
int stk_exec_fold_outside(stk_accel *accel, stk_sched *sched, bool *ret_any, bool *ret_new,
                          stk_err *err);

#endif
