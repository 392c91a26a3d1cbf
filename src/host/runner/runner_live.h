/* Which attempts run on this host now, of whatever engine and store? Read from /proc: an attempt is
 * a session whose leader has `…/runs/RUN/STEP/TASK/ATTEMPT/task.json` open with a lock on it, as
 * every task of the local backend has. Processes of other users are seen by root only. */
#ifndef STK_RUNNER_LIVE_H
#define STK_RUNNER_LIVE_H

#include <stdint.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/err.h"
#include "sys/proc.h"

typedef struct stk_live_task {
    const char *dir; /* of the attempt */
    const char *run, *step;
    uint32_t task, attempt;
    pid_t pid;      /* the session's leader */
    uint64_t start; /* of that process, ticks since boot: (pid, start) is one attempt for good */
    uid_t uid;
    int64_t started_ms;   /* wall clock, -1 unknown */
    stk_proc_usage usage; /* of the whole session */
    const pid_t *pids;
    uint32_t n_pids;
    const char *const *uuids; /* of the devices that it was granted (task.json) */
    uint32_t n_uuids;
} stk_live_task;

/* Everything in *ret_tasks lives in `arena`; ordered by start. */
int stk_live_tasks(stk_arena *arena, stk_live_task **ret_tasks, uint32_t *ret_n, stk_err *err);

#endif
