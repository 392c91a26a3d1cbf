#include "host/accel/accel.h"

#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/buf.h"
#include "base/text.h"
#include "host/accel/accel_priv.h"
#include "host/accel/accel_sysfs.h"

static const stk_provider *const providers[] = {
#define X(name) &stk_provider_##name,
#include "tbl/providers.def"
#undef X
};
enum { N_PROVIDERS = sizeof providers / sizeof providers[0] };

int stk_accel_add(stk_accel *accel, const stk_device *device, uint32_t slot, stk_err *err)
{
    if (accel->n >= STK_LIMIT_DEVICES) {
        return stk_err_set(err, STK_E_LIMIT, "this machine has more than %d devices",
                           STK_LIMIT_DEVICES);
    }
    if (accel->devices == NULL) {
        accel->devices = stk_arena_array(accel->arena, STK_LIMIT_DEVICES, sizeof *accel->devices);
        accel->slots = stk_arena_array(accel->arena, STK_LIMIT_DEVICES, sizeof *accel->slots);
        STK_TRY(stk_err_need(accel->devices, "for the list of devices", err));
        STK_TRY(stk_err_need(accel->slots, "for the list of devices", err));
    }
    accel->devices[accel->n] = *device;
    accel->slots[accel->n++] = (stk_accel_slot){accel->n_parts, slot};
    return 0;
}

void stk_accel_remark(stk_accel *accel, const char *text)
{
    if (text != NULL && accel->remark != NULL) {
        text = stk_arena_printf(accel->arena, "%s; %s", accel->remark, text);
    }
    accel->remark = stk_text_or(text, accel->remark);
}

static int open_part(stk_accel *accel, const stk_provider *provider, const char *spec, stk_err *err)
{
    if (accel->n_parts >= STK_ACCEL_PARTS) {
        return stk_err_set(err, STK_E_USAGE, "more than %d providers of devices are named",
                           STK_ACCEL_PARTS);
    }
    stk_accel_part *part = &accel->parts[accel->n_parts];
    void *self = NULL;
    part->provider = provider;
    STK_TRY(provider->open(accel, spec, &self, err));
    part->self = self;
    accel->simulated = accel->simulated || provider->simulated;
    accel->n_parts++;
    return 0;
}

static int unknown_provider(const char *word, stk_err *err)
{
    STK_BUF_AUTO names = STK_BUF_INIT(512);
    for (size_t i = 0; i < N_PROVIDERS; i++) {
        stk_buf_printf(&names, "%s%s, ", providers[i]->name,
                       stk_text_when(providers[i]->takes_spec, ":…"));
    }
    return stk_err_set(err, STK_E_USAGE, "unknown device provider '%s'; there are %sauto and none",
                       word, stk_text_or(names.data, ""));
}

/* One word of the comma list: "nvml", "fake:FILE", "auto", "none". */
static int open_word(stk_accel *accel, const char *word, stk_err *err)
{
    if (strcmp(word, "none") == 0) {
        return 0;
    }
    bool is_auto = strcmp(word, "auto") == 0;
    size_t len = strcspn(word, ":");
    bool known = is_auto;
    for (size_t i = 0; i < N_PROVIDERS; i++) {
        const stk_provider *p = providers[i];
        bool named = strlen(p->name) == len && strncmp(p->name, word, len) == 0 &&
                     p->takes_spec == (word[len] == ':');
        known = known || named;
        if (named || (is_auto && p->in_auto)) {
            STK_TRY(open_part(accel, p, named && p->takes_spec ? word + len + 1 : "", err));
        }
    }
    if (!known) {
        return unknown_provider(word, err);
    }
    return 0;
}

/* A spec may hold commas ("sim:2xA100,mig=1g.10gb*7"): a comma ends a word only where the name of a
 * provider follows it. */
static size_t word_length(const char *text)
{
    static const char *const others[] = {"auto", "none"};
    for (const char *comma = text; (comma = strchr(comma, ',')) != NULL; comma++) {
        const char *next = comma + 1;
        size_t len = strcspn(next, ":,");
        bool name = memchr(text, ':', (size_t)(comma - text)) == NULL;
        for (size_t i = 0; i < 2 && !name; i++) {
            name = len == 4 && strncmp(others[i], next, 4) == 0;
        }
        for (size_t i = 0; i < N_PROVIDERS && !name; i++) {
            name = strlen(providers[i]->name) == len && strncmp(providers[i]->name, next, len) == 0;
        }
        if (name) {
            return (size_t)(comma - text);
        }
    }
    return strlen(text);
}

static int open_all(stk_accel *accel, const char *list, stk_err *err)
{
    for (const char *word = list; *word != '\0';) {
        size_t len = word_length(word);
        const char *copy = stk_arena_dupn(accel->arena, word, len);
        STK_TRY(stk_err_need(copy, "for the list of devices", err));
        STK_TRY(open_word(accel, copy, err));
        word += len + (word[len] == ',');
    }
    return 0;
}

