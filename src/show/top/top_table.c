/* The steps that run, or the programs on the devices, as a table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/limits.h"
#include "base/text.h"
#include "base/units.h"
#include "show/top/top_private.h"
#include "sys/clock.h"

enum { COLUMNS_MOST = 11, MARK = 2 };

typedef struct column {
    const char *title;
    int columns, most; /* of the terminal: at least, and if there is room */
    int rank;          /* in a narrow terminal, those of a low rank stay */
    bool is_text;
} column;

enum { S_PID, S_USER, S_PIPELINE, S_RUN, S_STEP, S_TRY, S_TIME, S_CPU, S_MEMORY, S_GPU, S_HELD };
static const column of_steps[] = {
    [S_PID] = {"PID", 7, 7, 9, false},
    [S_USER] = {"USER", 8, 12, 6, true},
    [S_PIPELINE] = {"PIPELINE", 10, 24, 7, true},
    [S_RUN] = {"RUN", 14, 32, 5, true},
    [S_STEP] = {"STEP", 12, 36, 0, true},
    [S_TRY] = {"TRY", 3, 3, 10, false},
    [S_TIME] = {"TIME", 8, 8, 1, false},
    [S_CPU] = {"CPU", 6, 6, 2, false},
    [S_MEMORY] = {"MEMORY", 8, 8, 3, false},
    [S_GPU] = {"GPU", 5, 12, 4, true},
    [S_HELD] = {"GPU MEM", 8, 8, 8, false},
};
enum { P_PID, P_USER, P_GPU, P_HELD, P_PROGRAM, P_RUN, P_STEP, P_N };
static const column of_processes[] = {
    [P_PID] = {"PID", 7, 7, 3, false},          [P_USER] = {"USER", 8, 12, 4, true},
    [P_GPU] = {"GPU", 5, 5, 1, true},           [P_HELD] = {"GPU MEM", 8, 8, 2, false},
    [P_PROGRAM] = {"PROGRAM", 12, 20, 0, true}, [P_RUN] = {"RUN", 14, 32, 6, true},
    [P_STEP] = {"STEP", 12, 36, 5, true},
};

static const column *columns_of(bool processes)
{
    if (processes) {
        return of_processes;
    }
    return of_steps;
}

uint32_t stk_top_n_columns(bool processes)
{
    if (processes) {
        return P_N;
    }
    return sizeof of_steps / sizeof *of_steps;
}

const char *stk_top_column(bool processes, uint32_t i)
{
    return columns_of(processes)[i].title;
}

/* --- making lines --- */

static const char *keep_memory(int64_t bytes, stk_arena *arena)
{
    char text[32];
    return stk_text_or(stk_arena_dup(arena, stk_top_memory(bytes, text, sizeof text)), "-");
}

static const char *keep_measure(double value, const char *format, stk_arena *arena)
{
    char text[32];
    return stk_text_or(stk_arena_dup(arena, stk_top_measure(value, format, text, sizeof text)),
                       "-");
}

static const char *keep_step(const stk_live_task *task, stk_arena *arena)
{
    char step[STK_LIMIT_NAME + 16];
    stk_top_step_name(task, step, sizeof step);
    return stk_text_or(stk_arena_dup(arena, step), "-");
}

static int begin_line(bool processes, stk_arena *arena, stk_top_line *ret, stk_err *err)
{
    uint32_t n = stk_top_n_columns(processes);
    ret->texts = stk_arena_array(arena, n, sizeof *ret->texts);
    ret->values = stk_arena_array(arena, n, sizeof *ret->values);
    return stk_err_if_null(ret->texts == NULL ? NULL : ret->values, err);
}

