/* The requests for one job, or for an array of them: RegisterJobDefinition and SubmitJob.
 * The definition has everything that jobs of a step share, so that it is registered once;
 * environment, tags and timeout go with each job. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "away/batch/batch_private.h"
#include "base/digest.h"
#include "base/text.h"

enum {
    REQUEST_BYTES = 30 << 10, /* Batch's own limit on SubmitJob */
    OVERRIDES_BYTES = 8192,   /* ECS's on what is overridden in a definition */
    TIMEOUT_SLACK_S = 300,    /* Batch's deadline is so much later than the agent's */
    TIMEOUT_LEAST_S = 60,     /* Batch's minimum */
    TAG_BYTES = 256,
    GANG_PORT = 29500
};

void stk_batch_put_pair(stk_buf *out, const char *name_key, const char *name, const char *value_key,
                        const char *value)
{
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, name_key, name);
    stk_json_put_text(out, value_key, value);
    stk_json_close(out, '}');
}

/* --- the definition --- */

static void put_requirements(const stk_batch_ask *ask, stk_buf *out)
{
    char text[32];
    stk_json_open(out, "resourceRequirements", '[');
    (void)snprintf(text, sizeof text, "%.15g", (double)ask->cpu_milli / 1000);
    stk_batch_put_pair(out, "type", "VCPU", "value", text);
    (void)snprintf(text, sizeof text, "%lld", (long long)ask->memory_mib);
    stk_batch_put_pair(out, "type", "MEMORY", "value", text);
    if (ask->gpus > 0) {
        (void)snprintf(text, sizeof text, "%lld", (long long)ask->gpus);
        stk_batch_put_pair(out, "type", "GPU", "value", text);
    }
    stk_json_close(out, ']');
}

static void put_if(const stk_batch_ask *ask, stk_buf *out, const char *key, const char *option)
{
    const char *text = stk_batch_text(&ask->options, option);
    if (text != NULL && *text != 0) {
        stk_json_put_text(out, key, text);
    }
}

/* Each pair of a mapping, or of "key:value" and "key=value" texts. */
static void each_pair(const stk_json *value, stk_arena *arena,
                      void (*fn)(void *arg, const char *key, const char *value), void *arg)
{
    const stk_json *items;
    for (uint32_t i = 0; i < stk_json_n_members(value); i++) {
        fn(arg, stk_json_key(value, i)->text, stk_batch_text_of(stk_json_value(value, i)));
    }
    uint32_t n = stk_json_is_map(value) ? 0 : stk_json_as_list(value, &items);
    for (uint32_t i = 0; i < n; i++) {
        const char *text = items[i].text;
        size_t n_key = strcspn(text, ":=");
        const char *key = stk_arena_dupn(arena, text, n_key);
        if (key != NULL) {
            fn(arg, key, text + n_key + (text[n_key] != 0));
        }
    }
}

static void put_member(void *arg, const char *key, const char *value)
{
    stk_json_put_text(arg, key, value);
}

static void put_ulimit(void *arg, const char *key, const char *value)
{
    stk_buf *out = arg;
    long long limit = strtoll(value, NULL, 10);
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "name", key);
    stk_json_put_whole(out, "softLimit", limit);
    stk_json_put_whole(out, "hardLimit", limit);
    stk_json_close(out, '}');
}

static void put_secret(void *arg, const char *key, const char *value)
{
    stk_batch_put_pair(arg, "name", key, "valueFrom", value);
}

static void put_secrets(const stk_batch_ask *ask, stk_arena *arena, stk_buf *out)
{
    const stk_json *own = stk_batch_option(&ask->options, "secrets");
    const char *const *at = ask->facts.secret_at;
    const char *const *secret = ask->secret;
    if (own == NULL && at == NULL && *secret == NULL) {
        return;
    }
    stk_json_open(out, "secrets", '[');
    each_pair(own, arena, put_secret, out);
    for (; at != NULL && at[0] != NULL; at += 2) {
        put_secret(out, at[0], at[1]);
    }
    for (; ask->facts.secret_at == NULL && *secret != NULL; secret++) {
        const char *name = stk_arena_dupn(arena, *secret, strcspn(*secret, "="));
        put_secret(out, name, "(stored when the job is submitted)");
    }
    stk_json_close(out, ']');
}

