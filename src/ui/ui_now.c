/* This host now: its devices as lanes over the last minutes, and the steps that run. */
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/text.h"
#include "base/units.h"
#include "host/runner/runner_live.h"
#include "show/gpus.h"
#include "show/show_svg.h"
#include "sys/clock.h"
#include "sys/proc.h"
#include "ui/ui_private.h"

enum {
    KEPT = 600,          /* looks at each device … */
    EVERY_MS = 1000,     /* … this far apart … */
    WATCHED_MS = 300000, /* … until nobody has asked for so long */
    WIDTH = 1060,
    LABEL = 110,
    LANE = 46,
    AXIS = 24,
    TASKS_MAX = 200
};

struct ui_now {
    stk_ui *ui;
    stk_gpus gpus;
    bool is_open;
    ui_look *looks; /* KEPT of each device, a ring */
    uint32_t n_devices, n, at;
    int64_t asked_ms, looked_ms;
    struct event *timer;
    pid_t pids[TASKS_MAX]; /* CPU time at the last page, for its use since */
    int64_t cpu_us[TASKS_MAX], cpu_ms;
    uint32_t n_pids;
};

/* --- looking --- */

static int32_t percent(int64_t part, int64_t whole)
{
    return part < 0 || whole <= 0 ? -1 : (int32_t)(part * 100 / whole);
}

static void look_now(ui_now *now)
{
    int64_t ms = stk_clock_mono_ms(&stk_clock_real);
    if (!now->is_open || (now->n > 0 && ms - now->looked_ms < EVERY_MS * 9 / 10) ||
        stk_gpus_look(&now->gpus, NULL) < 0) {
        return;
    }
    now->looked_ms = ms;
    now->at = (now->at + 1) % KEPT;
    now->n = MIN(now->n + 1, KEPT);
    for (uint32_t i = 0; i < now->n_devices; i++) {
        const stk_gpus_row *row = &now->gpus.rows[i];
        ui_look *l = &now->looks[(size_t)i * KEPT + now->at];
        *l = (ui_look){.ms = now->gpus.time_ms,
                       .busy = row->state.busy_percent,
                       .memory = percent(row->state.memory_used, row->device->memory_bytes)};
        (void)snprintf(l->holder, sizeof l->holder, "%s",
                       stk_text_or(row->holder, stk_text_or(row->outside, "")));
    }
}

static void set_timer(ui_now *now)
{
    struct timeval after = {.tv_sec = EVERY_MS / 1000};
    if (now->n_devices > 0) {
        (void)evtimer_add(now->timer, &after);
    }
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    ui_now *now = arg;
    if (stk_clock_mono_ms(&stk_clock_real) - now->asked_ms < WATCHED_MS) {
        look_now(now);
        set_timer(now);
    }
}

/* Devices are found when they are first asked for. */
static int open_devices(ui_now *now, stk_err *err)
{
    if (!now->is_open) {
        int rc = stk_gpus_open(&now->gpus, err);
        if (rc < 0) {
            stk_gpus_close(&now->gpus);
            return rc;
        }
        now->is_open = true;
        now->n_devices = stk_accel_n_devices(now->gpus.accel);
        now->looks = calloc((size_t)KEPT * MAX(now->n_devices, 1), sizeof *now->looks);
        STK_TRY(stk_err_if_null(now->looks, err));
        STK_TRY(stk_gpus_look(&now->gpus, err));
        now->n = stk_ui_past(now->ui, &now->gpus, now->gpus.time_ms - EVERY_MS, now->looks, KEPT);
        now->at = KEPT - 1;
    }
    now->asked_ms = stk_clock_mono_ms(&stk_clock_real);
    look_now(now);
    set_timer(now);
    return now->n > 0 ? 0 : stk_gpus_look(&now->gpus, err);
}

int stk_ui_now_open(stk_ui *ui, stk_err *err)
{
    ui_now *now = ui->now = calloc(1, sizeof *now);
    STK_TRY(stk_err_if_null(now, err));
    now->ui = ui;
    return stk_err_if_null(now->timer = evtimer_new(ui->base, on_timer, now), err);
}

