/* stoker card: the report page of a run or of one task. */
#include <stdio.h>

#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/cli_read.h"
#include "show/show_html.h"
#include "show/show_task_card.h"
#include "sys/file.h"

/* `STEP` alone is allowed if it has only one task. */
static int only_task(stk_cli_read *read, stk_err *err)
{
    const stk_view_step *step = stk_view_get_step(read->view, read->i_step);
    const char *name = stk_spec_step(stk_view_spec(read->view), read->i_step)->name;
    if (read->has_task) {
        return 0;
    }
    if (step->n != 1) {
        stk_err_set(err, STK_E_USAGE, "step '%s' has %u tasks; a card belongs to one task", name,
                    step->n);
        if (step->n > 0) {
            stk_err_hint(err, "the first is %s/%s", stk_view_get_run(read->view)->id,
                         stk_view_get_task(read->view, step->first)->label);
        }
        return err->code;
    }
    read->has_task = true;
    read->task = step->first;
    return 0;
}

static int write_task_card(const stk_cli *cli, const stk_cli_read *read, const char *path,
                           stk_err *err)
{
    int64_t reload_ms = 0;
    const char *reload = stk_cli_value(cli, "reload");
    if (reload != NULL && (stk_units_parse_duration(reload, &reload_ms, NULL) < 0 ||
                           reload_ms < 1000 || reload_ms > 86400000)) {
        return stk_err_set(err, STK_E_USAGE, "--reload %s is not a time from 1 second to 1 day",
                           reload);
    }
    const stk_task_card_options options = {.rank = read->rank,
                                           .id = stk_cli_value(cli, "id"),
                                           .linked = stk_cli_value(cli, "output") == NULL,
                                           .reload_s = (int)(reload_ms / 1000)};
    return stk_html_write_task_card(read->view, read->task, &options, read->now_ms, path, err);
}

static int task_list(const stk_cli *cli, const stk_cli_read *read, stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_task_card *cards = NULL;
    uint32_t n = 0;
    STK_TRY(stk_err_if_null(arena, err));
    if (stk_cli_json(cli)) {
        return stk_task_cards_json(read->view, read->task, read->rank, arena, out, err);
    }
    STK_TRY(stk_task_cards(read->view, read->task, read->rank, arena, &cards, &n, err));
    for (uint32_t i = 0; i < n; i++) {
        stk_buf_printf(out, "%s  %s  %s\n", cards[i].name, stk_text_or(cards[i].type, "?"),
                       cards[i].path);
    }
    return 0;
}

static int write_run_card(const stk_cli_read *read, const char *path, stk_err *err)
{
    STK_BUF_AUTO html = STK_BUF_INIT(1u << 30);
    STK_TRY(stk_html_card(read->view, read->store, read->now_ms, false, &html, err));
    return stk_file_write_atomic(path, html.data, html.len, 0644, err);
}

/* Writes the page of the run, or of a task, to --output or into the run's folder. */
static int write_card(const stk_cli *cli, const stk_cli_read *read, char **ret_path, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *path = stk_cli_value(cli, "output");
    if (!read->has_step && path == NULL) {
        return stk_html_write_card(read->view, read->store, read->now_ms, ret_path, err);
    }
    if (path == NULL && arena != NULL) {
        path = stk_task_card_path(read->view, read->task, arena);
    }
    STK_TRY(stk_err_if_null(path, err));
    if (read->has_step) {
        STK_TRY(write_task_card(cli, read, path, err));
    } else {
        STK_TRY(write_run_card(read, path, err));
    }
    *ret_path = stk_file_absolute(path);
    return 0;
}

/* Writes the page of a card's file, which belongs to no run. */
static int write_file_card(const stk_cli *cli, stk_err *err)
{
    STK_BUF_AUTO html = STK_BUF_INIT(1u << 30);
    const char *path = stk_cli_value(cli, "output");
    if (path == NULL) {
        return stk_cli_usage(cli, err, "--file needs --output");
    }
    STK_TRY(stk_html_card_file(stk_cli_value(cli, "file"), &html, err));
    return stk_file_write_atomic(path, html.data, html.len, 0644, err);
}

static int run_card(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    STK_CLI_READ_AUTO read = {0};
    STK_TEXT_AUTO path = NULL;
    if (stk_cli_value(cli, "file") != NULL) {
        return write_file_card(cli, err);
    }
    STK_TRY(stk_cli_read_open(cli, 0, &read, err));
    if (!read.has_step && (stk_cli_flag(cli, "list") || stk_cli_value(cli, "id") != NULL)) {
        return stk_cli_usage(cli, err, "--list and --id need a task: RUN/STEP/ID");
    }
    if (read.has_step) {
        STK_TRY(only_task(&read, err));
    }
    if (stk_cli_flag(cli, "list")) {
        return task_list(cli, &read, out, err);
    }
    STK_TRY(write_card(cli, &read, &path, err));
    STK_TRY(stk_err_if_null(path, err));
    if (stk_cli_json(cli)) {
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "path", path);
        stk_json_close(out, '}');
    } else {
        stk_buf_text(out, path);
    }
    return 0;
}

static const stk_option options[] = {
    {"output", 'o', "FILE", "write the page to FILE instead of the run's folder"},
    {"file", 0, "CARD", "the page of this file of a task's folder cards alone"},
    {"id", 0, "ID", "the card with this id, of a task with several"},
    {"list", 0, NULL, "list the cards of a task"},
    {"reload", 0, "TIME", "make the page reload itself this often while the task runs"},
    {NULL}};

const stk_command stk_cmd_card = {
    .name = "card",
    .summary = "write a run's or a task's report page and print its path",
    .usage = "[options] [RUN[/STEP[/ID]] | STEP[/ID]]",
    .text =
        "The page is one self-contained HTML file: the graph, a timeline, what each step asked "
        "for, was granted and used, CPU and memory curves, parameters, artifacts and failures. RUN "
        "as in 'stoker show'.\n\n"
        "The page of a task shows what the step itself reported (@card of a flow: text, tables, "
        "charts, pictures), even while it runs, then its artifacts, code, resources and the ends "
        "of its logs. A step with @gpu_profile also has a page of its devices, --id gpu_profile.",
    .options = options,
    .max_args = 1,
    .run = run_card};
