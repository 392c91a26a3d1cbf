/* Private to the room: a Kubernetes cluster as a driver of remote
 * (docs/decisions/0010-elsewhere.md).
 *
 * Here: who is asked and as whom (kube_config reads kubeconfig or a pod's own account, kube_auth
 * has tokens and exec plugins), a step's options (kube_options), one request (kube_api).
 * kube_manifest.h makes the documents that are sent, kube_status.h tells how a job stands from what
 * pods and Jobs say; both are pure. kube_driver.h has the jobs, from submit to forget. kube_check
 * asks whether we may do what we will do.
 */
#ifndef STK_KUBE_H
#define STK_KUBE_H

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
int stk_kube_config_load(const stk_json *options, stk_arena *arena, stk_kube_config *ret,
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

/* Checked by the table and under their first names, in the arena. `where`: "step 'x'". */
int stk_kube_options(const char *text, const char *where, stk_arena *arena, stk_json *ret,
                     stk_err *err);
const char *stk_kube_text(const stk_json *options, const char *name); /* or NULL */
int64_t stk_kube_whole(const stk_json *options, const char *name);    /* -1: not given */
bool stk_kube_true(const stk_json *options, const char *name, bool otherwise);

/* --- names --- */

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
    const stk_json *json; /* the body of a good one, or NULL: it is none, or damaged */
    const char *reason;   /* of a Status; "" */
    const char *text;     /* the server's or the connection's words */
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
/* What a DELETE says: `policy` is Foreground (it goes when its pods have gone) or Background. */
void stk_kube_put_delete(stk_buf *out, const char *policy);
/* The member at "metadata/name"; NULL where there is none. */
const stk_json *stk_kube_at(const stk_json *node, const char *way);
const char *stk_kube_text_at(const stk_json *node, const char *way); /* "" */

#endif
