/* Starts fork servers and handles their end. The front's server has everything imported; a clean
 * server is a fresh interpreter for tasks that the front's server can't fork safely. */
#include "host/backend/backend_local_server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/text.h"
#include "host/backend/backend_local.h"
#include "sys/file.h"
#include "sys/forkserver.h"
#include "sys/old.h"
#include "sys/spawn.h"

enum { LAST_WORDS_MS = 200, QUIT_MS = 2000 };

/* --- start and end of a server --- */

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

/* Closes the socket: a healthy server then ends its tasks and itself. */
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
                       .stdout_fd = -1, /* the front has printed the user file's output */
                       .stderr_fd = log,
                       .keep_fds = &fd,
                       .n_keep_fds = 1,
                       .n_files = &b->n_files,
                       .die_with_parent = true,
                       .new_session = true,
                       .no_new_privs = true};
    return stk_sys_spawn(&spawn, ret_pid, NULL, err);
}

int stk_local_server_start_clean(local_backend *b, stk_err *err)
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

/* The last line of its stderr: the reason if the interpreter didn't start. */
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
        t->pidfd = stk_sys_pidfd(t->pid);
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

/* Notes how a server ended unexpectedly: the run's notes are the only record of it. */
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
            stk_local_note(b, t, "the fork server (process %d) %s%s; a new one replaces it",
                           (int)pid, how, words);
            return;
        }
    }
}

/* We adopt the server's running tasks. A task that it was about to start may have begun, so that
 * attempt is lost and a new attempt follows. Unsent tasks go to another server. */
void stk_local_server_died(local_backend *b, local_server *s, const char *why)
{
    int status = -1; /* stays -1 if it doesn't end or isn't our child */
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
            bool stopped = t->stopped_for != STK_FAIL_NONE; /* this task's start was what hung */
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
