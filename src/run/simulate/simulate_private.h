/* Private to simulate: its tables and its state. */
#ifndef STK_SIMULATE_PRIVATE_H
#define STK_SIMULATE_PRIVATE_H

#include "run/simulate/simulate.h"

/* A CSV or JSON file as rows with named columns. Cells are text as in the file; NULL: empty. */
typedef struct stk_table {
    const char *path;
    const char *const *columns; /* the caller's, NULL-terminated */
    uint32_t n_columns, n_rows;
    const char **cells; /* n_rows × n_columns */
    int *lines;         /* of each row, for messages */
} stk_table;

/* Reads a table into `arena`. STK_E_USAGE: an unknown column, with a did-you-mean, or no table. */
int stk_table_load(const char *path, const char *const *columns, stk_arena *arena, stk_table *ret,
                   stk_err *err);
const char *stk_table_cell(const stk_table *table, uint32_t row, uint32_t column);
/* Reads a number in [min, max] from a cell. An empty cell doesn't change *ret. */
int stk_table_number(const stk_table *table, uint32_t row, uint32_t column, double min, double max,
                     double *ret, stk_err *err);
int stk_table_memory(const stk_table *table, uint32_t row, uint32_t column, int64_t *ret_bytes,
                     stk_err *err);

/* Our own random generator: a seed gives the same numbers on every machine. */
uint64_t stk_sim_random(uint64_t *state);
double stk_sim_uniform(uint64_t *state); /* (0, 1] */

enum { NONE = UINT32_MAX }; /* no node, no job */

/* Jobs with equal requests. */
typedef struct stk_sim_kind {
    const stk_sim_job *like;
    stk_pack_ask *asks;   /* by machine: `wanted` differs */
    uint32_t first, last; /* waiting jobs, oldest first; NONE */
    uint32_t n_passed;    /* jobs that were placed while `first` was first */
    bool possible;        /* such a job fits on some empty node */
    uint64_t tried;       /* the pass in which `first` did not fit */
} stk_sim_kind;

typedef struct stk_sim_node {
    uint32_t machine;
    stk_pack_host host;
    int64_t cpu_milli, memory_bytes; /* free; -1: no limit */
} stk_sim_node;

typedef struct stk_sim_placed {
    double end_s;
    uint32_t node, job;
    stk_devset devices;
} stk_sim_placed;

typedef struct stk_simulation {
    const stk_cluster *cluster;
    const stk_workload *workload;
    stk_pack_config pack;
    stk_arena *arena;
    stk_sim_node *nodes;
    stk_pack_device *devices;
    stk_sim_kind *kinds;
    uint32_t n_kinds;
    uint32_t *kind_of;    /* of each job */
    uint32_t *next;       /* of each waiting job in its stk_sim_kind */
    stk_sim_placed *ends; /* heap by end_s */
    uint32_t n_ends;
    double *waits;
    uint32_t n_placed;
    double in_use; /* devices and parts */
    uint64_t pass;
    double decide_s;
} stk_simulation;

/* --- simulate_place.c --- */

/* The node that the policy prefers for a job of this kind, or NONE. */
uint32_t stk_sim_choose_node(stk_simulation *s, const stk_sim_kind *k);
/* Gives the devices to the job, or, if `back`, takes them back. */
void stk_sim_give(stk_sim_node *n, const stk_sim_job *job, const stk_pack_ask *ask,
                  const stk_devset *set, bool back);
/* The share as a part of a device; 1 for a whole one. */
double stk_sim_part(const stk_pack_device *d, int32_t share_mib);

#endif
