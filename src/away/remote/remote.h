/* remote: tasks that run on other machines. A backend (stk_backend) whose jobs go to an engine that
 * people already have, through a driver, and whose files go through the share
 * (docs/decisions/0010-elsewhere.md).
 *
 * Threads: exec's thread calls the stk_backend_ops, which never block; a few threads stage and
 * collect; one thread a driver calls its functions, all of them.
 */
#ifndef STK_REMOTE_H
#define STK_REMOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "away/share/share.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "host/backend/backend.h"
#include "model/spec/spec.h"

/* One attempt as a driver is asked to run it; lives until the driver has reported its end. */
typedef struct stk_remote_job {
    uint32_t id; /* names it in reports; the task's number */
    const char *run, *pipeline, *step;
    uint32_t task, attempt;
    /* Unique and always the same for this attempt: "s-<8 of the run>-<step>-<task>-<attempt>", at
     * most 48 bytes of [a-z0-9-], shortened by a digest where it would be longer. */
    const char *name;
    const char *image;              /* never NULL but for `plan --manifest`: a placeholder then */
    const stk_resources *resources; /* what the step asks for */
    const char *options;            /* merged options of this backend, a JSON object; never NULL */
    const char *const *argv;        /* the container's program: the agent with its words */
    const char *const *env;         /* "K=V": nothing secret */
    const char *const *secret;      /* "K=V": goes by the engine's own secrets; NULL: none */
    const char *const *folders;     /* absolute paths that must be empty, writable folders inside */
    const char *carry;    /* how our program gets in: "image", "volume", "store"; of the stack */
    const char *carry_at; /* its folder inside: "/stoker" */
    uint32_t nodes;       /* so many at once, or none; 1: a plain job */
    int32_t port;         /* of node 0's launcher, where nodes > 1 */
    int64_t timeout_ms; /* the agent's business; the engine's own deadline lies above it. 0: none */
    int64_t grace_ms;   /* from SIGTERM to SIGKILL */
    /* Of the attempt in the share, argv's last word. An engine that starts many by one request may
     * give the key of a list of keys in its place (remote_order.h). NULL: it may not. */
    const char *key;
    bool is_many; /* for `plan --manifest`: one of a foreach's */
    bool attach;  /* it was there, and may have ended: what is gone is lost */
    bool look;    /* an earlier engine may have submitted it: attach to what is there, else
                     submit (engines that refuse a second job of a name needn't look) */
} stk_remote_job;

typedef enum {
    STK_REMOTE_QUEUED,  /* the engine has it; text: why it waits, "" unknown */
    STK_REMOTE_RUNNING, /* its program runs; text: where ("node gpu-3") */
    STK_REMOTE_ENDED,   /* by itself: exit_status or signal, text: the engine's words */
    STK_REMOTE_FAILED,  /* it never ran or was ended: `failure` and text say why */
    STK_REMOTE_LOG,     /* data, n: more of what it wrote (node: of which node) */
    STK_REMOTE_NOTE     /* text: a sentence for the user */
} stk_remote_state;

enum { STK_REMOTE_WORDS = sizeof((stk_outcome *)0)->text }; /* so much is kept of an end's text */

typedef struct stk_remote_report {
    stk_remote_state state;
    uint32_t id, attempt;
    uint32_t node;
    int exit_status;  /* -1 unknown */
    int signal;       /* 0 none */
    bool oom;         /* the engine says so */
    bool is_hopeless; /* FAILED: another attempt would meet the same, a right that is missing */
    stk_failure
        failure; /* FAILED: START, LOST, PREEMPTED, TIMEOUT, RESOURCES, HOST_OOM, CANCELLED */
    char text[1024];
    const char *data;
    size_t n;
} stk_remote_report;

typedef struct stk_driver stk_driver;
typedef void (*stk_driver_say)(void *arg, const stk_remote_report *report); /* copied at once */

/* All called on the driver's thread. */
typedef struct stk_driver_ops {
    const char *name; /* "kubernetes" */
    /* Begins to submit; how it went comes as reports. An error: it never will be (a wrong option).
     */
    int (*submit)(stk_driver *self, const stk_remote_job *job, stk_err *err);
    /* Ends a job; grace_ms 0: at once. Its end is reported all the same (FAILED, `why`), once the
     * engine has nothing left of it. Unknown ids are ignored. */
    void (*stop)(stk_driver *self, uint32_t id, int64_t grace_ms, stk_failure why);
    /* The end is on record here and nobody needs the engine's copy any more: removes what is left
     * of it. */
    void (*forget)(stk_driver *self, uint32_t id);
    /* Waits for the engine's answers, for `wake_fd` readable, at most timeout_ms; says what is new.
     * An error: this engine can't be used any more (no right, certificate refused); all its jobs
     * fail with it. What passes by itself is retried within, and said as a NOTE. */
    int (*turn)(stk_driver *self, int wake_fd, int64_t timeout_ms, stk_err *err);
    /* Lets go of all jobs without ending them (detached), once what forget() has begun is done,
     * within seconds; frees. */
    void (*close)(stk_driver *self);
} stk_driver_ops;

