/* AMD GPUs from the files of the amdgpu driver: the compute nodes of /sys/class/kfd (ROCm's
 * numbering) and the device folders behind their render nodes. GPUs inside a CPU are skipped.
 * libamd_smi knows nothing more that we need. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "host/accel/accel_priv.h"
#include "host/accel/accel_sysfs.h"
#include "host/accel/accel_vendor.h"

#define NODES "/sys/class/kfd/kfd/topology/nodes"
#define PROCESSES "/sys/class/kfd/kfd/proc"
enum { LINK_XGMI = 11 };

typedef struct amd_device {
    const char *dir, *hwmon; /* folders in sysfs */
    int64_t gpu_id;          /* names the device's files under PROCESSES */
    int32_t kfd_node;
    stk_vendor_peers peers;             /* KFD nodes joined by XGMI */
    int64_t sm_max_mhz, memory_max_mhz; /* or -1 */
} amd_device;

typedef struct amd {
    amd_device devices[STK_LIMIT_DEVICES];
    uint32_t n;
} amd;

/* The value of `key` in "key value" lines; -1: no such key. */
static int64_t property(const char *text, const char *key)
{
    size_t len = strlen(key);
    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, key, len) == 0 && line[len] == ' ') {
            return (int64_t)strtoull(line + len + 1, NULL, 10);
        }
        line = strchr(line, '\n');
        line += line != NULL;
    }
    return -1;
}

/* The highest clock in a list like "0: 500Mhz\n1: 2100Mhz *". */
static int64_t highest_clock(stk_arena *arena, const char *dir, const char *file)
{
    const char *text = stk_vendor_text(arena, dir, file);
    int64_t most = -1;
    for (const char *at = text; at != NULL && (at = strstr(at, ": ")) != NULL; at++) {
        long long mhz = strtoll(at + 2, NULL, 10);
        most = MAX(mhz, most);
    }
    return most;
}

static void find_peers(stk_arena *arena, const char *node_dir, amd_device *ret)
{
    static const char *const kinds[] = {"io_links", "p2p_links"};
    for (size_t k = 0; k < 2; k++) {
        const char *const *names;
        const char *dir = stk_arena_printf(arena, "%s/%s", node_dir, kinds[k]);
        uint32_t n = stk_sysfs_list(arena, stk_text_or(dir, ""), "", &names);
        for (uint32_t i = 0; i < n; i++) {
            const char *link = stk_arena_printf(arena, "%s/%s", dir, names[i]);
            const char *text = stk_vendor_text(arena, stk_text_or(link, ""), "properties");
            if (property(text, "type") == LINK_XGMI) {
                stk_vendor_add_peer(&ret->peers, property(text, "node_to"));
            }
        }
    }
}

static void name_device(stk_arena *arena, const char *text, const char *dir, stk_device *ret)
{
    char model[128];
    int64_t location = property(text, "location_id"), domain = property(text, "domain");
    int64_t unique = property(text, "unique_id");
    if (location >= 0) {
        ret->pci = stk_arena_printf(arena, "%04x:%02x:%02x.%x", (unsigned)MAX(domain, 0),
                                    (unsigned)(location >> 8 & 0xff),
                                    (unsigned)(location >> 3 & 0x1f), (unsigned)(location & 7));
    }
    if (unique != 0 && unique != -1) {
        ret->uuid = stk_arena_printf(arena, "GPU-%016llx", (unsigned long long)unique);
    } else {
        ret->uuid = stk_arena_printf(arena, "amd-%s", stk_text_or(ret->pci, "unknown"));
    }
    if (stk_sysfs_text(model, sizeof model, "%s/product_name", dir) && model[0] != '\0') {
        ret->model = stk_arena_printf(arena, strstr(model, "AMD") ? "%s" : "AMD %s", model);
    } else {
        ret->model = stk_vendor_pci_model("amd", property(text, "device_id"), -1);
    }
    if (ret->model == NULL) {
        long long id = property(text, "device_id");
        ret->model = stk_arena_printf(arena, "AMD GPU 0x%04llx", id);
    }
}

