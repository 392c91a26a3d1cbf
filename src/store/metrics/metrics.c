#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/text.h"
#include "store/metrics/metrics_private.h"
#include "sys/dir.h"
#include "sys/file.h"

enum { PIECE = 256 << 10, LINE_BYTES = 64 << 10, TAIL_BYTES = 16 << 10 };

/* A metric of one rank. */
typedef struct curve {
    const char *name;
    uint32_t rank;
    stk_metric_point *points;
    uint32_t n, cap;
    bool is_of_events;
    uint32_t n_attempts; /* whose points it has; as of the last attempt that wrote it */
} curve;

struct stk_metrics {
    stk_arena *names;
    stk_map index; /* "rank name" -> curve */
    curve *curves;
    uint32_t n, cap;
    uint64_t n_points;
    uint32_t n_attempts; /* files that were added of rank 0, or begun */
    uint32_t n_bad;
    char bad[300];
};

int stk_metrics_new(stk_metrics **ret, stk_err *err)
{
    stk_metrics *m = calloc(1, sizeof *m);
    STK_TRY(stk_err_if_null(m, err));
    m->names = stk_arena_new(0);
    if (m->names == NULL) {
        free(m);
        return stk_err_nomem(err);
    }
    *ret = m;
    return 0;
}

void stk_metrics_free(stk_metrics *metrics)
{
    if (metrics != NULL) {
        for (uint32_t i = 0; i < metrics->n; i++) {
            free(metrics->curves[i].points);
        }
        free(metrics->curves);
        stk_map_done(&metrics->index);
        stk_arena_free(metrics->names);
        free(metrics);
    }
}

/* --- one line --- */

static int find_curve(stk_metrics *m, const char *name, uint32_t rank, curve **ret, stk_err *err)
{
    char key[STK_LIMIT_METRIC_NAME + 16];
    uint64_t i = 0;
    (void)snprintf(key, sizeof key, "%u %s", rank, name);
    if (!stk_map_get(&m->index, key, &i)) {
        const char *kept = stk_arena_dup(m->names, key);
        STK_TRY(stk_err_if_null(kept, err));
        if (m->n == STK_LIMIT_METRICS) {
            return stk_err_set(err, STK_E_LIMIT, "more than %d metrics of one task",
                               STK_LIMIT_METRICS);
        }
        STK_TRY(stk_array_reserve(&m->curves, &m->cap, (uint64_t)m->n + 1, sizeof *m->curves));
        i = m->n++;
        m->curves[i] = (curve){.name = strchr(kept, ' ') + 1, .rank = rank};
        STK_TRY(stk_map_put(&m->index, kept, i) < 0 ? stk_err_nomem(err) : 0);
    }
    *ret = &m->curves[i];
    return 0;
}

/* A later attempt goes on at a checkpoint: what earlier ones have from there on is not its past. */
static void cut_earlier(const stk_metrics *m, curve *c, int64_t step)
{
    if (c->n_attempts == m->n_attempts) {
        return;
    }
    c->n_attempts = m->n_attempts;
    while (step >= 0 && c->n > 0 && c->points[c->n - 1].step >= step) {
        c->n--;
    }
}

int stk_metrics_point(stk_metrics *m, const char *name, uint32_t rank,
                      const stk_metric_point *point, stk_err *err)
{
    curve *c = NULL;
    STK_TRY(find_curve(m, name, rank, &c, err));
    cut_earlier(m, c, point->step);
    if (m->n_points == STK_LIMIT_METRIC_VALUES) {
        return stk_err_set(err, STK_E_LIMIT, "more than %d values of one task",
                           STK_LIMIT_METRIC_VALUES);
    }
    STK_TRY(stk_array_reserve(&c->points, &c->cap, (uint64_t)c->n + 1, sizeof *c->points));
    c->points[c->n++] = *point;
    m->n_points++;
    return 0;
}

int stk_metrics_event(stk_metrics *m, const char *name, const stk_metric_point *point, stk_err *err)
{
    curve *c = NULL;
    STK_TRY(find_curve(m, name, 0, &c, err));
    if (c->n > 0 && !c->is_of_events) {
        return 0;
    }
    c->is_of_events = true;
    return stk_metrics_point(m, name, 0, point, err);
}

static bool number_in(const stk_json *node, double *ret)
{
    static const struct {
        const char *word;
        double value;
    } words[] = {{"nan", NAN}, {"inf", INFINITY}, {"-inf", -INFINITY}};
    if (stk_json_is_kind(node, STK_JSON_BOOL)) {
        *ret = stk_json_is_true(node);
        return true;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (stk_json_is(node, words[i].word)) {
            *ret = words[i].value;
            return true;
        }
    }
    return stk_json_real(node, ret);
}

static bool is_of_line(const char *key)
{
    return strcmp(key, "step") == 0 || strcmp(key, "time") == 0;
}

