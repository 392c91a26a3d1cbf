/* A queue, and a thread that empties it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/param.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "net/http.h"
#include "run/observe/observe_private.h"
#include "sys/clock.h"
#include "sys/file.h"
#include "sys/spawn.h"

enum {
    QUEUE_BYTES = 256 << 20,
    CONNECT_MS = 5000,
    ANSWER_MS = 10000,
    N_TRIES = 3,
    AGAIN_MS = 500, /* twice as long before each further try */
    SAID_BYTES = 4096
};

typedef struct text {
    struct text *next;
    size_t n;
    char data[];
} text;

struct observe_channel {
    observe_receiver to;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t come;
    text *first, **last;
    size_t n_bytes;
    bool is_ending, is_stopping;
    stk_err trouble; /* why the receiver lacks texts; code 0: it doesn't */
    bool is_said;
    int stop_fd; /* readable: give up */
    int done_fd; /* readable: the queue is empty and stays so; of a program its answers, and their
                  * end
                  */
    int program_fd; /* its stdin, or -1 */
    pid_t pid;
    char said[SAID_BYTES]; /* of the program: what isn't a whole line yet */
    size_t n_said;
    bool is_over; /* the queue is empty and stays so; the program has closed its side */
    stk_http_session *session; /* the thread's */
};

/* --- the thread --- */

static bool is_stopped(observe_channel *c, int64_t wait_ms)
{
    return poll(&(struct pollfd){.fd = c->stop_fd, .events = POLLIN}, 1, (int)wait_ms) > 0;
}

