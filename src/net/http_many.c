#include "net/http_many.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "net/http_curl.h"

/* NAP_MS: the wait if libcurl has no descriptor (some versions, while they resolve a name). */
enum { NAP_MS = 10, WAIT_MAX_MS = 60000 };

typedef enum { WAITING, ACTIVE, ENDED, STOPPED_BY_US } state;

typedef struct call {
    struct call *next;
    struct call *previous;
    uint64_t id;
    state state;
    stk_http_request request; /* its texts are in `texts` */
    stk_http_tls tls;
    stk_http_response response;
    bool (*on_body)(void *arg, const void *data, size_t n); /* the caller's; request has ours */
    void *body_arg;
    stk_http_many *many;
    void (*done)(void *arg, int rc, stk_http_response *response, const stk_err *err);
    void *done_arg;
    int rc; /* once ENDED */
    stk_err err;
    stk_curl_transfer transfer;
    _Alignas(16) char texts[];
} call;

struct stk_http_many {
    CURLM *multi;
    stk_curl_pems pems;
    call *first; /* in the order of begin */
    call *last;
    call *first_waiting; /* all before it are started */
    uint32_t n;
    uint32_t n_active;
    uint32_t max;
    uint64_t last_id;
    bool in_libcurl; /* its handles must not be removed now */
    bool stopped;    /* a call was stopped within libcurl */
    bool passed;     /* an on_body was called */
};

int stk_http_many_open(uint32_t max_at_once, stk_http_many **ret, stk_err *err)
{
    STK_TRY(stk_curl_need(err));
    stk_http_many *m = calloc(1, sizeof *m);
    if (m != NULL) {
        m->max = MAX(max_at_once, 1);
        m->multi = stk_curl.curl_multi_init();
    }
    if (m == NULL || m->multi == NULL) {
        free(m);
        return stk_err_nomem(err);
    }
    *ret = m;
    return 0;
}

/* --- copies of what a request points to --- */

typedef struct copier {
    char *to; /* NULL: only counts */
    size_t n;
} copier;

static void *copy_bytes(copier *c, const void *data, size_t n)
{
    void *at = NULL;
    if (c->to != NULL) {
        at = c->to + c->n;
        memcpy(at, data, n);
    }
    c->n += n;
    return at;
}

static void take_text(copier *c, const char **text)
{
    if (*text != NULL) {
        *text = copy_bytes(c, *text, strlen(*text) + 1);
    }
}

static void take_request(copier *c, stk_http_request *q, stk_http_tls *tls)
{
    size_t n_headers = 0;
    while (q->headers != NULL && q->headers[n_headers] != NULL) {
        n_headers++;
    }
    if (q->headers != NULL) { /* first, because the pointers need alignment */
        const char *const *from = q->headers;
        const char **to = copy_bytes(c, from, (n_headers + 1) * sizeof *from);
        for (size_t i = 0; i < n_headers; i++) {
            const char *line = from[i];
            take_text(c, &line);
            if (to != NULL) {
                to[i] = line;
            }
        }
        q->headers = to;
    }
    take_text(c, &q->method);
    take_text(c, &q->url);
    take_text(c, &q->unix_socket);
    take_text(c, &q->proxy);
    if (q->body != NULL) {
        q->body = copy_bytes(c, q->body, q->body_len);
    }
    if (q->tls != NULL) {
        const char **texts[] = {&tls->ca_file,  &tls->ca_data,  &tls->cert_file,  &tls->cert_data,
                                &tls->key_file, &tls->key_data, &tls->server_name};
        *tls = *q->tls;
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            take_text(c, texts[i]);
        }
        q->tls = tls;
    }
}

/* libcurl calls this. Passes no data on to a call that was stopped meanwhile. */
static bool pass_body(void *arg, const void *data, size_t n)
{
    call *c = arg;
    c->many->passed = true;
    return c->state != STOPPED_BY_US && c->on_body(c->body_arg, data, n);
}

