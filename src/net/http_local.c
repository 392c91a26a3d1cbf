/* HTTP/1.1 over a unix socket, as container engines speak it. One connection for each request. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/param.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text.h"
#include "net/http_private.h"
#include "sys/clock.h"
#include "sys/file.h"

enum { PIECE = 64 << 10, AGAIN_MS = 20 };

typedef struct exchange {
    const stk_http_request *q;
    stk_http_response *r;
    int fd, cancel_fd; /* cancel_fd -1: none */
    /* To send: the head, then the body, or chunks read from body_fd. */
    stk_buf out;
    size_t n_out;  /* of `out` sent */
    size_t n_sent; /* of the request's body */
    bool body_next, reads_fd, deaf;
    /* The answer. */
    enum { HEAD, SIZED, CHUNK_SIZE, CHUNK, CHUNK_END, TRAILER, TO_THE_END, WHOLE } state;
    uint64_t left; /* of the body, or of the chunk */
    uint64_t n_body;
    char line[64]; /* a chunk's size, or a trailer's line; its beginning is enough */
    size_t n_line;
    int64_t last_ms;
    stk_err *err;
} exchange;

__attribute__((format(printf, 3, 4))) static int fail(exchange *x, int code, const char *fmt, ...)
{
    char url[HTTP_SHOWN_MAX];
    char why[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    return stk_err_set(x->err, code, "%s %s at %s: %s", x->q->method,
                       stk_http_shown(x->q->url, url), x->q->unix_socket, why);
}

/* --- the request --- */

static int reach(exchange *x)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const char *path = x->q->unix_socket;
    if (strlen(path) >= sizeof at.sun_path) {
        return stk_err_set(x->err, STK_E_ENV, "%s: a socket's path can have at most %zu bytes",
                           path, sizeof at.sun_path - 1);
    }
    (void)snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    x->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (x->fd < 0) {
        return stk_err_sys(x->err, STK_E_SYS, errno, "%s", path);
    }
    /* EAGAIN: the listener's queue is full. No event tells when it isn't, so we try again. */
    int64_t until_ms = stk_clock_mono_ms(&stk_clock_real) + stk_http_connect_ms(x->q);
    while (connect(x->fd, (struct sockaddr *)&at, sizeof at) != 0) {
        int sys = errno;
        struct pollfd cancel = {.fd = x->cancel_fd, .events = POLLIN};
        if ((sys != EAGAIN && sys != EINTR) || stk_clock_mono_ms(&stk_clock_real) > until_ms) {
            return stk_err_set(x->err, STK_E_ENV, "no server answers at %s: %s", path,
                               strerror(sys));
        }
        if (poll(&cancel, 1, AGAIN_MS) > 0) {
            return fail(x, STK_E_CANCELLED, "cancelled");
        }
    }
    return 0;
}

static void write_head(exchange *x)
{
    const stk_http_request *q = x->q;
    const char *host = stk_http_host(q->url);
    size_t n = strcspn(host, "/?#");
    stk_buf_printf(&x->out, "%s %s%s HTTP/1.1\r\nHost: %.*s\r\nUser-Agent: stoker/%s\r\n",
                   q->method, stk_text_when(host[n] != '/', "/"), host + n, (int)n, host,
                   STK_VERSION);
    for (const char *const *h = q->headers; h != NULL && *h != NULL; h++) {
        stk_buf_printf(&x->out, "%s\r\n", *h);
    }
    x->reads_fd = q->body == NULL && q->body_fd > 0;
    if (x->reads_fd) {
        stk_buf_text(&x->out, "Transfer-Encoding: chunked\r\n");
    } else if (q->body != NULL || strcmp(q->method, "POST") == 0 || strcmp(q->method, "PUT") == 0) {
        stk_buf_printf(&x->out, "Content-Length: %zu\r\n", stk_http_body_len(q));
    }
    stk_buf_text(&x->out, "Connection: close\r\n\r\n");
    x->body_next = q->body != NULL && q->body_len > 0;
}

static bool has_to_send(const exchange *x)
{
    return !x->deaf && (x->n_out < x->out.len || x->body_next);
}

static int check_out(const exchange *x)
{
    if (x->out.failed) {
        return stk_err_sys(x->err, STK_E_NOMEM, ENOMEM, "a request");
    }
    return 0;
}

