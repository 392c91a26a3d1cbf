/* What the files of the accel room share: the device list while it is found, and the table that a
 * provider (NVML, a fake file) fills in. */
#ifndef STK_ACCEL_PRIV_H
#define STK_ACCEL_PRIV_H

#include "accel/accel.h"
#include "base/limits.h"

typedef struct stk_accel_ops {
    /* May be NULL: nothing is known. `slot` is the provider's own number of the device. */
    void (*sample)(void *self, uint32_t slot, const pid_t *pids, uint32_t n_pids,
                   stk_device_sample *ret);
    void (*close)(void *self);
} stk_accel_ops;

struct stk_accel {
    stk_arena *arena;
    const char *provider; /* "nvml", "none", "fake" */
    const char *driver;   /* or NULL */
    const char *remark;   /* for describe: why there is less than one might think; or NULL */
    stk_device *devices;
    uint32_t *slots; /* device → the provider's number */
    uint32_t n;
    stk_accel_ops ops;
    void *self;
};

/* Appends a device; 0, STK_E_LIMIT or STK_E_NOMEM. Texts must live in accel->arena or forever. */
int stk_accel_add(stk_accel *accel, const stk_device *device, uint32_t slot, stk_err *err);

/* Each fills `accel`; see accel_nvml.c and accel_fake.c. */
int stk_accel_nvml_open(stk_accel *accel, stk_err *err);
int stk_accel_fake_open(stk_accel *accel, const char *path, stk_err *err);

#endif
