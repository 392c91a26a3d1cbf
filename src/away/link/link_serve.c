/* The far end: one thread reads requests, others answer them. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/param.h>
#include <time.h>
#include <unistd.h>

#include "away/link/link_private.h"
#include "base/text.h"
#include "sys/file.h"

enum {
    WORKERS = 64,
    HEAD_MAX = STK_LINK_HEAD_MAX,
    SILENT_MS = 15 * 60 * 1000, /* the near end, or the way to it, is no more */
    LEAVE_MS = 10000            /* for handlers, once the near end has gone */
};

typedef struct waiting {
    struct waiting *next;
    link_frame frame;
} waiting;

typedef struct server {
    int out_fd;
    const stk_link_op *const *ops;
    pthread_mutex_t write_lock;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t news;
    waiting *first, **end;
    uint32_t n_waiting, n_idle, n_workers;
    bool is_over;
} server;

/* A time, or the shorter one of a test. */
static int64_t shorter(const char *name, int64_t ms)
{
    const char *text = stk_text_if_any(getenv(name));
    return text == NULL ? ms : MIN(strtoll(text, NULL, 10), ms);
}

static atomic_int end_fd = -1;

int stk_link_end_fd(void)
{
    return atomic_load(&end_fd);
}

/* --- one request --- */

static const stk_link_op *find_op(const server *s, const char *name)
{
    for (const stk_link_op *const *table = s->ops; *table != NULL; table++) {
        for (const stk_link_op *op = *table; op->name != NULL; op++) {
            if (strcmp(op->name, name) == 0) {
                return op;
            }
        }
    }
    return NULL;
}

static int handle(const server *s, const link_frame *f, stk_buf *head, stk_buf *body, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_TRY(stk_err_if_null(arena, err));
    const stk_json *ask = stk_json_readn(arena, f->data, f->n_head);
    const char *name = stk_json_get_text(ask, "op");
    if (name == NULL) {
        return stk_err_set(err, STK_E_PROTOCOL, "a request names no operation");
    }
    const stk_link_op *op = find_op(s, name);
    if (op == NULL) {
        return stk_err_set(err, STK_E_PROTOCOL, "Stoker knows no operation '%.100s' there", name);
    }
    STK_TRY(op->handle(ask, stk_link_frame_body(f), f->n_body, head, body, err));
    if (head->failed || body->failed) {
        return stk_err_set(err, STK_E_LIMIT, "the answer to '%.100s' is too large", name);
    }
    return 0;
}

static void put_error(stk_buf *head, const stk_err *err)
{
    stk_buf_done(head);
    *head = STK_BUF_INIT(HEAD_MAX);
    stk_json_open(head, NULL, '{');
    stk_json_open(head, "error", '{');
    stk_json_put_whole(head, "code", err->code);
    stk_json_put_whole(head, "sys", err->sys);
    stk_json_put_text(head, "text", err->text);
    if (err->hint[0] != '\0') {
        stk_json_put_text(head, "hint", err->hint);
    }
    stk_json_close(head, '}');
    stk_json_close(head, '}');
}

static int write_part(int fd, const stk_buf *part)
{
    return part->len == 0 ? 0 : stk_file_write_all(fd, part->data, part->len);
}

/* A connection that can't be written has ended, which the reading end finds. */
static void send_answer(server *s, uint64_t id, const stk_buf *head, const stk_buf *body)
{
    unsigned char prefix[LINK_PREFIX];
    if (head->failed) {
        return;
    }
    stk_link_frame_prefix(id, head->len, body->len, prefix);
    (void)pthread_mutex_lock(&s->write_lock);
    if (stk_file_write_all(s->out_fd, prefix, sizeof prefix) == 0 &&
        write_part(s->out_fd, head) == 0) {
        (void)write_part(s->out_fd, body);
    }
    (void)pthread_mutex_unlock(&s->write_lock);
}

static void answer(server *s, const link_frame *f)
{
    STK_BUF_AUTO head = STK_BUF_INIT(HEAD_MAX);
    STK_BUF_AUTO body = STK_BUF_INIT(STK_LINK_BODY_MAX);
    stk_err err = {0};
    stk_json_open(&head, NULL, '{');
    int rc = handle(s, f, &head, &body, &err);
    stk_json_close(&head, '}');
    if (rc < 0 || head.failed) {
        err.code = rc < 0 ? rc : STK_E_NOMEM;
        put_error(&head, &err);
        stk_buf_clear(&body);
    }
    send_answer(s, f->id, &head, &body);
}

static void answer_ping(server *s, uint64_t id)
{
    STK_BUF_AUTO head = STK_BUF_INIT(HEAD_MAX);
    const stk_buf none = {0};
    stk_json_open(&head, NULL, '{');
    stk_json_close(&head, '}');
    send_answer(s, id, &head, &none);
}

