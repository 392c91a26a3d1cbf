/* `stoker resume`: continues a run where it stopped. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
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

/* Continues a run of a Python file: runs the file again in its folder with its arguments. Its
 * pipeline call then takes the run over. */
static int resume_python(const stk_cli *cli, stk_cli_run *how, const stk_json *origin,
                         stk_arena *arena, stk_err *err)
{
    const char *file = stk_json_get_text(origin, "file");
    const char *cwd = stk_json_get_text(origin, "cwd");
    const stk_json *args = stk_json_get(origin, "argv");
    size_t n = stk_json_n_items(args);
    if (file == NULL || !stk_file_exists(file)) {
        return stk_cli_usage(cli, err,
                             "run %s was started from %s, which is not available: run the cell or "
                             "program again; finished steps are reused",
                             how->options.resume, stk_text_or(file, "an interactive session"));
    }
    if (cwd != NULL && chdir(cwd) < 0) {
        return stk_cli_usage(cli, err, "run %s was started in %s, which can't be entered",
                             how->options.resume, cwd);
    }
    how->options.python = stk_text_or(how->options.python, stk_json_get_text(origin, "python"));
    char **argv = stk_arena_array(arena, n + 1, sizeof *argv);
    STK_TRY(stk_err_if_null(argv, err));
    for (size_t i = 1; i < n; i++) {
        argv[i - 1] = (char *)(uintptr_t)stk_json_text(stk_json_item(args, i));
    }
    /* 'stoker run file.py:name' records its target as argv[0] */
    const char *target = stk_json_text(stk_json_item(args, 0));
    bool named = target != NULL && strstr(target, ".py:") != NULL;
    return stk_cli_exec_python(cli, how, named ? target : file, argv, err);
}

/* Publishes what the share lacks of a succeeded run: its engine may have been killed before, or the
 * share was unreachable. */
static int share_end(stk_store *store, const char *stack, const char *run, stk_err *err)
{
    bool is_published = false;
    int rc = stk_run_shared_publish(store, stack, run, &is_published, err);
    if (rc == 0 && !is_published) {
        return stk_err_set(err, STK_E_USAGE, "run %s has succeeded: there is nothing to resume",
                           run);
    }
    if (rc == 0) {
        fprintf(stderr, "stoker: run %s has succeeded; its end is now recorded in the share\n",
                run);
    }
    return rc;
}

/* Refuses a run that is still running, or whose start isn't recorded. */
static int check_view(const stk_view_run *run, stk_err *err)
{
    if (strcmp(run->status, "running") == 0) {
        return stk_err_set(err, STK_E_BUSY, "run %s is still running; 'stoker cancel %s' ends it",
                           run->id, run->id);
    }
    if (run->started_ms <= 0) { /* so neither are its parameters or its stack */
        stk_err_set(err, STK_E_USAGE,
                    "run %s ended before its engine recorded anything: no step has begun, and its "
                    "parameters are unknown",
                    run->id);
        stk_err_hint(err, "start it again with 'stoker run'");
        return STK_E_USAGE;
    }
    return 0;
}

static int run_resume(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    stk_cli_run how;
    stk_run_options *options = &how.options;
    STK_STORE_AUTO store = NULL;
    STK_VIEW_AUTO view = NULL;
    STK_SPEC_AUTO spec = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *text = NULL;
    size_t len = 0;
    char run[40];
    (void)out;
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_cli_run_options(cli, &how, err));
    STK_TRY(stk_cli_store(options->with != NULL ? STK_STORE_CREATE : 0, &store, err));
    STK_TRY(stk_run_shared_bring(store, options->with, stk_text_or(stk_cli_arg(cli, 0), "latest"),
                                 run, err));
    STK_TRY(stk_store_load_spec(store, run, arena, &text, &len, err));
    stk_run_await_end(store, run);
    STK_TRY(stk_view_load(store, run, &view, err));
    if (strcmp(stk_view_get_run(view)->status, "succeeded") == 0) {
        return share_end(store, options->with, run, err);
    }
    STK_TRY(check_view(stk_view_get_run(view), err));
    setenv("STOKER_STORE", stk_store_path(store), 1);
    options->resume = run;
    STK_TRY(stk_spec_parse(text, len, &(stk_spec_place){.path = "pipeline"}, &spec, err));
    const stk_json *origin = stk_json_read(arena, stk_spec_origin(spec));
    const char *file = stk_json_get_text(origin, "file");
    stk_run_same_place(view, options, arena);
    stk_store_close(store); /* the run opens it again */
    store = NULL;
    if (stk_json_get(origin, "argv") != NULL && has_python_steps(spec)) {
        return resume_python(cli, &how, origin, arena, err);
    }
    if (file != NULL && stk_file_exists(file)) {
        /* the current file, so that changes are noticed; if it is gone, the stored document */
        stk_spec_free(spec);
        spec = NULL;
        STK_TRY(stk_run_load_document(file, &spec, err));
    }
    STK_TRY(stk_run_same_params(spec, view, err));
    stk_view_free(view);
    view = NULL;
    return stk_cli_run_spec(cli, spec, &how);
}

static const stk_option options_of_resume[] = {
    {"use-new-code", 0, NULL, "continue although the code of a step has changed"},
    {"policy", 0, "fit|strict", "as for 'stoker run'"},
    {"with", 0, "STACK", "as for 'stoker run' (default: the run's own)"},
    {"stack", 0, "STACK", "the same"},
    {"max-workers", 'j', "N",
     "at most N steps at once; steps that ask for no CPUs then don't wait for CPUs (default: as "
     "many as fit)"},
    {"quiet", 'q', NULL, "print failures only"},
    {"python", 0, "EXE", "interpreter for Python files and steps"},
    {NULL}};

const stk_command stk_cmd_resume = {
    .name = "resume",
    .summary = "take a run up where it stopped",
    .usage = "[options] [RUN]",
    .text = "Finished steps keep their results, everything else runs. RUN is an id, a unique "
            "prefix of one, a name, or 'latest' (the\ndefault). Steps that an earlier engine left "
            "running on this machine are ended first; those on other machines are followed to "
            "their end: no step runs twice at a time. A step continues from the checkpoints of its "
            "earlier attempts if its inputs are the same. For a run that has succeeded, resume "
            "records in the share what is missing there.",
    .options = options_of_resume,
    .max_args = 1,
    .run = run_resume};
