/* Hours of devices as text, JSON and HTML. */
#include <stdio.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "show/hours.h"
#include "show/show_devices.h"
#include "show/show_html_private.h"

enum { NAME_CELL = 34, HOUR_CELL = 12, BAR = 20, ROWS_OF_HOURS = 400 };

static const struct {
    const char *key, *title, *one;
} hours_words[STK_HOURS_N] = {[STK_HOURS_DAY] = {"days", "By day", "day"},
                              [STK_HOURS_USER] = {"users", "By user", "user"},
                              [STK_HOURS_PIPELINE] = {"pipelines", "By pipeline", "pipeline"},
                              [STK_HOURS_DEVICE] = {"devices", "By device", "device"},
                              [STK_HOURS_STORE] = {"stores", "By store", "store"}};

static const char *hours_text(double s, char *buf, size_t size)
{
    if (s >= 36000) {
        (void)snprintf(buf, size, "%.0f h", s / 3600);
        return buf;
    }
    return stk_units_format_duration((int64_t)(s * 1000), buf, size);
}

static const char *energy_text(const stk_hours_sum *s, char *buf, size_t size)
{
    if (!s->has_energy) {
        return "";
    }
    if (s->energy_j >= 3.6e5) {
        (void)snprintf(buf, size, "%.2f kWh", s->energy_j / 3.6e6);
        return buf;
    }
    return stk_text_energy(s->energy_j, buf, size);
}

/* "12.30 USD"; a dash where a part of the time has no price. */
static const char *hours_cost(const stk_hours *hours, const stk_hours_sum *s, bool wasted,
                              bool utf8, char *buf, size_t size)
{
    double amount = s->cost;
    if (wasted) {
        amount = s->wasted_cost;
    }
    if (s->unpriced_s > 0 || (wasted && s->known_s <= 0)) {
        return stk_text_dash(utf8);
    }
    return stk_cost_text(amount, stk_hours_currency(hours), buf, size);
}

static double percent_busy(const stk_hours_sum *s)
{
    return s->known_s > 0 ? s->busy_s / s->known_s * 100 : -1;
}

/* --- text --- */

static void put_busy_bar(const stk_hours_sum *s, const stk_style *style, stk_buf *out)
{
    static const char *const blocks[] = {"░", "█"};
    static const stk_ink inks[] = {STK_INK_DIM, STK_INK_GOOD};
    int busy = (int)(percent_busy(s) / 100 * BAR + 0.5);
    for (int i = 0; i < BAR && s->known_s > 0 && style->utf8; i++) {
        stk_text_ink(out, style, inks[i < busy], blocks[i < busy]);
    }
}

static void put_hours_line(const stk_hours *hours, const stk_hours_sum *s, const stk_style *style,
                           stk_buf *out)
{
    char text[64];
    stk_buf_text(out, "  ");
    stk_text_cell(out, style, s->name, NAME_CELL);
    stk_text_cell(out, style, hours_text(s->held_s, text, sizeof text), HOUR_CELL);
    if (s->known_s > 0) {
        stk_text_cell(out, style, hours_text(s->busy_s, text, sizeof text), HOUR_CELL);
        stk_text_cell(out, style, hours_text(s->known_s - s->busy_s, text, sizeof text), HOUR_CELL);
    } else {
        stk_text_cell(out, style, stk_text_dash(style->utf8), HOUR_CELL);
        stk_text_cell(out, style, stk_text_dash(style->utf8), HOUR_CELL);
    }
    stk_text_cell(out, style, energy_text(s, text, sizeof text), HOUR_CELL - 2);
    for (int wasted = 0; wasted < 2 && stk_hours_currency(hours) != NULL; wasted++) {
        stk_text_cell(out, style, hours_cost(hours, s, wasted == 1, style->utf8, text, sizeof text),
                      HOUR_CELL);
    }
    put_busy_bar(s, style, out);
    stk_text_end_line(out);
}

