/* accel: lists the devices of this host, reads their health and usage, and leases them to tasks.
 *
 * A number that nobody knows is -1, never a made-up zero. Vendor libraries are loaded with dlopen
 * and our own prototypes. The configuration names the providers, a comma list:
 *
 *     auto       nvml,amd,intel,neuron,tpu (default): each finds nothing on a host without its kind
 *     none       no device at all
 *     fake:FILE  devices and their samples from a JSON file (accel_fake.c)
 *     sim:SPEC   a machine that isn't here: "8xH100", "2xA100,mig=1g.10gb*7", "4xMI300X",
 *                "16xTrainium", "v5e-8", several joined by '+' (accel_sim.c, tbl/models.def)
 *
 * Without a provider from the caller, STOKER_ACCEL names them. For tests: STOKER_NVML=PATH is the
 * NVML library, and STOKER_SYSROOT=DIR is prepended to every path under /sys, /dev and /proc/driver
 * that a provider reads. An inherited mask (CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES,
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

/* The fixed properties of a device. They don't change during a run. Unknown texts are NULL. */
typedef struct stk_device {
    const char *vendor; /* "nvidia", "amd", "intel", "aws", "google": tbl/vendors.def */
    const char *noun; /* the word for one device: "GPU", "MIG slice", "TPU chip", "Neuron device" */
    const char *uuid; /* "GPU-…", "MIG-…"; other vendors: a name that stays valid on this host */
    const char *model;   /* "NVIDIA H100 80GB HBM3" */
    const char *pci;     /* "00000000:0F:00.0" */
    const char *node;    /* "/dev/nvidia0", "/dev/dri/renderD128", "/dev/neuron0" */
    const char *driver;  /* "580.65.06" */
    const char *cpus;    /* CPUs near it as the kernel lists them, "0-15,32-47" */
    const char *profile; /* of a slice: "1g.10gb" */
    int32_t index;       /* the vendor's index in PCI order */
    int32_t parent;      /* of a slice: index of its whole device in this list; else -1 */
    int32_t n_slices;    /* > 0: split; only its slices can be leased (usable is false) */
    int32_t n_cores; /* units that the vendor's mask counts inside a device (NeuronCores), or -1 */
    int32_t numa;    /* NUMA node, or -1 */
    int32_t cc_major, cc_minor; /* CUDA compute capability, or -1 */
    int64_t memory_bytes;       /* -1 unknown */
    bool usable;
    const char *trouble; /* a sentence: why it is unusable; NULL for a split device, too */
} stk_device;

#define STK_DEVICE_UNKNOWN                                                                         \
    .index = -1, .parent = -1, .n_cores = -1, .numa = -1, .cc_major = -1, .cc_minor = -1,          \
    .memory_bytes = -1

typedef struct stk_accel stk_accel;

/* Finds the devices. A host without a driver is no error: the list is empty. Devices that exist
 * (/dev/nvidia0, PCI) but can't be queried are listed as unusable, and so are quarantined ones.
 * provider NULL: STOKER_ACCEL, else auto. */
int stk_accel_open(const char *provider, stk_accel **ret_accel, stk_err *err);
void stk_accel_close(stk_accel *accel);
static inline void stk_accel_close_auto(stk_accel **owned)
{
    stk_accel_close(*owned);
}
#define STK_ACCEL_AUTO __attribute__((cleanup(stk_accel_close_auto))) stk_accel *
uint32_t stk_accel_n_devices(const stk_accel *accel);
/* "nvidia" → "NVIDIA"; an unknown vendor is returned unchanged. */
const char *stk_accel_vendor_name(const char *vendor);
const stk_device *stk_accel_device(const stk_accel *accel, uint32_t i);
bool stk_accel_is_simulated(const stk_accel *accel); /* sim: nothing can run on these */
/* NVIDIA's driver version, "580.65.06" (NULL: no driver), and the newest CUDA that it runs, as 1000
 * × major + 10 × minor (13000), -1 unknown. */
const char *stk_accel_driver(const stk_accel *accel);
int32_t stk_accel_cuda_version(const stk_accel *accel);
/* One sentence for doctor and notes. */
const char *stk_accel_describe(const stk_accel *accel, stk_arena *arena);
/* Why the list is shorter than a user might expect: an inherited mask hides devices, or a driver
 * doesn't answer. NULL: no reason. Borrowed. */
const char *stk_accel_get_remark(const stk_accel *accel);

