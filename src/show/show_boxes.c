/* The boxes and edges of a graph's picture. */
#include "show/show_boxes.h"

#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/limits.h"
#include "base/map.h"
#include "show/show_private.h"
#include "show/show_text.h"

enum {
    MAX_EDGES = 1500,
    RANGES = 20,
    MAX_LAYERS = 40 /* of a collapsed graph; deeper ones are merged into RANGES */
};

/* --- edges of the spec --- */

static uint64_t count_needs(const stk_input *inputs, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += inputs[i].kind == STK_INPUT_OUTPUT;
        if (inputs[i].kind == STK_INPUT_LIST) {
            sum += count_needs(inputs[i].items, inputs[i].n_items);
        }
    }
    return sum;
}

static void add_needs(stk_boxes *p, uint32_t to, const stk_input *inputs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (inputs[i].kind == STK_INPUT_OUTPUT) {
            p->edges[p->n_edges++] = (stk_graph_edge){inputs[i].step, to};
        } else if (inputs[i].kind == STK_INPUT_LIST) {
            add_needs(p, to, inputs[i].items, inputs[i].n_items);
        }
    }
}

static int by_edge(const void *a, const void *b)
{
    const stk_graph_edge *x = a, *y = b;
    int by = (x->from > y->from) - (x->from < y->from);
    if (by == 0) {
        by = (x->to > y->to) - (x->to < y->to);
    }
    return by;
}

static uint32_t unique_edges(stk_graph_edge *edges, uint32_t n)
{
    uint32_t kept = 0;
    qsort(edges, n, sizeof *edges, by_edge);
    for (uint32_t i = 0; i < n; i++) {
        if (edges[i].from != edges[i].to &&
            (kept == 0 || by_edge(&edges[kept - 1], &edges[i]) != 0)) {
            edges[kept++] = edges[i];
        }
    }
    return kept;
}

/* --- edges of a document that grows --- */

/* Marks the edges that close a loop: those to a step on the stack of a depth-first walk. */
static int find_back_edges(stk_boxes *p, stk_err *err)
{
    enum { NEW, OPEN, DONE };
    const stk_spec *spec = stk_view_spec(p->view);
    unsigned char *seen = stk_arena_array(p->arena, (size_t)p->n_steps + 1, 1);
    uint32_t *stack = stk_arena_array(p->arena, (size_t)p->n_steps + 1, sizeof *stack);
    uint32_t *at = stk_arena_array(p->arena, (size_t)p->n_steps + 1, sizeof *at);
    uint32_t *first = stk_arena_array(p->arena, (size_t)p->n_steps + 2, sizeof *first);
    if (!seen || !stack || !at || !first) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < p->n_steps; i++) {
        first[i + 1] = first[i] + stk_spec_step(spec, i)->n_next;
    }
    for (uint32_t root = 0; root < p->n_steps; root++) {
        uint32_t depth = 0;
        if (seen[root] == NEW) {
            stack[depth++] = root;
            seen[root] = OPEN;
        }
        while (depth > 0) {
            uint32_t v = stack[depth - 1];
            if (at[v] == stk_spec_step(spec, v)->n_next) {
                seen[v] = DONE;
                depth--;
                continue;
            }
            stk_boxes_edge *e = &p->grown[first[v] + at[v]++];
            e->is_back = seen[e->to] == OPEN;
            if (seen[e->to] == NEW) {
                seen[e->to] = OPEN;
                stack[depth++] = e->to;
            }
        }
    }
    return 0;
}