/* The first wrong thing of a line, or NULL. */
static const char *wrong_with(const stk_json *line)
{
    const stk_json *step = stk_json_get(line, "step"), *time = stk_json_get(line, "time");
    int64_t number = 0;
    double value = 0;
    if (!stk_json_is_map(line)) {
        return "is no JSON object";
    }
    if (step != NULL && (!stk_json_int(step, &number) || number < 0)) {
        return "has a `step` that is no whole number from 0 on";
    }
    if (time != NULL && !stk_json_real(time, &value)) {
        return "has a `time` that is no number";
    }
    for (uint32_t i = 0; i < stk_json_n_members(line); i++) {
        const char *key = stk_json_key(line, i)->text;
        if (strlen(key) > STK_LIMIT_METRIC_NAME || *key == '\0') {
            return "has a metric without a name, or with one of more than 255 bytes";
        }
        if (!is_of_line(key) && !number_in(stk_json_value(line, i), &value)) {
            return "has a value that is no number";
        }
    }
    return NULL;
}

void stk_metrics_note_bad(stk_metrics *m, const char *part, const char *path, const char *why)
{
    if (m->n_bad++ == 0) {
        (void)snprintf(m->bad, sizeof m->bad, "%s of %.180s %s", part, path, why);
    }
}

static void note_bad(stk_metrics *m, const char *path, uint64_t i_line, const char *why)
{
    char line[40];
    (void)snprintf(line, sizeof line, "line %llu", (unsigned long long)i_line);
    stk_metrics_note_bad(m, line, path, why);
}

static int add_values(stk_metrics *m, const stk_json *line, uint32_t rank, stk_err *err)
{
    double time_s = stk_json_get_number(line, "time", -1);
    stk_metric_point point = {.step = stk_json_get_whole(line, "step", -1), .time_ms = -1};
    if (time_s >= 0 && time_s < 1e12) {
        point.time_ms = (int64_t)(time_s * 1000 + 0.5);
    }
    for (uint32_t i = 0; i < stk_json_n_members(line); i++) {
        const char *key = stk_json_key(line, i)->text;
        if (!is_of_line(key) && number_in(stk_json_value(line, i), &point.value)) {
            STK_TRY(stk_metrics_point(m, key, rank, &point, err));
        }
    }
    return 0;
}

/* --- a file --- */

typedef struct reading {
    stk_metrics *m;
    const char *path;
    uint32_t rank;
    uint64_t i_line;
    stk_arena *scratch;
} reading;

static int take_line(reading *r, const char *text, size_t len, stk_err *err)
{
    static const stk_json_limits limits = {LINE_BYTES, LINE_BYTES, 8, .by_program = true};
    stk_json line;
    r->i_line++;
    if (len == 0) {
        return 0;
    }
    stk_arena_reset(r->scratch);
    int rc = stk_json_parse(text, len, r->path, &limits, r->scratch, &line, NULL);
    if (rc == STK_E_NOMEM) {
        return stk_err_nomem(err);
    }
    const char *wrong = rc < 0 ? "is no JSON object" : wrong_with(&line);
    if (wrong != NULL) {
        note_bad(r->m, r->path, r->i_line, wrong);
        return 0;
    }
    return add_values(r->m, &line, r->rank, err);
}

/* Takes the whole lines of `data`; returns how many bytes they have, or an error. */
static int take_lines(reading *r, const char *data, size_t n, size_t *ret_taken, stk_err *err)
{
    const char *at = data, *end = NULL;
    while ((end = memchr(at, '\n', n - (size_t)(at - data))) != NULL) {
        STK_TRY(take_line(r, at, (size_t)(end - at), err));
        at = end + 1;
    }
    *ret_taken = (size_t)(at - data);
    return 0;
}

static int take_all(reading *r, int fd, char *data, stk_err *err)
{
    size_t n = 0, taken = 0;
    for (;;) {
        ssize_t got = read(fd, data + n, PIECE - n);
        if (got < 0) {
            return stk_err_sys(err, STK_E_SYS, errno, "reading %s", r->path);
        }
        n += (size_t)got;
        STK_TRY(take_lines(r, data, n, &taken, err));
        memmove(data, data + taken, n - taken);
        n -= taken;
        if (n == PIECE) { /* a line that never ends */
            note_bad(r->m, r->path, r->i_line + 1, "is longer than 256 KiB");
            return 0;
        }
        if (got == 0) {
            return 0;
        }
    }
}

/* To the begin of the next line. */
static void skip_line(int fd)
{
    char data[TAIL_BYTES];
    ssize_t n = read(fd, data, sizeof data);
    const char *end = n > 0 ? memchr(data, '\n', (size_t)n) : NULL;
    if (end != NULL) {
        (void)lseek(fd, end + 1 - data - n, SEEK_CUR);
    }
}

