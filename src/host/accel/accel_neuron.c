/* AWS Trainium and Inferentia from the Neuron driver's files: /dev/neuronN, and
 * /sys/devices/virtual/neuron_device if the driver creates it (AWS's "Neuron Sysfs User Guide").
 * Otherwise the instance type tells which devices these are. Driver 2.31 moved some of these files;
 * a value without a file is unknown. neuron-ls isn't needed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "host/accel/accel_priv.h"
#include "host/accel/accel_sysfs.h"
#include "host/accel/accel_vendor.h"

#define FOLDER "/sys/devices/virtual/neuron_device"
enum { CORES_MAX = 16 };

typedef struct neuron_device {
    const char *dir; /* in sysfs; may not exist */
    int32_t number;
    int32_t n_physical;     /* hardware cores, or -1 */
    stk_vendor_peers peers; /* devices joined by NeuronLink */
} neuron_device;

typedef struct neuron {
    neuron_device devices[STK_LIMIT_DEVICES];
    uint32_t n;
} neuron;

/* "trn1.32xlarge" → "Trainium1"; NULL: another instance type. */
static const char *kind_of_instance(void)
{
    static const struct {
        const char *prefix, *name;
    } kinds[] = {{"trn2", "Trainium2"},
                 {"trn1", "Trainium1"},
                 {"inf2", "Inferentia2"},
                 {"inf1", "Inferentia"}};
    char product[64];
    if (stk_sysfs_text(product, sizeof product, "/sys/class/dmi/id/product_name")) {
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
            if (strncmp(product, kinds[i].prefix, 4) == 0) {
                return kinds[i].name;
            }
        }
    }
    return NULL;
}

/* Hardware cores per logical core (LNC). Since Trainium2 the runtime's variables count logical
 * cores. */
static int32_t cores_in_one(const char *name)
{
    int64_t n = strtol(stk_text_or(getenv("NEURON_LOGICAL_NC_CONFIG"), ""), NULL, 10);
    if (n <= 0) {
        n = stk_sysfs_number("/opt/aws/neuron/logical_nc_config");
    }
    if (n == 1 || n == 2) {
        return (int32_t)n;
    }
    name = stk_text_or(name, "");
    return strcmp(name, "Trainium2") == 0 || strcmp(name, "Trainium3") == 0 ? 2 : 1;
}

static void find_peers(neuron_device *d)
{
    char text[256];
    if (!stk_sysfs_text(text, sizeof text, "%s/connected_devices", d->dir)) {
        return;
    }
    for (char *at = text; *at != '\0';) {
        char *end;
        long number = strtol(at, &end, 10);
        if (end != at) {
            stk_vendor_add_peer(&d->peers, number);
        }
        at = end + strspn(end, ", ");
        if (end == at) {
            break; /* not a list of numbers */
        }
    }
}

static void identify(stk_arena *arena, neuron_device *own, stk_device *ret)
{
    char name[64], serial[64];
    bool named = stk_sysfs_text(name, sizeof name, "%s/info/architecture/device_name", own->dir) &&
                 name[0] != '\0';
    const char *kind = name;
    if (!named) {
        kind = kind_of_instance();
    }
    ret->n_cores = -1;
    ret->model = NULL;
    if (kind != NULL) {
        ret->model = stk_vendor_model("aws", kind, &ret->memory_bytes, &ret->n_cores);
    }
    if (ret->model == NULL) {
        ret->model = "AWS Neuron device";
        if (named) {
            ret->model = stk_arena_printf(arena, "AWS %s", name);
        }
    }
    own->n_physical = (int32_t)stk_vendor_sensor(own->dir, "core_count", 1);
    if (own->n_physical > 0) {
        ret->n_cores = own->n_physical / cores_in_one(kind);
    }
    if (stk_sysfs_text(serial, sizeof serial, "%s/info/serial_number", own->dir) &&
        serial[0] != '\0' && strcmp(serial, "0") != 0) {
        ret->uuid = stk_arena_printf(arena, "neuron-%s", serial);
    } else {
        ret->uuid = stk_arena_printf(arena, "neuron-%d", (int)own->number);
    }
}

