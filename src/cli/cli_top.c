/* stoker top: what runs on this host now, of every run, and what its devices do. */
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/units.h"
#include "cli/cli_read.h"
#include "cli/cli_redraw.h"
#include "host/accel/accel.h"
#include "host/runner/runner_live.h"
#include "show/report_text.h"
#include "sys/clock.h"
#include "sys/proc.h"

enum { PROCESSES_MAX = 256, FIRST_LOOK_MS = 200 };

/* What an attempt had used at the last look. */
typedef struct seen {
    pid_t pid;
    uint64_t start;
    int64_t cpu_us;
} seen;

typedef struct top {
    const stk_cli *cli;
    stk_accel *accel;
    stk_style style;
    stk_arena *arena; /* of one picture */
    seen *seen;
    uint32_t n_seen;
    int64_t seen_ms;
} top;

/* Of one attempt, on all devices: -1 unknown. */
typedef struct row {
    const stk_live_task *task;
    double cpus;
    int64_t device_memory;
    char devices[64]; /* "0,1", "-" */
    char user[33];
} row;

static double cpus_since(const top *t, const stk_live_task *task, int64_t now_ms)
{
    for (uint32_t i = 0; i < t->n_seen; i++) {
        const seen *s = &t->seen[i];
        if (s->pid == task->pid && s->start == task->start && now_ms > t->seen_ms) {
            int64_t used = task->usage.cpu_us - s->cpu_us;
            return used < 0 ? -1 : (double)used / 1000 / (double)(now_ms - t->seen_ms);
        }
    }
    return -1;
}

