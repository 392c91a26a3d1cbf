/* metrics: what the steps of a run measured over time, as a table, JSON or CSV. */
#ifndef STK_SHOW_METRICS_H
#define STK_SHOW_METRICS_H

#include "base/buf.h"
#include "show/show_text.h"
#include "store/metrics/metrics.h"
#include "store/view/view.h"

typedef struct stk_metrics_ask {
    stk_store *store;
    stk_view *view;
    bool has_step, has_task; /* neither: of the whole run */
    uint32_t i_step, task;
    const char *name; /* of one metric; NULL: all */
    uint32_t most;    /* points of a metric at most, thinned to look at; 0: all */
} stk_metrics_ask;

/* The last attempt's folder of the task that made a cached one's result, in `arena`, and its
 * number; NULL: it isn't cached, or the run of that task is gone. */
const char *stk_metrics_origin(const stk_view *view, uint32_t i_task, const stk_view_details *d,
                               uint32_t *ret_attempt, stk_arena *arena);
/* Adds those of all attempts of a task; of a cached one those of the task that made its result.
 * `store` NULL: without TensorBoard's files in what it returned. */
int stk_metrics_of_task(stk_store *store, const stk_view *view, uint32_t i_task,
                        stk_metrics *metrics, stk_err *err);

/* A line a metric: last, least and greatest value, and its curve where the terminal has room.
 * STK_E_NOT_FOUND: there is no such metric. */
int stk_metrics_text(const stk_metrics_ask *ask, const stk_style *style, stk_buf *out,
                     stk_err *err);
/* [{"step","task","metric","rank","n","last","min","max","points":[[step,time_ms,value], …]}, …];
 * NaN and infinity are the texts "nan", "inf", "-inf"; unknown is null. */
int stk_metrics_json(const stk_metrics_ask *ask, stk_buf *out, stk_err *err);
/* step,task,rank,metric,position,time,value: a line a point; `time` in Unix seconds. */
int stk_metrics_csv(const stk_metrics_ask *ask, stk_buf *out, stk_err *err);

#endif
