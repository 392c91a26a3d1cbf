/* The thread of a connection: makes it when there is a request, sends, receives, and notices when
 * the other end is silent. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "away/link/link_private.h"
#include "sys/clock.h"
#include "sys/file.h"

enum {
    PING_MS =
        10000, /* of silence, while somebody waits: the other end is asked for a sign of life */
    DEAD_MS = 60000 /* the connection is given up */
};

/* The connection while it is up. */
typedef struct io {
    stk_link *link;
    link_ssh ssh;
    link_reader in;
    link_out *out; /* being sent */
    int64_t heard_ms, asked_ms;
} io;

static int64_t io_clock(void)
{
    return stk_clock_mono_ms(&stk_clock_real);
}

static bool is_stopped(const stk_link *link)
{
    struct pollfd stop = {.fd = link->stop_fd, .events = POLLIN};
    return poll(&stop, 1, 0) > 0;
}

static void free_out(link_out *out)
{
    if (out != NULL) {
        free(out->data);
        free(out);
    }
}

/* The lock is held. The request is its caller's from here on. */
static void finish(stk_link *link, link_request **at, int rc, const stk_err *err)
{
    static const uint64_t one = 1;
    link_request *r = *at;
    (void)link;
    *at = r->next;
    r->rc = rc;
    if (rc < 0) {
        r->err = *err;
    }
    r->is_done = true;
    (void)!write(r->done_fd, &one, sizeof one);
}

/* The connection is over: every request fails. One that wasn't sent has not been carried out. */
static void fail_all(stk_link *link, const stk_err *err)
{
    (void)pthread_mutex_lock(&link->lock);
    while (link->requests != NULL) {
        stk_err why = *err;
        if (!link->requests->is_sent && why.sys == ECONNRESET) {
            why.sys = ENOTCONN;
        }
        finish(link, &link->requests, why.code, &why);
    }
    while (link->outs != NULL) {
        link_out *out = link->outs;
        link->outs = out->next;
        free_out(out);
    }
    link->outs_end = &link->outs;
    (void)pthread_mutex_unlock(&link->lock);
}

/* --- sending --- */

/* The next frame to be sent; NULL: none. */
static link_out *take_out(stk_link *link)
{
    (void)pthread_mutex_lock(&link->lock);
    link_out *out = link->outs;
    if (out != NULL) {
        link->outs = out->next;
        if (link->outs == NULL) {
            link->outs_end = &link->outs;
        }
        for (link_request *r = link->requests; r != NULL; r = r->next) {
            r->is_sent = r->is_sent || r->id == out->id;
        }
    }
    (void)pthread_mutex_unlock(&link->lock);
    return out;
}

/* Sends as much as the pipe takes. Its end shows where its output is read. */
static void send_some(io *c)
{
    for (;;) {
        if (c->out == NULL) {
            c->out = take_out(c->link);
        }
        if (c->out == NULL) {
            return;
        }
        ssize_t n = write(c->ssh.to, c->out->data + c->out->at, c->out->n - c->out->at);
        if (n < 0) {
            if (errno != EAGAIN && errno != EINTR) {
                stk_file_close(&c->ssh.to);
            }
            return;
        }
        c->out->at += (size_t)n;
        if (c->out->at == c->out->n) {
            free_out(c->out);
            c->out = NULL;
        }
    }
}

static void ask_for_life(io *c)
{
    link_out *ping = calloc(1, sizeof *ping);
    if (ping == NULL) {
        return;
    }
    ping->data = stk_link_frame_make(0, "", 0, NULL, 0, &ping->n);
    if (ping->data == NULL) {
        free(ping);
        return;
    }
    (void)pthread_mutex_lock(&c->link->lock);
    ping->next = c->link->outs;
    c->link->outs = ping;
    if (ping->next == NULL) {
        c->link->outs_end = &ping->next;
    }
    (void)pthread_mutex_unlock(&c->link->lock);
    c->asked_ms = io_clock();
}

/* --- receiving --- */

static void deliver(stk_link *link, link_frame *answer)
{
    (void)pthread_mutex_lock(&link->lock);
    link_request **at = &link->requests;
    while (*at != NULL && (*at)->id != answer->id) {
        at = &(*at)->next;
    }
    if (*at != NULL) { /* else: its caller has given up, or it is the answer to a ping */
        (*at)->answer = *answer;
        answer->data = NULL;
        finish(link, at, 0, NULL);
    }
    (void)pthread_mutex_unlock(&link->lock);
    stk_link_frame_done(answer);
}

static int receive_some(io *c, stk_err *err)
{
    for (;;) {
        link_frame answer = {0};
        int rc = stk_link_reader_read(&c->in, c->ssh.from, &answer, err);
        if (rc <= 0) {
            return rc;
        }
        deliver(c->link, &answer);
        c->heard_ms = io_clock();
    }
}

