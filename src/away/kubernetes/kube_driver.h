/* Private to the room's driver: its jobs, and the namespaces that are watched.
 * All on one thread. */
#ifndef STK_KUBE_DRIVER_H
#define STK_KUBE_DRIVER_H

#include "away/kubernetes/kube_rights.h"
#include "away/kubernetes/kube_status.h"

enum { KUBE_BUCKETS = 4096, KUBE_OPS = 16, KUBE_LOGS = 64, KUBE_LAST_LOGS = 32 };

typedef struct stk_kube_log {
    enum { KUBE_LOG_NONE, KUBE_LOG_OPEN, KUBE_LOG_DONE } state;
    uint64_t call;
    bool said_running; /* of its pod */
    bool is_last;      /* of a pod that has ended: it has room of its own */
    int64_t not_before_ms;
    int64_t end_ms;  /* when it came to its end, without a cut */
    char stamp[40];  /* of the last line that was passed on */
    uint32_t n_same; /* lines passed on with that stamp */
    uint32_t n_skip; /* of those, still to come again after a cut */
    bool is_behind;  /* after a cut, what comes may have been passed on */
    size_t n_part;   /* bytes passed on of a line that hasn't ended */
    stk_buf rest;    /* of a line that hasn't ended */
} stk_kube_log;

/* What a job is sent as. */
typedef struct stk_kube_way {
    bool is_set;                /* a JobSet, not a Job */
    const char *plural, *group; /* "jobs", "/apis/batch/v1" */
    const char *kind, *word;    /* "Job", "job" */
    stk_json docs;              /* in the order of their sending, in the job's arena */
} stk_kube_way;

typedef struct stk_kube_task {
    struct stk_kube_task *next, *previous; /* of all */
    int64_t idle_until_ms;                 /* nothing is due before, if there are no news */
    struct stk_kube_task *chain;           /* of its bucket */
    struct stk_kube *kube;
    struct stk_kube_space *space;
    stk_arena *arena;        /* of the documents; NULL once all of them are there */
    uint32_t id, attempt, n; /* n: nodes */
    char name[STK_KUBE_NAME + 1];
    /* Of a gang two, the wanted one first: an engine before us may have sent the other. */
    stk_kube_way ways[2];
    uint32_t n_ways, i_way;
    bool open; /* which is wanted is the cluster's to say, and it may refuse the first */
    int64_t grace_ms;
    bool keep;
    uint32_t i_doc;  /* to be sent next */
    int64_t made_ms; /* all of them are; 0: not yet */
    /* what is under way */
    enum { KUBE_IDLE, KUBE_POST, KUBE_GET, KUBE_DELETE, KUBE_KILL, KUBE_LOOK } op;
    uint64_t call;
    int64_t not_before_ms;
    uint32_t listed_before; /* the list that must know it, if any */
    bool attach;            /* it must be there already */
    bool ask;               /* GET it, one way after the other: it may be there */
    bool maybe, posted;     /* the server may have it; it has */
    /* what is known */
    stk_kube_job job;
    stk_kube_pod *pods;
    stk_kube_log *logs;
    bool has_run, said_lost;
    int64_t since_ms, settle_ms, end_seen_ms, unsure_ms, deleting_ms;
    char words[1024]; /* last said of why it waits */
    char event[1024];
    int64_t look_ms;
    uint32_t n_looks;
    /* how it goes */
    bool removing, removed; /* asked to be deleted; the server does */
    bool set_gone;          /* a JobSet: it isn't there any more */
    int64_t kill_ms, give_up_ms;
    uint32_t n_kills;
    stk_remote_report end; /* to be said when it is gone */
    bool is_allowed;       /* what it needs may be done */
    bool lives;            /* given up, and its Job may run on */
    bool is_hopeless;      /* another attempt would meet the same */
    bool ended, forgotten;
} stk_kube_task;

typedef struct stk_kube_feed { /* a list, then a watch from there on; again and again */
    struct stk_kube_space *space;
    bool of_pods;
    const char *group, *plural;
    enum { KUBE_FEED_IDLE, KUBE_FEED_LIST, KUBE_FEED_WATCH } state;
    uint64_t call;
    int64_t not_before_ms;
    bool listed; /* `version` is good to watch from */
    uint32_t n_lists;
    char version[64];
    char *more; /* where the list goes on */
    stk_buf line;
    int64_t begun_ms;
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
    stk_kube_feed jobs, pods;
} stk_kube_space;

