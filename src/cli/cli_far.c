/* stoker far: answers this user's Stoker on another machine, by the connection that its ssh has
 * made. Hidden: that Stoker starts it. */
#include "cli/cli_far.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "away/link/link.h"
#include "away/share/share.h"
#include "away/ssh/ssh.h"
#include "cli/cli_hosts.h"
#include "run/run_carry.h"
#include "sys/file.h"

int stk_cli_far_program(stk_arena *arena, const char **ret_tar, const char **ret_digest,
                        stk_err *err)
{
    char program[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "/proc/self/exe");
    }
    program[n] = '\0';
    return stk_run_carry_archive(program, arena, ret_tar, ret_digest, err);
}

/* Nothing but answers may go to the connection, whatever a library prints. */
static int take_output(stk_err *err)
{
    int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "the connection");
    }
    return out;
}

static int run_far(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    static const stk_link_op *const ops[] = {stk_share_far_ops, stk_ssh_far_ops, stk_cli_far_ops,
                                             NULL};
    (void)cli;
    (void)out;
    STK_FD_AUTO fd = take_output(err);
    STK_TRY(fd);
    int rc = stk_link_serve(STDIN_FILENO, fd, ops, err);
    if (rc == STK_E_CANCELLED) { /* an orderly end would wait for what still runs */
        _exit(0);
    }
    return rc;
}

const stk_command stk_cmd_far = {
    .name = "far",
    .summary = "answer this user's Stoker on another machine",
    .usage = "",
    .text = "Started by ssh for a Stoker elsewhere whose stack or store names this machine. It "
            "reads requests from its\nstandard input and writes answers to its standard output, "
            "until the connection ends.",
    .hidden = true,
    .max_args = 0,
    .run = run_far,
};
