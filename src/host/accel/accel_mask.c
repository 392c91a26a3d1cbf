/* Restricts the pool to the devices that inherited variables name: CUDA_VISIBLE_DEVICES and similar
 * ones (tbl/vendors.def), set by Slurm, a user or an outer Stoker. A split device stays listed
 * while one of its slices does. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "host/accel/accel_priv.h"

typedef enum { DEVICE, CORE } counts;

typedef struct vendor {
    const char *id, *variable;
    counts numbers;
} vendor;

static const vendor vendors[] = {
#define X(id, shown, variable, numbers) {id, variable, numbers},
#include "tbl/vendors.def"
#undef X
};

/* The devices that the masks processed so far leave in the pool. */
typedef struct pool {
    uint32_t order[STK_LIMIT_DEVICES]; /* device indices in the order of the new list */
    uint32_t n;
    bool in[STK_LIMIT_DEVICES];
} pool;

static bool concerns(const stk_accel *accel, uint32_t i, const vendor *who)
{
    const stk_accel_part *part = &accel->parts[accel->slots[i].part];
    return !part->provider->simulated && strcmp(accel->devices[i].vendor, who->id) == 0;
}

static void take_device(const stk_accel *accel, pool *to, uint32_t i)
{
    int32_t parent = accel->devices[i].parent;
    if (parent >= 0 && !to->in[parent]) { /* listed before its slices */
        to->in[parent] = true;
        to->order[to->n++] = (uint32_t)parent;
    }
    if (!to->in[i]) {
        to->in[i] = true;
        to->order[to->n++] = i;
    }
}

/* The device that one word names: by its index, or by a unique prefix of its uuid (the CUDA
 * runtime's rule); "1.0" is a part of Intel's device 1. -1: none. */
static int64_t device_named(const stk_accel *accel, const vendor *who, const char *word, size_t len,
                            bool *ret_part)
{
    char *end;
    errno = 0;
    long index = strtol(word, &end, 10);
    *ret_part = end > word && *end == '.';
    bool number = end > word && (end == word + len || *ret_part);
    int64_t found = -1;
    for (uint32_t i = 0; i < accel->n; i++) {
        const stk_device *d = &accel->devices[i];
        if (!concerns(accel, i, who) || (number && d->parent >= 0)) {
            continue;
        }
        bool is_it = d->index == index;
        if (!number) {
            is_it = len > 4 && d->uuid != NULL && strncmp(d->uuid, word, len) == 0;
        }
        if (is_it && found >= 0) {
            return -1;
        }
        if (is_it) {
            found = i;
        }
    }
    return found;
}

/* As in the CUDA runtime, the first word that names no device ends the list. */
static void by_device(stk_accel *accel, const vendor *who, const char *mask, pool *to,
                      const char **ret_unknown)
{
    for (const char *word = mask + strspn(mask, " ,"); *word != '\0'; word += strspn(word, " ,")) {
        size_t len = strcspn(word, " ,");
        bool part;
        int64_t i = device_named(accel, who, word, len, &part);
        if (i < 0) {
            *ret_unknown = stk_arena_dupn(accel->arena, word, len);
            return;
        }
        take_device(accel, to, (uint32_t)i);
        stk_device *d = &accel->devices[i];
        for (uint32_t k = 0; k < accel->n && d->n_slices > 0; k++) {
            if (accel->devices[k].parent == i) {
                take_device(accel, to, k);
            }
        }
        if (part && d->usable) {
            d->usable = false;
            d->trouble = stk_arena_printf(accel->arena, "%s='%s' leaves only a part of %s %d",
                                          who->variable, mask, d->noun, d->index);
        }
        word += len;
    }
}

