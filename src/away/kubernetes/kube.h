/* Private to the room: a Kubernetes cluster as a driver of remote
 * (docs/decisions/0010-elsewhere.md).
 *
 * This header: the cluster and the account (kube_config reads a kubeconfig or a pod's service
 * account, kube_auth keeps tokens and runs exec plugins), a step's options (kube_options), one
 * request (kube_api). kube_manifest.h makes the documents that are sent, kube_status.h derives a
 * job's state from its pods and its Job; both are pure. kube_driver.h has the jobs, from submit to
 * forget. kube_check checks the connection and our rights.
 */
#ifndef STK_KUBE_H
#define STK_KUBE_H

#include "away/remote/remote.h"
#include "net/http_many.h"

/* --- the cluster and the account --- */

typedef struct stk_kube_exec {
    const char *version;     /* client.authentication.k8s.io/v1 */
    const char *const *argv; /* NULL: no plugin */
    const char *const *env;  /* "K=V", added to ours */
    const char *hint;        /* how to install a missing plugin, or NULL */
    const char *info;        /* KUBERNETES_EXEC_INFO */
} stk_kube_exec;

typedef struct stk_kube_config {
    const char *server;     /* "https://host:6443", without a trailing slash */
    const char *name_space; /* never NULL */
    const char *origin;     /* for messages: "context 'x' of /home/u/.kube/config" */
    stk_http_tls tls;
    const char *token, *token_file; /* or NULL */
    const char *user, *password;    /* or NULL */
    stk_kube_exec exec;
    bool direct;       /* use no proxy */
    const char *proxy; /* the kubeconfig's proxy-url, or NULL: what the environment says */
} stk_kube_config;

/* `options` may be NULL. STK_E_ENV: neither the options nor the environment name a cluster, or the
 * kubeconfig is unusable. */
int stk_kube_config_load(const stk_json *options, stk_arena *arena, stk_kube_config *ret,
                         stk_err *err);

/* The current credential; zero it before its first use. */
typedef struct stk_kube_auth {
    char *header;                   /* "Authorization: …", or NULL: none */
    char *cert, *key;               /* a plugin's client certificate, PEM; or NULL */
    int64_t until_ms;               /* when to get a new one (monotonic); 0: never got one */
    bool refused;                   /* the server answered 401: get another one */
    bool waits;                     /* refresh may block until a plugin answers, a minute at most */
    struct stk_kube_plugin *plugin; /* the plugin that runs now, on its thread; or NULL */
} stk_kube_auth;

/* Renews the credential when it is due: reads the token file, or starts the plugin. While a plugin
 * runs, the previous credential stays in use; STK_E_BUSY: there is no usable one until it ends. */
int stk_kube_auth_refresh(const stk_kube_config *config, stk_kube_auth *auth, stk_err *err);
void stk_kube_auth_done(stk_kube_auth *auth);

/* --- options --- */

/* Parses and checks options; `ret` has them under their canonical names, in the arena. `where`
 * begins error messages: "step 'x'". */
int stk_kube_options(const char *text, const char *where, stk_arena *arena, stk_json *ret,
                     stk_err *err);
const char *stk_kube_text(const stk_json *options, const char *name); /* or NULL */
int64_t stk_kube_whole(const stk_json *options, const char *name);    /* -1: absent */
bool stk_kube_true(const stk_json *options, const char *name, bool otherwise);

/* --- names --- */

enum { STK_KUBE_NAME = 63 };
#define STK_KUBE_MAIN "main"
#define STK_KUBE_CARRY "stoker-carry" /* the init container that brings our program */
#define STK_KUBE_OF_SET "-n-0"        /* a JobSet's one Job is named <JobSet's name>-n-0 */
#define STK_KUBE_LABEL_RUN "stoker.run"
#define STK_KUBE_LABEL_JOB "stoker.job"
#define STK_KUBE_LABEL_ATTEMPT "stoker.attempt"
#define STK_KUBE_LABEL_KEEP "stoker.keep" /* the Job stays until its ttlSecondsAfterFinished */
#define STK_KUBE_NOTE_ID "stoker.id"      /* an annotation: the task's number in the run's record */
#define STK_KUBE_SELECT_OURS "app.kubernetes.io%%2Fmanaged-by%%3Dstoker"

