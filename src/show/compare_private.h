/* Shared by the files that compare runs. */
#ifndef STK_SHOW_COMPARE_PRIVATE_H
#define STK_SHOW_COMPARE_PRIVATE_H

#include "base/map.h"
#include "show/compare.h"
#include "store/metrics/metrics.h"

typedef enum {
    STK_PART_RUN,
    STK_PART_PARAMETERS,
    STK_PART_METRICS,
    STK_PART_STEPS,
    STK_PART_WHY,
    STK_PART_CODE,
    STK_PART_ENVIRONMENT,
    STK_PART_INPUTS,
    STK_PART_OUTPUTS,
    STK_PART_RESOURCES,
    STK_PART_N
} stk_compare_part_id;

/* One value of one run; text NULL: the run has none. */
typedef struct stk_compare_cell {
    const char *text; /* for people */
    const char *json;
    const char *status; /* of a step: it gives the colour; else NULL */
    double number;
    bool is_number;
    bool is_private; /* its text becomes "value 1", by which only differences are seen */
    bool has_spread; /* of a metric over time */
    double min, max;
} stk_compare_cell;

typedef struct stk_compare_row {
    const char *name;
    stk_compare_cell *cells; /* one a run */
    bool differs;
    bool is_told; /* shown whether it differs or not, as how long a step took */
    bool less_is_better, has_goal;
} stk_compare_row;

typedef struct stk_compare_part {
    const char *key;   /* "parameters": in JSON */
    const char *title; /* "Parameters" */
    stk_compare_row *rows;
    uint32_t n, cap;
    stk_map by_name;
} stk_compare_part;

/* A metric of one run over time, thinned to look at. */
typedef struct stk_compare_curve {
    uint32_t row, run; /* row of the part of metrics */
    const stk_metric_point *points;
    uint32_t n;
} stk_compare_curve;

/* What a step is made of, as text: its command or its code; or a module that steps use. */
typedef struct stk_compare_source {
    const char *name;
    const char **texts; /* one a run; NULL: none */
} stk_compare_source;

struct stk_compare {
    const stk_compare_ask *ask;
    stk_arena *arena;
    stk_compare_part parts[STK_PART_N];
    stk_compare_curve *curves;
    uint32_t n_curves, cap_curves;
    stk_compare_source *sources;
    uint32_t n_sources, cap_sources;
    stk_map source_by_name;
    uint32_t best;     /* UINT32_MAX: none */
    uint32_t best_row; /* row of the part of metrics that pictures are about; UINT32_MAX: none */
    uint32_t *order;   /* runs, the best first, else as given */
    uint32_t *rank;    /* of each run in `order`: it gives the run's colour */
};

/* The cell of a run in the row of this name, which is added; NULL: no memory. */
stk_compare_cell *stk_compare_at(stk_compare *c, stk_compare_part_id part, const char *name,
                                 uint32_t i_run);
/* Sets that cell; text NULL: leaves it. All are copied. */
int stk_compare_set(stk_compare *c, stk_compare_part_id part, const char *name, uint32_t i_run,
                    const char *text, const char *json);
int stk_compare_set_number(stk_compare *c, stk_compare_part_id part, const char *name,
                           uint32_t i_run, double number, const char *text);
/* Whether run `k` changed a source of run 0. *ret_as: the first source with the same texts, as of a
 * step that is called twice; NULL: none before it. */
bool stk_compare_tells(const stk_compare *c, uint32_t i_source, uint32_t k, const char **ret_as);
const stk_compare_row *stk_compare_metric(const stk_compare *c); /* best_row, or NULL */
/* Rows to show of a part. */
uint32_t stk_compare_n_shown(const stk_compare *c, const stk_compare_part *part);
static inline bool stk_compare_shows(const stk_compare *c, const stk_compare_row *row)
{
    return row->differs || row->is_told || c->ask->all;
}
/* "+12 %" from the first to the second number; NULL: not told by a percentage. */
const char *stk_compare_change(const stk_compare_cell *from, const stk_compare_cell *to, char *buf,
                               size_t size);

/* --- compare_gather.c: what happened in a run --- */

int stk_compare_gather(stk_compare *c, uint32_t i_run, stk_err *err);

/* --- compare_best.c --- */

int stk_compare_find_best(stk_compare *c, stk_err *err);

#endif
