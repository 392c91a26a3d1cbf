#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/testing.h"
#include "net/http.h"

/* A server that gives each connection one prepared answer and records the requests. */
typedef struct server {
    int fd;
    int port;
    char path[64];
    const char *answers[4];
    int n;
    bool holds; /* keeps the last connection open */
    char asked[4][4096];
    pthread_t thread;
} server;

/* Reads a whole request: its head, and its body by length or in chunks. */
static void take(int fd, char *asked, size_t size)
{
    size_t n = 0;
    for (;;) {
        ssize_t got = read(fd, asked + n, size - 1 - n);
        n += got > 0 ? (size_t)got : 0;
        asked[n] = '\0';
        const char *end = strstr(asked, "\r\n\r\n");
        const char *length = strcasestr(asked, "Content-Length:");
        bool chunked = strcasestr(asked, "Transfer-Encoding: chunked") != NULL;
        size_t body = length == NULL ? 0 : strtoul(length + 15, NULL, 10);
        if (got <= 0 || (end != NULL && (chunked ? strstr(end, "\r\n0\r\n") != NULL
                                                 : n >= (size_t)(end + 4 - asked) + body))) {
            return;
        }
    }
}

static void *serve(void *arg)
{
    server *s = arg;
    int held = -1;
    for (int i = 0; i < s->n; i++) {
        int fd = accept(s->fd, NULL, NULL);
        take(fd, s->asked[i], sizeof s->asked[i]);
        (void)!write(fd, s->answers[i], strlen(s->answers[i])); /* the client may have left */
        if (s->holds && i == s->n - 1) {
            held = fd;
        } else {
            close(fd);
        }
    }
    if (held >= 0) {
        char c;
        while (read(held, &c, 1) > 0) {
        }
        close(held);
    }
    return NULL;
}

