/* Every rule for frameworks, drivers, devices and hosts; then all of them on a fake host and on the
 * stand-in for NVIDIA's library. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/testing.h"
#include "host/preflight/preflight_private.h"
#include "sys/file.h"

static uint64_t bits_of(const int32_t *archs)
{
    uint64_t bits = 0;
    for (uint32_t i = 0; i < stk_preflight_n_arches; i++) {
        for (const int32_t *a = archs; *a != 0; a++) {
            if (stk_preflight_arches[i].arch == *a &&
                stk_preflight_arches[i].kind == STK_ARCH_PLAIN) {
                bits |= (uint64_t)1 << i;
            }
        }
    }
    return bits;
}

static const stk_finding *find(const stk_findings *f, const char *check)
{
    for (uint32_t i = 0; i < f->n; i++) {
        if (strcmp(f->items[i].check, check) == 0) {
            return &f->items[i];
        }
    }
    return NULL;
}

/* --- frameworks --- */

static void test_versions(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        int order;
    } cases[] = {{"580.65.06", "580", 1},        {"580", "580", 0},
                 {"535.104.05", "580", -1},      {"525.60.13", "525.60.13", 0},
                 {"525.60", "525.60.13", -1},    {"1000.1", "999", 1},
                 {"525.105.17", "525.60.13", 1}, {"580.00", "580", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int got = stk_preflight_compare_versions(cases[i].a, cases[i].b);
        assert_int_equal((got > 0) - (got < 0), cases[i].order);
    }
}

static const stk_device h100 = {STK_DEVICE_UNKNOWN, .vendor = "nvidia",     .noun = "GPU",
                                .uuid = "GPU-1",    .model = "NVIDIA H100", .usable = true};

static stk_device card(const char *model, int32_t major, int32_t minor)
{
    stk_device d = h100;
    d.model = model;
    d.cc_major = major;
    d.cc_minor = minor;
    return d;
}

