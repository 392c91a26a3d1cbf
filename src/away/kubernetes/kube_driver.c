/* kube_driver: a cluster's API server as a driver of remote. It has one thread, two watches for
 * each namespace and a bounded number of requests at once. Only `turn` waits. */
#include "away/kubernetes/kube_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "away/kubernetes/kube_manifest.h"
#include "away/kubernetes/kubernetes.h"
#include "base/map.h"
#include "base/text.h"

enum { AGAIN_MS = 250, PREVIEW_MS = 5000, SOON_MS = 20 };
enum {
    AT_ONCE = 160,
    TURN_MS = 250,
    DOWN_MS = 10000,
    STILL_DOWN_MS = 300000,
    CLOSE_MS = 10000,
    GIVE_UP_MS = 30000
};

void stk_kube_fatal(stk_kube *k, const char *fmt, ...)
{
    char text[700];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (k->fatal.code == 0) {
        (void)stk_err_set(&k->fatal, STK_E_ENV, "%s", text);
    }
}

void stk_kube_note(stk_kube *k, const stk_kube_task *t, const char *fmt, ...)
{
    stk_remote_report report = {.state = STK_REMOTE_NOTE, .exit_status = -1};
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(report.text, sizeof report.text, fmt, args);
    va_end(args);
    if (t != NULL) {
        report.id = t->id;
        report.attempt = t->attempt;
        k->base.say(k->base.say_arg, &report);
    }
}

bool stk_kube_may_begin(const stk_kube *k, int64_t not_before_ms, int64_t now)
{
    return now >= not_before_ms && now >= k->api.not_before_ms &&
           (k->fatal.code == 0 || k->until_ms > now);
}

/* `rc` is from a call that needs a credential. Returns whether there is one. */
static bool has_credential(stk_kube *k, int rc, const stk_err *err)
{
    if (rc == 0) {
        k->n_no_credential = 0;
        return true;
    }
    if (rc == STK_E_BUSY) { /* a plugin runs */
        int64_t soon = stk_kube_now() + SOON_MS;
        k->api.not_before_ms = MAX(k->api.not_before_ms, soon);
        return false;
    }
    /* A plugin or a token file may fail for a while, but not before the first answer. */
    k->n_no_credential++;
    k->api.not_before_ms = stk_kube_now() + 1000 * k->n_no_credential;
    if (!k->api.answered || k->n_no_credential > 5) {
        char text[1024];
        stk_kube_fatal(k, "%s", stk_err_format(err, text, sizeof text));
    }
    return false;
}

bool stk_kube_begin(stk_kube *k, const stk_kube_request *request, uint64_t *ret_id)
{
    stk_err err = {0};
    int rc = stk_kube_ask(&k->api, request, ret_id, &err);
    return has_credential(k, rc, &err);
}

bool stk_kube_passes(stk_kube *k, const stk_kube_answer *a, int64_t wait_ms, int64_t *ret_ms)
{
    if (a->fatal) {
        stk_kube_fatal(k, "%s: %s", k->cluster.origin, a->text);
    }
    if (a->fatal || a->again) {
        *ret_ms = stk_kube_now() + wait_ms;
    }
    return a->fatal || a->again;
}

stk_kube_task *stk_kube_find(const stk_kube *k, const char *name)
{
    stk_kube_task *t = k->buckets[stk_hash_bytes(name, strlen(name), 0) % KUBE_BUCKETS];
    while (t != NULL && strcmp(t->name, name) != 0) {
        t = t->chain;
    }
    return t;
}

static stk_kube *of(stk_driver *self)
{
    return (stk_kube *)self;
}

static stk_kube_task *by_id(const stk_kube *k, uint32_t id)
{
    stk_kube_task *t = k->last; /* from the end, to find its last attempt */
    while (t != NULL && (t->id != id || t->forgotten)) {
        t = t->previous;
    }
    return t;
}

/* --- JobSet --- */

static void on_sets(void *arg, const stk_kube_answer *a)
{
    stk_kube *k = arg;
    k->asks_sets = false;
    if (stk_kube_passes(k, a, AGAIN_MS, &k->sets_not_before_ms)) {
        return;
    }
    k->sets = KUBE_SETS_NONE;
    const stk_json *all = stk_kube_at(a->json, "resources");
    for (uint32_t i = 0; i < stk_json_n_items(all); i++) {
        if (strcmp(stk_kube_text_at(&all->items[i], "name"), "jobsets") == 0) {
            k->sets = KUBE_SETS_THERE;
        }
    }
}

