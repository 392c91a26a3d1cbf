/* Arenas: memory by lifetime (process, run, tick, scratch). All memory is zeroed, aligned to 16
 * bytes and freed with the arena. When an allocation would exceed `limit_bytes`, or malloc fails,
 * it returns NULL and the arena stays usable. */
#ifndef STK_BASE_ARENA_H
#define STK_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

typedef struct stk_arena stk_arena;

stk_arena *stk_arena_new(size_t limit_bytes); /* 0: no limit; NULL when out of memory */
void stk_arena_free(stk_arena *arena);        /* NULL is fine */
void stk_arena_reset(stk_arena *arena);       /* frees everything but the first block */

/* All of these return NULL when `arena` is NULL. */
void *stk_arena_alloc(stk_arena *arena, size_t bytes);
void *stk_arena_array(stk_arena *arena, size_t n, size_t size); /* NULL on overflow too */
/* Makes room for item n + 1 of `size` bytes each. Returns `items`, or a copy with twice the
 * capacity. *cap is the capacity; start with 0 and `items` NULL. Returns NULL when out of memory;
 * `items` then stays valid. */
void *stk_arena_grow(stk_arena *arena, void *items, uint32_t n, size_t size, uint32_t *cap);
/* For malloc'd arrays: makes room for `n` items of `size` bytes in `array` (a T **). When it must
 * grow, it allocates half as many again. Returns 0, or STK_E_NOMEM and changes nothing. */
int stk_array_reserve(void *array, uint32_t *cap, uint64_t n, size_t size);
char *stk_arena_dup(stk_arena *arena, const char *text); /* NULL in, NULL out */
char *stk_arena_dupn(stk_arena *arena, const char *text, size_t n);
char *stk_arena_printf(stk_arena *arena, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static inline void stk_arena_cleanup(stk_arena **arena)
{
    stk_arena_free(*arena);
}
#define STK_ARENA_AUTO __attribute__((cleanup(stk_arena_cleanup))) stk_arena *

#endif
