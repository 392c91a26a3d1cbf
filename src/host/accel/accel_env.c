/* A task's environment variables for devices, from tbl/vendors.def. */
#include <string.h>
#include <sys/param.h>

#include "base/buf.h"
#include "host/accel/accel_priv.h"

enum { CORES_MAX = 16 * STK_LIMIT_DEVICES, FIRST_PORT = 8476 };

static const struct variable {
    const char *vendor, *name, *given, *none;
} variables[] = {
#define VARIABLE(vendor, name, given, none) {vendor, name, given, none},
#include "tbl/vendors.def"
};

/* The devices of one vendor in a lease. */
typedef struct own {
    const stk_device *devices[STK_LEASE_DEVICES];
    uint32_t n;
} own;

static own devices_of(const stk_accel *accel, const stk_lease *lease, const char *vendor)
{
    own found = {.n = 0};
    for (uint32_t i = 0; lease != NULL && i < lease->n; i++) {
        const stk_device *d = stk_accel_device(accel, lease->devices[i]);
        if (d != NULL && strcmp(d->vendor, vendor) == 0) {
            found.devices[found.n++] = d;
        }
    }
    return found;
}

static bool is_present(const stk_accel *accel, const char *vendor)
{
    bool present = strcmp(vendor, "nvidia") == 0; /* even if we can't see its driver */
    for (uint32_t i = 0; i < accel->n && !present; i++) {
        present = strcmp(accel->devices[i].vendor, vendor) == 0;
    }
    return present;
}

static void add_names(stk_buf *out, const own *mine, char how)
{
    for (uint32_t i = 0; i < mine->n; i++) {
        const stk_device *d = mine->devices[i];
        bool by_name =
            d->uuid != NULL && (how == 'u' || (how == 'g' && !strncmp(d->uuid, "GPU-", 4)));
        if (i > 0) {
            stk_buf_char(out, ',');
        }
        if (by_name) {
            stk_buf_text(out, d->uuid);
        } else {
            stk_buf_printf(out, "%d", how == 'o' ? (int)i : (int)d->index);
        }
    }
}

/* Adds the numbers of the cores, which count on from device to device over the whole host. Returns
 * how many; `out` may be NULL. */
static uint32_t add_cores(stk_buf *out, const own *mine)
{
    bool ours[CORES_MAX + 1] = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < mine->n; i++) {
        const stk_device *d = mine->devices[i];
        int32_t n_cores = MAX(d->n_cores, 1);
        for (int32_t k = 0; k < n_cores; k++) {
            int32_t core = d->index * n_cores + k;
            if (core >= 0 && core < CORES_MAX && !ours[core]) {
                ours[core] = true;
                n++;
            }
        }
    }
    const char *comma = "";
    for (int32_t first = 0; first < CORES_MAX && out != NULL; first++) {
        int32_t last = first;
        while (ours[first] && ours[last + 1]) {
            last++;
        }
        if (ours[first]) {
            stk_buf_printf(out, "%s%d", comma, (int)first);
            if (last > first) {
                stk_buf_printf(out, "-%d", (int)last);
            }
            comma = ",";
            first = last;
        }
    }
    return n;
}

static void add_box(stk_buf *out, uint32_t n)
{
    uint32_t columns = n % 2 == 0 && n >= 4 ? 2 : 1;
    stk_buf_printf(out, "%u,%u,1", columns, n / columns);
}

static int32_t port_of(const own *mine)
{
    int32_t lowest = mine->devices[0]->index;
    for (uint32_t i = 1; i < mine->n; i++) {
        lowest = MIN(mine->devices[i]->index, lowest);
    }
    return FIRST_PORT + MAX(lowest, 0); /* unique, since two leases never share a chip */
}

static const char *fill_form(const char *form, const own *mine, stk_arena *arena)
{
    STK_BUF_AUTO out = STK_BUF_INIT(64u << 10);
    for (const char *c = form; *c != '\0'; c++) {
        if (*c != '%') {
            stk_buf_char(&out, *c);
            continue;
        }
        switch (*++c) {
        case 'c':
            (void)add_cores(&out, mine);
            break;
        case 'k':
            stk_buf_printf(&out, "%u", add_cores(NULL, mine));
            break;
        case 'b':
            add_box(&out, mine->n);
            break;
        case 'p':
            stk_buf_printf(&out, "%d", (int)port_of(mine));
            break;
        default:
            add_names(&out, mine, *c);
        }
    }
    return stk_buf_keep(&out, arena);
}

uint32_t stk_lease_env(const stk_accel *accel, const stk_lease *lease, stk_arena *arena,
                       const char *(*ret_pairs)[2], uint32_t n_max)
{
    uint32_t n = 0, n_devices = lease == NULL ? 0 : lease->n;
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const struct variable *v = &variables[i];
        const own mine = devices_of(accel, lease, v->vendor);
        const char *value = NULL;
        if (mine.n > 0 && v->given != NULL) {
            value = fill_form(v->given, &mine, arena);
        } else if (mine.n > 0) {
            continue;
        } else if ((v->given != NULL || n_devices == 0) && is_present(accel, v->vendor)) {
            value = v->none;
        }
        if (value != NULL && n < n_max) {
            ret_pairs[n][0] = v->name;
            ret_pairs[n++][1] = value;
        }
    }
    if (n_devices > 0 && accel->simulated && n < n_max) {
        ret_pairs[n][0] = "STOKER_ALLOW_CPU_BUILD"; /* no framework build can use these devices */
        ret_pairs[n++][1] = "1";
    }
    /* A task without devices can't lease any further: its level stays. */
    if (n_devices > 0 && n < n_max) {
        ret_pairs[n][1] = stk_arena_printf(arena, "%d", stk_lease_level() + 1);
        ret_pairs[n][0] = "STOKER_LEASE_LEVEL";
        n += ret_pairs[n][1] != NULL;
    }
    return n;
}
