/* Fork servers of the local backend: started, given tasks, closed. */
#ifndef STK_BACKEND_LOCAL_SERVER_H
#define STK_BACKEND_LOCAL_SERVER_H

#include "host/backend/backend_local.h"

/* Takes `fd` over. */
int stk_local_server_new(local_backend *b, int fd, local_server **ret_server, stk_err *err);
/* Hands a prepared Python task to the server it belongs to, started if need be. `job` is NULL when
 * it was handed to another one before: its message is kept. */
int stk_local_server_submit(local_backend *b, local_task *task, const stk_job *job, stk_err *err);
void stk_local_server_drop_task(local_backend *b, local_task *task);
void stk_local_server_event(local_backend *b, local_server *server, uint32_t events);
pid_t stk_local_server_child(const local_server *server); /* its pid if it is our child, else 0 */
/* Ends one that doesn't answer any more; the end of its socket then tells the rest. */
void stk_local_server_kill(local_server *server);
void stk_local_server_close(local_backend *b, local_server *server);

#endif