void stk_ui_now_close(stk_ui *ui)
{
    if (ui->now == NULL) {
        return;
    }
    if (ui->now->is_open) {
        stk_gpus_close(&ui->now->gpus);
    }
    if (ui->now->timer != NULL) {
        event_free(ui->now->timer);
    }
    free(ui->now->looks);
    free(ui->now);
    ui->now = NULL;
}

/* --- lanes --- */

static const ui_look *look_of(const ui_now *now, uint32_t device, uint32_t i)
{
    uint32_t at = (now->at + KEPT - now->n + 1 + i) % KEPT;
    return &now->looks[(size_t)device * KEPT + at];
}

/* The colour of a holder: the same for the same text. */
static int colour_of(const char *holder)
{
    unsigned sum = 0;
    for (; *holder != '\0'; holder++) {
        sum = sum * 31 + (unsigned char)*holder;
    }
    return (int)(sum % 4);
}

static void put_holders(const ui_now *now, uint32_t device, const stk_svg_span *s, double y,
                        stk_buf *out)
{
    for (uint32_t i = 0, k; i < now->n; i = k) {
        const ui_look *from = look_of(now, device, i);
        for (k = i + 1; k < now->n && strcmp(look_of(now, device, k)->holder, from->holder) == 0;) {
            k++;
        }
        if (from->holder[0] != '\0') {
            double x = stk_svg_x_of(s, from->ms);
            double end = s->left + s->width;
            if (k < now->n) {
                end = stk_svg_x_of(s, look_of(now, device, k)->ms);
            }
            stk_buf_printf(out,
                           "<rect class=\"held h%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                           "height=\"%d\" rx=\"3\"><title>",
                           colour_of(from->holder), x, y, MAX(end - x, 2), LANE - 10);
            stk_html_put(out, "%s</title></rect>", from->holder);
        }
    }
}

static void put_busy(const ui_now *now, uint32_t device, const stk_svg_span *s, double y,
                     stk_buf *out)
{
    const char *letter = "M";
    stk_buf_text(out, "<path class=\"line gpu\" d=\"");
    for (uint32_t i = 0; i < now->n; i++) {
        const ui_look *l = look_of(now, device, i);
        if (l->busy >= 0) {
            stk_buf_printf(out, "%s%.1f %.1f", letter, stk_svg_x_of(s, l->ms),
                           y + (LANE - 12) * (1 - l->busy / 100.0) + 1);
            letter = "L";
        }
    }
    stk_buf_text(out, "\"/>");
}

static void put_lanes(const ui_now *now, int64_t now_ms, stk_buf *out)
{
    int64_t from = MIN(look_of(now, 0, 0)->ms, now_ms - 60000);
    stk_svg_span s = {.from_ms = from,
                      .seconds = (double)(now_ms - from) / 1000,
                      .left = LABEL,
                      .width = WIDTH - LABEL - 40};
    double height = (double)now->n_devices * LANE;
    stk_buf_printf(out,
                   "<div class=\"scroll\"><svg class=\"timeline\" viewBox=\"0 0 %d %.0f\" "
                   "role=\"img\" aria-label=\"devices over time\">",
                   WIDTH, height + AXIS);
    stk_svg_axis(&s, height, out);
    for (uint32_t i = 0; i < now->n_devices; i++) {
        const stk_device *d = now->gpus.rows[i].device;
        char label[64];
        double y = (double)i * LANE + 5;
        (void)snprintf(label, sizeof label, "%s %d", d->noun, (int)d->index);
        stk_svg_row_label(label, LABEL - 10, y + LANE / 2.0, out);
        put_holders(now, i, &s, y, out);
        put_busy(now, i, &s, y, out);
    }
    stk_buf_text(out, "</svg></div>\n");
}

/* --- tables --- */

static void put_measure(stk_buf *out, int64_t value, double scale, const char *unit)
{
    char text[48] = "–";
    if (value >= 0) {
        (void)snprintf(text, sizeof text, "%.0f %s", (double)value * scale, unit);
    }
    stk_html_cell(out, "num", text);
}

static void put_memory(stk_buf *out, int64_t used, int64_t all)
{
    char a[32], b[32], text[80] = "–";
    if (used >= 0 && all > 0) {
        (void)snprintf(text, sizeof text, "%s of %s", stk_units_format_memory(used, a, sizeof a),
                       stk_units_format_memory(all, b, sizeof b));
    }
    stk_html_put(out, "<td class=\"num\">%s", text);
    if (used >= 0 && all > 0) {
        stk_buf_printf(out, "<span class=\"meter\"><i style=\"width:%d%%\"></i></span>",
                       MIN(percent(used, all), 100));
    }
    stk_buf_text(out, "</td>");
}

