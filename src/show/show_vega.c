/* Vega-Lite: from a specification and its data to rows with numbers on shared scales. */
#include "show/show_vega.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"

static bool unfit(vega_chart *chart, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool unfit(vega_chart *chart, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(chart->why, chart->why_size, fmt, args);
    va_end(args);
    return false;
}

double stk_vega_step(double extent, int n)
{
    double rough = extent > 0 ? extent / n : 1, power = pow(10, floor(log10(rough)));
    double part = rough / power;
    static const double steps[] = {1, 2, 5};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if (part <= steps[i] + 1e-7) {
            return power * steps[i];
        }
    }
    return power * 10;
}

/* A channel of a layer, as the specification says it. */
typedef struct channel {
    const stk_json *said;
    const char *field, *aggregate;
    bool is_binned;
    double first, step; /* of the bins */
} channel;

typedef struct reading {
    vega_chart *chart;
    vega_layer *layer;
    const stk_json *values;
    channel channels[VEGA_N];
} reading;

static const char *const names[] = {"x", "y", "color"};

static const char *any_text(const stk_json *value)
{
    return stk_json_is_map(value) ? stk_json_get_text(value, "text") : stk_json_text(value);
}

/* --- marks and channels --- */

static bool read_mark(reading *r, const stk_json *mark)
{
    static const struct {
        const char *name;
        vega_mark mark;
    } marks[] = {{"bar", MARK_BAR},       {"line", MARK_LINE},   {"trail", MARK_LINE},
                 {"area", MARK_AREA},     {"point", MARK_POINT}, {"circle", MARK_CIRCLE},
                 {"square", MARK_CIRCLE}, {"tick", MARK_TICK},   {"rect", MARK_RECT},
                 {"rule", MARK_RULE}};
    const char *name =
        stk_json_is_map(mark) ? stk_json_get_text(mark, "type") : stk_json_text(mark);
    const stk_json *point = stk_json_get(mark, "point");
    r->layer->dots = stk_json_is_map(point) || stk_json_is_true(point);
    for (size_t i = 0; name != NULL && i < sizeof marks / sizeof *marks; i++) {
        if (strcmp(name, marks[i].name) == 0) {
            r->layer->mark = marks[i].mark;
            return true;
        }
    }
    return unfit(r->chart, "the mark '%s'", stk_text_or(name, ""));
}

/* Channels that would change the picture and aren't known are not passed over. */
static bool check_channels(reading *r, const stk_json *encoding)
{
    static const char *const dull[] = {"x",      "y",     "color", "tooltip",
                                       "detail", "order", "key",   "href"};
    for (uint32_t k = 0; k < stk_json_n_members(encoding); k++) {
        const char *key = stk_json_key(encoding, k)->text;
        const stk_json *value = stk_json_value(encoding, k);
        bool known =
            stk_json_get(value, "field") == NULL && stk_json_get(value, "aggregate") == NULL;
        for (size_t i = 0; i < sizeof dull / sizeof *dull; i++) {
            known |= strcmp(key, dull[i]) == 0;
        }
        if (!known) {
            return unfit(r->chart, "the channel '%s'", key);
        }
        if (stk_json_get(value, "timeUnit") != NULL) {
            return unfit(r->chart, "the channel '%s' has a timeUnit", key);
        }
    }
    return true;
}

static vega_kind kind_of(const reading *r, const channel *c)
{
    const char *type = stk_json_get_text(c->said, "type");
    if (type != NULL) {
        if (strcmp(type, "quantitative") == 0) {
            return SCALE_LINEAR;
        }
        return strcmp(type, "temporal") == 0 ? SCALE_TIME : SCALE_BAND;
    }
    const stk_json *first =
        c->field != NULL ? stk_json_get(stk_json_item(r->values, 0), c->field) : NULL;
    return c->aggregate != NULL || c->is_binned || stk_json_is_number(first) ? SCALE_LINEAR
                                                                             : SCALE_BAND;
}

