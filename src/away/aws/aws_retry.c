/* Reads a request's result, and decides on retries. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/param.h>
#include <sys/random.h>
#include <time.h>

#include "away/aws/aws_private.h"
#include "base/text.h"
#include "sys/clock.h"

enum { TRIES = 8, TRIES_MAX = 100, BASE_MS = 100, SLOWER_MS = 500, WAIT_MAX_MS = 20000 };
enum { SKEW_MIN_MS = 60000, ERROR_MAX = 64 << 10 };

stk_aws_again stk_aws_retry(int status, const char *code)
{
    static const struct {
        const char *code;
        stk_aws_again again;
    } known[] = {
        {"Throttling", STK_AWS_SLOWER},
        {"ThrottlingException", STK_AWS_SLOWER},
        {"ThrottledException", STK_AWS_SLOWER},
        {"RequestThrottled", STK_AWS_SLOWER},
        {"RequestThrottledException", STK_AWS_SLOWER},
        {"TooManyRequestsException", STK_AWS_SLOWER},
        {"ProvisionedThroughputExceededException", STK_AWS_SLOWER},
        {"TransactionInProgressException", STK_AWS_SLOWER},
        {"RequestLimitExceeded", STK_AWS_SLOWER},
        {"BandwidthLimitExceeded", STK_AWS_SLOWER},
        {"EC2ThrottledException", STK_AWS_SLOWER},
        {"PriorRequestNotComplete", STK_AWS_SLOWER},
        {"SlowDown", STK_AWS_SLOWER},
        {"RequestTimeout", STK_AWS_AGAIN},
        {"RequestTimeoutException", STK_AWS_AGAIN},
        {"InternalError", STK_AWS_AGAIN},
        {"InternalFailure", STK_AWS_AGAIN},
        {"IDPCommunicationError", STK_AWS_AGAIN},
        {"ServiceUnavailable", STK_AWS_AGAIN},
        {"BadDigest", STK_AWS_AGAIN}, /* damaged in transit */
        {"XAmzContentSHA256Mismatch", STK_AWS_AGAIN},
        {"IncompleteBody", STK_AWS_AGAIN},
        {"OperationAborted", STK_AWS_AGAIN},
        {"RequestTimeTooSkewed", STK_AWS_CLOCK},
        {"RequestInTheFuture", STK_AWS_CLOCK},
        {"RequestExpired", STK_AWS_CLOCK},
        {"SignatureDoesNotMatch", STK_AWS_CLOCK}, /* if our clock is wrong: see settle */
        {"InvalidSignatureException", STK_AWS_CLOCK},
        {"AuthFailure", STK_AWS_CLOCK},
        {"ExpiredToken", STK_AWS_EXPIRED},
        {"ExpiredTokenException", STK_AWS_EXPIRED},
        {"TokenRefreshRequired", STK_AWS_EXPIRED},
        {"InvalidToken", STK_AWS_EXPIRED}, /* from here: if AWS accepted them before, see settle */
        {"InvalidAccessKeyId", STK_AWS_EXPIRED},
        {"InvalidClientTokenId", STK_AWS_EXPIRED},
        {"UnrecognizedClientException", STK_AWS_EXPIRED},
    };
    for (size_t i = 0; code != NULL && i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].code, code) == 0) {
            return known[i].again;
        }
    }
    if (status == 429) {
        return STK_AWS_SLOWER;
    }
    if (status == 0 || status == 408 || status == 500 || status == 502 || status == 503 ||
        status == 504) {
        return STK_AWS_AGAIN;
    }
    return STK_AWS_STOP;
}

/* --- errors in answers --- */

/* "…#Code:http://…" → "Code". */
static void keep_code(const char *from, char code[80])
{
    const char *hash = strrchr(from, '#');
    if (hash != NULL) {
        from = hash + 1;
    }
    (void)snprintf(code, 80, "%.*s", (int)strcspn(from, ": \r\n"), from);
}

static void read_json_error(const stk_http_response *r, char code[80], char *message, size_t size)
{
    static const stk_json_limits limits = {.bytes = ERROR_MAX, .nodes = 1000, .depth = 16};
    static const char *const codes[] = {"__type", "code", "Code"};
    static const char *const messages[] = {"message", "Message", "errorMessage"};
    STK_ARENA_AUTO arena = stk_arena_new(1 << 20);
    stk_json root;
    if (arena == NULL ||
        stk_json_parse(r->body.data, r->body.len, "", &limits, arena, &root, NULL) < 0) {
        return;
    }
    for (size_t i = 0; i < 3; i++) {
        const char *text = stk_json_get_text(&root, codes[i]);
        const char *words = stk_json_get_text(&root, messages[i]);
        if (text != NULL && code[0] == '\0') {
            keep_code(text, code);
        }
        if (words != NULL && message[0] == '\0') {
            (void)snprintf(message, size, "%s", words);
        }
    }
}

