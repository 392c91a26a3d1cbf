/* What the seed decides, and what follows from that. Blocks nest at most G_DEPTH deep, so recursion
 * is bounded. */
#include <stdlib.h>
#include <string.h>

#include "growing.h"
#include "sim.h"

uint32_t g_below(g_world *w, uint32_t n)
{
    return (uint32_t)(sim_hash(w->seed, ++w->random, 2) % n);
}

/* --- a document --- */

static uint32_t new_step(g_world *w)
{
    w->is_full = w->is_full || w->n_steps == G_STEPS;
    return w->is_full ? 0 : w->n_steps++;
}

static uint32_t new_join(g_world *w)
{
    uint32_t step = new_step(w);
    w->steps[step].is_join = true;
    return step;
}

static void lead(g_world *w, uint32_t from, uint32_t to)
{
    g_step *step = &w->steps[from];
    step->grows = step->grows == STK_NEXT_NONE ? STK_NEXT_ALL : step->grows;
    step->next[step->n_next++] = to;
}

static uint32_t draw_block(g_world *w, uint32_t depth);

static g_chain draw_chain(g_world *w, uint32_t depth)
{
    g_chain chain = {.n = 1 + g_below(w, depth == 0 ? 3 : 2)};
    for (uint32_t i = 0; i < chain.n && !w->is_full; i++) {
        chain.blocks[i] = draw_block(w, depth);
        if (i > 0 && !w->is_full) {
            lead(w, w->blocks[chain.blocks[i - 1]].leave, w->blocks[chain.blocks[i]].enter);
        }
    }
    return chain;
}

static uint32_t enter_of(const g_world *w, const g_chain *chain)
{
    return w->blocks[chain->blocks[0]].enter;
}

static uint32_t leave_of(const g_world *w, const g_chain *chain)
{
    return w->blocks[chain->blocks[chain->n - 1]].leave;
}

static void draw_split(g_world *w, g_block *b, uint32_t depth)
{
    b->n_arms = b->kind == G_BRANCH ? 2 + g_below(w, 2) : b->kind == G_FOREACH ? 1 : 0;
    b->enter = new_step(w);
    for (uint32_t i = 0; i < b->n_arms && !w->is_full; i++) {
        b->arms[i] = draw_chain(w, depth + 1);
        if (!w->is_full) {
            lead(w, b->enter, enter_of(w, &b->arms[i]));
        }
    }
    if (b->kind == G_PARALLEL) {
        b->decide = new_step(w);
        lead(w, b->enter, b->decide);
    }
    b->leave = new_join(w);
    for (uint32_t i = 0; i < b->n_arms && !w->is_full; i++) {
        lead(w, leave_of(w, &b->arms[i]), b->leave);
    }
    if (b->kind == G_PARALLEL) {
        lead(w, b->decide, b->leave);
    }
    w->steps[b->enter].grows = b->kind == G_FOREACH    ? STK_NEXT_FOREACH
                               : b->kind == G_PARALLEL ? STK_NEXT_PARALLEL
                                                       : STK_NEXT_ALL;
}

/* Cases of different lengths; the last one is empty. */
static void draw_switch(g_world *w, g_block *b, uint32_t depth)
{
    b->n_arms = 1 + g_below(w, 2);
    b->enter = new_step(w);
    w->steps[b->enter].grows = STK_NEXT_SWITCH;
    for (uint32_t i = 0; i < b->n_arms && !w->is_full; i++) {
        b->arms[i] = draw_chain(w, depth + 1);
        if (!w->is_full) {
            lead(w, b->enter, enter_of(w, &b->arms[i]));
        }
    }
    b->leave = new_step(w);
    for (uint32_t i = 0; i < b->n_arms && !w->is_full; i++) {
        lead(w, leave_of(w, &b->arms[i]), b->leave);
    }
    lead(w, b->enter, b->leave);
}

static void draw_loop(g_world *w, g_block *b, uint32_t depth)
{
    b->n_arms = 1;
    b->arms[0] = draw_chain(w, depth + 1);
    b->decide = new_step(w);
    b->leave = new_step(w);
    if (w->is_full) {
        return;
    }
    b->enter = enter_of(w, &b->arms[0]);
    lead(w, leave_of(w, &b->arms[0]), b->decide);
    w->steps[b->decide].grows = STK_NEXT_SWITCH;
    w->steps[b->decide].is_loop = true;
    lead(w, b->decide, b->enter);
    lead(w, b->decide, b->leave);
}

static uint32_t draw_block(g_world *w, uint32_t depth)
{
    w->is_full = w->is_full || w->n_blocks == G_BLOCKS;
    if (w->is_full) {
        return 0;
    }
    uint32_t i = w->n_blocks++;
    g_block *b = &w->blocks[i];
    b->kind = depth >= G_DEPTH ? G_STEP : (g_kind)g_below(w, G_LOOP + 1);
    if (b->kind == G_STEP) {
        b->enter = b->leave = new_step(w);
    } else if (b->kind == G_SWITCH) {
        draw_switch(w, b, depth);
    } else if (b->kind == G_LOOP) {
        draw_loop(w, b, depth);
    } else {
        draw_split(w, b, depth);
    }
    return i;
}

