/* state → actions. */

#include <sys/param.h>

#include "model/sched/sched.h"
#include "model/sched/sched_internal.h"

#define NIL STK_SCHED_NIL

typedef struct stk_sched_out {
    stk_action *actions;
    uint32_t n, max;
} stk_sched_out;

static bool put(stk_sched_out *out, stk_action action)
{
    if (out->n == out->max) {
        return false;
    }
    out->actions[out->n++] = action;
    return true;
}

/* Puts one action for each task of a list, while there is room. */
static void put_list(const stk_sched *sched, stk_sched_out *out, stk_sched_list list,
                     stk_action_kind kind)
{
    for (uint32_t i = list.first; i != NIL; i = sched->nodes[i].next) {
        const stk_sched_node *node = &sched->nodes[i];
        uint32_t cause = kind == STK_ACT_SKIP ? node->cause : NIL;
        if (!put(out, (stk_action){.kind = kind,
                                   .task = i,
                                   .attempt = node->attempt,
                                   .cause = cause,
                                   .i_ask = STK_SCHED_NO_ASK})) {
            return;
        }
    }
}

/* Makes retries ready whose time has come. */
static void wake_due(stk_sched *sched, int64_t now_ms)
{
    while (sched->n_timers > 0) {
        stk_sched_timer first = sched->timers[0];
        if (stk_sched_timer_is_stale(sched, &first)) {
            stk_sched_timer_drop(sched);
        } else if (first.at_ms <= now_ms) {
            stk_sched_timer_drop(sched);
            stk_sched_move(sched, first.task, STK_TASK_READY);
        } else {
            return;
        }
    }
}

static void wake_no_later(int64_t *wake_ms, int64_t at_ms)
{
    if (*wake_ms < 0 || at_ms < *wake_ms) {
        *wake_ms = at_ms;
    }
}

/* --- starts --- */

static void sift_down(stk_sched_candidate *heap, uint32_t n, uint32_t i)
{
    stk_sched_candidate moved = heap[i];
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child + 1 < n && heap[child + 1].seq < heap[child].seq) {
            child++;
        }
        if (child >= n || moved.seq < heap[child].seq) {
            break;
        }
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moved;
}

/* Collects the first task of each kind that fits now, or that may need to reserve. */
static uint32_t gather(const stk_sched *sched, int64_t now_ms, const int64_t free[DIM_N],
                       int64_t *wake_ms)
{
    static const int64_t nothing[DIM_N];
    stk_sched_candidate *heap = sched->candidates;
    uint32_t n = 0;
    for (uint32_t i = 0; i < sched->n_live; i++) {
        const stk_sched_kind *kind = stk_sched_kind_at(sched, sched->live[i]);
        bool is_busy = kind->not_before_ms > now_ms;
        bool is_starved = stk_sched_is_starved(sched, kind);
        if (is_busy) {
            wake_no_later(wake_ms, kind->not_before_ms);
        }
        if (is_starved || (!is_busy && stk_sched_fits(kind->ask, free, nothing))) {
            uint32_t first = kind->ready.first;
            heap[n++] = (stk_sched_candidate){sched->nodes[first].seq, sched->live[i], first,
                                              is_starved, is_busy};
        }
    }
    for (uint32_t i = n / 2; i-- > 0;) {
        sift_down(heap, n, i);
    }
    return n;
}

/* What this call has neither given away nor reserved yet. */
typedef struct stk_sched_left {
    int64_t free[DIM_N];
    int64_t reserve[DIM_N]; /* later tasks must leave this much free */
    bool has_looked;        /* the view of the devices is current */
} stk_sched_left;

/* True if the first task of a kind can start now; sets its devices. */
static bool fits_now(const stk_sched *sched, const stk_sched_kind *kind, stk_sched_left *left,
                     stk_action *action)
{
    const stk_sched_wish *wish = stk_sched_wish_of(sched, kind);
    if (!stk_sched_fits(kind->ask, left->free, left->reserve)) {
        return false;
    }
    action->i_ask = STK_SCHED_NO_ASK;
    return wish == NULL || stk_sched_place(sched, wish, &action->i_ask, &action->devices);
}

static void give_away(const stk_sched *sched, const stk_sched_kind *kind, stk_sched_left *left,
                      const stk_action *action)
{
    const stk_sched_wish *wish = stk_sched_wish_of(sched, kind);
    for (int d = 0; d < DIM_RATIONED; d++) {
        left->free[d] -= kind->ask[d];
    }
    if (wish != NULL) {
        stk_sched_view_take(sched, &wish->asks[action->i_ask], &action->devices);
    }
}

/* Reserves for a kind that has waited long enough. Not if it waits for other runs, or for a place.
 */
static void keep_back(const stk_sched *sched, stk_sched_kind *kind, stk_sched_left *left)
{
    if (stk_sched_is_place_full(kind->ask, left->free)) {
        return;
    }
    if (kind->wish != NIL) {
        if (!stk_sched_reserve_devices(sched, kind)) {
            return;
        }
        stk_sched_view_close(sched, &kind->reserved);
    }
    for (int d = 0; d < DIM_RATIONED; d++) {
        left->reserve[d] = MAX(kind->ask[d], left->reserve[d]);
    }
}

/* Puts starts in the order in which tasks became ready. Skips a kind that doesn't fit. If that kind
 * has waited long enough, later ones must leave it what it needs, so that it is next. */
