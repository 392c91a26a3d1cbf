/* kube_manifest: a job → the documents that are sent, in this order: the Job (or JobSet), then what
 * it owns, so that nothing is left when it goes. Pure. */
#include "away/kubernetes/kube_manifest.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum { TTL_S = 86400, ENV_BYTES = STK_LIMIT_ENV_BYTES };

/* --- trees --- */

void stk_kube_set(stk_kube_maker *m, json_t *map, const char *key, json_t *value)
{
    if (value == NULL || json_object_set_new(map, key, value) != 0) {
        m->failed = true;
    }
}

void stk_kube_set_text(stk_kube_maker *m, json_t *map, const char *key, const char *text)
{
    if (text != NULL) {
        json_t *value = json_string(text);
        stk_kube_set(m, map, key, value == NULL ? json_string("?") : value); /* no UTF-8 */
    }
}

void stk_kube_append(stk_kube_maker *m, json_t *list, json_t *value)
{
    if (value == NULL || json_array_append_new(list, value) != 0) {
        m->failed = true;
    }
}

static json_t *member(stk_kube_maker *m, json_t *map, const char *key, json_t *fresh)
{
    json_t *there = json_object_get(map, key);
    if (there != NULL && json_typeof(there) == json_typeof(fresh)) {
        json_decref(fresh);
        return there;
    }
    stk_kube_set(m, map, key, fresh);
    return json_object_get(map, key);
}

json_t *stk_kube_child(stk_kube_maker *m, json_t *map, const char *key)
{
    return member(m, map, key, json_object());
}

json_t *stk_kube_list(stk_kube_maker *m, json_t *map, const char *key)
{
    return member(m, map, key, json_array());
}

/* --- names --- */

const char *stk_kube_label(const char *text, char *buf)
{
    size_t n = 0;
    for (; *text != '\0' && n < STK_KUBE_NAME; text++) {
        bool plain = isalnum((unsigned char)*text) != 0;
        if (plain || n > 0) { /* it begins with one of these */
            buf[n++] = plain || strchr("-_.", *text) != NULL ? *text : '-';
        }
    }
    while (n > 0 && !isalnum((unsigned char)buf[n - 1])) {
        n--;
    }
    buf[n] = '\0';
    return buf;
}

static void put_labels(stk_kube_maker *m, json_t *meta)
{
    const stk_remote_job *j = m->job;
    const struct {
        const char *key, *text;
    } all[] = {{STK_KUBE_LABEL_RUN, j->run},
               {"stoker.pipeline", j->pipeline},
               {"stoker.step", j->step},
               {"stoker.task", stk_arena_printf(m->arena, "%u", j->task)},
               {STK_KUBE_LABEL_ATTEMPT, stk_arena_printf(m->arena, "%u", j->attempt)},
               {STK_KUBE_LABEL_JOB, j->name}};
    json_t *labels = stk_kube_child(m, meta, "labels");
    char buf[STK_KUBE_NAME + 1];
    stk_kube_set_text(m, labels, "app.kubernetes.io/managed-by", "stoker");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i].text != NULL) {
            stk_kube_set_text(m, labels, all[i].key, stk_kube_label(all[i].text, buf));
            if (strcmp(buf, all[i].text) != 0) {
                stk_kube_set_text(m, stk_kube_child(m, meta, "annotations"), all[i].key,
                                  all[i].text);
            }
        }
    }
    stk_kube_set_text(m, stk_kube_child(m, meta, "annotations"), STK_KUBE_NOTE_ID,
                      stk_arena_printf(m->arena, "%u", j->id));
    if (stk_kube_true(m->options, "keep", false)) {
        stk_kube_set_text(m, labels, STK_KUBE_LABEL_KEEP, "true");
    }
    stk_kube_set_text(m, labels, "kueue.x-k8s.io/queue-name",
                      stk_kube_text(m->options, "kueue_queue"));
    stk_kube_set_text(m, labels, "kueue.x-k8s.io/priority-class",
                      stk_kube_text(m->options, "kueue_priority_class"));
    const char *const given[] = {"labels", "annotations"};
    for (size_t i = 0; i < 2; i++) {
        json_t *pairs = json_object_get(m->options, given[i]);
        if (pairs != NULL && json_object_update_missing(stk_kube_child(m, meta, given[i]), pairs)) {
            m->failed = true;
        }
    }
}

