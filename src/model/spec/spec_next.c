/* The successors of one step: next, foreach, num_parallel, switch and cases. All steps' names are
 * known. */
#include <string.h>

#include "base/text.h"
#include "base/units.h"
#include "model/spec/spec_read.h"

enum { NEXT, FOREACH, NUM_PARALLEL, SWITCH, CASES, N_KEYS };
static const char *const keys[N_KEYS] = {[NEXT] = "next",
                                         [FOREACH] = "foreach",
                                         [NUM_PARALLEL] = "num_parallel",
                                         [SWITCH] = "switch",
                                         [CASES] = "cases"};

static int read_target(stk_spec_reader *r, const stk_json *node, const char *what, uint32_t *ret)
{
    const char *name = stk_json_text(node);
    uint64_t i_step;
    if (name == NULL || *name == '\0') {
        return stk_spec_wrong(r, node, what, "the name of a step");
    }
    if (!stk_map_get(&r->spec->step_index, name, &i_step)) {
        return stk_spec_unknown_step(r, node, what, name);
    }
    *ret = (uint32_t)i_step;
    return 0;
}

static int too_many(stk_spec_reader *r, const stk_json *node, const char *what)
{
    return stk_spec_fail_code(r, STK_E_LIMIT, node, "'%s' names %u steps; %d is the limit", what,
                              (unsigned)node->n, STK_LIMIT_INPUTS);
}

/* Reads a step name, or a list of them. */
static int read_targets(stk_spec_reader *r, const stk_json *node, const uint32_t **ret,
                        uint32_t *ret_n)
{
    bool list = node->kind == STK_JSON_LIST;
    uint32_t n = list ? node->n : 1;
    if (n == 0) {
        return stk_spec_fail(r, node, "'next' is empty; where the graph ends, leave it out");
    }
    if (n > STK_LIMIT_INPUTS) {
        return too_many(r, node, "next");
    }
    uint32_t *targets = stk_arena_array(r->arena, n, sizeof *targets);
    STK_TRY(stk_spec_if_null(r, targets));
    for (uint32_t i = 0; i < n; i++) {
        STK_TRY(read_target(r, list ? &node->items[i] : node, "next", &targets[i]));
    }
    *ret = targets;
    *ret_n = n;
    return 0;
}

/* Reads cases: {value: step}; several values may lead to one step. */
static int read_cases(stk_spec_reader *r, const stk_json *map, stk_step *step)
{
    STK_TRY(stk_spec_read_map(r, map, "cases"));
    if (map->n == 0) {
        return stk_spec_fail(r, map, "'cases' is empty; write value: step for each");
    }
    if (map->n > STK_LIMIT_INPUTS) {
        return too_many(r, map, "cases");
    }
    uint32_t *targets = stk_arena_array(r->arena, map->n, sizeof *targets);
    const char **values = stk_arena_array(r->arena, map->n, sizeof *values);
    if (targets == NULL || values == NULL) {
        return stk_spec_no_memory(r);
    }
    for (uint32_t i = 0; i < map->n; i++) {
        values[i] = stk_json_text(stk_json_key(map, i));
        if (values[i] == NULL) {
            return stk_spec_wrong(r, stk_json_key(map, i), "cases", "values without a NUL byte");
        }
        STK_TRY(read_target(r, stk_json_value(map, i), "cases", &targets[i]));
    }
    step->next = targets;
    step->n_next = map->n;
    step->cases = values;
    return 0;
}

/* Checks that `some` is a subset of `all`; else reports the missing one at `node`. */
static int check_among(stk_spec_reader *r, const stk_json *node, const uint32_t *some,
                       uint32_t n_some, const uint32_t *all, uint32_t n_all, const char *where)
{
    STK_MAP_AUTO index = {0};
    for (uint32_t i = 0; i < n_all; i++) {
        if (stk_map_put(&index, r->spec->steps[all[i]].name, i) < 0) {
            return stk_spec_no_memory(r);
        }
    }
    for (uint32_t i = 0; i < n_some; i++) {
        const char *name = r->spec->steps[some[i]].name;
        if (!stk_map_get(&index, name, NULL)) {
            return stk_spec_fail(
                r, node, "'next' and 'cases' must name the same steps, but '%s' isn't in '%s'",
                name, where);
        }
    }
    return 0;
}

static int read_switch(stk_spec_reader *r, const stk_json *const nodes[N_KEYS], stk_step *step)
{
    const uint32_t *next = NULL;
    uint32_t n = 0;
    if (nodes[SWITCH] == NULL || nodes[CASES] == NULL) {
        return stk_spec_fail(r, nodes[SWITCH] != NULL ? nodes[SWITCH] : nodes[CASES],
                             "'switch' and 'cases' need each other: switch: OUTPUT, cases: {value: "
                             "step}");
    }
    int rc = read_cases(r, nodes[CASES], step);
    if (rc < 0 || nodes[NEXT] == NULL) {
        return rc;
    }
    STK_TRY(read_targets(r, nodes[NEXT], &next, &n));
    STK_TRY(check_among(r, nodes[NEXT], next, n, step->next, step->n_next, "cases"));
    return check_among(r, nodes[CASES], step->next, step->n_next, next, n, keys[NEXT]);
}

