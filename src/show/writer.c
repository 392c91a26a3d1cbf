#include "show/writer.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/buf.h"
#include "sys/file.h"

enum { N_FDS = 3, MOST = 1 << 30 };

/* Text for one descriptor after another. */
typedef struct batch {
    stk_buf text;
    struct piece {
        int fd;
        size_t len;
    } * pieces;
    size_t n, cap;
} batch;

/* The caller fills `queued`. The thread writes `writing` while `is_busy`. */
struct stk_writer {
    batch queued, writing;
    bool is_deaf[N_FDS]; /* a write to this descriptor has failed */
    pthread_t thread;
    bool has_thread, no_thread;
    pthread_mutex_t lock;
    pthread_cond_t handed;
    bool is_busy, is_closing;
    int done_fd; /* readable once a batch is written */
};

static batch new_batch(void)
{
    return (batch){.text = STK_BUF_INIT(MOST)};
}

static void clear_batch(batch *b)
{
    if (b->text.failed) { /* out of memory: the lost lines stand in the logs */
        stk_buf_done(&b->text);
        b->text = STK_BUF_INIT(MOST);
    }
    stk_buf_clear(&b->text);
    b->n = 0;
}

static void free_batch(batch *b)
{
    stk_buf_done(&b->text);
    free(b->pieces);
}

stk_writer *stk_writer_new(void)
{
    stk_writer *w = calloc(1, sizeof *w);
    if (w == NULL) {
        return NULL;
    }
    w->queued = new_batch();
    w->writing = new_batch();
    w->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    w->no_thread = w->done_fd < 0;
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_cond_init(&w->handed, NULL);
    return w;
}

void stk_writer_put(stk_writer *w, int fd, const char *text, size_t len)
{
    batch *b = &w->queued;
    if (len == 0) {
        return;
    }
    if (b->n > 0 && b->pieces[b->n - 1].fd == fd) {
        b->pieces[b->n - 1].len += len;
    } else {
        if (b->n == b->cap) {
            size_t cap = MAX(16, b->cap * 2);
            struct piece *pieces = realloc(b->pieces, cap * sizeof *pieces);
            if (pieces == NULL) {
                return;
            }
            b->pieces = pieces;
            b->cap = cap;
        }
        b->pieces[b->n++] = (struct piece){.fd = fd, .len = len};
    }
    stk_buf_add(&b->text, text, len);
}

/* Also to a descriptor that another process has made non-blocking. */
static bool write_all(int fd, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, text, len);
        if (n < 0 && errno == EAGAIN) {
            (void)poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
        } else if (n < 0 && errno != EINTR) {
            return false;
        }
        text += MAX(n, 0);
        len -= (size_t)MAX(n, 0);
    }
    return true;
}

static void write_batch(stk_writer *w)
{
    const batch *b = &w->writing;
    const char *text = b->text.data;
    for (size_t i = 0; i < b->n && !b->text.failed; i++) {
        bool *is_deaf = &w->is_deaf[b->pieces[i].fd];
        if (!*is_deaf) {
            *is_deaf = !write_all(b->pieces[i].fd, text, b->pieces[i].len);
        }
        text += b->pieces[i].len;
    }
}

static void *work(void *arg)
{
    stk_writer *w = arg;
    int before;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->is_busy && !w->is_closing) {
            pthread_cond_wait(&w->handed, &w->lock);
        }
        if (w->is_closing) {
            break;
        }
        pthread_mutex_unlock(&w->lock);
        (void)pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before); /* it holds no lock */
        write_batch(w);
        (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
        pthread_mutex_lock(&w->lock);
        w->is_busy = false;
        (void)eventfd_write(w->done_fd, 1);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

bool stk_writer_is_busy(stk_writer *w)
{
    pthread_mutex_lock(&w->lock);
    bool busy = w->is_busy;
    pthread_mutex_unlock(&w->lock);
    return busy;
}

void stk_writer_go(stk_writer *w)
{
    if (w->queued.n == 0 || stk_writer_is_busy(w)) {
        return;
    }
    batch full = w->queued;
    w->queued = w->writing;
    w->writing = full;
    clear_batch(&w->queued);
    if (!w->has_thread && !w->no_thread) {
        w->has_thread = pthread_create(&w->thread, NULL, work, w) == 0;
        w->no_thread = !w->has_thread;
    }
    if (w->no_thread) {
        write_batch(w);
        return;
    }
    pthread_mutex_lock(&w->lock);
    w->is_busy = true;
    pthread_cond_signal(&w->handed);
    pthread_mutex_unlock(&w->lock);
}

bool stk_writer_wait(stk_writer *w, int signal_fd)
{
    struct pollfd fds[] = {{.fd = w->done_fd, .events = POLLIN},
                           {.fd = signal_fd, .events = POLLIN}};
    for (;;) {
        eventfd_t count;
        (void)eventfd_read(w->done_fd, &count); /* of earlier batches */
        stk_writer_go(w);
        if (!stk_writer_is_busy(w)) {
            if (w->queued.n == 0) {
                return true;
            }
            continue;
        }
        if (poll(fds, 2, -1) < 0 && errno != EINTR) {
            return false;
        }
        if (fds[1].revents != 0) {
            return false;
        }
    }
}

void stk_writer_free(stk_writer *w)
{
    if (w == NULL) {
        return;
    }
    if (w->has_thread) {
        pthread_mutex_lock(&w->lock);
        if (w->is_busy) {
            (void)pthread_cancel(w->thread); /* from write() or poll() */
        }
        w->is_closing = true;
        pthread_cond_signal(&w->handed);
        pthread_mutex_unlock(&w->lock);
        (void)pthread_join(w->thread, NULL);
    }
    stk_file_close(&w->done_fd);
    (void)pthread_cond_destroy(&w->handed);
    (void)pthread_mutex_destroy(&w->lock);
    free_batch(&w->queued);
    free_batch(&w->writing);
    free(w);
}
