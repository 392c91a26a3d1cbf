/* Private to net: loads libcurl when it is first needed, and turns a request into one of its
 * handles. */
#ifndef STK_NET_HTTP_CURL_H
#define STK_NET_HTTP_CURL_H

/* The headers' type checks are macros around the functions; our pointers from dlsym don't fit. */
#define CURL_DISABLE_TYPECHECK
/* We use deprecated options, because a libcurl.so.4 older than these headers has only those. */
#define CURL_DISABLE_DEPRECATION
#include <curl/curl.h>

#include "base/digest.h"
#include "net/http_private.h"

#define STK_CURL_FUNCTIONS(X)                                                                      \
    X(curl_global_init)                                                                            \
    X(curl_version_info)                                                                           \
    X(curl_easy_init)                                                                              \
    X(curl_easy_setopt)                                                                            \
    X(curl_easy_getinfo)                                                                           \
    X(curl_easy_reset)                                                                             \
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

typedef struct stk_curl_library {
#define X(name) __typeof__(&name) name;
    STK_CURL_FUNCTIONS(X)
#undef X
} stk_curl_library;

extern stk_curl_library stk_curl; /* valid once stk_curl_need has returned 0 */
int stk_curl_need(stk_err *err);

/* PEM texts as files in memory, which every TLS library of libcurl reads. The same text gets the
 * same file, or libcurl wouldn't reuse a connection. */
enum { STK_CURL_PEMS = 16 };
typedef struct stk_curl_pems {
    uint32_t n; /* ever made; a new one replaces the oldest */
    struct {
        char digest[STK_DIGEST_HEX + 1];
        int fd;
    } at[STK_CURL_PEMS];
} stk_curl_pems;
void stk_curl_pems_done(stk_curl_pems *pems);

typedef struct stk_curl_transfer {
    const stk_http_request *request;
    stk_http_response *response;
    CURL *easy;
    struct curl_slist *headers;
    struct curl_slist *connect_to;
    int64_t last_ms; /* time of the last byte */
    int64_t n_sent;  /* bytes that read_body has given */
    enum { GOING, STOPPED, TOO_LARGE, CANT_READ } end;
    int sys;
    char text[CURL_ERROR_SIZE];
} stk_curl_transfer;

/* Prepares t->easy (new or reset) for t's request and response. `pems` outlives the transfer. */
int stk_curl_set_up(stk_curl_transfer *t, stk_curl_pems *pems, stk_err *err);
void stk_curl_done(stk_curl_transfer *t); /* frees all but the handle */
void stk_curl_moved(stk_curl_transfer *t);
/* Sets the error of a failed transfer. Returns 0 if it succeeded. */
int stk_curl_explain(const stk_curl_transfer *t, CURLcode code, stk_err *err);
/* Milliseconds until the transfer has been silent for too long (INT64_MAX: never); <= 0: it has. */
int64_t stk_curl_patience(const stk_curl_transfer *t);
int stk_curl_silent(const stk_curl_transfer *t, stk_err *err);

#endif
