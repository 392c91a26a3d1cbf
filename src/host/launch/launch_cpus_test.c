/* Splits a simulated host's CPUs among ranks, with and without devices nearby. */
#include <stdio.h>
#include <string.h>

#include "base/testing.h"
#include "host/launch/launch_private.h"
#include "host/launch/launch_ranks.h"

enum { CPUS = 16, RANKS = 8 };

/* Two nodes of four cores with two threads each. Like Linux, gives core n the CPUs n and n + 8. */
static void make_places(cpu_place *places)
{
    for (int i = 0; i < CPUS; i++) {
        int core = i / 2;
        places[i] = (cpu_place){core + i % 2 * 8, core / 4, core};
    }
}

static void set_range(cpu_set_t *set, int first, int last)
{
    CPU_ZERO(set);
    for (int cpu = first; cpu <= last; cpu++) {
        CPU_SET((size_t)cpu, set);
        CPU_SET((size_t)cpu + 8, set);
    }
}

/* The CPUs of each set as text, such as "0,8 1,9". */
static const char *shown(const cpu_set_t *sets, uint32_t n)
{
    static char text[256];
    size_t len = 0;
    for (uint32_t i = 0; i < n; i++) {
        len += (size_t)snprintf(text + len, sizeof text - len, "%s", i > 0 ? " " : "");
        const char *comma = "";
        for (size_t cpu = 0; cpu < CPUS; cpu++) {
            if (CPU_ISSET(cpu, &sets[i])) {
                len += (size_t)snprintf(text + len, sizeof text - len, "%s%zu", comma, cpu);
                comma = ",";
            }
        }
    }
    return text;
}

static void test_without_devices(void **state)
{
    (void)state;
    cpu_place places[CPUS];
    cpu_set_t sets[RANKS];
    make_places(places);
    assert_true(stk_launch_split(places, CPUS, NULL, 2, sets));
    assert_string_equal(shown(sets, 2), "0,1,2,3,8,9,10,11 4,5,6,7,12,13,14,15");
    assert_true(stk_launch_split(places, CPUS, NULL, 3, sets));
    assert_string_equal(shown(sets, 3), "0,1,2,8,9 3,4,10,11,12 5,6,7,13,14,15");
    assert_true(stk_launch_split(places, CPUS, NULL, 8, sets));
    assert_string_equal(shown(sets, 8), "0,8 1,9 2,10 3,11 4,12 5,13 6,14 7,15");
}

static void test_near_devices(void **state)
{
    (void)state;
    cpu_place places[CPUS];
    cpu_set_t near[RANKS];
    cpu_set_t sets[RANKS];
    make_places(places);
    for (int i = 0; i < 4; i++) { /* devices 0 and 3 are at node 1, devices 1 and 2 at node 0 */
        set_range(&near[i], i % 3 == 0 ? 4 : 0, i % 3 == 0 ? 7 : 3);
    }
    assert_true(stk_launch_split(places, CPUS, near, 4, sets));
    assert_string_equal(shown(sets, 4), "4,5,12,13 0,1,8,9 2,3,10,11 6,7,14,15");
    set_range(&near[0], 0, 7); /* a device near all CPUs leaves the other device its own */
    set_range(&near[1], 0, 0);
    assert_true(stk_launch_split(places, CPUS, near, 2, sets));
    assert_string_equal(shown(sets, 2), "1,2,3,4,5,6,7,9,10,11,12,13,14,15 0,8");
}

static void test_too_few_near(void **state)
{
    (void)state;
    cpu_place places[CPUS];
    cpu_set_t near[RANKS];
    cpu_set_t sets[RANKS];
    make_places(places);
    for (int i = 0; i < 3; i++) {
        set_range(&near[i], 5, 5);
    }
    assert_true(stk_launch_split(places, CPUS, near, 2, sets));
    assert_string_equal(shown(sets, 2), "5 13");
    assert_false(stk_launch_split(places, CPUS, near, 3, sets));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_without_devices),
                                       cmocka_unit_test(test_near_devices),
                                       cmocka_unit_test(test_too_few_near)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
