/* Devices in Prometheus' text exposition format, version 0.0.4, with the names, units and labels of
 * NVIDIA's dcgm-exporter, so that its dashboards and alerts work. Unknown values are left out. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "show/gpus.h"

/* The printed value is `value` × `scale`, in dcgm-exporter's unit; a value of -1 is unknown. */
typedef struct metric {
    const char *name, *type, *help;
    int64_t (*value)(const stk_gpus_row *row);
    double scale;
} metric;

#define STATE(field)                                                                               \
    static int64_t of_##field(const stk_gpus_row *row)                                             \
    {                                                                                              \
        return row->state.field;                                                                   \
    }
STATE(sm_mhz)
STATE(memory_mhz)
STATE(temperature_c)
STATE(power_mw)
STATE(power_limit_mw)
STATE(energy_mj)
STATE(fan_percent)
STATE(busy_percent)
STATE(memory_busy_percent)
STATE(memory_used)
STATE(throttle)
STATE(pcie_gen)
STATE(pcie_width)
STATE(pcie_tx_bytes_s)
STATE(pcie_rx_bytes_s)
STATE(ecc_corrected)
STATE(ecc_uncorrected)
STATE(ecc_uncorrected_total)
STATE(remap_pending)
STATE(remap_failed)
STATE(retired_pages)
STATE(retired_pending)
#undef STATE

static int64_t of_memory_total(const stk_gpus_row *row)
{
    return row->device->memory_bytes;
}

static int64_t of_memory_free(const stk_gpus_row *row)
{
    bool known = row->device->memory_bytes >= 0 && row->state.memory_used >= 0;
    return known ? row->device->memory_bytes - row->state.memory_used : -1;
}

static int64_t of_xid(const stk_gpus_row *row)
{
    return row->xid;
}

static int64_t of_usable(const stk_gpus_row *row)
{
    return row->device->usable && row->trouble == NULL;
}

static int64_t of_leased(const stk_gpus_row *row)
{
    return row->holder != NULL;
}

