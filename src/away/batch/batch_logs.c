/* Follows the jobs' logs in CloudWatch while they run: GetLogEvents from the last token on, one
 * stream at a time, within CloudWatch's rate. The agent brings the whole logs at the end; this is
 * for people who watch, and for jobs whose agent never began. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "away/batch/batch_driver.h"

#define GET_LOG_EVENTS "Logs_20140328.GetLogEvents"

enum { SLOWEST_MS = 10000, MAX_WAITING = 40 };

void stk_batch_logs_free(batch_job *job)
{
    for (uint32_t i = 0; job->streams != NULL && i < job->nodes; i++) {
        free(job->streams[i].group);
        free(job->streams[i].name);
        free(job->streams[i].token);
    }
    free(job->streams);
    job->streams = NULL;
}

void stk_batch_log_found(batch_job *job, uint32_t node, const stk_batch_detail *detail)
{
    batch_driver *d = job->driver;
    if (detail->log_stream == NULL || d->logs_off) {
        return;
    }
    if (detail->log_group == NULL) {
        if (!d->logs_other_told) {
            d->logs_other_told = true;
            stk_batch_say(job, STK_REMOTE_NOTE,
                          "its log driver isn't awslogs, so its output appears when it has ended");
        }
        return;
    }
    if (job->streams == NULL) {
        job->streams = calloc(job->nodes, sizeof *job->streams);
    }
    if (job->streams == NULL || job->streams[node].name != NULL) {
        return;
    }
    batch_stream *s = &job->streams[node];
    *s = (batch_stream){.job = job, .node = node, .wait_ms = d->poll_ms};
    s->group = strdup(detail->log_group);
    s->name = strdup(detail->log_stream);
    if (s->group == NULL || s->name == NULL) {
        free(s->group);
        free(s->name);
        s->group = s->name = NULL; /* the next DescribeJobs finds it again */
    }
}

/* Remembers the last line of our script in the container, which says why it gave up. */
static void remember(batch_job *job, const char *data, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (data[i] != '\n') {
            if (job->line_len + 1 < sizeof job->line) {
                job->line[job->line_len++] = data[i];
            }
            continue;
        }
        job->line[job->line_len] = 0;
        if (strncmp(job->line, "stoker: ", 8) == 0) {
            (void)snprintf(job->word, sizeof job->word, "%s", job->line + 8);
        }
        job->line_len = 0;
    }
}

static void say_lines(batch_stream *s, const stk_json *events)
{
    batch_job *job = s->job;
    STK_BUF_AUTO text = STK_BUF_INIT(16 << 20);
    for (uint32_t i = 0; i < events->n; i++) {
        const stk_json *message = stk_json_get(&events->items[i], "message");
        if (stk_json_is_kind(message, STK_JSON_TEXT)) {
            (void)stk_buf_add(&text, message->text, message->n);
            (void)stk_buf_char(&text, '\n'); /* an event is a line, without its end */
        }
    }
    if (text.len == 0) {
        return;
    }
    remember(job, text.data, text.len);
    const stk_remote_report report = {.state = STK_REMOTE_LOG,
                                      .id = job->id,
                                      .attempt = job->attempt,
                                      .node = s->node,
                                      .exit_status = -1,
                                      .data = text.data,
                                      .n = text.len};
    job->driver->base.say(job->driver->base.say_arg, &report);
}

static void read_failed(batch_stream *s, const stk_batch_answer *answer)
{
    batch_driver *d = s->job->driver;
    char text[900];
    if (strstr(answer->code, "AccessDenied") != NULL && !d->logs_off) {
        d->logs_off = true;
        (void)snprintf(text, sizeof text, "can't follow the output of jobs: %s", answer->err->text);
        stk_batch_say(s->job, STK_REMOTE_NOTE, text);
    }
    /* ResourceNotFoundException: nothing has been written yet; CloudWatch may be late. */
    s->due_ms = stk_batch_now_ms() + s->wait_ms;
    s->is_read = s->job->phase == BATCH_DRAIN && s->job->end.exit_status == 0;
}

static void read_answered(void *arg, const stk_batch_answer *answer)
{
    batch_stream *s = arg;
    batch_job *job = stk_batch_answered(s->job);
    if (job == NULL || job->streams == NULL) {
        return;
    }
    s->is_asked = false;
    const stk_json *events = stk_json_get(answer->json, "events");
    const char *token = stk_json_get_text(answer->json, "nextForwardToken");
    if (answer->rc < 0) {
        read_failed(s, answer);
        return;
    }
    bool none = stk_json_n_items(events) == 0;
    bool same = token != NULL && s->token != NULL && strcmp(token, s->token) == 0;
    if (!none && !same) {
        say_lines(s, events);
    }
    if (token != NULL && !same) {
        free(s->token);
        s->token = strdup(token);
    }
    s->is_read = job->phase == BATCH_DRAIN && none;
    s->wait_ms = MIN(none ? 2 * s->wait_ms : job->driver->poll_ms, SLOWEST_MS);
    s->due_ms = stk_batch_now_ms();
    if (none || job->phase != BATCH_DRAIN) {
        s->due_ms += s->wait_ms;
    }
}

static void ask_events(batch_stream *s)
{
    STK_BUF_AUTO body = STK_BUF_INIT(16384);
    batch_job *job = s->job;
    stk_err err = {0};
    stk_json_open(&body, NULL, '{');
    stk_json_put_text(&body, "logGroupName", s->group);
    stk_json_put_text(&body, "logStreamName", s->name);
    stk_json_put_bool(&body, "startFromHead", true);
    if (s->token != NULL) {
        stk_json_put_text(&body, "nextToken", s->token);
    }
    stk_json_close(&body, '}');
    const stk_batch_ask_call call = {.lane = STK_BATCH_LOGS,
                                     .service = "logs",
                                     .target = GET_LOG_EVENTS,
                                     .body = body.data,
                                     .done = read_answered,
                                     .arg = s};
    if (stk_batch_call(job->driver->calls, &call, &err) == 0) {
        job->refs++;
        s->is_asked = true;
    }
}

void stk_batch_read_logs(batch_driver *d, int64_t now_ms)
{
    uint32_t waiting = stk_batch_calls_n(d->calls, STK_BATCH_LOGS);
    /* Begins at another job each time, so that all get their turn. */
    for (uint32_t k = 0; !d->logs_off && waiting < MAX_WAITING && k < d->n_jobs; k++) {
        batch_job *job = d->jobs[(d->next_log + k) % d->n_jobs];
        bool reads = job->state == STK_BATCH_RUNS || job->phase == BATCH_DRAIN;
        for (uint32_t i = 0; reads && job->streams != NULL && i < job->nodes; i++) {
            batch_stream *s = &job->streams[i];
            if (s->name != NULL && !s->is_asked && !s->is_read && s->due_ms <= now_ms) {
                ask_events(s);
                waiting++;
                d->next_log = (d->next_log + k + 1) % d->n_jobs;
            }
        }
    }
}

bool stk_batch_log_is_read(const batch_job *job)
{
    for (uint32_t i = 0; job->streams != NULL && i < job->nodes; i++) {
        if (job->streams[i].name != NULL && !job->streams[i].is_read) {
            return false;
        }
    }
    return true;
}
