/* What the files of the simulate room share. */
#ifndef STK_SIMULATE_PRIVATE_H
#define STK_SIMULATE_PRIVATE_H

#include "run/simulate/simulate.h"

/* A file of rows with named columns, CSV or JSON alike. Cells are text as written; NULL: not there.
 */
typedef struct stk_table {
    const char *path;
    const char *const *columns; /* those asked for, NULL-terminated */
    uint32_t n_columns, n_rows;
    const char **cells; /* n_rows × n_columns */
    int *lines;         /* of each row, for messages */
} stk_table;

/* Unknown columns: STK_E_USAGE with a did-you-mean. Everything in `arena`. */
int stk_table_load(const char *path, const char *const *columns, stk_arena *arena, stk_table *ret,
                   stk_err *err);
const char *stk_table_cell(const stk_table *table, uint32_t row, uint32_t column);
/* A number in [min, max] from a cell; an empty one leaves *ret alone. */
int stk_table_number(const stk_table *table, uint32_t row, uint32_t column, double min, double max,
                     double *ret, stk_err *err);
int stk_table_memory(const stk_table *table, uint32_t row, uint32_t column, int64_t *ret_bytes,
                     stk_err *err);

/* A generator of its own, so that a seed means the same everywhere. */
uint64_t stk_sim_random(uint64_t *state);
double stk_sim_uniform(uint64_t *state); /* (0, 1] */

#endif
