/* Who may ask: whoever has the token, by a name of the loopback interface. */
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/text.h"
#include "ui/ui_private.h"

void stk_ui_random(char ret_text[UI_SECRET + 1])
{
    unsigned char bytes[UI_SECRET / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) {
        abort(); /* getrandom never fails for so few bytes */
    }
    for (size_t i = 0; i < sizeof bytes; i++) {
        (void)snprintf(ret_text + 2 * i, 3, "%02x", bytes[i]);
    }
}

bool stk_ui_secrets_equal(const char *a, const char *b)
{
    return strlen(a) == strlen(b) && CRYPTO_memcmp(a, b, strlen(a)) == 0;
}

static const char *header(const ui_request *r, const char *name)
{
    return evhttp_find_header(evhttp_request_get_input_headers(r->http), name);
}

/* The name of "NAME:PORT", "[::1]:PORT" or "NAME". */
static size_t name_length(const char *host)
{
    const char *end = host[0] == '[' ? strchr(host, ']') : NULL;
    if (end != NULL) {
        return (size_t)(end + 1 - host);
    }
    return strcspn(host, ":");
}

static bool is_host(const ui_request *r, const char *host)
{
    static const char *const ours[] = {"localhost", "127.0.0.1", "[::1]", NULL};
    const char *const *lists[] = {ours, r->ui->options->hosts};
    size_t n = name_length(host);
    for (size_t i = 0; i < 2; i++) {
        for (const char *const *name = lists[i]; name != NULL && *name != NULL; name++) {
            if (strlen(*name) == n && strncasecmp(*name, host, n) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* Another site's page would send its own name in Host, even if that leads to us (DNS rebinding). */
static bool has_host(const ui_request *r)
{
    const char *host = header(r, "Host");
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(r->http);
    return host != NULL && is_host(r, host) && evhttp_uri_get_host(uri) == NULL;
}

/* The value of our cookie in "a=b; c=d"; its length is the token's, or it isn't ours. */
static bool has_cookie(const ui_request *r)
{
    const char *at = header(r, "Cookie");
    size_t n_name = strlen(r->ui->cookie), n_token = strlen(r->ui->token);
    while (at != NULL && *at != '\0') {
        at += strspn(at, "; ");
        size_t n = strcspn(at, ";");
        if (n == n_name + 1 + n_token && strncmp(at, r->ui->cookie, n_name) == 0 &&
            at[n_name] == '=' && CRYPTO_memcmp(at + n_name + 1, r->ui->token, n_token) == 0) {
            return true;
        }
        at += n;
    }
    return false;
}

static bool has_bearer(const ui_request *r)
{
    const char *text = header(r, "Authorization");
    return text != NULL && strncasecmp(text, "Bearer ", 7) == 0 &&
           stk_ui_secrets_equal(text + 7, r->ui->token);
}

bool stk_ui_guard_form(const ui_request *r)
{
    const char *origin = header(r, "Origin"), *host = header(r, "Host");
    const char *form = evhttp_find_header(&r->body, "form");
    const char *site = header(r, "Sec-Fetch-Site");
    const char *name = origin == NULL ? NULL : strstr(origin, "://");
    return name != NULL && host != NULL && strcasecmp(name + 3, host) == 0 &&
           (site == NULL || strcmp(site, "same-origin") == 0) && form != NULL &&
           stk_ui_secrets_equal(form, r->ui->form);
}

/* The cookie is for this server's paths, and other sites' pages can't make a browser send it along
 * with a POST. */
static void set_cookie(const ui_request *r)
{
    char text[600];
    (void)snprintf(text, sizeof text, "%s=%s; Path=%s/; HttpOnly; SameSite=Lax", r->ui->cookie,
                   r->ui->token, r->ui->prefix);
    evhttp_add_header(evhttp_request_get_output_headers(r->http), "Set-Cookie", text);
}

/* The page again, without the token in its address. */
static void redirect_bare(ui_request *r)
{
    STK_BUF_AUTO where = STK_BUF_INIT(UI_HEADERS_MAX);
    const char *before = "?";
    stk_buf_printf(&where, "./%s", r->page);
    for (const struct evkeyval *one = r->query.tqh_first; one != NULL; one = one->next.tqe_next) {
        if (strcmp(one->key, "token") != 0) {
            stk_buf_text(&where, before);
            stk_buf_percent(&where, one->key, strlen(one->key), "");
            stk_buf_char(&where, '=');
            stk_buf_percent(&where, one->value, strlen(one->value), "/");
            before = "&";
        }
    }
    set_cookie(r);
    stk_ui_redirect(r, stk_text_or(where.data, "./"));
}

static void refuse(ui_request *r, const char *text, const char *hint)
{
    stk_err err = {0};
    stk_err_set(&err, STK_E_UNTRUSTED, "%s", text);
    stk_err_hint(&err, "%s", hint);
    r->type = "text/plain; charset=utf-8";
    stk_ui_answer(r, STK_E_UNTRUSTED, &err);
}

bool stk_ui_guard(ui_request *r)
{
    const char *token = stk_ui_get(r, "token");
    if (!has_host(r)) {
        refuse(r, "this server answers only to localhost",
               "name the host of a proxy with 'stoker ui --host NAME'");
        return false;
    }
    bool is_named = token != NULL && stk_ui_secrets_equal(token, r->ui->token);
    if (is_named && evhttp_request_get_command(r->http) == EVHTTP_REQ_GET &&
        strcmp(r->page, "metrics") != 0) {
        redirect_bare(r);
        return false;
    }
    if (!is_named && (token != NULL || !has_cookie(r)) && !has_bearer(r)) {
        refuse(r, "the token is missing or wrong",
               "open the address that 'stoker ui' printed when it started");
        return false;
    }
    return true;
}
