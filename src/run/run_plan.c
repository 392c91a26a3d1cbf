#include "run/run_plan.h"

#include <stdlib.h>
#include <sys/param.h>

#include "host/fit/fit.h"
#include "run/run_check.h"
#include "sys/file.h"

/* Checks steps and images as far as possible without making anything. */
static int check_plan(stk_run_plan *p, const stk_run_options *options, stk_err *err)
{
    STK_TRY(stk_run_check_steps(p->spec, options, p->containers.places, p->accel, &p->devices,
                                p->plan, err));
    stk_err why = {0};
    STK_TRY(stk_run_images(&p->containers, p->spec, options, NULL, p->accel, p->plan, true, err));
    if (stk_run_check_host(&p->containers, p->spec, p->accel, p->plan, &why) < 0) {
        STK_TRY(stk_plan_remark(p->plan, err, "%s", why.text));
    }
    STK_TRY(stk_run_elsewhere_images(&p->elsewhere, p->spec, options, NULL, p->plan, true, err));
    return stk_run_elsewhere_check(&p->elsewhere, p->spec, p->plan, true, err);
}

int stk_run_plan_prepare(stk_run_plan *p, const stk_run_options *options, stk_err *err)
{
    STK_TRY(stk_run_places(p->spec, options, p->arena, &p->containers, err));
    STK_TRY(stk_run_elsewhere_find(p->spec, p->containers.places, options->drivers, p->arena,
                                   &p->elsewhere, err));
    p->policy = stk_run_elsewhere_policy(&p->elsewhere, options);
    p->devices.arena = p->arena;
    STK_TRY(stk_accel_open(getenv("STOKER_ACCEL"), &p->accel, err));
    STK_TRY(stk_run_check_devices(p->spec, p->accel, &p->devices, err));
    STK_TRY(stk_fit_capacity(p->accel, "this machine", p->arena, &p->capacity, err));
    stk_run_elsewhere_tell(&p->elsewhere, &p->capacity);
    return stk_run_gpu_peaks(p->spec, p->arena, &p->peaks, err);
}

int stk_run_plan_open(const stk_spec *spec, const stk_run_options *options, stk_run_plan *p,
                      stk_err *err)
{
    STK_TEXT_AUTO path = NULL;
    *p = (stk_run_plan){.spec = spec, .arena = stk_arena_new(0)};
    STK_TRY(stk_err_if_null(p->arena, err));
    STK_TRY(stk_run_plan_prepare(p, options, err));
    if (stk_accel_is_simulated(p->accel)) {
        p->capacity.where = "the simulated machine";
    }
    STK_TRY(stk_plan_new(spec, &p->capacity, p->peaks, p->policy, &p->plan, err));
    p->n_own_notes = stk_plan_n_notes(p->plan);
    STK_TRY(check_plan(p, options, err));
    STK_TRY(stk_store_find(".", STK_STORE_CREATE, &path, err));
    STK_TRY(stk_run_private_note(&p->containers, spec, path, p->plan, err));
    if (!stk_file_exists(path)) {
        return 0;
    }
    int rc = stk_store_open(path, STK_STORE_READONLY, &p->store, err);
    if (rc == STK_E_NOT_FOUND) { /* a folder without a database: nothing has run */
        *err = (stk_err){0};
        return 0;
    }
    STK_TRY(rc);
    stk_run_elsewhere_forecast(&p->elsewhere, p->store);
    return stk_forecast_new(p->store, p->plan, &p->forecast, err);
}

void stk_run_plan_close(stk_run_plan *p)
{
    stk_forecast_free(p->forecast);
    stk_store_close(p->store);
    stk_plan_free(p->plan);
    stk_accel_close(p->accel);
    stk_arena_free(p->arena);
}

uint32_t stk_run_plan_ranks(const stk_spec *spec, uint32_t i_step)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < stk_spec_n_steps(spec); i++) {
        const stk_step *from = stk_spec_step(spec, i);
        if (from->grows == STK_NEXT_PARALLEL && stk_step_leads_to(from, i_step)) {
            most = MAX(from->num_parallel, most);
        }
    }
    return most;
}

