/* Fork servers of the local backend: started, given tasks, closed. */
#ifndef STK_BACKEND_LOCAL_SERVER_H
#define STK_BACKEND_LOCAL_SERVER_H

#include "host/backend/backend_local.h"
#include "sys/forkserver.h"

struct local_server {
    local_ev ev;
    stk_wire wire;
    pid_t child; /* 0: not our child */
    bool ours;   /* a clean one, started here */
    bool hello;
    bool killed;    /* by us: its end needs no explanation */
    bool wants_out; /* epoll tells us when it can take more */
    int log;        /* ours: a memory file with its stderr; -1 */
    uint32_t slot;
    stk_arena *arena; /* of one message */
};

/* --- backend_local_server.c --- */

/* Takes `fd` over. */
int stk_local_server_new(local_backend *b, int fd, local_server **ret_server, stk_err *err);
/* A fresh interpreter of ours, as b->clean. */
int stk_local_server_start_clean(local_backend *b, stk_err *err);
/* It is gone, `why` in words: what it had running lives on as ours, the rest goes elsewhere. */
void stk_local_server_died(local_backend *b, local_server *server, const char *why);
/* Ends one that doesn't answer any more; the end of its socket then tells the rest. */
void stk_local_server_kill(local_server *server);
void stk_local_server_close(local_backend *b, local_server *server);

/* --- backend_local_talk.c --- */

/* Hands a prepared Python task to the server it belongs to, started if need be. `job` is NULL when
 * it was handed to another one before: its message is kept. */
int stk_local_server_submit(local_backend *b, local_task *task, const stk_job *job, stk_err *err);
void stk_local_server_event(local_backend *b, local_server *server, uint32_t events);

#endif
