/* The simulation: jobs arrive, are placed or wait, and end. Time jumps from event to event. */
#include "run/simulate/simulate.h"

#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <time.h>

#include "base/text.h"
#include "run/simulate/simulate_private.h"

enum { MIB = 1 << 20 };

/* --- setting up --- */

static uint8_t *link_matrix(stk_accel *accel, stk_arena *arena)
{
    uint32_t n = stk_accel_n_devices(accel);
    uint8_t *links = stk_arena_array(arena, (size_t)n * n, 1);
    for (uint32_t i = 0; links != NULL && i < n; i++) {
        for (uint32_t j = 0; j < n; j++) {
            links[(size_t)i * n + j] = (uint8_t)stk_accel_link(accel, i, j, NULL);
        }
    }
    return links;
}

static int make_nodes(stk_simulation *s, stk_err *err)
{
    const stk_cluster *c = s->cluster;
    size_t n_devices = 0;
    for (uint32_t k = 0; k < c->n_machines; k++) {
        n_devices += (size_t)c->machines[k].n_nodes * stk_accel_n_devices(c->machines[k].accel);
    }
    s->nodes = stk_arena_array(s->arena, c->n_nodes, sizeof *s->nodes);
    s->devices = stk_arena_array(s->arena, n_devices + 1, sizeof *s->devices);
    if (s->nodes == NULL || s->devices == NULL) {
        return stk_err_nomem(err);
    }
    stk_sim_node *at = s->nodes;
    stk_pack_device *device = s->devices;
    for (uint32_t k = 0; k < c->n_machines; k++) {
        const stk_machine *m = &c->machines[k];
        uint32_t n = stk_accel_n_devices(m->accel);
        const uint8_t *links = link_matrix(m->accel, s->arena);
        for (uint32_t i = 0; i < m->n_nodes; i++, at++) {
            *at = (stk_sim_node){k, {device, n, links}, m->cpu_milli, m->memory_bytes};
            for (uint32_t d = 0; d < n; d++, device++) {
                const stk_device *from = stk_accel_device(m->accel, d);
                int32_t mib = from->memory_bytes > 0 ? (int32_t)(from->memory_bytes / MIB) : 0;
                *device = (stk_pack_device){mib, mib, from->numa, !from->usable};
            }
        }
    }
    return 0;
}

static bool asks_the_same(const stk_sim_job *a, const stk_sim_job *b)
{
    const char *x = stk_text_or(a->gpu_class, "");
    const char *y = stk_text_or(b->gpu_class, "");
    return a->n_devices == b->n_devices && a->share_bytes == b->share_bytes &&
           a->cpu_milli == b->cpu_milli && a->memory_bytes == b->memory_bytes && strcmp(x, y) == 0;
}

static int make_asks(stk_simulation *s, stk_sim_kind *k, stk_sim_fits fits, stk_err *err)
{
    k->asks = stk_arena_array(s->arena, s->cluster->n_machines, sizeof *k->asks);
    for (uint32_t m = 0; k->asks != NULL && m < s->cluster->n_machines; m++) {
        const stk_accel *accel = s->cluster->machines[m].accel;
        stk_pack_ask *ask = &k->asks[m];
        *ask = (stk_pack_ask){.n = k->like->n_devices,
                              .share_mib = (int32_t)((k->like->share_bytes + MIB - 1) / MIB)};
        for (uint32_t d = 0; d < stk_accel_n_devices(accel); d++) {
            const stk_device *device = stk_accel_device(accel, d);
            bool whole = k->like->gpu_class != NULL || device->parent < 0;
            if (device->usable && whole && fits(k->like->gpu_class, device)) {
                stk_devset_add(&ask->wanted, d);
                ask->contiguous = strcmp(device->vendor, "google") == 0;
            }
        }
    }
    STK_TRY(stk_err_if_null(k->asks, err));
    for (uint32_t i = 0; i < s->cluster->n_nodes && !k->possible;) {
        const stk_sim_node *n = &s->nodes[i];
        k->possible = (n->cpu_milli < 0 || n->cpu_milli >= k->like->cpu_milli) &&
                      (n->memory_bytes < 0 || n->memory_bytes >= k->like->memory_bytes) &&
                      stk_pack_is_possible(&n->host, &k->asks[n->machine]);
        i += s->cluster->machines[n->machine].n_nodes;
    }
    return 0;
}

