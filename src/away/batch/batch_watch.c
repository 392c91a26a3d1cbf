/* Watches the jobs that Batch has: describes 100 at a time, more often while they change, and
 * reports changes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "away/batch/batch_find.h"
#include "base/text.h"
#include "base/units.h"

enum {
    LOOK_AT = 100,         /* DescribeJobs' limit */
    SLOWEST = 10,          /* the period grows up to this factor while nothing changes */
    MISSING = 20,          /* times that Batch may not know a job that it named itself */
    LONG_MS = 30000,       /* in RUNNABLE or STARTING; then the user gets the reason */
    LOOK_QUEUE_MS = 60000, /* between readings of a queue whose jobs wait */
    DRAIN_MS = 4000,       /* wait for the last lines of a log, which reach CloudWatch later */
    MANY_DRAIN = 50 /* above this number of ends no log is awaited, because the agent brings them */
};

static void live(batch_job *job)
{
    batch_driver *d = job->driver;
    job->phase = BATCH_LIVE;
    job->since_ms = job->state_ms = stk_batch_now_ms();
    d->n_live++;
    d->look_ms = d->poll_ms;
    if (d->next_look_ms > job->since_ms + d->poll_ms || d->n_live == 1) {
        d->next_look_ms = job->since_ms + d->poll_ms;
    }
    stk_batch_say(job, STK_REMOTE_QUEUED, "");
    if (job->is_stopped) {
        stk_batch_terminate(job);
    }
}

void stk_batch_live(batch_job *job, const char *aws_id)
{
    (void)snprintf(job->aws_id, sizeof job->aws_id, "%s", aws_id);
    live(job);
}

static batch_array *get_array(batch_driver *d, const char *aws_id)
{
    batch_array *array = d->arrays;
    while (array != NULL && strcmp(array->aws_id, aws_id) != 0) {
        array = array->next;
    }
    if (array == NULL && (array = stk_arena_alloc(d->arena, sizeof *array)) != NULL) {
        *array = (batch_array){.next = d->arrays, .driver = d};
        (void)snprintf(array->aws_id, sizeof array->aws_id, "%s", aws_id);
        d->arrays = array;
    }
    return array;
}

void stk_batch_live_child(batch_job *job, const char *array_id, uint32_t index)
{
    (void)snprintf(job->aws_id, sizeof job->aws_id, "%.50s:%u", array_id, index);
    job->array = get_array(job->driver, array_id);
    if (job->array != NULL) {
        job->array->n_open++;
    }
    live(job);
}

void stk_batch_not_live(batch_job *job)
{
    job->driver->n_live--;
    if (job->array != NULL) {
        job->array->n_open--;
    }
}

/* --- its end --- */

static void drained(batch_job *job)
{
    if (stk_batch_log_is_read(job) || stk_batch_now_ms() >= job->drain_ms) {
        stk_batch_report_end(job);
    }
}

static void ended(batch_job *job, const stk_batch_detail *detail)
{
    batch_driver *d = job->driver;
    stk_batch_detail_end(detail, &job->end);
    if (job->is_stopped && job->end.state == STK_REMOTE_FAILED) {
        job->end.failure = job->why; /* whatever its state was then */
    }
    stk_batch_not_live(job);
    job->phase = BATCH_DRAIN;
    d->n_drain++;
    bool ok = job->end.state == STK_REMOTE_ENDED && job->end.exit_status == 0;
    bool many = d->n_drain > MANY_DRAIN;
    job->drain_ms = stk_batch_now_ms() + !many * DRAIN_MS;
    for (uint32_t i = 0; job->streams != NULL && i < job->nodes; i++) {
        job->streams[i].due_ms = 0;
        job->streams[i].is_read = false;
    }
    if (job->streams == NULL || d->logs_off || (ok && many)) {
        stk_batch_report_end(job);
    }
}

/* --- DescribeJobs --- */

typedef struct look {
    batch_driver *driver;
    uint32_t n;
    batch_job *jobs[LOOK_AT];
    uint32_t nodes[LOOK_AT]; /* UINT32_MAX: the job itself */
} look;

