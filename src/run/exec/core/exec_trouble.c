/* Failing devices: assigns the driver's errors to the attempts on the device, and removes a device
 * that needs a reset from the pool. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "run/exec/core/exec_devices.h"
#include "run/exec/core/exec_event.h"
#include "run/exec/core/exec_loop.h"
#include "sys/proc.h"

static const char *name_of(stk_exec *x, uint32_t i_device, stk_arena *arena)
{
    if (i_device >= stk_accel_n_devices(x->config.accel)) {
        return "a device";
    }
    const stk_device *d = stk_accel_device(x->config.accel, i_device);
    return stk_arena_printf(arena, "%s %d", d->noun, d->index);
}

int stk_exec_gone(stk_exec *x, uint32_t i_device, const char *why, stk_err *err)
{
    stk_sched_event gone = {.kind = STK_SE_GONE, .device = i_device};
    if (stk_devset_has(&x->outside.gone, i_device)) {
        return 0;
    }
    stk_devset_add(&x->outside.gone, i_device);
    STK_TRY(stk_sched_fold(x->sched, &gone, err));
    const char *note =
        stk_arena_printf(x->tick, "%s is out of the pool: %s", name_of(x, i_device, x->tick), why);
    return stk_exec_emit_note(x, note, err);
}

/* Takes a device out of the pool, for every run on this host, until somebody clears it. */
static int quarantine(stk_exec *x, uint32_t i_device, const char *why, stk_err *err)
{
    stk_err trouble = {0};
    const char *text = why;
    if (stk_accel_quarantine(x->config.accel, i_device, why, &trouble) < 0) {
        char text_why[1200];
        text = stk_arena_printf(x->tick, "%s; other runs may still use the device: %s", why,
                                stk_err_format(&trouble, text_why, (int)sizeof text_why));
    }
    STK_TRY(stk_err_if_null(text, err));
    return stk_exec_gone(x, i_device, text, err);
}

static const char *overrides_of(const stk_exec *x, uint32_t task)
{
    return stk_text_or(stk_exec_step(x, task)->settings->xid, getenv("STOKER_XID_POLICY"));
}

enum { ANYBODY = UINT32_MAX, ANOTHER_RUN = UINT32_MAX - 1 };

/* True if the process is the task's, which has its own session. */
static bool descends(pid_t task, pid_t pid)
{
    stk_proc_members members = {0};
    bool found = false;
    (void)stk_proc_members_find(task, &members);
    for (uint32_t i = 0; i < members.n; i++) {
        found = found || members.pids[i] == pid;
    }
    stk_proc_members_done(&members);
    return found;
}

/* Finds the task of the process that the driver names, among those that share the device. ANYBODY:
 * unknown, because the number may be the host's, and an ended process has no session. ANOTHER_RUN:
 * the process holds a lease of the device and belongs to none of our tasks. */
static uint32_t named_by(const stk_exec *x, const stk_device_event *event)
{
    pid_t session = event->pid > 0 ? getsid(event->pid) : -1;
    bool is_leased = session > 0 && stk_lease_is_part(x->config.accel, event->i_device, event->pid);
    for (uint32_t i = 0; event->pid > 0 && i < x->n_tasks; i++) {
        const exec_slot *slot = x->tasks[i].slot;
        if (slot != NULL && slot->pid > 0 && stk_devset_has(&slot->devices, event->i_device) &&
            (slot->pid == event->pid || slot->pid == session ||
             (is_leased && descends((pid_t)slot->pid, event->pid)))) {
            return i;
        }
    }
    return is_leased && event->pid != getpid() ? ANOTHER_RUN : ANYBODY;
}

/* Keeps a device's error with the attempts that hold the device. An error that asks only for a
 * restart concerns the named process; all others concern the device. */
static int take_event(stk_exec *x, const stk_device_event *event, stk_err *err)
{
    STK_BUF_AUTO steps = STK_BUF_INIT(1 << 20);
    stk_xid_action worst = STK_XID_IGNORE;
    uint32_t named = named_by(x, event);
    for (uint32_t i = 0; i < x->n_tasks; i++) {
        exec_slot *slot = x->tasks[i].slot;
        if (slot == NULL || !stk_devset_has(&slot->devices, event->i_device)) {
            continue;
        }
        stk_xid_action action = stk_xid_policy(event->xid, overrides_of(x, i));
        if (named != ANYBODY && named != i && action < STK_XID_QUARANTINE) {
            continue;
        }
        stk_buf_separate(&steps, ", ");
        stk_buf_printf(&steps, "'%s'", stk_exec_step(x, i)->name);
        worst = MAX(action, worst);
        if (event->xid > 0 && action != STK_XID_IGNORE) {
            x->tasks[i].xid = event->xid;
            x->tasks[i].xid_text = stk_arena_dup(x->arena, event->text);
            x->tasks[i].xid_device = stk_accel_device(x->config.accel, event->i_device)->uuid;
        }
    }
    STK_TRY(stk_buf_check(&steps, err));
    if (steps.len == 0) {
        return 0; /* a device that this run doesn't hold */
    }
    const char *care = stk_text_when(worst == STK_XID_NODE, "; the whole host needs a check");
    STK_TRY(stk_exec_emit_note(x,
                               stk_arena_printf(x->tick, "%s, with step %s on it: %s%s",
                                                name_of(x, event->i_device, x->tick), steps.data,
                                                event->text, care),
                               err));
    if (worst < STK_XID_QUARANTINE) {
        return 0;
    }
    return quarantine(x, event->i_device, event->text, err);
}

