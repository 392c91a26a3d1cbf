/* view: one run as plain data: what happened to each step, and what it requested, got and used.
 *
 * A view is the fold of a run's durable events (src/tbl/events.def) over its spec. The live engine
 * folds the rows as it commits them, `stoker show` folds them from the store, and both get the same
 * view. Folding is cheap: it copies payloads, and parses only those that change the run itself.
 * stk_view_get_details parses a task's payload on demand.
 *
 * Tasks are numbered as in the events: task i is step i of the spec. In a document that grows
 * (docs/decisions/0009) TASK_ADDED makes the tasks, and there is none before. */
#ifndef STK_STORE_VIEW_H
#define STK_STORE_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/event.h"
#include "model/spec/spec.h"
#include "store/store.h"

typedef struct stk_view stk_view;

/* The run itself. Text lives as long as the view; JSON text is NULL if the event had none. */
typedef struct stk_view_run {
    const char *id;
    const char *name; /* the id if it has no name */
    const char *pipeline;
    const char *store;  /* absolute path of the store, or NULL */
    const char *status; /* "running" "succeeded" "failed" "cancelled" "interrupted" */
    const char *error;  /* of RUN_ENDED, or NULL */
    /* Of an interrupted run that another machine continues, by stk_view_set_taker: "USER on HOST",
     * and the stack by which to follow it; else NULL. */
    const char *taker, *taker_stack;
    const char *mode;
    const char *policy;
    const char *spec_digest;
    const char *parameters; /* JSON object: values the run was made with */
    const char *tags;       /* JSON array */
    const char *origin;     /* JSON object */
    const char *metadata;   /* JSON object: metadata logged for the run, or NULL */
    const char *code;       /* digest of the document of its steps' code, or NULL */
    const char *host;       /* JSON object: name, cpus, memory_bytes, devices */
    const char *pool;       /* JSON list: uuids of the devices that it may use; NULL: unknown */
    int64_t created_ms;
    int64_t started_ms; /* first RUN_STARTED; 0: not yet */
    int64_t ended_ms;   /* 0: not ended */
    uint32_t n_resumed; /* how often it was resumed */
    bool simulated;     /* its devices don't exist */
    uint32_t max_workers;
    uint32_t n_notes;
    const char *const
        *notes;             /* sentences for the user, in order, each once; waits go as they end */
    uint32_t n[STK_TASK_N]; /* tasks by state */
    uint32_t n_attempts_extra; /* attempts beyond the first, of all tasks */
} stk_view_run;

/* An attempt that isn't the last. */
typedef struct stk_view_attempt {
    uint32_t number;
    int64_t started_ms, ended_ms;
    const char *start_data, *end_data;     /* as of the task; end_data NULL: its end is unknown */
    const char *waits;                     /* as of the task: the last word was that it waits */
    const struct stk_view_attempt *before; /* NULL: this is the first */
} stk_view_attempt;

typedef struct stk_view_task {
    const char *name;  /* of its step */
    const char *label; /* what people type: the step's name; in a growing run "work/17" */
    const char *title; /* what they read: stk_spec_title; in a growing run the label */
    const stk_step *step;
    uint32_t i_step;
    uint32_t id; /* the <task> of its directory: 0; in a growing run its number + 1 */
    /* In a growing run; n_parents is 0 for the first task. */
    const uint32_t *parents; /* tasks; of a join its inputs, by branch */
    uint32_t n_parents;
    uint32_t split; /* task that opened the innermost open frame; UINT32_MAX: none */
    uint32_t branch;
    uint32_t ranks;       /* of a gang by num_parallel; 0: no gang */
    uint32_t width;       /* branches of the frame that it opened; 0: it opened none (yet) */
    stk_task_state state; /* durable events don't distinguish READY from WAITING: it is WAITING */
    uint32_t attempt;     /* the current or last attempt; 0: none yet */
    int64_t started_ms;   /* of the current or last attempt; 0: never started */
    int64_t ended_ms; /* of the last attempt, or when it was skipped, cached …; 0: not ended */
    int64_t first_ms; /* start of the first attempt */
    const stk_view_attempt *earlier; /* the attempt before the last, or NULL */
    int64_t retry_at_ms;             /* RETRYING: when the next attempt is due */
    const char *waits;      /* RUNNING on other machines, which don't run it yet: why; or NULL */
    const char *wait_note;  /* the run's note that says so, while it waits; or NULL */
    const char *start_data; /* payload of its last TASK_STARTED, JSON or NULL */
    const char *end_data;   /* payload of its last succeeded/cached/failed/skipped/cancelled */
} stk_view_task;

