/* Summarises the state, and explains why a task waits. */
#include <string.h>

#include "model/sched/sched.h"
#include "model/sched/sched_internal.h"

#define NIL STK_SCHED_NIL

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
        .running = (uint32_t)sched->used[DIM_WORKERS],
    };
    memcpy(ret_counts->n, sched->n, sizeof ret_counts->n);
    for (uint32_t i = 0; i < sched->config.host.n; i++) {
        ret_counts->devices_used += sched->devices[i].n_holders > 0;
    }
    for (uint32_t i = 0; i < sched->n_live; i++) {
        ret_counts->n_wanting += stk_sched_kind_at(sched, sched->live[i])->wish != NIL;
    }
}

static stk_sched_why explain_waiting(const stk_sched *sched, uint32_t task)
{
    const stk_sched_node *node = &sched->nodes[task];
    uint32_t end = task + 1 < sched->n_nodes ? node[1].first_need : sched->n_edges;
    if (node->cause != NIL) {
        return (stk_sched_why){.what = STK_WHY_NEEDS, .other = node->cause};
    }
    for (uint32_t e = node->first_need; e < end; e++) {
        uint32_t need = sched->edges[e].need;
        stk_task_state state = sched->nodes[need].state;
        if (state != STK_TASK_SUCCEEDED && state != STK_TASK_CACHED) {
            return (stk_sched_why){.what = STK_WHY_NEEDS, .other = need};
        }
    }
    return (stk_sched_why){.what = STK_WHY_NONE, .other = NIL};
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

/* Finds the devices that would do, and their holders. */
static stk_sched_why explain_devices(const stk_sched *sched, const stk_sched_wish *wish)
{
    stk_sched_why why = {.what = STK_WHY_DEVICES, .other = NIL};
    for (uint32_t i = 0; i < sched->config.host.n; i++) {
        bool is_wanted = false;
        for (uint32_t k = 0; k < wish->n_asks; k++) {
            is_wanted = is_wanted || stk_devset_has(&wish->asks[k].wanted, i);
        }
        if (!is_wanted || sched->host[i].taken) {
            continue;
        }
        if (sched->devices[i].n_holders > 0) {
            stk_devset_add(&why.held, i);
            if (why.other == NIL) {
                why.other = stk_sched_holder(sched, i);
            }
        }
        if (sched->devices[i].outside_mib > 0) {
            stk_devset_add(&why.outside, i);
        }
    }
    return why;
}

/* Returns what the first of `kind`, which has waited longer, reserves and `own` needs. Closes its
 * devices in the view. */
static int kept_back(const stk_sched *sched, const stk_sched_kind *own, const stk_sched_kind *kind,
                     const int64_t free[DIM_N])
{
    const stk_sched_wish *wish = stk_sched_wish_of(sched, own);
    if ((kind->wish != NIL && !kind->has_reserved) || stk_sched_is_place_full(kind->ask, free)) {
        return STK_WHY_NONE; /* it waits for other runs, or for a place, and reserves nothing */
    }
    for (int d = 0; d < DIM_RATIONED; d++) {
        if (own->ask[d] > 0 && free[d] - own->ask[d] < kind->ask[d]) {
            return stk_sched_why_of(d);
        }
    }
    if (wish == NULL || !kind->has_reserved) {
        return STK_WHY_NONE;
    }
    uint32_t i_ask;
    stk_devset devices;
    stk_sched_view_close(sched, &kind->reserved);
    return stk_sched_place(sched, wish, &i_ask, &devices) ? STK_WHY_NONE : STK_WHY_DEVICES;
}

static stk_sched_why explain_ready(const stk_sched *sched, uint32_t task)
{
    const stk_sched_node *node = &sched->nodes[task];
    const stk_sched_kind *own = stk_sched_kind_at(sched, node->kind);
    const stk_sched_wish *wish = stk_sched_wish_of(sched, own);
    stk_sched_why why = {.what = STK_WHY_NONE, .other = NIL};
    int64_t free[DIM_N];
    uint32_t i_ask;
    stk_devset devices;
    stk_sched_free_now(sched, free);
    stk_sched_look(sched);
    if (wish != NULL && !stk_sched_place(sched, wish, &i_ask, &devices)) {
        return explain_devices(sched, wish);
    }
    for (int d = 0; d < DIM_RATIONED; d++) {
        if (own->ask[d] > 0 && own->ask[d] > free[d]) {
            why.what = stk_sched_why_of(d);
            why.other = biggest_holder(sched, d);
            return why;
        }
    }
    for (uint32_t i = 0; i < sched->n_live; i++) {
        const stk_sched_kind *kind = stk_sched_kind_at(sched, sched->live[i]);
        uint32_t first = kind->ready.first;
        if (sched->nodes[first].seq < node->seq && stk_sched_is_starved(sched, kind)) {
            int what = kept_back(sched, own, kind, free);
            if (what != STK_WHY_NONE) {
                why.what = what;
                why.other = first;
                why.is_queue = true;
                return why;
            }
        }
    }
    if (own->busy_tries > 0) {
        return explain_devices(sched, wish); /* held by another run */
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
        return (stk_sched_why){.what = STK_WHY_BACKOFF, .other = NIL};
    default:
        return (stk_sched_why){.what = STK_WHY_NONE, .other = NIL};
    }
}
