#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "away/aws/aws_private.h"
#include "base/testing.h"
#include "sys/file.h"

static char dir[64];
static const char *const variables[] = {"AWS_ACCESS_KEY_ID",
                                        "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN",
                                        "AWS_CREDENTIAL_EXPIRATION",
                                        "AWS_PROFILE",
                                        "AWS_DEFAULT_PROFILE",
                                        "AWS_CONFIG_FILE",
                                        "AWS_SHARED_CREDENTIALS_FILE",
                                        "AWS_REGION",
                                        "AWS_DEFAULT_REGION",
                                        "AWS_ROLE_ARN",
                                        "AWS_WEB_IDENTITY_TOKEN_FILE",
                                        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                        "AWS_ENDPOINT_URL",
                                        "AWS_ENDPOINT_URL_S3",
                                        "AWS_ENDPOINT_URL_CLOUDWATCH_LOGS",
                                        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
                                        "AWS_USE_FIPS_ENDPOINT",
                                        "AWS_USE_DUALSTACK_ENDPOINT",
                                        "AWS_CA_BUNDLE",
                                        "AWS_MAX_ATTEMPTS"};

static void write_file(const char *name, const char *text)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/.aws/%s", dir, name);
    assert_int_equal(stk_file_write(path, text, strlen(text), 0600, NULL), 0);
}

static int set_up(void **state)
{
    (void)state;
    char path[128];
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        (void)unsetenv(variables[i]);
    }
    (void)setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    (void)snprintf(dir, sizeof dir, "/tmp/stk-aws-XXXXXX");
    if (mkdtemp(dir) == NULL) {
        return 1;
    }
    (void)setenv("HOME", dir, 1);
    (void)snprintf(path, sizeof path, "%s/.aws", dir);
    return stk_file_mkdirs(path, 0700, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    return stk_file_remove_tree(dir, NULL);
}

static void files(void)
{
    write_file("config", "# comment\n"
                         "[default]\nregion = eu-central-1\n"
                         "[profile dev]\n  \nregion=us-gov-west-1\nca_bundle = /ca.pem ; comment\n"
                         "s3 =\n  addressing_style = path\n  max_concurrent_requests = 3\n"
                         "services = local\nendpoint_url = http://general:1/\n"
                         "[profile \"two words\"]\nregion = cn-north-1\n"
                         "[services local]\ns3 =\n  endpoint_url = http://of-s3:9\n"
                         "[profile process]\ncredential_process = echo "
                         "'{\"Version\":1,\"AccessKeyId\":\"PID\",\"SecretAccessKey\":\"PSECRET\","
                         "\"SessionToken\":\"PTOKEN\",\"Expiration\":\"2100-01-01T00:00:00Z\"}'\n"
                         "[profile broken]\ncredential_process = echo nothing\n"
                         "[profile fails]\ncredential_process = exit 3\n"
                         "[profile sso]\nsso_session = x\n"
                         "[profile mfa]\nrole_arn = arn:x\nmfa_serial = y\n"
                         "[profile headless]\nrole_arn = arn:x\nsource_profile = sso\n"
                         "[lost section]\nregion = nowhere\n");
    write_file("credentials",
               "[default]\naws_access_key_id = DID\naws_secret_access_key=D/+=SECRET\n"
               "[dev]\naws_access_key_id=VID\naws_secret_access_key=VSECRET\n"
               "aws_session_token = VTOKEN\n");
}

static void check_keys(const char *profile, const char *expected)
{
    stk_aws *aws = NULL;
    stk_aws_keys keys = {0};
    stk_err err = {0};
    char text[512];
    int rc = stk_aws_open(profile, &aws, &err);
    rc = rc < 0 ? rc : stk_aws_get_keys(aws, &keys, &err);
    (void)snprintf(text, sizeof text, "%s %s %s %lld", keys.id, keys.secret, keys.token,
                   (long long)keys.expires_ms);
    if (rc < 0) {
        (void)snprintf(text, sizeof text, "%s", err.text);
    }
    if (strncmp(text, expected, strlen(expected)) != 0) {
        fail_msg("%s: '%s' is not '%s'", profile != NULL ? profile : "NULL", text, expected);
    }
    stk_aws_close(aws);
}

