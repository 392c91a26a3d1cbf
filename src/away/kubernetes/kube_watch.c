/* kube_watch: follows our run's Jobs and pods in a namespace, and, while a job waits without a
 * known reason, the namespace's warnings (events have no labels to select by). It lists them, then
 * watches from the list's version until the watch ends, for any reason, and lists again: so it
 * never asks for a version that the server has forgotten. Reading the same state twice is harmless.
 * An object that is missing in a new list no longer exists. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "away/kubernetes/kube_driver.h"
#include "base/text.h"

enum { WATCH_S = 110, WATCH_IDLE_MS = 150000, LIST_MAX = 500, LINE_MAX_BYTES = 16 << 20 };
enum { QUICK_MS = 1000, EVENTS_AGAIN_MS = 30000 };
enum { RANDOM_LEN = 5 }; /* of a pod's name: "<job>-x7k2p", "<job>-0-x7k2p" */

/* --- news of Jobs and pods --- */

static stk_kube_task *find_task(stk_kube_feed *f, const stk_json *object)
{
    return stk_kube_find(f->space->kube, stk_kube_text_at(stk_kube_at(object, "metadata/labels"),
                                                          STK_KUBE_LABEL_JOB));
}

static void hear_job(stk_kube_task *t, const stk_json *object, bool gone)
{
    stk_kube_read_job(object, &t->job);
    t->job.gone = gone;
    t->maybe = true;
    stk_kube_task_settle(t, stk_kube_now());
}

static void hear_pod(stk_kube_task *t, const stk_json *object, bool gone)
{
    stk_kube_pod pod;
    stk_kube_read_pod(object, &pod);
    pod.gone = gone;
    if (pod.index >= t->n) {
        return;
    }
    stk_kube_pod *there = &t->pods[pod.index];
    if (pod.scheduled && !there->scheduled) { /* what kept it from a node is over */
        t->event[0] = t->event_at[0] = '\0';
    }
    bool is_same = *there->name == '\0' || strcmp(there->uid, pod.uid) == 0;
    if (!is_same && gone) {
        return; /* a replaced pod */
    }
    *there = pod;
    t->look_ms = 0;
    stk_kube_task_settle(t, stk_kube_now());
}

/* The task whose Job, JobSet or pod has this name; NULL: none of ours. */
static stk_kube_task *find_owner(const stk_kube *k, const char *name, bool is_pod)
{
    char part[sizeof((stk_kube_pod *)0)->name];
    (void)snprintf(part, sizeof part, "%s", name);
    stk_kube_task *t = stk_kube_find(k, part);
    const char *end = strrchr(part, '-');
    if (is_pod && (end == NULL || strlen(end + 1) != RANDOM_LEN)) {
        return NULL;
    }
    for (int i = 0; t == NULL && i < 4; i++) { /* "<set>-n-0-<index>-<random>" has most parts */
        char *cut = strrchr(part, '-');
        if (cut == NULL) {
            return NULL;
        }
        *cut = '\0';
        t = stk_kube_find(k, part);
    }
    return t;
}

/* Ends a job that waits for a pod which the cluster refuses for good. */
static void give_up_refused(stk_kube_task *t, const stk_json *event)
{
    bool is_sure = false, lacks = false;
    for (uint32_t i = 0; i < t->n; i++) {
        lacks = lacks || *t->pods[i].name == '\0';
    }
    (void)stk_kube_refusal_way(stk_kube_text_at(event, "message"), &is_sure);
    if (is_sure && lacks && !t->has_run && !t->removing && !t->ended) {
        stk_remote_report end = {
            .state = STK_REMOTE_FAILED, .exit_status = -1, .failure = STK_FAIL_START};
        (void)snprintf(end.text, sizeof end.text, "%s", t->event);
        t->is_hopeless = true;
        stk_kube_task_remove(t, &end, 0);
    }
}

