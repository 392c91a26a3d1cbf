/* OpenTelemetry's spans as OTLP's JSON: one for the run, which begins with this engine and ends
 * with it, and below it one for each attempt of a step, linked to those whose outputs it uses. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "run/observe/observe_private.h"

enum { TRACE_HEX = 32, SPAN_HEX = 16, STATUS_OK = 1, STATUS_ERROR = 2, MAX_LINKS = 128 };

static void text_attribute(stk_buf *out, const char *key, const char *value)
{
    if (value != NULL) {
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "key", key);
        stk_json_open(out, "value", '{');
        stk_json_put_text(out, "stringValue", value);
        stk_json_close(out, '}');
        stk_json_close(out, '}');
    }
}

static void number_attribute(stk_buf *out, const char *key, double value)
{
    if (value >= 0) {
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "key", key);
        stk_json_open(out, "value", '{');
        stk_json_put_real(out, "doubleValue", value);
        stk_json_close(out, '}');
        stk_json_close(out, '}');
    }
}

static void whole_attribute(const observe_of *of, const char *key, int64_t value)
{
    if (value >= 0) {
        stk_json_open(of->out, NULL, '{');
        stk_json_put_text(of->out, "key", key);
        stk_json_open(of->out, "value", '{'); /* 64 bits are texts in this JSON */
        stk_json_put_text(of->out, "intValue",
                          stk_arena_printf(of->arena, "%lld", (long long)value));
        stk_json_close(of->out, '}');
        stk_json_close(of->out, '}');
    }
}

static void put_nanoseconds(const observe_of *of, const char *key, int64_t time_ms)
{
    stk_json_put_text(of->out, key, stk_arena_printf(of->arena, "%lld000000", (long long)time_ms));
}

static void put_span_status(stk_buf *out, bool is_good, const char *error)
{
    stk_json_open(out, "status", '{');
    stk_json_put_whole(out, "code", is_good ? STATUS_OK : STATUS_ERROR);
    if (!is_good) {
        stk_json_put_known_text(out, "message", error);
    }
    stk_json_close(out, '}');
}

static void put_resource(stk_buf *out)
{
    char host[256] = "";
    (void)gethostname(host, sizeof host - 1);
    stk_json_open(out, "resource", '{');
    stk_json_open(out, "attributes", '[');
    text_attribute(out, "service.name",
                   stk_text_or(stk_text_if_any(getenv("OTEL_SERVICE_NAME")), "stoker"));
    text_attribute(out, "service.version", STK_VERSION);
    text_attribute(out, "host.name", host);
    stk_json_close(out, ']');
    stk_json_close(out, '}');
}

/* The span of the run is another one after each resume: its parts don't overlap. */
static const char *run_span(const observe_of *of)
{
    return stk_observe_id(of, UINT32_MAX - 1, stk_view_get_run(of->view)->n_resumed + 1, SPAN_HEX);
}

static const char *task_span(const observe_of *of, uint32_t task, uint32_t attempt)
{
    return stk_observe_id(of, task, attempt, SPAN_HEX);
}

/* --- a step's attempt --- */

static void put_link(const observe_of *of, uint32_t task)
{
    const stk_view_task *from = stk_view_get_task(of->view, task);
    if (from->attempt > 0) { /* not one from the cache */
        stk_json_open(of->out, NULL, '{');
        stk_json_put_text(of->out, "traceId", stk_observe_id(of, UINT32_MAX, 0, TRACE_HEX));
        stk_json_put_text(of->out, "spanId", task_span(of, task, from->attempt));
        stk_json_close(of->out, '}');
    }
}

static void link_inputs(const observe_of *of, const stk_input *inputs, uint32_t n)
{
    for (uint32_t i = 0; i < n && i < MAX_LINKS; i++) {
        if (inputs[i].kind == STK_INPUT_OUTPUT) {
            put_link(of, inputs[i].step);
        }
        link_inputs(of, inputs[i].items, inputs[i].n_items);
    }
}

static void put_links(const observe_of *of, const stk_view_task *task)
{
    stk_json_open(of->out, "links", '[');
    for (uint32_t i = 0; i < task->n_parents && i < MAX_LINKS; i++) {
        put_link(of, task->parents[i]);
    }
    if (!stk_view_grows(of->view)) {
        link_inputs(of, task->step->inputs, task->step->n_inputs);
        for (uint32_t i = 0; i < task->step->n_after && i < MAX_LINKS; i++) {
            put_link(of, task->step->after[i]);
        }
    }
    stk_json_close(of->out, ']');
}

