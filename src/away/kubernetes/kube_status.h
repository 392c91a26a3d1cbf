/* A job's state, derived from its pods and its Job: waiting, running or ended, with an explanation
 * (pure). */
#ifndef STK_KUBE_STATUS_H
#define STK_KUBE_STATUS_H

#include "away/kubernetes/kube.h"

/* What a pod needs that Pod Security "restricted" admits. */
#define STK_KUBE_RESTRICTED                                                                        \
    "set security_context: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, "        \
    "runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}"

typedef enum {
    STK_KUBE_UNKNOWN,
    STK_KUBE_WAITING,
    STK_KUBE_RUNNING,
    STK_KUBE_TERMINATED
} stk_kube_main;

typedef struct stk_kube_pod {
    char name[STK_KUBE_NAME + 192]; /* "": there is no pod */
    char uid[40];
    char node[256];
    uint32_t index;
    bool listed;   /* the last list has it */
    bool gone;     /* no longer exists; the other fields are the last known */
    bool deleting; /* deletionTimestamp is set */
    bool scheduled, ready;
    bool failed, succeeded;       /* its phase */
    stk_kube_main main;           /* state of its container */
    bool init_failed, init_waits; /* exit_code and reason are an init container's */
    char init[64];
    int exit_code, signal;
    char reason[64], message[1024]; /* of the container's state */
    char unscheduled[512];          /* why no node takes it */
    char disruption[64], disruption_text[256];
    char pod_reason[64], pod_message[512];
} stk_kube_pod;

typedef struct stk_kube_job {
    char uid[40];
    bool seen;
    bool listed;           /* the last list has it */
    bool complete, failed; /* final */
    bool ending;           /* the result is decided, pods are still ending */
    bool suspended, deleting, gone;
    char reason[64], message[512]; /* why it failed */
} stk_kube_job;

void stk_kube_read_pod(const stk_json *object, stk_kube_pod *ret);
void stk_kube_read_job(const stk_json *object, stk_kube_job *ret);

typedef struct stk_kube_verdict {
    stk_remote_report report; /* state, node, exit_status, signal, oom, failure, text */
    bool is_end;
    bool unsure;   /* the Job may soon explain this end better: wait before believing it */
    bool hopeless; /* it can never start: remove it, then report this as its end */
} stk_kube_verdict;

/* `pods`: one for each node; its name is "" if there is no pod (yet). */
void stk_kube_judge(const stk_kube_job *job, const stk_kube_pod *pods, uint32_t n,
                    stk_kube_verdict *ret);
/* Turns an event (reason FailedCreate, FailedMount, …) into the reason why a job waits; "" if the
 * event gives none. */
const char *stk_kube_event_words(const char *reason, const char *message, char *buf, size_t size);
/* What a user can do about the cluster's refusal of an object; NULL: unknown. *ret_sure: waiting
 * can't help. */
const char *stk_kube_refusal_way(const char *message, bool *ret_sure);
/* Writes why the node can't pull `image` ("its image"). Returns true if the registry's answer is
 * definite, so that waiting can't help. */
bool stk_kube_say_pull(const stk_kube_pod *p, const char *image, char *text, size_t size);
/* The failure class of a job that waited too long: START if a pod has a node, else RESOURCES. */
stk_failure stk_kube_blame(const stk_kube_pod *pods, uint32_t n);

#endif
