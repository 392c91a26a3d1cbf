/* What users read when the recorded answers of a real API server are replayed event by event. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "away/kubernetes/kube_status.h"
#include "base/testing.h"

/* Relative to the build folder, where tests run. */
#define DATA "../../../tests/data/kubernetes/"

/* What a recording says about one Job. */
typedef struct story {
    stk_kube_job job;
    stk_kube_pod pods[2];
    uint32_t n;
    bool hopeless;
    char waits[1024]; /* the longest reason for waiting */
    char event[1024];
    bool ran;
    stk_kube_verdict end; /* the first sure verdict, else the last one */
} story;

static void judge(story *s)
{
    stk_kube_verdict v;
    stk_kube_judge(&s->job, s->pods, s->n, &v);
    s->hopeless = s->hopeless || v.hopeless;
    s->ran = s->ran || v.report.state == STK_REMOTE_RUNNING;
    if (v.report.state == STK_REMOTE_QUEUED && strlen(v.report.text) > strlen(s->waits)) {
        (void)snprintf(s->waits, sizeof s->waits, "%s", v.report.text);
    }
    if (v.is_end && (!s->end.is_end || s->end.unsure)) {
        s->end = v;
    }
}

static void hear(story *s, const char *name, const stk_json *object, const char *kind, bool gone)
{
    if (strcmp(kind, "Job") == 0 && strcmp(stk_kube_text_at(object, "metadata/name"), name) == 0) {
        stk_kube_read_job(object, &s->job);
        s->job.gone = gone;
    } else if (strcmp(kind, "Pod") == 0 &&
               strcmp(stk_kube_text_at(object, "metadata/labels/batch.kubernetes.io~job-name"),
                      name) == 0) {
        stk_kube_pod pod;
        stk_kube_read_pod(object, &pod);
        pod.gone = gone;
        assert_true(pod.index < s->n);
        bool is_first =
            *s->pods[pod.index].name == '\0' || strcmp(s->pods[pod.index].name, pod.name) == 0;
        if (is_first) { /* our Jobs create no second pod */
            s->pods[pod.index] = pod;
        }
    } else {
        return;
    }
    judge(s);
}

static void hear_lists(story *s, const char *name, const stk_json *response)
{
    const stk_json *items = stk_json_get(response, "items");
    const char *kind = stk_kube_text_at(response, "kind");
    if (strcmp(kind, "Pod") == 0) { /* the response to a DELETE */
        hear(s, name, response, kind, false);
    }
    for (uint32_t i = 0; i < stk_json_n_items(items); i++) {
        const stk_json *one = &items->items[i];
        if (strcmp(kind, "PodList") == 0) { /* items of a list have no kind */
            hear(s, name, one, "Pod", false);
            continue;
        }
        char words[1024];
        const char *of = stk_kube_text_at(one, "involvedObject/name");
        if (strcmp(stk_kube_text_at(one, "kind"), "") == 0 &&
            strncmp(of, name, strlen(name)) == 0 &&
            strcmp(stk_kube_text_at(one, "type"), "Warning") == 0) {
            (void)stk_kube_event_words(stk_kube_text_at(one, "reason"),
                                       stk_kube_text_at(one, "message"), words, sizeof words);
            if (*words != '\0') {
                (void)snprintf(s->event, sizeof s->event, "%s", words);
            }
        }
    }
}

static void replay(const char *scenario, const char *name, uint32_t n, story *s)
{
    char path[512];
    char *text = NULL;
    size_t size = 0;
    stk_arena *arena = stk_arena_new(0);
    *s = (story){.n = n};
    (void)snprintf(path, sizeof path, "%.*s" DATA "%s.jsonl",
                   (int)(strrchr(__FILE__, '/') + 1 - __FILE__), __FILE__, scenario);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (getline(&text, &size, file) > 0) {
        stk_json line;
        assert_int_equal(stk_kube_parse(text, strlen(text), arena, &line), 0);
        const stk_json *event = stk_json_get(&line, "event");
        if (event != NULL) {
            hear(s, name, stk_json_get(event, "object"), stk_kube_text_at(event, "object/kind"),
                 strcmp(stk_kube_text_at(event, "type"), "DELETED") == 0);
        } else {
            hear_lists(s, name, stk_json_get(&line, "response"));
        }
        stk_arena_reset(arena);
    }
    free(text);
    (void)fclose(file);
    stk_arena_free(arena);
}

