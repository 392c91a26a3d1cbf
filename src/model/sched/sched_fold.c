/* (state, event) → state; the digest. */
#include "base/arena.h"
#include "base/map.h"
#include "base/text.h"
#include "model/sched/sched.h"
#include "model/sched/sched_internal.h"

#define NIL STK_SCHED_NIL

/* --- timers: a heap by (at_ms, task) --- */

static bool is_earlier(const stk_sched_timer *a, const stk_sched_timer *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->task < b->task;
}

/* Reserves room for all that one event may add. */
static int reserve_one(stk_sched *sched)
{
    STK_TRY(stk_array_reserve(&sched->timers, &sched->cap_timers, (uint64_t)sched->n_timers + 1,
                              sizeof *sched->timers));
    STK_TRY(stk_sched_failures_reserve(sched));
    return stk_sched_grants_reserve(sched);
}

static void timer_put(stk_sched *sched, uint32_t task)
{
    stk_sched_timer timer = {sched->nodes[task].at_ms, task};
    stk_sched_timer *heap = sched->timers;
    uint32_t i = sched->n_timers++;
    for (; i > 0 && is_earlier(&timer, &heap[(i - 1) / 2]); i = (i - 1) / 2) {
        heap[i] = heap[(i - 1) / 2];
    }
    heap[i] = timer;
}

void stk_sched_timer_drop(stk_sched *sched)
{
    stk_sched_timer *heap = sched->timers;
    uint32_t n = --sched->n_timers;
    stk_sched_timer moved = heap[n];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child + 1 < n && is_earlier(&heap[child + 1], &heap[child])) {
            child++;
        }
        if (child >= n || is_earlier(&moved, &heap[child])) {
            break;
        }
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moved;
}

bool stk_sched_timer_is_stale(const stk_sched *sched, const stk_sched_timer *timer)
{
    const stk_sched_node *node = &sched->nodes[timer->task];
    return node->state != STK_TASK_BACKOFF || node->at_ms != timer->at_ms;
}

/* --- fold --- */

static void met(stk_sched *sched, uint32_t task)
{
    uint32_t last = sched->nodes[task].last_dependent;
    if (last == NIL) {
        return;
    }
    uint32_t e = last;
    do {
        e = sched->edges[e].next;
        uint32_t i = sched->edges[e].task;
        stk_sched_node *node = &sched->nodes[i];
        if (--node->n_open == 0 && node->state == STK_TASK_WAITING) {
            stk_sched_move(sched, i, node->lookup ? STK_TASK_LOOKUP : STK_TASK_READY);
        }
    } while (e != last);
}

static void fold_failed(stk_sched *sched, const stk_sched_event *event)
{
    /* A task ended because everything ends does not cause others to be skipped. */
    bool is_cause = event->failure != STK_FAIL_CANCELLED || !stk_sched_is_stopping(sched);
    stk_sched_count_failure(sched, event->task, event->failure, event->saved);
    if (!event->is_final) {
        stk_sched_move(sched, event->task, STK_TASK_BACKOFF);
        timer_put(sched, event->task);
        return;
    }
    stk_sched_move(sched, event->task, STK_TASK_FAILED);
    if (is_cause) {
        stk_sched_doom_dependents(sched, event->task, event->task);
    }
}

static void fold_busy(stk_sched *sched, const stk_sched_event *event)
{
    /* The reply holds for all tasks with the same request. */
    stk_sched_kind *kind = stk_sched_kind_at(sched, sched->nodes[event->task].kind);
    kind->not_before_ms = event->at_ms;
    if (++kind->busy_tries >= STK_SCHED_BUSY_TRIES) {
        kind->busy_tries = 0;
        kind->n_starts = sched->n_starts;
        kind->has_reserved = kind->is_claimed;
    }
}