static void put_device_row(const stk_gpus_row *row, stk_buf *out)
{
    const stk_device *d = row->device;
    stk_buf_printf(out, "<tr><td class=\"num\">%d</td><td>", (int)d->index);
    stk_html_put(out, "%s<br/><span class=\"dim\">%s</span></td>", stk_text_or(d->model, d->noun),
                 stk_gpus_status(row));
    put_measure(out, row->state.busy_percent, 1, "%");
    put_memory(out, row->state.memory_used, d->memory_bytes);
    put_measure(out, row->state.temperature_c, 1, "°C");
    put_measure(out, row->state.power_mw, 1e-3, "W");
    stk_html_put(out, "<td>%s", stk_text_or(row->trouble, stk_text_or(row->holder, row->outside)));
    if (row->claim != NULL) {
        stk_html_put(out, "<br/><span class=\"dim\">next: %s</span>", row->claim);
    }
    stk_buf_text(out, "</td></tr>\n");
}

static void put_device_panel(const ui_now *now, int64_t now_ms, stk_buf *out)
{
    stk_html_panel_open(out, "Devices");
    if (now->n_devices == 0) {
        stk_buf_text(out, "<p class=\"dim\">This host has no accelerators.</p>");
        stk_html_panel_close(out);
        return;
    }
    if (now->n > 0) {
        put_lanes(now, now_ms, out);
        stk_buf_text(out,
                     "<p class=\"dim\">Who held each device (colour) and how busy it was "
                     "(line), ten minutes at most; before this page was first asked for by what "
                     "the stores keep of their tasks.</p>");
    }
    stk_buf_text(out, "<div class=\"scroll\"><table class=\"devices\"><thead><tr><th>#</th>"
                      "<th>device</th><th>busy</th><th>memory</th><th>heat</th><th>power</th>"
                      "<th>held by</th></tr></thead><tbody>\n");
    for (uint32_t i = 0; i < now->gpus.n; i++) {
        put_device_row(&now->gpus.rows[i], out);
    }
    stk_buf_text(out, "</tbody></table></div>");
    stk_html_panel_close(out);
}

/* --- running steps --- */

/* CPUs used since the last page; -1: it is the first with this task. */
static double cpus_since(const ui_now *now, const stk_live_task *task, int64_t ms)
{
    for (uint32_t i = 0; i < now->n_pids; i++) {
        if (now->pids[i] == task->pid && ms > now->cpu_ms) {
            return (double)(task->usage.cpu_us - now->cpu_us[i]) / 1000 /
                   (double)(ms - now->cpu_ms);
        }
    }
    return -1;
}

static void remember_cpus(ui_now *now, const stk_live_task *tasks, uint32_t n, int64_t ms)
{
    now->n_pids = MIN(n, TASKS_MAX);
    now->cpu_ms = ms;
    for (uint32_t i = 0; i < now->n_pids; i++) {
        now->pids[i] = tasks[i].pid;
        now->cpu_us[i] = tasks[i].usage.cpu_us;
    }
}

static void put_last_line(ui_request *r, const stk_live_task *task)
{
    static const char *const names[] = {"stdout.log", "stderr.log"};
    STK_BUF_AUTO cut = STK_BUF_INIT(1u << 16);
    for (size_t i = 0; i < 2 && cut.len == 0; i++) {
        STK_BUF_AUTO tail = STK_BUF_INIT(1u << 16);
        const char *path = stk_arena_printf(r->arena, "%s/%s", task->dir, names[i]);
        if (path != NULL) {
            stk_text_tail(&tail, path, 1);
        }
        if (tail.data != NULL) {
            tail.data[strcspn(tail.data, "\r\n")] = '\0';
            stk_text_fit(&cut, tail.data, 120, false, true);
        }
    }
    stk_html_put(&r->out, "<td class=\"last\"><code>%s</code></td></tr>\n", cut.data);
}