static void write_step(const g_world *w, uint32_t i, stk_buf *text)
{
    const g_step *step = &w->steps[i];
    bool is_switch = step->grows == STK_NEXT_SWITCH;
    stk_buf_printf(text, "\"s%u\":{\"python\":\"m:f\",\"join\":%s", i,
                   step->is_join ? "true" : "false");
    if (step->n_next > 0) {
        stk_buf_text(text, is_switch ? ",\"switch\":\"v\",\"cases\":{" : ",\"next\":[");
        for (uint32_t k = 0; k < step->n_next; k++) {
            stk_buf_text(text, k == 0 ? "" : ",");
            if (is_switch) {
                stk_buf_printf(text, "\"%u\":", k);
            }
            stk_buf_printf(text, "\"s%u\"", step->next[k]);
        }
        stk_buf_char(text, is_switch ? '}' : ']');
    }
    stk_buf_text(text, step->grows == STK_NEXT_FOREACH    ? ",\"foreach\":\"xs\""
                       : step->grows == STK_NEXT_PARALLEL ? ",\"num_parallel\":3"
                                                          : "");
    stk_buf_char(text, '}');
}

static void draw_once(g_world *w)
{
    w->is_full = false;
    w->n_steps = w->n_blocks = w->n_expected = 0;
    memset(w->steps, 0, sizeof w->steps);
    memset(w->blocks, 0, sizeof w->blocks);
    w->wide = g_below(w, 12) == 0 ? G_WIDTH : 1 + g_below(w, 6);
    w->root = draw_chain(w, 0);
    if (!w->is_full && w->n_steps == 1) { /* a lone step doesn't grow */
        lead(w, 0, new_step(w));
        w->blocks[w->n_blocks++] = (g_block){.enter = 1, .leave = 1};
        w->root.blocks[w->root.n++] = w->n_blocks - 1;
    }
    if (!w->is_full) {
        g_expect(w);
    }
}

void g_draw(g_world *w, stk_buf *text)
{
    do {
        draw_once(w);
    } while (w->is_full);
    uint32_t first = enter_of(w, &w->root);
    stk_buf_text(text, "{\"stoker\":1,\"name\":\"g\",\"steps\":{");
    write_step(w, first, text);
    for (uint32_t i = 0; i < w->n_steps; i++) {
        if (i != first) {
            stk_buf_char(text, ',');
            write_step(w, i, text);
        }
    }
    stk_buf_text(text, "}}");
}

/* --- its tasks --- */

uint64_t g_identity(uint32_t step, const uint64_t *parents, uint32_t n_parents, uint64_t split,
                    uint32_t branch)
{
    uint64_t h = sim_hash(step + 1, split, branch); /* never 0, which means none */
    for (uint32_t i = 0; i < n_parents; i++) {
        h = sim_hash(h, parents[i], i);
    }
    return h;
}

uint32_t g_width(const g_world *w, uint64_t identity)
{
    return 1 + (uint32_t)(sim_hash(w->seed, identity, 3) % w->wide);
}

uint32_t g_choice(const g_world *w, uint32_t step, uint64_t identity)
{
    uint64_t h = sim_hash(w->seed, identity, 4);
    const g_step *s = &w->steps[step];
    return s->is_loop ? (h % 3 == 0 ? 0 : 1) : (uint32_t)(h % s->n_next);
}

typedef struct g_place {
    uint64_t split;
    uint32_t branch;
} g_place;

static uint64_t meet(g_world *w, uint32_t step, const uint64_t *parents, uint32_t n, g_place at)
{
    uint64_t identity = g_identity(step, parents, n, at.split, at.branch);
    w->is_full = w->is_full || w->n_expected == G_TASKS;
    if (!w->is_full) {
        w->expected[w->n_expected++] = identity;
    }
    return identity;
}

static uint64_t walk_block(g_world *w, const g_block *b, uint64_t before, g_place at);

static uint64_t walk_chain(g_world *w, const g_chain *chain, uint64_t before, g_place at)
{
    for (uint32_t i = 0; i < chain->n && !w->is_full; i++) {
        before = walk_block(w, &w->blocks[chain->blocks[i]], before, at);
    }
    return before;
}

static uint64_t walk_split(g_world *w, const g_block *b, uint64_t opener, g_place at)
{
    uint64_t ends[G_WIDTH];
    uint32_t n = b->kind == G_FOREACH ? g_width(w, opener) : b->kind == G_BRANCH ? b->n_arms : 1;
    for (uint32_t i = 0; i < n && !w->is_full; i++) {
        g_place inside = {opener, i};
        ends[i] = b->kind == G_PARALLEL
                      ? meet(w, b->decide, &opener, 1, inside)
                      : walk_chain(w, &b->arms[b->kind == G_FOREACH ? 0 : i], opener, inside);
    }
    return w->is_full ? 0 : meet(w, b->leave, ends, n, at);
}

static uint64_t walk_block(g_world *w, const g_block *b, uint64_t before, g_place at)
{
    uint32_t n_before = before == 0 ? 0 : 1;
    while (b->kind == G_LOOP && !w->is_full) {
        before = walk_chain(w, &b->arms[0], before, at);
        before = meet(w, b->decide, &before, 1, at);
        if (g_choice(w, b->decide, before) != 0) {
            return meet(w, b->leave, &before, 1, at);
        }
    }
    if (w->is_full) {
        return 0;
    }
    uint64_t entered = meet(w, b->enter, &before, n_before, at);
    if (b->kind == G_STEP) {
        return entered;
    }
    if (b->kind != G_SWITCH) {
        return walk_split(w, b, entered, at);
    }
    uint32_t choice = g_choice(w, b->enter, entered);
    if (choice < b->n_arms) {
        entered = walk_chain(w, &b->arms[choice], entered, at);
    }
    return meet(w, b->leave, &entered, 1, at);
}

int g_compare(const void *a, const void *b)
{
    const uint64_t *x = a;
    const uint64_t *y = b;
    return *x < *y ? -1 : *x > *y;
}

void g_expect(g_world *w)
{
    (void)walk_chain(w, &w->root, 0, (g_place){0, 0});
    qsort(w->expected, w->n_expected, sizeof *w->expected, g_compare);
}
