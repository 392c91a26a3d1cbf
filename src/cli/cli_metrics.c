/* stoker metrics: what the steps of a run measured over time. */
#include "cli/cli_read.h"
#include "cli/cli_shared.h"
#include "show/metrics.h"

enum { MOST = 1000, MOST_MAX = 100000000 };

static int run_metrics(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    STK_CLI_READ_AUTO read = {0};
    int64_t most = stk_cli_flag(cli, "csv") ? 0 : MOST;
    STK_TRY(stk_cli_number(cli, "points", 0, MOST_MAX, &most, err));
    STK_TRY(stk_cli_read_open(cli, 0, &read, err));
    const stk_metrics_ask ask = {.store = read.store,
                                 .view = read.view,
                                 .has_step = read.has_step,
                                 .has_task = read.has_task,
                                 .i_step = read.i_step,
                                 .task = read.task,
                                 .name = stk_cli_value(cli, "metric"),
                                 .most = (uint32_t)most};
    if (stk_cli_json(cli)) {
        return stk_metrics_json(&ask, out, err);
    }
    if (stk_cli_flag(cli, "csv")) {
        return stk_metrics_csv(&ask, out, err);
    }
    return stk_metrics_text(&ask, &read.style, out, err);
}

static const stk_option options[] = {
    {"metric", 'm', "NAME", "only this metric"},
    {"csv", 0, NULL, "a line a value: step,task,rank,metric,position,time,value"},
    {"points", 0, "N",
     "with --json and --csv: at most N values a metric, extremes kept; 0: all (--json: 1000, "
     "--csv: 0)"},
    STK_CLI_SHARED_OPTIONS,
    {NULL}};

const stk_command stk_cmd_metrics = {
    .name = "metrics",
    .summary = "what the steps of a run measured over time",
    .usage = "[options] [RUN[/STEP[/ID]] | STEP[/ID]]",
    .text =
        "A line a metric: how many values, the last, the least and the greatest, and the curve. "
        "Steps log them by stoker.log_metrics({'loss': x}, step=i); a command appends a line of "
        "JSON to the file $STOKER_METRICS, with the metrics and, if it likes, a step. They can be "
        "looked at while the step runs. Attempts of a task are one curve: one that goes on at a "
        "checkpoint replaces what the earlier one logged from there on. RUN as in 'stoker show'. "
        "With "
        "--stack or --store also of a run that another machine's engine has, some seconds late.",
    .options = options,
    .max_args = 2,
    .run = run_metrics};
