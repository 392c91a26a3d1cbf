/* The driver's state. It has one thread and acts in turn(); Slurm's commands take some ten
 * milliseconds each. */
#ifndef STK_SLURM_DRIVER_H
#define STK_SLURM_DRIVER_H

#include "away/slurm/slurm_private.h"

typedef enum {
    SLURM_NEW,  /* to be submitted, or looked for among the jobs that Slurm has */
    SLURM_LIVE, /* Slurm has it */
    SLURM_DONE  /* its end is reported */
} slurm_state;

typedef struct slurm_job {
    const stk_remote_job *spec;
    slurm_state state;
    char id[32];     /* Slurm's; "": unknown */
    bool must_look;  /* it may be there already */
    bool is_running; /* reported */
    bool is_seen;    /* by the last look */
    bool is_stopped, is_killed;
    uint32_t n_missing;
    stk_failure why;
    int64_t stop_ms, kill_ms; /* due; 0: not due */
    int64_t since_ms;         /* Slurm has it */
    int64_t log_due_ms;
    off_t *log_at; /* of each node */
    char told[512], why_text[640];
} slurm_job;

typedef struct slurm_driver {
    stk_driver base;
    stk_driver_config config;
    slurm_job **jobs;
    uint32_t n_jobs, cap_jobs;
    int64_t poll_ms, next_look_ms;
    int64_t again_ms; /* not before: Slurm's controller is away */
    bool is_away;     /* … and the user knows */
} slurm_driver;

int64_t stk_slurm_now_ms(void);
void stk_slurm_say(slurm_driver *d, const slurm_job *job, stk_remote_state state, const char *text);
/* Ends a job without a state from Slurm. */
void stk_slurm_fail(slurm_driver *d, slurm_job *job, stk_failure failure, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Slurm has the job. */
void stk_slurm_live(slurm_driver *d, slurm_job *job, const char *id);
/* An error that may pass: waits, and tells the jobs once. Returns false for others. */
bool stk_slurm_wait_out(slurm_driver *d, const stk_err *why);

/* slurm_submit.c */
void stk_slurm_submit_some(slurm_driver *d);
/* slurm_watch.c */
void stk_slurm_look(slurm_driver *d);
void stk_slurm_follow_logs(slurm_driver *d, slurm_job *job);
/* slurm_stop.c: sends what is due; returns when the next is, or INT64_MAX. */
int64_t stk_slurm_stop_due(slurm_driver *d);

#endif
