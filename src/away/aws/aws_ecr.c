/* A short log-in for ECR: GetAuthorizationToken. */
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "away/aws/aws_private.h"
#include "base/text.h"

enum { TOKEN_MAX = 16384, ANSWER_MAX = 256 << 10 };

/* "1.dkr.ecr.eu-west-1.amazonaws.com": the account and the region. */
static bool read_host(const char *host, char account[32], char region[64])
{
    return sscanf(host, "%31[0-9].dkr.ecr.%63[a-z0-9-].", account, region) == 2 ||
           sscanf(host, "%31[0-9].dkr.ecr-fips.%63[a-z0-9-].", account, region) == 2;
}

/* The request in the registry's own region, which needn't be ours. */
static int make_request(stk_aws *aws, const char *region, const char *body, stk_arena *arena,
                        stk_http_request *ret, stk_err *err)
{
    static const char *const headers[] = {
        "Content-Type: application/x-amz-json-1.1",
        "X-Amz-Target: AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken", NULL};
    char url[300];
    bool is_custom = false;
    STK_TRY(stk_aws_endpoint(aws, "ecr", url, sizeof url, &is_custom, err));
    const char *suffix = strncmp(region, "cn-", 3) == 0 ? "amazonaws.com.cn" : "amazonaws.com";
    const char *full = is_custom
                           ? stk_arena_printf(arena, "%s/", url)
                           : stk_arena_printf(arena, "https://api.ecr.%s.%s/", region, suffix);
    *ret = (stk_http_request){.method = "POST",
                              .url = full,
                              .headers = headers,
                              .body = body,
                              .body_len = strlen(body),
                              .tls = stk_aws_tls(aws)};
    STK_TRY(stk_err_if_null(full, err));
    return stk_aws_sign(aws, "ecr", region, NULL, ret, arena, err);
}

/* base64("AWS:secret") */
static int read_pair(const char *coded, stk_arena *arena, const char **ret_user,
                     const char **ret_secret, stk_err *err)
{
    size_t n = strlen(coded);
    char *pair = n % 4 != 0 || n > TOKEN_MAX ? NULL : stk_arena_alloc(arena, n + 1);
    int len = -1;
    if (pair != NULL) {
        len = EVP_DecodeBlock((unsigned char *)pair, (const unsigned char *)coded, (int)n);
    }
    for (size_t i = n; len > 0 && i > 0 && coded[i - 1] == '='; i--) {
        len--;
    }
    char *colon = NULL;
    if (len > 0) {
        pair[len] = '\0';
        colon = strchr(pair, ':');
    }
    if (colon == NULL) {
        return stk_err_set(err, STK_E_PROTOCOL, "AWS ecr: the token has no user and secret");
    }
    *colon = '\0';
    *ret_user = pair;
    *ret_secret = colon + 1;
    return 0;
}

static int read_answer(const stk_http_response *r, stk_arena *arena, const char **ret_user,
                       const char **ret_secret, stk_err *err)
{
    static const stk_json_limits limits = {ANSWER_MAX, 10000, 16};
    stk_json root;
    const char *text = stk_arena_dupn(arena, stk_text_or(r->body.data, ""), r->body.len);
    STK_TRY(stk_err_if_null(text, err));
    STK_TRY(stk_json_parse(text, r->body.len, "AWS ecr", &limits, arena, &root, err));
    const stk_json *list = stk_json_get(&root, "authorizationData");
    const char *coded = NULL;
    if (stk_json_n_items(list) > 0) {
        coded = stk_json_get_text(&list->items[0], "authorizationToken");
    }
    return read_pair(stk_text_or(coded, ""), arena, ret_user, ret_secret, err);
}

int stk_aws_ecr_login(const char *host, stk_arena *arena, const char **ret_user,
                      const char **ret_secret, stk_err *err)
{
    STK_AWS_AUTO aws = NULL;
    stk_aws_keys keys;
    stk_aws_tries tries = {.max = 3};
    stk_aws_again again = STK_AWS_STOP;
    char account[32], region[64], code[80];
    int64_t wait = 0;
    int rc;
    if (!read_host(host, account, region)) {
        return STK_E_NOT_FOUND;
    }
    STK_BUF_AUTO body = STK_BUF_INIT(256);
    stk_json_open(&body, NULL, '{');
    stk_json_open(&body, "registryIds", '[');
    stk_json_put_text(&body, NULL, account);
    stk_json_close(&body, ']');
    stk_json_close(&body, '}');
    STK_TRY(stk_buf_check(&body, err));
    STK_TRY(stk_aws_open(NULL, &aws, err));
    if (stk_aws_get_keys(aws, &keys, err) < 0) {
        return STK_E_NOT_FOUND; /* nobody here has keys of AWS */
    }
    do {
        stk_http_request q;
        STK_HTTP_RESPONSE_AUTO r = {.body = STK_BUF_INIT(ANSWER_MAX)};
        if (stk_aws_wait(wait, 0)) {
            return STK_E_CANCELLED;
        }
        STK_TRY(make_request(aws, region, body.data, arena, &q, err));
        rc = stk_http_send(&q, &r, err);
        rc = stk_aws_settle(aws, rc, &r, code, &again, err);
        if (rc == 0) {
            return read_answer(&r, arena, ret_user, ret_secret, err);
        }
        if (!stk_aws_next(&tries, again, &r, &wait)) {
            return stk_err_context(err, "ecr GetAuthorizationToken");
        }
    } while (true);
}