bool stk_kube_knows_sets(stk_kube *k, int64_t now)
{
    uint64_t id;
    const stk_kube_request request = {
        .method = "GET", .way = KUBE_JOBSET, .done = on_sets, .arg = k};
    if (k->sets == KUBE_SETS_UNKNOWN && !k->asks_sets &&
        stk_kube_may_begin(k, k->sets_not_before_ms, now)) {
        k->asks_sets = stk_kube_begin(k, &request, &id);
    }
    return k->sets != KUBE_SETS_UNKNOWN;
}

/* --- the functions of a driver --- */

/* The preferred way first. */
static int make_ways(stk_kube *k, const stk_remote_job *job, const stk_json *options,
                     const char *name_space, stk_arena *arena, stk_kube_way ways[2],
                     uint32_t *ret_n, stk_err *err)
{
    static const stk_kube_way both[] = {
        {.is_set = true,
         .plural = "jobsets",
         .group = KUBE_JOBSET,
         .kind = "JobSet",
         .word = "jobset"},
        {.plural = "jobs", .group = KUBE_BATCH, .kind = "Job", .word = "job"}};
    uint32_t first = stk_kube_form_of(job, options) == STK_KUBE_AS_JOB;
    for (uint32_t i = first; i < 2; i++) {
        stk_kube_way *way = &ways[i - first];
        *way = both[i];
        way->docs = stk_json_of_list();
        if (!job->reads) {
            STK_TRY(
                stk_kube_make(k->config, job, options, name_space, i == 0, arena, &way->docs, err));
        }
    }
    *ret_n = 2 - first;
    return 0;
}

static int submit(stk_driver *self, const stk_remote_job *job, stk_err *err)
{
    stk_kube *k = of(self);
    char where[160];
    stk_json options;
    stk_kube_way ways[2];
    uint32_t n_ways = 0;
    stk_kube_space *space = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    (void)snprintf(where, sizeof where, "step '%.120s'", job->step);
    if (k->fatal.code != 0) {
        *err = k->fatal;
        return err->code;
    }
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_kube_options(job->options, where, arena, &options, err));
    const char *name = stk_text_or(stk_kube_text(&options, "namespace"), k->cluster.name_space);
    STK_TRY(make_ways(k, job, &options, name, arena, ways, &n_ways, err));
    STK_TRY(stk_kube_space_get(k, name, &space, err));
    space->reads = job->reads;
    stk_kube_task *t = stk_kube_task_new(k, job, &options, ways, n_ways, arena);
    STK_TRY(stk_err_if_null(t, err));
    arena = NULL;
    t->space = space;
    t->pending_ms = k->config->pending_ms;
    int64_t pending_s = stk_kube_whole(&options, "pending_seconds");
    if (pending_s >= 0 && !job->reads) {
        t->pending_ms = pending_s * 1000;
    }
    return 0;
}

static void stop(stk_driver *self, uint32_t id, int64_t grace_ms, stk_failure why)
{
    stk_kube_task *t = by_id(of(self), id);
    stk_remote_report end = {.state = STK_REMOTE_FAILED, .exit_status = -1, .failure = why};
    if (t != NULL) {
        (void)snprintf(end.text, sizeof end.text, "its Job was removed");
        stk_kube_task_remove(t, &end, grace_ms);
    }
}

static void forget(stk_driver *self, uint32_t id)
{
    stk_kube_task *t = by_id(of(self), id);
    if (t != NULL && t->ended) {
        t->forgotten = true;
        t->not_before_ms = t->idle_until_ms = 0;
    }
}

