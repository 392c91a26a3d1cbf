/* compat: runs a program whose `from zenml import …` and `from metaflow import …` import Stoker's
 * own modules. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/cli_read.h"
#include "run/run_python.h"

/* PYTHONPATH: the shim; in a source tree also the front, for an interpreter without Stoker (a
 * site-packages folder would bring all its other packages along); then its old value. */
static const char *python_path(const char *shim, stk_arena *arena)
{
    const char *before = getenv("PYTHONPATH");
    const char *tail = "/stoker/_compat";
    size_t len = strlen(shim) - strlen(tail);
    char *front = stk_arena_dupn(arena, shim, len);
    bool source_tree = front != NULL && len > 7 && strcmp(front + len - 7, "/python") == 0;
    bool more = before != NULL && *before != '\0';
    const char *path = shim;
    if (source_tree) {
        path = stk_arena_printf(arena, "%s:%s", path, front);
    }
    if (more && path != NULL) {
        path = stk_arena_printf(arena, "%s:%s", path, before);
    }
    return path;
}

/* The front's programs (`zenml`, `metaflow`) come first on PATH; they need a Python that has the
 * front. */
static int set_programs(const char *front, stk_arena *arena, stk_err *err)
{
    const char *path =
        stk_arena_printf(arena, "%s/_programs:%s", front,
                         stk_text_or(getenv("PATH"), "/usr/local/bin:/usr/bin:/bin"));
    STK_TRY(stk_err_if_null(path, err));
    const char *python = stk_run_python(NULL, arena);
    STK_TRY(stk_err_if_null(python, err));
    if (setenv("PATH", path, 1) < 0 || setenv("STOKER_COMPAT_PYTHON", python, 1) < 0) {
        return stk_err_nomem(err);
    }
    return 0;
}

/* Becomes the front's program that reads the named files. */
static int check_files(const stk_cli *cli, stk_arena *arena, stk_err *err)
{
    int n = stk_cli_n_args(cli), at = 0;
    const char **words = stk_arena_array(arena, (size_t)n + 5, sizeof *words);
    STK_TRY(stk_err_if_null(words, err));
    words[at++] = stk_run_python(NULL, arena);
    STK_TRY(stk_err_if_null(words[0], err));
    words[at++] = "-m";
    words[at++] = "stoker._check";
    if (stk_cli_json(cli)) {
        words[at++] = "--json";
    }
    for (int i = 0; i < n; i++) {
        words[at++] = stk_cli_arg(cli, i);
    }
    words[at] = NULL;
    execvp(words[0], (char *const *)words);
    return stk_err_sys(err, STK_E_NOT_FOUND, errno, "starting '%s'", words[0]);
}

static int run_compat(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(1u << 20);
    bool only_path = stk_cli_flag(cli, "path"), checks = stk_cli_flag(cli, "check");
    if (only_path && stk_cli_n_args(cli) > 0) {
        return stk_cli_usage(cli, err, "--path takes no command");
    }
    if (checks && stk_cli_n_args(cli) == 0) {
        return stk_cli_usage(cli, err, "--check takes files and folders of programs");
    }
    if (!only_path && stk_cli_n_args(cli) == 0) {
        return stk_cli_usage(cli, err, "a command is missing: stoker compat -- COMMAND");
    }
    const char *front = NULL;
    STK_TRY(stk_run_need_front(stk_cli_program(cli), arena, &front, err));
    const char *shim = stk_arena_printf(arena, "%s/_compat", front);
    STK_TRY(stk_err_if_null(shim, err));
    if (only_path && stk_cli_json(cli)) {
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "path", shim);
        stk_json_close(out, '}');
        return 0;
    }
    if (only_path) {
        return stk_buf_text(out, shim);
    }
    const char *path = python_path(shim, arena);
    if (path == NULL || setenv("PYTHONPATH", path, 1) < 0 || setenv("STOKER_COMPAT", "1", 1) < 0 ||
        setenv("STOKER_BIN", stk_cli_program(cli), 0) < 0) {
        return stk_err_set(err, STK_E_NOMEM, "no memory for the environment");
    }
    if (checks) {
        return check_files(cli, arena, err);
    }
    STK_TRY(set_programs(front, arena, err));
    execvp(stk_cli_arg(cli, 0), stk_cli_args(cli));
    return stk_err_sys(err, STK_E_NOT_FOUND, errno, "starting '%s'", stk_cli_arg(cli, 0));
}

static const stk_option options[] = {
    {"path", 0, NULL, "print the folder to put on PYTHONPATH instead"},
    {"check", 0, NULL, "tell what programs use, without running them, instead"},
    {0},
};

const stk_command stk_cmd_compat = {
    .name = "compat",
    .summary = "run a program written for ZenML or Metaflow on Stoker, unchanged",
    .usage = "-- COMMAND [ARGS…] | --check FILE… | --path",
    .text = "stoker compat -- python their_file.py starts the command with a PYTHONPATH that makes "
            "`from zenml import …`\nand `from metaflow import …` import Stoker. Neither ZenML nor "
            "Metaflow has to be installed, and neither is changed. The commands `zenml` and "
            "`metaflow` are Stoker's\ntoo: stoker compat -- zenml pipeline list, stoker compat -- "
            "metaflow status.\n"
            "stoker compat --check FILE… tells what these files, and all Python files of these "
            "folders, use of both: what runs,\nwhat differs and why, and what isn't there (status "
            "1). It reads the programs and doesn't run them.",
    .options = options,
    .words_behind = stk_cli_words_theirs,
    .max_args = -1,
    .run = run_compat,
};
