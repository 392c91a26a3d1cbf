/* stoker sum: for our own worker, which writes a large file and has it summed meanwhile. Hidden. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"

static int run_sum(stk_cli *cli)
{
    stk_err err = {0};
    int64_t fd = -1;
    int64_t size = -1;
    int rc = stk_cli_number(cli, "fd", 0, INT32_MAX, &fd, &err);
    rc = rc < 0 ? rc : stk_cli_number(cli, "size", 0, INT64_MAX, &size, &err);
    if (rc == 0 && (fd < 0 || size < 0 || stk_cli_n_args(cli) > 0)) {
        return stk_cli_usage(cli, "--fd and --size are both needed, and nothing else");
    }
    char hex[STK_DIGEST_HEX + 1];
    rc = rc < 0 ? rc : stk_store_digest_growing((int)fd, size, STDIN_FILENO, hex, &err);
    if (rc < 0) {
        return stk_cli_fail(cli, &err);
    }
    puts(hex);
    return 0;
}

static const stk_option options[] = {
    {"fd", 0, "N", "descriptor of the file, open for reading", false},
    {"size", 0, "BYTES", "what it will have in the end", false},
    {0},
};

const stk_command stk_cmd_sum = {
    .name = "sum",
    .summary = "digest of a file that is being written",
    .usage = "--fd N --size BYTES",
    .text = "For the worker of Python steps. Standard input brings one byte for each 16 MiB chunk "
            "that is written, in\ntheir order; the artifact digest is printed when all are summed.",
    .options = options,
    .hidden = true,
    .run = run_sum,
};
