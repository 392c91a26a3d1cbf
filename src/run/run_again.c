#include "run/run_again.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"

enum { ENDING_MS = 5000 };

int stk_run_same_params(stk_spec *spec, const stk_view *view, stk_err *err)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *params = stk_json_read(scratch, stk_view_get_run(view)->parameters);
    if (params == NULL && stk_spec_n_params(spec) > 0) {
        return stk_err_set(err, STK_E_USAGE,
                           "run %s ended before its first step; run the pipeline again",
                           stk_view_get_run(view)->id);
    }
    for (uint32_t i = 0; i < stk_json_n_members(params); i++) {
        const char *text = stk_json_dump_in(stk_json_value(params, i), scratch);
        STK_TRY(stk_err_if_null(text, err));
        STK_TRY(stk_spec_set_param_json(spec, stk_json_key(params, i)->text, text, err));
    }
    return 0;
}

void stk_run_same_place(const stk_view *view, stk_run_options *options, stk_arena *arena)
{
    const stk_json *host = stk_json_read(arena, stk_view_get_run(view)->host);
    const char *simulated = stk_json_get_text(host, "accel");
    if (simulated != NULL) { /* the record names devices by their place on that machine */
        (void)setenv("STOKER_ACCEL", simulated, 1);
    }
    options->with = stk_text_or(options->with, stk_json_get_text(host, "stack"));
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
    STK_TRY(stk_err_if_null(settled, err));
    *ret_settled = settled;
    if (view == NULL) {
        memset(settled, true, n);
        return 0;
    }
    if (stk_spec_grows(spec)) { /* a step may have many tasks, and get more */
        return 0;
    }
    for (uint32_t i = 0; i < n && i < stk_view_n_tasks(view); i++) {
        const stk_view_task *task = stk_view_get_task(view, i);
        settled[i] = strcmp(task->name, stk_spec_step(spec, i)->name) == 0 &&
                     (task->state == STK_TASK_SUCCEEDED || task->state == STK_TASK_CACHED);
    }
    return 0;
}

static bool is_same_code(const stk_step *a, const stk_step *b)
{
    bool same = a->n_code == b->n_code && a->n_argv == b->n_argv;
    for (uint32_t k = 0; same && k < a->n_code; k++) {
        same = strcmp(a->code[k].key, b->code[k].key) == 0 &&
               strcmp(a->code[k].value, b->code[k].value) == 0;
    }
    for (uint32_t k = 0; same && k < a->n_argv; k++) {
        same = strcmp(a->argv[k], b->argv[k]) == 0;
    }
    return same;
}

static int check_same_step(const char *run, const stk_step *old, const stk_step *now,
                           bool use_new_code, stk_err *err)
{
    if (strcmp(old->name, now->name) != 0) {
        return stk_err_set(err, STK_E_USAGE, "run %s has step '%s' where the pipeline now has '%s'",
                           run, old->name, now->name);
    }
    if (!use_new_code && !is_same_code(old, now)) {
        stk_err_set(err, STK_E_USAGE, "the code of step '%s' changed since run %s began", old->name,
                    run);
        stk_err_hint(err, "add --use-new-code to continue with the new code, or start a new run");
        return STK_E_USAGE;
    }
    return 0;
}

int stk_run_same_steps(const char *run, const stk_spec *old, const stk_spec *now, bool use_new_code,
                       stk_err *err)
{
    uint32_t n = stk_spec_n_steps(old);
    int rc = 0;
    if (n != stk_spec_n_steps(now)) {
        rc = stk_err_set(err, STK_E_USAGE, "run %s has %u steps, the pipeline now has %u", run, n,
                         stk_spec_n_steps(now));
    }
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        rc = check_same_step(run, stk_spec_step(old, i), stk_spec_step(now, i), use_new_code, err);
    }
    if (rc < 0 && err->hint[0] == '\0') {
        stk_err_hint(err, "start a new run: finished steps are reused from the cache");
    }
    return rc;
}
