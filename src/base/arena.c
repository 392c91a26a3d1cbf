#include "base/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/err.h"

enum { BLOCK_MIN = 16 * 1024, BLOCK_MAX = 4 * 1024 * 1024, ALIGN = 16 };

typedef struct block {
    struct block *next;
    size_t size;
    size_t used;
    size_t pad; /* keeps data[] aligned to 16 */
    char data[];
} block;

struct stk_arena {
    block *head; /* the current block; older ones follow */
    size_t limit;
    size_t total; /* bytes in all blocks */
    size_t next_size;
};

stk_arena *stk_arena_new(size_t limit_bytes)
{
    stk_arena *arena = calloc(1, sizeof *arena);
    if (arena != NULL) {
        arena->limit = limit_bytes == 0 ? SIZE_MAX : limit_bytes;
        arena->next_size = BLOCK_MIN;
    }
    return arena;
}

static void free_blocks(block *b)
{
    while (b != NULL) {
        block *next = b->next;
        free(b);
        b = next;
    }
}

void stk_arena_free(stk_arena *arena)
{
    if (arena != NULL) {
        free_blocks(arena->head);
        free(arena);
    }
}

void stk_arena_reset(stk_arena *arena)
{
    if (arena->head != NULL) {
        free_blocks(arena->head->next);
        arena->head->next = NULL;
        arena->head->used = 0;
        arena->total = arena->head->size;
    }
}

static int add_block(stk_arena *arena, size_t need)
{
    size_t size = MAX(arena->next_size, need);
    if (size > arena->limit - arena->total) {
        size = need;
    }
    if (need > arena->limit - arena->total) {
        return -1;
    }
    block *b = malloc(sizeof *b + size);
    if (b == NULL) {
        return -1;
    }
    *b = (block){.next = arena->head, .size = size};
    arena->head = b;
    arena->total += size;
    if (arena->next_size < BLOCK_MAX) {
        arena->next_size *= 2;
    }
    return 0;
}

/* Does not zero memory: most of a block is never handed out, and texts are overwritten at once. */
static void *take_bytes(stk_arena *arena, size_t bytes)
{
    if (arena == NULL || bytes > SIZE_MAX / 2) {
        return NULL;
    }
    bytes = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (bytes == 0) {
        bytes = ALIGN;
    }
    block *b = arena->head;
    if (b == NULL || b->size - b->used < bytes) {
        if (add_block(arena, bytes) < 0) {
            return NULL;
        }
        b = arena->head;
    }
    void *p = b->data + b->used;
    b->used += bytes;
    return p;
}

void *stk_arena_alloc(stk_arena *arena, size_t bytes)
{
    void *p = take_bytes(arena, bytes);
    if (p != NULL) {
        memset(p, 0, bytes);
    }
    return p;
}

void *stk_arena_array(stk_arena *arena, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) {
        return NULL;
    }
    return stk_arena_alloc(arena, bytes);
}

void *stk_arena_grow(stk_arena *arena, void *items, uint32_t n, size_t size, uint32_t *cap)
{
    if (n < *cap) {
        return items;
    }
    uint32_t more = n < 16 ? 32 : n * 2;
    void *bigger = NULL;
    if (more > n) {
        bigger = stk_arena_array(arena, more, size);
    }
    if (bigger != NULL) {
        if (n > 0) {
            memcpy(bigger, items, n * size);
        }
        *cap = more;
    }
    return bigger;
}

int stk_array_reserve(void *array, uint32_t *cap, uint64_t n, size_t size)
{
    uint64_t wanted = *cap + (uint64_t)*cap / 2 + 16;
    void *items;
    if (n <= *cap) {
        return 0;
    }
    wanted = MAX(wanted, n);
    if (wanted >= UINT32_MAX) {
        return STK_E_NOMEM;
    }
    memcpy(&items, array, sizeof items);
    items = reallocarray(items, wanted, size);
    if (items == NULL) {
        return STK_E_NOMEM;
    }
    memcpy(array, &items, sizeof items);
    *cap = (uint32_t)wanted;
    return 0;
}

char *stk_arena_dupn(stk_arena *arena, const char *text, size_t n)
{
    char *copy = take_bytes(arena, n + 1);
    if (copy != NULL) {
        memcpy(copy, text, n);
        copy[n] = '\0';
    }
    return copy;
}

char *stk_arena_dup(stk_arena *arena, const char *text)
{
    if (text == NULL) {
        return NULL;
    }
    return stk_arena_dupn(arena, text, strlen(text));
}

char *stk_arena_printf(stk_arena *arena, const char *fmt, ...)
{
    char most[512]; /* fits nearly all texts, so that they need formatting only once */
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(most, sizeof most, fmt, ap);
    va_end(ap);
    if (n < 0) {
        return NULL;
    }
    if ((size_t)n < sizeof most) {
        return stk_arena_dupn(arena, most, (size_t)n);
    }
    char *text = take_bytes(arena, (size_t)n + 1);
    if (text != NULL) {
        va_start(ap, fmt);
        (void)vsnprintf(text, (size_t)n + 1, fmt, ap);
        va_end(ap);
    }
    return text;
}
