/* A set of devices of one host. A device's number is its index in the list from the accel room. */
#ifndef STK_BASE_DEVSET_H
#define STK_BASE_DEVSET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"

enum { STK_DEVSET_WORDS = STK_LIMIT_DEVICES / 64 };

typedef struct stk_devset {
    uint64_t words[STK_DEVSET_WORDS];
} stk_devset;

static inline bool stk_devset_has(const stk_devset *set, uint32_t i)
{
    return i < STK_LIMIT_DEVICES && (set->words[i / 64] >> (i % 64) & 1) != 0;
}

static inline void stk_devset_add(stk_devset *set, uint32_t i)
{
    set->words[i / 64] |= (uint64_t)1 << (i % 64);
}

static inline void stk_devset_remove(stk_devset *set, uint32_t i)
{
    set->words[i / 64] &= ~((uint64_t)1 << (i % 64));
}

static inline uint32_t stk_devset_count(const stk_devset *set)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < STK_DEVSET_WORDS; i++) {
        n += (uint32_t)__builtin_popcountll(set->words[i]);
    }
    return n;
}

#endif
