/* kube_task: one job from its first request to its last: it is sent or found in the cluster,
 * watched, and removed. Each step can be repeated. A job has one request under way at a time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "away/kubernetes/kube_driver.h"
#include "away/kubernetes/kube_manifest.h"
#include "base/map.h"
#include "base/text.h"

enum { AT_ONCE = -1 }; /* a grace: no pod to end */
enum { AGAIN_MS = 1000, QUOTA_MS = 5000, LAG_MS = 10000, LOGS_MS = 20000, REMOVE_MS = 90000 };
enum { LOOK_MS = 3000, LOOK_MAX_MS = 30000, LOOK_GAP_MS = 200, LOOKS = 2, SILENT_MS = 5000 };
enum { LOST_S = 300 };      /* tolerationSeconds that the API server gives pods without their own */
enum { EVENTS_MS = 10000 }; /* so long events are watched for a job that waits silently */
enum {
    SETTLE_MS = 250,
    KILL_MS = 5000,
    KILLS_ASKED = 2,
    TERMINATING_MS = 60000, /* past its grace: no kubelet ends it */
    OWN_LAG_MS = 30000,
    GONE_MS = 500
};

/* --- reports --- */

static void say(stk_kube_task *t, stk_remote_report *report)
{
    report->id = t->id;
    report->attempt = t->attempt;
    t->kube->base.say(t->kube->base.say_arg, report);
}

/* Adds how to end the job by hand, within the length that is kept of an end's text. */
static void say_it_lives(const stk_kube_task *t, stk_remote_report *report)
{
    char how[360];
    const stk_kube_way *w = &t->ways[t->i_way];
    int n =
        snprintf(how, sizeof how, "; its %s may still run: `kubectl -n %s delete %s %s` ends it",
                 w->kind, t->space->name, w->word, t->name);
    size_t len = strnlen(report->text, (size_t)MAX(STK_REMOTE_WORDS - 1 - n, 0));
    (void)snprintf(report->text + len, sizeof report->text - len, "%s", how);
}

static void finish(stk_kube_task *t, const stk_remote_report *end)
{
    stk_remote_report report = *end;
    if (!t->ended) {
        t->ended = true;
        report.is_hopeless = t->is_hopeless;
        if (t->lives) {
            say_it_lives(t, &report);
        }
        stk_kube_logs_free(t);
        say(t, &report);
    }
}

/* Removes the job within grace_ms, then reports its failure. AT_ONCE: nothing to remove. */
static void fail(stk_kube_task *t, int64_t grace_ms, stk_failure failure, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static void fail(stk_kube_task *t, int64_t grace_ms, stk_failure failure, const char *fmt, ...)
{
    stk_remote_report end = {.state = STK_REMOTE_FAILED, .exit_status = -1, .failure = failure};
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(end.text, sizeof end.text, fmt, args);
    va_end(args);
    if (grace_ms == AT_ONCE) {
        finish(t, &end);
    } else {
        stk_kube_task_remove(t, &end, grace_ms);
    }
}

static void say_queued(stk_kube_task *t, const char *words)
{
    stk_remote_report report = {.state = STK_REMOTE_QUEUED, .exit_status = -1};
    if (strcmp(t->words, words) != 0) {
        (void)snprintf(t->words, sizeof t->words, "%s", words);
        (void)snprintf(report.text, sizeof report.text, "%s", words);
        say(t, &report);
    }
}

static void say_running(stk_kube_task *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        const stk_kube_pod *p = &t->pods[i];
        if ((p->main == STK_KUBE_RUNNING || p->main == STK_KUBE_TERMINATED) &&
            !t->logs[i].said_running) {
            stk_remote_report report = {.state = STK_REMOTE_RUNNING, .node = i, .exit_status = -1};
            (void)snprintf(report.text, sizeof report.text, "node %s", p->node);
            t->logs[i].said_running = true;
            t->has_run = true;
            say(t, &report);
        }
    }
}

/* --- judging the job --- */

