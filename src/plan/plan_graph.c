/* Who waits for whom, in which order, and no circles. Nothing here recurses or is quadratic: chains
 * of a hundred thousand steps and steps with ten thousand inputs are ordinary. */
#include <string.h>

#include "base/buf.h"
#include "plan/plan_private.h"

/* Calls that add one edge; the first walk only counts. `mark` keeps one edge for several inputs
 * from the same step: mark[j] == i + 1 when step i already has j. */
typedef struct edges {
    uint32_t *mark;
    uint32_t *needs; /* NULL: count */
    uint64_t n;
} edges;

static void add_edge(edges *e, uint32_t i_step, uint32_t needed)
{
    if (e->mark[needed] == i_step + 1) {
        return;
    }
    e->mark[needed] = i_step + 1;
    if (e->needs != NULL) {
        e->needs[e->n] = needed;
    }
    e->n++;
}

static void walk_step(edges *e, const stk_step *step, uint32_t i_step)
{
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

static int build_needs(stk_plan *plan, stk_err *err)
{
    uint32_t n = plan->n_steps;
    edges e = {.mark = stk_arena_array(plan->arena, n, sizeof *e.mark)};
    plan->needs_start = stk_arena_array(plan->arena, (size_t)n + 1, sizeof(uint32_t));
    if (e.mark == NULL || plan->needs_start == NULL) {
        return stk_plan_no_memory(err);
    }
    for (uint32_t i = 0; i < n; i++) {
        walk_step(&e, stk_spec_step(plan->spec, i), i);
        if (e.n > UINT32_MAX) {
            return stk_err_set(err, STK_E_LIMIT, "the graph has more than %u links between steps",
                               UINT32_MAX);
        }
        plan->needs_start[i + 1] = (uint32_t)e.n;
    }
    plan->needs = stk_arena_array(plan->arena, e.n, sizeof *plan->needs);
    if (plan->needs == NULL) {
        return stk_plan_no_memory(err);
    }
    memset(e.mark, 0, n * sizeof *e.mark);
    e.needs = plan->needs;
    e.n = 0;
    for (uint32_t i = 0; i < n; i++) {
        walk_step(&e, stk_spec_step(plan->spec, i), i);
    }
    return 0;
}

static int build_feeds(stk_plan *plan, stk_err *err)
{
    uint32_t n = plan->n_steps;
    uint32_t n_edges = plan->needs_start[n];
    plan->feeds_start = stk_arena_array(plan->arena, (size_t)n + 1, sizeof(uint32_t));
    plan->feeds = stk_arena_array(plan->arena, n_edges, sizeof(uint32_t));
    uint32_t *next = stk_arena_array(plan->arena, n, sizeof *next);
    if (plan->feeds_start == NULL || plan->feeds == NULL || next == NULL) {
        return stk_plan_no_memory(err);
    }
    for (uint32_t e = 0; e < n_edges; e++) {
        plan->feeds_start[plan->needs[e] + 1]++;
    }
    for (uint32_t i = 0; i < n; i++) {
        plan->feeds_start[i + 1] += plan->feeds_start[i];
        next[i] = plan->feeds_start[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t e = plan->needs_start[i]; e < plan->needs_start[i + 1]; e++) {
            plan->feeds[next[plan->needs[e]]++] = i;
        }
    }
    return 0;
}

/* --- order and circles --- */

/* `waits` counts what each step still waits for once all steps that can run have. Those above zero
 * hold a circle: from any of them, following what it needs among them comes round. */
static int say_cycle(const stk_plan *plan, const uint32_t *waits, stk_arena *scratch, stk_err *err)
{
    uint32_t n = plan->n_steps;
    uint32_t *seen = stk_arena_array(scratch, n, sizeof *seen); /* 1 + place on the path */
    uint32_t *path = stk_arena_array(scratch, n, sizeof *path);
    if (seen == NULL || path == NULL) {
        return stk_plan_no_memory(err);
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
    /* path[first] … path[n_path - 1] is the circle, each needing the next. Told from its first step
     * of the document, in the direction that data flows, which is backwards here. */
    uint32_t first = seen[at] - 1;
    uint32_t n_circle = n_path - first;
    uint32_t start = first;
    for (uint32_t i = first; i < n_path; i++) {
        start = path[i] < path[start] ? i : start;
    }
    STK_BUF_AUTO text = STK_BUF_INIT(4000);
    for (uint32_t k = 0; k <= n_circle; k++) {
        uint32_t i = first + (start - first + n_circle - k % n_circle) % n_circle;
        if (n_circle > 12 && k == 6) {
            stk_buf_printf(&text, " -> … %u more …", n_circle - 11);
        }
        if (n_circle <= 12 || k < 6 || k > n_circle - 6) {
            stk_buf_printf(&text, "%s%.40s", k == 0 ? "" : " -> ",
                           stk_spec_step(plan->spec, path[i])->name);
        }
    }
    stk_err_set(err, STK_E_SPEC, "steps wait for each other in a circle: %s", text.data);
    stk_err_hint(err, "take out one of these links");
    stk_err_at(err, stk_spec_path(plan->spec), stk_spec_step(plan->spec, path[start])->line);
    return STK_E_SPEC;
}

/* Takes away steps that wait for nothing, again and again; a circle is what stays. */
static int find_cycle(const stk_plan *plan, stk_err *err)
{
    uint32_t n = plan->n_steps;
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    uint32_t *waits = scratch == NULL ? NULL : stk_arena_array(scratch, n, sizeof *waits);
    uint32_t *free_steps = scratch == NULL ? NULL : stk_arena_array(scratch, n, sizeof *free_steps);
    if (waits == NULL || free_steps == NULL) {
        return stk_plan_no_memory(err);
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

/* The spec numbers steps so that each needs only lower ones; it can't where they go round. */
static int build_order(stk_plan *plan, stk_err *err)
{
    plan->order = stk_arena_array(plan->arena, plan->n_steps, sizeof *plan->order);
    if (plan->order == NULL) {
        return stk_plan_no_memory(err);
    }
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        plan->order[i] = i;
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
    int rc = build_needs(plan, err);
    rc = rc < 0 ? rc : build_feeds(plan, err);
    return rc < 0 ? rc : build_order(plan, err);
}
