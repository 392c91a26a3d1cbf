/* stack: where steps run, and in which image: `stoker.yaml` and the choice for one step. */
#ifndef STK_STACK_H
#define STK_STACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "model/spec/spec.h"

/* KUBERNETES and all below it: other machines (docs/decisions/0010-elsewhere.md). */
typedef enum {
    STK_PLACE_LOCAL,
    STK_PLACE_DOCKER,
    STK_PLACE_KUBERNETES,
    STK_PLACE_BATCH,
    STK_PLACE_SLURM,
    STK_PLACE_SSH,
    STK_PLACE_N
} stk_place_kind;

const char *stk_place_word(stk_place_kind kind); /* "kubernetes" */
static inline bool stk_place_is_elsewhere(stk_place_kind kind)
{
    return kind >= STK_PLACE_KUBERNETES;
}
/* What to write for a stack's store: Slurm's nodes share a folder, hosts of SSH can have it on one
 * of them, the others reach S3 as well. */
static inline const char *stk_place_store_way(stk_place_kind kind)
{
    if (kind == STK_PLACE_SLURM) {
        return "add `store: /FOLDER`, which this machine and all nodes have,";
    }
    if (kind == STK_PLACE_SSH) {
        return "add `hosts: [HOST]` (whose first has the store)";
    }
    return "add `store: s3://BUCKET/PREFIX` (or a shared folder)";
}
/* Jobs of SSH run on the machine's own system, those of Slurm too unless an image is named. */
static inline bool stk_place_has_image(stk_place_kind kind)
{
    return kind != STK_PLACE_LOCAL && kind != STK_PLACE_SLURM && kind != STK_PLACE_SSH;
}

/* Machines of one kind in a stack. */
typedef struct stk_pool {
    const char *name;
    int64_t nodes;       /* maximum; -1: unknown */
    stk_resources holds; /* of one node; gpu_memory_bytes: per device. -1, NULL: unknown */
    double price;        /* per node and hour, in any currency; -1: unknown */
    const char *options; /* of the backend for tasks in this pool (JSON object), or NULL */
} stk_pool;

/* A setting of Metaflow's that fills a gap in a stack. */
typedef struct stk_inherited {
    const char *name, *value;    /* of an option, "default_image" or "image_registry"; its text */
    const char *variable, *from; /* its name, and its source: itself, or Metaflow's file */
    bool is_option, is_joined;   /* of the backend; the stack's value is merged with it */
    stk_json node;
} stk_inherited;

typedef struct stk_price {
    const char *device; /* as `gpu_class` names devices */
    double hour;
} stk_price;

/* What an hour costs, in any currency. */
typedef struct stk_prices {
    double gpu_hour;       /* of a device that `devices` doesn't name; -1, as all below: not said */
    double cpu_hour;       /* of a CPU */
    double memory_gb_hour; /* of 1 GB of memory */
    const stk_price *devices;
    uint32_t n_devices;
    const char *currency; /* "USD"; NULL: not said */
    const char *json;     /* as written; NULL: there are none */
} stk_prices;

#define STK_PRICES_UNSET ((stk_prices){.gpu_hour = -1, .cpu_hour = -1, .memory_gb_hour = -1})

/* Other tools that hear of a run, whatever its stack. NULL: they don't. */
typedef struct stk_tools {
    const char *trackers;                    /* names of tbl/trackers.def: "mlflow,wandb" */
    const char *openlineage, *opentelemetry; /* an http(s) URL, or a file's absolute path */
} stk_tools;

typedef struct stk_stack {
    const char *name; /* "local", "docker", or a name in the file */
    const char *file; /* stoker.yaml; NULL: a built-in stack */
    stk_place_kind kind;
    const char *default_image; /* or NULL */
    const stk_pair *image_map; /* prefix → replacement, longest prefix first */
    uint32_t n_image_map;
    const char *registry; /* where built images are pushed, or NULL */
    const char *socket;   /* of the container engine, or NULL */
    /* for stacks of other machines */
    const char *store;        /* storage shared by the machines: s3://…, a folder; or NULL */
    const char *store_from;   /* its source, if not the stack: a variable, Metaflow's file */
    const char *store_volume; /* of a folder, how containers mount it: "pvc:NAME[/path]"; or NULL */
    const char *hosts;        /* of ssh (JSON, a list or one); also in `options`; or NULL */
    const char *options;      /* of the backend (JSON): own_options over inherited ones; or NULL */
    const char *own_options;  /* … as the file has them, or NULL */
    const char *image_registry; /* for images whose name has none, or NULL */
    const stk_inherited *inherited;
    uint32_t n_inherited;
    const char *carry;        /* how our program gets into containers: "image", "volume", "store" */
    const char *runner_image; /* for carry: image; or NULL */
    const char *carry_volume; /* for carry: volume; or NULL */
    int64_t max_jobs;         /* at once */
    int64_t pending_ms;       /* a job that waits longer fails; 0: no limit */
    const stk_resources *defaults; /* for what a step doesn't request; or NULL */
    const stk_resources *limits;   /* the most that a task may request per node; or NULL */
    const stk_pool *pools;
    uint32_t n_pools;  /* 0: unknown */
    stk_prices prices; /* of this stack's tasks; the file's hold for what they leave out */
    /* all stacks of the file, for steps that name another one */
    const struct stk_stack *all;
    uint32_t n_all;
    stk_tools tools;
    stk_prices file_prices;
    bool is_chosen; /* by the user: steps that only have options for another backend stay here */
} stk_stack;

