/* launch: runs many processes of one program as one, on this host or several. It connects the
 * ranks, finds which one failed first and why, and leaves no process behind.
 *
 * A gang is N ranks. They start together, see the variables of torchrun's ranks (RANK, WORLD_SIZE,
 * MASTER_ADDR, MASTER_PORT …), and end together: the launcher names the first rank with an exit
 * status other than 0; the others get SIGTERM and, after `grace_ms`, SIGKILL. If restarts are left,
 * all ranks start again. A rank's output goes to its log files and, line by line with the prefix
 * "[K] ", to one view. If the launcher dies, its ranks die: each ends with its parent, and a
 * guardian (sys/guard.h) ends what they left. On several nodes, one launcher per node runs that
 * node's ranks; node 0's launcher leads (launch_nodes.h). This room knows nothing of pipeline
 * dialects.
 */
#ifndef STK_LAUNCH_H
#define STK_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/event.h"

enum { STK_LAUNCH_MAX_RANKS = 1024, STK_LAUNCH_MAX_DEVICES = 256 };
enum { STK_LAUNCH_OUT = 1, STK_LAUNCH_ERR = 2, STK_LAUNCH_BOTH = 3 }; /* of a rank's streams */

#define STK_LAUNCH_ANY_NODE UINT32_MAX

typedef struct stk_launch_device {
    const char *cpus; /* CPUs near it, as the kernel lists them, "0-15,32-47"; or NULL */
    const char *mask; /* its entry for CUDA_VISIBLE_DEVICES if that is unset; or NULL */
} stk_launch_device;

typedef struct stk_launch_config {
    const char *const *argv; /* what every rank executes; NULL-terminated */
    uint32_t ranks;          /* 1 … STK_LAUNCH_MAX_RANKS */
    uint32_t min_ranks;      /* a restart drops failed ranks, but keeps at least this many */
    uint32_t max_restarts;
    int32_t port;         /* rank 0's; 0: a free one, a new one at each restart */
    int64_t grace_ms;     /* between SIGTERM and SIGKILL */
    int64_t notice_ms;    /* the same if SIGTERM came from outside and this is longer */
    int64_t hang_ms;      /* end the gang after this time without progress; 0: no watchdog */
    const char *dir;      /* folder for rank-K/ and gang.json; NULL: no files */
    const char *run_id;   /* TORCHELASTIC_RUN_ID; the same on all nodes */
    uint32_t nodes;       /* nodes of the gang, each with `ranks`; 0, 1: this host only */
    uint32_t min_nodes;   /* the gang runs with `min_nodes` to `nodes` nodes: they join and leave
                             between attempts, which doesn't count as a restart; 0: with all */
    int64_t last_call_ms; /* how long the first meeting waits for more than `min_nodes` */
    uint32_t node;    /* this node's number; node 0 leads and has rank 0. STK_LAUNCH_ANY_NODE: the
                         host of `rdzv` leads, and numbers the others as they come */
    const char *rdzv; /* HOST[:PORT] of node 0 */
    int leads;        /* with STK_LAUNCH_ANY_NODE: 1: this node leads, 0: another one, -1: see
                         there */
    const char *local_addr; /* the address to connect from, and node 0's MASTER_ADDR; or NULL */
    const char *key;        /* secret shared by the nodes; "": none */
    int64_t join_ms;        /* how long nodes wait for each other */
    const char *const *node_argv; /* the leader runs this on each other node (sys/nodes.h); "" in
                                     front: this program; NULL: it starts none */
    uint32_t devices;             /* devices that each of these nodes leases first */
    bool leash;                   /* stdin is a pipe that closes when the leader ends */
    uint32_t split; /* a thread count in the environment that equals this is for all ranks together;
                       0: none */
    const stk_launch_device *seen; /* the devices that the ranks see, in the order of their mask */
    uint32_t n_seen;
    const char *role;  /* ROLE_NAME; NULL: default */
    bool virtual_rank; /* each rank sees one entry of CUDA_VISIBLE_DEVICES, and LOCAL_RANK is 0 */
    const char *signal_names; /* those below; NULL: the usual ones */
    const int *signals;       /* that end the gang, 0 ends them; NULL: the usual ones */
    /* For each of `ranks`, which streams go to logs and to the view: STK_LAUNCH_OUT | …_ERR. NULL:
     * both. */
    const unsigned char *logged, *shown;
    /* Lines of stdout and stderr with one of these texts are copied to dir/filtered_….log; NULL:
     * none. */
    const char *const *copied[2];
    bool no_prefix;              /* no "[K] " prefix in the view */
    bool no_bind;                /* ranks may use all CPUs of the launcher */
    bool is_task;                /* the engine's task: write a result.json if the gang fails */
    const struct stk_mask *mask; /* for logs and view (host/runner/runner_mask.h), or NULL */
    bool is_python;     /* ranks are Stoker's workers: rank-K/result.json, stacks at SIGUSR1 */
    int server_fd;      /* of a fork server that starts the ranks; -1: execute argv */
    int out_fd, err_fd; /* the view; not closed */
} stk_launch_config;

typedef struct stk_launch_end {
    int exit_status; /* 0; the first failing rank's status, or 128 + its signal; 128 + the signal
                        that we got */
    stk_failure failure;
    char text[1024]; /* one sentence, "" after success */
} stk_launch_end;

/* Runs the gang to its end. `summary` (may be NULL) gets gang.json's text. An error means that the
 * gang could not be started, and no rank runs: STK_E_BUSY (the port is taken), STK_E_SYS … */
int stk_launch_run(const stk_launch_config *config, stk_buf *summary, stk_launch_end *ret_end,
                   stk_err *err);

/* Whether HOST or HOST:PORT is this host. */
bool stk_launch_is_here(const char *host);

/* Fills `config` from a task's `task.json` (docs/formats/task-directory.md). Its texts live in
 * `arena`. */
int stk_launch_read_task(const char *path, stk_arena *arena, stk_launch_config *config,
                         stk_err *err);

#endif
