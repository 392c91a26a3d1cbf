/* What is asked of Batch for one job, or for an array of them: RegisterJobDefinition and SubmitJob.
 * The definition has everything that jobs of a step share, so that it is registered once;
 * environment, tags and timeout go with each job. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "away/batch/batch_private.h"
#include "base/digest.h"
#include "base/text.h"

#define MIB (1ll << 20)

enum {
    REQUEST_BYTES = 30 << 10, /* Batch's own limit on SubmitJob */
    OVERRIDES_BYTES = 8192,   /* ECS's on what is overridden in a definition */
    DEFAULT_MEMORY_MIB = 4096,
    TIMEOUT_SLACK_S = 300, /* Batch's deadline lies above the agent's */
    TIMEOUT_LEAST_S = 60,  /* Batch takes no shorter one */
    TAG_BYTES = 256,
    GANG_PORT = 29500
};

void stk_batch_put_comma(stk_buf *out)
{
    char last = out->len > 0 ? out->data[out->len - 1] : '[';
    if (last != '[' && last != '{' && last != ':') {
        (void)stk_buf_char(out, ',');
    }
}

void stk_batch_put_pair(stk_buf *out, const char *name_key, const char *name, const char *value_key,
                        const char *value)
{
    stk_batch_put_comma(out);
    (void)stk_buf_char(out, '{');
    stk_json_put_text(out, name_key, name);
    stk_json_put_text(out, value_key, value);
    (void)stk_buf_char(out, '}');
}

/* --- reading --- */

/* What Fargate gives: for each size in thousandths of a CPU, memory from, to, and in steps of, MiB.
 */
static const struct {
    int64_t milli, from, to, by;
} fargate_sizes[] = {{250, 512, 1024, 512},      {250, 2048, 2048, 1},
                     {500, 1024, 4096, 1024},    {1000, 2048, 8192, 1024},
                     {2000, 4096, 16384, 1024},  {4000, 8192, 30720, 1024},
                     {8000, 16384, 61440, 4096}, {16000, 32768, 122880, 8192}};

static int fit_fargate(stk_batch_ask *ask, stk_err *err)
{
    for (size_t i = 0; i < sizeof fargate_sizes / sizeof *fargate_sizes; i++) {
        int64_t memory = MAX(ask->memory_mib, fargate_sizes[i].from);
        memory = (memory + fargate_sizes[i].by - 1) / fargate_sizes[i].by * fargate_sizes[i].by;
        if (fargate_sizes[i].milli >= ask->cpu_milli && memory <= fargate_sizes[i].to) {
            ask->cpu_milli = fargate_sizes[i].milli;
            ask->memory_mib = memory;
            return 0;
        }
    }
    return stk_err_set(
        err, STK_E_SPEC,
        "%.15g vCPUs with %lld MiB are more than Fargate gives (16 vCPUs, 122880 MiB); "
        "ask for less or use a queue of EC2 instances",
        (double)ask->cpu_milli / 1000, (long long)ask->memory_mib);
}

static int refuse_fargate(const stk_batch_ask *ask, stk_err *err)
{
    static const char *const needs_ec2[] = {"shared_memory", "max_swap",   "swappiness",
                                            "use_tmpfs",     "tmpfs_size", "host_volumes",
                                            "privileged",    "efa",        "ulimits"};
    for (size_t i = 0; i < sizeof needs_ec2 / sizeof *needs_ec2; i++) {
        const stk_json *value = stk_batch_option(&ask->options, needs_ec2[i]);
        if (value != NULL && !(value->kind == STK_JSON_BOOL && !value->truth)) {
            return stk_err_set(err, STK_E_SPEC,
                               "Fargate can't honour '%s'; use a queue of EC2 instances",
                               needs_ec2[i]);
        }
    }
    if (ask->gpus > 0 || ask->neurons > 0 || ask->job->nodes > 1) {
        return stk_err_set(err, STK_E_SPEC, "Fargate has no %s; use a queue of EC2 instances",
                           ask->job->nodes > 1 ? "multi-node jobs" : "accelerators");
    }
    if (stk_batch_text(&ask->options, "execution_role") == NULL) {
        return stk_err_set(err, STK_E_SPEC,
                           "Fargate needs execution_role, the role that pulls the image "
                           "and writes the log; "
                           "give it, or METAFLOW_ECS_FARGATE_EXECUTION_ROLE");
    }
    return 0;
}

