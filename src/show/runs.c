#include "show/runs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "show/metrics.h"
#include "store/metrics/metrics.h"
#include "store/view/view.h"

enum { TEXT_MAX = 60, TASKS_MAX = 200, NAMES_MAX = 256, ATTEMPTS_MAX = 8, RANGE_BYTES = 4 << 20 };

/* --- reading --- */

typedef struct reader {
    const stk_cost *cost;
    double amount; /* that the run cost; -1: unknown */
    stk_arena *arena;
    stk_run_value *items;
    uint32_t n, cap;
    bool ranges;             /* of metrics, too */
    const stk_metric *range; /* of the value that is added, or NULL */
    bool is_earlier;
} reader;

static const char *shown_text(const stk_json *value, stk_arena *arena)
{
    if (stk_json_is_kind(value, STK_JSON_REAL)) {
        return stk_arena_printf(arena, "%.6g", stk_json_number(value, 0));
    }
    if (stk_json_is_kind(value, STK_JSON_TEXT)) {
        const char *text = stk_json_text(value);
        return text != NULL && strlen(text) <= TEXT_MAX ? stk_arena_dup(arena, text) : NULL;
    }
    return stk_json_dump_in(value, arena);
}

static void set_range(const stk_metric *metric, stk_run_value *item)
{
    stk_metric_point points[STK_RUN_SHAPE];
    item->has_range = isfinite(metric->min);
    item->min = metric->min;
    item->max = metric->max;
    if (!item->has_range || item->min >= item->max) {
        return;
    }
    uint32_t n = stk_metric_thin(metric, STK_RUN_SHAPE, points);
    for (uint32_t i = 0; i < n; i++) {
        double part =
            points[i].value / (item->max - item->min) - item->min / (item->max - item->min);
        if (isfinite(part)) {
            item->shape[item->n_shape++] = (uint8_t)lround(MIN(MAX(part, 0), 1) * UINT8_MAX);
        }
    }
}

/* Adds `value` unless it is a list, a map, null or long. Of two with the same name the last counts.
 * `task` NULL: of the run; `name` NULL: the task's only, unnamed output. */
static int add(reader *r, const stk_view_task *task, const char *name, const stk_json *value,
               bool is_parameter)
{
    if (value == NULL || value->kind == STK_JSON_NULL || value->kind == STK_JSON_LIST ||
        value->kind == STK_JSON_MAP) {
        return 0;
    }
    const char *text = shown_text(value, r->arena);
    if (text == NULL) {
        return 0;
    }
    const char *full = stk_arena_dup(r->arena, stk_text_or(name, "")), *title = full;
    if (task != NULL && name != NULL) {
        full = stk_arena_printf(r->arena, "%s.%s", task->name, name);
        title = stk_arena_printf(r->arena, "%s.%s", task->title, name);
    } else if (task != NULL) {
        full = stk_arena_dup(r->arena, task->name);
        title = stk_arena_dup(r->arena, task->title);
    }
    if (full == NULL || title == NULL ||
        stk_array_reserve(&r->items, &r->cap, r->n + 1, sizeof *r->items) < 0) {
        return STK_E_NOMEM;
    }
    stk_run_value item = {.name = full,
                          .title = title,
                          .text = text,
                          .json = stk_json_dump_in(value, r->arena),
                          .number = stk_json_number(value, 0),
                          .is_number = stk_json_is_number(value),
                          .is_parameter = is_parameter,
                          .is_earlier = r->is_earlier};
    if (r->range != NULL) {
        set_range(r->range, &item);
    }
    for (uint32_t i = 0; i < r->n; i++) {
        if (strcmp(r->items[i].name, full) == 0) {
            r->items[i] = item;
            return 0;
        }
    }
    r->items[r->n++] = item;
    return 0;
}

static int add_members(reader *r, const stk_view_task *task, const char *text, bool is_parameter)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *map = stk_json_read(scratch, text);
    for (uint32_t i = 0; i < stk_json_n_members(map); i++) {
        STK_TRY(add(r, task, stk_json_key(map, i)->text, stk_json_value(map, i), is_parameter));
    }
    return 0;
}

/* All of the file if that isn't large, else its end. */
static int read_metrics(stk_metrics *metrics, const reader *r, const char *dir)
{
    char path[4200];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/" STK_METRICS_FILE, dir);
    if (r->ranges && stat(path, &st) == 0 && st.st_size <= RANGE_BYTES) {
        return stk_metrics_add(metrics, path, 0, NULL);
    }
    return stk_metrics_add_last(metrics, dir, NULL);
}

