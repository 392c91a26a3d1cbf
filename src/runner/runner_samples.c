#include "runner/runner_samples.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "accel/accel.h"
#include "sys/file.h"

/* The record is the struct's memory: little-endian hosts only, checked here. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "samples.bin is little-endian");
_Static_assert(sizeof(stk_sample_device) == 16, "record of a device");

enum { UUID_BYTES = 64, MAX_DEVICES = 64 };
#define MAX_FILE_BYTES ((size_t)1 << 30)

static const char magic[8] = "STKSMP1\n";

typedef struct header {
    char magic[8];
    uint32_t n_devices;
    uint32_t record_size;
    int64_t start_ms;
} header;

typedef struct record {
    int64_t time_ms;
    int64_t rss_bytes;
    int64_t cpu_us;
} record;

static uint32_t record_size(uint32_t n_devices)
{
    return (uint32_t)(sizeof(record) + n_devices * sizeof(stk_sample_device));
}

int stk_samples_create(const char *path, int64_t start_ms, uint32_t n_devices,
                       const char *const *uuids, int *ret_fd, stk_err *err)
{
    unsigned char buf[sizeof(header) + MAX_DEVICES * UUID_BYTES] = {0};
    if (n_devices > MAX_DEVICES) {
        return stk_err_set(err, STK_E_LIMIT, "%s: %u devices, at most %d", path, n_devices,
                           MAX_DEVICES);
    }
    header head = {
        .n_devices = n_devices, .record_size = record_size(n_devices), .start_ms = start_ms};
    memcpy(head.magic, magic, sizeof magic);
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

int stk_samples_append(int fd, const stk_sample *sample, uint32_t n_devices)
{
    unsigned char buf[sizeof(record) + MAX_DEVICES * sizeof(stk_sample_device)];
    record r = {sample->time_ms, sample->rss_bytes, sample->cpu_us};
    memcpy(buf, &r, sizeof r);
    if (n_devices > 0) {
        memcpy(buf + sizeof r, sample->devices, n_devices * sizeof *sample->devices);
    }
    return stk_file_write_all(fd, buf, record_size(n_devices));
}

static int decode(const char *path, const char *data, size_t len, stk_arena *arena,
                  stk_samples *ret, stk_err *err)
{
    header head;
    if (len < sizeof head) {
        return 0; /* it is just being made */
    }
    memcpy(&head, data, sizeof head);
    if (memcmp(head.magic, magic, sizeof magic) != 0 || head.n_devices > MAX_DEVICES ||
        head.record_size != record_size(head.n_devices)) {
        return stk_err_set(err, STK_E_STORE, "%s: not a file of samples", path);
    }
    size_t begin = sizeof head + head.n_devices * (size_t)UUID_BYTES;
    size_t n = len < begin ? 0 : (len - begin) / head.record_size;
    char **uuids = stk_arena_array(arena, head.n_devices + 1u, sizeof *uuids);
    stk_sample *samples = stk_arena_array(arena, n + 1, sizeof *samples);
    stk_sample_device *devices = stk_arena_array(arena, n * head.n_devices + 1, sizeof *devices);
    if (uuids == NULL || samples == NULL || devices == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "%s", path);
    }
    for (uint32_t i = 0; i < head.n_devices && len >= begin; i++) {
        uuids[i] = stk_arena_dupn(arena, data + sizeof head + i * (size_t)UUID_BYTES, UUID_BYTES);
        if (uuids[i] == NULL) {
            return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "%s", path);
        }
    }
    for (size_t i = 0; i < n; i++) {
        const char *at = data + begin + i * head.record_size;
        record r;
        memcpy(&r, at, sizeof r);
        memcpy(devices + i * head.n_devices, at + sizeof r, head.n_devices * sizeof *devices);
        samples[i] = (stk_sample){r.time_ms, r.rss_bytes, r.cpu_us, devices + i * head.n_devices};
    }
    *ret = (stk_samples){.start_ms = head.start_ms,
                         .n_devices = len >= begin ? head.n_devices : 0,
                         .uuids = (const char *const *)uuids,
                         .n = (uint32_t)n,
                         .samples = samples};
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
    return rc < 0 ? rc : decode(path, data, len, arena, ret_samples, err);
}