/* Adds one KFD node; *ret_index counts GPUs as ROCm does. */
static int add_node(stk_accel *accel, amd *self, const char *name, int32_t *ret_index, stk_err *err)
{
    stk_arena *arena = accel->arena;
    char driver[64];
    const char *node_dir = stk_arena_printf(arena, NODES "/%s", name);
    const char *text = stk_vendor_text(arena, stk_text_or(node_dir, ""), "properties");
    int64_t minor = property(text, "drm_render_minor");
    if (property(text, "simd_count") <= 0 || minor <= 0) {
        return 0; /* a CPU */
    }
    int32_t index = (*ret_index)++;
    if (property(text, "cpu_cores_count") > 0 || self->n == STK_LIMIT_DEVICES) {
        return 0; /* inside a CPU: it shares the CPU's memory and is slow */
    }
    amd_device *own = &self->devices[self->n];
    own->dir = stk_arena_printf(arena, "/sys/class/drm/renderD%d/device", (int)minor);
    stk_device d = {STK_DEVICE_UNKNOWN, .vendor = "amd", .noun = "GPU"};
    d.index = index;
    d.node = stk_arena_printf(arena, "/dev/dri/renderD%d", (int)minor);
    STK_TRY(stk_err_need(own->dir, "for the list of devices", err));
    STK_TRY(stk_err_need(d.node, "for the list of devices", err));
    bool there = false, kfd_there = false;
    const char *kfd_trouble = stk_vendor_node_trouble(arena, "/dev/kfd", &kfd_there);
    d.trouble = stk_vendor_node_trouble(arena, d.node, &there);
    if (stk_in_container() && (!there || !kfd_there)) {
        return 0; /* belongs to the host, not to our container */
    }
    d.trouble = stk_text_or(d.trouble, kfd_trouble);
    d.usable = d.trouble == NULL;
    name_device(arena, text, own->dir, &d);
    stk_pci_place(arena, d.pci, &d.numa, &d.cpus);
    d.memory_bytes = stk_vendor_sensor(own->dir, "mem_info_vram_total", 1);
    if (stk_sysfs_text(driver, sizeof driver, "/sys/module/amdgpu/version")) {
        d.driver = stk_arena_dup(arena, driver);
    }
    own->gpu_id = stk_vendor_sensor(node_dir, "gpu_id", 1);
    own->kfd_node = stk_vendor_number(name, "");
    own->hwmon = stk_vendor_hwmon(arena, own->dir);
    own->sm_max_mhz = highest_clock(arena, own->dir, "pp_dpm_sclk");
    own->memory_max_mhz = highest_clock(arena, own->dir, "pp_dpm_mclk");
    find_peers(arena, node_dir, own);
    return stk_accel_add(accel, &d, self->n++, err);
}

/* Reports a data-centre card that has no compute node. Without the report, programs would silently
 * run on the CPU. */
static int add_unbound(stk_accel *accel, stk_err *err)
{
    const char *const *names;
    uint32_t n = stk_sysfs_list(accel->arena, "/sys/class/drm", "card", &names);
    int32_t index = 0;
    for (uint32_t i = 0; i < n && !stk_in_container(); i++) {
        char pci[16];
        const char *model = stk_vendor_pci_model(
            "amd", stk_sysfs_number("/sys/class/drm/%s/device/device", names[i]), -1);
        if (stk_vendor_number(names[i], "card") < 0 || model == NULL ||
            stk_sysfs_number("/sys/class/drm/%s/device/vendor", names[i]) != 0x1002) {
            continue;
        }
        stk_device d = {STK_DEVICE_UNKNOWN, .vendor = "amd", .noun = "GPU", .model = model};
        d.index = index++;
        d.trouble = "the kernel shows no compute node for it (/sys/class/kfd): load the amdgpu "
                    "module of a kernel with HSA_AMD";
        if (stk_sysfs_link(pci, sizeof pci, "/sys/class/drm/%s/device", names[i])) {
            d.pci = stk_arena_dup(accel->arena, pci);
            d.uuid = stk_arena_printf(accel->arena, "amd-%s", pci);
        }
        STK_TRY(stk_accel_add(accel, &d, 0, err));
    }
    return 0;
}

