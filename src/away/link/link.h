/* link: our own program on another machine, reached by the user's `ssh`. The near end starts ssh,
 * which starts `stoker far` there (brought by the same connection, if the machine doesn't have this
 * build); then requests and answers go through that one connection, many at a time.
 *
 * Host keys, ProxyJump, users, ports and keys are those of the user's ssh and ~/.ssh/config. ssh
 * never asks here (BatchMode), and where its configuration turns the check of host keys off, an
 * unknown key is accepted once and a changed one refused (accept-new).
 *
 * All functions are thread-safe. A connection that breaks is made again at the next request; a
 * request whose answer is lost isn't repeated here, because only its caller knows whether that is
 * harmless. What crosses the connection: docs/formats/link.md. */
#ifndef STK_LINK_H
#define STK_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

enum {
    STK_LINK_BODY_MAX = 1 << 20, /* bytes of one message's body */
    STK_LINK_HEAD_MAX = 4 << 20  /* … of its JSON */
};

/* --- the near end --- */

typedef struct stk_link stk_link;

/* How to get the archive of this program (as `stoker carry` makes it; a file that stays) and its
 * SHA-256 in hex. Called at the first contact with a machine. Set once, before any link is opened,
 * by the program that has one (run_carry.h); without it links fail with STK_E_ENV. */
typedef int (*stk_link_program)(stk_arena *arena, const char **ret_tar, const char **ret_digest,
                                stk_err *err);
void stk_link_set_program(stk_link_program program);

/* `host`: what ssh takes as its destination: "gpu1", "ann@gpu1", "ssh://ann@gpu1:2222". Callers in
 * one process share the connection of a host. Makes no request. STK_E_USAGE: not a host's name
 * (empty, begins with '-', has blanks or control characters). */
int stk_link_open(const char *host, stk_link **ret, stk_err *err);
void stk_link_close(stk_link *link); /* NULL is fine; the last one ends ssh */
const char *stk_link_host(const stk_link *link);

typedef struct stk_link_ask {
    const char *head; /* a JSON object with "op" */
    const void *body; /* at most STK_LINK_BODY_MAX bytes */
    size_t n;
    int cancel_fd;      /* readable: give up (STK_E_CANCELLED); -1: none */
    int64_t timeout_ms; /* for the answer, without making the connection; 0: 60 s */
    int64_t limit_ms;   /* for all of it, the making of the connection too; 0: none */
} stk_link_ask;

/* Sends a request and waits for its answer. *ret_head (may be NULL) is in `arena`; the answer's
 * body is appended to `ret_body` (NULL: it is dropped). An error of the far end comes back as it
 * was there: its code, sys, text, hint. STK_E_UNTRUSTED: the host key is unknown or has changed.
 * STK_E_ENV with `sys`: EACCES: it doesn't let us in; ENXIO: there is no such host; ENOEXEC: this
 * program can't be started there; ENOTCONN: it can't be reached, and didn't get the request;
 * ECONNRESET, ETIMEDOUT: the answer is lost. */
int stk_link_call(stk_link *link, const stk_link_ask *ask, stk_arena *arena, stk_json *ret_head,
                  stk_buf *ret_body, stk_err *err);
/* Is it an error of the connection that may pass? */
bool stk_link_may_pass(const stk_err *err);
/* Counts up whenever the connection is made anew; 0: never yet. */
uint64_t stk_link_round(const stk_link *link);

/* --- the far end --- */

/* Answers one request. `ret` is inside the answer's JSON object: put members. An error goes back to
 * the caller. Several threads call handlers at the same time. */
typedef int (*stk_link_handler)(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                                stk_buf *ret_body, stk_err *err);
typedef struct stk_link_op {
    const char *name;
    stk_link_handler handle;
} stk_link_op;

/* Answers requests from `in_fd` until it ends or says nothing for a quarter of an hour: the near
 * end asks for a sign of life while it waits, and connects again when it has a request. Returns
 * when the last handler has; STK_E_CANCELLED: one hasn't within some seconds, and still runs: the
 * process has to end at once. `ops`: tables that each end with a NULL name; a NULL ends the list of
 * tables. One a process. */
int stk_link_serve(int in_fd, int out_fd, const stk_link_op *const *ops, stk_err *err);
/* For handlers that wait: readable once the near end has gone; -1: none is served. */
int stk_link_end_fd(void);

#endif
