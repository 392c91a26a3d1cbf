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

/* How a run goes. Text is the caller's and outlives the run. */
typedef struct stk_run_options {
    stk_policy policy;
    bool has_policy;      /* the user said it */
    int mode;             /* stk_mode, or -1: the spec's */
    uint32_t max_workers; /* 0: no limit but the CPUs */
    bool use_cache;
    bool use_new_code;  /* with `resume`: go on although the code of a step changed */
    const char *name;   /* of the run, or NULL */
    const char *python; /* interpreter, or NULL */
    const char *with;   /* the stack, or NULL: local */
    const char *resume; /* run to take up, or NULL */
    /* With `resume`: it is taken up to be ended (`at_once`: without grace time), no more. */
    bool cancel, at_once;
    /* Run whose finished tasks are taken over, but for those of a step; or NULL. */
    const char *clone, *clone_until;
    bool clone_only;         /* and nothing else is done */
    int server_fd;           /* fork server, or -1 */
    const char *program;     /* this program: copied into containers, the Python front beside it */
    stk_driver_find drivers; /* of engines elsewhere, by name; NULL: steps run here only */
    /* What takes long before the first task: an image is pulled or built. NULL: nobody asks. */
    void (*say)(void *arg, const char *line);
    void *arg; /* of `say` */
} stk_run_options;

/* Any of these may be NULL. */
typedef struct stk_run_calls {
    /* The store that is used; `beyond`: one above the project that isn't, or NULL. */
    void (*on_store)(void *arg, const char *path, const char *beyond);
    /* The run has its store and its view; nothing of it is on record yet if it is new. An error
     * ends it before it begins. */
    int (*on_open)(void *arg, stk_run *run, stk_err *err);
    /* It is on record, under its id; its first task is next. */
    void (*on_begin)(void *arg, stk_run *run);
    /* The event is durable and in the view. */
    void (*on_event)(void *arg, const stk_event_row *row);
    /* An attempt's process is known. */
    void (*on_started)(void *arg, uint32_t task, int64_t pid);
    /* The n-th signal has come. */
    void (*on_signal)(void *arg, uint32_t n);
    /* Now and then; returns milliseconds until the next (-1: with the next event). */
    int64_t (*on_tick)(void *arg, int64_t now_ms);
    /* Something failed that doesn't fail the run: the share lacks its record. */
    void (*on_trouble)(void *arg, const stk_err *err);
    void *arg;
} stk_run_calls;

/* The pipeline of the document `path`. What it names by a relative path counts from its folder, or
 * from the current one where it came by a pipe (NULL). Errors: those of stk_spec_parse, of a file
 * STK_E_NOT_FOUND, STK_E_UNTRUSTED, STK_E_SYS. */
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

/* Makes a run ready, up to its first task, or takes one up: places, devices, plan, images, code,
 * backends. *ret is set also on failure (NULL: out of memory) and must be closed. */
int stk_run_open(const stk_run_config *config, stk_run **ret, stk_err *err);
/* Until it has ended. An error: the engine can't go on, running tasks were ended, the run can be
 * resumed (the error's hint says so). */
int stk_run_loop(stk_run *run, stk_run_status *ret_status, stk_err *err);
/* What is on record is on the disk and in the share; a signal ends the waiting. */
int stk_run_sync(stk_run *run, stk_err *err);
void stk_run_close(stk_run *run); /* NULL is fine */

const char *stk_run_id(const stk_run *run); /* NULL: none is on record */
stk_store *stk_run_store(const stk_run *run);
const stk_view *stk_run_view(const stk_run *run);
/* 0, or why the view lacks events. */
int stk_run_view_check(const stk_run *run, stk_err *err);
/* By the run's clock, in milliseconds since 1970. */
int64_t stk_run_now_ms(const stk_run *run);
/* "2 x H100 (simulated)": what stands for real devices, or NULL: they are real. */
const char *stk_run_simulated(const stk_run *run);
/* The sentence of the first final failure, or NULL. */
const char *stk_run_error(const stk_run *run);
/* Live usage of a running task. */
bool stk_run_usage(const stk_run *run, uint32_t task, int64_t *ret_memory_bytes, double *ret_cpus);

#endif
