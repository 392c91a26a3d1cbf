/* How a job stands, from what its pods and its Job say: it waits, it runs, how it ended, in words
 * (pure). */
#ifndef STK_KUBE_STATUS_H
#define STK_KUBE_STATUS_H

#include "away/kubernetes/kube.h"

typedef enum {
    STK_KUBE_UNKNOWN,
    STK_KUBE_WAITING,
    STK_KUBE_RUNNING,
    STK_KUBE_TERMINATED
} stk_kube_main;

typedef struct stk_kube_pod {
    char name[STK_KUBE_NAME + 192]; /* "": there is none */
    char uid[40];
    char node[256];
    uint32_t index;
    bool listed;   /* by the last list */
    bool gone;     /* no longer there; the rest is the last that was heard */
    bool deleting; /* somebody deleted it */
    bool scheduled, ready;
    bool failed, succeeded;       /* its phase */
    stk_kube_main main;           /* its container */
    bool init_failed, init_waits; /* exit_code and reason are those of an init container */
    char init[64];
    int exit_code, signal;
    char reason[64], message[512]; /* of the container's state */
    char unscheduled[512];         /* why no node takes it */
    char disruption[64], disruption_text[256];
    char pod_reason[64], pod_message[512];
} stk_kube_pod;

typedef struct stk_kube_job {
    char uid[40];
    bool seen;
    bool listed;           /* by the last list */
    bool complete, failed; /* for good */
    bool ending;           /* it is decided, pods still end */
    bool suspended, deleting, gone;
    char reason[64], message[512]; /* of its failure */
} stk_kube_job;

void stk_kube_read_pod(const stk_json *object, stk_kube_pod *ret);
void stk_kube_read_job(const stk_json *object, stk_kube_job *ret);

typedef struct stk_kube_verdict {
    stk_remote_report report; /* state, node, exit_status, signal, oom, failure, text */
    bool is_end;
    bool unsure;   /* an end that the Job may still explain better: to be believed after a while */
    bool hopeless; /* it waits for what will never come: remove it, then this is its end */
} stk_kube_verdict;

/* `pods`: one for each node, name "" where there is none (yet). */
void stk_kube_judge(const stk_kube_job *job, const stk_kube_pod *pods, uint32_t n,
                    stk_kube_verdict *ret);
/* An event's text (reason FailedCreate, FailedMount, …) as why it waits; "" where it tells none. */
const char *stk_kube_event_words(const char *reason, const char *message, char *buf, size_t size);
/* A job that waited for too long with this reason: whose fault is it? */
stk_failure stk_kube_blame(const stk_kube_pod *pods, uint32_t n);

#endif
