/* (state, event) → state; the retry policy; the digest. */
#include <math.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/map.h"
#include "sched/sched.h"
#include "sched/sched_internal.h"

#define NIL STK_SCHED_NIL

/* --- timers: a heap by (at_ms, task) --- */

static bool is_earlier(const stk_sched_timer *a, const stk_sched_timer *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->task < b->task;
}

static int timers_reserve(stk_sched *sched)
{
    if (sched->n_timers == sched->cap_timers) {
        uint32_t cap = sched->cap_timers < 16 ? 16 : sched->cap_timers * 2;
        stk_sched_timer *bigger = reallocarray(sched->timers, cap, sizeof *bigger);
        if (bigger == NULL) {
            return STK_E_NOMEM;
        }
        sched->timers = bigger;
        sched->cap_timers = cap;
    }
    return 0;
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

/* --- retries --- */

/* What the failures so far take from max_retries. */
static uint64_t retries_spent(const stk_sched *sched, uint32_t n_charged, uint32_t n_free)
{
    uint32_t free_retries = sched->config.free_retries;
    return (uint64_t)n_charged + (n_free > free_retries ? n_free - free_retries : 0);
}

static uint64_t mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static int64_t retry_delay(const stk_sched *sched, uint32_t task)
{
    const stk_sched_policy *policy = stk_sched_policy_of(sched, task);
    uint32_t attempt = sched->nodes[task].attempt;
    uint64_t draw = mix(mix(mix(sched->config.seed) ^ task) ^ attempt);
    double unit = (double)(draw >> 11) * 0x1p-53;
    double n_waits = attempt > 0 ? (double)(attempt - 1) : 0;
    double ms = (double)policy->delay_ms * pow(policy->backoff, n_waits);
    ms *= 1 + policy->jitter * (2 * unit - 1);
    if (!(ms > 0)) { /* not a number, too */
        return 0;
    }
    return ms < (double)STK_LIMIT_TIMEOUT_MS ? (int64_t)(ms + 0.5) : STK_LIMIT_TIMEOUT_MS;
}

bool stk_sched_retry(const stk_sched *sched, uint32_t task, stk_failure failure,
                     int64_t *ret_delay_ms)
{
    const stk_sched_node *node = &sched->nodes[task];
    bool is_charged = stk_failure_is_charged(failure) != 0;
    *ret_delay_ms = 0;
    if (failure == STK_FAIL_CANCELLED || stk_sched_is_stopping(sched) ||
        retries_spent(sched, node->n_charged + is_charged, node->n_free + !is_charged) >
            stk_sched_policy_of(sched, task)->max_retries) {
        return false;
    }
    *ret_delay_ms = retry_delay(sched, task);
    return true;
}

bool stk_sched_is_last_attempt(const stk_sched *sched, uint32_t task)
{
    const stk_sched_node *node = &sched->nodes[task];
    return retries_spent(sched, node->n_charged + 1, node->n_free) >
           stk_sched_policy_of(sched, task)->max_retries;
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
    stk_sched_node *node = &sched->nodes[event->task];
    /* A task that was ended because everything ends is nobody's cause. */
    bool is_cause = event->failure != STK_FAIL_CANCELLED || !stk_sched_is_stopping(sched);
    if (stk_failure_is_charged(event->failure)) {
        node->n_charged++;
    } else {
        node->n_free++;
    }
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
    /* The answer holds for all that ask for as much of the same. */
    stk_sched_kind *kind = stk_sched_kind_at(sched, sched->nodes[event->task].kind);
    kind->not_before_ms = event->at_ms;
    if (++kind->busy_tries >= STK_SCHED_BUSY_TRIES) {
        kind->busy_tries = 0;
        kind->n_starts = sched->n_starts;
    }
}

/* Whether the task's state allows the event. */
static bool is_possible(const stk_sched *sched, const stk_sched_event *event)
{
    const stk_sched_node *node = &sched->nodes[event->task];
    stk_task_state state = node->state;
    bool is_current = event->attempt == 0 || event->attempt == node->attempt;
    switch (event->kind) {
    case STK_SE_MISSED:
        return state == STK_TASK_LOOKUP;
    case STK_SE_BUSY:
        return state == STK_TASK_READY;
    case STK_EV_TASK_CACHED:
        return state == STK_TASK_LOOKUP || state == STK_TASK_READY;
    case STK_EV_TASK_STARTED:
        return event->attempt == node->attempt + 1 &&
               (state == STK_TASK_LOOKUP || state == STK_TASK_READY || state == STK_TASK_BACKOFF);
    case STK_EV_TASK_SUCCEEDED:
    case STK_EV_TASK_FAILED:
        return state == STK_TASK_RUNNING && is_current;
    case STK_EV_TASK_RETRYING:
        return state == STK_TASK_BACKOFF || (state == STK_TASK_READY && node->attempt > 0);
    case STK_EV_TASK_SKIPPED:
        return state == STK_TASK_WAITING && node->cause != NIL;
    case STK_EV_TASK_CANCELLED:
        return !stk_state_is_final(state);
    default:
        return false;
    }
}

static void fold_task(stk_sched *sched, const stk_sched_event *event)
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
    case STK_EV_TASK_CACHED:
        stk_sched_move(sched, task, STK_TASK_CACHED);
        met(sched, task);
        break;
    case STK_EV_TASK_STARTED:
        node->attempt++;
        node->at_ms = 0;
        sched->n_starts++;
        stk_sched_move(sched, task, STK_TASK_RUNNING);
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
    return kind == STK_SE_MISSED ? "missed"
           : kind == STK_SE_BUSY ? "busy"
                                 : stk_event_word((stk_event_kind)kind);
}

int stk_sched_fold(stk_sched *sched, const stk_sched_event *event, stk_err *err)
{
    switch (event->kind) {
    case STK_EV_RUN_CREATED:
    case STK_EV_TASK_ADDED:
    case STK_EV_NOTE:
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
    default:
        if (event->kind < 0 || event->kind > STK_SE_BUSY) {
            return stk_err_set(err, STK_E_PROTOCOL, "event kind %d doesn't exist", event->kind);
        }
        if (event->task >= sched->n_nodes) {
            return stk_err_set(err, STK_E_PROTOCOL, "event '%s' names task %u, the run has %u",
                               kind_word(event->kind), event->task, sched->n_nodes);
        }
        if (!is_possible(sched, event)) {
            const stk_sched_node *node = &sched->nodes[event->task];
            return stk_err_set(err, STK_E_PROTOCOL,
                               "event '%s' (attempt %u) is impossible for task %u, which is %s "
                               "(attempt %u)",
                               kind_word(event->kind), event->attempt, event->task,
                               stk_state_word(node->state), node->attempt);
        }
        if (timers_reserve(sched) < 0) {
            return stk_err_set(err, STK_E_NOMEM, "out of memory for the retry of task %u",
                               event->task);
        }
        fold_task(sched, event);
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
    for (uint32_t i = 0; i < sched->n_nodes; i++) {
        const stk_sched_node *node = &sched->nodes[i];
        stk_task_state state = node->state;
        if (state == STK_TASK_LOOKUP || state == STK_TASK_BACKOFF) {
            state = STK_TASK_READY; /* told apart by what isn't durable */
        }
        uint64_t words[] = {state,        node->attempt, node->n_charged,
                            node->n_free, node->n_open,  node->cause,
                            node->kind,   node->retry,   (uint64_t)node->at_ms};
        hash = stk_hash_bytes(words, sizeof words, hash);
    }
    return hash;
}