static int64_t larger(int64_t a, int64_t b)
{
    return MAX(a, b);
}

/* Options that name a kind of device; *ret_kind is NULL where none does. */
static int read_kind(const stk_batch_ask *ask, const char **ret_kind, int64_t *ret_n, stk_err *err)
{
    int64_t inferentia = stk_batch_whole(&ask->options, "inferentia");
    int64_t trainium = stk_batch_whole(&ask->options, "trainium");
    int64_t gpus = stk_batch_whole(&ask->options, "gpu");
    if (inferentia > 0 && trainium > 0) {
        return stk_err_set(err, STK_E_SPEC,
                           "trainium and inferentia are two names of one option; give one");
    }
    *ret_kind = trainium > 0 ? "trainium" : inferentia > 0 ? "inferentia" : gpus > 0 ? "gpu" : NULL;
    *ret_n = larger(larger(inferentia, trainium), 0);
    if (*ret_n > 0 && gpus > 0) {
        return stk_err_set(err, STK_E_SPEC,
                           "no instance has both GPUs and Neuron devices (gpu %lld, %s "
                           "%lld); ask for one kind",
                           (long long)gpus, *ret_kind, (long long)*ret_n);
    }
    *ret_n = larger(*ret_n, gpus);
    return 0;
}

/* Whose devices one alternative means, and can Batch give them? */
static int check_want(const stk_alternative *want, const char *kind, const char **ret_vendor,
                      stk_err *err)
{
    const char *of_kind = NULL;
    if (kind != NULL) {
        of_kind = strcmp(kind, "gpu") == 0 ? "nvidia" : "aws";
    }
    const char *by_class = stk_spec_vendor_of_class(want->gpu_class);
    const char *vendor = stk_spec_vendor_of(want);
    if (by_class != NULL && strcmp(by_class, vendor) != 0) {
        return stk_err_set(err, STK_E_SPEC,
                           "gpu_class '%s' means devices of %s, and gpu_vendor says %s; say one of "
                           "them",
                           want->gpu_class, by_class, vendor);
    }
    if (of_kind != NULL && vendor != NULL && strcmp(of_kind, vendor) != 0) {
        return stk_err_set(err, STK_E_SPEC,
                           "option %s means devices of %s, and the step asks for %s's; ask for one "
                           "kind",
                           kind, of_kind, vendor);
    }
    if (vendor == NULL) {
        vendor = stk_text_or(of_kind, "nvidia");
    }
    if (strcmp(vendor, "nvidia") != 0 && strcmp(vendor, "aws") != 0) {
        return stk_err_set(err, STK_E_SPEC,
                           "%s '%s'%s%s; AWS Batch gives GPUs of NVIDIA and Neuron devices "
                           "(gpu_vendor aws) only; use Kubernetes for others",
                           by_class != NULL ? "gpu_class" : "gpu_vendor is",
                           by_class != NULL ? want->gpu_class : vendor,
                           by_class != NULL ? " means devices of " : "", stk_text_or(by_class, ""));
    }
    if (want->gpu_memory_bytes != -1) {
        return stk_err_set(err, STK_E_SPEC,
                           "gpu_memory asks for a share of a GPU; AWS Batch gives whole "
                           "ones: ask for gpu_count alone");
    }
    if (stk_spec_is_slice(want->gpu_class)) {
        return stk_err_set(err, STK_E_SPEC,
                           "gpu_class '%s' asks for a slice; AWS Batch gives whole GPUs: name a "
                           "model, or leave the class out",
                           want->gpu_class);
    }
    *ret_vendor = vendor;
    return 0;
}

/* Of several alternatives the first, and those that differ from it in their class alone: which of
 * these an instance has is the queue's. */
