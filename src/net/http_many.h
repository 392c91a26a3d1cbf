/* http_many: many requests at once on one thread, for an engine whose one loop talks to a cluster,
 * watches it and follows logs. It keeps and reuses connections.
 *
 *     stk_http_many_begin(m, &call, &id, &err);
 *     while (stk_http_many_n(m) > 0) {
 *         stk_http_many_turn(m, wake_fd, 1000, &err);
 *     }
 *
 * turn calls `done` and `on_body`. They may begin and stop calls, but not call turn or close.
 */
#ifndef STK_HTTP_MANY_H
#define STK_HTTP_MANY_H

#include "net/http.h"

typedef struct stk_http_many stk_http_many;

typedef struct stk_http_call {
    /* As for stk_http_send; session and cancel_fd are ignored. begin copies texts, headers, body
     * and `tls`; `arg` and `read_arg` live until done. */
    stk_http_request request;
    size_t body_max; /* limit of the response's body; 0: 64 MiB */
    /* Called once, unless the call was stopped. rc and err are as of stk_http_send; the response
     * lives until `done` returns. May be NULL. */
    void (*done)(void *arg, int rc, stk_http_response *response, const stk_err *err);
    void *done_arg;
} stk_http_call;

/* At most `max_at_once` requests are under way, including those that stream for hours. The others
 * wait, first come first served. STK_E_ENV: no libcurl on this host. */
int stk_http_many_open(uint32_t max_at_once, stk_http_many **ret, stk_err *err);
/* The next turn sends it. ret_id (may be NULL) is never 0 and never used again. */
int stk_http_many_begin(stk_http_many *m, const stk_http_call *call, uint64_t *ret_id,
                        stk_err *err);
/* From now on, its `done` and `on_body` aren't called. Ignores an id that is over. */
void stk_http_many_stop(stk_http_many *m, uint64_t id);
/* Waits for progress, until `wake_fd` is readable (-1: none) or for timeout_ms (0: doesn't wait),
 * and calls on_body and done. May return early. Its errors are our own (no memory), never a
 * request's. */
int stk_http_many_turn(stk_http_many *m, int wake_fd, int64_t timeout_ms, stk_err *err);
uint32_t stk_http_many_n(const stk_http_many *m); /* calls neither done nor stopped */
void stk_http_many_close(stk_http_many *m);       /* stops all calls; NULL is fine */

#endif
