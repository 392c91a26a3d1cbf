/* samples.bin: what a task used over time, one file an attempt (a task that ended before its first
 * sample has none).
 *
 * Little-endian, appended one whole record at a time, so a reader may look while it grows; a torn
 * last record is ignored. Version 3:
 *
 * - The header: 8 bytes "STKSMP3\n", uint32 n_devices, uint32 bytes of a device, int64 start (Unix
 *   ms), then for each device 64 bytes: its uuid, NUL-padded.
 * - A record: int64 time_ms since the start, int64 rss_bytes, int64 cpu_us since the start, int64
 *   read_bytes, int64 write_bytes, int64 stdout_bytes, int64 stderr_bytes, uint32 n, uint32 0, then
 *   n stk_sample_device (below, in memory order). n is 0 or n_devices: devices are asked less often
 *   than processes, and a record without them repeats the last.
 *
 * Older versions are read too: 2 ("STKSMP2\n") is without the sizes of the logs; 1 ("STKSMP1\n")
 * has records of fixed size, also without I/O, devices with memory and business only.
 *
 * -1 is unknown. */
#ifndef STK_RUNNER_SAMPLES_H
#define STK_RUNNER_SAMPLES_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

typedef struct stk_sample_device {
    int64_t memory_bytes; /* of the task's processes where the driver tells, else of the device */
    int32_t busy_percent;
    int32_t temperature_c;
    int64_t device_memory_bytes; /* in use on the whole device */
    int64_t energy_mj;           /* counter */
    int64_t throttle;            /* bits: accel.h */
    int32_t power_mw;
    int32_t sm_mhz, memory_mhz;
    int32_t reserved; /* 0 */
    int64_t pcie_tx_bytes_s, pcie_rx_bytes_s;
    int64_t nvlink_tx_bytes, nvlink_rx_bytes; /* counters */
} stk_sample_device;

#define STK_SAMPLE_DEVICE_UNKNOWN                                                                  \
    ((stk_sample_device){-1, -1, -1, -1, -1, -1, -1, -1, -1, 0, -1, -1, -1, -1})

typedef struct stk_sample {
    int64_t time_ms; /* since the start */
    int64_t rss_bytes;
    int64_t cpu_us;                     /* since the start; never falls */
    const stk_sample_device *devices;   /* n_devices of the file. For append NULL: not asked */
    int64_t read_bytes, write_bytes;    /* from and to storage since the start; never fall */
    int64_t stdout_bytes, stderr_bytes; /* sizes of the logs: when a line was written */
} stk_sample;

typedef struct stk_samples {
    int64_t start_ms; /* Unix time */
    uint32_t n_devices;
    const char *const *uuids;
    uint32_t n;
    const stk_sample *samples; /* devices is never NULL where n_devices > 0 */
} stk_samples;

/* Whole file into `arena`. No file: n is 0, no error. STK_E_STORE: not a samples file;
 * STK_E_LIMIT: larger than a reader takes; STK_E_VERSION: of a newer Stoker. */
int stk_samples_load(const char *path, stk_arena *arena, stk_samples *ret_samples, stk_err *err);

/* Creates (or truncates) the file with its header. */
int stk_samples_create(const char *path, int64_t start_ms, uint32_t n_devices,
                       const char *const *uuids, int *ret_fd, stk_err *err);
/* One record into `buf`: its bytes, or 0 when `size` has no room for it. */
size_t stk_samples_encode(const stk_sample *sample, uint32_t n_devices, void *buf, size_t size);
/* The same into the file, by one write; 0 or -1 with errno. */
int stk_samples_append(int fd, const stk_sample *sample, uint32_t n_devices);

#endif
