/* Queues and compute environments: what they are, what they can ever hold. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/param.h>

#include "away/batch/batch_private.h"
#include "base/text.h"

static const struct {
    const char *family, *vendor, *model;
} accelerated[] = {
#define X(family, vendor, model, sizes) {family, vendor, model},
#include "tbl/ec2_instances.def"
#undef X
};

static const char *member(const stk_json *map, const char *key)
{
    return stk_text_if_any(stk_json_get_text(map, key));
}

int stk_batch_queue_read(const stk_json *answer, stk_arena *arena, stk_batch_queue *ret)
{
    const stk_json *list = stk_json_get(answer, "jobQueues");
    *ret = (stk_batch_queue){0};
    if (list == NULL || list->kind != STK_JSON_LIST || list->n == 0) {
        return 0;
    }
    const stk_json *queue = &list->items[0];
    const stk_json *order = stk_json_get(queue, "computeEnvironmentOrder");
    uint32_t n = stk_json_n_items(order);
    const char **names = stk_arena_array(arena, n + 1, sizeof *names);
    if (names == NULL) {
        return STK_E_NOMEM;
    }
    ret->found = true;
    ret->name = member(queue, "jobQueueName");
    ret->arn = member(queue, "jobQueueArn");
    ret->enabled = stk_json_is(stk_json_get(queue, "state"), "ENABLED");
    ret->valid = stk_json_is(stk_json_get(queue, "status"), "VALID");
    ret->reason = member(queue, "statusReason");
    ret->fair_share = member(queue, "schedulingPolicyArn") != NULL;
    for (uint32_t i = 0; i < n; i++) {
        const char *name = member(&order->items[i], "computeEnvironment");
        if (name != NULL) {
            names[ret->n_environments++] = name;
        }
    }
    ret->environments = names;
    return 0;
}

static int read_one(const stk_json *one, stk_arena *arena, stk_batch_environment *ret)
{
    const stk_json *has = stk_json_get(one, "computeResources");
    *ret = (stk_batch_environment){.name = member(one, "computeEnvironmentName"),
                                   .arn = member(one, "computeEnvironmentArn"),
                                   .state = member(one, "state"),
                                   .status = member(one, "status"),
                                   .reason = member(one, "statusReason"),
                                   .max_vcpus = -1};
    if (has == NULL || has->kind != STK_JSON_MAP) {
        return 0;
    }
    ret->type = member(has, "type");
    if (stk_json_get(has, "maxvCpus") != NULL) {
        (void)stk_json_int(stk_json_get(has, "maxvCpus"), &ret->max_vcpus);
    }
    const stk_json *types = stk_json_get(has, "instanceTypes");
    uint32_t n = stk_json_n_items(types);
    const char **names = stk_arena_array(arena, n + 1, sizeof *names);
    if (names == NULL) {
        return STK_E_NOMEM;
    }
    for (uint32_t i = 0; i < n; i++) {
        const char *name = stk_json_text(&types->items[i]);
        if (name != NULL) {
            names[ret->n_instances++] = name;
        }
    }
    ret->instances = names;
    return 0;
}

int stk_batch_environments_read(const stk_json *answer, stk_arena *arena,
                                stk_batch_environment **ret, uint32_t *ret_n)
{
    const stk_json *list = stk_json_get(answer, "computeEnvironments");
    uint32_t n = stk_json_n_items(list);
    *ret_n = 0;
    *ret = stk_arena_array(arena, n + 1, sizeof **ret);
    for (uint32_t i = 0; *ret != NULL && i < n; i++) {
        if (read_one(&list->items[i], arena, &(*ret)[(*ret_n)++]) < 0) {
            return STK_E_NOMEM;
        }
    }
    return *ret != NULL ? 0 : STK_E_NOMEM;
}

/* What instances of this type, or family, have; NULL vendor: no accelerator that we know. */
static size_t find_family(const char *instance)
{
    size_t n = strcspn(instance, ".");
    size_t i = 0;
    while (
        i < sizeof accelerated / sizeof *accelerated &&
        !(strlen(accelerated[i].family) == n && strncmp(accelerated[i].family, instance, n) == 0)) {
        i++;
    }
    return i;
}

static bool is_fargate(const stk_batch_environment *environment)
{
    return environment->type != NULL && strncmp(environment->type, "FARGATE", 7) == 0;
}

/* Is a family's model one that is wanted? `trainium` of any generation is one. */
static bool is_wanted(const stk_batch_ask *ask, const char *vendor, const char *model)
{
    char whole[64];
    bool is_neuron = ask->neurons > 0;
    (void)snprintf(whole, sizeof whole, "%s%s", is_neuron ? "AWS " : "NVIDIA ", model);
    const stk_spec_device d = {.vendor = vendor,
                               .noun = is_neuron ? "Neuron device" : "GPU",
                               .model = whole,
                               .memory_bytes = -1};
    bool is_kind =
        !is_neuron || ask->kind == NULL || strncasecmp(model, ask->kind, strlen(ask->kind)) == 0;
    bool fits = ask->classes[0] == NULL;
    for (size_t i = 0; ask->classes[i] != NULL && !fits; i++) {
        fits = stk_spec_device_fits(ask->classes[i], NULL, &d) ||
               (ask->kind != NULL && strcasecmp(ask->classes[i], ask->kind) == 0);
    }
    return strcmp(vendor, is_neuron ? "aws" : "nvidia") == 0 && is_kind && fits;
}

