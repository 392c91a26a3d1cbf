/* From a grant to a job of the backend. */
#ifndef STK_EXEC_START_H
#define STK_EXEC_START_H

#include "run/exec/core/exec_state.h"

/* Takes the devices that the action names, and CPUs; emits TASK_STARTED and queues the launch, or
 * folds what others hold and BUSY. */
int stk_exec_admit(stk_exec *x, const stk_action *start, stk_err *err);
void stk_exec_release(stk_exec *x, uint32_t task);
/* The member "asked" of task.json: what the step said. */
void stk_exec_put_asked(const stk_resources *resources, stk_buf *buf);
/* The member "granted": {"cpu_count", "cpus", "threads", "memory_bytes", "devices"} of the attempt
 * that `task` has a slot for. */
void stk_exec_put_granted(const stk_exec *x, uint32_t task, stk_buf *buf);
/* What the attempt may use of the host's memory: as asked, or more after it ran out; 0: no limit.
 */
int64_t stk_exec_memory_limit(const stk_exec *x, uint32_t task);
int64_t stk_exec_cpu_milli(const stk_exec *x, uint32_t task);

exec_slot *stk_exec_slot_new(stk_exec *x); /* NULL: out of memory */

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

/* The artifacts of an input that is one or a list of them, or an output; of a step's a NULL. */
int stk_exec_input_digests(stk_exec *x, uint32_t task, const stk_input *in, stk_arena *arena,
                           const char ***ret_digests, uint32_t *ret_n, stk_err *err);
/* A list is a folder of links 0, 1 … with leading zeros, so that NAME/ * is in order: number i of
 * n. */
const char *stk_exec_input_item(stk_arena *arena, const char *folder, uint32_t n, uint32_t i);
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

/* Makes the attempt directory and hands the job to the backend. A failed start becomes TASK_FAILED.
 */
int stk_exec_launch(stk_exec *x, uint32_t task, stk_err *err);
/* task.json. `env`: of the job, NULL-terminated. *ret_class: of the failure, if it is one. */
int stk_exec_put_task(stk_exec *x, uint32_t task, uint32_t attempt, const char *dir,
                      const char *const *env, stk_buf *buf, stk_failure *ret_class, stk_err *err);
/* For stk_job.unset, and stk_job.cwd on this machine. */
const char *const *stk_exec_job_unset(stk_arena *arena);
const char *stk_exec_cwd(const stk_exec *x, const stk_step *step);

/* The path of our own program. In x->scratch; NULL: out of memory. */
const char *stk_exec_self(const stk_exec *x);

#endif