/* Marks pods as gone that were deleted but don't end, because their node is silent. */
static void give_up_pods(stk_kube_task *t, int64_t now)
{
    bool any = false;
    for (uint32_t i = 0; i < t->n; i++) {
        stk_kube_pod *p = &t->pods[i];
        bool hangs = p->deleting && !p->gone && p->main == STK_KUBE_RUNNING;
        any = any || hangs;
        /* If Kubernetes knows that the node is silent, waiting for its answer is useless. */
        bool silent = !p->ready && strcmp(p->disruption, "DeletionByTaintManager") == 0;
        int64_t patience = t->grace_ms + TERMINATING_MS;
        if (silent) {
            patience = t->grace_ms + SILENT_MS;
        }
        if (hangs && t->deleting_ms > 0 && now - t->deleting_ms > patience) {
            p->gone = true;
        }
        if (p->main == STK_KUBE_RUNNING && !p->ready && !p->deleting && t->has_run &&
            !t->said_lost) {
            if (t->unsure_ms == 0) {
                t->unsure_ms = now;
            } else if (now - t->unsure_ms > SILENT_MS) {
                t->said_lost = true;
                stk_kube_note(t->kube, t,
                              "node %s has stopped answering; Kubernetes removes its pods %lld s "
                              "after that (option node_lost_seconds)",
                              p->node, (long long)t->lost_s);
            }
        }
    }
    if (!any) {
        t->deleting_ms = 0;
    } else if (t->deleting_ms == 0) {
        t->deleting_ms = now;
    }
}

/* Fails a job that waits too long. An outage doesn't count; after it the time begins anew. */
static void check_patience(stk_kube_task *t, int64_t now)
{
    const stk_kube_api *api = &t->kube->api;
    if (t->pending_ms <= 0 || t->has_run ||
        now - MAX(t->since_ms, t->kube->back_ms) <= t->pending_ms) {
        return;
    }
    bool is_away = stk_kube_away_since(api) > 0;
    if (is_away && api->answered) {
        return;
    }
    stk_failure failure = stk_kube_blame(t->pods, t->n);
    const char *words = "the cluster gives no reason";
    if (is_away) { /* it was never there: another attempt would wait in vain, too */
        failure = STK_FAIL_START;
        t->is_hopeless = true;
        words = stk_text_or(stk_text_if_any(api->down), "the API server doesn't answer");
    } else if (*t->words != '\0') {
        words = t->words;
    } else if (t->pods[0].scheduled) {
        words = "its container is still being created";
    }
    fail(t, 0, failure, "it didn't start within %lld s: %.900s", (long long)(t->pending_ms / 1000),
         words);
}

/* The pod may exist before its Secret, and retries only after a while: such a reason isn't news. */
static bool waits_for_us(const stk_kube_task *t, const char *words, int64_t now)
{
    char secret[STK_KUBE_NAME + 16];
    (void)snprintf(secret, sizeof secret, "secret \"%s\"", t->name);
    bool made = t->made_ms > 0 && now - t->made_ms > OWN_LAG_MS;
    return !made && strstr(words, secret) != NULL;
}

void stk_kube_task_settle(stk_kube_task *t, int64_t now)
{
    stk_kube_verdict v;
    t->idle_until_ms = 0;
    if (t->ended || t->removing) {
        return;
    }
    give_up_pods(t, now);
    stk_kube_judge(&t->job, t->pods, t->n, &v);
    if (!t->posted && !t->maybe) {
        check_patience(t, now);
        return;
    }
    say_running(t);
    if (v.hopeless) {
        v.report.state = STK_REMOTE_FAILED;
        stk_kube_task_remove(t, &v.report, 0);
    } else if (v.is_end) {
        int64_t lag = LAG_MS;
        if (t->n > 1 && !t->job.complete) { /* the other nodes are still being ended */
            lag = t->grace_ms + TERMINATING_MS;
        }
        if (t->end_seen_ms == 0) {
            t->end_seen_ms = now;
        }
        bool believed = !v.unsure || now - t->end_seen_ms > lag;
        if (believed && (stk_kube_logs_done(t) || now - t->end_seen_ms > LOGS_MS)) {
            finish(t, &v.report);
        }
    } else {
        t->end_seen_ms = 0;
        if (v.report.state == STK_REMOTE_QUEUED && !t->has_run) {
            const char *words = stk_text_or(stk_text_if_any(v.report.text), t->event);
            char more[sizeof t->words];
            if (waits_for_us(t, words, now)) {
                words = "";
            }
            if (*t->misfit != '\0' && strstr(words, "node affinity") != NULL) {
                (void)snprintf(more, sizeof more, "%s (%.500s)", t->misfit, words);
                words = more;
            }
            if (*words != '\0' || *t->words == '\0') {
                say_queued(t, words);
            }
            check_patience(t, now);
        }
    }
}

