/* Claims: later callers yield to a run that has waited long for devices (accel_lease.h). Like a
 * lease, a claim is an open-file-description lock; it ends with its engine. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "host/accel/accel_lease.h"
#include "host/accel/accel_priv.h"
#include "sys/file.h"

static int64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static off_t lock_of(int slot)
{
    return STK_LEASE_CLAIM + 2 * slot;
}

static int text_slot(int slot)
{
    return STK_LEASE_CLAIM_TEXT + stk_lease_level() * STK_LEASE_CLAIMS + slot;
}

int64_t stk_lease_own_claim(const stk_accel *accel)
{
    return accel->claim.n > 0 ? accel->claim.since_ns : INT64_MAX;
}

bool stk_lease_claimed_before(int fd, int64_t since_ns, char *ret_text)
{
    char text[STK_LEASE_LABEL + 1];
    int64_t oldest = since_ns;
    /* Usually there is no claim: one fcntl call checks all slots. */
    if (fd < 0 ||
        !stk_lease_conflict(fd, F_RDLCK, STK_LEASE_CLAIM, 2 * STK_LEASE_CLAIMS, NULL, NULL)) {
        return false;
    }
    for (int slot = 0; slot < STK_LEASE_CLAIMS; slot++) {
        if (!stk_lease_read_slot(fd, lock_of(slot), text_slot(slot), text)) {
            continue;
        }
        char *label;
        int64_t since = strtoll(text, &label, 10);
        if (label == text || since >= oldest) {
            continue;
        }
        oldest = since;
        if (ret_text != NULL) {
            (void)snprintf(ret_text, STK_LEASE_LABEL + 100,
                           "claimed by%s, which has waited for it for %" PRId64 " s", label,
                           (now_ns() - since) / 1000000000);
        }
    }
    return oldest < since_ns;
}

/* Claims the device and returns the descriptor that holds the claim; -1 with errno. */
static int claim_one(const stk_device *device, const char text[STK_LEASE_LABEL])
{
    char path[768];
    if (stk_lease_path(device, path, sizeof path) < 0) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int why = EAGAIN;
    for (int i = 0; i < 16 && why == EAGAIN; i++) {
        int fd = stk_lease_open_lock(path), rc = -1;
        for (int slot = 0; fd >= 0 && slot < STK_LEASE_CLAIMS; slot++) {
            rc = stk_lease_write_slot(fd, lock_of(slot), text_slot(slot), text);
            if (rc == 0 || errno != EAGAIN) {
                break;
            }
        }
        why = errno;
        if (rc == 0 && stk_lease_is_current(fd, path)) {
            return fd;
        }
        stk_file_close(&fd);
        if (rc == 0) {
            why = EAGAIN; /* the file was removed: claim the new one */
        }
    }
    errno = why;
    return -1;
}

int stk_lease_claim(stk_accel *accel, const stk_devset *devices, int64_t waited_ms,
                    const char *label, stk_err *err)
{
    char text[STK_LEASE_LABEL] = {0};
    stk_lease_unclaim(accel);
    accel->claim.since_ns = now_ns() - waited_ms * 1000000;
    int n = snprintf(text, sizeof text, "%" PRId64 " ", accel->claim.since_ns);
    stk_lease_sign(label, text + n, sizeof text - (size_t)n);
    for (uint32_t i = 0; i < accel->n; i++) {
        if (!stk_devset_has(devices, i)) {
            continue;
        }
        char name[64];
        int fd = -1;
        if (accel->claim.n < STK_LEASE_DEVICES) {
            fd = claim_one(&accel->devices[i], text);
        }
        if (fd < 0) {
            int why = errno;
            stk_lease_unclaim(accel);
            return stk_err_sys(err, STK_E_BUSY, why, "claiming %s",
                               stk_lease_name(&accel->devices[i], name, sizeof name));
        }
        accel->claim.fds[accel->claim.n++] = fd;
    }
    return 0;
}

void stk_lease_unclaim(stk_accel *accel)
{
    while (accel->claim.n > 0) {
        close(accel->claim.fds[--accel->claim.n]);
    }
}

const char *stk_lease_claimant(const stk_accel *accel, uint32_t i, stk_arena *arena)
{
    char text[STK_LEASE_LABEL + 100];
    if (i >= accel->n) {
        return NULL;
    }
    STK_FD_AUTO fd = stk_lease_open_to_look(&accel->devices[i]);
    bool claimed = stk_lease_claimed_before(fd, stk_lease_own_claim(accel), text);
    if (!claimed) {
        return NULL;
    }
    return stk_arena_dup(arena, text);
}

const char *stk_lease_who(const stk_accel *accel, uint32_t i, stk_arena *arena)
{
    const char *holder = stk_lease_holder(accel, i, arena);
    const char *claimant = stk_lease_claimant(accel, i, arena);
    if (holder == NULL || claimant == NULL) {
        return stk_text_or(holder, claimant);
    }
    return stk_arena_printf(arena, "%s; %s", holder, claimant);
}
