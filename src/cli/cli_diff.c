/* `stoker diff`: runs side by side. */
#include <stdio.h>
#include <string.h>

#include "cli/cli_open.h"
#include "cli/cli_read.h"
#include "cli/cli_shared.h"
#include "show/compare.h"
#include "sys/clock.h"

enum { ALL_RUNS = 1000000 };

/* The runs that are named, in their order. */
static int find_named(const stk_cli *cli, const stk_run_row *all, uint32_t n_all, stk_store *store,
                      stk_run_row *ret, uint32_t *ret_n, stk_err *err)
{
    for (int i = 0; i < stk_cli_n_args(cli); i++) {
        char id[40];
        bool is_there = false;
        STK_TRY(stk_store_resolve_run(store, stk_cli_arg(cli, i), id, err));
        for (uint32_t k = 0; k < *ret_n; k++) {
            if (strcmp(ret[k].id, id) == 0) {
                return stk_err_set(err, STK_E_USAGE, "run %s is named twice", id);
            }
        }
        for (uint32_t k = 0; k < n_all && !is_there; k++) {
            is_there = strcmp(all[k].id, id) == 0;
            if (is_there) {
                ret[(*ret_n)++] = all[k];
            }
        }
        if (!is_there) {
            return stk_err_set(err, STK_E_NOT_FOUND, "run %s has just been removed", id);
        }
    }
    return 0;
}

/* The runs for which all of --where hold, newest first. */
static int find_where(const stk_cli *cli, stk_store *store, const stk_run_row *all, uint32_t n_all,
                      stk_arena *arena, stk_run_row *ret, uint32_t *ret_n, stk_err *err)
{
    int64_t limit = STK_COMPARE_MOST;
    const char *where;
    stk_run_values *runs = NULL;
    STK_COST_AUTO cost = NULL;
    uint32_t n = n_all;
    STK_TRY(stk_cli_number(cli, "limit", 2, STK_COMPARE_MOST, &limit, err));
    stk_cli_prices(store, &cost);
    STK_TRY(stk_runs_read(store, cost, all, n_all, arena, &runs, err));
    for (int i = 0; (where = stk_cli_value_at(cli, "where", i)) != NULL && n > 0; i++) {
        STK_TRY(stk_runs_where(runs, &n, where, err));
    }
    for (uint32_t i = 0; i < n && (int64_t)i < limit; i++) {
        ret[(*ret_n)++] = *runs[i].row;
    }
    if (n < 2) {
        return stk_err_set(err, STK_E_USAGE, "%s",
                           n == 0 ? "no run is like that"
                                  : "only one run is like that; a comparison needs two");
    }
    return 0;
}

/* Of a share those runs are brought that are named, or else all. */
static int bring_runs(const stk_cli *cli, stk_arena *arena, stk_store **ret, stk_err *err)
{
    int n = stk_cli_n_args(cli);
    const char **names = stk_arena_array(arena, (size_t)n + 1, sizeof *names);
    STK_TRY(stk_err_if_null(names, err));
    for (int i = 0; i < n; i++) {
        names[i] = stk_cli_arg(cli, i);
    }
    names[n] = NULL;
    return stk_cli_shared_store(cli, n == 0 ? NULL : names, STK_MIRROR_VALUES, ALL_RUNS, ret, err);
}

static int choose_runs(const stk_cli *cli, stk_store *store, stk_arena *arena, stk_run_row **ret,
                       uint32_t *ret_n, stk_err *err)
{
    stk_run_row *all = NULL;
    uint32_t n_all = 0;
    bool by_where = stk_cli_value(cli, "where") != NULL || stk_cli_value(cli, "pipeline") != NULL;
    if (by_where && stk_cli_n_args(cli) > 0) {
        return stk_cli_usage(cli, err, "name the runs, or choose them by --where and --pipeline");
    }
    if (!by_where && stk_cli_n_args(cli) < 2) {
        return stk_cli_usage(cli, err, "name two runs or more, or choose them by --where");
    }
    STK_TRY(stk_store_list_runs(store, stk_cli_value(cli, "pipeline"), NULL, ALL_RUNS, arena, &all,
                                &n_all, err));
    *ret = stk_arena_array(arena, (size_t)n_all + (size_t)stk_cli_n_args(cli) + 1, sizeof **ret);
    STK_TRY(stk_err_if_null(*ret, err));
    if (by_where) {
        return find_where(cli, store, all, n_all, arena, *ret, ret_n, err);
    }
    return find_named(cli, all, n_all, store, *ret, ret_n, err);
}