void stk_kube_task_remove(stk_kube_task *t, const stk_remote_report *end, int64_t grace_ms)
{
    int64_t now = stk_kube_now();
    if (t->reads) {
        finish(t, end);
    }
    if (t->ended) {
        return;
    }
    if (!t->removing) {
        t->end = *end;
        t->removing = true;
        t->give_up_ms = now + grace_ms + REMOVE_MS;
    }
    t->kill_ms = INT64_MAX;
    if (grace_ms < t->grace_ms) {
        t->kill_ms = now + grace_ms;
    }
    t->not_before_ms = t->idle_until_ms = 0;
    if (t->op == KUBE_IDLE && !t->posted && !t->maybe && !t->ask) { /* it was never sent */
        finish(t, &t->end);
    }
}

/* --- requests --- */

/* `way` NULL: there was no memory for the request, which is tried again later. */
static void begin(stk_kube_task *t, const char *method, const char *way, const char *body,
                  void (*done)(void *, const stk_kube_answer *), int op)
{
    stk_kube_request request = {.method = method, .way = way, .body = body, .done = done, .arg = t};
    if (way != NULL && stk_kube_begin(t->kube, &request, &t->call)) {
        t->op = op;
        t->kube->n_ops++;
    } else {
        t->not_before_ms = stk_kube_now() + AGAIN_MS;
    }
}

/* Call it after each answer. Returns true for a temporary or a fatal one. */
static bool is_passing(stk_kube_task *t, const stk_kube_answer *a)
{
    t->kube->n_ops--;
    t->op = KUBE_IDLE;
    t->idle_until_ms = 0;
    return stk_kube_passes(t->kube, a, AGAIN_MS / 4, &t->not_before_ms);
}

static const stk_kube_way *way(const stk_kube_task *t)
{
    return &t->ways[t->i_way];
}

/* The preferred way doesn't work here: only the other one is left. */
static void drop_way(stk_kube_task *t)
{
    t->ways[0] = t->ways[--t->n_ways];
    t->i_way = 0;
    t->open = t->is_allowed = false;
}

static const char *way_of(const stk_kube_task *t, const char *group, const char *plural,
                          const char *query)
{
    stk_arena_reset(t->kube->scratch);
    return stk_arena_printf(t->kube->scratch, "%s/namespaces/%s/%s%s", group, t->space->name,
                            plural, query);
}

/* The path of the Job (or JobSet) itself. */
static const char *way_of_job(const stk_kube_task *t)
{
    stk_arena_reset(t->kube->scratch);
    return stk_arena_printf(t->kube->scratch, "%s/namespaces/%s/%s/%s", way(t)->group,
                            t->space->name, way(t)->plural, t->name);
}

static void begin_get(stk_kube_task *t, void (*done)(void *, const stk_kube_answer *))
{
    begin(t, "GET", way_of_job(t), NULL, done, KUBE_GET);
}

static void know_job(stk_kube_task *t, const stk_kube_answer *a)
{
    t->posted = t->maybe = true;
    t->since_ms = stk_kube_now(); /* before, it waited for us, not for the cluster */
    t->listed_before = MAX(t->space->jobs.n_lists, t->space->pods.n_lists);
    if (a->json != NULL) {
        (void)snprintf(t->job.uid, sizeof t->job.uid, "%s",
                       stk_kube_text_at(a->json, "metadata/uid"));
        const char *uid = stk_arena_dup(t->arena, t->job.uid);
        for (uint32_t i = 1; uid != NULL && i < way(t)->docs.n; i++) {
            const stk_json *owners =
                stk_kube_at(&way(t)->docs.items[i], "metadata/ownerReferences");
            (void)stk_json_set(t->arena, (stk_json *)(uintptr_t)stk_json_item(owners, 0), "uid",
                               stk_json_of_text(uid));
        }
    }
    if (t->i_doc == 0) {
        t->i_doc = 1;
    }
}