/* How close two devices are; a larger value is closer. */
typedef enum {
    STK_LINK_UNKNOWN,
    STK_LINK_SYSTEM, /* across NUMA nodes */
    STK_LINK_NODE,   /* one NUMA node */
    STK_LINK_HOST,   /* one PCIe host bridge */
    STK_LINK_SWITCH, /* one PCIe switch or board */
    STK_LINK_FABRIC, /* NVLink, XGMI, ICI, NeuronLink */
    STK_LINK_SAME    /* one device, or two slices of one */
} stk_closeness;
/* ret_n (may be NULL): the number of NVLinks or similar links for FABRIC, else -1. */
stk_closeness stk_accel_link(stk_accel *accel, uint32_t i, uint32_t j, int32_t *ret_n);

/* --- state: read anew at each call; unknown fields are -1 --- */

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
    int64_t ecc_uncorrected_total;            /* over the device's lifetime */
    int32_t remap_pending, remap_failed;      /* rows: 0 or 1 */
    int32_t remapped_rows;
    int32_t retired_pages, retired_pending;
    int32_t persistence;  /* 0 off, 1 on */
    int32_t compute_mode; /* 0 default, 1 exclusive thread, 2 prohibited, 3 exclusive process */
} stk_device_state;
/* 0, STK_E_NOT_FOUND (no such device), STK_E_ENV (the message says whether the device or the driver
 * is lost). ret_state is all -1 on an error. */
int stk_accel_state(stk_accel *accel, uint32_t i, stk_device_state *ret_state, stk_err *err);

typedef struct stk_device_process {
    pid_t pid;            /* in a container possibly the host's number */
    int64_t memory_bytes; /* -1 unknown */
    bool graphics;        /* no compute context: a display, a browser */
} stk_device_process;
/* The processes with a context on the device. Returns how many it wrote; -1: the vendor doesn't
 * report them. */
int stk_accel_processes(stk_accel *accel, uint32_t i, stk_device_process *ret, uint32_t n_max);