/* Prepares the next chunk of body_fd, or the end of the body. */
static int fill_out(exchange *x)
{
    char piece[PIECE];
    ssize_t n = read(x->q->body_fd, piece, sizeof piece);
    if (n < 0) {
        if (errno != EINTR && errno != EAGAIN) {
            return fail(x, STK_E_SYS, "reading the request's body: %s", strerror(errno));
        }
        return 0;
    }
    stk_buf_clear(&x->out);
    x->n_out = 0;
    x->reads_fd = n > 0;
    if (n == 0) {
        stk_buf_text(&x->out, "0\r\n\r\n");
    } else {
        stk_buf_printf(&x->out, "%zx\r\n", (size_t)n);
        stk_buf_add(&x->out, piece, (size_t)n);
        stk_buf_text(&x->out, "\r\n");
    }
    return check_out(x);
}

static int send_out(exchange *x)
{
    const char *from = x->out.data + x->n_out;
    size_t n = x->out.len - x->n_out;
    if (n == 0) {
        from = (const char *)x->q->body + x->n_sent;
        n = x->q->body_len - x->n_sent;
    }
    ssize_t sent = send(x->fd, from, n, MSG_NOSIGNAL);
    if (sent < 0) {
        /* A peer that stops reading may still send an answer. */
        x->deaf = errno != EAGAIN && errno != EINTR;
        return 0;
    }
    x->last_ms = stk_clock_mono_ms(&stk_clock_real);
    if (x->n_out < x->out.len) {
        x->n_out += (size_t)sent;
    } else {
        x->n_sent += (size_t)sent;
        x->body_next = x->n_sent < x->q->body_len;
    }
    return 0;
}

/* --- the answer --- */

/* After the head: determines how the body's end is marked. */
static void begin_body(exchange *x)
{
    char value[64];
    int status = x->r->status;
    x->left = 0;
    if (status / 100 == 1) { /* 100 Continue: the answer follows */
        stk_buf_clear(&x->r->head);
        x->state = HEAD;
    } else if (status == 204 || status == 304 || strcmp(x->q->method, "HEAD") == 0) {
        x->state = WHOLE;
    } else if (stk_http_header(x->r, "Transfer-Encoding", value, sizeof value) &&
               strcasecmp(value, "identity") != 0) {
        x->state = CHUNK_SIZE;
    } else if (stk_http_header(x->r, "Content-Length", value, sizeof value)) {
        x->left = strtoull(value, NULL, 10);
        x->state = x->left > 0 ? SIZED : WHOLE;
    } else {
        x->state = TO_THE_END;
    }
}

static int give(exchange *x, const char *data, size_t n)
{
    x->n_body += n;
    bool ok = x->r->status >= 200 && x->r->status < 300;
    if (x->q->on_body != NULL && (ok || !x->q->ok_only)) {
        if (!x->q->on_body(x->q->arg, data, n)) {
            return fail(x, STK_E_CANCELLED, "stopped");
        }
        return 0;
    }
    if (stk_buf_add(&x->r->body, data, n) != 0) {
        return fail(x, STK_E_LIMIT, "the answer is larger than %zu bytes", x->r->body.max);
    }
    return 0;
}

/* Takes one byte of the head, which ends with an empty line. */
static int take_head(exchange *x, char c)
{
    stk_buf *head = &x->r->head;
    if (stk_buf_char(head, c) < 0) {
        return fail(x, STK_E_LIMIT, "the answer's head is larger than %zu bytes", head->max);
    }
    if (c != '\n' || head->len < 4 || strcmp(head->data + head->len - 4, "\r\n\r\n") != 0) {
        return 0;
    }
    if (sscanf(head->data, "HTTP/1.%*d %d", &x->r->status) != 1 || x->r->status < 100) {
        return fail(x, STK_E_ENV, "the server there doesn't speak HTTP");
    }
    begin_body(x);
    return 0;
}

