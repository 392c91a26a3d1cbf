/* The end of an attempt: reads its outcome and result.json, moves its outputs to the store, and
 * emits the events. */
#include "run/exec/core/exec_end.h"

#include <errno.h>
#include <unistd.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "run/exec/core/exec_event.h"
#include "run/exec/core/exec_hook.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/core/exec_reads.h"
#include "run/exec/core/exec_sum.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/grown/exec_made.h"
#include "run/exec/place/exec_place.h"
#include "sys/file.h"

/* --- success --- */

/* False for results of simulated devices, which aren't for runs with real ones. */
static bool is_for_cache(const stk_exec *x, const exec_ending *e)
{
    const exec_task *t = &x->tasks[e->task];
    return t->key != NULL && t->parts != NULL &&
           !(e->outcome->n_devices > 0 && stk_accel_is_simulated(x->config.accel));
}

/* Adds the cache entry, unless tracking is strict and some reads can't be seen. */
static int push_cache(stk_exec *x, const exec_ending *e, const exec_made *made, stk_err *err)
{
    STK_BUF_AUTO outputs = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES * 4);
    exec_task *t = &x->tasks[e->task];
    const char *seen = e->has_result ? e->result.seen_json : NULL;
    if (seen != NULL && stk_exec_image_of(x, e->task) != NULL) {
        seen = stk_exec_seen_of_project(x, e->task, seen, x->scratch);
    }
    const char *unseen = NULL;
    STK_TRY(stk_exec_reads_collect(x, e, seen, &seen, &unseen, err));
    if (unseen != NULL && e->step->settings->cache.track == STK_TRACK_STRICT) {
        const char *note =
            stk_arena_printf(x->scratch, "%s: its result isn't cached, because Stoker can't see %s",
                             stk_exec_who(x, e->task, x->scratch), unseen);
        return stk_exec_emit_note(x, note, err);
    }
    if (x->graph.grow != NULL) {
        stk_json_open(&outputs, NULL, '{');
        stk_exec_put_made(x, made, &outputs);
        stk_json_close(&outputs, '}');
    } else {
        stk_exec_put_outputs(&outputs, NULL, &made->parts[0]);
    }
    stk_cache_row row = {.key = t->key,
                         .pipeline = stk_spec_name(x->spec),
                         .step = e->step->name,
                         .parts = t->parts,
                         .run = x->config.run,
                         .task = e->task,
                         .created_ms = stk_clock_wall_ms(x->config.clock),
                         .outputs = stk_buf_keep(&outputs, x->arena),
                         .metadata =
                             stk_arena_dup(x->arena, e->has_result ? e->result.metadata : NULL),
                         .seen = seen};
    STK_TRY(stk_err_if_null(row.outputs, err));
    return stk_exec_push_cache(x, &row, err);
}

static void put_warnings(stk_exec *x, const exec_ending *e, stk_buf *buf)
{
    stk_json_open(buf, "warnings", '[');
    for (uint32_t i = 0; i < e->result.n_warnings; i++) {
        const char *text = stk_exec_hide(e->step->settings, e->result.warnings[i], x->scratch);
        stk_json_put_text(buf, NULL, stk_text_or(text, ""));
    }
    stk_json_close(buf, ']');
}

/* Writes the payload of TASK_SUCCEEDED. */
static void put_success(stk_exec *x, const exec_ending *e, const exec_made *made, stk_buf *buf)
{
    const exec_task *t = &x->tasks[e->task];
    const char *inputs = t->inputs;
    if (inputs == NULL && e->has_result) {
        inputs = e->result.inputs;
    }
    stk_json_open(buf, NULL, '{');
    stk_exec_put_made(x, made, buf);
    stk_json_put_known_raw(buf, "inputs", inputs);
    if (is_for_cache(x, e)) { /* an engine that takes over the run finds the entry by it */
        stk_json_put_text(buf, "key", t->key);
    }
    stk_json_put_raw(buf, "used", e->used);
    stk_json_put_known_raw(buf, "granted", e->got);
    if (e->outcome->n_devices > 0) { /* later runs read this step's peak */
        stk_json_put_text(buf, "step", e->step->name);
    }
    if (e->has_result && e->result.metadata != NULL) {
        stk_json_put_raw(buf, "metadata", e->result.metadata);
    }
    if (e->has_result && e->result.n_warnings > 0) {
        put_warnings(x, e, buf);
    }
    stk_json_close(buf, '}');
}

/* Keeps the outputs for the steps after this one, by declared output. */
static int keep_outputs(stk_exec *x, const exec_ending *e, const exec_made *made, stk_err *err)
{
    uint32_t n = e->step->n_outputs;
    exec_ref *refs = stk_arena_array(x->arena, (size_t)n + 1, sizeof *refs);
    STK_TRY(stk_err_if_null(refs, err));
    for (uint32_t i = 0; i < n; i++) {
        refs[i] = made->parts[0].artifacts[i]->ref;
    }
    x->tasks[e->task].outputs = refs;
    return 0;
}

/* Emits the success and its followers as one transaction. */
static int emit_success(stk_exec *x, const exec_ending *e, const exec_made *made,
                        const stk_buf *data, stk_err *err)
{
    if (x->graph.grow == NULL) {
        return stk_exec_emit_task(x, STK_EV_TASK_SUCCEEDED, e->task, data, err);
    }
    x->is_held = true;
    int rc = stk_exec_emit_task(x, STK_EV_TASK_SUCCEEDED, e->task, data, err);
    if (rc >= 0) {
        rc = stk_exec_follow(x, e->task, made, err);
    }
    x->is_held = false;
    return rc;
}

