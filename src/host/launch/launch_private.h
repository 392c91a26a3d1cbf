/* Private to the launch room.
 *
 *   launch.c         the gang's life: start, wait, end, again
 *   launch_env.c     what a rank sees, its CPUs
 *   launch_port.c    the port where ranks meet
 *   launch_nodes.c   several nodes: who they are, one end of all
 *   launch_meet.c    … all or nothing
 *   launch_hosts.c   … that the leader starts itself
 *   launch_talk.c    … what they say to each other
 *   launch_net.c     … their connections
 *   launch_start.c   ranks by exec
 *   launch_line.c    how far each Python rank has come, gates where they wait for each other
 *   launch_server.c  ranks by a fork server
 *   launch_view.c    pipes → logs and the merged view
 *   launch_hang.c    the watchdog
 *   launch_devices.c which devices are which rank's
 *   launch_pulse.c   which collective each rank waits in
 *   launch_report.c  sentences, gang.json, result.json
 *   launch_task.c    task.json → config
 */
#ifndef STK_LAUNCH_PRIVATE_H
#define STK_LAUNCH_PRIVATE_H

#include <limits.h>
#include <sched.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/json.h"
#include "host/launch/launch.h"
#include "host/runner/runner_mask.h"
#include "sys/clock.h"
#include "sys/forkserver.h"
#include "sys/guard.h"
#include "sys/spawn.h"

enum { LAUNCH_INHERITED = 256 };
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

/* Gates of a Python step's ranks (python/stoker/_line.py): all ranks' scripts have ended; all
 * ranks' functions have returned; all ranks but 0 have ended. LINE_FAILED is what a rank says in
 * place of coming. */
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

typedef struct stk_gang {
    const stk_launch_config *config;
    stk_arena *arena;
    stk_guard *guard;
    int epoll, signals;
    /* Descriptors that we were handed, and hand on (leases, an attempt's lock); behind them the
     * line's. */
    int inherited[LAUNCH_INHERITED + LINE_FDS];
    uint32_t n_inherited;
    struct rlimit n_files;    /* as we were started with, and so the ranks */
    uint32_t n;               /* ranks of this attempt, on this node */
    uint32_t world, n_before; /* on all nodes; on those before this one */
    uint32_t n_live, restart;
    launch_port port;
    launch_rank *ranks; /* config->ranks of them, and one for a rank elsewhere that failed */
    struct launch_nodes *nodes; /* NULL: this one only */
    launch_sink sinks[2];
    end_cause ending;
    int number;         /* the signal that ends it */
    bool hurry;         /* it came twice */
    bool preempted;     /* it ends because it was told to, not because of a rank */
    int32_t first;      /* place of the rank that failed first; config->ranks: elsewhere; -1 */
    uint32_t n_others;  /* ranks that were alive then */
    int64_t noticed_us; /* after what ended it had happened it was noticed, at most; -1 unknown */
    int64_t silent_us;  /* so long nothing had been heard of the node that was lost */
    int schedstat;      /* how long we waited for a CPU; -1: the kernel doesn't say */
    int64_t awake_us;   /* mono: when we last began to look at what has happened */
    int64_t late_us;    /* what we look at now has happened so long ago, at most; -1 unknown */
    int64_t kill_ms;    /* when SIGKILL is due; -1 */
    stk_clock_anchor clock; /* its wall time is the beginning of the first attempt */
    uint64_t log_bytes;     /* read from all ranks */
    stk_wire wire;          /* to the fork server; -1: none */
    bool unfit;             /* it can't fork */
    stk_spawn_batch batch;  /* ranks that have yet to become their program; -1: none */
    launch_env env;         /* of this attempt */
    launch_line line;
    cpu_set_t *cpus;                          /* of each rank, or NULL */
    uint32_t devices[STK_LAUNCH_MAX_DEVICES]; /* those of config->seen that are used */
    uint32_t n_devices;
    launch_hang hang;
    char text[1024]; /* why this attempt failed */
    stk_buf past;    /* attempts that are over, as JSON members */
    stk_buf stacks;  /* where each rank stood at a hang */
} stk_gang;

