/* runner: supervises one task. Samples its usage, checks its limits, and classifies how it ended.
 *
 * A library without an event loop: the caller polls descriptors and calls it when a time is due.
 * The local backend uses it.
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
#include "sys/clock.h"
#include "sys/proc.h"

/* The observed use of one device of the task. Texts live as long as the accel. */
typedef struct stk_outcome_device {
    const char *uuid, *model, *noun;
    int32_t index;                        /* the vendor's; -1 unknown */
    int32_t peak_temperature_c;           /* -1 unknown, as all below */
    double busy_percent_mean;             /* of the whole device, even if it is shared */
    double busy_s, throttled_s, energy_j; /* unknown for a shared device: not measured per task */
    int64_t peak_memory_bytes; /* of the task's processes if the driver reports it, else of the
                                  device */
    int64_t share_bytes;       /* 0: the task had the whole device */
    int64_t memory_bytes;      /* the device's total */
    int context; /* 1: a process of the task had a context, 0: none ever had, -1 unknown */
} stk_outcome_device;

/* Libraries that the task's processes mapped (tbl/libraries.def): bits of stk_outcome.libraries. */
typedef enum {
#define X(name, file, framework, can_use) STK_LIB_##name,
#include "tbl/libraries.def"
#undef X
    STK_LIB_N
} stk_library;

/* How an attempt ended, and what it used. `text` is one sentence without the step's name ("exit
 * status 3", "killed by signal 9 (SIGKILL)", "host OOM: used 1.3 GB of its 1 GB"). */
typedef struct stk_outcome {
    bool ok;
    stk_failure failure;
    int exit_status; /* -1: unknown, or killed by a signal */
    int signal;      /* 0: none */
    char text[512];
    int64_t wall_ms;
    int64_t cpu_us;                  /* -1 unknown */
    int64_t peak_memory_bytes;       /* -1 unknown */
    int64_t read_bytes, write_bytes; /* from and to storage, -1 unknown */
    stk_outcome_device devices[64];
    uint32_t n_devices;
    uint64_t libraries;       /* bits 1 << STK_LIB_…; 0 means none only if has_looked */
    bool has_looked;          /* the memory maps of its processes were read at least once */
    bool mask_changed;        /* a process changed its list of visible devices */
    bool is_hopeless;         /* a retry would fail the same way */
    const char *other_device; /* uuid of a device that it used without a lease, or NULL */
} stk_outcome;
/* Nothing was measured. */
#define STK_OUTCOME_UNKNOWN                                                                        \
    ((stk_outcome){.exit_status = -1,                                                              \
                   .cpu_us = -1,                                                                   \
                   .peak_memory_bytes = -1,                                                        \
                   .read_bytes = -1,                                                               \
                   .write_bytes = -1})

/* --- how a task ended (runner_classify.c, pure functions) --- */

/* The facts about a task's end. Unknown byte counts are -1. */
typedef struct stk_ending {
    int wait_status;         /* as from wait(2); -1: unknown, we could not reap it */
    stk_failure stopped_for; /* why we ended it: TIMEOUT, CANCELLED, HOST_OOM …; NONE: we did not */
    int64_t timeout_ms;      /* its time limit, for the sentence */
    int64_t notice_ms;       /* the warning before the timeout; 0: it got none */
    int64_t memory_bytes;    /* its limit, 0: none */
    int64_t used_bytes;      /* its highest known use, or -1 */
    bool cgroup_oom;         /* the kernel's OOM killer struck in its cgroup */
    const char *ended_by;    /* a sentence on who requested its end, or NULL */
    bool contained;          /* it ran in a container with a read-only project folder */
    bool lost_server;        /* its fork server died before the task */
    uint32_t n_devices;      /* that it had */
    const char *noun;        /* the word for one device ("GPU"), or NULL */
    const char *device; /* uuid of the device that GPU_SHARE, OTHER_DEVICE or an Xid concerns */
    int64_t share_bytes, device_bytes; /* GPU_SHARE: the granted and the used memory */
    bool device_full;                  /* one of its devices had almost no free memory */
    const char *device_trouble;        /* why one of its devices stopped answering, or NULL */
    int64_t shm_free_bytes, shm_bytes; /* /dev/shm: lowest free space, and size */
    const char *full; /* its folder if that is full (full_errno: ENOSPC, EDQUOT), or NULL */
    int full_errno;
    const char *stderr_tail; /* the end of its stderr, or NULL */
    int32_t xid;             /* reported for one of its devices while it ran; 0: none */
    const char *xid_text;    /* the driver's description, or NULL */
} stk_ending;

