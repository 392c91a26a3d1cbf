/* Lists in malloc'd memory that grow one item at a time; base/arena.h does the same for arenas. */
#ifndef STK_BASE_GROW_H
#define STK_BASE_GROW_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Makes room for item n + 1 of `size` bytes each. Returns `items`, which may have moved. *cap is
 * the capacity; start with 0 and `items` NULL. Returns NULL when out of memory; `items` then stays
 * valid. */
static inline void *stk_grow(void *items, uint32_t n, size_t size, uint32_t *cap)
{
    uint32_t more = n < 16 ? 32 : n * 2;
    if (n < *cap) {
        return items;
    }
    void *bigger = more > n ? reallocarray(items, more, size) : NULL;
    if (bigger != NULL) {
        *cap = more;
    }
    return bigger;
}

#endif
