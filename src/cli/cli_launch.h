/* The options of `stoker launch`. Private to the cli room. */
#ifndef STK_CLI_LAUNCH_H
#define STK_CLI_LAUNCH_H

#include "cli/cli.h"
#include "host/launch/launch.h"

extern const stk_option stk_cli_launch_table[];
/* Reads them into `c`, and the variables that a gang's leader sets. */
int stk_cli_launch_options(const stk_cli *cli, stk_arena *arena, stk_launch_config *c,
                           stk_err *err);

#endif
