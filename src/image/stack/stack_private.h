/* Private to stack. */
#ifndef STK_STACK_PRIVATE_H
#define STK_STACK_PRIVATE_H

#include "image/stack/stack.h"

/* The kind of a backend's name; -1: unknown. */
int stk_stack_kind(const char *word);

/* stack_inherit.c. Completes a stack of other machines; `options` holds its file's. STK_E_SPEC: a
 * setting is malformed. */
int stk_stack_inherit(stk_stack *stack, stk_arena *arena, stk_err *err);
/* Lays options (a map, or nothing) over those that the stack inherits. */
int stk_stack_lay_over(const stk_stack *stack, const stk_json *own, stk_arena *arena, stk_json *ret,
                       stk_err *err);

#endif