/* True if the task's state allows the event. */
static bool is_possible(const stk_sched *sched, const stk_sched_event *event)
{
    const stk_sched_node *node = &sched->nodes[event->task];
    stk_task_state state = node->state;
    bool is_current = event->attempt == 0 || event->attempt == node->attempt;
    bool is_unstarted =
        state == STK_TASK_LOOKUP || state == STK_TASK_READY || state == STK_TASK_BACKOFF;
    switch (event->kind) {
    case STK_SE_MISSED:
        return state == STK_TASK_LOOKUP;
    case STK_SE_BUSY:
    case STK_SE_CLAIMED:
        return state == STK_TASK_READY;
    case STK_SE_GROWN:
        return state == STK_TASK_WAITING || state == STK_TASK_LOOKUP; /* not queued by its kind */
    case STK_EV_TASK_CACHED:
        return state == STK_TASK_LOOKUP || state == STK_TASK_READY;
    case STK_EV_TASK_STARTED:
        return event->attempt == node->attempt + 1 && is_unstarted &&
               stk_sched_may_take(sched, event);
    case STK_EV_TASK_SUCCEEDED:
        return state == STK_TASK_RUNNING && is_current;
    case STK_EV_TASK_FAILED: /* a task that can never start fails too */
        return is_current && (state == STK_TASK_RUNNING || (is_unstarted && event->is_final &&
                                                            event->failure == STK_FAIL_RESOURCES));
    case STK_EV_TASK_RETRYING:
        return (state == STK_TASK_BACKOFF || state == STK_TASK_READY) && node->attempt > 0 &&
               (!event->is_fallback ||
                (node->failures != NIL && stk_sched_policy_of(sched, event->task)->fallback != 0));
    case STK_EV_TASK_SKIPPED:
        return state == STK_TASK_WAITING && node->cause != NIL;
    case STK_EV_TASK_CANCELLED:
        return !stk_state_is_final(state);
    default:
        return false;
    }
}

/* `grown`: the new kind of a task that retries with more, else NIL. */
static void fold_task(stk_sched *sched, const stk_sched_event *event, uint32_t grown)
{
    uint32_t task = event->task;
    stk_sched_node *node = &sched->nodes[task];
    switch (event->kind) {
    case STK_SE_MISSED:
        stk_sched_move(sched, task, STK_TASK_READY);
        break;
    case STK_SE_BUSY:
        fold_busy(sched, event);
        break;
    case STK_SE_CLAIMED:
        stk_sched_set_claimed(sched, task, &event->devices);
        break;
    case STK_SE_GROWN:
        stk_sched_count_failure(sched, task, STK_FAIL_HOST_OOM,
                                false); /* the class doesn't matter here */
        stk_sched_count_grown(sched, task);
        node->kind = grown;
        break;
    case STK_EV_TASK_CACHED:
        stk_sched_move(sched, task, STK_TASK_CACHED);
        met(sched, task);
        break;
    case STK_EV_TASK_STARTED:
        node->attempt++;
        node->at_ms = 0;
        sched->n_starts++;
        stk_sched_move(sched, task, STK_TASK_RUNNING);
        stk_sched_take(sched, event);
        break;
    case STK_EV_TASK_SUCCEEDED:
        stk_sched_move(sched, task, STK_TASK_SUCCEEDED);
        met(sched, task);
        break;
    case STK_EV_TASK_FAILED:
        fold_failed(sched, event);
        break;
    case STK_EV_TASK_RETRYING:
        node->at_ms = event->at_ms;
        stk_sched_move(sched, task, STK_TASK_BACKOFF);
        timer_put(sched, task);
        if (grown != NIL) {
            node->kind = grown;
            stk_sched_count_grown(sched, task);
        }
        if (event->is_fallback) {
            stk_sched_set_fallback(sched, task);
        }
        break;
    case STK_EV_TASK_SKIPPED:
        stk_sched_move(sched, task, STK_TASK_SKIPPED);
        break;
    case STK_EV_TASK_CANCELLED:
        stk_sched_move(sched, task, STK_TASK_CANCELLED);
        if (!stk_sched_is_stopping(sched)) {
            stk_sched_doom_dependents(sched, task, task);
        }
        break;
    default:
        break;
    }
}

static const char *kind_word(int kind)
{
    switch (kind) {
    case STK_SE_MISSED:
        return "missed";
    case STK_SE_BUSY:
        return "busy";
    case STK_SE_OUTSIDE:
        return "outside";
    case STK_SE_GROWN:
        return "grown";
    case STK_SE_CLAIMED:
        return "claimed";
    case STK_SE_GONE:
        return "gone";
    default:
        return stk_event_word((stk_event_kind)kind);
    }
}

