#include "host/runner/runner_samples.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "sys/file.h"

/* A record is the memory of its struct, so only little-endian hosts work. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "samples.bin is little-endian");
_Static_assert(sizeof(stk_sample_device) == 88, "record of a device");

enum { UUID_BYTES = 64, MAX_DEVICES = 64 };
#define MAX_FILE_BYTES ((size_t)1 << 30)

static const char magics[][8] = {"STKSMP1\n", "STKSMP2\n", "STKSMP3\n"}; /* version i + 1 */
enum { MAGIC_WORD = 6 }; /* the bytes that are the same in all versions */

typedef struct header {
    char magic[8];
    uint32_t n_devices;
    uint32_t size; /* bytes per device; version 1: per record */
    int64_t start_ms;
} header;

typedef struct record {
    int64_t time_ms, rss_bytes, cpu_us;
    int64_t read_bytes, write_bytes;
    int64_t stdout_bytes, stderr_bytes;
    uint32_t n_devices;
    uint32_t reserved;
} record;

typedef struct record_2 {
    int64_t time_ms, rss_bytes, cpu_us;
    int64_t read_bytes, write_bytes;
    uint32_t n_devices;
    uint32_t reserved;
} record_2;

typedef struct record_1 {
    int64_t time_ms, rss_bytes, cpu_us;
} record_1;

typedef struct device_1 {
    int64_t memory_bytes;
    int32_t busy_percent;
    int32_t reserved;
} device_1;

int stk_samples_create(const char *path, int64_t start_ms, uint32_t n_devices,
                       const char *const *uuids, int *ret_fd, stk_err *err)
{
    unsigned char buf[sizeof(header) + MAX_DEVICES * UUID_BYTES] = {0};
    if (n_devices > MAX_DEVICES) {
        return stk_err_set(err, STK_E_LIMIT, "%s: %u devices, at most %d", path, n_devices,
                           MAX_DEVICES);
    }
    header head = {.n_devices = n_devices, .size = sizeof(stk_sample_device), .start_ms = start_ms};
    memcpy(head.magic, magics[2], sizeof magics[2]);
    memcpy(buf, &head, sizeof head);
    for (uint32_t i = 0; i < n_devices; i++) {
        memcpy(buf + sizeof head + i * UUID_BYTES, uuids[i], strnlen(uuids[i], UUID_BYTES - 1));
    }
    int fd = stk_file_open_regular(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
    if (fd < 0 || stk_file_write_all(fd, buf, sizeof head + n_devices * UUID_BYTES) < 0) {
        int sys = errno;
        stk_file_close(&fd);
        return stk_err_sys(err, STK_E_SYS, sys, "cannot write %s", path);
    }
    *ret_fd = fd;
    return 0;
}

size_t stk_samples_encode(const stk_sample *s, uint32_t n_devices, void *buf, size_t size)
{
    uint32_t n = s->devices != NULL ? n_devices : 0;
    record r = {.time_ms = s->time_ms,
                .rss_bytes = s->rss_bytes,
                .cpu_us = s->cpu_us,
                .read_bytes = s->read_bytes,
                .write_bytes = s->write_bytes,
                .stdout_bytes = s->stdout_bytes,
                .stderr_bytes = s->stderr_bytes,
                .n_devices = n};
    size_t len = sizeof r + n * sizeof *s->devices;
    if (len > size) {
        return 0;
    }
    memcpy(buf, &r, sizeof r);
    if (n > 0) {
        memcpy((char *)buf + sizeof r, s->devices, n * sizeof *s->devices);
    }
    return len;
}

int stk_samples_append(int fd, const stk_sample *s, uint32_t n_devices)
{
    unsigned char buf[sizeof(record) + MAX_DEVICES * sizeof(stk_sample_device)];
    return stk_file_write_all(fd, buf, stk_samples_encode(s, n_devices, buf, sizeof buf));
}

/* A file that is being decoded: `at` is where its records begin. */
typedef struct source {
    const char *path, *data;
    size_t len, at;
    header head;
    int version;
    size_t n_head; /* versions 2 and 3: bytes of a record before its devices */
} source;

/* The beginning of a record of version 2 or 3. */
static record head_of(const source *s, size_t at)
{
    record r;
    record_2 old;
    if (s->version == 3) {
        memcpy(&r, s->data + at, sizeof r);
        return r;
    }
    memcpy(&old, s->data + at, sizeof old);
    return (record){.time_ms = old.time_ms,
                    .rss_bytes = old.rss_bytes,
                    .cpu_us = old.cpu_us,
                    .read_bytes = old.read_bytes,
                    .write_bytes = old.write_bytes,
                    .stdout_bytes = -1,
                    .stderr_bytes = -1,
                    .n_devices = old.n_devices};
}

/* The size of the record at `at`, 0 if it is incomplete; *ret_n: number of devices in it. */
static int next_record(const source *s, size_t at, size_t *ret_size, uint32_t *ret_n, stk_err *err)
{
    size_t size = s->head.size;
    *ret_size = 0;
    *ret_n = s->head.n_devices;
    if (s->version > 1) {
        if (at + s->n_head > s->len) {
            return 0;
        }
        *ret_n = head_of(s, at).n_devices;
        size = s->n_head + *ret_n * sizeof(stk_sample_device);
    }
    if (*ret_n != 0 && *ret_n != s->head.n_devices) {
        return stk_err_set(err, STK_E_STORE, "%s: not a file of samples: a record with %u devices",
                           s->path, *ret_n);
    }
    if (at + size <= s->len) {
        *ret_size = size;
    }
    return 0;
}

static void read_record(const source *s, size_t at, stk_sample *ret, stk_sample_device *devices)
{
    const char *p = s->data + at;
    if (s->version == 1) {
        record_1 r;
        memcpy(&r, p, sizeof r);
        *ret = (stk_sample){r.time_ms, r.rss_bytes, r.cpu_us, devices, -1, -1, -1, -1};
        for (uint32_t i = 0; i < s->head.n_devices; i++) {
            device_1 d;
            memcpy(&d, p + sizeof r + i * sizeof d, sizeof d);
            devices[i] = STK_SAMPLE_DEVICE_UNKNOWN;
            devices[i].memory_bytes = d.memory_bytes;
            devices[i].busy_percent = d.busy_percent;
        }
        return;
    }
    record r = head_of(s, at);
    *ret = (stk_sample){.time_ms = r.time_ms,
                        .rss_bytes = r.rss_bytes,
                        .cpu_us = r.cpu_us,
                        .devices = devices,
                        .read_bytes = r.read_bytes,
                        .write_bytes = r.write_bytes,
                        .stdout_bytes = r.stdout_bytes,
                        .stderr_bytes = r.stderr_bytes};
    p += s->n_head;
    memcpy(devices, p, r.n_devices * sizeof *devices);
}

static int read_records(const source *s, stk_arena *arena, stk_samples *ret, stk_err *err)
{
    size_t n = 0, n_blocks = 1; /* the first block: unknown devices */
    size_t size;
    uint32_t n_here;
    for (size_t at = s->at;; at += size) {
        STK_TRY(next_record(s, at, &size, &n_here, err));
        if (size == 0) {
            break;
        }
        n++;
        n_blocks += n_here > 0;
    }
    stk_sample *samples = stk_arena_array(arena, n + 1, sizeof *samples);
    stk_sample_device *devices =
        stk_arena_array(arena, n_blocks * s->head.n_devices + 1, sizeof *devices);
    if (samples == NULL || devices == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "%s", s->path);
    }
    for (uint32_t i = 0; i < s->head.n_devices; i++) {
        devices[i] = STK_SAMPLE_DEVICE_UNKNOWN;
    }
    size_t at = s->at;
    for (size_t i = 0; i < n; i++, at += size) {
        (void)next_record(s, at, &size, &n_here, NULL);
        devices += n_here;
        read_record(s, at, &samples[i], devices);
    }
    ret->n = (uint32_t)n;
    ret->samples = samples;
    return 0;
}