/* Finds the project's stack of this name, with options for its backend behind a colon
 * ("lab:host=gpu2,keep=/opt"; they come before those of its file, not before a step's): in
 * `stoker.yaml` of the nearest folder from `folder` up to the project's root (sys/trust.h;
 * STK_E_UNTRUSTED: the file isn't ours), else among the built-in ones (one per backend). NULL:
 * "local". If a stack of other machines names no store, STOKER_SHARE applies, else
 * METAFLOW_DATASTORE_SYSROOT_S3 (from the environment or from Metaflow's file,
 * image/stack/stack_metaflow.h) with /stoker appended. Options of its backend, image and registry
 * that it doesn't set come from src/tbl/metaflow_settings.def. STK_E_NOT_FOUND: with a did-you-mean
 * and the list of stacks; STK_E_SPEC: with file:line of the mistake. Texts live in `arena`. */
int stk_stack_find(const char *folder, const char *name, stk_arena *arena, stk_stack *ret,
                   stk_err *err);

/* Where one step runs. */
typedef struct stk_place {
    stk_place_kind kind;
    const stk_stack *stack; /* the stack that runs it; for a local step the run's */
    const char *image;      /* mapped; NULL: runs locally, or builds its own dockerfile */
    const char *written;    /* the user's spelling */
    const char *source;     /* "the step", "stack 'x'": where the image was named */
    const char *docker;     /* the step's docker setting (JSON), or NULL */
    const char *options; /* JSON object: the stack's, then the pool's, then the step's; or NULL */
    int64_t max_jobs;    /* elsewhere: at once, as stack, pool and step say */
    const stk_resources *resources; /* elsewhere: includes the stack's defaults; else NULL */
    const stk_pool *pool;           /* elsewhere: the cheapest that fits; NULL: unknown */
    const char *note_many;          /* `note` for several steps, after their names; or NULL */
    const char *note; /* a sentence for the user ("… has no image, it runs locally"), or NULL */
} stk_place;

/* Slurm's jobs run on the node's own system unless an image is named. */
static inline bool stk_place_in_image(const stk_place *place)
{
    return stk_place_has_image(place->kind) ||
           (place->kind == STK_PLACE_SLURM && place->image != NULL);
}

/* Pure. STK_E_SPEC: the step names an unknown backend, or docker or other machines without any
 * image; STK_E_RESOURCES: it requests more than the stack's limits and pools offer. A step that
 * names (or has options for) other machines goes to the run's stack if that has this backend, else
 * to the file's stack of this name or its only one with this backend. If there is none, or the user
 * chose another stack for the run, the step runs where the run does, with a note. */
int stk_stack_place(const stk_stack *stack, const char *step, const stk_settings *settings,
                    stk_arena *arena, stk_place *ret, stk_err *err);
/* STK_E_SPEC: the stack's store is on a host that only this user's ssh reaches, and its jobs aren't
 * this user's. */
int stk_stack_check_store(const stk_stack *stack, stk_err *err);
/* Replaces the longest prefix that matches. If none matches and the image names no registry, puts
 * the stack's image_registry before it; else returns `image` itself. */
const char *stk_stack_map(const stk_stack *stack, const char *image, stk_arena *arena);
/* Can `nodes` nodes of this stack hold these resources? *ret_pool: the cheapest pool that can;
 * NULL: the stack describes none. STK_E_RESOURCES: the error names the nearest pool. */
int stk_stack_fit(const stk_stack *stack, const char *step, const stk_resources *resources,
                  int64_t nodes, stk_arena *arena, const stk_pool **ret_pool, stk_err *err);

#endif
