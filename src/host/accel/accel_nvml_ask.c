/* NVML: a device's state, processes and samples. */
#include <limits.h>
#include <string.h>
#include <sys/param.h>

#include "host/accel/accel_nvml.h"
#include "sys/clock.h"

/* Stores a number that NVML returned; on an error *ret stays -1. */
static void take_value(int code, const unsigned *value, int32_t *ret)
{
    if (code == NVML_OK && *value <= INT32_MAX) {
        *ret = (int32_t)*value;
    }
}

#define TAKE(lib, function, handle, ret)                                                           \
    do {                                                                                           \
        unsigned value_ = 0;                                                                       \
        int code_ = NVML_CALL(lib, function, handle, &value_);                                     \
        take_value(code_, &value_, ret);                                                           \
    } while (0)

static void take_long(int code, const unsigned long long *value, int64_t *ret)
{
    if (code == NVML_OK && *value <= INT64_MAX) {
        *ret = (int64_t)*value;
    }
}

int stk_nvml_memory(nvml *lib, nvml_device handle, int64_t *ret_total, int64_t *ret_used)
{
    if (lib->memory_v2) {
        nvml_memory_v2 memory = {.version = sizeof memory | 2u << 24};
        int code = NVML_CALL(lib, memory_v2, handle, &memory);
        if (code == NVML_OK) {
            *ret_total = (int64_t)memory.total;
            *ret_used = (int64_t)memory.used;
        }
        if (code == NVML_OK || stk_nvml_gone(code)) {
            return code;
        }
        lib->memory_v2 = false;
    }
    nvml_memory memory = {0};
    int code = NVML_CALL(lib, memory, handle, &memory);
    if (code == NVML_OK) {
        *ret_total = (int64_t)memory.total;
        *ret_used = (int64_t)memory.used;
    }
    return code;
}

static void ask_temperature(const nvml *lib, nvml_device handle, int32_t *ret)
{
    nvml_temperature t = {.version = sizeof t | 1u << 24};
    unsigned celsius = 0;
    if (NVML_CALL(lib, temperature_v, handle, &t) == NVML_OK) {
        *ret = t.celsius;
    } else {
        take_value(NVML_CALL(lib, temperature, handle, 0, &celsius), &celsius, ret);
    }
}

static void ask_clocks(const nvml *lib, nvml_device handle, int32_t *ret_sm, int32_t *ret_memory,
                       int64_t *ret_throttle)
{
    unsigned mhz = 0;
    unsigned long long reasons = 0;
    take_value(NVML_CALL(lib, clock, handle, NVML_CLOCK_SM, &mhz), &mhz, ret_sm);
    take_value(NVML_CALL(lib, clock, handle, NVML_CLOCK_MEMORY, &mhz), &mhz, ret_memory);
    take_long(NVML_CALL(lib, reasons, handle, &reasons), &reasons, ret_throttle);
}

/* --- fields: many counters in one call --- */

enum { ENERGY, NVLINK_TX, NVLINK_RX, NVLINK_TX_NEW, NVLINK_RX_NEW, PCIE_TX, PCIE_RX, N_FIELDS };

/* Scope UINT_MAX: the sum of all NVLinks. */
static const struct {
    unsigned id, scope;
} field_ids[N_FIELDS] = {[ENERGY] = {83, 0},
                         [NVLINK_TX] = {138, UINT_MAX}, /* KiB; up to Hopper */
                         [NVLINK_RX] = {139, UINT_MAX},
                         [NVLINK_TX_NEW] = {202, UINT_MAX}, /* bytes; from Blackwell */
                         [NVLINK_RX_NEW] = {204, UINT_MAX},
                         [PCIE_TX] = {197, 0},
                         [PCIE_RX] = {198, 0}};

static void ask_fields(const nvml *lib, nvml_device handle, nvml_field *ret)
{
    memset(ret, 0, N_FIELDS * sizeof *ret);
    for (int i = 0; i < N_FIELDS; i++) {
        ret[i].field = field_ids[i].id;
        ret[i].scope = field_ids[i].scope;
        ret[i].code = NVML_NOT_SUPPORTED;
    }
    if (NVML_CALL(lib, fields, handle, N_FIELDS, ret) != NVML_OK) {
        for (int i = 0; i < N_FIELDS; i++) {
            ret[i].code = NVML_NOT_SUPPORTED;
        }
    }
}