static void put_starts(const stk_sched *sched, stk_sched_out *out, int64_t now_ms, int64_t *wake_ms)
{
    stk_sched_candidate *heap = sched->candidates;
    stk_sched_left left = {.has_looked = false};
    stk_sched_free_now(sched, left.free);
    if (!stk_sched_fits(sched->least, left.free, left.reserve)) {
        return; /* nothing can start before a running task ends */
    }
    uint32_t n = gather(sched, now_ms, left.free, wake_ms);
    while (n > 0 && out->n < out->max && stk_sched_fits(sched->least, left.free, left.reserve)) {
        stk_sched_candidate *first = &heap[0];
        stk_sched_kind *kind = stk_sched_kind_at(sched, first->kind);
        const stk_sched_node *node = &sched->nodes[first->task];
        stk_action action = {
            .kind = STK_ACT_START, .task = first->task, .attempt = node->attempt + 1, .cause = NIL};
        uint32_t following = NIL;
        if (kind->wish != NIL && !left.has_looked) {
            stk_sched_look(sched);
            left.has_looked = true;
        }
        if (!first->is_busy && fits_now(sched, kind, &left, &action)) {
            put(out, action);
            give_away(sched, kind, &left, &action);
            following = node->next;
        } else if (first->is_starved) {
            keep_back(sched, kind, &left);
        }
        if (following != NIL) {
            *first = (stk_sched_candidate){sched->nodes[following].seq, first->kind, following,
                                           false, false};
        } else {
            heap[0] = heap[--n];
        }
        if (n > 0) {
            sift_down(heap, n, 0);
        }
    }
}

/* Fails tasks whose devices are gone for good. */
static void put_fails(const stk_sched *sched, stk_sched_out *out)
{
    for (uint32_t i = 0; sched->is_any_gone && i < sched->n_live; i++) {
        const stk_sched_kind *kind = stk_sched_kind_at(sched, sched->live[i]);
        const stk_sched_wish *wish = stk_sched_wish_of(sched, kind);
        if (wish != NULL && wish->is_lost) {
            put_list(sched, out, kind->ready, STK_ACT_FAIL);
        }
    }
}

/* --- stopping --- */

static void put_stops(const stk_sched *sched, stk_sched_out *out)
{
    bool is_graceful = !sched->is_cancelling && sched->config.mode == STK_MODE_STOP;
    uint64_t n_idle = sched->n_nodes - sched->n_final - sched->n[STK_TASK_RUNNING];
    if (!is_graceful) {
        /* STOP repeats until the task is final, so it must not crowd out the other actions. */
        uint32_t max = out->max;
        uint32_t half = max - max / 2;
        out->max = max - (uint32_t)MIN(n_idle, half);
        put_list(sched, out, sched->lists[STK_TASK_RUNNING], STK_ACT_STOP);
        out->max = max;
    }
    put_list(sched, out, sched->doomed, STK_ACT_SKIP);
    put_list(sched, out, sched->lists[STK_TASK_WAITING], STK_ACT_CANCEL);
    put_list(sched, out, sched->lists[STK_TASK_LOOKUP], STK_ACT_CANCEL);
    put_list(sched, out, sched->lists[STK_TASK_BACKOFF], STK_ACT_CANCEL);
    for (uint32_t i = 0; i < sched->n_live; i++) {
        put_list(sched, out, stk_sched_kind_at(sched, sched->live[i])->ready, STK_ACT_CANCEL);
    }
}

static int end_status(const stk_sched *sched)
{
    if (sched->n[STK_TASK_SUCCEEDED] + sched->n[STK_TASK_CACHED] == sched->n_nodes) {
        return 0;
    }
    return sched->is_cancelling || sched->n[STK_TASK_FAILED] == 0 ? 2 : 1;
}

int stk_sched_next(stk_sched *sched, int64_t now_ms, stk_action *actions, uint32_t n_max,
                   uint32_t *ret_n, int64_t *ret_wake_ms)
{
    stk_sched_out out = {actions, 0, n_max};
    int64_t wake_ms = -1;
    *ret_n = 0;
    *ret_wake_ms = -1;
    if (sched->is_ended) {
        return 0;
    }
    if (sched->is_idle && (sched->wake_ms < 0 || now_ms < sched->wake_ms)) {
        *ret_wake_ms = sched->wake_ms;
        return 0;
    }
    wake_due(sched, now_ms);
    if (sched->n_final == sched->n_nodes) {
        put(&out, (stk_action){.kind = STK_ACT_END,
                               .task = NIL,
                               .cause = NIL,
                               .status = end_status(sched),
                               .i_ask = STK_SCHED_NO_ASK});
    } else if (stk_sched_is_stopping(sched)) {
        put_stops(sched, &out);
    } else {
        put_list(sched, &out, sched->doomed, STK_ACT_SKIP);
        put_list(sched, &out, sched->lists[STK_TASK_LOOKUP], STK_ACT_LOOKUP);
        put_fails(sched, &out);
        put_starts(sched, &out, now_ms, &wake_ms);
        if (sched->n_timers > 0) {
            wake_no_later(&wake_ms, sched->timers[0].at_ms);
        }
    }
    sched->is_idle = out.n == 0 && n_max > 0;
    sched->wake_ms = wake_ms;
    *ret_n = out.n;
    *ret_wake_ms = wake_ms;
    return 0;
}
