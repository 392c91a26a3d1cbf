/* A Python file is run by its interpreter, with our options in STOKER_RUN_OPTIONS. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli_run.h"
#include "run/run_python.h"
#include "sys/file.h"
#include "sys/trust.h"

static json_t *params_json(const stk_cli *cli)
{
    json_t *params = json_object();
    for (int i = 0; stk_cli_value_at(cli, "param", i) != NULL; i++) {
        const char *pair = stk_cli_value_at(cli, "param", i);
        const char *eq = strchr(pair, '='); /* there is one: the options were checked */
        STK_TEXT_AUTO name = strndup(pair, (size_t)(eq - pair));
        json_object_set_new(params, name, json_string(eq + 1)); /* the front knows the type */
    }
    return params;
}

static int set_run_options(const stk_cli *cli, const stk_cli_run *how)
{
    const stk_run_options *options = &how->options;
    json_t *doc = json_object();
    if (options->has_policy) {
        json_object_set_new(doc, "policy",
                            json_string(options->policy == STK_POLICY_STRICT ? "strict" : "fit"));
    }
    json_object_set_new(doc, "params", params_json(cli));
    json_object_set_new(doc, "no_cache", json_boolean(!options->use_cache));
    json_object_set_new(doc, "quiet", json_boolean(how->quiet));
    json_object_set_new(doc, "echo", json_boolean(how->echo));
    json_object_set_new(doc, "use_new_code", json_boolean(options->use_new_code));
    if (options->max_workers > 0) {
        json_object_set_new(doc, "max_workers", json_integer(options->max_workers));
    }
    if (options->mode >= 0) {
        json_object_set_new(doc, "mode", json_string(stk_mode_word((stk_mode)options->mode)));
    }
    if (options->with != NULL) {
        json_object_set_new(doc, "with", json_string(options->with));
    }
    if (options->name != NULL) {
        json_object_set_new(doc, "run_name", json_string(options->name));
    }
    if (how->plan) {
        static const char *const forms[] = {"dockerfile", "manifest", "json"};
        const char *form = how->build ? "build" : "text";
        for (size_t i = sizeof forms / sizeof *forms; !how->build && i-- > 0;) {
            if (stk_cli_flag(cli, forms[i])) {
                form = forms[i];
            }
        }
        json_object_set_new(doc, "plan", json_string(form));
    }
    if (options->resume != NULL) {
        json_object_set_new(doc, "resume", json_string(options->resume));
    }
    char *text = json_dumps(doc, JSON_COMPACT);
    json_decref(doc);
    int rc = text == NULL ? -1 : setenv("STOKER_RUN_OPTIONS", text, 1);
    free(text);
    return rc;
}

int stk_cli_exec_python(const stk_cli *cli, const stk_cli_run *how, const char *file, char **args)
{
    const stk_run_options *options = &how->options;
    char venv[4096];
    const char *python = stk_run_python(options->python, venv, sizeof venv);
    const char *colon = strstr(file, ".py:");
    STK_TEXT_AUTO path = colon != NULL ? strndup(file, (size_t)(colon - file) + 3) : strdup(file);
    int n = 0;
    while (args[n] != NULL) {
        n++;
    }
    const char **argv = calloc((size_t)n + 6, sizeof *argv);
    if (argv == NULL || path == NULL || set_run_options(cli, how) < 0) {
        free(argv);
        return stk_cli_usage(cli, "out of memory");
    }
    if (!stk_file_exists(path)) {
        free(argv);
        return stk_cli_usage(cli, "there is no file %s", path);
    }
    stk_err err;
    if (stk_trust_path(path, &err) < 0) { /* it runs as us from its first line on */
        free(argv);
        return stk_cli_fail(cli, &err);
    }
    int k = 0;
    argv[k++] = python;
    if (colon != NULL) {
        argv[k++] = "-m";
        argv[k++] = "stoker._runfile";
    }
    argv[k++] = path;
    if (colon != NULL) {
        argv[k++] = colon + 4;
    }
    memcpy(argv + k, args, (size_t)n * sizeof *argv);
    setenv("STOKER_BIN", stk_cli_program(cli), 0);
    execvp(python, (char *const *)(uintptr_t)argv);
    /* one that was named is a wrong word; else this machine lacks it */
    stk_err_sys(&err, options->python != NULL ? STK_E_NOT_FOUND : STK_E_ENV, errno, "starting %s",
                python);
    stk_err_hint(&err, "name an interpreter with --python, or activate a virtual environment");
    free(argv);
    return stk_cli_fail(cli, &err);
}
