/* Failpoints: places where a test can kill this process or make the world fail. Their list, with
 * what each one means, is src/tbl/failpoints.def.
 *
 *     STK_FAILPOINT("store.commit.before");               kill, exit, stop, log
 *     int sys = STK_FAILPOINT_ERR("store.commit.write");  and also: an errno to fail with, else 0
 *
 * STOKER_FAILPOINTS=name:N:action[,name:N:action…] arms them: `name` may be * (every point but
 * those of sys, which are of no moment in a run, counted together), N is the pass on which it
 * happens (from 1), "N+" that one and all later ones. Actions: kill (SIGKILL), exit (_exit(70)),
 * stop (SIGSTOP), log (one line on stderr a pass: how a crash test learns what there is to kill
 * at), enospc, enomem, eio, emfile, eacces, hold (see STK_FAILPOINT_IS_HELD). Passes are counted by
 * process. When the variable is not set a point costs one predictable branch. A wrong value ends
 * the process with status 2: a crash test whose failpoint has another name must not pass.
 */
#ifndef STK_BASE_FAILPOINT_H
#define STK_BASE_FAILPOINT_H

#include <stdbool.h>

extern int stk_failpoint_armed; /* read-only outside failpoint.c */

/* Reads STOKER_FAILPOINTS again and counts from 0; done once before main() by itself. */
void stk_failpoint_reload(void);
int stk_failpoint_pass(const char *name); /* use the macros */
int stk_failpoint_pass_at(const char *name, const char *file, int line);

#define STK_FAILPOINT_ERR(name)                                                                    \
    (__builtin_expect(stk_failpoint_armed, 0) ? stk_failpoint_pass(name) : 0)
#define STK_FAILPOINT(name) ((void)STK_FAILPOINT_ERR(name))
/* One of many places of the same name; "name/file.c/LINE:N:action" arms it at that one alone. */
#define STK_FAILPOINT_AT(name)                                                                     \
    (__builtin_expect(stk_failpoint_armed, 0) ? stk_failpoint_pass_at(name, __FILE__, __LINE__) : 0)
/* Is the action of this point `hold`, and does the file $STOKER_FAILPOINT_HOLD exist? Then the
 * caller waits for a moment and asks again, and the file of that name with ".reached" behind it
 * says that somebody does. Counts no pass. */
bool stk_failpoint_is_held(const char *name);
#define STK_FAILPOINT_IS_HELD(name)                                                                \
    (__builtin_expect(stk_failpoint_armed, 0) && stk_failpoint_is_held(name))

#endif
