/* Does Batch have a job already? An engine before us may have sent it: by its own name, or as a
 * child of an array, which lists in the share tell. */
#ifndef STK_BATCH_FIND_H
#define STK_BATCH_FIND_H

#include "away/batch/batch_driver.h"

/* Is a job of this name there? ListJobs, asked again after a while where it may not know yet; of
 * many names at once by what they begin with. */
struct batch_find {
    struct batch_find *next;
    batch_driver *driver;
    batch_queue *queue;
    char name[STK_BATCH_NAME + 1], aws_id[64]; /* aws_id "": it isn't there */
    uint32_t n_left;                           /* times that it is still asked for */
    int64_t due_ms;                            /* 0: under way */
    bool is_known;
};

struct batch_listing {
    struct batch_listing *next;
    batch_queue *queue;
    batch_find **finds; /* by name */
    uint32_t n;
};

/* A child of an array, as a list in the share says; further lists may name the same attempt. */
struct batch_child {
    const struct batch_child *next;
    const char *array; /* its name */
    uint32_t index;
};

void stk_batch_look(batch_job *job); /* attaches to it, sends it, or ends it as lost */
batch_find *stk_batch_find(batch_driver *driver, batch_queue *queue, const char *name,
                           uint32_t n_tries, int64_t due_ms); /* NULL: no memory */
/* What has come due is asked; milliseconds until more is (-1: nothing). */
int64_t stk_batch_find_due(batch_driver *driver, int64_t now_ms);
void stk_batch_finds_free(batch_driver *driver);

/* --- batch_lists.c: asks something of the share, which may take long, on a thread of its own ---
 */

/* Puts the object, or (text NULL) reads all lists of the run. NULL: no memory. */
batch_errand *stk_batch_errand_begin(batch_driver *driver, const char *key, const char *text,
                                     stk_err *err);
bool stk_batch_errand_is_over(const batch_errand *errand);
/* After that; what it read goes to the driver. */
int stk_batch_errand_end(batch_errand *errand, stk_err *err);
void stk_batch_errand_drop(batch_errand *errand); /* whether or not it is over; NULL is fine */

#endif
