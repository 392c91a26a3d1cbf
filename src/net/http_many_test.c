#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/http_many.h"
#include "net/http_testing.h"

/* The server's paths. GET /N: a body of N bytes. /drip: some bytes, then nothing until the client
 * closes. /cut: half of the announced body. /echo: the request's body. */
typedef struct server {
    http_server on;
    atomic_int n_open;
    atomic_int n_most; /* most requests at once */
    atomic_int n_requests;
} server;

static server here;

static void answer(int fd, const char *asked, const char *body)
{
    char head[256];
    static const char filler[4096];
    if (strncmp(asked, "GET /drip", 9) == 0) {
        (void)snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nsome");
        (void)!write(fd, head, strlen(head));
        (void)!read(fd, head, 1);
        return;
    }
    if (strncmp(asked, "GET /cut", 8) == 0) {
        (void)!write(fd, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf", 44);
        (void)shutdown(fd, SHUT_RDWR);
        return;
    }
    if (strncmp(asked, "GET ", 4) != 0) {
        (void)snprintf(head, sizeof head, "HTTP/1.1 404 No\r\nContent-Length: %zu\r\n\r\n",
                       strlen(body));
        (void)!write(fd, head, strlen(head));
        (void)!write(fd, body, strlen(body));
        return;
    }
    int n = atoi(asked + 5);
    usleep(20000); /* so that several requests overlap */
    (void)snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", n);
    (void)!write(fd, head, strlen(head));
    (void)!write(fd, filler, (size_t)n);
}

static void *converse(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char asked[8192];
    size_t n = 0;
    ssize_t got;
    while ((got = read(fd, asked + n, sizeof asked - 1 - n)) > 0) {
        n += (size_t)got;
        asked[n] = '\0';
        const char *end = strstr(asked, "\r\n\r\n");
        const char *length = strcasestr(asked, "Content-Length:");
        size_t body = length == NULL ? 0 : strtoul(length + 15, NULL, 10);
        if (end == NULL || n < (size_t)(end + 4 - asked) + body) {
            continue;
        }
        int now = atomic_fetch_add(&here.n_open, 1) + 1;
        int most = atomic_load(&here.n_most);
        while (now > most && !atomic_compare_exchange_weak(&here.n_most, &most, now)) {
        }
        atomic_fetch_add(&here.n_requests, 1);
        answer(fd, asked, end + 4);
        atomic_fetch_sub(&here.n_open, 1);
        n = 0;
    }
    close(fd);
    return NULL;
}

static int start_server(void **state)
{
    (void)state;
    return http_server_start(&here.on, converse);
}

static int stop_server(void **state)
{
    (void)state;
    return http_server_stop(&here.on);
}

static int forget(void **state)
{
    (void)state;
    here.on.n_connections = here.n_most = here.n_requests = 0;
    return 0;
}

static const char *url_of(const char *way)
{
    static char url[128];
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d%s", here.on.port, way);
    return url;
}

typedef struct seen {
    stk_http_many *m;
    uint64_t to_stop;
    int n_done;
    int n_again; /* begun inside done() */
    int rc;
    int status;
    size_t n_body;
    char body[64];
    char text[256];
    bool fatal;
} seen;

static void note(void *arg, int rc, stk_http_response *response, const stk_err *err)
{
    seen *s = arg;
    s->n_done++;
    s->rc = rc;
    s->status = response->status;
    s->n_body += response->body.len;
    s->fatal = response->fatal;
    (void)snprintf(s->body, sizeof s->body, "%s",
                   response->body.data != NULL ? response->body.data : "");
    (void)snprintf(s->text, sizeof s->text, "%s", err->text);
    if (s->to_stop != 0) {
        stk_http_many_stop(s->m, s->to_stop);
        s->to_stop = 0;
    }
    if (s->n_again > 0) {
        s->n_again--;
        stk_http_call next = {
            .request = {.method = "GET", .url = url_of("/7")}, .done = note, .done_arg = s};
        assert_int_equal(stk_http_many_begin(s->m, &next, NULL, NULL), 0);
    }
}

static void run(stk_http_many *m)
{
    stk_err err = {0};
    while (stk_http_many_n(m) > 0) {
        if (stk_http_many_turn(m, -1, 1000, &err) < 0) {
            fail_msg("%s", err.text);
        }
    }
}

static stk_http_many *open_many(uint32_t n)
{
    stk_http_many *m = NULL;
    stk_err err = {0};
    assert_int_equal(stk_http_many_open(n, &m, &err), 0);
    return m;
}

static void begin(stk_http_many *m, const char *way, seen *s, uint64_t *ret_id)
{
    stk_http_call c = {
        .request = {.method = "GET", .url = url_of(way)}, .done = note, .done_arg = s};
    assert_int_equal(stk_http_many_begin(m, &c, ret_id, NULL), 0);
}

static void test_many_on_few_connections(void **state)
{
    (void)state;
    stk_http_many *m = open_many(5);
    seen s = {.m = m, .n_again = 10};
    for (int i = 0; i < 40; i++) {
        begin(m, "/1000", &s, NULL);
    }
    assert_int_equal(stk_http_many_n(m), 40);
    run(m);
    assert_int_equal(s.n_done, 50);
    assert_int_equal(s.n_body, 40 * 1000 + 10 * 7);
    assert_int_equal(here.n_requests, 50);
    assert_in_range(here.n_most, 2, 5); /* a server that starves answers some before others ask */
    assert_in_range(here.on.n_connections, 5, 6);
    stk_http_many_close(m);
}

/* The caller may free a request's texts before it is sent. */
static void test_request_is_copied(void **state)
{
    (void)state;
    stk_http_many *m = open_many(2);
    seen s = {.m = m};
    char url[128];
    char header[] = "Content-Type: text/plain";
    char body[] = "say it again";
    char method[] = "PATCH";
    const char *headers[] = {header, NULL};
    (void)snprintf(url, sizeof url, "%s", url_of("/echo"));
    stk_http_call c = {.request = {.method = method,
                                   .url = url,
                                   .headers = headers,
                                   .body = body,
                                   .body_len = strlen(body)},
                       .done = note,
                       .done_arg = &s};
    assert_int_equal(stk_http_many_begin(m, &c, NULL, NULL), 0);
    memset(url, 'x', sizeof url - 1);
    memset(body, 'x', sizeof body - 1);
    memset(method, 'x', sizeof method - 1);
    memset(header, 'x', sizeof header - 1);
    headers[0] = NULL;
    run(m);
    assert_int_equal(s.rc, 0);
    assert_int_equal(s.status, 404);
    assert_string_equal(s.body, "say it again");
    stk_http_many_close(m);
}

static bool count_some(void *arg, const void *data, size_t n)
{
    (void)data;
    *(size_t *)arg += n;
    return true;
}

static void test_streams_and_stop(void **state)
{
    (void)state;
    stk_http_many *m = open_many(4);
    stk_err err = {0};
    size_t n = 0;
    uint64_t drip;
    uint64_t other;
    seen s = {.m = m};
    seen dripped = {.m = m};
    stk_http_call c = {
        .request = {.method = "GET", .url = url_of("/drip"), .on_body = count_some, .arg = &n},
        .done = note,
        .done_arg = &dripped};
    assert_int_equal(stk_http_many_begin(m, &c, &drip, NULL), 0);
    while (n < 4) {
        assert_int_equal(stk_http_many_turn(m, -1, 1000, &err), 0);
    }
    begin(m, "/drip", &dripped, &other);
    begin(m, "/5", &s, NULL);
    s.to_stop = other; /* stopped inside done() */
    while (s.n_done == 0) {
        assert_int_equal(stk_http_many_turn(m, -1, 1000, &err), 0);
    }
    assert_int_equal(stk_http_many_n(m), 1);
    stk_http_many_stop(m, drip);
    stk_http_many_stop(m, drip);
    assert_int_equal(stk_http_many_n(m), 0);
    assert_int_equal(dripped.n_done, 0);
    begin(m, "/drip", &dripped, NULL);
    assert_int_equal(stk_http_many_turn(m, -1, 0, &err), 0);
    stk_http_many_close(m); /* one request is still running */
    assert_int_equal(dripped.n_done, 0);
}

static void test_failures(void **state)
{
    (void)state;
    stk_http_many *m = open_many(4);
    seen silent = {.m = m};
    seen cut = {.m = m};
    seen refused = {.m = m};
    seen wrong = {.m = m};
    stk_http_call c = {.request = {.method = "GET", .url = url_of("/drip"), .idle_ms = 300},
                       .done = note,
                       .done_arg = &silent};
    assert_int_equal(stk_http_many_begin(m, &c, NULL, NULL), 0);
    begin(m, "/cut?token=sesame", &cut, NULL);
    c.request.url = "http://127.0.0.1:1/x";
    c.done_arg = &refused;
    assert_int_equal(stk_http_many_begin(m, &c, NULL, NULL), 0);
    c.request.url = "gopher://127.0.0.1:1/x";
    c.done_arg = &wrong;
    assert_int_equal(stk_http_many_begin(m, &c, NULL, NULL), 0);
    run(m);
    assert_int_equal(silent.rc, STK_E_ENV);
    assert_non_null(strstr(silent.text, "for 0.3 s"));
    assert_int_equal(cut.rc, STK_E_ENV);
    assert_false(cut.fatal);
    assert_null(strstr(cut.text, "sesame"));
    assert_int_equal(refused.rc, STK_E_ENV);
    assert_false(refused.fatal);
    assert_int_equal(wrong.rc, STK_E_ENV);
    assert_true(wrong.fatal);
    stk_http_many_close(m);
}

static void test_wakes(void **state)
{
    (void)state;
    int fds[2];
    stk_err err = {0};
    stk_http_many *m = open_many(1);
    seen s = {.m = m};
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], "x", 1), 1);
    assert_int_equal(stk_http_many_turn(m, fds[0], 600000, &err), 0); /* fds[0] ends the wait */
    begin(m, "/drip", &s, NULL);
    assert_int_equal(stk_http_many_turn(m, fds[0], 600000, &err), 0);
    stk_http_many_close(m);
    close(fds[0]);
    close(fds[1]);
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_many_on_few_connections, forget),
        cmocka_unit_test_setup(test_request_is_copied, forget),
        cmocka_unit_test_setup(test_streams_and_stop, forget),
        cmocka_unit_test_setup(test_failures, forget),
        cmocka_unit_test_setup(test_wakes, forget),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
