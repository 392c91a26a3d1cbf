/* The end of an attempt: its outcome and its result.json → outputs in the store → the events that
 * follow. */
#include "run/exec/core/exec_end.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "run/exec/core/exec_cache.h"
#include "run/exec/core/exec_devices.h"
#include "run/exec/core/exec_event.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/core/exec_start.h"
#include "run/exec/core/exec_state.h"
#include "run/exec/core/exec_sum.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/grown/exec_grown.h"
#include "run/exec/grown/exec_said.h"
#include "run/exec/place/exec_place.h"
#include "sys/file.h"

/* What is told of a failure: people read it, and a step may say anything. */
enum { TEXT_BYTES = 16 << 10, TRACEBACK_BYTES = 256 << 10 };

/* --- failure --- */

static int remember_error(stk_exec *x, uint32_t task, const char *text, stk_err *err)
{
    if (x->error == NULL) {
        const char *who = stk_exec_who(x, task, x->scratch);
        x->error = who == NULL ? NULL : stk_arena_printf(x->arena, "%s failed: %s", who, text);
    }
    return stk_err_if_null(x->error, err);
}

static bool hook_was_run(const stk_result *result, const char *name)
{
    for (uint32_t i = 0; result != NULL && i < result->n_hooks_run; i++) {
        if (strcmp(result->hooks_run[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* Hooks that the task did not run itself: commands always, Python ones when the process died. Their
 * order is kept: the on_end hook follows when the first has ended (hook_ended). */
static int run_hooks(stk_exec *x, uint32_t task, const stk_result *result, const char *error,
                     stk_err *err)
{
    stk_hook_when first = error == NULL ? STK_HOOK_SUCCESS : STK_HOOK_FAILURE;
    exec_task *t = &x->tasks[task];
    bool any = false;
    int rc = 0;
    t->end_by_task = hook_was_run(result, "on_end");
    t->hook_error = stk_arena_dup(x->arena, error);
    if (!hook_was_run(result, error == NULL ? "on_success" : "on_failure")) {
        rc = stk_exec_launch_hook(x, task, first, &any, err);
    }
    if (rc == 0 && !any && !t->end_by_task) {
        rc = stk_exec_launch_hook(x, task, STK_HOOK_END, &any, err);
    }
    return rc;
}

/* What is kept of a long text; NULL for NULL, and when out of memory. */
static const char *clip(stk_exec *x, const char *text, size_t max)
{
    size_t n = text == NULL ? 0 : strnlen(text, max + 1);
    if (n <= max) {
        return text;
    }
    for (n = max; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80; n--) {
    }
    return stk_arena_printf(x->scratch, "%.*s … (%zu bytes in all)", (int)n, text, strlen(text));
}

static int emit_retrying(stk_exec *x, uint32_t task, const stk_sched_retrying *next, stk_err *err)
{
    long long wall = stk_clock_wall_ms(x->config.clock) + next->delay_ms;
    STK_BUF_AUTO buf = STK_BUF_INIT(1 << 12);
    stk_json_open(&buf, NULL, '{');
    stk_json_put_whole(&buf, "at_ms", wall);
    stk_json_put_whole(&buf, "delay_ms", next->delay_ms);
    if (next->grows == STK_GROWS_MEMORY) {
        stk_json_put_text(&buf, "grows", "memory");
        stk_json_put_whole(&buf, "bytes", next->amount);
    } else if (next->grows == STK_GROWS_SHARE) {
        stk_json_put_text(&buf, "grows", "gpu_memory");
        stk_json_put_whole(&buf, "bytes", (int64_t)next->amount << 20);
    }
    if (next->is_fallback) {
        stk_json_put_bool(&buf, "fallback", true);
    }
    stk_json_close(&buf, '}');
    const char *data = stk_exec_event_data(x, &buf);
    stk_sched_event event = {.kind = STK_EV_TASK_RETRYING,
                             .task = task,
                             .at_ms = stk_clock_mono_ms(x->config.clock) + next->delay_ms,
                             .grows = next->grows,
                             .is_fallback = next->is_fallback};
    STK_TRY(stk_err_if_null(data, err));
    return stk_exec_emit(x, &event, data, err);
}

/* The payload of TASK_FAILED, in x->tick. */
static const char *failure_json(stk_exec *x, const exec_failure *failure, bool again)
{
    STK_BUF_AUTO buf =
        STK_BUF_INIT(STK_LIMIT_RESULT_BYTES * 3); /* digests of what it left on top */
    stk_json_open(&buf, NULL, '{');
    stk_json_put_text(&buf, "class", stk_failure_word(failure->class));
    stk_json_put_bool(&buf, "final", !again);
    stk_json_put_text(&buf, "text", failure->text);
    if (failure->saved) {
        stk_json_put_bool(&buf, "saved", true);
    }
    if (failure->gang != NULL && failure->gang->first >= 0) {
        stk_json_put_whole(&buf, "rank", failure->gang->first);
    }
    if (failure->gang != NULL && failure->gang->noticed_us >= 0) {
        stk_json_put_whole(&buf, "noticed_us", failure->gang->noticed_us);
    }
    if (failure->used != NULL) {
        stk_json_put_raw(&buf, "used", failure->used);
    }
    if (failure->got != NULL) {
        stk_json_put_raw(&buf, "granted", failure->got);
    }
    if (failure->traceback != NULL) {
        stk_json_put_text(&buf, "traceback", failure->traceback);
    }
    if (failure->where != NULL) {
        stk_json_put_text(&buf, "where", failure->where);
    }
    if (failure->ending != NULL && x->graph.grow != NULL && !again) {
        stk_exec_said_left(x, failure->ending, &buf);
    }
    stk_json_close(&buf, '}');
    return stk_exec_event_data(x, &buf);
}

/* Before it is cut: half a value is one that nobody would find. */
static void hide_all(stk_exec *x, uint32_t task, exec_failure *f)
{
    const stk_settings *s = stk_exec_step(x, task)->settings;
    f->text = stk_exec_hide(s, f->text, x->scratch);
    f->type = stk_exec_hide(s, f->type, x->scratch);
    f->message = stk_exec_hide(s, f->message, x->scratch);
    f->traceback = stk_exec_hide(s, f->traceback, x->scratch);
    f->where = stk_exec_hide(s, f->where, x->scratch);
}

int stk_exec_fail(stk_exec *x, uint32_t task, const exec_failure *long_failure, stk_err *err)
{
    exec_failure clipped = *long_failure;
    const exec_failure *failure = &clipped;
    hide_all(x, task, &clipped);
    clipped.text = clip(x, clipped.text, TEXT_BYTES);
    clipped.traceback = clip(x, clipped.traceback, TRACEBACK_BYTES);
    clipped.where = clip(x, clipped.where, TEXT_BYTES);
    STK_TRY(stk_err_if_null(clipped.text, err));
    stk_sched_retrying next;
    bool again = failure->is_hopeless
                     ? stk_sched_last_resort(x->sched, task, &next)
                     : stk_sched_retry(x->sched, task, failure->class, failure->saved, &next);
    clipped.text = stk_exec_advise(x, task, failure->class, clipped.text, &next);
    stk_exec_release(x, task);
    STK_TRY(stk_err_if_null(clipped.text, err));
    const char *data = failure_json(x, failure, again);
    STK_TRY(stk_err_if_null(data, err));
    stk_sched_event failed = {.kind = STK_EV_TASK_FAILED,
                              .task = task,
                              .failure = failure->class,
                              .is_final = !again,
                              .saved = failure->saved};
    STK_TRY(stk_exec_emit(x, &failed, data, err));
    if (next.is_fallback) { /* of a failure of the fallback itself: that of the step */
        STK_TRY(stk_exec_keep_failure(x, task, failure, err));
    }
    if (!again) {
        STK_TRY(remember_error(x, task, failure->text, err));
        return run_hooks(x, task, failure->result, failure->text, err);
    }
    return emit_retrying(x, task, &next, err);
}

/* The worker's own account of a failure → the sentence. */
static const char *error_text(const stk_exec *x, uint32_t task, const stk_result_error *e,
                              stk_arena *arena)
{
    const char *image = stk_exec_inside_image(x, task);
    if (e->class == STK_FAIL_IMPORT && e->module != NULL && image != NULL) {
        return stk_arena_printf(arena,
                                "module '%s' is neither in image '%s' nor among the project's "
                                "files; name it in docker's requirements, or take another image",
                                e->module, image);
    }
    if (e->class == STK_FAIL_IMPORT && e->module != NULL) {
        return stk_arena_printf(arena,
                                "module '%s' is not installed in this Python; install it (pip "
                                "install %s) and run again",
                                e->module, e->module);
    }
    const char *at = stk_text_or(e->where, "");
    const char *open = e->where != NULL ? " (" : "";
    const char *close = e->where != NULL ? ")" : "";
    if (e->type != NULL && (e->class == STK_FAIL_EXCEPTION || e->class == STK_FAIL_IMPORT)) {
        bool silent = strcmp(e->type, e->message) == 0; /* raised without a word */
        return stk_arena_printf(arena, "%s%s%s%s%s%s", e->type, silent ? "" : ": ",
                                silent ? "" : e->message, open, at, close);
    }
    return stk_arena_printf(arena, "%s%s%s%s", e->message, open, at, close);
}

/* What a task says of itself counts only where it ended by itself. */
static bool was_ended(const stk_outcome *o)
{
    static const stk_failure ended[] = {STK_FAIL_HOST_OOM, STK_FAIL_TIMEOUT, STK_FAIL_GPU_SHARE,
                                        STK_FAIL_OTHER_DEVICE};
    for (size_t i = 0; i < sizeof ended / sizeof ended[0]; i++) {
        if (o->failure == ended[i]) {
            return !o->ok;
        }
    }
    return !o->ok && o->signal != 0 && o->failure != STK_FAIL_LOST;
}

/* An exception's words may tell of the device, or of the host, what its type doesn't; else what was
 * seen of them. */
static stk_failure error_class(const stk_result_error *e, const stk_outcome *o)
{
    bool is_end = e->class == STK_FAIL_EXIT || e->class == STK_FAIL_SIGNAL; /* of a gang */
    if (e->class != STK_FAIL_EXCEPTION && !is_end) {
        return e->class;
    }
    stk_failure said = stk_runner_symptom(e->message, o->n_devices > 0, NULL, NULL);
    bool seen = !o->ok && o->failure != STK_FAIL_EXIT && o->failure != STK_FAIL_LOST &&
                o->failure != STK_FAIL_START;
    if (said != STK_FAIL_NONE) {
        return said;
    }
    return seen ? o->failure : e->class;
}

static int fail_ending(stk_exec *x, const exec_ending *e, stk_err *err)
{
    const stk_outcome *o = e->outcome;
    exec_failure failure = {.class = o->failure,
                            .text = o->text,
                            .is_hopeless = o->is_hopeless,
                            .used = e->used,
                            .got = e->got,
                            .ending = e,
                            .result = e->has_result ? &e->result : NULL};
    if (e->has_result && !e->result.ok && !was_ended(o)) {
        const stk_result_error *error = &e->result.error;
        failure.class = error_class(error, o);
        failure.text = error_text(x, e->task, error, x->scratch);
        failure.type = error->type;
        failure.message = error->message;
        failure.traceback = error->traceback;
        failure.where = error->where;
        if (failure.text != NULL) {
            failure.text = stk_arena_printf(x->scratch, "%s%s", failure.text,
                                            stk_runner_way_out(failure.class));
        }
    } else if (o->ok) {
        failure.class = STK_FAIL_EXIT;
        failure.text =
            "it ended by itself with exit status 0, without a result: os._exit (or exec of another "
            "program) ends a step before what it made is stored; return from the step instead";
    }
    exec_gang gang;
    if (stk_exec_gang(x, e->task).ranks != 0 && stk_exec_gang_read(x, e->dir, &gang)) {
        failure.gang = &gang;
        if (failure.text != NULL && failure.class == STK_FAIL_HOST_OOM) {
            failure.text = stk_exec_gang_oom(x, &gang, failure.text);
        }
    }
    STK_TRY(stk_err_if_null(failure.text, err));
    int rc = stk_exec_blame(x, e->task, &failure, err);
    stk_exec_preempted(x, e->task, o, &failure);
    STK_TRY(rc);
    return stk_exec_fail(x, e->task, &failure, err);
}

/* What the step left can't be used. */
static int fail_output(stk_exec *x, const exec_ending *e, stk_failure class, const stk_err *why,
                       stk_err *err)
{
    char text[1200];
    exec_failure failure = {.class = class,
                            .text = stk_err_format(why, text, (int)sizeof text),
                            .used = e->used,
                            .got = e->got,
                            .result = e->has_result ? &e->result : NULL};
    return stk_exec_fail(x, e->task, &failure, err);
}

/* --- outputs --- */

/* All outputs, declared ones first, then what the task saved besides (save_artifact). `buf` gets
 * {"name": ref, …}. */
static int publish_all(stk_exec *x, const exec_ending *e, exec_ref **ret_refs, stk_buf *buf,
                       stk_err *err)
{
    const stk_step *step = e->step;
    exec_ref *refs = stk_arena_array(x->arena, step->n_outputs + 1, sizeof *refs);
    STK_TRY(stk_err_if_null(refs, err));
    stk_json_open(buf, NULL, '{');
    for (uint32_t i = 0; i < step->n_outputs; i++) {
        const stk_result_output *r = stk_exec_find_result(e, step->outputs[i].name);
        if (r == NULL && step->python != NULL) {
            return stk_err_set(err, STK_E_NOT_FOUND, "output '%s' is not in the task's result",
                               step->outputs[i].name);
        }
        STK_TRY(stk_exec_publish(x, e, r, &step->outputs[i], &refs[i], err));
        stk_json_put_raw(buf, step->outputs[i].name, refs[i].json);
    }
    for (uint32_t i = 0; e->has_result && i < e->result.n_outputs; i++) {
        const stk_result_output *r = &e->result.outputs[i];
        exec_ref extra;
        if (!stk_exec_declares(step, r->name)) {
            STK_TRY(stk_exec_publish(x, e, r, NULL, &extra, err));
            stk_json_put_raw(buf, r->name, extra.json);
        }
    }
    stk_json_close(buf, '}');
    *ret_refs = refs;
    return stk_buf_check(buf, err);
}

/* --- success --- */

/* What came of devices that aren't there is not for runs that have some. */
static bool is_for_cache(const stk_exec *x, const exec_ending *e)
{
    const exec_task *t = &x->tasks[e->task];
    return t->key != NULL && t->parts != NULL &&
           !(e->outcome->n_devices > 0 && stk_accel_is_simulated(x->config.accel));
}

/* `more`: what else it said, of a graph that grows, as members with a comma before; or NULL. */
static int push_cache(stk_exec *x, const exec_ending *e, const char *outputs, const char *more,
                      stk_err *err)
{
    exec_task *t = &x->tasks[e->task];
    if (!is_for_cache(x, e)) {
        return 0;
    }
    const char *seen = e->has_result ? e->result.seen_json : NULL;
    if (seen != NULL && stk_exec_inside_image(x, e->task) != NULL) {
        seen = stk_exec_inside_seen(x, e->task, seen, x->scratch);
    }
    stk_cache_row row = {
        .key = t->key,
        .pipeline = stk_spec_name(x->spec),
        .step = e->step->name,
        .parts = t->parts,
        .run = x->config.run,
        .task = e->task,
        .created_ms = stk_clock_wall_ms(x->config.clock),
        .outputs = more == NULL ? stk_arena_dup(x->arena, outputs)
                                : stk_arena_printf(x->arena, "{\"outputs\":%s%s}", outputs, more),
        .metadata = stk_arena_dup(x->arena, e->has_result ? e->result.metadata : NULL),
        .seen = stk_arena_dup(x->arena, seen)};
    STK_TRY(stk_err_if_null(row.outputs, err));
    return stk_exec_push_cache(x, &row, err);
}

/* `more`: further members, each with a comma before it. */
static const char *success_json(stk_exec *x, const exec_ending *e, const char *outputs,
                                const char *more)
{
    STK_BUF_AUTO buf = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES * 4);
    stk_json_open(&buf, NULL, '{');
    stk_json_put_raw(&buf, "outputs", outputs);
    stk_buf_text(&buf, more);
    if (x->tasks[e->task].inputs != NULL) {
        stk_json_put_raw(&buf, "inputs", x->tasks[e->task].inputs);
    }
    if (is_for_cache(x, e)) { /* whoever takes the run over finds the entry by it */
        stk_json_put_text(&buf, "key", x->tasks[e->task].key);
    }
    stk_json_put_raw(&buf, "used", e->used);
    if (e->got != NULL) {
        stk_json_put_raw(&buf, "granted", e->got);
    }
    if (e->outcome->n_devices > 0) { /* later runs look for what this step needed */
        stk_json_put_text(&buf, "step", e->step->name);
    }
    if (e->has_result && e->result.metadata != NULL) {
        stk_json_put_raw(&buf, "metadata", e->result.metadata);
    }
    if (e->has_result && e->result.n_warnings > 0) {
        stk_json_open(&buf, "warnings", '[');
        for (uint32_t i = 0; i < e->result.n_warnings; i++) {
            const char *text = stk_exec_hide(e->step->settings, e->result.warnings[i], x->scratch);
            stk_json_put_text(&buf, NULL, stk_text_or(text, ""));
        }
        stk_json_close(&buf, ']');
    }
    stk_json_close(&buf, '}');
    return stk_exec_event_data(x, &buf);
}

static int note_remark(stk_exec *x, const exec_ending *e, stk_err *err)
{
    const char *text = stk_arena_printf(x->scratch, "step '%s': %s", e->step->name, e->remark);
    return stk_exec_emit_note(x, text, err);
}

static int succeed(stk_exec *x, const exec_ending *e, stk_err *err)
{
    STK_BUF_AUTO outputs = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES * 2); /* digests come on top */
    STK_BUF_AUTO more = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES * 2);
    stk_err why = {0};
    exec_ref *refs = NULL;
    exec_said said;
    stk_failure class = STK_FAIL_OUTPUT;
    uint32_t n_refs = x->pending.n_refs;
    int rc = x->graph.grow != NULL ? stk_exec_say(x, e, &said, &class, &why)
                                   : publish_all(x, e, &refs, &outputs, &why);
    if (rc == STK_E_FULL || rc == STK_E_NOMEM || (rc == STK_E_SYS && why.sys == EROFS)) {
        *err = why; /* the store's trouble, not the step's: stop here, the run can be resumed */
        return rc;
    }
    if (rc < 0) {
        x->pending.n_refs = n_refs; /* a failed attempt has no outputs, nor has it named any */
        return fail_output(x, e, class, &why, err);
    }
    if (x->graph.grow != NULL) {
        stk_exec_said_json(x, &said, &outputs, &more);
    }
    x->tasks[e->task].outputs = refs;
    STK_TRY(stk_buf_check(&outputs, err));
    STK_TRY(stk_buf_check(&more, err));
    STK_TRY(push_cache(x, e, outputs.data, more.data, err));
    const char *data = success_json(x, e, outputs.data, stk_text_or(more.data, ""));
    STK_TRY(stk_err_if_null(data, err));
    stk_exec_release(x, e->task);
    x->is_held = x->graph.grow != NULL; /* what follows belongs to it */
    rc = stk_exec_emit(x, &(stk_sched_event){.kind = STK_EV_TASK_SUCCEEDED, .task = e->task}, data,
                       err);
    if (rc >= 0 && x->graph.grow != NULL) {
        rc = stk_exec_follow(x, e->task, &said, err);
    }
    x->is_held = false;
    STK_TRY(rc);
    if (e->remark != NULL) {
        STK_TRY(note_remark(x, e, err));
    }
    return run_hooks(x, e->task, e->has_result ? &e->result : NULL, NULL, err);
}

/* --- the end --- */

int stk_exec_read_result(stk_exec *x, exec_ending *e, stk_err *why)
{
    const char *path = stk_arena_printf(x->scratch, "%s/result.json", e->dir);
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    if (path == NULL) {
        return stk_err_nomem(why);
    }
    if (e->step->python == NULL && !stk_file_exists(path)) {
        return 0; /* most commands write none */
    }
    int rc = stk_file_read_untrusted(path, STK_LIMIT_RESULT_BYTES, &text, &len, why);
    if (rc == STK_E_NOT_FOUND) {
        return 0;
    }
    STK_TRY(rc);
    STK_TRY(stk_result_parse(text, len, path, x->scratch, &e->result, why));
    e->has_result = true;
    return 0;
}

/* All that was to be summed is. `changed`: what an input that isn't as it was is told with, or
 * NULL.
 */
static int conclude(stk_exec *x, const exec_ending *e, bool ok, const stk_err *changed,
                    stk_err *err)
{
    stk_exec_inputs_done(x, e->task, e->dir, ok);
    if (changed != NULL && ok) {
        return fail_output(x, e, STK_FAIL_LOAD, changed, err);
    }
    if (changed != NULL) { /* its own failure counts */
        const char *note =
            stk_arena_printf(x->scratch, "step '%s': %s", e->step->name, changed->text);
        STK_TRY(stk_exec_emit_note(x, note, err));
    }
    if (ok) {
        return succeed(x, e, err);
    }
    if (e->outcome->failure == STK_FAIL_CANCELLED) {
        stk_exec_release(x, e->task);
        return stk_exec_emit_task(x, STK_EV_TASK_CANCELLED, e->task, err);
    }
    return fail_ending(x, e, err);
}

int stk_exec_settle(stk_exec *x, uint32_t task, const stk_outcome *outcome, stk_err *err)
{
    exec_ending e = {.task = task, .step = stk_exec_step(x, task), .outcome = outcome};
    e.dir = stk_exec_dir(x, task, stk_exec_attempt(x, task), x->scratch);
    STK_TRY(stk_err_if_null(e.dir, err));
    stk_err why = {0};
    stk_exec_hide_in_cards(e.step->settings, e.dir, x->scratch);
    int rc = stk_exec_read_result(x, &e, &why);
    e.got = stk_exec_away_got(x, task, e.dir);
    e.used = stk_exec_used_json(outcome, e.has_result ? &e.result : NULL, x->scratch, &e.remark);
    if (rc == STK_E_NOMEM) {
        *err = why;
        return rc;
    }
    STK_TRY(stk_err_if_null(e.used, err));
    if (rc < 0 && outcome->ok) {
        return fail_output(x, &e, STK_FAIL_OUTPUT, &why, err);
    }
    /* A Python task's own word counts first: a process that dies while it ends has still done its
     * work. */
    bool ok = e.step->python != NULL ? e.has_result && e.result.ok
                                     : outcome->ok && (!e.has_result || e.result.ok);
    /* what a failed one left is kept, too, where the graph grows */
    rc = stk_exec_inputs_look(x, task, &why);
    bool is_input_changed = rc < 0;
    if (is_input_changed) {
        rc = 0;
    }
    rc = ok || (x->graph.grow != NULL && e.has_result) ? stk_exec_publish_ask(x, &e, err) : 0;
    if (stk_exec_sum_aside(x, task, EXEC_ASIDE_END, outcome, &rc, err) || rc < 0) {
        return rc;
    }
    rc = conclude(x, &e, ok, is_input_changed ? &why : NULL, err);
    (void)stk_exec_sum_drop(x, task, &(exec_aside_kind){0}); /* its sums were needed until now */
    return rc;
}

int stk_exec_catch_up(stk_exec *x, uint32_t task, stk_err *err)
{
    exec_ending e = {.task = task, .step = stk_exec_step(x, task)};
    stk_err why = {0};
    x->tasks[task].owes_hooks = false;
    e.dir = stk_exec_dir(x, task, stk_exec_attempt(x, task), x->scratch);
    if (e.dir == NULL || stk_exec_read_result(x, &e, &why) == STK_E_NOMEM) {
        return stk_err_nomem(err);
    }
    return run_hooks(x, task, e.has_result ? &e.result : NULL, NULL, err);
}

/* What comes after a hook: after on_start the task itself, after its outcome's hook on_end. */
static int after_hook(stk_exec *x, uint32_t task, stk_hook_when when, stk_err *err)
{
    bool any;
    exec_task *t = &x->tasks[task];
    if (when == STK_HOOK_START) {
        if (!t->stopped) {
            return stk_exec_push_launch(x, task, err);
        }
        stk_exec_release(x, task);
        return stk_exec_emit_task(x, STK_EV_TASK_CANCELLED, task, err);
    }
    if (when == STK_HOOK_END || t->end_by_task) {
        return 0;
    }
    return stk_exec_launch_hook(x, task, STK_HOOK_END, &any, err);
}

static int hook_ended(stk_exec *x, const stk_report *report, stk_err *err)
{
    uint32_t task = report->id & ~EXEC_HOOK_BIT;
    exec_task *t = task < x->n_tasks ? &x->tasks[task] : NULL;
    if (t == NULL || t->hook < 0) {
        return 0;
    }
    stk_hook_when when = (stk_hook_when)t->hook;
    t->hook = -1;
    x->n_hooks--;
    if (when != STK_HOOK_START && report->outcome.failure != STK_FAIL_CANCELLED) {
        const char *mark = stk_exec_hook_mark(x, task, when);
        STK_TRY(stk_err_if_null(mark, err));
        STK_TRY(stk_file_write(mark, "", 0, 0644, err));
    }
    if (!report->outcome.ok && !t->stopped) {
        const char *text = stk_arena_printf(x->scratch, "a hook of step '%s' failed: %s",
                                            stk_exec_step(x, task)->name, report->outcome.text);
        text = stk_exec_hide(stk_exec_step(x, task)->settings, text, x->scratch);
        STK_TRY(stk_exec_emit_note(x, text, err));
    }
    return after_hook(x, task, when, err);
}

int stk_exec_ended(stk_exec *x, const stk_report *report, stk_err *err)
{
    if ((report->id & EXEC_HOOK_BIT) != 0) {
        return hook_ended(x, report, err);
    }
    if (report->id >= x->n_tasks || stk_sched_state(x->sched, report->id) != STK_TASK_RUNNING ||
        report->attempt != stk_exec_attempt(x, report->id)) {
        return 0; /* an attempt that was given up already */
    }
    if (x->config.cancelled && report->outcome.failure == STK_FAIL_START) { /* it may run on */
        stk_err_set(err, STK_E_ENV, "%s could not be ended: %s",
                    stk_exec_who(x, report->id, x->scratch), report->outcome.text);
        stk_err_hint(err, "'stoker cancel %s' tries again", x->config.run);
        return STK_E_ENV;
    }
    return stk_exec_settle(x, report->id, &report->outcome, err);
}
