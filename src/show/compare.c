#include "show/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "show/compare_private.h"
#include "show/metrics.h"
#include "show/show_private.h"

enum { POINTS = 240, TASKS_MAX = 200, METRICS_MAX = 200 };

static const struct {
    const char *key, *title;
} part_words[STK_PART_N] = {[STK_PART_RUN] = {"run", "Runs"},
                            [STK_PART_PARAMETERS] = {"parameters", "Parameters"},
                            [STK_PART_METRICS] = {"metrics", "Metrics"},
                            [STK_PART_STEPS] = {"steps", "Steps"},
                            [STK_PART_WHY] = {"why", "Why a step ran"},
                            [STK_PART_CODE] = {"code", "Code"},
                            [STK_PART_ENVIRONMENT] = {"environment", "Environment"},
                            [STK_PART_INPUTS] = {"inputs", "Inputs"},
                            [STK_PART_OUTPUTS] = {"outputs", "Artifacts"},
                            [STK_PART_RESOURCES] = {"resources", "Resources"}};

/* --- rows --- */

static int add_compare_row(stk_compare *c, stk_compare_part *part, const char *name)
{
    stk_compare_row *rows = stk_arena_grow(c->arena, part->rows, part->n, sizeof *rows, &part->cap);
    if (rows == NULL) {
        return STK_E_NOMEM;
    }
    part->rows = rows;
    stk_compare_row *row = &rows[part->n];
    *row =
        (stk_compare_row){.name = stk_arena_dup(c->arena, name),
                          .cells = stk_arena_array(c->arena, c->ask->n, sizeof(stk_compare_cell))};
    if (row->name == NULL || row->cells == NULL) {
        return STK_E_NOMEM;
    }
    return stk_map_put(&part->by_name, row->name, part->n++);
}

stk_compare_cell *stk_compare_at(stk_compare *c, stk_compare_part_id id, const char *name,
                                 uint32_t i_run)
{
    stk_compare_part *part = &c->parts[id];
    uint64_t i = part->n;
    if (!stk_map_get(&part->by_name, name, &i) && add_compare_row(c, part, name) < 0) {
        return NULL;
    }
    return &part->rows[i].cells[i_run];
}

int stk_compare_set(stk_compare *c, stk_compare_part_id part, const char *name, uint32_t i_run,
                    const char *text, const char *json)
{
    if (text == NULL) {
        return 0;
    }
    stk_compare_cell *cell = stk_compare_at(c, part, name, i_run);
    if (cell == NULL) {
        return STK_E_NOMEM;
    }
    cell->text = stk_arena_dup(c->arena, text);
    cell->json = stk_arena_dup(c->arena, json);
    return cell->text == NULL ? STK_E_NOMEM : 0;
}

int stk_compare_set_number(stk_compare *c, stk_compare_part_id part, const char *name,
                           uint32_t i_run, double number, const char *text)
{
    char digits[32];
    if (!isfinite(number)) {
        return stk_compare_set(c, part, name, i_run, text, NULL);
    }
    stk_json_format_real(number, digits);
    if (number == floor(number) && fabs(number) < 1e15) {
        (void)snprintf(digits, sizeof digits, "%.0f", number);
    }
    if (stk_compare_set(c, part, name, i_run, text, digits) < 0) {
        return STK_E_NOMEM;
    }
    stk_compare_cell *cell = stk_compare_at(c, part, name, i_run);
    cell->number = number;
    cell->is_number = true;
    return 0;
}

uint32_t stk_compare_n_shown(const stk_compare *c, const stk_compare_part *part)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < part->n; i++) {
        n += stk_compare_shows(c, &part->rows[i]);
    }
    return n;
}

