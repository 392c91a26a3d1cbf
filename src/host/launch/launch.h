/* launch: many processes of one program, on this host or several, as one. How do ranks find each
 * other, which of them failed first and why, and is none left behind?
 *
 * A gang is N ranks. They start together, see what torchrun's ranks see (RANK, WORLD_SIZE,
 * MASTER_ADDR, MASTER_PORT …), and end together: the first that ends other than by 0 is named, the
 * others get SIGTERM and, after `grace_ms`, SIGKILL. With restarts left all start again. What they
 * write goes to files of their own and, line by line with "[K] " before it, to one view. Whatever
 * ends the launcher ends its ranks: each dies with its parent, and a guardian (sys/guard.h) takes
 * what they left. On several nodes one launcher runs on each, for its own ranks; node 0's leads
 * (launch_nodes.h). Either pipeline dialect is none of this room's business.
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

typedef struct stk_launch_device {
    const char *cpus; /* near it, as the kernel lists them, "0-15,32-47"; or NULL */
    const char *mask; /* its word for CUDA_VISIBLE_DEVICES where that is unset; or NULL */
} stk_launch_device;

typedef struct stk_launch_config {
    const char *const *argv; /* what every rank executes; NULL-terminated */
    uint32_t ranks;          /* 1 … STK_LAUNCH_MAX_RANKS */
    uint32_t min_ranks;      /* a restart leaves out ranks that failed, down to so many */
    uint32_t max_restarts;
    int32_t port;       /* rank 0's; 0: a free one, another at each restart */
    int64_t grace_ms;   /* between SIGTERM and SIGKILL */
    int64_t notice_ms;  /* the same where SIGTERM came from outside, if that is longer */
    int64_t hang_ms;    /* no progress for so long ends the gang; 0: no watchdog */
    const char *dir;    /* rank-K/ and gang.json are made in it; NULL: no files */
    const char *run_id; /* TORCHELASTIC_RUN_ID; the same on all nodes */
    uint32_t nodes;     /* that the gang runs on, each with `ranks`; 0, 1: this host only */
    uint32_t node;      /* this one's number; 0 leads, and has rank 0 */
    const char *rdzv;   /* HOST[:PORT] at which the nodes reach node 0 */
    const char *key;    /* what the nodes share and nobody else knows; "": none */
    int64_t join_ms;    /* how long nodes wait for each other */
    const char *const *node_argv; /* the leader starts the other nodes itself (sys/nodes.h), each as
                                     this, "" in front for this program; else NULL */
    uint32_t devices;             /* that each of them leases there first */
    bool leash;                   /* stdin is a pipe whose end is the leader's */
    uint32_t split; /* thread counts in the environment that are this were meant for all ranks
                       together; 0: none */
    const stk_launch_device *seen; /* that the ranks see, in the order of their mask */
    uint32_t n_seen;
    bool no_prefix;              /* the view without "[K] " */
    bool no_bind;                /* ranks may use every CPU that the launcher may */
    bool is_task;                /* of the engine: a result.json for it when the gang fails */
    const struct stk_mask *mask; /* hidden in logs and view (host/runner/runner_mask.h), or NULL */
    bool is_python;     /* ranks are Stoker's workers: rank-K/result.json, stacks at SIGUSR1 */
    int server_fd;      /* of a fork server that makes the ranks; -1: argv is executed */
    int out_fd, err_fd; /* the view; not closed */
} stk_launch_config;

typedef struct stk_launch_end {
    int exit_status; /* 0; the first failing rank's, 128 + its signal; 128 + the signal we got */
    stk_failure failure;
    char text[1024]; /* one sentence, "" after success */
} stk_launch_end;

/* Runs the gang to its end. `summary` (may be NULL) gets gang.json's text. An error means that it
 * could not be started (nothing of it runs then): STK_E_BUSY (the port is taken), STK_E_SYS … */
int stk_launch_run(const stk_launch_config *config, stk_buf *summary, stk_launch_end *ret_end,
                   stk_err *err);

/* The gang of a task: reads `task.json` (docs/formats/task-directory.md) over `config`, whose texts
 * then live in `arena`. */
int stk_launch_read_task(const char *path, stk_arena *arena, stk_launch_config *config,
                         stk_err *err);

#endif
