/* remote: tasks on other machines. A backend (stk_backend) that gives jobs to an engine that people
 * already have, through a driver, and moves files through the share
 * (docs/decisions/0010-elsewhere.md).
 *
 * Threads: exec's thread calls the stk_backend_ops, which never block; a few threads stage and
 * collect; one thread for each driver calls all of its functions.
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

/* One attempt for a driver to run. It lives until the driver has reported its end. */
typedef struct stk_remote_job {
    uint32_t id; /* the task's number, which reports use */
    const char *run, *pipeline, *step;
    uint32_t task, attempt;
    /* Unique, and always the same for this attempt: "s-<8 of the run>-<step>-<task>-<attempt>", at
     * most 48 bytes of [a-z0-9-]; a digest replaces the rest of a longer one. */
    const char *name;
    /* NULL: the node's own system (Slurm); else only for `plan --manifest`, which writes a
     * placeholder. */
    const char *image;
    const char *image_named;        /* not pinned to its content: with its tag; NULL: as `image` */
    const stk_resources *resources; /* the step's request */
    const char *options;            /* merged options of this backend, a JSON object; never NULL */
    const char *const *argv;        /* the container's command: the agent with its arguments */
    const char *const *env;         /* "K=V" without secrets */
    const char *const *secret;      /* "K=V" to pass by the engine's own secrets; NULL: none */
    const char *const *folders;     /* absolute paths that must be empty, writable folders inside */
    const char *carry;    /* the stack's way to bring our program in: "image", "volume", "store" */
    const char *carry_at; /* our program's folder inside: "/stoker" */
    uint32_t nodes;       /* all of these or none; 1: a plain job */
    int32_t port;         /* of node 0's launcher, if nodes > 1 */
    int64_t timeout_ms;   /* the agent enforces it; the engine's own deadline is later. 0: none */
    int64_t grace_ms;     /* from SIGTERM to SIGKILL */
    /* Key of the attempt in the share, the last word of argv. An engine that starts many jobs by
     * one request may replace it by the key of a list of keys (remote_order.h). NULL: it may not.
     */
    const char *key;
    bool is_many; /* for `plan --manifest`: one task of a foreach */
    bool attach;  /* the engine had it, and it may have ended; a missing job is lost */
    bool reads;   /* with `attach`: another machine has the job, so it is only reported on: nothing
                     is created, ended or removed */
    bool look;    /* an earlier engine may have submitted it: attach to it, or submit it if it
                     is missing (not needed if the engine refuses a second job of a name) */
} stk_remote_job;

typedef enum {
    STK_REMOTE_QUEUED,  /* the engine has it; text: why it waits, "": unknown */
    STK_REMOTE_RUNNING, /* its program runs; text: where ("node gpu-3") */
    STK_REMOTE_ENDED,   /* ended by itself: exit_status or signal; text: the engine's */
    STK_REMOTE_FAILED,  /* it never ran, or was ended; the reason is in `failure` and text */
    STK_REMOTE_LOG,     /* data, n: more of its output (node: of this node) */
    STK_REMOTE_NOTE     /* text: a sentence for the user */
} stk_remote_state;

enum {
    STK_REMOTE_WORDS = sizeof((stk_outcome *)0)->text
}; /* most bytes of an end's text that are kept */

typedef struct stk_remote_report {
    stk_remote_state state;
    uint32_t id, attempt;
    uint32_t node;
    int exit_status;  /* -1 unknown */
    int signal;       /* 0 none */
    bool oom;         /* as the engine reports */
    bool is_hopeless; /* FAILED: another attempt would fail alike, for example without a right */
    stk_failure
        failure; /* FAILED: START, LOST, PREEMPTED, TIMEOUT, RESOURCES, HOST_OOM, CANCELLED */
    char text[1024];
    const char *data;
    size_t n;
} stk_remote_report;

typedef struct stk_driver stk_driver;
typedef void (*stk_driver_say)(void *arg,
                               const stk_remote_report *report); /* copies the report at once */

/* The driver's thread calls all of them. */
typedef struct stk_driver_ops {
    const char *name; /* "kubernetes" */
    /* Begins to submit; reports tell the result. An error: the job can never be submitted, for
     * example because of a wrong option. */
    int (*submit)(stk_driver *self, const stk_remote_job *job, stk_err *err);
    /* Ends a job; grace_ms 0: at once. When the engine has nothing left of it, the driver reports
     * its end (FAILED, `why`). Ignores unknown ids. */
    void (*stop)(stk_driver *self, uint32_t id, int64_t grace_ms, stk_failure why);
    /* The end is on record here, so the engine's copy isn't needed: removes the job's remains. */
    void (*forget)(stk_driver *self, uint32_t id);
    /* Waits for answers of the engine or for `wake_fd`, at most timeout_ms, and reports what is
     * new. An error: this engine can't be used any more (missing right, refused certificate), and
     * all its jobs fail with it. Retries temporary errors itself, and reports them as a NOTE. */
    int (*turn)(stk_driver *self, int wake_fd, int64_t timeout_ms, stk_err *err);
    /* Waits some seconds for what forget() has begun, leaves all other jobs running (detached), and
     * frees the driver. */
    void (*close)(stk_driver *self);
} stk_driver_ops;

