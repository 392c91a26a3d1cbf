/* kube_watch: news of a namespace's Jobs and pods of our run. One list, then a watch from its
 * version on until that ends, for whatever reason, and again: no version is asked for that the
 * server may not know any more. Hearing the same twice is harmless; what a list doesn't know any
 * more is gone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "away/kubernetes/kube_driver.h"

enum { WATCH_S = 110, WATCH_IDLE_MS = 150000, LIST_MAX = 500, LINE_MAX_BYTES = 16 << 20 };
enum { QUICK_MS = 1000 };

/* --- what is heard --- */

static void hear_job(stk_kube *k, const stk_json *object, bool gone)
{
    const char *name = stk_kube_text_at(stk_kube_at(object, "metadata/labels"), STK_KUBE_LABEL_JOB);
    stk_kube_task *t = stk_kube_find(k, name);
    if (t == NULL || t->ended) {
        return;
    }
    stk_kube_job job;
    stk_kube_read_job(object, &job);
    job.gone = gone;
    t->maybe = true;
    t->job = job;
    stk_kube_task_settle(t, stk_kube_now());
}

static void hear_pod(stk_kube *k, const stk_json *object, bool gone)
{
    const char *name = stk_kube_text_at(stk_kube_at(object, "metadata/labels"), STK_KUBE_LABEL_JOB);
    stk_kube_task *t = stk_kube_find(k, name);
    stk_kube_pod pod;
    if (t == NULL || t->ended) {
        return;
    }
    stk_kube_read_pod(object, &pod);
    pod.gone = gone;
    if (pod.index >= t->n) {
        return;
    }
    stk_kube_pod *there = &t->pods[pod.index];
    bool is_same = *there->name == '\0' || strcmp(there->uid, pod.uid) == 0;
    if (!is_same && gone) {
        return; /* the one before it */
    }
    *there = pod;
    t->look_ms = 0;
    stk_kube_task_settle(t, stk_kube_now());
}

/* Those that a whole list doesn't know. */
static void forget_missing(stk_kube_feed *f)
{
    stk_kube *k = f->space->kube;
    int64_t now = stk_kube_now();
    for (stk_kube_task *t = k->first, *next; t != NULL; t = next) {
        next = t->next;
        if (t->space != f->space || t->ended || !t->posted || t->listed_before >= f->n_lists) {
            continue;
        }
        bool is_set = strcmp(t->ways[t->i_way].plural, "jobsets") == 0; /* makes its Job later */
        if (!f->of_pods && !t->job.listed && (t->job.seen || !is_set)) {
            t->job.gone = true;
        }
        for (uint32_t i = 0; f->of_pods && i < t->n; i++) {
            t->pods[i].gone = t->pods[i].gone || !t->pods[i].listed;
        }
        stk_kube_task_settle(t, now);
    }
}

static void mark_unlisted(stk_kube_feed *f)
{
    for (stk_kube_task *t = f->space->kube->first; t != NULL; t = t->next) {
        if (!f->of_pods) {
            t->job.listed = false;
        }
        for (uint32_t i = 0; f->of_pods && i < t->n; i++) {
            t->pods[i].listed = false;
        }
    }
}

static void mark_listed(stk_kube_feed *f, const stk_json *object)
{
    const char *name = stk_kube_text_at(stk_kube_at(object, "metadata/labels"), STK_KUBE_LABEL_JOB);
    const char *uid = stk_kube_text_at(object, "metadata/uid");
    stk_kube_task *t = stk_kube_find(f->space->kube, name);
    if (t == NULL) {
        return;
    }
    if (!f->of_pods) {
        t->job.listed = true;
    }
    for (uint32_t i = 0; f->of_pods && i < t->n; i++) {
        t->pods[i].listed = t->pods[i].listed || strcmp(t->pods[i].uid, uid) == 0;
    }
}

static void hear(stk_kube_feed *f, const stk_json *object, bool gone)
{
    if (f->of_pods) {
        hear_pod(f->space->kube, object, gone);
    } else {
        hear_job(f->space->kube, object, gone);
    }
}

/* --- the list --- */

static void stumble(stk_kube_feed *f, const stk_kube_answer *a, const char *what)
{
    stk_kube *k = f->space->kube;
    f->not_before_ms = stk_kube_now() + QUICK_MS;
    if (a->fatal) {
        stk_kube_fatal(k, "%s: %s", k->cluster.origin, a->text);
    } else if (a->status == 403) {
        stk_kube_fatal(k,
                       "%s may not %s %s in namespace '%s': %s; have these rights given to it "
                       "(`stoker stack check` lists them)",
                       k->cluster.origin, what, f->of_pods ? "pods" : "jobs", f->space->name,
                       a->text);
    } else if (!a->again && a->status != 410 && a->status != 0) {
        stk_kube_fatal(k, "%s: %s of %s failed with %d: %s", k->cluster.origin, what,
                       f->of_pods ? "pods" : "jobs", a->status, a->text);
    }
}

static void on_list(void *arg, const stk_kube_answer *a)
{
    stk_kube_feed *f = arg;
    stk_json root;
    f->state = KUBE_FEED_IDLE;
    free(f->more);
    f->more = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    if (!a->good) {
        stumble(f, a, "list");
        return;
    }
    if (arena == NULL || stk_kube_parse(a->body, a->len, arena, &root) < 0) {
        f->not_before_ms = stk_kube_now() + QUICK_MS;
        return;
    }
    const stk_json *items = stk_kube_at(&root, "items");
    for (uint32_t i = 0; items != NULL && items->kind == STK_JSON_LIST && i < items->n; i++) {
        hear(f, &items->items[i], false);
        mark_listed(f, &items->items[i]);
    }
    const char *more = stk_kube_text_at(&root, "metadata/continue");
    (void)snprintf(f->version, sizeof f->version, "%s",
                   stk_kube_text_at(&root, "metadata/resourceVersion"));
    if (*more != '\0') {
        f->more = strdup(more);
        return;
    }
    f->listed = true;
    forget_missing(f);
}

