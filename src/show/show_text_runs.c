/* `stoker runs`: the runs of a store as a table, with as many parameters and metrics as fit. */
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "base/units.h"
#include "show/runs.h"
#include "show/show_text.h"

enum {
    SHOWN = 16,
    VALUE_WIDTH = 16,
    TITLE_WIDTH = 24,
    ID = 22,
    STATUS = 11,
    CREATED = 19,
    COST = 12,
    PIPELINE = 32,       /* at most */
    PIPELINE_SHORT = 16, /* where room is scarce */
    NAME = 24
};

typedef struct table {
    const stk_run_values *runs;
    uint32_t n;
    const char *names[SHOWN]; /* the values' columns */
    int widths[SHOWN];
    uint32_t n_names;
    int pipeline, took;   /* widths */
    int name;             /* width, or 0: no run has a name */
    bool has_created;     /* there is room for it; a run's id has the time, too */
    const char *currency; /* NULL: no run has a cost */
} table;

static const char *short_name(const char *name)
{
    const char *dot = strrchr(name, '.'), *title = strrchr(name, ']');
    if (title != NULL) { /* of several calls of one step: all of it says which */
        return name;
    }
    return dot == NULL ? name : dot + 1;
}

/* Whether the runs differ in it; a value that all have in common says nothing. */
static bool differs(const table *t, const char *name)
{
    stk_run_value first, other;
    bool has = stk_runs_get(&t->runs[0], name, &first);
    for (uint32_t i = 1; i < t->n; i++) {
        if (stk_runs_get(&t->runs[i], name, &other) != has ||
            (has && strcmp(first.text, other.text) != 0)) {
            return true;
        }
    }
    return t->n == 1;
}

static void add_column(table *t, const char *name, int *room)
{
    int width = stk_text_width(short_name(name));
    for (uint32_t k = 0; k < t->n_names; k++) {
        if (strcmp(t->names[k], name) == 0 || strcmp(t->names[k], short_name(name)) == 0) {
            return;
        }
    }
    for (uint32_t i = 0; i < t->n; i++) {
        stk_run_value value;
        if (stk_runs_get(&t->runs[i], name, &value) && value.text != NULL) {
            width = MAX(width, stk_text_width(value.text));
        }
    }
    width = MIN(width, strchr(name, ']') == NULL ? VALUE_WIDTH : TITLE_WIDTH);
    if (t->n_names == SHOWN || *room < width + 2) {
        return;
    }
    *room -= width + 2;
    t->widths[t->n_names] = width;
    t->names[t->n_names++] = name;
}

/* Sets the widths of the columns that each table has; returns what is left. */
static int fit(table *t, const stk_style *style)
{
    int room = style->columns - (2 + ID + 2 + STATUS + 2 + CREATED + 2 + t->took);
    room -= (t->name > 0) * (t->name + 2) + (t->currency != NULL) * (COST + 2);
    t->has_created = room >= MIN(t->pipeline, PIPELINE_SHORT) + 2;
    room += !t->has_created * (CREATED + 2);
    t->pipeline = MIN(t->pipeline, MAX(room - 2, PIPELINE_SHORT));
    return room - t->pipeline - 2;
}

/* Those that the user named, then parameters and metrics in which the runs differ. */
static void choose(table *t, const char *const *named, const stk_style *style)
{
    int room = fit(t, style);
    stk_run_value value;
    for (; *named != NULL; named++) {
        bool is_value = false;
        for (uint32_t i = 0; i < t->n && !is_value; i++) {
            is_value = stk_runs_get(&t->runs[i], *named, &value) && value.json != NULL;
        }
        if (is_value) {
            int wide = VALUE_WIDTH + 2; /* the user wants it, whether it fits or not */
            add_column(t, *named, &wide);
            room -= VALUE_WIDTH + 2 - wide;
        }
    }
    for (int parameters = 1; parameters >= 0; parameters--) {
        for (uint32_t i = 0; i < t->n; i++) {
            for (uint32_t k = 0; k < t->runs[i].n; k++) {
                const stk_run_value *item = &t->runs[i].items[k];
                const char *title = stk_text_or(item->title, item->name);
                if (item->is_parameter == (parameters == 1) && differs(t, title)) {
                    add_column(t, title, &room);
                }
            }
        }
    }
}

