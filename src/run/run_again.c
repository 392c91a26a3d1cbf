#include "run/run_again.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ENDING_MS = 5000 };

int stk_run_same_params(stk_spec *spec, const stk_json *params, const char *run, stk_err *err)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    int rc = 0;
    if (params == NULL && stk_spec_n_params(spec) > 0) {
        return stk_err_set(err, STK_E_USAGE,
                           "run %s ended before it had begun; run the pipeline again", run);
    }
    for (uint32_t k = 0; k < stk_json_n_members(params); k++) {
        const char *name = stk_json_key(params, k)->text;
        const stk_json *value = stk_json_value(params, k);
        const char *text = stk_json_dump_in(value, scratch);
        if (scratch != NULL && text != NULL && rc >= 0) {
            rc = stk_spec_set_param_json(spec, name, text, err);
        }
    }
    return rc;
}

void stk_run_same_place(const stk_view *view, stk_run_options *options, stk_arena *arena)
{
    const char *text = stk_view_get_run(view)->host;
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *host = stk_json_read(scratch, text);
    const char *simulated = stk_json_get_text(host, "accel");
    if (simulated != NULL) { /* its devices go by their places on that machine */
        (void)setenv("STOKER_ACCEL", simulated, 1);
    }
    const char *stack = stk_json_get_text(host, "stack");
    if (options->with == NULL && stack != NULL) {
        options->with = stk_arena_dup(arena, stack);
    }
}

void stk_run_await_end(stk_store *store, const char *run)
{
    for (int ms = 0; ms < ENDING_MS && stk_store_run_is_ending(store, run); ms += 20) {
        (void)usleep(20000);
    }
}

int stk_run_settled(const stk_spec *spec, const stk_view *view, stk_arena *arena,
                    const bool **ret_settled, stk_err *err)
{
    uint32_t n = stk_spec_n_steps(spec);
    bool *settled = stk_arena_array(arena, (size_t)n + 1, sizeof *settled);
    bool is_static =
        !stk_spec_grows(spec); /* else a step has any number of tasks, or more to come */
    for (uint32_t i = 0; is_static && settled != NULL && i < n && i < stk_view_n_tasks(view); i++) {
        const stk_view_task *task = stk_view_get_task(view, i);
        settled[i] = strcmp(task->name, stk_spec_step(spec, i)->name) == 0 &&
                     (task->state == STK_TASK_SUCCEEDED || task->state == STK_TASK_CACHED);
    }
    *ret_settled = settled;
    return stk_err_if_null(settled, err);
}