static void begin_list(stk_kube_feed *f)
{
    stk_kube *k = f->space->kube;
    char run[STK_KUBE_NAME + 1];
    stk_arena_reset(k->scratch);
    const char *way = stk_arena_printf(
        k->scratch, "%s/namespaces/%s/%s?labelSelector=" STK_KUBE_LABEL_RUN "%%3D%s&limit=%d%s%s",
        f->of_pods ? "/api/v1" : "/apis/batch/v1", f->space->name, f->of_pods ? "pods" : "jobs",
        stk_kube_label(k->config->run, run), LIST_MAX, f->more == NULL ? "" : "&continue=",
        f->more == NULL ? "" : stk_kube_quote(f->more, k->scratch));
    if (f->more == NULL) {
        f->n_lists++;
        mark_unlisted(f);
    }
    stk_kube_request request = {.method = "GET", .way = way, .done = on_list, .arg = f};
    if (way != NULL && stk_kube_begin(k, &request, &f->call)) {
        f->state = KUBE_FEED_LIST;
    } else {
        f->not_before_ms = stk_kube_now() + QUICK_MS;
    }
}

/* --- the watch --- */

static void hear_event(stk_kube_feed *f, const char *text, size_t len)
{
    stk_kube *k = f->space->kube;
    stk_json root;
    stk_arena_reset(k->scratch);
    if (stk_kube_parse(text, len, k->scratch, &root) < 0) {
        return; /* cut in the middle: the next watch says it again */
    }
    const char *type = stk_kube_text_at(&root, "type");
    const stk_json *object = stk_kube_at(&root, "object");
    const char *version = stk_kube_text_at(object, "metadata/resourceVersion");
    if (strcmp(type, "ERROR") == 0) { /* 410, mostly: what we know is too old */
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
    const char *c = data;
    while (n > 0) {
        const char *end = memchr(c, '\n', n);
        size_t part = end == NULL ? n : (size_t)(end - c);
        if (stk_buf_add(&f->line, c, part) < 0) {
            f->listed = false;
            return false;
        }
        if (end != NULL) {
            if (f->line.len > 0) {
                hear_event(f, f->line.data, f->line.len);
            }
            stk_buf_clear(&f->line);
            part++;
        }
        c += part;
        n -= part;
    }
    return true;
}

static void on_watch_end(void *arg, const stk_kube_answer *a)
{
    stk_kube_feed *f = arg;
    int64_t now = stk_kube_now();
    f->state = KUBE_FEED_IDLE;
    stk_buf_clear(&f->line);
    /* One that ends at once, ends at once again. */
    f->not_before_ms = now - f->begun_ms < QUICK_MS ? now + QUICK_MS : now;
    f->listed = false; /* all of it, whatever was heard: versions may even have begun anew */
    if (!a->good && a->status != 410 && (a->fatal || (!a->again && a->status != 0))) {
        stumble(f, a, "watch");
    }
}

static void begin_watch(stk_kube_feed *f, int64_t now)
{
    stk_kube *k = f->space->kube;
    char run[STK_KUBE_NAME + 1];
    stk_arena_reset(k->scratch);
    const char *way = stk_arena_printf(
        k->scratch,
        "%s/namespaces/%s/%s?watch=true&labelSelector=" STK_KUBE_LABEL_RUN
        "%%3D%s&resourceVersion=%s&allowWatchBookmarks=true&timeoutSeconds=%d",
        f->of_pods ? "/api/v1" : "/apis/batch/v1", f->space->name, f->of_pods ? "pods" : "jobs",
        stk_kube_label(k->config->run, run), f->version, WATCH_S);
    stk_kube_request request = {.method = "GET",
                                .way = way,
                                .idle_ms = WATCH_IDLE_MS,
                                .on_body = on_events,
                                .done = on_watch_end,
                                .arg = f};
    f->begun_ms = now;
    if (way != NULL && stk_kube_begin(k, &request, &f->call)) {
        f->state = KUBE_FEED_WATCH;
    } else {
        f->not_before_ms = now + QUICK_MS;
    }
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
    s->jobs = (stk_kube_feed){.space = s, .line = STK_BUF_INIT(LINE_MAX_BYTES)};
    s->pods = (stk_kube_feed){.space = s, .of_pods = true, .line = STK_BUF_INIT(LINE_MAX_BYTES)};
    k->spaces = s;
    *ret = s;
    return 0;
}

void stk_kube_space_step(stk_kube_space *s, int64_t now)
{
    if (!stk_kube_knows_rights(s, now) || stk_kube_missing(s, KUBE_FOR_ALL) != NULL) {
        return; /* nobody has anything there */
    }
    step(&s->jobs, now);
    step(&s->pods, now);
}

void stk_kube_spaces_free(stk_kube *k)
{
    while (k->spaces != NULL) {
        stk_kube_space *s = k->spaces;
        k->spaces = s->next;
        stk_buf_done(&s->jobs.line);
        stk_buf_done(&s->pods.line);
        free(s->jobs.more);
        free(s->pods.more);
        free(s->name);
        free(s);
    }
}
