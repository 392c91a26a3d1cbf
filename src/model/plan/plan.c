#include "model/plan/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/digest.h"
#include "model/plan/plan_private.h"

int stk_plan_new(const stk_spec *spec, const stk_capacity *capacity, const int64_t *gpu_peaks,
                 stk_policy policy, stk_plan **ret_plan, stk_err *err)
{
    return stk_plan_new_rest(spec, capacity, gpu_peaks, policy, NULL, ret_plan, err);
}

int stk_plan_new_rest(const stk_spec *spec, const stk_capacity *capacity, const int64_t *gpu_peaks,
                      stk_policy policy, const bool *settled, stk_plan **ret_plan, stk_err *err)
{
    stk_arena *arena = stk_arena_new(0);
    stk_plan *plan = stk_arena_alloc(arena, sizeof *plan);
    if (plan == NULL) {
        stk_arena_free(arena);
        return stk_err_nomem(err);
    }
    *plan = (stk_plan){.arena = arena, .spec = spec, .n_steps = stk_spec_n_steps(spec)};
    int rc = stk_plan_build_graph(plan, err);
    if (rc == 0) {
        rc = stk_plan_build_requests(plan, capacity, gpu_peaks, policy, settled, err);
    }
    if (rc < 0) {
        stk_plan_free(plan);
        return rc;
    }
    *ret_plan = plan;
    return 0;
}

void stk_plan_free(stk_plan *plan)
{
    if (plan != NULL) {
        stk_arena_free(plan->arena);
    }
}

const stk_spec *stk_plan_spec(const stk_plan *plan)
{
    return plan->spec;
}

const stk_request *stk_plan_request(const stk_plan *plan, uint32_t i_step)
{
    return &plan->requests[i_step];
}

const uint32_t *stk_plan_needs(const stk_plan *plan, uint32_t i_step, uint32_t *ret_n)
{
    *ret_n = plan->needs_start[i_step + 1] - plan->needs_start[i_step];
    return plan->needs + plan->needs_start[i_step];
}

const uint32_t *stk_plan_feeds(const stk_plan *plan, uint32_t i_step, uint32_t *ret_n)
{
    *ret_n = plan->feeds_start[i_step + 1] - plan->feeds_start[i_step];
    return plan->feeds + plan->feeds_start[i_step];
}

const uint32_t *stk_plan_order(const stk_plan *plan)
{
    return plan->order;
}

uint32_t stk_plan_n_notes(const stk_plan *plan)
{
    return plan->n_notes;
}

const char *stk_plan_note(const stk_plan *plan, uint32_t i_note)
{
    return plan->notes[i_note];
}

int stk_plan_remark(stk_plan *plan, stk_err *err, const char *fmt, ...)
{
    char text[1200];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char **notes =
        stk_arena_array(plan->arena, (size_t)plan->n_notes + 1, sizeof *plan->notes);
    const char *copy = stk_arena_dup(plan->arena, text);
    if (notes == NULL || copy == NULL) {
        return stk_err_nomem(err);
    }
    if (plan->n_notes > 0) {
        memcpy(notes, plan->notes, plan->n_notes * sizeof *notes);
    }
    notes[plan->n_notes++] = copy;
    plan->notes = notes;
    return 0;
}

int stk_plan_set_image(stk_plan *plan, uint32_t i_step, const char *image, const char *how,
                       stk_err *err)
{
    char hex[STK_DIGEST_HEX + 1];
    if (plan->images == NULL) {
        plan->images = stk_arena_array(plan->arena, plan->n_steps, sizeof *plan->images);
        plan->hows = stk_arena_array(plan->arena, plan->n_steps, sizeof *plan->hows);
    }
    const char *copy = stk_arena_dup(plan->arena, image);
    const char *digest = NULL;
    if (how != NULL) {
        stk_digest_of(how, strlen(how), hex);
        digest = stk_arena_printf(plan->arena, "sha256:%s", hex);
    }
    if (plan->images == NULL || plan->hows == NULL || (copy == NULL && image != NULL) ||
        (digest == NULL && how != NULL)) {
        return stk_err_nomem(err);
    }
    plan->images[i_step] = copy;
    plan->hows[i_step] = digest;
    return 0;
}
