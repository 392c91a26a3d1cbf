/* Finds NVIDIA devices through NVML, the driver's library, loaded with dlopen and our own
 * prototypes (accel_nvml.h). A host without visible NVIDIA devices never loads it. STOKER_NVML=PATH
 * names a library, which is then always loaded. */
#include "host/accel/accel_nvml.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/text.h"
#include "host/accel/accel_sysfs.h"

static const stk_device unknown_gpu = {STK_DEVICE_UNKNOWN, .vendor = "nvidia", .noun = "GPU",
                                       .model = "NVIDIA GPU"};

/* Whether PCI device `name` is a GPU of NVIDIA (a display controller). */
static bool is_gpu(const char *name)
{
    return stk_sysfs_number("/sys/bus/pci/devices/%s/vendor", name) == 0x10de &&
           stk_sysfs_number("/sys/bus/pci/devices/%s/class", name) >> 16 == 0x03;
}

/* Lists all PCI devices; in a container none, because sysfs shows the host's. */
static uint32_t list_pci(stk_accel *accel, const char *const **ret_names)
{
    if (stk_in_container()) {
        return 0;
    }
    return stk_sysfs_list(accel->arena, "/sys/bus/pci/devices", "", ret_names);
}

/* Adds the device if it has a trouble; without one the caller only counts it. */
static int add_troubled(stk_accel *accel, const stk_device *device, stk_err *err)
{
    if (device->trouble == NULL) {
        return 0;
    }
    return stk_accel_add(accel, device, STK_SLOT_NONE, err);
}

/* Finds the NVIDIA devices that the kernel shows, without the driver's help. Lists each with
 * `trouble` (NULL: only counts them). In a container only device nodes count, because sysfs shows
 * all devices of the host. */
static int list_by_kernel(stk_accel *accel, const char *trouble, uint32_t *ret_n, stk_err *err)
{
    stk_device device = unknown_gpu;
    device.trouble = trouble;
    uint32_t n = 0, n_nodes = 0;
    const char *const *names;
    uint32_t n_pci = list_pci(accel, &names);
    for (uint32_t i = 0; i < n_pci; i++) {
        if (is_gpu(names[i])) {
            device.index = (int32_t)n++;
            device.pci = names[i];
            stk_pci_place(accel->arena, device.pci, &device.numa, &device.cpus);
            STK_TRY(add_troubled(accel, &device, err));
        }
    }
    device = unknown_gpu;
    device.trouble = trouble;
    if (n == 0) { /* nodes may be missing: a container may have only nvidia3 */
        n_nodes = stk_sysfs_list(accel->arena, "/dev", "nvidia", &names);
    }
    for (uint32_t i = 0; i < n_nodes; i++) {
        if (names[i][6] >= '0' && names[i][6] <= '9') { /* not nvidiactl */
            device.index = (int32_t)n++;
            device.node = stk_arena_printf(accel->arena, "/dev/%s", names[i]);
            STK_TRY(add_troubled(accel, &device, err));
        }
    }
    *ret_n = n;
    return 0;
}

/* Whether the driver has the GPU and this process may open it: a device cgroup (Slurm's) or a
 * container hides the others from NVML, and we ignore them. */
static bool is_given(const char *pci)
{
    char path[PATH_MAX], text[256];
    long minor = -1;
    if (!stk_sysfs_path(path, sizeof path, "/proc/driver/nvidia/gpus/%s/information", pci)) {
        return false;
    }
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    while (fgets(text, sizeof text, file) != NULL) {
        (void)sscanf(text, "Device Minor: %ld", &minor);
    }
    (void)fclose(file);
    return minor >= 0 && stk_sysfs_path(path, sizeof path, "/dev/nvidia%ld", minor) &&
           access(path, R_OK | W_OK) == 0; /* also checks the device cgroup */
}

/* Why a GPU that NVML didn't list can't be used; NULL: it isn't given to us. */
static const char *left_over_trouble(stk_accel *accel, const char *pci)
{
    char driver[64];
    if (!stk_sysfs_link(driver, sizeof driver, "/sys/bus/pci/devices/%s/driver", pci)) {
        return stk_arena_printf(accel->arena, "the GPU at %s has no driver: see 'dmesg'", pci);
    }
    if (strncmp(driver, "vfio", 4) == 0) {
        return stk_arena_printf(
            accel->arena, "the GPU at %s is kept for a virtual machine (driver %s)", pci, driver);
    }
    if (strcmp(driver, "nvidia") != 0) {
        return stk_arena_printf(accel->arena, "the GPU at %s has another driver (%s) than NVIDIA's",
                                pci, driver);
    }
    if (!is_given(pci)) {
        return NULL;
    }
    return stk_arena_printf(
        accel->arena, "the NVIDIA driver doesn't show the GPU at %s: see 'dmesg | grep NVRM'", pci);
}