/* Reads AWS's code and message from a short XML or JSON error; "": none. */
static void read_error(const stk_http_response *r, char code[80], char *message, size_t size)
{
    char type[200];
    code[0] = message[0] = '\0';
    if (stk_http_header(r, "x-amzn-errortype", type, sizeof type)) {
        keep_code(type, code);
    }
    if (r->body.len > 0 && r->body.data[strspn(r->body.data, " \r\n\t")] == '{') {
        read_json_error(r, code, message, size);
    } else if (r->body.len > 0) {
        char found[80];
        const char *a = r->body.data;
        const char *b = r->body.data;
        if (stk_aws_xml(&a, "Code", found, sizeof found) && code[0] == '\0') {
            keep_code(found, code);
        }
        (void)stk_aws_xml(&b, "Message", message, size);
    }
    if (code[0] == '\0' && r->body.len == 0 && r->status == 404) { /* a HEAD's answer has no body */
        (void)snprintf(code, 80, "NotFound");
    }
}

/* Compares the answer's Date with our clock. Returns true if our clock was too wrong and is now
 * corrected, by this answer or by another one after this request was signed. */
static bool learn_time(stk_aws *aws, const stk_http_response *r)
{
    int64_t theirs = stk_http_date_ms(r);
    if (theirs < 0) {
        return false;
    }
    int64_t skew = theirs - stk_clock_wall_ms(&stk_clock_real);
    int64_t old = aws->skew_ms;
    if (llabs(skew - old) < SKEW_MIN_MS) {
        return llabs(old) >= SKEW_MIN_MS;
    }
    aws->skew_ms = skew;
    return true;
}

static bool is_expired(const char *code)
{
    return strstr(code, "Expired") != NULL || strcmp(code, "TokenRefreshRequired") == 0;
}

int stk_aws_say_refused(const char *from, const char *code, int as, stk_err *err)
{
    stk_err_set(err, as, "AWS says that the credentials from %s %s (%s)", from,
                is_expired(code) ? "have expired" : "are invalid", code);
    if (strcmp(from, STK_AWS_FROM_ENV) == 0) {
        stk_err_hint(err, "renew the credentials, stop the run by SIGTERM, which leaves its jobs "
                          "running, and continue it by `stoker resume`");
    } else {
        stk_err_hint(err, "renew the credentials (`aws sso login`, or new keys in AWS's files)");
    }
    return as;
}

/* The keys have expired or were deleted: the next request looks for new ones. */
static int refuse_keys(stk_aws *aws, const char *code, int as, stk_err *err)
{
    (void)pthread_mutex_lock(&aws->lock);
    aws->is_refused = true;
    (void)stk_aws_say_refused(aws->keys.from, code, as, err);
    (void)pthread_mutex_unlock(&aws->lock);
    return as;
}

static void add_hint(const char *code, stk_err *err)
{
    if (strcmp(code, "SignatureDoesNotMatch") == 0 ||
        strcmp(code, "InvalidSignatureException") == 0) {
        stk_err_hint(
            err, "the secret key doesn't belong to the access key, or a proxy changed the request");
    } else if (strcmp(code, "RequestTimeTooSkewed") == 0) {
        stk_err_hint(err, "correct this machine's clock");
    } else if (strcmp(code, "InvalidAccessKeyId") == 0 ||
               strcmp(code, "UnrecognizedClientException") == 0) {
        stk_err_hint(err, "the credentials belong to another account, or were deleted");
    }
}

int stk_aws_settle(stk_aws *aws, int rc, const stk_http_response *response, char ret_code[80],
                   stk_aws_again *ret_again, stk_err *err)
{
    char buf[80];
    char *code = ret_code != NULL ? ret_code : buf;
    char message[500];
    code[0] = '\0';
    *ret_again = STK_AWS_STOP;
    if (rc < 0) {
        if (rc == STK_E_ENV && !response->fatal) {
            *ret_again = STK_AWS_AGAIN;
        }
        return rc;
    }
    if (response->status >= 200 && response->status < 300) {
        aws->was_accepted = true;
        return 0;
    }
    read_error(response, code, message, sizeof message);
    *ret_again = stk_aws_retry(response->status, code);
    if (*ret_again == STK_AWS_EXPIRED && !is_expired(code) && !aws->was_accepted) {
        *ret_again = STK_AWS_STOP;
    }
    bool silent = response->status == 403 && code[0] == '\0'; /* a HEAD's answer gives no reason */
    if (*ret_again == STK_AWS_CLOCK || silent) {
        *ret_again = learn_time(aws, response) ? STK_AWS_CLOCK : STK_AWS_STOP;
    }
    int as = STK_E_ENV;
    if (response->status == 404 || strcmp(code, "NotFound") == 0) {
        as = STK_E_NOT_FOUND;
    } else if (response->status == 412 || strcmp(code, "Conflict") == 0) {
        as = STK_E_BUSY;
    }
    if (*ret_again == STK_AWS_EXPIRED) {
        return refuse_keys(aws, code, as, err);
    }
    if (code[0] == '\0') {
        stk_err_set(err, as, "AWS answers with status %d", response->status);
    } else if (message[0] == '\0') {
        stk_err_set(err, as, "AWS answers %s with status %d", code, response->status);
    } else {
        stk_err_set(err, as, "AWS says %s: %s", code, message);
    }
    if (err != NULL) {
        add_hint(code, err);
    }
    return as;
}

