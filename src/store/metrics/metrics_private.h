/* Private to metrics: how readers of files add what they find. */
#ifndef STK_STORE_METRICS_PRIVATE_H
#define STK_STORE_METRICS_PRIVATE_H

#include "store/metrics/metrics.h"

/* Adds one value; of a later attempt it replaces what earlier ones have from its step on. */
int stk_metrics_point(stk_metrics *metrics, const char *name, uint32_t rank,
                      const stk_metric_point *point, stk_err *err);
/* The same for a value of an event file, unless the task logged a metric of this name itself. */
int stk_metrics_event(stk_metrics *metrics, const char *name, const stk_metric_point *point,
                      stk_err *err);
/* Counts something that can't be read, and keeps the first sentence: "PART of PATH WHY". */
void stk_metrics_note_bad(stk_metrics *metrics, const char *part, const char *path,
                          const char *why);

#endif