/* The measurements of one sampling tick of a running task: few, and cheap to read. -1 unknown. */
typedef struct stk_device_sample {
    int32_t busy_percent;
    int64_t memory_used;    /* bytes, whole device */
    int64_t process_memory; /* bytes of the given processes */
    int32_t context;        /* 1: one of the given processes has a context, 0: none has */
    int32_t n_others;       /* other processes with a context */
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
/* Errors as stk_accel_state; after one, every field of *ret is unknown. */
int stk_accel_sample(stk_accel *accel, uint32_t i_device, const pid_t *pids, uint32_t n_pids,
                     stk_device_sample *ret);

/* --- trouble: Xids and similar events (accel_trouble.c) --- */

typedef struct stk_device_event {
    uint32_t i_device; /* UINT32_MAX: a device that isn't in the list */
    int64_t mono_ms;   /* monotonic clock */
    int32_t xid;       /* 79 …; 0: not an Xid */
    pid_t pid;         /* the process that the event names, or 0 */
    char text[160];    /* "Xid 79: GPU has fallen off the bus" */
} stk_device_event;
/* How we react to an Xid: tbl/xid.def follows NVIDIA's catalogue; the user's table overrides it. */
typedef enum {
    STK_XID_IGNORE,     /* only recorded */
    STK_XID_RESTART,    /* the task's fault or bad luck: retry, elsewhere if possible */
    STK_XID_QUARANTINE, /* the device needs a reset: remove it from the pool; the attempt doesn't
                           count */
    STK_XID_NODE        /* the whole host needs care */
} stk_xid_action;
/* The next event; never blocks. False: none. Events of the kernel log count since stk_accel_open
 * (if we may read the log), NVML's since the first call. A repeated Xid of one device and process
 * is reported again only after three minutes without it. */
bool stk_accel_next_event(stk_accel *accel, stk_device_event *ret_event);
/* Reports every Xid of this boot that is still in the kernel log, oldest first; none if we may not
 * read the log. `text` is empty. */
void stk_accel_history(stk_accel *accel, void (*tell)(void *arg, const stk_device_event *event),
                       void *arg);
/* `overrides`: "109=restart,94=ignore" (STOKER_XID_POLICY), or NULL. Unknown Xids are noted. */
stk_xid_action stk_xid_policy(int32_t xid, const char *overrides);
const char *stk_xid_text(int32_t xid); /* NVIDIA's description, or NULL */

/* Makes the device and its slices unusable while this list is open; `why` becomes its `trouble`. */
void stk_accel_exclude(stk_accel *accel, uint32_t i, const char *why);
/* Takes a device out of this host's pool until a user clears it: a file beside the device's lock.
 * `why` is one sentence. Clearing a device that isn't quarantined: STK_E_NOT_FOUND. */
int stk_accel_quarantine(stk_accel *accel, uint32_t i, const char *why, stk_err *err);
int stk_accel_clear_quarantine(stk_accel *accel, uint32_t i, stk_err *err);

/* --- leases (DESIGN §4.6): OFD locks on one file per device in a per-host directory --- */

enum { STK_LEASE_DEVICES = 64 };

typedef struct stk_lease {
    uint32_t n;
    uint32_t devices[STK_LEASE_DEVICES]; /* indices into the accel's list */
    uint32_t n_fds;                      /* one per device, and for a slice its parent's lock */
    int fds[2 * STK_LEASE_DEVICES]; /* CLOEXEC; pass all to the task, whose copies keep the lease
                                       alive */
    int64_t share_bytes;            /* of each device; 0: whole devices */
} stk_lease;

/* The per-host lock directory: STOKER_LEASE_DIR, else /run/lock/stoker (created with mode 1777),
 * else a private one (*ret_private is true). */
const char *stk_lease_dir(bool *ret_private);
/* Leases exactly these devices, all or none: whole (share_bytes 0), or that much memory of each
 * (rounded up to MiB). Never blocks. `label` names us to other processes. STK_E_BUSY: another
 * process holds one, or claims one and comes before us; *ret_busy (may be NULL) lists those
 * devices, and the message names the holders (run, user, pid). STK_E_RESOURCES: waiting can't help,
 * because a device is unusable or has less memory. A slice and its whole device are never leased at
 * the same time. */
int stk_lease_take(stk_accel *accel, const stk_devset *devices, int64_t share_bytes,
                   const char *label, stk_lease *ret_lease, stk_devset *ret_busy, stk_err *err);
/* Closes our descriptors. The lease lasts as long as a task holds copies. */
void stk_lease_drop(stk_lease *lease);
/* For the scheduler: the bytes of each device that are free now. ret_free gets the bytes that no
 * lease holds: memory_bytes (-1 where unknown) if all is free; 0 if nothing is free, a claim comes
 * before us, the device is unusable (quarantine is read again), or a program outside Stoker uses
 * it. In the last two cases ret_outside gets a sentence such as "pid 4242 (python, user ann) uses
 * it outside Stoker" (arena), else NULL; ret_outside itself may be NULL. Both have n_devices
 * entries. */
int stk_lease_free(stk_accel *accel, stk_arena *arena, int64_t *ret_free, const char **ret_outside,
                   stk_err *err);
/* The environment of a task with this lease, as name/value pairs (tbl/vendors.def). With n = 0 the
 * task sees no device of any vendor. */
uint32_t stk_lease_env(const stk_accel *accel, const stk_lease *lease, stk_arena *arena,
                       const char *(*ret_pairs)[2], uint32_t n_max);
/* The holders of device i: "run 2026… step train (user ann, pid 123)", several joined by "; ";
 * NULL: it is free. */
const char *stk_lease_holder(const stk_accel *accel, uint32_t i, stk_arena *arena);

/* Whether the process has the lock file of device i open: it then belongs to a lease of that
 * device, ours or another one. False also if we may not inspect the process. */
bool stk_lease_is_part(const stk_accel *accel, uint32_t i, pid_t pid);

/* Claims devices for a caller that has waited waited_ms for them. Other callers' stk_lease_take and
 * stk_lease_free then treat them as taken, unless those callers claim them too and have waited
 * longer. Existing leases stay. An accel has one claim; a new one replaces it. It ends with
 * stk_lease_unclaim or the process. STK_E_BUSY: too many processes claim a device; we then claim
 * nothing. */
int stk_lease_claim(stk_accel *accel, const stk_devset *devices, int64_t waited_ms,
                    const char *label, stk_err *err);
void stk_lease_unclaim(stk_accel *accel);
/* The claimant of device i that comes before us: "claimed by run … step … (user ann, pid 123),
 * which has waited for it for 12 s", or NULL. */
const char *stk_lease_claimant(const stk_accel *accel, uint32_t i, stk_arena *arena);
/* The holders and the claimant that keep device i from us, or NULL. */
const char *stk_lease_who(const stk_accel *accel, uint32_t i, stk_arena *arena);

#endif
