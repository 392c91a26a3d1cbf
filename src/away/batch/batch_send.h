/* How jobs are sent: each alone, or with others that are alike as an array. */
#ifndef STK_BATCH_SEND_H
#define STK_BATCH_SEND_H

#include "away/batch/batch_find.h"
#include "base/digest.h"

/* What one SubmitJob asks for: a job, or the children of an array. It gathers jobs that are alike
 * for a moment, then has its list put into the share, and is sent. */
struct batch_send {
    struct batch_send *next;
    batch_driver *driver;
    stk_arena *arena;
    char form[STK_DIGEST_HEX + 1]; /* of what they have in common; "": takes nobody in */
    char name[STK_BATCH_NAME + 1]; /* "": it gathers */
    batch_job **jobs;              /* by their index */
    uint32_t n, cap;
    int64_t first_ms, last_ms; /* when the first and the last one came */
    const char *list_key, *request;
    batch_errand *errand; /* its list is being put */
    batch_find *find;     /* its answer was lost */
};

void stk_batch_gather(batch_job *job);
int64_t stk_batch_send_due(batch_driver *driver, int64_t now_ms); /* as of stk_batch_find_due */
void stk_batch_send_found(batch_send *send);                      /* its find is known */
void stk_batch_sends_free(batch_driver *driver);
/* The request and the name of the array that begins with this job, for `plan --manifest`. */
int stk_batch_array_preview(const stk_batch_ask *ask, const char *definition, stk_arena *arena,
                            const char **ret_request, stk_err *err);

#endif