/* Says when the server is away, while that lasts, and when it is back. */
static void tell_trouble(stk_kube *k, int64_t now)
{
    const stk_kube_api *api = &k->api;
    const stk_kube_task *live = k->first;
    while (live != NULL && live->ended) {
        live = live->next;
    }
    int64_t since = stk_kube_away_since(api);
    const char *what = stk_text_or(stk_text_if_any(api->down), "no answer");
    if (api->down_since_ms == 0) {
        what = "no answer";
    }
    if (since > 0 && k->down_ms == 0 && now - since >= DOWN_MS) {
        k->down_ms = since;
        k->down_said_ms = now;
        stk_kube_note(k, live, "%s doesn't answer: %s; waiting for it", k->cluster.server, what);
    } else if (since > 0 && k->down_ms > 0 && now - k->down_said_ms >= STILL_DOWN_MS) {
        k->down_said_ms = now;
        stk_kube_note(k, live, "%s hasn't answered for %lld s: %s; waiting for it",
                      k->cluster.server, (long long)((now - k->down_ms) / 1000), what);
    } else if (since == 0 && k->down_ms > 0) {
        stk_kube_note(k, live, "%s answers again, after %lld s", k->cluster.server,
                      (long long)((now - k->down_ms) / 1000));
        k->down_ms = 0;
        k->back_ms = now;
    }
}

static void work(stk_kube *k)
{
    int64_t now = stk_kube_now();
    stk_err err = {0};
    if (now >= k->api.not_before_ms && k->fatal.code == 0) {
        (void)has_credential(k, stk_kube_auth_refresh(&k->cluster, &k->api.auth, &err), &err);
    }
    for (stk_kube_space *s = k->spaces; s != NULL; s = s->next) {
        stk_kube_space_step(s, now);
    }
    for (stk_kube_task *t = k->first, *next; t != NULL; t = next) {
        next = t->next;
        stk_kube_task_step(t, now);
    }
    tell_trouble(k, now);
}

/* After a fatal error: removes all jobs, or reports those that may run on. Returns true once no job
 * is left. */
static bool give_up(stk_kube *k)
{
    int64_t now = stk_kube_now();
    bool begins = k->until_ms == 0;
    bool is_over = !begins && now >= k->until_ms;
    bool any = false;
    if (begins) {
        k->until_ms = now + GIVE_UP_MS;
    }
    for (stk_kube_task *t = k->first; t != NULL; t = t->next) {
        if (!t->ended && (begins || is_over)) {
            stk_kube_task_give_up(t, is_over);
        }
        any = any || !t->ended;
    }
    return !any;
}

static int turn(stk_driver *self, int wake_fd, int64_t timeout_ms, stk_err *err)
{
    stk_kube *k = of(self);
    work(k);
    if (k->fatal.code != 0 && give_up(k)) {
        *err = k->fatal;
        return err->code;
    }
    if (k->api.auth.plugin != NULL) {
        timeout_ms = MIN(timeout_ms, SOON_MS);
    }
    return stk_http_many_turn(k->api.many, wake_fd, MIN(timeout_ms, TURN_MS), err);
}

/* Moves forgotten jobs one step on. Returns false if none is left. */
static bool forget_all(stk_kube *k)
{
    bool any = false;
    for (stk_kube_task *t = k->first, *next; t != NULL; t = next) {
        next = t->next;
        if (t->forgotten) {
            stk_kube_task_step(t, stk_kube_now());
        }
    }
    for (const stk_kube_task *t = k->first; t != NULL; t = t->next) {
        any = any || t->forgotten;
    }
    return any;
}

static void free_driver(stk_kube *k)
{
    stk_kube_nodes_free(&k->nodes);
    stk_arena_free(k->scratch);
    stk_arena_free(k->arena);
    free(k);
}

/* Finishes pending removals; all other jobs go on without us. */
static void close_driver(stk_driver *self)
{
    stk_kube *k = of(self);
    int64_t until = stk_kube_now() + CLOSE_MS;
    while (forget_all(k) && stk_kube_now() < until && k->fatal.code == 0) {
        if (stk_http_many_turn(k->api.many, -1, 50, NULL) < 0) {
            break;
        }
    }
    stk_kube_sweep(k);
    while (k->first != NULL) {
        stk_kube_task_free(k->first);
    }
    stk_kube_api_done(&k->api);
    stk_kube_spaces_free(k);
    free_driver(k);
}

static const stk_driver_ops ops = {.name = "kubernetes",
                                   .submit = submit,
                                   .stop = stop,
                                   .forget = forget,
                                   .turn = turn,
                                   .close = close_driver};

static int read_config(stk_kube *k, stk_err *err)
{
    char where[160];
    (void)snprintf(where, sizeof where, "stack '%.120s'", k->config->stack);
    STK_TRY(stk_err_if_null(k->arena, err));
    STK_TRY(stk_err_if_null(k->scratch, err));
    STK_TRY(stk_kube_options(k->config->options, where, k->arena, &k->options, err));
    STK_TRY(stk_kube_config_load(&k->options, k->arena, &k->cluster, err));
    return stk_http_many_open(AT_ONCE, &k->api.many, err);
}

