/* Private to the runner: the parts of a watch. */
#ifndef STK_RUNNER_PRIVATE_H
#define STK_RUNNER_PRIVATE_H

#include "host/accel/accel.h"
#include "host/runner/runner.h"
#include "host/runner/runner_samples.h"

typedef struct stk_watch_device {
    uint32_t i; /* in the accel */
    const stk_device *device;
    int64_t base_bytes; /* in use before the task started; -1 unknown */
    int64_t base_energy_mj;
    int64_t peak_bytes;
    int64_t asked_ms;         /* age of the task at the last answer */
    double busy_ms, known_ms; /* busy, and time of which that is known */
    double throttled_ms, throttle_known_ms;
    double power_mj, power_known_ms; /* power × time: where there is no counter */
    int32_t peak_temperature_c;
    int32_t n_others; /* processes on it at the last answer that weren't the task's */
    int context;      /* as the driver tells: 1 once, else 0, else -1 */
    bool rose;        /* its memory in use rose while the task had it alone, or it was busy */
    bool opened;      /* a process of the task had its node open */
    bool memory_seen; /* its use was known besides base_bytes */
    stk_sample_device last;
} watch_device;

/* --- runner_look.c --- */

/* Whether a process of the task opens its node is all that can be known of it. */
bool stk_watch_node_tells(const watch_device *d);
/* Only at the nodes that the task's processes, found anew, have open; true: one was opened since.
 */
bool stk_watch_look_at_nodes(stk_watch *watch);

/* --- runner_devices.c --- */

int stk_watch_devices_init(stk_watch *watch, const stk_lease *lease, stk_err *err);
/* True: they were asked just now. */
bool stk_watch_devices_ask(stk_watch *watch, int64_t now_ms, int64_t period_ms);
/* The share of over_device is passed. */
bool stk_watch_over_share(stk_watch *watch);

#endif
