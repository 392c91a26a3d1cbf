/* scribe: writes the logs of a step that has secrets.
 *
 * Such a step writes into two pipes. The scribe, a small process, reads them, masks the values
 * (runner_mask.h) and appends the text to stdout.log and stderr.log: a value is never on the disk,
 * not even briefly. The scribe survives the death of its engine: it ends once the last writer has
 * closed the pipes and all text is in the files. The engine survives the death of the scribe: it
 * holds the pipes too, and a new process continues at the exact byte (a journal in shared memory).
 *
 * While it writes, both logs have a shared lock: the logs aren't complete, because a process can
 * still write. */
#ifndef STK_RUNNER_SCRIBE_H
#define STK_RUNNER_SCRIBE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define STK_SCRIBE_NAME "stoker-scribe" /* as in /proc/<pid>/comm */

typedef struct stk_scribe stk_scribe;

/* `values`: NULL-terminated, copied. *ret_scribe is NULL if none of them can be hidden. ret_fds,
 * owned by the caller, are the step's stdout and stderr. */
int stk_scribe_open(const char *dir, const char *const *values, int ret_fds[2],
                    stk_scribe **ret_scribe, stk_err *err);
/* For poll(2): readable once the process has ended. Changes with stk_scribe_renew. */
int stk_scribe_fd(const stk_scribe *scribe);
pid_t stk_scribe_pid(const stk_scribe *scribe);
/* The step has ended: the process writes what is in the pipes now, then ends. */
void stk_scribe_finish(stk_scribe *scribe);
/* All text is in the files. */
bool stk_scribe_is_done(const stk_scribe *scribe);
/* Starts a new process after one that ended too early. */
int stk_scribe_renew(stk_scribe *scribe, stk_err *err);
/* Kills a process that hangs (SIGKILL). */
void stk_scribe_kill(stk_scribe *scribe);
/* A counter that grows with every action of the process. */
uint64_t stk_scribe_progress(const stk_scribe *scribe);
/* The number of bytes that could not be written, and why (errno). */
uint64_t stk_scribe_lost(const stk_scribe *scribe, int *ret_errno);
/* Frees the handle only: an unfinished process continues until the last writer closes the pipes. */
void stk_scribe_close(stk_scribe *scribe);

#endif
