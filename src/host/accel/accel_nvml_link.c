/* NVML: links between devices, and events. */
#include <sys/param.h>

#include "host/accel/accel_nvml.h"
#include "sys/clock.h"

enum { TO_GPU = 0, TO_SWITCH = 2 }; /* nvmlIntNvLinkDeviceType_t */

/* The slot of the device at a PCI address, or -1. */
static int32_t slot_at(const nvml *lib, const nvml_pci *wanted)
{
    for (uint32_t i = 0; i < lib->n; i++) {
        nvml_pci pci = {0};
        if (lib->units[i].parent < 0 &&
            NVML_CALL(lib, pci, lib->units[i].handle, &pci) == NVML_OK &&
            pci.domain == wanted->domain && pci.bus == wanted->bus &&
            pci.device == wanted->device) {
            return (int32_t)i;
        }
    }
    return -1;
}

static void count_links(nvml *lib, uint32_t slot)
{
    nvml_device handle = lib->units[slot].handle;
    for (unsigned link = 0, up = 0; link < NVML_LINKS; link++) {
        if (NVML_CALL(lib, link_state, handle, link, &up) != NVML_OK) {
            return;
        }
        nvml_pci far = {0};
        unsigned type = 0;
        if (up != 1 || NVML_CALL(lib, link_pci, handle, link, &far) != NVML_OK) {
            continue;
        }
        int32_t other = slot_at(lib, &far);
        if (other >= 0) {
            lib->direct[slot][other]++;
        } else if (NVML_CALL(lib, link_type, handle, link, &type) == NVML_OK && type == TO_SWITCH) {
            lib->to_switch[slot]++;
        }
    }
}

stk_closeness stk_nvml_link(void *self, uint32_t slot, uint32_t other, int32_t *ret_n)
{
    nvml *lib = self;
    const nvml_unit *a = &lib->units[slot], *b = &lib->units[other];
    for (uint32_t i = 0; !lib->links_known && i < lib->n; i++) {
        if (lib->units[i].parent < 0) {
            count_links(lib, i);
        }
    }
    lib->links_known = true;
    int32_t n = lib->direct[slot][other];
    if (n == 0) { /* switches connect every device to every other */
        n = MIN(lib->to_switch[slot], lib->to_switch[other]);
    }
    if (n > 0) {
        *ret_n = n;
        return STK_LINK_FABRIC;
    }
    unsigned level = 0;
    if (NVML_CALL(lib, ancestor, a->handle, b->handle, &level) != NVML_OK) {
        return STK_LINK_UNKNOWN;
    }
    if (level <= 20) {
        return STK_LINK_SWITCH; /* one board, one switch, several switches */
    }
    if (level <= 30) {
        return STK_LINK_HOST;
    }
    return level <= 40 ? STK_LINK_NODE : STK_LINK_SYSTEM;
}

static void listen(nvml *lib)
{
    lib->events_tried = true;
    if (NVML_CALL(lib, set_create, &lib->events) != NVML_OK) {
        lib->events = NULL;
        return;
    }
    for (uint32_t i = 0; i < lib->n; i++) {
        const nvml_unit *unit = &lib->units[i];
        if (unit->parent >= 0) {
            continue;
        }
        if (NVML_CALL(lib, register_events, unit->handle, NVML_EVENT_XID | NVML_EVENT_DOUBLE_BIT,
                      lib->events) != NVML_OK) { /* a device without ECC reports only Xids */
            (void)NVML_CALL(lib, register_events, unit->handle, NVML_EVENT_XID, lib->events);
        }
    }
}

bool stk_nvml_next_event(void *self, stk_device_event *ret)
{
    nvml *lib = self;
    if (!lib->events_tried) {
        listen(lib);
    }
    nvml_event event = {0};
    if (lib->events == NULL || NVML_CALL(lib, set_wait, lib->events, &event, 0) != NVML_OK) {
        return false;
    }
    ret->i_device = UINT32_MAX;
    for (uint32_t i = 0; i < lib->n; i++) {
        if (lib->units[i].handle == event.device) {
            ret->i_device = i;
        }
    }
    ret->mono_ms = stk_clock_mono_ms(&stk_clock_real);
    ret->xid = 48; /* the Xid of a double bit error */
    if ((event.type & NVML_EVENT_XID) != 0) {
        ret->xid = (int32_t)event.data;
    }
    return true;
}
