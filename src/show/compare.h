/* compare: runs side by side, what they have in common left out. Parameters, metrics, steps, code,
 * environment, inputs, outputs and resources are rows with a value for each run; metrics over time
 * are curves; of many runs (a sweep) there are pictures of parameters against a metric, with the
 * best run marked.
 *
 * The caller opens the runs (stk_compare_load) and asks for text, JSON or HTML. Nothing here reads
 * more than the runs' records, their metrics and their sources; nothing is written. */
#ifndef STK_SHOW_COMPARE_H
#define STK_SHOW_COMPARE_H

#include "base/buf.h"
#include "show/runs.h"
#include "show/show_text.h"
#include "store/view/view.h"

enum {
    STK_COMPARE_MOST = 1000,  /* runs */
    STK_COMPARE_DETAILS = 12, /* of more runs only parameters, metrics and the runs themselves */
    STK_COMPARE_CURVES = 100  /* runs whose metrics over time are read */
};

typedef enum { STK_GOAL_BY_NAME, STK_GOAL_MIN, STK_GOAL_MAX } stk_goal;

typedef struct stk_compare_ask {
    stk_store *store;
    const stk_cost *cost;       /* or NULL */
    const stk_run_values *runs; /* stk_runs_read */
    stk_view *const *views;     /* of the first STK_COMPARE_CURVES runs; else NULL */
    uint32_t n;                 /* 2 … STK_COMPARE_MOST */
    /* The metric whose last value decides which run is best; NULL: the first that differs and whose
     * name says which way is better (loss, accuracy …), or none. */
    const char *metric;
    stk_goal goal;       /* BY_NAME: least of losses, errors and times, greatest of the others */
    bool all;            /* also what the runs have in common */
    const char *run_url; /* HTML: what the link to a run has before its id; NULL: no links */
    int64_t now_ms;
} stk_compare_ask;

typedef struct stk_compare stk_compare;

/* Reads n runs of the store into `ret_ask`, whose other members stay; `runs` too, if the caller has
 * read them already. The views must be released by
 * stk_compare_unload; the rest lives in `arena`. STK_E_USAGE: fewer than two runs, or too many. */
int stk_compare_load(stk_store *store, const stk_run_row *rows, uint32_t n, stk_arena *arena,
                     stk_compare_ask *ret_ask, stk_err *err);
void stk_compare_unload(stk_compare_ask *ask);

/* `ask` is borrowed and must outlive the comparison. STK_E_USAGE: no run has the metric. */
int stk_compare_make(const stk_compare_ask *ask, stk_compare **ret, stk_err *err);
void stk_compare_free(stk_compare *compare); /* NULL is fine */
static inline void stk_compare_free_auto(stk_compare **owned)
{
    stk_compare_free(*owned);
}
#define STK_COMPARE_AUTO __attribute__((cleanup(stk_compare_free_auto))) stk_compare *

/* For a terminal: as many runs side by side as fit, more as a table with a line a run, the best
 * first. */
int stk_compare_text(const stk_compare *compare, const stk_style *style, stk_buf *out,
                     stk_err *err);
/* One object, as docs/formats/engine-command-line.md describes it. */
int stk_compare_json(const stk_compare *compare, stk_buf *out, stk_err *err);
/* The panels of a page that has the styles of show_css.h and stk_show_compare_css. STK_E_LIMIT: it
 * didn't fit into `out`. */
int stk_compare_html(const stk_compare *compare, stk_buf *out, stk_err *err);
/* A sentence about the best run as a paragraph; nothing if none is. */
void stk_compare_verdict(const stk_compare *compare, stk_buf *out);
/* A whole self-contained page, without scripts and network. */
int stk_compare_page(const stk_compare *compare, stk_buf *out, stk_err *err);

#endif
