/* `stoker plan` of a growing document: only the run will know how many tasks a step has, so the
 * plan says where they come from. */
#include "base/text.h"
#include "show/plan.h"

static void put_cases(const stk_step *from, uint32_t i_step, stk_buf *out)
{
    const char *before = " is ";
    for (uint32_t i = 0; from->cases != NULL && i < from->n_next; i++) {
        if (from->next[i] == i_step) {
            stk_buf_printf(out, "%s'%s'", before, from->cases[i]);
            before = " or ";
        }
    }
}

static void put_way(const stk_step *from, uint32_t i_step, stk_buf *out)
{
    switch (from->grows) {
    case STK_NEXT_FOREACH:
        stk_buf_printf(out, "one for each item of '%s' of %s", from->on, from->name);
        break;
    case STK_NEXT_PARALLEL:
        if (from->num_parallel > 0) {
            stk_buf_printf(out, "%u at once, after %s", from->num_parallel, from->name);
        } else {
            stk_buf_printf(out, "as many at once as %s says", from->name);
        }
        break;
    case STK_NEXT_SWITCH:
        stk_buf_printf(out, "where '%s' of %s", from->on, from->name);
        put_cases(from, i_step, out);
        break;
    default:
        stk_buf_printf(out, "after %s", from->name);
    }
}

void stk_show_plan_way(const stk_spec *spec, uint32_t i_step, stk_buf *out)
{
    const stk_step *step = stk_spec_step(spec, i_step);
    const char *before = stk_text_when(step->is_join, "joins ");
    size_t len = out->len;
    for (uint32_t i = 0; i < stk_spec_n_steps(spec); i++) {
        const stk_step *from = stk_spec_step(spec, i);
        if (!stk_step_leads_to(from, i_step)) {
            continue;
        }
        stk_buf_text(out, before);
        if (step->is_join) {
            stk_buf_text(out, from->name);
        } else {
            put_way(from, i_step, out);
        }
        before = step->is_join ? ", " : "; or ";
    }
    stk_buf_text(out, stk_text_when(i_step == 0 && out->len == len, "first"));
    if (step->settings->cache.enabled && step->settings->cache.is_asked) {
        stk_buf_text(out, "; from the cache if nothing that it sees has changed");
    }
}