/* Adds GPUs that the kernel lists but NVML doesn't: passed through to a virtual machine, or broken
 * before the driver could bind them. */
static int list_left_over(stk_accel *accel, uint32_t first, stk_err *err)
{
    const char *const *names;
    uint32_t n_pci = list_pci(accel, &names);
    uint32_t end = accel->n, n_nameless = 0;
    for (uint32_t i = first; i < end; i++) {
        n_nameless += accel->devices[i].pci == NULL; /* lost GPUs: NVML reports no PCI address */
    }
    for (uint32_t k = 0; k < n_pci; k++) {
        bool listed = !is_gpu(names[k]);
        char pci[16];
        for (uint32_t i = first; i < end && !listed; i++) {
            listed = stk_pci_name(accel->devices[i].pci, pci) && strcmp(pci, names[k]) == 0;
        }
        stk_device device = unknown_gpu;
        device.trouble = NULL;
        if (!listed) {
            device.trouble = left_over_trouble(accel, names[k]);
        }
        if (device.trouble == NULL || (n_nameless > 0 && is_given(names[k]))) {
            n_nameless -= device.trouble != NULL;
            continue;
        }
        device.pci = names[k];
        stk_pci_place(accel->arena, device.pci, &device.numa, &device.cpus);
        STK_TRY(stk_accel_add(accel, &device, STK_SLOT_NONE, err));
    }
    return 0;
}

/* A sentence on why the library could not be started. */
static const char *init_trouble(stk_accel *accel, const nvml *lib, int code)
{
    switch (code) {
    case NVML_VERSION_MISMATCH:
        return "the NVIDIA driver in the kernel and libnvidia-ml.so.1 are of different versions: "
               "reboot, or load the new kernel module";
    case NVML_DRIVER_NOT_LOADED:
        return "the NVIDIA driver is installed but not loaded: run 'modprobe nvidia' as root";
    default: {
        const char *text = stk_arena_printf(accel->arena, "NVML can't start: %s (code %d)",
                                            stk_nvml_words(lib, code), code);
        return stk_text_or(text, "NVML can't start");
    }
    }
}

static void read_place(stk_accel *accel, const nvml *lib, nvml_device handle, stk_device *device)
{
    nvml_pci pci = {0};
    if (NVML_CALL(lib, pci, handle, &pci) == NVML_OK) {
        pci.bus_id_legacy[sizeof pci.bus_id_legacy - 1] = '\0';
        pci.bus_id[sizeof pci.bus_id - 1] = '\0';
        /* Since _v3 a separate field has the full id. */
        const char *id = stk_text_or(stk_text_if_any(pci.bus_id), pci.bus_id_legacy);
        device->pci = stk_arena_dup(accel->arena, id);
        stk_pci_place(accel->arena, device->pci, &device->numa, &device->cpus);
    }
    unsigned minor = 0;
    if (NVML_CALL(lib, minor, handle, &minor) == NVML_OK) {
        device->node = stk_arena_printf(accel->arena, "/dev/nvidia%u", minor);
    }
}

/* The profile, "1g.10gb", from the name ("NVIDIA H100 80GB HBM3 MIG 1g.10gb"), else from the
 * slice's eighths of the device's memory, by NVIDIA's rule (nvidia-container-toolkit). */
static const char *slice_profile(stk_accel *accel, const nvml *lib, nvml_device handle,
                                 int64_t whole_bytes)
{
    char name[128] = "";
    if (NVML_CALL(lib, name, handle, name, sizeof name) == NVML_OK) {
        const char *mig = strstr(name, " MIG ");
        if (mig != NULL) {
            return stk_arena_dup(accel->arena, mig + 5);
        }
    }
    nvml_attributes a = {0};
    if (NVML_CALL(lib, attributes, handle, &a) != NVML_OK || whole_bytes <= 0) {
        return NULL;
    }
    unsigned long long whole = (unsigned long long)whole_bytes;
    unsigned long long eighths = ((a.memory_mb << 20) * 8 + whole - 1) / whole;
    unsigned long long whole_gb = (whole + (1ull << 30) - 1) >> 30;
    unsigned gb = (unsigned)((eighths * whole_gb + 4) / 8);
    if (a.gpu_slices == a.compute_slices) {
        return stk_arena_printf(accel->arena, "%ug.%ugb", a.gpu_slices, gb);
    }
    return stk_arena_printf(accel->arena, "%uc.%ug.%ugb", a.compute_slices, a.gpu_slices, gb);
}

