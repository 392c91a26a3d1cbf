/* What Stoker submits for a step's requests, and what it tells the user about Batch's answers. The
 * answers are AWS's own: from the examples in the API reference, the User Guide's pages on retries
 * and on jobs stuck in RUNNABLE, and the ECS guide's stopped-task messages (docs/batch.md lists
 * them). moto gives no reasons. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "away/batch/batch_private.h"
#include "base/testing.h"

static const char *const words[] = {"/stoker/bin/stoker", "agent", "s3://b/x", "it's", NULL};
static const char *const folders[] = {"/home/ann/.stoker", NULL};
static const char *const env[] = {"STOKER_RUN=r1", "A=b\"c", NULL};
static const char *const secrets[] = {"TOKEN=hunter2", NULL};
static const char *const keys[] = {"AWS_ACCESS_KEY_ID=AKIA", "AWS_SECRET_ACCESS_KEY=hunter2", NULL};
static const char *const other_s3[] = {"AWS_ENDPOINT_URL=http://minio:9000", NULL};
static const char *const secret_at[] = {"TOKEN", "/team/r1/TOKEN", NULL};

typedef struct ask_case {
    const char *options;
    stk_resources resources;
    uint32_t nodes;
    const char *carry, *volume;
    const char *const *secret, *const *env;
    stk_batch_facts facts;
    int64_t timeout_ms;
} ask_case;

#define NOTHING                                                                                    \
    .cpu_milli = -1, .memory_bytes = -1, .base = {.gpu_count = -1, .gpu_memory_bytes = -1}

static stk_driver_config config;
static stk_remote_job job;

static int make(const ask_case *c, stk_arena *arena, const char **definition, const char **submit,
                stk_err *err)
{
    stk_batch_ask ask;
    const char *name;
    config = (stk_driver_config){.stack = "aws",
                                 .options = "{}",
                                 .run = "r1",
                                 .carry = c->carry != NULL ? c->carry : "store",
                                 .carry_volume = c->volume,
                                 .carry_digest = "abc123",
                                 .share_url = "s3://bucket/stoker/"};
    job = (stk_remote_job){.id = 7,
                           .run = "r1",
                           .pipeline = "digits",
                           .step = "train",
                           .task = 7,
                           .attempt = 1,
                           .name = "s-r1-train-7-1",
                           .image = "python:3.11",
                           .resources = &c->resources,
                           .options = c->options,
                           .argv = words,
                           .env = c->env != NULL ? c->env : env,
                           .secret = c->secret,
                           .folders = folders,
                           .carry = config.carry,
                           .carry_at = "/stoker",
                           .nodes = c->nodes > 0 ? c->nodes : 1,
                           .timeout_ms = c->timeout_ms};
    int rc = stk_batch_ask_read(&config, &job, &c->facts, arena, &ask, err);
    rc = rc < 0 ? rc : stk_batch_definition(&ask, arena, definition, &name, err);
    return rc < 0 ? rc : stk_batch_submit(&ask, name, arena, submit, err);
}

/* Checks that a document is valid JSON and contains a text. */
static void has(const char *document, const char *part)
{
    static const stk_json_limits limits = {1 << 20, 10000, 20};
    stk_json root;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_err err;
    if (stk_json_parse(document, strlen(document), "request", &limits, arena, &root, &err) < 0) {
        fail_msg("%s in %s", err.text, document);
    }
    if (strstr(document, part) == NULL) {
        fail_msg("%s\nis not in\n%s", part, document);
    }
}

