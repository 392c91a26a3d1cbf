/* Inside the share room: a bucket, and one request to it. */
#ifndef STK_SHARE_S3_H
#define STK_SHARE_S3_H

#include <pthread.h>

#include "away/aws/aws.h"
#include "away/share/share_private.h"

/* A part, a range: the chunk of our digests, so that each one's sum is known and needed anyway. */
#define STK_S3_CHUNK (16ll << 20)
enum { STK_S3_SESSIONS = 32, STK_S3_HEADERS = 6, STK_S3_PARTS = 10000 };

typedef struct stk_s3 {
    stk_aws *aws;
    char bucket[256];
    char *prefix;         /* "" or "a/b/" */
    pthread_mutex_t lock; /* of what follows */
    bool known;           /* the three below */
    bool path_style;
    char region[64]; /* the bucket's */
    char base[768];  /* scheme, host and, in path style, the bucket: no '/' behind */
    bool custom;
    stk_http_session *idle[STK_S3_SESSIONS]; /* nobody uses them now */
    uint32_t n_idle;
} stk_s3;

typedef struct stk_s3_ask {
    const char *method;
    const char *key;                     /* below the store's URL; NULL: the bucket */
    const char *query;                   /* encoded, without '?'; NULL: none */
    const char *headers[STK_S3_HEADERS]; /* NULL behind the last */
    const void *body;
    size_t n;           /* bytes of body, or of what read_body gives */
    const char *sha256; /* of these; NULL: of `body` */
    int64_t (*read_body)(void *arg, int64_t at, void *data, size_t n);
    void *read_arg;
    bool (*on_body)(void *arg, const void *data, size_t n); /* of good answers only */
    void *arg;
    int64_t idle_ms; /* no byte for so long: it is cut off; 0: a minute */
    size_t body_max; /* of an answer into `body`; 0: 64 MiB */
} stk_s3_ask;

/* One try. *ret_again as of stk_aws_settle; a bucket that is in another region is asked there next.
 * `code` is AWS's. STK_E_NOT_FOUND: no such object; no such bucket is STK_E_ENV. */
int stk_s3_try(stk_share *share, const stk_s3_ask *ask, stk_http_response *ret, char code[80],
               stk_aws_again *ret_again, stk_err *err);
/* Until there is an answer or no hope. *ret_tries: how many it took. NULL is fine for both ret_. */
int stk_s3_send(stk_share *share, const stk_s3_ask *ask, stk_http_response *ret, char code[80],
                uint32_t *ret_tries, stk_err *err);
/* How large; its ETag with quotes, "" unknown (may be NULL). */
int stk_s3_head(stk_share *share, const char *key, int64_t *ret_size, char etag[128], stk_err *err);

int stk_s3_put_file(stk_share *share, const char *key, const char *path, const char *digest,
                    stk_err *err);
int stk_s3_get_file(stk_share *share, const char *key, const char *path, const char *digest,
                    int64_t size, stk_err *err);
int stk_s3_list(stk_share *share, const char *prefix, const char *after, stk_share_each *each,
                void *arg, stk_err *err);

#endif
