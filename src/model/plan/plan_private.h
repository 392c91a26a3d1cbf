/* Private to the files of plan. */
#ifndef STK_PLAN_PRIVATE_H
#define STK_PLAN_PRIVATE_H

#include "base/arena.h"
#include "base/map.h"
#include "model/plan/plan.h"

struct stk_plan {
    stk_arena *arena;
    const stk_spec *spec;
    uint32_t n_steps;
    stk_request *requests;
    const char **images; /* by step; NULL: no step has an image */
    const char **hows;   /* by step: digest of how its container runs; NULL if not given */
    /* needs of step i: needs[needs_start[i]] … needs[needs_start[i + 1]]; feeds likewise */
    uint32_t *needs_start, *needs;
    uint32_t *feeds_start, *feeds;
    uint32_t *order;
    const char **notes;
    uint32_t n_notes;
};

/* Steps with the same note share one sentence: "steps 'a' and 'b' asked for WHAT each: WHY". */
typedef struct stk_plan_note_group {
    const char *asked; /* "1 GPU" */
    const char *why,
        *many; /* "this machine has none, it runs on the CPU"; `many`: for several steps */
    uint32_t first[3];
    uint32_t n;
} stk_plan_note_group;

typedef struct stk_plan_requester {
    stk_plan *plan;
    const stk_capacity *cap; /* NULL: unknown, so everything is possible */
    const int64_t *peaks;    /* by step, or NULL */
    stk_policy policy;
    bool is_settled; /* the current step has its result: no notes about it */
    stk_err *err;
    stk_plan_note_group *groups;
    uint32_t n_groups, cap_groups;
    stk_map index; /* the group's words → its index */
    stk_map known; /* settings → the first step with them; the others have the same request */
} stk_plan_requester;

/* plan_graph.c: builds needs, feeds and order; a cycle is STK_E_SPEC. */
int stk_plan_build_graph(stk_plan *plan, stk_err *err);
/* plan_request.c: builds requests and notes. */
int stk_plan_build_requests(stk_plan *plan, const stk_capacity *capacity, const int64_t *peaks,
                            stk_policy policy, const bool *settled, stk_err *err);
int stk_plan_add_note(stk_plan_requester *q, uint32_t i_step, const char *asked, const char *why,
                      const char *many);
int stk_plan_refuse(stk_plan_requester *q, uint32_t i_step, const char *text, const char *hint);

/* plan_devices.c: finds the alternatives of a step's request that are possible here. */
int stk_plan_ask_devices(stk_plan_requester *q, uint32_t i_step, stk_request *request);

/* plan_words.c */
typedef struct stk_plan_kind {
    const char *vendor;
    const char *noun, *nouns;
    bool shared;     /* several processes can share its memory */
    bool neighbours; /* allocated as 1, 2, 4 or 8 neighbours */
} stk_plan_kind;
const stk_plan_kind *stk_plan_kind_of(const char *vendor); /* a GPU's if the vendor is unknown */
/* The kind of device that `want` asks for. */
const stk_plan_kind *stk_plan_kind_asked(const stk_capacity *cap, const stk_alternative *want);
/* "2 GPUs (gpu_class A100)", "10 GB of GPU memory" */
const char *stk_plan_ask_text(const stk_capacity *cap, const stk_alternative *want, char *buf,
                              size_t size);
/* "gpu_class A100, gpu_vendor nvidia" or "" */
const char *stk_plan_kind_text(const stk_alternative *want, char *buf, size_t size);

#endif
