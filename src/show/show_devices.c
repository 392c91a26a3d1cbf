#include "show/show_devices.h"

#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "base/units.h"
#include "show/show_html_private.h"

/* Counts an idle stretch if it is long enough; from < 0: there was none. */
static void add_stretch(stk_idle *idle, double from, double to)
{
    double took = to - from;
    if (from < 0 || took < STK_IDLE_S) {
        return;
    }
    idle->n++;
    idle->total_s += took;
    if (took > idle->longest_s) {
        idle->longest_s = took;
        idle->longest_from_s = from;
    }
}

bool stk_show_idle(const stk_samples *samples, uint32_t i_device, stk_idle *ret)
{
    *ret = (stk_idle){0};
    double from = -1; /* start of the current idle stretch */
    double last = 0;
    for (uint32_t i = 0; i < samples->n; i++) {
        const stk_sample *s = &samples->samples[i];
        int32_t busy = s->devices[i_device].busy_percent;
        double now = (double)s->time_ms / 1000;
        if (busy >= 0) {
            ret->known_s += now - last;
        }
        if (busy < 0 || busy > STK_IDLE_PERCENT) {
            add_stretch(ret, from, last);
            from = -1;
        } else if (from < 0) {
            from = last;
        }
        last = now;
    }
    add_stretch(ret, from, last);
    return ret->known_s > 0;
}

/* --- words --- */

static const char *seconds(double s, char *buf, size_t size)
{
    return stk_units_format_duration((int64_t)(s * 1000), buf, size);
}

const char *stk_text_energy(double joules, char *buf, size_t size)
{
    if (joules >= 1e6) {
        (void)snprintf(buf, size, "%.2f MJ", joules / 1e6);
    } else if (joules >= 1e3) {
        (void)snprintf(buf, size, "%.1f kJ", joules / 1e3);
    } else {
        (void)snprintf(buf, size, "%.0f J", joules);
    }
    return buf;
}

void stk_text_gpu_time(const stk_view_totals *totals, stk_buf *out)
{
    char text[64];
    if (totals->gpu_held_s < 0) {
        return;
    }
    const char *unit = strcmp(totals->noun, "GPU") == 0 ? "-s" : " seconds";
    stk_buf_printf(out, "%.1f %s%s held", totals->gpu_held_s, totals->noun, unit);
    if (totals->gpu_busy_s >= 0) {
        stk_buf_printf(out, ", %.1f busy", totals->gpu_busy_s);
    }
    if (totals->energy_j >= 0) {
        stk_buf_printf(out, ", %s", stk_text_energy(totals->energy_j, text, sizeof text));
    }
}

void stk_text_alternatives(const stk_resources *asked, bool utf8, stk_buf *out)
{
    char memory[32];
    for (uint32_t i = 0; asked->n_any_of > 1 && i < asked->n_any_of; i++) {
        const stk_alternative *a = &asked->any_of[i];
        const char *vendor = stk_text_if_any(a->gpu_vendor), *class = stk_text_if_any(a->gpu_class);
        stk_buf_text(out, i > 0 ? "; " : " (");
        if (a->gpu_count > 1) {
            stk_buf_printf(out, "%lld %s ", (long long)a->gpu_count, stk_text_times(utf8));
        }
        if (vendor != NULL && class != NULL) {
            stk_text_safe(out, vendor, "");
            stk_buf_char(out, ' ');
            vendor = class;
        }
        stk_text_safe(out, stk_text_or(vendor, stk_text_or(class, "any device")), "");
        if (a->gpu_memory_bytes > 0) {
            stk_buf_printf(out, " with %s",
                           stk_units_format_memory(a->gpu_memory_bytes, memory, sizeof memory));
        }
    }
    if (asked->n_any_of > 1) {
        stk_buf_char(out, ')');
    }
}

static void add_share(const stk_view_device *d, stk_buf *out)
{
    char text[32];
    if (d->share_bytes > 0) {
        stk_buf_printf(out, "%s of ", stk_units_format_memory(d->share_bytes, text, sizeof text));
    }
    if (d->memory_bytes > 0) {
        stk_buf_text(out, stk_units_format_memory(d->memory_bytes, text, sizeof text));
    } else if (d->share_bytes > 0) {
        stk_buf_text(out, "unknown memory");
    } else {
        stk_buf_text(out, "whole");
    }
}

/* Utilization of a shared device may be that of others: say "device busy", not "busy". */
static const char *whose(const stk_view_device *d)
{
    return stk_text_when(d->share_bytes > 0, "device ");
}

