/* Lists the attempts that run on this host now, of every engine and store, from /proc. An attempt
 * is a session whose leader has `…/runs/RUN/STEP/TASK/ATTEMPT/task.json` open and locked, as every
 * task of the local backend does. Only root sees other users' processes. */
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
    const char *pipeline; /* by task.json, or NULL */
    uint32_t task, attempt;
    pid_t pid;      /* the session's leader */
    uint64_t start; /* start of that process in ticks since boot; (pid, start) is unique */
    uid_t uid;
    int64_t started_ms;   /* wall clock, -1 unknown */
    stk_proc_usage usage; /* of the whole session */
    const pid_t *pids;
    uint32_t n_pids;
    const char *const *uuids; /* of its granted devices (task.json) */
    uint32_t n_uuids;
} stk_live_task;

/* Everything in *ret_tasks lives in `arena`; ordered by start time. */
int stk_live_tasks(stk_arena *arena, stk_live_task **ret_tasks, uint32_t *ret_n, stk_err *err);

#endif
