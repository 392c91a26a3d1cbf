/* Credentials over HTTP: from a container's agent, the instance's metadata or STS. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "away/aws/aws_private.h"
#include "base/text.h"
#include "sys/clock.h"
#include "sys/file.h"

enum { ANSWER_MAX = 64 << 10, URL_MAX = 2048, NEAR_MS = 1000, TOKEN_MAX = 64 << 10 };

/* Asks a local service: without a proxy, with short timeouts, at most twice. */
static int ask_near(const char *method, const char *url, const char *const *headers,
                    stk_http_response *ret, stk_err *err)
{
    stk_http_request q = {.method = method,
                          .url = url,
                          .headers = headers,
                          .connect_ms = NEAR_MS,
                          .idle_ms = 5 * NEAR_MS,
                          .direct = true};
    int rc = 0;
    for (int i = 0; i < 2; i++) {
        ret->body.max = ANSWER_MAX;
        rc = stk_http_send(&q, ret, err);
        if (rc == 0 && ret->status < 500 && ret->status != 429) {
            break;
        }
    }
    if (rc == 0 && ret->status != 200) {
        rc = stk_err_set(err, STK_E_ENV, "%.*s answers with status %d", (int)strcspn(url, "?"), url,
                         ret->status);
    }
    return rc;
}

static int read_token(const char *path, char **ret, stk_err *err)
{
    size_t n = 0;
    int rc = stk_file_read(path, TOKEN_MAX, ret, &n, err);
    while (rc == 0 && n > 0 && strchr("\r\n \t", (*ret)[n - 1]) != NULL) {
        (*ret)[--n] = '\0';
    }
    if (rc < 0) {
        return stk_err_context(err, "reading the token for AWS");
    }
    return 0;
}

/* --- ECS, EKS pod identity --- */

/* Without TLS we send the token only to this machine's own agents. */
static bool may_know_token(const char *url)
{
    static const char *const hosts[] = {"169.254.170.2", "169.254.170.23", "[fd00:ec2::23]",
                                        "localhost", "[::1]"};
    if (strncasecmp(url, "https://", 8) == 0) {
        return true;
    }
    if (strncasecmp(url, "http://", 7) != 0) {
        return false;
    }
    const char *host = url + 7;
    size_t n = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":/?#");
    bool known = n > 4 && memchr(host, '@', strcspn(host, "/?#")) == NULL &&
                 strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") >= n;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        known |= strlen(hosts[i]) == n && strncasecmp(host, hosts[i], n) == 0;
    }
    return known;
}