/* "0-3,8": a device is in the pool if the mask names all of its cores. */
static void by_core(stk_accel *accel, const vendor *who, const char *mask, pool *to,
                    const char **ret_unknown)
{
    bool named[STK_LIMIT_DEVICES * 16] = {0};
    const long n_max = (long)(sizeof named / sizeof named[0]);
    for (const char *word = mask + strspn(mask, " ,"); *word != '\0'; word += strspn(word, " ,")) {
        size_t len = strcspn(word, " ,");
        char *end;
        long first = strtol(word, &end, 10);
        long last = first;
        if (*end == '-') {
            last = strtol(end + 1, &end, 10);
        }
        if (end != word + len || first < 0 || last < first || last >= n_max) {
            *ret_unknown = stk_arena_dupn(accel->arena, word, len);
            break;
        }
        memset(named + first, 1, (size_t)(last - first + 1));
        word += len;
    }
    int32_t core = 0;
    for (uint32_t i = 0; i < accel->n; i++) {
        stk_device *d = &accel->devices[i];
        if (!concerns(accel, i, who) || d->n_cores <= 0) {
            continue;
        }
        int32_t n_named = 0;
        for (int32_t k = 0; k < d->n_cores && core < n_max; k++) {
            n_named += named[core++];
        }
        if (n_named > 0) {
            take_device(accel, to, i);
        }
        if (n_named > 0 && n_named < d->n_cores && d->usable) {
            d->usable = false;
            d->trouble =
                stk_arena_printf(accel->arena, "%s='%s' leaves %d of the %d cores of %s %d",
                                 who->variable, mask, n_named, d->n_cores, d->noun, d->index);
        }
    }
}

static void apply_one(stk_accel *accel, const vendor *who, const char *mask, pool *to)
{
    uint32_t n_before = 0, n_after = 0;
    const char *unknown = NULL;
    (who->numbers == CORE ? by_core : by_device)(accel, who, mask, to, &unknown);
    for (uint32_t i = 0; i < accel->n; i++) {
        if (concerns(accel, i, who) && accel->devices[i].n_slices == 0) {
            n_before++;
            n_after += to->in[i];
        }
    }
    const char *text = NULL;
    bool none = unknown != NULL && /* the words for "no device", tbl/vendors.def */
                (strcmp(unknown, "-1") == 0 || strcmp(unknown, "9999") == 0);
    if (unknown != NULL && !none) {
        text = stk_arena_printf(accel->arena,
                                "%s='%s' limits them to %u of %u ('%s' names none of "
                                "them)",
                                who->variable, mask, n_after, n_before, unknown);
    } else if (n_after < n_before) {
        text = stk_arena_printf(accel->arena, "%s='%s' limits them to %u of %u", who->variable,
                                mask, n_after, n_before);
    }
    stk_accel_remark(accel, text);
}

/* Rebuilds the device list in the pool's order. */
static int rebuild(stk_accel *accel, const pool *from, stk_err *err)
{
    stk_device *devices = accel->devices;
    stk_accel_slot *slots = accel->slots;
    accel->devices = stk_arena_array(accel->arena, STK_LIMIT_DEVICES, sizeof *devices);
    accel->slots = stk_arena_array(accel->arena, STK_LIMIT_DEVICES, sizeof *slots);
    if (accel->devices == NULL || accel->slots == NULL) {
        accel->n = 0;
        return stk_err_set(err, STK_E_NOMEM, "no memory for the list of devices");
    }
    uint32_t at[STK_LIMIT_DEVICES];
    for (uint32_t k = 0; k < from->n; k++) {
        uint32_t i = from->order[k];
        at[i] = k;
        accel->devices[k] = devices[i];
        accel->slots[k] = slots[i];
        if (devices[i].n_slices > 0) {
            accel->devices[k].n_slices = 0; /* the remaining slices are counted below */
        }
        if (devices[i].parent >= 0) {
            accel->devices[k].parent = (int32_t)at[devices[i].parent];
            accel->devices[at[devices[i].parent]].n_slices++;
        }
    }
    accel->n = from->n;
    return 0;
}

int stk_accel_apply_masks(stk_accel *accel, stk_err *err)
{
    pool to = {0};
    bool masked = false;
    bool done[STK_LIMIT_DEVICES] = {0};
    for (size_t v = 0; v < sizeof vendors / sizeof vendors[0]; v++) {
        const char *mask = getenv(vendors[v].variable);
        bool any = false;
        for (uint32_t i = 0; i < accel->n && mask != NULL; i++) {
            done[i] = done[i] || concerns(accel, i, &vendors[v]);
            any = any || concerns(accel, i, &vendors[v]);
        }
        if (any) {
            masked = true;
            apply_one(accel, &vendors[v], mask, &to);
        }
    }
    for (uint32_t i = 0; i < accel->n; i++) {
        if (!done[i]) {
            take_device(accel, &to, i);
        }
    }
    if (!masked) {
        return 0;
    }
    return rebuild(accel, &to, err);
}
