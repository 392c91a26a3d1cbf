/* The driver of AWS Batch: the functions that the remote backend calls. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "away/batch/batch.h"
#include "away/batch/batch_send.h"
#include "sys/clock.h"

enum {
    AT_ONCE = 32,    /* running requests */
    CLOSE_MS = 5000, /* most time for removals at the end */
    LOOK_MS = 1000   /* default time between DescribeJobs */
};

int64_t stk_batch_now_ms(void)
{
    return stk_clock_mono_ms(&stk_clock_real);
}

const stk_json *stk_batch_keep(const stk_json *json, stk_arena *arena)
{
    static const stk_json_limits limits = {.bytes = 32 << 20, .nodes = 2000000, .depth = 40};
    STK_BUF_AUTO text = STK_BUF_INIT(32 << 20);
    stk_json *kept = stk_arena_alloc(arena, sizeof *kept);
    stk_json_dump(json, &text);
    if (kept == NULL || text.failed ||
        stk_json_parse(text.data, text.len, "answer", &limits, arena, kept, NULL) < 0) {
        return NULL;
    }
    return kept;
}

/* --- reports --- */

void stk_batch_say(batch_job *job, stk_remote_state state, const char *text)
{
    stk_remote_report report = {.state = state,
                                .id = job->id,
                                .attempt = job->attempt,
                                .exit_status = -1,
                                .failure = STK_FAIL_NONE};
    (void)snprintf(report.text, sizeof report.text, "%s", text);
    job->driver->base.say(job->driver->base.say_arg, &report);
}

void stk_batch_report_end(batch_job *job)
{
    batch_driver *d = job->driver;
    stk_remote_report *end = &job->end;
    end->id = job->id;
    end->attempt = job->attempt;
    if (end->exit_status == 78 && job->word[0] != 0) { /* our script in the image gave up */
        end->state = STK_REMOTE_FAILED;
        end->failure = STK_FAIL_START;
        (void)snprintf(end->text, sizeof end->text, "%s", job->word);
    }
    if (end->state == STK_REMOTE_FAILED && end->failure == STK_FAIL_NONE && job->word[0] != 0) {
        size_t n = strlen(end->text);
        (void)snprintf(end->text + n, sizeof end->text - n, "; its last output: %s", job->word);
    }
    if (job->is_stopped && !(end->state == STK_REMOTE_ENDED && end->exit_status == 0)) {
        end->state = STK_REMOTE_FAILED;
        end->failure = job->why;
        if (job->why_text[0] != 0) {
            (void)snprintf(end->text, sizeof end->text, "%s", job->why_text);
        }
    }
    if (job->phase == BATCH_LIVE) {
        stk_batch_not_live(job);
    }
    d->n_drain -= job->phase == BATCH_DRAIN;
    job->phase = BATCH_DONE;
    d->base.say(d->base.say_arg, end);
    job->spec = NULL; /* the backend frees it */
    stk_arena_free(job->arena);
    job->arena = NULL;
}

void stk_batch_fail(batch_job *job, stk_failure failure, const char *fmt, ...)
{
    va_list args;
    if (job->phase == BATCH_DONE) {
        return;
    }
    job->end = (stk_remote_report){.state = STK_REMOTE_FAILED,
                                   .exit_status = -1,
                                   .is_hopeless = job->driver->broken != 0,
                                   .failure = failure};
    va_start(args, fmt);
    (void)vsnprintf(job->end.text, sizeof job->end.text, fmt, args);
    va_end(args);
    stk_batch_report_end(job);
}

void stk_batch_fail_unsent(batch_job *job)
{
    stk_batch_fail(job, job->why, "stopped before it was submitted");
}

bool stk_batch_is_broken(batch_driver *d, const stk_batch_answer *answer)
{
    static const char *const hopeless[] = {"AccessDenied",       "UnrecognizedClient",
                                           "InvalidClientToken", "SignatureDoesNotMatch",
                                           "InvalidSignature",   "NotAuthorized",
                                           "OptInRequired",      "MissingAuthenticationToken",
                                           "ExpiredToken",       "TokenRefreshRequired",
                                           "InvalidToken",       "InvalidAccessKey"};
    for (size_t i = 0; i < sizeof hopeless / sizeof *hopeless; i++) {
        if (strstr(answer->code, hopeless[i]) != NULL) {
            if (d->broken == 0) {
                d->may_end = i == 0; /* one right is missing, so ending jobs may work */
            }
            d->broken = STK_E_ENV;
        }
    }
    /* No credentials or no connection; the calls have tried as long as that may help. */
    if (answer->code[0] == 0 && answer->rc == STK_E_ENV && !answer->maybe_done) {
        d->broken = STK_E_ENV;
    }
    if (d->broken != 0 && answer->err != NULL && d->broken_text[0] == 0) {
        (void)snprintf(d->broken_text, sizeof d->broken_text, "AWS Batch: %.600s",
                       answer->err->text);
    }
    return d->broken != 0;
}

