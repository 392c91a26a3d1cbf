/* This host's capacity, for the plan. */
#include "run/exec/exec.h"
#include "sys/nodes.h"
#include "sys/proc.h"

int stk_exec_capacity(stk_accel *accel, stk_arena *arena, stk_capacity *ret_capacity, stk_err *err)
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
    *ret_capacity =
        (stk_capacity){.devices = devices,
                       .n_devices = n,
                       .links = links,
                       .where = "this machine",
                       .remark = accel == NULL ? NULL : stk_accel_get_remark(accel),
                       .backend = "local",
                       .cpu_milli = (int64_t)stk_proc_n_cpus() * 1000,
                       .memory_bytes = stk_proc_memory_bytes(),
                       .n_nodes = nodes.n_others + 1,
                       .how_to_nodes = stk_arena_printf(
                           arena, "lower it, or name other machines in %s", nodes.path)};
    return 0;
}
