/* One registry, asked by its API (OCI distribution): who we are there, and how it is reached. */
#ifndef STK_IMAGE_SERVER_H
#define STK_IMAGE_SERVER_H

#include "image/image_private.h"
#include "net/http.h"

enum { STK_IMAGE_MAX_BODY = 8 << 20 };

typedef struct stk_image_server {
    const stk_image_ref *ref;
    stk_arena *arena;
    stk_image_login login;
    bool pushes;               /* rights to push are asked for, too */
    const char *base;          /* "https://registry-1.docker.io"; NULL: not reached yet */
    const char *authorization; /* header, or NULL: not asked for yet */
    stk_http_session *session; /* or NULL */
} stk_image_server;

typedef struct stk_image_question {
    const char *method;
    const char *path; /* below "/v2/REPOSITORY/"; or a URL that the registry gave */
    const char *type; /* Content-Type of the body; NULL: there is none */
    const void *body;
    size_t body_len;
} stk_image_question;

/* Finds the credentials; sends nothing. */
int stk_image_server_open(const stk_image_ref *ref, stk_arena *arena, stk_image_server *ret,
                          stk_err *err);
/* Asks by TLS or, where that is said to be fine, without. Any status but 200, 201, 202 and
 * `also` (0: none) is an error. The caller calls stk_http_done for `response` in any case. */
int stk_image_server_ask(stk_image_server *server, const stk_image_question *question, int also,
                         stk_http_response *response, stk_err *err);
/* Turns a refusal into an error with the registry's own words. */
int stk_image_server_refused(const stk_image_server *server, const stk_http_response *response,
                             stk_err *err);
/* image_token.c: answers the challenge in `refusal`: by a token or the credentials themselves.
 * STK_E_ENV without a text: there are none. */
int stk_image_server_authorize(stk_image_server *server, const stk_http_response *refusal,
                               stk_err *err);
/* What containers' tools say of a host's certificates; NULL: nothing. In `arena`. */
const stk_http_tls *stk_image_server_tls(const char *url, stk_arena *arena);
/* The digest in an answer's header, or that of its body. NULL: neither. */
const char *stk_image_server_digest(const stk_image_server *server,
                                    const stk_http_response *response);

#endif