const char *stk_compare_change(const stk_compare_cell *from, const stk_compare_cell *to, char *buf,
                               size_t size)
{
    if (!from->is_number || !to->is_number || from->number == to->number || from->number == 0) {
        return NULL;
    }
    double percent = (to->number - from->number) / fabs(from->number) * 100;
    if (fabs(percent) >= 1000) {
        (void)snprintf(buf, size, "%.3g times", to->number / from->number);
    } else if (fabs(percent) >= 10) {
        (void)snprintf(buf, size, "%+.0f %%", percent);
    } else {
        (void)snprintf(buf, size, "%+.2g %%", percent);
    }
    return buf;
}

/* --- parameters and metrics --- */

static int add_values(stk_compare *c, uint32_t i_run)
{
    const stk_run_values *run = &c->ask->runs[i_run];
    for (uint32_t i = 0; i < run->n; i++) {
        const stk_run_value *v = &run->items[i];
        stk_compare_part_id part = v->is_parameter ? STK_PART_PARAMETERS : STK_PART_METRICS;
        if (v->is_number) {
            STK_TRY(stk_compare_set_number(c, part, v->name, i_run, v->number, v->text));
            stk_compare_at(c, part, v->name, i_run)->json = v->json;
        } else {
            STK_TRY(stk_compare_set(c, part, v->name, i_run, v->text, v->json));
        }
    }
    return 0;
}

static int keep_curve(stk_compare *c, uint32_t i_run, uint32_t row, const stk_metric *metric)
{
    stk_compare_curve *curves =
        stk_arena_grow(c->arena, c->curves, c->n_curves, sizeof *curves, &c->cap_curves);
    stk_metric_point *points = stk_arena_array(c->arena, POINTS, sizeof *points);
    if (curves == NULL || points == NULL) {
        return STK_E_NOMEM;
    }
    uint32_t n = stk_metric_thin(metric, POINTS, points);
    c->curves = curves;
    c->curves[c->n_curves++] = (stk_compare_curve){row, i_run, points, n};
    return 0;
}

static int add_metric(stk_compare *c, uint32_t i_run, const char *step, const stk_metric *metric)
{
    char text[32];
    const char *name = stk_arena_printf(c->arena, "%s.%s", step, metric->name);
    (void)snprintf(text, sizeof text, "%.6g", metric->last);
    if (name == NULL ||
        stk_compare_set_number(c, STK_PART_METRICS, name, i_run, metric->last, text) < 0) {
        return STK_E_NOMEM;
    }
    stk_compare_cell *cell = stk_compare_at(c, STK_PART_METRICS, name, i_run);
    cell->has_spread = isfinite(metric->min);
    cell->min = metric->min;
    cell->max = metric->max;
    uint64_t row = 0;
    (void)stk_map_get(&c->parts[STK_PART_METRICS].by_name, name, &row);
    return metric->n > 1 ? keep_curve(c, i_run, (uint32_t)row, metric) : 0;
}

/* Of a step with several tasks it has their number. */
static const char *name_of_task(const stk_view *view, uint32_t i_task)
{
    const stk_view_task *task = stk_view_get_task(view, i_task);
    bool only = stk_view_get_step(view, task->i_step)->n == 1;
    return stk_text_noun(only, task->name, task->label);
}

/* Metrics over time of rank 0; a run whose files can't be read has none. */
static int add_metrics(stk_compare *c, uint32_t i_run)
{
    const stk_view *view = c->ask->views[i_run];
    for (uint32_t i = 0; i < MIN(stk_view_n_tasks(view), TASKS_MAX); i++) {
        STK_METRICS_AUTO metrics = NULL;
        if (stk_metrics_new(&metrics, NULL) < 0) {
            return STK_E_NOMEM;
        }
        if (stk_metrics_of_task(c->ask->store, view, i, metrics, NULL) < 0) {
            continue;
        }
        for (uint32_t k = 0; k < MIN(stk_metrics_n(metrics), METRICS_MAX); k++) {
            const stk_metric one = stk_metrics_get(metrics, k);
            if (one.rank == 0 && one.n > 0) {
                STK_TRY(add_metric(c, i_run, name_of_task(view, i), &one));
            }
        }
    }
    return 0;
}

