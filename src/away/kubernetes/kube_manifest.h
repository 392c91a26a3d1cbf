/* A job as the documents that are sent to the cluster (pure). kube_pod makes the pod, kube_wanted
 * and kube_devices what it asks for. */
#ifndef STK_KUBE_MANIFEST_H
#define STK_KUBE_MANIFEST_H

#include "away/kubernetes/kube.h"

/* What parts of a manifest are made with. `failed`: no memory, seen once at the end. */
typedef struct stk_kube_maker {
    const stk_driver_config *config;
    const stk_remote_job *job;
    const json_t *options;
    const char *name_space;
    stk_arena *arena;
    stk_err *err;
    uint32_t nodes; /* pods of the Job */
    bool as_set;    /* a JobSet, not a Job */
    bool failed;
} stk_kube_maker;

/* Takes `value` over. */
void stk_kube_set(stk_kube_maker *m, json_t *map, const char *key, json_t *value);
void stk_kube_set_text(stk_kube_maker *m, json_t *map, const char *key, const char *text);
void stk_kube_append(stk_kube_maker *m, json_t *list, json_t *value);
json_t *stk_kube_child(stk_kube_maker *m, json_t *map, const char *key); /* an object, borrowed */
json_t *stk_kube_list(stk_kube_maker *m, json_t *map, const char *key);  /* a list, borrowed */

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
                          const json_t *resources);
/* "step 'x': WHAT; INSTEAD": STK_E_SPEC. */
int stk_kube_refuse(const stk_kube_maker *m, const char *what, const char *instead);
/* Resources, selectors and tolerations of what it asks for. */
int stk_kube_put_devices(stk_kube_maker *m, json_t *pod_spec, json_t *resources,
                         stk_kube_wanted *ret_ask);
/* "VENDOR N" of the devices among a container's `resources`, which the agent is to find in it;
 * NULL: none that it knows of. */
const char *stk_kube_asked(const stk_kube_maker *m, const json_t *resources);
int stk_kube_put_pod(stk_kube_maker *m, json_t *template);
/* How a job may be sent: as a Job, or a gang as a JobSet, where the cluster has this add-on. */
typedef enum {
    STK_KUBE_AS_JOB,   /* one pod, or `jobset: false` */
    STK_KUBE_AS_SET,   /* `jobset: true` */
    STK_KUBE_AS_EITHER /* it isn't said: what the cluster has decides */
} stk_kube_form;
stk_kube_form stk_kube_form_of(const stk_remote_job *job, const json_t *options);

/* The documents as trees in a list: the Job (as_set: the JobSet) first, then what it owns. */
int stk_kube_make(const stk_driver_config *config, const stk_remote_job *job, const json_t *options,
                  const char *name_space, bool as_set, stk_arena *arena, json_t **ret,
                  stk_err *err);

#endif
