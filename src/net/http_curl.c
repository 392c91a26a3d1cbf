/* Loads libcurl when it is first needed, and turns a request into one of its handles. */
#include "net/http_curl.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <time.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/text.h"
#include "sys/clock.h"
#include "sys/file.h"

/* --- loading libcurl --- */

stk_curl_library stk_curl;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char why_not[256]; /* "": it is loaded */
static const char *roots; /* certificates, if its default file isn't on this host; else NULL */

/* A libcurl from another distribution looks for that one's certificate file. */
static const char *find_roots(void)
{
    static const char *const usual[] = {
        "/etc/ssl/certs/ca-certificates.crt",                /* Debian, Ubuntu, Arch */
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* Fedora, RHEL */
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem", /* openSUSE */
        "/etc/ssl/cert.pem",      /* Alpine */
        "/stoker/ca.pem"};        /* we carry it into images without one: run_carry.c */
    static const char *const variables[] = {"CURL_CA_BUNDLE", "SSL_CERT_FILE"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *named = getenv(variables[i]);
        if (named != NULL && named[0] != '\0') {
            return named;
        }
    }
    const curl_version_info_data *info = stk_curl.curl_version_info(CURLVERSION_SEVENTH);
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
    const char *only = getenv("STOKER_LIBCURL"); /* another file or name */
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
        (void)snprintf(why_not, sizeof why_not, "%s", stk_text_or(why, "can't be loaded"));
        return;
    }
    const char *missing = NULL;
#define X(name)                                                                                    \
    stk_curl.name = (__typeof__(stk_curl.name))dlsym(so, #name);                                   \
    missing = stk_curl.name == NULL ? #name : missing;
    STK_CURL_FUNCTIONS(X)
#undef X
    if (missing != NULL) {
        (void)snprintf(why_not, sizeof why_not, "it has no %s", missing);
    } else if (stk_curl.curl_global_init(CURL_GLOBAL_ALL) != CURLE_OK) {
        (void)snprintf(why_not, sizeof why_not, "it can't start");
    } else {
        roots = find_roots();
    }
}

int stk_curl_need(stk_err *err)
{
    (void)pthread_once(&once, load);
    if (why_not[0] == '\0') {
        return 0;
    }
    stk_err_set(err, STK_E_ENV,
                "libcurl.so.4 is needed to talk to container engines, "
                "registries and clouds: %s",
                why_not);
    stk_err_hint(err, "install it: apt-get install libcurl4 (Debian, Ubuntu), dnf install libcurl");
    return STK_E_ENV;
}

/* --- one request --- */

void stk_curl_moved(stk_curl_transfer *t)
{
    t->last_ms = stk_clock_mono_ms(&stk_clock_real);
}

static size_t on_header(char *data, size_t size, size_t n, void *arg)
{
    stk_curl_transfer *t = arg;
    stk_http_response *r = t->response;
    size_t len = size * n;
    stk_curl_moved(t);
    if (len > 5 && memcmp(data, "HTTP/", 5) == 0) { /* a new answer, after a 100 or a redirect */
        const char *blank = memchr(data, ' ', len);
        stk_buf_clear(&r->head);
        r->status = (int)strtol(stk_text_or(blank, ""), NULL, 10);
    }
    if (stk_buf_add(&r->head, data, len) < 0) {
        t->end = TOO_LARGE;
        return 0;
    }
    return len;
}

static size_t on_data(char *data, size_t size, size_t n, void *arg)
{
    stk_curl_transfer *t = arg;
    size_t len = size * n;
    stk_curl_moved(t);
    bool ok = t->response->status >= 200 && t->response->status < 300;
    if (t->request->on_body != NULL && (ok || !t->request->ok_only)) {
        if (!t->request->on_body(t->request->arg, data, len)) {
            t->end = STOPPED;
            return len == 0;
        }
    } else if (stk_buf_add(&t->response->body, data, len) < 0) {
        t->end = TOO_LARGE;
        return len == 0;
    }
    return len;
}

