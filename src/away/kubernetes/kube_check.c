/* kube_check: can we reach the cluster, do we have the rights that we need, and which devices and
 * add-ons does it have? */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "away/kubernetes/kube_driver.h"
#include "away/kubernetes/kube_models.h"
#include "base/text.h"

typedef struct checker {
    stk_kube *k;
    void (*say)(void *arg, bool is_good, const char *text);
    void *arg;
    stk_arena *arena;
    stk_err *err;
    bool makes_sets;
    /* of the last answer */
    bool done;
    int status;
    bool fatal, again;
    stk_json root;
    char *text;
} checker;

static void on_answer(void *arg, const stk_kube_answer *a)
{
    checker *c = arg;
    c->done = true;
    c->status = a->status;
    c->fatal = a->fatal;
    c->again = a->again;
    c->root = (stk_json){0};
    c->text = stk_arena_dup(c->arena, a->good ? "" : a->text);
    if (a->good) {
        (void)stk_kube_parse(a->body, a->len, c->arena, &c->root);
    }
}

/* Returns the answer's HTTP status; below 0: no answer. */
static int ask(checker *c, const char *method, const char *way, const char *body)
{
    for (int tries = 0; tries < 3; tries++) {
        stk_kube_request request = {
            .method = method, .way = way, .body = body, .done = on_answer, .arg = c};
        uint64_t id;
        c->done = false;
        int rc = stk_kube_ask(&c->k->api, &request, &id, c->err);
        while (rc == 0 && !c->done) {
            rc = stk_http_many_turn(c->k->api.many, -1, 1000, c->err);
        }
        if (rc < 0) {
            return rc;
        }
        if (!c->again) {
            break;
        }
    }
    if (c->status > 0) {
        return c->status;
    }
    stk_err_set(c->err, STK_E_ENV, "can't reach %s (%s): %s", c->k->cluster.server,
                c->k->cluster.origin, c->text);
    if (!c->fatal) {
        stk_err_hint(c->err,
                     "check that it is up, and that `kubectl version` reaches it from here");
    }
    return STK_E_ENV;
}

