/* The host and its devices: what they are, what they do, and the last minutes of that. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/text.h"
#include "show/top/top_private.h"
#include "sys/clock.h"
#include "sys/proc.h"

enum {
    HOST_LINES = 2,   /* of the host */
    CURVE_MOST = 4,   /* lines of a curve */
    NARROW = 70,      /* below so many columns, a device has no model */
    ROOMY = 100,      /* from so many on, a device of one line has a curve */
    MEMORY_WORDS = 30 /* columns that a half has when memory is in bytes */
};

/* One thing with a share in use and a share of its memory in use. */
typedef struct unit {
    char name[24];
    const char *model; /* or NULL */
    char facts[48];
    const char *state;
    stk_ink ink;
    int use, memory; /* percent; -1 unknown */
    char amounts[72];
    const stk_top_past *past;
} unit;

static void put_amounts(unit *u, int64_t used, int64_t all)
{
    char a[32], b[32];
    u->memory = stk_top_percent(used, all);
    (void)snprintf(u->amounts, sizeof u->amounts, "%s / %s", stk_top_memory(used, a, sizeof a),
                   stk_top_memory(all, b, sizeof b));
}

static stk_ink ink_of_state(const stk_gpus_row *row)
{
    const char *status = stk_gpus_status(row);
    if (strcmp(status, "free") == 0) {
        return STK_INK_GOOD;
    }
    if (strcmp(status, "unusable") == 0) {
        return STK_INK_BAD;
    }
    if (strcmp(status, "split") == 0) {
        return STK_INK_DIM;
    }
    return STK_INK_PLAIN;
}

static void put_facts(unit *u, const stk_device_state *s, bool utf8)
{
    char heat[24] = "", power[24] = "";
    if (s->temperature_c >= 0) {
        (void)snprintf(heat, sizeof heat, "%d%s", (int)s->temperature_c, utf8 ? "°C" : "C");
    }
    if (s->power_mw >= 0 && s->power_limit_mw > 0) {
        (void)snprintf(power, sizeof power, "%d/%d W", (int)(s->power_mw / 1000),
                       (int)(s->power_limit_mw / 1000));
    } else if (s->power_mw >= 0) {
        (void)snprintf(power, sizeof power, "%d W", (int)(s->power_mw / 1000));
    }
    (void)snprintf(u->facts, sizeof u->facts, "%5s %9s", heat, power);
}

/* "fine-tune/train  ann": the step that has the device, or who says so otherwise. */
static void put_holder(const stk_top *t, const stk_gpus_row *row, unit *u)
{
    const char *uuid = row->device->uuid;
    for (uint32_t i = 0; i < t->n_rows && uuid != NULL; i++) {
        const stk_live_task *task = t->rows[i].task;
        for (uint32_t k = 0; k < task->n_uuids; k++) {
            if (strcmp(task->uuids[k], uuid) == 0) {
                u->state =
                    stk_arena_printf(t->arena, "%s/%s  %s", stk_text_or(task->pipeline, task->run),
                                     task->step, t->rows[i].user);
                return;
            }
        }
    }
    u->state = stk_text_or(row->holder, row->outside);
}

/* Without the vendor's name, which cuts off what differs. */
static const char *model_of(const stk_device *d)
{
    const char *vendor = stk_accel_vendor_name(stk_text_or(d->vendor, ""));
    const char *model = stk_text_or(d->model, stk_text_or(d->noun, "-"));
    size_t n = strlen(vendor);
    return n > 0 && strncmp(model, vendor, n) == 0 && model[n] == ' ' ? model + n + 1 : model;
}

