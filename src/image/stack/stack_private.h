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

/* stack_unused.c. Adds to the place's note which of the step's options are other backends' and have
 * no effect here; `backend`: the step's, or a NULL node. */
int stk_stack_note_unused(const stk_json *backend, const char *step, const stk_resources *res,
                          stk_arena *arena, stk_place *place, stk_err *err);

#endif