/* At most the last `most` bytes; 0: all. */
static int add_part(stk_metrics *metrics, const char *path, uint32_t rank, off_t most, stk_err *err)
{
    STK_FD_AUTO fd = stk_file_open_regular(path, O_RDONLY, 0);
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    STK_TEXT_AUTO data = malloc(PIECE);
    reading r = {.m = metrics, .path = path, .rank = rank, .scratch = scratch};
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        return 0;
    }
    if (fd < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "reading %s", path);
    }
    if (data == NULL || scratch == NULL) {
        return stk_err_nomem(err);
    }
    if (most > 0 && lseek(fd, -most, SEEK_END) > 0) {
        skip_line(fd);
    }
    return take_all(&r, fd, data, err);
}

int stk_metrics_add(stk_metrics *metrics, const char *path, uint32_t rank, stk_err *err)
{
    return add_part(metrics, path, rank, 0, err);
}

int stk_metrics_add_last(stk_metrics *metrics, const char *dir, stk_err *err)
{
    STK_TEXT_AUTO path = stk_file_join(dir, STK_METRICS_FILE);
    STK_TRY(stk_err_if_null(path, err));
    return add_part(metrics, path, 0, TAIL_BYTES, err);
}

int stk_metrics_add_attempt(stk_metrics *metrics, const char *dir, stk_err *err)
{
    STK_DIR_AUTO list = {0};
    STK_TEXT_AUTO own = stk_file_join(dir, STK_METRICS_FILE);
    STK_TRY(stk_err_if_null(own, err));
    metrics->n_attempts++;
    STK_TRY(stk_metrics_add(metrics, own, 0, err));
    STK_TEXT_AUTO events = stk_file_join(dir, STK_METRICS_EVENTS);
    STK_TRY(stk_err_if_null(events, err));
    STK_TRY(stk_metrics_add_events(metrics, events, err));
    STK_TRY(stk_dir_read_if(dir, &list, err));
    for (uint32_t i = 0; i < list.n; i++) {
        unsigned rank = 0;
        if (sscanf(list.items[i].name, "rank-%u", &rank) != 1 || rank == 0) {
            continue;
        }
        STK_TEXT_AUTO path = stk_file_printf("%s/%s/" STK_METRICS_FILE, dir, list.items[i].name);
        STK_TRY(stk_err_if_null(path, err));
        STK_TRY(stk_metrics_add(metrics, path, rank, err));
    }
    return 0;
}

/* --- asking --- */

uint32_t stk_metrics_n(const stk_metrics *metrics)
{
    return metrics->n;
}

stk_metric stk_metrics_get(const stk_metrics *metrics, uint32_t i)
{
    const curve *c = &metrics->curves[i];
    stk_metric ret = {.name = c->name,
                      .rank = c->rank,
                      .n = c->n,
                      .points = c->points,
                      .last = NAN,
                      .min = NAN,
                      .max = NAN};
    if (c->n > 0) {
        ret.last = c->points[c->n - 1].value;
    }
    for (uint32_t k = 0; k < c->n; k++) {
        double value = c->points[k].value;
        if (isfinite(value)) {
            ret.min = fmin(ret.min, value); /* the other one if one is NaN */
            ret.max = fmax(ret.max, value);
        }
    }
    return ret;
}

uint32_t stk_metrics_n_bad(const stk_metrics *metrics)
{
    return metrics->n_bad;
}

const char *stk_metrics_bad(const stk_metrics *metrics)
{
    return stk_text_if_any(metrics->bad);
}

/* The smallest and the largest value of points from..to (both there), in their order. NaN is kept:
 * it is what people look for. */
static uint32_t extremes(const stk_metric *m, uint32_t from, uint32_t to, stk_metric_point *ret)
{
    uint32_t low = from, high = from;
    for (uint32_t i = from; i < to; i++) {
        double value = m->points[i].value;
        if (isnan(value) || value < m->points[low].value) {
            low = i;
        }
        if (value > m->points[high].value) {
            high = i;
        }
    }
    ret[0] = m->points[MIN(low, high)];
    ret[1] = m->points[MAX(low, high)];
    return low == high ? 1 : 2;
}

uint32_t stk_metric_thin(const stk_metric *metric, uint32_t n_max, stk_metric_point *ret)
{
    uint32_t n = 0;
    if (metric->n <= n_max) {
        for (; n < metric->n; n++) {
            ret[n] = metric->points[n];
        }
        return n;
    }
    uint32_t n_parts = (n_max - 2) / 2, n_inner = metric->n - 2;
    ret[n++] = metric->points[0];
    for (uint32_t i = 0; i < n_parts; i++) {
        uint32_t from = 1 + (uint32_t)((uint64_t)n_inner * i / n_parts);
        uint32_t to = 1 + (uint32_t)((uint64_t)n_inner * (i + 1) / n_parts);
        n += extremes(metric, from, to, ret + n);
    }
    ret[n++] = metric->points[metric->n - 1];
    return n;
}