int stk_http_many_begin(stk_http_many *m, const stk_http_call *given, uint64_t *ret_id,
                        stk_err *err)
{
    copier count = {0};
    stk_http_request counted = given->request;
    stk_http_tls tls;
    take_request(&count, &counted, &tls);
    call *c = calloc(1, sizeof *c + count.n);
    STK_TRY(stk_err_if_null(c, err));
    copier copy = {.to = c->texts};
    c->request = given->request;
    take_request(&copy, &c->request, &c->tls);
    if (c->request.on_body != NULL) {
        c->on_body = c->request.on_body;
        c->body_arg = c->request.arg;
        c->request.on_body = pass_body;
        c->request.arg = c;
    }
    c->many = m;
    c->id = ++m->last_id;
    c->done = given->done;
    c->done_arg = given->done_arg;
    c->response.body.max = given->body_max;
    c->previous = m->last;
    *(m->last == NULL ? &m->first : &m->last->next) = c;
    m->last = c;
    if (m->first_waiting == NULL) {
        m->first_waiting = c;
    }
    m->n++;
    if (ret_id != NULL) {
        *ret_id = c->id;
    }
    return 0;
}

/* --- the end of a call --- */

static void leave_libcurl(stk_http_many *m, call *c)
{
    if (c->transfer.easy != NULL) {
        (void)stk_curl.curl_multi_remove_handle(m->multi, c->transfer.easy);
        stk_curl.curl_easy_cleanup(c->transfer.easy);
        c->transfer.easy = NULL;
        stk_curl_done(&c->transfer);
        m->n_active--;
    }
}

static void unlink_call(stk_http_many *m, call *c)
{
    if (m->first_waiting == c) {
        m->first_waiting = c->next;
    }
    *(c->previous == NULL ? &m->first : &c->previous->next) = c->next;
    *(c->next == NULL ? &m->last : &c->next->previous) = c->previous;
}

static void free_call(stk_http_many *m, call *c)
{
    leave_libcurl(m, c);
    unlink_call(m, c);
    stk_http_done(&c->response);
    free(c);
}

static void end(call *c, int rc)
{
    c->state = ENDED;
    c->rc = rc;
}

void stk_http_many_stop(stk_http_many *m, uint64_t id)
{
    call *c = m->first;
    while (c != NULL && c->id != id) {
        c = c->next;
    }
    if (c == NULL || c->state == STOPPED_BY_US) {
        return;
    }
    m->n--;
    c->state = STOPPED_BY_US;
    m->stopped = true;
    if (!m->in_libcurl) {
        free_call(m, c);
    }
}

/* --- a turn --- */

static void start(stk_http_many *m, call *c)
{
    stk_curl_transfer *t = &c->transfer;
    stk_http_clear(&c->response);
    *t = (stk_curl_transfer){
        .request = &c->request, .response = &c->response, .easy = stk_curl.curl_easy_init()};
    if (t->easy == NULL) {
        end(c, stk_err_nomem(&c->err));
        return;
    }
    c->state = ACTIVE;
    m->n_active++;
    int rc = stk_curl_set_up(t, &m->pems, &c->err);
    if (rc == 0 && stk_curl.curl_multi_add_handle(m->multi, t->easy) != CURLM_OK) {
        rc = stk_err_nomem(&c->err);
    }
    if (rc < 0) {
        c->response.fatal = true;
        leave_libcurl(m, c);
        end(c, rc);
        return;
    }
    stk_curl_moved(t);
}

static void start_some(stk_http_many *m)
{
    while (m->first_waiting != NULL && m->n_active < m->max) {
        call *c = m->first_waiting;
        m->first_waiting = c->next;
        start(m, c);
    }
}

