/* exec_private: the inside of stk_exec, shared by the files of this room only. */
#ifndef STK_EXEC_PRIVATE_H
#define STK_EXEC_PRIVATE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/limits.h"
#include "base/map.h"
#include "exec/exec.h"
#include "sched/sched.h"
#include "spec/spec_result.h"

/* An output that exists: its digest and its ref (tbl/events.def) as JSON text. */
typedef struct exec_ref {
    const char *digest; /* NULL: not there */
    const char *json;
} exec_ref;

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
    bool stopped;           /* to be ended while its on_start job ran */
    bool owes_hooks; /* it succeeded under an earlier engine, which may not have run them all */
    stk_checkpoints checkpoints; /* that were there when this attempt began */
    int32_t xid; /* of this attempt: the driver reported it for a device of its; 0: none */
    const char *xid_text, *xid_device; /* the driver's words, the device's uuid; or NULL */
} exec_task;

/* What the cache lookup of a pipeline shares: digests of files already read. */
typedef struct exec_lookup {
    stk_store *store;
    const stk_plan *plan;
    stk_arena *arena; /* as long as the run */
    stk_map files;    /* path → artifact digest (char *) */
    stk_map seen;     /* path → plain SHA-256 of the file (char *) */
} exec_lookup;

typedef enum { EXEC_HIT, EXEC_MISS } exec_verdict;

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

struct stk_exec {
    stk_exec_config config;
    const stk_spec *spec;
    stk_sched *sched; /* its times are the monotonic clock's; events tell the wall's */
    exec_task *tasks;
    uint32_t n_tasks;
    stk_arena *arena;   /* the run */
    stk_arena *tick;    /* pending events' text; reset by stk_exec_flush */
    stk_arena *scratch; /* one start, one result */
    exec_lookup lookup;
    /* pending: folded, not committed */
    stk_event_row *events;
    uint32_t n_events, cap_events;
    stk_cache_row *cache;
    uint32_t n_cache, cap_cache;
    stk_ref_row *refs;
    uint32_t n_refs, cap_refs;
    uint32_t *launches; /* tasks to be started after the next flush */
    uint32_t n_launches, cap_launches;
    exec_slot *free_slots;
    uint32_t *cpu_ids;
    uint32_t *cpu_load; /* tasks pinned to each */
    uint32_t n_cpus;
    char *folder;     /* runs/<run> */
    uint32_t n_hooks; /* hook jobs that have not ended */
    uint32_t n_signals;
    bool hung_up;
    bool is_interrupted; /* by the first of these signals */
    bool noted_busy;
    int64_t look_ms;     /* when to look again what others hold, monotonic */
    int64_t look_for_ms; /* and how long after that */
    bool is_any_outside; /* they do */
    exec_claim claim;
    uint32_t n_leases; /* attempts that hold devices */
    stk_devset gone;   /* devices that broke, or were found broken by other runs */
    bool ended;
    stk_run_status status;
    char *error; /* first final failure, a sentence */
};

enum { EXEC_HOOK_BIT = 0x80000000u }; /* in a job id: not the task but a hook of it */

/* --- exec_event.c --- */

/* Folds into the scheduler and queues for the next flush. `data` is JSON in x->tick, or NULL. */
int stk_exec_emit(stk_exec *x, const stk_sched_event *event, const char *data, stk_err *err);
/* An event that only people read (NOTE, RUN_CREATED …). */
int stk_exec_emit_plain(stk_exec *x, stk_event_kind kind, const char *data, stk_err *err);
int stk_exec_emit_note(stk_exec *x, const char *text, stk_err *err);
int stk_exec_flush(stk_exec *x, stk_err *err);
int stk_exec_push_cache(stk_exec *x, const stk_cache_row *row, stk_err *err);
int stk_exec_push_ref(stk_exec *x, const stk_ref_row *row, stk_err *err);

/* --- exec_loop.c --- */

uint32_t stk_exec_attempt(const stk_exec *x,
                          uint32_t task); /* durable number of the current attempt */
const stk_step *stk_exec_step(const stk_exec *x, uint32_t task);
/* Absolute attempt directory, in `arena`. */
const char *stk_exec_dir(const stk_exec *x, uint32_t task, uint32_t attempt, stk_arena *arena);
int stk_exec_nomem(stk_err *err);

/* --- exec_cache.c --- */

int stk_exec_lookup_init(exec_lookup *lookup, stk_store *store, const stk_plan *plan,
                         stk_arena *arena);
