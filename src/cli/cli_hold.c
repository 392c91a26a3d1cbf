/* Devices of a node that a gang's leader started (host/launch/launch_hosts.c), or of a step that
 * runs outside of a run (a flow's `spin`): leased here, where they are, before anything of the step
 * runs. The descriptors go on to it, and the lease lasts as long. */
#include "cli/cli_hold.h"

#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "cli/cli.h"
#include "host/accel/accel.h"

enum { TRIES = 5, N_PAIRS = 64 };

static bool is_free(const stk_device *d, int64_t free_bytes, const char *outside)
{
    return d->usable && outside == NULL && free_bytes != 0 &&
           (d->memory_bytes <= 0 || free_bytes == d->memory_bytes);
}

/* The first `n` free ones of one vendor. */
static int choose(stk_accel *accel, stk_arena *arena, uint32_t n, stk_devset *ret_devices,
                  stk_err *err)
{
    uint32_t have = stk_accel_n_devices(accel);
    int64_t *bytes = stk_arena_array(arena, have + 1, sizeof *bytes);
    const char **outside = stk_arena_array(arena, have + 1, sizeof *outside);
    int rc = bytes == NULL || outside == NULL ? stk_err_nomem(err)
                                              : stk_lease_free(accel, arena, bytes, outside, err);
    uint32_t most = 0;
    for (uint32_t first = 0; rc == 0 && first < have; first++) {
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
    STK_TRY(rc);
    return stk_err_set(err, STK_E_RESOURCES,
                       "%u devices of this machine are asked for, and %u of its %u are free "
                       "(stoker gpus there tells who has them)",
                       n, most, have);
}

static void make_label(char *text, size_t size)
{
    const struct passwd *user = getpwuid(getuid());
    const char *run = getenv("STOKER_RUN");
    const char *step = getenv("STOKER_STEP");
    (void)snprintf(text, size, "run %s step %s (user %s, pid %d)", run != NULL ? run : "?",
                   step != NULL ? step : "?", user == NULL ? "?" : user->pw_name, (int)getpid());
}

int stk_cli_hold(uint32_t n, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_accel *accel = NULL;
    stk_lease lease = {0};
    char label[300];
    make_label(label, sizeof label);
    int rc = arena == NULL ? stk_err_nomem(err) : stk_accel_open(NULL, &accel, err);
    for (int i = 0; rc == 0 && i < TRIES; i++) { /* another may be quicker */
        stk_devset devices = {0};
        rc = n == 0 ? 0 : choose(accel, arena, n, &devices, err);
        rc = rc < 0 || n == 0 ? rc : stk_lease_take(accel, &devices, 0, label, &lease, NULL, err);
        if (rc != STK_E_BUSY || i + 1 == TRIES) {
            break;
        }
        rc = 0;
    }
    if (rc == 0) {
        const char *pairs[N_PAIRS][2];
        uint32_t n_pairs = stk_lease_env(accel, &lease, arena, pairs, N_PAIRS);
        for (uint32_t i = 0; i < n_pairs; i++) {
            (void)setenv(pairs[i][0], pairs[i][1], 1);
        }
        for (uint32_t i = 0; i < lease.n_fds; i++) {
            (void)fcntl(lease.fds[i], F_SETFD, 0);
        }
    }
    stk_accel_close(accel);
    return rc;
}