static int add_device(stk_accel *accel, neuron *self, int32_t number, stk_err *err)
{
    stk_arena *arena = accel->arena;
    char driver[64];
    neuron_device *own = &self->devices[self->n];
    own->number = number;
    own->dir = stk_arena_printf(arena, FOLDER "/neuron%d", (int)number);
    stk_device d = {STK_DEVICE_UNKNOWN, .vendor = "aws", .noun = "Neuron device"};
    d.index = number;
    d.node = stk_arena_printf(arena, "/dev/neuron%d", (int)number);
    STK_TRY(stk_err_need(own->dir, "for the list of devices", err));
    STK_TRY(stk_err_need(d.node, "for the list of devices", err));
    bool there = false;
    d.trouble = stk_vendor_node_trouble(arena, d.node, &there);
    identify(arena, own, &d);
    if (d.trouble == NULL && d.n_cores <= 0) {
        d.trouble = "the driver doesn't report the number of its cores, so they can't be leased: "
                    "update aws-neuronx-dkms";
    }
    d.usable = d.trouble == NULL;
    if (stk_sysfs_text(driver, sizeof driver, "/sys/module/neuron/version")) {
        d.driver = stk_arena_dup(arena, driver);
    }
    find_peers(own);
    return stk_accel_add(accel, &d, self->n++, err);
}

static int neuron_open(stk_accel *accel, const char *spec, void **ret_self, stk_err *err)
{
    (void)spec;
    const char *const *names;
    uint32_t n = stk_sysfs_list(accel->arena, "/dev", "neuron", &names);
    if (n == 0) {
        if (!stk_in_container() && kind_of_instance() != NULL) {
            stk_accel_remark(accel, "this is a Trainium or Inferentia instance without the Neuron "
                                    "driver: install aws-neuronx-dkms, then 'modprobe neuron'");
        }
        return 0;
    }
    neuron *self = stk_arena_alloc(accel->arena, sizeof *self);
    STK_TRY(stk_err_need(self, "for the list of devices", err));
    *ret_self = self;
    for (uint32_t i = 0; i < n && self->n < STK_LIMIT_DEVICES; i++) {
        int32_t number = stk_vendor_number(names[i], "neuron");
        if (number >= 0) {
            STK_TRY(add_device(accel, self, number, err));
        }
    }
    return 0;
}

/* A counter is a folder with the files total, present and peak; with some drivers it is a file. */
static int64_t counter(const char *dir, const char *name)
{
    int64_t value = stk_sysfs_number("%s/%s/total", dir, name);
    if (value < 0) {
        value = stk_sysfs_number("%s/%s", dir, name);
    }
    return value;
}

static int64_t plus(int64_t a, int64_t b)
{
    return a < 0 || b < 0 ? MAX(a, b) : a + b;
}

/* The "total" files contain the memory in use now. */
static int64_t memory_used(const neuron_device *d)
{
    static const char *const kinds[] = {"collectives",
                                        "constants",
                                        "dma_rings",
                                        "driver_memory",
                                        "model_code",
                                        "model_shared_scratchpad",
                                        "nonshared_scratchpad",
                                        "notifications",
                                        "runtime_memory",
                                        "tensors",
                                        "uncategorized"};
    int64_t sum = -1;
    for (int32_t core = 0; core < d->n_physical && core < CORES_MAX; core++) {
        char dir[256];
        (void)snprintf(dir, sizeof dir, "%s/neuron_core%d/stats/memory_usage/device_mem", d->dir,
                       (int)core);
        int64_t whole = stk_sysfs_number("%s/total", dir);
        for (size_t i = 0; whole < 0 && i < sizeof kinds / sizeof kinds[0]; i++) {
            sum = plus(sum, stk_sysfs_number("%s/%s/total", dir, kinds[i]));
        }
        sum = plus(sum, whole);
    }
    return sum;
}

static int neuron_state(void *opened, uint32_t slot, stk_device_state *ret, stk_err *err)
{
    (void)err;
    const neuron_device *d = &((const neuron *)opened)->devices[slot];
    ret->memory_used = memory_used(d);
    ret->ecc_uncorrected = plus(counter(d->dir, "stats/hardware/mem_ecc_uncorrected"),
                                counter(d->dir, "stats/hardware/sram_ecc_uncorrected"));
    return 0;
}

static int neuron_sample(void *opened, uint32_t slot, const pid_t *pids, uint32_t n_pids,
                         stk_device_sample *ret)
{
    (void)pids, (void)n_pids;
    ret->memory_used = memory_used(&((const neuron *)opened)->devices[slot]);
    return 0;
}

static stk_closeness neuron_link(void *opened, uint32_t slot, uint32_t other, int32_t *ret_n)
{
    (void)ret_n;
    const neuron *self = opened;
    return stk_vendor_peer_link(&self->devices[slot].peers, self->devices[other].number);
}

const stk_provider stk_provider_neuron = {
    .name = "neuron",
    .in_auto = true,
    .open = neuron_open,
    .ops = {.state = neuron_state, .sample = neuron_sample, .link = neuron_link},
};
