/* The driver's state: jobs on their way through Batch. It has one thread, and acts only in turn(),
 * on answers. Only requests to the share have their own thread (batch_lists.c). */
#ifndef STK_BATCH_DRIVER_H
#define STK_BATCH_DRIVER_H

#include "away/batch/batch_calls.h"
#include "away/batch/batch_private.h"
#include "away/remote/remote_array.h"
#include "base/map.h"

typedef struct batch_driver batch_driver;
typedef struct batch_job batch_job;
typedef struct batch_find batch_find; /* batch_find.h */
typedef struct batch_listing batch_listing;
typedef struct batch_errand batch_errand;
typedef struct batch_send batch_send; /* batch_send.h */

enum { STK_BATCH_NAME = 128 /* most bytes of a job's name */ };

/* A queue that jobs name. It is read once, and again while jobs wait for long. */
typedef struct batch_queue {
    struct batch_queue *next;
    batch_driver *driver;
    const char *name;
    stk_arena *arena; /* data of the last reading */
    bool is_asked, is_known, is_failed;
    uint32_t n_listings; /* running ListJobs calls */
    char error[640];
    int64_t looked_ms;
    char waits[512]; /* why its jobs wait, by queue and environments; "": unknown */
    stk_batch_queue facts;
    stk_batch_environment *environments;
    uint32_t n_environments;
} batch_queue;

typedef struct batch_definition {
    struct batch_definition *next;
    batch_driver *driver;
    char name[64];
    const char *request;
    char arn[256]; /* "": unknown */
} batch_definition;

typedef struct batch_stream {
    struct batch_job *job;
    uint32_t node;
    char *group, *name, *token;
    bool is_asked, is_read; /* is_read: up to the end, after the job's end */
    int64_t due_ms, wait_ms;
} batch_stream;

/* An array job in Batch. */
typedef struct batch_array {
    struct batch_array *next;
    batch_driver *driver;
    char aws_id[64];
    uint32_t n_open, n_stops; /* children under watch; children to end */
} batch_array;

typedef enum {
    BATCH_QUEUE,   /* reads its queue */
    BATCH_SECRETS, /* stores its secrets */
    BATCH_DEFINE,  /* looks up or registers its definition */
    BATCH_LOOK,    /* checks whether an earlier engine submitted it */
    BATCH_GATHER,  /* waits a moment for jobs like it */
    BATCH_SEND,    /* runs SubmitJob */
    BATCH_LIVE,    /* Batch has it */
    BATCH_DRAIN,   /* has ended; reads its log to the end */
    BATCH_DONE
} batch_phase;

struct batch_job {
    batch_driver *driver;
    uint32_t refs; /* of running calls */
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
    batch_find *find; /* of BATCH_LOOK: the search that it waits for; NULL: the lists */
    const stk_remote_child *child; /* the list's entry to look for; NULL: its own name */
    batch_array *array;            /* the array that it belongs to, or NULL */
    int64_t since_ms;              /* Batch has it */
    int64_t state_ms;              /* begin of its state */
    stk_batch_state state;
    bool is_stopped, is_terminated, has_nodes; /* has_nodes: its nodes are read, too */
    stk_failure why;
    char why_text[512], told[512];
    batch_stream *streams; /* one for each node; NULL: unknown */
    int64_t drain_ms;      /* end of the wait for its log */
    stk_remote_report end;
    char word[400]; /* the last line of its log that our program wrote ("stoker: …") */
    char line[400]; /* the unfinished line */
    size_t line_len;
};

struct batch_driver {
    stk_driver base;
    stk_driver_config config;
    stk_arena *arena; /* for data that lives as long as the driver */
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
    int64_t stops_ms;       /* when to end jobs; 0: none */
    batch_errand *lists;    /* reads the share's lists */
    stk_arena *lists_arena; /* their content; NULL: not read yet */
    stk_map children;       /* attempt key to stk_remote_child */
    uint32_t n_errands;     /* under way */
    char *link;             /* recently signed link to the archive of our program, or NULL */
    int64_t link_ms;
    int64_t poll_ms, look_ms, next_look_ms; /* look_ms: the current period */
    uint32_t n_looks;                       /* running DescribeJobs calls */
    bool logs_off, logs_other_told;
    uint32_t next_log;       /* the log to read next */
    const char **parameters; /* secrets stored for this run */
    uint32_t n_parameters, cap_parameters;
    bool may_look;      /* DescribeJobs was answered */
    int broken;         /* ≠ 0: error because of which Batch can't be used any more */
    bool may_end;       /* … but ending jobs may still work */
    int64_t give_up_ms; /* … end of these tries; 0: not begun */
    char broken_text[640];
};

int64_t stk_batch_now_ms(void);
/* Makes a call about a job, and keeps the job until the answer. An error ends the job. */
void stk_batch_job_ask(batch_job *job, const stk_batch_ask_call *call);
/* Call it in `done` of such a call: releases and returns the job; NULL: it has been freed. */
batch_job *stk_batch_answered(void *arg);
void stk_batch_say(batch_job *job, stk_remote_state state, const char *text);
/* Ends the job without a state from Batch. */
void stk_batch_fail(batch_job *job, stk_failure failure, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void stk_batch_fail_unsent(batch_job *job); /* it was stopped before its submission */
void stk_batch_report_end(batch_job *job);
/* Returns true if by this answer Batch can't be used any more (missing right). */
bool stk_batch_is_broken(batch_driver *driver, const stk_batch_answer *answer);
/* Copies it to an arena, because answers are borrowed. NULL: out of memory. */
const stk_json *stk_batch_keep(const stk_json *json, stk_arena *arena);

/* batch_submit.c: up to the job's definition */
void stk_batch_begin(batch_job *job);
void stk_batch_queue_look(batch_queue *queue); /* reads again why jobs wait */
void stk_batch_remove_parameters(batch_driver *driver);
/* batch_watch.c */
void stk_batch_live(batch_job *job, const char *aws_id);
/* The same for child `index` of the array. */
void stk_batch_live_child(batch_job *job, const char *array_id, uint32_t index);
void stk_batch_not_live(batch_job *job); /* call it before its phase changes */
void stk_batch_look_at_jobs(batch_driver *driver, int64_t now_ms);
/* batch_end.c */
void stk_batch_terminate(batch_job *job); /* soon: by stk_batch_end_jobs */
/* After Batch became unusable: ends the jobs that it has, or reports that they may run on. Returns
 * true when no job is left. */
bool stk_batch_give_up(batch_driver *driver, int64_t now_ms);
int64_t stk_batch_end_jobs(batch_driver *driver,
                           int64_t now_ms); /* returns as stk_batch_find_due */
/* batch_logs.c */
void stk_batch_log_found(batch_job *job, uint32_t node, const stk_batch_detail *detail);
void stk_batch_read_logs(batch_driver *driver, int64_t now_ms);
bool stk_batch_log_is_read(const batch_job *job);
void stk_batch_logs_free(batch_job *job);

#endif
