/* `stoker carry`: makes the folder from which containers elsewhere run this program. */
#include <stdio.h>

#include "cli/cli.h"
#include "run/run_carry.h"

static int run_carry(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *tar = stk_cli_value(cli, "tar"), *folder = stk_cli_arg(cli, 0);
    (void)out;
    STK_TRY(stk_err_if_null(arena, err));
    if (folder == NULL) {
        return stk_cli_usage(cli, err, "name the folder to make: stoker carry DIR");
    }
    if (!stk_run_carry_curl()) {
        fprintf(stderr, "stoker: libcurl.so.4 isn't installed here, so the copy can't reach S3; if "
                        "the store is there, install libcurl4 and run this again\n");
    }
    STK_TRY(stk_run_carry_all(stk_cli_program(cli), folder, arena, err));
    if (tar == NULL) {
        return 0;
    }
    return stk_run_carry_write(folder, tar, err);
}

static const stk_option options[] = {
    {"tar", 0, "FILE", "also write the folder as an archive"},
    {0},
};

const stk_command stk_cmd_carry = {
    .name = "carry",
    .summary = "make the folder that containers elsewhere run this program from",
    .usage = "[--tar FILE] DIR",
    .text = "Steps on Kubernetes or AWS Batch run under this program, whatever their image is. The "
            "folder holds all that it\nneeds there: the program with its own loader and libraries "
            "(also libcurl's), CA certificates, and the Python\nfront. Containers expect it at "
            "/stoker: mount it there (`carry: volume` in stoker.yaml), or make an image "
            "that\ncopies it there (`make runner-image`, `carry: image`).",
    .options = options,
    .max_args = 1,
    .run = run_carry,
};
