/* Sampling of one task, and the memory watchdog where no control group limits it. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "accel/accel.h"
#include "runner/runner.h"
#include "runner/runner_samples.h"
#include "sys/file.h"

enum {
    FIRST_MS = 100,
    WATCHDOG_MS = 100,
    MEMBERS_MS = 1000, /* how long a list of a task's processes is good for */
    PSS_MS = 1000
};

typedef struct stk_watch_device {
    uint32_t i; /* in the accel */
    stk_accel *accel;
    const char *uuid;
    double busy_sum;
    uint32_t n_busy;
    int64_t peak_bytes;
    stk_sample_device last;
} watch_device;

int stk_watch_init(stk_watch *watch, pid_t sid, int64_t now_ms, int64_t period_ms,
                   int64_t watchdog_bytes, stk_accel *accel, const uint32_t *devices,
                   uint32_t n_devices, stk_err *err)
{
    *watch = (stk_watch){.sid = sid,
                         .start_ms = now_ms,
                         .due_ms = now_ms + (period_ms > 0 ? period_ms : FIRST_MS),
                         .period_ms = period_ms,
                         .memory_bytes = watchdog_bytes,
                         .rss_bytes = -1,
                         .peak_bytes = -1,
                         .cpu_us = -1,
                         .cpus = -1,
                         .members_ms = INT64_MIN / 2,
                         .pss_ms = INT64_MIN / 2,
                         .last_record_ms = INT64_MIN / 2,
                         .fd = -1};
    if (accel == NULL || n_devices == 0) {
        return 0;
    }
    watch->devices = calloc(n_devices, sizeof *watch->devices);
    if (watch->devices == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "watching a task");
    }
    watch->n_devices = n_devices;
    for (uint32_t i = 0; i < n_devices; i++) {
        watch->devices[i] = (watch_device){.i = devices[i],
                                           .accel = accel,
                                           .uuid = stk_accel_device(accel, devices[i])->uuid,
                                           .peak_bytes = -1};
    }
    return 0;
}

void stk_watch_done(stk_watch *watch)
{
    stk_file_close(&watch->fd);
    stk_proc_members_done(&watch->members);
    free(watch->devices);
    watch->devices = NULL;
    watch->n_devices = 0;
}

/* Ten looks a second while a task is young, one a second later: a curve of an hour is still smooth.
 */
static int64_t period_at(const stk_watch *watch, int64_t age_ms)
{
    if (watch->period_ms > 0) {
        return watch->period_ms;
    }
    return age_ms < 10000 ? FIRST_MS : age_ms < 60000 ? 250 : age_ms < 600000 ? 500 : 1000;
}

static void sample_devices(stk_watch *watch)
{
    for (uint32_t i = 0; i < watch->n_devices; i++) {
        watch_device *d = &watch->devices[i];
        stk_device_sample s = STK_DEVICE_SAMPLE_UNKNOWN;
        if (stk_accel_sample(d->accel, d->i, watch->members.pids, watch->members.n, &s) < 0) {
            s = STK_DEVICE_SAMPLE_UNKNOWN;
        }
        d->last = (stk_sample_device){.memory_bytes =
                                          s.process_memory >= 0 ? s.process_memory : s.memory_used,
                                      .busy_percent = s.busy_percent};
        if (s.busy_percent >= 0) {
            d->busy_sum += s.busy_percent;
            d->n_busy++;
        }
        if (d->last.memory_bytes > d->peak_bytes) {
            d->peak_bytes = d->last.memory_bytes;
        }
    }
}

