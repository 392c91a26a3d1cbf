/* Devices as a table for people, as a matrix of links and as lines for a log. */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <time.h>

#include "base/text.h"
#include "base/units.h"
#include "show/gpus.h"

enum { WIDTH_MODEL = 40, CELL = 48 };

enum { C_INDEX, C_MODEL, C_MEMORY, C_BUSY, C_TEMPERATURE, C_POWER, C_NUMA, N_CELLS };
typedef struct cells {
    char text[N_CELLS][2 * CELL];
} cells;

static void amount(int64_t bytes, char *ret, size_t size)
{
    if (bytes < 0) {
        (void)snprintf(ret, size, "-");
    } else {
        (void)stk_units_format_memory(bytes, ret, size);
    }
}

static void format_number(int64_t value, const char *unit, char *ret, size_t size)
{
    if (value < 0) {
        (void)snprintf(ret, size, "-");
    } else {
        (void)snprintf(ret, size, "%lld%s", (long long)value, unit);
    }
}

static cells cells_of(const stk_gpus_row *row, bool utf8)
{
    const stk_device *d = row->device;
    const stk_device_state *s = &row->state;
    cells c;
    enum { SIZE = sizeof c.text[0] };
    char used[CELL], total[CELL], watts[16];
    if (d->parent >= 0) {
        c.text[C_INDEX][0] = '\0';
        (void)snprintf(c.text[C_MODEL], SIZE, "%s %s", utf8 ? "└" : "-",
                       stk_text_or(d->profile, d->noun));
    } else {
        (void)snprintf(c.text[C_INDEX], SIZE, "%d", (int)d->index);
        (void)snprintf(c.text[C_MODEL], SIZE, "%s", stk_text_or(d->model, d->noun));
    }
    amount(s->memory_used, used, sizeof used);
    amount(d->memory_bytes, total, sizeof total);
    (void)snprintf(c.text[C_MEMORY], SIZE, "%s / %s", used, total);
    format_number(s->busy_percent, "%", c.text[C_BUSY], SIZE);
    format_number(s->temperature_c, utf8 ? " °C" : " C", c.text[C_TEMPERATURE], SIZE);
    int64_t power_w = s->power_mw < 0 ? -1 : (s->power_mw + 500) / 1000;
    if (s->power_limit_mw > 0) {
        format_number(power_w, "", watts, sizeof watts);
        (void)snprintf(c.text[C_POWER], SIZE, "%s / %d W", watts, (int)s->power_limit_mw / 1000);
    } else {
        format_number(power_w, " W", c.text[C_POWER], SIZE);
    }
    format_number(d->numa, "", c.text[C_NUMA], SIZE);
    return c;
}

static void widen(int *widths, const cells *c)
{
    for (int k = 0; k < N_CELLS; k++) {
        int columns = stk_text_width(c->text[k]);
        widths[k] = MAX(widths[k], MIN(columns, k == C_MODEL ? WIDTH_MODEL : CELL));
    }
}

static void put_row(stk_buf *out, const int *widths, const cells *c, bool utf8)
{
    for (int k = 0; k < N_CELLS; k++) {
        if (k == C_MODEL) {
            stk_text_fit(out, c->text[k], widths[k], true, utf8);
        } else { /* aligned to the right */
            stk_buf_printf(out, "%*s%s", MAX(widths[k] - stk_text_width(c->text[k]), 0), "",
                           c->text[k]);
        }
        stk_buf_text(out, "  ");
    }
}

static void put_detail(stk_buf *out, const char *before, const char *text, const stk_style *style,
                       int indent)
{
    if (text != NULL) {
        stk_buf_printf(out, "%*s%s", indent, "", before);
        stk_text_fit(out, text, 400, false, style->utf8);
        stk_buf_char(out, '\n');
    }
}

/* Lines below the row: the lease's holder, the processes, what is wrong. */
static void put_details(stk_buf *out, const stk_gpus_row *row, const stk_style *style, int indent)
{
    char memory[CELL];
    put_detail(out, "leased by ", row->holder, style, indent);
    put_detail(out, "", row->claim, style, indent);
    for (int i = 0; i < row->n_processes; i++) {
        const stk_gpus_process *p = &row->processes[i];
        STK_BUF_AUTO text = STK_BUF_INIT(1024);
        stk_buf_printf(&text, "pid %d", (int)p->on.pid);
        if (p->name != NULL) {
            stk_buf_printf(&text, " %s (user %s)", p->name, stk_text_or(p->user, "?"));
        }
        if (p->on.memory_bytes < 0) {
            stk_buf_text(&text, ", memory unknown");
        } else {
            stk_units_format_memory(p->on.memory_bytes, memory, sizeof memory);
            stk_buf_printf(&text, ", %s", memory);
        }
        if (p->on.graphics) {
            stk_buf_text(&text, ", graphics");
        }
        put_detail(out, "", stk_text_or(text.data, "?"), style, indent);
    }
    if (row->n_processes <= 0) {
        put_detail(out, "", row->outside, style, indent);
    }
    if (row->trouble != NULL) {
        stk_buf_printf(out, "%*s", indent, "");
        STK_BUF_AUTO text = STK_BUF_INIT(4096);
        stk_text_fit(&text, row->trouble, 800, false, style->utf8);
        stk_text_ink(out, style, STK_INK_BAD, stk_text_or(text.data, "unusable"));
        stk_buf_char(out, '\n');
    }
}

