/* OpenLineage's RunEvent for a run, and for each attempt of a step, whose parent is the run. Data
 * are named by the step that makes them ("pipeline.step.output"), and have their digest as version.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/text.h"
#include "run/observe/observe_private.h"

#define PRODUCER "urn:stoker:" STK_VERSION
#define SPEC "https://openlineage.io/spec/"

static const char *own_namespace(void)
{
    return stk_text_or(stk_text_if_any(getenv("OPENLINEAGE_NAMESPACE")), "stoker");
}

static const char *iso_time(int64_t time_ms, stk_arena *arena)
{
    time_t seconds = (time_t)(time_ms / 1000);
    struct tm tm;
    char text[32];
    if (gmtime_r(&seconds, &tm) == NULL ||
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm) == 0) {
        return "1970-01-01T00:00:00.000Z";
    }
    return stk_arena_printf(arena, "%s.%03dZ", text, (int)(time_ms % 1000));
}

/* A UUID of version 8, made from our own id. */
static const char *run_id(const observe_of *of, uint32_t task, uint32_t attempt)
{
    const char *hex = stk_observe_id(of, task, attempt, 32);
    if (hex == NULL) {
        return NULL;
    }
    return stk_arena_printf(of->arena, "%.8s-%.4s-8%.3s-a%.3s-%.12s", hex, hex + 8, hex + 13,
                            hex + 17, hex + 20);
}

static void open_facet(stk_buf *out, const char *name, const char *schema)
{
    stk_json_open(out, name, '{');
    stk_json_put_text(out, "_producer", PRODUCER);
    stk_json_put_key(out, "_schemaURL");
    stk_buf_printf(out, "\"" SPEC "facets/%s\"", schema);
}

static void put_job(const observe_of *of, const stk_view_task *task)
{
    const char *pipeline = stk_view_get_run(of->view)->pipeline;
    stk_json_put_text(of->out, "namespace", own_namespace());
    stk_json_put_text(of->out, "name",
                      task == NULL ? pipeline
                                   : stk_arena_printf(of->arena, "%s.%s", pipeline, task->name));
}

static void put_lineage_run(const observe_of *of, const stk_view_task *task,
                            const stk_view_details *d)
{
    const stk_event_row *row = of->row;
    const char *error = task == NULL ? stk_view_get_run(of->view)->error : d->error_text;
    stk_buf *out = of->out;
    stk_json_open(out, "run", '{');
    stk_json_put_text(out, "runId", run_id(of, row->task, row->attempt));
    stk_json_open(out, "facets", '{');
    open_facet(out, "processing_engine",
               "1-1-1/ProcessingEngineRunFacet.json#/$defs/ProcessingEngineRunFacet");
    stk_json_put_text(out, "name", "Stoker");
    stk_json_put_text(out, "version", STK_VERSION);
    stk_json_close(out, '}');
    if (task != NULL) {
        open_facet(out, "parent", "1-0-1/ParentRunFacet.json#/$defs/ParentRunFacet");
        stk_json_open(out, "run", '{');
        stk_json_put_text(out, "runId", run_id(of, UINT32_MAX, 0));
        stk_json_close(out, '}');
        stk_json_open(out, "job", '{');
        put_job(of, NULL);
        stk_json_close(out, '}');
        stk_json_close(out, '}');
    }
    if (error != NULL && (row->kind == STK_EV_TASK_FAILED || row->kind == STK_EV_RUN_ENDED)) {
        open_facet(out, "errorMessage",
                   "1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet");
        stk_json_put_text(out, "message", error);
        bool is_python = task != NULL && task->step->python != NULL;
        stk_json_put_text(out, "programmingLanguage", is_python ? "Python" : "unknown");
        stk_json_put_known_text(out, "stackTrace", task == NULL ? NULL : d->traceback);
        stk_json_close(out, '}');
    }
    stk_json_close(out, '}');
    stk_json_close(out, '}');
}

