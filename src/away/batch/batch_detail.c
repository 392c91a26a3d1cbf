/* Reads Batch's description of a job: its state, its end, why it waits. */
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

const char *stk_batch_member(const stk_json *map, const char *key)
{
    return stk_text_if_any(stk_json_get_text(map, key));
}

static void read_log(const stk_json *container, stk_batch_detail *ret)
{
    const stk_json *log = stk_json_get(container, "logConfiguration");
    const char *driver = stk_batch_member(log, "logDriver");
    const char *group = stk_batch_member(stk_json_get(log, "options"), "awslogs-group");
    ret->log_stream = stk_batch_member(container, "logStreamName");
    if (driver == NULL || strcmp(driver, "awslogs") == 0) {
        ret->log_group = stk_text_or(group, "/aws/batch/job");
    }
}

void stk_batch_detail_read(const stk_json *job, stk_batch_detail *ret)
{
    *ret = (stk_batch_detail){.status = stk_batch_member(job, "status"),
                              .id = stk_batch_member(job, "jobId"),
                              .name = stk_batch_member(job, "jobName"),
                              .reason = stk_batch_member(job, "statusReason"),
                              .exit_status = -1};
    for (size_t i = 0; ret->status != NULL && i < sizeof states / sizeof *states; i++) {
        if (strcmp(states[i].word, ret->status) == 0) {
            ret->state = states[i].state;
        }
    }
    ret->ended_by_somebody = stk_json_is_true(stk_json_get(job, "isTerminated")) ||
                             stk_json_is_true(stk_json_get(job, "isCancelled"));
    const stk_json *container = stk_json_get(job, "container");
    if (!stk_json_is_map(container)) {
        return;
    }
    int64_t status;
    if (stk_json_int(stk_json_get(container, "exitCode"), &status)) {
        ret->exit_status = (int)status;
    }
    ret->container_reason = stk_batch_member(container, "reason");
    read_log(container, ret);
    const char *arn = stk_text_or(stk_batch_member(container, "containerInstanceArn"),
                                  stk_batch_member(container, "taskArn"));
    const char *slash = strrchr(stk_text_or(arn, ""), '/');
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
static void explain_end(stk_remote_report *ret, const char *sentence, const char *words)
{
    (void)snprintf(ret->text, sizeof ret->text, "AWS Batch: %s", sentence);
    if (words != NULL) {
        size_t n = strlen(ret->text);
        (void)snprintf(ret->text + n, sizeof ret->text - n, " (%s)", words);
    }
}

void stk_batch_detail_end(const stk_batch_detail *detail, stk_remote_report *ret)
{
    const char *words = stk_text_or(detail->container_reason, detail->reason);
    /* The container's reason is closer to the cause than the job's. */
    const struct reason *reason = find_reason(detail->container_reason);
    if (reason == NULL || reason->failure == STK_FAIL_EXIT) {
        const struct reason *outer = find_reason(detail->reason);
        if (outer != NULL && outer->failure != STK_FAIL_EXIT) {
            words = detail->reason;
        }
        if (outer != NULL) {
            reason = outer;
        }
    }
    ret->exit_status = detail->exit_status;
    ret->text[0] = 0;
    if (detail->state == STK_BATCH_SUCCEEDED) {
        ret->state = STK_REMOTE_ENDED;
        ret->exit_status = 0;
        return;
    }
    ret->state = STK_REMOTE_FAILED;
    if (reason != NULL && reason->failure != STK_FAIL_EXIT) {
        ret->failure = reason->failure;
        ret->oom = reason->failure == STK_FAIL_HOST_OOM;
        explain_end(ret, reason->text, words);
    } else if (detail->ended_by_somebody) {
        ret->failure = STK_FAIL_CANCELLED;
        explain_end(ret, "it was terminated from outside", detail->reason);
    } else if (detail->exit_status >= 0) {
        ret->state = STK_REMOTE_ENDED;
        explain_end(ret, stk_text_or(words, "it failed"), NULL);
    } else { /* the agent's results count; without them the job is lost */
        ret->failure = STK_FAIL_NONE;
        explain_end(ret, "it failed with an unknown exit status", words);
    }
}

void stk_batch_detail_wait(const stk_batch_detail *detail, const char *queue, char *text,
                           size_t size)
{
    static const struct {
        const char *begins, *text;
    } known[] = {
        {"CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY", "AWS has no free instance of that kind"},
        {"MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE",
         "it needs more than the compute environment's maximum of vCPUs"},
        {"MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT",
         "it asks for more than any instance of the queue's compute environments has"},
        {"MISCONFIGURATION:SERVICE_ROLE_PERMISSIONS",
         "the compute environment's service role lacks a permission"},
        {"MISCONFIGURATION:", "the compute environment is misconfigured"},
        {"ACTION_REQUIRED", "the compute environment needs action by its administrator"},
    };
    text[0] = 0;
    if (detail->reason == NULL || detail->state != STK_BATCH_WAITS) {
        return;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strncmp(detail->reason, known[i].begins, strlen(known[i].begins)) == 0) {
            (void)snprintf(text, size, "%s in queue '%s': %s (%s)", detail->status, queue,
                           known[i].text, detail->reason);
            return;
        }
    }
    (void)snprintf(text, size, "%s in queue '%s': %s", detail->status, queue, detail->reason);
}
