/* The logs of a task of the local backend: files, or pipes to a scribe if the task has secrets. */
#ifndef STK_BACKEND_LOCAL_LOGS_H
#define STK_BACKEND_LOCAL_LOGS_H

#include "host/backend/backend_local.h"

/* Opens the first descriptors of a task: stdout, stderr and, unless it is a hook, its attempt's
 * lock. */
int stk_local_logs_open(local_task *task, const char *const *hidden, stk_err *err);
/* Starts to watch for the end of the task's scribe. */
int stk_local_logs_watch(local_backend *b, local_task *task, stk_err *err);
/* Call it when the task has ended. True: its logs are complete; else stk_local_task_tell_end is
 * called later. */
bool stk_local_logs_finish(local_backend *b, local_task *task);
void stk_local_logs_event(local_backend *b, local_task *task);
/* Finds a scribe that hangs while it writes the rest. */
void stk_local_logs_timers(local_backend *b, local_task *task, int64_t now_ms);
void stk_local_logs_close(local_backend *b, local_task *task);

#endif
