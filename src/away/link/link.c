/* The near end, as callers see it: links by host, requests that wait for their answers. */
#include "away/link/link.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/param.h>
#include <unistd.h>

#include "away/link/link_private.h"
#include "base/text.h"
#include "sys/clock.h"
#include "sys/file.h"

static struct {
    pthread_mutex_t lock;
    stk_link *first;
} open_links = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- open and close --- */

static const char *wrong_with_host(const char *host)
{
    if (*host == '\0') {
        return "it is empty";
    }
    if (*host == '-') {
        return "it begins with '-'";
    }
    for (; *host != '\0'; host++) {
        if ((unsigned char)*host <= ' ' || *host == 0x7f) {
            return "it has a blank or a control character";
        }
    }
    return NULL;
}

static void free_link(stk_link *link)
{
    if (link != NULL) {
        stk_file_close(&link->wake_fd);
        stk_file_close(&link->stop_fd);
        (void)pthread_mutex_destroy(&link->lock);
        free(link->host);
        free(link);
    }
}

static stk_link *new_link(const char *host)
{
    stk_link *link = calloc(1, sizeof *link);
    if (link == NULL) {
        return NULL;
    }
    (void)pthread_mutex_init(&link->lock, NULL);
    link->outs_end = &link->outs;
    link->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    link->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    link->host = strdup(host);
    if (link->host == NULL || link->wake_fd < 0 || link->stop_fd < 0) {
        free_link(link);
        return NULL;
    }
    return link;
}

int stk_link_open(const char *host, stk_link **ret, stk_err *err)
{
    const char *wrong = wrong_with_host(host);
    if (wrong != NULL) {
        return stk_err_set(err, STK_E_USAGE, "'%.100s' isn't a host that ssh can go to: %s", host,
                           wrong);
    }
    (void)pthread_mutex_lock(&open_links.lock);
    stk_link *link = open_links.first;
    while (link != NULL && strcmp(link->host, host) != 0) {
        link = link->next;
    }
    if (link == NULL) {
        link = new_link(host);
        if (link != NULL) {
            link->next = open_links.first;
            open_links.first = link;
        }
    }
    if (link != NULL) {
        link->n_users++;
    }
    (void)pthread_mutex_unlock(&open_links.lock);
    STK_TRY(stk_err_if_null(link, err));
    *ret = link;
    return 0;
}

static void remove_link(stk_link *link)
{
    stk_link **at = &open_links.first;
    while (*at != link) {
        at = &(*at)->next;
    }
    *at = link->next;
}

void stk_link_close(stk_link *link)
{
    static const uint64_t one = 1;
    if (link == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&open_links.lock);
    bool is_last = --link->n_users == 0;
    if (is_last) {
        remove_link(link);
    }
    (void)pthread_mutex_unlock(&open_links.lock);
    if (!is_last) {
        return;
    }
    (void)!write(link->stop_fd, &one, sizeof one);
    if (link->has_thread) {
        (void)pthread_join(link->thread, NULL);
    }
    free_link(link);
}

const char *stk_link_host(const stk_link *link)
{
    return link->host;
}

uint64_t stk_link_round(const stk_link *link)
{
    return atomic_load(&link->round);
}

bool stk_link_may_pass(const stk_err *err)
{
    return err->code == STK_E_ENV &&
           (err->sys == ENOTCONN || err->sys == ECONNRESET || err->sys == ETIMEDOUT);
}

void stk_link_wake(const stk_link *link)
{
    static const uint64_t one = 1;
    (void)!write(link->wake_fd, &one, sizeof one);
}

/* --- a request --- */

enum { ANSWER_MS = 60000 };

/* Signals are for the caller's own thread. */
static int start_thread(stk_link *link, stk_err *err)
{
    sigset_t all, old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int sys = pthread_create(&link->thread, NULL, stk_link_io, link);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (sys != 0) {
        return stk_err_sys(err, STK_E_SYS, sys, "a thread for the connection to '%s'", link->host);
    }
    link->has_thread = true;
    return 0;
}

static int begin_request(stk_link *link, const stk_link_ask *ask, link_request *r, stk_err *err)
{
    link_out *out = calloc(1, sizeof *out);
    STK_TRY(stk_err_if_null(out, err));
    (void)pthread_mutex_lock(&link->lock);
    int rc = link->has_thread ? 0 : start_thread(link, err);
    r->id = out->id = ++link->last_id;
    out->data = rc < 0 ? NULL
                       : stk_link_frame_make(r->id, ask->head, strlen(ask->head), ask->body, ask->n,
                                             &out->n);
    if (out->data == NULL) {
        (void)pthread_mutex_unlock(&link->lock);
        free(out);
        return rc < 0 ? rc : stk_err_nomem(err);
    }
    r->next = link->requests;
    link->requests = r;
    *link->outs_end = out;
    link->outs_end = &out->next;
    (void)pthread_mutex_unlock(&link->lock);
    stk_link_wake(link);
    return 0;
}