struct stk_driver {
    const stk_driver_ops *ops;
    stk_driver_say say;
    void *say_arg;
};

/* Configuration of a driver, which borrows its texts for life. */
typedef struct stk_driver_config {
    const char *stack;        /* its name, for messages */
    const char *options;      /* the stack's options for this backend, a JSON object; never NULL */
    const char *run;          /* label of everything that the driver makes */
    const char *carry;        /* "image", "volume", "store" */
    const char *runner_image; /* for carry: image; or NULL */
    const char *carry_volume; /* for carry: volume: "pvc:NAME[/path]", "efs:ID[/path]" or
                                 "/host/path"; or NULL */
    const char *carry_digest; /* for carry: store: digest of <share_url>/carry/<digest>.tar; NULL:
                                 unknown yet (`plan --manifest`) */
    const char *share_url;
    const char *store_volume; /* of a share that is a folder: as carry_volume; NULL: each machine
                                 has it under its own path */
    int64_t pending_ms;       /* a job that waits longer fails with the reason; 0: no limit */
    /* Returns true if the end of this attempt is in this machine's record of the run, so that its
     * job isn't needed. The backend sets it; NULL: unknown for all. */
    bool (*is_recorded)(void *arg, const char *run, uint32_t id, uint32_t attempt);
    void *recorded_arg;
    /* For a preview that a person reads: gets notes on how the documents depend on the engine,
     * which the driver may ask then. NULL: the driver asks nothing. */
    void (*note)(void *arg, const char *text);
    void *note_arg;
} stk_driver_config;

/* The documents that `stoker plan --manifest` prints and submit sends; pure if config->note is
 * NULL. One or more JSON texts, in the order of creation. STK_E_SPEC: an option that the engine
 * can't honour, with the nearest alternative. */
typedef int (*stk_driver_manifest)(const stk_driver_config *config, const stk_remote_job *job,
                                   stk_arena *arena, const char ***ret_documents, uint32_t *ret_n,
                                   stk_err *err);

/* What one step asks for, without a job. */
typedef struct stk_remote_ask {
    const stk_resources *resources; /* of each node */
    const char *options;            /* as of stk_remote_job */
    uint32_t nodes;
} stk_remote_ask;

/* An engine that runs jobs elsewhere. */
typedef struct stk_driver_kind {
    const char *name;
    int (*open)(const stk_driver_config *config, stk_driver **ret, stk_err *err);
    stk_driver_manifest manifest;
    /* For `stoker stack check`: checks that the engine can be reached and that we have the rights
     * that we need. Gives sentences to `say`; returns the first obstacle as an error. */
    int (*check)(const stk_driver_config *config,
                 void (*say)(void *arg, bool is_good, const char *text), void *arg, stk_err *err);
    /* Before a run: asks the machines whether they can hold these requests, now or ever. ret_why[i]
     * gets STK_E_RESOURCES and what each machine has, or code 0. Machines that don't answer within
     * some seconds count as able. NULL: only a submission tells. */
    int (*holds)(const stk_driver_config *config, const stk_remote_ask *asks, uint32_t n,
                 stk_err *ret_why, stk_err *err);
    /* Machines start our program in a share that is a folder (carry: store): it is laid out there
     * beside its archive. */
    bool starts_in_share;
} stk_driver_kind;
extern const stk_driver_kind stk_driver_fake; /* a folder that acts as an engine: remote_fake.c */
/* Finds the engine of this name ("kubernetes"), or NULL. The program that starts runs has the
 * table. */
typedef const stk_driver_kind *(*stk_driver_find)(const char *name);

/* --- the backend --- */

typedef struct stk_remote_config {
    const stk_driver_kind *kind;
    stk_driver_config driver;
    const char *store_path; /* of this machine's store, opened by the threads that need it */
    const char *share_url;
    const char *run, *pipeline;
    const char *code_digest, *code_root; /* NULL: no code package */
    const char *carry_at;
    /* The run's record in the share, or NULL. A job is submitted after the record has its start, so
     * that only the run's one engine submits it. */
    struct stk_remote_log *log;
} stk_remote_config;

/* Makes no requests yet; the first start() opens the driver. Its jobs are stk_jobs with
 * `elsewhere`. */
int stk_remote_open(const stk_remote_config *config, stk_backend **ret_backend, stk_err *err);

/* The documents with which `job` would be submitted, as of stk_driver_manifest, with "(secret)" for
 * each secret's value. Makes no requests, unless config->driver.note is set. */
int stk_remote_preview(const stk_remote_config *config, const stk_job *job, stk_arena *arena,
                       const char ***ret_documents, uint32_t *ret_n, stk_err *err);

#endif
