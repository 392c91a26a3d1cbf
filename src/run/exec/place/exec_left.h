/* What goes on elsewhere when an engine ends. */
#ifndef STK_EXEC_LEFT_H
#define STK_EXEC_LEFT_H

#include <stdint.h>

/* Tasks on other machines that go on without an engine: how many, and the first. */
typedef struct exec_left {
    uint32_t n_left, first_left;         /* tasks elsewhere that go on without this engine */
    uint32_t n_unborn, first_unborn;     /* … that had no job yet, and get none */
    uint32_t n_attached, first_attached; /* … that did without an earlier one */
} exec_left;

#endif
