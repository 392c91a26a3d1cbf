/* Private to the runner: the parts of a watch. */
#ifndef STK_RUNNER_PRIVATE_H
#define STK_RUNNER_PRIVATE_H

#include "host/accel/accel.h"
#include "host/runner/runner.h"
#include "host/runner/runner_samples.h"

typedef struct stk_watch_device {
    uint32_t i; /* index in the accel */
    const stk_device *device;
    int64_t base_bytes; /* in use before the task started; -1 unknown */
    int64_t base_energy_mj;
    int64_t peak_bytes;
    int64_t asked_ms;         /* age of the task at the last sample */
    double busy_ms, known_ms; /* busy time, and time for which the load is known */
    double throttled_ms, throttle_known_ms;
    double power_mj, power_known_ms; /* power × time: for devices without an energy counter */
    int32_t peak_temperature_c;
    int32_t n_others; /* processes of others on it at the last sample */
    int context;      /* by the driver: 1 if there ever was one, else 0; -1 unknown */
    bool rose;        /* while only the task had it, its memory use rose or it was busy */
    bool opened;      /* a process of the task had its device node open */
    bool memory_seen; /* its memory use was measured after base_bytes */
    stk_sample_device last;
} watch_device;

/* --- runner_look.c --- */

/* Whether an open device node is our only evidence that the task uses the device. */
bool stk_watch_node_tells(const watch_device *d);
/* Finds the task's processes again and looks only at their open device nodes; true: one is newly
 * open.
 */
bool stk_watch_look_at_nodes(stk_watch *watch);

/* --- runner_devices.c --- */

int stk_watch_devices_init(stk_watch *watch, const stk_lease *lease, stk_err *err);
/* Samples the devices if that is due; true: it did. */
bool stk_watch_devices_ask(stk_watch *watch, int64_t now_ms, int64_t period_ms);
/* Whether the task exceeds its share of a device (over_device). */
bool stk_watch_over_share(stk_watch *watch);

#endif
