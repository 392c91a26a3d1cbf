/* stack: what stoker.yaml says of a place, for people and programs. */
#ifndef STK_SHOW_STACK_H
#define STK_SHOW_STACK_H

#include "base/buf.h"
#include "image/stack/stack.h"

void stk_show_stack_text(const stk_stack *stack, stk_buf *out);
/* An object: a document, or an item of a list that is open. */
void stk_show_stack_json(const stk_stack *stack, stk_buf *out);
/* A line a stack, in columns. */
void stk_show_stack_lines(const stk_stack *stacks, uint32_t n, stk_buf *out);

#endif
