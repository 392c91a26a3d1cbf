/* kube_devices: turns a step's request into a pod's resources, node selectors and tolerations.
 * Devices are whole numbers with requests = limits; an amount of 0 is left out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "away/kubernetes/kube_manifest.h"
#include "base/text.h"

/* Names of Google's machines, and the number of chips of one host. */
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
enum { CHIPS_OF_A_HOST = 4 }; /* in a slice of several hosts */

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
        return stk_kube_refuse(m, "write it like 2x4 or 2x2x4",
                               "tpu_topology '%s' isn't a valid topology", topology);
    }
    int64_t each = CHIPS_OF_A_HOST;
    if (asked > 0 && asked < chips) {
        each = asked;
    } else if (chips <= largest_alone) {
        each = chips;
    }
    if (asked > chips || chips % each != 0) {
        return stk_kube_refuse(m, "ask for all its chips, or those of one host",
                               "tpu %lld doesn't fit topology %s of %lld chips", (long long)asked,
                               topology, (long long)chips);
    }
    if (chips / each != m->job->nodes) {
        return stk_kube_refuse(
            m,
            stk_arena_printf(
                m->arena, "make it a gang of %lld nodes (num_parallel), or use a smaller topology",
                (long long)(chips / each)),
            "topology %s has %lld hosts of %lld chips, but the step runs on %u", topology,
            (long long)(chips / each), (long long)each, m->job->nodes);
    }
    *ret_each = each;
    return 0;
}

/* The accelerator that the class means, in the cluster's spelling; *ret = NULL: any TPU. */
static int read_accelerator(stk_kube_maker *m, const char *class, const char **ret)
{
    bool is_any = class == NULL || strcasecmp(class, "tpu") == 0;
    *ret = NULL;
    for (size_t i = 0; i < sizeof tpus / sizeof *tpus && !is_any && *ret == NULL; i++) {
        char model[32];
        (void)snprintf(model, sizeof model, "Google TPU %s", tpus[i].word);
        const stk_spec_device d = {
            .vendor = "google", .noun = "TPU chip", .model = model, .memory_bytes = -1};
        *ret = stk_spec_device_fits(class, NULL, &d) || strcmp(class, tpus[i].accelerator) == 0
                   ? tpus[i].accelerator
                   : NULL;
    }
    if (!is_any && *ret == NULL) {
        return stk_kube_refuse(
            m, "use v4, v5e, v5p or v6e, or set the option tpu_accelerator to its label",
            "gpu_class '%s' isn't a known TPU", class);
    }
    return 0;
}

static int put_tpus(stk_kube_maker *m, stk_json *spec, stk_kube_wanted *a)
{
    const char *accelerator = stk_kube_text(m->options, "tpu_accelerator");
    const char *topology = stk_kube_text(m->options, "tpu_topology");
    const char *spelt = NULL, *by_class = NULL;
    int64_t largest_alone = CHIPS_OF_A_HOST;
    if (accelerator == NULL || a->class == NULL || strcasecmp(a->class, "tpu") == 0 ||
        strcmp(a->class, accelerator) != 0) {
        STK_TRY(read_accelerator(m, a->class, &by_class));
    }
    accelerator = stk_text_or(accelerator, by_class);
    for (size_t i = 0; i < sizeof tpus / sizeof *tpus && accelerator != NULL; i++) {
        if (strcmp(accelerator, tpus[i].word) == 0 ||
            strcmp(accelerator, tpus[i].accelerator) == 0) {
            spelt = tpus[i].accelerator;
            largest_alone = tpus[i].largest_alone;
        }
    }
    if (accelerator != NULL && spelt == NULL && strncmp(accelerator, "tpu", 3) != 0) {
        return stk_kube_refuse(
            m, "use v4, v5e, v5p, v6e, or a value of cloud.google.com/gke-tpu-accelerator",
            "tpu_accelerator '%s' is unknown", accelerator);
    }
    if (by_class != NULL && spelt != NULL && strcmp(by_class, spelt) != 0) {
        return stk_kube_refuse(
            m, "remove one of them",
            "gpu_class '%s' and option tpu_accelerator '%s' are different models", a->class,
            accelerator);
    }
    if (topology != NULL) {
        STK_TRY(put_tpu_hosts(m, a->is_counted ? a->n : 0, largest_alone, topology, &a->n));
    }
    if (!a->is_counted && topology == NULL && a->class == NULL && accelerator != NULL) {
        return stk_kube_refuse(m, "set tpu or tpu_topology",
                               "tpu_accelerator needs the number of chips");
    }
    const char *const labels[][2] = {
        {"cloud.google.com/gke-tpu-accelerator", stk_text_or(spelt, accelerator)},
        {"cloud.google.com/gke-tpu-topology", topology}};
    for (size_t i = 0; i < 2; i++) {
        if (labels[i][1] != NULL) {
            stk_kube_set_text(m, stk_kube_child(m, spec, "nodeSelector"), labels[i][0],
                              labels[i][1]);
        }
    }
    return 0;
}

/* --- all --- */

static void put_amount(stk_kube_maker *m, stk_json *resources, const char *name, const char *amount,
                       bool is_limit)
{
    stk_kube_set_text(m, stk_kube_child(m, resources, "requests"), name, amount);
    if (is_limit) {
        stk_kube_set_text(m, stk_kube_child(m, resources, "limits"), name, amount);
    }
}

static const char *bytes_words(const stk_kube_maker *m, int64_t bytes)
{
    if (bytes % (1 << 20) == 0) {
        return stk_arena_printf(m->arena, "%lldMi", (long long)(bytes >> 20));
    }
    return stk_arena_printf(m->arena, "%lld", (long long)bytes);
}