static int read_devices(stk_batch_ask *ask, stk_err *err)
{
    const stk_resources *asked = ask->job->resources;
    stk_alternative wants[STK_LIMIT_ASKS];
    uint32_t n = stk_spec_alternatives(asked, wants), n_classes = 0;
    const char *vendor = NULL, *first = NULL;
    int64_t said = 0;
    int rc = read_kind(ask, &ask->kind, &said, err);
    if (rc < 0 || stk_spec_asks_none(asked) || (n == 0 && said == 0)) {
        ask->kind = NULL; /* none is none, whatever else is said */
        return rc;
    }
    if (n == 0) {
        wants[n++] = (stk_alternative){.gpu_count = said, .gpu_memory_bytes = -1};
    }
    bool any_model = false;
    for (uint32_t i = 0; i < n; i++) {
        rc = check_want(&wants[i], ask->kind, &vendor, i == 0 ? err : NULL);
        if (i == 0 && rc < 0) {
            return rc;
        }
        if (i == 0) {
            first = vendor;
        }
        if (rc == 0 && strcmp(vendor, first) == 0 && wants[i].gpu_count == wants[0].gpu_count) {
            any_model = any_model || wants[i].gpu_class == NULL;
            ask->classes[n_classes++] = wants[i].gpu_class;
        }
    }
    if (any_model) {
        ask->classes[0] = NULL;
    }
    int64_t count = larger(wants[0].gpu_count, said);
    ask->neurons = strcmp(first, "aws") == 0 ? count : 0;
    ask->gpus = ask->neurons > 0 ? 0 : count;
    if (ask->neurons > 0 && !stk_batch_is_made(ask)) {
        return stk_err_set(err, STK_E_SPEC,
                           "no instance of EC2 is known that has gpu_class '%s'%s%s; say Trainium, "
                           "Trainium2, Inferentia or Inferentia2",
                           stk_text_or(ask->classes[0], ""),
                           ask->kind != NULL ? " and option " : "", stk_text_or(ask->kind, ""));
    }
    return 0;
}

static int read_sizes(stk_batch_ask *ask, stk_err *err)
{
    const stk_resources *asked = ask->job->resources;
    double cpu = stk_batch_number(&ask->options, "cpu");
    int64_t memory = asked->memory_bytes > 0 ? (asked->memory_bytes + MIB - 1) / MIB : -1;
    ask->cpu_milli = larger(asked->cpu_milli, cpu > 0 ? (int64_t)ceil(cpu * 1000) : -1);
    ask->memory_mib = larger(memory, stk_batch_whole(&ask->options, "memory"));
    if (ask->cpu_milli <= 0) {
        ask->cpu_milli = 1000;
    }
    if (ask->memory_mib <= 0) {
        ask->memory_mib = DEFAULT_MEMORY_MIB;
    }
    ask->efa = larger(stk_batch_whole(&ask->options, "efa"), 0);
    int rc = read_devices(ask, err);
    if (rc < 0 || ask->platform == STK_BATCH_FARGATE) {
        rc = rc < 0 ? rc : refuse_fargate(ask, err);
        STK_TRY(rc);
        return fit_fargate(ask, err);
    }
    ask->cpu_milli = (ask->cpu_milli + 999) / 1000 * 1000; /* instances give whole ones */
    if (stk_batch_option(&ask->options, "ephemeral_storage") != NULL) {
        return stk_err_set(err, STK_E_SPEC,
                           "ephemeral_storage is Fargate's; on EC2 the instance's disk "
                           "is what the compute "
                           "environment's launch template gives it");
    }
    return 0;
}

static int read_platform(stk_batch_ask *ask, stk_err *err)
{
    const char *word = stk_batch_text(&ask->options, "platform");
    ask->platform = ask->facts.platform_known ? ask->facts.platform : STK_BATCH_EC2;
    if (word == NULL) {
        return 0;
    }
    bool fargate = strcasecmp(word, "fargate") == 0;
    if (!fargate && strcasecmp(word, "ec2") != 0) {
        return stk_err_set(err, STK_E_SPEC, "platform is '%s'; it is ec2 or fargate", word);
    }
    ask->platform = fargate ? STK_BATCH_FARGATE : STK_BATCH_EC2;
    return 0;
}

static int check_ranges(const stk_batch_ask *ask, stk_err *err)
{
    static const struct {
        const char *name;
        int64_t from, to;
        const char *unit;
    } ranges[] = {{"swappiness", 0, 100, ""},
                  {"priority", 0, 9999, ""},
                  {"ephemeral_storage", 21, 200, " GiB"},
                  {"shared_memory", 1, INT32_MAX, " MiB"},
                  {"tmpfs_size", 1, INT32_MAX, " MiB"},
                  {"efa", 0, 32, ""},
                  {"trainium", 0, 16, ""},
                  {"inferentia", 0, 16, ""}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        int64_t value = stk_batch_whole(&ask->options, ranges[i].name);
        if (value != -1 && (value < ranges[i].from || value > ranges[i].to)) {
            return stk_err_set(err, STK_E_SPEC, "%s is %lld; it must be %lld to %lld%s",
                               ranges[i].name, (long long)value, (long long)ranges[i].from,
                               (long long)ranges[i].to, ranges[i].unit);
        }
    }
    if (strcmp(ask->config->carry, "image") == 0) {
        return stk_err_set(
            err, STK_E_SPEC,
            "stack '%s': carry 'image' is Kubernetes'; on AWS Batch it is 'store' or 'volume'",
            ask->config->stack);
    }
    return 0;
}