typedef struct stk_kube {
    stk_driver base;
    const stk_driver_config *config;
    stk_arena *arena;
    stk_arena *scratch; /* of one event */
    stk_json options;
    stk_kube_config cluster;
    stk_kube_api api;
    stk_kube_space *spaces;
    stk_kube_task *first, *last;
    stk_kube_task *buckets[KUBE_BUCKETS];
    uint32_t n_ops, n_looks, n_logs, n_last_logs;
    int64_t look_ms;
    int64_t down_said_ms; /* of the trouble that was told; 0: none */
    uint32_t n_no_credential;
    bool no_logs; /* no right to read them, said */
    enum { KUBE_SETS_UNKNOWN, KUBE_SETS_NONE, KUBE_SETS_THERE } sets; /* the add-on JobSet */
    bool asks_sets;
    int64_t sets_not_before_ms;
    stk_err fatal;
    int64_t until_ms; /* after that: what there is is removed until then; 0: it hasn't happened */
} stk_kube;

int stk_kube_open(const stk_driver_config *config, stk_kube **ret, stk_err *err);
int stk_kube_check(const stk_driver_config *config,
                   void (*say)(void *arg, bool is_good, const char *text), void *arg, stk_err *err);

/* Something that will never work: turn fails from now on. */
void stk_kube_fatal(stk_kube *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A request of ours; false: not now (no credential, no memory), try again later. */
bool stk_kube_begin(stk_kube *k, const stk_kube_request *request, uint64_t *ret_id);
bool stk_kube_may_begin(const stk_kube *k, int64_t not_before_ms, int64_t now);
/* An answer that passes by itself, or a fatal one, which is told to turn: true, and *ret_ms is when
 * to try again. */
bool stk_kube_passes(stk_kube *k, const stk_kube_answer *a, int64_t wait_ms, int64_t *ret_ms);
stk_kube_task *stk_kube_find(const stk_kube *k, const char *name);
void stk_kube_note(stk_kube *k, const stk_kube_task *t, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#define KUBE_REVIEWS "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
#define KUBE_CORE "/api/v1"
#define KUBE_BATCH "/apis/batch/v1"
#define KUBE_JOBSET "/apis/jobset.x-k8s.io/v1alpha2"

/* Does the cluster have JobSets? false: it hasn't said; asked for once, and again where the answer
 * was lost. */
bool stk_kube_knows_sets(stk_kube *k, int64_t now);

/* --- kube_task --- */
/* Takes the arena over, which has the ways' documents; NULL: no memory, and it doesn't. */
stk_kube_task *stk_kube_task_new(stk_kube *k, const stk_remote_job *job, const stk_json *options,
                                 const stk_kube_way *ways, uint32_t n_ways, stk_arena *arena);
void stk_kube_task_free(stk_kube_task *t);
void stk_kube_task_step(stk_kube_task *t, int64_t now); /* may free it */
/* Remove it, then say `end`. */
void stk_kube_task_remove(stk_kube_task *t, const stk_remote_report *end, int64_t grace_ms);
/* The driver can't be used any more: to be removed as far as that goes, or told that it lives. */
void stk_kube_task_give_up(stk_kube_task *t, bool is_last);
/* What its Job and pods say by now. */
void stk_kube_task_settle(stk_kube_task *t, int64_t now);

/* --- kube_watch --- */
int stk_kube_space_get(stk_kube *k, const char *name, stk_kube_space **ret, stk_err *err);
void stk_kube_space_step(stk_kube_space *s, int64_t now);
void stk_kube_spaces_free(stk_kube *k);

/* --- kube_rights --- */
/* false: the cluster hasn't said yet; asked for once in each namespace. */
bool stk_kube_knows_rights(stk_kube_space *s, int64_t now);
/* One that is needed for that, and not ours; NULL: none. */
const stk_kube_right *stk_kube_missing(const stk_kube_space *s, stk_kube_need need);

/* --- kube_sweep --- */
/* Waits for seconds at most. */
void stk_kube_sweep(stk_kube *k);

/* --- kube_logs --- */
bool stk_kube_logs_step(stk_kube_task *t, int64_t now);       /* false: some have to wait */
bool stk_kube_logs_done(const stk_kube_task *t, int64_t now); /* of all pods that ran */
void stk_kube_logs_free(stk_kube_task *t);

#endif
