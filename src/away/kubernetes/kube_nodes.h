/* What the nodes' labels say of their devices. */
#ifndef STK_KUBE_NODES_H
#define STK_KUBE_NODES_H

#include "base/arena.h"
#include "base/json.h"

struct stk_kube_task;
struct stk_remote_job;

/* A value of a label that tells models of devices apart, and the number of nodes that have it. */
typedef struct stk_kube_model {
    const char *label, *value;
    uint32_t n_nodes;
} stk_kube_model;

/* What the nodes' labels say of their devices (kube_nodes). */
typedef struct stk_kube_nodes {
    enum {
        KUBE_NODES_UNKNOWN,
        KUBE_NODES_ASKED,
        KUBE_NODES_KNOWN,
        KUBE_NODES_SECRET /* we may not list them */
    } state;
    int64_t not_before_ms, until_ms; /* until_ms: ask again then */
    stk_arena *arena;                /* has the texts */
    stk_kube_model *models;
    uint32_t n, cap;
    char *more; /* the list's continue token, or NULL */
} stk_kube_nodes;

/* Adds the labels of one page of nodes. 0 or STK_E_NOMEM. */
int stk_kube_read_nodes(stk_kube_nodes *n, const stk_json *items, stk_err *err);
void stk_kube_nodes_free(stk_kube_nodes *n);
/* Adds the values that the nodes' labels have to the job's choice of nodes. Returns false while the
 * cluster hasn't answered. Asks nothing for a job that names no model. */
bool stk_kube_fit_nodes(struct stk_kube_task *t, int64_t now);
/* The models that the job names in our words, one a line, in the arena; NULL: none. */
const char *stk_kube_classes(const struct stk_remote_job *job, const stk_json *options,
                             stk_arena *arena);

#endif
