/* Signals are heard within a moment, whatever is under way: the first thread does nothing but wait
 * for them, for the program and for the thread that works. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "away/agent/agent_private.h"
#include "base/turn.h"
#include "sys/clock.h"
#include "sys/faults.h"
#include "sys/file.h"

static void ring(int fd)
{
    (void)!write(fd, &(uint64_t){1}, sizeof(uint64_t));
}

bool stk_agent_was_told(const agent *a)
{
    return atomic_load(&a->n_told) > 0;
}

bool stk_agent_hear(agent *a)
{
    struct signalfd_siginfo info;
    while (read(a->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        (void)atomic_fetch_add(&a->n_told, 1);
        ring(a->told_fd);
    }
    return stk_agent_was_told(a);
}

static void stop_threads(agent *a)
{
    atomic_store(&a->is_stopped, true);
    ring(a->stop_fd);
    stk_share_cancel(a->share);
}

void stk_agent_await(agent *a, int done_fd, agent_patience patience)
{
    struct pollfd fds[2] = {{.fd = done_fd, .events = POLLIN},
                            {.fd = a->signal_fd, .events = POLLIN}};
    int64_t until = INT64_MAX;
    if (a->is_of_pilot) { /* the pilot hears signals, and gives up transfers */
        (void)poll(fds, 1, -1);
        return;
    }
    unsigned n_enough = atomic_load(&a->n_told) > 0 ? atomic_load(&a->n_told) + 1 : 2;
    while ((fds[0].revents & POLLIN) == 0) {
        bool is_told = stk_agent_hear(a);
        int64_t now = stk_clock_mono_ms(&stk_clock_real);
        if (is_told && until == INT64_MAX && patience != AGENT_TO_THE_END) {
            until = now + (patience == AGENT_SHORTLY ? AGENT_TOLD_MS : 0);
        }
        bool is_over = now >= until || atomic_load(&a->n_told) >= n_enough;
        if (is_over && !atomic_load(&a->is_stopped)) {
            fprintf(stderr, "stoker agent: stopped: unfinished transfers are given up\n");
            stop_threads(a);
        }
        bool waits = is_over || until == INT64_MAX;
        stk_turn_begin();
        (void)poll(fds, 2, waits ? -1 : (int)(until - now));
    }
}

int stk_agent_go_on(agent *a, stk_err *err)
{
    uint64_t count;
    if (!atomic_load(&a->is_stopped) || a->is_of_pilot) {
        return 0;
    }
    stk_share *share = NULL; /* one that was cancelled stays so */
    int rc = stk_share_open(a->url, &share, err);
    if (rc == 0) {
        stk_share_close(a->share);
        a->share = share;
        (void)!read(a->stop_fd, &count, sizeof count);
        atomic_store(&a->is_stopped, false);
    }
    return rc;
}

typedef struct aside {
    agent *a;
    int (*work)(agent *a, stk_err *err);
    int done_fd, rc;
    stk_err err;
} aside;

static void *run_aside(void *arg)
{
    aside *s = arg;
    s->rc = s->work(s->a, &s->err);
    ring(s->done_fd);
    return NULL;
}

int stk_agent_aside(agent *a, agent_patience patience, int (*work)(agent *a, stk_err *err),
                    stk_err *err)
{
    aside s = {.a = a, .work = work};
    pthread_t thread;
    s.done_fd = eventfd(0, EFD_CLOEXEC);
    if (s.done_fd < 0 || pthread_create(&thread, NULL, run_aside, &s) != 0) {
        stk_file_close(&s.done_fd); /* without a thread it is done all the same */
        return work(a, err);
    }
    stk_agent_await(a, s.done_fd, patience);
    (void)pthread_join(thread, NULL);
    stk_file_close(&s.done_fd);
    if (s.rc < 0) {
        *err = s.err;
    }
    stk_err why = {0};
    bool is_stopped = atomic_load(&a->is_stopped);
    if (stk_agent_go_on(a, &why) < 0 && s.rc == 0) {
        *err = why;
        return why.code;
    }
    /* What was cut off says so in many ways. */
    if (s.rc < 0 && is_stopped) {
        return stk_err_set(err, STK_E_CANCELLED, "stopped");
    }
    return s.rc;
}
