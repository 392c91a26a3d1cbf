/* The driver's state. It has one thread and acts in turn(). Slurm's commands take some ten
 * milliseconds each, but minutes while its controller is away: one at a time runs beside the turns,
 * and a later turn takes its answer. */
#ifndef STK_SLURM_DRIVER_H
#define STK_SLURM_DRIVER_H

#include "away/slurm/slurm_private.h"
#include "base/digest.h"
#include "base/map.h"

typedef enum {
    SLURM_NEW,   /* to be submitted, or looked for among the jobs that Slurm has */
    SLURM_LIVE,  /* Slurm has it */
    SLURM_FLIES, /* a pilot has it */
    SLURM_DONE   /* its end is reported */
} slurm_state;

/* What is to be asked about a single job. */
typedef enum {
    DOUBT_NONE,
    DOUBT_END,      /* squeue says how it ended, but not its exit status */
    DOUBT_GONE,     /* squeue has it no more */
    DOUBT_ACCOUNT,  /* … nor has the controller */
    DOUBT_RESTARTS, /* it waits: for the first time? */
} slurm_doubt;

typedef struct slurm_job {
    const stk_remote_job *spec;
    slurm_state state;
    char id[32];    /* Slurm's; "": unknown */
    bool must_look; /* it may be there already, or is being submitted */
    slurm_doubt doubt;
    char end_state[40];            /* DOUBT_END */
    const stk_remote_array *array; /* it is child `index` of it; NULL: a job of its own */
    uint32_t index;
    char form[STK_DIGEST_HEX + 1]; /* what it has in common with those of its array */
    int64_t came_ms;
    char pilot_form[STK_DIGEST_HEX + 1]; /* what it has in common with others of its pilot; "": it
                                            is none's */
    uint32_t max_pilots;
    stk_slurm_load load;
    int64_t gpu_milli;         /* thousandths of GPUs that it has of its pilot */
    struct slurm_pilot *pilot; /* that has it; or NULL */
    int64_t order_at;          /* the pilot's orders up to here name it */
    struct slurm_pilot *leads; /* it is this pilot's own job; or NULL */
    bool is_running;           /* reported */
    bool is_seen;              /* by the last look */
    bool is_stopped;
    bool stops_alone;    /* a scancel of many was refused for one of them */
    bool asked_restarts; /* whether it has run before */
    uint32_t n_missing;
    stk_failure why;
    int64_t stop_ms, kill_ms; /* due; 0: not due */
    int64_t since_ms;         /* Slurm has it */
    int64_t log_due_ms;
    off_t *log_at; /* of each node */
    char told[512], why_text[640];
    int64_t told_ms;
} slurm_job;

struct slurm_driver;
/* The answer: `out`, or `why` there is none. */
typedef void (*slurm_take)(struct slurm_driver *d, const char *out, const stk_err *why);

typedef struct slurm_question {
    slurm_take take; /* NULL: nothing is asked */
    stk_slurm_command *command;
    stk_err failed;   /* the command couldn't be started */
    slurm_job **jobs; /* whom it concerns; NULL: forgotten meanwhile */
    uint32_t n_jobs;
    int way; /* of ending jobs */
} slurm_question;

typedef struct slurm_driver {
    stk_driver base;
    stk_driver_config config;
    slurm_question asked;
    int64_t silent_since_ms; /* Slurm has been asked since then without an answer; 0: it answers */
    slurm_job **jobs;
    uint32_t n_jobs, cap_jobs;
    stk_arena *arena;       /* for what lives as long as the driver */
    stk_arena *lists_arena; /* the lists of the run's arrays; NULL: not read yet */
    stk_map children;       /* key of an attempt to stk_remote_child */
    uint32_t array_max;     /* of an array's children */
    bool knows_array_max;
    struct slurm_pilot *pilots;
    stk_map flown; /* key of an attempt that an earlier engine gave to a pilot, to slurm_flown */
    bool has_found_pilots;
    stk_arena *gpus_arena; /* of: what nodes of a partition have ("": the default one), … */
    const char *gpus_of, *gpus_lines;
    int64_t gpus_ms;         /* … and when that was said */
    const char *gpus_wanted; /* is to be asked; in the driver's arena */
    int64_t poll_ms, next_look_ms;
    int64_t again_ms; /* not before: Slurm's controller is away */
    bool is_away;     /* … and the user knows */
} slurm_driver;