/* Takes the request out of the connection's lists; what has begun to be sent is sent. */
static void end_request(stk_link *link, link_request *r)
{
    (void)pthread_mutex_lock(&link->lock);
    for (link_request **at = &link->requests; *at != NULL; at = &(*at)->next) {
        if (*at == r) {
            *at = r->next;
            break;
        }
    }
    for (link_out **at = &link->outs; *at != NULL; at = &(*at)->next) {
        link_out *out = *at;
        if (out->id == r->id) {
            *at = out->next;
            if (link->outs_end == &out->next) {
                link->outs_end = at;
            }
            free(out->data);
            free(out);
            break;
        }
    }
    (void)pthread_mutex_unlock(&link->lock);
}

/* Until it is there or the caller gives up. */
static void wait_for_answer(const stk_link_ask *ask, const link_request *r)
{
    int64_t until = stk_clock_mono_ms(&stk_clock_real) + ask->limit_ms;
    struct pollfd fds[2] = {{.fd = r->done_fd, .events = POLLIN},
                            {.fd = ask->cancel_fd, .events = POLLIN}};
    int64_t left = -1;
    do {
        if (ask->limit_ms > 0) {
            left = MAX(until - stk_clock_mono_ms(&stk_clock_real), 0);
        }
        (void)poll(fds, 2, (int)MIN(left, INT_MAX));
    } while (fds[0].revents == 0 && fds[1].revents == 0 && left != 0);
}

static int await_answer(stk_link *link, const stk_link_ask *ask, link_request *r, stk_err *err)
{
    wait_for_answer(ask, r);
    struct pollfd cancel = {.fd = ask->cancel_fd, .events = POLLIN};
    end_request(link, r); /* from here on it is ours alone */
    if (!r->is_done && poll(&cancel, 1, 0) > 0) {
        return stk_err_set(err, STK_E_CANCELLED, "'%s': cancelled", link->host);
    }
    if (!r->is_done) {
        stk_err_set(err, STK_E_ENV, "'%s' didn't answer within %lld s", link->host,
                    (long long)(ask->limit_ms / 1000));
        if (err != NULL) {
            err->sys = ETIMEDOUT;
        }
        return STK_E_ENV;
    }
    if (r->rc < 0 && err != NULL) {
        *err = r->err;
    }
    return r->rc;
}

/* The far end's own error. */
static int read_error(const stk_json *error, stk_err *err)
{
    int code = (int)stk_json_get_whole(error, "code", STK_E_PROTOCOL);
    if (code >= 0) {
        code = STK_E_PROTOCOL;
    }
    stk_err_set(err, code, "%s",
                stk_text_or(stk_json_get_text(error, "text"), "it failed without a word"));
    const char *hint = stk_json_get_text(error, "hint");
    if (hint != NULL) {
        stk_err_hint(err, "%s", hint);
    }
    if (err != NULL) {
        err->sys = (int)stk_json_get_whole(error, "sys", 0);
    }
    return code;
}

static int read_answer(const stk_link *link, const link_frame *answer, stk_arena *arena,
                       stk_json *ret_head, stk_buf *ret_body, stk_err *err)
{
    const stk_json *head = stk_json_readn(arena, answer->data, answer->n_head);
    if (!stk_json_is_map(head)) {
        return stk_err_set(err, STK_E_PROTOCOL, "'%s' gave an answer that can't be read",
                           link->host);
    }
    const stk_json *error = stk_json_get(head, "error");
    if (error != NULL) {
        return read_error(error, err);
    }
    if (ret_body != NULL &&
        stk_buf_add(ret_body, stk_link_frame_body(answer), answer->n_body) < 0) {
        return stk_err_set(err, STK_E_LIMIT, "'%s' answered with more bytes than there is room for",
                           link->host);
    }
    if (ret_head != NULL) {
        *ret_head = *head;
    }
    return 0;
}

int stk_link_call(stk_link *link, const stk_link_ask *ask, stk_arena *arena, stk_json *ret_head,
                  stk_buf *ret_body, stk_err *err)
{
    STK_FD_AUTO done_fd = eventfd(0, EFD_CLOEXEC);
    if (done_fd < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "asking '%s'", link->host);
    }
    if (ask->n > STK_LINK_BODY_MAX || strlen(ask->head) > STK_LINK_HEAD_MAX) {
        return stk_err_set(err, STK_E_LIMIT, "a request to '%s' is too large", link->host);
    }
    link_request r = {.done_fd = done_fd, .timeout_ms = ask->timeout_ms};
    if (r.timeout_ms == 0) {
        r.timeout_ms = ANSWER_MS;
    }
    STK_TRY(begin_request(link, ask, &r, err));
    int rc = await_answer(link, ask, &r, err);
    LINK_FRAME_AUTO answer = r.answer;
    STK_TRY(rc);
    return read_answer(link, &answer, arena, ret_head, ret_body, err);
}
