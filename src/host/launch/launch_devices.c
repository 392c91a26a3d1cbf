/* Assigns devices to ranks: finds the CPUs near them, and drops devices of failed ranks.
 *
 * Every rank sees all devices and picks by LOCAL_RANK: ranks get equal numbers of devices, in the
 * order of the mask. If they can't be divided evenly, no device belongs to a rank. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "host/launch/launch_private.h"
#include "host/launch/launch_ranks.h"

/* The number of devices per rank; 0: unknown. */
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
        n_out -= out;
        for (uint32_t k = 0; k < own && !out; k++) {
            g->devices[left++] = g->devices[rank * own + k];
        }
    }
    if (own > 0) {
        g->n_devices = left;
    }
}

/* --- the masks --- */

enum { MASK_BYTES = 1 << 20 };

/* The entries of `list` for the remaining devices; NULL: it isn't a list of these devices. */
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
    STK_BUF_AUTO text = STK_BUF_INIT(MASK_BYTES);
    for (uint32_t i = 0; i < g->n_devices; i++) {
        uint32_t k = g->devices[i];
        stk_buf_separate(&text, ",");
        stk_buf_printf(&text, "%.*s", (int)lengths[k], entries[k]);
    }
    if (text.failed) {
        return NULL;
    }
    return stk_arena_dup(g->arena, stk_text_or(text.data, ""));
}

/* The mask equivalent to an unset CUDA_VISIBLE_DEVICES; NULL: the devices aren't NVIDIA's. */
static const char *unmasked(const stk_gang *g)
{
    STK_BUF_AUTO list = STK_BUF_INIT(MASK_BYTES);
    for (uint32_t i = 0; i < g->config->n_seen; i++) {
        if (g->config->seen[i].mask == NULL) {
            return NULL;
        }
        stk_buf_separate(&list, ",");
        stk_buf_text(&list, g->config->seen[i].mask);
    }
    return stk_buf_keep(&list, g->arena);
}

uint32_t stk_launch_devices_masks(stk_gang *g, const char *(*ret_pairs)[2], uint32_t n_max)
{
    static const char *const masks[] = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                        "ZE_AFFINITY_MASK", "HABANA_VISIBLE_MODULES"};
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof masks / sizeof *masks && g->n_devices < g->config->n_seen; i++) {
        const char *set = getenv(masks[i]);
        if (set == NULL && i == 0) {
            set = unmasked(g);
        }
        const char *value = chosen(g, set);
        if (value != NULL && n < n_max) {
            ret_pairs[n][0] = masks[i];
            ret_pairs[n++][1] = value;
        }
    }
    /* HIP numbers the devices that the ROCR mask leaves. */
    const char *hip = getenv("HIP_VISIBLE_DEVICES");
    if (n > 0 && n < n_max && hip != NULL && chosen(g, hip) != NULL) {
        STK_BUF_AUTO text = STK_BUF_INIT(MASK_BYTES);
        for (uint32_t i = 0; i < g->n_devices; i++) {
            stk_buf_separate(&text, ",");
            stk_buf_printf(&text, "%u", i);
        }
        ret_pairs[n][0] = "HIP_VISIBLE_DEVICES";
        ret_pairs[n++][1] = stk_arena_dup(g->arena, stk_text_or(text.data, ""));
    }
    return n;
}

/* --- CPUs near devices --- */

static void add_listed(const char *list, cpu_set_t *set)
{
    for (const char *at = list; at != NULL && *at != '\0';) {
        char *end;
        unsigned long first = strtoul(at, &end, 10);
        unsigned long last = first;
        if (*end == '-') {
            last = strtoul(end + 1, &end, 10);
        }
        if (end == at) {
            return;
        }
        for (unsigned long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++) {
            CPU_SET(cpu, set);
        }
        at = end + (*end == ',');
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