static void put_task_attributes(const observe_of *of, const stk_view_task *task,
                                const stk_view_details *d)
{
    stk_buf *out = of->out;
    stk_json_open(out, "attributes", '[');
    text_attribute(out, "stoker.run.id", stk_view_get_run(of->view)->id);
    text_attribute(out, "stoker.pipeline", stk_view_get_run(of->view)->pipeline);
    text_attribute(out, "stoker.step", task->name);
    text_attribute(out, "stoker.task", task->label);
    whole_attribute(of, "stoker.attempt", of->row->attempt);
    text_attribute(out, "stoker.status", stk_view_status(of->view, task, false));
    text_attribute(out, "error.type", d->error_class);
    number_attribute(out, "stoker.cpu_s", d->used.cpu_s);
    whole_attribute(of, "stoker.peak_memory_bytes", d->used.memory_bytes);
    number_attribute(out, "stoker.gpu_held_s", d->used.gpu_held_s);
    number_attribute(out, "stoker.gpu_busy_s", d->used.gpu_busy_s);
    number_attribute(out, "stoker.energy_j", d->used.energy_j);
    for (uint32_t i = 0; i < d->n_devices; i++) {
        text_attribute(out, stk_arena_printf(of->arena, "stoker.device.%u", i), d->devices[i].uuid);
    }
    stk_json_close(out, ']');
}

static void put_exception(const observe_of *of, const stk_view_details *d)
{
    stk_json_open(of->out, "events", '[');
    if (d->error_text != NULL) {
        stk_json_open(of->out, NULL, '{');
        put_nanoseconds(of, "timeUnixNano", of->row->time_ms);
        stk_json_put_text(of->out, "name", "exception");
        stk_json_open(of->out, "attributes", '[');
        text_attribute(of->out, "exception.type", d->error_class);
        text_attribute(of->out, "exception.message", d->error_text);
        text_attribute(of->out, "exception.stacktrace", d->traceback);
        stk_json_close(of->out, ']');
        stk_json_close(of->out, '}');
    }
    stk_json_close(of->out, ']');
}

static int put_task_span(const observe_of *of, stk_err *err)
{
    const stk_event_row *row = of->row;
    const stk_view_task *task = stk_view_get_task(of->view, row->task);
    stk_view_details d;
    STK_TRY(stk_view_get_details(of->view, row->task, of->arena, &d, err));
    stk_json_put_text(of->out, "spanId", task_span(of, row->task, row->attempt));
    stk_json_put_text(of->out, "parentSpanId", run_span(of));
    stk_json_put_text(of->out, "name", task->label);
    put_nanoseconds(of, "startTimeUnixNano", task->started_ms);
    put_nanoseconds(of, "endTimeUnixNano", row->time_ms);
    put_task_attributes(of, task, &d);
    put_exception(of, &d);
    put_links(of, task);
    put_span_status(of->out, row->kind == STK_EV_TASK_SUCCEEDED, d.error_text);
    return 0;
}

/* --- the run --- */

static void put_run_span(const observe_of *of, int64_t started_ms)
{
    const stk_view_run *run = stk_view_get_run(of->view);
    stk_buf *out = of->out;
    stk_json_put_text(out, "spanId", run_span(of));
    stk_json_put_text(out, "name", run->pipeline);
    put_nanoseconds(of, "startTimeUnixNano", started_ms);
    put_nanoseconds(of, "endTimeUnixNano", of->row->time_ms);
    stk_json_open(out, "attributes", '[');
    text_attribute(out, "stoker.run.id", run->id);
    text_attribute(out, "stoker.run.name", run->name);
    text_attribute(out, "stoker.pipeline", run->pipeline);
    text_attribute(out, "stoker.status", run->status);
    text_attribute(out, "stoker.parameters", run->parameters);
    whole_attribute(of, "stoker.resumed", run->n_resumed);
    whole_attribute(of, "stoker.steps.succeeded", run->n[STK_TASK_SUCCEEDED]);
    whole_attribute(of, "stoker.steps.cached", run->n[STK_TASK_CACHED]);
    whole_attribute(of, "stoker.steps.failed", run->n[STK_TASK_FAILED]);
    stk_json_close(out, ']');
    put_span_status(out, strcmp(run->status, "succeeded") == 0, run->error);
}

int stk_observe_span(const observe_of *of, stk_err *err)
{
    bool is_run = of->row->kind == STK_EV_RUN_ENDED;
    stk_buf *out = of->out;
    if (of->part > 0 || (!is_run && !stk_observe_ends(of))) {
        return 0;
    }
    stk_json_open(out, NULL, '{');
    stk_json_open(out, "resourceSpans", '[');
    stk_json_open(out, NULL, '{');
    put_resource(out);
    stk_json_open(out, "scopeSpans", '[');
    stk_json_open(out, NULL, '{');
    stk_json_open(out, "scope", '{');
    stk_json_put_text(out, "name", "stoker");
    stk_json_put_text(out, "version", STK_VERSION);
    stk_json_close(out, '}');
    stk_json_open(out, "spans", '[');
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "traceId", stk_observe_id(of, UINT32_MAX, 0, TRACE_HEX));
    stk_json_put_whole(out, "kind", 1); /* SPAN_KIND_INTERNAL */
    if (is_run) {
        put_run_span(of, of->begun_ms);
    } else {
        STK_TRY(put_task_span(of, err));
    }
    stk_json_close(out, '}');
    stk_json_close(out, ']');
    stk_json_close(out, '}');
    stk_json_close(out, ']');
    stk_json_close(out, '}');
    stk_json_close(out, ']');
    stk_json_close(out, '}');
    return 0;
}