static size_t on_send(char *data, size_t size, size_t n, void *arg)
{
    stk_curl_transfer *t = arg;
    ssize_t got;
    stk_curl_moved(t);
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

static size_t on_ask(char *data, size_t size, size_t n, void *arg)
{
    stk_curl_transfer *t = arg;
    const stk_http_request *q = t->request;
    int64_t left = (int64_t)q->body_len - t->n_sent;
    size_t want = (size_t)MIN(left, (int64_t)(size * n));
    stk_curl_moved(t);
    if (want == 0) {
        return 0;
    }
    int64_t got = q->read_body(q->read_arg, t->n_sent, data, want);
    if (got <= 0 || got > (int64_t)want) { /* less than promised */
        t->end = CANT_READ;
        t->sys = EIO;
        return CURL_READFUNC_ABORT;
    }
    t->n_sent += got;
    return (size_t)got;
}

static int on_seek(void *arg, curl_off_t offset, int origin)
{
    stk_curl_transfer *t = arg;
    if (origin != SEEK_SET) {
        return CURL_SEEKFUNC_CANTSEEK;
    }
    t->n_sent = (int64_t)offset;
    return CURL_SEEKFUNC_OK;
}

const char *stk_http_shown(const char *url, char *buf)
{
    const char *host = stk_http_host(url);
    const char *from = host;
    const char *at = memrchr(host, '@', strcspn(host, "/?#"));
    if (at != NULL) {
        from = at + 1;
    }
    (void)snprintf(buf, HTTP_SHOWN_MAX, "%.*s%.*s", (int)(host - url), url,
                   (int)strcspn(from, "?#"), from);
    return buf;
}

static bool add_header(stk_curl_transfer *t, const char *line)
{
    struct curl_slist *longer = stk_curl.curl_slist_append(t->headers, line);
    if (longer != NULL) {
        t->headers = longer;
    }
    return longer != NULL;
}

static bool has_fd_body(const stk_http_request *q)
{
    return q->body == NULL && q->body_fd > 0;
}

#define SET(option, value) stk_curl.curl_easy_setopt(t->easy, (option), (value))

static void set_body(stk_curl_transfer *t)
{
    const stk_http_request *q = t->request;
    if (q->read_body != NULL) {
        SET(CURLOPT_UPLOAD, 1L);
        SET(CURLOPT_READFUNCTION, on_ask);
        SET(CURLOPT_READDATA, t);
        SET(CURLOPT_SEEKFUNCTION, on_seek);
        SET(CURLOPT_SEEKDATA, t);
        SET(CURLOPT_INFILESIZE_LARGE, (curl_off_t)q->body_len);
        SET(CURLOPT_UPLOAD_BUFFERSIZE, 256L << 10);
    } else if (has_fd_body(q)) {
        SET(CURLOPT_UPLOAD, 1L);
        SET(CURLOPT_READFUNCTION, on_send);
        SET(CURLOPT_READDATA, t);
        SET(CURLOPT_UPLOAD_BUFFERSIZE, 256L << 10);
    } else if (q->body != NULL || strcmp(q->method, "POST") == 0 || strcmp(q->method, "PUT") == 0) {
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)stk_http_body_len(q));
        SET(CURLOPT_POSTFIELDS, stk_text_or(q->body, ""));
    }
    if (strcmp(q->method, "HEAD") == 0) {
        SET(CURLOPT_NOBODY, 1L);
    } else if (strcmp(q->method, "GET") != 0) {
        SET(CURLOPT_CUSTOMREQUEST, q->method);
    }
}

static bool set_headers(stk_curl_transfer *t)
{
    bool typed = false;
    bool ok = add_header(t, "Expect:"); /* none: servers that ignore it cost us a second */
    for (uint32_t i = 0; t->request->headers != NULL && t->request->headers[i] != NULL; i++) {
        typed |= strncasecmp(t->request->headers[i], "Content-Type:", 13) == 0;
        ok = ok && add_header(t, t->request->headers[i]);
    }
    ok = ok && (typed || add_header(t, "Content-Type:")); /* not curl's default, a form */
    SET(CURLOPT_HTTPHEADER, t->headers);
    return ok;
}

/* --- TLS --- */

void stk_curl_pems_done(stk_curl_pems *pems)
{
    uint32_t n = MIN(pems->n, STK_CURL_PEMS);
    for (uint32_t i = 0; i < n; i++) {
        stk_file_close(&pems->at[i].fd);
    }
    *pems = (stk_curl_pems){0};
}

