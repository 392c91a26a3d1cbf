/* Private to the room: a Kubernetes cluster as a driver of remote
 * (docs/decisions/0010-elsewhere.md).
 *
 *     kube_config   kubeconfig or a pod's own account → who is asked, and as whom       (reads
 * files) kube_auth     the credential of now: tokens, exec plugins kube_options  a step's options
 * by their table                                     (pure) kube_manifest a job → the documents
 * that are sent; kube_pod, kube_devices: parts   (pure) kube_status   what pods and Jobs say →
 * waiting, running, how it ended, in words    (pure) kube_api      one request with its credential,
 * its answer told apart kube_driver   jobs from submit to forget; kube_watch, kube_logs: how news
 * come kube_sweep    what a dead engine left kube_check    may we do what we will do?
 */
#ifndef STK_KUBE_H
#define STK_KUBE_H

#include <jansson.h>

#include "away/remote/remote.h"
#include "net/http_many.h"

/* --- who is asked, and as whom --- */

typedef struct stk_kube_exec {
    const char *version;     /* client.authentication.k8s.io/v1 */
    const char *const *argv; /* NULL: no plugin */
    const char *const *env;  /* "K=V", added to ours */
    const char *hint;        /* what to do when it isn't there, or NULL */
    const char *info;        /* KUBERNETES_EXEC_INFO */
} stk_kube_exec;

typedef struct stk_kube_config {
    const char *server;     /* "https://host:6443", no slash at its end */
    const char *name_space; /* never NULL */
    const char *origin;     /* for messages: "context 'x' of /home/u/.kube/config" */
    stk_http_tls tls;
    const char *token, *token_file; /* or NULL */
    const char *user, *password;    /* or NULL */
    stk_kube_exec exec;
    bool direct; /* no proxy */
} stk_kube_config;

/* `options` may be NULL. STK_E_ENV: no cluster is named anywhere. */
int stk_kube_config_load(const json_t *options, stk_arena *arena, stk_kube_config *ret,
                         stk_err *err);

/* The credential of now; zeroed before its first use. */
typedef struct stk_kube_auth {
    char *header;     /* "Authorization: …", or NULL: none */
    char *cert, *key; /* of a plugin, PEM, or NULL */
    int64_t until_ms; /* to be asked for again then (monotonic); 0: not yet asked for */
    bool refused;     /* a 401: ask for another one */
    bool waits;       /* its caller has nothing else to do: for a plugin, a minute at most */
    struct stk_kube_plugin *plugin; /* one that runs, on a thread of its own; or NULL */
} stk_kube_auth;

/* Makes sure that it is good; may read a file, or have a plugin run: STK_E_BUSY until that has
 * ended, where the credential before isn't good any more. */
int stk_kube_auth_refresh(const stk_kube_config *config, stk_kube_auth *auth, stk_err *err);
void stk_kube_auth_done(stk_kube_auth *auth);

/* --- options --- */

/* Checked by the table and under their first names; a new reference. `where`: "step 'x'". */
int stk_kube_options(const char *text, const char *where, json_t **ret, stk_err *err);
const char *stk_kube_text(const json_t *options, const char *name); /* or NULL */
int64_t stk_kube_whole(const json_t *options, const char *name);    /* -1: not given */
bool stk_kube_true(const json_t *options, const char *name, bool otherwise);
int64_t stk_kube_bytes(const json_t *options, const char *name); /* -1: not given */

static inline void stk_kube_unref(json_t **node)
{
    json_decref(*node);
}
#define STK_KUBE_JSON_AUTO __attribute__((cleanup(stk_kube_unref))) json_t *

/* --- manifests --- */

/* What parts of a manifest are made with. `failed`: no memory, seen once at the end. */
typedef struct stk_kube_maker {
    const stk_driver_config *config;
    const stk_remote_job *job;
    const json_t *options;
    const char *name_space;
    stk_arena *arena;
    stk_err *err;
    uint32_t nodes; /* pods of the Job */
    bool as_set;    /* a JobSet, not a Job */
    bool failed;
} stk_kube_maker;

/* Takes `value` over. */
void stk_kube_set(stk_kube_maker *m, json_t *map, const char *key, json_t *value);
void stk_kube_set_text(stk_kube_maker *m, json_t *map, const char *key, const char *text);
void stk_kube_append(stk_kube_maker *m, json_t *list, json_t *value);
json_t *stk_kube_child(stk_kube_maker *m, json_t *map, const char *key); /* an object, borrowed */
json_t *stk_kube_list(stk_kube_maker *m, json_t *map, const char *key);  /* a list, borrowed */

enum { STK_KUBE_NAME = 63 };
#define STK_KUBE_MAIN "main"
#define STK_KUBE_OF_SET "-n-0" /* a JobSet's one Job is named so behind its own name */
#define STK_KUBE_LABEL_RUN "stoker.run"
#define STK_KUBE_LABEL_JOB "stoker.job"
#define STK_KUBE_LABEL_ATTEMPT "stoker.attempt"
#define STK_KUBE_LABEL_KEEP "stoker.keep" /* it stays until its ttlSecondsAfterFinished */
#define STK_KUBE_NOTE_ID "stoker.id"      /* an annotation: the task's number in the run's record */
#define STK_KUBE_SELECT_OURS "app.kubernetes.io%%2Fmanaged-by%%3Dstoker"

