/* backend: executes tasks, behind one table of operations. exec submits jobs and receives reports;
 * it knows no process, pod or queue.
 *
 * After a crash, start() may be called again for the same job (same run, task, attempt): a backend
 * must make that harmless. next() returns reports; the descriptor of fd() is readable when there
 * may be some. No operation blocks.
 */
#ifndef STK_BACKEND_H
#define STK_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "host/accel/accel.h"
#include "host/runner/runner.h"
#include "sys/clock.h"

typedef struct stk_backend stk_backend;

/* Extra data of a job for other machines (docs/decisions/0010-elsewhere.md). */
struct stk_resources;
typedef struct stk_job_elsewhere {
    uint32_t backend; /* index in the mux; 0: this machine */
    const char *image;
    const char *image_named;               /* as the step or its stack names it; or NULL */
    const char *options;                   /* the step's options for that backend, a JSON object */
    const struct stk_resources *resources; /* what the step requests */
    const char *const *secrets; /* names in `env` with secret values, NULL-terminated; or NULL */
    const char *const *expand;  /* names in `env` whose values are expanded from the image's
                                   environment there (base/expand.h), NULL-terminated; or NULL */
    bool attach;      /* an earlier engine started the job: it may still run, or have ended */
    bool is_many;     /* probably one of many, by the plan: a task of a foreach */
    bool only_to_end; /* with attach: stop() follows; don't stage or submit anything */
} stk_job_elsewhere;

/* One attempt of one task. Everything is borrowed until start() returns, except `lease`, which the
 * backend takes over (also on error). */
typedef struct stk_job {
    uint32_t id; /* chosen by exec: names the job in reports and stop(); the task number */
    uint32_t attempt;
    const char *step;
    bool gang; /* its process is a launcher: when it exceeds the watchdog's memory limit, it gets
                  SIGUSR2 and has some seconds to end its ranks and report the largest */
    uint32_t nodes;  /* all at once or none (docs/formats/task-directory.md); 1 but for gangs */
    const char *dir; /* the attempt directory; it exists and has task.json */
    const char *const *argv;  /* command steps: NULL-terminated; NULL for Python */
    const char *python;       /* "module:qualname", or NULL */
    bool spawn;               /* Python with a fresh interpreter */
    const char *interpreter;  /* with spawn: that one instead of the backend's; or NULL */
    const char *cwd;          /* or NULL: the directory the engine was started in */
    const char *const *env;   /* "K=V" to set on top of the inherited environment, NULL-terminated
                                 (devices, STOKER_*, user's, secrets) */
    const char *const *unset; /* names to remove, NULL-terminated, or NULL */
    bool contained; /* argv is `stoker contain`: the container engine limits memory and CPU, and we
                       measure the container's processes */
    bool unlimited; /* contained, but the container engine can't limit memory: our watchdog does */
    const uint32_t *cpus; /* CPUs to pin the task to; n_cpus 0: no pinning */
    uint32_t n_cpus;
    uint32_t threads;     /* 0: leave thread counts alone */
    int64_t memory_bytes; /* enforced limit, 0: none */
    int64_t cpu_milli;    /* enforced quota, 0: none */
    int64_t sample_ms;    /* sampling period; 0: the backend's */
    bool reads_samples;   /* the task reads its samples: write them at once */
    int64_t timeout_ms;   /* 0: none */
    int64_t notice_ms; /* SIGTERM this long before the timeout, SIGKILL at the timeout; 0: SIGTERM
                          at the timeout, SIGKILL after grace_ms */
    int64_t grace_ms;
    const char *const *hidden; /* secret values to mask in its logs, NULL-terminated, or NULL. Only
                                  on this machine */
    const char *checkpoints;   /* the task's checkpoint folder, also in `env`; the task must see it
                                  under that path */
    const char *const *readonly; /* command steps: alternating host paths and the paths where the
                                    task sees them read-only; NULL-terminated, or NULL */
    const char *hook; /* "on_failure" …: run only this hook of the step (Python), with `hook_error`;
                         or NULL */
    const char *hook_error;
    stk_lease lease;                    /* n 0: no device */
    const stk_job_elsewhere *elsewhere; /* NULL: this machine. Otherwise argv is the whole program,
                                           for Python steps too */
} stk_job;

