/* Private to the launch room.
 *
 *   launch.c         the gang's life: start, wait, end, again
 *   launch_env.c     what a rank sees, its CPUs, the port
 *   launch_start.c   ranks by exec
 * launch_server.c  ranks by a fork server
 *   launch_view.c    pipes → logs and the merged view
 *   launch_hang.c    the watchdog
 *   launch_report.c  sentences, gang.json, result.json
 *   launch_task.c    task.json → config
 */
#ifndef STK_LAUNCH_PRIVATE_H
#define STK_LAUNCH_PRIVATE_H

#include <limits.h>
#include <sched.h>
#include <sys/types.h>

#include "base/arena.h"
#include "launch/launch.h"
#include "sys/forkserver.h"
#include "sys/guard.h"

enum { LAUNCH_TAIL = 16 << 10, LAUNCH_LINE = 64 << 10, LAUNCH_PENDING = 256 << 10 };

/* What epoll's data says: kind in the upper half, index in the lower. */
typedef enum {
    LAUNCH_EV_SIGNAL,
    LAUNCH_EV_EXIT,
    LAUNCH_EV_READ,
    LAUNCH_EV_WRITE,
    LAUNCH_EV_SERVER
} launch_event;

/* One of the two places that the merged view goes to. */
typedef struct launch_sink {
    int fd;
    stk_buf pending;
    bool polled;  /* epoll can tell when it takes more; a file always does */
    bool waiting; /* … and is asked to */
    bool gone;    /* nobody reads it any more */
} launch_sink;

/* stdout or stderr of a rank. */
typedef struct launch_stream {
    int fd;  /* our end of the pipe; -1: at its end */
    int log; /* rank-K/….log, or -1 */
    bool paused;
    stk_buf line; /* what has come of a line that isn't whole */
} launch_stream;

typedef enum { RANK_NONE, RANK_STARTING, RANK_RUNNING, RANK_ENDED } rank_state;

typedef struct launch_rank {
    rank_state state;
    pid_t pid;
    int pidfd;
    uint32_t slot;            /* the guardian's */
    int status;               /* as of wait(2); -1: nobody knows */
    bool by_server;           /* a fork server reaps it */
    bool was_ended;           /* by us, because of another rank or a signal */
    bool failed;              /* by itself */
    int64_t start_ms, end_ms; /* wall clock */
    launch_stream streams[2];
    char tail[LAUNCH_TAIL + 1]; /* the last of its stderr */
    size_t n_tail;
    char why[512]; /* it ended with no status: in words, or "" */
} launch_rank;

typedef struct launch_env {
    const char **all;  /* a rank's whole environment, NULL-terminated: `ours` and what we have */
    const char **ours; /* what is set for it, within `all` */
    uint32_t n_ours, n_fixed;
} launch_env;

/* Why a gang is being ended. */
typedef enum { END_NOT, END_FAILED, END_SIGNAL, END_HANG } end_cause;

typedef struct launch_hang {
    int64_t due_ms, since_ms;
    int64_t cpu_us[STK_LAUNCH_MAX_RANKS], io_bytes;
    uint64_t log_bytes;
    struct stk_accel *accel;
    bool looked; /* for devices */
} launch_hang;

typedef struct stk_gang {
    const stk_launch_config *config;
    stk_arena *arena;
    stk_guard *guard;
    int epoll, signals, port_fd;
    int inherited[256]; /* descriptors that we were handed, and hand on: leases, an attempt's lock
                         */
    uint32_t n_inherited;
    uint32_t n; /* ranks of this attempt */
    uint32_t n_live, restart;
    int32_t port;
    launch_rank *ranks; /* config->ranks of them */
    launch_sink sinks[2];
    end_cause ending;
    int number;         /* the signal that ends it */
    int32_t first;      /* rank that failed first; -1 */
    uint32_t n_others;  /* ranks that were alive then */
    int64_t kill_ms;    /* when SIGKILL is due; -1 */
    int64_t start_ms;   /* wall clock, of the first attempt */
    uint64_t log_bytes; /* read from all ranks */
    stk_wire wire;      /* to the fork server; -1: none */
    bool unfit;         /* it can't fork */
    launch_env env;     /* of this attempt */
    cpu_set_t *cpus;    /* of each rank, or NULL */
    launch_hang hang;
    char text[1024]; /* why this attempt failed */
    stk_buf past;    /* attempts that are over, as JSON members */
} stk_gang;