static stk_ink ink_of(const char *status)
{
    static const struct {
        const char *status;
        stk_ink ink;
    } inks[] = {{"free", STK_INK_GOOD}, {"unusable", STK_INK_BAD}, {"split", STK_INK_DIM}};
    for (size_t i = 0; i < sizeof inks / sizeof *inks; i++) {
        if (strcmp(status, inks[i].status) == 0) {
            return inks[i].ink;
        }
    }
    return STK_INK_WARN;
}

void stk_gpus_table(const stk_gpus *gpus, const stk_style *style, stk_buf *out)
{
    static const cells head = {{"#", "model", "memory", "busy", "temp", "power", "numa"}};
    const char *cuda = stk_gpus_cuda(gpus);
    stk_buf_text(out, stk_accel_describe(gpus->accel, gpus->arena));
    if (cuda != NULL) {
        stk_buf_printf(out, "; its driver runs CUDA up to %s", cuda);
    }
    stk_buf_char(out, '\n');
    if (gpus->n == 0) {
        return;
    }
    int widths[N_CELLS] = {0};
    widen(widths, &head);
    for (uint32_t i = 0; i < gpus->n; i++) {
        const cells c = cells_of(&gpus->rows[i], style->utf8);
        widen(widths, &c);
    }
    STK_BUF_AUTO line = STK_BUF_INIT(4096);
    put_row(&line, widths, &head, style->utf8);
    stk_buf_text(&line, "state");
    stk_text_ink(out, style, STK_INK_DIM, stk_text_or(line.data, ""));
    stk_buf_char(out, '\n');
    for (uint32_t i = 0; i < gpus->n; i++) {
        const stk_gpus_row *row = &gpus->rows[i];
        const cells c = cells_of(row, style->utf8);
        const char *status = stk_gpus_status(row);
        put_row(out, widths, &c, style->utf8);
        stk_text_ink(out, style, ink_of(status), status);
        stk_buf_char(out, '\n');
        put_details(out, row, style, widths[C_INDEX] + 2 + 2 * (row->device->parent >= 0));
    }
}

/* --- links --- */

static const char *link_cell(stk_gpus *gpus, uint32_t i, uint32_t j, char *ret, size_t size)
{
    static const char *const words[] = {
        [STK_LINK_UNKNOWN] = "-", [STK_LINK_SYSTEM] = "SYS", [STK_LINK_NODE] = "NODE",
        [STK_LINK_HOST] = "PHB",  [STK_LINK_SWITCH] = "PIX", [STK_LINK_FABRIC] = "LINK",
        [STK_LINK_SAME] = "X",
    };
    int32_t n = -1;
    stk_closeness link = stk_accel_link(gpus->accel, i, j, &n);
    if (link == STK_LINK_FABRIC && n > 0) {
        (void)snprintf(ret, size, "%dxL", (int)n);
    } else {
        (void)snprintf(ret, size, "%s", words[link]);
    }
    return ret;
}

void stk_gpus_topology(const stk_gpus *gpus, stk_buf *out)
{
    stk_gpus view = *gpus;
    char cell[CELL];
    if (gpus->n == 0) {
        return;
    }
    stk_buf_text(out, "\n      ");
    for (uint32_t j = 0; j < gpus->n; j++) {
        if (gpus->rows[j].device->parent < 0) {
            stk_buf_printf(out, "%5d ", (int)gpus->rows[j].device->index);
        }
    }
    stk_buf_text(out, "  numa  CPUs\n");
    for (uint32_t i = 0; i < gpus->n; i++) {
        const stk_device *d = gpus->rows[i].device;
        if (d->parent >= 0) {
            continue; /* a slice has the links of its device */
        }
        stk_buf_printf(out, "%5d ", (int)d->index);
        for (uint32_t j = 0; j < gpus->n; j++) {
            if (gpus->rows[j].device->parent < 0) {
                stk_buf_printf(out, "%5s ", link_cell(&view, i, j, cell, sizeof cell));
            }
        }
        format_number(d->numa, "", cell, sizeof cell);
        stk_buf_printf(out, " %5s  %s\n", cell, stk_text_or(d->cpus, "-"));
    }
    stk_buf_text(
        out, "18xL: 18 links of NVLink, XGMI or the like; LINK: an unknown number of them; "
             "PIX: one PCIe switch or "
             "board;\nPHB: one PCIe host bridge; NODE: one NUMA node; SYS: across NUMA nodes\n");
}

/* --- lines --- */

void stk_gpus_lines(const stk_gpus *gpus, stk_buf *out)
{
    char when[32] = "?";
    time_t seconds = (time_t)(gpus->time_ms / 1000);
    struct tm parts;
    if (gmtime_r(&seconds, &parts) != NULL) {
        (void)strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &parts);
    }
    for (uint32_t i = 0; i < gpus->n; i++) {
        const stk_gpus_row *row = &gpus->rows[i];
        const stk_device *d = row->device;
        const cells c = cells_of(row, true);
        stk_buf_printf(out, "%s  %s %d  %s  memory %s  busy %s  %s  %s  %s", when, d->noun,
                       (int)d->index, stk_text_or(d->uuid, "-"), c.text[C_MEMORY], c.text[C_BUSY],
                       c.text[C_TEMPERATURE], c.text[C_POWER], stk_gpus_status(row));
        if (row->trouble != NULL) {
            stk_buf_printf(out, ": %s", row->trouble);
        } else if (row->holder != NULL) {
            stk_buf_printf(out, " by %s", row->holder);
        }
        stk_buf_char(out, '\n');
    }
}
