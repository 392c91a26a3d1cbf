/* Manual pages from the command tables: the text of --help as troff. Private to the cli room. */
#ifndef STK_CLI_MAN_H
#define STK_CLI_MAN_H

#include "cli/cli.h"

/* Prints stoker-COMMAND(1), or stoker(1) if `command` is NULL, to stdout. */
void stk_cli_print_man(const stk_command *command);

#endif
