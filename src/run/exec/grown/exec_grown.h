/* State of a graph that grows while it runs. */
#ifndef STK_EXEC_GROWN_H
#define STK_EXEC_GROWN_H

#include "base/json.h"
#include "model/grow/grow.h"
#include "run/exec/core/exec_cache.h"

/* A named artifact of a task of a graph that grows. The tasks after it share it. */
typedef struct exec_artifact {
    const char *name;
    exec_ref ref;
    uint32_t document, number; /* its number in the task.json with the number `document` */
} exec_artifact;

/* The artifacts that are visible after a task (one rank of it), sorted by name. */
typedef struct exec_scope {
    exec_artifact *const *items;
    uint32_t n;
} exec_scope;

/* The artifacts that one rank of a finished task made, and the names that it deleted. */
typedef struct exec_part {
    exec_artifact **artifacts;
    uint32_t n_artifacts;
    const char *const *dropped;
    uint32_t n_dropped;
} exec_part;

/* Results of a finished task. */
typedef struct exec_made {
    exec_part *parts; /* by rank */
    uint32_t n_parts; /* at least 1 */
    stk_grow_next next;
    exec_artifact *items; /* a foreach's items in a form to read one by one, or NULL */
} exec_made;

/* Additional members of a task of a graph that grows. */
typedef struct exec_grown {
    exec_scope *scopes; /* by rank, after its end */
    uint32_t n_scopes;
    bool has_followed; /* its followers have been added */
    stk_grow_next next;
    exec_artifact *items;
    const char *refusal;  /* a sentence: why the task can't run here; or NULL */
    const char *fallback; /* JSON of the final failure that its next attempt replaces, or NULL */
    exec_scope *left; /* what the last failed attempt made, by rank, for the fallback; or NULL */
    uint32_t n_left;
    uint32_t origin; /* its counterpart in the cloned run, or STK_GROW_NONE */
    bool is_clone;
} exec_grown;

/* The items of the foreach that the engine read last. */
typedef struct exec_items {
    uint32_t split; /* STK_GROW_NONE: none */
    stk_arena *arena;
    stk_json list;
} exec_items;

/* The growing graph. */
typedef struct exec_graph {
    stk_grow *grow;    /* NULL: the graph is fixed, and no other member is set */
    exec_grown *grown; /* by task */
    exec_items items;
    struct exec_clone *clone; /* the run whose finished tasks this run takes over, or NULL */
    uint32_t n_documents;     /* number of task.json files written */
    int64_t max_splits;       /* the flow's limit, passed to its tasks */
} exec_graph;

#endif
