/* run: a pipeline's run as a library: opened, driven to its end, closed.
 *
 * Nothing here prints, reads a command line or handles a signal. What happens is told by calls, on
 * the thread that called stk_run_open or stk_run_loop; signals come as a descriptor.
 *
 *     stk_run *run = NULL;
 *     int rc = stk_run_open(&config, &run, &err);
 *     if (rc == 0) {
 *         rc = stk_run_loop(run, &status, &err);
 *     }
 *     if (rc == 0) {
 *         rc = stk_run_sync(run, &err);
 *     }
 *     stk_run_close(run);
 */
#ifndef STK_RUN_H
#define STK_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "away/remote/remote.h"
#include "host/accel/accel.h"
#include "model/plan/plan.h"
#include "model/spec/spec.h"
#include "run/exec/exec.h"
#include "store/store.h"
#include "store/view/view.h"

typedef struct stk_run stk_run;

/* Options of a run. Texts belong to the caller and outlive the run. */
typedef struct stk_run_options {
    stk_policy policy;
    bool has_policy;      /* the user gave `policy` */
    int mode;             /* stk_mode, or -1: the spec's */
    uint32_t max_workers; /* 0: no limit but the CPUs */
    bool in_order;        /* one at a time, in the document's order, if all steps run here */
    bool use_cache;
    bool use_new_code;  /* with `resume`: go on although the code of a step changed */
    const char *name;   /* of the run, or NULL */
    const char *python; /* interpreter, or NULL */
    const char *with;   /* the stack, or NULL: local */
    const char *resume; /* run to take up, or NULL */
    /* With `resume`: only ends the run (`at_once`: without grace time). */
    bool cancel, at_once;
    /* Takes over this run's finished tasks, except those of step `clone_until` and what follows
     * it; or NULL. */
    const char *clone, *clone_until;
    bool clone_only;         /* and stops there */
    int server_fd;           /* fork server, or -1 */
    int code_fd;             /* of the document of the steps' code (exec.h), or -1 */
    const char *program;     /* path of this program, which containers get with the Python front */
    const char *share;       /* instead of the stores of all stacks, or NULL */
    stk_driver_find drivers; /* finds drivers of remote engines; NULL: steps run here only */
    /* Reports slow work before the first task, such as pulling an image; or NULL. */
    void (*say)(void *arg, const char *line);
    void *arg; /* for `say` */
} stk_run_options;

/* Do these options mean one task at a time, in order? `elsewhere`: some steps run on other
 * machines. */
static inline bool stk_run_in_order(const stk_run_options *options, bool elsewhere)
{
    return options->in_order && options->max_workers <= 1 && !elsewhere;
}

/* The limit that these options mean. */
static inline uint32_t stk_run_n_workers(const stk_run_options *options, bool elsewhere)
{
    return stk_run_in_order(options, elsewhere) ? 1 : options->max_workers;
}

/* Any of these may be NULL. */
typedef struct stk_run_calls {
    /* The store of the run; `beyond`: a store above the project that the run ignores, or NULL. */
    void (*on_store)(void *arg, const char *path, const char *beyond);
    /* The run has its store and its view. A new run has no record yet, and an error ends it
     * without one. */
    int (*on_open)(void *arg, stk_run *run, stk_err *err);
    /* The run has a record and an id; its first task follows. */
    void (*on_begin)(void *arg, stk_run *run);
    /* The event is durable and in the view. */
    void (*on_event)(void *arg, const stk_event_row *row);
    /* An attempt's process is known. */
    void (*on_started)(void *arg, uint32_t task, int64_t pid);
    /* The n-th signal has come. */
    void (*on_signal)(void *arg, uint32_t n);
    /* Now and then; returns milliseconds until the next (-1: with the next event). */
    int64_t (*on_tick)(void *arg, int64_t now_ms);
    /* A failure that doesn't end the run: the share didn't get its record. */
    void (*on_trouble)(void *arg, const stk_err *err);
    void *arg;
} stk_run_calls;

/* Loads the pipeline document `path` (NULL: standard input). Its relative paths start at its
 * folder, or at the current one for standard input. Errors: those of stk_spec_parse, and
 * STK_E_NOT_FOUND, STK_E_UNTRUSTED and STK_E_SYS for the file. */
int stk_run_load_document(const char *path, stk_spec **ret_spec, stk_err *err);
int stk_run_parse_document(const char *text, size_t len, const char *path, stk_spec **ret_spec,
                           stk_err *err);

typedef struct stk_run_config {
    stk_spec *spec;                 /* borrowed; its parameters have their values */
    const stk_run_options *options; /* borrowed */
    stk_run_calls calls;
    int signal_fd; /* signalfd of SIGINT, SIGTERM, SIGHUP, SIGUSR1 (exec.h), or -1 */
    int hangup_fd; /* the run is cancelled when its other end closes, or -1 */
} stk_run_config;

/* Prepares a new or a resumed run up to its first task: places, devices, plan, images, code and
 * backends. Sets *ret also on failure (NULL: out of memory); the caller closes it. */
int stk_run_open(const stk_run_config *config, stk_run **ret, stk_err *err);
/* Drives the run to its end. On an error the engine can't continue: it has ended the running tasks,
 * and the run can be resumed, as the error's hint says. */
int stk_run_loop(stk_run *run, stk_run_status *ret_status, stk_err *err);
/* Waits until the record is on the disk and in the share, or until a signal. */
int stk_run_sync(stk_run *run, stk_err *err);
void stk_run_close(stk_run *run); /* NULL is fine */

const char *stk_run_id(const stk_run *run); /* NULL: it has no record */
stk_store *stk_run_store(const stk_run *run);
const stk_view *stk_run_view(const stk_run *run);
/* Returns 0, or the error because of which the view lacks events. */
int stk_run_view_check(const stk_run *run, stk_err *err);
/* The run's clock, in milliseconds since 1970. */
int64_t stk_run_now_ms(const stk_run *run);
/* The simulated devices, as "2 x H100 (simulated)"; NULL: the devices are real. */
const char *stk_run_simulated(const stk_run *run);
/* The sentence of the first final failure, or NULL. */
const char *stk_run_error(const stk_run *run);
/* Live usage of a running task. */
bool stk_run_usage(const stk_run *run, uint32_t task, int64_t *ret_memory_bytes, double *ret_cpus);

#endif
