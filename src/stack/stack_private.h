/* Private to stack. */
#ifndef STK_STACK_PRIVATE_H
#define STK_STACK_PRIVATE_H

#include "stack/stack.h"

/* Of a backend's name; -1: none. */
int stk_stack_kind(const char *word);

#endif