/* Adds the slices of device `parent` after it in the list. */
static int add_slices(stk_accel *accel, nvml *lib, uint32_t parent, stk_err *err)
{
    const uint32_t slot = accel->slots[parent].slot;
    unsigned n_max = 0;
    int rc = 0;
    if (NVML_CALL(lib, max_slices, lib->units[slot].handle, &n_max) != NVML_OK) {
        n_max = 0;
    }
    for (unsigned k = 0; k < n_max && rc == 0 && lib->n < STK_LIMIT_DEVICES; k++) {
        nvml_unit *unit = &lib->units[lib->n];
        char uuid[128];
        *unit = (nvml_unit){.index = lib->units[slot].index, .parent = (int32_t)slot};
        if (NVML_CALL(lib, slice, lib->units[slot].handle, k, &unit->handle) != NVML_OK ||
            lib->api.uuid(unit->handle, uuid, sizeof uuid) != NVML_OK) {
            continue; /* no slice at this position */
        }
        stk_device slice = accel->devices[parent];
        int64_t used;
        slice.noun = "MIG slice";
        slice.uuid = stk_arena_dup(accel->arena, uuid);
        slice.profile = slice_profile(accel, lib, unit->handle, slice.memory_bytes);
        slice.index = (int32_t)k;
        slice.parent = (int32_t)parent;
        slice.n_slices = 0;
        slice.usable = slice.uuid != NULL;
        slice.memory_bytes = -1;
        (void)stk_nvml_memory(lib, unit->handle, &slice.memory_bytes, &used);
        rc = stk_accel_add(accel, &slice, lib->n++, err);
        accel->devices[parent].n_slices++;
    }
    return rc;
}

static int add_device(stk_accel *accel, nvml *lib, uint32_t i, stk_err *err)
{
    stk_device device = unknown_gpu;
    device.index = (int32_t)i;
    device.driver = accel->driver;
    nvml_unit *unit = &lib->units[lib->n];
    *unit = (nvml_unit){.index = (int32_t)i, .parent = -1};
    char text[256];
    int code = lib->api.handle(i, &unit->handle);
    if (code == NVML_OK) {
        code = lib->api.uuid(unit->handle, text, sizeof text);
    }
    if (code != NVML_OK) {
        device.trouble =
            stk_arena_dup(accel->arena, stk_nvml_trouble(lib, (int32_t)i, code, text, sizeof text));
        return stk_accel_add(accel, &device, STK_SLOT_NONE, err);
    }
    device.uuid = stk_arena_dup(accel->arena, text);
    device.usable = device.uuid != NULL;
    if (NVML_CALL(lib, name, unit->handle, text, sizeof text) == NVML_OK) {
        device.model = stk_arena_dup(accel->arena, text);
    }
    read_place(accel, lib, unit->handle, &device);
    int64_t used;
    (void)stk_nvml_memory(lib, unit->handle, &device.memory_bytes, &used);
    if (NVML_CALL(lib, cc, unit->handle, &device.cc_major, &device.cc_minor) != NVML_OK) {
        device.cc_major = device.cc_minor = -1;
    }
    unsigned mig = 0, pending = 0;
    bool split = NVML_CALL(lib, mig_mode, unit->handle, &mig, &pending) == NVML_OK && mig == 1;
    device.usable = device.usable && !split;
    uint32_t at = accel->n;
    int rc = stk_accel_add(accel, &device, lib->n++, err);
    if (rc == 0 && split) {
        rc = add_slices(accel, lib, at, err);
        if (rc == 0 && accel->devices[at].n_slices == 0) {
            accel->devices[at].trouble = stk_arena_printf(
                accel->arena,
                "GPU %u is in MIG mode and has no slice: make some ('nvidia-smi mig -cgi … -C'), "
                "or leave the mode ('nvidia-smi -i %u -mig 0')",
                i, i);
        }
    }
    return rc;
}

