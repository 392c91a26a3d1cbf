/* Private to the launch room.
 *
 *   launch.c         events of a running gang
 *   launch_run.c     the gang's life: start, wait, end, again
 *   launch_env.c     a rank's environment and CPUs
 *   launch_port.c    the port where ranks meet
 *   launch_nodes.c   several nodes: their connections, ending together
 *   launch_nodes_end.c  … the end of an attempt on all nodes
 *   launch_join.c    … how a node joins
 *   launch_meet.c    … the meeting before an attempt
 *   launch_hosts.c   … nodes that the leader starts
 *   launch_talk.c    … messages
 *   launch_net.c     … sockets
 *   launch_start.c   ranks by exec
 *   launch_line.c    how far each Python rank has come, gates where they wait for each other
 *   launch_server.c  ranks by a fork server
 *   launch_view.c    pipes → logs and the merged view
 *   launch_live.c    … progress bars below it on a terminal
 *   launch_hang.c    the watchdog
 *   launch_devices.c which devices are which rank's
 *   launch_pulse.c   which collective each rank waits in
 *   launch_report.c  sentences, gang.json, result.json
 *   launch_errors.c  TORCHELASTIC_ERROR_FILE
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
    /* Inherited descriptors that we pass on to the ranks (leases, an attempt's lock), followed by
     * the line's. */
    int inherited[LAUNCH_INHERITED + LINE_FDS];
    uint32_t n_inherited;
    struct rlimit n_files;    /* the limit at our start, which the ranks get */
    uint32_t n;               /* ranks of this attempt, on this node */
    uint32_t me;              /* this node's number; STK_LAUNCH_ANY_NODE: not known yet */
    uint32_t world, n_before; /* ranks on all nodes; on the nodes before this one */
    uint32_t n_live, restart;
    uint32_t n_changes; /* restarts because nodes joined or left; they don't count as failures */
    launch_port port;
    launch_rank *ranks; /* config->ranks entries, and one for a failed rank of another node */
    struct launch_nodes *nodes; /* NULL: only this node */
    launch_sink sinks[2];
    launch_live live;
    end_cause ending;
    int number;        /* the signal that ends it */
    bool hurry;        /* the signal came twice */
    bool preempted;    /* it ends on request, not because of a rank */
    int32_t first;     /* index of the rank that failed first; config->ranks: on another node; -1 */
    uint32_t n_others; /* other ranks alive at that time */
    int64_t noticed_us;     /* upper bound of the delay before we noticed the cause of the end; -1
                               unknown */
    int64_t silent_us;      /* how long the lost node had been silent */
    int schedstat;          /* descriptor of our schedstat (the wait for CPUs); -1: unavailable */
    int64_t awake_us;       /* mono: when we last began to handle events */
    int64_t late_us;        /* the greatest possible age of these events; -1 unknown */
    int64_t kill_ms;        /* when SIGKILL is due; -1: never */
    stk_clock_anchor clock; /* its wall time is the start of the first attempt */
    uint64_t log_bytes;     /* read from all ranks */
    stk_wire wire;          /* to the fork server; -1: none */
    bool unfit;             /* it can't fork */
    stk_spawn_batch batch;  /* ranks that haven't executed their program yet; -1: none */
    launch_env env;         /* of this attempt */
    launch_line line;
    cpu_set_t *cpus;                          /* of each rank, or NULL */
    uint32_t devices[STK_LAUNCH_MAX_DEVICES]; /* those of config->seen that are used */
    uint32_t n_devices;
    launch_hang hang;
    char errors[PATH_MAX]; /* folder for the ranks' error files without config->dir; "": none */
    int errors_fd;         /* holds its lock; -1: none */
    char text[1024];       /* why this attempt failed */
    stk_buf past;          /* finished attempts, as JSON members */
    stk_buf stacks;        /* the ranks' stacks at a hang */
} stk_gang;

int64_t stk_launch_now_ms(void);
int64_t stk_launch_now_us(void);
int stk_launch_watch(stk_gang *g, int fd, uint32_t events, launch_event kind, uint32_t i);
void stk_launch_unwatch(stk_gang *g, int fd);
/* A rank's number among all nodes' ranks. */
uint32_t stk_launch_number(const stk_gang *g, uint32_t rank);
/* DIR/rank-NUMBER/NAME. */
const char *stk_launch_path(const stk_gang *g, uint32_t rank, const char *name, char ret[PATH_MAX]);
/* Waits for events, at most until `until_ms` (mono; -1: for ever), and handles them. */
int stk_launch_turn(stk_gang *g, int64_t until_ms, stk_err *err);
/* Ends all living ranks, here and on the other nodes. */
void stk_launch_end_all(stk_gang *g, end_cause cause, int number);
/* Sends the signal to the process group of every living rank, and continues stopped ones. */
void stk_launch_signal(stk_gang *g, int number);
/* Whether the rank has left a result; always true for ranks that aren't a Python step's. */
bool stk_launch_has_result(const stk_gang *g, uint32_t rank);
/* A rank has ended; `status` as from wait(2), -1 unknown. */
void stk_launch_ended(stk_gang *g, uint32_t rank, int status);
void stk_launch_say(stk_gang *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
