/* NVML: loads the library and translates its errors. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "host/accel/accel_nvml.h"

static const struct {
    size_t offset; /* in nvml_api */
    const char *names[3];
} bindings[] = {
#define X(result, member, parameters, ...) {offsetof(nvml_api, member), {__VA_ARGS__}},
#include "tbl/nvml.def"
#undef X
};

bool stk_nvml_load(nvml *lib, const char *path)
{
    lib->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; lib->library != NULL && i < sizeof bindings / sizeof bindings[0]; i++) {
        void *found = NULL;
        for (size_t k = 0; k < 3 && bindings[i].names[k] != NULL && found == NULL; k++) {
            found = dlsym(lib->library, bindings[i].names[k]);
        }
        memcpy((char *)&lib->api + bindings[i].offset, &found, sizeof found);
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
        (void)snprintf(
            buf, size,
            "the NVIDIA driver doesn't answer (%s): see 'dmesg', load it again or reboot",
            stk_nvml_words(lib, code));
        break;
    default:
        (void)snprintf(buf, size, "GPU %d can't be queried: %s", index, stk_nvml_words(lib, code));
    }
    return buf;
}
