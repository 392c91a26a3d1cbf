/* http: one request and its answer, over TCP, TLS or a unix socket (many at once: http_many.h).
 * Only code that talks to a container engine, a registry or a cloud needs it. It speaks to unix
 * sockets itself; for the rest it loads libcurl (libcurl.so.4, or the file that STOKER_LIBCURL
 * names) at the first request. Certificates: CURL_CA_BUNDLE, SSL_CERT_FILE, libcurl's own, the
 * usual files.
 *
 * Errors never contain secrets: they show a URL's path, but not its query and user.
 */
#ifndef STK_HTTP_H
#define STK_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* Keeps connections, resolved names and TLS sessions between requests. For one thread. */
typedef struct stk_http_session stk_http_session;

/* How to check the server's certificate, and our own. Texts are PEM and stay in memory. */
typedef struct stk_http_tls {
    const char *ca_file;               /* trust only these authorities; NULL: see above */
    const char *ca_data;               /* the same as text; wins over ca_file */
    const char *cert_file, *cert_data; /* our certificate and its key; NULL: none */
    const char *key_file, *key_data;
    const char *server_name; /* the certificate's name, also for SNI; NULL: the URL's */
    bool insecure;           /* accept any certificate */
} stk_http_tls;

typedef struct stk_http_request {
    const char *method;         /* "GET" */
    const char *url;            /* with a unix socket: http://d/v1.41/… */
    const char *unix_socket;    /* path, or NULL */
    const char *const *headers; /* "Name: value", NULL-terminated, or NULL */
    const void *body;           /* of body_len bytes; or NULL */
    size_t body_len;
    int body_fd; /* if body is NULL: sent in chunks as it is read; 0 and -1: none */
    /* Or called for the body's `body_len` bytes (TCP and TLS only). Fills `data` with at most `n`
     * bytes from offset `at`, and returns their number; 0 or below ends the transfer. `at` is 0
     * again if a kept connection turns out to be dead. */
    int64_t (*read_body)(void *arg, int64_t at, void *data, size_t n);
    void *read_arg;
    stk_http_session *session;  /* NULL: opens a connection just for this request */
    const stk_http_tls *tls;    /* NULL: the usual authorities */
    bool direct;                /* use no proxy, even if the environment names one */
    const char *proxy;          /* use this one, whatever the environment says; NULL: as it says */
    int64_t connect_ms;         /* 0: 10 s */
    int64_t idle_ms;            /* longest time without a byte; 0: unlimited */
    bool (*on_idle)(void *arg); /* unix socket: true goes on waiting after idle_ms */
    void *idle_arg;
    uint32_t redirects; /* to follow at most (not with a unix socket); another host doesn't get the
                           credentials */
    /* Takes the body in parts, with the status known; false ends the transfer. NULL: the body goes
     * into the response. ok_only: bodies of answers other than 200 to 299 go there in any case. */
    bool (*on_body)(void *arg, const void *data, size_t n);
    void *arg;
    bool ok_only;
    int cancel_fd; /* readable: end the transfer (STK_E_CANCELLED); 0: none */
} stk_http_request;

typedef struct stk_http_response {
    int status;   /* 200 … */
    stk_buf head; /* raw header lines of the last answer */
    bool fatal;   /* after an error: a retry would fail, too (a certificate, a URL) */
    stk_buf body; /* the caller may set a limit by STK_BUF_INIT (0: 64 MiB); more is an error */
} stk_http_response;

/* Returns 0 for any answer, whatever its status. Without one: STK_E_ENV (can't connect, cut off,
 * silent for too long, no libcurl on this host), STK_E_CANCELLED (also by on_body), STK_E_LIMIT. */
int stk_http_send(const stk_http_request *request, stk_http_response *ret, stk_err *err);
/* Copies a header's value; the name is case-insensitive. Returns false if absent or too long. */
bool stk_http_header(const stk_http_response *response, const char *name, char *value, size_t size);
/* The header Date, in wall-clock ms since 1970; -1: none. */
int64_t stk_http_date_ms(const stk_http_response *response);
void stk_http_done(stk_http_response *response);
#define STK_HTTP_RESPONSE_AUTO __attribute__((cleanup(stk_http_done))) stk_http_response

/* Neither connects nor loads libcurl yet. */
int stk_http_session_open(stk_http_session **ret, stk_err *err);
void stk_http_session_close(stk_http_session *session); /* NULL is fine */
static inline void stk_http_session_close_auto(stk_http_session **session)
{
    stk_http_session_close(*session);
}
#define STK_HTTP_SESSION_AUTO                                                                      \
    __attribute__((cleanup(stk_http_session_close_auto))) stk_http_session *

#endif
