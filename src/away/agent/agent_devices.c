/* What the container really has: its devices, CPUs and memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "away/agent/agent_private.h"
#include "base/text.h"
#include "model/spec/spec.h"
#include "sys/proc.h"

/* What the container itself asks for, in the words of who made it ("nvidia 2"): options of its
 * engine, alternatives and defaults are not in the order. */
static void read_asked(agent *a)
{
    const char *text = getenv("STOKER_ASKED_DEVICES");
    const char *space = strchr(stk_text_or(text, ""), ' ');
    uint32_t n = space == NULL ? 0 : (uint32_t)strtoul(space + 1, NULL, 10);
    if (n == 0) {
        return;
    }
    a->order.n_devices = MAX(n, a->order.n_devices);
    if (a->order.device_vendor == NULL) {
        a->order.device_vendor = stk_arena_dupn(a->arena, text, (size_t)(space - text));
    }
}

/* Is it of another model than each of the classes that are asked for? A class may be a word of the
 * cluster's own, which says nothing here. */
static bool is_other_model(const agent *a, const stk_device *d)
{
    const char *const *class = a->order.device_classes;
    bool is_other = class != NULL;
    for (; class != NULL && *class != NULL; class ++) {
        is_other = is_other && stk_spec_is_other_model(*class, d->model);
    }
    return is_other;
}

static bool is_asked_for(const agent *a, const stk_device *d)
{
    const char *vendor = a->order.device_vendor;
    return (vendor == NULL || strcmp(vendor, d->vendor) == 0) && d->n_slices <= 0 &&
           !is_other_model(a, d);
}

/* Names what is seen: "2 NVIDIA GPUs, driver …; GPU 1 can't be used: …". */
static int refuse_devices(agent *a, uint32_t n_usable, stk_err *err)
{
    const char *trouble = stk_accel_get_remark(a->accel);
    for (uint32_t i = 0; i < stk_accel_n_devices(a->accel) && trouble == NULL; i++) {
        const stk_device *d = stk_accel_device(a->accel, i);
        if (is_asked_for(a, d) && !d->usable) {
            trouble = d->trouble;
        }
    }
    const char *seen = stk_accel_describe(a->accel, a->arena);
    const char *const *class = a->order.device_classes;
    STK_BUF_AUTO text = STK_BUF_INIT(4096);
    stk_buf_printf(&text, "it asked for %u ", a->order.n_devices);
    if (a->order.device_vendor != NULL) {
        stk_buf_printf(&text, "%s ", a->order.device_vendor);
    }
    stk_buf_printf(&text, "device%s", stk_text_plural(a->order.n_devices));
    for (uint32_t i = 0; class != NULL && class[i] != NULL; i++) {
        stk_buf_printf(&text, "%s%s", i == 0 ? " of gpu_class " : " or ", class[i]);
    }
    stk_buf_printf(&text, ", but %u can be used in its container: %s", n_usable,
                   stk_text_or(seen, "none is visible"));
    if (trouble != NULL) {
        stk_buf_printf(&text, "; %s", trouble);
    }
    stk_err_set(err, STK_E_RESOURCES, "%s", text.data);
    stk_err_hint(err, "check what the node and its device plugin provide, and whether the image's "
                      "libraries fit the driver");
    return STK_E_RESOURCES;
}

static int take_devices(agent *a, stk_err *err)
{
    stk_devset set = {0};
    uint32_t n = 0;
    if (a->order.n_devices == 0 || a->is_shared || a->lease.n > 0) { /* leased before */
        return 0;
    }
    for (uint32_t i = 0; i < stk_accel_n_devices(a->accel) && n < a->order.n_devices; i++) {
        const stk_device *d = stk_accel_device(a->accel, i);
        if (d->usable && is_asked_for(a, d)) {
            stk_devset_add(&set, i);
            n++;
        }
    }
    if (n < a->order.n_devices) {
        return refuse_devices(a, n, err);
    }
    char label[300];
    (void)snprintf(label, sizeof label, "run %s step %s", a->order.run, a->order.step);
    return stk_lease_take(a->accel, &set, 0, label, &a->lease, NULL, err);
}

