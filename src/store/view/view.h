/* view: one run as plain data. What happened to each step, what did it ask for, get and use?
 *
 * A view is the fold of a run's durable events (src/tbl/events.def) over its spec. The live engine
 * folds the rows as it commits them, `stoker show` folds them out of the store: both see the same.
 * Folding is cheap (a copy of the payload, nothing is parsed but what changes the run itself);
 * the payload of a task is read when somebody asks for it (stk_view_details).
 *
 * Tasks are numbered as in the events: task i is step i of the spec, unless the document grows
 * (docs/decisions/0009): then no task is there until TASK_ADDED makes it.
 */
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

/* The run itself. Text lives as long as the view; JSON text is NULL where the event had none. */
typedef struct stk_view_run {
    const char *id;
    const char *name; /* the id when it was not named */
    const char *pipeline;
    const char *store;  /* absolute path of the store, or NULL */
    const char *status; /* "running" "succeeded" "failed" "cancelled" "interrupted" */
    const char *error;  /* of RUN_ENDED, or NULL */
    const char *mode;
    const char *policy;
    const char *spec_digest;
    const char *parameters; /* JSON object: values the run was made with */
    const char *tags;       /* JSON array */
    const char *origin;     /* JSON object */
    const char *metadata;   /* JSON object: what was logged of the run itself, or NULL */
    const char *host;       /* JSON object: name, cpus, memory_bytes, devices */
    const char *pool;       /* JSON list: uuids of the devices that it may use; NULL: not known */
    int64_t created_ms;
    int64_t started_ms; /* first RUN_STARTED; 0: not yet */
    int64_t ended_ms;   /* 0: not ended */
    uint32_t n_resumed; /* how often it was taken up again */
    uint32_t max_workers;
    uint32_t n_notes;
    const char *const *notes;  /* sentences for the user, in order, each once */
    uint32_t n[STK_TASK_N];    /* tasks by state */
    uint32_t n_attempts_extra; /* attempts beyond the first, of all tasks */
} stk_view_run;

typedef struct stk_view_task {
    const char *name;  /* of its step */
    const char *label; /* what people call it: the step's name, of a growing run "work/17" */
    const stk_step *step;
    uint32_t i_step;
    uint32_t id; /* the <task> of its directory: 0, of a growing run its number + 1 */
    /* Of a growing run; n_parents is 0 for the first task. */
    const uint32_t *parents; /* tasks; of a join its inputs, by branch */
    uint32_t n_parents;
    uint32_t split; /* task that opened the innermost open frame; UINT32_MAX: none */
    uint32_t branch;
    uint32_t ranks;       /* of a gang by num_parallel; 0: none */
    uint32_t width;       /* branches of the frame that it opened; 0: none (yet) */
    stk_task_state state; /* WAITING and READY are not told apart by durable events: WAITING */
    uint32_t attempt;     /* the current or last one; 0: none yet */
    int64_t started_ms;   /* of the current or last attempt; 0: never started */
    int64_t ended_ms;    /* of the last attempt, or when it was skipped, cached …; 0: not ended */
    int64_t first_ms;    /* start of the first attempt */
    int64_t retry_at_ms; /* RETRYING: when the next attempt is due */
    const char *start_data; /* payload of its last TASK_STARTED, JSON or NULL */
    const char *end_data;   /* payload of its last succeeded/cached/failed/skipped/cancelled */
} stk_view_task;

/* The tasks of one step. */
typedef struct stk_view_step {
    uint32_t n; /* 1, of a growing run as many as were added */
    uint32_t by_state[STK_TASK_N];
    uint32_t first;         /* its first task; UINT32_MAX: none */
    uint32_t n_extra;       /* attempts beyond the first */
    uint32_t most_attempts; /* of one task */
    int64_t started_ms;     /* the first start; 0: none */
    int64_t ended_ms;       /* the last end; 0: none */
} stk_view_step;

/* An open foreach that a task is in. */
typedef struct stk_view_frame {
    uint32_t task; /* that opened it */
    uint32_t index, n;
} stk_view_frame;

/* An artifact that a task of a growing run sees. */
typedef struct stk_view_artifact {
    const char *name;
    const char *ref;    /* JSON object, as in the event of who made it, without a long `value` */
    const char *digest; /* or NULL */
    uint32_t task;      /* who made it */
} stk_view_artifact;

typedef struct stk_view_scope {
    const stk_view_artifact *items; /* sorted by name */
    uint32_t n;
} stk_view_scope;

/* Sums over the tasks of a step; -1 where nothing is known. */
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
    const char *value;    /* JSON, small values only; NULL */
    const char *artifact_name;
    const char *artifact_version;
    int64_t size;
} stk_view_ref;

