/* A run that a user watches on the terminal or through a front end. Private to the cli room. */
#ifndef STK_CLI_WATCH_H
#define STK_CLI_WATCH_H

#include "cli/cli_early.h"
#include "cli/cli_run.h"
#include "show/echo.h"
#include "show/show_progress.h"

typedef struct stk_cli_watcher {
    const stk_cli *cli;
    const stk_cli_run *how;
    stk_run *run; /* NULL: not open */
    stk_progress *progress;
    stk_echo *echo; /* or NULL */
    stk_cli_early early;
} stk_cli_watcher;

/* The functions that the run calls. */
stk_run_calls stk_cli_watch_calls(stk_cli_watcher *watcher);

#endif