static void put_granted_device(const agent *a, const stk_device *d, stk_buf *buf)
{
    stk_json_open(buf, NULL, '{');
    stk_json_put_text(buf, "vendor", d->vendor);
    stk_json_put_int(buf, "index", d->index);
    stk_json_put_text(buf, "uuid", d->uuid);
    if (d->model != NULL) {
        stk_json_put_text(buf, "model", d->model);
    }
    stk_json_put_text(buf, "noun", d->noun);
    if (d->memory_bytes > 0) {
        stk_json_put_int(buf, "memory_bytes", d->memory_bytes);
    }
    if (d->profile != NULL) {
        stk_json_put_text(buf, "profile", d->profile);
    }
    if (a->lease.share_bytes > 0) {
        stk_json_put_whole(buf, "share_bytes", a->lease.share_bytes);
    }
    stk_json_close(buf, '}');
}

/* A number of Slurm's, which gives a job a part of its node without the kernel's knowledge; 0:
 * none.
 */
static int64_t slurm_number(const char *name)
{
    const char *text = getenv(name);
    return text == NULL ? 0 : MAX(strtoll(text, NULL, 10), 0);
}

static uint32_t granted_cpus(const agent *a)
{
    if (a->limits.n_cpus > 0) {
        return a->limits.n_cpus;
    }
    int64_t n = slurm_number("SLURM_CPUS_ON_NODE"), all = MAX(a->host_milli / 1000, 1);
    return (uint32_t)(n > 0 ? MIN(n, all) : all);
}

static int64_t granted_memory(const agent *a)
{
    if (a->limits.memory_bytes > 0) {
        return a->limits.memory_bytes;
    }
    int64_t all = a->host_bytes, mib = slurm_number("SLURM_MEM_PER_NODE");
    if (mib == 0) {
        mib = slurm_number("SLURM_MEM_PER_CPU") * slurm_number("SLURM_CPUS_ON_NODE");
    }
    return mib > 0 && mib < all >> 20 ? mib << 20 : all;
}

/* The CPUs of this container or job, in thousandths. An engine that doesn't enforce a step's limit
 * grants no more than that. */
static int64_t granted_milli(const agent *a)
{
    const stk_json *asked = stk_json_get(&a->task, "granted");
    double limit = stk_json_get_number(asked, "cpu_count", -1) * 1000;
    int64_t milli = MIN(a->host_milli, (int64_t)granted_cpus(a) * 1000);
    if (limit > 0 && limit < (double)milli && !a->order.gang) {
        milli = (int64_t)(limit + 0.5);
    }
    return milli;
}

/* `granted` of task.json is what this container has; where and in which image is the engine's to
 * say. */
static int describe_granted(agent *a, stk_err *err)
{
    static const char *const of_engine[] = {"backend", "stack", "image"};
    STK_BUF_AUTO buf = STK_BUF_INIT(1 << 20);
    uint32_t cpus[1024];
    uint32_t n = stk_proc_cpus(cpus, 1024);
    if (a->limits.n_cpus > 0) {
        n = MIN(a->limits.n_cpus, 1024);
        memcpy(cpus, a->limits.cpus, n * sizeof *cpus);
    }
    stk_json_open(&buf, NULL, '{');
    stk_json_put_real(&buf, "cpu_count", (double)granted_milli(a) / 1000);
    stk_json_open(&buf, "cpus", '[');
    for (uint32_t i = 0; i < n; i++) {
        stk_json_put_int(&buf, NULL, cpus[i]);
    }
    stk_json_close(&buf, ']');
    stk_json_put_int(&buf, "threads", granted_cpus(a));
    stk_json_put_whole(&buf, "memory_bytes", granted_memory(a));
    stk_json_open(&buf, "devices", '[');
    for (uint32_t i = 0; i < a->lease.n; i++) {
        put_granted_device(a, stk_accel_device(a->accel, a->lease.devices[i]), &buf);
    }
    stk_json_close(&buf, ']');
    for (size_t i = 0; i < sizeof of_engine / sizeof *of_engine; i++) {
        const stk_json *value = stk_json_get(stk_json_get(&a->task, "granted"), of_engine[i]);
        if (value != NULL) {
            stk_json_put(&buf, of_engine[i], value);
        }
    }
    stk_json_close(&buf, '}');
    a->granted = stk_buf_keep(&buf, a->arena);
    return stk_err_if_null(a->granted, err);
}

void stk_agent_read_host(agent *a)
{
    if (a->host_milli == 0) { /* dozens of files */
        a->host_milli = stk_proc_cpu_milli();
        a->host_bytes = stk_proc_memory_bytes();
    }
}

int stk_agent_devices(agent *a, stk_err *err)
{
    stk_agent_read_host(a);
    read_asked(a);
    if (a->accel == NULL) {
        STK_TRY(stk_accel_open(getenv("STOKER_ACCEL"), &a->accel, err));
    }
    STK_TRY(take_devices(a, err));
    return describe_granted(a, err);
}
