/* The graph, its growth, and the list of each task. */
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/arena.h"
#include "base/limits.h"
#include "base/map.h"
#include "model/sched/sched.h"
#include "model/sched/sched_internal.h"

#define NIL STK_SCHED_NIL

/* --- memory --- */

static uint32_t *pool_slot(const stk_sched_pool *pool, const void *key)
{
    uint32_t i = (uint32_t)stk_hash_bytes(key, pool->key_bytes, 0);
    for (;; i++) {
        uint32_t *slot = &pool->slots[i & (pool->n_slots - 1)];
        if (*slot == 0 || memcmp((char *)pool->items + (*slot - 1) * pool->item_bytes, key,
                                 pool->key_bytes) == 0) {
            return slot;
        }
    }
}

static int pool_grow(stk_sched_pool *pool)
{
    if (stk_array_reserve(&pool->items, &pool->cap, (uint64_t)pool->n + 1, pool->item_bytes) < 0) {
        return STK_E_NOMEM;
    }
    if (pool->n * 2 < pool->n_slots) {
        return 0;
    }
    uint32_t n_slots = MAX(16, pool->n_slots * 2);
    uint32_t *slots = calloc(n_slots, sizeof *slots);
    if (slots == NULL) {
        return STK_E_NOMEM;
    }
    free(pool->slots);
    pool->slots = slots;
    pool->n_slots = n_slots;
    for (uint32_t i = 0; i < pool->n; i++) {
        *pool_slot(pool, (char *)pool->items + i * pool->item_bytes) = i + 1;
    }
    return 0;
}

/* The number of the item with `item`'s key; copies a new one. NIL: out of memory. */
static uint32_t pool_intern(stk_sched_pool *pool, const void *item)
{
    if (pool_grow(pool) < 0) {
        return NIL;
    }
    uint32_t *slot = pool_slot(pool, item);
    if (*slot == 0) {
        memcpy((char *)pool->items + pool->n * pool->item_bytes, item, pool->item_bytes);
        *slot = ++pool->n;
    }
    return *slot - 1;
}

stk_sched *stk_sched_new(const stk_sched_config *config)
{
    stk_sched *sched = calloc(1, sizeof *sched);
    if (sched == NULL) {
        return NULL;
    }
    sched->config = *config;
    if (stk_sched_devices_init(sched) < 0) {
        stk_sched_free(sched);
        return NULL;
    }
    sched->cap[DIM_CPU] = config->cpu_milli;
    sched->cap[DIM_MEMORY] = config->memory_bytes;
    memcpy(sched->least, sched->cap, sizeof sched->least);
    sched->least[DIM_WORKERS] = 1;
    sched->cap[DIM_WORKERS] = config->max_workers == 0 ? UINT32_MAX : config->max_workers;
    for (int i = 0; i < STK_SCHED_PLACES; i++) {
        sched->cap[DIM_PLACE + i] = config->max_away[i] == 0 ? UINT32_MAX : config->max_away[i];
    }
    sched->cap[DIM_AWAY_MEMORY] = INT64_MAX;
    sched->wishes.item_bytes = sizeof(stk_sched_wish);
    sched->wishes.key_bytes = offsetof(stk_sched_wish, is_lost);
    sched->kinds.item_bytes = sizeof(stk_sched_kind);
    sched->kinds.key_bytes = offsetof(stk_sched_kind, ready);
    sched->policies.item_bytes = sched->policies.key_bytes = sizeof(stk_sched_policy);
    sched->doomed = (stk_sched_list){NIL, NIL};
    for (int i = 0; i <= STK_TASK_BACKOFF; i++) {
        sched->lists[i] = (stk_sched_list){NIL, NIL};
    }
    return sched;
}

void stk_sched_free(stk_sched *sched)
{
    if (sched != NULL) {
        stk_sched_devices_done(sched);
        free(sched->failures);
        free(sched->nodes);
        free(sched->edges);
        free(sched->kinds.items);
        free(sched->kinds.slots);
        free(sched->policies.items);
        free(sched->policies.slots);
        free(sched->live);
        free(sched->candidates);
        free(sched->timers);
        free(sched);
    }
}

/* --- lists --- */

