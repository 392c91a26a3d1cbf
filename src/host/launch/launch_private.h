/* Private to the launch room.
 *
 *   launch.c         what happens while it runs
 *   launch_run.c     the gang's life: start, wait, end, again
 *   launch_env.c     what a rank sees, its CPUs
 *   launch_port.c    the port where ranks meet
 *   launch_nodes.c   several nodes: who they are, one end of all
 *   launch_nodes_end.c  … how it ended everywhere
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

#include "base/arena.h"
#include "base/json.h"
#include "host/launch/launch_parts.h"
#include "sys/clock.h"
#include "sys/forkserver.h"
#include "sys/guard.h"
#include "sys/spawn.h"

enum { LAUNCH_INHERITED = 256 };

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
/* DIR/rank-NUMBER/NAME. */
const char *stk_launch_path(const stk_gang *g, uint32_t rank, const char *name, char ret[PATH_MAX]);
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

#endif
