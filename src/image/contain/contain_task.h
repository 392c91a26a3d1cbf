/* Private to contain: a task's container as its files share it (contain_task.c, contain_begin.c,
 * contain_end.c). */
#ifndef STK_CONTAIN_TASK_H
#define STK_CONTAIN_TASK_H

#include <pthread.h>
#include <signal.h>

#include "image/contain/contain_private.h"
#include "sys/clock.h"

enum { CONTAIN_LINE_BYTES = 512 };

typedef struct contain_task {
    contain_spec spec;
    stk_engine engine;
    contain_files files;
    stk_arena *arena;
    const char *id;
    const char *const *entrypoint; /* the image's, to be kept */
    int fds[CONTAIN_MAX_FDS];
    uint32_t n_fds;
    int signals, conn;
    int ends;       /* readable: we are told to end; never read */
    pid_t pid;      /* of the runner, on this host */
    int monitor_fd; /* of its parent, the engine's: readable when that is gone; -1 unknown */
    pid_t monitor;
    char monitor_name[64];
    char cgroup[4096]; /* "" unknown */
    char line[CONTAIN_LINE_BYTES];
    size_t n_line;
    bool ended, closed, knows_oom;
    bool was_reached;       /* the runner was there */
    bool is_lost;           /* the monitor is gone */
    sigset_t ending;        /* signals by which we are told to end */
    int told;               /* the first of them before there was a program … */
    int64_t told_ms;        /* … and when; -1 none */
    unsigned char early[8]; /* signals that came before there was a program */
    uint32_t n_early;
    int64_t begin_ms, create_ms, started_ms, runner_ms;
    stk_contain_end *end;
    /* What makes it and starts it, a thread: signals are heard meanwhile, and the program runs
     * before the engine has answered. The lock is for `engine`, `id` and what follows. */
    pthread_t thread;
    pthread_mutex_t lock;
    bool asked; /* there is an engine, which may have made it */
    int started_fd;
    int stop_fd; /* readable: it is to give up */
    int start_rc;
    stk_err start_err;
} contain_task;

static inline int64_t contain_now_ms(void)
{
    return stk_clock_mono_ms(&stk_clock_real);
}

/* --- contain_begin.c: until the program runs --- */

/* Why it never ran, as the task's end. */
void stk_contain_never_for(contain_task *t, const stk_err *err);
/* The runner says that it couldn't do `what`, with errno `sys`: the same. */
void stk_contain_explain_start(contain_task *t, const char *what, int sys);
/* A thread: all that the engine is asked for. `arg` is the contain_task. */
void *stk_contain_start(void *arg);
/* It was started, and nobody speaks to us: is it still there, and what does it say? True: no more
 * is to be hoped for. */
bool stk_contain_has_given_up(contain_task *t, int64_t since_ms);

/* --- contain_end.c: what became of it --- */

void stk_contain_write_state(const contain_task *t, bool at_end); /* container.json */
/* What the runner says. */
void stk_contain_on_line(contain_task *t, const char *line, size_t n);
/* What the group in which it ran has counted. */
void stk_contain_look_at_group(contain_task *t);
/* Who ended it, as its engine knows; `told`: the signal that its runner got from outside, or 0. */
void stk_contain_find_killer(contain_task *t, int told);
/* The engine's own process is gone: nobody would tell the container's end, or remove it. So it ends
 * now. */
void stk_contain_lose_monitor(contain_task *t);

#endif