void stk_hours_text(stk_hours *hours, const stk_style *style, stk_buf *out)
{
    static const char *const heads[] = {"held", "busy", "wasted"};
    const stk_hours_sum total = stk_hours_total(hours);
    for (int by = 0; by < STK_HOURS_N && total.n_tasks > 0; by++) {
        uint32_t n = 0;
        const stk_hours_sum *items = stk_hours_get(hours, (stk_hours_by)by, &n);
        if (n < 2 && by == STK_HOURS_STORE) {
            continue;
        }
        stk_buf_text(out, "  ");
        stk_text_cell(out, style, hours_words[by].one, NAME_CELL);
        for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
            stk_text_cell(out, style, heads[i], HOUR_CELL);
        }
        stk_text_cell(out, style, "energy", HOUR_CELL - 2);
        if (stk_hours_currency(hours) != NULL) {
            stk_text_cell(out, style, "cost", HOUR_CELL);
            stk_buf_text(out, "wasted of it");
        }
        stk_text_end_line(out);
        for (uint32_t i = 0; i < n; i++) {
            put_hours_line(hours, &items[i], style, out);
        }
    }
    if (total.n_tasks > 0) {
        put_hours_line(hours, &total, style, out);
    } else {
        stk_buf_text(out, "no task has held a device in this time\n");
    }
}

/* --- JSON --- */

static void put_sum_members(const stk_hours *hours, const stk_hours_sum *s, stk_buf *out)
{
    stk_json_put_real(out, "held_s", s->held_s);
    stk_json_put_real(out, "busy_s", s->known_s > 0 ? s->busy_s : -1);
    stk_json_put_real(out, "wasted_s", s->known_s > 0 ? s->known_s - s->busy_s : -1);
    stk_json_put_real(out, "energy_j", s->has_energy ? s->energy_j : -1);
    if (stk_hours_currency(hours) != NULL) {
        stk_json_put_real(out, "cost", s->unpriced_s > 0 ? -1 : s->cost);
        stk_json_put_real(out, "wasted_cost",
                          s->unpriced_s > 0 || s->known_s <= 0 ? -1 : s->wasted_cost);
    }
    stk_json_put_whole(out, "attempts", s->n_tasks);
}

int stk_hours_json(stk_hours *hours, stk_buf *out, stk_err *err)
{
    const stk_hours_sum total = stk_hours_total(hours);
    stk_json_open(out, NULL, '{');
    stk_json_put_known_text(out, "currency", stk_hours_currency(hours));
    stk_json_open(out, "total", '{');
    put_sum_members(hours, &total, out);
    stk_json_close(out, '}');
    for (int by = 0; by < STK_HOURS_N; by++) {
        uint32_t n = 0;
        const stk_hours_sum *items = stk_hours_get(hours, (stk_hours_by)by, &n);
        stk_json_open(out, hours_words[by].key, '[');
        for (uint32_t i = 0; i < n; i++) {
            stk_json_open(out, NULL, '{');
            stk_json_put_text(out, hours_words[by].one, items[i].name);
            put_sum_members(hours, &items[i], out);
            stk_json_close(out, '}');
        }
        stk_json_close(out, ']');
    }
    stk_json_close(out, '}');
    return stk_show_check(out, err);
}

/* --- HTML --- */

/* Busy and wasted, as long as its share of the most that one row held. */
static void put_hours_bar(const stk_hours_sum *s, double most, stk_buf *out)
{
    double busy = s->busy_s / most * 100, idle = (s->known_s - s->busy_s) / most * 100;
    stk_buf_printf(out,
                   "<td><span class=\"bar2\"><i class=\"busy\" style=\"width:%.1f%%\"></i><i "
                   "class=\"idle\" style=\"width:%.1f%%\"></i></span></td>",
                   busy, idle);
}

