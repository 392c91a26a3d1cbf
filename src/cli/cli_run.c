/* `stoker run`: a pipeline document, or a Python file that calls pipelines. */
#include "cli/cli_run.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/units.h"
#include "run/run_python.h"
#include "sys/file.h"
#include "sys/trust.h"

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

bool stk_cli_is_program(const char *word)
{
    return ends_with(word, ".py");
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

stk_cli_run stk_cli_run_plain(const stk_cli *cli)
{
    return (stk_cli_run){.options = {.policy = STK_POLICY_FIT,
                                     .mode = -1,
                                     .server_fd = -1,
                                     .program = stk_cli_program(cli),
                                     .drivers = stk_cli_driver},
                         .front_fd = -1};
}

int stk_cli_run_options(const stk_cli *cli, stk_cli_run *how, stk_err *err)
{
    *how = stk_cli_run_plain(cli);
    stk_run_options *ret = &how->options;
    ret->use_cache = !stk_cli_flag(cli, "no-cache");
    const char *policy = stk_cli_value(cli, "policy");
    ret->has_policy = policy != NULL;
    if (policy != NULL && strcmp(policy, "strict") == 0) {
        ret->policy = STK_POLICY_STRICT;
    } else if (policy != NULL && strcmp(policy, "fit") != 0) {
        return stk_err_set(err, STK_E_USAGE, "--policy '%s' is neither 'strict' nor 'fit'", policy);
    }
    const char *mode = stk_cli_value(cli, "mode");
    if (mode != NULL && (ret->mode = stk_mode_of(mode)) < 0) {
        return stk_err_set(err, STK_E_USAGE,
                           "--mode '%s' is none of continue_on_failure, stop_on_failure, fail_fast",
                           mode);
    }
    for (int i = 0; stk_cli_value_at(cli, "param", i) != NULL; i++) {
        const char *pair = stk_cli_value_at(cli, "param", i);
        if (strchr(pair, '=') == NULL || *pair == '=') {
            return stk_err_set(err, STK_E_USAGE, "--param '%s' is not NAME=VALUE", pair);
        }
    }
    const char *stack = stk_cli_value(cli, "stack");
    ret->with = stack != NULL ? stack : stk_cli_value(cli, "with");
    how->quiet = stk_cli_flag(cli, "quiet");
    how->echo = stk_cli_flag(cli, "echo");
    if (how->echo && stk_cli_json(cli)) {
        return stk_err_set(
            err, STK_E_USAGE,
            "--echo and --json both want stdout; 'stoker logs' has what steps wrote");
    }
    ret->use_new_code = stk_cli_flag(cli, "use-new-code");
    ret->name = stk_cli_value(cli, "run-name");
    if (ret->name != NULL && strchr(ret->name, '/') != NULL) {
        return stk_err_set(err, STK_E_USAGE,
                           "--run-name '%s': a name can't have a '/': RUN/STEP names a step of it",
                           ret->name);
    }
    if (ret->name != NULL && !stk_json_is_utf8(ret->name, strlen(ret->name))) {
        return stk_err_set(err, STK_E_USAGE, "--run-name: the name isn't UTF-8 text");
    }
    for (int i = 0; stk_cli_value_at(cli, "param", i) != NULL; i++) {
        const char *pair = stk_cli_value_at(cli, "param", i);
        if (!stk_json_is_utf8(pair, strlen(pair))) {
            return stk_err_set(
                err, STK_E_USAGE,
                "--param %.*s: its name or value isn't UTF-8 text; give bytes as a file",
                (int)strcspn(pair, "="), pair);
        }
    }
    ret->python = stk_cli_value(cli, "python");
    int64_t workers = 0;
    int64_t server = -1;
    int64_t front = -1;
    int rc = stk_cli_simulate(cli, err);
    rc = rc < 0 ? rc : stk_cli_number(cli, "max-workers", 1, STK_LIMIT_WORKERS, &workers, err);
    rc = rc < 0 ? rc : stk_cli_number(cli, "forkserver-fd", 0, 1 << 20, &server, err);
    rc = rc < 0 ? rc : stk_cli_number(cli, "front-fd", 0, 1 << 20, &front, err);
    ret->max_workers = (uint32_t)workers;
    ret->server_fd = (int)server;
    how->front_fd = (int)front;
    return rc;
}

int stk_cli_params(const stk_cli *cli, stk_spec *spec, stk_err *err)
{
    for (int i = 0; stk_cli_value_at(cli, "param", i) != NULL; i++) {
        const char *pair = stk_cli_value_at(cli, "param", i);
        const char *eq = strchr(pair, '=');
        STK_TEXT_AUTO name = strndup(pair, (size_t)(eq - pair));
        if (name == NULL) {
            return stk_err_nomem(err);
        }
        int rc = stk_spec_set_param(spec, name, eq + 1, err);
        if (rc < 0) {
            return rc;
        }
    }
    return stk_spec_check_params(spec, err);
}

int stk_cli_load_spec(const stk_cli *cli, stk_spec **ret_spec, stk_err *err)
{
    const char *file =
        stk_cli_value(cli, "spec") != NULL ? stk_cli_value(cli, "spec") : stk_cli_arg(cli, 0);
    int64_t fd = -1;
    int rc = stk_cli_number(cli, "spec-fd", 0, 1 << 20, &fd, err);
    if (rc < 0) {
        return rc;
    }
    if (fd < 0 && strcmp(file, "-") != 0) {
        return stk_spec_load(file, ret_spec, err);
    }
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    rc = stk_file_read_fd(fd < 0 ? 0 : (int)fd, "the pipeline document", STK_LIMIT_SPEC_BYTES,
                          &text, &len, err);
    if (rc == 0 && fd >= 0) {
        close((int)fd);
    }
    STK_TRY(rc);
    return stk_spec_parse(text, len, NULL, ret_spec, err);
}

/* --- Python files --- */

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
        json_object_set_new(doc, "plan",
                            json_string(how->build                        ? "build"
                                        : stk_cli_flag(cli, "dockerfile") ? "dockerfile"
                                        : stk_cli_flag(cli, "manifest")   ? "manifest"
                                        : stk_cli_json(cli)               ? "json"
                                                                          : "text"));
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

/* --- detaching --- */

/* Forks. In the child: a new session, stdin from nowhere, output to a log in the store; the run's
 * id is to be written to STOKER_DETACH_FD. The parent waits for that, prints it and exits. Returns
 * only in the child (0) or on failure. */
static int detach(const stk_cli *cli)
{
    stk_err err = {0};
    char *store = NULL;
    if (stk_store_find(".", STK_STORE_CREATE, &store, &err) < 0) {
        return stk_cli_fail(cli, &err);
    }
    char folder[4200];
    char log[4400];
    (void)snprintf(folder, sizeof folder, "%s/logs", store);
    (void)snprintf(log, sizeof log, "%s/detached-%lld-%d.log", folder, (long long)time(NULL),
                   (int)getpid());
    free(store);
    int pipes[2];
    int rc = stk_file_mkdirs(folder, 0755, &err);
    int fd = rc < 0 ? -1 : open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (rc == 0 && (fd < 0 || pipe(pipes) < 0)) {
        rc = stk_err_sys(&err, STK_E_SYS, errno, "making %s", log);
    }
    pid_t pid = rc < 0 ? -1 : fork();
    if (pid < 0) {
        return stk_cli_fail(cli,
                            rc < 0 ? &err : (stk_err_sys(&err, STK_E_SYS, errno, "forking"), &err));
    }
    if (pid == 0) {
        char number[16];
        close(pipes[0]);
        setsid();
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        dup2(null, 0);
        dup2(fd, 1);
        dup2(fd, 2);
        (void)snprintf(number, sizeof number, "%d", pipes[1]);
        setenv("STOKER_DETACH_FD", number, 1);
        return 0;
    }
    char id[64] = "";
    close(pipes[1]);
    ssize_t n = read(pipes[0], id, sizeof id - 1);
    if (n > 0) {
        const char *quote = stk_cli_json(cli) ? "\"" : "";
        printf("%s%s%.*s%s%s\n", *quote ? "{\"run\":" : "", quote, (int)strcspn(id, "\n"), id,
               quote, *quote ? "}" : "");
        fprintf(stderr,
                "stoker: run %.*s goes on in the background; 'stoker logs -f %.*s' follows it, "
                "output in %s\n",
                (int)strcspn(id, "\n"), id, (int)strcspn(id, "\n"), id, log);
        fflush(stdout);
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    bool known = WIFEXITED(status) && WEXITSTATUS(status) != 0;
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    if (known && stk_file_read(log, 1 << 16, &text, &len, NULL) == 0 && len > 0) {
        (void)fwrite(text, 1, len, stderr); /* it has said why */
        (void)unlink(log);
    } else {
        stk_err_set(&err, STK_E_FAILED, "the run did not start; its output is in %s", log);
        (void)stk_cli_fail(cli, &err);
    }
    _exit(known ? WEXITSTATUS(status) : 3);
}

/* --- the command --- */

static int read_clone(const stk_cli *cli, stk_run_options *ret, stk_err *err)
{
    ret->clone = stk_cli_value(cli, "clone");
    ret->clone_until = stk_cli_value(cli, "clone-until");
    ret->clone_only = stk_cli_flag(cli, "clone-only");
    const char *more = ret->clone_until != NULL ? "--clone-until"
                       : ret->clone_only        ? "--clone-only"
                                                : NULL;
    if (more != NULL && ret->clone == NULL) {
        return stk_err_set(err, STK_E_USAGE, "%s needs --clone RUN: tasks of which run?", more);
    }
    if (ret->clone != NULL && ret->resume != NULL) {
        return stk_err_set(err, STK_E_USAGE,
                           "--clone begins a new run, --resume goes on with one: say either");
    }
    return 0;
}

/* A program that names the option itself takes it; flows take --with. */
static bool program_takes(const char *file, const char *option)
{
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    return stk_file_read(file, STK_LIMIT_SPEC_BYTES, &text, &len, NULL) < 0 ||
           strstr(text, option) != NULL ||
           (strcmp(option, "--with") == 0 && strstr(text, "FlowSpec") != NULL);
}

/* Words behind a program are its own; one that says where steps run was most likely meant for us,
 * and would be ignored in silence. */
static void note_place_behind(const char *file, char **args)
{
    static const char *const options[] = {"--with", "--stack"};
    for (; *args != NULL && strcmp(*args, "--") != 0; args++) {
        for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
            size_t n = strlen(options[i]);
            const char *end = strncmp(*args, options[i], n) == 0 ? *args + n : NULL;
            bool is_next = end != NULL && *end == '\0' && args[1] != NULL;
            if ((!is_next && (end == NULL || *end != '=')) || program_takes(file, options[i])) {
                continue;
            }
            const char *stack = is_next ? args[1] : end + 1;
            fprintf(stderr,
                    "stoker: '%s %s' behind %s is that program's word, not Stoker's, so steps run "
                    "here; for that stack say: stoker run %s %s %s\n",
                    options[i], stack, file, options[i], stack, file);
            return;
        }
    }
}

static int run_run(stk_cli *cli)
{
    stk_err err = {0};
    stk_cli_run how;
    const char *target = stk_cli_arg(cli, 0);
    if (stk_cli_run_options(cli, &how, &err) < 0) {
        return stk_cli_fail(cli, &err);
    }
    how.options.resume = stk_cli_value(cli, "resume");
    if (read_clone(cli, &how.options, &err) < 0) {
        return stk_cli_fail(cli, &err);
    }
    bool piped = stk_cli_value(cli, "spec") != NULL || stk_cli_value(cli, "spec-fd") != NULL;
    if (target == NULL && !piped) {
        return stk_cli_usage(cli, "what is to be run? give a pipeline.yaml or a Python file");
    }
    if (stk_cli_flag(cli, "detach")) {
        int status = detach(cli);
        if (status != 0) {
            return status;
        }
    }
    if (!piped && stk_cli_is_program(target) && how.options.with == NULL && !how.quiet) {
        note_place_behind(target, stk_cli_args(cli) + 1);
    }
    if (!piped && stk_cli_is_python(target)) {
        return stk_cli_exec_python(cli, &how, target, stk_cli_args(cli) + 1);
    }
    if (!piped && !ends_with(target, ".yaml") && !ends_with(target, ".yml") &&
        !ends_with(target, ".json") && strcmp(target, "-") != 0) {
        return stk_cli_usage(
            cli, "'%s' is neither a pipeline document (.yaml, .yml, .json) nor a Python file (.py)",
            target);
    }
    if (!piped && stk_cli_n_args(cli) > 1) {
        return stk_cli_usage(
            cli, "'%s' takes no further arguments: parameters go as --param NAME=VALUE", target);
    }
    stk_spec *spec = NULL;
    int rc = stk_cli_load_spec(cli, &spec, &err);
    rc = rc < 0 ? rc : stk_cli_params(cli, spec, &err);
    int status = rc < 0 ? stk_cli_run_refused(cli, &how, &err) : stk_cli_run_spec(cli, spec, &how);
    stk_spec_free(spec);
    return status;
}

static const stk_option options_of_run[] = {
    {"param", 'p', "NAME=VALUE", "set a parameter of the pipeline", true},
    {"policy", 0, "fit|strict",
     "what happens when a request can't be given here: run without and say so, or refuse", false},
    {"with", 0, "STACK",
     "where steps run: local, docker, kubernetes, batch, or a stack of stoker.yaml", false},
    {"stack", 0, "STACK", "the same", false},
    {"simulate", 0, "SPEC", "devices of a machine that isn't here (see 'stoker gpus')", false},
    {"max-workers", 'j', "N", "at most N steps at once (default: as many as fit)", false},
    {"mode", 0, "MODE", "continue_on_failure, stop_on_failure or fail_fast", false},
    {"no-cache", 0, NULL, "run every step, also those whose result is known", false},
    {"run-name", 0, "NAME", "a name for the run", false},
    {"detach", 'd', NULL, "go on in the background; print the run's id", false},
    {"quiet", 'q', NULL, "print failures only", false},
    {"echo", 0, NULL, "print what steps write as they write it, '[RUN/STEP (pid P)] line'", false},
    {"python", 0, "EXE", "interpreter for Python files and steps", false},
    {"spec", 0, "FILE", "a pipeline document (- for standard input)", false},
    {"spec-fd", 0, "FD", "the same, from an open descriptor (for front ends)", false},
    {"forkserver-fd", 0, "FD", "a connected fork server (for front ends)", false},
    {"front-fd", 0, "FD", "report the run's begin and end there (for front ends)", false},
    {"clone", 0, "RUN", "of a graph that grows: take over that run's finished tasks", false},
    {"clone-until", 0, "STEP", "with --clone: but not those of this step, nor what follows", false},
    {"clone-only", 0, NULL, "with --clone: and do no more ('stoker resume' goes on)", false},
    {"resume", 0, "RUN", "take up this run (for front ends; people say 'stoker resume')", false},
    {"use-new-code", 0, NULL, "with --resume: go on although the code changed", false},
    {NULL}};

const stk_command stk_cmd_run = {
    .name = "run",
    .summary = "run a pipeline document or a Python file",
    .usage = "[options] pipeline.yaml | file.py[:pipeline] [arguments of the file]",
    .text =
        "A pipeline document (YAML or JSON, see schema/pipeline.schema.json) is run by the "
        "engine itself. A Python file is run as\n"
        "'python file.py' would run it; the options are the defaults of every pipeline that it "
        "calls. file.py:name calls that\n"
        "pipeline; what follows a plain file is its own, options after file.py:name are Stoker's.\n"
        "'python -m stoker' is this command with that Python.\n"
        "Steps whose code, inputs and settings are known are not run again. Ctrl-C "
        "ends running steps gracefully, a\n"
        "second one at once; SIGTERM (the machine is wanted back) does as the first. 'stoker "
        "resume' takes the run up\n"
        "where it stopped, steps with checkpoints where these were.\n\n"
        "--with docker runs each step in its image (docker.parent_image), by Docker or Podman of "
        "this machine; a step\nwithout one runs on the machine itself. stoker.yaml, in the "
        "document's folder or above it up to the project's, names stacks:\n"
        "stacks: {lab: {backend: docker, default_image: …, image_map: {nvcr.io/: mirror/}, "
        "socket: …}}.\n\n"
        "--with kubernetes, batch or a stack of these sends steps to other machines, which share a "
        "store with this one\n(`store:` of the stack, or STOKER_SHARE). They take nothing of this "
        "machine; --policy is strict unless said.\nSIGTERM to the engine leaves them running: "
        "'stoker resume' goes on with them; Ctrl-C and 'stoker cancel' end them.",
    .options = options_of_run,
    .stop_at = stk_cli_is_program,
    .run = run_run};