static void test_frameworks(void **state)
{
    (void)state;
    const int32_t modern[] = {75, 80, 86, 90, 0}, early[] = {35, 50, 60, 0}, late[] = {100, 0};
    const stk_framework cuda13 = {.name = "torch",
                                  .version = "2.13.0+cu130",
                                  .build = STK_BUILD_CUDA,
                                  .serves = {"nvidia"},
                                  .cuda = 13000,
                                  .cuda_minor_known = true,
                                  .arch_bits = bits_of(modern),
                                  .ptx_arch = -1};
    stk_framework cpu = {.name = "torch",
                         .version = "2.13.0+cpu",
                         .build = STK_BUILD_CPU,
                         .cuda = -1,
                         .ptx_arch = -1};
    stk_framework bare = cuda13, plain = cuda13, old = cuda13, newest = cuda13, ptx = cuda13,
                  rocm = cuda13, unknown = cpu;
    plain.version = "2.13.0";
    bare.lacks_cudnn = true;
    old.arch_bits = bits_of(early);
    newest.arch_bits = bits_of(late);
    ptx.arch_bits = bits_of(early);
    ptx.has_ptx = true;
    ptx.ptx_arch = 60;
    rocm.version = "2.9.0+rocm6.4";
    rocm.build = STK_BUILD_ROCM;
    rocm.serves[0] = "amd";
    rocm.cuda = -1;
    unknown.build = STK_BUILD_UNKNOWN;
    unknown.version = NULL;
    const struct {
        const stk_framework *framework;
        const char *driver;
        int32_t cuda, cc;
        bool compat, named;
        int level;
        const char *text, *remedy;
    } cases[] = {
        {&cuda13, "580.65.06", 13000, 90, 0, 1, STK_CHECK_OK, "fits the driver", NULL},
        {&cuda13, "580.65.06", 13000, 89, 0, 1, STK_CHECK_OK, "7.5, 8.0, 8.6, 9.0", NULL},
        {&cuda13, "535.104", 12020, 90, 0, 1, STK_CHECK_ERROR,
         "torch 2.13.0+cu130 needs driver 580 or newer; this host has 535.104",
         "install a build of torch for CUDA 12.x, or a newer driver; on data-centre GPUs the "
         "package cuda-compat-13-0"},
        {&plain, "535.104", 12020, 90, 0, 1, STK_CHECK_ERROR,
         "torch 2.13.0 (CUDA 13.0) needs driver 580 or newer", NULL},
        {&cuda13, "535.104", 12020, 90, 0, 0, STK_CHECK_WARNING, "needs driver 580", NULL},
        {&cuda13, "535.104", 12020, 90, 1, 1, STK_CHECK_WARNING, "forward compatibility", NULL},
        {&cuda13, NULL, -1, 90, 0, 1, STK_CHECK_OK, "fits", NULL}, /* the driver is unknown */
        {&cuda13, "580.65.06", 13000, -1, 0, 1, STK_CHECK_OK, "fits", NULL},
        {&cpu, "580.65.06", 13000, 90, 0, 1, STK_CHECK_ERROR,
         "torch 2.13.0+cpu is a CPU-only build: it can't use this host's NVIDIA GPU",
         "install a build of torch for CUDA 13.x"},
        {&cpu, "535.104", 12020, 90, 0, 0, STK_CHECK_WARNING, "CPU-only build",
         "for CUDA 12.x in its environment"},
        {&rocm, "580.65.06", 13000, 90, 0, 1, STK_CHECK_ERROR, "built for AMD's devices only",
         "CUDA 13.x"},
        {&bare, "580.65.06", 13000, 90, 0, 1, STK_CHECK_WARNING, "finds no cuDNN", "and-cuda"},
        {&unknown, "580.65.06", 13000, 90, 0, 1, STK_CHECK_OK, "don't show how it was built", NULL},
        {&old, "580.65.06", 13000, 90, 0, 1, STK_CHECK_ERROR,
         "has no code for NVIDIA H100 (compute capability 9.0); it has 3.5, 5.0, 6.0",
         "install a newer build of torch"},
        {&newest, "580.65.06", 13000, 90, 0, 1, STK_CHECK_ERROR, "has no code for",
         "install an older build of torch"},
        {&ptx, "580.65.06", 13000, 90, 0, 1, STK_CHECK_OK, "and PTX of 6.0", NULL},
        {&ptx, "580.65.06", 12090, 90, 0, 1, STK_CHECK_ERROR,
         "has only PTX for NVIDIA H100 (compute capability 9.0), which this driver's CUDA 12.9",
         "CUDA 12.9 or older"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        stk_findings findings = {.arena = arena};
        stk_device d = card("NVIDIA H100", cases[i].cc < 0 ? -1 : cases[i].cc / 10,
                            cases[i].cc < 0 ? -1 : cases[i].cc % 10);
        const stk_device *list[] = {&d};
        const stk_gpus gpus = {list, 1, cases[i].driver, cases[i].cuda, cases[i].compat};
        const char *const uses[] = {"tensorflow", "torch"};
        stk_preflight_judge(&gpus, cases[i].framework, 1, uses, cases[i].named ? 2 : 0, &findings);
        assert_int_equal(findings.n, 1);
        const stk_finding *f = &findings.items[0];
        if (f->level != (stk_check_level)cases[i].level || strstr(f->text, cases[i].text) == NULL ||
            (cases[i].remedy != NULL &&
             (f->remedy == NULL || strstr(f->remedy, cases[i].remedy) == NULL))) {
            fail_msg("case %zu: %s: %s → %s", i, stk_check_word(f->level), f->text,
                     f->remedy ? f->remedy : "");
        }
    }
}

/* A CPU-only torch beside a JAX that works, devices of two kinds, no device at all. */
static void test_several(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_findings findings = {.arena = arena};
    const int32_t ampere[] = {80, 0};
    const stk_framework both[] = {
        {.name = "torch", .version = "2.13.0+cpu", .build = STK_BUILD_CPU, .cuda = -1},
        {.name = "jax",
         .version = "0.10.2",
         .build = STK_BUILD_CUDA,
         .serves = {"nvidia"},
         .cuda = 12000,
         .ptx_arch = -1}};
    stk_device new_one = card("NVIDIA A100", 8, 0), old_one = card("Tesla V100", 7, 0);
    const stk_device *list[] = {&new_one, &old_one};
    stk_gpus gpus = {list, 2, "580.65.06", 13000, false};
    const char *const uses[] = {"torch", "jax"};
    stk_preflight_judge(&gpus, both, 2, uses, 2, &findings);
    assert_int_equal(find(&findings, "torch")->level, STK_CHECK_WARNING);
    assert_string_equal(find(&findings, "jax")->text,
                        "jax 0.10.2 (CUDA 12) fits the driver and the devices");
    findings.n = 0;
    stk_preflight_judge(&gpus, both, 2, uses, 0, &findings);
    assert_int_equal(find(&findings, "torch")->level, STK_CHECK_NOTE);
    const char *const boost[] = {"torch", "xgboost"}; /* xgboost may be what uses the device */
    findings.n = 0;
    stk_preflight_judge(&gpus, both, 1, boost, 2, &findings);
    assert_int_equal(find(&findings, "torch")->level, STK_CHECK_WARNING);
    findings.n = 0;
    stk_preflight_judge(&gpus, both, 2, uses, 1, &findings); /* only torch is used */
    assert_int_equal(findings.n, 1);
    assert_int_equal(find(&findings, "torch")->level, STK_CHECK_ERROR);

    stk_framework torch = both[1];
    torch.name = "torch";
    torch.arch_bits = bits_of(ampere);
    findings.n = 0;
    stk_preflight_judge(&gpus, &torch, 1, uses, 1, &findings);
    assert_int_equal(findings.items[0].level, STK_CHECK_WARNING); /* torch runs on the A100 */
    assert_non_null(strstr(findings.items[0].text, "has no code for Tesla V100"));

    gpus.n = 0;
    findings.n = 0;
    stk_preflight_judge(&gpus, both, 2, uses, 2, &findings);
    assert_int_equal(findings.n, 2);
    assert_int_equal(findings.items[0].level, STK_CHECK_OK);
}

static void test_other_vendors(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_findings findings = {.arena = arena};
    stk_device tpu = {STK_DEVICE_UNKNOWN, .vendor = "google", .noun = "TPU chip", .uuid = "tpu-0",
                      .usable = true};
    const stk_device *list[] = {&tpu, &tpu};
    const stk_gpus gpus = {list, 2, NULL, -1, false};
    stk_framework torch = {.name = "torch", .version = "2.9.0", .build = STK_BUILD_CPU, .cuda = -1};
    stk_preflight_judge(&gpus, &torch, 1, NULL, 0, &findings);
    assert_non_null(strstr(findings.items[0].text, "can't use the Google TPU chips of this host"));
    torch.build = STK_BUILD_OTHER;
    torch.serves[0] = "google";
    findings.n = 0;
    stk_preflight_judge(&gpus, &torch, 1, NULL, 0, &findings);
    assert_int_equal(findings.items[0].level, STK_CHECK_OK);
}

static void test_arches(void **state)
{
    (void)state;
    static const struct {
        int32_t arch;
        int kind;
        int32_t cc;
        bool runs;
    } cases[] = {{80, STK_ARCH_PLAIN, 80, true},    {80, STK_ARCH_PLAIN, 89, true},
                 {86, STK_ARCH_PLAIN, 80, false},   {80, STK_ARCH_PLAIN, 90, false},
                 {90, STK_ARCH_EXACT, 90, true},    {100, STK_ARCH_EXACT, 103, false},
                 {100, STK_ARCH_FAMILY, 103, true}, {100, STK_ARCH_FAMILY, 120, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t bits = 0;
        for (uint32_t k = 0; k < stk_preflight_n_arches; k++) {
            if (stk_preflight_arches[k].arch == cases[i].arch &&
                (int)stk_preflight_arches[k].kind == cases[i].kind) {
                bits = (uint64_t)1 << k;
            }
        }
        assert_true(bits != 0);
        assert_int_equal(stk_preflight_arch_runs(bits, cases[i].cc), cases[i].runs);
    }
}

/* --- one device's state --- */

static void test_states(void **state)
{
    (void)state;
    static const struct {
        size_t field;
        int64_t value;
        const char *check; /* NULL: no finding */
        int level;
        const char *text;
    } cases[] = {
#define F(name) offsetof(stk_device_state, name)
        {F(ecc), 1, NULL, 0, NULL},
        {F(ecc), 0, "ecc", STK_CHECK_NOTE, "ECC is off"},
        {F(ecc_uncorrected), 0, NULL, 0, NULL},
        {F(ecc_uncorrected), 2, "ecc", STK_CHECK_ERROR, "2 uncorrected memory errors"},
        {F(ecc_uncorrected_total), 1, "ecc", STK_CHECK_NOTE, "1 uncorrected memory error in"},
        {F(remap_pending), 1, "remap", STK_CHECK_WARNING, "next reset"},
        {F(remap_failed), 1, "remap", STK_CHECK_ERROR, "could not replace a bad row"},
        {F(remapped_rows), 4, NULL, 0, NULL},
        {F(retired_pending), 1, "pages", STK_CHECK_WARNING, "next reset"},
        {F(retired_pages), 59, NULL, 0, NULL},
        {F(retired_pages), 60, "pages", STK_CHECK_ERROR, "60 pages"},
        {F(throttle), STK_THROTTLE_IDLE | STK_THROTTLE_POWER_CAP, NULL, 0, NULL},
        {F(throttle), STK_THROTTLE_HW_SLOWDOWN | STK_THROTTLE_HW_THERMAL, "throttle",
         STK_CHECK_WARNING, "too hot"},
        {F(throttle), STK_THROTTLE_SW_THERMAL, "throttle", STK_CHECK_WARNING, "driver slows"},
        {F(throttle), STK_THROTTLE_HW_POWER_BRAKE, "throttle", STK_CHECK_WARNING, "power supply"},
        {F(compute_mode), 0, NULL, 0, NULL},
        {F(compute_mode), 2, "mode", STK_CHECK_ERROR, "prohibited"},
        {F(compute_mode), 3, "mode", STK_CHECK_NOTE, "exclusive"},
        {F(persistence), 0, "persistence", STK_CHECK_NOTE, "persistence mode is off"},
        {F(persistence), 1, NULL, 0, NULL},
#undef F
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        stk_findings findings = {.arena = arena};
        stk_device_state s;
        memset(&s, 0xff, sizeof s);
        char *at = (char *)&s + cases[i].field;
        if (cases[i].field == offsetof(stk_device_state, throttle) ||
            cases[i].field == offsetof(stk_device_state, ecc_uncorrected) ||
            cases[i].field == offsetof(stk_device_state, ecc_uncorrected_total)) {
            memcpy(at, &cases[i].value, sizeof(int64_t));
        } else {
            int32_t value = (int32_t)cases[i].value;
            memcpy(at, &value, sizeof value);
        }
        stk_preflight_judge_device(&h100, &s, &findings);
        assert_int_equal(findings.n, cases[i].check != NULL);
        if (cases[i].check != NULL) {
            assert_string_equal(findings.items[0].check, cases[i].check);
            assert_int_equal(findings.items[0].level, cases[i].level);
            assert_string_equal(findings.items[0].subject, "GPU-1");
            if (strstr(findings.items[0].text, cases[i].text) == NULL) {
                fail_msg("case %zu: %s", i, findings.items[0].text);
            }
        }
    }
}

static void test_pcie(void **state)
{
    (void)state;
    static const struct {
        int32_t width, gen, busy;
        int64_t throttle;
        const char *text;
    } cases[] = {{16, 5, 90, 0, NULL},
                 {8, 5, -1, -1, "connected by 8 of its 16 PCIe lanes"},
                 {16, 1, 0, STK_THROTTLE_IDLE, NULL}, /* the device is asleep */
                 {16, 1, -1, -1, NULL},               /* the device may be asleep */
                 {16, 3, 95, 0, "works over PCIe generation 3 although it can do 5"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        stk_findings findings = {.arena = arena};
        stk_device_state s;
        memset(&s, 0xff, sizeof s);
        s.pcie_width = cases[i].width;
        s.pcie_gen = cases[i].gen;
        s.pcie_width_max = 16;
        s.pcie_gen_max = 5;
        s.busy_percent = cases[i].busy;
        s.throttle = cases[i].throttle;
        stk_preflight_judge_device(&h100, &s, &findings);
        assert_int_equal(findings.n, cases[i].text != NULL);
        if (cases[i].text != NULL) {
            assert_int_equal(findings.items[0].level, STK_CHECK_WARNING);
            assert_non_null(strstr(findings.items[0].text, cases[i].text));
        }
    }
}

/* --- whole hosts --- */

typedef struct host {
    char root[64];
    stk_arena *arena;
    stk_accel *accel;
    stk_findings findings;
} host;

static host open_host(const char *devices)
{
    host h = {.root = "/tmp/stk-preflight-XXXXXX", .arena = stk_arena_new(0)};
    assert_non_null(mkdtemp(h.root));
    h.findings.arena = h.arena;
    setenv("STOKER_LEASE_DIR", h.root, 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    const char *provider = "nvml";
    if (devices != NULL) {
        const char *path = stk_arena_printf(h.arena, "%s/devices.json", h.root);
        assert_int_equal(stk_file_write(path, devices, strlen(devices), 0644, NULL), 0);
        provider = stk_arena_printf(h.arena, "fake:%s", path);
    }
    stk_err err = {0};
    if (stk_accel_open(provider, &h.accel, &err) < 0) {
        fail_msg("%s", err.text);
    }
    return h;
}

static void close_host(host *h)
{
    stk_accel_close(h->accel);
    stk_arena_free(h->arena);
    stk_file_remove_tree(h->root, NULL);
    unsetenv("STOKER_LEASE_DIR");
}

static void test_fake_host(void **state)
{
    (void)state;
    char devices[1024];
    (void)snprintf(
        devices, sizeof devices,
        "{\"driver\": \"535.104\", \"cuda_version\": 12020, \"devices\": ["
        "{\"uuid\": \"GPU-a\", \"processes\": {\"%d\": 3000000000, \"2\": 500000000, \"1\": "
        "{\"memory_bytes\": 5, \"graphics\": true}}},"
        "{\"uuid\": \"GPU-b\", \"usable\": false, \"trouble\": \"it is on fire\"},"
        "{\"uuid\": \"GPU-c\", \"lost\": \"it has fallen off the bus\"},"
        "{\"uuid\": \"GPU-d\", \"ecc_uncorrected\": 7}]}",
        (int)getpid());
    host h = open_host(devices);
    stk_devset two = {0};
    stk_devset_add(&two, 0);
    stk_devset_add(&two, 2);
    assert_int_equal(stk_preflight_devices(h.accel, &two, &h.findings, NULL), 0);
    assert_int_equal(h.findings.n, 2);
    const stk_finding *f = find(&h.findings, "processes");
    assert_int_equal(f->level, STK_CHECK_WARNING);
    assert_string_equal(f->subject, "GPU-a");
    char who[32];
    (void)snprintf(who, sizeof who, "pid %d (", (int)getpid());
    assert_non_null(strstr(f->text, who));
    assert_non_null(strstr(f->text, ") and 1 other process hold 3.5 GB of its memory"));
    f = find(&h.findings, "devices");
    assert_string_equal(f->subject, "GPU-c");
    assert_non_null(strstr(f->text, "fallen off the bus"));

    h.findings.n = 0;
    assert_int_equal(stk_preflight_devices(h.accel, NULL, &h.findings, NULL), 0);
    assert_int_equal(h.findings.n, 4);
    assert_non_null(strstr(find(&h.findings, "devices")->text, "it is on fire"));
    assert_string_equal(find(&h.findings, "ecc")->subject, "GPU-d");

    /* the process that holds the lease is no finding */
    stk_lease lease;
    stk_devset first = {0};
    stk_devset_add(&first, 0);
    h.findings.n = 0;
    assert_int_equal(
        stk_lease_take(h.accel, &(stk_devset){{1}}, 0, "run x step y", &lease, NULL, NULL), 0);
    assert_int_equal(stk_preflight_devices(h.accel, &first, &h.findings, NULL), 0);
    assert_null(find(&h.findings, "processes"));
    stk_lease_drop(&lease);

    /* the driver and the frameworks */
    const stk_framework torch = {.name = "torch",
                                 .version = "2.13.0+cu130",
                                 .build = STK_BUILD_CUDA,
                                 .serves = {"nvidia"},
                                 .cuda = 13000,
                                 .ptx_arch = -1};
    const char *const uses[] = {"torch"};
    h.findings.n = 0;
    assert_int_equal(
        stk_preflight_frameworks(h.accel, &first, &torch, 1, uses, 1, &h.findings, NULL), 0);
    assert_int_equal(h.findings.items[0].level, STK_CHECK_ERROR);
    stk_devset broken = {0};
    stk_devset_add(&broken, 1);
    h.findings.n = 0;
    assert_int_equal(
        stk_preflight_frameworks(h.accel, &broken, &torch, 1, uses, 1, &h.findings, NULL), 0);
    assert_int_equal(h.findings.items[0].level, STK_CHECK_OK); /* the set has no usable device */

    /* a device with a finding can leave the pool */
    stk_accel_exclude(h.accel, 3, "7 uncorrected errors");
    assert_false(stk_accel_device(h.accel, 3)->usable);
    assert_string_equal(stk_accel_device(h.accel, 3)->trouble, "7 uncorrected errors");
    assert_true(stk_accel_device(h.accel, 0)->usable);
    close_host(&h);
}

/* The state is that of the whole device: its slices leave the pool with it. */
static void test_split_device(void **state)
{
    (void)state;
    host h = open_host("[{\"uuid\": \"GPU-a\", \"remap_failed\": 1, \"processes\": {\"1\": 5}},"
                       "{\"uuid\": \"MIG-1\", \"parent\": 0, \"processes\": {\"1\": 5}},"
                       "{\"uuid\": \"MIG-2\", \"parent\": 0}]");
    assert_true(stk_accel_device(h.accel, 0)->n_slices > 0);
    stk_devset one = {0};
    stk_devset_add(&one, 1);
    assert_int_equal(stk_preflight_devices(h.accel, &one, &h.findings, NULL), 0);
    assert_int_equal(h.findings.n, 2);
    assert_int_equal(find(&h.findings, "remap")->level, STK_CHECK_ERROR);
    assert_string_equal(find(&h.findings, "remap")->subject, "GPU-a");
    assert_string_equal(find(&h.findings, "processes")->subject, "MIG-1");
    stk_accel_exclude(h.accel, 0, "no spare rows");
    assert_false(stk_accel_device(h.accel, 1)->usable);
    assert_false(stk_accel_device(h.accel, 2)->usable);
    close_host(&h);
}

/* Xids from the kernel log; the stand-in library provides the NVIDIA devices. */
static void test_xid_history(void **state)
{
    (void)state;
    char self[PATH_MAX] = "", root[64] = "/tmp/stk-preflight-XXXXXX";
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    *strrchr(self, '/') = '\0';
    char library[PATH_MAX + 64], dev[96], log[128];
    (void)snprintf(library, sizeof library, "%s/src/host/accel/libnvidia-ml-fake.so", self);
    assert_non_null(mkdtemp(root));
    (void)snprintf(dev, sizeof dev, "%s/dev", root);
    (void)snprintf(log, sizeof log, "%s/kmsg", dev);
    assert_int_equal(stk_file_mkdirs(dev, 0755, NULL), 0);
    static const char *const lines[] = {
        "6,1,1000,-;Linux version 6.1",
        "4,2,2000000,-;NVRM: Xid (PCI:%.10s): 79, pid=12, name=python, GPU has fallen off the bus.",
        "4,3,3000000,-;NVRM: Xid (PCI:%.10s): 13, pid='<unknown>', Graphics Exception",
        "4,4,4000000,-;NVRM: Xid (PCI:%.10s): 79, pid=12, name=python",
        "4,5,5000000,-;NVRM: Xid (PCI:00ff:ff:00): 79, another device"};
    setenv("STOKER_NVML", library, 1);
    setenv("STOKER_SYSROOT", root, 1);
    host h = open_host(NULL);
    const char *pci = stk_arena_dup(h.arena, stk_accel_device(h.accel, 0)->pci);
    assert_non_null(pci);
    stk_accel_close(h.accel);
    FILE *file = fopen(log, "w");
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char address[32];
        (void)snprintf(address, sizeof address, "%s", strlen(pci) > 12 ? pci + 4 : pci);
        const char *hole = strstr(lines[i], "%.10s");
        (void)fprintf(file, "%.*s%.*s%s\n", hole ? (int)(hole - lines[i]) : (int)strlen(lines[i]),
                      lines[i], hole ? 10 : 0, address, hole ? hole + 5 : "");
    }
    (void)fclose(file);
    assert_int_equal(stk_accel_open("nvml", &h.accel, NULL), 0);
    assert_int_equal(stk_preflight_devices(h.accel, NULL, &h.findings, NULL), 0);
    uint32_t n = 0;
    for (uint32_t i = 0; i < h.findings.n; i++) {
        const stk_finding *f = &h.findings.items[i];
        if (strcmp(f->check, "xid") == 0) {
            n++;
            bool grave = strstr(f->text, "Xid 79 (GPU has fallen off the bus), 2 times") != NULL;
            assert_true(grave || strstr(f->text, "Xid 13") != NULL);
            assert_int_equal(f->level, grave ? STK_CHECK_WARNING : STK_CHECK_NOTE);
            assert_string_equal(f->subject, stk_accel_device(h.accel, 0)->uuid);
        }
    }
    assert_int_equal(n, 2);
    unsetenv("STOKER_NVML");
    unsetenv("STOKER_SYSROOT");
    close_host(&h);
    stk_file_remove_tree(root, NULL);
}

static void test_host(void **state)
{
    (void)state;
    static const char *const topics[] = {"cpus", "memory", "shm", "ulimit", "disk", "port"};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_findings findings = {.arena = arena};
    assert_int_equal(stk_preflight_host("/tmp", &findings, NULL), 0);
    for (size_t i = 0; i < sizeof topics / sizeof topics[0]; i++) {
        assert_non_null(find(&findings, topics[i]));
    }
    findings.n = 0;
    assert_int_equal(stk_preflight_host("/nonexistent/x", &findings, NULL), 0);
    assert_int_equal(find(&findings, "disk")->level, STK_CHECK_ERROR);
}

/* More findings than the list has room for at first. */
static void test_many(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_findings findings = {.arena = arena};
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(stk_preflight_add(&findings, STK_CHECK_NOTE, "x", NULL, NULL, "n %d", i),
                         0);
    }
    assert_int_equal(findings.n, 1000);
    assert_string_equal(findings.items[31].text, "n 31");
    assert_string_equal(findings.items[999].text, "n 999");
    STK_ARENA_AUTO small = stk_arena_new(4096);
    stk_findings full = {.arena = small};
    int rc = 0;
    for (int i = 0; rc == 0 && i < 10000; i++) {
        rc = stk_preflight_add(&full, STK_CHECK_NOTE, "x", "s", "r", "n %d", i);
    }
    assert_int_equal(rc, STK_E_NOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions),    cmocka_unit_test(test_frameworks),
        cmocka_unit_test(test_several),     cmocka_unit_test(test_other_vendors),
        cmocka_unit_test(test_arches),      cmocka_unit_test(test_states),
        cmocka_unit_test(test_pcie),        cmocka_unit_test(test_fake_host),
        cmocka_unit_test(test_xid_history), cmocka_unit_test(test_split_device),
        cmocka_unit_test(test_host),        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