/* --- the runs themselves --- */

static int add_run(stk_compare *c, uint32_t i_run)
{
    const stk_run_row *row = c->ask->runs[i_run].row;
    char text[64];
    int64_t end_ms = row->ended_ms != 0 ? row->ended_ms : row->now_ms;
    STK_TRY(stk_compare_set(c, STK_PART_RUN, "pipeline", i_run, row->pipeline, NULL));
    STK_TRY(stk_compare_set(c, STK_PART_RUN, "status", i_run, row->status, NULL));
    stk_compare_at(c, STK_PART_RUN, "status", i_run)->status = row->status;
    if (strcmp(row->name, row->id) != 0) {
        STK_TRY(stk_compare_set(c, STK_PART_RUN, "name", i_run, row->name, NULL));
    }
    STK_TRY(stk_compare_set(c, STK_PART_RUN, "started", i_run,
                            stk_text_time(row->created_ms, false, text, sizeof text), NULL));
    if (end_ms > 0) {
        STK_TRY(stk_compare_set_number(
            c, STK_PART_RUN, "time", i_run, (double)(end_ms - row->created_ms) / 1000,
            stk_units_format_duration(end_ms - row->created_ms, text, sizeof text)));
    }
    double cost = c->ask->runs[i_run].cost;
    if (cost >= 0) {
        STK_TRY(stk_compare_set_number(
            c, STK_PART_RUN, "cost", i_run, cost,
            stk_cost_text(cost, stk_cost_currency(c->ask->cost), text, sizeof text)));
    }
    const char *tags = stk_text_same(row->tags, "[]") ? NULL : row->tags;
    STK_BUF_AUTO words = STK_BUF_INIT(1u << 20);
    const stk_json *list = tags == NULL ? NULL : stk_json_read(c->arena, tags);
    for (uint32_t i = 0; i < stk_json_n_items(list); i++) {
        stk_buf_separate(&words, ", ");
        stk_buf_text(&words, stk_text_or(stk_json_text(stk_json_item(list, i)), "?"));
    }
    return stk_compare_set(c, STK_PART_RUN, "tags", i_run, stk_text_or(words.data, tags), tags);
}

/* --- making --- */

/* Equal values get the same number. */
static int hide_values(stk_compare *c, stk_compare_row *row)
{
    uint32_t n = 0;
    const char **texts = stk_arena_array(c->arena, c->ask->n, sizeof *texts);
    for (uint32_t i = 0; texts != NULL && i < c->ask->n; i++) {
        uint32_t same = 0;
        while (same < i && !stk_text_same(row->cells[same].text, row->cells[i].text)) {
            same++;
        }
        texts[i] = texts[same];
        if (same == i && row->cells[i].text != NULL) {
            texts[i] = stk_arena_printf(c->arena, "value %u", ++n);
        }
    }
    for (uint32_t i = 0; texts != NULL && i < c->ask->n; i++) {
        row->cells[i].text = texts[i];
    }
    return texts == NULL ? STK_E_NOMEM : 0;
}

static bool is_private(const stk_compare *c, const stk_compare_row *row)
{
    bool found = false;
    for (uint32_t i = 0; i < c->ask->n; i++) {
        found = found || row->cells[i].is_private;
    }
    return found;
}

static int hide_private(stk_compare *c)
{
    stk_compare_part *part = &c->parts[STK_PART_ENVIRONMENT];
    for (uint32_t i = 0; i < part->n; i++) {
        if (is_private(c, &part->rows[i])) {
            STK_TRY(hide_values(c, &part->rows[i]));
        }
    }
    return 0;
}

static void find_differences(stk_compare *c)
{
    for (int p = 0; p < STK_PART_N; p++) {
        for (uint32_t i = 0; i < c->parts[p].n; i++) {
            stk_compare_row *row = &c->parts[p].rows[i];
            for (uint32_t k = 1; k < c->ask->n && !row->differs; k++) {
                row->differs = !stk_text_same(row->cells[0].text, row->cells[k].text);
            }
            row->is_told = p == STK_PART_RUN || p == STK_PART_STEPS;
        }
    }
}

