/* observe: tells other tools of a run: OpenLineage's events, OpenTelemetry's spans, and the
 * trackers' program (python/stoker/_trackers), which knows MLflow, W&B and TensorBoard.
 *
 * Each gets its texts on a thread of its own, so a slow receiver costs the run nothing. One that is
 * down loses texts; that is said once, and the run goes on. */
#ifndef STK_OBSERVE_H
#define STK_OBSERVE_H

#include "store/view/view.h"

typedef struct stk_observe stk_observe;

typedef struct stk_observe_config {
    const char *openlineage, *opentelemetry; /* an http(s) URL or a file's path; NULL: no */
    const char *trackers;                    /* "mlflow,wandb"; NULL: none */
    const char *python, *front; /* the trackers' interpreter, and the package `stoker` */
    const char *store, *run;    /* the store's path; the run's id */
    const stk_view *view;       /* lives as long as the observer */
    void (*say)(void *arg, const stk_err *err); /* a sentence for the user */
    void *arg;
} stk_observe_config;

/* *ret is NULL if nothing is configured. Texts are borrowed. STK_E_NOMEM; what can't be reached is
 * said. */
int stk_observe_open(const stk_observe_config *config, stk_observe **ret, stk_err *err);
/* The event is durable and in the view. NULL is fine, here and below. */
void stk_observe_event(stk_observe *o, const stk_event_row *row);
/* Says what the receivers have told or lack since the last call. */
void stk_observe_say(const stk_observe *o);
/* Waits until the receivers have everything, for some seconds at most or until `signal_fd` (-1:
 * none) is readable, and says what they don't have. */
void stk_observe_end(stk_observe *o, int signal_fd);
void stk_observe_close(stk_observe *o);

#endif