static bool is_named(const char *pair, const char *name)
{
    size_t n = strlen(name);
    return strncmp(pair, name, n) == 0 && pair[n] == '=';
}

static bool has_env(const stk_remote_job *job, const char *name)
{
    for (const char *const *e = job->env; e != NULL && *e != NULL; e++) {
        if (is_named(*e, name)) {
            return true;
        }
    }
    return false;
}

/* Our own keys don't go along: jobs have a role (theirs, or their instance's), unless the store
 * isn't AWS's and no role is named. */
static int sort_secrets(stk_batch_ask *ask, stk_arena *arena, stk_err *err)
{
    static const char *const keys[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
                                       "AWS_SESSION_TOKEN"};
    const stk_remote_job *job = ask->job;
    bool has_role = stk_batch_text(&ask->options, "iam_role") != NULL;
    bool is_aws = !has_env(job, "AWS_ENDPOINT_URL") && !has_env(job, "AWS_ENDPOINT_URL_S3");
    uint32_t n = 0, kept = 0;
    while (job->secret != NULL && job->secret[n] != NULL) {
        n++;
    }
    const char **list = stk_arena_array(arena, (size_t)n + 1, sizeof *list);
    if (list == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < n; i++) {
        bool is_key = false;
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            is_key = is_key || is_named(job->secret[i], keys[k]);
        }
        if (!is_key || !(has_role || is_aws)) {
            list[kept++] = job->secret[i];
        }
    }
    ask->secret = list;
    return 0;
}

static int check_secrets(const stk_batch_ask *ask, stk_err *err)
{
    const char *prefix = stk_batch_text(&ask->options, "secret_prefix");
    if (prefix != NULL && strncmp(prefix, "ssm:/", 5) != 0) {
        return stk_err_set(err, STK_E_SPEC, "secret_prefix is '%s'; it must be ssm:/PATH", prefix);
    }
    if (ask->secret[0] == NULL || prefix != NULL) {
        return 0;
    }
    const char *secret = ask->secret[0];
    int n = (int)strcspn(secret, "=");
    if (strncmp(secret, "AWS_", 4) == 0) {
        return stk_err_set(
            err, STK_E_SPEC,
            "its store isn't AWS's own S3, and its job would need %.*s for it; name a role that "
            "may use it by "
            "iam_role, or set secret_prefix: ssm:/PATH (keys are put there for the run)",
            n, secret);
    }
    return stk_err_set(
        err, STK_E_SPEC,
        "secret '%.*s' can't go to AWS Batch, which shows every job's environment; set "
        "secret_prefix: ssm:/PATH (it is put there for the run), or name where it is by secrets: "
        "{%.*s: ARN}",
        n, secret, n, secret);
}

int stk_batch_ask_read(const stk_driver_config *config, const stk_remote_job *job,
                       const stk_batch_facts *facts, stk_arena *arena, stk_batch_ask *ret,
                       stk_err *err)
{
    static const stk_batch_facts none = {0};
    *ret = (stk_batch_ask){.config = config, .job = job, .facts = facts != NULL ? *facts : none};
    STK_TRY(stk_batch_options_read(job->step, job->options, config->options, arena, &ret->options,
                                   err));
    STK_TRY(read_platform(ret, err));
    STK_TRY(check_ranges(ret, err));
    STK_TRY(read_sizes(ret, err));
    STK_TRY(sort_secrets(ret, arena, err));
    STK_TRY(check_secrets(ret, err));
    ret->queue = stk_batch_text(&ret->options, "queue");
    if (ret->queue == NULL || *ret->queue == 0) {
        STK_TRY(stk_err_set(err, STK_E_SPEC,
                            "no job queue of AWS Batch is named; give queue in @batch(…), "
                            "in the stack's options, or "
                            "METAFLOW_BATCH_JOB_QUEUE"));
    }
    return 0;
}