/* --- the threads --- */

static void *work(void *arg)
{
    server *s = arg;
    (void)pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->first == NULL && !s->is_over) {
            s->n_idle++;
            (void)pthread_cond_wait(&s->news, &s->lock);
            s->n_idle--;
        }
        waiting *w = s->first;
        if (w == NULL) {
            break;
        }
        s->first = w->next;
        if (s->first == NULL) {
            s->end = &s->first;
        }
        s->n_waiting--;
        (void)pthread_mutex_unlock(&s->lock);
        answer(s, &w->frame);
        stk_link_frame_done(&w->frame);
        free(w);
        (void)pthread_mutex_lock(&s->lock);
    }
    s->n_workers--;
    (void)pthread_cond_broadcast(&s->news);
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

static bool start_worker(server *s)
{
    pthread_t worker;
    if (pthread_create(&worker, NULL, work, s) != 0) {
        return false;
    }
    (void)pthread_detach(worker);
    return true;
}

static void add_request(server *s, link_frame *f)
{
    waiting *w = calloc(1, sizeof *w);
    if (w == NULL) { /* its caller's time runs out */
        stk_link_frame_done(f);
        return;
    }
    w->frame = *f;
    (void)pthread_mutex_lock(&s->lock);
    *s->end = w;
    s->end = &w->next;
    s->n_waiting++;
    if (s->n_idle < s->n_waiting && s->n_workers < WORKERS && start_worker(s)) {
        s->n_workers++;
    }
    (void)pthread_cond_signal(&s->news);
    (void)pthread_mutex_unlock(&s->lock);
}

/* The near end has gone: what nobody has begun isn't done any more. Everything may be asked for
 * twice, so what takes long isn't waited for. False: a handler still runs. */
static bool end_workers(server *s)
{
    struct timespec until;
    int64_t leave_ms = shorter("STOKER_FAR_LEAVE_MS", LEAVE_MS);
    int sys = 0;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (until.tv_nsec / 1000000 + leave_ms) / 1000;
    until.tv_nsec = (until.tv_nsec / 1000000 + leave_ms) % 1000 * 1000000;
    (void)!write(stk_link_end_fd(), &(uint64_t){1}, sizeof(uint64_t));
    (void)pthread_mutex_lock(&s->lock);
    s->is_over = true;
    while (s->first != NULL) {
        waiting *w = s->first;
        s->first = w->next;
        stk_link_frame_done(&w->frame);
        free(w);
    }
    (void)pthread_cond_broadcast(&s->news);
    while (s->n_workers > 0 && sys == 0) {
        sys = pthread_cond_timedwait(&s->news, &s->lock, &until);
    }
    bool all = s->n_workers == 0;
    (void)pthread_mutex_unlock(&s->lock);
    return all;
}

static int read_requests(server *s, int in_fd, stk_err *err)
{
    link_reader in = {.blocks = true};
    int rc = 0;
    int64_t silent_ms = shorter("STOKER_FAR_SILENCE_MS", SILENT_MS);
    while (rc >= 0) {
        link_frame f = {0};
        struct pollfd fd = {.fd = in_fd, .events = POLLIN};
        if (poll(&fd, 1, (int)silent_ms) == 0) {
            break;
        }
        rc = stk_link_reader_read(&in, in_fd, &f, err);
        if (rc == 1 && f.id == 0) {
            answer_ping(s, f.id);
            stk_link_frame_done(&f);
        } else if (rc == 1) {
            add_request(s, &f);
        }
    }
    stk_link_reader_done(&in);
    return stk_err_but(rc, STK_E_NOT_FOUND);
}

int stk_link_serve(int in_fd, int out_fd, const stk_link_op *const *ops, stk_err *err)
{
    static server s; /* it outlives a handler that doesn't end */
    char hello[32];
    s = (server){.out_fd = out_fd,
                 .ops = ops,
                 .write_lock = PTHREAD_MUTEX_INITIALIZER,
                 .lock = PTHREAD_MUTEX_INITIALIZER,
                 .news = PTHREAD_COND_INITIALIZER,
                 .end = &s.first};
    atomic_store(&end_fd, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    int n = snprintf(hello, sizeof hello, LINK_HELLO "%d\n", LINK_VERSION);
    if (stk_file_write_all(out_fd, hello, (size_t)n) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "answering");
    }
    int rc = read_requests(&s, in_fd, err);
    if (!end_workers(&s)) {
        return stk_err_set(err, STK_E_CANCELLED,
                           "a request is still being answered after the connection's end");
    }
    return rc;
}
