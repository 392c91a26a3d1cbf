/* Finds jobs that an earlier engine submitted: by their own name, or as children of an array, which
 * lists in the share name. */
#ifndef STK_BATCH_FIND_H
#define STK_BATCH_FIND_H

#include "away/batch/batch_driver.h"

/* The search for a job by name with ListJobs. Repeats it after a while, because ListJobs may not
 * know new jobs yet. One call searches many names by their common beginning. */
struct batch_find {
    struct batch_find *next;
    batch_driver *driver;
    batch_queue *queue;
    char name[STK_BATCH_NAME + 1], aws_id[64]; /* aws_id "": not found */
    uint32_t n_left;                           /* tries left */
    int64_t due_ms;                            /* 0: a call is running */
    bool is_known;
};

struct batch_listing {
    struct batch_listing *next;
    batch_queue *queue;
    batch_find **finds; /* by name */
    uint32_t n;
};

void stk_batch_look(batch_job *job); /* attaches to the job, submits it, or ends it as lost */
batch_find *stk_batch_find(batch_driver *driver, batch_queue *queue, const char *name,
                           uint32_t n_tries, int64_t due_ms); /* NULL: no memory */
/* Makes the due calls. Returns milliseconds until the next (-1: none). */
int64_t stk_batch_find_due(batch_driver *driver, int64_t now_ms);
void stk_batch_finds_free(batch_driver *driver);

/* --- batch_lists.c: slow requests to the share, on their own thread --- */

/* Starts to write the array's list, or (NULL) to read all lists of the run. NULL: an error. */
batch_errand *stk_batch_errand_begin(batch_driver *driver, const stk_remote_array *array,
                                     stk_err *err);
bool stk_batch_errand_is_over(const batch_errand *errand);
/* Ends it, and gives the lists to the driver. */
int stk_batch_errand_end(batch_errand *errand, stk_err *err);
void stk_batch_errand_drop(batch_errand *errand); /* finished or not; NULL is fine */

#endif
