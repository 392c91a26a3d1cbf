/* NVIDIA devices: the real NVML path against a stand-in library that answers as recordings say. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/testing.h"
#include "host/accel/accel.h"
#include "sys/clock.h"
#include "sys/file.h"

static char built[PATH_MAX];     /* the folder of the stand-ins and recordings */
static char recording[PATH_MAX]; /* a copy that the test may change */
static char dir[] = "/tmp/stoker-nvml-XXXXXX";

static int set_up(void **state)
{
    (void)state;
    const char *const names[] = {"STOKER_ACCEL", "CUDA_VISIBLE_DEVICES", "STOKER_FAKE_NVML"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        unsetenv(names[i]);
    }
    char self[PATH_MAX] = "", path[PATH_MAX + 64];
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    *strrchr(self, '/') = '\0';
    assert_true(snprintf(built, sizeof built, "%s/src/host/accel", self) < (int)sizeof built);
    strcpy(strrchr(dir, '-'), "-XXXXXX");
    assert_non_null(mkdtemp(dir));
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

/* Appends lines to the open recording; later lines override earlier ones. */
static void add_lines(const char *more)
{
    FILE *file = fopen(recording, "ae");
    assert_non_null(file);
    assert_true(fputs(more, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static const char *library(const char *name)
{
    static char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/lib%s.so", built, name);
    return path;
}

/* Opens a recorded machine, with the lines `more` appended. */
static stk_accel *open_machine(const char *name, const char *more)
{
    char path[PATH_MAX + 64], *text = NULL;
    size_t len;
    stk_err err = {0};
    bool old = strstr(name, "old") != NULL;
    snprintf(path, sizeof path, "%s/%s.nvml", built, name);
    snprintf(recording, sizeof recording, "%s/machine.nvml", dir);
    assert_int_equal(stk_file_read(path, 1 << 20, &text, &len, NULL), 0);
    assert_int_equal(stk_file_write(recording, text, len, 0644, NULL), 0);
    free(text);
    add_lines(more);
    setenv("STOKER_FAKE_NVML", recording, 1);
    setenv("STOKER_NVML", library(old ? "nvidia-ml-fake-old" : "nvidia-ml-fake"), 1);
    stk_accel *accel = NULL;
    if (stk_accel_open("nvml", &accel, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return accel;
}

static int n_calls(void)
{
    void *lib = dlopen(library("nvidia-ml-fake"), RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(lib);
    int (*calls)(void);
    void *found = dlsym(lib, "fake_nvml_calls");
    memcpy(&calls, &found, sizeof found);
    int n = calls();
    dlclose(lib);
    return n;
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

static void test_devices(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    make_file("/sys/bus/pci/devices/0000:10:00.0/numa_node", "1\n");
    make_file("/sys/bus/pci/devices/0000:10:00.0/local_cpulist", "16-31,48-63\n");
    make_file("/sys/bus/pci/devices/0000:0f:00.0/numa_node", "-1\n");
    stk_accel *accel = open_machine("3xH100", "");
    assert_int_equal(stk_accel_n_devices(accel), 3);
    const stk_device *d = stk_accel_device(accel, 1);
    assert_string_equal(d->vendor, "nvidia");
    assert_string_equal(d->noun, "GPU");
    assert_string_equal(d->uuid, "GPU-00001-fake");
    assert_string_equal(d->model, "NVIDIA H100 80GB HBM3");
    assert_string_equal(d->pci, "00000000:10:00.0");
    assert_string_equal(d->node, "/dev/nvidia1");
    assert_string_equal(d->driver, "580.65.06");
    assert_string_equal(d->cpus, "16-31,48-63");
    assert_int_equal(d->numa, 1);
    assert_int_equal(d->index, 1);
    assert_int_equal(d->parent, -1);
    assert_int_equal(d->n_slices, 0);
    assert_int_equal(d->cc_major, 9);
    assert_int_equal(d->cc_minor, 0);
    assert_true(d->memory_bytes == 85520809984);
    assert_true(d->usable);
    assert_null(d->trouble);
    assert_int_equal(stk_accel_device(accel, 0)->numa, -1);
    assert_null(stk_accel_device(accel, 0)->cpus);
    assert_string_equal(stk_accel_driver(accel), "580.65.06");
    assert_int_equal(stk_accel_cuda_version(accel), 13000);
    assert_string_equal(stk_accel_describe(accel, arena), "3 NVIDIA GPUs, driver 580.65.06");
    stk_accel_close(accel);
}

static void test_state(void **state)
{
    (void)state;
    stk_accel *accel = open_machine("3xH100", "");
    const stk_device_state wanted = {
        .busy_percent = 37,
        .memory_busy_percent = 5,
        .memory_used = 1 << 30,
        .temperature_c = 33,
        .fan_percent = -1, /* it has no fan */
        .power_mw = 123456,
        .power_limit_mw = 700000,
        .energy_mj = 987654321,
        .sm_mhz = 1975,
        .sm_max_mhz = 1980,
        .memory_mhz = 2619,
        .memory_max_mhz = 2619,
        .throttle = STK_THROTTLE_POWER_CAP,
        .pcie_gen = 5,
        .pcie_gen_max = 5,
        .pcie_width = 16,
        .pcie_width_max = 16,
        .pcie_tx_bytes_s = 1200000,
        .pcie_rx_bytes_s = 3400000,
        .n_nvlinks_up = 18,
        .nvlink_tx_bytes = 2 << 20,
        .nvlink_rx_bytes = 4 << 20,
        .ecc = 1,
        .ecc_corrected = 3,
        .ecc_uncorrected = 0,
        .ecc_uncorrected_total = 2,
        .remap_pending = 0,
        .remap_failed = 0,
        .remapped_rows = 3,
        .retired_pages = -1, /* this device remaps rows instead */
        .retired_pending = -1,
        .persistence = 1,
        .compute_mode = 0,
    };
    stk_device_state s;
    assert_int_equal(stk_accel_state(accel, 0, &s, NULL), 0);
#define X(name, type)                                                                              \
    if (s.name != wanted.name) {                                                                   \
        fail_msg("%s is %lld", #name, (long long)s.name);                                          \
    }
#include "tbl/device_state.def"
#undef X
    assert_int_equal(stk_accel_state(accel, 1, &s, NULL), 0);
    assert_int_equal(s.n_nvlinks_up, 17);
    assert_int_equal(stk_accel_state(accel, 2, &s, NULL), 0);
    assert_int_equal(s.n_nvlinks_up, -1);
    stk_accel_close(accel);
}

/* A driver that answers nothing leaves everything unknown; a lost device is an error. */
static void test_state_unknown(void **state)
{
    (void)state;
    stk_accel *accel = open_machine("2xA100-mig", "[device 2]\nnvmlDeviceGetUUID = GPU-bare\n");
    stk_device_state s;
    stk_err err = {0};
    assert_int_equal(stk_accel_n_devices(accel), 7);
    const stk_device *d = stk_accel_device(accel, 6);
    assert_string_equal(d->uuid, "GPU-bare");
    assert_string_equal(d->model, "NVIDIA GPU");
    assert_true(d->memory_bytes == -1);
    assert_int_equal(d->cc_major, -1);
    assert_null(d->pci);
    assert_null(d->node);
    assert_int_equal(stk_accel_state(accel, 6, &s, NULL), 0);
#define X(name, type) assert_true(s.name == -1);
#include "tbl/device_state.def"
#undef X
    stk_device_process list[4];
    assert_int_equal(stk_accel_processes(accel, 6, list, 4), -1);
    const struct {
        const char *line, *sentence;
    } cases[] = {
        {"nvmlDeviceGetMemoryInfo = !15\n", "GPU 2 has fallen off the bus"},
        {"nvmlDeviceGetMemoryInfo = !16\n", "'nvidia-smi --gpu-reset -i 2'"},
        {"nvmlDeviceGetMemoryInfo = !1\n", "the NVIDIA driver doesn't answer (Uninitialized)"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        add_lines(cases[i].line);
        assert_int_equal(stk_accel_state(accel, 6, &s, &err), STK_E_ENV);
        if (strstr(err.text, cases[i].sentence) == NULL) {
            fail_msg("%s", err.text);
        }
        stk_device_sample sample;
        assert_int_equal(stk_accel_sample(accel, 6, NULL, 0, &sample), STK_E_ENV);
        assert_true(sample.memory_used == -1);
    }
    stk_accel_close(accel);
}

static void test_old_driver(void **state)
{
    (void)state;
    stk_accel *accel = open_machine("2xV100-old", "");
    assert_int_equal(stk_accel_n_devices(accel), 2);
    const stk_device *d = stk_accel_device(accel, 0);
    assert_string_equal(d->pci, "0000:0F:00.0");
    assert_true(d->memory_bytes == 16945512448);
    assert_int_equal(stk_accel_cuda_version(accel), 10010);
    stk_device_state s;
    assert_int_equal(stk_accel_state(accel, 0, &s, NULL), 0);
    assert_true(s.memory_used == 1 << 30);
    assert_int_equal(s.temperature_c, 33);
    assert_int_equal(s.power_limit_mw, 300000);
    assert_true(s.throttle == STK_THROTTLE_POWER_CAP);
    assert_true(s.energy_mj == 987654321);
    assert_int_equal(s.remapped_rows, -1);
    assert_int_equal(s.retired_pages, 3);
    assert_int_equal(s.retired_pending, 1);
    assert_true(s.nvlink_tx_bytes == -1);
    stk_device_process list[8];
    assert_int_equal(stk_accel_processes(accel, 0, list, 8), 4);
    assert_int_equal(list[0].pid, 100);
    assert_int_equal(list[0].memory_bytes, 5 << 20);
    assert_int_equal(list[1].pid, 101);
    assert_int_equal(list[1].memory_bytes, 7 << 20);
    stk_device_sample sample;
    const pid_t pids[] = {100};
    assert_int_equal(stk_accel_sample(accel, 0, pids, 1, &sample), 0);
    assert_int_equal(sample.busy_percent, 37);
    assert_int_equal(sample.context, 1);
    assert_int_equal(sample.process_memory, 5 << 20);
    assert_true(sample.energy_mj == 987654321);
    int32_t n;
    assert_int_equal(stk_accel_link(accel, 0, 1, &n), STK_LINK_FABRIC);
    assert_int_equal(n, 2);
    stk_accel_close(accel);
}

static void test_slices(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_accel *accel = open_machine("2xA100-mig", "");
    const struct {
        const char *uuid, *profile;
        int32_t index;
        int64_t mb;
    } wanted[] = {{"MIG-aaaa-0", "1g.5gb", 0, 4864},
                  {"MIG-aaaa-1", "1g.5gb", 1, 4864},
                  {"MIG-aaaa-3", "2c.3g.20gb", 3, 19968},
                  {"MIG-aaaa-5", "2g.10gb", 5, 9856}};
    assert_int_equal(stk_accel_n_devices(accel), 6);
    const stk_device *whole = stk_accel_device(accel, 0);
    assert_int_equal(whole->n_slices, 4);
    assert_false(whole->usable);
    assert_null(whole->trouble);
    for (uint32_t i = 0; i < 4; i++) {
        const stk_device *d = stk_accel_device(accel, i + 1);
        assert_string_equal(d->noun, "MIG slice");
        assert_string_equal(d->uuid, wanted[i].uuid);
        assert_string_equal(d->profile, wanted[i].profile);
        assert_int_equal(d->index, wanted[i].index);
        assert_int_equal(d->parent, 0);
        assert_int_equal(d->n_slices, 0);
        assert_true(d->memory_bytes == wanted[i].mb << 20);
        assert_string_equal(d->model, "NVIDIA A100-SXM4-40GB");
        assert_int_equal(d->cc_major, 8);
        assert_true(d->usable);
    }
    assert_true(stk_accel_device(accel, 5)->usable);
    assert_string_equal(stk_accel_describe(accel, arena),
                        "2 NVIDIA GPUs, 4 NVIDIA MIG slices, driver 535.183.01");
    stk_device_state s;
    assert_int_equal(stk_accel_state(accel, 2, &s, NULL), 0);
    assert_true(s.memory_used == 32 << 20);
    assert_int_equal(s.temperature_c, 33); /* the whole device's */
    assert_int_equal(s.power_mw, -1);      /* the slice's part is unknown */
    assert_int_equal(s.busy_percent, -1);
    stk_device_sample sample;
    const pid_t pids[] = {203};
    assert_int_equal(stk_accel_sample(accel, 3, pids, 1, &sample), 0);
    assert_int_equal(sample.context, 1);
    assert_true(sample.process_memory == 4 << 20);
    assert_true(sample.memory_used == 64 << 20);
    assert_int_equal(sample.sm_mhz, 1975);
    assert_true(sample.energy_mj == -1);
    assert_int_equal(stk_accel_link(accel, 1, 2, NULL), STK_LINK_SAME);
    assert_int_equal(stk_accel_link(accel, 0, 4, NULL), STK_LINK_SAME);
    assert_int_equal(stk_accel_link(accel, 5, 4, NULL), STK_LINK_SWITCH);
    stk_accel_close(accel);

    accel = open_machine("3xH100", "[device 1]\nnvmlDeviceGetMigMode = 1 1\n");
    assert_int_equal(stk_accel_n_devices(accel), 3);
    assert_false(stk_accel_device(accel, 1)->usable);
    assert_non_null(strstr(stk_accel_device(accel, 1)->trouble, "is in MIG mode and has no slice"));
    stk_accel_close(accel);
}

static void test_links(void **state)
{
    (void)state;
    stk_accel *accel = open_machine("3xH100", "");
    int32_t n = 0;
    assert_int_equal(stk_accel_link(accel, 0, 1, &n), STK_LINK_FABRIC);
    assert_int_equal(n, 17); /* the smaller of the two devices' counts */
    assert_int_equal(stk_accel_link(accel, 1, 0, &n), STK_LINK_FABRIC);
    assert_int_equal(stk_accel_link(accel, 0, 2, &n), STK_LINK_SYSTEM);
    assert_int_equal(n, -1);
    assert_int_equal(stk_accel_link(accel, 2, 2, &n), STK_LINK_SAME);
    assert_int_equal(stk_accel_link(accel, 2, 3, &n), STK_LINK_UNKNOWN);
    (void)n_calls();
    (void)stk_accel_link(accel, 0, 1, &n);
    assert_int_equal(n_calls(), 0); /* the first answer is kept */
    stk_accel_close(accel);
}

static void test_processes(void **state)
{
    (void)state;
    stk_accel *accel = open_machine("3xH100", "");
    stk_device_process list[8];
    assert_int_equal(stk_accel_processes(accel, 0, list, 8), 4);
    assert_int_equal(list[1].pid, 101);
    assert_int_equal(list[1].memory_bytes, 7 << 20);
    assert_false(list[1].graphics); /* the process also computes */
    assert_int_equal(list[2].memory_bytes, -1);
    assert_int_equal(list[3].pid, 900);
    assert_true(list[3].graphics);
    assert_int_equal(stk_accel_processes(accel, 0, list, 2), 2);
    assert_int_equal(stk_accel_processes(accel, 1, list, 8), 3);
    add_lines("[device 1]\nnvmlDeviceGetComputeRunningProcesses = \n");
    assert_int_equal(stk_accel_processes(accel, 1, list, 8), 0);
    stk_accel_close(accel);
}

static void test_sample(void **state)
{
    (void)state;
    stk_accel *accel = open_machine("3xH100", "");
    stk_device_sample s;
    const pid_t pids[] = {101, 100, 7}, other[] = {102, 7};
    assert_int_equal(stk_accel_sample(accel, 1, pids, 3, &s), 0);
    assert_int_equal(s.busy_percent, 38);
    assert_true(s.memory_used == 2ll << 30);
    assert_true(s.process_memory == 12ll << 20);
    assert_int_equal(s.context, 1);
    assert_int_equal(s.power_mw, 123457);
    assert_true(s.energy_mj == 987654322);
    assert_int_equal(s.temperature_c, 34);
    assert_int_equal(s.sm_mhz, 1975);
    assert_int_equal(s.memory_mhz, 2619);
    assert_true(s.throttle == STK_THROTTLE_POWER_CAP);
    assert_true(s.nvlink_tx_bytes == 2 << 20);
    assert_true(s.nvlink_rx_bytes == 4 << 20);
    assert_true(s.pcie_tx_bytes_s == -1); /* a rate takes two samples */
    assert_int_equal(stk_accel_sample(accel, 0, other, 2, &s), 0);
    assert_int_equal(s.context, 1);
    assert_int_equal(s.process_memory, -1); /* the driver can't tell */
    const pid_t none[] = {7};
    assert_int_equal(stk_accel_sample(accel, 0, none, 1, &s), 0);
    assert_int_equal(s.context, 0);
    assert_int_equal(stk_accel_sample(accel, 0, NULL, 0, &s), 0);
    assert_int_equal(s.context, -1);
    assert_int_equal(stk_accel_sample(accel, 3, NULL, 0, &s), STK_E_NOT_FOUND);

    /* Cheap: memory, utilisation, power and processes. Slow values are read five times a second. */
    (void)n_calls();
    assert_int_equal(stk_accel_sample(accel, 0, pids, 3, &s), 0);
    assert_true(n_calls() <= 9);
    int n = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(stk_accel_sample(accel, 0, pids, 3, &s), 0);
        n += n_calls() == 4; /* on a slow machine, one of the samples may be a full one */
    }
    assert_true(n >= 2);
    assert_int_equal(s.temperature_c, 33);

    add_lines("[device 1]\nnvmlDeviceGetFieldValues 197 = 3 15000000 3000000\n"
              "nvmlDeviceGetFieldValues 198 = 3 7000400 3000000\nnvmlDeviceGetTemperature 0 = 66\n"
              "nvmlDeviceGetUtilizationRates = 99 5\n");
    assert_int_equal(stk_accel_sample(accel, 1, pids, 3, &s), 0);
    assert_int_equal(s.busy_percent, 99);
    usleep(250000);
    assert_int_equal(stk_accel_sample(accel, 1, pids, 3, &s), 0);
    assert_int_equal(s.temperature_c, 66);
    assert_true(s.pcie_tx_bytes_s == 5000000);
    assert_true(s.pcie_rx_bytes_s == 200);
    stk_accel_close(accel);
}

static void test_troubles(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_accel *accel = open_machine("3xH100", "[device 0]\nnvmlDeviceGetHandleByIndex = !15\n"
                                              "[device 2]\nnvmlDeviceGetUUID = !999\n");
    assert_int_equal(stk_accel_n_devices(accel), 3);
    assert_false(stk_accel_device(accel, 0)->usable);
    assert_non_null(strstr(stk_accel_device(accel, 0)->trouble, "GPU 0 has fallen off the bus"));
    assert_non_null(strstr(stk_accel_device(accel, 2)->trouble, "GPU 2 can't be queried: Unknown"));
    assert_true(stk_accel_device(accel, 1)->usable);
    const char *text = stk_accel_describe(accel, arena);
    assert_non_null(strstr(text, "3 NVIDIA GPUs, driver 580.65.06, 1 usable: GPU 0 has fallen"));
    stk_device_sample sample;
    stk_device_state s;
    stk_err err = {0};
    assert_int_equal(stk_accel_sample(accel, 0, NULL, 0, &sample), STK_E_ENV);
    assert_int_equal(stk_accel_state(accel, 0, &s, &err), STK_E_ENV);
    assert_string_equal(err.text, stk_accel_device(accel, 0)->trouble);
    assert_int_equal(stk_accel_sample(accel, 1, NULL, 0, &sample), 0);
    assert_int_equal(sample.busy_percent, 38); /* the lost device doesn't shift the indices */
    assert_int_equal(stk_accel_link(accel, 0, 1, NULL), STK_LINK_UNKNOWN);
    stk_accel_close(accel);
}

/* The library is there but doesn't start: no value is made up, and the message names a remedy. */
static void test_init_fails(void **state)
{
    (void)state;
    const struct {
        const char *line, *sentence;
    } cases[] = {{"[system]\nnvmlInit = !18\n", "of different versions: reboot"},
                 {"[system]\nnvmlInit = !9\n", "modprobe nvidia"},
                 {"[system]\nnvmlInit = !999\n", "Unknown Error (code 999)"},
                 {"[system]\nnvmlDeviceGetCount = !999\n", "can't count its devices: Unknown"}};
    make_file("/dev/nvidiactl", "");
    make_file("/dev/nvidia3", ""); /* as in a container that was given these two */
    make_file("/dev/nvidia12", "");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        stk_accel *accel = open_machine("3xH100", cases[i].line);
        assert_int_equal(stk_accel_n_devices(accel), 2); /* the kernel shows these */
        assert_false(stk_accel_device(accel, 1)->usable);
        assert_string_equal(stk_accel_device(accel, 1)->node, "/dev/nvidia12");
        assert_non_null(strstr(stk_accel_describe(accel, arena), cases[i].sentence));
        stk_accel_close(accel);
    }
}

static void make_gpu(const char *pci, const char *driver)
{
    char path[PATH_MAX], target[PATH_MAX];
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/vendor", pci);
    make_file(path, "0x10de\n");
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/class", pci);
    make_file(path, "0x030200\n");
    snprintf(path, sizeof path, "%s/root/sys/bus/pci/devices/%s/driver", dir, pci);
    snprintf(target, sizeof target, "../../../../bus/pci/drivers/%s", driver);
    assert_int_equal(symlink(target, path), 0);
}

/* GPUs that NVML doesn't list: they have another driver, are broken, or belong to others. */
static void test_left_over(void **state)
{
    (void)state;
    unsetenv("container");
    unsetenv("KUBERNETES_SERVICE_HOST");
    make_gpu("0000:0f:00.0", "nvidia");
    make_gpu("0000:50:00.0", "vfio-pci");
    make_gpu("0000:60:00.0", "nvidia");
    make_gpu("0000:61:00.0", "nouveau");
    make_gpu("0000:70:00.0", "nvidia"); /* no /dev/nvidia6 here */
    make_gpu("0000:71:00.0", "nvidia"); /* its /proc entry is missing, as in a container */
    make_file("/proc/driver/nvidia/gpus/0000:60:00.0/information",
              "Model: \t NVIDIA H100\nDevice Minor: \t 5\nGPU Excluded:\t No\n");
    make_file("/proc/driver/nvidia/gpus/0000:70:00.0/information", "Device Minor: \t 6\n");
    make_file("/dev/nvidia5", "");
    make_file("/sys/bus/pci/devices/0000:61:00.1/vendor", "0x10de\n");
    make_file("/sys/bus/pci/devices/0000:61:00.1/class", "0x040300\n"); /* a sound card */
    stk_accel *accel = open_machine("3xH100", "");
    const char *const wanted[] = {"0000:50:00.0 is kept for a virtual machine (driver vfio-pci)",
                                  "doesn't show the GPU at 0000:60:00.0",
                                  "0000:61:00.0 has another driver (nouveau)"};
    assert_int_equal(stk_accel_n_devices(accel), 6);
    for (uint32_t i = 0; i < 3; i++) {
        assert_false(stk_accel_device(accel, 3 + i)->usable);
        if (strstr(stk_accel_device(accel, 3 + i)->trouble, wanted[i]) == NULL) {
            fail_msg("%s", stk_accel_device(accel, 3 + i)->trouble);
        }
    }
    stk_device_sample s;
    assert_int_equal(stk_accel_sample(accel, 4, NULL, 0, &s), STK_E_ENV);
    stk_accel_close(accel);

    /* NVML gives no address for a lost device; the device still isn't listed twice. */
    accel = open_machine("3xH100", "[device 2]\nnvmlDeviceGetHandleByIndex = !15\n");
    assert_int_equal(stk_accel_n_devices(accel), 5);
    assert_non_null(strstr(stk_accel_device(accel, 2)->trouble, "has fallen off the bus"));
    stk_accel_close(accel);
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

static void test_events(void **state)
{
    (void)state;
    make_file("/dev/kmsg", "4,1,1000000,-;NVRM: Xid (PCI:0000:10:00): 13, pid=1, name=old\n");
    stk_accel *accel = open_machine("3xH100", "[device 1]\nevent 0 = 8 31\n");
    stk_device_event e;
    assert_false(stk_accel_next_event(accel, &e)); /* both events are older */

    add_lines("[device 1]\nevent 1 = 8 79\n[device 2]\nevent 0 = 2 0\nevent 1 = 8 48\n");
    assert_true(stk_accel_next_event(accel, &e));
    assert_int_equal(e.i_device, 1);
    assert_int_equal(e.xid, 79);
    assert_int_equal(e.pid, 0);
    assert_string_equal(e.text, "Xid 79: GPU has fallen off the bus");
    assert_true(stk_accel_next_event(accel, &e));
    assert_int_equal(e.i_device, 2);
    assert_int_equal(e.xid, 48); /* a double-bit error is Xid 48, reported once */
    assert_false(stk_accel_next_event(accel, &e));

    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/root/dev/kmsg", dir);
    FILE *kmsg = fopen(path, "ae");
    assert_non_null(kmsg);
    long long us = stk_clock_mono_ms(&stk_clock_real) * 1000;
    fprintf(kmsg,
            "6,2,%lld,-;usb 1-1: new device\n SUBSYSTEM=usb\n"
            "4,3,%lld,-;NVRM: Xid (PCI:0000:0f:00): 94, pid=77, name=python, Ch 00000008\n"
            "4,4,%lld,-;NVRM: Xid (PCI:0000:0f:00): 94, pid=77, name=python, Ch 00000009\n"
            "4,5,%lld,-;NVRM: Xid (PCI:0000:0f:00): 94, pid=78, name=python, Ch 0000000a\n"
            "4,6,%lld,-;NVRM: Xid (PCI:0000:99:00): 119, Timeout after 6s of waiting\n"
            "4,7,%lld,-;NVRM: Xid (PCI:0000:0",
            us, us, us + 1, us + 2, us + 3, us + 4);
    assert_int_equal(fflush(kmsg), 0);
    add_lines("[device 0]\nevent 0 = 8 94\n"); /* the same Xid from NVML, without its process */
    assert_true(stk_accel_next_event(accel, &e));
    assert_int_equal(e.i_device, 0);
    assert_int_equal(e.xid, 94);
    assert_int_equal(e.pid, 77);
    assert_true(llabs(e.mono_ms - stk_clock_mono_ms(&stk_clock_real)) < 60000);
    assert_true(stk_accel_next_event(accel, &e));
    assert_int_equal(e.pid, 78);
    assert_true(stk_accel_next_event(accel, &e));
    assert_int_equal(e.i_device, UINT32_MAX);
    assert_int_equal(e.xid, 119);
    assert_false(stk_accel_next_event(accel, &e));
    fputs("f:00): 9999, unheard of\n", kmsg); /* the rest of a line */
    assert_int_equal(fclose(kmsg), 0);
    assert_true(stk_accel_next_event(accel, &e));
    assert_string_equal(e.text, "Xid 9999");
    assert_int_equal(e.i_device, 0);
    stk_accel_close(accel);
}

/* A device without ECC reports no double-bit errors; a device without events is left out. */
static void test_events_in_part(void **state)
{
    (void)state;
    stk_accel *accel = open_machine("3xH100", "[device 0]\nnvmlDeviceGetSupportedEventTypes = 8\n"
                                              "[device 1]\nnvmlDeviceGetSupportedEventTypes = 0\n");
    stk_device_event e;
    assert_false(stk_accel_next_event(accel, &e));
    add_lines("[device 0]\nevent 0 = 8 13\n[device 1]\nevent 0 = 8 31\n");
    assert_true(stk_accel_next_event(accel, &e));
    assert_int_equal(e.xid, 13);
    assert_false(stk_accel_next_event(accel, &e));
    stk_accel_close(accel);
    accel = open_machine("3xH100", "[system]\nnvmlEventSetCreate = !3\n");
    assert_false(stk_accel_next_event(accel, &e));
    stk_accel_close(accel);
}

static void test_mask(void **state)
{
    (void)state;
    const struct {
        const char *mask, *uuids, *remark;
    } cases[] = {
        {"", "", "limits them to 0 of 5"},
        {"-1", "", "limits them to 0 of 5"},
        {"1", "GPU-bbbb-fake", "limits them to 1 of 5"},
        {"MIG-aaaa-3", "GPU-aaaa-fake MIG-aaaa-3", "limits them to 1 of 5"},
        {"MIG-aaaa-5,1,MIG-aaaa-0", "GPU-aaaa-fake MIG-aaaa-5 GPU-bbbb-fake MIG-aaaa-0",
         "limits them to 3 of 5"},
        {"0", "GPU-aaaa-fake MIG-aaaa-0 MIG-aaaa-1 MIG-aaaa-3 MIG-aaaa-5", "limits them to 4 of 5"},
        {"GPU-bbbb", "GPU-bbbb-fake", "limits them to 1 of 5"},
        {"MIG-aaaa", "", "'MIG-aaaa' names none of them"}, /* too short to name one slice */
        {"1,MIG-zzzz", "GPU-bbbb-fake", "'MIG-zzzz' names none of them"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        char seen[256] = "";
        setenv("CUDA_VISIBLE_DEVICES", cases[i].mask, 1);
        stk_accel *accel = open_machine("2xA100-mig", "");
        for (uint32_t k = 0; k < stk_accel_n_devices(accel); k++) {
            const stk_device *d = stk_accel_device(accel, k);
            snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%s%s", k ? " " : "",
                     d->uuid);
            if (d->parent >= 0) {
                assert_int_equal(d->parent, 0);
                stk_device_sample s;
                assert_int_equal(stk_accel_sample(accel, k, NULL, 0, &s), 0);
                assert_true(s.memory_used == (int64_t)(d->index + 1) << 24);
            }
        }
        assert_string_equal(seen, cases[i].uuids);
        if (strstr(stk_accel_describe(accel, arena), cases[i].remark) == NULL) {
            fail_msg("mask '%s': %s", cases[i].mask, stk_accel_describe(accel, arena));
        }
        stk_accel_close(accel);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_devices),    TEST(test_state),          TEST(test_state_unknown),
        TEST(test_old_driver), TEST(test_slices),         TEST(test_links),
        TEST(test_processes),  TEST(test_sample),         TEST(test_troubles),
        TEST(test_init_fails), TEST(test_left_over),      TEST(test_not_a_library),
        TEST(test_events),     TEST(test_events_in_part), TEST(test_mask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
