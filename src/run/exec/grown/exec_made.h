/* Results of finished tasks: from their result file, the cache, a cloned run or the log. */
#ifndef STK_EXEC_MADE_H
#define STK_EXEC_MADE_H

#include "base/json.h"
#include "run/exec/core/exec_end.h"
#include "run/exec/core/exec_resume.h"

/* Publishes the outputs of a finished attempt and returns its results; `next` and `items` only if
 * the graph grows. *ret_class: the class of a failure. */
int stk_exec_make(stk_exec *x, const exec_ending *e, exec_made *ret_made, stk_failure *ret_class,
                  stk_err *err);
/* Writes the member `key`: {name: ref, …}. */
void stk_exec_put_outputs(stk_buf *buf, const char *key, const exec_part *part);
/* Writes the member "outputs", and for a graph that grows "dropped", "next" and "ranks". */
void stk_exec_put_made(const stk_exec *x, const exec_made *made, stk_buf *buf);
/* Writes "outputs", "dropped" and "ranks" of a failed attempt: publishes what its ranks had made
 * until then, and leaves out what it can't publish. */
void stk_exec_put_left(stk_exec *x, const exec_ending *e, stk_buf *buf);
/* Reads the results back from an event's data. STK_E_NOT_FOUND: the store lacks an artifact. */
int stk_exec_load_made(stk_exec *x, uint32_t task, const stk_json *data, exec_made *ret_made,
                       stk_err *err);
/* Reads the artifact as JSON, in `arena`. STK_E_USAGE: it is no JSON. */
int stk_exec_read_json(stk_exec *x, const exec_artifact *artifact, stk_arena *arena,
                       stk_json *ret_json, stk_err *err);

/* The result of another task, which a task takes instead of running. */
typedef struct exec_taken {
    exec_made made;
    const char *key;      /* key of the cache entry; NULL: from a cloned run */
    const char *from_run; /* NULL: no such task was found */
    uint32_t from_task;
    const char *metadata; /* JSON, or NULL */
} exec_taken;
/* Reads the results of such a task from an event's data or a cache entry. *ret_is_good false: an
 * artifact is missing, or the document continues with other steps (`why`). */
int stk_exec_load_taken(stk_exec *x, uint32_t task, const stk_json *data, exec_made *ret_made,
                        bool *ret_is_good, stk_err *why, stk_err *err);
/* Looks up a task of a graph that grows in the content cache. Sets the task's key in any case.
 * Finds nothing unless the document turns the cache on. */
int stk_exec_lookup_taken(stk_exec *x, uint32_t task, exec_taken *ret_taken, stk_err *err);

/* Opens the run whose finished tasks this run takes over (x->graph.clone), up to the step `until`
 * (NULL: all). STK_E_NOT_FOUND: no such run; STK_E_USAGE: no such step, or the run's graph is
 * fixed. */
int stk_exec_clone_open(stk_exec *x, const char *run, const char *until, stk_err *err);
void stk_exec_clone_close(struct exec_clone *clone);
/* Finds the task's counterpart that succeeded. */
int stk_exec_clone_find(stk_exec *x, uint32_t task, exec_taken *ret_taken, stk_err *err);
/* Writes the member "clone" of RUN_CREATED. */
void stk_exec_put_clone(const struct exec_clone *clone, stk_buf *buf);
const char *stk_exec_clone_run(const struct exec_clone *clone); /* NULL: none */

/* Reads the tasks of TASK_ADDED's data, in `arena`. i_step STK_GROW_NONE: the document has no step
 * of that name. */
int stk_exec_load_added(const stk_spec *spec, const stk_event_row *row, const stk_json *data,
                        stk_arena *arena, stk_grow_adding *ret_adding, stk_err *err);
/* Folds a row of the log, in order: added tasks, their followers, clones. */
int stk_exec_regrow_row(stk_exec *x, const stk_event_row *row, const stk_json *data, stk_err *err);
/* After the last row: restores all tasks, by number, with their state in the log. */
int stk_exec_regrow(stk_exec *x, exec_past *pasts, stk_err *err);

#endif