/* The tasks of one step. */
typedef struct stk_view_step {
    uint32_t n; /* 1; in a growing run the number of tasks added */
    uint32_t by_state[STK_TASK_N];
    uint32_t first;         /* its first task; UINT32_MAX: none */
    uint32_t n_extra;       /* attempts beyond the first */
    uint32_t most_attempts; /* most attempts of one task */
    int64_t started_ms;     /* the first start; 0: none */
    int64_t ended_ms;       /* the last end; 0: none */
} stk_view_step;

/* An open foreach around a task. */
typedef struct stk_view_frame {
    uint32_t task; /* the task that opened it */
    uint32_t index, n;
} stk_view_frame;

/* An artifact that a task of a growing run sees. */
typedef struct stk_view_artifact {
    const char *name;
    const char *ref;    /* JSON object, as in the event of its producer, without a long `value` */
    const char *digest; /* or NULL */
    uint32_t task;      /* its producer */
} stk_view_artifact;

typedef struct stk_view_scope {
    const stk_view_artifact *items; /* sorted by name */
    uint32_t n;
} stk_view_scope;

/* Sums over the tasks of a step; -1: unknown. */
typedef struct stk_view_sums {
    double cpu_s, task_s, gpu_held_s;
    int64_t peak_memory_bytes; /* of one task */
} stk_view_sums;

typedef struct stk_view_ref {
    const char *name; /* of the output */
    const char *digest;
    const char *format;
    const char *type;
    const char *meta;     /* JSON object */
    const char *metadata; /* JSON object, or NULL */
    const char *tags;     /* JSON array */
    const char *value;    /* JSON, only if small; else NULL */
    const char *preview;  /* digest of the component that cards show, or NULL */
    const char *artifact_name;
    const char *artifact_version;
    int64_t size;
} stk_view_ref;

typedef struct stk_view_input {
    const stk_input *input; /* as in the spec */
    const char *from;       /* "step.output", "parameter lr", "file data.csv", "value" …, short */
    const char *digest;     /* or NULL */
    const char *value;      /* JSON of a literal or parameter, or NULL */
} stk_view_input;

/* Amounts; -1: unknown (asked: not requested). */
typedef struct stk_view_amounts {
    double cpus; /* asked, granted: CPUs; used: cpu_s / wall_s */
    int64_t memory_bytes;
    int64_t n_devices;
    int64_t share_bytes; /* asked, granted: per device; -1: the whole device */
    double cpu_s;        /* used only, like all below */
    double wall_s;
    double gpu_held_s, gpu_busy_s; /* seconds × devices */
    double energy_j;               /* of the devices */
    int64_t read_bytes, write_bytes;
    const char *noun;        /* noun for the devices, if not "GPU" */
    uint32_t n_alternatives; /* asked: number of alternatives in any_of */
} stk_view_amounts;

/* A device that a step was given, and its use. -1 and NULL: unknown. */
typedef struct stk_view_device {
    const char *uuid, *model, *noun;
    int64_t index;        /* the driver's index */
    int64_t memory_bytes; /* of the device */
    int64_t share_bytes;  /* the step's share; 0: the whole device */
    int context;          /* the step had a context on it: 1, 0, -1 */
    double busy_percent;  /* mean */
    double busy_s;
    double throttled_s;
    double energy_j;
    int64_t peak_memory_bytes;
    int64_t peak_temperature_c;
} stk_view_device;

