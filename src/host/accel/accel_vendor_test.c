/* AMD, Intel, Neuron and TPU devices in file trees as their drivers make them. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/testing.h"
#include "host/accel/accel.h"
#include "sys/file.h"

static char root[PATH_MAX];

static int set_up(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/stoker-vendor-XXXXXX");
    assert_non_null(mkdtemp(root));
    setenv("STOKER_SYSROOT", root, 1);
    setenv("STOKER_LEASE_DIR", root, 1);
    const char *const names[] = {"ROCR_VISIBLE_DEVICES",
                                 "ZE_AFFINITY_MASK",
                                 "STOKER_ACCEL",
                                 "NEURON_RT_VISIBLE_CORES",
                                 "NEURON_LOGICAL_NC_CONFIG",
                                 "TPU_VISIBLE_CHIPS",
                                 "TPU_ACCELERATOR_TYPE",
                                 "container"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        unsetenv(names[i]);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unsetenv("STOKER_SYSROOT");
    unsetenv("STOKER_LEASE_DIR");
    return stk_file_remove_tree(root, NULL);
}

static const char *below(const char *path, char full[static PATH_MAX])
{
    char parent[PATH_MAX];
    snprintf(full, PATH_MAX, "%.2000s%.2000s", root, path);
    snprintf(parent, sizeof parent, "%s", full);
    *strrchr(parent, '/') = '\0';
    assert_int_equal(stk_file_mkdirs(parent, 0755, NULL), 0);
    return full;
}

typedef struct entry {
    const char *path, *text; /* a text that begins with "->" is a link's target */
} entry;

static void put(const char *path, const char *text)
{
    char full[PATH_MAX];
    below(path, full);
    if (strncmp(text, "->", 2) == 0) {
        assert_int_equal(symlink(text + 2, full), 0);
    } else {
        assert_int_equal(stk_file_write(full, text, strlen(text), 0644, NULL), 0);
    }
}

static void put_all(const char *prefix, const entry *entries, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s%s", prefix, entries[i].path);
        put(path, entries[i].text);
    }
}
#define PUT(prefix, ...)                                                                           \
    put_all(prefix, (const entry[]){__VA_ARGS__},                                                  \
            sizeof((const entry[]){__VA_ARGS__}) / sizeof(entry))

