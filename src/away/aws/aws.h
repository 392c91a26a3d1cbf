/* aws: credentials, service endpoints, signatures and retries for AWS. Reads the standard variables
 * and files as AWS's own tools do (`stk_aws_open`).
 *
 * A caller with its own thread uses stk_aws_call. With http_many, stk_aws_request makes the
 * request, stk_aws_settle reads its result, and stk_aws_next decides whether and when to retry.
 *
 * Errors never contain secrets.
 */
#ifndef STK_AWS_H
#define STK_AWS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "net/http.h"

/* Credentials, renewed when due, and the settings of environment and files. Thread-safe. */
typedef struct stk_aws stk_aws;

/* Reads the files (AWS_CONFIG_FILE, AWS_SHARED_CREDENTIALS_FILE, else ~/.aws/…) for `profile`
 * (NULL: AWS_PROFILE, else "default"); sends no request yet. Credentials come from the first of
 * these that has any: AWS_ACCESS_KEY_ID …; the profile's role_arn (source_profile,
 * credential_source, web_identity_token_file); AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN
 * (IRSA); the profile's own keys or credential_process; AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or
 * _FULL_URI (ECS, EKS pod identity); the instance's metadata (IMDSv2, unless
 * AWS_EC2_METADATA_DISABLED). STK_E_ENV: no such profile, a file that can't be read. */
int stk_aws_open(const char *profile, stk_aws **ret, stk_err *err);
void stk_aws_close(stk_aws *aws); /* NULL is fine */
static inline void stk_aws_close_auto(stk_aws **aws)
{
    stk_aws_close(*aws);
}
#define STK_AWS_AUTO __attribute__((cleanup(stk_aws_close_auto))) stk_aws *

typedef struct stk_aws_keys {
    char id[160];
    char secret[160];
    char token[8192];   /* "": none */
    int64_t expires_ms; /* Unix time; -1: never */
    char from[200];     /* "profile 'dev'" */
} stk_aws_keys;
/* Renews them before they expire. When AWS has refused them as expired or unknown, reads their
 * source again, files included, at most every 3 s. STK_E_ENV: there are none, or they can't be
 * renewed; the message lists the sources tried. */
int stk_aws_get_keys(stk_aws *aws, stk_aws_keys *ret, stk_err *err);
/* From AWS_REGION, AWS_DEFAULT_REGION, the profile or the instance. STK_E_ENV: unknown. */
int stk_aws_region(stk_aws *aws, char *ret, size_t size, stk_err *err);
/* A setting of the profile ("s3.addressing_style"), or NULL. Borrowed. */
const char *stk_aws_setting(const stk_aws *aws, const char *key);
/* "https://batch.eu-west-1.amazonaws.com", without a trailing slash. `service` is its name in hosts
 * and signatures: "s3", "batch", "logs", "sts". AWS_ENDPOINT_URL_<SERVICE>, AWS_ENDPOINT_URL and
 * the profile's endpoint win; then *ret_custom (may be NULL) is true. Else the region's partition
 * and the settings for FIPS and dual stack decide. */
int stk_aws_endpoint(stk_aws *aws, const char *service, char *ret, size_t size, bool *ret_custom,
                     stk_err *err);
const stk_http_tls *stk_aws_tls(const stk_aws *aws); /* AWS_CA_BUNDLE; NULL: default */

/* --- signing --- */

/* Adds AWS's headers to `request->headers` (in `arena`): the time, the token, and the signature
 * over method, URL, headers and body. The URL is already encoded. `payload_sha256`: hex, of a body
 * that isn't in `body`; NULL: computed from `body`. `region` NULL: ours. */
int stk_aws_sign(stk_aws *aws, const char *service, const char *region, const char *payload_sha256,
                 stk_http_request *request, stk_arena *arena, stk_err *err);
/* A URL that works without credentials for `seconds`, but no longer than the credentials that sign
 * it are valid. */
