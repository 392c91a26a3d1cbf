/* The parts of a gang: ranks, their streams, their line, the watchdog's state. */
#ifndef STK_LAUNCH_PARTS_H
#define STK_LAUNCH_PARTS_H

#include <sched.h>
#include <sys/types.h>

#include "base/buf.h"
#include "host/launch/launch.h"
#include "host/runner/runner_mask.h"

/* Precedes the stack of a rank's child process in stack.txt. */
#define LAUNCH_CHILD "its process "

enum {
    WORDS_OF_ERROR = 240,
    LAUNCH_TAIL = 16 << 10,
    LAUNCH_LINE = 64 << 10,
    LAUNCH_PENDING = 256 << 10
};

/* epoll's data: the kind in the upper half, an index in the lower. */
typedef enum {
    LAUNCH_EV_SIGNAL,
    LAUNCH_EV_START, /* all ranks have executed their program, or one can't */
    LAUNCH_EV_EXIT,
    LAUNCH_EV_READ,
    LAUNCH_EV_WRITE,
    LAUNCH_EV_SERVER,
    LAUNCH_EV_LINE,
    LAUNCH_EV_LISTEN, /* a node connects */
    LAUNCH_EV_PEER,   /* a message from a node or the leader */
    LAUNCH_EV_HOST,   /* the process that the leader started for a node has ended */
    LAUNCH_EV_LEASH   /* our starter has ended */
} launch_event;

/* One of the two outputs of the merged view. */
typedef struct launch_sink {
    int fd;
    stk_buf pending;
    bool polled;  /* epoll can report when it is writable; a file always is */
    bool waiting; /* epoll is waiting for that */
    bool gone;    /* its reader has closed it */
} launch_sink;

/* stdout or stderr of a rank. */
typedef struct launch_stream {
    int fd;  /* our end of the pipe; -1: at end of file */
    int log; /* rank-K/….log, or -1 */
    bool paused;
    stk_mask_stream mask;
    stk_buf shown; /* the data of one read, with secrets masked */
    stk_buf line;  /* the beginning of an incomplete line */
} launch_stream;

typedef enum { RANK_NONE, RANK_STARTING, RANK_RUNNING, RANK_ENDED } rank_state;

/* A worker's report on the collective that it waits in. */
typedef struct launch_pulse {
    bool known, waits, asked; /* asked: it answered our request at a hang */
    int64_t issued;           /* collectives issued in `group` so far; -1 unknown */
    char group[16], op[160];
    unsigned char members[STK_LAUNCH_MAX_RANKS / 8]; /* bit set of its members; once asked */
    uint64_t seen;                                   /* the file's digest */
    int64_t beat_ns, beat_ms; /* the file's mtime, and when we first saw it (mono) */
} launch_pulse;

typedef struct launch_rank {
    rank_state state;
    pid_t pid;
    int pidfd;
    uint32_t slot;  /* the guardian's */
    int status;     /* as from wait(2); -1: unknown */
    bool by_server; /* a fork server reaps it */
    bool was_ended; /* we ended it because of another rank or a signal */
    bool failed;    /* it failed by itself */
    uint32_t fell;  /* n: it was the n-th to report that its function failed; 0: it did not */
    uint32_t came;  /* bit set of the gates that it has reached */
    int64_t start_ms, end_ms; /* by the gang's clock */
    int64_t born_us;          /* mono: earliest start; 0 unknown */
    int64_t died_us;          /* mono: earliest death; -1 unknown */
    launch_stream streams[2];
    char tail[LAUNCH_TAIL + 1]; /* the end of its stderr */
    size_t n_tail;
    char error[WORDS_OF_ERROR]; /* what it wrote to its error file, if stderr has no traceback */
    char why[512];              /* why it ended, if it has no status; else "" */
    launch_pulse pulse;
    bool silent, silent_in; /* at a hang: it didn't answer; its stack is in a collective */
} launch_rank;

typedef struct launch_env {
    const char **all; /* a rank's whole environment, NULL-terminated: `ours`, then ours inherited */
    const char **ours; /* the variables that we set, a part of `all` */
    uint32_t n_ours, n_fixed;
} launch_env;

/* Why a gang is being ended. */
typedef enum { END_NOT, END_FAILED, END_SIGNAL, END_HANG, END_LOST, END_START } end_cause;

/* A bound socket that doesn't listen, and a socket name that only one launcher can hold (claim). */
typedef struct launch_port {
    int fd, claim;
    int32_t number;
} launch_port;

/* Gates of a Python step's ranks (python/stoker/_worker/line.py): they open when all ranks' scripts
 * have ended; all ranks' functions have returned; all ranks but 0 have ended. A rank that fails
 * sends LINE_FAILED instead of a gate's number. */
enum { LINE_SCRIPT, LINE_RETURNED, LINE_ALONE, LINE_GATES, LINE_FAILED = 255 };
enum { LINE_FDS = 1 + LINE_GATES };

typedef struct launch_line {
    int from;          /* we read the ranks' records here; -1: no line */
    int fds[LINE_FDS]; /* the ranks' descriptors: the pipe to write to, then the gates */
    uint32_t open;     /* bit set of the open gates */
    uint32_t n_fell;
} launch_line;

#define LAUNCH_LINE_NONE ((launch_line){.from = -1, .fds = {-1, -1, -1, -1}})

/* The block of redrawn lines below the view. */
typedef struct launch_live {
    bool on, both; /* both: stdout is the same terminal, and its lines go through stderr's sink */
    bool erased;   /* since the block was drawn last */
    uint32_t n_drawn;         /* its lines on the screen */
    int64_t due_ms, drawn_ms; /* mono: when to draw it (INT64_MAX: nothing has changed) */
} launch_live;

typedef struct launch_hang {
    int64_t due_ms, looked_ms, still_ms;
    int64_t cpu_us[STK_LAUNCH_MAX_RANKS], io_bytes[STK_LAUNCH_MAX_RANKS];
    uint64_t log_bytes;
    struct stk_accel *accel;
    bool looked;  /* we tried to open the devices */
    bool crossed; /* ranks wait for each other in different groups; no rank is missing */
} launch_hang;

#endif
