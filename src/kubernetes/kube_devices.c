/* kube_devices: what a step asks for, as resources, selectors and tolerations of a pod. Devices are
 * whole numbers with requests = limits; nothing is asked for by a 0. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kubernetes/kube.h"

/* X: vendor, its resource, the label of its models (NULL: differs from cluster to cluster). */
static const struct {
    const char *vendor, *resource, *label;
} vendors[] = {
    {"nvidia", "nvidia.com/gpu", "nvidia.com/gpu.product"},
    {"amd", "amd.com/gpu", NULL},
    {"intel", "gpu.intel.com/i915", NULL},
    {"aws", "aws.amazon.com/neuron", NULL},
    {"google", "google.com/tpu", NULL},
};

/* What machines of Google are called, and how many chips one of their hosts has. */
static const struct {
    const char *word, *accelerator;
    int64_t largest_alone; /* chips of the largest slice that is one host */
} tpus[] = {
    {"v4", "tpu-v4-podslice", 4},
    {"v5e", "tpu-v5-lite-podslice", 8},
    {"v5litepod", "tpu-v5-lite-podslice", 8},
    {"v5p", "tpu-v5p-slice", 4},
    {"v6e", "tpu-v6e-slice", 8},
};
enum { CHIPS_OF_A_HOST = 4 }; /* of a slice of several hosts */

/* What the agent can count in the container. Of a resource that is a part of a device, or may be
 * one that several have, nobody knows how many devices it is: at least one. */
static const struct {
    const char *begins, *vendor;
    bool is_whole;
} counted[] = {
    {"nvidia.com/gpu\n", "nvidia", true},
    {"nvidia.com/gpu.shared\n", "nvidia", false},
    {"nvidia.com/mig-", "nvidia", false},
    {"amd.com/gpu\n", "amd", true},
    {"amd.com/", "amd", false},
    {"gpu.intel.com/i915\n", "intel", true},
    {"gpu.intel.com/xe\n", "intel", true},
    {"aws.amazon.com/neuron\n", "aws", true},
    {"aws.amazon.com/neurondevice\n", "aws", true},
    {"aws.amazon.com/neuroncore\n", "aws", false},
    {"google.com/tpu\n", "google", true},
};

typedef struct ask {
    const char *resource; /* NULL: none */
    int64_t n;
    const char *label; /* selector, or NULL */
    const char *values[STK_LIMIT_ASKS];
    uint32_t n_values;
} ask;

static int refuse(const stk_kube_maker *m, const char *what, const char *instead)
{
    return stk_err_set(m->err, STK_E_SPEC, "step '%s': %s; %s", m->job->step, what, instead);
}

static bool is_mig(const char *name)
{
    int slices = 0, memory = 0, n = 0;
    return sscanf(name, "%dg.%dgb%n", &slices, &memory, &n) == 2 && name[n] == '\0';
}

/* A class that is a resource of its own: a slice, a partition, a driver. */
static const char *resource_of_class(const stk_kube_maker *m, const char *vendor, const char *name)
{
    const char *slice = strncmp(name, "mig-", 4) == 0 ? name + 4 : name;
    if (strcmp(vendor, "nvidia") == 0 && is_mig(slice)) {
        return stk_arena_printf(m->arena, "nvidia.com/mig-%s", slice);
    }
    if (strcmp(vendor, "amd") == 0 && strstr(name, "_nps") != NULL) {
        return stk_arena_printf(m->arena, "amd.com/%s", name);
    }
    if (strcmp(vendor, "intel") == 0 && (strcmp(name, "xe") == 0 || strcmp(name, "i915") == 0)) {
        return stk_arena_printf(m->arena, "gpu.intel.com/%s", name);
    }
    return NULL;
}