/* --- the definition --- */

static void put_requirements(const stk_batch_ask *ask, stk_buf *out)
{
    char text[32];
    stk_json_put_key(out, "resourceRequirements");
    (void)stk_buf_char(out, '[');
    (void)snprintf(text, sizeof text, "%.15g", (double)ask->cpu_milli / 1000);
    stk_batch_put_pair(out, "type", "VCPU", "value", text);
    (void)snprintf(text, sizeof text, "%lld", (long long)ask->memory_mib);
    stk_batch_put_pair(out, "type", "MEMORY", "value", text);
    if (ask->gpus > 0) {
        (void)snprintf(text, sizeof text, "%lld", (long long)ask->gpus);
        stk_batch_put_pair(out, "type", "GPU", "value", text);
    }
    (void)stk_buf_char(out, ']');
}

static void put_if(const stk_batch_ask *ask, stk_buf *out, const char *key, const char *option)
{
    const char *text = stk_batch_text(&ask->options, option);
    if (text != NULL && *text != 0) {
        stk_json_put_text(out, key, text);
    }
}

static const char *plain_text(const stk_json *v)
{
    if (v->kind != STK_JSON_BOOL) {
        return v->text;
    }
    return v->truth ? "true" : "false";
}

/* Each pair of a mapping, or of "key:value" and "key=value" texts. */
static void each_pair(const stk_json *value, stk_arena *arena,
                      void (*fn)(void *arg, const char *key, const char *value), void *arg)
{
    bool is_list = value != NULL && value->kind == STK_JSON_LIST;
    for (uint32_t i = 0; value != NULL && i < (value->kind == STK_JSON_TEXT ? 1 : value->n); i++) {
        if (value->kind == STK_JSON_MAP) {
            const stk_json *v = stk_json_value(value, i);
            fn(arg, stk_json_key(value, i)->text, plain_text(v));
            continue;
        }
        const char *text = is_list ? value->items[i].text : value->text;
        size_t n = strcspn(text, ":=");
        const char *key = stk_arena_dupn(arena, text, n);
        if (key != NULL) {
            fn(arg, key, text + n + (text[n] != 0));
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
    stk_batch_put_comma(out);
    (void)stk_buf_char(out, '{');
    stk_json_put_text(out, "name", key);
    long long limit = strtoll(value, NULL, 10);
    stk_json_put_key(out, "softLimit");
    (void)stk_buf_printf(out, "%lld", limit);
    stk_json_put_key(out, "hardLimit");
    (void)stk_buf_printf(out, "%lld}", limit);
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
    stk_json_put_key(out, "secrets");
    (void)stk_buf_char(out, '[');
    each_pair(own, arena, put_secret, out);
    for (; at != NULL && at[0] != NULL; at += 2) {
        put_secret(out, at[0], at[1]);
    }
    for (; ask->facts.secret_at == NULL && *secret != NULL; secret++) {
        const char *name = stk_arena_dupn(arena, *secret, strcspn(*secret, "="));
        put_secret(out, name, "(put there when the job is submitted)");
    }
    (void)stk_buf_char(out, ']');
}

static void put_log(const stk_batch_ask *ask, stk_arena *arena, stk_buf *out)
{
    const char *driver = stk_batch_text(&ask->options, "log_driver");
    const stk_json *options = stk_batch_option(&ask->options, "log_options");
    if (driver == NULL && options == NULL) {
        return;
    }
    stk_json_put_key(out, "logConfiguration");
    (void)stk_buf_char(out, '{');
    stk_json_put_text(out, "logDriver", stk_text_or(driver, "awslogs"));
    if (options != NULL) {
        stk_json_put_key(out, "options");
        (void)stk_buf_char(out, '{');
        each_pair(options, arena, put_member, out);
        (void)stk_buf_char(out, '}');
    }
    (void)stk_buf_char(out, '}');
}

static void put_fargate(const stk_batch_ask *ask, stk_buf *out)
{
    int64_t gib = stk_batch_whole(&ask->options, "ephemeral_storage");
    int64_t disk = stk_batch_whole(&ask->options, "disk");
    if (gib < 0 && disk > 0) {
        gib = (disk * 1000000 + (1ll << 30) - 1) >> 30;
        if (gib <= 20) {
            gib = -1; /* it has 20 anyway */
        }
    }
    stk_json_put_key(out, "networkConfiguration");
    (void)stk_buf_char(out, '{');
    stk_json_put_text(out, "assignPublicIp",
                      stk_batch_bool(&ask->options, "assign_public_ip", true) ? "ENABLED"
                                                                              : "DISABLED");
    (void)stk_buf_char(out, '}');
    if (gib > 0) {
        stk_json_put_key(out, "ephemeralStorage");
        (void)stk_buf_printf(out, "{\"sizeInGiB\":%lld}", (long long)gib);
    }
    const char *arch = stk_batch_text(&ask->options, "arch");
    if (arch != NULL) {
        stk_json_put_key(out, "runtimePlatform");
        (void)stk_buf_char(out, '{');
        stk_json_put_text(out, "operatingSystemFamily", "LINUX");
        stk_json_put_text(out, "cpuArchitecture",
                          strcasecmp(arch, "arm64") == 0 || strcasecmp(arch, "aarch64") == 0
                              ? "ARM64"
                              : "X86_64");
        (void)stk_buf_char(out, '}');
    }
}

static int put_container(const stk_batch_ask *ask, stk_arena *arena, stk_buf *out, stk_err *err)
{
    const char *image = ask->job->image;
    (void)stk_buf_char(out, '{');
    stk_json_put_text(out, "image", stk_text_or(image, "(the image that is built for the step)"));
    STK_TRY(stk_batch_put_command(ask, out, err));
    put_requirements(ask, out);
    put_if(ask, out, "jobRoleArn", "iam_role");
    put_if(ask, out, "executionRoleArn", "execution_role");
    put_if(ask, out, "user", "user");
    STK_TRY(stk_batch_put_linux(ask, out, err));
    STK_TRY(stk_batch_put_volumes(ask, out, err));
    const stk_json *ulimits = stk_batch_option(&ask->options, "ulimits");
    if (ulimits != NULL) {
        stk_json_put_key(out, "ulimits");
        (void)stk_buf_char(out, '[');
        each_pair(ulimits, arena, put_ulimit, out);
        (void)stk_buf_char(out, ']');
    }
    if (stk_batch_bool(&ask->options, "privileged", false)) {
        stk_json_put_bool(out, "privileged", true);
    }
    put_log(ask, arena, out);
    put_secrets(ask, arena, out);
    if (ask->platform == STK_BATCH_FARGATE) {
        put_fargate(ask, out);
    }
    (void)stk_buf_char(out, '}');
    return 0;
}

int stk_batch_definition(const stk_batch_ask *ask, stk_arena *arena, const char **ret_request,
                         const char **ret_name, stk_err *err)
{
    STK_BUF_AUTO out = STK_BUF_INIT(1 << 20);
    char digest[STK_DIGEST_HEX + 1];
    bool is_many = ask->job->nodes > 1;
    stk_json_put_text(&out, "type", is_many ? "multinode" : "container");
    stk_json_put_key(&out, "platformCapabilities");
    (void)stk_buf_text(&out, ask->platform == STK_BATCH_FARGATE ? "[\"FARGATE\"]" : "[\"EC2\"]");
    stk_json_put_bool(&out, "propagateTags", true);
    stk_json_put_key(&out, is_many ? "nodeProperties" : "containerProperties");
    if (is_many) {
        (void)stk_buf_printf(&out,
                             "{\"numNodes\":%u,\"mainNode\":0,\"nodeRangeProperties\":"
                             "[{\"targetNodes\":\"0:%u\",\"container\":",
                             ask->job->nodes, ask->job->nodes - 1);
    }
    int rc = put_container(ask, arena, &out, err);
    if (is_many) {
        (void)stk_buf_text(&out, "}]}");
    }
    STK_TRY(rc);
    if (out.failed) {
        return stk_err_nomem(err);
    }
    stk_digest_of(out.data, out.len, digest);
    *ret_name = stk_arena_printf(arena, "stoker-%.32s", digest);
    *ret_request =
        stk_arena_printf(arena, "{\"jobDefinitionName\":\"stoker-%.32s\",%s}", digest, out.data);
    if (*ret_name == NULL || *ret_request == NULL) {
        return stk_err_nomem(err);
    }
    return 0;
}

/* --- one job --- */

/* AWS takes letters, digits, spaces and + - = . _ : / @ in tags. */
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
    stk_json_put_key(out, "tags");
    (void)stk_buf_char(out, '{');
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
    (void)stk_buf_char(out, '}');
    stk_json_put_bool(out, "propagateTags", true);
}

/* How long ECS finds this: the characters of names and values. */
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
    size_t before = out->len;
    (void)stk_buf_char(out, '{');
    if (strcmp(ask->config->carry, "volume") == 0) {
        stk_json_put_key(out, "command");
        (void)stk_buf_char(out, '[');
        for (const char *const *word = job->argv; *word != NULL; word++) {
            stk_batch_put_comma(out);
            (void)stk_buf_json(out, *word);
        }
        (void)stk_buf_char(out, ']');
    }
    stk_json_put_key(out, "environment");
    (void)stk_buf_char(out, '[');
    for (const char *const *e = job->env; e != NULL && *e != NULL; e++) {
        put_variable(*e, arena, out);
    }
    if (ask->gpus > 0 || ask->neurons > 0) { /* the agent looks whether they are there */
        bool is_gpu = ask->gpus > 0;
        const char *asked =
            stk_arena_printf(arena, "STOKER_ASKED_DEVICES=%s %lld", is_gpu ? "nvidia" : "aws",
                             (long long)(is_gpu ? ask->gpus : ask->neurons));
        put_variable(stk_text_or(asked, ""), arena, out);
    }
    if (job->nodes > 1) { /* the agent knows node 0's address once Batch has told it */
        char port[16];
        (void)snprintf(port, sizeof port, "%d", job->port > 0 ? job->port : GANG_PORT);
        stk_batch_put_pair(out, "name", "STOKER_GANG_PORT", "value", port);
    }
    stk_batch_put_carry_env(ask, out);
    (void)stk_buf_text(out, "]}");
    if (out->len - before > OVERRIDES_BYTES) {
        return stk_err_set(err, STK_E_SPEC,
                           "what AWS Batch is told by the job's environment is %zu "
                           "bytes long, %zu of them variables of "
                           "the step; it takes %d: put long values into inputs or files",
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
    (void)stk_buf_char(&out, '{');
    stk_json_put_text(&out, "jobName", job->name);
    stk_json_put_text(&out, "jobQueue", ask->queue);
    stk_json_put_text(&out, "jobDefinition", definition);
    if (ask->is_array) {
        stk_json_put_key(&out, "arrayProperties");
        (void)(ask->n_children > 0
                   ? stk_buf_printf(&out, "{\"size\":%u}", ask->n_children)
                   : stk_buf_text(&out, "{\"size\":\"(as many as are ready together)\"}"));
    }
    put_if(ask, &out, "shareIdentifier", "share_identifier");
    if (priority >= 0) {
        stk_json_put_int(&out, "schedulingPriorityOverride", priority);
    }
    if (job->nodes > 1) {
        stk_json_put_key(&out, "nodeOverrides");
        (void)stk_buf_printf(&out,
                             "{\"nodePropertyOverrides\":[{\"targetNodes\":\"0:%u\","
                             "\"containerOverrides\":",
                             job->nodes - 1);
    } else {
        stk_json_put_key(&out, "containerOverrides");
    }
    int rc = put_overrides(ask, arena, &out, err);
    (void)stk_buf_text(&out, job->nodes > 1 ? "}]}" : "");
    /* The engine retries: each attempt is a task's attempt on record. */
    stk_json_put_key(&out, "retryStrategy");
    (void)stk_buf_text(&out, "{\"attempts\":1}");
    if (job->timeout_ms > 0) {
        int64_t seconds = (job->timeout_ms + job->grace_ms + 999) / 1000 + TIMEOUT_SLACK_S;
        stk_json_put_key(&out, "timeout");
        (void)stk_buf_printf(&out, "{\"attemptDurationSeconds\":%lld}",
                             (long long)larger(seconds, TIMEOUT_LEAST_S));
    }
    put_tags(ask, arena, &out);
    (void)stk_buf_char(&out, '}');
    if (rc == 0 && out.failed) {
        rc = stk_err_set(err, STK_E_SPEC,
                         "its request to AWS Batch is longer than the %d bytes that "
                         "Batch takes; give fewer tags",
                         (int)REQUEST_BYTES);
    }
    *ret_request = rc == 0 ? stk_arena_dupn(arena, out.data, out.len) : NULL;
    if (rc < 0 || *ret_request != NULL) {
        return rc;
    }
    return stk_err_nomem(err);
}