static unit unit_of_device(const stk_top *t, uint32_t i, bool utf8)
{
    const stk_gpus_row *row = &t->gpus.rows[i];
    const stk_device *d = row->device;
    unit u = {.model = model_of(d),
              .use = row->state.busy_percent,
              .past = &t->past[i + 1],
              .ink = ink_of_state(row)};
    char number[16];
    stk_top_device_number(t, i, number, sizeof number);
    const char *noun = stk_text_or(d->noun, "GPU");
    if (d->parent >= 0) {
        u.model = stk_text_or(d->profile, u.model);
        noun = utf8 ? "└" : "-";
    }
    (void)snprintf(u.name, sizeof u.name, "%.14s %.8s", noun, number);
    put_amounts(&u, row->state.memory_used, d->memory_bytes);
    put_facts(&u, &row->state, utf8);
    put_holder(t, row, &u);
    if (row->trouble != NULL) {
        u.state = row->trouble;
    } else if (d->n_slices > 0) {
        u.state = "split into slices";
    }
    u.state = stk_text_or(u.state, stk_text_or(row->claim, "free"));
    return u;
}

static int label_columns(int half)
{
    if (half >= MEMORY_WORDS) {
        return 7;
    }
    return 4;
}

static stk_ink ink_of_memory(const unit *u)
{
    if (u->memory >= 95) {
        return STK_INK_BAD;
    }
    return STK_INK_MEMORY;
}

/* "use ███····  62%  memory ██·····  41.2 GB / 80 GB" in two halves of `half` columns. */
static void put_meters(const unit *u, const char *use, const stk_style *style, int half,
                       stk_buf *out)
{
    char text[80];
    int label = label_columns(half);
    stk_text_fit(out, use, 4, true, style->utf8);
    stk_top_bar(out, style, u->use, half - 9, STK_INK_USE);
    stk_buf_printf(out, "%5s  ", stk_top_measure(u->use, "%.0f%%", text, sizeof text));
    stk_text_fit(out, label > 4 ? "memory" : "mem", label, true, style->utf8);
    int words = 5;
    (void)stk_top_measure(u->memory, "%.0f%%", text, sizeof text);
    if (half >= MEMORY_WORDS) {
        words = 18;
        (void)snprintf(text, sizeof text, "%s", u->amounts);
    } else if (u->memory < 0) {
        (void)snprintf(text, sizeof text, "-");
    }
    stk_top_bar(out, style, u->memory, half - label - words, ink_of_memory(u));
    stk_buf_printf(out, "%*s\n", words, text);
}

static void put_curves(const stk_top *t, const unit *u, const stk_style *style, int half,
                       int height, stk_buf *out)
{
    for (int row = 0; row < height; row++) {
        stk_buf_text(out, "    ");
        stk_top_curve(out, style, t, u->past->use, half - 4, height, row, STK_INK_USE);
        stk_buf_text(out, "  ");
        stk_buf_printf(out, "%*s", label_columns(half), "");
        stk_top_curve(out, style, t, u->past->memory, half - label_columns(half), height, row,
                      STK_INK_MEMORY);
        stk_text_end_line(out);
    }
}

static void put_state(const unit *u, const stk_style *style, int columns, stk_buf *out)
{
    STK_BUF_AUTO state = STK_BUF_INIT(4096);
    stk_text_fit(&state, u->state, MAX(columns, 2), false, style->utf8);
    stk_text_ink(out, style, u->ink, stk_text_or(state.data, ""));
    stk_buf_char(out, '\n');
}

/* A line of names, a line of bars, and `height` lines of curves. */
static void put_large(const stk_top *t, const unit *u, const stk_style *style, int height,
                      stk_buf *out)
{
    int name_columns = MAX(MIN(stk_text_width(u->name), 16), 6);
    int left = style->columns - name_columns - 1;
    STK_BUF_AUTO name = STK_BUF_INIT(256);
    stk_text_fit(&name, u->name, name_columns, true, style->utf8);
    stk_text_ink(out, style, STK_INK_BOLD, stk_text_or(name.data, ""));
    stk_buf_char(out, ' ');
    if (style->columns >= NARROW && u->model != NULL) {
        int columns = MIN(style->columns / 4, 26);
        stk_text_cell(out, style, u->model, columns);
        left -= columns + 2;
    }
    stk_buf_printf(out, "%s  ", u->facts);
    left -= stk_text_width(u->facts) + 2;
    put_state(u, style, left, out);
    int half = (style->columns - 2) / 2;
    put_meters(u, "use", style, half, out);
    put_curves(t, u, style, half, height, out);
}

