/* Whether a result of the cache was made with the devices that its step asks for: policy fit runs a
 * step on the CPU where there are none, and its result is good for every later run. */
#include "base/json.h"
#include "run/exec/core/exec_cache.h"
#include "run/exec/core/exec_event.h"

typedef struct origin {
    stk_arena *arena;
    uint32_t task;
    bool had_none; /* of the last attempt so far: it ran on its own machine, without devices */
} origin;

static int see_start(void *arg, const stk_event_row *row)
{
    origin *o = arg;
    if (row->task != o->task) {
        return 0;
    }
    if (row->kind == STK_EV_TASK_STARTED) {
        const stk_json *granted = stk_json_get(stk_json_read(o->arena, row->data), "granted");
        const stk_json *devices = stk_json_get(granted, "devices"); /* elsewhere it has none yet */
        o->had_none = devices != NULL && stk_json_n_items(devices) == 0;
    }
    return row->kind == STK_EV_TASK_SUCCEEDED;
}

const char *stk_exec_origin(exec_lookup *lookup, uint32_t i_step, const char *run, uint32_t task)
{
    const stk_step *step = stk_spec_step(stk_plan_spec(lookup->plan), i_step);
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    origin o = {.arena = scratch, .task = task};
    uint64_t known = 0;
    stk_err ignored = {0};
    if (stk_spec_n_devices(&step->settings->resources) == 0) {
        return NULL;
    }
    char *key = stk_arena_printf(lookup->arena, "%u %s", i_step, run);
    if (key == NULL || stk_map_get(&lookup->origins, key, &known) ||
        stk_map_put(&lookup->origins, key, 1) < 0) {
        return NULL;
    }
    (void)stk_store_events(lookup->store, run, 0, see_start, &o, &ignored);
    if (!o.had_none) {
        return NULL;
    }
    return stk_arena_printf(lookup->arena,
                            "step '%s' asks for devices: its cached result was made on the CPU, in "
                            "run %s; --no-cache makes it again",
                            step->name, run);
}

int stk_exec_note_origin(stk_exec *x, uint32_t i_step, const char *run, uint32_t task, stk_err *err)
{
    const char *text = stk_exec_origin(&x->lookup, i_step, run, task);
    return text == NULL ? 0 : stk_exec_emit_note(x, text, err);
}
