/* Google TPU chips: Google's PCI devices (tbl/models.def) behind /dev/accelN (v2 to v4) or
 * /dev/vfio/GROUP (since v5). Some containers show no PCI devices; there TPU_ACCELERATOR_TYPE names
 * the model. Only libtpu, inside the process that holds the chip, knows load and memory in use. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "host/accel/accel_priv.h"
#include "host/accel/accel_sysfs.h"
#include "host/accel/accel_vendor.h"

enum { GOOGLE = 0x1ae0 };

/* Fills in what the catalogue knows about a model ("Google TPU v5e"). */
static void describe_model(const char *model, stk_device *ret)
{
    const char *space = strrchr(model, ' ');
    ret->model = model;
    if (space != NULL) {
        model = space + 1;
    }
    (void)stk_vendor_model("google", model, &ret->memory_bytes, &ret->n_cores);
}

/* The device node of a chip; *ret_number is the node's number, or -1. */
static const char *node_of(stk_arena *arena, const char *pci, int32_t i_chip, int32_t *ret_number)
{
    const char *const *names;
    char group[32];
    const char *dir = stk_arena_printf(arena, "/sys/bus/pci/devices/%s/accel", pci);
    *ret_number = -1;
    if (dir != NULL && stk_sysfs_list(arena, dir, "accel", &names) > 0) {
        *ret_number = stk_vendor_number(names[0], "accel");
        return stk_arena_printf(arena, "/dev/%s", names[0]);
    }
    if (stk_sysfs_link(group, sizeof group, "/sys/bus/pci/devices/%s/iommu_group", pci) &&
        stk_sysfs_exists("/dev/vfio/%s", group)) {
        return stk_arena_printf(arena, "/dev/vfio/%s", group);
    }
    return stk_arena_printf(arena, "/dev/accel%d", (int)i_chip);
}

static int add_chip(stk_accel *accel, const char *pci, const char *model, int32_t i_chip,
                    stk_err *err)
{
    stk_device d = {STK_DEVICE_UNKNOWN, .vendor = "google", .noun = "TPU chip"};
    int32_t number;
    bool there = false;
    describe_model(model, &d);
    d.node = node_of(accel->arena, pci, i_chip, &number);
    d.index = number;
    if (number < 0) {
        d.index = i_chip;
    }
    d.pci = stk_arena_dup(accel->arena, pci);
    d.uuid = stk_arena_printf(accel->arena, "tpu-%s", pci);
    d.trouble = stk_vendor_node_trouble(accel->arena, d.node, &there);
    if (!there && stk_in_container()) {
        return 0; /* belongs to the host, not to our container */
    }
    d.usable = d.trouble == NULL;
    stk_pci_place(accel->arena, pci, &d.numa, &d.cpus);
    return stk_accel_add(accel, &d, (uint32_t)i_chip, err);
}

/* "v5litepod-8" → "Google TPU v5e" */
static const char *model_of_type(const char *type)
{
    char name[32];
    int64_t memory;
    int32_t n_cores;
    size_t len = strcspn(type, "-");
    (void)snprintf(name, sizeof name, "%.*s", (int)MIN(len, 31), type);
    return stk_vendor_model("google", name, &memory, &n_cores);
}

static int add_by_nodes(stk_accel *accel, const char *type, stk_err *err)
{
    static const char *const dirs[][2] = {{"/dev", "accel"}, {"/dev/vfio", ""}};
    const char *model = model_of_type(type);
    int32_t n_chips = 0;
    for (size_t k = 0; k < 2 && n_chips == 0; k++) {
        const char *const *names;
        uint32_t n = stk_sysfs_list(accel->arena, dirs[k][0], dirs[k][1], &names);
        for (uint32_t i = 0; i < n; i++) {
            if (stk_vendor_number(names[i], dirs[k][1]) < 0) {
                continue; /* /dev/vfio/vfio, /dev/accel */
            }
            stk_device d = {STK_DEVICE_UNKNOWN, .vendor = "google", .noun = "TPU chip"};
            bool there = false;
            describe_model(stk_text_or(model, "Google TPU"), &d);
            d.index = n_chips++;
            d.node = stk_arena_printf(accel->arena, "%s/%s", dirs[k][0], names[i]);
            d.uuid = stk_arena_printf(accel->arena, "tpu-%s", names[i]);
            d.trouble = stk_vendor_node_trouble(accel->arena, d.node, &there);
            d.usable = d.trouble == NULL;
            STK_TRY(stk_accel_add(accel, &d, (uint32_t)d.index, err));
        }
    }
    return 0;
}

static int tpu_open(stk_accel *accel, const char *spec, void **ret_self, stk_err *err)
{
    (void)spec, (void)ret_self; /* a chip can't be queried */
    const char *type = getenv("TPU_ACCELERATOR_TYPE");
    if (!stk_sysfs_exists("/dev/accel0") && !stk_sysfs_exists("/dev/vfio") && type == NULL) {
        return 0; /* saves a scan of all PCI devices */
    }
    const char *const *names;
    uint32_t n = stk_sysfs_list(accel->arena, "/sys/bus/pci/devices", "", &names);
    uint32_t n_before = accel->n;
    int32_t n_chips = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (stk_sysfs_number("/sys/bus/pci/devices/%s/vendor", names[i]) != GOOGLE) {
            continue;
        }
        const char *model = stk_vendor_pci_model(
            "google", stk_sysfs_number("/sys/bus/pci/devices/%s/device", names[i]),
            stk_sysfs_number("/sys/bus/pci/devices/%s/subsystem_device", names[i]));
        if (model != NULL) {
            STK_TRY(add_chip(accel, names[i], model, n_chips++, err));
        }
    }
    if (accel->n > n_before || type == NULL) {
        return 0;
    }
    return add_by_nodes(accel, type, err);
}

const stk_provider stk_provider_tpu = {
    .name = "tpu",
    .in_auto = true,
    .open = tpu_open,
};
