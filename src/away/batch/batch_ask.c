/* Reads and checks a job's request from its options and resources: sizes, devices, secrets. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/param.h>

#include "away/batch/batch_private.h"
#include "base/text.h"

#define MIB (1ll << 20)

enum { DEFAULT_MEMORY_MIB = 4096 };

/* Fargate's sizes: thousandths of a CPU, then the memory's minimum, maximum and step in MiB. */
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
    return stk_err_set(err, STK_E_SPEC,
                       "%.15g vCPUs with %lld MiB are more than Fargate's limit (16 vCPUs, 122880 "
                       "MiB); ask for less or use a queue of EC2 instances",
                       (double)ask->cpu_milli / 1000, (long long)ask->memory_mib);
}

static int refuse_fargate(const stk_batch_ask *ask, stk_err *err)
{
    static const char *const needs_ec2[] = {"shared_memory", "max_swap",   "swappiness",
                                            "use_tmpfs",     "tmpfs_size", "host_volumes",
                                            "privileged",    "efa",        "ulimits"};
    for (size_t i = 0; i < sizeof needs_ec2 / sizeof *needs_ec2; i++) {
        const stk_json *value = stk_batch_option(&ask->options, needs_ec2[i]);
        if (value != NULL && !stk_json_is_false(value)) {
            return stk_err_set(err, STK_E_SPEC,
                               "Fargate doesn't support '%s'; use a queue of EC2 instances",
                               needs_ec2[i]);
        }
    }
    if (ask->gpus > 0 || ask->neurons > 0 || ask->job->nodes > 1) {
        return stk_err_set(err, STK_E_SPEC,
                           "Fargate doesn't support %s; use a queue of EC2 instances",
                           ask->job->nodes > 1 ? "multi-node jobs" : "accelerators");
    }
    if (stk_batch_text(&ask->options, "execution_role") == NULL) {
        return stk_err_set(err, STK_E_SPEC,
                           "Fargate needs execution_role, the role that pulls the image and writes "
                           "the log; set it or METAFLOW_ECS_FARGATE_EXECUTION_ROLE");
    }
    return 0;
}

/* Reads the options that name a kind of device; *ret_kind NULL: none does. */
static int read_kind(const stk_batch_ask *ask, const char **ret_kind, int64_t *ret_n, stk_err *err)
{
    int64_t inferentia = stk_batch_whole(&ask->options, "inferentia");
    int64_t trainium = stk_batch_whole(&ask->options, "trainium");
    int64_t gpus = stk_batch_whole(&ask->options, "gpu");
    if (inferentia > 0 && trainium > 0) {
        return stk_err_set(
            err, STK_E_SPEC,
            "trainium and inferentia are two names of one option; set only one of them");
    }
    *ret_kind = gpus > 0 ? "gpu" : NULL;
    *ret_n = MAX(MAX(inferentia, trainium), 0);
    if (*ret_n > 0) {
        *ret_kind = trainium > 0 ? "trainium" : "inferentia";
    }
    if (*ret_n > 0 && gpus > 0) {
        return stk_err_set(err, STK_E_SPEC,
                           "no instance has both GPUs and Neuron devices (gpu %lld, %s "
                           "%lld); ask for one kind",
                           (long long)gpus, *ret_kind, (long long)*ret_n);
    }
    *ret_n = MAX(*ret_n, gpus);
    return 0;
}

/* Checks that Batch has the devices of one alternative. */
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
        return stk_err_set(
            err, STK_E_SPEC,
            "gpu_class '%s' means devices of %s, but gpu_vendor is %s; remove one of them",
            want->gpu_class, by_class, vendor);
    }
    if (of_kind != NULL && vendor != NULL && strcmp(of_kind, vendor) != 0) {
        return stk_err_set(
            err, STK_E_SPEC,
            "option %s means devices of %s, but the step asks for those of %s; ask for one kind",
            kind, of_kind, vendor);
    }
    if (vendor == NULL) {
        vendor = stk_text_or(of_kind, "nvidia");
    }
    if (strcmp(vendor, "nvidia") != 0 && strcmp(vendor, "aws") != 0) {
        char what[300];
        (void)snprintf(what, sizeof what, "gpu_vendor is '%s'", vendor);
        if (by_class != NULL) {
            (void)snprintf(what, sizeof what, "gpu_class '%s' means devices of %s", want->gpu_class,
                           by_class);
        }
        return stk_err_set(err, STK_E_SPEC,
                           "%s, but AWS Batch has only NVIDIA GPUs and Neuron devices (gpu_vendor "
                           "aws); use Kubernetes for others",
                           what);
    }
    if (want->gpu_memory_bytes != -1) {
        return stk_err_set(err, STK_E_SPEC,
                           "gpu_memory asks for a share of a GPU, but AWS Batch gives only whole "
                           "GPUs; use gpu_count alone");
    }
    if (stk_spec_is_slice(want->gpu_class)) {
        return stk_err_set(err, STK_E_SPEC,
                           "gpu_class '%s' asks for a slice, but AWS Batch gives only whole GPUs; "
                           "name a model, or leave the class out",
                           want->gpu_class);
    }
    *ret_vendor = vendor;
    return 0;
}

/* Takes the first alternative and those that differ from it only in the class, because the queue
 * decides which class an instance has. */
