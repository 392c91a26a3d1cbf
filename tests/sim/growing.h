/* growing: runs of graphs that grow, each from one seed. growing_world.c draws a document and
 * finds, by walking its blocks, which tasks a run of it has; growing.c plays the engine, with the
 * room grow and the scheduler, and is killed. */
#ifndef STK_SIM_GROWING_H
#define STK_SIM_GROWING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "model/spec/spec.h"

enum { G_STEPS = 128, G_BLOCKS = 96, G_TASKS = 3000, G_WIDTH = 400, G_ARMS = 3, G_DEPTH = 3 };

typedef enum { G_STEP, G_BRANCH, G_FOREACH, G_PARALLEL, G_SWITCH, G_LOOP } g_kind;

typedef struct g_step {
    stk_next_kind grows;
    uint32_t next[G_ARMS + 1], n_next;
    bool is_join, is_loop;
} g_step;

typedef struct g_chain {
    uint32_t blocks[3], n;
} g_chain;

/* A part of the graph with one way in and one way out. */
typedef struct g_block {
    g_kind kind;
    g_chain arms[G_ARMS];
    uint32_t n_arms;
    uint32_t decide; /* LOOP: the step with the switch; PARALLEL: the gang */
    uint32_t enter, leave;
} g_block;

typedef struct g_world {
    uint64_t seed, random;
    g_step steps[G_STEPS];
    uint32_t n_steps;
    g_block blocks[G_BLOCKS];
    uint32_t n_blocks;
    g_chain root;
    uint32_t wide; /* the most items of a foreach */
    bool is_full;  /* too large: another one is drawn */
    uint64_t expected[G_TASKS];
    uint32_t n_expected;
} g_world;

uint32_t g_below(g_world *w, uint32_t n);
/* A document (JSON) whose first step is where a run begins; steps are called s0, s1 … */
void g_draw(g_world *w, stk_buf *text);
/* The identity of a task, from step, inputs and branch: the same however the graph is walked. */
uint64_t g_identity(uint32_t step, const uint64_t *parents, uint32_t n_parents, uint64_t split,
                    uint32_t branch);
/* What a task decides: the width of its foreach, the place of the chosen step in `next`. */
uint32_t g_width(const g_world *w, uint64_t identity);
uint32_t g_choice(const g_world *w, uint32_t step, uint64_t identity);
/* Fills `expected`, sorted. */
void g_expect(g_world *w);
int g_compare(const void *a, const void *b); /* of identities */

#endif