/* Ends the calls that libcurl has finished, or that were silent for too long. */
static void collect(stk_http_many *m)
{
    const CURLMsg *message;
    int left;
    while ((message = stk_curl.curl_multi_info_read(m->multi, &left)) != NULL) {
        stk_curl_transfer *t = NULL;
        (void)stk_curl.curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&t);
        call *c = (call *)((char *)t - offsetof(call, transfer));
        CURLcode code = message->data.result;
        if (c->state == ACTIVE) {
            end(c, stk_curl_explain(t, code, &c->err));
        }
    }
    for (call *c = m->first; c != NULL; c = c->next) {
        if (c->state == ACTIVE && stk_curl_patience(&c->transfer) <= 0) {
            end(c, stk_curl_silent(&c->transfer, &c->err));
        }
    }
}

/* Reports one ended call, whose `done` may change the list. Returns false if there is none. */
static bool tell_one(stk_http_many *m)
{
    call *c = m->first;
    while (c != NULL && c->state != ENDED) {
        c = c->next;
    }
    if (c == NULL) {
        return false;
    }
    leave_libcurl(m, c);
    unlink_call(m, c); /* stop mustn't find it */
    m->n--;
    if (c->done != NULL) {
        c->done(c->done_arg, c->rc, &c->response, &c->err);
    }
    stk_http_done(&c->response);
    free(c);
    return true;
}

static void sweep(stk_http_many *m)
{
    for (call *c = m->first, *next; m->stopped && c != NULL; c = next) {
        next = c->next;
        if (c->state == STOPPED_BY_US) {
            free_call(m, c);
        }
    }
    m->stopped = false;
}

/* Sends and receives without waiting. Above 0: it called the caller's functions. */
static int step(stk_http_many *m, stk_err *err)
{
    int running;
    start_some(m);
    m->passed = false;
    m->in_libcurl = true;
    CURLMcode rc = stk_curl.curl_multi_perform(m->multi, &running);
    m->in_libcurl = false;
    if (rc != CURLM_OK) {
        return stk_err_set(err, rc == CURLM_OUT_OF_MEMORY ? STK_E_NOMEM : STK_E_BUG, "requests: %s",
                           stk_curl.curl_multi_strerror(rc));
    }
    sweep(m);
    collect(m);
    bool told = m->passed;
    while (tell_one(m)) {
        told = true;
    }
    return told;
}

static int64_t patience(const stk_http_many *m, int64_t timeout_ms)
{
    int64_t wait = MIN(timeout_ms, WAIT_MAX_MS);
    for (const call *c = m->first; c != NULL; c = c->next) {
        if (c->state == ACTIVE) {
            int64_t left = stk_curl_patience(&c->transfer);
            wait = MIN(left, wait);
        }
    }
    return MAX(wait, 0);
}

int stk_http_many_turn(stk_http_many *m, int wake_fd, int64_t timeout_ms, stk_err *err)
{
    int n = step(m, err);
    if (n != 0 || timeout_ms <= 0) {
        return MIN(n, 0);
    }
    int wait = (int)patience(m, timeout_ms);
    int n_ready = 0;
    struct curl_waitfd wake = {.fd = wake_fd, .events = CURL_WAIT_POLLIN};
    if (m->n_active == 0) {
        struct pollfd on = {.fd = wake_fd, .events = POLLIN};
        (void)poll(&on, 1, wait);
        return 0;
    }
    CURLMcode rc = stk_curl.curl_multi_wait(m->multi, &wake, wake_fd >= 0, wait, &n_ready);
    if (rc != CURLM_OK) {
        return stk_err_set(err, STK_E_SYS, "waiting for answers: %s",
                           stk_curl.curl_multi_strerror(rc));
    }
    if (n_ready == 0 && wake_fd < 0) {
        (void)poll(NULL, 0, MIN(wait, NAP_MS));
    }
    n = step(m, err);
    return MIN(n, 0);
}

uint32_t stk_http_many_n(const stk_http_many *m)
{
    return m->n;
}

void stk_http_many_close(stk_http_many *m)
{
    if (m == NULL) {
        return;
    }
    while (m->first != NULL) {
        free_call(m, m->first);
    }
    (void)stk_curl.curl_multi_cleanup(m->multi);
    stk_curl_pems_done(&m->pems);
    free(m);
}