static void start(server *s, bool is_unix)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    socklen_t len = sizeof in;
    while (s->n < 4 && s->answers[s->n] != NULL) {
        s->n++;
    }
    s->fd = socket(is_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (is_unix) {
        (void)snprintf(s->path, sizeof s->path, "/tmp/stk-http-%d.sock", (int)getpid());
        (void)unlink(s->path);
        (void)snprintf(un.sun_path, sizeof un.sun_path, "%s", s->path);
        assert_int_equal(bind(s->fd, (struct sockaddr *)&un, sizeof un), 0);
    } else {
        assert_int_equal(bind(s->fd, (struct sockaddr *)&in, sizeof in), 0);
        assert_int_equal(getsockname(s->fd, (struct sockaddr *)&in, &len), 0);
        s->port = ntohs(in.sin_port);
    }
    assert_int_equal(listen(s->fd, 4), 0);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void stop(server *s)
{
    assert_int_equal(pthread_join(s->thread, NULL), 0);
    close(s->fd);
    if (s->path[0] != '\0') {
        (void)unlink(s->path);
    }
}

#define OK_HELLO "HTTP/1.1 200 OK\r\nX-Thing:  some value \r\nContent-Length: 5\r\n\r\nhello"

static void test_unix_socket(void **state)
{
    (void)state;
    server s = {.answers = {"HTTP/1.1 201 Made\r\nTransfer-Encoding: chunked\r\n\r\n"
                            "5\r\nhello\r\n7\r\n, there\r\n0\r\n\r\n"}};
    start(&s, true);
    stk_http_response r = {.body = STK_BUF_INIT(100)};
    stk_err err = {0};
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    stk_http_request q = {.method = "POST",
                          .url = "http://d/v1.41/things",
                          .unix_socket = s.path,
                          .headers = headers,
                          .body = "{\"a\":1}",
                          .body_len = 7};
    assert_int_equal(stk_http_send(&q, &r, &err), 0);
    stop(&s);
    assert_int_equal(r.status, 201);
    assert_string_equal(r.body.data, "hello, there");
    assert_non_null(strstr(s.asked[0], "POST /v1.41/things HTTP/1.1\r\n"));
    assert_non_null(strstr(s.asked[0], "\r\nContent-Type: application/json\r\n"));
    assert_null(strstr(s.asked[0], "Expect"));
    assert_non_null(strstr(s.asked[0], "\r\n\r\n{\"a\":1}"));
    stk_http_done(&r);
}

static void body_from_descriptor(bool is_unix)
{
    server s = {.answers = {OK_HELLO}};
    start(&s, is_unix);
    int pipe_fds[2];
    char url[128];
    char value[64];
    assert_int_equal(pipe(pipe_fds), 0);
    assert_int_equal(write(pipe_fds[1], "0123456789", 10), 10);
    close(pipe_fds[1]);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d/up", s.port);
    stk_http_response r = {0};
    stk_err err = {0};
    stk_http_request q = {.method = "PUT", .url = url, .body_fd = pipe_fds[0]};
    q.unix_socket = is_unix ? s.path : NULL;
    assert_int_equal(stk_http_send(&q, &r, &err), 0);
    stop(&s);
    close(pipe_fds[0]);
    assert_non_null(strstr(s.asked[0], "PUT /up HTTP/1.1"));
    assert_non_null(strstr(s.asked[0], "a\r\n0123456789\r\n0\r\n"));
    assert_true(stk_http_header(&r, "x-thing", value, sizeof value));
    assert_string_equal(value, "some value");
    assert_false(stk_http_header(&r, "x-thing", value, 5));
    assert_false(stk_http_header(&r, "x-thin", value, sizeof value));
    stk_http_done(&r);
}

static void test_headers_and_body_from_descriptor(void **state)
{
    (void)state;
    body_from_descriptor(false);
    body_from_descriptor(true);
}

static void test_redirect_keeps_credentials_at_home(void **state)
{
    (void)state;
    char there[160];
    char url[128];
    server other = {.answers = {OK_HELLO}};
    server first = {.answers = {there}};
    start(&other, false);
    (void)snprintf(
        there, sizeof there,
        "HTTP/1.1 307 Go\r\nLocation: http://localhost:%d/blob\r\nContent-Length: 3\r\n\r\nbye",
        other.port);
    start(&first, false);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d/v2/x", first.port);
    static const char *const headers[] = {"Authorization: Bearer sesame", NULL};
    stk_http_response r = {0};
    stk_err err = {0};
    stk_http_request q = {.method = "GET", .url = url, .headers = headers, .redirects = 3};
    assert_int_equal(stk_http_send(&q, &r, &err), 0);
    stop(&first);
    stop(&other);
    assert_int_equal(r.status, 200);
    assert_string_equal(r.body.data, "hello");
    assert_null(strstr(r.head.data, "307"));
    assert_non_null(strstr(first.asked[0], "sesame"));
    assert_null(strstr(other.asked[0], "sesame"));
    stk_http_done(&r);
}

static void silence_ends(bool is_unix)
{
    char url[128];
    server s = {.answers = {"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhel"}, .holds = true};
    start(&s, is_unix);
    (void)snprintf(url, sizeof url, "http://user:sesame@127.0.0.1:%d/x?token=sesame", s.port);
    stk_http_response r = {0};
    stk_err err = {0};
    stk_http_request q = {.method = "GET", .url = url, .idle_ms = 200};
    q.unix_socket = is_unix ? s.path : NULL;
    assert_int_equal(stk_http_send(&q, &r, &err), STK_E_ENV);
    stop(&s);
    assert_non_null(strstr(err.text, "for 0.2 s"));
    assert_null(strstr(err.text, "sesame"));
    stk_http_done(&r);
}

static void test_silence_ends(void **state)
{
    (void)state;
    silence_ends(false);
    silence_ends(true);
}

static void cancel(bool is_unix)
{
    char url[128];
    int pipe_fds[2];
    server s = {.answers = {"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhel"}, .holds = true};
    start(&s, is_unix);
    assert_int_equal(pipe(pipe_fds), 0);
    assert_int_equal(write(pipe_fds[1], "x", 1), 1);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d/x", s.port);
    stk_http_response r = {0};
    stk_err err = {0};
    stk_http_request q = {.method = "GET", .url = url, .cancel_fd = pipe_fds[0]};
    q.unix_socket = is_unix ? s.path : NULL;
    assert_int_equal(stk_http_send(&q, &r, &err), STK_E_CANCELLED);
    stop(&s);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    stk_http_done(&r);
}

static void test_cancel(void **state)
{
    (void)state;
    cancel(false);
    cancel(true);
}

static bool first_only(void *arg, const void *data, size_t n)
{
    (void)data;
    *(size_t *)arg += n;
    return false;
}

static void test_limits_and_cuts(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        size_t max;
        bool streams;
        int rc;
        const char *words;
    } cases[] = {
        {OK_HELLO, 5, false, 0, ""},
        {OK_HELLO, 4, false, STK_E_LIMIT, "larger than 4 bytes"},
        {OK_HELLO, 5, true, STK_E_CANCELLED, "stopped"},
        {"HTTP/1.1 200 OK\r\n\r\nuntil the end", 99, false, 0, ""},
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno", 9, false, 0,
         ""},
        {"HTTP/1.1 204 None\r\n\r\n", 9, false, 0, ""},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: v\r\n\r\n",
         9, false, 0, ""},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", 9, false, STK_E_ENV, ""},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nab", 9, false, STK_E_ENV, ""},
        {"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhel", 99, false, STK_E_ENV, "/x"},
        {"SSH-2.0-OpenSSH_9.2\r\n\r\n", 99, false, STK_E_ENV, "/x"},
        {"", 99, false, STK_E_ENV, "/x"},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        char url[128];
        size_t n = 0;
        size_t k = i / 2;
        server s = {.answers = {cases[k].answer}};
        start(&s, i % 2 == 1);
        (void)snprintf(url, sizeof url, "http://127.0.0.1:%d/x?secret", s.port);
        stk_http_response r = {.body = STK_BUF_INIT(cases[k].max)};
        stk_err err = {0};
        stk_http_request q = {.method = "GET",
                              .url = url,
                              .unix_socket = i % 2 == 1 ? s.path : NULL,
                              .on_body = cases[k].streams ? first_only : NULL,
                              .arg = &n};
        if (stk_http_send(&q, &r, &err) != cases[k].rc) {
            fail_msg("answer %zu: %d %s", k, err.code, err.text);
        }
        stop(&s);
        assert_non_null(strstr(err.text, cases[k].words));
        assert_null(strstr(err.text, "secret"));
        stk_http_done(&r);
    }
}

