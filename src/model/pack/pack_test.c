/* Choosing devices: cases with one right answer, and properties over random hosts. The seed is
 * printed; STOKER_PACK_SEED repeats a run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <time.h>

#include "base/testing.h"
#include "model/pack/pack.h"

enum { FULL = 81920, MAX = 128 };

typedef struct host {
    stk_pack_device devices[STK_LIMIT_DEVICES];
    uint8_t links[MAX * MAX];
    stk_pack_host view;
} host;

static stk_pack_host *host_of(host *h, uint32_t n)
{
    memset(h, 0, sizeof *h);
    for (uint32_t i = 0; i < n; i++) {
        h->devices[i] = (stk_pack_device){.total_mib = FULL, .free_mib = FULL, .numa = -1};
    }
    h->view = (stk_pack_host){h->devices, n, NULL};
    return &h->view;
}

/* Islands of `size` neighbours: links inside an island are 5, all others 1. */
static stk_pack_host *islands(host *h, uint32_t n, uint32_t size)
{
    host_of(h, n)->links = h->links;
    for (uint32_t i = 0; i < n; i++) {
        h->devices[i].numa = (int32_t)(i / size);
        for (uint32_t j = 0; j < n; j++) {
            h->links[i * n + j] = i / size == j / size ? 5 : 1;
        }
    }
    return &h->view;
}

static stk_pack_ask ask_of(uint32_t n, int32_t share_mib)
{
    stk_pack_ask ask = {.n = n, .share_mib = share_mib};
    memset(&ask.wanted, 0xff, sizeof ask.wanted);
    return ask;
}

/* Returns the chosen devices, such as "0,2,3", or "-" where nothing fits. */
static const char *choose(const stk_pack_host *view, stk_pack_ask ask, const stk_pack_config *c)
{
    static char text[1024];
    stk_devset chosen;
    if (!stk_pack_choose(view, &ask, c, &chosen)) {
        return "-";
    }
    size_t len = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < STK_LIMIT_DEVICES; i++) {
        if (stk_devset_has(&chosen, i)) {
            len += (size_t)snprintf(text + len, sizeof text - len, "%s%u", len > 0 ? "," : "", i);
        }
    }
    return text;
}

static void use(host *h, uint32_t i)
{
    h->devices[i].taken = true;
    h->devices[i].free_mib = 0;
}

static void test_islands(void **state)
{
    (void)state;
    host h;
    const stk_pack_host *view = islands(&h, 8, 4);
    assert_string_equal(choose(view, ask_of(0, 0), NULL), "");
    assert_string_equal(choose(view, ask_of(4, 0), NULL), "0,1,2,3");
    assert_string_equal(choose(view, ask_of(9, 0), NULL), "-");
    use(&h, 5);
    assert_string_equal(choose(view, ask_of(4, 0), NULL), "0,1,2,3");
    assert_string_equal(choose(view, ask_of(1, 0), NULL), "4"); /* from the incomplete island */
    assert_string_equal(choose(view, ask_of(2, 0), NULL), "4,6");
    use(&h, 0);
    use(&h, 1);
    assert_string_equal(choose(view, ask_of(3, 0), NULL), "4,6,7");
    assert_string_equal(choose(view, ask_of(2, 0), NULL), "2,3"); /* uses up this island */
    assert_string_equal(choose(view, ask_of(5, 0), NULL), "2,3,4,6,7");
}

static void test_numa_and_size(void **state)
{
    (void)state;
    host h;
    const stk_pack_host *view = host_of(&h, 4); /* links unknown */
    h.devices[0].numa = h.devices[3].numa = 0;
    h.devices[1].numa = h.devices[2].numa = 1;
    assert_string_equal(choose(view, ask_of(2, 0), NULL), "0,3");
    use(&h, 3);
    assert_string_equal(choose(view, ask_of(2, 0), NULL), "1,2");
    assert_string_equal(choose(view, ask_of(1, 0), NULL), "0");
    view = host_of(&h, 2);
    h.devices[1].total_mib = h.devices[1].free_mib = FULL / 2;
    assert_string_equal(choose(view, ask_of(1, 0), NULL), "1"); /* the large device stays free */
    h.devices[1].total_mib = h.devices[1].free_mib = 0;         /* unknown memory: whole only */
    assert_string_equal(choose(view, ask_of(2, 0), NULL), "0,1");
    assert_string_equal(choose(view, ask_of(2, 100), NULL), "-");
    h.devices[1].taken = true;
    assert_string_equal(choose(view, ask_of(2, 0), NULL), "-");
}

