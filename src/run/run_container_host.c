/* What containers of a run need of this machine, asked for before its first task: the folders and
 * devices that options name, and a way for each GPU that a step may get. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "run/run_containers.h"

static int check_volume(const stk_run_containers *c, const stk_step *step, const stk_spec_volume *v,
                        stk_err *err)
{
    int rc = 0;
    bool is_here = strcmp(v->kind, "bind") == 0 || strcmp(v->kind, "device") == 0;
    if (strcmp(v->kind, "cdi") == 0) {
        rc = stk_contain_check_cdi(&c->engine, v->from, err);
    } else if (is_here && access(v->from, F_OK) < 0) {
        rc = stk_err_sys(err, STK_E_NOT_FOUND, errno, "%s, which goes into the container as %s",
                         v->from, v->to);
    }
    if (rc >= 0) {
        return 0;
    }
    return stk_err_context(err, "step '%s'", step->name);
}

static int check_volumes(const stk_run_containers *c, const stk_spec *spec, uint32_t i,
                         stk_err *err)
{
    stk_spec_volumes all;
    const stk_json *options = stk_json_read(c->arena, c->places[i].options);
    const stk_step *step = stk_spec_step(spec, i);
    if (!stk_spec_all_volumes(options, c->arena, &all)) {
        return stk_err_nomem(err);
    }
    for (uint32_t k = 0; k < all.n; k++) {
        if (check_volume(c, step, &all.items[k], err) < 0) {
            return stk_run_at_step(spec, step, err);
        }
    }
    return 0;
}

/* Any GPU that can be leased may become the step's. A step that may get a device of another vendor,
 * too, is left to its start. */
static int check_gpus(const stk_run_containers *c, const stk_spec *spec, uint32_t i,
                      const stk_accel *accel, stk_err *err)
{
    const stk_step *step = stk_spec_step(spec, i);
    uint32_t n = stk_accel_n_devices(accel);
    for (uint32_t k = 0; k < n; k++) {
        const stk_device *d = stk_accel_device(accel, k);
        if (d->usable && strcmp(d->vendor, "nvidia") != 0) {
            return 0;
        }
    }
    for (uint32_t k = 0; k < n; k++) {
        const stk_device *d = stk_accel_device(accel, k);
        if (d->usable && d->uuid != NULL && stk_contain_check_gpu(&c->engine, d->uuid, err) < 0) {
            stk_err_context(err, "step '%s'", step->name);
            return stk_run_at_step(spec, step, err);
        }
    }
    return 0;
}

int stk_run_check_host(const stk_run_containers *c, const stk_spec *spec, const stk_accel *accel,
                       const stk_plan *plan, stk_err *err)
{
    for (uint32_t i = 0; c->engine.socket != NULL && i < stk_spec_n_steps(spec); i++) {
        if (c->places[i].kind != STK_PLACE_DOCKER) {
            continue;
        }
        STK_TRY(check_volumes(c, spec, i, err));
        if (accel != NULL && !stk_accel_is_simulated(accel) &&
            stk_plan_request(plan, i)->n_asks > 0) {
            STK_TRY(check_gpus(c, spec, i, accel, err));
        }
    }
    return 0;
}