static int fold_device(stk_sched *sched, const stk_sched_event *event, stk_err *err)
{
    uint32_t i = event->device;
    if (i >= sched->config.host.n) {
        return stk_err_set(err, STK_E_PROTOCOL,
                           "event '%s' names device %u, but the host has %u devices",
                           kind_word(event->kind), i, sched->config.host.n);
    }
    if (event->kind == STK_SE_GONE) {
        stk_sched_set_gone(sched, i);
    } else if (event->mib == sched->devices[i].outside_mib) {
        return 0; /* unchanged */
    } else {
        stk_sched_set_outside(sched, i, event->mib);
    }
    sched->is_idle = false;
    return 0;
}

static int fold_of_task(stk_sched *sched, const stk_sched_event *event, stk_err *err)
{
    uint32_t grown = NIL;
    if (event->task >= sched->n_nodes) {
        return stk_err_set(err, STK_E_PROTOCOL,
                           "event '%s' names task %u, but the run has %u tasks",
                           kind_word(event->kind), event->task, sched->n_nodes);
    }
    if (!is_possible(sched, event)) {
        const stk_sched_node *node = &sched->nodes[event->task];
        return stk_err_set(
            err, STK_E_PROTOCOL,
            "event '%s' (attempt %u) is impossible for task %u, which is %s "
            "(attempt %u)%s",
            kind_word(event->kind), event->attempt, event->task, stk_state_word(node->state),
            node->attempt,
            stk_text_when(event->kind == STK_EV_TASK_STARTED, ", or for its devices"));
    }
    if (reserve_one(sched) < 0) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory for an event of task %u", event->task);
    }
    if (event->kind == STK_SE_GROWN ||
        (event->kind == STK_EV_TASK_RETRYING && event->grows != STK_GROWS_NOTHING)) {
        grown = stk_sched_grown_kind(sched, event->task, event->grows);
        if (grown == NIL) {
            return stk_err_set(err, STK_E_PROTOCOL, "task %u can't ask for more than it has",
                               event->task);
        }
    }
    fold_task(sched, event, grown);
    sched->is_idle = false;
    return 0;
}

int stk_sched_fold(stk_sched *sched, const stk_sched_event *event, stk_err *err)
{
    switch (event->kind) {
    case STK_EV_RUN_CREATED:
    case STK_EV_TASK_ADDED:
    case STK_EV_NOTE:
    case STK_EV_METADATA:
        return 0;
    case STK_EV_RUN_STARTED:
        sched->is_ended = false;
        break;
    case STK_EV_RUN_CANCELLING:
        sched->is_cancelling = true;
        break;
    case STK_EV_RUN_ENDED:
        sched->is_ended = true;
        break;
    case STK_SE_OUTSIDE:
    case STK_SE_GONE:
        return fold_device(sched, event, err);
    default:
        if (event->kind < 0 || event->kind > STK_SE_GONE) {
            return stk_err_set(err, STK_E_PROTOCOL, "unknown event kind %d", event->kind);
        }
        return fold_of_task(sched, event, err);
    }
    sched->is_idle = false;
    return 0;
}

/* --- digest --- */

uint64_t stk_sched_digest(const stk_sched *sched)
{
    uint64_t head[] = {sched->n_nodes, sched->n_edges, (uint64_t)sched->config.mode,
                       sched->is_cancelling, sched->is_ended};
    uint64_t hash = stk_hash_bytes(head, sizeof head, 0);
    hash = stk_hash_bytes(sched->used, sizeof sched->used, hash);
    for (uint32_t i = 0; i < sched->config.host.n; i++) {
        const stk_sched_device *d = &sched->devices[i];
        uint64_t words[] = {(uint64_t)d->own_mib, d->n_holders, d->is_whole};
        hash = stk_hash_bytes(words, sizeof words, hash);
    }
    for (uint32_t i = 0; i < sched->n_nodes; i++) {
        const stk_sched_node *node = &sched->nodes[i];
        stk_task_state state = node->state;
        if (state == STK_TASK_LOOKUP || state == STK_TASK_BACKOFF) {
            state = STK_TASK_READY; /* only non-durable events distinguish them */
        }
        uint64_t words[] = {state,      node->attempt, node->n_open,         node->cause,
                            node->kind, node->retry,   (uint64_t)node->at_ms};
        hash = stk_hash_bytes(words, sizeof words, hash);
        if (node->failures != NIL) {
            hash = stk_sched_digest_failures(sched, i, hash);
        }
    }
    return hash;
}
