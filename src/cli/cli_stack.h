/* Private to cli: `stoker stack`. */
#ifndef STK_CLI_STACK_H
#define STK_CLI_STACK_H

#include "away/remote/remote.h"
#include "cli/cli.h"
#include "image/stack/stack.h"

/* Tries a stack and prints the findings. Returns the exit status. */
int stk_cli_stack_check(const stk_cli *cli, const stk_stack *stack, stk_arena *arena);

/* Receives a finding. `text` is borrowed; NULL: out of memory. */
typedef void (*stk_cli_finding)(void *arg, bool is_good, const char *text);
void stk_cli_stack_check_elsewhere(const stk_stack *stack, stk_arena *arena, stk_cli_finding say,
                                   void *arg);

#endif