/* Of the last attempts of a task: one that goes on from a checkpoint logs only what is new. */
static void read_attempts(stk_metrics *metrics, const reader *r, const char *dir)
{
    const char *slash = strrchr(dir, '/');
    uint32_t n = slash == NULL ? 0 : (uint32_t)strtoul(slash + 1, NULL, 10);
    for (uint32_t i = n > ATTEMPTS_MAX ? n - ATTEMPTS_MAX + 1 : 1; i <= n; i++) {
        char one[4096];
        (void)snprintf(one, sizeof one, "%.*s/%u", (int)(slash - dir), dir, i);
        if (read_metrics(metrics, r, one) < 0) {
            return;
        }
    }
}

/* What log_metrics logged last. */
static int add_last_metrics(reader *r, const stk_view_task *task, const char *dir)
{
    STK_METRICS_AUTO metrics = NULL;
    if (dir == NULL) {
        return 0;
    }
    STK_TRY(stk_metrics_new(&metrics, NULL));
    read_attempts(metrics, r, dir);
    for (uint32_t i = 0; i < stk_metrics_n(metrics); i++) {
        stk_metric one = stk_metrics_get(metrics, i);
        char digits[32];
        if (isfinite(one.last)) {
            stk_json_format_real(one.last, digits);
            stk_json value = stk_json_of_digits(digits, STK_JSON_REAL);
            if (r->ranges) {
                r->range = &one;
            }
            int rc = add(r, task, one.name, &value, false);
            r->range = NULL;
            STK_TRY(rc);
        }
    }
    return 0;
}

static int add_task(reader *r, stk_view *view, uint32_t i)
{
    const stk_view_task *task = stk_view_get_task(view, i);
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    stk_view_details d;
    if (stk_view_get_step(view, task->i_step)->n > 1) {
        return 0; /* many tasks have many values */
    }
    STK_TRY(stk_view_get_details(view, i, scratch, &d, NULL));
    const char *dir = d.dir;
    uint32_t attempt = 0;
    r->is_earlier = dir == NULL && d.cached_from != NULL;
    if (r->is_earlier) {
        dir = stk_metrics_origin(view, i, &d, &attempt, scratch);
    }
    STK_TRY(add_last_metrics(r, task, dir));
    r->is_earlier = false;
    STK_TRY(add_members(r, task, d.metadata, false));
    for (uint32_t k = 0; k < d.n_outputs; k++) {
        const stk_json *value = stk_json_read(scratch, d.outputs[k].value);
        bool is_plain = strcmp(d.outputs[k].name, "output") == 0;
        if (is_plain) {
            STK_TRY(add(r, task, NULL, value, false));
        } else {
            STK_TRY(add(r, task, d.outputs[k].name, value, false));
        }
    }
    return 0;
}

static int read_run(stk_store *store, const stk_run_row *row, reader *r)
{
    STK_VIEW_AUTO view = NULL;
    int rc = stk_view_load(store, row->id, &view, NULL);
    if (rc < 0) {
        return rc == STK_E_NOMEM ? rc : 0;
    }
    const stk_view_run *run = stk_view_get_run(view);
    r->amount = stk_cost_of_run(r->cost, view, row->now_ms);
    STK_TRY(add_members(r, NULL, run->parameters, true));
    STK_TRY(add_members(r, NULL, run->metadata, false));
    for (uint32_t i = 0; i < MIN(stk_view_n_tasks(view), TASKS_MAX); i++) {
        STK_TRY(add_task(r, view, i));
    }
    return 0;
}

static int read_runs(stk_store *store, const stk_cost *cost, const stk_run_row *rows, uint32_t n,
                     bool ranges, stk_arena *arena, stk_run_values **ret, stk_err *err)
{
    stk_run_values *runs = stk_arena_array(arena, (size_t)n + 1, sizeof *runs);
    STK_TRY(stk_err_if_null(runs, err));
    for (uint32_t i = 0; i < n; i++) {
        reader r = {.cost = cost, .amount = -1, .arena = arena, .ranges = ranges};
        int rc = store == NULL ? 0 : read_run(store, &rows[i], &r);
        stk_run_value *items = stk_arena_array(arena, (size_t)r.n + 1, sizeof *items);
        if (rc == 0 && items != NULL && r.n > 0) {
            memcpy(items, r.items, r.n * sizeof *items);
        }
        free(r.items);
        if (rc < 0 || items == NULL) {
            return stk_err_nomem(err);
        }
        runs[i] = (stk_run_values){&rows[i], items, r.n, r.amount};
    }
    *ret = runs;
    return 0;
}

