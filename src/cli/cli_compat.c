/* compat: runs a program so that `from zenml import …` resolves to Stoker's own modules. */
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "cli/cli.h"
#include "sys/file.h"

/* Where the Python front lies relative to the folder of this binary: a source tree's build folder,
 * a wheel's installation (scripts beside lib), and beside the binary itself. */
static const char *const fronts[] = {
    "../../../python/stoker/_compat",
    "../lib/python3*/site-packages/stoker/_compat",
    "../lib/python3*/dist-packages/stoker/_compat",
    "../stoker/_compat",
};

/* The folder to put on PYTHONPATH, in `arena`; NULL when the front is not beside the binary. */
static const char *shim_folder(const stk_cli *cli, stk_arena *arena)
{
    char *program = stk_arena_dup(arena, stk_cli_program(cli));
    char *slash = program != NULL ? strrchr(program, '/') : NULL;
    const char *found = NULL;
    for (size_t i = 0; slash != NULL && found == NULL && i < sizeof fronts / sizeof fronts[0];
         i++) {
        *slash = '\0';
        const char *pattern = stk_arena_printf(arena, "%s/%s", program, fronts[i]);
        glob_t paths;
        if (pattern != NULL && glob(pattern, 0, NULL, &paths) == 0) {
            STK_TEXT_AUTO absolute = stk_file_absolute(paths.gl_pathv[0]);
            found = absolute != NULL ? stk_arena_dup(arena, absolute) : NULL;
            globfree(&paths);
        }
    }
    return found;
}

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
    return stk_arena_printf(arena, "%s%s%s%s%s", shim, source_tree ? ":" : "",
                            source_tree ? front : "", more ? ":" : "", more ? before : "");
}

static int run_compat(stk_cli *cli)
{
    STK_ARENA_AUTO arena = stk_arena_new(1u << 20);
    stk_err err = {0};
    bool only_path = stk_cli_flag(cli, "path");
    if (only_path == (stk_cli_n_args(cli) > 0)) {
        return stk_cli_usage(cli, only_path ? "--path takes no command" : "a command is missing");
    }
    const char *shim = shim_folder(cli, arena);
    if (shim == NULL) {
        stk_err_set(&err, STK_E_ENV, "the Python front is not beside %s", stk_cli_program(cli));
        stk_err_hint(&err, "install Stoker's wheel, or run `make build` in its source tree");
        return stk_cli_fail(cli, &err);
    }
    if (only_path) {
        puts(shim);
        return 0;
    }
    const char *path = python_path(shim, arena);
    if (path == NULL || setenv("PYTHONPATH", path, 1) < 0 || setenv("STOKER_COMPAT", "1", 1) < 0) {
        stk_err_set(&err, STK_E_NOMEM, "no memory for the environment");
        return stk_cli_fail(cli, &err);
    }
    execvp(stk_cli_arg(cli, 0), stk_cli_args(cli));
    stk_err_sys(&err, STK_E_ENV, errno, "starting '%s'", stk_cli_arg(cli, 0));
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
    .summary = "run a program written for ZenML on Stoker, unchanged",
    .usage = "-- COMMAND [ARGS…] | --path",
    .text = "stoker compat -- python their_file.py starts the command with a PYTHONPATH where "
            "`from zenml import …`\nis Stoker. ZenML need not be installed; where it is, it stays "
            "untouched.",
    .options = options,
    .stop_at = any_word,
    .run = run_compat,
};
