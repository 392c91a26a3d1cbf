/* `stoker launch`: runs many processes of one program as one, on one host or several. */
#include "cli/cli_launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/text.h"
#include "host/accel/accel.h"
#include "host/launch/launch_hold.h"
#include "run/run_python.h"
#include "sys/file.h"

/* If a parent waits for us in the foreground, we end when it dies, so that no ranks are left
 * behind. A parent that put us into the background (nohup, &) wants us to live on. */
static void die_with_parent(void)
{
    static const int numbers[] = {SIGINT, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction was;
        if (sigaction(numbers[i], NULL, &was) == 0 && was.sa_handler == SIG_IGN) {
            return;
        }
    }
    pid_t front = tcgetpgrp(STDIN_FILENO);
    if (front > 0 && front != getpgrp()) {
        return;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
}

/* Whether Python must run this file: it says no interpreter of its own. */
static bool is_python_file(const char *path)
{
    size_t len = strlen(path);
    if (len <= 3 || strcmp(path + len - 3, ".py") != 0) {
        return false;
    }
    char head[3] = "";
    STK_FD_AUTO fd = open(path, O_RDONLY | O_CLOEXEC);
    return access(path, X_OK) != 0 || read(fd, head, 2) != 2 || memcmp(head, "#!", 2) != 0;
}

/* As torchrun runs it, but for the folder of the script, which runpy leaves out of sys.path. */
static const char run_path[] =
    "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')";

static int words_of(const stk_cli *cli, stk_arena *arena, const char *const **ret_words,
                    stk_err *err)
{
    char **args = stk_cli_args(cli);
    int n = stk_cli_n_args(cli), n_head = 0;
    const char *head[3] = {NULL};
    bool module = stk_cli_flag(cli, "module"), runs = stk_cli_flag(cli, "run-path");
    bool bare = stk_cli_flag(cli, "no-python");
    if (bare && module) {
        return stk_err_set(err, STK_E_USAGE, "--no-python and --module exclude each other");
    }
    if (module || runs || (n > 0 && !bare && is_python_file(args[0]))) {
        head[n_head++] = stk_run_python(NULL, arena);
    }
    if (runs) {
        head[n_head++] = "-c";
        head[n_head++] = run_path;
    } else if (module) {
        head[n_head++] = "-m";
    }
    const char **words = stk_arena_array(arena, (size_t)(n + n_head) + 1, sizeof *words);
    STK_TRY(stk_err_if_null(words, err));
    memcpy(words, head, (size_t)n_head * sizeof *words);
    memcpy(words + n_head, args, (size_t)n * sizeof *words);
    if (runs) {
        words[n_head] = stk_arena_dup(arena, stk_file_absolute(args[0]));
    }
    *ret_words = words;
    return 0;
}

/* The command that the other nodes execute if this one starts them: a Python step's worker, or
 * `stoker launch` with the same options. */
static const char *const *node_words(const stk_cli *cli, const stk_launch_config *c,
                                     stk_arena *arena)
{
    static const char *const same[] = {"gang",
                                       "nnodes",
                                       "ranks",
                                       "num-processes",
                                       "min-ranks",
                                       "restarts",
                                       "grace",
                                       "hang",
                                       "join",
                                       "log-dir",
                                       "redirects",
                                       "tee",
                                       "local-ranks-filter",
                                       "duplicate-stdout-filters",
                                       "duplicate-stderr-filters",
                                       "role",
                                       "signals-to-handle",
                                       "rdzv-id"};
    static const char *const flags[] = {"no-prefix", "no-bind", "virtual-local-rank"};
    enum { N_SAME = sizeof same / sizeof *same, N_FLAGS = sizeof flags / sizeof *flags };
    size_t n_words = 0;
    while (c->argv != NULL && c->argv[n_words] != NULL) {
        n_words++;
    }
    if (c->is_python) {
        return c->argv;
    }
    const char **argv = stk_arena_array(arena, n_words + 2 * N_SAME + N_FLAGS + 4, sizeof *argv);
    size_t n = 0;
    if (argv == NULL) {
        return NULL;
    }
    argv[n++] = ""; /* stands for this program's path on that node */
    argv[n++] = "launch";
    for (int i = 0; i < N_SAME; i++) {
        if (stk_cli_value(cli, same[i]) != NULL) {
            argv[n++] = stk_arena_printf(arena, "--%s", same[i]);
            argv[n++] = stk_cli_value(cli, same[i]);
        }
    }
    for (int i = 0; i < N_FLAGS; i++) {
        if (stk_cli_flag(cli, flags[i])) {
            argv[n++] = stk_arena_printf(arena, "--%s", flags[i]);
        }
    }
    argv[n++] = "--";
    memcpy(argv + n, c->argv, n_words * sizeof *argv);
    return argv;
}

/* Leases devices and becomes the program: a launcher or worker on a node of a gang, or a step of
 * `spin`. */
static int hold_and_become(const stk_cli *cli, stk_err *err)
{
    int64_t n = 0;
    char **args = stk_cli_args(cli);
    STK_TRY(stk_cli_number(cli, "hold", 0, STK_LEASE_DEVICES, &n, err));
    STK_TRY(stk_launch_hold((uint32_t)n, err));
    if (args[0] == NULL) {
        return stk_cli_usage(cli, err, "--hold needs a program to become");
    }
    (void)execvp(args[0], args);
    return stk_err_sys(err, STK_E_SYS, errno, "cannot start '%s'", args[0]);
}

static int run_launch(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    char id[64];
    const char *task = stk_cli_value(cli, "gang");
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_launch_end end;
    if (stk_cli_value(cli, "hold") != NULL) {
        return hold_and_become(cli, err);
    }
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_cli_launch_config(&cli, arena, err));
    (void)snprintf(id, sizeof id, "launch-%d", (int)getpid());
    stk_launch_config config = {.run_id = id,
                                .grace_ms = 5000,
                                .nodes = 1,
                                .key = stk_text_or(getenv("STOKER_GANG_KEY"), ""),
                                .join_ms = 600000,
                                .out_fd = stk_cli_json(cli) ? STDERR_FILENO : STDOUT_FILENO,
                                .err_fd = STDERR_FILENO};
    if (stk_cli_n_args(cli) == 0 && stk_cli_value(cli, "forkserver-fd") == NULL) {
        return stk_cli_usage(cli, err,
                             "a program is missing: stoker launch -n 4 -- python train.py");
    }
    STK_TRY(stk_cli_launch_options(cli, arena, &config, err));
    if (task != NULL) {
        STK_TRY(stk_launch_read_task(task, arena, &config, err));
    } else {
        die_with_parent();
    }
    STK_TRY(words_of(cli, arena, &config.argv, err));
    if (config.nodes > 1 && config.rdzv == NULL) {
        config.node_argv = node_words(cli, &config, arena);
        if (config.node_argv == NULL || config.node_argv[0] == NULL) {
            return stk_err_set(err, STK_E_USAGE,
                               "a step on several nodes must be one that a fresh interpreter can "
                               "import: a function of a file or a package, no closure");
        }
    }
    STK_TRY(stk_launch_run(&config, out, &end, err));
    if (end.failure != STK_FAIL_NONE && !config.leash) { /* else the leader reports it */
        fprintf(stderr, "stoker launch: %s\n", end.text);
    }
    if (!stk_cli_json(cli)) {
        stk_buf_clear(out);
    } else if (out->len == 0) {
        stk_buf_text(out, "{}");
    }
    return end.exit_status;
}