static int add_step(const stk_top_row *r, int64_t now_ms, stk_arena *arena, stk_top_line *line,
                    stk_err *err)
{
    const stk_live_task *task = r->task;
    int64_t age_ms = -1;
    char age[32] = "-";
    *line = (stk_top_line){.pid = task->pid, .row = r};
    STK_TRY(begin_line(false, arena, line, err));
    if (task->started_ms >= 0 && task->started_ms <= now_ms) {
        age_ms = now_ms - task->started_ms;
        (void)stk_units_format_duration(age_ms, age, sizeof age);
    }
    line->texts[S_PID] = keep_measure(task->pid, "%.0f", arena);
    line->texts[S_USER] = r->user;
    line->texts[S_PIPELINE] = stk_text_or(task->pipeline, "-");
    line->texts[S_RUN] = task->run;
    line->texts[S_STEP] = keep_step(task, arena);
    line->texts[S_TRY] = keep_measure(task->attempt, "%.0f", arena);
    line->texts[S_TIME] = stk_text_or(stk_arena_dup(arena, age), "-");
    line->texts[S_CPU] = keep_measure(r->cpus * 100, "%.0f%%", arena);
    line->texts[S_MEMORY] = keep_memory(task->usage.rss_bytes, arena);
    line->texts[S_GPU] = r->devices;
    line->texts[S_HELD] = keep_memory(r->device_memory, arena);
    line->values[S_PID] = task->pid;
    line->values[S_TRY] = task->attempt;
    line->values[S_TIME] = (double)age_ms;
    line->values[S_CPU] = r->cpus;
    line->values[S_MEMORY] = (double)task->usage.rss_bytes;
    line->values[S_HELD] = (double)r->device_memory;
    return 0;
}

static int add_process(const stk_top *t, uint32_t device, const stk_gpus_process *p,
                       stk_arena *arena, stk_top_line *line, stk_err *err)
{
    char number[24];
    *line = (stk_top_line){.pid = p->on.pid, .row = stk_top_find(t, p->on.pid)};
    STK_TRY(begin_line(true, arena, line, err));
    stk_top_device_number(t, device, number, sizeof number);
    line->texts[P_PID] = keep_measure(p->on.pid, "%.0f", arena);
    line->texts[P_USER] = stk_text_or(p->user, "-");
    line->texts[P_GPU] = stk_text_or(stk_arena_dup(arena, number), "-");
    line->texts[P_HELD] = keep_memory(p->on.memory_bytes, arena);
    line->texts[P_PROGRAM] = stk_text_or(p->name, "-");
    line->texts[P_RUN] = line->texts[P_STEP] = "-";
    if (line->row != NULL) {
        line->texts[P_RUN] = line->row->task->run;
        line->texts[P_STEP] = keep_step(line->row->task, arena);
    }
    line->values[P_PID] = p->on.pid;
    line->values[P_HELD] = (double)p->on.memory_bytes;
    return 0;
}

static bool has_text(const stk_top_line *line, uint32_t n_columns, const char *filter)
{
    for (uint32_t i = 0; i < n_columns; i++) {
        if (strcasestr(line->texts[i], filter) != NULL) {
            return true;
        }
    }
    return *filter == '\0';
}

typedef struct order {
    bool is_text;
    stk_top_sort by;
} order;

static int compare_lines(const void *a, const void *b, void *arg)
{
    const stk_top_line *x = a, *y = b;
    const order *o = arg;
    uint32_t i = o->by.column;
    int result = 0;
    if (o->is_text) {
        result = strverscmp(x->texts[i], y->texts[i]);
    } else { /* the most first */
        result = (x->values[i] < y->values[i]) - (x->values[i] > y->values[i]);
    }
    if (result == 0) {
        return (x->pid > y->pid) - (x->pid < y->pid);
    }
    if (o->by.is_turned) {
        return -result;
    }
    return result;
}

int stk_top_table_make(const stk_top *t, bool processes, const char *filter,
                       const stk_top_sort *sort, stk_arena *arena, stk_top_table *ret, stk_err *err)
{
    int64_t now_ms = stk_clock_wall_ms(&stk_clock_real);
    uint32_t n = t->n_rows, n_columns = stk_top_n_columns(processes);
    order o = {.is_text = columns_of(processes)[sort->column].is_text, .by = *sort};
    for (uint32_t i = 0; processes && i < t->gpus.n; i++) {
        n += (uint32_t)MAX(t->gpus.rows[i].n_processes, 0);
    }
    *ret = (stk_top_table){.processes = processes};
    ret->lines = stk_arena_array(arena, (size_t)n + 1, sizeof *ret->lines);
    STK_TRY(stk_err_if_null(ret->lines, err));
    for (uint32_t i = 0; !processes && i < t->n_rows; i++) {
        STK_TRY(add_step(&t->rows[i], now_ms, arena, &ret->lines[ret->n], err));
        ret->n += has_text(&ret->lines[ret->n], n_columns, filter);
        ret->n_all++;
    }
    for (uint32_t i = 0; processes && i < t->gpus.n; i++) {
        const stk_gpus_row *row = &t->gpus.rows[i];
        for (int k = 0; k < row->n_processes; k++) {
            STK_TRY(add_process(t, i, &row->processes[k], arena, &ret->lines[ret->n], err));
            ret->n += has_text(&ret->lines[ret->n], n_columns, filter);
            ret->n_all++;
        }
    }
    qsort_r(ret->lines, ret->n, sizeof *ret->lines, compare_lines, &o);
    return 0;
}

