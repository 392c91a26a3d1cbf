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
#include "sys/clock.h"
#include "sys/proc.h"

/* What was seen of one device that the task was given. Texts live as long as the accel. */
typedef struct stk_outcome_device {
    const char *uuid, *model, *noun;
    int32_t index;                        /* the vendor's; -1 unknown */
    int32_t peak_temperature_c;           /* -1 unknown, as all below */
    double busy_percent_mean;             /* of the device, also where it is shared */
    double busy_s, throttled_s, energy_j; /* not of a shared device: what is whose can't be told */
    int64_t
        peak_memory_bytes; /* of the task's processes where the driver tells, else of the device */
    int64_t share_bytes;   /* 0: it was given whole */
    int64_t memory_bytes;  /* that it has */
    int context; /* 1: a process of the task had one on it, 0: none ever had, -1 unknown */
} stk_outcome_device;

/* Libraries that processes of the task had mapped (tbl/libraries.def): bits of `libraries`. */
typedef enum {
#define X(name, file, framework, can_use) STK_LIB_##name,
#include "tbl/libraries.def"
#undef X
    STK_LIB_N
} stk_library;

/* How an attempt ended, and what it used. Text is one true sentence without the step's name ("exit
 * status 3", "killed by signal 9 (SIGKILL)", "host OOM: used 1.3 GB of its 1 GB"). */
typedef struct stk_outcome {
    bool ok;
    stk_failure failure;
    int exit_status; /* -1: not known or by signal */
    int signal;      /* 0: none */
    char text[512];
    int64_t wall_ms;
    int64_t cpu_us;                  /* -1 unknown */
    int64_t peak_memory_bytes;       /* -1 unknown */
    int64_t read_bytes, write_bytes; /* from and to storage, -1 unknown */
    stk_outcome_device devices[64];
    uint32_t n_devices;
    uint64_t libraries;       /* bits 1 << STK_LIB_…; 0 with has_looked: none */
    bool has_looked;          /* its processes' memory maps were read at least once */
    bool mask_changed;        /* one of its processes has another list of visible devices */
    bool is_hopeless;         /* another attempt would meet the same */
    const char *other_device; /* uuid of a device that it used without being given it, or NULL */
} stk_outcome;
/* Nothing was measured. */
#define STK_OUTCOME_UNKNOWN                                                                        \
    ((stk_outcome){.exit_status = -1,                                                              \
                   .cpu_us = -1,                                                                   \
                   .peak_memory_bytes = -1,                                                        \
                   .read_bytes = -1,                                                               \
                   .write_bytes = -1})

/* --- how it ended (runner_classify.c, pure) --- */

/* What was seen of a task's end. Bytes are -1 where unknown. */
typedef struct stk_ending {
    int wait_status;         /* as of wait(2); -1: nobody could reap it */
    stk_failure stopped_for; /* NONE: we did not end it; else TIMEOUT, CANCELLED, HOST_OOM … */
    int64_t timeout_ms;      /* what it was given, for the sentence */
    int64_t notice_ms;       /* so long before that it was told; 0: it was not */
    int64_t memory_bytes;    /* its limit, 0: none */
    int64_t used_bytes;      /* its highest use that is known, or -1 */
    bool cgroup_oom;         /* the kernel killed in its group for memory */
    const char *ended_by;    /* who asked for its end, as a sentence, or NULL */
    bool contained;          /* it ran in a container, where the project is read-only */
    bool lost_server;        /* its fork server died before it did */
    uint32_t n_devices;      /* that it was given */
    const char *noun;        /* what one is called ("GPU"), or NULL */
    const char *device;      /* GPU_SHARE, OTHER_DEVICE, an Xid: the uuid of the device */
    int64_t share_bytes, device_bytes; /* GPU_SHARE: what it was given of it, and used */
    bool device_full;                  /* one of its devices had next to nothing left */
    const char *device_trouble;        /* why a device of its doesn't answer any more, or NULL */
    int64_t shm_free_bytes, shm_bytes; /* /dev/shm: the least that was left, and all */
    const char *full; /* its folder, where that has no room any more (full_errno: ENOSPC, EDQUOT),
                         or NULL */
    int full_errno;
    const char *stderr_tail; /* the end of what it wrote there, or NULL */
    int32_t xid;             /* reported for a device of its while it ran; 0: none */
    const char *xid_text;    /* the driver's words, or NULL */
} stk_ending;

/* Fills ok, failure, exit_status, signal and text. */
void stk_runner_classify(const stk_ending *ending, stk_outcome *ret_outcome);
/* The driver reported `xid` for a device of an attempt that failed (what stk_ending.xid does, for
 * who hears of it later): that is why it failed. One that succeeded, or that we ended, is left as
 * it is. `text`: the driver's words, or NULL. */
void stk_runner_blame_xid(int32_t xid, const char *text, const char *device, stk_outcome *outcome);
/* What a program's own words (tbl/symptoms.def) say about why it failed; NONE: nothing. The last
 * symptom counts; *ret_line (may be NULL) is its line, *ret_len bytes. `with_devices`: it was given
 * some; without any only those of the host count. */
stk_failure stk_runner_symptom(const char *text, bool with_devices, const char **ret_line,
                               size_t *ret_len);
/* What to do about a failure of this class: "; ask for more …" to end a sentence with, or "". */
const char *stk_runner_way_out(stk_failure failure);
const char *stk_runner_signal_name(int signal); /* "SIGKILL", "signal 77" */

/* --- is it still alive (runner_attempt.c): for whoever comes after a crash --- */

