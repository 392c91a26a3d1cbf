/* Advice in the sentence of a failure. It doesn't advise what is already set, nor what the step's
 * dialect can't express. */
#include <string.h>

#include "base/json.h"
#include "base/units.h"
#include "run/exec/core/exec_devices.h"
#include "run/exec/core/exec_loop.h"

/* True for a step of a flow, whose user writes decorators. */
static bool is_of_flow(const stk_step *step)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *extra = stk_json_read(scratch, step->settings->extra);
    return stk_json_is_map(stk_json_get(extra, "flow"));
}

/* stk_runner_way_out in a flow's words; NULL: they are the same. */
static const char *way_out_of_flow(stk_failure failure)
{
    switch (failure) {
    case STK_FAIL_HOST_OOM:
        return "; ask for more memory: @resources(memory=…), in MB";
    case STK_FAIL_DEVICE_OOM:
        return "; make the batch smaller, or use a device with more memory";
    case STK_FAIL_OTHER_DEVICE:
        return "; use the devices that the step's variables name, or ask for more: "
               "@resources(gpu=…)";
    default:
        return NULL;
    }
}

static const char *in_flow_words(stk_exec *x, const char *text, stk_failure failure)
{
    const char *words = way_out_of_flow(failure);
    const char *way_out = stk_runner_way_out(failure);
    const char *at = strstr(text, way_out);
    if (words == NULL || at == NULL) {
        return text;
    }
    return stk_arena_printf(x->scratch, "%.*s%s%s", (int)(at - text), text, words,
                            at + strlen(way_out));
}

/* Leaves out the advice to set on_oom (as stk_runner_way_out words it) if the step has set it. */
static const char *less_advice(stk_exec *x, uint32_t task, const char *text)
{
    static const char *const advice[] = {", or set on_oom",
                                         ", or set on_oom to try again with more"};
    const stk_on_oom *set = &stk_exec_step(x, task)->settings->on_oom;
    size_t n = strlen(text);
    for (size_t i = 0; i < 2 && (set->memory > 1 || set->gpu_memory > 1); i++) {
        size_t n_advice = strlen(advice[i]);
        if (n > n_advice && strcmp(text + n - n_advice, advice[i]) == 0) {
            return stk_arena_dupn(x->scratch, text, n - n_advice);
        }
    }
    return text;
}

/* The sentence if on_oom would ask for more than there is. */
static const char *too_much(stk_exec *x, const char *text, const stk_sched_retrying *next)
{
    char asked[32];
    bool is_share = next->grows == STK_GROWS_SHARE;
    const char *what = is_share ? "device memory" : "memory";
    (void)stk_units_format_memory(next->amount << (is_share ? 20 : 0), asked, sizeof asked);
    return stk_arena_printf(x->scratch, "%s; on_oom would ask for %s of %s next, but %s has less",
                            text, asked, what, x->config.capacity->where);
}

/* True if on_oom raises device memory, but the attempt already had whole devices. */
static bool had_all(const stk_exec *x, uint32_t task, stk_failure failure)
{
    const exec_slot *slot = x->tasks[task].slot;
    bool whole = false;
    for (uint32_t i = 0; slot != NULL && i < x->config.capacity->n_devices; i++) {
        whole = whole ||
                (stk_devset_has(&slot->devices, i) && stk_sched_held(x->sched, i) == STK_SCHED_ALL);
    }
    return whole && failure == STK_FAIL_DEVICE_OOM &&
           stk_exec_step(x, task)->settings->on_oom.gpu_memory > 1;
}

const char *stk_exec_advise(stk_exec *x, uint32_t task, stk_failure failure, const char *text,
                            const stk_sched_retrying *next)
{
    if (is_of_flow(stk_exec_step(x, task))) {
        return in_flow_words(x, text, failure);
    }
    text = less_advice(x, task, text);
    if (text != NULL && next->is_too_much) {
        text = too_much(x, text, next);
    }
    if (text == NULL || !had_all(x, task, failure)) {
        return text;
    }
    return stk_arena_printf(x->scratch,
                            "%s; it had whole devices, so on_oom can't give it more memory", text);
}