static json_t *new_document(stk_kube_maker *m, const char *version, const char *kind,
                            const char *name)
{
    json_t *doc = json_pack("{s:s, s:s, s:{s:s}}", "apiVersion", version, "kind", kind, "metadata",
                            "name", name);
    json_t *meta = json_object_get(doc, "metadata");
    if (doc == NULL) {
        m->failed = true;
    }
    stk_kube_set_text(m, meta, "namespace", m->name_space);
    put_labels(m, meta);
    return doc;
}

/* --- documents --- */

static json_t *new_job_spec(stk_kube_maker *m, int *ret_rc)
{
    const stk_remote_job *j = m->job;
    /* Its own retries are none: an attempt is ours to repeat. A pod that makes way for another
     * fails the Job at once, with a reason that outlives the pod. */
    json_t *spec = json_pack("{s:i, s:{s:[{s:s, s:[{s:s, s:s}]}]}}", "backoffLimit", 0,
                             "podFailurePolicy", "rules", "action", "FailJob", "onPodConditions",
                             "type", "DisruptionTarget", "status", "True");
    int64_t ttl = stk_kube_whole(m->options, "ttl_seconds_after_finished");
    int64_t deadline = stk_kube_whole(m->options, "active_deadline_seconds");
    stk_kube_set(m, spec, "ttlSecondsAfterFinished", json_integer(ttl < 0 ? TTL_S : ttl));
    if (deadline > 0) {
        stk_kube_set(m, spec, "activeDeadlineSeconds", json_integer(deadline));
    }
    if (j->nodes > 1) {
        stk_kube_set_text(m, spec, "completionMode", "Indexed");
        stk_kube_set(m, spec, "completions", json_integer(j->nodes));
        stk_kube_set(m, spec, "parallelism", json_integer(j->nodes));
    }
    json_t *template = stk_kube_child(m, spec, "template");
    put_labels(m, stk_kube_child(m, template, "metadata"));
    *ret_rc = stk_kube_put_pod(m, template);
    return spec;
}

static json_t *new_job(stk_kube_maker *m, int *ret_rc)
{
    json_t *doc = m->as_set ? new_document(m, "jobset.x-k8s.io/v1alpha2", "JobSet", m->job->name)
                            : new_document(m, "batch/v1", "Job", m->job->name);
    json_t *spec = new_job_spec(m, ret_rc);
    if (!m->as_set) {
        stk_kube_set(m, doc, "spec", spec);
        return doc;
    }
    json_t *set = stk_kube_child(m, doc, "spec");
    json_t *template = json_object();
    put_labels(m, stk_kube_child(m, template, "metadata"));
    json_t *ttl = json_incref(json_object_get(spec, "ttlSecondsAfterFinished"));
    (void)json_object_del(spec, "ttlSecondsAfterFinished"); /* the set's, not its Job's */
    stk_kube_set(m, template, "spec", spec);
    stk_kube_set(m, set, "ttlSecondsAfterFinished", ttl);
    stk_kube_set(m, set, "network",
                 json_pack("{s:b, s:s, s:b}", "enableDNSHostnames", 1, "subdomain", m->job->name,
                           "publishNotReadyAddresses", 1));
    stk_kube_set(m, set, "failurePolicy", json_pack("{s:i}", "maxRestarts", 0));
    stk_kube_set(m, set, "replicatedJobs",
                 json_pack("[{s:s, s:i, s:o}]", "name", "n", "replicas", 1, "template", template));
    return doc;
}

