/* run_shared: runs in a store that machines share. Fetches a run's record from there, to resume the
 * run or to add tags and metadata to it. */
#ifndef STK_RUN_SHARED_H
#define STK_RUN_SHARED_H

#include "store/store.h"

/* Finds the URL of a stack's share, in `arena`; NULL: the stack has none, its steps run here. */
int stk_run_shared_url(const char *stack, stk_arena *arena, const char **ret_url, stk_err *err);
/* The newest run of a stack's share. STK_E_NOT_FOUND: the stack has none, or it has no runs. */
int stk_run_shared_newest(const char *stack, char ret_run[40], stk_err *err);
/* Fetches the events that this store lacks of a run. `text` names the run, here or in the stack's
 * share. `stack` NULL: the stack of the run itself. STK_E_NOT_FOUND: neither has the run. */
int stk_run_shared_bring(stk_store *store, const char *stack, const char *text, char ret_run[40],
                         stk_err *err);
/* Asks the run's share who on another machine continues the run, which no engine here holds: "USER
 * on HOST", and the stack by which to follow it. "": nobody, or the share can't be asked. */
void stk_run_shared_taker(stk_store *store, const char *run, char ret_who[300], char ret_stack[64]);
/* Call it before adding a tag or metadata to a run that may be in a share: fetches what other
 * machines added. STK_E_BUSY: another machine runs it, so the addition belongs there. */
int stk_run_shared_may_add(stk_store *store, const char *run, stk_err *err);
/* Sends to the share the events that it lacks of a run that no engine holds (*ret_told: there were
 * some). Does nothing if the run is in no share. `stack`: the share's stack; NULL: the run's. */
int stk_run_shared_publish(stk_store *store, const char *stack, const char *run, bool *ret_told,
                           stk_err *err);

#endif
