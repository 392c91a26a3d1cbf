/* Devices as JSON: every key is always there, null where the value is unknown. */
#include "cli/cli_gpus.h"

static void key(stk_buf *out, const char *name)
{
    stk_buf_text(out, out->data[out->len - 1] == '{' ? "" : ",");
    stk_buf_json(out, name);
    stk_buf_char(out, ':');
}

static void text(stk_buf *out, const char *name, const char *value)
{
    key(out, name);
    if (value != NULL) {
        stk_buf_json(out, value);
    } else {
        stk_buf_text(out, "null");
    }
}

static void number(stk_buf *out, const char *name, int64_t value)
{
    key(out, name);
    if (value >= 0) {
        stk_buf_printf(out, "%lld", (long long)value);
    } else {
        stk_buf_text(out, "null");
    }
}

static void truth(stk_buf *out, const char *name, int32_t value)
{
    key(out, name);
    stk_buf_text(out, value < 0 ? "null" : value == 0 ? "false" : "true");
}

static void device(stk_buf *out, const stk_device *d)
{
    text(out, "vendor", d->vendor);
    text(out, "kind", d->noun);
    number(out, "index", d->index);
    text(out, "uuid", d->uuid);
    text(out, "model", d->model);
    text(out, "profile", d->profile);
    number(out, "parent", d->parent);
    number(out, "slices", d->n_slices);
    number(out, "cores", d->n_cores);
    number(out, "memory_bytes", d->memory_bytes);
    text(out, "pci", d->pci);
    text(out, "node", d->node);
    text(out, "driver", d->driver);
    number(out, "numa", d->numa);
    text(out, "cpus", d->cpus);
    key(out, "compute_capability");
    if (d->cc_major >= 0) {
        stk_buf_printf(out, "\"%d.%d\"", (int)d->cc_major, (int)d->cc_minor);
    } else {
        stk_buf_text(out, "null");
    }
    truth(out, "usable", d->usable);
}

static void throttle(stk_buf *out, int64_t bits)
{
    static const char *const words[] = {"idle",       "app_clocks", "power_cap",  "hw_slowdown",
                                        "sync_boost", "sw_thermal", "hw_thermal", "hw_power_brake"};
    key(out, "throttle");
    if (bits < 0) {
        stk_buf_text(out, "null");
        return;
    }
    stk_buf_char(out, '[');
    const char *comma = "";
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (bits >> i & 1) {
            stk_buf_printf(out, "%s\"%s\"", comma, words[i]);
            comma = ",";
        }
    }
    stk_buf_char(out, ']');
}

static void state(stk_buf *out, const stk_device_state *s)
{
    static const char *const modes[] = {"default", "exclusive_thread", "prohibited",
                                        "exclusive_process"};
#define NUMBER(field) number(out, #field, s->field)
    NUMBER(busy_percent);
    NUMBER(memory_busy_percent);
    NUMBER(memory_used);
    NUMBER(temperature_c);
    NUMBER(fan_percent);
    NUMBER(power_mw);
    NUMBER(power_limit_mw);
    NUMBER(energy_mj);
    NUMBER(sm_mhz);
    NUMBER(sm_max_mhz);
    NUMBER(memory_mhz);
    NUMBER(memory_max_mhz);
    throttle(out, s->throttle);
    NUMBER(pcie_gen);
    NUMBER(pcie_gen_max);
    NUMBER(pcie_width);
    NUMBER(pcie_width_max);
    NUMBER(pcie_tx_bytes_s);
    NUMBER(pcie_rx_bytes_s);
    NUMBER(n_nvlinks_up);
    NUMBER(nvlink_tx_bytes);
    NUMBER(nvlink_rx_bytes);
    truth(out, "ecc", s->ecc);
    NUMBER(ecc_corrected);
    NUMBER(ecc_uncorrected);
    NUMBER(ecc_uncorrected_total);
    truth(out, "remap_pending", s->remap_pending);
    truth(out, "remap_failed", s->remap_failed);
    NUMBER(remapped_rows);
    NUMBER(retired_pages);
    NUMBER(retired_pending);
    truth(out, "persistence", s->persistence);
#undef NUMBER
    text(out, "compute_mode",
         s->compute_mode >= 0 && s->compute_mode < 4 ? modes[s->compute_mode] : NULL);
}

static void processes(stk_buf *out, const stk_gpus_row *row)
{
    key(out, "processes");
    if (row->n_processes < 0) {
        stk_buf_text(out, "null");
        return;
    }
    stk_buf_char(out, '[');
    for (int i = 0; i < row->n_processes; i++) {
        const stk_gpus_process *p = &row->processes[i];
        stk_buf_text(out, i > 0 ? ",{" : "{");
        number(out, "pid", p->on.pid);
        text(out, "name", p->name);
        text(out, "user", p->user);
        number(out, "memory_bytes", p->on.memory_bytes);
        truth(out, "graphics", p->on.graphics);
        stk_buf_char(out, '}');
    }
    stk_buf_char(out, ']');
}

static void links(stk_buf *out, stk_gpus *gpus, uint32_t i)
{
    key(out, "links");
    stk_buf_char(out, '[');
    for (uint32_t j = 0; j < gpus->n; j++) {
        int32_t n = -1;
        const char *word = stk_gpus_link_word(stk_accel_link(gpus->accel, i, j, &n));
        stk_buf_text(out, j > 0 ? ",{" : "{");
        text(out, "link", word);
        number(out, "n", n);
        stk_buf_char(out, '}');
    }
    stk_buf_char(out, ']');
}

void stk_gpus_json(const stk_gpus *gpus, stk_buf *out)
{
    stk_gpus view = *gpus;
    stk_buf_char(out, '{');
    number(out, "time_ms", gpus->time_ms);
    text(out, "text", stk_accel_describe(gpus->accel, gpus->arena));
    truth(out, "simulated", stk_accel_is_simulated(gpus->accel));
    text(out, "driver", stk_accel_driver(gpus->accel));
    text(out, "cuda", stk_gpus_cuda(gpus));
    key(out, "devices");
    stk_buf_char(out, '[');
    for (uint32_t i = 0; i < gpus->n; i++) {
        const stk_gpus_row *row = &gpus->rows[i];
        stk_buf_text(out, i > 0 ? ",{" : "{");
        device(out, row->device);
        text(out, "status", stk_gpus_status(row));
        text(out, "trouble", row->trouble);
        text(out, "holder", row->holder);
        text(out, "outside", row->outside);
        state(out, &row->state);
        number(out, "xid", row->xid);
        processes(out, row);
        links(out, &view, i);
        stk_buf_char(out, '}');
    }
    stk_buf_text(out, "]}\n");
}