/* Fills ok, failure, exit_status, signal and text. */
void stk_runner_classify(const stk_ending *ending, stk_outcome *ret_outcome);
/* Makes an Xid of the attempt's device the cause of its failure, like stk_ending.xid, for a caller
 * that learns of the Xid later. An attempt that succeeded or that we ended stays unchanged. `text`:
 * the driver's description, or NULL. */
void stk_runner_blame_xid(int32_t xid, const char *text, const char *device, stk_outcome *outcome);
/* The cause of a failure by the program's output (tbl/symptoms.def); NONE: no symptom found. The
 * last symptom counts; *ret_line (may be NULL) is its line of *ret_len bytes. `with_devices`: the
 * task had devices; otherwise only symptoms of the host count. */
stk_failure stk_runner_symptom(const char *text, bool with_devices, const char **ret_line,
                               size_t *ret_len);
/* The remedy for a failure of this class, as the end of a sentence ("; ask for more …"), or "". */
const char *stk_runner_way_out(stk_failure failure);
const char *stk_runner_signal_name(int signal); /* "SIGKILL", "signal 77" */

/* --- liveness of an attempt (runner_attempt.c), for an engine that resumes after a crash --- */

/* Two open-file-description locks show that an attempt lives. `<dir>/task.json` is locked while a
 * process of the attempt holds the lock descriptor that every task inherits. `<dir>/stderr.log` is
 * locked while a process holds the stderr that the task started with, or while a scribe
 * (runner_scribe.h) writes there. */

/* Locks task.json through a read-only descriptor to pass to the task (*ret_fd), and the task's
 * stderr (stderr_fd -1: a scribe has locked it). STK_E_BUSY: a process of the attempt lives. */
int stk_runner_attempt_lock(const char *dir, int stderr_fd, int *ret_fd, stk_err *err);
bool stk_runner_attempt_is_live(const char *dir);
/* Sends SIGKILL to all lock holders, the sessions that they lead, their descendants, and all
 * processes with STOKER_TASK_DIR=<dir> in their environment; waits until the lock is free. 0, or
 * STK_E_BUSY if a process is left after `timeout_ms`. `run` is only for messages. */
int stk_runner_attempt_kill(const char *dir, const char *run, int timeout_ms);

/* --- what a task uses (runner_watch.c, runner_devices.c, runner_look.c) --- */

struct stk_accel;
struct stk_lease;

typedef struct stk_watch_config {
    const char *dir;         /* folder of samples.bin; NULL: no file. Borrowed */
    int64_t period_ms;       /* 0: 100 ms, growing with the task's age to 1 s */
    bool write_at_once;      /* the task reads its samples; else we write once a second */
    int64_t memory_bytes;    /* the watchdog's limit; 0: none (no limit, or a cgroup enforces it) */
    struct stk_accel *accel; /* borrowed; NULL: no devices */
    const stk_clock *clock;  /* gives the samples' start time. Borrowed; NULL: the real clock */
    const struct stk_lease *lease; /* the task's devices; NULL: none. Only used during init */
} stk_watch_config;

