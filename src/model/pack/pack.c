/* Chooses devices for a request. Every policy filters the devices that fit the ask, then picks n of
 * them.
 *
 * Stoker's policy compares sets by four numbers; the first that differs decides: devices so far
 * unshared that a share would break up; nearness of the chosen to each other; nearness of the
 * chosen to the devices that stay free (using up an island before the next); memory left over (best
 * fit). All four are sums over devices and pairs, so it searches small cases completely, and large
 * ones by greedy growth from several seeds and exchanges. */
#include "model/pack/pack.h"

#include <assert.h>
#include <string.h>
#include <sys/param.h>

enum {
    EXACT_MAX = 2000,  /* number of sets to try one by one: any four of 16 */
    GREEDY_WORK = 4096 /* seeds × devices requested */
};

static bool fits(const stk_pack_device *d, int32_t share_mib)
{
    if (d->taken) {
        return false;
    }
    return share_mib > 0 ? d->total_mib > 0 && d->free_mib >= share_mib
                         : d->free_mib == d->total_mib;
}

static bool is_acceptable(const stk_pack_host *host, const stk_pack_ask *ask, uint32_t i)
{
    return stk_devset_has(&ask->wanted, i) && fits(&host->devices[i], ask->share_mib);
}

/* Nearness of two devices: links decide, then the NUMA node. The NUMA steps of all pairs together
 * stay below one link step. */
static int64_t nearness(const stk_pack_host *host, uint32_t i, uint32_t j)
{
    const stk_pack_device *a = &host->devices[i], *b = &host->devices[j];
    int64_t link = host->links != NULL ? host->links[(size_t)i * host->n + j] : 0;
    return link << 16 | (a->numa >= 0 && a->numa == b->numa);
}

/* --- ours --- */

typedef struct cost {
    int64_t broken; /* whole devices that it starts to share */
    int64_t far;    /* minus the nearness of all chosen pairs */
    int64_t cut;  /* nearness to the whole devices that are still free (chosen ones included, which
                     changes nothing if `far` is equal) */
    int64_t left; /* MiB left free on the chosen devices; for whole ones their size */
} cost;

typedef struct search {
    const stk_pack_host *host;
    uint32_t n, n_cands;
    cost best;
    bool has_best;
    uint32_t cands[STK_LIMIT_DEVICES];
    uint32_t picked[STK_LIMIT_DEVICES]; /* indices into cands */
    uint32_t chosen[STK_LIMIT_DEVICES]; /* the best set so far */
    int64_t near[STK_LIMIT_DEVICES];    /* nearness of each candidate to the picked ones */
    cost own[STK_LIMIT_DEVICES];        /* cost of each candidate alone */
} search;

static bool is_less(const cost *a, const cost *b)
{
    if (a->broken != b->broken) {
        return a->broken < b->broken;
    }
    if (a->far != b->far) {
        return a->far < b->far;
    }
    return a->cut != b->cut ? a->cut < b->cut : a->left < b->left;
}

static cost plus(const cost *a, const cost *b)
{
    return (cost){a->broken + b->broken, a->far + b->far, a->cut + b->cut, a->left + b->left};
}

static cost own_cost(const stk_pack_host *host, const stk_pack_ask *ask, uint32_t i)
{
    const stk_pack_device *d = &host->devices[i];
    cost c = {.left = ask->share_mib > 0 ? d->free_mib - ask->share_mib : d->total_mib};
    if (d->free_mib == d->total_mib) {
        c.broken = 1;
        for (uint32_t j = 0; j < host->n; j++) {
            if (j != i && fits(&host->devices[j], 0)) {
                c.cut += nearness(host, i, j);
            }
        }
    }
    return c;
}

static void keep_if_better(search *s, const cost *c)
{
    if (!s->has_best || is_less(c, &s->best)) {
        s->has_best = true;
        s->best = *c;
        memcpy(s->chosen, s->picked, s->n * sizeof s->chosen[0]);
    }
}

/* Tries every set of n candidates in numerical order, so ties go to the lowest numbers. */
static void search_all(search *s, uint32_t from, uint32_t depth, const cost *so_far)
{
    if (depth == s->n) {
        keep_if_better(s, so_far);
        return;
    }
    for (uint32_t i = from; i + (s->n - depth) <= s->n_cands; i++) {
        cost next = plus(so_far, &s->own[i]);
        for (uint32_t k = 0; k < depth; k++) {
            next.far -= nearness(s->host, s->cands[i], s->cands[s->picked[k]]);
        }
        if (s->has_best && next.broken > s->best.broken) {
            continue;
        }
        s->picked[depth] = i;
        search_all(s, i + 1, depth + 1, &next);
    }
}

