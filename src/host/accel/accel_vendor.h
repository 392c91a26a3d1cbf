/* What the providers that read the kernel's files share: names of models, what a device node lets
 * us do, sensors. Private to the accel room. */
#ifndef STK_ACCEL_VENDOR_H
#define STK_ACCEL_VENDOR_H

#include <stdint.h>

#include "host/accel/accel.h"

/* The model of a PCI id (tbl/models.def), or NULL; `subsystem` -1: unknown. */
const char *stk_vendor_pci_model(const char *vendor, int64_t id, int64_t subsystem);
/* A model of the catalogue by its short name ("v5e", "Trainium1"), in any case. All of a kind have
 * the same memory and number of cores (-1 unknown). NULL: unknown. */
const char *stk_vendor_model(const char *vendor, const char *name, int64_t *ret_memory_bytes,
                             int32_t *ret_n_cores);
/* Is the node there (*ret_there), and may we use it? If not, a sentence (arena). */
const char *stk_vendor_node_trouble(stk_arena *arena, const char *node, bool *ret_there);
/* Is `name` the prefix and a number ("neuron12")? That number, else -1. */
int32_t stk_vendor_number(const char *name, const char *prefix);
/* The hwmon folder of a device's folder in sysfs ("…/hwmon/hwmon3", arena), or NULL. */
const char *stk_vendor_hwmon(stk_arena *arena, const char *device_dir);
/* A number of a file below `dir`, divided; -1 unknown. NULL dir is fine. */
int64_t stk_vendor_sensor(const char *dir, const char *file, int64_t divisor);
/* PCIe generation and lanes, now and at most, of a device's folder in sysfs. */
void stk_vendor_pcie(const char *device_dir, stk_device_state *ret);
/* Devices of a kind that a device is joined to by a fabric, by their numbers. */
typedef struct stk_vendor_peers {
    int32_t numbers[64];
    uint32_t n;
} stk_vendor_peers;
void stk_vendor_add_peer(stk_vendor_peers *peers, int64_t number); /* as many as there is room */
/* STK_LINK_FABRIC to one of them, else STK_LINK_UNKNOWN. */
stk_link stk_vendor_peer_link(const stk_vendor_peers *peers, int32_t number);
/* The whole small file below `dir` (arena), or NULL. */
const char *stk_vendor_text(stk_arena *arena, const char *dir, const char *file);

#endif
