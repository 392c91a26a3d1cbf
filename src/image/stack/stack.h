/* stack: where do steps run, and in which image? `stoker.yaml` and the choice for one step.
 */
#ifndef STK_STACK_H
#define STK_STACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "model/spec/spec.h"

/* From KUBERNETES on: on other machines (docs/decisions/0010-elsewhere.md). */
typedef enum {
    STK_PLACE_LOCAL,
    STK_PLACE_DOCKER,
    STK_PLACE_KUBERNETES,
    STK_PLACE_BATCH,
    STK_PLACE_N
} stk_place_kind;

const char *stk_place_word(stk_place_kind kind); /* "kubernetes" */
static inline bool stk_place_is_elsewhere(stk_place_kind kind)
{
    return kind >= STK_PLACE_KUBERNETES;
}

/* Machines of one sort that a stack has. */
typedef struct stk_pool {
    const char *name;
    int64_t nodes;       /* at most so many; -1 unknown */
    stk_resources holds; /* of one node, for tasks; -1, NULL: unknown. gpu_memory_bytes is that of
                            each device */
    double price;        /* of a node an hour, in whatever money; -1 unknown */
    const char *options; /* of the backend for tasks that go there (JSON object), or NULL */
} stk_pool;

/* A setting of Metaflow's that stands where a stack says nothing. */
typedef struct stk_inherited {
    const char *name, *value;    /* of an option, "default_image" or "image_registry"; its text */
    const char *variable, *from; /* its name, and who says so: itself, or Metaflow's file */
    bool is_option, is_joined;   /* of the backend; what is said is added to it */
    stk_json node;
} stk_inherited;

typedef struct stk_stack {
    const char *name; /* "local", "docker", or as in the file */
    const char *file; /* stoker.yaml, or NULL: a stack of defaults */
    stk_place_kind kind;
    const char *default_image; /* or NULL */
    const stk_pair *image_map; /* prefix → replacement, longest prefix first */
    uint32_t n_image_map;
    const char *registry; /* built images are pushed there, or NULL */
    const char *socket;   /* of the container engine, or NULL */
    /* of other machines */
    const char *store; /* that they share: s3://…, a folder; or NULL */
    const char
        *store_from; /* who says so, if not the stack: a variable, Metaflow's file; or NULL */
    const char *store_volume; /* of a folder: how containers get it, "pvc:NAME[/path]"; or NULL */
    const char *options;      /* of the backend, for every step (JSON object), or NULL: what is said
                                 over what is inherited */
    const char *own_options;  /* … what the file says of them, or NULL */
    const char *image_registry; /* of images whose name has none, or NULL */
    const stk_inherited *inherited;
    uint32_t n_inherited;
    const char *carry;        /* how our program gets into images: "image", "volume", "store" */
    const char *runner_image; /* for carry: image; or NULL */
    const char *carry_volume; /* for carry: volume; or NULL */
    int64_t max_jobs;         /* at once */
    int64_t pending_ms;       /* a job that waits for so long fails; 0: it may wait for ever */
    const stk_resources *defaults; /* for what a step doesn't say; or NULL */
    const stk_resources *limits;   /* the most that one node of a task may ask for; or NULL */
    const stk_pool *pools;
    uint32_t n_pools; /* 0: not known */
    /* the file's, for steps that name another one */
    const struct stk_stack *all;
    uint32_t n_all;
    bool is_chosen; /* the user named it: steps that only have options for another backend stay */
} stk_stack;

/* The stack of this name for a project: `stoker.yaml` in the nearest folder from `folder` up to the
 * project's root (sys/trust.h; STK_E_UNTRUSTED: it isn't ours), else the built-in ones (one a
 * backend). NULL: "local". Where a stack of other machines names no store it is
 * STOKER_SHARE, else METAFLOW_DATASTORE_SYSROOT_S3 (of the environment or of Metaflow's file,
 * image/stack/stack_metaflow.h) with /stoker behind it; of its backend's options, image and
 * registry those of src/tbl/metaflow_settings.def that nobody says. STK_E_NOT_FOUND with a
 * did-you-mean and what there is; STK_E_SPEC with file:line for a wrong file. Texts live in
 * `arena`.
 */
int stk_stack_find(const char *folder, const char *name, stk_arena *arena, stk_stack *ret,
                   stk_err *err);

/* Where one step runs. */
typedef struct stk_place {
    stk_place_kind kind;
    const stk_stack *stack; /* whose machines these are; of a local step the run's */
    const char *image;      /* mapped; NULL: local, or its own dockerfile is built */
    const char *written;    /* as the user wrote it */
    const char *source;     /* "the step", "stack 'x'": who named it */
    const char *docker;     /* the step's docker setting (JSON), or NULL */
    const char *options; /* for the backend (JSON object): the stack's, the pool's, the step's over
                            each other; or NULL: none */
    const stk_resources *resources; /* elsewhere: with the stack's defaults; else NULL */
    const stk_pool *pool;           /* elsewhere: where it fits, the cheapest; or NULL: not known */
    const char *note_many; /* `note` of several steps, after their names; NULL: each says its own */
    const char *note; /* a sentence for the user, or NULL ("… has no image, it runs locally") */
} stk_place;

/* Pure. STK_E_SPEC: the step names a backend that isn't there, docker or other machines without any
 * image; STK_E_RESOURCES: it asks for what the stack's limits and pools don't have. A step that
 * names (or has options for) other machines goes to the run's stack if that is of this backend,
 * else to the stack of this name or the only one of this backend in the file; where there is none,
 * or the user has chosen another for the run, it runs where the run does, with a note. */
int stk_stack_place(const stk_stack *stack, const char *step, const stk_settings *settings,
                    stk_arena *arena, stk_place *ret, stk_err *err);
/* The longest prefix that fits, replaced; where none does and it names no registry, the stack's
 * image_registry before it; else `image` itself. */
const char *stk_stack_map(const stk_stack *stack, const char *image, stk_arena *arena);
/* Can a node of this stack hold it (and are there so many)? The cheapest pool that does in
 * *ret_pool; NULL where the stack tells none. STK_E_RESOURCES: a sentence with the nearest. */
int stk_stack_fit(const stk_stack *stack, const char *step, const stk_resources *resources,
                  int64_t nodes, stk_arena *arena, const stk_pool **ret_pool, stk_err *err);

#endif
