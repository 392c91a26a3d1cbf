/* stoker metadata: shows and adds metadata of a run, a step, an output or a named artifact. */
#include <string.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "cli/cli_read.h"
#include "cli/cli_shared.h"
#include "run/run_shared.h"
#include "sys/clock.h"
#include "sys/file.h"

/* What TARGET names. */
typedef struct target {
    char run[40];
    uint32_t task;      /* UINT32_MAX: the run itself */
    const char *output; /* or NULL */
    const char *known;  /* its metadata, JSON or NULL */
} target;

/* RUN, RUN/STEP or RUN/STEP.OUTPUT. */
static int find_target(stk_store *store, const char *text, stk_arena *arena, target *ret,
                       stk_err *err)
{
    char *run = stk_arena_dup(arena, text);
    STK_TRY(stk_err_if_null(run, err));
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
    STK_VIEW_AUTO view = NULL;
    stk_view_details d = {0};
    STK_TRY(stk_store_resolve_run(store, run, ret->run, err));
    STK_TRY(stk_view_load(store, ret->run, &view, err));
    if (step == NULL) {
        ret->known = stk_arena_dup(arena, stk_view_get_run(view)->metadata);
        return 0;
    }
    if (!stk_view_find(view, step, &ret->task)) {
        return stk_err_set(err, STK_E_NOT_FOUND, "run %s has no step '%s'", ret->run, step);
    }
    STK_TRY(stk_view_get_details(view, ret->task, arena, &d, err));
    if (output == NULL) {
        ret->known = d.metadata;
        return 0;
    }
    for (uint32_t i = 0; i < d.n_outputs; i++) {
        if (strcmp(d.outputs[i].name, output) == 0) {
            ret->known = d.outputs[i].metadata;
            return 0;
        }
    }
    return stk_err_set(err, STK_E_NOT_FOUND, "step '%s' of run %s has no output '%s'", step,
                       ret->run, output);
}

/* Appends an event after the run's end, under the engine's lock: only its engine may add events to
 * a live run. */
static int log_event(stk_store *store, const target *t, const char *metadata, stk_err *err)
{
    STK_FD_AUTO lock = -1;
    STK_BUF_AUTO data = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES);
    int rc = stk_store_lock_run(store, t->run, &lock, err);
    if (rc == STK_E_BUSY) {
        stk_err_hint(err, "a running step can log its own metadata with log_metadata; add metadata "
                          "of the run and its other steps when the run has ended");
    }
    STK_TRY(rc);
    stk_json_open(&data, NULL, '{');
    stk_json_put_raw(&data, "metadata", metadata);
    if (t->output != NULL) {
        stk_json_put_text(&data, "output", t->output);
    }
    stk_json_close(&data, '}');
    if (data.failed) {
        return stk_err_set(err, STK_E_LIMIT, "the metadata is larger than %zu bytes", data.max);
    }
    stk_event_row event = {.time_ms = stk_clock_wall_ms(&stk_clock_real),
                           .kind = STK_EV_METADATA,
                           .task = t->task,
                           .data = data.data};
    stk_commit commit = {.events = &event, .n_events = 1};
    return stk_store_commit(store, t->run, &commit, err);
}

static int change_target(stk_store *store, const char *text, const stk_json *more, stk_arena *arena,
                         const char **ret_known, stk_err *err)
{
    target t;
    STK_TRY(find_target(store, text, arena, &t, err));
    if (more != NULL) {
        const char *dump = stk_json_dump_in(more, arena);
        STK_TRY(stk_err_if_null(dump, err));
        STK_TRY(stk_run_shared_may_add(store, t.run, err));
        STK_TRY(log_event(store, &t, dump, err));
        stk_cli_shared_added(store, t.run);
        STK_TRY(find_target(store, text, arena, &t, err));
    }
    *ret_known = t.known;
    return 0;
}

/* NAME[:VERSION]: the metadata is stored with the name. */
static int change_named(stk_store *store, const char *text, const stk_json *more, stk_arena *arena,
                        const char **ret_known, stk_err *err)
{
    char *name = stk_arena_dup(arena, text);
    STK_TRY(stk_err_if_null(name, err));
    char *version = strrchr(name, ':');
    if (version != NULL) {
        *version++ = '\0';
    }
    stk_named_row *rows = NULL;
    uint32_t n = 0;
    STK_TRY(stk_store_list_named(store, name, version, 1, arena, &rows, &n, err));
    if (n == 0) {
        return stk_err_set(err, STK_E_NOT_FOUND, "no artifact is named '%s'", text);
    }
    const stk_json *read = stk_json_read(arena, stk_text_or(rows[0].ref, "{}"));
    stk_json ref = stk_json_is_map(read) ? *read : stk_json_of_map(), known = stk_json_of_map();
    if (stk_json_is_map(stk_json_get(&ref, "metadata"))) {
        known = *stk_json_get(&ref, "metadata");
    }
    bool fine = read != NULL && stk_json_update(arena, &known, more) &&
                stk_json_set(arena, &ref, "metadata", known) != NULL;
    const char *dump = fine ? stk_json_dump_in(&ref, arena) : NULL;
    *ret_known = fine ? stk_json_dump_in(&known, arena) : NULL;
    if (*ret_known == NULL || dump == NULL) {
        return stk_err_set(err, STK_E_STORE, "the record of artifact '%s' can't be read", text);
    }
    if (more == NULL) {
        return 0;
    }
    return stk_store_set_named_ref(store, rows[0].name, rows[0].version, rows[0].ref, dump, err);
}

static int run_metadata(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    const char *text = stk_cli_arg(cli, 0), *given = stk_cli_arg(cli, 1), *known = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_STORE_AUTO store = NULL;
    stk_json doc, *more = NULL;
    if (text == NULL) {
        return stk_cli_usage(cli, err, "a run or a step is missing: stoker metadata RUN[/STEP]");
    }
    STK_TRY(stk_err_if_null(arena, err));
    if (given != NULL) {
        STK_TRY(stk_cli_object(given, stk_arena_printf(arena, "'%s'", given), arena, &doc, err));
        more = &doc;
    }
    STK_TRY(stk_cli_store(more != NULL ? 0 : STK_STORE_READONLY, &store, err));
    if (stk_cli_flag(cli, "artifact")) {
        STK_TRY(change_named(store, text, more, arena, &known, err));
    } else {
        STK_TRY(change_target(store, text, more, arena, &known, err));
    }
    return stk_buf_text(out, stk_text_or(known, "{}"));
}

static const stk_option options[] = {
    {"artifact", 0, NULL, "the target is a named artifact: NAME[:VERSION]"}, {NULL}};

const stk_command stk_cmd_metadata = {
    .name = "metadata",
    .summary = "show or add metadata of a run, a step or an artifact",
    .usage = "[options] RUN[/STEP[.OUTPUT]] [JSON]",
    .text =
        "Prints the metadata of a run, a step, an output, or with --artifact of NAME[:VERSION], as "
        "a JSON object. If JSON is given, adds that object first: its values replace those of the "
        "same name. Nothing can be added from outside to a run that still runs. If machines share "
        "the run's store, the others see it; what is added to a name stays on this machine.",
    .options = options,
    .max_args = 2,
    .run = run_metadata};