static void test_shares(void **state)
{
    (void)state;
    host h;
    const stk_pack_host *view = islands(&h, 8, 4);
    use(&h, 7);
    assert_string_equal(choose(view, ask_of(1, 10000), NULL), "4"); /* keep the whole island free */
    h.devices[2].free_mib = 20000;
    h.devices[5].free_mib = 12000;
    assert_string_equal(choose(view, ask_of(1, 10000), NULL), "5"); /* the tighter gap */
    assert_string_equal(choose(view, ask_of(1, 15000), NULL), "2");
    assert_string_equal(choose(view, ask_of(2, 10000), NULL), "2,5");
    assert_string_equal(choose(view, ask_of(1, 30000), NULL), "4");
    assert_string_equal(choose(view, ask_of(1, FULL + 1), NULL), "-");
    assert_string_equal(choose(view, ask_of(5, 0), NULL),
                        "0,1,3,4,6"); /* a shared device isn't whole */
    assert_string_equal(choose(view, ask_of(6, 0), NULL), "-");
    h.devices[5].taken = true; /* reserved as a whole */
    assert_string_equal(choose(view, ask_of(1, 10000), NULL), "2");
}

static void test_contiguous(void **state)
{
    (void)state;
    host h;
    const stk_pack_host *view = host_of(&h, 8);
    stk_pack_ask one = ask_of(1, 0), two = ask_of(2, 0), four = ask_of(4, 0), eight = ask_of(8, 0);
    one.contiguous = two.contiguous = four.contiguous = eight.contiguous = true;
    assert_string_equal(choose(view, eight, NULL), "0,1,2,3,4,5,6,7");
    use(&h, 5);
    assert_string_equal(choose(view, eight, NULL), "-");
    assert_string_equal(choose(view, four, NULL), "0,1,2,3");
    assert_string_equal(choose(view, two, NULL), "6,7"); /* keeps 0..3 free */
    assert_string_equal(choose(view, one, NULL), "4");
    use(&h, 1);
    assert_string_equal(choose(view, four, NULL), "-"); /* 2,3,6,7: four, but not neighbours */
    for (uint64_t seed = 0; seed < 50; seed++) {
        const char *got = choose(view, two, &(stk_pack_config){STK_PACK_RANDOM, seed, NULL, 0});
        assert_true(strcmp(got, "2,3") == 0 || strcmp(got, "6,7") == 0);
    }
}

static void test_other_policies(void **state)
{
    (void)state;
    host h;
    const stk_pack_host *view = host_of(&h, 3);
    const stk_pack_config best = {.policy = STK_PACK_BEST_FIT};
    h.devices[1].free_mib = 30000;
    h.devices[2].free_mib = 20000;
    assert_string_equal(choose(view, ask_of(1, 15000), &best), "2");
    assert_string_equal(choose(view, ask_of(2, 15000), &best), "1,2");
    assert_string_equal(choose(view, ask_of(1, 0), &best), "0");

    /* Best fit leaves 5,000, too little for a typical request; least fragmentation halves the other
     * gap. */
    const stk_pack_typical typical = {ask_of(1, 15000), 1};
    const stk_pack_config fragment = {
        .policy = STK_PACK_FRAGMENT, .typical = &typical, .n_typical = 1};
    assert_string_equal(choose(view, ask_of(1, 15000), &fragment), "1");
    const stk_pack_typical whole = {ask_of(1, 0), 1};
    const stk_pack_config fragment2 = {
        .policy = STK_PACK_FRAGMENT, .typical = &whole, .n_typical = 1};
    assert_string_equal(choose(view, ask_of(1, 5000), &fragment2), "2"); /* not the whole device */

    uint32_t seen[3] = {0};
    for (uint64_t seed = 0; seed < 300; seed++) {
        const stk_pack_config random = {.policy = STK_PACK_RANDOM, .seed = seed};
        seen[atoi(choose(view, ask_of(1, 10000), &random))]++;
    }
    assert_true(seen[0] > 60 && seen[1] > 60 && seen[2] > 60);
}

