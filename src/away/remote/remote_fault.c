/* Handles an unreachable or full share: how long a task waits, and who reports it. Minutes without
 * a share lose no finished result and no job that can begin later. If a thousand tasks wait for the
 * share, one reports it. */
#include <stdio.h>
#include <sys/param.h>

#include "away/remote/remote_private.h"
#include "base/units.h"

enum {
    STEPS = 900,     /* the first wait is this part of the patience: a second of 15 minutes */
    DOUBLINGS = 5,   /* … the longest, half a minute */
    NOTE_MS = 60000, /* between two notes of one backend */
    QUIET_MS = 100
};

static int64_t unit_ms(void)
{
    int64_t unit = stk_share_patience_ms() / STEPS;
    return MAX(unit, 1);
}

static void note(remote_backend *b, remote_task *t, const stk_err *err, int64_t now)
{
    char text[480], time[32];
    if (b->has_trouble || (b->noted_ms > 0 && now - b->noted_ms < NOTE_MS)) {
        return;
    }
    (void)stk_units_format_duration(stk_share_patience_ms(), time, sizeof time);
    (void)snprintf(text, sizeof text, "%s: %.300s; retrying for %s",
                   t->phase == REMOTE_STAGING
                       ? "can't put its inputs into the share yet"
                       : "it has ended, but its results can't be fetched from the share yet",
                   err->text, time);
    stk_remote_tell_wait(b, t, "", text);
    b->has_trouble = true;
    b->noted_ms = now;
}

bool stk_remote_wait_out(remote_backend *b, remote_task *t, const stk_err *err)
{
    int64_t now = stk_remote_now_ms();
    if (err->code == STK_E_BUSY) { /* the run's record is being written */
        stk_remote_queue(b, t, t->phase, now + QUIET_MS);
        return true;
    }
    if (t->trouble_ms == 0) {
        t->trouble_ms = now;
    }
    if (!stk_share_may_pass(err) || now - t->trouble_ms >= stk_share_patience_ms()) {
        return false;
    }
    note(b, t, err, now);
    if (t->stop_wanted) {
        stk_remote_stop_within(b, REMOTE_STOP_SOON_MS);
    }
    uint32_t doublings = MIN(t->n_tries, DOUBLINGS);
    t->n_tries++;
    stk_remote_queue(b, t, t->phase, now + (unit_ms() << doublings));
    return true;
}

void stk_remote_no_trouble(remote_backend *b, remote_task *t)
{
    b->has_trouble = false;
    t->trouble_ms = 0;
    t->n_tries = 0;
}

/* --- stopping what waits for the share --- */

static void unqueue(remote_backend *b, remote_task *t)
{
    for (remote_task **at = &b->queue; t->is_queued && *at != NULL; at = &(*at)->next) {
        if (*at == t) {
            *at = t->next;
            if (b->queue_end == &t->next) {
                b->queue_end = at;
            }
            t->next = NULL;
            t->is_queued = false;
            return;
        }
    }
}

void stk_remote_end_now(remote_backend *b, remote_task *t, stk_failure failure, const char *text)
{
    stk_outcome o = STK_OUTCOME_UNKNOWN;
    o.failure = failure;
    (void)snprintf(o.text, sizeof o.text, "%s", text);
    unqueue(b, t);
    stk_remote_tell_end(b, t, &o);
}

/* A worker may hang in a request for the task, and nobody waits for that. The driver ends a job
 * that may run; an ended one gets a moment to be collected. */
void stk_remote_stop_waiting(remote_backend *b, remote_task *t)
{
    if (t->phase == REMOTE_STAGING && !t->job.look) {
        stk_remote_end_now(b, t, t->stop_why, "cancelled before it was submitted");
    } else if (t->phase == REMOTE_STAGING) {
        unqueue(b, t);
        t->job.attach = true; /* the driver searches it, and doesn't submit it only to end it */
        stk_remote_give(b, t);
    } else if (t->phase == REMOTE_COLLECTING) {
        stk_remote_stop_within(b, t->trouble_ms > 0 ? REMOTE_STOP_SOON_MS : REMOTE_STOP_MS);
    }
}

void stk_remote_stop_within(remote_backend *b, int64_t ms)
{
    int64_t due = stk_remote_now_ms() + ms;
    if (b->stop_due_ms == 0 || due < b->stop_due_ms) {
        b->stop_due_ms = due;
        stk_remote_ring(b);
    }
}

void stk_remote_stop_due(remote_backend *b)
{
    if (b->stop_due_ms == 0 || stk_remote_now_ms() < b->stop_due_ms) {
        return;
    }
    b->stop_due_ms = 0;
    for (uint32_t i = 0; i < b->n_slots; i++) {
        for (remote_task *t = b->table[i]; t != NULL; t = t->same_slot) {
            if (t->phase == REMOTE_COLLECTING && t->stop_wanted) {
                stk_remote_end_now(
                    b, t, t->stop_why,
                    "ended on request; its results couldn't be fetched from the share in time");
            }
        }
    }
}
