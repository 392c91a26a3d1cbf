/* http_many: many requests at once on one thread. How does an engine with one loop talk to a
 * cluster, watch it and follow logs, without threads? Connections are kept and used again.
 *
 *     stk_http_many_begin(m, &call, &id, &err);
 *     while (stk_http_many_n(m) > 0) {
 *         stk_http_many_turn(m, wake_fd, 1000, &err);
 *     }
 *
 * `done` and `on_body` are called within turn; they may begin and stop calls, not turn or close.
 */
#ifndef STK_HTTP_MANY_H
#define STK_HTTP_MANY_H

#include "net/http.h"

typedef struct stk_http_many stk_http_many;

typedef struct stk_http_call {
    /* As for stk_http_send, but for what is ignored: session, cancel_fd. Texts, headers, body and
     * `tls` are copied; `arg` and `read_arg` live until done. */
    stk_http_request request;
    size_t body_max; /* of an answer into `body`; 0: 64 MiB */
    /* Once, unless stopped before. rc and err as of stk_http_send; the answer is lent for the
     * call. NULL: nobody wants to know. */
    void (*done)(void *arg, int rc, stk_http_response *response, const stk_err *err);
    void *done_arg;
} stk_http_call;

/* `max_at_once` requests are under way at the same time (also those that stream for hours), the
 * rest wait for their turn, first come first served. STK_E_ENV: no libcurl on this host. */
int stk_http_many_open(uint32_t max_at_once, stk_http_many **ret, stk_err *err);
/* Nothing is sent before the next turn. ret_id (may be NULL) is never 0 and never used again. */
int stk_http_many_begin(stk_http_many *m, const stk_http_call *call, uint64_t *ret_id,
                        stk_err *err);
/* Its `done` and `on_body` aren't called any more. An id that is over is fine. */
void stk_http_many_stop(stk_http_many *m, uint64_t id);
/* Waits for progress, for `wake_fd` to be readable (-1: none) or timeout_ms (0: not at all), and
 * calls on_body and done of what came. May come back before, with nothing done. An error is ours
 * (no memory), never a request's. */
int stk_http_many_turn(stk_http_many *m, int wake_fd, int64_t timeout_ms, stk_err *err);
uint32_t stk_http_many_n(const stk_http_many *m); /* begun and neither done nor stopped */
void stk_http_many_close(stk_http_many *m);       /* stops all; NULL is fine */

#endif
