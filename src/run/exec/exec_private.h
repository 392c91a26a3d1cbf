/* exec_private: the inside of stk_exec, shared by the files of this room only. */
#ifndef STK_EXEC_PRIVATE_H
#define STK_EXEC_PRIVATE_H

#include <jansson.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/map.h"
#include "model/grow/grow.h"
#include "model/sched/sched.h"
#include "model/spec/spec_result.h"
#include "run/exec/exec.h"

/* An output that exists: its digest and its ref (tbl/events.def) as JSON text. */
typedef struct exec_ref {
    const char *digest; /* NULL: not there */
    const char *json;
} exec_ref;

/* An artifact under its name: of a task of a graph that grows, and of those after it (they share
 * it). */
typedef struct exec_artifact {
    const char *name;
    exec_ref ref;
    uint32_t document, number; /* its number in the task.json that was written as the document-th */
} exec_artifact;

/* The artifacts that are seen after a task (one rank of it), sorted by name. */
typedef struct exec_scope {
    exec_artifact *const *items;
    uint32_t n;
} exec_scope;

/* What one rank of a finished task made and deleted. */
typedef struct exec_part {
    exec_artifact **made;
    uint32_t n_made;
    const char *const *dropped;
    uint32_t n_dropped;
} exec_part;

/* What a finished task said. */
typedef struct exec_said {
    exec_part *parts; /* by rank */
    uint32_t n_parts; /* at least 1 */
    stk_grow_next next;
    exec_artifact *items; /* of a foreach: those that can be read one by one; or NULL */
} exec_said;

/* A task of a graph that grows, beyond what every task has. */
typedef struct exec_grown {
    exec_scope *scopes; /* by rank, once it is done */
    uint32_t n_scopes;
    bool has_followed; /* what follows it has been added */
    stk_grow_next next;
    exec_artifact *items;
    const char *refusal;  /* why it can't run here: a sentence; or NULL */
    const char *fallback; /* JSON: the failure that its attempt from now on makes good; or NULL */
    uint32_t origin;      /* its counterpart in the run that is cloned, or STK_GROW_NONE */
    bool is_clone;
} exec_grown;

/* What a running attempt holds. */
typedef struct exec_slot {
    stk_lease lease;
    stk_devset devices; /* those of the lease, also once the backend has it */
    int64_t pid;        /* leads the attempt's session; 0: not told */
    uint32_t cpus[STK_LIMIT_CPUS_PINNED];
    uint32_t n_cpus;
    struct exec_slot *next_free;
} exec_slot;

typedef struct exec_sum exec_sum;
typedef struct exec_idle exec_idle;
typedef struct exec_aside exec_aside;

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
    exec_aside *aside;    /* what is to be done with it waits for threads; or NULL */
} exec_task;

typedef struct exec_bring exec_bring;

