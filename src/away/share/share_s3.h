/* Private to share: a bucket, and one request to it. */
#ifndef STK_SHARE_S3_H
#define STK_SHARE_S3_H

#include <pthread.h>

#include "away/aws/aws.h"
#include "away/share/share_private.h"

/* Size of a part or range: the chunk of our digests, so that each chunk's sum serves both. */
#define STK_S3_CHUNK (16ll << 20)
enum { STK_S3_SESSIONS = 32, STK_S3_HEADERS = 6, STK_S3_PARTS = 10000 };

typedef struct stk_s3 {
    stk_aws *aws;
    char bucket[256];
    char *prefix;         /* "" or "a/b/" */
    pthread_mutex_t lock; /* guards the fields below */
    bool known;           /* region, base and path_style are known */
    bool path_style;
    char region[64]; /* the bucket's */
    char base[768];  /* scheme, host and, in path style, the bucket; no '/' at the end */
    bool custom;
    stk_http_session *idle[STK_S3_SESSIONS]; /* free connections */
    uint32_t n_idle;
} stk_s3;

typedef struct stk_s3_ask {
    const char *method;
    const char *key;                     /* below the store's URL; NULL: the bucket itself */
    const char *query;                   /* encoded, without '?'; NULL: none */
    const char *headers[STK_S3_HEADERS]; /* NULL-terminated */
    const void *body;
    size_t n;           /* bytes of body, or that read_body returns in all */
    const char *sha256; /* of these bytes; NULL: of `body` */
    int64_t (*read_body)(void *arg, int64_t at, void *data, size_t n);
    void *read_arg;
    bool (*on_body)(void *arg, const void *data, size_t n); /* of successful answers only */
    void *arg;
    int64_t idle_ms; /* limit of silence; 0: a minute */
    size_t body_max; /* limit of an answer in `body`; 0: 64 MiB */
} stk_s3_ask;

/* Makes one try. *ret_again as in stk_aws_settle; if the bucket is in another region, the next try
 * goes there. `code` is AWS's error code. STK_E_NOT_FOUND: no such object; a missing bucket is
 * STK_E_ENV. */
int stk_s3_try(stk_share *share, const stk_s3_ask *ask, stk_http_response *ret, char code[80],
               stk_aws_again *ret_again, stk_err *err);
/* Retries until there is an answer or no hope. *ret_tries: number of tries. Both ret_ may be
 * NULL. */
int stk_s3_send(stk_share *share, const stk_s3_ask *ask, stk_http_response *ret, char code[80],
                uint32_t *ret_tries, stk_err *err);
/* Returns the size and the ETag with quotes, "": unknown (`etag` may be NULL). */
int stk_s3_head(stk_share *share, const char *key, int64_t *ret_size, char etag[128], stk_err *err);

int stk_s3_put_file(stk_share *share, const char *key, const char *path, const char *digest,
                    stk_err *err);
int stk_s3_get_file(stk_share *share, const char *key, const char *path, const char *digest,
                    int64_t size, stk_err *err);
int stk_s3_list(stk_share *share, const char *prefix, const char *after, stk_share_each *each,
                void *arg, stk_err *err);

typedef struct stk_s3_listing {
    const char *prefix;
    const char *after; /* or NULL */
    bool level;        /* stops at the next '/': each gets "a/b/" with size -1 */
    bool all;          /* also objects "a/b/", which some tools make as folders */
    stk_share_each *each;
    void *arg;
} stk_s3_listing;
int stk_s3_list_as(stk_share *share, const stk_s3_listing *q, stk_err *err);
int stk_s3_list_folders(stk_share *share, const char *prefix, stk_share_each_folder *each,
                        void *arg, stk_err *err);
/* As stk_s3_put_file, with headers that stay with the object; NULL-terminated, at most 4. */
int stk_s3_put_file_with(stk_share *share, const char *key, const char *path,
                         const char *const *headers, stk_err *err);

#endif