void stk_exec_lookup_done(exec_lookup *lookup);
/* Outputs of a step by index; NULL digest where unknown. Used to find the digests of inputs. */
typedef const exec_ref *(*exec_outputs_fn)(void *arg, uint32_t i_step);
typedef struct exec_found {
    exec_verdict verdict;
    stk_cache_row row; /* HIT */
    exec_ref *outputs; /* HIT: by declared index */
    const char *key;   /* hex, or NULL when caching is off */
    const char *parts;
    const char *miss;   /* MISS: the reason */
    const char *inputs; /* JSON {name: digest} or NULL */
} exec_found;
/* Text lives in lookup->arena. */
int stk_exec_lookup_step(exec_lookup *lookup, uint32_t i_step, exec_outputs_fn outputs, void *arg,
                         bool use_cache, int64_t now_ms, exec_found *ret_found, stk_err *err);
/* {name: ref, …} → refs by declared output; also checks that the artifacts are there when `check`.
 */
int stk_exec_parse_outputs(exec_lookup *lookup, const stk_step *step, const char *json, bool check,
                           exec_ref **ret_outputs, stk_err *err);
const char *stk_exec_file_digest(exec_lookup *lookup, const char *path,
                                 stk_err *err); /* NULL on error */

/* --- exec_admit.c --- */

/* Takes the devices that the action names, and CPUs; emits TASK_STARTED and queues the launch, or
 * folds what others hold and BUSY. */
int stk_exec_admit(stk_exec *x, const stk_action *start, stk_err *err);
void stk_exec_release(stk_exec *x, uint32_t task);
/* {"cpu_count", "cpus", "threads", "memory_bytes", "devices"} of the attempt that `task` has a slot
 * for. */
void stk_exec_granted_json(const stk_exec *x, uint32_t task, stk_buf *buf);
/* What the attempt may use of the host's memory: as asked, or more after it ran out; 0: no limit.
 */
int64_t stk_exec_memory_limit(const stk_exec *x, uint32_t task);
int stk_exec_push_launch(stk_exec *x, uint32_t task, stk_err *err);

/* --- exec_start.c --- */

/* Makes the attempt directory and hands the job to the backend. A failed start becomes TASK_FAILED.
 */
int stk_exec_launch(stk_exec *x, uint32_t task, stk_err *err);
/* Starts hook number `when` of a task that doesn't run it itself; *ret_any false: it has none, it
 * ended under an earlier engine, or it can't be started, which is a note. */
int stk_exec_launch_hook(stk_exec *x, uint32_t task, stk_hook_when when, bool *ret_any,
                         stk_err *err);

/* The path of our own program. In x->scratch; NULL: out of memory. */
const char *stk_exec_self(const stk_exec *x);

/* --- exec_container.c --- */

bool stk_exec_is_contained(const stk_exec *x, uint32_t task);
/* `,"container":{…}` of its task.json. `env`: of the job, "K=V", NULL-terminated: it goes in by
 * names alone. Makes the places in the laid-out project that other things are mounted on. */
int stk_exec_container_json(stk_exec *x, uint32_t task, uint32_t attempt, const char *dir,
                            const char *const *env, stk_buf *buf, stk_err *err);
/* The image as it was named, or its id. */
const char *stk_exec_container_image(const stk_exec *x, uint32_t task);
/* `,"image":{"name","id"}` of what it is granted. */
void stk_exec_container_granted(const stk_exec *x, uint32_t task, stk_buf *buf);
/* Of what a step in a container was seen to load (JSON), the project's own files: the rest is the
 * image's, which is in the key. NULL: nothing; in `arena`. */
const char *stk_exec_container_seen(const stk_exec *x, const char *seen, stk_arena *arena);
/* `stoker contain DIR/task.json`; NULL: out of memory. */
const char *const *stk_exec_contain_argv(const stk_exec *x, const char *task_json);

/* --- exec_end.c --- */

int stk_exec_ended(stk_exec *x, const stk_report *report, stk_err *err);
/* The end of a task whose outcome is known: reads its result, stores its outputs, emits what
 * follows. */
int stk_exec_settle(stk_exec *x, uint32_t task, const stk_outcome *outcome, stk_err *err);
/* Runs the hooks that an earlier engine did not see end, of tasks that succeeded under it. */
int stk_exec_catch_up(stk_exec *x, uint32_t task, stk_err *err);
/* In an attempt's directory: hook `when` has ended. In x->scratch; NULL when out of memory. */
const char *stk_exec_hook_mark(stk_exec *x, uint32_t task, stk_hook_when when);
struct exec_gang;
/* Why an attempt failed; NULL where there is nothing to say. */
typedef struct exec_failure {
    stk_failure class;
    const char *text; /* a sentence without the step's name */
    const char *used; /* JSON */
    const char *traceback;
    const char *where;
    bool saved; /* a newer checkpoint than it began with */
    const struct exec_gang *gang;
    const stk_result *result; /* hooks that it names were run by the task itself */
} exec_failure;
/* Emits TASK_FAILED and what follows: TASK_RETRYING, or the hooks of a step that failed for good.
 */
