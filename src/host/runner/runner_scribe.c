#include "host/runner/runner_scribe.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/runner/runner_mask.h"
#include "sys/file.h"
#include "sys/old.h"

enum {
    CHUNK = 64 << 10,
    PIPE_BYTES = 256 << 10,
    LAST_BYTES = 4 << 20, /* read after the task's end, if another process keeps writing */
    LAST_MS = 1000,
    FIRST_FD = 3, /* pipes, logs, the engine's socket */
    N_FDS = 5
};

/* One of two buffers for text that was read but not yet written. A write of its first `writing`
 * bytes to the log is under way; before it the log's size was `log_at`. */
typedef struct half {
    int64_t log_at;
    _Atomic uint32_t writing;
} half;

/* The journal of one stream. `state` has the half in use, the bytes in it, and the size of the read
 * under way: one word, so that a successor sees a consistent state. */
typedef struct journal {
    _Atomic uint64_t state, lost, progress;
    _Atomic int lost_errno;
    _Atomic bool is_ended;
    half halves[2];
} journal;

typedef struct shared {
    unsigned char unread[CHUNK]; /* random bytes that fill a buffer before each read */
    journal streams[2];
    char places[]; /* of stream s, half h: `cap` bytes of text, `cap` stars */
} shared;

struct stk_scribe {
    stk_mask *mask;
    shared *shared;
    size_t n_shared, cap;
    int fds[N_FDS]; /* pipes (reading), logs, and the engine's end of the socket */
    int word;       /* the process's end of the socket */
    pid_t pid;
    int pidfd;
    bool is_told; /* the process was told to end */
};

/* --- the journal --- */

static uint64_t state_of(unsigned h, size_t n, size_t reading)
{
    return (uint64_t)h << 63 | (uint64_t)n << 32 | reading;
}

static unsigned half_in(uint64_t state)
{
    return (unsigned)(state >> 63);
}

static size_t bytes_in(uint64_t state)
{
    return (size_t)(state >> 32 & 0x7fffffff);
}

static char *text_of(const stk_scribe *s, unsigned stream, unsigned h)
{
    return s->shared->places + ((size_t)stream * 2 + h) * 2 * s->cap;
}

static unsigned char *stars_of(const stk_scribe *s, unsigned stream, unsigned h)
{
    return (unsigned char *)text_of(s, stream, h) + s->cap;
}

/* --- the process --- */

/* The log has the first `n` bytes of the half: moves the rest to the other half. */
static void turn_over(const stk_scribe *s, unsigned stream, size_t n)
{
    journal *j = &s->shared->streams[stream];
    uint64_t state = atomic_load(&j->state);
    unsigned h = half_in(state);
    size_t left = bytes_in(state) - n;
    memcpy(text_of(s, stream, 1 - h), text_of(s, stream, h) + n, left);
    memcpy(stars_of(s, stream, 1 - h), stars_of(s, stream, h) + n, left);
    atomic_store(&j->halves[1 - h].writing, 0);
    atomic_store(&j->state, state_of(1 - h, left, 0));
    atomic_fetch_add(&j->progress, 1);
}

/* Writes the first `n` bytes of the half to the log, which already has `done` of them. Bytes that
 * can't be written are lost and counted: a full disk doesn't stop a step. */
static void write_out(const stk_scribe *s, unsigned stream, size_t n, size_t done)
{
    static char out[CHUNK];
    journal *j = &s->shared->streams[stream];
    unsigned h = half_in(atomic_load(&j->state));
    const char *text = text_of(s, stream, h);
    const unsigned char *stars = stars_of(s, stream, h);
    while (done < n) {
        size_t len = MIN(n - done, sizeof out);
        for (size_t i = 0; i < len; i++) {
            out[i] = stars[done + i] ? '*' : text[done + i];
        }
        ssize_t wrote = write(FIRST_FD + 2 + (int)stream, out, len);
        if (wrote < 0 && errno != EINTR) {
            atomic_store(&j->lost_errno, errno);
            atomic_fetch_add(&j->lost, n - done);
            break;
        }
        done += (size_t)MAX(wrote, 0);
    }
    turn_over(s, stream, n);
}