static int read_class(stk_kube_maker *m, const char *vendor, const char *name, const char *label,
                      ask *a)
{
    const char *own = stk_kube_text(m->options, "gpu_type_label");
    const char *resource = resource_of_class(m, vendor, name);
    if (resource != NULL) {
        a->resource = resource;
        return 0;
    }
    if (strcmp(name, "mig") == 0) {
        return refuse(m, "gpu_class 'mig' names no profile", "say one, like 1g.10gb");
    }
    a->label = own != NULL ? own : label;
    if (a->label == NULL) {
        return refuse(m,
                      stk_arena_printf(m->arena,
                                       "no label is known that tells models of %s apart "
                                       "(gpu_class '%s')",
                                       vendor, name),
                      "say the label of your nodes in the option gpu_type_label");
    }
    a->values[a->n_values++] = name;
    return 0;
}

/* Alternatives become one Job where they differ only in the model. */
static int read_alternatives(stk_kube_maker *m, const char **vendor, int64_t *n,
                             const char *classes[], uint32_t *n_classes)
{
    const stk_resources *r = m->job->resources;
    for (uint32_t i = 0; r != NULL && i < r->n_any_of; i++) {
        const stk_alternative *a = &r->any_of[i];
        int64_t count = a->gpu_count >= 0 ? a->gpu_count : *n;
        const char *of = a->gpu_vendor != NULL ? a->gpu_vendor : *vendor;
        bool same = i == 0 || (count == *n && (of == *vendor || (of != NULL && *vendor != NULL &&
                                                                 strcmp(of, *vendor) == 0)));
        if (!same || (a->gpu_class == NULL) != (r->any_of[0].gpu_class == NULL)) {
            return refuse(m, "any_of with different vendors or counts can't be one Job",
                          "keep alternatives that differ in gpu_class only");
        }
        *n = count;
        *vendor = of;
        if (a->gpu_class != NULL) {
            classes[(*n_classes)++] = a->gpu_class;
        }
    }
    return 0;
}

static const char *counted_vendor(const char *resource, bool *ret_is_whole)
{
    char line[300];
    (void)snprintf(line, sizeof line, "%s\n", resource);
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++) {
        if (strncmp(line, counted[i].begins, strlen(counted[i].begins)) == 0) {
            *ret_is_whole = counted[i].is_whole;
            return counted[i].vendor;
        }
    }
    return NULL;
}