typedef struct stk_view_details {
    const stk_view_device *devices; /* granted ones */
    uint32_t n_devices;
    const char *verdict;       /* "granted 2 GPUs, used 1: …", or NULL: none granted */
    const char *verdict_cause; /* tbl/causes.def */
    int64_t n_devices_used;    /* -1 unknown */
    stk_view_amounts asked;
    stk_view_amounts granted;
    stk_view_amounts used;
    const char *granted_json; /* as committed, or NULL */
    const char *image; /* the image it ran in, by its given name; NULL: on the machine itself */
    const char *used_json;
    const char *metadata; /* JSON object or NULL */
    const char *miss;     /* why it was not cached, or NULL */
    const char *cached_from;
    const char *unseen;      /* of a cached step: reads that can't be seen, or NULL */
    int64_t from_task;       /* of a clone: the task of the original run; -1: none */
    const char *because;     /* SKIPPED: title of the step that did not succeed */
    const char *error_class; /* NULL: no error */
    const char *error_text;  /* without the step's name: "exit status 3" */
    const char *traceback;
    const char *where; /* file:line */
    int64_t rank;      /* the rank of a gang that failed first; -1: no gang, or unknown */
    int64_t
        noticed_us; /* time from the rank's failure until the gang noticed, at most; -1: unknown */
    const char *const *warnings;
    uint32_t n_warnings;
    const stk_view_ref *outputs;
    uint32_t n_outputs;
    const stk_view_input *inputs;
    uint32_t n_inputs;
    const char *dir; /* absolute attempt directory, or NULL (never started) */
    const char *stdout_path;
    const char *stderr_path;
    const char *checkpoints_path; /* the task's checkpoints there; NULL: none */
    uint32_t n_checkpoints;
    int64_t checkpoint_bytes; /* -1 unknown */
} stk_view_details;

typedef struct stk_view_totals {
    double cpu_s;
    double wall_s; /* of the run, until now_ms or its end */
    double task_s; /* sum of the steps' wall times */
    double gpu_held_s, gpu_busy_s,
        energy_j;         /* sums over the steps that reported them; -1: none did */
    char noun[32];        /* noun for the devices held: "GPU", "TPU chip"; "device" if mixed */
    double saved_s;       /* time that the cached steps took when they ran; 0 if unknown */
    int64_t peak_bytes;   /* the largest peak of a step; -1: unknown */
    int64_t most_devices; /* most devices granted to one step; and their name */
    char most_noun[32];
    uint32_t n_tasks; /* stk_view_run.n has them by state */
    uint32_t n_done;  /* tasks in a final state */
} stk_view_totals;

/* `spec` is borrowed and must outlive the view. `store_path` NULL: details have no paths. A view
 * without events is "running". Errors: STK_E_NOMEM. */
int stk_view_new(const stk_spec *spec, const char *run, const char *store_path, stk_view **ret_view,
                 stk_err *err);
/* Loads everything in the store about `run` (a resolved id); parses and owns its spec. A run
 * without an end whose lock is free is "interrupted". Errors: those of the store and the spec. */
int stk_view_load(stk_store *store, const char *run, stk_view **ret_view, stk_err *err);
/* Folds the events since the last fold (a follower's poll), and checks again whether the run is
 * live. ret_new: number of events. */
int stk_view_refresh(stk_view *view, stk_store *store, uint32_t *ret_new, stk_err *err);
void stk_view_free(stk_view *view); /* NULL is fine */
static inline void stk_view_free_auto(stk_view **owned)
{
    stk_view_free(*owned);
}
#define STK_VIEW_AUTO __attribute__((cleanup(stk_view_free_auto))) stk_view *

/* Rows must come in the order of seq; a row with a seq already folded is ignored (seq 0: not
 * checked). Copies what it needs of `row`. Errors: STK_E_STORE for a payload that is no JSON
 * object, or a task that was never added; STK_E_NOMEM. */
int stk_view_fold(stk_view *view, const stk_event_row *row, stk_err *err);

const stk_spec *stk_view_spec(const stk_view *view);
const stk_view_run *stk_view_get_run(const stk_view *view);
uint32_t stk_view_n_tasks(const stk_view *view);
const stk_view_task *stk_view_get_task(const stk_view *view, uint32_t i_task);
/* Finds a task by label or title ("train"; in a growing run "work/17", or "work" if the step has
 * only one); false: none. */