/* Takes one byte of a line between chunks. */
static int take_line(exchange *x, char c)
{
    if (c != '\n') {
        if (x->n_line + 1 < sizeof x->line && c != '\r') {
            x->line[x->n_line++] = c;
        }
        return 0;
    }
    char *end = x->line;
    bool empty = x->n_line == 0;
    x->line[x->n_line] = '\0';
    x->n_line = 0;
    if (x->state == CHUNK_END) {
        x->state = CHUNK_SIZE;
    } else if (x->state == TRAILER) {
        x->state = empty ? WHOLE : TRAILER;
    } else {
        x->left = strtoull(x->line, &end, 16);
        if (end == x->line) {
            return fail(x, STK_E_ENV, "the answer has a chunk without a size");
        }
        x->state = x->left > 0 ? CHUNK : TRAILER;
    }
    return 0;
}

static int take_answer(exchange *x, const char *data, size_t n)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0 && x->state != WHOLE;) {
        if (x->state == HEAD) {
            rc = take_head(x, data[i++]);
        } else if (x->state == SIZED || x->state == CHUNK || x->state == TO_THE_END) {
            size_t part = n - i;
            if (x->state != TO_THE_END && x->left < part) {
                part = (size_t)x->left;
            }
            rc = give(x, data + i, part);
            i += part;
            if (x->state != TO_THE_END) {
                x->left -= part;
            }
            if (x->left == 0 && x->state != TO_THE_END) {
                x->state = x->state == SIZED ? WHOLE : CHUNK_END;
            }
        } else {
            rc = take_line(x, data[i++]);
        }
    }
    return rc;
}

static int pull(exchange *x)
{
    char data[PIECE];
    ssize_t n = recv(x->fd, data, sizeof data, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    x->last_ms = stk_clock_mono_ms(&stk_clock_real);
    if (n > 0) {
        return take_answer(x, data, (size_t)n);
    }
    if (x->state == TO_THE_END && n == 0) {
        x->state = WHOLE;
        return 0;
    }
    if (x->state == HEAD) {
        return fail(x, STK_E_ENV, "the connection was cut before an answer came");
    }
    return fail(x, STK_E_ENV, "the connection was cut after %llu bytes of the answer",
                (unsigned long long)x->n_body);
}

/* Runs until the answer is complete, the caller cancels, or the exchange stalls. */
static int talk(exchange *x)
{
    int rc = 0;
    while (rc == 0 && x->state != WHOLE) {
        bool sends = has_to_send(x);
        bool reads = !x->deaf && x->reads_fd && !sends;
        int64_t wait = -1;
        if (x->q->idle_ms > 0) {
            wait = x->last_ms + x->q->idle_ms - stk_clock_mono_ms(&stk_clock_real);
            if (wait <= 0 && x->q->on_idle != NULL && x->q->on_idle(x->q->idle_arg)) {
                x->last_ms = stk_clock_mono_ms(&stk_clock_real);
                continue;
            }
            if (wait <= 0) {
                return fail(x, STK_E_ENV, "no data came for %.3g s", (double)x->q->idle_ms / 1e3);
            }
        }
        struct pollfd on[] = {
            {.fd = x->fd, .events = (short)(POLLIN | sends * POLLOUT)},
            {.fd = x->cancel_fd, .events = POLLIN},
            {.fd = reads ? x->q->body_fd : -1, .events = POLLIN},
        };
        if (poll(on, 3, (int)MIN(wait, 1000000)) < 0 && errno != EINTR) {
            return fail(x, STK_E_SYS, "%s", strerror(errno));
        }
        if (on[1].revents != 0) {
            return fail(x, STK_E_CANCELLED, "cancelled");
        }
        if ((on[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
            rc = pull(x);
        } else if ((on[0].revents & POLLOUT) != 0) {
            rc = send_out(x);
        } else if (on[2].revents != 0) {
            rc = fill_out(x);
        }
    }
    return rc;
}

int stk_http_local(const stk_http_request *request, stk_http_response *ret, stk_err *err)
{
    exchange x = {.q = request,
                  .r = ret,
                  .fd = -1,
                  .cancel_fd = request->cancel_fd > 0 ? request->cancel_fd : -1,
                  .out = STK_BUF_INIT(16 << 20),
                  .last_ms = stk_clock_mono_ms(&stk_clock_real),
                  .err = err};
    write_head(&x);
    int rc = check_out(&x);
    if (rc == 0) {
        rc = reach(&x);
    }
    if (rc == 0) {
        rc = talk(&x);
    }
    stk_file_close(&x.fd);
    stk_buf_done(&x.out);
    return rc;
}
