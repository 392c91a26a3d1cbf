/* `stoker export`: a run as files for who has no Stoker. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "away/slurm/slurm.h"
#include "base/text.h"
#include "cli/cli_run.h"
#include "cli/cli_words.h"
#include "run/run_export.h"
#include "sys/file.h"

static const char scratch_name[] = "STOKER_EXPORT_SCRATCH";

static const stk_driver_kind *find_driver(const char *name)
{
    if (strcmp(name, stk_driver_slurm_export.name) == 0) {
        return &stk_driver_slurm_export;
    }
    return stk_cli_driver(name);
}

/* A store for this export alone: what it records never happened. Its path is that of the jobs' own
 * stores, so it is one that every node can have. A Python file's program inherits it, because it
 * stores values for the pipeline. */
static int open_scratch(stk_err *err)
{
    char path[] = "/tmp/stoker-export-XXXXXX";
    if (getenv(scratch_name) != NULL) {
        return 0;
    }
    if (mkdtemp(path) == NULL) {
        return stk_err_sys(err, STK_E_SYS, errno, "making a folder in /tmp");
    }
    bool is_set = setenv(scratch_name, path, 1) == 0 && setenv("STOKER_STORE", path, 1) == 0;
    return is_set ? 0 : stk_err_nomem(err);
}

static void close_scratch(void)
{
    const char *path = getenv(scratch_name);
    if (path != NULL) {
        (void)stk_file_remove_tree(path, NULL);
    }
}

/* Values aren't needed before the jobs are submitted, and none is written. */
static int pretend_secrets(const stk_spec *spec, stk_err *err)
{
    for (uint32_t i = 0; i < stk_spec_n_steps(spec); i++) {
        const stk_settings *s = stk_spec_step(spec, i)->settings;
        for (uint32_t k = 0; k < s->n_secrets; k++) {
            STK_TEXT_AUTO name = stk_file_printf("STOKER_SECRET_%s", s->secrets[k]);
            STK_TRY(stk_err_if_null(name, err));
            (void)setenv(name, "-", 1);
        }
    }
    return 0;
}

static int load_pipeline(const stk_cli *cli, stk_spec **ret, stk_err *err)
{
    if (stk_cli_value(cli, "spec-fd") != NULL) {
        STK_TRY(stk_cli_load_spec(cli, ret, err));
    } else {
        STK_TRY(stk_run_load_document(stk_cli_arg(cli, 1), ret, err));
    }
    return stk_cli_params(cli, *ret, err);
}

static int export_document(const stk_cli *cli, stk_cli_run *how, const char *folder, stk_buf *out,
                           stk_err *err)
{
    STK_SPEC_AUTO spec = NULL;
    how->options.share = folder;
    how->options.drivers = find_driver;
    how->options.use_cache = false;
    if (setenv("STOKER_SHARE", folder, 1) < 0) {
        return stk_err_nomem(err);
    }
    STK_TRY(load_pipeline(cli, &spec, err));
    STK_TRY(pretend_secrets(spec, err));
    STK_TRY(stk_run_export_slurm(spec, &how->options, err));
    uint32_t n = stk_spec_n_steps(spec);
    return stk_buf_printf(out, "%s: %u step%s; 'sh %s/submit.sh' submits", folder, n,
                          stk_text_plural(n), folder);
}

static int export_slurm(const stk_cli *cli, stk_cli_run *how, stk_buf *out, stk_err *err)
{
    bool piped = stk_cli_value(cli, "spec-fd") != NULL;
    const char *to = stk_cli_value(cli, "to"), *target = stk_cli_arg(cli, 1);
    if (to == NULL) {
        return stk_cli_usage(cli, err, "--to is missing: the folder to write");
    }
    if (target == NULL && !piped) {
        return stk_cli_usage(cli, err,
                             "a pipeline is missing: name a pipeline.yaml or a Python file");
    }
    STK_TEXT_AUTO folder = stk_file_absolute(to);
    STK_TRY(stk_err_if_null(folder, err));
    how->options.with = stk_text_or(how->options.with, "slurm");
    if (!piped && stk_cli_is_python(target)) {
        STK_TRY(stk_cli_check_words(cli, how->quiet, err));
        how->plan = true;
        how->to = folder;
        return stk_cli_exec_python(cli, how, target, stk_cli_args(cli) + 2, err);
    }
    return export_document(cli, how, folder, out, err);
}

static int run_export(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    stk_cli_run how;
    const char *what = stk_cli_arg(cli, 0);
    if (what == NULL || strcmp(what, "slurm-script") != 0) {
        return stk_cli_usage(cli, err, "say what to export: slurm-script");
    }
    STK_TRY(stk_cli_run_options(cli, &how, err));
    STK_TRY(open_scratch(err));
    int rc = export_slurm(cli, &how, out, err);
    close_scratch();
    return rc;
}

static const stk_option options_of_export[] = {
    {"to", 0, "FOLDER", "the folder to write; it must be new, and outside of the project"},
    {"param", 'p', "NAME=VALUE", "set a parameter of the pipeline", true},
    {"with", 0, "STACK", "the stack of Slurm whose options the jobs have (slurm)"},
    {"stack", 0, "STACK", "the same"},
    {"python", 0, "EXE", "interpreter for Python files"},
    {"spec-fd", 0, "FD", "a document from an open descriptor (for front ends)", .hidden = true},
    {NULL}};

const stk_command stk_cmd_export = {
    .name = "export",
    .summary = "write a run as batch scripts of Slurm that need no Stoker",
    .usage = "slurm-script --to FOLDER [options] pipeline.yaml | file.py",
    .text =
        "Writes FOLDER with a batch script for each step, submit.sh, the project's code and "
        "Stoker's program for the\nnodes. Who has Slurm and a folder that the nodes share runs 'sh "
        "FOLDER/submit.sh': it submits a job for each\nstep, in their order by --dependency. "
        "FOLDER/results/STEP/OUTPUT are the outputs, FOLDER/logs what the steps\nprint. FOLDER may "
        "be moved before.\n\nThere is no engine: no cache, no retries, and no hooks. A pipeline "
        "that grows while it runs is refused.",
    .options = options_of_export,
    .words_behind = stk_cli_words_of_file,
    .max_args = -1,
    .run = run_export};
