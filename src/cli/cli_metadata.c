/* stoker metadata: shows and adds what is known of a run, a step, an output or a named artifact. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "cli/cli_read.h"
#include "cli/cli_shared.h"
#include "run/run_shared.h"
#include "sys/clock.h"
#include "sys/file.h"

/* What a TARGET names. */
typedef struct target {
    char run[40];
    uint32_t task;      /* UINT32_MAX: the run itself */
    const char *output; /* or NULL */
    const char *known;  /* its metadata now, JSON or NULL */
} target;

/* RUN, RUN/STEP or RUN/STEP.OUTPUT. */
static int find_target(stk_store *store, const char *text, stk_arena *arena, target *ret,
                       stk_err *err)
{
    char *run = stk_arena_dup(arena, text);
    char *step = strchr(run, '/');
    char *output = NULL;
    if (step != NULL) {
        *step++ = '\0';
        output = strchr(step, '.');
    }
    if (output != NULL) {
        *output++ = '\0';
    }
    *ret = (target){.task = UINT32_MAX, .output = output};
    stk_view *view = NULL;
    stk_view_details d = {0};
    int rc = stk_store_resolve_run(store, run, ret->run, err);
    rc = rc < 0 ? rc : stk_view_load(store, ret->run, &view, err);
    if (rc == 0 && step == NULL) {
        ret->known = stk_arena_dup(arena, stk_view_get_run(view)->metadata);
    } else if (rc == 0 && !stk_view_find(view, step, &ret->task)) {
        rc = stk_err_set(err, STK_E_NOT_FOUND, "run %s has no step '%s'", ret->run, step);
    } else if (rc == 0) {
        rc = stk_view_get_details(view, ret->task, arena, &d, err);
        ret->known = d.metadata;
    }
    if (rc == 0 && output != NULL) {
        uint32_t i = 0;
        while (i < d.n_outputs && strcmp(d.outputs[i].name, output) != 0) {
            i++;
        }
        rc = i < d.n_outputs
                 ? 0
                 : stk_err_set(err, STK_E_NOT_FOUND, "step '%s' of run %s has no output '%s'", step,
                               ret->run, output);
        ret->known = rc == 0 ? d.outputs[i].metadata : NULL;
    }
    stk_view_free(view);
    return rc;
}

/* An event after the run's end. Under its engine's lock: the events of a live run are its own. */
static int log_event(stk_store *store, const target *t, const char *metadata, stk_err *err)
{
    int lock = -1;
    STK_BUF_AUTO data = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES);
    int rc = stk_store_lock_run(store, t->run, &lock, err);
    if (rc == STK_E_BUSY) {
        stk_err_hint(err, "a running step logs its own metadata (log_metadata in it); of a run and "
                          "its other steps it is added when the run has ended");
    }
    stk_json_open(&data, NULL, '{');
    stk_json_put_raw(&data, "metadata", metadata);
    if (t->output != NULL) {
        stk_json_put_text(&data, "output", t->output);
    }
    stk_json_close(&data, '}');
    if (rc == 0 && data.failed) {
        rc = stk_err_set(err, STK_E_LIMIT, "the metadata is larger than %zu bytes", data.max);
    }
    if (rc == 0) {
        stk_event_row event = {.time_ms = stk_clock_wall_ms(&stk_clock_real),
                               .kind = STK_EV_METADATA,
                               .task = t->task,
                               .data = data.data};
        stk_commit commit = {.events = &event, .n_events = 1};
        rc = stk_store_commit(store, t->run, &commit, err);
    }
    stk_file_close(&lock);
    return rc;
}

static int change(stk_store *store, const char *text, const stk_json *more, stk_arena *arena,
                  const char **ret_known, stk_err *err)
{
    target t;
    int rc = find_target(store, text, arena, &t, err);
    if (rc == 0 && more != NULL) {
        const char *dump = stk_json_dump_in(more, arena);
        rc = dump == NULL ? stk_err_nomem(err) : stk_run_shared_may_add(store, t.run, err);
        if (rc == 0) {
            rc = log_event(store, &t, dump, err);
        }
        if (rc == 0) {
            stk_cli_shared_added(store, t.run);
        }
        rc = rc < 0 ? rc : find_target(store, text, arena, &t, err);
    }
    *ret_known = rc == 0 ? t.known : NULL;
    return rc;
}