static void record(stk_watch *watch, const char *dir, int64_t now_ms)
{
    stk_sample_device devices[64];
    const char *uuids[64];
    uint32_t n = watch->n_devices < 64 ? watch->n_devices : 64;
    for (uint32_t i = 0; i < n; i++) {
        devices[i] = watch->devices[i].last;
        uuids[i] = watch->devices[i].uuid != NULL ? watch->devices[i].uuid : "";
    }
    if (watch->fd == -1) {
        char path[PATH_MAX];
        struct timespec wall;
        (void)clock_gettime(CLOCK_REALTIME, &wall);
        int64_t start =
            (int64_t)wall.tv_sec * 1000 + wall.tv_nsec / 1000000 - (now_ms - watch->start_ms);
        (void)snprintf(path, sizeof path, "%s/samples.bin", dir);
        if (stk_samples_create(path, start, n, uuids, &watch->fd, NULL) < 0) {
            watch->fd = -2; /* a full disk costs the curve, not the task */
        }
    }
    stk_sample sample = {.time_ms = now_ms - watch->start_ms,
                         .rss_bytes = watch->rss_bytes,
                         .cpu_us = watch->cpu_us,
                         .devices = devices};
    if (watch->fd >= 0 && stk_samples_append(watch->fd, &sample, n) < 0) {
        stk_file_close(&watch->fd);
        watch->fd = -2;
    }
    watch->last_record_ms = now_ms;
}

/* RSS counts a page once for each process that maps it, and pages that the kernel could take back;
 * it is an upper bound, so only above the limit a closer look is worth its price. What that look
 * found is remembered as a difference, so RSS that grows past it is seen before the next one. */
static int64_t over_limit(stk_watch *watch, int64_t now_ms)
{
    if (watch->memory_bytes <= 0 || watch->rss_bytes <= watch->memory_bytes) {
        return 0;
    }
    bool recent = now_ms - watch->pss_ms < PSS_MS;
    if (recent && watch->rss_bytes - watch->pss_offset_bytes <= watch->memory_bytes) {
        return 0;
    }
    int64_t pss = stk_proc_session_pss(watch->sid);
    watch->pss_ms = now_ms;
    if (pss < 0) {
        return watch->rss_bytes; /* no closer look to be had */
    }
    watch->pss_offset_bytes = watch->rss_bytes - pss;
    return pss > watch->memory_bytes ? pss : 0;
}

int64_t stk_watch_sample(stk_watch *watch, const char *dir, int64_t now_ms)
{
    int64_t age = now_ms - watch->start_ms;
    if (now_ms - watch->members_ms >= MEMBERS_MS || age < 500) {
        (void)stk_proc_members_find(watch->sid, &watch->members);
        watch->members_ms = now_ms;
    }
    stk_proc_usage usage;
    stk_proc_members_usage(&watch->members, &usage);
    int64_t period = period_at(watch, age);
    int64_t over = 0;
    if (usage.n > 0) {
        watch->rss_bytes = usage.rss_bytes;
        if (usage.rss_bytes > watch->peak_bytes) {
            watch->peak_bytes = usage.rss_bytes;
        }
        /* What an orphan used goes with it; a task's total never falls. */
        int64_t cpu = usage.cpu_us > watch->cpu_us ? usage.cpu_us : watch->cpu_us;
        if (watch->cpu_ms > 0 && now_ms > watch->cpu_ms) {
            watch->cpus = (double)(cpu - watch->cpu_us) / 1000.0 / (double)(now_ms - watch->cpu_ms);
        }
        watch->cpu_us = cpu;
        watch->cpu_ms = now_ms;
        over = over_limit(watch, now_ms);
        if (dir != NULL && (over > 0 || now_ms - watch->last_record_ms >= period)) {
            sample_devices(watch);
            record(watch, dir, now_ms);
        }
    }
    bool hurry = watch->memory_bytes > 0 && period > WATCHDOG_MS;
    watch->due_ms = now_ms + (hurry ? WATCHDOG_MS : period);
    return over;
}

void stk_watch_report(const stk_watch *watch, stk_outcome *outcome)
{
    uint32_t max = sizeof outcome->devices / sizeof outcome->devices[0];
    outcome->n_devices = watch->n_devices < max ? watch->n_devices : max;
    for (uint32_t i = 0; i < outcome->n_devices; i++) {
        const watch_device *d = &watch->devices[i];
        outcome->devices[i].uuid = d->uuid;
        outcome->devices[i].busy_percent_mean = d->n_busy > 0 ? d->busy_sum / d->n_busy : -1;
        outcome->devices[i].peak_memory_bytes = d->peak_bytes;
    }
}
