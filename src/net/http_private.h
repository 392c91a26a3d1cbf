/* Private to net: the two ways that a request goes. */
#ifndef STK_NET_HTTP_PRIVATE_H
#define STK_NET_HTTP_PRIVATE_H

#include <string.h>

#include "net/http.h"

enum { HTTP_CONNECT_MS = 10000, HTTP_SHOWN_MAX = 300 };
enum { HTTP_HEAD_MAX = 256 << 10, HTTP_BODY_MAX = 64 << 20 };

/* Over a unix socket, without libcurl: loading that takes longer than the engines' answers do. */
int stk_http_local(const stk_http_request *request, stk_http_response *ret, stk_err *err);
/* scheme://host/way: whoever reads messages mustn't find credentials in them. `buf` of
 * HTTP_SHOWN_MAX bytes. */
const char *stk_http_shown(const char *url, char *buf);

/* What stands behind the scheme; all of it where there is none. */
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

void stk_http_clear(stk_http_response *response); /* before an answer; limits get their defaults */

#endif