static void put_hours_row(const stk_hours *hours, const stk_hours_sum *s, double most, stk_buf *out)
{
    char text[64];
    stk_html_put(out, "<tr><td class=\"wrap\">%s</td>", s->name);
    stk_html_cell(out, NULL, hours_text(s->held_s, text, sizeof text));
    if (s->known_s > 0) {
        stk_html_cell(out, NULL, hours_text(s->busy_s, text, sizeof text));
        stk_html_cell(out, NULL, hours_text(s->known_s - s->busy_s, text, sizeof text));
        stk_buf_printf(out, "<td>%.0f %%</td>", percent_busy(s));
    } else {
        stk_buf_text(out, "<td class=\"dim\">–</td><td class=\"dim\">–</td><td></td>");
    }
    stk_html_cell(out, NULL, energy_text(s, text, sizeof text));
    for (int wasted = 0; wasted < 2 && stk_hours_currency(hours) != NULL; wasted++) {
        stk_html_cell(out, NULL, hours_cost(hours, s, wasted == 1, true, text, sizeof text));
    }
    put_hours_bar(s, most, out);
    stk_buf_text(out, "</tr>\n");
}

static void put_hours_panel(stk_hours *hours, stk_hours_by by, stk_buf *out)
{
    uint32_t n = 0;
    const stk_hours_sum *items = stk_hours_get(hours, by, &n);
    double most = 1e-9;
    for (uint32_t i = 0; i < n; i++) {
        most = MAX(most, items[i].held_s);
    }
    stk_html_panel_open(out, hours_words[by].title);
    stk_html_put(out,
                 "<div class=\"scroll tall\"><table class=\"runs\"><thead><tr><th>%s</th>"
                 "<th>held</th><th>busy</th><th>wasted</th><td></td><th>energy</th>",
                 hours_words[by].one);
    stk_buf_text(out, stk_text_when(stk_hours_currency(hours) != NULL,
                                    "<th>cost</th><th>wasted of it</th>"));
    stk_buf_text(out, "<th>busy and wasted</th></tr></thead><tbody>\n");
    for (uint32_t i = 0; i < MIN(n, ROWS_OF_HOURS); i++) {
        put_hours_row(hours, &items[i], most, out);
    }
    stk_buf_text(out, "</tbody></table></div>");
    stk_html_panel_close(out);
}

int stk_hours_html(stk_hours *hours, stk_buf *out, stk_err *err)
{
    const stk_hours_sum t = stk_hours_total(hours);
    char text[64];
    if (t.n_tasks == 0) {
        stk_buf_text(out, "<p class=\"verdict\">No task has held a device in this time.</p>\n");
        return stk_show_check(out, err);
    }
    stk_buf_text(out, "<div class=\"tiles\">\n");
    stk_html_tile(out, hours_text(t.held_s, text, sizeof text), "held");
    if (t.known_s > 0) {
        stk_html_tile(out, hours_text(t.busy_s, text, sizeof text), "busy");
        stk_html_tile(out, hours_text(t.known_s - t.busy_s, text, sizeof text), "wasted");
    }
    if (t.has_energy) {
        stk_html_tile(out, energy_text(&t, text, sizeof text), "energy");
    }
    for (int wasted = 0; wasted < 2 && stk_hours_currency(hours) != NULL; wasted++) {
        static const char *const words[] = {"cost", "cost of the wasted"};
        stk_html_tile(out, hours_cost(hours, &t, wasted == 1, true, text, sizeof text),
                      words[wasted]);
    }
    stk_html_tile_count(out, t.n_tasks, "attempts with devices");
    stk_buf_text(out, "</div>\n");
    for (int by = 0; by < STK_HOURS_N; by++) {
        put_hours_panel(hours, (stk_hours_by)by, out);
    }
    return stk_show_check(out, err);
}

int stk_hours_page(stk_hours *hours, stk_buf *out, stk_err *err)
{
    stk_html_page_open(out, "Hours of devices");
    stk_buf_text(out, "</header>\n");
    STK_TRY(stk_hours_html(hours, out, err));
    stk_html_page_close(out);
    return stk_show_check(out, err);
}
