/* `stoker launch`: runs many processes of one program as one, on one host or several. */
#include "cli/cli_launch.h"

#include <errno.h>
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

static const char *const *words_of(const stk_cli *cli, stk_arena *arena)
{
    char **args = stk_cli_args(cli);
    int n = stk_cli_n_args(cli);
    size_t len = n > 0 ? strlen(args[0]) : 0;
    bool module = stk_cli_flag(cli, "module");
    bool is_file =
        !module && len > 3 && strcmp(args[0] + len - 3, ".py") == 0 && access(args[0], X_OK) != 0;
    const char **words = stk_arena_array(arena, (size_t)n + 3, sizeof *words);
    if (words == NULL) {
        return NULL;
    }
    if (is_file || module) {
        words[0] = stk_run_python(NULL, arena);
        words[1] = "-m";
    }
    memcpy(words + is_file + 2 * module, args, (size_t)n * sizeof *words);
    return words;
}

/* The command that the other nodes execute if this one starts them: a Python step's worker, or
 * `stoker launch` with the same options. */
static const char *const *node_words(const stk_cli *cli, const stk_launch_config *c,
                                     stk_arena *arena)
{
    static const char *const same[] = {"gang",  "nnodes", "ranks", "min-ranks", "restarts",
                                       "grace", "hang",   "join",  "log-dir",   "rdzv-id"};
    static const char *const flags[] = {"no-prefix", "no-bind"};
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
    const char *task = stk_cli_value(cli, "gang"), *dir = stk_cli_value(cli, "log-dir");
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_launch_end end;
    if (stk_cli_value(cli, "hold") != NULL) {
        return hold_and_become(cli, err);
    }
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
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_cli_launch_options(cli, arena, &config, err));
    STK_TEXT_AUTO logs = dir == NULL ? NULL : stk_file_absolute(dir);
    config.dir = logs;
    if (task != NULL) {
        STK_TRY(stk_launch_read_task(task, arena, &config, err));
    } else {
        die_with_parent();
    }
    config.argv = words_of(cli, arena);
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
    .usage = "-n N [options] [--] PROGRAM [ARG…]",
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
        "ssh ws2).\n\ntorchrun's options are accepted as well: --nproc_per_node, --nnodes, "
        "--node_rank, "
        "--master_addr, --master_port, --rdzv_endpoint, --max_restarts, --log_dir, --standalone, "
        "-m.\n\n"
        "With --json the answer (gang.json) goes to stdout and the ranks' output to stderr.",
    .options = stk_cli_launch_table,
    .words_behind = stk_cli_words_theirs,
    .max_args = -1,
    .run = run_launch};
