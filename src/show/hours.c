#include "show/hours.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <time.h>

#include "base/json.h"
#include "base/map.h"
#include "base/text.h"
#include "show/show_private.h"

enum { ALL_RUNS_OF_STORE = 1000000, DAY_MS = 86400000 };

typedef struct sums {
    stk_hours_sum *items;
    uint32_t n, cap;
    stk_map by_name;
} sums;

struct stk_hours {
    stk_arena *arena;
    int64_t since_ms;
    sums by[STK_HOURS_N];
    stk_hours_sum total;
    char currency[16];
    bool has_prices;
};

/* A run whose events are read. */
typedef struct hours_reader {
    stk_hours *hours;
    const stk_cost *cost;           /* or NULL */
    const char *stack;              /* of the run */
    const char *names[STK_HOURS_N]; /* but the day's and the device's */
    struct started {
        int64_t ms;
        const char *model;
        double nodes; /* that were granted the same */
        double hour;  /* of all their devices; below 0: no price */
    } * started;      /* by task */
    uint32_t n_started;
    bool is_simulated;
    int rc;
} hours_reader;

int stk_hours_new(int64_t since_ms, stk_hours **ret, stk_err *err)
{
    stk_hours *hours = calloc(1, sizeof *hours);
    STK_TRY(stk_err_if_null(hours, err));
    hours->since_ms = since_ms;
    hours->total.name = "all";
    hours->arena = stk_arena_new(0);
    if (hours->arena == NULL) {
        free(hours);
        return stk_err_nomem(err);
    }
    *ret = hours;
    return 0;
}

void stk_hours_free(stk_hours *hours)
{
    if (hours == NULL) {
        return;
    }
    for (int i = 0; i < STK_HOURS_N; i++) {
        stk_map_done(&hours->by[i].by_name);
    }
    stk_arena_free(hours->arena);
    free(hours);
}

/* --- sums --- */

static void add_sum(stk_hours_sum *to, const stk_hours_sum *more, double part)
{
    to->held_s += more->held_s * part;
    to->known_s += more->known_s * part;
    to->busy_s += more->busy_s * part;
    to->energy_j += more->energy_j * part;
    to->has_energy = to->has_energy || more->has_energy;
    to->cost += more->cost * part;
    to->wasted_cost += more->wasted_cost * part;
    to->unpriced_s += more->unpriced_s * part;
    to->n_tasks++;
}

static int add_to(stk_hours *hours, stk_hours_by by, const char *name, const stk_hours_sum *more,
                  double part)
{
    sums *s = &hours->by[by];
    uint64_t i = s->n;
    if (!stk_map_get(&s->by_name, name, &i)) {
        stk_hours_sum *items = stk_arena_grow(hours->arena, s->items, s->n, sizeof *items, &s->cap);
        const char *kept = stk_arena_dup(hours->arena, name);
        if (items == NULL || kept == NULL || stk_map_put(&s->by_name, kept, i) < 0) {
            return STK_E_NOMEM;
        }
        s->items = items;
        items[s->n++] = (stk_hours_sum){.name = kept};
    }
    add_sum(&s->items[i], more, part);
    return 0;
}

static void day_of(int64_t ms, char text[32], int64_t *ret_end_ms)
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm = {0};
    (void)localtime_r(&seconds, &tm);
    (void)strftime(text, 32, "%Y-%m-%d", &tm);
    tm.tm_mday++;
    tm.tm_hour = tm.tm_min = tm.tm_sec = 0;
    tm.tm_isdst = -1;
    int64_t end = (int64_t)mktime(&tm) * 1000;
    *ret_end_ms = end > ms ? end : ms + DAY_MS;
}

/* Each day gets the part of the time that lies in it. */
static int add_days(stk_hours *hours, int64_t from_ms, int64_t to_ms, const stk_hours_sum *more)
{
    double whole = (double)MAX(to_ms - from_ms, 1);
    int64_t end_ms = 0;
    char day[32];
    for (int64_t at = from_ms; at == from_ms || at < to_ms; at = end_ms) {
        day_of(at, day, &end_ms);
        double part = (double)(MIN(end_ms, MAX(to_ms, from_ms + 1)) - at) / whole;
        STK_TRY(add_to(hours, STK_HOURS_DAY, day, more, part));
    }
    return 0;
}

/* --- events --- */

/* Other machines report their devices at the end only, for one of `nodes`. */
static void read_grant(const hours_reader *r, const stk_json *granted, double nodes,
                       struct started *ret)
{
    const stk_json *first = stk_json_item(stk_json_get(granted, "devices"), 0);
    if (first == NULL) {
        return;
    }
    const char *model = stk_text_or(stk_json_get_text(first, "model"), "unknown device");
    ret->model = stk_arena_dup(r->hours->arena, model);
    if (r->cost != NULL) {
        ret->hour = stk_cost_of_grant(r->cost, r->stack, granted, NULL).devices * nodes;
    }
}

static int note_start(hours_reader *r, const stk_event_row *row)
{
    uint32_t before = r->n_started;
    if (row->task == UINT32_MAX) {
        return 0;
    }
    STK_TRY(
        stk_array_reserve(&r->started, &r->n_started, (uint64_t)row->task + 1, sizeof *r->started));
    if (r->n_started > before) {
        memset(r->started + before, 0, (r->n_started - before) * sizeof *r->started);
    }
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    struct started *start = &r->started[row->task];
    const stk_json *granted = stk_json_get(stk_json_read(scratch, row->data), "granted");
    *start = (struct started){.ms = row->time_ms, .nodes = stk_cost_nodes(granted), .hour = -1};
    read_grant(r, granted, 1, start);
    return 0;
}