static int read_goal(const stk_cli *cli, stk_compare_ask *ask, stk_err *err)
{
    static const struct {
        const char *option;
        stk_goal goal;
    } goals[] = {{"best", STK_GOAL_BY_NAME}, {"min", STK_GOAL_MIN}, {"max", STK_GOAL_MAX}};
    for (size_t i = 0; i < sizeof goals / sizeof *goals; i++) {
        const char *metric = stk_cli_value(cli, goals[i].option);
        if (metric != NULL && ask->metric != NULL) {
            return stk_cli_usage(cli, err, "only one of --best, --min and --max");
        }
        if (metric != NULL) {
            ask->metric = metric;
            ask->goal = goals[i].goal;
        }
    }
    return 0;
}

static int write_page(const stk_cli *cli, const stk_compare *compare, stk_buf *out, stk_err *err)
{
    STK_BUF_AUTO html = STK_BUF_INIT(1u << 30);
    STK_TRY(stk_compare_page(compare, &html, err));
    return stk_cli_put_page(cli, &html, out, err);
}

static int compare_runs(const stk_cli *cli, const stk_compare_ask *ask, stk_buf *out, stk_err *err)
{
    STK_COMPARE_AUTO compare = NULL;
    STK_TRY(stk_compare_make(ask, &compare, err));
    if (stk_cli_wants_page(cli)) {
        return write_page(cli, compare, out, err);
    }
    if (stk_cli_json(cli)) {
        return stk_compare_json(compare, out, err);
    }
    stk_style style = stk_cli_style(stdout);
    return stk_compare_text(compare, &style, out, err);
}

static int run_diff(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    STK_STORE_AUTO store = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_run_row *rows = NULL;
    uint32_t n = 0;
    stk_compare_ask ask = {.all = stk_cli_flag(cli, "all"),
                           .now_ms = stk_clock_wall_ms(&stk_clock_real)};
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(read_goal(cli, &ask, err));
    STK_TRY(bring_runs(cli, arena, &store, err));
    STK_TRY(choose_runs(cli, store, arena, &rows, &n, err));
    STK_COST_AUTO cost = NULL;
    stk_cli_prices(store, &cost);
    ask.cost = cost;
    int rc = stk_compare_load(store, rows, n, arena, &ask, err);
    if (rc == 0) {
        rc = compare_runs(cli, &ask, out, err);
    }
    stk_compare_unload(&ask);
    return rc;
}

static const stk_option options[] = {
    {"where", 'w', "CONDITION", "the runs for which it holds, as 'lr>0.1' (of several: all)", true},
    {"pipeline", 'p', "NAME", "the runs of this pipeline"},
    {"limit", 'n', "N", "of those the newest N (default 1000, which is also the most)"},
    {"best", 'b', "METRIC",
     "which run is best: by its last value, as its name says: loss, accuracy"},
    {"min", 0, "METRIC", "the same: the least is best"},
    {"max", 0, "METRIC", "the same: the greatest is best"},
    {"all", 'a', NULL, "also what the runs have in common"},
    STK_CLI_PAGE_OPTIONS,
    STK_CLI_SHARED_OPTIONS,
    {NULL}};

const stk_command stk_cmd_diff = {
    .name = "diff",
    .summary = "runs side by side: what differs",
    .usage = "[options] RUN RUN...",
    .text = "Shows in what the runs differ: parameters, metrics, the time and the status of each "
            "step and why it ran, code, packages and machine, inputs and artifacts, and what was "
            "asked for, granted and used. RUN as in 'stoker show'; a condition as in 'stoker runs "
            "--where'. More runs than fit side by side are a line each, the best first. A page "
            "also has the curves of metrics, and of a sweep each parameter against the metric.\n\n"
            "The code of a step is compared line by line where a run keeps its text (commands, "
            "and steps of flows with a card), else by the digests of its functions.",
    .options = options,
    .max_args = -1,
    .run = run_diff};
