/* Private to cli: `stoker stack`. */
#ifndef STK_CLI_STACK_H
#define STK_CLI_STACK_H

#include "cli/cli.h"
#include "remote/remote.h"
#include "stack/stack.h"

/* Tries a stack and prints what was found; the exit status. */
int stk_cli_stack_check(stk_cli *cli, const stk_stack *stack, stk_arena *arena);

/* Called with each finding; `text` is borrowed, and may be NULL where there was no memory. */
typedef void (*stk_cli_finding)(void *arg, bool is_good, const char *text);
void stk_cli_stack_check_elsewhere(const stk_stack *stack, stk_arena *arena, stk_cli_finding say,
                                   void *arg);
/* What the driver of a stack is opened with; `options` NULL: the stack's. */
void stk_cli_driver_config(const stk_stack *stack, const char *options, const char *run,
                           stk_driver_config *ret);

#endif