static void add_near(search *s, uint32_t i, int64_t sign)
{
    for (uint32_t k = 0; k < s->n_cands; k++) {
        if (k != i) {
            s->near[k] += sign * nearness(s->host, s->cands[i], s->cands[k]);
        }
    }
}

static cost grow_seed(search *s, uint32_t seed)
{
    bool in[STK_LIMIT_DEVICES] = {false};
    cost total = s->own[seed];
    memset(s->near, 0, s->n_cands * sizeof s->near[0]);
    s->picked[0] = seed;
    in[seed] = true;
    add_near(s, seed, 1);
    for (uint32_t depth = 1; depth < s->n; depth++) {
        uint32_t next = UINT32_MAX;
        cost lowest = {0};
        for (uint32_t i = 0; i < s->n_cands; i++) {
            cost c = s->own[i];
            c.far -= s->near[i];
            if (!in[i] && (next == UINT32_MAX || is_less(&c, &lowest))) {
                next = i;
                lowest = c;
            }
        }
        assert(next != UINT32_MAX); /* n <= n_cands */
        total = plus(&total, &lowest);
        s->picked[depth] = next;
        in[next] = true;
        add_near(s, next, 1);
    }
    return total;
}

/* Swaps one chosen device for another while that lowers the cost, so it terminates. */
static void exchange(search *s)
{
    bool in[STK_LIMIT_DEVICES] = {false};
    memset(s->near, 0, s->n_cands * sizeof s->near[0]);
    for (uint32_t k = 0; k < s->n; k++) {
        in[s->chosen[k]] = true;
        add_near(s, s->chosen[k], 1);
    }
    for (uint32_t round = 0; round < s->n; round++) {
        uint32_t out_k = 0, into = UINT32_MAX;
        for (uint32_t k = 0; k < s->n; k++) {
            uint32_t out = s->chosen[k];
            for (uint32_t i = 0; i < s->n_cands; i++) {
                const cost *a = &s->own[i], *b = &s->own[out];
                int64_t pair = 0;
                if (i != out) {
                    pair = nearness(s->host, s->cands[i], s->cands[out]);
                }
                cost c = {s->best.broken + a->broken - b->broken,
                          s->best.far - (s->near[i] - pair) + s->near[out],
                          s->best.cut + a->cut - b->cut, s->best.left + a->left - b->left};
                if (!in[i] && is_less(&c, &s->best)) {
                    s->best = c; /* takes the first improvement */
                    into = i;
                    out_k = k;
                    goto found;
                }
            }
        }
    found:
        if (into == UINT32_MAX) {
            return;
        }
        in[s->chosen[out_k]] = false;
        add_near(s, s->chosen[out_k], -1);
        s->chosen[out_k] = into;
        in[into] = true;
        add_near(s, into, 1);
    }
}

static void search_greedily(search *s)
{
    uint32_t n_seeds = GREEDY_WORK / s->n;
    uint32_t step = 1;
    if (n_seeds < s->n_cands) {
        step += s->n_cands / MAX(n_seeds, 1);
    }
    for (uint32_t seed = 0; seed < s->n_cands; seed += step) {
        cost c = grow_seed(s, seed);
        keep_if_better(s, &c);
    }
    exchange(s);
}

/* n out of k, capped above EXACT_MAX. */
static uint32_t n_sets(uint32_t k, uint32_t n)
{
    uint64_t sets = 1;
    n = MIN(n, k - n);
    for (uint32_t i = 1; i <= n && sets <= EXACT_MAX; i++) {
        sets = sets * (k - n + i) / i;
    }
    return sets > EXACT_MAX ? EXACT_MAX + 1 : (uint32_t)sets;
}

static void choose_near(const stk_pack_host *host, const stk_pack_ask *ask, const uint32_t *cands,
                        uint32_t n_cands, stk_devset *ret_chosen)
{
    search s;
    s.host = host;
    s.n = ask->n;
    s.n_cands = n_cands;
    s.has_best = false;
    memcpy(s.cands, cands, n_cands * sizeof cands[0]);
    for (uint32_t i = 0; i < n_cands; i++) {
        s.own[i] = own_cost(host, ask, cands[i]);
    }
    if (n_sets(n_cands, ask->n) <= EXACT_MAX) {
        search_all(&s, 0, 0, &(cost){0});
    } else {
        search_greedily(&s);
    }
    for (uint32_t k = 0; k < s.n; k++) {
        stk_devset_add(ret_chosen, cands[s.chosen[k]]);
    }
}

