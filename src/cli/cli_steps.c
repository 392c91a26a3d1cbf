/* `stoker steps`: steps over their runs. */
#include <stdio.h>

#include "cli/cli_open.h"
#include "cli/cli_read.h"
#include "show/steps.h"

enum { NEWEST_RUNS = 100, MOST_RUNS = 1000000 };

static int run_steps(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    STK_STORE_AUTO store = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_BUF_AUTO html = STK_BUF_INIT(1u << 30);
    stk_steps_group *groups = NULL;
    uint32_t n = 0;
    int64_t limit = NEWEST_RUNS;
    const char *step = stk_cli_arg(cli, 0);
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_cli_number(cli, "limit", 1, MOST_RUNS, &limit, err));
    STK_TRY(stk_cli_store(STK_STORE_READONLY, &store, err));
    STK_TRY(stk_steps_read(store, stk_cli_value(cli, "pipeline"), step, (uint32_t)limit, arena,
                           &groups, &n, err));
    if (stk_cli_wants_page(cli)) {
        STK_TRY(stk_steps_page(groups, n, arena, &html, err));
        return stk_cli_put_page(cli, &html, out, err);
    }
    if (stk_cli_json(cli)) {
        return stk_steps_json(groups, n, out, err);
    }
    stk_style style = stk_cli_style(stdout);
    if (n == 0) {
        stk_buf_printf(out, "no runs in %s\n", stk_store_path(store));
    } else if (step == NULL) {
        stk_steps_table(groups, n, &style, out);
    }
    for (uint32_t i = 0; step != NULL && i < n; i++) {
        stk_steps_text(&groups[i], &style, out);
    }
    return 0;
}

static const stk_option options[] = {{"pipeline", 'p', "NAME", "only of this pipeline"},
                                     {"limit", 'n', "N", "of the newest N runs (default 100)"},
                                     STK_CLI_PAGE_OPTIONS,
                                     {NULL}};

const stk_command stk_cmd_steps = {
    .name = "steps",
    .summary = "a step over its runs: time, memory, devices, what to ask for",
    .usage = "[options] [STEP]",
    .text = "Of tasks that succeeded: how long they took, their memory and CPUs, and the memory "
            "and use of their devices: the median, the 95th percentile and the most. Then the "
            "newest tasks, failed ones too, and what to ask for, as lines for a YAML file and for "
            "Python: the 95th percentile plus 15 %, rounded up. Without STEP, a line for each step "
            "of the newest runs.",
    .options = options,
    .max_args = 1,
    .run = run_steps};
