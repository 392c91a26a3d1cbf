/* samples.bin: what a task used over time, one file an attempt (a task that ended before its first
 * sample has none).
 *
 * Little-endian, appended one whole record at a time, so a reader may look while it grows; a torn
 * last record is ignored.
 *
 *     header   8 bytes "STKSMP1\n" · uint32 n_devices · uint32 record_size · int64 start (Unix ms)
 *              then n_devices × 64 bytes: the device's uuid, NUL-padded
 *     record   int64 time_ms since the start · int64 rss_bytes · int64 cpu_us since the start
 *              then n_devices × { int64 memory_bytes · int32 busy_percent · int32 0 }
 *
 * -1 is unknown. memory_bytes of a device is that of the task's processes where the driver tells,
 * else of the whole device (which is leased to the task alone).
 */
#ifndef STK_RUNNER_SAMPLES_H
#define STK_RUNNER_SAMPLES_H

#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

typedef struct stk_sample_device {
    int64_t memory_bytes;
    int32_t busy_percent;
    int32_t reserved;
} stk_sample_device;

typedef struct stk_sample {
    int64_t time_ms; /* since the start */
    int64_t rss_bytes;
    int64_t cpu_us;                   /* since the start; never falls */
    const stk_sample_device *devices; /* n_devices of the file */
} stk_sample;

typedef struct stk_samples {
    int64_t start_ms; /* Unix time */
    uint32_t n_devices;
    const char *const *uuids;
    uint32_t n;
    const stk_sample *samples;
} stk_samples;

/* Whole file into `arena`. No file: n is 0, no error. STK_E_STORE: not a samples file;
 * STK_E_LIMIT: larger than a reader takes. */
int stk_samples_load(const char *path, stk_arena *arena, stk_samples *ret_samples, stk_err *err);

/* Creates (or truncates) the file with its header. */
int stk_samples_create(const char *path, int64_t start_ms, uint32_t n_devices,
                       const char *const *uuids, int *ret_fd, stk_err *err);
/* One write; 0 or -1 with errno. */
int stk_samples_append(int fd, const stk_sample *sample, uint32_t n_devices);

#endif