int stk_exec_fail(stk_exec *x, uint32_t task, const exec_failure *failure, stk_err *err);

/* --- exec_gang.c --- */

/* What the launcher of an attempt's ranks saw (gang.json). -1 unknown. */
typedef struct exec_gang {
    int64_t first;      /* the rank that failed first */
    int64_t others;     /* that were ended because of it */
    int64_t noticed_us; /* so long after it had happened it was noticed, at most */
} exec_gang;
/* False: it left none, or the attempt was no gang. */
bool stk_exec_gang_read(stk_exec *x, const char *dir, exec_gang *ret_gang);
/* The sentence of an attempt that ran out of memory, with the rank; `text` as it is where nobody
 * knows. NULL: out of memory. */
const char *stk_exec_gang_oom(stk_exec *x, const exec_gang *gang, const char *text);

/* --- exec_checkpoint.c --- */

/* The folder of the task's checkpoints, in `arena`; NULL: out of memory. */
const char *stk_exec_checkpoints(stk_exec *x, uint32_t task, stk_arena *arena);
/* Before an attempt starts: the folder is there (a Python step makes it when it needs it), and has
 * complete checkpoints of the same inputs only. `task_json`: the attempt's. */
int stk_exec_checkpoints_begin(stk_exec *x, uint32_t task, uint32_t attempt,
                               const stk_buf *task_json, stk_err *err);
/* Its success is committed. */
void stk_exec_checkpoints_drop(stk_exec *x, uint32_t task);
/* Was a failed attempt preempted, and did it get further? Says so in `failure`. */
void stk_exec_preempted(stk_exec *x, uint32_t task, const stk_outcome *outcome,
                        exec_failure *failure);

/* --- exec_used.c --- */

/* What the attempt used, as JSON in `arena` (tbl/events.def: used), with the verdict on its
 * devices. `result`: what it said itself, or NULL. *ret_remark: a sentence, where it did not use
 * all that it was given, or used something else; else left alone. NULL: out of memory. */
const char *stk_exec_used_json(const stk_outcome *outcome, const stk_result *result,
                               stk_arena *arena, const char **ret_remark);
/* --- exec_devices.c --- */

/* Leases exactly these. STK_E_BUSY: another run was quicker; the scheduler knows then what is
 * free, and that it is to wait for a moment. */
int stk_exec_lease(stk_exec *x, const stk_action *start, stk_lease *ret_lease, stk_err *err);
/* Tells the scheduler what others hold, if something waits for devices and the last look is some
 * time ago. */
int stk_exec_look(stk_exec *x, stk_err *err);
/* After the scheduler's answer: when something waits for what others hold, says so (once) and when
 * to look again. */
int stk_exec_wait_devices(stk_exec *x, int64_t *wake_ms, stk_err *err);

/* --- exec_trouble.c --- */

/* Xids and their like since the last time: noted, and kept for the attempts on that device. What
 * comes while nobody holds it is none of this run's business. */
int stk_exec_device_events(stk_exec *x, stk_err *err);
/* An attempt failed: was it its device's fault? Then *class and *text say so; a device that needs a
 * reset leaves the pool. Before the attempt's slot is released. */
int stk_exec_blame(stk_exec *x, uint32_t task, exec_failure *failure, stk_err *err);
/* A device that has left the pool: for the scheduler, and noted. */
int stk_exec_gone(stk_exec *x, uint32_t i_device, const char *why, stk_err *err);
/* Every device that `task` could have had is out of the pool. */
int stk_exec_fail_gone(stk_exec *x, uint32_t task, stk_err *err);

/* --- exec_mask.c --- */

/* Stars instead of the known values of the step's secrets, in the logs and results in `dir`. */
void stk_exec_mask(const stk_settings *settings, const char *dir, stk_arena *arena);

/* --- exec_schedule.c --- */

/* What TASK_RETRYING says (its data, or NULL) that the next attempt gets more of. */
stk_grows stk_exec_grows(const char *data);

/* --- exec_resume.c --- */

int stk_exec_replay(stk_exec *x, stk_err *err);

#endif
