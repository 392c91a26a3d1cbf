/* The devices of a watched task: samples them, sums up their use, checks the task's share. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <time.h>

#include "host/runner/runner_private.h"

enum {
    ASK_MS = 100,             /* drivers don't update more often */
    ASK_MAX_MS = 1000,        /* the longest time to notice that a share is exceeded */
    CPU_SHARE = 1000,         /* sampling may cost a thousandth of a CPU */
    CONTEXT_BYTES = 32 << 20, /* less than any context, more than a driver's bookkeeping */
    FULL_PERCENT = 95,
    MAX_STRANGERS = 64,
    SHARE_UNIT = 1 << 20 /* a share is rounded down to it */
};

/* The throttle reasons that mean an unwanted slowdown. */
#define SLOWED                                                                                     \
    (STK_THROTTLE_HW_SLOWDOWN | STK_THROTTLE_SW_THERMAL | STK_THROTTLE_HW_THERMAL |                \
     STK_THROTTLE_HW_POWER_BRAKE)

int stk_watch_devices_init(stk_watch *watch, const stk_lease *lease, stk_err *err)
{
    watch->devices = calloc(lease->n, sizeof *watch->devices);
    if (watch->devices == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "watching a task");
    }
    watch->n_devices = lease->n;
    watch->share_bytes = lease->share_bytes;
    watch->ask_for_ms = ASK_MS;
    watch->asked_ms = INT64_MIN / 2;
    for (uint32_t i = 0; i < lease->n; i++) {
        stk_device_sample s;
        (void)stk_accel_sample(watch->config.accel, lease->devices[i], NULL, 0, &s);
        watch->devices[i] =
            (watch_device){.i = lease->devices[i],
                           .device = stk_accel_device(watch->config.accel, lease->devices[i]),
                           .base_bytes = s.memory_used,
                           .base_energy_mj = s.energy_mj,
                           .peak_bytes = -1,
                           .peak_temperature_c = -1,
                           .context = -1,
                           .last = STK_SAMPLE_DEVICE_UNKNOWN};
        watch->devices[i].last.energy_mj = s.energy_mj;
    }
    return 0;
}

/* Whether an existing process outside the task has a context on the device. */
static bool has_stranger(const stk_watch *watch, const watch_device *d)
{
    stk_device_process list[MAX_STRANGERS];
    int n = stk_accel_processes(watch->config.accel, d->i, list, MAX_STRANGERS);
    for (int i = 0; i < n; i++) {
        bool ours = false;
        for (uint32_t k = 0; k < watch->members.n && !ours; k++) {
            ours = watch->members.pids[k] == list[i].pid;
        }
        if (!ours && (kill(list[i].pid, 0) == 0 || errno == EPERM)) {
            return true;
        }
    }
    return false;
}

static void add_up(const stk_watch *watch, watch_device *d, const stk_device_sample *s,
                   int64_t age_ms)
{
    double passed = (double)(age_ms - d->asked_ms);
    d->asked_ms = age_ms;
    if (s->busy_percent >= 0) {
        d->busy_ms += passed * s->busy_percent / 100;
        d->known_ms += passed;
    }
    if (s->throttle >= 0) {
        d->throttle_known_ms += passed;
        if ((s->throttle & SLOWED) != 0) {
            d->throttled_ms += passed;
        }
    }
    if (s->power_mw >= 0) {
        d->power_mj += passed * s->power_mw / 1000;
        d->power_known_ms += passed;
    }
    d->peak_temperature_c = MAX(s->temperature_c, d->peak_temperature_c);
    d->peak_bytes = MAX(d->last.memory_bytes, d->peak_bytes);
    d->context = MAX(s->context, d->context);
    d->memory_seen = d->memory_seen || s->memory_used >= 0;
    bool more = d->base_bytes >= 0 && s->memory_used - d->base_bytes > CONTEXT_BYTES;
    more = more || (d->base_bytes < 0 && s->busy_percent > 0);
    bool new = more && !d->rose && d->context != 1 && watch->share_bytes == 0;
    d->rose = d->rose || (new && !has_stranger(watch, d));
}

static stk_device_sample sample_of(const stk_watch *watch, const watch_device *d)
{
    stk_device_sample s; /* all unknown if the device can't be queried */
    const stk_proc_members *members = &watch->members;
    (void)stk_accel_sample(watch->config.accel, d->i, members->pids, members->n, &s);
    return s;
}

