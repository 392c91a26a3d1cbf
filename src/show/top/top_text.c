/* A picture as text and as JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/units.h"
#include "show/top/top_private.h"
#include "sys/clock.h"
#include "sys/proc.h"

static double watts(const stk_device_state *state)
{
    return state->power_mw / 1000.0;
}

/* --- as text --- */

const char *stk_top_memory(int64_t bytes, char *buf, size_t size)
{
    if (bytes < 0) {
        return "-";
    }
    return stk_units_format_memory(bytes, buf, size);
}

const char *stk_top_measure(double value, const char *format, char *buf, size_t size)
{
    if (value < 0) {
        return "-";
    }
    (void)snprintf(buf, size, format, value); /* NOLINT: the formats are below */
    return buf;
}

static void put_host(const stk_top *t, stk_buf *out)
{
    char host[256] = "this host";
    char used[32];
    char all[32];
    char time[40];
    double load = 0;
    (void)gethostname(host, sizeof host - 1);
    stk_buf_printf(out, "%s  %s  %u step%s running  %u CPUs", host,
                   stk_text_time(stk_clock_wall_ms(&stk_clock_real), false, time, sizeof time),
                   t->n_rows, stk_text_plural(t->n_rows), stk_proc_n_cpus());
    if (getloadavg(&load, 1) == 1) {
        stk_buf_printf(out, ", load %.2f", load);
    }
    if (t->memory_used >= 0) {
        stk_buf_printf(out, "  memory %s of %s", stk_top_memory(t->memory_used, used, sizeof used),
                       stk_top_memory(t->memory_bytes, all, sizeof all));
    }
    stk_buf_text(out, "\n");
}

void stk_top_step_name(const stk_live_task *task, char *ret, size_t size)
{
    if (task->task > 0) {
        (void)snprintf(ret, size, "%s/%u", task->step, task->task);
    } else {
        (void)snprintf(ret, size, "%s", task->step);
    }
}

static void put_device(const stk_top *t, uint32_t i, const stk_style *style, stk_buf *out)
{
    const stk_gpus_row *row = &t->gpus.rows[i];
    const stk_device *device = row->device;
    char a[32];
    char b[32];
    char c[32];
    const char *holder = stk_text_or(row->trouble, row->holder);
    if (row->trouble == NULL && device->n_slices > 0) {
        holder = "split into slices";
    }
    stk_buf_printf(out, "%4u  ", i);
    stk_text_fit(out, stk_text_or(device->model, "-"), 26, true, style->utf8);
    stk_buf_printf(out, "%6s", stk_top_measure(row->state.busy_percent, "%.0f%%", a, sizeof a));
    stk_buf_printf(out, "%11s / %-9s", stk_top_memory(row->state.memory_used, a, sizeof a),
                   stk_top_memory(device->memory_bytes, b, sizeof b));
    stk_buf_printf(out, "%7s", stk_top_measure(watts(&row->state), "%.0f W", c, sizeof c));
    stk_buf_printf(out, "%7s  ", stk_top_measure(row->state.temperature_c, "%.0f C", a, sizeof a));
    stk_text_fit(out, stk_text_or(holder, "free"), MAX(style->columns - 75, 2), false, style->utf8);
    stk_buf_char(out, '\n');
}

static void put_row(const stk_top_row *r, const stk_style *style, stk_buf *out)
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
    stk_text_fit(out, r->user, 9, true, style->utf8);
    stk_text_fit(out, task->run, 24, true, style->utf8);
    char step[STK_LIMIT_NAME + 16];
    stk_top_step_name(task, step, sizeof step);
    stk_text_fit(out, step, 20, true, style->utf8);
    stk_buf_printf(out, "%4s", attempt);
    stk_buf_printf(out, "%10s", age);
    stk_buf_printf(out, "%7s", stk_top_measure(r->cpus * 100, "%.0f%%", a, sizeof a));
    stk_buf_printf(out, "%10s", stk_top_memory(task->usage.rss_bytes, a, sizeof a));
    stk_buf_printf(out, "%6s", r->devices);
    stk_buf_printf(out, "%10s\n", stk_top_memory(r->device_memory, a, sizeof a));
}

static void head_line(const stk_style *style, const char *text, stk_buf *out)
{
    stk_text_ink(out, style, STK_INK_BOLD, text);
    stk_buf_char(out, '\n');
}