static void test_chain(void **state)
{
    (void)state;
    check_keys(NULL, "no AWS credentials found in the environment, in profile 'default', of the "
                     "container or of this machine (AWS_EC2_METADATA_DISABLED is set)");
    files();
    check_keys(NULL, "DID D/+=SECRET  -1");
    check_keys("dev", "VID VSECRET VTOKEN -1");
    check_keys("process", "PID PSECRET PTOKEN 4102444800000");
    check_keys("broken", "AWS credentials from the profile's credential_process are invalid JSON");
    check_keys("fails", "the profile's credential_process failed (status 3)");
    check_keys("sso", "AWS profile 'sso' signs in with a browser (SSO)");
    check_keys("mfa", "AWS profile 'mfa' needs a code of an MFA device");
    check_keys("headless", "AWS profile 'headless' assumes a role with the credentials of 'sso'");
    check_keys("none", "AWS profile 'none' isn't in AWS's configuration or credentials file");
    (void)setenv("AWS_PROFILE", "dev", 1);
    check_keys(NULL, "VID");
    (void)setenv("AWS_ACCESS_KEY_ID", "EID", 1);
    check_keys(NULL, "AWS credentials from the environment are incomplete");
    (void)setenv("AWS_SECRET_ACCESS_KEY", "ESECRET", 1);
    (void)setenv("AWS_CREDENTIAL_EXPIRATION", "2100-01-01T01:00:00.123+01:00", 1);
    check_keys(NULL, "EID ESECRET  4102444800000");
    (void)unsetenv("AWS_ACCESS_KEY_ID");
    (void)unsetenv("AWS_PROFILE");
    (void)setenv("AWS_SHARED_CREDENTIALS_FILE", "~/nowhere", 1);
    (void)setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://evil.example/x", 1);
    check_keys(NULL,
               "AWS_CONTAINER_CREDENTIALS_FULL_URI 'http://evil.example/x' must be an https URL");
    (void)setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1@evil.example/x", 1);
    check_keys(NULL, "AWS_CONTAINER_CREDENTIALS_FULL_URI 'http://127.0.0.1@evil");
    (void)setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1.evil.example/x", 1);
    check_keys(NULL, "AWS_CONTAINER_CREDENTIALS_FULL_URI 'http://127.0.0.1.evil");
}

static void check_endpoint(const char *profile, const char *service, const char *expected)
{
    stk_aws *aws = NULL;
    stk_err err = {0};
    char url[200];
    assert_int_equal(stk_aws_open(profile, &aws, &err), 0);
    if (stk_aws_endpoint(aws, service, url, sizeof url, NULL, &err) < 0) {
        (void)snprintf(url, sizeof url, "%s", err.text);
    }
    assert_string_equal(url, expected);
    stk_aws_close(aws);
}

static void test_endpoints(void **state)
{
    (void)state;
    check_endpoint(NULL, "batch", "the AWS region is unknown");
    files();
    check_endpoint(NULL, "batch", "https://batch.eu-central-1.amazonaws.com");
    check_endpoint("two words", "s3", "https://s3.cn-north-1.amazonaws.com.cn");
    check_endpoint("dev", "s3", "http://of-s3:9");
    check_endpoint("dev", "batch", "http://general:1");
    (void)setenv("AWS_ENDPOINT_URL", "http://all:2/", 1);
    (void)setenv("AWS_ENDPOINT_URL_CLOUDWATCH_LOGS", "http://logs:3", 1);
    check_endpoint("dev", "s3", "http://all:2");
    check_endpoint("dev", "logs", "http://logs:3");
    (void)setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true", 1);
    check_endpoint("dev", "logs", "https://logs.us-gov-west-1.amazonaws.com");
    (void)setenv("AWS_USE_FIPS_ENDPOINT", "true", 1);
    (void)setenv("AWS_USE_DUALSTACK_ENDPOINT", "true", 1);
    (void)setenv("AWS_REGION", "us-east-2", 1);
    check_endpoint("dev", "s3", "https://s3-fips.dualstack.us-east-2.amazonaws.com");
    check_endpoint("dev", "batch", "https://batch-fips.us-east-2.api.aws");
}

static void test_settings(void **state)
{
    (void)state;
    stk_aws *aws = NULL;
    files();
    assert_int_equal(stk_aws_open("dev", &aws, NULL), 0);
    assert_string_equal(stk_aws_setting(aws, "s3.addressing_style"), "path");
    assert_string_equal(stk_aws_setting(aws, "s3.max_concurrent_requests"), "3");
    assert_null(stk_aws_setting(aws, "addressing_style"));
    assert_string_equal(stk_aws_tls(aws)->ca_file, "/ca.pem");
    stk_aws_close(aws);
}

