/* A replacement for libnvidia-ml.so.1 that replays a recording: STOKER_FAKE_NVML=FILE, a text file
 * as tools/record_nvml.py writes it on a real machine. The file is read again whenever it changes:
 *
 *     [system]
 *     nvmlSystemGetDriverVersion = 580.65.06
 *     [device 0]
 *     nvmlDeviceGetUUID = GPU-5a1e
 *     nvmlDeviceGetMemoryInfo = 85520809984 84520809984 400000000 600000000
 *     nvmlDeviceGetClockInfo 1 = 1980
 *     nvmlDeviceGetFieldValues 83 = 3 123456
 *     nvmlDeviceGetComputeRunningProcesses = 100:5242880 101:?
 *     nvmlDeviceGetFanSpeed = !3
 *     event 0 = 8 79
 *     [slice 0.1]
 *
 * Function names have no version and are followed by the arguments. A structure is the list of its
 * numbers (memory: total, free, used, reserved; a field: type, value, time in µs; a process: pid
 * and bytes); "!" marks an error code. `slice 0.1` is the second slice of device 0. An event (type,
 * data) goes to every event set that was listening before its line appeared. If a line is repeated,
 * the last one counts; a function without a line is not supported (3). Built twice: as a new
 * driver, and with -DFAKE_OLD as an old one that lacks some functions, and has other names and
 * shorter records for the rest. Without a file the machine is `otherwise` below. fake_nvml_calls()
 * returns the number of calls since it was last called. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Declares the function first, as -Wmissing-prototypes requires. */
#define FN(name, ...)                                                                              \
    __attribute__((visibility("default"))) int name(__VA_ARGS__);                                  \
    int name(__VA_ARGS__)

enum {
    LINES = 8192,
    SLICES = 16,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT = 7,
    TIMEOUT = 10
};

typedef struct { /* the section: -1 for the system, else a handle */
    int section;
    char key[64];
    char value[256];
} line;

static line lines[LINES];
static int n_lines, n_devices, n_calls;
static struct stat seen;

#define H100(number, pci)                                                                          \
    "[device " number "]\nnvmlDeviceGetUUID = GPU-0000" number "-fake\n"                           \
    "nvmlDeviceGetName = NVIDIA H100 80GB HBM3\nnvmlDeviceGetPciInfo = " pci "\n"                  \
    "nvmlDeviceGetMemoryInfo = 85899345920 84825604096 1073741824 0\n"                             \
    "nvmlDeviceGetCudaComputeCapability = 9 0\n"

static const char otherwise[] =
    "[system]\nnvmlSystemGetDriverVersion = 580.65.06\nnvmlSystemGetCudaDriverVersion = "
    "13000\n" H100("0", "00000000:0F:00.0") H100("1", "00000000:10:00.0");

/* A handle is a number, not a pointer: (device + 1) * 32 + place + 1; place -1 is the whole
 * device. */
static int device_of(const void *handle)
{
    return (int)((size_t)handle / 32) - 1;
}

static void *handle_of(int device, int place)
{
    return (void *)(size_t)((device + 1) * 32 + place + 1);
}

static void add_line(char *text, int *section)
{
    int device = 0, place = -1;
    char *mark = strstr(text, " =");
    if (text[0] == '[') {
        int n = sscanf(text, "[device %d]", &device);
        n = n == 1 ? n : sscanf(text, "[slice %d.%d]", &device, &place);
        *section = n >= 1 ? (int)(size_t)handle_of(device, place) : -1;
        n_devices = n >= 1 && device >= n_devices ? device + 1 : n_devices;
    } else if (mark != NULL && text[0] != '#' && n_lines < LINES) {
        line *l = &lines[n_lines++];
        *mark = '\0';
        l->section = *section;
        (void)snprintf(l->key, sizeof l->key, "%s", text);
        (void)snprintf(l->value, sizeof l->value, "%s", mark + 2 + strspn(mark + 2, " "));
    }
}