/* "×1,000" for a foreach, "4 ranks", the case of a switch; NULL: no label. */
static const char *text_of(const stk_boxes *p, const stk_step *step, uint32_t i_step, uint32_t k)
{
    char count[32];
    uint32_t width = 0, ranks = step->num_parallel;
    for (uint32_t i = 0; i < stk_view_n_tasks(p->view); i++) {
        const stk_view_task *task = stk_view_get_task(p->view, i);
        if (task->i_step == i_step) {
            width = MAX(task->width, width);
        } else if (task->i_step == step->next[k]) {
            ranks = MAX(task->ranks, ranks);
        }
    }
    if (step->grows == STK_NEXT_FOREACH && width > 0) {
        return stk_arena_printf(p->arena, "×%s", stk_text_count(width, count, sizeof count));
    }
    if (step->grows == STK_NEXT_FOREACH) {
        return "each";
    }
    if (step->grows == STK_NEXT_PARALLEL && ranks > 0) {
        return stk_arena_printf(p->arena, "%u ranks", ranks);
    }
    if (step->grows == STK_NEXT_PARALLEL) {
        return "ranks";
    }
    if (step->grows == STK_NEXT_SWITCH && step->cases != NULL) {
        return step->cases[k];
    }
    return NULL;
}

static int find_grown_edges(stk_boxes *p, stk_err *err)
{
    const stk_spec *spec = stk_view_spec(p->view);
    uint64_t n = 0;
    for (uint32_t i = 0; i < p->n_steps; i++) {
        n += stk_spec_step(spec, i)->n_next;
    }
    if (n >= UINT32_MAX) {
        return stk_err_nomem(err);
    }
    p->edges = stk_arena_array(p->arena, n + 1, sizeof *p->edges);
    p->grown = stk_arena_array(p->arena, n + 1, sizeof *p->grown);
    if (p->edges == NULL || p->grown == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < p->n_steps; i++) {
        const stk_step *step = stk_spec_step(spec, i);
        for (uint32_t k = 0; k < step->n_next; k++) {
            stk_boxes_edge *e = &p->grown[p->n_grown++];
            *e = (stk_boxes_edge){.from = i, .to = step->next[k], .kind = step->grows};
            if (n <= STK_BOXES_MAX) {
                e->text = text_of(p, step, i, k);
            }
        }
    }
    STK_TRY(find_back_edges(p, err));
    for (uint32_t i = 0; i < p->n_grown; i++) {
        if (!p->grown[i].is_back) {
            p->edges[p->n_edges++] = (stk_graph_edge){p->grown[i].from, p->grown[i].to};
        }
    }
    return 0;
}

static int find_static_edges(stk_boxes *p, stk_err *err)
{
    const stk_spec *spec = stk_view_spec(p->view);
    uint64_t n = 0;
    for (uint32_t i = 0; i < p->n_steps; i++) {
        const stk_step *step = stk_spec_step(spec, i);
        n += step->n_after + count_needs(step->inputs, step->n_inputs);
    }
    if (n >= UINT32_MAX) {
        return stk_err_nomem(err);
    }
    p->edges = stk_arena_array(p->arena, n + 1, sizeof *p->edges);
    STK_TRY(stk_err_if_null(p->edges, err));
    for (uint32_t i = 0; i < p->n_steps; i++) {
        const stk_step *step = stk_spec_step(spec, i);
        add_needs(p, i, step->inputs, step->n_inputs);
        for (uint32_t k = 0; k < step->n_after; k++) {
            p->edges[p->n_edges++] = (stk_graph_edge){step->after[k], i};
        }
    }
    return 0;
}

static int find_edges(stk_boxes *p, stk_err *err)
{
    p->n_steps = stk_spec_n_steps(stk_view_spec(p->view));
    if (stk_view_grows(p->view)) {
        STK_TRY(find_grown_edges(p, err));
    } else {
        STK_TRY(find_static_edges(p, err));
    }
    p->n_edges = unique_edges(p->edges, p->n_edges);
    return stk_graph_layers(p->n_steps, p->edges, p->n_edges, p->arena, &p->layer, &p->n_layers,
                            err);
}

/* --- groups --- */

