/* What a finished task of a graph that grows said: read, recalled, cloned, read from the log. */
#ifndef STK_EXEC_SAID_H
#define STK_EXEC_SAID_H

#include "base/json.h"
#include "run/exec/core/exec_end.h"
#include "run/exec/core/exec_resume.h"

/* What a finished attempt said, its outputs published. *ret_class: of the failure, if it is one. */
int stk_exec_say(stk_exec *x, const exec_ending *e, exec_said *ret_said, stk_failure *ret_class,
                 stk_err *err);
/* {name: ref, …} of rank 0, and `,"dropped":…,"next":…,"ranks":…`. */
void stk_exec_said_json(const stk_exec *x, const exec_said *said, stk_buf *outputs, stk_buf *more);
/* `,"outputs":…,"dropped":…,"ranks":…` of an attempt that failed: what its ranks had made and
 * deleted until then, published. What can't be is left out. */
void stk_exec_said_left(stk_exec *x, const exec_ending *e, stk_buf *buf);
/* The same back from an event's data. STK_E_NOT_FOUND: an artifact is gone from the store. */
int stk_exec_said_load(stk_exec *x, uint32_t task, const stk_json *data, exec_said *ret_said,
                       stk_err *err);
/* The artifact as JSON, in `arena`. STK_E_USAGE: it isn't. */
int stk_exec_read_json(stk_exec *x, const exec_artifact *artifact, stk_arena *arena,
                       stk_json *ret_json, stk_err *err);

/* The content cache, for a task of a graph that grows: is there what it would say? Keeps the key
 * either way; nothing where the step's document doesn't ask for it. */
int stk_exec_recall(stk_exec *x, uint32_t task, bool *ret_found, exec_said *ret_said,
                    const char **ret_head, const char **ret_metadata, stk_err *err);

/* Reads what the other run's tasks said. STK_E_NOT_FOUND: there is no such run. */
int stk_exec_clone_open(stk_exec *x, const char *run, const char *until, stk_err *err);
void stk_exec_clone_close(struct exec_clone *clone);
/* Is there a counterpart that succeeded? Then what it said, and its metadata (JSON or NULL). */
int stk_exec_clone_find(stk_exec *x, uint32_t task, bool *ret_found, exec_said *ret_said,
                        const char **ret_metadata, stk_err *err);
/* `"clone":{…}` for RUN_CREATED. */
void stk_exec_clone_json(const struct exec_clone *clone, stk_buf *buf);
const char *stk_exec_clone_run(const struct exec_clone *clone); /* NULL: none */

/* TASK_ADDED, TASK_SUCCEEDED and TASK_CACHED of the log, in its order; RUN_CREATED: what is cloned.
 */
int stk_exec_regrow_row(stk_exec *x, const stk_event_row *row, stk_err *err);
/* Then all tasks, by number, with what the log says of each. */
int stk_exec_regrow(stk_exec *x, exec_past *pasts, stk_err *err);

#endif
