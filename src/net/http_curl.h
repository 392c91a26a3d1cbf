/* Private to net: libcurl, loaded when first needed, and one request as one of its handles. */
#ifndef STK_NET_HTTP_CURL_H
#define STK_NET_HTTP_CURL_H

/* The headers' type checks wrap the functions in macros, which pointers from dlsym don't fit. */
#define CURL_DISABLE_TYPECHECK
/* What is deprecated there is what every libcurl.so.4 knows, also one older than these headers. */
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

extern stk_curl_library stk_curl; /* once stk_curl_need has returned 0 */
int stk_curl_need(stk_err *err);

/* PEM texts as files in memory, which every TLS library of libcurl's reads; the same text is the
 * same file, so that connections are found again. */
enum { STK_CURL_PEMS = 16 };
typedef struct stk_curl_pems {
    uint32_t n; /* ever made; the oldest makes way */
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
    int64_t last_ms; /* when the last byte passed */
    int64_t n_sent;  /* of a body that is asked for */
    enum { GOING, STOPPED, TOO_LARGE, CANT_READ } end;
    int sys;
    char text[CURL_ERROR_SIZE];
} stk_curl_transfer;

/* Of t->easy (fresh or reset), request and response; `pems` outlives the transfer. */
int stk_curl_set_up(stk_curl_transfer *t, stk_curl_pems *pems, stk_err *err);
void stk_curl_done(stk_curl_transfer *t); /* all but the handle */
void stk_curl_moved(stk_curl_transfer *t);
/* What became of it, in words; 0: it went well. */
int stk_curl_explain(const stk_curl_transfer *t, CURLcode code, stk_err *err);
/* Milliseconds until its silence is too long (INT64_MAX: never); at 0 or below it is. */
int64_t stk_curl_patience(const stk_curl_transfer *t);
int stk_curl_silent(const stk_curl_transfer *t, stk_err *err);

#endif
