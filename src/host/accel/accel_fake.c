/* Devices that a JSON file describes, for tests and experiments: "fake:FILE". The file is a list of
 * devices, or {"driver": "580.65.06", "cuda_version": 13000, "devices": [...]}. Every key of a
 * device may be missing:
 *
 *     uuid model vendor noun pci node cpus profile trouble    texts
 *     index parent n_cores numa memory_bytes    numbers; parent is an index in the list
 *     cc: "9.0"   usable: false
 *     links: ["same", "fabric:18", "switch"]    to each device of the list
 *     processes: {"PID": bytes}, or {"PID": {"memory_bytes": 1, "graphics": true}}
 *     events: [{"xid": 79, "pid": 5, "time_ms": 0, "text": "…"}]
 *     lost: "sentence"                                        the device stops answering
 *
 * and each field of stk_device_state. Every query reads the changeable parts (state, processes,
 * links, events, lost) again, so a test can change them; only events after opening count. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/text.h"
#include "host/accel/accel_priv.h"
#include "sys/clock.h"
#include "sys/file.h"

typedef struct fake {
    const char *path;
    uint32_t n_events[STK_LIMIT_DEVICES]; /* reported already */
} fake;

/* Loads the list of devices; *ret_root (may be NULL) gets the whole document. */
static const stk_json *load_fakes(const char *path, stk_arena *arena, const stk_json **ret_root,
                                  stk_err *err)
{
    static const stk_json_limits limits = {16 << 20, 1 << 20, STK_LIMIT_DEPTH, false};
    STK_TEXT_AUTO bytes = NULL;
    size_t n;
    stk_err why = {0};
    stk_json *root = stk_arena_alloc(arena, sizeof *root);
    if (root == NULL || stk_file_read(path, limits.bytes, &bytes, &n, &why) < 0 ||
        stk_json_parse(bytes, n, path, &limits, arena, root, &why) < 0) {
        stk_err_set(err, STK_E_ENV, "fake devices can't be read: %s", why.text);
        stk_err_at(err, path, why.line);
        return NULL;
    }
    if (ret_root != NULL) {
        *ret_root = root;
    }
    const stk_json *list = root;
    if (stk_json_is_map(root)) {
        list = stk_json_get(root, "devices");
    }
    bool is = stk_json_is_list(list);
    for (uint32_t i = 0; i < stk_json_n_items(list); i++) {
        is = is && stk_json_is_map(stk_json_item(list, i));
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

static const char *text(const stk_json *object, const char *key, const char *otherwise)
{
    return stk_text_or(stk_json_get_text(object, key), otherwise);
}

/* Device `slot` as the file has it now; NULL: see err. */
static const stk_json *ask_fake(const fake *self, uint32_t slot, stk_arena *arena, stk_err *err)
{
    const stk_json *list = load_fakes(self->path, arena, NULL, err);
    const stk_json *device = stk_json_item(list, slot);
    const char *lost = text(device, "lost", NULL);
    if (list != NULL && (device == NULL || lost != NULL)) {
        stk_err_set(err, STK_E_ENV, "%s", stk_text_or(lost, "the device is gone"));
        return NULL;
    }
    return device;
}

static int fake_state(void *self, uint32_t slot, stk_device_state *ret, stk_err *err)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *device = ask_fake(self, slot, scratch, err);
#define X(name, type) ret->name = (type)stk_json_get_whole(device, #name, -1);
#include "tbl/device_state.def"
#undef X
    return device != NULL ? 0 : STK_E_ENV;
}

/* Returns how many there are; -1: the file doesn't list them. */
static int read_processes(const stk_json *device, stk_device_process *ret, uint32_t n_max)
{
    const stk_json *processes = stk_json_get(device, "processes");
    if (!stk_json_is_map(processes)) {
        return -1;
    }
    uint32_t n = 0;
    for (uint32_t k = 0; k < stk_json_n_members(processes); k++) {
        const char *pid = stk_json_key(processes, k)->text;
        const stk_json *one = stk_json_value(processes, k);
        if (n < n_max) {
            ret[n] = (stk_device_process){
                .pid = (pid_t)strtol(pid, NULL, 10),
                .graphics = stk_json_is_true(stk_json_get(one, "graphics")),
            };
            if (!stk_json_int(one, &ret[n].memory_bytes)) {
                ret[n].memory_bytes = stk_json_get_whole(one, "memory_bytes", -1);
            }
            n++;
        }
    }
    return (int)n;
}

static int fake_processes(void *self, uint32_t slot, stk_device_process *ret, uint32_t n_max)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    int n = read_processes(ask_fake(self, slot, scratch, NULL), ret, n_max);
    return n;
}

static int fake_sample(void *self, uint32_t slot, const pid_t *pids, uint32_t n_pids,
                       stk_device_sample *ret)
{
    enum { N = 256 };
    stk_device_process processes[N];
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *device = ask_fake(self, slot, scratch, NULL);
#define TAKE(type, name) ret->name = (type)stk_json_get_whole(device, #name, -1)
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
    return device != NULL ? 0 : STK_E_ENV;
}

