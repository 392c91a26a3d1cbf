#include "accel/accel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel/accel_priv.h"
#include "base/buf.h"

int stk_accel_add(stk_accel *accel, const stk_device *device, uint32_t slot, stk_err *err)
{
    if (accel->n >= STK_LIMIT_DEVICES) {
        return stk_err_set(err, STK_E_LIMIT, "this machine has more than %d devices",
                           STK_LIMIT_DEVICES);
    }
    if (accel->devices == NULL) {
        accel->devices = stk_arena_array(accel->arena, STK_LIMIT_DEVICES, sizeof *accel->devices);
        accel->slots = stk_arena_array(accel->arena, STK_LIMIT_DEVICES, sizeof *accel->slots);
        if (accel->devices == NULL || accel->slots == NULL) {
            return stk_err_set(err, STK_E_NOMEM, "no memory for the list of devices");
        }
    }
    accel->devices[accel->n] = *device;
    accel->slots[accel->n++] = slot;
    return 0;
}

/* The device that one word of CUDA_VISIBLE_DEVICES names: an index, or a UUID that may be cut short
 * as long as it is unique (the CUDA runtime's own rule). -1: none. */
static int64_t device_named(const stk_accel *accel, const char *word, size_t len)
{
    char *end;
    errno = 0;
    long index = strtol(word, &end, 10);
    int64_t found = -1;
    for (uint32_t i = 0; i < accel->n; i++) {
        const stk_device *d = &accel->devices[i];
        if (end == word + len ? d->index == index
                              : len > 4 && d->uuid != NULL && strncmp(d->uuid, word, len) == 0) {
            if (found >= 0) {
                return -1;
            }
            found = i;
        }
    }
    return found;
}

/* Keeps the devices that an inherited CUDA_VISIBLE_DEVICES names, in its order. As in the CUDA
 * runtime, the first word that names no device ends the list. */
static int apply_mask(stk_accel *accel, const char *mask, stk_err *err)
{
    stk_accel pool = {.arena = accel->arena};
    uint32_t n_before = accel->n;
    bool seen[STK_LIMIT_DEVICES] = {0};
    const char *unknown = NULL;
    for (const char *word = mask; *word != '\0' && unknown == NULL;) {
        word += strspn(word, " ,");
        size_t len = strcspn(word, " ,");
        if (len == 0) {
            break;
        }
        int64_t i = device_named(accel, word, len);
        if (i < 0) {
            unknown = stk_arena_dupn(accel->arena, word, len);
        } else if (!seen[i]) {
            seen[i] = true;
            int rc = stk_accel_add(&pool, &accel->devices[i], accel->slots[i], err);
            if (rc < 0) {
                return rc;
            }
        }
        word += len;
    }
    accel->devices = pool.devices;
    accel->slots = pool.slots;
    accel->n = pool.n;
    if (unknown != NULL && strcmp(unknown, "-1") != 0) {
        accel->remark = stk_arena_printf(
            accel->arena,
            "CUDA_VISIBLE_DEVICES='%s' limits them to %u of %u ('%s' names none of them)", mask,
            accel->n, n_before, unknown);
    } else if (accel->n < n_before) {
        accel->remark =
            stk_arena_printf(accel->arena, "CUDA_VISIBLE_DEVICES='%s' limits them to %u of %u",
                             mask, accel->n, n_before);
    }
    return 0;
}

int stk_accel_open(const char *provider, stk_accel **ret_accel, stk_err *err)
{
    if (provider == NULL || *provider == '\0') {
        provider = getenv("STOKER_ACCEL");
    }
    if (provider == NULL || *provider == '\0') {
        provider = "nvml";
    }
    stk_arena *arena = stk_arena_new(8u << 20);
    stk_accel *accel = stk_arena_alloc(arena, sizeof *accel);
    if (accel == NULL) {
        stk_arena_free(arena);
        return stk_err_set(err, STK_E_NOMEM, "no memory for the list of devices");
    }
    accel->arena = arena;
    int rc = 0;
    if (strcmp(provider, "nvml") == 0) {
        accel->provider = "nvml";
        rc = stk_accel_nvml_open(accel, err);
    } else if (strncmp(provider, "fake:", 5) == 0) {
        accel->provider = "fake";
        rc = stk_accel_fake_open(accel, provider + 5, err);
    } else if (strcmp(provider, "none") == 0) {
        accel->provider = "none";
    } else {
        rc = stk_err_set(err, STK_E_USAGE,
                         "unknown device provider '%s'; there are nvml, none and fake:FILE",
                         provider);
    }
    const char *mask = getenv("CUDA_VISIBLE_DEVICES");
    if (rc == 0 && mask != NULL && accel->n > 0) {
        rc = apply_mask(accel, mask, err);
    }
    if (rc < 0) {
        stk_accel_close(accel);
        return rc;
    }
    *ret_accel = accel;
    return 0;
}

void stk_accel_close(stk_accel *accel)
{
    if (accel == NULL) {
        return;
    }
    if (accel->ops.close != NULL) {
        accel->ops.close(accel->self);
    }
    stk_arena_free(accel->arena); /* holds accel itself */
}

uint32_t stk_accel_n_devices(const stk_accel *accel)
{
    return accel->n;
}

const stk_device *stk_accel_device(const stk_accel *accel, uint32_t i)
{
    return i < accel->n ? &accel->devices[i] : NULL;
}

const char *stk_accel_driver(const stk_accel *accel)
{
    return accel->driver;
}

const char *stk_accel_describe(const stk_accel *accel, stk_arena *arena)
{
    uint32_t n_usable = 0;
    const char *trouble = NULL;
    for (uint32_t i = 0; i < accel->n; i++) {
        n_usable += accel->devices[i].usable;
        if (!accel->devices[i].usable && trouble == NULL) {
            trouble = accel->devices[i].trouble;
        }
    }
    STK_BUF_AUTO text = STK_BUF_INIT(4096);
    if (accel->n == 0) {
        stk_buf_text(&text, "no GPU");
    } else {
        stk_buf_printf(&text, "%u %sGPU%s", accel->n,
                       strcmp(accel->provider, "fake") == 0 ? "fake " : "NVIDIA ",
                       accel->n == 1 ? "" : "s");
    }
    if (accel->driver != NULL) {
        stk_buf_printf(&text, ", driver %s", accel->driver);
    }
    if (n_usable < accel->n) {
        stk_buf_printf(&text, ", %u usable: %s", n_usable, trouble ? trouble : "unknown trouble");
    }
    if (accel->remark != NULL) {
        stk_buf_printf(&text, "; %s", accel->remark);
    }
    const char *copy = text.data != NULL ? stk_arena_dup(arena, text.data) : NULL;
    return copy != NULL ? copy : "no memory to describe the devices";
}

int stk_accel_sample(stk_accel *accel, uint32_t i_device, const pid_t *pids, uint32_t n_pids,
                     stk_device_sample *ret)
{
    *ret = STK_DEVICE_SAMPLE_UNKNOWN;
    if (i_device >= accel->n) {
        return STK_E_NOT_FOUND;
    }
    if (accel->ops.sample != NULL && accel->devices[i_device].usable) {
        accel->ops.sample(accel->self, accel->slots[i_device], pids, n_pids, ret);
    }
    return 0;
}
