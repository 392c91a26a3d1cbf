/* Devices: which tasks of this run hold which, what others hold, what fits now, and what is
 * reserved for tasks that have waited long. The pack room chooses the devices for a request. */
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/arena.h"
#include "model/sched/sched.h"
#include "model/sched/sched_internal.h"

#define NIL STK_SCHED_NIL

int stk_sched_devices_init(stk_sched *sched)
{
    stk_pack_host *host = &sched->config.host;
    const stk_pack_device *devices = host->devices;
    const uint8_t *links = host->links;
    uint32_t n = host->n;
    stk_pack_device *all = calloc((size_t)n + 1, sizeof *all);
    uint8_t *own_links = NULL;
    if (links != NULL) {
        own_links = malloc((size_t)n * n + 1);
    }
    sched->view = calloc(1, sizeof *sched->view);
    sched->host = calloc((size_t)n + 1, sizeof *sched->host);
    sched->devices = calloc((size_t)n + 1, sizeof *sched->devices);
    sched->free_grants = NIL;
    host->devices = all;
    host->links = own_links;
    if (sched->view != NULL) {
        sched->view->devices = calloc((size_t)n + 1, sizeof *sched->view->devices);
        sched->view->guess = calloc((size_t)n + 1, sizeof *sched->view->guess);
        sched->view->n_holders = calloc((size_t)n + 1, sizeof *sched->view->n_holders);
    }
    if (all == NULL || (links != NULL && own_links == NULL) || sched->view == NULL ||
        sched->host == NULL || sched->devices == NULL || sched->view->devices == NULL ||
        sched->view->guess == NULL || sched->view->n_holders == NULL) {
        return STK_E_NOMEM;
    }
    for (uint32_t i = 0; i < n; i++) {
        all[i] = devices[i];
        all[i].free_mib = devices[i].total_mib;
        sched->host[i] = all[i];
    }
    if (links != NULL) {
        memcpy(own_links, links, (size_t)n * n);
    }
    return 0;
}

void stk_sched_devices_done(stk_sched *sched)
{
    free((void *)sched->config.host.devices);
    free((void *)sched->config.host.links);
    if (sched->view != NULL) {
        free(sched->view->devices);
        free(sched->view->guess);
        free(sched->view->n_holders);
    }
    free(sched->view);
    free(sched->host);
    free(sched->devices);
    free(sched->grants);
    free(sched->wishes.items);
    free(sched->wishes.slots);
}

/* --- requests --- */

void stk_sched_wish_of_task(const stk_sched_task *task, stk_sched_wish *ret_wish)
{
    memset(ret_wish, 0, sizeof *ret_wish); /* padding is part of the key */
    ret_wish->n_asks = task->n_asks;
    for (uint32_t i = 0; i < task->n_asks; i++) {
        ret_wish->asks[i].n = task->asks[i].n;
        ret_wish->asks[i].share_mib = task->asks[i].share_mib;
        ret_wish->asks[i].wanted = task->asks[i].wanted;
        ret_wish->asks[i].contiguous = task->asks[i].contiguous;
    }
}

static stk_pack_host host_of(const stk_sched *sched, const stk_pack_device *devices)
{
    return (stk_pack_host){devices, sched->config.host.n, sched->config.host.links};
}

bool stk_sched_is_placeable(const stk_sched *sched, const stk_pack_device *host,
                            const stk_sched_wish *wish)
{
    stk_pack_host all = host_of(sched, host);
    for (uint32_t i = 0; i < wish->n_asks; i++) {
        if (stk_pack_is_possible(&all, &wish->asks[i])) {
            return true;
        }
    }
    return false;
}

/* --- what this run holds --- */