static stk_closeness fake_link(void *self, uint32_t slot, uint32_t other, int32_t *ret_n)
{
    static const char *const words[] = {
        [STK_LINK_SYSTEM] = "system", [STK_LINK_NODE] = "node",     [STK_LINK_HOST] = "host",
        [STK_LINK_SWITCH] = "switch", [STK_LINK_FABRIC] = "fabric", [STK_LINK_SAME] = "same"};
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *links = stk_json_get(ask_fake(self, slot, scratch, NULL), "links");
    const char *word = stk_json_text(stk_json_item(links, other));
    stk_closeness link = STK_LINK_UNKNOWN;
    for (size_t i = 1; i < sizeof words / sizeof words[0] && word != NULL; i++) {
        size_t len = strlen(words[i]);
        if (strncmp(word, words[i], len) == 0 && (word[len] == '\0' || word[len] == ':')) {
            link = (stk_closeness)i;
            *ret_n = -1;
            if (word[len] == ':') {
                *ret_n = (int32_t)strtol(word + len + 1, NULL, 10);
            }
        }
    }
    return link;
}

static bool fake_next_event(void *state, stk_device_event *ret)
{
    fake *self = state;
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *list = load_fakes(self->path, scratch, NULL, NULL);
    bool found = false;
    for (uint32_t i = 0; i < stk_json_n_items(list) && i < STK_LIMIT_DEVICES && !found; i++) {
        const stk_json *events = stk_json_get(stk_json_item(list, i), "events");
        const stk_json *one = stk_json_item(events, self->n_events[i]);
        if (one != NULL) {
            found = true;
            self->n_events[i]++;
            *ret = (stk_device_event){
                .i_device = i,
                .mono_ms = stk_json_get_whole(one, "time_ms", -1),
                .xid = (int32_t)MAX(stk_json_get_whole(one, "xid", -1), 0),
                .pid = (pid_t)MAX(stk_json_get_whole(one, "pid", -1), 0),
            };
            if (ret->mono_ms < 0) {
                ret->mono_ms = stk_clock_mono_ms(&stk_clock_real);
            }
            (void)snprintf(ret->text, sizeof ret->text, "%s", text(one, "text", ""));
        }
    }
    return found;
}

static int add_fake_device(stk_accel *accel, const stk_json *one, uint32_t base, uint32_t i,
                           stk_err *err)
{
    stk_arena *arena = accel->arena;
    int64_t parent = stk_json_get_whole(one, "parent", -1),
            index = stk_json_get_whole(one, "index", -1);
    const char *cc = text(one, "cc", NULL);
    stk_device device = {
        STK_DEVICE_UNKNOWN,
        .vendor = stk_arena_dup(arena, text(one, "vendor", "nvidia")),
        .noun = stk_arena_dup(arena, text(one, "noun", parent >= 0 ? "MIG slice" : "GPU")),
        .uuid = stk_arena_dup(arena, text(one, "uuid", NULL)),
        .model = stk_arena_dup(arena, text(one, "model", "Fake GPU")),
        .pci = stk_arena_dup(arena, text(one, "pci", NULL)),
        .node = stk_arena_dup(arena, text(one, "node", NULL)),
        .driver = accel->driver,
        .cpus = stk_arena_dup(arena, text(one, "cpus", NULL)),
        .profile = stk_arena_dup(arena, text(one, "profile", NULL)),
        .usable = !stk_json_is_false(stk_json_get(one, "usable")),
        .trouble = stk_arena_dup(arena, text(one, "trouble", NULL)),
    };
    if (device.uuid == NULL) {
        device.uuid = stk_arena_printf(arena, "GPU-fake-%u", i);
    }
    device.index = (int32_t)index;
    if (index < 0) {
        device.index = (int32_t)i;
    }
    device.n_cores = (int32_t)stk_json_get_whole(one, "n_cores", -1);
    device.numa = (int32_t)stk_json_get_whole(one, "numa", -1);
    device.memory_bytes = stk_json_get_whole(one, "memory_bytes", -1);
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
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *root = NULL, *list = load_fakes(path, scratch, &root, err);
    fake *self = stk_arena_alloc(accel->arena, sizeof *self);
    if (list == NULL) {
        return STK_E_ENV;
    }
    STK_TRY(stk_err_need(self, "for the list of devices", err));
    self->path = stk_arena_dup(accel->arena, path);
    STK_TRY(stk_err_need(self->path, "for the list of devices", err));
    if (stk_json_is_map(root)) {
        accel->driver = stk_arena_dup(accel->arena, text(root, "driver", NULL));
        accel->cuda_version = (int32_t)stk_json_get_whole(root, "cuda_version", -1);
    }
    uint32_t base = accel->n;
    for (uint32_t i = 0; i < stk_json_n_items(list); i++) {
        const stk_json *one = stk_json_item(list, i);
        STK_TRY(add_fake_device(accel, one, base, i, err));
        self->n_events[i] = (uint32_t)stk_json_n_items(stk_json_get(one, "events"));
    }
    *ret_self = self;
    return 0;
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
