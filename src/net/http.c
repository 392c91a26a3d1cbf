#include "net/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/param.h>
#include <time.h>

#include "net/http_curl.h"

enum { WAIT_MS = 1000 };

struct stk_http_session {
    CURLM *multi; /* has the connections */
    CURL *easy;   /* both NULL before the first request that isn't over a unix socket */
    stk_curl_pems pems;
};

int stk_http_session_open(stk_http_session **ret, stk_err *err)
{
    stk_http_session *s = calloc(1, sizeof *s);
    STK_TRY(stk_err_if_null(s, err));
    *ret = s;
    return 0;
}

static void drop(stk_http_session *s)
{
    if (s->easy != NULL) {
        stk_curl.curl_easy_cleanup(s->easy);
    }
    if (s->multi != NULL) {
        (void)stk_curl.curl_multi_cleanup(s->multi);
    }
    stk_curl_pems_done(&s->pems);
}

void stk_http_session_close(stk_http_session *session)
{
    if (session != NULL) {
        drop(session);
        free(session);
    }
}

/* Runs until the transfer ends, is cancelled or stalls. */
static int perform(stk_curl_transfer *t, CURLM *multi, stk_err *err)
{
    const stk_http_request *q = t->request;
    char url[HTTP_SHOWN_MAX];
    int running = 1;
    for (;;) {
        CURLMcode rc = stk_curl.curl_multi_perform(multi, &running);
        if (rc == CURLM_OK && running > 0) {
            struct curl_waitfd cancel = {.fd = q->cancel_fd, .events = CURL_WAIT_POLLIN};
            int64_t left = stk_curl_patience(t);
            if (left <= 0) {
                return stk_curl_silent(t, err);
            }
            left = MIN(left, WAIT_MS);
            rc = stk_curl.curl_multi_wait(multi, &cancel, q->cancel_fd > 0, (int)left, NULL);
            if (rc == CURLM_OK && q->cancel_fd > 0 && cancel.revents != 0) {
                return stk_err_set(err, STK_E_CANCELLED, "%s %s: cancelled", q->method,
                                   stk_http_shown(q->url, url));
            }
        }
        if (rc != CURLM_OK) {
            return stk_err_set(err, STK_E_ENV, "%s %s: %s", q->method, stk_http_shown(q->url, url),
                               stk_curl.curl_multi_strerror(rc));
        }
        if (running == 0) {
            int n = 0;
            const CURLMsg *message = stk_curl.curl_multi_info_read(multi, &n);
            CURLcode code = message == NULL ? CURLE_FAILED_INIT : message->data.result;
            return stk_curl_explain(t, code, err);
        }
    }
}

static int send_in(stk_http_session *s, const stk_http_request *request, stk_http_response *ret,
                   stk_err *err)
{
    if (s->multi == NULL) {
        s->multi = stk_curl.curl_multi_init();
    }
    if (s->easy == NULL) {
        s->easy = stk_curl.curl_easy_init();
    }
    if (s->multi == NULL || s->easy == NULL) {
        return stk_err_nomem(err);
    }
    stk_curl_transfer t = {.request = request, .response = ret, .easy = s->easy};
    stk_curl.curl_easy_reset(s->easy);
    int rc = stk_curl_set_up(&t, &s->pems, err);
    if (rc == 0 && stk_curl.curl_multi_add_handle(s->multi, s->easy) != CURLM_OK) {
        rc = stk_err_nomem(err);
    } else if (rc == 0) {
        stk_curl_moved(&t);
        rc = perform(&t, s->multi, err);
        (void)stk_curl.curl_multi_remove_handle(s->multi, s->easy);
    }
    stk_curl_done(&t);
    return rc;
}

void stk_http_clear(stk_http_response *response)
{
    response->status = 0;
    response->fatal = false;
    if (response->head.max == 0) {
        response->head.max = HTTP_HEAD_MAX;
    }
    if (response->body.max == 0) {
        response->body.max = HTTP_BODY_MAX;
    }
    stk_buf_clear(&response->head);
    stk_buf_clear(&response->body);
}

int stk_http_send(const stk_http_request *request, stk_http_response *ret, stk_err *err)
{
    stk_http_clear(ret);
    if (request->unix_socket != NULL) {
        return stk_http_local(request, ret, err);
    }
    int rc = stk_curl_need(err);
    if (rc < 0) {
        ret->fatal = true;
        return rc;
    }
    if (request->session != NULL) {
        return send_in(request->session, request, ret, err);
    }
    stk_http_session once = {0};
    rc = send_in(&once, request, ret, err);
    drop(&once);
    return rc;
}

bool stk_http_header(const stk_http_response *response, const char *name, char *value, size_t size)
{
    size_t n = strlen(name);
    for (const char *line = response->head.data; line != NULL && *line != '\0';) {
        size_t len = strcspn(line, "\r\n");
        if (len > n && line[n] == ':' && strncasecmp(line, name, n) == 0) {
            size_t from = n + 1;
            while (from < len && (line[from] == ' ' || line[from] == '\t')) {
                from++;
            }
            while (len > from && (line[len - 1] == ' ' || line[len - 1] == '\t')) {
                len--;
            }
            return snprintf(value, size, "%.*s", (int)(len - from), line + from) < (int)size;
        }
        line += len;
        line += strspn(line, "\r\n");
    }
    return false;
}

int64_t stk_http_date_ms(const stk_http_response *response)
{
    char date[64];
    struct tm tm = {0};
    if (stk_http_header(response, "date", date, sizeof date) &&
        strptime(date, "%a, %d %b %Y %H:%M:%S", &tm) != NULL) {
        return (int64_t)timegm(&tm) * 1000;
    }
    return -1;
}

void stk_http_done(stk_http_response *response)
{
    stk_buf_done(&response->head);
    stk_buf_done(&response->body);
}