static void refused(stk_kube_task *t, const stk_kube_answer *a)
{
    bool is_quota = a->status == 403 && strstr(a->text, "exceeded quota") != NULL;
    t->lives = !is_quota && (t->posted || t->maybe); /* an answer was lost: it may exist */
    bool is_sure;
    const char *way_out = stk_kube_refusal_way(a->text, &is_sure);
    t->is_hopeless = !is_quota && (a->status == 403 || is_sure);
    if (is_quota) {
        char words[900];
        (void)snprintf(words, sizeof words,
                       "the namespace's quota is used up: %.700s; wait for other pods to end, or "
                       "ask for a higher quota",
                       a->text);
        say_queued(t, words);
        t->not_before_ms = stk_kube_now() + QUOTA_MS;
    } else if (a->status == 403) {
        fail(t, AT_ONCE, STK_FAIL_START, "the cluster refused it: %.700s; %s", a->text,
             stk_text_or(way_out, "`stoker stack check` lists the needed rights"));
    } else if (a->status == 404 && t->i_doc == 0 && strstr(a->text, "namespaces") != NULL) {
        fail(t, AT_ONCE, STK_FAIL_START,
             "namespace '%s' doesn't exist; create it, or use another one", t->space->name);
    } else if (a->status == 404) {
        fail(t, AT_ONCE, STK_FAIL_START, "the cluster has no %s: %s%s", way(t)->plural, a->text,
             stk_text_when(
                 way(t)->is_set,
                 "; install JobSet, or remove the option jobset to run it as an Indexed Job"));
    } else if (a->status == 413) {
        fail(t, AT_ONCE, STK_FAIL_START,
             "its Job is too large for the API server: %.600s; shorten its environment", a->text);
    } else {
        fail(t, AT_ONCE, STK_FAIL_START, "the API server refused its Job: %.900s", a->text);
    }
}

static void on_post(void *arg, const stk_kube_answer *a)
{
    stk_kube_task *t = arg;
    bool first = t->i_doc == 0;
    if (first && a->rc < 0) {
        t->maybe = t->kube->api.answered; /* the connection broke: it may have arrived */
    }
    if (is_passing(t, a)) {
        return;
    }
    if (a->good && first) {
        know_job(t, a);
    } else if (a->good || (!first && a->status == 409)) {
        t->i_doc++;
    } else if (a->status == 409) { /* exists already: from an earlier engine? */
        t->ask = true;
    } else if (!first && a->status == 404) {
        t->i_doc = way(t)->docs.n;
    } else if (first && t->open && (a->status == 403 || a->status == 404) &&
               strstr(a->text, "exceeded quota") == NULL && strstr(a->text, "namespaces") == NULL) {
        drop_way(t); /* no right to JobSets: the user didn't ask for one */
    } else if (first) {
        refused(t, a);
    } else {
        fail(t, 0, STK_FAIL_START, "can't create the objects that its Job needs: %.900s", a->text);
    }
}

static void on_get(void *arg, const stk_kube_answer *a)
{
    stk_kube_task *t = arg;
    if (is_passing(t, a)) {
        return;
    }
    bool not_there = a->status == 404 || (a->status == 403 && way(t)->is_set && t->n_ways > 1);
    if (not_there && t->i_way + 1 < t->n_ways) {
        t->i_way++;
        return;
    }
    t->ask = false;
    if (a->good) {
        const stk_json *labels = stk_kube_at(a->json, "metadata/labels");
        char run[STK_KUBE_NAME + 1];
        if (a->json != NULL && strcmp(stk_kube_text_at(labels, STK_KUBE_LABEL_RUN),
                                      stk_kube_label(t->kube->config->run, run)) != 0) {
            fail(t, AT_ONCE, STK_FAIL_START,
                 "%s '%s' of another run is in namespace '%s'; remove it", way(t)->kind, t->name,
                 t->space->name);
            t->maybe = false;
            return;
        }
        know_job(t, a);
        if (a->json != NULL && !way(t)->is_set) {
            stk_kube_read_job(a->json, &t->job);
            stk_kube_task_settle(t, stk_kube_now());
        }
    } else if (not_there && t->removing) {
        finish(t, &t->end);
    } else if (not_there && (t->attach || t->posted)) {
        fail(t, AT_ONCE, STK_FAIL_LOST, "its Job %s no longer exists in namespace '%s'", t->name,
             t->space->name);
    } else if (!not_there) {
        t->maybe = true; /* it may exist */
        refused(t, a);
    }
    if (!t->posted) {
        t->i_way = 0;
    }
}

static void mark_gone(stk_kube_task *t)
{
    t->job.gone = t->set_gone = true;
}

/* Polls whether the removed object still exists: we watch no JobSets, and nothing without the right
 * to watch. Without the right to get it, we trust that the accepted DELETE works. */