/* --- the others --- */

static uint64_t random_next(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void choose_random(uint32_t *cands, uint32_t n_cands, uint32_t n, uint64_t seed,
                          stk_devset *ret_chosen)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t other = k + (uint32_t)(random_next(&seed) % (n_cands - k));
        stk_devset_add(ret_chosen, cands[other]);
        cands[other] = cands[k];
    }
}

static void choose_fullest(const stk_pack_host *host, uint32_t *cands, uint32_t n_cands, uint32_t n,
                           stk_devset *ret_chosen)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = 0; i < n_cands; i++) {
            if (!stk_devset_has(ret_chosen, cands[i]) &&
                (best == UINT32_MAX ||
                 host->devices[cands[i]].free_mib < host->devices[best].free_mib)) {
                best = cands[i];
            }
        }
        stk_devset_add(ret_chosen, best);
    }
}

/* The free part of a device, in devices, as in the paper. */
static double free_part(const stk_pack_device *d)
{
    if (d->taken) {
        return 0;
    }
    return d->total_mib > 0 ? (double)d->free_mib / (double)d->total_mib : 1;
}

/* A host as a typical ask sees it: free parts that the ask can't use are fragments, and all free
 * parts are if the ask doesn't fit. */
typedef struct view {
    uint32_t n_fit;
    double unfit, all; /* free parts, in devices */
} view;

static double fragments(const view *v, const stk_pack_ask *ask)
{
    return v->n_fit < ask->n ? v->all : v->unfit;
}

static void view_add(view *v, const stk_pack_host *host, const stk_pack_ask *ask, uint32_t i,
                     const stk_pack_device *as, int sign)
{
    bool fit = i < host->n && stk_devset_has(&ask->wanted, i) && fits(as, ask->share_mib);
    if (fit) {
        v->n_fit += (uint32_t)sign;
    } else {
        v->unfit += sign * free_part(as);
    }
    v->all += sign * free_part(as);
}

double stk_pack_fragments(const stk_pack_host *host, const stk_pack_typical *typical,
                          uint32_t n_typical)
{
    double sum = 0;
    double weights = 0;
    for (uint32_t t = 0; t < n_typical; t++) {
        view v = {0};
        for (uint32_t i = 0; i < host->n; i++) {
            view_add(&v, host, &typical[t].ask, i, &host->devices[i], 1);
        }
        sum += typical[t].weight * fragments(&v, &typical[t].ask);
        weights += typical[t].weight;
    }
    return weights > 0 ? sum / weights : 0;
}

static stk_pack_device less(const stk_pack_device *d, int32_t share_mib)
{
    stk_pack_device after = *d;
    after.free_mib -= share_mib > 0 ? share_mib : d->free_mib;
    after.taken = share_mib == 0;
    return after;
}

static void choose_unfragmented(const stk_pack_host *real, const stk_pack_ask *ask,
                                const stk_pack_config *config, const uint32_t *cands,
                                uint32_t n_cands, stk_devset *ret_chosen)
{
    stk_pack_device devices[STK_LIMIT_DEVICES];
    stk_pack_host host = {devices, real->n, real->links};
    memcpy(devices, real->devices, real->n * sizeof devices[0]);
    for (uint32_t k = 0; k < ask->n; k++) {
        double growth[STK_LIMIT_DEVICES] = {0};
        for (uint32_t t = 0; t < config->n_typical; t++) {
            const stk_pack_typical *typical = &config->typical[t];
            view now = {0};
            for (uint32_t i = 0; i < host.n; i++) {
                view_add(&now, &host, &typical->ask, i, &devices[i], 1);
            }
            for (uint32_t i = 0; i < n_cands; i++) {
                stk_pack_device after = less(&devices[cands[i]], ask->share_mib);
                view then = now;
                view_add(&then, &host, &typical->ask, cands[i], &devices[cands[i]], -1);
                view_add(&then, &host, &typical->ask, cands[i], &after, 1);
                growth[i] += typical->weight *
                             (fragments(&then, &typical->ask) - fragments(&now, &typical->ask));
            }
        }
        uint32_t best = UINT32_MAX;
        for (uint32_t i = 0; i < n_cands; i++) {
            if (stk_devset_has(ret_chosen, cands[i])) {
                continue;
            }
            double more = best == UINT32_MAX ? -1 : growth[i] - growth[best];
            bool fuller =
                best != UINT32_MAX && devices[cands[i]].free_mib < devices[cands[best]].free_mib;
            if (more < -1e-9 || (more < 1e-9 && fuller)) {
                best = i;
            }
        }
        assert(best != UINT32_MAX);
        stk_devset_add(ret_chosen, cands[best]);
        devices[cands[best]] = less(&devices[cands[best]], ask->share_mib);
    }
}

