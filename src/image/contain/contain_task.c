/* A task's container from its creation to its end. We ask the engine to create and to start it.
 * From then on the runner inside speaks to us directly, so we don't depend on the engine. If either
 * side of the socket dies, the other side ends the container, and the engine removes it
 * (AutoRemove). */
#include "image/contain/contain_task.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sys/file.h"
#include "sys/spawn.h"

enum { TICK_MS = 500 };
enum { REMOVE_MS = 30000, AGAIN_MS = 200 };
enum { LEAVE_MS = 2000 /* limit for the engine's answers when we are leaving */ };

/* --- the runner --- */

static void send_signal(contain_task *t, int number)
{
    unsigned char bytes[] = {'s', (unsigned char)number};
    if (t->conn >= 0) {
        (void)send(t->conn, bytes, sizeof bytes, MSG_NOSIGNAL);
    } else if (t->n_early < sizeof t->early) {
        t->early[t->n_early++] = (unsigned char)number;
    }
}

static int greet(contain_task *t, stk_err *err)
{
    struct ucred who = {0};
    socklen_t len = sizeof who;
    t->conn = accept4(t->files.listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (t->conn < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "%s", t->files.socket);
    }
    (void)pthread_mutex_lock(&t->lock);
    t->runner_ms = contain_now_ms() - t->begin_ms - t->create_ms;
    (void)pthread_mutex_unlock(&t->lock); /* `id` is set from here on */
    t->was_reached = true;
    if (getsockopt(t->conn, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 && who.pid > 0) {
        t->pid = who.pid;
        if (!stk_contain_cgroup(t->pid, t->id, t->cgroup, sizeof t->cgroup)) {
            t->cgroup[0] = '\0';
        }
        t->monitor_fd =
            stk_contain_monitor(t->pid, &t->monitor, t->monitor_name, sizeof t->monitor_name);
    }
    stk_contain_files_remove(&t->files);
    int rc = stk_contain_send(t->conn, &t->spec, t->entrypoint, t->fds, t->n_fds, err);
    for (uint32_t i = 0; rc == 0 && i < t->n_early; i++) {
        send_signal(t, t->early[i]);
    }
    stk_contain_write_state(t, false);
    return rc;
}

/* Has the monitor ended? conmon ends with the container, a shim only later. */
static bool has_lost_monitor(const contain_task *t)
{
    struct pollfd on = {.fd = t->monitor_fd, .events = POLLIN};
    return !t->engine.is_podman && t->monitor_fd >= 0 && poll(&on, 1, 0) > 0;
}

static void on_conn(contain_task *t)
{
    ssize_t n = recv(t->conn, t->line + t->n_line, sizeof t->line - t->n_line, 0);
    if (n < 0 && errno == EINTR) {
        return;
    }
    if (n <= 0) {
        t->closed = true;
        if (!t->ended && has_lost_monitor(t)) { /* the engine ended both */
            stk_contain_lose_monitor(t);
        } else if (!t->ended) { /* PID 1 has died, and with it the container */
            t->end->signal = SIGKILL;
            stk_contain_look_at_group(t);
            stk_contain_find_killer(t, 0);
            (void)snprintf(t->end->text, sizeof t->end->text, "%s, with all its processes",
                           t->end->by);
        }
        return;
    }
    t->n_line += (size_t)n;
    char *end;
    while ((end = memchr(t->line, '\n', t->n_line)) != NULL) {
        size_t len = (size_t)(end - t->line);
        stk_contain_on_line(t, t->line, len);
        t->n_line -= len + 1;
        memmove(t->line, end + 1, t->n_line);
    }
    if (t->n_line == sizeof t->line) { /* not a line of the runner's */
        t->n_line = 0;
    }
}

/* --- the task --- */

static void pass_signal_on(contain_task *t)
{
    struct signalfd_siginfo info;
    if (read(t->signals, &info, sizeof info) != sizeof info) {
        return;
    }
    send_signal(t, (int)info.ssi_signo);
    if (sigismember(&t->ending, (int)info.ssi_signo) == 1 && t->conn < 0 && t->told_ms < 0) {
        t->told = (int)info.ssi_signo;
        t->told_ms = contain_now_ms();
    }
}

/* True if a signal asked us to end, no program can hear it, and none will start soon. */
static bool leaves(contain_task *t)
{
    if (t->told_ms < 0 || t->conn >= 0 || contain_now_ms() - t->told_ms < LEAVE_MS) {
        return false;
    }
    t->end->signal = t->told;
    return true;
}

/* Runs until the container has ended with its last process, or has failed to start. */
static int watch_container(contain_task *t, stk_err *err)
{
    int64_t since_ms = -1; /* the engine's report that it runs */
    for (;;) {
        struct pollfd on[] = {{.fd = t->signals, .events = POLLIN},
                              {.fd = t->conn, .events = POLLIN},
                              {.fd = since_ms < 0 ? t->started_fd : -1, .events = POLLIN},
                              {.fd = t->ended ? -1 : t->monitor_fd, .events = POLLIN}};
        if (t->conn < 0) {
            on[1].fd = t->files.listen_fd;
        }
        bool waits = t->conn < 0 && (since_ms >= 0 || t->told_ms >= 0);
        int n = poll(on, 4, waits ? TICK_MS : -1);
        if (n < 0 && errno != EINTR) {
            return stk_err_sys(err, STK_E_SYS, errno, "waiting for container %s", t->spec.name);
        }
        if (n > 0 && on[0].revents != 0) {
            pass_signal_on(t);
        }
        if (n > 0 && on[1].revents != 0) {
            int rc = 0;
            if (t->conn < 0) {
                rc = greet(t, err);
            } else {
                on_conn(t);
            }
            if (rc < 0 || t->closed) {
                return rc;
            }
        }
        if (n > 0 && on[2].revents != 0) {
            uint64_t count; /* reads the eventfd, so the thread's earlier writes are visible here */
            (void)!read(t->started_fd, &count, sizeof count);
            since_ms = contain_now_ms();
            t->started_ms = since_ms - t->begin_ms - t->create_ms;
            if (t->start_rc < 0 && t->conn < 0) {
                stk_contain_never_for(t, &t->start_err);
                return 0;
            }
            if (t->conn >= 0) {
                stk_contain_write_state(t, false);
            }
        }
        if (n > 0 && on[3].revents != 0 && !t->ended) {
            stk_contain_lose_monitor(t);
            return 0;
        }
        if (leaves(t) || (n == 0 && since_ms >= 0 && stk_contain_has_given_up(t, since_ms))) {
            return 0;
        }
    }
}

/* Joins the thread that starts the container, and stops it first if the container never ran. */
static void join_start(contain_task *t)
{
    uint64_t one = 1;
    if (t->conn < 0) {
        (void)!write(t->stop_fd, &one, sizeof one);
    }
    stk_file_close(&t->conn); /* a runner that still lives ends now */
    (void)pthread_join(t->thread, NULL);
}

/* Retries: without the monitor an engine notices only after a while that the container has
 * ended. */
static int remove_it(contain_task *t, const stk_engine *engine, stk_err *err)
{
    int64_t until_ms = contain_now_ms() + t->is_lost * REMOVE_MS;
    int rc = stk_contain_delete(engine, t->id, err);
    while (rc < 0 && rc != STK_E_CANCELLED && contain_now_ms() < until_ms) {
        struct pollfd cancel = {.fd = t->ends, .events = POLLIN};
        (void)poll(&cancel, 1, AGAIN_MS);
        rc = stk_contain_delete(engine, t->id, err);
    }
    return rc;
}

/* Removes the container unless the engine has. A signal still ends the wait. */
static void clean_up(contain_task *t)
{
    stk_err why = {0};
    stk_engine engine = t->engine;
    engine.cancel_fd = t->ends;
    if (t->id == NULL) { /* the engine may still create it */
        engine.idle_ms = LEAVE_MS;
        if (t->asked && t->told_ms >= 0) {
            (void)stk_contain_delete(&engine, t->spec.name, NULL);
        }
    } else if ((!t->closed || t->is_lost) && remove_it(t, &engine, &why) < 0) {
        fprintf(stderr, "stoker contain: can't tell whether container %s was removed: %s\n",
                t->spec.name, why.text);
    }
    if (t->was_reached && !t->ended && stk_contain_switches(&t->spec) &&
        stk_contain_take_back(&t->spec, &engine, t->arena, &why) < 0) {
        fprintf(stderr, "stoker contain: files of user %s in %s may keep that owner: %s\n",
                t->spec.user, t->spec.dir, why.text);
    }
}

static int run_container(contain_task *t, stk_err *err)
{
    stk_err why = {0};
    if (stk_contain_files_make(t->spec.dir, &t->files, &why) < 0) {
        stk_contain_never_for(t, &why);
        return 0;
    }
    t->begin_ms = contain_now_ms();
    t->started_fd = eventfd(0, EFD_CLOEXEC);
    t->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (t->started_fd < 0 || t->stop_fd < 0 || pthread_mutex_init(&t->lock, NULL) != 0 ||
        pthread_create(&t->thread, NULL, stk_contain_start, t) != 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "starting container %s", t->spec.name);
    }
    int rc = watch_container(t, err);
    join_start(t);
    clean_up(t);
    (void)pthread_mutex_destroy(&t->lock);
    return rc;
}

