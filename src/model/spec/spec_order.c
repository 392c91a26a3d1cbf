/* Numbers steps so that each needs only lower-numbered ones; keeps the document's order if it
 * already satisfies this.
 *
 * The rest of the engine gives a task its step's number, and the scheduler takes tasks in that
 * order. A cycle stays as it is: the plan reports it. */
#include <stdlib.h>

#include "model/spec/spec_read.h"

typedef struct order {
    stk_step *steps;
    uint32_t n;
    uint32_t *n_open; /* needs that have no number yet */
    uint32_t *start;  /* start of each step's dependents in `feeds` */
    uint32_t *feeds;
    uint32_t *heap; /* ready steps, lowest document position first */
    uint32_t n_heap;
    uint32_t *number; /* document position → new number */
} order;

typedef void (*edge_fn)(order *o, uint32_t step, uint32_t needed);

static void each_edge(order *o, edge_fn fn)
{
    for (uint32_t i = 0; i < o->n; i++) {
        const stk_step *s = &o->steps[i];
        for (uint32_t k = 0; k < s->n_inputs; k++) {
            const stk_input *in = &s->inputs[k];
            if (in->kind == STK_INPUT_OUTPUT) {
                fn(o, i, in->step);
            }
            for (uint32_t j = 0; j < in->n_items; j++) {
                if (in->items[j].kind == STK_INPUT_OUTPUT) {
                    fn(o, i, in->items[j].step);
                }
            }
        }
        for (uint32_t k = 0; k < s->n_after; k++) {
            fn(o, i, s->after[k]);
        }
    }
}

static void count_edge(order *o, uint32_t step, uint32_t needed)
{
    o->n_open[step]++;
    o->start[needed + 1]++;
}

static void put_edge(order *o, uint32_t step, uint32_t needed)
{
    o->feeds[o->start[needed]++] = step;
}

static void push(order *o, uint32_t step)
{
    uint32_t i = o->n_heap++;
    while (i > 0 && o->heap[(i - 1) / 2] > step) {
        o->heap[i] = o->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    o->heap[i] = step;
}

static uint32_t pop(order *o)
{
    uint32_t top = o->heap[0];
    uint32_t last = o->heap[--o->n_heap];
    uint32_t i = 0;
    for (uint32_t child = 1; child < o->n_heap; child = 2 * i + 1) {
        child += child + 1 < o->n_heap && o->heap[child + 1] < o->heap[child];
        if (o->heap[child] >= last) {
            break;
        }
        o->heap[i] = o->heap[child];
        i = child;
    }
    o->heap[i] = last;
    return top;
}

/* True if every step got a number. */
static bool number_steps(order *o)
{
    uint32_t next = 0;
    for (uint32_t i = 0; i < o->n; i++) {
        if (o->n_open[i] == 0) {
            push(o, i);
        }
    }
    while (o->n_heap > 0) {
        uint32_t i = pop(o);
        o->number[i] = next++;
        /* put_edge moved each start to its end, so this step's dependents end where the next one's
         * began. */
        for (uint32_t k = i == 0 ? 0 : o->start[i - 1]; k < o->start[i]; k++) {
            if (--o->n_open[o->feeds[k]] == 0) {
                push(o, o->feeds[k]);
            }
        }
    }
    return next == o->n;
}

static void renumber(order *o)
{
    for (uint32_t i = 0; i < o->n; i++) {
        stk_step *s = &o->steps[i];
        /* mutable while we build the spec: everything lies in its arena */
        stk_input *inputs = (stk_input *)(uintptr_t)s->inputs;
        uint32_t *after = (uint32_t *)(uintptr_t)s->after;
        for (uint32_t k = 0; k < s->n_inputs; k++) {
            stk_input *items = (stk_input *)(uintptr_t)inputs[k].items;
            if (inputs[k].kind == STK_INPUT_OUTPUT) {
                inputs[k].step = o->number[inputs[k].step];
            }
            for (uint32_t j = 0; j < inputs[k].n_items; j++) {
                if (items[j].kind == STK_INPUT_OUTPUT) {
                    items[j].step = o->number[items[j].step];
                }
            }
        }
        for (uint32_t k = 0; k < s->n_after; k++) {
            after[k] = o->number[after[k]];
        }
    }
}

static bool is_ordered(const stk_step *steps, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const stk_step *s = &steps[i];
        for (uint32_t k = 0; k < s->n_inputs; k++) {
            const stk_input *in = &s->inputs[k];
            if (in->kind == STK_INPUT_OUTPUT && in->step >= i) {
                return false;
            }
            for (uint32_t j = 0; j < in->n_items; j++) {
                if (in->items[j].kind == STK_INPUT_OUTPUT && in->items[j].step >= i) {
                    return false;
                }
            }
        }
        for (uint32_t k = 0; k < s->n_after; k++) {
            if (s->after[k] >= i) {
                return false;
            }
        }
    }
    return true;
}

static int sort(order *o, stk_spec_reader *r)
{
    each_edge(o, count_edge);
    for (uint32_t i = 0; i < o->n; i++) {
        o->start[i + 1] += o->start[i];
    }
    o->feeds = calloc((size_t)o->start[o->n] + 1, sizeof *o->feeds);
    stk_step *sorted = stk_arena_array(r->arena, o->n, sizeof *sorted);
    if (o->feeds == NULL || sorted == NULL) {
        return stk_spec_no_memory(r);
    }
    each_edge(o, put_edge);
    if (!number_steps(o)) {
        return 0; /* a cycle */
    }
    renumber(o);
    for (uint32_t i = 0; i < o->n; i++) {
        sorted[o->number[i]] = o->steps[i];
        (void)stk_map_put(&r->spec->step_index, o->steps[i].name, o->number[i]);
    }
    r->spec->steps = sorted;
    return 0;
}

int stk_spec_order_steps(stk_spec_reader *r, stk_step *steps, uint32_t n)
{
    if (is_ordered(steps, n)) {
        return 0;
    }
    order o = {.steps = steps, .n = n};
    o.n_open = calloc((size_t)n + 1, sizeof *o.n_open);
    o.start = calloc((size_t)n + 2, sizeof *o.start);
    o.heap = calloc((size_t)n + 1, sizeof *o.heap);
    o.number = calloc((size_t)n + 1, sizeof *o.number);
    bool is_short = o.n_open == NULL || o.start == NULL || o.heap == NULL || o.number == NULL;
    int rc = is_short ? stk_spec_no_memory(r) : sort(&o, r);
    free(o.n_open);
    free(o.start);
    free(o.heap);
    free(o.number);
    free(o.feeds);
    return rc;
}
