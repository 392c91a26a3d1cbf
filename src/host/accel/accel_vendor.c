#include "host/accel/accel_vendor.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/text.h"
#include "host/accel/accel_sysfs.h"
#include "sys/file.h"

static const struct {
    const char *vendor;
    int64_t id, subsystem;
    const char *model;
} pci_models[] = {
#define PCI(vendor, id, subsystem, model) {vendor, id, subsystem, model},
#include "tbl/models.def"
};

static const struct {
    const char *vendor, *name, *model;
    int64_t memory_mib;
    int32_t n_cores;
} models[] = {
#define MODEL(vendor, name, model, memory_mib, cc, links, shape, cores)                            \
    {vendor, name, model, memory_mib, cores},
#include "tbl/models.def"
};

const char *stk_vendor_pci_model(const char *vendor, int64_t id, int64_t subsystem)
{
    for (size_t i = 0; i < sizeof pci_models / sizeof pci_models[0]; i++) {
        if (strcmp(pci_models[i].vendor, vendor) == 0 && pci_models[i].id == id &&
            (pci_models[i].subsystem == 0 || pci_models[i].subsystem == subsystem)) {
            return pci_models[i].model;
        }
    }
    return NULL;
}

const char *stk_vendor_model(const char *vendor, const char *name, int64_t *ret_memory_bytes,
                             int32_t *ret_n_cores)
{
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        if (strcmp(models[i].vendor, vendor) == 0 && strcasecmp(models[i].name, name) == 0) {
            *ret_memory_bytes = models[i].memory_mib << 20;
            *ret_n_cores = models[i].n_cores;
            return models[i].model;
        }
    }
    return NULL;
}

const char *stk_vendor_node_trouble(stk_arena *arena, const char *node, bool *ret_there)
{
    char path[PATH_MAX];
    *ret_there = false;
    if (node == NULL || !stk_sysfs_path(path, sizeof path, "%s", node) || access(path, F_OK) != 0) {
        return stk_arena_printf(arena,
                                "%s isn't there: its driver isn't loaded, or the node wasn't "
                                "passed into this container",
                                stk_text_or(node, "its device node"));
    }
    *ret_there = true;
    if (access(path, R_OK | W_OK) == 0) {
        return NULL;
    }
    return stk_arena_printf(arena,
                            "this user may not open %s (%s): join the group that owns it (often "
                            "'render': sudo usermod -aG render $USER), then log in again",
                            node, strerror(errno));
}

int32_t stk_vendor_number(const char *name, const char *prefix)
{
    size_t len = strlen(prefix);
    if (strncmp(name, prefix, len) != 0 || name[len] == '\0' ||
        name[len + strspn(name + len, "0123456789")] != '\0') {
        return -1;
    }
    long number = strtol(name + len, NULL, 10);
    if (number > INT32_MAX) {
        return -1;
    }
    return (int32_t)number;
}

const char *stk_vendor_hwmon(stk_arena *arena, const char *device_dir)
{
    const char *const *names;
    const char *dir = stk_arena_printf(arena, "%s/hwmon", device_dir);
    if (stk_sysfs_list(arena, stk_text_or(dir, ""), "hwmon", &names) == 0) {
        return NULL;
    }
    return stk_arena_printf(arena, "%s/%s", dir, names[0]);
}

int64_t stk_vendor_sensor(const char *dir, const char *file, int64_t divisor)
{
    if (dir == NULL) {
        return -1;
    }
    int64_t number = stk_sysfs_number("%s/%s", dir, file);
    return number < 0 ? -1 : number / divisor;
}

/* "16.0 GT/s PCIe" is generation 4. */
static int32_t generation(const char *dir, const char *file)
{
    static const int64_t speeds[] = {2, 5, 8, 16, 32, 64};
    int64_t speed = stk_vendor_sensor(dir, file, 1);
    for (int32_t i = 0; i < 6; i++) {
        if (speeds[i] == speed) {
            return i + 1;
        }
    }
    return -1;
}

static int32_t lanes(const char *dir, const char *file)
{
    int64_t n = stk_vendor_sensor(dir, file, 1);
    return n > 0 && n <= 32 ? (int32_t)n : -1; /* 255: the kernel doesn't know */
}

void stk_vendor_pcie(const char *device_dir, stk_device_state *ret)
{
    ret->pcie_gen = generation(device_dir, "current_link_speed");
    ret->pcie_gen_max = generation(device_dir, "max_link_speed");
    ret->pcie_width = lanes(device_dir, "current_link_width");
    ret->pcie_width_max = lanes(device_dir, "max_link_width");
}

const char *stk_vendor_text(stk_arena *arena, const char *dir, const char *file)
{
    char path[PATH_MAX];
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    if (!stk_sysfs_path(path, sizeof path, "%s/%s", dir, file) ||
        stk_file_read(path, 1 << 20, &text, &len, NULL) < 0) {
        return NULL;
    }
    return stk_arena_dup(arena, text);
}

void stk_vendor_add_peer(stk_vendor_peers *peers, int64_t number)
{
    if (peers->n < sizeof peers->numbers / sizeof *peers->numbers && number <= INT32_MAX) {
        peers->numbers[peers->n++] = (int32_t)number;
    }
}

stk_closeness stk_vendor_peer_link(const stk_vendor_peers *peers, int32_t number)
{
    for (uint32_t i = 0; i < peers->n; i++) {
        if (peers->numbers[i] == number) {
            return STK_LINK_FABRIC;
        }
    }
    return STK_LINK_UNKNOWN;
}
