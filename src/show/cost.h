/* cost: what runs cost, by the prices of stoker.yaml. Each attempt of each task costs what it was
 * granted (devices, CPUs, memory) for the time that it ran, or without a request for CPUs the CPU
 * time that it used, once it has ended; a result from the cache costs nothing.
 * A share of a device, and a slice, cost their part of its memory. What `prices` doesn't name isn't
 * counted, but a device without a price makes the cost unknown: no price is guessed. So do devices
 * elsewhere until their machine reports them, and an attempt whose end no engine saw. */
#ifndef STK_SHOW_COST_H
#define STK_SHOW_COST_H

#include "base/json.h"
#include "store/view/view.h"

typedef struct stk_cost stk_cost;

/* The prices for a store: those of the stoker.yaml of its folder's project, else of the current
 * folder's. *ret NULL: there are none. Errors: those of stk_stack_find. */
int stk_cost_open(const char *store_path, stk_cost **ret, stk_err *err);
void stk_cost_free(stk_cost *cost); /* NULL is fine */
static inline void stk_cost_free_auto(stk_cost **owned)
{
    stk_cost_free(*owned);
}
#define STK_COST_AUTO __attribute__((cleanup(stk_cost_free_auto))) stk_cost *

bool stk_cost_same(const stk_cost *a, const stk_cost *b); /* the same prices; NULL: none */
const char *stk_cost_currency(const stk_cost *cost);      /* "USD"; "" if none is said */

/* What a grant costs an hour, on all of its nodes; -1: unknown. `cpu`: what an hour of CPU time
 * costs to who asked for no CPUs, else 0. */
typedef struct stk_cost_rate {
    double all, devices, cpu;
} stk_cost_rate;

/* The members `granted` of an attempt's start and of its end (which other machines report), NULL:
 * it has none. `stack`: the run's, or NULL. */
stk_cost_rate stk_cost_of_grant(const stk_cost *cost, const char *stack, const stk_json *start,
                                const stk_json *end);
/* How many nodes were granted the same. */
double stk_cost_nodes(const stk_json *start);
/* Of all attempts so far; -1: unknown, as without prices (NULL) and for simulated devices. `now_ms`
 * is the end of attempts that still run. */
double stk_cost_of_run(const stk_cost *cost, const stk_view *view, int64_t now_ms);

/* "12.30 USD". */
const char *stk_cost_text(double amount, const char *currency, char *buf, size_t size);
/* The cost of a run by the prices of its store, for people; NULL: unknown. */
const char *stk_cost_say(const stk_view *view, int64_t now_ms, char *buf, size_t size);

#endif
