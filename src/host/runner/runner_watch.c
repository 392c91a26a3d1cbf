/* Samples one task, and limits its memory if no control group does (the watchdog). */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/text.h"
#include "host/runner/runner_private.h"
#include "sys/clock.h"
#include "sys/file.h"

enum {
    FIRST_MS = 100,
    WATCHDOG_MS = 100,
    MEMBERS_MS = 1000,     /* how long a list of a task's processes is valid */
    MEMBERS_MAX_MS = 4000, /* the same for a stable list, if no limit depends on it */
    PSS_MS = 1000,
    IO_MS = 1000,
    WRITE_MS = 1000,
    SHM_MS = 250,
    EARLY_PERCENT = 20, /* timers that are due soon run together */
    LOOK_MAX_MS = 60000,
    NODES_MS = 1000
};

/* The variable that the lease sets for its devices' vendor: "CUDA_VISIBLE_DEVICES=GPU-…". */
static char *mask_of(stk_accel *accel, const stk_lease *lease)
{
    const char *pairs[64][2];
    char *mask = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(1 << 20);
    if (arena == NULL) {
        return NULL;
    }
    uint32_t n = stk_lease_env(accel, lease, arena, pairs, 64);
    for (uint32_t i = 0; i < n && mask == NULL; i++) {
        bool names_devices =
            strstr(pairs[i][0], "VISIBLE") != NULL || strstr(pairs[i][0], "MASK") != NULL;
        if (names_devices && pairs[i][1][0] != '\0' &&
            asprintf(&mask, "%s=%s", pairs[i][0], pairs[i][1]) < 0) {
            mask = NULL;
        }
    }
    return mask;
}

int stk_watch_init(stk_watch *watch, const stk_watch_config *config, stk_err *err)
{
    *watch = (stk_watch){.config = *config,
                         .due_ms = INT64_MAX,
                         .rss_bytes = -1,
                         .peak_bytes = -1,
                         .cpu_us = -1,
                         .read_bytes = -1,
                         .write_bytes = -1,
                         .io_ms = INT64_MIN / 2,
                         .cpus = -1,
                         .members_ms = INT64_MIN / 2,
                         .members_for_ms = MEMBERS_MS,
                         .pss_ms = INT64_MIN / 2,
                         .last_record_ms = INT64_MIN / 2,
                         .written_ms = INT64_MIN / 2,
                         .shm_ms = INT64_MIN / 2,
                         .shm_free_bytes = -1,
                         .shm_bytes = -1,
                         .fd = -1};
    watch->config.lease = NULL;
    if (config->clock == NULL) {
        watch->config.clock = &stk_clock_real;
    }
    if (config->accel == NULL || config->lease == NULL || config->lease->n == 0) {
        return 0;
    }
    watch->mask = mask_of(config->accel, config->lease);
    return stk_watch_devices_init(watch, config->lease, err);
}

void stk_watch_done(stk_watch *watch)
{
    stk_watch_flush(watch);
    stk_file_close(&watch->fd);
    stk_proc_members_done(&watch->members);
    free(watch->devices);
    free(watch->mask);
    watch->devices = NULL;
    watch->mask = NULL;
    watch->n_devices = 0;
}

/* Ten samples a second for a young task, down to one a second later: a curve over an hour is still
 * smooth.
 */
static int64_t period_at(const stk_watch *watch, int64_t age_ms)
{
    static const struct {
        int64_t age_ms, period_ms;
    } periods[] = {{10000, FIRST_MS}, {60000, 250}, {600000, 500}};
    if (watch->config.period_ms > 0) {
        return watch->config.period_ms;
    }
    for (size_t i = 0; i < sizeof periods / sizeof *periods; i++) {
        if (age_ms < periods[i].age_ms) {
            return periods[i].period_ms;
        }
    }
    return 1000;
}

void stk_watch_start(stk_watch *watch, pid_t sid, int64_t now_ms)
{
    watch->sid = sid;
    watch->start_ms = now_ms;
    watch->due_ms = now_ms + period_at(watch, 0);
    if (watch->n_devices > 0 || watch->config.memory_bytes > 0) {
        watch->due_ms = now_ms + MIN(period_at(watch, 0), FIRST_MS);
    }
}

void stk_watch_follow(stk_watch *watch, pid_t pid)
{
    watch->sid = pid;
    watch->is_followed = true;
    watch->shm_ms = INT64_MIN / 2;
    watch->shm_free_bytes = watch->shm_bytes = -1;
    watch->members_ms = INT64_MIN / 2;
    watch->members_for_ms = MEMBERS_MS;
    watch->rss_bytes = watch->peak_bytes = watch->cpu_us = -1;
    watch->read_bytes = watch->write_bytes = -1;
    watch->cpus = -1;
    watch->cpu_ms = 0;
    watch->io_ms = INT64_MIN / 2;
    stk_proc_members_done(&watch->members);
    watch->members = (stk_proc_members){0};
}

