/* Fork servers, the engine's side of docs/formats/server-protocol.md. The front's server has
 * everything imported; a clean one is a fresh interpreter of ours, for what the front's can't fork
 * safely. */
#include "host/backend/backend_local_server.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "host/backend/backend_local.h"
#include "sys/file.h"
#include "sys/forkserver.h"
#include "sys/spawn.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

enum { RETRY_MS = 20, LAST_WORDS_MS = 200, QUIT_MS = 2000 };

struct local_server {
    local_ev ev;
    stk_wire wire;
    pid_t child; /* 0: not our child */
    bool ours;   /* a clean one, started here */
    bool hello;
    bool killed;    /* by us: its end needs no explanation */
    bool wants_out; /* epoll tells us when it can take more */
    int log;        /* ours: a memory file with its stderr; -1 */
    uint32_t slot;
    stk_arena *arena; /* of one message */
};

/* --- its life --- */

int stk_local_server_new(local_backend *b, int fd, local_server **ret_server, stk_err *err)
{
    local_server *s = calloc(1, sizeof *s);
    stk_arena *arena = stk_arena_new(4 * (size_t)STK_LIMIT_MESSAGE_BYTES);
    if (s == NULL || arena == NULL) {
        free(s);
        stk_arena_free(arena);
        stk_file_close(&fd);
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "fork server");
    }
    *s = (local_server){.ev = LOCAL_EV_SERVER,
                        .wire = {.fd = fd},
                        .log = -1,
                        .slot = LOCAL_NO_SLOT,
                        .arena = arena};
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0 || stk_local_watch_fd(b, fd, EPOLLIN, s, false) < 0) {
        (void)stk_err_sys(err, STK_E_SYS, errno, "fork server on descriptor %d", fd);
        stk_local_server_close(b, s);
        return STK_E_SYS;
    }
    *ret_server = s;
    return 0;
}

pid_t stk_local_server_child(const local_server *server)
{
    return server->child;
}

static bool is_reaped(local_server *s, int timeout_ms, int *ret_status)
{
    for (int64_t end = stk_local_now_ms() + timeout_ms;;) {
        pid_t got = waitpid(s->child, ret_status, WNOHANG);
        if (got != 0 && !(got < 0 && errno == EINTR)) {
            return true;
        }
        if (stk_local_now_ms() >= end) {
            return false;
        }
        struct timespec wait = {.tv_nsec = 1000000};
        (void)nanosleep(&wait, NULL);
    }
}

void stk_local_server_kill(local_server *server)
{
    if (server->child > 0) {
        (void)kill(server->child, SIGKILL);
    }
    server->killed = true;
    (void)shutdown(server->wire.fd, SHUT_RDWR);
}

/* Closes the socket: a server that is well then ends its tasks and itself. */
void stk_local_server_close(local_backend *b, local_server *server)
{
    if (server == NULL) {
        return;
    }
    int status;
    stk_local_unwatch_fd(b, &server->wire.fd);
    if (server->child > 0 && !is_reaped(server, QUIT_MS, &status)) {
        (void)kill(server->child, SIGKILL);
        (void)is_reaped(server, QUIT_MS, &status);
    }
    stk_guard_remove(b->guard, server->slot);
    stk_wire_done(&server->wire);
    stk_file_close(&server->log);
    stk_arena_free(server->arena);
    free(server);
}

static int spawn_clean(local_backend *b, int fd, int log, pid_t *ret_pid, stk_err *err)
{
    char number[16];
    (void)snprintf(number, sizeof number, "%d", fd);
    const char *argv[] = {
        b->python, "-m", "stoker._worker.server", "--fd", number, "--main", b->main_file, NULL,
    };
    if (b->main_file == NULL) {
        argv[5] = NULL;
    }
    stk_spawn spawn = {.argv = argv,
                       .env = (const char *const *)environ,
                       .stdin_fd = -1,
                       .stdout_fd = -1, /* what the user's file prints was printed before */
                       .stderr_fd = log,
                       .keep_fds = &fd,
                       .n_keep_fds = 1,
                       .n_files = &b->n_files,
                       .die_with_parent = true,
                       .new_session = true,
                       .no_new_privs = true};
    return stk_sys_spawn(&spawn, ret_pid, NULL, err);
}

static int start_clean(local_backend *b, stk_err *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "socket pair for a fork server");
    }
    STK_FD_AUTO theirs = pair[1];
    local_server *s = NULL;
    STK_TRY(stk_local_server_new(b, pair[0], &s, err));
    s->ours = true;
    s->log = memfd_create("stoker-server-stderr", MFD_CLOEXEC);
    int rc = spawn_clean(b, theirs, s->log, &s->child, err);
    if (rc < 0) {
        s->child = 0;
        stk_err_hint(err, "Python steps need an interpreter that has Stoker installed; --python "
                          "names one");
        stk_local_server_close(b, s);
        return rc;
    }
    (void)stk_guard_add(b->guard, s->child, &s->slot, NULL);
    b->clean = s;
    return 0;
}

