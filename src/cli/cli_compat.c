/* compat: runs a program whose `from zenml import …` and `from metaflow import …` import Stoker's
 * own modules. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/json.h"
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

static int run_compat(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(1u << 20);
    bool only_path = stk_cli_flag(cli, "path");
    if (only_path && stk_cli_n_args(cli) > 0) {
        return stk_cli_usage(cli, err, "--path takes no command");
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
    if (path == NULL || setenv("PYTHONPATH", path, 1) < 0 || setenv("STOKER_COMPAT", "1", 1) < 0) {
        return stk_err_set(err, STK_E_NOMEM, "no memory for the environment");
    }
    execvp(stk_cli_arg(cli, 0), stk_cli_args(cli));
    return stk_err_sys(err, STK_E_NOT_FOUND, errno, "starting '%s'", stk_cli_arg(cli, 0));
}

static const stk_option options[] = {
    {"path", 0, NULL, "print the folder to put on PYTHONPATH instead"},
    {0},
};

const stk_command stk_cmd_compat = {
    .name = "compat",
    .summary = "run a program written for ZenML or Metaflow on Stoker, unchanged",
    .usage = "-- COMMAND [ARGS…] | --path",
    .text = "stoker compat -- python their_file.py starts the command with a PYTHONPATH that makes "
            "`from zenml import …`\nand `from metaflow import …` import Stoker. Neither ZenML nor "
            "Metaflow has to be installed, and neither is changed.",
    .options = options,
    .words_behind = stk_cli_words_theirs,
    .max_args = -1,
    .run = run_compat,
};
