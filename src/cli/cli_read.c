#include "cli/cli_read.h"

#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/text.h"
#include "base/units.h"
#include "cli/cli_parse.h"
#include "cli/cli_shared.h"
#include "sys/clock.h"
#include "sys/file.h"

static int no_such_step(const stk_view *view, const char *name, stk_err *err)
{
    enum { MAX_NAMES = 10000 };
    const stk_spec *spec = stk_view_spec(view);
    uint32_t n = stk_spec_n_steps(spec);
    n = MIN(n, MAX_NAMES);
    const char **names = calloc((size_t)n + 1, sizeof *names);
    const char *near = NULL;
    for (uint32_t i = 0; names != NULL && i < n; i++) {
        names[i] =
            strchr(name, '[') != NULL ? stk_spec_title(spec, i) : stk_spec_step(spec, i)->name;
    }
    if (names != NULL) {
        near = stk_units_nearest(name, names, n);
    }
    free(names);
    stk_err_set(err, STK_E_NOT_FOUND, "run %s has no step '%s'", stk_view_get_run(view)->id, name);
    if (near != NULL) {
        stk_err_hint(err, "did you mean '%s'?", near);
    }
    return err->code;
}

static int no_such_task(const stk_cli_read *read, const char *step, const char *id, stk_err *err)
{
    const stk_view_step *tasks = stk_view_get_step(read->view, read->i_step);
    stk_err_set(err, STK_E_NOT_FOUND, "run %s has no task '%s' of step '%s'",
                stk_view_get_run(read->view)->id, id, step);
    if (tasks->n > 0) {
        stk_err_hint(err, "the first of its %u is %s", tasks->n,
                     stk_view_get_task(read->view, tasks->first)->label);
    } else {
        stk_err_hint(err, "the step has no tasks%s",
                     stk_text_when(stk_view_is_live(read->view), " yet"));
    }
    return err->code;
}

/* ID or ID_node_K of a growing run. */
static int find_task(stk_cli_read *read, const char *step, const char *id, stk_err *err)
{
    char *end = NULL;
    unsigned long number = *id >= '0' && *id <= '9' ? strtoul(id, &end, 10) : 0;
    bool is_there = number > 0 && number <= stk_view_n_tasks(read->view) &&
                    stk_view_get_task(read->view, (uint32_t)number - 1)->i_step == read->i_step;
    if (is_there && strncmp(end, "_node_", 6) == 0 && end[6] >= '0' && end[6] <= '9') {
        read->rank = (int64_t)strtoul(end + 6, &end, 10);
        uint32_t ranks = stk_view_get_task(read->view, (uint32_t)number - 1)->ranks;
        is_there = read->rank < (int64_t)ranks;
    }
    if (!is_there || *end != '\0') {
        return no_such_task(read, step, id, err);
    }
    read->has_task = true;
    read->task = (uint32_t)number - 1;
    return 0;
}

/* STEP or STEP/ID; STEP may be a title, which may hold a '/'. */
static int find_step(stk_cli_read *read, const char *text, stk_err *err)
{
    const stk_spec *spec = stk_view_spec(read->view);
    STK_TEXT_AUTO step = strdup(text);
    STK_TRY(stk_err_if_null(step, err));
    int64_t i_step = stk_spec_find_word(spec, step);
    char *id = NULL;
    if (i_step < 0) {
        id = strrchr(step, '/');
    }
    if (id != NULL) {
        *id++ = '\0';
        i_step = stk_spec_find_word(spec, step);
    }
    if (i_step < 0) {
        return no_such_step(read->view, step, err);
    }
    read->has_step = true;
    read->i_step = (uint32_t)i_step;
    if (stk_view_grows(read->view)) {
        if (id == NULL) {
            return 0;
        }
        return find_task(read, step, id, err);
    }
    if (id != NULL && strcmp(id, "0") != 0) {
        return no_such_task(read, step, id, err);
    }
    read->has_task = true;
    read->task = read->i_step;
    return 0;
}

static int load_run(stk_cli_read *read, const char *id, stk_err *err)
{
    stk_clock_anchor clock;
    STK_TRY(stk_view_load(read->store, id, &read->view, err));
    if (stk_store_run_clock(read->store, id, &clock, NULL) == 0) {
        read->now_ms = stk_clock_anchored_ms(&clock);
    }
    return 0;
}