static int read_wanted_devices(stk_batch_ask *ask, stk_err *err)
{
    const stk_resources *asked = ask->job->resources;
    stk_alternative wants[STK_LIMIT_ASKS];
    uint32_t n = stk_spec_alternatives(asked, wants), n_classes = 0;
    const char *vendor = NULL, *first = NULL;
    int64_t of_options = 0;
    STK_TRY(read_kind(ask, &ask->kind, &of_options, err));
    if (stk_spec_asks_none(asked) || (n == 0 && of_options == 0)) {
        ask->kind = NULL;
        return 0;
    }
    if (n == 0) {
        wants[n++] = (stk_alternative){.gpu_count = of_options, .gpu_memory_bytes = -1};
    }
    STK_TRY(check_want(&wants[0], ask->kind, &first, err));
    bool any_model = false;
    for (uint32_t i = 0; i < n; i++) {
        if (check_want(&wants[i], ask->kind, &vendor, NULL) == 0 && strcmp(vendor, first) == 0 &&
            wants[i].gpu_count == wants[0].gpu_count) {
            any_model = any_model || wants[i].gpu_class == NULL;
            ask->classes[n_classes++] = wants[i].gpu_class;
        }
    }
    if (any_model) {
        ask->classes[0] = NULL;
    }
    int64_t count = MAX(wants[0].gpu_count, of_options);
    if (strcmp(first, "aws") == 0) {
        ask->neurons = count;
    } else {
        ask->gpus = count;
    }
    if (ask->neurons > 0 && !stk_batch_is_made(ask)) {
        return stk_err_set(err, STK_E_SPEC,
                           "no known EC2 instance has gpu_class '%s'%s%s; use Trainium, Trainium2, "
                           "Inferentia or Inferentia2",
                           stk_text_or(ask->classes[0], ""),
                           stk_text_when(ask->kind != NULL, " and option "),
                           stk_text_or(ask->kind, ""));
    }
    return 0;
}

static int read_sizes(stk_batch_ask *ask, stk_err *err)
{
    const stk_resources *asked = ask->job->resources;
    double cpu = stk_batch_number(&ask->options, "cpu");
    int64_t memory = (asked->memory_bytes + MIB - 1) / MIB; /* 0: unset */
    ask->cpu_milli = MAX(asked->cpu_milli, (int64_t)ceil(cpu * 1000));
    ask->memory_mib = MAX(memory, stk_batch_whole(&ask->options, "memory"));
    if (ask->cpu_milli <= 0) {
        ask->cpu_milli = 1000;
    }
    if (ask->memory_mib <= 0) {
        ask->memory_mib = DEFAULT_MEMORY_MIB;
    }
    ask->efa = MAX(stk_batch_whole(&ask->options, "efa"), 0);
    STK_TRY(read_wanted_devices(ask, err));
    if (ask->platform == STK_BATCH_FARGATE) {
        STK_TRY(refuse_fargate(ask, err));
        return fit_fargate(ask, err);
    }
    ask->cpu_milli = (ask->cpu_milli + 999) / 1000 * 1000; /* instances have whole CPUs only */
    if (stk_batch_option(&ask->options, "ephemeral_storage") != NULL) {
        return stk_err_set(err, STK_E_SPEC,
                           "ephemeral_storage is only for Fargate; on EC2 the launch template of "
                           "the compute environment sets the size of the disk");
    }
    return 0;
}

static int read_platform(stk_batch_ask *ask, stk_err *err)
{
    const char *word = stk_batch_text(&ask->options, "platform");
    ask->platform = ask->facts.platform;
    if (word == NULL) {
        return 0;
    }
    ask->platform = STK_BATCH_EC2;
    if (strcasecmp(word, "fargate") == 0) {
        ask->platform = STK_BATCH_FARGATE;
    } else if (strcasecmp(word, "ec2") != 0) {
        return stk_err_set(err, STK_E_SPEC, "platform is '%s'; it must be ec2 or fargate", word);
    }
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
        return stk_err_set(err, STK_E_SPEC,
                           "stack '%s': carry 'image' is only for Kubernetes; on AWS Batch it must "
                           "be 'store' or 'volume'",
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

/* Leaves out our own AWS keys, because jobs have a role (their own, or their instance's), unless
 * the store isn't AWS's and the stack names no role. */
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
    STK_TRY(stk_err_if_null(list, err));
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
        return stk_err_set(err, STK_E_SPEC,
                           "its store isn't AWS's own S3, so its job needs %.*s; set iam_role to a "
                           "role with access to the store, or set secret_prefix: ssm:/PATH, where "
                           "Stoker puts the keys for the run",
                           n, secret);
    }
    return stk_err_set(err, STK_E_SPEC,
                       "secret '%.*s' can't be passed to AWS Batch, which shows every job's "
                       "environment; set secret_prefix: ssm:/PATH, where Stoker puts it for the "
                       "run, or give its ARN by secrets: {%.*s: ARN}",
                       n, secret, n, secret);
}

int stk_batch_ask_read(const stk_driver_config *config, const stk_remote_job *job,
                       const stk_batch_facts *facts, stk_arena *arena, stk_batch_ask *ret,
                       stk_err *err)
{
    static const stk_batch_facts none = {0};
    if (facts == NULL) {
        facts = &none;
    }
    *ret = (stk_batch_ask){.config = config, .job = job, .facts = *facts};
    STK_TRY(stk_batch_options_read(job->step, job->options, config->options, arena, &ret->options,
                                   err));
    STK_TRY(read_platform(ret, err));
    STK_TRY(check_ranges(ret, err));
    STK_TRY(read_sizes(ret, err));
    STK_TRY(sort_secrets(ret, arena, err));
    STK_TRY(check_secrets(ret, err));
    ret->queue = stk_batch_text(&ret->options, "queue");
    if (ret->queue == NULL || *ret->queue == 0) {
        return stk_err_set(err, STK_E_SPEC,
                           "no job queue of AWS Batch is named; set queue in @batch(…) or in the "
                           "stack's options, or METAFLOW_BATCH_JOB_QUEUE");
    }
    return 0;
}
