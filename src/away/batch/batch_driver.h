/* The driver's inside: jobs on their way through Batch. One thread; everything happens in turn(),
 * by answers. Only what is asked of the share has a thread of its own (batch_lists.c). */
#ifndef STK_BATCH_DRIVER_H
#define STK_BATCH_DRIVER_H

#include "away/batch/batch_calls.h"
#include "away/batch/batch_private.h"
#include "base/map.h"

typedef struct batch_driver batch_driver;
typedef struct batch_job batch_job;
typedef struct batch_find batch_find; /* batch_find.h */
typedef struct batch_listing batch_listing;
typedef struct batch_child batch_child;
typedef struct batch_errand batch_errand;
typedef struct batch_send batch_send; /* batch_send.h */

enum { STK_BATCH_NAME = 128 /* bytes of a job's name, at most */ };

/* A queue that jobs name, looked at once, and again while jobs wait for long. */
typedef struct batch_queue {
    struct batch_queue *next;
    batch_driver *driver;
    const char *name;
    stk_arena *arena; /* what was read last */
    bool is_asked, is_known, is_failed;
    uint32_t n_listings; /* of its jobs, under way */
    char error[640];
    int64_t looked_ms;
    char
        waits[512]; /* why jobs of it wait, as far as queue and environments tell; "": they don't */
    stk_batch_queue facts;
    stk_batch_environment *environments;
    uint32_t n_environments;
} batch_queue;

typedef struct batch_definition {
    struct batch_definition *next;
    batch_driver *driver;
    char name[64];
    const char *request;
    char arn[256]; /* "": not known yet */
} batch_definition;

typedef struct batch_stream {
    struct batch_job *job;
    uint32_t node;
    char *group, *name, *token;
    bool is_asked, is_read; /* read: up to its end, since the job has ended */
    int64_t due_ms, wait_ms;
} batch_stream;

/* An array that Batch has. */
typedef struct batch_array {
    struct batch_array *next;
    batch_driver *driver;
    char aws_id[64];
    uint32_t n_open, n_stops; /* children that are watched; of them to be ended */
} batch_array;

typedef enum {
    BATCH_QUEUE,   /* its queue is being looked at */
    BATCH_SECRETS, /* its secrets are being put */
    BATCH_DEFINE,  /* its definition is being looked up, or registered */
    BATCH_LOOK,    /* an earlier engine may have submitted it: is it there? */
    BATCH_GATHER,  /* it waits a moment for others like it */
    BATCH_SEND,    /* SubmitJob is under way */
    BATCH_LIVE,    /* Batch has it */
    BATCH_DRAIN,   /* it has ended, its log is read to the end */
    BATCH_DONE
} batch_phase;

struct batch_job {
    batch_driver *driver;
    uint32_t refs; /* of calls under way */
    bool forgotten;
    stk_arena *arena; /* until Batch has it */
    const stk_remote_job *spec;
    uint32_t id, attempt, nodes;
    char name[64], aws_id[64];
    batch_phase phase;
    bool attach, look;
    stk_batch_ask ask;
    batch_queue *queue;
    batch_definition *definition;
    const char **secret_at;
    uint32_t n_secrets, n_missing;
    batch_find *find;         /* of BATCH_LOOK: what it waits for; NULL: the lists */
    const batch_child *child; /* the list's entry that is looked for; NULL: its own name is */
    batch_array *array;       /* of which it is a child, or NULL */
    int64_t since_ms;         /* Batch has it */
    int64_t state_ms;         /* in its state */
    stk_batch_state state;
    bool is_stopped, is_terminated, has_nodes; /* has_nodes: its nodes are looked at as well */
    stk_failure why;
    char why_text[512], told[512];
    batch_stream *streams; /* one a node; NULL: none known */
    int64_t drain_ms;      /* until then its log is waited for */
    stk_remote_report end;
    char word[400]; /* the last line of its log that our own text wrote ("stoker: …") */
    char line[400]; /* the line that is being read */
    size_t line_len;
};

