/* http: one request and its answer, over TCP, TLS or a unix socket. Only who talks to a container
 * engine or a registry needs it. Unix sockets are spoken to directly; for the rest libcurl
 * (libcurl.so.4, or what STOKER_LIBCURL names) is loaded at the first request. Certificates:
 * CURL_CA_BUNDLE, SSL_CERT_FILE, libcurl's own, the usual files.
 *
 * Nothing secret is ever in an error: the way of a URL is, its query and user part are not.
 */
#ifndef STK_HTTP_H
#define STK_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

typedef struct stk_http_request {
    const char *method;         /* "GET" */
    const char *url;            /* http://d/v1.41/… with a unix socket, else a whole one */
    const char *unix_socket;    /* path, or NULL */
    const char *const *headers; /* "Name: value", NULL-terminated, or NULL */
    const void *body;           /* with body_len; or NULL */
    size_t body_len;
    int body_fd;        /* sent as it is read (chunked) when body is NULL and this isn't -1; 0 is
                           none, too */
    int64_t connect_ms; /* 0: 10 s */
    int64_t idle_ms;    /* no byte for so long ends it; 0: never */
    uint32_t redirects; /* to be followed, at most (not of a unix socket); credentials don't go to
                           another host */
    /* The body as it comes (status is known then); false ends the transfer. NULL: into `body`. */
    bool (*on_body)(void *arg, const void *data, size_t n);
    void *arg;
    int cancel_fd; /* readable: end the transfer (STK_E_CANCELLED); 0: none */
} stk_http_request;

typedef struct stk_http_response {
    int status;   /* 200 … */
    stk_buf head; /* header lines as they came, of the last answer */
    stk_buf body; /* up to its limit (STK_BUF_INIT before the call; 0: 64 MiB); more is an error */
} stk_http_response;

/* An error is no answer, whatever its status is an answer: STK_E_ENV (can't connect, cut off,
 * silent for too long, no libcurl on this host), STK_E_CANCELLED (also by on_body), STK_E_LIMIT. */
int stk_http_send(const stk_http_request *request, stk_http_response *ret, stk_err *err);
/* A header's value, case-insensitive, into `value`; false: not there or too long. */
bool stk_http_header(const stk_http_response *response, const char *name, char *value, size_t size);
void stk_http_done(stk_http_response *response);

#endif
