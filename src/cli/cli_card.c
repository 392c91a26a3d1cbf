/* stoker card: the report page of a run. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli_read.h"
#include "report/report_html.h"
#include "sys/file.h"

static int run_card(stk_cli *cli)
{
    STK_CLI_READ_AUTO read = {0};
    int status = stk_cli_at_most(cli, 1);
    if (status != 0 || (status = stk_cli_read_open(cli, 0, &read)) != 0) {
        return status;
    }
    if (read.has_task) {
        return stk_cli_usage(cli,
                             "a card is about a whole run; 'stoker show RUN/STEP' tells of one "
                             "step");
    }
    stk_err err = {0};
    STK_TEXT_AUTO path = NULL;
    const char *output = stk_cli_value(cli, "output");
    int rc;
    if (output != NULL) {
        STK_BUF_AUTO html = STK_BUF_INIT(1u << 30);
        rc = stk_html_card(read.view, read.store, read.now_ms, &html, &err);
        if (rc == 0) {
            rc = stk_file_write_atomic(output, html.data, html.len, 0644, &err);
        }
        path = stk_file_absolute(output);
    } else {
        rc = stk_html_write_card(read.view, read.store, read.now_ms, &path, &err);
    }
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 16);
    if (rc == 0 && stk_cli_json(cli)) {
        stk_buf_text(&out, "{\"path\":");
        stk_buf_json(&out, path);
        stk_buf_text(&out, "}\n");
    } else if (rc == 0) {
        stk_buf_printf(&out, "%s\n", path);
    }
    return stk_cli_answer(cli, rc, &out, &err);
}

static const stk_option options[] = {
    {"output", 'o', "FILE", "write the page to FILE instead of the run's folder", false}, {NULL}};

const stk_command stk_cmd_card = {
    .name = "card",
    .summary = "write a run's report page and print its path",
    .usage = "[options] [RUN]",
    .text = "The page is one HTML file that needs nothing else: the graph, a timeline, what each "
            "step asked for, was granted and used, CPU and memory curves, parameters, artifacts "
            "and failures. RUN as in 'stoker show'.",
    .options = options,
    .run = run_card};
