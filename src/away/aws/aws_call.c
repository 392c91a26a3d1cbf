/* Services that speak JSON over HTTP. */
#include <string.h>

#include "away/aws/aws_private.h"
#include "base/text.h"

enum { IDLE_MS = 60000, ARENA = 32 << 20, URL_SIZE = 512 };

int stk_aws_request(stk_aws *aws, const stk_aws_ask *ask, stk_arena *arena, stk_http_request *ret,
                    stk_err *err)
{
    char endpoint[URL_SIZE];
    STK_TRY(stk_aws_endpoint(aws, ask->service, endpoint, sizeof endpoint, NULL, err));
    const char **headers = stk_arena_array(arena, 3, sizeof *headers);
    *ret = (stk_http_request){
        .method = stk_text_or(ask->method, "POST"),
        .url = stk_arena_printf(arena, "%s%s", endpoint, stk_text_or(ask->path, "/")),
        .body = stk_arena_dup(arena, ask->body),
        .body_len = strlen(stk_text_or(ask->body, "")),
        .idle_ms = IDLE_MS,
        .cancel_fd = ask->cancel_fd,
        .tls = stk_aws_tls(aws)};
    if (headers == NULL || ret->url == NULL || (ask->body != NULL && ret->body == NULL)) {
        return stk_err_nomem(err);
    }
    headers[0] = "Content-Type: application/json";
    if (ask->target != NULL) {
        headers[0] = "Content-Type: application/x-amz-json-1.1";
        headers[1] = stk_arena_printf(arena, "X-Amz-Target: %s", ask->target);
    }
    ret->headers = headers;
    return stk_aws_sign(aws, ask->service, NULL, NULL, ret, arena, err);
}

int stk_aws_call(stk_aws *aws, stk_http_session *session, const stk_aws_ask *ask,
                 stk_http_response *ret, char ret_code[80], stk_err *err)
{
    stk_aws_tries tries = {0};
    stk_aws_again again = STK_AWS_STOP;
    int64_t wait = 0;
    int rc;
    do {
        STK_ARENA_AUTO arena = stk_arena_new(ARENA);
        stk_http_request q;
        if (stk_aws_wait(wait, ask->cancel_fd)) {
            return stk_err_set(err, STK_E_CANCELLED, "AWS %s: cancelled", ask->service);
        }
        STK_TRY(stk_aws_request(aws, ask, arena, &q, err));
        q.session = session;
        rc = stk_http_send(&q, ret, err);
        rc = stk_aws_settle(aws, rc, ret, ret_code, &again, err);
    } while (rc < 0 && stk_aws_next(&tries, again, ret, &wait));
    if (rc < 0) {
        return stk_err_context(err, "%s %s", ask->service,
                               stk_text_or(ask->target, stk_text_or(ask->path, "/")));
    }
    return 0;
}
