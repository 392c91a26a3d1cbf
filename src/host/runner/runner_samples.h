/* samples.bin: what a task used over time, one file per attempt (none if the task ended before its
 * first sample).
 *
 * Little-endian, appended one whole record at a time, so a reader may read it while it grows; an
 * incomplete last record is ignored. Version 3:
 *
 * - The header: 8 bytes "STKSMP3\n", uint32 n_devices, uint32 bytes per device, int64 start (Unix
 *   ms), then for each device 64 bytes: its uuid, NUL-padded.
 * - A record: int64 time_ms since the start, int64 rss_bytes, int64 cpu_us since the start, int64
 *   read_bytes, int64 write_bytes, int64 stdout_bytes, int64 stderr_bytes, uint32 n, uint32 0, then
 *   n stk_sample_device (below, in memory order). n is 0 or n_devices: devices are sampled less
 *   often than processes; with n = 0 their previous values still hold.
 *
 * Older versions are read too: 2 ("STKSMP2\n") lacks the sizes of the logs; 1 ("STKSMP1\n") has
 * records of fixed size, lacks I/O too, and has only memory and load of devices.
 *
 * -1 means unknown. */
#ifndef STK_RUNNER_SAMPLES_H
#define STK_RUNNER_SAMPLES_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

typedef struct stk_sample_device {
    int64_t memory_bytes; /* of the task's processes if the driver reports it, else of the device */
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
    const stk_sample_device *devices;   /* n_devices entries. For append, NULL: not sampled */
    int64_t read_bytes, write_bytes;    /* from and to storage since the start; never fall */
    int64_t stdout_bytes, stderr_bytes; /* sizes of the logs: they date each log line */
} stk_sample;

typedef struct stk_samples {
    int64_t start_ms; /* Unix time */
    uint32_t n_devices;
    const char *const *uuids;
    uint32_t n;
    const stk_sample *samples; /* devices is never NULL where n_devices > 0 */
} stk_samples;

/* Reads the whole file into `arena`. A missing file is no error: n is 0. STK_E_STORE: not a samples
 * file; STK_E_LIMIT: too large; STK_E_VERSION: written by a newer Stoker. */
int stk_samples_load(const char *path, stk_arena *arena, stk_samples *ret_samples, stk_err *err);

/* Creates (or truncates) the file with its header. */
int stk_samples_create(const char *path, int64_t start_ms, uint32_t n_devices,
                       const char *const *uuids, int *ret_fd, stk_err *err);
/* Encodes one record into `buf`; returns its size in bytes, or 0 if `size` is too small. */
size_t stk_samples_encode(const stk_sample *sample, uint32_t n_devices, void *buf, size_t size);
/* Appends one record to the file by one write; 0 or -1 with errno. */
int stk_samples_append(int fd, const stk_sample *sample, uint32_t n_devices);

#endif
