/* Describes requests and devices, for messages and `stoker plan`. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "base/units.h"
#include "model/plan/plan_private.h"

static const stk_plan_kind kinds[] = {
    {"nvidia", "GPU", "GPUs", true, false},
    {"amd", "GPU", "GPUs", true, false},
    {"intel", "GPU", "GPUs", true, false},
    {"aws", "Neuron device", "Neuron devices", false, false},
    {"google", "TPU chip", "TPU chips", false, true},
    {"habana", "Gaudi card", "Gaudi cards", false, false},
};

const stk_plan_kind *stk_plan_kind_of(const char *vendor)
{
    for (size_t i = 0; vendor != NULL && i < sizeof kinds / sizeof *kinds; i++) {
        if (strcasecmp(vendor, kinds[i].vendor) == 0) {
            return &kinds[i];
        }
    }
    return &kinds[0];
}

const stk_plan_kind *stk_plan_kind_asked(const stk_capacity *cap, const stk_alternative *want)
{
    const char *vendor = stk_spec_vendor_of(want);
    if (vendor != NULL || cap == NULL || cap->n_devices == 0) {
        return stk_plan_kind_of(vendor);
    }
    /* Without a class or vendor: the kind that is here, if there is only one. */
    const stk_plan_kind *kind = stk_plan_kind_of(cap->devices[0].vendor);
    for (uint32_t i = 1; i < cap->n_devices; i++) {
        if (strcmp(stk_plan_kind_of(cap->devices[i].vendor)->noun, kind->noun) != 0) {
            return stk_plan_kind_of(NULL);
        }
    }
    return kind;
}

const char *stk_plan_kind_text(const stk_alternative *want, char *buf, size_t size)
{
    int n = 0;
    buf[0] = '\0';
    if (want->gpu_class != NULL) {
        n = snprintf(buf, size, "gpu_class %.100s", want->gpu_class);
    }
    if (want->gpu_vendor != NULL) {
        (void)snprintf(buf + n, size - (size_t)n, "%sgpu_vendor %s", stk_text_when(n > 0, ", "),
                       want->gpu_vendor);
    }
    return buf;
}

const char *stk_plan_ask_text(const stk_capacity *cap, const stk_alternative *want, char *buf,
                              size_t size)
{
    char kind[160];
    char memory[32];
    const stk_plan_kind *k = stk_plan_kind_asked(cap, want);
    long long n = (long long)want->gpu_count;
    char what[64];
    if (want->gpu_memory_bytes > 0) {
        char times[32] = "";
        if (n > 1) {
            (void)snprintf(times, sizeof times, "%lld × ", n);
        }
        (void)snprintf(what, sizeof what, "%s%s of %s memory", times,
                       stk_units_format_memory(want->gpu_memory_bytes, memory, sizeof memory),
                       k->noun);
    } else {
        (void)snprintf(what, sizeof what, "%lld %s", n, n == 1 ? k->noun : k->nouns);
    }
    int n_what = snprintf(buf, size, "%s", what);
    if (want->gpu_class != NULL || want->gpu_vendor != NULL) {
        (void)snprintf(buf + n_what, size - (size_t)n_what, " (%s)",
                       stk_plan_kind_text(want, kind, sizeof kind));
    }
    return buf;
}

/* --- devices --- */

static bool is_same_device(const stk_capacity_device *a, const stk_capacity_device *b)
{
    const char *texts[][2] = {{a->model, b->model}, {a->profile, b->profile}, {a->noun, b->noun}};
    for (size_t i = 0; i < 3; i++) {
        const char *one = stk_text_or(texts[i][0], "");
        const char *other = stk_text_or(texts[i][1], "");
        if (strcmp(one, other) != 0) {
            return false;
        }
    }
    return true;
}

static void device_text(const stk_capacity_device *d, uint32_t n, stk_buf *out)
{
    const char *model = stk_text_or(d->model, stk_text_or(d->noun, "unknown device"));
    if (n > 1) {
        stk_buf_printf(out, "%u × ", n);
    }
    stk_buf_printf(out, "%.100s", model);
    if (d->profile != NULL && (d->model == NULL || strstr(d->model, d->profile) == NULL)) {
        stk_buf_printf(out, " %.40s", d->profile);
    }
}

const char *stk_plan_inventory(const stk_capacity *cap, const stk_devset *which,
                               struct stk_arena *arena)
{
    enum { MOST = 4 };
    STK_BUF_AUTO out = STK_BUF_INIT(4096);
    stk_devset told = {0};
    uint32_t n_told = 0;
    for (uint32_t i = 0; i < cap->n_devices; i++) {
        const stk_capacity_device *d = &cap->devices[i];
        uint32_t n = 0;
        if (stk_devset_has(&told, i) || (which != NULL ? !stk_devset_has(which, i) : !d->usable)) {
            continue;
        }
        for (uint32_t k = i; k < cap->n_devices; k++) {
            bool counts = which != NULL ? stk_devset_has(which, k) : cap->devices[k].usable;
            if (counts && is_same_device(d, &cap->devices[k])) {
                stk_devset_add(&told, k);
                n++;
            }
        }
        if (n_told < MOST) {
            stk_buf_separate(&out, ", ");
            device_text(d, n, &out);
        }
        n_told++;
    }
    if (n_told > MOST) {
        stk_buf_printf(&out, " and %u more kinds", n_told - MOST);
    }
    if (n_told == 0) {
        return stk_arena_dup(arena, "none");
    }
    return stk_buf_keep(&out, arena);
}
