/* Simulated machines: the devices that a spec describes, and the errors of a wrong spec. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/testing.h"
#include "host/accel/accel.h"

static stk_accel *machine(const char *spec)
{
    char provider[4096];
    snprintf(provider, sizeof provider, "sim:%s", spec);
    stk_accel *accel = NULL;
    stk_err err = {0};
    if (stk_accel_open(provider, &accel, &err) != 0) {
        fail_msg("%s: %s", spec, err.text);
    }
    assert_true(stk_accel_is_simulated(accel));
    return accel;
}

static void test_gpus(void **state)
{
    (void)state;
    stk_accel *accel = machine("8xH100");
    assert_int_equal(stk_accel_n_devices(accel), 8);
    for (uint32_t i = 0; i < 8; i++) {
        const stk_device *d = stk_accel_device(accel, i);
        char uuid[32];
        snprintf(uuid, sizeof uuid, "GPU-sim-%u", i);
        assert_string_equal(d->uuid, uuid);
        assert_string_equal(d->vendor, "nvidia");
        assert_string_equal(d->model, "NVIDIA H100 80GB HBM3");
        assert_int_equal(d->index, i);
        assert_int_equal(d->numa, i / 4);
        assert_int_equal(d->cc_major, 9);
        assert_true(d->memory_bytes == 81559ll << 20);
        assert_true(d->usable);
        for (uint32_t k = 0; k < 8; k++) {
            int32_t n = 0;
            stk_closeness link = stk_accel_link(accel, i, k, &n);
            assert_int_equal(link, i == k ? STK_LINK_SAME : STK_LINK_FABRIC);
            assert_int_equal(n, i == k ? -1 : 18);
        }
    }
    stk_device_state now; /* a simulation makes up no values */
    assert_int_equal(stk_accel_state(accel, 0, &now, NULL), 0);
    assert_int_equal(now.busy_percent, -1);
    assert_int_equal(now.memory_used, -1);
    assert_int_equal(stk_accel_processes(accel, 0, NULL, 0), -1);
    stk_accel_close(accel);
}

static void test_pcie_cards(void **state)
{
    (void)state;
    stk_accel *accel = machine("8xL4,memory=20GB,busy=35%");
    assert_true(stk_accel_device(accel, 7)->memory_bytes == 20000000000);
    assert_int_equal(stk_accel_link(accel, 0, 3, NULL), STK_LINK_NODE);
    assert_int_equal(stk_accel_link(accel, 0, 4, NULL), STK_LINK_SYSTEM);
    stk_device_state now;
    assert_int_equal(stk_accel_state(accel, 0, &now, NULL), 0);
    assert_int_equal(now.busy_percent, 35);
    stk_device_sample sample;
    assert_int_equal(stk_accel_sample(accel, 1, NULL, 0, &sample), 0);
    assert_int_equal(sample.busy_percent, 35);
    stk_accel_close(accel);
}

static void test_slices(void **state)
{
    (void)state;
    stk_accel *accel = machine("2xA100,mig=1g.10gb*7");
    assert_int_equal(stk_accel_n_devices(accel), 16);
    const stk_device *whole = stk_accel_device(accel, 8);
    assert_false(whole->usable);
    assert_null(whole->trouble);
    assert_int_equal(whole->n_slices, 7);
    assert_int_equal(whole->index, 1);
    const stk_device *slice = stk_accel_device(accel, 15);
    assert_string_equal(slice->uuid, "MIG-sim-1-6");
    assert_string_equal(slice->profile, "1g.10gb");
    assert_string_equal(slice->noun, "MIG slice");
    assert_int_equal(slice->parent, 8);
    assert_true(slice->memory_bytes == 10000000000);
    assert_true(slice->usable);
    assert_int_equal(stk_accel_link(accel, 14, 15, NULL), STK_LINK_SAME);
    assert_int_equal(stk_accel_link(accel, 1, 15, NULL), STK_LINK_FABRIC);
    stk_accel_close(accel);

    accel = machine("H100,mig=3g.40gb,mig=1g.10gb+A100-40GB"); /* 2 slices of 3g, 1 slice of 1g */
    assert_int_equal(stk_accel_n_devices(accel), 5);
    assert_string_equal(stk_accel_device(accel, 3)->profile, "1g.10gb");
    assert_string_equal(stk_accel_device(accel, 4)->uuid, "GPU-sim-1");
    assert_string_equal(stk_accel_device(accel, 4)->model, "NVIDIA A100-SXM4-40GB");
    stk_accel_close(accel);
}