void stk_kube_task_hear(stk_kube_task *t, const stk_json *event)
{
    char words[sizeof t->event];
    const char *at = stk_kube_text_at(event, "lastTimestamp");
    if (*at == '\0') {
        at = stk_kube_text_at(event, "eventTime");
    }
    if (strcmp(stk_kube_text_at(event, "type"), "Warning") == 0 && strcmp(at, t->event_at) >= 0 &&
        *stk_kube_event_words(stk_kube_text_at(event, "reason"), stk_kube_text_at(event, "message"),
                              words, sizeof words) != '\0') {
        (void)snprintf(t->event_at, sizeof t->event_at, "%s", at);
        (void)snprintf(t->event, sizeof t->event, "%s", words);
        give_up_refused(t, event);
    }
}

static void hear_warning(const stk_kube_feed *f, const stk_json *event)
{
    const stk_json *of = stk_kube_at(event, "involvedObject");
    bool is_pod = strcmp(stk_kube_text_at(of, "kind"), "Pod") == 0;
    stk_kube_task *t = find_owner(f->space->kube, stk_kube_text_at(of, "name"), is_pod);
    if (t != NULL && t->space == f->space && !t->ended && !t->has_run) {
        stk_kube_task_hear(t, event);
        stk_kube_task_settle(t, stk_kube_now());
    }
}

static void hear(stk_kube_feed *f, const stk_json *object, bool gone)
{
    if (f->of == KUBE_OF_EVENTS) {
        hear_warning(f, object);
        return;
    }
    stk_kube_task *t = find_task(f, object);
    if (t == NULL || t->ended) {
        return;
    }
    if (f->of == KUBE_OF_PODS) {
        hear_pod(t, object, gone);
    } else {
        hear_job(t, object, gone);
    }
}

/* Marks what a complete list doesn't have as gone. */
static void forget_missing(stk_kube_feed *f)
{
    stk_kube *k = f->space->kube;
    int64_t now = stk_kube_now();
    for (stk_kube_task *t = k->first, *next; t != NULL; t = next) {
        next = t->next;
        if (t->space != f->space || t->ended || !t->posted || t->listed_before >= f->n_lists) {
            continue;
        }
        bool makes_it_later = t->ways[t->i_way].is_set;
        if (f->of == KUBE_OF_JOBS && !t->job.listed && (t->job.seen || !makes_it_later)) {
            t->job.gone = true;
        }
        for (uint32_t i = 0; f->of == KUBE_OF_PODS && i < t->n; i++) {
            t->pods[i].gone = t->pods[i].gone || !t->pods[i].listed;
        }
        stk_kube_task_settle(t, now);
    }
}

static void mark_unlisted(stk_kube_feed *f)
{
    for (stk_kube_task *t = f->space->kube->first; t != NULL; t = t->next) {
        if (f->of == KUBE_OF_JOBS) {
            t->job.listed = false;
        }
        for (uint32_t i = 0; f->of == KUBE_OF_PODS && i < t->n; i++) {
            t->pods[i].listed = false;
        }
    }
}

static void mark_listed(stk_kube_feed *f, const stk_json *object)
{
    const char *uid = stk_kube_text_at(object, "metadata/uid");
    stk_kube_task *t = find_task(f, object);
    if (t == NULL) {
        return;
    }
    if (f->of == KUBE_OF_JOBS) {
        t->job.listed = true;
    }
    for (uint32_t i = 0; f->of == KUBE_OF_PODS && i < t->n; i++) {
        t->pods[i].listed = t->pods[i].listed || strcmp(t->pods[i].uid, uid) == 0;
    }
}

/* --- the list --- */

static void stumble(stk_kube_feed *f, const stk_kube_answer *a, const char *what)
{
    stk_kube *k = f->space->kube;
    f->not_before_ms = stk_kube_now() + QUICK_MS;
    if (stk_kube_passes(k, a, QUICK_MS, &f->not_before_ms)) {
        return;
    }
    if (f->of == KUBE_OF_EVENTS) { /* nothing depends on them */
        f->refused = a->status == 403;
        f->not_before_ms = stk_kube_now() + EVENTS_AGAIN_MS;
    } else if (a->status == 403) {
        stk_kube_fatal(k,
                       "%s has no right to %s %s in namespace '%s': %s; ask for the needed rights "
                       "(`stoker stack check` lists them)",
                       k->cluster.origin, what, f->plural, f->space->name, a->text);
    } else if (a->status != 410 && a->status != 0) {
        stk_kube_fatal(k, "%s: %s of %s failed with %d: %s", k->cluster.origin, what, f->plural,
                       a->status, a->text);
    }
}

