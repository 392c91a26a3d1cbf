/* A run that a user watches on the terminal or through a front end. Private to the cli room. */
#ifndef STK_CLI_WATCH_H
#define STK_CLI_WATCH_H

#include "cli/cli_early.h"
#include "cli/cli_run.h"
#include "show/eta.h"
#include "show/prints.h"
#include "show/show_progress.h"

typedef struct stk_cli_watcher {
    const stk_cli *cli;
    const stk_cli_run *how;
    stk_run *run; /* NULL: not open */
    stk_progress *progress;
    stk_eta *eta;       /* NULL: nobody sees it */
    stk_writer *writer; /* to our stdout and stderr, from stk_run_open to the run's end */
    FILE *stderr_out;   /* stderr through the writer */
    stk_prints *prints; /* or NULL */
    bool is_erased;     /* the live lines, to make room for prints */
    bool is_over;       /* from stk_cli_watch_end on what is told goes straight to stderr */
    stk_cli_early early;
} stk_cli_watcher;

/* The functions that the run calls. */
stk_run_calls stk_cli_watch_calls(stk_cli_watcher *watcher);
/* Prints what is left, and waits for a slow terminal until a signal comes. Afterwards the caller
 * prints itself. */
void stk_cli_watch_end(stk_cli_watcher *watcher, int signal_fd);
void stk_cli_watch_free(stk_cli_watcher *watcher);

#endif