int stk_runs_read(stk_store *store, const stk_cost *cost, const stk_run_row *rows, uint32_t n,
                  stk_arena *arena, stk_run_values **ret, stk_err *err)
{
    return read_runs(store, cost, rows, n, false, arena, ret, err);
}

int stk_runs_read_ranges(stk_store *store, const stk_cost *cost, const stk_run_row *rows,
                         uint32_t n, stk_arena *arena, stk_run_values **ret, stk_err *err)
{
    return read_runs(store, cost, rows, n, true, arena, ret, err);
}

/* --- asking --- */

static const char *const columns[] = {"run",     "name",     "pipeline", "status",
                                      "created", "duration", "cost"};

bool stk_runs_have_cost(const stk_run_values *runs, uint32_t n)
{
    bool found = false;
    for (uint32_t i = 0; i < n; i++) {
        found = found || runs[i].cost >= 0;
    }
    return found;
}

static bool get_column(const stk_run_values *run, const char *name, stk_run_value *ret)
{
    const stk_run_row *row = run->row;
    const char *const texts[] = {row->id, row->name, row->pipeline, row->status};
    int64_t end = row->ended_ms != 0 ? row->ended_ms : row->now_ms;
    *ret = (stk_run_value){.name = name};
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(name, columns[i]) == 0) {
            ret->text = texts[i];
            return true;
        }
    }
    ret->is_number = true;
    if (strcmp(name, "created") == 0) {
        ret->number = (double)row->created_ms;
        return true;
    }
    if (strcmp(name, "duration") == 0 && end != 0) {
        ret->number = (double)(end - row->created_ms) / 1000;
        return true;
    }
    if (strcmp(name, "cost") == 0 && run->cost >= 0) {
        ret->number = run->cost;
        return true;
    }
    return false;
}

bool stk_runs_get(const stk_run_values *run, const char *name, stk_run_value *ret)
{
    const stk_run_value *found = NULL;
    for (uint32_t i = 0; i < run->n; i++) {
        if (strcmp(run->items[i].name, name) == 0 || stk_text_same(run->items[i].title, name)) {
            *ret = run->items[i];
            return true;
        }
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < run->n; i++) {
        const char *dot = strrchr(run->items[i].name, '.');
        if (dot != NULL && strcmp(dot + 1, name) == 0) {
            found = &run->items[i];
            n++;
        }
    }
    if (n == 1) {
        *ret = *found;
        return true;
    }
    return get_column(run, name, ret);
}

/* Two values of a run whose names end with `name`, so that it says neither. */
static bool find_two(const stk_run_values *run, const char *name, const char *ret_two[2])
{
    size_t n = 0;
    for (uint32_t i = 0; i < run->n && n < 2; i++) {
        const char *dot = strrchr(run->items[i].name, '.');
        if (dot != NULL && strcmp(dot + 1, name) == 0) {
            ret_two[n++] = run->items[i].name;
        }
    }
    return n == 2;
}

/* STK_E_USAGE if no run has a value of this name; names what some run has. */
static int check_known(const stk_run_values *runs, uint32_t n, const char *name, stk_err *err)
{
    const char *names[NAMES_MAX];
    size_t n_names = 0;
    stk_run_value value;
    for (uint32_t i = 0; i < n; i++) {
        if (stk_runs_get(&runs[i], name, &value)) {
            return 0;
        }
    }
    if (strcmp(name, "cost") == 0) {
        stk_err_set(err, STK_E_USAGE, "none of these %u runs has a cost", n);
        stk_err_hint(err, "`prices` of stoker.yaml say what an hour of a device or CPU costs");
        return STK_E_USAGE;
    }
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        if (strcmp(columns[i], name) == 0) {
            return 0;
        }
        names[n_names++] = columns[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < runs[i].n && n_names + 2 < NAMES_MAX; k++) {
            const char *dot = strrchr(runs[i].items[k].name, '.');
            names[n_names++] = runs[i].items[k].name;
            names[n_names++] = dot == NULL ? runs[i].items[k].name : dot + 1;
        }
    }
    const char *two[2];
    for (uint32_t i = 0; i < n; i++) {
        if (find_two(&runs[i], name, two)) {
            return stk_err_set(err, STK_E_USAGE, "'%s' may be '%s' or '%s'; say which", name,
                               two[0], two[1]);
        }
    }
    const char *near = stk_units_nearest(name, names, n_names);
    stk_err_set(err, STK_E_USAGE, "none of these %u runs has a parameter, metric or column '%s'", n,
                name);
    if (near != NULL) {
        stk_err_hint(err, "did you mean '%s'?", near);
    }
    return STK_E_USAGE;
}