static void test_retry(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *code;
        stk_aws_again again;
    } cases[] = {{0, NULL, STK_AWS_AGAIN},
                 {500, "", STK_AWS_AGAIN},
                 {503, "SlowDown", STK_AWS_SLOWER},
                 {400, "ThrottlingException", STK_AWS_SLOWER},
                 {429, "", STK_AWS_SLOWER},
                 {400, "RequestTimeout", STK_AWS_AGAIN},
                 {403, "RequestTimeTooSkewed", STK_AWS_CLOCK},
                 {400, "ExpiredToken", STK_AWS_EXPIRED},
                 {403, "AccessDenied", STK_AWS_STOP},
                 {404, "NoSuchKey", STK_AWS_STOP},
                 {501, "NotImplemented", STK_AWS_STOP}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(stk_aws_retry(cases[i].status, cases[i].code), cases[i].again);
    }
}

static void test_waits(void **state)
{
    (void)state;
    int64_t wait = 0;
    stk_aws_tries t = {0};
    stk_http_response r = {.head = STK_BUF_INIT(100)};
    stk_buf_text(&r.head, "HTTP/1.1 503 x\r\nRetry-After: 7\r\n\r\n");
    assert_true(stk_aws_next(&t, STK_AWS_CLOCK, NULL, &wait));
    assert_int_equal(wait, 0);
    assert_false(stk_aws_next(&t, STK_AWS_CLOCK, NULL, &wait)); /* only once */
    assert_true(stk_aws_next(&t, STK_AWS_EXPIRED, NULL, &wait));
    assert_false(stk_aws_next(&t, STK_AWS_EXPIRED, NULL, &wait));
    assert_false(stk_aws_next(&t, STK_AWS_STOP, NULL, &wait));
    t = (stk_aws_tries){0};
    int n = 1;
    for (int64_t most = 100; stk_aws_next(&t, STK_AWS_AGAIN, NULL, &wait); most *= 2, n++) {
        assert_in_range(wait, most / 2, most);
    }
    assert_int_equal(n, 8);
    (void)setenv("AWS_MAX_ATTEMPTS", "3", 1);
    t = (stk_aws_tries){0};
    assert_true(stk_aws_next(&t, STK_AWS_SLOWER, &r, &wait));
    assert_int_equal(wait, 7000);
    assert_true(stk_aws_next(&t, STK_AWS_SLOWER, NULL, &wait));
    assert_false(stk_aws_next(&t, STK_AWS_SLOWER, NULL, &wait));
    stk_buf_done(&r.head);
}

static void answer(stk_http_response *r, int status, const char *head, const char *body)
{
    stk_http_done(r);
    *r = (stk_http_response){
        .status = status, .head = STK_BUF_INIT(1000), .body = STK_BUF_INIT(1000)};
    stk_buf_text(&r->head, head);
    stk_buf_text(&r->body, body);
}

static void test_settle(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *head;
        const char *body;
        int rc;
        stk_aws_again again;
        const char *code;
        const char *text;
    } cases[] = {
        {204, "", "", 0, STK_AWS_STOP, "", ""},
        {403, "",
         "<?xml version=\"1.0\"?>\n<Error><Code>AccessDenied</Code><Message>No &lt;you&gt;"
         "</Message></Error>",
         STK_E_ENV, STK_AWS_STOP, "AccessDenied", "AWS says AccessDenied: No <you>"},
        {404, "", "<Error><Code>NoSuchKey</Code><Message>Gone</Message></Error>", STK_E_NOT_FOUND,
         STK_AWS_STOP, "NoSuchKey", "AWS says NoSuchKey: Gone"},
        {404, "", "", STK_E_NOT_FOUND, STK_AWS_STOP, "NotFound",
         "AWS answers NotFound with status 404"},
        {412, "", "<Error><Code>PreconditionFailed</Code></Error>", STK_E_BUSY, STK_AWS_STOP,
         "PreconditionFailed", "AWS answers PreconditionFailed with status 412"},
        {400, "x-amzn-ErrorType: ThrottlingException:http://x/\r\n", "{\"message\":\"Slow\"}",
         STK_E_ENV, STK_AWS_SLOWER, "ThrottlingException", "AWS says ThrottlingException: Slow"},
        {400, "", "{\"__type\":\"com.amazon#ClientException\",\"Message\":\"What?\"}", STK_E_ENV,
         STK_AWS_STOP, "ClientException", "AWS says ClientException: What?"},
        {502, "", "<html>gateway</html>", STK_E_ENV, STK_AWS_AGAIN, "",
         "AWS answers with status 502"},
        {403, "Date: Wed, 21 Oct 2015 07:28:00 GMT\r\n", "", STK_E_ENV, STK_AWS_CLOCK, "",
         "AWS answers with status 403"},
        {403, "Date: Wed, 21 Oct 2015 07:28:01 GMT\r\n", /* skew is known; may be signed before */
         "<Error><Code>SignatureDoesNotMatch</Code><Message>m</Message></Error>", STK_E_ENV,
         STK_AWS_CLOCK, "SignatureDoesNotMatch", "AWS says SignatureDoesNotMatch: m"},
    };
    stk_aws *aws = NULL;
    stk_http_response r = {0};
    assert_int_equal(stk_aws_open(NULL, &aws, NULL), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char head[300];
        char code[80];
        stk_aws_again again;
        stk_err err = {0};
        (void)snprintf(head, sizeof head, "HTTP/1.1 %d X\r\n%s\r\n", cases[i].status,
                       cases[i].head);
        answer(&r, cases[i].status, head, cases[i].body);
        assert_int_equal(stk_aws_settle(aws, 0, &r, code, &again, &err), cases[i].rc);
        assert_int_equal(again, cases[i].again);
        assert_string_equal(code, cases[i].code);
        assert_string_equal(err.text, cases[i].text);
    }
    stk_http_done(&r);
    stk_aws_close(aws);
}

