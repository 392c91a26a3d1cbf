/* The layout of a device's lock file, shared by accel_lease*.c.
 *
 * Level k owns the byte range that starts at k × SPAN. An engine inside a task that holds devices
 * is one level deeper than the task's engine. The first MEMORY bytes of the range stand for the
 * device's memory, one byte per MiB: a share locks as many free bytes as it needs, wherever they
 * are, and a whole-device lease locks all. Two bytes per slot follow: the holder's slot (locked
 * first), and "its label is written" (locked second), so that nobody reads the label of an earlier
 * holder. The labels are the file's contents, LABEL bytes per slot; locks and contents are
 * independent. The lease of a slice also read-locks all memory of its parent, which keeps the
 * parent from being leased if it stops being split.
 *
 * The slots of claims follow those of holders, with the same two bytes each. A run that has waited
 * long for the device claims it. A claim locks no memory; its text begins with the time when its
 * run began to wait, in nanoseconds of the monotonic clock, which all processes of a host share. A
 * process that wants the device yields to claimants that have waited longer; a process without a
 * claim yields to all of them. So all runs get devices in one order, and none waits for one behind
 * it. */
#ifndef STK_ACCEL_LEASE_H
#define STK_ACCEL_LEASE_H

#include "base/buf.h"
#include "host/accel/accel.h"

enum {
    STK_LEASE_LABEL = 512,
    STK_LEASE_SLOTS = 64,
    STK_LEASE_CLAIMS = 32,
    STK_LEASE_LEVEL_MAX = 15,
    STK_LEASE_CLAIM_TEXT = STK_LEASE_SLOTS * (STK_LEASE_LEVEL_MAX + 1) /* of level 0, claim 0 */
};
#define STK_LEASE_SPAN ((off_t)(1 << 24))
#define STK_LEASE_MEMORY (STK_LEASE_SPAN / 2) /* 8 TiB */
#define STK_LEASE_CLAIM (STK_LEASE_MEMORY + 2 * STK_LEASE_SLOTS)

/* The path of a device's lock file; 0, or -1 if it is too long. */
int stk_lease_path(const stk_device *device, char *ret_path, size_t size);
/* Opens the file for locking and creates it if need be; -1 with errno. */
int stk_lease_open_lock(const char *path);
/* Whether `path` still names the file behind the descriptor. */
bool stk_lease_is_current(int fd, const char *path);
/* Locks the slot whose two bytes begin at `lock` (an offset within our level) and writes its text;
 * 0, or -1 with errno (EAGAIN: another process has the slot). */
int stk_lease_write_slot(int fd, off_t lock, int i_text, const char text[STK_LEASE_LABEL]);
/* Reads another holder's text once it is complete, cleaned for a terminal; false: the slot is free.
 */
bool stk_lease_read_slot(int fd, off_t lock, int i_text, char ret_text[STK_LEASE_LABEL + 1]);
/* Completes a label: "run … step … (user ann, pid 123)". */
void stk_lease_sign(const char *label, char *ret_text, size_t size);
/* Opens the device's lock file read-only; -1 if there is none. */
int stk_lease_open_to_look(const stk_device *device);
/* Whether another process's lock blocks this range (offsets within our level). *ret_from and
 * *ret_len (both may be NULL) are that lock, clipped to the range. */
bool stk_lease_conflict(int fd, short type, off_t from, off_t len, off_t *ret_from, off_t *ret_len);
/* How many bytes of the range (MiB of the device) no lock blocks. */
int64_t stk_lease_free_mib(int fd, short type, off_t from, off_t len);
/* The device's memory in MiB, -1 unknown. */
int64_t stk_lease_total_mib(const stk_device *device);
/* Bytes of the device that no lease holds, as stk_lease_free returns them; fd < 0: it has no file
 * yet. */
int64_t stk_lease_unleased(int fd, const stk_device *device);
/* The labels of all holders in this file, joined by "; ". False: there is none. */
bool stk_lease_labels(int fd, stk_buf *text);
/* Whether a claimant of this file's device has waited since before since_ns. ret_text
 * (STK_LEASE_LABEL + 100 bytes, or NULL) names the one that has waited longest: "claimed by run …
 * step … (user …), which has waited for it for 12 s". */
bool stk_lease_claimed_before(int fd, int64_t since_ns, char *ret_text);
/* When we began to wait for what we claim (monotonic ns); INT64_MAX: we claim nothing. */
int64_t stk_lease_own_claim(const stk_accel *accel);
/* "GPU 3", "MIG slice 1". */
const char *stk_lease_name(const stk_device *device, char *buf, size_t size);

/* accel_outside.c: a sentence about programs outside Stoker that compute on device i, or NULL. `fd`
 * is its lock file, -1 if there is none. */
const char *stk_lease_outsiders(stk_accel *accel, uint32_t i, int fd, stk_arena *arena);

#endif
