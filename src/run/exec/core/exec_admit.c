/* Grants an attempt its devices, CPUs and memory before it starts, and releases them after. */
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "run/exec/core/exec_devices.h"
#include "run/exec/core/exec_event.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/place/exec_place.h"

exec_slot *stk_exec_slot_new(stk_exec *x)
{
    exec_slot *slot = x->free_slots;
    if (slot != NULL) {
        x->free_slots = slot->next_free;
        memset(slot, 0, sizeof *slot);
        return slot;
    }
    return calloc(1, sizeof *slot);
}

void stk_exec_release(stk_exec *x, uint32_t task)
{
    exec_slot *slot = x->tasks[task].slot;
    if (slot == NULL) {
        return;
    }
    for (uint32_t i = 0; i < slot->n_cpus; i++) {
        x->cpu_load[slot->cpus[i]]--;
        slot->cpus[i] = 0;
    }
    stk_lease_drop(&slot->lease);
    x->outside.n_leases -= stk_devset_count(&slot->devices) > 0;
    slot->next_free = x->free_slots;
    x->free_slots = slot;
    x->tasks[task].slot = NULL;
}

/* True if the kernel's list ("0-15,32-47") has this CPU. */
static bool is_listed(const char *list, uint32_t cpu)
{
    for (const char *at = list; at != NULL && *at != '\0';) {
        char *end;
        unsigned long first = strtoul(at, &end, 10), last = first;
        if (*end == '-') {
            last = strtoul(end + 1, &end, 10);
        }
        if (end == at || (cpu >= first && cpu <= last)) {
            return end != at;
        }
        at = *end == ',' ? end + 1 : end;
    }
    return false;
}

/* True if the CPU is near one of the attempt's devices. */
static bool is_near(const stk_exec *x, const exec_slot *slot, uint32_t cpu)
{
    for (uint32_t i = 0; i < slot->lease.n; i++) {
        if (is_listed(stk_accel_device(x->config.accel, slot->lease.devices[i])->cpus, cpu)) {
            return true;
        }
    }
    return false;
}

/* Picks the least loaded CPUs, among them those near the devices, lowest number first. slot->cpus
 * has indices into x->cpu_ids. */
static int pick_cpus(stk_exec *x, exec_slot *slot, uint32_t n, stk_err *err)
{
    uint32_t *cost = stk_arena_array(x->tick, x->n_cpus + 1, sizeof *cost);
    STK_TRY(stk_err_if_null(cost, err));
    for (uint32_t i = 0; i < x->n_cpus; i++) {
        cost[i] = x->cpu_load[i] * 2 + !is_near(x, slot, x->cpu_ids[i]);
    }
    n = MIN(n, x->n_cpus);
    n = MIN(n, STK_LIMIT_CPUS_PINNED);
    while (slot->n_cpus < n) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < x->n_cpus; i++) {
            if (cost[i] < cost[best]) {
                best = i;
            }
        }
        cost[best] = UINT32_MAX; /* taken */
        slot->cpus[slot->n_cpus++] = best;
        x->cpu_load[best]++;
    }
    return 0;
}

int64_t stk_exec_memory_limit(const stk_exec *x, uint32_t task)
{
    const stk_request *r = stk_plan_request(x->config.plan, x->tasks[task].i_step);
    if (!r->limit_memory) {
        return 0;
    }
    return stk_sched_asks(x->sched, task).memory_bytes;
}

static void add_asked_devices(const stk_alternative *a, stk_buf *buf)
{
    stk_json_put_known_whole(buf, "gpu_count", a->gpu_count);
    if (a->gpu_memory_bytes > 0) {
        stk_json_put_whole(buf, "gpu_memory_bytes", a->gpu_memory_bytes);
    } else if (a->gpu_memory_bytes == STK_GPU_MEMORY_AUTO) {
        stk_json_put_text(buf, "gpu_memory", "auto");
    }
    stk_json_put_known_text(buf, "gpu_class", a->gpu_class);
    stk_json_put_known_text(buf, "gpu_vendor", a->gpu_vendor);
}

void stk_exec_put_asked(const stk_resources *r, stk_buf *buf)
{
    stk_json_open(buf, "asked", '{');
    if (r->cpu_milli >= 0) {
        stk_json_put_real(buf, "cpu_count", (double)r->cpu_milli / 1000);
    }
    stk_json_put_known_whole(buf, "memory_bytes", r->memory_bytes);
    add_asked_devices(&r->base, buf);
    if (r->n_any_of > 0) {
        stk_json_open(buf, "any_of", '[');
        for (uint32_t i = 0; i < r->n_any_of; i++) {
            stk_json_open(buf, NULL, '{');
            add_asked_devices(&r->any_of[i], buf);
            stk_json_close(buf, '}');
        }
        stk_json_close(buf, ']');
    }
    stk_json_close(buf, '}');
}