/* Accepts 64-bit values only: a 32-bit counter wraps within a second. */
static int64_t field_value(const nvml_field *field, unsigned long long unit)
{
    bool wide = field->type == 2 || field->type == 3;
    if (field->code != NVML_OK || !wide || field->number > INT64_MAX / unit) {
        return -1;
    }
    return (int64_t)(field->number * unit);
}

static void take_nvlink(const nvml_field *fields, int64_t *ret_tx, int64_t *ret_rx)
{
    *ret_tx = field_value(&fields[NVLINK_TX], 1024);
    *ret_rx = field_value(&fields[NVLINK_RX], 1024);
    if (*ret_tx < 0) {
        *ret_tx = field_value(&fields[NVLINK_TX_NEW], 1);
    }
    if (*ret_rx < 0) {
        *ret_rx = field_value(&fields[NVLINK_RX_NEW], 1);
    }
}

/* --- state --- */

/* Row remapping, retired pages and ECC errors. For a slice NVML reports only the errors. */
static void ask_health(const nvml *lib, nvml_device handle, nvml_device whole,
                       stk_device_state *ret)
{
    unsigned a = 0, b = 0, pending = 0, failed = 0;
    unsigned long long n = 0;
    take_value(NVML_CALL(lib, ecc_mode, whole, &a, &b), &a, &ret->ecc);
    take_long(NVML_CALL(lib, ecc_errors, handle, 0, 0, &n), &n, &ret->ecc_corrected);
    take_long(NVML_CALL(lib, ecc_errors, handle, 1, 0, &n), &n, &ret->ecc_uncorrected);
    take_long(NVML_CALL(lib, ecc_errors, handle, 1, 1, &n), &n, &ret->ecc_uncorrected_total);
    if (NVML_CALL(lib, remapped, whole, &a, &b, &pending, &failed) == NVML_OK) {
        ret->remapped_rows = (int32_t)(a + b);
        ret->remap_pending = (int32_t)pending;
        ret->remap_failed = (int32_t)failed;
    }
    for (unsigned cause = 0; cause < 2; cause++) {
        unsigned count = 0; /* without a buffer NVML only counts */
        int code = NVML_CALL(lib, retired, whole, cause, &count, NULL);
        if (code == NVML_OK || code == NVML_INSUFFICIENT_SIZE) {
            ret->retired_pages = MAX(ret->retired_pages, 0) + (int32_t)count;
        }
    }
    TAKE(lib, retired_pending, whole, &ret->retired_pending);
}

static void ask_whole(nvml *lib, nvml_device whole, stk_device_state *ret)
{
    unsigned mhz = 0;
    TAKE(lib, fan, whole, &ret->fan_percent);
    TAKE(lib, persistence, whole, &ret->persistence);
    TAKE(lib, compute_mode, whole, &ret->compute_mode);
    TAKE(lib, pcie_gen, whole, &ret->pcie_gen);
    TAKE(lib, pcie_gen_max, whole, &ret->pcie_gen_max);
    TAKE(lib, pcie_width, whole, &ret->pcie_width);
    TAKE(lib, pcie_width_max, whole, &ret->pcie_width_max);
    take_value(NVML_CALL(lib, max_clock, whole, NVML_CLOCK_SM, &mhz), &mhz, &ret->sm_max_mhz);
    take_value(NVML_CALL(lib, max_clock, whole, NVML_CLOCK_MEMORY, &mhz), &mhz,
               &ret->memory_max_mhz);
    ask_temperature(lib, whole, &ret->temperature_c);
    ask_clocks(lib, whole, &ret->sm_mhz, &ret->memory_mhz, &ret->throttle);
    for (unsigned link = 0, up = 0; link < NVML_LINKS; link++) {
        if (NVML_CALL(lib, link_state, whole, link, &up) != NVML_OK) {
            break;
        }
        ret->n_nvlinks_up = MAX(ret->n_nvlinks_up, 0) + (up == 1);
    }
}