static const char *took(const stk_run_row *row, const stk_style *style, char *buf, size_t size)
{
    bool known = row->ended_ms != 0 || strcmp(row->status, "running") == 0;
    int64_t end = row->ended_ms ? row->ended_ms : row->now_ms;
    if (known) {
        return stk_units_format_duration(end - row->created_ms, buf, size);
    }
    return stk_text_dash(style->utf8);
}

static void put_head(const table *t, const stk_style *style, stk_buf *out)
{
    stk_buf_text(out, "  ");
    stk_text_cell(out, style, "run", ID);
    stk_text_cell(out, style, "pipeline", t->pipeline);
    stk_text_cell(out, style, "status", STATUS);
    if (t->has_created) {
        stk_text_cell(out, style, "started", CREATED);
    }
    stk_text_cell(out, style, "time", t->took);
    if (t->currency != NULL) {
        stk_text_cell(out, style, "cost", COST);
    }
    for (uint32_t k = 0; k < t->n_names; k++) {
        bool is_twice = false;
        for (uint32_t i = 0; i < t->n_names; i++) {
            is_twice = is_twice ||
                       (i != k && strcmp(short_name(t->names[i]), short_name(t->names[k])) == 0);
        }
        stk_text_cell(out, style, is_twice ? t->names[k] : short_name(t->names[k]), t->widths[k]);
    }
    if (t->name > 0) {
        stk_text_cell(out, style, "name", t->name);
    }
    stk_text_end_line(out);
}

static void put_run(const table *t, const stk_run_values *run, const stk_style *style, stk_buf *out)
{
    const stk_run_row *row = run->row;
    char text[64];
    stk_ink ink;
    const char *mark = stk_text_mark(row->status, style->utf8, &ink);
    stk_text_ink(out, style, ink, mark);
    stk_buf_char(out, ' ');
    stk_text_cell(out, style, row->id, ID);
    stk_text_cell(out, style, row->pipeline, t->pipeline);
    stk_text_cell(out, style, row->status, STATUS);
    if (t->has_created) {
        stk_text_cell(out, style, stk_text_time(row->created_ms, false, text, sizeof text),
                      CREATED);
    }
    stk_text_cell(out, style, took(row, style, text, sizeof text), t->took);
    if (t->currency != NULL && run->cost >= 0) {
        stk_text_cell(out, style, stk_cost_text(run->cost, t->currency, text, sizeof text), COST);
    } else if (t->currency != NULL) {
        stk_text_cell(out, style, stk_text_dash(style->utf8), COST);
    }
    for (uint32_t k = 0; k < t->n_names; k++) {
        stk_run_value value;
        bool has = stk_runs_get(run, t->names[k], &value) && value.text != NULL;
        stk_text_cell(out, style, has ? value.text : stk_text_dash(style->utf8), t->widths[k]);
    }
    if (strcmp(row->name, row->id) != 0) {
        stk_text_cell(out, style, row->name, t->name);
    }
    stk_text_end_line(out);
}

void stk_text_runs(const stk_run_values *runs, uint32_t n, const char *currency,
                   const char *const *named, const stk_style *style, stk_buf *out)
{
    table t = {.runs = runs, .n = n, .pipeline = 8, .took = 4};
    char text[64];
    if (stk_runs_have_cost(runs, n)) {
        t.currency = stk_text_or(currency, "");
    }
    for (uint32_t i = 0; i < n; i++) {
        t.pipeline = MAX(t.pipeline, MIN(stk_text_width(runs[i].row->pipeline), PIPELINE));
        t.took = MAX(t.took, stk_text_width(took(runs[i].row, style, text, sizeof text)));
        if (strcmp(runs[i].row->name, runs[i].row->id) != 0) {
            t.name = MAX(MAX(t.name, 4), MIN(stk_text_width(runs[i].row->name), NAME));
        }
    }
    if (n > 0) {
        choose(&t, named, style);
        put_head(&t, style, out);
    }
    for (uint32_t i = 0; i < n; i++) {
        put_run(&t, &runs[i], style, out);
    }
}
