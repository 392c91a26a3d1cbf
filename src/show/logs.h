/* logs: what steps wrote to stdout and stderr. */
#ifndef STK_SHOW_LOGS_H
#define STK_SHOW_LOGS_H

#include "base/buf.h"
#include "store/view/view.h"

/* Whose logs, and which. */
typedef struct stk_logs {
    stk_store *store;
    stk_view *view;
    bool has_step, has_task; /* of the whole run, a step, or a task */
    uint32_t i_step, task;
    int64_t rank;  /* of a gang, or -1 */
    bool out, err; /* stdout, stderr */
} stk_logs;

/* Copies them to our stdout: of one task as they are, else each line with its task's name before
 * it. `keep_on`: until the task, or the run, has ended. */
int stk_logs_copy(const stk_logs *logs, bool keep_on, stk_err *err);
/* The files as a list of {"step","id","attempt","stdout","stderr"}. */
int stk_logs_json(const stk_logs *logs, stk_buf *out, stk_err *err);

#endif
