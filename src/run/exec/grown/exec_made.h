/* What a finished task made: from its result, the cache, a run that is cloned, the log. */
#ifndef STK_EXEC_MADE_H
#define STK_EXEC_MADE_H

#include "base/json.h"
#include "run/exec/core/exec_end.h"
#include "run/exec/core/exec_resume.h"

/* What a finished attempt made, its outputs published. `next` and `items`: where the graph grows.
 * *ret_class: of the failure, if it is one. */
int stk_exec_make(stk_exec *x, const exec_ending *e, exec_made *ret_made, stk_failure *ret_class,
                  stk_err *err);
/* {name: ref, …}. */
void stk_exec_put_outputs(stk_buf *buf, const char *key, const exec_part *part);
/* The member "outputs"; of a graph that grows also "dropped", "next", "ranks". */
void stk_exec_put_made(const stk_exec *x, const exec_made *made, stk_buf *buf);
/* "outputs", "dropped", "ranks" of an attempt that failed: what its ranks had made and deleted
 * until then, published. What can't be is left out. */
void stk_exec_put_left(stk_exec *x, const exec_ending *e, stk_buf *buf);
/* The same back from an event's data. STK_E_NOT_FOUND: an artifact is gone from the store. */
int stk_exec_load_made(stk_exec *x, uint32_t task, const stk_json *data, exec_made *ret_made,
                       stk_err *err);
/* The artifact as JSON, in `arena`. STK_E_USAGE: it isn't. */
int stk_exec_read_json(stk_exec *x, const exec_artifact *artifact, stk_arena *arena,
                       stk_json *ret_json, stk_err *err);

/* What a task need not make, as another one has made it. */
typedef struct exec_taken {
    exec_made made;
    const char *key;      /* of the cache's entry; NULL: of a run that is cloned */
    const char *from_run; /* NULL: there is no such task */
    uint32_t from_task;
    const char *metadata; /* JSON, or NULL */
} exec_taken;
/* What such a task made, from an event's data or a cache's entry. *ret_is_good false: an artifact
 * is gone, or the document goes on otherwise; `why` says so. */
int stk_exec_load_taken(stk_exec *x, uint32_t task, const stk_json *data, exec_made *ret_made,
                        bool *ret_is_good, stk_err *why, stk_err *err);
/* The content cache, for a task of a graph that grows. Keeps the key either way; finds nothing
 * where the step's document doesn't ask for it. */
int stk_exec_lookup_taken(stk_exec *x, uint32_t task, exec_taken *ret_taken, stk_err *err);

/* Reads what the other run's tasks made. STK_E_NOT_FOUND: there is no such run. */
int stk_exec_clone_open(stk_exec *x, const char *run, const char *until, stk_err *err);
void stk_exec_clone_close(struct exec_clone *clone);
/* Has it a counterpart that succeeded? */
int stk_exec_clone_find(stk_exec *x, uint32_t task, exec_taken *ret_taken, stk_err *err);
/* The member "clone" of RUN_CREATED. */
void stk_exec_put_clone(const struct exec_clone *clone, stk_buf *buf);
const char *stk_exec_clone_run(const struct exec_clone *clone); /* NULL: none */

/* TASK_ADDED's data → its tasks, in `arena`. i_step STK_GROW_NONE: the document has no step of that
 * name. */
int stk_exec_load_added(const stk_spec *spec, const stk_event_row *row, const stk_json *data,
                        stk_arena *arena, stk_grow_adding *ret_adding, stk_err *err);
/* The log's rows in their order, with their data: tasks that were added, what follows them, what is
 * cloned. */
int stk_exec_regrow_row(stk_exec *x, const stk_event_row *row, const stk_json *data, stk_err *err);
/* Then all tasks, by number, with what the log says of each. */
int stk_exec_regrow(stk_exec *x, exec_past *pasts, stk_err *err);

#endif
