/* The tasks that follow a finished one, and what they see. */
#ifndef STK_EXEC_GROW_H
#define STK_EXEC_GROW_H

#include "base/json.h"
#include "run/exec/core/exec_state.h"

/* The run's first task. */
int stk_exec_grow_begin(stk_exec *x, stk_err *err);
/* Tasks of the run: in grow (unless it has them already), in x->tasks, and, where `to_sched`, in
 * the scheduler. */
int stk_exec_grow_tasks(stk_exec *x, const stk_grow_adding *adding, stk_err *err);
/* To the scheduler, by number; it waits for `needs`. What can't be had here gets a refusal. */
int stk_exec_grow_schedule(stk_exec *x, uint32_t task, const uint32_t *needs, uint32_t n_needs,
                           stk_err *err);
/* After TASK_SUCCEEDED or TASK_CACHED: what follows the task, in the same transaction. */
int stk_exec_follow(stk_exec *x, uint32_t task, const exec_made *made, stk_err *err);
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
int stk_exec_next_load(const stk_spec *spec, uint32_t i_step, const stk_json *next,
                       stk_arena *arena, stk_grow_next *ret_next, stk_err *err);

const exec_artifact *stk_exec_scope_find(const exec_scope *scope, const char *name);
/* Number i of the inputs of `task`: a task, and a rank of it. False: there are not so many. */
bool stk_exec_scope_parent(const stk_exec *x, uint32_t task, uint32_t i, uint32_t *ret_task,
                           const exec_scope **ret_scope, uint32_t *ret_rank);
/* What a task sees at first: its parent's scope; of a join, and of the first task, an empty one. */
const exec_scope *stk_exec_scope_base(const stk_exec *x, uint32_t task);
/* A parent's artifact of that name and content, or NULL. */
exec_artifact *stk_exec_scope_inherited(const stk_exec *x, uint32_t task, const char *name,
                                        const char *digest);
/* The scopes after a task that is done. */
int stk_exec_scope_end(stk_exec *x, uint32_t task, const exec_made *made, stk_err *err);
/* What an input names by a step's output: one artifact; of a join a list, by its inputs. In
 * x->scratch. STK_E_NOT_FOUND: there is none. */
int stk_exec_scope_from(stk_exec *x, uint32_t task, const stk_input *in,
                        const exec_artifact ***ret_found, uint32_t *ret_n, stk_err *err);
/* The innermost foreach's item as JSON, in x->scratch, and its index. STK_E_NOT_FOUND: it is in no
 * foreach, or the items are no JSON list. */
int stk_exec_scope_item(stk_exec *x, uint32_t task, const char **ret_json, uint32_t *ret_index,
                        stk_err *err);
/* The member "flow" of its task.json. */
int stk_exec_put_scope(stk_exec *x, uint32_t task, stk_buf *buf, stk_err *err);

#endif
