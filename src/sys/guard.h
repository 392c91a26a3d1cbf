/* Guardians: small processes that end what a program started if that program is killed. A guardian
 * notices by the end of a socket, and outlives its program by a moment. There are two with
 * different names, so that killing the program and one guardian by name leaves the other. */
#ifndef STK_SYS_GUARD_H
#define STK_SYS_GUARD_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

typedef struct stk_guard stk_guard;

enum { STK_GUARD_N = 2, STK_GUARD_FILES = 2 };

/* `run`: when we die, everything with STOKER_RUN=<run> in its environment and the run's control
 * groups end too; started processes are gathered in such a group if possible. NULL: only the added
 * sessions end. Waits until the guardian of the run's previous engine has ended (at most 6 s),
 * because that one would take our new processes for leftovers. */
int stk_guard_open(const char *run, stk_guard **ret_guard, stk_err *err);
/* `ret_pids` has room for STK_GUARD_N. */
void stk_guard_pids(const stk_guard *guard, pid_t *ret_pids);
/* Call before starting something, so that the guardians miss none of its processes however soon we
 * are killed. `files`: descriptors that it inherits. When we die, a process ends if it has one of
 * the first STK_GUARD_FILES files open for writing, because only our processes write them. If our
 * descriptor can only read, a process ends if it has the file open with the descriptor's lock. */
int stk_guard_expect(stk_guard *guard, const int *files, uint32_t n_files, uint32_t *ret_slot,
                     stk_err *err);
/* The program expected in `slot` leads this session. */
void stk_guard_begun(stk_guard *guard, uint32_t slot, pid_t session);
/* Both calls at once, for a program without such files. */
int stk_guard_add(stk_guard *guard, pid_t session, uint32_t *ret_slot, stk_err *err);
void stk_guard_remove(stk_guard *guard, uint32_t slot); /* an unused slot is fine */
/* Replaces a guardian that was killed, because a program without one leaves things behind. */
void stk_guard_renew(stk_guard *guard);
/* Clean end: the guardians exit without ending anything. */
void stk_guard_close(stk_guard *guard);

#endif