static void test_is_possible(void **state)
{
    (void)state;
    host h;
    const stk_pack_host *view = host_of(&h, 4);
    use(&h, 0); /* not in the pool */
    h.devices[1].free_mib = 0;
    stk_pack_ask ask = ask_of(3, 0), more = ask_of(4, 0), four = ask_of(1, FULL + 1);
    assert_true(stk_pack_is_possible(view, &ask));
    assert_false(stk_pack_is_possible(view, &more));
    assert_false(stk_pack_is_possible(view, &four));
    stk_devset_remove(&ask.wanted, 2);
    assert_false(stk_pack_is_possible(view, &ask));
    stk_pack_ask two = ask_of(2, 0);
    two.contiguous = true;
    assert_true(stk_pack_is_possible(view, &two));
    stk_devset_remove(&two.wanted, 3);
    assert_false(stk_pack_is_possible(view, &two));
}

/* --- properties --- */

static uint64_t state_;

static uint32_t below(uint32_t n)
{
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state_ >> 33) % n);
}

static uint64_t start_seed(void)
{
    const char *set = getenv("STOKER_PACK_SEED");
    uint64_t seed = set != NULL ? strtoull(set, NULL, 10) : (uint64_t)time(NULL);
    print_message("STOKER_PACK_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static void random_host(host *h, uint32_t n)
{
    host_of(h, n)->links = below(4) > 0 ? h->links : NULL;
    uint32_t size = 1 + below(n), kind = below(2);
    for (uint32_t i = 0; i < n; i++) {
        stk_pack_device *d = &h->devices[i];
        d->total_mib = below(10) == 0 ? 0 : 1000 * (int32_t)(1 + below(4));
        d->free_mib = below(2) > 0 ? d->total_mib : (int32_t)below((uint32_t)d->total_mib + 1);
        d->taken = below(6) == 0;
        d->numa = (int32_t)below(3) - 1;
        for (uint32_t j = 0; j <= i; j++) {
            uint8_t link = kind == 0 ? (uint8_t)below(7) : i / size == j / size ? 5 : 1;
            h->links[i * n + j] = h->links[j * n + i] = link;
        }
    }
}

static stk_pack_ask random_ask(uint32_t n)
{
    stk_pack_ask ask = ask_of(1 + below(MIN(n, 6)), below(2) > 0 ? (int32_t)below(3000) : 0);
    if (below(2) > 0) {
        for (uint32_t i = 0; i < n; i++) {
            if (below(3) == 0) {
                stk_devset_remove(&ask.wanted, i);
            }
        }
    }
    if (below(4) == 0) {
        ask.contiguous = true;
        ask.n = 1u << below(4);
    }
    return ask;
}

/* The header's rules, implemented again: can device i be in an answer? */
static bool may(const host *h, const stk_pack_ask *ask, uint32_t i)
{
    const stk_pack_device *d = &h->devices[i];
    if (!stk_devset_has(&ask->wanted, i) || d->taken) {
        return false;
    }
    return ask->share_mib == 0 ? d->free_mib == d->total_mib
                               : d->total_mib > 0 && d->free_mib >= ask->share_mib;
}

static uint32_t link_sum(const host *h, const stk_devset *set)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < h->view.n; i++) {
        for (uint32_t j = 0; j < i && stk_devset_has(set, i); j++) {
            sum += stk_devset_has(set, j) ? h->links[i * h->view.n + j] : 0;
        }
    }
    return sum;
}

static uint32_t n_begun(const host *h, const stk_devset *set)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < h->view.n; i++) {
        n += stk_devset_has(set, i) && h->devices[i].free_mib == h->devices[i].total_mib;
    }
    return n;
}

/* Whether any answer exists, by brute force. */
static bool any_answer(const host *h, const stk_pack_ask *ask)
{
    for (uint32_t from = 0; ask->contiguous && from + ask->n <= h->view.n; from += ask->n) {
        uint32_t n = 0;
        for (uint32_t i = from; i < from + ask->n; i++) {
            n += may(h, ask, i);
        }
        if (n == ask->n) {
            return true;
        }
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < h->view.n; i++) {
        n += may(h, ask, i);
    }
    return !ask->contiguous && n >= ask->n;
}

