/* `stoker contain`: the process that a step in a container is for the engine. */
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/cli.h"
#include "contain/contain.h"

/* As the program died, so do we, without a second core file. */
static int die_of(int number)
{
    struct rlimit none = {0, 0};
    sigset_t one;
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)signal(number, SIG_DFL);
    sigemptyset(&one);
    sigaddset(&one, number);
    (void)sigprocmask(SIG_UNBLOCK, &one, NULL);
    (void)raise(number);
    return 128 + number; /* one that doesn't kill by default */
}

static int run_contain(stk_cli *cli)
{
    stk_err err = {0};
    stk_contain_end end;
    if (stk_cli_n_args(cli) != 1) {
        return stk_cli_usage(cli, "which task? stoker contain TASK.JSON");
    }
    if (stk_contain_run(stk_cli_arg(cli, 0), &end, &err) < 0) {
        return stk_cli_fail(cli, &err);
    }
    if (end.text[0] != '\0') {
        fprintf(stderr, "stoker contain: %s\n", end.text);
    }
    return end.signal > 0 ? die_of(end.signal) : end.exit_status;
}

static const stk_option options_of_contain[] = {{NULL}};

const stk_command stk_cmd_contain = {
    .name = "contain",
    .summary = "run a task's container to its end (used by the engine)",
    .usage = "TASK.JSON",
    .text = "Creates and starts the container that the document's `container` describes, on this "
            "host's Docker or Podman, passes signals on, and ends as the program in it does: with "
            "the same exit status, by the same signal. 125: the container never ran; 126: the "
            "program can't be executed; 127: the image doesn't have it. stderr and container.json, "
            "beside the document, say why.\n\n"
            "The container never outlives this process, and nothing of it is left afterwards. The "
            "engine may go away meanwhile.",
    .options = options_of_contain,
    .hidden = true,
    .run = run_contain};