/* --- jobs --- */

static void free_job(batch_job *job)
{
    stk_batch_logs_free(job);
    stk_arena_free(job->arena);
    free(job);
}

static void drop_job(batch_job *job)
{
    batch_driver *d = job->driver;
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        if (d->jobs[i] == job) {
            d->jobs[i] = d->jobs[--d->n_jobs];
            break;
        }
    }
    free_job(job);
}

batch_job *stk_batch_answered(void *arg)
{
    batch_job *job = arg;
    job->refs--;
    if (job->forgotten && job->refs == 0) {
        drop_job(job);
        return NULL;
    }
    return job->phase == BATCH_DONE ? NULL : job;
}

void stk_batch_job_ask(batch_job *job, const stk_batch_ask_call *call)
{
    stk_err err = {0};
    if (stk_batch_call(job->driver->calls, call, &err) < 0) {
        stk_batch_fail(job, STK_FAIL_LOST, "%s", err.text);
        return;
    }
    job->refs++;
}

static batch_job *find_job(batch_driver *d, uint32_t id)
{
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        if (d->jobs[i]->id == id && !d->jobs[i]->forgotten) {
            return d->jobs[i];
        }
    }
    return NULL;
}

static int batch_submit(stk_driver *self, const stk_remote_job *spec, stk_err *err)
{
    batch_driver *d = (batch_driver *)self;
    if (d->broken != 0) {
        return stk_err_set(err, d->broken, "%s", d->broken_text);
    }
    batch_job **jobs = stk_arena_grow(d->arena, d->jobs, d->n_jobs, sizeof *jobs, &d->cap_jobs);
    STK_TRY(stk_err_if_null(jobs, err));
    d->jobs = jobs;
    batch_job *job = calloc(1, sizeof *job);
    stk_arena *arena = stk_arena_new(0);
    if (job == NULL || arena == NULL) {
        free(job);
        stk_arena_free(arena);
        return stk_err_nomem(err);
    }
    *job = (batch_job){.driver = d,
                       .arena = arena,
                       .spec = spec,
                       .id = spec->id,
                       .attempt = spec->attempt,
                       .nodes = MAX(spec->nodes, 1),
                       .attach = spec->attach,
                       .look = spec->look};
    (void)snprintf(job->name, sizeof job->name, "%s", spec->name);
    int rc = stk_batch_ask_read(&d->config, spec, NULL, arena, &job->ask, err);
    if (rc < 0) {
        free_job(job);
        return rc;
    }
    d->jobs[d->n_jobs++] = job;
    stk_batch_begin(job);
    return 0;
}

static void batch_stop(stk_driver *self, uint32_t id, int64_t grace_ms, stk_failure why)
{
    batch_job *job = find_job((batch_driver *)self, id);
    (void)grace_ms; /* Batch sends SIGTERM, and SIGKILL after its instances' own 30 s */
    if (job == NULL || job->phase == BATCH_DONE) {
        return;
    }
    if (!job->is_stopped) {
        job->is_stopped = true;
        job->why = why;
    }
    if (job->phase == BATCH_LIVE) {
        stk_batch_terminate(job);
    } else if ((job->attach || job->look) &&
               (job->phase == BATCH_QUEUE || job->phase == BATCH_DEFINE)) {
        stk_batch_look(job); /* its definition isn't needed */
    } else if (job->phase < BATCH_SEND && !job->attach && !job->look) { /* nobody knows the job */
        stk_batch_fail_unsent(job);
    } else if (job->phase == BATCH_DRAIN) {
        job->drain_ms = 0;
    }
}

static void batch_forget(stk_driver *self, uint32_t id)
{
    batch_job *job = find_job((batch_driver *)self, id);
    if (job == NULL) {
        return;
    }
    job->forgotten = true;
    if (job->refs == 0) {
        drop_job(job);
    }
}

/* --- turns --- */

static int batch_turn(stk_driver *self, int wake_fd, int64_t timeout_ms, stk_err *err)
{
    batch_driver *d = (batch_driver *)self;
    int64_t now = stk_batch_now_ms();
    int64_t wait = stk_batch_sooner(timeout_ms, stk_batch_find_due(d, now));
    wait = stk_batch_sooner(wait, stk_batch_send_due(d, now));
    stk_batch_look_at_jobs(d, now);
    wait = stk_batch_sooner(wait, stk_batch_end_jobs(d, now));
    stk_batch_read_logs(d, now);
    wait = stk_batch_sooner(wait, stk_batch_calls_pump(d->calls, now));
    if (d->n_live > 0 || d->n_drain > 0) {
        wait = stk_batch_sooner(wait, MAX(d->next_look_ms - now, 1));
    }
    if (d->n_drain > 0) {
        wait = stk_batch_sooner(wait, 200);
    }
    if (d->broken != 0 && stk_batch_give_up(d, now)) {
        return stk_err_set(err, d->broken, "%s", d->broken_text);
    }
    return stk_http_many_turn(d->http, wake_fd, d->broken != 0 ? 100 : wait, err);
}

