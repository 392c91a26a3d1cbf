#include "net/http.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* The headers' type checks wrap the functions in macros, which pointers from dlsym don't fit. */
#define CURL_DISABLE_TYPECHECK
/* What is deprecated there is what every libcurl.so.4 knows, also one older than these headers. */
#define CURL_DISABLE_DEPRECATION
#include <curl/curl.h>

#include "net/http_private.h"
#include "sys/clock.h"

enum { WAIT_MS = 1000, HEAD_MAX = 256 << 10 };
enum { BODY_MAX = 64 << 20 };

/* --- libcurl, when first needed --- */

#define FUNCTIONS(X)                                                                               \
    X(curl_global_init)                                                                            \
    X(curl_version_info)                                                                           \
    X(curl_easy_init)                                                                              \
    X(curl_easy_setopt)                                                                            \
    X(curl_easy_cleanup)                                                                           \
    X(curl_easy_strerror)                                                                          \
    X(curl_multi_init)                                                                             \
    X(curl_multi_add_handle)                                                                       \
    X(curl_multi_remove_handle)                                                                    \
    X(curl_multi_perform)                                                                          \
    X(curl_multi_wait)                                                                             \
    X(curl_multi_info_read)                                                                        \
    X(curl_multi_cleanup)                                                                          \
    X(curl_multi_strerror)                                                                         \
    X(curl_slist_append)                                                                           \
    X(curl_slist_free_all)

static struct {
    pthread_once_t once;
    char why[256];     /* "" when it is there */
    const char *roots; /* certificates, where its own default isn't on this host; else NULL */
#define X(name) __typeof__(&name) name;
    FUNCTIONS(X)
#undef X
} lib = {.once = PTHREAD_ONCE_INIT};

/* A libcurl from another distribution looks for certificates where that one keeps them. */
static const char *find_roots(void)
{
    static const char *const usual[] = {
        "/etc/ssl/certs/ca-certificates.crt",                         /* Debian, Ubuntu, Arch */
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",          /* Fedora, RHEL */
        "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", /* openSUSE */
        "/etc/ssl/cert.pem"};                                         /* Alpine */
    static const char *const variables[] = {"CURL_CA_BUNDLE", "SSL_CERT_FILE"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *named = getenv(variables[i]);
        if (named != NULL && named[0] != '\0') {
            return named;
        }
    }
    const curl_version_info_data *info = lib.curl_version_info(CURLVERSION_SEVENTH);
    if (info != NULL && info->age >= CURLVERSION_SEVENTH && info->cainfo != NULL &&
        access(info->cainfo, R_OK) == 0) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        if (access(usual[i], R_OK) == 0) {
            return usual[i];
        }
    }
    return NULL;
}

static void load(void)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    const char *only = getenv("STOKER_LIBCURL"); /* a file of another place or name */
    void *so = NULL;
    if (only != NULL && only[0] != '\0') {
        so = dlopen(only, RTLD_NOW | RTLD_LOCAL);
    } else {
        for (size_t i = 0; i < sizeof names / sizeof *names && so == NULL; i++) {
            so = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        }
    }
    if (so == NULL) {
        const char *why = dlerror();
        (void)snprintf(lib.why, sizeof lib.why, "%s", why == NULL ? "can't be loaded" : why);
        return;
    }
    const char *missing = NULL;
#define X(name)                                                                                    \
    lib.name = (__typeof__(lib.name))dlsym(so, #name);                                             \
    missing = lib.name == NULL ? #name : missing;
    FUNCTIONS(X)
#undef X
    if (missing != NULL) {
        (void)snprintf(lib.why, sizeof lib.why, "it has no %s", missing);
    } else if (lib.curl_global_init(CURL_GLOBAL_ALL) != CURLE_OK) {
        (void)snprintf(lib.why, sizeof lib.why, "it can't start");
    } else {
        lib.roots = find_roots();
    }
}

static int need_library(stk_err *err)
{
    (void)pthread_once(&lib.once, load);
    if (lib.why[0] == '\0') {
        return 0;
    }
    stk_err_set(err, STK_E_ENV,
                "libcurl.so.4 is needed to talk to container engines and "
                "registries: %s",
                lib.why);
    stk_err_hint(err, "install it: apt-get install libcurl4 (Debian, Ubuntu), dnf install libcurl");
    return STK_E_ENV;
}

/* --- one request --- */

typedef struct transfer {
    const stk_http_request *request;
    stk_http_response *response;
    CURL *easy;
    struct curl_slist *headers;
    int64_t last_ms; /* when the last byte passed */
    enum { GOING, STOPPED, TOO_LARGE, CANT_READ } end;
    int sys;
    char text[CURL_ERROR_SIZE];
} transfer;

static void moved(transfer *t)
{
    t->last_ms = stk_clock_mono_ms(&stk_clock_real);
}