static bool is_pipeline(stk_store *store, const char *name)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_run_row *rows = NULL;
    uint32_t n = 0;
    return arena != NULL &&
           stk_store_list_runs(store, name, NULL, 1, arena, &rows, &n, NULL) == 0 && n > 0;
}

/* Opens the latest run and its STEP or STEP/ID that `text` names. On entry `err` says that `text`
 * names no run. */
static int open_step_of_latest(stk_cli_read *read, const char *text, stk_err *err)
{
    char id[40];
    stk_err why = {0};
    if (stk_store_resolve_run(read->store, "latest", id, NULL) < 0) {
        return err->code;
    }
    STK_TRY(load_run(read, id, err));
    int rc = find_step(read, text, &why);
    if (read->has_step && rc < 0) { /* the step is there, the task isn't */
        *err = why;
        return rc;
    }
    if (rc < 0 && is_pipeline(read->store, text)) {
        stk_err_hint(err, "it is a pipeline: 'stoker runs %s' lists its runs", text);
        return err->code;
    }
    if (rc < 0) {
        stk_err_hint(err, "%s%s%s", why.text, stk_text_when(why.hint[0] != '\0', "; "), why.hint);
        return err->code;
    }
    *err = (stk_err){0};
    return 0;
}

/* `step` NULL: `text` may name it, after the run or alone. */
static int open_run(stk_cli_read *read, const char *text, const char *step, stk_err *err)
{
    STK_TEXT_AUTO run = strndup(text, strcspn(text, "/"));
    char id[40];
    STK_TRY(stk_err_if_null(run, err));
    int rc = stk_store_resolve_run(read->store, run, id, err);
    if (rc == STK_E_NOT_FOUND && step == NULL) {
        return open_step_of_latest(read, text, err);
    }
    STK_TRY(rc);
    if (text[strlen(run)] == '/') {
        step = text + strlen(run) + 1;
    }
    STK_TRY(load_run(read, id, err));
    if (step == NULL) {
        return 0;
    }
    return find_step(read, step, err);
}

int stk_cli_read_open(const stk_cli *cli, int i_arg, stk_cli_read *ret_read, stk_err *err)
{
    const char *text = stk_cli_arg(cli, i_arg), *step = NULL;
    stk_mirror_depth depth = STK_MIRROR_VALUES;
    if (text != NULL) {
        step = stk_cli_arg(cli, i_arg + 1);
    }
    if (cli->command == &stk_cmd_logs) {
        depth = STK_MIRROR_FILES;
    } else if (cli->command == &stk_cmd_show) {
        depth = STK_MIRROR_EVENTS;
    }
    text = stk_text_or(text, "latest");
    *ret_read = (stk_cli_read){
        .rank = -1, .now_ms = stk_clock_wall_ms(&stk_clock_real), .style = stk_cli_style(stdout)};
    STK_TRY(
        stk_cli_shared_store(cli, (const char *[]){text, NULL}, depth, 1, &ret_read->store, err));
    return open_run(ret_read, text, step, err);
}

void stk_cli_read_done(stk_cli_read *read)
{
    stk_view_free(read->view);
    stk_store_close(read->store);
}

int stk_cli_object(const char *text, const char *what, stk_arena *arena, stk_json *ret,
                   stk_err *err)
{
    stk_err wrong = {.text = "it is a value of another kind"};
    if (stk_json_parse(text, strlen(text), NULL, &stk_json_by_program, arena, ret, &wrong) == 0 &&
        stk_json_is_map(ret)) {
        return 0;
    }
    return stk_err_set(err, STK_E_USAGE, "%s is not a JSON object: %s", what, wrong.text);
}

void stk_cli_prices(const stk_store *store, stk_cost **ret)
{
    stk_err why = {0};
    char text[1400];
    if (stk_cost_open(stk_store_path(store), ret, &why) < 0) {
        (void)fprintf(stderr, "stoker: no cost is shown: %s\n",
                      stk_err_format(&why, text, (int)sizeof text));
    }
}