bool stk_batch_is_made(const stk_batch_ask *ask)
{
    bool is_made = false;
    for (size_t i = 0; i < sizeof accelerated / sizeof *accelerated; i++) {
        is_made = is_made || is_wanted(ask, accelerated[i].vendor, accelerated[i].model);
    }
    return is_made;
}

/* Families that Batch picks itself have no accelerators ("optimal", "default_x86_64"). */
static bool has_devices(const stk_batch_environment *environment, const stk_batch_ask *ask)
{
    if (environment->type == NULL) {
        return true; /* unmanaged: whatever its owner put there */
    }
    for (uint32_t i = 0; i < environment->n_instances; i++) {
        size_t at = find_family(environment->instances[i]);
        if (at < sizeof accelerated / sizeof *accelerated &&
            is_wanted(ask, accelerated[at].vendor, accelerated[at].model)) {
            return true;
        }
    }
    return false;
}

/* NULL: this one may hold it. */
static const char *cannot(const stk_batch_environment *environment, const stk_batch_ask *ask)
{
    int64_t vcpus = ask->cpu_milli / 1000 * MAX(ask->job->nodes, 1);
    if (environment->state != NULL && strcmp(environment->state, "ENABLED") != 0) {
        return "is disabled";
    }
    if (environment->status != NULL && strcmp(environment->status, "INVALID") == 0) {
        return "is invalid";
    }
    if (is_fargate(environment) != (ask->platform == STK_BATCH_FARGATE)) {
        return is_fargate(environment) ? "is Fargate" : "has EC2 instances, not Fargate";
    }
    if (environment->max_vcpus >= 0 && vcpus > environment->max_vcpus) {
        return "has a smaller maximum of vCPUs";
    }
    if ((ask->gpus > 0 || ask->neurons > 0) && !has_devices(environment, ask)) {
        bool is_gpu = ask->gpus > 0;
        if (ask->classes[0] != NULL) {
            if (is_gpu) {
                return "has no instances with that model of GPU";
            }
            return "has no instances with that model";
        }
        if (is_gpu) {
            return "has no instances with NVIDIA GPUs";
        }
        return "has no instances with Neuron devices";
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
        (void)stk_buf_printf(&why, "%s'%s' %s", i > 0 ? ", " : "", e->name, no);
        if (strstr(no, "maximum") != NULL) {
            (void)stk_buf_printf(&why, " (%lld)", (long long)e->max_vcpus);
        } else if (strstr(no, "is invalid") != NULL && e->reason != NULL) {
            (void)stk_buf_printf(&why, " (%s)", e->reason);
        }
    }
    if (n == 0) {
        return true; /* we weren't told */
    }
    const char *what = ask->gpus > 0 ? "GPUs" : "Neuron devices";
    int64_t devices = ask->gpus > 0 ? ask->gpus : ask->neurons;
    (void)snprintf(text, size,
                   "queue '%s' can't hold it (%.15g vCPUs%s%.0lld%s%s%s%s): %s; name another queue",
                   ask->queue, (double)ask->cpu_milli / 1000, devices > 0 ? ", " : "",
                   (long long)devices, devices > 0 ? " " : "", devices > 0 ? what : "",
                   ask->classes[0] != NULL ? " of model " : "", stk_text_or(ask->classes[0], ""),
                   stk_text_or(why.data, ""));
    return false;
}

void stk_batch_environment_describe(const stk_batch_environment *e, char *text, size_t size)
{
    STK_BUF_AUTO held = STK_BUF_INIT(512);
    for (uint32_t i = 0; i < e->n_instances; i++) {
        size_t at = find_family(e->instances[i]);
        (void)stk_buf_printf(&held, "%s%s", i > 0 ? ", " : ": ", e->instances[i]);
        if (at < sizeof accelerated / sizeof *accelerated) {
            (void)stk_buf_printf(&held, " (%s)", accelerated[at].model);
        }
    }
    char vcpus[48] = "";
    if (e->max_vcpus >= 0) {
        (void)snprintf(vcpus, sizeof vcpus, ", at most %lld vCPUs", (long long)e->max_vcpus);
    }
    (void)snprintf(text, size, "compute environment '%s': %s, %s, %s%s%s%s%s", e->name,
                   stk_text_or(e->state, "state unknown"), stk_text_or(e->status, "status unknown"),
                   stk_text_or(e->type, "unmanaged"), vcpus, stk_text_or(held.data, ""),
                   e->reason != NULL ? "; " : "", stk_text_or(e->reason, ""));
}
