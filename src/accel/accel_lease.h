/* The lock file of a device, as the files of leases share it.
 *
 * Level k (an engine inside a task that holds devices is one deeper than its own) has the bytes
 * k × SPAN … Of these the first MEMORY stand for the device's memory, one byte a MiB: a share locks
 * as many free ones as it needs, wherever they are, and a whole device all. Two bytes a slot
 * follow: the holder's slot (locked first), and "its label is written" (locked second), so that
 * nobody reads the words of an earlier holder. The labels are the file's text, LABEL bytes a slot;
 * locks and text don't touch each other. Who leases a slice also holds a read lock on all the
 * memory of its parent, which keeps the parent from being leased should it be unsplit meanwhile. */
#ifndef STK_ACCEL_LEASE_H
#define STK_ACCEL_LEASE_H

#include "accel/accel.h"
#include "base/buf.h"

enum { STK_LEASE_LABEL = 512, STK_LEASE_SLOTS = 64, STK_LEASE_LEVEL_MAX = 15 };
#define STK_LEASE_SPAN ((off_t)(1 << 24))
#define STK_LEASE_MEMORY (STK_LEASE_SPAN / 2) /* 8 TiB */

/* 0, or -1: too long. */
int stk_lease_path(const stk_device *device, char *ret_path, size_t size);
/* For looking only; -1 where there is none. */
int stk_lease_open_to_look(const stk_device *device);
/* Does a lock keep us from this range, at our level (offsets within it)? Which one, clipped to the
 * range (both may be NULL). */
bool stk_lease_conflict(int fd, short type, off_t from, off_t len, off_t *ret_from, off_t *ret_len);
/* How many bytes (MiB of the device) of the range no lock keeps us from. */
int64_t stk_lease_free_mib(int fd, short type, off_t from, off_t len);
/* MiB of a device, -1 unknown. */
int64_t stk_lease_total_mib(const stk_device *device);
/* Bytes that leases leave of a device, as stk_lease_free says them; fd < 0: it has no file yet. */
int64_t stk_lease_unleased(int fd, const stk_device *device);
/* The labels of those who hold something in this file, joined by "; ". False: nobody does. */
bool stk_lease_labels(int fd, stk_buf *text);
/* "GPU 3", "MIG slice 1". */
const char *stk_lease_name(const stk_device *device, char *buf, size_t size);

/* accel_outside.c: a sentence about programs outside Stoker that compute on device i, or NULL. `fd`
 * is its lock file, -1: there is none. */
const char *stk_lease_outsiders(stk_accel *accel, uint32_t i, int fd, stk_arena *arena);

#endif