static int make_kinds(stk_simulation *s, stk_sim_fits fits, stk_err *err)
{
    enum { KINDS_MAX = 4096 };
    const stk_workload *w = s->workload;
    s->kinds = stk_arena_array(s->arena, KINDS_MAX, sizeof *s->kinds);
    s->kind_of = stk_arena_array(s->arena, w->n, sizeof *s->kind_of);
    s->next = stk_arena_array(s->arena, w->n, sizeof *s->next);
    s->ends = stk_arena_array(s->arena, w->n, sizeof *s->ends);
    s->waits = stk_arena_array(s->arena, w->n, sizeof *s->waits);
    if (s->kinds == NULL || s->kind_of == NULL || s->next == NULL || s->ends == NULL ||
        s->waits == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < w->n; i++) {
        uint32_t k = 0;
        while (k < s->n_kinds && !asks_the_same(s->kinds[k].like, &w->jobs[i])) {
            k++;
        }
        if (k == KINDS_MAX) {
            return stk_err_set(err, STK_E_LIMIT, "more than %d different requests", KINDS_MAX);
        }
        if (k == s->n_kinds) {
            s->kinds[s->n_kinds++] =
                (stk_sim_kind){.like = &w->jobs[i], .first = NONE, .last = NONE};
            STK_TRY(make_asks(s, &s->kinds[k], fits, err));
        }
        s->kind_of[i] = k;
    }
    return 0;
}

/* Takes the workload's own mix of requests as the typical one. The requests are those for the first
 * machine, except that any device may serve them. */
static int make_typical(stk_simulation *s, stk_err *err)
{
    stk_pack_typical *typical = stk_arena_array(s->arena, s->n_kinds + 1, sizeof *typical);
    STK_TRY(stk_err_if_null(typical, err));
    for (uint32_t i = 0; i < s->n_kinds; i++) {
        typical[i].ask = s->kinds[i].asks[0];
        memset(&typical[i].ask.wanted, 0xff, sizeof typical[i].ask.wanted);
    }
    for (uint32_t i = 0; i < s->workload->n; i++) {
        typical[s->kind_of[i]].weight += 1;
    }
    s->pack.typical = typical;
    s->pack.n_typical = s->n_kinds;
    return 0;
}

/* --- time --- */

static double asked_of(const stk_simulation *s, const stk_sim_placed *p)
{
    const stk_sim_kind *k = &s->kinds[s->kind_of[p->job]];
    const stk_sim_node *n = &s->nodes[p->node];
    int32_t share = k->asks[n->machine].share_mib;
    double sum = 0;
    for (uint32_t i = 0; i < n->host.n; i++) {
        if (stk_devset_has(&p->devices, i)) {
            sum += stk_sim_part(&n->host.devices[i], share);
        }
    }
    return sum;
}

static void push_end(stk_simulation *s, const stk_sim_placed *p)
{
    uint32_t i = s->n_ends++;
    for (uint32_t up; i > 0 && s->ends[up = (i - 1) / 2].end_s > p->end_s; i = up) {
        s->ends[i] = s->ends[up];
    }
    s->ends[i] = *p;
}

static stk_sim_placed pop_end(stk_simulation *s)
{
    stk_sim_placed first = s->ends[0];
    stk_sim_placed last = s->ends[--s->n_ends];
    uint32_t i = 0;
    for (uint32_t child; (child = 2 * i + 1) < s->n_ends; i = child) {
        child += child + 1 < s->n_ends && s->ends[child + 1].end_s < s->ends[child].end_s;
        if (s->ends[child].end_s >= last.end_s) {
            break;
        }
        s->ends[i] = s->ends[child];
    }
    s->ends[i] = last;
    return first;
}

