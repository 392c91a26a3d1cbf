/* The driver's state. One thread decides; whatever waits for a host or the store is a piece of work
 * for other threads, which comes back to that thread when it is done. So no state needs a lock but
 * the two queues of work. */
#ifndef STK_SSH_DRIVER_H
#define STK_SSH_DRIVER_H

#include <pthread.h>

#include "away/share/share.h"
#include "away/ssh/ssh_private.h"

enum {
    SSH_WORKERS = 24,
    SSH_AT_ONCE = 4, /* works of one host, beside its look */
    SSH_AGAIN_MS = 2000,
    SSH_AWAY_MS = 5000, /* a host that is away is asked again after … */
    SSH_FULL_MS = 4000, /* … and one whose disk is full gets a job */
    SSH_FRESH_MS = 1500 /* what a host answered is believed for so long */
};

typedef struct ssh_driver ssh_driver;

/* `run` is called by another thread, and touches only the work and what never changes; `done` by
 * the driver's own. */
typedef struct ssh_work {
    struct ssh_work *next;
    int host; /* -1: the store's */
    bool is_look;
    void (*run)(ssh_driver *d, struct ssh_work *w);
    void (*done)(ssh_driver *d, struct ssh_work *w);
    uint32_t id, attempt, part; /* of a task */
    stk_arena *arena;           /* freed after `done` */
    const char *head, *key, *text;
    int64_t timeout_ms;
    struct ssh_part *parts; /* copies, for work with all of a task's hosts */
    uint32_t n_parts;
    const char *const *orders; /* by part */
    uint32_t round;
    stk_json answer;
    stk_buf body;
    int rc;
    stk_err err;
} ssh_work;

typedef enum {
    SSH_FIND,     /* an earlier engine may have given it to a host */
    SSH_WAITS,    /* for a host */
    SSH_STARTS,   /* its hosts are chosen, and on record */
    SSH_LIVES,    /* its hosts have it */
    SSH_RETREATS, /* one of its hosts had no devices: it ends on all of them, and waits again */
    SSH_ENDS,     /* all of it has ended; what it made is brought to the store */
    SSH_OVER      /* its end is reported */
} ssh_phase;

/* A job on one host: a gang has several. */
typedef struct ssh_part {
    uint32_t host;
    ssh_job_now now;
    bool is_known; /* the host has it, as far as we know */
    bool is_gone;  /* and has forgotten it */
    bool is_let_go;
    int64_t log_at;
    int64_t none_since_ms; /* the host doesn't have it since then; 0: it has */
    uint32_t cpus[256];    /* those that were chosen for it */
    uint32_t n_cpus;
} ssh_part;

typedef struct ssh_task {
    const stk_remote_job *spec; /* until its end is reported */
    stk_arena *arena;
    uint32_t id, attempt, n_parts;
    const char *name, *key, *resources;
    stk_json order;
    stk_remote_options options;
    int pinned; /* host, or -1 */
    ssh_phase phase;
    bool is_at_work;     /* a work of it is on its way */
    bool may_be_there;   /* a start was sent, whose answer is lost */
    bool has_end;        /* … and the store has its end */
    bool was_recorded;   /* an earlier engine's record named its hosts */
    bool is_running;     /* reported */
    bool is_stopped;     /* with why, grace_ms */
    bool is_stop_sent;   /* … to its hosts */
    bool is_stop_urgent; /* again, with a shorter grace */
    stk_failure why;
    int64_t grace_ms;
    ssh_part *parts;
    int64_t cpu_milli, memory_bytes; /* of each part; 0: none */
    uint32_t n_devices;              /* whole ones, of each part */
    int64_t again_ms, since_ms;
    uint64_t tried; /* bits of hosts that had no devices, until they are asked anew */
    uint64_t bad;   /* bits of hosts that can't start it */
    char told[700], why_text[900];
} ssh_task;

/* What a host answered to one task's request. */
typedef struct ssh_answer {
    const char *resources; /* the task's */
    bool fits, is_free;
    uint32_t n_free;
    char why[600];
} ssh_answer;

typedef struct ssh_host {
    const char *name, *address; /* of the option, or as it says */
    stk_link *link;
    stk_share *mirror;                     /* of the store; NULL: it has the store itself */
    bool is_asked, is_looked_at, is_heard; /* a work is on its way */
    bool is_told;                          /* its trouble, to the user */
    bool is_broken;                        /* by a refusal that asking again doesn't change */
    int64_t away_until_ms;                 /* 0: it answers */
    int64_t facts_ms;                      /* 0: none yet */
    int64_t next_look_ms, next_hear_ms;
    int64_t full_until_ms; /* its disk was full a moment ago, as `full` says */
    char full[400];
    char trouble[900], own_address[128];
    int64_t cpu_milli, memory_bytes;
    uint32_t cpus[1024], load[1024]; /* its CPUs, and how many jobs of ours have each */
    uint32_t n_cpus;
    stk_arena *arena; /* of answers */
    ssh_answer *answers;
    uint32_t n_answers;
    uint32_t n_taken; /* devices that we gave away since it answered */
} ssh_host;

