#include "show/top.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/units.h"
#include "host/accel/accel.h"
#include "host/runner/runner_live.h"
#include "sys/clock.h"
#include "sys/proc.h"

enum { PROCESSES_MAX = 256, FIRST_LOOK_MS = 200 };

/* The CPU time of an attempt at the previous picture. */
typedef struct seen {
    pid_t pid;
    uint64_t start;
    int64_t cpu_us;
} seen;

struct stk_top {
    stk_accel *accel;
    stk_style style;
    stk_arena *arena; /* of the current picture */
    seen *seen;
    uint32_t n_seen;
    int64_t seen_ms;
};

/* One attempt with its usage over all devices; -1: unknown. */
typedef struct row {
    const stk_live_task *task;
    double cpus;
    int64_t device_memory;
    char devices[64]; /* "0,1", "-" */
    char user[33];
} row;

static double cpus_since(const stk_top *t, const stk_live_task *task, int64_t now_ms)
{
    for (uint32_t i = 0; i < t->n_seen; i++) {
        const seen *s = &t->seen[i];
        if (s->pid == task->pid && s->start == task->start && now_ms > t->seen_ms) {
            int64_t used = task->usage.cpu_us - s->cpu_us;
            return (double)used / 1000 / (double)(now_ms - t->seen_ms);
        }
    }
    return -1;
}

static int remember(stk_top *t, const stk_live_task *tasks, uint32_t n, int64_t now_ms,
                    stk_err *err)
{
    seen *now = calloc((size_t)n + 1, sizeof *now);
    STK_TRY(stk_err_if_null(now, err));
    for (uint32_t i = 0; i < n; i++) {
        now[i] = (seen){tasks[i].pid, tasks[i].start, tasks[i].usage.cpu_us};
    }
    free(t->seen);
    t->seen = now;
    t->n_seen = n;
    t->seen_ms = now_ms;
    return 0;
}

static bool is_of(const stk_live_task *task, pid_t pid)
{
    for (uint32_t i = 0; i < task->n_pids; i++) {
        if (task->pids[i] == pid) {
            return true;
        }
    }
    return false;
}

/* The devices that the task was granted, and the memory that its processes hold on any device. */
static void read_devices(const stk_top *t, row *r)
{
    size_t used = 0;
    const char *comma = "";
    r->device_memory = -1;
    (void)snprintf(r->devices, sizeof r->devices, "-");
    for (uint32_t d = 0; d < stk_accel_n_devices(t->accel); d++) {
        const stk_device *device = stk_accel_device(t->accel, d);
        for (uint32_t i = 0; i < r->task->n_uuids && device->uuid != NULL; i++) {
            if (strcmp(r->task->uuids[i], device->uuid) == 0 && used + 8 < sizeof r->devices) {
                used +=
                    (size_t)snprintf(r->devices + used, sizeof r->devices - used, "%s%u", comma, d);
                comma = ",";
            }
        }
        stk_device_process processes[PROCESSES_MAX];
        int n = stk_accel_processes(t->accel, d, processes, PROCESSES_MAX);
        for (int i = 0; i < n; i++) {
            if (processes[i].memory_bytes >= 0 && is_of(r->task, processes[i].pid)) {
                r->device_memory = MAX(r->device_memory, 0) + processes[i].memory_bytes;
            }
        }
    }
}

static void fill_row(const stk_top *t, const stk_live_task *task, int64_t now_ms, row *ret)
{
    const struct passwd *user = getpwuid(task->uid);
    *ret = (row){.task = task, .cpus = cpus_since(t, task, now_ms)};
    read_devices(t, ret);
    if (user != NULL) {
        (void)snprintf(ret->user, sizeof ret->user, "%s", user->pw_name);
    } else {
        (void)snprintf(ret->user, sizeof ret->user, "%u", (unsigned)task->uid);
    }
}

static double watts(const stk_device_state *state)
{
    return state->power_mw / 1000.0;
}

/* --- as text --- */

static const char *memory(int64_t bytes, char *buf, size_t size)
{
    return bytes < 0 ? "-" : stk_units_format_memory(bytes, buf, size);
}

static const char *measure(double value, const char *format, char *buf, size_t size)
{
    if (value < 0) {
        return "-";
    }
    (void)snprintf(buf, size, format, value); /* NOLINT: the formats are below */
    return buf;
}

static void put_host(uint32_t n_tasks, stk_buf *out)
{
    char host[256] = "this host";
    char used[32];
    char all[32];
    char time[40];
    int64_t total = stk_proc_memory_bytes();
    int64_t available = stk_proc_available_bytes();
    double load = 0;
    (void)gethostname(host, sizeof host - 1);
    stk_buf_printf(out, "%s  %s  %u step%s running  %u CPUs", host,
                   stk_text_time(stk_clock_wall_ms(&stk_clock_real), false, time, sizeof time),
                   n_tasks, stk_text_plural(n_tasks), stk_proc_n_cpus());
    if (getloadavg(&load, 1) == 1) {
        stk_buf_printf(out, ", load %.2f", load);
    }
    if (total > 0 && available >= 0) {
        stk_buf_printf(out, "  memory %s of %s", memory(total - available, used, sizeof used),
                       memory(total, all, sizeof all));
    }
    stk_buf_text(out, "\n");
}

