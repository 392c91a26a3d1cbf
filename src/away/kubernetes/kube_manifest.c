/* kube_manifest: turns a job into the documents that we send, in this order: the Job (or JobSet),
 * then the objects that it owns, which the cluster removes with it. Pure. */
#include "away/kubernetes/kube_manifest.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>

#include "base/text.h"

enum { TTL_S = 86400, ENV_BYTES = STK_LIMIT_ENV_BYTES };
#define TTL "ttlSecondsAfterFinished"

/* Indexed by as_set: a Job's, a JobSet's. */
static const char *const versions[] = {"batch/v1", "jobset.x-k8s.io/v1alpha2"};
static const char *const kinds[] = {"Job", "JobSet"};

/* --- trees --- */

void stk_kube_set(stk_kube_maker *m, stk_json *map, const char *key, stk_json value)
{
    m->failed =
        !stk_json_is_map(map) || stk_json_set(m->arena, map, key, value) == NULL || m->failed;
}

void stk_kube_update(stk_kube_maker *m, stk_json *map, const stk_json *more)
{
    m->failed = !stk_json_is_map(map) || !stk_json_update(m->arena, map, more) || m->failed;
}

void stk_kube_append(stk_kube_maker *m, stk_json *list, stk_json value)
{
    m->failed =
        !stk_json_is_list(list) || stk_json_append(m->arena, list, value) == NULL || m->failed;
}

static stk_json copy_of(stk_kube_maker *m, const char *text)
{
    const char *own = stk_arena_dup(m->arena, text);
    m->failed = own == NULL || m->failed;
    m->is_odd = !stk_json_is_utf8(text, strlen(text)) || m->is_odd;
    return stk_json_of_text(stk_text_or(own, ""));
}

void stk_kube_append_text(stk_kube_maker *m, stk_json *list, const char *text)
{
    stk_kube_append(m, list, copy_of(m, text));
}

void stk_kube_set_text(stk_kube_maker *m, stk_json *map, const char *key, const char *text)
{
    if (text != NULL) {
        stk_kube_set(m, map, key, copy_of(m, text));
    }
}

void stk_kube_set_whole(stk_kube_maker *m, stk_json *map, const char *key, int64_t number)
{
    const char *digits = stk_arena_printf(m->arena, "%lld", (long long)number);
    m->failed = digits == NULL || m->failed;
    stk_kube_set(m, map, key, stk_json_of_digits(stk_text_or(digits, "0"), STK_JSON_INT));
}

stk_json stk_kube_map(stk_kube_maker *m, ...)
{
    stk_json map = stk_json_of_map();
    va_list args;
    va_start(args, m);
    for (const char *key; (key = va_arg(args, const char *)) != NULL;) {
        const char *text = va_arg(args, const char *);
        m->failed = text == NULL || m->failed;
        stk_kube_set_text(m, &map, key, text);
    }
    va_end(args);
    return map;
}

static stk_json *member(stk_kube_maker *m, stk_json *map, const char *key, stk_json fresh)
{
    if (!stk_json_is_kind(stk_json_get(map, key), (stk_json_kind)fresh.kind)) {
        stk_kube_set(m, map, key, fresh);
    }
    return (stk_json *)(uintptr_t)stk_json_get(map, key);
}

stk_json *stk_kube_child(stk_kube_maker *m, stk_json *map, const char *key)
{
    return member(m, map, key, stk_json_of_map());
}

stk_json *stk_kube_list(stk_kube_maker *m, stk_json *map, const char *key)
{
    return member(m, map, key, stk_json_of_list());
}

/* --- the API's objects as Python programs write them --- */

static const char *camel(const char *key, char *buf, size_t size)
{
    static const char *const odd[][2] = {
        {"host_ipc", "hostIPC"},     {"host_pid", "hostPID"},
        {"volume_id", "volumeID"},   {"disk_uri", "diskURI"},
        {"cluster_ip", "clusterIP"}, {"set_hostname_as_fqdn", "setHostnameAsFQDN"}};
    size_t n = 0;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        if (strcmp(key, odd[i][0]) == 0) {
            return odd[i][1];
        }
    }
    for (; *key != '\0' && n + 1 < size; key++) {
        bool up = *key == '_' && n > 0 && key[1] >= 'a' && key[1] <= 'z';
        buf[n++] = up ? (char)(key[1] - 'a' + 'A') : *key;
        key += up;
    }
    buf[n] = '\0';
    return buf;
}

