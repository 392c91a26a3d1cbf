/* Shared by remote_*.c: the backend's tasks, queues and threads. One lock protects all of it, and
 * no thread holds it during a request.
 *
 * A task is in one place at a time: with a worker, in the workers' queue (staging, collecting), or
 * with the driver. It lives from start() until its end is on record and the driver has forgotten
 * it.
 */
#ifndef STK_REMOTE_PRIVATE_H
#define STK_REMOTE_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "away/remote/remote.h"
#include "away/remote/remote_order.h"
#include "base/map.h"

enum {
    REMOTE_WORKERS = 8,
    REMOTE_STOP_MS = 10000,      /* a stop waits so long for the share … */
    REMOTE_STOP_SOON_MS = 3000,  /* … or so long for a failing one */
    REMOTE_DROP_MS = 10000,      /* the run's end waits so long for the removal of checkpoints */
    REMOTE_LOG_WAIT_MS = 1000,   /* a worker waits so long for the run's record */
    REMOTE_LOG_BYTES = 64 << 20, /* of a running task's log kept here until its end */
    REMOTE_OBJECT_BYTES = 256 << 20
};

typedef enum {
    REMOTE_STAGING,
    REMOTE_WITH_DRIVER,
    REMOTE_COLLECTING,
    REMOTE_TOLD /* its end was reported */
} remote_phase;

typedef enum { REMOTE_SUBMIT, REMOTE_STOP, REMOTE_FORGET, REMOTE_VERBS } remote_verb;

/* A command to the driver. It is part of its task, so that no command needs memory. */
typedef struct remote_command {
    struct remote_command *next;
    struct remote_task *task; /* FORGET: freed after it */
    remote_verb verb;
    bool is_queued;
    uint32_t id;
    int64_t grace_ms;
    stk_failure why;
} remote_command;

typedef struct remote_task {
    struct remote_task *next;      /* in the workers' queue, or in `told` */
    struct remote_task *same_slot; /* in the table by id */
    stk_arena *arena;              /* everything below points into it */
    stk_remote_job job;
    stk_remote_order order;
    const char *key; /* in the share */
    char name[STK_REMOTE_NAME + 1];
    remote_phase phase;
    bool is_queued;   /* it is in the workers' queue */
    bool has_worker;  /* a worker has it, and no other takes it; meanwhile it may be reported, given
                         to the driver, or be in the queue again */
    bool is_dropped;  /* only that worker needs it, and frees it */
    bool is_left;     /* the engine ends before its submission, so it isn't submitted */
    bool was_given;   /* the driver was asked to submit it */
    bool only_to_end; /* an earlier engine's task, for which nothing is staged */
    bool stop_wanted; /* … with: */
    stk_failure stop_why;
    int64_t stop_grace_ms;
    int64_t due_ms; /* when a worker may take it, monotonic */
    uint32_t n_tries, n_looks;
    int64_t trouble_ms;    /* begin of its trouble with the share, monotonic; 0: none */
    bool has_checkpoints;  /* in the share, at its end */
    atomic_bool has_live;  /* the share has live metrics of it */
    bool is_begun;         /* its worker saw an agent's claim */
    bool is_running;       /* as the driver reported once */
    stk_remote_report end; /* the driver's last report (without data) */
    char reason[256];      /* why it waits, as last reported */
    bool *mid_line;        /* by node: its log ends within a line */
    int64_t log_bytes;
    remote_command commands[REMOTE_VERBS];
} remote_task;

/* What a task has left in the share, and what is being removed: checkpoints of a successful one,
 * live metrics. */
typedef struct remote_drop {
    struct remote_drop *next;
    char at[STK_SHARE_KEY_MAX]; /* "runs/<run>/<step>/<task>/checkpoints" or stk_live_key */
} remote_drop;

typedef struct remote_backend {
    stk_backend base;
    stk_remote_config config; /* texts in `arena` */
    stk_arena *arena;         /* under `lock` */
    const char *store_path;
    stk_share *share;
    const char *share_env[8]; /* "NAME=value" with which agents reach the share; in `arena` */
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_cond_t dropped; /* signalled when n_drops gets 0 */
    int ready_fd;           /* reports */
    int wake_fd;            /* the driver's thread */

    remote_task **table; /* by id */
    uint32_t n_tasks, n_slots;
    remote_task *queue, **queue_end;
    remote_task *told; /* reported, but not yet on record */
    remote_drop *drops;
    uint32_t n_drops; /* queued and running ones */
    remote_command *commands, **commands_end;
    struct remote_reports {
        stk_report *items;
        size_t first, n, cap; /* always has room for n_untold more */
    } reports;
    uint32_t n_untold; /* tasks without a reported end */
    stk_map known;     /* digests that the share has */
    stk_map words;     /* texts of devices, kept for reports */

    pthread_t workers[REMOTE_WORKERS];
    uint32_t n_workers, n_idle;
    pthread_t driver_thread;
    bool has_driver_thread, is_closing;
    stk_driver *driver;
    stk_share *live_share; /* of a worker that looks for live metrics; or NULL */
    int64_t live_due_ms;   /* when one does, monotonic */
    bool has_trouble;      /* the share failed, and a note said so */
    int64_t noted_ms;      /* then */
    int64_t stop_due_ms;   /* end of the wait for stopped tasks; 0: no wait */
    stk_err broken;        /* code ≠ 0: the driver can't be used any more */
} remote_backend;