static void on_gone(void *arg, const stk_kube_answer *a)
{
    stk_kube_task *t = arg;
    if (!is_passing(t, a)) {
        t->not_before_ms = stk_kube_now() + GONE_MS;
        if (a->status == 404 || a->status == 403) {
            mark_gone(t);
        }
    }
}

static void on_delete(void *arg, const stk_kube_answer *a)
{
    stk_kube_task *t = arg;
    if (is_passing(t, a)) {
        return;
    }
    t->removed = true;
    if (a->good) {
        return;
    }
    mark_gone(t); /* ttlSecondsAfterFinished removes a forgotten one in any case */
    if (a->status != 404 && !t->forgotten) {
        stk_kube_note(t->kube, t, "can't remove its Job %s: %s", t->name, a->text);
        t->lives = true;
    }
}

static void begin_delete(stk_kube_task *t, const char *policy)
{
    STK_BUF_AUTO body = STK_BUF_INIT(1024);
    stk_kube_put_delete(&body, policy);
    begin(t, "DELETE", body.failed ? NULL : way_of_job(t), body.data, on_delete, KUBE_DELETE);
}

static void on_kill(void *arg, const stk_kube_answer *a)
{
    stk_kube_task *t = arg;
    if (!is_passing(t, a)) { /* repeated, for pods created meanwhile */
        t->kill_ms = stk_kube_now() + KILL_MS;
        t->n_kills++;
    }
}

static void on_look(void *arg, const stk_kube_answer *a)
{
    stk_kube_task *t = arg;
    t->kube->n_looks--;
    if (is_passing(t, a) || a->json == NULL) {
        return;
    }
    const stk_json *items = stk_kube_at(a->json, "items");
    for (uint32_t i = 0; i < stk_json_n_items(items); i++) {
        stk_kube_task_hear(t, &items->items[i]);
    }
    stk_kube_task_settle(t, stk_kube_now());
}

/* --- the next request --- */

/* Documents after the first: objects that the Job owns. */
static const struct owned {
    const char *kind, *plural;
    stk_kube_need need;
} owned[] = {{"Secret", "secrets", KUBE_FOR_SECRETS}, {"Service", "services", KUBE_FOR_SERVICES}};

static const struct owned *owned_by(const stk_json *doc)
{
    return &owned[stk_json_is(stk_json_get(doc, "kind"), owned[1].kind)];
}

static void post(stk_kube_task *t)
{
    const stk_json *doc = &way(t)->docs.items[t->i_doc];
    const char *group = way(t)->group, *plural = way(t)->plural;
    if (t->i_doc > 0) {
        group = KUBE_CORE;
        plural = owned_by(doc)->plural;
    }
    STK_BUF_AUTO body = STK_BUF_INIT(SIZE_MAX / 2);
    stk_json_dump(doc, &body);
    const char *to = body.failed ? NULL : way_of(t, group, plural, "?fieldValidation=Strict");
    begin(t, "POST", to, body.data, on_post, KUBE_POST);
}

/* A JobSet can outlive its Job, and may create it anew. */
static bool is_there(const stk_kube_task *t)
{
    bool is_gone = (way(t)->is_set && t->set_gone) || (!way(t)->is_set && t->job.gone);
    return (t->posted || t->maybe) && !is_gone;
}

static void step_removal(stk_kube_task *t, int64_t now)
{
    bool there = is_there(t);
    if (there && !t->removed) {
        begin_delete(t, "Foreground");
    } else if (there && now >= t->kill_ms) {
        char query[160];
        (void)snprintf(query, sizeof query,
                       "?labelSelector=" STK_KUBE_LABEL_JOB "%%3D%s&gracePeriodSeconds=%d", t->name,
                       t->n_kills < KILLS_ASKED); /* 0: even if the node doesn't answer */
        begin(t, "DELETE", way_of(t, KUBE_CORE, "pods", query), NULL, on_kill, KUBE_KILL);
    } else if (there && now > t->give_up_ms) {
        stk_kube_note(t->kube, t,
                      "its Job %s still exists after its deletion; `kubectl -n %s describe job %s` "
                      "may show why",
                      t->name, t->space->name, t->name);
        t->lives = true;
        finish(t, &t->end);
    } else if (there && (way(t)->is_set || t->kube->fatal.code != 0 || !t->is_allowed)) {
        begin_get(t, on_gone);
    } else if (!there) {
        finish(t, &t->end);
    }
}