static void add_price(const struct started *start, double wall_s, stk_hours_sum *more)
{
    if (start->hour < 0 || wall_s < 0) {
        more->unpriced_s = more->held_s;
        return;
    }
    more->cost = start->hour * wall_s / 3600;
    more->wasted_cost = more->cost * (more->known_s - more->busy_s) / more->held_s;
}

static int add_end(hours_reader *r, const stk_event_row *row)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *end = stk_json_read(scratch, row->data), *used = stk_json_get(end, "used");
    double busy = stk_json_get_number(used, "gpu_busy_s", -1);
    double energy = stk_json_get_number(used, "energy_j", -1);
    stk_hours_sum more = {.held_s = stk_json_get_number(used, "gpu_held_s", -1)};
    if (more.held_s <= 0 || row->time_ms < r->hours->since_ms || row->task >= r->n_started) {
        return 0;
    }
    if (busy >= 0) {
        more.known_s = more.held_s;
        more.busy_s = MIN(busy, more.held_s);
    }
    more.has_energy = energy >= 0;
    more.energy_j = MAX(energy, 0);
    struct started *start = &r->started[row->task];
    double nodes = MAX(start->nodes, 1);
    more.held_s *= nodes;
    read_grant(r, stk_json_get(end, "granted"), nodes, start);
    add_price(start, stk_json_get_number(used, "wall_s", -1), &more);
    add_sum(&r->hours->total, &more, 1);
    STK_TRY(add_days(r->hours, start->ms > 0 ? start->ms : row->time_ms, row->time_ms, &more));
    r->names[STK_HOURS_DEVICE] = stk_text_or(start->model, "unknown device");
    for (int by = STK_HOURS_USER; by < STK_HOURS_N; by++) {
        STK_TRY(add_to(r->hours, (stk_hours_by)by, r->names[by], &more, 1));
    }
    return 0;
}

static int read_hours_event(void *arg, const stk_event_row *row)
{
    hours_reader *r = arg;
    if (row->kind == STK_EV_RUN_CREATED) {
        STK_ARENA_AUTO scratch = stk_arena_new(0);
        const stk_json *host = stk_json_get(stk_json_read(scratch, row->data), "host");
        r->is_simulated = stk_json_get_text(host, "accel") != NULL;
        r->stack = stk_arena_dup(r->hours->arena, stk_json_get_text(host, "stack"));
    } else if (row->kind == STK_EV_TASK_STARTED) {
        r->rc = note_start(r, row);
    } else if (row->kind == STK_EV_TASK_SUCCEEDED || row->kind == STK_EV_TASK_FAILED) {
        r->rc = add_end(r, row);
    }
    return r->is_simulated || r->rc < 0;
}

static const char *owner_of(stk_store *store, const char *run, stk_arena *arena)
{
    struct stat st;
    const char *folder = stk_store_run_folder(store, run, arena);
    if (folder == NULL || stat(folder, &st) < 0) {
        return "unknown";
    }
    const struct passwd *user = getpwuid(st.st_uid);
    return user != NULL ? stk_arena_dup(arena, user->pw_name)
                        : stk_arena_printf(arena, "%u", (unsigned)st.st_uid);
}

/* Whether these prices can be added to those of other stores. */
static bool take_currency(stk_hours *hours, const stk_cost *cost)
{
    if (cost != NULL && !hours->has_prices) {
        hours->has_prices = true;
        (void)snprintf(hours->currency, sizeof hours->currency, "%s", stk_cost_currency(cost));
    }
    return cost != NULL && strcmp(hours->currency, stk_cost_currency(cost)) == 0;
}

int stk_hours_add(stk_hours *hours, stk_store *store, const stk_cost *cost, stk_err *err)
{
    stk_run_row *rows = NULL;
    uint32_t n = 0;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_TRY(stk_store_list_runs(store, NULL, NULL, ALL_RUNS_OF_STORE, arena, &rows, &n, err));
    if (!take_currency(hours, cost)) {
        cost = NULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        bool is_old = rows[i].ended_ms != 0 && rows[i].ended_ms < hours->since_ms;
        if (is_old) {
            continue;
        }
        hours_reader r = {.hours = hours,
                          .cost = cost,
                          .names = {[STK_HOURS_USER] = owner_of(store, rows[i].id, arena),
                                    [STK_HOURS_PIPELINE] = rows[i].pipeline,
                                    [STK_HOURS_STORE] = stk_store_path(store)}};
        STK_TRY(stk_err_if_null(r.names[STK_HOURS_USER], err));
        int rc = stk_store_events(store, rows[i].id, 0, read_hours_event, &r, err);
        free(r.started);
        if (r.rc < 0) {
            return stk_err_nomem(err);
        }
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* --- asking --- */

static int by_day(const void *a, const void *b)
{
    return strcmp(((const stk_hours_sum *)a)->name, ((const stk_hours_sum *)b)->name);
}

static int by_held(const void *a, const void *b)
{
    double x = ((const stk_hours_sum *)a)->held_s, y = ((const stk_hours_sum *)b)->held_s;
    return x == y ? by_day(a, b) : (x < y) - (x > y);
}

const stk_hours_sum *stk_hours_get(stk_hours *hours, stk_hours_by by, uint32_t *ret_n)
{
    static int (*const orders[])(const void *, const void *) = {by_held, by_day};
    sums *s = &hours->by[by];
    *ret_n = s->n;
    if (s->n > 0) { /* the map is of no use afterwards, so nothing may be added any more */
        qsort(s->items, s->n, sizeof *s->items, orders[by == STK_HOURS_DAY]);
    }
    return s->items;
}

stk_hours_sum stk_hours_total(const stk_hours *hours)
{
    return hours->total;
}

const char *stk_hours_currency(const stk_hours *hours)
{
    return hours->has_prices ? hours->currency : NULL;
}