int stk_accel_open(const char *provider, stk_accel **ret_accel, stk_err *err)
{
    provider = stk_text_or(stk_text_if_any(provider), stk_text_if_any(getenv("STOKER_ACCEL")));
    stk_arena *arena = stk_arena_new(8u << 20);
    stk_accel *accel = stk_arena_alloc(arena, sizeof *accel);
    if (accel == NULL) {
        stk_arena_free(arena);
        return stk_err_set(err, STK_E_NOMEM, "no memory for the list of devices");
    }
    accel->arena = arena;
    accel->cuda_version = -1;
    int rc = open_all(accel, stk_text_or(provider, "auto"), err);
    if (rc == 0 && accel->n > 0) {
        rc = stk_accel_apply_masks(accel, err);
    }
    if (rc < 0) {
        stk_accel_close(accel);
        return rc;
    }
    stk_accel_apply_quarantine(accel);
    stk_accel_open_log(accel);
    *ret_accel = accel;
    return 0;
}

void stk_accel_close(stk_accel *accel)
{
    if (accel == NULL) {
        return;
    }
    stk_lease_unclaim(accel);
    for (uint32_t i = accel->n_parts; i-- > 0;) {
        const stk_accel_part *part = &accel->parts[i];
        if (part->provider->ops.close != NULL && part->self != NULL) {
            part->provider->ops.close(part->self);
        }
    }
    stk_accel_close_log(accel);
    stk_arena_free(accel->arena); /* holds accel itself */
}

uint32_t stk_accel_n_devices(const stk_accel *accel)
{
    return accel->n;
}

const stk_device *stk_accel_device(const stk_accel *accel, uint32_t i)
{
    return i < accel->n ? &accel->devices[i] : NULL;
}

const char *stk_accel_get_remark(const stk_accel *accel)
{
    return accel->remark;
}

bool stk_accel_is_simulated(const stk_accel *accel)
{
    return accel->simulated;
}

const char *stk_accel_driver(const stk_accel *accel)
{
    return accel->driver;
}

int32_t stk_accel_cuda_version(const stk_accel *accel)
{
    return accel->cuda_version;
}

const char *stk_accel_vendor_name(const char *vendor)
{
    static const char *const names[][2] = {
#define X(id, name, ...) {id, name},
#include "tbl/vendors.def"
#undef X
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i][0], vendor) == 0) {
            return names[i][1];
        }
    }
    return vendor;
}

/* The vendor's name ("NVIDIA"), or "fake" or "simulated" for devices that don't exist. */
static const char *kind(const stk_accel *accel, uint32_t i)
{
    const char *vendor = stk_accel_vendor_name(accel->devices[i].vendor);
    return stk_text_or(accel->parts[accel->slots[i].part].provider->adjective, vendor);
}

/* "2 NVIDIA GPUs, 8 Google TPU chips" */
static void count_kinds(const stk_accel *accel, stk_buf *text)
{
    bool counted[STK_LIMIT_DEVICES] = {0};
    for (uint32_t i = 0; i < accel->n; i++) {
        uint32_t n = 0;
        for (uint32_t k = i; k < accel->n; k++) {
            bool same = !counted[k] && strcmp(kind(accel, i), kind(accel, k)) == 0 &&
                        strcmp(accel->devices[i].noun, accel->devices[k].noun) == 0;
            n += same;
            counted[k] = counted[k] || same;
        }
        if (n > 0) {
            stk_buf_separate(text, ", ");
            stk_buf_printf(text, "%u %s %s%s", n, kind(accel, i), accel->devices[i].noun,
                           stk_text_plural(n));
        }
    }
    if (accel->n == 0) {
        stk_buf_text(text, "no GPU");
    }
}

const char *stk_accel_describe(const stk_accel *accel, stk_arena *arena)
{
    uint32_t n_usable = 0, n_whole = 0;
    const char *trouble = NULL;
    for (uint32_t i = 0; i < accel->n; i++) {
        const stk_device *d = &accel->devices[i];
        n_usable += d->usable;
        n_whole += d->n_slices == 0; /* of a split device, only the slices can be leased */
        if (!d->usable && trouble == NULL) {
            trouble = d->trouble;
        }
    }
    STK_BUF_AUTO text = STK_BUF_INIT(4096);
    count_kinds(accel, &text);
    if (accel->driver != NULL) {
        stk_buf_printf(&text, ", driver %s", accel->driver);
    }
    if (n_usable < n_whole) {
        stk_buf_printf(&text, ", %u usable: %s", n_usable, stk_text_or(trouble, "unknown trouble"));
    }
    if (accel->remark != NULL) {
        stk_buf_printf(&text, "; %s", accel->remark);
    }
    return stk_text_or(stk_arena_dup(arena, text.data), "no memory to describe the devices");
}

/* The provider of device i, or NULL if the device can't be queried. */
static const stk_accel_part *part_of(const stk_accel *accel, uint32_t i)
{
    const stk_accel_part *part = &accel->parts[accel->slots[i].part];
    return part->self != NULL && accel->slots[i].slot != STK_SLOT_NONE ? part : NULL;
}

