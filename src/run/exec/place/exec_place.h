/* Steps that don't run on the bare machine: in containers here, on other machines. */
#ifndef STK_EXEC_PLACE_H
#define STK_EXEC_PLACE_H

#include "run/exec/core/exec_start.h"

/* A step's program in an image, of this machine's container engine or elsewhere. */
typedef struct exec_in_image {
    uint32_t task;
    const stk_step *step;
    stk_json docker, options; /* NULL nodes: no such settings */
    const char *at;           /* our folder inside: at/bin/stoker, at/python */
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
/* Puts the variables that the container's settings and Python need; the job's own variables
 * override them. */
/* `expands`: the value is a Dockerfile's and refers to the image's environment (base/expand.h). */
typedef void (*exec_put_env)(void *arg, const char *key, const char *value, bool expands);
int stk_exec_in_image_env(stk_exec *x, const exec_in_image *in, exec_put_env put, void *arg,
                          stk_err *err);
/* The name of the image that it runs in; NULL: none. */
const char *stk_exec_image_of(const stk_exec *x, uint32_t task);
/* Of the files that a step in an image loaded (JSON), keeps the project's: the image's own files
 * are covered by its digest in the key. NULL: none. In `arena`. */
const char *stk_exec_seen_of_project(const stk_exec *x, uint32_t task, const char *seen,
                                     stk_arena *arena);
/* The part of `path` below `folder`; NULL: it isn't there. */
const char *stk_exec_below(const char *folder, const char *path);

bool stk_exec_is_away(const stk_exec *x, uint32_t task);
const char *stk_exec_away_image(const stk_exec *x, uint32_t task);
/* Devices granted here, or requested elsewhere. */
uint32_t stk_exec_n_devices(const stk_exec *x, uint32_t task);
/* The path of an artifact; `is_away`: it needn't be here. */
int stk_exec_artifact(stk_exec *x, bool is_away, const char *digest, stk_arena *arena,
                      const char **ret_path, int64_t *ret_size, stk_err *err);
/* The path of a `file` input (`text`: as in the document); `is_away`: as an artifact. ret_digest
 * may be NULL. */
int stk_exec_file(stk_exec *x, uint32_t task, bool is_away, const char *text, const char **ret_path,
                  const char **ret_digest, stk_err *err);
/* Adapts a prepared job (its environment in `env`) to its place. */
int stk_exec_away_job(stk_exec *x, uint32_t task, const char *dir, exec_env *env, stk_job *job,
                      stk_err *err);
/* Makes the job of a remote attempt that is only to be ended. */
int stk_exec_away_end(stk_exec *x, uint32_t task, const char *dir, stk_job *job, stk_err *err);
/* Writes the member "granted" with the request; the agent reports the real grant at the end. */
void stk_exec_put_away_granted(const stk_exec *x, uint32_t task, stk_buf *buf);
/* The agent's report (granted.json in the attempt directory) as JSON; NULL: none. In x->scratch. */
const char *stk_exec_away_got(stk_exec *x, uint32_t task, const char *dir);
/* From that report: whether the attempt left a newer checkpoint than it began with, and how many
 * there are. */
bool stk_exec_away_saved(stk_exec *x, uint32_t task, const char *dir, uint32_t *ret_n);
/* Lets go of a task that continues after the engine's end; the record has nothing of this. */
int stk_exec_leave(stk_exec *x, uint32_t task, stk_err *err);
int stk_exec_note_left(stk_exec *x, stk_err *err);
int stk_exec_note_attached(stk_exec *x, stk_err *err);
/* A task that was started on another machine may still run there, so only that place may continue
 * it. `stack`: its place; NULL: here. STK_E_USAGE: the step has another place now. */
int stk_exec_check_place(const stk_exec *x, uint32_t task, const char *stack, stk_err *err);
/* Watches an attempt of an earlier engine again that has no recorded end. It keeps its number. */
int stk_exec_attach(stk_exec *x, uint32_t task, stk_err *err);

bool stk_exec_is_contained(const stk_exec *x, uint32_t task);
/* Writes the member "container" of its task.json. `env`: the job's "K=V", NULL-terminated; only the
 * names are written. Makes the mount points in the unpacked project. */
int stk_exec_put_container(stk_exec *x, uint32_t task, uint32_t attempt, const char *dir,
                           const char *const *env, stk_buf *buf, stk_err *err);
/* The image's name, or its id. */
const char *stk_exec_container_image(const stk_exec *x, uint32_t task);
/* Writes the member "image" of the grant. */
void stk_exec_put_container_image(const stk_exec *x, uint32_t task, stk_buf *buf);
/* `stoker contain DIR/task.json`; NULL: out of memory. */
const char *const *stk_exec_contain_argv(const stk_exec *x, const char *task_json);

#endif