static int64_t log_size(unsigned stream)
{
    struct stat st;
    return fstat(FIRST_FD + 2 + (int)stream, &st) == 0 ? st.st_size : 0;
}

static void begin_write(const stk_scribe *s, unsigned stream, size_t n)
{
    journal *j = &s->shared->streams[stream];
    half *h = &j->halves[half_in(atomic_load(&j->state))];
    h->log_at = log_size(stream);
    atomic_store(&h->writing, (uint32_t)n);
    write_out(s, stream, n, 0);
}

static void write_sure(const stk_scribe *s, unsigned stream, bool to_end)
{
    uint64_t state = atomic_load(&s->shared->streams[stream].state);
    unsigned h = half_in(state);
    size_t n = bytes_in(state);
    size_t held = stk_mask_mark(s->mask, text_of(s, stream, h), n, stars_of(s, stream, h));
    size_t sure = to_end ? n : n - held;
    if (sure > 0) {
        begin_write(s, stream, sure);
    }
}

/* Returns how many bytes it read; 0: nothing to read now. If the process dies here, it has read all
 * of them or none; the buffer's contents show which. */
static size_t read_some(const stk_scribe *s, unsigned stream)
{
    journal *j = &s->shared->streams[stream];
    uint64_t state = atomic_load(&j->state);
    unsigned h = half_in(state);
    size_t n = bytes_in(state);
    int there = 0;
    if (ioctl(FIRST_FD + (int)stream, FIONREAD, &there) < 0 || there <= 0) {
        return 0;
    }
    size_t len = MIN((size_t)there, CHUNK);
    memcpy(text_of(s, stream, h) + n, s->shared->unread, len);
    memset(stars_of(s, stream, h) + n, 0, len);
    atomic_store(&j->state, state_of(h, n, len));
    ssize_t got = read(FIRST_FD + (int)stream, text_of(s, stream, h) + n, len);
    len = (size_t)MAX(got, 0);
    atomic_store(&j->state, state_of(h, n + len, 0));
    return len;
}

/* Continues where the previous process stopped. */
static void go_on(const stk_scribe *s, unsigned stream)
{
    journal *j = &s->shared->streams[stream];
    uint64_t state = atomic_load(&j->state);
    unsigned h = half_in(state);
    size_t n = bytes_in(state), reading = (uint32_t)state;
    size_t writing = atomic_load(&j->halves[h].writing);
    if (reading > 0) {
        bool was_read = memcmp(text_of(s, stream, h) + n, s->shared->unread, reading) != 0;
        atomic_store(&j->state, state_of(h, was_read ? n + reading : n, 0));
    }
    if (writing > 0) {
        int64_t done = MAX(log_size(stream) - j->halves[h].log_at, 0);
        write_out(s, stream, writing, MIN((size_t)done, writing));
    }
    write_sure(s, stream, false);
}

static void end_stream(const stk_scribe *s, unsigned stream)
{
    write_sure(s, stream, true);
    atomic_store(&s->shared->streams[stream].is_ended, true);
}

static _Noreturn void finish_streams(const stk_scribe *s)
{
    for (unsigned i = 0; i < 2; i++) {
        size_t n = 1;
        for (size_t all = 0; n > 0 && all < LAST_BYTES; all += n) {
            n = read_some(s, i);
            write_sure(s, i, false);
        }
        if (!atomic_load(&s->shared->streams[i].is_ended)) {
            end_stream(s, i);
        }
    }
    _exit(0);
}

