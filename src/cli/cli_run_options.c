/* The options that `run`, `resume`, `plan`, `build` and `cancel` share, and their document. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "cli/cli_run.h"
#include "sys/file.h"

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text);
    size_t m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

bool stk_cli_is_python(const char *word)
{
    return ends_with(word, ".py") || strstr(word, ".py:") != NULL;
}

bool stk_cli_is_document(const char *word)
{
    return ends_with(word, ".yaml") || ends_with(word, ".yml") || ends_with(word, ".json") ||
           strcmp(word, "-") == 0;
}

int stk_cli_simulate(const stk_cli *cli, stk_err *err)
{
    const char *spec = stk_cli_value(cli, "simulate");
    STK_TEXT_AUTO provider = NULL;
    if (spec != NULL &&
        (asprintf(&provider, "sim:%s", spec) < 0 || setenv("STOKER_ACCEL", provider, 1) < 0)) {
        provider = NULL;
        return stk_err_nomem(err);
    }
    return 0;
}

static void say_line(void *arg, const char *line)
{
    (void)arg;
    fprintf(stderr, "stoker: %s\n", line);
}

stk_cli_run stk_cli_run_plain(const stk_cli *cli)
{
    return (stk_cli_run){.options = {.policy = STK_POLICY_FIT,
                                     .mode = -1,
                                     .server_fd = -1,
                                     .code_fd = -1,
                                     .program = stk_cli_program(cli),
                                     .drivers = stk_cli_driver,
                                     .say = say_line},
                         .front_fd = -1};
}

/* Checks that every --param is NAME=VALUE and UTF-8. */
static int check_params(const stk_cli *cli, stk_err *err)
{
    const char *pair;
    for (int i = 0; (pair = stk_cli_value_at(cli, "param", i)) != NULL; i++) {
        if (strchr(pair, '=') == NULL || *pair == '=') {
            return stk_err_set(err, STK_E_USAGE, "--param '%s' is not NAME=VALUE", pair);
        }
        if (!stk_json_is_utf8(pair, strlen(pair))) {
            return stk_err_set(
                err, STK_E_USAGE,
                "--param %.*s: its name or value isn't UTF-8 text; give bytes as a file",
                (int)strcspn(pair, "="), pair);
        }
    }
    return 0;
}

static int read_name(const stk_cli *cli, const char **ret_name, stk_err *err)
{
    const char *name = stk_cli_value(cli, "run-name");
    if (name != NULL && strchr(name, '/') != NULL) {
        return stk_err_set(
            err, STK_E_USAGE,
            "--run-name '%s': a name can't contain '/', because RUN/STEP names a step", name);
    }
    if (name != NULL && !stk_json_is_utf8(name, strlen(name))) {
        return stk_err_set(err, STK_E_USAGE, "--run-name: the name isn't UTF-8 text");
    }
    *ret_name = name;
    return 0;
}

static int read_policy(const stk_cli *cli, stk_run_options *ret, stk_err *err)
{
    const char *policy = stk_cli_value(cli, "policy");
    const char *mode = stk_cli_value(cli, "mode");
    ret->has_policy = policy != NULL;
    if (policy != NULL && strcmp(policy, "strict") == 0) {
        ret->policy = STK_POLICY_STRICT;
    } else if (policy != NULL && strcmp(policy, "fit") != 0) {
        return stk_err_set(err, STK_E_USAGE, "--policy '%s' is neither 'strict' nor 'fit'", policy);
    }
    if (mode != NULL && (ret->mode = stk_mode_of(mode)) < 0) {
        return stk_err_set(
            err, STK_E_USAGE,
            "--mode '%s' is not one of continue_on_failure, stop_on_failure, fail_fast", mode);
    }
    return 0;
}

int stk_cli_run_options(const stk_cli *cli, stk_cli_run *how, stk_err *err)
{
    int64_t workers = 0, server = -1, front = -1, code = -1;
    *how = stk_cli_run_plain(cli);
    stk_run_options *ret = &how->options;
    ret->use_cache = !stk_cli_flag(cli, "no-cache");
    ret->use_new_code = stk_cli_flag(cli, "use-new-code");
    ret->with = stk_text_or(stk_cli_value(cli, "stack"), stk_cli_value(cli, "with"));
    ret->python = stk_cli_value(cli, "python");
    how->quiet = stk_cli_flag(cli, "quiet");
    how->echo = stk_cli_flag(cli, "echo");
    if (how->quiet) {
        ret->say = NULL;
    }
    STK_TRY(read_policy(cli, ret, err));
    STK_TRY(check_params(cli, err));
    STK_TRY(read_name(cli, &ret->name, err));
    STK_TRY(stk_cli_simulate(cli, err));
    STK_TRY(stk_cli_number(cli, "max-workers", 1, STK_LIMIT_WORKERS, &workers, err));
    STK_TRY(stk_cli_number(cli, "forkserver-fd", 0, 1 << 20, &server, err));
    STK_TRY(stk_cli_number(cli, "front-fd", 0, 1 << 20, &front, err));
    STK_TRY(stk_cli_number(cli, "code-fd", 0, 1 << 20, &code, err));
    ret->max_workers = (uint32_t)workers;
    ret->in_order = stk_cli_flag(cli, "in-order");
    ret->server_fd = (int)server;
    ret->code_fd = (int)code;
    how->front_fd = (int)front;
    return 0;
}

int stk_cli_params(const stk_cli *cli, stk_spec *spec, stk_err *err)
{
    for (int i = 0; stk_cli_value_at(cli, "param", i) != NULL; i++) {
        const char *pair = stk_cli_value_at(cli, "param", i);
        const char *eq = strchr(pair, '=');
        STK_TEXT_AUTO name = strndup(pair, (size_t)(eq - pair));
        STK_TRY(stk_err_if_null(name, err));
        STK_TRY(stk_spec_set_param(spec, name, eq + 1, err));
    }
    return stk_spec_check_params(spec, err);
}

int stk_cli_load_spec(const stk_cli *cli, stk_spec **ret_spec, stk_err *err)
{
    const char *file = stk_text_or(stk_cli_value(cli, "spec"), stk_cli_arg(cli, 0));
    int64_t fd = -1;
    STK_TRY(stk_cli_number(cli, "spec-fd", 0, 1 << 20, &fd, err));
    if (fd < 0 && strcmp(file, "-") != 0) {
        return stk_run_load_document(file, ret_spec, err);
    }
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    int rc = stk_file_read_fd((int)MAX(fd, 0), "the pipeline document", STK_LIMIT_SPEC_BYTES, &text,
                              &len, err);
    if (rc == 0 && fd >= 0) {
        close((int)fd);
    }
    STK_TRY(rc);
    return stk_run_parse_document(text, len, NULL, ret_spec, err);
}
