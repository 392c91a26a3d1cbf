/* The guardian: a small process that outlives who opened it by a moment. A program that is killed
 * can't end what it started; the end of a socket tells the guardian, which does. There are two, of
 * different names: who is killed together with one of them leaves the other. */
#ifndef STK_SYS_GUARD_H
#define STK_SYS_GUARD_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

typedef struct stk_guard stk_guard;

enum { STK_GUARD_N = 2, STK_GUARD_FILES = 2 };

/* `run`: everything that has STOKER_RUN=<run> in its environment, and the run's control groups, end
 * too, and what is started is gathered in one of these where that can be had; NULL: only the
 * sessions added. Waits until the guardian of the run's former engine has ended (at most 6 s): it
 * would take what is begun now for what was left. */
int stk_guard_open(const char *run, stk_guard **ret_guard, stk_err *err);
/* Room for STK_GUARD_N. */
void stk_guard_pids(const stk_guard *guard, pid_t *ret_pids);
/* Before something is started, so that nothing it starts is missed however soon we are killed.
 * `files`: descriptors that it inherits. Who has one of the first STK_GUARD_FILES files open for
 * writing ends with us, for nobody else writes them; of one whose descriptor can only read, who has
 * it open with the lock that is on that. */
int stk_guard_expect(stk_guard *guard, const int *files, uint32_t n_files, uint32_t *ret_slot,
                     stk_err *err);
/* What was expected in `slot` leads this session. */
void stk_guard_begun(stk_guard *guard, uint32_t slot, pid_t session);
/* Both, for what has no files of its own. */
int stk_guard_add(stk_guard *guard, pid_t session, uint32_t *ret_slot, stk_err *err);
void stk_guard_remove(stk_guard *guard, uint32_t slot); /* an unused slot is fine */
/* Another one where it was killed: a program without a guardian leaves things behind. */
void stk_guard_renew(stk_guard *guard);
/* Clean end: it exits without doing anything. */
void stk_guard_close(stk_guard *guard);

#endif