static void title_of(vega_scale *scale, const channel *c)
{
    const stk_json *axis = stk_json_get(c->said, "axis"), *title = stk_json_get(axis, "title");
    const stk_json *legend = stk_json_get(c->said, "legend");
    if (title == NULL) {
        title = stk_json_get(legend, "title");
    }
    if (title == NULL) {
        title = stk_json_get(c->said, "title");
    }
    scale->untitled |= stk_json_is_kind(title, STK_JSON_NULL);
    if (scale->title[0] != '\0' || stk_json_is_kind(title, STK_JSON_NULL)) {
        return;
    }
    if (any_text(title) != NULL) {
        (void)snprintf(scale->title, sizeof scale->title, "%s", any_text(title));
    } else if (c->aggregate != NULL) {
        (void)snprintf(scale->title, sizeof scale->title, "%s%s%s", c->aggregate,
                       c->field ? " of " : "", stk_text_or(c->field, " of records"));
    } else {
        (void)snprintf(scale->title, sizeof scale->title, "%s", stk_text_or(c->field, ""));
    }
}

static bool read_scale(reading *r, int ch)
{
    channel *c = &r->channels[ch];
    vega_scale *scale = &r->chart->scales[ch];
    const stk_json *said = stk_json_get(c->said, "scale");
    const stk_json *domain = stk_json_get(said, "domain");
    const char *type = stk_json_get_text(said, "type");
    vega_kind kind = kind_of(r, c);
    if (scale->kind != SCALE_NONE && scale->kind != kind) {
        return unfit(r->chart, "its layers have different kinds of %s", names[ch]);
    }
    scale->kind = kind;
    scale->log = type != NULL && strcmp(type, "log") == 0;
    if (type != NULL && !scale->log && kind == SCALE_LINEAR && strcmp(type, "linear") != 0) {
        return unfit(r->chart, "a scale of the type '%s'", type);
    }
    scale->no_zero |= stk_json_is_false(stk_json_get(said, "zero")) || c->is_binned;
    if (scale->sort == NULL) {
        scale->sort = stk_json_get(c->said, "sort");
    }
    if (kind == SCALE_LINEAR && stk_json_is_number(stk_json_item(domain, 0)) &&
        stk_json_is_number(stk_json_item(domain, 1))) {
        scale->min = stk_json_number(stk_json_item(domain, 0), 0);
        scale->max = stk_json_number(stk_json_item(domain, 1), 0);
        scale->known = scale->fixed = scale->max > scale->min;
    }
    title_of(scale, c);
    return true;
}

static bool read_channel(reading *r, int ch, const stk_json *said)
{
    static const char *const known[] = {"count", "sum", "mean", "average", "min", "max"};
    channel *c = &r->channels[ch];
    const stk_json *bin = stk_json_get(said, "bin");
    *c = (channel){.said = said,
                   .field = stk_json_get_text(said, "field"),
                   .aggregate = stk_json_get_text(said, "aggregate"),
                   .is_binned = stk_json_is_true(bin) || stk_json_is_map(bin)};
    bool fits = c->aggregate == NULL;
    for (size_t i = 0; !fits && i < sizeof known / sizeof *known; i++) {
        fits = strcmp(c->aggregate, known[i]) == 0;
    }
    if (!fits) {
        return unfit(r->chart, "the aggregate '%s'", c->aggregate);
    }
    r->layer->has[ch] = c->field != NULL || c->aggregate != NULL;
    return !r->layer->has[ch] || read_scale(r, ch);
}

/* --- values --- */

static double time_of(const stk_json *value)
{
    struct tm tm = {.tm_mday = 1};
    const char *text = stk_json_text(value);
    int month = 1, n = 0;
    double second = 0;
    if (stk_json_is_number(value)) {
        return stk_json_number(value, 0) / 1000;
    }
    if (text == NULL || sscanf(text, "%4d-%2d-%2d%n", &tm.tm_year, &month, &tm.tm_mday, &n) < 1) {
        return NAN;
    }
    if (n > 0 && (text[n] == 'T' || text[n] == ' ')) {
        (void)sscanf(text + n + 1, "%2d:%2d:%lf", &tm.tm_hour, &tm.tm_min, &second);
    }
    tm.tm_year -= 1900;
    tm.tm_mon = month - 1;
    return (double)timegm(&tm) + second;
}