static int remember(top *t, const stk_live_task *tasks, uint32_t n, int64_t now_ms, stk_err *err)
{
    seen *now = calloc((size_t)n + 1, sizeof *now);
    if (now == NULL) {
        return stk_err_nomem(err);
    }
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

/* What was granted, and what its processes hold on whatever device. */
static void look_at_devices(const top *t, row *r)
{
    size_t used = 0;
    r->device_memory = -1;
    (void)snprintf(r->devices, sizeof r->devices, "-");
    for (uint32_t d = 0; d < stk_accel_n_devices(t->accel); d++) {
        const stk_device *device = stk_accel_device(t->accel, d);
        for (uint32_t i = 0; i < r->task->n_uuids && device->uuid != NULL; i++) {
            if (strcmp(r->task->uuids[i], device->uuid) == 0 && used + 8 < sizeof r->devices) {
                used += (size_t)snprintf(r->devices + used, sizeof r->devices - used, "%s%u",
                                         used > 0 ? "," : "", d);
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

static void fill_row(const top *t, const stk_live_task *task, int64_t now_ms, row *ret)
{
    const struct passwd *user = getpwuid(task->uid);
    *ret = (row){.task = task, .cpus = cpus_since(t, task, now_ms)};
    look_at_devices(t, ret);
    if (user != NULL) {
        (void)snprintf(ret->user, sizeof ret->user, "%s", user->pw_name);
    } else {
        (void)snprintf(ret->user, sizeof ret->user, "%u", (unsigned)task->uid);
    }
}

/* --- as text --- */

static const char *memory(int64_t bytes, char *buf, size_t size)
{
    return bytes < 0 ? "-" : stk_units_format_memory(bytes, buf, size);
}

static const char *number(double value, const char *format, char *buf, size_t size)
{
    if (value < 0) {
        return "-";
    }
    (void)snprintf(buf, size, format, value); /* NOLINT: the formats are below */
    return buf;
}

static void put_head(uint32_t n_tasks, stk_buf *out)
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
                   n_tasks, n_tasks == 1 ? "" : "s", stk_proc_n_cpus());
    if (getloadavg(&load, 1) == 1) {
        stk_buf_printf(out, ", load %.2f", load);
    }
    if (total > 0 && available >= 0) {
        stk_buf_printf(out, "  memory %s of %s", memory(total - available, used, sizeof used),
                       memory(total, all, sizeof all));
    }
    stk_buf_text(out, "\n");
}

static void put_device(const top *t, uint32_t i, stk_buf *out)
{
    const stk_device *device = stk_accel_device(t->accel, i);
    stk_device_state state;
    stk_err why = {0};
    char a[32];
    char b[32];
    char c[32];
    (void)stk_accel_state(t->accel, i, &state, &why);
    const char *holder = device->trouble != NULL ? device->trouble
                         : device->n_slices > 0  ? "split into slices"
                                                 : stk_lease_holder(t->accel, i, t->arena);
    stk_buf_printf(out, "%4u  ", i);
    stk_text_fit(out, device->model != NULL ? device->model : "-", 26, true, t->style.utf8);
    stk_buf_printf(out, "%6s", number(state.busy_percent, "%.0f%%", a, sizeof a));
    stk_buf_printf(out, "%11s / %-9s", memory(state.memory_used, a, sizeof a),
                   memory(device->memory_bytes, b, sizeof b));
    stk_buf_printf(
        out, "%7s",
        number(state.power_mw < 0 ? -1 : state.power_mw / 1000.0, "%.0f W", c, sizeof c));
    stk_buf_printf(out, "%7s  ", number(state.temperature_c, "%.0f C", a, sizeof a));
    /* A line that goes to a file or a program has no width to fit. */
    stk_text_fit(out, holder != NULL ? holder : "free",
                 isatty(STDOUT_FILENO) ? t->style.columns - 75 : 1000, false, t->style.utf8);
    stk_buf_char(out, '\n');
}

static void put_row(const top *t, const row *r, stk_buf *out)
{
    char a[32];
    char attempt[16];
    const stk_live_task *task = r->task;
    int64_t age_ms =
        task->started_ms < 0 ? -1 : stk_clock_wall_ms(&stk_clock_real) - task->started_ms;
    (void)snprintf(attempt, sizeof attempt, "%u", task->attempt);
    stk_buf_printf(out, "%8d  ", (int)task->pid);
    stk_text_fit(out, r->user, 9, true, t->style.utf8);
    stk_text_fit(out, task->run, 24, true, t->style.utf8);
    char step[STK_LIMIT_NAME + 16]; /* of a growing run with the task's number */
    if (task->task > 0) {
        (void)snprintf(step, sizeof step, "%s/%u", task->step, task->task);
    } else {
        (void)snprintf(step, sizeof step, "%s", task->step);
    }
    stk_text_fit(out, step, 20, true, t->style.utf8);
    stk_buf_printf(out, "%4s", attempt);
    stk_buf_printf(out, "%10s", age_ms < 0 ? "-" : stk_units_format_duration(age_ms, a, sizeof a));
    stk_buf_printf(out, "%7s", number(r->cpus < 0 ? -1 : r->cpus * 100, "%.0f%%", a, sizeof a));
    stk_buf_printf(out, "%10s", memory(task->usage.rss_bytes, a, sizeof a));
    stk_buf_printf(out, "%6s", r->devices);
    stk_buf_printf(out, "%10s\n", memory(r->device_memory, a, sizeof a));
}

static void head_line(const top *t, const char *text, stk_buf *out)
{
    stk_text_ink(out, &t->style, STK_INK_BOLD, text);
    stk_buf_char(out, '\n');
}

static void put_text(const top *t, const row *rows, uint32_t n, int max_lines, stk_buf *out)
{
    uint32_t n_devices = stk_accel_n_devices(t->accel);
    int left = max_lines == 0 ? INT32_MAX : max_lines - 5 - (int)n_devices;
    put_head(n, out);
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

static void put_json(const top *t, const row *rows, uint32_t n, stk_buf *out)
{
    stk_buf_printf(out, "{\"time_ms\":%lld,\"cpus\":%u",
                   (long long)stk_clock_wall_ms(&stk_clock_real), stk_proc_n_cpus());
    stk_json_put_real(out, "memory_bytes", (double)stk_proc_memory_bytes());
    stk_json_put_real(out, "available_bytes", (double)stk_proc_available_bytes());
    stk_buf_text(out, ",\"devices\":[");
    for (uint32_t i = 0; i < stk_accel_n_devices(t->accel); i++) {
        const stk_device *device = stk_accel_device(t->accel, i);
        stk_device_state state;
        (void)stk_accel_state(t->accel, i, &state, NULL);
        stk_buf_printf(out, "%s{\"number\":%u", i > 0 ? "," : "", i);
        stk_json_put_text(out, "uuid", device->uuid);
        stk_json_put_text(out, "model", device->model);
        stk_json_put_real(out, "busy_percent", state.busy_percent);
        stk_json_put_real(out, "memory_used", (double)state.memory_used);
        stk_json_put_real(out, "memory_bytes", (double)device->memory_bytes);
        stk_json_put_real(out, "power_w", state.power_mw < 0 ? -1 : state.power_mw / 1000.0);
        stk_json_put_real(out, "temperature_c", state.temperature_c);
        stk_json_put_text(out, "holder", stk_lease_holder(t->accel, i, t->arena));
        stk_json_put_text(out, "trouble", device->trouble);
        stk_buf_char(out, '}');
    }
    stk_buf_text(out, "],\"steps\":[");
    for (uint32_t i = 0; i < n; i++) {
        const stk_live_task *task = rows[i].task;
        stk_buf_printf(out, "%s{\"pid\":%d,\"task\":%u,\"attempt\":%u", i > 0 ? "," : "",
                       (int)task->pid, task->task, task->attempt);
        stk_json_put_text(out, "user", rows[i].user);
        stk_json_put_text(out, "run", task->run);
        stk_json_put_text(out, "step", task->step);
        stk_json_put_text(out, "dir", task->dir);
        stk_json_put_real(out, "started_ms", (double)task->started_ms);
        stk_json_put_real(out, "cpus", rows[i].cpus);
        stk_json_put_real(out, "memory_bytes", (double)task->usage.rss_bytes);
        stk_json_put_real(out, "device_memory_bytes", (double)rows[i].device_memory);
        stk_buf_text(out, ",\"devices\":[");
        for (uint32_t k = 0; k < task->n_uuids; k++) {
            stk_buf_text(out, k > 0 ? "," : "");
            stk_buf_json(out, task->uuids[k]);
        }
        stk_buf_text(out, "]}");
    }
    stk_buf_text(out, "]}\n");
}

static int draw(void *arg, int max_lines, stk_buf *out, stk_err *err)
{
    top *t = arg;
    stk_live_task *tasks = NULL;
    uint32_t n = 0;
    stk_arena_reset(t->arena);
    int rc = stk_live_tasks(t->arena, &tasks, &n, err);
    int64_t now_ms = stk_clock_mono_ms(&stk_clock_real);
    row *rows = rc < 0 ? NULL : stk_arena_array(t->arena, (size_t)n + 1, sizeof *rows);
    STK_TRY(rc);
    if (rows == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < n; i++) {
        fill_row(t, &tasks[i], now_ms, &rows[i]);
    }
    t->style = stk_style_of(stdout, stk_cli_colour(t->cli, STDOUT_FILENO));
    if (stk_cli_json(t->cli)) {
        put_json(t, rows, n, out);
    } else {
        put_text(t, rows, n, max_lines, out);
    }
    return remember(t, tasks, n, now_ms, err);
}

static int first_look(top *t, stk_err *err)
{
    stk_live_task *tasks = NULL;
    uint32_t n = 0;
    int rc = stk_live_tasks(t->arena, &tasks, &n, err);
    rc = rc < 0 ? rc : remember(t, tasks, n, stk_clock_mono_ms(&stk_clock_real), err);
    struct timespec wait = {.tv_nsec = FIRST_LOOK_MS * 1000000L};
    (void)nanosleep(&wait, NULL); /* a share of the CPU is a difference of two looks */
    return rc;
}

static int run_top(stk_cli *cli)
{
    stk_err err = {0};
    int64_t period_ms = 1000;
    int64_t n_times = stk_cli_flag(cli, "once") || stk_cli_json(cli) ? 1 : 0;
    const char *period = stk_cli_value(cli, "interval");
    int status = stk_cli_at_most(cli, 0);
    if (status != 0) {
        return status;
    }
    int rc = period == NULL ? 0 : stk_units_parse_duration(period, &period_ms, &err);
    if (rc == 0 && period_ms < 100) {
        rc = stk_err_set(&err, STK_E_USAGE, "--interval '%s' is shorter than 100ms", period);
    }
    rc = rc < 0 ? rc : stk_cli_number(cli, "count", 1, INT32_MAX, &n_times, &err);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    top t = {.cli = cli, .arena = arena};
    rc = rc < 0 ? rc : stk_accel_open(NULL, &t.accel, &err);
    rc = rc < 0 ? rc : first_look(&t, &err);
    status = rc < 0 ? stk_cli_fail(cli, &err) : stk_cli_redraw(cli, period_ms, n_times, draw, &t);
    stk_accel_close(t.accel);
    free(t.seen);
    return status;
}

static const stk_option options[] = {
    {"once", '1', NULL, "one picture, then end", false},
    {"count", 'n', "N", "N pictures, then end", false},
    {"interval", 'i', "TIME", "time between pictures, as 2s or 500ms (default 1s)", false},
    {NULL}};

const stk_command stk_cmd_top = {
    .name = "top",
    .summary = "what runs on this host now, and what its devices do",
    .usage = "[options]",
    .text =
        "Shows every running step of this host, of whatever run and store, with its CPU, memory "
        "and devices, and every device with who holds it. Steps of other users are seen by root "
        "only. Ends with q or Ctrl-C. With --json: one picture as one line.",
    .options = options,
    .run = run_top};
