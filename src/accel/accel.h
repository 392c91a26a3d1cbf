/* accel: what devices exist, which are healthy, which are free. Leases and samples.
 *
 * Every number is known or unknown (-1), never a made-up zero. Vendor libraries are loaded with
 * dlopen and our own prototypes; the provider is picked by configuration: "nvml" (default), "none",
 * or "fake:FILE" (a JSON list of devices).
 */
#ifndef STK_ACCEL_H
#define STK_ACCEL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/err.h"

typedef struct stk_device {
    const char *vendor;   /* "nvidia" */
    const char *uuid;     /* "GPU-…" */
    const char *model;    /* "NVIDIA H100 80GB HBM3" */
    const char *pci;      /* "00000000:0F:00.0", or NULL */
    int32_t index;        /* the vendor's index in PCI order */
    int64_t memory_bytes; /* -1 unknown */
    bool usable;
    const char *trouble; /* why it isn't, a sentence; or NULL */
} stk_device;

typedef struct stk_accel stk_accel;

/* Finds devices. No driver at all is no error: n_devices is 0 and `trouble` NULL. Devices that
 * exist (/dev/nvidia0, PCI) but can't be asked are listed unusable. An inherited
 * CUDA_VISIBLE_DEVICES (indices or UUIDs) restricts the pool. */
int stk_accel_open(const char *provider, stk_accel **ret_accel, stk_err *err);
void stk_accel_close(stk_accel *accel);
uint32_t stk_accel_n_devices(const stk_accel *accel);
const stk_device *stk_accel_device(const stk_accel *accel, uint32_t i);
const char *stk_accel_driver(const stk_accel *accel); /* "580.65.06", or NULL */
const char *stk_accel_describe(const stk_accel *accel,
                               stk_arena *arena); /* one sentence for doctor */

/* --- leases (DESIGN §4.6): OFD locks on one file a device in the per-host directory --- */

typedef struct stk_lease {
    uint32_t n;
    uint32_t devices[64]; /* indices into the accel's list */
    int fds[64]; /* CLOEXEC here; hand them to the task, whose copies keep the lease alive */
} stk_lease;

/* The per-host lock directory: STOKER_LEASE_DIR, else /run/lock/stoker (made 1777), else a private
 * one; `ret_private` says so. */
const char *stk_lease_dir(bool *ret_private);
/* Takes n whole usable devices (all or nothing; never blocks) out of those with wanted[i], or out
 * of all where `wanted` is NULL. STK_E_BUSY: not that many are free now; the text names holders
 * (run, user, pid — `label` is what we write for others to read). */
int stk_lease_take(stk_accel *accel, uint32_t n, const bool *wanted, const char *label,
                   stk_lease *ret_lease, stk_err *err);
/* Closes our descriptors; the lease lives on while a task holds a copy. */
void stk_lease_drop(stk_lease *lease);
/* Environment for a task that was given `lease` (n = 0: sees none): name/value pairs, e.g.
 * CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER. */
uint32_t stk_lease_env(const stk_accel *accel, const stk_lease *lease, stk_arena *arena,
                       const char *(*ret_pairs)[2], uint32_t n_max);
/* Who holds device i: text like "run 2026… (user ann, pid 123)", or NULL when free. */
const char *stk_lease_holder(const stk_accel *accel, uint32_t i, stk_arena *arena);

/* --- samples --- */

typedef struct stk_device_sample {
    int32_t busy_percent;   /* -1 unknown */
    int64_t memory_used;    /* bytes, whole device; -1 unknown */
    int64_t process_memory; /* bytes of the given processes; -1 unknown */
    int32_t power_mw;       /* -1 unknown */
} stk_device_sample;
int stk_accel_sample(stk_accel *accel, uint32_t i_device, const pid_t *pids, uint32_t n_pids,
                     stk_device_sample *ret);

#endif
