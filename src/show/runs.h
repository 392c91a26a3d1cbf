/* Runs with their parameters and metrics, to be listed, filtered and sorted. A metric is a number,
 * a word or a truth value that was logged as metadata or returned by a step, if it is small. */
#ifndef STK_SHOW_RUNS_H
#define STK_SHOW_RUNS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "show/cost.h"
#include "store/store.h"

enum { STK_RUN_SHAPE = 20 }; /* points of the curve of a metric */

typedef struct stk_run_value {
    const char *name;  /* "lr", "train.accuracy"; "train" of a step's only, unnamed output */
    const char *title; /* what people read and may type for the name: "fit[lr=0.1].accuracy" */
    const char *text;  /* for people */
    const char *json;  /* NULL: a column */
    double number;
    double min, max;              /* with has_range */
    uint8_t shape[STK_RUN_SHAPE]; /* its curve, thinned; 0 is `min` and 255 is `max` */
    uint8_t n_shape;              /* 0: it has none */
    bool is_earlier;              /* of a cached step: logged in the run that made its result */
    bool has_range;               /* logged over time, and read with `ranges` */
    bool is_number;
    bool is_parameter;
} stk_run_value;

typedef struct stk_run_values {
    const stk_run_row *row;
    const stk_run_value *items;
    uint32_t n;
    double cost; /* of all its tasks so far; -1: unknown */
} stk_run_values;

/* Reads n runs of the store (NULL: without values); a run that has gone meanwhile has no values.
 * `cost` NULL: without their cost. */
int stk_runs_read(stk_store *store, const stk_cost *cost, const stk_run_row *rows, uint32_t n,
                  stk_arena *arena, stk_run_values **ret, stk_err *err);
/* The same with the least and the greatest value of each metric, unless its file is large. */
int stk_runs_read_ranges(stk_store *store, const stk_cost *cost, const stk_run_row *rows,
                         uint32_t n, stk_arena *arena, stk_run_values **ret, stk_err *err);
/* Whether some run has a cost. */
bool stk_runs_have_cost(const stk_run_values *runs, uint32_t n);
/* The value of this name or title: a parameter, a metric ("accuracy" finds "train.accuracy" if the
 * run has only one of that name), or a column (run, name, pipeline, status, created in ms, duration
 * in s, cost). Returns false if the run has none. */
bool stk_runs_get(const stk_run_values *run, const char *name, stk_run_value *ret);
/* Keeps the runs for which `where` holds: NAME then = != < <= > >= then VALUE; numbers and
 * durations ("duration>10m") compare as numbers. A run without the value doesn't match. Returns
 * STK_E_USAGE if it can't be read, or if no run has NAME. */
int stk_runs_where(stk_run_values *runs, uint32_t *n, const char *where, stk_err *err);
/* Sorts by NAME, or by "-NAME" the largest first; runs without it come last. STK_E_USAGE if no run
 * has it. */
int stk_runs_sort(stk_run_values *runs, uint32_t n, const char *by, stk_err *err);

#endif
