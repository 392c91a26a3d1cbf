/* A request on this host: possible, free now, leased. */
#include "host/fit/fit.h"

#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/text.h"

enum { DOCUMENT_BYTES = 1 << 20, RACES = 8 };

/* A document of one step, so that this host answers as it would for a run of its own. */
static int make_spec(const char *resources, stk_spec **ret, stk_err *err)
{
    STK_BUF_AUTO text = STK_BUF_INIT(DOCUMENT_BYTES);
    stk_json_open(&text, NULL, '{');
    stk_json_put_whole(&text, "stoker", 1);
    stk_json_put_text(&text, "name", "fit");
    stk_json_open(&text, "steps", '{');
    stk_json_open(&text, "ask", '{');
    stk_json_put_text(&text, "run", "true");
    stk_json_put_raw(&text, "resources", resources);
    stk_json_close(&text, '}');
    stk_json_close(&text, '}');
    stk_json_close(&text, '}');
    STK_TRY(stk_buf_check(&text, err));
    return stk_spec_parse(text.data, text.len, &(stk_spec_place){0}, ret, err);
}

/* The caller names its step itself, and its machines have no policy. */
static void strip(stk_err *err)
{
    static const char lead[] = "step 'ask': ";
    if (strncmp(err->text, lead, sizeof lead - 1) == 0) {
        memmove(err->text, err->text + sizeof lead - 1, strlen(err->text) - sizeof lead + 2);
    }
    if (strstr(err->hint, "--policy") != NULL) {
        (void)snprintf(err->hint, sizeof err->hint, "lower it");
    }
}

int stk_fit_make(const stk_capacity *capacity, const char *resources, stk_fit *ret, stk_err *err)
{
    stk_err why = {0};
    *ret = (stk_fit){.capacity = capacity};
    int rc = make_spec(resources, &ret->spec, &why);
    if (rc == 0) {
        rc = stk_plan_new(ret->spec, capacity, NULL, STK_POLICY_STRICT, &ret->plan, &why);
    }
    if (rc < 0) {
        strip(&why);
        stk_fit_done(ret);
        if (err != NULL) {
            *err = why;
        }
        return rc;
    }
    ret->request = stk_plan_request(ret->plan, 0);
    return 0;
}

void stk_fit_done(stk_fit *fit)
{
    stk_plan_free(fit->plan);
    stk_spec_free(fit->spec);
    *fit = (stk_fit){0};
}

/* What is free of each device, in the pack room's form. */
static int look_at_devices(stk_accel *accel, const stk_capacity *capacity, stk_pack_device *ret,
                           uint32_t *ret_n_free, stk_err *err)
{
    int64_t bytes[STK_LIMIT_DEVICES];
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_lease_free(accel, arena, bytes, NULL, err));
    stk_plan_pack_devices(capacity, ret);
    *ret_n_free = 0;
    for (uint32_t i = 0; i < capacity->n_devices; i++) {
        if (bytes[i] == 0) {
            ret[i].taken = true;
        } else if (bytes[i] > 0) {
            ret[i].free_mib = (int32_t)MIN(bytes[i] >> 20, (int64_t)ret[i].total_mib);
        }
        *ret_n_free += !ret[i].taken && ret[i].free_mib == ret[i].total_mib;
    }
    return 0;
}

int stk_fit_look(stk_accel *accel, const stk_fit *fit, stk_fit_now *ret, stk_err *err)
{
    stk_pack_device devices[STK_LIMIT_DEVICES];
    const stk_request *r = fit->request;
    *ret = (stk_fit_now){.is_free = r->n_asks == 0};
    if (fit->capacity->n_devices == 0) {
        return 0;
    }
    STK_TRY(look_at_devices(accel, fit->capacity, devices, &ret->n_free, err));
    const stk_pack_host host = {devices, fit->capacity->n_devices, fit->capacity->links};
    for (uint32_t k = 0; k < r->n_asks; k++) {
        for (uint32_t i = 0; i < fit->capacity->n_devices; i++) {
            if (stk_devset_has(&r->asks[k].wanted, i)) {
                stk_devset_add(&ret->wanted, i);
            }
        }
        if (!ret->is_free && stk_pack_choose(&host, &r->asks[k], NULL, &ret->chosen)) {
            ret->is_free = true;
            ret->share_bytes = (int64_t)r->asks[k].share_mib << 20;
        }
    }
    return 0;
}

static int say_busy(stk_accel *accel, const stk_fit *fit, const stk_devset *wanted, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *who = stk_fit_holders(accel, wanted, arena);
    return stk_err_set(err, STK_E_BUSY, "its devices aren't free: %.600s",
                       stk_text_or(who, fit->capacity->where));
}

int stk_fit_lease(stk_accel *accel, const stk_fit *fit, const char *label, stk_lease *ret,
                  stk_err *err)
{
    stk_fit_now now = {0};
    for (int i = 0; i < RACES; i++) {
        STK_TRY(stk_fit_look(accel, fit, &now, err));
        if (fit->request->n_asks == 0 || !now.is_free) {
            break;
        }
        int rc = stk_lease_take(accel, &now.chosen, now.share_bytes, label, ret, NULL, err);
        if (rc != STK_E_BUSY) {
            return rc;
        }
    }
    if (fit->request->n_asks == 0) {
        return 0;
    }
    return say_busy(accel, fit, &now.wanted, err);
}
