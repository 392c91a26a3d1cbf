/* batch: steps as jobs of AWS Batch. It has the requests (pure), Batch's answers (pure) and the
 * driver that makes the calls (docs/decisions/0010-elsewhere.md, docs/batch.md).
 */
#ifndef STK_BATCH_PRIVATE_H
#define STK_BATCH_PRIVATE_H

#include "away/remote/remote.h"
#include "base/json.h"

/* --- options: batch_options.c --- */

/* Options of a step over those of the stack. */
typedef struct stk_batch_options {
    const stk_json *layers[2]; /* objects, the first has precedence; NULL: none */
    const char *step;
} stk_batch_options;

/* Reads and checks options. STK_E_SPEC: an unknown name (with a did-you-mean), a wrong type, or an
 * option that Batch can't honour (with the nearest alternative). */
int stk_batch_options_read(const char *step, const char *options, const char *stack_options,
                           stk_arena *arena, stk_batch_options *ret, stk_err *err);
/* The value, or NULL: not given. */
const stk_json *stk_batch_option(const stk_batch_options *options, const char *name);
const char *stk_batch_text(const stk_batch_options *options, const char *name); /* or NULL */
const char *stk_batch_text_of(const stk_json *value); /* of an option; NULL: none */
double stk_batch_number(const stk_batch_options *options, const char *name); /* -1: not given */
int64_t stk_batch_whole(const stk_batch_options *options, const char *name); /* -1: not given */
bool stk_batch_bool(const stk_batch_options *options, const char *name, bool unless);

/* --- the two requests: batch_ask.c, batch_manifest.c, batch_linux.c, batch_carry.c --- */

typedef enum { STK_BATCH_EC2, STK_BATCH_FARGATE } stk_batch_platform;

/* Facts that the driver knows besides the options; zero: unknown. */
typedef struct stk_batch_facts {
    stk_batch_platform platform; /* of the queue; the option has precedence */
    const char
        *carry_link;    /* link to the archive of our program that needs no credentials, or NULL */
    const char *region; /* or NULL */
    /* Places of job->secret's values: variable and ARN (or parameter name), alternating,
     * NULL-terminated; NULL: not stored yet. */
    const char *const *secret_at;
} stk_batch_facts;

enum {
    STK_BATCH_ARRAY_MIN =
        8, /* least number of alike jobs for an array, unless array_min is given */
    STK_BATCH_ARRAY_MAX = 10000 /* AWS's limit */
};

typedef struct stk_batch_ask {
    stk_batch_options options;
    const stk_driver_config *config;
    const stk_remote_job *job;
    stk_batch_facts facts;
    stk_batch_platform platform;
    const char *queue;
    int64_t cpu_milli, memory_mib, gpus, neurons, efa; /* 0: none requested */
    const char *const *secret; /* the ones of job->secret that need a place, NULL-terminated */
    bool is_array;             /* an array of n_children attempts; 0: unknown number */
    uint32_t n_children;
    const char *kind; /* the option that names a kind of device ("trainium"), or NULL */
    const char *classes[STK_LIMIT_ASKS + 1]; /* any of these models; none: any model */
} stk_batch_ask;

/* Checks a job's request. STK_E_SPEC. */
int stk_batch_ask_read(const stk_driver_config *config, const stk_remote_job *job,
                       const stk_batch_facts *facts, stk_arena *arena, stk_batch_ask *ret,
                       stk_err *err);
/* Body of RegisterJobDefinition; *ret_name is "stoker-<32 digits of its digest>". */
int stk_batch_definition(const stk_batch_ask *ask, stk_arena *arena, const char **ret_request,
                         const char **ret_name, stk_err *err);
/* Body of SubmitJob for the definition with this name or ARN. */
int stk_batch_submit(const stk_batch_ask *ask, const char *definition, stk_arena *arena,
                     const char **ret_request, stk_err *err);
