/* accel: what devices exist, which are healthy, which are free. Leases and samples.
 *
 * Every number is known or unknown (-1), never a made-up zero. Vendor libraries are loaded with
 * dlopen and our own prototypes. Providers are picked by configuration, a comma list:
 *
 *     auto       nvml,amd,intel,neuron,tpu (default): each finds nothing on a host without its kind
 *     none       no device at all
 *     fake:FILE  devices and their samples from a JSON file (accel_fake.c)
 *     sim:SPEC   a machine that isn't here: "8xH100", "2xA100,mig=1g.10gb*7", "4xMI300X",
 *                "16xTrainium", "v5e-8", several joined by '+' (accel_sim.c, tbl/models.def)
 *
 * STOKER_ACCEL names them where the caller doesn't. For tests: STOKER_NVML=PATH is the NVML
 * library, STOKER_SYSROOT=DIR stands before every path under /sys, /dev and /proc/driver that a
 * provider reads. An inherited mask (CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES,
 * NEURON_RT_VISIBLE_CORES, TPU_VISIBLE_CHIPS, ZE_AFFINITY_MASK) restricts the pool of its vendor.
 */
#ifndef STK_ACCEL_H
#define STK_ACCEL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/devset.h"
#include "base/err.h"

/* What a device is; it doesn't change while a run lasts. Texts are NULL where unknown. */
typedef struct stk_device {
    const char *vendor; /* "nvidia", "amd", "intel", "aws", "google": tbl/vendors.def */
    const char *noun;   /* what people call one: "GPU", "MIG slice", "TPU chip", "Neuron device" */
    const char *uuid; /* "GPU-…", "MIG-…"; other vendors: what names it for good on this host */
    const char *model;   /* "NVIDIA H100 80GB HBM3" */
    const char *pci;     /* "00000000:0F:00.0" */
    const char *node;    /* "/dev/nvidia0", "/dev/dri/renderD128", "/dev/neuron0" */
    const char *driver;  /* "580.65.06" */
    const char *cpus;    /* CPUs near it as the kernel lists them, "0-15,32-47" */
    const char *profile; /* of a slice: "1g.10gb" */
    int32_t index;       /* the vendor's index in PCI order */
    int32_t parent;      /* of a slice: the device (in this list) that it is cut from; else -1 */
    int32_t n_slices;    /* > 0: split; its slices are given out, it is not (usable is false) */
    int32_t n_cores;     /* what a vendor's mask counts inside one device (NeuronCores), or -1 */
    int32_t numa;        /* NUMA node, or -1 */
    int32_t cc_major, cc_minor; /* CUDA compute capability, or -1 */
    int64_t memory_bytes;       /* -1 unknown */
    bool usable;
    const char *trouble; /* why it can't be used, a sentence; NULL also for a split device */
} stk_device;

#define STK_DEVICE_UNKNOWN                                                                         \
    .index = -1, .parent = -1, .n_cores = -1, .numa = -1, .cc_major = -1, .cc_minor = -1,          \
    .memory_bytes = -1

typedef struct stk_accel stk_accel;

/* Finds devices. No driver at all is no error: n_devices is 0 and `trouble` NULL. Devices that
 * exist (/dev/nvidia0, PCI) but can't be asked are listed unusable, and so are quarantined ones.
 * provider NULL: STOKER_ACCEL, else auto. */
int stk_accel_open(const char *provider, stk_accel **ret_accel, stk_err *err);
void stk_accel_close(stk_accel *accel);
static inline void stk_accel_close_auto(stk_accel **owned)
{
    stk_accel_close(*owned);
}
#define STK_ACCEL_AUTO __attribute__((cleanup(stk_accel_close_auto))) stk_accel *
uint32_t stk_accel_n_devices(const stk_accel *accel);
/* "nvidia" → "NVIDIA"; itself where it is unknown. */
const char *stk_accel_vendor_name(const char *vendor);
const stk_device *stk_accel_device(const stk_accel *accel, uint32_t i);
bool stk_accel_is_simulated(const stk_accel *accel); /* sim: nothing can run on these */
/* Of the vendor's software: NVIDIA's driver "580.65.06" (NULL: none) and the newest CUDA that it
 * runs, as 1000 × major + 10 × minor (13000), -1 unknown. */
const char *stk_accel_driver(const stk_accel *accel);
int32_t stk_accel_cuda_version(const stk_accel *accel);
/* One sentence for doctor and notes. */
const char *stk_accel_describe(const stk_accel *accel, stk_arena *arena);
/* Why there are fewer than one might think: what an inherited mask left out, a driver that doesn't
 * answer. NULL: nothing of the kind. Borrowed. */
const char *stk_accel_get_remark(const stk_accel *accel);

/* How near two devices are; more is nearer. */
typedef enum {
    STK_LINK_UNKNOWN,
    STK_LINK_SYSTEM, /* across NUMA nodes */
    STK_LINK_NODE,   /* one NUMA node */
    STK_LINK_HOST,   /* one PCIe host bridge */
    STK_LINK_SWITCH, /* one PCIe switch or board */
    STK_LINK_FABRIC, /* NVLink, XGMI, ICI, NeuronLink */
    STK_LINK_SAME    /* one device, or two slices of one */
} stk_link;
/* ret_n: how many NVLinks (or their like) for FABRIC, else -1. May be NULL. */
stk_link stk_accel_link(stk_accel *accel, uint32_t i, uint32_t j, int32_t *ret_n);

