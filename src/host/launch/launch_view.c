/* The ranks' output: from pipes to rank-K/stdout.log and stderr.log, and line by line to one view.
 *
 * Nothing here blocks: if the view is stuck (a stopped terminal, a full pipe), we stop reading the
 * ranks' pipes, but go on supervising the ranks. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "host/launch/launch_private.h"
#include "host/launch/launch_ranks.h"
#include "sys/file.h"

enum { CHUNK = 64 << 10, READS_PER_TURN = 4 };

/* --- sinks --- */

static int sink_open(stk_gang *g, uint32_t i, int fd, stk_err *err)
{
    launch_sink *s = &g->sinks[i];
    *s = (launch_sink){.fd = fd, .pending = STK_BUF_INIT(SIZE_MAX / 4)};
    if (stk_launch_watch(g, fd, 0, LAUNCH_EV_WRITE, i) == 0) {
        s->polled = true;
    } else if (errno == EEXIST) { /* both sinks have the same descriptor: epoll watches it once */
        s->polled = false;
    } else if (errno != EPERM) { /* EPERM: a file */
        return stk_err_sys(err, STK_E_SYS, errno, "cannot write to descriptor %d", fd);
    }
    return 0;
}

int stk_launch_view_open(stk_gang *g, stk_err *err)
{
    stk_launch_live_open(g);
    STK_TRY(sink_open(g, 0, g->config->out_fd, err));
    return sink_open(g, 1, g->config->err_fd, err);
}

void stk_launch_view_close(stk_gang *g)
{
    stk_buf_done(&g->sinks[0].pending);
    stk_buf_done(&g->sinks[1].pending);
}

static void poll_sink(stk_gang *g, uint32_t i, bool on)
{
    launch_sink *s = &g->sinks[i];
    if (s->polled && s->waiting != on) {
        struct epoll_event e = {.data.u64 = (uint64_t)LAUNCH_EV_WRITE << 32 | i};
        if (on) {
            e.events = EPOLLOUT;
        }
        (void)epoll_ctl(g->epoll, EPOLL_CTL_MOD, s->fd, &e);
        s->waiting = on;
    }
}

/* Writes as much as possible without blocking: a pipe that poll reports writable takes a page at
 * once. Returns whether it wrote anything. */
static bool sink_push(launch_sink *s)
{
    size_t done = 0;
    while (done < s->pending.len && !s->gone) {
        struct pollfd p = {.fd = s->fd, .events = POLLOUT};
        if (poll(&p, 1, 0) != 1) {
            break;
        }
        size_t n = s->pending.len - done;
        const char *from = s->pending.data + done;
        if (n > PIPE_BUF) {
            const char *end = memrchr(from, '\n', PIPE_BUF);
            n = end == NULL ? PIPE_BUF : (size_t)(end + 1 - from);
        }
        ssize_t wrote = write(s->fd, from, n); /* whole lines: other nodes may write here, too */
        if (wrote < 0 && errno != EINTR && errno != EAGAIN) {
            s->gone = true; /* the log files are still complete */
        }
        if (wrote < 0 && errno == EAGAIN) {
            break;
        }
        done += (size_t)MAX(wrote, 0);
    }
    size_t left = s->pending.len - done;
    if (s->gone) {
        left = 0;
    }
    if (left > 0 && done > 0) {
        memmove(s->pending.data, s->pending.data + done, left);
    }
    if (left == 0) {
        stk_buf_clear(&s->pending);
    } else {
        s->pending.len = left;
        s->pending.data[left] = '\0';
    }
    return done > 0 || s->gone;
}

static void pause_streams(stk_gang *g, uint32_t i_sink, bool on)
{
    for (uint32_t i = 0; i < 2 * g->n; i++) {
        launch_stream *s = &g->ranks[i / 2].streams[i % 2];
        if (stk_launch_live_sink(g, i) == i_sink && s->fd >= 0 && s->paused != on) {
            if (on) { /* remove it instead of clearing its events: epoll always reports a closed
                         pipe */
                stk_launch_unwatch(g, s->fd);
            } else {
                (void)stk_launch_watch(g, s->fd, EPOLLIN, LAUNCH_EV_READ, i);
            }
            s->paused = on;
        }
    }
}