#define MIB (1.0 / (1 << 20))
static const metric metrics[] = {
    {"DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).", of_sm_mhz, 1},
    {"DCGM_FI_DEV_MEM_CLOCK", "gauge", "Memory clock frequency (in MHz).", of_memory_mhz, 1},
    {"DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", of_temperature_c, 1},
    {"DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", of_power_mw, 1e-3},
    {"DCGM_FI_DEV_POWER_MGMT_LIMIT", "gauge", "Power limit (in W).", of_power_limit_mw, 1e-3},
    {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter",
     "Energy since the driver was loaded (in mJ).", of_energy_mj, 1},
    {"DCGM_FI_DEV_FAN_SPEED", "gauge", "Fan speed (in %).", of_fan_percent, 1},
    {"DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", of_busy_percent, 1},
    {"DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "Memory utilization (in %).", of_memory_busy_percent, 1},
    {"DCGM_FI_DEV_FB_TOTAL", "gauge", "Framebuffer memory (in MiB).", of_memory_total, MIB},
    {"DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB).", of_memory_free, MIB},
    {"DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB).", of_memory_used, MIB},
    {"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "gauge", "Why clocks are lowered (bits).", of_throttle,
     1},
    {"DCGM_FI_DEV_PCIE_LINK_GEN", "gauge", "PCIe generation in use.", of_pcie_gen, 1},
    {"DCGM_FI_DEV_PCIE_LINK_WIDTH", "gauge", "PCIe lanes in use.", of_pcie_width, 1},
    {"DCGM_FI_DEV_PCIE_TX_THROUGHPUT", "gauge", "PCIe transmit throughput (in KB/s).",
     of_pcie_tx_bytes_s, 1e-3},
    {"DCGM_FI_DEV_PCIE_RX_THROUGHPUT", "gauge", "PCIe receive throughput (in KB/s).",
     of_pcie_rx_bytes_s, 1e-3},
    {"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter", "Corrected ECC errors since boot.",
     of_ecc_corrected, 1},
    {"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "Uncorrected ECC errors since boot.",
     of_ecc_uncorrected, 1},
    {"DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "counter", "Uncorrected ECC errors in the device's life.",
     of_ecc_uncorrected_total, 1},
    {"DCGM_FI_DEV_RETIRED_DBE", "counter", "Pages retired.", of_retired_pages, 1},
    {"DCGM_FI_DEV_RETIRED_PENDING", "counter", "Pages whose retirement waits for a restart.",
     of_retired_pending, 1},
    {"DCGM_FI_DEV_ROW_REMAP_PENDING", "gauge", "Whether a row remap waits for a reset.",
     of_remap_pending, 1},
    {"DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "Whether remapping of rows has failed.",
     of_remap_failed, 1},
    {"DCGM_FI_DEV_XID_ERRORS", "gauge", "The last Xid seen.", of_xid, 1},
    {"stoker_device_usable", "gauge",
     "Whether Stoker leases it to steps: 0 if it is broken, in quarantine or split.", of_usable, 1},
    {"stoker_device_leased", "gauge", "Whether a run of Stoker leases it.", of_leased, 1},
};

/* Escapes backslash, quote and newline in a label's value; other control characters become '?'. */
static void label(stk_buf *out, const char *name, const char *value)
{
    if (out->data[out->len - 1] != '{') {
        stk_buf_char(out, ',');
    }
    stk_buf_printf(out, "%s=\"", name);
    for (const char *c = stk_text_or(value, ""); *c != '\0'; c++) {
        if (*c == '\n') {
            stk_buf_text(out, "\\n");
        } else if (*c == '"' || *c == '\\') {
            stk_buf_printf(out, "\\%c", *c);
        } else {
            bool is_text = (unsigned char)*c >= ' ' && *c != 0x7f;
            stk_buf_char(out, is_text ? *c : '?');
        }
    }
    stk_buf_char(out, '"');
}

static void labels(stk_buf *out, const stk_gpus *gpus, uint32_t i, const char *host)
{
    const stk_device *d = gpus->rows[i].device;
    char number[16], node[64];
    (void)snprintf(number, sizeof number, "%d", (int)d->index);
    const char *slash = strrchr(stk_text_or(d->node, ""), '/');
    if (slash != NULL) {
        (void)snprintf(node, sizeof node, "%s", slash + 1);
    } else {
        (void)snprintf(node, sizeof node, "%s%s", d->vendor, number);
    }
    stk_buf_char(out, '{');
    label(out, "gpu", number);
    label(out, "UUID", d->uuid);
    label(out, "pci_bus_id", d->pci);
    label(out, "device", node);
    label(out, "modelName", d->model);
    if (d->parent >= 0) { /* its number within the device, as the list orders them */
        (void)snprintf(number, sizeof number, "%d", (int)i - (int)d->parent - 1);
        label(out, "GPU_I_PROFILE", d->profile);
        label(out, "GPU_I_ID", number);
    }
    label(out, "Hostname", host);
    label(out, "DCGM_FI_DRIVER_VERSION", stk_text_or(d->driver, stk_accel_driver(gpus->accel)));
    stk_buf_char(out, '}');
}

void stk_gpus_prometheus(const stk_gpus *gpus, stk_buf *out)
{
    char host[256] = "";
    (void)gethostname(host, sizeof host - 1);
    for (size_t k = 0; k < sizeof metrics / sizeof metrics[0]; k++) {
        const metric *m = &metrics[k];
        bool has_head = false;
        for (uint32_t i = 0; i < gpus->n; i++) {
            int64_t value = m->value(&gpus->rows[i]);
            if (value < 0) {
                continue;
            }
            if (!has_head) {
                stk_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", m->name, m->help, m->name,
                               m->type);
                has_head = true;
            }
            stk_buf_text(out, m->name);
            labels(out, gpus, i, host);
            if (m->scale == 1) {
                stk_buf_printf(out, " %lld\n", (long long)value);
            } else if (m->scale == MIB) {
                stk_buf_printf(out, " %lld\n", (long long)(value >> 20));
            } else {
                stk_buf_printf(out, " %.3f\n", (double)value * m->scale);
            }
        }
    }
}
