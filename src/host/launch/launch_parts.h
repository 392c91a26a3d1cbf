/* What a gang is made of: ranks, their streams, their line, the watchdog's state. */
#ifndef STK_LAUNCH_PARTS_H
#define STK_LAUNCH_PARTS_H

#include <sched.h>
#include <sys/types.h>

#include "base/buf.h"
#include "host/launch/launch.h"
#include "host/runner/runner_mask.h"

/* Before the stack of a process that a rank has started, in stack.txt. */
#define LAUNCH_CHILD "its process "

enum { LAUNCH_TAIL = 16 << 10, LAUNCH_LINE = 64 << 10, LAUNCH_PENDING = 256 << 10 };

/* What epoll's data says: kind in the upper half, index in the lower. */
typedef enum {
    LAUNCH_EV_SIGNAL,
    LAUNCH_EV_START, /* all ranks have become their program, or one can't */
    LAUNCH_EV_EXIT,
    LAUNCH_EV_READ,
    LAUNCH_EV_WRITE,
    LAUNCH_EV_SERVER,
    LAUNCH_EV_LINE,
    LAUNCH_EV_LISTEN, /* a node comes */
    LAUNCH_EV_PEER,   /* a node, or the leader, says something */
    LAUNCH_EV_HOST,   /* what the leader started for a node is over */
    LAUNCH_EV_LEASH   /* who started us is gone */
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
    stk_mask_stream mask;
    stk_buf shown; /* of a read, without secrets */
    stk_buf line;  /* what has come of a line that isn't whole */
} launch_stream;

typedef enum { RANK_NONE, RANK_STARTING, RANK_RUNNING, RANK_ENDED } rank_state;

/* What a worker tells of the collective that it waits in. */
typedef struct launch_pulse {
    bool known, waits, asked; /* asked: it has answered at a hang */
    int64_t issued;           /* collectives of `group` until now; -1 unknown */
    char group[16], op[160];
    unsigned char members[STK_LAUNCH_MAX_RANKS / 8]; /* of that group, a bit each; once asked */
    uint64_t seen;                                   /* the file's digest */
    int64_t beat_ns, beat_ms; /* the file's time, and since when (mono) it is that */
} launch_pulse;

typedef struct launch_rank {
    rank_state state;
    pid_t pid;
    int pidfd;
    uint32_t slot;            /* the guardian's */
    int status;               /* as of wait(2); -1: nobody knows */
    bool by_server;           /* a fork server reaps it */
    bool was_ended;           /* by us, because of another rank or a signal */
    bool failed;              /* by itself */
    uint32_t fell;            /* it said that its function failed, as the n-th from 1; 0: no */
    uint32_t came;            /* to which gates, a bit each */
    int64_t start_ms, end_ms; /* by the gang's clock */
    int64_t born_us;          /* mono: not before; 0 unknown */
    int64_t died_us;          /* mono: not before; -1 unknown */
    launch_stream streams[2];
    char tail[LAUNCH_TAIL + 1]; /* the last of its stderr */
    size_t n_tail;
    char why[512]; /* it ended with no status: in words, or "" */
    launch_pulse pulse;
    bool silent, silent_in; /* at a hang it didn't answer; its stack is in a collective */
} launch_rank;

typedef struct launch_env {
    const char **all;  /* a rank's whole environment, NULL-terminated: `ours` and what we have */
    const char **ours; /* what is set for it, within `all` */
    uint32_t n_ours, n_fixed;
} launch_env;

/* Why a gang is being ended. */
typedef enum { END_NOT, END_FAILED, END_SIGNAL, END_HANG, END_LOST, END_START } end_cause;

/* Bound, not listened on; and a name that only one launcher can have. */
typedef struct launch_port {
    int fd, claim;
    int32_t number;
} launch_port;

/* Gates of a Python step's ranks (python/stoker/_worker/line.py): all ranks' scripts have ended;
 * all ranks' functions have returned; all ranks but 0 have ended. LINE_FAILED is what a rank says
 * in place of coming. */
enum { LINE_SCRIPT, LINE_RETURNED, LINE_ALONE, LINE_GATES, LINE_FAILED = 255 };
enum { LINE_FDS = 1 + LINE_GATES };

typedef struct launch_line {
    int from;          /* what ranks say; -1: there is no line */
    int fds[LINE_FDS]; /* the ranks': where they say it, then the gates */
    uint32_t open;     /* which gates are, a bit each */
    uint32_t n_fell;
} launch_line;

#define LAUNCH_LINE_NONE ((launch_line){.from = -1, .fds = {-1, -1, -1, -1}})

typedef struct launch_hang {
    int64_t due_ms, looked_ms, still_ms;
    int64_t cpu_us[STK_LAUNCH_MAX_RANKS], io_bytes[STK_LAUNCH_MAX_RANKS];
    uint64_t log_bytes;
    struct stk_accel *accel;
    bool looked;  /* for devices */
    bool crossed; /* ranks wait for each other in different groups: none is missing */
} launch_hang;

#endif