/* Devices that the agent has no eyes for would be refused in the pod, or used unseen. */
static int refuse_uncounted(stk_kube_maker *m, const char *vendor, const char *resource, int64_t n)
{
    static const char *const known[][2] = {{"habana", "habana.ai/gaudi"},
                                           {"huawei", "huawei.com/Ascend910"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        resource = resource == NULL && strcmp(known[i][0], vendor) == 0 ? known[i][1] : resource;
    }
    if (resource == NULL) {
        return refuse(m, stk_arena_printf(m->arena, "gpu_vendor '%s' is not known", vendor),
                      "it can be nvidia, amd, intel, aws, google, or one of their resources, like "
                      "nvidia.com/gpu.shared");
    }
    return refuse(m,
                  stk_arena_printf(m->arena,
                                   "devices of %s can't be counted in their container, so whether "
                                   "the step got them would stay unknown",
                                   resource),
                  stk_arena_printf(m->arena,
                                   "say them as extended_resources: {%s: %lld}, which are asked of "
                                   "the cluster and left to the step",
                                   resource, (long long)n));
}

static int read_gpus(stk_kube_maker *m, ask *a)
{
    const stk_resources *r = m->job->resources;
    const char *vendor = stk_kube_text(m->options, "gpu_vendor");
    const char *class = stk_kube_text(m->options, "gpu_type");
    const char *classes[STK_LIMIT_ASKS];
    uint32_t n_classes = 0;
    int64_t said = stk_kube_whole(m->options, "gpu");
    const char *resource = stk_kube_text(m->options, "gpu_resource");
    int64_t n = r == NULL ? -1 : r->gpu_count;
    vendor = vendor == NULL && r != NULL ? r->gpu_vendor : vendor;
    class = class == NULL && r != NULL ? r->gpu_class : class;
    int rc = read_alternatives(m, &vendor, &n, classes, &n_classes);
    n = said > n ? said : n;
    if (rc < 0 || n == 0 || (n < 0 && class == NULL && n_classes == 0)) {
        return rc;
    }
    a->n = n < 0 ? 1 : n;
    if (r != NULL && r->gpu_memory_bytes >= 0 && resource == NULL) {
        return refuse(m, "a share of a GPU (gpu_memory) can't be asked of Kubernetes",
                      "say a MIG profile as gpu_class, or gpu_resource: nvidia.com/gpu.shared");
    }
    const char *label = NULL;
    vendor = vendor == NULL ? "nvidia" : vendor;
    a->resource = strchr(vendor, '/') != NULL ? vendor : NULL;
    for (size_t i = 0; i < sizeof vendors / sizeof *vendors; i++) {
        if (strcmp(vendors[i].vendor, vendor) == 0) {
            a->resource = vendors[i].resource;
            label = vendors[i].label;
        }
    }
    bool is_whole = false;
    const char *asked = resource != NULL ? resource : a->resource;
    if (asked == NULL || counted_vendor(asked, &is_whole) == NULL) {
        return refuse_uncounted(m, vendor, asked, a->n);
    }
    if (n_classes == 0 && class != NULL) {
        classes[n_classes++] = class;
    }
    for (uint32_t i = 0; i < n_classes && rc == 0; i++) {
        rc = read_class(m, vendor, classes[i], label, a);
    }
    a->resource = resource != NULL ? resource : a->resource;
    return rc;
}

/* --- TPUs --- */

static int64_t chips_of(const char *topology)
{
    int64_t n = 1;
    const char *c = topology;
    for (;;) {
        char *end = NULL;
        long long side = strtoll(c, &end, 10);
        if (end == c || side < 1 || side > 1024) {
            return -1;
        }
        n *= side;
        if (*end == '\0') {
            return n;
        }
        if (*end != 'x') {
            return -1;
        }
        c = end + 1;
    }
}

static int put_tpu_hosts(stk_kube_maker *m, int64_t asked, int64_t largest_alone,
                         const char *topology, int64_t *ret_each)
{
    int64_t chips = chips_of(topology);
    if (chips < 0) {
        return refuse(m, stk_arena_printf(m->arena, "tpu_topology '%s' is no topology", topology),
                      "write it like 2x4 or 2x2x4");
    }
    int64_t each = asked > 0 && asked < chips ? asked
                   : chips <= largest_alone   ? chips
                                              : CHIPS_OF_A_HOST;
    if (asked > chips || chips % each != 0) {
        return refuse(m,
                      stk_arena_printf(m->arena,
                                       "tpu %lld doesn't go with topology %s of %lld chips",
                                       (long long)asked, topology, (long long)chips),
                      "say all its chips, or those of one host");
    }
    if (chips / each != m->job->nodes) {
        return refuse(m,
                      stk_arena_printf(m->arena,
                                       "topology %s is %lld hosts of %lld chips, and the "
                                       "step runs on %u",
                                       topology, (long long)(chips / each), (long long)each,
                                       m->job->nodes),
                      stk_arena_printf(m->arena,
                                       "make it a gang of %lld nodes (num_parallel), or "
                                       "take a smaller topology",
                                       (long long)(chips / each)));
    }
    *ret_each = each;
    return 0;
}

static int put_tpus(stk_kube_maker *m, int64_t asked, json_t *selector, ask *a)
{
    const char *accelerator = stk_kube_text(m->options, "tpu_accelerator");
    const char *topology = stk_kube_text(m->options, "tpu_topology");
    const char *spelt = NULL;
    int64_t largest_alone = CHIPS_OF_A_HOST;
    for (size_t i = 0; i < sizeof tpus / sizeof *tpus && accelerator != NULL; i++) {
        if (strcmp(accelerator, tpus[i].word) == 0 ||
            strcmp(accelerator, tpus[i].accelerator) == 0) {
            spelt = tpus[i].accelerator;
            largest_alone = tpus[i].largest_alone;
        }
    }
    if (accelerator != NULL && spelt == NULL && strncmp(accelerator, "tpu", 3) != 0) {
        return refuse(m,
                      stk_arena_printf(m->arena, "tpu_accelerator '%s' is not known", accelerator),
                      "say v4, v5e, v5p, v6e, or a value of cloud.google.com/gke-tpu-accelerator");
    }
    int64_t each = asked;
    int rc = topology == NULL ? 0 : put_tpu_hosts(m, asked, largest_alone, topology, &each);
    if (rc < 0) {
        return rc;
    }
    if (each <= 0) {
        return refuse(m, "tpu_accelerator needs the number of chips", "say tpu or tpu_topology");
    }
    if (accelerator != NULL) {
        stk_kube_set_text(m, selector, "cloud.google.com/gke-tpu-accelerator",
                          spelt == NULL ? accelerator : spelt);
    }
    stk_kube_set_text(m, selector, "cloud.google.com/gke-tpu-topology", topology);
    *a = (ask){.resource = "google.com/tpu", .n = each};
    return 0;
}

/* --- all --- */

static void put_amount(stk_kube_maker *m, json_t *resources, const char *name, const char *amount,
                       bool is_limit)
{
    stk_kube_set_text(m, stk_kube_child(m, resources, "requests"), name, amount);
    if (is_limit) {
        stk_kube_set_text(m, stk_kube_child(m, resources, "limits"), name, amount);
    }
}

static const char *bytes_words(const stk_kube_maker *m, int64_t bytes)
{
    return bytes % (1 << 20) == 0 ? stk_arena_printf(m->arena, "%lldMi", (long long)(bytes >> 20))
                                  : stk_arena_printf(m->arena, "%lld", (long long)bytes);
}

static int put_host(stk_kube_maker *m, json_t *resources)
{
    const stk_resources *r = m->job->resources;
    const char *qos = stk_kube_text(m->options, "qos");
    bool burst = qos != NULL && strcasecmp(qos, "burstable") == 0;
    double cpu = json_number_value(json_object_get(m->options, "cpu"));
    int64_t milli = (int64_t)(cpu * 1000 + 0.5);
    int64_t memory = stk_kube_bytes(m->options, "memory");
    int64_t disk = stk_kube_bytes(m->options, "disk");
    milli = r != NULL && r->cpu_milli > milli ? r->cpu_milli : milli;
    memory = r != NULL && r->memory_bytes > memory ? r->memory_bytes : memory;
    if (qos != NULL && !burst && strcasecmp(qos, "guaranteed") != 0) {
        return refuse(m, stk_arena_printf(m->arena, "qos '%s' is not known", qos),
                      "it can be Guaranteed or Burstable");
    }
    if (milli > 0) {
        put_amount(m, resources, "cpu",
                   milli % 1000 == 0 ? stk_arena_printf(m->arena, "%lld", (long long)(milli / 1000))
                                     : stk_arena_printf(m->arena, "%lldm", (long long)milli),
                   !burst);
    }
    if (memory > 0) {
        put_amount(m, resources, "memory", bytes_words(m, memory), true);
    }
    if (disk > 0) {
        put_amount(m, resources, "ephemeral-storage", bytes_words(m, disk), true);
    }
    return 0;
}

/* What GPU pools of many clusters keep others away with. */
static void tolerate(stk_kube_maker *m, json_t *spec, const char *resource)
{
    const char *key = strncmp(resource, "nvidia.com/", 11) == 0 ? "nvidia.com/gpu" : resource;
    json_t *list = stk_kube_list(m, spec, "tolerations");
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one)
    {
        const char *there = json_string_value(json_object_get(one, "key"));
        if (there != NULL && strcmp(there, key) == 0) {
            return;
        }
    }
    stk_kube_append(
        m, list,
        json_pack("{s:s, s:s, s:s}", "key", key, "operator", "Exists", "effect", "NoSchedule"));
}