/* The user chooses the keys of these maps: they are not respelled. */
static bool has_free_keys(const char *key)
{
    static const char *const all[] = {"labels",       "matchLabels",      "annotations",
                                      "nodeSelector", "limits",           "requests",
                                      "driver",       "volumeAttributes", "stringData"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(key, all[i]) == 0) {
            return true;
        }
    }
    return false;
}

stk_json stk_kube_shape(stk_kube_maker *m, const stk_json *value)
{
    char buf[256];
    stk_json copy = *value;
    if (stk_json_is_list(value)) {
        copy = stk_json_of_list();
        for (uint32_t i = 0; i < value->n; i++) {
            stk_kube_append(m, &copy, stk_kube_shape(m, &value->items[i]));
        }
    } else if (stk_json_is_map(value)) {
        copy = stk_json_of_map();
        for (uint32_t i = 0; i < value->n; i++) {
            const char *name = camel(stk_json_key(value, i)->text, buf, sizeof buf);
            const stk_json *one = stk_json_value(value, i);
            if (has_free_keys(name)) {
                stk_kube_set(m, &copy, name, *one);
            } else if (one->kind != STK_JSON_NULL) { /* Python's clients write null members */
                stk_kube_set(m, &copy, name, stk_kube_shape(m, one));
            }
        }
    }
    return copy;
}

/* --- names --- */

const char *stk_kube_label(const char *text, char *buf)
{
    size_t n = 0;
    for (; *text != '\0' && n < STK_KUBE_NAME; text++) {
        bool plain = isalnum((unsigned char)*text) != 0;
        if (plain || n > 0) { /* a label begins with a letter or digit */
            buf[n++] = plain || strchr("-_.", *text) != NULL ? *text : '-';
        }
    }
    while (n > 0 && !isalnum((unsigned char)buf[n - 1])) {
        n--;
    }
    buf[n] = '\0';
    return buf;
}

static void put_labels(stk_kube_maker *m, stk_json *meta)
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
    stk_json parts[] = {stk_json_of_map(), stk_json_of_map()};
    stk_json *labels = &parts[0], *notes = &parts[1];
    char buf[STK_KUBE_NAME + 1];
    stk_kube_set_text(m, labels, "app.kubernetes.io/managed-by", "stoker");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i].text != NULL) {
            stk_kube_set_text(m, labels, all[i].key, stk_kube_label(all[i].text, buf));
            if (strcmp(buf, all[i].text) != 0) {
                stk_kube_set_text(m, notes, all[i].key, all[i].text);
            }
        }
    }
    stk_kube_set_text(m, notes, STK_KUBE_NOTE_ID, stk_arena_printf(m->arena, "%u", j->id));
    if (stk_kube_true(m->options, "keep", false)) {
        stk_kube_set_text(m, labels, STK_KUBE_LABEL_KEEP, "true");
    }
    stk_kube_set_text(m, labels, "kueue.x-k8s.io/queue-name",
                      stk_kube_text(m->options, "kueue_queue"));
    stk_kube_set_text(m, labels, "kueue.x-k8s.io/priority-class",
                      stk_kube_text(m->options, "kueue_priority_class"));
    const char *const names[] = {"labels", "annotations"};
    for (size_t i = 0; i < 2; i++) {
        const stk_json *pairs = stk_json_get(m->options, names[i]);
        for (uint32_t k = 0; k < stk_json_n_members(pairs); k++) {
            const char *key = stk_json_key(pairs, k)->text;
            if (stk_json_get(&parts[i], key) == NULL) {
                stk_kube_set(m, &parts[i], key, *stk_json_value(pairs, k));
            }
        }
        stk_kube_set(m, meta, names[i], parts[i]);
    }
}

/* A service mesh puts a container into each pod that doesn't end with the step, so that the Job
 * would never complete. The user's own labels and annotations win. */
