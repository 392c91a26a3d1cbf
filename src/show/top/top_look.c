/* Pictures of this host. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <time.h>

#include "show/top/top_private.h"
#include "sys/clock.h"
#include "sys/file.h"
#include "sys/proc.h"

enum { FIRST_LOOK_MS = 200 };

int stk_top_percent(int64_t part, int64_t whole)
{
    if (part < 0 || whole <= 0) {
        return -1;
    }
    return (int)MIN(part * 100 / whole, 100);
}

/* --- steps --- */

static double cpus_since(const stk_top *t, const stk_live_task *task, int64_t now_ms)
{
    for (uint32_t i = 0; i < t->n_seen; i++) {
        const stk_top_seen *s = &t->seen[i];
        if (s->pid == task->pid && s->start == task->start && now_ms > t->seen_ms) {
            int64_t used = task->usage.cpu_us - s->cpu_us;
            return (double)MAX(used, 0) / 1000 / (double)(now_ms - t->seen_ms);
        }
    }
    return -1;
}

static int remember(stk_top *t, const stk_live_task *tasks, uint32_t n, int64_t now_ms,
                    stk_err *err)
{
    stk_top_seen *now = calloc((size_t)n + 1, sizeof *now);
    STK_TRY(stk_err_if_null(now, err));
    for (uint32_t i = 0; i < n; i++) {
        now[i] = (stk_top_seen){tasks[i].pid, tasks[i].start, tasks[i].usage.cpu_us};
    }
    free(t->seen);
    t->seen = now;
    t->n_seen = n;
    t->seen_ms = now_ms;
    return 0;
}

static bool owns_process(const stk_live_task *task, pid_t pid)
{
    for (uint32_t i = 0; i < task->n_pids; i++) {
        if (task->pids[i] == pid) {
            return true;
        }
    }
    return false;
}

const stk_top_row *stk_top_find(const stk_top *t, pid_t pid)
{
    for (uint32_t i = 0; i < t->n_rows; i++) {
        if (owns_process(t->rows[i].task, pid)) {
            return &t->rows[i];
        }
    }
    return NULL;
}

void stk_top_device_number(const stk_top *t, uint32_t i, char *ret, size_t size)
{
    const stk_device *d = t->gpus.rows[i].device;
    if (d->parent < 0) {
        (void)snprintf(ret, size, "%d", (int)(d->index < 0 ? (int32_t)i : d->index));
        return;
    }
    (void)snprintf(ret, size, "%d.%u", (int)t->gpus.rows[d->parent].device->index,
                   i - (uint32_t)d->parent - 1);
}

/* The devices that the task was granted, and the memory that its processes hold on any device. */
static void read_row_devices(const stk_top *t, stk_top_row *r)
{
    size_t used = 0;
    char number[24];
    const char *comma = "";
    r->device_memory = -1;
    (void)snprintf(r->devices, sizeof r->devices, "-");
    for (uint32_t d = 0; d < t->gpus.n; d++) {
        const stk_gpus_row *device = &t->gpus.rows[d];
        const char *uuid = device->device->uuid;
        for (uint32_t i = 0; i < r->task->n_uuids && uuid != NULL; i++) {
            if (strcmp(r->task->uuids[i], uuid) == 0 && used + 24 < sizeof r->devices) {
                stk_top_device_number(t, d, number, sizeof number);
                used += (size_t)snprintf(r->devices + used, sizeof r->devices - used, "%s%s", comma,
                                         number);
                comma = ",";
            }
        }
        for (int i = 0; i < device->n_processes; i++) {
            const stk_device_process *on = &device->processes[i].on;
            if (on->memory_bytes >= 0 && owns_process(r->task, on->pid)) {
                r->device_memory = MAX(r->device_memory, 0) + on->memory_bytes;
            }
        }
    }
}

/* --- the host --- */

/* "cpu  USER NICE SYSTEM IDLE IOWAIT IRQ …", in ticks since boot. */
static void read_ticks(uint64_t *ret_busy, uint64_t *ret_all)
{
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    *ret_busy = *ret_all = 0;
    if (stk_file_read("/proc/stat", 1u << 20, &text, &len, NULL) < 0 ||
        strncmp(text, "cpu ", 4) != 0) {
        return;
    }
    char *at = text + 4;
    for (int i = 0; i < 8; i++) {
        uint64_t ticks = strtoull(at, &at, 10);
        *ret_all += ticks;
        if (i != 3 && i != 4) { /* idle, and waiting for a disk */
            *ret_busy += ticks;
        }
    }
}