struct stk_driver {
    const stk_driver_ops *ops;
    stk_driver_say say;
    void *say_arg;
};

/* What a driver is opened with. Texts are borrowed for its life. */
typedef struct stk_driver_config {
    const char *stack;        /* name, for messages */
    const char *options;      /* of the stack for this backend, a JSON object; never NULL */
    const char *run;          /* labels everything that it makes */
    const char *carry;        /* "image", "volume", "store" */
    const char *runner_image; /* for carry: image; or NULL */
    const char *carry_volume; /* for carry: volume: "pvc:NAME[/path]", "efs:ID[/path]" or
                                 "/host/path"; or NULL */
    const char *carry_digest; /* for carry: store: <share_url>/carry/<digest>.tar is there; NULL:
                                 not known yet (`plan --manifest`) */
    const char *share_url;
    const char *store_volume; /* of a share that is a folder: as carry_volume; NULL: each machine
                                 has it under its own path */
    int64_t pending_ms;       /* a job that waits for so long fails with the reason; 0: for ever */
    /* Is the end of this attempt in this machine's record of the run? Nobody needs its job then.
     * The backend sets it; NULL: not known of any. */
    bool (*is_recorded)(void *arg, const char *run, uint32_t id, uint32_t attempt);
    void *recorded_arg;
    /* Of a preview for a person: how the engine decides what its documents are to be, which it may
     * then be asked for. NULL: nothing is asked. */
    void (*note)(void *arg, const char *text);
    void *note_arg;
} stk_driver_config;

/* What `stoker plan --manifest` prints and submit sends: pure, where config->note is NULL. One or
 * more documents, JSON texts in the order of their making. STK_E_SPEC: an option that can't be
 * honoured, with the nearest alternative. */
typedef int (*stk_driver_manifest)(const stk_driver_config *config, const stk_remote_job *job,
                                   stk_arena *arena, const char ***ret_documents, uint32_t *ret_n,
                                   stk_err *err);

/* An engine that runs jobs elsewhere. */
typedef struct stk_driver_kind {
    const char *name;
    int (*open)(const stk_driver_config *config, stk_driver **ret, stk_err *err);
    stk_driver_manifest manifest;
    /* Can it be reached, may we do what we will do? For `stoker stack check`. Sentences to `say`;
     * an error is the first thing that stands in the way. */
    int (*check)(const stk_driver_config *config,
                 void (*say)(void *arg, bool is_good, const char *text), void *arg, stk_err *err);
} stk_driver_kind;
extern const stk_driver_kind stk_driver_fake; /* a folder that plays an engine: remote_fake.c */
/* The engine of this name ("kubernetes"), NULL: there is none. Whoever starts runs has the table.
 */
typedef const stk_driver_kind *(*stk_driver_find)(const char *name);

/* --- the backend --- */

typedef struct stk_remote_config {
    const stk_driver_kind *kind;
    stk_driver_config driver;
    const char *store_path; /* of this machine's store, opened by the threads that need it */
    const char *share_url;
    const char *run, *pipeline;
    const char *code_digest, *code_root; /* or NULL: no code package */
    const char *carry_at;
    /* The run's record in the share, or NULL: a job is asked for once its start is in it, so by the
     * one engine that the run has. */
    struct stk_remote_log *log;
} stk_remote_config;

/* Nothing is asked yet; the first start() opens the driver. Its jobs are stk_jobs with `elsewhere`.
 */
int stk_remote_open(const stk_remote_config *config, stk_backend **ret_backend, stk_err *err);

/* What `job` would be submitted as: documents as of stk_driver_manifest, with "(secret)" in the
 * place of each secret's value. Asks nothing of anybody, but for what config->driver.note says. */
int stk_remote_preview(const stk_remote_config *config, const stk_job *job, stk_arena *arena,
                       const char ***ret_documents, uint32_t *ret_n, stk_err *err);

#endif
