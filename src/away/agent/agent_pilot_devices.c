/* A pilot's devices: each attempt leases its own, as the steps of a run on this machine do, so two
 * never have one at the same time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "away/agent/agent_pilot.h"
#include "base/text.h"
#include "model/spec/spec.h"
#include "sys/clock.h"

enum { AGAIN_MS = 1000 }; /* somebody who isn't ours may give a device back */

static void forget_fit(pilot *p)
{
    stk_fit_done(&p->fit);
    free(p->fit_text);
    p->fit_text = NULL;
}

static int look_at_devices(pilot *p, stk_err *err)
{
    forget_fit(p);
    return stk_fit_capacity(p->accel, "its pilot", p->a->arena, &p->capacity, err);
}

int stk_pilot_devices_open(pilot *p, stk_err *err)
{
    const char *n = getenv("STOKER_PILOT_GPUS");
    bool has_devices = n != NULL && strtoul(n, NULL, 10) > 0;
    STK_TRY(stk_accel_open(has_devices ? getenv("STOKER_ACCEL") : "none", &p->accel, err));
    return look_at_devices(p, err);
}

int64_t stk_pilot_device_bytes(const pilot *p)
{
    int64_t least = 0;
    for (uint32_t i = 0; i < stk_accel_n_devices(p->accel); i++) {
        const stk_device *d = stk_accel_device(p->accel, i);
        if (d->usable && d->memory_bytes > 0) {
            least = least == 0 ? d->memory_bytes : MIN(least, d->memory_bytes);
        }
    }
    return least;
}

/* A class may be a word of the cluster's own, which says nothing of the devices that Slurm gave. */
static bool is_class_known(const pilot *p, const char *class)
{
    bool is = stk_spec_is_slice(class);
    for (uint32_t i = 0; i < stk_accel_n_devices(p->accel) && !is; i++) {
        const stk_device *d = stk_accel_device(p->accel, i);
        const stk_spec_device described = {.vendor = d->vendor,
                                           .noun = d->noun,
                                           .model = d->model,
                                           .profile = d->profile,
                                           .memory_bytes = d->memory_bytes};
        is = stk_spec_device_fits(class, NULL, &described) ||
             stk_spec_is_other_model(class, d->model);
    }
    return is;
}

int stk_pilot_read_devices(const pilot *p, piece *one, const stk_json *order, stk_err *err)
{
    int64_t n = stk_json_get_whole(order, "gpu_count", 0);
    int64_t bytes = stk_json_get_whole(order, "gpu_memory", 0);
    const char *class = stk_json_get_text(order, "gpu_class");
    STK_BUF_AUTO text = STK_BUF_INIT(64 << 10);
    if (n <= 0) {
        return 0;
    }
    stk_json_open(&text, NULL, '{');
    stk_json_put_int(&text, "gpu_count", n);
    if (bytes > 0) {
        char share[32];
        (void)snprintf(share, sizeof share, "%lldB", (long long)bytes);
        stk_json_put_text(&text, "gpu_memory", share);
    }
    if (class != NULL && is_class_known(p, class)) {
        stk_json_put_text(&text, "gpu_class", class);
    }
    stk_json_put_known_text(&text, "gpu_vendor", stk_json_get_text(order, "gpu_vendor"));
    stk_json_close(&text, '}');
    one->devices = stk_buf_keep(&text, one->a.arena);
    return stk_err_if_null(one->devices, err);
}

/* Many attempts ask for the same. */
static int fit_of(pilot *p, const piece *one, stk_err *err)
{
    if (p->fit_text != NULL && strcmp(p->fit_text, one->devices) == 0) {
        return 0;
    }
    forget_fit(p);
    STK_TRY(stk_fit_make(&p->capacity, one->devices, &p->fit, err));
    p->fit_text = strdup(one->devices);
    return stk_err_if_null(p->fit_text, err);
}

static int lease(pilot *p, piece *one, stk_err *err)
{
    char label[300];
    STK_TRY(fit_of(p, one, err));
    (void)snprintf(label, sizeof label, "run %s step %s", one->a.order.run, one->a.order.step);
    STK_TRY(stk_fit_lease(p->accel, &p->fit, label, &one->a.lease, err));
    STK_TRY(stk_agent_devices(&one->a, err));
    return stk_agent_make_job(&one->a, &one->job, err);
}

/* Nothing of ours has them, so nobody here will give them back. */
static void tell_wait(pilot *p, piece *one, const stk_err *why)
{
    if (!one->said_wait) {
        one->said_wait = true;
        stk_json_open(&p->news, NULL, '{');
        stk_json_put_text(&p->news, "waits", one->a.key);
        stk_json_put_text(&p->news, "text", why->text);
        stk_json_close(&p->news, '}');
        stk_buf_char(&p->news, '\n');
    }
}

int stk_pilot_lease(pilot *p, piece *one, stk_err *err)
{
    int64_t now = stk_clock_mono_ms(&stk_clock_real);
    if (one->devices == NULL) {
        return 0;
    }
    if (now < p->next_lease_ms) {
        return STK_E_BUSY;
    }
    int rc = lease(p, one, err);
    if (rc == STK_E_BUSY && p->used_cpu == 0) {
        tell_wait(p, one, err);
        STK_TRY(look_at_devices(p, err)); /* one may be out of order since */
    }
    p->next_lease_ms = rc == STK_E_BUSY ? now + AGAIN_MS : 0;
    return rc;
}

void stk_pilot_devices_close(pilot *p)
{
    forget_fit(p);
    stk_accel_close(p->accel);
}
