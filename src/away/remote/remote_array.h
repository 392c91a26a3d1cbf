/* remote_array: many attempts of one step as one job of the engine. A list in the share, written
 * before the array is submitted, says whose attempt each child is (remote_order.h). The array's
 * name has the list's digest, so that it is looked for by its name like any other job. */
#ifndef STK_REMOTE_ARRAY_H
#define STK_REMOTE_ARRAY_H

#include "away/share/share.h"
#include "base/arena.h"
#include "base/map.h"

typedef struct stk_remote_array {
    const char *name; /* "s-<run>-<step>-array-<which>" */
    const char *key;  /* of its list in the share */
    const char *text; /* the list */
} stk_remote_array;

/* The array of the attempts with these keys; `job` is the name of one of them. Texts are in the
 * arena. */
int stk_remote_array_make(const char *run, const char *job, const char *const *keys, uint32_t n,
                          stk_arena *arena, stk_remote_array *ret, stk_err *err);
/* For `plan --manifest`: with words instead of the digest, and no list. */
int stk_remote_array_preview(const char *run, const char *job, stk_arena *arena,
                             stk_remote_array *ret, stk_err *err);
/* Puts the list into the share. */
int stk_remote_array_put(stk_share *share, const stk_remote_array *array, stk_err *err);

/* A child of an array, from a list in the share. More lists may name the same attempt. */
typedef struct stk_remote_child {
    const struct stk_remote_child *next;
    const char *array; /* the array's name */
    uint32_t index;
} stk_remote_child;

/* Reads all lists of the run: `children` gets a pointer to a stk_remote_child for each attempt's
 * key. */
int stk_remote_arrays_read(stk_share *share, const char *run, stk_arena *arena, stk_map *children,
                           stk_err *err);

#endif