int stk_exec_device_events(stk_exec *x, stk_err *err)
{
    stk_device_event event;
    while (stk_accel_next_event(x->config.accel, &event)) {
        STK_TRY(take_event(x, &event, err));
    }
    return 0;
}

/* After a hardware failure: quarantines the attempt's devices that don't answer. */
static int quarantine_lost(stk_exec *x, const exec_slot *slot, stk_err *err)
{
    for (uint32_t i = 0; i < stk_accel_n_devices(x->config.accel); i++) {
        stk_device_state state;
        stk_err lost = {0};
        if (stk_devset_has(&slot->devices, i) &&
            stk_accel_state(x->config.accel, i, &state, &lost) == STK_E_ENV) {
            STK_TRY(quarantine(x, i, lost.text, err));
        }
    }
    return 0;
}

int stk_exec_blame(stk_exec *x, uint32_t task, exec_failure *failure, stk_err *err)
{
    const exec_slot *slot = x->tasks[task].slot;
    if (slot == NULL || stk_devset_count(&slot->devices) == 0 ||
        failure->class == STK_FAIL_CANCELLED) {
        return 0;
    }
    exec_task *t = &x->tasks[task];
    if (t->xid != 0) {
        stk_outcome blamed = {.failure = failure->class};
        (void)snprintf(blamed.text, sizeof blamed.text, "%s", failure->text);
        stk_runner_blame_xid(t->xid, t->xid_text, t->xid_device, &blamed);
        failure->class = blamed.failure;
        failure->text = stk_arena_dup(x->scratch, blamed.text);
        return stk_err_if_null(failure->text, err);
    }
    if (failure->class == STK_FAIL_DEVICE_LOST || failure->class == STK_FAIL_ECC) {
        return quarantine_lost(x, slot, err);
    }
    return 0;
}

/* Says why each suitable device has left the pool. */
static const char *lost_text(stk_exec *x, uint32_t task)
{
    stk_sched_asking asking = stk_sched_asks(x->sched, task);
    const char *text = "every device that it could run on is out of the pool of this host";
    const char *between = ": ";
    for (uint32_t i = 0; i < stk_accel_n_devices(x->config.accel) && text != NULL; i++) {
        const stk_device *d = stk_accel_device(x->config.accel, i);
        bool is_wanted = false;
        for (uint32_t k = 0; k < asking.n_asks; k++) {
            is_wanted = is_wanted || stk_devset_has(&asking.asks[k].wanted, i);
        }
        if (is_wanted && stk_devset_has(&x->outside.gone, i)) {
            const char *why = d->usable ? "it broke" : stk_text_or(d->trouble, "it broke");
            text = stk_arena_printf(x->arena, "%s%s%s", text, between, why);
            between = "; ";
        }
    }
    return text;
}

int stk_exec_fail_gone(stk_exec *x, uint32_t task, stk_err *err)
{
    STK_BUF_AUTO buf = STK_BUF_INIT(1 << 20);
    const char *text = lost_text(x, task);
    STK_TRY(stk_err_if_null(text, err));
    stk_json_open(&buf, NULL, '{');
    stk_json_put_text(&buf, "class", stk_failure_word(STK_FAIL_RESOURCES));
    stk_json_put_bool(&buf, "final", true);
    stk_json_put_text(&buf, "text", text);
    stk_json_close(&buf, '}');
    if (x->error == NULL) {
        const char *who = stk_exec_who(x, task, x->scratch);
        STK_TRY(stk_err_if_null(who, err));
        x->error = stk_arena_printf(x->arena, "%s failed: %s", who, text);
    }
    STK_TRY(stk_err_if_null(x->error, err));
    stk_sched_event failed = {
        .kind = STK_EV_TASK_FAILED, .task = task, .failure = STK_FAIL_RESOURCES, .is_final = true};
    return stk_exec_emit(x, &failed, &buf, err);
}
