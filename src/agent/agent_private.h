/* Inside the agent room: one attempt on its way. */
#ifndef STK_AGENT_PRIVATE_H
#define STK_AGENT_PRIVATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "accel/accel.h"
#include "agent/agent.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/map.h"
#include "remote/remote_order.h"
#include "runner/runner_mask.h"
#include "share/share.h"
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
    AGENT_TOLD_MS = 5000   /* for so long it is tried once SIGTERM has come */
};

typedef struct agent_checkpoints {
    pthread_t thread;
    bool is_running;
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
    const char *key;
    stk_arena *arena;
    stk_share *share;
    stk_store *store;
    stk_remote_order order;
    stk_json task; /* task.json */
    uint32_t node; /* of order.nodes */
    int signal_fd;
    bool is_told;    /* SIGTERM came */
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
    agent_checkpoints checkpoints;
} agent;

int stk_agent_nomem(stk_err *err);
/* "<key>/<name>" */
const char *stk_agent_object(agent *a, const char *name);
/* True once SIGTERM (or SIGINT) has come. */
bool stk_agent_was_told(agent *a);
/* The work is done, and the share fails what is to be kept of it: nothing of the attempt is known
 * to anybody before it is there, so it is tried for long. Waits a little; false: not again. What
 * `since_ms` points to is 0 before the first time. */
bool stk_agent_try_again(agent *a, int64_t *since_ms, const stk_err *why);
/* The outcome of an attempt that never ran, or can't be used. */
void stk_agent_fail(agent *a, stk_failure failure, const char *text);

/* agent_setup.c: everything is there that the program needs. */
int stk_agent_setup(agent *a, stk_err *err);
/* Pulls (or pushes) artifacts, several at once. */
int stk_agent_move(agent *a, const char *const *digests, uint32_t n, bool push, stk_err *err);

/* agent_devices.c: counts them, takes them, writes a->granted. STK_E_RESOURCES: fewer than asked.
 */
int stk_agent_devices(agent *a, stk_err *err);

/* agent_task.c: from its start to its end; fills a->outcome. */
int stk_agent_task(agent *a, stk_err *err);

/* agent_checkpoints.c */
int stk_agent_checkpoints_bring(agent *a, stk_err *err);
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