static void refuse_sidecars(stk_kube_maker *m, stk_json *template)
{
    static const char *const marks[][3] = {
        {"labels", "sidecar.istio.io/inject", "false"}, /* also Kubeflow's profiles */
        {"annotations", "sidecar.istio.io/inject", "false"},
        {"annotations", "linkerd.io/inject", "disabled"}};
    const stk_json *said = stk_json_get(stk_json_get(m->options, "labels"), marks[0][1]);
    for (size_t i = 0; i < 3; i++) {
        stk_json *meta = stk_kube_child(m, template, "metadata");
        stk_json *map = stk_kube_child(m, meta, marks[i][0]);
        bool is_istio = strcmp(marks[i][1], marks[0][1]) == 0;
        const stk_json *noted = stk_json_get(stk_json_get(m->options, "annotations"), marks[i][1]);
        if (stk_json_get(map, marks[i][1]) == NULL && noted == NULL &&
            !(is_istio && said != NULL)) {
            stk_kube_set_text(m, map, marks[i][1], marks[i][2]);
        }
    }
}

static stk_json new_document(stk_kube_maker *m, const char *version, const char *kind)
{
    stk_json doc = stk_kube_map(m, "apiVersion", version, "kind", kind, NULL);
    stk_json meta = stk_kube_map(m, "name", m->job->name, NULL);
    stk_kube_set_text(m, &meta, "namespace", m->name_space);
    put_labels(m, &meta);
    stk_kube_set(m, &doc, "metadata", meta);
    return doc;
}

/* --- documents --- */

static int put_job_spec(stk_kube_maker *m, stk_json *spec)
{
    const stk_remote_job *j = m->job;
    int64_t deadline = stk_kube_whole(m->options, "active_deadline_seconds");
    /* The Job itself never retries: the engine repeats attempts. A preempted or evicted pod fails
     * the Job at once, with a reason that outlives the pod. */
    stk_json rule = stk_kube_map(m, "action", "FailJob", NULL);
    stk_kube_append(m, stk_kube_list(m, &rule, "onPodConditions"),
                    stk_kube_map(m, "type", "DisruptionTarget", "status", "True", NULL));
    stk_kube_set_whole(m, spec, "backoffLimit", 0);
    stk_kube_append(m, stk_kube_list(m, stk_kube_child(m, spec, "podFailurePolicy"), "rules"),
                    rule);
    if (!m->as_set) { /* a JobSet has its own */
        stk_kube_set_whole(m, spec, TTL, m->ttl_s);
    }
    if (deadline > 0) {
        stk_kube_set_whole(m, spec, "activeDeadlineSeconds", deadline);
    }
    if (j->nodes > 1) {
        stk_kube_set_text(m, spec, "completionMode", "Indexed");
        stk_kube_set_whole(m, spec, "completions", j->nodes);
        stk_kube_set_whole(m, spec, "parallelism", j->nodes);
    }
    stk_json template = stk_json_of_map();
    put_labels(m, stk_kube_child(m, &template, "metadata"));
    refuse_sidecars(m, &template);
    STK_TRY(stk_kube_put_pod(m, &template));
    stk_kube_set(m, spec, "template", template);
    return 0;
}

static int make_job(stk_kube_maker *m, stk_json *ret_doc)
{
    stk_json spec = stk_json_of_map();
    *ret_doc = new_document(m, versions[m->as_set], kinds[m->as_set]);
    STK_TRY(put_job_spec(m, &spec));
    if (m->as_set) {
        stk_json template = stk_json_of_map(), set = stk_json_of_map();
        put_labels(m, stk_kube_child(m, &template, "metadata"));
        stk_kube_set(m, &template, "spec", spec);
        stk_kube_set_whole(m, &set, TTL, m->ttl_s);
        stk_json *network = stk_kube_child(m, &set, "network");
        stk_kube_set(m, network, "enableDNSHostnames", stk_json_of_bool(true));
        stk_kube_set_text(m, network, "subdomain", m->job->name);
        stk_kube_set(m, network, "publishNotReadyAddresses", stk_json_of_bool(true));
        stk_kube_set_whole(m, stk_kube_child(m, &set, "failurePolicy"), "maxRestarts", 0);
        stk_json jobs = stk_kube_map(m, "name", "n", NULL);
        stk_kube_set_whole(m, &jobs, "replicas", 1);
        stk_kube_set(m, &jobs, "template", template);
        stk_kube_append(m, stk_kube_list(m, &set, "replicatedJobs"), jobs);
        spec = set;
    }
    stk_kube_set(m, ret_doc, "spec", spec);
    return 0;
}

