/* Private to agent: one attempt on its way. */
#ifndef STK_AGENT_PRIVATE_H
#define STK_AGENT_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "away/agent/agent.h"
#include "away/remote/remote_order.h"
#include "away/share/share.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/map.h"
#include "host/accel/accel.h"
#include "host/backend/backend.h"
#include "host/runner/runner_mask.h"
#include "store/store.h"

enum {
    AGENT_MOVERS = 8,            /* threads that move artifacts */
    AGENT_INLINE = 64 << 10,     /* files up to this size are inside end.json … */
    AGENT_INLINE_ALL = 16 << 20, /* … while their total stays below this */
    AGENT_LIST_BYTES = 4 << 20,
    AGENT_END_BYTES = 200 << 20,
    AGENT_FILES = 20000,
    AGENT_GONE = 256,      /* checkpoints that vanish between two scans */
    AGENT_AGAIN_MS = 2000, /* between two tries of a failing share */
    AGENT_TOLD_MS = 5000   /* how long work goes on after SIGTERM */
};

typedef struct agent_checkpoints {
    pthread_t thread;
    bool is_running;
    int done_fd; /* readable once the thread is done */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool is_over;
    stk_arena *arena;
    struct agent_checkpoint {
        const char *name, *digest;
        int64_t attempt; /* the attempt that made it */
        int64_t changed_ns;
        bool is_there;
    } * items; /* by date, as of the first sighting */
    uint32_t n, cap;
    const char *gone[AGENT_GONE]; /* digests to remove from the share */
    uint32_t n_gone;
    bool owes_push; /* a read or save failed in a way that may pass */
    bool owes_list; /* the share didn't take the last list */
} agent_checkpoints;

typedef struct agent_live {
    pthread_t thread;
    bool is_running, has_sent;
    int over_fd;      /* readable: it is to end */
    stk_share *share; /* its own, which waits for nothing */
} agent_live;

typedef struct agent {
    const char *key, *url;
    stk_arena *arena;
    stk_share *share;
    stk_store *store;
    stk_remote_order order;
    stk_json task;          /* task.json */
    uint32_t node;          /* index into order.nodes */
    int signal_fd;          /* read by the first thread only */
    int told_fd, stop_fd;   /* readable once the field below is set: */
    atomic_uint n_told;     /* how often SIGTERM or SIGINT came */
    atomic_bool is_stopped; /* the other threads must end at once */
    int64_t told_ms; /* first retry of a failing share after SIGTERM, monotonic; 0: none yet */
    int64_t started_ms, ended_ms;
    stk_accel *accel;
    stk_lease lease;
    const char *granted;  /* JSON */
    const char **secrets; /* the secrets' values, NULL-terminated */
    uint32_t n_secrets;
    stk_mask *mask; /* hides the secrets; or NULL */
    int64_t n_oom;  /* OOM kills in this container before the program began; -1: unknown */
    stk_outcome outcome;
    int64_t host_milli, host_bytes; /* CPUs and memory of this container or job; 0: not read */
    bool is_shared;                 /* others use its host as well */
    bool is_busy;                   /* … and hold the devices that it needs */
    struct agent_limits {
        int64_t memory_bytes, cpu_milli; /* 0: none */
        const uint32_t *cpus;
        uint32_t n_cpus;
    } limits;                     /* on a host that it shares; elsewhere the container's */
    stk_failure class_of_outputs; /* of the error while saving outputs */
    agent_checkpoints checkpoints;
    agent_live live;
    bool is_of_pilot; /* the pilot's: its share, store, devices, signals and files of the project */
} agent;

/* Slow work (files, the share) runs in another thread, so that the first one can handle signals.
 * This says how long it goes on after SIGTERM: */
typedef enum agent_patience {
    AGENT_NOT_AT_ALL, /* not at all: nothing is lost */
    AGENT_SHORTLY,    /* for AGENT_TOLD_MS, or until the second signal */
    AGENT_TO_THE_END  /* until the second signal */
} agent_patience;
/* Returns what `work` returns; STK_E_CANCELLED: a signal stopped it. */
int stk_agent_aside(agent *a, agent_patience patience, int (*work)(agent *a, stk_err *err),
                    stk_err *err);
/* Waits until done_fd is readable; stops the threads as `patience` says. */
void stk_agent_await(agent *a, int done_fd, agent_patience patience);
/* Makes the share usable again once all stopped threads have ended. */
int stk_agent_go_on(agent *a, stk_err *err);

