/* `stoker plan`: shows what would run, on what, and why the cache doesn't have it. */
#include <string.h>

#include "base/buf.h"
#include "cli/cli_run.h"
#include "cli/cli_words.h"
#include "run/run_plan.h"
#include "show/plan.h"

static void add_note(void *arg, const char *text)
{
    (void)stk_buf_printf(arg, "# %s\n", text);
}

/* What would be submitted for one step; nothing if it runs on this machine. */
static int put_manifest(const stk_run_plan *p, uint32_t i, stk_buf *out, stk_err *err)
{
    const stk_place *place = &p->containers.places[i];
    STK_BUF_AUTO notes = STK_BUF_INIT(64 << 10);
    const char **documents = NULL;
    uint32_t n = 0;
    if (!stk_place_is_elsewhere(place->kind)) {
        return 0;
    }
    STK_TRY(stk_run_elsewhere_documents(&p->elsewhere, p->spec, i, add_note, &notes, &documents, &n,
                                        err));
    if (n > 0) {
        stk_buf_printf(out, "# step '%s', on %s (stack '%s')\n", stk_spec_step(p->spec, i)->name,
                       stk_place_word(place->kind), place->stack->name);
        stk_buf_add(out, notes.data, notes.len);
    }
    for (uint32_t k = 0; k < n; k++) {
        stk_buf_printf(out, "---\n%s\n", documents[k]);
    }
    return 0;
}

/* The JSON documents of step `only`, or of all steps on other machines, separated by `---` and a
 * comment that names the step. `kubectl apply -f` accepts them. */
static int put_manifests(const stk_run_plan *p, const char *only, stk_buf *out, stk_err *err)
{
    int64_t wanted = only == NULL ? -1 : stk_spec_find_word(p->spec, only);
    uint32_t n_found = 0;
    if (only != NULL && wanted < 0) {
        return stk_err_set(err, STK_E_NOT_FOUND, "the pipeline has no step '%s'", only);
    }
    for (uint32_t i = 0; i < stk_spec_n_steps(p->spec); i++) {
        if (wanted < 0 || i == wanted) {
            n_found += stk_place_is_elsewhere(p->containers.places[i].kind);
            STK_TRY(put_manifest(p, i, out, err));
        }
    }
    if (n_found > 0) {
        return 0;
    }
    if (only != NULL) {
        stk_err_set(err, STK_E_USAGE, "step '%s' runs on this machine: there is nothing to submit",
                    only);
    } else {
        stk_err_set(err, STK_E_USAGE,
                    "every step runs on this machine: there is nothing to submit");
    }
    stk_err_hint(err, "name a stack: --with kubernetes");
    return STK_E_USAGE;
}

static int put_plan(const stk_cli *cli, const stk_cli_run *how, const char *step, stk_buf *out,
                    stk_err *err)
{
    STK_SPEC_AUTO spec = NULL;
    STK_RUN_PLAN_AUTO plan = {0};
    STK_TRY(stk_cli_load_spec(cli, &spec, err));
    if (stk_cli_flag(cli, "dockerfile")) { /* needs no plan */
        return stk_cli_put_dockerfiles(cli, spec, step, out, err);
    }
    STK_TRY(stk_cli_params(cli, spec, err));
    STK_TRY(stk_run_plan_open(spec, &how->options, &plan, err));
    if (stk_cli_flag(cli, "manifest")) {
        return put_manifests(&plan, step, out, err);
    }
    STK_TRY(stk_run_plan_forecast(&plan, err));
    if (stk_cli_json(cli)) {
        stk_show_plan_json(&plan, out);
    } else {
        stk_show_plan_text(&plan, out);
    }
    return 0;
}

static int run_plan(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    stk_cli_run how;
    bool piped = stk_cli_value(cli, "spec-fd") != NULL;
    bool one_step = stk_cli_flag(cli, "dockerfile") || stk_cli_flag(cli, "manifest");
    if (stk_cli_arg(cli, 0) == NULL && !piped) {
        return stk_cli_usage(cli, err,
                             "a pipeline is missing: name a pipeline.yaml or a Python file");
    }
    STK_TRY(stk_cli_run_options(cli, &how, err));
    if (!piped && stk_cli_is_python(stk_cli_arg(cli, 0))) {
        STK_TRY(stk_cli_check_words(cli, how.quiet, err));
        how.plan = true;
        return stk_cli_exec_python(cli, &how, stk_cli_arg(cli, 0), stk_cli_args(cli) + 1, err);
    }
    STK_TRY(stk_cli_at_most(cli, !piped + one_step, err));
    return put_plan(cli, &how, stk_cli_arg(cli, !piped), out, err);
}

static const stk_option options_of_plan[] = {
    {"param", 'p', "NAME=VALUE", "set a parameter of the pipeline", true},
    {"policy", 0, "fit|strict", "as for 'stoker run'"},
    {"with", 0, "STACK",
     "where steps would run: local, docker, kubernetes, batch, slurm, ssh, or a stack of "
     "stoker.yaml"},
    {"stack", 0, "STACK", "the same"},
    {"simulate", 0, "SPEC", "devices of a machine that isn't here (see 'stoker gpus')"},
    {"python", 0, "EXE", "interpreter for Python files"},
    {"dockerfile", 0, NULL, "print what would be built for the steps' images instead"},
    {"manifest", 0, NULL, "print what would be submitted for steps on other machines instead"},
    {"spec-fd", 0, "FD", "a document from an open descriptor (for front ends)"},
    {NULL}};

const stk_command stk_cmd_plan = {
    .name = "plan",
    .summary = "show what would run, where, and what the cache has",
    .usage = "[options] pipeline.yaml | --dockerfile|--manifest pipeline.yaml [STEP] | "
             "[--dockerfile|--manifest] file.py",
    .text = "Starts nothing. Shows for each step what it would be granted, whether its result is "
            "known, and if not, what changed. With --simulate it also shows which of the machine's "
            "devices the step would get if it ran alone.\n\n--dockerfile prints the Dockerfiles "
            "for the docker settings of STEP, or of all steps; a step whose image runs unchanged "
            "has none.\n\n--manifest prints what would be submitted for steps on other machines, "
            "for STEP or for all.",
    .options = options_of_plan,
    .words_behind = stk_cli_words_of_file,
    .max_args = -1,
    .run = run_plan};