int stk_accel_state(stk_accel *accel, uint32_t i, stk_device_state *ret_state, stk_err *err)
{
    memset(ret_state, 0xff, sizeof *ret_state); /* sets every field, all of them integers, to -1 */
    if (i >= accel->n) {
        return stk_err_set(err, STK_E_NOT_FOUND, "there is no device %u: this host has %u", i,
                           accel->n);
    }
    const stk_accel_part *part = part_of(accel, i);
    if (part == NULL || part->provider->ops.state == NULL) {
        const char *trouble = accel->devices[i].trouble;
        if (trouble == NULL) {
            return 0;
        }
        return stk_err_set(err, STK_E_ENV, "%s", trouble);
    }
    int rc = part->provider->ops.state(part->self, accel->slots[i].slot, ret_state, err);
    if (rc < 0) {
        memset(ret_state, 0xff, sizeof *ret_state);
    }
    return rc;
}

void stk_accel_exclude(stk_accel *accel, uint32_t i, const char *why)
{
    const char *copy = stk_arena_dup(accel->arena, why);
    for (uint32_t k = 0; i < accel->n && k < accel->n; k++) {
        stk_device *d = &accel->devices[k];
        if ((k == i || d->parent == (int32_t)i) && d->usable) {
            d->usable = false;
            d->trouble = stk_text_or(copy, "it failed the checks before the run");
        }
    }
}

int stk_accel_processes(stk_accel *accel, uint32_t i, stk_device_process *ret, uint32_t n_max)
{
    if (i >= accel->n) {
        return -1;
    }
    const stk_accel_part *part = part_of(accel, i);
    if (part == NULL || part->provider->ops.processes == NULL) {
        return -1;
    }
    return part->provider->ops.processes(part->self, accel->slots[i].slot, ret, n_max);
}

int stk_accel_sample(stk_accel *accel, uint32_t i_device, const pid_t *pids, uint32_t n_pids,
                     stk_device_sample *ret)
{
    *ret = STK_DEVICE_SAMPLE_UNKNOWN;
    if (i_device >= accel->n) {
        return STK_E_NOT_FOUND;
    }
    const stk_accel_part *part = part_of(accel, i_device);
    if (part == NULL || part->provider->ops.sample == NULL) {
        return accel->devices[i_device].trouble == NULL ? 0 : STK_E_ENV;
    }
    int rc = part->provider->ops.sample(part->self, accel->slots[i_device].slot, pids, n_pids, ret);
    if (rc < 0) {
        *ret = STK_DEVICE_SAMPLE_UNKNOWN;
    }
    return rc;
}

void stk_accel_sum_processes(const stk_device_process *processes, int n, const pid_t *pids,
                             uint32_t n_pids, stk_device_sample *ret)
{
    if (n < 0 || n_pids == 0) {
        return;
    }
    ret->context = 0;
    ret->n_others = 0;
    for (int i = 0; i < n; i++) {
        bool ours = false;
        for (uint32_t k = 0; k < n_pids; k++) {
            if (processes[i].pid != pids[k]) {
                continue;
            }
            ours = true;
            ret->context = ret->context == 1 || !processes[i].graphics;
            if (processes[i].memory_bytes >= 0) {
                ret->process_memory = MAX(ret->process_memory, 0) + processes[i].memory_bytes;
            }
        }
        ret->n_others += !ours && !processes[i].graphics;
    }
}

/* Device i, or its parent if it is a slice. */
static uint32_t whole(const stk_accel *accel, uint32_t i)
{
    int32_t parent = accel->devices[i].parent;
    return parent >= 0 ? (uint32_t)parent : i;
}

stk_closeness stk_accel_link(stk_accel *accel, uint32_t i, uint32_t j, int32_t *ret_n)
{
    int32_t unused;
    if (ret_n == NULL) {
        ret_n = &unused;
    }
    *ret_n = -1;
    if (i >= accel->n || j >= accel->n) {
        return STK_LINK_UNKNOWN;
    }
    i = whole(accel, i);
    j = whole(accel, j);
    if (i == j) {
        return STK_LINK_SAME;
    }
    const stk_accel_part *part = part_of(accel, i);
    stk_closeness link = STK_LINK_UNKNOWN;
    if (part != NULL && part == part_of(accel, j) && part->provider->ops.link != NULL) {
        uint32_t slot = accel->slots[i].slot, other = accel->slots[j].slot;
        link = part->provider->ops.link(part->self, slot, other, ret_n);
    }
    const stk_device *a = &accel->devices[i], *b = &accel->devices[j];
    bool real = !accel->parts[accel->slots[i].part].provider->simulated;
    if (link == STK_LINK_UNKNOWN && real) { /* a simulated PCI address isn't one of this host */
        link = stk_pci_link(a->pci, b->pci);
    }
    if (link == STK_LINK_UNKNOWN && a->numa >= 0 && b->numa >= 0) {
        link = a->numa == b->numa ? STK_LINK_NODE : STK_LINK_SYSTEM;
    }
    return link;
}