void stk_launch_sink_write(stk_gang *g, uint32_t i_sink)
{
    launch_sink *s = &g->sinks[i_sink];
    (void)sink_push(s);
    poll_sink(g, i_sink, s->pending.len > 0);
    pause_streams(g, i_sink, s->pending.len > LAUNCH_PENDING);
}

void stk_launch_view_flush(stk_gang *g, int timeout_ms)
{
    for (uint32_t i = 0; i < 2; i++) {
        launch_sink *s = &g->sinks[i];
        int64_t end = stk_launch_now_ms() + timeout_ms;
        while (s->pending.len > 0 && stk_launch_now_ms() < end) {
            struct pollfd p = {.fd = s->fd, .events = POLLOUT};
            (void)poll(&p, 1, 20);
            if (sink_push(s)) {
                end = stk_launch_now_ms() + timeout_ms;
            }
        }
        poll_sink(g, i, s->pending.len > 0);
    }
}

/* --- lines --- */

/* Whether `which` (NULL: both) has this stream. */
static bool has_stream(const unsigned char *which, uint32_t i_stream)
{
    return which == NULL || (which[i_stream / 2] & (STK_LAUNCH_OUT << i_stream % 2)) != 0;
}

bool stk_launch_is_shown(const stk_gang *g, uint32_t i_stream)
{
    return has_stream(g->config->shown, i_stream);
}

static bool has_text(const char *line, size_t n, const char *const *texts)
{
    for (; *texts != NULL; texts++) {
        if (memmem(line, n, *texts, strlen(*texts)) != NULL) {
            return true;
        }
    }
    return false;
}

/* Copies a line to filtered_stdout.log or filtered_stderr.log if it has one of the texts. */
static void copy_line(stk_gang *g, uint32_t i_stream, const char *line, size_t n)
{
    static const char *const names[] = {"stdout", "stderr"};
    const char *const *texts = g->config->copied[i_stream % 2];
    char path[PATH_MAX];
    if (texts == NULL || g->config->dir == NULL || !has_text(line, n, texts)) {
        return;
    }
    (void)snprintf(path, sizeof path, "%s/filtered_%s.log", g->config->dir, names[i_stream % 2]);
    STK_BUF_AUTO text = STK_BUF_INIT(4 * LAUNCH_LINE);
    stk_buf_printf(&text, "[%u] %.*s\n", stk_launch_number(g, i_stream / 2), (int)n, line);
    STK_FD_AUTO fd = stk_file_open_regular(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd < 0 || stk_file_write_all(fd, stk_text_or(text.data, ""), text.len) < 0) {
        stk_launch_say(g, "%s is not whole: %s", path, strerror(errno));
    }
}

static void emit(stk_gang *g, uint32_t i_stream, const char *text, size_t n)
{
    uint32_t i_sink = stk_launch_live_sink(g, i_stream);
    stk_buf *out = &g->sinks[i_sink].pending;
    n -= n > 0 && text[n - 1] == '\r';
    const char *shown = memrchr(text, '\r', n); /* what a terminal would show */
    if (shown != NULL) {
        n -= (size_t)(shown + 1 - text);
        text = shown + 1;
    }
    copy_line(g, i_stream, text, n);
    if (g->sinks[i_sink].gone) {
        return;
    }
    if (i_sink == 1) {
        stk_launch_live_erase(g);
    }
    if (!g->config->no_prefix) {
        (void)stk_buf_printf(out, "[%u] ", stk_launch_number(g, i_stream / 2));
    }
    (void)stk_buf_add(out, text, n);
    (void)stk_buf_char(out, '\n');
}