int stk_aws_keys_container(stk_aws *aws, stk_aws_keys *ret, stk_err *err)
{
    (void)aws;
    char url[URL_MAX];
    STK_TEXT_AUTO token = NULL;
    STK_TEXT_AUTO header = NULL;
    const char *relative = stk_aws_env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = stk_aws_env("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    const char *token_file = stk_aws_env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *plain = stk_aws_env("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    const char *host = relative != NULL ? "http://169.254.170.2" : stk_text_or(full, "");
    int n = snprintf(url, sizeof url, "%s%s", host, stk_text_or(relative, ""));
    if (n <= 0 || n >= (int)sizeof url || !may_know_token(url)) {
        return stk_err_set(err, STK_E_ENV,
                           "AWS_CONTAINER_CREDENTIALS_FULL_URI '%.200s' must be an https URL or "
                           "one of this machine",
                           url);
    }
    if (token_file != NULL) {
        STK_TRY(read_token(token_file, &token, err));
        plain = token;
    }
    if (plain != NULL && asprintf(&header, "Authorization: %s", plain) < 0) {
        header = NULL;
        return stk_err_nomem(err);
    }
    if (header != NULL && strpbrk(header, "\r\n") != NULL) {
        return stk_err_set(err, STK_E_ENV, "the container's authorization token has a line break");
    }
    const char *headers[] = {header, NULL};
    STK_HTTP_RESPONSE_AUTO r = {0};
    STK_TRY(ask_near("GET", url, headers, &r, err));
    return stk_aws_keys_json(r.body.data, r.body.len, "the container's agent", ret, err);
}

/* --- IMDSv2 --- */

/* Gets a session token, then reads a path below /latest/ into `ret`. */
static int ask_instance(stk_aws *aws, const char *way, stk_buf *ret, stk_err *err)
{
    char url[URL_MAX];
    char header[512];
    const char *base = stk_text_or(stk_aws_env("AWS_EC2_METADATA_SERVICE_ENDPOINT"),
                                   stk_aws_setting(aws, "ec2_metadata_service_endpoint"));
    const char *mode = stk_text_or(stk_aws_env("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE"),
                                   stk_aws_setting(aws, "ec2_metadata_service_endpoint_mode"));
    bool six = mode != NULL && strcasecmp(mode, "ipv6") == 0;
    base = stk_text_or(base, six ? "http://[fd00:ec2::254]" : "http://169.254.169.254");
    int n_base = (int)strlen(base);
    n_base -= n_base > 0 && base[n_base - 1] == '/';
    if (stk_aws_is_true(stk_aws_env("AWS_EC2_METADATA_DISABLED"))) {
        return stk_err_set(err, STK_E_ENV, "AWS_EC2_METADATA_DISABLED is set");
    }
    static const char *const ttl[] = {"X-aws-ec2-metadata-token-ttl-seconds: 300", NULL};
    STK_HTTP_RESPONSE_AUTO r = {0};
    (void)snprintf(url, sizeof url, "%.*s/latest/api/token", n_base, base);
    STK_TRY(ask_near("PUT", url, ttl, &r, err));
    if (r.body.len == 0 || strpbrk(r.body.data, "\r\n") != NULL ||
        r.body.len > sizeof header - 40) {
        return stk_err_set(err, STK_E_ENV, "the instance's metadata service gives no token");
    }
    (void)snprintf(header, sizeof header, "X-aws-ec2-metadata-token: %s", r.body.data);
    const char *headers[] = {header, NULL};
    (void)snprintf(url, sizeof url, "%.*s/latest/%s", n_base, base, way);
    STK_TRY(ask_near("GET", url, headers, &r, err));
    (void)stk_buf_add(ret, r.body.data, r.body.len);
    return stk_buf_check(ret, err);
}

int stk_aws_keys_instance(stk_aws *aws, stk_aws_keys *ret, stk_err *err)
{
    STK_BUF_AUTO role = STK_BUF_INIT(512);
    STK_BUF_AUTO keys = STK_BUF_INIT(ANSWER_MAX);
    char way[700];
    STK_TRY(ask_instance(aws, "meta-data/iam/security-credentials/", &role, err));
    if (role.len == 0) {
        return stk_err_set(err, STK_E_ENV, "the instance has no role");
    }
    role.data[strcspn(role.data, "\r\n")] = '\0';
    (void)snprintf(way, sizeof way, "meta-data/iam/security-credentials/%s", role.data);
    STK_TRY(ask_instance(aws, way, &keys, err));
    return stk_aws_keys_json(keys.data, keys.len, "the instance's metadata service", ret, err);
}

int stk_aws_instance_region(stk_aws *aws, char *ret, size_t size, stk_err *err)
{
    STK_BUF_AUTO region = STK_BUF_INIT(size - 1);
    STK_TRY(ask_instance(aws, "meta-data/placement/region", &region, err));
    if (region.len == 0) {
        return stk_err_set(err, STK_E_ENV, "the instance's metadata service gives no region");
    }
    (void)snprintf(ret, size, "%.*s", (int)strcspn(region.data, "\r\n"), region.data);
    return 0;
}

/* --- STS --- */

static void add_field(stk_buf *body, const char *name, const char *value)
{
    if (value != NULL) {
        stk_buf_printf(body, "&%s=", name);
        stk_aws_encode(body, value, false);
    }
}

static int ask_sts(stk_aws *aws, const stk_aws_keys *base, const stk_buf *body,
                   stk_http_response *r, stk_err *err)
{
    static const char *const type[] = {
        "Content-Type: application/x-www-form-urlencoded; charset=utf-8", NULL};
    char url[URL_MAX];
    char region[64] = "us-east-1";
    stk_aws_tries tries = {0};
    stk_aws_again again = STK_AWS_STOP;
    int64_t wait = 0;
    int rc;
    const char *known = stk_aws_known_region(aws);
    /* Without a known region we use the global endpoint, and don't ask the instance for one. */
    (void)snprintf(url, sizeof url, "%s", "https://sts.amazonaws.com");
    if (known != NULL) {
        (void)snprintf(region, sizeof region, "%s", known);
    }
    if (known != NULL || stk_aws_env("AWS_ENDPOINT_URL_STS") != NULL ||
        stk_aws_env("AWS_ENDPOINT_URL") != NULL) {
        STK_TRY(stk_aws_endpoint(aws, "sts", url, sizeof url - 1, NULL, err));
    }
    (void)strcat(url, "/");
    char sum[STK_DIGEST_HEX + 1];
    stk_digest_of(body->data, body->len, sum);
    do {
        char code[80];
        STK_ARENA_AUTO arena = stk_arena_new(1 << 20);
        stk_http_request q = {.method = "POST",
                              .url = url,
                              .headers = type,
                              .body = body->data,
                              .body_len = body->len,
                              .idle_ms = 30000,
                              .tls = stk_aws_tls(aws)};
        stk_aws_to_sign s = {.method = "POST",
                             .url = url,
                             .payload_sha256 = sum,
                             .service = "sts",
                             .region = region,
                             .time_ms = stk_clock_wall_ms(&stk_clock_real) + aws->skew_ms};
        (void)stk_aws_wait(wait, 0);
        STK_TRY(stk_err_if_null(arena, err));
        if (base != NULL) {
            STK_TRY(stk_aws_sign_with(&s, base, &q, arena, err));
        }
        rc = stk_http_send(&q, r, err);
        rc = stk_aws_settle(aws, rc, r, code, &again, err);
        if (again == STK_AWS_EXPIRED) {
            rc = stk_aws_say_refused(base != NULL ? base->from : "the file of the token", code, rc,
                                     err);
            again = STK_AWS_STOP;
        }
    } while (rc < 0 && stk_aws_next(&tries, again, r, &wait));
    return rc;
}

int stk_aws_keys_role(stk_aws *aws, const stk_aws_keys *base, const char *role, const char *session,
                      const char *token_file, const char *external_id, const char *duration,
                      stk_aws_keys *ret, stk_err *err)
{
    STK_TEXT_AUTO token = NULL;
    STK_BUF_AUTO body = STK_BUF_INIT(256 << 10);
    STK_HTTP_RESPONSE_AUTO r = {0};
    stk_aws_keys got = {0};
    char expires[64];
    char name[64];
    (void)snprintf(got.from, sizeof got.from, "role '%.180s'", role);
    if (token_file != NULL) {
        STK_TRY(read_token(token_file, &token, err));
    }
    (void)snprintf(name, sizeof name, "stoker-%d", (int)getpid());
    stk_buf_printf(&body, "Action=%s&Version=2011-06-15",
                   base != NULL ? "AssumeRole" : "AssumeRoleWithWebIdentity");
    add_field(&body, "RoleArn", role);
    add_field(&body, "RoleSessionName", stk_text_or(session, name));
    add_field(&body, "ExternalId", external_id);
    add_field(&body, "DurationSeconds", duration);
    add_field(&body, "WebIdentityToken", token);
    int rc = stk_buf_check(&body, err);
    if (rc == 0) {
        rc = ask_sts(aws, base, &body, &r, err);
    }
    if (rc < 0) {
        (void)stk_err_context(err, "can't assume AWS role '%.200s'", role);
        return rc;
    }
    const char *from = strstr(stk_text_or(r.body.data, ""), "<Credentials>");
    const char *a = from;
    const char *b = from;
    const char *c = from;
    const char *d = from;
    if (from != NULL && stk_aws_xml(&a, "AccessKeyId", got.id, sizeof got.id) &&
        stk_aws_xml(&b, "SecretAccessKey", got.secret, sizeof got.secret) &&
        stk_aws_xml(&c, "SessionToken", got.token, sizeof got.token) &&
        stk_aws_xml(&d, "Expiration", expires, sizeof expires)) {
        rc = stk_aws_set_keys(ret, got.id, got.secret, got.token, expires, got.from, err);
    } else {
        rc = stk_err_set(err, STK_E_ENV, "STS answers without credentials for role '%.200s'", role);
    }
    explicit_bzero(&got, sizeof got);
    return rc;
}