/* The category's number; -1: there are too many. */
static double band_of(vega_chart *chart, vega_scale *scale, const stk_json *value)
{
    char number[40];
    const char *text = stk_json_text(value);
    uint64_t at = 0;
    if (stk_json_is_number(value)) {
        (void)snprintf(number, sizeof number, "%.10g", stk_json_number(value, 0));
    }
    if (text == NULL && stk_json_is_kind(value, STK_JSON_BOOL)) {
        text = stk_json_is_true(value) ? "true" : "false";
    } else if (text == NULL) {
        text = stk_json_is_number(value) ? number : "null";
    }
    if (stk_map_get(&scale->index, text, &at)) {
        return (double)at;
    }
    if (scale->names == NULL) {
        scale->names = stk_arena_array(chart->arena, VEGA_MAX_BANDS, sizeof *scale->names);
        scale->sums = stk_arena_array(chart->arena, VEGA_MAX_BANDS, sizeof *scale->sums);
    }
    if (scale->names == NULL || scale->sums == NULL || scale->n == VEGA_MAX_BANDS) {
        return -1;
    }
    scale->names[scale->n] = stk_arena_dup(chart->arena, text);
    return scale->names[scale->n] == NULL ||
                   stk_map_put(&scale->index, scale->names[scale->n], scale->n) < 0
               ? -1
               : (double)scale->n++;
}

/* The bins of a channel: from its extent in the data. */
static void set_bins(reading *r, channel *c)
{
    const stk_json *bin = stk_json_get(c->said, "bin");
    double min = INFINITY, max = -INFINITY;
    for (size_t i = 0; i < stk_json_n_items(r->values); i++) {
        const stk_json *value = stk_json_get(stk_json_item(r->values, i), c->field);
        if (stk_json_is_number(value)) {
            min = fmin(min, stk_json_number(value, 0));
            max = fmax(max, stk_json_number(value, 0));
        }
    }
    double most = stk_json_get_number(bin, "maxbins", 10);
    c->step = stk_json_get_number(bin, "step", 0);
    if (!(c->step > 0)) {
        c->step = stk_vega_step(max - min, most >= 1 && most < 500 ? (int)most : 10);
    }
    c->first = isfinite(min) ? floor(min / c->step) * c->step : 0;
}

/* False: nothing is known of this record on that channel. */
static bool read_value(reading *r, int ch, const stk_json *record, vega_row *row)
{
    const channel *c = &r->channels[ch];
    vega_scale *scale = &r->chart->scales[ch];
    const stk_json *value = c->field != NULL ? stk_json_get(record, c->field) : NULL;
    double v = 0;
    if (c->aggregate != NULL && strcmp(c->aggregate, "count") == 0) {
        v = 1;
    } else if (scale->kind == SCALE_BAND) {
        v = band_of(r->chart, scale, value);
    } else if (scale->kind == SCALE_TIME) {
        v = time_of(value);
    } else {
        v = stk_json_is_number(value) ? stk_json_number(value, 0) : NAN;
    }
    row->at[ch] = row->end[ch] = v;
    if (c->is_binned && isfinite(v)) {
        row->at[ch] = c->first + floor((v - c->first) / c->step) * c->step;
        row->end[ch] = row->at[ch] + c->step;
    }
    return isfinite(v) && (scale->kind != SCALE_LINEAR || !scale->log || v > 0);
}