static void read_lines(void)
{
    const char *path = getenv("STOKER_FAKE_NVML");
    struct stat now = {0};
    if (path != NULL && stat(path, &now) == 0 && n_lines > 0 && now.st_ino == seen.st_ino &&
        now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec && now.st_mtim.tv_sec == seen.st_mtim.tv_sec &&
        now.st_size == seen.st_size) {
        return;
    }
    seen = now;
    n_lines = n_devices = 0;
    FILE *file = path != NULL ? fopen(path, "re")
                              : fmemopen((void *)(size_t)otherwise, sizeof otherwise - 1, "r");
    char text[400];
    for (int section = -1; file != NULL && fgets(text, sizeof text, file) != NULL;) {
        text[strcspn(text, "\n")] = '\0';
        add_line(text, &section);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

/* A section's value for a key; NULL if there is none, with an NVML error in *ret_code. */
static const char *ask(int section, int *ret_code, const char *fmt, ...)
{
    char key[64];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(key, sizeof key, fmt, args);
    va_end(args);
    n_calls++;
    read_lines();
    for (int i = n_lines; i-- > 0;) {
        if (lines[i].section == section && strcmp(lines[i].key, key) == 0) {
            *ret_code = lines[i].value[0] == '!' ? atoi(lines[i].value + 1) : 0;
            return *ret_code == 0 ? lines[i].value : NULL;
        }
    }
    *ret_code = NOT_SUPPORTED;
    return NULL;
}

#define ASK(handle, ret_code, ...) ask((int)(size_t)(handle), ret_code, __VA_ARGS__)

static int text_of(const char *answer, int code, char *ret, unsigned size)
{
    if (answer != NULL && strlen(answer) >= size) {
        return INSUFFICIENT;
    }
    if (answer != NULL) {
        strcpy(ret, answer);
    }
    return code;
}

static int number_of(const char *answer, int code, unsigned *ret)
{
    if (answer != NULL) {
        *ret = (unsigned)strtoul(answer, NULL, 0);
    }
    return code;
}

static int long_of(const char *answer, int code, unsigned long long *ret)
{
    if (answer != NULL) {
        *ret = strtoull(answer, NULL, 0);
    }
    return code;
}

/* --- the system --- */

FN(fake_nvml_calls, void)
{
    int n = n_calls;
    n_calls = 0;
    return n;
}

FN(nvmlInit_v2, void)
{
    int code;
    return ask(-1, &code, "nvmlInit") == NULL && code == NOT_SUPPORTED ? 0 : code;
}

FN(nvmlShutdown, void)
{
    return 0;
}

__attribute__((visibility("default"))) const char *nvmlErrorString(int code);
const char *nvmlErrorString(int code)
{
    switch (code) {
    case 1:
        return "Uninitialized";
    case NOT_SUPPORTED:
        return "Not Supported";
    case 15:
        return "GPU is lost";
    default:
        return "Unknown Error";
    }
}

FN(nvmlSystemGetDriverVersion, char *text, unsigned size)
{
    int code;
    const char *answer = ask(-1, &code, "nvmlSystemGetDriverVersion");
    return text_of(answer, code, text, size);
}

FN(nvmlSystemGetCudaDriverVersion, int *version)
{
    int code;
    const char *answer = ask(-1, &code, "nvmlSystemGetCudaDriverVersion");
    return number_of(answer, code, (unsigned *)version);
}

FN(nvmlDeviceGetCount_v2, unsigned *count)
{
    int code;
    (void)ask(-1, &code, "nvmlDeviceGetCount");
    *count = (unsigned)n_devices;
    return code == NOT_SUPPORTED ? 0 : code;
}

FN(nvmlDeviceGetHandleByIndex_v2, unsigned i, void **device)
{
    int code;
    *device = handle_of((int)i, -1);
    (void)ASK(*device, &code, "nvmlDeviceGetHandleByIndex");
    return code == NOT_SUPPORTED ? 0 : code;
}

/* --- one number or text each --- */

#define TEXT(name)                                                                                 \
    FN(name, void *device, char *text, unsigned size)                                              \
    {                                                                                              \
        int code;                                                                                  \
        const char *answer = ASK(device, &code, #name);                                            \
        return text_of(answer, code, text, size);                                                  \
    }
#define NUMBER(name)                                                                               \
    FN(name, void *device, unsigned *number)                                                       \
    {                                                                                              \
        int code;                                                                                  \
        const char *answer = ASK(device, &code, #name);                                            \
        return number_of(answer, code, number);                                                    \
    }
#define NUMBER_OF(name)                                                                            \
    FN(name, void *device, unsigned which, unsigned *number)                                       \
    {                                                                                              \
        int code;                                                                                  \
        const char *answer = ASK(device, &code, #name " %u", which);                               \
        return number_of(answer, code, number);                                                    \
    }
#define LONG(symbol, name)                                                                         \
    FN(symbol, void *device, unsigned long long *number)                                           \
    {                                                                                              \
        int code;                                                                                  \
        const char *answer = ASK(device, &code, name);                                             \
        return long_of(answer, code, number);                                                      \
    }

TEXT(nvmlDeviceGetUUID)
TEXT(nvmlDeviceGetName)
NUMBER(nvmlDeviceGetMinorNumber)
NUMBER(nvmlDeviceGetPowerUsage)
NUMBER(nvmlDeviceGetFanSpeed)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth)
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus)
NUMBER(nvmlDeviceGetPersistenceMode)
NUMBER(nvmlDeviceGetComputeMode)
NUMBER_OF(nvmlDeviceGetTemperature)
NUMBER_OF(nvmlDeviceGetClockInfo)
NUMBER_OF(nvmlDeviceGetMaxClockInfo)
NUMBER_OF(nvmlDeviceGetPcieThroughput)
NUMBER_OF(nvmlDeviceGetNvLinkState)
NUMBER_OF(nvmlDeviceGetNvLinkRemoteDeviceType)
LONG(nvmlDeviceGetTotalEnergyConsumption, "nvmlDeviceGetTotalEnergyConsumption")
LONG(nvmlDeviceGetSupportedEventTypes, "nvmlDeviceGetSupportedEventTypes")

/* --- several --- */

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32]; /* since _v3 */
} pci_info;

static int pci_of(const char *answer, int code, pci_info *ret, int version)
{
    unsigned function = 0;
    memset(ret, 0, sizeof *ret);
    if (answer != NULL) {
        (void)sscanf(answer, "%x:%x:%x.%x", &ret->domain, &ret->bus, &ret->device, &function);
        (void)snprintf(ret->bus_id_legacy, sizeof ret->bus_id_legacy, "%04X:%02X:%02X.%X",
                       ret->domain & 0xffff, ret->bus & 0xff, ret->device & 0x1f, function & 7);
        (void)snprintf(ret->bus_id, sizeof ret->bus_id, "%s", version >= 3 ? answer : "");
    }
    return code;
}

FN(nvmlDeviceGetNvLinkRemotePciInfo_v2, void *device, unsigned link, pci_info *info)
{
    int code;
    const char *answer = ASK(device, &code, "nvmlDeviceGetNvLinkRemotePciInfo %u", link);
    return pci_of(answer, code, info, 3);
}

FN(nvmlDeviceGetCudaComputeCapability, void *device, int *major, int *minor)
{
    int code;
    const char *answer = ASK(device, &code, "nvmlDeviceGetCudaComputeCapability");
    if (answer != NULL) {
        (void)sscanf(answer, "%d %d", major, minor);
    }
    return code;
}

static int memory_of(void *device, unsigned long long *ret_four)
{
    int code;
    const char *answer = ASK(device, &code, "nvmlDeviceGetMemoryInfo");
    unsigned long long *n = ret_four;
    if (answer != NULL) {
        n[3] = 0;
        (void)sscanf(answer, "%llu %llu %llu %llu", &n[0], &n[1], &n[2], &n[3]);
    }
    return code;
}

/* The first version counts the driver's reserved memory as used. */
FN(nvmlDeviceGetMemoryInfo, void *device, unsigned long long *info)
{
    unsigned long long n[4] = {0};
    int code = memory_of(device, n);
    info[0] = n[0];
    info[1] = n[1];
    info[2] = n[2] + n[3];
    return code;
}

FN(nvmlDeviceGetUtilizationRates, void *device, unsigned *rates)
{
    int code;
    const char *answer = ASK(device, &code, "nvmlDeviceGetUtilizationRates");
    if (answer != NULL) {
        (void)sscanf(answer, "%u %u", &rates[0], &rates[1]);
    }
    return code;
}

FN(nvmlDeviceGetEccMode, void *device, unsigned *current, unsigned *pending)
{
    int code;
    const char *answer = ASK(device, &code, "nvmlDeviceGetEccMode");
    if (answer != NULL) {
        (void)sscanf(answer, "%u %u", current, pending);
    }
    return code;
}

FN(nvmlDeviceGetTotalEccErrors, void *device, unsigned type, unsigned counter,
   unsigned long long *count)
{
    int code;
    const char *answer = ASK(device, &code, "nvmlDeviceGetTotalEccErrors %u %u", type, counter);
    return long_of(answer, code, count);
}

/* Returns the count; if the buffer is too small, also an error. */
FN(nvmlDeviceGetRetiredPages, void *device, unsigned cause, unsigned *count,
   unsigned long long *addresses)
{
    int code;
    const char *answer = ASK(device, &code, "nvmlDeviceGetRetiredPages %u", cause);
    unsigned room = *count, n = 0;
    code = number_of(answer, code, &n);
    *count = n;
    if (code != 0 || n == 0) {
        return code;
    }
    if (addresses == NULL || room < n) {
        return INSUFFICIENT;
    }
    memset(addresses, 0, n * sizeof *addresses);
    return 0;
}

FN(nvmlDeviceGetTopologyCommonAncestor, void *device, void *other, unsigned *level)
{
    int code;
    const char *answer =
        ASK(device, &code, "nvmlDeviceGetTopologyCommonAncestor %d", device_of(other));
    return number_of(answer, code, level);
}

/* --- processes --- */

typedef struct {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
} process_info;

static int processes_of(const char *answer, int code, unsigned *count, process_info *ret)
{
    unsigned n = 0, room = *count;
    for (const char *p = answer; p != NULL && *p != '\0';) {
        char *end;
        process_info one = {(unsigned)strtoul(p, &end, 10), ~0ull, ~0u, ~0u};
        if (end == p) {
            break;
        }
        if (*end == ':' && end[1] == '?') {
            end += 2;
        } else if (*end == ':') {
            one.memory = strtoull(end + 1, &end, 10);
        }
        if (n < room) {
            ret[n] = one;
        }
        n++;
        p = end + strspn(end, " ");
    }
    *count = n;
    return code != 0 ? code : n > room ? INSUFFICIENT : 0;
}

#define PROCESSES(symbol, name)                                                                    \
    FN(symbol, void *device, unsigned *count, process_info *list)                                  \
    {                                                                                              \
        int code;                                                                                  \
        const char *answer = ASK(device, &code, name);                                             \
        return processes_of(answer, code, count, list);                                            \
    }
#define PROCESSES_V1(name)                                                                         \
    FN(name, void *device, unsigned *count, unsigned long long(*list)[2])                          \
    {                                                                                              \
        int code;                                                                                  \
        const char *answer = ASK(device, &code, #name);                                            \
        static process_info all[256];                                                              \
        unsigned n = *count < 256 ? *count : 256;                                                  \
        code = processes_of(answer, code, &n, all);                                                \
        for (unsigned i = 0; code == 0 && i < n; i++) {                                            \
            list[i][0] = all[i].pid; /* only the pid half: little-endian */                        \
            list[i][1] = all[i].memory;                                                            \
        }                                                                                          \
        *count = n;                                                                                \
        return code;                                                                               \
    }

/* --- events --- */

static int listening[64]; /* per device: 1 + events reported */

FN(nvmlEventSetCreate, void **set)
{
    int code;
    (void)ask(-1, &code, "nvmlEventSetCreate");
    memset(listening, 0, sizeof listening);
    *set = listening;
    return code == NOT_SUPPORTED ? 0 : code;
}

FN(nvmlEventSetFree, void *set)
{
    return set == listening ? 0 : 2;
}

FN(nvmlDeviceRegisterEvents, void *device, unsigned long long types, void *set)
{
    int code;
    const char *answer = ASK(device, &code, "nvmlDeviceGetSupportedEventTypes");
    unsigned long long supported = answer != NULL ? strtoull(answer, NULL, 0) : 0xa;
    int i = device_of(device);
    if ((types & ~supported) != 0 || set != listening || i < 0 || i >= 64) {
        return NOT_SUPPORTED;
    }
    for (listening[i] = 1; ASK(device, &code, "event %d", listening[i] - 1) != NULL;) {
        listening[i]++; /* skip earlier events */
    }
    return 0;
}

typedef struct {
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
} event_data;

FN(nvmlEventSetWait_v2, void *set, event_data *event, unsigned timeout_ms)
{
    (void)timeout_ms;
    for (int i = 0; set == listening && i < 64; i++) {
        int code;
        const char *answer =
            listening[i] > 0 ? ASK(handle_of(i, -1), &code, "event %d", listening[i] - 1) : NULL;
        if (answer != NULL) {
            listening[i]++;
            *event = (event_data){.device = handle_of(i, -1)};
            (void)sscanf(answer, "%llu %llu", &event->type, &event->data);
            return 0;
        }
    }
    return TIMEOUT;
}

/* --- functions that an old driver names differently or lacks --- */

#ifdef FAKE_OLD
FN(nvmlDeviceGetPciInfo_v2, void *device, pci_info *info)
{
    int code;
    const char *answer = ASK(device, &code, "nvmlDeviceGetPciInfo");
    return pci_of(answer, code, info, 2);
}
PROCESSES_V1(nvmlDeviceGetComputeRunningProcesses)
PROCESSES_V1(nvmlDeviceGetGraphicsRunningProcesses)
LONG(nvmlDeviceGetCurrentClocksThrottleReasons, "nvmlDeviceGetCurrentClocksEventReasons")
NUMBER(nvmlDeviceGetPowerManagementLimit)
#else
FN(nvmlDeviceGetPciInfo_v3, void *device, pci_info *info)
{
    int code;
    const char *answer = ASK(device, &code, "nvmlDeviceGetPciInfo");
    return pci_of(answer, code, info, 3);
}
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, "nvmlDeviceGetComputeRunningProcesses")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, "nvmlDeviceGetGraphicsRunningProcesses")
LONG(nvmlDeviceGetCurrentClocksEventReasons, "nvmlDeviceGetCurrentClocksEventReasons")
NUMBER(nvmlDeviceGetEnforcedPowerLimit)

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} memory_v2;

