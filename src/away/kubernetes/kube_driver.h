/* Private to the room's driver, on its one thread: its jobs, and the namespaces that it watches. */
#ifndef STK_KUBE_DRIVER_H
#define STK_KUBE_DRIVER_H

#include "away/kubernetes/kube_nodes.h"
#include "away/kubernetes/kube_rights.h"
#include "away/kubernetes/kube_status.h"

enum { KUBE_BUCKETS = 4096, KUBE_OPS = 16, KUBE_LOGS = 64, KUBE_LAST_LOGS = 32 };

typedef struct stk_kube_log {
    enum { KUBE_LOG_NONE, KUBE_LOG_OPEN, KUBE_LOG_DONE } state;
    uint64_t call;
    bool said_running; /* RUNNING was reported for its pod */
    bool is_last;      /* its pod has ended: counted in n_last_logs, not in n_logs */
    int64_t not_before_ms;
    bool was_whole;  /* the last stream ended without an error */
    uint32_t n_ends; /* of streams, without anything new in between */
    char stamp[40];  /* of the last line passed on */
    uint32_t n_same; /* lines passed on with that stamp */
    uint32_t n_skip; /* how many of these a reopened stream still repeats */
    bool is_behind;  /* the stream was reopened: it may repeat lines */
    size_t n_part;   /* bytes passed on of an unfinished line */
    stk_buf rest;    /* the unfinished line */
} stk_kube_log;

/* One form in which a job can be sent. */
typedef struct stk_kube_way {
    bool is_set;                /* a JobSet, not a Job */
    const char *plural, *group; /* "jobs", "/apis/batch/v1" */
    const char *kind, *word;    /* "Job", "job" */
    stk_json docs;              /* in sending order, in the job's arena */
} stk_kube_way;

typedef struct stk_kube_task {
    struct stk_kube_task *next, *previous; /* in the list of all tasks */
    int64_t idle_until_ms;                 /* without news, nothing is due before */
    struct stk_kube_task *chain;           /* next in its hash bucket */
    struct stk_kube *kube;
    struct stk_kube_space *space;
    stk_arena *arena;        /* has the documents; NULL once all are created */
    uint32_t id, attempt, n; /* n: nodes */
    char name[STK_KUBE_NAME + 1];
    /* A gang has two, the preferred one first: an earlier engine may have sent the other. */
    stk_kube_way ways[2];
    uint32_t n_ways, i_way;
    bool open; /* the user prefers neither way: what the cluster has and allows decides */
    int64_t grace_ms, pending_ms; /* pending_ms: it fails if it waits longer; 0: no limit */
    int64_t lost_s;               /* the pods of a silent node are removed after so long */
    bool keep;
    uint32_t i_doc;  /* the document to send next */
    int64_t made_ms; /* when all documents were created; 0: not yet */
    /* the request under way */
    enum { KUBE_IDLE, KUBE_POST, KUBE_GET, KUBE_DELETE, KUBE_KILL, KUBE_LOOK } op;
    uint64_t call;
    int64_t not_before_ms;
    uint32_t listed_before; /* lists with a number up to this may be older than the job */
    bool attach;            /* only attach: the job must exist already */
    bool ask;               /* it may exist: GET it, one way after the other */
    bool maybe, posted;     /* the server may have the job; the server has it */
    /* what is known */
    stk_kube_job job;
    stk_kube_pod *pods;
    stk_kube_log *logs;
    bool has_run, said_lost;
    int64_t since_ms, settle_ms, end_seen_ms, unsure_ms, deleting_ms;
    char words[1024];    /* the last reported reason why it waits */
    const char *classes; /* in the arena: the models that it asks for, one a line; or NULL */
    bool fitted;         /* its documents name the nodes' own labels */
    char misfit[512];    /* no node has the model: what they have; "": some has it */
    char event[1024], event_at[40]; /* the newest event that gives a reason, and its time */
    int64_t look_ms;
    uint32_t n_looks;
    /* removal and end */
    bool removing, removed; /* must be deleted; the server accepted the DELETE */
    bool set_gone;          /* the JobSet no longer exists */
    int64_t kill_ms, give_up_ms;
    uint32_t n_kills;
    stk_remote_report end; /* what to report once the job is gone */
    bool is_allowed;       /* we have the rights that it needs */
    bool reads;            /* it is another machine's: nothing is created, ended or removed */
    bool lives;            /* we gave up, and its Job may run on */
    bool is_hopeless;      /* another attempt would fail the same way */
    bool ended, forgotten;
} stk_kube_task;

typedef struct stk_kube_feed { /* lists, then watches from the list's version; repeated */
    struct stk_kube_space *space;
    enum { KUBE_OF_JOBS, KUBE_OF_PODS, KUBE_OF_EVENTS } of;
    const char *group, *plural;
    enum { KUBE_FEED_IDLE, KUBE_FEED_LIST, KUBE_FEED_WATCH } state;
    uint64_t call;
    int64_t not_before_ms;
    bool listed; /* a watch can start from `version` */
    uint32_t n_lists;
    char version[64];
    char *more; /* the list's continue token, or NULL */
    stk_buf line;
    int64_t begun_ms;
    int64_t until_ms; /* of events: nobody needs them later */
    bool refused;     /* of events: we may not watch them */
} stk_kube_feed;

