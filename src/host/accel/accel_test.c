/* Finding devices: the list of providers, the devices that inherited masks leave, and values from
 * the kernel's files. (NVML: accel_nvml_test.c; failures: accel_trouble_test.c.) */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/testing.h"
#include "host/accel/accel.h"
#include "host/accel/accel_sysfs.h"
#include "sys/file.h"

static char dir[] = "/tmp/stoker-accel-XXXXXX";
static char devices[PATH_MAX]; /* the fake provider's file in `dir` */

static int set_up(void **state)
{
    (void)state;
    const char *const names[] = {"STOKER_ACCEL",         "STOKER_NVML",
                                 "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                 "ZE_AFFINITY_MASK",     "NEURON_RT_VISIBLE_CORES",
                                 "TPU_VISIBLE_CHIPS"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        unsetenv(names[i]);
    }
    char path[PATH_MAX];
    strcpy(strrchr(dir, '-'), "-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(devices, sizeof devices, "%s/devices.json", dir);
    snprintf(path, sizeof path, "%s/leases", dir);
    setenv("STOKER_LEASE_DIR", path, 1);
    snprintf(path, sizeof path, "%s/root", dir);
    setenv("STOKER_SYSROOT", path, 1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return stk_file_remove_tree(dir, NULL);
}

static stk_accel *open_fake(const char *json)
{
    char provider[PATH_MAX + 8];
    stk_accel *accel = NULL;
    stk_err err = {0};
    assert_int_equal(stk_file_write(devices, json, strlen(json), 0644, NULL), 0);
    snprintf(provider, sizeof provider, "fake:%s", devices);
    if (stk_accel_open(provider, &accel, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return accel;
}

static void make_file(const char *path_in_root, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/root%s", dir, path_in_root);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(stk_file_mkdirs(path, 0755, NULL), 0);
    *slash = '/';
    assert_int_equal(stk_file_write(path, text, strlen(text), 0644, NULL), 0);
}

static void test_none(void **state)
{
    (void)state;
    const char *const providers[] = {"none", "auto", "none,auto", NULL};
    for (size_t i = 0; i < sizeof providers / sizeof providers[0]; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        stk_accel *accel = NULL; /* this test's root folder has no device */
        assert_int_equal(stk_accel_open(providers[i], &accel, NULL), 0);
        assert_int_equal(stk_accel_n_devices(accel), 0);
        assert_null(stk_accel_device(accel, 0));
        assert_string_equal(stk_accel_describe(accel, arena), "no GPU");
        assert_int_equal(stk_accel_cuda_version(accel), -1);
        assert_null(stk_accel_driver(accel));
        assert_false(stk_accel_is_simulated(accel));
        stk_device_event e;
        assert_false(stk_accel_next_event(accel, &e));
        stk_accel_close(accel);
    }
}

static void test_unknown_provider(void **state)
{
    (void)state;
    const char *const cases[] = {"rocm", "nvml,rocm", "nvml:x", "fake", "auto:x", "none,,rocm"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        stk_accel *accel = NULL;
        stk_err err = {0};
        if (stk_accel_open(cases[i], &accel, &err) != STK_E_USAGE) {
            fail_msg("'%s': %s", cases[i], err.text);
        }
        assert_non_null(strstr(err.text, "unknown device provider '"));
        assert_non_null(strstr(err.text, "nvml, "));
        assert_null(accel);
    }
}

/* Several providers fill one list; each device is read through the provider that found it. */
static void test_several(void **state)
{
    (void)state;
    char second[PATH_MAX + 16], list[3 * PATH_MAX];
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_accel_close(open_fake("[{\"uuid\": \"GPU-a\", \"busy_percent\": 11}]"));
    snprintf(second, sizeof second, "%s/second,nvidia.json", dir); /* a path may have a comma */
    const char *json = "[{\"uuid\": \"X\", \"parent\": null, \"busy_percent\": 22},"
                       " {\"uuid\": \"Y\", \"parent\": 0, \"busy_percent\": 33}]";
    assert_int_equal(stk_file_write(second, json, strlen(json), 0644, NULL), 0);
    snprintf(list, sizeof list, "none,fake:%s,fake:%s,auto", devices, second);
    stk_accel *accel = NULL;
    stk_err err = {0};
    if (stk_accel_open(list, &accel, &err) != 0) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(stk_accel_n_devices(accel), 3);
    for (uint32_t i = 0; i < 3; i++) {
        stk_device_sample s;
        assert_int_equal(stk_accel_sample(accel, i, NULL, 0, &s), 0);
        assert_int_equal(s.busy_percent, 11 * (i + 1));
    }
    assert_int_equal(stk_accel_device(accel, 2)->parent, 1); /* its index in this list */
    assert_string_equal(stk_accel_describe(accel, arena), "2 fake GPUs, 1 fake MIG slice");
    stk_accel_close(accel);
}

static const char four[] = "[{\"uuid\": \"GPU-00000-fake\", \"busy_percent\": 37},"
                           " {\"uuid\": \"GPU-00001-fake\", \"busy_percent\": 38},"
                           " {\"uuid\": \"GPU-00002-fake\", \"busy_percent\": 39},"
                           " {\"uuid\": \"GPU-00003-fake\", \"busy_percent\": 40}]";

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
        {"GPU-0000", "", "'GPU-0000' names none"}, /* too short to name one device */
        {"0,1,2,3", "0123", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        char seen[8] = "";
        setenv("CUDA_VISIBLE_DEVICES", cases[i].mask, 1);
        stk_accel *accel = open_fake(four);
        for (uint32_t k = 0; k < stk_accel_n_devices(accel); k++) {
            seen[k] = (char)('0' + stk_accel_device(accel, k)->index);
        }
        assert_string_equal(seen, cases[i].indices);
        const char *text = stk_accel_describe(accel, arena);
        if (cases[i].remark != NULL ? strstr(text, cases[i].remark) == NULL
                                    : strstr(text, "CUDA_VISIBLE_DEVICES") != NULL) {
            fail_msg("mask '%s': %s", cases[i].mask, text);
        }
        stk_device_sample sample; /* the mask must not shift the provider's indices */
        if (seen[0] != '\0') {
            assert_int_equal(stk_accel_sample(accel, 0, NULL, 0, &sample), 0);
            assert_int_equal(sample.busy_percent, 37 + seen[0] - '0');
        }
        stk_accel_close(accel);
    }
}

/* A host with devices of every vendor: a mask hides only its own vendor's devices. */
static void test_masks_of_vendors(void **state)
{
    (void)state;
    const struct {
        const char *variable, *mask, *usable, *unusable;
    } cases[] = {
        {"ROCR_VISIBLE_DEVICES", "1", "n0 a1 i0 i1 w0 w1 t0 t1", ""},
        {"ROCR_VISIBLE_DEVICES", "GPU-amd-0", "n0 a0 i0 i1 w0 w1 t0 t1", ""},
        {"ROCR_VISIBLE_DEVICES", "", "n0 i0 i1 w0 w1 t0 t1", ""},
        {"ZE_AFFINITY_MASK", "0", "n0 a0 a1 i0 w0 w1 t0 t1", ""},
        {"ZE_AFFINITY_MASK", "1.0", "n0 a0 a1 w0 w1 t0 t1", "i1"},
        {"NEURON_RT_VISIBLE_CORES", "2-3", "n0 a0 a1 i0 i1 w1 t0 t1", ""},
        {"NEURON_RT_VISIBLE_CORES", "0-2", "n0 a0 a1 i0 i1 w0 t0 t1", "w1"},
        {"NEURON_RT_VISIBLE_CORES", "0,1,2,3", "n0 a0 a1 i0 i1 w0 w1 t0 t1", ""},
        {"NEURON_RT_VISIBLE_CORES", "9999", "n0 a0 a1 i0 i1 t0 t1", ""},
        {"TPU_VISIBLE_CHIPS", "1", "n0 a0 a1 i0 i1 w0 w1 t1", ""},
        {"CUDA_VISIBLE_DEVICES", "", "a0 a1 i0 i1 w0 w1 t0 t1", ""},
    };
    const char *json =
        "[{\"model\": \"n0\", \"uuid\": \"GPU-n\"},"
        " {\"model\": \"a0\", \"vendor\": \"amd\", \"uuid\": \"GPU-amd-0\", \"index\": 0},"
        " {\"model\": \"a1\", \"vendor\": \"amd\", \"uuid\": \"GPU-amd-1\", \"index\": 1},"
        " {\"model\": \"i0\", \"vendor\": \"intel\", \"index\": 0},"
        " {\"model\": \"i1\", \"vendor\": \"intel\", \"index\": 1},"
        " {\"model\": \"w0\", \"vendor\": \"aws\", \"index\": 0, \"n_cores\": 2},"
        " {\"model\": \"w1\", \"vendor\": \"aws\", \"index\": 1, \"n_cores\": 2},"
        " {\"model\": \"t0\", \"vendor\": \"google\", \"index\": 0, \"noun\": \"TPU chip\"},"
        " {\"model\": \"t1\", \"vendor\": \"google\", \"index\": 1, \"noun\": \"TPU chip\"}]";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char usable[64] = "", unusable[64] = "";
        setenv(cases[i].variable, cases[i].mask, 1);
        stk_accel *accel = open_fake(json);
        unsetenv(cases[i].variable);
        /* A masked vendor's devices come in the mask's order: compare in the file's order. */
        for (const char *name = "n0\0a0\0a1\0i0\0i1\0w0\0w1\0t0\0t1\0"; *name; name += 3) {
            for (uint32_t k = 0; k < stk_accel_n_devices(accel); k++) {
                const stk_device *d = stk_accel_device(accel, k);
                char *to = d->usable ? usable : unusable;
                if (strcmp(d->model, name) == 0) {
                    snprintf(to + strlen(to), 64 - strlen(to), "%s%s", *to ? " " : "", name);
                    assert_true(d->usable || strstr(d->trouble, cases[i].variable) != NULL);
                }
            }
        }
        if (strcmp(usable, cases[i].usable) != 0 || strcmp(unusable, cases[i].unusable) != 0) {
            fail_msg("%s=%s leaves '%s' and '%s'", cases[i].variable, cases[i].mask, usable,
                     unusable);
        }
        stk_accel_close(accel);
    }
}

/* This process's mask doesn't apply to a simulated machine. */
static void test_mask_of_simulated(void **state)
{
    (void)state;
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    stk_accel *accel = NULL;
    assert_int_equal(stk_accel_open("sim:2xH100", &accel, NULL), 0);
    assert_int_equal(stk_accel_n_devices(accel), 2);
    assert_true(stk_accel_is_simulated(accel));
    stk_accel_close(accel);
}

static void test_fake_file(void **state)
{
    (void)state;
    stk_accel_close(open_fake("[{\"uuid\": \"GPU-a\", \"memory_bytes\": 1000,"
                              " \"busy_percent\": 40, \"processes\": {\"5\": 300}},"
                              " {\"usable\": false, \"trouble\": \"burnt\"}]"));
    char provider[PATH_MAX + 8];
    snprintf(provider, sizeof provider, "fake:%s", devices);
    setenv("STOKER_ACCEL", provider, 1); /* as a user would choose the provider */
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

    const struct {
        const char *json, *sentence;
    } cases[] = {{"[{\"uuid", "can't be read"},
                 {"{\"uuid\": 1}", "must hold a list"},
                 {"[1]", "each a mapping"},
                 {"[{\"parent\": 0}]", "must stand before it"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        stk_err err = {0};
        const char *json = cases[i].json;
        assert_int_equal(stk_file_write(devices, json, strlen(json), 0644, NULL), 0);
        assert_int_equal(stk_accel_open(provider, &accel, &err), STK_E_ENV);
        if (strstr(err.text, cases[i].sentence) == NULL) {
            fail_msg("%s", err.text);
        }
    }
    assert_int_equal(unlink(devices), 0);
    stk_err err = {0};
    assert_int_equal(stk_accel_open(provider, &accel, &err), STK_E_ENV);
    assert_string_equal(err.file, devices);
}

static void test_sysfs(void **state)
{
    (void)state;
    char text[32];
    make_file("/sys/a", "  512 MiB\t\n");
    make_file("/sys/hex", "0x10de\n");
    make_file("/sys/ten", "010\n");
    make_file("/sys/word", "unknown\n");
    make_file("/sys/empty", "");
    make_file("/sys/minus", "-1\n");
    make_file("/sys/drm/card10/x", "");
    make_file("/sys/drm/card2/x", "");
    make_file("/sys/drm/render1/x", "");
    assert_int_equal(stk_sysfs_number("/sys/%s", "a"), 512);
    assert_int_equal(stk_sysfs_number("/sys/hex"), 0x10de);
    assert_int_equal(stk_sysfs_number("/sys/ten"), 10);
    assert_int_equal(stk_sysfs_number("/sys/word"), -1);
    assert_int_equal(stk_sysfs_number("/sys/empty"), -1);
    assert_int_equal(stk_sysfs_number("/sys/minus"), -1);
    assert_int_equal(stk_sysfs_number("/sys/missing"), -1);
    assert_true(stk_sysfs_text(text, sizeof text, "/sys/a"));
    assert_string_equal(text, "512 MiB");
    assert_false(stk_sysfs_text(text, sizeof text, "/sys/missing"));
    assert_true(stk_sysfs_exists("/sys/%s", "empty"));
    assert_false(stk_sysfs_exists("/sys/missing"));
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *const *names;
    assert_int_equal(stk_sysfs_list(arena, "/sys/drm", "card", &names), 2);
    assert_string_equal(names[0], "card2");
    assert_string_equal(names[1], "card10");
    assert_int_equal(stk_sysfs_list(arena, "/sys/missing", "", &names), 0);
    char name[16];
    assert_true(stk_pci_name("00000000:0F:00.0", name));
    assert_string_equal(name, "0000:0f:00.0");
    assert_true(stk_pci_name("10000:e1:02.1", name));
    assert_string_equal(name, "10000:e1:02.1");
    assert_false(stk_pci_name("card0", name));
    assert_false(stk_pci_name(NULL, name));
}

/* The kernel's tree: two devices behind one switch, one on the same host bridge, one on another. */
static void test_pci_links(void **state)
{
    (void)state;
    const char *const ways[] = {
        "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:0f:00.0",
        "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:04.0/0000:10:00.0",
        "pci0000:00/0000:00:03.0/0000:20:00.0",
        "pci0000:80/0000:80:01.0/0000:a0:00.0",
    };
    char path[PATH_MAX], target[PATH_MAX];
    make_file("/sys/bus/pci/devices/.keep", "");
    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "/sys/devices/%s/vendor", ways[i]);
        make_file(path, "0x1002\n");
        snprintf(path, sizeof path, "%s/root/sys/bus/pci/devices/%s", dir,
                 strrchr(ways[i], '/') + 1);
        snprintf(target, sizeof target, "../../../devices/%s", ways[i]);
        assert_int_equal(symlink(target, path), 0);
    }
    assert_true(stk_sysfs_link(target, sizeof target, "/sys/bus/pci/devices/0000:a0:00.0"));
    assert_string_equal(target, "0000:a0:00.0");
    stk_accel *accel = open_fake("[{\"pci\": \"0000:0f:00.0\", \"numa\": 0},"
                                 " {\"pci\": \"00000000:10:00.0\", \"numa\": 0},"
                                 " {\"pci\": \"0000:20:00.0\", \"numa\": 0},"
                                 " {\"pci\": \"0000:a0:00.0\", \"numa\": 0},"
                                 " {\"numa\": 1}, {}]");
    const stk_closeness wanted[] = {STK_LINK_SAME, STK_LINK_SWITCH, STK_LINK_HOST,
                                    STK_LINK_NODE, STK_LINK_SYSTEM, STK_LINK_UNKNOWN};
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(stk_accel_link(accel, 0, i, NULL), wanted[i]);
        assert_int_equal(stk_accel_link(accel, i, 0, NULL), wanted[i]);
    }
    stk_accel_close(accel);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_none),
        TEST(test_unknown_provider),
        TEST(test_several),
        TEST(test_mask),
        TEST(test_masks_of_vendors),
        TEST(test_mask_of_simulated),
        TEST(test_fake_file),
        TEST(test_sysfs),
        TEST(test_pci_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
