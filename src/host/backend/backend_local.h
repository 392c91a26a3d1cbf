/* Private to the local backend: its parts and what they share.
 *
 *   backend_local.c         the table of operations, the event loop, timers, reports
 *   backend_local_task.c    one task: started as a command, watched over, stopped
 *   backend_local_end.c     how it ends, and what it left behind
 *   backend_local_server.c  starts and ends fork servers
 *   backend_local_talk.c    speaks docs/formats/server-protocol.md with them
 *   backend_local_devices.c hides the devices that a task did not get
 *   backend_local_logs.c    the log files; a scribe writes them for a task with secrets
 *   backend_local_contained.c  measures tasks in containers
 */
#ifndef STK_BACKEND_LOCAL_H
#define STK_BACKEND_LOCAL_H

#include <stddef.h>
#include <sys/resource.h>

#include "base/buf.h"
#include "host/backend/backend.h"
#include "host/runner/runner.h"
#include "host/runner/runner_scribe.h"
#include "sys/cgroup.h"
#include "sys/guard.h"

enum {
    LOCAL_MAX_FDS = 2 * STK_LEASE_DEVICES + 3,
    LOCAL_NO_SLOT = UINT32_MAX,
    LOCAL_TERM_AGAIN_MS = 20,
    LOCAL_LEFTOVER_MS = 200 /* how long we wait for a task's leftover processes to end */
};

/* The first member of every struct that epoll's data points to. */
typedef enum { LOCAL_EV_TASK, LOCAL_EV_SERVER, LOCAL_EV_SCRIBE } local_ev;

typedef struct local_server local_server;

typedef enum {
    LOCAL_QUEUED, /* waits for its fork server */
    LOCAL_SENT,   /* sent to the server, which hasn't replied "started" */
    LOCAL_RUNNING,
    LOCAL_WRITING, /* the task has ended, its scribe hasn't */
    LOCAL_DONE     /* reported; freed at the end of this turn */
} local_state;

struct local_task;

/* A task's scribe; epoll reports its end. */
typedef struct local_scribe {
    local_ev ev;
    struct local_task *task;
    stk_scribe *scribe; /* NULL: the task writes its logs itself */
    uint64_t progress;
    int64_t progress_ms;
    uint32_t n_renewed;
} local_scribe;

/* How the task ended, kept while its scribe writes the rest. */
typedef struct local_end {
    int wait_status;
    int64_t cpu_us, maxrss_bytes, at_ms;
} local_end;

typedef struct local_task {
    local_ev ev;
    local_state state;
    uint32_t id, attempt;
    uint32_t serial; /* identifies the task in messages; the next attempt reuses exec's id */
    bool direct;     /* our child, which we reap; else its fork server does */
    bool lost_server;
    bool hook;
    bool gang;      /* its process is a launcher */
    bool contained; /* its process is `stoker contain` */
    bool followed;  /* … whose container's process is known and watched */
    char *dir;
    local_server *server;
    stk_buf message; /* to its server, kept until the task has started */
    size_t n_sent;
    int fds[LOCAL_MAX_FDS]; /* stdout, stderr, the lock, leases: ours until the task has started */
    uint32_t n_fds;
    pid_t pid;
    int pidfd;
    uint32_t slot; /* in the guardian's table */
    int64_t start_ms, timeout_ms, grace_ms;
    int64_t notice_ms; /* before the timeout; 0: none */
    bool noticed;      /* it was warned that its time is nearly up */
    int64_t memory_bytes, used_bytes;
    stk_failure stopped_for;
    int64_t term_ms; /* when to send SIGTERM again; -1: never */
    int64_t kill_ms; /* when SIGKILL is due; -1: never */
    int64_t gone_ms; /* when we saw its end, while its status is unknown; -1 */
    stk_cgroup group;
    stk_watch watch;
    local_scribe logs;
    local_end end;
    char ended_by[320]; /* the container engine's report on who ended it */
    char failed[512];   /* the server's message if the start failed */
} local_task;

/* --- the backend --- */

typedef struct local_reports {
    stk_report *items;
    size_t first, n, cap;
} local_reports;