/* Turns a text into a label value: an invalid character becomes '-'. `buf` has STK_KUBE_NAME + 1
 * bytes. */
const char *stk_kube_label(const char *text, char *buf);

/* --- requests --- */

#define KUBE_REVIEWS "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
#define KUBE_CORE "/api/v1"
#define KUBE_BATCH "/apis/batch/v1"
#define KUBE_JOBSET "/apis/jobset.x-k8s.io/v1alpha2"

typedef struct stk_kube_api {
    const stk_kube_config *config;
    stk_kube_auth auth;
    stk_http_many *many;
    uint32_t n_401;        /* in a row */
    int64_t not_before_ms; /* start no request before: the server is away or asked for a pause */
    uint32_t n_failures;   /* of the connection or the server, in a row */
    int64_t down_since_ms; /* 0: the server answers what was asked last */
    char down[256];        /* the last failure's message */
    bool answered;         /* the server has answered at least once */
    struct stk_kube_call *calls;
} stk_kube_api;

typedef struct stk_kube_answer {
    int rc; /* below 0: no answer came */
    int status;
    bool good;  /* 200 to 299 */
    bool again; /* temporary: try again later */
    bool fatal; /* will never work (certificate, credential) */
    const char *body;
    size_t len;
    const stk_json *json; /* the parsed body of a good answer; NULL: empty or damaged */
    const char *reason;   /* of a Status object, or "" */
    const char *text;     /* the server's or the connection's error message */
} stk_kube_answer;

typedef struct stk_kube_request {
    const char *method, *way; /* "/api/v1/…?…" */
    const char *body;         /* JSON, or NULL */
    const char *type;         /* of the body; NULL: application/json */
    const char *accept;       /* of the answer; NULL: application/json */
    int64_t idle_ms;          /* 0: 30 s */
    bool is_relayed;          /* a node answers, not the server: its trouble isn't the server's */
    bool (*on_body)(void *arg, const void *data, size_t n);
    void (*done)(void *arg, const stk_kube_answer *answer);
    void *arg;
} stk_kube_request;

/* Starts a request. A later turn calls `done` once. */
int stk_kube_ask(stk_kube_api *api, const stk_kube_request *request, uint64_t *ret_id,
                 stk_err *err);
/* Drops a request without calling `done`. Returns its `arg`, which the caller may have to free;
 * NULL: the request is already over. */
void *stk_kube_stop(stk_kube_api *api, uint64_t id);
/* Drops all requests with this `arg`. */
void stk_kube_stop_all(stk_kube_api *api, const void *arg);
void stk_kube_api_done(stk_kube_api *api);
int64_t stk_kube_now(void);
/* Since when the server is away (monotonic): requests fail, or one is without any answer. 0: it
 * isn't. */
int64_t stk_kube_away_since(const stk_kube_api *api);
/* Percent-encodes a text for a query; in the arena. */
const char *stk_kube_quote(const char *text, stk_arena *arena);
int stk_kube_parse(const char *text, size_t len, stk_arena *arena, stk_json *ret);
/* Writes the body of a DELETE. `policy`: "Foreground" (the object goes after its pods) or
 * "Background". */
void stk_kube_put_delete(stk_buf *out, const char *policy);
/* The member at a path like "metadata/name"; '~' stands for a '/' within a key. NULL: absent. */
const stk_json *stk_kube_at(const stk_json *node, const char *way);
const char *stk_kube_text_at(const stk_json *node, const char *way); /* "": absent or no text */

#endif
