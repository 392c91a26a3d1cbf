/* Finding devices: the real NVML path against a stand-in library, the fake provider, and the pool
 * that CUDA_VISIBLE_DEVICES leaves. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accel/accel.h"
#include "base/testing.h"

static char lib_new[PATH_MAX + 64], lib_old[PATH_MAX + 64];

/* The stand-ins lie beside this program in the build folder. */
static void find_libraries(void)
{
    char self[PATH_MAX] = "";
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    *strrchr(self, '/') = '\0';
    snprintf(lib_new, sizeof lib_new, "%s/src/accel/libnvidia-ml-fake.so", self);
    snprintf(lib_old, sizeof lib_old, "%s/src/accel/libnvidia-ml-fake-old.so", self);
}

static int reset(void **state)
{
    (void)state;
    const char *const names[] = {"STOKER_NVML",       "STOKER_ACCEL",   "CUDA_VISIBLE_DEVICES",
                                 "FAKE_NVML_DEVICES", "FAKE_NVML_INIT", "FAKE_NVML_LOST",
                                 "FAKE_NVML_MIG"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        unsetenv(names[i]);
    }
    find_libraries();
    return 0;
}

static stk_accel *open_with(const char *library)
{
    stk_accel *accel = NULL;
    stk_err err = {0};
    setenv("STOKER_NVML", library, 1);
    if (stk_accel_open("nvml", &accel, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return accel;
}

static void test_none(void **state)
{
    (void)state;
    stk_accel *accel = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    assert_int_equal(stk_accel_open("none", &accel, NULL), 0);
    assert_int_equal(stk_accel_n_devices(accel), 0);
    assert_null(stk_accel_device(accel, 0));
    assert_string_equal(stk_accel_describe(accel, arena), "no GPU");
    stk_accel_close(accel);
}

static void test_unknown_provider(void **state)
{
    (void)state;
    stk_accel *accel = NULL;
    stk_err err = {0};
    assert_int_equal(stk_accel_open("rocm", &accel, &err), STK_E_USAGE);
    assert_non_null(strstr(err.text, "'rocm'"));
    assert_null(accel);
}

static void test_nvml_new(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_accel *accel = open_with(lib_new);
    assert_int_equal(stk_accel_n_devices(accel), 2);
    const stk_device *d = stk_accel_device(accel, 1);
    assert_string_equal(d->vendor, "nvidia");
    assert_string_equal(d->uuid, "GPU-00001-fake");
    assert_string_equal(d->model, "NVIDIA H100 80GB HBM3");
    assert_string_equal(d->pci, "00000000:10:00.0");
    assert_int_equal(d->index, 1);
    assert_true(d->memory_bytes == 80ll << 30);
    assert_true(d->usable);
    assert_string_equal(stk_accel_driver(accel), "580.65.06");
    assert_string_equal(stk_accel_describe(accel, arena), "2 NVIDIA GPUs, driver 580.65.06");

    stk_device_sample sample;
    const pid_t pids[] = {101, 100, 7};
    assert_int_equal(stk_accel_sample(accel, 1, pids, 3, &sample), 0);
    assert_int_equal(sample.busy_percent, 38);
    assert_true(sample.memory_used == 2ll << 30);
    assert_true(sample.process_memory == 12ll << 20);
    assert_int_equal(sample.power_mw, 123456);
    const pid_t unknown[] = {102, 7}; /* one the driver can't tell, one it doesn't list */
    assert_int_equal(stk_accel_sample(accel, 0, unknown, 2, &sample), 0);
    assert_int_equal(sample.process_memory, -1);
    assert_int_equal(stk_accel_sample(accel, 2, NULL, 0, &sample), STK_E_NOT_FOUND);
    stk_accel_close(accel);
}

static void test_nvml_old(void **state)
{
    (void)state;
    setenv("FAKE_NVML_DEVICES", "1", 1);
    stk_accel *accel = open_with(lib_old);
    assert_int_equal(stk_accel_n_devices(accel), 1);
    assert_string_equal(stk_accel_device(accel, 0)->pci, "0000:0F:00.0");
    stk_device_sample sample;
    const pid_t pids[] = {100};
    assert_int_equal(stk_accel_sample(accel, 0, pids, 1, &sample), 0);
    assert_int_equal(sample.busy_percent, 37);
    assert_int_equal(sample.process_memory, -1);
    stk_accel_close(accel);
}

static void test_nvml_troubles(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    setenv("FAKE_NVML_LOST", "0", 1);
    setenv("FAKE_NVML_MIG", "1", 1);
    setenv("FAKE_NVML_DEVICES", "3", 1);
    stk_accel *accel = open_with(lib_new);
    assert_int_equal(stk_accel_n_devices(accel), 3);
    assert_false(stk_accel_device(accel, 0)->usable);
    assert_non_null(strstr(stk_accel_device(accel, 0)->trouble, "GPU 0 has fallen off the bus"));
    assert_false(stk_accel_device(accel, 1)->usable);
    assert_non_null(strstr(stk_accel_device(accel, 1)->trouble, "MIG"));
    assert_true(stk_accel_device(accel, 2)->usable);
    assert_non_null(strstr(stk_accel_describe(accel, arena), "3 NVIDIA GPUs"));
    assert_non_null(strstr(stk_accel_describe(accel, arena), "1 usable: GPU 0 has fallen"));
    stk_device_sample sample;
    assert_int_equal(stk_accel_sample(accel, 0, NULL, 0, &sample), STK_E_ENV);
    assert_int_equal(sample.busy_percent, -1);
    stk_accel_close(accel);
}

/* The library is there but won't start: nothing is made up, and the sentence says the way out. */
static void test_nvml_init_fails(void **state)
{
    (void)state;
    const struct {
        const char *code, *sentence;
    } cases[] = {{"18", "of different versions: reboot"},
                 {"9", "modprobe nvidia"},
                 {"999", "Unknown Error (code 999)"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        setenv("FAKE_NVML_INIT", cases[i].code, 1);
        stk_accel *accel = open_with(lib_new);
        for (uint32_t k = 0; k < stk_accel_n_devices(accel); k++) {
            assert_false(stk_accel_device(accel, k)->usable);
        }
        assert_non_null(strstr(stk_accel_describe(accel, arena), cases[i].sentence));
        stk_accel_close(accel);
    }
}

static void test_not_a_library(void **state)
{
    (void)state;
    stk_accel *accel = NULL;
    stk_err err = {0};
    setenv("STOKER_NVML", "/etc/hostname", 1);
    assert_int_equal(stk_accel_open("nvml", &accel, &err), STK_E_ENV);
    assert_non_null(strstr(err.text, "/etc/hostname"));
}

static void test_mask(void **state)
{
    (void)state;
    const struct {
        const char *mask, *indices, *remark;
    } cases[] = {
        {"", "", "limits them to 0 of 4"},
        {"-1", "", "limits them to 0 of 4"},
        {"2", "2", "limits them to 1 of 4"},
        {"3,1", "31", "limits them to 2 of 4"},
        {" 1, 1,0", "10", "limits them to 2 of 4"},
        {"0,9,1", "0", "'9' names none of them"},
        {"GPU-00002-fake,GPU-00000-fake", "20", "limits them to 2 of 4"},
        {"GPU-00003", "3", "limits them to 1 of 4"},
        {"GPU-0000", "", "'GPU-0000' names none"}, /* cut too short to be one device */
        {"0,1,2,3", "0123", NULL},
    };
    setenv("FAKE_NVML_DEVICES", "4", 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        char seen[8] = "";
        setenv("CUDA_VISIBLE_DEVICES", cases[i].mask, 1);
        stk_accel *accel = open_with(lib_new);
        for (uint32_t k = 0; k < stk_accel_n_devices(accel); k++) {
            seen[k] = (char)('0' + stk_accel_device(accel, k)->index);
        }
        assert_string_equal(seen, cases[i].indices);
        const char *text = stk_accel_describe(accel, arena);
        if (cases[i].remark != NULL ? strstr(text, cases[i].remark) == NULL
                                    : strstr(text, "CUDA_VISIBLE_DEVICES") != NULL) {
            fail_msg("mask '%s': %s", cases[i].mask, text);
        }
        stk_device_sample sample; /* the mask must not shift whom we ask */
        if (seen[0] != '\0') {
            assert_int_equal(stk_accel_sample(accel, 0, NULL, 0, &sample), 0);
            assert_int_equal(sample.busy_percent, 37 + seen[0] - '0');
        }
        stk_accel_close(accel);
    }
}

static void test_fake_file(void **state)
{
    (void)state;
    char path[] = "/tmp/stoker-fake-XXXXXX", provider[64];
    int fd = mkstemp(path);
    const char *text =
        "[{\"uuid\": \"GPU-a\", \"memory_bytes\": 1000, \"busy_percent\": 40,"
        "  \"processes\": {\"5\": 300}}, {\"usable\": false, \"trouble\": \"burnt\"}]";
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    snprintf(provider, sizeof provider, "fake:%s", path);
    setenv("STOKER_ACCEL", provider, 1); /* as a user would switch it on */
    stk_accel *accel = NULL;
    assert_int_equal(stk_accel_open(NULL, &accel, NULL), 0);
    assert_int_equal(stk_accel_n_devices(accel), 2);
    assert_true(stk_accel_device(accel, 0)->usable);
    assert_int_equal(stk_accel_device(accel, 0)->memory_bytes, 1000);
    assert_string_equal(stk_accel_device(accel, 1)->trouble, "burnt");
    assert_int_equal(stk_accel_device(accel, 1)->memory_bytes, -1);
    stk_device_sample sample;
    const pid_t pid = 5;
    assert_int_equal(stk_accel_sample(accel, 0, &pid, 1, &sample), 0);
    assert_int_equal(sample.busy_percent, 40);
    assert_int_equal(sample.process_memory, 300);
    assert_int_equal(sample.power_mw, -1);
    stk_accel_close(accel);

    assert_int_equal(ftruncate(fd, 7), 0);
    stk_err err = {0};
    assert_int_equal(stk_accel_open(provider, &accel, &err), STK_E_ENV);
    assert_string_equal(err.file, path);
    close(fd);
    unlink(path);
    assert_int_equal(stk_accel_open(provider, &accel, &err), STK_E_ENV);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_none, reset),
        cmocka_unit_test_setup(test_unknown_provider, reset),
        cmocka_unit_test_setup(test_nvml_new, reset),
        cmocka_unit_test_setup(test_nvml_old, reset),
        cmocka_unit_test_setup(test_nvml_troubles, reset),
        cmocka_unit_test_setup(test_nvml_init_fails, reset),
        cmocka_unit_test_setup(test_not_a_library, reset),
        cmocka_unit_test_setup(test_mask, reset),
        cmocka_unit_test_setup(test_fake_file, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