static void ask_device(stk_watch *watch, watch_device *d, int64_t age_ms)
{
    stk_device_sample s = sample_of(watch, d);
    /* A new process on the device may be a child that the task started since we last listed its
     * processes. */
    if (s.n_others > 0 && s.n_others != d->n_others &&
        stk_proc_members_find(watch->sid, &watch->members) == 0) {
        s = sample_of(watch, d);
    }
    d->n_others = s.n_others;
    d->last = (stk_sample_device){.memory_bytes = s.process_memory,
                                  .busy_percent = s.busy_percent,
                                  .temperature_c = s.temperature_c,
                                  .device_memory_bytes = s.memory_used,
                                  .energy_mj = s.energy_mj,
                                  .throttle = s.throttle,
                                  .power_mw = s.power_mw,
                                  .sm_mhz = s.sm_mhz,
                                  .memory_mhz = s.memory_mhz,
                                  .pcie_tx_bytes_s = s.pcie_tx_bytes_s,
                                  .pcie_rx_bytes_s = s.pcie_rx_bytes_s,
                                  .nvlink_tx_bytes = s.nvlink_tx_bytes,
                                  .nvlink_rx_bytes = s.nvlink_rx_bytes};
    if (s.process_memory < 0 && watch->share_bytes == 0) { /* the task has the whole device */
        d->last.memory_bytes = s.memory_used;
    }
    add_up(watch, d, &s, age_ms);
}

static int64_t cpu_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* A query to the driver costs microseconds to milliseconds: the more expensive, the less often we
 * ask.
 */
bool stk_watch_devices_ask(stk_watch *watch, int64_t now_ms, int64_t period_ms)
{
    if (watch->n_devices == 0 || now_ms - watch->asked_ms < watch->ask_for_ms) {
        return false;
    }
    int64_t before = cpu_us();
    for (uint32_t i = 0; i < watch->n_devices; i++) {
        ask_device(watch, &watch->devices[i], now_ms - watch->start_ms);
    }
    int64_t cost_ms = (cpu_us() - before) * CPU_SHARE / 1000;
    cost_ms = MIN(MAX(cost_ms, ASK_MS), ASK_MAX_MS);
    watch->ask_for_ms = MAX(cost_ms, period_ms);
    if (watch->share_bytes > 0 && period_ms > ASK_MAX_MS) {
        watch->ask_for_ms = cost_ms;
    }
    /* A little less, because sampling periods aren't exact to the millisecond. */
    watch->ask_for_ms -= watch->ask_for_ms / 10;
    watch->asked_ms = now_ms;
    watch->has_news = true;
    return true;
}

/* Whether only this task holds the device: the text names one holder, so it has no ';'. */
static bool is_alone(const stk_watch *watch, const watch_device *d)
{
    STK_ARENA_AUTO arena = stk_arena_new(1 << 16);
    if (arena == NULL || has_stranger(watch, d)) {
        return false;
    }
    const char *holder = stk_lease_holder(watch->config.accel, d->i, arena);
    return holder != NULL && strchr(holder, ';') == NULL;
}

bool stk_watch_over_share(stk_watch *watch)
{
    for (uint32_t i = 0; watch->share_bytes > 0 && i < watch->n_devices; i++) {
        watch_device *d = &watch->devices[i];
        int64_t used = d->last.memory_bytes;
        if (used < 0 && d->last.device_memory_bytes >= 0 && d->base_bytes >= 0) {
            /* The driver doesn't report memory per process. If the task is alone, all memory since
             * its start is the task's. */
            used = d->last.device_memory_bytes - d->base_bytes;
            watch->shares_unknown = true;
            if (used > watch->share_bytes + SHARE_UNIT && !is_alone(watch, d)) {
                used = -1;
            }
        }
        if (used > watch->share_bytes + SHARE_UNIT) {
            watch->over_bytes = used;
            watch->over_device = i;
            return true;
        }
    }
    return false;
}

uint32_t stk_watch_devices(const stk_watch *watch, uint32_t *ret, uint32_t n_max)
{
    uint32_t n = MIN(watch->n_devices, n_max);
    for (uint32_t i = 0; i < n; i++) {
        ret[i] = watch->devices[i].i;
    }
    return n;
}

const stk_device *stk_watch_device(const stk_watch *watch, uint32_t i)
{
    return watch->devices[i].device;
}