/* Batch gives a temporary reason late; the queue gives permanent ones. */
static void tell_wait(batch_job *job, const stk_batch_detail *detail, int64_t now)
{
    char text[512];
    const batch_queue *queue = job->queue;
    stk_batch_detail_wait(detail, queue->name, text, sizeof text);
    if (text[0] == 0 && now - job->state_ms > LONG_MS) {
        if (detail->state == STK_BATCH_STARTS) {
            (void)snprintf(text, sizeof text,
                           "its container starts, which includes pulling the image");
        } else {
            (void)snprintf(text, sizeof text, "%s", queue->waits);
        }
    }
    if (detail->state == STK_BATCH_WAITS && now - job->state_ms > LONG_MS &&
        now - queue->looked_ms > LOOK_QUEUE_MS) {
        stk_batch_queue_look(job->queue);
    }
    if (text[0] != 0 && strcmp(text, job->told) != 0) {
        (void)snprintf(job->told, sizeof job->told, "%s", text);
        stk_batch_say(job, STK_REMOTE_QUEUED, text);
    }
}

static void check_deadline(batch_job *job, int64_t now)
{
    char span[32];
    int64_t pending = job->driver->config.pending_ms, waited = now - job->since_ms;
    if (pending <= 0 || waited < pending || job->is_stopped || job->state >= STK_BATCH_RUNS) {
        return;
    }
    (void)snprintf(job->why_text, sizeof job->why_text, "waited in queue '%s' for %s: %s",
                   job->queue->name, stk_units_format_duration(waited, span, sizeof span),
                   stk_text_or(stk_text_if_any(job->told), "AWS Batch gives no reason"));
    job->why = STK_FAIL_RESOURCES;
    stk_batch_terminate(job);
}

static void job_described(batch_job *job, const stk_batch_detail *detail, int64_t now)
{
    char text[256];
    batch_driver *d = job->driver;
    job->n_missing = 0;
    if (detail->state != job->state) {
        job->state = detail->state;
        job->state_ms = now;
        d->look_ms = d->poll_ms;
        if (detail->state == STK_BATCH_RUNS) {
            int n = snprintf(text, sizeof text, "AWS Batch job %s", job->aws_id);
            if (detail->instance != NULL) {
                (void)snprintf(text + n, sizeof text - (size_t)n, " on %s", detail->instance);
            }
            stk_batch_say(job, STK_REMOTE_RUNNING, text);
        }
    }
    stk_batch_log_found(job, 0, detail);
    if (detail->state == STK_BATCH_WAITS || detail->state == STK_BATCH_STARTS) {
        tell_wait(job, detail, now);
        check_deadline(job, now);
    }
    if (detail->state == STK_BATCH_SUCCEEDED || detail->state == STK_BATCH_FAILED) {
        if (job->nodes > 1 && !job->has_nodes) {
            job->has_nodes =
                true; /* read the nodes' ends first, because the job's own says little */
            d->next_look_ms = now;
            return;
        }
        if (job->nodes > 1 && job->end.exit_status > 0) {
            stk_batch_detail of_node = *detail;
            of_node.exit_status = job->end.exit_status;
            of_node.container_reason = stk_text_if_any(job->end.text);
            ended(job, &of_node);
            return;
        }
        ended(job, detail);
    } else if (job->is_stopped && !job->is_terminated) {
        stk_batch_terminate(job);
    }
}

/* A node of a multi-node job. The first failed node determines the job's end. */
static void node_described(batch_job *job, uint32_t node, const stk_batch_detail *detail)
{
    stk_batch_log_found(job, node, detail);
    if (detail->state == STK_BATCH_FAILED && job->end.exit_status <= 0) {
        job->end.exit_status = detail->exit_status;
        const char *words = stk_text_or(detail->container_reason, detail->reason);
        (void)snprintf(job->end.text, sizeof job->end.text, "%s", stk_text_or(words, ""));
    }
}

static const stk_json *find_answer(const stk_json *list, uint32_t i, const char *id)
{
    for (uint32_t k = 0; k < stk_json_n_items(list); k++) {
        const stk_json *one = &list->items[(i + k) % list->n]; /* answers are mostly in our order */
        if (stk_json_is(stk_json_get(one, "jobId"), id)) {
            return one;
        }
    }
    return NULL;
}

