/* compat: runs a program so that `from zenml import …` and `from metaflow import …` resolve to
 * Stoker's own modules. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/json.h"
#include "cli/cli_read.h"
#include "run/run_python.h"

/* PYTHONPATH: the shim, then the front itself (a foreign interpreter must find `import stoker` as
 * well; only from a source tree, because a site-packages folder would bring its neighbours along),
 * then what was there. */
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

static int run_compat(stk_cli *cli)
{
    STK_ARENA_AUTO arena = stk_arena_new(1u << 20);
    stk_err err = {0};
    bool only_path = stk_cli_flag(cli, "path");
    if (only_path == (stk_cli_n_args(cli) > 0)) {
        return stk_cli_usage(cli, only_path ? "--path takes no command" : "a command is missing");
    }
    const char *front = stk_run_front(stk_cli_program(cli), arena);
    const char *shim = front == NULL ? NULL : stk_arena_printf(arena, "%s/_compat", front);
    if (shim == NULL) {
        stk_err_set(&err, STK_E_ENV, "the Python front is not beside %s", stk_cli_program(cli));
        stk_err_hint(&err, "install Stoker's wheel, or run `make build` in its source tree");
        return stk_cli_fail(cli, &err);
    }
    if (only_path) {
        STK_BUF_AUTO out = STK_BUF_INIT(1u << 16);
        if (stk_cli_json(cli)) {
            stk_json_open(&out, NULL, '{');
            stk_json_put_text(&out, "path", shim);
            stk_json_close(&out, '}');
            stk_buf_char(&out, '\n');
        } else {
            stk_buf_printf(&out, "%s\n", shim);
        }
        return stk_cli_answer(cli, 0, &out, &err);
    }
    const char *path = python_path(shim, arena);
    if (path == NULL || setenv("PYTHONPATH", path, 1) < 0 || setenv("STOKER_COMPAT", "1", 1) < 0) {
        stk_err_set(&err, STK_E_NOMEM, "no memory for the environment");
        return stk_cli_fail(cli, &err);
    }
    execvp(stk_cli_arg(cli, 0), stk_cli_args(cli));
    stk_err_sys(&err, STK_E_NOT_FOUND, errno, "starting '%s'", stk_cli_arg(cli, 0));
    return stk_cli_fail(cli, &err);
}

static const stk_option options[] = {
    {"path", 0, NULL, "print the folder to put on PYTHONPATH instead", false},
    {0},
};

static bool any_word(const char *word)
{
    (void)word;
    return true;
}

const stk_command stk_cmd_compat = {
    .name = "compat",
    .summary = "run a program written for ZenML or Metaflow on Stoker, unchanged",
    .usage = "-- COMMAND [ARGS…] | --path",
    .text = "stoker compat -- python their_file.py starts the command with a PYTHONPATH where "
            "`from zenml import …`\nand `from metaflow import …` are Stoker. Neither need be "
            "installed; where they are, they stay untouched.",
    .options = options,
    .stop_at = any_word,
    .run = run_compat,
};
