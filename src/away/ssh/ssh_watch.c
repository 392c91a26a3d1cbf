/* Watches jobs: one look for all of a host, which waits there for news. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "away/remote/remote_order.h"
#include "away/ssh/ssh_driver.h"
#include "base/text.h"

enum {
    LOOK_SLACK_MS = 30000,
    TOLD_MS = 30000,
    NONE_MS = 10000,
    SOON_MS = 300,
    END_SLACK_MS = 20000
};

/* --- looks --- */

static bool is_over(const ssh_part *p)
{
    return p->now.state == SSH_JOB_ENDED || p->now.state == SSH_JOB_LOST;
}

static bool is_watched(const ssh_task *t, const ssh_part *p, uint32_t host)
{
    return p->host == host && p->is_known && (t->phase == SSH_LIVES || t->phase == SSH_RETREATS) &&
           (!is_over(p) || p->log_at < p->now.log_bytes);
}

static void report_log(ssh_driver *d, const ssh_task *t, uint32_t part, const char *data, size_t n)
{
    const stk_remote_report r = {.state = STK_REMOTE_LOG,
                                 .id = t->id,
                                 .attempt = t->attempt,
                                 .node = part,
                                 .data = data,
                                 .n = n};
    if (n > 0) {
        d->base.say(d->base.say_arg, &r);
    }
}

/* One job of an answer; its log begins at `data`. Returns the log's size. */
static size_t take_news(ssh_driver *d, ssh_task *t, uint32_t part, const stk_json *item,
                        const char *data, size_t n_data)
{
    size_t n = MIN((size_t)MAX(stk_json_get_whole(item, "piece", 0), 0), n_data);
    if (t == NULL || (t->phase != SSH_LIVES && t->phase != SSH_RETREATS) || part >= t->n_parts) {
        return n;
    }
    ssh_part *p = &t->parts[part];
    p->now.state = stk_ssh_state_of(stk_json_get_text(item, "state"));
    p->now.is_held = stk_json_is_true(stk_json_get(item, "held"));
    p->now.exit_status = (int)stk_json_get_whole(item, "exit_status", -1);
    p->now.signal = (int)stk_json_get_whole(item, "signal", 0);
    p->now.log_bytes = stk_json_get_whole(item, "log_bytes", 0);
    (void)snprintf(p->now.text, sizeof p->now.text, "%s",
                   stk_text_or(stk_json_get_text(item, "text"), ""));
    bool is_there = p->now.state > SSH_JOB_NEW;
    if (is_there) {
        p->none_since_ms = 0;
    } else if (p->none_since_ms == 0) {
        p->none_since_ms = stk_ssh_now_ms();
    }
    if (t->phase == SSH_LIVES) {
        report_log(d, t, part, data, n);
    }
    p->log_at += (int64_t)n;
    return n;
}

static void looked(ssh_driver *d, ssh_work *w)
{
    ssh_host *h = &d->hosts[w->host];
    const stk_json *jobs = stk_json_get(&w->answer, "jobs");
    size_t at = 0;
    h->is_looked_at = false;
    if (w->rc < 0) {
        stk_ssh_host_failed(d, (uint32_t)w->host, &w->err);
        h->next_look_ms = h->away_until_ms;
        return;
    }
    const char *full = stk_json_get_text(&w->answer, "full");
    const char *why = NULL;
    if (full != NULL) {
        why = stk_arena_printf(w->arena, "has no room at %s: its jobs go on when there is some",
                               full);
    }
    stk_ssh_host_answered(d, (uint32_t)w->host);
    stk_ssh_host_full(d, (uint32_t)w->host, why);
    h->next_look_ms = 0;
    for (uint32_t i = 0; i < w->n_parts && i < stk_json_n_items(jobs); i++) {
        const ssh_part *asked = &w->parts[i]; /* host: the task's id; n_cpus: the part */
        ssh_task *t = stk_ssh_task(d, asked->host, asked->cpus[0]);
        at += take_news(d, t, asked->n_cpus, stk_json_item(jobs, i), w->body.data + at,
                        w->body.len - at);
    }
}

static void put_job(const ssh_task *t, uint32_t part, stk_arena *arena, stk_buf *out)
{
    const ssh_part *p = &t->parts[part];
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "name", stk_ssh_part_name(t, part, arena));
    stk_json_put_text(out, "state", stk_ssh_state_word(p->now.state));
    stk_json_put_bool(out, "held", p->now.is_held);
    stk_json_put_whole(out, "from", p->log_at);
    stk_json_close(out, '}');
}

