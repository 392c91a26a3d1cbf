/* Calls of AWS's JSON services, many at once on the driver's thread: signed when their turn comes,
 * within the rate that the service takes, asked again by themselves while that may help. When AWS
 * doesn't take the credentials any more, all wait: one is asked again by and by, with what their
 * source then has, for stk_share_patience_ms. */
#ifndef STK_BATCH_CALLS_H
#define STK_BATCH_CALLS_H

#include "away/aws/aws.h"
#include "base/json.h"
#include "net/http_many.h"

typedef struct stk_batch_calls stk_batch_calls;

/* Each has a rate of its own: begun with what AWS documents, halved when it throttles, found again
 * slowly. */
typedef enum {
    STK_BATCH_SUBMITS, /* SubmitJob: 50 a second for each account and region */
    STK_BATCH_ASKS,    /* all else of Batch */
    STK_BATCH_LOGS, /* GetLogEvents: 25 a second for each account and region, shared with others */
    STK_BATCH_LANES
} stk_batch_lane;

typedef struct stk_batch_answer {
    int rc;               /* 0, or what stk_aws_settle says */
    const char *code;     /* AWS's, "" unknown */
    const stk_err *err;   /* after an error */
    const stk_json *json; /* after none; NULL: no JSON object */
    bool maybe_done;      /* an error, and the request may have been carried out */
} stk_batch_answer;
static inline const char *stk_batch_why(const stk_batch_answer *answer, const char *otherwise)
{
    return answer->err != NULL ? answer->err->text : otherwise;
}
/* The answer is lent. */
typedef void (*stk_batch_done)(void *arg, const stk_batch_answer *answer);

typedef struct stk_batch_ask_call {
    stk_batch_lane lane;
    const char *service, *path, *target; /* as of stk_aws_ask; texts are static */
    const char *body;                    /* copied */
    bool once; /* after a try that may have been carried out it isn't asked again: maybe_done */
    stk_batch_done done; /* NULL: nobody wants the answer */
    void *arg;
} stk_batch_ask_call;

/* The sooner one of two waits; below 0: never. */
static inline int64_t stk_batch_sooner(int64_t a, int64_t b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* `note` is told what goes wrong for long. Borrowed: aws, m. */
int stk_batch_calls_open(stk_aws *aws, stk_http_many *m, void (*note)(void *arg, const char *text),
                         void *arg, stk_batch_calls **ret, stk_err *err);
void stk_batch_calls_close(stk_batch_calls *calls); /* `done` isn't called any more */
/* STK_E_NOMEM. */
int stk_batch_call(stk_batch_calls *calls, const stk_batch_ask_call *ask, stk_err *err);
/* The same of a request to Batch itself that isn't SubmitJob. */
int stk_batch_call_batch(stk_batch_calls *calls, const char *path, const char *body,
                         stk_batch_done done, void *arg, stk_err *err);
/* Sends what may be sent now; milliseconds until there is more to send (-1: nothing waits for its
 * time). */
int64_t stk_batch_calls_pump(stk_batch_calls *calls, int64_t now_ms);
/* Calls of a lane that aren't answered yet. */
uint32_t stk_batch_calls_n(const stk_batch_calls *calls, stk_batch_lane lane);

#endif