static void node_id(const batch_job *job, uint32_t node, char *ret, size_t size)
{
    if (node == UINT32_MAX) {
        (void)snprintf(ret, size, "%s", job->aws_id);
    } else {
        (void)snprintf(ret, size, "%s#%u", job->aws_id, node);
    }
}

static void looked(void *arg, const stk_batch_answer *answer)
{
    look *l = arg;
    int64_t now = stk_batch_now_ms();
    char id[96];
    const stk_json *list = stk_json_get(answer->json, "jobs");
    l->driver->n_looks--;
    if (answer->rc < 0) {
        (void)stk_batch_is_broken(l->driver, answer);
    }
    for (uint32_t i = 0; i < l->n; i++) {
        node_id(l->jobs[i], l->nodes[i], id, sizeof id);
        batch_job *job = stk_batch_answered(l->jobs[i]);
        if (job == NULL || answer->rc < 0 || job->phase != BATCH_LIVE) {
            continue;
        }
        const stk_json *one = find_answer(list, i, id);
        stk_batch_detail detail;
        if (one != NULL) {
            stk_batch_detail_read(one, &detail);
            if (l->nodes[i] == UINT32_MAX) {
                job_described(job, &detail, now);
            } else {
                node_described(job, l->nodes[i], &detail);
            }
        } else if (l->nodes[i] == UINT32_MAX && ++job->n_missing > MISSING) {
            stk_batch_fail(job, STK_FAIL_LOST, "AWS Batch no longer has job %s", job->aws_id);
        }
    }
    free(l);
}

/* Sends the request; NULL is fine. */
static void send_look(look *l)
{
    STK_BUF_AUTO body = STK_BUF_INIT(1 << 16);
    stk_err err = {0};
    if (l == NULL) {
        return;
    }
    stk_json_open(&body, NULL, '{');
    stk_json_open(&body, "jobs", '[');
    for (uint32_t i = 0; i < l->n; i++) {
        char id[96];
        node_id(l->jobs[i], l->nodes[i], id, sizeof id);
        stk_json_put_text(&body, NULL, id);
        l->jobs[i]->refs++;
    }
    stk_json_close(&body, ']');
    stk_json_close(&body, '}');
    l->driver->n_looks++;
    if (stk_batch_call_batch(l->driver->calls, "/v1/describejobs", body.data, looked, l, &err) <
        0) {
        looked(l, &(stk_batch_answer){.rc = err.code, .code = "", .err = &err, .maybe_done = true});
    }
}

/* Adds a job or node to the request, and sends a full one; NULL: out of memory, so it comes later.
 */
static look *add_to_look(batch_driver *d, look *l, batch_job *job, uint32_t node)
{
    if (l == NULL) {
        l = calloc(1, sizeof *l);
        if (l == NULL) {
            return NULL;
        }
        l->driver = d;
    }
    l->jobs[l->n] = job;
    l->nodes[l->n++] = node;
    if (l->n == LOOK_AT) {
        send_look(l);
        return NULL;
    }
    return l;
}

void stk_batch_look_at_jobs(batch_driver *d, int64_t now_ms)
{
    look *l = NULL;
    for (uint32_t i = 0; d->n_drain > 0 && i < d->n_jobs; i++) {
        if (d->jobs[i]->phase == BATCH_DRAIN) {
            drained(d->jobs[i]);
        }
    }
    if (d->n_live == 0 || d->n_looks > 0 || now_ms < d->next_look_ms) {
        return;
    }
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        batch_job *job = d->jobs[i];
        if (job->phase != BATCH_LIVE) {
            continue;
        }
        /* Nodes first, so that their state is known when the job's answer ends it. */
        bool with_nodes = job->nodes > 1 && (job->state == STK_BATCH_RUNS || job->has_nodes);
        for (uint32_t k = 0; with_nodes && k < job->nodes; k++) {
            l = add_to_look(d, l, job, k);
        }
        l = add_to_look(d, l, job, UINT32_MAX);
    }
    send_look(l);
    d->look_ms = MIN(d->look_ms + d->look_ms / 4, SLOWEST * d->poll_ms);
    d->next_look_ms = now_ms + d->look_ms;
}
