/* kube_wanted: which devices a step asks a cluster for. Its request and its options together become
 * one resource, a number and a node label that selects the model. It refuses whatever can't be
 * expressed so: a step that asks for a device never runs without it. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/param.h>

#include "away/kubernetes/kube_models.h"
#include "base/text.h"

static const struct {
    const char *vendor, *resource;
    const char *label; /* of its device plugin: names its models; NULL: there is none */
} vendors[] = {
    {"nvidia", "nvidia.com/gpu", "nvidia.com/gpu.product"},
    {"amd", "amd.com/gpu", "amd.com/gpu.product-name"},
    {"intel", "gpu.intel.com/i915", "gpu.intel.com/product"},
    {"aws", "aws.amazon.com/neuron", NULL},
    {"google", "google.com/tpu", NULL},
    {NULL, NULL, NULL}, /* any other */
};

/* Resources that the agent can count in the container. A resource that is a part of a device, or a
 * shared one, says nothing on the number of devices: the agent expects at least one. */
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

/* EC2's instance types, as the node label node.kubernetes.io/instance-type has them. */
static const struct {
    const char *family, *vendor, *model, *sizes;
} instances[] = {
#define X(family, vendor, model, sizes) {family, vendor, model, sizes},
#include "tbl/ec2_instances.def"
#undef X
};

/* A request, before its resource is chosen. */
typedef struct wish {
    stk_alternative wants[STK_LIMIT_ASKS]; /* each with its resulting number */
    uint32_t n;
    const char *option; /* "trainium": names a kind of device, of the vendor */
    const char *kind;
    const char *vendor; /* of all alternatives */
    bool is_counted;    /* the user gave the number */
} wish;