static stk_aws_again settle_code(stk_aws *aws, const char *code, stk_err *err)
{
    char body[200];
    stk_aws_again again = STK_AWS_STOP;
    stk_http_response r = {0};
    (void)snprintf(body, sizeof body, "<Error><Code>%s</Code></Error>", code);
    answer(&r, code[0] == '\0' ? 200 : 403, "HTTP/1.1 403 X\r\n\r\n", code[0] == '\0' ? "" : body);
    (void)stk_aws_settle(aws, 0, &r, NULL, &again, err);
    stk_http_done(&r);
    return again;
}

static void check_id(stk_aws *aws, const char *id)
{
    stk_aws_keys keys = {0};
    assert_int_equal(stk_aws_get_keys(aws, &keys, NULL), 0);
    assert_string_equal(keys.id, id);
}

/* After AWS refuses the keys, the file is read again, but not after every refusal. */
static void test_renewed_in_the_file(void **state)
{
    (void)state;
    stk_aws *aws = NULL;
    stk_err err = {0};
    files();
    assert_int_equal(stk_aws_open("dev", &aws, NULL), 0);
    check_id(aws, "VID");
    write_file("credentials", "[dev]\naws_access_key_id=NEW\naws_secret_access_key=S\n");
    check_id(aws, "VID");
    assert_int_equal(settle_code(aws, "InvalidClientTokenId", &err), STK_AWS_STOP); /* never good */
    check_id(aws, "VID");
    assert_int_equal(settle_code(aws, "ExpiredToken", &err), STK_AWS_EXPIRED);
    assert_string_equal(err.text, "AWS says that the credentials from profile 'dev' have expired "
                                  "(ExpiredToken)");
    check_id(aws, "NEW");
    assert_int_equal(settle_code(aws, "", &err), STK_AWS_STOP);
    write_file("credentials", "[dev]\naws_access_key_id=NEXT\naws_secret_access_key=S\n");
    assert_int_equal(settle_code(aws, "InvalidClientTokenId", &err), STK_AWS_EXPIRED);
    assert_non_null(strstr(err.text, "are invalid"));
    check_id(aws, "NEW"); /* the file was read too recently */
    assert_string_equal(stk_aws_setting(aws, "s3.addressing_style"), "path");
    stk_aws_close(aws);
}

/* While a file is being rewritten, its old content stays in use. */
static void test_refused_while_it_is_written(void **state)
{
    (void)state;
    stk_aws *aws = NULL;
    stk_err err = {0};
    files();
    assert_int_equal(stk_aws_open("dev", &aws, NULL), 0);
    check_id(aws, "VID");
    write_file("credentials", "");
    write_file("config", "");
    assert_int_equal(settle_code(aws, "ExpiredToken", &err), STK_AWS_EXPIRED);
    check_id(aws, "VID");
    stk_aws_close(aws);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {T(test_chain),
                                       T(test_endpoints),
                                       T(test_settings),
                                       T(test_retry),
                                       T(test_waits),
                                       T(test_settle),
                                       T(test_renewed_in_the_file),
                                       T(test_refused_while_it_is_written)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
