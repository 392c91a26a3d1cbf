#include "show/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "store/metrics/metrics.h"
#include "sys/dir.h"

enum { ORIGINS = 1000, BARS = 24, VALUE = 12, STEP_WIDTH = 20, NAME_WIDTH = 20, N_WIDTH = 10 };

typedef struct shown {
    const stk_view_task *task;
    stk_metric metric;
} shown;

typedef int shown_each(void *arg, const shown *one, stk_err *err);

static bool is_of_ask(const stk_metrics_ask *ask, uint32_t i_task)
{
    if (ask->has_task) {
        return i_task == ask->task;
    }
    return !ask->has_step || stk_view_get_task(ask->view, i_task)->i_step == ask->i_step;
}

/* The directory of an attempt, by that of the last one. */
static int add_attempts(stk_metrics *metrics, const char *dir, uint32_t n, stk_arena *arena,
                        stk_err *err)
{
    const char *slash = strrchr(dir, '/');
    for (uint32_t i = 1; slash != NULL && i <= n; i++) {
        const char *one = stk_arena_printf(arena, "%.*s/%u", (int)(slash - dir), dir, i);
        STK_TRY(stk_err_if_null(one, err));
        STK_TRY(stk_metrics_add_attempt(metrics, one, err));
    }
    return 0;
}

/* TensorBoard's files in what it returned: a folder that is here. */
static int add_outputs(stk_store *store, const stk_view_details *d, stk_metrics *metrics,
                       stk_arena *arena, stk_err *err)
{
    for (uint32_t i = 0; store != NULL && i < d->n_outputs; i++) {
        const char *path = NULL;
        bool is_folder = stk_text_same(d->outputs[i].format, "dir");
        if (is_folder && d->outputs[i].digest != NULL &&
            stk_store_locate(store, d->outputs[i].digest, arena, &path, NULL, NULL) == 0) {
            STK_TRY(stk_metrics_add_events(metrics, path, err));
        }
    }
    return 0;
}

const char *stk_metrics_origin(const stk_view *view, uint32_t i_task, const stk_view_details *d,
                               uint32_t *ret_attempt, stk_arena *arena)
{
    const stk_view_task *task = stk_view_get_task(view, i_task);
    const char *store = stk_view_get_run(view)->store;
    int64_t id = d->from_task >= 0 ? d->from_task + 1 : task->id;
    STK_DIR_AUTO attempts = {0};
    *ret_attempt = 0;
    if (d->cached_from == NULL || store == NULL) {
        return NULL;
    }
    const char *folder = stk_arena_printf(arena, "%s/runs/%s/%s/%lld", store, d->cached_from,
                                          task->name, (long long)id);
    if (folder == NULL || stk_dir_read_if(folder, &attempts, NULL) < 0) {
        return NULL;
    }
    for (uint32_t i = 0; i < attempts.n; i++) {
        const char *name = attempts.items[i].name;
        if (strspn(name, "0123456789") == strlen(name)) { /* others are checkpoints */
            *ret_attempt = MAX(*ret_attempt, (uint32_t)strtoul(name, NULL, 10));
        }
    }
    return *ret_attempt == 0 ? NULL : stk_arena_printf(arena, "%s/%u", folder, *ret_attempt);
}

int stk_metrics_of_task(stk_store *store, const stk_view *view, uint32_t i_task,
                        stk_metrics *metrics, stk_err *err)
{
    const stk_view_task *task = stk_view_get_task(view, i_task);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_view_details d;
    STK_TRY(stk_view_get_details(view, i_task, arena, &d, err));
    if (d.dir != NULL) {
        STK_TRY(add_attempts(metrics, d.dir, task->attempt, arena, err));
    } else {
        uint32_t n = 0;
        const char *dir = stk_metrics_origin(view, i_task, &d, &n, arena);
        STK_TRY(dir == NULL ? 0 : add_attempts(metrics, dir, n, arena, err));
    }
    return add_outputs(store, &d, metrics, arena, err);
}

typedef struct seeking {
    char near[256];
    uint32_t n;
    uint32_t n_bad;
    char bad[320];
} seeking;

/* What the user may have meant: the nearest name, else the first. */
static void note_near(const stk_metrics_ask *ask, const char *name, seeking *seen)
{
    const char *const both[] = {name, seen->near};
    const char *near = NULL;
    if (ask->name != NULL) {
        near = stk_units_nearest(ask->name, both, 2);
    }
    if (near != seen->near && (near != NULL || seen->near[0] == '\0')) {
        (void)snprintf(seen->near, sizeof seen->near, "%s", name);
    }
}