typedef enum {
    STK_REPORT_STARTED, /* pid is set (local) */
    STK_REPORT_ENDED, /* outcome is set (failure PREEMPTED: its machine was reclaimed); the backend
                         forgets the job. The backend doesn't read result.json */
    STK_REPORT_NOTE   /* text: a sentence for the user about this job */
} stk_report_kind;

typedef struct stk_report {
    stk_report_kind kind;
    uint32_t id;
    uint32_t attempt;
    int64_t pid;
    int64_t time_ms; /* wall clock */
    stk_outcome outcome;
    char text[512];
    uint32_t why_at;    /* NOTE: > 0: the job waits elsewhere, and why begins at text[why_at] */
    bool waits_no_more; /* NOTE, without a text: what was said so isn't true any more */
} stk_report;

typedef struct stk_backend_ops {
    const char *name;
    int (*start)(stk_backend *self, stk_job *job,
                 stk_err *err); /* an error: nothing was started, no report follows */
    /* Ends a job: SIGTERM, after grace_ms SIGKILL; grace_ms 0: at once. Unknown ids are ignored.
     * May be repeated (the shorter grace wins). */
    void (*stop)(stk_backend *self, uint32_t id, int64_t grace_ms, stk_failure why);
    /* The caller ends without stopping the job. True: the job goes on; false: it never began, and
     * never will. NULL: no job outlives the caller. */
    bool (*leave)(stk_backend *self, uint32_t id);
    bool (*next)(stk_backend *self, stk_report *ret_report);
    /* The caller has recorded all reports that next() returned so far: the backend may release what
     * it kept to report them again. NULL: it keeps nothing. */
    void (*recorded)(stk_backend *self);
    /* Called before recorded(): the success of this job is recorded, so the backend may delete its
     * checkpoints. NULL: the backend keeps none. */
    void (*drop_checkpoints)(stk_backend *self, uint32_t id);
    /* For poll(2): readable when next() may have a report. wait_ms() is the longest time to wait
     * before calling next() anyway (-1: for ever). */
    int (*fd)(const stk_backend *self);
    int64_t (*wait_ms)(const stk_backend *self);
    /* Ends all remaining jobs at once and frees the backend. */
    void (*close)(stk_backend *self);
    /* Live usage of a running job, for progress lines; false if unknown. */
    bool (*usage)(stk_backend *self, uint32_t id, int64_t *ret_memory_bytes, double *ret_cpus);
} stk_backend_ops;

struct stk_backend {
    const stk_backend_ops *ops;
};

typedef struct stk_local_config {
    const char *run; /* run id, used for cgroup names and the variable STOKER_RUN */
    int server_fd;   /* connected fork server, or -1 */
    const char
        *python; /* interpreter for clean servers and spawn, or NULL: python3 of the environment */
    const char *main_file; /* for clean servers, or NULL */
    stk_accel *accel;
    const stk_clock *clock; /* gives the samples' start time; NULL: the real clock. Borrowed */
    int64_t server_ms;      /* a fork server that doesn't start a task within this time hangs and is
                               replaced; 0: default (60 s) */
    stk_policy policy;      /* strict: end a task that uses a device without a lease */
    int64_t sample_ms;      /* sampling period, 0: default (100 ms, slower for long tasks) */
} stk_local_config;

int stk_backend_local_open(const stk_local_config *config, stk_backend **ret_backend, stk_err *err);
const char *
stk_backend_local_describe(stk_backend *backend); /* how memory and CPU are limited here */

/* Combines several backends: a job goes to backends[job->elsewhere->backend] (elsewhere NULL: the
 * first). Takes ownership of the backends, also on error. */
int stk_backend_mux_open(stk_backend *const *backends, uint32_t n, stk_backend **ret_backend,
                         stk_err *err);

/* The fake backend runs nothing. The test's functions decide each job's fate and the time.
 */
typedef struct stk_fake_fate {
    int64_t after_ms; /* from start to end */
    stk_outcome outcome;
    int start_error; /* ≠ 0: start() fails with it */
} stk_fake_fate;
typedef stk_fake_fate (*stk_fake_fn)(void *arg, const stk_job *job);
int stk_backend_fake_open(stk_fake_fn fate, void *arg, int64_t (*now_ms)(void *arg),
                          stk_backend **ret_backend, stk_err *err);

#endif
