/* Reads queues and compute environments, and checks whether they could ever hold a job. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/param.h>

#include "away/batch/batch_private.h"
#include "base/text.h"

static const struct family {
    const char *family, *vendor, *model;
} accelerated[] = {
#define X(family, vendor, model, sizes) {family, vendor, model},
#include "tbl/ec2_instances.def"
#undef X
};

/* The texts of a list, or of a member of its items; NULL: out of memory. */
static const char *const *read_texts(const stk_json *list, const char *key, stk_arena *arena,
                                     uint32_t *ret_n)
{
    const char **texts = stk_arena_array(arena, (size_t)stk_json_n_items(list) + 1, sizeof *texts);
    for (uint32_t i = 0; texts != NULL && i < stk_json_n_items(list); i++) {
        const stk_json *item = &list->items[i];
        const char *text = stk_json_text(key != NULL ? stk_json_get(item, key) : item);
        if (stk_text_if_any(text) != NULL) {
            texts[(*ret_n)++] = text;
        }
    }
    return texts;
}

int stk_batch_queue_read(const stk_json *answer, stk_arena *arena, stk_batch_queue *ret)
{
    const stk_json *queue = stk_json_item(stk_json_get(answer, "jobQueues"), 0);
    *ret = (stk_batch_queue){0};
    if (queue == NULL) {
        return 0;
    }
    ret->name = stk_batch_member(queue, "jobQueueName");
    ret->enabled = stk_json_is(stk_json_get(queue, "state"), "ENABLED");
    ret->valid = stk_json_is(stk_json_get(queue, "status"), "VALID");
    ret->reason = stk_batch_member(queue, "statusReason");
    ret->environments = read_texts(stk_json_get(queue, "computeEnvironmentOrder"),
                                   "computeEnvironment", arena, &ret->n_environments);
    ret->found = ret->environments != NULL;
    return stk_err_if_null(ret->environments, NULL);
}

static int read_environment(const stk_json *one, stk_arena *arena, stk_batch_environment *ret)
{
    const stk_json *has = stk_json_get(one, "computeResources");
    *ret = (stk_batch_environment){.name = stk_batch_member(one, "computeEnvironmentName"),
                                   .state = stk_batch_member(one, "state"),
                                   .status = stk_batch_member(one, "status"),
                                   .reason = stk_batch_member(one, "statusReason"),
                                   .max_vcpus = -1};
    ret->type = stk_batch_member(has, "type");
    (void)stk_json_int(stk_json_get(has, "maxvCpus"), &ret->max_vcpus);
    ret->instances = read_texts(stk_json_get(has, "instanceTypes"), NULL, arena, &ret->n_instances);
    return stk_err_if_null(ret->instances, NULL);
}

int stk_batch_environments_read(const stk_json *answer, stk_arena *arena,
                                stk_batch_environment **ret, uint32_t *ret_n)
{
    const stk_json *list = stk_json_get(answer, "computeEnvironments");
    uint32_t n = stk_json_n_items(list);
    *ret_n = 0;
    *ret = stk_arena_array(arena, n + 1, sizeof **ret);
    for (uint32_t i = 0; *ret != NULL && i < n; i++) {
        if (read_environment(&list->items[i], arena, &(*ret)[(*ret_n)++]) < 0) {
            return STK_E_NOMEM;
        }
    }
    return stk_err_if_null(*ret, NULL);
}

/* The devices of an instance type or family; NULL: none that we know. */
static const struct family *find_family(const char *instance)
{
    size_t n = strcspn(instance, ".");
    for (size_t i = 0; i < sizeof accelerated / sizeof *accelerated; i++) {
        const char *family = accelerated[i].family;
        if (strlen(family) == n && strncmp(family, instance, n) == 0) {
            return &accelerated[i];
        }
    }
    return NULL;
}

bool stk_batch_is_good(const stk_batch_environment *e)
{
    return strcmp(stk_text_or(e->state, "ENABLED"), "ENABLED") == 0 &&
           strcmp(stk_text_or(e->status, ""), "INVALID") != 0;
}

bool stk_batch_is_fargate(const stk_batch_environment *environment)
{
    return environment->type != NULL && strncmp(environment->type, "FARGATE", 7) == 0;
}

/* True if the job accepts the family's model; `trainium` accepts every generation. */
static bool is_wanted(const stk_batch_ask *ask, const struct family *family)
{
    static const struct {
        const char *vendor, *shown, *noun;
    } makers[] = {{"nvidia", "NVIDIA", "GPU"}, {"aws", "AWS", "Neuron device"}};
    char whole[64];
    bool is_neuron = ask->neurons > 0;
    const char *kind = stk_text_or(ask->kind, "");
    (void)snprintf(whole, sizeof whole, "%s %s", makers[is_neuron].shown, family->model);
    const stk_spec_device d = {.vendor = family->vendor,
                               .noun = makers[is_neuron].noun,
                               .model = whole,
                               .memory_bytes = -1};
    bool is_kind = !is_neuron || strncasecmp(family->model, kind, strlen(kind)) == 0;
    bool fits = ask->classes[0] == NULL;
    for (size_t i = 0; ask->classes[i] != NULL && !fits; i++) {
        fits = stk_spec_device_fits(ask->classes[i], NULL, &d) ||
               strcasecmp(ask->classes[i], kind) == 0;
    }
    return strcmp(family->vendor, makers[is_neuron].vendor) == 0 && is_kind && fits;
}

