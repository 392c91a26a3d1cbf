/* Any bytes as a request to `stoker ui`, and as the address of a page for who has the token. Each
 * is sent over a connection, to a real server in this process. */
#include <arpa/inet.h>
#include <ctype.h>
#include <fcntl.h>
#include <string.h>
#include <sys/param.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "sys/file.h"
#include "ui/ui_private.h"

#define TOKEN "fuzz-fuzz-fuzz-fuzz"

static char folder[] = "/tmp/stk_fuzz_ui_XXXXXX", path[64];
static stk_ui *ui;

static void remove_store(void)
{
    stk_ui_close(ui);
    (void)stk_file_remove_tree(folder, NULL);
}

static void make_run(void)
{
    static const char spec[] = "{\"stoker\":1,\"name\":\"p\",\"steps\":{\"a\":{\"run\":\"true\"}}}";
    STK_STORE_AUTO store = NULL;
    stk_err err = {0};
    char id[40];
    int lock = -1;
    stk_event_row events[] = {
        {.time_ms = 1000, .kind = STK_EV_RUN_CREATED, .task = UINT32_MAX, .data = "{}"},
        {.time_ms = 1000, .kind = STK_EV_RUN_STARTED, .task = UINT32_MAX, .data = "{}"},
        {.time_ms = 2000, .kind = STK_EV_TASK_STARTED, .task = 0, .attempt = 1, .data = "{}"},
        {.time_ms = 3000, .kind = STK_EV_TASK_SUCCEEDED, .task = 0, .attempt = 1, .data = "{}"}};
    stk_commit commit = {.events = events, .n_events = sizeof events / sizeof *events};
    int rc = stk_store_open(path, STK_STORE_CREATE, &store, &err);
    if (rc == 0) {
        rc = stk_store_new_run(store, NULL, "p", spec, sizeof spec - 1, 1000, id, &lock, &err);
    }
    if (rc == 0) {
        rc = stk_store_commit(store, id, &commit, &err);
    }
    stk_file_close(&lock);
    fuzz_require(rc == 0, err.text);
}

static void start_server(void)
{
    static const char *const stores[] = {path};
    static const stk_ui_options options = {
        .program = "/bin/true", .stores = stores, .n_stores = 1, .token = TOKEN};
    stk_err err = {0};
    (void)setenv("STOKER_SYNC", "0", 1);
    (void)setenv("STOKER_ACCEL", "none", 1);
    fuzz_require(mkdtemp(folder) != NULL, "there is a folder");
    (void)snprintf(path, sizeof path, "%s/.stoker", folder);
    make_run();
    make_run(); /* two can be compared */
    fuzz_require(stk_ui_open(&options, &ui, &err) == 0, err.text);
    (void)snprintf(ui->form, sizeof ui->form, "formformformform");
    (void)atexit(remove_store);
}

/* What the server says to these bytes and their end; its beginning in `ret`. */
static size_t ask(const void *data, size_t size, char *ret, size_t room)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)ui->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t sent = 0, got = 0;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fuzz_require(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0, "it listens");
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    for (bool is_open = true; is_open;) {
        if (sent < size) {
            ssize_t n = send(fd, (const char *)data + sent, size - sent, MSG_NOSIGNAL);
            sent += n > 0 ? (size_t)n : 0;
            if (n < 0 && errno != EAGAIN) {
                sent = size;
            }
        }
        if (sent == size) {
            (void)shutdown(fd, SHUT_WR);
            sent++;
        }
        (void)event_base_loop(ui->base, EVLOOP_NONBLOCK);
        char more[4096];
        ssize_t n = recv(fd, more, sizeof more, 0);
        is_open = n > 0 || (n < 0 && errno == EAGAIN);
        for (ssize_t i = 0; i < n && got + 1 < room; i++) {
            ret[got++] = more[i];
        }
    }
    ret[got] = '\0';
    (void)close(fd);
    return got;
}

static bool is_told(const char *answer)
{
    const char *status = strchr(answer, ' ');
    return status != NULL && (strncmp(status, " 200", 4) == 0 || strncmp(status, " 303", 4) == 0);
}

static void check_bytes(const uint8_t *data, size_t size)
{
    char answer[512];
    size_t n = ask(data, size, answer, sizeof answer);
    fuzz_require(n == 0 || strncmp(answer, "HTTP/", 5) == 0, "an answer is one of HTTP");
    fuzz_require(memmem(data, size, TOKEN, sizeof TOKEN - 1) != NULL ||
                     (!is_told(answer) || memmem(data, size, "%", 1) != NULL),
                 "who lacks the token is told nothing");
}

/* The line as an address, with the token and without. */
static void check_address(const uint8_t *data, size_t size)
{
    char request[5000], answer[512];
    size_t n = (size_t)snprintf(request, sizeof request, "GET /");
    for (size_t i = 0; i < size && i < 4000 && data[i] != '\n'; i++) {
        request[n++] = isgraph(data[i]) ? (char)data[i] : '+';
    }
    size_t end = n;
    n +=
        (size_t)snprintf(request + n, sizeof request - n,
                         " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " TOKEN "\r\n\r\n");
    fuzz_require(ask(request, n, answer, sizeof answer) > 0, "every address has an answer");
    request[end] = '\0';
    bool has_token = strstr(request, "token") != NULL || strchr(request, '%') != NULL;
    n = end + (size_t)snprintf(request + end, sizeof request - end,
                               " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    (void)ask(request, n, answer, sizeof answer);
    fuzz_require(has_token || !is_told(answer), "who lacks the token sees no page");
}

/* Otherwise nothing that holds of refusals would mean anything. */
static void check_server(void)
{
    static const char *const pages[] = {"runs",  "run?run=latest", "task?run=latest&task=a",
                                        "steps", "names",          "compare"};
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        char request[200], answer[512];
        int n = snprintf(request, sizeof request,
                         "GET /%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " TOKEN
                         "\r\n\r\n",
                         pages[i]);
        (void)ask(request, (size_t)n, answer, sizeof answer);
        fuzz_require(is_told(answer), answer);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 64 << 10) {
        return 0;
    }
    if (ui == NULL) {
        start_server();
        check_server();
    }
    check_bytes(data, size);
    check_address(data, size);
    return 0;
}
