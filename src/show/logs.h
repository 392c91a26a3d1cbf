/* logs: what steps wrote to stdout and stderr. */
#ifndef STK_SHOW_LOGS_H
#define STK_SHOW_LOGS_H

#include "base/buf.h"
#include "store/view/view.h"

/* Which logs to copy. */
typedef struct stk_logs {
    stk_store *store;
    stk_view *view;
    bool has_step, has_task; /* neither: of the whole run */
    uint32_t i_step, task;
    int64_t rank;  /* of a gang; -1: the task's own logs */
    bool out, err; /* which streams */
    /* Of a run that goes on elsewhere, else NULL. `wait` waits for a moment, and brings what is
     * new. `live`: the folder with the output of a running attempt so far (it lives as long as
     * `arg`), or NULL. */
    int (*wait)(void *arg, stk_err *err);
    const char *(*live)(void *arg, uint32_t task);
    void *arg;
} stk_logs;

/* Copies the logs to our stdout: those of one task as they are, others with the task's name before
 * each line. `keep_on`: goes on until the task, or the run, has ended. */
int stk_logs_copy(const stk_logs *logs, bool keep_on, stk_err *err);
/* The logs as a JSON list of {"step","id","attempt","stdout","stderr"}; the last two are paths. */
int stk_logs_json(const stk_logs *logs, stk_buf *out, stk_err *err);

#endif
