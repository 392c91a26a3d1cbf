/* Tokens of registries: a challenge, answered with credentials. */
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "image/image_server.h"

static const stk_json_limits limits = {STK_IMAGE_MAX_BODY, 1 << 20, STK_LIMIT_DEPTH};

enum { IDLE_MS = 30000, CONNECT_MS = 10000, REDIRECTS = 5 };

const char *stk_image_challenge(const char *header, const char *name, stk_arena *arena)
{
    size_t n = strlen(name);
    for (const char *at = header; (at = strcasestr(at, name)) != NULL; at += n) {
        bool begins = at > header && (at[-1] == ' ' || at[-1] == ',' || at[-1] == '\t');
        if (begins && at[n] == '=' && at[n + 1] == '"') {
            return stk_arena_dupn(arena, at + n + 2, strcspn(at + n + 2, "\""));
        }
        if (begins && at[n] == '=') {
            return stk_arena_dupn(arena, at + n + 1, strcspn(at + n + 1, ", \t"));
        }
    }
    return NULL;
}

static void put_encoded(stk_buf *out, const char *text)
{
    stk_buf_percent(out, text, strlen(text), "/:");
}

static const char *basic(const stk_image_server *r)
{
    if (r->login.user == NULL) {
        return NULL;
    }
    const char *pair = stk_arena_printf(r->arena, "%s:%s", r->login.user, r->login.secret);
    if (pair == NULL) {
        return NULL;
    }
    const char *coded = stk_image_base64(pair, strlen(pair), false, r->arena);
    if (coded == NULL) {
        return NULL;
    }
    return stk_arena_printf(r->arena, "Authorization: Basic %s", coded);
}

static int read_token(stk_image_server *r, const stk_http_response *response, stk_err *err)
{
    stk_json root;
    if (response->body.data == NULL ||
        stk_json_parse(response->body.data, response->body.len, "token", &limits, r->arena, &root,
                       NULL) < 0) {
        return stk_err_set(err, STK_E_PROTOCOL,
                           "registry %s answers the request for a token with invalid JSON",
                           r->ref->registry);
    }
    const char *token = stk_json_get_text(&root, "token");
    if (token == NULL) {
        token = stk_json_get_text(&root, "access_token");
    }
    if (token == NULL) {
        return stk_err_set(err, STK_E_PROTOCOL,
                           "registry %s answers the request for a token without one",
                           r->ref->registry);
    }
    r->authorization = stk_arena_printf(r->arena, "Authorization: Bearer %s", token);
    return stk_err_need(r->authorization, "for a token", err);
}

/* GET with Basic credentials, or the exchange of an identity token. */
static int fetch_token(stk_image_server *r, const char *header, stk_err *err)
{
    const char *realm = stk_image_challenge(header, "realm", r->arena);
    const char *service = stk_image_challenge(header, "service", r->arena);
    const char *scope = stk_image_challenge(header, "scope", r->arena);
    STK_BUF_AUTO query = STK_BUF_INIT(64 << 10);
    if (realm == NULL) {
        return stk_err_set(
            err, STK_E_PROTOCOL,
            "registry %s asks for a token, but doesn't name the server that issues it",
            r->ref->registry);
    }
    bool exchange = r->login.token != NULL;
    if (exchange) {
        stk_buf_text(&query, "grant_type=refresh_token&client_id=stoker&");
    }
    stk_buf_text(&query, "service=");
    put_encoded(&query, stk_text_or(service, ""));
    stk_buf_text(&query, "&scope=");
    if (scope != NULL && !r->pushes) {
        put_encoded(&query, scope);
    } else {
        const char *more = stk_text_when(r->pushes, ",push");
        stk_buf_printf(&query, "repository:%s:pull%s", r->ref->repository, more);
    }
    if (exchange) {
        stk_buf_text(&query, "&refresh_token=");
        put_encoded(&query, r->login.token);
    }
    STK_TRY(stk_buf_check(&query, err));
    static const char *const form[] = {"Content-Type: application/x-www-form-urlencoded", NULL};
    const char *const credentials[] = {basic(r), NULL};
    stk_http_request request = {
        .connect_ms = CONNECT_MS, .idle_ms = IDLE_MS, .redirects = REDIRECTS};
    if (exchange) {
        request.method = "POST";
        request.url = realm;
        request.headers = form;
        request.body = query.data;
        request.body_len = query.len;
    } else {
        const char *joint = strchr(realm, '?') == NULL ? "?" : "&";
        request.method = "GET";
        request.url = stk_arena_printf(r->arena, "%s%s%s", realm, joint, query.data);
        request.headers = credentials;
    }
    STK_TRY(stk_err_need(request.url, "for a token", err));
    request.tls = stk_image_server_tls(request.url, r->arena);
    STK_HTTP_RESPONSE_AUTO response = {.body = STK_BUF_INIT(STK_IMAGE_MAX_BODY)};
    STK_TRY(stk_http_send(&request, &response, err));
    if (response.status == 200) {
        return read_token(r, &response, err);
    }
    return stk_image_server_refused(r, &response, err);
}

int stk_image_server_authorize(stk_image_server *r, const stk_http_response *refusal, stk_err *err)
{
    char header[2048];
    if (!stk_http_header(refusal, "WWW-Authenticate", header, sizeof header)) {
        return STK_E_ENV;
    }
    if (strncasecmp(header, "Bearer", 6) == 0) {
        return fetch_token(r, header, err);
    }
    r->authorization = NULL;
    if (strncasecmp(header, "Basic", 5) == 0) {
        r->authorization = basic(r);
    }
    return r->authorization == NULL ? STK_E_ENV : 0;
}
