/* plan: pipeline + what this host has → graph, resource requests, cache keys, notes. Pure: no
 * files, no clock.
 *
 * Same input, same bytes out. A plan borrows the spec, which must outlive it.
 */
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

/* One device, slice or chip of it, as in the accel room's list and with its number there. */
typedef struct stk_capacity_device {
    const char *vendor, *noun, *model;
    const char *profile;  /* of a MIG slice, or NULL */
    int64_t memory_bytes; /* -1 unknown */
    int32_t numa, parent; /* -1: unknown, whole */
    bool usable;
    const char *trouble; /* NULL where usable, and for a device that is split into slices */
} stk_capacity_device;

/* Other machines that steps run on. */
typedef struct stk_capacity_place {
    const char *backend; /* "kubernetes" */
    const char *stack;   /* that names them */
    uint32_t max_jobs;   /* at once; 0: no limit */
} stk_capacity_place;

/* Of one step, where some run elsewhere. */
typedef struct stk_capacity_away {
    uint32_t place;                 /* 0: here; else 1 + its index in `places` */
    const stk_resources *resources; /* what it asks for there; NULL: as the step says */
} stk_capacity_away;

/* What the place where tasks run can give at most (not what is free now). */
typedef struct stk_capacity {
    const stk_capacity_device *devices; /* inherited masks applied */
    uint32_t n_devices;
    const uint8_t *links; /* n_devices × n_devices, more is nearer; or NULL */
    const char *where;    /* "this machine" — used in messages */
    const char *remark;   /* why devices may be missing: a mask, a driver that fails; or NULL */
    const char *backend;  /* "local" */
    int64_t cpu_milli;
    int64_t memory_bytes;
    uint32_t n_nodes;         /* that a gang may run on, this one too; 0: not known */
    const char *how_to_nodes; /* how a user gets more: "name them in …" */
    /* Steps that take nothing of this place, whatever it has: who submits them looks at what there
     * is there. */
    const stk_capacity_place *places; /* at most STK_PLAN_PLACES */
    uint32_t n_places;
    const stk_capacity_away *away; /* by step; NULL: none */
} stk_capacity;

/* What the scheduler counts. */
typedef struct stk_request {
    uint32_t place; /* 0: here; else 1 + its index in the capacity's places: it runs elsewhere, and
                       what follows is what it asks for there (cpu_milli 0: it didn't say; asks:
                       none, whatever n_devices is) */
    int64_t cpu_milli;        /* for admission: 1000 where the step didn't say */
    int64_t memory_bytes;     /* 0: not counted */
    uint32_t n_devices;       /* how many, by the first alternative */
    const stk_pack_ask *asks; /* devices: alternatives in order of preference, those that are
                                 possible here; n_asks 0: none */
    uint32_t n_asks;          /* at most STK_LIMIT_ASKS */
    bool gpu_memory_auto; /* share_mib of the asks is what the caller has learned of earlier runs */
    bool limit_cpu;       /* the step asked: affinity and thread counts are set */
    bool limit_memory;    /* the step asked: the limit is enforced */
    bool clamped;         /* policy fit gave less than was asked; a note says so */
    const char
        *refusal; /* of a settled step: why it couldn't run here, should it have to; or NULL */
} stk_request;

typedef struct stk_plan stk_plan;

/* Checks: cycles (STK_E_SPEC, named as a -> b -> a), impossible requests. Under STRICT an
 * impossible request is STK_E_RESOURCES with the nearest thing that works. Under FIT a step that
 * asks for devices runs without where there is none of that sort at all (GPU, TPU chip, Neuron
 * device), and asks for less CPU or memory where there is less, both noted; devices that are there
 * but too few, too small, broken or of another class are errors even so: that is the slow run
 * nobody asked for. `capacity` NULL: only the graph is checked, requests stay as asked.
 * `gpu_peaks`: by step, the most bytes of a device's memory that its earlier runs used, -1 unknown
 * (stk_store_peak); for gpu_memory "auto", and a note where a step asks for less. NULL: nothing is
 * known. */
int stk_plan_new(const stk_spec *spec, const stk_capacity *capacity, const int64_t *gpu_peaks,
                 stk_policy policy, stk_plan **ret_plan, stk_err *err);
/* The same where some steps (by number; NULL: none) have their results already: no note is about
 * these, and what is impossible for them is no error but their request's `refusal`. */
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
/* stk_spec_device_fits of one. */
bool stk_plan_device_fits(const char *gpu_class, const char *gpu_vendor,
                          const stk_capacity_device *device);