typedef struct asked {
    int64_t n;    /* bytes available */
    int64_t last; /* offset of the last call */
} asked;

static int64_t give(void *arg, int64_t at, void *data, size_t n)
{
    asked *a = arg;
    a->last = at;
    size_t left = at < a->n ? (size_t)(a->n - at) : 0;
    n = MIN(n, left);
    memset(data, 'z', n);
    return (int64_t)n;
}

static void test_body_on_demand(void **state)
{
    (void)state;
    char url[128];
    for (int i = 0; i < 2; i++) {
        asked a = {.n = i == 0 ? 100 : 60}; /* all bytes, then too few */
        server s = {.answers = {OK_HELLO}};
        start(&s, false);
        (void)snprintf(url, sizeof url, "http://127.0.0.1:%d/up", s.port);
        stk_http_response r = {0};
        stk_err err = {0};
        stk_http_request q = {
            .method = "PUT", .url = url, .read_body = give, .read_arg = &a, .body_len = 100};
        assert_int_equal(stk_http_send(&q, &r, &err), i == 0 ? 0 : STK_E_SYS);
        stop(&s);
        if (i == 0) {
            assert_non_null(strstr(s.asked[0], "Content-Length: 100\r\n"));
            assert_null(strstr(s.asked[0], "chunked"));
            assert_int_equal(strspn(strstr(s.asked[0], "\r\n\r\n") + 4, "z"), 100);
        }
        stk_http_done(&r);
    }
}

