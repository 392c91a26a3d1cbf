/* Events: the scheduler takes them at once, a flush commits them. */
#ifndef STK_EXEC_EVENT_H
#define STK_EXEC_EVENT_H

#include "run/exec/core/exec_state.h"

/* Folds into the scheduler and queues for the next flush. `data`: the event's JSON, or NULL. */
int stk_exec_emit(stk_exec *x, const stk_sched_event *event, const stk_buf *data, stk_err *err);
/* The same for an event of which the scheduler needs only the task. */
int stk_exec_emit_task(stk_exec *x, int kind, uint32_t task, const stk_buf *data, stk_err *err);
/* Queues an event that the scheduler doesn't need (NOTE, RUN_CREATED …). */
int stk_exec_emit_plain(stk_exec *x, stk_event_kind kind, const stk_buf *data, stk_err *err);
/* `text` NULL: out of memory. */
int stk_exec_emit_note(stk_exec *x, const char *text, stk_err *err);
/* A NOTE of the backend; with it why the task waits elsewhere, or that it waits no more. */
int stk_exec_emit_word(stk_exec *x, const stk_report *report, stk_err *err);
int stk_exec_flush(stk_exec *x, stk_err *err);
int stk_exec_push_cache(stk_exec *x, const stk_cache_row *row, stk_err *err);
int stk_exec_push_ref(stk_exec *x, const stk_ref_row *row, stk_err *err);
/* Starts the task after the next flush. */
int stk_exec_push_launch(stk_exec *x, uint32_t task, stk_err *err);

#endif