int64_t stk_launch_now_ms(void);
int64_t stk_launch_now_us(void);
int stk_launch_watch(stk_gang *g, int fd, uint32_t events, launch_event kind, uint32_t i);
void stk_launch_unwatch(stk_gang *g, int fd);
/* A rank's number among all nodes' ranks. */
uint32_t stk_launch_number(const stk_gang *g, uint32_t rank);
/* Waits for what happens, at most until `until_ms` (mono; -1: for ever), and handles it. */
int stk_launch_turn(stk_gang *g, int64_t until_ms, stk_err *err);
/* Ends every rank that lives, here and on the other nodes. */
void stk_launch_end_all(stk_gang *g, end_cause cause, int number);
/* To every rank that lives: its process group, a stopped one too. */
void stk_launch_signal(stk_gang *g, int number);
/* Has the rank said how its function ended? Others than a Python step's needn't. */
bool stk_launch_has_result(const stk_gang *g, uint32_t rank);
/* A rank is over; `status` as of wait(2), -1 unknown. */
void stk_launch_ended(stk_gang *g, uint32_t rank, int status);
void stk_launch_say(stk_gang *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* --- launch_env.c --- */

int stk_launch_env_new(stk_gang *g, launch_env *ret_env, stk_err *err);
/* Sets what differs between ranks; strings live until the arena's end. */
int stk_launch_env_rank(stk_gang *g, launch_env *env, uint32_t rank, stk_err *err);
/* The CPUs of each rank; false: there are fewer than ranks, or none can be told: no binding. */
bool stk_launch_cpus(const stk_gang *g, cpu_set_t *ret_sets);

typedef struct cpu_place {
    int cpu, node, core;
} cpu_place;

/* Deals `places` out to ranks: those near a rank, or all (`near` NULL), in their order. False: a
 * rank would have none. */
bool stk_launch_split(const cpu_place *places, uint32_t n, const cpu_set_t *near, uint32_t n_ranks,
                      cpu_set_t *ret_sets);

/* --- launch_devices.c --- */

void stk_launch_devices_begin(stk_gang *g);
/* The next attempt has `n_ranks` only: not with devices of ranks that failed. */
void stk_launch_devices_leave_out(stk_gang *g, uint32_t n_ranks);
/* Variables that name the devices that are left, where some were left out. */
uint32_t stk_launch_devices_masks(stk_gang *g, const char *(*ret_pairs)[2], uint32_t n_max);
/* The CPUs near each rank's devices; false: not known of all. */
bool stk_launch_devices_near(const stk_gang *g, cpu_set_t *ret_near);

/* --- launch_port.c --- */

/* Holds a port of this host for rank 0; `wanted` 0: a free one. STK_E_BUSY names who has it. */
int stk_launch_port(int32_t wanted, launch_port *ret_port, stk_err *err);
void stk_launch_port_close(launch_port *port);
int stk_launch_port_taken(int port, stk_err *err); /* always STK_E_BUSY, and by whom */

/* --- launch_nodes.c, launch_meet.c; all but the first are for a gang of several nodes --- */

const char *stk_launch_nodes_address(const stk_gang *g); /* MASTER_ADDR */
int stk_launch_nodes_open(stk_gang *g, stk_err *err);
/* Before an attempt: all nodes are there, know each other, and reach rank 0's port; or an error, or
 * g->ending says why not. */
int stk_launch_nodes_meet(stk_gang *g, stk_err *err);
void stk_launch_nodes_event(stk_gang *g, launch_event kind, uint32_t i);
/* This node's ranks are being ended: so are the others'. */
void stk_launch_nodes_tell(stk_gang *g);
/* After an attempt: the leader has heard how it ended everywhere, a node has told. */
void stk_launch_nodes_finish(stk_gang *g, stk_err *err);
/* What the leader decided: again (true), or the end. */
bool stk_launch_nodes_verdict(stk_gang *g);
void stk_launch_nodes_again(stk_gang *g);
/* Nothing has moved here for `ms`: is it so on all nodes? A node tells its leader, and is told. */
bool stk_launch_nodes_still(stk_gang *g, int64_t ms);
/* Did every rank elsewhere leave well? */
bool stk_launch_nodes_clean(const stk_gang *g);
uint32_t stk_launch_nodes_first(const stk_gang *g); /* the number of a rank elsewhere that failed */
/* " on node 1 (10.0.0.2)", of the rank that failed first; "": here is the only node. */
void stk_launch_nodes_where(const stk_gang *g, char *text, size_t size);
/* gang.json's members of the other nodes, and the nodes themselves. */
void stk_launch_nodes_members(const stk_gang *g, stk_buf *out);
void stk_launch_nodes_summary(const stk_gang *g, stk_buf *out);
/* The leader tells `end` (`text`: it could not be started), a node takes the leader's. */
void stk_launch_nodes_close(stk_gang *g, stk_launch_end *end);
void stk_launch_nodes_free(stk_gang *g);

/* --- launch_start.c --- */

int stk_launch_start(stk_gang *g, stk_err *err);
/* All have become their program, or (err) one can't; else there is nothing to read yet. */
int stk_launch_start_finish(stk_gang *g, stk_err *err);
/* One rank, by exec. */
int stk_launch_start_rank(stk_gang *g, uint32_t rank, stk_err *err);
/* A rank runs: `pidfd` is ours now. */
int stk_launch_started(stk_gang *g, uint32_t rank, pid_t pid, int pidfd, stk_err *err);

/* --- launch_line.c --- */

/* Of this attempt; none of ranks that aren't a Python step's. */
int stk_launch_line_open(stk_gang *g, stk_err *err);
void stk_launch_line_close(stk_gang *g);
void stk_launch_line_read(stk_gang *g);
/* A rank or a node has ended: may rank 0 leave? */
void stk_launch_line_ended(stk_gang *g);
/* A node says that its ranks have come to a gate, or the leader that all have. */
void stk_launch_line_node(stk_gang *g, uint32_t i_peer, const stk_json *m);
/* Who said first that its function failed; -1: nobody. */
int32_t stk_launch_line_first(const stk_gang *g);
/* Before they are ended because of another rank: `rank-K/ended` says that it is no preemption. */
void stk_launch_line_tell_why(stk_gang *g);
void stk_launch_line_forget_why(stk_gang *g, uint32_t rank);

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
/* Stacks of all ranks, and g->text. */
void stk_launch_hang_tell(stk_gang *g);
void stk_launch_hang_end(stk_gang *g);

/* --- launch_pulse.c --- */

/* Reads what rank told last; `group` NULL: of the group that it waits in. True: it is new. */
bool stk_launch_pulse_read(stk_gang *g, uint32_t rank, const char *group);
/* Does the rank wait in a collective? What it told long ago counts for nothing: whoever holds
 * Python's lock (GIL) in compiled code can't tell any more. */
bool stk_launch_pulse_waits(const stk_gang *g, uint32_t rank);
/* Files of an earlier attempt. */
void stk_launch_pulse_forget(stk_gang *g, uint32_t rank);
/* Has each rank name what it waits in, and keep PyTorch's account of it; takes up to 3 s. */
void stk_launch_pulse_ask(stk_gang *g);
/* The rank that keeps the others waiting, by their counts; `why` goes after its name. -1: nobody.
 */
int32_t stk_launch_pulse_missing(stk_gang *g, char *why, size_t size);
/* "ranks 0, 2-5" */
void stk_launch_add_ranks(const stk_gang *g, const bool *in, stk_buf *out);
/* Where all stand: their Python stacks, alike ones once. */
void stk_launch_stacks(const stk_gang *g, stk_buf *out);

/* --- launch_report.c --- */

void stk_launch_add_member(const stk_gang *g, uint32_t rank, stk_buf *out);
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