/* One observed task. The caller calls stk_watch_sample at `due_ms`. */
typedef struct stk_watch {
    stk_watch_config config;
    pid_t sid;
    int64_t start_ms; /* monotonic */
    int64_t due_ms;   /* next sample, monotonic */
    stk_proc_members members;
    int64_t members_ms, members_for_ms;    /* when the list was read, and how long it is valid */
    int64_t rss_bytes, peak_bytes, cpu_us; /* latest values; -1 unknown */
    int64_t read_bytes, write_bytes, io_ms;
    double cpus;                      /* between the last two samples; -1 unknown */
    int64_t cpu_ms;                   /* when cpu_us was read */
    int64_t pss_ms, pss_offset_bytes; /* watchdog: last PSS measurement, and RSS minus PSS */
    int64_t last_record_ms;
    int64_t shm_ms, shm_free_bytes,
        shm_bytes;      /* /dev/shm: lowest free space seen, and size; -1 unknown */
    bool is_followed;   /* `sid` is a container's first process */
    int64_t over_bytes; /* the use that passed the limit */
    uint32_t over_device;
    int fd; /* samples.bin, -1 until the first sample */
    int64_t written_ms;
    uint32_t n_pending; /* bytes of `pending`: records not written yet */
    char pending[4000];
    /* devices */
    uint32_t n_devices;
    struct stk_watch_device *devices;
    int64_t share_bytes;          /* of each; 0: whole */
    int64_t asked_ms, ask_for_ms; /* when the devices were sampled, and how long that is valid */
    int64_t look_ms;              /* when to look for libraries again */
    int64_t nodes_ms;             /* when to look at device nodes again (stk_watch_node_tells) */
    uint64_t libraries;
    bool has_looked, mask_changed, shares_unknown;
    bool has_news; /* device samples that aren't recorded yet */
    char *mask;    /* "CUDA_VISIBLE_DEVICES=…" as the task got it, or NULL */
    const char *other_device;
} stk_watch;

/* Call it before the task starts: it measures the idle devices. */
int stk_watch_init(stk_watch *watch, const stk_watch_config *config, stk_err *err);
/* The task runs in the session `sid`. */
void stk_watch_start(stk_watch *watch, pid_t sid, int64_t now_ms);
/* From now on watches `pid`, the first process of the task's container, and its descendants.
 * Forgets earlier measurements. */
void stk_watch_follow(stk_watch *watch, pid_t pid);
/* Takes a sample, appends it to samples.bin and sets due_ms. Returns why the task must be ended:
 * HOST_OOM (it exceeds the watchdog's limit), GPU_SHARE (it exceeds its share of over_device), else
 * NONE. over_bytes is what it used. */
stk_failure stk_watch_sample(stk_watch *watch, int64_t now_ms);
/* Looks for libraries and device nodes that the task's processes use. stk_watch_sample calls it now
 * and then; the caller calls it before it ends the task. */
void stk_watch_look(stk_watch *watch);
struct stk_device;
/* The accel's indices of the task's devices; returns how many. */
uint32_t stk_watch_devices(const stk_watch *watch, uint32_t *ret, uint32_t n_max);
const struct stk_device *stk_watch_device(const stk_watch *watch, uint32_t i);
/* Measures /dev/shm. stk_watch_sample calls it now and then; the caller calls it after a
 * failure. */
void stk_watch_look_at_shm(stk_watch *watch);
/* One of its devices, or its share of one, was almost full at the last sample. */
bool stk_watch_device_is_full(const stk_watch *watch);
/* Writes into `text` why one of its devices stopped answering; false: all answer. */
bool stk_watch_trouble(const stk_watch *watch, char *text, size_t size);
/* Writes the observed device use into the outcome and completes samples.bin. `now_ms`: the task's
 * end. */
void stk_watch_report(stk_watch *watch, int64_t now_ms, stk_outcome *outcome);
/* Writes the pending records to samples.bin. */
void stk_watch_flush(stk_watch *watch);
void stk_watch_done(stk_watch *watch);

#endif