/* Why does it wait? Events may tell. If we may not watch them, it asks for its own now and then. */
static void look(stk_kube_task *t, int64_t now)
{
    stk_kube *k = t->kube;
    const stk_kube_pod *p = &t->pods[0];
    for (uint32_t i = 0; i < t->n; i++) {
        if (t->pods[i].main != STK_KUBE_RUNNING && *t->pods[i].name != '\0') {
            p = &t->pods[i];
        }
    }
    stk_kube_feed *events = &t->space->events;
    bool silent = *p->name == '\0' || (p->scheduled && (*p->message == '\0'));
    if (t->has_run || !silent) {
        return;
    }
    if (t->look_ms == 0) {
        t->look_ms = now + LOOK_MS;
    }
    if (now >= t->look_ms && !events->refused) {
        events->until_ms = now + EVENTS_MS;
    } else if (now >= t->look_ms && k->n_looks < LOOKS && now >= k->look_ms) {
        char query[400];
        const char *of = p->name, *more = "";
        if (*of == '\0') {
            of = t->name;
            if (way(t)->is_set && t->job.seen) {
                more = STK_KUBE_OF_SET;
            }
        }
        (void)snprintf(query, sizeof query, "?fieldSelector=involvedObject.name%%3D%s%s", of, more);
        int64_t wait = (int64_t)LOOK_MS << MIN(t->n_looks, 4);
        t->n_looks++;
        t->look_ms = now + MIN(wait, LOOK_MAX_MS);
        k->look_ms = now + LOOK_GAP_MS;
        begin(t, "GET", way_of(t, KUBE_CORE, "events", query), NULL, on_look, KUBE_LOOK);
        k->n_looks += t->op == KUBE_LOOK;
    }
}

/* Chooses between JobSet and Job. Returns false while the cluster hasn't answered. */
static bool decide(stk_kube_task *t, int64_t now)
{
    bool known = stk_kube_knows_sets(t->kube, now);
    if (known && t->kube->sets == KUBE_SETS_NONE) {
        drop_way(t);
    }
    return known;
}

/* A right that the job's documents need and we lack; NULL: none. */
static const stk_kube_right *find_missing(stk_kube_task *t)
{
    const stk_kube_right *missing = stk_kube_missing(t->space, KUBE_FOR_ALL);
    const stk_kube_right *of_sets = NULL;
    if (way(t)->is_set) {
        of_sets = stk_kube_missing(t->space, KUBE_FOR_SETS);
    }
    if (of_sets != NULL && t->open && t->n_ways > 1) {
        drop_way(t); /* the user didn't ask for one */
        of_sets = NULL;
    }
    if (missing == NULL) {
        missing = of_sets;
    }
    for (uint32_t i = 1; missing == NULL && i < way(t)->docs.n; i++) {
        missing = stk_kube_missing(t->space, owned_by(&way(t)->docs.items[i])->need);
    }
    return missing;
}

/* Checks our rights before the job's first request. Returns false if they aren't known yet, or one
 * is missing; then the job fails, even one that an earlier engine created: we couldn't watch it. */
static bool is_allowed(stk_kube_task *t, int64_t now)
{
    if (t->is_allowed || t->removing || t->reads) {
        return true;
    }
    if (!stk_kube_knows_rights(t->space, now)) {
        return false;
    }
    const stk_kube_right *missing = find_missing(t);
    t->is_allowed = missing == NULL;
    if (missing != NULL) {
        t->is_hopeless = true;
        fail(t, t->grace_ms, STK_FAIL_START,
             "no right to %s %s in namespace '%s' (needed %s); ask for a Role with it for this "
             "user; `stoker stack check` lists the needed rights",
             missing->verb, missing->resource, t->space->name, missing->why);
    }
    return t->is_allowed;
}

void stk_kube_task_give_up(stk_kube_task *t, bool is_last)
{
    int64_t grace_ms = t->grace_ms;
    t->is_hopeless = true;
    if (is_last) {
        grace_ms = AT_ONCE;
        t->lives = t->posted || t->maybe || t->ask;
    }
    if (is_last && t->removing) {
        finish(t, &t->end);
    } else {
        fail(t, grace_ms, STK_FAIL_START, "%.400s", t->kube->fatal.text);
    }
}

