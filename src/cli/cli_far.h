/* cli_far: this program for machines that are reached by ssh. */
#ifndef STK_CLI_FAR_H
#define STK_CLI_FAR_H

#include "away/link/link.h"
#include "cli/cli.h"

/* A stk_link_program. */
int stk_cli_far_program(stk_arena *arena, const char **ret_tar, const char **ret_digest,
                        stk_err *err);

#endif
