/* Calls of AWS's JSON services, many at once on the driver's thread. Each is signed when its turn
 * comes, stays within the service's rate, and is retried while that may help. If AWS rejects the
 * credentials, all calls wait: one of them tries the source's new credentials now and then, for
 * stk_share_patience_ms. */
#ifndef STK_BATCH_CALLS_H
#define STK_BATCH_CALLS_H

#include "away/aws/aws.h"
#include "base/json.h"
#include "net/http_many.h"

typedef struct stk_batch_calls stk_batch_calls;

/* Each lane has its own rate: it begins with the documented one, is halved when AWS throttles, and
 * recovers slowly. */
typedef enum {
    STK_BATCH_SUBMITS, /* SubmitJob: 50 a second for each account and region */
    STK_BATCH_ASKS,    /* all other calls of Batch */
    STK_BATCH_LOGS, /* GetLogEvents: 25 a second for each account and region, shared with others */
    STK_BATCH_LANES
} stk_batch_lane;

typedef struct stk_batch_answer {
    int rc;               /* 0, or the error of stk_aws_settle */
    const char *code;     /* AWS's error code; "": unknown */
    const stk_err *err;   /* set after an error */
    const stk_json *json; /* set without an error; NULL: no JSON object */
    bool maybe_done;      /* an error, but AWS may have carried out the request */
} stk_batch_answer;
static inline const char *stk_batch_why(const stk_batch_answer *answer, const char *otherwise)
{
    return answer->err != NULL ? answer->err->text : otherwise;
}
/* The callback only borrows the answer. */
typedef void (*stk_batch_done)(void *arg, const stk_batch_answer *answer);

typedef struct stk_batch_ask_call {
    stk_batch_lane lane;
    const char *service, *path, *target; /* as for stk_aws_ask; texts are static */
    const char *body;                    /* copied */
    bool once;           /* no retry after a try that may have been carried out: maybe_done */
    stk_batch_done done; /* NULL: the answer doesn't matter */
    void *arg;
} stk_batch_ask_call;

/* The shorter of two waits; below 0: forever. */
static inline int64_t stk_batch_sooner(int64_t a, int64_t b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* Calls `note` when errors last long. Borrows aws and m. */
int stk_batch_calls_open(stk_aws *aws, stk_http_many *m, void (*note)(void *arg, const char *text),
                         void *arg, stk_batch_calls **ret, stk_err *err);
void stk_batch_calls_close(stk_batch_calls *calls); /* makes no more calls of `done` */
/* STK_E_NOMEM. */
int stk_batch_call(stk_batch_calls *calls, const stk_batch_ask_call *ask, stk_err *err);
/* The same for a request to Batch other than SubmitJob. */
int stk_batch_call_batch(stk_batch_calls *calls, const char *path, const char *body,
                         stk_batch_done done, void *arg, stk_err *err);
/* Sends the calls that are due. Returns milliseconds until the next is (-1: none waits). */
int64_t stk_batch_calls_pump(stk_batch_calls *calls, int64_t now_ms);
/* Unanswered calls of a lane. */
uint32_t stk_batch_calls_n(const stk_batch_calls *calls, stk_batch_lane lane);

#endif
