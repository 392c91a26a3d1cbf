/* Devices that a JSON file describes, for tests and for trying things out: "fake:FILE". The file is
 * a list of devices, or {"driver": "580.65.06", "cuda_version": 13000, "devices": [...]}. Every key
 * of a device may be missing:
 *
 *     uuid model vendor noun pci node cpus profile trouble    texts
 *     index parent n_cores numa memory_bytes    numbers; parent is a place in the list
 *     cc: "9.0"   usable: false
 *     links: ["same", "fabric:18", "switch"]    to each device of the list
 *     processes: {"PID": bytes}, or {"PID": {"memory_bytes": 1, "graphics": true}}
 *     events: [{"xid": 79, "pid": 5, "time_ms": 0, "text": "…"}]
 *     lost: "sentence"                                        it doesn't answer any more
 *
 * and each field of stk_device_state. What can change (state, processes, links, events, lost) is
 * read again at each question, so a test can change it; events count from opening on. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "host/accel/accel_priv.h"
#include "sys/clock.h"

typedef struct fake {
    const char *path;
    uint32_t n_events[STK_LIMIT_DEVICES]; /* told already */
} fake;

/* The list of devices; *ret_root is what to let go of. */
static const json_t *load(const char *path, json_t **ret_root, stk_err *err)
{
    json_error_t why;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    *ret_root = root;
    if (root == NULL) {
        stk_err_set(err, STK_E_ENV, "fake devices can't be read: %s", why.text);
        stk_err_at(err, path, MAX(why.line, 0));
        return NULL;
    }
    const json_t *list = json_is_object(root) ? json_object_get(root, "devices") : root;
    size_t i = 0;
    const json_t *one = NULL;
    bool is = json_is_array(list);
    json_array_foreach((json_t *)(uintptr_t)list, i, one)
    {
        is = is && json_is_object(one);
    }
    if (!is) {
        stk_err_set(err, STK_E_ENV,
                    "fake devices: '%s' must hold a list of devices, each a mapping: "
                    "[{\"uuid\": \"GPU-a\"}]",
                    path);
        return NULL;
    }
    return list;
}

static int64_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

static const char *text(const json_t *object, const char *key, const char *otherwise)
{
    const char *value = json_string_value(json_object_get(object, key));
    return stk_text_or(value, otherwise);
}

/* Device `slot` as the file has it now, or NULL and why. */
static const json_t *ask(const fake *self, uint32_t slot, json_t **ret_root, stk_err *err)
{
    const json_t *list = load(self->path, ret_root, err);
    const json_t *device = json_array_get(list, slot);
    const char *lost = text(device, "lost", NULL);
    if (list != NULL && (device == NULL || lost != NULL)) {
        stk_err_set(err, STK_E_ENV, "%s", stk_text_or(lost, "the device is gone"));
        return NULL;
    }
    return device;
}

static int fake_state(void *self, uint32_t slot, stk_device_state *ret, stk_err *err)
{
    json_t *root = NULL;
    const json_t *device = ask(self, slot, &root, err);
#define X(name, type) ret->name = (type)number(device, #name);
#include "tbl/device_state.def"
#undef X
    json_decref(root);
    return device != NULL ? 0 : STK_E_ENV;
}

/* Returns how many there are, or -1: the file doesn't say. */
static int read_processes(const json_t *device, stk_device_process *ret, uint32_t n_max)
{
    json_t *processes = json_object_get(device, "processes");
    if (!json_is_object(processes)) {
        return -1;
    }
    uint32_t n = 0;
    const char *pid;
    json_t *one;
    json_object_foreach(processes, pid, one)
    {
        if (n < n_max) {
            ret[n++] = (stk_device_process){
                .pid = (pid_t)strtol(pid, NULL, 10),
                .memory_bytes =
                    json_is_integer(one) ? json_integer_value(one) : number(one, "memory_bytes"),
                .graphics = json_is_true(json_object_get(one, "graphics")),
            };
        }
    }
    return (int)n;
}

static int fake_processes(void *self, uint32_t slot, stk_device_process *ret, uint32_t n_max)
{
    json_t *root = NULL;
    int n = read_processes(ask(self, slot, &root, NULL), ret, n_max);
    json_decref(root);
    return n;
}

static int fake_sample(void *self, uint32_t slot, const pid_t *pids, uint32_t n_pids,
                       stk_device_sample *ret)
{
    enum { N = 256 };
    stk_device_process processes[N];
    json_t *root = NULL;
    const json_t *device = ask(self, slot, &root, NULL);
#define TAKE(type, name) ret->name = (type)number(device, #name)
    TAKE(int32_t, busy_percent);
    TAKE(int64_t, memory_used);
    TAKE(int32_t, power_mw);
    TAKE(int64_t, energy_mj);
    TAKE(int32_t, temperature_c);
    TAKE(int32_t, sm_mhz);
    TAKE(int32_t, memory_mhz);
    TAKE(int64_t, throttle);
    TAKE(int64_t, pcie_tx_bytes_s);
    TAKE(int64_t, pcie_rx_bytes_s);
    TAKE(int64_t, nvlink_tx_bytes);
    TAKE(int64_t, nvlink_rx_bytes);
#undef TAKE
    stk_accel_sum_processes(processes, read_processes(device, processes, N), pids, n_pids, ret);
    json_decref(root);
    return device != NULL ? 0 : STK_E_ENV;
}

