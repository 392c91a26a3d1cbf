/* Checks before the first task whether the devices, the driver and the frameworks of the steps'
 * environment fit together. Only runs whose steps get devices pay for it. */
#include "run/run_check.h"

#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/text.h"
#include "base/units.h"
#include "run/run_containers.h"
#include "run/run_python.h"
#include "sys/file.h"

static bool asks_for_devices(const stk_spec *spec)
{
    for (uint32_t i = 0; i < stk_spec_n_steps(spec); i++) {
        if (stk_spec_n_devices(&stk_spec_step(spec, i)->settings->resources) > 0) {
            return true;
        }
    }
    return false;
}

int stk_run_check_devices(const stk_spec *spec, stk_accel *accel, stk_findings *findings,
                          stk_err *err)
{
    if (!asks_for_devices(spec) || stk_accel_n_devices(accel) == 0 ||
        stk_accel_is_simulated(accel)) {
        return 0;
    }
    int rc = stk_preflight_devices(accel, NULL, findings, err);
    for (uint32_t k = 0; rc == 0 && k < findings->n; k++) {
        const stk_finding *f = &findings->items[k];
        for (uint32_t i = 0;
             f->level == STK_CHECK_ERROR && f->subject != NULL && i < stk_accel_n_devices(accel);
             i++) {
            if (strcmp(stk_accel_device(accel, i)->uuid, f->subject) == 0) {
                stk_accel_exclude(accel, i, f->text);
            }
        }
    }
    return rc;
}

/* --- frameworks --- */

typedef struct check {
    const stk_spec *spec;
    const stk_place *places; /* by step */
    stk_accel *accel;
    stk_plan *plan;
    stk_arena *arena;
    stk_framework found[STK_PREFLIGHT_FRAMEWORKS];
    uint32_t n_found;
} check;

/* STOKER_ALLOW_CPU_BUILD, in the step's environment or ours: the user wants a CPU-only build. */
bool stk_run_allows_cpu_build(const stk_step *step)
{
    static const char name[] = "STOKER_ALLOW_CPU_BUILD";
    const char *value = getenv(name);
    for (uint32_t i = 0; i < step->settings->n_env; i++) {
        if (strcmp(step->settings->env[i].key, name) == 0) {
            value = step->settings->env[i].value;
        }
    }
    return value != NULL && (strcmp(value, "1") == 0 || strcasecmp(value, "true") == 0 ||
                             strcasecmp(value, "yes") == 0 || strcasecmp(value, "on") == 0);
}

/* The devices that a step may get, by all its alternatives. */
static stk_devset wanted(const stk_request *request)
{
    stk_devset set = {0};
    for (uint32_t i = 0; i < request->n_asks; i++) {
        for (uint32_t w = 0; w < STK_DEVSET_WORDS; w++) {
            set.words[w] |= request->asks[i].wanted.words[w];
        }
    }
    return set;
}

static int refuse_step(const check *c, const stk_step *step, const stk_finding *f, stk_err *err)
{
    stk_err_set(err, STK_E_RESOURCES, "step '%s': %s (%s)", step->name, f->text, f->subject);
    stk_err_hint(err, "%s, or set STOKER_ALLOW_CPU_BUILD=1 to run it anyway",
                 stk_text_or(f->remedy, "see 'stoker doctor'"));
    return stk_run_at_step(c->spec, step, err);
}

static int check_step(check *c, const stk_step *step, const stk_request *request, stk_err *err)
{
    stk_findings findings = {.arena = c->arena};
    stk_devset devices = wanted(request);
    STK_TRY(stk_preflight_frameworks(c->accel, &devices, c->found, c->n_found, step->uses,
                                     step->n_uses, &findings, err));
    bool allowed = stk_run_allows_cpu_build(step);
    for (uint32_t i = 0; i < findings.n; i++) {
        const stk_finding *f = &findings.items[i];
        if (f->level == STK_CHECK_ERROR && !allowed) {
            return refuse_step(c, step, f, err);
        }
        if (f->level >= STK_CHECK_WARNING && step->n_uses > 0) {
            STK_TRY(stk_plan_remark(c->plan, err, "step '%s': %s", step->name, f->text));
        } else if (f->level >= STK_CHECK_WARNING) {
            STK_TRY(stk_plan_remark(c->plan, err, "%s", f->text));
        }
    }
    return 0;
}

/* Steps with the same settings and frameworks get the same answer; neighbours are often alike. */
static bool is_alike(const stk_step *a, const stk_step *b)
{
    bool alike = a != NULL && a->settings == b->settings && a->n_uses == b->n_uses;
    for (uint32_t i = 0; alike && i < b->n_uses; i++) {
        alike = strcmp(a->uses[i], b->uses[i]) == 0;
    }
    return alike;
}

