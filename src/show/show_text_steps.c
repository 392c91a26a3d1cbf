/* The table of a run's steps, in lines that fit a terminal. */
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "base/units.h"
#include "show/show_text_private.h"

void stk_text_put_mark(const line_ctx *c, const char *status)
{
    stk_ink ink;
    const char *text = stk_text_mark(status, c->style->utf8, &ink);
    stk_text_ink(c->out, c->style, ink, text);
}

/* --- the table of steps --- */

enum { C_NAME, C_TIME, C_ASKED, C_GRANTED, C_USED, N_CELLS, MIN_NAME = 12, MIN_AMOUNT = 8 };

/* One line: all cells, or fewer and a remark behind them. */
typedef struct step_row {
    const char *status;
    const char *cells[N_CELLS]; /* NULL: the row ends before this cell */
    const char *remark;
} step_row;

const char *stk_text_took(const line_ctx *c, const stk_view_task *task, stk_arena *arena)
{
    char text[32];
    stk_units_format_duration(stk_show_took_ms(task->started_ms, task->ended_ms, c->now_ms), text,
                              sizeof text);
    if (task->attempt > 1) {
        return stk_arena_printf(arena, "%s (try %u)", text, task->attempt);
    }
    return stk_arena_dup(arena, text);
}

static const char *amounts_text(const line_ctx *c, const stk_view_amounts *amounts,
                                stk_arena *arena)
{
    STK_BUF_AUTO text = STK_BUF_INIT(256);
    stk_text_amounts(&text, amounts, c->style->utf8);
    return stk_arena_dup(arena, text.data);
}

static int read_row(const line_ctx *c, uint32_t i_task, stk_arena *keep, step_row *row)
{
    const stk_view_task *task = stk_view_get_task(c->view, i_task);
    stk_view_details d;
    STK_TRY(stk_show_details(c->view, i_task, c->arena, &d, c->err));
    *row = (step_row){.status = stk_view_status(c->view, task, true)};
    row->cells[C_NAME] = task->title;
    if (task->started_ms > 0 && task->state != STK_TASK_CACHED && task->state != STK_TASK_SKIPPED) {
        row->cells[C_TIME] = stk_text_took(c, task, keep);
        row->cells[C_ASKED] = amounts_text(c, &d.asked, keep);
        row->cells[C_GRANTED] = amounts_text(c, &d.granted, keep);
        row->cells[C_USED] = amounts_text(c, &d.used, keep);
    } else {
        row->cells[C_TIME] = row->status;
        row->remark = NULL;
        if (d.cached_from != NULL) {
            row->remark = stk_arena_printf(keep, "from run %s", d.cached_from);
        } else if (d.because != NULL) {
            row->remark = stk_arena_printf(keep, "because of '%s'", d.because);
        }
    }
    stk_arena_reset(c->arena);
    return 0;
}

/* Makes columns as wide as their cells; if the line gets too long, narrows the widest column. */
static void fit_columns(const stk_style *style, const step_row *rows, uint32_t n, int *widths)
{
    for (uint32_t i = 0; i < n; i++) {
        for (int k = 0; k < N_CELLS && rows[i].cells[k] != NULL; k++) {
            int width = stk_text_width(rows[i].cells[k]);
            widths[k] = MAX(width, widths[k]);
        }
    }
    static const int least[N_CELLS] = {MIN_NAME, MIN_AMOUNT, MIN_AMOUNT, MIN_AMOUNT, MIN_AMOUNT};
    for (;;) {
        int total = 2 + 2 * (N_CELLS - 1), widest = C_ASKED;
        for (int k = 0; k < N_CELLS; k++) {
            total += widths[k];
            if (k != C_TIME && widths[k] > widths[widest]) {
                widest = k;
            }
        }
        if (total <= style->columns || widths[widest] <= least[widest]) {
            return;
        }
        widths[widest]--;
    }
}

static void put_row(const line_ctx *c, const step_row *row, const int *widths)
{
    if (row->status != NULL) {
        stk_text_put_mark(c, row->status);
        stk_buf_char(c->out, ' ');
    } else {
        stk_buf_text(c->out, "  ");
    }
    for (int k = 0; k < N_CELLS && row->cells[k] != NULL; k++) {
        stk_text_cell(c->out, c->style, row->cells[k], widths[k]);
    }
    if (row->remark != NULL) {
        stk_text_ink(c->out, c->style, STK_INK_DIM, row->remark);
    }
    stk_text_end_line(c->out);
}