static void put_job_facets(const observe_of *of, const char *type)
{
    stk_json_open(of->out, "facets", '{');
    open_facet(of->out, "jobType", "2-0-3/JobTypeJobFacet.json#/$defs/JobTypeJobFacet");
    stk_json_put_text(of->out, "processingType", "BATCH");
    stk_json_put_text(of->out, "integration", "STOKER");
    stk_json_put_text(of->out, "jobType", type);
    stk_json_close(of->out, '}');
    stk_json_close(of->out, '}');
}

/* --- data --- */

static void put_version(stk_buf *out, const char *digest)
{
    if (digest != NULL) {
        open_facet(out, "version",
                   "1-0-1/DatasetVersionDatasetFacet.json#/$defs/DatasetVersionDatasetFacet");
        stk_json_put_text(out, "datasetVersion", digest);
        stk_json_close(out, '}');
    }
}

static void put_input(const observe_of *of, const char *space, const char *name, const char *digest)
{
    stk_json_open(of->out, NULL, '{');
    stk_json_put_text(of->out, "namespace", space);
    stk_json_put_text(of->out, "name", name);
    stk_json_open(of->out, "facets", '{');
    put_version(of->out, digest);
    stk_json_close(of->out, '}');
    stk_json_close(of->out, '}');
}

static const char *data_name(const observe_of *of, const char *step, const char *output)
{
    return stk_arena_printf(of->arena, "%s.%s.%s", stk_view_get_run(of->view)->pipeline, step,
                            output);
}

static void put_an_input(const observe_of *of, const stk_input *input, const char *digest)
{
    const stk_spec *spec = stk_view_spec(of->view);
    if (input->kind == STK_INPUT_OUTPUT) {
        const stk_step *step = stk_spec_step(spec, input->step);
        put_input(of, own_namespace(), data_name(of, step->name, step->outputs[input->output].name),
                  digest);
    } else if (input->kind == STK_INPUT_FILE) {
        const char *folder = stk_text_when(input->text[0] != '/', stk_spec_folder(spec));
        put_input(of, "file",
                  stk_arena_printf(of->arena, "%s%s%s", folder, stk_text_when(*folder != '\0', "/"),
                                   input->text),
                  digest);
    } else if (input->kind == STK_INPUT_ARTIFACT) {
        put_input(of, own_namespace(), input->text, input->text);
    }
    for (uint32_t i = 0; input->kind == STK_INPUT_LIST && i < input->n_items; i++) {
        put_an_input(of, &input->items[i], NULL);
    }
}

/* In a graph that grows, a task gets what its parents made; equal names of one step stand once. */
static int put_grown_inputs(const observe_of *of, const stk_view_task *task, stk_err *err)
{
    uint32_t n_steps = stk_spec_n_steps(stk_view_spec(of->view));
    bool *seen = stk_arena_array(of->arena, n_steps + 1, sizeof *seen);
    STK_TRY(stk_err_if_null(seen, err));
    memset(seen, 0, n_steps);
    for (uint32_t i = 0; i < task->n_parents; i++) {
        const stk_view_task *parent = stk_view_get_task(of->view, task->parents[i]);
        stk_view_details d;
        if (seen[parent->i_step]) {
            continue;
        }
        seen[parent->i_step] = true;
        STK_TRY(stk_view_get_details(of->view, task->parents[i], of->arena, &d, err));
        for (uint32_t k = 0; k < d.n_outputs; k++) {
            put_input(of, own_namespace(), data_name(of, parent->name, d.outputs[k].name),
                      task->n_parents == 1 ? d.outputs[k].digest : NULL);
        }
    }
    return 0;
}

static int put_inputs(const observe_of *of, const stk_view_task *task, const stk_view_details *d,
                      stk_err *err)
{
    stk_json_open(of->out, "inputs", '[');
    for (uint32_t i = 0; i < d->n_inputs; i++) {
        put_an_input(of, d->inputs[i].input, d->inputs[i].digest);
    }
    if (stk_view_grows(of->view)) {
        STK_TRY(put_grown_inputs(of, task, err));
    }
    stk_json_close(of->out, ']');
    return 0;
}