/* The last line it wrote to stderr: for an interpreter that didn't come up, the reason. */
static void last_words(local_server *s, char *buf, size_t size)
{
    char text[4097];
    off_t end = lseek(s->log, 0, SEEK_END);
    ssize_t n = pread(s->log, text, 4096, MAX(end - 4096, 0));
    buf[0] = '\0';
    if (n <= 0) {
        return;
    }
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r')) {
        n--;
    }
    text[n] = '\0';
    (void)snprintf(buf, size, ": %.300s", stk_text_behind(text, '\n'));
}

static void adopt(local_backend *b, local_task *t)
{
    t->lost_server = true;
    t->direct = true;
    if (t->pidfd < 0) {
        t->pidfd = (int)syscall(SYS_pidfd_open, t->pid, 0);
    }
    if (t->pidfd < 0 || stk_local_watch_fd(b, t->pidfd, EPOLLIN, t, false) < 0) {
        t->gone_ms = stk_local_now_ms(); /* reaped by the timers, or lost */
        stk_local_due(b, t->gone_ms);
    }
}

static void resubmit(local_backend *b, local_task *t)
{
    stk_err err = {0};
    t->state = LOCAL_QUEUED;
    t->n_sent = 0;
    t->server = NULL;
    if (stk_local_server_submit(b, t, NULL, &err) < 0) {
        char text[600];
        stk_local_task_not_started(b, t, STK_FAIL_START, stk_err_format(&err, text, sizeof text));
    }
}

/* How a server ended that nobody told to: once said in the run's notes, or it can never be found
 * out. */
static void note_end(local_backend *b, const local_server *s, pid_t pid, int status,
                     const char *words)
{
    for (uint32_t i = 0; i < b->n_tasks; i++) {
        const local_task *t = b->tasks[i];
        if (t->server == s && (t->state == LOCAL_RUNNING || t->state == LOCAL_SENT)) {
            char how[64];
            if (WIFSIGNALED(status)) {
                (void)snprintf(how, sizeof how, "was killed by signal %d, not by Stoker",
                               WTERMSIG(status));
            } else {
                (void)snprintf(how, sizeof how, "ended with status %d", WEXITSTATUS(status));
            }
            stk_local_note(b, t, "the fork server (process %d) %s%s; another one goes on", (int)pid,
                           how, words);
            return;
        }
    }
}

/* The server is gone. What it had running lives on as ours; what it was about to start may have
 * begun, so that is lost and tried again as a new attempt; what it never saw goes elsewhere. */
static void server_died(local_backend *b, local_server *s, const char *why)
{
    int status = -1; /* stays so where it doesn't end, or isn't ours to ask */
    char words[320], text[512];
    pid_t child = s->child;
    bool by_itself = false;
    stk_local_unwatch_fd(b, &s->wire.fd);
    if (s->child > 0) {
        bool ended = is_reaped(s, LAST_WORDS_MS, &status);
        by_itself = ended && status >= 0 && !s->killed;
        if (!ended) {
            (void)kill(s->child, SIGKILL);
            (void)is_reaped(s, LAST_WORDS_MS, &status);
        }
        s->child = 0;
    }
    last_words(s, words, sizeof words);
    bool never_up = s->ours && !s->hello;
    if (by_itself && !never_up) {
        note_end(b, s, child, status, words);
    }
    if (never_up) {
        (void)snprintf(
            text, sizeof text,
            "Python could not be started for it: '%s -m stoker._worker.server' ended%s%s",
            b->python, why, words);
    } else {
        (void)snprintf(text, sizeof text, "its fork server ended while starting it%s%s", why,
                       words);
    }
    if (b->given == s) {
        b->given = NULL;
    }
    if (b->clean == s) {
        b->clean = NULL;
    }
    for (uint32_t i = b->n_tasks; i-- > 0;) {
        local_task *t = b->tasks[i];
        if (t->server != s) {
            continue;
        }
        t->server = NULL;
        if (t->state == LOCAL_RUNNING) {
            adopt(b, t);
        } else if (t->state == LOCAL_SENT) {
            bool stopped = t->stopped_for != STK_FAIL_NONE; /* it was what hung */
            const char *how = text;
            if (stopped || stk_local_now_ms() >= t->start_ms + b->server_ms) {
                how = "its fork server did not start it in time";
            }
            stk_local_task_not_started(b, t, stopped ? t->stopped_for : STK_FAIL_LOST, how);
        } else if (never_up) {
            stk_local_task_not_started(b, t, STK_FAIL_START, text);
        } else if (t->state == LOCAL_QUEUED) {
            resubmit(b, t);
        }
    }
    stk_local_server_close(b, s);
}