static const char *group_key(const stk_boxes *p, stk_boxes_level how, uint32_t step, char *buf,
                             size_t size)
{
    const char *name = stk_spec_step(stk_view_spec(p->view), step)->name;
    uint32_t layer = p->layer[step];
    if (how == STK_BOXES_BY_STEP && p->n_near[step] < STK_ALIKE_MIN) {
        return name;
    }
    if (how == STK_BOXES_BY_STEP) { /* no name begins with a space */
        (void)snprintf(buf, size, " %u %u", p->alike.of[step], layer);
        return buf;
    }
    if (how == STK_BOXES_BY_STEM) {
        size_t n = (size_t)snprintf(buf, size, "%u ", layer);
        for (const char *s = name; *s != '\0' && n + 1 < size; s++) {
            bool digit = *s >= '0' && *s <= '9';
            if (!digit) {
                buf[n++] = *s;
            } else if (buf[n - 1] != '#') {
                buf[n++] = '#';
            }
        }
        buf[n] = '\0';
    } else if (how == STK_BOXES_BY_LAYER) {
        (void)snprintf(buf, size, "layer %u", layer + 1);
    } else {
        uint64_t range = (uint64_t)layer * RANGES / p->n_layers;
        (void)snprintf(buf, size, "layers %u–%u",
                       (uint32_t)((range * p->n_layers + RANGES - 1) / RANGES) + 1,
                       (uint32_t)(((range + 1) * p->n_layers - 1) / RANGES) + 1);
    }
    return buf;
}

static int badness(stk_task_state state)
{
    static const stk_task_state order[] = {STK_TASK_CACHED,  STK_TASK_SUCCEEDED, STK_TASK_WAITING,
                                           STK_TASK_SKIPPED, STK_TASK_CANCELLED, STK_TASK_BACKOFF,
                                           STK_TASK_RUNNING, STK_TASK_FAILED};
    for (int i = 0; i < 8; i++) {
        if (order[i] == state) {
            return i;
        }
    }
    return 0;
}

/* Of one task, the time of its last attempt; of several, from the first start to the last end. */
static int64_t step_took_ms(const stk_boxes *p, uint32_t i_step)
{
    const stk_view_step *step = stk_view_get_step(p->view, i_step);
    if (step->n == 1) {
        const stk_view_task *task = stk_view_get_task(p->view, step->first);
        return stk_show_took_ms(task->started_ms, task->ended_ms, p->now_ms);
    }
    bool runs = step->by_state[STK_TASK_RUNNING] + step->by_state[STK_TASK_BACKOFF] > 0;
    return stk_show_took_ms(step->started_ms, runs ? 0 : step->ended_ms, p->now_ms);
}

static int add_to_group(stk_boxes *p, stk_boxes_level how, uint32_t i, stk_map *known, stk_err *err)
{
    char buf[STK_LIMIT_NAME + 32];
    const char *key = group_key(p, how, i, buf, sizeof buf);
    stk_task_state state = stk_view_worst(stk_view_get_step(p->view, i));
    uint64_t g = i;
    if (!stk_map_get(known, key, &g)) {
        if (p->n_groups == STK_BOXES_MAX) {
            return STK_E_LIMIT;
        }
        const char *own = stk_arena_dup(p->arena, key);
        g = p->n_groups++;
        if (own == NULL || stk_map_put(known, own, g) < 0) {
            return stk_err_nomem(err);
        }
        p->groups[g] = (stk_boxes_group){.label = own, .step = i, .state = STK_TASK_CACHED};
        if (how == STK_BOXES_BY_STEP && *own == ' ') {
            p->groups[g].alike = &p->alike.groups[p->alike.of[i]];
        } else if (how <= STK_BOXES_BY_STEM) { /* the label if no other step joins the group */
            p->groups[g].label = stk_spec_title(stk_view_spec(p->view), i);
        }
    }
    stk_boxes_group *to = &p->groups[g];
    to->n++;
    to->by_state[state]++;
    to->ms += step_took_ms(p, i);
    if (badness(state) > badness(to->state)) {
        to->state = state;
    }
    p->group_of[i] = (uint32_t)g;
    return 0;
}

