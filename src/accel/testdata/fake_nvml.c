/* A stand-in for libnvidia-ml.so.1 with the entry points that accel_nvml.c asks for. Built twice:
 * as a new driver has them, and with -DFAKE_OLD as an old one (no _v3, no MIG, no versioned
 * process list). FAKE_NVML_DEVICES=N (2), FAKE_NVML_INIT=code, FAKE_NVML_LOST=index,
 * FAKE_NVML_MIG=index. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default"))) int

typedef struct {
    unsigned long long total, free, used;
} memory_info;

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} pci_info;

typedef struct {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
} process_info;

static int setting(const char *name, int fallback)
{
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : fallback;
}

static int index_of(void *device)
{
    return (int)(size_t)device - 1;
}

EXPORT nvmlInit_v2(void);
EXPORT nvmlInit_v2(void)
{
    return setting("FAKE_NVML_INIT", 0);
}

EXPORT nvmlShutdown(void);
EXPORT nvmlShutdown(void)
{
    return 0;
}

__attribute__((visibility("default"))) const char *nvmlErrorString(int code);
const char *nvmlErrorString(int code)
{
    return code == 999 ? "Unknown Error" : "GPU is lost";
}

EXPORT nvmlSystemGetDriverVersion(char *text, unsigned size);
EXPORT nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    (void)snprintf(text, size, "580.65.06");
    return 0;
}

EXPORT nvmlDeviceGetCount_v2(unsigned *count);
EXPORT nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = (unsigned)setting("FAKE_NVML_DEVICES", 2);
    return 0;
}

EXPORT nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device);
EXPORT nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device)
{
    *device = (void *)(size_t)(i + 1);
    return (int)i == setting("FAKE_NVML_LOST", -1) ? 15 : 0;
}

EXPORT nvmlDeviceGetUUID(void *device, char *text, unsigned size);
EXPORT nvmlDeviceGetUUID(void *device, char *text, unsigned size)
{
    (void)snprintf(text, size, "GPU-0000%d-fake", index_of(device));
    return 0;
}

EXPORT nvmlDeviceGetName(void *device, char *text, unsigned size);
EXPORT nvmlDeviceGetName(void *device, char *text, unsigned size)
{
    (void)device;
    (void)snprintf(text, size, "NVIDIA H100 80GB HBM3");
    return 0;
}

EXPORT nvmlDeviceGetMemoryInfo(void *device, memory_info *info);
EXPORT nvmlDeviceGetMemoryInfo(void *device, memory_info *info)
{
    info->total = 80ull << 30;
    info->used = (unsigned long long)(index_of(device) + 1) << 30;
    info->free = info->total - info->used;
    return 0;
}

#ifdef FAKE_OLD
EXPORT nvmlDeviceGetPciInfo_v2(void *device, pci_info *info);
EXPORT nvmlDeviceGetPciInfo_v2(void *device, pci_info *info)
{
    memset(info, 0, sizeof *info);
    (void)snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "0000:%02X:00.0",
                   0xf + index_of(device));
    return 0;
}
#else
EXPORT nvmlDeviceGetPciInfo_v3(void *device, pci_info *info);
EXPORT nvmlDeviceGetPciInfo_v3(void *device, pci_info *info)
{
    memset(info, 0, sizeof *info);
    (void)snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "0000:%02X:00.0",
                   0xf + index_of(device));
    (void)snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", 0xf + index_of(device));
    return 0;
}

EXPORT nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending);
EXPORT nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending)
{
    *current = *pending = index_of(device) == setting("FAKE_NVML_MIG", -1);
    return 0;
}

EXPORT nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process_info *list);
EXPORT nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process_info *list)
{
    if (*count < 3) {
        *count = 3;
        return 7;
    }
    *count = 3;
    list[0] = (process_info){100, 5u << 20, 0, 0};
    list[1] = (process_info){101, 7u << 20, 0, 0};
    list[2] = (process_info){102, ~0ull, 0, 0}; /* the driver doesn't know */
    (void)device;
    return 0;
}
#endif

EXPORT nvmlDeviceGetUtilizationRates(void *device, unsigned *rates);
EXPORT nvmlDeviceGetUtilizationRates(void *device, unsigned *rates)
{
    rates[0] = 37 + (unsigned)index_of(device);
    rates[1] = 5;
    return 0;
}

EXPORT nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);
EXPORT nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    (void)device;
    *milliwatts = 123456;
    return 0;
}
