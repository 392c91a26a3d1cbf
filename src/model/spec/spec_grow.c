/* Checks the templates of a growing document. Walks them from the first step and tracks which
 * splits are open.
 *
 * `top` is the innermost open split before a step. The top of that split is the next one further
 * out, since each step has one. Nothing recurses. */
#include <stdio.h>
#include <string.h>

#include "model/spec/spec_read.h"

#define NONE UINT32_MAX

typedef struct growth {
    stk_spec_reader *r;
    const stk_json *map; /* the document's steps */
    stk_step *steps;
    uint32_t n;
    bool *seen;
    uint32_t *top;   /* by step: the innermost split open before it, or NONE */
    uint32_t *from;  /* by step: the step that reached it first */
    uint32_t *join;  /* by split: where its branches meet, or NONE */
    uint32_t *queue; /* steps to continue from */
    uint32_t n_queue;
} growth;

/* The node to report an error about a step at: its `key`, or ("") its name. */
static const stk_json *at(const growth *g, uint32_t i, const char *key)
{
    const stk_json *node = stk_json_get(stk_json_value(g->map, i), key);
    g->r->step = g->steps[i].name;
    return node != NULL ? node : stk_json_key(g->map, i);
}

static const stk_json *at_next(const growth *g, uint32_t i)
{
    bool cases = g->steps[i].grows == STK_NEXT_SWITCH;
    return at(g, i, cases ? "cases" : "next");
}

static bool is_split(const stk_step *step)
{
    return step->grows == STK_NEXT_FOREACH || step->grows == STK_NEXT_PARALLEL ||
           (step->grows == STK_NEXT_ALL && step->n_next > 1);
}

/* --- the walk --- */

static int reach(growth *g, uint32_t i, uint32_t target, uint32_t top)
{
    if (!g->seen[target]) {
        g->seen[target] = true;
        g->top[target] = top;
        g->from[target] = i;
        g->steps[target].in_foreach =
            top != NONE && (g->steps[top].grows == STK_NEXT_FOREACH || g->steps[top].in_foreach);
        g->queue[g->n_queue++] = target;
        return 0;
    }
    if (g->top[target] == top) {
        return 0;
    }
    uint32_t tops[2] = {g->top[target], top};
    char words[2][STK_LIMIT_NAME + 40];
    for (int k = 0; k < 2; k++) {
        if (tops[k] == NONE) {
            (void)snprintf(words[k], sizeof words[k], "outside every split");
        } else {
            (void)snprintf(words[k], sizeof words[k], "within the split of '%s'",
                           g->steps[tops[k]].name);
        }
    }
    uint32_t first = g->from[target];
    char from[STK_LIMIT_NAME + 40] = "and as the run's first step";
    if (first != NONE) {
        (void)snprintf(from, sizeof from, "from '%s'", g->steps[first].name);
    }
    stk_spec_fail(g->r, at_next(g, i), "'%s' is reached %s from here, but also %s %s",
                  g->steps[target].name, words[1], from, words[0]);
    stk_err_hint(g->r->err, "close the split with a join first, or name another step");
    return STK_E_SPEC;
}

static int reach_join(growth *g, uint32_t i, uint32_t target, uint32_t split)
{
    const char *name = g->steps[target].name;
    if (split == NONE) {
        stk_spec_fail(g->r, at_next(g, i), "'%s' is a join, but no split is open here", name);
        stk_err_hint(g->r->err, "remove 'join' from '%s', or split before it", name);
        return STK_E_SPEC;
    }
    if (split == i) {
        stk_spec_fail(g->r, at_next(g, i),
                      "'%s' is a join, but a branch needs at least one step before its join", name);
        stk_err_hint(g->r->err, "put a step in between");
        return STK_E_SPEC;
    }
    if (g->join[split] != NONE && g->join[split] != target) {
        stk_spec_fail(g->r, at_next(g, i), "branches of '%s' end in two joins, '%s' and '%s'",
                      g->steps[split].name, name, g->steps[g->join[split]].name);
        stk_err_hint(g->r->err, "lead all of them to one join");
        return STK_E_SPEC;
    }
    g->join[split] = target;
    return reach(g, i, target, g->top[split]);
}