/* Rows of the same place are put together where a channel has an aggregate. */
static bool add_row(reading *r, const vega_row *row, stk_map *groups)
{
    vega_layer *layer = r->layer;
    int summed = -1;
    char key[200] = "";
    for (int ch = 0; ch < VEGA_N; ch++) {
        if (r->channels[ch].aggregate != NULL) {
            summed = ch;
        } else if (layer->has[ch]) {
            size_t n = strlen(key);
            (void)snprintf(key + n, sizeof key - n, "%.17g|", row->at[ch]);
        }
    }
    uint64_t at = layer->n;
    bool is_new = summed < 0 || !stk_map_get(groups, key, &at);
    if (is_new) {
        layer->rows[layer->n] = *row;
        vega_row *made = &layer->rows[layer->n++];
        made->sum = made->n = 0;
        made->least = INFINITY;
        made->most = -INFINITY;
        if (summed < 0) {
            return true;
        }
        const char *kept = stk_arena_dup(r->chart->arena, key);
        if (kept == NULL || stk_map_put(groups, kept, at) < 0) {
            return false;
        }
    }
    vega_row *group = &layer->rows[at];
    const char *how = r->channels[summed].aggregate;
    double v = row->at[summed];
    group->sum += v;
    group->n++;
    group->least = fmin(group->least, v);
    group->most = fmax(group->most, v);
    group->at[summed] = group->sum;
    if (strcmp(how, "min") == 0) {
        group->at[summed] = group->least;
    } else if (strcmp(how, "max") == 0) {
        group->at[summed] = group->most;
    } else if (how[0] == 'm' || how[0] == 'a') {
        group->at[summed] = group->sum / group->n;
    }
    group->end[summed] = group->at[summed];
    return true;
}

static bool read_rows(reading *r)
{
    size_t n = stk_json_n_items(r->values);
    stk_map groups = {0};
    bool ok = true;
    if (n > VEGA_MAX_ROWS) {
        return unfit(r->chart, "it has %zu rows, more than %d", n, VEGA_MAX_ROWS);
    }
    r->layer->rows = stk_arena_array(r->chart->arena, n + 1, sizeof *r->layer->rows);
    for (int ch = 0; ch < VEGA_N; ch++) {
        if (r->layer->has[ch] && r->channels[ch].is_binned) {
            set_bins(r, &r->channels[ch]);
        }
    }
    for (size_t i = 0; ok && r->layer->rows != NULL && i < n; i++) {
        vega_row row = {0};
        bool known = true;
        for (int ch = 0; known && ch < VEGA_N; ch++) {
            known = !r->layer->has[ch] || read_value(r, ch, stk_json_item(r->values, i), &row);
            if (known && row.at[ch] < 0 && r->chart->scales[ch].kind == SCALE_BAND) {
                stk_map_done(&groups);
                return unfit(r->chart, "more than %d categories of %s", VEGA_MAX_BANDS, names[ch]);
            }
        }
        ok = !known || add_row(r, &row, &groups);
    }
    stk_map_done(&groups);
    return ok && r->layer->rows != NULL ? true : unfit(r->chart, "out of memory");
}

/* --- scales --- */

static int by_name(const void *a, const void *b)
{
    const char *s = *(const char *const *)a, *t = *(const char *const *)b;
    char *s_end, *t_end;
    double x = strtod(s, &s_end), y = strtod(t, &t_end);
    bool numbers = *s != '\0' && *t != '\0' && *s_end == '\0' && *t_end == '\0';
    return numbers ? (x > y) - (x < y) : strcmp(s, t);
}

typedef struct summed {
    const char *name;
    double sum;
} summed;

static int by_sum(const void *a, const void *b)
{
    double x = ((const summed *)a)->sum, y = ((const summed *)b)->sum;
    return (x > y) - (x < y);
}

