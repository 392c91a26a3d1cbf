/* Finds an artifact by a name that a person gives. */
#include <string.h>

#include "base/digest.h"
#include "base/json.h"
#include "base/text.h"
#include "store/store_digest.h"
#include "store/view/view.h"

stk_view_ref stk_view_named_ref(const stk_named_row *row, stk_arena *arena)
{
    const stk_json *ref = stk_json_read(arena, row->ref);
    const stk_json *metadata = stk_json_get(ref, "metadata"); /* null in records means none */
    return (stk_view_ref){.name = row->output,
                          .digest = row->digest,
                          .format = stk_json_get_text(ref, "format"),
                          .type = stk_json_get_text(ref, "type"),
                          .meta = stk_json_dump_in(stk_json_get(ref, "meta"), arena),
                          .metadata =
                              stk_json_is_map(metadata) ? stk_json_dump_in(metadata, arena) : NULL,
                          .tags = stk_json_dump_in(stk_json_get(ref, "tags"), arena),
                          .preview = stk_json_get_text(ref, "preview"),
                          .artifact_name = row->name,
                          .artifact_version = row->version,
                          .size = stk_json_get_whole(ref, "size", -1)};
}

/* True if this name matches; without a name, if it is the only one. */
static bool is_asked(const char *name, const char *asked, uint32_t n)
{
    return asked != NULL ? strcmp(name, asked) == 0 : n == 1;
}

/* Finds STEP/ID in a growing run, or STEP if it has one task, in the scope of the task. */
static int find_in_scope(const stk_view *view, const char *step, const char *output,
                         stk_arena *arena, stk_view_found *ret, stk_err *err)
{
    uint32_t i_task = 0;
    int64_t i_step = stk_spec_find(stk_view_spec(view), step);
    const char *id = stk_view_get_run(view)->id;
    stk_view_scope scope;
    if (i_step >= 0) {
        const stk_view_step *tasks = stk_view_get_step(view, (uint32_t)i_step);
        if (tasks->n != 1) {
            return stk_err_set(err, STK_E_USAGE,
                               "step '%s' of run %s has %u tasks; name one: RUN/STEP/ID.NAME", step,
                               id, tasks->n);
        }
        i_task = tasks->first;
    } else if (!stk_view_find(view, step, &i_task)) {
        return stk_err_set(err, STK_E_NOT_FOUND, "run %s has no task '%s'", id, step);
    }
    STK_TRY(stk_view_get_scope(view, i_task, 0, arena, &scope, err));
    for (uint32_t i = 0; i < scope.n; i++) {
        const stk_view_artifact *one = &scope.items[i];
        if (is_asked(one->name, output, scope.n)) {
            const stk_json *ref = stk_json_read(arena, one->ref);
            const stk_named_row row = {.output = stk_arena_dup(arena, one->name),
                                       .digest = stk_json_get_text(ref, "digest"),
                                       .ref = one->ref};
            ret->step = step;
            ret->ref = stk_view_named_ref(&row, arena);
            return 0;
        }
    }
    return stk_err_set(
        err, STK_E_NOT_FOUND,
        "task '%s' of run %s has no artifact '%s' (yet); 'stoker show %s/%s' lists those it has",
        step, id, stk_text_or(output, ""), id, step);
}

/* Finds RUN/STEP.OUTPUT (or RUN/STEP if it has one output). */
static int find_in_run(stk_store *store, const char *text, stk_arena *arena, stk_view_found *ret,
                       stk_err *err)
{
    char *run = stk_arena_dup(arena, text);
    STK_TRY(stk_err_if_null(run, err));
    char *step = strchr(run, '/');
    *step++ = '\0';
    char *bracket = strrchr(step, ']'); /* a title's values may have dots */
    char *output = strchr(stk_text_or(bracket, step), '.');
    if (output != NULL) {
        *output++ = '\0';
    }
    char id[40];
    STK_VIEW_AUTO view = NULL;
    stk_view_details d;
    uint32_t i_task = 0;
    STK_TRY(stk_store_resolve_run(store, run, id, err));
    STK_TRY(stk_view_load(store, id, &view, err));
    if (stk_view_grows(view)) {
        return find_in_scope(view, step, output, arena, ret, err);
    }
    if (!stk_view_find(view, step, &i_task)) {
        return stk_err_set(err, STK_E_NOT_FOUND, "run %s has no step '%s'", id, step);
    }
    STK_TRY(stk_view_get_details(view, i_task, arena, &d, err));
    ret->step = step;
    for (uint32_t i = 0; i < d.n_outputs; i++) {
        if (is_asked(d.outputs[i].name, output, d.n_outputs)) {
            ret->ref = d.outputs[i];
            return 0;
        }
    }
    if (output != NULL) {
        return stk_err_set(err, STK_E_NOT_FOUND, "step '%s' of run %s has no output '%s' (yet)",
                           step, id, output);
    }
    return stk_err_set(err, STK_E_USAGE,
                       "step '%s' of run %s has %u outputs; name one: RUN/STEP.OUTPUT", step, id,
                       d.n_outputs);
}

int stk_view_find_artifact(stk_store *store, const char *text, stk_arena *arena,
                           stk_view_found *ret, stk_err *err)
{
    if (stk_digest_is_hex(text)) {
        ret->ref = (stk_view_ref){.digest = text, .size = -1};
        return 0;
    }
    if (strchr(text, '/') != NULL) {
        return find_in_run(store, text, arena, ret, err);
    }
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
        stk_err_set(err, STK_E_NOT_FOUND, "no artifact is named '%s'", text);
        stk_err_hint(err, "name one as RUN/STEP.OUTPUT, NAME[:VERSION] or by its digest");
        return err->code;
    }
    ret->step = rows[0].step;
    ret->ref = stk_view_named_ref(&rows[0], arena);
    return 0;
}
