/* Builds the graph: dependencies, order, and the check for cycles. Nothing here recurses or is
 * quadratic, because chains of a hundred thousand steps and steps with ten thousand inputs are
 * ordinary. */
#include <string.h>

#include "base/buf.h"
#include "model/plan/plan_private.h"

/* Finds edges from one side: from the step that needs, or, in a document that grows, from the step
 * that leads to the next. Reversing them gives the other side. The first walk only counts. `mark`
 * merges several inputs from the same step into one edge: mark[j] == i + 1 if step i already has j.
 */
typedef struct edges {
    uint32_t *mark;
    uint32_t *ends; /* NULL: only count */
    uint64_t n;
} edges;

static void add_edge(edges *e, uint32_t i_step, uint32_t other)
{
    if (e->mark[other] == i_step + 1) {
        return;
    }
    e->mark[other] = i_step + 1;
    if (e->ends != NULL) {
        e->ends[e->n] = other;
    }
    e->n++;
}

static void walk_step(edges *e, const stk_step *step, uint32_t i_step, bool grows)
{
    if (grows) {
        for (uint32_t i = 0; i < step->n_next; i++) {
            add_edge(e, i_step, step->next[i]);
        }
        return;
    }
    for (uint32_t i = 0; i < step->n_inputs; i++) {
        const stk_input *input = &step->inputs[i];
        if (input->kind == STK_INPUT_OUTPUT) {
            add_edge(e, i_step, input->step);
        }
        for (uint32_t j = 0; j < input->n_items; j++) {
            if (input->items[j].kind == STK_INPUT_OUTPUT) {
                add_edge(e, i_step, input->items[j].step);
            }
        }
    }
    for (uint32_t i = 0; i < step->n_after; i++) {
        add_edge(e, i_step, step->after[i]);
    }
}

static int find_edges(stk_plan *plan, uint32_t **ret_start, uint32_t **ret_ends, stk_err *err)
{
    uint32_t n = plan->n_steps;
    bool grows = stk_spec_grows(plan->spec);
    edges e = {.mark = stk_arena_array(plan->arena, n, sizeof *e.mark)};
    uint32_t *start = stk_arena_array(plan->arena, (size_t)n + 1, sizeof *start);
    if (e.mark == NULL || start == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < n; i++) {
        walk_step(&e, stk_spec_step(plan->spec, i), i, grows);
        if (e.n > UINT32_MAX) {
            return stk_err_set(err, STK_E_LIMIT, "the graph has more than %u links between steps",
                               UINT32_MAX);
        }
        start[i + 1] = (uint32_t)e.n;
    }
    e.ends = stk_arena_array(plan->arena, e.n, sizeof *e.ends);
    STK_TRY(stk_err_if_null(e.ends, err));
    memset(e.mark, 0, n * sizeof *e.mark);
    e.n = 0;
    for (uint32_t i = 0; i < n; i++) {
        walk_step(&e, stk_spec_step(plan->spec, i), i, grows);
    }
    *ret_start = start;
    *ret_ends = e.ends;
    return 0;
}

/* Reverses the edges. */
static int turn_round(stk_plan *plan, const uint32_t *start, const uint32_t *ends,
                      uint32_t **ret_start, uint32_t **ret_ends, stk_err *err)
{
    uint32_t n = plan->n_steps;
    uint32_t *from = stk_arena_array(plan->arena, (size_t)n + 1, sizeof *from);
    uint32_t *turned = stk_arena_array(plan->arena, start[n], sizeof *turned);
    uint32_t *next = stk_arena_array(plan->arena, n, sizeof *next);
    if (from == NULL || turned == NULL || next == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t e = 0; e < start[n]; e++) {
        from[ends[e] + 1]++;
    }
    for (uint32_t i = 0; i < n; i++) {
        from[i + 1] += from[i];
        next[i] = from[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t e = start[i]; e < start[i + 1]; e++) {
            turned[next[ends[e]]++] = i;
        }
    }
    *ret_start = from;
    *ret_ends = turned;
    return 0;
}

/* --- order and circles --- */

/* `waits` counts the needs that remain after every runnable step has run. Steps above zero contain
 * a cycle: following remaining needs from any of them reaches it. */
