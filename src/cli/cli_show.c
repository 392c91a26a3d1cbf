/* stoker show: one run, one step of it, or one task. */
#include "cli/cli_read.h"
#include "cli/cli_shared.h"
#include "show/show_json.h"

static int run_show(stk_cli *cli)
{
    STK_CLI_READ_AUTO read = {0};
    int status = stk_cli_at_most(cli, 2);
    if (status != 0 || (status = stk_cli_read_open(cli, 0, &read)) != 0) {
        return status;
    }
    stk_err err = {0};
    STK_BUF_AUTO out = STK_BUF_INIT((size_t)4 << 30);
    int rc;
    bool grows = stk_view_grows(read.view);
    if (grows && read.has_step && stk_cli_json(cli)) {
        rc = stk_show_json_step(read.view, read.i_step, read.has_task ? read.task : UINT32_MAX,
                                stk_cli_flag(cli, "refs"), &out, &err);
    } else if (grows && read.has_step && !read.has_task) {
        rc = stk_text_step(read.view, read.i_step, read.now_ms, &read.style, &out, &err);
    } else if (stk_cli_json(cli)) {
        rc = read.has_task ? stk_show_json_task(read.view, read.task, &out, &err)
                           : stk_show_json_run(read.view, &out, &err);
    } else if (read.has_task) {
        rc = stk_text_task(read.view, read.task, read.now_ms, &read.style, &out, &err);
    } else {
        rc = stk_text_summary(read.view, read.store, NULL, read.now_ms, &read.style, &out, &err);
    }
    return stk_cli_answer(cli, rc, &out, &err);
}

static const stk_option options_of_show[] = {
    {"refs", 0, NULL, "--json of a growing run's step: artifacts as numbers in one list, \"refs\"",
     false},
    STK_CLI_STACK_OPTION,
    {NULL}};

const stk_command stk_cmd_show = {
    .name = "show",
    .summary = "what happened in a run, in one step of it, or in one task",
    .usage = "[options] [RUN[/STEP[/ID]]]",
    .text =
        "RUN is a run id, a unique prefix of one, a run's name, or 'latest' (the default).\n\n"
        "For each step: the time it took, what it asked for, what it was granted and what it "
        "really used. Failures come as one sentence each, first cause first.\n\n"
        "Where a run makes its tasks as it goes (a document with 'next', a flow), a step may have "
        "many: they are counted by step, RUN/STEP lists them, RUN/STEP/ID is one.",
    .options = options_of_show,
    .run = run_show};
