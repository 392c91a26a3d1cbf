/* Steps that don't run on the bare machine: in containers here, on other machines. */
#ifndef STK_EXEC_PLACE_H
#define STK_EXEC_PLACE_H

#include "run/exec/core/exec_start.h"

/* A step's program in an image, of this machine's container engine or elsewhere. */
typedef struct exec_in_image {
    uint32_t task;
    const stk_step *step;
    stk_json docker, options; /* NULL nodes: no such settings */
    const char *at;           /* the folder of our files inside: at/bin/stoker, at/python */
    const char *dir;          /* the attempt's folder */
    const char *root;         /* the project's folder if its files are inside, or NULL */
    const char *main_file;    /* or NULL */
    const char *python_path;  /* PYTHONPATH of the image itself, or NULL */
    bool has_program;         /* at/bin exists */
} exec_in_image;
/* Sets the task, its step, and the settings of its container and backend. */
int stk_exec_in_image_open(stk_exec *x, uint32_t task, const stk_place *place, exec_in_image *in,
                           stk_err *err);
/* The whole command line, NULL-terminated, in x->scratch; NULL: out of memory. */
const char *const *stk_exec_in_image_argv(stk_exec *x, const exec_in_image *in);
const char *stk_exec_in_image_cwd(const stk_exec *x, const exec_in_image *in);
/* Puts the variables that the container's settings and Python need; variables of the job override
 * them. STK_E_NOMEM. */
/* `expands`: the value is a Dockerfile's and refers to the image's environment (base/expand.h). */
typedef void (*exec_put_env)(void *arg, const char *key, const char *value, bool expands);
int stk_exec_in_image_env(stk_exec *x, const exec_in_image *in, exec_put_env put, void *arg,
                          stk_err *err);
/* The name of the image that the task runs in; NULL: none. */
const char *stk_exec_image_of(const stk_exec *x, uint32_t task);
/* Keeps the project's files among those that a step in an image loaded (`seen`, JSON): the image's
 * digest in the key covers the other ones. NULL: none is left. In `arena`. */
const char *stk_exec_seen_of_project(const stk_exec *x, uint32_t task, const char *seen,
                                     stk_arena *arena);
/* The part of `path` below `folder`; NULL: it isn't there. */
const char *stk_exec_below(const char *folder, const char *path);

bool stk_exec_is_away(const stk_exec *x, uint32_t task);
const char *stk_exec_away_image(const stk_exec *x, uint32_t task);
/* Devices granted here, or requested elsewhere. */
uint32_t stk_exec_n_devices(const stk_exec *x, uint32_t task);
/* The path of an artifact; `is_away`: it may be only in the share. */
int stk_exec_artifact(stk_exec *x, bool is_away, const char *digest, stk_arena *arena,
                      const char **ret_path, int64_t *ret_size, stk_err *err);
/* The path of a `file` input (`text`: as in the document). `is_away`: makes it an artifact and
 * returns that one's path. ret_digest may be NULL. */
int stk_exec_file(stk_exec *x, uint32_t task, bool is_away, const char *text, const char **ret_path,
                  const char **ret_digest, stk_err *err);
/* Adapts a prepared job, whose environment is in `env`, to the task's place. */
int stk_exec_away_job(stk_exec *x, uint32_t task, const char *dir, exec_env *env, stk_job *job,
                      stk_err *err);
/* Makes a job that only ends a remote attempt of an earlier engine. */
int stk_exec_away_end(stk_exec *x, uint32_t task, const char *dir, stk_job *job, stk_err *err);
/* Writes the member "granted" with the request; the agent reports the real grant at the end. */
void stk_exec_put_away_granted(const stk_exec *x, uint32_t task, stk_buf *buf);
/* The agent's report (granted.json in the attempt directory) as JSON; NULL: none. In x->scratch. */
const char *stk_exec_away_got(stk_exec *x, uint32_t task, const char *dir);
/* Whether the attempt left a newer checkpoint than it began with, by the agent's report; *ret_n:
 * how many checkpoints there are. */
bool stk_exec_away_saved(stk_exec *x, uint32_t task, const char *dir, uint32_t *ret_n);
/* Releases a task that continues after the engine's end. Writes no event: in the log the task goes
 * on. */
int stk_exec_leave(stk_exec *x, uint32_t task, stk_err *err);
int stk_exec_note_left(stk_exec *x, stk_err *err);
int stk_exec_note_attached(stk_exec *x, stk_err *err);
/* Checks that the task's step has the place where the task was started: it may still run there, so
 * only that place may continue it. `stack`: that place; NULL: this machine. STK_E_USAGE: the step
 * has another place. */
int stk_exec_check_place(const stk_exec *x, uint32_t task, const char *stack, stk_err *err);
/* Watches an earlier engine's attempt that has no recorded end. The attempt keeps its number. */
int stk_exec_attach(stk_exec *x, uint32_t task, stk_err *err);

/* --- what the options of a container ask for (exec_run_args.c) --- */

/* Writes "volumes": folders, volumes and devices of this machine. */
int stk_exec_put_volumes(stk_exec *x, const stk_json *options, stk_buf *buf, stk_err *err);
/* Writes the options' variables, without those that the settings give, too. */
void stk_exec_put_environment(stk_exec *x, const exec_in_image *in, stk_buf *buf);
/* The value of a variable among the options; NULL: none. */
const char *stk_exec_asked_variable(stk_exec *x, const stk_json *options, const char *name);
/* Whether options or settings give this variable. */
bool stk_exec_sets(stk_exec *x, const exec_in_image *in, const char *name);
void stk_exec_put_labels(stk_exec *x, const stk_json *options, stk_buf *buf);
/* Writes "run_args": what the container engine gets as it is. */
void stk_exec_put_run_args(const stk_json *options, stk_buf *buf);
/* The smaller of the step's limit (0 or less: none) and that of the options. */
int64_t stk_exec_asked_memory(const stk_json *options, int64_t own_bytes);
int64_t stk_exec_asked_cpu(const stk_json *options, int64_t own_milli);
const char *stk_exec_asked_network(const stk_json *options);

bool stk_exec_is_contained(const stk_exec *x, uint32_t task);
/* Writes the member "container" of the task's task.json and makes the mount points in the unpacked
 * project. `env`: the job's "K=V", NULL-terminated; task.json gets only the names. */
int stk_exec_put_container(stk_exec *x, uint32_t task, uint32_t attempt, const char *dir,
                           const char *const *env, stk_buf *buf, stk_err *err);
/* The image's name, or its id. */
const char *stk_exec_container_image(const stk_exec *x, uint32_t task);
/* Writes the member "image" of the grant. */
void stk_exec_put_container_image(const stk_exec *x, uint32_t task, stk_buf *buf);
/* `stoker contain DIR/task.json`; NULL: out of memory. */
const char *const *stk_exec_contain_argv(const stk_exec *x, const char *task_json);

#endif
