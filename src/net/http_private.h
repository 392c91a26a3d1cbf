/* Private to net: shared by the code for unix sockets and for libcurl. */
#ifndef STK_NET_HTTP_PRIVATE_H
#define STK_NET_HTTP_PRIVATE_H

#include <string.h>

#include "net/http.h"

enum { HTTP_CONNECT_MS = 10000, HTTP_SHOWN_MAX = 300 };
enum { HTTP_HEAD_MAX = 256 << 10, HTTP_BODY_MAX = 64 << 20 };

/* Sends over a unix socket without libcurl, which takes longer to load than an engine to answer. */
int stk_http_local(const stk_http_request *request, stk_http_response *ret, stk_err *err);
/* The URL as scheme://host/path, without credentials, for messages. `buf` has HTTP_SHOWN_MAX
 * bytes. */
const char *stk_http_shown(const char *url, char *buf);

/* The URL after its scheme; all of it if it has none. */
static inline const char *stk_http_host(const char *url)
{
    const char *host = strstr(url, "://");
    return host == NULL ? url : host + 3;
}

static inline int64_t stk_http_connect_ms(const stk_http_request *request)
{
    return request->connect_ms > 0 ? request->connect_ms : HTTP_CONNECT_MS;
}

static inline size_t stk_http_body_len(const stk_http_request *request)
{
    return request->body == NULL ? 0 : request->body_len;
}

void stk_http_clear(stk_http_response *response); /* for a new answer; sets default limits */

#endif