static void asked(void **state)
{
    static const struct {
        ask_case ask;
        const char *definition[4], *submit[4];
    } cases[] = {
        {{"{\"queue\": \"q\"}", {NOTHING}},
         {"\"type\":\"container\",\"platformCapabilities\":[\"EC2\"]",
          "{\"type\":\"VCPU\",\"value\":\"1\"},{\"type\":\"MEMORY\",\"value\":\"4096\"}]",
          "\"image\":\"python:3.11\"", "\"command\":[\"/bin/sh\",\"-c\","},
         {"\"jobName\":\"s-r1-train-7-1\",\"jobQueue\":\"q\",\"jobDefinition\":\"stoker-",
          "\"retryStrategy\":{\"attempts\":1}", "{\"name\":\"A\",\"value\":\"b\\\"c\"}",
          "{\"name\":\"STOKER_CARRY\",\"value\":\"s3://bucket/stoker/carry/abc123.tar\"}"}},
        {{"{\"queue\": \"q\", \"memory\": 32000}",
          {.cpu_milli = 2500,
           .memory_bytes = 40000000000,
           .base = {.gpu_count = 2, .gpu_memory_bytes = -1}}},
         {"{\"type\":\"VCPU\",\"value\":\"3\"},{\"type\":\"MEMORY\",\"value\":\"38147\"},{\"type\":"
          "\"GPU\",\"value\":\"2\"}"},
         {"{\"name\":\"STOKER_ARGV\",\"value\":\"'/stoker/bin/stoker' 'agent' 's3://b/x' "
          "'it'\\\\''s'\"}",
          "{\"name\":\"STOKER_ASKED_DEVICES\",\"value\":\"nvidia 2\"}"}},
        {{"{\"queue\": \"q\", \"trainium\": 2, \"efa\": 1}", {NOTHING}},
         {"{\"hostPath\":\"/dev/neuron1\",\"containerPath\":\"/dev/"
          "neuron1\",\"permissions\":[\"READ\",\"WRITE\"]}",
          "{\"hostPath\":\"/dev/infiniband/uverbs0\",\"containerPath\":\"/dev/infiniband/"
          "uverbs0\",\"permissions\":[\"READ\",\"WRITE\",\"MKNOD\"]}"},
         {"{\"name\":\"STOKER_ASKED_DEVICES\",\"value\":\"aws 2\"}"}},
        {{"{\"queue\": \"q\"}",
          {.cpu_milli = -1,
           .memory_bytes = -1,
           .base = {.gpu_count = 1,
                    .gpu_memory_bytes = -1,
                    .gpu_vendor = "aws",
                    .gpu_class = "Trainium"}}},
         {"\"devices\":[{\"hostPath\":\"/dev/neuron0\",\"containerPath\":\"/dev/"
          "neuron0\",\"permissions\":[\"READ\",\"WRITE\"]}]"},
         {NULL}},
        {{"{\"queue\": \"q\", \"shared_memory\": \"64\", \"max_swap\": 100, \"swappiness\": 0, "
          "\"use_tmpfs\": true, \"memory\": 1000, \"privileged\": true, \"user\": 1000, "
          "\"init_process\": true, \"ulimits\": {\"memlock\": -1}, \"iam_role\": \"arn:r\", "
          "\"execution_role\": \"arn:x\"}",
          {NOTHING}},
         {"\"linuxParameters\":{\"initProcessEnabled\":true,\"sharedMemorySize\":64,\"maxSwap\":"
          "100,\"swappiness\":0,\"tmpfs\":[{\"containerPath\":\"/metaflow_temp\",\"size\":500}]}",
          "\"ulimits\":[{\"name\":\"memlock\",\"softLimit\":-1,\"hardLimit\":-1}]",
          "\"user\":\"1000\"", "\"jobRoleArn\":\"arn:r\",\"executionRoleArn\":\"arn:x\""},
         {NULL}},
        {{"{\"queue\": \"q\", \"host_volumes\": [\"/data\", \"/a:/b\"], \"efs_volumes\": "
          "\"fs-1:/w\", \"log_driver\": \"awslogs\", \"log_options\": [\"awslogs-group:g\"]}",
          {NOTHING}},
         {"{\"name\":\"host0\",\"host\":{\"sourcePath\":\"/data\"}}",
          "\"efsVolumeConfiguration\":{\"fileSystemId\":\"fs-1\",\"transitEncryption\":"
          "\"ENABLED\"}",
          "\"containerPath\":\"/b\"",
          "\"logConfiguration\":{\"logDriver\":\"awslogs\",\"options\":{\"awslogs-group\":\"g\"}}"},
         {NULL}},
        {{"{\"queue\": \"q\", \"secrets\": {\"T\": \"arn:s\"}, \"aws_batch_tags\": {\"team\": \"a "
          "b/ü\"}, \"share_identifier\": \"s\", \"priority\": 5}",
          {NOTHING},
          .timeout_ms = 60000},
         {"\"secrets\":[{\"name\":\"T\",\"valueFrom\":\"arn:s\"}]"},
         {"\"team\":\"a b/__\"", "\"shareIdentifier\":\"s\",\"schedulingPriorityOverride\":5",
          "\"timeout\":{\"attemptDurationSeconds\":360}", "\"stoker.step\":\"train\""}},
        {{"{\"queue\": \"q\"}", {NOTHING}, .nodes = 3},
         {"\"type\":\"multinode\"",
          "\"nodeProperties\":{\"numNodes\":3,\"mainNode\":0,\"nodeRangeProperties\":[{"
          "\"targetNodes\":\"0:2\",\"container\":{"},
         {"\"nodeOverrides\":{\"nodePropertyOverrides\":[{\"targetNodes\":\"0:2\","
          "\"containerOverrides\":{"}},
        {{"{\"queue\": \"q\", \"platform\": \"fargate\", \"execution_role\": \"arn:x\", "
          "\"ephemeral_storage\": 30, \"arch\": \"arm64\"}",
          {.cpu_milli = 600,
           .memory_bytes = 3000 * (1ll << 20),
           .base = {.gpu_count = -1, .gpu_memory_bytes = -1}}},
         {"[\"FARGATE\"]",
          "{\"type\":\"VCPU\",\"value\":\"1\"},{\"type\":\"MEMORY\",\"value\":\"3072\"}",
          "\"networkConfiguration\":{\"assignPublicIp\":\"ENABLED\"},\"ephemeralStorage\":{"
          "\"sizeInGiB\":30}",
          "\"cpuArchitecture\":\"ARM64\""},
         {NULL}},
        {{"{\"queue\": \"q\"}", {NOTHING}, .carry = "volume", .volume = "efs:fs-9/tools"},
         {"\"command\":[\"/stoker/bin/stoker\",\"--version\"]",
          "\"fileSystemId\":\"fs-9\",\"rootDirectory\":\"/tools\"",
          "{\"sourceVolume\":\"stoker\",\"containerPath\":\"/stoker\",\"readOnly\":true}"},
         {"\"containerOverrides\":{\"command\":[\"/stoker/bin/stoker\",\"agent\",\"s3://b/"
          "x\",\"it's\"]"}},
        {{"{\"queue\": \"q\", \"secret_prefix\": \"ssm:/team\"}",
          {NOTHING},
          .secret = secrets,
          .facts = {.secret_at = secret_at}},
         {"\"secrets\":[{\"name\":\"TOKEN\",\"valueFrom\":\"/team/r1/TOKEN\"}]"},
         {NULL}},
        /* our own AWS keys aren't sent: the job gets those of its role */
        {{"{\"queue\": \"q\"}", {NOTHING}, .secret = keys}, {"\"type\""}, {NULL}},
        {{"{\"queue\": \"q\", \"iam_role\": \"arn:r\"}",
          {NOTHING},
          .secret = keys,
          .env = other_s3},
         {"\"type\""},
         {NULL}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *definition = NULL, *submit = NULL;
        STK_ARENA_AUTO arena = stk_arena_new(0);
        stk_err err = {0};
        if (make(&cases[i].ask, arena, &definition, &submit, &err) < 0) {
            fail_msg("case %zu: %s", i, err.text);
        }
        for (size_t k = 0; k < 4 && cases[i].definition[k] != NULL; k++) {
            has(definition, cases[i].definition[k]);
        }
        for (size_t k = 0; k < 4 && cases[i].submit[k] != NULL; k++) {
            has(submit, cases[i].submit[k]);
        }
        assert_null(strstr(definition, "hunter2"));
        assert_null(strstr(submit, "hunter2"));
    }
}

static void refused(void **state)
{
    static const struct {
        ask_case ask;
        const char *says;
    } cases[] = {
        {{"{}", {NOTHING}}, "no job queue"},
        {{"{\"queu\": \"q\"}", {NOTHING}}, "did you mean 'queue'?"},
        {{"{\"queue\": \"q\", \"memory\": \"lots\"}", {NOTHING}},
         "option 'memory' of AWS Batch is 'lots'; it must be a whole number"},
        {{"{\"queue\": \"q\", \"gpu\": 1.5}", {NOTHING}},
         "option 'gpu' of AWS Batch is 1.5; it must be a whole number"},
        {{"{\"queue\": \"q\", \"gpu\": 1, \"trainium\": 1}", {NOTHING}},
         "both GPUs and Neuron devices"},
        {{"{\"queue\": \"q\", \"inferentia\": 1, \"trainium\": 1}", {NOTHING}},
         "two names of one option"},
        {{"{\"queue\": \"q\", \"tpu\": 4}", {NOTHING}}, "use Kubernetes on Google Cloud"},
        {{"{\"queue\": \"q\", \"swappiness\": 200}", {NOTHING}},
         "swappiness is 200; it must be 0 to 100"},
        {{"{\"queue\": \"q\", \"swappiness\": 20}", {NOTHING}}, "without max_swap"},
        {{"{\"queue\": \"q\", \"host_volumes\": [\"data\"]}", {NOTHING}},
         "'data' of host_volumes must be /path"},
        {{"{\"queue\": \"q\", \"poll\": 3}", {NOTHING}}, "SAME"},
        {{"{\"queue\": \"q\"}",
          {.cpu_milli = -1,
           .memory_bytes = -1,
           .base = {.gpu_count = 1, .gpu_memory_bytes = -1, .gpu_vendor = "amd"}}},
         "gpu_vendor is 'amd'"},
        {{"{\"queue\": \"q\"}",
          {.cpu_milli = -1,
           .memory_bytes = -1,
           .base = {.gpu_count = 1, .gpu_memory_bytes = 1 << 30}}},
         "a share of a GPU"},
        {{"{\"queue\": \"q\", \"platform\": \"fargate\"}", {NOTHING}},
         "Fargate needs execution_role"},
        {{"{\"queue\": \"q\", \"platform\": \"fargate\", \"execution_role\": \"x\", "
          "\"shared_memory\": 1}",
          {NOTHING}},
         "Fargate doesn't support 'shared_memory'"},
        {{"{\"queue\": \"q\", \"platform\": \"fargate\", \"execution_role\": \"x\", \"cpu\": 17}",
          {NOTHING}},
         "more than Fargate's limit"},
        {{"{\"queue\": \"q\", \"ephemeral_storage\": 30}", {NOTHING}},
         "ephemeral_storage is only for Fargate"},
        {{"{\"queue\": \"q\"}", {NOTHING}, .secret = secrets},
         "secret 'TOKEN' can't be passed to AWS Batch"},
        {{"{\"queue\": \"q\"}", {NOTHING}, .secret = keys, .env = other_s3},
         "set iam_role to a role with access"},
        {{"{\"queue\": \"q\"}", {NOTHING}, .carry = "image"},
         "carry 'image' is only for Kubernetes"},
        {{"{\"queue\": \"q\"}", {NOTHING}, .carry = "volume", .volume = "pvc:x"},
         "carry_volume is 'pvc:x'"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *definition = NULL, *submit = NULL;
        STK_ARENA_AUTO arena = stk_arena_new(0);
        stk_err err = {0};
        int rc = make(&cases[i].ask, arena, &definition, &submit, &err);
        if (strcmp(cases[i].says, "SAME") == 0) { /* steps may repeat a stack's options */
            assert_int_equal(rc, 0);
            continue;
        }
        assert_int_equal(rc, STK_E_SPEC);
        if (strstr(err.text, cases[i].says) == NULL || strstr(err.text, "hunter2") != NULL) {
            fail_msg("case %zu: '%s' says nothing of '%s'", i, err.text, cases[i].says);
        }
    }
}

static void too_long(void **state)
{
    static char long_one[9000];
    static const char *const much[] = {long_one, NULL};
    const char *submit = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_err err = {0};
    stk_batch_ask ask;
    static const stk_resources nothing = {NOTHING};
    (void)state;
    memset(long_one, 'x', sizeof long_one - 1);
    memcpy(long_one, "BIG=", 4);
    config = (stk_driver_config){.stack = "aws", .options = "{\"queue\": \"q\"}", .carry = "store"};
    job = (stk_remote_job){.name = "n",
                           .run = "r",
                           .pipeline = "p",
                           .step = "s",
                           .options = "{}",
                           .argv = words,
                           .env = much,
                           .resources = &nothing,
                           .nodes = 1,
                           .carry_at = "/stoker"};
    assert_int_equal(stk_batch_ask_read(&config, &job, NULL, arena, &ask, &err), 0);
    assert_string_equal(ask.queue, "q"); /* from the stack */
    assert_int_equal(stk_batch_submit(&ask, "d", arena, &submit, &err), STK_E_SPEC);
    assert_non_null(strstr(err.text, "accepts only 8192"));
}

static void registered_once(void **state)
{
    const char *definition = NULL, *submit = NULL, *again = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_err err = {0};
    ask_case c = {"{\"queue\": \"q\"}", {NOTHING}};
    (void)state;
    assert_int_equal(make(&c, arena, &definition, &submit, &err), 0);
    assert_int_equal(make(&c, arena, &again, &submit, &err), 0);
    assert_string_equal(definition, again);
    c.options = "{\"queue\": \"mine\", \"shared_memory\": 5}";
    assert_int_equal(make(&c, arena, &again, &submit, &err), 0);
    has(submit, "\"jobQueue\":\"mine\"");
    assert_string_not_equal(definition, again);
}

/* --- answers --- */

static const stk_json *parse(const char *text, stk_arena *arena)
{
    static const stk_json_limits limits = {1 << 20, 10000, 20};
    stk_json *root = stk_arena_alloc(arena, sizeof *root);
    stk_err err;
    if (stk_json_parse(text, strlen(text), "answer", &limits, arena, root, &err) < 0) {
        fail_msg("%s", err.text);
    }
    return root;
}

static void ends(void **state)
{
    static const struct {
        const char *answer;
        stk_remote_state end;
        stk_failure failure;
        int exit_status;
        const char *says;
    } cases[] = {
        {"{\"status\": \"SUCCEEDED\", \"container\": {\"exitCode\": 0}}", STK_REMOTE_ENDED,
         STK_FAIL_NONE, 0, ""},
        {"{\"status\": \"SUCCEEDED\"}", STK_REMOTE_ENDED, STK_FAIL_NONE, 0, ""},
        {"{\"status\": \"FAILED\", \"statusReason\": \"Essential container in task exited\", "
         "\"container\": {\"exitCode\": 3}}",
         STK_REMOTE_ENDED, STK_FAIL_NONE, 3, "Essential container in task exited"},
        {"{\"status\": \"FAILED\", \"statusReason\": \"Host EC2 (instance i-0a1b2c3d4e5f) "
         "terminated.\", \"container\": {\"taskArn\": \"arn:t/1\"}}",
         STK_REMOTE_FAILED, STK_FAIL_PREEMPTED, -1, "its instance was taken away"},
        {"{\"status\": \"FAILED\", \"statusReason\": \"Your Spot Task was interrupted.\"}",
         STK_REMOTE_FAILED, STK_FAIL_PREEMPTED, -1, "Fargate Spot"},
        {"{\"status\": \"FAILED\", \"statusReason\": \"Essential container in task exited\", "
         "\"container\": {\"exitCode\": 137, \"reason\": \"OutOfMemoryError: Container killed due "
         "to memory usage\"}}",
         STK_REMOTE_FAILED, STK_FAIL_HOST_OOM, 137, "more memory"},
        {"{\"status\": \"FAILED\", \"statusReason\": \"Task failed to start\", \"container\": "
         "{\"reason\": \"CannotPullContainerError: Error response from daemon: manifest for "
         "nowhere:1 not found\"}}",
         STK_REMOTE_FAILED, STK_FAIL_START, -1, "couldn't be pulled"},
        {"{\"status\": \"FAILED\", \"statusReason\": \"ResourceInitializationError: unable to pull "
         "secrets or registry auth\"}",
         STK_REMOTE_FAILED, STK_FAIL_START, -1, "execution_role"},
        {"{\"status\": \"FAILED\", \"statusReason\": \"Job attempt duration exceeded timeout\", "
         "\"isTerminated\": true, \"container\": {\"exitCode\": 143}}",
         STK_REMOTE_FAILED, STK_FAIL_TIMEOUT, 143, "deadline"},
        {"{\"status\": \"FAILED\", \"statusReason\": \"not needed any more\", \"isTerminated\": "
         "true, \"container\": {\"exitCode\": 137}}",
         STK_REMOTE_FAILED, STK_FAIL_CANCELLED, 137, "from outside (not needed any more)"},
        {"{\"status\": \"FAILED\", \"statusReason\": \"Container Overrides length must be at most "
         "8192\"}",
         STK_REMOTE_FAILED, STK_FAIL_START, -1, "8192"},
        {"{\"status\": \"FAILED\", \"statusReason\": \"Canceled by JobStateTimeLimit action due to "
         "reason: CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY\", \"isCancelled\": true}",
         STK_REMOTE_FAILED, STK_FAIL_RESOURCES, -1, "time limit"},
        {"{\"status\": \"FAILED\", \"container\": {\"reason\": \"DockerTimeoutError: Could not "
         "transition to created; timed out after waiting 4m0s\"}}",
         STK_REMOTE_FAILED, STK_FAIL_LOST, -1, "in time"},
        {"{\"status\": \"FAILED\"}", STK_REMOTE_FAILED, STK_FAIL_NONE, -1, "unknown exit status"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        stk_batch_detail detail;
        stk_remote_report report = {0};
        stk_batch_detail_read(parse(cases[i].answer, arena), &detail);
        stk_batch_detail_end(&detail, &report);
        if (report.state != cases[i].end || report.failure != cases[i].failure ||
            report.exit_status != cases[i].exit_status ||
            strstr(report.text, cases[i].says) == NULL ||
            report.oom != (cases[i].failure == STK_FAIL_HOST_OOM)) {
            fail_msg("case %zu: state %d failure %d exit %d '%s'", i, (int)report.state,
                     (int)report.failure, report.exit_status, report.text);
        }
    }
}

static void waits(void **state)
{
    static const struct {
        const char *answer, *says;
    } cases[] = {
        {"{\"status\": \"RUNNABLE\"}", ""},
        {"{\"status\": \"RUNNABLE\", \"statusReason\": \"CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - "
         "Service cannot fulfill the capacity requested for instance type [p5.48xlarge]\"}",
         "no free instance of that kind (CAPACITY:"},
        {"{\"status\": \"RUNNABLE\", \"statusReason\": \"MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT "
         "- The job resource requirement (vCPU/memory/GPU) is higher than that can be met by the "
         "CE(s) attached to the job queue.\"}",
         "more than any instance"},
        {"{\"status\": \"RUNNABLE\", \"statusReason\": \"something new\"}",
         "RUNNABLE in queue 'q': something new"},
    };
    char text[512];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        stk_batch_detail detail;
        stk_batch_detail_read(parse(cases[i].answer, arena), &detail);
        stk_batch_detail_wait(&detail, "q", text, sizeof text);
        assert_non_null(strstr(text, cases[i].says));
    }
}

static void logs(void **state)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_batch_detail detail;
    (void)state;
    stk_batch_detail_read(parse("{\"status\": \"RUNNING\", \"jobId\": \"j\", \"container\": "
                                "{\"logStreamName\": \"d/default/1\", \"containerInstanceArn\": "
                                "\"arn:aws:ecs:eu:1:container-instance/c/abc\"}}",
                                arena),
                          &detail);
    assert_string_equal(detail.log_group, "/aws/batch/job");
    assert_string_equal(detail.log_stream, "d/default/1");
    assert_string_equal(detail.instance, "abc");
    stk_batch_detail_read(
        parse("{\"container\": {\"logConfiguration\": {\"logDriver\": \"awslogs\", "
              "\"options\": {\"awslogs-group\": \"mine\"}}}}",
              arena),
        &detail);
    assert_string_equal(detail.log_group, "mine");
    stk_batch_detail_read(
        parse("{\"container\": {\"logConfiguration\": {\"logDriver\": \"splunk\"}}}", arena),
        &detail);
    assert_null(detail.log_group);
}

static void holds(void **state)
{
    static const struct {
        const char *environments;
        int64_t cpus, gpus, neurons;
        const char *class, *says; /* NULL: the queue can run it */
    } cases[] = {
        {"[{\"computeEnvironmentName\": \"a\", \"state\": \"ENABLED\", \"status\": \"VALID\", "
         "\"computeResources\": {\"type\": \"EC2\", \"maxvCpus\": 256, \"instanceTypes\": "
         "[\"optimal\"]}}]",
         4, 0, 0, NULL, NULL},
        {"[{\"computeEnvironmentName\": \"a\", \"state\": \"ENABLED\", \"computeResources\": "
         "{\"type\": \"EC2\", \"maxvCpus\": 256, \"instanceTypes\": [\"optimal\"]}}]",
         4, 1, 0, NULL, "'a' has no instances with NVIDIA GPUs"},
        {"[{\"computeEnvironmentName\": \"a\", \"computeResources\": {\"type\": \"SPOT\", "
         "\"maxvCpus\": 256, \"instanceTypes\": [\"g5.xlarge\", \"p4d\"]}}]",
         4, 1, 0, "A100", NULL},
        {"[{\"computeEnvironmentName\": \"a\", \"computeResources\": {\"type\": \"SPOT\", "
         "\"maxvCpus\": 256, \"instanceTypes\": [\"g5.xlarge\", \"p4d\"]}}]",
         4, 1, 0, "H100", "'a' has no instances with that model"},
        {"[{\"computeEnvironmentName\": \"a\", \"computeResources\": {\"type\": \"EC2\", "
         "\"maxvCpus\": 256, \"instanceTypes\": [\"trn1\"]}}]",
         4, 0, 16, NULL, NULL},
        {"[{\"computeEnvironmentName\": \"a\", \"computeResources\": {\"type\": \"EC2\", "
         "\"maxvCpus\": 256, \"instanceTypes\": [\"inf2\"]}}]",
         4, 0, 1, "Trainium", "'a' has no instances with that model"},
        {"[{\"computeEnvironmentName\": \"a\", \"computeResources\": {\"type\": \"EC2\", "
         "\"maxvCpus\": 256, \"instanceTypes\": [\"p4de.24xlarge\"]}}]",
         4, 8, 0, "A100-80GB", NULL},
        {"[{\"computeEnvironmentName\": \"a\", \"computeResources\": {\"type\": \"EC2\", "
         "\"maxvCpus\": 256, \"instanceTypes\": [\"p4d.24xlarge\"]}}]",
         4, 8, 0, "A100-80GB", "'a' has no instances with that model of GPU"},
        {"[{\"computeEnvironmentName\": \"a\", \"computeResources\": {\"type\": \"EC2\", "
         "\"maxvCpus\": 8, \"instanceTypes\": [\"trn1\"]}}]",
         16, 0, 0, NULL, "smaller maximum of vCPUs (8)"},
        {"[{\"computeEnvironmentName\": \"a\", \"state\": \"DISABLED\"}, "
         "{\"computeEnvironmentName\": \"b\", \"status\": \"INVALID\", \"statusReason\": "
         "\"CLIENT_ERROR - no subnet\"}]",
         1, 0, 0, NULL, "'a' is disabled, 'b' is invalid (CLIENT_ERROR - no subnet)"},
        {"[{\"computeEnvironmentName\": \"a\", \"type\": \"UNMANAGED\", \"state\": \"ENABLED\"}]",
         1, 8, 0, "H100", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char answer[1024], text[1024] = "";
        STK_ARENA_AUTO arena = stk_arena_new(0);
        stk_batch_environment *environments;
        uint32_t n;
        stk_remote_job one = {.nodes = 1};
        stk_batch_ask ask = {.job = &one,
                             .queue = "q",
                             .cpu_milli = cases[i].cpus * 1000,
                             .gpus = cases[i].gpus,
                             .neurons = cases[i].neurons,
                             .classes = {cases[i].class}};
        (void)snprintf(answer, sizeof answer, "{\"computeEnvironments\": %s}",
                       cases[i].environments);
        assert_int_equal(
            stk_batch_environments_read(parse(answer, arena), arena, &environments, &n), 0);
        bool can = stk_batch_can_hold(environments, n, &ask, text, sizeof text);
        if (can != (cases[i].says == NULL) || (!can && strstr(text, cases[i].says) == NULL)) {
            fail_msg("case %zu: %d '%s'", i, can, text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asked),    cmocka_unit_test(refused),
        cmocka_unit_test(too_long), cmocka_unit_test(registered_once),
        cmocka_unit_test(ends),     cmocka_unit_test(waits),
        cmocka_unit_test(logs),     cmocka_unit_test(holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