/* What the cache lookup of a pipeline shares: digests of files already read. */
typedef struct exec_lookup {
    stk_store *store;
    const stk_plan *plan;
    stk_arena *arena;   /* as long as the run */
    stk_map files;      /* path → artifact digest (char *) */
    stk_map seen;       /* path → plain SHA-256 of the file (char *) */
    exec_sum *sum;      /* what takes long is asked of it; NULL: done at once */
    bool trusts;        /* artifacts that are there are not looked at: who uses them does it */
    const char *damage; /* of an artifact that it found; told by stk_exec_note_damage */
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

/* The items of the foreach that was asked for last. */
typedef struct exec_items {
    uint32_t split; /* STK_GROW_NONE: none */
    stk_arena *arena;
    stk_json list;
} exec_items;

struct stk_exec {
    stk_exec_config config;
    const stk_spec *spec;
    stk_sched *sched; /* its times are the monotonic clock's; events tell the wall's */
    exec_task *tasks;
    uint32_t n_tasks, cap_tasks;
    /* a graph that grows; else NULL */
    stk_grow *grow;
    exec_grown *grown; /* by task */
    exec_items items;
    struct exec_clone *clone; /* the run whose finished tasks are taken over; or NULL */
    uint32_t n_documents;     /* task.json's that were written */
    int64_t max_splits;       /* a limit of the flow's own, told to its tasks */
    bool is_held;             /* what is emitted now is one transaction: no flush in between */
    bool is_waiting;          /* clone_only: something would start now */
    stk_arena *arena;         /* the run */
    stk_arena *tick;          /* pending events' text; reset by stk_exec_flush */
    stk_arena *scratch;       /* one start, one result */
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
    bool is_interrupted;                 /* by the first of these signals */
    uint32_t n_left, first_left;         /* tasks elsewhere that go on without this engine */
    uint32_t n_unborn, first_unborn;     /* … that had no job yet, and get none */
    uint32_t n_attached, first_attached; /* … that did without an earlier one */
    struct exec_bring *bring;            /* or NULL */
    exec_sum *sum;
    struct exec_idle *idle; /* or NULL */
    uint8_t mounts;         /* may a step have mounts of its own? exec_input.c */
    bool no_clones;         /* the store's file system shares no blocks between files */
    bool noted_busy;
    bool *noted_less; /* by step: a gang of it got less than its ranks ask for, and that is told */
    int64_t look_ms;  /* when to look again what others hold, monotonic */
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
/* Its key, parts and inputs, without asking whether the cache has it. */
int stk_exec_key_of(stk_exec *x, uint32_t task, stk_err *err);

/* <task> of its directory: 0 of a static step. */
uint32_t stk_exec_id(const stk_exec *x, uint32_t task);
/* "step 'train'", of a graph that grows with the task: in `arena`; NULL: out of memory. */
const char *stk_exec_who(const stk_exec *x, uint32_t task, stk_arena *arena);

/* --- exec_bring.c --- */

int stk_exec_bring_open(const stk_exec_elsewhere *from, stk_store *store, exec_bring **ret,
                        stk_err *err);
void stk_exec_bring_close(exec_bring *bring); /* NULL is fine */
/* Of an artifact that a launch here needs, at `path` once it is here: it is on its way, and the
 * launch can't be made now. An error: it couldn't be brought. */
int stk_exec_bring_ask(exec_bring *bring, const char *digest, const char *path, bool *ret_comes,
                       stk_err *err);
/* Was something missing? Then the launch is made anew once it has come (UINT32_MAX: it failed, and
 * is not). *ret_rc: STK_E_NOMEM. */
bool stk_exec_bring_aside(exec_bring *bring, uint32_t task, stk_err *err, int *ret_rc);
/* True: it waits for an artifact, and does no more; the caller launches it. */
bool stk_exec_bring_stop(stk_exec *x, uint32_t task);
int stk_exec_bring_fd(const exec_bring *bring); /* readable: call the next; -1: never */
int stk_exec_brought(stk_exec *x, stk_err *err);

/* --- exec_sum.c --- */

typedef enum { EXEC_ASIDE_LOOKUP, EXEC_ASIDE_LAUNCH, EXEC_ASIDE_END } exec_aside_kind;
/* An output that is taken into the store, a file that is copied into it, one that is only summed.
 */
typedef enum {
    EXEC_SUM_OUTPUT = 'o',
    EXEC_SUM_COPY = 'c',
    EXEC_SUM_FILE = 'f',
    EXEC_SUM_CHECK = 'a', /* an artifact that is here, by its digest */
    EXEC_SUM_REMOVE = 'r'
} exec_sum_kind;
int stk_exec_sum_open(exec_sum **ret, stk_err *err);
void stk_exec_sum_close(exec_sum *sum); /* NULL is fine; ends what is under way */
/* Does it take long? `known`: its digest, or NULL. */
/* Signals were looked at. */
void stk_exec_sum_turn(exec_sum *sum);
/* Is it for a thread: large, a folder, or one too many of this turn? */
bool stk_exec_sum_is_long(exec_sum *sum, const stk_store *store, exec_sum_kind what,
                          const char *path, const char *known);
/* *ret_work NULL: it is on its way, and what asks is to be put aside. An error: that of its run. */
int stk_exec_sum_ask(exec_sum *sum, stk_store *store, exec_sum_kind what, const char *path,
                     const char *known, stk_store_work **ret_work, stk_err *err);
/* At the end of a look-up, a launch or an end (its *ret_rc so far): has it asked for something that
 * isn't there yet? Then it is done anew later, nothing of it counts. Else what it asked for before
 * is let go of; an end still takes it, and drops it itself. *ret_rc: STK_E_NOMEM. */
bool stk_exec_sum_aside(stk_exec *x, uint32_t task, exec_aside_kind kind,
                        const stk_outcome *outcome, int *ret_rc, stk_err *err);
bool stk_exec_sum_waits(const stk_exec *x, uint32_t task);
/* It is not to be done any more; what is done for it alone ends. False: nothing waited. */
bool stk_exec_sum_drop(stk_exec *x, uint32_t task, exec_aside_kind *ret_kind);
/* stk_store_add_path of an output, which was summed before if that takes long. */
int stk_exec_sum_take(stk_exec *x, const char *path, const char *known, stk_artifact *ret,
                      stk_err *err);
/* Before an artifact is used: does it have to be summed? *ret_comes: that is on its way.
 * STK_E_STORE: it is damaged, and in quarantine. `sum` may be NULL: it is, when it is used. */
int stk_exec_sum_artifact(exec_sum *sum, stk_store *store, const char *digest, bool *ret_comes,
                          stk_err *err);
/* The same for all digests that a text of JSON names; then all that was asked for is waited for. A
 * signal ends the waiting, and *ret_all is false. */
int stk_exec_sum_ask_all(stk_exec *x, const char *json, stk_err *err);
int stk_exec_sum_wait(stk_exec *x, bool *ret_all, stk_err *err);
/* Removes it by and by. */
void stk_exec_sum_remove(stk_exec *x, const char *path);
int stk_exec_sum_fd(const exec_sum *sum); /* readable: call the next */
int stk_exec_summed(stk_exec *x, stk_err *err);
/* Waits until all is removed; not once a signal has come, or comes. */
void stk_exec_sum_finish(stk_exec *x);

/* --- exec_idle.c --- */

/* Where nothing else is to be done: reads what was not read for long. *wake_ms as of
 * stk_sched_next. */
int stk_exec_idle(stk_exec *x, int64_t *wake_ms, stk_err *err);
void stk_exec_idle_close(struct exec_idle *idle); /* NULL is fine */
/* The loop is to call stk_exec_idle. */
void stk_exec_sum_wake(exec_sum *sum);

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
/* Notes what a look-up found damaged, and set aside. */
int stk_exec_note_damage(stk_exec *x, stk_err *err);
/* Is the artifact here, and what it was? STK_E_NOT_FOUND; or it is damaged (lookup->damage). */
int stk_exec_lookup_artifact(exec_lookup *lookup, const char *digest, stk_err *err);
/* Text lives in lookup->arena. */
int stk_exec_lookup_step(exec_lookup *lookup, uint32_t i_step, exec_outputs_fn outputs, void *arg,
                         bool use_cache, int64_t now_ms, exec_found *ret_found, stk_err *err);
/* {name: ref, …} → refs by declared output; also checks that the artifacts are there when `check`.
 */
int stk_exec_parse_outputs(exec_lookup *lookup, const stk_step *step, const char *json, bool check,
                           exec_ref **ret_outputs, stk_err *err);
const char *stk_exec_file_digest(exec_lookup *lookup, const char *path,
                                 stk_err *err); /* NULL on error */
/* Of a step's settings.cache.files, in their order. */
int stk_exec_lookup_files(exec_lookup *lookup, const stk_step *step, const char **files,
                          stk_err *err);
/* Of a file, artifact or list of such; NULL on error. */
const char *stk_exec_input_digest(exec_lookup *lookup, const stk_input *in, stk_err *err);
/* {name: digest} of those inputs that have one; NULL: none have. */
const char *stk_exec_inputs_json(exec_lookup *lookup, const stk_step *step,
                                 const char *const *digests);
/* Is there an entry, and is it still true? Of a graph that grows, but for its artifacts. */
int stk_exec_lookup_key(exec_lookup *lookup, uint32_t i_step, const stk_key *key, bool use_cache,
                        int64_t now_ms, exec_found *ret_found, stk_err *err);

/* --- exec_admit.c --- */

/* Takes the devices that the action names, and CPUs; emits TASK_STARTED and queues the launch, or
 * folds what others hold and BUSY. */
int stk_exec_admit(stk_exec *x, const stk_action *start, stk_err *err);
void stk_exec_release(stk_exec *x, uint32_t task);
/* `,"asked":{…}` of task.json: what the step said. */
void stk_exec_asked_json(const stk_resources *resources, stk_buf *buf);
/* {"cpu_count", "cpus", "threads", "memory_bytes", "devices"} of the attempt that `task` has a slot
 * for. */
void stk_exec_granted_json(const stk_exec *x, uint32_t task, stk_buf *buf);
/* What the attempt may use of the host's memory: as asked, or more after it ran out; 0: no limit.
 */
int64_t stk_exec_memory_limit(const stk_exec *x, uint32_t task);
int64_t stk_exec_cpu_milli(const stk_exec *x, uint32_t task);
int stk_exec_push_launch(stk_exec *x, uint32_t task, stk_err *err);

exec_slot *stk_exec_slot_new(stk_exec *x); /* NULL: out of memory */

/* --- exec_env.c --- */

/* The files of a command's inputs, as they are being made. */
typedef struct exec_inputs {
    stk_arena *arena;
    bool is_elsewhere;   /* the step can't reach the store's own files: links do */
    bool may_mount;      /* where the engine can */
    const char **mounts; /* what, and where, in turn */
    uint32_t n_mounts, cap_mounts, n_copied;
} exec_inputs;

typedef struct exec_env {
    exec_inputs inputs;
    const char **items; /* "K=V", NULL-terminated */
    uint32_t n;
    uint32_t cap;
    stk_arena *arena;
    bool failed;
    bool is_away; /* paths in it are those of another machine */
} exec_env;
void stk_exec_env_add(exec_env *env, const char *key, const char *value);
/* In place of an earlier one of that name: of two, programs differ in which they see. */
void stk_exec_env_set(exec_env *env, const char *key, const char *value);
/* What an attempt's program sees (`is_hook`: a hook of it, here), with in/NAME in `dir` for
 * commands. */
int stk_exec_job_env(stk_exec *x, uint32_t task, uint32_t attempt, const char *dir, bool is_hook,
                     exec_env *env, stk_err *err);

/* --- exec_input.c --- */

/* The artifacts of an input that is one or a list of them, or an output; of a step's a NULL. */
int stk_exec_input_digests(stk_exec *x, uint32_t task, const stk_input *in, stk_arena *arena,
                           const char ***ret_digests, uint32_t *ret_n, stk_err *err);
/* Makes the input file `at` of the artifact at `path`. *ret_is_own: the step is to be told of `at`,
 * else of `path`. */
int stk_exec_input_put(stk_exec *x, exec_inputs *inputs, const char *path, const char *at,
                       bool *ret_is_own, stk_err *err);
/* For stk_job.readonly. */
const char *const *stk_exec_input_mounts(exec_inputs *inputs);
bool stk_exec_may_mount(const stk_exec *x, uint32_t task);
/* After the step: an error names the input that isn't what it was, which is in quarantine then. */
int stk_exec_inputs_look(stk_exec *x, uint32_t task, stk_err *err);
/* What was made for the step in `dir` gives way to links. */
void stk_exec_inputs_done(stk_exec *x, uint32_t task, const char *dir, bool has_succeeded);

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

/* --- exec_inside.c --- */

/* A step's program in an image, of this machine's container engine or elsewhere. */
typedef struct exec_inside {
    uint32_t task;
    const stk_step *step;
    stk_json docker, options; /* NULL nodes: nothing said */
    const char *at;           /* our folder inside: at/bin/stoker, at/python */
    const char *dir;          /* the attempt's */
    const char *root;         /* the project's folder, where its files are inside; or NULL */
    const char *main_file;    /* or NULL */
    const char *python_path;  /* PYTHONPATH of the image itself, or NULL */
    bool has_program;         /* at/bin is there */
} exec_inside;
/* Sets task, step and what is said of its container and for its backend. */
int stk_exec_inside_open(stk_exec *x, uint32_t task, const stk_place *place, exec_inside *inside,
                         stk_err *err);
const char *stk_exec_inside_program(stk_exec *x, const exec_inside *inside);
/* The whole program, NULL-terminated, in x->scratch; NULL: out of memory. */
const char *const *stk_exec_inside_argv(stk_exec *x, const exec_inside *inside);
const char *stk_exec_inside_cwd(const stk_exec *x, const exec_inside *inside);
/* What the settings of its container and Python there need, over which the job's own variables go.
 */
/* `expands`: the value is a Dockerfile's (base/expand.h), to be made of the image's environment. */
typedef void (*exec_put_env)(void *arg, const char *key, const char *value, bool expands);
int stk_exec_inside_env(stk_exec *x, const exec_inside *inside, exec_put_env put, void *arg,
                        stk_err *err);
/* The image that it runs in, as it was named; NULL: none. */
const char *stk_exec_inside_image(const stk_exec *x, uint32_t task);
/* Of what a step in an image was seen to load (JSON), the project's own files: the rest is the
 * image's, which is in the key. NULL: nothing; in `arena`. */
const char *stk_exec_inside_seen(const stk_exec *x, uint32_t task, const char *seen,
                                 stk_arena *arena);
/* The part of `path` below `folder`; NULL: it isn't there. */
const char *stk_exec_below(const char *folder, const char *path);

/* --- exec_elsewhere.c --- */

uint32_t stk_exec_place(const stk_exec *x, uint32_t task); /* 0: this machine */
bool stk_exec_is_away(const stk_exec *x, uint32_t task);
const char *stk_exec_away_image(const stk_exec *x, uint32_t task);
/* That it was granted here, or asks for elsewhere. */
uint32_t stk_exec_n_devices(const stk_exec *x, uint32_t task);
/* Where an artifact is; `is_away`: where it would be, its bytes needn't be here. */
int stk_exec_artifact(stk_exec *x, bool is_away, const char *digest, stk_arena *arena,
                      const char **ret_path, int64_t *ret_size, stk_err *err);
/* A `file` input (its path as in the document): where it is; `is_away`: as an artifact.
 * ret_digest may be NULL. */
int stk_exec_file(stk_exec *x, uint32_t task, bool is_away, const char *text, const char **ret_path,
                  const char **ret_digest, stk_err *err);
/* Makes a prepared job (its environment in `env`) one for its place. */
int stk_exec_away_job(stk_exec *x, uint32_t task, const char *dir, exec_env *env, stk_job *job,
                      stk_err *err);
/* Makes a job of an attempt there that is only to be ended. */
int stk_exec_away_end(stk_exec *x, uint32_t task, const char *dir, stk_job *job, stk_err *err);
/* What it was asked for there; the agent's own word comes with its end. */
void stk_exec_away_granted(const stk_exec *x, uint32_t task, stk_buf *buf);
/* The agent's word (granted.json in the attempt directory) as JSON; NULL: none. In x->scratch. */
const char *stk_exec_away_got(stk_exec *x, uint32_t task, const char *dir);
/* Of it: did the attempt leave a newer checkpoint than it began with, and how many are there? */
bool stk_exec_away_saved(stk_exec *x, uint32_t task, const char *dir, uint32_t *ret_n);
/* The engine ends and the task goes on: it is let go of, which is not on record. */
int stk_exec_leave(stk_exec *x, uint32_t task, stk_err *err);
int stk_exec_note_left(stk_exec *x, stk_err *err);
int stk_exec_note_attached(stk_exec *x, stk_err *err);
/* One that was started on other machines may run there still: nobody else is to start it. `stack`:
 * where, or NULL: here. STK_E_USAGE: its step is elsewhere now. */
int stk_exec_check_place(const stk_exec *x, uint32_t task, const char *stack, stk_err *err);
/* An attempt that an earlier engine started and nobody saw end is watched again; its number stays.
 */
int stk_exec_attach(stk_exec *x, uint32_t task, stk_err *err);

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
/* `stoker contain DIR/task.json`; NULL: out of memory. */
const char *const *stk_exec_contain_argv(const stk_exec *x, const char *task_json);

/* --- exec_end.c --- */

/* What is known when an attempt has ended. */
typedef struct exec_ending {
    uint32_t task;
    const stk_step *step;
    const char *dir; /* of a rank: its own */
    const stk_outcome *outcome;
    stk_result result;
    bool has_result;
    const char *used;   /* JSON */
    const char *got;    /* JSON: what it was granted elsewhere, by its agent; or NULL */
    const char *remark; /* what it did not use of what it was given, or NULL */
} exec_ending;

/* --- and exec_publish.c --- */

/* Reads result.json if there is one. A wrong one is the step's failure, told in `why`. */
int stk_exec_read_result(stk_exec *x, exec_ending *e, stk_err *why);
/* One output into the store; `r` or `declared` may be NULL. STK_E_NOT_FOUND: it isn't there (the
 * step's fault). */
int stk_exec_publish(stk_exec *x, const exec_ending *e, const stk_result_output *r,
                     const stk_output *declared, exec_ref *ret_ref, stk_err *err);
/* What the result says of an output; NULL: nothing. */
const stk_result_output *stk_exec_find_result(const exec_ending *e, const char *name);
bool stk_exec_declares(const stk_step *step, const char *output);
/* Asks for what takes long of its outputs. */
int stk_exec_publish_ask(stk_exec *x, const exec_ending *e, stk_err *err);
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
    const char *text;           /* a sentence without the step's name */
    const char *used;           /* JSON */
    const char *got;            /* JSON; or NULL */
    const char *type, *message; /* of the exception, in its own words */
    const char *traceback;
    const char *where;
    bool saved;       /* a newer checkpoint than it began with */
    bool is_hopeless; /* another attempt would meet the same: none is made */
    const struct exec_gang *gang;
    const stk_result *result;         /* hooks that it names were run by the task itself */
    const struct exec_ending *ending; /* of an attempt that ran: what it left is kept; or NULL */
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

/* --- exec_advice.c --- */

/* A failure's sentence with what it advises; `next`: what follows it. In x->scratch; NULL: out of
 * memory. Before the attempt's slot is released. */
const char *stk_exec_advise(stk_exec *x, uint32_t task, stk_failure failure, const char *text,
                            const stk_sched_retrying *next);

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

/* --- exec_grow.c --- */

/* The run's first task. */
int stk_exec_grow_begin(stk_exec *x, stk_err *err);
/* Tasks of the run: in grow (unless it has them already), in x->tasks, and, where `to_sched`, in
 * the scheduler. */
int stk_exec_grow_tasks(stk_exec *x, const stk_grow_adding *adding, stk_err *err);
/* To the scheduler, by number; it waits for `needs`. What can't be had here gets a refusal. */
int stk_exec_grow_schedule(stk_exec *x, uint32_t task, const uint32_t *needs, uint32_t n_needs,
                           stk_err *err);
/* After TASK_SUCCEEDED or TASK_CACHED: what follows the task, in the same transaction. */
int stk_exec_follow(stk_exec *x, uint32_t task, const exec_said *said, stk_err *err);
/* Would it go wrong? Then *ret_class, and a sentence. */
int stk_exec_follow_check(const stk_exec *x, uint32_t task, const stk_grow_next *next,
                          stk_err *err);
/* What a task is admitted with: its step's request, of a gang from num_parallel so many times. The
 * asks are `asks`, of STK_LIMIT_ASKS, or the plan's own. */
stk_request stk_exec_request(const stk_plan *plan, uint32_t i_step, uint32_t ranks,
                             stk_pack_ask *asks);
/* The gang that a task is; ranks 0: none. */
stk_gang_ask stk_exec_gang(const stk_exec *x, uint32_t task);
uint32_t stk_exec_ranks(const stk_exec *x, uint32_t task); /* from num_parallel, else 0 */
/* STK_ACT_LOOKUP of a task: cloned, cached, or missed. */
int stk_exec_lookup_grown(stk_exec *x, uint32_t task, stk_err *err);
/* What the attempt in place of a final failure is told of that. */
struct exec_failure;
int stk_exec_keep_failure(stk_exec *x, uint32_t task, const struct exec_failure *failure,
                          stk_err *err);
/* To a scheduler: a task as its step's request, of a gang so many times. 1: it can't be had here,
 * `why`; it was added without asking for anything. *ret_request: what it asks for. */
int stk_exec_grow_add(stk_sched *sched, const stk_plan *plan, const stk_capacity *capacity,
                      stk_policy policy, uint32_t i_step, uint32_t ranks, const uint32_t *needs,
                      uint32_t n_needs, stk_request *ret_request, stk_err *why, stk_err *err);
/* A task that can't be had here (exec_grown.refusal) was to start. */
int stk_exec_fail_refused(stk_exec *x, uint32_t task, stk_err *err);
/* {"steps", "n"} of an event of the step → next, in `arena`. STK_E_USAGE: no such step. */
int stk_exec_next_load(const stk_spec *spec, uint32_t i_step, const json_t *next, stk_arena *arena,
                       stk_grow_next *ret_next, stk_err *err);

/* --- exec_scope.c --- */

const exec_artifact *stk_exec_scope_find(const exec_scope *scope, const char *name);
/* Number i of the inputs of `task`: a task, and a rank of it. False: there are not so many. */
bool stk_exec_scope_parent(const stk_exec *x, uint32_t task, uint32_t i, uint32_t *ret_task,
                           const exec_scope **ret_scope, uint32_t *ret_rank);
/* A parent's artifact of that name and content, or NULL. */
exec_artifact *stk_exec_scope_inherited(const stk_exec *x, uint32_t task, const char *name,
                                        const char *digest);
/* The scopes after a task that is done. */
int stk_exec_scope_end(stk_exec *x, uint32_t task, const exec_said *said, stk_err *err);
/* What an input names by a step's output: one artifact; of a join a list, by its inputs. In
 * x->scratch. STK_E_NOT_FOUND: there is none. */
int stk_exec_scope_from(stk_exec *x, uint32_t task, const stk_input *in,
                        const exec_artifact ***ret_found, uint32_t *ret_n, stk_err *err);
/* The innermost foreach's item as JSON, in x->scratch, and its index. STK_E_NOT_FOUND: it is in no
 * foreach, or the items are no JSON list. */
int stk_exec_scope_item(stk_exec *x, uint32_t task, const char **ret_json, uint32_t *ret_index,
                        stk_err *err);
/* `,"flow":{…}` of its task.json. */
int stk_exec_scope_json(stk_exec *x, uint32_t task, stk_buf *buf, stk_err *err);

/* --- exec_said.c --- */

/* What a finished attempt said, its outputs published. *ret_class: of the failure, if it is one. */
int stk_exec_say(stk_exec *x, const exec_ending *e, exec_said *ret_said, stk_failure *ret_class,
                 stk_err *err);
/* {name: ref, …} of rank 0, and `,"dropped":…,"next":…,"ranks":…`. */
void stk_exec_said_json(const stk_exec *x, const exec_said *said, stk_buf *outputs, stk_buf *more);
/* `,"outputs":…,"dropped":…,"ranks":…` of an attempt that failed: what its ranks had made and
 * deleted until then, published. What can't be is left out. */
void stk_exec_said_left(stk_exec *x, const exec_ending *e, stk_buf *buf);
/* The same back from an event's data. STK_E_NOT_FOUND: an artifact is gone from the store. */
int stk_exec_said_load(stk_exec *x, uint32_t task, const json_t *data, exec_said *ret_said,
                       stk_err *err);
/* The artifact as JSON, in `arena`. STK_E_USAGE: it isn't. */
int stk_exec_read_json(stk_exec *x, const exec_artifact *artifact, stk_arena *arena,
                       stk_json *ret_json, stk_err *err);

/* --- exec_recall.c --- */

/* The content cache, for a task of a graph that grows: is there what it would say? Keeps the key
 * either way; nothing where the step's document doesn't ask for it. */
int stk_exec_recall(stk_exec *x, uint32_t task, bool *ret_found, exec_said *ret_said,
                    const char **ret_head, const char **ret_metadata, stk_err *err);

/* --- exec_clone.c --- */

/* Reads what the other run's tasks said. STK_E_NOT_FOUND: there is no such run. */
int stk_exec_clone_open(stk_exec *x, const char *run, const char *until, stk_err *err);
void stk_exec_clone_close(struct exec_clone *clone);
/* Is there a counterpart that succeeded? Then what it said, and its metadata (JSON or NULL). */
int stk_exec_clone_find(stk_exec *x, uint32_t task, bool *ret_found, exec_said *ret_said,
                        const char **ret_metadata, stk_err *err);
/* `"clone":{…}` for RUN_CREATED. */
void stk_exec_clone_json(const struct exec_clone *clone, stk_buf *buf);
const char *stk_exec_clone_run(const struct exec_clone *clone); /* NULL: none */

/* --- exec_mask.c --- */

/* The values of its secrets, NULL-terminated, or NULL where it has none. */
const char *const *stk_exec_hidden(const stk_settings *settings, stk_arena *arena);
/* Text of a step that is shown (errors, warnings, notes): its secrets are stars. NULL for NULL, and
 * when out of memory. */
const char *stk_exec_hide(const stk_settings *settings, const char *text, stk_arena *arena);
/* In the cards that an attempt, or a rank of it, left in `dir`. */
void stk_exec_hide_in_cards(const stk_settings *settings, const char *dir, stk_arena *arena);

/* --- exec_schedule.c --- */

stk_sched_task stk_exec_sched_task(const stk_plan *plan, uint32_t i_step,
                                   const stk_request *request);
/* What TASK_RETRYING says (its data, or NULL) that the next attempt gets more of. */
stk_grows stk_exec_grows(const char *data);

/* --- exec_resume.c --- */

/* What the log says of a task, in the end. */
typedef struct exec_past {
    char *said; /* JSON of the last success: its outputs, or, of a graph that grows, all of its
                   data; malloc'd; NULL: not done */
    uint32_t attempt;                      /* highest */
    uint32_t n_grown[STK_GROWS_SHARE + 1]; /* attempts that got more of this than the one before */
    bool running;                          /* started, and no end was committed */
    char *stack; /* of other machines, where it was started; malloc'd; NULL: here */
    bool done;
    bool ran; /* and was not served by the cache: hooks follow */
} exec_past;

/* A task that isn't done: ends what still lives of it, or takes its good result as it is. */
int stk_exec_replay_unfinished(stk_exec *x, uint32_t task, const exec_past *past, stk_err *err);
/* The step runs again since what it made is gone; an error where it can't. */
int stk_exec_replay_again(stk_exec *x, uint32_t task, stk_err *err);

/* --- exec_regrow.c --- */

/* TASK_ADDED, TASK_SUCCEEDED and TASK_CACHED of the log, in its order; RUN_CREATED: what is cloned.
 */
int stk_exec_regrow_row(stk_exec *x, const stk_event_row *row, stk_err *err);
/* Then all tasks, by number, with what the log says of each. */
int stk_exec_regrow(stk_exec *x, exec_past *pasts, stk_err *err);

int stk_exec_replay(stk_exec *x, stk_err *err);

#endif
