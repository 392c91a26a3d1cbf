/* NVML, the library of NVIDIA's driver, by our own prototypes (ABI: NVIDIA's NVML API reference);
 * shared by accel_nvml*.c. Every function pointer may be NULL: an old driver lacks some functions,
 * and we bind their predecessors instead. */
#ifndef STK_ACCEL_NVML_H
#define STK_ACCEL_NVML_H

#include "host/accel/accel_priv.h"

enum { /* nvmlReturn_t */
       NVML_OK = 0,
       NVML_UNINITIALIZED = 1,
       NVML_NOT_SUPPORTED = 3,
       NVML_INSUFFICIENT_SIZE = 7,
       NVML_DRIVER_NOT_LOADED = 9,
       NVML_TIMEOUT = 10,
       NVML_GPU_IS_LOST = 15,
       NVML_RESET_REQUIRED = 16,
       NVML_VERSION_MISMATCH = 18,
       NVML_MISSING = -1, /* ours: the driver has no such function */
};

enum {
    NVML_CLOCK_SM = 1,
    NVML_CLOCK_MEMORY = 2,
    NVML_LINKS = 36,
    NVML_EVENT_DOUBLE_BIT = 0x2,
    NVML_EVENT_XID = 0x8,
};

typedef struct nvml_device *nvml_device;
typedef struct nvml_event_set *nvml_event_set;

typedef struct {
    unsigned long long total, free, used;
} nvml_memory;

typedef struct { /* unlike the first version, `used` excludes the driver's reserved memory */
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvml_memory_v2;

typedef struct {
    unsigned version, sensor;
    int celsius;
} nvml_temperature;

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

typedef struct { /* of the first version */
    unsigned pid;
    unsigned long long memory;
} nvml_process_v1;

typedef struct { /* of nvmlDeviceGetAttributes_v2 */
    unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
    unsigned gpu_slices, compute_slices;
    unsigned long long memory_mb;
} nvml_attributes;

typedef struct {
    unsigned field, scope;
    long long time_us, latency_us;
    unsigned type; /* 0 double, 1 unsigned, 2 unsigned long, 3 unsigned long long, 4 long long */
    int code;
    union {
        double real;
        unsigned small;
        unsigned long long number;
    };
} nvml_field;

typedef struct {
    nvml_device device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
} nvml_event;

typedef struct nvml_api {
#define X(result, member, parameters, ...) result(*member) parameters;
#include "tbl/nvml.def"
#undef X
} nvml_api;

/* Slowly changing values are read at most every NVML_SLOW_MS, however often a task is sampled. */
enum { NVML_SLOW_MS = 200, NVML_PROCESSES = 1024 };

typedef struct nvml_unit { /* a device or slice; its index in `units` is its slot */
    nvml_device handle;
    int32_t index;   /* NVML's; a slice has its device's index */
    int32_t parent;  /* of a slice: the slot of its device; else -1 */
    int64_t slow_ms; /* when the slow part of `last` was read, 0: never */
    stk_device_sample last;
    unsigned long long pcie[2]; /* bytes sent and received at pcie_us, 0: never */
    long long pcie_us;
} nvml_unit;

typedef struct nvml {
    void *library;
    nvml_api api;
    nvml_unit units[STK_LIMIT_DEVICES];
    uint32_t n;
    bool memory_v2;     /* this driver knows nvml_memory_v2 */
    bool pids_are_ours; /* NVML's pids are valid for us: we share its PID namespace, or saw our own
                         */
    /* Counts of NVLinks between devices, by slot: read on first use, capped at 255. */
    bool links_known;
    uint8_t (*direct)[STK_LIMIT_DEVICES];
    uint8_t *to_switch;
    nvml_event_set events;
    bool events_tried;
    union { /* buffer for a process list */
        nvml_process new_ones[NVML_PROCESSES];
        nvml_process_v1 old_ones[NVML_PROCESSES];
    } list;
    stk_device_process processes[NVML_PROCESSES];
} nvml;

/* Calls a function that the driver may lack. */
#define NVML_CALL(lib, function, ...)                                                              \
    ((lib)->api.function != NULL ? (lib)->api.function(__VA_ARGS__) : NVML_MISSING)

/* accel_nvml_lib.c */
bool stk_nvml_load(nvml *lib, const char *path);
const char *stk_nvml_words(const nvml *lib, int code);
/* Whether the code means that the device or the whole driver is lost, not just that it can't answer
 * one query. */
bool stk_nvml_gone(int code);
/* "GPU 3 has fallen off the bus: …": writes a sentence on what such a code means into buf and
 * returns it. */
const char *stk_nvml_trouble(const nvml *lib, int32_t index, int code, char *buf, size_t size);

/* accel_nvml_ask.c, accel_nvml_link.c: stk_accel_ops of NVML */
int stk_nvml_memory(nvml *lib, nvml_device handle, int64_t *ret_total, int64_t *ret_used);
int stk_nvml_state(void *self, uint32_t slot, stk_device_state *ret, stk_err *err);
int stk_nvml_processes(void *self, uint32_t slot, stk_device_process *ret, uint32_t n_max);
int stk_nvml_sample(void *self, uint32_t slot, const pid_t *pids, uint32_t n_pids,
                    stk_device_sample *ret);
stk_closeness stk_nvml_link(void *self, uint32_t slot, uint32_t other, int32_t *ret_n);
bool stk_nvml_next_event(void *self, stk_device_event *ret);

#endif