static int put_ask(stk_kube_maker *m, json_t *spec, json_t *resources, const ask *a)
{
    put_amount(m, resources, a->resource, stk_arena_printf(m->arena, "%lld", (long long)a->n),
               true);
    tolerate(m, spec, a->resource);
    if (a->n_values == 1) {
        stk_kube_set_text(m, stk_kube_child(m, spec, "nodeSelector"), a->label, a->values[0]);
    } else if (a->n_values > 1) {
        json_t *values = json_array();
        for (uint32_t i = 0; i < a->n_values; i++) {
            stk_kube_append(m, values, json_string(a->values[i]));
        }
        json_t *need = stk_kube_child(
            m, stk_kube_child(m, stk_kube_child(m, spec, "affinity"), "nodeAffinity"),
            "requiredDuringSchedulingIgnoredDuringExecution");
        json_t *terms = stk_kube_list(m, need, "nodeSelectorTerms");
        json_t *match =
            json_pack("{s:s, s:s, s:o}", "key", a->label, "operator", "In", "values", values);
        if (json_array_size(terms) == 0) {
            stk_kube_append(m, terms, json_object());
        }
        size_t i;
        json_t *term;
        json_array_foreach(terms, i, term) /* terms are alternatives: each must have it */
        {
            stk_kube_append(m, stk_kube_list(m, term, "matchExpressions"), json_incref(match));
        }
        json_decref(match);
    }
    return 0;
}

