#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "away/aws/aws_private.h"
#include "base/testing.h"
#include "sys/file.h"

enum { COLUMNS = 8, HEADERS = 8 };

static int n_checked;

static void check(char **column)
{
    bool s3 = strcmp(column[0], "s3") == 0;
    bool presigns = strcmp(column[2], "PRESIGN") == 0;
    stk_aws_keys keys = {.id = "AKIDEXAMPLE", .secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"};
    const char *headers[HEADERS + 1] = {0};
    char url[256];
    char sum[STK_DIGEST_HEX + 1];
    char expected[256];
    stk_aws_signature s;
    stk_err err = {0};
    if (s3) {
        keys = (stk_aws_keys){.id = "AKIAIOSFODNN7EXAMPLE",
                              .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
    }
    (void)snprintf(url, sizeof url, "https://%s%s",
                   s3 ? "examplebucket.s3.amazonaws.com" : "example.amazonaws.com", column[3]);
    size_t n = 0;
    for (char *rest = column[4], *one;
         strcmp(column[4], "-") != 0 && n < HEADERS && (one = strsep(&rest, "|")) != NULL;) {
        headers[n++] = one;
    }
    const char *body = strcmp(column[5], "-") == 0 ? "" : column[5];
    stk_digest_of(body, strlen(body), sum);
    stk_aws_to_sign q = {.method = presigns ? "GET" : column[2],
                         .url = url,
                         .headers = headers,
                         .payload_sha256 = presigns ? "UNSIGNED-PAYLOAD" : sum,
                         .service = s3 ? "s3" : "service",
                         .region = "us-east-1",
                         .time_ms = s3 ? 1369353600000 : 1440938160000,
                         .presign_s = presigns ? 86400 : 0};
    assert_int_equal(stk_aws_make_signature(&q, &keys, &s, &err), 0);
    (void)snprintf(expected, sizeof expected, "SignedHeaders=%s, Signature=%s", column[6],
                   column[7]);
    if (presigns) {
        (void)snprintf(expected, sizeof expected, "X-Amz-SignedHeaders=%s&X-Amz-Signature=%s",
                       column[6], column[7]);
    }
    if (strstr(presigns ? s.query.data : s.authorization.data, expected) == NULL) {
        fail_msg("%s: %s\nis not\n%s\nof\n%s", column[1],
                 presigns ? s.query.data : s.authorization.data, expected, s.canonical.data);
    }
    stk_aws_signature_done(&s);
    n_checked++;
}

static void test_published_vectors(void **state)
{
    (void)state;
    char path[512];
    char *text = NULL;
    size_t n = 0;
    stk_err err = {0};
    char self[400] = "";
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    *strrchr(self, '/') = '\0';
    (void)snprintf(path, sizeof path, "%s/src/away/aws/sigv4.txt", self);
    if (stk_file_read(path, 1 << 20, &text, &n, &err) < 0) {
        fail_msg("%s", err.text);
    }
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;) {
        char *columns[COLUMNS] = {0};
        int i = 0;
        bool says = line[0] != '#' && line[0] != '\0';
        while (says && i < COLUMNS && (columns[i] = strsep(&line, "\t")) != NULL) {
            i++;
        }
        if (i == COLUMNS) {
            check(columns);
        } else {
            assert_false(says); /* no case is skipped silently */
        }
    }
    free(text);
    assert_int_equal(n_checked, 24);
}

/* The token is signed and sent; given headers are kept; a default port isn't part of the host. */
static void test_request(void **state)
{
    (void)state;
    static const char *const given[] = {"Content-Type: application/json", NULL};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_err err = {0};
    stk_aws_keys keys = {.id = "ID", .secret = "SECRET", .token = "TOKEN"};
    stk_http_request r = {.method = "POST", .url = "https://h:443/v1/x", .headers = given};
    stk_aws_to_sign q = {.method = "POST",
                         .url = r.url,
                         .payload_sha256 = "UNSIGNED-PAYLOAD",
                         .service = "batch",
                         .region = "eu-west-1",
                         .time_ms = 1440938160000};
    assert_int_equal(stk_aws_sign_with(&q, &keys, &r, arena, &err), 0);
    assert_string_equal(r.headers[0], given[0]);
    assert_string_equal(r.headers[1], "X-Amz-Date: 20150830T123600Z");
    assert_non_null(strstr(r.headers[2], "Authorization: AWS4-HMAC-SHA256 Credential=ID/20150830/"
                                         "eu-west-1/batch/aws4_request, SignedHeaders="
                                         "content-type;host;x-amz-date;x-amz-security-token, "));
    assert_string_equal(r.headers[3], "X-Amz-Security-Token: TOKEN");
    assert_null(r.headers[4]);
    stk_aws_signature with;
    stk_aws_signature without;
    assert_int_equal(stk_aws_make_signature(&q, &keys, &with, &err), 0);
    q.url = "https://h/v1/x";
    assert_int_equal(stk_aws_make_signature(&q, &keys, &without, &err), 0);
    assert_string_equal(with.canonical.data, without.canonical.data);
    stk_aws_signature_done(&with);
    stk_aws_signature_done(&without);
}

/* S3's special rules: the path isn't encoded twice; parameters are sorted and always have a '='. */
static void test_s3_canonical(void **state)
{
    (void)state;
    stk_err err = {0};
    stk_aws_keys keys = {.id = "ID", .secret = "SECRET"};
    stk_aws_signature s;
    stk_aws_to_sign q = {.method = "POST",
                         .url = "http://127.0.0.1:5000/b/a%20b//../c?uploads&b=%2F+~&a=1&B=2",
                         .payload_sha256 = "X",
                         .service = "s3",
                         .region = "r"};
    assert_int_equal(stk_aws_make_signature(&q, &keys, &s, &err), 0);
    static const char begins[] = "POST\n/b/a%20b//../c\nB=2&a=1&b=%2F%2B~&uploads=\n"
                                 "host:127.0.0.1:5000\nx-amz-date:19700101T000000Z\n";
    assert_memory_equal(s.canonical.data, begins, sizeof begins - 1);
    stk_aws_signature_done(&s);
    q.url = "nothing";
    assert_int_equal(stk_aws_make_signature(&q, &keys, &s, &err), STK_E_USAGE);
    stk_aws_signature_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_vectors),
        cmocka_unit_test(test_request),
        cmocka_unit_test(test_s3_canonical),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