/* NULL for final tasks. */
static stk_sched_list *list_for(stk_sched *sched, const stk_sched_node *node)
{
    if (node->state > STK_TASK_BACKOFF) {
        return NULL;
    }
    if (node->state == STK_TASK_READY) {
        return &stk_sched_kind_at(sched, node->kind)->ready;
    }
    if (node->state == STK_TASK_WAITING && node->cause != NIL) {
        return &sched->doomed;
    }
    return &sched->lists[node->state];
}

static void use(stk_sched *sched, const stk_sched_node *node, int64_t sign)
{
    const stk_sched_kind *kind = stk_sched_kind_at(sched, node->kind);
    for (int d = 0; d < DIM_RATIONED; d++) {
        sched->used[d] += sign * kind->ask[d];
    }
}

static void enter(stk_sched *sched, uint32_t task)
{
    stk_sched_node *node = &sched->nodes[task];
    stk_sched_list *list = list_for(sched, node);
    sched->n[node->state]++;
    if (list == NULL) {
        sched->n_final++;
        return;
    }
    if (node->state == STK_TASK_RUNNING) {
        node->grant = NIL;
        use(sched, node, 1);
    } else if (node->state == STK_TASK_READY) {
        node->seq = sched->config.by_number ? task + 1 : ++sched->seq;
        if (list->first == NIL) {
            stk_sched_kind *kind = stk_sched_kind_at(sched, node->kind);
            kind->n_starts = sched->n_starts;
            kind->i_live = sched->n_live;
            sched->live[sched->n_live++] = node->kind;
        }
    }
    uint32_t before = list->last;
    while (node->state == STK_TASK_READY && before != NIL &&
           sched->nodes[before].seq > node->seq) { /* only by_number */
        before = sched->nodes[before].prev;
    }
    uint32_t *from = before == NIL ? &list->first : &sched->nodes[before].next;
    node->prev = before;
    node->next = *from;
    *(node->next == NIL ? &list->last : &sched->nodes[node->next].prev) = task;
    *from = task;
}

static void leave(stk_sched *sched, uint32_t task)
{
    stk_sched_node *node = &sched->nodes[task];
    stk_sched_list *list = list_for(sched, node);
    sched->n[node->state]--;
    *(node->prev == NIL ? &list->first : &sched->nodes[node->prev].next) = node->next;
    *(node->next == NIL ? &list->last : &sched->nodes[node->next].prev) = node->prev;
    if (node->state == STK_TASK_RUNNING) {
        use(sched, node, -1);
        if (node->grant != NIL) {
            stk_sched_give_back(sched, node->grant);
        }
    } else if (node->state == STK_TASK_READY && node->prev == NIL) {
        stk_sched_kind *kind = stk_sched_kind_at(sched, node->kind);
        kind->n_starts = sched->n_starts;
        kind->busy_tries = 0;
        kind->has_reserved = kind->is_claimed = false;
        if (list->first == NIL) {
            uint32_t last = sched->live[--sched->n_live];
            sched->live[kind->i_live] = last;
            stk_sched_kind_at(sched, last)->i_live = kind->i_live;
        }
    }
}

/* Only from a state that isn't final. */
void stk_sched_move(stk_sched *sched, uint32_t task, stk_task_state to)
{
    leave(sched, task);
    sched->nodes[task].state = (uint8_t)to;
    enter(sched, task);
}

static void doom(stk_sched *sched, uint32_t task, uint32_t cause)
{
    leave(sched, task);
    sched->nodes[task].cause = cause;
    enter(sched, task);
}

static void doom_one_level(stk_sched *sched, uint32_t task, uint32_t cause)
{
    uint32_t last = sched->nodes[task].last_dependent;
    if (last == NIL) {
        return;
    }
    uint32_t e = last;
    do {
        e = sched->edges[e].next;
        uint32_t dependent = sched->edges[e].task;
        if (sched->nodes[dependent].cause == NIL &&
            sched->nodes[dependent].state == STK_TASK_WAITING) {
            doom(sched, dependent, cause);
        }
    } while (e != last);
}

/* Dooms everything that depends on `task`, directly or not, because of `cause`. The list of doomed
 * tasks is also the work list: the walk reaches what it appends. */
void stk_sched_doom_dependents(stk_sched *sched, uint32_t task, uint32_t cause)
{
    uint32_t last = sched->doomed.last;
    doom_one_level(sched, task, cause);
    uint32_t i = last == NIL ? sched->doomed.first : sched->nodes[last].next;
    for (; i != NIL; i = sched->nodes[i].next) {
        doom_one_level(sched, i, cause);
    }
}

