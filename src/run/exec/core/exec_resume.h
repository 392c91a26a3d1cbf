/* Restores a resumed run from its log. */
#ifndef STK_EXEC_RESUME_H
#define STK_EXEC_RESUME_H

#include "run/exec/core/exec_state.h"

/* A task's state at the log's end. */
typedef struct exec_past {
    char *json;       /* of the last success: its outputs, in a graph that grows all of its data;
                         malloc'd; NULL: not done */
    uint32_t attempt; /* the highest */
    uint32_t
        n_grown[STK_GROWS_SHARE + 1]; /* attempts that got more of this than their predecessors */
    bool running;                     /* it was started and has no committed end */
    int64_t started_ms;               /* the last attempt's start, Unix time */
    const char *stack;                /* where it was started; NULL: here */
    bool ran; /* it is done and didn't come from the cache, so it has hooks */
} exec_past;

/* Handles an unfinished task: ends its processes, or takes its good result. */
int stk_exec_replay_unfinished(stk_exec *x, uint32_t task, const exec_past *past, stk_err *err);
/* Runs the step again because its artifacts are missing; an error if it can't. */
int stk_exec_replay_again(stk_exec *x, uint32_t task, stk_err *err);
/* Folds the run's log, before the loop's first turn. */
int stk_exec_replay(stk_exec *x, stk_err *err);

#endif
