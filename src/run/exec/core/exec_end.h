/* From the end of an attempt to what is on record of it. */
#ifndef STK_EXEC_END_H
#define STK_EXEC_END_H

#include "model/spec/spec_result.h"
#include "run/exec/core/exec_state.h"

/* What is known when an attempt has ended. */
typedef struct exec_ending {
    uint32_t task;
    const stk_step *step;
    const char *dir; /* of a rank: its own */
    const stk_outcome *outcome;
    stk_result result;
    bool has_result;
    const char *used;   /* JSON */
    const char *got;    /* JSON: what it was granted elsewhere, by its agent; or NULL */
    const char *remark; /* what it did not use of what it was given, or NULL */
} exec_ending;

/* What the launcher of an attempt's ranks saw (gang.json). -1 unknown. */
typedef struct exec_gang {
    int64_t first;      /* the rank that failed first */
    int64_t others;     /* that were ended because of it */
    int64_t noticed_us; /* so long after it had happened it was noticed, at most */
} exec_gang;
/* False: it left none, or the attempt was no gang. */
bool stk_exec_gang_read(stk_exec *x, const char *dir, exec_gang *ret_gang);
/* The sentence of an attempt that ran out of memory, with the rank; `text` as it is where nobody
 * knows. NULL: out of memory. */
const char *stk_exec_gang_oom(stk_exec *x, const exec_gang *gang, const char *text);

/* Reads result.json if there is one. A wrong one is the step's failure, told in `why`. */
int stk_exec_read_result(stk_exec *x, exec_ending *e, stk_err *why);
/* The same of one rank of an attempt. */
int stk_exec_read_rank(stk_exec *x, const exec_ending *whole, uint32_t rank, exec_ending *ret,
                       stk_err *err);
/* One output into the store; `r` or `declared` may be NULL. STK_E_NOT_FOUND: it isn't there (the
 * step's fault). */
int stk_exec_publish(stk_exec *x, const exec_ending *e, const stk_result_output *r,
                     const stk_output *declared, exec_ref *ret_ref, stk_err *err);
/* What the result says of an output; NULL: nothing. */
const stk_result_output *stk_exec_find_result(const exec_ending *e, const char *name);
bool stk_exec_declares(const stk_step *step, const char *output);
/* Asks for what takes long of its outputs. */
int stk_exec_publish_ask(stk_exec *x, const exec_ending *e, stk_err *err);
int stk_exec_ended(stk_exec *x, const stk_report *report, stk_err *err);
/* The end of a task whose outcome is known: reads its result, stores its outputs, emits what
 * follows. */
int stk_exec_settle(stk_exec *x, uint32_t task, const stk_outcome *outcome, stk_err *err);
/* Why an attempt failed; NULL where there is nothing to say. */
typedef struct exec_failure {
    stk_failure class;
    const char *text;           /* a sentence without the step's name */
    const char *used;           /* JSON */
    const char *got;            /* JSON; or NULL */
    const char *type, *message; /* of the exception, in its own words */
    const char *traceback;
    const char *where;
    bool saved;       /* a newer checkpoint than it began with */
    bool is_hopeless; /* another attempt would meet the same: none is made */
    const struct exec_gang *gang;
    const stk_result *result;         /* hooks that it names were run by the task itself */
    const struct exec_ending *ending; /* of an attempt that ran: what it left is kept; or NULL */
} exec_failure;
/* Emits TASK_FAILED and what follows: TASK_RETRYING, or the hooks of a step that failed for good.
 */
int stk_exec_fail(stk_exec *x, uint32_t task, const exec_failure *failure, stk_err *err);
/* The same of an attempt that ended without success, and of one whose output can't be used. */
int stk_exec_fail_ending(stk_exec *x, const exec_ending *e, stk_err *err);
int stk_exec_fail_output(stk_exec *x, const exec_ending *e, stk_failure class, const stk_err *why,
                         stk_err *err);

/* The folder of the task's checkpoints, in `arena`; NULL: out of memory. */
const char *stk_exec_checkpoints(stk_exec *x, uint32_t task, stk_arena *arena);
/* Before an attempt starts: the folder is there (a Python step makes it when it needs it), and has
 * complete checkpoints of the same inputs only. `task_json`: the attempt's. */
int stk_exec_checkpoints_begin(stk_exec *x, uint32_t task, uint32_t attempt,
                               const stk_buf *task_json, stk_err *err);
/* Its success is committed. */
void stk_exec_checkpoints_drop(stk_exec *x, uint32_t task);
/* Was a failed attempt preempted, and did it get further? Says so in `failure`. */
void stk_exec_preempted(stk_exec *x, uint32_t task, const stk_outcome *outcome,
                        exec_failure *failure);

/* What the attempt used, as JSON in `arena` (tbl/events.def: used), with the verdict on its
 * devices. `result`: what it said itself, or NULL. *ret_remark: a sentence, where it did not use
 * all that it was given, or used something else; else left alone. NULL: out of memory. */
const char *stk_exec_used_json(const stk_outcome *outcome, const stk_result *result,
                               stk_arena *arena, const char **ret_remark);

#endif