/* --- growth --- */

static int check_devices(const stk_sched *sched, const stk_sched_task *task, stk_err *err)
{
    stk_sched_wish wish;
    if (task->n_asks == 0) {
        return 0;
    }
    if (task->n_asks > STK_LIMIT_ASKS) {
        return stk_err_set(err, STK_E_LIMIT, "task %u has %u alternatives; %d is the limit",
                           sched->n_nodes, task->n_asks, STK_LIMIT_ASKS);
    }
    stk_sched_wish_of_task(task, &wish);
    for (uint32_t i = 0; i < task->n_asks; i++) {
        if (task->asks[i].n == 0 || task->asks[i].share_mib < 0) {
            return stk_err_set(
                err, STK_E_RESOURCES,
                "task %u asks for %u devices with %d MiB of each, which is no valid request",
                sched->n_nodes, task->asks[i].n, task->asks[i].share_mib);
        }
    }
    if (!stk_sched_is_placeable(sched, sched->config.host.devices, &wish)) {
        return stk_err_set(err, STK_E_RESOURCES,
                           "task %u asks for %u devices, which the host's %u can't provide",
                           sched->n_nodes, task->asks[0].n, sched->config.host.n);
    }
    return 0;
}

static int check(const stk_sched *sched, const stk_sched_task *task, const uint32_t *needs,
                 uint32_t n_needs, stk_err *err)
{
    uint32_t i = sched->n_nodes;
    if (sched->is_ended) {
        return stk_err_set(err, STK_E_PROTOCOL, "task %u was added after the run's end", i);
    }
    if (i >= STK_LIMIT_TASKS) {
        return stk_err_set(err, STK_E_LIMIT, "the run has more than %d tasks", STK_LIMIT_TASKS);
    }
    for (uint32_t k = 0; k < n_needs; k++) {
        if (needs[k] >= i) {
            return stk_err_set(err, STK_E_PROTOCOL,
                               "task %u needs task %u, which wasn't added before it", i, needs[k]);
        }
    }
    if (task->cpu_milli < 0 || task->memory_bytes < 0) {
        return stk_err_set(err, STK_E_RESOURCES,
                           "task %u asks for a negative number of CPUs or bytes", i);
    }
    if (task->place > 0) {
        if (task->place > STK_SCHED_PLACES || task->n_asks != 0 || task->cpu_milli != 0) {
            return stk_err_set(
                err, STK_E_BUG,
                "task %u runs in place %u, but asks for CPUs or devices of this machine", i,
                task->place);
        }
        return 0;
    }
    if (task->cpu_milli > sched->cap[DIM_CPU]) {
        return stk_err_set(err, STK_E_RESOURCES, "task %u asks for %g CPUs, but the host has %g", i,
                           (double)task->cpu_milli / 1e3, (double)sched->cap[DIM_CPU] / 1e3);
    }
    if (task->memory_bytes > sched->cap[DIM_MEMORY]) {
        return stk_err_set(err, STK_E_RESOURCES,
                           "task %u asks for %.3g GB of memory, but the host has %.3g", i,
                           (double)task->memory_bytes / 1e9, (double)sched->cap[DIM_MEMORY] / 1e9);
    }
    return check_devices(sched, task, err);
}

uint32_t stk_sched_intern(stk_sched *sched, const int64_t ask[DIM_N], const stk_sched_wish *wish)
{
    stk_sched_kind kind = {.wish = NIL, .ready = {NIL, NIL}};
    memcpy(kind.ask, ask, sizeof kind.ask);
    if (wish != NULL) {
        stk_sched_wish copy = *wish;
        copy.is_lost = sched->is_any_gone && !stk_sched_is_placeable(sched, sched->host, &copy);
        kind.wish = pool_intern(&sched->wishes, &copy);
        if (kind.wish == NIL) {
            return NIL;
        }
    }
    uint32_t i = pool_intern(&sched->kinds, &kind);
    uint32_t cap_candidates = sched->cap_live;
    if (i == NIL ||
        stk_array_reserve(&sched->candidates, &cap_candidates, sched->kinds.n,
                          sizeof *sched->candidates) < 0 ||
        stk_array_reserve(&sched->live, &sched->cap_live, sched->kinds.n, sizeof *sched->live) <
            0) {
        return NIL;
    }
    for (int d = 0; d < DIM_N; d++) {
        sched->least[d] = MIN(ask[d], sched->least[d]);
    }
    return i;
}

