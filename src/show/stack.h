/* stack: the stacks of stoker.yaml, for people and programs. */
#ifndef STK_SHOW_STACK_H
#define STK_SHOW_STACK_H

#include "base/buf.h"
#include "image/stack/stack.h"

void stk_show_stack_text(const stk_stack *stack, stk_buf *out);
/* Adds an object: a whole document, or an item of a list that is open. */
void stk_show_stack_json(const stk_stack *stack, stk_buf *out);
/* One line per stack, in columns. */
void stk_show_stack_lines(const stk_stack *stacks, uint32_t n, stk_buf *out);

#endif
