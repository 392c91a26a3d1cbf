/* Which devices are which rank's: CPUs near them, and leaving out those of ranks that failed.
 *
 * Every rank sees all devices, and LOCAL_RANK picks: devices are dealt out to ranks in the order of
 * the mask, as many to each. Where that doesn't work out, none is anybody's own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/launch/launch_private.h"
#include "host/launch/launch_ranks.h"

/* How many devices are each rank's own; 0: nobody knows. */
static uint32_t each(const stk_gang *g)
{
    return g->n_devices % g->n == 0 ? g->n_devices / g->n : 0;
}

void stk_launch_devices_begin(stk_gang *g)
{
    g->n_devices = g->config->n_seen;
    for (uint32_t i = 0; i < g->n_devices; i++) {
        g->devices[i] = i;
    }
}

void stk_launch_devices_leave_out(stk_gang *g, uint32_t n_ranks)
{
    uint32_t own = each(g);
    uint32_t left = 0;
    uint32_t n_out = g->n - n_ranks;
    for (uint32_t rank = 0; rank < g->n && own > 0; rank++) {
        bool out = n_out > 0 && g->ranks[rank].failed;
        n_out -= out ? 1 : 0;
        for (uint32_t k = 0; k < own && !out; k++) {
            g->devices[left++] = g->devices[rank * own + k];
        }
    }
    if (own > 0) {
        g->n_devices = left;
    }
}

/* --- the masks --- */

/* The entries of `list` at the places that are left; NULL: it isn't a list of these devices. */
static const char *chosen(const stk_gang *g, const char *list)
{
    const char *entries[STK_LAUNCH_MAX_DEVICES];
    size_t lengths[STK_LAUNCH_MAX_DEVICES];
    uint32_t n = 0;
    for (const char *at = list; at != NULL && n < STK_LAUNCH_MAX_DEVICES; n++) {
        entries[n] = at;
        lengths[n] = strcspn(at, ",");
        at = at[lengths[n]] == ',' ? at + lengths[n] + 1 : NULL;
    }
    if (n != g->config->n_seen) {
        return NULL;
    }
    const char *text = "";
    for (uint32_t i = 0; i < g->n_devices && text != NULL; i++) {
        uint32_t k = g->devices[i];
        text = stk_arena_printf(g->arena, "%s%s%.*s", text, i > 0 ? "," : "", (int)lengths[k],
                                entries[k]);
    }
    return text;
}

/* What CUDA_VISIBLE_DEVICES would be, were it set; NULL: the devices aren't NVIDIA's. */
static const char *unmasked(const stk_gang *g)
{
    const char *list = NULL;
    for (uint32_t i = 0; i < g->config->n_seen; i++) {
        const char *mask = g->config->seen[i].mask;
        list = mask == NULL ? NULL
                            : stk_arena_printf(g->arena, "%s%s%s", i > 0 ? list : "",
                                               i > 0 ? "," : "", mask);
        if (list == NULL) {
            return NULL;
        }
    }
    return list;
}

uint32_t stk_launch_devices_masks(stk_gang *g, const char *(*ret_pairs)[2], uint32_t n_max)
{
    static const char *const masks[] = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                        "ZE_AFFINITY_MASK", "HABANA_VISIBLE_MODULES"};
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof masks / sizeof *masks && g->n_devices < g->config->n_seen; i++) {
        const char *set = getenv(masks[i]);
        const char *value = chosen(g, set == NULL && i == 0 ? unmasked(g) : set);
        if (value != NULL && n < n_max) {
            ret_pairs[n][0] = masks[i];
            ret_pairs[n++][1] = value;
        }
    }
    /* HIP counts within what ROCR left over. */
    const char *hip = n > 0 && n < n_max ? getenv("HIP_VISIBLE_DEVICES") : NULL;
    if (hip != NULL && chosen(g, hip) != NULL) {
        const char *text = "";
        for (uint32_t i = 0; i < g->n_devices && text != NULL; i++) {
            text = stk_arena_printf(g->arena, "%s%s%u", text, i > 0 ? "," : "", i);
        }
        ret_pairs[n][0] = "HIP_VISIBLE_DEVICES";
        ret_pairs[n++][1] = text;
    }
    return n;
}

/* --- CPUs near --- */

static void add_listed(const char *list, cpu_set_t *set)
{
    for (const char *at = list; at != NULL && *at != '\0';) {
        char *end;
        unsigned long first = strtoul(at, &end, 10);
        unsigned long last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
        if (end == at) {
            return;
        }
        for (unsigned long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++) {
            CPU_SET(cpu, set);
        }
        at = *end == ',' ? end + 1 : end;
    }
}

bool stk_launch_devices_near(const stk_gang *g, cpu_set_t *ret_near)
{
    uint32_t own = each(g);
    for (uint32_t rank = 0; rank < g->n; rank++) {
        CPU_ZERO(&ret_near[rank]);
        for (uint32_t k = 0; k < own; k++) {
            add_listed(g->config->seen[g->devices[rank * own + k]].cpus, &ret_near[rank]);
        }
        if (CPU_COUNT(&ret_near[rank]) == 0) {
            return false;
        }
    }
    return true;
}
