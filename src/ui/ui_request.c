/* Requests and answers: which page is asked for, and the frame around it. */
#include <event2/buffer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "show/show_text.h"
#include "ui/ui_private.h"

/* --- asking --- */

const char *stk_ui_get(const ui_request *r, const char *name)
{
    return evhttp_find_header(&r->query, name);
}

int64_t stk_ui_get_whole(const ui_request *r, const char *name, int64_t otherwise, int64_t max)
{
    const char *text = stk_text_if_any(stk_ui_get(r, name));
    char *end = NULL;
    if (text == NULL) {
        return otherwise;
    }
    long long number = strtoll(text, &end, 10);
    return *end == '\0' && number >= 0 && number <= max ? number : otherwise;
}

int stk_ui_need(const ui_request *r, const char *name, const char **ret, stk_err *err)
{
    *ret = stk_text_if_any(stk_ui_get(r, name));
    if (*ret == NULL) {
        return stk_err_set(err, STK_E_USAGE, "the address of this page lacks '%s='", name);
    }
    return 0;
}

/* --- answering --- */

static const struct {
    int code, status;
    const char *text;
} statuses[] = {{STK_E_NOT_FOUND, 404, "Not Found"},
                {STK_E_USAGE, 400, "Bad Request"},
                {STK_E_UNTRUSTED, 403, "Forbidden"},
                {STK_E_BUSY, 409, "Conflict"},
                {STK_E_LIMIT, 413, "Content Too Large"}};

static void put_document_head(ui_request *r, stk_buf *out, const char *nonce)
{
    stk_html_put(out,
                 "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
                 "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>\n"
                 "<title>%s · stoker</title>\n"
                 "<link rel=\"icon\" href=\"data:,\"/>\n"
                 "<link rel=\"stylesheet\" href=\"ui.css?" STK_VERSION "\"/>\n"
                 "<script src=\"ui.js?" STK_VERSION "\" nonce=\"%s\" defer=\"\"></script></head>\n",
                 stk_text_or(r->title, "stoker"), nonce);
    if (r->change.len > 0) {
        stk_html_put(out, "<body data-change=\"change?%s\">\n", r->change.data);
    } else {
        stk_buf_text(out, "<body>\n");
    }
}

static void put_stores(ui_request *r, stk_buf *out)
{
    if (r->ui->n_stores < 2) {
        return;
    }
    stk_buf_text(out, "<form class=\"stores\" action=\"runs\"><select name=\"store\" "
                      "aria-label=\"store\">");
    for (uint32_t i = 0; i < r->ui->n_stores; i++) {
        bool is_this = r->at == &r->ui->stores[i];
        stk_buf_printf(out, "<option value=\"%u\"%s>", i, stk_text_when(is_this, " selected=\"\""));
        stk_html_put(out, "%s</option>", r->ui->stores[i].name);
    }
    stk_buf_text(out, "</select><button>open</button></form>");
}

static void put_navigation(ui_request *r, stk_buf *out)
{
    static const struct {
        const char *page, *name;
    } links[] = {{"runs", "Runs"},
                 {"now", "Now"},
                 {"names", "Artifacts"},
                 {"steps", "Steps"},
                 {"devices", "Devices"}};
    stk_buf_text(out, "<a class=\"skip\" href=\"#main\">to the content</a>\n"
                      "<nav aria-label=\"pages\"><a class=\"brand\" href=\"runs\">stoker</a>");
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        bool is_this = strcmp(r->page, links[i].page) == 0;
        stk_buf_printf(out, "<a href=\"%s\"%s>%s</a>", links[i].page,
                       stk_text_when(is_this, " aria-current=\"page\""), links[i].name);
    }
    put_stores(r, out);
    stk_buf_text(out, "<span class=\"live\" role=\"status\"></span></nav>\n<main id=\"main\">\n");
}

static void set_header(const ui_request *r, const char *name, const char *value)
{
    (void)evhttp_add_header(evhttp_request_get_output_headers(r->http), name, value);
}

