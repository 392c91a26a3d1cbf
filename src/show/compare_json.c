/* A comparison for programs. */
#include <math.h>

#include "base/json.h"
#include "base/text.h"
#include "show/compare_private.h"
#include "show/show_private.h"

/* The value as JSON: its own, else the text. */
static void put_cell(const stk_compare_cell *cell, stk_buf *out)
{
    if (cell->json != NULL) {
        stk_json_put_raw(out, NULL, cell->json);
    } else {
        stk_json_put_text(out, NULL, cell->text);
    }
}

static void put_number_or_null(stk_buf *out, bool is_known, double number)
{
    char digits[32];
    if (is_known && isfinite(number)) {
        stk_json_format_real(number, digits);
        stk_json_put_raw(out, NULL, digits);
    } else {
        stk_json_put_raw(out, NULL, NULL);
    }
}

static void put_spread(const stk_compare *c, const stk_compare_row *row, stk_buf *out)
{
    bool has = false;
    for (uint32_t i = 0; i < c->ask->n; i++) {
        has = has || row->cells[i].has_spread;
    }
    for (int max = 0; has && max < 2; max++) {
        static const char *const words[] = {"min", "max"};
        stk_json_open(out, words[max], '[');
        for (uint32_t i = 0; i < c->ask->n; i++) {
            const stk_compare_cell *cell = &row->cells[i];
            double both[] = {cell->min, cell->max};
            put_number_or_null(out, cell->has_spread, both[max]);
        }
        stk_json_close(out, ']');
    }
}

static void put_part_json(const stk_compare *c, const stk_compare_part *part, stk_buf *out)
{
    stk_json_open(out, part->key, '[');
    for (uint32_t i = 0; i < part->n; i++) {
        const stk_compare_row *row = &part->rows[i];
        if (!stk_compare_shows(c, row)) {
            continue;
        }
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "name", row->name);
        stk_json_put_bool(out, "differs", row->differs);
        stk_json_open(out, "values", '[');
        for (uint32_t k = 0; k < c->ask->n; k++) {
            put_cell(&row->cells[k], out);
        }
        stk_json_close(out, ']');
        put_spread(c, row, out);
        stk_json_close(out, '}');
    }
    stk_json_close(out, ']');
}

static void put_best(const stk_compare *c, stk_buf *out)
{
    static const char *const goals[] = {"max", "min"};
    const stk_compare_row *row = stk_compare_metric(c);
    if (c->best == UINT32_MAX) {
        stk_json_put_raw(out, "best", NULL);
        return;
    }
    stk_json_open(out, "best", '{');
    stk_json_put_text(out, "run", c->ask->runs[c->best].row->id);
    stk_json_put_text(out, "metric", row->name);
    stk_json_put_text(out, "goal", goals[row->less_is_better]);
    stk_json_put_raw(out, "value", row->cells[c->best].json);
    stk_json_close(out, '}');
}

int stk_compare_json(const stk_compare *c, stk_buf *out, stk_err *err)
{
    stk_json_open(out, NULL, '{');
    stk_json_open(out, "runs", '[');
    for (uint32_t i = 0; i < c->ask->n; i++) {
        stk_json_put_text(out, NULL, c->ask->runs[i].row->id);
    }
    stk_json_close(out, ']');
    put_best(c, out);
    for (int p = 0; p < STK_PART_N; p++) {
        put_part_json(c, &c->parts[p], out);
    }
    stk_json_open(out, "sources", '[');
    for (uint32_t i = 0; i < c->n_sources; i++) {
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "name", c->sources[i].name);
        stk_json_put_n_texts(out, "texts", c->sources[i].texts, c->ask->n);
        stk_json_close(out, '}');
    }
    stk_json_close(out, ']');
    stk_json_close(out, '}');
    return stk_show_check(out, err);
}
