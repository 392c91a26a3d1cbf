/* Leases devices for a node that a gang's leader started (host/launch/launch_hosts.c), or for a
 * step outside a run (a flow's `spin`). That happens on the devices' host, before the step's code
 * runs. The step inherits the descriptors, and the lease lasts as long as the step. */
#include "host/launch/launch_hold.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/text.h"
#include "host/accel/accel.h"
#include "sys/proc.h"

enum { TRIES = 5, N_PAIRS = 64 };

static bool is_free(const stk_device *d, int64_t free_bytes, const char *outside)
{
    return d->usable && outside == NULL && free_bytes != 0 &&
           (d->memory_bytes <= 0 || free_bytes == d->memory_bytes);
}

/* The first `n` free devices of one vendor. */
static int choose_free(stk_accel *accel, stk_arena *arena, uint32_t n, stk_devset *ret_devices,
                       stk_err *err)
{
    uint32_t have = stk_accel_n_devices(accel), most = 0;
    int64_t *bytes = stk_arena_array(arena, have + 1, sizeof *bytes);
    const char **outside = stk_arena_array(arena, have + 1, sizeof *outside);
    if (bytes == NULL || outside == NULL) {
        return stk_err_nomem(err);
    }
    STK_TRY(stk_lease_free(accel, arena, bytes, outside, err));
    for (uint32_t first = 0; first < have; first++) {
        stk_devset set = {0};
        uint32_t found = 0;
        const char *vendor = stk_accel_device(accel, first)->vendor;
        for (uint32_t i = first; i < have && found < n; i++) {
            const stk_device *d = stk_accel_device(accel, i);
            if (strcmp(d->vendor, vendor) == 0 && is_free(d, bytes[i], outside[i])) {
                stk_devset_add(&set, i);
                found++;
            }
        }
        if (found == n) {
            *ret_devices = set;
            return 0;
        }
        most = MAX(found, most);
    }
    return stk_err_set(err, STK_E_RESOURCES,
                       "%u devices of this machine are requested, but only %u of its %u are free "
                       "(stoker gpus there shows who uses them)",
                       n, most, have);
}

static int lease_free(stk_accel *accel, stk_arena *arena, uint32_t n, stk_lease *lease,
                      stk_err *err)
{
    char label[300], user[48];
    (void)snprintf(label, sizeof label, "run %s step %s (user %s, pid %d)",
                   stk_text_or(getenv("STOKER_RUN"), "?"), stk_text_or(getenv("STOKER_STEP"), "?"),
                   stk_proc_user(getuid(), user), (int)getpid());
    int rc = STK_E_BUSY;
    for (int i = 0; rc == STK_E_BUSY && i < TRIES; i++) { /* another process may be quicker */
        stk_devset devices = {0};
        STK_TRY(choose_free(accel, arena, n, &devices, err));
        rc = stk_lease_take(accel, &devices, 0, label, lease, NULL, err);
    }
    return rc;
}

int stk_launch_hold(uint32_t n, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_ACCEL_AUTO accel = NULL;
    stk_lease lease = {0};
    const char *pairs[N_PAIRS][2];
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_accel_open(NULL, &accel, err));
    if (n > 0) {
        STK_TRY(lease_free(accel, arena, n, &lease, err));
    }
    uint32_t n_pairs = stk_lease_env(accel, &lease, arena, pairs, N_PAIRS);
    for (uint32_t i = 0; i < n_pairs; i++) {
        (void)setenv(pairs[i][0], pairs[i][1], 1);
    }
    for (uint32_t i = 0; i < lease.n_fds; i++) {
        (void)fcntl(lease.fds[i], F_SETFD, 0);
    }
    return 0;
}

int stk_launch_see_devices(stk_arena *arena, stk_launch_config *config, uint32_t *ret_n,
                           stk_err *err)
{
    STK_ACCEL_AUTO accel = NULL;
    stk_launch_device *devices = stk_arena_array(arena, STK_LAUNCH_MAX_DEVICES, sizeof *devices);
    uint32_t n = 0;
    STK_TRY(stk_err_if_null(devices, err));
    STK_TRY(stk_accel_open(NULL, &accel, err));
    for (uint32_t i = 0; i < stk_accel_n_devices(accel); i++) {
        const stk_device *d = stk_accel_device(accel, i);
        if (d->usable && n < STK_LAUNCH_MAX_DEVICES) {
            devices[n] = (stk_launch_device){.cpus = stk_arena_dup(arena, d->cpus)};
            if (strcmp(d->vendor, "nvidia") == 0) {
                devices[n].mask = stk_arena_dup(arena, d->uuid);
            }
        }
        n += d->usable;
    }
    config->seen = devices;
    config->n_seen = n > STK_LAUNCH_MAX_DEVICES ? 0 : n;
    *ret_n = n;
    return 0;
}