static void put_device(const stk_top *t, uint32_t i, stk_buf *out)
{
    const stk_device *device = stk_accel_device(t->accel, i);
    stk_device_state state;
    stk_err why = {0};
    char a[32];
    char b[32];
    char c[32];
    (void)stk_accel_state(t->accel, i, &state, &why);
    const char *holder = device->trouble;
    if (holder == NULL && device->n_slices > 0) {
        holder = "split into slices";
    } else if (holder == NULL) {
        holder = stk_lease_holder(t->accel, i, t->arena);
    }
    stk_buf_printf(out, "%4u  ", i);
    stk_text_fit(out, stk_text_or(device->model, "-"), 26, true, t->style.utf8);
    stk_buf_printf(out, "%6s", measure(state.busy_percent, "%.0f%%", a, sizeof a));
    stk_buf_printf(out, "%11s / %-9s", memory(state.memory_used, a, sizeof a),
                   memory(device->memory_bytes, b, sizeof b));
    stk_buf_printf(out, "%7s", measure(watts(&state), "%.0f W", c, sizeof c));
    stk_buf_printf(out, "%7s  ", measure(state.temperature_c, "%.0f C", a, sizeof a));
    stk_text_fit(out, stk_text_or(holder, "free"), t->style.columns - 75, false, t->style.utf8);
    stk_buf_char(out, '\n');
}

static void put_row(const stk_top *t, const row *r, stk_buf *out)
{
    char a[32];
    char attempt[16];
    const stk_live_task *task = r->task;
    int64_t now_ms = stk_clock_wall_ms(&stk_clock_real);
    const char *age = "-";
    char age_text[32];
    if (task->started_ms >= 0 && task->started_ms <= now_ms) {
        age = stk_units_format_duration(now_ms - task->started_ms, age_text, sizeof age_text);
    }
    (void)snprintf(attempt, sizeof attempt, "%u", task->attempt);
    stk_buf_printf(out, "%8d  ", (int)task->pid);
    stk_text_fit(out, r->user, 9, true, t->style.utf8);
    stk_text_fit(out, task->run, 24, true, t->style.utf8);
    char step[STK_LIMIT_NAME + 16]; /* in a growing run, with the task's number */
    if (task->task > 0) {
        (void)snprintf(step, sizeof step, "%s/%u", task->step, task->task);
    } else {
        (void)snprintf(step, sizeof step, "%s", task->step);
    }
    stk_text_fit(out, step, 20, true, t->style.utf8);
    stk_buf_printf(out, "%4s", attempt);
    stk_buf_printf(out, "%10s", age);
    stk_buf_printf(out, "%7s", measure(r->cpus * 100, "%.0f%%", a, sizeof a));
    stk_buf_printf(out, "%10s", memory(task->usage.rss_bytes, a, sizeof a));
    stk_buf_printf(out, "%6s", r->devices);
    stk_buf_printf(out, "%10s\n", memory(r->device_memory, a, sizeof a));
}

static void head_line(const stk_top *t, const char *text, stk_buf *out)
{
    stk_text_ink(out, &t->style, STK_INK_BOLD, text);
    stk_buf_char(out, '\n');
}

static void put_text(const stk_top *t, const row *rows, uint32_t n, int max_lines, stk_buf *out)
{
    uint32_t n_devices = stk_accel_n_devices(t->accel);
    int left = INT32_MAX;
    if (max_lines != 0) {
        left = max_lines - 5 - (int)n_devices;
    }
    put_host(n, out);
    if (n_devices > 0) {
        head_line(
            t,
            "\n   #  DEVICE                      BUSY     MEMORY             POWER   TEMP  HELD BY",
            out);
    }
    for (uint32_t i = 0; i < n_devices; i++) {
        put_device(t, i, out);
    }
    head_line(t,
              "\n     PID  USER     RUN                     STEP                 TRY      TIME   "
              " CPU    MEMORY   GPU   GPU MEM",
              out);
    for (uint32_t i = 0; i < n; i++) {
        if (left-- <= 1 && i + 1 < n) {
            stk_buf_printf(out, "          … and %u more\n", n - i);
            break;
        }
        put_row(t, &rows[i], out);
    }
}

/* --- as JSON --- */