bool stk_view_find(const stk_view *view, const char *name, uint32_t *ret_task);
bool stk_view_grows(const stk_view *view);
/* The task's title for people: "work"; in a growing run "work/17", in a foreach "work/17 (item 3 of
 * start)"; in `arena`. */
const char *stk_view_who(const stk_view *view, uint32_t i_task, stk_arena *arena);
const stk_view_step *stk_view_get_step(const stk_view *view, uint32_t i_step);
/* The most telling state of the step's tasks: failure before running before waiting before success.
 * A step without tasks is waiting. */
stk_task_state stk_view_worst(const stk_view_step *step);
/* Reads the payloads of all tasks that ran; returns sums by step, in `arena`. */
int stk_view_sum_steps(const stk_view *view, stk_arena *arena, stk_view_sums **ret_sums,
                       stk_err *err);
/* Sets who continues the run elsewhere; copies both. */
int stk_view_set_taker(stk_view *view, const char *who, const char *stack, stk_err *err);
bool stk_view_is_live(const stk_view *view); /* True if the status is "running". */

/* The open foreach frames of a task of a growing run, outermost first, in `arena`. */
int stk_view_foreach(const stk_view *view, uint32_t i_task, stk_arena *arena,
                     stk_view_frame **ret_frames, uint32_t *ret_n, stk_err *err);
/* The artifacts visible to rank `rank` (0: the task itself) of a task of a growing run: those of
 * its parent (of a join: none) plus its outputs, minus those it dropped. The view keeps parents'
 * scopes, so that reading all tasks of a step costs no more than their own artifacts. */
int stk_view_get_scope(const stk_view *view, uint32_t i_task, uint32_t rank, stk_arena *arena,
                       stk_view_scope *ret_scope, stk_err *err);
/* The same for an earlier attempt, which failed: with what it had made until then. */
int stk_view_attempt_scope(const stk_view *view, uint32_t i_task, uint32_t rank,
                           const stk_view_attempt *attempt, stk_arena *arena,
                           stk_view_scope *ret_scope, stk_err *err);
/* Reads the payloads of one task; everything lives in `arena`. */
int stk_view_get_details(const stk_view *view, uint32_t i_task, stk_arena *arena,
                         stk_view_details *ret_details, stk_err *err);
/* Reads the payloads of all tasks that ran. now_ms is the end of a run without one. Looks up in
 * `store` (or NULL) how long cached steps once took: one pass over each run that results came from.
 */
int stk_view_total(const stk_view *view, stk_store *store, int64_t now_ms,
                   stk_view_totals *ret_totals, stk_err *err);
/* For every skipped task the failed or cancelled task at the start of its chain of skips,
 * UINT32_MAX for other tasks; n_tasks numbers in `arena`. */
int stk_view_roots(const stk_view *view, stk_arena *arena, uint32_t **ret_roots, stk_err *err);

/* --- helpers for output --- */

/* The path of an artifact in its store, unchecked; "" if `store` or the digest is NULL. */
const char *stk_view_artifact_path(stk_arena *arena, const char *store, const char *digest);
/* The status word of a task. With `truly`, a task still running in an interrupted run is
 * "interrupted". */
const char *stk_view_status(const stk_view *view, const stk_view_task *task, bool truly);

/* The directory of the task's last attempt; NULL: none yet, or the view has no store. */
const char *stk_view_dir(const stk_view *view, const stk_view_task *task, stk_arena *arena);
/* True if the last attempt was granted devices; doesn't parse JSON. */
bool stk_view_has_devices(const stk_view_task *task);

/* True if the step has too many tasks to list one by one. */
bool stk_view_is_wide(const stk_view *view, uint32_t i_step);

/* An artifact with its known properties. */
typedef struct stk_view_found {
    const char *step; /* or NULL */
    stk_view_ref ref;
} stk_view_found;

/* Finds an artifact by its digest, as RUN/STEP.OUTPUT (RUN/STEP if it is the only one,
 * RUN/STEP/ID.NAME in a growing run), or as NAME[:VERSION]; in `arena`. */
int stk_view_find_artifact(stk_store *store, const char *text, stk_arena *arena,
                           stk_view_found *ret, stk_err *err);
stk_view_ref stk_view_named_ref(const stk_named_row *row, stk_arena *arena);

#endif