/* --- state: asked anew at each call; every field -1 where unknown --- */

/* Bits of `throttle`, as NVML's clocks event reasons. */
enum {
    STK_THROTTLE_IDLE = 1 << 0,
    STK_THROTTLE_APP_CLOCKS = 1 << 1,
    STK_THROTTLE_POWER_CAP = 1 << 2,
    STK_THROTTLE_HW_SLOWDOWN = 1 << 3,
    STK_THROTTLE_SYNC_BOOST = 1 << 4,
    STK_THROTTLE_SW_THERMAL = 1 << 5,
    STK_THROTTLE_HW_THERMAL = 1 << 6,
    STK_THROTTLE_HW_POWER_BRAKE = 1 << 7
};

typedef struct stk_device_state {
    int32_t busy_percent, memory_busy_percent;
    int64_t memory_used; /* bytes, whole device */
    int32_t temperature_c, fan_percent;
    int32_t power_mw, power_limit_mw;
    int64_t energy_mj; /* since the driver was loaded */
    int32_t sm_mhz, sm_max_mhz, memory_mhz, memory_max_mhz;
    int64_t throttle; /* bits, -1 unknown */
    int32_t pcie_gen, pcie_gen_max, pcie_width, pcie_width_max;
    int64_t pcie_tx_bytes_s, pcie_rx_bytes_s;
    int32_t n_nvlinks_up;
    int64_t nvlink_tx_bytes, nvlink_rx_bytes; /* counters */
    int32_t ecc;                              /* 0 off, 1 on */
    int64_t ecc_corrected, ecc_uncorrected;   /* since boot */
    int64_t ecc_uncorrected_total;            /* in its life */
    int32_t remap_pending, remap_failed;      /* rows: 0 or 1 */
    int32_t remapped_rows;
    int32_t retired_pages, retired_pending;
    int32_t persistence;  /* 0 off, 1 on */
    int32_t compute_mode; /* 0 default, 1 exclusive thread, 2 prohibited, 3 exclusive process */
} stk_device_state;
/* 0, STK_E_NOT_FOUND (no such device), STK_E_ENV (the device is lost, the driver is gone: the
 * message says which). ret_state is all -1 on an error. */
int stk_accel_state(stk_accel *accel, uint32_t i, stk_device_state *ret_state, stk_err *err);

typedef struct stk_device_process {
    pid_t pid;            /* in a container perhaps the host's number */
    int64_t memory_bytes; /* -1 unknown */
    bool graphics;        /* no compute context: a display, a browser */
} stk_device_process;
/* Who has a context on it. Returns how many were written, or -1: the vendor doesn't tell. */
int stk_accel_processes(stk_accel *accel, uint32_t i, stk_device_process *ret, uint32_t n_max);

/* What is asked for at each tick of a running task: few and cheap questions. -1 unknown. */
typedef struct stk_device_sample {
    int32_t busy_percent;
    int64_t memory_used;    /* bytes, whole device */
    int64_t process_memory; /* bytes of the given processes */
    int32_t context;        /* 1: one of them has a context on it, 0: none has */
    int32_t n_others;       /* further processes that have one */
    int32_t power_mw;
    int64_t energy_mj;
    int32_t temperature_c;
    int32_t sm_mhz, memory_mhz;
    int64_t throttle;
    int64_t pcie_tx_bytes_s, pcie_rx_bytes_s;
    int64_t nvlink_tx_bytes, nvlink_rx_bytes;
} stk_device_sample;
#define STK_DEVICE_SAMPLE_UNKNOWN                                                                  \
    ((stk_device_sample){-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1})
/* On an error (as stk_accel_state) *ret is unknown throughout. */
int stk_accel_sample(stk_accel *accel, uint32_t i_device, const pid_t *pids, uint32_t n_pids,
                     stk_device_sample *ret);

/* --- trouble: Xids and their like (accel_trouble.c) --- */

typedef struct stk_device_event {
    uint32_t i_device; /* UINT32_MAX: one that isn't in the list */
    int64_t mono_ms;   /* monotonic clock */
    int32_t xid;       /* 79 …; 0: not an Xid */
    pid_t pid;         /* the process that it names, or 0 */
    char text[160];    /* "Xid 79: GPU has fallen off the bus" */
} stk_device_event;
/* What an Xid asks for: tbl/xid.def, from NVIDIA's catalogue, under the user's own table. */
typedef enum {
    STK_XID_IGNORE,     /* noted */
    STK_XID_RESTART,    /* the task's fault or bad luck: one more attempt, elsewhere if possible */
    STK_XID_QUARANTINE, /* the device needs a reset: out of the pool, the attempt is free */
    STK_XID_NODE        /* the whole host needs care */
} stk_xid_action;
/* The next event (the kernel log's since opening, where we may read it; NVML's since the first
 * call); never blocks. The same Xid of one device and process is told once until it was silent for
 * three minutes. False: none. */