/* Of a line that is being redrawn only its last state counts. */
static void keep_last_state(stk_buf *line)
{
    size_t n = line->len;
    n -= n > 0 && line->data[n - 1] == '\r';
    const char *from = n == 0 ? NULL : memrchr(line->data, '\r', n);
    if (from != NULL) {
        line->len -= (size_t)(from - line->data);
        memmove(line->data, from, line->len);
    }
}

static void take_output(stk_gang *g, uint32_t i_stream, const char *data, size_t n)
{
    launch_stream *s = &g->ranks[i_stream / 2].streams[i_stream % 2];
    while (n > 0) {
        const char *end = memchr(data, '\n', n);
        size_t len = n;
        if (end != NULL) {
            len = (size_t)(end - data);
        }
        if (end != NULL && s->line.len == 0) {
            emit(g, i_stream, data, len);
        } else {
            (void)stk_buf_add(&s->line, data, len);
            keep_last_state(&s->line);
            stk_launch_live_changed(g);
            if (end != NULL || s->line.len >= LAUNCH_LINE) {
                emit(g, i_stream, stk_text_or(s->line.data, ""), s->line.len);
                stk_buf_clear(&s->line);
            }
        }
        len += end != NULL;
        data += len;
        n -= len;
    }
}

void stk_launch_view_line(stk_gang *g, const char *text, size_t n)
{
    stk_launch_live_erase(g);
    (void)stk_buf_add(&g->sinks[1].pending, text, n);
    (void)stk_buf_char(&g->sinks[1].pending, '\n');
    stk_launch_sink_write(g, 1);
}

static void keep_tail(launch_rank *r, const char *data, size_t n)
{
    if (n > LAUNCH_TAIL) {
        data += n - LAUNCH_TAIL;
        n = LAUNCH_TAIL;
    }
    size_t keep = MIN(r->n_tail, (size_t)LAUNCH_TAIL - n);
    memmove(r->tail, r->tail + r->n_tail - keep, keep);
    memcpy(r->tail + keep, data, n);
    r->n_tail = keep + n;
    r->tail[r->n_tail] = '\0';
}

/* --- streams --- */

static int make_rank_folder(stk_gang *g, uint32_t rank, stk_err *err)
{
    char path[PATH_MAX];
    uint32_t number = stk_launch_number(g, rank);
    if ((size_t)snprintf(path, sizeof path, "%s/rank-%u", g->config->dir, number) >=
        PATH_MAX - 16) {
        return stk_err_set(err, STK_E_LIMIT, "%s: the path is too long", g->config->dir);
    }
    if (mkdir(path, 0755) < 0 && errno != EEXIST) {
        return stk_err_sys(err, STK_E_SYS, errno, "making folder %s", path);
    }
    return 0;
}

static int open_rank_log(stk_gang *g, uint32_t rank, const char *name, int *ret_fd, stk_err *err)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/rank-%u/%s.log", g->config->dir,
                   stk_launch_number(g, rank), name);
    *ret_fd = stk_file_open_regular(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (*ret_fd < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "cannot write %s", path);
    }
    return 0;
}