static void put_device_json(const stk_top *t, uint32_t i, stk_buf *out)
{
    const stk_device *device = stk_accel_device(t->accel, i);
    stk_device_state state;
    (void)stk_accel_state(t->accel, i, &state, NULL);
    stk_json_open(out, NULL, '{');
    stk_json_put_whole(out, "number", i);
    stk_json_put_text(out, "uuid", device->uuid);
    stk_json_put_text(out, "model", device->model);
    stk_json_put_real(out, "busy_percent", state.busy_percent);
    stk_json_put_real(out, "memory_used", (double)state.memory_used);
    stk_json_put_real(out, "memory_bytes", (double)device->memory_bytes);
    stk_json_put_real(out, "power_w", watts(&state));
    stk_json_put_real(out, "temperature_c", state.temperature_c);
    stk_json_put_text(out, "holder", stk_lease_holder(t->accel, i, t->arena));
    stk_json_put_text(out, "trouble", device->trouble);
    stk_json_close(out, '}');
}

static void put_row_json(const row *r, stk_buf *out)
{
    const stk_live_task *task = r->task;
    stk_json_open(out, NULL, '{');
    stk_json_put_whole(out, "pid", task->pid);
    stk_json_put_whole(out, "task", task->task);
    stk_json_put_whole(out, "attempt", task->attempt);
    stk_json_put_text(out, "user", r->user);
    stk_json_put_text(out, "run", task->run);
    stk_json_put_text(out, "step", task->step);
    stk_json_put_text(out, "dir", task->dir);
    stk_json_put_real(out, "started_ms", (double)task->started_ms);
    stk_json_put_real(out, "cpus", r->cpus);
    stk_json_put_real(out, "memory_bytes", (double)task->usage.rss_bytes);
    stk_json_put_real(out, "device_memory_bytes", (double)r->device_memory);
    stk_json_open(out, "devices", '[');
    for (uint32_t k = 0; k < task->n_uuids; k++) {
        stk_json_put_text(out, NULL, task->uuids[k]);
    }
    stk_json_close(out, ']');
    stk_json_close(out, '}');
}

static void put_top_json(const stk_top *t, const row *rows, uint32_t n, stk_buf *out)
{
    stk_json_open(out, NULL, '{');
    stk_json_put_whole(out, "time_ms", stk_clock_wall_ms(&stk_clock_real));
    stk_json_put_whole(out, "cpus", stk_proc_n_cpus());
    stk_json_put_real(out, "memory_bytes", (double)stk_proc_memory_bytes());
    stk_json_put_real(out, "available_bytes", (double)stk_proc_available_bytes());
    stk_json_open(out, "devices", '[');
    for (uint32_t i = 0; i < stk_accel_n_devices(t->accel); i++) {
        put_device_json(t, i, out);
    }
    stk_json_close(out, ']');
    stk_json_open(out, "steps", '[');
    for (uint32_t i = 0; i < n; i++) {
        put_row_json(&rows[i], out);
    }
    stk_json_close(out, ']');
    stk_json_close(out, '}');
    stk_buf_char(out, '\n');
}

int stk_top_draw(stk_top *t, const stk_style *style, int max_lines, stk_buf *out, stk_err *err)
{
    stk_live_task *tasks = NULL;
    uint32_t n = 0;
    stk_arena_reset(t->arena);
    STK_TRY(stk_live_tasks(t->arena, &tasks, &n, err));
    int64_t now_ms = stk_clock_mono_ms(&stk_clock_real);
    row *rows = stk_arena_array(t->arena, (size_t)n + 1, sizeof *rows);
    STK_TRY(stk_err_if_null(rows, err));
    for (uint32_t i = 0; i < n; i++) {
        fill_row(t, &tasks[i], now_ms, &rows[i]);
    }
    if (style == NULL) {
        put_top_json(t, rows, n, out);
    } else {
        t->style = *style;
        put_text(t, rows, n, max_lines, out);
    }
    return remember(t, tasks, n, now_ms, err);
}

int stk_top_open(stk_top **ret, stk_err *err)
{
    stk_live_task *tasks = NULL;
    uint32_t n = 0;
    stk_top *t = *ret = calloc(1, sizeof *t);
    STK_TRY(stk_err_if_null(t, err));
    STK_TRY(stk_err_if_null(t->arena = stk_arena_new(0), err));
    STK_TRY(stk_accel_open(NULL, &t->accel, err));
    STK_TRY(stk_live_tasks(t->arena, &tasks, &n, err));
    STK_TRY(remember(t, tasks, n, stk_clock_mono_ms(&stk_clock_real), err));
    struct timespec wait = {.tv_nsec = FIRST_LOOK_MS * 1000000L};
    (void)nanosleep(&wait, NULL);
    return 0;
}

void stk_top_close(stk_top *t)
{
    if (t != NULL) {
        stk_accel_close(t->accel);
        stk_arena_free(t->arena);
        free(t->seen);
        free(t);
    }
}