static void set_owner(stk_kube_maker *m, json_t *doc, const json_t *owner)
{
    json_t *meta = json_object_get(doc, "metadata");
    stk_kube_set(m, meta, "ownerReferences",
                 json_pack("[{s:O, s:O, s:s, s:s, s:b}]", "apiVersion",
                           json_object_get(owner, "apiVersion"), "kind",
                           json_object_get(owner, "kind"), "name", m->job->name, "uid",
                           "(of the Job)", "controller", 0));
}

static int add_secret(stk_kube_maker *m, json_t *all, const json_t *owner)
{
    const char *const *secret = m->job->secret;
    if (secret == NULL || secret[0] == NULL) {
        return 0;
    }
    json_t *doc = new_document(m, "v1", "Secret", m->job->name);
    set_owner(m, doc, owner);
    stk_kube_set_text(m, doc, "type", "Opaque");
    json_t *data = stk_kube_child(m, doc, "stringData");
    for (; *secret != NULL; secret++) {
        const char *equals = strchr(*secret, '=');
        const char *name = equals == NULL
                               ? *secret
                               : stk_arena_dupn(m->arena, *secret, (size_t)(equals - *secret));
        stk_kube_set_text(m, data, stk_text_or(name, ""), equals == NULL ? "" : equals + 1);
    }
    stk_kube_append(m, all, doc);
    return 0;
}

/* Names for the nodes of a gang to find each other by, before they are ready. */
static void add_service(stk_kube_maker *m, json_t *all, const json_t *owner)
{
    json_t *doc = new_document(m, "v1", "Service", m->job->name);
    set_owner(m, doc, owner);
    stk_kube_set(m, doc, "spec",
                 json_pack("{s:s, s:b, s:{s:s}}", "clusterIP", "None", "publishNotReadyAddresses",
                           1, "selector", STK_KUBE_LABEL_JOB, m->job->name));
    stk_kube_append(m, all, doc);
}

/* Linux takes no longer text in an environment, and says so too late. */
static int check_env(const stk_kube_maker *m, const char *const *env)
{
    for (; env != NULL && *env != NULL; env++) {
        if (strlen(*env) >= ENV_BYTES) {
            return stk_err_set(m->err, STK_E_LIMIT,
                               "step '%s': the variable %.*s has more than %d KiB, which no "
                               "container can be started with; pass it as a file",
                               m->job->step, (int)strcspn(*env, "="), *env, ENV_BYTES >> 10);
        }
    }
    return 0;
}

stk_kube_form stk_kube_form_of(const stk_remote_job *job, const json_t *options)
{
    bool is_said = json_object_get(options, "jobset") != NULL;
    bool as_set = stk_kube_true(options, "jobset", true);
    if (job->nodes < 2 || !as_set) {
        return STK_KUBE_AS_JOB;
    }
    if (is_said) {
        return STK_KUBE_AS_SET;
    }
    return STK_KUBE_AS_EITHER;
}

int stk_kube_make(const stk_driver_config *config, const stk_remote_job *job, const json_t *options,
                  const char *name_space, bool as_set, stk_arena *arena, json_t **ret, stk_err *err)
{
    stk_kube_maker m = {.config = config,
                        .job = job,
                        .options = options,
                        .name_space = name_space,
                        .arena = arena,
                        .err = err,
                        .as_set = as_set};
    int rc = check_env(&m, job->env);
    rc = rc < 0 ? rc : check_env(&m, job->secret);
    if (rc < 0) {
        return rc;
    }
    json_t *all = json_array();
    json_t *first = new_job(&m, &rc);
    stk_kube_append(&m, all, first);
    if (rc == 0) {
        rc = add_secret(&m, all, first);
    }
    if (rc == 0 && job->nodes > 1 && !as_set) {
        add_service(&m, all, first);
    }
    if (rc == 0 && m.failed) {
        rc = stk_err_set(err, STK_E_NOMEM, "step '%s': out of memory", job->step);
    }
    if (rc < 0) {
        json_decref(all);
        return rc;
    }
    *ret = all;
    return 0;
}