/* True for a Python step that doesn't name its frameworks (an empty list names them: none). A
 * command uses only the frameworks that it names. */
static bool may_use_any(const stk_step *step)
{
    return step->python != NULL && step->uses == NULL;
}

static int check_steps(check *c, stk_err *err)
{
    const stk_step *last = NULL;
    bool told = false;
    for (uint32_t i = 0; i < stk_spec_n_steps(c->spec); i++) {
        const stk_step *step = stk_spec_step(c->spec, i);
        const stk_request *request = stk_plan_request(c->plan, i);
        bool looked = step->n_uses > 0 || (may_use_any(step) && !told);
        if (request->n_asks == 0 || c->places[i].kind != STK_PLACE_LOCAL || !looked ||
            is_alike(last, step)) {
            continue;
        }
        STK_TRY(check_step(c, step, request, err));
        told = told || may_use_any(step);
        last = step;
    }
    return 0;
}

static bool gives_devices(const stk_spec *spec, const stk_plan *plan)
{
    for (uint32_t i = 0; i < stk_spec_n_steps(spec); i++) {
        const stk_step *step = stk_spec_step(spec, i);
        if (stk_plan_request(plan, i)->n_asks > 0 && (step->n_uses > 0 || may_use_any(step))) {
            return true;
        }
    }
    return false;
}

int stk_run_check_steps(const stk_spec *spec, const stk_run_options *options,
                        const stk_place *places, stk_accel *accel, const stk_findings *devices,
                        stk_plan *plan, stk_err *err)
{
    STK_TRY(stk_run_note_findings(devices, plan, err));
    if (stk_accel_is_simulated(accel) || !gives_devices(spec, plan)) {
        return 0;
    }
    check c = {
        .spec = spec, .places = places, .accel = accel, .plan = plan, .arena = devices->arena};
    /* the interpreter hides its environment; the worker checks again from inside */
    if (stk_preflight_find(stk_run_spec_python(spec, options->python, c.arena), NULL, c.arena,
                           c.found, STK_PREFLIGHT_FRAMEWORKS, &c.n_found, NULL) < 0) {
        return 0;
    }
    return check_steps(&c, err);
}

/* --- peaks of earlier runs --- */

static bool says_gpu_memory(const stk_resources *res)
{
    stk_alternative wants[STK_LIMIT_ASKS];
    uint32_t n = stk_spec_alternatives(res, wants);
    for (uint32_t i = 0; i < n; i++) {
        if (wants[i].gpu_memory_bytes != -1) {
            return true;
        }
    }
    return false;
}

/* Opens the store to read. If that fails, perhaps because another run is making the store, there
 * are no peaks; opening the store to write reports the error later. */
static int open_peaks(stk_store **ret, stk_err *err)
{
    STK_TEXT_AUTO path = NULL;
    STK_TRY(stk_store_find(".", STK_STORE_CREATE, &path, err));
    if (stk_file_exists(path)) {
        (void)stk_store_open(path, STK_STORE_READONLY, ret, NULL);
    }
    return 0;
}

int stk_run_gpu_peaks(const stk_spec *spec, stk_arena *arena, const int64_t **ret_peaks,
                      stk_err *err)
{
    uint32_t n = stk_spec_n_steps(spec);
    int64_t *peaks = NULL;
    STK_STORE_AUTO store = NULL;
    for (uint32_t i = 0; i < n; i++) {
        const stk_step *step = stk_spec_step(spec, i);
        if (!says_gpu_memory(&step->settings->resources)) {
            continue;
        }
        if (peaks == NULL) {
            STK_TRY(open_peaks(&store, err));
            if (store == NULL) {
                return 0;
            }
            peaks = stk_arena_array(arena, n, sizeof *peaks);
            STK_TRY(stk_err_if_null(peaks, err));
            memset(peaks, 0xff, n * sizeof *peaks); /* -1: unknown */
        }
        STK_TRY(stk_store_peak(store, stk_spec_name(spec), step->name, &peaks[i], err));
    }
    *ret_peaks = peaks;
    return 0;
}

int64_t stk_run_idle_read_ms(void)
{
    const char *text = stk_text_if_any(getenv("STOKER_IDLE_READ"));
    int64_t ms = STK_LIMIT_IDLE_READ_AGE_MS;
    bool is_wrong = text != NULL && stk_units_parse_duration(text, &ms, NULL) < 0;
    return is_wrong ? 0 : ms;
}
