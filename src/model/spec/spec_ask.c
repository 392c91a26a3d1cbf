/* The device alternatives of a request, and the device count of each. */
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "model/spec/spec.h"

static stk_alternative lay_over(stk_alternative rest, const stk_alternative *over)
{
    if (over->gpu_count > 0) {
        rest.gpu_count = over->gpu_count;
    }
    if (over->gpu_memory_bytes != -1) {
        rest.gpu_memory_bytes = over->gpu_memory_bytes;
    }
    rest.gpu_class = stk_text_or(over->gpu_class, rest.gpu_class);
    rest.gpu_vendor = stk_text_or(over->gpu_vendor, rest.gpu_vendor);
    return rest;
}

uint32_t stk_spec_alternatives(const stk_resources *res, stk_alternative ret[STK_LIMIT_ASKS])
{
    const stk_alternative rest = res->base;
    bool asks = rest.gpu_count > 0 || rest.gpu_memory_bytes != -1 || rest.gpu_class != NULL ||
                rest.gpu_vendor != NULL || res->n_any_of > 0;
    if (stk_spec_asks_none(res) || !asks) {
        return 0;
    }
    uint32_t n = 0;
    do {
        if (res->n_any_of > 0) {
            ret[n] = lay_over(rest, &res->any_of[n]);
        } else {
            ret[n] = rest;
        }
        if (ret[n].gpu_count <= 0) {
            ret[n].gpu_count = 1;
        }
        n++;
    } while (n < res->n_any_of && n < STK_LIMIT_ASKS);
    return n;
}

uint32_t stk_spec_n_devices(const stk_resources *res)
{
    stk_alternative all[STK_LIMIT_ASKS];
    if (stk_spec_alternatives(res, all) <= 0) {
        return 0;
    }
    return (uint32_t)all[0].gpu_count;
}

const char *stk_spec_vendor_of(const stk_alternative *want)
{
    return stk_text_or(want->gpu_vendor, stk_spec_vendor_of_class(want->gpu_class));
}

/* --- the same in the words of a backend --- */

static int64_t number_of(const stk_json *options, const char *name)
{
    const stk_json *value = stk_json_get(options, name);
    const char *text = value == NULL ? NULL : stk_json_text(value);
    int64_t n = 0;
    if (text != NULL) {
        char *end = NULL;
        n = strtoll(text, &end, 10);
        return *end == '\0' ? n : 0;
    }
    return value != NULL && stk_json_int(value, &n) ? n : 0;
}

void stk_spec_lay_options(const stk_json *options, stk_resources *res)
{
    static const struct {
        const char *name, *vendor;
        bool is_number;
    } words[] = {
        {"gpu", NULL, true},       {"gpu_type", NULL, false}, /* the value of a label, which is no
                                                                 gpu_class elsewhere */
        {"trainium", "aws", true}, {"inferentia", "aws", true},      {"neuroncores", "aws", false},
        {"tpu", "google", true},   {"tpu_topology", "google", false}};
    static const char *const gpus[] = {"nvidia", "amd", "intel"};
    if (options == NULL || options->kind != STK_JSON_MAP || stk_spec_asks_none(res)) {
        return;
    }
    bool is_named =
        res->base.gpu_vendor != NULL || res->base.gpu_class != NULL || res->n_any_of > 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const stk_json *value = stk_json_get(options, words[i].name);
        int64_t n = number_of(options, words[i].name);
        bool is_said = words[i].is_number ? n > 0 : value != NULL && value->kind != STK_JSON_NULL;
        if (!is_said) {
            continue;
        }
        if (words[i].is_number) {
            res->base.gpu_count = MAX(res->base.gpu_count, n);
        } else if (words[i].vendor == NULL && stk_spec_n_devices(res) == 0) {
            res->base.gpu_count = 1;
        }
        if (words[i].vendor != NULL && !is_named) {
            res->base.gpu_vendor = words[i].vendor;
        }
    }
    const char *vendor = stk_json_text(stk_json_get(options, "gpu_vendor"));
    is_named = is_named || res->base.gpu_vendor != NULL;
    for (size_t i = 0; vendor != NULL && i < 3 && number_of(options, "gpu") > 0 && !is_named; i++) {
        if (strcmp(vendor, gpus[i]) == 0) {
            res->base.gpu_vendor = gpus[i];
        }
    }
}
