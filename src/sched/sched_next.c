/* state → actions, and why a task waits. */
#include <string.h>

#include "sched/sched.h"
#include "sched/sched_internal.h"

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

/* One action for each task of a list, as far as there is room. */
static void put_list(const stk_sched *sched, stk_sched_out *out, stk_sched_list list,
                     stk_action_kind kind)
{
    for (uint32_t i = list.first; i != NIL; i = sched->nodes[i].next) {
        const stk_sched_node *node = &sched->nodes[i];
        uint32_t cause = kind == STK_ACT_SKIP ? node->cause : NIL;
        if (!put(out, (stk_action){kind, i, node->attempt, cause, 0})) {
            return;
        }
    }
}

/* Retries whose time has come are ready. */
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

static void free_now(const stk_sched *sched, int64_t ret_free[DIM_N])
{
    for (int d = 0; d < DIM_N; d++) {
        ret_free[d] = sched->cap[d] - sched->used[d];
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

/* The first task of each kind that fits now, or that others may have to make room for. */
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

/* In the order they became ready. What doesn't fit is left out with all of its kind; if it has
 * waited long enough, what comes later must leave `reserve` free, so that it is next. */
static void put_starts(const stk_sched *sched, stk_sched_out *out, int64_t now_ms, int64_t *wake_ms)
{
    stk_sched_candidate *heap = sched->candidates;
    int64_t free[DIM_N];
    int64_t reserve[DIM_N] = {0};
    free_now(sched, free);
    if (!stk_sched_fits(sched->least, free, reserve)) {
        return; /* the end of what runs is what to wait for */
    }
    uint32_t n = gather(sched, now_ms, free, wake_ms);
    while (n > 0 && out->n < out->max && stk_sched_fits(sched->least, free, reserve)) {
        stk_sched_candidate *first = &heap[0];
        const int64_t *ask = stk_sched_kind_at(sched, first->kind)->ask;
        const stk_sched_node *node = &sched->nodes[first->task];
        uint32_t following = NIL;
        if (!first->is_busy && stk_sched_fits(ask, free, reserve)) {
            put(out, (stk_action){STK_ACT_START, first->task, node->attempt + 1, NIL, 0});
            for (int d = 0; d < DIM_N; d++) {
                free[d] -= ask[d];
            }
            following = node->next;
        } else if (first->is_starved) {
            for (int d = 0; d < DIM_N; d++) {
                reserve[d] = ask[d] > reserve[d] ? ask[d] : reserve[d];
            }
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

/* --- stopping --- */

static void put_stops(const stk_sched *sched, stk_sched_out *out)
{
    bool is_graceful = !sched->is_cancelling && sched->config.mode == STK_MODE_STOP;
    uint64_t n_idle = sched->n_nodes - sched->n_final - sched->n[STK_TASK_RUNNING];
    if (!is_graceful) {
        /* STOP is given until the task is final: it must not crowd out the rest. */
        uint32_t max = out->max;
        uint32_t half = max - max / 2;
        out->max = max - (n_idle < half ? (uint32_t)n_idle : half);
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
        put(&out, (stk_action){STK_ACT_END, NIL, 0, NIL, end_status(sched)});
    } else if (stk_sched_is_stopping(sched)) {
        put_stops(sched, &out);
    } else {
        put_list(sched, &out, sched->doomed, STK_ACT_SKIP);
        put_list(sched, &out, sched->lists[STK_TASK_LOOKUP], STK_ACT_LOOKUP);
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

/* --- questions --- */

stk_task_state stk_sched_state(const stk_sched *sched, uint32_t task)
{
    return sched->nodes[task].state;
}

uint32_t stk_sched_attempt(const stk_sched *sched, uint32_t task)
{
    return sched->nodes[task].attempt;
}

bool stk_sched_is_cancelling(const stk_sched *sched)
{
    return sched->is_cancelling;
}

void stk_sched_count(const stk_sched *sched, stk_sched_counts *ret_counts)
{
    *ret_counts = (stk_sched_counts){
        .n_tasks = sched->n_nodes,
        .cpu_used = sched->used[DIM_CPU],
        .memory_used = sched->used[DIM_MEMORY],
        .devices_used = (uint32_t)sched->used[DIM_DEVICES],
        .running = (uint32_t)sched->used[DIM_WORKERS],
    };
    memcpy(ret_counts->n, sched->n, sizeof ret_counts->n);
}

static stk_sched_why explain_waiting(const stk_sched *sched, uint32_t task)
{
    const stk_sched_node *node = &sched->nodes[task];
    uint32_t end = task + 1 < sched->n_nodes ? node[1].first_need : sched->n_edges;
    if (node->cause != NIL) {
        return (stk_sched_why){STK_WHY_NEEDS, node->cause};
    }
    for (uint32_t e = node->first_need; e < end; e++) {
        uint32_t need = sched->edges[e].need;
        stk_task_state state = sched->nodes[need].state;
        if (state != STK_TASK_SUCCEEDED && state != STK_TASK_CACHED) {
            return (stk_sched_why){STK_WHY_NEEDS, need};
        }
    }
    return (stk_sched_why){STK_WHY_NONE, NIL};
}

static uint32_t biggest_holder(const stk_sched *sched, int dim)
{
    uint32_t found = NIL;
    int64_t most = 0;
    for (uint32_t i = sched->lists[STK_TASK_RUNNING].first; i != NIL; i = sched->nodes[i].next) {
        int64_t holds = stk_sched_kind_at(sched, sched->nodes[i].kind)->ask[dim];
        if (holds > most) {
            most = holds;
            found = i;
        }
    }
    return found;
}

static stk_sched_why explain_ready(const stk_sched *sched, uint32_t task)
{
    static const int whats[DIM_N] = {STK_WHY_CPU, STK_WHY_MEMORY, STK_WHY_DEVICES, STK_WHY_WORKERS};
    const stk_sched_node *node = &sched->nodes[task];
    const stk_sched_kind *own = stk_sched_kind_at(sched, node->kind);
    stk_sched_why why = {STK_WHY_NONE, NIL};
    int64_t free[DIM_N];
    free_now(sched, free);
    for (int d = 0; d < DIM_N; d++) {
        if (own->ask[d] > 0 && own->ask[d] > free[d]) {
            why.what = whats[d];
            why.other = biggest_holder(sched, d);
            return why;
        }
    }
    for (uint32_t i = 0; i < sched->n_live; i++) {
        const stk_sched_kind *kind = stk_sched_kind_at(sched, sched->live[i]);
        uint32_t first = kind->ready.first;
        for (int d = 0; d < DIM_N; d++) {
            if (own->ask[d] > 0 && free[d] - own->ask[d] < kind->ask[d] &&
                sched->nodes[first].seq < node->seq && stk_sched_is_starved(sched, kind)) {
                why.what = whats[d];
                why.other = first;
                return why;
            }
        }
    }
    if (own->busy_tries > 0) {
        why.what = STK_WHY_DEVICES; /* held by another run */
    }
    return why;
}

stk_sched_why stk_sched_explain(const stk_sched *sched, uint32_t task)
{
    switch ((stk_task_state)sched->nodes[task].state) {
    case STK_TASK_WAITING:
        return explain_waiting(sched, task);
    case STK_TASK_READY:
        return explain_ready(sched, task);
    case STK_TASK_BACKOFF:
        return (stk_sched_why){STK_WHY_BACKOFF, NIL};
    default:
        return (stk_sched_why){STK_WHY_NONE, NIL};
    }
}