static int put_host(stk_kube_maker *m, stk_json *resources)
{
    const stk_resources *r = m->job->resources;
    const char *qos = stk_kube_text(m->options, "qos");
    bool burst = qos != NULL && strcasecmp(qos, "burstable") == 0;
    double cpu = stk_json_get_number(m->options, "cpu", 0);
    int64_t milli = (int64_t)(cpu * 1000 + 0.5);
    int64_t memory = stk_kube_whole(m->options, "memory");
    int64_t disk = stk_kube_whole(m->options, "disk");
    if (r != NULL && r->cpu_milli > milli) {
        milli = r->cpu_milli;
    }
    if (r != NULL && r->memory_bytes > memory) {
        memory = r->memory_bytes;
    }
    if (qos != NULL && !burst && strcasecmp(qos, "guaranteed") != 0) {
        return stk_kube_refuse(m, "use Guaranteed or Burstable", "qos '%s' is unknown", qos);
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

/* Many clusters keep other pods off their GPU nodes by such a taint. */
static void tolerate(stk_kube_maker *m, stk_json *spec, const char *resource)
{
    const char *key = resource;
    if (strncmp(resource, "nvidia.com/", 11) == 0) {
        key = "nvidia.com/gpu";
    }
    const stk_json *list = stk_json_get(spec, "tolerations");
    for (uint32_t i = 0; i < stk_json_n_items(list); i++) {
        if (stk_json_is(stk_json_get(&list->items[i], "key"), key)) {
            return;
        }
    }
    stk_kube_append(
        m, stk_kube_list(m, spec, "tolerations"),
        stk_kube_map(m, "key", key, "operator", "Exists", "effect", "NoSchedule", NULL));
}

static stk_json expression_of(stk_kube_maker *m, const stk_kube_match *match, bool is_not)
{
    static const char *const operators[] = {"In", "NotIn"};
    stk_json one = stk_kube_map(m, "key", match->label, "operator", operators[is_not], NULL);
    for (uint32_t i = 0; i < match->n; i++) {
        stk_kube_append_text(m, stk_kube_list(m, &one, "values"), match->values[i]);
    }
    return one;
}

/* Restricts the pod to nodes that one of the matches is true of (`is_not`: isn't). Terms are
 * alternatives: each of the user's becomes one for each match. */
static void choose_nodes(stk_kube_maker *m, stk_json *spec, const stk_kube_wanted *a)
{
    stk_json *node = stk_kube_child(m, stk_kube_child(m, spec, "affinity"), "nodeAffinity");
    stk_json *required = stk_kube_child(m, node, "requiredDuringSchedulingIgnoredDuringExecution");
    const stk_json *said = stk_json_get(required, "nodeSelectorTerms");
    stk_json all = stk_json_of_list(), any = stk_json_of_map();
    uint32_t n_said = stk_json_n_items(said);
    for (uint32_t i = 0; i < n_said || i == 0; i++) {
        const stk_json *term = n_said > 0 ? &said->items[i] : &any;
        const stk_json *old = stk_json_get(term, "matchExpressions");
        for (uint32_t k = 0; k < a->n_matches; k++) {
            stk_json mine = stk_json_of_map(), list = stk_json_of_list();
            stk_kube_update(m, &mine, term);
            for (uint32_t j = 0; j < stk_json_n_items(old); j++) {
                stk_kube_append(m, &list, old->items[j]);
            }
            stk_kube_append(m, &list, expression_of(m, &a->matches[k], a->is_not));
            stk_kube_set(m, &mine, "matchExpressions", list);
            stk_kube_append(m, &all, mine);
        }
    }
    stk_kube_set(m, required, "nodeSelectorTerms", all);
}

static void put_ask(stk_kube_maker *m, stk_json *spec, stk_json *resources,
                    const stk_kube_wanted *a)
{
    put_amount(m, resources, a->resource, stk_arena_printf(m->arena, "%lld", (long long)a->n),
               true);
    tolerate(m, spec, a->resource);
    const stk_kube_match *first = &a->matches[0];
    if (a->is_exact) {
        stk_kube_set_text(m, stk_kube_child(m, spec, "nodeSelector"), first->label,
                          first->values[0]);
    } else if (a->n_matches > 0) {
        choose_nodes(m, spec, a);
    }
}

int stk_kube_put_devices(stk_kube_maker *m, stk_json *pod_spec, stk_json *resources,
                         stk_kube_wanted *ret_ask)
{
    const stk_json *o = m->options;
    int64_t efa = stk_kube_whole(o, "efa");
    STK_TRY(put_host(m, resources));
    STK_TRY(stk_kube_wanted_read(m, ret_ask));
    if (ret_ask->resource != NULL && strcmp(ret_ask->resource, "google.com/tpu") == 0) {
        STK_TRY(put_tpus(m, pod_spec, ret_ask));
    }
    if (ret_ask->resource != NULL) {
        put_ask(m, pod_spec, resources, ret_ask);
    }
    if (efa > 0) {
        put_amount(m, resources, "vpc.amazonaws.com/efa",
                   stk_arena_printf(m->arena, "%lld", (long long)efa), true);
    }
    const stk_json *more = stk_json_get(o, "extended_resources");
    for (uint32_t i = 0; i < stk_json_n_members(more); i++) {
        const char *name = stk_json_key(more, i)->text, *amount = stk_json_value(more, i)->text;
        if (strcmp(amount, "0") != 0) {
            put_amount(m, resources, name, amount, true);
            tolerate(m, pod_spec, name);
        }
    }
    return 0;
}