static void put_log(const stk_batch_ask *ask, stk_arena *arena, stk_buf *out)
{
    const char *driver = stk_batch_text(&ask->options, "log_driver");
    const stk_json *options = stk_batch_option(&ask->options, "log_options");
    if (driver == NULL && options == NULL) {
        return;
    }
    stk_json_open(out, "logConfiguration", '{');
    stk_json_put_text(out, "logDriver", stk_text_or(driver, "awslogs"));
    if (options != NULL) {
        stk_json_open(out, "options", '{');
        each_pair(options, arena, put_member, out);
        stk_json_close(out, '}');
    }
    stk_json_close(out, '}');
}

static void put_fargate(const stk_batch_ask *ask, stk_buf *out)
{
    int64_t gib = stk_batch_whole(&ask->options, "ephemeral_storage");
    int64_t disk = stk_batch_whole(&ask->options, "disk");
    if (gib < 0 && disk > 0) {
        gib = (disk * 1000000 + (1ll << 30) - 1) >> 30;
        if (gib <= 20) {
            gib = -1; /* the minimum is 20 anyway */
        }
    }
    stk_json_open(out, "networkConfiguration", '{');
    bool is_public = stk_batch_bool(&ask->options, "assign_public_ip", true);
    stk_json_put_text(out, "assignPublicIp", is_public ? "ENABLED" : "DISABLED");
    stk_json_close(out, '}');
    if (gib > 0) {
        stk_json_open(out, "ephemeralStorage", '{');
        stk_json_put_whole(out, "sizeInGiB", gib);
        stk_json_close(out, '}');
    }
    const char *arch = stk_batch_text(&ask->options, "arch");
    if (arch != NULL) {
        stk_json_open(out, "runtimePlatform", '{');
        stk_json_put_text(out, "operatingSystemFamily", "LINUX");
        bool is_arm = strcasecmp(arch, "arm64") == 0 || strcasecmp(arch, "aarch64") == 0;
        stk_json_put_text(out, "cpuArchitecture", is_arm ? "ARM64" : "X86_64");
        stk_json_close(out, '}');
    }
}

static int put_container(const stk_batch_ask *ask, const char *key, stk_arena *arena, stk_buf *out,
                         stk_err *err)
{
    const char *image = ask->job->image;
    stk_json_open(out, key, '{');
    stk_json_put_text(out, "image", stk_text_or(image, "(the image built for the step)"));
    stk_batch_put_command(ask, out);
    put_requirements(ask, out);
    put_if(ask, out, "jobRoleArn", "iam_role");
    put_if(ask, out, "executionRoleArn", "execution_role");
    put_if(ask, out, "user", "user");
    STK_TRY(stk_batch_put_linux(ask, out, err));
    STK_TRY(stk_batch_put_volumes(ask, out, err));
    const stk_json *ulimits = stk_batch_option(&ask->options, "ulimits");
    if (ulimits != NULL) {
        stk_json_open(out, "ulimits", '[');
        each_pair(ulimits, arena, put_ulimit, out);
        stk_json_close(out, ']');
    }
    if (stk_batch_bool(&ask->options, "privileged", false)) {
        stk_json_put_bool(out, "privileged", true);
    }
    put_log(ask, arena, out);
    put_secrets(ask, arena, out);
    if (ask->platform == STK_BATCH_FARGATE) {
        put_fargate(ask, out);
    }
    stk_json_close(out, '}');
    return 0;
}

static int put_nodes(const stk_batch_ask *ask, stk_arena *arena, stk_buf *out, stk_err *err)
{
    char range[16];
    (void)snprintf(range, sizeof range, "0:%u", ask->job->nodes - 1);
    stk_json_open(out, "nodeProperties", '{');
    stk_json_put_whole(out, "numNodes", ask->job->nodes);
    stk_json_put_whole(out, "mainNode", 0);
    stk_json_open(out, "nodeRangeProperties", '[');
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "targetNodes", range);
    STK_TRY(put_container(ask, "container", arena, out, err));
    stk_json_close(out, '}');
    stk_json_close(out, ']');
    stk_json_close(out, '}');
    return 0;
}