static void wait_in_line(stk_simulation *s, uint32_t i_job)
{
    stk_sim_kind *k = &s->kinds[s->kind_of[i_job]];
    s->next[i_job] = NONE;
    if (k->first == NONE) {
        k->first = i_job;
        k->n_passed = 0;
    } else {
        s->next[k->last] = i_job;
    }
    k->last = i_job;
}

static double seconds_since(const struct timespec *from)
{
    struct timespec to;
    (void)clock_gettime(CLOCK_MONOTONIC, &to);
    return (double)(to.tv_sec - from->tv_sec) + (double)(to.tv_nsec - from->tv_nsec) / 1e9;
}

static bool place_job(stk_simulation *s, uint32_t i_job, double now_s)
{
    const stk_sim_kind *k = &s->kinds[s->kind_of[i_job]];
    const stk_sim_job *job = &s->workload->jobs[i_job];
    struct timespec from;
    stk_sim_placed p = {.job = i_job, .end_s = now_s + job->duration_s};
    (void)clock_gettime(CLOCK_MONOTONIC, &from);
    p.node = stk_sim_choose_node(s, k);
    s->pack.seed += s->pack.policy == STK_PACK_RANDOM;
    if (p.node == NONE) {
        s->decide_s += seconds_since(&from);
        return false;
    }
    stk_sim_node *n = &s->nodes[p.node];
    const stk_pack_ask *ask = &k->asks[n->machine];
    bool ok = stk_pack_choose(&n->host, ask, &s->pack, &p.devices);
    s->decide_s += seconds_since(&from);
    if (!ok) {
        return false;
    }
    stk_sim_give(n, job, ask, &p.devices, false);
    s->in_use += asked_of(s, &p);
    s->waits[s->n_placed++] = now_s - job->arrival_s;
    if (job->duration_s > 0) {
        push_end(s, &p);
    }
    return true;
}

/* Returns the kind of the oldest job that wasn't tried in this pass. NULL: there is none, or an
 * older job, which doesn't fit, was passed over too often. */
static stk_sim_kind *next_in_line(stk_simulation *s)
{
    stk_sim_kind *oldest = NULL;
    for (uint32_t i = 0; i < s->n_kinds; i++) {
        stk_sim_kind *k = &s->kinds[i];
        if (k->first != NONE && k->tried != s->pass &&
            (oldest == NULL || k->first < oldest->first)) {
            oldest = k;
        }
    }
    for (uint32_t i = 0; oldest != NULL && i < s->n_kinds; i++) {
        const stk_sim_kind *k = &s->kinds[i];
        if (k->first < oldest->first && k->tried == s->pass &&
            k->n_passed > STK_SIMULATE_PATIENCE) {
            return NULL;
        }
    }
    return oldest;
}

/* Tries the waiting jobs, oldest first. Younger jobs may pass one that doesn't fit, but only
 * STK_SIMULATE_PATIENCE times. */
static void serve_line(stk_simulation *s, double now_s)
{
    s->pass++;
    for (stk_sim_kind *oldest; (oldest = next_in_line(s)) != NULL;) {
        if (!place_job(s, oldest->first, now_s)) {
            oldest->tried = s->pass;
            continue;
        }
        for (uint32_t i = 0; i < s->n_kinds; i++) {
            s->kinds[i].n_passed += s->kinds[i].first < oldest->first;
        }
        oldest->first = s->next[oldest->first];
        oldest->n_passed = 0;
    }
}

