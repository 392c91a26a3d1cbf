/* Chooses the node for a job, by the policy. */
#include "run/simulate/simulate_private.h"

/* A node's rank: the lowest wins, compared number by number. */
typedef struct rank {
    double by[3];
} rank;

static bool is_less(const rank *a, const rank *b)
{
    for (size_t i = 0; i < sizeof a->by / sizeof *a->by; i++) {
        if (a->by[i] != b->by[i]) {
            return a->by[i] < b->by[i];
        }
    }
    return false;
}

static bool suits(const stk_pack_device *d, int32_t share_mib)
{
    if (d->taken || share_mib == 0) {
        return !d->taken && d->free_mib == d->total_mib;
    }
    return d->total_mib > 0 && d->free_mib >= share_mib;
}

static bool may_fit(const stk_sim_node *n, const stk_sim_job *job, const stk_pack_ask *ask)
{
    uint32_t n_fit = 0;
    if ((n->cpu_milli >= 0 && n->cpu_milli < job->cpu_milli) ||
        (n->memory_bytes >= 0 && n->memory_bytes < job->memory_bytes)) {
        return false;
    }
    for (uint32_t i = 0; i < n->host.n && n_fit < ask->n; i++) {
        n_fit += stk_devset_has(&ask->wanted, i) && suits(&n->host.devices[i], ask->share_mib);
    }
    return n_fit >= ask->n;
}

double stk_sim_part(const stk_pack_device *d, int32_t share_mib)
{
    return share_mib > 0 ? (double)share_mib / (double)d->total_mib : 1;
}

static double free_parts(const stk_sim_node *n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n->host.n; i++) {
        const stk_pack_device *d = &n->host.devices[i];
        if (!d->taken) {
            sum += d->total_mib > 0 ? (double)d->free_mib / d->total_mib : 1;
        }
    }
    return sum;
}

/* Stoker's policy: first the node where the fewest unused devices are started, because gaps on used
 * devices serve the share; then the smallest gap that fits; then the fullest node, so that empty
 * machines stay empty. */
static rank our_rank(const stk_sim_node *n, const stk_pack_ask *ask)
{
    uint32_t n_gaps = 0;
    double gap = 0;
    for (uint32_t i = 0; i < n->host.n && ask->share_mib > 0; i++) {
        const stk_pack_device *d = &n->host.devices[i];
        if (stk_devset_has(&ask->wanted, i) && suits(d, ask->share_mib) &&
            d->free_mib < d->total_mib) {
            if (n_gaps == 0 || d->free_mib < gap) {
                gap = d->free_mib;
            }
            n_gaps++;
        }
    }
    uint32_t n_begun = n_gaps >= ask->n ? 0 : ask->n - n_gaps;
    return (rank){{n_begun, gap, free_parts(n)}};
}

void stk_sim_give(stk_sim_node *n, const stk_sim_job *job, const stk_pack_ask *ask,
                  const stk_devset *set, bool back)
{
    stk_pack_device *devices = (stk_pack_device *)(uintptr_t)n->host.devices;
    int sign = back ? -1 : 1;
    for (uint32_t i = 0; i < n->host.n; i++) {
        if (stk_devset_has(set, i) && ask->share_mib > 0) {
            devices[i].free_mib -= sign * ask->share_mib;
        } else if (stk_devset_has(set, i)) {
            devices[i].free_mib = back ? devices[i].total_mib : 0;
            devices[i].taken = !back;
        }
    }
    if (n->cpu_milli >= 0) {
        n->cpu_milli -= sign * job->cpu_milli;
    }
    if (n->memory_bytes >= 0) {
        n->memory_bytes -= sign * job->memory_bytes;
    }
}

/* The rank by how much the job would add to the node's fragments. */
static rank growth_rank(const stk_simulation *s, stk_sim_node *n, const stk_sim_job *job,
                        const stk_pack_ask *ask)
{
    stk_devset set;
    if (!stk_pack_choose(&n->host, ask, &s->pack, &set)) {
        return (rank){{1e18}};
    }
    double before = stk_pack_fragments(&n->host, s->pack.typical, s->pack.n_typical);
    stk_sim_give(n, job, ask, &set, false);
    double after = stk_pack_fragments(&n->host, s->pack.typical, s->pack.n_typical);
    stk_sim_give(n, job, ask, &set, true);
    return (rank){{after - before, free_parts(n)}};
}

static rank rank_of(const stk_simulation *s, stk_sim_node *n, const stk_sim_job *job,
                    const stk_pack_ask *ask)
{
    switch (s->pack.policy) {
    case STK_PACK_STOKER:
        return our_rank(n, ask);
    case STK_PACK_FRAGMENT:
        return growth_rank(s, n, job, ask);
    default:
        return (rank){{free_parts(n)}};
    }
}

uint32_t stk_sim_choose_node(stk_simulation *s, const stk_sim_kind *k)
{
    uint32_t best = NONE;
    uint32_t n_seen = 0;
    rank lowest = {0};
    for (uint32_t i = 0; i < s->cluster->n_nodes; i++) {
        stk_sim_node *n = &s->nodes[i];
        const stk_pack_ask *ask = &k->asks[n->machine];
        stk_devset set;
        if (!may_fit(n, k->like, ask) ||
            (ask->contiguous && !stk_pack_choose(&n->host, ask, &s->pack, &set))) {
            continue;
        }
        if (s->pack.policy == STK_PACK_RANDOM) {
            if (stk_sim_random(&s->pack.seed) % ++n_seen == 0) {
                best = i;
            }
            continue;
        }
        rank r = rank_of(s, n, k->like, ask);
        if (best == NONE || is_less(&r, &lowest)) {
            best = i;
            lowest = r;
        }
    }
    return best;
}