static void check_answer(const host *h, const stk_pack_ask *ask, const stk_devset *set)
{
    uint32_t first = UINT32_MAX, last = 0;
    assert_int_equal(stk_devset_count(set), ask->n);
    for (uint32_t i = 0; i < STK_LIMIT_DEVICES; i++) {
        if (stk_devset_has(set, i)) {
            assert_true(i < h->view.n && may(h, ask, i));
            first = MIN(first, i);
            last = i;
        }
    }
    if (ask->contiguous) {
        assert_int_equal(last - first + 1, ask->n);
        assert_int_equal(first % ask->n, 0);
    }
}

static void test_properties(void **state)
{
    (void)state;
    state_ = start_seed();
    static host h;
    for (int k = 0; k < 20000; k++) {
        random_host(&h, 1 + below(k % 50 == 0 ? MAX : 12));
        stk_pack_ask ask = random_ask(h.view.n);
        const stk_pack_typical typical[] = {{random_ask(h.view.n), 1}, {random_ask(h.view.n), 2.5}};
        bool expected = any_answer(&h, &ask);
        stk_devset ours = {{0}}, set, again;
        for (int policy = STK_PACK_STOKER; policy <= (int)STK_PACK_FRAGMENT; policy++) {
            const stk_pack_config c = {(stk_pack_policy)policy, state_, typical, 2};
            host before = h;
            assert_int_equal(stk_pack_choose(&h.view, &ask, &c, &set), expected);
            assert_memory_equal(&before.devices, &h.devices, sizeof h.devices);
            if (!expected) {
                continue;
            }
            check_answer(&h, &ask, &set);
            assert_true(stk_pack_choose(&h.view, &ask, &c, &again));
            assert_memory_equal(&set, &again, sizeof set);
            if (policy == STK_PACK_STOKER) {
                ours = set;
            }
            if (policy != STK_PACK_STOKER && !ask.contiguous && h.view.n <= 12) {
                uint32_t mine = n_begun(&h, &ours), others = n_begun(&h, &set);
                assert_true(mine <= others);
                assert_true(mine < others || h.view.links == NULL ||
                            link_sum(&h, &ours) >= link_sum(&h, &set));
            }
        }
        if (expected) {
            assert_true(stk_pack_is_possible(&h.view, &ask));
        }
    }
}

/* The chosen set has the nearest devices: compares it with every subset of a host of ten. */
static void test_nearest(void **state)
{
    (void)state;
    state_ = start_seed();
    static host h;
    for (int k = 0; k < 300; k++) {
        random_host(&h, 10);
        h.view.links = h.links;
        stk_pack_ask ask = ask_of(1 + below(6), 0);
        stk_devset ours;
        if (!stk_pack_choose(&h.view, &ask, NULL, &ours)) {
            continue;
        }
        uint32_t best = 0;
        for (uint64_t bits = 0; bits < 1u << 10; bits++) {
            stk_devset set = {{bits}};
            bool ok = stk_devset_count(&set) == ask.n;
            for (uint32_t i = 0; ok && i < 10; i++) {
                ok = !stk_devset_has(&set, i) || may(&h, &ask, i);
            }
            uint32_t sum = ok ? link_sum(&h, &set) : 0;
            best = MAX(sum, best);
        }
        assert_int_equal(link_sum(&h, &ours), best);
    }
}

/* On large hosts, growing and exchanging sets still finds the islands. */
static void test_large(void **state)
{
    (void)state;
    static host h;
    const stk_pack_host *view = islands(&h, 128, 8);
    stk_devset set;
    for (uint32_t i = 0; i < 128; i += 3) {
        use(&h, i);
    }
    for (uint32_t n = 3; n <= 6; n++) {
        stk_pack_ask ask = ask_of(n, 0);
        assert_true(stk_pack_choose(view, &ask, NULL, &set));
        check_answer(&h, &ask, &set);
        assert_int_equal(link_sum(&h, &set), n < 6 ? 5 * n * (n - 1) / 2 : 5 * 15);
    }
    stk_pack_ask many = ask_of(64, 0);
    assert_true(stk_pack_choose(view, &many, NULL, &set));
    check_answer(&h, &many, &set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_islands),        cmocka_unit_test(test_numa_and_size),
        cmocka_unit_test(test_shares),         cmocka_unit_test(test_contiguous),
        cmocka_unit_test(test_other_policies), cmocka_unit_test(test_is_possible),
        cmocka_unit_test(test_properties),     cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