/* "0 ████··  62%  ██····  51%  run … step …" */
static void put_small(const stk_top *t, uint32_t i, const unit *u, const stk_style *style,
                      stk_buf *out)
{
    char number[16], text[16];
    int bar = MAX(MIN((style->columns - 30) / 4, 16), 4);
    int left = style->columns - 2 * bar - 19;
    stk_top_device_number(t, i, number, sizeof number);
    stk_buf_printf(out, "%4.4s ", number);
    stk_top_bar(out, style, u->use, bar, STK_INK_USE);
    stk_buf_printf(out, "%5s  ", stk_top_measure(u->use, "%.0f%%", text, sizeof text));
    stk_top_bar(out, style, u->memory, bar, ink_of_memory(u));
    stk_buf_printf(out, "%5s  ", stk_top_measure(u->memory, "%.0f%%", text, sizeof text));
    if (style->columns >= ROOMY) {
        stk_top_curve(out, style, t, u->past->use, 20, 1, 0, STK_INK_USE);
        stk_buf_printf(out, " %s  ", u->facts);
        left -= 23 + stk_text_width(u->facts);
    }
    put_state(u, style, left, out);
}

/* --- the host --- */

static unit unit_of_host(const stk_top *t)
{
    unit u = {.use = -1, .past = &t->past[0]};
    if (t->cpu_percent >= 0) {
        u.use = (int)t->cpu_percent;
    }
    put_amounts(&u, t->memory_used, t->memory_bytes);
    return u;
}

static void put_host_name(const stk_top *t, const stk_style *style, stk_buf *out)
{
    char host[256] = "this host", time[40];
    double load = 0;
    STK_BUF_AUTO name = STK_BUF_INIT(4096);
    STK_BUF_AUTO rest = STK_BUF_INIT(4096);
    (void)gethostname(host, sizeof host - 1);
    (void)stk_text_time(stk_clock_wall_ms(&stk_clock_real), false, time, sizeof time);
    stk_buf_printf(&rest, "  %s  %u step%s  %u CPUs", stk_text_behind(time, ' '), t->n_rows,
                   stk_text_plural(t->n_rows), stk_proc_n_cpus());
    if (getloadavg(&load, 1) == 1) {
        stk_buf_printf(&rest, ", load %.2f", load);
    }
    if (t->gpus.n == 0) {
        stk_buf_printf(&rest, "  %s", stk_accel_describe(t->gpus.accel, t->arena));
    }
    int columns = MAX(style->columns / 3, style->columns - stk_text_width(rest.data));
    stk_text_fit(&name, host, columns, false, style->utf8);
    stk_text_ink(out, style, STK_INK_BOLD, stk_text_or(name.data, ""));
    stk_text_fit(out, rest.data, style->columns - stk_text_width(stk_text_or(name.data, "")), false,
                 style->utf8);
    stk_buf_char(out, '\n');
}

int stk_top_put_units(const stk_top *t, const stk_style *style, int room, int size, stk_buf *out)
{
    const unit host = unit_of_host(t);
    int n = (int)t->gpus.n, half = (style->columns - 2) / 2;
    put_host_name(t, style, out);
    put_meters(&host, "CPU", style, half, out);
    int left = room - HOST_LINES;
    if (n == 0) {
        int height = (size == 0) * MAX(MIN(left, CURVE_MOST), 0);
        put_curves(t, &host, style, half, height, out);
        return HOST_LINES + height;
    }
    bool is_large = size == 0 && 2 * n <= left;
    int height = 0, lines = 1, shown = MIN(n, left);
    if (is_large) {
        height = MIN(left / n - 2, CURVE_MOST);
        lines = 2 + height;
        shown = n;
    }
    if (shown < n) {
        shown = MAX(shown - 1, 0);
    }
    for (int i = 0; i < shown; i++) {
        const unit u = unit_of_device(t, (uint32_t)i, style->utf8);
        if (is_large) {
            put_large(t, &u, style, height, out);
        } else {
            put_small(t, (uint32_t)i, &u, style, out);
        }
    }
    if (shown < n) {
        stk_buf_printf(out, "     and %d more\n", n - shown);
    }
    return HOST_LINES + shown * lines + (shown < n);
}