/* Names in the order that the specification wants: by name where it says nothing. */
static void order_names(vega_chart *chart, vega_scale *scale)
{
    const char *how = stk_json_text(scale->sort);
    uint32_t k = 0;
    if (stk_json_is_kind(scale->sort, STK_JSON_NULL) || stk_json_is_map(scale->sort)) {
        return;
    }
    if (stk_json_is_list(scale->sort)) { /* those that it names first, then the others */
        const char **sorted = stk_arena_array(chart->arena, scale->n, sizeof *sorted);
        bool *taken = stk_arena_array(chart->arena, scale->n, sizeof *taken);
        for (size_t i = 0; sorted != NULL && taken != NULL && i <= stk_json_n_items(scale->sort);
             i++) {
            const char *name = stk_json_text(stk_json_item(scale->sort, i));
            bool rest = i == stk_json_n_items(scale->sort);
            for (uint32_t j = 0; j < scale->n; j++) {
                if (!taken[j] && (rest || (name != NULL && strcmp(name, scale->names[j]) == 0))) {
                    taken[j] = true;
                    sorted[k++] = scale->names[j];
                }
            }
        }
        if (k == scale->n) {
            scale->names = sorted;
        }
        return;
    }
    bool down = how != NULL && (how[0] == '-' || strcmp(how, "descending") == 0);
    bool sums = how != NULL && (strcmp(how + (how[0] == '-'), "x") == 0 ||
                                strcmp(how + (how[0] == '-'), "y") == 0);
    summed *pairs = sums ? stk_arena_array(chart->arena, scale->n, sizeof *pairs) : NULL;
    for (uint32_t i = 0; pairs != NULL && i < scale->n; i++) {
        pairs[i] = (summed){scale->names[i], scale->sums[i]};
    }
    if (pairs != NULL) {
        qsort(pairs, scale->n, sizeof *pairs, by_sum);
    } else {
        qsort(scale->names, scale->n, sizeof *scale->names, by_name);
    }
    for (uint32_t i = 0; pairs != NULL && i < scale->n; i++) {
        scale->names[i] = pairs[i].name;
    }
    for (uint32_t i = 0; down && i < scale->n / 2; i++) {
        const char *swapped = scale->names[i];
        scale->names[i] = scale->names[scale->n - 1 - i];
        scale->names[scale->n - 1 - i] = swapped;
    }
}

static bool sort_bands(vega_chart *chart, int ch)
{
    vega_scale *scale = &chart->scales[ch];
    if (scale->kind != SCALE_BAND || scale->n == 0) {
        return true;
    }
    const char **before = stk_arena_array(chart->arena, scale->n, sizeof *before);
    double *now = stk_arena_array(chart->arena, scale->n, sizeof *now);
    if (before == NULL || now == NULL) {
        return unfit(chart, "out of memory");
    }
    memcpy(before, scale->names, scale->n * sizeof *before);
    for (uint32_t l = 0; l < chart->n_layers; l++) {
        for (uint32_t i = 0; ch != VEGA_COLOR && i < chart->layers[l].n; i++) {
            const vega_row *row = &chart->layers[l].rows[i];
            scale->sums[(uint32_t)row->at[ch]] += row->at[ch == VEGA_X ? VEGA_Y : VEGA_X];
        }
    }
    order_names(chart, scale);
    for (uint32_t i = 0; i < scale->n; i++) {
        (void)stk_map_put(&scale->index, scale->names[i], i);
    }
    for (uint32_t i = 0; i < scale->n; i++) {
        uint64_t at = 0;
        (void)stk_map_get(&scale->index, before[i], &at);
        now[i] = (double)at;
    }
    for (uint32_t l = 0; l < chart->n_layers; l++) {
        for (uint32_t i = 0; chart->layers[l].has[ch] && i < chart->layers[l].n; i++) {
            vega_row *row = &chart->layers[l].rows[i];
            row->at[ch] = row->end[ch] = now[(uint32_t)row->at[ch]];
        }
    }
    return true;
}

static int by_place(const void *a, const void *b)
{
    const vega_row *s = a, *t = b;
    double own = s->sum, other = t->sum;
    if (!(own < other) && !(own > other)) {
        own = s->at[VEGA_COLOR];
        other = t->at[VEGA_COLOR];
    }
    return (own > other) - (own < other);
}