static void contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("'%s' is not in '%s'", part, text);
    }
}

static const struct {
    const char *scenario, *job;
    uint32_t n;
    stk_remote_state state;
    stk_failure failure;
    int exit_status, signal;
    bool oom;
    uint32_t node;
    const char *text;
} ends[] = {
    {"job-ok", "job-ok", 1, STK_REMOTE_ENDED, 0, 0, 0, false, 0, "node real-node"},
    {"job-exit-3", "job-exit-3", 1, STK_REMOTE_ENDED, 0, 3, 0, false, 0, "Error on node real-node"},
    {"job-exit-3", "job-fallback", 1, STK_REMOTE_ENDED, 0, -1, 9, false, 0, "Error on node"},
    {"job-exit-3", "job-starterror", 1, STK_REMOTE_FAILED, STK_FAIL_START, -1, 0, false, 0,
     "can't start its container: "},
    {"job-oom", "job-oom", 1, STK_REMOTE_ENDED, 0, 9, 0, true, 0, "OOMKilled"},
    {"job-oom", "job-oom2", 1, STK_REMOTE_ENDED, 0, -1, 9, true, 0, "OOMKilled"},
    {"deadline", "job-deadline", 1, STK_REMOTE_FAILED, STK_FAIL_TIMEOUT, -1, 0, false, 0,
     "its Job took longer than activeDeadlineSeconds"},
    {"deadline", "job-deadline-pending", 1, STK_REMOTE_FAILED, STK_FAIL_TIMEOUT, -1, 0, false, 0,
     "its Job took longer than activeDeadlineSeconds"},
    {"deadline", "pod-deadline", 1, STK_REMOTE_FAILED, STK_FAIL_TIMEOUT, -1, 0, false, 0,
     "the pod's activeDeadlineSeconds"},
    {"disruption", "low", 1, STK_REMOTE_FAILED, STK_FAIL_PREEMPTED, -1, 0, false, 0,
     "preempted on node real-node: default-scheduler: preempting to accommodate"},
    {"disruption", "evict-ignore", 1, STK_REMOTE_FAILED, STK_FAIL_PREEMPTED, -1, 0, false, 0,
     "evicted from node real-node"},
    {"disruption", "evict-plain", 1, STK_REMOTE_FAILED, STK_FAIL_LOST, -1, 0, false, 0,
     "its pods no longer exist"}, /* Stoker's own Jobs fail with a reason: see test_lagging */
    {"node-lost", "plain", 1, STK_REMOTE_FAILED, STK_FAIL_LOST, -1, 0, false, 0,
     "node gpu-lost is lost: it has stopped answering"},
    {"node-lost", "ignore", 1, STK_REMOTE_FAILED, STK_FAIL_LOST, -1, 0, false, 0,
     "node gpu-lost is lost"},
    {"indexed-2", "ddp", 2, STK_REMOTE_ENDED, 0, 0, 0, false, 0, ""},
    {"indexed-2", "rank-fails", 2, STK_REMOTE_ENDED, 0, 7, 0, false, 1, "Error on node"},
    {"inject-runner", "inject", 1, STK_REMOTE_ENDED, 0, 0, 0, false, 0, ""},
    {"inject-runner", "init-fails", 1, STK_REMOTE_FAILED, STK_FAIL_START, -1, 0, false, 0,
     "init container 'inject' ended with 6 (Error)"},
    {"inject-runner", "late-config", 1, STK_REMOTE_ENDED, 0, 0, 0, false, 0, ""},
    {"quota", "job-2gpu", 1, STK_REMOTE_ENDED, 0, 0, 0, false, 0, ""},
    {"delete-policies", "job-bg", 1, STK_REMOTE_FAILED, STK_FAIL_LOST, -1, 0, false, 0, ""},
    {"delete-policies", "job-fg", 1, STK_REMOTE_FAILED, STK_FAIL_LOST, -1, 0, false, 0, ""},
    {"job-unschedulable", "job-queued", 1, STK_REMOTE_ENDED, 0, 0, 0, false, 0, ""},
};

static void test_ends(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        story s;
        replay(ends[i].scenario, ends[i].job, ends[i].n, &s);
        const stk_remote_report *r = &s.end.report;
        if (!s.end.is_end || r->state != ends[i].state || r->failure != ends[i].failure ||
            r->exit_status != ends[i].exit_status || r->signal != ends[i].signal ||
            r->oom != ends[i].oom || r->node != ends[i].node) {
            fail_msg("%s: end %d state %d failure %d exit %d signal %d oom %d node %u: %s",
                     ends[i].job, s.end.is_end, r->state, r->failure, r->exit_status, r->signal,
                     r->oom, r->node, r->text);
        }
        contains(r->text, ends[i].text);
    }
}