typedef struct local_backend {
    stk_backend base;
    char *run, *python, *main_file;
    stk_accel *accel;
    const stk_clock *clock;
    int64_t sample_ms;
    int64_t server_ms; /* how long a server may take to start a task */
    int epoll;
    stk_guard *guard;
    stk_cgroups *groups;
    local_server *given; /* the front's server; NULL: none, or it died */
    local_server *clean; /* our clean server, or NULL */
    bool noted_unfit, noted_watchdog, noted_shares;
    stk_policy policy;
    int64_t outside_ms; /* when to look for tasks that use devices without a lease */
    local_task **tasks;
    uint32_t n_tasks, cap_tasks;
    local_task **done; /* freed after this turn */
    uint32_t n_done;
    uint32_t next_serial;
    struct rlimit n_files; /* the limit at our start, which tasks get */
    int64_t own_peak_kb;   /* our own peak memory, as last read */
    int64_t due_ms;        /* of the earliest timer; INT64_MAX: none */
    local_reports reports;
    pid_t *known; /* scratch: our children */
    uint32_t cap_known;
    const char **env; /* scratch: the environment of a command */
    uint32_t cap_env;
    char thread_env[6][40];
} local_backend;

int64_t stk_local_now_ms(void);
void stk_local_due(local_backend *b, int64_t at_ms); /* a timer at this time or before */
/* Reserves reports for the end of every task and one more: reporting an end must not allocate. */
int stk_local_reserve(local_backend *b);
/* NULL: out of memory, except for STK_REPORT_ENDED of a task. */
stk_report *stk_local_report(local_backend *b, const local_task *task, stk_report_kind kind);
void stk_local_note(local_backend *b, const local_task *task, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int stk_local_watch_fd(local_backend *b, int fd, uint32_t events, void *data, bool known);
void stk_local_unwatch_fd(local_backend *b, int *fd); /* also closes it; -1 is fine */

/* --- backend_local_task.c --- */

int stk_local_task_new(local_backend *b, const stk_job *job, local_task **ret_task, stk_err *err);
/* Sets up the task's logs, lock and cgroup. Takes ownership of the lease's descriptors. */
int stk_local_task_prepare(local_backend *b, local_task *task, stk_job *job, stk_err *err);
/* Starts argv (a command, or a fresh interpreter) as our child. */
int stk_local_task_exec(local_backend *b, local_task *task, const stk_job *job,
                        const char *const *argv, stk_err *err);
/* The task runs: starts to watch it. */
int stk_local_task_started(local_backend *b, local_task *task, pid_t pid, int pidfd, stk_err *err);
void stk_local_task_stop(local_backend *b, local_task *task, int64_t grace_ms, stk_failure why);
void stk_local_task_timers(local_backend *b, local_task *task, int64_t now_ms);

/* --- backend_local_end.c --- */

/* Whether the process has ended, by its pidfd; its status may not be fetched yet. */
bool stk_local_task_has_ended(const local_task *task);
/* Checks our child: if it has ended, reaps it and handles its end. */
void stk_local_task_reap(local_backend *b, local_task *task);
/* wait_status -1: unknown. cpu_us, maxrss_bytes: totals of the process and its children, -1
 * unknown. */
void stk_local_task_ended(local_backend *b, local_task *task, int wait_status, int64_t cpu_us,
                          int64_t maxrss_bytes);
/* The task never ran. */
void stk_local_task_not_started(local_backend *b, local_task *task, stk_failure failure,
                                const char *text);
void stk_local_task_close_fds(local_task *task);
void stk_local_task_free(local_backend *b, local_task *task);
/* Ends processes that finished tasks left behind; as orphans they have become our children. */
void stk_local_end_orphans(local_backend *b, bool all);

/* Reports the task's end, once its logs are complete. */
void stk_local_task_tell_end(local_backend *b, local_task *task);

/* --- backend_local_contained.c --- */

/* Switches the watch to the container's processes once the container has started. */
void stk_local_contained_look(local_task *task);
/* Adds the container's usage, and whether it was killed for memory. */
void stk_local_contained_ended(local_task *task, stk_ending *ending, stk_outcome *outcome);

/* --- backend_local_devices.c --- */

/* The device numbers of the nodes that a task with this lease must not open; returns how many. */
uint32_t stk_local_closed_nodes(const local_backend *b, const stk_lease *given, dev_t *ret,
                                uint32_t n_max);
/* Reports tasks that use a device without a lease, and ends them under policy strict. Checks only
 * now and then. */
void stk_local_look_outside(local_backend *b, int64_t now_ms);
void stk_local_look_outside_soon(local_backend *b, int64_t now_ms); /* a task has started */

#endif