bool stk_watch_device_is_full(const stk_watch *watch)
{
    for (uint32_t i = 0; i < watch->n_devices; i++) {
        const watch_device *d = &watch->devices[i];
        int64_t all = d->device->memory_bytes;
        if ((all > 0 && d->last.device_memory_bytes >= all / 100 * FULL_PERCENT) ||
            (watch->share_bytes > 0 &&
             d->last.memory_bytes >= watch->share_bytes / 100 * FULL_PERCENT)) {
            return true;
        }
    }
    return false;
}

/* --- at the end --- */

bool stk_watch_trouble(const stk_watch *watch, char *text, size_t size)
{
    for (uint32_t i = 0; i < watch->n_devices; i++) {
        stk_device_state state;
        stk_err why = {0};
        if (stk_accel_state(watch->config.accel, watch->devices[i].i, &state, &why) == STK_E_ENV) {
            (void)snprintf(text, size, "%s", why.text);
            return true;
        }
    }
    return false;
}

/* In a container the driver reports the host's pids, so it doesn't find our processes even if they
 * have contexts. Two other signs help: memory that rose during the task is the task's, and a device
 * node that no process opened means that the device was not used. */
static int had_context(const stk_watch *watch, const watch_device *d)
{
    if (d->context == 1) {
        return 1;
    }
    if (d->rose && (d->opened || !watch->has_looked || d->device->node == NULL)) {
        return 1;
    }
    if (stk_watch_node_tells(d) && watch->has_looked) {
        return d->opened; /* only a process that uses the device opens its node */
    }
    bool still = watch->share_bytes == 0 && d->base_bytes >= 0 && d->memory_seen;
    return d->context == 0 || still ? 0 : -1;
}

/* The counter's difference, read anew to include the time since the last sample; else power ×
 * time. */
static double energy_j(const stk_watch *watch, const watch_device *d)
{
    stk_device_sample s;
    if (d->base_energy_mj >= 0 && stk_accel_sample(watch->config.accel, d->i, NULL, 0, &s) == 0 &&
        s.energy_mj >= d->base_energy_mj) {
        return (double)(s.energy_mj - d->base_energy_mj) / 1000;
    }
    return d->power_known_ms > 0 ? d->power_mj / 1000 : -1;
}

void stk_watch_report(stk_watch *watch, int64_t now_ms, stk_outcome *outcome)
{
    uint32_t max = sizeof outcome->devices / sizeof outcome->devices[0];
    stk_watch_flush(watch);
    outcome->n_devices = MIN(watch->n_devices, max);
    outcome->read_bytes = watch->read_bytes;
    outcome->write_bytes = watch->write_bytes;
    outcome->libraries = watch->libraries;
    outcome->has_looked = watch->has_looked;
    outcome->mask_changed = watch->mask_changed;
    outcome->other_device = watch->other_device;
    for (uint32_t i = 0; i < outcome->n_devices; i++) {
        const watch_device *d = &watch->devices[i];
        /* The last sample's load counts until the task's end. */
        double rest = (double)(now_ms - watch->start_ms - d->asked_ms);
        double busy = d->busy_ms;
        if (d->last.busy_percent > 0 && rest > 0 && d->asked_ms > 0) {
            busy += rest * d->last.busy_percent / 100;
        }
        stk_outcome_device *o = &outcome->devices[i];
        *o = (stk_outcome_device){.uuid = d->device->uuid,
                                  .model = d->device->model,
                                  .noun = d->device->noun,
                                  .index = d->device->index,
                                  .memory_bytes = d->device->memory_bytes,
                                  .share_bytes = watch->share_bytes,
                                  .busy_percent_mean = -1,
                                  .busy_s = -1,
                                  .throttled_s = -1,
                                  .energy_j = -1,
                                  .peak_memory_bytes = d->peak_bytes,
                                  .peak_temperature_c = d->peak_temperature_c,
                                  .context = had_context(watch, d)};
        if (d->known_ms > 0) {
            o->busy_percent_mean = d->busy_ms / d->known_ms * 100;
        }
        if (d->throttle_known_ms > 0) {
            o->throttled_s = d->throttled_ms / 1000;
        }
        if (d->known_ms > 0 && watch->share_bytes == 0) {
            o->busy_s = busy / 1000;
        }
        if (watch->share_bytes == 0) {
            o->energy_j = energy_j(watch, d);
        }
    }
}
