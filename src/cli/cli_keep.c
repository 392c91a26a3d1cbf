/* stoker keep: the keeper of a job on a host of SSH. Hidden: the far end starts it. */
#include <stdlib.h>

#include "away/ssh/ssh.h"
#include "cli/cli.h"

static int run_keeper(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    (void)out;
    if (stk_cli_n_args(cli) != 2) {
        return stk_cli_usage(cli, err, "two arguments are needed: the job's folder and a number");
    }
    return stk_ssh_keep(stk_cli_arg(cli, 0), (int)strtol(stk_cli_arg(cli, 1), NULL, 10));
}

const stk_command stk_cmd_keep = {
    .name = "keep",
    .summary = "keep one job of a step on this machine, for an engine elsewhere",
    .usage = "FOLDER FD",
    .text = "Started on a host of a stack with 'backend: ssh', in the job's FOLDER there. It "
            "outlives the connection: it starts\n'stoker agent', ends what is left of it, and "
            "writes down how it ended. FD is a descriptor that is told once it has begun.",
    .hidden = true,
    .max_args = -1,
    .run = run_keeper,
};