static int say_cycle(const stk_plan *plan, const uint32_t *waits, stk_arena *scratch, stk_err *err)
{
    uint32_t n = plan->n_steps;
    uint32_t *seen = stk_arena_array(scratch, n, sizeof *seen); /* 1 + place on the path */
    uint32_t *path = stk_arena_array(scratch, n, sizeof *path);
    if (seen == NULL || path == NULL) {
        return stk_err_nomem(err);
    }
    uint32_t at = 0;
    while (waits[at] == 0) {
        at++;
    }
    uint32_t n_path = 0;
    while (seen[at] == 0) {
        path[n_path++] = at;
        seen[at] = n_path;
        for (uint32_t e = plan->needs_start[at]; e < plan->needs_start[at + 1]; e++) {
            if (waits[plan->needs[e]] > 0) {
                at = plan->needs[e];
                break;
            }
        }
    }
    /* path[first] … path[n_path - 1] is the cycle, each needing the next. The message starts with
     * its first step in the document, and follows the data, which is the reverse direction. */
    uint32_t first = seen[at] - 1;
    uint32_t n_circle = n_path - first;
    uint32_t start = first;
    for (uint32_t i = first; i < n_path; i++) {
        if (path[i] < path[start]) {
            start = i;
        }
    }
    STK_BUF_AUTO text = STK_BUF_INIT(4000);
    for (uint32_t k = 0; k <= n_circle; k++) {
        uint32_t i = first + (start - first + n_circle - k % n_circle) % n_circle;
        if (n_circle > 12 && k == 6) {
            stk_buf_printf(&text, " -> … %u more …", n_circle - 11);
        }
        if (n_circle <= 12 || k < 6 || k > n_circle - 6) {
            stk_buf_separate(&text, " -> ");
            stk_buf_printf(&text, "%.40s", stk_spec_step(plan->spec, path[i])->name);
        }
    }
    stk_err_set(err, STK_E_SPEC, "steps depend on each other in a cycle: %s", text.data);
    stk_err_hint(err, "remove one of these dependencies");
    stk_err_at(err, stk_spec_path(plan->spec), stk_spec_step(plan->spec, path[start])->line);
    return STK_E_SPEC;
}

/* Repeatedly removes steps that wait for nothing; cycles remain. */
static int find_cycle(const stk_plan *plan, stk_err *err)
{
    uint32_t n = plan->n_steps;
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    uint32_t *waits = stk_arena_array(scratch, n, sizeof *waits);
    uint32_t *free_steps = stk_arena_array(scratch, n, sizeof *free_steps);
    if (waits == NULL || free_steps == NULL) {
        return stk_err_nomem(err);
    }
    uint32_t n_free = 0;
    for (uint32_t i = 0; i < n; i++) {
        waits[i] = plan->needs_start[i + 1] - plan->needs_start[i];
        if (waits[i] == 0) {
            free_steps[n_free++] = i;
        }
    }
    while (n_free > 0) {
        uint32_t i = free_steps[--n_free];
        for (uint32_t e = plan->feeds_start[i]; e < plan->feeds_start[i + 1]; e++) {
            if (--waits[plan->feeds[e]] == 0) {
                free_steps[n_free++] = plan->feeds[e];
            }
        }
    }
    return say_cycle(plan, waits, scratch, err);
}

/* The spec numbers steps so that each needs only lower ones, except in loops. */
static int build_order(stk_plan *plan, stk_err *err)
{
    plan->order = stk_arena_array(plan->arena, plan->n_steps, sizeof *plan->order);
    STK_TRY(stk_err_if_null(plan->order, err));
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        plan->order[i] = i;
        if (stk_spec_grows(plan->spec)) {
            continue; /* a loop of a growing document, not a cycle of steps that wait for each other
                       */
        }
        for (uint32_t e = plan->needs_start[i]; e < plan->needs_start[i + 1]; e++) {
            if (plan->needs[e] >= i) {
                return find_cycle(plan, err);
            }
        }
    }
    return 0;
}

int stk_plan_build_graph(stk_plan *plan, stk_err *err)
{
    uint32_t **near[2] = {&plan->needs_start, &plan->needs};
    uint32_t **far[2] = {&plan->feeds_start, &plan->feeds};
    bool grows = stk_spec_grows(plan->spec);
    uint32_t ***found = grows ? far : near;
    uint32_t ***turned = grows ? near : far;
    STK_TRY(find_edges(plan, found[0], found[1], err));
    STK_TRY(turn_round(plan, *found[0], *found[1], turned[0], turned[1], err));
    return build_order(plan, err);
}
