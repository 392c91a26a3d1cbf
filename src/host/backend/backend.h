/* backend: where tasks execute, behind one table. exec gives jobs and gets reports; it knows no
 * process, pod or queue.
 *
 * start() may be called twice for the same job after a crash (same run, task, attempt): acting
 * twice is harmless. Reports come through next(); the descriptor `fd` is readable when there may be
 * some. Nothing blocks.
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

/* Of a job for other machines, beyond what every job has (docs/decisions/0010-elsewhere.md). */
struct stk_resources;
typedef struct stk_job_elsewhere {
    uint32_t backend; /* which of a mux's; 0: this machine */
    const char *image;
    const char *options;                   /* of the step for that backend, a JSON object */
    const struct stk_resources *resources; /* what the step asks for */
    const char *const *secrets; /* those names of `env` whose values are secret, NULL-terminated;
                                   or NULL */
    const char *const *expand;  /* those whose values are made of the image's environment there
                                   (base/expand.h), NULL-terminated; or NULL */
    bool attach;                /* an earlier engine started it: it may run, or have ended */
    bool is_many;               /* one of a foreach's, as far as a plan can tell */
    bool only_to_end; /* with attach: stop() follows; nothing is staged or submitted for it */
} stk_job_elsewhere;

/* One attempt of one task. Everything is borrowed until start() returns, except `lease`, which the
 * backend takes over (also on error). */
typedef struct stk_job {
    uint32_t id; /* chosen by exec: names the job in reports and stop(); the task number */
    uint32_t attempt;
    const char *step;
    bool gang; /* its process is a launcher: past the watchdog's memory limit it gets SIGUSR2, and
                  has some seconds to end its ranks and say which was the largest */
    uint32_t nodes;  /* all at once or none (docs/formats/task-directory.md); 1 but for gangs */
    const char *dir; /* the attempt directory, exists, task.json written */
    const char *const *argv;  /* command steps: NULL-terminated; NULL for Python */
    const char *python;       /* "module:qualname", or NULL */
    bool spawn;               /* Python with a fresh interpreter */
    const char *cwd;          /* or NULL: the directory the engine was started in */
    const char *const *env;   /* "K=V" to set on top of the inherited environment, NULL-terminated
                                 (devices, STOKER_*, user's, secrets) */
    const char *const *unset; /* names to remove, NULL-terminated, or NULL */
    bool contained;       /* argv is `stoker contain`: the container's engine enforces memory and
                             CPU, and what is measured is the container's processes */
    bool unlimited;       /* contained, and that engine can't limit memory: we watch it */
    const uint32_t *cpus; /* to be pinned to; n_cpus 0: not pinned */
    uint32_t n_cpus;
    uint32_t threads;     /* 0: leave thread counts alone */
    int64_t memory_bytes; /* enforced limit, 0: none */
    int64_t cpu_milli;    /* enforced quota, 0: none */
    int64_t sample_ms;    /* sampling period; 0: the backend's */
    bool reads_samples;   /* while it runs: they are to be written at once */
    int64_t timeout_ms;   /* 0: none */
    int64_t notice_ms;    /* SIGTERM so long before the timeout, which then kills; 0: at it, with
                             grace_ms */
    int64_t grace_ms;
    const char *const *hidden; /* values that may not be in its logs, NULL-terminated, or
                                  NULL. On this machine only */
    const char
        *checkpoints; /* the task's folder, also in `env`: to be seen by it under that path */
    const char *const *readonly; /* command steps: what it sees read-only, and where, in turn;
                                    NULL-terminated, or NULL */
    const char *hook; /* "on_failure" …: run only this hook of the step (Python), with `hook_error`;
                         or NULL */
    const char *hook_error;
    stk_lease lease;                    /* n 0: no device */
    const stk_job_elsewhere *elsewhere; /* NULL: on this machine. Its argv is the whole program, of
                                           a Python step too */
} stk_job;

typedef enum {
    STK_REPORT_STARTED, /* pid is set (local) */
    STK_REPORT_ENDED,   /* (failure PREEMPTED: its place was wanted back) outcome is set; the job is
                           forgotten. result.json is not read here */
    STK_REPORT_NOTE     /* text: a sentence for the user about this job */
} stk_report_kind;

typedef struct stk_report {
    stk_report_kind kind;
    uint32_t id;
    uint32_t attempt;
    int64_t pid;
    int64_t time_ms; /* wall clock */
    stk_outcome outcome;
    char text[512];
} stk_report;

typedef struct stk_backend_ops {
    const char *name;
    int (*start)(stk_backend *self, stk_job *job,
                 stk_err *err); /* an error: nothing was started, there will be no report */
    /* Ends a job: SIGTERM, after grace_ms SIGKILL; grace_ms 0: at once. Unknown ids are ignored.
     * May be repeated (the shorter grace wins). */
    void (*stop)(stk_backend *self, uint32_t id, int64_t grace_ms, stk_failure why);
    /* The caller ends, and won't stop it: does it go on? False: it never began, and won't. NULL: no
     * job outlives the caller. */
    bool (*leave)(stk_backend *self, uint32_t id);
    bool (*next)(stk_backend *self, stk_report *ret_report);
    /* What next() has told so far is on record: the backend may let go of what it kept in case that
     * it is asked again. NULL: it keeps nothing. */
    void (*recorded)(stk_backend *self);
    /* And before that: this job's success is, and its checkpoints aren't needed any more where the
     * backend keeps some. NULL: it doesn't. */
    void (*drop_checkpoints)(stk_backend *self, uint32_t id);
    /* For poll(2): readable when next() may have something; and the longest time to wait before
     * calling next() anyway (-1: for ever). */
    int (*fd)(const stk_backend *self);
    int64_t (*wait_ms)(const stk_backend *self);
    /* Ends whatever is left, at once. */
    void (*close)(stk_backend *self);
    /* Live usage of a running job, for progress lines; false if unknown. */
    bool (*usage)(stk_backend *self, uint32_t id, int64_t *ret_memory_bytes, double *ret_cpus);
} stk_backend_ops;

struct stk_backend {
    const stk_backend_ops *ops;
};

typedef struct stk_local_config {
    const char *run; /* run id: names cgroups and the environment marker STOKER_RUN */
    int server_fd;   /* connected fork server, or -1 */
    const char
        *python; /* interpreter for clean servers and spawn, or NULL: python3 of the environment */
    const char *main_file; /* for clean servers, or NULL */
    stk_accel *accel;
    const stk_clock *clock; /* whose wall time samples begin at; NULL: the real one. Kept */
    int64_t server_ms; /* a fork server that hasn't begun a task for so long hangs, and is replaced;
                          0: default (60 s) */
    stk_policy policy; /* strict: a task on a device that it wasn't given is ended */
    int64_t sample_ms; /* sampling period, 0: default (100 ms, slower for long tasks) */
} stk_local_config;

int stk_backend_local_open(const stk_local_config *config, stk_backend **ret_backend, stk_err *err);
const char *
stk_backend_local_describe(stk_backend *backend); /* how memory and CPU are limited here */

/* Several backends as one: a job goes to the one that job->elsewhere->backend names (NULL: the
 * first). Takes them over, also on error. */
int stk_backend_mux_open(stk_backend *const *backends, uint32_t n, stk_backend **ret_backend,
                         stk_err *err);

/* The fake: runs nothing; each job's fate is decided by a function of the test. Time is the test's.
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