FN(nvmlDeviceGetMemoryInfo_v2, void *device, memory_v2 *info)
{
    unsigned long long n[4] = {0};
    int code = info->version == 0x02000028 ? memory_of(device, n) : 25;
    *info = (memory_v2){info->version, n[0], n[3], n[1], n[2]};
    return code;
}

typedef struct {
    unsigned version, sensor;
    int celsius;
} temperature;

FN(nvmlDeviceGetTemperatureV, void *device, temperature *t)
{
    int code;
    const char *answer = ASK(device, &code, "nvmlDeviceGetTemperature %u", t->sensor);
    return t->version != 0x100000c ? 25 : number_of(answer, code, (unsigned *)&t->celsius);
}

FN(nvmlDeviceGetMigMode, void *device, unsigned *current, unsigned *pending)
{
    int code;
    const char *answer = ASK(device, &code, "nvmlDeviceGetMigMode");
    if (answer != NULL) {
        (void)sscanf(answer, "%u %u", current, pending);
    }
    return code;
}

NUMBER(nvmlDeviceGetMaxMigDeviceCount)

FN(nvmlDeviceGetMigDeviceHandleByIndex, void *device, unsigned i, void **slice)
{
    int code;
    *slice = handle_of(device_of(device), (int)i);
    return i < SLICES && ASK(*slice, &code, "nvmlDeviceGetUUID") != NULL ? 0 : NOT_FOUND;
}