int stk_contain_run(const char *task_json, stk_contain_end *ret_end, stk_err *err)
{
    static const int passed_on[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    enum { N_ENDING = 4 };
    sigset_t mask;
    sigset_t before;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    contain_task *t = calloc(1, sizeof *t);
    *ret_end = (stk_contain_end){
        .exit_status = -1, .peak_bytes = -1, .shm_bytes = -1, .shm_free_bytes = -1, .cpu_us = -1};
    if (arena == NULL || t == NULL) {
        free(t);
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "%s", task_json);
    }
    *t = (contain_task){.arena = arena,
                        .conn = -1,
                        .signals = -1,
                        .ends = -1,
                        .started_fd = -1,
                        .stop_fd = -1,
                        .monitor_fd = -1,
                        .told_ms = -1,
                        .end = ret_end};
    t->create_ms = t->started_ms = t->runner_ms = -1;
    t->files.listen_fd = -1;
    t->n_fds = stk_sys_inherited(t->fds, CONTAIN_MAX_FDS); /* a lock, leases */
    int rc = stk_contain_read(task_json, arena, &t->spec, err);
    if (rc == 0) {
        sigemptyset(&mask);
        sigemptyset(&t->ending);
        for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++) {
            sigaddset(&mask, passed_on[i]);
            if (i < N_ENDING) {
                sigaddset(&t->ending, passed_on[i]);
            }
        }
        (void)pthread_sigmask(SIG_BLOCK, &mask, &before);
        t->signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
        t->ends = signalfd(-1, &t->ending, SFD_CLOEXEC);
        rc = run_container(t, err);
        stk_contain_files_remove(&t->files);
        if (rc == 0) {
            stk_contain_write_state(t, true);
        }
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    stk_file_close(&t->signals);
    stk_file_close(&t->ends);
    stk_file_close(&t->started_fd);
    stk_file_close(&t->stop_fd);
    stk_file_close(&t->monitor_fd);
    stk_file_close(&t->conn);
    free(t);
    return rc;
}

int stk_contain_remove(const stk_engine *engine, const char *const *labels, uint32_t *ret_n,
                       stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_json list = {0};
    *ret_n = 0;
    STK_TRY(stk_engine_containers(engine, labels, arena, &list, err));
    for (uint32_t i = 0; i < stk_json_n_items(&list); i++) {
        const char *id = stk_json_get_text(&list.items[i], "Id");
        if (id != NULL) {
            STK_TRY(stk_contain_delete(engine, id, err));
            (*ret_n)++;
        }
    }
    return 0;
}
