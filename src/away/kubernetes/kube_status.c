/* kube_status: turns the state of pods and Jobs into words for a user. Pure: its tests read
 * recorded answers of a real API server (tests/data/kubernetes/transcripts). */
#include "away/kubernetes/kube_status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"

/* --- reading --- */

static const stk_json *find_by(const stk_json *list, const char *key, const char *value)
{
    for (uint32_t i = 0; i < stk_json_n_items(list); i++) {
        if (strcmp(stk_kube_text_at(&list->items[i], key), value) == 0) {
            return &list->items[i];
        }
    }
    return NULL;
}

static bool holds(const stk_json *condition)
{
    return strcmp(stk_kube_text_at(condition, "status"), "True") == 0;
}

#define COPY(to, from) ((void)snprintf((to), sizeof(to), "%s", (from)))

static void read_reason(const stk_json *state, stk_kube_pod *p)
{
    COPY(p->reason, stk_kube_text_at(state, "reason"));
    COPY(p->message, stk_kube_text_at(state, "message"));
}

static void read_ended(const stk_json *ended, stk_kube_pod *p)
{
    p->exit_code = (int)stk_json_get_whole(ended, "exitCode", 0);
    p->signal = (int)stk_json_get_whole(ended, "signal", 0);
    read_reason(ended, p);
}

static void read_init(const stk_json *list, stk_kube_pod *p)
{
    for (uint32_t i = 0; i < stk_json_n_items(list); i++) {
        const stk_json *one = &list->items[i];
        const stk_json *ended = stk_kube_at(one, "state/terminated");
        const stk_json *waits = stk_kube_at(one, "state/waiting");
        if (stk_json_get_whole(ended, "exitCode", 0) != 0) {
            p->init_failed = true;
            read_ended(ended, p);
        } else if (waits != NULL &&
                   strcmp(stk_kube_text_at(waits, "reason"), "PodInitializing") != 0) {
            p->init_waits = true;
            read_reason(waits, p);
        } else {
            continue;
        }
        COPY(p->init, stk_kube_text_at(one, "name"));
        return;
    }
}

static void read_main(const stk_json *one, stk_kube_pod *p)
{
    const stk_json *ended = stk_kube_at(one, "state/terminated");
    const stk_json *waits = stk_kube_at(one, "state/waiting");
    if (ended != NULL) {
        p->main = STK_KUBE_TERMINATED;
        read_ended(ended, p);
    } else if (stk_kube_at(one, "state/running") != NULL) {
        p->main = STK_KUBE_RUNNING;
    } else if (waits != NULL) {
        p->main = STK_KUBE_WAITING;
        if (!p->init_failed && !p->init_waits) {
            read_reason(waits, p);
        }
    }
}

void stk_kube_read_pod(const stk_json *object, stk_kube_pod *ret)
{
    stk_kube_pod p = {0};
    const stk_json *conditions = stk_kube_at(object, "status/conditions");
    const stk_json *scheduled = find_by(conditions, "type", "PodScheduled");
    const stk_json *disruption = find_by(conditions, "type", "DisruptionTarget");
    const char *phase = stk_kube_text_at(object, "status/phase");
    const char *index = stk_kube_text_at(stk_kube_at(object, "metadata/annotations"),
                                         "batch.kubernetes.io~job-completion-index");
    COPY(p.name, stk_kube_text_at(object, "metadata/name"));
    COPY(p.uid, stk_kube_text_at(object, "metadata/uid"));
    COPY(p.node, stk_kube_text_at(object, "spec/nodeName"));
    COPY(p.pod_reason, stk_kube_text_at(object, "status/reason"));
    COPY(p.pod_message, stk_kube_text_at(object, "status/message"));
    p.index = (uint32_t)strtoul(index, NULL, 10);
    p.deleting = *stk_kube_text_at(object, "metadata/deletionTimestamp") != '\0';
    p.failed = strcmp(phase, "Failed") == 0;
    p.succeeded = strcmp(phase, "Succeeded") == 0;
    p.scheduled = *p.node != '\0' || holds(scheduled);
    p.ready = holds(find_by(conditions, "type", "Ready"));
    if (scheduled != NULL && !holds(scheduled)) {
        COPY(p.unscheduled, stk_kube_text_at(scheduled, "message"));
    }
    if (disruption != NULL && holds(disruption)) {
        COPY(p.disruption, stk_kube_text_at(disruption, "reason"));
        COPY(p.disruption_text, stk_kube_text_at(disruption, "message"));
    }
    read_init(stk_kube_at(object, "status/initContainerStatuses"), &p);
    read_main(find_by(stk_kube_at(object, "status/containerStatuses"), "name", STK_KUBE_MAIN), &p);
    *ret = p;
}

