/* What the files of the accel room share: the device list while it is found, and the table that a
 * provider fills in.
 *
 * To add a provider: a file accel_NAME.c with `const stk_provider stk_provider_NAME`, a line in
 * tbl/providers.def, the file in meson.build. Its open function looks at the host, and calls
 * stk_accel_add for each device that exists, also for those that can't be used (with `trouble`, a
 * sentence with the way out). Where its kind of device doesn't exist it adds nothing, is no error
 * and costs next to nothing: `auto` asks every provider at each start. Paths are read through
 * accel_sysfs.h, so that STOKER_SYSROOT can stand before them. The rest is done here for all:
 * inherited masks, quarantine, links by PCI and NUMA, texts. accel_fake.c is the smallest one. */
#ifndef STK_ACCEL_PRIV_H
#define STK_ACCEL_PRIV_H

#include "base/limits.h"
#include "host/accel/accel.h"

/* Any of them may be NULL: nothing is known. `self` is what open made, `slot` the provider's own
 * number of a device (stk_accel_add). Results come unknown throughout (-1), and are filled as far
 * as the vendor tells. state and sample return 0, or STK_E_ENV when the device or the driver is
 * gone. */
typedef struct stk_accel_ops {
    int (*state)(void *self, uint32_t slot, stk_device_state *ret, stk_err *err);
    /* How many were written, or -1. */
    int (*processes)(void *self, uint32_t slot, stk_device_process *ret, uint32_t n_max);
    int (*sample)(void *self, uint32_t slot, const pid_t *pids, uint32_t n_pids,
                  stk_device_sample *ret);
    /* Of two devices of this provider. STK_LINK_UNKNOWN: by their PCI addresses and NUMA nodes. */
    stk_link (*link)(void *self, uint32_t slot, uint32_t other, int32_t *ret_n);
    /* ret_event->i_device is a slot (UINT32_MAX: none of ours); false: nothing happened. */
    bool (*next_event)(void *self, stk_device_event *ret_event);
    void (*close)(void *self);
} stk_accel_ops;

typedef struct stk_provider {
    const char *name;
    const char *adjective; /* "fake", "simulated": of devices that don't exist; else NULL */
    bool in_auto;
    bool takes_spec; /* "NAME:SPEC" */
    bool simulated;  /* nothing can run on its devices; inherited masks don't concern them */
    /* Adds its devices; *ret_self (NULL before) is handed to every function of ops, which are not
     * called while it is NULL. On an error it has tidied up itself. Memory comes from accel->arena.
     * `spec`: the text after the colon, or "". */
    int (*open)(stk_accel *accel, const char *spec, void **ret_self, stk_err *err);
    stk_accel_ops ops;
} stk_provider;

enum { STK_ACCEL_PARTS = 16 };
#define STK_SLOT_NONE UINT32_MAX /* of a device that nobody can ask: its trouble says why */

typedef struct stk_accel_part { /* a provider at work */
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
    const char *remark;   /* for describe: why there is less than one might think; or NULL */
    bool simulated;
    stk_device *devices;
    stk_accel_slot *slots; /* device → its part, and the number there */
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

/* Appends a device, as number accel->n (a slice's `parent` is such a number; parents come first and
 * count their slices in n_slices); 0, STK_E_LIMIT or STK_E_NOMEM. Texts must live in accel->arena
 * or forever. */
int stk_accel_add(stk_accel *accel, const stk_device *device, uint32_t slot, stk_err *err);
/* Adds a sentence to what describe says. */
void stk_accel_remark(stk_accel *accel, const char *text);

/* Fills process_memory and context of a sample from n processes of the device (-1: unknown). */
void stk_accel_sum_processes(const stk_device_process *processes, int n, const pid_t *pids,
                             uint32_t n_pids, stk_device_sample *ret);

/* accel_mask.c: takes out what the inherited masks of the vendors don't name. */
int stk_accel_apply_masks(stk_accel *accel, stk_err *err);

/* accel_lease.c: how many engines stand between us and the one that leased from the host. */
int stk_lease_level(void);

/* accel_trouble.c. The first reads the quarantine files again (one access(2) a device where nothing
 * changed); the others begin and end listening to the kernel log. */
void stk_accel_apply_quarantine(stk_accel *accel);
void stk_accel_open_log(stk_accel *accel);
void stk_accel_close_log(stk_accel *accel);

#define X(name) extern const stk_provider stk_provider_##name;
#include "tbl/providers.def"
#undef X

#endif