static void look_at_host(stk_top *t)
{
    uint64_t busy = 0, all = 0;
    int64_t available = stk_proc_available_bytes();
    read_ticks(&busy, &all);
    t->cpu_percent = -1;
    if (t->all_ticks > 0 && all > t->all_ticks && busy >= t->busy_ticks) {
        t->cpu_percent = 100.0 * (double)(busy - t->busy_ticks) / (double)(all - t->all_ticks);
    }
    t->busy_ticks = busy;
    t->all_ticks = all;
    t->memory_bytes = stk_proc_memory_bytes();
    t->memory_used = -1;
    if (t->memory_bytes > 0 && available >= 0) {
        t->memory_used = MAX(t->memory_bytes - available, 0);
    }
}

static void keep_past(stk_top *t)
{
    t->past_at = (t->past_at + 1) % STK_TOP_PAST;
    t->n_past = MIN(t->n_past + 1, STK_TOP_PAST);
    t->past[0].use[t->past_at] = (int16_t)t->cpu_percent;
    t->past[0].memory[t->past_at] = (int16_t)stk_top_percent(t->memory_used, t->memory_bytes);
    for (uint32_t i = 0; i < t->gpus.n; i++) {
        const stk_gpus_row *row = &t->gpus.rows[i];
        t->past[i + 1].use[t->past_at] = (int16_t)MIN(row->state.busy_percent, 100);
        t->past[i + 1].memory[t->past_at] =
            (int16_t)stk_top_percent(row->state.memory_used, row->device->memory_bytes);
    }
}

int stk_top_look(stk_top *t, stk_err *err)
{
    stk_live_task *tasks = NULL;
    uint32_t n = 0;
    stk_arena_reset(t->arena);
    t->n_rows = 0;
    STK_TRY(stk_gpus_look(&t->gpus, err));
    STK_TRY(stk_live_tasks(t->arena, &tasks, &n, err));
    look_at_host(t);
    int64_t now_ms = stk_clock_mono_ms(&stk_clock_real);
    t->rows = stk_arena_array(t->arena, (size_t)n + 1, sizeof *t->rows);
    STK_TRY(stk_err_if_null(t->rows, err));
    for (uint32_t i = 0; i < n; i++) {
        stk_top_row *r = &t->rows[i];
        *r = (stk_top_row){.task = &tasks[i], .cpus = cpus_since(t, &tasks[i], now_ms)};
        (void)stk_proc_user(tasks[i].uid, r->user);
        read_row_devices(t, r);
    }
    t->n_rows = n;
    keep_past(t);
    return remember(t, tasks, n, now_ms, err);
}

int stk_top_open(stk_top **ret, stk_err *err)
{
    stk_live_task *tasks = NULL;
    uint32_t n = 0;
    stk_top *t = *ret = calloc(1, sizeof *t);
    STK_TRY(stk_err_if_null(t, err));
    STK_TRY(stk_err_if_null(t->arena = stk_arena_new(0), err));
    STK_TRY(stk_gpus_open(&t->gpus, err));
    t->past = calloc((size_t)stk_accel_n_devices(t->gpus.accel) + 1, sizeof *t->past);
    STK_TRY(stk_err_if_null(t->past, err));
    STK_TRY(stk_live_tasks(t->arena, &tasks, &n, err));
    STK_TRY(remember(t, tasks, n, stk_clock_mono_ms(&stk_clock_real), err));
    read_ticks(&t->busy_ticks, &t->all_ticks);
    struct timespec wait = {.tv_nsec = FIRST_LOOK_MS * 1000000L};
    (void)nanosleep(&wait, NULL);
    return 0;
}

void stk_top_close(stk_top *t)
{
    if (t != NULL) {
        stk_gpus_close(&t->gpus);
        stk_arena_free(t->arena);
        free(t->past);
        free(t->seen);
        free(t);
    }
}