void stk_kube_read_job(const stk_json *object, stk_kube_job *ret)
{
    stk_kube_job j = {.seen = true};
    const stk_json *conditions = stk_kube_at(object, "status/conditions");
    const stk_json *target = find_by(conditions, "type", "FailureTarget");
    const stk_json *failed = find_by(conditions, "type", "Failed");
    COPY(j.uid, stk_kube_text_at(object, "metadata/uid"));
    j.complete = holds(find_by(conditions, "type", "Complete"));
    j.failed = holds(failed);
    j.ending = holds(target) || holds(find_by(conditions, "type", "SuccessCriteriaMet"));
    j.suspended = holds(find_by(conditions, "type", "Suspended"));
    j.deleting = *stk_kube_text_at(object, "metadata/deletionTimestamp") != '\0';
    const stk_json *why = target;
    if (holds(failed)) {
        why = failed;
    }
    COPY(j.reason, stk_kube_text_at(why, "reason"));
    COPY(j.message, stk_kube_text_at(why, "message"));
    *ret = j;
}

/* --- waiting --- */

/* The scheduler's message without its part on preemption, and what the user can do. */
static void say_unscheduled(const stk_kube_pod *p, char *text, size_t size)
{
    static const char *const musings[] = {" no new claims to deallocate", " preemption:"};
    size_t n = strlen(p->unscheduled);
    for (size_t k = 0; k < 2; k++) {
        const char *end = strstr(p->unscheduled, musings[k]);
        if (end != NULL) {
            n = MIN(n, (size_t)(end - p->unscheduled));
        }
    }
    while (n > 0 && (p->unscheduled[n - 1] == '.' || p->unscheduled[n - 1] == ' ' ||
                     p->unscheduled[n - 1] == ',')) {
        n--;
    }
    /* The first match wins: where only resources are short, some node would do otherwise. */
    static const struct {
        const char *words, *way;
    } ways[] = {
        {"Insufficient", "ask for less, or wait for other pods to end or for more nodes"},
        {"untolerated taint", "add a toleration for that taint, or choose other nodes"},
        {"didn't match Pod's node affinity",
         "check node_selector, affinity, gpu_type and tpu_topology"},
        {"persistentvolumeclaim", "check what names it: store_volume, carry_volume, "
                                  "persistent_volume_claims or volumes"},
        {"", "it waits for a node"},
    };
    uint32_t i = 0;
    while (strstr(p->unscheduled, ways[i].words) == NULL) {
        i++;
    }
    (void)snprintf(text, size, "no node accepts it: %.*s; %s", (int)n, p->unscheduled, ways[i].way);
}

static bool is_any(const char *word, const char *const *words)
{
    for (; *words != NULL; words++) {
        if (strcmp(word, *words) == 0) {
            return true;
        }
    }
    return false;
}

static const char *const pulls[] = {"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable",
                                    "ImageInspectError", NULL};
static const char *const configs[] = {"CreateContainerConfigError", "CreateContainerError",
                                      "RunContainerError", "PreCreateHookError", NULL};

/* The message after `words`; all of it if it doesn't contain them. */
static const char *behind(const char *message, const char *words)
{
    const char *at = strstr(message, words);
    if (at == NULL) {
        return message;
    }
    return at + strlen(words);
}

/* The separator before an optional text. */
static const char *colon(const char *more)
{
    return stk_text_when(*more != '\0', ": ");
}

/* Returns true if waiting can't help. The other reasons may be temporary: a registry is down, a
 * Secret comes later. */
