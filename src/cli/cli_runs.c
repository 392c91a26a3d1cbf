/* stoker runs: the runs of this store. */
#include <stdio.h>

#include "base/text.h"
#include "cli/cli_read.h"
#include "cli/cli_shared.h"
#include "show/show_json.h"
#include "sys/clock.h"

static int run_runs(stk_cli *cli)
{
    stk_err err = {0};
    int64_t limit = 20;
    int status = stk_cli_at_most(cli, 1);
    if (status != 0) {
        return status;
    }
    if (stk_cli_number(cli, "limit", 1, 1000000, &limit, &err) < 0) {
        return stk_cli_fail(cli, &err);
    }
    STK_CLI_READ_AUTO read = {0};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    status = stk_cli_value(cli, "stack") == NULL
                 ? stk_cli_store(cli, STK_STORE_READONLY, &read.store)
                 : stk_cli_shared_store(cli, NULL, false, (uint32_t)limit, &read.store);
    if (status != 0) {
        return status;
    }
    stk_run_row *rows = NULL;
    uint32_t n_rows = 0;
    STK_BUF_AUTO tags = STK_BUF_INIT(1u << 20);
    for (int i = 0; stk_cli_value_at(cli, "tag", i) != NULL; i++) {
        stk_buf_text(&tags, i > 0 ? "," : "[");
        stk_buf_json(&tags, stk_cli_value_at(cli, "tag", i));
    }
    stk_buf_text(&tags, tags.len > 0 ? "]" : "");
    int rc = stk_store_list_runs(read.store, stk_cli_arg(cli, 0), tags.len > 0 ? tags.data : NULL,
                                 (uint32_t)limit, arena, &rows, &n_rows, &err);
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 30);
    if (rc == 0 && stk_cli_json(cli)) {
        rc = stk_show_json_runs(rows, n_rows, &out, &err);
    } else if (rc == 0) {
        stk_style style = stk_style_of(stdout, stk_cli_colour(cli, fileno(stdout)));
        stk_text_runs(rows, n_rows, &style, &out);
        if (n_rows == 0) {
            const char *pipeline = stk_cli_arg(cli, 0);
            stk_buf_text(&out, "no runs");
            if (pipeline != NULL) {
                stk_buf_printf(&out, " of pipeline '%s'", pipeline);
            }
            stk_buf_printf(&out, "%s in %s\n", tags.len > 0 ? " with such tags" : "",
                           stk_store_path(read.store));
        }
    }
    return stk_cli_answer(cli, rc, &out, &err);
}

static const stk_option options[] = {
    {"limit", 'n', "N", "at most N runs, newest first (default 20)", false},
    {"tag", 0, "TAG", "only runs that have this tag (of several: all of them)", true},
    STK_CLI_STACK_OPTION,
    {NULL}};

const stk_command stk_cmd_runs = {.name = "runs",
                                  .summary = "the runs of this store, newest first",
                                  .usage = "[options] [PIPELINE]",
                                  .options = options,
                                  .run = run_runs};
