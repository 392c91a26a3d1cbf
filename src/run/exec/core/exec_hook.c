/* Hooks that the engine runs as separate jobs, before an attempt and after its end. */
#include "run/exec/core/exec_hook.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "run/exec/core/exec_event.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/core/exec_start.h"
#include "sys/file.h"

enum {
    HOOK_TIMEOUT_MS = 300000,
    ERROR_BYTES = 32 << 10 /* most bytes of a failure that a hook gets */
};

const char *const stk_exec_hook_names[] = {"on_start", "on_success", "on_failure", "on_end"};

/* A Python task calls its own Python hooks; any other on_start hook is a job before the attempt. */
bool stk_exec_has_start_job(const stk_step *step)
{
    const stk_hook *hook = &step->settings->hooks[STK_HOOK_START];
    return hook->run != NULL || (hook->python != NULL && step->python == NULL);
}

/* The file in an attempt's directory that marks the end of hook `when`. In x->scratch; NULL: out of
 * memory. */
static const char *hook_mark(stk_exec *x, uint32_t task, stk_hook_when when)
{
    char name[32];
    (void)snprintf(name, sizeof name, "%s.ended", stk_exec_hook_names[when]);
    return stk_exec_file_in_dir(x, task, stk_exec_attempt(x, task), name);
}

static int start_hook(stk_exec *x, uint32_t task, stk_hook_when when, stk_err *err)
{
    const stk_step *step = stk_exec_step(x, task);
    const stk_hook *hook = &step->settings->hooks[when];
    const char *error = x->tasks[task].hook_error;
    uint32_t attempt = stk_exec_attempt(x, task);
    const char *dir = stk_exec_dir(x, task, attempt, x->scratch);
    exec_env env = {.arena = x->scratch};
    STK_TRY(stk_err_if_null(dir, err));
    STK_TRY(stk_exec_job_env(x, task, attempt, dir, true, &env, err));
    stk_exec_env_add(&env, "STOKER_HOOK", stk_exec_hook_names[when]);
    const char *told = stk_text_or(error, "");
    stk_exec_env_add(&env, "STOKER_ERROR",
                     stk_arena_dupn(x->scratch, told, strnlen(told, ERROR_BYTES)));
    if (env.failed) {
        return stk_err_nomem(err);
    }
    const char *argv[] = {"/bin/sh", "-c", hook->run, NULL};
    stk_job job = {.id = task | EXEC_HOOK_BIT,
                   .attempt = attempt,
                   .step = step->name,
                   .dir = dir,
                   .cwd = stk_exec_cwd(x, step),
                   .env = env.items,
                   .unset = stk_exec_job_unset(x->scratch),
                   .hidden = stk_exec_hidden(step->settings, x->scratch),
                   .readonly = stk_exec_input_mounts(&env.inputs),
                   .timeout_ms = HOOK_TIMEOUT_MS,
                   .grace_ms = step->settings->grace_ms,
                   .hook = stk_exec_hook_names[when],
                   .hook_error = error};
    if (hook->run != NULL) {
        job.argv = argv;
    } else {
        job.python = stk_text_or(step->python, hook->python);
        job.interpreter = step->interpreter;
        job.spawn = step->interpreter != NULL;
    }
    return x->config.backend->ops->start(x->config.backend, &job, err);
}

int stk_exec_launch_hook(stk_exec *x, uint32_t task, stk_hook_when when, bool *ret_any,
                         stk_err *err)
{
    const stk_step *step = stk_exec_step(x, task);
    const stk_hook *hook = &step->settings->hooks[when];
    stk_err why = {0};
    /* after the second Ctrl-C nothing starts */
    *ret_any =
        x->n_signals < 2 && !x->config.cancelled && (hook->run != NULL || hook->python != NULL);
    if (!*ret_any) {
        return 0;
    }
    if (x->config.resumed && when != STK_HOOK_START) {
        const char *mark = hook_mark(x, task, when);
        STK_TRY(stk_err_if_null(mark, err));
        *ret_any = !stk_file_exists(mark);
        if (!*ret_any) {
            return 0;
        }
    }
    if (start_hook(x, task, when, &why) < 0) {
        char text[1200];
        *ret_any = false;
        const char *note =
            stk_arena_printf(x->scratch, "a hook of step '%s' could not be started: %s", step->name,
                             stk_err_format(&why, text, (int)sizeof text));
        return stk_exec_emit_note(x, note, err);
    }
    x->tasks[task].hook = (int8_t)when;
    x->n_hooks++;
    return 0;
}

