#include "show/cost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "image/stack/stack.h"

#define HOUR_S 3600.0
#define GB 1e9

struct stk_cost {
    stk_arena *arena;
    stk_stack stack; /* has the file's prices, and all its stacks */
};

/* --- the prices --- */

/* A currency alone prices nothing. */
static bool prices_any(const stk_prices *p)
{
    return p->n_devices > 0 || p->gpu_hour >= 0 || p->cpu_hour >= 0 || p->memory_gb_hour >= 0;
}

static bool has_prices(const stk_stack *stack)
{
    bool found = prices_any(&stack->file_prices);
    for (uint32_t i = 0; i < stack->n_all && !found; i++) {
        found = prices_any(&stack->all[i].prices);
    }
    return found;
}

static int find_prices(stk_cost *c, const char *store_path, bool *ret_found, stk_err *err)
{
    const char *slash = store_path == NULL ? NULL : strrchr(store_path, '/');
    if (slash != NULL) {
        const char *above = stk_arena_dupn(c->arena, store_path, (size_t)(slash - store_path));
        STK_TRY(stk_err_if_null(above, err));
        stk_err why = {0};
        int rc = stk_stack_find(stk_text_or(stk_text_if_any(above), "/"), NULL, c->arena, &c->stack,
                                &why);
        if (rc < 0 && rc != STK_E_UNTRUSTED) { /* other users' prices are theirs */
            *err = why;
            return rc;
        }
        *ret_found = rc == 0 && has_prices(&c->stack);
    }
    if (!*ret_found) {
        stk_err why = {0};
        int rc = stk_stack_find(".", NULL, c->arena, &c->stack, &why);
        if (rc < 0 && rc != STK_E_UNTRUSTED) {
            *err = why;
            return rc;
        }
        *ret_found = rc == 0 && has_prices(&c->stack);
    }
    return 0;
}

int stk_cost_open(const char *store_path, stk_cost **ret, stk_err *err)
{
    STK_COST_AUTO c = calloc(1, sizeof *c);
    stk_err why = {0};
    bool found = false;
    *ret = NULL;
    STK_TRY(stk_err_if_null(c, err));
    STK_TRY(stk_err_if_null(c->arena = stk_arena_new(0), err));
    int rc = find_prices(c, store_path, &found, &why);
    if (rc < 0 && err != NULL) {
        *err = why;
    }
    STK_TRY(rc);
    if (found) {
        *ret = c;
        c = NULL;
    }
    return 0;
}

void stk_cost_free(stk_cost *c)
{
    if (c != NULL) {
        stk_arena_free(c->arena);
        free(c);
    }
}

bool stk_cost_same(const stk_cost *a, const stk_cost *b)
{
    if (a == NULL || b == NULL) {
        return a == b;
    }
    bool same = a->stack.n_all == b->stack.n_all &&
                stk_text_same(a->stack.file_prices.json, b->stack.file_prices.json);
    for (uint32_t i = 0; same && i < a->stack.n_all; i++) {
        same = stk_text_same(a->stack.all[i].name, b->stack.all[i].name) &&
               stk_text_same(a->stack.all[i].prices.json, b->stack.all[i].prices.json);
    }
    return same;
}

const char *stk_cost_currency(const stk_cost *c)
{
    return stk_text_or(c->stack.file_prices.currency, "");
}

/* --- what a grant costs an hour --- */

static const stk_stack *stack_of(const stk_cost *c, const char *name)
{
    for (uint32_t i = 0; i < c->stack.n_all; i++) {
        if (stk_text_same(c->stack.all[i].name, name)) {
            return &c->stack.all[i];
        }
    }
    return NULL;
}

/* The stack whose prices hold; NULL: those of the file do. Steps of this machine name none. */
static const stk_stack *stack_of_grant(const stk_cost *c, const char *of_run,
                                       const stk_json *granted)
{
    const char *name = stk_json_get_text(granted, "stack");
    const stk_stack *stack = stack_of(c, stk_text_or(name, of_run));
    if (name == NULL &&
        (of_run == NULL || (stack != NULL && stk_place_is_elsewhere(stack->kind)))) {
        return stack_of(c, "local");
    }
    return stack;
}

/* The price of the longest name that fits, else of any device; -1: there is none. */
static double find_price(const stk_prices *prices, const stk_spec_device *device, bool of_slices)
{
    double hour = -1;
    size_t longest = 0;
    for (uint32_t i = 0; i < prices->n_devices; i++) {
        const stk_price *one = &prices->devices[i];
        size_t n = strlen(one->device);
        if (n > longest && stk_spec_is_slice(one->device) == of_slices &&
            stk_spec_device_fits(one->device, NULL, device)) {
            longest = n;
            hour = one->hour;
        }
    }
    return longest > 0 || of_slices ? hour : prices->gpu_hour;
}