/* `<dir>/task.json` is locked (an open-file-description lock) while any process of the attempt has
 * the descriptor that every task gets; `<dir>/stderr.log` while one has what it was started with as
 * its stderr, or a scribe (runner_scribe.h) still writes there. Either tells that it lives. */

/* Locks task.json, by a read-only descriptor that is the task's from now on, and what will be its
 * stderr (-1: a scribe has locked it). STK_E_BUSY: a process of the attempt lives. */
int stk_runner_attempt_lock(const char *dir, int stderr_fd, int *ret_fd, stk_err *err);
bool stk_runner_attempt_is_live(const char *dir);
/* SIGKILL to everything that holds the lock, the sessions that these lead, their descendants, and
 * everything with STOKER_TASK_DIR=<dir> in its environment; waits until the lock is free. 0, or
 * STK_E_BUSY when something is left after `timeout_ms`. `run` is only for messages. */
int stk_runner_attempt_kill(const char *dir, const char *run, int timeout_ms);

/* --- what it uses (runner_watch.c, runner_devices.c, runner_look.c) --- */

struct stk_accel;
struct stk_lease;

typedef struct stk_watch_config {
    const char *dir;    /* samples.bin goes there; NULL: nowhere. Kept */
    int64_t period_ms;  /* 0: 100 ms, slower as the task gets older, up to 1 s */
    bool write_at_once; /* the task reads its samples itself; else they are written once a second */
    int64_t memory_bytes;    /* the watchdog's limit; 0: none (none asked, or a cgroup has it) */
    struct stk_accel *accel; /* kept; NULL: no devices */
    const stk_clock *clock;  /* whose wall time they begin at. Kept; NULL: the real one */
    const struct stk_lease *lease; /* what it was given; NULL: nothing. Not kept */
} stk_watch_config;

/* One task under observation. The caller calls stk_watch_sample when `due_ms` has come. */
typedef struct stk_watch {
    stk_watch_config config;
    pid_t sid;
    int64_t start_ms; /* monotonic */
    int64_t due_ms;   /* next sample, monotonic */
    stk_proc_members members;
    int64_t members_ms, members_for_ms;    /* when they were looked up, and for how long */
    int64_t rss_bytes, peak_bytes, cpu_us; /* as last seen; -1 unknown */
    int64_t read_bytes, write_bytes, io_ms;
    double cpus;                      /* between the last two samples; -1 unknown */
    int64_t cpu_ms;                   /* when cpu_us was seen */
    int64_t pss_ms, pss_offset_bytes; /* watchdog: last exact look, and RSS minus it */
    int64_t last_record_ms;
    int64_t shm_ms, shm_free_bytes,
        shm_bytes;      /* of /dev/shm, the least that was seen; -1 unknown */
    bool is_followed;   /* `sid` is a container's first process */
    int64_t over_bytes; /* what stk_watch_sample complained about */
    uint32_t over_device;
    int fd; /* samples.bin, -1 until the first sample */
    int64_t written_ms;
    uint32_t n_pending; /* bytes of records that are written with the next ones, once a second */
    char pending[4000];
    /* devices */
    uint32_t n_devices;
    struct stk_watch_device *devices;
    int64_t share_bytes;          /* of each; 0: whole */
    int64_t asked_ms, ask_for_ms; /* when the devices were asked, and how long that lasts */
    int64_t look_ms;              /* when to look at libraries again */
    int64_t nodes_ms;             /* and at nodes of devices, where only these tell */
    uint64_t libraries;
    bool has_looked, mask_changed, shares_unknown;
    bool has_news; /* of the devices, not yet recorded */
    char *mask;    /* "CUDA_VISIBLE_DEVICES=…" as it was given, or NULL */
    const char *other_device;
} stk_watch;

/* Before the task starts: what its devices are like without it is looked at here. */
int stk_watch_init(stk_watch *watch, const stk_watch_config *config, stk_err *err);
/* It runs: the session `sid`. */
void stk_watch_start(stk_watch *watch, pid_t sid, int64_t now_ms);
/* What is to be looked at is below `pid` instead: the first process of its container. What was seen
 * before is forgotten. */
void stk_watch_follow(stk_watch *watch, pid_t pid);
/* Looks once, appends to samples.bin, sets due_ms. What the task must be ended for: HOST_OOM (the
 * watchdog's limit is passed), GPU_SHARE (its share of over_device is); over_bytes is what it used.
 * Else NONE. */
stk_failure stk_watch_sample(stk_watch *watch, int64_t now_ms);
/* At what its processes have loaded and opened, now and then by stk_watch_sample; and before the
 * caller ends them. */
void stk_watch_look(stk_watch *watch);
struct stk_device;
/* The numbers of its devices in the accel; returns how many. */
uint32_t stk_watch_devices(const stk_watch *watch, uint32_t *ret, uint32_t n_max);
const struct stk_device *stk_watch_device(const stk_watch *watch, uint32_t i);
/* At /dev/shm: now and then by stk_watch_sample; and when a task failed. */
void stk_watch_look_at_shm(stk_watch *watch);
/* One of its devices was nearly full when last asked (or its share was). */
bool stk_watch_device_is_full(const stk_watch *watch);
/* Why one of its devices doesn't answer any more, into `text`; false: all do. */
bool stk_watch_trouble(const stk_watch *watch, char *text, size_t size);
/* What was seen of the devices, into the outcome; samples.bin is whole then. `now_ms`: the task's
 * end. */
void stk_watch_report(stk_watch *watch, int64_t now_ms, stk_outcome *outcome);
/* Writes what was kept back of samples.bin. */
void stk_watch_flush(stk_watch *watch);
void stk_watch_done(stk_watch *watch);

#endif
