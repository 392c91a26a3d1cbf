/* What the trackers' program reads (docs/formats/trackers.md): a line of JSON for a run's begin and
 * end, and for each attempt's. */
#include "base/json.h"
#include "base/text.h"
#include "run/observe/observe_private.h"

static void put_tracked_run(const observe_of *of)
{
    const stk_view_run *run = stk_view_get_run(of->view);
    stk_buf *out = of->out;
    stk_json_put_text(out, "run", run->id);
    stk_json_put_text(out, "name", run->name);
    stk_json_put_text(out, "pipeline", run->pipeline);
    stk_json_put_text(out, "store", run->store);
    stk_json_put_raw(out, "parameters", stk_text_or(run->parameters, "{}"));
    stk_json_put_raw(out, "tags", stk_text_or(run->tags, "[]"));
    stk_json_put_bool(out, "resumed", run->n_resumed > 0);
}

static void put_tracked_outputs(const observe_of *of, const stk_view_details *d)
{
    stk_buf *out = of->out;
    stk_json_open(out, "outputs", '[');
    for (uint32_t i = 0; i < d->n_outputs; i++) {
        const stk_view_ref *ref = &d->outputs[i];
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "name", ref->name);
        stk_json_put_text(out, "digest", ref->digest);
        stk_json_put_text(
            out, "path",
            stk_view_artifact_path(of->arena, stk_view_get_run(of->view)->store, ref->digest));
        stk_json_put_whole(out, "size", ref->size);
        stk_json_put_text(out, "format", ref->format);
        stk_json_put_text(out, "type", ref->type);
        stk_json_close(out, '}');
    }
    stk_json_close(out, ']');
}

static int put_task(const observe_of *of, const char *status, stk_err *err)
{
    const stk_view_task *task = stk_view_get_task(of->view, of->row->task);
    stk_view_details d;
    STK_TRY(stk_view_get_details(of->view, of->row->task, of->arena, &d, err));
    stk_json_put_text(of->out, "task", task->label);
    stk_json_put_whole(of->out, "attempt", of->row->attempt);
    stk_json_put_text(of->out, "status", status);
    stk_json_put_text(of->out, "folder", d.dir);
    stk_json_put_known_text(of->out, "error", d.error_text);
    stk_json_put_known_raw(of->out, "metadata", d.metadata);
    put_tracked_outputs(of, &d);
    return 0;
}

static const char *tracked_status(const observe_of *of)
{
    switch (of->row->kind) {
    case STK_EV_TASK_STARTED:
        return "running";
    case STK_EV_TASK_SUCCEEDED:
        return "succeeded";
    case STK_EV_TASK_CACHED:
        return "cached";
    case STK_EV_TASK_FAILED:
        return "failed";
    case STK_EV_TASK_CANCELLED:
        return stk_observe_ends(of) ? "cancelled" : NULL;
    default:
        return NULL;
    }
}

int stk_observe_tracked(const observe_of *of, stk_err *err)
{
    const char *status = tracked_status(of);
    stk_buf *out = of->out;
    if (of->part > 0) {
        return 0;
    }
    if (of->row->kind == STK_EV_RUN_STARTED) {
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "event", "begin");
        put_tracked_run(of);
        stk_json_close(out, '}');
    } else if (of->row->kind == STK_EV_RUN_ENDED) {
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "event", "end");
        stk_json_put_text(out, "status", stk_view_get_run(of->view)->status);
        stk_json_put_text(out, "error", stk_view_get_run(of->view)->error);
        stk_json_close(out, '}');
    } else if (status != NULL) {
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "event", "task");
        STK_TRY(put_task(of, status, err));
        stk_json_close(out, '}');
    }
    return 0;
}