bool stk_batch_is_made(const stk_batch_ask *ask)
{
    bool is_made = false;
    for (size_t i = 0; i < sizeof accelerated / sizeof *accelerated; i++) {
        is_made = is_made || is_wanted(ask, &accelerated[i]);
    }
    return is_made;
}

/* Families that Batch picks itself have no accelerators ("optimal", "default_x86_64"). */
static bool has_devices(const stk_batch_environment *environment, const stk_batch_ask *ask)
{
    if (environment->type == NULL) {
        return true; /* unmanaged: its owner knows what it has */
    }
    for (uint32_t i = 0; i < environment->n_instances; i++) {
        const struct family *family = find_family(environment->instances[i]);
        if (family != NULL && is_wanted(ask, family)) {
            return true;
        }
    }
    return false;
}

/* Returns why this environment can't hold the job, or NULL. */
static const char *cannot(const stk_batch_environment *environment, const stk_batch_ask *ask)
{
    int64_t vcpus = ask->cpu_milli / 1000 * MAX(ask->job->nodes, 1);
    if (environment->state != NULL && strcmp(environment->state, "ENABLED") != 0) {
        return "is disabled";
    }
    if (environment->status != NULL && strcmp(environment->status, "INVALID") == 0) {
        return "is invalid";
    }
    if (stk_batch_is_fargate(environment) != (ask->platform == STK_BATCH_FARGATE)) {
        return stk_batch_is_fargate(environment) ? "is Fargate" : "has EC2 instances, not Fargate";
    }
    if (environment->max_vcpus >= 0 && vcpus > environment->max_vcpus) {
        return "has a smaller maximum of vCPUs";
    }
    if ((ask->gpus > 0 || ask->neurons > 0) && !has_devices(environment, ask)) {
        static const char *const lacks[2][2] = {
            {"has no instances with Neuron devices", "has no instances with NVIDIA GPUs"},
            {"has no instances with that model", "has no instances with that model of GPU"}};
        return lacks[ask->classes[0] != NULL][ask->gpus > 0];
    }
    return NULL;
}

bool stk_batch_can_hold(const stk_batch_environment *environments, uint32_t n,
                        const stk_batch_ask *ask, char *text, size_t size)
{
    STK_BUF_AUTO why = STK_BUF_INIT(1024);
    for (uint32_t i = 0; i < n; i++) {
        const char *no = cannot(&environments[i], ask);
        if (no == NULL) {
            return true;
        }
        const stk_batch_environment *e = &environments[i];
        (void)stk_buf_separate(&why, ", ");
        (void)stk_buf_printf(&why, "'%s' %s", e->name, no);
        if (strstr(no, "maximum") != NULL) {
            (void)stk_buf_printf(&why, " (%lld)", (long long)e->max_vcpus);
        } else if (strstr(no, "is invalid") != NULL && e->reason != NULL) {
            (void)stk_buf_printf(&why, " (%s)", e->reason);
        }
    }
    if (n == 0) {
        return true; /* unknown */
    }
    STK_BUF_AUTO devices = STK_BUF_INIT(1024);
    if (ask->gpus > 0) {
        (void)stk_buf_printf(&devices, ", %lld GPUs", (long long)ask->gpus);
    } else if (ask->neurons > 0) {
        (void)stk_buf_printf(&devices, ", %lld Neuron devices", (long long)ask->neurons);
    }
    if (ask->classes[0] != NULL) {
        (void)stk_buf_printf(&devices, " of model %s", ask->classes[0]);
    }
    (void)snprintf(text, size, "queue '%s' can't hold it (%.15g vCPUs%s): %s; name another queue",
                   ask->queue, (double)ask->cpu_milli / 1000, stk_text_or(devices.data, ""),
                   stk_text_or(why.data, ""));
    return false;
}

void stk_batch_environment_describe(const stk_batch_environment *e, char *text, size_t size)
{
    STK_BUF_AUTO held = STK_BUF_INIT(512);
    STK_BUF_AUTO reason = STK_BUF_INIT(1024);
    for (uint32_t i = 0; i < e->n_instances; i++) {
        const struct family *family = find_family(e->instances[i]);
        (void)stk_buf_printf(&held, "%s%s", i > 0 ? ", " : ": ", e->instances[i]);
        if (family != NULL) {
            (void)stk_buf_printf(&held, " (%s)", family->model);
        }
    }
    char vcpus[48] = "";
    if (e->max_vcpus >= 0) {
        (void)snprintf(vcpus, sizeof vcpus, ", at most %lld vCPUs", (long long)e->max_vcpus);
    }
    if (e->reason != NULL) {
        (void)stk_buf_printf(&reason, "; %s", e->reason);
    }
    (void)snprintf(text, size, "compute environment '%s': %s, %s, %s%s%s%s", e->name,
                   stk_text_or(e->state, "state unknown"), stk_text_or(e->status, "status unknown"),
                   stk_text_or(e->type, "unmanaged"), vcpus, stk_text_or(held.data, ""),
                   stk_text_or(reason.data, ""));
}