typedef struct stk_kube_ask_right {
    struct stk_kube_space *space;
    enum { KUBE_RIGHT_UNKNOWN, KUBE_RIGHT_ASKED, KUBE_RIGHT_GIVEN, KUBE_RIGHT_DENIED } state;
    int64_t not_before_ms;
} stk_kube_ask_right;

typedef struct stk_kube_space {
    struct stk_kube_space *next;
    struct stk_kube *kube;
    char *name;
    stk_kube_ask_right rights[KUBE_RIGHTS];
    stk_kube_feed jobs, pods, events;
    bool reads; /* only jobs of other machines: the rights to create and delete aren't needed */
} stk_kube_space;

typedef struct stk_kube {
    stk_driver base;
    const stk_driver_config *config;
    stk_arena *arena;
    stk_arena *scratch; /* reset for each event and request path */
    stk_json options;
    stk_kube_config cluster;
    stk_kube_api api;
    stk_kube_space *spaces;
    stk_kube_task *first, *last;
    stk_kube_task *buckets[KUBE_BUCKETS];
    uint32_t n_ops, n_looks, n_logs, n_last_logs;
    int64_t look_ms;
    int64_t down_ms, down_said_ms; /* of a reported outage: its begin (0: none), the last note */
    int64_t back_ms;               /* when the last one ended; 0: there was none */
    uint32_t n_no_credential;
    bool no_logs; /* we may not read logs; already reported */
    enum { KUBE_SETS_UNKNOWN, KUBE_SETS_NONE, KUBE_SETS_THERE } sets; /* the add-on JobSet */
    bool asks_sets;
    int64_t sets_not_before_ms;
    stk_kube_nodes nodes;
    stk_err fatal;
    int64_t until_ms; /* deadline for removing all jobs after `fatal`; 0: no fatal error yet */
} stk_kube;

int stk_kube_open(const stk_driver_config *config, stk_kube **ret, stk_err *err);
int stk_kube_check(const stk_driver_config *config,
                   void (*say)(void *arg, bool is_good, const char *text), void *arg, stk_err *err);

/* Records an error that no retry can fix. Only the first one counts; turn removes the jobs, then
 * fails with it. */
void stk_kube_fatal(stk_kube *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Starts a request. False: it can't start now (no credential, no memory), try later. */
bool stk_kube_begin(stk_kube *k, const stk_kube_request *request, uint64_t *ret_id);
bool stk_kube_may_begin(const stk_kube *k, int64_t not_before_ms, int64_t now);
/* Returns true for a temporary or a fatal answer, and sets *ret_ms to the time of the next try. A
 * fatal one is recorded by stk_kube_fatal. */
bool stk_kube_passes(stk_kube *k, const stk_kube_answer *a, int64_t wait_ms, int64_t *ret_ms);
stk_kube_task *stk_kube_find(const stk_kube *k, const char *name);
void stk_kube_note(stk_kube *k, const stk_kube_task *t, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Is k->sets known? If not, asks the cluster, and again if the answer was lost. */
bool stk_kube_knows_sets(stk_kube *k, int64_t now);

/* --- kube_task --- */
/* Takes ownership of `arena`, which holds the ways' documents. NULL: out of memory, and the caller
 * keeps the arena. */
stk_kube_task *stk_kube_task_new(stk_kube *k, const stk_remote_job *job, const stk_json *options,
                                 const stk_kube_way *ways, uint32_t n_ways, stk_arena *arena);
void stk_kube_task_free(stk_kube_task *t);
void stk_kube_task_step(stk_kube_task *t, int64_t now); /* may free it */
/* Removes the job, then reports `end`. */
void stk_kube_task_remove(stk_kube_task *t, const stk_remote_report *end, int64_t grace_ms);
/* After a fatal error: removes the job. `is_last`: time is up, so reports that it may run on. */
void stk_kube_task_give_up(stk_kube_task *t, bool is_last);
/* Judges the job anew by its Job and pods, and reports what changed. */
void stk_kube_task_settle(stk_kube_task *t, int64_t now);

/* --- kube_watch --- */
int stk_kube_space_get(stk_kube *k, const char *name, stk_kube_space **ret, stk_err *err);
void stk_kube_space_step(stk_kube_space *s, int64_t now);
void stk_kube_spaces_free(stk_kube *k);
/* Takes an Event of the job or its pods: it may tell why the job waits. */
void stk_kube_task_hear(stk_kube_task *t, const stk_json *event);

/* --- kube_rights --- */
/* Are all rights in this namespace known? Asks the cluster for those that aren't, once each. */
bool stk_kube_knows_rights(stk_kube_space *s, int64_t now);
/* A right that `need` requires and we lack; NULL: none. */
const stk_kube_right *stk_kube_missing(const stk_kube_space *s, stk_kube_need need);

/* --- kube_sweep --- */
/* At a run's end, removes Jobs whose end is on record. Blocks for some seconds at most. */
void stk_kube_sweep(stk_kube *k);

/* --- kube_logs --- */
bool stk_kube_logs_step(stk_kube_task *t, int64_t now); /* false: some must wait to open */
bool stk_kube_logs_done(const stk_kube_task *t);        /* all pods' logs are read */
void stk_kube_logs_free(stk_kube_task *t);

#endif