/* Removes our parameters if no job is left that may read them. */
static void clean_up(batch_driver *d)
{
    int64_t until = stk_batch_now_ms() + CLOSE_MS;
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        if (d->jobs[i]->phase != BATCH_DONE) {
            return;
        }
    }
    stk_batch_remove_parameters(d);
    while (d->n_parameters > 0 && stk_batch_calls_n(d->calls, STK_BATCH_ASKS) > 0 &&
           stk_batch_now_ms() < until) {
        (void)stk_batch_calls_pump(d->calls, stk_batch_now_ms());
        if (stk_http_many_turn(d->http, -1, 100, NULL) < 0) {
            break;
        }
    }
}

static void batch_close(stk_driver *self)
{
    batch_driver *d = (batch_driver *)self;
    if (d->calls != NULL && d->http != NULL) {
        clean_up(d);
    }
    stk_batch_sends_free(d);
    stk_batch_finds_free(d);
    stk_batch_calls_close(d->calls);
    stk_http_many_close(d->http);
    stk_aws_close(d->aws);
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        free_job(d->jobs[i]);
    }
    for (batch_queue *q = d->queues; q != NULL; q = q->next) {
        stk_arena_free(q->arena);
    }
    stk_arena_free(d->arena);
    free(d);
}

/* --- opening --- */

static void note(void *arg, const char *text)
{
    batch_driver *d = arg;
    for (uint32_t i = 0; i < d->n_jobs; i++) { /* one job reports it for all */
        if (d->jobs[i]->phase != BATCH_DONE) {
            stk_batch_say(d->jobs[i], STK_REMOTE_NOTE, text);
            return;
        }
    }
}

static const stk_driver_ops ops = {.name = "batch",
                                   .submit = batch_submit,
                                   .stop = batch_stop,
                                   .forget = batch_forget,
                                   .turn = batch_turn,
                                   .close = batch_close};

static int open_services(batch_driver *d, stk_err *err)
{
    stk_batch_options options;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_err_if_null(d->arena, err));
    STK_TRY(stk_batch_options_read(NULL, d->config.options, "{}", arena, &options, err));
    double seconds = stk_batch_number(&options, "poll");
    d->poll_ms = seconds > 0 ? (int64_t)(seconds * 1000) + 1 : LOOK_MS;
    d->look_ms = d->poll_ms;
    STK_TRY(stk_aws_open(NULL, &d->aws, err));
    STK_TRY(stk_aws_region(d->aws, d->region, sizeof d->region, err));
    STK_TRY(stk_http_many_open(AT_ONCE, &d->http, err));
    return stk_batch_calls_open(d->aws, d->http, note, d, &d->calls, err);
}

static int batch_open(const stk_driver_config *config, stk_driver **ret, stk_err *err)
{
    batch_driver *d = calloc(1, sizeof *d);
    STK_TRY(stk_err_if_null(d, err));
    *d = (batch_driver){.base = {.ops = &ops}, .config = *config, .arena = stk_arena_new(0)};
    int rc = open_services(d, err);
    if (rc < 0) {
        batch_close(&d->base);
        return rc;
    }
    *ret = &d->base;
    return 0;
}

static int batch_manifest(const stk_driver_config *config, const stk_remote_job *job,
                          stk_arena *arena, const char ***ret_documents, uint32_t *ret_n,
                          stk_err *err)
{
    stk_batch_ask ask;
    const char *name;
    const char **documents = stk_arena_array(arena, 2, sizeof *documents);
    STK_TRY(stk_err_if_null(documents, err));
    STK_TRY(stk_batch_ask_read(config, job, NULL, arena, &ask, err));
    STK_TRY(stk_batch_definition(&ask, arena, &documents[0], &name, err));
    if (job->is_many && job->nodes == 1 && stk_batch_whole(&ask.options, "array_min") != 0) {
        STK_TRY(stk_batch_array_preview(&ask, name, arena, &documents[1], err));
    } else {
        STK_TRY(stk_batch_submit(&ask, name, arena, &documents[1], err));
    }
    *ret_documents = documents;
    *ret_n = 2;
    return 0;
}

const stk_driver_kind stk_driver_batch = {
    .name = "batch", .open = batch_open, .manifest = batch_manifest, .check = stk_batch_check};
