/* Failpoints: places where a test can kill this process or make a call fail. src/tbl/failpoints.def
 * lists them and describes each one.
 *
 *     STK_FAILPOINT("store.commit.before");               kill, exit, stop, log
 *     int sys = STK_FAILPOINT_ERR("store.commit.write");  and also: an errno to fail with, else 0
 *
 * STOKER_FAILPOINTS=name:N:action[,name:N:action…] arms them. `name` may be *: every point except
 * those of sys, which do not mark a moment in a run; they are counted together. N is the pass on
 * which the action happens (from 1); "N+" means that pass and all later ones. Actions: kill
 * (SIGKILL), exit (_exit(70)), stop (SIGSTOP), log (one line on stderr per pass, from which a crash
 * test learns the points where it can kill), enospc, enomem, eio, emfile, eacces, hold (see
 * STK_FAILPOINT_IS_HELD). Each process counts its own passes. When the variable is not set, a point
 * costs one predictable branch. An invalid value ends the process with status 2, so that a crash
 * test with a misspelt failpoint cannot pass. */
#ifndef STK_BASE_FAILPOINT_H
#define STK_BASE_FAILPOINT_H

#include <stdbool.h>

extern int stk_failpoint_armed; /* read-only outside failpoint.c */

/* Reads STOKER_FAILPOINTS again and resets the counts. Runs once automatically before main(). */
void stk_failpoint_reload(void);
int stk_failpoint_pass(const char *name); /* use the macros */
int stk_failpoint_pass_at(const char *name, const char *file, int line);

#define STK_FAILPOINT_ERR(name)                                                                    \
    (__builtin_expect(stk_failpoint_armed, 0) ? stk_failpoint_pass(name) : 0)
#define STK_FAILPOINT(name) ((void)STK_FAILPOINT_ERR(name))
/* For a name used at many places; "name/file.c/LINE:N:action" arms one place only. */
#define STK_FAILPOINT_AT(name)                                                                     \
    (__builtin_expect(stk_failpoint_armed, 0) ? stk_failpoint_pass_at(name, __FILE__, __LINE__) : 0)
/* True if this point is armed with `hold` and the file $STOKER_FAILPOINT_HOLD exists. The caller
 * then waits a moment and calls again. The first time, this creates the file
 * "$STOKER_FAILPOINT_HOLD.reached", so that the test knows that the point was reached. Counts no
 * pass. */
bool stk_failpoint_is_held(const char *name);
#define STK_FAILPOINT_IS_HELD(name)                                                                \
    (__builtin_expect(stk_failpoint_armed, 0) && stk_failpoint_is_held(name))

#endif