static const struct {
    const char *scenario, *job;
    bool hopeless;
    const char *words, *way;
} waits[] = {
    {"job-unschedulable", "job-16gpu", false,
     "no node accepts it: 0/8 nodes are available: 8 Insufficient nvidia.com/gpu;", "ask for less"},
    {"job-unschedulable", "job-queued", false, "Insufficient nvidia.com/gpu",
     "wait for other pods"},
    {"image-pull", "job-never", true, "its image isn't on node real-node, and the pull policy is",
     "load it there"},
    {"image-pull", "job-pull", false, "don't reach the registry", "image_map"},
    {"image-pull", "job-dns", false, "no such host", "the registry"},
    {"image-pull", "job-badname", true, "its image has an invalid name", "correct it"},
    {"inject-runner", "no-secret-key", false,
     "can't create its container (CreateContainerConfigError): couldn't find key", "check secrets"},
    {"suspend-resume", "queued", false, "it is suspended", ""},
    {"device-nodes", "tpu-topology", false, "didn't match Pod's node affinity/selector",
     "tpu_topology"},
    {"device-nodes", "tainted", false, "untolerated taint", "add a toleration"},
};

/* An init container of the user's isn't Stoker's: the text names it. */
static void test_waiting_init(void **state)
{
    static const struct {
        const char *container, *reason, *expected;
    } rows[] = {
        {STK_KUBE_CARRY, "ImagePullBackOff", "can't pull the image with Stoker's program: why;"},
        {"fetch", "ImagePullBackOff", "can't pull the image of init container 'fetch': why;"},
        {"fetch", "InvalidImageName",
         "the image of init container 'fetch' has an invalid name: why"},
        {"fetch", "CreateContainerConfigError", "can't create init container 'fetch' (Create"},
        {"fetch", "Other", "init container 'fetch' waits (Other): why"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512];
        stk_json object;
        stk_kube_pod pod;
        stk_kube_verdict v;
        STK_ARENA_AUTO arena = stk_arena_new(0);
        int n = snprintf(text, sizeof text,
                         "{\"metadata\":{\"name\":\"p\"},\"spec\":{\"nodeName\":\"n\"},\"status\":"
                         "{\"initContainerStatuses\":[{\"name\":\"%s\",\"state\":{\"waiting\":"
                         "{\"reason\":\"%s\",\"message\":\"why\"}}}]}}",
                         rows[i].container, rows[i].reason);
        assert_int_equal(stk_kube_parse(text, (size_t)n, arena, &object), 0);
        stk_kube_read_pod(&object, &pod);
        stk_kube_judge(&(stk_kube_job){.seen = true}, &pod, 1, &v);
        contains(v.report.text, rows[i].expected);
    }
}