/* --- neighbours --- */

static bool is_free_block(const stk_pack_host *host, const stk_pack_ask *ask, uint32_t from,
                          uint32_t n)
{
    bool all = from + n <= host->n;
    for (uint32_t i = from; all && i < from + n; i++) {
        all = is_acceptable(host, ask, i);
    }
    return all;
}

/* Number of larger aligned blocks, still entirely free, that a block at `from` would break. */
static uint32_t n_broken_blocks(const stk_pack_host *host, const stk_pack_ask *ask, uint32_t from)
{
    uint32_t n = 0;
    for (uint32_t size = ask->n * 2; size <= host->n; size *= 2) {
        n += is_free_block(host, ask, from - from % size, size);
    }
    return n;
}

static bool choose_block(const stk_pack_host *host, const stk_pack_ask *ask,
                         const stk_pack_config *config, stk_devset *ret_chosen)
{
    uint32_t best = UINT32_MAX, n_least = UINT32_MAX, n_seen = 0;
    uint64_t seed = config->seed;
    for (uint32_t from = 0; from + ask->n <= host->n; from += ask->n) {
        if (!is_free_block(host, ask, from, ask->n)) {
            continue;
        }
        if (config->policy == STK_PACK_RANDOM) {
            if (random_next(&seed) % ++n_seen == 0) {
                best = from;
            }
            continue;
        }
        uint32_t n =
            config->policy == STK_PACK_STOKER ? n_broken_blocks(host, ask, from) : n_seen++;
        if (n < n_least) {
            n_least = n;
            best = from;
        }
    }
    for (uint32_t i = 0; best != UINT32_MAX && i < ask->n; i++) {
        stk_devset_add(ret_chosen, best + i);
    }
    return best != UINT32_MAX;
}

bool stk_pack_choose(const stk_pack_host *host, const stk_pack_ask *ask,
                     const stk_pack_config *config, stk_devset *ret_chosen)
{
    static const stk_pack_config ours = {.policy = STK_PACK_STOKER};
    if (config == NULL) {
        config = &ours;
    }
    assert(host->n <= STK_LIMIT_DEVICES);
    stk_devset chosen = {{0}};
    uint32_t cands[STK_LIMIT_DEVICES], n_cands = 0;
    for (uint32_t i = 0; i < host->n; i++) {
        if (is_acceptable(host, ask, i)) {
            cands[n_cands++] = i;
        }
    }
    if (n_cands < ask->n) {
        return false;
    }
    if (ask->n == 0) {
        /* no choice left */
    } else if (ask->contiguous && ask->n > 1) {
        if (!choose_block(host, ask, config, &chosen)) {
            return false;
        }
    } else if (config->policy == STK_PACK_RANDOM) {
        choose_random(cands, n_cands, ask->n, config->seed, &chosen);
    } else if (config->policy == STK_PACK_BEST_FIT) {
        choose_fullest(host, cands, n_cands, ask->n, &chosen);
    } else if (config->policy == STK_PACK_FRAGMENT) {
        choose_unfragmented(host, ask, config, cands, n_cands, &chosen);
    } else if (ask->contiguous) { /* one chip: prefers the buddy of a used one */
        (void)choose_block(host, ask, config, &chosen);
    } else {
        choose_near(host, ask, cands, n_cands, &chosen);
    }
    *ret_chosen = chosen;
    return true;
}

bool stk_pack_is_possible(const stk_pack_host *empty_host, const stk_pack_ask *ask)
{
    stk_pack_device devices[STK_LIMIT_DEVICES];
    const stk_pack_host host = {devices, empty_host->n, empty_host->links};
    stk_devset chosen;
    assert(host.n <= STK_LIMIT_DEVICES);
    for (uint32_t i = 0; i < host.n; i++) {
        devices[i] = empty_host->devices[i];
        devices[i].free_mib = devices[i].total_mib;
    }
    /* Uses the cheapest policy, since whether it fits doesn't depend on the policy. */
    return stk_pack_choose(&host, ask, &(stk_pack_config){.policy = STK_PACK_RANDOM}, &chosen);
}
