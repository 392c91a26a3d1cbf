/* plan: pipeline + host capacity → graph, resource requests, cache keys, notes. Pure: no files, no
 * clock.
 *
 * Deterministic: the same input gives the same bytes. A plan borrows the spec, which must outlive
 * it. */
#ifndef STK_PLAN_H
#define STK_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"
#include "base/event.h"
#include "model/pack/pack.h"
#include "model/spec/spec.h"

enum { STK_PLAN_PLACES = 4 };

/* One device, slice or chip, with its number in the accel room's list. */
typedef struct stk_capacity_device {
    const char *vendor, *noun, *model;
    const char *profile;  /* of a MIG slice, or NULL */
    int64_t memory_bytes; /* -1 unknown */
    int32_t numa, parent; /* -1: unknown NUMA node; not a slice */
    bool usable;
    const char
        *trouble; /* why it can't be used; NULL: usable, or a device that is split into slices */
} stk_capacity_device;

/* Other machines that steps run on. */
typedef struct stk_capacity_place {
    const char *backend; /* "kubernetes" */
    const char *stack;   /* name of the stack that defines them */
    uint32_t max_jobs;   /* most jobs at once; 0: no limit */
} stk_capacity_place;

/* One step's place, where some steps run elsewhere. */
typedef struct stk_capacity_away {
    uint32_t place;                 /* 0: here; else 1 + its index in `places` */
    const stk_resources *resources; /* its request there; NULL: the step's own */
} stk_capacity_away;

/* The most that the place where tasks run can give (not what is free now). */
typedef struct stk_capacity {
    const stk_capacity_device *devices; /* only those that inherited masks leave visible */
    uint32_t n_devices;
    const uint8_t *links; /* n_devices × n_devices, more is nearer; or NULL */
    const char *where;    /* "this machine" — used in messages */
    const char *remark;   /* why devices may be missing: a mask, a failing driver; or NULL */
    const char *backend;  /* "local" */
    int64_t cpu_milli;
    int64_t memory_bytes;
    uint32_t n_nodes;         /* machines that a gang may run on, including this one; 0: unknown */
    const char *how_to_nodes; /* how a user gets more: "name them in …" */
    /* Places of steps that take nothing of this machine. Whoever submits them checks the capacity
     * there. */
    const stk_capacity_place *places; /* at most STK_PLAN_PLACES */
    uint32_t n_places;
    const stk_capacity_away *away; /* by step; NULL: none */
} stk_capacity;

/* The amounts that the scheduler counts. */
typedef struct stk_request {
    uint32_t place;           /* 0: here; else 1 + its index in the capacity's places: the step runs
                                 elsewhere, and the fields below are its request there (cpu_milli 0: not
                                 given; no asks, whatever n_devices is) */
    int64_t cpu_milli;        /* for admission: 1000 if the step doesn't give it */
    int64_t memory_bytes;     /* 0: not counted */
    uint32_t n_devices;       /* of the first alternative */
    const stk_pack_ask *asks; /* the alternatives that are possible here, in order of preference;
                                 n_asks 0: no devices */
    uint32_t n_asks;          /* at most STK_LIMIT_ASKS */
    bool gpu_memory_auto;     /* share_mib of the asks comes from earlier runs */
    bool limit_cpu;           /* the step asked for CPUs: affinity and thread counts are set */
    bool limit_memory;        /* the step asked for memory: the limit is enforced */
    bool clamped;             /* policy fit reduced the request; a note says so */
    bool is_settled;          /* the step has its result */
    const char
        *refusal; /* for a step that has its result: why it couldn't run here again; or NULL */
} stk_request;

typedef struct stk_plan stk_plan;

/* Fails on cycles (STK_E_SPEC, named as a -> b -> a) and impossible requests. Under STRICT an
 * impossible request is STK_E_RESOURCES with the nearest possible one. Under FIT a step that asks
 * for devices runs without if there is none of that sort at all (GPU, TPU chip, Neuron device), and
 * asks for less CPU or memory if there is less; notes say so. Devices that exist but are too few,
 * too small, broken or of another class are errors even under FIT, because the step would run
 * slowly unnoticed. `capacity` NULL: checks only the graph; requests stay as asked. `gpu_peaks`: by
 * step, the most bytes of a device's memory that its earlier runs used, -1 unknown
 * (stk_store_peak). They set gpu_memory "auto", and give a note if a step asks for less. NULL: all
 * unknown. */
int stk_plan_new(const stk_spec *spec, const stk_capacity *capacity, const int64_t *gpu_peaks,
                 stk_policy policy, stk_plan **ret_plan, stk_err *err);
/* The same if some steps (by number; NULL: none) already have their results: these get no notes,
 * and an impossible request of theirs sets its `refusal` instead of failing. */
int stk_plan_new_rest(const stk_spec *spec, const stk_capacity *capacity, const int64_t *gpu_peaks,
                      stk_policy policy, const bool *settled, stk_plan **ret_plan, stk_err *err);
