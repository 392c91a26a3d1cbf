/* batch: steps as jobs of AWS Batch. What is submitted (pure), what Batch says about it (pure), and
 * the driver that talks to it (docs/decisions/0010-elsewhere.md, docs/batch.md).
 */
#ifndef STK_BATCH_PRIVATE_H
#define STK_BATCH_PRIVATE_H

#include "away/remote/remote.h"
#include "base/json.h"

/* --- options: batch_options.c --- */

/* A step's over the stack's. */
typedef struct stk_batch_options {
    const stk_json *layers[2]; /* objects, the first goes first; NULL: not there */
    const char *step;
} stk_batch_options;

/* Reads and checks them: unknown names with a did-you-mean, wrong types, what Batch can't do with
 * the nearest alternative. STK_E_SPEC. */
int stk_batch_options_read(const char *step, const char *options, const char *stack_options,
                           stk_arena *arena, stk_batch_options *ret, stk_err *err);
/* The value, or NULL where nobody gave one. */
const stk_json *stk_batch_option(const stk_batch_options *options, const char *name);
const char *stk_batch_text(const stk_batch_options *options, const char *name); /* or NULL */
const char *stk_batch_text_of(const stk_json *value); /* of an option; NULL: none */
double stk_batch_number(const stk_batch_options *options, const char *name); /* -1: not given */
int64_t stk_batch_whole(const stk_batch_options *options, const char *name); /* -1: not given */
bool stk_batch_bool(const stk_batch_options *options, const char *name, bool unless);

/* --- the two requests: batch_ask.c, batch_manifest.c, batch_linux.c, batch_carry.c --- */

typedef enum { STK_BATCH_EC2, STK_BATCH_FARGATE } stk_batch_platform;

/* What the driver knows beyond the options; zero: nothing. */
typedef struct stk_batch_facts {
    stk_batch_platform platform; /* of the queue; the option goes first */
    const char *carry_link;      /* a link to the carried tar that needs no credentials, or NULL */
    const char *region;          /* or NULL */
    /* Where the values of job->secret are: variable and ARN (or parameter name) by turns,
     * NULL-terminated; NULL: nowhere yet. */
    const char *const *secret_at;
} stk_batch_facts;

enum {
    STK_BATCH_ARRAY_MIN = 8,    /* alike jobs from which one array is made, unless array_min says */
    STK_BATCH_ARRAY_MAX = 10000 /* as AWS takes */
};

typedef struct stk_batch_ask {
    stk_batch_options options;
    const stk_driver_config *config;
    const stk_remote_job *job;
    stk_batch_facts facts;
    stk_batch_platform platform;
    const char *queue;
    int64_t cpu_milli, memory_mib, gpus, neurons, efa; /* 0: none asked for */
    const char *const *secret; /* of job->secret those that need a place, NULL-terminated */
    bool is_array; /* its children are n_children attempts; 0: of how many isn't known */
    uint32_t n_children;
    const char *kind; /* the option that names a kind of device ("trainium"), or NULL */
    const char *classes[STK_LIMIT_ASKS + 1]; /* models that are wanted, any of them; none: any */
} stk_batch_ask;

/* The checked request of a job. STK_E_SPEC. */
int stk_batch_ask_read(const stk_driver_config *config, const stk_remote_job *job,
                       const stk_batch_facts *facts, stk_arena *arena, stk_batch_ask *ret,
                       stk_err *err);
/* RegisterJobDefinition; *ret_name is "stoker-<32 digits of its digest>". */
int stk_batch_definition(const stk_batch_ask *ask, stk_arena *arena, const char **ret_request,
                         const char **ret_name, stk_err *err);
/* SubmitJob of the definition with that name or ARN. */
int stk_batch_submit(const stk_batch_ask *ask, const char *definition, stk_arena *arena,
                     const char **ret_request, stk_err *err);
/* "linuxParameters", "volumes" and "mountPoints" of a container. */
int stk_batch_put_linux(const stk_batch_ask *ask, stk_buf *out, stk_err *err);
int stk_batch_put_volumes(const stk_batch_ask *ask, stk_buf *out, stk_err *err);
/* "command" of the definition, and what a job's environment has besides its own. */
void stk_batch_put_command(const stk_batch_ask *ask, stk_buf *out);
void stk_batch_put_carry_env(const stk_batch_ask *ask, stk_buf *out);
/* {"name": …, "value": …}, an item of a list. */
void stk_batch_put_pair(stk_buf *out, const char *name_key, const char *name, const char *value_key,
                        const char *value);

/* --- what Batch says: batch_detail.c, batch_queue.c --- */

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
    int exit_status;        /* -1: not said */
    const char *log_group;  /* "/aws/batch/job" unless it says otherwise; NULL: not in CloudWatch */
    const char *log_stream; /* or NULL */
    const char *instance;   /* last part of the container instance's or task's ARN, or NULL */
    bool ended_by_somebody; /* terminated or cancelled by a request */
} stk_batch_detail;

void stk_batch_detail_read(const stk_json *job, stk_batch_detail *ret);
/* How a job that SUCCEEDED or FAILED ended: state ENDED or FAILED, failure, exit status, oom, text.
 */
void stk_batch_detail_end(const stk_batch_detail *detail, stk_remote_report *ret);
/* Why it waits, as one sentence; "" when Batch says nothing: it has its turn to come. */
void stk_batch_detail_wait(const stk_batch_detail *detail, const char *queue, char *text,
                           size_t size);

/* A member's text, or NULL where it is empty or not there. */
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
/* Does it take jobs? */
bool stk_batch_is_good(const stk_batch_environment *environment);
bool stk_batch_is_fargate(const stk_batch_environment *environment);
/* Can these ever run it? False: `text` says why not. */
bool stk_batch_can_hold(const stk_batch_environment *environments, uint32_t n,
                        const stk_batch_ask *ask, char *text, size_t size);
/* Is there any instance that has what is asked for? */
bool stk_batch_is_made(const stk_batch_ask *ask);
/* `stoker stack check`: batch_check.c. */
int stk_batch_check(const stk_driver_config *config,
                    void (*say)(void *arg, bool is_good, const char *text), void *arg,
                    stk_err *err);
/* What one of them is, as a sentence for `stack check`. */
void stk_batch_environment_describe(const stk_batch_environment *environment, char *text,
                                    size_t size);

#endif