/* Does everything that may fail for lack of memory, before any visible change. */
static int reserve_for(stk_sched *sched, const stk_sched_task *task, uint32_t n_needs,
                       uint32_t *ret_kind, uint32_t *ret_policy)
{
    bool is_free = task->any_cpu && sched->cap[DIM_WORKERS] != UINT32_MAX;
    int64_t ask[DIM_N] = {[DIM_CPU] = is_free ? 0 : task->cpu_milli, [DIM_WORKERS] = 1};
    ask[task->place > 0 ? DIM_AWAY_MEMORY : DIM_MEMORY] = task->memory_bytes;
    if (task->place > 0) {
        ask[DIM_PLACE + task->place - 1] = 1;
    }
    stk_sched_wish wish;
    stk_sched_policy policy = {.delay_ms = task->delay_ms,
                               .backoff = task->backoff,
                               .jitter = task->jitter,
                               .oom_memory = task->oom_memory,
                               .oom_share = task->oom_share,
                               .max_retries = task->max_retries,
                               .oom_retries = task->oom_retries,
                               .fallback = task->fallback};
    if (task->n_asks > 0) {
        stk_sched_wish_of_task(task, &wish);
    }
    *ret_kind = stk_sched_intern(sched, ask, task->n_asks > 0 ? &wish : NULL);
    *ret_policy = pool_intern(&sched->policies, &policy);
    if (*ret_kind == NIL || *ret_policy == NIL ||
        stk_array_reserve(&sched->nodes, &sched->cap_nodes, (uint64_t)sched->n_nodes + 1,
                          sizeof *sched->nodes) < 0 ||
        stk_array_reserve(&sched->edges, &sched->cap_edges, (uint64_t)sched->n_edges + n_needs,
                          sizeof *sched->edges) < 0) {
        return STK_E_NOMEM;
    }
    return 0;
}

static void add_need(stk_sched *sched, uint32_t task, uint32_t need)
{
    stk_sched_node *needed = &sched->nodes[need];
    stk_sched_edge *edges = sched->edges;
    uint32_t e = sched->n_edges++;
    uint32_t last = needed->last_dependent;
    edges[e] = (stk_sched_edge){need, task, last == NIL ? e : edges[last].next};
    if (last != NIL) {
        edges[last].next = e;
    }
    needed->last_dependent = e;

    stk_sched_node *node = &sched->nodes[task];
    bool is_met = needed->state == STK_TASK_SUCCEEDED || needed->state == STK_TASK_CACHED;
    node->n_open += !is_met;
    if (node->cause == NIL) {
        bool is_cancelled_with_all =
            needed->state == STK_TASK_CANCELLED && stk_sched_is_stopping(sched);
        bool has_failed = needed->state == STK_TASK_FAILED || needed->state == STK_TASK_CANCELLED;
        node->cause = has_failed && !is_cancelled_with_all ? need : needed->cause;
    }
}

int stk_sched_add(stk_sched *sched, const stk_sched_task *task, const uint32_t *needs,
                  uint32_t n_needs, uint32_t *ret_task, stk_err *err)
{
    uint32_t kind, policy;
    int r = check(sched, task, needs, n_needs, err);
    if (r < 0) {
        return r;
    }
    if (reserve_for(sched, task, n_needs, &kind, &policy) < 0) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory for task %u", sched->n_nodes);
    }
    uint32_t i = sched->n_nodes++;
    stk_sched_node *node = &sched->nodes[i];
    *node = (stk_sched_node){
        .first_need = sched->n_edges,
        .last_dependent = NIL,
        .kind = kind,
        .retry = policy,
        .cause = NIL,
        .failures = NIL,
        .lookup = task->lookup,
        .state = STK_TASK_WAITING,
    };
    for (uint32_t k = 0; k < n_needs; k++) {
        add_need(sched, i, needs[k]);
    }
    if (node->n_open == 0) {
        node->state = task->lookup ? STK_TASK_LOOKUP : STK_TASK_READY;
    }
    enter(sched, i);
    sched->is_idle = false;
    if (ret_task != NULL) {
        *ret_task = i;
    }
    return 0;
}
