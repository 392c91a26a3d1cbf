/* Small files of the kernel (/sys, /dev, /proc/driver), below STOKER_SYSROOT where that is set.
 * Every path is a printf format. What can't be read is unknown: false, -1, NULL. */
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
/* The first line without the blanks around it; false when there is no such file. */
bool stk_sysfs_text(char *ret, size_t size, const char *fmt, ...) STK_SYSFS_FORMAT(3, 4);
/* Decimal or 0x…; what follows the number is not looked at ("16.0 GT/s" is 16). */
int64_t stk_sysfs_number(const char *fmt, ...) STK_SYSFS_FORMAT(1, 2);
/* Names in a folder that begin with `prefix` ("" for all), with numbers in them in order (card2
 * before card10); *ret_names lives in the arena. Returns how many. */
uint32_t stk_sysfs_list(stk_arena *arena, const char *dir, const char *prefix,
                        const char *const **ret_names);
/* The last part of where a symbolic link points ("0000:0f:00.0" of /sys/class/drm/card0/device). */
bool stk_sysfs_link(char *ret, size_t size, const char *fmt, ...) STK_SYSFS_FORMAT(3, 4);

/* A PCI address as sysfs writes it ("0000:0f:00.0") from NVML's, ROCm's … ("00000000:0F:00.0"). */
bool stk_pci_name(const char *address, char ret[static 16]);
/* The NUMA node (-1 unknown) and the CPUs near it (NULL unknown; arena) of a PCI device. */
void stk_pci_place(stk_arena *arena, const char *address, int32_t *ret_numa, const char **ret_cpus);
/* How near two PCI devices are, from the tree that sysfs shows: SWITCH, HOST, or UNKNOWN. */
stk_link stk_pci_link(const char *address, const char *other);
/* In a container sysfs shows what the host has, not what we were given: device nodes count there.
 */
bool stk_in_container(void);

#endif
