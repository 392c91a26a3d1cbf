/* `stoker contain`: stands for a step's container; the engine starts and watches this process. */
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/cli.h"
#include "image/contain/contain.h"

/* Dies of the signal that killed the program, without writing a second core file. */
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
    return 128 + number; /* this signal doesn't kill by default */
}

/* Removes every container that has all of these labels. */
static int run_remove(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    stk_engine engine;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *labels[64] = {0};
    uint32_t n = 0;
    for (int i = 0; i < 63 && stk_cli_value_at(cli, "remove", i) != NULL; i++) {
        labels[i] = stk_cli_value_at(cli, "remove", i);
    }
    STK_TRY(stk_engine_find(NULL, arena, &engine, err));
    STK_TRY(stk_contain_remove(&engine, labels, &n, err));
    if (stk_cli_json(cli)) {
        stk_json_open(out, NULL, '{');
        stk_json_put_whole(out, "removed", n);
        stk_json_close(out, '}');
    } else {
        stk_buf_printf(out, "%u removed", n);
    }
    return 0;
}

static int run_contain(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    stk_contain_end end;
    if (stk_cli_value(cli, "remove") != NULL) {
        return run_remove(cli, out, err);
    }
    if (stk_cli_n_args(cli) != 1) {
        return stk_cli_usage(cli, err, "a task is missing: stoker contain TASK.JSON");
    }
    STK_TRY(stk_contain_run(stk_cli_arg(cli, 0), &end, err));
    if (end.text[0] != '\0' || end.by[0] != '\0') {
        fprintf(stderr, "stoker contain: %s\n", end.text[0] != '\0' ? end.text : end.by);
    }
    if (end.signal > 0) {
        return die_of(end.signal);
    }
    return end.exit_status;
}

static const stk_option options_of_contain[] = {
    {"remove", 0, "LABEL=VALUE",
     "remove the containers that have this label, running or not; given several times: that have "
     "all",
     true},
    {NULL}};

const stk_command stk_cmd_contain = {
    .name = "contain",
    .summary = "run a task's container to its end (used by the engine)",
    .usage = "TASK.JSON | --remove stoker.run=RUN",
    .text = "Creates and starts the container that the document's `container` describes, on this "
            "host's Docker or Podman, passes signals on, and ends as the program in it does: with "
            "the same exit status, by the same signal. 125: the container never ran; 126: the "
            "program can't be executed; 127: the image doesn't have it. stderr and container.json, "
            "beside the document, say why.\n\nThe container never outlives this process and leaves "
            "nothing behind. The container engine may stop meanwhile.",
    .options = options_of_contain,
    .hidden = true,
    .max_args = -1,
    .run = run_contain};