int64_t stk_launch_now_ms(void);
int stk_launch_watch(stk_gang *g, int fd, uint32_t events, launch_event kind, uint32_t i);
void stk_launch_unwatch(stk_gang *g, int fd);
/* To every rank that lives: its process group, a stopped one too. */
void stk_launch_signal(stk_gang *g, int number);
/* A rank is over; `status` as of wait(2), -1 unknown. */
void stk_launch_ended(stk_gang *g, uint32_t rank, int status);
void stk_launch_say(stk_gang *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* --- launch_env.c --- */

int stk_launch_env_new(stk_gang *g, launch_env *ret_env, stk_err *err);
/* Sets what differs between ranks; strings live until the arena's end. */
int stk_launch_env_rank(stk_gang *g, launch_env *env, uint32_t rank, stk_err *err);
/* The CPUs of each rank; false: there are fewer than ranks, or none can be told: no binding. */
bool stk_launch_cpus(uint32_t n_ranks, cpu_set_t *ret_sets);
/* Holds a port of this host for rank 0: bound, not listened on. */
int stk_launch_port(int32_t wanted, int *ret_fd, int32_t *ret_port, stk_err *err);

/* --- launch_start.c --- */

int stk_launch_start(stk_gang *g, stk_err *err);
/* One rank, by exec. */
int stk_launch_start_rank(stk_gang *g, uint32_t rank, stk_err *err);
/* A rank runs: `pidfd` is ours now. */
int stk_launch_started(stk_gang *g, uint32_t rank, pid_t pid, int pidfd, stk_err *err);

/* --- launch_server.c --- */

int stk_launch_server_open(stk_gang *g, stk_err *err);
void stk_launch_server_close(stk_gang *g);
int stk_launch_server_start(stk_gang *g, launch_env *env, const cpu_set_t *cpus, uint32_t rank,
                            stk_err *err);
void stk_launch_server_read(stk_gang *g);
/* Ranks that it hasn't started by now: without it they never run. */
void stk_launch_server_give_up(stk_gang *g);

/* --- launch_view.c --- */

int stk_launch_view_open(stk_gang *g, stk_err *err);
void stk_launch_view_close(stk_gang *g);
/* Pipes and logs of a rank; the other ends go to the rank. */
int stk_launch_streams_open(stk_gang *g, uint32_t rank, int ret_theirs[2], stk_err *err);
void stk_launch_stream_read(stk_gang *g, uint32_t i_stream);
void stk_launch_sink_write(stk_gang *g, uint32_t i_sink);
/* A line of the launcher's own, into the view of stderr. */
void stk_launch_view_line(stk_gang *g, const char *text, size_t n);
/* What is still in the pipes of a rank that ended, then closes them. */
void stk_launch_streams_drain(stk_gang *g, uint32_t rank);
/* Waits until the view is written, at most `timeout_ms` without progress. */
void stk_launch_view_flush(stk_gang *g, int timeout_ms);

/* --- launch_hang.c --- */

/* When to look next (mono ms), INT64_MAX: never. */
void stk_launch_hang_begin(stk_gang *g);
/* True: nothing has moved for config->hang_ms; g->text says so, stacks are written. */
bool stk_launch_hang_look(stk_gang *g, int64_t now_ms);
void stk_launch_hang_end(stk_gang *g);

/* --- launch_report.c --- */

/* g->text for the rank that failed first. */
void stk_launch_blame(stk_gang *g);
/* The traceback in `text`, or NULL; *ret_last: its last line ("ValueError: boom"). */
const char *stk_launch_traceback(const char *text, size_t *ret_len, const char **ret_last,
                                 size_t *ret_last_len);
/* Into g->past, when an attempt is over. */
void stk_launch_remember(stk_gang *g);
void stk_launch_summary(const stk_gang *g, const stk_launch_end *end, stk_buf *out);
int stk_launch_result(const stk_gang *g, const stk_launch_end *end, stk_err *err);

#endif
