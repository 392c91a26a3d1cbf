/* Devices of a run: leases the ones that the scheduler chose, all or none; tells the scheduler what
 * others hold; claims devices for a task that has waited too long. */
#include "run/exec/core/exec_devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/param.h>

#include "base/text.h"
#include "host/fit/fit.h"
#include "run/exec/core/exec_event.h"
#include "run/exec/core/exec_loop.h"

enum {
    LOOK_MS = 200, /* how often to check the devices of others while a task waits for them … */
    LOOK_MAX_MS = 1000,
    AGAIN_MS = 5, /* after a lost race whose winner can be seen */
    CLAIM_AFTER_MS = 10 * 1000,
    CLAIM_FOR_MS = 10 * 60 * 1000
};

/* The memory of a device that others hold, in MiB; `free_bytes` of it are free. */
static int64_t outside_mib(stk_accel *accel, const stk_sched *sched, uint32_t i, int64_t free_bytes,
                           const char *holder, stk_arena *arena)
{
    int64_t total_mib = stk_accel_device(accel, i)->memory_bytes >> 20;
    int32_t own_mib = stk_sched_held(sched, i);
    if (own_mib == STK_SCHED_ALL) {
        return 0; /* no other run can hold it */
    }
    if (holder != NULL || (free_bytes == 0 && own_mib == 0) ||
        (free_bytes == 0 && stk_lease_claimant(accel, i, arena) != NULL)) {
        return STK_SCHED_ALL;
    }
    if (free_bytes < 0 || total_mib <= 0) {
        return 0;
    }
    return MAX(total_mib - (free_bytes >> 20) - own_mib, 0);
}

int stk_exec_fold_outside(stk_accel *accel, stk_sched *sched, bool *ret_any, bool *ret_new,
                          stk_err *err)
{
    int64_t free_bytes[STK_LIMIT_DEVICES];
    const char *outside[STK_LIMIT_DEVICES] = {0};
    STK_ARENA_AUTO arena = stk_arena_new(1u << 20);
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_lease_free(accel, arena, free_bytes, outside, err));
    for (uint32_t i = 0; i < stk_accel_n_devices(accel); i++) {
        int64_t mib = outside_mib(accel, sched, i, free_bytes[i], outside[i], arena);
        stk_sched_event event = {.kind = STK_SE_OUTSIDE, .device = i, .mib = (int32_t)mib};
        *ret_any = *ret_any || (mib > 0 && stk_accel_device(accel, i)->usable);
        *ret_new = *ret_new || mib != stk_sched_outside(sched, i);
        STK_TRY(stk_sched_fold(sched, &event, err));
    }
    return 0;
}

/* --- claims ---
 *
 * Runs take free devices in any order. So that a stream of small tasks can't keep a large one
 * waiting for ever, a task that has waited for CLAIM_AFTER_MS claims devices. A claim may keep some
 * of them idle until the last one is free, perhaps after a training of three days. Therefore a
 * claim that keeps devices idle ends after CLAIM_FOR_MS, pauses as long, and the next one lasts
 * twice as long. So at most half of the time is lost, and at last a claim outlasts the tasks on its
 * devices. */

static int64_t claim_after_ms(void)
{
    const char *text = stk_text_or(getenv("STOKER_CLAIM_AFTER_MS"), ""); /* for tests */
    int64_t ms = strtoll(text, NULL, 10);
    return ms > 0 ? ms : CLAIM_AFTER_MS;
}

static int give_up_claim(stk_exec *x, stk_err *err)
{
    stk_sched_event event = {.kind = STK_SE_CLAIMED, .task = x->outside.claim.task};
    stk_lease_unclaim(x->config.accel);
    bool is_known = x->outside.claim.is_made &&
                    stk_sched_state(x->sched, x->outside.claim.task) == STK_TASK_READY;
    x->outside.claim.is_made = false;
    if (!is_known) {
        return 0;
    }
    return stk_sched_fold(x->sched, &event, err);
}

