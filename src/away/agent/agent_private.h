/* Inside the agent room: one attempt on its way. */
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
#include "host/runner/runner_mask.h"
#include "store/store.h"

enum {
    AGENT_MOVERS = 8,            /* threads that move artifacts */
    AGENT_INLINE = 64 << 10,     /* files up to here are in end.json itself … */
    AGENT_INLINE_ALL = 16 << 20, /* … as long as all of them are no more than this */
    AGENT_LIST_BYTES = 4 << 20,
    AGENT_END_BYTES = 200 << 20,
    AGENT_FILES = 20000,
    AGENT_GONE = 256,      /* checkpoints that vanish between two looks */
    AGENT_AGAIN_MS = 2000, /* between tries of a share that fails */
    AGENT_TOLD_MS = 5000   /* for so long what is under way goes on once SIGTERM has come */
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
        int64_t attempt; /* that made it */
        int64_t changed_ns;
        bool is_there;
    } * items; /* in the order of their dates when they were first seen */
    uint32_t n, cap;
    const char *gone[AGENT_GONE]; /* digests to be removed in the share */
    uint32_t n_gone;
    bool owes_push; /* something couldn't be looked at or saved, which may pass */
    bool owes_list; /* the share didn't take the last one */
} agent_checkpoints;

typedef struct agent {
    const char *key, *url;
    stk_arena *arena;
    stk_share *share;
    stk_store *store;
    stk_remote_order order;
    stk_json task;          /* task.json */
    uint32_t node;          /* of order.nodes */
    int signal_fd;          /* read by the first thread only */
    int told_fd, stop_fd;   /* readable once they are set: */
    atomic_uint n_told;     /* how often SIGTERM or SIGINT came */
    atomic_bool is_stopped; /* what the other threads do is to end at once */
    int64_t told_ms; /* when a share that fails was first tried after it, monotonic; 0: never */
    int64_t started_ms, ended_ms;
    stk_accel *accel;
    stk_lease lease;
    const char *granted;  /* JSON */
    const char **secrets; /* their values, NULL-terminated */
    uint32_t n_secrets;
    stk_mask *mask; /* of these, or NULL */
    int64_t n_oom;  /* of this container before the program began; -1 unknown */
    stk_outcome outcome;
    stk_failure class_of_outputs; /* of the error that keeping them gave */
    agent_checkpoints checkpoints;
} agent;

/* What takes long (files, the share) is done by another thread, so that signals are heard. Once
 * told to end it goes on for … */
typedef enum agent_patience {
    AGENT_NOT_AT_ALL, /* nothing is lost */
    AGENT_SHORTLY,    /* AGENT_TOLD_MS, or until the second signal */
    AGENT_TO_THE_END  /* … until the second signal */
} agent_patience;
/* Returns what `work` returns; STK_E_CANCELLED: it was ended. */
int stk_agent_aside(agent *a, agent_patience patience, int (*work)(agent *a, stk_err *err),
                    stk_err *err);
/* Until done_fd can be read; the threads are told to stop as above. */
void stk_agent_await(agent *a, int done_fd, agent_patience patience);
/* Once all threads that were stopped are done: the share may be used again. */
int stk_agent_go_on(agent *a, stk_err *err);

/* "<key>/<name>" */
const char *stk_agent_object(agent *a, const char *name);
/* True once SIGTERM (or SIGINT) has come. The first thread hears of it, any one asks. */
bool stk_agent_hear(agent *a);
bool stk_agent_was_told(const agent *a);
/* The work is done, and the share fails what is to be kept of it: nothing of the attempt is known
 * to anybody before it is there, so it is tried for long. Waits a little; false: not again. What
 * `since_ms` points to is 0 before the first time. */
bool stk_agent_try_again(agent *a, int64_t *since_ms, const stk_err *why);
/* The outcome of an attempt that never ran, or can't be used. */
void stk_agent_fail(agent *a, stk_failure failure, const char *text);

/* agent_setup.c: everything is there that the program needs. */
int stk_agent_setup(agent *a, stk_err *err);
/* Moves artifacts by stk_share_pull or stk_share_push, several at once. */
typedef int agent_move(stk_share *share, stk_store *store, const char *digest, stk_err *err);
int stk_agent_move(agent *a, const char *const *digests, uint32_t n, agent_move *move,
                   stk_err *err);

/* agent_devices.c: counts them, takes them, writes a->granted. STK_E_RESOURCES: fewer than asked.
 */
int stk_agent_devices(agent *a, stk_err *err);

/* agent_task.c: from its start to its end; fills a->outcome. */
int stk_agent_task(agent *a, stk_err *err);

/* agent_checkpoints.c */
int stk_agent_checkpoints_fetch(agent *a, stk_err *err);
void stk_agent_checkpoints_begin(agent *a);
void stk_agent_checkpoints_end(agent *a);

/* agent_outputs.c: into the store and the share, result.json says so. *ret_class: of an error. */
int stk_agent_outputs(agent *a, stk_failure *ret_class, stk_err *err);
/* agent_save.c: end.json. */
int stk_agent_save(agent *a, stk_err *err);

/* Sets STOKER_GANG_RDZV by what the engine says, where the driver could name a port alone
 * (STOKER_GANG_PORT). */
void stk_agent_meet(void);

#endif