static int succeed(stk_exec *x, const exec_ending *e, stk_err *err)
{
    STK_BUF_AUTO data = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES * 6); /* digests come on top */
    stk_err why = {0};
    exec_made made;
    stk_failure class = STK_FAIL_OUTPUT;
    uint32_t n_refs = x->pending.n_refs;
    int rc = stk_exec_make(x, e, &made, &class, &why);
    if (rc == STK_E_FULL || rc == STK_E_NOMEM || (rc == STK_E_SYS && why.sys == EROFS)) {
        *err = why; /* an error of the store, not of the step: stop, the run can be resumed */
        return rc;
    }
    if (rc < 0) {
        x->pending.n_refs = n_refs; /* a failed attempt has neither outputs nor named artifacts */
        return stk_exec_fail_output(x, e, class, &why, err);
    }
    if (x->graph.grow == NULL) {
        STK_TRY(keep_outputs(x, e, &made, err));
    }
    if (is_for_cache(x, e)) {
        STK_TRY(push_cache(x, e, &made, err));
    }
    put_success(x, e, &made, &data);
    STK_TRY(stk_buf_check(&data, err));
    stk_exec_release(x, e->task);
    STK_TRY(emit_success(x, e, &made, &data, err));
    if (e->remark != NULL) {
        STK_TRY(stk_exec_emit_note(
            x,
            stk_arena_printf(x->scratch, "%s: %s", stk_exec_who(x, e->task, x->scratch), e->remark),
            err));
    }
    return stk_exec_run_hooks(x, e->task, e->has_result ? &e->result : NULL, NULL, err);
}

/* --- the end --- */

int stk_exec_read_result(stk_exec *x, exec_ending *e, stk_err *why)
{
    const char *path = stk_arena_printf(x->scratch, "%s/result.json", e->dir);
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    STK_TRY(stk_err_if_null(path, why));
    if (e->step->python == NULL && !stk_file_exists(path)) {
        return 0; /* most commands write no result.json */
    }
    int rc = stk_file_read_untrusted(path, STK_LIMIT_RESULT_BYTES, &text, &len, why);
    if (rc < 0) {
        return stk_err_but(rc, STK_E_NOT_FOUND);
    }
    STK_TRY(stk_result_parse(text, len, path, x->scratch, &e->result, why));
    e->has_result = true;
    return 0;
}

int stk_exec_read_rank(stk_exec *x, const exec_ending *whole, uint32_t rank, exec_ending *ret,
                       stk_err *err)
{
    *ret = *whole;
    ret->has_result = false;
    ret->dir = stk_arena_printf(x->scratch, "%s/rank-%u", whole->dir, rank);
    STK_TRY(stk_err_if_null(ret->dir, err));
    return stk_exec_read_result(x, ret, err);
}

/* Concludes the attempt after all files are hashed. `changed`: the error of a changed input, or
 * NULL. */
static int conclude(stk_exec *x, const exec_ending *e, bool ok, const stk_err *changed,
                    stk_err *err)
{
    stk_exec_inputs_done(x, e->task, e->dir, ok);
    if (changed != NULL && ok) {
        return stk_exec_fail_output(x, e, STK_FAIL_LOAD, changed, err);
    }
    if (changed != NULL) { /* its own failure has precedence */
        const char *note =
            stk_arena_printf(x->scratch, "step '%s': %s", e->step->name, changed->text);
        STK_TRY(stk_exec_emit_note(x, note, err));
    }
    if (ok) {
        return succeed(x, e, err);
    }
    if (e->outcome->failure == STK_FAIL_CANCELLED) {
        stk_exec_release(x, e->task);
        return stk_exec_emit_task(x, STK_EV_TASK_CANCELLED, e->task, NULL, err);
    }
    return stk_exec_fail_ending(x, e, err);
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
        return stk_exec_fail_output(x, &e, STK_FAIL_OUTPUT, &why, err);
    }
    /* A Python task's own report has precedence: a process that dies while it exits has still done
     * its work. */
    bool ok = e.has_result && e.result.ok;
    if (e.step->python == NULL) {
        ok = outcome->ok && (ok || !e.has_result);
    }
    /* a graph that grows keeps the outputs of a failed attempt, too */
    rc = stk_exec_inputs_look(x, task, &why);
    bool is_input_changed = rc < 0;
    rc = 0;
    if (ok || (x->graph.grow != NULL && e.has_result)) {
        rc = stk_exec_publish_ask(x, &e, err);
    }
    if (stk_exec_sum_aside(x, task, EXEC_ASIDE_END, outcome, &rc, err) || rc < 0) {
        return rc;
    }
    rc = conclude(x, &e, ok, is_input_changed ? &why : NULL, err);
    (void)stk_exec_sum_drop(x, task, &(exec_aside_kind){0}); /* its digests were needed until now */
    return rc;
}

int stk_exec_ended(stk_exec *x, const stk_report *report, stk_err *err)
{
    if ((report->id & EXEC_HOOK_BIT) != 0) {
        return stk_exec_hook_ended(x, report, err);
    }
    if (report->id >= x->n_tasks || stk_sched_state(x->sched, report->id) != STK_TASK_RUNNING ||
        report->attempt != stk_exec_attempt(x, report->id)) {
        return 0; /* an attempt that was already given up */
    }
    if (x->config.cancelled && report->outcome.failure == STK_FAIL_START) { /* it may run on */
        stk_err_set(err, STK_E_ENV, "%s could not be ended: %s",
                    stk_exec_who(x, report->id, x->scratch), report->outcome.text);
        stk_err_hint(err, "'stoker cancel %s' tries again", x->config.run);
        return STK_E_ENV;
    }
    return stk_exec_settle(x, report->id, &report->outcome, err);
}