static void put_text(const stk_top *t, const stk_style *style, int max_lines, stk_buf *out)
{
    uint32_t n_devices = t->gpus.n, n = t->n_rows;
    int left = INT32_MAX;
    if (max_lines != 0) {
        left = max_lines - 5 - (int)n_devices;
    }
    put_host(t, out);
    if (n_devices > 0) {
        head_line(
            style,
            "\n   #  DEVICE                      BUSY     MEMORY             POWER   TEMP  HELD BY",
            out);
    }
    for (uint32_t i = 0; i < n_devices; i++) {
        put_device(t, i, style, out);
    }
    head_line(style,
              "\n     PID  USER     RUN                     STEP                 TRY      TIME   "
              " CPU    MEMORY   GPU   GPU MEM",
              out);
    for (uint32_t i = 0; i < n; i++) {
        if (left-- <= 1 && i + 1 < n) {
            stk_buf_printf(out, "          … and %u more\n", n - i);
            break;
        }
        put_row(&t->rows[i], style, out);
    }
}

/* --- as JSON --- */

static void put_device_json(const stk_top *t, uint32_t i, stk_buf *out)
{
    const stk_gpus_row *row = &t->gpus.rows[i];
    const stk_device *device = row->device;
    stk_json_open(out, NULL, '{');
    stk_json_put_whole(out, "number", i);
    stk_json_put_text(out, "uuid", device->uuid);
    stk_json_put_text(out, "model", device->model);
    stk_json_put_real(out, "busy_percent", row->state.busy_percent);
    stk_json_put_real(out, "memory_used", (double)row->state.memory_used);
    stk_json_put_real(out, "memory_bytes", (double)device->memory_bytes);
    stk_json_put_real(out, "power_w", watts(&row->state));
    stk_json_put_real(out, "temperature_c", row->state.temperature_c);
    stk_json_put_text(out, "holder", row->holder);
    stk_json_put_text(out, "trouble", device->trouble);
    stk_json_close(out, '}');
}

static void put_row_json(const stk_top_row *r, stk_buf *out)
{
    const stk_live_task *task = r->task;
    stk_json_open(out, NULL, '{');
    stk_json_put_whole(out, "pid", task->pid);
    stk_json_put_whole(out, "task", task->task);
    stk_json_put_whole(out, "attempt", task->attempt);
    stk_json_put_text(out, "user", r->user);
    stk_json_put_text(out, "pipeline", task->pipeline);
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

static void put_top_json(const stk_top *t, stk_buf *out)
{
    stk_json_open(out, NULL, '{');
    stk_json_put_whole(out, "time_ms", stk_clock_wall_ms(&stk_clock_real));
    stk_json_put_whole(out, "cpus", stk_proc_n_cpus());
    stk_json_put_real(out, "memory_bytes", (double)t->memory_bytes);
    stk_json_put_real(out, "available_bytes", (double)stk_proc_available_bytes());
    stk_json_open(out, "devices", '[');
    for (uint32_t i = 0; i < t->gpus.n; i++) {
        put_device_json(t, i, out);
    }
    stk_json_close(out, ']');
    stk_json_open(out, "steps", '[');
    for (uint32_t i = 0; i < t->n_rows; i++) {
        put_row_json(&t->rows[i], out);
    }
    stk_json_close(out, ']');
    stk_json_close(out, '}');
    stk_buf_char(out, '\n');
}

/* For a terminal: in lines that fit it. */
static int put_picture(const stk_top *t, const stk_style *style, int max_lines, stk_buf *out,
                       stk_err *err)
{
    const stk_top_sort sort = {.column = STK_TOP_BY_TIME};
    stk_top_table table;
    int room = 2 * (int)t->gpus.n + 2, rows = INT32_MAX; /* without curves */
    if (max_lines > 0) {
        room = MAX(max_lines - stk_top_table_lines(t->n_rows, max_lines), 2);
        rows = max_lines;
    }
    STK_TRY(stk_top_table_make(t, false, "", &sort, t->arena, &table, err));
    rows -= stk_top_put_units(t, style, room, 0, out);
    stk_top_table_put(&table, style, &sort, 0, UINT32_MAX, MAX(rows, 1), out);
    return 0;
}

int stk_top_draw(stk_top *t, const stk_style *style, int max_lines, stk_buf *out, stk_err *err)
{
    STK_TRY(stk_top_look(t, err));
    if (style == NULL) {
        put_top_json(t, out);
        return 0;
    }
    if (style->columns <= STK_STYLE_COLUMNS_MOST) {
        return put_picture(t, style, max_lines, out, err);
    }
    put_text(t, style, max_lines, out);
    return 0;
}
