/* NVIDIA devices through NVML, the driver's own library, loaded with dlopen and our own prototypes
 * (ABI as in NVIDIA's NVML API reference; newer entry points first, older ones where a driver
 * lacks them). A host that shows no NVIDIA device never loads it. STOKER_NVML=PATH names a library
 * and loads it in any case. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accel/accel_priv.h"

enum { /* nvmlReturn_t */
       NVML_OK = 0,
       NVML_INSUFFICIENT_SIZE = 7,
       NVML_DRIVER_NOT_LOADED = 9,
       NVML_GPU_IS_LOST = 15,
       NVML_VERSION_MISMATCH = 18,
};

typedef struct nvml_device *nvml_device;

typedef struct {
    unsigned long long total, free, used;
} nvml_memory;

typedef struct {
    unsigned gpu, memory;
} nvml_utilization;

/* nvmlPciInfo_t as filled by _v2 and _v3; both begin with the short (16 bytes) bus id. */
typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} nvml_pci;

typedef struct { /* of …RunningProcesses_v2 and _v3 */
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
} nvml_process;

typedef struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_string)(int);
    int (*driver)(char *, unsigned);
    int (*count)(unsigned *);
    int (*handle)(unsigned, nvml_device *);
    int (*uuid)(nvml_device, char *, unsigned);
    int (*name)(nvml_device, char *, unsigned);
    int (*pci)(nvml_device, nvml_pci *);
    int (*memory)(nvml_device, nvml_memory *);
    int (*mig)(nvml_device, unsigned *, unsigned *);
    int (*utilization)(nvml_device, nvml_utilization *);
    int (*processes)(nvml_device, unsigned *, nvml_process *);
    int (*power)(nvml_device, unsigned *);
    nvml_device devices[STK_LIMIT_DEVICES];
} nvml;

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static bool in_container(void)
{
    return exists("/.dockerenv") || exists("/run/.containerenv") || getenv("container") != NULL;
}

/* The PCI address of the next NVIDIA GPU of `dir` (/sys/bus/pci/devices), or NULL. */
static const char *next_pci_gpu(DIR *dir)
{
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char path[512], text[16] = "";
        unsigned long vendor = 0, class = 0;
        const char *const files[] = {"vendor", "class"};
        unsigned long *const values[] = {&vendor, &class};
        for (int i = 0; i < 2; i++) {
            (void)snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/%s", entry->d_name,
                           files[i]);
            FILE *file = fopen(path, "re");
            if (file != NULL) {
                *values[i] = fgets(text, sizeof text, file) ? strtoul(text, NULL, 16) : 0;
                (void)fclose(file);
            }
        }
        if (vendor == 0x10de && class >> 16 == 0x03) { /* a display controller of NVIDIA */
            return entry->d_name;
        }
    }
    return NULL;
}

/* The NVIDIA devices that the kernel shows, asked without a driver; each listed with `trouble`
 * (NULL: only counted). In a container sysfs shows what the host has, not what we were given: only
 * device nodes count there. */