static int make_claim(stk_exec *x, int64_t now, stk_err *err)
{
    char label[256];
    stk_devset avoid = {{0}};
    stk_sched_event event = {.kind = STK_SE_CLAIMED, .task = x->outside.claim.task};
    stk_sched_why why = stk_sched_explain(x->sched, x->outside.claim.task);
    STK_ARENA_AUTO arena = stk_arena_new(1u << 20);
    STK_TRY(stk_err_if_null(arena, err));
    if (why.what != STK_WHY_DEVICES || stk_devset_count(&why.outside) == 0) {
        return 0; /* now it waits for its own run */
    }
    for (uint32_t i = 0; i < stk_accel_n_devices(x->config.accel); i++) {
        if (stk_lease_claimant(x->config.accel, i, arena) != NULL) {
            stk_devset_add(&avoid, i);
        }
    }
    (void)snprintf(label, sizeof label, "run %s step %s", x->config.run,
                   stk_exec_step(x, x->outside.claim.task)->name);
    if (!stk_sched_claim(x->sched, x->outside.claim.task, &avoid, &event.devices) ||
        stk_lease_claim(x->config.accel, &event.devices, now - x->outside.claim.since_ms, label,
                        NULL) < 0) {
        return 0; /* the next check tries again */
    }
    x->outside.claim.is_made = true;
    x->outside.claim.devices = event.devices;
    x->outside.claim.change_ms = now + x->outside.claim.for_ms;
    return stk_sched_fold(x->sched, &event, err);
}

/* True if a claimed device is idle. */
static bool keeps_idle(const stk_exec *x)
{
    bool is = false;
    for (uint32_t i = 0; i < x->config.capacity->n_devices; i++) {
        int64_t held = (int64_t)stk_sched_held(x->sched, i) + stk_sched_outside(x->sched, i);
        int64_t total = stk_accel_device(x->config.accel, i)->memory_bytes >> 20;
        is = is || (stk_devset_has(&x->outside.claim.devices, i) && held < MAX(total, 1));
    }
    return is;
}

static bool claims_gone(const stk_exec *x)
{
    bool is = false;
    for (uint32_t i = 0; i < x->config.capacity->n_devices; i++) {
        is = is || (stk_devset_has(&x->outside.claim.devices, i) &&
                    !stk_accel_device(x->config.accel, i)->usable);
    }
    return is;
}

/* Updates the claim after a check of the devices of others. */
static int see_to_claim(stk_exec *x, int64_t now, stk_err *err)
{
    exec_claim *c = &x->outside.claim;
    int rc = 0;
    if (!c->is_waiting) {
        c->task = stk_sched_waiter(x->sched);
        c->is_waiting = c->task != UINT32_MAX;
        c->since_ms = now;
        c->change_ms = now + claim_after_ms();
        c->for_ms = CLAIM_FOR_MS;
    }
    if (c->is_made && claims_gone(x)) { /* other devices may do */
        rc = give_up_claim(x, err);
        c->change_ms = now;
    }
    if (rc < 0 || !c->is_waiting || now < c->change_ms) {
        return rc;
    }
    if (!c->is_made) {
        return make_claim(x, now, err);
    }
    if (!keeps_idle(x)) { /* it keeps no device idle */
        c->change_ms = now + c->for_ms;
        return 0;
    }
    rc = give_up_claim(x, err);
    c->change_ms = now + c->for_ms;
    c->for_ms *= 2;
    return rc;
}

/* Ends the claim when its task no longer waits, for any reason. */
static int end_claim(stk_exec *x, stk_err *err)
{
    if (!x->outside.claim.is_waiting ||
        stk_sched_state(x->sched, x->outside.claim.task) == STK_TASK_READY) {
        return 0;
    }
    x->outside.claim.is_waiting = false;
    return give_up_claim(x, err);
}

/* --- devices of others --- */