/* What every answer says. The frames of what steps wrote (srcdoc) have the page's policy, so inline
 * styles are allowed; `nonce` NULL: it isn't framed. */
static void set_headers(const ui_request *r, const char *nonce)
{
    char policy[700];
    const char *csp = stk_text_or(r->csp, "default-src 'none'; frame-ancestors 'self'; sandbox");
    if (nonce != NULL) {
        (void)snprintf(policy, sizeof policy,
                       "default-src 'none'; script-src 'nonce-%s'; style-src 'self' "
                       "'unsafe-inline'; img-src data:; connect-src 'self'; frame-src 'self'; "
                       "form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
                       nonce);
        csp = policy;
    }
    set_header(r, "Content-Security-Policy", csp);
    set_header(r, "X-Content-Type-Options", "nosniff");
    set_header(r, "Referrer-Policy", "same-origin");
    set_header(r, "Cross-Origin-Resource-Policy", "same-origin");
    set_header(r, "Cross-Origin-Opener-Policy", "same-origin");
    set_header(r, "Cache-Control", r->is_kept ? "private, max-age=86400" : "no-store");
    set_header(r, "Content-Type", stk_text_or(r->type, "text/html; charset=utf-8"));
    set_header(r, "Connection", "close");
}

static void send_answer(ui_request *r, int status, const char *reason)
{
    STK_BUF_AUTO head = STK_BUF_INIT(1u << 20);
    struct evbuffer *answer = evbuffer_new();
    char nonce[UI_SECRET + 1] = "";
    if (r->type == NULL) {
        stk_ui_random(nonce);
        put_document_head(r, &head, nonce);
        put_navigation(r, &head);
        stk_ui_share_put_state(r, &head);
        stk_buf_text(&r->out, "</main></body></html>\n");
    }
    set_headers(r, stk_text_if_any(nonce));
    if (answer == NULL || head.failed || r->out.failed) {
        evhttp_send_reply(r->http, 500, "Internal Server Error", NULL);
    } else {
        (void)evbuffer_add(answer, stk_text_or(head.data, ""), head.len);
        (void)evbuffer_add(answer, stk_text_or(r->out.data, ""), r->out.len);
        evhttp_send_reply(r->http, status, reason, answer);
    }
    if (answer != NULL) {
        evbuffer_free(answer);
    }
}

static void put_error(ui_request *r, const stk_err *err)
{
    stk_buf_clear(&r->out);
    stk_buf_clear(&r->change);
    r->is_kept = false;
    if (r->type != NULL) {
        r->type = "text/plain; charset=utf-8";
        r->csp = NULL;
        stk_text_safe(&r->out, err->text, "");
        stk_buf_printf(&r->out, "\n%s\n", err->hint);
        return;
    }
    r->title = "not possible";
    stk_html_put(&r->out,
                 "<header><h1>This isn’t possible</h1></header>\n<section class=\"panel failure\">"
                 "<p>%s</p><p class=\"dim\">%s</p></section>\n",
                 err->text, err->hint);
}

void stk_ui_answer(ui_request *r, int rc, const stk_err *err)
{
    int status = 200;
    const char *reason = "OK";
    if (rc < 0) {
        status = 500;
        reason = "Internal Server Error";
        for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
            if (statuses[i].code == rc) {
                status = statuses[i].status;
                reason = statuses[i].text;
            }
        }
        put_error(r, err);
    }
    send_answer(r, status, reason);
    stk_ui_request_free(r);
}

void stk_ui_redirect(ui_request *r, const char *where)
{
    r->type = "text/plain; charset=utf-8";
    set_header(r, "Location", where);
    stk_buf_clear(&r->out);
    send_answer(r, 303, "See Other");
    stk_ui_request_free(r);
}

void stk_ui_request_free(ui_request *r)
{
    evhttp_clear_headers(&r->query);
    evhttp_clear_headers(&r->body);
    stk_buf_done(&r->out);
    stk_buf_done(&r->change);
    stk_arena_free(r->arena);
    free(r);
}
