/* Adds the tasks that follow a finished one, and finds the artifacts that they see. */
#ifndef STK_EXEC_GROW_H
#define STK_EXEC_GROW_H

#include "base/json.h"
#include "run/exec/core/exec_state.h"

/* Adds the run's first task. */
int stk_exec_grow_begin(stk_exec *x, stk_err *err);
/* Adds tasks to the graph and to x->tasks, but not to the scheduler. */
int stk_exec_grow_tasks(stk_exec *x, const stk_grow_adding *adding, stk_err *err);
/* Adds the task to the scheduler by its number; it waits for `needs`. A task that asks for more
 * than this machine has gets a refusal. */
int stk_exec_grow_schedule(stk_exec *x, uint32_t task, const uint32_t *needs, uint32_t n_needs,
                           stk_err *err);
/* After TASK_SUCCEEDED or TASK_CACHED: adds what follows the task, in the same transaction. */
int stk_exec_follow(stk_exec *x, uint32_t task, const exec_made *made, stk_err *err);
/* Checks that stk_exec_follow would succeed; else sets *ret_class and a sentence. */
int stk_exec_follow_check(const stk_exec *x, uint32_t task, const stk_grow_next *next,
                          stk_err *err);
/* A task's request for admission: its step's, multiplied by the ranks of a gang from num_parallel.
 * Its asks are in `asks` (STK_LIMIT_ASKS of them), or the plan's. */
stk_request stk_exec_request(const stk_plan *plan, uint32_t i_step, uint32_t ranks,
                             stk_pack_ask *asks);
/* The gang of a task; ranks 0: the task is no gang. */
stk_gang_ask stk_exec_gang(const stk_exec *x, uint32_t task);
uint32_t stk_exec_ranks(const stk_exec *x, uint32_t task); /* from num_parallel, else 0 */
/* Handles STK_ACT_LOOKUP of a task: cloned, cached or missed. */
int stk_exec_lookup_grown(stk_exec *x, uint32_t task, stk_err *err);
/* Keeps the final failure as JSON (exec_grown.fallback) for the attempt that replaces it. */
struct exec_failure;
int stk_exec_keep_failure(stk_exec *x, uint32_t task, const struct exec_failure *failure,
                          stk_err *err);
/* Adds a task to a scheduler with its step's request, multiplied by `ranks`; *ret_request is that
 * request. Returns 1 if this machine has less (`why`): the task is then added without a request. */
int stk_exec_grow_add(stk_sched *sched, const stk_plan *plan, const stk_capacity *capacity,
                      stk_policy policy, uint32_t i_step, uint32_t ranks, const uint32_t *needs,
                      uint32_t n_needs, stk_request *ret_request, stk_err *why, stk_err *err);
/* Fails a starting task that asks for more than this machine has (exec_grown.refusal). */
int stk_exec_fail_refused(stk_exec *x, uint32_t task, stk_err *err);
/* Reads {"steps", "n"} of an event of the step, in `arena`. STK_E_USAGE: no such step. */
int stk_exec_next_load(const stk_spec *spec, uint32_t i_step, const stk_json *next,
                       stk_arena *arena, stk_grow_next *ret_next, stk_err *err);

const exec_artifact *stk_exec_scope_find(const exec_scope *scope, const char *name);
/* Input number i of `task`: a task and its rank. Returns false if there are fewer. */
bool stk_exec_scope_parent(const stk_exec *x, uint32_t task, uint32_t i, uint32_t *ret_task,
                           const exec_scope **ret_scope, uint32_t *ret_rank);
/* The scope with which a task begins: its parent's; an empty one for a join and the first task. */
const exec_scope *stk_exec_scope_base(const stk_exec *x, uint32_t task);
/* The artifact of a parent, or of the failed attempt that a fallback replaces, with that name and
 * content; or NULL. */
exec_artifact *stk_exec_scope_inherited(const stk_exec *x, uint32_t task, const char *name,
                                        const char *digest);
/* Makes the scopes after a finished task. */
int stk_exec_scope_end(stk_exec *x, uint32_t task, const exec_made *made, stk_err *err);
/* Keeps what a failed attempt made, for the fallback. */
int stk_exec_scope_leave(stk_exec *x, uint32_t task, const exec_made *made, stk_err *err);
/* Finds the artifacts that an input takes from a step's output: one, or for a join a list in the
 * order of its inputs. In x->scratch. STK_E_NOT_FOUND: there is none. */
int stk_exec_scope_from(stk_exec *x, uint32_t task, const stk_input *in,
                        const exec_artifact ***ret_found, uint32_t *ret_n, stk_err *err);
/* Returns the task's item of the innermost foreach as JSON, in x->scratch, and its index.
 * STK_E_NOT_FOUND: the task is in no foreach, or the list has no such item. STK_E_USAGE: the items
 * are no JSON list. */
int stk_exec_scope_item(stk_exec *x, uint32_t task, const char **ret_json, uint32_t *ret_index,
                        stk_err *err);
/* Writes the member "flow" of the task's task.json. */
int stk_exec_put_scope(stk_exec *x, uint32_t task, stk_buf *buf, stk_err *err);

#endif