static int amd_open(stk_accel *accel, const char *spec, void **ret_self, stk_err *err)
{
    (void)spec;
    const char *const *names;
    uint32_t n = stk_sysfs_list(accel->arena, NODES, "", &names);
    if (n == 0) {
        return add_unbound(accel, err);
    }
    amd *self = stk_arena_alloc(accel->arena, sizeof *self);
    STK_TRY(stk_err_need(self, "for the list of devices", err));
    int32_t index = 0;
    *ret_self = self;
    for (uint32_t i = 0; i < n; i++) {
        STK_TRY(add_node(accel, self, names[i], &index, err));
    }
    return 0;
}

/* Sums up the uncorrected ("ue: 3") and corrected ("ce: 0") errors of all hardware blocks. */
static void count_errors(const amd_device *d, stk_device_state *ret)
{
    static const char *const blocks[] = {"umc",      "gfx", "sdma", "mmhub", "xgmi_wafl",
                                         "pcie_bif", "hdp", "df",   "mca"};
    STK_ARENA_AUTO scratch = stk_arena_new(1u << 20);
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        char file[64];
        (void)snprintf(file, sizeof file, "ras/%s_err_count", blocks[i]);
        const char *text = stk_vendor_text(scratch, d->dir, file);
        int64_t ue = property(text, "ue:"), ce = property(text, "ce:");
        if (ue >= 0) {
            ret->ecc_uncorrected = MAX(ret->ecc_uncorrected, 0) + ue;
        }
        if (ce >= 0) {
            ret->ecc_corrected = MAX(ret->ecc_corrected, 0) + ce;
        }
        if (i == 0 && ue >= 0) { /* umc: device memory */
            ret->ecc = 1;
        }
    }
    const char *pages = stk_vendor_text(scratch, d->dir, "ras/gpu_vram_bad_pages");
    if (pages != NULL) { /* "0x00000400 : 0x00001000 : R", P instead of R: pending until a reset */
        ret->retired_pages = ret->retired_pending = 0;
        for (const char *at = pages; (at = strstr(at, " : ")) != NULL; at += 3) {
            ret->retired_pages += at[3] == 'R';
            ret->retired_pending += at[3] == 'P';
        }
    }
}

static int32_t first_sensor(const char *dir, const char *const *files, int64_t divisor)
{
    int64_t value = -1;
    for (; *files != NULL && value < 0; files++) {
        value = stk_vendor_sensor(dir, *files, divisor);
    }
    if (value > INT32_MAX) {
        return -1;
    }
    return (int32_t)value;
}

/* Edge temperature, or the junction's if the card has no edge sensor. */
static const char *const temperatures[] = {"temp1_input", "temp2_input", NULL};
static const char *const powers[] = {"power1_average", "power1_input", NULL};

