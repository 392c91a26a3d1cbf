/* What this host can give, as the plan wants to know it. */
#include "exec/exec_private.h"
#include "sys/proc.h"

int stk_exec_capacity(stk_accel *accel, stk_arena *arena, stk_capacity *ret_capacity, stk_err *err)
{
    uint32_t n = accel == NULL ? 0 : stk_accel_n_devices(accel);
    const char **models = stk_arena_array(arena, n + 1, sizeof *models);
    const char **vendors = stk_arena_array(arena, n + 1, sizeof *vendors);
    if (models == NULL || vendors == NULL) {
        return stk_exec_nomem(err);
    }
    stk_capacity c = {.where = "this machine",
                      .backend = "local",
                      .cpu_milli = (int64_t)stk_proc_n_cpus() * 1000,
                      .memory_bytes = stk_proc_memory_bytes(),
                      .device_models = models,
                      .device_vendors = vendors};
    for (uint32_t i = 0; i < n; i++) {
        const stk_device *d = stk_accel_device(accel, i);
        if (d->usable) {
            models[c.n_devices] = stk_arena_dup(arena, d->model);
            vendors[c.n_devices++] = stk_arena_dup(arena, d->vendor);
        } else {
            c.n_devices_broken++;
            c.device_trouble = stk_arena_dup(arena, d->trouble);
        }
    }
    *ret_capacity = c;
    return 0;
}