/* Rows by place, then by colour; where they stack each begins where the one before it ends. */
static void stack(vega_layer *layer)
{
    int across = layer->along == VEGA_X ? VEGA_Y : VEGA_X;
    double up = 0, down = 0;
    for (uint32_t i = 0; i < layer->n; i++) {
        layer->rows[i].sum = layer->rows[i].at[across]; /* what they are sorted by */
    }
    qsort(layer->rows, layer->n, sizeof *layer->rows, by_place);
    for (uint32_t i = 0; layer->stacks && i < layer->n; i++) {
        vega_row *row = &layer->rows[i];
        if (i == 0 || row->sum > layer->rows[i - 1].sum) {
            up = down = 0;
        }
        double *sum = row->at[layer->along] >= 0 ? &up : &down;
        row->from = *sum;
        *sum += row->at[layer->along];
        row->at[layer->along] = row->end[layer->along] = *sum;
    }
}

static void widen(vega_scale *scale, double v)
{
    if (!scale->fixed && isfinite(v)) {
        scale->min = scale->known ? fmin(scale->min, v) : v;
        scale->max = scale->known ? fmax(scale->max, v) : v;
        scale->known = true;
    }
}

static void set_extent(vega_chart *chart, int ch)
{
    vega_scale *scale = &chart->scales[ch];
    bool zero = ch != VEGA_COLOR && !scale->no_zero && !scale->log && scale->kind == SCALE_LINEAR;
    for (uint32_t l = 0; l < chart->n_layers; l++) {
        const vega_layer *layer = &chart->layers[l];
        bool solid = (layer->mark == MARK_BAR || layer->mark == MARK_AREA) && layer->along == ch;
        for (uint32_t i = 0; layer->has[ch] && i < layer->n; i++) {
            widen(scale, layer->rows[i].at[ch]);
            widen(scale, layer->rows[i].end[ch]);
            if ((solid || zero) && !scale->log && scale->kind == SCALE_LINEAR) {
                widen(scale, 0);
            }
        }
    }
    if (scale->kind == SCALE_LINEAR && !scale->fixed && ch != VEGA_COLOR && scale->known) {
        double lo = scale->log ? log10(scale->min) : scale->min;
        double hi = scale->log ? log10(scale->max) : scale->max;
        double step = scale->log ? 1 : stk_vega_step(hi - lo, 6);
        lo = floor(lo / step + 1e-9) * step;
        hi = ceil(hi / step - 1e-9) * step;
        scale->min = scale->log ? pow(10, lo) : lo;
        scale->max = scale->log ? pow(10, hi) : hi;
    }
    if (scale->known && scale->max <= scale->min) {
        scale->max = scale->min + 1;
    }
}

/* --- the whole --- */

static const stk_json *values_of(const stk_json *spec, const stk_json *outer)
{
    const stk_json *data = stk_json_get(spec, "data");
    const char *name = stk_json_get_text(data, "name");
    const stk_json *sets = stk_json_get(spec, "datasets");
    if (sets == NULL) {
        sets = stk_json_get(outer, "datasets");
    }
    return name != NULL ? stk_json_get(sets, name) : stk_json_get(data, "values");
}