static int list_by_kernel(stk_accel *accel, const char *trouble, uint32_t *ret_n, stk_err *err)
{
    stk_device device = {STK_DEVICE_UNKNOWN, .vendor = "nvidia", .noun = "GPU",
                         .model = "NVIDIA GPU"};
    device.trouble = trouble;
    uint32_t n = 0;
    int rc = 0;
    DIR *dir = in_container() ? NULL : opendir("/sys/bus/pci/devices");
    for (const char *pci; rc == 0 && dir != NULL && (pci = next_pci_gpu(dir)) != NULL; n++) {
        device.index = (int32_t)n;
        device.pci = stk_arena_dup(accel->arena, pci);
        rc = trouble != NULL ? stk_accel_add(accel, &device, n, err) : 0;
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    device.pci = NULL;
    for (uint32_t i = 0; rc == 0 && n == i && i < STK_LIMIT_DEVICES; i++) {
        char path[32];
        (void)snprintf(path, sizeof path, "/dev/nvidia%u", i);
        if (exists(path)) {
            device.index = (int32_t)n++;
            rc = trouble != NULL ? stk_accel_add(accel, &device, i, err) : 0;
        }
    }
    *ret_n = n;
    return rc;
}

static void *symbol(void *library, const char *const *names)
{
    void *found = NULL;
    for (; *names != NULL && found == NULL; names++) {
        found = dlsym(library, *names);
    }
    return found;
}

/* The first of the names that the library has; newest first. NULL stays where there is none. */
#define LOAD(lib, field, ...)                                                                      \
    do {                                                                                           \
        void *found = symbol((lib)->library, (const char *const[]){__VA_ARGS__, NULL});            \
        memcpy(&(lib)->field, &found, sizeof found);                                               \
    } while (0)

static bool load(nvml *lib, const char *path)
{
    lib->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (lib->library == NULL) {
        return false;
    }
    LOAD(lib, init, "nvmlInit_v2", "nvmlInit");
    LOAD(lib, shutdown, "nvmlShutdown");
    LOAD(lib, error_string, "nvmlErrorString");
    LOAD(lib, driver, "nvmlSystemGetDriverVersion");
    LOAD(lib, count, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount");
    LOAD(lib, handle, "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex");
    LOAD(lib, uuid, "nvmlDeviceGetUUID");
    LOAD(lib, name, "nvmlDeviceGetName");
    LOAD(lib, pci, "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2");
    LOAD(lib, memory, "nvmlDeviceGetMemoryInfo");
    LOAD(lib, mig, "nvmlDeviceGetMigMode");
    LOAD(lib, utilization, "nvmlDeviceGetUtilizationRates");
    /* The first version's record is shorter and not asked for. */
    LOAD(lib, processes, "nvmlDeviceGetComputeRunningProcesses_v3",
         "nvmlDeviceGetComputeRunningProcesses_v2");
    LOAD(lib, power, "nvmlDeviceGetPowerUsage");
    return lib->init != NULL && lib->count != NULL && lib->handle != NULL && lib->uuid != NULL;
}

static const char *words(const nvml *lib, int code)
{
    const char *text = lib->error_string != NULL ? lib->error_string(code) : NULL;
    return text != NULL ? text : "unknown NVML error";
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
                                            words(lib, code), code);
        return text != NULL ? text : "NVML can't start";
    }
    }
}

static void read_pci(stk_accel *accel, const nvml *lib, nvml_device handle, stk_device *device)
{
    nvml_pci pci = {0};
    if (lib->pci != NULL && lib->pci(handle, &pci) == NVML_OK) {
        pci.bus_id_legacy[sizeof pci.bus_id_legacy - 1] = '\0';
        pci.bus_id[sizeof pci.bus_id - 1] = '\0';
        /* Since _v3 the full id has a field of its own. */
        device->pci = stk_arena_dup(accel->arena, pci.bus_id[0] ? pci.bus_id : pci.bus_id_legacy);
    }
}

static int add_device(stk_accel *accel, nvml *lib, uint32_t i, stk_err *err)
{
    stk_device device = {STK_DEVICE_UNKNOWN, .vendor = "nvidia", .noun = "GPU",
                         .model = "NVIDIA GPU"};
    device.index = (int32_t)i;
    char text[128];
    int code = lib->handle(i, &lib->devices[i]);
    if (code == NVML_OK) {
        code = lib->uuid(lib->devices[i], text, sizeof text);
    }
    if (code != NVML_OK) {
        lib->devices[i] = NULL;
        device.trouble =
            code == NVML_GPU_IS_LOST
                ? stk_arena_printf(accel->arena,
                                   "GPU %u has fallen off the bus: see 'dmesg | grep Xid', reboot",
                                   i)
                : stk_arena_printf(accel->arena, "GPU %u can't be asked: %s", i, words(lib, code));
        return stk_accel_add(accel, &device, i, err);
    }
    device.uuid = stk_arena_dup(accel->arena, text);
    device.usable = device.uuid != NULL;
    if (lib->name != NULL && lib->name(lib->devices[i], text, sizeof text) == NVML_OK) {
        device.model = stk_arena_dup(accel->arena, text);
    }
    read_pci(accel, lib, lib->devices[i], &device);
    nvml_memory memory;
    if (lib->memory != NULL && lib->memory(lib->devices[i], &memory) == NVML_OK) {
        device.memory_bytes = (int64_t)memory.total;
    }
    unsigned mig = 0, pending = 0;
    if (lib->mig != NULL && lib->mig(lib->devices[i], &mig, &pending) == NVML_OK && mig == 1) {
        device.usable = false;
        device.trouble = stk_arena_printf(
            accel->arena, "GPU %u is split by MIG, and Stoker gives out whole devices only", i);
    }
    return stk_accel_add(accel, &device, i, err);
}

