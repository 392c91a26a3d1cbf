/* `stoker resume`: take a run up where it stopped. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/cli_read.h"
#include "cli/cli_run.h"
#include "run/run_again.h"
#include "run/run_shared.h"
#include "store/view/view.h"
#include "sys/file.h"

static bool has_python_steps(const stk_spec *spec)
{
    for (uint32_t i = 0; i < stk_spec_n_steps(spec); i++) {
        if (stk_spec_step(spec, i)->python != NULL) {
            return true;
        }
    }
    return false;
}

/* A run of a Python file: the file is run again with its arguments, in its folder; its pipeline
 * call takes the run up. */
static int resume_python(const stk_cli *cli, const stk_cli_run *how, const stk_json *origin)
{
    const char *file = stk_json_get_text(origin, "file");
    const char *cwd = stk_json_get_text(origin, "cwd");
    const stk_json *args = stk_json_get(origin, "argv");
    size_t n = stk_json_n_items(args);
    if (file == NULL || !stk_file_exists(file)) {
        return stk_cli_usage(cli,
                             "run %s was started from %s, which is not there: run the cell or "
                             "program again, finished steps are reused",
                             how->options.resume, stk_text_or(file, "an interactive session"));
    }
    if (cwd != NULL && chdir(cwd) < 0) {
        return stk_cli_usage(cli, "run %s was started in %s, which can't be entered",
                             how->options.resume, cwd);
    }
    stk_cli_run with = *how;
    const char *python = stk_json_get_text(origin, "python");
    with.options.python = stk_text_or(with.options.python, python);
    char **argv = calloc(n + 1, sizeof *argv);
    for (size_t i = 1; argv != NULL && i < n; i++) {
        argv[i - 1] = (char *)(uintptr_t)stk_json_text(stk_json_item(args, i));
    }
    /* 'stoker run file.py:name' leaves its target there */
    const char *target = stk_json_text(stk_json_item(args, 0));
    bool named = target != NULL && strstr(target, ".py:") != NULL;
    return stk_cli_exec_python(cli, &with, named ? target : file, argv);
}

/* One that has succeeded: what the share lacks of it goes there, as its engine may have been killed
 * before, or the share didn't answer. */
static int share_end(stk_store *store, const char *stack, const char *run, stk_err *err)
{
    bool is_told = false;
    int rc = stk_run_shared_publish(store, stack, run, &is_told, err);
    if (rc == 0 && !is_told) {
        return stk_err_set(err, STK_E_USAGE, "run %s has succeeded: there is nothing to resume",
                           run);
    }
    if (rc == 0) {
        fprintf(stderr, "stoker: run %s has succeeded; its end is in the share now\n", run);
    }
    return rc;
}

static int run_resume(stk_cli *cli)
{
    stk_err err = {0};
    stk_cli_run how;
    stk_run_options *options = &how.options;
    stk_store *store = NULL;
    stk_view *view = NULL;
    char run[40];
    const char *which = stk_cli_arg(cli, 0) != NULL ? stk_cli_arg(cli, 0) : "latest";
    if (stk_cli_run_options(cli, &how, &err) < 0) {
        return stk_cli_fail(cli, &err);
    }
    int status = stk_cli_at_most(cli, 1);
    if (status != 0 ||
        (status = stk_cli_store(cli, options->with != NULL ? STK_STORE_CREATE : 0, &store)) != 0) {
        return status;
    }
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *text = NULL;
    size_t len = 0;
    int rc = stk_run_shared_bring(store, options->with, which, run, &err);
    rc = rc < 0 ? rc : stk_store_load_spec(store, run, arena, &text, &len, &err);
    if (rc == 0) {
        stk_run_await_end(store, run);
    }
    rc = rc < 0 ? rc : stk_view_load(store, run, &view, &err);
    bool is_over = rc == 0 && strcmp(stk_view_get_run(view)->status, "succeeded") == 0;
    if (is_over) {
        rc = share_end(store, options->with, run, &err);
    }
    if (rc == 0 && strcmp(stk_view_get_run(view)->status, "running") == 0) {
        rc = stk_err_set(&err, STK_E_BUSY, "run %s is still going on; 'stoker cancel %s' ends it",
                         run, run);
    }
    if (rc == 0 && stk_view_get_run(view)->started_ms <= 0) { /* its parameters, its stack, … */
        rc = stk_err_set(&err, STK_E_USAGE,
                         "run %s was ended before anything of it was on record: no step of it has "
                         "begun, and what it was started with isn't known",
                         run);
        stk_err_hint(&err, "start it anew with 'stoker run'");
    }
    if (rc < 0 || is_over) {
        stk_view_free(view);
        stk_store_close(store);
        return rc < 0 ? stk_cli_fail(cli, &err) : 0;
    }
    setenv("STOKER_STORE", stk_store_path(store), 1);
    options->resume = run;
    stk_spec *spec = NULL;
    rc = stk_spec_parse(text, len, &(stk_spec_place){.path = "pipeline"}, &spec, &err);
    const char *origin_text = rc < 0 ? NULL : stk_spec_origin(spec);
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *origin = stk_json_read(scratch, origin_text);
    const char *params_text = stk_view_get_run(view)->parameters;
    const stk_json *params = stk_json_read(scratch, params_text);
    stk_run_same_place(view, options, arena);
    stk_view_free(view);
    stk_store_close(store);
    if (rc == 0 && stk_json_get(origin, "argv") != NULL && has_python_steps(spec)) {
        status = resume_python(cli, &how, origin);
    } else {
        const char *file = stk_json_get_text(origin, "file");
        if (rc == 0 && file != NULL && stk_file_exists(file)) {
            /* as it is now, so that a change is noticed; as it was when the file is gone */
            stk_spec_free(spec);
            rc = stk_run_load_document(file, &spec, &err);
        }
        rc = rc < 0 ? rc : stk_run_same_params(spec, params, run, &err);
        status = rc < 0 ? stk_cli_fail(cli, &err) : stk_cli_run_spec(cli, spec, &how);
    }
    stk_spec_free(spec);
    return status;
}

static const stk_option options_of_resume[] = {
    {"use-new-code", 0, NULL, "go on although the code of a step changed", false},
    {"policy", 0, "fit|strict", "as for 'stoker run'", false},
    {"with", 0, "STACK", "as for 'stoker run' (default: the run's own)", false},
    {"stack", 0, "STACK", "the same", false},
    {"max-workers", 'j', "N", "at most N steps at once", false},
    {"quiet", 'q', NULL, "print failures only", false},
    {"python", 0, "EXE", "interpreter for Python files and steps", false},
    {NULL}};

const stk_command stk_cmd_resume = {
    .name = "resume",
    .summary = "take a run up where it stopped",
    .usage = "[options] [RUN]",
    .text =
        "Finished steps keep their results, everything else runs. RUN is an id, a unique "
        "prefix of one, a name, or 'latest' (the\n"
        "default). What an earlier engine left running on this machine is ended first, what it "
        "left "
        "running on other machines is watched on: no step runs twice at a time. A step goes on "
        "with the "
        "checkpoints of its earlier attempts, as long as its inputs are the same. Of a run that "
        "has succeeded the share is told what it lacks.",
    .options = options_of_resume,
    .run = run_resume};
