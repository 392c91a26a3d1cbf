/* A graph that grows while it runs: what its tasks see and say. */
#ifndef STK_EXEC_GROWN_H
#define STK_EXEC_GROWN_H

#include "base/json.h"
#include "model/grow/grow.h"
#include "run/exec/core/exec_cache.h"

/* An artifact under its name: of a task of a graph that grows, and of those after it (they share
 * it). */
typedef struct exec_artifact {
    const char *name;
    exec_ref ref;
    uint32_t document, number; /* its number in the task.json that was written as the document-th */
} exec_artifact;

/* The artifacts that are seen after a task (one rank of it), sorted by name. */
typedef struct exec_scope {
    exec_artifact *const *items;
    uint32_t n;
} exec_scope;

/* What one rank of a finished task made and deleted. */
typedef struct exec_part {
    exec_artifact **artifacts;
    uint32_t n_artifacts;
    const char *const *dropped;
    uint32_t n_dropped;
} exec_part;

/* What a finished task made. */
typedef struct exec_made {
    exec_part *parts; /* by rank */
    uint32_t n_parts; /* at least 1 */
    stk_grow_next next;
    exec_artifact *items; /* of a foreach: those that can be read one by one; or NULL */
} exec_made;

/* A task of a graph that grows, beyond what every task has. */
typedef struct exec_grown {
    exec_scope *scopes; /* by rank, once it is done */
    uint32_t n_scopes;
    bool has_followed; /* what follows it has been added */
    stk_grow_next next;
    exec_artifact *items;
    const char *refusal;  /* why it can't run here: a sentence; or NULL */
    const char *fallback; /* JSON: the failure that its attempt from now on makes good; or NULL */
    uint32_t origin;      /* its counterpart in the run that is cloned, or STK_GROW_NONE */
    bool is_clone;
} exec_grown;

/* The items of the foreach that was asked for last. */
typedef struct exec_items {
    uint32_t split; /* STK_GROW_NONE: none */
    stk_arena *arena;
    stk_json list;
} exec_items;

/* The graph while it grows. */
typedef struct exec_graph {
    stk_grow *grow;    /* NULL: the graph is fixed, and nothing of the rest is set */
    exec_grown *grown; /* by task */
    exec_items items;
    struct exec_clone *clone; /* the run whose finished tasks are taken over; or NULL */
    uint32_t n_documents;     /* task.json's that were written */
    int64_t max_splits;       /* a limit of the flow's own, told to its tasks */
} exec_graph;

#endif