static double number_of(const char *text, bool is_duration, bool *ret_is)
{
    char *end;
    int64_t ms;
    double number = strtod(text, &end);
    *ret_is = *text != '\0' && *end == '\0';
    if (!*ret_is && is_duration && stk_units_parse_duration(text, &ms, NULL) == 0) {
        *ret_is = true;
        number = (double)ms / 1000;
    }
    return number;
}

static int compare(const stk_run_value *a, const stk_run_value *b)
{
    if (a->is_number && b->is_number) {
        return (a->number > b->number) - (a->number < b->number);
    }
    return strcmp(stk_text_or(a->text, ""), stk_text_or(b->text, ""));
}

static bool is_met(int order, const char *op)
{
    if (strcmp(op, "!=") == 0) {
        return order != 0;
    }
    return (order == 0 && strchr(op, '=') != NULL) || (order < 0 && op[0] == '<') ||
           (order > 0 && op[0] == '>');
}

int stk_runs_where(stk_run_values *runs, uint32_t *n, const char *where, stk_err *err)
{
    size_t n_title = strcspn(where, "["), n_name = strcspn(where, "=!<>");
    if (n_title < n_name && strchr(where, ']') != NULL) { /* a title: "fit[lr=0.1]" */
        n_name = (size_t)(strrchr(where, ']') - where);
        n_name += strcspn(where + n_name, "=!<>");
    }
    size_t n_op = strspn(where + n_name, "=!<>");
    char name[128] = "", op[3] = "";
    if (n_name > 0 && n_name < sizeof name && n_op > 0 && n_op < sizeof op) {
        memcpy(name, where, n_name);
        memcpy(op, where + n_name, n_op);
    }
    for (size_t end = strlen(name); end > 0 && name[end - 1] == ' ';) {
        name[--end] = '\0';
    }
    static const char *const ops[] = {"=", "==", "!=", "<", "<=", ">", ">="};
    size_t i = 0;
    while (i < sizeof ops / sizeof *ops && strcmp(op, ops[i]) != 0) {
        i++;
    }
    if (name[0] == '\0' || i == sizeof ops / sizeof *ops) {
        return stk_err_set(err, STK_E_USAGE,
                           "--where '%s' isn't NAME, then = != < <= > or >=, then a value", where);
    }
    STK_TRY(check_known(runs, *n, name, err));
    const char *text = where + n_name + n_op;
    stk_run_value wanted = {.text = text + strspn(text, " ")};
    if (wanted.text[0] == '\0' && strpbrk(op, "<>") != NULL) {
        return stk_err_set(err, STK_E_USAGE, "--where '%s' has no value behind '%s'", where, op);
    }
    wanted.number = number_of(wanted.text, strcmp(name, "duration") == 0, &wanted.is_number);
    uint32_t kept = 0;
    for (uint32_t k = 0; k < *n; k++) {
        stk_run_value value;
        if (stk_runs_get(&runs[k], name, &value) && value.is_number == wanted.is_number &&
            is_met(compare(&value, &wanted), op)) {
            runs[kept++] = runs[k];
        }
    }
    *n = kept;
    return 0;
}

typedef struct sorted {
    stk_run_values run;
    stk_run_value value;
    bool has;
    uint32_t i;
} sorted;

/* Equal runs stay newest first. */
static int by_value(const void *a, const void *b, void *sign)
{
    const sorted *x = a, *y = b;
    if (x->has != y->has) {
        return x->has ? -1 : 1;
    }
    int order = x->has ? compare(&x->value, &y->value) * *(const int *)sign : 0;
    return order != 0 ? order : (x->i > y->i) - (x->i < y->i);
}

int stk_runs_sort(stk_run_values *runs, uint32_t n, const char *by, stk_err *err)
{
    int sign = by[0] == '-' ? -1 : 1;
    const char *name = by + (by[0] == '-');
    STK_TRY(check_known(runs, n, name, err));
    sorted *all = calloc((size_t)n + 1, sizeof *all);
    STK_TRY(stk_err_if_null(all, err));
    for (uint32_t i = 0; i < n; i++) {
        all[i] = (sorted){.run = runs[i], .i = i};
        all[i].has = stk_runs_get(&runs[i], name, &all[i].value);
    }
    qsort_r(all, n, sizeof *all, by_value, &sign);
    for (uint32_t i = 0; i < n; i++) {
        runs[i] = all[i].run;
    }
    free(all);
    return 0;
}