/* Devices in words: "2 × NVIDIA A100-SXM4-80GB, Tesla T4", "none"; those in `which`, or, where that
 * is NULL, those that can be used. NULL: out of memory. */
struct stk_arena;
const char *stk_plan_inventory(const stk_capacity *capacity, const stk_devset *which,
                               struct stk_arena *arena);
/* The listed devices as the pack room sees them, all of them free; ret: n_devices of them. */
void stk_plan_pack_devices(const stk_capacity *capacity, stk_pack_device *ret);
/* Steps that i_step waits for (inputs and after, deduplicated), and those that wait for it; in a
 * document that grows those that may lead to it, and to which it may lead: these may go round. */
const uint32_t *stk_plan_needs(const stk_plan *plan, uint32_t i_step, uint32_t *ret_n);
const uint32_t *stk_plan_feeds(const stk_plan *plan, uint32_t i_step, uint32_t *ret_n);
/* A topological order: 0, 1, 2 …, as the spec numbers steps; of a document that grows its own. */
const uint32_t *stk_plan_order(const stk_plan *plan);
uint32_t stk_plan_n_notes(const stk_plan *plan);
const char *stk_plan_note(const stk_plan *plan,
                          uint32_t i_note); /* sentences for the start and the summary */
/* One more note, by whoever knows what the plan can't: what was found out about the devices. */
int stk_plan_remark(stk_plan *plan, stk_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The step runs in this image ("sha256:…"), which is in its key in place of its docker setting;
 * NULL: on a machine itself. `how`: what else is said of its container that its program sees
 * (environment, user …), as canonical text; NULL: nothing. */
int stk_plan_set_image(stk_plan *plan, uint32_t i_step, const char *image, const char *how,
                       stk_err *err);

/* --- cache keys --- */

/* One part of a key, in this order: "command", "cwd" (below the spec's folder, so that a moved
 * project still hits), "code:NAME", then for each input "param:NAME" (values and parameters) or
 * "input:NAME" (contents), "file:PATH", "env:NAME", "outputs", "image" (its id, or for who
 * runs on a machine itself the docker setting), "container" (how it runs in it, a digest), "salt",
 * "runtime" (Python steps outside of images: origin.python), "next" (of a step with such) and what
 * stk_plan_key_seeing is given, by name. Resources are no part of it. `value` is short text, or
 * "sha256:" and a digest where the text is long; values of the environment are always digests. */
typedef struct stk_key_part {
    const char *name;
    const char *value;
} stk_key_part;

typedef struct stk_key {
    char hex[STK_DIGEST_HEX + 1];
    stk_key_part *parts;
    uint32_t n_parts;
} stk_key;

/* Content digests of a step's inputs, in the order of step->inputs; list inputs: the caller gives
 * one digest made by stk_plan_list_digest. VALUE, PARAM and ARTIFACT inputs: pass NULL, the plan
 * uses what the spec says. Inputs that the cache policy ignores may be NULL too. `file_digests`:
 * one for each of settings->cache.files. parts are allocated in `arena`. */
int stk_plan_key(const stk_plan *plan, uint32_t i_step, const char *const *input_digests,
                 const char *const *file_digests, struct stk_arena *arena, stk_key *ret_key,
                 stk_err *err);
/* The same of a task of a document that grows, which sees more than its step says. `seen`: further
 * parts, each by content, in an order that means nothing: "artifact:NAME" of its scope, "item",
 * "index", "joined" (of a join: the list digest of its inputs' scopes), "ranks". What comes next is
 * a part by itself: a stored result says what it was. */
int stk_plan_key_seeing(const stk_plan *plan, uint32_t i_step, const char *const *input_digests,
                        const char *const *file_digests, const stk_pair *seen, uint32_t n_seen,
                        struct stk_arena *arena, stk_key *ret_key, stk_err *err);
void stk_plan_list_digest(const char *const *digests, uint32_t n, char ret_hex[STK_DIGEST_HEX + 1]);
/* The parts as JSON text ({"name": "value", …}), to be stored with a cache entry. */
const char *stk_plan_key_json(const stk_key *key, struct stk_arena *arena);
/* Why `key` missed, against the parts (JSON) of the step's last stored entry: "input 'data'
 * changed", "code of 'train' changed", "parameter lr changed from 0.1 to 0.2"; "never ran before"
 * when parts_json is NULL; "its stored result has expired or is gone" when no part differs. */
const char *stk_plan_miss(const stk_key *key, const char *parts_json, struct stk_arena *arena);

#endif