static int append(const observe_channel *c, const text *t, stk_err *err)
{
    STK_FD_AUTO fd = stk_file_open_regular(c->to.file, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (fd < 0 || stk_file_write_all(fd, t->data, t->n) < 0) { /* one write: a line stays whole */
        return stk_err_sys(err, STK_E_SYS, errno, "can't write '%s'", c->to.file);
    }
    return 0;
}

static int post_once(observe_channel *c, const text *t, bool *ret_again, stk_err *err)
{
    stk_http_request request = {.method = "POST",
                                .url = c->to.url,
                                .headers = c->to.headers,
                                .body = t->data,
                                .body_len = t->n - 1, /* without the line's end */
                                .session = c->session,
                                .connect_ms = CONNECT_MS,
                                .idle_ms = ANSWER_MS,
                                .cancel_fd = c->stop_fd};
    STK_HTTP_RESPONSE_AUTO answer = {.body = STK_BUF_INIT(1u << 20)};
    int rc = stk_http_send(&request, &answer, err);
    *ret_again = rc < 0 ? !answer.fatal : answer.status == 429 || answer.status >= 500;
    if (rc == 0 && (answer.status < 200 || answer.status > 299)) {
        const char *said = stk_text_or(answer.body.data, "");
        rc = stk_err_set(err, STK_E_ENV, "the receiver answers %d %.*s", answer.status,
                         (int)strcspn(said, "\r\n"), said);
    }
    return rc;
}

/* A receiver that is down gets no patience. */
static int post(observe_channel *c, const text *t, bool is_down, stk_err *err)
{
    int rc = 0;
    int n_tries = is_down ? 1 : N_TRIES;
    for (int i = 0; i < n_tries; i++) {
        bool again = false;
        rc = post_once(c, t, &again, err);
        if (rc == 0 || !again || i + 1 == n_tries || is_stopped(c, (int64_t)AGAIN_MS << i)) {
            break;
        }
    }
    return rc;
}

static int hand_over(observe_channel *c, const text *t, stk_err *err)
{
    for (size_t at = 0; at < t->n;) {
        ssize_t n = send(c->program_fd, t->data + at, t->n - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            at += (size_t)n;
        } else if (n < 0 && errno == EAGAIN) {
            struct pollfd both[] = {{.fd = c->program_fd, .events = POLLOUT},
                                    {.fd = c->stop_fd, .events = POLLIN}};
            if (poll(both, 2, -1) > 0 && both[1].revents != 0) {
                return stk_err_set(err, STK_E_CANCELLED, "stopped");
            }
        } else if (errno != EINTR) {
            return stk_err_set(err, STK_E_ENV, "it has ended");
        }
    }
    return 0;
}

static int deliver(observe_channel *c, const text *t, bool is_down, stk_err *err)
{
    if (c->to.file != NULL) {
        return append(c, t, err);
    }
    if (c->to.url != NULL) {
        return post(c, t, is_down, err);
    }
    return hand_over(c, t, err);
}

static void lose(observe_channel *c, const stk_err *why)
{
    if (c->trouble.code == 0) {
        c->trouble = *why;
    }
}

static text *take_text(observe_channel *c)
{
    while (c->first == NULL && !c->is_ending) {
        pthread_cond_wait(&c->come, &c->lock);
    }
    text *t = c->first;
    if (t != NULL) {
        c->first = t->next;
        c->last = t->next == NULL ? &c->first : c->last;
        c->n_bytes -= t->n;
    }
    return t;
}

static void *deliver_all(void *arg)
{
    observe_channel *c = arg;
    pthread_mutex_lock(&c->lock);
    for (text *t; (t = take_text(c)) != NULL; free(t)) {
        stk_err err = {0};
        bool is_lost = c->is_stopping, is_down = c->trouble.code != 0;
        pthread_mutex_unlock(&c->lock);
        int rc = 0;
        if (is_lost) {
            rc = stk_err_set(&err, STK_E_ENV, "the run ended before");
        } else {
            rc = deliver(c, t, is_down, &err);
        }
        pthread_mutex_lock(&c->lock);
        if (rc < 0) {
            lose(c, &err);
        }
    }
    pthread_mutex_unlock(&c->lock);
    if (c->program_fd >= 0) {
        (void)shutdown(c->program_fd, SHUT_WR); /* and waits for its answers' end */
    } else {
        (void)eventfd_write(c->done_fd, 1);
    }
    return NULL;
}

/* --- the engine --- */

static int start_tracker_program(observe_channel *c, stk_err *err)
{
    int lines[2] = {-1, -1}, answers[2] = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, lines) < 0 ||
        pipe2(answers, O_CLOEXEC | O_NONBLOCK) < 0) {
        int sys = errno;
        stk_file_close(&lines[0]);
        stk_file_close(&lines[1]);
        return stk_err_sys(err, STK_E_SYS, sys, "can't start the trackers' program");
    }
    STK_FD_AUTO log = open(c->to.log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    (void)fcntl(answers[1], F_SETFL, 0);
    stk_spawn spawn = {.argv = c->to.argv,
                       .env = c->to.env,
                       .stdin_fd = lines[1],
                       .stdout_fd = answers[1],
                       .stderr_fd = log,
                       .new_group = true}; /* of our session, as all that is no task */
    int rc = stk_sys_spawn(&spawn, &c->pid, NULL, err);
    stk_file_close(&lines[1]);
    stk_file_close(&answers[1]);
    c->program_fd = lines[0];
    c->done_fd = answers[0];
    return rc;
}

int stk_observe_channel_open(const observe_receiver *receiver, observe_channel **ret, stk_err *err)
{
    observe_channel *c = calloc(1, sizeof *c);
    *ret = c;
    STK_TRY(stk_err_if_null(c, err));
    *c = (observe_channel){.to = *receiver, .done_fd = -1, .program_fd = -1, .stop_fd = -1};
    c->last = &c->first;
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_cond_init(&c->come, NULL);
    c->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (receiver->argv != NULL) {
        STK_TRY(start_tracker_program(c, err));
    } else {
        c->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    }
    if (receiver->url != NULL) {
        STK_TRY(stk_http_session_open(&c->session, err));
    }
    if (c->stop_fd < 0 || c->done_fd < 0 || pthread_create(&c->thread, NULL, deliver_all, c) != 0) {
        return stk_err_set(err, STK_E_SYS, "no thread or descriptor for %s", c->to.name);
    }
    c->has_thread = true;
    return 0;
}