/* rows[0] is the head; n_rows doesn't count it. */
static void put_table(const line_ctx *c, const step_row *rows, uint32_t n_rows)
{
    STK_BUF_AUTO line = STK_BUF_INIT(4096);
    int widths[N_CELLS] = {0};
    line_ctx head = *c;
    head.out = &line;
    fit_columns(c->style, rows, n_rows + 1, widths);
    put_row(&head, &rows[0], widths);
    line.data[line.len - 1] = '\0'; /* without its newline: the colour must end before it */
    stk_buf_char(c->out, '\n');
    stk_text_ink(c->out, c->style, STK_INK_DIM, line.data);
    stk_buf_char(c->out, '\n');
    for (uint32_t i = 1; i <= n_rows; i++) {
        put_row(c, &rows[i], widths);
    }
}

typedef struct slow {
    uint32_t task;
    int64_t ms;
} slow;

/* Finds the slowest tasks, slowest first, in one pass with a short insertion list. */
static uint32_t find_slowest(const line_ctx *c, slow *ret, uint32_t n_max)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < stk_view_n_tasks(c->view); i++) {
        const stk_view_task *task = stk_view_get_task(c->view, i);
        int64_t ms = stk_show_took_ms(task->started_ms, task->ended_ms, c->now_ms);
        if (task->started_ms == 0 || (n == n_max && ms <= ret[n - 1].ms)) {
            continue;
        }
        n = MIN(n + 1, n_max);
        uint32_t k = n - 1;
        for (; k > 0 && ret[k - 1].ms < ms; k--) {
            ret[k] = ret[k - 1];
        }
        ret[k] = (slow){i, ms};
    }
    return n;
}

static int static_steps(const line_ctx *c)
{
    STK_ARENA_AUTO keep = stk_arena_new(0);
    uint32_t n = stk_view_n_tasks(c->view), n_rows = 0;
    slow picked[MANY];
    step_row rows[MANY + 1] = {{.cells = {"step", "time", "asked", "granted", "used"}}};
    STK_TRY(stk_err_if_null(keep, c->err));
    if (n > MANY) {
        n_rows = find_slowest(c, picked, SLOWEST);
    } else {
        for (; n_rows < n; n_rows++) {
            picked[n_rows] = (slow){n_rows, 0};
        }
    }
    for (uint32_t i = 0; i < n_rows; i++) {
        STK_TRY(read_row(c, picked[i].task, keep, &rows[i + 1]));
    }
    if (n_rows > 0) {
        put_table(c, rows, n_rows);
    }
    return 0;
}

/* --- growing runs --- */

/* "work ×1,000", the time from its first start to its last end, and its tasks by state. */
static void read_wide_row(const line_ctx *c, uint32_t i_step, const stk_view_sums *sums,
                          stk_arena *keep, step_row *row)
{
    const stk_view_step *step = stk_view_get_step(c->view, i_step);
    const char *name = stk_spec_step(stk_view_spec(c->view), i_step)->name;
    char text[32];
    row->cells[C_NAME] = name;
    if (step->n == 0) {
        row->cells[C_TIME] = stk_text_dash(c->style->utf8);
        row->remark = stk_view_is_live(c->view) ? "not reached yet" : "not reached";
        return;
    }
    STK_BUF_AUTO more = STK_BUF_INIT(4096);
    int64_t end_ms = step->by_state[STK_TASK_RUNNING] > 0 ? c->now_ms : step->ended_ms;
    int64_t ms = stk_show_took_ms(step->started_ms, end_ms, 0);
    row->status = stk_state_word(stk_view_worst(step));
    row->cells[C_NAME] = stk_arena_printf(keep, "%s %s%s", name, stk_text_times(c->style->utf8),
                                          stk_text_count(step->n, text, sizeof text));
    row->cells[C_TIME] = stk_text_dash(c->style->utf8);
    if (step->started_ms > 0) {
        row->cells[C_TIME] = stk_arena_dup(keep, stk_units_format_duration(ms, text, sizeof text));
    }
    stk_show_counts(step, &more);
    if (sums->cpu_s >= 0) {
        stk_buf_printf(&more, "%s%s of CPU time", dot(c->style),
                       stk_units_format_duration((int64_t)(sums->cpu_s * 1000), text, sizeof text));
    }
    if (sums->peak_memory_bytes >= 0) {
        stk_buf_printf(&more, ", at most %s each",
                       stk_units_format_memory(sums->peak_memory_bytes, text, sizeof text));
    }
    if (step->n_extra > 0) {
        stk_buf_printf(&more, ", %u %s", step->n_extra,
                       stk_text_noun(step->n_extra, "retry", "retries"));
    }
    row->remark = stk_arena_dup(keep, more.data);
}