/* "<key>/<name>" */
const char *stk_agent_object(agent *a, const char *name);
/* True once SIGTERM (or SIGINT) has come. Only the first thread may call stk_agent_hear, which
 * reads the signal; any thread may call stk_agent_was_told. */
bool stk_agent_hear(agent *a);
bool stk_agent_was_told(const agent *a);
/* Waits before another try of a share that doesn't take the results. Only the share tells others
 * about the attempt, so the agent tries for long. Returns false if it should give up. *since_ms is
 * 0 before the first call. */
bool stk_agent_try_again(agent *a, int64_t *since_ms, const stk_err *why);
/* Sets the outcome of an attempt that never ran, or whose results are unusable. */
void stk_agent_fail(agent *a, stk_failure failure, const char *text);

/* Reads the order, and claims the attempt. STK_E_BUSY: another one has. */
int stk_agent_claim(agent *a, stk_err *err);
/* end.json, without secrets; tries for long. */
int stk_agent_save_end(agent *a, stk_err *err);
stk_failure stk_agent_class_of(int code);

/* agent_pilot.c: runs the attempts that its orders name until there are none for a while. */
int stk_agent_pilot(agent *a, stk_err *err);

/* agent_setup.c: provides everything that the program needs. */
int stk_agent_setup(agent *a, stk_err *err);
/* Lays out the project's code, which the store has. */
int stk_agent_lay_out_code(agent *a, stk_err *err);
/* Moves artifacts with stk_share_pull or stk_share_push, several in parallel. */
typedef int agent_move(stk_share *share, stk_store *store, const char *digest, stk_err *err);
int stk_agent_move(agent *a, const char *const *digests, uint32_t n, agent_move *move,
                   stk_err *err);

/* agent_devices.c: counts and leases the devices, writes a->granted. STK_E_RESOURCES: fewer than
 * requested. */
int stk_agent_devices(agent *a, stk_err *err);
/* Sets host_milli and host_bytes, once. */
void stk_agent_read_host(agent *a);

/* agent_shared.c: on a host that others use as well (STOKER_AGENT_SHARED), leases the job's devices
 * there and waits for the gang's other nodes. STK_E_BUSY, STK_E_RESOURCES: a->is_busy. */
int stk_agent_share_host(agent *a, stk_err *err);

/* agent_task.c: writes task.json and names what the backend is to start; takes the lease. */
int stk_agent_make_job(agent *a, stk_job *ret, stk_err *err);
/* Runs the program to its end; fills a->outcome. */
int stk_agent_task(agent *a, stk_err *err);

/* agent_checkpoints.c */
int stk_agent_checkpoints_fetch(agent *a, stk_err *err);
void stk_agent_checkpoints_begin(agent *a);
void stk_agent_checkpoints_end(agent *a);

/* agent_live.c: sends what the program measures, while it runs. */
void stk_agent_live_begin(agent *a);
void stk_agent_live_end(agent *a);

/* agent_outputs.c: moves outputs to the store and the share, and names them in result.json.
 * *ret_class: the class of an error. */
int stk_agent_outputs(agent *a, stk_failure *ret_class, stk_err *err);
/* agent_save.c: writes end.json. */
int stk_agent_save(agent *a, stk_err *err);

/* agent_refs.c: jobs of `stoker export slurm-script`, which run without an engine. */
bool stk_agent_has_refs(void);
/* Puts what earlier steps made into the order. */
int stk_agent_refs(agent *a, stk_err *err);
/* Copies the outputs to results/STEP/OUTPUT in the share. */
int stk_agent_results(agent *a, stk_err *err);

/* Sets STOKER_GANG_RDZV from the environment of the job engine if the driver could only name a port
 * (STOKER_GANG_PORT). */
void stk_agent_meet(void);

/* agent_nest.c: if STOKER_NEST_AT names a folder of the job's own, makes a view of the file system
 * in which the folders of STOKER_NEST_EMPTY are the job's and empty, those of STOKER_NEST_KEEP the
 * node's, and <folder>/stoker is at /stoker, and starts the agent again inside. Returns 0 if there
 * is no such variable; an error if the node doesn't let it. */
int stk_agent_nest(const char *url, const char *key, stk_err *err);

#endif