static int by_number(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The results of a workload whose jobs end. */
static void sum_waits(stk_simulation *s, double busy_s, double until_s, double end_s,
                      stk_sim_result *ret)
{
    double wait = 0;
    ret->makespan_s = end_s;
    if (until_s > 0) {
        ret->in_use_percent = busy_s / until_s;
    }
    if (s->n_placed == 0) {
        return;
    }
    qsort(s->waits, s->n_placed, sizeof *s->waits, by_number);
    for (uint32_t i = 0; i < s->n_placed; i++) {
        wait += s->waits[i];
    }
    ret->mean_wait_s = wait / s->n_placed;
    ret->p95_wait_s = s->waits[(uint64_t)s->n_placed * 95 / 100];
}

static void sum_up(stk_simulation *s, double busy_s, double until_s, double end_s,
                   stk_sim_result *ret)
{
    double n = s->cluster->n_devices > 0 ? s->cluster->n_devices : 1;
    ret->devices = s->cluster->n_devices;
    ret->placed = s->n_placed;
    ret->refused = s->workload->n - s->n_placed;
    ret->decide_us = s->decide_s * 1e6 / s->workload->n;
    ret->mean_wait_s = ret->p95_wait_s = ret->makespan_s = ret->fragment_percent = -1;
    if (s->workload->jobs[0].duration_s > 0) {
        sum_waits(s, busy_s, until_s, end_s, ret);
    } else {
        double fragments = 0;
        for (uint32_t i = 0; i < s->cluster->n_nodes; i++) {
            fragments += stk_pack_fragments(&s->nodes[i].host, s->pack.typical, s->pack.n_typical);
        }
        ret->in_use_percent = s->in_use;
        ret->fragment_percent = 100 * fragments / n;
    }
    ret->in_use_percent = 100 * ret->in_use_percent / n;
}

static void run_jobs(stk_simulation *s, stk_sim_result *ret)
{
    const stk_workload *w = s->workload;
    double last_arrival = w->jobs[w->n - 1].arrival_s;
    double now = 0;
    double busy = 0;
    for (uint32_t i = 0; i < w->n || s->n_ends > 0;) {
        bool arrives = i < w->n && (s->n_ends == 0 || w->jobs[i].arrival_s <= s->ends[0].end_s);
        double at = arrives ? w->jobs[i].arrival_s : s->ends[0].end_s;
        busy += s->in_use * MAX(MIN(at, last_arrival) - now, 0);
        now = at;
        if (arrives && w->jobs[i].duration_s == 0) {
            (void)place_job(s, i, now); /* or refuses it */
        } else if (arrives && s->kinds[s->kind_of[i]].possible) {
            wait_in_line(s, i);
            serve_line(s, now);
        } else if (!arrives) {
            stk_sim_placed p = pop_end(s);
            const stk_sim_kind *k = &s->kinds[s->kind_of[p.job]];
            stk_sim_node *n = &s->nodes[p.node];
            s->in_use -= asked_of(s, &p);
            stk_sim_give(n, &w->jobs[p.job], &k->asks[n->machine], &p.devices, true);
            serve_line(s, now);
        }
        i += arrives;
    }
    sum_up(s, busy, last_arrival, now, ret);
}

int stk_simulate(const stk_cluster *cluster, const stk_workload *workload, stk_pack_policy policy,
                 uint64_t seed, stk_sim_fits fits, stk_sim_result *ret, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_simulation s = {.cluster = cluster,
                        .workload = workload,
                        .arena = arena,
                        .pack = {.policy = policy, .seed = seed}};
    *ret = (stk_sim_result){0};
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(make_nodes(&s, err));
    STK_TRY(make_kinds(&s, fits, err));
    STK_TRY(make_typical(&s, err));
    const stk_pack_host *first = &s.nodes[0].host;
    bool has_memory = cluster->n_nodes > 0 && first->n > 0 && first->devices[0].total_mib > 0;
    for (uint32_t i = 0; i < workload->n; i++) {
        const stk_sim_kind *k = &s.kinds[s.kind_of[i]];
        double part = has_memory ? stk_sim_part(&first->devices[0], k->asks[0].share_mib) : 1;
        ret->asked += k->like->n_devices * part;
    }
    run_jobs(&s, ret);
    return 0;
}