static _Noreturn void serve(const stk_scribe *s)
{
    struct pollfd on[3] = {{.fd = FIRST_FD, .events = POLLIN},
                           {.fd = FIRST_FD + 1, .events = POLLIN},
                           {.fd = FIRST_FD + 4, .events = POLLIN}};
    for (unsigned i = 0; i < 2; i++) {
        go_on(s, i);
        if (atomic_load(&s->shared->streams[i].is_ended)) {
            on[i].fd = -1;
        }
    }
    while (on[0].fd >= 0 || on[1].fd >= 0) {
        char word;
        (void)poll(on, 3, -1);
        for (unsigned i = 0; i < 2; i++) {
            if (on[i].fd >= 0 && on[i].revents != 0) {
                if (read_some(s, i) > 0) {
                    write_sure(s, i, false);
                } else if ((on[i].revents & POLLIN) == 0) { /* no writer is left */
                    end_stream(s, i);
                    on[i].fd = -1;
                }
            }
        }
        if (on[2].fd >= 0 && on[2].revents != 0) {
            if (recv(on[2].fd, &word, 1, MSG_DONTWAIT | MSG_PEEK) == 1) {
                finish_streams(s);
            }
            on[2].fd = -1; /* the engine has ended: continue until no writer is left */
        }
    }
    _exit(0);
}

/* A forked process without exec needs only what is in memory: no program file that may have been
 * replaced, and no argument or variable that exposes the values. It stays in our session, because
 * the cleanup after a task goes by the task's sessions. */
static _Noreturn void be_scribe(const stk_scribe *s)
{
    sigset_t all;
    int high[N_FDS];
    sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL); /* all but SIGKILL: Ctrl-C must not end us */
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_NAME, STK_SCRIBE_NAME, 0, 0, 0);
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < N_FDS; i++) {
        int fd = i == N_FDS - 1 ? s->word : s->fds[i];
        high[i] = fcntl(fd, F_DUPFD, FIRST_FD + N_FDS);
    }
    for (int i = 0; i < FIRST_FD; i++) {
        (void)dup2(null, i);
    }
    for (int i = 0; i < N_FDS; i++) {
        if (dup2(high[i], FIRST_FD + i) < 0) {
            _exit(1);
        }
    }
    stk_sys_close_range(FIRST_FD + N_FDS, ~0u, false);
    if (chdir("/") != 0) {
        _exit(1);
    }
    serve(s);
}

static int start_scribe(stk_scribe *s, stk_err *err)
{
    pid_t pid = fork();
    if (pid == 0) {
        be_scribe(s);
    }
    if (pid < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "cannot start the process that hides secrets");
    }
    s->pid = pid;
    s->pidfd = stk_sys_pidfd(pid);
    if (s->pidfd >= 0) {
        return 0;
    }
    return stk_err_sys(err, STK_E_SYS, errno, "cannot watch the process that hides secrets");
}

/* --- the engine's side --- */

static int open_scribe_log(const char *dir, const char *name, int *ret_fd, stk_err *err)
{
    char path[PATH_MAX];
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, name) >= sizeof path) {
        return stk_err_set(err, STK_E_LIMIT, "%s: the path is too long", dir);
    }
    *ret_fd = stk_file_open_regular(path, O_RDWR | O_CREAT | O_APPEND, 0600);
    if (*ret_fd < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "cannot write %s", path);
    }
    (void)fcntl(*ret_fd, F_OFD_SETLK, &lock); /* shows later that we write */
    return 0;
}

static int open_pipe(int *ret_from, int *ret_to, stk_err *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "a pipe for a step's output");
    }
    (void)fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES); /* fails if the user's pipe quota is used up */
    *ret_from = ends[0];
    *ret_to = ends[1];
    return 0;
}

static int make_journal(stk_scribe *s, stk_err *err)
{
    s->cap = CHUNK + stk_mask_reach(s->mask);
    s->n_shared = sizeof *s->shared + 8 * s->cap;
    void *map = mmap(NULL, s->n_shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        return stk_err_sys(err, STK_E_NOMEM, errno, "memory for a step's output");
    }
    s->shared = map;
    unsigned char some[256];
    if (getrandom(some, sizeof some, 0) != (ssize_t)sizeof some) {
        return stk_err_sys(err, STK_E_SYS, errno, "random bytes");
    }
    for (size_t i = 0; i < CHUNK; i++) {
        s->shared->unread[i] = some[i % sizeof some];
    }
    return 0;
}

