/* A comparison for a terminal. */
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "base/units.h"
#include "show/compare_private.h"
#include "show/lines.h"
#include "show/show_private.h"

enum {
    NAME_MIN = 8,
    NAME_MAX_WIDTH = 30,
    CELL_MIN = 16,
    CELL_MAX = 28,
    CHANGE = 12,
    ROWS = 30,
    ID = 22,
    COLUMN_MAX = 16,
    DIFFED = 4,
    COLUMNS = 64
};

typedef struct text_table {
    const stk_compare *c;
    const stk_style *style;
    stk_buf *out;
    int name, cell; /* widths */
    bool has_change;
} text_table;

/* --- side by side --- */

/* "0.41 (0.38 … 2)" */
static const char *with_spread(const stk_compare_cell *cell, char *buf, size_t size)
{
    if (!cell->has_spread || cell->min == cell->max) {
        return stk_text_or(cell->text, "");
    }
    (void)snprintf(buf, size, "%s (%.4g to %.4g)", cell->text, cell->min, cell->max);
    return buf;
}

static void put_side_cell(const text_table *t, const stk_compare_cell *cell)
{
    char buf[96];
    const char *text = with_spread(cell, buf, sizeof buf);
    if (cell->status != NULL && cell->text != NULL) {
        stk_ink ink;
        const char *mark = stk_text_mark(cell->status, t->style->utf8, &ink);
        stk_text_ink(t->out, t->style, ink, mark);
        stk_buf_char(t->out, ' ');
        stk_text_fit(t->out, text, t->cell - 2, true, t->style->utf8);
        stk_buf_text(t->out, "  ");
        return;
    }
    if (*text == '\0') {
        text = stk_text_dash(t->style->utf8);
    }
    stk_text_cell(t->out, t->style, text, t->cell);
}

static void put_side_row(const text_table *t, const stk_compare_row *row)
{
    char change[32];
    const uint32_t n = t->c->ask->n;
    stk_buf_text(t->out, "  ");
    stk_text_cell(t->out, t->style, row->name, t->name);
    for (uint32_t i = 0; i < n; i++) {
        put_side_cell(t, &row->cells[i]);
    }
    if (t->has_change &&
        stk_compare_change(&row->cells[0], &row->cells[1], change, sizeof change) != NULL) {
        stk_text_ink(t->out, t->style, STK_INK_DIM, change);
    }
    stk_text_end_line(t->out);
}

static void put_side_part(const text_table *t, const stk_compare_part *part)
{
    uint32_t shown = stk_compare_n_shown(t->c, part);
    char text[32];
    if (part->n == 0 || (shown == 0 && part == &t->c->parts[STK_PART_WHY])) {
        return;
    }
    stk_text_ink(t->out, t->style, STK_INK_BOLD, part->title);
    if (shown == 0) {
        stk_text_ink(t->out, t->style, STK_INK_DIM, ": the same");
    } else if (shown < part->n) {
        stk_buf_text(t->out, "  ");
        text[0] = '\0';
        (void)snprintf(text, sizeof text, "(%u more are the same)", part->n - shown);
        stk_text_ink(t->out, t->style, STK_INK_DIM, text);
    }
    stk_buf_char(t->out, '\n');
    for (uint32_t i = 0; i < part->n; i++) {
        if (stk_compare_shows(t->c, &part->rows[i])) {
            put_side_row(t, &part->rows[i]);
        }
    }
}

static int width_of_names(const stk_compare *c)
{
    int width = NAME_MIN;
    for (int p = 0; p < STK_PART_N; p++) {
        for (uint32_t i = 0; i < c->parts[p].n; i++) {
            if (stk_compare_shows(c, &c->parts[p].rows[i])) {
                width = MAX(width, stk_text_width(c->parts[p].rows[i].name));
            }
        }
    }
    return MIN(width, NAME_MAX_WIDTH);
}

/* Widths for n runs side by side; false: they don't fit. */
static bool fit_table(text_table *t)
{
    int n = (int)t->c->ask->n;
    t->has_change = n == 2;
    t->name = width_of_names(t->c);
    int room = t->style->columns - 2 - (t->name + 2);
    if (t->has_change) {
        room -= CHANGE;
    }
    t->cell = MIN(room / n - 2, CELL_MAX);
    return t->cell >= CELL_MIN;
}

static void put_side_head(const text_table *t)
{
    stk_buf_text(t->out, "  ");
    stk_text_cell(t->out, t->style, "", t->name);
    for (uint32_t i = 0; i < t->c->ask->n; i++) {
        stk_text_cell(t->out, t->style, t->c->ask->runs[i].row->id, t->cell);
    }
    stk_text_end_line(t->out);
}

/* --- sources --- */

typedef struct text_diff {
    const stk_style *style;
    stk_buf *out;
} text_diff;

static void put_diff_line(void *arg, char sign, const char *text, size_t n)
{
    const text_diff *d = arg;
    stk_ink ink = STK_INK_PLAIN;
    STK_BUF_AUTO line = STK_BUF_INIT(1u << 20);
    if (sign == '@') {
        stk_buf_text(&line, "@@ ");
        ink = STK_INK_DIM;
    } else {
        stk_buf_char(&line, sign);
    }
    STK_BUF_AUTO raw = STK_BUF_INIT(1u << 20);
    stk_buf_add(&raw, text, n);
    stk_text_safe(&line, stk_text_or(raw.data, ""), "");
    stk_buf_text(&line, sign == '@' ? " @@" : "");
    if (sign == '-') {
        ink = STK_INK_BAD;
    } else if (sign == '+') {
        ink = STK_INK_GOOD;
    }
    stk_buf_text(d->out, "  ");
    stk_text_ink(d->out, d->style, ink, stk_text_or(line.data, ""));
    stk_buf_char(d->out, '\n');
}

