/* runner: supervision of one task. Starts it (or is handed its pid), samples it, enforces limits
 * and timeouts, ends it, says how it ended.
 *
 * A library with an event loop of its caller: descriptors to poll and a tick. Used by the local
 * backend; later by stk-runner.
 */
#ifndef STK_RUNNER_H
#define STK_RUNNER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/event.h"
#include "sys/cgroup.h"
#include "sys/proc.h"

/* How an attempt ended, and what it used. Text is one true sentence without the step's name ("exit
 * status 3", "killed by signal 9 (SIGKILL)", "host OOM: used 1.3 GB of its 1 GB"). */
typedef struct stk_outcome {
    bool ok;
    stk_failure failure;
    int exit_status; /* -1: not known or by signal */
    int signal;      /* 0: none */
    char text[512];
    int64_t wall_ms;
    int64_t cpu_us;            /* -1 unknown */
    int64_t peak_memory_bytes; /* -1 unknown */
    struct {
        const char *uuid;
        double busy_percent_mean;  /* -1 unknown */
        int64_t peak_memory_bytes; /* -1 unknown */
    } devices[64];
    uint32_t n_devices;
} stk_outcome;

/* --- how it ended (runner_classify.c, pure) --- */

/* What was seen of a task's end. */
typedef struct stk_ending {
    int wait_status;         /* as of wait(2); -1: nobody could reap it */
    stk_failure stopped_for; /* NONE: we did not end it; else TIMEOUT, CANCELLED, HOST_OOM … */
    int64_t timeout_ms;      /* what it was given, for the sentence */
    int64_t memory_bytes;    /* its limit, 0: none */
    int64_t used_bytes;      /* its highest use that is known, or -1 */
    bool cgroup_oom;         /* the kernel killed in its group for memory */
    bool lost_server;        /* its fork server died before it did */
} stk_ending;

/* Fills ok, failure, exit_status, signal and text. */
void stk_runner_classify(const stk_ending *ending, stk_outcome *ret_outcome);
const char *stk_runner_signal_name(int signal); /* "SIGKILL", "signal 77" */

/* --- is it still alive (runner_attempt.c): for whoever comes after a crash --- */

/* `<dir>/stderr.log` is locked (an open-file-description lock) while any process of the attempt has
 * the descriptor that it was started with: as its stderr, or as the copy that every task gets. */

/* Locks it by the descriptor that the task will get. STK_E_BUSY: a process of the attempt lives. */
int stk_runner_attempt_lock(const char *dir, int stderr_fd, stk_err *err);
bool stk_runner_attempt_is_live(const char *dir);
/* SIGKILL to everything that holds the lock, the sessions that these lead, their descendants, and
 * everything with STOKER_TASK_DIR=<dir> in its environment; waits until the lock is free. 0, or
 * STK_E_BUSY when something is left after `timeout_ms`. `run` is only for messages. */
int stk_runner_attempt_kill(const char *dir, const char *run, int timeout_ms);

/* --- what it uses (runner_watch.c) --- */

struct stk_accel;

/* One task under observation. The caller calls stk_watch_sample when `due_ms` has come. */
typedef struct stk_watch {
    pid_t sid;
    int64_t start_ms;  /* monotonic */
    int64_t due_ms;    /* next sample, monotonic */
    int64_t period_ms; /* 0: 100 ms, slower as the task gets older */
    int64_t
        memory_bytes; /* the watchdog's limit; 0: no watchdog (none asked, or a cgroup has it) */
    stk_proc_members members;
    int64_t members_ms;                    /* when they were looked up */
    int64_t rss_bytes, peak_bytes, cpu_us; /* as last seen; -1 unknown */
    double cpus;                           /* between the last two samples; -1 unknown */
    int64_t cpu_ms;                        /* when cpu_us was seen */
    int64_t pss_ms, pss_offset_bytes;      /* watchdog: last exact look, and RSS minus it */
    int64_t last_record_ms;
    int fd; /* samples.bin, -1 until the first sample */
    uint32_t n_devices;
    struct stk_watch_device *devices;
} stk_watch;

/* `devices` are indices into `accel`, n_devices 0 without. `accel` is kept. */
int stk_watch_init(stk_watch *watch, pid_t sid, int64_t now_ms, int64_t period_ms,
                   int64_t watchdog_bytes, struct stk_accel *accel, const uint32_t *devices,
                   uint32_t n_devices, stk_err *err);
/* Looks once, appends to <dir>/samples.bin, sets due_ms. Returns the memory used (bytes) when the
 * watchdog's limit is passed, else 0. */
int64_t stk_watch_sample(stk_watch *watch, const char *dir, int64_t now_ms);
/* Puts means and peaks of the devices into the outcome. */
void stk_watch_report(const stk_watch *watch, stk_outcome *outcome);
void stk_watch_done(stk_watch *watch);

#endif
