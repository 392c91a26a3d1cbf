/* show_alike: tasks that a reader sees as one: the calls of one function, commands whose names
 * differ only in digits, in a growing run the tasks of one step. */
#ifndef STK_SHOW_ALIKE_H
#define STK_SHOW_ALIKE_H

#include "base/arena.h"
#include "store/view/view.h"

enum { STK_ALIKE_MIN = 8 /* from so many on, they are shown as one */, STK_ALIKE_BINS = 24 };

typedef struct stk_alike_group {
    const char *name;      /* "fit"; of commands "work_#" */
    const uint32_t *tasks; /* failed ones first, else in their order */
    uint32_t first;        /* the one that was added first */
    stk_view_step sum;     /* counts and times */
} stk_alike_group;

typedef struct stk_alike {
    stk_alike_group *groups; /* in the order of their first tasks */
    uint32_t n;
    uint32_t *of; /* by task: its group; UINT32_MAX: it is alone */
} stk_alike;

/* Groups of at least `min` tasks. O(tasks · log tasks). */
int stk_alike_find(const stk_view *view, uint32_t min, stk_arena *arena, stk_alike *ret,
                   stk_err *err);

/* How values lie between the least and the greatest. */
typedef struct stk_alike_spread {
    uint32_t n; /* number of known values; 0: the rest is 0 */
    double min, median, max;
    uint32_t bins[STK_ALIKE_BINS];   /* of equal width, from min to max */
    uint32_t failed[STK_ALIKE_BINS]; /* how many of them are of failed tasks */
} stk_alike_spread;

/* Of the group's tasks that ran and ended. */
typedef struct stk_alike_use {
    stk_alike_spread seconds; /* of the last attempt */
    stk_alike_spread memory;  /* bytes: the highest each */
    double cpu_s;             /* the sum; -1: unknown */
} stk_alike_use;

int stk_alike_measure(const stk_view *view, const stk_alike_group *group, stk_alike_use *ret,
                      stk_err *err);

#endif
