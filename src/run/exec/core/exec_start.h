/* Makes a job for the backend from a grant. */
#ifndef STK_EXEC_START_H
#define STK_EXEC_START_H

#include "run/exec/core/exec_state.h"

/* Leases the action's devices and takes CPUs, emits TASK_STARTED and queues the launch. If another
 * run was quicker, folds the devices of others and BUSY. */
int stk_exec_admit(stk_exec *x, const stk_action *start, stk_err *err);
void stk_exec_release(stk_exec *x, uint32_t task);
/* Writes the member "asked" of task.json, the step's request. */
void stk_exec_put_asked(const stk_resources *resources, stk_buf *buf);
/* Writes the member "granted" of the attempt that `task` has a slot for: {"cpu_count", "cpus",
 * "threads", "memory_bytes", "devices"}. */
void stk_exec_put_granted(const stk_exec *x, uint32_t task, stk_buf *buf);
/* The attempt's limit on host memory: as requested, or more after it ran out; 0: no limit. */
int64_t stk_exec_memory_limit(const stk_exec *x, uint32_t task);
int64_t stk_exec_cpu_milli(const stk_exec *x, uint32_t task);

exec_slot *stk_exec_slot_new(stk_exec *x); /* NULL: out of memory */

/* The files of a command's inputs while they are made. */
typedef struct exec_inputs {
    stk_arena *arena;
    bool is_elsewhere;   /* the step can't reach the store's files, so links are enough */
    bool may_mount;      /* if the engine can */
    const char **mounts; /* source and target, alternating */
    uint32_t n_mounts, cap_mounts, n_copied;
} exec_inputs;

typedef struct exec_env {
    exec_inputs inputs;
    const char **items; /* "K=V", NULL-terminated */
    uint32_t n;
    uint32_t cap;
    stk_arena *arena;
    bool failed;
    bool is_away; /* its paths are another machine's */
} exec_env;
void stk_exec_env_add(exec_env *env, const char *key, const char *value);
/* Replaces an earlier variable of that name, because programs differ in which of two they see. */
void stk_exec_env_set(exec_env *env, const char *key, const char *value);
/* The environment of an attempt's program (`is_hook`: of its hook, here). For commands also makes
 * in/NAME in `dir`. */
int stk_exec_job_env(stk_exec *x, uint32_t task, uint32_t attempt, const char *dir, bool is_hook,
                     exec_env *env, stk_err *err);

/* The digests of an input that is an artifact, a list of them or an output; NULL for an output of a
 * step without one. */
int stk_exec_input_digests(stk_exec *x, uint32_t task, const stk_input *in, stk_arena *arena,
                           const char ***ret_digests, uint32_t *ret_n, stk_err *err);
/* The name of item i of n in the folder of a list: 0, 1 … with leading zeros, so that NAME/ * is in
 * order. */
const char *stk_exec_input_item(stk_arena *arena, const char *folder, uint32_t n, uint32_t i);
/* Makes the input file `at` from the artifact at `path`. *ret_is_own: the step gets the path `at`,
 * else `path`. */
int stk_exec_input_put(stk_exec *x, exec_inputs *inputs, const char *path, const char *at,
                       bool *ret_is_own, stk_err *err);
/* For stk_job.readonly. */
const char *const *stk_exec_input_mounts(exec_inputs *inputs);
bool stk_exec_may_mount(const stk_exec *x, uint32_t task);
/* Call it after the step. An error names an input that has changed, and is in quarantine now. */
int stk_exec_inputs_look(stk_exec *x, uint32_t task, stk_err *err);
/* Replaces the step's input files in `dir` by links. */
void stk_exec_inputs_done(stk_exec *x, uint32_t task, const char *dir, bool has_succeeded);

/* Makes the attempt directory and hands the job to the backend. A failed start becomes TASK_FAILED.
 */
int stk_exec_launch(stk_exec *x, uint32_t task, stk_err *err);
/* Writes task.json. `env`: the job's, NULL-terminated. *ret_class: the class of a failure. */
int stk_exec_put_task(stk_exec *x, uint32_t task, uint32_t attempt, const char *dir,
                      const char *const *env, stk_buf *buf, stk_failure *ret_class, stk_err *err);
/* For stk_job.unset, and stk_job.cwd on this machine. */
const char *const *stk_exec_job_unset(stk_arena *arena);
const char *stk_exec_cwd(const stk_exec *x, const stk_step *step);

/* The path of this program, in x->scratch; NULL: out of memory. */
const char *stk_exec_self(const stk_exec *x);

#endif