const stk_command stk_cmd_launch = {
    .name = "launch",
    .summary = "run many processes of a program as one",
    .usage = "[-n N] [options] [--] PROGRAM [ARG…]",
    .text =
        "Ranks get the variables that torchrun sets (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, "
        "MASTER_PORT …), a share of the CPUs, and a port that no other process can get. Python "
        "runs a file.py.\n\n"
        "The first rank that fails is named, with the end of its stderr; the others get SIGTERM "
        "and, after the grace time, SIGKILL. The exit status is that rank's, or 128 + the signal "
        "that killed it. SIGINT, SIGTERM and SIGHUP are passed on to the ranks; a second one ends "
        "them at once. Ranks never outlive the launcher, and a launcher in the foreground doesn't "
        "outlive its parent.\n\n"
        "Several nodes: start it on each node with the same arguments but its own --node-rank. "
        "Nothing runs before all nodes reach node 0's port, and all end together. Set "
        "STOKER_GANG_KEY to the same secret on each to keep others out. Without --node-rank and "
        "--rdzv this is node 0 and starts the other nodes with the commands in "
        "~/.config/stoker/nodes (or $STOKER_NODES): this machine's address on the first line, then "
        "one line for each other node with its name and the command that runs a shell there (ws2 "
        "ssh ws2).\n\nEvery option of torchrun and of accelerate "
        "launch is understood, with '-' or '_', or refused with what it means and what to write "
        "instead. On several nodes with --rdzv but no --node-rank, the machine of that address "
        "leads, and the others are numbered as they come. accelerate's options become the "
        "variables that it sets.\n\n"
        "With --json the answer (gang.json) goes to stdout and the ranks' output to stderr.",
    .options = stk_cli_launch_table,
    .words_behind = stk_cli_words_theirs,
    .max_args = -1,
    .run = run_launch};