struct batch_driver {
    stk_driver base;
    stk_driver_config config;
    stk_arena *arena; /* of what lives as long as the driver */
    stk_aws *aws;
    stk_http_many *http;
    stk_batch_calls *calls;
    char region[64];
    batch_queue *queues;
    batch_definition *definitions;
    batch_job **jobs;
    uint32_t n_jobs, cap_jobs, n_live, n_drain, n_looking;
    batch_send *sends;
    batch_find *finds;
    batch_listing *listings; /* under way */
    batch_array *arrays;
    int64_t stops_ms;       /* when some jobs are to be ended; 0: none is */
    batch_errand *lists;    /* the share's lists are being read */
    stk_arena *lists_arena; /* what they say; NULL: not known yet */
    stk_map children;       /* key of an attempt: its batch_child */
    uint32_t n_errands;     /* under way */
    char *link;             /* to the carried tar, signed not long ago; or NULL */
    int64_t link_ms;
    int64_t poll_ms, look_ms, next_look_ms; /* look_ms: the period now */
    uint32_t n_looks;                       /* DescribeJobs under way */
    bool logs_off, logs_other_told;
    uint32_t next_log;       /* whose turn it is to be read */
    const char **parameters; /* put for this run */
    uint32_t n_parameters, cap_parameters;
    bool may_look;      /* DescribeJobs was answered */
    int broken;         /* ≠ 0: Batch can't be used any more */
    bool may_end;       /* … and yet jobs may perhaps be ended */
    int64_t give_up_ms; /* … until then that is tried; 0: not yet */
    char broken_text[640];
};

int64_t stk_batch_now_ms(void);
/* A call about a job, which isn't freed before the answer. An error is the job's end. */
void stk_batch_job_ask(batch_job *job, const stk_batch_ask_call *call);
/* In `done` of such a call: the job, or NULL when it is gone; lets go of it. */
batch_job *stk_batch_answered(void *arg);
void stk_batch_say(batch_job *job, stk_remote_state state, const char *text);
/* Its end without Batch's word. */
void stk_batch_fail(batch_job *job, stk_failure failure, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void stk_batch_fail_unsent(batch_job *job); /* it was to end before it was submitted */
void stk_batch_report_end(batch_job *job);
/* Batch can't be used any more (no right): true when `answer` says so. */
bool stk_batch_is_broken(batch_driver *driver, const stk_batch_answer *answer);
/* In an arena of its own, for answers are lent. NULL: no memory. */
const stk_json *stk_batch_keep(const stk_json *json, stk_arena *arena);

/* batch_submit.c: until its definition is there */
void stk_batch_begin(batch_job *job);
void stk_batch_queue_look(batch_queue *queue); /* again: why do jobs wait? */
void stk_batch_remove_parameters(batch_driver *driver);
/* batch_watch.c */
void stk_batch_live(batch_job *job, const char *aws_id);
/* As child `index` of the array. */
void stk_batch_live_child(batch_job *job, const char *array_id, uint32_t index);
void stk_batch_not_live(batch_job *job); /* its phase is about to change */
void stk_batch_look_at_jobs(batch_driver *driver, int64_t now_ms);
/* batch_end.c */
void stk_batch_terminate(batch_job *job); /* soon: by stk_batch_end_jobs */
/* Batch can't be used any more: what it has is ended, or its end says that it may run on. True:
 * nobody is left. */
bool stk_batch_give_up(batch_driver *driver, int64_t now_ms);
int64_t stk_batch_end_jobs(batch_driver *driver, int64_t now_ms); /* as of stk_batch_find_due */
/* batch_logs.c */
void stk_batch_log_found(batch_job *job, uint32_t node, const stk_batch_detail *detail);
void stk_batch_read_logs(batch_driver *driver, int64_t now_ms);
bool stk_batch_log_is_read(const batch_job *job);
void stk_batch_logs_free(batch_job *job);

#endif