static int grown_steps(const line_ctx *c)
{
    STK_ARENA_AUTO keep = stk_arena_new(0);
    uint32_t n = stk_spec_n_steps(stk_view_spec(c->view)), n_rows = MIN(n, MANY);
    step_row rows[MANY + 1] = {{.cells = {"step", "time", "asked", "granted", "used"}}};
    stk_view_sums *sums = NULL;
    STK_TRY(stk_err_if_null(keep, c->err));
    STK_TRY(stk_view_sum_steps(c->view, keep, &sums, c->err));
    for (uint32_t i = 0; i < n_rows; i++) {
        const stk_view_step *step = stk_view_get_step(c->view, i);
        if (step->n == 1) {
            STK_TRY(read_row(c, step->first, keep, &rows[i + 1]));
        } else {
            read_wide_row(c, i, &sums[i], keep, &rows[i + 1]);
        }
    }
    put_table(c, rows, n_rows);
    if (n > n_rows) {
        stk_buf_printf(c->out, "  and %u more steps\n", n - n_rows);
    }
    return 0;
}

int stk_text_steps(const line_ctx *c)
{
    if (stk_view_grows(c->view)) {
        return grown_steps(c);
    }
    return static_steps(c);
}

int stk_text_step(const stk_view *view, uint32_t i_step, int64_t now_ms, const stk_style *style,
                  stk_buf *out, stk_err *err)
{
    enum { SHOWN = 200 };
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_ARENA_AUTO keep = stk_arena_new(0);
    const stk_view_step *step = stk_view_get_step(view, i_step);
    if (step->n == 1) {
        return stk_text_task(view, step->first, now_ms, style, out, err);
    }
    line_ctx c = {view, style, arena, now_ms, out, err};
    stk_view_sums *sums = NULL;
    uint32_t n_rows = 1;
    int widths[N_CELLS] = {0};
    if (arena == NULL || keep == NULL) {
        return stk_err_nomem(err);
    }
    step_row *rows = stk_arena_array(keep, SHOWN + 2, sizeof *rows);
    STK_TRY(stk_err_if_null(rows, err));
    STK_TRY(stk_view_sum_steps(view, keep, &sums, err));
    read_wide_row(&c, i_step, &sums[i_step], keep, &rows[0]);
    /* Failed tasks first: the reader couldn't find them among ten thousand. */
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < stk_view_n_tasks(view) && n_rows <= SHOWN; i++) {
            const stk_view_task *task = stk_view_get_task(view, i);
            bool failed = task->state == STK_TASK_FAILED;
            if (task->i_step == i_step && failed == (pass == 0)) {
                STK_TRY(read_row(&c, i, keep, &rows[n_rows]));
                rows[n_rows++].cells[C_NAME] = stk_view_who(view, i, keep);
            }
        }
    }
    fit_columns(style, rows, n_rows, widths);
    for (uint32_t i = 0; i < n_rows; i++) {
        put_row(&c, &rows[i], widths);
    }
    if (step->n > n_rows - 1) {
        char count[32];
        stk_buf_printf(out, "  and %s more; --json has all\n",
                       stk_text_count(step->n - (n_rows - 1), count, sizeof count));
    }
    return 0;
}

void stk_text_many(const line_ctx *c)
{
    const stk_view_run *run = stk_view_get_run(c->view);
    if (stk_view_n_tasks(c->view) <= MANY || stk_view_grows(c->view)) {
        return;
    }
    stk_buf_text(c->out, "  ");
    const char *sep = "";
    for (int state = 0; state < STK_TASK_N; state++) {
        char count[32];
        if (run->n[state] > 0) {
            stk_buf_printf(c->out, "%s%s %s", sep,
                           stk_text_count(run->n[state], count, sizeof count),
                           stk_state_word((stk_task_state)state));
            sep = ", ";
        }
    }
    if (run->n[STK_TASK_CACHED] < stk_view_n_tasks(c->view)) {
        stk_buf_text(c->out, "; the slowest are above");
    }
    stk_buf_char(c->out, '\n');
}

uint32_t stk_show_n_final(const stk_view_step *step)
{
    uint32_t n = 0;
    for (int state = 0; state < STK_TASK_N; state++) {
        if (stk_state_is_final(state)) {
            n += step->by_state[state];
        }
    }
    return n;
}

void stk_show_counts(const stk_view_step *step, stk_buf *out)
{
    const char *comma = "";
    char count[32];
    for (int state = 0; state < STK_TASK_N; state++) {
        if (step->by_state[state] > 0) {
            stk_buf_printf(out, "%s%s %s", comma,
                           stk_text_count(step->by_state[state], count, sizeof count),
                           stk_state_word((stk_task_state)state));
            comma = ", ";
        }
    }
}

const char *stk_show_checkpoints(const stk_view_details *d, stk_arena *arena)
{
    char size[32] = "size unknown";
    if (d->n_checkpoints == 0) {
        return NULL;
    }
    if (d->checkpoint_bytes >= 0) {
        (void)stk_units_format_memory(d->checkpoint_bytes, size, sizeof size);
    }
    return stk_arena_printf(arena, "%u checkpoint%s (%s)", d->n_checkpoints,
                            stk_text_plural(d->n_checkpoints), size);
}