static void on_list(void *arg, const stk_kube_answer *a)
{
    stk_kube_feed *f = arg;
    f->state = KUBE_FEED_IDLE;
    free(f->more);
    f->more = NULL;
    if (!a->good) {
        stumble(f, a, "list");
        return;
    }
    if (a->json == NULL) {
        f->not_before_ms = stk_kube_now() + QUICK_MS;
        return;
    }
    const stk_json *items = stk_kube_at(a->json, "items");
    for (uint32_t i = 0; i < stk_json_n_items(items); i++) {
        hear(f, &items->items[i], false);
        if (f->of != KUBE_OF_EVENTS) {
            mark_listed(f, &items->items[i]);
        }
    }
    const char *more = stk_kube_text_at(a->json, "metadata/continue");
    (void)snprintf(f->version, sizeof f->version, "%s",
                   stk_kube_text_at(a->json, "metadata/resourceVersion"));
    if (*more != '\0') {
        f->more = strdup(more);
        return;
    }
    f->listed = true;
    if (f->of != KUBE_OF_EVENTS) {
        forget_missing(f);
    }
}

/* `query` is in the driver's scratch. */
static void begin_request(stk_kube_feed *f, stk_kube_request *request, const char *query, int state)
{
    stk_kube *k = f->space->kube;
    char run[STK_KUBE_NAME + 1];
    const char *select = "fieldSelector=type%3DWarning";
    if (f->of != KUBE_OF_EVENTS) {
        select = stk_arena_printf(k->scratch, "labelSelector=" STK_KUBE_LABEL_RUN "%%3D%s",
                                  stk_kube_label(k->config->run, run));
    }
    request->method = "GET";
    request->arg = f;
    request->way =
        stk_arena_printf(k->scratch, "%s/namespaces/%s/%s?%s%s", f->group, f->space->name,
                         f->plural, stk_text_or(select, ""), stk_text_or(query, ""));
    if (query != NULL && request->way != NULL && stk_kube_begin(k, request, &f->call)) {
        f->state = state;
    } else {
        f->not_before_ms = stk_kube_now() + QUICK_MS;
    }
}

static void begin_list(stk_kube_feed *f)
{
    stk_arena *scratch = f->space->kube->scratch;
    stk_kube_request request = {.done = on_list};
    stk_arena_reset(scratch);
    const char *more = "";
    if (f->more != NULL) {
        more = stk_arena_printf(scratch, "&continue=%s", stk_kube_quote(f->more, scratch));
    } else if (f->of != KUBE_OF_EVENTS) {
        f->n_lists++;
        mark_unlisted(f);
    }
    begin_request(f, &request,
                  stk_arena_printf(scratch, "&limit=%d%s", LIST_MAX, stk_text_or(more, "")),
                  KUBE_FEED_LIST);
}

/* --- the watch --- */

static void hear_event(stk_kube_feed *f, const char *text, size_t len)
{
    stk_kube *k = f->space->kube;
    stk_json root;
    stk_arena_reset(k->scratch);
    if (stk_kube_parse(text, len, k->scratch, &root) < 0) {
        return; /* cut in the middle: the next list has it again */
    }
    const char *type = stk_kube_text_at(&root, "type");
    const stk_json *object = stk_kube_at(&root, "object");
    const char *version = stk_kube_text_at(object, "metadata/resourceVersion");
    if (strcmp(type, "ERROR") == 0) { /* mostly 410: our version is too old */
        f->listed = false;
        return;
    }
    if (*version != '\0') {
        (void)snprintf(f->version, sizeof f->version, "%s", version);
    }
    if (strcmp(type, "BOOKMARK") != 0) {
        hear(f, object, strcmp(type, "DELETED") == 0);
    }
}

