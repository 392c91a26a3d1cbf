/* steps: a step over its runs: how long it took, what it used, how often it failed, and what to ask
 * for. Reads the runs' records only. */
#ifndef STK_SHOW_STEPS_H
#define STK_SHOW_STEPS_H

#include "base/buf.h"
#include "show/show_text.h"
#include "store/store.h"

typedef enum {
    STK_STEPS_SECONDS,
    STK_STEPS_MEMORY,        /* bytes, at most */
    STK_STEPS_CPUS,          /* busy on average */
    STK_STEPS_DEVICE_MEMORY, /* bytes of one device, at most */
    STK_STEPS_BUSY,          /* percent of the time that its devices were busy */
    STK_STEPS_N
} stk_steps_quantity;

/* One task; -1: unknown. */
typedef struct stk_steps_task {
    const char *run, *label;
    const char *status, *error_class; /* error_class NULL: no error */
    int64_t started_ms;
    uint32_t attempts;
    int64_t n_devices_used;
    double used[STK_STEPS_N];
} stk_steps_task;

/* Of tasks that succeeded and weren't cached. n 0: none is known, the rest is 0. */
typedef struct stk_steps_spread {
    uint32_t n;
    double median, p95, most;
} stk_steps_spread;

typedef struct stk_steps_group {
    const char *pipeline, *step;
    stk_steps_task *tasks; /* newest first */
    uint32_t n, cap;
    uint32_t n_succeeded, n_cached, n_failed, n_retries, n_out_of_memory;
    stk_steps_spread spreads[STK_STEPS_N];
    /* What to ask for: the 95th percentile plus 15 %, rounded up; -1: unknown. */
    double cpus;
    int64_t memory_bytes, n_devices, device_memory_bytes;
} stk_steps_group;

/* The steps of the newest `most` runs of `pipeline` (NULL: of all), by their last use. `step` NULL:
 * all of them, else those of this name; STK_E_NOT_FOUND: there is none. All in `arena`. */
int stk_steps_read(stk_store *store, const char *pipeline, const char *step, uint32_t most,
                   stk_arena *arena, stk_steps_group **ret, uint32_t *ret_n, stk_err *err);

/* A line a step. */
void stk_steps_table(const stk_steps_group *groups, uint32_t n, const stk_style *style,
                     stk_buf *out);
/* All of one, with its newest tasks. */
void stk_steps_text(const stk_steps_group *group, const stk_style *style, stk_buf *out);
/* A list of objects; docs/formats/engine-command-line.md describes it. */
int stk_steps_json(const stk_steps_group *groups, uint32_t n, stk_buf *out, stk_err *err);
/* Panels of one for a page with the styles of show_css.h; a whole page of some. run_url: what the
 * link to a run has before its id; NULL: no links. */
int stk_steps_html(const stk_steps_group *group, const char *run_url, stk_arena *arena,
                   stk_buf *out, stk_err *err);
int stk_steps_page(const stk_steps_group *groups, uint32_t n, stk_arena *arena, stk_buf *out,
                   stk_err *err);
/* "resources: {cpu_count: 2, memory: 3.1GB}", or as Python "ResourceSettings(cpu_count=2, …)";
 * nothing if nothing is known. */
void stk_steps_advice(const stk_steps_group *group, bool python, stk_buf *out);

#endif
