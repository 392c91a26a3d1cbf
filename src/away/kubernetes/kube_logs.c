/* kube_logs: follows the pods' logs, each by one request as long as that works. A log's stream ends
 * before the pod does, by seconds on a busy node: so what ended in order is asked for again only if
 * the pod runs on for a while. Lines have time stamps, so that after a cut the log continues
 * where it was: we skip lines with older stamps, and as many lines with the same stamp as we have
 * passed on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "away/kubernetes/kube_driver.h"
#include "base/text.h"

enum { IDLE_MS = 600000, AGAIN_MS = 1000, PART_BYTES = 32 << 10, REST_BYTES = 4 << 20 };
enum {
    AGAIN_MAX_MS = 30000,
    REOPEN_MS = 20000,
    REOPEN_MAX_MS = 120000
}; /* each time twice as long */

typedef struct heard {
    stk_kube_task *task;
    stk_kube_log *log;
} heard;

static uint32_t node_of(const stk_kube_task *t, const stk_kube_log *log)
{
    return (uint32_t)(log - t->logs);
}

static void pass_on(stk_kube_task *t, const stk_kube_log *log, const char *data, size_t n)
{
    stk_remote_report report = {.state = STK_REMOTE_LOG,
                                .id = t->id,
                                .attempt = t->attempt,
                                .node = node_of(t, log),
                                .exit_status = -1,
                                .data = data,
                                .n = n};
    if (n > 0) {
        t->kube->base.say(t->kube->base.say_arg, &report);
    }
}

/* Takes a line with its stamp: a whole one, or (not `whole`) the first part of a long one. */
static void hear_line(stk_kube_task *t, stk_kube_log *log, const char *line, size_t n, bool whole,
                      stk_buf *out)
{
    const char *space = memchr(line, ' ', n < sizeof log->stamp ? n : sizeof log->stamp);
    size_t n_stamp = space == NULL ? 0 : (size_t)(space - line);
    const char *text = space == NULL ? line : space + 1;
    size_t n_text = n - (size_t)(text - line);
    char stamp[sizeof log->stamp] = "";
    (void)t;
    if (n_stamp < 20 || n_stamp >= sizeof stamp || line[4] != '-') { /* no stamp */
        (void)stk_buf_add(out, line, n);
        (void)stk_buf_add(out, "\n", whole);
        return;
    }
    memcpy(stamp, line, n_stamp);
    int order = strcmp(stamp, log->stamp); /* stamps go back if a node's clock is set back */
    bool is_part_of = log->n_part > 0 && order == 0 && log->n_skip == 0;
    if (log->is_behind && (order < 0 || (order == 0 && log->n_skip > 0))) {
        log->n_skip -= order == 0 && whole ? 1 : 0;
        return;
    }
    log->is_behind = false;
    size_t known = is_part_of && log->n_part <= n_text ? log->n_part : 0;
    (void)stk_buf_add(out, text + known, n_text - known);
    log->n_part = whole ? 0 : n_text;
    if (order != 0) {
        memcpy(log->stamp, stamp, sizeof stamp);
        log->n_same = 0;
        log->n_skip = 0;
    }
    if (whole) {
        (void)stk_buf_add(out, "\n", 1);
        log->n_same++;
    }
}

static bool on_log(void *arg, const void *data, size_t n)
{
    heard *h = arg;
    stk_kube_log *log = h->log;
    STK_BUF_AUTO out = STK_BUF_INIT(REST_BYTES);
    const char *c = data;
    while (n > 0) {
        const char *end = memchr(c, '\n', n);
        size_t part = end == NULL ? n : (size_t)(end - c);
        (void)stk_buf_add(&log->rest, c, part);
        if (end != NULL) {
            hear_line(h->task, log, stk_text_or(log->rest.data, ""), log->rest.len, true, &out);
            stk_buf_clear(&log->rest);
            part++;
        } else if (log->rest.len > PART_BYTES) {
            hear_line(h->task, log, log->rest.data, log->rest.len, false, &out);
        }
        c += part;
        n -= part;
    }
    if (out.len > 0) {
        log->n_ends = 0;
        pass_on(h->task, log, out.data, out.len);
    }
    return true;
}

static bool has_ended(const stk_kube_pod *p)
{
    return p->main == STK_KUBE_TERMINATED || p->gone || p->failed || p->succeeded;
}

/* The pod ended soon after its log's stream: the log is complete. */
static bool is_heard_out(const stk_kube_log *log, const stk_kube_pod *p)
{
    return log->state == KUBE_LOG_NONE && log->was_whole && has_ended(p);
}

/* `first_ms`, doubled for each end of a stream that brought nothing. */
static int64_t wait_of(const stk_kube_log *log, int64_t first_ms, int64_t most_ms)
{
    return MIN(first_ms << MIN(log->n_ends, 8), most_ms);
}

static void close_log(stk_kube_task *t, stk_kube_log *log)
{
    if (log->state == KUBE_LOG_OPEN) {
        *(log->is_last ? &t->kube->n_last_logs : &t->kube->n_logs) -= 1;
    }
    log->call = 0;
}

