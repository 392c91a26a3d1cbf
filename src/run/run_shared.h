/* run_shared: runs in the store that machines share, whoever runs them: brought here to be taken up
 * (`resume`), or to be added to (`tag`, `metadata`). */
#ifndef STK_RUN_SHARED_H
#define STK_RUN_SHARED_H

#include "store/store.h"

/* The share of a stack, in `arena`; NULL: it has none (its steps run here). */
int stk_run_shared_url(const char *stack, stk_arena *arena, const char **ret_url, stk_err *err);
/* What this store lacks of a run that `text` names here or in the stack's share: its events as far
 * as they are there. `stack` NULL: the one that the run was begun with. STK_E_NOT_FOUND: neither
 * knows it. */
int stk_run_shared_bring(stk_store *store, const char *stack, const char *text, char ret_run[40],
                         stk_err *err);
/* Before something is added to a run of this store that may be in a share (a tag, metadata): what
 * others have done to it is brought here. STK_E_BUSY: another machine runs it, and it is to be done
 * there. */
int stk_run_shared_may_add(stk_store *store, const char *run, stk_err *err);
/* Puts to the share what it lacks of a run of this store that no engine has (*ret_told: there was
 * something); where the run is in none: nothing. `stack`: whose share; NULL: the run's own. */
int stk_run_shared_publish(stk_store *store, const char *stack, const char *run, bool *ret_told,
                           stk_err *err);

#endif