bool stk_sched_may_take(const stk_sched *sched, const stk_sched_event *event)
{
    const stk_sched_kind *kind = stk_sched_kind_at(sched, sched->nodes[event->task].kind);
    const stk_sched_wish *wish = stk_sched_wish_of(sched, kind);
    uint32_t n = stk_devset_count(&event->devices);
    if (wish == NULL || event->i_ask == STK_SCHED_NO_ASK) {
        return n == 0;
    }
    if (event->i_ask >= wish->n_asks || n != wish->asks[event->i_ask].n) {
        return false;
    }
    const stk_pack_ask *ask = &wish->asks[event->i_ask];
    for (uint32_t i = 0; i < STK_LIMIT_DEVICES && n > 0; i++) {
        if (!stk_devset_has(&event->devices, i)) {
            continue;
        }
        n--;
        const stk_sched_device *d = &sched->devices[i];
        if (i >= sched->config.host.n || !stk_devset_has(&ask->wanted, i) || d->is_whole ||
            (ask->share_mib == 0 ? d->n_holders > 0
                                 : ask->share_mib > sched->host[i].total_mib - d->own_mib)) {
            return false;
        }
    }
    return true;
}

int stk_sched_grants_reserve(stk_sched *sched)
{
    if (sched->free_grants != NIL) {
        return 0;
    }
    return stk_array_reserve(&sched->grants, &sched->cap_grants, (uint64_t)sched->n_grants + 1,
                             sizeof *sched->grants);
}

static void hold(stk_sched *sched, const stk_sched_grant *grant, int sign)
{
    for (uint32_t i = 0; i < sched->config.host.n; i++) {
        if (stk_devset_has(&grant->devices, i)) {
            stk_sched_device *d = &sched->devices[i];
            d->n_holders += (uint32_t)sign;
            d->own_mib += sign * grant->share_mib;
            d->is_whole = grant->share_mib == 0 && sign > 0;
        }
    }
}

void stk_sched_take(stk_sched *sched, const stk_sched_event *event)
{
    stk_sched_node *node = &sched->nodes[event->task];
    const stk_sched_wish *wish = stk_sched_wish_of(sched, stk_sched_kind_at(sched, node->kind));
    if (wish == NULL || event->i_ask == STK_SCHED_NO_ASK) {
        return;
    }
    uint32_t i = sched->free_grants;
    if (i != NIL) {
        sched->free_grants = sched->grants[i].next_free;
    } else {
        i = sched->n_grants++;
    }
    sched->grants[i] = (stk_sched_grant){event->devices, wish->asks[event->i_ask].share_mib, NIL};
    hold(sched, &sched->grants[i], 1);
    node->grant = i;
}

void stk_sched_give_back(stk_sched *sched, uint32_t grant)
{
    hold(sched, &sched->grants[grant], -1);
    sched->grants[grant].next_free = sched->free_grants;
    sched->free_grants = grant;
}

/* --- what others hold --- */

/* Drops reservations that include device i, so that they are made anew; drops claims only if the
 * device is gone. */
static void unreserve(stk_sched *sched, uint32_t i, bool is_gone)
{
    for (uint32_t k = 0; k < sched->n_live; k++) {
        stk_sched_kind *kind = stk_sched_kind_at(sched, sched->live[k]);
        if (stk_devset_has(&kind->reserved, i) && (is_gone || !kind->is_claimed)) {
            kind->has_reserved = kind->is_claimed = false;
        }
    }
}

void stk_sched_set_outside(stk_sched *sched, uint32_t device, int32_t mib)
{
    sched->devices[device].outside_mib = mib;
    if (mib > 0) {
        unreserve(sched, device, false);
    }
}

void stk_sched_set_gone(stk_sched *sched, uint32_t device)
{
    sched->host[device].taken = true;
    sched->is_any_gone = true;
    unreserve(sched, device, true);
    for (uint32_t i = 0; i < sched->wishes.n; i++) {
        stk_sched_wish *wish = (stk_sched_wish *)sched->wishes.items + i;
        wish->is_lost = !stk_sched_is_placeable(sched, sched->host, wish);
    }
}

/* --- the view --- */

void stk_sched_look(const stk_sched *sched)
{
    stk_sched_view *view = sched->view;
    view->closed = (stk_devset){0};
    for (uint32_t i = 0; i < sched->config.host.n; i++) {
        const stk_sched_device *d = &sched->devices[i];
        stk_pack_device *free = &view->devices[i];
        *free = sched->host[i];
        int64_t left = (int64_t)free->total_mib - d->own_mib - d->outside_mib;
        free->free_mib = (int32_t)MAX(left, 0);
        free->taken = free->taken || d->is_whole || d->outside_mib == STK_SCHED_ALL ||
                      (free->total_mib > 0 ? left <= 0 : d->outside_mib > 0);
        view->n_holders[i] = d->n_holders;
    }
}

