/* Intel GPUs from the files of the i915 and xe drivers. GPUs inside a CPU are counted, because
 * Level Zero numbers them too, but not listed. The drivers have no files for load and memory in
 * use, so these are unknown. So are the lanes of the slot: the device's PCIe link is internal to
 * the card. */
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "host/accel/accel_priv.h"
#include "host/accel/accel_sysfs.h"
#include "host/accel/accel_vendor.h"

typedef struct intel_device {
    const char *card, *dir, *hwmon; /* /sys/class/drm/cardN, …/device, its sensors or NULL */
} intel_device;

typedef struct intel {
    intel_device devices[STK_LIMIT_DEVICES];
    uint32_t n;
} intel;

typedef struct found_card {
    char pci[16];
    const char *name;
} found_card;

static int by_address(const void *a, const void *b)
{
    return strcmp(((const found_card *)a)->pci, ((const found_card *)b)->pci);
}

/* Intel's cards in the order of their PCI addresses, as ZE_ENABLE_PCI_ID_DEVICE_ORDER counts. */
static uint32_t list_cards(stk_arena *arena, found_card *ret, uint32_t n_max)
{
    const char *const *names;
    uint32_t n = stk_sysfs_list(arena, "/sys/class/drm", "card", &names), n_found = 0;
    for (uint32_t i = 0; i < n && n_found < n_max; i++) {
        char pci[64];
        if (stk_vendor_number(names[i], "card") >= 0 && /* card0-DP-1 is a connector */
            stk_sysfs_number("/sys/class/drm/%s/device/vendor", names[i]) == 0x8086 &&
            stk_sysfs_link(pci, sizeof pci, "/sys/class/drm/%s/device", names[i]) &&
            stk_pci_name(pci, ret[n_found].pci)) {
            ret[n_found++].name = names[i];
        }
    }
    qsort(ret, n_found, sizeof *ret, by_address);
    return n_found;
}

static bool is_in_cpu(const char *pci)
{
    return strncmp(pci, "0000:00:", 8) == 0; /* on the root bus */
}

static int64_t memory_total(const intel_device *d)
{
    int64_t bytes = stk_vendor_sensor(d->card, "lmem_total_bytes", 1);
    if (bytes >= 0) {
        return bytes;
    }
    bytes = stk_vendor_sensor(d->dir, "tile0/physical_vram_size_bytes", 1);
    int64_t second = stk_vendor_sensor(d->dir, "tile1/physical_vram_size_bytes", 1);
    if (bytes > 0) {
        bytes += MAX(second, 0);
    }
    return bytes;
}

static int add_card(stk_accel *accel, intel *self, const found_card *card, int32_t index,
                    stk_err *err)
{
    stk_arena *arena = accel->arena;
    intel_device *own = &self->devices[self->n];
    const char *const *nodes;
    char driver[32];
    own->card = stk_arena_printf(arena, "/sys/class/drm/%s", card->name);
    own->dir = stk_arena_printf(arena, "/sys/class/drm/%s/device", card->name);
    const char *drm = stk_arena_printf(arena, "%s/drm", own->dir);
    STK_TRY(stk_err_need(own->card, "for the list of devices", err));
    STK_TRY(stk_err_need(own->dir, "for the list of devices", err));
    STK_TRY(stk_err_need(drm, "for the list of devices", err));
    stk_device d = {STK_DEVICE_UNKNOWN, .vendor = "intel", .noun = "GPU"};
    d.index = index;
    d.pci = stk_arena_dup(arena, card->pci);
    d.uuid = stk_arena_printf(arena, "intel-%s", card->pci);
    if (stk_sysfs_list(arena, drm, "renderD", &nodes) > 0) {
        d.node = stk_arena_printf(arena, "/dev/dri/%s", nodes[0]);
    }
    bool there = false;
    d.trouble = stk_vendor_node_trouble(arena, d.node, &there);
    if (!there && stk_in_container()) {
        return 0;
    }
    d.usable = d.trouble == NULL;
    int64_t id = stk_vendor_sensor(own->dir, "device", 1);
    d.model = stk_vendor_pci_model("intel", id, -1);
    if (d.model == NULL) {
        d.model = stk_arena_printf(arena, "Intel GPU 0x%04llx", (long long)id);
    }
    if (stk_sysfs_link(driver, sizeof driver, "%s/driver", own->dir)) {
        d.driver = stk_arena_dup(arena, driver);
    }
    stk_pci_place(arena, d.pci, &d.numa, &d.cpus);
    d.memory_bytes = memory_total(own);
    own->hwmon = stk_vendor_hwmon(arena, own->dir);
    return stk_accel_add(accel, &d, self->n++, err);
}