/* With ok_only, an error's body goes into the response, even if the caller streams. */
static void test_only_good_bodies_are_streamed(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        bool is_unix = i % 2 == 1;
        char url[128];
        size_t n = 0;
        server s = {
            .answers = {i < 2 ? "HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno" : OK_HELLO}};
        start(&s, is_unix);
        (void)snprintf(url, sizeof url, "http://127.0.0.1:%d/x", s.port);
        stk_http_response r = {0};
        stk_err err = {0};
        stk_http_request q = {.method = "GET",
                              .url = url,
                              .unix_socket = is_unix ? s.path : NULL,
                              .on_body = first_only,
                              .arg = &n,
                              .ok_only = true};
        assert_int_equal(stk_http_send(&q, &r, &err), i < 2 ? 0 : STK_E_CANCELLED);
        stop(&s);
        assert_int_equal(n, i < 2 ? 0 : 5);
        if (i < 2) {
            assert_string_equal(r.body.data, "no");
        }
        stk_http_done(&r);
    }
}

/* The request is larger than both sides' buffers and the answer comes early: no deadlock. */
static void test_both_ways_at_once(void **state)
{
    (void)state;
    static char body[3 << 20];
    memset(body, 'b', sizeof body);
    server s = {.answers = {"HTTP/1.1 413 Too large\r\nContent-Length: 2\r\n\r\nno"}};
    start(&s, true);
    stk_http_response r = {0};
    stk_err err = {0};
    stk_http_request q = {.method = "POST",
                          .url = "http://d/up",
                          .unix_socket = s.path,
                          .body = body,
                          .body_len = sizeof body};
    /* This server reads 4 KB, answers, and closes. */
    assert_int_equal(stk_http_send(&q, &r, &err), 0);
    assert_int_equal(r.status, 413);
    assert_string_equal(r.body.data, "no");
    stop(&s);
    stk_http_done(&r);
}

static void test_nobody_there(void **state)
{
    (void)state;
    stk_http_response r = {0};
    stk_err err = {0};
    stk_http_request q = {
        .method = "GET", .url = "http://d/_ping", .unix_socket = "/tmp/no-such-folder/x.sock"};
    assert_int_equal(stk_http_send(&q, &r, &err), STK_E_ENV);
    assert_non_null(strstr(err.text, "answers at /tmp/no-such-folder/x.sock"));
    stk_http_done(&r);
}

static void test_no_library(void **state)
{
    (void)state;
    (void)setenv("STOKER_LIBCURL", "/tmp/no-such-libcurl.so", 1);
    stk_http_response r = {0};
    stk_err err = {0};
    stk_http_request q = {.method = "GET", .url = "http://127.0.0.1:1/x"};
    assert_int_equal(stk_http_send(&q, &r, &err), STK_E_ENV);
    assert_non_null(strstr(err.text, "libcurl.so.4 is needed"));
    assert_non_null(strstr(err.hint, "apt-get install libcurl4"));
    stk_http_done(&r);
}

int main(int argc, char **argv)
{
    (void)signal(SIGPIPE, SIG_IGN);
    /* A process looks for the library only once, so a missing one needs its own process. */
    if (argc > 1 && strcmp(argv[1], "--absent") == 0) {
        const struct CMUnitTest absent[] = {cmocka_unit_test(test_no_library)};
        return cmocka_run_group_tests(absent, NULL, NULL);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unix_socket),
        cmocka_unit_test(test_headers_and_body_from_descriptor),
        cmocka_unit_test(test_redirect_keeps_credentials_at_home),
        cmocka_unit_test(test_silence_ends),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_limits_and_cuts),
        cmocka_unit_test(test_body_on_demand),
        cmocka_unit_test(test_only_good_bodies_are_streamed),
        cmocka_unit_test(test_both_ways_at_once),
        cmocka_unit_test(test_nobody_there),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[4096];
    (void)snprintf(command, sizeof command, "'%s' --absent", argv[0]);
    return failed + (system(command) == 0 ? 0 : 1);
}