/* NAME[:VERSION]: kept with the name. */
static int change_named(stk_store *store, const char *text, const stk_json *more, stk_arena *arena,
                        const char **ret_known, stk_err *err)
{
    char *name = stk_arena_dup(arena, text);
    char *version = strrchr(name, ':');
    if (version != NULL) {
        *version++ = '\0';
    }
    stk_named_row *rows = NULL;
    uint32_t n = 0;
    int rc = stk_store_list_named(store, name, version, 1, arena, &rows, &n, err);
    if (rc == 0 && n == 0) {
        rc = stk_err_set(err, STK_E_NOT_FOUND, "no artifact is named '%s'", text);
    }
    if (rc < 0) {
        return rc;
    }
    const stk_json *read = stk_json_read(arena, stk_text_or(rows[0].ref, "{}"));
    stk_json ref = stk_json_is_map(read) ? *read : stk_json_of_map(), known = stk_json_of_map();
    if (stk_json_is_map(stk_json_get(&ref, "metadata"))) {
        known = *stk_json_get(&ref, "metadata");
    }
    bool fine = read != NULL && stk_json_update(arena, &known, more) &&
                stk_json_set(arena, &ref, "metadata", known) != NULL;
    const char *now = fine ? stk_json_dump_in(&known, arena) : NULL;
    const char *dump = fine ? stk_json_dump_in(&ref, arena) : NULL;
    if (now == NULL || dump == NULL) {
        rc = stk_err_set(err, STK_E_STORE, "what is recorded of artifact '%s' can't be read", text);
    } else if (more != NULL) {
        rc = stk_store_set_named_ref(store, rows[0].name, rows[0].version, rows[0].ref, dump, err);
    }
    *ret_known = now;
    return rc;
}

static int run_metadata(stk_cli *cli)
{
    const char *text = stk_cli_arg(cli, 0);
    const char *given = stk_cli_arg(cli, 1);
    int status = stk_cli_at_most(cli, 2);
    if (status != 0 || text == NULL) {
        return status != 0 ? status : stk_cli_usage(cli, "of what? stoker metadata RUN[/STEP]");
    }
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_err wrong = {0};
    stk_json doc, *more = NULL;
    if (given != NULL && arena != NULL) {
        int rc =
            stk_json_parse(given, strlen(given), NULL, &stk_json_by_program, arena, &doc, &wrong);
        if (rc < 0 || !stk_json_is_map(&doc)) {
            return stk_cli_usage(cli, "'%s' is not a JSON object: %s", given,
                                 rc < 0 ? wrong.text : "it is another value");
        }
        more = &doc;
    }
    STK_CLI_READ_AUTO read = {0};
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 28);
    stk_err err = {0};
    status = stk_cli_store(cli, more != NULL ? 0 : STK_STORE_READONLY, &read.store);
    if (status == 0) {
        const char *known = NULL;
        int rc = stk_err_if_null(arena, &err);
        if (rc == 0 && stk_cli_flag(cli, "artifact")) {
            rc = change_named(read.store, text, more, arena, &known, &err);
        } else if (rc == 0) {
            rc = change(read.store, text, more, arena, &known, &err);
        }
        stk_buf_printf(&out, "%s\n", stk_text_or(known, "{}"));
        status = stk_cli_answer(cli, rc, &out, &err);
    }
    return status;
}

static const stk_option options[] = {
    {"artifact", 0, NULL, "of a named artifact instead: NAME[:VERSION]", false}, {NULL}};

const stk_command stk_cmd_metadata = {
    .name = "metadata",
    .summary = "show or add metadata of a run, a step or an artifact",
    .usage = "[options] RUN[/STEP[.OUTPUT]] [JSON]",
    .text = "Of a run, a step, an output, or with --artifact of NAME[:VERSION]: prints its "
            "metadata as a JSON object. A JSON object is added to it first: its values win over "
            "those of the same name. Of a run that still runs nothing can be added from outside. "
            "Where machines share the run's "
            "store, the others are told; what is added to a name stays on this machine.",
    .options = options,
    .run = run_metadata};