int stk_kube_open(const stk_driver_config *config, stk_kube **ret, stk_err *err)
{
    stk_kube *k = calloc(1, sizeof *k);
    STK_TRY(stk_err_if_null(k, err));
    k->base.ops = &ops;
    k->config = config;
    k->arena = stk_arena_new(0);
    k->scratch = stk_arena_new(0);
    int rc = read_config(k, err);
    if (rc < 0) {
        free_driver(k);
        return rc;
    }
    k->api.config = &k->cluster;
    *ret = k;
    return 0;
}

static int open_driver(const stk_driver_config *config, stk_driver **ret, stk_err *err)
{
    stk_kube *k = NULL;
    STK_TRY(stk_kube_open(config, &k, err));
    *ret = &k->base;
    return 0;
}

/* Would a gang be a JobSet? Asks the cluster only if the caller takes notes. */
static bool would_be_set(const stk_driver_config *config, const stk_remote_job *job,
                         const stk_json *options)
{
    stk_kube_form form = stk_kube_form_of(job, options);
    stk_kube *k = NULL;
    stk_err err = {0};
    char text[1400], why[1024];
    if (form != STK_KUBE_AS_EITHER || config->note == NULL) {
        return form == STK_KUBE_AS_SET;
    }
    int rc = stk_kube_open(config, &k, &err);
    int64_t until = stk_kube_now() + PREVIEW_MS;
    while (rc == 0 && !stk_kube_knows_sets(k, stk_kube_now()) && k->fatal.code == 0 &&
           stk_kube_now() < until) {
        rc = stk_http_many_turn(k->api.many, -1, 100, &err);
    }
    bool known = k != NULL && k->sets != KUBE_SETS_UNKNOWN;
    bool as_set = known && k->sets == KUBE_SETS_THERE;
    if (as_set) {
        (void)snprintf(text, sizeof text, "step '%.120s' is a JobSet: %s has JobSet", job->step,
                       k->cluster.server);
    } else if (known) {
        (void)snprintf(text, sizeof text, "step '%.120s' is an Indexed Job: %s doesn't have JobSet",
                       job->step, k->cluster.server);
    } else {
        const char *at = "no answer";
        if (rc < 0) {
            at = stk_err_format(&err, why, sizeof why);
        } else if (k != NULL && k->fatal.code < 0) {
            at = k->fatal.text;
        } else if (k != NULL && *k->api.down) {
            at = k->api.down;
        }
        (void)snprintf(text, sizeof text,
                       "step '%.120s' is a JobSet if the cluster has that, else an Indexed Job; "
                       "the cluster doesn't answer: %.900s",
                       job->step, at);
    }
    config->note(config->note_arg, text);
    if (k != NULL) {
        k->base.ops->close(&k->base);
    }
    return as_set;
}

static int manifest(const stk_driver_config *config, const stk_remote_job *job, stk_arena *arena,
                    const char ***ret_documents, uint32_t *ret_n, stk_err *err)
{
    char where[160];
    stk_json options, docs;
    (void)snprintf(where, sizeof where, "step '%.120s'", job->step);
    STK_TRY(stk_kube_options(job->options, where, arena, &options, err));
    STK_TRY(stk_kube_make(config, job, &options, stk_kube_text(&options, "namespace"),
                          would_be_set(config, job, &options), arena, &docs, err));
    const char **texts = stk_arena_array(arena, (size_t)docs.n + 1, sizeof *texts);
    STK_TRY(stk_err_if_null(texts, err));
    for (uint32_t i = 0; i < docs.n; i++) {
        STK_BUF_AUTO text = STK_BUF_INIT(SIZE_MAX / 2);
        stk_json_dump_pretty(&docs.items[i], &text);
        texts[i] = stk_buf_keep(&text, arena);
        STK_TRY(stk_err_if_null(texts[i], err));
    }
    *ret_documents = texts;
    *ret_n = docs.n;
    return 0;
}

const stk_driver_kind stk_driver_kubernetes = {
    .name = "kubernetes", .open = open_driver, .manifest = manifest, .check = stk_kube_check};
