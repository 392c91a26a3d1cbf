/* Fork servers of the local backend: their start, tasks and end. */
#ifndef STK_BACKEND_LOCAL_SERVER_H
#define STK_BACKEND_LOCAL_SERVER_H

#include "host/backend/backend_local.h"
#include "sys/forkserver.h"

struct local_server {
    local_ev ev;
    stk_wire wire;
    pid_t child; /* 0: not our child */
    bool ours;   /* a clean server that we started */
    bool hello;
    bool killed;    /* we killed it: its end needs no explanation */
    bool wants_out; /* epoll reports when its socket is writable */
    int log;        /* a clean server's stderr in a memory file; else -1 */
    uint32_t slot;
    stk_arena *arena; /* for parsing one message */
};

/* --- backend_local_server.c --- */

/* Takes ownership of `fd`. */
int stk_local_server_new(local_backend *b, int fd, local_server **ret_server, stk_err *err);
/* Starts a fresh interpreter as b->clean. */
int stk_local_server_start_clean(local_backend *b, stk_err *err);
/* The server has died, for the reason `why`: we adopt its running tasks, and submit the others
 * elsewhere. */
void stk_local_server_died(local_backend *b, local_server *server, const char *why);
/* Kills a server that stopped answering; the end of its socket triggers the rest. */
void stk_local_server_kill(local_server *server);
void stk_local_server_close(local_backend *b, local_server *server);

/* --- backend_local_talk.c --- */

/* Sends a prepared Python task to its server, which is started if need be. `job` is NULL when the
 * task goes to a second server: its message was kept. */
int stk_local_server_submit(local_backend *b, local_task *task, const stk_job *job, stk_err *err);
void stk_local_server_event(local_backend *b, local_server *server, uint32_t events);

#endif
