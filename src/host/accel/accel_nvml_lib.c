/* NVML: loading it, and its words. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "host/accel/accel_nvml.h"

typedef struct binding {
    size_t offset; /* in nvml_api */
    const char *names[3];
} binding;

#define BIND(field, ...)                                                                           \
    {                                                                                              \
        offsetof(nvml_api, field),                                                                 \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

/* The first of the names that the library has; newest first. */
static const binding bindings[] = {
    BIND(init, "nvmlInit_v2", "nvmlInit"),
    BIND(shutdown, "nvmlShutdown"),
    BIND(error_string, "nvmlErrorString"),
    BIND(driver, "nvmlSystemGetDriverVersion"),
    BIND(cuda, "nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"),
    BIND(count, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"),
    BIND(handle, "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"),
    BIND(uuid, "nvmlDeviceGetUUID"),
    BIND(name, "nvmlDeviceGetName"),
    BIND(pci, "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2"),
    BIND(minor, "nvmlDeviceGetMinorNumber"),
    BIND(cc, "nvmlDeviceGetCudaComputeCapability"),
    BIND(memory, "nvmlDeviceGetMemoryInfo"),
    BIND(memory_v2, "nvmlDeviceGetMemoryInfo_v2"),
    BIND(mig_mode, "nvmlDeviceGetMigMode"),
    BIND(max_slices, "nvmlDeviceGetMaxMigDeviceCount"),
    BIND(slice, "nvmlDeviceGetMigDeviceHandleByIndex"),
    BIND(attributes, "nvmlDeviceGetAttributes_v2"),
    BIND(utilization, "nvmlDeviceGetUtilizationRates"),
    BIND(compute_processes, "nvmlDeviceGetComputeRunningProcesses_v3",
         "nvmlDeviceGetComputeRunningProcesses_v2"),
    BIND(graphics_processes, "nvmlDeviceGetGraphicsRunningProcesses_v3",
         "nvmlDeviceGetGraphicsRunningProcesses_v2"),
    BIND(compute_processes_v1, "nvmlDeviceGetComputeRunningProcesses"),
    BIND(graphics_processes_v1, "nvmlDeviceGetGraphicsRunningProcesses"),
    BIND(power, "nvmlDeviceGetPowerUsage"),
    BIND(power_limit, "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"),
    BIND(fan, "nvmlDeviceGetFanSpeed"),
    BIND(energy, "nvmlDeviceGetTotalEnergyConsumption"),
    BIND(temperature, "nvmlDeviceGetTemperature"),
    BIND(temperature_v, "nvmlDeviceGetTemperatureV"),
    BIND(clock, "nvmlDeviceGetClockInfo"),
    BIND(max_clock, "nvmlDeviceGetMaxClockInfo"),
    BIND(reasons, "nvmlDeviceGetCurrentClocksEventReasons",
         "nvmlDeviceGetCurrentClocksThrottleReasons"),
    BIND(pcie_gen, "nvmlDeviceGetCurrPcieLinkGeneration"),
    BIND(pcie_gen_max, "nvmlDeviceGetMaxPcieLinkGeneration"),
    BIND(pcie_width, "nvmlDeviceGetCurrPcieLinkWidth"),
    BIND(pcie_width_max, "nvmlDeviceGetMaxPcieLinkWidth"),
    BIND(pcie_traffic, "nvmlDeviceGetPcieThroughput"),
    BIND(ecc_mode, "nvmlDeviceGetEccMode"),
    BIND(ecc_errors, "nvmlDeviceGetTotalEccErrors"),
    BIND(remapped, "nvmlDeviceGetRemappedRows"),
    BIND(retired, "nvmlDeviceGetRetiredPages"),
    BIND(retired_pending, "nvmlDeviceGetRetiredPagesPendingStatus"),
    BIND(persistence, "nvmlDeviceGetPersistenceMode"),
    BIND(compute_mode, "nvmlDeviceGetComputeMode"),
    BIND(fields, "nvmlDeviceGetFieldValues"),
    BIND(ancestor, "nvmlDeviceGetTopologyCommonAncestor"),
    BIND(link_state, "nvmlDeviceGetNvLinkState"),
    BIND(link_type, "nvmlDeviceGetNvLinkRemoteDeviceType"),
    BIND(link_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2"),
    BIND(set_create, "nvmlEventSetCreate"),
    BIND(set_wait, "nvmlEventSetWait_v2"), /* the first one's record is shorter */
    BIND(set_free, "nvmlEventSetFree"),
    BIND(register_events, "nvmlDeviceRegisterEvents"),
};

bool stk_nvml_load(nvml *lib, const char *path)
{
    lib->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; lib->library != NULL && i < sizeof bindings / sizeof bindings[0]; i++) {
        const binding *b = &bindings[i];
        void *found = NULL;
        for (size_t k = 0; k < 3 && b->names[k] != NULL && found == NULL; k++) {
            found = dlsym(lib->library, b->names[k]);
        }
        memcpy((char *)&lib->api + b->offset, &found, sizeof found);
    }
    const nvml_api *api = &lib->api;
    if (lib->library != NULL &&
        (api->init == NULL || api->count == NULL || api->handle == NULL || api->uuid == NULL)) {
        (void)dlclose(lib->library);
        lib->library = NULL;
    }
    return lib->library != NULL;
}

const char *stk_nvml_words(const nvml *lib, int code)
{
    const char *text = NULL;
    if (lib->api.error_string != NULL) {
        text = lib->api.error_string(code);
    }
    return stk_text_or(text, "unknown NVML error");
}

bool stk_nvml_gone(int code)
{
    return code == NVML_GPU_IS_LOST || code == NVML_RESET_REQUIRED || code == NVML_UNINITIALIZED ||
           code == NVML_DRIVER_NOT_LOADED;
}

const char *stk_nvml_trouble(const nvml *lib, int32_t index, int code, char *buf, size_t size)
{
    switch (code) {
    case NVML_GPU_IS_LOST:
        (void)snprintf(buf, size, "GPU %d has fallen off the bus: see 'dmesg | grep Xid', reboot",
                       index);
        break;
    case NVML_RESET_REQUIRED:
        (void)snprintf(buf, size,
                       "GPU %d needs a reset: end what uses it and run 'nvidia-smi --gpu-reset -i "
                       "%d' as root, or reboot",
                       index, index);
        break;
    case NVML_UNINITIALIZED:
    case NVML_DRIVER_NOT_LOADED:
        (void)snprintf(buf, size,
                       "the NVIDIA driver is gone (%s): see 'dmesg', load it again or reboot",
                       stk_nvml_words(lib, code));
        break;
    default:
        (void)snprintf(buf, size, "GPU %d can't be asked: %s", index, stk_nvml_words(lib, code));
    }
    return buf;
}
