/* Keeps tasks off devices that they have no lease for: closes those devices if the host lets us,
 * and reports tasks that use one. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "host/backend/backend_local.h"

enum {
    SOON_MS = 1000,  /* after a task has started */
    AGAIN_MS = 5000, /* and then repeatedly while any task runs */
    MAX_PROCESSES = 256
};

/* A slice is part of its parent: the driver reports a user of one on the other, too. */
static bool has_device(const stk_accel *accel, const uint32_t *given, uint32_t n, uint32_t i)
{
    const stk_device *asked = stk_accel_device(accel, i);
    for (uint32_t k = 0; k < n; k++) {
        const stk_device *one = stk_accel_device(accel, given[k]);
        if (given[k] == i || one->parent == (int32_t)i || asked->parent == (int32_t)given[k]) {
            return true;
        }
    }
    return false;
}

/* --- closing devices --- */

/* Only nodes of whole devices: a driver's common nodes (nvidiactl, kfd) are for everybody. */
uint32_t stk_local_closed_nodes(const local_backend *b, const stk_lease *given, dev_t *ret,
                                uint32_t n_max)
{
    uint32_t n = 0;
    for (uint32_t i = 0; b->accel != NULL && i < stk_accel_n_devices(b->accel) && n < n_max; i++) {
        const char *node = stk_accel_device(b->accel, i)->node;
        struct stat st;
        bool theirs = has_device(b->accel, given->devices, given->n, i);
        for (uint32_t k = 0; k < given->n && node != NULL && !theirs; k++) {
            const char *open = stk_accel_device(b->accel, given->devices[k])->node;
            theirs = open != NULL && strcmp(open, node) == 0;
        }
        if (node != NULL && !theirs && stat(node, &st) == 0 && S_ISCHR(st.st_mode)) {
            ret[n++] = st.st_rdev;
        }
    }
    return n;
}

/* --- finding users without a lease --- */

static local_task *task_of(local_backend *b, pid_t pid)
{
    pid_t session = getsid(pid);
    for (uint32_t i = 0; i < b->n_tasks; i++) {
        local_task *t = b->tasks[i];
        bool is_of = t->state == LOCAL_RUNNING && session == t->pid;
        for (uint32_t k = 0; k < t->watch.members.n && !is_of; k++) {
            is_of = t->state == LOCAL_RUNNING && t->watch.members.pids[k] == pid;
        }
        if (is_of) {
            return t;
        }
    }
    return NULL;
}

/* The step's name, from the path …/STEP/TASK/ATTEMPT. */
static const char *step_of(const local_task *t, char *buf, size_t size)
{
    (void)snprintf(buf, size, "%s", t->dir);
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(buf, '/');
        if (slash != NULL) {
            *slash = '\0';
        }
    }
    return stk_text_behind(buf, '/');
}

static void tell_of_stranger(local_backend *b, local_task *t, const stk_device *d, pid_t pid)
{
    char path[PATH_MAX];
    bool first = t->watch.other_device == NULL;
    t->watch.other_device = d->uuid;
    if (first) {
        stk_local_note(
            b, t, "step '%s' uses %s %s (index %d), which it was not granted (process %d)%s",
            step_of(t, path, sizeof path), d->noun, d->uuid, d->index, (int)pid,
            stk_text_when(b->policy == STK_POLICY_STRICT, ": it is ended (policy strict)"));
    }
    if (b->policy == STK_POLICY_STRICT) {
        stk_local_task_stop(b, t, t->grace_ms, STK_FAIL_OTHER_DEVICE);
    }
}

static bool is_given(const local_backend *b, const local_task *t, uint32_t i)
{
    uint32_t given[STK_LEASE_DEVICES];
    return has_device(b->accel, given, stk_watch_devices(&t->watch, given, STK_LEASE_DEVICES), i);
}

static void look_at(local_backend *b, uint32_t i)
{
    stk_device_process list[MAX_PROCESSES];
    int n = stk_accel_processes(b->accel, i, list, MAX_PROCESSES);
    for (int k = 0; k < n; k++) {
        local_task *t = task_of(b, list[k].pid);
        if (t != NULL && !list[k].graphics && !is_given(b, t, i)) {
            tell_of_stranger(b, t, stk_accel_device(b->accel, i), list[k].pid);
        }
    }
}

static void tell_of_shares(local_backend *b)
{
    for (uint32_t i = 0; i < b->n_tasks && !b->noted_shares; i++) {
        if (b->tasks[i]->watch.shares_unknown) {
            b->noted_shares = true;
            stk_local_note(b, b->tasks[i],
                           "the driver doesn't report here how much device memory each process "
                           "uses: a share is enforced only while no other process uses its device");
        }
    }
}

void stk_local_look_outside(local_backend *b, int64_t now_ms)
{
    if (b->accel == NULL || b->n_tasks == 0 || stk_accel_n_devices(b->accel) == 0) {
        b->outside_ms = INT64_MAX;
        return;
    }
    if (now_ms >= b->outside_ms) {
        for (uint32_t i = 0; i < stk_accel_n_devices(b->accel); i++) {
            look_at(b, i);
        }
        tell_of_shares(b);
        b->outside_ms = now_ms + AGAIN_MS;
    }
    stk_local_due(b, b->outside_ms);
}

void stk_local_look_outside_soon(local_backend *b, int64_t now_ms)
{
    if (b->accel != NULL && stk_accel_n_devices(b->accel) > 0) {
        b->outside_ms = MIN(now_ms + SOON_MS, b->outside_ms);
        stk_local_due(b, b->outside_ms);
    }
}
