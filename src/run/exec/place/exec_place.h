/* Steps that don't run on the bare machine: in containers here, on other machines. */
#ifndef STK_EXEC_PLACE_H
#define STK_EXEC_PLACE_H

#include "run/exec/core/exec_start.h"

/* A step's program in an image, of this machine's container engine or elsewhere. */
typedef struct exec_in_image {
    uint32_t task;
    const stk_step *step;
    stk_json docker, options; /* NULL nodes: nothing said */
    const char *at;           /* our folder inside: at/bin/stoker, at/python */
    const char *dir;          /* the attempt's */
    const char *root;         /* the project's folder, where its files are inside; or NULL */
    const char *main_file;    /* or NULL */
    const char *python_path;  /* PYTHONPATH of the image itself, or NULL */
    bool has_program;         /* at/bin is there */
} exec_in_image;
/* Sets task, step and what is said of its container and for its backend. */
int stk_exec_in_image_open(stk_exec *x, uint32_t task, const stk_place *place, exec_in_image *in,
                           stk_err *err);
/* The whole program, NULL-terminated, in x->scratch; NULL: out of memory. */
const char *const *stk_exec_in_image_argv(stk_exec *x, const exec_in_image *in);
const char *stk_exec_in_image_cwd(const stk_exec *x, const exec_in_image *in);
/* What the settings of its container and Python there need, over which the job's own variables go.
 */
/* `expands`: the value is a Dockerfile's (base/expand.h), to be made of the image's environment. */
typedef void (*exec_put_env)(void *arg, const char *key, const char *value, bool expands);
int stk_exec_in_image_env(stk_exec *x, const exec_in_image *in, exec_put_env put, void *arg,
                          stk_err *err);
/* The image that it runs in, as it was named; NULL: none. */
const char *stk_exec_image_of(const stk_exec *x, uint32_t task);
/* Of what a step in an image was seen to load (JSON), the project's own files: the rest is the
 * image's, which is in the key. NULL: nothing; in `arena`. */
const char *stk_exec_seen_of_project(const stk_exec *x, uint32_t task, const char *seen,
                                     stk_arena *arena);
/* The part of `path` below `folder`; NULL: it isn't there. */
const char *stk_exec_below(const char *folder, const char *path);

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
/* The member "granted": what is asked for there; the agent's own word comes with its end. */
void stk_exec_put_away_granted(const stk_exec *x, uint32_t task, stk_buf *buf);
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

bool stk_exec_is_contained(const stk_exec *x, uint32_t task);
/* The member "container" of its task.json. `env`: of the job, "K=V", NULL-terminated: it goes in by
 * names alone. Makes the places in the laid-out project that other things are mounted on. */
int stk_exec_put_container(stk_exec *x, uint32_t task, uint32_t attempt, const char *dir,
                           const char *const *env, stk_buf *buf, stk_err *err);
/* The image as it was named, or its id. */
const char *stk_exec_container_image(const stk_exec *x, uint32_t task);
/* The member "image" of what it is granted. */
void stk_exec_put_container_image(const stk_exec *x, uint32_t task, stk_buf *buf);
/* `stoker contain DIR/task.json`; NULL: out of memory. */
const char *const *stk_exec_contain_argv(const stk_exec *x, const char *task_json);

#endif