/* Opens journal, logs and pipes, then starts the process. */
static int open_streams(stk_scribe *s, const char *dir, int ret_to[2], stk_err *err)
{
    int words[2];
    STK_TRY(make_journal(s, err));
    STK_TRY(open_scribe_log(dir, "stdout.log", &s->fds[2], err));
    STK_TRY(open_scribe_log(dir, "stderr.log", &s->fds[3], err));
    STK_TRY(open_pipe(&s->fds[0], &ret_to[0], err));
    STK_TRY(open_pipe(&s->fds[1], &ret_to[1], err));
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, words) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "a socket pair");
    }
    s->fds[4] = words[0];
    s->word = words[1];
    return start_scribe(s, err);
}

int stk_scribe_open(const char *dir, const char *const *values, int ret_fds[2],
                    stk_scribe **ret_scribe, stk_err *err)
{
    int to[2] = {-1, -1};
    stk_mask *mask = NULL;
    int rc = stk_mask_new(values, &mask, err);
    *ret_scribe = NULL;
    if (rc < 0 || mask == NULL) {
        return rc;
    }
    stk_scribe *s = calloc(1, sizeof *s);
    if (s == NULL) {
        stk_mask_free(mask);
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "%s", dir);
    }
    *s = (stk_scribe){.mask = mask, .fds = {-1, -1, -1, -1, -1}, .word = -1, .pidfd = -1};
    rc = open_streams(s, dir, to, err);
    if (rc < 0) {
        stk_file_close(&to[0]);
        stk_file_close(&to[1]);
        stk_scribe_close(s);
        return rc;
    }
    memcpy(ret_fds, to, sizeof to);
    *ret_scribe = s;
    return 0;
}

int stk_scribe_fd(const stk_scribe *scribe)
{
    return scribe->pidfd;
}

pid_t stk_scribe_pid(const stk_scribe *scribe)
{
    return scribe->pid;
}

void stk_scribe_finish(stk_scribe *scribe)
{
    scribe->is_told = true;
    (void)send(scribe->fds[4], "f", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool stk_scribe_is_done(const stk_scribe *scribe)
{
    return atomic_load(&scribe->shared->streams[0].is_ended) &&
           atomic_load(&scribe->shared->streams[1].is_ended);
}

static void reap(stk_scribe *s)
{
    while (s->pid > 0 && waitpid(s->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    s->pid = 0;
    stk_file_close(&s->pidfd);
}

int stk_scribe_renew(stk_scribe *scribe, stk_err *err)
{
    reap(scribe);
    return start_scribe(scribe, err);
}

void stk_scribe_kill(stk_scribe *scribe)
{
    if (scribe->pid > 0) {
        (void)kill(scribe->pid, SIGKILL);
    }
}

uint64_t stk_scribe_progress(const stk_scribe *scribe)
{
    return atomic_load(&scribe->shared->streams[0].progress) +
           atomic_load(&scribe->shared->streams[1].progress);
}

uint64_t stk_scribe_lost(const stk_scribe *scribe, int *ret_errno)
{
    const journal *j = scribe->shared->streams;
    uint64_t first = atomic_load(&j[0].lost);
    *ret_errno = atomic_load(&j[first == 0].lost_errno);
    return first + atomic_load(&j[1].lost);
}

void stk_scribe_close(stk_scribe *scribe)
{
    if (scribe == NULL) {
        return;
    }
    struct pollfd on = {.fd = scribe->pidfd, .events = POLLIN};
    if (scribe->pid > 0 && poll(&on, 1, scribe->is_told ? LAST_MS : 0) == 1) {
        reap(scribe);
    }
    for (int i = 0; i < N_FDS; i++) {
        stk_file_close(&scribe->fds[i]);
    }
    stk_file_close(&scribe->word);
    stk_file_close(&scribe->pidfd);
    if (scribe->shared != NULL) {
        (void)munmap(scribe->shared, scribe->n_shared);
    }
    stk_mask_free(scribe->mask);
    free(scribe);
}