/* num_parallel starts one gang, and all its ranks go to the same join. */
static int check_gang(const growth *g, uint32_t i)
{
    const stk_step *gang = &g->steps[g->steps[i].next[0]];
    if (gang->grows == STK_NEXT_ALL && gang->n_next == 1 && g->steps[gang->next[0]].is_join) {
        return 0;
    }
    stk_spec_fail(g->r, at_next(g, i),
                  "'%s' starts by 'num_parallel', so its 'next' must be exactly one join",
                  gang->name);
    stk_err_hint(g->r->err, "give '%s' a next step with join: true", gang->name);
    return STK_E_SPEC;
}

static int walk_step(growth *g, uint32_t i)
{
    const stk_step *step = &g->steps[i];
    uint32_t top = is_split(step) ? i : g->top[i];
    if (step->n_next == 0 && top != NONE) {
        stk_spec_fail(g->r, at(g, i, ""), "the graph ends here while the split of '%s' is open",
                      g->steps[top].name);
        stk_err_hint(g->r->err, "lead its branches to a step with join: true");
        return STK_E_SPEC;
    }
    for (uint32_t k = 0; k < step->n_next; k++) {
        uint32_t target = step->next[k];
        if (g->steps[target].is_join) {
            STK_TRY(reach_join(g, i, target, top));
        } else {
            STK_TRY(reach(g, i, target, top));
        }
    }
    if (step->grows == STK_NEXT_PARALLEL) {
        return check_gang(g, i);
    }
    return 0;
}

static int walk_steps(growth *g)
{
    bool has_end = false;
    if (g->steps[0].is_join) {
        return stk_spec_fail(g->r, at(g, 0, "join"),
                             "the first step of a document can't be a join");
    }
    STK_TRY(reach(g, NONE, 0, NONE));
    for (uint32_t i = 0; i < g->n_queue; i++) {
        has_end = has_end || g->steps[g->queue[i]].n_next == 0;
        STK_TRY(walk_step(g, g->queue[i]));
    }
    for (uint32_t i = 0; i < g->n; i++) {
        if (!g->seen[i]) {
            stk_spec_fail(g->r, at(g, i, ""), "no path leads here from the first step, '%s'",
                          g->steps[0].name);
            stk_err_hint(g->r->err, "name it in the 'next' of a step, or remove it");
            return STK_E_SPEC;
        }
    }
    if (!has_end) {
        stk_spec_fail(g->r, at(g, 0, ""), "every step has a 'next', so a run would never end");
        stk_err_hint(g->r->err, "remove 'next' from the last step");
        return STK_E_SPEC;
    }
    return 0;
}

/* --- circles --- */

/* Each step left (n_in above 0) has a predecessor that is also left, so following predecessors ends
 * on a cycle. */
static int say_circle(growth *g, const uint32_t *n_in)
{
    uint32_t at_step = NONE;
    for (uint32_t i = 0; i < g->n; i++) {
        for (uint32_t k = 0; n_in[i] > 0 && g->steps[i].cases == NULL && k < g->steps[i].n_next;
             k++) {
            g->from[g->steps[i].next[k]] = i;
            at_step = i;
        }
    }
    for (uint32_t i = 0; i < g->n; i++) {
        at_step = g->from[at_step];
    }
    while (g->from[at_step] < at_step) { /* to the step that leads back in the document */
        at_step = g->from[at_step];
    }
    stk_spec_fail(g->r, at_next(g, g->from[at_step]),
                  "'%s' leads back to itself without a switch, so a run would never end",
                  g->steps[at_step].name);
    stk_err_hint(g->r->err, "leave the loop by a step with 'switch' and 'cases'");
    return STK_E_SPEC;
}

