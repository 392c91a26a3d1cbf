/* What Batch says of a job, read: its state, how it ended and why, why it waits. */
#include <stdio.h>
#include <string.h>

#include "away/batch/batch_private.h"
#include "base/text.h"

static const struct {
    const char *word;
    stk_batch_state state;
} states[] = {{"SUBMITTED", STK_BATCH_WAITS}, {"PENDING", STK_BATCH_WAITS},
              {"RUNNABLE", STK_BATCH_WAITS},  {"STARTING", STK_BATCH_STARTS},
              {"RUNNING", STK_BATCH_RUNS},    {"SUCCEEDED", STK_BATCH_SUCCEEDED},
              {"FAILED", STK_BATCH_FAILED}};

static const struct reason {
    const char *begins;
    stk_failure failure;
    const char *text;
} reasons[] = {
#define X(begins, failure, text) {begins, STK_FAIL_##failure, text},
#include "tbl/batch_reasons.def"
#undef X
};

static const char *member(const stk_json *map, const char *key)
{
    return stk_text_if_any(stk_json_get_text(map, key));
}

static bool is_true(const stk_json *map, const char *key)
{
    const stk_json *value = stk_json_get(map, key);
    return value != NULL && value->kind == STK_JSON_BOOL && value->truth;
}

static void read_log(const stk_json *container, stk_batch_said *ret)
{
    const stk_json *log = stk_json_get(container, "logConfiguration");
    const char *driver = member(log, "logDriver");
    const char *group = log != NULL ? member(stk_json_get(log, "options"), "awslogs-group") : NULL;
    ret->log_stream = member(container, "logStreamName");
    if (driver == NULL || strcmp(driver, "awslogs") == 0) {
        ret->log_group = stk_text_or(group, "/aws/batch/job");
    }
}

void stk_batch_said_read(const stk_json *job, stk_batch_said *ret)
{
    *ret = (stk_batch_said){.status = member(job, "status"),
                            .id = member(job, "jobId"),
                            .name = member(job, "jobName"),
                            .reason = member(job, "statusReason"),
                            .exit_status = -1};
    for (size_t i = 0; ret->status != NULL && i < sizeof states / sizeof *states; i++) {
        if (strcmp(states[i].word, ret->status) == 0) {
            ret->state = states[i].state;
        }
    }
    ret->ended_by_somebody = is_true(job, "isTerminated") || is_true(job, "isCancelled");
    const stk_json *container = stk_json_get(job, "container");
    if (container == NULL || container->kind != STK_JSON_MAP) {
        return;
    }
    int64_t status;
    if (stk_json_get(container, "exitCode") != NULL &&
        stk_json_int(stk_json_get(container, "exitCode"), &status)) {
        ret->exit_status = (int)status;
    }
    ret->container_reason = member(container, "reason");
    read_log(container, ret);
    const char *arn = member(container, "containerInstanceArn");
    if (arn == NULL) {
        arn = member(container, "taskArn");
    }
    const char *slash = arn != NULL ? strrchr(arn, '/') : NULL;
    ret->instance = slash != NULL ? slash + 1 : arn;
}

static const struct reason *find_reason(const char *text)
{
    for (size_t i = 0; text != NULL && i < sizeof reasons / sizeof *reasons; i++) {
        if (strncmp(text, reasons[i].begins, strlen(reasons[i].begins)) == 0) {
            return &reasons[i];
        }
    }
    return NULL;
}

/* "AWS Batch: SENTENCE (ITS WORDS)" */
static void tell(stk_remote_report *ret, const char *sentence, const char *words)
{
    bool both = *sentence != 0 && words != NULL;
    (void)snprintf(ret->text, sizeof ret->text, "AWS Batch: %s%s%s%s", sentence, both ? " (" : "",
                   stk_text_or(words, ""), both ? ")" : "");
}

void stk_batch_said_end(const stk_batch_said *said, stk_remote_report *ret)
{
    const char *words = stk_text_or(said->container_reason, said->reason);
    /* The container's own reason is nearer to the cause than the job's. */
    const struct reason *reason = find_reason(said->container_reason);
    if (reason == NULL || reason->failure == STK_FAIL_EXIT) {
        const struct reason *outer = find_reason(said->reason);
        if (outer != NULL && outer->failure != STK_FAIL_EXIT) {
            words = said->reason;
        }
        if (outer != NULL) {
            reason = outer;
        }
    }
    ret->exit_status = said->exit_status;
    ret->text[0] = 0;
    if (said->state == STK_BATCH_SUCCEEDED) {
        ret->state = STK_REMOTE_ENDED;
        ret->exit_status = 0;
        return;
    }
    ret->state = STK_REMOTE_FAILED;
    if (reason != NULL && reason->failure != STK_FAIL_EXIT) {
        ret->failure = reason->failure;
        ret->oom = reason->failure == STK_FAIL_HOST_OOM;
        tell(ret, reason->text, words);
    } else if (said->ended_by_somebody) {
        ret->failure = STK_FAIL_CANCELLED;
        tell(ret, "it was terminated by somebody", said->reason);
    } else if (said->exit_status >= 0) {
        ret->state = STK_REMOTE_ENDED;
        tell(ret, "", stk_text_or(words, "it failed"));
    } else { /* what its agent left stands; without that it is lost */
        ret->failure = STK_FAIL_NONE;
        tell(ret, "it failed, and its exit status isn't known", words);
    }
}

void stk_batch_said_wait(const stk_batch_said *said, const char *queue, char *text, size_t size)
{
    static const struct {
        const char *begins, *text;
    } known[] = {
        {"CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY", "AWS has no such instance free just now"},
        {"MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE",
         "it needs more than the compute environment's maximum of vCPUs"},
        {"MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT",
         "it asks for more than any instance of the queue's compute environments has"},
        {"MISCONFIGURATION:SERVICE_ROLE_PERMISSIONS",
         "the compute environment's service role lacks a permission"},
        {"MISCONFIGURATION:", "the compute environment is set up wrongly"},
        {"ACTION_REQUIRED", "something must be done about the compute environment"},
    };
    text[0] = 0;
    if (said->reason == NULL || said->state != STK_BATCH_WAITS) {
        return;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strncmp(said->reason, known[i].begins, strlen(known[i].begins)) == 0) {
            (void)snprintf(text, size, "%s in queue '%s': %s (%s)", said->status, queue,
                           known[i].text, said->reason);
            return;
        }
    }
    (void)snprintf(text, size, "%s in queue '%s': %s", said->status, queue, said->reason);
}