int stk_batch_definition(const stk_batch_ask *ask, stk_arena *arena, const char **ret_request,
                         const char **ret_name, stk_err *err)
{
    static const char *const platforms[] = {
        [STK_BATCH_EC2] = "EC2", [STK_BATCH_FARGATE] = "FARGATE"};
    STK_BUF_AUTO out = STK_BUF_INIT(1 << 20);
    const char *const platform[] = {platforms[ask->platform], NULL};
    char digest[STK_DIGEST_HEX + 1];
    bool is_many = ask->job->nodes > 1;
    stk_json_put_text(&out, "type", is_many ? "multinode" : "container");
    stk_json_put_texts(&out, "platformCapabilities", platform);
    stk_json_put_bool(&out, "propagateTags", true);
    if (is_many) {
        STK_TRY(put_nodes(ask, arena, &out, err));
    } else {
        STK_TRY(put_container(ask, "containerProperties", arena, &out, err));
    }
    STK_TRY(stk_buf_check(&out, err));
    stk_digest_of(out.data, out.len, digest);
    *ret_name = stk_arena_printf(arena, "stoker-%.32s", digest);
    STK_TRY(stk_err_if_null(*ret_name, err));
    STK_BUF_AUTO request = STK_BUF_INIT(2 << 20);
    stk_json_open(&request, NULL, '{');
    stk_json_put_text(&request, "jobDefinitionName", *ret_name);
    (void)stk_buf_printf(&request, ",%s}", out.data);
    *ret_request = stk_buf_keep(&request, arena);
    return stk_err_if_null(*ret_request, err);
}

/* --- one job --- */

/* AWS accepts letters, digits, spaces and + - = . _ : / @ in tags. */
static void put_tag(void *arg, const char *key, const char *value)
{
    char clean[TAG_BYTES + 1];
    size_t n = 0;
    for (; value[n] != 0 && n < TAG_BYTES; n++) {
        bool plain = (value[n] >= '0' && value[n] <= '9') || (value[n] >= 'a' && value[n] <= 'z') ||
                     (value[n] >= 'A' && value[n] <= 'Z') || strchr(" +-=._:/@", value[n]) != NULL;
        clean[n] = plain ? value[n] : '_';
    }
    clean[n] = 0;
    stk_json_put_text(arg, key, clean);
}

static void put_tags(const stk_batch_ask *ask, stk_arena *arena, stk_buf *out)
{
    char text[24];
    const stk_remote_job *job = ask->job;
    stk_json_open(out, "tags", '{');
    put_tag(out, "stoker.run", job->run);
    put_tag(out, "stoker.pipeline", job->pipeline);
    put_tag(out, "stoker.step", job->step);
    if (!ask->is_array) { /* tags of an array are its children's */
        (void)snprintf(text, sizeof text, "%u", job->task);
        put_tag(out, "stoker.task", text);
        (void)snprintf(text, sizeof text, "%u", job->attempt);
        put_tag(out, "stoker.attempt", text);
    }
    each_pair(stk_batch_option(&ask->options, "aws_batch_tags"), arena, put_tag, out);
    stk_json_close(out, '}');
    stk_json_put_bool(out, "propagateTags", true);
}

/* The size by ECS's count: the characters of names and values. */
static size_t override_bytes(const stk_remote_job *job, size_t more)
{
    for (const char *const *e = job->env; e != NULL && *e != NULL; e++) {
        more += strlen(*e);
    }
    return more;
}

static void put_variable(const char *pair, stk_arena *arena, stk_buf *out)
{
    size_t n = strcspn(pair, "=");
    const char *name = stk_arena_dupn(arena, pair, n);
    if (name != NULL && pair[n] == '=') {
        stk_batch_put_pair(out, "name", name, "value", pair + n + 1);
    }
}

