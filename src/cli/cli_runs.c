/* `stoker runs`: the runs of this store. */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "cli/cli_read.h"
#include "cli/cli_shared.h"
#include "show/runs.h"
#include "show/show_json.h"

enum { ALL = 1000000 };

static void put_tags(const stk_cli *cli, stk_buf *out)
{
    const char *tag;
    stk_json_open(out, NULL, '[');
    for (int i = 0; (tag = stk_cli_value_at(cli, "tag", i)) != NULL; i++) {
        stk_json_put_text(out, NULL, tag);
    }
    stk_json_close(out, ']');
}

/* The names in --where and --sort, NULL-terminated. */
static const char *const *named(const stk_cli *cli, stk_arena *arena)
{
    uint32_t n = 0;
    const char *where, *by = stk_cli_value(cli, "sort");
    while (stk_cli_value_at(cli, "where", (int)n) != NULL) {
        n++;
    }
    const char **names = stk_arena_array(arena, (size_t)n + 2, sizeof *names);
    for (uint32_t i = 0; names != NULL && i < n + 2; i++) {
        names[i] = NULL;
        if (i < n) {
            where = stk_cli_value_at(cli, "where", (int)i);
            names[i] = stk_arena_printf(arena, "%.*s", (int)strcspn(where, " =!<>"), where);
        }
    }
    if (names != NULL && by != NULL) {
        names[n] = by + (by[0] == '-');
    }
    return names;
}

static int filter_and_sort(const stk_cli *cli, stk_run_values *runs, uint32_t *n, stk_err *err)
{
    const char *where, *by = stk_cli_value(cli, "sort");
    for (int i = 0; (where = stk_cli_value_at(cli, "where", i)) != NULL && *n > 0; i++) {
        STK_TRY(stk_runs_where(runs, n, where, err));
    }
    if (by == NULL || *n == 0) {
        return 0;
    }
    return stk_runs_sort(runs, *n, by, err);
}

static void put_none(const stk_cli *cli, const stk_store *store, stk_buf *out)
{
    const char *pipeline = stk_cli_arg(cli, 0);
    stk_buf_text(out, "no runs");
    if (pipeline != NULL) {
        stk_buf_printf(out, " of pipeline '%s'", pipeline);
    }
    if (stk_cli_value(cli, "tag") != NULL) {
        stk_buf_text(out, " with these tags");
    }
    if (stk_cli_value(cli, "where") != NULL) {
        stk_buf_text(out, " for which this holds");
    }
    stk_buf_text(out, " in ");
    stk_cli_shared_put_place(cli, store, out);
    stk_buf_char(out, '\n');
}

static int run_runs(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    int64_t limit = 20;
    STK_STORE_AUTO store = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_BUF_AUTO tags = STK_BUF_INIT(1u << 20);
    STK_COST_AUTO cost = NULL;
    const char *currency = NULL;
    stk_run_row *rows = NULL;
    stk_run_values *runs = NULL;
    uint32_t n = 0;
    bool chooses = stk_cli_value(cli, "where") != NULL || stk_cli_value(cli, "sort") != NULL;
    bool with_values = chooses || !stk_cli_flag(cli, "no-values");
    STK_TRY(stk_cli_number(cli, "limit", 1, ALL, &limit, err));
    uint32_t most = (uint32_t)(chooses ? ALL : limit);
    STK_TRY(stk_cli_shared_store(cli, NULL, with_values ? STK_MIRROR_VALUES : STK_MIRROR_EVENTS,
                                 most, &store, err));
    if (stk_cli_value(cli, "tag") != NULL) {
        put_tags(cli, &tags);
    }
    STK_TRY(
        stk_store_list_runs(store, stk_cli_arg(cli, 0), tags.data, most, arena, &rows, &n, err));
    if (with_values) {
        stk_cli_prices(store, &cost);
    }
    if (cost != NULL) {
        currency = stk_cost_currency(cost);
    }
    STK_TRY(stk_runs_read(with_values ? store : NULL, cost, rows, n, arena, &runs, err));
    STK_TRY(filter_and_sort(cli, runs, &n, err));
    n = MIN(n, (uint32_t)limit);
    if (stk_cli_json(cli)) {
        return stk_show_json_runs(runs, n, currency, with_values, out, err);
    }
    stk_style style = stk_cli_style(stdout);
    const char *const *names = named(cli, arena);
    STK_TRY(stk_err_if_null(names, err));
    stk_text_runs(runs, n, currency, names, &style, out);
    if (n == 0) {
        put_none(cli, store, out);
    }
    return 0;
}

static const stk_option options[] = {
    {"limit", 'n', "N", "at most N runs, newest first (default 20)"},
    {"tag", 0, "TAG", "only runs that have this tag (of several: all of them)", true},
    {"where", 'w', "CONDITION", "only runs for which it holds, as 'lr>0.1' (of several: all)",
     true},
    {"sort", 's', "NAME", "sort by it; -NAME: the largest first"},
    {"no-values", 0, NULL, "without parameters and metrics (for front ends)", .hidden = true},
    STK_CLI_SHARED_OPTIONS,
    {NULL}};

const stk_command stk_cmd_runs = {
    .name = "runs",
    .summary = "the runs of this store, newest first",
    .usage = "[options] [PIPELINE]",
    .text =
        "NAME in --where and --sort is a parameter, a metric, or run, name, pipeline, status, "
        "created (ms), duration (s), cost. A metric is metadata or a small output of a step, as "
        "'train.accuracy', or 'accuracy' where only one step has it. A condition is NAME, then "
        "= != < <= > >=, then a value: --where 'lr>0.1' --where status=succeeded --sort "
        "-accuracy. A run without the value doesn't match, and is sorted last. Columns are "
        "added for the values in which the runs differ, as many as fit; --json has all. The cost "
        "of "
        "a run is there where `prices` of stoker.yaml says what an hour costs.",
    .options = options,
    .max_args = 1,
    .run = run_runs};
