/* Private to stack. */
#ifndef STK_STACK_PRIVATE_H
#define STK_STACK_PRIVATE_H

#include "image/stack/stack.h"

/* Of a backend's name; -1: none. */
int stk_stack_kind(const char *word);

/* stack_inherit.c. Completes a stack of other machines; `options` are those of its file.
 * STK_E_SPEC: a setting that can't be read. */
int stk_stack_inherit(stk_stack *stack, stk_arena *arena, stk_err *err);
/* The options of somebody (a map, or nothing) over what the stack inherits. */
int stk_stack_lay_over(const stk_stack *stack, const stk_json *own, stk_arena *arena, stk_json *ret,
                       stk_err *err);

#endif
