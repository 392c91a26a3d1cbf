/* The screen of `stoker top` and `stoker gpus --watch`. Private to the cli room. */
#ifndef STK_CLI_LIVE_H
#define STK_CLI_LIVE_H

#include "cli/cli.h"

/* Shows this host until the user ends it, or `n_times` pictures (0: without end). `processes`:
 * begins with the programs on the devices instead of the steps. */
int stk_cli_live(const stk_cli *cli, bool processes, int64_t period_ms, int64_t n_times,
                 stk_err *err);

#endif