static uint32_t count_watched(const ssh_driver *d, uint32_t host)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_tasks; i++) {
        for (uint32_t p = 0; p < d->tasks[i]->n_parts; p++) {
            n += is_watched(d->tasks[i], &d->tasks[i]->parts[p], host);
        }
    }
    return n;
}

static void look_at_host(ssh_driver *d, uint32_t host)
{
    STK_BUF_AUTO out = STK_BUF_INIT(STK_LINK_HEAD_MAX);
    ssh_work *w = stk_ssh_work_new(stk_ssh_ask, looked, (int)host);
    bool is_starting = false;
    if (w == NULL) {
        return;
    }
    w->is_look = true;
    w->parts = stk_arena_array(w->arena, count_watched(d, host), sizeof *w->parts);
    stk_json_open(&out, NULL, '{');
    stk_json_put_text(&out, "op", "ssh.look");
    stk_json_open(&out, "jobs", '[');
    for (uint32_t i = 0; w->parts != NULL && i < d->n_tasks; i++) {
        const ssh_task *t = d->tasks[i];
        is_starting = is_starting || t->phase == SSH_STARTS;
        for (uint32_t p = 0; p < t->n_parts; p++) {
            if (is_watched(t, &t->parts[p], host)) {
                put_job(t, p, w->arena, &out);
                w->parts[w->n_parts++] =
                    (ssh_part){.host = t->id, .n_cpus = p, .cpus = {t->attempt}};
            }
        }
    }
    stk_json_close(&out, ']');
    int64_t wait = d->poll_ms;
    if (is_starting) {
        wait = MIN(wait, SOON_MS);
    }
    stk_json_put_whole(&out, "wait_ms", wait);
    stk_json_close(&out, '}');
    w->head = stk_buf_keep(&out, w->arena);
    w->timeout_ms = wait + LOOK_SLACK_MS;
    if (w->n_parts == 0 || w->head == NULL) {
        stk_ssh_work_free(w);
        return;
    }
    d->hosts[host].is_looked_at = stk_ssh_work_begin(d, w);
}

int64_t stk_ssh_look_at_hosts(ssh_driver *d, int64_t now)
{
    int64_t next = INT64_MAX;
    for (uint32_t h = 0; h < d->n_hosts; h++) {
        bool any = count_watched(d, h) > 0;
        int64_t due = MAX(d->hosts[h].next_look_ms, d->hosts[h].away_until_ms);
        if (any && !d->hosts[h].is_looked_at && now >= due) {
            look_at_host(d, h);
        } else if (any && !d->hosts[h].is_looked_at) {
            next = MIN(next, due);
        }
    }
    return next;
}

/* --- words to all hosts of a job --- */

static void run_tell(ssh_driver *d, ssh_work *w)
{
    stk_json answer;
    for (uint32_t p = 0; p < w->n_parts && w->rc == 0; p++) {
        w->part = p;
        w->rc = stk_ssh_ask_host(d, w->parts[p].host, w->orders[p], w->timeout_ms, w->arena,
                                 &answer, NULL, &w->err);
    }
}

/* Sends {"op": op, "name": …, "grace_ms": …} to each host of it. */
static void tell_all(ssh_driver *d, ssh_task *t, const char *op, int64_t grace_ms,
                     void (*done)(ssh_driver *d, ssh_work *w))
{
    ssh_work *w = stk_ssh_work_new(run_tell, done, -1);
    const char **orders = w == NULL ? NULL : stk_arena_array(w->arena, t->n_parts, sizeof *orders);
    if (orders == NULL ||
        (w->parts = stk_arena_array(w->arena, t->n_parts, sizeof *w->parts)) == NULL) {
        stk_ssh_work_free(w);
        return;
    }
    for (uint32_t p = 0; p < t->n_parts; p++) {
        STK_BUF_AUTO out = STK_BUF_INIT(4096);
        if (!t->parts[p].is_known) {
            continue;
        }
        stk_json_open(&out, NULL, '{');
        stk_json_put_text(&out, "op", op);
        stk_json_put_text(&out, "name", stk_ssh_part_name(t, p, w->arena));
        stk_json_put_whole(&out, "grace_ms", grace_ms);
        stk_json_close(&out, '}');
        orders[w->n_parts] = stk_buf_keep(&out, w->arena);
        w->parts[w->n_parts++] = t->parts[p];
    }
    w->orders = orders;
    w->id = t->id;
    w->attempt = t->attempt;
    w->timeout_ms = TOLD_MS;
    t->is_at_work = stk_ssh_work_begin(d, w);
}