static stk_link fake_link(void *self, uint32_t slot, uint32_t other, int32_t *ret_n)
{
    static const char *const words[] = {
        [STK_LINK_SYSTEM] = "system", [STK_LINK_NODE] = "node",     [STK_LINK_HOST] = "host",
        [STK_LINK_SWITCH] = "switch", [STK_LINK_FABRIC] = "fabric", [STK_LINK_SAME] = "same"};
    json_t *root = NULL;
    const json_t *links = json_object_get(ask(self, slot, &root, NULL), "links");
    const char *word = json_string_value(json_array_get(links, other));
    stk_link link = STK_LINK_UNKNOWN;
    for (size_t i = 1; i < sizeof words / sizeof words[0] && word != NULL; i++) {
        size_t len = strlen(words[i]);
        if (strncmp(word, words[i], len) == 0 && (word[len] == '\0' || word[len] == ':')) {
            link = (stk_link)i;
            *ret_n = word[len] == ':' ? (int32_t)strtol(word + len + 1, NULL, 10) : -1;
        }
    }
    json_decref(root);
    return link;
}

static bool fake_next_event(void *state, stk_device_event *ret)
{
    fake *self = state;
    json_t *root = NULL;
    const json_t *list = load(self->path, &root, NULL);
    bool found = false;
    for (uint32_t i = 0; i < json_array_size(list) && i < STK_LIMIT_DEVICES && !found; i++) {
        const json_t *events = json_object_get(json_array_get(list, i), "events");
        const json_t *one = json_array_get(events, self->n_events[i]);
        if (one != NULL) {
            found = true;
            self->n_events[i]++;
            int64_t time_ms = number(one, "time_ms");
            *ret = (stk_device_event){
                .i_device = i,
                .mono_ms = time_ms >= 0 ? time_ms : stk_clock_mono_ms(&stk_clock_real),
                .xid = number(one, "xid") > 0 ? (int32_t)number(one, "xid") : 0,
                .pid = number(one, "pid") > 0 ? (pid_t)number(one, "pid") : 0,
            };
            (void)snprintf(ret->text, sizeof ret->text, "%s", text(one, "text", ""));
        }
    }
    json_decref(root);
    return found;
}

static int add(stk_accel *accel, const json_t *one, uint32_t base, uint32_t i, stk_err *err)
{
    stk_arena *arena = accel->arena;
    const char *uuid = text(one, "uuid", NULL);
    int64_t parent = number(one, "parent"), index = number(one, "index");
    const char *cc = text(one, "cc", NULL);
    stk_device device = {
        STK_DEVICE_UNKNOWN,
        .vendor = stk_arena_dup(arena, text(one, "vendor", "nvidia")),
        .noun = stk_arena_dup(arena, text(one, "noun", parent >= 0 ? "MIG slice" : "GPU")),
        .uuid = uuid ? stk_arena_dup(arena, uuid) : stk_arena_printf(arena, "GPU-fake-%u", i),
        .model = stk_arena_dup(arena, text(one, "model", "Fake GPU")),
        .pci = stk_arena_dup(arena, text(one, "pci", NULL)),
        .node = stk_arena_dup(arena, text(one, "node", NULL)),
        .driver = accel->driver,
        .cpus = stk_arena_dup(arena, text(one, "cpus", NULL)),
        .profile = stk_arena_dup(arena, text(one, "profile", NULL)),
        .usable = !json_is_false(json_object_get(one, "usable")),
        .trouble = stk_arena_dup(arena, text(one, "trouble", NULL)),
    };
    device.index = index >= 0 ? (int32_t)index : (int32_t)i;
    device.n_cores = (int32_t)number(one, "n_cores");
    device.numa = (int32_t)number(one, "numa");
    device.memory_bytes = number(one, "memory_bytes");
    if (cc != NULL && sscanf(cc, "%" SCNd32 ".%" SCNd32, &device.cc_major, &device.cc_minor) != 2) {
        device.cc_major = device.cc_minor = -1;
    }
    if (parent >= 0) {
        if (parent >= i) {
            return stk_err_set(err, STK_E_ENV,
                               "fake devices: device %u is cut from device %" PRId64
                               ", which must stand before it",
                               i, parent);
        }
        device.parent = (int32_t)(base + parent);
        accel->devices[device.parent].n_slices++;
        accel->devices[device.parent].usable = false;
    }
    return stk_accel_add(accel, &device, i, err);
}

static int fake_open(stk_accel *accel, const char *path, void **ret_self, stk_err *err)
{
    json_t *root = NULL;
    const json_t *list = load(path, &root, err);
    fake *self = stk_arena_alloc(accel->arena, sizeof *self);
    int rc = list == NULL ? STK_E_ENV : 0;
    if (rc == 0 && (self == NULL || (self->path = stk_arena_dup(accel->arena, path)) == NULL)) {
        rc = stk_err_set(err, STK_E_NOMEM, "no memory for the list of devices");
    }
    if (rc == 0 && json_is_object(root)) {
        accel->driver = stk_arena_dup(accel->arena, text(root, "driver", NULL));
        accel->cuda_version = (int32_t)number(root, "cuda_version");
    }
    uint32_t base = accel->n;
    for (uint32_t i = 0; rc == 0 && i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        rc = add(accel, one, base, i, err);
        if (rc == 0) {
            self->n_events[i] = (uint32_t)json_array_size(json_object_get(one, "events"));
        }
    }
    json_decref(root);
    *ret_self = rc == 0 ? self : NULL;
    return rc;
}

const stk_provider stk_provider_fake = {
    .name = "fake",
    .adjective = "fake",
    .takes_spec = true,
    .open = fake_open,
    .ops = {.state = fake_state,
            .processes = fake_processes,
            .sample = fake_sample,
            .link = fake_link,
            .next_event = fake_next_event},
};
