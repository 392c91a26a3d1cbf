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
    const json_t *said;
    const char *field, *aggregate;
    bool is_binned;
    double first, step; /* of the bins */
} channel;

typedef struct reading {
    vega_chart *chart;
    vega_layer *layer;
    const json_t *values;
    channel channels[VEGA_N];
} reading;

static const char *const names[] = {"x", "y", "color"};

static const char *any_text(const json_t *value)
{
    return json_is_object(value) ? stk_doc_text(value, "text") : json_string_value(value);
}

/* --- marks and channels --- */

static bool read_mark(reading *r, const json_t *mark)
{
    static const struct {
        const char *name;
        vega_mark mark;
    } marks[] = {{"bar", MARK_BAR},       {"line", MARK_LINE},   {"trail", MARK_LINE},
                 {"area", MARK_AREA},     {"point", MARK_POINT}, {"circle", MARK_CIRCLE},
                 {"square", MARK_CIRCLE}, {"tick", MARK_TICK},   {"rect", MARK_RECT},
                 {"rule", MARK_RULE}};
    const char *name = json_is_object(mark) ? stk_doc_text(mark, "type") : json_string_value(mark);
    const json_t *point = json_object_get(mark, "point");
    r->layer->dots = json_is_object(point) || json_is_true(point);
    for (size_t i = 0; name != NULL && i < sizeof marks / sizeof *marks; i++) {
        if (strcmp(name, marks[i].name) == 0) {
            r->layer->mark = marks[i].mark;
            return true;
        }
    }
    return unfit(r->chart, "the mark '%s'", stk_text_or(name, ""));
}

/* Channels that would change the picture and aren't known are not passed over. */
static bool check_channels(reading *r, const json_t *encoding)
{
    static const char *const dull[] = {"x",      "y",     "color", "tooltip",
                                       "detail", "order", "key",   "href"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)encoding, key, value)
    {
        bool known =
            json_object_get(value, "field") == NULL && json_object_get(value, "aggregate") == NULL;
        for (size_t i = 0; i < sizeof dull / sizeof *dull; i++) {
            known |= strcmp(key, dull[i]) == 0;
        }
        if (!known) {
            return unfit(r->chart, "the channel '%s'", key);
        }
        if (json_object_get(value, "timeUnit") != NULL) {
            return unfit(r->chart, "the channel '%s' has a timeUnit", key);
        }
    }
    return true;
}

static vega_kind kind_of(const reading *r, const channel *c)
{
    const char *type = stk_doc_text(c->said, "type");
    if (type != NULL) {
        if (strcmp(type, "quantitative") == 0) {
            return SCALE_LINEAR;
        }
        return strcmp(type, "temporal") == 0 ? SCALE_TIME : SCALE_BAND;
    }
    const json_t *first =
        c->field != NULL ? json_object_get(json_array_get(r->values, 0), c->field) : NULL;
    return c->aggregate != NULL || c->is_binned || json_is_number(first) ? SCALE_LINEAR
                                                                         : SCALE_BAND;
}