static bool on_events(void *arg, const void *data, size_t n)
{
    stk_kube_feed *f = arg;
    for (const char *c = data, *end; n > 0 && (end = memchr(c, '\n', n)) != NULL;) {
        size_t part = (size_t)(end - c);
        if (stk_buf_add(&f->line, c, part) < 0) {
            break;
        }
        if (f->line.len > 0) {
            hear_event(f, f->line.data, f->line.len);
        }
        stk_buf_clear(&f->line);
        n -= part + 1;
        c = end + 1;
        data = c;
    }
    if (stk_buf_add(&f->line, data, n) < 0) {
        f->listed = false;
        return false;
    }
    return true;
}

static void on_watch_end(void *arg, const stk_kube_answer *a)
{
    stk_kube_feed *f = arg;
    int64_t now = stk_kube_now();
    f->state = KUBE_FEED_IDLE;
    stk_buf_clear(&f->line);
    f->not_before_ms = now;
    if (now - f->begun_ms < QUICK_MS) { /* the next one may end at once, too */
        f->not_before_ms += QUICK_MS;
    }
    f->listed = false; /* always list again: the server's versions may have started anew */
    if (!a->good && a->status != 410 && (a->fatal || (!a->again && a->status != 0))) {
        stumble(f, a, "watch");
    }
}

static void begin_watch(stk_kube_feed *f, int64_t now)
{
    stk_arena *scratch = f->space->kube->scratch;
    stk_kube_request request = {
        .idle_ms = WATCH_IDLE_MS, .on_body = on_events, .done = on_watch_end};
    stk_arena_reset(scratch);
    f->begun_ms = now;
    begin_request(f, &request,
                  stk_arena_printf(scratch,
                                   "&watch=true&resourceVersion=%s&allowWatchBookmarks=true"
                                   "&timeoutSeconds=%d",
                                   f->version, WATCH_S),
                  KUBE_FEED_WATCH);
}

static void step(stk_kube_feed *f, int64_t now)
{
    if (f->state != KUBE_FEED_IDLE || !stk_kube_may_begin(f->space->kube, f->not_before_ms, now)) {
        return;
    }
    if (f->listed) {
        begin_watch(f, now);
    } else {
        begin_list(f);
    }
}

/* --- namespaces --- */

int stk_kube_space_get(stk_kube *k, const char *name, stk_kube_space **ret, stk_err *err)
{
    for (stk_kube_space *s = k->spaces; s != NULL; s = s->next) {
        if (strcmp(s->name, name) == 0) {
            *ret = s;
            return 0;
        }
    }
    stk_kube_space *s = calloc(1, sizeof *s);
    char *copy = strdup(name);
    if (s == NULL || copy == NULL) {
        free(s);
        free(copy);
        return stk_err_nomem(err);
    }
    *s = (stk_kube_space){.next = k->spaces, .kube = k, .name = copy};
    s->jobs = (stk_kube_feed){.of = KUBE_OF_JOBS, .group = KUBE_BATCH, .plural = "jobs"};
    s->pods = (stk_kube_feed){.of = KUBE_OF_PODS, .group = KUBE_CORE, .plural = "pods"};
    s->events = (stk_kube_feed){.of = KUBE_OF_EVENTS, .group = KUBE_CORE, .plural = "events"};
    s->jobs.space = s->pods.space = s->events.space = s;
    s->jobs.line = s->pods.line = s->events.line = STK_BUF_INIT(LINE_MAX_BYTES);
    k->spaces = s;
    *ret = s;
    return 0;
}

void stk_kube_space_step(stk_kube_space *s, int64_t now)
{
    if (!s->reads &&
        (!stk_kube_knows_rights(s, now) || stk_kube_missing(s, KUBE_FOR_ALL) != NULL)) {
        return; /* no job can run there */
    }
    step(&s->jobs, now);
    step(&s->pods, now);
    if (now < s->events.until_ms && !s->events.refused) {
        step(&s->events, now);
    }
}

void stk_kube_spaces_free(stk_kube *k)
{
    while (k->spaces != NULL) {
        stk_kube_space *s = k->spaces;
        k->spaces = s->next;
        stk_buf_done(&s->jobs.line);
        stk_buf_done(&s->pods.line);
        stk_buf_done(&s->events.line);
        free(s->jobs.more);
        free(s->pods.more);
        free(s->events.more);
        free(s->name);
        free(s);
    }
}