static size_t on_header(char *data, size_t size, size_t n, void *arg)
{
    transfer *t = arg;
    stk_http_response *r = t->response;
    size_t len = size * n;
    moved(t);
    if (len > 5 && memcmp(data, "HTTP/", 5) == 0) { /* of the next answer: after 100, a redirect */
        const char *blank = memchr(data, ' ', len);
        stk_buf_clear(&r->head);
        r->status = blank == NULL ? 0 : (int)strtol(blank + 1, NULL, 10);
    }
    if (stk_buf_add(&r->head, data, len) < 0) {
        t->end = TOO_LARGE;
        return 0;
    }
    return len;
}

static size_t on_data(char *data, size_t size, size_t n, void *arg)
{
    transfer *t = arg;
    size_t len = size * n;
    moved(t);
    if (t->request->on_body != NULL) {
        if (!t->request->on_body(t->request->arg, data, len)) {
            t->end = STOPPED;
            return len == 0 ? 1 : 0;
        }
    } else if (stk_buf_add(&t->response->body, data, len) < 0) {
        t->end = TOO_LARGE;
        return len == 0 ? 1 : 0;
    }
    return len;
}

static size_t on_send(char *data, size_t size, size_t n, void *arg)
{
    transfer *t = arg;
    ssize_t got;
    moved(t);
    do {
        got = read(t->request->body_fd, data, size * n);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        t->end = CANT_READ;
        t->sys = errno;
        return CURL_READFUNC_ABORT;
    }
    return (size_t)got;
}

const char *stk_http_shown(const char *url, char *buf)
{
    const char *host = strstr(url, "://");
    host = host == NULL ? url : host + 3;
    size_t n = strcspn(host, "/?#");
    const char *at = memrchr(host, '@', n);
    const char *from = at == NULL ? host : at + 1;
    (void)snprintf(buf, HTTP_SHOWN_MAX, "%.*s%.*s", (int)(host - url), url,
                   (int)strcspn(from, "?#"), from);
    return buf;
}

static bool add_header(transfer *t, const char *line)
{
    struct curl_slist *longer = lib.curl_slist_append(t->headers, line);
    t->headers = longer == NULL ? t->headers : longer;
    return longer != NULL;
}

static bool has_fd_body(const stk_http_request *q)
{
    return q->body == NULL && q->body_fd > 0;
}

#define SET(option, value) lib.curl_easy_setopt(t->easy, (option), (value))

static void set_body(transfer *t)
{
    const stk_http_request *q = t->request;
    if (has_fd_body(q)) {
        SET(CURLOPT_UPLOAD, 1L);
        SET(CURLOPT_READFUNCTION, on_send);
        SET(CURLOPT_READDATA, t);
        SET(CURLOPT_UPLOAD_BUFFERSIZE, 256L << 10);
    } else if (q->body != NULL || strcmp(q->method, "POST") == 0 || strcmp(q->method, "PUT") == 0) {
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)(q->body == NULL ? 0 : q->body_len));
        SET(CURLOPT_POSTFIELDS, q->body == NULL ? "" : q->body);
    }
    if (strcmp(q->method, "HEAD") == 0) {
        SET(CURLOPT_NOBODY, 1L);
    } else if (strcmp(q->method, "GET") != 0) {
        SET(CURLOPT_CUSTOMREQUEST, q->method);
    }
}

static bool set_headers(transfer *t)
{
    bool typed = false;
    bool ok = add_header(t, "Expect:"); /* it would only cost a second where nobody answers it */
    for (uint32_t i = 0; t->request->headers != NULL && t->request->headers[i] != NULL; i++) {
        typed |= strncasecmp(t->request->headers[i], "Content-Type:", 13) == 0;
        ok = ok && add_header(t, t->request->headers[i]);
    }
    ok = ok && (typed || add_header(t, "Content-Type:")); /* not the form's that curl would say */
    SET(CURLOPT_HTTPHEADER, t->headers);
    return ok;
}

static bool set_up(transfer *t)
{
    const stk_http_request *q = t->request;
    SET(CURLOPT_URL, q->url);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_ERRORBUFFER, t->text);
    SET(CURLOPT_USERAGENT, "stoker/" STK_VERSION);
    SET(CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)(q->connect_ms > 0 ? q->connect_ms : HTTP_CONNECT_MS));
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, t);
    SET(CURLOPT_WRITEFUNCTION, on_data);
    SET(CURLOPT_WRITEDATA, t);
    SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    if (lib.roots != NULL) {
        SET(CURLOPT_CAINFO, lib.roots);
    }
    if (q->redirects > 0) {
        bool safe = strncasecmp(q->url, "https:", 6) == 0;
        SET(CURLOPT_FOLLOWLOCATION, 1L); /* Authorization goes to the same host and port only */
        SET(CURLOPT_MAXREDIRS, (long)q->redirects);
        SET(CURLOPT_REDIR_PROTOCOLS,
            (long)(safe ? CURLPROTO_HTTPS : CURLPROTO_HTTP | CURLPROTO_HTTPS));
    }
    set_body(t);
    return set_headers(t);
}