static void nvml_close(void *self)
{
    nvml *lib = self;
    if (lib->events != NULL) {
        (void)NVML_CALL(lib, set_free, lib->events);
    }
    (void)NVML_CALL(lib, shutdown);
    (void)dlclose(lib->library);
}

static nvml *new_library(stk_arena *arena)
{
    nvml *lib = stk_arena_alloc(arena, sizeof *lib);
    if (lib == NULL ||
        (lib->direct = stk_arena_array(arena, STK_LIMIT_DEVICES, sizeof *lib->direct)) == NULL ||
        (lib->to_switch = stk_arena_alloc(arena, STK_LIMIT_DEVICES)) == NULL) {
        return NULL;
    }
    lib->memory_v2 = true;
    char ns[64];
    ssize_t n = readlink("/proc/self/ns/pid", ns, sizeof ns - 1);
    ns[MAX(n, 0)] = '\0';
    lib->pids_are_ours = strcmp(ns, "pid:[4026531836]") == 0; /* PROC_PID_INIT_INO: the host's */
    return lib;
}

static int find_by_nvml(stk_accel *accel, nvml *lib, stk_err *err)
{
    char version[96];
    int cuda = 0;
    unsigned n = 0;
    if (NVML_CALL(lib, driver, version, sizeof version) == NVML_OK) {
        accel->driver = stk_arena_dup(accel->arena, version);
    }
    if (NVML_CALL(lib, cuda, &cuda) == NVML_OK) {
        accel->cuda_version = cuda;
    }
    int code = lib->api.count(&n);
    if (code != NVML_OK) {
        uint32_t n_shown;
        const char *why = stk_arena_printf(accel->arena, "NVML can't count its devices: %s",
                                           stk_nvml_words(lib, code));
        return list_by_kernel(accel, stk_text_or(why, "NVML fails"), &n_shown, err);
    }
    uint32_t first = accel->n;
    for (uint32_t i = 0; i < n && lib->n < STK_LIMIT_DEVICES; i++) {
        STK_TRY(add_device(accel, lib, i, err));
    }
    return list_left_over(accel, first, err);
}

static int nvml_open(stk_accel *accel, const char *spec, void **ret_self, stk_err *err)
{
    (void)spec;
    const char *forced = stk_text_if_any(getenv("STOKER_NVML"));
    uint32_t n_shown = 0;
    int rc = list_by_kernel(accel, NULL, &n_shown, err);
    bool wsl = stk_sysfs_exists("/dev/dxg"); /* Windows' GPU node; its NVML needs no /dev/nvidia0 */
    if (rc < 0 || (n_shown == 0 && forced == NULL && !wsl)) {
        return rc;
    }
    nvml *lib = new_library(accel->arena);
    STK_TRY(stk_err_need(lib, "for the list of devices", err));
    bool is_loaded = stk_nvml_load(lib, stk_text_or(forced, "libnvidia-ml.so.1"));
    if (!is_loaded && forced == NULL && wsl) { /* the loader knows that folder only if told */
        char path[PATH_MAX];
        is_loaded = stk_sysfs_path(path, sizeof path, "/usr/lib/wsl/lib/libnvidia-ml.so.1") &&
                    stk_nvml_load(lib, path);
    }
    if (!is_loaded) {
        if (forced != NULL) {
            return stk_err_set(err, STK_E_ENV,
                               "STOKER_NVML names '%s', which is not an NVML library", forced);
        }
        return list_by_kernel(accel,
                              "the NVIDIA driver's libnvidia-ml.so.1 is not here: install the "
                              "driver, or pass it into the container (--gpus all)",
                              &n_shown, err);
    }
    int code = lib->api.init();
    if (code != NVML_OK) {
        const char *trouble = init_trouble(accel, lib, code);
        (void)dlclose(lib->library);
        if (n_shown == 0) {
            stk_accel_remark(accel, trouble);
        }
        return list_by_kernel(accel, trouble, &n_shown, err);
    }
    rc = find_by_nvml(accel, lib, err);
    if (rc < 0) {
        nvml_close(lib);
        return rc;
    }
    *ret_self = lib;
    return 0;
}

const stk_provider stk_provider_nvml = {
    .name = "nvml",
    .in_auto = true,
    .open = nvml_open,
    .ops = {.state = stk_nvml_state,
            .processes = stk_nvml_processes,
            .sample = stk_nvml_sample,
            .link = stk_nvml_link,
            .next_event = stk_nvml_next_event,
            .close = nvml_close},
};