/* A text as a label's value: what can't stand in one becomes '-'. `buf` of STK_KUBE_NAME + 1. */
const char *stk_kube_label(const char *text, char *buf);

/* The devices that a pod asks for. */
enum { STK_KUBE_VALUES = 32 };
typedef struct stk_kube_wanted {
    const char *resource; /* NULL: none */
    int64_t n;
    bool is_counted;   /* somebody said how many */
    const char *class; /* of a TPU, or NULL */
    const char *label; /* of the nodes that have the model, or NULL: any */
    const char *values[STK_KUBE_VALUES];
    uint32_t n_values;
    bool is_not; /* of the nodes that haven't: no value of theirs is among these */
} stk_kube_wanted;

int stk_kube_wanted_read(stk_kube_maker *m, stk_kube_wanted *ret);
/* Are they among a container's `resources`, once everything was laid over these? */
int stk_kube_wanted_check(const stk_kube_maker *m, const stk_kube_wanted *ask,
                          const json_t *resources);
/* "step 'x': WHAT; INSTEAD": STK_E_SPEC. */
int stk_kube_refuse(const stk_kube_maker *m, const char *what, const char *instead);
/* Resources, selectors and tolerations of what it asks for. */
int stk_kube_put_devices(stk_kube_maker *m, json_t *pod_spec, json_t *resources,
                         stk_kube_wanted *ret_ask);
/* "VENDOR N" of the devices among a container's `resources`, which the agent is to find in it;
 * NULL: none that it knows of. */
const char *stk_kube_asked(const stk_kube_maker *m, const json_t *resources);
int stk_kube_put_pod(stk_kube_maker *m, json_t *template);
/* How a job may be sent: as a Job, or a gang as a JobSet, where the cluster has this add-on. */
typedef enum {
    STK_KUBE_AS_JOB,   /* one pod, or `jobset: false` */
    STK_KUBE_AS_SET,   /* `jobset: true` */
    STK_KUBE_AS_EITHER /* it isn't said: what the cluster has decides */
} stk_kube_form;
stk_kube_form stk_kube_form_of(const stk_remote_job *job, const json_t *options);

/* The documents as trees in a list: the Job (as_set: the JobSet) first, then what it owns. */
int stk_kube_make(const stk_driver_config *config, const stk_remote_job *job, const json_t *options,
                  const char *name_space, bool as_set, stk_arena *arena, json_t **ret,
                  stk_err *err);

/* --- what pods and Jobs say --- */

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
stk_failure stk_kube_blame(const stk_kube_job *job, const stk_kube_pod *pods, uint32_t n);

/* --- requests --- */

typedef struct stk_kube_api {
    const stk_kube_config *config;
    stk_kube_auth auth;
    stk_http_many *many;
    uint32_t n_401;        /* one after the other */
    int64_t not_before_ms; /* nothing is begun before: the server is away or asked for it */
    uint32_t n_failures;   /* one after the other, of the connection or the server */
    int64_t down_since_ms; /* 0: it answers */
    char down[256];        /* what it was */
    bool answered;         /* ever */
    struct stk_kube_call *calls;
} stk_kube_api;

typedef struct stk_kube_answer {
    int rc; /* below 0: none */
    int status;
    bool good;  /* 200 to 299 */
    bool again; /* passes by itself: try later */
    bool fatal; /* will never work (certificate, credential) */
    const char *body;
    size_t len;
    const char *reason; /* of a Status; "" */
    const char *text;   /* the server's or the connection's words */
} stk_kube_answer;

typedef struct stk_kube_request {
    const char *method, *way; /* "/api/v1/…?…" */
    const char *body;         /* JSON, or NULL */
    const char *type;         /* of the body; NULL: application/json */
    const char *accept;       /* of the answer; NULL: application/json */
    int64_t idle_ms;          /* 0: 30 s */
    bool (*on_body)(void *arg, const void *data, size_t n);
    void (*done)(void *arg, const stk_kube_answer *answer);
    void *arg;
} stk_kube_request;

/* Begins it; `done` is called once in a turn. */
int stk_kube_ask(stk_kube_api *api, const stk_kube_request *request, uint64_t *ret_id,
                 stk_err *err);
/* Its `arg`, for who must free it; NULL: over already. */
void *stk_kube_stop(stk_kube_api *api, uint64_t id);
/* All whose `arg` is this. */
void stk_kube_stop_all(stk_kube_api *api, const void *arg);
void stk_kube_api_done(stk_kube_api *api);
int64_t stk_kube_now(void);
/* Text for a query; in the arena. */
const char *stk_kube_quote(const char *text, stk_arena *arena);
int stk_kube_parse(const char *text, size_t len, stk_arena *arena, stk_json *ret);
/* The member at "metadata/name"; NULL where there is none. */
const stk_json *stk_kube_at(const stk_json *node, const char *way);
const char *stk_kube_text_at(const stk_json *node, const char *way); /* "" */

#endif
