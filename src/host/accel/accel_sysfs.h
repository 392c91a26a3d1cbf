/* Reads small files of the kernel (/sys, /dev, /proc/driver), below STOKER_SYSROOT if that is set.
 * Every path is a printf format. A file that can't be read gives false, -1 or NULL: unknown. */
#ifndef STK_ACCEL_SYSFS_H
#define STK_ACCEL_SYSFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "host/accel/accel.h"

#define STK_SYSFS_FORMAT(f, a) __attribute__((format(printf, f, a)))

/* The path with STOKER_SYSROOT before it, into ret (size bytes); false: it is too long. */
bool stk_sysfs_path(char *ret, size_t size, const char *fmt, ...) STK_SYSFS_FORMAT(3, 4);
bool stk_sysfs_exists(const char *fmt, ...) STK_SYSFS_FORMAT(1, 2);
/* The first line, trimmed; false if there is no such file. */
bool stk_sysfs_text(char *ret, size_t size, const char *fmt, ...) STK_SYSFS_FORMAT(3, 4);
/* Decimal or 0x…; text after the number is ignored ("16.0 GT/s" is 16). */
int64_t stk_sysfs_number(const char *fmt, ...) STK_SYSFS_FORMAT(1, 2);
/* The names in a folder that begin with `prefix` ("" for all), in natural order (card2 before
 * card10); *ret_names lives in the arena. Returns how many. */
uint32_t stk_sysfs_list(stk_arena *arena, const char *dir, const char *prefix,
                        const char *const **ret_names);
/* The last component of a symbolic link's target ("0000:0f:00.0" of
 * /sys/class/drm/card0/device). */
bool stk_sysfs_link(char *ret, size_t size, const char *fmt, ...) STK_SYSFS_FORMAT(3, 4);

/* Converts a vendor's PCI address ("00000000:0F:00.0") to the way sysfs writes it
 * ("0000:0f:00.0"). */
bool stk_pci_name(const char *address, char ret[static 16]);
/* The NUMA node (-1 unknown) and the CPUs near it (NULL unknown; arena) of a PCI device. */
void stk_pci_place(stk_arena *arena, const char *address, int32_t *ret_numa, const char **ret_cpus);
/* How close two PCI devices are in sysfs's device tree: SWITCH, HOST or UNKNOWN. */
stk_closeness stk_pci_link(const char *address, const char *other);
/* Whether we run in a container. There sysfs shows the host's devices; only device nodes show which
 * are ours.
 */
bool stk_in_container(void);

#endif
