/* Follows a run of another machine, for `stoker logs --stack`. Private to the cli room. */
#ifndef STK_CLI_FOLLOW_H
#define STK_CLI_FOLLOW_H

#include "cli/cli_read.h"
#include "show/logs.h"

typedef struct stk_cli_follow stk_cli_follow;

/* Attaches to the attempts that run now, waits until what they have printed so far is here, and
 * sets the hooks of `logs`. What can't be followed is told on stderr, once. */
int stk_cli_follow_open(const stk_cli *cli, const stk_cli_read *read, stk_logs *logs,
                        stk_cli_follow **ret, stk_err *err);
void stk_cli_follow_close(stk_cli_follow *f); /* NULL is fine */

#endif