/* --- retries --- */

static int64_t asked_to_wait(const stk_http_response *r)
{
    char text[40];
    char *end = NULL;
    if (r == NULL || r->head.data == NULL ||
        !stk_http_header(r, "retry-after", text, sizeof text)) {
        return 0;
    }
    long long seconds = strtoll(text, &end, 10);
    return end != text && *end == '\0' && seconds > 0 && seconds < 3600 ? seconds * 1000 : 0;
}

bool stk_aws_next(stk_aws_tries *tries, stk_aws_again again, const stk_http_response *response,
                  int64_t *ret_wait_ms)
{
    const char *most = stk_aws_env("AWS_MAX_ATTEMPTS");
    if (tries->max == 0) {
        long n = strtol(stk_text_or(most, ""), NULL, 10);
        tries->max = n >= 1 && n <= TRIES_MAX ? (uint32_t)n : TRIES;
    }
    tries->n++;
    *ret_wait_ms = 0;
    if (again == STK_AWS_CLOCK || again == STK_AWS_EXPIRED) { /* once each, without a wait */
        bool *done = again == STK_AWS_CLOCK ? &tries->clock_set : &tries->renewed;
        bool first = !*done;
        *done = true;
        return first;
    }
    if (again == STK_AWS_STOP || tries->n >= tries->max) {
        return false;
    }
    uint32_t random = 0;
    (void)!getrandom(&random, sizeof random, 0);
    uint32_t shift = MIN(tries->n - 1, 16);
    int64_t most_ms = (int64_t)(again == STK_AWS_SLOWER ? SLOWER_MS : BASE_MS) << shift;
    most_ms = MIN(most_ms, WAIT_MAX_MS);
    int64_t wait_ms = most_ms / 2 + (int64_t)(random % (uint32_t)(most_ms / 2 + 1));
    *ret_wait_ms = MAX(wait_ms, asked_to_wait(response));
    return true;
}

bool stk_aws_wait(int64_t wait_ms, int cancel_fd)
{
    int64_t end = stk_clock_mono_ms(&stk_clock_real) + wait_ms;
    for (;;) {
        int64_t left = end - stk_clock_mono_ms(&stk_clock_real);
        struct pollfd on = {.fd = cancel_fd > 0 ? cancel_fd : -1, .events = POLLIN};
        int n = poll(&on, 1, (int)MIN(MAX(left, 0), 60000));
        if (n > 0) {
            return true;
        }
        if (left <= 0) {
            return false;
        }
    }
}

/* --- XML, the subset that AWS's answers use --- */

static size_t resolve(const char *from, size_t n, char *to)
{
    static const struct {
        const char *text;
        char c;
    } entities[] = {
        {"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&quot;", '"'}, {"&apos;", '\''}};
    size_t len = 0;
    for (size_t i = 0; i < n;) {
        size_t took = 0;
        for (size_t k = 0; from[i] == '&' && k < sizeof entities / sizeof *entities; k++) {
            size_t size = strlen(entities[k].text);
            if (i + size <= n && memcmp(from + i, entities[k].text, size) == 0) {
                to[len++] = entities[k].c;
                took = size;
            }
        }
        if (took == 0 && from[i] == '&' && i + 3 < n && from[i + 1] == '#') {
            char *end = NULL;
            bool hex = from[i + 2] == 'x';
            long c = strtol(from + i + 2 + hex, &end, hex ? 16 : 10);
            if (c > 0 && c < 128 && *end == ';') {
                to[len++] = (char)c;
                took = (size_t)(end + 1 - (from + i));
            }
        }
        if (took == 0) {
            to[len++] = from[i];
            took = 1;
        }
        i += took;
    }
    return len;
}

bool stk_aws_xml(const char **at, const char *tag, char *ret, size_t size)
{
    char open[80];
    char close[80];
    (void)snprintf(open, sizeof open, "<%s>", tag);
    (void)snprintf(close, sizeof close, "</%s>", tag);
    const char *from = strstr(*at, open);
    const char *end = strstr(stk_text_or(from, ""), close);
    if (end == NULL) {
        return false;
    }
    from += strlen(open);
    *at = end + strlen(close);
    if ((size_t)(end - from) >= size) {
        return false;
    }
    ret[resolve(from, (size_t)(end - from), ret)] = '\0';
    return true;
}
