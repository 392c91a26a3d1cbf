/* Lists in memory of malloc's that grow one item at a time; base/arena.h has the same for arenas.
 */
#ifndef STK_BASE_GROW_H
#define STK_BASE_GROW_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Room for one more than `n` items of `size` bytes: `items`, perhaps moved. *cap: how many it has
 * room for; 0, and `items` NULL, at first. NULL when out of memory: `items` stays as it is. */
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