typedef struct slurm_pilot slurm_pilot; /* slurm_pilot.h */

typedef struct slurm_flown {
    slurm_pilot *pilot;
    int64_t order_at;
} slurm_flown;

int64_t stk_slurm_now_ms(void);
/* Everything that is said of a job goes this way: a pilot's own job is for its attempts to hear. */
void stk_slurm_report(slurm_driver *d, slurm_job *job, const stk_remote_report *report);
int stk_slurm_add_pilot_job(slurm_driver *d, slurm_pilot *p);
void stk_slurm_drop_pilot_job(slurm_driver *d, slurm_pilot *p);
void stk_slurm_say(slurm_driver *d, slurm_job *job, stk_remote_state state, const char *text);
/* Ends a job without a state from Slurm. */
void stk_slurm_fail(slurm_driver *d, slurm_job *job, stk_failure failure, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Slurm has the job. */
void stk_slurm_live(slurm_driver *d, slurm_job *job, const char *id);
/* Waits, and tells the jobs once. */
void stk_slurm_is_unanswered(slurm_driver *d, const stk_err *why);
/* An error that may pass: waits, and tells the jobs once. Returns false for others. */
bool stk_slurm_wait_out(slurm_driver *d, const stk_err *why);

bool stk_slurm_has_in(const slurm_driver *d, slurm_state state);
/* Nobody knows of it, and it isn't being submitted. */
bool stk_slurm_is_fresh(const slurm_job *job);

/* --- questions: slurm_question.c --- */

/* Asks by a command; `take` gets the answer in a later turn. `jobs`: whom it concerns. */
void stk_slurm_ask(slurm_driver *d, const char *const *argv, const char *const *more,
                   const char *input, slurm_job *const *jobs, uint32_t n_jobs, slurm_take take);
bool stk_slurm_is_asking(const slurm_driver *d);
/* Waits for the answer, `wake_fd` or that time, and takes the answer. */
void stk_slurm_await_answer(slurm_driver *d, int wake_fd, int64_t until_ms);
/* The answer won't concern the job. */
void stk_slurm_without_job(slurm_driver *d, const slurm_job *job);
/* For longer than a controller at work takes. */
bool stk_slurm_is_silent(const slurm_driver *d, int64_t now_ms);
/* Ends what is asked. */
void stk_slurm_ask_no_more(slurm_driver *d);

/* Each of these asks what it has to, if it has; else returns when it will, or INT64_MAX. */
int64_t stk_slurm_stop_due(slurm_driver *d);    /* slurm_stop.c */
int64_t stk_slurm_find_jobs(slurm_driver *d);   /* slurm_find.c: those that may be there already */
int64_t stk_slurm_ask_doubts(slurm_driver *d);  /* slurm_doubt.c */
int64_t stk_slurm_look(slurm_driver *d);        /* slurm_watch.c */
int64_t stk_slurm_ask_gpus(slurm_driver *d);    /* slurm_pilot_open.c */
int64_t stk_slurm_submit_some(slurm_driver *d); /* slurm_submit.c: what has gathered */

/* Whether jobs are to be looked for. */
bool stk_slurm_must_look(const slurm_driver *d);
/* slurm_submit.c */
/* What jobs of one array have in common; "": it is no child. */
int stk_slurm_form(const slurm_driver *d, slurm_job *job, stk_err *err);
/* --- slurm_watch.c --- */

/* Reports its end as Slurm tells it; exit_code NULL: unknown. */
void stk_slurm_report_end(slurm_driver *d, slurm_job *job, const char *state,
                          const char *exit_code);
/* Somebody else, or a failed node, sent the job back to the queue. */
void stk_slurm_was_requeued(slurm_driver *d, slurm_job *job);
void stk_slurm_follow_logs(slurm_driver *d, slurm_job *job);

#endif
