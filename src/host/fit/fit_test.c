/* Requests on simulated hosts: what fits, what is free, what a lease gets. */
#include <stdlib.h>
#include <string.h>

#include "base/testing.h"
#include "host/fit/fit.h"
#include "sys/file.h"

static char folder[] = "/tmp/stk-fit-XXXXXX";

static int set_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    return setenv("STOKER_LEASE_DIR", folder, 1);
}

static int tear_down(void **state)
{
    (void)state;
    return stk_file_remove_tree(folder, NULL);
}

/* 0 and the words of what was chosen, or the code and the words of the refusal. */
static void test_requests(void **state)
{
    static const struct {
        const char *host, *resources;
        int code;
        uint32_t n_chosen;
        int64_t share_bytes;
        const char *words;
    } cases[] = {
        {"none", "{\"cpu_count\": 1}", 0, 0, 0, ""},
        {"none", "{\"cpu_count\": 100000}", STK_E_RESOURCES, 0, 0,
         "cpu_count 100000 is more than gpu1's"},
        {"none", "{\"gpu_count\": 1}", STK_E_RESOURCES, 0, 0, "gpu1 has no GPU"},
        {"sim:4xA100", "{\"gpu_count\": 2}", 0, 2, 0, ""},
        {"sim:4xA100", "{\"gpu_count\": 5}", STK_E_RESOURCES, 0, 0, "gpu1"},
        {"sim:4xA100", "{\"gpu_count\": 1, \"gpu_class\": \"H100\"}", STK_E_RESOURCES, 0, 0,
         "H100"},
        {"sim:4xA100", "{\"any_of\": [{\"gpu_class\": \"H100\"}, {\"gpu_class\": \"A100\"}]}", 0, 1,
         0, ""},
        {"sim:2xA100", "{\"gpu_memory\": \"10GiB\"}", 0, 1, 10ll << 30, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        STK_ACCEL_AUTO accel = NULL;
        STK_FIT_AUTO fit = {0};
        stk_capacity capacity;
        stk_fit_now now;
        stk_err err = {0};
        assert_int_equal(stk_accel_open(cases[i].host, &accel, &err), 0);
        assert_int_equal(stk_fit_capacity(accel, "gpu1", arena, &capacity, &err), 0);
        int rc = stk_fit_make(&capacity, cases[i].resources, &fit, &err);
        if (rc != cases[i].code || strstr(err.text, cases[i].words) == NULL ||
            strncmp(err.text, "step", 4) == 0) {
            fail_msg("case %zu: %d, %s", i, rc, err.text);
        }
        if (rc == 0) {
            assert_int_equal(stk_fit_look(accel, &fit, &now, &err), 0);
            assert_true(now.is_free);
            assert_int_equal(stk_devset_count(&now.chosen), cases[i].n_chosen);
            assert_int_equal(now.share_bytes, cases[i].share_bytes);
        }
    }
}

/* Two leases never share a device, and the third is told who holds them. */
static void test_leases(void **state)
{
    static const char two[] = "{\"gpu_count\": 2}";
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_ACCEL_AUTO accel = NULL;
    STK_FIT_AUTO fit = {0};
    stk_capacity capacity;
    stk_lease a = {0}, b = {0}, c = {0};
    stk_err err = {0};
    (void)state;
    assert_int_equal(stk_accel_open("sim:4xA100", &accel, &err), 0);
    assert_int_equal(stk_fit_capacity(accel, "gpu1", arena, &capacity, &err), 0);
    assert_int_equal(stk_fit_make(&capacity, two, &fit, &err), 0);
    assert_int_equal(stk_fit_lease(accel, &fit, "run R step a", &a, &err), 0);
    assert_int_equal(stk_fit_lease(accel, &fit, "run R step b", &b, &err), 0);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_not_equal(a.devices[i / 2], b.devices[i % 2]);
    }
    assert_int_equal(stk_fit_lease(accel, &fit, "run R step c", &c, &err), STK_E_BUSY);
    assert_non_null(strstr(err.text, "run R step a"));
    stk_lease_drop(&a);
    assert_int_equal(stk_fit_lease(accel, &fit, "run R step c", &c, &err), 0);
    stk_lease_drop(&b);
    stk_lease_drop(&c);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_leases),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
