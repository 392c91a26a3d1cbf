/* Private to eta: what earlier runs of a pipeline say of its steps. They are read a little at a
 * time, so that a run of a million tasks costs each look no more than a small one. */
#ifndef STK_SHOW_ETA_PAST_H
#define STK_SHOW_ETA_PAST_H

#include "store/view/view.h"

enum { STK_ETA_RUNS = 5 }; /* so many of the newest that succeeded */

typedef struct stk_eta_step {
    int64_t took_ms[STK_ETA_RUNS]; /* the mean of its tasks that ran, in one run each */
    uint32_t n;
    int64_t median_ms; /* -1: unknown */
    uint32_t n_tasks;  /* in the newest run */
} stk_eta_step;

typedef struct stk_eta_past stk_eta_past;

/* `view` (of the run that is estimated) and `store` must live longer. NULL: out of memory. */
stk_eta_past *stk_eta_past_new(const stk_view *view, stk_store *store);
void stk_eta_past_free(stk_eta_past *past); /* NULL is fine */
/* Reads on for some milliseconds. True: nothing is left to read. */
bool stk_eta_past_read(stk_eta_past *past);
/* By step of the run that is estimated; NULL: no earlier run has been read yet. */
const stk_eta_step *stk_eta_past_steps(const stk_eta_past *past);
uint32_t stk_eta_past_width(const stk_eta_past *past); /* tasks that ran at once, at most */

#endif
