/* This host's capacity, for the plan, and who holds it. */
#include "base/buf.h"
#include "base/text.h"
#include "host/fit/fit.h"
#include "sys/nodes.h"
#include "sys/proc.h"

int stk_fit_capacity(stk_accel *accel, const char *where, stk_arena *arena, stk_capacity *ret,
                     stk_err *err)
{
    uint32_t n = accel == NULL ? 0 : stk_accel_n_devices(accel);
    stk_capacity_device *devices = stk_arena_array(arena, (size_t)n + 1, sizeof *devices);
    uint8_t *links = stk_arena_array(arena, (size_t)n * n + 1, sizeof *links);
    if (devices == NULL || links == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < n; i++) {
        const stk_device *d = stk_accel_device(accel, i);
        devices[i] = (stk_capacity_device){.vendor = stk_arena_dup(arena, d->vendor),
                                           .noun = stk_arena_dup(arena, d->noun),
                                           .model = stk_arena_dup(arena, d->model),
                                           .profile = stk_arena_dup(arena, d->profile),
                                           .memory_bytes = d->memory_bytes,
                                           .numa = d->numa,
                                           .parent = d->parent,
                                           .usable = d->usable,
                                           .trouble = stk_arena_dup(arena, d->trouble)};
        for (uint32_t k = 0; k < n; k++) {
            links[(size_t)i * n + k] =
                i == k ? STK_LINK_SAME : (uint8_t)stk_accel_link(accel, i, k, NULL);
        }
    }
    stk_nodes nodes;
    STK_TRY(stk_nodes_read(arena, &nodes, err));
    *ret = (stk_capacity){.devices = devices,
                          .n_devices = n,
                          .links = links,
                          .where = where,
                          .remark = accel == NULL ? NULL : stk_accel_get_remark(accel),
                          .backend = "local",
                          .cpu_milli = (int64_t)stk_proc_n_cpus() * 1000,
                          .memory_bytes = stk_proc_memory_bytes(),
                          .n_nodes = nodes.n_others + 1,
                          .how_to_nodes = stk_arena_printf(
                              arena, "lower it, or name other machines in %s", nodes.path)};
    return 0;
}

const char *stk_fit_holders(stk_accel *accel, const stk_devset *devices, stk_arena *arena)
{
    int64_t free_bytes[STK_LIMIT_DEVICES];
    const char *outside[STK_LIMIT_DEVICES] = {0};
    STK_BUF_AUTO text = STK_BUF_INIT(64u << 10);
    (void)stk_lease_free(accel, arena, free_bytes, outside, NULL);
    for (uint32_t i = 0; i < stk_accel_n_devices(accel); i++) {
        const stk_device *d = stk_accel_device(accel, i);
        const char *who = outside[i];
        if (!stk_devset_has(devices, i)) {
            continue;
        }
        if (who == NULL) {
            who = stk_lease_who(accel, i, arena);
        }
        stk_buf_separate(&text, "; ");
        stk_buf_printf(&text, "%s %d: %s", stk_text_or(d->noun, "device"), d->index,
                       stk_text_or(who, "a process that has just released it"));
    }
    return stk_buf_keep(&text, arena);
}
