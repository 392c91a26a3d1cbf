/* aws: who are we to AWS, where are its services, how is a request signed, and when is one asked
 * again? The standard variables and files are honoured as its own tools do (`stk_aws_open`).
 *
 * With one thread of one's own: stk_aws_call. With http_many: stk_aws_request makes the request,
 * stk_aws_settle says what became of it, stk_aws_next whether and when to ask again.
 *
 * Nothing secret is ever in an error.
 */
#ifndef STK_AWS_H
#define STK_AWS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "net/http.h"

/* Credentials that renew themselves, and all that the environment and files say. Thread-safe. */
typedef struct stk_aws stk_aws;

/* Reads the files (AWS_CONFIG_FILE, AWS_SHARED_CREDENTIALS_FILE, else ~/.aws/…) for `profile`
 * (NULL: AWS_PROFILE, else "default"); asks nobody yet. Credentials come, the first that there are,
 * from: AWS_ACCESS_KEY_ID …; the profile's role_arn (source_profile, credential_source,
 * web_identity_token_file); AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN (IRSA); the profile's own
 * keys or credential_process; AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI (ECS, EKS pod
 * identity); the instance's metadata (IMDSv2, unless AWS_EC2_METADATA_DISABLED).
 * STK_E_ENV: no such profile, a file that can't be read. */
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
/* Renewed before they expire, and looked for where they come from, files included, when AWS has
 * said that they are expired or unknown: every 3 s at most. STK_E_ENV: there are none, or they
 * can't be renewed; the sentence says what was tried. */
int stk_aws_get_keys(stk_aws *aws, stk_aws_keys *ret, stk_err *err);
/* AWS_REGION, AWS_DEFAULT_REGION, the profile's, the instance's. STK_E_ENV: unknown. */
int stk_aws_region(stk_aws *aws, char *ret, size_t size, stk_err *err);
/* A setting of the profile ("s3.addressing_style"), or NULL. Borrowed. */
const char *stk_aws_setting(const stk_aws *aws, const char *key);
/* "https://batch.eu-west-1.amazonaws.com", without a '/' at the end. `service` is its name in
 * hosts and signatures: "s3", "batch", "logs", "sts". AWS_ENDPOINT_URL_<SERVICE>, AWS_ENDPOINT_URL
 * and the profile's come first (*ret_custom, may be NULL), then the region's partition, FIPS and
 * dual stack as set. */
int stk_aws_endpoint(stk_aws *aws, const char *service, char *ret, size_t size, bool *ret_custom,
                     stk_err *err);
const stk_http_tls *stk_aws_tls(const stk_aws *aws); /* AWS_CA_BUNDLE; NULL: as usual */

/* --- signing --- */

/* Adds what AWS wants to `request->headers` (in `arena`): the time, the token, the signature over
 * method, URL, headers and body. The URL is encoded as it is sent. `payload_sha256`: hex, of a body
 * that isn't in `body`; NULL: of that one. `region` NULL: ours. */
int stk_aws_sign(stk_aws *aws, const char *service, const char *region, const char *payload_sha256,
                 stk_http_request *request, stk_arena *arena, stk_err *err);
/* A URL that may be used without credentials for `seconds` (no longer than the ones that sign it
 * live). */
int stk_aws_presign(stk_aws *aws, const char *service, const char *region, const char *method,
                    const char *url, int64_t seconds, stk_buf *ret, stk_err *err);
/* Percent-encodes all but A-Z a-z 0-9 - . _ ~ and, unless `slashes`, '/'. */
void stk_aws_encode(stk_buf *out, const char *text, bool slashes);

/* --- what became of a request --- */

typedef enum {
    STK_AWS_STOP,   /* asking again won't help */
    STK_AWS_AGAIN,  /* a fault that passes: 5xx, a cut connection */
    STK_AWS_SLOWER, /* throttled */
    STK_AWS_CLOCK,  /* it was signed at a wrong time */
    STK_AWS_EXPIRED /* so are the credentials, or they aren't known any more */
} stk_aws_again;

/* By status (0: no answer) and AWS's code ("" or NULL: unknown). Pure. */
stk_aws_again stk_aws_retry(int status, const char *code);
/* 0 for an answer 200 to 299; else an error in one sentence with AWS's code and message, and
 * whether asking again may help. Takes the right time from an answer that says ours is wrong, and
 * has credentials that AWS doesn't take any more looked for again by the next request; the error
 * says where they came from. Those that it never took are wrong: STOP. `rc` and `err` are those of
 * the request. ret_code (may be NULL) is AWS's code, "" where there is none. */
int stk_aws_settle(stk_aws *aws, int rc, const stk_http_response *response, char ret_code[80],
                   stk_aws_again *ret_again, stk_err *err);

typedef struct stk_aws_tries {
    uint32_t n;   /* made so far */
    uint32_t max; /* 0: AWS_MAX_ATTEMPTS, else 8 */
    bool clock_set;
    bool renewed;
} stk_aws_tries;
/* After a try that failed: whether to try again, and in how many milliseconds (exponential with
 * jitter, at least what Retry-After says). */
bool stk_aws_next(stk_aws_tries *tries, stk_aws_again again, const stk_http_response *response,
                  int64_t *ret_wait_ms);

/* --- services that speak JSON --- */

typedef struct stk_aws_ask {
    const char *service; /* "batch" */
    const char *method;  /* NULL: POST */
    const char *path;    /* "/v1/submitjob"; NULL: "/" */
    const char *target;  /* X-Amz-Target, for services whose operation is said there; or NULL */
    const char *body;    /* JSON; NULL: none */
    int cancel_fd;       /* readable: stop (STK_E_CANCELLED); 0: none */
} stk_aws_ask;

/* The signed request, all of it in `arena`: for one try (it carries the time). */
int stk_aws_request(stk_aws *aws, const stk_aws_ask *ask, stk_arena *arena, stk_http_request *ret,
                    stk_err *err);
/* Asks until there is an answer or no hope; `ret` is the last answer (its body the JSON), done by
 * the caller. ret_code as of settle. `session` may be NULL. */
int stk_aws_call(stk_aws *aws, stk_http_session *session, const stk_aws_ask *ask,
                 stk_http_response *ret, char ret_code[80], stk_err *err);

/* --- for those who read answers of other kinds --- */

/* The text of the first <tag> from *at on, entities resolved; *at moves behind it. false: there is
 * none, or it is too long. */
bool stk_aws_xml(const char **at, const char *tag, char *ret, size_t size);
/* Waits; true: `cancel_fd` became readable. */
bool stk_aws_wait(int64_t wait_ms, int cancel_fd);

#endif