struct ssh_driver {
    stk_driver base;
    stk_driver_config config;
    stk_arena *arena;
    stk_remote_options options;
    stk_share *share;
    ssh_host *hosts;
    uint32_t n_hosts;
    int store_host; /* -1: none of them has the store alone */
    uint32_t slots; /* of each host; 0: no limit */
    int64_t poll_ms;
    ssh_task **tasks;
    uint32_t n_tasks, cap_tasks;
    /* work */
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t wake;
    pthread_t workers[SSH_WORKERS];
    uint32_t n_workers, n_idle, n_forgets;
    ssh_work *queue, *finished;
    uint32_t *n_at_work; /* by host */
    int done_fd, cancel_fd;
    bool is_closing;
};

int64_t stk_ssh_now_ms(void);
/* ssh_work.c */
ssh_work *stk_ssh_work_new(void (*run)(ssh_driver *d, ssh_work *w),
                           void (*done)(ssh_driver *d, ssh_work *w), int host);
/* Gives it to another thread, or frees it and returns false: the caller tries again later. */
bool stk_ssh_work_begin(ssh_driver *d, ssh_work *w);
void stk_ssh_work_free(ssh_work *w);
void stk_ssh_work_finished(ssh_driver *d); /* calls `done` of what has come back */
void stk_ssh_work_close(ssh_driver *d);
/* For `run`: asks w->host with w->head. */
void stk_ssh_ask(ssh_driver *d, ssh_work *w);
int stk_ssh_ask_host(ssh_driver *d, uint32_t host, const char *head, int64_t timeout_ms,
                     stk_arena *arena, stk_json *ret, stk_buf *ret_body, stk_err *err);

/* ssh_driver.c */
ssh_task *stk_ssh_task(ssh_driver *d, uint32_t id, uint32_t attempt);
void stk_ssh_say(ssh_driver *d, const ssh_task *t, stk_remote_state state, const char *text);
void stk_ssh_fail(ssh_driver *d, ssh_task *t, stk_failure failure, bool is_hopeless,
                  const char *text);
/* Why it waits; each reason is told once. */
void stk_ssh_waits(ssh_driver *d, ssh_task *t, const char *text);
bool stk_ssh_is_mirror(const ssh_driver *d, uint32_t host);
const char *stk_ssh_part_name(const ssh_task *t, uint32_t part, stk_arena *arena);
/* ssh_place.c: which hosts */
void stk_ssh_host_failed(ssh_driver *d, uint32_t host, const stk_err *why);
void stk_ssh_host_answered(ssh_driver *d, uint32_t host);
/* Its disk is full (NULL: it has room again): the tasks there say so, and it gets no others. */
void stk_ssh_host_full(ssh_driver *d, uint32_t host, const char *why);
bool stk_ssh_host_is_up(const ssh_driver *d, uint32_t host);
int64_t stk_ssh_place_some(ssh_driver *d, int64_t now);
void stk_ssh_release(ssh_driver *d, ssh_task *t, bool forgets_cpus);
/* ssh_start.c */
void stk_ssh_find(ssh_driver *d, ssh_task *t);
void stk_ssh_start(ssh_driver *d, ssh_task *t);
/* ssh_watch.c */
int64_t stk_ssh_look_at_hosts(ssh_driver *d, int64_t now);
int64_t stk_ssh_see_to_live(ssh_driver *d, int64_t now);
/* ssh_end.c */
void stk_ssh_bring_results(ssh_driver *d, ssh_task *t);
void stk_ssh_report_end(ssh_driver *d, ssh_task *t);
void stk_ssh_forget(ssh_driver *d, ssh_task *t, uint32_t part);

/* ssh_mirror.c: what a job on a host without the store reads and made. In a worker's thread. */
int stk_ssh_mirror_in(ssh_driver *d, uint32_t host, const char *key, stk_err *err);
int stk_ssh_mirror_out(ssh_driver *d, uint32_t host, uint32_t node, const char *key, stk_err *err);
/* Has what running jobs there measured brought to the store; returns when again. */
int64_t stk_ssh_mirror_live(ssh_driver *d, int64_t now);
/* Removes the attempt's own objects there. */
void stk_ssh_mirror_drop(ssh_driver *d, uint32_t host, const char *key);

#endif