/* "busy 43 %, peak 12.1 GB, 71 C, 5.1 kJ": the values that are known. */
static void add_use(const stk_view_device *d, stk_buf *out)
{
    char text[64];
    STK_BUF_AUTO use = STK_BUF_INIT(4096);
    if (d->context == 0) {
        stk_buf_text(&use, "never had a context");
    }
    if (d->busy_percent >= 0) {
        stk_buf_separate(&use, ", ");
        stk_buf_printf(&use, "%sbusy %.0f %%", whose(d), d->busy_percent);
    }
    if (d->peak_memory_bytes >= 0) {
        stk_buf_separate(&use, ", ");
        stk_buf_printf(&use, "peak %s",
                       stk_units_format_memory(d->peak_memory_bytes, text, sizeof text));
    }
    if (d->peak_temperature_c >= 0) {
        stk_buf_separate(&use, ", ");
        stk_buf_printf(&use, "%lld C", (long long)d->peak_temperature_c);
    }
    if (d->energy_j >= 0) {
        stk_buf_separate(&use, ", ");
        stk_buf_text(&use, stk_text_energy(d->energy_j, text, sizeof text));
    }
    if (d->throttled_s > 0) {
        stk_buf_separate(&use, ", ");
        stk_buf_printf(&use, "throttled %s", seconds(d->throttled_s, text, sizeof text));
    }
    stk_buf_text(out, stk_text_or(use.data, "usage unknown"));
}

void stk_text_devices(const stk_view_details *details, const stk_style *style, int indent,
                      stk_buf *out)
{
    for (uint32_t i = 0; i < details->n_devices; i++) {
        const stk_view_device *d = &details->devices[i];
        STK_BUF_AUTO line = STK_BUF_INIT(1u << 16);
        if (i > 0) {
            stk_buf_printf(out, "%*s", indent, "");
        }
        stk_buf_printf(&line, "%s %s (", stk_text_or(d->model, "device"), stk_text_or(d->uuid, ""));
        add_share(d, &line);
        stk_buf_text(&line, "): ");
        add_use(d, &line);
        stk_text_fit(out, stk_text_or(line.data, ""),
                     style->columns > indent ? 4 * style->columns : 400, false, style->utf8);
        stk_buf_char(out, '\n');
    }
}

/* --- HTML --- */

static void cell_number(stk_buf *out, bool known, const char *text)
{
    stk_buf_printf(out, "<td class=\"num\">%s</td>", known ? text : "–");
}

static void device_row(const stk_view_device *d, stk_buf *out)
{
    char text[64];
    STK_BUF_AUTO share = STK_BUF_INIT(256);
    add_share(d, &share);
    stk_html_put(out, "<tr><td>%s</td><td>%s</td>", stk_text_or(d->model, "–"),
                 stk_text_or(d->uuid, "–"));
    cell_number(out, share.data != NULL, share.data);
    cell_number(out, d->context >= 0, d->context == 1 ? "yes" : "never");
    (void)snprintf(text, sizeof text, "%s%.0f %%", whose(d), d->busy_percent);
    cell_number(out, d->busy_percent >= 0, text);
    cell_number(out, d->busy_s >= 0, seconds(d->busy_s, text, sizeof text));
    cell_number(out, d->peak_memory_bytes >= 0,
                stk_units_format_memory(d->peak_memory_bytes, text, sizeof text));
    (void)snprintf(text, sizeof text, "%lld °C", (long long)d->peak_temperature_c);
    cell_number(out, d->peak_temperature_c >= 0, text);
    cell_number(out, d->energy_j >= 0, stk_text_energy(d->energy_j, text, sizeof text));
    cell_number(out, d->throttled_s >= 0, seconds(d->throttled_s, text, sizeof text));
    stk_buf_text(out, "</tr>\n");
}

static void idle_line(const stk_samples *samples, uint32_t i, stk_buf *out)
{
    char a[32], b[32], c[32];
    stk_idle idle;
    if (!stk_show_idle(samples, i, &idle) || idle.n == 0) {
        return;
    }
    stk_html_put(out, "<p class=\"meta\">%s", samples->uuids[i]);
    stk_buf_printf(out, " was idle for %s of %s, in %u %s", seconds(idle.total_s, a, sizeof a),
                   seconds(idle.known_s, b, sizeof b), idle.n,
                   stk_text_noun(idle.n, "stretch", "stretches"));
    stk_buf_printf(out, "; the longest %s from second %.1f on</p>\n",
                   seconds(idle.longest_s, c, sizeof c), idle.longest_from_s);
}

void stk_html_devices(const stk_view_details *d, const stk_samples *samples, bool profiled,
                      stk_buf *out)
{
    if (d->n_devices == 0 && profiled) {
        stk_buf_text(out,
                     "<p class=\"meta\">@gpu_profile: the step was granted no device, so there "
                     "is nothing to profile</p>\n");
    }
    if (d->n_devices == 0) {
        return;
    }
    stk_buf_text(out,
                 "<div class=\"scroll\"><table><thead><tr><th>device</th><th>uuid</th><th>given"
                 "</th><th>context</th><th>busy</th><th>busy time</th><th>peak memory</th>"
                 "<th>hottest</th><th>energy</th><th>throttled</th></tr></thead><tbody>\n");
    for (uint32_t i = 0; i < d->n_devices; i++) {
        device_row(&d->devices[i], out);
    }
    stk_buf_text(out, "</tbody></table></div>\n");
    if (d->verdict != NULL) {
        bool short_of = d->n_devices_used >= 0 && d->n_devices_used < (int64_t)d->n_devices;
        stk_html_put(out, "<div class=\"%s\">%s</div>\n", short_of ? "note" : "meta", d->verdict);
    }
    for (uint32_t i = 0; i < samples->n_devices; i++) {
        idle_line(samples, i, out);
    }
}
