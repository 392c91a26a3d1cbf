/* Shared by the providers that read the kernel's files: model names, access to device nodes,
 * sensors. Private to the accel room. */
#ifndef STK_ACCEL_VENDOR_H
#define STK_ACCEL_VENDOR_H

#include <stdint.h>

#include "host/accel/accel.h"

/* The model with a PCI id (tbl/models.def), or NULL; `subsystem` -1: unknown. */
const char *stk_vendor_pci_model(const char *vendor, int64_t id, int64_t subsystem);
/* The catalogue's model with a short name ("v5e", "Trainium1"; case doesn't matter), and the memory
 * and cores of each such device (-1 unknown). NULL: unknown model. */
const char *stk_vendor_model(const char *vendor, const char *name, int64_t *ret_memory_bytes,
                             int32_t *ret_n_cores);
/* Checks that the device node exists (*ret_there) and that we may use it. Returns NULL, or a
 * sentence that says why not (arena). */
const char *stk_vendor_node_trouble(stk_arena *arena, const char *node, bool *ret_there);
/* The number after the prefix ("neuron12" → 12), or -1 if `name` has another form. */
int32_t stk_vendor_number(const char *name, const char *prefix);
/* The hwmon folder of a device's folder in sysfs ("…/hwmon/hwmon3", arena), or NULL. */
const char *stk_vendor_hwmon(stk_arena *arena, const char *device_dir);
/* The number in a file below `dir` (may be NULL), divided by `divisor`; -1 unknown. */
int64_t stk_vendor_sensor(const char *dir, const char *file, int64_t divisor);
/* PCIe generation and lanes, current and maximal, from a device's folder in sysfs. */
void stk_vendor_pcie(const char *device_dir, stk_device_state *ret);
/* The numbers of the devices that a fabric connects to a device. */
typedef struct stk_vendor_peers {
    int32_t numbers[64];
    uint32_t n;
} stk_vendor_peers;
void stk_vendor_add_peer(stk_vendor_peers *peers, int64_t number); /* ignored when full */
/* STK_LINK_FABRIC if `number` is one of the peers, else STK_LINK_UNKNOWN. */
stk_closeness stk_vendor_peer_link(const stk_vendor_peers *peers, int32_t number);
/* The text of a small file below `dir` (arena), or NULL. */
const char *stk_vendor_text(stk_arena *arena, const char *dir, const char *file);

#endif