/* Messages of the container runtimes: containerd, CRI-O and Docker. */
static void test_pulls(void **state)
{
#define OF                                                                                         \
    "failed to pull and unpack image \"r.io/x:1\": failed to resolve reference \"r.io/x:1\": "
    static const struct {
        const char *message, *expected;
        bool is_sure;
    } rows[] = {
        {OF "r.io/x:1: not found", "the registry doesn't have it", true},
        {"rpc error: code = NotFound desc = " OF "r.io/x:1: not found", "doesn't have it", true},
        {"reading manifest 1 in r.io/x: manifest unknown", "doesn't have it", true},
        {"reading manifest 1 in r.io/x: name unknown: repository not known", "have it", true},
        {"manifest for r.io/x:1 not found: manifest unknown: manifest unknown", "have it", true},
        {"failed to pull and unpack image \"r.io/x:1\": no match for platform in manifest: not "
         "found",
         "not for the architecture of node n ", true},
        {OF "pull access denied, repository does not exist or may require authorization: server "
            "message: insufficient_scope: authorization failed",
         "the registry refuses this cluster", false},
        {OF
         "unexpected status from HEAD request to https://r.io/v2/x/manifests/1: 401 Unauthorized",
         "refuses this cluster", false},
        {OF "unexpected status from HEAD request to https://r.io/v2/x/manifests/1: 403 Forbidden",
         "image_pull_secrets", false},
        {OF "unexpected status code https://r.io/v2/x/manifests/1: 429 Too Many Requests - Server "
            "message: toomanyrequests: You have reached your pull rate limit.",
         "limits how often", false},
        {OF "failed to do request: Head \"https://r.io/v2/x/manifests/1\": tls: failed to verify "
            "certificate: x509: certificate signed by unknown authority",
         "don't trust", false},
        {OF
         "failed to do request: Head \"https://r.io/v2/x/manifests/1\": dial tcp: lookup r.io: no "
         "such host",
         "don't reach the registry", false},
        {OF "unexpected status from HEAD request to https://r.io/v2/x/manifests/1: 503 Service "
            "Unavailable",
         "503 Service", false},
        {"file not found in cache", "file not found", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        stk_kube_pod pod = {
            .name = "p", .node = "n", .reason = "ImagePullBackOff", .scheduled = true};
        stk_kube_verdict v;
        (void)snprintf(pod.message, sizeof pod.message,
                       "Back-off pulling image \"r.io/x:1\": ErrImagePull: %s", rows[i].message);
        stk_kube_judge(&(stk_kube_job){.seen = true}, &pod, 1, &v);
        contains(v.report.text, rows[i].expected);
        assert_int_equal(v.hopeless, rows[i].is_sure);
        assert_int_equal(v.report.failure, STK_FAIL_START);
    }
#undef OF
}

static void test_waiting(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        story s;
        replay(waits[i].scenario, waits[i].job, 1, &s);
        contains(s.waits, waits[i].words);
        contains(s.waits, waits[i].way);
        assert_int_equal(s.hopeless, waits[i].hopeless);
        assert_null(strstr(s.waits, "preemption:")); /* the scheduler's remarks on preemption */
    }
}