/* "linuxParameters", "volumes" and "mountPoints" of a container. */
int stk_batch_put_linux(const stk_batch_ask *ask, stk_buf *out, stk_err *err);
int stk_batch_put_volumes(const stk_batch_ask *ask, stk_buf *out, stk_err *err);
/* "command" of the definition, and our own variables of the job's environment. */
void stk_batch_put_command(const stk_batch_ask *ask, stk_buf *out);
void stk_batch_put_carry_env(const stk_batch_ask *ask, stk_buf *out);
/* {"name": …, "value": …} as an item of a list. */
void stk_batch_put_pair(stk_buf *out, const char *name_key, const char *name, const char *value_key,
                        const char *value);

/* --- Batch's answers: batch_detail.c, batch_queue.c --- */

typedef enum {
    STK_BATCH_UNKNOWN,
    STK_BATCH_WAITS,  /* SUBMITTED, PENDING, RUNNABLE */
    STK_BATCH_STARTS, /* STARTING */
    STK_BATCH_RUNS,   /* RUNNING */
    STK_BATCH_SUCCEEDED,
    STK_BATCH_FAILED
} stk_batch_state;

/* One job of DescribeJobs. Texts live as long as the answer. */
typedef struct stk_batch_detail {
    stk_batch_state state;
    const char *status;    /* "RUNNABLE" */
    const char *id, *name; /* or NULL */
    const char *reason;    /* statusReason, or NULL */
    const char *container_reason;
    int exit_status;        /* -1: unknown */
    const char *log_group;  /* "/aws/batch/job" by default; NULL: not in CloudWatch */
    const char *log_stream; /* or NULL */
    const char *instance;   /* last part of the container instance's or task's ARN, or NULL */
    bool ended_by_somebody; /* a request terminated or cancelled it */
} stk_batch_detail;

void stk_batch_detail_read(const stk_json *job, stk_batch_detail *ret);
/* Reports the end of a SUCCEEDED or FAILED job: state ENDED or FAILED, failure, exit status, oom,
 * text. */
void stk_batch_detail_end(const stk_batch_detail *detail, stk_remote_report *ret);
/* One sentence why it waits; "": Batch gives no reason, its turn comes later. */
void stk_batch_detail_wait(const stk_batch_detail *detail, const char *queue, char *text,
                           size_t size);

/* A member's text; NULL: empty or missing. */
const char *stk_batch_member(const stk_json *map, const char *key);

/* A queue and its compute environments. */
typedef struct stk_batch_queue {
    bool found, enabled, valid;
    const char *name, *reason;
    const char *const *environments; /* ARNs, in order, NULL-terminated */
    uint32_t n_environments;
} stk_batch_queue;

typedef struct stk_batch_environment {
    const char *name, *state, *status, *reason,
        *type;         /* type: EC2, SPOT, FARGATE …; NULL: unmanaged */
    int64_t max_vcpus; /* -1 unknown */
    const char *const *instances;
    uint32_t n_instances;
} stk_batch_environment;

int stk_batch_queue_read(const stk_json *answer, stk_arena *arena, stk_batch_queue *ret);
int stk_batch_environments_read(const stk_json *answer, stk_arena *arena,
                                stk_batch_environment **ret, uint32_t *ret_n);
/* True if it accepts jobs. */
bool stk_batch_is_good(const stk_batch_environment *environment);
bool stk_batch_is_fargate(const stk_batch_environment *environment);
/* True if these could ever run the job; else `text` is the reason. */
bool stk_batch_can_hold(const stk_batch_environment *environments, uint32_t n,
                        const stk_batch_ask *ask, char *text, size_t size);
/* True if some instance type has what the job requests. */
bool stk_batch_is_made(const stk_batch_ask *ask);
/* `stoker stack check`: batch_check.c. */
int stk_batch_check(const stk_driver_config *config,
                    void (*say)(void *arg, bool is_good, const char *text), void *arg,
                    stk_err *err);
/* Describes an environment in a sentence for `stack check`. */
void stk_batch_environment_describe(const stk_batch_environment *environment, char *text,
                                    size_t size);

#endif