/* Reads the output that decides. A command must declare it; a Python step that declares nothing may
 * have any output. */
static int read_on(stk_spec_reader *r, const stk_json *node, const char *key, stk_step *step)
{
    const char *name = stk_json_text(node);
    if (name == NULL || !stk_units_is_name(name, true)) {
        return stk_spec_wrong(r, node, key, "the name of an output");
    }
    bool known = step->python != NULL && step->n_outputs == 0;
    for (uint32_t i = 0; !known && i < step->n_outputs; i++) {
        known = strcmp(step->outputs[i].name, name) == 0;
    }
    step->on = name;
    if (!known) {
        return stk_spec_fail(
            r, node, "'%s' names '%.128s', which isn't an output of the step; add it to 'outputs'",
            key, name);
    }
    return 0;
}

static int read_num_parallel(stk_spec_reader *r, const stk_json *node, stk_step *step)
{
    int64_t n = 0;
    if (node->kind == STK_JSON_BOOL && node->truth) {
        return 0; /* the result gives the number */
    }
    if (node->kind == STK_JSON_TEXT) {
        return read_on(r, node, keys[NUM_PARALLEL], step);
    }
    if (node->kind == STK_JSON_BOOL) {
        return stk_spec_wrong(r, node, keys[NUM_PARALLEL],
                              "a number of ranks, the name of an output that holds it, or true if "
                              "the result gives it");
    }
    int rc = stk_spec_read_int(r, node, keys[NUM_PARALLEL], 1, STK_LIMIT_RANKS, &n);
    step->num_parallel = (uint32_t)n;
    return rc;
}

static int read_kind(stk_spec_reader *r, const stk_json *const nodes[N_KEYS], stk_step *step)
{
    int how = NEXT;
    if (nodes[FOREACH] != NULL) {
        how = FOREACH;
    } else if (nodes[NUM_PARALLEL] != NULL) {
        how = NUM_PARALLEL;
    }
    int rc = read_targets(r, nodes[NEXT], &step->next, &step->n_next);
    if (rc < 0 || how == NEXT) {
        step->grows = STK_NEXT_ALL;
        return rc;
    }
    if (step->n_next != 1) {
        return stk_spec_fail(r, nodes[NEXT], "'next' with '%s' must name exactly one step, not %u",
                             keys[how], step->n_next);
    }
    step->grows = how == FOREACH ? STK_NEXT_FOREACH : STK_NEXT_PARALLEL;
    if (how == FOREACH) {
        return read_on(r, nodes[FOREACH], keys[FOREACH], step);
    }
    return read_num_parallel(r, nodes[NUM_PARALLEL], step);
}

int stk_spec_read_next(stk_spec_reader *r, const stk_json *map, stk_step *step)
{
    const stk_json *nodes[N_KEYS];
    const stk_json *first = NULL;
    int n_kinds = 0;
    for (int i = 0; i < N_KEYS; i++) {
        nodes[i] = stk_json_get(map, keys[i]);
        if (nodes[i] != NULL && nodes[i]->kind == STK_JSON_NULL) {
            nodes[i] = NULL;
        }
        if (first == NULL) {
            first = nodes[i];
        }
        n_kinds += nodes[i] != NULL && (i == FOREACH || i == NUM_PARALLEL || i == SWITCH);
    }
    if (first == NULL) {
        return 0;
    }
    if (first == nodes[NEXT] && n_kinds == 0 && nodes[CASES] == NULL &&
        first->kind == STK_JSON_LIST && first->n == 0) {
        r->spec->grows = true; /* `next: []`: an end, as in a flow of one step */
        return 0;
    }
    if (n_kinds > 1) {
        return stk_spec_fail(r, nodes[NEXT] != NULL ? nodes[NEXT] : first,
                             "'foreach', 'num_parallel' and 'switch' exclude each other");
    }
    if (nodes[SWITCH] != NULL || nodes[CASES] != NULL) {
        step->grows = STK_NEXT_SWITCH;
        STK_TRY(read_switch(r, nodes, step));
        return read_on(r, nodes[SWITCH], keys[SWITCH], step);
    }
    if (nodes[NEXT] == NULL) {
        return stk_spec_fail(r, first, "'%s' needs 'next', the step that follows",
                             nodes[FOREACH] != NULL ? keys[FOREACH] : keys[NUM_PARALLEL]);
    }
    return read_kind(r, nodes, step);
}