static int amd_state(void *opened, uint32_t slot, stk_device_state *ret, stk_err *err)
{
    (void)err;
    const amd_device *d = &((const amd *)opened)->devices[slot];
    ret->busy_percent = (int32_t)stk_vendor_sensor(d->dir, "gpu_busy_percent", 1);
    ret->memory_busy_percent = (int32_t)stk_vendor_sensor(d->dir, "mem_busy_percent", 1);
    ret->memory_used = stk_vendor_sensor(d->dir, "mem_info_vram_used", 1);
    ret->temperature_c = first_sensor(d->hwmon, temperatures, 1000);
    ret->power_mw = first_sensor(d->hwmon, powers, 1000);
    ret->power_limit_mw = (int32_t)stk_vendor_sensor(d->hwmon, "power1_cap", 1000);
    ret->energy_mj = stk_vendor_sensor(d->hwmon, "energy1_input", 1000);
    ret->sm_mhz = (int32_t)stk_vendor_sensor(d->hwmon, "freq1_input", 1000000);
    ret->memory_mhz = (int32_t)stk_vendor_sensor(d->hwmon, "freq2_input", 1000000);
    ret->sm_max_mhz = (int32_t)d->sm_max_mhz;
    ret->memory_max_mhz = (int32_t)d->memory_max_mhz;
    int64_t pwm = stk_vendor_sensor(d->hwmon, "pwm1", 1);
    ret->fan_percent = pwm < 0 || pwm > 255 ? -1 : (int32_t)(pwm * 100 / 255);
    stk_vendor_pcie(d->dir, ret);
    count_errors(d, ret);
    return 0;
}

static int64_t memory_of(const amd_device *d, const char *pid)
{
    return stk_sysfs_number(PROCESSES "/%s/vram_%lld", pid, (long long)d->gpu_id);
}

static int amd_processes(void *opened, uint32_t slot, stk_device_process *ret, uint32_t n_max)
{
    STK_ARENA_AUTO scratch = stk_arena_new(4u << 20);
    if (!stk_sysfs_exists(PROCESSES)) {
        return -1;
    }
    const amd_device *d = &((const amd *)opened)->devices[slot];
    const char *const *pids;
    uint32_t n = stk_sysfs_list(scratch, PROCESSES, "", &pids), n_found = 0;
    for (uint32_t i = 0; i < n && n_found < n_max; i++) {
        int64_t bytes = memory_of(d, pids[i]);
        if (bytes > 0) { /* every process has a file per GPU */
            ret[n_found++] = (stk_device_process){stk_vendor_number(pids[i], ""), bytes, false};
        }
    }
    return (int)n_found;
}

static int amd_sample(void *opened, uint32_t slot, const pid_t *pids, uint32_t n_pids,
                      stk_device_sample *ret)
{
    const amd_device *d = &((const amd *)opened)->devices[slot];
    ret->busy_percent = (int32_t)stk_vendor_sensor(d->dir, "gpu_busy_percent", 1);
    ret->memory_used = stk_vendor_sensor(d->dir, "mem_info_vram_used", 1);
    ret->power_mw = first_sensor(d->hwmon, powers, 1000);
    ret->energy_mj = stk_vendor_sensor(d->hwmon, "energy1_input", 1000);
    ret->temperature_c = first_sensor(d->hwmon, temperatures, 1000);
    ret->sm_mhz = (int32_t)stk_vendor_sensor(d->hwmon, "freq1_input", 1000000);
    ret->memory_mhz = (int32_t)stk_vendor_sensor(d->hwmon, "freq2_input", 1000000);
    for (uint32_t i = 0; i < n_pids; i++) {
        char pid[16];
        (void)snprintf(pid, sizeof pid, "%d", (int)pids[i]);
        int64_t bytes = memory_of(d, pid);
        if (bytes > 0) {
            ret->process_memory = MAX(ret->process_memory, 0) + bytes;
            ret->context = 1;
        }
    }
    /* In a container the kernel shows the host's pids, so a pid that isn't found proves nothing. */
    if (ret->context < 0 && n_pids > 0 && !stk_in_container() && stk_sysfs_exists(PROCESSES)) {
        ret->context = 0;
    }
    return 0;
}

static stk_closeness amd_link(void *opened, uint32_t slot, uint32_t other, int32_t *ret_n)
{
    (void)ret_n; /* the driver doesn't report the lanes of a link */
    const amd *self = opened;
    return stk_vendor_peer_link(&self->devices[slot].peers, self->devices[other].kfd_node);
}

const stk_provider stk_provider_amd = {
    .name = "amd",
    .in_auto = true,
    .open = amd_open,
    .ops = {.state = amd_state, .processes = amd_processes, .sample = amd_sample, .link = amd_link},
};
