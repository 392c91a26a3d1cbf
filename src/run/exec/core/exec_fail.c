/* Failed attempts: their sentence, and whether there is another attempt. */
#include <string.h>

#include "base/json.h"
#include "base/limits.h"
#include "run/exec/core/exec_devices.h"
#include "run/exec/core/exec_event.h"
#include "run/exec/core/exec_hook.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/grown/exec_made.h"
#include "run/exec/place/exec_place.h"

/* Limits of a failure's texts, because people read them and a step may write any length. */
enum { TEXT_BYTES = 16 << 10, TRACEBACK_BYTES = 256 << 10 };

static int remember_error(stk_exec *x, uint32_t task, const char *text, stk_err *err)
{
    if (x->error == NULL) {
        const char *who = stk_exec_who(x, task, x->scratch);
        STK_TRY(stk_err_if_null(who, err));
        x->error = stk_arena_printf(x->arena, "%s failed: %s", who, text);
    }
    return stk_err_if_null(x->error, err);
}

/* Shortens a long text; NULL for NULL, or when out of memory. */
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
    STK_BUF_AUTO buf = STK_BUF_INIT(1 << 12);
    stk_json_open(&buf, NULL, '{');
    stk_json_put_whole(&buf, "at_ms", stk_clock_wall_ms(x->config.clock) + next->delay_ms);
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
    stk_sched_event event = {.kind = STK_EV_TASK_RETRYING,
                             .task = task,
                             .at_ms = stk_clock_mono_ms(x->config.clock) + next->delay_ms,
                             .grows = next->grows,
                             .is_fallback = next->is_fallback};
    return stk_exec_emit(x, &event, &buf, err);
}

/* Writes the payload of TASK_FAILED. */
static void put_failure(stk_exec *x, uint32_t task, const exec_failure *failure, bool again,
                        stk_buf *buf)
{
    stk_json_open(buf, NULL, '{');
    stk_json_put_text(buf, "class", stk_failure_word(failure->class));
    stk_json_put_bool(buf, "final", !again);
    stk_json_put_text(buf, "text", failure->text);
    if (failure->saved) {
        stk_json_put_bool(buf, "saved", true);
    }
    if (failure->gang != NULL && failure->gang->first >= 0) {
        stk_json_put_whole(buf, "rank", failure->gang->first);
    }
    if (failure->gang != NULL && failure->gang->noticed_us >= 0) {
        stk_json_put_whole(buf, "noticed_us", failure->gang->noticed_us);
    }
    stk_json_put_known_raw(buf, "used", failure->used);
    stk_json_put_known_raw(buf, "granted", failure->got);
    stk_json_put_known_text(buf, "traceback", failure->traceback);
    stk_json_put_known_text(buf, "where", failure->where);
    if (failure->ending != NULL && x->graph.grow != NULL) {
        stk_exec_put_left(x, failure->ending, buf);
    } else if (x->graph.grow != NULL) {
        x->graph.grown[task].n_left = 0; /* an earlier attempt's */
    }
    stk_json_close(buf, '}');
}

/* Hides secrets before the text is cut, because half of a secret wouldn't be found. */
static void hide_all(stk_exec *x, uint32_t task, exec_failure *f)
{
    const stk_settings *s = stk_exec_step(x, task)->settings;
    f->text = stk_exec_hide(s, f->text, x->scratch);
    f->type = stk_exec_hide(s, f->type, x->scratch);
    f->message = stk_exec_hide(s, f->message, x->scratch);
    f->raw = stk_exec_hide(s, f->raw, x->scratch);
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
    STK_BUF_AUTO data =
        STK_BUF_INIT(STK_LIMIT_RESULT_BYTES * 3); /* also for the digests of its outputs */
    put_failure(x, task, failure, again, &data);
    stk_sched_event failed = {.kind = STK_EV_TASK_FAILED,
                              .task = task,
                              .failure = failure->class,
                              .is_final = !again,
                              .saved = failure->saved};
    STK_TRY(stk_exec_emit(x, &failed, &data, err));
    if (next.is_fallback) { /* if the fallback itself failed, use the step's failure */
        STK_TRY(stk_exec_keep_failure(x, task, failure, err));
    }
    if (!again) {
        STK_TRY(remember_error(x, task, failure->text, err));
        return stk_exec_run_hooks(x, task, failure->result, failure->text, err);
    }
    return emit_retrying(x, task, &next, err);
}

/* Makes the sentence from the worker's report of a failure. */
static const char *error_text(const stk_exec *x, uint32_t task, const stk_result_error *e,
                              stk_failure class, stk_arena *arena)
{
    const char *image = stk_exec_image_of(x, task);
    if (e->class == STK_FAIL_IMPORT && e->module != NULL && image != NULL) {
        return stk_arena_printf(arena,
                                "module '%s' is neither in image '%s' nor among the project's "
                                "files; name it in docker's requirements, or take another image%s",
                                e->module, image, stk_runner_way_out(class));
    }
    if (e->class == STK_FAIL_IMPORT && e->module != NULL) {
        return stk_arena_printf(arena,
                                "module '%s' is not installed in this Python; install it (pip "
                                "install %s) and run again%s",
                                e->module, e->module, stk_runner_way_out(class));
    }
    STK_BUF_AUTO text = STK_BUF_INIT(SIZE_MAX / 2);
    bool has_type = e->class == STK_FAIL_EXCEPTION || e->class == STK_FAIL_IMPORT;
    if (has_type && e->type != NULL && strcmp(e->type, e->message) != 0) {
        stk_buf_printf(&text, "%s: ", e->type);
    }
    stk_buf_text(&text, e->message); /* the type, too, where it was raised without a word */
    if (e->where != NULL) {
        stk_buf_printf(&text, " (%s)", e->where);
    }
    stk_buf_text(&text, stk_runner_way_out(class));
    return stk_buf_keep(&text, arena);
}

/* True if the engine ended the attempt; the task's own report doesn't count then. */
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

/* The class of an exception: by its message, which may tell of a fault of the device or the host,
 * else by the outcome. */
static stk_failure error_class(const stk_result_error *e, const stk_outcome *o)
{
    bool is_end = e->class == STK_FAIL_EXIT || e->class == STK_FAIL_SIGNAL; /* of a gang */
    if (e->class != STK_FAIL_EXCEPTION && !is_end) {
        return e->class;
    }
    stk_failure symptom = stk_runner_symptom(e->message, o->n_devices > 0, NULL, NULL);
    bool seen = !o->ok && o->failure != STK_FAIL_EXIT && o->failure != STK_FAIL_LOST &&
                o->failure != STK_FAIL_START;
    if (symptom != STK_FAIL_NONE) {
        return symptom;
    }
    return seen ? o->failure : e->class;
}

int stk_exec_fail_ending(stk_exec *x, const exec_ending *e, stk_err *err)
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
        failure.text = error_text(x, e->task, error, failure.class, x->scratch);
        failure.type = error->type;
        failure.message = error->message;
        failure.raw = error->raw;
        failure.traceback = error->traceback;
        failure.where = error->where;
    } else if (o->ok) {
        failure.class = STK_FAIL_EXIT;
        failure.text =
            "it ended with exit status 0, but without a result: os._exit (or exec of another "
            "program) ends a step before its outputs are stored; return from the step instead";
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

int stk_exec_fail_output(stk_exec *x, const exec_ending *e, stk_failure class, const stk_err *why,
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