static void put_task(ui_request *r, const stk_live_task *task, int64_t ms)
{
    stk_buf *out = &r->out;
    const char *label = task->step;
    char text[40] = "–";
    double cpus = cpus_since(r->ui->now, task, ms);
    if (task->task > 0) {
        label = stk_arena_printf(r->arena, "%s/%u", task->step, task->task);
    }
    stk_buf_text(out, "<tr><td><b>");
    if (stk_store_has_run(r->at->store, task->run)) {
        stk_html_href(&r->out, "task",
                      (const char *const[]){"run", task->run, "task", label, NULL});
        stk_html_put(out, "%s</a></b><br/>", label);
        stk_html_href(&r->out, "run", (const char *const[]){"run", task->run, NULL});
        stk_html_put(out, "%s</a></td>", task->run);
    } else {
        stk_html_put(out, "%s</b><br/><span class=\"dim\">%s</span></td>", label, task->run);
    }
    const struct passwd *user = getpwuid(task->uid);
    stk_html_cell(out, NULL, user == NULL ? "?" : user->pw_name);
    stk_buf_text(out, "<td class=\"num\">");
    if (task->started_ms > 0 && r->now_ms > task->started_ms) {
        stk_html_seconds(out, (double)(r->now_ms - task->started_ms) / 1000);
    }
    stk_buf_text(out, "</td>");
    if (cpus >= 0) {
        (void)snprintf(text, sizeof text, "%.1f", cpus);
    }
    stk_html_cell(out, "num", text);
    stk_html_cell_size(out, task->usage.rss_bytes);
    (void)snprintf(text, sizeof text, "%u", task->n_uuids);
    stk_html_cell(out, "num", text);
    put_last_line(r, task);
}

static int put_tasks(ui_request *r, stk_err *err)
{
    stk_live_task *tasks = NULL;
    uint32_t n = 0;
    STK_TRY(stk_live_tasks(r->arena, &tasks, &n, err));
    int64_t ms = stk_clock_mono_ms(&stk_clock_real);
    stk_html_panel_open(&r->out, "Running steps");
    if (n == 0) {
        stk_buf_text(&r->out, "<p class=\"dim\">No step runs on this host.</p>");
    } else {
        stk_buf_text(&r->out,
                     "<div class=\"scroll\"><table class=\"tasks\"><thead><tr><th>step</th>"
                     "<th>user</th><th>for</th><th>CPUs</th><th>memory</th><th>devices</th>"
                     "<th>last line</th></tr></thead><tbody>\n");
        for (uint32_t i = 0; i < MIN(n, TASKS_MAX); i++) {
            put_task(r, &tasks[i], ms);
        }
        stk_buf_text(&r->out, "</tbody></table></div>");
    }
    stk_html_panel_close(&r->out);
    remember_cpus(r->ui->now, tasks, n, ms);
    return 0;
}

int stk_ui_page_now(ui_request *r, stk_err *err)
{
    char host[256] = "this host", used[32], all[32], text[128];
    int64_t total = stk_proc_memory_bytes(), available = stk_proc_available_bytes();
    double load = 0;
    r->title = "now";
    stk_buf_text(&r->change, "of=now");
    STK_TRY(open_devices(r->ui->now, err));
    (void)gethostname(host, sizeof host - 1);
    stk_html_put(&r->out,
                 "<header><div class=\"title\"><h1>Now</h1></div><div class=\"meta\">on %s", host);
    (void)getloadavg(&load, 1);
    (void)snprintf(text, sizeof text, " · %u CPUs, load %.2f · memory %s of %s",
                   (unsigned)stk_proc_n_cpus(), load,
                   stk_units_format_memory(MAX(total - available, 0), used, sizeof used),
                   stk_units_format_memory(total, all, sizeof all));
    stk_html_put(&r->out, "%s</div></header>\n", text);
    put_device_panel(r->ui->now, r->now_ms, &r->out);
    return put_tasks(r, err);
}

/* Prometheus' text, with dcgm-exporter's names. */
int stk_ui_page_metrics(ui_request *r, stk_err *err)
{
    r->type = "text/plain; version=0.0.4; charset=utf-8";
    STK_TRY(open_devices(r->ui->now, err));
    STK_TRY(stk_gpus_look(&r->ui->now->gpus, err));
    stk_gpus_prometheus(&r->ui->now->gpus, &r->out);
    return 0;
}