/* Values that slices share with their device are unknown for a slice. */
static void ask_traffic_and_power(const nvml *lib, nvml_device handle, stk_device_state *ret)
{
    nvml_utilization busy = {0};
    if (NVML_CALL(lib, utilization, handle, &busy) == NVML_OK) {
        take_value(NVML_OK, &busy.gpu, &ret->busy_percent);
        take_value(NVML_OK, &busy.memory, &ret->memory_busy_percent);
    }
    TAKE(lib, power, handle, &ret->power_mw);
    TAKE(lib, power_limit, handle, &ret->power_limit_mw);
    unsigned long long mj = 0;
    take_long(NVML_CALL(lib, energy, handle, &mj), &mj, &ret->energy_mj);
    nvml_field fields[N_FIELDS];
    ask_fields(lib, handle, fields);
    take_nvlink(fields, &ret->nvlink_tx_bytes, &ret->nvlink_rx_bytes);
    unsigned kb = 0;
    if (NVML_CALL(lib, pcie_traffic, handle, 0, &kb) == NVML_OK) {
        ret->pcie_tx_bytes_s = (int64_t)kb * 1000;
    }
    if (NVML_CALL(lib, pcie_traffic, handle, 1, &kb) == NVML_OK) {
        ret->pcie_rx_bytes_s = (int64_t)kb * 1000;
    }
}

static const nvml_unit *whole_of(const nvml *lib, const nvml_unit *unit)
{
    return unit->parent >= 0 ? &lib->units[unit->parent] : unit;
}

int stk_nvml_state(void *self, uint32_t slot, stk_device_state *ret, stk_err *err)
{
    nvml *lib = self;
    const nvml_unit *unit = &lib->units[slot];
    int64_t total = -1;
    char text[256];
    int code = NVML_GPU_IS_LOST;
    if (unit->handle != NULL) {
        code = stk_nvml_memory(lib, unit->handle, &total, &ret->memory_used);
    }
    if (stk_nvml_gone(code)) {
        return stk_err_set(err, STK_E_ENV, "%s",
                           stk_nvml_trouble(lib, unit->index, code, text, sizeof text));
    }
    nvml_device whole = whole_of(lib, unit)->handle;
    ask_whole(lib, whole, ret);
    ask_health(lib, unit->handle, whole, ret);
    if (unit->parent < 0) {
        ask_traffic_and_power(lib, unit->handle, ret);
    }
    return 0;
}

/* --- processes --- */

static int64_t known_memory(unsigned long long bytes)
{
    if (bytes == ~0ull) {
        return -1;
    }
    return (int64_t)bytes;
}

/* Appends the compute or graphics processes to lib->processes at *n. False: the driver doesn't
 * report them. */
static bool list_processes(nvml *lib, nvml_device handle, bool graphics, uint32_t *n, int *ret_code)
{
    unsigned count = NVML_PROCESSES;
    bool new_one = false;
    if (graphics && lib->api.graphics_processes != NULL) {
        new_one = true;
        *ret_code = lib->api.graphics_processes(handle, &count, lib->list.new_ones);
    } else if (graphics) {
        *ret_code = NVML_CALL(lib, graphics_processes_v1, handle, &count, lib->list.old_ones);
    } else if (lib->api.compute_processes != NULL) {
        new_one = true;
        *ret_code = lib->api.compute_processes(handle, &count, lib->list.new_ones);
    } else {
        *ret_code = NVML_CALL(lib, compute_processes_v1, handle, &count, lib->list.old_ones);
    }
    if (*ret_code != NVML_OK || count > NVML_PROCESSES) {
        return false;
    }
    for (unsigned i = 0; i < count && *n < NVML_PROCESSES; i++) {
        unsigned pid = lib->list.old_ones[i].pid;
        unsigned long long bytes = lib->list.old_ones[i].memory;
        if (new_one) {
            pid = lib->list.new_ones[i].pid;
            bytes = lib->list.new_ones[i].memory;
        }
        bool known = false; /* a process can be in both lists */
        for (uint32_t k = 0; k < *n; k++) {
            known = known || lib->processes[k].pid == (pid_t)pid;
        }
        if (!known || !graphics) {
            lib->processes[(*n)++] =
                (stk_device_process){(pid_t)pid, known_memory(bytes), graphics};
        }
    }
    return true;
}

int stk_nvml_processes(void *self, uint32_t slot, stk_device_process *ret, uint32_t n_max)
{
    nvml *lib = self;
    uint32_t n = 0;
    int code;
    nvml_device handle = lib->units[slot].handle;
    if (!list_processes(lib, handle, false, &n, &code)) {
        return -1;
    }
    (void)list_processes(lib, handle, true, &n, &code);
    n = MIN(n, n_max);
    memcpy(ret, lib->processes, n * sizeof *ret);
    return (int)n;
}

/* --- samples --- */

/* Bytes per second since the last call. We don't use nvmlDeviceGetPcieThroughput: it blocks for 20
 * ms per value. */