int stk_kube_refuse(const stk_kube_maker *m, const char *instead, const char *what, ...)
{
    char text[600];
    va_list args;
    va_start(args, what);
    (void)vsnprintf(text, sizeof text, what, args);
    va_end(args);
    return stk_err_set(m->err, STK_E_SPEC, "step '%s': %s; %s", m->job->step, text, instead);
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

static size_t row_of(const char *vendor)
{
    size_t i = 0;
    while (vendors[i].vendor != NULL && strcmp(vendors[i].vendor, vendor) != 0) {
        i++;
    }
    return i;
}

static bool is_same(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* --- the request --- */

/* Reads options that name a kind of device. *ret_n: how many; 0: not given. */
static int read_kind(stk_kube_maker *m, wish *w, int64_t *ret_n)
{
    static const struct {
        const char *option, *vendor;
    } kinds[] = {{"trainium", "aws"}, {"inferentia", "aws"},         {"neuroncores", "aws"},
                 {"tpu", "google"},   {"tpu_accelerator", "google"}, {"tpu_topology", "google"}};
    *ret_n = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int64_t n = MAX(stk_kube_whole(m->options, kinds[i].option), 0); /* -1 for a text */
        if (n == 0 && stk_kube_text(m->options, kinds[i].option) == NULL) {
            continue;
        }
        if (w->option != NULL && is_same(w->kind, kinds[i].vendor) && is_same(w->kind, "aws")) {
            return stk_kube_refuse(m, "set only one of them",
                                   "trainium, inferentia and neuroncores name the same devices");
        }
        if (w->option != NULL && !is_same(w->kind, kinds[i].vendor)) {
            return stk_kube_refuse(m, "split the step into two",
                                   "a pod can have only one kind of device");
        }
        w->option = stk_text_or(w->option, kinds[i].option);
        w->kind = kinds[i].vendor;
        /* cores are parts of devices: they say nothing of how many of these */
        if (strcmp(kinds[i].option, "neuroncores") != 0 && n > *ret_n) {
            *ret_n = n;
        }
    }
    return 0;
}

static int read_wish(stk_kube_maker *m, wish *w)
{
    const stk_resources *r = m->job->resources;
    int64_t gpus = stk_kube_whole(m->options, "gpu"), of_kind = 0;
    int rc = read_kind(m, w, &of_kind);
    if (rc < 0 || (r != NULL && stk_spec_asks_none(r))) {
        w->option = NULL; /* none is none, whatever else is said */
        return rc;
    }
    if (gpus > 0 && w->kind != NULL) {
        return stk_kube_refuse(m, "split the step into two",
                               "a pod can have only one kind of device");
    }
    int64_t said = MAX(gpus, of_kind);
    bool more = said > 0 || w->kind != NULL || stk_kube_text(m->options, "gpu_type") != NULL;
    w->is_counted = said > 0 || (r != NULL && r->base.gpu_count > 0);
    if (r != NULL) {
        w->n = stk_spec_alternatives(r, w->wants);
    }
    for (uint32_t i = 0; r != NULL && i < r->n_any_of; i++) {
        w->is_counted = w->is_counted || r->any_of[i].gpu_count > 0;
    }
    if (w->n == 0 && more) {
        w->wants[w->n++] = (stk_alternative){.gpu_count = 1, .gpu_memory_bytes = -1};
    }
    for (uint32_t i = 0; i < w->n; i++) {
        int64_t n = w->wants[i].gpu_count;
        w->wants[i].gpu_count = MAX(n, said);
    }
    return 0;
}

/* --- vendor and resource --- */

static int refuse_vendor(stk_kube_maker *m, const char *what, const char *is, const char *other)
{
    return stk_kube_refuse(m, "remove one of them",
                           "%s means devices of %s, but the step asks for those of %s", what, is,
                           other);
}

/* Alternatives can become one Job only if they differ just in the model. */
static int find_vendor(stk_kube_maker *m, wish *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        const stk_alternative *a = &w->wants[i];
        const char *by_class = stk_spec_vendor_of_class(a->gpu_class);
        const char *of = stk_spec_vendor_of(a);
        if (by_class != NULL && !is_same(by_class, of)) {
            return refuse_vendor(m, stk_arena_printf(m->arena, "gpu_class '%s'", a->gpu_class),
                                 by_class, of);
        }
        if (w->kind != NULL && of != NULL && !is_same(w->kind, of)) {
            return refuse_vendor(m, stk_arena_printf(m->arena, "option %s", w->option), w->kind,
                                 of);
        }
        of = stk_text_or(w->kind, of);
        if (i == 0) {
            w->vendor = of;
        }
        if (!is_same(of, w->vendor) || a->gpu_count != w->wants[0].gpu_count ||
            (a->gpu_class == NULL) != (w->wants[0].gpu_class == NULL)) {
            return stk_kube_refuse(
                m, "keep alternatives that differ only in gpu_class",
                "one Job can't ask for alternatives (any_of) of different vendors or counts");
        }
        if (a->gpu_memory_bytes != -1 && stk_kube_text(m->options, "gpu_resource") == NULL) {
            return stk_kube_refuse(
                m, "set gpu_class to a MIG profile, or gpu_resource: nvidia.com/gpu.shared",
                "Kubernetes has no shares of a GPU (gpu_memory)");
        }
    }
    return 0;
}