/* --- what we say --- */

static int make_message(local_task *t, const stk_job *j, stk_err *err)
{
    stk_server_spawn spawn = {.id = t->serial,
                              .dir = j->dir,
                              .step = j->step,
                              .env = j->env,
                              .unset = j->unset,
                              .cgroup_procs = (const char *const *)t->group.procs,
                              .n_cgroup_procs = t->group.n,
                              .cpus = j->cpus,
                              .n_cpus = j->n_cpus,
                              .threads = j->threads,
                              .cwd = j->cwd,
                              .hook = j->hook,
                              .hook_error = j->hook_error};
    return stk_server_spawn_message(&spawn, &t->message, err);
}

static void want_out(local_backend *b, local_server *s, bool on)
{
    if (s->wants_out != on) {
        s->wants_out = on;
        uint32_t out = on ? EPOLLOUT : 0u;
        (void)stk_local_watch_fd(b, s->wire.fd, EPOLLIN | out, s, true);
    }
}

static local_task *next_queued(local_backend *b, const local_server *s)
{
    local_task *first = NULL;
    for (uint32_t i = 0; i < b->n_tasks; i++) {
        local_task *t = b->tasks[i];
        if (t->server == s && t->state == LOCAL_QUEUED &&
            (first == NULL || t->serial - first->serial > UINT32_MAX / 2)) {
            first = t;
        }
    }
    return first;
}

static void flush(local_backend *b, local_server *s)
{
    local_task *t;
    while (s->hello && (t = next_queued(b, s)) != NULL) {
        ssize_t n = stk_wire_send(s->wire.fd, &t->message, t->n_sent, t->fds, t->n_fds);
        if (n < 0) {
            if (errno == ETOOMANYREFS) { /* too many descriptors are under way: a little later */
                stk_local_due(b, stk_local_now_ms() + RETRY_MS);
            }
            want_out(b, s, errno == EAGAIN || errno == ETOOMANYREFS);
            return; /* anything else shows as the end of the file */
        }
        t->n_sent += (size_t)n;
        if (t->n_sent < t->message.len) {
            want_out(b, s, true);
            return;
        }
        t->state = LOCAL_SENT;
        t->start_ms = stk_local_now_ms(); /* for its timeout, until it really starts */
        stk_local_due(b, t->start_ms + b->server_ms);
        if (t->timeout_ms > 0) {
            stk_local_due(b, t->start_ms + t->timeout_ms);
        }
    }
    want_out(b, s, false);
}

int stk_local_server_submit(local_backend *b, local_task *task, const stk_job *job, stk_err *err)
{
    if (job != NULL) {
        STK_TRY(make_message(task, job, err));
    }
    if (b->given == NULL && b->clean == NULL) {
        STK_TRY(start_clean(b, err));
    }
    task->server = b->given != NULL ? b->given : b->clean;
    flush(b, task->server);
    return 0;
}

void stk_local_server_drop_task(local_backend *b, local_task *task)
{
    (void)b;
    task->server = NULL; /* it is found by this; nothing of it was sent */
}

/* --- what it says --- */

static void on_hello(local_backend *b, local_server *s, const stk_json *m)
{
    int64_t pid = 0;
    siginfo_t info;
    s->hello = true;
    if (stk_json_int(stk_json_get(m, "pid"), &pid) && pid > 1 && pid <= INT_MAX && !s->ours &&
        waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0) {
        s->child = (pid_t)pid; /* the front forked it from the process that became us */
    }
    flush(b, s);
}

static void on_started(local_backend *b, local_server *s, local_task *t, const stk_json *m)
{
    STK_FD_AUTO pidfd = stk_wire_claim(&s->wire);
    int64_t pid = 0;
    stk_err err = {0};
    if (t == NULL || t->state != LOCAL_SENT || !stk_json_int(stk_json_get(m, "pid"), &pid) ||
        pid <= 1 || pid > INT_MAX) {
        return; /* it failed before its server could say this */
    }
    int fd = pidfd;
    pidfd = -1;
    if (stk_local_task_started(b, t, (pid_t)pid, fd, &err) < 0) {
        (void)kill((pid_t)pid, SIGKILL);
        t->pid = (pid_t)pid;
        stk_local_task_not_started(b, t, STK_FAIL_START, err.text);
    } else if (t->kill_ms >= 0) {
        t->kill_ms = stk_local_now_ms(); /* stopped while it was under way */
        stk_local_due(b, t->kill_ms);
    }
}

