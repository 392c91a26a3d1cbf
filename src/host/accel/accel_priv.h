/* Shared by the files of the accel room: the device list while it is built, and the table that a
 * provider fills in.
 *
 * To add a provider: a file accel_NAME.c with `const stk_provider stk_provider_NAME`, a line in
 * tbl/providers.def, the file in meson.build. Its open function inspects the host and calls
 * stk_accel_add for each device that exists, unusable ones included (their `trouble` is a sentence
 * with a remedy). If the host has no such device, open adds nothing, returns no error and must be
 * cheap: `auto` calls every provider at each start. Read paths through accel_sysfs.h, so that
 * STOKER_SYSROOT is prepended. The accel room does the rest for all providers: inherited masks,
 * quarantine, links by PCI and NUMA, texts. accel_fake.c is the smallest provider. */
#ifndef STK_ACCEL_PRIV_H
#define STK_ACCEL_PRIV_H

#include "base/limits.h"
#include "host/accel/accel.h"

/* Any of them may be NULL: the provider knows nothing of that kind. `self` is what open returned,
 * `slot` the number that the provider gave the device (stk_accel_add). The caller sets every result
 * to unknown (-1); the provider fills in what the vendor reports. state and sample return 0, or
 * STK_E_ENV if the device or the driver is lost. */
typedef struct stk_accel_ops {
    int (*state)(void *self, uint32_t slot, stk_device_state *ret, stk_err *err);
    /* Returns how many it wrote, or -1. */
    int (*processes)(void *self, uint32_t slot, stk_device_process *ret, uint32_t n_max);
    int (*sample)(void *self, uint32_t slot, const pid_t *pids, uint32_t n_pids,
                  stk_device_sample *ret);
    /* For two devices of this provider. STK_LINK_UNKNOWN: the caller compares their PCI addresses
     * and NUMA nodes. */
    stk_closeness (*link)(void *self, uint32_t slot, uint32_t other, int32_t *ret_n);
    /* ret_event->i_device is a slot (UINT32_MAX: no device of this provider); false: no event. */
    bool (*next_event)(void *self, stk_device_event *ret_event);
    void (*close)(void *self);
} stk_accel_ops;

typedef struct stk_provider {
    const char *name;
    const char *adjective; /* "fake", "simulated" for devices that don't exist; else NULL */
    bool in_auto;
    bool takes_spec; /* "NAME:SPEC" */
    bool simulated;  /* nothing can run on its devices; inherited masks don't apply */
    /* Adds the provider's devices. *ret_self (initially NULL) is passed to every function of ops;
     * while it is NULL, none of them is called. On an error open cleans up after itself. Memory
     * comes from accel->arena. `spec`: the text after the colon, or "". */
    int (*open)(stk_accel *accel, const char *spec, void **ret_self, stk_err *err);
    stk_accel_ops ops;
} stk_provider;

enum { STK_ACCEL_PARTS = 16 };
#define STK_SLOT_NONE UINT32_MAX /* a device that can't be queried: its `trouble` says why */

typedef struct stk_accel_part { /* an opened provider */
    const stk_provider *provider;
    void *self;
} stk_accel_part;

typedef struct stk_trouble stk_trouble; /* accel_trouble.c */

typedef struct stk_accel_slot {
    uint32_t part, slot;
} stk_accel_slot;

struct stk_accel {
    stk_arena *arena;
    stk_accel_part parts[STK_ACCEL_PARTS];
    uint32_t n_parts;
    const char *driver;   /* NVIDIA's, or NULL */
    int32_t cuda_version; /* or -1 */
    const char *remark;   /* stk_accel_get_remark: why the list is short, or NULL */
    bool simulated;
    stk_device *devices;
    stk_accel_slot *slots; /* of each device: its part, and the slot there */
    uint32_t n;
    stk_device *found; /* the list before quarantine */
    bool quarantined[STK_LIMIT_DEVICES];
    stk_trouble *log;
    struct {
        int64_t since_ns;
        uint32_t n;
        int fds[STK_LEASE_DEVICES]; /* CLOEXEC */
    } claim;                        /* accel_lease_claim.c; n = 0: none */
};

/* Appends a device at index accel->n. A slice's `parent` is such an index; parents come before
 * their slices and count them in n_slices. Texts must be static or in accel->arena. 0, STK_E_LIMIT
 * or STK_E_NOMEM. */
int stk_accel_add(stk_accel *accel, const stk_device *device, uint32_t slot, stk_err *err);
/* Adds a sentence to the accel's remark. */
void stk_accel_remark(stk_accel *accel, const char *text);

/* Fills in a sample's process_memory, context and n_others from the device's n processes (n -1:
 * unknown). */
void stk_accel_sum_processes(const stk_device_process *processes, int n, const pid_t *pids,
                             uint32_t n_pids, stk_device_sample *ret);

/* accel_mask.c: removes the devices that the vendors' inherited masks don't name. */
int stk_accel_apply_masks(stk_accel *accel, stk_err *err);

/* accel_lease.c: our nesting level: the number of engines between us and the one that leased from
 * the host. */
int stk_lease_level(void);

/* accel_trouble.c. The first function reads the quarantine files again (one access(2) per device if
 * nothing changed). The others start and stop reading the kernel log. */
void stk_accel_apply_quarantine(stk_accel *accel);
void stk_accel_open_log(stk_accel *accel);
void stk_accel_close_log(stk_accel *accel);

#define X(name) extern const stk_provider stk_provider_##name;
#include "tbl/providers.def"
#undef X

#endif