bool stk_accel_next_event(stk_accel *accel, stk_device_event *ret_event);
/* Every Xid of this boot that the kernel log still has, oldest first; nothing where we may not read
 * it. `text` is empty. */
void stk_accel_history(stk_accel *accel, void (*tell)(void *arg, const stk_device_event *event),
                       void *arg);
/* `overrides`: "109=restart,94=ignore" (STOKER_XID_POLICY), or NULL. Unknown Xids are noted. */
stk_xid_action stk_xid_policy(int32_t xid, const char *overrides);
const char *stk_xid_text(int32_t xid); /* NVIDIA's words, or NULL */

/* Out of our own pool, with its slices, as long as this list is open: `why` is its trouble now. */
void stk_accel_exclude(stk_accel *accel, uint32_t i, const char *why);
/* A device that is out of the pool on this host until somebody clears it: a file beside its lock.
 * `why` is one sentence. Clearing one that is not there: STK_E_NOT_FOUND. */
int stk_accel_quarantine(stk_accel *accel, uint32_t i, const char *why, stk_err *err);
int stk_accel_clear_quarantine(stk_accel *accel, uint32_t i, stk_err *err);

/* --- leases (DESIGN §4.6): OFD locks on one file a device in the per-host directory --- */

enum { STK_LEASE_DEVICES = 64 };

typedef struct stk_lease {
    uint32_t n;
    uint32_t devices[STK_LEASE_DEVICES]; /* indices into the accel's list */
    uint32_t n_fds;                 /* one a device, one more for a slice (its parent's lock) */
    int fds[2 * STK_LEASE_DEVICES]; /* CLOEXEC; hand all to the task, whose copies keep it alive */
    int64_t share_bytes;            /* of each; 0: whole devices */
} stk_lease;

/* The per-host lock directory: STOKER_LEASE_DIR, else /run/lock/stoker (made 1777), else a private
 * one; `ret_private` says so. */
const char *stk_lease_dir(bool *ret_private);
/* Takes exactly these devices, whole (share_bytes 0) or that much memory of each (rounded up to
 * MiB), all or nothing; never blocks. STK_E_BUSY: one is held, or claimed by somebody who comes
 * before us; *ret_busy (may be NULL) says which are, and the text names holders (run, user, pid;
 * `label` is what we write for others to read). STK_E_RESOURCES: never, as it is: an unusable one,
 * more than its memory. A slice and the device that it was cut from are never leased at once. */
int stk_lease_take(stk_accel *accel, const stk_devset *devices, int64_t share_bytes,
                   const char *label, stk_lease *ret_lease, stk_devset *ret_busy, stk_err *err);
/* Closes our descriptors; the lease lives on while a task holds a copy. */
void stk_lease_drop(stk_lease *lease);
/* What is free on each device now, for the scheduler: bytes that no lease holds; memory_bytes (-1
 * where that is unknown): all of it; 0: none, or claimed by who comes before us, or unusable
 * (quarantine is read anew), or programs outside Stoker use it. Of the last two `ret_outside` says
 * why, a sentence like "pid 4242 (python, user ann) uses it outside Stoker" (arena), else NULL; may
 * be NULL. n_devices of each. */
int stk_lease_free(stk_accel *accel, stk_arena *arena, int64_t *ret_free, const char **ret_outside,
                   stk_err *err);
/* Environment for a task that was given `lease` (n = 0: sees none of any vendor): name/value pairs,
 * tbl/vendors.def. */
uint32_t stk_lease_env(const stk_accel *accel, const stk_lease *lease, stk_arena *arena,
                       const char *(*ret_pairs)[2], uint32_t n_max);
/* Who holds device i: text like "run 2026… step train (user ann, pid 123)", several joined by "; ";
 * or NULL when free. */
const char *stk_lease_holder(const stk_accel *accel, uint32_t i, stk_arena *arena);

/* The process has the lock file of device i open: it is part of a lease there, ours or another's.
 * False also where we may not know. */
bool stk_lease_is_part(const stk_accel *accel, uint32_t i, pid_t pid);

/* Claims. Who has waited waited_ms for devices lets nobody else have them any more: from here on
 * stk_lease_take and stk_lease_free of others treat them as taken, but for those who claim them too
 * and have waited longer. What is held there is held until it ends. One claim an accel, a new one
 * replaces it; it ends with stk_lease_unclaim or the process. STK_E_BUSY: it couldn't be made (too
 * many claim a device), and we claim nothing. */
int stk_lease_claim(stk_accel *accel, const stk_devset *devices, int64_t waited_ms,
                    const char *label, stk_err *err);
void stk_lease_unclaim(stk_accel *accel);
/* Who claims device i and comes before us: "claimed by run … step … (user ann, pid 123), which has
 * waited for it for 12 s", or NULL. */
const char *stk_lease_claimant(const stk_accel *accel, uint32_t i, stk_arena *arena);
/* Holders and claimant, as far as there are any: everybody who is in our way, or NULL. */
const char *stk_lease_who(const stk_accel *accel, uint32_t i, stk_arena *arena);

#endif