static int each_of_task(const stk_metrics_ask *ask, uint32_t i_task, shown_each *each, void *arg,
                        seeking *seen, stk_err *err)
{
    STK_METRICS_AUTO metrics = NULL;
    STK_TRY(stk_metrics_new(&metrics, err));
    STK_TRY(stk_metrics_of_task(ask->store, ask->view, i_task, metrics, err));
    if (stk_metrics_bad(metrics) != NULL && seen->n_bad == 0) {
        (void)snprintf(seen->bad, sizeof seen->bad, "%s", stk_metrics_bad(metrics));
    }
    seen->n_bad += stk_metrics_n_bad(metrics);
    for (uint32_t i = 0; i < stk_metrics_n(metrics); i++) {
        shown one = {stk_view_get_task(ask->view, i_task), stk_metrics_get(metrics, i)};
        note_near(ask, one.metric.name, seen);
        if (ask->name == NULL || strcmp(ask->name, one.metric.name) == 0) {
            seen->n++;
            STK_TRY(each(arg, &one, err));
        }
    }
    return 0;
}

static int each_metric(const stk_metrics_ask *ask, shown_each *each, void *arg, seeking *ret,
                       stk_err *err)
{
    for (uint32_t i = 0; i < stk_view_n_tasks(ask->view); i++) {
        if (is_of_ask(ask, i)) {
            STK_TRY(each_of_task(ask, i, each, arg, ret, err));
        }
    }
    if (ret->n == 0 && ask->name != NULL) {
        stk_err_set(err, STK_E_NOT_FOUND, "run %s has no metric '%s'",
                    stk_view_get_run(ask->view)->id, ask->name);
        if (ret->near[0] != '\0') {
            stk_err_hint(err, "it has '%s'; 'stoker metrics %s' lists all", ret->near,
                         stk_view_get_run(ask->view)->id);
        }
        return STK_E_NOT_FOUND;
    }
    return 0;
}

/* The points to show. */
static int thin(const stk_metric *metric, uint32_t most, stk_arena *arena, stk_metric_point **ret,
                uint32_t *ret_n, stk_err *err)
{
    uint32_t room = MAX(most, 4);
    if (most == 0 || room > metric->n) {
        room = MAX(metric->n, 4);
    }
    *ret = stk_arena_array(arena, room, sizeof **ret);
    STK_TRY(stk_err_if_null(*ret, err));
    *ret_n = stk_metric_thin(metric, room, *ret);
    return 0;
}

/* --- the table --- */

typedef struct table {
    const stk_style *style;
    stk_buf *out;
    bool has_head;
} table;

static const char *number(double value, char text[32])
{
    (void)snprintf(text, 32, "%.6g", value);
    return text;
}

/* A curve of eight heights; a gap where the value isn't finite. */
static void put_curve(const stk_metric *m, stk_buf *out)
{
    static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    uint32_t n = MIN(m->n, BARS);
    for (uint32_t i = 0; i < n; i++) {
        double value = m->points[(uint64_t)i * m->n / n].value, height = 3;
        if (m->max > m->min) {
            height = (value - m->min) / (m->max - m->min) * 7;
        }
        if (isfinite(value)) {
            stk_buf_text(out, bars[(int)(height + 0.5)]);
        } else {
            stk_buf_text(out, "·");
        }
    }
}

static void put_head(table *t)
{
    static const struct {
        const char *word;
        int width;
    } columns[] = {{"step", STEP_WIDTH}, {"metric", NAME_WIDTH}, {"values", N_WIDTH},
                   {"last", VALUE},      {"min", VALUE},         {"max", VALUE}};
    stk_buf_text(t->out, "  ");
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        stk_text_cell(t->out, t->style, columns[i].word, columns[i].width);
    }
    stk_text_end_line(t->out);
    t->has_head = true;
}

static int put_metric_row(void *arg, const shown *one, stk_err *err)
{
    table *t = arg;
    const stk_metric *m = &one->metric;
    char text[32], name[300];
    (void)err;
    if (!t->has_head) {
        put_head(t);
    }
    (void)snprintf(name, sizeof name, "%s", m->name);
    if (m->rank > 0) {
        (void)snprintf(name, sizeof name, "%s [rank %u]", m->name, m->rank);
    }
    stk_buf_text(t->out, "  ");
    stk_text_cell(t->out, t->style, one->task->title, STEP_WIDTH);
    stk_text_cell(t->out, t->style, name, NAME_WIDTH);
    stk_text_cell(t->out, t->style, stk_text_count(m->n, text, sizeof text), N_WIDTH);
    stk_text_cell(t->out, t->style, number(m->last, text), VALUE);
    stk_text_cell(t->out, t->style, number(m->min, text), VALUE);
    stk_text_cell(t->out, t->style, number(m->max, text), VALUE);
    if (t->style->utf8) {
        put_curve(m, t->out);
    }
    stk_text_end_line(t->out);
    return 0;
}

