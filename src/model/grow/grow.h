/* grow: decides which tasks follow a finished one, in a document whose graph grows while it runs
 * (docs/decisions/0009).
 *
 * Pure: no files, no clock. The caller commits what stk_grow_begin and stk_grow_done return as
 * TASK_ADDED events, and folds these with stk_grow_add. On replay the same calls in the same order
 * give the same state, so the log has what stk_grow_done returned as the TASK_ADDED events that
 * follow. Nothing recurses. stk_grow_done costs O(1) plus its result; a join also costs its number
 * of inputs. */
#ifndef STK_GROW_H
#define STK_GROW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "model/spec/spec.h"

typedef struct stk_grow stk_grow;

#define STK_GROW_NONE UINT32_MAX

/* n tasks of one step, numbered from `first` on. */
typedef struct stk_grow_adding {
    uint32_t first, n;
    uint32_t i_step;
    const uint32_t *parents; /* the preceding task; for a join all its inputs, by branch */
    uint32_t n_parents;      /* 0: the run's first task */
    uint32_t split;          /* task that opened their innermost open frame; or STK_GROW_NONE */
    uint32_t branch;         /* of the first task; the others' numbers follow */
    uint32_t ranks;          /* of each task, from num_parallel; 0: no gang */
} stk_grow_adding;

/* The successors that a finished task chose. */
typedef struct stk_grow_next {
    const uint32_t *steps; /* chosen steps, in the document's order of `next` */
    uint32_t n_steps;      /* 0: all that the document lists; a switch needs one */
    uint32_t
        n; /* FOREACH: items; PARALLEL: ranks, 0: as many as the document gives; else ignored */
} stk_grow_next;

typedef struct stk_grow_task {
    uint32_t i_step;
    const uint32_t *parents; /* shared by tasks that were added together */
    uint32_t n_parents;
    uint32_t split, branch; /* innermost open frame; or STK_GROW_NONE */
    uint32_t ranks;
    uint32_t width; /* branches of the frame that it opened; 1 for num_parallel, since a gang is one
                       task with `ranks`; 0: it opened none (yet) */
} stk_grow_task;

/* Borrows `spec`, which must be one that grows. Errors: STK_E_NOMEM. */
int stk_grow_new(const stk_spec *spec, stk_grow **ret_grow, stk_err *err);
void stk_grow_free(stk_grow *grow); /* NULL is fine */

/* Returns the run's first task. */
void stk_grow_begin(const stk_grow *grow, stk_grow_adding *ret);
/* Adds tasks. STK_E_PROTOCOL: `first` isn't the next number, or another number is impossible;
 * STK_E_LIMIT: STK_LIMIT_TASKS. On error nothing changes. */
int stk_grow_add(stk_grow *grow, const stk_grow_adding *adding, stk_err *err);
/* `task` is done (succeeded or cached) with the choice `next`. *ret_adding: the tasks to add now,
 * in `arena`, numbered as if added in this order. On error nothing changes. STK_E_USAGE, a sentence
 * for the user without the step's name: `next` isn't what the document declares, zero items,
 * branches that end in different joins; STK_E_LIMIT; STK_E_NOMEM. */
int stk_grow_done(stk_grow *grow, uint32_t task, const stk_grow_next *next, stk_arena *arena,
                  stk_grow_adding **ret_adding, uint32_t *ret_n, stk_err *err);
/* Checks whether stk_grow_done would fail, without an effect. Call before success is recorded. */
int stk_grow_check(const stk_grow *grow, uint32_t task, const stk_grow_next *next, stk_err *err);

uint32_t stk_grow_n_tasks(const stk_grow *grow);
stk_grow_task stk_grow_get(const stk_grow *grow, uint32_t task);

/* The index in `next` of a switch's case for a value (text as in `cases`), or -1. */
int64_t stk_grow_case(const stk_spec *spec, uint32_t i_step, const char *value);
/* STK_E_USAGE for a value that has no case. */
int stk_grow_refuse_case(const stk_spec *spec, uint32_t i_step, const char *value, stk_err *err);
/* Converts step names, which a result lists in any order, to stk_grow_next.steps (n_names of them),
 * in `arena`. STK_E_USAGE: a name isn't in the step's `next`, or is duplicated. */
int stk_grow_read_next(const stk_spec *spec, uint32_t i_step, const char *const *names,
                       uint32_t n_names, stk_arena *arena, const uint32_t **ret_steps,
                       stk_err *err);

#endif