static int no_memory(stk_err *err)
{
    return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "a request");
}

/* What became of it, in words. */
static int explain(const transfer *t, CURLcode code, stk_err *err)
{
    char url[HTTP_SHOWN_MAX];
    const stk_http_request *q = t->request;
    (void)stk_http_shown(q->url, url);
    if (t->end == STOPPED) {
        return stk_err_set(err, STK_E_CANCELLED, "%s %s: stopped", q->method, url);
    }
    if (t->end == TOO_LARGE) {
        return stk_err_set(err, STK_E_LIMIT, "%s %s: the answer is larger than %zu bytes",
                           q->method, url, t->response->body.max);
    }
    if (t->end == CANT_READ) {
        return stk_err_sys(err, STK_E_SYS, t->sys, "%s %s: reading what is sent", q->method, url);
    }
    const char *why = t->text[0] != '\0' ? t->text : lib.curl_easy_strerror(code);
    return stk_err_set(err, code == CURLE_OUT_OF_MEMORY ? STK_E_NOMEM : STK_E_ENV, "%s %s: %s",
                       q->method, url, why);
}

/* Until it has ended, somebody cancels, or nothing moves any more. */
static int perform(transfer *t, CURLM *multi, stk_err *err)
{
    const stk_http_request *q = t->request;
    char url[HTTP_SHOWN_MAX];
    int running = 1;
    for (;;) {
        CURLMcode rc = lib.curl_multi_perform(multi, &running);
        if (rc == CURLM_OK && running > 0) {
            struct curl_waitfd cancel = {.fd = q->cancel_fd, .events = CURL_WAIT_POLLIN};
            int64_t left = WAIT_MS;
            if (q->idle_ms > 0) {
                left = t->last_ms + q->idle_ms - stk_clock_mono_ms(&stk_clock_real);
                if (left <= 0) {
                    return stk_err_set(err, STK_E_ENV, "%s %s: nothing came for %.3g s", q->method,
                                       stk_http_shown(q->url, url), (double)q->idle_ms / 1000.0);
                }
                left = left < WAIT_MS ? left : WAIT_MS;
            }
            rc = lib.curl_multi_wait(multi, &cancel, q->cancel_fd > 0 ? 1 : 0, (int)left, NULL);
            if (rc == CURLM_OK && q->cancel_fd > 0 && cancel.revents != 0) {
                return stk_err_set(err, STK_E_CANCELLED, "%s %s: cancelled", q->method,
                                   stk_http_shown(q->url, url));
            }
        }
        if (rc != CURLM_OK) {
            return stk_err_set(err, STK_E_ENV, "%s %s: %s", q->method, stk_http_shown(q->url, url),
                               lib.curl_multi_strerror(rc));
        }
        if (running == 0) {
            int n = 0;
            const CURLMsg *message = lib.curl_multi_info_read(multi, &n);
            CURLcode code = message == NULL ? CURLE_FAILED_INIT : message->data.result;
            return code == CURLE_OK ? 0 : explain(t, code, err);
        }
    }
}

static int send_far(const stk_http_request *request, stk_http_response *ret, stk_err *err)
{
    int rc = need_library(err);
    if (rc < 0) {
        return rc;
    }
    transfer *t = calloc(1, sizeof *t);
    CURLM *multi = lib.curl_multi_init();
    if (t != NULL) {
        *t = (transfer){.request = request, .response = ret, .easy = lib.curl_easy_init()};
    }
    if (t == NULL || multi == NULL || t->easy == NULL || !set_up(t)) {
        rc = no_memory(err);
    } else if (lib.curl_multi_add_handle(multi, t->easy) != CURLM_OK) {
        rc = no_memory(err);
    } else {
        moved(t);
        rc = perform(t, multi, err);
        (void)lib.curl_multi_remove_handle(multi, t->easy);
    }
    if (t != NULL) {
        lib.curl_easy_cleanup(t->easy);
        lib.curl_slist_free_all(t->headers);
    }
    if (multi != NULL) {
        (void)lib.curl_multi_cleanup(multi);
    }
    free(t);
    return rc;
}

int stk_http_send(const stk_http_request *request, stk_http_response *ret, stk_err *err)
{
    ret->status = 0;
    ret->head.max = ret->head.max == 0 ? HEAD_MAX : ret->head.max;
    ret->body.max = ret->body.max == 0 ? BODY_MAX : ret->body.max;
    stk_buf_clear(&ret->head);
    stk_buf_clear(&ret->body);
    return request->unix_socket != NULL ? stk_http_local(request, ret, err)
                                        : send_far(request, ret, err);
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

void stk_http_done(stk_http_response *response)
{
    stk_buf_done(&response->head);
    stk_buf_done(&response->body);
}