void stk_kube_task_step(stk_kube_task *t, int64_t now)
{
    bool rests = false;
    if (now < t->idle_until_ms) {
        return;
    }
    if (!t->ended) {
        rests = stk_kube_logs_step(t, now);
        if (now >= t->settle_ms) { /* for timeouts; news settle the task at once */
            t->settle_ms = now + SETTLE_MS;
            stk_kube_task_settle(t, now);
        }
    }
    if (t->op != KUBE_IDLE || t->kube->n_ops >= KUBE_OPS ||
        !stk_kube_may_begin(t->kube, t->not_before_ms, now)) {
        if (t->removing && !t->ended && t->op == KUBE_IDLE && now > t->give_up_ms) {
            t->lives = !t->removed && is_there(t);
            finish(t, &t->end); /* the server was away all the time */
        }
        return;
    }
    if (t->forgotten && is_there(t) && !t->removed && !t->keep && !t->reads) {
        begin_delete(t, "Background");
    } else if (t->forgotten) {
        stk_kube_task_free(t);
    } else if (t->ended) {
        return;
    } else if (t->open && !t->posted && !t->maybe && !decide(t, now)) {
        return;
    } else if (!is_allowed(t, now)) {
        return;
    } else if (t->ask) {
        begin_get(t, on_get);
    } else if (t->removing) {
        step_removal(t, now);
    } else if (t->i_doc == 0 && !stk_kube_fit_nodes(t, now)) {
        return;
    } else if (t->i_doc < way(t)->docs.n) {
        post(t);
    } else {
        if (t->made_ms == 0) {
            t->made_ms = now;
            t->ways[0].docs = t->ways[1].docs = stk_json_of_list();
            stk_arena_free(t->arena);
            t->arena = NULL;
            t->classes = NULL;
        }
        look(t, now);
        t->idle_until_ms = 0;
        if (rests && !t->ended) {
            t->idle_until_ms = t->settle_ms;
        }
    }
}

/* --- life --- */

stk_kube_task *stk_kube_task_new(stk_kube *k, const stk_remote_job *job, const stk_json *options,
                                 const stk_kube_way *ways, uint32_t n_ways, stk_arena *arena)
{
    stk_kube_task *t = calloc(1, sizeof *t);
    uint32_t n = MAX(job->nodes, 1);
    if (t == NULL) {
        return NULL;
    }
    t->pods = calloc(n, sizeof *t->pods);
    t->logs = calloc(n, sizeof *t->logs);
    if (t->pods == NULL || t->logs == NULL) {
        free(t->pods);
        free(t->logs);
        free(t);
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        t->logs[i].rest = STK_BUF_INIT(4 << 20);
    }
    t->kube = k;
    t->arena = arena;
    t->id = job->id;
    t->attempt = job->attempt;
    t->n = n;
    memcpy(t->ways, ways, n_ways * sizeof *ways);
    t->n_ways = n_ways;
    t->open = stk_kube_form_of(job, options) == STK_KUBE_AS_EITHER;
    t->grace_ms = job->grace_ms;
    t->keep = stk_kube_true(options, "keep", false);
    t->lost_s = stk_kube_whole(options, "node_lost_seconds");
    if (t->lost_s < 0) {
        t->lost_s = LOST_S;
    }
    t->attach = job->attach;
    t->reads = job->reads;
    t->classes = stk_kube_classes(job, options, arena);
    t->ask = job->attach || (job->look && n_ways > 1); /* else a POST finds it */
    t->since_ms = stk_kube_now();
    (void)snprintf(t->name, sizeof t->name, "%s", job->name);
    t->previous = k->last;
    if (k->last != NULL) {
        k->last->next = t;
    } else {
        k->first = t;
    }
    k->last = t;
    size_t i = stk_hash_bytes(t->name, strlen(t->name), 0) % KUBE_BUCKETS;
    t->chain = k->buckets[i];
    k->buckets[i] = t;
    return t;
}

void stk_kube_task_free(stk_kube_task *t)
{
    stk_kube *k = t->kube;
    size_t bucket = stk_hash_bytes(t->name, strlen(t->name), 0) % KUBE_BUCKETS;
    stk_kube_task **at = &k->buckets[bucket];
    while (*at != t) {
        at = &(*at)->chain;
    }
    *at = t->chain;
    if (t->previous != NULL) {
        t->previous->next = t->next;
    } else {
        k->first = t->next;
    }
    if (t->next != NULL) {
        t->next->previous = t->previous;
    } else {
        k->last = t->previous;
    }
    stk_kube_logs_free(t);
    stk_arena_free(t->arena);
    free(t->pods);
    free(t->logs);
    free(t);
}
