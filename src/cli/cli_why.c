/* stoker why: says why a step ran, failed, was skipped or waits. */
#include "base/json.h"
#include "base/text.h"
#include "cli/cli_read.h"
#include "cli/cli_shared.h"
#include "show/why.h"

static int find_reason(const stk_cli_read *read, stk_arena *arena, stk_buf *text, stk_err *err)
{
    STK_TRY(stk_err_if_null(arena, err));
    if (read->has_task) {
        return stk_show_why_task(read->store, read->view, read->task, arena, text, err);
    }
    if (read->has_step) {
        return stk_show_why_step(read->store, read->view, read->i_step, arena, text, err);
    }
    return stk_show_why_run(read->store, read->view, arena, text, err);
}

static int run_why(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    STK_CLI_READ_AUTO read = {0};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_BUF_AUTO text = STK_BUF_INIT(1u << 24);
    STK_TRY(stk_cli_read_open(cli, 0, &read, err));
    STK_TRY(find_reason(&read, arena, &text, err));
    while (text.len > 0 && text.data[text.len - 1] == '\n') {
        text.data[--text.len] = '\0';
    }
    if (!stk_cli_json(cli)) {
        stk_text_safe(out, stk_text_or(text.data, ""), "");
        return 0;
    }
    const char *step = NULL, *title = NULL;
    if (read.has_task) {
        step = stk_view_get_task(read.view, read.task)->label;
        title = stk_view_get_task(read.view, read.task)->title;
    } else if (read.has_step) {
        step = stk_spec_step(stk_view_spec(read.view), read.i_step)->name;
    }
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "run", stk_view_get_run(read.view)->id);
    stk_json_put_text(out, "step", step);
    stk_json_put_known_text(out, "title", title);
    stk_json_put_text(out, "why", stk_text_or(text.data, ""));
    stk_json_close(out, '}');
    return 0;
}

static const stk_option options[] = {STK_CLI_SHARED_OPTIONS, {NULL}};

const stk_command stk_cmd_why = {
    .name = "why",
    .summary = "why a step ran, failed, was skipped or waits",
    .usage = "[options] [RUN[/STEP[/ID]] | STEP[/ID]]",
    .text = "One sentence per step. For a step that waits: what for, and who has it (a step of "
            "this run, another run, a program outside Stoker). Without STEP: the failed steps, or "
            "why the others ran instead of coming from the cache. RUN as in 'stoker show'.",
    .options = options,
    .max_args = 2,
    .run = run_why};