int stk_kube_put_devices(stk_kube_maker *m, json_t *pod_spec, json_t *resources)
{
    ask gpus = {0}, neuron = {0}, tpu = {0};
    const json_t *o = m->options;
    int64_t trainium = stk_kube_whole(o, "trainium"), inferentia = stk_kube_whole(o, "inferentia");
    int64_t cores = stk_kube_whole(o, "neuroncores"), efa = stk_kube_whole(o, "efa");
    int64_t chips = stk_kube_whole(o, "tpu");
    int rc = put_host(m, resources);
    rc = rc < 0 ? rc : read_gpus(m, &gpus);
    if (rc < 0) {
        return rc;
    }
    if (gpus.resource != NULL && strcmp(gpus.resource, "google.com/tpu") == 0) {
        chips = gpus.n;
        gpus = (ask){0};
    }
    if (chips > 0 || stk_kube_text(o, "tpu_accelerator") != NULL ||
        stk_kube_text(o, "tpu_topology") != NULL) {
        rc = put_tpus(m, chips, stk_kube_child(m, pod_spec, "nodeSelector"), &tpu);
    }
    if ((trainium > 0) + (inferentia > 0) + (cores > 0) > 1) {
        return refuse(m, "trainium, inferentia and neuroncores name the same devices", "say one");
    }
    int64_t devices = trainium > 0 ? trainium : inferentia;
    if (devices > 0 || cores > 0) {
        neuron = cores > 0 ? (ask){.resource = "aws.amazon.com/neuroncore", .n = cores}
                           : (ask){.resource = "aws.amazon.com/neuron", .n = devices};
    }
    if ((gpus.n > 0) + (neuron.n > 0) + (tpu.n > 0) > 1) {
        return refuse(m, "a pod has devices of one kind only", "split the step in two");
    }
    const ask *all[] = {&gpus, &neuron, &tpu};
    for (size_t i = 0; i < 3 && rc == 0; i++) {
        rc = all[i]->n > 0 ? put_ask(m, pod_spec, resources, all[i]) : 0;
    }
    if (rc == 0 && efa > 0) {
        put_amount(m, resources, "vpc.amazonaws.com/efa",
                   stk_arena_printf(m->arena, "%lld", (long long)efa), true);
    }
    const char *name;
    json_t *amount;
    json_object_foreach(json_object_get(o, "extended_resources"), name, amount)
    {
        if (strcmp(json_string_value(amount), "0") != 0) {
            put_amount(m, resources, name, json_string_value(amount), true);
            tolerate(m, pod_spec, name);
        }
    }
    return rc;
}

const char *stk_kube_asked(const stk_kube_maker *m, const json_t *resources)
{
    const char *name;
    json_t *amount;
    json_object_foreach(json_object_get(resources, "limits"), name, amount)
    {
        const char *text = json_string_value(amount);
        long long n = text != NULL ? strtoll(text, NULL, 10) : json_integer_value(amount);
        bool is_whole = false;
        const char *vendor = n > 0 ? counted_vendor(name, &is_whole) : NULL;
        if (vendor != NULL) {
            return stk_arena_printf(m->arena, "%s %lld", vendor, is_whole ? n : 1);
        }
    }
    return NULL;
}
