/* Submits jobs: each alone, or alike ones together as an array. */
#ifndef STK_BATCH_SEND_H
#define STK_BATCH_SEND_H

#include "away/batch/batch_find.h"
#include "base/digest.h"

/* One SubmitJob: a job, or the children of an array. It gathers alike jobs for a moment, writes
 * their list to the share, and submits. */
struct batch_send {
    struct batch_send *next;
    batch_driver *driver;
    stk_arena *arena;
    char form[STK_DIGEST_HEX +
              1]; /* digest of what its jobs have in common; "": takes no more jobs */
    char name[STK_BATCH_NAME + 1]; /* "": still gathers */
    batch_job **jobs;              /* by index */
    uint32_t n, cap;
    int64_t first_ms, last_ms; /* when the first and the last one came */
    stk_remote_array list;     /* of an array */
    const char *request;
    batch_errand *errand; /* writes its list */
    batch_find *find;     /* searches the job after a lost answer */
};

void stk_batch_gather(batch_job *job);
int64_t stk_batch_send_due(batch_driver *driver,
                           int64_t now_ms);  /* returns as stk_batch_find_due */
void stk_batch_send_found(batch_send *send); /* its search has ended */
void stk_batch_sends_free(batch_driver *driver);
/* The request and the name of an array that begins with this job, for `plan --manifest`. */
int stk_batch_array_preview(const stk_batch_ask *ask, const char *definition, stk_arena *arena,
                            const char **ret_request, stk_err *err);

#endif
