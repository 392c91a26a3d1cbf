/* Turns the end of an attempt into events: reads its result, publishes outputs, handles failures.
 */
#ifndef STK_EXEC_END_H
#define STK_EXEC_END_H

#include "model/spec/spec_result.h"
#include "run/exec/core/exec_state.h"

/* Facts about an attempt that has ended. */
typedef struct exec_ending {
    uint32_t task;
    const stk_step *step;
    const char *dir; /* of a rank: the rank's own */
    const stk_outcome *outcome;
    stk_result result;
    bool has_result;
    const char *used;   /* JSON */
    const char *got;    /* JSON: the agent's report of the grant elsewhere, or NULL */
    const char *remark; /* sentence on unused devices, or NULL */
} exec_ending;

/* The report of the launcher of an attempt's ranks (gang.json). -1: unknown. */
typedef struct exec_gang {
    int64_t first;      /* the rank that failed first */
    int64_t others;     /* number of ranks that were ended because of it */
    int64_t noticed_us; /* time until the launcher noticed, at most */
} exec_gang;
/* Returns false if there is no report, or the attempt was no gang. */
bool stk_exec_gang_read(stk_exec *x, const char *dir, exec_gang *ret_gang);
/* Adds the rank to the sentence of an attempt that ran out of memory; returns `text` unchanged if
 * the rank is unknown. NULL: out of memory. */
const char *stk_exec_gang_oom(stk_exec *x, const exec_gang *gang, const char *text);

/* Reads result.json if there is one. An invalid file is the step's failure (`why`). */
int stk_exec_read_result(stk_exec *x, exec_ending *e, stk_err *why);
/* The same for one rank of an attempt. */
int stk_exec_read_rank(stk_exec *x, const exec_ending *whole, uint32_t rank, exec_ending *ret,
                       stk_err *err);
/* Moves one output to the store; `r` or `declared` may be NULL. STK_E_NOT_FOUND: the step didn't
 * write it. */
int stk_exec_publish(stk_exec *x, const exec_ending *e, const stk_result_output *r,
                     const stk_output *declared, exec_ref *ret_ref, stk_err *err);
/* The result's entry for an output, or NULL. */
const stk_result_output *stk_exec_find_result(const exec_ending *e, const char *name);
bool stk_exec_declares(const stk_step *step, const char *output);
/* Starts the slow work for its outputs. */
int stk_exec_publish_ask(stk_exec *x, const exec_ending *e, stk_err *err);
int stk_exec_ended(stk_exec *x, const stk_report *report, stk_err *err);
/* Handles the known outcome of a task: reads its result, stores its outputs, emits the events. */
int stk_exec_settle(stk_exec *x, uint32_t task, const stk_outcome *outcome, stk_err *err);
/* The failure of an attempt; texts may be NULL. */
typedef struct exec_failure {
    stk_failure class;
    const char *text;           /* a sentence without the step's name */
    const char *used;           /* JSON */
    const char *got;            /* JSON; or NULL */
    const char *type, *message; /* of the exception */
    const char *raw;            /* its own text, where the message is another; or NULL */
    const char *traceback;
    const char *where;
    bool saved;       /* it left a newer checkpoint than it began with */
    bool is_hopeless; /* no other attempt, because it would fail alike */
    const struct exec_gang *gang;
    const stk_result *result;         /* names the hooks that the task ran itself */
    const struct exec_ending *ending; /* of an attempt that ran, to keep its outputs; or NULL */
} exec_failure;
/* Emits TASK_FAILED, and then TASK_RETRYING, or runs the hooks of a step that failed for good. */
int stk_exec_fail(stk_exec *x, uint32_t task, const exec_failure *failure, stk_err *err);
/* The same for an attempt that ended without success, or whose output is unusable. */
int stk_exec_fail_ending(stk_exec *x, const exec_ending *e, stk_err *err);
int stk_exec_fail_output(stk_exec *x, const exec_ending *e, stk_failure class, const stk_err *why,
                         stk_err *err);

/* The folder of the task's checkpoints, in `arena`; NULL: out of memory. */
const char *stk_exec_checkpoints(stk_exec *x, uint32_t task, stk_arena *arena);
/* Before an attempt starts: makes the folder (a Python step makes its own when it needs it), and
 * keeps only complete checkpoints of the same inputs. `task_json`: the attempt's. */
int stk_exec_checkpoints_begin(stk_exec *x, uint32_t task, uint32_t attempt,
                               const stk_buf *task_json, stk_err *err);
/* Removes the checkpoints after the task's committed success. */
void stk_exec_checkpoints_drop(stk_exec *x, uint32_t task);
/* Sets in `failure` whether the attempt was preempted, and whether it left a newer checkpoint. */
void stk_exec_preempted(stk_exec *x, uint32_t task, const stk_outcome *outcome,
                        exec_failure *failure);

/* The attempt's use as JSON in `arena` (tbl/events.def: used), with the verdict on its devices.
 * `result`: its own report, or NULL. Sets *ret_remark to a sentence if it didn't use all of its
 * devices, or used others. NULL: out of memory. */
const char *stk_exec_used_json(const stk_outcome *outcome, const stk_result *result,
                               stk_arena *arena, const char **ret_remark);

#endif
