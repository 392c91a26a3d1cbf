/* The lock file of a device, as the files of leases share it.
 *
 * Level k (an engine inside a task that holds devices is one deeper than its own) has the bytes
 * k × SPAN … Of these the first MEMORY stand for the device's memory, one byte a MiB: a share locks
 * as many free ones as it needs, wherever they are, and a whole device all. Two bytes a slot
 * follow: the holder's slot (locked first), and "its label is written" (locked second), so that
 * nobody reads the words of an earlier holder. The labels are the file's text, LABEL bytes a slot;
 * locks and text don't touch each other. Who leases a slice also holds a read lock on all the
 * memory of its parent, which keeps the parent from being leased if it stops being split.
 *
 * Behind the slots of holders lie those of claims, two bytes each in the same way: of those who
 * have waited long for the device. A claim holds nothing; its text begins with the nanosecond of
 * the monotonic clock, which all processes of a host share, since when its run waits. Who wants the
 * device lets those pass who claim it and have waited longer; one who claims nothing lets all pass.
 * So runs come to devices in one order, and nobody waits for somebody behind him. */
#ifndef STK_ACCEL_LEASE_H
#define STK_ACCEL_LEASE_H

#include "base/buf.h"
#include "host/accel/accel.h"

enum {
    STK_LEASE_LABEL = 512,
    STK_LEASE_SLOTS = 64,
    STK_LEASE_CLAIMS = 32,
    STK_LEASE_LEVEL_MAX = 15,
    STK_LEASE_CLAIM_TEXT = STK_LEASE_SLOTS * (STK_LEASE_LEVEL_MAX + 1) /* of level 0, slot 0 */
};
#define STK_LEASE_SPAN ((off_t)(1 << 24))
#define STK_LEASE_MEMORY (STK_LEASE_SPAN / 2) /* 8 TiB */
#define STK_LEASE_CLAIM (STK_LEASE_MEMORY + 2 * STK_LEASE_SLOTS)

/* 0, or -1: too long. */
int stk_lease_path(const stk_device *device, char *ret_path, size_t size);
/* For locking, made where there is none; -1 with errno. */
int stk_lease_open_lock(const char *path);
/* The file behind the descriptor is still the one of that name. */
bool stk_lease_is_current(int fd, const char *path);
/* Takes the slot whose locks begin at `lock` (within our level) and writes its text; 0, or -1 with
 * errno: EAGAIN, somebody has it. */
int stk_lease_write_slot(int fd, off_t lock, int i_text, const char text[STK_LEASE_LABEL]);
/* Somebody else's words, once they are all there, fit for a terminal; false: nobody has the slot.
 */
bool stk_lease_read_slot(int fd, off_t lock, int i_text, char ret_text[STK_LEASE_LABEL + 1]);
/* "run … step … (user ann, pid 123)". */
void stk_lease_sign(const char *label, char *ret_text, size_t size);
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
/* Somebody who has waited since before since_ns claims the device of this file: the one who has
 * waited longest, as "claimed by run … step … (user …), which has waited for it for 12 s"
 * (STK_LEASE_LABEL + 100 bytes, or NULL). */
bool stk_lease_claimed_before(int fd, int64_t since_ns, char *ret_text);
/* Since when we wait for what we claim; INT64_MAX: we claim nothing. */
int64_t stk_lease_own_claim(const stk_accel *accel);
/* "GPU 3", "MIG slice 1". */
const char *stk_lease_name(const stk_device *device, char *buf, size_t size);

/* accel_outside.c: a sentence about programs outside Stoker that compute on device i, or NULL. `fd`
 * is its lock file, -1: there is none. */
const char *stk_lease_outsiders(stk_accel *accel, uint32_t i, int fd, stk_arena *arena);

#endif
