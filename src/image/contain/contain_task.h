/* Private to contain: a task's container, shared by contain_task.c, contain_begin.c and
 * contain_end.c. */
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
    const char *const *entrypoint; /* the image's, if it is kept */
    int fds[CONTAIN_MAX_FDS];
    uint32_t n_fds;
    int signals, conn;
    int ends;       /* readable once a signal asks us to end; never read */
    pid_t pid;      /* of the runner, on this host */
    int monitor_fd; /* of the runner's parent in the engine: readable when that ends; -1: unknown */
    pid_t monitor;
    char monitor_name[64];
    char cgroup[4096]; /* "" unknown */
    char line[CONTAIN_LINE_BYTES];
    size_t n_line;
    bool ended, closed, knows_oom;
    bool was_reached;       /* the runner has connected */
    bool is_lost;           /* the monitor has ended */
    sigset_t ending;        /* signals that ask us to end */
    int told;               /* the first of them that came before the program ran … */
    int64_t told_ms;        /* … and its time; -1: none */
    unsigned char early[8]; /* signals to pass on once the program runs */
    uint32_t n_early;
    int64_t begin_ms, create_ms, started_ms, runner_ms;
    stk_contain_end *end;
    /* The thread that creates and starts the container. Meanwhile we handle signals, and the
     * program may run before the engine has answered. The lock guards `engine`, `id` and the fields
     * below. */
    pthread_t thread;
    pthread_mutex_t lock;
    bool asked; /* the engine got the request, and may have created the container */
    int started_fd;
    int stop_fd; /* readable: the thread must give up */
    int start_rc;
    stk_err start_err;
} contain_task;

static inline int64_t contain_now_ms(void)
{
    return stk_clock_mono_ms(&stk_clock_real);
}

/* --- contain_begin.c: until the program runs --- */

/* Records this error as the task's end: the program never ran. */
void stk_contain_never_for(contain_task *t, const stk_err *err);
/* The same for a runner that failed at `what` with errno `sys`. */
void stk_contain_explain_start(contain_task *t, const char *what, int sys);
/* The thread: makes the engine's calls. `arg` is the contain_task. */
void *stk_contain_start(void *arg);
/* The container started, but its runner doesn't connect: reads the container's state and log.
 * Returns true if waiting is pointless. */
bool stk_contain_has_given_up(contain_task *t, int64_t since_ms);

/* --- contain_end.c: how the container ended --- */

void stk_contain_write_state(const contain_task *t, bool at_end); /* container.json */
/* Handles a line from the runner. */
void stk_contain_on_line(contain_task *t, const char *line, size_t n);
/* Reads the counters of the container's memory group. */
void stk_contain_look_at_group(contain_task *t);
/* Asks the engine who ended the container; `told`: the signal that the runner got from outside, or
 * 0. */
void stk_contain_find_killer(contain_task *t, int told);
/* The engine's monitor has ended, so nothing would report the container's end or remove it. Ends it
 * now. */
void stk_contain_lose_monitor(contain_task *t);

#endif