int stk_boxes_make(stk_boxes *p, stk_boxes_level how, stk_err *err)
{
    STK_MAP_AUTO known = {0};
    bool merges = how != STK_BOXES_BY_STEP || p->n_steps > STK_BOXES_MAX;
    if (merges && how != STK_BOXES_BY_RANGE && p->n_layers > MAX_LAYERS) {
        return STK_E_LIMIT;
    }
    p->n_groups = 0;
    for (uint32_t i = 0; i < p->n_steps; i++) {
        STK_TRY(add_to_group(p, how, i, &known, err));
    }
    for (uint32_t g = 0; how <= STK_BOXES_BY_STEM && g < p->n_groups; g++) {
        if (p->groups[g].alike != NULL) {
            char count[32];
            const char *label =
                stk_arena_printf(p->arena, "%s × %s", p->groups[g].alike->name,
                                 stk_text_count(p->groups[g].n, count, sizeof count));
            STK_TRY(stk_err_if_null(label, err));
            p->groups[g].label = label;
        } else if (p->groups[g].n > 1) { /* until here the label was the first step's name */
            char buf[STK_LIMIT_NAME + 32];
            group_key(p, how, p->groups[g].step, buf, sizeof buf);
            p->groups[g].label = stk_arena_dup(p->arena, strchr(buf, ' ') + 1);
        }
    }
    for (uint32_t i = 0; i < p->n_edges; i++) {
        p->group_edges[i] =
            (stk_graph_edge){p->group_of[p->edges[i].from], p->group_of[p->edges[i].to]};
    }
    p->n_group_edges = unique_edges(p->group_edges, p->n_edges);
    return p->n_group_edges > MAX_EDGES ? STK_E_LIMIT : 0;
}

/* Counts the alike steps of each layer: those of one box. A growing graph has a box for each step,
 * however many tasks that has. */
static int find_alike(stk_boxes *p, stk_err *err)
{
    STK_MAP_AUTO counts = {0};
    p->n_near = stk_arena_array(p->arena, (size_t)p->n_steps + 1, sizeof *p->n_near);
    STK_TRY(stk_err_if_null(p->n_near, err));
    if (stk_view_grows(p->view)) {
        return 0;
    }
    STK_TRY(stk_alike_find(p->view, STK_ALIKE_MIN, p->arena, &p->alike, err));
    for (int pass = 0; pass < 2 && p->alike.n > 0; pass++) {
        for (uint32_t i = 0; i < p->n_steps; i++) {
            char key[32];
            uint64_t n = 0;
            if (p->alike.of[i] == UINT32_MAX) {
                continue;
            }
            (void)snprintf(key, sizeof key, "%u %u", p->alike.of[i], p->layer[i]);
            const char *own = key;
            if (!stk_map_get(&counts, key, &n)) {
                own = stk_arena_dup(p->arena, key);
            }
            if (pass == 1) {
                p->n_near[i] = (uint32_t)n;
            } else if (own == NULL || stk_map_put(&counts, own, n + 1) < 0) {
                return stk_err_nomem(err);
            }
        }
    }
    return 0;
}

int stk_boxes_init(stk_boxes *p, stk_err *err)
{
    STK_TRY(find_edges(p, err));
    STK_TRY(find_alike(p, err));
    p->group_of = stk_arena_array(p->arena, (size_t)p->n_steps + 1, sizeof *p->group_of);
    p->groups = stk_arena_array(p->arena, STK_BOXES_MAX, sizeof *p->groups);
    p->group_edges = stk_arena_array(p->arena, (size_t)p->n_edges + 1, sizeof *p->group_edges);
    if (!p->group_of || !p->groups || !p->group_edges) {
        return stk_err_nomem(err);
    }
    return 0;
}