/* A whole device's price counts for a slice by its part of the memory. */
static double slice_hour(const stk_prices *prices, const stk_spec_device *device)
{
    double hour = find_price(prices, device, true);
    stk_spec_device whole = *device;
    whole.profile = NULL;
    whole.memory_bytes = stk_spec_model_memory(device->model);
    if (hour >= 0 || whole.memory_bytes <= 0 || device->memory_bytes <= 0) {
        return hour;
    }
    hour = find_price(prices, &whole, false);
    return MAX(hour * MIN((double)device->memory_bytes / (double)whole.memory_bytes, 1), -1);
}

static double device_hour(const stk_prices *prices, const stk_json *granted)
{
    const stk_spec_device device = {.vendor = stk_json_get_text(granted, "vendor"),
                                    .noun = stk_json_get_text(granted, "noun"),
                                    .model = stk_json_get_text(granted, "model"),
                                    .profile = stk_json_get_text(granted, "profile"),
                                    .memory_bytes =
                                        stk_json_get_whole(granted, "memory_bytes", -1)};
    int64_t share = stk_json_get_whole(granted, "share_bytes", 0);
    double hour =
        device.profile != NULL ? slice_hour(prices, &device) : find_price(prices, &device, false);
    if (hour > 0 && share > 0 && device.memory_bytes > 0) {
        hour *= MIN((double)share / (double)device.memory_bytes, 1);
    }
    return hour;
}

double stk_cost_nodes(const stk_json *start)
{
    return MAX(stk_json_get_number(start, "nodes", 1), 1);
}

static double own_or(double own, double of_file)
{
    if (own >= 0) {
        return own;
    }
    return MAX(of_file, 0);
}

/* What the machine that ran it reports at the end, else what the engine granted at the start. */
static double granted_number(const stk_json *start, const stk_json *end, const char *name)
{
    return MAX(stk_json_get_number(end, name, stk_json_get_number(start, name, 0)), 0);
}

stk_cost_rate stk_cost_of_grant(const stk_cost *c, const char *stack, const stk_json *start,
                                const stk_json *end)
{
    const stk_stack *at = stack_of_grant(c, stack, start);
    const stk_prices *of_file = &c->stack.file_prices, *own = of_file;
    const stk_json *devices = stk_json_get(start, "devices");
    stk_cost_rate rate = {0};
    if (at != NULL) {
        own = &at->prices;
    }
    if (stk_json_n_items(devices) == 0) {
        devices = stk_json_get(end, "devices");
    }
    for (uint32_t i = 0; i < stk_json_n_items(devices); i++) {
        double hour = device_hour(own, stk_json_item(devices, i));
        if (hour < 0) {
            hour = device_hour(of_file, stk_json_item(devices, i));
        }
        if (hour < 0) {
            return (stk_cost_rate){-1, -1, 0};
        }
        rate.devices += hour;
    }
    double n = stk_cost_nodes(start);
    rate.devices *= n;
    double cpus = granted_number(start, end, "cpu_count");
    double cpu_hour = own_or(own->cpu_hour, of_file->cpu_hour);
    rate.cpu = cpus > 0 ? 0 : cpu_hour;
    rate.all = rate.devices + n * cpus * cpu_hour;
    rate.all += n * granted_number(start, end, "memory_bytes") / GB *
                own_or(own->memory_gb_hour, of_file->memory_gb_hour);
    return rate;
}

/* --- a run --- */

typedef struct sum {
    const stk_cost *cost;
    const char *stack;
    bool is_live;
    int64_t now_ms;
    double amount; /* -1: unknown */
    bool is_short; /* CPU time isn't known before its attempt ends */
} sum;

/* Whether the step, or the stack for it, asks for devices. */
static bool asks_devices(const sum *s, const stk_view_task *task, const stk_json *start)
{
    const stk_resources *own = &task->step->settings->resources;
    const stk_stack *at = stack_of_grant(s->cost, s->stack, start);
    return stk_spec_n_devices(own) > 0 ||
           (!stk_spec_asks_none(own) && at != NULL && at->defaults != NULL &&
            at->defaults->base.gpu_count > 0);
}