static void create(stk_watch *watch, int64_t now_ms)
{
    char path[PATH_MAX];
    const char *uuids[STK_LEASE_DEVICES];
    for (uint32_t i = 0; i < watch->n_devices; i++) {
        const char *uuid = watch->devices[i].device->uuid;
        uuids[i] = stk_text_or(uuid, "");
    }
    int64_t start = stk_clock_wall_ms(watch->config.clock) - (now_ms - watch->start_ms);
    (void)snprintf(path, sizeof path, "%s/samples.bin", watch->config.dir);
    if (stk_samples_create(path, start, watch->n_devices, uuids, &watch->fd, NULL) < 0) {
        watch->fd = -2; /* a full disk ends the curve, not the task */
    }
}

static void write_samples(stk_watch *watch, const void *data, size_t len)
{
    if (watch->fd >= 0 && stk_file_write_all(watch->fd, data, len) < 0) {
        stk_file_close(&watch->fd);
        watch->fd = -2;
    }
}

void stk_watch_flush(stk_watch *watch)
{
    write_samples(watch, watch->pending, watch->n_pending);
    watch->n_pending = 0;
}

static int64_t size_of_log(const stk_watch *watch, const char *name)
{
    char path[PATH_MAX];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/%s", watch->config.dir, name);
    if (stat(path, &st) != 0) {
        return -1;
    }
    return (int64_t)st.st_size;
}

/* Collects records, so that many of them cost one write. */
static void record(stk_watch *watch, int64_t now_ms)
{
    stk_sample_device devices[STK_LEASE_DEVICES];
    uint32_t n = watch->n_devices;
    for (uint32_t i = 0; i < n && watch->has_news; i++) {
        devices[i] = watch->devices[i].last;
    }
    if (watch->fd == -1) {
        create(watch, now_ms);
    }
    stk_sample sample = {.time_ms = now_ms - watch->start_ms,
                         .rss_bytes = watch->rss_bytes,
                         .cpu_us = watch->cpu_us,
                         .read_bytes = watch->read_bytes,
                         .write_bytes = watch->write_bytes,
                         .stdout_bytes = size_of_log(watch, "stdout.log"),
                         .stderr_bytes = size_of_log(watch, "stderr.log"),
                         .devices = watch->has_news ? devices : NULL};
    size_t len = stk_samples_encode(&sample, n, watch->pending + watch->n_pending,
                                    sizeof watch->pending - watch->n_pending);
    watch->n_pending += (uint32_t)len;
    if (len == 0 || watch->config.write_at_once || now_ms - watch->written_ms >= WRITE_MS) {
        stk_watch_flush(watch);
        watch->written_ms = now_ms;
    }
    if (len == 0 && watch->fd >= 0 && stk_samples_append(watch->fd, &sample, n) < 0) {
        stk_file_close(&watch->fd);
        watch->fd = -2;
    }
    watch->has_news = false;
    watch->last_record_ms = now_ms;
}

/* RSS counts a page once per process that maps it, and includes pages that the kernel could
 * reclaim. It is an upper bound, so we read the exact but expensive PSS only if RSS exceeds the
 * limit. We keep RSS minus PSS, so that we notice growth before the next PSS reading. */
static int64_t over_limit(stk_watch *watch, int64_t now_ms)
{
    if (watch->config.memory_bytes <= 0 || watch->rss_bytes <= watch->config.memory_bytes) {
        return 0;
    }
    bool recent = now_ms - watch->pss_ms < PSS_MS;
    if (recent && watch->rss_bytes - watch->pss_offset_bytes <= watch->config.memory_bytes) {
        return 0;
    }
    int64_t pss = stk_proc_session_pss(watch->sid);
    watch->pss_ms = now_ms;
    if (pss < 0) {
        return watch->rss_bytes; /* PSS is unavailable */
    }
    watch->pss_offset_bytes = watch->rss_bytes - pss;
    return pss > watch->config.memory_bytes ? pss : 0;
}

/* Finding a task's processes costs more than reading their usage, and most tasks keep the same
 * processes. */