FN(nvmlDeviceGetAttributes_v2, void *device, unsigned *ret)
{
    int code;
    const char *answer = ASK(device, &code, "nvmlDeviceGetAttributes");
    unsigned long long mb = 0;
    if (answer != NULL) { /* gpu slices, compute slices, MB */
        memset(ret, 0, 8 * sizeof *ret);
        (void)sscanf(answer, "%u %u %llu", &ret[6], &ret[7], &mb);
        memcpy(&ret[8], &mb, sizeof mb);
    }
    return code;
}

FN(nvmlDeviceGetRemappedRows, void *device, unsigned *corrected, unsigned *uncorrected,
   unsigned *pending, unsigned *failed)
{
    int code;
    const char *answer = ASK(device, &code, "nvmlDeviceGetRemappedRows");
    if (answer != NULL) {
        (void)sscanf(answer, "%u %u %u %u", corrected, uncorrected, pending, failed);
    }
    return code;
}

typedef struct {
    unsigned field, scope;
    long long time_us, latency_us;
    unsigned type;
    int code;
    unsigned long long value;
} field_value;

FN(nvmlDeviceGetFieldValues, void *device, int n, field_value *values)
{
    for (int i = 0; i < n; i++) {
        field_value *v = &values[i];
        const char *answer = ASK(device, &v->code, "nvmlDeviceGetFieldValues %u", v->field);
        n_calls -= i > 0; /* all fields together are one call */
        if (answer != NULL) {
            (void)sscanf(answer, "%u %llu %lld", &v->type, &v->value, &v->time_us);
        }
    }
    return 0;
}
#endif