static bool say_waiting(const stk_kube_pod *p, char *text, size_t size)
{
    char container[96] = "its container", image[128] = "its image";
    if (p->init_waits) {
        (void)snprintf(container, sizeof container, "init container '%s'", p->init);
        (void)snprintf(image, sizeof image, "the image of %s", container);
    }
    if (p->init_waits && strcmp(p->init, STK_KUBE_CARRY) == 0) {
        (void)snprintf(image, sizeof image, "the image with Stoker's program");
    }
    text[0] = '\0';
    if (strcmp(p->reason, "ErrImageNeverPull") == 0) {
        (void)snprintf(text, size,
                       "%s isn't on node %s, and the pull policy is Never: %s; load it there, or "
                       "set image_pull_policy: IfNotPresent",
                       image, p->node, p->message);
        return true;
    }
    if (strcmp(p->reason, "InvalidImageName") == 0) {
        (void)snprintf(text, size, "%s has an invalid name: %s; correct it", image, p->message);
        return true;
    }
    if (is_any(p->reason, pulls)) {
        return stk_kube_say_pull(p, image, text, size);
    }
    if (is_any(p->reason, configs)) {
        (void)snprintf(text, size,
                       "can't create %s (%s): %.700s; check secrets, env_from and volumes",
                       container, p->reason, p->message);
    } else if (strcmp(p->reason, "PodInitializing") != 0 &&
               strcmp(p->reason, "ContainerCreating") != 0 && *p->reason != '\0') {
        (void)snprintf(text, size, "%s waits (%s)%s%.700s", container, p->reason, colon(p->message),
                       p->message);
    }
    return false;
}

static void judge_waiting(const stk_kube_job *job, const stk_kube_pod *p, stk_kube_verdict *v)
{
    char *text = v->report.text;
    size_t size = sizeof v->report.text;
    v->report.state = STK_REMOTE_QUEUED;
    if (*p->name == '\0' && job->suspended) {
        (void)snprintf(
            text, size,
            "it is suspended, until its queue or the user who suspended it lets it start");
    } else if (*p->name != '\0') {
        if (!p->scheduled && *p->unscheduled != '\0') {
            say_unscheduled(p, text, size);
        } else {
            v->hopeless = say_waiting(p, text, size);
        }
        v->report.failure = STK_FAIL_START;
    }
}

const char *stk_kube_event_words(const char *reason, const char *message, char *buf, size_t size)
{
    buf[0] = '\0';
    if (strcmp(reason, "FailedCreate") == 0) {
        bool is_sure;
        const char *why = behind(behind(message, "Error creating: "), " is forbidden: ");
        const char *way = stk_text_or(stk_kube_refusal_way(message, &is_sure),
                                      "ask only for what the namespace allows");
        (void)snprintf(buf, size, "can't create a pod: %.700s; %s", why, way);
    } else if (strcmp(reason, "FailedMount") == 0 || strcmp(reason, "FailedAttachVolume") == 0) {
        (void)snprintf(buf, size, "can't mount a volume: %.700s", message);
    } else if (strcmp(reason, "FailedScheduling") == 0) {
        stk_kube_pod p = {0};
        COPY(p.unscheduled, message);
        say_unscheduled(&p, buf, size);
    } else if (strstr(reason, "Failed") != NULL) { /* JobCreationFailed, of a JobSet */
        (void)snprintf(buf, size, "%s: %.700s", reason, message);
    }
    return buf;
}

stk_failure stk_kube_blame(const stk_kube_pod *pods, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (*pods[i].name != '\0' && pods[i].scheduled) {
            return STK_FAIL_START;
        }
    }
    return STK_FAIL_RESOURCES;
}

/* --- ends --- */