/* All ranks of a gang need their resources at once. Returns NULL, or what is missing. */
static const char *too_many(const stk_run_plan *p, uint32_t i)
{
    const stk_request *r = stk_plan_request(p->plan, i);
    uint32_t ranks = stk_run_plan_ranks(p->spec, i);
    uint32_t n = 0;
    for (uint32_t k = 0; k < p->capacity.n_devices; k++) {
        n += p->capacity.devices[k].usable;
    }
    if (ranks == 1 || r->n_asks == 0 || r->n_devices * ranks <= n) {
        return NULL;
    }
    return stk_arena_printf(p->arena,
                            "step '%s': its %u ranks together ask for %u devices, but %s has %u: "
                            "it would fail; lower num_parallel, or the step's request",
                            stk_spec_step(p->spec, i)->name, ranks, r->n_devices * ranks,
                            p->capacity.where, n);
}

/* Gathers the notes about the steps that would run, and about the host. */
static int gather_notes(stk_run_plan *p, stk_err *err)
{
    STK_PLAN_AUTO rest = NULL;
    uint32_t n_steps = stk_spec_n_steps(p->spec);
    STK_TRY(stk_plan_new_rest(p->spec, &p->capacity, p->peaks, p->policy, p->hits, &rest, err));
    size_t room = (size_t)stk_plan_n_notes(rest) + stk_plan_n_notes(p->plan) + 2ul * n_steps;
    p->notes = stk_arena_array(p->arena, room + 1, sizeof *p->notes);
    STK_TRY(stk_err_if_null(p->notes, err));
    for (uint32_t i = 0; i < stk_plan_n_notes(rest); i++) {
        p->notes[p->n_notes++] = stk_arena_dup(p->arena, stk_plan_note(rest, i));
    }
    for (uint32_t i = p->n_own_notes; i < stk_plan_n_notes(p->plan); i++) {
        p->notes[p->n_notes++] = stk_plan_note(p->plan, i);
    }
    for (uint32_t i = 0; i < n_steps; i++) {
        if (p->origins[i] != NULL) {
            p->notes[p->n_notes++] = p->origins[i];
        }
    }
    for (uint32_t i = 0; stk_spec_grows(p->spec) && i < n_steps; i++) {
        const char *text = too_many(p, i);
        if (text != NULL) {
            p->notes[p->n_notes++] = text;
        }
    }
    for (uint32_t i = 0; i < p->n_notes; i++) {
        STK_TRY(stk_err_if_null(p->notes[i], err));
    }
    return 0;
}

int stk_run_plan_forecast(stk_run_plan *p, stk_err *err)
{
    uint32_t n = stk_spec_n_steps(p->spec);
    const uint32_t *order = stk_plan_order(p->plan);
    bool grows = stk_spec_grows(p->spec); /* a growing run asks the cache as it goes */
    p->hits = stk_arena_array(p->arena, (size_t)n + 1, sizeof *p->hits);
    p->misses = stk_arena_array(p->arena, (size_t)n + 1, sizeof *p->misses);
    p->reads = stk_arena_array(p->arena, (size_t)n + 1, sizeof *p->reads);
    p->origins = stk_arena_array(p->arena, (size_t)n + 1, sizeof *p->origins);
    if (p->hits == NULL || p->misses == NULL || p->reads == NULL || p->origins == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t k = 0; !grows && k < n; k++) {
        uint32_t i = order[k];
        const char *miss = "never ran before", *note = NULL;
        if (p->forecast != NULL) {
            STK_TRY(stk_forecast_step(p->forecast, i, &p->hits[i], &miss, &note, err));
        }
        const char **text = p->hits[i] ? &p->reads[i] : &p->misses[i];
        *text = stk_arena_dup(p->arena, miss);
        p->origins[i] = note;
        p->n_hits += p->hits[i];
    }
    return gather_notes(p, err);
}