/* Only a switch may lead back: without the edges of switches there must be no cycle. */
static int check_circles(growth *g, stk_arena *scratch)
{
    uint32_t *n_in = stk_arena_array(scratch, g->n, sizeof *n_in);
    uint32_t n_free = 0;
    if (n_in == NULL) {
        return stk_spec_no_memory(g->r);
    }
    for (uint32_t i = 0; i < g->n; i++) {
        for (uint32_t k = 0; g->steps[i].cases == NULL && k < g->steps[i].n_next; k++) {
            n_in[g->steps[i].next[k]]++;
        }
    }
    for (uint32_t i = 0; i < g->n; i++) {
        if (n_in[i] == 0) {
            g->queue[n_free++] = i;
        }
    }
    for (uint32_t j = 0; j < n_free; j++) {
        const stk_step *step = &g->steps[g->queue[j]];
        for (uint32_t k = 0; step->cases == NULL && k < step->n_next; k++) {
            if (--n_in[step->next[k]] == 0) {
                g->queue[n_free++] = step->next[k];
            }
        }
    }
    if (n_free == g->n) {
        return 0;
    }
    return say_circle(g, n_in);
}

/* --- what steps refer to --- */

static int check_source(const growth *g, uint32_t i, const stk_input *input, const char *name,
                        const uint32_t *mark)
{
    if (input->kind == STK_INPUT_ITEM && !g->steps[i].in_foreach) {
        stk_spec_fail(g->r, at(g, i, "inputs"),
                      "inputs.%s: {item: true} needs a foreach around the step", name);
        stk_err_hint(g->r->err, "lead to this step from one with 'foreach'");
        return STK_E_SPEC;
    }
    if (input->kind == STK_INPUT_OUTPUT && mark[input->step] != i + 1) {
        stk_spec_fail(g->r, at(g, i, "inputs"), "inputs.%s: 'next' of '%s' doesn't name this step",
                      name, g->steps[input->step].name);
        stk_err_hint(g->r->err,
                     "in a graph of 'next', 'from' must name a step whose 'next' is this one");
        return STK_E_SPEC;
    }
    return 0;
}

/* `mark`: i + 1 for each direct predecessor of i. */
static int check_links(const growth *g, uint32_t i, const uint32_t *mark)
{
    const stk_step *step = &g->steps[i];
    int rc = 0;
    for (uint32_t k = 0; rc == 0 && k < step->n_inputs; k++) {
        const stk_input *input = &step->inputs[k];
        rc = check_source(g, i, input, input->name, mark);
        for (uint32_t j = 0; rc == 0 && j < input->n_items; j++) {
            rc = check_source(g, i, &input->items[j], input->name, mark);
        }
    }
    for (uint32_t k = 0; rc == 0 && k < step->n_after; k++) {
        if (mark[step->after[k]] != i + 1) {
            stk_spec_fail(g->r, at(g, i, "after"), "after: 'next' of '%s' doesn't name this step",
                          g->steps[step->after[k]].name);
            stk_err_hint(g->r->err,
                         "in a graph of 'next', only 'next' orders the steps; remove 'after'");
            return STK_E_SPEC;
        }
    }
    return rc;
}

/* `before`[start[i] … start[i + 1]] are the direct predecessors of step i. */
static int predecessors(const growth *g, stk_arena *scratch, uint32_t **ret_start,
                        uint32_t **ret_before)
{
    uint32_t *start = stk_arena_array(scratch, (size_t)g->n + 2, sizeof *start);
    uint64_t n = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        n += g->steps[i].n_next;
    }
    uint32_t *before = stk_arena_array(scratch, n + 1, sizeof *before);
    if (start == NULL || before == NULL || n >= NONE) {
        return stk_spec_no_memory(g->r);
    }
    for (uint32_t i = 0; i < g->n; i++) {
        for (uint32_t k = 0; k < g->steps[i].n_next; k++) {
            start[g->steps[i].next[k] + 2]++;
        }
    }
    for (uint32_t i = 0; i < g->n; i++) {
        start[i + 2] += start[i + 1];
    }
    for (uint32_t i = 0; i < g->n; i++) { /* moves start[i + 1] from its begin to its end */
        for (uint32_t k = 0; k < g->steps[i].n_next; k++) {
            before[start[g->steps[i].next[k] + 1]++] = i;
        }
    }
    *ret_start = start;
    *ret_before = before;
    return 0;
}