static int read_header(source *s, stk_err *err)
{
    if (s->len < sizeof s->head) {
        return 0; /* the file is just being created */
    }
    memcpy(&s->head, s->data, sizeof s->head);
    for (int i = 1; i <= 3; i++) {
        if (memcmp(s->head.magic, magics[i - 1], sizeof magics[0]) == 0) {
            s->version = i;
        }
    }
    if (s->version == 0 && memcmp(s->head.magic, magics[0], MAGIC_WORD) == 0) {
        return stk_err_set(err, STK_E_VERSION, "%s: samples of a newer Stoker", s->path);
    }
    uint32_t n = s->head.n_devices;
    size_t size = sizeof(stk_sample_device);
    s->n_head = sizeof(record);
    if (s->version == 1) {
        size = sizeof(record_1) + n * sizeof(device_1);
    } else if (s->version == 2) {
        s->n_head = sizeof(record_2);
    }
    if (s->version == 0 || n > MAX_DEVICES || s->head.size != size) {
        return stk_err_set(err, STK_E_STORE, "%s: not a file of samples", s->path);
    }
    s->at = sizeof s->head + n * (size_t)UUID_BYTES;
    return 0;
}

static int decode(source *s, stk_arena *arena, stk_samples *ret, stk_err *err)
{
    int rc = read_header(s, err);
    if (rc < 0 || s->at == 0 || s->len < s->at) {
        return rc;
    }
    const char **uuids = stk_arena_array(arena, s->head.n_devices + 1u, sizeof *uuids);
    const char *from = s->data + sizeof s->head;
    for (uint32_t i = 0; uuids != NULL && i < s->head.n_devices; i++, from += UUID_BYTES) {
        uuids[i] = stk_arena_dupn(arena, from, UUID_BYTES);
        if (uuids[i] == NULL) {
            uuids = NULL;
        }
    }
    if (uuids == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "%s", s->path);
    }
    stk_samples found = {.start_ms = s->head.start_ms, .n_devices = s->head.n_devices};
    found.uuids = uuids;
    STK_TRY(read_records(s, arena, &found, err));
    *ret = found;
    return 0;
}

int stk_samples_load(const char *path, stk_arena *arena, stk_samples *ret_samples, stk_err *err)
{
    STK_TEXT_AUTO data = NULL;
    size_t len = 0;
    *ret_samples = (stk_samples){0};
    int rc = stk_file_read_untrusted(path, MAX_FILE_BYTES, &data, &len, err);
    if (rc == STK_E_NOT_FOUND) {
        return 0;
    }
    source s = {.path = path, .data = data, .len = len};
    STK_TRY(rc);
    return decode(&s, arena, ret_samples, err);
}