static int put_overrides(const stk_batch_ask *ask, stk_arena *arena, stk_buf *out, stk_err *err)
{
    const stk_remote_job *job = ask->job;
    stk_json_put_key(out, "containerOverrides");
    size_t before = out->len;
    stk_json_open(out, NULL, '{');
    if (strcmp(ask->config->carry, "volume") == 0) {
        stk_json_put_texts(out, "command", job->argv);
    }
    stk_json_open(out, "environment", '[');
    for (const char *const *e = job->env; e != NULL && *e != NULL; e++) {
        put_variable(*e, arena, out);
    }
    if (ask->gpus > 0 || ask->neurons > 0) { /* the agent checks that it has them */
        char asked[40];
        (void)snprintf(asked, sizeof asked, "%s %lld", ask->gpus > 0 ? "nvidia" : "aws",
                       (long long)MAX(ask->gpus, ask->neurons));
        stk_batch_put_pair(out, "name", "STOKER_ASKED_DEVICES", "value", asked);
    }
    if (job->nodes > 1) { /* Batch tells the agent node 0's address */
        char port[16];
        (void)snprintf(port, sizeof port, "%d", job->port > 0 ? job->port : GANG_PORT);
        stk_batch_put_pair(out, "name", "STOKER_GANG_PORT", "value", port);
    }
    stk_batch_put_carry_env(ask, out);
    stk_json_close(out, ']');
    stk_json_close(out, '}');
    if (out->len - before > OVERRIDES_BYTES) {
        return stk_err_set(
            err, STK_E_SPEC,
            "the job's environment has %zu bytes, %zu of them variables of the step, but AWS Batch "
            "accepts only %d; put long values into inputs or files",
            out->len - before, override_bytes(job, 0), OVERRIDES_BYTES);
    }
    return 0;
}

int stk_batch_submit(const stk_batch_ask *ask, const char *definition, stk_arena *arena,
                     const char **ret_request, stk_err *err)
{
    STK_BUF_AUTO out = STK_BUF_INIT(REQUEST_BYTES);
    const stk_remote_job *job = ask->job;
    int64_t priority = stk_batch_whole(&ask->options, "priority");
    stk_json_open(&out, NULL, '{');
    stk_json_put_text(&out, "jobName", job->name);
    stk_json_put_text(&out, "jobQueue", ask->queue);
    stk_json_put_text(&out, "jobDefinition", definition);
    if (ask->is_array) {
        stk_json_open(&out, "arrayProperties", '{');
        if (ask->n_children > 0) {
            stk_json_put_whole(&out, "size", ask->n_children);
        } else {
            stk_json_put_text(&out, "size", "(as many as are ready together)");
        }
        stk_json_close(&out, '}');
    }
    put_if(ask, &out, "shareIdentifier", "share_identifier");
    if (priority >= 0) {
        stk_json_put_int(&out, "schedulingPriorityOverride", priority);
    }
    if (job->nodes > 1) {
        char range[16];
        (void)snprintf(range, sizeof range, "0:%u", job->nodes - 1);
        stk_json_open(&out, "nodeOverrides", '{');
        stk_json_open(&out, "nodePropertyOverrides", '[');
        stk_json_open(&out, NULL, '{');
        stk_json_put_text(&out, "targetNodes", range);
    }
    STK_TRY(put_overrides(ask, arena, &out, err));
    if (job->nodes > 1) {
        stk_json_close(&out, '}');
        stk_json_close(&out, ']');
        stk_json_close(&out, '}');
    }
    /* No retries by Batch: the engine retries, and records each attempt. */
    stk_json_open(&out, "retryStrategy", '{');
    stk_json_put_whole(&out, "attempts", 1);
    stk_json_close(&out, '}');
    if (job->timeout_ms > 0) {
        int64_t seconds = (job->timeout_ms + job->grace_ms + 999) / 1000 + TIMEOUT_SLACK_S;
        stk_json_open(&out, "timeout", '{');
        stk_json_put_whole(&out, "attemptDurationSeconds", MAX(seconds, TIMEOUT_LEAST_S));
        stk_json_close(&out, '}');
    }
    put_tags(ask, arena, &out);
    stk_json_close(&out, '}');
    if (out.failed) {
        return stk_err_set(err, STK_E_SPEC,
                           "its request to AWS Batch exceeds the limit of %d bytes; set fewer tags",
                           (int)REQUEST_BYTES);
    }
    *ret_request = stk_arena_dupn(arena, out.data, out.len);
    return stk_err_if_null(*ret_request, err);
}