typedef struct stk_view_input {
    const stk_input *input; /* as the spec has it */
    const char *from;       /* "step.output", "parameter lr", "file data.csv", "value" …, short */
    const char *digest;     /* or NULL */
    const char *value;      /* JSON of a literal or parameter, or NULL */
} stk_view_input;

/* Amounts; -1 where not known (asked: not asked for). */
typedef struct stk_view_amounts {
    double cpus; /* asked, granted: CPUs; used: cpu_s / wall_s */
    int64_t memory_bytes;
    int64_t n_devices;
    int64_t share_bytes; /* asked, granted: of each device; -1: the whole of it */
    double cpu_s;        /* used only, like all that follow */
    double wall_s;
    double gpu_held_s, gpu_busy_s; /* seconds × devices */
    double energy_j;               /* of the devices */
    int64_t read_bytes, write_bytes;
    const char *noun;        /* of the devices, where it isn't "GPU" */
    uint32_t n_alternatives; /* asked: of any_of */
} stk_view_amounts;

/* A device that a step was given, and what it did with it. -1 and NULL: not known. */
typedef struct stk_view_device {
    const char *uuid, *model, *noun;
    int64_t index;        /* the vendor's */
    int64_t memory_bytes; /* of the device */
    int64_t share_bytes;  /* of it; 0: the whole device */
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
    const char *verdict;       /* "granted 2 GPUs, used 1: …", or NULL: none was granted */
    const char *verdict_cause; /* tbl/causes.def */
    int64_t n_devices_used;    /* -1 unknown */
    stk_view_amounts asked;
    stk_view_amounts granted;
    stk_view_amounts used;
    const char *granted_json; /* as committed, or NULL */
    const char *image;        /* it ran in, as it was named; NULL: on the machine itself */
    const char *used_json;
    const char *metadata; /* JSON object or NULL */
    const char *miss;     /* why it was not cached, or NULL */
    const char *cached_from;
    int64_t from_task;       /* of a clone: the task of that run; -1: none */
    const char *because;     /* SKIPPED: the step that did not succeed */
    const char *error_class; /* NULL: no error */
    const char *error_text;  /* without the step's name: "exit status 3" */
    const char *traceback;
    const char *where;  /* file:line */
    int64_t rank;       /* of a gang, that failed first; -1: none, or not known */
    int64_t noticed_us; /* the gang's failure, at most so long after it happened; -1 */
    const char *const *warnings;
    uint32_t n_warnings;
    const stk_view_ref *outputs;
    uint32_t n_outputs;
    const stk_view_input *inputs;
    uint32_t n_inputs;
    const char *dir; /* absolute attempt directory, or NULL (never started) */
    const char *stdout_path;
    const char *stderr_path;
    const char *checkpoints_path; /* that the task has there now; NULL: none */
    uint32_t n_checkpoints;
    int64_t checkpoint_bytes; /* -1 unknown */
} stk_view_details;

typedef struct stk_view_totals {
    double cpu_s;
    double wall_s; /* of the run until now_ms or its end */
    double task_s; /* sum of the steps' wall times */
    double gpu_held_s, gpu_busy_s,
        energy_j;         /* sums over the steps of which they are known; -1: none */
    char noun[32];        /* of what was held: "GPU", "TPU chip"; of several kinds "device" */
    double saved_s;       /* what the cached steps took when they ran; 0 if not known */
    int64_t peak_bytes;   /* the largest of the steps' peaks; -1: none is known */
    int64_t most_devices; /* that one step was granted; and what they are called */
    char most_noun[32];
    uint32_t n_tasks; /* and by state: stk_view_run.n */
    uint32_t n_done;  /* final ones */
} stk_view_totals;

/* `spec` is borrowed and outlives the view. `store_path` NULL: no paths in details. A view without
 * events is "running". Errors: STK_E_NOMEM. */
int stk_view_new(const stk_spec *spec, const char *run, const char *store_path, stk_view **ret_view,
                 stk_err *err);
/* Everything the store knows of `run` (an id, already resolved); parses and owns its spec. A run
 * without an end whose lock nobody holds is "interrupted". Errors: of the store and the spec. */
int stk_view_load(stk_store *store, const char *run, stk_view **ret_view, stk_err *err);
/* Folds the events that came since the last fold (a follower's poll), and asks anew whether the run
 * is live. ret_new: how many there were. */
int stk_view_refresh(stk_view *view, stk_store *store, uint32_t *ret_new, stk_err *err);
void stk_view_free(stk_view *view); /* NULL is fine */
static inline void stk_view_free_auto(stk_view **owned)
{
    stk_view_free(*owned);
}
#define STK_VIEW_AUTO __attribute__((cleanup(stk_view_free_auto))) stk_view *