/* --- showing them --- */

/* The terminal's columns of each column; 0: it isn't shown. */
static void share_columns(const stk_top_table *table, int columns, int *ret)
{
    const column *all = columns_of(table->processes);
    int n = (int)stk_top_n_columns(table->processes), left = columns - MARK + 1;
    memset(ret, 0, (size_t)n * sizeof *ret);
    for (int rank = 0; rank < COLUMNS_MOST; rank++) {
        for (int i = 0; i < n; i++) {
            if (all[i].rank == rank && all[i].columns < left) {
                ret[i] = all[i].columns;
                left -= ret[i] + 1;
            }
        }
    }
    for (int i = 0; i < n; i++) { /* what is longer gets what is left */
        int most = 0;
        for (uint32_t k = 0; k < table->n; k++) {
            most = MAX(most, stk_text_width(table->lines[k].texts[i]));
        }
        int more = MIN(MIN(most, all[i].most) - ret[i], left);
        if (ret[i] > 0 && more > 0) {
            ret[i] += more;
            left -= more;
        }
    }
}

static void put_cell(stk_buf *out, const stk_style *style, const char *text, int columns,
                     bool is_text)
{
    if (!is_text) {
        stk_buf_printf(out, "%*s", MAX(columns - stk_text_width(text), 0), "");
    }
    stk_text_fit(out, text, columns, is_text, style->utf8);
    stk_buf_char(out, ' ');
}

static void put_table_head(const stk_top_table *table, const stk_style *style,
                           const stk_top_sort *sort, const int *columns, stk_buf *out)
{
    STK_BUF_AUTO head = STK_BUF_INIT(1u << 16);
    const column *all = columns_of(table->processes);
    char title[24];
    stk_buf_printf(&head, "%*s", MARK, "");
    for (uint32_t i = 0; i < stk_top_n_columns(table->processes); i++) {
        const char *mark = "";
        if (i == sort->column) {
            bool is_rising = all[i].is_text != sort->is_turned;
            static const char *const marks[2][2] = {{"v", "^"}, {"▾", "▴"}};
            mark = marks[style->utf8][is_rising];
        }
        (void)snprintf(title, sizeof title, "%s%s", all[i].title, mark);
        if (columns[i] > 0) {
            put_cell(&head, style, title, columns[i], all[i].is_text);
        }
    }
    while (head.len > 0 && head.data[head.len - 1] == ' ') {
        head.data[--head.len] = '\0';
    }
    stk_text_ink(out, style, STK_INK_BOLD, stk_text_or(head.data, ""));
    stk_buf_char(out, '\n');
}

void stk_top_table_put(const stk_top_table *table, const stk_style *style, const stk_top_sort *sort,
                       uint32_t first, uint32_t chosen, int room, stk_buf *out)
{
    const column *all = columns_of(table->processes);
    int columns[COLUMNS_MOST];
    share_columns(table, style->columns, columns);
    put_table_head(table, style, sort, columns, out);
    for (uint32_t k = first; k < table->n && room > 1; k++, room--) {
        STK_BUF_AUTO line = STK_BUF_INIT(1u << 20);
        stk_buf_printf(&line, "%-*s", MARK, stk_text_when(k == chosen, ">"));
        for (uint32_t i = 0; i < stk_top_n_columns(table->processes); i++) {
            if (columns[i] > 0) {
                put_cell(&line, style, table->lines[k].texts[i], columns[i], all[i].is_text);
            }
        }
        stk_text_end_line(&line);
        if (line.len > 0) {
            line.data[line.len - 1] = '\0'; /* the ink ends before the line does */
            stk_text_ink(out, style, k == chosen ? STK_INK_BOLD : STK_INK_PLAIN, line.data);
        }
        stk_buf_char(out, '\n');
    }
}
