/* kube_rights: do we have the rights in a namespace that its jobs need? We ask the cluster
 * (SelfSubjectAccessReview) before we create anything: a job that we can't watch runs on unseen. */
#include <stdio.h>

#include "away/kubernetes/kube_driver.h"

enum { AGAIN_MS = 250 };

#define JOBSET "jobset.x-k8s.io"

const stk_kube_right stk_kube_rights[] = {
    {"batch", "jobs", "", "create", "to start steps", KUBE_FOR_ALL},
    {"batch", "jobs", "", "get", "to find them again", KUBE_FOR_ALL},
    {"batch", "jobs", "", "list", "to see how they are", KUBE_FOR_ALL},
    {"batch", "jobs", "", "watch", "to see how they are", KUBE_FOR_ALL},
    {"batch", "jobs", "", "delete", "to end and remove them", KUBE_FOR_ALL},
    {"", "pods", "", "list", "to see why they wait and how they ended", KUBE_FOR_ALL},
    {"", "pods", "", "watch", "to see why they wait and how they ended", KUBE_FOR_ALL},
    {"", "pods", "log", "get", "to show their output", KUBE_FOR_NONE},
    {"", "pods", "", "deletecollection", "to end them at once", KUBE_FOR_NONE},
    {"", "events", "", "list", "to see why they wait", KUBE_FOR_NONE},
    {"", "events", "", "watch", "to see why many of them wait, by one request", KUBE_FOR_NONE},
    {"", "secrets", "", "create", "to pass secrets on", KUBE_FOR_SECRETS},
    {"", "services", "", "create", "for steps on several nodes", KUBE_FOR_SERVICES},
    {JOBSET, "jobsets", "", "create", "for gangs as JobSets", KUBE_FOR_SETS},
    {JOBSET, "jobsets", "", "get", "to find gangs again", KUBE_FOR_SETS},
    {JOBSET, "jobsets", "", "delete", "to end and remove gangs", KUBE_FOR_SETS},
};
_Static_assert(sizeof stk_kube_rights / sizeof *stk_kube_rights == KUBE_RIGHTS, "their number");

void stk_kube_review(const stk_kube_right *right, const char *name_space, stk_buf *out)
{
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "apiVersion", "authorization.k8s.io/v1");
    stk_json_put_text(out, "kind", "SelfSubjectAccessReview");
    stk_json_open(out, "spec", '{');
    stk_json_open(out, "resourceAttributes", '{');
    stk_json_put_text(out, "namespace", name_space);
    stk_json_put_text(out, "group", right->group);
    stk_json_put_text(out, "resource", right->resource);
    stk_json_put_text(out, "subresource", right->sub);
    stk_json_put_text(out, "verb", right->verb);
    for (int i = 0; i < 3; i++) {
        stk_json_close(out, '}');
    }
}

/* A cluster that can't answer the review counts as granting the right: if we lack it, the request
 * itself fails later. */
static void on_review(void *arg, const stk_kube_answer *a)
{
    stk_kube_ask_right *ask = arg;
    stk_kube *k = ask->space->kube;
    ask->state = KUBE_RIGHT_UNKNOWN;
    if (stk_kube_passes(k, a, AGAIN_MS, &ask->not_before_ms)) {
        return;
    }
    ask->state = KUBE_RIGHT_GIVEN;
    if (stk_json_is_false(stk_kube_at(a->json, "status/allowed"))) {
        ask->state = KUBE_RIGHT_DENIED;
    }
}

static void begin_review(stk_kube_ask_right *ask, const stk_kube_right *right, int64_t now)
{
    stk_kube *k = ask->space->kube;
    STK_BUF_AUTO body = STK_BUF_INIT(KUBE_REVIEW_BYTES);
    stk_kube_review(right, ask->space->name, &body);
    const stk_kube_request request = {
        .method = "POST", .way = KUBE_REVIEWS, .body = body.data, .done = on_review, .arg = ask};
    uint64_t id;
    if (!body.failed && stk_kube_begin(k, &request, &id)) {
        ask->state = KUBE_RIGHT_ASKED;
    } else {
        ask->not_before_ms = now + AGAIN_MS;
    }
}

bool stk_kube_knows_rights(stk_kube_space *s, int64_t now)
{
    bool knows = true;
    for (uint32_t i = 0; i < KUBE_RIGHTS; i++) {
        stk_kube_ask_right *ask = &s->rights[i];
        if (stk_kube_rights[i].need == KUBE_FOR_NONE) {
            continue;
        }
        ask->space = s;
        if (ask->state == KUBE_RIGHT_UNKNOWN &&
            stk_kube_may_begin(s->kube, ask->not_before_ms, now)) {
            begin_review(ask, &stk_kube_rights[i], now);
        }
        knows = knows && (ask->state == KUBE_RIGHT_GIVEN || ask->state == KUBE_RIGHT_DENIED);
    }
    return knows;
}

const stk_kube_right *stk_kube_missing(const stk_kube_space *s, stk_kube_need need)
{
    for (uint32_t i = 0; i < KUBE_RIGHTS; i++) {
        if (stk_kube_rights[i].need == need && s->rights[i].state == KUBE_RIGHT_DENIED) {
            return &stk_kube_rights[i];
        }
    }
    return NULL;
}
