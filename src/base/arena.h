/* Arenas: memory by lifetime (process, run, tick, scratch). Everything given out is zeroed, aligned
 * to 16 and freed with the arena. Growth past `limit_bytes` or a failed malloc gives NULL and
 * leaves the arena usable. */
#ifndef STK_BASE_ARENA_H
#define STK_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

typedef struct stk_arena stk_arena;

stk_arena *
stk_arena_new(size_t limit_bytes);      /* 0: no limit but the machine's; NULL when out of memory */
void stk_arena_free(stk_arena *arena);  /* NULL is fine */
void stk_arena_reset(stk_arena *arena); /* forget everything, keep the first block */
size_t stk_arena_used(const stk_arena *arena);

/* An arena that could not be made (NULL) gives NULL. */
void *stk_arena_alloc(stk_arena *arena, size_t bytes);
void *stk_arena_array(stk_arena *arena, size_t n, size_t size); /* NULL on overflow too */
/* Room for one more than `n` items of `size` bytes: `items` itself, or a copy in twice the room.
 * *cap: how many it has room for; 0, and `items` NULL, at first. NULL when out of memory: `items`
 * stays. */
void *stk_arena_grow(stk_arena *arena, void *items, uint32_t n, size_t size, uint32_t *cap);
/* With malloc: room for `n` items of `size` bytes at `array` (a T **), and for half as many again
 * where it moves. 0, or STK_E_NOMEM: all stays. */
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
