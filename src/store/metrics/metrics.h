/* metrics: what steps measured over time. A task appends one JSON object a line to metrics.jsonl of
 * its attempt directory ($STOKER_METRICS), a rank above 0 to rank-N/metrics.jsonl:
 *
 *     {"step":120,"time":1764280000.25,"loss":0.41,"accuracy":0.9}
 *
 * `step` (a whole number) and `time` (Unix seconds) are optional; every other member is a metric:
 * a number, true or false, or the text "nan", "inf" or "-inf". Each line is one write, so the file
 * is read while it grows; an incomplete last line is left for the next reading. Nothing is ever
 * thinned in the file.
 *
 * Attempts of a task are one curve: an attempt that goes on at step 100 replaces the earlier
 * attempts' points from step 100 on. */
#ifndef STK_STORE_METRICS_H
#define STK_STORE_METRICS_H

#include <stdint.h>

#include "base/err.h"

#define STK_METRICS_FILE "metrics.jsonl"
#define STK_METRICS_EVENTS "tensorboard" /* a folder of TensorBoard's files beside it */

typedef struct stk_metric_point {
    int64_t step;    /* -1: unknown */
    int64_t time_ms; /* Unix time; -1: unknown */
    double value;    /* may be NaN or infinite */
} stk_metric_point;

typedef struct stk_metric {
    const char *name;
    uint32_t rank;
    uint32_t n;
    const stk_metric_point *points; /* in the order of writing */
    double last;                    /* NaN if n is 0 */
    double min, max;                /* of the finite values; NaN: there is none */
} stk_metric;

typedef struct stk_metrics stk_metrics;

int stk_metrics_new(stk_metrics **ret, stk_err *err);
void stk_metrics_free(stk_metrics *metrics); /* NULL is fine */
static inline void stk_metrics_free_auto(stk_metrics **owned)
{
    stk_metrics_free(*owned);
}
#define STK_METRICS_AUTO __attribute__((cleanup(stk_metrics_free_auto))) stk_metrics *

/* Adds the file of one attempt; call it for the attempts in their order. A missing file is fine.
 * STK_E_LIMIT: more metrics or values than limits.h allows. */
int stk_metrics_add(stk_metrics *metrics, const char *path, uint32_t rank, stk_err *err);
/* Adds the scalars of TensorBoard's event files anywhere below the folder, named by their folder
 * and tag: "train/loss". A missing folder is fine. */
int stk_metrics_add_events(stk_metrics *metrics, const char *folder, stk_err *err);
/* Adds metrics.jsonl of an attempt directory, its event files, and those of its ranks. */
int stk_metrics_add_attempt(stk_metrics *metrics, const char *dir, stk_err *err);

/* Only the last values, of rank 0: reads the end of the attempt's file, so a large one costs no
 * more. Metrics whose last line is far from the end are left out. */
int stk_metrics_add_last(stk_metrics *metrics, const char *dir, stk_err *err);

/* The metrics, by first appearance. Pointers are valid until the next add. */
uint32_t stk_metrics_n(const stk_metrics *metrics);
stk_metric stk_metrics_get(const stk_metrics *metrics, uint32_t i);
/* Lines that are no such objects, and a sentence about the first ("line 7 of …: …"), or NULL. */
uint32_t stk_metrics_n_bad(const stk_metrics *metrics);
const char *stk_metrics_bad(const stk_metrics *metrics);

/* Chooses at most n_max (>= 4) points to look at: the first, the last, and the extremes between, so
 * that a spike stays visible. Returns their number; all of them if there are no more. */
uint32_t stk_metric_thin(const stk_metric *metric, uint32_t n_max, stk_metric_point *ret);

#endif
