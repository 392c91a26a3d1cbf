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
        names[i] = stk_spec_step(spec, i)->name;
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
        stk_err_hint(err, "it has %u of it, the first is %s", tasks->n,
                     stk_view_get_task(read->view, tasks->first)->label);
    } else {
        stk_err_hint(err, "no task of it has been added%s",
                     stk_view_is_live(read->view) ? " yet" : "");
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

/* STEP or STEP/ID. */
static int find_step(stk_cli_read *read, const char *text, stk_err *err)
{
    STK_TEXT_AUTO step = strdup(text);
    if (step == NULL) {
        return stk_err_nomem(err);
    }
    char *id = strchr(step, '/');
    if (id != NULL) {
        *id++ = '\0';
    }
    int64_t i_step = stk_spec_find(stk_view_spec(read->view), step);
    if (i_step < 0) {
        return no_such_step(read->view, step, err);
    }
    read->has_step = true;
    read->i_step = (uint32_t)i_step;
    if (stk_view_grows(read->view)) {
        return id != NULL ? find_task(read, step, id, err) : 0;
    }
    read->has_task = true;
    read->task = read->i_step;
    return id == NULL || strcmp(id, "0") == 0 ? 0 : no_such_task(read, step, id, err);
}

static int open_run(stk_cli_read *read, const char *text, const char *step, stk_err *err)
{
    STK_TEXT_AUTO run = strdup(text);
    if (run == NULL) {
        return stk_err_nomem(err);
    }
    char *slash = strchr(run, '/');
    if (slash != NULL) {
        *slash = '\0';
        step = slash + 1;
    }
    char id[40];
    int rc = stk_store_resolve_run(read->store, run, id, err);
    if (rc < 0) {
        return rc;
    }
    rc = stk_view_load(read->store, id, &read->view, err);
    stk_clock_anchor clock;
    if (rc == 0 && stk_store_run_clock(read->store, id, &clock, NULL) == 0) {
        read->now_ms = stk_clock_anchored_ms(&clock);
    }
    if (rc < 0 || step == NULL) {
        return rc;
    }
    return find_step(read, step, err);
}

int stk_cli_read_open(const stk_cli *cli, int i_arg, stk_cli_read *ret_read)
{
    stk_err err = {0};
    *ret_read = (stk_cli_read){.rank = -1,
                               .now_ms = stk_clock_wall_ms(&stk_clock_real),
                               .style = stk_style_of(stdout, stk_cli_colour(cli, STDOUT_FILENO))};
    const char *text = stk_cli_arg(cli, i_arg);
    int status = 0;
    if (stk_cli_value(cli, "stack") != NULL) {
        bool with_files = cli->command == &stk_cmd_logs;
        status =
            stk_cli_shared_store(cli, stk_text_or(text, "latest"), with_files, 1, &ret_read->store);
    } else {
        status = stk_cli_store(cli, STK_STORE_READONLY, &ret_read->store);
    }
    if (status != 0) {
        return status;
    }
    const char *step = text != NULL ? stk_cli_arg(cli, i_arg + 1) : NULL;
    int rc = open_run(ret_read, stk_text_or(text, "latest"), step, &err);
    return rc < 0 ? stk_cli_fail(cli, &err) : 0;
}

void stk_cli_read_done(stk_cli_read *read)
{
    stk_view_free(read->view);
    stk_store_close(read->store);
}

int stk_cli_at_most(const stk_cli *cli, int n_args)
{
    return stk_cli_n_args(cli) > n_args
               ? stk_cli_usage(cli, "'%s' is one argument too many", stk_cli_arg(cli, n_args))
               : 0;
}

int stk_cli_answer(const stk_cli *cli, int rc, const stk_buf *text, const stk_err *err)
{
    if (rc < 0) {
        return stk_cli_fail(cli, err);
    }
    if (text->len > 0) {
        (void)fwrite(text->data, 1, text->len, stdout);
    }
    return 0;
}