int stk_launch_streams_open(stk_gang *g, uint32_t rank, int ret_theirs[2], stk_err *err)
{
    static const char *const names[] = {"stdout", "stderr"};
    for (uint32_t i = 0; i < 2; i++) {
        launch_stream *s = &g->ranks[rank].streams[i];
        int ends[2];
        if (g->config->dir != NULL && s->log < 0) {
            STK_TRY(make_rank_folder(g, rank, err));
        }
        if (g->config->dir != NULL && s->log < 0 && has_stream(g->config->logged, 2 * rank + i)) {
            STK_TRY(open_rank_log(g, rank, names[i], &s->log, err));
        }
        if (pipe2(ends, O_CLOEXEC) < 0) {
            return stk_err_sys(err, STK_E_SYS, errno, "a pipe for rank %u", rank);
        }
        (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
        s->fd = ends[0];
        s->paused = false;
        s->line.max = 2 * LAUNCH_LINE + CHUNK;
        s->shown.max = SIZE_MAX / 4;
        s->mask.mask = g->config->mask;
        ret_theirs[i] = ends[1];
        if (stk_launch_watch(g, s->fd, EPOLLIN, LAUNCH_EV_READ, 2 * rank + i) < 0) {
            return stk_err_sys(err, STK_E_SYS, errno, "watching rank %u", rank);
        }
    }
    return 0;
}

/* Passes data to the log, the tail and the view. */
static void pass_on(stk_gang *g, uint32_t i_stream, const char *data, size_t n)
{
    launch_rank *r = &g->ranks[i_stream / 2];
    launch_stream *s = &r->streams[i_stream % 2];
    if (s->log >= 0 && stk_file_write_all(s->log, data, n) < 0) {
        stk_launch_say(g, "rank-%u's log is incomplete: %s", stk_launch_number(g, i_stream / 2),
                       strerror(errno));
        stk_file_close(&s->log);
    }
    if (i_stream % 2 == 1) {
        keep_tail(r, data, n);
    }
    if (has_stream(g->config->shown, i_stream)) {
        take_output(g, i_stream, data, n);
    }
}

static void stream_close(stk_gang *g, uint32_t i_stream)
{
    launch_stream *s = &g->ranks[i_stream / 2].streams[i_stream % 2];
    stk_buf_clear(&s->shown);
    stk_mask_end(&s->mask, &s->shown);
    if (s->shown.len > 0) {
        pass_on(g, i_stream, s->shown.data, s->shown.len);
    }
    stk_buf_done(&s->shown);
    if (s->line.len > 0) {
        emit(g, i_stream, s->line.data, s->line.len);
    }
    stk_buf_done(&s->line);
    if (s->fd >= 0 && !s->paused) {
        stk_launch_unwatch(g, s->fd);
    }
    stk_file_close(&s->fd);
    stk_file_close(&s->log);
}

/* Reads once; false: no data now. */
static bool read_once(stk_gang *g, uint32_t i_stream)
{
    launch_stream *s = &g->ranks[i_stream / 2].streams[i_stream % 2];
    char data[CHUNK];
    if (s->fd < 0) {
        return false;
    }
    ssize_t n = read(s->fd, data, sizeof data);
    if (n == 0) {
        stream_close(g, i_stream);
        return false;
    }
    if (n < 0) {
        return errno == EINTR;
    }
    g->log_bytes += (uint64_t)n;
    if (s->mask.mask == NULL) {
        pass_on(g, i_stream, data, (size_t)n);
        return true;
    }
    stk_buf_clear(&s->shown);
    if (stk_mask_push(&s->mask, data, (size_t)n, &s->shown) < 0) {
        stk_launch_say(g, "rank-%u's log is incomplete: out of memory",
                       stk_launch_number(g, i_stream / 2));
    } else if (s->shown.len > 0) {
        pass_on(g, i_stream, s->shown.data, s->shown.len);
    }
    return true;
}

void stk_launch_stream_read(stk_gang *g, uint32_t i_stream)
{
    for (int i = 0; i < READS_PER_TURN && read_once(g, i_stream); i++) {
    }
    if (g->live.erased) {
        stk_launch_live_draw(g);
    }
    stk_launch_sink_write(g, stk_launch_live_sink(g, i_stream));
}

void stk_launch_streams_drain(stk_gang *g, uint32_t rank)
{
    for (uint32_t i = 2 * rank; i < 2 * rank + 2; i++) {
        uint32_t i_sink = stk_launch_live_sink(g, i);
        launch_sink *sink = &g->sinks[i_sink];
        while (read_once(g, i)) {
            if (sink->pending.len > LAUNCH_PENDING) {
                stk_launch_view_flush(g, 1000);
                if (sink->pending.len > LAUNCH_PENDING) {
                    sink->gone = true; /* stuck reader; the logs have all */
                    stk_buf_clear(&sink->pending);
                }
            }
        }
        stream_close(g, i);
        stk_launch_sink_write(g, i_sink);
    }
}
