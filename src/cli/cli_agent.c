/* stoker agent: the first process of a container on another machine. Hidden: engines start it. */
#include "away/agent/agent.h"
#include "cli/cli.h"

static int run_agent(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    (void)out;
    if (stk_cli_n_args(cli) != 2) {
        return stk_cli_usage(cli, err,
                             "two arguments are needed: the share's URL and the attempt's key");
    }
    return stk_agent_run(stk_cli_arg(cli, 0), stk_cli_arg(cli, 1));
}

const stk_command stk_cmd_agent = {
    .name = "agent",
    .summary = "run one attempt of a step in this container, for an engine elsewhere",
    .usage = "URL KEY",
    .text =
        "Started by the engine in the pod or job of a step that runs on Kubernetes, AWS Batch or "
        "Slurm. "
        "URL is the\nstore that the machines share (s3://bucket/prefix or a folder), KEY names the "
        "attempt there\n(runs/RUN/STEP/TASK/ATTEMPT). It brings the step's inputs and code from "
        "there, runs the step as at home,\nand leaves its outputs, logs and how it ended there. "
        "The exit status is the program's, 128 and its\nsignal, 73 where another pod has begun the "
        "attempt, 74 where the store can't be reached, 75 where the\nstep was told to end and its "
        "place is wanted back.",
    .hidden = true,
    .max_args = -1,
    .run = run_agent,
};
