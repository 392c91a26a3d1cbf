/* plan: what its files share. */
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
    const char **images; /* by step; NULL: no step has one */
    const char **hows;   /* with it: how containers run, as digests; NULL where nothing is said */
    /* needs of step i: needs[needs_start[i]] … needs[needs_start[i + 1]]; feeds likewise */
    uint32_t *needs_start, *needs;
    uint32_t *feeds_start, *feeds;
    uint32_t *order;
    const char **notes;
    uint32_t n_notes;
};

/* Steps that get the same note share one sentence: "steps 'a' and 'b' asked for WHAT each: WHY". */
typedef struct stk_plan_note_group {
    const char *asked;      /* "1 GPU" */
    const char *why, *many; /* "this machine has none, it runs on the CPU"; said of several */
    uint32_t first[3];
    uint32_t n;
} stk_plan_note_group;

typedef struct stk_plan_requester {
    stk_plan *plan;
    const stk_capacity *cap; /* NULL: unknown, everything is possible */
    const int64_t *peaks;    /* by step, or NULL */
    stk_policy policy;
    bool is_settled; /* the step at hand: nothing is said of it */
    stk_err *err;
    stk_plan_note_group *groups;
    uint32_t n_groups, cap_groups;
    stk_map index; /* the group's words → its index */
    stk_map known; /* settings → the first step that has them: the others ask for the same */
} stk_plan_requester;

/* plan_graph.c: needs, feeds and order; a cycle is STK_E_SPEC. */
int stk_plan_build_graph(stk_plan *plan, stk_err *err);
/* plan_request.c: requests and notes. */
int stk_plan_build_requests(stk_plan *plan, const stk_capacity *capacity, const int64_t *peaks,
                            stk_policy policy, const bool *settled, stk_err *err);
int stk_plan_add_note(stk_plan_requester *q, uint32_t i_step, const char *asked, const char *why,
                      const char *many);
int stk_plan_refuse(stk_plan_requester *q, uint32_t i_step, const char *text, const char *hint);

/* plan_devices.c: the alternatives of a step's request that are possible here. */
int stk_plan_ask_devices(stk_plan_requester *q, uint32_t i_step, stk_request *request);

/* plan_words.c */
typedef struct stk_plan_kind {
    const char *vendor;
    const char *noun, *nouns;
    bool shared;     /* several processes can hold parts of its memory */
    bool neighbours; /* come in 1, 2, 4 or 8, side by side */
} stk_plan_kind;
const stk_plan_kind *stk_plan_kind_of(const char *vendor); /* a GPU's where it isn't known */
/* The kind that is asked for. */
const stk_plan_kind *stk_plan_kind_asked(const stk_capacity *cap, const stk_alternative *want);
/* "2 GPUs (gpu_class A100)", "10 GB of GPU memory" */
const char *stk_plan_ask_text(const stk_capacity *cap, const stk_alternative *want, char *buf,
                              size_t size);
/* "gpu_class A100, gpu_vendor nvidia" or "" */
const char *stk_plan_kind_text(const stk_alternative *want, char *buf, size_t size);

#endif
