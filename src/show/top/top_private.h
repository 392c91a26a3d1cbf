/* Shared by the files of top. */
#ifndef STK_SHOW_TOP_PRIVATE_H
#define STK_SHOW_TOP_PRIVATE_H

#include <sys/param.h>

#include "host/runner/runner_live.h"
#include "show/gpus.h"
#include "show/top/top.h"

enum { STK_TOP_PAST = 1024 };

/* Percent at each look, a ring; -1: unknown. */
typedef struct stk_top_past {
    int16_t use[STK_TOP_PAST], memory[STK_TOP_PAST];
} stk_top_past;

/* The CPU time of an attempt at the previous picture. */
typedef struct stk_top_seen {
    pid_t pid;
    uint64_t start;
    int64_t cpu_us;
} stk_top_seen;

/* One attempt with its usage over all devices; -1: unknown. */
typedef struct stk_top_row {
    const stk_live_task *task;
    double cpus;
    int64_t device_memory;
    char devices[64]; /* "0,1", "-" */
    char user[48];
} stk_top_row;

struct stk_top {
    stk_gpus gpus;
    stk_arena *arena; /* of the picture */
    stk_top_row *rows;
    uint32_t n_rows;
    stk_top_seen *seen;
    uint32_t n_seen;
    int64_t seen_ms;
    stk_top_past *past; /* of the host, then of each device */
    uint32_t past_at, n_past;
    uint64_t busy_ticks, all_ticks; /* of all CPUs at the picture */
    double cpu_percent;             /* since the picture before; -1 unknown */
    int64_t memory_used, memory_bytes;
};

/* The attempt that the process belongs to, or NULL. */
const stk_top_row *stk_top_find(const stk_top *top, pid_t pid);
/* "3", of a slice "3.1": as the user's tools number devices. */
void stk_top_device_number(const stk_top *top, uint32_t i, char *ret, size_t size);
int stk_top_percent(int64_t part, int64_t whole); /* -1 unknown */
/* "step", or "step/12" in a growing run. */
void stk_top_step_name(const stk_live_task *task, char *ret, size_t size);
/* "12.3 GB", "-"; a number by its format, "-" below zero. */
const char *stk_top_memory(int64_t bytes, char *buf, size_t size);
const char *stk_top_measure(double value, const char *format, char *buf, size_t size);

/* --- bars and curves --- */

/* Exactly `columns` columns. */
void stk_top_bar(stk_buf *out, const stk_style *style, int percent, int columns, stk_ink ink);
/* Line `row` (0: the uppermost) of a curve of `height` lines over the last looks, the newest at the
 * right. Known values have at least a dot, so that 0 % differs from unknown. */
void stk_top_curve(stk_buf *out, const stk_style *style, const stk_top *top, const int16_t *values,
                   int columns, int height, int row, stk_ink ink);

/* --- devices --- */

/* Adds host and devices as lines. `room`: at most so many lines; `size` 0: as large as they fit,
 * 1: a line each. Returns the number of lines. */
int stk_top_put_units(const stk_top *top, const stk_style *style, int room, int size, stk_buf *out);

/* --- the table --- */

typedef struct stk_top_line {
    pid_t pid;
    const stk_top_row *row; /* NULL: a program that is no step's */
    const char **texts;     /* by column */
    double *values;         /* by column; text columns sort by their text */
} stk_top_line;

typedef struct stk_top_sort {
    uint32_t column;
    bool is_turned;
} stk_top_sort;

typedef struct stk_top_table {
    bool processes;
    stk_top_line *lines;
    uint32_t n, n_all; /* shown, and without the filter */
} stk_top_table;

/* Lines that have `filter` in a text, in order. All in `arena`. */
int stk_top_table_make(const stk_top *top, bool processes, const char *filter,
                       const stk_top_sort *sort, stk_arena *arena, stk_top_table *ret,
                       stk_err *err);
enum { STK_TOP_BY_TIME = 6 }; /* the column of steps by which they are sorted first */
/* The lines that a table gets beside devices, in `rows` of them. */
static inline int stk_top_table_lines(uint32_t n, int rows)
{
    return MIN(1 + MAX((int)n, 2), MAX(rows / 3, 6));
}
uint32_t stk_top_n_columns(bool processes);
const char *stk_top_column(bool processes, uint32_t i);
/* The head, then lines from `first` on: at most `room` lines in all. */
void stk_top_table_put(const stk_top_table *table, const stk_style *style, const stk_top_sort *sort,
                       uint32_t first, uint32_t chosen, int room, stk_buf *out);

/* --- a log --- */

typedef struct stk_top_log {
    char dir[1024]; /* of the attempt; "": none is shown */
    char title[200];
    bool errors;   /* stderr.log */
    uint32_t back; /* lines above the end */
} stk_top_log;

/* Adds exactly `rows` lines: a head, and the end of the file. */
void stk_top_log_put(stk_top_log *log, bool is_over, const stk_style *style, int rows,
                     stk_buf *out);

#endif
