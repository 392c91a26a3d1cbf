/* Ends jobs that Batch has: each alone, or an array as a whole. */
#include <stdio.h>

#include "away/batch/batch_driver.h"
#include "base/text.h"

enum {
    GIVE_UP_MS = 10000, /* most time to end jobs after a right is missing */
    STOPS_MS = 50       /* time to gather jobs that end together */
};

static void look_soon(batch_driver *d)
{
    d->next_look_ms = stk_batch_now_ms();
    d->look_ms = d->poll_ms;
}

static void not_terminated(batch_job *job, const char *aws_id, const stk_err *err)
{
    char text[900];
    (void)snprintf(text, sizeof text, "can't terminate job %s: %s", aws_id, err->text);
    stk_batch_say(job, STK_REMOTE_NOTE, text);
}

static void terminated(void *arg, const stk_batch_answer *answer)
{
    batch_job *job = stk_batch_answered(arg);
    if (job == NULL) {
        return;
    }
    look_soon(job->driver);
    if (answer->rc < 0 && !stk_batch_is_broken(job->driver, answer)) {
        not_terminated(job, job->aws_id, answer->err);
        job->is_terminated = false; /* the next look tries again */
    }
}

static void array_terminated(void *arg, const stk_batch_answer *answer)
{
    batch_array *array = arg;
    batch_driver *d = array->driver;
    bool told = false;
    look_soon(d);
    if (answer->rc == 0 || stk_batch_is_broken(d, answer)) {
        return;
    }
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        batch_job *job = d->jobs[i];
        if (job->array == array && job->phase == BATCH_LIVE) {
            if (!told) {
                not_terminated(job, array->aws_id, answer->err);
                told = true;
            }
            job->is_terminated = false;
        }
    }
}

static void put_terminate(stk_buf *body, const char *aws_id, const batch_job *job)
{
    stk_json_open(body, NULL, '{');
    stk_json_put_text(body, "jobId", aws_id);
    stk_json_put_text(body, "reason",
                      stk_text_or(stk_text_if_any(job->why_text), "terminated by Stoker"));
    stk_json_close(body, '}');
}

/* For a job that hasn't begun, TerminateJob acts as CancelJob. */
static void terminate_one(batch_job *job, stk_batch_done done)
{
    STK_BUF_AUTO body = STK_BUF_INIT(4096);
    put_terminate(&body, job->aws_id, job);
    stk_batch_job_ask(job, &(stk_batch_ask_call){.lane = STK_BATCH_ASKS,
                                                 .service = "batch",
                                                 .path = "/v1/terminatejob",
                                                 .body = body.data,
                                                 .done = done,
                                                 .arg = job});
}

static void terminate_array(batch_array *array, const batch_job *of)
{
    STK_BUF_AUTO body = STK_BUF_INIT(4096);
    stk_err err = {0};
    batch_driver *d = array->driver;
    put_terminate(&body, array->aws_id, of);
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        d->jobs[i]->is_terminated = d->jobs[i]->is_terminated || d->jobs[i]->array == array;
    }
    if (stk_batch_call_batch(d->calls, "/v1/terminatejob", body.data, array_terminated, array,
                             &err) < 0) {
        array_terminated(array, &(stk_batch_answer){.rc = err.code, .code = "", .err = &err});
    }
}

/* Short, because an end keeps few bytes of text. */
static void fail_alive(batch_job *job)
{
    stk_batch_fail(job, STK_FAIL_START,
                   "%.250s; its job may still run: `aws batch terminate-job --job-id %s --reason "
                   "\"not watched\"` ends it",
                   job->driver->broken_text, job->aws_id);
}

static void given_up(void *arg, const stk_batch_answer *answer)
{
    batch_job *job = stk_batch_answered(arg);
    if (job != NULL && answer->rc == 0) {
        stk_batch_fail(job, STK_FAIL_START, "%.400s; its job was terminated",
                       job->driver->broken_text);
    } else if (job != NULL) {
        fail_alive(job);
    }
}

bool stk_batch_give_up(batch_driver *d, int64_t now_ms)
{
    bool begins = d->give_up_ms == 0;
    bool any = false;
    if (begins) {
        d->give_up_ms = now_ms + GIVE_UP_MS;
    }
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        batch_job *job = d->jobs[i];
        if (job->phase != BATCH_LIVE) {
            continue;
        }
        if (now_ms >= d->give_up_ms || !d->may_end) {
            fail_alive(job);
        } else if (begins) {
            terminate_one(job, given_up);
        }
        any = any || job->phase == BATCH_LIVE;
    }
    return !any;
}

void stk_batch_terminate(batch_job *job)
{
    batch_driver *d = job->driver;
    job->is_stopped = true;
    if (d->stops_ms <= 0) {
        d->stops_ms = stk_batch_now_ms() + STOPS_MS;
    }
}

static bool is_to_end(const batch_job *job)
{
    return job->phase == BATCH_LIVE && job->is_stopped && !job->is_terminated;
}

/* Ends all stopped jobs; one request ends an array if all of its children are stopped. Waits while
 * jobs are still searched, because an array may have more children. */
static void end_jobs(batch_driver *d, int64_t now_ms)
{
    for (batch_array *array = d->arrays; array != NULL; array = array->next) {
        array->n_stops = 0;
    }
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        const batch_job *job = d->jobs[i];
        if (job->array != NULL && job->phase == BATCH_LIVE && job->is_stopped) {
            job->array->n_stops++;
        }
    }
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        batch_job *job = d->jobs[i];
        batch_array *array = job->array;
        if (!is_to_end(job)) {
            continue;
        }
        bool whole = array != NULL && array->n_stops > 1 && array->n_stops == array->n_open;
        if (whole && d->n_looking > 0) {
            d->stops_ms = now_ms + STOPS_MS;
        } else if (whole) {
            terminate_array(array, job);
        } else {
            job->is_terminated = true;
            terminate_one(job, terminated);
        }
    }
}

int64_t stk_batch_end_jobs(batch_driver *d, int64_t now_ms)
{
    if (d->stops_ms != 0 && d->stops_ms <= now_ms) {
        d->stops_ms = 0;
        end_jobs(d, now_ms);
    }
    return d->stops_ms == 0 ? -1 : d->stops_ms - now_ms;
}