/* Reasons that only events tell. */
static void test_events(void **state)
{
    (void)state;
    story s;
    replay("quota", "job-4gpu", 1, &s);
    contains(s.event,
             "can't create a pod: exceeded quota: gpus, requested: requests.nvidia.com/gpu=4");
    contains(s.event, "ask for a higher quota");
    replay("quota", "job-limitrange", 1, &s);
    contains(s.event, "maximum memory usage per Container is 32Mi, but limit is 64Mi");
    contains(s.event, "ask only for what the namespace allows");
    char words[900]; /* no recording has it: it comes from Kubernetes' ServiceAccount admission */
    contains(stk_kube_event_words("FailedCreate",
                                  "Error creating: pods \"s-1-a-0-1-\" is forbidden: error "
                                  "looking up service account ml/trainer: serviceaccount "
                                  "\"trainer\" not found",
                                  words, sizeof words),
             "serviceaccount \"trainer\" not found; set service_account to an existing one, or ask "
             "for it to be created");
    replay("inject-runner", "late-config", 1, &s);
    contains(s.event, "can't mount a volume:");
    contains(s.event, "configmap \"task-2\" not found");
    assert_true(s.ran);
    static const char *const nodes[][2] = {{"tpu-toomany", "Insufficient google.com/tpu"},
                                           {"neuron-wrongnode", "didn't match Pod's node affinity"},
                                           {"no-plugin", "Insufficient"},
                                           {"a100-none", "didn't match Pod's node affinity"}};
    for (size_t i = 0; i < 4; i++) {
        replay("device-nodes", nodes[i][0], 1, &s);
        contains(s.event, "no node accepts it: 0/");
        contains(s.event, nodes[i][1]);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *message, *way;
        bool is_sure;
    } cases[] = {
        {"exceeded quota: gpus, requested: pods=1", "higher quota", false},
        {"pods \"a\" is forbidden: violates PodSecurity \"baseline:latest\": hostPath",
         "security_context", true},
        {"admission webhook \"v.gatekeeper.sh\" denied the request: [x] no", "policy", true},
        {"admission webhook \"v\" denied the request: Internal error occurred: x", "policy", false},
        {"ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no", "policy", true},
        {"failed quota: q: must specify limits.cpu for: main", "the step", true},
        {"cpu max limit to request ratio per Container is 2, but provided ratio is 4", "allows",
         true},
        {"no PriorityClass with name high was found", "priority_class", false},
        {"Internal error occurred: failed calling webhook \"v\": timeout", NULL, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool is_sure = !cases[i].is_sure;
        const char *way = stk_kube_refusal_way(cases[i].message, &is_sure);
        assert_int_equal(is_sure, cases[i].is_sure);
        if (cases[i].way == NULL) {
            assert_null(way);
        } else {
            contains(way, cases[i].way);
        }
    }
}

/* Updates of Jobs and pods arrive separately: the Job's end alone doesn't explain a failure. */
static void test_lagging(void **state)
{
    (void)state;
    stk_kube_verdict v;
    stk_kube_pod pod = {.name = "a", .node = "n1", .scheduled = true, .main = STK_KUBE_RUNNING};
    stk_kube_job failed = {.seen = true, .failed = true, .reason = "BackoffLimitExceeded"};
    stk_kube_job complete = {.seen = true, .complete = true};
    stk_kube_pod none = {0};
    stk_kube_judge(&failed, &pod, 1, &v);
    assert_true(v.is_end && v.unsure);
    stk_kube_judge(&failed, &none, 1, &v);
    assert_true(v.is_end && v.unsure);
    assert_int_equal(v.report.failure, STK_FAIL_LOST);
    stk_kube_judge(&complete, &pod, 1, &v);
    assert_true(v.is_end && v.unsure);
    assert_int_equal(v.report.exit_status, 0);
    stk_kube_judge(&complete, &none, 1, &v);
    assert_true(v.is_end && v.unsure);
    pod.main = STK_KUBE_TERMINATED;
    stk_kube_judge(&complete, &pod, 1, &v);
    assert_true(v.is_end && !v.unsure);
    (void)snprintf(failed.reason, sizeof failed.reason, "PodFailurePolicy");
    (void)snprintf(failed.message, sizeof failed.message,
                   "Pod a/b has condition DisruptionTarget matching FailJob rule at index 0");
    stk_kube_judge(&failed, &none, 1, &v); /* the pod was removed before we saw its end */
    assert_true(v.is_end && !v.unsure);
    assert_int_equal(v.report.failure, STK_FAIL_PREEMPTED);
    stk_kube_job gone = {.seen = true, .gone = true};
    stk_kube_judge(&gone, &none, 1, &v);
    assert_int_equal(v.report.failure, STK_FAIL_LOST);
    story s; /* we saw its deletion start, and nothing after */
    replay("disruption", "deleted-pod", 1, &s);
    assert_true(s.pods[0].deleting);
    s.pods[0].gone = true;
    stk_kube_judge(&s.job, s.pods, 1, &v);
    assert_true(v.is_end && v.unsure);
    assert_int_equal(v.report.failure, STK_FAIL_LOST);
    contains(v.report.text, "deleted from outside");
}

/* The kubelet's message about a pod that it evicted. */
static void test_evicted(void **state)
{
    (void)state;
    static const struct {
        const char *reason, *message;
        stk_failure failure;
    } cases[] = {
        {"Evicted", "The node was low on resource: memory. Threshold quantity: 100Mi",
         STK_FAIL_PREEMPTED},
        {"Evicted", "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi.",
         STK_FAIL_RESOURCES},
        {"Evicted", "Usage of EmptyDir volume \"tmpfs\" exceeds the limit \"1Gi\".",
         STK_FAIL_RESOURCES},
        {"NodeLost", "Node n1 which was running pod a is unresponsive", STK_FAIL_LOST},
        {"Terminated", "Pod was terminated in response to imminent node shutdown.",
         STK_FAIL_PREEMPTED},
        {"OutOfcpu", "Node didn't have enough resource: cpu", STK_FAIL_LOST},
        {"UnexpectedAdmissionError", "Allocate failed due to no healthy devices", STK_FAIL_LOST},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stk_kube_verdict v;
        stk_kube_job job = {.seen = true};
        stk_kube_pod p = {.name = "a", .node = "n1", .failed = true};
        (void)snprintf(p.pod_reason, sizeof p.pod_reason, "%s", cases[i].reason);
        (void)snprintf(p.pod_message, sizeof p.pod_message, "%s", cases[i].message);
        stk_kube_judge(&job, &p, 1, &v);
        assert_true(v.is_end);
        assert_int_equal(v.report.failure, cases[i].failure);
        contains(v.report.text,
                 cases[i].message[0] == 'P' && i != 1 ? "node n1" : cases[i].message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends),    cmocka_unit_test(test_pulls),
        cmocka_unit_test(test_waiting), cmocka_unit_test(test_waiting_init),
        cmocka_unit_test(test_events),  cmocka_unit_test(test_lagging),
        cmocka_unit_test(test_evicted), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