/* State of one worker. */
typedef struct remote_worker {
    remote_backend *b;
    stk_store *store;
} remote_worker;

int64_t stk_remote_now_ms(void);
void stk_remote_ring(remote_backend *b); /* wakes the thread that waits for reports */

/* remote_backend.c; the caller has the lock. */
remote_task *stk_remote_find(remote_backend *b, uint32_t id);
void stk_remote_queue(remote_backend *b, remote_task *t, remote_phase phase, int64_t due_ms);
void stk_remote_command(remote_backend *b, remote_verb verb, remote_task *t);
void stk_remote_tell_note(remote_backend *b, const remote_task *t, const char *text);
void stk_remote_tell_wait(remote_backend *b, remote_task *t, const char *lead, const char *why);
void stk_remote_tell_no_wait(remote_backend *b, remote_task *t);
void stk_remote_tell_started(remote_backend *b, const remote_task *t);
/* Keeps room for the end of one more task; false: no memory. */
bool stk_remote_expect_end(remote_backend *b);
/* Reports the task's end; the room for it is kept since its start. */
void stk_remote_tell_end(remote_backend *b, remote_task *t, const stk_outcome *outcome);
void stk_remote_task_free(remote_task *t);
/* Frees the task, or lets its worker free it. */
void stk_remote_drop(remote_task *t);
/* Gives the task to the driver, with a stop if it has one. */
void stk_remote_give(remote_backend *b, remote_task *t);

/* remote_fault.c; the caller has the lock. */
/* After a worker's failure: returns false if the error is permanent or has lasted too long, else
 * schedules another try. */
bool stk_remote_wait_out(remote_backend *b, remote_task *t, const stk_err *err);
void stk_remote_no_trouble(remote_backend *b, remote_task *t);
/* Ends the task without a job, or without its results. */
void stk_remote_end_now(remote_backend *b, remote_task *t, stk_failure failure, const char *text);
/* A stop of what waits for the share; within ms of what is being collected. */
void stk_remote_stop_waiting(remote_backend *b, remote_task *t);
void stk_remote_stop_within(remote_backend *b, int64_t ms);
/* At stop_due_ms: ends the tasks that still wait. */
void stk_remote_stop_due(remote_backend *b);

bool stk_remote_is_s3(const char *share_url);
/* Fills b->share_env with our own region and endpoint, whatever their source. */
void stk_remote_share_env(remote_backend *b);

/* remote_task.c: copies a job. */
int stk_remote_task_new(remote_backend *b, const stk_job *job, remote_task **ret, stk_err *err);

/* remote_driver.c: the driver's thread. */
void *stk_remote_drive(void *backend);
/* Appends what a job printed to a file. With several nodes, lines of node K that begin with no
 * rank's number get "[node K] "; mid_lines, by node: its output ends within a line. */
void stk_remote_add_log(const char *path, uint32_t nodes, bool *mid_lines,
                        const stk_remote_report *r);

/* remote_stage.c, remote_collect.c; on a worker's thread, without the lock. */
int stk_remote_stage(remote_worker *w, remote_task *t, stk_err *err);
/* 0: *ret is its outcome. STK_E_BUSY: its results may still come, try again in *ret_again_ms. */
int stk_remote_collect(remote_worker *w, remote_task *t, stk_outcome *ret, int64_t *ret_again_ms,
                       stk_err *err);
/* Fetches an end.json (its key), and the files that it names to `dir`, but none above `most` bytes
 * besides metrics (*ret_left: there is one). Texts are in `arena`; `ret` and `ret_left` may be
 * NULL. */
int stk_remote_fetch_end(stk_share *share, const char *key, const char *dir, int64_t most,
                         stk_arena *arena, stk_remote_end *ret, bool *ret_left, stk_err *err);
/* Appends the output of a gang's nodes 1 … last to node 0's, as far as it arrived; repeatable. */
int stk_remote_add_nodes(const char *dir, uint32_t last, stk_err *err);
int stk_remote_worker_store(remote_worker *w, stk_err *err);
/* "<key>/<name>" in the task's arena, which the task's worker owns meanwhile; NULL: out of memory.
 */
const char *stk_remote_object(remote_task *t, const char *name);

#endif
