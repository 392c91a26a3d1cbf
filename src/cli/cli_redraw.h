/* A picture that is redrawn. Private to the cli room. */
#ifndef STK_CLI_REDRAW_H
#define STK_CLI_REDRAW_H

#include "base/buf.h"
#include "cli/cli.h"

/* `draw` appends the whole picture, at most `rows` lines of it (0: no limit); < 0 ends the loop
 * with its error. On a terminal each picture replaces the last one until q, Ctrl-C or Ctrl-D, and
 * then the screen's earlier contents come back. Elsewhere the pictures follow each other. `n_times`
 * 0: without end. */
typedef int (*stk_cli_draw)(void *arg, int rows, stk_buf *out, stk_err *err);
int stk_cli_redraw(const stk_cli *cli, int64_t period_ms, int64_t n_times, stk_cli_draw draw,
                   void *arg, stk_err *err);

#endif
