/* `stoker run`: a pipeline document, or a Python file that calls pipelines. */
#include "cli/cli_run.h"

#include "cli/cli_words.h"

static int read_clone(const stk_cli *cli, stk_run_options *ret, stk_err *err)
{
    ret->clone = stk_cli_value(cli, "clone");
    ret->clone_until = stk_cli_value(cli, "clone-until");
    ret->clone_only = stk_cli_flag(cli, "clone-only");
    if (ret->clone == NULL && (ret->clone_until != NULL || ret->clone_only)) {
        return stk_err_set(err, STK_E_USAGE,
                           "%s needs --clone RUN, the run whose tasks to take over",
                           ret->clone_until != NULL ? "--clone-until" : "--clone-only");
    }
    if (ret->clone != NULL && ret->resume != NULL) {
        return stk_err_set(err, STK_E_USAGE,
                           "--clone begins a new run, --resume continues one: leave one out");
    }
    return 0;
}

/* Loads the document and sets its parameters. */
static int load_document(const stk_cli *cli, stk_spec **ret, stk_err *err)
{
    STK_TRY(stk_cli_load_spec(cli, ret, err));
    return stk_cli_params(cli, *ret, err);
}

static int run_run(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    stk_cli_run how;
    STK_SPEC_AUTO spec = NULL;
    const char *target = stk_cli_arg(cli, 0);
    bool piped = stk_cli_value(cli, "spec") != NULL || stk_cli_value(cli, "spec-fd") != NULL;
    (void)out;
    STK_TRY(stk_cli_run_options(cli, &how, err));
    how.options.resume = stk_cli_value(cli, "resume");
    STK_TRY(read_clone(cli, &how.options, err));
    if (target == NULL && !piped) {
        return stk_cli_usage(cli, err,
                             "a pipeline is missing: name a pipeline.yaml or a Python file");
    }
    if (!piped && stk_cli_is_python(target)) {
        STK_TRY(stk_cli_check_words(cli, how.quiet, err));
    }
    if (stk_cli_flag(cli, "detach")) {
        STK_TRY(stk_cli_detach(cli, err));
    }
    if (!piped && stk_cli_is_python(target)) {
        return stk_cli_exec_python(cli, &how, target, stk_cli_args(cli) + 1, err);
    }
    if (!piped && !stk_cli_is_document(target)) {
        return stk_cli_usage(cli, err,
                             "'%s' is neither a pipeline document (.yaml, .yml, .json) nor a "
                             "Python file (.py)",
                             target);
    }
    if (!piped && stk_cli_n_args(cli) > 1) {
        return stk_cli_usage(cli, err,
                             "'%s' takes no further arguments: parameters go as --param NAME=VALUE",
                             target);
    }
    if (load_document(cli, &spec, err) < 0) {
        return stk_cli_run_refused(cli, &how, err);
    }
    return stk_cli_run_spec(cli, spec, &how);
}

static const stk_option options_of_run[] = {
    {"param", 'p', "NAME=VALUE", "set a parameter of the pipeline", true},
    {"policy", 0, "fit|strict",
     "if this machine can't grant a request: run with less and say so, or refuse"},
    {"with", 0, "STACK",
     "where steps run: local, docker, kubernetes, batch, slurm, ssh, or a stack of stoker.yaml; "
     "options may follow: lab:NAME=VALUE,NAME=VALUE"},
    {"stack", 0, "STACK", "the same"},
    {"simulate", 0, "SPEC", "devices of a machine that isn't here (see 'stoker gpus')"},
    {"max-workers", 'j', "N",
     "at most N steps at once; steps that ask for no CPUs then don't wait for CPUs (default: as "
     "many as fit)"},
    {"mode", 0, "MODE", "continue_on_failure, stop_on_failure or fail_fast"},
    {"no-cache", 0, NULL, "run every step, even if its result is known"},
    {"run-name", 0, "NAME", "a name for the run"},
    {"detach", 'd', NULL, "run in the background; print the run's id"},
    {"quiet", 'q', NULL, "print failures only, and nothing that steps print"},
    {"echo", 0, NULL, "print in the style of flows: '[RUN/STEP (pid P)] line'"},
    {"python", 0, "EXE", "interpreter for Python files and steps"},
    {"spec", 0, "FILE", "a pipeline document (- for standard input)"},
    {"spec-fd", 0, "FD", "the same, from an open descriptor (for front ends)", .hidden = true},
    {"code-fd", 0, "FD", "the texts of the steps' code (for front ends)", .hidden = true},
    {"forkserver-fd", 0, "FD", "a connected fork server (for front ends)", .hidden = true},
    {"in-order", 0, NULL, "one step at a time, in the document's order, if all run on this machine",
     .hidden = true},
    {"front-fd", 0, "FD", "report the run's begin and end there (for front ends)", .hidden = true},
    {"clone", 0, "RUN", "in a graph that grows: take over that run's finished tasks"},
    {"clone-until", 0, "STEP", "with --clone: but not those of this step and what follows it"},
    {"clone-only", 0, NULL, "with --clone: and stop there ('stoker resume' continues)"},
    {"resume", 0, "RUN", "continue this run (for front ends; users have 'stoker resume')",
     .hidden = true},
    {"use-new-code", 0, NULL, "with --resume: continue although the code has changed",
     .hidden = true},
    {NULL}};

const stk_command stk_cmd_run = {
    .name = "run",
    .summary = "run a pipeline document or a Python file",
    .usage = "[options] pipeline.yaml | file.py[:pipeline] [options] [-- words of the file]",
    .text =
        "A pipeline document (YAML or JSON, see schema/pipeline.schema.json) is run by the engine "
        "itself. A Python file is run as\n'python file.py' would run it; the options are the "
        "defaults of every pipeline that it calls. file.py:name calls that\npipeline. Options may "
        "stand on either side of the file; the words after '--' are the program's own. A\nflow's "
        "own words need no '--'. 'python -m stoker' is this command with that Python.\n"
        "Steps whose code, inputs and settings are known are not "
        "run again. Ctrl-C ends running steps gracefully, a\nsecond one at once; SIGTERM (the "
        "machine is wanted back) does as the first. 'stoker resume' takes the run up\nwhere it "
        "stopped, steps with checkpoints where these were.\n\n"
        "--with docker runs each step in its image (docker.parent_image), by Docker or Podman of "
        "this machine; a step\nwithout one runs on the machine itself. stoker.yaml, in the "
        "document's folder or above it up to the project's, names stacks:\nstacks: {lab: {backend: "
        "docker, default_image: …, image_map: {nvcr.io/: mirror/}, socket: …}}.\n"
        "It also names tools that hear of each run, as STOKER_TRACKERS, STOKER_OPENLINEAGE and "
        "STOKER_OPENTELEMETRY\ndo: trackers: [mlflow, wandb, tensorboard], openlineage: and "
        "opentelemetry: an address or a file.\n\n"
        "--with kubernetes, batch, slurm, ssh or a stack of these sends steps to other machines, "
        "which "
        "share a "
        "store with this one\n(`store:` of the stack, or STOKER_SHARE). They take nothing of this "
        "machine; --policy is strict unless said.\nSIGTERM to the engine leaves them running: "
        "'stoker resume' goes on with them; Ctrl-C and 'stoker cancel' end them.",
    .options = options_of_run,
    .words_behind = stk_cli_words_of_file,
    .max_args = -1,
    .run = run_run};
