/* What a run's log says when it is taken up. */
#ifndef STK_EXEC_RESUME_H
#define STK_EXEC_RESUME_H

#include "run/exec/core/exec_state.h"

/* What the log says of a task, in the end. */
typedef struct exec_past {
    char *json; /* of the last success: its outputs, or, of a graph that grows, all of its data;
                   malloc'd; NULL: not done */
    uint32_t attempt;                      /* highest */
    uint32_t n_grown[STK_GROWS_SHARE + 1]; /* attempts that got more of this than the one before */
    bool running;                          /* started, and no end was committed */
    const char *stack;                     /* of other machines, where it was started; NULL: here */
    bool ran; /* it is done, and was not served by the cache: hooks follow */
} exec_past;

/* A task that isn't done: ends what still lives of it, or takes its good result as it is. */
int stk_exec_replay_unfinished(stk_exec *x, uint32_t task, const exec_past *past, stk_err *err);
/* The step runs again since what it made is gone; an error where it can't. */
int stk_exec_replay_again(stk_exec *x, uint32_t task, stk_err *err);
/* What the log says of the run, before its first turn. */
int stk_exec_replay(stk_exec *x, stk_err *err);

#endif