/* A word that didn't arrive is said again; saying it twice is harmless. */
static ssh_task *was_told(ssh_driver *d, ssh_work *w)
{
    ssh_task *t = stk_ssh_task(d, w->id, w->attempt);
    if (t == NULL) {
        return NULL;
    }
    t->is_at_work = false;
    if (w->rc < 0) {
        stk_ssh_host_failed(d, w->parts[w->part].host, &w->err);
        t->again_ms = stk_ssh_now_ms() + SSH_AGAIN_MS;
        return NULL;
    }
    return t;
}

static void stop_told(ssh_driver *d, ssh_work *w)
{
    ssh_task *t = was_told(d, w);
    if (t != NULL) {
        t->is_stop_sent = true;
    }
}

static void go_told(ssh_driver *d, ssh_work *w)
{
    ssh_task *t = was_told(d, w);
    for (uint32_t p = 0; t != NULL && p < t->n_parts; p++) {
        t->parts[p].is_let_go = true;
    }
}

/* All of it is gone from its hosts, so that it can be given to hosts again. */
static void retreat_done(ssh_driver *d, ssh_work *w)
{
    ssh_task *t = was_told(d, w);
    if (t == NULL) {
        return;
    }
    stk_ssh_release(d, t, true);
    t->phase = SSH_WAITS;
    t->is_stop_sent = t->may_be_there = t->was_recorded = false;
    t->again_ms = stk_ssh_now_ms() + SSH_AGAIN_MS / 4;
    if (t->is_stopped) {
        stk_ssh_fail(d, t, t->why, false, "stopped while it waited for a host");
    }
}

/* --- a job that lives --- */

static bool all_over(const ssh_task *t)
{
    for (uint32_t p = 0; p < t->n_parts; p++) {
        const ssh_part *part = &t->parts[p];
        if (part->is_known && (!is_over(part) || part->log_at < part->now.log_bytes)) {
            return false;
        }
    }
    return true;
}

static const ssh_part *busy_part(const ssh_task *t)
{
    for (uint32_t p = 0; p < t->n_parts; p++) {
        if (t->parts[p].now.state == SSH_JOB_ENDED &&
            t->parts[p].now.exit_status == STK_AGENT_BUSY) {
            return &t->parts[p];
        }
    }
    return NULL;
}

static bool is_lost_part(const ssh_task *t)
{
    for (uint32_t p = 0; p < t->n_parts; p++) {
        if (t->parts[p].now.state == SSH_JOB_LOST) {
            return true;
        }
    }
    return false;
}

static void retreat(ssh_driver *d, ssh_task *t, const ssh_part *busy)
{
    char text[1000];
    (void)snprintf(text, sizeof text, "%s: %s", d->hosts[busy->host].name, busy->now.text);
    stk_ssh_waits(d, t, text);
    t->tried |= 1ull << busy->host;
    t->phase = SSH_RETREATS;
}

/* A record names hosts that don't have it: an earlier engine was killed before it asked them, or
 * they have forgotten it. Returns true if the task was seen to. */
static bool see_to_missing(ssh_driver *d, ssh_task *t, int64_t now)
{
    int64_t since = 0;
    for (uint32_t p = 0; p < t->n_parts; p++) {
        since = MAX(since, t->parts[p].none_since_ms);
    }
    if (since == 0) {
        return false;
    }
    if (t->has_end) {
        for (uint32_t p = 0; p < t->n_parts; p++) {
            t->parts[p].now = (ssh_job_now){.state = SSH_JOB_ENDED, .exit_status = -1};
        }
        stk_ssh_report_end(d, t);
    } else if (t->is_stopped) {
        if (!t->is_stop_sent && now >= t->again_ms) { /* whoever would start it yet finds it */
            tell_all(d, t, "ssh.stop", 0, stop_told);
        } else if (t->is_stop_sent) {
            stk_ssh_fail(d, t, t->why, false, "stopped before its hosts had it");
        }
    } else if (t->was_recorded && !t->spec->reads) {
        stk_ssh_start(d, t);
    } else if (now - since > NONE_MS) { /* sooner, the answer may be older than its start */
        stk_ssh_fail(d, t, STK_FAIL_LOST, false, "its host doesn't have it any more");
    }
    return true;
}

