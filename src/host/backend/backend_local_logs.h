/* What a task of the local backend writes into: log files, of one with secrets through a scribe. */
#ifndef STK_BACKEND_LOCAL_LOGS_H
#define STK_BACKEND_LOCAL_LOGS_H

#include "host/backend/backend_local.h"

/* The first descriptors of a task: stdout, stderr and, but for a hook, its attempt's lock. */
int stk_local_logs_open(local_task *task, const char *const *hidden, stk_err *err);
/* From now on its scribe's end is heard of. */
int stk_local_logs_watch(local_backend *b, local_task *task, stk_err *err);
/* The task has ended. True: its logs are whole; else stk_local_task_tell_end is called later. */
bool stk_local_logs_finish(local_backend *b, local_task *task);
void stk_local_logs_event(local_backend *b, local_task *task);
/* While the rest is written: a scribe that stands still. */
void stk_local_logs_timers(local_backend *b, local_task *task, int64_t now_ms);
void stk_local_logs_close(local_backend *b, local_task *task);

#endif
