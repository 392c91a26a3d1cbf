/* What an hour costs: `prices` of stoker.yaml and of its stacks. */
#include <ctype.h>
#include <string.h>

#include "image/stack/stack_private.h"

enum { CURRENCY_BYTES = 12 };

#define PRICE_MOST 1e9

static int read_device_prices(stk_spec_reader *r, const stk_json *map, stk_prices *ret)
{
    STK_TRY(stk_spec_read_map(r, map, "devices"));
    stk_price *all = stk_arena_array(r->arena, map->n + 1, sizeof *all);
    STK_TRY(stk_err_if_null(all, r->err));
    for (uint32_t i = 0; i < map->n; i++) {
        const stk_json *name = stk_json_key(map, i), *value = stk_json_value(map, i);
        if (name->n == 0) {
            return stk_spec_fail(r, name, "prices: the name of a device is empty");
        }
        if (value->kind != STK_JSON_NULL) {
            stk_price *one = &all[ret->n_devices++];
            one->device = name->text;
            STK_TRY(stk_spec_read_real(r, value, name->text, 0, PRICE_MOST, &one->hour));
        }
    }
    ret->devices = all;
    return 0;
}

static int read_currency(stk_spec_reader *r, const stk_json *node, bool is_of_stack,
                         const char **ret)
{
    STK_TRY(stk_spec_read_text(r, node, "currency", ret));
    if (is_of_stack) {
        return stk_spec_fail(r, node,
                             "'currency' is of the whole file, because costs of several stacks are "
                             "added up; move it to the `prices` beside `stacks`");
    }
    for (const char *c = *ret; *c != '\0'; c++) {
        if (isspace((unsigned char)*c) || iscntrl((unsigned char)*c) ||
            c - *ret >= CURRENCY_BYTES) {
            return stk_spec_fail(r, node, "'currency' is %.40s; it must be a short word, like USD",
                                 *ret);
        }
    }
    return 0;
}

int stk_stack_read_prices(stk_spec_reader *r, const stk_json *map, bool is_of_stack,
                          stk_prices *ret)
{
    enum { GPU, CPU, MEMORY, N_HOURS, CURRENCY = N_HOURS, DEVICES, N_KEYS };
    static const char *const keys[N_KEYS] = {[GPU] = "gpu_hour",
                                             [CPU] = "cpu_hour",
                                             [MEMORY] = "memory_gb_hour",
                                             [CURRENCY] = "currency",
                                             [DEVICES] = "devices"};
    double *const hours[N_HOURS] = {&ret->gpu_hour, &ret->cpu_hour, &ret->memory_gb_hour};
    STK_TRY(stk_spec_read_map(r, map, "prices"));
    for (uint32_t i = 0; i < map->n; i++) {
        const stk_json *value = stk_json_value(map, i);
        int key = stk_spec_key(r, stk_json_key(map, i), keys, N_KEYS, "prices");
        STK_TRY(key);
        if (value->kind == STK_JSON_NULL) {
            continue;
        }
        if (key < N_HOURS) {
            STK_TRY(stk_spec_read_real(r, value, keys[key], 0, PRICE_MOST, hours[key]));
        } else if (key == CURRENCY) {
            STK_TRY(read_currency(r, value, is_of_stack, &ret->currency));
        } else {
            STK_TRY(read_device_prices(r, value, ret));
        }
    }
    return stk_spec_read_json(r, map, &ret->json);
}