static void fail(stk_kube_verdict *v, stk_failure failure, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void fail(stk_kube_verdict *v, stk_failure failure, const char *fmt, ...)
{
    va_list args;
    v->is_end = true;
    v->report.state = STK_REMOTE_FAILED;
    v->report.failure = failure;
    va_start(args, fmt);
    (void)vsnprintf(v->report.text, sizeof v->report.text, fmt, args);
    va_end(args);
}

/* The cluster put the pod off its node: why? */
static void judge_disrupted(const stk_kube_pod *p, stk_kube_verdict *v)
{
    if (strcmp(p->disruption, "PreemptionByScheduler") == 0) {
        fail(v, STK_FAIL_PREEMPTED, "preempted on node %s: %s", p->node, p->disruption_text);
    } else if (strcmp(p->disruption, "DeletionByPodGC") == 0 ||
               (strcmp(p->disruption, "DeletionByTaintManager") == 0 &&
                p->main != STK_KUBE_TERMINATED)) {
        fail(v, STK_FAIL_LOST, "node %s is lost: it has stopped answering (%s)", p->node,
             p->disruption_text);
    } else if (strcmp(p->disruption, "EvictionByEvictionAPI") == 0) {
        fail(v, STK_FAIL_PREEMPTED, "evicted from node %s, which is being drained (%s)", p->node,
             p->disruption_text);
    } else {
        fail(v, STK_FAIL_PREEMPTED, "removed from node %s (%s): %s", p->node, p->disruption,
             p->disruption_text);
    }
}

static bool judge_evicted(const stk_kube_pod *p, stk_kube_verdict *v)
{
    static const struct {
        const char *reason;
        stk_failure failure;
        const char *words;
    } of_nodes[] = {{"NodeLost", STK_FAIL_LOST, "is lost"},
                    {"Terminated", STK_FAIL_PREEMPTED, "shuts down"},
                    {"NodeShutdown", STK_FAIL_PREEMPTED, "shuts down"},
                    {"Shutdown", STK_FAIL_PREEMPTED, "shuts down"}};
    for (size_t i = 0; i < sizeof of_nodes / sizeof *of_nodes; i++) {
        if (strcmp(p->pod_reason, of_nodes[i].reason) == 0) {
            fail(v, of_nodes[i].failure, "node %s %s: %s", p->node, of_nodes[i].words,
                 p->pod_message);
            return true;
        }
    }
    if (strcmp(p->pod_reason, "DeadlineExceeded") == 0) {
        fail(v, STK_FAIL_TIMEOUT, "it ran for longer than the pod's activeDeadlineSeconds");
    } else if (strcmp(p->pod_reason, "Evicted") == 0 &&
               strstr(p->pod_message, "exceeds the") != NULL) {
        fail(v, STK_FAIL_RESOURCES,
             "evicted by node %s: %s; ask for more disk (or shared_memory, tmpfs_size)", p->node,
             p->pod_message);
    } else if (strcmp(p->pod_reason, "Evicted") == 0) {
        fail(v, STK_FAIL_PREEMPTED, "evicted by node %s: %s", p->node, p->pod_message);
    } else if (strncmp(p->pod_reason, "OutOf", 5) == 0 ||
               strstr(p->pod_reason, "Admission") != NULL) {
        fail(v, STK_FAIL_LOST, "node %s rejected it (%s): %s", p->node, p->pod_reason,
             p->pod_message);
    } else {
        return false;
    }
    return true;
}

static void judge_ended(const stk_kube_pod *p, stk_kube_verdict *v)
{
    static const char *const starts[] = {"StartError", "ContainerCannotRun", NULL};
    if (p->init_failed) {
        fail(v, STK_FAIL_START, "init container '%s' ended with %d (%s)%s%.500s", p->init,
             p->exit_code, p->reason, colon(p->message), p->message);
        return;
    }
    if (is_any(p->reason, starts)) {
        fail(v, STK_FAIL_START,
             "can't start its container: %.700s; check the image and its platform",
             stk_text_or(stk_text_if_any(p->message), p->reason));
        return;
    }
    v->is_end = true;
    v->report.state = STK_REMOTE_ENDED;
    v->report.oom = strcmp(p->reason, "OOMKilled") == 0;
    v->report.signal = MAX(p->signal, 0);
    if (p->signal <= 0 && p->exit_code > 128 && p->exit_code <= 128 + 64) {
        v->report.signal = p->exit_code - 128;
    }
    v->report.exit_status = p->exit_code;
    if (v->report.signal > 0) {
        v->report.exit_status = -1;
    }
    const char *message = p->message;
    if (strncmp(message, "{\"stoker\"", 9) == 0) { /* the agent's: its end.json is read instead */
        message = "";
    }
    (void)snprintf(v->report.text, sizeof v->report.text, "%s on node %s%s%.500s",
                   stk_text_or(stk_text_if_any(p->reason), "ended"), p->node, colon(message),
                   message);
}

/* Returns whether the pod has ended or no longer exists. */
static bool is_over(const stk_kube_pod *p)
{
    return *p->name != '\0' && (p->gone || p->failed || p->succeeded ||
                                p->main == STK_KUBE_TERMINATED || p->init_failed);
}

static void judge_pod(const stk_kube_pod *p, stk_kube_verdict *v)
{
    v->report.node = p->index;
    if (*p->disruption != '\0') {
        judge_disrupted(p, v);
    } else if (judge_evicted(p, v)) {
        return;
    } else if (p->main == STK_KUBE_TERMINATED && p->deleting && p->exit_code != 0) {
        fail(v, STK_FAIL_LOST, "its pod %s on node %s was deleted from outside, and ended with %d",
             p->name, p->node, p->exit_code);
        v->unsure = true;
    } else if (p->main == STK_KUBE_TERMINATED || p->init_failed) {
        judge_ended(p, v);
    } else if (p->failed) {
        fail(v, STK_FAIL_LOST, "its pod failed on node %s without a state of its container%s%s",
             p->node, colon(p->pod_message), p->pod_message);
    } else {
        fail(v, STK_FAIL_LOST, "its pod %s on node %s was deleted from outside", p->name,
             stk_text_or(stk_text_if_any(p->node), "(none)"));
        v->unsure = true;
    }
}

/* Judges failures of the Job itself, which no pod shows. */
static bool judge_job(const stk_kube_job *job, stk_kube_verdict *v)
{
    if (strcmp(job->reason, "DeadlineExceeded") == 0) {
        fail(v, STK_FAIL_TIMEOUT,
             "its Job took longer than activeDeadlineSeconds, including waiting");
    } else if (strcmp(job->reason, "PodFailurePolicy") == 0 &&
               strstr(job->message, "DisruptionTarget") != NULL) {
        fail(v, STK_FAIL_PREEMPTED, "its pod was disrupted: %s", job->message);
    } else {
        return false;
    }
    return true;
}

/* The pod that explains the job's state best. Of a gang, one that failed by itself, not one that
 * was ended because of that. */
static const stk_kube_pod *who_tells(const stk_kube_pod *pods, uint32_t n)
{
    const stk_kube_pod *best = NULL;
    int best_rank = 0;
    for (uint32_t i = 0; i < n; i++) {
        const stk_kube_pod *p = &pods[i];
        int rank = 4;
        if (*p->name == '\0') {
            rank = 0;
        } else if (*p->disruption != '\0' || *p->pod_reason != '\0') {
            rank = 5;
        } else if (!is_over(p)) {
            rank = 1;
        } else if (p->main == STK_KUBE_TERMINATED && p->exit_code == 0) {
            rank = 2;
        } else if (p->deleting || p->gone) {
            rank = 3;
        }
        if (rank > best_rank) {
            best_rank = rank;
            best = p;
        }
    }
    return best;
}

void stk_kube_judge(const stk_kube_job *job, const stk_kube_pod *pods, uint32_t n,
                    stk_kube_verdict *ret)
{
    stk_kube_verdict v = {.report = {.exit_status = -1}};
    uint32_t n_over = 0, n_running = 0;
    const stk_kube_pod *waits = NULL;
    for (uint32_t i = 0; i < n; i++) {
        n_over += is_over(&pods[i]);
        n_running += !is_over(&pods[i]) && pods[i].main == STK_KUBE_RUNNING;
        if (waits == NULL && !is_over(&pods[i]) && pods[i].main != STK_KUBE_RUNNING) {
            waits = &pods[i];
        }
    }
    bool job_over = job->failed || job->gone;
    const stk_kube_pod *tells = who_tells(pods, n);
    bool put_off = tells != NULL && *tells->disruption != '\0'; /* more precise */
    bool job_says =
        !job->complete && !put_off && (job->failed || job->ending) && judge_job(job, &v);
    if (job->complete) {
        v.is_end = true;
        v.unsure = n_over < n; /* the Job's news came first, and the pods' logs aren't read yet */
        v.report.state = STK_REMOTE_ENDED;
        v.report.exit_status = 0;
    } else if (job_says ||
               (tells != NULL && (n_over == n || job_over) && (n_over > 0 || job_over))) {
        if (!job_says) {
            judge_pod(tells, &v);
        }
        v.unsure = (v.unsure && !job_over) || (tells != NULL && !is_over(tells)); /* news lag */
        if (v.is_end && !job_over && n_over < n) {
            v.unsure = true; /* some pods are still ending */
        }
    } else if (job->gone) {
        fail(&v, STK_FAIL_LOST, "its Job was deleted from outside");
    } else if (job->failed) {
        v.unsure = true;
        fail(&v, STK_FAIL_LOST, "its Job failed (%s) and its pods no longer exist: %.600s",
             job->reason, job->message);
    } else if (n_running + n_over > 0 && waits == NULL) {
        v.report.state = STK_REMOTE_RUNNING;
        if (tells != NULL) {
            v.report.node = tells->index;
        }
        (void)snprintf(v.report.text, sizeof v.report.text, "node %s", pods[0].node);
    } else {
        if (waits == NULL) {
            waits = &pods[0];
        }
        judge_waiting(job, waits, &v);
    }
    *ret = v;
}
