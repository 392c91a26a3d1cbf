/* Runs a Python file with its interpreter, and passes our options on in STOKER_RUN_OPTIONS. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/cli_run.h"
#include "run/run_python.h"
#include "sys/file.h"
#include "sys/trust.h"

static void put_params(stk_buf *out, const stk_cli *cli)
{
    stk_json_open(out, "params", '{');
    for (int i = 0; stk_cli_value_at(cli, "param", i) != NULL; i++) {
        const char *pair = stk_cli_value_at(cli, "param", i);
        const char *eq = strchr(pair, '='); /* never NULL: check_params has run */
        STK_TEXT_AUTO name = strndup(pair, (size_t)(eq - pair));
        stk_json_put_text(out, stk_text_or(name, ""), eq + 1); /* the front knows the type */
    }
    stk_json_close(out, '}');
}

static const char *plan_form(const stk_cli *cli, const stk_cli_run *how)
{
    if (how->build) {
        return "build";
    }
    if (how->to != NULL) {
        return "export";
    }
    if (stk_cli_flag(cli, "dockerfile")) {
        return "dockerfile";
    }
    if (stk_cli_flag(cli, "manifest")) {
        return "manifest";
    }
    return stk_cli_json(cli) ? "json" : "text";
}

static int set_run_options(const stk_cli *cli, const stk_cli_run *how, stk_err *err)
{
    const stk_run_options *options = &how->options;
    const struct {
        const char *key, *text; /* NULL: not given */
    } texts[] = {{"mode", options->mode < 0 ? NULL : stk_mode_word((stk_mode)options->mode)},
                 {"with", options->with},
                 {"run_name", options->name},
                 {"plan", how->plan ? plan_form(cli, how) : NULL},
                 {"to", how->to},
                 {"resume", options->resume}};
    STK_BUF_AUTO out = STK_BUF_INIT(STK_LIMIT_SPEC_BYTES);
    stk_json_open(&out, NULL, '{');
    if (options->has_policy) {
        bool is_strict = options->policy == STK_POLICY_STRICT;
        stk_json_put_text(&out, "policy", is_strict ? "strict" : "fit");
    }
    put_params(&out, cli);
    stk_json_put_bool(&out, "no_cache", !options->use_cache);
    stk_json_put_bool(&out, "quiet", how->quiet);
    stk_json_put_bool(&out, "echo", how->echo);
    stk_json_put_bool(&out, "json", stk_cli_json(cli) && !how->plan);
    stk_json_put_bool(&out, "use_new_code", options->use_new_code);
    if (options->max_workers > 0) {
        stk_json_put_whole(&out, "max_workers", options->max_workers);
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (texts[i].text != NULL) {
            stk_json_put_text(&out, texts[i].key, texts[i].text);
        }
    }
    stk_json_close(&out, '}');
    if (out.failed || setenv("STOKER_RUN_OPTIONS", out.data, 1) < 0) {
        return stk_err_nomem(err);
    }
    return 0;
}

/* The program's own imports may fail before it imports stoker: `_site` then tells it in one line,
 * once it has put the variable back. */
static void begin_program(const char *program, stk_arena *arena)
{
    const char *front = stk_run_front(program, arena), *path = getenv("PYTHONPATH");
    const char *before =
        stk_arena_printf(arena, "%s%s", stk_text_when(path != NULL, "="), stk_text_or(path, ""));
    const char *with_site =
        stk_arena_printf(arena, "%s/_worker/_site%s%s", stk_text_or(front, ""),
                         stk_text_when(stk_text_if_any(path) != NULL, ":"), stk_text_or(path, ""));
    if (front != NULL && before != NULL && with_site != NULL) {
        (void)setenv("STOKER_PYTHONPATH", before, 1);
        (void)setenv("PYTHONPATH", with_site, 1);
    }
}

int stk_cli_exec_python(const stk_cli *cli, const stk_cli_run *how, const char *file, char **args,
                        stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *named = how->options.python;
    const char *python = stk_run_python(named, arena);
    const char *colon = strstr(file, ".py:"), *path = file;
    int n = 0, k = 0;
    if (colon != NULL) {
        path = stk_arena_dupn(arena, file, (size_t)(colon - file) + 3);
    }
    while (args[n] != NULL) {
        n++;
    }
    const char **argv = stk_arena_array(arena, (size_t)n + 6, sizeof *argv);
    if (argv == NULL || path == NULL) {
        return stk_err_nomem(err);
    }
    STK_TRY(set_run_options(cli, how, err));
    if (!stk_file_exists(path)) {
        return stk_cli_usage(cli, err, "file %s doesn't exist", path);
    }
    STK_TRY(stk_trust_path(path, err)); /* the file can run anything as us */
    argv[k++] = python;
    if (colon != NULL) {
        argv[k++] = "-m";
        argv[k++] = "stoker._runfile";
    }
    argv[k++] = path;
    if (colon != NULL) {
        argv[k++] = colon + 4;
    }
    if (colon == NULL) {
        begin_program(stk_cli_program(cli), arena);
    }
    memcpy(argv + k, args, (size_t)n * sizeof *argv);
    setenv("STOKER_BIN", stk_cli_program(cli), 0);
    execvp(python, (char *const *)(uintptr_t)argv);
    /* a named interpreter is the user's mistake, a missing default one this machine's */
    stk_err_sys(err, named != NULL ? STK_E_NOT_FOUND : STK_E_ENV, errno, "starting %s", python);
    stk_err_hint(err, "name an interpreter with --python, or activate a virtual environment");
    return err->code;
}
