/* http: one request and its answer, over TCP, TLS or a unix socket (many at once: http_many.h).
 * Only who talks to a container engine, a registry or a cloud needs it. Unix sockets are spoken to
 * directly; for the rest libcurl (libcurl.so.4, or what STOKER_LIBCURL names) is loaded at the
 * first request. Certificates: CURL_CA_BUNDLE, SSL_CERT_FILE, libcurl's own, the usual files.
 *
 * Nothing secret is ever in an error: the way of a URL is, its query and user part are not.
 */
#ifndef STK_HTTP_H
#define STK_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* One thread's: keeps connections, names and TLS sessions from request to request. */
typedef struct stk_http_session stk_http_session;

/* What a server's certificate is checked by, and who we are. Texts are PEM and stay in memory. */
typedef struct stk_http_tls {
    const char *ca_file;               /* these authorities only; NULL: see above */
    const char *ca_data;               /* the same as text, goes first */
    const char *cert_file, *cert_data; /* ours, and its key; NULL: none */
    const char *key_file, *key_data;
    const char *server_name; /* the certificate is for this name (SNI too); NULL: the URL's */
    bool insecure;           /* any certificate will do */
} stk_http_tls;

typedef struct stk_http_request {
    const char *method;         /* "GET" */
    const char *url;            /* http://d/v1.41/… with a unix socket, else a whole one */
    const char *unix_socket;    /* path, or NULL */
    const char *const *headers; /* "Name: value", NULL-terminated, or NULL */
    const void *body;           /* with body_len; or NULL */
    size_t body_len;
    int body_fd; /* sent as it is read (chunked) when body is NULL and this isn't -1; 0 is
                    none, too */
    /* Or by this, `body_len` bytes, over TCP and TLS: fills `data` with `n` bytes of it from `at`
     * on (again from 0 where a kept connection turns out to be dead) and returns how many; below
     * 0 ends it. */
    int64_t (*read_body)(void *arg, int64_t at, void *data, size_t n);
    void *read_arg;
    stk_http_session *session;  /* NULL: a connection of its own */
    const stk_http_tls *tls;    /* NULL: checked by the usual authorities */
    bool direct;                /* no proxy, whatever the environment says */
    int64_t connect_ms;         /* 0: 10 s */
    int64_t idle_ms;            /* no byte for so long ends it; 0: never */
    bool (*on_idle)(void *arg); /* asked first then, over a unix socket: true goes on waiting */
    void *idle_arg;
    uint32_t redirects; /* to be followed, at most (not of a unix socket); credentials don't go to
                           another host */
    /* The body as it comes (status is known then); false ends the transfer. NULL: into `body`.
     * ok_only: an answer other than 200 to 299 into `body` all the same. */
    bool (*on_body)(void *arg, const void *data, size_t n);
    void *arg;
    bool ok_only;
    int cancel_fd; /* readable: end the transfer (STK_E_CANCELLED); 0: none */
} stk_http_request;

typedef struct stk_http_response {
    int status;   /* 200 … */
    stk_buf head; /* header lines as they came, of the last answer */
    bool fatal;   /* after an error: the same would fail again (a certificate, a URL) */
    stk_buf body; /* up to its limit (STK_BUF_INIT before the call; 0: 64 MiB); more is an error */
} stk_http_response;

/* An error is no answer, whatever its status is an answer: STK_E_ENV (can't connect, cut off,
 * silent for too long, no libcurl on this host), STK_E_CANCELLED (also by on_body), STK_E_LIMIT. */
int stk_http_send(const stk_http_request *request, stk_http_response *ret, stk_err *err);
/* A header's value, case-insensitive, into `value`; false: not there or too long. */
bool stk_http_header(const stk_http_response *response, const char *name, char *value, size_t size);
/* Its Date, in wall-clock ms since 1970; -1: it says none. */
int64_t stk_http_date_ms(const stk_http_response *response);
void stk_http_done(stk_http_response *response);
#define STK_HTTP_RESPONSE_AUTO __attribute__((cleanup(stk_http_done))) stk_http_response

/* Nothing is connected or loaded yet. */
int stk_http_session_open(stk_http_session **ret, stk_err *err);
void stk_http_session_close(stk_http_session *session); /* NULL is fine */
static inline void stk_http_session_close_auto(stk_http_session **session)
{
    stk_http_session_close(*session);
}
#define STK_HTTP_SESSION_AUTO                                                                      \
    __attribute__((cleanup(stk_http_session_close_auto))) stk_http_session *

#endif