static void find_members(stk_watch *watch, int64_t now_ms, int64_t age_ms)
{
    if (age_ms >= 500 && now_ms - watch->members_ms < watch->members_for_ms) {
        return;
    }
    uint32_t n = watch->members.n;
    pid_t last = 0;
    if (n > 0) {
        last = watch->members.pids[n - 1];
    }
    (void)stk_proc_members_find(watch->sid, &watch->members);
    watch->members_ms = now_ms;
    bool same = watch->members.n == n && n > 0 && watch->members.pids[n - 1] == last;
    bool limited = watch->config.memory_bytes > 0 || watch->share_bytes > 0;
    int64_t longer = MIN(watch->members_for_ms * 2, MEMBERS_MAX_MS);
    watch->members_for_ms = same && !limited && age_ms >= 500 ? longer : MEMBERS_MS;
}

void stk_watch_look_at_shm(stk_watch *watch)
{
    struct statvfs fs;
    char path[64] = "/dev/shm";
    if (watch->is_followed) { /* a container has its own /dev/shm */
        (void)snprintf(path, sizeof path, "/proc/%d/root/dev/shm", (int)watch->sid);
    }
    if (statvfs(path, &fs) == 0) {
        int64_t left = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
        if (watch->shm_free_bytes < 0 || left < watch->shm_free_bytes) {
            watch->shm_free_bytes = left;
        }
        watch->shm_bytes = (int64_t)fs.f_blocks * (int64_t)fs.f_frsize;
    }
}

/* The usage of ended processes disappears from the sum; a task's totals must not fall. */
static void take_usage(stk_watch *watch, const stk_proc_usage *usage, int64_t now_ms)
{
    watch->rss_bytes = usage->rss_bytes;
    watch->peak_bytes = MAX(watch->peak_bytes, usage->rss_bytes);
    watch->read_bytes = MAX(watch->read_bytes, usage->read_bytes);
    watch->write_bytes = MAX(watch->write_bytes, usage->write_bytes);
    int64_t cpu = MAX(watch->cpu_us, usage->cpu_us);
    if (watch->cpu_ms > 0 && now_ms > watch->cpu_ms) {
        watch->cpus = (double)(cpu - watch->cpu_us) / 1000.0 / (double)(now_ms - watch->cpu_ms);
    }
    watch->cpu_us = cpu;
    watch->cpu_ms = now_ms;
}

/* Whether to look at device nodes. Short use of such a device leaves no other trace. Stops once
 * every such node was seen open. */
static bool nodes_are_due(const stk_watch *watch, int64_t age_ms)
{
    bool due = false;
    for (uint32_t i = 0; i < watch->n_devices && !due && age_ms >= watch->nodes_ms; i++) {
        due = !watch->devices[i].opened && stk_watch_node_tells(&watch->devices[i]);
    }
    return due;
}

static void look_now_and_then(stk_watch *watch, int64_t age_ms)
{
    if (nodes_are_due(watch, age_ms)) {
        watch->nodes_ms = age_ms + NODES_MS;
        if (stk_watch_look_at_nodes(watch)) {
            watch->look_ms = age_ms;
        }
    }
    if (watch->n_devices > 0 && age_ms >= watch->look_ms) {
        stk_watch_look(watch);
        watch->look_ms = age_ms + MIN(age_ms, LOOK_MAX_MS);
    }
}

stk_failure stk_watch_sample(stk_watch *watch, int64_t now_ms)
{
    int64_t age = now_ms - watch->start_ms;
    int64_t period = period_at(watch, age);
    stk_failure failure = STK_FAIL_NONE;
    bool with_io = now_ms - watch->io_ms >= MAX(period, IO_MS);
    stk_proc_usage usage;
    find_members(watch, now_ms, age);
    stk_proc_members_usage(&watch->members, with_io, &usage);
    if (usage.n > 0) {
        if (with_io) {
            watch->io_ms = now_ms;
        }
        take_usage(watch, &usage, now_ms);
        if (now_ms - watch->shm_ms >= SHM_MS) {
            stk_watch_look_at_shm(watch);
            watch->shm_ms = now_ms;
        }
        int64_t over = over_limit(watch, now_ms);
        bool asked = stk_watch_devices_ask(watch, now_ms, period);
        if (over > 0) {
            watch->over_bytes = over;
            failure = STK_FAIL_HOST_OOM;
        } else if (asked && stk_watch_over_share(watch)) {
            failure = STK_FAIL_GPU_SHARE;
        }
        look_now_and_then(watch, age);
        int64_t least = period - period * EARLY_PERCENT / 100;
        if (watch->config.dir != NULL &&
            (failure != STK_FAIL_NONE || now_ms - watch->last_record_ms >= least)) {
            record(watch, now_ms);
        }
    }
    if (watch->config.memory_bytes > 0 && period > WATCHDOG_MS) {
        period = WATCHDOG_MS;
    } else if (watch->share_bytes > 0) {
        period = MIN(period, watch->ask_for_ms);
    }
    watch->due_ms = now_ms + period;
    return failure;
}
