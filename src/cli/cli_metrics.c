/* stoker metrics: what the steps of a run measured over time. */
#include <string.h>

#include "away/remote/remote_live.h"
#include "cli/cli_read.h"
#include "cli/cli_shared.h"
#include "run/run_shared.h"
#include "show/metrics.h"
#include "sys/file.h"

enum { MOST = 1000, MOST_MAX = 100000000 };

/* What the running tasks have put into the stack's share so far. */
static int fetch_live(const stk_cli *cli, const stk_cli_read *read, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_SHARE_AUTO share = NULL;
    const char *url = NULL;
    uint32_t n = 0, n_tasks = stk_view_n_tasks(read->view);
    stk_live_task *tasks = stk_arena_array(arena, (size_t)n_tasks + 1, sizeof *tasks);
    STK_TRY(stk_err_if_null(tasks, err));
    STK_TRY(stk_run_shared_url(stk_cli_value(cli, "stack"), arena, &url, err));
    for (uint32_t i = 0; i < n_tasks; i++) {
        const stk_view_task *task = stk_view_get_task(read->view, i);
        const char *dir = stk_view_dir(read->view, task, arena);
        if (task->state != STK_TASK_RUNNING || dir == NULL) {
            continue;
        }
        STK_TRY(stk_file_mkdirs(dir, 0700, err));
        const char *key = dir + strlen(stk_view_get_run(read->view)->store) + 1;
        tasks[n++] = (stk_live_task){.key = key, .dir = dir};
    }
    STK_TRY(stk_share_open(url, &share, err));
    return stk_live_fetch(share, tasks, n, err);
}

static int run_metrics(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    STK_CLI_READ_AUTO read = {0};
    int64_t most = stk_cli_flag(cli, "csv") ? 0 : MOST;
    STK_TRY(stk_cli_number(cli, "points", 0, MOST_MAX, &most, err));
    STK_TRY(stk_cli_read_open(cli, 0, &read, err));
    if (stk_cli_value(cli, "stack") != NULL && stk_view_is_live(read.view)) {
        STK_TRY(fetch_live(cli, &read, err));
    }
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
    STK_CLI_STACK_OPTION,
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
        "With --stack, "
        "also of a run that another machine's engine has: some seconds late, by the store that the "
        "stack shares.",
    .options = options,
    .max_args = 2,
    .run = run_metrics};