static void on_end(void *arg, const stk_kube_answer *a)
{
    heard *h = arg;
    stk_kube_task *t = h->task;
    stk_kube_log *log = h->log;
    const stk_kube_pod *p = &t->pods[node_of(t, log)];
    close_log(t, log);
    log->state = KUBE_LOG_NONE;
    bool is_good = a->good && a->status == 200;
    bool is_whole = is_good && has_ended(p);
    log->was_whole = is_good;
    log->not_before_ms = stk_kube_now();
    if (is_good) {
        log->not_before_ms += wait_of(log, REOPEN_MS, REOPEN_MAX_MS);
    } else {
        log->not_before_ms += wait_of(log, AGAIN_MS, AGAIN_MAX_MS);
    }
    log->n_ends++;
    if (is_good && log->rest.len > 0) { /* the last line has no newline */
        STK_BUF_AUTO out = STK_BUF_INIT(REST_BYTES);
        hear_line(t, log, log->rest.data, log->rest.len, false, &out);
        pass_on(t, log, out.data, out.len);
    }
    stk_buf_clear(&log->rest);
    if (is_whole || a->status == 404 || (a->status == 400 && has_ended(p))) {
        log->state = KUBE_LOG_DONE;
    } else if (a->status == 403) {
        log->state = KUBE_LOG_DONE;
        if (!t->kube->no_logs) {
            t->kube->no_logs = true;
            stk_kube_note(
                t->kube, t,
                "can't follow logs: %s; ask for the right to `get` pods/log for this user",
                a->text);
        }
    }
    free(h);
    stk_kube_task_settle(t, stk_kube_now());
}

static void open_log(stk_kube_task *t, stk_kube_log *log, const stk_kube_pod *p, bool is_last)
{
    stk_kube *k = t->kube;
    char since[80] = "";
    heard *h = calloc(1, sizeof *h);
    if (h == NULL) {
        return;
    }
    *h = (heard){t, log};
    if (*log->stamp != '\0') { /* the kubelet takes whole seconds, in its own zone */
        const char *zone = log->stamp + 19 + strspn(log->stamp + 19, ".0123456789");
        const char *sign = "";
        if (*zone == '+') {
            sign = "%2B";
            zone++;
        }
        (void)snprintf(since, sizeof since, "&sinceTime=%.19s%s%s", log->stamp, sign, zone);
    }
    log->is_behind = *log->stamp != '\0';
    log->n_skip = log->n_same;
    stk_arena_reset(k->scratch);
    const char *way = stk_arena_printf(
        k->scratch, "/api/v1/namespaces/%s/pods/%s/log?container=%s&follow=true&timestamps=true%s",
        t->space->name, p->name, STK_KUBE_MAIN, since);
    stk_kube_request request = {.method = "GET",
                                .way = way,
                                .idle_ms = IDLE_MS,
                                .is_relayed = true,
                                .on_body = on_log,
                                .done = on_end,
                                .arg = h};
    if (way == NULL || !stk_kube_begin(k, &request, &log->call)) {
        log->not_before_ms = stk_kube_now() + AGAIN_MS;
        free(h);
        return;
    }
    log->state = KUBE_LOG_OPEN;
    log->is_last = is_last;
    *(is_last ? &k->n_last_logs : &k->n_logs) += 1;
}

bool stk_kube_logs_step(stk_kube_task *t, int64_t now)
{
    stk_kube *k = t->kube;
    bool all = true;
    for (uint32_t i = 0; i < t->n; i++) {
        stk_kube_log *log = &t->logs[i];
        const stk_kube_pod *p = &t->pods[i];
        bool ran = p->main == STK_KUBE_RUNNING || p->main == STK_KUBE_TERMINATED;
        if (log->state != KUBE_LOG_NONE || !ran || t->ended) {
            continue;
        }
        if (is_heard_out(log, p)) {
            log->state = KUBE_LOG_DONE;
        } else if (!stk_kube_may_begin(k, log->not_before_ms, now)) {
            all = false;
        } else if (k->no_logs || p->gone) {
            log->state = KUBE_LOG_DONE;
        } else if (k->n_logs < KUBE_LOGS) {
            open_log(t, log, p, false);
        } else if (has_ended(p) && k->n_last_logs < KUBE_LAST_LOGS) {
            open_log(t, log, p, true);
        }
        all = all && log->state != KUBE_LOG_NONE;
    }
    return all;
}

bool stk_kube_logs_done(const stk_kube_task *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        bool ran = t->pods[i].main != STK_KUBE_UNKNOWN && t->pods[i].main != STK_KUBE_WAITING;
        if (ran && t->logs[i].state != KUBE_LOG_DONE && !is_heard_out(&t->logs[i], &t->pods[i])) {
            return false;
        }
    }
    return true;
}

void stk_kube_logs_free(stk_kube_task *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        if (t->logs[i].state == KUBE_LOG_OPEN) {
            free(stk_kube_stop(&t->kube->api, t->logs[i].call));
            close_log(t, &t->logs[i]);
        }
        stk_buf_done(&t->logs[i].rest);
    }
}
