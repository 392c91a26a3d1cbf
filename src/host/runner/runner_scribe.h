/* scribe: writes the logs of a step that has secrets.
 *
 * Such a step writes into two pipes. A small process reads them, hides the values (runner_mask.h)
 * and appends the rest to stdout.log and stderr.log: a value is never on the disk, not for a
 * moment. The process outlives an engine that is killed: it ends with the last writer, once
 * everything that was written is in the files. The engine outlives a process that is killed: it
 * holds the pipes too, and another one goes on where that one was, to the byte (a journal in shared
 * memory).
 *
 * While it writes, both logs have a shared lock: they aren't whole yet, because some process can
 * still write. */
#ifndef STK_RUNNER_SCRIBE_H
#define STK_RUNNER_SCRIBE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define STK_SCRIBE_NAME "stoker-scribe" /* as /proc/<pid>/comm has it */

typedef struct stk_scribe stk_scribe;

/* `values`: NULL-terminated, copied. *ret_scribe is NULL where none of them can be hidden.
 * `ret_fds` are the caller's: what the step gets as its stdout and stderr. */
int stk_scribe_open(const char *dir, const char *const *values, int ret_fds[2],
                    stk_scribe **ret_scribe, stk_err *err);
/* For poll(2): readable once its process has ended. Another one after stk_scribe_renew. */
int stk_scribe_fd(const stk_scribe *scribe);
pid_t stk_scribe_pid(const stk_scribe *scribe);
/* The step has ended: what is in the pipes now is written, then the process ends. */
void stk_scribe_finish(stk_scribe *scribe);
/* All of it is in the files. */
bool stk_scribe_is_done(const stk_scribe *scribe);
/* Its process is gone and wasn't done: another one goes on. */
int stk_scribe_renew(stk_scribe *scribe, stk_err *err);
/* It stands still: SIGKILL. */
void stk_scribe_kill(stk_scribe *scribe);
/* Grows with all that it does. */
uint64_t stk_scribe_progress(const stk_scribe *scribe);
/* Bytes that could not be written, and why (errno). */
uint64_t stk_scribe_lost(const stk_scribe *scribe, int *ret_errno);
/* Ours only: a process that isn't done goes on until the last writer is gone. */
void stk_scribe_close(stk_scribe *scribe);

#endif