/* What each further run changed in the first one's. */
static int put_sources(const text_table *t, stk_err *err)
{
    const stk_compare *c = t->c;
    text_diff d = {t->style, t->out};
    for (uint32_t i = 0; i < c->n_sources; i++) {
        const char *const *texts = c->sources[i].texts;
        for (uint32_t k = 1; k < MIN(c->ask->n, DIFFED); k++) {
            const char *as = NULL;
            if (!stk_compare_tells(c, i, k, &as)) {
                continue;
            }
            stk_text_ink(t->out, t->style, STK_INK_BOLD, "Code of ");
            stk_text_safe(t->out, c->sources[i].name, "");
            stk_buf_printf(t->out, ", %s to %s", c->ask->runs[0].row->id, c->ask->runs[k].row->id);
            if (as != NULL) {
                stk_buf_text(t->out, ": as of ");
                stk_text_safe(t->out, as, "");
            }
            stk_buf_char(t->out, '\n');
            if (as != NULL) {
                continue;
            }
            STK_TRY(stk_lines_diff(texts[0], texts[k], put_diff_line, &d, err));
        }
    }
    return 0;
}

/* --- a line a run --- */

typedef struct text_column {
    const stk_compare_row *row;
    int width;
} text_column;

static void add_text_column(const text_table *t, const stk_compare_row *row, text_column *columns,
                            uint32_t *n, int *room)
{
    int width = stk_text_width(row->name);
    for (uint32_t i = 0; i < *n; i++) {
        if (columns[i].row == row) {
            return;
        }
    }
    for (uint32_t i = 0; i < t->c->ask->n; i++) {
        width = MAX(width, stk_text_width(stk_text_or(row->cells[i].text, "")));
    }
    width = MIN(width, COLUMN_MAX);
    if (*n < COLUMNS && *room >= width + 2) {
        *room -= width + 2;
        columns[(*n)++] = (text_column){row, width};
    }
}

static uint32_t choose_columns(const text_table *t, text_column *columns)
{
    static const stk_compare_part_id parts[] = {STK_PART_PARAMETERS, STK_PART_METRICS};
    const stk_compare_row *metric = stk_compare_metric(t->c);
    int room = t->style->columns - 4 - ID - 2;
    uint32_t n = 0;
    if (metric != NULL) {
        add_text_column(t, metric, columns, &n, &room);
    }
    for (size_t p = 0; p < 2; p++) {
        const stk_compare_part *part = &t->c->parts[parts[p]];
        for (uint32_t i = 0; i < part->n; i++) {
            if (part->rows[i].differs) {
                add_text_column(t, &part->rows[i], columns, &n, &room);
            }
        }
    }
    return n;
}

static void put_run_line(const text_table *t, uint32_t i_run, const text_column *columns,
                         uint32_t n)
{
    const stk_compare *c = t->c;
    stk_ink ink;
    const char *mark = stk_text_mark(c->ask->runs[i_run].row->status, t->style->utf8, &ink);
    stk_text_ink(t->out, t->style, ink, mark);
    stk_buf_char(t->out, ' ');
    stk_text_cell(t->out, t->style, c->ask->runs[i_run].row->id, ID);
    for (uint32_t i = 0; i < n; i++) {
        stk_text_cell(t->out, t->style, stk_text_or(columns[i].row->cells[i_run].text, ""),
                      columns[i].width);
    }
    if (i_run == c->best) {
        stk_text_ink(t->out, t->style, STK_INK_GOOD, "best");
    }
    stk_text_end_line(t->out);
}

static void put_lines_of_runs(const text_table *t)
{
    text_column columns[COLUMNS];
    uint32_t n = choose_columns(t, columns), shown = t->c->ask->n;
    stk_buf_text(t->out, "  ");
    stk_text_cell(t->out, t->style, "run", ID);
    for (uint32_t i = 0; i < n; i++) {
        stk_text_cell(t->out, t->style, columns[i].row->name, columns[i].width);
    }
    stk_text_end_line(t->out);
    if (!t->c->ask->all) {
        shown = MIN(shown, ROWS);
    }
    for (uint32_t i = 0; i < shown; i++) {
        put_run_line(t, t->c->order[i], columns, n);
    }
    if (shown < t->c->ask->n) {
        stk_buf_printf(t->out, "  and %u more runs (--all)\n", t->c->ask->n - shown);
    }
}

/* --- all --- */

static void put_best_line(const text_table *t)
{
    const stk_compare *c = t->c;
    const stk_compare_row *row = stk_compare_metric(c);
    if (c->best == UINT32_MAX) {
        return;
    }
    stk_text_ink(t->out, t->style, STK_INK_BOLD, "best");
    stk_buf_printf(t->out, "  %s: ", c->ask->runs[c->best].row->id);
    stk_text_safe(t->out, row->name, "");
    stk_buf_printf(t->out, " %s, the %s\n", row->cells[c->best].text,
                   stk_text_noun(row->less_is_better, "least", "greatest"));
}

int stk_compare_text(const stk_compare *c, const stk_style *style, stk_buf *out, stk_err *err)
{
    text_table t = {.c = c, .style = style, .out = out};
    if (!fit_table(&t)) {
        put_lines_of_runs(&t);
        put_best_line(&t);
        return stk_show_check(out, err);
    }
    put_side_head(&t);
    for (int p = 0; p < STK_PART_N; p++) {
        put_side_part(&t, &c->parts[p]);
    }
    STK_TRY(put_sources(&t, err));
    put_best_line(&t);
    return stk_show_check(out, err);
}