static int intel_open(stk_accel *accel, const char *spec, void **ret_self, stk_err *err)
{
    (void)spec;
    found_card *cards = stk_arena_array(accel->arena, STK_LIMIT_DEVICES, sizeof *cards);
    intel *self = stk_arena_alloc(accel->arena, sizeof *self);
    STK_TRY(stk_err_need(cards, "for the list of devices", err));
    STK_TRY(stk_err_need(self, "for the list of devices", err));
    uint32_t n = list_cards(accel->arena, cards, STK_LIMIT_DEVICES);
    *ret_self = self;
    for (uint32_t i = 0; i < n; i++) {
        if (!is_in_cpu(cards[i].pci)) {
            STK_TRY(add_card(accel, self, &cards[i], (int32_t)i, err));
        }
    }
    return 0;
}

/* The clock in the first of these files that exists, below the card's or the device's folder. */
static int32_t clock_of(const intel_device *d, const char *i915, const char *older, const char *xe)
{
    int64_t mhz = stk_vendor_sensor(d->card, i915, 1);
    if (mhz < 0) {
        mhz = stk_vendor_sensor(d->card, older, 1);
    }
    if (mhz < 0) {
        mhz = stk_vendor_sensor(d->dir, xe, 1);
    }
    if (mhz > INT32_MAX) {
        return -1;
    }
    return (int32_t)mhz;
}

static int64_t throttle_of(const intel_device *d)
{
    static const struct {
        const char *i915, *xe;
        int64_t bit;
    } reasons[] = {
        {"gt/gt0/throttle_reason_pl1", "tile0/gt0/freq0/throttle/reason_pl1",
         STK_THROTTLE_POWER_CAP},
        {"gt/gt0/throttle_reason_pl2", "tile0/gt0/freq0/throttle/reason_pl2",
         STK_THROTTLE_POWER_CAP},
        {"gt/gt0/throttle_reason_pl4", "tile0/gt0/freq0/throttle/reason_pl4",
         STK_THROTTLE_POWER_CAP},
        {"gt/gt0/throttle_reason_thermal", "tile0/gt0/freq0/throttle/reason_thermal",
         STK_THROTTLE_HW_THERMAL},
        {"gt/gt0/throttle_reason_prochot", "tile0/gt0/freq0/throttle/reason_prochot",
         STK_THROTTLE_HW_SLOWDOWN},
    };
    int64_t bits = -1;
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        int64_t on = stk_vendor_sensor(d->card, reasons[i].i915, 1);
        if (on < 0) {
            on = stk_vendor_sensor(d->dir, reasons[i].xe, 1);
        }
        if (on >= 0) {
            bits = MAX(bits, 0);
        }
        if (on > 0) {
            bits |= reasons[i].bit;
        }
    }
    return bits;
}

static int32_t temperature_of(const intel_device *d)
{
    int64_t degrees = stk_vendor_sensor(d->hwmon, "temp1_input", 1000);
    if (degrees < 0) {
        degrees = stk_vendor_sensor(d->hwmon, "temp2_input", 1000); /* xe */
    }
    return (int32_t)degrees;
}

static int64_t memory_used(const intel_device *d)
{
    int64_t left = stk_vendor_sensor(d->card, "lmem_avail_bytes", 1);
    int64_t total = stk_vendor_sensor(d->card, "lmem_total_bytes", 1);
    return left < 0 || total < left ? -1 : total - left;
}

static int intel_state(void *opened, uint32_t slot, stk_device_state *ret, stk_err *err)
{
    (void)err;
    const intel_device *d = &((const intel *)opened)->devices[slot];
    ret->memory_used = memory_used(d);
    ret->temperature_c = temperature_of(d);
    ret->power_limit_mw = (int32_t)stk_vendor_sensor(d->hwmon, "power1_max", 1000);
    ret->energy_mj = stk_vendor_sensor(d->hwmon, "energy1_input", 1000);
    ret->sm_mhz =
        clock_of(d, "gt/gt0/rps_act_freq_mhz", "gt_act_freq_mhz", "tile0/gt0/freq0/act_freq");
    ret->sm_max_mhz =
        clock_of(d, "gt/gt0/rps_RP0_freq_mhz", "gt_RP0_freq_mhz", "tile0/gt0/freq0/rp0_freq");
    ret->throttle = throttle_of(d);
    return 0;
}

static int intel_sample(void *opened, uint32_t slot, const pid_t *pids, uint32_t n_pids,
                        stk_device_sample *ret)
{
    (void)pids, (void)n_pids;
    const intel_device *d = &((const intel *)opened)->devices[slot];
    ret->memory_used = memory_used(d);
    ret->energy_mj = stk_vendor_sensor(d->hwmon, "energy1_input", 1000);
    ret->temperature_c = temperature_of(d);
    ret->sm_mhz =
        clock_of(d, "gt/gt0/rps_act_freq_mhz", "gt_act_freq_mhz", "tile0/gt0/freq0/act_freq");
    ret->throttle = throttle_of(d);
    return 0;
}

const stk_provider stk_provider_intel = {
    .name = "intel",
    .in_auto = true,
    .open = intel_open,
    .ops = {.state = intel_state, .sample = intel_sample},
};
