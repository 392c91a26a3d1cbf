/* stoker runs: the runs of this store. */
#include <stdio.h>

#include "base/json.h"
#include "cli/cli_read.h"
#include "cli/cli_shared.h"
#include "show/show_json.h"

static void put_tags(const stk_cli *cli, stk_buf *out)
{
    const char *tag;
    stk_json_open(out, NULL, '[');
    for (int i = 0; (tag = stk_cli_value_at(cli, "tag", i)) != NULL; i++) {
        stk_json_put_text(out, NULL, tag);
    }
    stk_json_close(out, ']');
}

static int run_runs(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    int64_t limit = 20;
    STK_STORE_AUTO store = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_BUF_AUTO tags = STK_BUF_INIT(1u << 20);
    stk_run_row *rows = NULL;
    uint32_t n_rows = 0;
    const char *pipeline = stk_cli_arg(cli, 0);
    STK_TRY(stk_cli_number(cli, "limit", 1, 1000000, &limit, err));
    STK_TRY(stk_cli_shared_store(cli, NULL, false, (uint32_t)limit, &store, err));
    if (stk_cli_value(cli, "tag") != NULL) {
        put_tags(cli, &tags);
    }
    STK_TRY(stk_store_list_runs(store, pipeline, tags.data, (uint32_t)limit, arena, &rows, &n_rows,
                                err));
    if (stk_cli_json(cli)) {
        return stk_show_json_runs(rows, n_rows, out, err);
    }
    stk_style style = stk_cli_style(stdout);
    stk_text_runs(rows, n_rows, &style, out);
    if (n_rows == 0) {
        stk_buf_text(out, "no runs");
        if (pipeline != NULL) {
            stk_buf_printf(out, " of pipeline '%s'", pipeline);
        }
        stk_buf_printf(out, "%s in %s\n", tags.len > 0 ? " with these tags" : "",
                       stk_store_path(store));
    }
    return 0;
}

static const stk_option options[] = {
    {"limit", 'n', "N", "at most N runs, newest first (default 20)"},
    {"tag", 0, "TAG", "only runs that have this tag (of several: all of them)", true},
    STK_CLI_STACK_OPTION,
    {NULL}};

const stk_command stk_cmd_runs = {.name = "runs",
                                  .summary = "the runs of this store, newest first",
                                  .usage = "[options] [PIPELINE]",
                                  .options = options,
                                  .max_args = 1,
                                  .run = run_runs};