/* Sets `path` to a file that contains `text`. */
static int pem_path(stk_curl_pems *pems, const char *text, char *path, size_t size, stk_err *err)
{
    char digest[STK_DIGEST_HEX + 1];
    uint32_t n = MIN(pems->n, STK_CURL_PEMS);
    uint32_t i = 0;
    stk_digest_of(text, strlen(text), digest);
    while (i < n && strcmp(pems->at[i].digest, digest) != 0) {
        i++;
    }
    if (i == n) {
        int fd = memfd_create("stoker-pem", MFD_CLOEXEC);
        if (fd < 0 || stk_file_write_all(fd, text, strlen(text)) < 0) {
            int sys = errno;
            stk_file_close(&fd);
            return stk_err_sys(err, STK_E_SYS, sys, "can't keep a certificate in memory");
        }
        i = pems->n % STK_CURL_PEMS;
        if (pems->n >= STK_CURL_PEMS) {
            stk_file_close(&pems->at[i].fd);
        }
        pems->at[i].fd = fd;
        memcpy(pems->at[i].digest, digest, sizeof digest);
        pems->n++;
    }
    (void)snprintf(path, size, "/proc/self/fd/%d", pems->at[i].fd);
    return 0;
}

/* Sets a PEM option from a text, else from a file, else not at all. */
static int set_pem(stk_curl_transfer *t, stk_curl_pems *pems, CURLoption option, const char *data,
                   const char *file, stk_err *err)
{
    char path[64];
    if (data != NULL) {
        STK_TRY(pem_path(pems, data, path, sizeof path, err));
        file = path;
    }
    if (file != NULL) {
        SET(option, file);
    }
    return 0;
}

/* Puts the name into the URL, and connects it to the old host: libcurl has no other way to expect a
 * certificate of another name. */
static int set_server_name(stk_curl_transfer *t, const char *name, stk_err *err)
{
    const char *url = t->request->url;
    const char *host = strstr(url, "://");
    if (host == NULL) {
        return stk_err_set(err, STK_E_USAGE, "'%.80s' is not a URL", url);
    }
    host += 3;
    size_t n = strcspn(host, "/?#");
    const char *end = host + n, *colon = memrchr(host, ':', n);
    if (colon == NULL || memchr(colon, ']', (size_t)(end - colon)) != NULL) {
        colon = end; /* no port: the colon is in an IPv6 address */
    }
    size_t n_name = (size_t)(colon - host);
    const char *port = colon + (colon < end);
    int n_port = (int)(end - port);
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 20);
    stk_buf_printf(&text, "%s:%.*s:%.*s:%.*s", name, n_port, port, (int)n_name, host, n_port, port);
    STK_TRY(stk_buf_check(&text, err));
    t->connect_to = stk_curl.curl_slist_append(NULL, text.data);
    stk_buf_clear(&text);
    stk_buf_printf(&text, "Host: %.*s", (int)n, host);
    bool ok = t->connect_to != NULL && add_header(t, text.data);
    stk_buf_clear(&text);
    stk_buf_printf(&text, "%.*s%s%s%.*s%s", (int)(host - url), url, name,
                   stk_text_when(n_port > 0, ":"), n_port, port, host + n);
    if (!ok || text.failed) {
        return stk_err_nomem(err);
    }
    SET(CURLOPT_CONNECT_TO, t->connect_to);
    SET(CURLOPT_URL, text.data);
    return 0;
}

static int set_tls(stk_curl_transfer *t, stk_curl_pems *pems, stk_err *err)
{
    const stk_http_tls *tls = t->request->tls;
    if (roots != NULL) {
        SET(CURLOPT_CAINFO, roots);
    }
    if (tls == NULL) {
        return 0;
    }
    if (tls->ca_data != NULL || tls->ca_file != NULL) {
        SET(CURLOPT_CAPATH, NULL); /* not the host's authorities in addition */
    }
    STK_TRY(set_pem(t, pems, CURLOPT_CAINFO, tls->ca_data, tls->ca_file, err));
    STK_TRY(set_pem(t, pems, CURLOPT_SSLCERT, tls->cert_data, tls->cert_file, err));
    STK_TRY(set_pem(t, pems, CURLOPT_SSLKEY, tls->key_data, tls->key_file, err));
    if (tls->insecure) {
        SET(CURLOPT_SSL_VERIFYPEER, 0L);
        SET(CURLOPT_SSL_VERIFYHOST, 0L);
    }
    if (stk_text_if_any(tls->server_name) != NULL) {
        return set_server_name(t, tls->server_name, err);
    }
    return 0;
}

/* --- all of it --- */