static bool hook_was_run(const stk_result *result, const char *name)
{
    for (uint32_t i = 0; result != NULL && i < result->n_hooks_run; i++) {
        if (strcmp(result->hooks_run[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* Runs the hooks that the task didn't run itself: commands always, Python ones if the process died.
 * In order: the on_end hook starts when the first has ended. */
int stk_exec_run_hooks(stk_exec *x, uint32_t task, const stk_result *result, const char *error,
                       stk_err *err)
{
    stk_hook_when first = error == NULL ? STK_HOOK_SUCCESS : STK_HOOK_FAILURE;
    exec_task *t = &x->tasks[task];
    bool any = false;
    int rc = 0;
    t->end_by_task = hook_was_run(result, "on_end");
    t->hook_error = stk_arena_dup(x->arena, error);
    if (!hook_was_run(result, error == NULL ? "on_success" : "on_failure")) {
        rc = stk_exec_launch_hook(x, task, first, &any, err);
    }
    if (rc == 0 && !any && !t->end_by_task) {
        rc = stk_exec_launch_hook(x, task, STK_HOOK_END, &any, err);
    }
    return rc;
}

int stk_exec_catch_up(stk_exec *x, uint32_t task, stk_err *err)
{
    exec_ending e = {.task = task, .step = stk_exec_step(x, task)};
    stk_err why = {0};
    x->tasks[task].owes_hooks = false;
    e.dir = stk_exec_dir(x, task, stk_exec_attempt(x, task), x->scratch);
    if (e.dir == NULL || stk_exec_read_result(x, &e, &why) == STK_E_NOMEM) {
        return stk_err_nomem(err);
    }
    return stk_exec_run_hooks(x, task, e.has_result ? &e.result : NULL, NULL, err);
}

/* Continues after a hook: on_start is followed by the task, the outcome's hook by on_end. */
static int after_hook(stk_exec *x, uint32_t task, stk_hook_when when, stk_err *err)
{
    bool any;
    exec_task *t = &x->tasks[task];
    if (when == STK_HOOK_START) {
        if (!t->stopped) {
            return stk_exec_push_launch(x, task, err);
        }
        stk_exec_release(x, task);
        return stk_exec_emit_task(x, STK_EV_TASK_CANCELLED, task, NULL, err);
    }
    if (when == STK_HOOK_END || t->end_by_task) {
        return 0;
    }
    return stk_exec_launch_hook(x, task, STK_HOOK_END, &any, err);
}

int stk_exec_hook_ended(stk_exec *x, const stk_report *report, stk_err *err)
{
    uint32_t task = report->id & ~EXEC_HOOK_BIT;
    exec_task *t = task < x->n_tasks ? &x->tasks[task] : NULL;
    if (t == NULL || t->hook < 0) {
        return 0;
    }
    stk_hook_when when = (stk_hook_when)t->hook;
    t->hook = -1;
    x->n_hooks--;
    if (when != STK_HOOK_START && report->outcome.failure != STK_FAIL_CANCELLED) {
        const char *mark = hook_mark(x, task, when);
        STK_TRY(stk_err_if_null(mark, err));
        STK_TRY(stk_file_write(mark, "", 0, 0644, err));
    }
    if (!report->outcome.ok && !t->stopped) {
        const stk_step *step = stk_exec_step(x, task);
        const char *text = stk_arena_printf(x->scratch, "a hook of step '%s' failed: %s",
                                            step->name, report->outcome.text);
        STK_TRY(stk_exec_emit_note(x, stk_exec_hide(step->settings, text, x->scratch), err));
    }
    return after_hook(x, task, when, err);
}