static void tell(checker *c, bool good, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void tell(checker *c, bool good, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    c->say(c->arg, good, text);
}

static int check_rights(checker *c)
{
    const char *missing = NULL;
    uint32_t n_bad = 0;
    for (uint32_t i = 0; i < KUBE_RIGHTS; i++) {
        const stk_kube_right *right = &stk_kube_rights[i];
        if (right->need == KUBE_FOR_SETS && !c->makes_sets) {
            continue;
        }
        STK_BUF_AUTO body = STK_BUF_INIT(KUBE_REVIEW_BYTES);
        stk_kube_review(right, c->k->cluster.name_space, &body);
        STK_TRY(stk_buf_check(&body, c->err));
        int status = ask(c, "POST", KUBE_REVIEWS, body.data);
        STK_TRY(status);
        const stk_json *allowed = stk_kube_at(&c->root, "status/allowed");
        if (status != 201 || allowed == NULL || allowed->kind != STK_JSON_BOOL) {
            tell(c, false, "can't ask which rights we have: %s",
                 status == 201 ? "no answer" : c->text);
            return 0;
        }
        n_bad += !allowed->truth;
        if (!allowed->truth) {
            tell(c, false, "no right to %s %s%s%s in namespace '%s' (needed %s)", right->verb,
                 right->resource, stk_text_when(*right->sub != '\0', "/"), right->sub,
                 c->k->cluster.name_space, right->why);
            if (missing == NULL && right->need == KUBE_FOR_ALL) {
                missing = stk_arena_printf(c->arena, "%s %s", right->verb, right->resource);
            }
        }
    }
    if (missing != NULL) {
        return stk_err_set(
            c->err, STK_E_ENV,
            "%s has no right to %s in namespace '%s'; ask for a Role with it for this user",
            c->k->cluster.origin, missing, c->k->cluster.name_space);
    }
    if (n_bad == 0) {
        tell(c, true, "all needed rights in namespace '%s'", c->k->cluster.name_space);
    }
    return 0;
}

static int check_namespace(checker *c)
{
    const char *way = stk_arena_printf(c->arena, "/api/v1/namespaces/%s", c->k->cluster.name_space);
    int status = ask(c, "GET", way, NULL);
    if (status == 404) {
        return stk_err_set(c->err, STK_E_ENV,
                           "namespace '%s' doesn't exist; create it by `kubectl create namespace "
                           "%s`, or use another one",
                           c->k->cluster.name_space, c->k->cluster.name_space);
    }
    if (status == 200) {
        tell(c, true, "namespace '%s' exists", c->k->cluster.name_space);
    }
    return MIN(status, 0);
}

static int check_addons(checker *c)
{
    static const struct {
        const char *way, *name, *use;
    } addons[] = {
        {KUBE_JOBSET, "JobSet", "gangs are JobSets, unless the option jobset is false"},
        {"/apis/kueue.x-k8s.io/v1beta1", "Kueue", "the option kueue_queue names one of its queues"},
    };
    for (size_t i = 0; i < 2; i++) {
        int status = ask(c, "GET", addons[i].way, NULL);
        STK_TRY(status);
        if (status == 200) {
            tell(c, true, "%s is installed: %s", addons[i].name, addons[i].use);
        }
        c->makes_sets = c->makes_sets ||
                        (i == 0 && status == 200 && stk_kube_true(&c->k->options, "jobset", true));
        if (i == 0 && status == 404 && stk_kube_true(&c->k->options, "jobset", false)) {
            tell(c, false,
                 "the option jobset is true, but JobSet isn't installed; install it, or remove the "
                 "option, so that gangs are Indexed Jobs");
        }
    }
    return 0;
}

/* --- what the options name, and what the namespace allows --- */

/* Does an object that the options name exist? Pods that name a missing one wait for it. */
static int check_object(checker *c, const char *kind, const char *group, const char *plural,
                        const char *name, const char *option)
{
    const char *way = stk_arena_printf(c->arena, "%s/%s/%s", group, plural, name);
    int status = ask(c, "GET", way, NULL);
    if (status == 404) {
        tell(c, false, "%s '%s' doesn't exist (%s); create it, or name another one", kind, name,
             option);
    } else if (status == 200) {
        tell(c, true, "%s '%s' exists", kind, name);
    }
    return MIN(status, 0); /* without the right to read it, a run finds out */
}

static const char *in_namespace(checker *c)
{
    return stk_arena_printf(c->arena, "/api/v1/namespaces/%s", c->k->cluster.name_space);
}

/* "pvc:NAME/path": is the claim there? */
static int check_claim(checker *c, const char *volume, const char *option)
{
    if (volume == NULL || strncmp(volume, "pvc:", 4) != 0) {
        return 0;
    }
    const char *name = stk_arena_dupn(c->arena, volume + 4, strcspn(volume + 4, "/"));
    STK_TRY(stk_err_if_null(name, c->err));
    return check_object(c, "PersistentVolumeClaim", in_namespace(c), "persistentvolumeclaims", name,
                        option);
}

static int check_objects(checker *c)
{
    const stk_json *o = &c->k->options;
    const char *here = in_namespace(c);
    const char *account = stk_kube_text(o, "service_account");
    const char *priority = stk_kube_text(o, "priority_class");
    const char *runtime = stk_kube_text(o, "runtime_class");
    static const char *const lists[] = {"image_pull_secrets", "secrets"};
    if (account != NULL) {
        STK_TRY(check_object(c, "ServiceAccount", here, "serviceaccounts", account,
                             "option service_account"));
    }
    if (priority != NULL) {
        STK_TRY(check_object(c, "PriorityClass", "/apis/scheduling.k8s.io/v1", "priorityclasses",
                             priority, "option priority_class"));
    }
    if (runtime != NULL) {
        STK_TRY(check_object(c, "RuntimeClass", "/apis/node.k8s.io/v1", "runtimeclasses", runtime,
                             "option runtime_class"));
    }
    for (size_t i = 0; i < 2; i++) {
        const stk_json *names = stk_json_get(o, lists[i]);
        for (uint32_t k = 0; k < stk_json_n_items(names); k++) {
            STK_TRY(check_object(c, "Secret", here, "secrets", names->items[k].text,
                                 stk_arena_printf(c->arena, "option %s", lists[i])));
        }
    }
    const stk_json *claims = stk_json_get(o, "persistent_volume_claims");
    for (uint32_t i = 0; i < stk_json_n_members(claims); i++) {
        STK_TRY(check_object(c, "PersistentVolumeClaim", here, "persistentvolumeclaims",
                             stk_json_key(claims, i)->text, "option persistent_volume_claims"));
    }
    STK_TRY(check_claim(c, c->k->config->store_volume, "store_volume"));
    return check_claim(c, c->k->config->carry_volume, "carry_volume");
}

/* Quotas that are used up, or that devices count against: "3 of 8 requests.nvidia.com/gpu". */
static int check_quotas(checker *c)
{
    int status =
        ask(c, "GET", stk_arena_printf(c->arena, "%s/resourcequotas", in_namespace(c)), NULL);
    const stk_json *items = stk_kube_at(&c->root, "items");
    for (uint32_t i = 0; status == 200 && i < stk_json_n_items(items); i++) {
        const stk_json *hard = stk_kube_at(&items->items[i], "status/hard");
        const stk_json *used = stk_kube_at(&items->items[i], "status/used");
        for (uint32_t k = 0; k < stk_json_n_members(hard); k++) {
            const char *name = stk_json_key(hard, k)->text;
            const char *all = stk_text_or(stk_json_text(stk_json_value(hard, k)), "?");
            const char *of = stk_text_or(stk_json_get_text(used, name), "0");
            tell(c, strcmp(all, of) != 0, "quota '%s': %s of %s %s is used%s",
                 stk_kube_text_at(&items->items[i], "metadata/name"), of, all, name,
                 stk_text_when(strcmp(all, of) == 0, " up; steps wait until others end"));
        }
    }
    return MIN(status, 0);
}

static int check_limits(checker *c)
{
    static const char *const kinds[] = {"max", "min", "default"};
    int status = ask(c, "GET", stk_arena_printf(c->arena, "%s/limitranges", in_namespace(c)), NULL);
    const stk_json *items = stk_kube_at(&c->root, "items");
    for (uint32_t i = 0; status == 200 && i < stk_json_n_items(items); i++) {
        const stk_json *limits = stk_kube_at(&items->items[i], "spec/limits");
        for (uint32_t k = 0; k < 3 * stk_json_n_items(limits); k++) {
            const stk_json *one = &limits->items[k / 3];
            const stk_json *amounts = stk_json_get(one, kinds[k % 3]);
            for (uint32_t j = 0; j < stk_json_n_members(amounts); j++) {
                tell(c, true, "limit range '%s': %s of each %s is %s %s",
                     stk_kube_text_at(&items->items[i], "metadata/name"),
                     stk_json_key(amounts, j)->text,
                     stk_text_or(stk_json_get_text(one, "type"), "?"),
                     strcmp(kinds[k % 3], "default") == 0 ? "by default" : kinds[k % 3],
                     stk_text_or(stk_json_text(stk_json_value(amounts, j)), "?"));
            }
        }
    }
    return MIN(status, 0);
}

/* Pod Security: "restricted" refuses pods without a securityContext that gives up rights. */
static int check_pod_security(checker *c)
{
    int status = ask(c, "GET", in_namespace(c), NULL);
    const stk_json *labels = stk_kube_at(&c->root, "metadata/labels");
    const char *level =
        stk_text_or(stk_json_get_text(labels, "pod-security.kubernetes.io/enforce"), "");
    const stk_json *own = stk_json_get(&c->k->options, "security_context");
    bool is_set = stk_kube_at(own, "allowPrivilegeEscalation") != NULL ||
                  stk_kube_at(own, "allow_privilege_escalation") != NULL;
    if (status == 200 && strcmp(level, "restricted") == 0) {
        tell(c, is_set, "Pod Security of namespace '%s' is restricted%s", c->k->cluster.name_space,
             is_set ? "; the option security_context is there" : "; " STK_KUBE_RESTRICTED);
    } else if (status == 200 && *level != '\0') {
        tell(c, true, "Pod Security of namespace '%s' is %s", c->k->cluster.name_space, level);
    }
    return MIN(status, 0);
}

typedef struct device {
    const char *name;
    long long sum;
    uint32_t n_nodes;
} device;

/* Adds a node's devices of one kind to the sums. */
static int count_device(checker *c, device **all, uint32_t *n, uint32_t *cap, const char *name,
                        long long amount)
{
    uint32_t i = 0;
    while (i < *n && strcmp((*all)[i].name, name) != 0) {
        i++;
    }
    if (i == *n) {
        device *grown = stk_arena_grow(c->arena, *all, *n, sizeof *grown, cap);
        STK_TRY(stk_err_if_null(grown, c->err));
        *all = grown;
        grown[(*n)++] = (device){.name = name};
    }
    (*all)[i].sum += amount;
    (*all)[i].n_nodes++;
    return 0;
}

/* "nvidia.com/gpu.product: Tesla-T4 on 2 nodes (gpu_class T4)". */
static int tell_models(checker *c, const stk_json *items)
{
    stk_kube_nodes nodes = {0};
    int rc = stk_kube_read_nodes(&nodes, items, c->err);
    for (uint32_t i = 0; i < nodes.n; i++) {
        const stk_kube_model *one = &nodes.models[i];
        char names[200];
        bool is_known = *stk_kube_model_names(one->label, one->value, names, sizeof names) != '\0';
        if (is_known) {
            tell(c, true, "%s: %s on %u node%s (gpu_class %s)", one->label, one->value,
                 one->n_nodes, stk_text_plural(one->n_nodes), names);
        } else if (strstr(one->label, "instance-type") == NULL) {
            tell(c, true, "%s: %s on %u node%s", one->label, one->value, one->n_nodes,
                 stk_text_plural(one->n_nodes));
        }
    }
    stk_kube_nodes_free(&nodes);
    return rc;
}

/* "16 nvidia.com/gpu on 2 nodes". */
static int check_nodes(checker *c)
{
    device *all = NULL;
    uint32_t n = 0, cap = 0;
    int status = ask(c, "GET", "/api/v1/nodes?limit=500", NULL);
    const stk_json *items = stk_kube_at(&c->root, "items");
    if (status != 200 || !stk_json_is_list(items)) {
        if (status >= 400) {
            const char *why = status == 403 ? "no right to list nodes" : c->text;
            tell(c, true, "can't check the devices of nodes: %s", why);
        }
        return MIN(status, 0);
    }
    for (uint32_t i = 0; i < items->n; i++) {
        const stk_json *has = stk_kube_at(&items->items[i], "status/allocatable");
        for (uint32_t j = 0; j < stk_json_n_members(has); j++) {
            const char *name = stk_json_key(has, j)->text;
            const char *amount = stk_text_or(stk_json_text(stk_json_value(has, j)), "");
            long long n_has = strtoll(amount, NULL, 10);
            if (strchr(name, '/') != NULL && n_has > 0) {
                STK_TRY(count_device(c, &all, &n, &cap, name, n_has));
            }
        }
    }
    tell(c, true, "%u node%s", items->n, stk_text_plural(items->n));
    for (uint32_t i = 0; i < n; i++) {
        tell(c, true, "%lld %s on %u node%s", all[i].sum, all[i].name, all[i].n_nodes,
             stk_text_plural(all[i].n_nodes));
    }
    return tell_models(c, items);
}

static int check_server(checker *c)
{
    int status = ask(c, "GET", "/version", NULL);
    if (status < 0) {
        return status;
    }
    if (status == 401) {
        return stk_err_set(c->err, STK_E_ENV,
                           "%s is rejected by %s (401 Unauthorized); log in again",
                           c->k->cluster.origin, c->k->cluster.server);
    }
    tell(c, true, "%s by %s: Kubernetes %s", c->k->cluster.server, c->k->cluster.origin,
         status == 200 ? stk_kube_text_at(&c->root, "gitVersion") : "(unknown version)");
    return 0;
}

static int check_all(checker *c)
{
    STK_TRY(check_server(c));
    STK_TRY(check_namespace(c));
    STK_TRY(check_addons(c));
    STK_TRY(check_rights(c));
    STK_TRY(check_pod_security(c));
    STK_TRY(check_objects(c));
    STK_TRY(check_quotas(c));
    STK_TRY(check_limits(c));
    return check_nodes(c);
}

int stk_kube_check(const stk_driver_config *config,
                   void (*say)(void *arg, bool is_good, const char *text), void *arg, stk_err *err)
{
    stk_kube *k = NULL;
    int rc = stk_kube_open(config, &k, err);
    if (rc < 0) {
        return rc;
    }
    k->api.auth.waits = true;
    checker c = {.k = k, .say = say, .arg = arg, .arena = k->arena, .err = err};
    rc = check_all(&c);
    k->base.ops->close(&k->base);
    return rc;
}
