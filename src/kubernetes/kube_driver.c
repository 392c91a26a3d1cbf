/* kube_driver: a cluster's API server as a driver of remote. One thread, one pair of watches for
 * each namespace, so many requests at once; nothing waits here but turn. */
#include "kubernetes/kube_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"

enum { AT_ONCE = 160, TURN_MS = 250, DOWN_MS = 10000, NEVER_MS = 60000, CLOSE_MS = 10000 };

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
    return now >= not_before_ms && now >= k->api.not_before_ms && k->fatal.code == 0;
}

bool stk_kube_begin(stk_kube *k, const stk_kube_request *request, uint64_t *ret_id)
{
    stk_err err = {0};
    int rc = stk_kube_ask(&k->api, request, ret_id, &err);
    if (rc == 0) {
        k->n_no_credential = 0;
        return true;
    }
    /* A plugin or a token's file may fail for a while, but not from the beginning. */
    k->n_no_credential++;
    k->api.not_before_ms = stk_kube_now() + 1000 * k->n_no_credential;
    if (!k->api.answered || k->n_no_credential > 5) {
        char text[1024];
        stk_kube_fatal(k, "%s", stk_err_format(&err, text, sizeof text));
    }
    return false;
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
    stk_kube_task *t = k->last; /* its last attempt */
    while (t != NULL && (t->id != id || t->forgotten)) {
        t = t->previous;
    }
    return t;
}

/* --- the functions of a driver --- */

