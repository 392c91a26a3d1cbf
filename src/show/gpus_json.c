/* Devices as JSON: every key is always present, null if the value is unknown. */
#include "base/json.h"
#include "show/gpus.h"

static void device(stk_buf *out, const stk_device *d)
{
    stk_json_put_text(out, "vendor", d->vendor);
    stk_json_put_text(out, "kind", d->noun);
    stk_json_put_int(out, "index", d->index);
    stk_json_put_text(out, "uuid", d->uuid);
    stk_json_put_text(out, "model", d->model);
    stk_json_put_text(out, "profile", d->profile);
    stk_json_put_int(out, "parent", d->parent);
    stk_json_put_int(out, "slices", d->n_slices);
    stk_json_put_int(out, "cores", d->n_cores);
    stk_json_put_int(out, "memory_bytes", d->memory_bytes);
    stk_json_put_text(out, "pci", d->pci);
    stk_json_put_text(out, "node", d->node);
    stk_json_put_text(out, "driver", d->driver);
    stk_json_put_int(out, "numa", d->numa);
    stk_json_put_text(out, "cpus", d->cpus);
    stk_json_put_key(out, "compute_capability");
    if (d->cc_major >= 0) {
        stk_buf_printf(out, "\"%d.%d\"", (int)d->cc_major, (int)d->cc_minor);
    } else {
        stk_buf_text(out, "null");
    }
    stk_json_put_bool(out, "usable", d->usable);
}

static void throttle(stk_buf *out, int64_t bits)
{
    static const char *const words[] = {"idle",       "app_clocks", "power_cap",  "hw_slowdown",
                                        "sync_boost", "sw_thermal", "hw_thermal", "hw_power_brake"};
    if (bits < 0) {
        stk_json_put_text(out, "throttle", NULL);
        return;
    }
    stk_json_open(out, "throttle", '[');
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (bits >> i & 1) {
            stk_json_put_text(out, NULL, words[i]);
        }
    }
    stk_json_close(out, ']');
}

static void state(stk_buf *out, const stk_device_state *s)
{
    static const char *const modes[] = {"default", "exclusive_thread", "prohibited",
                                        "exclusive_process"};
    bool known = s->compute_mode >= 0 && s->compute_mode < 4;
#define NUMBER(field) stk_json_put_int(out, #field, s->field)
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
    stk_json_put_bool(out, "ecc", s->ecc);
    NUMBER(ecc_corrected);
    NUMBER(ecc_uncorrected);
    NUMBER(ecc_uncorrected_total);
    stk_json_put_bool(out, "remap_pending", s->remap_pending);
    stk_json_put_bool(out, "remap_failed", s->remap_failed);
    NUMBER(remapped_rows);
    NUMBER(retired_pages);
    NUMBER(retired_pending);
    stk_json_put_bool(out, "persistence", s->persistence);
#undef NUMBER
    stk_json_put_text(out, "compute_mode", known ? modes[s->compute_mode] : NULL);
}

static void processes(stk_buf *out, const stk_gpus_row *row)
{
    if (row->n_processes < 0) {
        stk_json_put_text(out, "processes", NULL);
        return;
    }
    stk_json_open(out, "processes", '[');
    for (int i = 0; i < row->n_processes; i++) {
        const stk_gpus_process *p = &row->processes[i];
        stk_json_open(out, NULL, '{');
        stk_json_put_int(out, "pid", p->on.pid);
        stk_json_put_text(out, "name", p->name);
        stk_json_put_text(out, "user", p->user);
        stk_json_put_int(out, "memory_bytes", p->on.memory_bytes);
        stk_json_put_bool(out, "graphics", p->on.graphics);
        stk_buf_char(out, '}');
    }
    stk_buf_char(out, ']');
}

static void links(stk_buf *out, stk_gpus *gpus, uint32_t i)
{
    stk_json_open(out, "links", '[');
    for (uint32_t j = 0; j < gpus->n; j++) {
        int32_t n = -1;
        const char *word = stk_gpus_link_word(stk_accel_link(gpus->accel, i, j, &n));
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "link", word);
        stk_json_put_int(out, "n", n);
        stk_buf_char(out, '}');
    }
    stk_buf_char(out, ']');
}

void stk_gpus_json(const stk_gpus *gpus, stk_buf *out)
{
    stk_gpus view = *gpus;
    stk_buf_char(out, '{');
    stk_json_put_int(out, "time_ms", gpus->time_ms);
    stk_json_put_text(out, "text", stk_accel_describe(gpus->accel, gpus->arena));
    stk_json_put_bool(out, "simulated", stk_accel_is_simulated(gpus->accel));
    stk_json_put_text(out, "driver", stk_accel_driver(gpus->accel));
    stk_json_put_text(out, "cuda", stk_gpus_cuda(gpus));
    stk_json_open(out, "devices", '[');
    for (uint32_t i = 0; i < gpus->n; i++) {
        const stk_gpus_row *row = &gpus->rows[i];
        stk_json_open(out, NULL, '{');
        device(out, row->device);
        stk_json_put_text(out, "status", stk_gpus_status(row));
        stk_json_put_text(out, "trouble", row->trouble);
        stk_json_put_text(out, "holder", row->holder);
        stk_json_put_text(out, "claim", row->claim);
        stk_json_put_text(out, "outside", row->outside);
        state(out, &row->state);
        stk_json_put_int(out, "xid", row->xid);
        processes(out, row);
        links(out, &view, i);
        stk_buf_char(out, '}');
    }
    stk_buf_text(out, "]}\n");
}