static void test_other_vendors(void **state)
{
    (void)state;
    const struct {
        const char *spec, *vendor, *noun, *last_uuid;
        uint32_t n;
        int32_t n_cores;
    } cases[] = {
        {"4xMI300X", "amd", "GPU", "GPU-sim-3", 4, -1},
        {"16xTrainium", "aws", "Neuron device", "aws-sim-15", 16, 2},
        {"trainium2", "aws", "Neuron device", "aws-sim-0", 1, 4},
        {"v5e-8", "google", "TPU chip", "google-sim-7", 8, 1},
        {"v5litepod-4", "google", "TPU chip", "google-sim-3", 4, 1},
        {"v4-8", "google", "TPU chip", "google-sim-3", 4, 1}, /* 8 TensorCores, 2 a chip */
        {"v3-8", "google", "TPU chip", "google-sim-3", 4, 2},
        {"4xv5p", "google", "TPU chip", "google-sim-3", 4, 1},
        {"8xGaudi2", "habana", "Gaudi card", "habana-sim-7", 8, -1},
        {"2xMax-1550", "intel", "GPU", "GPU-sim-1", 2, -1},
        {"nvidia h100 80gb hbm3", "nvidia", "GPU", "GPU-sim-0", 1, -1},
        {"256xL4", "nvidia", "GPU", "GPU-sim-255", 256, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        stk_accel *accel = machine(cases[i].spec);
        assert_int_equal(stk_accel_n_devices(accel), cases[i].n);
        const stk_device *d = stk_accel_device(accel, cases[i].n - 1);
        assert_string_equal(d->vendor, cases[i].vendor);
        assert_string_equal(d->noun, cases[i].noun);
        assert_string_equal(d->uuid, cases[i].last_uuid);
        assert_int_equal(d->n_cores, cases[i].n_cores);
        assert_true(d->memory_bytes > 0);
        stk_accel_close(accel);
    }
}

/* A grid links neighbours and reaches other devices through them; Trainium's edges wrap around. */
static void test_grids(void **state)
{
    (void)state;
    stk_accel *accel = machine("v5e-8");
    assert_int_equal(stk_accel_link(accel, 0, 1, NULL), STK_LINK_FABRIC);
    assert_int_equal(stk_accel_link(accel, 0, 2, NULL), STK_LINK_FABRIC);
    assert_int_equal(stk_accel_link(accel, 0, 3, NULL), STK_LINK_SWITCH);
    stk_accel_close(accel);
    accel = machine("16xTrainium");
    assert_int_equal(stk_accel_link(accel, 0, 3, NULL), STK_LINK_FABRIC);
    assert_int_equal(stk_accel_link(accel, 0, 12, NULL), STK_LINK_FABRIC);
    assert_int_equal(stk_accel_link(accel, 0, 5, NULL), STK_LINK_SWITCH);
    stk_accel_close(accel);
}

/* This machine's mask doesn't apply to a simulated one. */
static void test_masks(void **state)
{
    (void)state;
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    stk_accel *accel = machine("2xH100");
    assert_int_equal(stk_accel_n_devices(accel), 2);
    stk_accel_close(accel);
    unsetenv("CUDA_VISIBLE_DEVICES");
}

static void test_wrong(void **state)
{
    (void)state;
    const struct {
        const char *spec, *sentence;
        int code;
    } cases[] = {
        {"", "name one, for example 8xH100", STK_E_USAGE},
        {"8xH10", "no device 'H10' is known; did you mean H100?", STK_E_USAGE},
        {"2xMI300", "did you mean MI300X?", STK_E_USAGE},
        {"8xabacus", "no device 'abacus' is known", STK_E_USAGE},
        {"8x", "a part is empty", STK_E_USAGE},
        {"0xH100", "'0xH100' has no device; ask for at least 1", STK_E_USAGE},
        {"H100+", "a part is empty; parts are COUNTxMODEL", STK_E_USAGE},
        {"257xH100", "more than 256 devices", STK_E_LIMIT},
        {"99999999999999999999xH100", "more than 256 devices", STK_E_LIMIT},
        {"200xH100+57xA100", "more than 256 devices", STK_E_LIMIT},
        {"H100,fast", "'fast' is none of mig=", STK_E_USAGE},
        {"H100,busy=101", "busy=101 is not 0 to 100", STK_E_USAGE},
        {"H100,busy=", "busy= is not 0 to 100", STK_E_USAGE},
        {"H100,memory=lots", "simulated machine", STK_E_USAGE},
        {"A100,mig=1g.10gb*8", "room for 7 of '1g.10gb'", STK_E_USAGE},
        {"A100,mig=1g.10gb*0", "room for 7", STK_E_USAGE},
        {"A100,mig=1g.10gb*x", "room for 7", STK_E_USAGE},
        {"A100,mig=3g.40gb*1,mig=4g.40gb*1,mig=1g.10gb*1", "room for 0", STK_E_USAGE},
        {"A100,mig=1g.5gb*7", "has no MIG profile '1g.5gb'", STK_E_USAGE},
        {"L4,mig=1g.5gb", "can't be split by MIG", STK_E_USAGE},
        {"A100,mig=1g.10gb,memory=9GB", "exclude each other", STK_E_USAGE},
        {"v5e-16", "one host has at most 8", STK_E_USAGE},
        {"v4-16", "one host has at most 4", STK_E_USAGE},
        {"3xv5e", "1, 2, 4 or 8", STK_E_USAGE},
        {"H100-8", "no device 'H100-8' is known", STK_E_USAGE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char provider[256];
        stk_accel *accel = NULL;
        stk_err err = {0};
        snprintf(provider, sizeof provider, "sim:%s", cases[i].spec);
        int rc = stk_accel_open(provider, &accel, &err);
        if (rc != cases[i].code || strstr(err.text, cases[i].sentence) == NULL) {
            fail_msg("%s: %d %s", cases[i].spec, rc, err.text);
        }
        assert_null(accel);
    }
}

int main(void)
{
    unsetenv("STOKER_ACCEL");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpus),   cmocka_unit_test(test_pcie_cards),
        cmocka_unit_test(test_slices), cmocka_unit_test(test_other_vendors),
        cmocka_unit_test(test_grids),  cmocka_unit_test(test_masks),
        cmocka_unit_test(test_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