void stk_plan_free(stk_plan *plan);
static inline void stk_plan_free_auto(stk_plan **owned)
{
    stk_plan_free(*owned);
}
#define STK_PLAN_AUTO __attribute__((cleanup(stk_plan_free_auto))) stk_plan *

const stk_spec *stk_plan_spec(const stk_plan *plan);
const stk_request *stk_plan_request(const stk_plan *plan, uint32_t i_step);
/* stk_spec_device_fits for a stk_capacity_device. */
bool stk_plan_device_fits(const char *gpu_class, const char *gpu_vendor,
                          const stk_capacity_device *device);
/* Describes devices: "2 × NVIDIA A100-SXM4-80GB, Tesla T4", "none". `which` NULL: all usable ones.
 * Returns NULL when out of memory. */
struct stk_arena;
const char *stk_plan_inventory(const stk_capacity *capacity, const stk_devset *which,
                               struct stk_arena *arena);
/* The devices in the pack room's form, all of them free; `ret` has room for n_devices. */
void stk_plan_pack_devices(const stk_capacity *capacity, stk_pack_device *ret);
/* Steps that i_step waits for (inputs and after, deduplicated), and those that wait for it. In a
 * document that grows: its possible predecessors and successors, which may form loops. */
const uint32_t *stk_plan_needs(const stk_plan *plan, uint32_t i_step, uint32_t *ret_n);
const uint32_t *stk_plan_feeds(const stk_plan *plan, uint32_t i_step, uint32_t *ret_n);
/* A topological order: 0, 1, 2 …, as the spec numbers steps; for a document that grows, the plan
 * computes one. */
const uint32_t *stk_plan_order(const stk_plan *plan);
uint32_t stk_plan_n_notes(const stk_plan *plan);
const char *stk_plan_note(const stk_plan *plan,
                          uint32_t i_note); /* sentences for the start and the summary */
/* Adds a note from outside of the plan, such as what was found out about the devices. */
int stk_plan_remark(stk_plan *plan, stk_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Sets the step's image ("sha256:…"), which replaces its docker setting in the key; NULL: it runs
 * without a container. `how`: other settings of its container that its program can see
 * (environment, user …), as canonical text; NULL: none. */
int stk_plan_set_image(stk_plan *plan, uint32_t i_step, const char *image, const char *how,
                       stk_err *err);

/* --- cache keys --- */

/* One part of a key. The parts in order: "command", "cwd" (relative to the spec's folder, so that a
 * moved project still hits), "code:NAME", then for each input "param:NAME" (values and parameters)
 * or "input:NAME" (contents), "file:PATH", "env:NAME", "outputs", "image" (its id; without a
 * container, the docker setting), "container" (how it runs in it, a digest), "salt", "runtime"
 * (Python steps outside of images: origin.python), "next" (of a step that has one) and the parts
 * passed to stk_plan_key_seeing, by name. Resources are not part of a key. `value` is short text,
 * or "sha256:" and a digest of longer text; values of the environment are always digests. */
typedef struct stk_key_part {
    const char *name;
    const char *value;
} stk_key_part;

typedef struct stk_key {
    char hex[STK_DIGEST_HEX + 1];
    stk_key_part *parts;
    uint32_t n_parts;
} stk_key;

/* `input_digests`: content digests of a step's inputs, in the order of step->inputs; for a list
 * input one digest from stk_plan_list_digest. Pass NULL for VALUE, PARAM and ARTIFACT inputs: the
 * plan uses the spec. Inputs that the cache policy ignores may be NULL too. `file_digests`: one for
 * each of settings->cache.files. Parts are allocated in `arena`. */
int stk_plan_key(const stk_plan *plan, uint32_t i_step, const char *const *input_digests,
                 const char *const *file_digests, struct stk_arena *arena, stk_key *ret_key,
                 stk_err *err);
/* The same for a task of a document that grows, which sees more than its step declares. `seen`:
 * further parts, each by content, in any order: "artifact:NAME" of its scope, "item", "index",
 * "joined" (of a join: the list digest of its inputs' scopes), "ranks". The successors are a
 * separate part, because a stored result names the ones it chose. */
int stk_plan_key_seeing(const stk_plan *plan, uint32_t i_step, const char *const *input_digests,
                        const char *const *file_digests, const stk_pair *seen, uint32_t n_seen,
                        struct stk_arena *arena, stk_key *ret_key, stk_err *err);
void stk_plan_list_digest(const char *const *digests, uint32_t n, char ret_hex[STK_DIGEST_HEX + 1]);
/* The parts as JSON text ({"name": "value", …}), stored with a cache entry. */
const char *stk_plan_key_json(const stk_key *key, struct stk_arena *arena);
/* Explains why `key` missed, by comparing with the parts (JSON) of the step's last stored entry:
 * "input 'data' changed", "code of 'train' changed", "parameter lr changed from 0.1 to 0.2"; "never
 * ran before" if parts_json is NULL; "its stored result has expired or is gone" if no part differs.
 */
const char *stk_plan_miss(const stk_key *key, const char *parts_json, struct stk_arena *arena);

#endif
