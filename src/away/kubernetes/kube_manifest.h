/* A job as the documents that are sent to the cluster (pure). kube_pod makes the pod, kube_wanted
 * and kube_devices what it asks for. */
#ifndef STK_KUBE_MANIFEST_H
#define STK_KUBE_MANIFEST_H

#include "away/kubernetes/kube.h"

/* What parts of a manifest are made with. `failed`: no memory, seen once at the end. */
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
    bool is_odd; /* a text is not UTF-8, seen once at the end too */
} stk_kube_maker;

/* A part that is put into its whole by value isn't changed any more, and one that grows may move
 * what it holds: what is borrowed from it is used at once. Texts are copied. */
void stk_kube_set(stk_kube_maker *m, stk_json *map, const char *key, stk_json value);
void stk_kube_set_text(stk_kube_maker *m, stk_json *map, const char *key,
                       const char *text); /* NULL: none */
void stk_kube_set_whole(stk_kube_maker *m, stk_json *map, const char *key, int64_t number);
void stk_kube_update(stk_kube_maker *m, stk_json *map, const stk_json *more);
void stk_kube_append(stk_kube_maker *m, stk_json *list, stk_json value);
void stk_kube_append_text(stk_kube_maker *m, stk_json *list, const char *text);
/* A new one of texts: key, text, key, text …, NULL. */
stk_json stk_kube_map(stk_kube_maker *m, ...) __attribute__((sentinel));
/* The member, made where there is none; borrowed. */
stk_json *stk_kube_child(stk_kube_maker *m, stk_json *map, const char *key);
stk_json *stk_kube_list(stk_kube_maker *m, stk_json *map, const char *key);

/* A copy with the API's names: node_affinity → nodeAffinity. */
stk_json stk_kube_shape(stk_kube_maker *m, const stk_json *value);

/* The devices that a pod asks for. */
enum { STK_KUBE_VALUES = 32 };
typedef struct stk_kube_wanted {
    const char *resource; /* NULL: none */
    int64_t n;
    bool is_counted;   /* somebody said how many */
    const char *class; /* of a TPU, or NULL */
    const char *label; /* of the nodes that have the model, or NULL: any */
    const char *values[STK_KUBE_VALUES];
    uint32_t n_values;
    bool is_not; /* of the nodes that haven't: no value of theirs is among these */
} stk_kube_wanted;

int stk_kube_wanted_read(stk_kube_maker *m, stk_kube_wanted *ret);
/* Are they among a container's `resources`, once everything was laid over these? */
int stk_kube_wanted_check(const stk_kube_maker *m, const stk_kube_wanted *ask,
                          const stk_json *resources);
/* "step 'x': WHAT; INSTEAD": STK_E_SPEC. */
int stk_kube_refuse(const stk_kube_maker *m, const char *instead, const char *what, ...)
    __attribute__((format(printf, 3, 4)));
/* Resources, selectors and tolerations of what it asks for. */
int stk_kube_put_devices(stk_kube_maker *m, stk_json *pod_spec, stk_json *resources,
                         stk_kube_wanted *ret_ask);
/* "VENDOR N" of the devices among a container's `resources`, which the agent is to find in it;
 * NULL: none that it knows of. */
const char *stk_kube_asked(const stk_kube_maker *m, const stk_json *resources);
int stk_kube_put_pod(stk_kube_maker *m, stk_json *template);
/* How a job may be sent: as a Job, or a gang as a JobSet, where the cluster has this add-on. */
typedef enum {
    STK_KUBE_AS_JOB,   /* one pod, or `jobset: false` */
    STK_KUBE_AS_SET,   /* `jobset: true` */
    STK_KUBE_AS_EITHER /* it isn't said: what the cluster has decides */
} stk_kube_form;
stk_kube_form stk_kube_form_of(const stk_remote_job *job, const stk_json *options);

/* The documents in a list, in the arena: the Job (as_set: the JobSet) first, then what it owns. */
int stk_kube_make(const stk_driver_config *config, const stk_remote_job *job,
                  const stk_json *options, const char *name_space, bool as_set, stk_arena *arena,
                  stk_json *ret, stk_err *err);

#endif
