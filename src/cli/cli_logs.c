/* stoker logs: what steps wrote to stdout and stderr. */
#include "cli/cli_follow.h"
#include "cli/cli_read.h"
#include "cli/cli_shared.h"
#include "show/logs.h"

static void end_follow(stk_cli_follow **follow)
{
    stk_cli_follow_close(*follow);
}

static int run_logs(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    STK_CLI_READ_AUTO read = {0};
    bool only_out = stk_cli_flag(cli, "stdout"), only_err = stk_cli_flag(cli, "stderr");
    STK_TRY(stk_cli_read_open(cli, 0, &read, err));
    __attribute__((cleanup(end_follow))) stk_cli_follow *follow = NULL;
    stk_logs logs = {.store = read.store,
                     .view = read.view,
                     .has_step = read.has_step,
                     .has_task = read.has_task,
                     .i_step = read.i_step,
                     .task = read.task,
                     .rank = read.rank,
                     .out = only_out || !only_err,
                     .err = only_err || !only_out};
    if (stk_cli_json(cli)) {
        return stk_logs_json(&logs, out, err);
    }
    if (stk_cli_shared_is(cli) && stk_view_is_live(read.view)) {
        STK_TRY(stk_cli_follow_open(cli, &read, &logs, &follow, err));
    }
    return stk_logs_copy(&logs, stk_cli_flag(cli, "follow"), err);
}

static const stk_option options[] = {
    {"follow", 'f', NULL, "follow the output until the step, or the run, has ended"},
    {"stdout", 0, NULL, "only what was written to stdout"},
    {"stderr", 0, NULL, "only what was written to stderr"},
    STK_CLI_SHARED_OPTIONS,
    {NULL}};

const stk_command stk_cmd_logs = {
    .name = "logs",
    .summary = "what the steps of a run wrote",
    .usage = "[options] [RUN[/STEP[/ID[_node_K]]] | STEP[/ID]]",
    .text =
        "For one step: its last attempt's stdout, then stderr. For a whole run: the same for each "
        "step, with the step's name before each line. RUN as in 'stoker show'; --json gives the "
        "paths of the files. With --stack, what runs on Kubernetes or AWS Batch is shown as it "
        "prints, both streams as one; this machine then needs the right to read there. With "
        "--store, running steps are shown as far as their agents have put it there, a few seconds "
        "ago.\n\nIn a run "
        "that makes its tasks as it goes, RUN/STEP means all tasks "
        "of the step in their order, RUN/STEP/ID one of them, and RUN/STEP/ID_node_K rank K of a "
        "gang. For a task that was cloned from another run: what it wrote there.",
    .options = options,
    .max_args = 2,
    .run = run_logs};