static stk_accel *open_all(void)
{
    stk_accel *accel = NULL;
    stk_err err = {0};
    if (stk_accel_open("amd,intel,neuron,tpu", &accel, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return accel;
}

/* A host without such devices lists none. */
static void test_nothing(void **state)
{
    (void)state;
    stk_accel *accel = open_all();
    assert_int_equal(stk_accel_n_devices(accel), 0);
    stk_accel_close(accel);
}

/* --- AMD --- */

static void put_amd(int node, int minor, const char *pci, const char *unique, const char *more)
{
    char prefix[PATH_MAX], text[1024];
    unsigned bus = 0;
    sscanf(pci, "0000:%x", &bus);
    snprintf(prefix, sizeof prefix, "/sys/class/kfd/kfd/topology/nodes/%d", node);
    snprintf(text, sizeof text,
             "cpu_cores_count 0\nsimd_count 1216\nvendor_id 4098\ndevice_id 29857\nlocation_id "
             "%u\ndomain 0\ndrm_render_minor %d\nunique_id %s\n%s",
             bus << 8, minor, unique, more);
    PUT(prefix, {"/properties", text}, {"/gpu_id", minor == 128 ? "5001\n" : "5002\n"});
    snprintf(prefix, sizeof prefix, "/sys/bus/pci/devices/%s", pci);
    PUT(prefix, {"/vendor", "0x1002\n"}, {"/device", "0x74a1\n"}, {"/numa_node", "1\n"},
        {"/local_cpulist", "48-95\n"}, {"/mem_info_vram_total", "206141652992\n"},
        {"/mem_info_vram_used", "296747008\n"}, {"/gpu_busy_percent", "73\n"},
        {"/mem_busy_percent", "11\n"}, {"/current_link_speed", "32.0 GT/s PCIe\n"},
        {"/max_link_speed", "32.0 GT/s PCIe\n"}, {"/current_link_width", "16\n"},
        {"/pp_dpm_sclk", "0: 500Mhz\n1: 1210Mhz *\n2: 2100Mhz\n"},
        {"/ras/umc_err_count", "ue: 2\nce: 7\n"}, {"/ras/gfx_err_count", "ue: 1\nce: 0\n"},
        {"/ras/gpu_vram_bad_pages",
         "0x00000400 : 0x00001000 : R\n0x00000500 : 0x00001000 : R\n0x00000600 : 0x00001000 : P\n"},
        {"/hwmon/hwmon4/temp2_input", "52000\n"}, {"/hwmon/hwmon4/power1_input", "172000000\n"},
        {"/hwmon/hwmon4/power1_cap", "750000000\n"}, {"/hwmon/hwmon4/freq1_input", "1210000000\n"},
        {"/hwmon/hwmon4/freq2_input", "900000000\n"});
    char target[128], render[128];
    snprintf(render, sizeof render, "/sys/class/drm/renderD%d/device", minor);
    snprintf(target, sizeof target, "->../../../bus/pci/devices/%s", pci);
    put(render, target);
    snprintf(render, sizeof render, "/dev/dri/renderD%d", minor);
    put(render, "");
}

static void put_two_amd(void)
{
    put("/dev/kfd", "");
    put("/sys/module/amdgpu/version", "6.12.12\n");
    put("/sys/class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 96\nsimd_count 0\n");
    put_amd(1, 128, "0000:05:00.0", "9321786543210987654", "");
    put_amd(2, 136, "0000:26:00.0", "0", "");
    put("/sys/class/kfd/kfd/topology/nodes/1/io_links/0/properties", "type 2\nnode_to 0\n");
    put("/sys/class/kfd/kfd/topology/nodes/1/io_links/1/properties", "type 11\nnode_to 2\n");
}

static void test_amd(void **state)
{
    (void)state;
    put_two_amd();
    stk_accel *accel = open_all();
    assert_int_equal(stk_accel_n_devices(accel), 2);
    const stk_device *d = stk_accel_device(accel, 0);
    assert_string_equal(d->vendor, "amd");
    assert_string_equal(d->model, "AMD Instinct MI300X");
    assert_string_equal(d->uuid, "GPU-815da378dc1b8086");
    assert_string_equal(d->pci, "0000:05:00.0");
    assert_string_equal(d->node, "/dev/dri/renderD128");
    assert_string_equal(d->driver, "6.12.12");
    assert_string_equal(d->cpus, "48-95");
    assert_int_equal(d->numa, 1);
    assert_true(d->memory_bytes == 206141652992);
    assert_true(d->usable);
    assert_string_equal(stk_accel_device(accel, 1)->uuid, "amd-0000:26:00.0"); /* no unique id */
    assert_int_equal(stk_accel_link(accel, 0, 1, NULL), STK_LINK_FABRIC);

    stk_device_state s;
    assert_int_equal(stk_accel_state(accel, 0, &s, NULL), 0);
    assert_int_equal(s.busy_percent, 73);
    assert_int_equal(s.memory_busy_percent, 11);
    assert_true(s.memory_used == 296747008);
    assert_int_equal(s.temperature_c, 52); /* at the junction: this card has no edge sensor */
    assert_int_equal(s.power_mw, 172000);
    assert_int_equal(s.power_limit_mw, 750000);
    assert_int_equal(s.sm_mhz, 1210);
    assert_int_equal(s.sm_max_mhz, 2100);
    assert_int_equal(s.memory_mhz, 900);
    assert_int_equal(s.memory_max_mhz, -1);
    assert_int_equal(s.energy_mj, -1);
    assert_int_equal(s.fan_percent, -1);
    assert_int_equal(s.pcie_gen, 5);
    assert_int_equal(s.pcie_width, 16);
    assert_int_equal(s.pcie_width_max, -1);
    assert_int_equal(s.ecc, 1);
    assert_int_equal(s.ecc_uncorrected, 3);
    assert_int_equal(s.ecc_corrected, 7);
    assert_int_equal(s.retired_pages, 2);
    assert_int_equal(s.retired_pending, 1);
    stk_accel_close(accel);
}

static void test_amd_processes(void **state)
{
    (void)state;
    put_two_amd();
    stk_accel *accel = open_all();
    stk_device_process who[4];
    assert_int_equal(stk_accel_processes(accel, 0, who, 4), -1); /* no folder: unknown */
    PUT("/sys/class/kfd/kfd/proc", {"/4242/vram_5001", "1048576\n"}, {"/4242/vram_5002", "0\n"},
        {"/77/vram_5002", "4096\n"});
    assert_int_equal(stk_accel_processes(accel, 0, who, 4), 1);
    assert_int_equal(who[0].pid, 4242);
    assert_int_equal(who[0].memory_bytes, 1048576);
    stk_device_sample sample;
    const pid_t ours[] = {77, 4242}, others[] = {1};
    assert_int_equal(stk_accel_sample(accel, 0, ours, 2, &sample), 0);
    assert_int_equal(sample.context, 1);
    assert_int_equal(sample.process_memory, 1048576);
    assert_int_equal(sample.busy_percent, 73);
    assert_int_equal(sample.power_mw, 172000);
    put("/sys/class/kfd/kfd/proc/1/vram_5002", "0\n");
    assert_int_equal(stk_accel_sample(accel, 0, others, 1, &sample), 0);
    assert_int_equal(sample.context, 0);
    assert_int_equal(sample.process_memory, -1);
    stk_accel_close(accel);
}

static void test_amd_troubles(void **state)
{
    (void)state;
    char full[PATH_MAX];
    put_two_amd();
    put("/sys/class/kfd/kfd/topology/nodes/3/properties", /* part of a CPU */
        "cpu_cores_count 16\nsimd_count 8\ndevice_id 5567\ndrm_render_minor 129\n");
    put("/dev/dri/renderD129", "");
    unlink(below("/dev/dri/renderD136", full));
    stk_accel *accel = open_all();
    assert_int_equal(stk_accel_n_devices(accel), 2);
    assert_false(stk_accel_device(accel, 1)->usable);
    assert_non_null(strstr(stk_accel_device(accel, 1)->trouble, "/dev/dri/renderD136 isn't there"));
    stk_accel_close(accel);

    put("/.dockerenv", ""); /* in a container, a device without a node isn't ours */
    accel = open_all();
    assert_int_equal(stk_accel_n_devices(accel), 1);
    stk_accel_close(accel);
}

static void test_amd_without_compute(void **state)
{
    (void)state;
    PUT("/sys/bus/pci/devices/0000:05:00.0", {"/vendor", "0x1002\n"}, {"/device", "0x740f\n"});
    put("/sys/class/drm/card1/device", "->../../../bus/pci/devices/0000:05:00.0");
    PUT("/sys/class/drm/card2/device", {"/vendor", "0x1002\n"}, {"/device", "0x6613\n"});
    stk_accel *accel = open_all();
    assert_int_equal(stk_accel_n_devices(accel), 1); /* an old display card is no accelerator */
    const stk_device *d = stk_accel_device(accel, 0);
    assert_string_equal(d->model, "AMD Instinct MI210");
    assert_non_null(strstr(d->trouble, "amdgpu"));
    stk_device_state s;
    assert_int_equal(stk_accel_state(accel, 0, &s, NULL), STK_E_ENV);
    assert_int_equal(s.busy_percent, -1);
    stk_accel_close(accel);
}

/* --- Intel --- */

static void put_intel(int card, const char *pci, const char *id, int minor)
{
    char dir[128], link[64], target[160];
    snprintf(dir, sizeof dir, "/sys/bus/pci/devices/%s", pci);
    PUT(dir, {"/vendor", "0x8086\n"}, {"/device", id}, {"/numa_node", "0\n"});
    snprintf(link, sizeof link, "/sys/class/drm/card%d/device", card);
    snprintf(target, sizeof target, "->../../../bus/pci/devices/%s", pci);
    put(link, target);
    char node[128];
    snprintf(node, sizeof node, "%s/drm/renderD%d/dev", dir, minor);
    put(node, "226:128\n");
    snprintf(node, sizeof node, "/dev/dri/renderD%d", minor);
    put(node, "");
}

static void test_intel(void **state)
{
    (void)state;
    put_intel(0, "0000:00:02.0", "0xa780\n", 128); /* integrated: counted, not listed */
    put_intel(2, "0000:03:00.0", "0xe20b\n", 129);
    put_intel(1, "0000:4d:00.0", "0x0bd5\n", 130);
    PUT("/sys/bus/pci/devices/0000:03:00.0", {"/driver", "->../../drivers/xe"},
        {"/tile0/gt0/freq0/act_freq", "2850\n"}, {"/tile0/gt0/freq0/rp0_freq", "2900\n"},
        {"/tile0/gt0/freq0/throttle/reason_pl1", "1\n"},
        {"/tile0/gt0/freq0/throttle/reason_thermal", "0\n"},
        {"/hwmon/hwmon2/energy1_input", "123456789\n"}, {"/hwmon/hwmon2/temp2_input", "61000\n"});
    PUT("/sys/class/drm/card1", {"/lmem_total_bytes", "137438953472\n"},
        {"/lmem_avail_bytes", "137000000000\n"}, {"/gt/gt0/rps_act_freq_mhz", "1550\n"});
    put("/sys/class/drm/card2-DP-1/status", "connected\n");
    stk_accel *accel = open_all();
    assert_int_equal(stk_accel_n_devices(accel), 2);
    const stk_device *d = stk_accel_device(accel, 0);
    assert_string_equal(d->model, "Intel Arc B580");
    assert_string_equal(d->uuid, "intel-0000:03:00.0");
    assert_string_equal(d->node, "/dev/dri/renderD129");
    assert_string_equal(d->driver, "xe");
    assert_int_equal(d->index, 1);
    assert_int_equal(d->memory_bytes, -1);
    assert_true(d->usable);
    stk_device_state s;
    assert_int_equal(stk_accel_state(accel, 0, &s, NULL), 0);
    assert_int_equal(s.busy_percent, -1);
    assert_int_equal(s.sm_mhz, 2850);
    assert_int_equal(s.sm_max_mhz, 2900);
    assert_int_equal(s.temperature_c, 61);
    assert_int_equal(s.energy_mj, 123456);
    assert_int_equal(s.throttle, STK_THROTTLE_POWER_CAP);

    assert_string_equal(stk_accel_device(accel, 1)->model, "Intel Data Center GPU Max 1550");
    assert_true(stk_accel_device(accel, 1)->memory_bytes == 137438953472);
    assert_int_equal(stk_accel_device(accel, 1)->index, 2);
    assert_int_equal(stk_accel_state(accel, 1, &s, NULL), 0);
    assert_int_equal(s.memory_used, 438953472);
    assert_int_equal(s.sm_mhz, 1550);
    assert_int_equal(s.throttle, -1);
    assert_int_equal(stk_accel_processes(accel, 1, NULL, 0), -1);
    stk_accel_close(accel);
}

/* --- Neuron --- */

static void put_neuron(int number, const char *kind, const char *cores, const char *peers)
{
    char dir[128], node[64];
    snprintf(node, sizeof node, "/dev/neuron%d", number);
    put(node, "");
    snprintf(dir, sizeof dir, "/sys/devices/virtual/neuron_device/neuron%d", number);
    PUT(dir, {"/core_count", cores}, {"/connected_devices", peers},
        {"/info/architecture/device_name", kind},
        {"/stats/hardware/mem_ecc_uncorrected/total", "1\n"},
        {"/stats/hardware/sram_ecc_uncorrected/total", "2\n"},
        {"/neuron_core0/stats/memory_usage/device_mem/tensors/total", "1000\n"},
        {"/neuron_core0/stats/memory_usage/device_mem/model_code/total", "24\n"},
        {"/neuron_core1/stats/memory_usage/device_mem/total", "500\n"});
}

static void test_neuron(void **state)
{
    (void)state;
    put("/sys/module/neuron/version", "2.20.28.0\n");
    put_neuron(0, "Trainium1\n", "2\n", "1, 4, 12, 3\n");
    put_neuron(1, "Trainium1\n", "2\n", "0, 2\n");
    put_neuron(10, "Trainium1\n", "2\n", "9\n");
    put("/sys/devices/virtual/neuron_device/neuron0/info/serial_number", "a0b1\n");
    stk_accel *accel = open_all();
    assert_int_equal(stk_accel_n_devices(accel), 3);
    const stk_device *d = stk_accel_device(accel, 0);
    assert_string_equal(d->vendor, "aws");
    assert_string_equal(d->noun, "Neuron device");
    assert_string_equal(d->model, "AWS Trainium");
    assert_string_equal(d->uuid, "neuron-a0b1");
    assert_string_equal(d->driver, "2.20.28.0");
    assert_int_equal(d->n_cores, 2);
    assert_true(d->memory_bytes == 32ll << 30);
    assert_true(d->usable);
    assert_string_equal(stk_accel_device(accel, 2)->uuid, "neuron-10");
    assert_int_equal(stk_accel_device(accel, 2)->index, 10);
    assert_int_equal(stk_accel_link(accel, 0, 1, NULL), STK_LINK_FABRIC);
    assert_int_equal(stk_accel_link(accel, 0, 2, NULL), STK_LINK_UNKNOWN);
    stk_device_state s;
    assert_int_equal(stk_accel_state(accel, 0, &s, NULL), 0);
    assert_int_equal(s.memory_used, 1524);
    assert_int_equal(s.ecc_uncorrected, 3);
    assert_int_equal(s.busy_percent, -1);
    stk_accel_close(accel);
}

static void test_neuron_logical_cores(void **state)
{
    (void)state;
    put_neuron(0, "Trainium2\n", "8\n", "\n");
    stk_accel *accel = open_all();
    assert_int_equal(stk_accel_device(accel, 0)->n_cores, 4);
    stk_accel_close(accel);
    setenv("NEURON_LOGICAL_NC_CONFIG", "1", 1);
    accel = open_all();
    assert_int_equal(stk_accel_device(accel, 0)->n_cores, 8);
    stk_accel_close(accel);
}

/* An older driver has no such files; the type of the instance tells the type of its devices. */
static void test_neuron_by_instance(void **state)
{
    (void)state;
    put("/sys/class/dmi/id/product_name", "inf2.xlarge\n");
    stk_accel *accel = open_all();
    STK_ARENA_AUTO arena = stk_arena_new(0);
    assert_non_null(strstr(stk_accel_describe(accel, arena), "install aws-neuronx-dkms"));
    stk_accel_close(accel);
    put("/dev/neuron0", "");
    accel = open_all();
    assert_string_equal(stk_accel_device(accel, 0)->model, "AWS Inferentia2");
    assert_int_equal(stk_accel_device(accel, 0)->n_cores, 2);
    stk_device_state s;
    assert_int_equal(stk_accel_state(accel, 0, &s, NULL), 0);
    assert_int_equal(s.memory_used, -1);
    assert_int_equal(s.ecc_uncorrected, -1);
    stk_accel_close(accel);
}

static void test_neuron_unknown(void **state)
{
    (void)state;
    put("/dev/neuron0", "");
    stk_accel *accel = open_all();
    assert_int_equal(stk_accel_n_devices(accel), 1);
    assert_false(stk_accel_device(accel, 0)->usable);
    assert_non_null(strstr(stk_accel_device(accel, 0)->trouble, "the number of its cores"));
    assert_int_equal(stk_accel_device(accel, 0)->memory_bytes, -1);
    stk_accel_close(accel);
}

/* --- TPU --- */

static void put_tpu(const char *pci, const char *id, const char *subsystem)
{
    char dir[128];
    snprintf(dir, sizeof dir, "/sys/bus/pci/devices/%s", pci);
    PUT(dir, {"/vendor", "0x1ae0\n"}, {"/device", id}, {"/subsystem_device", subsystem},
        {"/numa_node", "0\n"});
}

static void test_tpu(void **state)
{
    (void)state;
    put_tpu("0000:00:04.0", "0x0042\n", "0x0058\n"); /* Google's network card */
    put_tpu("0000:00:05.0", "0x0063\n", "0x0000\n");
    put_tpu("0000:00:06.0", "0x0063\n", "0x0000\n");
    put("/sys/bus/pci/devices/0000:00:05.0/iommu_group", "->../../../kernel/iommu_groups/7");
    put("/sys/bus/pci/devices/0000:00:06.0/iommu_group", "->../../../kernel/iommu_groups/9");
    put("/dev/vfio/vfio", "");
    put("/dev/vfio/7", "");
    stk_accel *accel = open_all();
    assert_int_equal(stk_accel_n_devices(accel), 2);
    const stk_device *d = stk_accel_device(accel, 0);
    assert_string_equal(d->vendor, "google");
    assert_string_equal(d->noun, "TPU chip");
    assert_string_equal(d->model, "Google TPU v5e");
    assert_string_equal(d->node, "/dev/vfio/7");
    assert_string_equal(d->uuid, "tpu-0000:00:05.0");
    assert_int_equal(d->index, 0);
    assert_int_equal(d->n_cores, 1);
    assert_true(d->memory_bytes == 16ll << 30);
    assert_true(d->usable);
    assert_false(stk_accel_device(accel, 1)->usable);
    assert_non_null(strstr(stk_accel_device(accel, 1)->trouble, "isn't there"));
    stk_device_state s;
    assert_int_equal(stk_accel_state(accel, 0, &s, NULL), 0);
    assert_int_equal(s.busy_percent, -1);
    stk_accel_close(accel);
}

static void test_tpu_by_accel_nodes(void **state)
{
    (void)state;
    put_tpu("0000:00:05.0", "0x0027\n", "0x004f\n");
    put_tpu("0000:00:04.0", "0x0027\n", "0x004e\n");
    put("/sys/bus/pci/devices/0000:00:05.0/accel/accel0/dev", "0:0\n");
    put("/dev/accel0", "");
    put("/dev/accel1", "");
    stk_accel *accel = open_all();
    assert_int_equal(stk_accel_n_devices(accel), 2);
    assert_string_equal(stk_accel_device(accel, 0)->model, "Google TPU v2");
    assert_string_equal(stk_accel_device(accel, 1)->model, "Google TPU v3");
    assert_string_equal(stk_accel_device(accel, 1)->node, "/dev/accel0"); /* as the kernel says */
    assert_int_equal(stk_accel_device(accel, 1)->index, 0);
    stk_accel_close(accel);
}

/* A container without PCI has only the nodes; Google's environment says which devices they are. */
static void test_tpu_by_environment(void **state)
{
    (void)state;
    put("/.dockerenv", "");
    put("/dev/vfio/vfio", "");
    put("/dev/vfio/10", "");
    put("/dev/vfio/2", "");
    stk_accel *accel = open_all();
    assert_int_equal(stk_accel_n_devices(accel), 0); /* a vfio node may be any device */
    stk_accel_close(accel);
    setenv("TPU_ACCELERATOR_TYPE", "v5litepod-8", 1);
    accel = open_all();
    assert_int_equal(stk_accel_n_devices(accel), 2);
    assert_string_equal(stk_accel_device(accel, 0)->node, "/dev/vfio/2");
    assert_string_equal(stk_accel_device(accel, 1)->model, "Google TPU v5e");
    assert_int_equal(stk_accel_device(accel, 1)->index, 1);
    stk_accel_close(accel);
}

/* All four vendors in one host, each with its own provider and mask. */
static void test_together(void **state)
{
    (void)state;
    put_two_amd();
    put_neuron(0, "Trainium1\n", "2\n", "1\n");
    put_neuron(1, "Trainium1\n", "2\n", "0\n");
    put_tpu("0000:00:05.0", "0x005e\n", "0\n");
    put("/dev/accel0", "");
    setenv("ROCR_VISIBLE_DEVICES", "GPU-815d", 1);
    setenv("NEURON_RT_VISIBLE_CORES", "2-3", 1);
    stk_accel *accel = open_all();
    assert_int_equal(stk_accel_n_devices(accel), 3);
    assert_string_equal(stk_accel_device(accel, 0)->uuid, "GPU-815da378dc1b8086");
    assert_string_equal(stk_accel_device(accel, 1)->uuid, "neuron-1");
    assert_string_equal(stk_accel_device(accel, 2)->model, "Google TPU v4");
    stk_accel_close(accel);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_nothing),
        TEST(test_amd),
        TEST(test_amd_processes),
        TEST(test_amd_troubles),
        TEST(test_amd_without_compute),
        TEST(test_intel),
        TEST(test_neuron),
        TEST(test_neuron_logical_cores),
        TEST(test_neuron_by_instance),
        TEST(test_neuron_unknown),
        TEST(test_tpu),
        TEST(test_tpu_by_accel_nodes),
        TEST(test_tpu_by_environment),
        TEST(test_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