/* --- time --- */

/* Fails the requests whose time is over; returns when the next one is, 0: none waits. */
static int64_t mind_deadlines(stk_link *link)
{
    int64_t now = io_clock(), next = 0;
    (void)pthread_mutex_lock(&link->lock);
    for (link_request **at = &link->requests; *at != NULL;) {
        link_request *r = *at;
        if (r->deadline_ms == 0) {
            r->deadline_ms = now + r->timeout_ms;
        }
        if (r->deadline_ms <= now) {
            stk_err err = {0};
            stk_err_set(&err, STK_E_ENV, "'%s' didn't answer within %lld s", link->host,
                        (long long)(r->timeout_ms / 1000));
            err.sys = ETIMEDOUT;
            finish(link, at, err.code, &err);
            continue;
        }
        next = next == 0 ? r->deadline_ms : MIN(next, r->deadline_ms);
        at = &r->next;
    }
    (void)pthread_mutex_unlock(&link->lock);
    return next;
}

/* While nobody waits, silence means nothing. */
static int mind_silence(io *c, bool is_awaited, stk_err *err)
{
    int64_t now = io_clock();
    if (!is_awaited) {
        c->heard_ms = c->asked_ms = now;
    } else if (now - c->heard_ms >= DEAD_MS) {
        stk_err_set(err, STK_E_ENV, "the connection to '%s' broke: no sign of life for %d s",
                    c->link->host, DEAD_MS / 1000);
        err->sys = ECONNRESET;
        return STK_E_ENV;
    } else if (now - MAX(c->heard_ms, c->asked_ms) >= PING_MS) {
        ask_for_life(c);
    }
    return 0;
}

/* --- the thread --- */

static void clear_wake(const stk_link *link)
{
    uint64_t n;
    (void)!read(link->wake_fd, &n, sizeof n);
}

static void await_news(io *c, int64_t next_ms)
{
    int64_t wait = next_ms == 0 ? -1 : MAX(MIN(next_ms - io_clock(), PING_MS), 0);
    struct pollfd fds[5] = {{.fd = c->ssh.from, .events = POLLIN},
                            {.fd = c->ssh.wrong, .events = POLLIN},
                            {.fd = c->link->wake_fd, .events = POLLIN},
                            {.fd = c->link->stop_fd, .events = POLLIN},
                            {.fd = c->out == NULL ? -1 : c->ssh.to, .events = POLLOUT}};
    (void)poll(fds, 5, (int)wait);
    if (fds[1].revents != 0) {
        stk_link_ssh_listen(&c->ssh);
    }
    if (fds[2].revents != 0) {
        clear_wake(c->link);
    }
}

/* Until the connection ends (an error) or the link is closed (0). */
static int keep(io *c, stk_err *err)
{
    c->heard_ms = c->asked_ms = io_clock();
    while (!is_stopped(c->link)) {
        send_some(c);
        int rc = receive_some(c, err);
        if (rc == STK_E_NOT_FOUND) {
            stk_file_close(&c->ssh.from);
            int status = stk_link_ssh_end(&c->ssh);
            return stk_link_ssh_explain(&c->ssh, c->link->host, true, status, err);
        }
        STK_TRY(rc);
        int64_t next = mind_deadlines(c->link);
        STK_TRY(mind_silence(c, next != 0, err));
        await_news(c, next);
    }
    return 0;
}

/* One connection, from start to end. */
static void serve_once(stk_link *link)
{
    io c = {.link = link};
    stk_err err = {0};
    int rc = stk_link_ssh_start(link->host, link->stop_fd, &c.ssh, &err);
    if (rc == 0) {
        atomic_fetch_add(&link->round, 1);
        rc = keep(&c, &err);
        (void)stk_link_ssh_end(&c.ssh);
    } else if (err.sys == ENXIO && atomic_load(&link->round) > 0) {
        err.sys = ENOTCONN; /* its name was known before: the network is away */
    }
    stk_link_reader_done(&c.in);
    free_out(c.out);
    if (rc < 0) {
        fail_all(link, &err);
    }
}

static bool has_requests(stk_link *link)
{
    (void)pthread_mutex_lock(&link->lock);
    bool has = link->requests != NULL;
    (void)pthread_mutex_unlock(&link->lock);
    return has;
}

void *stk_link_io(void *arg)
{
    stk_link *link = arg;
    while (!is_stopped(link)) {
        if (has_requests(link)) {
            serve_once(link);
            continue;
        }
        struct pollfd fds[2] = {{.fd = link->wake_fd, .events = POLLIN},
                                {.fd = link->stop_fd, .events = POLLIN}};
        (void)poll(fds, 2, -1);
        clear_wake(link);
    }
    return NULL;
}