/* The attempt's share of the host's CPUs: its request for all ranks together, at most all CPUs. */
int64_t stk_exec_cpu_milli(const stk_exec *x, uint32_t task)
{
    stk_pack_ask asks[STK_LIMIT_ASKS];
    stk_request r =
        stk_exec_request(x->config.plan, x->tasks[task].i_step, stk_exec_ranks(x, task), asks);
    if (r.place > 0 || x->graph.grow == NULL) {
        return r.cpu_milli;
    }
    return MIN(r.cpu_milli, x->config.capacity->cpu_milli);
}

static void put_granted_device(stk_buf *buf, const stk_device *d, int64_t share_bytes)
{
    const char *const texts[][2] = {{"uuid", d->uuid},
                                    {"model", d->model},
                                    {"noun", d->noun},
                                    {"profile", d->profile},
                                    {"cpus", d->cpus}};
    stk_json_open(buf, NULL, '{');
    stk_json_put_text(buf, "vendor", d->vendor);
    stk_json_put_whole(buf, "index", d->index);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        stk_json_put_known_text(buf, texts[i][0], texts[i][1]);
    }
    stk_json_put_known_whole(buf, "memory_bytes", d->memory_bytes);
    if (share_bytes > 0) {
        stk_json_put_whole(buf, "share_bytes", share_bytes);
    }
    stk_json_close(buf, '}');
}

void stk_exec_put_granted(const stk_exec *x, uint32_t task, stk_buf *buf)
{
    const exec_slot *slot = x->tasks[task].slot;
    const stk_request *r = stk_plan_request(x->config.plan, x->tasks[task].i_step);
    if (stk_exec_is_away(x, task)) {
        stk_exec_put_away_granted(x, task, buf);
        return;
    }
    int64_t memory_bytes = stk_exec_memory_limit(x, task);
    stk_json_open(buf, "granted", '{');
    if (r->limit_cpu) {
        stk_json_put_real(buf, "cpu_count", (double)stk_exec_cpu_milli(x, task) / 1000);
        stk_json_open(buf, "cpus", '[');
        for (uint32_t i = 0; i < slot->n_cpus; i++) {
            stk_json_put_whole(buf, NULL, x->cpu_ids[slot->cpus[i]]);
        }
        stk_json_close(buf, ']');
        stk_json_put_whole(buf, "threads", slot->n_cpus);
    }
    if (memory_bytes > 0) {
        stk_json_put_whole(buf, "memory_bytes", memory_bytes);
    }
    stk_json_open(buf, "devices", '[');
    for (uint32_t i = 0; i < slot->lease.n; i++) {
        put_granted_device(buf, stk_accel_device(x->config.accel, slot->lease.devices[i]),
                           slot->lease.share_bytes);
    }
    stk_json_close(buf, ']');
    if (stk_exec_is_contained(x, task)) {
        stk_exec_put_container_image(x, task, buf);
    }
    stk_json_close(buf, '}');
}

int stk_exec_admit(stk_exec *x, const stk_action *start, stk_err *err)
{
    uint32_t task = start->task;
    exec_task *t = &x->tasks[task];
    const stk_request *r = stk_plan_request(x->config.plan, t->i_step);
    exec_slot *slot = stk_exec_slot_new(x);
    STK_TRY(stk_err_if_null(slot, err));
    t->slot = slot;
    if (start->i_ask != STK_SCHED_NO_ASK) {
        int rc = stk_exec_lease(x, start, &slot->lease, err);
        if (rc < 0) {
            stk_exec_release(x, task);
            return rc == STK_E_BUSY ? 0 : rc;
        }
        slot->devices = start->devices;
        x->outside.n_leases++;
    }
    if (r->limit_cpu && r->place == 0) {
        uint32_t n_cpus = (uint32_t)((stk_exec_cpu_milli(x, task) + 999) / 1000);
        STK_TRY(pick_cpus(x, slot, n_cpus, err));
    }
    STK_BUF_AUTO buf = STK_BUF_INIT(1 << 20);
    stk_json_open(&buf, NULL, '{');
    stk_exec_put_granted(x, task, &buf);
    if (start->i_ask != STK_SCHED_NO_ASK) {
        stk_json_put_whole(&buf, "ask", start->i_ask);
    }
    stk_json_put_known_text(&buf, "miss", t->miss);
    stk_json_close(&buf, '}');
    STK_TRY(stk_buf_check(&buf, err));
    STK_TRY(stk_exec_push_launch(x, task, err));
    t->hook_started = t->stopped = false;
    t->xid = 0;
    return stk_exec_emit(x,
                         &(stk_sched_event){.kind = STK_EV_TASK_STARTED,
                                            .task = task,
                                            .attempt = start->attempt,
                                            .i_ask = start->i_ask,
                                            .devices = start->devices},
                         &buf, err);
}
