/* Artifacts that only the share has, fetched by threads. */
#ifndef STK_EXEC_FETCH_H
#define STK_EXEC_FETCH_H

#include "run/exec/core/exec_state.h"

typedef struct exec_fetcher exec_fetcher;

int stk_exec_fetch_open(const stk_exec_elsewhere *from, stk_store *store, exec_fetcher **ret,
                        stk_err *err);
void stk_exec_fetch_close(exec_fetcher *fetcher); /* NULL is fine */
/* Of an artifact that a launch here needs, at `path` once it is here: it is on its way, and the
 * launch can't be made now. An error: it couldn't be fetched. */
int stk_exec_fetch_ask(exec_fetcher *fetcher, const char *digest, const char *path, bool *ret_comes,
                       stk_err *err);
/* Was something missing? Then the launch is made anew once it has come (UINT32_MAX: it failed, and
 * is not). *ret_rc: STK_E_NOMEM. */
bool stk_exec_fetch_aside(exec_fetcher *fetcher, uint32_t task, stk_err *err, int *ret_rc);
/* True: it waits for an artifact, and does no more; the caller launches it. */
bool stk_exec_fetch_stop(stk_exec *x, uint32_t task);
int stk_exec_fetch_fd(const exec_fetcher *fetcher); /* readable: call the next; -1: never */
int stk_exec_fetched(stk_exec *x, stk_err *err);

#endif