static int nvml_sample(void *self, uint32_t slot, const pid_t *pids, uint32_t n_pids,
                       stk_device_sample *ret)
{
    const nvml *lib = self;
    nvml_device device = lib->devices[slot];
    if (device == NULL) {
        return STK_E_ENV;
    }
    nvml_utilization busy;
    if (lib->utilization != NULL && lib->utilization(device, &busy) == NVML_OK) {
        ret->busy_percent = (int32_t)busy.gpu;
    }
    nvml_memory memory;
    if (lib->memory != NULL && lib->memory(device, &memory) == NVML_OK) {
        ret->memory_used = (int64_t)memory.used;
    }
    unsigned power;
    if (lib->power != NULL && lib->power(device, &power) == NVML_OK) {
        ret->power_mw = (int32_t)power;
    }
    nvml_process processes[256];
    unsigned n = sizeof processes / sizeof processes[0];
    if (lib->processes == NULL || n_pids == 0 || lib->processes(device, &n, processes) != NVML_OK) {
        return 0;
    }
    /* In a container the driver may name processes as the host numbers them: what isn't found is
     * unknown, not zero. */
    for (unsigned i = 0; i < n; i++) {
        for (uint32_t k = 0; k < n_pids; k++) {
            if (processes[i].pid == (unsigned)pids[k] && processes[i].memory != ~0ull) {
                ret->process_memory = (ret->process_memory < 0 ? 0 : ret->process_memory) +
                                      (int64_t)processes[i].memory;
            }
        }
    }
    return 0;
}

static void nvml_close(void *self)
{
    nvml *lib = self;
    if (lib->shutdown != NULL) {
        (void)lib->shutdown();
    }
    (void)dlclose(lib->library);
}

static int nvml_open(stk_accel *accel, const char *spec, void **ret_self, stk_err *err)
{
    (void)spec;
    const char *forced = getenv("STOKER_NVML");
    forced = forced != NULL && *forced != '\0' ? forced : NULL;
    uint32_t n_shown = 0;
    int rc = list_by_kernel(accel, NULL, &n_shown, err);
    bool wsl = exists("/dev/dxg"); /* Windows' own GPU node; its NVML needs no /dev/nvidia0 */
    if (rc < 0 || (n_shown == 0 && forced == NULL && !wsl)) {
        return rc;
    }
    nvml *lib = stk_arena_alloc(accel->arena, sizeof *lib);
    if (lib == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "no memory for the list of devices");
    }
    if (!load(lib, forced != NULL ? forced : "libnvidia-ml.so.1")) {
        if (forced != NULL) {
            return stk_err_set(err, STK_E_ENV, "STOKER_NVML names '%s', which is no NVML library",
                               forced);
        }
        return list_by_kernel(accel,
                              "the NVIDIA driver's libnvidia-ml.so.1 is not here: install the "
                              "driver, or pass it into the container (--gpus all)",
                              &n_shown, err);
    }
    int code = lib->init();
    if (code != NVML_OK) {
        const char *trouble = init_trouble(accel, lib, code);
        (void)dlclose(lib->library);
        accel->remark = n_shown == 0 ? trouble : NULL;
        return list_by_kernel(accel, trouble, &n_shown, err);
    }
    *ret_self = lib;
    char version[96];
    if (lib->driver != NULL && lib->driver(version, sizeof version) == NVML_OK) {
        accel->driver = stk_arena_dup(accel->arena, version);
    }
    unsigned n = 0;
    code = lib->count(&n);
    if (code != NVML_OK) {
        const char *why =
            stk_arena_printf(accel->arena, "NVML can't count its devices: %s", words(lib, code));
        return list_by_kernel(accel, why ? why : "NVML fails", &n_shown, err);
    }
    for (uint32_t i = 0; rc == 0 && i < n && i < STK_LIMIT_DEVICES; i++) {
        rc = add_device(accel, lib, i, err);
    }
    return rc;
}

const stk_provider stk_provider_nvml = {
    .name = "nvml",
    .in_auto = true,
    .open = nvml_open,
    .ops = {.sample = nvml_sample, .close = nvml_close},
};
