/* hours: how long devices were held and how long they were busy, by user, pipeline, day, device and
 * store; from the events of runs, so attempts that failed count too. What still runs, and what
 * ended without a report, isn't in it. */
#ifndef STK_SHOW_HOURS_H
#define STK_SHOW_HOURS_H

#include "base/buf.h"
#include "show/cost.h"
#include "show/show_text.h"
#include "store/store.h"

typedef enum {
    STK_HOURS_DAY,
    STK_HOURS_USER, /* owner of the run's folder */
    STK_HOURS_PIPELINE,
    STK_HOURS_DEVICE, /* model */
    STK_HOURS_STORE,
    STK_HOURS_N
} stk_hours_by;

/* Seconds × devices; a share counts as its part of the device's memory. */
typedef struct stk_hours_sum {
    const char *name;
    double held_s;
    double known_s; /* of held_s the part whose use was measured */
    double busy_s;  /* wasted: known_s - busy_s */
    double energy_j;
    bool has_energy;
    double cost, wasted_cost; /* of the devices; without unpriced_s only a part */
    double unpriced_s;        /* of held_s the part that has no price */
    uint32_t n_tasks;         /* attempts */
} stk_hours_sum;

typedef struct stk_hours stk_hours;

int stk_hours_new(int64_t since_ms, stk_hours **ret, stk_err *err);
void stk_hours_free(stk_hours *hours); /* NULL is fine */
static inline void stk_hours_free_auto(stk_hours **owned)
{
    stk_hours_free(*owned);
}
#define STK_HOURS_AUTO __attribute__((cleanup(stk_hours_free_auto))) stk_hours *

/* Adds what ended after since_ms in the runs of a store; simulated devices are left out. `cost`:
 * the store's prices, or NULL; those in another currency than the first store's don't count. Not
 * after stk_hours_get. */
int stk_hours_add(stk_hours *hours, stk_store *store, const stk_cost *cost, stk_err *err);
/* The sums by one of these, days in their order, else the most held first; *ret_n of them. */
const stk_hours_sum *stk_hours_get(stk_hours *hours, stk_hours_by by, uint32_t *ret_n);
stk_hours_sum stk_hours_total(const stk_hours *hours);
const char *stk_hours_currency(const stk_hours *hours); /* NULL: no store has prices */

void stk_hours_text(stk_hours *hours, const stk_style *style, stk_buf *out);
/* {"total": {…}, "days": […], "users": […], …}: docs/formats/engine-command-line.md */
int stk_hours_json(stk_hours *hours, stk_buf *out, stk_err *err);
/* Panels for a page with the styles of show_css.h; a whole page. */
int stk_hours_html(stk_hours *hours, stk_buf *out, stk_err *err);
int stk_hours_page(stk_hours *hours, stk_buf *out, stk_err *err);

#endif