/* Refuses devices that the agent can't count: it would refuse them in the pod, or miss them. */
static int refuse_uncounted(stk_kube_maker *m, const wish *w, const char *resource, int64_t n)
{
    const char *vendor = w->vendor, *class = w->wants[0].gpu_class;
    static const char *const known[][2] = {{"habana", "habana.ai/gaudi"},
                                           {"huawei", "huawei.com/Ascend910"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (resource == NULL && strcmp(known[i][0], vendor) == 0) {
            resource = known[i][1];
        }
    }
    if (resource == NULL) {
        return stk_kube_refuse(m,
                               "use nvidia, amd, intel, aws, google, or one of their resources, "
                               "like nvidia.com/gpu.shared",
                               "gpu_vendor '%s' is unknown", vendor);
    }
    return stk_kube_refuse(
        m,
        stk_arena_printf(m->arena,
                         "use extended_resources: {%s: %lld}, which Stoker passes to the cluster "
                         "without checking what the step gets",
                         resource, (long long)n),
        "Stoker can't count devices of %s in a container (gpu_%s '%s'), so it couldn't tell "
        "whether the step got them",
        resource, class != NULL ? "class" : "vendor", stk_text_or(class, vendor));
}

/* Finds the resource to request. gpu_vendor may stand for a whole cluster and name the vendor of
 * its GPUs: it doesn't apply to Neuron devices and TPUs. */
static int find_resource(stk_kube_maker *m, wish *w, stk_kube_wanted *a)
{
    const char *said = stk_kube_text(m->options, "gpu_vendor");
    const char *own = stk_kube_text(m->options, "gpu_resource");
    const char *type = stk_kube_text(m->options, "gpu_type");
    bool is_whole = false;
    bool is_gpu =
        w->vendor == NULL || (!is_same(w->vendor, "aws") && !is_same(w->vendor, "google"));
    const char *said_of =
        said == NULL || strchr(said, '/') == NULL ? said : counted_vendor(said, &is_whole);
    const char *own_of = own == NULL ? NULL : counted_vendor(own, &is_whole);
    if (is_gpu && said_of != NULL && w->vendor != NULL && !is_same(said_of, w->vendor)) {
        return refuse_vendor(m, stk_arena_printf(m->arena, "option gpu_vendor '%s'", said), said_of,
                             w->vendor);
    }
    if (own_of != NULL && w->vendor != NULL && !is_same(own_of, w->vendor)) {
        return refuse_vendor(m, stk_arena_printf(m->arena, "option gpu_resource '%s'", own), own_of,
                             w->vendor);
    }
    const char *vendor;
    if (w->vendor != NULL) {
        vendor = w->vendor;
    } else if (said_of != NULL) {
        vendor = said_of;
    } else if (said != NULL) {
        vendor = said;
    } else {
        vendor = stk_text_or(own_of, stk_spec_vendor_of_class(type));
    }
    w->vendor = stk_text_or(vendor, "nvidia");
    if (is_gpu && said != NULL && strchr(said, '/') != NULL) {
        a->resource = said;
    }
    a->resource = stk_text_or(own, stk_text_or(a->resource, vendors[row_of(w->vendor)].resource));
    if (a->resource == NULL || counted_vendor(a->resource, &is_whole) == NULL) {
        return refuse_uncounted(m, w, a->resource, a->n);
    }
    if (is_same(w->option, "neuroncores") && w->is_counted) {
        return stk_kube_refuse(
            m, "remove one of them",
            "it asks for %lld devices, and for parts of them by the option neuroncores",
            (long long)a->n);
    }
    if (is_same(w->option, "neuroncores")) {
        a->resource = "aws.amazon.com/neuroncore";
        a->n = stk_kube_whole(m->options, "neuroncores");
    }
    return 0;
}

/* --- model --- */

static bool is_mig(const char *name)
{
    int slices = 0, memory = 0, n = 0;
    return sscanf(name, "%dg.%dgb%n", &slices, &memory, &n) == 2 && name[n] == '\0';
}

/* The resource of a class that has its own: a slice, a partition, a driver. NULL: it has none. */
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

/* Does one of the classes mean an instance's model? `trainium` means any generation. */
static bool is_meant(const wish *w, const char *model)
{
    char whole[64];
    (void)snprintf(whole, sizeof whole, "AWS %s", model);
    const stk_spec_device d = {
        .vendor = "aws", .noun = "Neuron device", .model = whole, .memory_bytes = -1};
    bool is_kind = w->option == NULL || strcmp(w->option, "neuroncores") == 0 ||
                   strncasecmp(model, w->option, strlen(w->option)) == 0;
    bool fits = w->wants[0].gpu_class == NULL;
    for (uint32_t i = 0; i < w->n && !fits; i++) {
        const char *class = w->wants[i].gpu_class;
        fits = stk_spec_device_fits(class, NULL, &d) ||
               (w->option != NULL && strcasecmp(class, w->option) == 0);
    }
    return is_kind && fits;
}

/* Neuron devices of all models are one resource. The nodes' label with the instance type tells
 * models apart: we exclude the types that are known to have another model. So nodes of unknown
 * types stay eligible. */
static int tell_instances(stk_kube_maker *m, const wish *w, stk_kube_wanted *a)
{
    bool any = false;
    for (size_t i = 0; i < sizeof instances / sizeof *instances; i++) {
        if (strcmp(instances[i].vendor, "aws") != 0) {
            continue;
        }
        any = any || is_meant(w, instances[i].model);
        const char *size = instances[i].sizes;
        while (!is_meant(w, instances[i].model) && *size != '\0') {
            size_t n = strcspn(size, " ");
            if (a->matches[0].n < STK_KUBE_VALUES) {
                a->matches[0].values[a->matches[0].n++] =
                    stk_arena_printf(m->arena, "%s.%.*s", instances[i].family, (int)n, size);
            }
            size += n + strspn(size + n, " ");
        }
    }
    if (!any) {
        return stk_kube_refuse(
            m,
            "use Trainium, Trainium2, Inferentia or Inferentia2, or set the "
            "option gpu_type_label to the label of your nodes",
            "no known EC2 instance has gpu_class '%s'%s%s", w->wants[0].gpu_class,
            stk_text_when(w->option != NULL, " and option "), stk_text_or(w->option, ""));
    }
    if (a->matches[0].n > 0) {
        a->matches[0].label = "node.kubernetes.io/instance-type";
        a->n_matches = 1;
    }
    a->is_not = true;
    return 0;
}

/* `label`: the one that the user named; NULL: those that the vendor's nodes are known to have. */
static int read_class(stk_kube_maker *m, const wish *w, const char *name, const char *label,
                      stk_kube_wanted *a)
{
    const char *own = stk_kube_text(m->options, "gpu_resource");
    const char *resource = resource_of_class(m, w->vendor, name);
    if (resource != NULL && w->n > 1) {
        return stk_kube_refuse(m, "keep alternatives that differ only in the model",
                               "one Job can't ask for alternatives (any_of) with gpu_class '%s', "
                               "which is the resource %s",
                               name, resource);
    }
    if (resource != NULL && own != NULL && strcmp(own, resource) != 0) {
        return stk_kube_refuse(m, "remove one of them",
                               "gpu_class '%s' is the resource %s, but option gpu_resource is %s",
                               name, resource, own);
    }
    if (resource != NULL) {
        a->resource = resource;
        return 0;
    }
    if (strcasecmp(name, "mig") == 0) {
        return stk_kube_refuse(m, "name a profile, like 1g.10gb",
                               "gpu_class 'mig' names no profile");
    }
    const char *usual = vendors[row_of(w->vendor)].label;
    if (label == NULL && usual == NULL) {
        return stk_kube_refuse(
            m, "set the option gpu_type_label to the label of your nodes",
            "no known label of nodes distinguishes models of %s (gpu_class '%s')", w->vendor, name);
    }
    if (label != NULL || !stk_kube_model_add(name, w->vendor, m->arena, a)) {
        (void)stk_kube_match_add(a, stk_text_or(label, usual), name);
    }
    a->is_exact =
        a->n_matches == 1 && a->matches[0].n == 1 && strcmp(a->matches[0].values[0], name) == 0;
    return 0;
}

/* If a step has both gpu_type and gpu_class, both must mean the same model: gpu_type in the
 * cluster's words. */
static int check_type(stk_kube_maker *m, const wish *w, const char *type)
{
    const char *of = stk_spec_vendor_of_class(type);
    bool fits = false;
    for (uint32_t i = 0; i < w->n; i++) {
        const char *class = w->wants[i].gpu_class;
        bool is_slice = stk_spec_is_slice(class) && strcmp(class, type) != 0;
        fits = fits || class == NULL || (!is_slice && !stk_spec_is_other_model(class, type));
    }
    if (fits && (of == NULL || strcmp(of, w->vendor) == 0)) {
        return 0;
    }
    if (fits) {
        return refuse_vendor(m, stk_arena_printf(m->arena, "option gpu_type '%s'", type), of,
                             w->vendor);
    }
    return stk_kube_refuse(m, "remove one of them",
                           "gpu_class '%s' and option gpu_type '%s' are different models",
                           w->wants[0].gpu_class, type);
}

static int find_model(stk_kube_maker *m, const wish *w, stk_kube_wanted *a)
{
    const char *type = stk_kube_text(m->options, "gpu_type");
    const char *label = stk_kube_text(m->options, "gpu_type_label");
    bool is_class = type != NULL || w->wants[0].gpu_class != NULL;
    if (type != NULL) {
        STK_TRY(check_type(m, w, type));
    }
    if (!is_class && !is_same(w->vendor, "aws")) {
        return 0;
    }
    if (is_same(w->vendor, "aws") && type == NULL && (label == NULL || !is_class)) {
        return tell_instances(m, w, a);
    }
    if (is_same(w->vendor, "google") && type == NULL && label == NULL) {
        a->class = w->wants[0].gpu_class; /* kube_devices reads it */
        if (w->n != 1) {
            return stk_kube_refuse(m, "keep only one of them",
                                   "one Job can't ask for alternatives (any_of) of several TPUs");
        }
        return 0;
    }
    if (type != NULL) { /* in the cluster's words */
        return read_class(m, w, type, stk_text_or(label, vendors[row_of(w->vendor)].label), a);
    }
    for (uint32_t i = 0; i < w->n; i++) {
        STK_TRY(read_class(m, w, w->wants[i].gpu_class, label, a));
    }
    return 0;
}

/* --- all --- */

int stk_kube_wanted_read(stk_kube_maker *m, stk_kube_wanted *ret)
{
    wish w = {.n = 0};
    *ret = (stk_kube_wanted){0};
    int rc = read_wish(m, &w);
    if (rc < 0 || w.n == 0) {
        return rc;
    }
    ret->n = w.wants[0].gpu_count;
    ret->is_counted = w.is_counted;
    STK_TRY(find_vendor(m, &w));
    STK_TRY(find_resource(m, &w, ret));
    return find_model(m, &w, ret);
}

static int64_t amount_of(const stk_json *amount)
{
    int64_t n = 0;
    const char *text = stk_json_text(amount);
    if (text != NULL) {
        return strtoll(text, NULL, 10);
    }
    (void)stk_json_int(amount, &n);
    return n;
}

int stk_kube_wanted_check(const stk_kube_maker *m, const stk_kube_wanted *ask,
                          const stk_json *resources)
{
    int64_t n = 0;
    if (ask->resource != NULL) {
        n = amount_of(stk_json_get(stk_json_get(resources, "limits"), ask->resource));
    }
    if (n >= ask->n) {
        return 0;
    }
    return stk_kube_refuse(
        m, "give the number only once",
        "it asks for %lld of %s, but its options (resources, extended_resources) set %lld",
        (long long)ask->n, ask->resource, (long long)n);
}

const char *stk_kube_asked(const stk_kube_maker *m, const stk_json *resources)
{
    const stk_json *limits = stk_json_get(resources, "limits");
    for (uint32_t i = 0; i < stk_json_n_members(limits); i++) {
        int64_t n = amount_of(stk_json_value(limits, i));
        bool is_whole = false;
        const char *vendor = counted_vendor(stk_json_key(limits, i)->text, &is_whole);
        if (n > 0 && vendor != NULL) {
            return stk_arena_printf(m->arena, "%s %lld", vendor, (long long)(is_whole ? n : 1));
        }
    }
    return NULL;
}
