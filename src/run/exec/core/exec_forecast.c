/* What the cache would serve now: for `stoker plan`, and for notes that are not true of such steps.
 */
#include <string.h>

#include "run/exec/core/exec_cache.h"
#include "run/exec/core/exec_reads.h"

struct stk_forecast {
    exec_lookup lookup;
    stk_arena *arena;
    exec_ref **outputs; /* by step; NULL: unknown before the step runs */
    uint32_t n_steps;
};

int stk_forecast_new(stk_store *store, const stk_plan *plan, stk_forecast **ret_forecast,
                     stk_err *err)
{
    stk_arena *arena = stk_arena_new(0);
    stk_forecast *f = stk_arena_alloc(arena, sizeof *f);
    if (f == NULL) {
        stk_arena_free(arena);
        return stk_err_nomem(err);
    }
    f->arena = arena;
    f->n_steps = stk_spec_n_steps(stk_plan_spec(plan));
    f->outputs = stk_arena_array(arena, f->n_steps + 1, sizeof *f->outputs);
    stk_exec_lookup_init(&f->lookup, store, plan, arena);
    *ret_forecast = f;
    return stk_err_if_null(f->outputs, err);
}

static const exec_ref *forecast_outputs(void *arg, uint32_t i_step)
{
    return ((stk_forecast *)arg)->outputs[i_step];
}

int stk_forecast_step(stk_forecast *f, uint32_t i_step, bool *ret_hit, const char **ret_miss,
                      const char **ret_note, stk_err *err)
{
    uint32_t n = 0;
    const uint32_t *needs = stk_plan_needs(f->lookup.plan, i_step, &n);
    *ret_hit = false;
    *ret_note = NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (f->outputs[needs[i]] == NULL) {
            const char *name = stk_spec_step(stk_plan_spec(f->lookup.plan), needs[i])->name;
            *ret_miss = stk_arena_printf(
                f->arena, "'%s' runs before it: a hit if its outputs are the same as before", name);
            return stk_err_if_null(*ret_miss, err);
        }
    }
    exec_found found;
    int rc = stk_exec_lookup_step(&f->lookup, i_step, forecast_outputs, f, true,
                                  stk_clock_wall_ms(&stk_clock_real), &found, err);
    STK_TRY(rc);
    *ret_hit = found.verdict == EXEC_HIT;
    *ret_miss = found.miss;
    if (*ret_hit) {
        *ret_miss = stk_exec_reads_list(found.row.seen, f->arena);
        *ret_note = stk_exec_origin(&f->lookup, i_step, found.row.run, found.row.task);
    }
    f->outputs[i_step] = found.outputs;
    return 0;
}

void stk_forecast_free(stk_forecast *f)
{
    if (f != NULL) {
        stk_exec_lookup_done(&f->lookup);
        stk_arena_free(f->arena);
    }
}