static bool place_in(const stk_sched *sched, const stk_pack_device *devices,
                     const stk_sched_wish *wish, uint32_t *ret_i_ask, stk_devset *ret_devices)
{
    stk_pack_host host = host_of(sched, devices);
    for (uint32_t i = 0; i < wish->n_asks; i++) {
        if (stk_pack_choose(&host, &wish->asks[i], NULL, ret_devices)) {
            *ret_i_ask = i;
            return true;
        }
    }
    return false;
}

bool stk_sched_place(const stk_sched *sched, const stk_sched_wish *wish, uint32_t *ret_i_ask,
                     stk_devset *ret_devices)
{
    return place_in(sched, sched->view->devices, wish, ret_i_ask, ret_devices);
}

void stk_sched_view_take(const stk_sched *sched, const stk_pack_ask *ask, const stk_devset *devices)
{
    for (uint32_t i = 0; i < sched->config.host.n; i++) {
        if (stk_devset_has(devices, i)) {
            stk_pack_device *free = &sched->view->devices[i];
            sched->view->n_holders[i]++;
            free->free_mib -= ask->share_mib == 0 ? free->free_mib : ask->share_mib;
            free->taken = free->taken || ask->share_mib == 0 || free->free_mib <= 0;
        }
    }
}

void stk_sched_view_close(const stk_sched *sched, const stk_devset *devices)
{
    for (uint32_t i = 0; i < sched->config.host.n; i++) {
        if (stk_devset_has(devices, i)) {
            stk_devset_add(&sched->view->closed, i);
            sched->view->devices[i].taken = true;
        }
    }
}

/* --- reservations --- */

/* Places the wish as if all devices were free that this run can free and that at most n_holders
 * tasks hold. */
static bool place_later(const stk_sched *sched, const stk_sched_wish *wish, uint32_t n_holders,
                        stk_devset *ret_devices)
{
    stk_sched_view *view = sched->view;
    uint32_t i_ask;
    for (uint32_t i = 0; i < sched->config.host.n; i++) {
        view->guess[i] = sched->host[i];
        view->guess[i].taken = sched->host[i].taken || sched->devices[i].outside_mib > 0 ||
                               view->n_holders[i] > n_holders || stk_devset_has(&view->closed, i);
    }
    return place_in(sched, view->guess, wish, &i_ask, ret_devices);
}

bool stk_sched_reserve_devices(const stk_sched *sched, stk_sched_kind *kind)
{
    const stk_sched_wish *wish = stk_sched_wish_of(sched, kind);
    uint32_t i_ask;
    if (kind->has_reserved || stk_sched_place(sched, wish, &i_ask, &kind->reserved)) {
        kind->has_reserved = true; /* its free devices wait until the CPUs are free too */
        return true;
    }
    if (!place_later(sched, wish, UINT32_MAX, &kind->reserved)) {
        return false;
    }
    uint32_t n_holders = 0;
    while (!place_later(sched, wish, n_holders, &kind->reserved)) {
        n_holders = n_holders * 2 + 1; /* ends, because UINT32_MAX sets no limit */
    }
    kind->has_reserved = true;
    return true;
}

/* --- claims --- */

void stk_sched_set_claimed(stk_sched *sched, uint32_t task, const stk_devset *devices)
{
    stk_sched_kind *kind = stk_sched_kind_at(sched, sched->nodes[task].kind);
    kind->has_reserved = kind->is_claimed = stk_devset_count(devices) > 0;
    kind->reserved = *devices;
}