int stk_aws_presign(stk_aws *aws, const char *service, const char *region, const char *method,
                    const char *url, int64_t seconds, stk_buf *ret, stk_err *err);
/* Percent-encodes all but A-Z a-z 0-9 - . _ ~ and, unless `slashes`, '/'. */
void stk_aws_encode(stk_buf *out, const char *text, bool slashes);

/* --- results and retries --- */

typedef enum {
    STK_AWS_STOP,   /* a retry won't help */
    STK_AWS_AGAIN,  /* a temporary failure: 5xx, a cut connection */
    STK_AWS_SLOWER, /* throttled */
    STK_AWS_CLOCK,  /* signed with a wrong time */
    STK_AWS_EXPIRED /* the credentials have expired or were deleted */
} stk_aws_again;

/* Classifies a status (0: no answer) and AWS's code ("" or NULL: unknown). Pure. */
stk_aws_again stk_aws_retry(int status, const char *code);
/* Returns 0 for an answer 200 to 299, else an error with AWS's code and message; *ret_again: may a
 * retry help? If AWS reports that our clock is wrong, takes the time from its answer. If AWS
 * refuses credentials that it accepted before, the next request looks for new ones, and the error
 * names their source. Credentials that it never accepted are wrong: STOP. `rc` and `err` are the
 * request's. ret_code (may be NULL) is AWS's code, "" if there is none. */
int stk_aws_settle(stk_aws *aws, int rc, const stk_http_response *response, char ret_code[80],
                   stk_aws_again *ret_again, stk_err *err);

typedef struct stk_aws_tries {
    uint32_t n;   /* made so far */
    uint32_t max; /* 0: AWS_MAX_ATTEMPTS, else 8 */
    bool clock_set;
    bool renewed;
} stk_aws_tries;
/* After a failed try: returns whether to try again, and sets the wait in milliseconds (exponential
 * with jitter, at least Retry-After). */
bool stk_aws_next(stk_aws_tries *tries, stk_aws_again again, const stk_http_response *response,
                  int64_t *ret_wait_ms);

/* --- services that speak JSON --- */

typedef struct stk_aws_ask {
    const char *service; /* "batch" */
    const char *method;  /* NULL: POST */
    const char *path;    /* "/v1/submitjob"; NULL: "/" */
    const char *target;  /* X-Amz-Target, for services that name the operation there; or NULL */
    const char *body;    /* JSON; NULL: none */
    int cancel_fd;       /* readable: stop (STK_E_CANCELLED); 0: none */
} stk_aws_ask;

/* Makes the signed request, in `arena`. Good for one try, because it contains the time. */
int stk_aws_request(stk_aws *aws, const stk_aws_ask *ask, stk_arena *arena, stk_http_request *ret,
                    stk_err *err);
/* Sends the request, with retries. `ret` is the last answer (its body is the JSON); the caller
 * calls stk_http_done. ret_code is that of stk_aws_settle. `session` may be NULL. */
int stk_aws_call(stk_aws *aws, stk_http_session *session, const stk_aws_ask *ask,
                 stk_http_response *ret, char ret_code[80], stk_err *err);

/* A log-in of 12 hours for the registry `host` ("1.dkr.ecr.eu-west-1.amazonaws.com"), by
 * GetAuthorizationToken in its region. In `arena`. STK_E_NOT_FOUND: `host` isn't one of ECR, or
 * there are no credentials of AWS here. */
int stk_aws_ecr_login(const char *host, stk_arena *arena, const char **ret_user,
                      const char **ret_secret, stk_err *err);

/* --- helpers for other kinds of answers --- */

/* Reads the text of the first <tag> after *at, with entities resolved, and moves *at past it.
 * Returns false if there is none or it is too long. */
bool stk_aws_xml(const char **at, const char *tag, char *ret, size_t size);
/* Waits. Returns true if `cancel_fd` became readable. */
bool stk_aws_wait(int64_t wait_ms, int cancel_fd);

#endif