static int check_all_links(const growth *g, stk_arena *scratch)
{
    uint32_t *mark = stk_arena_array(scratch, g->n, sizeof *mark);
    uint32_t *start = NULL;
    uint32_t *before = NULL;
    STK_TRY(stk_spec_if_null(g->r, mark));
    STK_TRY(predecessors(g, scratch, &start, &before));
    for (uint32_t i = 0; i < g->n; i++) {
        for (uint32_t k = start[i]; k < start[i + 1]; k++) {
            mark[before[k]] = i + 1;
        }
        STK_TRY(check_links(g, i, mark));
    }
    return 0;
}

/* Rejects `next: [a, a]`. */
static int check_doubles(const growth *g, stk_arena *scratch)
{
    uint32_t *mark = stk_arena_array(scratch, g->n, sizeof *mark);
    if (mark == NULL) {
        return stk_spec_no_memory(g->r);
    }
    for (uint32_t i = 0; i < g->n; i++) {
        for (uint32_t k = 0; g->steps[i].cases == NULL && k < g->steps[i].n_next; k++) {
            uint32_t target = g->steps[i].next[k];
            if (mark[target] == i + 1) {
                stk_spec_fail(g->r, at_next(g, i), "'next' names '%s' twice",
                              g->steps[target].name);
                stk_err_hint(g->r->err, "to run a step several times use 'foreach'");
                return STK_E_SPEC;
            }
            mark[target] = i + 1;
        }
    }
    return 0;
}

/* Rejects keys that have a meaning only in a document whose steps have a `next`. */
static int check_static(stk_spec_reader *r, const stk_json *map)
{
    growth g = {.r = r, .map = map, .steps = r->spec->steps, .n = r->spec->n_steps};
    static const char need[] = "'%s' needs steps with 'next', and this document has none";
    for (uint32_t i = 0; i < g.n; i++) {
        const stk_step *step = &g.steps[i];
        if (step->is_join || step->fallback) {
            const char *key = step->is_join ? "join" : "fallback";
            return stk_spec_fail(r, at(&g, i, key), need, key);
        }
        for (uint32_t k = 0; k < step->n_inputs; k++) {
            if (step->inputs[k].kind == STK_INPUT_ITEM) {
                return stk_spec_fail(r, at(&g, i, "inputs"), need, "item");
            }
        }
    }
    return 0;
}

int stk_spec_check_growth(stk_spec_reader *r, const stk_json *map)
{
    uint32_t n = r->spec->n_steps;
    for (uint32_t i = 0; i < n && !r->spec->grows; i++) {
        r->spec->grows = r->spec->steps[i].grows != STK_NEXT_NONE;
    }
    if (!r->spec->grows) {
        return check_static(r, map);
    }
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    growth g = {.r = r, .map = map, .steps = r->spec->steps, .n = n};
    uint32_t **arrays[] = {&g.top, &g.from, &g.join, &g.queue};
    for (size_t i = 0; scratch != NULL && i < sizeof arrays / sizeof *arrays; i++) {
        *arrays[i] = stk_arena_array(scratch, n, sizeof **arrays[i]);
    }
    if (scratch != NULL) {
        g.seen = stk_arena_array(scratch, n, sizeof *g.seen);
    }
    if (g.top == NULL || g.from == NULL || g.join == NULL || g.queue == NULL || g.seen == NULL) {
        return stk_spec_no_memory(r);
    }
    memset(g.join, 0xff, n * sizeof *g.join);
    STK_TRY(check_doubles(&g, scratch));
    STK_TRY(walk_steps(&g));
    STK_TRY(check_circles(&g, scratch));
    STK_TRY(check_all_links(&g, scratch));
    r->step = NULL;
    return 0;
}