/* An object that the Job owns: the cluster removes both together. */
static stk_json new_owned(stk_kube_maker *m, const char *kind)
{
    stk_json doc = new_document(m, "v1", kind);
    stk_json owner = stk_kube_map(m, "apiVersion", versions[m->as_set], "kind", kinds[m->as_set],
                                  "name", m->job->name, "uid", "(of the Job)", NULL);
    stk_kube_set(m, &owner, "controller", stk_json_of_bool(false));
    stk_kube_append(m, stk_kube_list(m, stk_kube_child(m, &doc, "metadata"), "ownerReferences"),
                    owner);
    return doc;
}

static void add_secret(stk_kube_maker *m, stk_json *all)
{
    const char *const *secret = m->job->secret;
    if (secret == NULL || secret[0] == NULL) {
        return;
    }
    stk_json doc = new_owned(m, "Secret"), data = stk_json_of_map();
    for (; *secret != NULL; secret++) {
        size_t n = strcspn(*secret, "=");
        const char *name = stk_arena_dupn(m->arena, *secret, n);
        stk_kube_set_text(m, &data, stk_text_or(name, ""), *secret + n + ((*secret)[n] == '='));
    }
    stk_kube_set_text(m, &doc, "type", "Opaque");
    stk_kube_set(m, &doc, "stringData", data);
    stk_kube_append(m, all, doc);
}

/* Gives a gang's nodes DNS names, also before they are ready. */
static void add_service(stk_kube_maker *m, stk_json *all)
{
    stk_json doc = new_owned(m, "Service");
    stk_json spec = stk_kube_map(m, "clusterIP", "None", NULL);
    stk_kube_set(m, &spec, "publishNotReadyAddresses", stk_json_of_bool(true));
    stk_kube_set_text(m, stk_kube_child(m, &spec, "selector"), STK_KUBE_LABEL_JOB, m->job->name);
    stk_kube_set(m, &doc, "spec", spec);
    stk_kube_append(m, all, doc);
}

/* Linux limits a variable's length, but would report it only when the container starts. */
static int check_env(const stk_kube_maker *m, const char *const *env)
{
    for (; env != NULL && *env != NULL; env++) {
        if (strlen(*env) >= ENV_BYTES) {
            return stk_err_set(m->err, STK_E_LIMIT,
                               "step '%s': the variable %.*s has more than %d KiB, the limit for a "
                               "container; pass it as a file",
                               m->job->step, (int)strcspn(*env, "="), *env, ENV_BYTES >> 10);
        }
    }
    return 0;
}

stk_kube_form stk_kube_form_of(const stk_remote_job *job, const stk_json *options)
{
    if (job->nodes < 2 || !stk_kube_true(options, "jobset", true)) {
        return STK_KUBE_AS_JOB;
    }
    if (stk_json_get(options, "jobset") != NULL) {
        return STK_KUBE_AS_SET;
    }
    return STK_KUBE_AS_EITHER;
}

int stk_kube_make(const stk_driver_config *config, const stk_remote_job *job,
                  const stk_json *options, const char *name_space, bool as_set, stk_arena *arena,
                  stk_json *ret, stk_err *err)
{
    int64_t ttl_s = stk_kube_whole(options, "ttl_seconds_after_finished");
    stk_kube_maker m = {.config = config,
                        .job = job,
                        .options = options,
                        .name_space = name_space,
                        .arena = arena,
                        .err = err,
                        .ttl_s = ttl_s < 0 ? TTL_S : ttl_s,
                        .as_set = as_set};
    stk_json all = stk_json_of_list(), first;
    STK_TRY(check_env(&m, job->env));
    STK_TRY(check_env(&m, job->secret));
    STK_TRY(make_job(&m, &first));
    stk_kube_append(&m, &all, first);
    add_secret(&m, &all);
    if (job->nodes > 1 && !as_set) {
        add_service(&m, &all);
    }
    if (m.failed) {
        return stk_err_set(err, STK_E_NOMEM, "step '%s': out of memory", job->step);
    }
    if (m.is_odd) {
        return stk_err_set(err, STK_E_SPEC,
                           "step '%s': an argument or variable isn't valid UTF-8, which the API "
                           "server needs; pass it as a file",
                           job->step);
    }
    *ret = all;
    return 0;
}