static int submit(stk_driver *self, const stk_remote_job *job, stk_err *err)
{
    stk_kube *k = of(self);
    char where[160];
    json_t *read = NULL;
    json_t *docs = NULL;
    stk_kube_space *space = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    (void)snprintf(where, sizeof where, "step '%.120s'", job->step);
    int rc = arena == NULL ? stk_err_set(err, STK_E_NOMEM, "out of memory")
                           : stk_kube_options(job->options, where, &read, err);
    if (rc < 0) {
        return rc;
    }
    STK_KUBE_JSON_AUTO options = read;
    const char *own = stk_kube_text(options, "namespace");
    const char *name = own == NULL ? k->cluster.name_space : own;
    rc = stk_kube_make(k->config, job, options, name, arena, &docs, err);
    if (rc < 0) {
        return rc;
    }
    STK_KUBE_JSON_AUTO all = docs;
    rc = stk_kube_space_get(k, name, &space, err);
    if (rc < 0) {
        return rc;
    }
    stk_kube_task *t = stk_kube_task_new(k, job, options, all);
    if (t == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory");
    }
    t->space = space;
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

static void tell_trouble(stk_kube *k, int64_t now)
{
    const stk_kube_api *api = &k->api;
    const stk_kube_task *live = k->first;
    while (live != NULL && live->ended) {
        live = live->next;
    }
    if (api->down_since_ms > 0 && now - api->down_since_ms > DOWN_MS && k->down_said_ms == 0) {
        k->down_said_ms = now;
        stk_kube_note(k, live, "%s doesn't answer: %s; trying again", k->cluster.server, api->down);
    } else if (api->down_since_ms == 0 && k->down_said_ms > 0) {
        stk_kube_note(k, live, "%s answers again, after %lld s", k->cluster.server,
                      (long long)((now - k->down_said_ms + DOWN_MS) / 1000));
        k->down_said_ms = 0;
    }
    if (!api->answered && api->down_since_ms > 0 && now - api->down_since_ms > NEVER_MS) {
        stk_kube_fatal(k, "%s (%s) can't be reached: %s", k->cluster.server, k->cluster.origin,
                       api->down);
    }
}

static void work(stk_kube *k)
{
    int64_t now = stk_kube_now();
    for (stk_kube_space *s = k->spaces; s != NULL; s = s->next) {
        stk_kube_space_step(s, now);
    }
    for (stk_kube_task *t = k->first, *next; t != NULL; t = next) {
        next = t->next;
        stk_kube_task_step(t, now);
    }
    tell_trouble(k, now);
}

static int turn(stk_driver *self, int wake_fd, int64_t timeout_ms, stk_err *err)
{
    stk_kube *k = of(self);
    work(k);
    int rc =
        stk_http_many_turn(k->api.many, wake_fd, timeout_ms < TURN_MS ? timeout_ms : TURN_MS, err);
    if (rc == 0 && k->fatal.code != 0) {
        *err = k->fatal;
        rc = err->code;
    }
    return rc;
}

/* A step on for those that nobody needs any more; false: there are none left. */
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

/* What is to be removed still is; the rest goes on without us. */
static void close_driver(stk_driver *self)
{
    stk_kube *k = of(self);
    int64_t until = stk_kube_now() + CLOSE_MS;
    while (forget_all(k) && stk_kube_now() < until && k->fatal.code == 0) {
        if (stk_http_many_turn(k->api.many, -1, 50, NULL) < 0) {
            break;
        }
    }
    while (k->first != NULL) {
        stk_kube_task_free(k->first);
    }
    stk_kube_api_done(&k->api);
    stk_kube_spaces_free(k);
    json_decref(k->options);
    stk_arena_free(k->scratch);
    stk_arena_free(k->arena);
    free(k);
}

static const stk_driver_ops ops = {.name = "kubernetes",
                                   .submit = submit,
                                   .stop = stop,
                                   .forget = forget,
                                   .turn = turn,
                                   .close = close_driver};

int stk_kube_open(const stk_driver_config *config, stk_kube **ret, stk_err *err)
{
    char where[160];
    stk_kube *k = calloc(1, sizeof *k);
    if (k == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory");
    }
    k->base.ops = &ops;
    k->config = config;
    k->arena = stk_arena_new(0);
    k->scratch = stk_arena_new(0);
    (void)snprintf(where, sizeof where, "stack '%.120s'", config->stack);
    int rc = k->arena == NULL || k->scratch == NULL
                 ? stk_err_set(err, STK_E_NOMEM, "out of memory")
                 : stk_kube_options(config->options, where, &k->options, err);
    rc = rc < 0 ? rc : stk_kube_config_load(k->options, k->arena, &k->cluster, err);
    rc = rc < 0 ? rc : stk_http_many_open(AT_ONCE, &k->api.many, err);
    if (rc < 0) {
        json_decref(k->options);
        stk_arena_free(k->scratch);
        stk_arena_free(k->arena);
        free(k);
        return rc;
    }
    k->api.config = &k->cluster;
    *ret = k;
    return 0;
}

static int open_driver(const stk_driver_config *config, stk_driver **ret, stk_err *err)
{
    stk_kube *k = NULL;
    int rc = stk_kube_open(config, &k, err);
    if (rc == 0) {
        *ret = &k->base;
    }
    return rc;
}

static int manifest(const stk_driver_config *config, const stk_remote_job *job, stk_arena *arena,
                    const char ***ret_documents, uint32_t *ret_n, stk_err *err)
{
    char where[160];
    json_t *read = NULL, *docs = NULL;
    (void)snprintf(where, sizeof where, "step '%.120s'", job->step);
    int rc = stk_kube_options(job->options, where, &read, err);
    STK_KUBE_JSON_AUTO options = read;
    rc = rc < 0 ? rc
                : stk_kube_make(config, job, options, stk_kube_text(options, "namespace"), arena,
                                &docs, err);
    STK_KUBE_JSON_AUTO all = docs;
    size_t n = json_array_size(all);
    const char **texts = rc < 0 ? NULL : stk_arena_array(arena, n + 1, sizeof *texts);
    for (size_t i = 0; texts != NULL && i < n; i++) {
        char *text = json_dumps(json_array_get(all, i), JSON_INDENT(2));
        texts[i] = stk_arena_dup(arena, text);
        free(text);
        rc = texts[i] == NULL ? stk_err_set(err, STK_E_NOMEM, "out of memory") : rc;
    }
    if (rc == 0 && texts == NULL) {
        rc = stk_err_set(err, STK_E_NOMEM, "out of memory");
    }
    if (rc == 0) {
        *ret_documents = texts;
        *ret_n = (uint32_t)n;
    }
    return rc;
}

const stk_driver_kind stk_driver_kubernetes = {
    .name = "kubernetes", .open = open_driver, .manifest = manifest, .check = stk_kube_check};