static void put_output(const observe_of *of, const stk_view_task *task, const stk_view_ref *ref)
{
    stk_buf *out = of->out;
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "namespace", own_namespace());
    stk_json_put_text(out, "name", data_name(of, task->name, ref->name));
    stk_json_open(out, "facets", '{');
    put_version(out, ref->digest);
    if (ref->format != NULL) {
        open_facet(out, "storage", "1-0-1/StorageDatasetFacet.json#/$defs/StorageDatasetFacet");
        stk_json_put_text(out, "storageLayer", "stoker");
        stk_json_put_text(out, "fileFormat", ref->format);
        stk_json_close(out, '}');
    }
    if (ref->artifact_name != NULL) {
        open_facet(out, "symlinks", "1-0-1/SymlinksDatasetFacet.json#/$defs/SymlinksDatasetFacet");
        stk_json_open(out, "identifiers", '[');
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "namespace", own_namespace());
        stk_json_put_text(out, "name", ref->artifact_name);
        stk_json_put_text(out, "type", "ARTIFACT");
        stk_json_close(out, '}');
        stk_json_close(out, ']');
        stk_json_close(out, '}');
    }
    stk_json_close(out, '}');
    if (ref->size >= 0) {
        stk_json_open(out, "outputFacets", '{');
        open_facet(out, "outputStatistics",
                   "1-0-2/OutputStatisticsOutputDatasetFacet.json#/$defs/"
                   "OutputStatisticsOutputDatasetFacet");
        stk_json_put_whole(out, "size", ref->size);
        stk_json_close(out, '}');
        stk_json_close(out, '}');
    }
    stk_json_close(out, '}');
}

/* --- the event --- */

static const char *event_type(const observe_of *of)
{
    const char *status = stk_view_get_run(of->view)->status;
    if (of->part > 0) {
        return of->row->kind == STK_EV_TASK_CACHED ? "COMPLETE" : NULL; /* it ends as it begins */
    }
    switch (of->row->kind) {
    case STK_EV_RUN_STARTED:
    case STK_EV_TASK_STARTED:
    case STK_EV_TASK_CACHED:
        return "START";
    case STK_EV_TASK_SUCCEEDED:
        return "COMPLETE";
    case STK_EV_TASK_FAILED:
        return "FAIL";
    case STK_EV_TASK_CANCELLED:
        return stk_observe_ends(of) ? "ABORT" : NULL;
    case STK_EV_RUN_ENDED:
        if (strcmp(status, "succeeded") == 0) {
            return "COMPLETE";
        }
        if (strcmp(status, "failed") == 0) {
            return "FAIL";
        }
        return "ABORT";
    default:
        return NULL;
    }
}

int stk_observe_lineage(const observe_of *of, stk_err *err)
{
    const stk_event_row *row = of->row;
    const stk_view_task *task = NULL;
    const char *type = event_type(of);
    stk_view_details d = {0};
    stk_buf *out = of->out;
    if (type == NULL) {
        return 0;
    }
    if (row->task != UINT32_MAX) {
        task = stk_view_get_task(of->view, row->task);
        STK_TRY(stk_view_get_details(of->view, row->task, of->arena, &d, err));
    }
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "eventTime", iso_time(row->time_ms, of->arena));
    stk_json_put_text(out, "producer", PRODUCER);
    stk_json_put_text(out, "schemaURL", SPEC "2-0-2/OpenLineage.json#/$defs/RunEvent");
    stk_json_put_text(out, "eventType", type);
    put_lineage_run(of, task, &d);
    stk_json_open(out, "job", '{');
    put_job(of, task);
    put_job_facets(of, task == NULL ? "PIPELINE" : "STEP");
    stk_json_close(out, '}');
    if (task != NULL) {
        STK_TRY(put_inputs(of, task, &d, err));
        stk_json_open(out, "outputs", '[');
        for (uint32_t i = 0; i < d.n_outputs; i++) {
            put_output(of, task, &d.outputs[i]);
        }
        stk_json_close(out, ']');
    }
    stk_json_close(out, '}');
    return 0;
}
