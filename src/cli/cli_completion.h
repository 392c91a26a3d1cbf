/* Shared by cli_completion*.c. */
#ifndef STK_CLI_COMPLETION_H
#define STK_CLI_COMPLETION_H

#include "cli/cli.h"

/* The words that the first positional may be, by a command's usage: "RUN", commands, or the words
 * that begin its alternatives. Nothing if it is a file. */
void stk_cli_put_words(const char *usage, stk_buf *out);
/* "this that" of "this|that". */
void stk_cli_put_choices(const char *arg, stk_buf *out);
void stk_cli_put_fish(stk_buf *out);

#endif
