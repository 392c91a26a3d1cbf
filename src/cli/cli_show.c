/* stoker show: one run, one step of it, or one task. */
#include <string.h>

#include "cli/cli_read.h"
#include "cli/cli_shared.h"
#include "run/run_shared.h"
#include "show/code.h"
#include "show/show_json.h"

/* A run whose engine here has ended may go on at another machine, which only the share knows. */
static int find_taker(stk_cli_read *read, stk_err *err)
{
    const stk_view_run *run = stk_view_get_run(read->view);
    char who[300], stack[64];
    if (strcmp(run->status, "interrupted") != 0) {
        return 0;
    }
    stk_run_shared_taker(read->store, run->id, who, stack);
    if (*who == '\0') {
        return 0;
    }
    return stk_view_set_taker(read->view, who, stack, err);
}

static int show_code(const stk_cli *cli, const stk_cli_read *read, stk_buf *out, stk_err *err)
{
    if (!read->has_step) {
        stk_err_set(err, STK_E_USAGE, "--code shows the code of one step");
        stk_err_hint(err, "name it: stoker show %s/STEP --code", stk_view_get_run(read->view)->id);
        return err->code;
    }
    if (stk_cli_json(cli)) {
        return stk_code_json(read->view, read->i_step, out, err);
    }
    return stk_code_text(read->view, read->i_step, &read->style, out, err);
}

static int run_show(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    STK_CLI_READ_AUTO read = {0};
    STK_TRY(stk_cli_read_open(cli, 0, &read, err));
    STK_TRY(find_taker(&read, err));
    if (stk_cli_flag(cli, "code")) {
        return show_code(cli, &read, out, err);
    }
    bool grows = stk_view_grows(read.view), json = stk_cli_json(cli);
    if (json && grows && read.has_step) {
        return stk_show_json_step(read.view, read.i_step, read.has_task ? read.task : UINT32_MAX,
                                  stk_cli_flag(cli, "refs"), out, err);
    }
    if (json && read.has_task) {
        return stk_show_json_task(read.view, read.task, out, err);
    }
    if (json) {
        return stk_show_json_run(read.view, out, err);
    }
    if (read.has_task) {
        return stk_text_task(read.view, read.task, read.now_ms, &read.style, out, err);
    }
    if (read.has_step) {
        return stk_text_step(read.view, read.i_step, read.now_ms, &read.style, out, err);
    }
    return stk_text_summary(read.view, read.store, NULL, read.now_ms, &read.style, out, err);
}

static const stk_option options_of_show[] = {
    {"refs", 0, NULL, "--json of a growing run's step: artifacts as numbers in one list, \"refs\""},
    {"code", 0, NULL, "the text of the step: its function and what it uses, or its command"},
    STK_CLI_SHARED_OPTIONS,
    {NULL}};

const stk_command stk_cmd_show = {
    .name = "show",
    .summary = "what happened in a run, in one step of it, or in one task",
    .usage = "[options] [RUN[/STEP[/ID]] | STEP[/ID]]",
    .text = "RUN is a run id, a unique prefix of one, a run's name, or 'latest' (the default).\n\n"
            "For each step: the time it took, what it asked for, what it was granted and what it "
            "really used. Each failure is one sentence, the first cause comes first.\n\n"
            "In a run that makes its tasks as it goes (a document with 'next', a flow), a step may "
            "have many tasks: the summary counts them by step, RUN/STEP lists them, RUN/STEP/ID is "
            "one of them.",
    .options = options_of_show,
    .max_args = 2,
    .run = run_show};