int stk_metrics_text(const stk_metrics_ask *ask, const stk_style *style, stk_buf *out, stk_err *err)
{
    table t = {.style = style, .out = out};
    seeking seen = {0};
    STK_TRY(each_metric(ask, put_metric_row, &t, &seen, err));
    if (seen.n == 0) {
        stk_buf_text(out, "no metrics: a step logs them by log_metrics({'loss': x}, step=i), a "
                          "command by lines of JSON in $STOKER_METRICS\n");
    }
    if (seen.n_bad > 0) {
        char text[400];
        (void)snprintf(text, sizeof text, "%u %s left out: %s", seen.n_bad,
                       stk_text_noun(seen.n_bad, "line is", "lines are"), seen.bad);
        stk_text_note(text, style, out);
    }
    return 0;
}

/* --- for programs --- */

static void put_point_value(stk_buf *out, const char *key, double value)
{
    char digits[32];
    if (isfinite(value)) {
        stk_json_format_real(value, digits);
        stk_json_put_raw(out, key, digits);
    } else if (isnan(value)) {
        stk_json_put_text(out, key, "nan");
    } else {
        stk_json_put_text(out, key, &"-inf"[value > 0]);
    }
}

static void put_known(stk_buf *out, int64_t number)
{
    if (number < 0) {
        stk_json_put_raw(out, NULL, NULL);
    } else {
        stk_json_put_whole(out, NULL, number);
    }
}

typedef struct document {
    stk_buf *out;
    uint32_t most;
} document;

static int put_document(void *arg, const shown *one, stk_err *err)
{
    document *d = arg;
    const stk_metric *m = &one->metric;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_metric_point *points = NULL;
    uint32_t n = 0;
    STK_TRY(thin(m, d->most, arena, &points, &n, err));
    stk_json_open(d->out, NULL, '{');
    stk_json_put_text(d->out, "step", one->task->name);
    stk_json_put_text(d->out, "task", one->task->label);
    stk_json_put_text(d->out, "metric", m->name);
    stk_json_put_whole(d->out, "rank", m->rank);
    stk_json_put_whole(d->out, "n", m->n);
    put_point_value(d->out, "last", m->last);
    put_point_value(d->out, "min", m->min);
    put_point_value(d->out, "max", m->max);
    stk_json_open(d->out, "points", '[');
    for (uint32_t i = 0; i < n; i++) {
        stk_json_open(d->out, NULL, '[');
        put_known(d->out, points[i].step);
        put_known(d->out, points[i].time_ms);
        put_point_value(d->out, NULL, points[i].value);
        stk_json_close(d->out, ']');
    }
    stk_json_close(d->out, ']');
    stk_json_close(d->out, '}');
    return 0;
}

int stk_metrics_json(const stk_metrics_ask *ask, stk_buf *out, stk_err *err)
{
    document d = {.out = out, .most = ask->most};
    seeking seen = {0};
    stk_json_open(out, NULL, '[');
    STK_TRY(each_metric(ask, put_document, &d, &seen, err));
    stk_json_close(out, ']');
    return stk_buf_check(out, err);
}

/* A field in quotes where it needs them (RFC 4180). */
static void put_field(stk_buf *out, const char *text)
{
    if (text[strcspn(text, ",\"\r\n")] == '\0') {
        stk_buf_text(out, text);
        return;
    }
    stk_buf_char(out, '"');
    for (; *text != '\0'; text++) {
        stk_buf_text(out, stk_text_when(*text == '"', "\""));
        stk_buf_char(out, *text);
    }
    stk_buf_char(out, '"');
}

static int put_lines(void *arg, const shown *one, stk_err *err)
{
    document *d = arg;
    const stk_metric *m = &one->metric;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_metric_point *points = NULL;
    uint32_t n = 0;
    STK_TRY(thin(m, d->most, arena, &points, &n, err));
    for (uint32_t i = 0; i < n; i++) {
        put_field(d->out, one->task->name);
        stk_buf_char(d->out, ',');
        put_field(d->out, one->task->label);
        stk_buf_printf(d->out, ",%u,", m->rank);
        put_field(d->out, m->name);
        stk_buf_char(d->out, ',');
        if (points[i].step >= 0) {
            stk_buf_printf(d->out, "%lld", (long long)points[i].step);
        }
        stk_buf_char(d->out, ',');
        if (points[i].time_ms >= 0) {
            stk_buf_printf(d->out, "%.3f", (double)points[i].time_ms / 1000);
        }
        stk_buf_printf(d->out, ",%.17g\n", points[i].value);
    }
    return stk_buf_check(d->out, err);
}

int stk_metrics_csv(const stk_metrics_ask *ask, stk_buf *out, stk_err *err)
{
    document d = {.out = out, .most = ask->most};
    seeking seen = {0};
    stk_buf_text(out, "step,task,rank,metric,position,time,value\n");
    return each_metric(ask, put_lines, &d, &seen, err);
}