static int gather_runs(stk_compare *c, stk_err *err)
{
    for (uint32_t i = 0; i < c->ask->n; i++) {
        if (add_run(c, i) < 0 || add_values(c, i) < 0 ||
            (i < STK_COMPARE_CURVES && add_metrics(c, i) < 0)) {
            return stk_err_nomem(err);
        }
        if (c->ask->n <= STK_COMPARE_DETAILS) {
            STK_TRY(stk_compare_gather(c, i, err));
        }
    }
    return 0;
}

int stk_compare_make(const stk_compare_ask *ask, stk_compare **ret, stk_err *err)
{
    STK_COMPARE_AUTO c = calloc(1, sizeof *c);
    STK_TRY(stk_err_if_null(c, err));
    c->ask = ask;
    c->arena = stk_arena_new(0);
    c->best = UINT32_MAX;
    c->best_row = UINT32_MAX;
    STK_TRY(stk_err_if_null(c->arena, err));
    for (int p = 0; p < STK_PART_N; p++) {
        c->parts[p].key = part_words[p].key;
        c->parts[p].title = part_words[p].title;
    }
    STK_TRY(gather_runs(c, err));
    find_differences(c);
    if (hide_private(c) < 0) {
        return stk_err_nomem(err);
    }
    STK_TRY(stk_compare_find_best(c, err));
    *ret = c;
    c = NULL;
    return 0;
}

bool stk_compare_tells(const stk_compare *c, uint32_t i_source, uint32_t k, const char **ret_as)
{
    const char *const *own = c->sources[i_source].texts;
    *ret_as = NULL;
    for (uint32_t i = 0; i < i_source && *ret_as == NULL; i++) {
        const char *const *other = c->sources[i].texts;
        if (stk_text_same(own[0], other[0]) && stk_text_same(own[k], other[k])) {
            *ret_as = c->sources[i].name;
        }
    }
    return own[0] != NULL && own[k] != NULL && strcmp(own[0], own[k]) != 0;
}

void stk_compare_free(stk_compare *c)
{
    if (c == NULL) {
        return;
    }
    for (int p = 0; p < STK_PART_N; p++) {
        stk_map_done(&c->parts[p].by_name);
    }
    stk_map_done(&c->source_by_name);
    stk_arena_free(c->arena);
    free(c);
}

/* --- opening --- */

int stk_compare_load(stk_store *store, const stk_run_row *rows, uint32_t n, stk_arena *arena,
                     stk_compare_ask *ask, stk_err *err)
{
    if (n < 2) {
        return stk_err_set(err, STK_E_USAGE, "a comparison needs at least two runs, not %u", n);
    }
    if (n > STK_COMPARE_MOST) {
        stk_err_set(err, STK_E_USAGE, "%u runs are too many to compare; at most %d", n,
                    STK_COMPARE_MOST);
        stk_err_hint(err, "choose some by --where, or --limit");
        return err->code;
    }
    stk_run_values *values = NULL;
    stk_view **views = stk_arena_array(arena, n, sizeof *views);
    STK_TRY(stk_err_if_null(views, err));
    ask->store = store;
    ask->views = views;
    ask->n = n;
    if (ask->runs == NULL) {
        STK_TRY(stk_runs_read(store, ask->cost, rows, n, arena, &values, err));
        ask->runs = values;
    }
    for (uint32_t i = 0; i < MIN(n, STK_COMPARE_CURVES); i++) {
        STK_TRY(stk_view_load(store, rows[i].id, &views[i], err));
    }
    return 0;
}

void stk_compare_unload(stk_compare_ask *ask)
{
    for (uint32_t i = 0; ask->views != NULL && i < ask->n; i++) {
        stk_view_free(ask->views[i]);
    }
    ask->views = NULL;
}