void stk_observe_channel_put(observe_channel *c, stk_buf *buf)
{
    size_t n = buf->len + 1;
    text *t = malloc(sizeof *t + n);
    stk_err full = {0};
    pthread_mutex_lock(&c->lock);
    if (t == NULL || c->n_bytes + n > QUEUE_BYTES) {
        stk_err_set(&full, STK_E_LIMIT, "it takes events slower than the run makes them");
        lose(c, &full);
        free(t);
    } else {
        t->next = NULL;
        t->n = n;
        memcpy(t->data, buf->data, buf->len);
        t->data[n - 1] = '\n';
        *c->last = t;
        c->last = &t->next;
        c->n_bytes += t->n;
        pthread_cond_signal(&c->come);
    }
    pthread_mutex_unlock(&c->lock);
    stk_buf_clear(buf);
}

/* A line of the program's. */
static bool program_said(observe_channel *c, stk_err *ret)
{
    if (c->program_fd < 0 || c->is_over) {
        return false;
    }
    char *end = memchr(c->said, '\n', c->n_said);
    if (end == NULL) {
        ssize_t n = read(c->done_fd, c->said + c->n_said, SAID_BYTES - c->n_said);
        c->is_over = n == 0;
        c->n_said += (size_t)MAX(n, 0);
        end = memchr(c->said, '\n', c->n_said);
        if (end == NULL && c->n_said == SAID_BYTES) {
            end = c->said + SAID_BYTES - 1;
        }
    }
    if (end == NULL) {
        return false;
    }
    *end = '\0';
    stk_text_tame(c->said);
    stk_err_set(ret, STK_E_ENV, "%s", c->said);
    c->n_said -= (size_t)(end + 1 - c->said);
    memmove(c->said, end + 1, c->n_said);
    return true;
}

bool stk_observe_channel_said(observe_channel *c, stk_err *ret)
{
    if (program_said(c, ret)) {
        return true;
    }
    pthread_mutex_lock(&c->lock);
    bool is_new = c->trouble.code != 0 && !c->is_said;
    if (is_new) {
        c->is_said = true;
        stk_err_set(ret, STK_E_ENV, "%s lacks events of this run: %s", c->to.name, c->trouble.text);
        stk_text_tame(ret->text); /* it may have what a receiver answered */
        stk_err_hint(ret, "%s", c->trouble.hint);
        if (c->to.log != NULL) {
            stk_err_hint(ret, "its log: %s", c->to.log);
        }
    }
    pthread_mutex_unlock(&c->lock);
    return is_new;
}

int stk_observe_channel_end(observe_channel *c)
{
    pthread_mutex_lock(&c->lock);
    c->is_ending = true;
    pthread_cond_signal(&c->come);
    pthread_mutex_unlock(&c->lock);
    eventfd_t n;
    if (c->program_fd < 0 && eventfd_read(c->done_fd, &n) == 0) {
        c->is_over = true;
    }
    if (!c->has_thread || c->is_over) {
        return -1;
    }
    return c->done_fd;
}

void stk_observe_channel_stop(observe_channel *c)
{
    (void)stk_observe_channel_end(c);
    pthread_mutex_lock(&c->lock);
    c->is_stopping = true;
    pthread_mutex_unlock(&c->lock);
    if (c->stop_fd >= 0) {
        (void)eventfd_write(c->stop_fd, 1);
    }
    if (c->has_thread) {
        (void)pthread_join(c->thread, NULL);
        c->has_thread = false;
    }
}

void stk_observe_channel_close(observe_channel *c)
{
    if (c == NULL) {
        return;
    }
    stk_observe_channel_stop(c);
    stk_file_close(&c->program_fd);
    stk_file_close(&c->done_fd);
    stk_file_close(&c->stop_fd);
    if (c->pid > 0) {
        (void)waitpid(c->pid, NULL, WNOHANG); /* one that goes on is init's from our end on */
    }
    stk_http_session_close(c->session);
    free(c);
}