/* Rows come in the order of seq; a row whose seq was folded already is ignored (seq 0: not
 * checked). Nothing of `row` is kept. Errors: STK_E_STORE for a payload that is no JSON object or a
 * task that nobody added; STK_E_NOMEM. */
int stk_view_fold(stk_view *view, const stk_event_row *row, stk_err *err);

const stk_spec *stk_view_spec(const stk_view *view);
const stk_view_run *stk_view_get_run(const stk_view *view);
uint32_t stk_view_n_tasks(const stk_view *view);
const stk_view_task *stk_view_get_task(const stk_view *view, uint32_t i_task);
/* Task by label ("train", of a growing run "work/17", or "work" where that is the step's only one);
 * false: no such. */
bool stk_view_find(const stk_view *view, const char *name, uint32_t *ret_task);
bool stk_view_grows(const stk_view *view);
/* "work", of a growing run "work/17", in a foreach "work/17 (item 3 of start)"; in `arena`. */
const char *stk_view_who(const stk_view *view, uint32_t i_task, stk_arena *arena);
const stk_view_step *stk_view_get_step(const stk_view *view, uint32_t i_step);
/* What says most about the step: a failure before what runs before what waits before success. A
 * step without tasks waits. */
stk_task_state stk_view_worst(const stk_view_step *step);
/* Reads the payloads of all tasks that ran: sums by step, in `arena`. */
int stk_view_sum_steps(const stk_view *view, stk_arena *arena, stk_view_sums **ret_sums,
                       stk_err *err);
bool stk_view_is_live(const stk_view *view); /* status is "running" */

/* The open foreach frames of a task of a growing run, outermost first, in `arena`. */
int stk_view_foreach(const stk_view *view, uint32_t i_task, stk_arena *arena,
                     stk_view_frame **ret_frames, uint32_t *ret_n, stk_err *err);
/* The artifacts that rank `rank` (0: the task itself) of a task of a growing run sees: what its
 * parent sees (a join: nothing) with its own outputs, without what it dropped. Parents' scopes are
 * kept by the view, so that all tasks of a step cost no more than what they have. */
int stk_view_get_scope(const stk_view *view, uint32_t i_task, uint32_t rank, stk_arena *arena,
                       stk_view_scope *ret_scope, stk_err *err);
/* Reads the payloads of one task; everything lives in `arena`. */
int stk_view_get_details(const stk_view *view, uint32_t i_task, stk_arena *arena,
                         stk_view_details *ret_details, stk_err *err);
/* Reads the payloads of all tasks that ran. now_ms counts for a run without end. `store` (or NULL)
 * is asked what cached steps once took: one pass over each run that results came from. */
int stk_view_total(const stk_view *view, stk_store *store, int64_t now_ms,
                   stk_view_totals *ret_totals, stk_err *err);
/* For every skipped task the one that its chain of skips began with (a failed or cancelled task),
 * UINT32_MAX for the others; n_tasks numbers in `arena`. */
int stk_view_roots(const stk_view *view, stk_arena *arena, uint32_t **ret_roots, stk_err *err);

/* --- pieces that who shows it needs --- */

/* Where an artifact lies in its store, without looking; "" when `store` or the digest is NULL. */
const char *stk_view_artifact_path(stk_arena *arena, const char *store, const char *digest);
/* The status word of a task; "interrupted" for what still runs in an interrupted run if `truly`. */
const char *stk_view_status(const stk_view *view, const stk_view_task *task, bool truly);

/* The directory of the task's last attempt; NULL: none yet, or the view is of no store. */
const char *stk_view_dir(const stk_view *view, const stk_view_task *task, stk_arena *arena);
/* Its last attempt was granted some, by a look that costs no parsing. */
bool stk_view_has_devices(const stk_view_task *task);

/* The tasks of the step are too many to be told one by one. */
bool stk_view_is_wide(const stk_view *view, uint32_t i_step);

/* An artifact with what is known about it. */
typedef struct stk_view_found {
    const char *step; /* or NULL */
    stk_view_ref ref;
} stk_view_found;

/* By its digest, as RUN/STEP.OUTPUT (RUN/STEP where it is the only one, RUN/STEP/ID.NAME of a
 * growing run), or as NAME[:VERSION]; in `arena`. */
int stk_view_find_artifact(stk_store *store, const char *text, stk_arena *arena,
                           stk_view_found *ret, stk_err *err);
stk_view_ref stk_view_named_ref(const stk_named_row *row, stk_arena *arena);

#endif