static int look_outside(stk_exec *x, bool *ret_new, stk_err *err)
{
    exec_outside *o = &x->outside;
    int64_t now = stk_clock_mono_ms(x->config.clock);
    int64_t most = o->claim.is_made ? LOOK_MS : LOOK_MAX_MS; /* no other run holds what we claim */
    o->is_any_outside = false;
    *ret_new = false;
    STK_TRY(stk_exec_fold_outside(x->config.accel, x->sched, &o->is_any_outside, ret_new, err));
    for (uint32_t i = 0; i < x->config.capacity->n_devices; i++) {
        const stk_device *d = stk_accel_device(x->config.accel, i);
        if (x->config.capacity->devices[i].usable &&
            !d->usable) { /* another run marked it as broken */
            STK_TRY(stk_exec_gone(x, i, stk_text_or(d->trouble, "it broke"), err));
        }
    }
    o->look_for_ms = *ret_new ? LOOK_MS : MAX(o->look_for_ms * 3 / 2, LOOK_MS);
    o->look_for_ms = MIN(o->look_for_ms, most);
    o->look_ms = now + o->look_for_ms;
    return see_to_claim(x, now, err);
}

int stk_exec_lease(stk_exec *x, const stk_action *start, stk_lease *ret_lease, stk_err *err)
{
    char label[256];
    uint32_t task = start->task;
    int64_t share_mib = stk_sched_asks(x->sched, task).asks[start->i_ask].share_mib;
    stk_err busy = {0};
    STK_TRY(stk_exec_device_events(x, err)); /* earlier errors aren't this attempt's */
    (void)snprintf(label, sizeof label, "run %s step %s", x->config.run,
                   stk_exec_step(x, task)->name);
    int rc = stk_lease_take(x->config.accel, &start->devices, share_mib << 20, label, ret_lease,
                            NULL, &busy);
    if (rc != STK_E_BUSY) {
        if (rc < 0) {
            *err = busy;
        }
        return rc;
    }
    bool is_new = false;
    STK_TRY(look_outside(x, &is_new, err));
    stk_sched_event event = {.kind = STK_SE_BUSY,
                             .task = task,
                             .at_ms = stk_clock_mono_ms(x->config.clock) +
                                      (is_new ? AGAIN_MS : LOOK_MS)};
    STK_TRY(stk_sched_fold(x->sched, &event, err));
    return STK_E_BUSY;
}

static bool is_wanting(const stk_exec *x)
{
    stk_sched_counts counts;
    if (x->config.accel == NULL) {
        return false;
    }
    stk_sched_count(x->sched, &counts);
    return counts.n_wanting > 0;
}

int stk_exec_look(stk_exec *x, stk_err *err)
{
    bool is_new;
    int rc = end_claim(x, err);
    if (rc < 0 || !is_wanting(x) || stk_clock_mono_ms(x->config.clock) < x->outside.look_ms) {
        return rc;
    }
    return look_outside(x, &is_new, err);
}

/* Notes once for each run that it waits, and for whom. */
static int note_wait(stk_exec *x, stk_err *err)
{
    for (uint32_t i = 0; i < x->n_tasks; i++) {
        if (stk_sched_state(x->sched, i) != STK_TASK_READY ||
            stk_sched_asks(x->sched, i).n_asks == 0) {
            continue;
        }
        stk_sched_why why = stk_sched_explain(x->sched, i);
        if (why.what == STK_WHY_DEVICES && stk_devset_count(&why.outside) > 0) {
            const char *who = stk_fit_holders(x->config.accel, &why.outside, x->tick);
            STK_TRY(stk_err_if_null(who, err));
            x->noted_busy = true;
            return stk_exec_emit_note(x,
                                      stk_arena_printf(x->tick, "step '%s' waits for devices: %s",
                                                       stk_exec_step(x, i)->name, who),
                                      err);
        }
    }
    return 0;
}

int stk_exec_wait_devices(stk_exec *x, int64_t *wake_ms, stk_err *err)
{
    if (!is_wanting(x) || (!x->outside.is_any_outside && !x->outside.claim.is_made) || x->ended) {
        return 0;
    }
    if (*wake_ms < 0 || x->outside.look_ms < *wake_ms) {
        *wake_ms = x->outside.look_ms;
    }
    if (!x->noted_busy && x->outside.is_any_outside) {
        STK_TRY(note_wait(x, err));
    }
    return stk_exec_flush(x, err);
}