/* The time that an attempt ran; -1: unknown. */
static double seconds_of(const sum *s, const stk_view_attempt *attempt, bool is_last, double wall_s)
{
    int64_t end_ms = attempt->ended_ms;
    if (wall_s >= 0) {
        return wall_s;
    }
    if (attempt->end_data == NULL) {
        end_ms = s->now_ms;
        if (!is_last || !s->is_live) { /* an engine that is gone saw no end */
            return -1;
        }
    }
    return attempt->waits != NULL ? 0 : (double)MAX(end_ms - attempt->started_ms, 0) / 1000;
}

/* The CPU time that an attempt used; -1: unknown. One that this machine couldn't start used none.
 */
static double cpu_seconds_of(const stk_view_attempt *attempt, const stk_json *start,
                             const stk_json *end, double seconds)
{
    const stk_json *used = stk_json_get(end, "used");
    bool is_here = stk_json_get_text(start, "stack") == NULL;
    if (seconds == 0 || (attempt->end_data != NULL && is_here && used == NULL)) {
        return 0;
    }
    return stk_cost_nodes(start) > 1 ? -1 : stk_json_get_number(used, "cpu_s", -1);
}

static void add_attempt(sum *s, const stk_view_task *task, const stk_view_attempt *attempt,
                        bool is_last)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *start = stk_json_get(stk_json_read(scratch, attempt->start_data), "granted");
    const stk_json *end = stk_json_read(scratch, attempt->end_data);
    const stk_json *got = stk_json_get(end, "granted");
    bool is_known = stk_json_get_text(start, "stack") == NULL || stk_json_get(got, "devices");
    stk_cost_rate rate = stk_cost_of_grant(s->cost, s->stack, start, got);
    double wall_s = -1;
    if (is_known) { /* without a report from there, its engine only knows when it was gone */
        wall_s = stk_json_get_number(stk_json_get(end, "used"), "wall_s", -1);
    }
    double seconds = seconds_of(s, attempt, is_last, wall_s);
    if (seconds != 0 && !is_known && asks_devices(s, task, start)) {
        rate.all = -1;
    }
    double cpu_s = cpu_seconds_of(attempt, start, end, seconds);
    bool is_short = rate.cpu > 0 && cpu_s < 0;
    bool runs = attempt->end_data == NULL && is_last && s->is_live;
    if (rate.all < 0 || (rate.all > 0 && seconds < 0) || (is_short && !runs)) {
        s->amount = -1;
        return;
    }
    s->is_short = s->is_short || is_short;
    s->amount += (rate.all * MAX(seconds, 0) + rate.cpu * MAX(cpu_s, 0)) / HOUR_S;
}

static void add_task_cost(sum *s, const stk_view_task *task)
{
    const stk_view_attempt last = {.started_ms = task->started_ms,
                                   .ended_ms = task->ended_ms,
                                   .start_data = task->start_data,
                                   .end_data = task->end_data,
                                   .waits = task->waits,
                                   .before = task->earlier};
    for (const stk_view_attempt *a = &last; a != NULL && s->amount >= 0; a = a->before) {
        if (a->started_ms > 0) {
            add_attempt(s, task, a, a == &last);
        }
    }
}

double stk_cost_of_run(const stk_cost *c, const stk_view *view, int64_t now_ms)
{
    const stk_view_run *run = stk_view_get_run(view);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    if (c == NULL || run->simulated || arena == NULL) {
        return -1;
    }
    sum s = {.cost = c,
             .stack = stk_json_get_text(stk_json_read(arena, run->host), "stack"),
             .is_live = stk_view_is_live(view),
             .now_ms = now_ms};
    for (uint32_t i = 0; i < stk_view_n_tasks(view) && s.amount >= 0; i++) {
        add_task_cost(&s, stk_view_get_task(view, i));
    }
    return s.is_short && s.amount == 0 ? -1 : s.amount;
}

/* --- for people --- */

const char *stk_cost_text(double amount, const char *currency, char *buf, size_t size)
{
    const char *blank = stk_text_when(*currency != '\0', " ");
    if (amount > 0 && amount < 0.1) {
        (void)snprintf(buf, size, "%.2g%s%s", amount, blank, currency);
    } else {
        (void)snprintf(buf, size, "%.2f%s%s", amount, blank, currency);
    }
    return buf;
}

const char *stk_cost_say(const stk_view *view, int64_t now_ms, char *buf, size_t size)
{
    STK_COST_AUTO cost = NULL;
    if (stk_cost_open(stk_view_get_run(view)->store, &cost, NULL) < 0) {
        return NULL; /* `stoker runs` says what is wrong with the file */
    }
    double amount = stk_cost_of_run(cost, view, now_ms);
    return amount < 0 ? NULL : stk_cost_text(amount, stk_cost_currency(cost), buf, size);
}