/* Places the wish as if all devices were free on which at most most_mib are held, by anyone. */
static bool place_claim(const stk_sched *sched, const stk_sched_wish *wish, int64_t most_mib,
                        const stk_devset *avoid, stk_devset *ret_devices)
{
    stk_pack_device *guess = sched->view->guess;
    uint32_t i_ask;
    for (uint32_t i = 0; i < sched->config.host.n; i++) {
        const stk_sched_device *d = &sched->devices[i];
        int64_t held = (int64_t)d->outside_mib + (d->is_whole ? STK_SCHED_ALL : d->own_mib);
        held = MIN(held, STK_SCHED_ALL);
        guess[i] = sched->host[i];
        guess[i].taken = guess[i].taken || held > most_mib || stk_devset_has(avoid, i);
    }
    return place_in(sched, guess, wish, &i_ask, ret_devices);
}

bool stk_sched_claim(const stk_sched *sched, uint32_t task, const stk_devset *avoid,
                     stk_devset *ret_devices)
{
    static const stk_devset none;
    const stk_sched_wish *wish =
        stk_sched_wish_of(sched, stk_sched_kind_at(sched, sched->nodes[task].kind));
    if (wish == NULL || !place_claim(sched, wish, STK_SCHED_ALL, &none, ret_devices)) {
        return false;
    }
    if (!place_claim(sched, wish, STK_SCHED_ALL, avoid, ret_devices)) {
        avoid = &none;
    }
    int64_t most_mib = 0;
    while (!place_claim(sched, wish, most_mib, avoid, ret_devices)) {
        most_mib = most_mib * 2 + 1; /* ends, because STK_SCHED_ALL sets no limit */
    }
    return true;
}

/* True if other runs hold some of the devices that the wish could use. */
static bool is_for_others(const stk_sched *sched, const stk_sched_wish *wish)
{
    bool is = false;
    for (uint32_t i = 0; i < sched->config.host.n; i++) {
        for (uint32_t k = 0; k < wish->n_asks && sched->devices[i].outside_mib > 0; k++) {
            is = is || (stk_devset_has(&wish->asks[k].wanted, i) && !sched->host[i].taken);
        }
    }
    return is;
}

uint32_t stk_sched_waiter(const stk_sched *sched)
{
    static const int64_t nothing[DIM_N];
    int64_t free[DIM_N];
    uint32_t found = NIL, i_ask;
    stk_devset devices;
    stk_sched_free_now(sched, free);
    stk_sched_look(sched);
    for (uint32_t k = 0; k < sched->n_live && !stk_sched_is_stopping(sched); k++) {
        const stk_sched_kind *kind = stk_sched_kind_at(sched, sched->live[k]);
        const stk_sched_wish *wish = stk_sched_wish_of(sched, kind);
        uint32_t first = kind->ready.first;
        if (wish != NULL && (found == NIL || sched->nodes[first].seq < sched->nodes[found].seq) &&
            stk_sched_fits(kind->ask, free, nothing) && is_for_others(sched, wish) &&
            !stk_sched_place(sched, wish, &i_ask, &devices)) {
            found = first;
        }
    }
    return found;
}

/* --- questions --- */

stk_sched_asking stk_sched_asks(const stk_sched *sched, uint32_t task)
{
    const stk_sched_kind *kind = stk_sched_kind_at(sched, sched->nodes[task].kind);
    const stk_sched_wish *wish = stk_sched_wish_of(sched, kind);
    stk_sched_asking asking = {.memory_bytes = kind->ask[stk_sched_memory_dim(kind->ask)]};
    if (wish != NULL) {
        asking.asks = wish->asks;
        asking.n_asks = (uint32_t)wish->n_asks;
    }
    return asking;
}

int32_t stk_sched_held(const stk_sched *sched, uint32_t device)
{
    const stk_sched_device *d = &sched->devices[device];
    return d->is_whole ? STK_SCHED_ALL : d->own_mib;
}

int32_t stk_sched_outside(const stk_sched *sched, uint32_t device)
{
    return sched->devices[device].outside_mib;
}

uint32_t stk_sched_holder(const stk_sched *sched, uint32_t device)
{
    for (uint32_t i = sched->lists[STK_TASK_RUNNING].first; i != NIL; i = sched->nodes[i].next) {
        uint32_t grant = sched->nodes[i].grant;
        if (grant != NIL && stk_devset_has(&sched->grants[grant].devices, device)) {
            return i;
        }
    }
    return NIL;
}