static bool read_layer(vega_chart *chart, const stk_json *spec, const stk_json *outer)
{
    reading r = {.chart = chart, .layer = &chart->layers[chart->n_layers]};
    const stk_json *own = stk_json_get(spec, "encoding");
    const stk_json *shared = stk_json_get(outer, "encoding");
    if (chart->n_layers == VEGA_MAX_LAYERS) {
        return unfit(chart, "more than %d layers", VEGA_MAX_LAYERS);
    }
    if (stk_json_get(spec, "transform") != NULL || stk_json_get(spec, "layer") != NULL) {
        return unfit(chart, "its data is transformed");
    }
    r.values = values_of(spec, outer);
    r.values = r.values != NULL ? r.values : values_of(outer, outer);
    if (!stk_json_is_list(r.values)) {
        return unfit(chart, "its data is not in the specification");
    }
    if (!read_mark(&r, stk_json_get(spec, "mark")) || !check_channels(&r, own) ||
        !check_channels(&r, shared)) {
        return false;
    }
    for (int ch = 0; ch < VEGA_N; ch++) {
        const stk_json *said = stk_json_get(own, names[ch]);
        if (said == NULL) {
            said = stk_json_get(shared, names[ch]);
        }
        if (said != NULL && !read_channel(&r, ch, said)) {
            return false;
        }
    }
    vega_layer *layer = r.layer;
    bool lies = layer->has[VEGA_X] && chart->scales[VEGA_X].kind == SCALE_LINEAR &&
                !r.channels[VEGA_X].is_binned &&
                (!layer->has[VEGA_Y] || chart->scales[VEGA_Y].kind != SCALE_LINEAR ||
                 r.channels[VEGA_Y].is_binned);
    layer->along = lies ? VEGA_X : VEGA_Y;
    const stk_json *stack_said = stk_json_get(r.channels[layer->along].said, "stack");
    bool solid = layer->mark == MARK_BAR || layer->mark == MARK_AREA;
    layer->stacks = solid && layer->has[VEGA_COLOR] &&
                    !stk_json_is_kind(stack_said, STK_JSON_NULL) && !stk_json_is_false(stack_said);
    if (stk_json_is_kind(stack_said, STK_JSON_TEXT) &&
        strcmp(stk_json_text(stack_said), "zero") != 0) {
        return unfit(chart, "it stacks by '%s'", stk_json_text(stack_said));
    }
    if (!layer->has[VEGA_X] && !layer->has[VEGA_Y]) {
        return unfit(chart, "it has neither x nor y");
    }
    if (solid && chart->scales[layer->along].kind != SCALE_LINEAR) {
        return unfit(chart, "its bars have no amounts");
    }
    bool ok = read_rows(&r);
    chart->n_layers += ok;
    return ok;
}

bool stk_vega_read(vega_chart *chart, const stk_json *spec)
{
    static const char *const others[] = {"hconcat", "vconcat", "concat",   "facet",
                                         "repeat",  "spec",    "transform"};
    const stk_json *layers = stk_json_get(spec, "layer");
    const char *title = any_text(stk_json_get(spec, "title"));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (stk_json_get(spec, others[i]) != NULL) {
            return unfit(chart, "it has '%s'", others[i]);
        }
    }
    (void)snprintf(chart->title, sizeof chart->title, "%s", stk_text_or(title, ""));
    bool ok = stk_json_is_list(layers) || read_layer(chart, spec, spec);
    for (size_t i = 0; ok && i < stk_json_n_items(layers); i++) {
        ok = read_layer(chart, stk_json_item(layers, i), spec);
    }
    for (int ch = 0; ok && ch < VEGA_N; ch++) {
        ok = sort_bands(chart, ch);
    }
    uint32_t n = 0;
    for (uint32_t i = 0; ok && i < chart->n_layers; i++) {
        stack(&chart->layers[i]);
        n += chart->layers[i].n;
    }
    for (int ch = 0; ok && ch < VEGA_N; ch++) {
        set_extent(chart, ch);
    }
    return ok && (n > 0 || unfit(chart, "it has no data"));
}

bool stk_svg_vega(const stk_json *spec, bool narrow, stk_buf *out, char *why, size_t why_size)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    vega_chart *chart = arena != NULL ? stk_arena_array(arena, 1, sizeof *chart) : NULL;
    (void)snprintf(why, why_size, "out of memory");
    if (chart == NULL) {
        return false;
    }
    chart->arena = arena;
    chart->why = why;
    chart->why_size = why_size;
    bool ok = stk_vega_read(chart, spec);
    if (ok) {
        stk_vega_draw(chart, narrow, out);
    }
    for (int ch = 0; ch < VEGA_N; ch++) {
        stk_map_done(&chart->scales[ch].index);
    }
    return ok;
}
