/* Turns a job into the documents that are sent to the cluster (pure). kube_pod makes the pod,
 * kube_wanted and kube_devices make its resource requests. */
#ifndef STK_KUBE_MANIFEST_H
#define STK_KUBE_MANIFEST_H

#include "away/kubernetes/kube.h"

/* Context for building a manifest. `failed`: out of memory; checked once at the end. */
typedef struct stk_kube_maker {
    const stk_driver_config *config;
    const stk_remote_job *job;
    const stk_json *options;
    const char *name_space;
    stk_arena *arena;
    stk_err *err;
    int64_t ttl_s;
    bool as_set; /* a JobSet, not a Job */
    bool failed;
    bool is_odd; /* a text is not UTF-8; checked once at the end */
} stk_kube_maker;

/* Values are added by value: don't change one after adding it. A map or list that grows may move
 * its members: use borrowed pointers at once. Texts are copied. */
void stk_kube_set(stk_kube_maker *m, stk_json *map, const char *key, stk_json value);
void stk_kube_set_text(stk_kube_maker *m, stk_json *map, const char *key,
                       const char *text); /* NULL: sets nothing */
void stk_kube_set_whole(stk_kube_maker *m, stk_json *map, const char *key, int64_t number);
void stk_kube_update(stk_kube_maker *m, stk_json *map, const stk_json *more);
void stk_kube_append(stk_kube_maker *m, stk_json *list, stk_json value);
void stk_kube_append_text(stk_kube_maker *m, stk_json *list, const char *text);
/* A new map of texts: key, text, key, text …, NULL. */
stk_json stk_kube_map(stk_kube_maker *m, ...) __attribute__((sentinel));
/* The map (list) at `key`, created if absent; borrowed. */
stk_json *stk_kube_child(stk_kube_maker *m, stk_json *map, const char *key);
stk_json *stk_kube_list(stk_kube_maker *m, stk_json *map, const char *key);

/* A copy with the API's spelling of keys: node_affinity → nodeAffinity. */
stk_json stk_kube_shape(stk_kube_maker *m, const stk_json *value);

/* Nodes whose label has one of the values. */
enum { STK_KUBE_VALUES = 64, STK_KUBE_MATCHES = 3 };
typedef struct stk_kube_match {
    const char *label, *values[STK_KUBE_VALUES];
    uint32_t n;
} stk_kube_match;

/* The devices that a pod requests. */
typedef struct stk_kube_wanted {
    const char *resource; /* NULL: none */
    int64_t n;
    bool is_counted;   /* the user gave the number */
    const char *class; /* gpu_class of a TPU, or NULL */
    /* The nodes that have the model: those that any of them matches. None: any node. */
    stk_kube_match matches[STK_KUBE_MATCHES];
    uint32_t n_matches;
    bool is_exact; /* one value, which the user wrote: a node selector */
    bool is_not;   /* choose nodes whose label has none of the first one's values */
} stk_kube_wanted;

int stk_kube_wanted_read(stk_kube_maker *m, stk_kube_wanted *ret);
/* Checks that the final `resources` of a container still contain the devices. */
int stk_kube_wanted_check(const stk_kube_maker *m, const stk_kube_wanted *ask,
                          const stk_json *resources);
/* "step 'x': WHAT; INSTEAD": STK_E_SPEC. */
int stk_kube_refuse(const stk_kube_maker *m, const char *instead, const char *what, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds the resources, node selectors and tolerations for the step's devices. */
int stk_kube_put_devices(stk_kube_maker *m, stk_json *pod_spec, stk_json *resources,
                         stk_kube_wanted *ret_ask);
/* "VENDOR N": the devices in `resources` that the agent must find in the container. NULL: none
 * that it can count. */
const char *stk_kube_asked(const stk_kube_maker *m, const stk_json *resources);
int stk_kube_put_pod(stk_kube_maker *m, stk_json *template);
/* How a job may be sent: as a Job, or (a gang only) as a JobSet if the cluster has that add-on. */
typedef enum {
    STK_KUBE_AS_JOB,   /* one pod, or `jobset: false` */
    STK_KUBE_AS_SET,   /* `jobset: true` */
    STK_KUBE_AS_EITHER /* no `jobset` option: what the cluster has decides */
} stk_kube_form;
stk_kube_form stk_kube_form_of(const stk_remote_job *job, const stk_json *options);

/* *ret is the list of documents, in the arena: the Job (as_set: the JobSet), then what it owns. */
int stk_kube_make(const stk_driver_config *config, const stk_remote_job *job,
                  const stk_json *options, const char *name_space, bool as_set, stk_arena *arena,
                  stk_json *ret, stk_err *err);

#endif