static void title_of(vega_scale *scale, const channel *c)
{
    const json_t *axis = json_object_get(c->said, "axis"), *title = json_object_get(axis, "title");
    const json_t *legend = json_object_get(c->said, "legend");
    if (title == NULL) {
        title = json_object_get(legend, "title");
    }
    if (title == NULL) {
        title = json_object_get(c->said, "title");
    }
    scale->untitled |= json_is_null(title);
    if (scale->title[0] != '\0' || json_is_null(title)) {
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
    const json_t *said = json_object_get(c->said, "scale");
    const json_t *domain = json_object_get(said, "domain");
    const char *type = stk_doc_text(said, "type");
    vega_kind kind = kind_of(r, c);
    if (scale->kind != SCALE_NONE && scale->kind != kind) {
        return unfit(r->chart, "its layers have different kinds of %s", names[ch]);
    }
    scale->kind = kind;
    scale->log = type != NULL && strcmp(type, "log") == 0;
    if (type != NULL && !scale->log && kind == SCALE_LINEAR && strcmp(type, "linear") != 0) {
        return unfit(r->chart, "a scale of the type '%s'", type);
    }
    scale->no_zero |= json_is_false(json_object_get(said, "zero")) || c->is_binned;
    if (scale->sort == NULL) {
        scale->sort = json_object_get(c->said, "sort");
    }
    if (kind == SCALE_LINEAR && json_is_number(json_array_get(domain, 0)) &&
        json_is_number(json_array_get(domain, 1))) {
        scale->min = json_number_value(json_array_get(domain, 0));
        scale->max = json_number_value(json_array_get(domain, 1));
        scale->known = scale->fixed = scale->max > scale->min;
    }
    title_of(scale, c);
    return true;
}

static bool read_channel(reading *r, int ch, const json_t *said)
{
    static const char *const known[] = {"count", "sum", "mean", "average", "min", "max"};
    channel *c = &r->channels[ch];
    const json_t *bin = json_object_get(said, "bin");
    *c = (channel){.said = said,
                   .field = stk_doc_text(said, "field"),
                   .aggregate = stk_doc_text(said, "aggregate"),
                   .is_binned = json_is_true(bin) || json_is_object(bin)};
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

static double time_of(const json_t *value)
{
    struct tm tm = {.tm_mday = 1};
    const char *text = json_string_value(value);
    int month = 1, n = 0;
    double second = 0;
    if (json_is_number(value)) {
        return json_number_value(value) / 1000;
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
static double band_of(vega_chart *chart, vega_scale *scale, const json_t *value)
{
    char number[40];
    const char *text = json_string_value(value);
    uint64_t at = 0;
    if (json_is_number(value)) {
        (void)snprintf(number, sizeof number, "%.10g", json_number_value(value));
    }
    if (text == NULL && json_is_boolean(value)) {
        text = json_is_true(value) ? "true" : "false";
    } else if (text == NULL) {
        text = json_is_number(value) ? number : "null";
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
    const json_t *bin = json_object_get(c->said, "bin");
    double min = INFINITY, max = -INFINITY;
    for (size_t i = 0; i < json_array_size(r->values); i++) {
        const json_t *value = json_object_get(json_array_get(r->values, i), c->field);
        if (json_is_number(value)) {
            min = fmin(min, json_number_value(value));
            max = fmax(max, json_number_value(value));
        }
    }
    double most = stk_doc_number(bin, "maxbins", 10);
    c->step = stk_doc_number(bin, "step", 0);
    if (!(c->step > 0)) {
        c->step = stk_vega_step(max - min, most >= 1 && most < 500 ? (int)most : 10);
    }
    c->first = isfinite(min) ? floor(min / c->step) * c->step : 0;
}

/* False: nothing is known of this record on that channel. */
static bool read_value(reading *r, int ch, const json_t *record, vega_row *row)
{
    const channel *c = &r->channels[ch];
    vega_scale *scale = &r->chart->scales[ch];
    const json_t *value = c->field != NULL ? json_object_get(record, c->field) : NULL;
    double v = 0;
    if (c->aggregate != NULL && strcmp(c->aggregate, "count") == 0) {
        v = 1;
    } else if (scale->kind == SCALE_BAND) {
        v = band_of(r->chart, scale, value);
    } else if (scale->kind == SCALE_TIME) {
        v = time_of(value);
    } else {
        v = json_is_number(value) ? json_number_value(value) : NAN;
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
    size_t n = json_array_size(r->values);
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
            known = !r->layer->has[ch] || read_value(r, ch, json_array_get(r->values, i), &row);
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
    const char *how = json_string_value(scale->sort);
    uint32_t k = 0;
    if (json_is_null(scale->sort) || json_is_object(scale->sort)) {
        return;
    }
    if (json_is_array(scale->sort)) { /* those that it names first, then the others */
        const char **sorted = stk_arena_array(chart->arena, scale->n, sizeof *sorted);
        bool *taken = stk_arena_array(chart->arena, scale->n, sizeof *taken);
        for (size_t i = 0; sorted != NULL && taken != NULL && i <= json_array_size(scale->sort);
             i++) {
            const char *name = json_string_value(json_array_get(scale->sort, i));
            bool rest = i == json_array_size(scale->sort);
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

static const json_t *values_of(const json_t *spec, const json_t *outer)
{
    const json_t *data = json_object_get(spec, "data");
    const char *name = stk_doc_text(data, "name");
    const json_t *sets = json_object_get(spec, "datasets");
    if (sets == NULL) {
        sets = json_object_get(outer, "datasets");
    }
    return name != NULL ? json_object_get(sets, name) : json_object_get(data, "values");
}

static bool read_layer(vega_chart *chart, const json_t *spec, const json_t *outer)
{
    reading r = {.chart = chart, .layer = &chart->layers[chart->n_layers]};
    const json_t *own = json_object_get(spec, "encoding");
    const json_t *shared = json_object_get(outer, "encoding");
    if (chart->n_layers == VEGA_MAX_LAYERS) {
        return unfit(chart, "more than %d layers", VEGA_MAX_LAYERS);
    }
    if (json_object_get(spec, "transform") != NULL || json_object_get(spec, "layer") != NULL) {
        return unfit(chart, "its data is transformed");
    }
    r.values = values_of(spec, outer);
    r.values = r.values != NULL ? r.values : values_of(outer, outer);
    if (!json_is_array(r.values)) {
        return unfit(chart, "its data is not in the specification");
    }
    if (!read_mark(&r, json_object_get(spec, "mark")) || !check_channels(&r, own) ||
        !check_channels(&r, shared)) {
        return false;
    }
    for (int ch = 0; ch < VEGA_N; ch++) {
        const json_t *said = json_object_get(own, names[ch]);
        if (said == NULL) {
            said = json_object_get(shared, names[ch]);
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
    const json_t *stack_said = json_object_get(r.channels[layer->along].said, "stack");
    bool solid = layer->mark == MARK_BAR || layer->mark == MARK_AREA;
    layer->stacks =
        solid && layer->has[VEGA_COLOR] && !json_is_null(stack_said) && !json_is_false(stack_said);
    if (json_is_string(stack_said) && strcmp(json_string_value(stack_said), "zero") != 0) {
        return unfit(chart, "it stacks by '%s'", json_string_value(stack_said));
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

bool stk_vega_read(vega_chart *chart, const json_t *spec)
{
    static const char *const others[] = {"hconcat", "vconcat", "concat",   "facet",
                                         "repeat",  "spec",    "transform"};
    const json_t *layers = json_object_get(spec, "layer");
    const char *title = any_text(json_object_get(spec, "title"));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (json_object_get(spec, others[i]) != NULL) {
            return unfit(chart, "it has '%s'", others[i]);
        }
    }
    (void)snprintf(chart->title, sizeof chart->title, "%s", stk_text_or(title, ""));
    bool ok = json_is_array(layers) || read_layer(chart, spec, spec);
    for (size_t i = 0; ok && i < json_array_size(layers); i++) {
        ok = read_layer(chart, json_array_get(layers, i), spec);
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

bool stk_svg_vega(const json_t *spec, bool narrow, stk_buf *out, char *why, size_t why_size)
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