static void see_to_running(ssh_driver *d, ssh_task *t)
{
    char text[600] = "";
    bool all_held = true, all_let_go = true;
    for (uint32_t p = 0; p < t->n_parts; p++) {
        const char *lead = ", ";
        size_t n = strlen(text);
        if (p == 0) {
            lead = t->n_parts == 1 ? "host " : "hosts ";
        }
        all_held = all_held && t->parts[p].now.is_held;
        all_let_go = all_let_go && t->parts[p].is_let_go;
        (void)snprintf(text + n, sizeof text - n, "%s%s", lead, d->hosts[t->parts[p].host].name);
    }
    if (all_held && !t->is_running) {
        t->is_running = true;
        stk_ssh_say(d, t, STK_REMOTE_RUNNING, text);
    }
    if (all_held && t->n_parts > 1 && !all_let_go && !t->spec->reads) {
        tell_all(d, t, "ssh.go", 0, go_told);
    }
}

static void see_to_one(ssh_driver *d, ssh_task *t, int64_t now)
{
    const ssh_part *busy = busy_part(t);
    if (see_to_missing(d, t, now)) {
        return;
    }
    if (all_over(t) && (busy == NULL || t->is_stopped || t->spec->reads)) {
        t->phase = SSH_ENDS;
    } else if (busy != NULL && !t->is_stopped && !t->spec->reads) {
        retreat(d, t, busy);
    } else if (t->is_stopped && !t->is_stop_sent && !t->spec->reads) {
        int64_t slack = END_SLACK_MS * (t->grace_ms > 0);
        tell_all(d, t, "ssh.stop", MAX(t->grace_ms, 0) + slack, stop_told);
    } else if (!t->is_stopped && is_lost_part(t) && !t->is_stop_sent && !t->spec->reads) {
        tell_all(d, t, "ssh.stop", t->spec->grace_ms, stop_told); /* the gang's other hosts */
    } else {
        see_to_running(d, t);
    }
}

static void see_to_retreat(ssh_driver *d, ssh_task *t)
{
    bool is_left = false;
    for (uint32_t p = 0; p < t->n_parts; p++) {
        const ssh_part *part = &t->parts[p];
        is_left = is_left || (part->is_known && !is_over(part) && part->none_since_ms == 0);
    }
    if (!is_left) {
        tell_all(d, t, "ssh.forget", 0, retreat_done);
    } else if (!t->is_stop_sent) {
        tell_all(d, t, "ssh.stop", 0, stop_told);
    }
}

int64_t stk_ssh_see_to_live(ssh_driver *d, int64_t now)
{
    int64_t next = INT64_MAX;
    for (uint32_t i = 0; i < d->n_tasks; i++) {
        ssh_task *t = d->tasks[i];
        bool is_due = now >= t->again_ms;
        if (!t->is_at_work && !is_due && t->phase != SSH_OVER && t->phase != SSH_WAITS) {
            next = MIN(next, t->again_ms);
        }
        if (t->is_at_work || !is_due) {
            continue;
        }
        if (t->phase == SSH_FIND) {
            stk_ssh_find(d, t);
        } else if (t->phase == SSH_STARTS && t->is_stopped && !t->may_be_there) {
            stk_ssh_release(d, t, true);
            stk_ssh_fail(d, t, t->why, false, "stopped before its submission");
        } else if (t->phase == SSH_STARTS && t->is_stopped) {
            t->phase = SSH_LIVES; /* it ends wherever it is */
        } else if (t->phase == SSH_STARTS) {
            stk_ssh_start(d, t);
        } else if (t->phase == SSH_LIVES) {
            see_to_one(d, t, now);
        } else if (t->phase == SSH_RETREATS) {
            see_to_retreat(d, t);
        }
        if (t->phase == SSH_ENDS && !t->is_at_work && now >= t->again_ms) {
            stk_ssh_bring_results(d, t);
        }
    }
    return next;
}