int stk_curl_set_up(stk_curl_transfer *t, stk_curl_pems *pems, stk_err *err)
{
    const stk_http_request *q = t->request;
    SET(CURLOPT_URL, q->url);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_ERRORBUFFER, t->text);
    SET(CURLOPT_PRIVATE, t);
    SET(CURLOPT_USERAGENT, "stoker/" STK_VERSION);
    SET(CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)stk_http_connect_ms(q));
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, t);
    SET(CURLOPT_WRITEFUNCTION, on_data);
    SET(CURLOPT_WRITEDATA, t);
    SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    if (q->unix_socket != NULL) {
        SET(CURLOPT_UNIX_SOCKET_PATH, q->unix_socket);
    }
    if (q->direct) {
        SET(CURLOPT_NOPROXY, "*");
    } else if (q->proxy != NULL) {
        SET(CURLOPT_PROXY, q->proxy);
        SET(CURLOPT_NOPROXY, "");
    }
    if (q->redirects > 0) {
        bool safe = strncasecmp(q->url, "https:", 6) == 0;
        SET(CURLOPT_FOLLOWLOCATION, 1L); /* sends Authorization only to the same host and port */
        SET(CURLOPT_MAXREDIRS, (long)q->redirects);
        SET(CURLOPT_REDIR_PROTOCOLS,
            (long)(safe ? CURLPROTO_HTTPS : CURLPROTO_HTTP | CURLPROTO_HTTPS));
    }
    set_body(t);
    STK_TRY(set_tls(t, pems, err));
    if (set_headers(t)) {
        return 0;
    }
    return stk_err_nomem(err);
}

void stk_curl_done(stk_curl_transfer *t)
{
    stk_curl.curl_slist_free_all(t->headers);
    stk_curl.curl_slist_free_all(t->connect_to);
    t->headers = t->connect_to = NULL;
}

int64_t stk_curl_patience(const stk_curl_transfer *t)
{
    if (t->request->idle_ms > 0) {
        return t->last_ms + t->request->idle_ms - stk_clock_mono_ms(&stk_clock_real);
    }
    return INT64_MAX;
}

int stk_curl_silent(const stk_curl_transfer *t, stk_err *err)
{
    char url[HTTP_SHOWN_MAX];
    return stk_err_set(err, STK_E_ENV, "%s %s: no data came for %.3g s", t->request->method,
                       stk_http_shown(t->request->url, url), (double)t->request->idle_ms / 1000.0);
}

/* Would a retry fail the same way? */
static bool is_fatal(CURLcode code)
{
    return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CERTPROBLEM ||
           code == CURLE_SSL_CACERT_BADFILE || code == CURLE_URL_MALFORMAT ||
           code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_SSL_ISSUER_ERROR ||
           code == CURLE_OUT_OF_MEMORY || code == CURLE_TOO_MANY_REDIRECTS;
}

int stk_curl_explain(const stk_curl_transfer *t, CURLcode code, stk_err *err)
{
    char url[HTTP_SHOWN_MAX];
    const stk_http_request *q = t->request;
    if (code == CURLE_OK) {
        return 0;
    }
    (void)stk_http_shown(q->url, url);
    t->response->fatal = t->end != GOING || is_fatal(code);
    if (t->end == STOPPED) {
        return stk_err_set(err, STK_E_CANCELLED, "%s %s: stopped", q->method, url);
    }
    if (t->end == TOO_LARGE) {
        return stk_err_set(err, STK_E_LIMIT, "%s %s: the answer is larger than %zu bytes",
                           q->method, url, t->response->body.max);
    }
    if (t->end == CANT_READ) {
        return stk_err_sys(err, STK_E_SYS, t->sys, "%s %s: reading the request's body", q->method,
                           url);
    }
    const char *why = stk_text_or(stk_text_if_any(t->text), stk_curl.curl_easy_strerror(code));
    bool by_time = code == CURLE_PEER_FAILED_VERIFICATION &&
                   (strstr(why, "not yet") != NULL || strstr(why, "expired") != NULL);
    if (by_time) { /* mostly it's our clock that is wrong */
        char now[40];
        time_t at = (time_t)(stk_clock_wall_ms(&stk_clock_real) / 1000);
        struct tm tm;
        (void)strftime(now, sizeof now, "%Y-%m-%d %H:%M UTC", gmtime_r(&at, &tm));
        return stk_err_set(err, STK_E_ENV,
                           "%s %s: %s; this machine's clock says %s: set it right, or have the "
                           "certificate renewed",
                           q->method, url, why, now);
    }
    return stk_err_set(err, code == CURLE_OUT_OF_MEMORY ? STK_E_NOMEM : STK_E_ENV, "%s %s: %s",
                       q->method, url, why);
}