static void ask_pcie(nvml_unit *unit, const nvml_field *fields)
{
    int64_t tx = field_value(&fields[PCIE_TX], 1), rx = field_value(&fields[PCIE_RX], 1);
    long long now = stk_clock_mono_ms(&stk_clock_real) * 1000;
    if (fields[PCIE_TX].time_us > 0) {
        now = fields[PCIE_TX].time_us;
    }
    if (tx < 0 || rx < 0) {
        return;
    }
    unsigned long long *old = unit->pcie;
    long long passed = now - unit->pcie_us;
    if (unit->pcie_us > 0 && passed > 0 && (unsigned long long)tx >= old[0] &&
        (unsigned long long)rx >= old[1]) {
        unit->last.pcie_tx_bytes_s =
            (int64_t)((double)((unsigned long long)tx - old[0]) * 1e6 / (double)passed);
        unit->last.pcie_rx_bytes_s =
            (int64_t)((double)((unsigned long long)rx - old[1]) * 1e6 / (double)passed);
    }
    old[0] = (unsigned long long)tx;
    old[1] = (unsigned long long)rx;
    unit->pcie_us = now;
}

static void ask_slow(const nvml *lib, nvml_unit *unit)
{
    nvml_device whole = whole_of(lib, unit)->handle;
    int64_t now = stk_clock_mono_ms(&stk_clock_real);
    if (unit->slow_ms > 0 && now - unit->slow_ms < NVML_SLOW_MS) {
        return;
    }
    stk_device_sample fresh = STK_DEVICE_SAMPLE_UNKNOWN;
    fresh.pcie_tx_bytes_s = unit->last.pcie_tx_bytes_s;
    fresh.pcie_rx_bytes_s = unit->last.pcie_rx_bytes_s;
    unit->last = STK_DEVICE_SAMPLE_UNKNOWN;
    if (unit->slow_ms > 0) {
        unit->last = fresh;
    }
    unit->slow_ms = now;
    ask_temperature(lib, whole, &unit->last.temperature_c);
    ask_clocks(lib, whole, &unit->last.sm_mhz, &unit->last.memory_mhz, &unit->last.throttle);
    if (unit->parent >= 0) {
        return;
    }
    nvml_field fields[N_FIELDS];
    ask_fields(lib, unit->handle, fields);
    take_nvlink(fields, &unit->last.nvlink_tx_bytes, &unit->last.nvlink_rx_bytes);
    unit->last.energy_mj = field_value(&fields[ENERGY], 1);
    if (unit->last.energy_mj < 0) {
        unsigned long long mj = 0;
        take_long(NVML_CALL(lib, energy, unit->handle, &mj), &mj, &unit->last.energy_mj);
    }
    ask_pcie(unit, fields);
}

/* In a container the driver may report the host's pids, or no processes. So "none has a context" is
 * certain only if NVML named one of our processes before, or we share the host's PID namespace. */
static void ask_context(nvml *lib, nvml_device handle, const pid_t *pids, uint32_t n_pids,
                        stk_device_sample *ret)
{
    uint32_t n = 0;
    int code;
    if (n_pids == 0 || !list_processes(lib, handle, false, &n, &code)) {
        return;
    }
    stk_accel_sum_processes(lib->processes, (int)n, pids, n_pids, ret);
    lib->pids_are_ours = lib->pids_are_ours || ret->context == 1;
    if (ret->context == 0 && !lib->pids_are_ours) {
        ret->context = -1;
    }
}

int stk_nvml_sample(void *self, uint32_t slot, const pid_t *pids, uint32_t n_pids,
                    stk_device_sample *ret)
{
    nvml *lib = self;
    nvml_unit *unit = &lib->units[slot];
    int64_t total = -1;
    if (stk_nvml_gone(stk_nvml_memory(lib, unit->handle, &total, &ret->memory_used))) {
        return STK_E_ENV;
    }
    ask_slow(lib, unit);
    int64_t memory_used = ret->memory_used;
    *ret = unit->last;
    ret->memory_used = memory_used;
    if (unit->parent < 0) {
        nvml_utilization busy = {0};
        take_value(NVML_CALL(lib, utilization, unit->handle, &busy), &busy.gpu, &ret->busy_percent);
        TAKE(lib, power, unit->handle, &ret->power_mw);
    }
    ask_context(lib, unit->handle, pids, n_pids, ret);
    return 0;
}