static void on_ended(local_backend *b, local_task *t, const stk_json *m)
{
    int64_t user = stk_json_get_whole(m, "utime_us", -1);
    int64_t sys = stk_json_get_whole(m, "stime_us", -1);
    int64_t rss = stk_json_get_whole(m, "maxrss_kb", -1);
    int64_t cpu_us = user < 0 || sys < 0 ? -1 : user + sys;
    if (t->state == LOCAL_RUNNING) {
        stk_local_task_ended(b, t, (int)stk_json_get_whole(m, "status", -1), cpu_us,
                             rss < 0 ? -1 : rss * 1024);
    }
}

static void on_failed(local_backend *b, local_task *t, const stk_json *m)
{
    const char *text = stk_json_get_text(m, "error");
    (void)snprintf(t->failed, sizeof t->failed, "its process could not be set up: %.400s",
                   stk_text_or(text, "no reason given"));
    if (t->state == LOCAL_SENT) {
        stk_local_task_not_started(b, t, STK_FAIL_START, t->failed);
    }
}

/* The front's server can't fork safely: a clean one, which serves everything that it is given. */
static void on_unfit(local_backend *b, local_server *s, local_task *t, const stk_json *m)
{
    const char *why = stk_json_get_text(m, "why");
    stk_err err = {0};
    char text[1200];
    if (t->state != LOCAL_SENT) {
        return;
    }
    if (!b->noted_unfit) {
        b->noted_unfit = true;
        stk_local_note(b, t, "Python steps run in a fresh interpreter: %s",
                       stk_text_or(why, "this process can't be forked safely"));
    }
    if (s->ours) {
        stk_local_task_not_started(b, t, STK_FAIL_START,
                                   stk_text_or(why, "its fork server refused it"));
        return;
    }
    if (b->clean == NULL && start_clean(b, &err) < 0) {
        stk_local_task_not_started(b, t, STK_FAIL_START, stk_err_format(&err, text, sizeof text));
        return;
    }
    t->state = LOCAL_QUEUED;
    t->n_sent = 0;
    t->server = b->clean;
    flush(b, b->clean);
}

static local_task *task_of(local_backend *b, const local_server *s, const stk_json *m)
{
    int64_t id = stk_json_get_whole(m, "id", -1);
    for (uint32_t i = 0; i < b->n_tasks; i++) {
        if (b->tasks[i]->server == s && b->tasks[i]->serial == id) {
            return b->tasks[i];
        }
    }
    return NULL;
}

/* NULL, or what is wrong with the message. */
static const char *on_message(local_backend *b, local_server *s, const char *data, size_t len)
{
    static const stk_json_limits limits = {STK_LIMIT_MESSAGE_BYTES, 1000000, 16};
    stk_json m;
    stk_arena_reset(s->arena);
    if (stk_json_parse(data, len, "message", &limits, s->arena, &m, NULL) < 0) {
        return " after a message that is not JSON";
    }
    const stk_json *op = stk_json_get(&m, "op");
    if (op == NULL) {
        return " after a message without \"op\"";
    }
    local_task *t = task_of(b, s, &m);
    if (stk_json_is(op, "hello")) {
        if (stk_json_get_whole(&m, "version", STK_SERVER_PROTOCOL) > STK_SERVER_PROTOCOL) {
            return ": it is newer than this engine; use the stoker that belongs to it";
        }
        on_hello(b, s, &m);
    } else if (stk_json_is(op, "started")) {
        on_started(b, s, t, &m);
    } else if (t == NULL) {
        return NULL; /* about a task that is no more */
    } else if (stk_json_is(op, "ended")) {
        on_ended(b, t, &m);
    } else if (stk_json_is(op, "failed")) {
        on_failed(b, t, &m);
    } else if (stk_json_is(op, "unfit")) {
        on_unfit(b, s, t, &m);
    } else if (stk_json_is(op, "note")) {
        stk_local_note(b, t, "%s", stk_text_or(stk_json_get_text(&m, "text"), ""));
    }
    return NULL;
}

static const char *take_messages(local_backend *b, local_server *s)
{
    const char *wrong = NULL;
    const char *data;
    size_t len;
    int rc = 0;
    while (wrong == NULL && (rc = stk_wire_next(&s->wire, &data, &len)) > 0) {
        wrong = on_message(b, s, data, len);
    }
    return rc < 0 ? " after a message that is too long" : wrong;
}

void stk_local_server_event(local_backend *b, local_server *server, uint32_t events)
{
    if ((events & EPOLLOUT) != 0) {
        flush(b, server);
    }
    for (;;) {
        ssize_t n = stk_wire_read(&server->wire);
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        const char *wrong = "";
        if (n > 0) {
            wrong = take_messages(b, server);
        }
        if (wrong != NULL) {
            server_died(b, server, wrong);
            return;
        }
    }
}
